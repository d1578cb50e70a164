"""The sandbox's command, its variables, and what is said where there is none."""

import dataclasses
import itertools
import os
import platform
import shlex
import subprocess
from pathlib import Path
from unittest import mock

import ninja
import pytest

from programmaker import program
from torchwheel.compilers.compiler_cache import parse_cache
from torchwheel.sdist.build_setup import sdist_environment
from torchwheel.sdist.confined import ConfinedBuild, compiler_cache
from torchwheel.sdist.request import SdistRequest, parse_variables
from torchwheel.sdist.sandbox import (
    Sandbox,
    find_sandbox,
    temporary_files_in,
)
from torchwheel.smoke.trial_environment import Environment
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.toolkit.host import HostCompiler


def options(command: list[str], option: str) -> list[str]:
    """The first value of each `option` of a command."""
    return [value for name, value in itertools.pairwise(command) if name == option]


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", {"PATH": f"/usr/bin:{tmp_path}/bin", "GH_TOKEN": "secret"})
    (tmp_path / "bin").mkdir()
    return Sandbox("/usr/bin/bwrap", tmp_path / "scratch", frozenset({"PATH"}), None)


def command_of(sandbox: Sandbox, **more) -> list[str]:
    """The words that the program of a sandbox runs, after the variables that it passes on."""
    program = sandbox.write_program(sandbox.scratch / "program", Path("/bin/sh"), **more)
    text = program.read_text()
    return shlex.split(text[text.index("exec /usr/bin/env -i ") :])


def test_it_has_no_network_no_rights_and_its_own_folders_alone(tmp_path, sandbox):
    base, own = tmp_path / "cache/base", tmp_path / "cache/build/own"
    for folder in (base, own):
        folder.mkdir(parents=True)
    more = {"SCCACHE_DIR": "/x"}
    command = command_of(sandbox, read=[base], write=[own / "built"], more=more)
    assert command[-4:] == ["--", "/bin/sh", "$@", f"9<{tmp_path}/scratch/system-calls"]
    wanted = ("net", "pid", "ipc", "uts", "user")
    assert {f"--unshare-{name}" for name in wanted} <= set(command)
    assert {"--die-with-parent", "--new-session"} <= set(command)
    assert "--share-net" not in command
    assert options(command, "--cap-drop") == ["ALL"]
    assert not options(command, "--cap-add")
    scratch = tmp_path / "scratch"
    expected = [own / "built", scratch / "home", scratch / "temporary"]
    assert sorted(options(command, "--bind")) == sorted(str(path) for path in expected)
    read = options(command, "--ro-bind")
    assert {str(base), str(tmp_path / "bin"), "/proc/sys"} <= set(read)
    assert not {"/", str(Path.home()), str(tmp_path / "cache")} & set(read)
    first = command[: command.index("/usr/bin/bwrap")]
    assert [word.partition("=")[0] for word in first[3:]] == [
        *("${PATH+PATH", "HOME", "SCCACHE_DIR", "TMPDIR"),
    ]


def test_root_becomes_another_user_who_owns_what_can_be_written(tmp_path, sandbox):
    root = dataclasses.replace(sandbox, setpriv="/usr/bin/setpriv")
    command = command_of(root, write=[tmp_path / "it's"])
    assert "--unshare-user" not in command, "root would stay the owner of the system's files"
    inside = command[command.index("--") + 1 :]
    user = ["--reuid=61000", "--regid=61000", "--clear-groups"]
    assert inside[:4] == ["/usr/bin/setpriv", *user]
    assert "--bounding-set=-all" in inside
    assert inside[-4:-2] == ["$PWD", "/bin/sh"], "it enters the current folder"
    first = shlex.split((root.scratch / "program").read_text().splitlines()[1])
    written = [tmp_path / "it's", root.scratch / "home", root.temporary]
    assert first == ["chown", "-hR", "61000:61000", "--", *map(str, written), "&&"]


def test_root_gives_away_no_folder_that_is_no_cache(tmp_path, sandbox):
    root = dataclasses.replace(sandbox, setpriv="/usr/bin/setpriv")
    for name in ("0/a", "f/0", "preprocessor/1"):
        (tmp_path / "objects" / name).mkdir(parents=True)
    root.check_cache(tmp_path / "objects")
    with pytest.raises(UsageError, match=r"expected a folder of sccache's own, .* name another"):
        root.check_cache(tmp_path)
    sandbox.check_cache(tmp_path)


def test_it_shows_the_ninja_of_an_environment_that_is_not_on_the_path(tmp_path, sandbox):
    """torch's BuildExtension compiles file after file where it finds none."""
    build = object.__new__(ConfinedBuild)
    build.sandbox, build.request = sandbox, SdistRequest(tmp_path, tmp_path)
    build.host = HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0")
    build._folder = build._base = build._cache = tmp_path
    build._plan = mock.Mock(toolkit=None)
    program = build._python(Environment(tmp_path / "bin" / "python", {}, tmp_path), [])
    command = shlex.split(program.read_text().partition("exec /usr/bin/env -i ")[2])
    assert f"{ninja.BIN_DIR}/ninja" in options(command, "--ro-bind")
    assert ninja.BIN_DIR not in os.environ["PATH"]
    told = sdist_environment(
        Environment(tmp_path / "bin" / "python", {}, tmp_path),
        toolkit=None,
        cuda_home=None,
        host=build.host,
        cxx=build.host.path,
        jobs=1,
    )
    assert told["PATH"].endswith(f":{ninja.BIN_DIR}")


def test_a_path_that_names_the_home_does_not_show_it(tmp_path, sandbox, monkeypatch):
    home = tmp_path / "homes" / "me"
    (home / "bin").mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    entries = [home, home.parent, home / "bin" / "..", tmp_path / "link", tmp_path, home / "bin"]
    monkeypatch.setitem(os.environ, "HOME", str(home))
    monkeypatch.setitem(os.environ, "PATH", os.pathsep.join(map(str, entries)))
    command = command_of(sandbox)
    shown = [path for path in options(command, "--ro-bind") if path.startswith(str(tmp_path))]
    assert shown == [str(home / "bin")]


def test_the_server_of_a_compiler_cache_lives_as_long_as_the_sandbox(tmp_path, sandbox):
    asked = tmp_path / "asked"
    launcher = program(tmp_path / "sccache", f'echo "$SCCACHE_START_SERVER" "$@" >>{asked}')
    command = command_of(sandbox, launcher=(str(launcher),))
    inside = command[command.index("--") + 1 : -2]
    assert subprocess.run([*inside, "-c", "exit 7"], check=False).returncode == 7
    assert sorted(asked.read_text().splitlines()) == [" --stop-server", " --zero-stats", "1"]


def test_variables_are_passed_on_as_they_are(tmp_path, sandbox):
    says = program(tmp_path / "bwrap", 'printf "%s|" "$GREETING" "$GH_TOKEN" "$UNSET"')
    names = frozenset({"GREETING", "UNSET"})
    small = dataclasses.replace(sandbox, bwrap=str(says), variables=names)
    made = small.write_program(tmp_path / "made", Path("/bin/sh"))
    greeting = "a 'b' \"c\" $(d) `e` \\ \n f"
    env = {"GREETING": greeting, "GH_TOKEN": "secret"}
    assert subprocess.check_output([made], env=env, text=True) == f"{greeting}|||"


def test_variables_that_a_project_names_are_set_in_the_sandbox_alone(sandbox):
    """LD_PRELOAD would run its code in bwrap, before the sandbox is there."""
    own = {"LD_PRELOAD": "/x.so", "FORCE": "it's"}
    command = command_of(sandbox, own=own)
    first, inside = command[: command.index("--")], command[command.index("--") + 1 : -2]
    assert not [word for word in first if "LD_PRELOAD" in word]
    assert inside == ["/usr/bin/env", "LD_PRELOAD=/x.so", "FORCE=it's", "/bin/sh"]


def test_a_project_has_a_compiler_cache_of_its_own(tmp_path):
    request = SdistRequest(tmp_path / "one", tmp_path)
    found = compiler_cache(request, tmp_path)
    assert found.folder == tmp_path / "build" / f"sccache-{request.cache_key()}"
    assert found.variables["SCCACHE_DIR"] == str(found.folder)
    other = dataclasses.replace(request, source=tmp_path / "other")
    assert compiler_cache(other, tmp_path).folder != found.folder
    named = dataclasses.replace(request, cache=parse_cache("redis://10.0.0.5:6379"))
    assert compiler_cache(named, tmp_path) == named.cache


@pytest.mark.parametrize(
    ("bwrap", "machine", "reason"),
    [
        (None, "x86_64", "bwrap is not on the PATH; install bubblewrap"),
        # Its system calls are not known.
        ("exit 0", "riscv64", "it is made on x86_64 and aarch64 alone"),
        (
            "echo 'bwrap: No permissions' >&2; exit 1",
            "x86_64",
            "bwrap does not work here: bwrap: No permissions",
        ),
    ],
)
def test_where_there_is_none_a_line_says_why(tmp_path, monkeypatch, bwrap, machine, reason):
    environ = {"PATH": str(tmp_path)}
    if bwrap:
        program(tmp_path / "bwrap", bwrap)
        environ["PATH"] += ":/usr/bin:/bin"
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert find_sandbox("auto", tmp_path, (), print, environ) == reason
    with pytest.raises(TorchwheelError, match=f"expected a sandbox, found none: {reason}"):
        find_sandbox("require", tmp_path, (), print, environ)
    assert find_sandbox("off", tmp_path, (), print, environ) == "--sandbox off"


def test_a_planted_bwrap_makes_no_sandbox(tmp_path):
    program(tmp_path / "planted/bwrap", "exit 0")
    (tmp_path / "planted").chmod(0o777)
    environ = {"PATH": f"{tmp_path}/planted"}
    line = f"{tmp_path}/planted/bwrap: is not used: {tmp_path}/planted: others may write to it"
    with pytest.raises(TorchwheelError, match=f"found none: {line}"):
        find_sandbox("require", tmp_path, (), print, environ)
    program(tmp_path / "bin/bwrap", "exit 0")
    said = []
    environ["PATH"] += f":{tmp_path}/bin:/usr/bin:/bin"
    found = find_sandbox("require", tmp_path, (), said.append, environ)
    assert found.bwrap == f"{tmp_path}/bin/bwrap"
    assert [text.startswith(line) for text in said] == [True]


def test_a_build_gets_the_usual_variables_and_those_that_are_named(tmp_path):
    program(tmp_path / "bin/bwrap", "exit 0")
    environ = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "CFLAGS": "-O1", "LC_ALL": "C.UTF-8"}
    secrets = {
        "GH_TOKEN": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "SSH_AUTH_SOCK": "",
        "PIP_INDEX_URL": "",
    }
    found = find_sandbox("auto", tmp_path, ["MY_FLAG"], print, {**environ, **secrets})
    assert isinstance(found, Sandbox)
    assert {"MY_FLAG", *environ} <= found.variables
    assert not found.variables & secrets.keys()


def test_variables_are_named_on_the_command_line():
    environ = {"SET": "1"}
    assert parse_variables(["A=b=c", "SET", "E="], environ) == {"A": "b=c", "SET": "1", "E": ""}
    for text in ("UNSET", "=x", "a b=c", ""):
        with pytest.raises(UsageError, match=r"--env '.*': expected NAME=VALUE"):
            parse_variables([text], environ)


def test_temporary_files_lie_where_the_sandbox_sees_them(tmp_path):
    import tempfile

    before = tempfile.gettempdir()
    with temporary_files_in(tmp_path / "inside"), tempfile.TemporaryDirectory() as folder:
        assert Path(folder).parent == tmp_path / "inside"
    with temporary_files_in(None):
        assert tempfile.gettempdir() == before
    assert tempfile.gettempdir() == before
