"""Objects that one build compiles and another one links: what is taken, and what is refused."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_build import COUNTED, Shell

from programmaker import program
from targets import CUDA_ATEN, CUDA_STABLE, EXTENSION, PY312, ROCM_STABLE, sources
from torchwheel_runtime.builder.ninja import Step, build
from torchwheel_runtime.builder.objects import (
    MANIFEST,
    collect_objects,
    command_digest,
    compile_shared,
    take_objects,
)
from torchwheel_runtime.builder.recipe import Recipe
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.shards import Shard

WHOLE = Shard(1, 1)


@pytest.fixture
def target(tmp_path):
    """A target whose `strip` copies a file, so that objects can be texts."""
    strip = program(tmp_path / "strip", 'cp "$4" "$3"')
    cxx = program(tmp_path / "cxx", f"echo {strip}")
    return dataclasses.replace(CUDA_STABLE, cxx=str(cxx))


def recipe_of(target, word="text", device=3, host=2) -> Shell:
    """Device and host files whose objects have `word` and their name in them."""
    made = Shell(EXTENSION, sources(target), target)
    made.groups = {
        name: tuple(
            Step(f"{name} {i}", ("sh", "-c", f"echo {word} {name} {i} > {i}.o"), (), f"{i}.o")
            for i in range(count)
        )
        for name, count in (("device", device), ("host", host))
    }
    return made


def compile_into(folder: Path, recipe, shard=WHOLE) -> Path:
    shared = folder.with_name(f"{folder.name}-shared")
    collect_objects(recipe, compile_shared(recipe, shared, shard, 1, lambda _: None), folder)
    return folder


def listed(folder: Path) -> list[dict[str, str]]:
    return json.loads((folder / MANIFEST).read_text())["objects"]


def test_a_build_links_what_another_one_compiled_and_compiles_nothing(tmp_path, target):
    recipe = recipe_of(target)
    made = compile_into(tmp_path / "made", recipe)
    said: list[str] = []
    taken = take_objects(recipe, [made], tmp_path / "taken", only=True)
    library = build(recipe, tmp_path / "one", tmp_path / "shared", 1, said.append, taken)
    alone = build(recipe, tmp_path / "two", tmp_path / "alone", 1, lambda _: None)
    assert library.read_bytes() == alone.read_bytes()
    assert not (tmp_path / "shared").exists()
    assert [line for line in said if line.startswith("[")] == ["[0/1] link", "[1/1] link"]


def test_what_is_missing_is_compiled_and_the_order_of_the_objects_stays(tmp_path, target):
    made = compile_into(tmp_path / "made", recipe_of(target, device=2, host=1))
    recipe = recipe_of(target)
    taken = take_objects(recipe, [made], tmp_path / "taken", only=False)
    assert sorted(taken) == [("device", "0.o"), ("device", "1.o"), ("host", "0.o")]
    library = build(recipe, tmp_path / "one", tmp_path / "shared", 1, lambda _: None, taken)
    names = [f"text device {i}" for i in range(3)] + [f"text host {i}" for i in range(2)]
    assert library.read_text().splitlines() == names
    assert {path.name for path in (tmp_path / "shared").rglob("*.o")} == {"2.o", "1.o"}


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_objects_of_all_shards_are_those_of_one_job(tmp_path, target, count):
    recipe = recipe_of(target)
    whole = compile_into(tmp_path / "whole", recipe)
    shards = [
        compile_into(tmp_path / f"shard{number}", recipe, Shard(number, count))
        for number in range(1, count + 1)
    ]
    key = json.dumps
    joined = [entry for shard in shards for entry in listed(shard)]
    assert sorted(joined, key=key) == sorted(listed(whole), key=key)
    files = {path.name: path.read_bytes() for shard in shards for path in shard.glob("*.o")}
    assert files == {path.name: path.read_bytes() for path in whole.glob("*.o")}
    taken = take_objects(recipe, shards, tmp_path / "taken", only=True)
    assert len(taken) == 5


@given(st.integers(1, 40), st.integers(1, 12))
def test_each_thing_is_in_one_shard(things, count):
    rows = zip(*(Shard(number, count).take(things) for number in range(1, count + 1)), strict=True)
    assert [sum(row) for row in rows] == [1] * things


def test_other_flags_are_refused_or_compiled_anew(tmp_path, target):
    made = compile_into(tmp_path / "made", recipe_of(target))
    other = recipe_of(target, word="other")
    assert take_objects(other, [made], tmp_path / "taken", only=False) == {}
    line = r"made: expected the object of device 0, found one that was compiled with other flags; "
    with pytest.raises(TorchwheelError, match=line):
        take_objects(other, [made], tmp_path / "taken", only=True)
    with pytest.raises(TorchwheelError, match=r"expected the object of device 3, found none; comp"):
        take_objects(recipe_of(target, device=4), [made], tmp_path / "taken", only=True)
    # A host file is no kernel.
    more = recipe_of(target, host=3)
    assert len(take_objects(more, [made], tmp_path / "taken", only=True)) == 5


def test_an_object_with_other_bytes_is_refused(tmp_path, target):
    recipe = recipe_of(target)
    made = compile_into(tmp_path / "made", recipe)
    path = made / f"{listed(made)[0]['sha256']}.o"
    path.write_text("planted")
    with pytest.raises(TorchwheelError, match=rf"^{path}: expected the sha256 \w+, found \w+; com"):
        take_objects(recipe, [made], tmp_path / "taken", only=False)


def test_what_is_linked_is_a_copy_of_what_was_checked(tmp_path, target):
    recipe = recipe_of(target)
    made = compile_into(tmp_path / "made", recipe)
    taken = take_objects(recipe, [made], tmp_path / "taken", only=True)
    for path in made.glob("*.o"):
        path.write_text("swapped after the check")
    library = build(recipe, tmp_path / "one", tmp_path / "shared", 1, lambda _: None, taken)
    assert "swapped" not in library.read_text()


def test_commands_are_the_same_whatever_the_folders():
    here = CUDA_STABLE
    toolkit = dataclasses.replace(CUDA_STABLE.toolkit, root=Path("/elsewhere/cuda"))
    there = dataclasses.replace(CUDA_STABLE, source=Path("/ci/csrc"), toolkit=toolkit)

    def digests(target):
        recipe = Recipe(EXTENSION, sources(target), target)
        return [command_digest(one, recipe) for steps in recipe.groups.values() for one in steps]

    assert digests(here) == digests(there)
    assert len(set(digests(here))) == len(digests(here))
    assert not set(digests(here)) & set(digests(ROCM_STABLE))


def test_what_meets_python_is_left_to_the_variant(tmp_path, target):
    aten = dataclasses.replace(CUDA_ATEN, python=PY312, cxx=target.cxx)
    recipe = Shell(EXTENSION, sources(aten), aten)
    assert recipe.flavour.python is not None
    recipe.groups = {
        name: (Step(name, ("sh", "-c", f"out={name}.o; {COUNTED}"), (), f"{name}.o"),)
        for name in recipe.groups
    }
    made = compile_into(tmp_path / "made", recipe)
    compiled = {entry["group"] for entry in listed(made)}
    assert compiled == set(recipe.groups) - {recipe.flavour.python.name}


def test_kernels_that_meet_torch_cannot_be_shared(tmp_path):
    ordinary = dataclasses.replace(EXTENSION, ordinary=True)
    recipe = Recipe(ordinary, sources(CUDA_ATEN), CUDA_ATEN)
    with pytest.raises(UsageError, match="the kernels of this extension include torch's headers"):
        list(compile_shared(recipe, tmp_path, WHOLE, 1, lambda _: None))
