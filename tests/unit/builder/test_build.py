"""Recipes of shell steps: what is compiled once for several builds, and who waits for whom."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from targets import CUDA_STABLE, EXTENSION, sources

from torchwheel.builder.build import build
from torchwheel.builder.ninja import Plan, Step, is_progress
from torchwheel.builder.recipe import Recipe, make_recipe
from torchwheel.errors import TorchwheelError


class Shell(Recipe):
    """Its library is its objects, one after the other."""

    def linked(self, objects):
        step = Step("link", ("sh", "-c", 'cat "$@" > lib', "sh", *objects), tuple(objects), "lib")
        return Plan((step,), ("lib",))


def recipe(*groups: tuple[str, str]) -> Shell:
    """A recipe with an object per (group, shell command that writes to $out)."""
    like = make_recipe(EXTENSION, sources(CUDA_STABLE), CUDA_STABLE)
    steps = {
        name: (Step(f"make {name}", ("sh", "-c", f"out={name}.o; {command}"), (), f"{name}.o"),)
        for name, command in groups
    }
    return Shell(steps, like.target, like.backend, like.flavour)


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


def test_without_a_shared_folder_all_is_in_the_builds_own(tmp_path):
    library = build(recipe(("device", COUNTED)), tmp_path / "one", None, 1, lambda _: None)
    assert library.read_text() == "device.o\n"
    assert (tmp_path / "one" / "device.o").is_file()


def test_a_build_waits_for_another_and_says_so(tmp_path):
    script = """
        import sys
        from pathlib import Path
        sys.path.insert(0, {tests!r})
        from test_build import build, recipe
        slow = ("device", 'echo made >> count; sleep 1; echo "$out" > "$out"')
        folder = Path({folder!r})
        build(recipe(slow), folder / sys.argv[1], folder / "shared", 1, print)
    """
    text = textwrap.dedent(script).format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    both = [
        subprocess.Popen([sys.executable, "-c", text, name], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    said = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    waits = [line for lines in said for line in lines if line.startswith("waiting:")]
    assert waits == ["waiting: another build compiles device"]
    assert is_progress(waits[0])
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
