"""A build: ninja's steps, and toolkits that are provided for it."""

import dataclasses
import shlex
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from checkout import python_path
from programmaker import program, run_python
from targets import CUDA_STABLE, EXTENSION, environ_of, sources
from torchwheel_runtime.builder import ninja, provision, variables
from torchwheel_runtime.builder.ninja import Step, build, read_progress
from torchwheel_runtime.builder.provision import complete_environment
from torchwheel_runtime.builder.recipe import Recipe
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.ownership import UntrustedError
from torchwheel_runtime.tasks import Count
from torchwheel_runtime.toolkit.host import HostCompiler

# Recipes of shell steps: what is compiled once for several builds, and who waits for whom.


class Shell(Recipe):
    """Its library is its objects, one after the other."""

    def link_steps(self, objects):
        step = Step("link", ("sh", "-c", 'cat "$@" > lib', "sh", *objects), tuple(objects), "lib")
        return (step,)


def recipe(*groups: tuple[str, str]) -> Shell:
    """A recipe with an object per (group, shell command that writes to $out)."""
    made = Shell(EXTENSION, sources(CUDA_STABLE), CUDA_STABLE)
    steps = {
        name: (Step(f"make {name}", ("sh", "-c", f"out={name}.o; {command}"), (), f"{name}.o"),)
        for name, command in groups
    }
    made.groups = steps
    return made


COUNTED = 'echo made >> count; echo "$out" > "$out"'


def test_a_shared_object_is_made_once_for_two_builds(tmp_path):
    shared = tmp_path / "shared"
    for variant, group in (("one", "aten2.6"), ("two", "aten2.11")):
        made = recipe(("device", COUNTED), (group, COUNTED))
        library = build(made, tmp_path / variant, shared, 1, lambda _: None)
        assert library == tmp_path / variant / "lib"
        assert library.read_text() == f"device.o\n{group}.o\n"
    assert (shared / "device" / "count").read_text() == "made\n"
    assert sorted(path.name for path in shared.iterdir()) == ["aten2.11", "aten2.6", "device"]


def test_another_launcher_compiles_nothing_again(tmp_path, monkeypatch):
    """The one of nox's environment, none, another one: each has the objects of the first."""
    launcher = program(tmp_path / "a folder" / "launcher", 'echo "$#" >> "$0.calls"; exec "$@"')
    (step,) = recipe(("device", COUNTED)).groups["device"]
    compiled = f"{step.command[2]}; echo 'device.o:' > d"
    step = dataclasses.replace(step, command=(*step.command[:2], compiled), depfile="d")
    for words in (shlex.quote(str(launcher)), "", "/elsewhere/sccache"):
        monkeypatch.setenv(ninja.LAUNCHER, words)
        ninja.run([step], tmp_path / "objects", 1, lambda _: None)
    assert (tmp_path / "objects" / "count").read_text() == "made\n"
    assert Path(f"{launcher}.calls").read_text() == f"{len(step.command)}\n"
    monkeypatch.setenv(ninja.LAUNCHER, "'")
    with pytest.raises(UsageError, match=r"^TORCHWHEEL_LAUNCHER: expected words as in a shell"):
        ninja.run([step], tmp_path / "objects", 1, lambda _: None)


def test_without_a_shared_folder_all_is_in_the_builds_own(tmp_path):
    library = build(recipe(("device", COUNTED)), tmp_path / "one", None, 1, lambda _: None)
    assert library.read_text() == "device.o\n"
    assert (tmp_path / "one" / "device.o").is_file()


def test_a_build_waits_for_another_and_says_so(tmp_path):
    script = """
        import sys
        from pathlib import Path
        sys.path[:0] = {tests!r}
        from test_build import build, recipe
        folder = Path({folder!r})
        until = f"for _ in $(seq 1000); do [ ! -e {{folder}}/waits ] || break; sleep 0.01; done"
        slow = ("device", f'echo made >> count; {{until}}; echo "$out" > "$out"')

        def say(line):
            print(line)
            if line.startswith("waiting:"):
                (folder / "waits").touch()

        build(recipe(slow), folder / sys.argv[1], folder / "shared", 1, say)
    """
    tests = [str(Path(__file__).parents[at]) for at in (0, 2)]
    text = textwrap.dedent(script).format(tests=tests, folder=str(tmp_path))
    both = [
        subprocess.Popen([sys.executable, "-c", text, name], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    said = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    waits = [line for lines in said for line in lines if line.startswith("waiting:")]
    assert waits == ["waiting: another build compiles device"]
    assert read_progress(waits[0]) == (waits[0], None)
    assert (tmp_path / "shared" / "device" / "count").read_text() == "made\n"


def test_a_failed_object_is_made_again_and_its_lock_is_free(tmp_path):
    flag = tmp_path / "flag"
    made = recipe(("device", f'test -e {flag} && echo good > "$out"'))
    for _ in range(2):
        with pytest.raises(TorchwheelError, match=r"building device\.o failed"):
            build(made, tmp_path / "one", tmp_path / "shared", 1, lambda _: None)
    flag.touch()
    library = build(made, tmp_path / "one", tmp_path / "shared", 1, lambda _: None)
    assert library.read_text() == "good\n"


def test_another_command_makes_the_object_anew(tmp_path):
    for word in ("first", "second"):
        made = recipe(("device", f'echo {word} > "$out"'))
        library = build(made, tmp_path / "one", tmp_path / "shared", 1, lambda _: None)
        assert library.read_text() == f"{word}\n"


def test_a_step_is_named_when_it_starts_and_a_failure_is_told(tmp_path):
    slow = Step("slow step", ("sh", "-c", "sleep 0.5; touch a"), (), "a")
    bad = Step("bad step", ("sh", "-c", "echo x.cu: error: no good; exit 1"), ("a",), "b")
    heard: list[tuple[float, str]] = []
    begun = time.monotonic()

    def hear(line: str) -> None:
        heard.append((time.monotonic() - begun, line))

    with pytest.raises(TorchwheelError, match=r"building b failed: x\.cu: error: no good"):
        ninja.run((slow, bad), tmp_path, 1, hear)
    named = {line: seconds for seconds, line in reversed(heard)}
    # Said at its start and at its end.
    assert named["[1/2] slow step"] - named["[0/2] slow step"] > 0.4
    assert read_progress("[1/2] slow step") == ("slow step", Count(1, 2))
    assert "[1/2] bad step" in named


def test_the_signal_that_ended_ninja_is_named(tmp_path):
    # ninja is the parent of the shell that starts this one.
    kill = "read -r _ _ _ ninja _ < /proc/$PPID/stat; kill -9 $ninja"
    killed = Step("slow step", ("sh", "-c", kill), (), "a")
    with pytest.raises(TorchwheelError, match=r"ninja was ended by SIGKILL in \[0/1\] slow step"):
        ninja.run((killed,), tmp_path, 1, lambda _: None)


def test_names_with_blanks_dollars_and_colons_survive_ninja(tmp_path):
    name = "odd $name: here.txt"
    step = Step("make it", ("sh", "-c", 'printf "%s" "$1" > "$1"', "sh", name), (), name)
    (built,) = ninja.run((step,), tmp_path / "b", 1, lambda _: None)
    assert built.read_text() == name


# A build environment that names the ABI flavour alone is completed; nothing is downloaded here.


ALONE = {variables.ABI: "stable"}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with a C++ compiler and nothing else; the folder of what is provisioned."""

    def no_system(*_):
        raise TorchwheelError("no CUDA toolkit here")

    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        provision, "host_compiler", lambda _: HostCompiler(Path("/bin/g++"), "gcc", "12")
    )
    monkeypatch.setattr(provision, "locate_system", no_system)
    monkeypatch.setattr(
        provision, "provision_pypi", lambda release, platform, *_: (tmp_path / release, platform)
    )
    monkeypatch.setattr(provision, "torch_headers", lambda release, *_: tmp_path / f"t{release}")
    return tmp_path


def complete(environ):
    return complete_environment({**ALONE, **environ}, EXTENSION, Quiet())


def test_everything_is_provisioned_where_there_is_nothing(machine):
    assert complete({}) == {
        variables.ABI: "stable",
        variables.CXX: "/bin/g++",
        variables.CUDA_HOME: str(machine / "13.0"),
        variables.TOOLKIT: "13.0",
        variables.ARCH_LIST: "7.5;8.0;9.0;10.0;11.0;12.0+PTX",
        variables.TORCH: str(machine / "t2.11"),
        variables.TORCH_RELEASE: "2.11",
    }


def test_what_is_named_is_taken(machine):
    named = {
        variables.CXX: "clang++",
        variables.TOOLKIT: "13.2",
        variables.ARCH_LIST: "9.0+PTX",
        variables.TORCH: "/my/torch",
    }
    found = complete(named)
    assert {name: found[name] for name in named} == named
    assert found[variables.CUDA_HOME] == str(machine / "13.2")


def test_an_installed_toolkit_comes_first(machine, monkeypatch):
    asked = []
    monkeypatch.setattr(provision, "locate_system", lambda *_: (Path("/usr/cuda"), "id"))
    monkeypatch.setattr(provision, "require_cuda", lambda *of: asked.append(of) or "12.4")
    found = complete({variables.ARCH_LIST: "9.0"})
    assert (found[variables.CUDA_HOME], found[variables.TOOLKIT]) == ("/usr/cuda", "12.4")
    assert asked == [(Path("/usr/cuda"), None)]


def test_a_wrong_cuda_home_is_an_error_and_no_download(machine):
    with pytest.raises(TorchwheelError, match="no CUDA toolkit here"):
        complete({variables.CUDA_HOME: "/nowhere"})


@pytest.mark.parametrize(
    ("environ", "can"),
    [
        (ALONE, True),
        ({**ALONE, variables.CUDA_HOME: "/cuda"}, True),
        ({**ALONE, variables.BACKEND: "cuda"}, True),
        ({**ALONE, variables.BACKEND: "rocm"}, False),
        ({**ALONE, variables.PART: "kernels"}, False),
        ({variables.ABI: "aten"}, False),
        ({}, False),
    ],
)
def test_what_can_be_completed(environ, can):
    assert variables.can_complete(environ) == can


def test_a_whole_environment_is_left_as_it_is():
    assert not variables.can_complete(environ_of(Path("/cuda")))


def test_provisioning_needs_no_pydantic():
    """Neither an installed extension (TORCHWHEEL_DOWNLOAD=1) nor pip's build environment has it."""
    code = (
        "import sys; sys.modules['pydantic'] = None\n"
        "import torchwheel_runtime.builder.provision, torchwheel_runtime.builder.probes\n"
    )
    env = {"PYTHONPATH": python_path()}
    done = run_python(code, env=env)
    assert done.returncode == 0, done.stderr


def test_without_ninja_a_line_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ninja", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TorchwheelError) as error:
        ninja.find_ninja()
    assert str(error.value) == (
        "ninja: expected it in this environment or on the PATH, found none; run "
        f"`{sys.executable} -m pip install ninja`"
    )
    planted = program(tmp_path / "ninja")
    planted.chmod(0o777)
    with pytest.raises(UntrustedError, match=r"is not used: .*ninja: others may write to it"):
        ninja.find_ninja()
    planted.chmod(0o755)
    assert ninja.find_ninja() == str(planted)
