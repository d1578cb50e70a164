"""The parts of a universal wheel: kernel libraries, front ends, entry points."""

import dataclasses
from pathlib import Path

import pytest

from targets import CUDA_ATEN_OLD, CUDA_STABLE, EXTENSION, environ_of
from torchwheel_runtime.builder import recipe as recipes
from torchwheel_runtime.builder import variables
from torchwheel_runtime.builder.extension import Extension, Operator, Split
from torchwheel_runtime.builder.flags import Flags
from torchwheel_runtime.builder.ninja import wanted_files
from torchwheel_runtime.builder.recipe import Recipe
from torchwheel_runtime.builder.setuptools_ext import setup_arguments
from torchwheel_runtime.builder.sources import sources_of
from torchwheel_runtime.builder.target import Target
from torchwheel_runtime.errors import UsageError

FILES = {
    "kernels/a.h": "int a();",
    "kernels/a.cu": "",
    "kernels/b.cu": "",
    "kernels/runtime.cpp": "",
    "ops/a.cpp": "",
    "torch/a.cpp": "",
    "torch/b.cpp": "",
    "dlpack/module.cpp": "",
}
DIVIDED = Extension(
    package="pkg",
    sources="csrc",
    operators=tuple(
        Operator(
            name,
            (f"kernels/{name}.cu",),
            ("ops/a.cpp",),
            {"stable": (f"torch/{name}.cpp",), "aten": (f"torch/{name}.cpp",)},
        )
        for name in ("a", "b")
    ),
    host=("kernels/runtime.cpp",),
    split=Split(
        interface=("kernels/*.h",),
        kernels=("kernels/runtime.cpp",),
        entry_points=("dlpack/*.cpp",),
    ),
)
KERNELS = dataclasses.replace(CUDA_STABLE, name="cu130", part="kernels")
STABLE = dataclasses.replace(CUDA_STABLE, name="stable", part="front_end")
OLD = dataclasses.replace(CUDA_ATEN_OLD, name="torch2_6", part="front_end", python=None)
DLPACK = dataclasses.replace(CUDA_STABLE, name="dlpack", part="entry_points")


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def recipe_of(target: Target, project: Path, extension: Extension = DIVIDED) -> Recipe:
    target = dataclasses.replace(target, source=project)
    return Recipe(extension, sources_of(extension, target), target)


def compiled(recipe: Recipe, project: Path) -> set[str]:
    steps = (step for group in recipe.groups.values() for step in group)
    inputs = {step.inputs[0] for step in steps if not step.inputs[0].endswith("interface.c")}
    return {str(Path(name).relative_to(project)) for name in inputs}


@pytest.mark.parametrize(
    ("target", "files", "output"),
    [
        (KERNELS, {"kernels/a.cu", "kernels/b.cu", "kernels/runtime.cpp"}, "cu130.so"),
        (STABLE, {"ops/a.cpp", "torch/a.cpp", "torch/b.cpp"}, "stable.so"),
        (OLD, {"ops/a.cpp", "torch/b.cpp"}, "torch2_6.so"),
        (DLPACK, {"ops/a.cpp", "dlpack/module.cpp"}, "dlpack.abi3.so"),
    ],
    ids=["kernels", "stable", "aten", "dlpack"],
)
def test_each_part_has_its_files(target, files, output, project):
    recipe = recipe_of(target, project)
    assert compiled(recipe, project) == files
    assert wanted_files(recipe.whole()) == [output]


@pytest.mark.parametrize(
    ("part", "packages", "library"),
    [
        ("", ["pkg", "pkg._sources"], "pkg._lib.stable"),
        ("front_end", [], "pkg._lib.front_end.stable"),
    ],
    ids=["whole", "part"],
)
def test_the_wheel_of_a_part_has_its_library_alone(part, packages, library, tmp_path, monkeypatch):
    for folder in ("pkg", "csrc", "lib64"):
        (tmp_path / folder).mkdir()
    (tmp_path / "lib64" / "libcudart_static.a").touch()
    (tmp_path / "pkg" / "__init__.py").write_text(
        "from torchwheel_runtime.builder import Extension\n"
        "EXTENSION = Extension('pkg', 'csrc', ())\n"
    )
    for name, value in environ_of(tmp_path, TORCHWHEEL_PART=part).items():
        monkeypatch.setenv(name, value)
    arguments = setup_arguments(tmp_path, ".", "pkg/__init__.py")
    assert arguments["packages"] == packages
    assert [module.name for module in arguments["ext_modules"]] == [library]


def test_families_of_an_aten_front_end_are_one_unit(project):
    (step,) = recipe_of(OLD, project).groups["front-aten2.6"]
    assert step.command[step.command.index("-include") + 1] == str(project / "torch/a.cpp")


@pytest.mark.parametrize("target", [KERNELS, STABLE, OLD, DLPACK], ids=lambda one: one.name)
def test_what_each_part_knows(target, project):
    """Front ends are told so, kernels know the GPU's runtime, front ends need torch."""
    recipe = recipe_of(target, project)
    for name, steps in recipe.groups.items():
        expected = name.startswith(("front-", "entry-points"))
        for macro in ("-DTORCHWHEEL_FRONT_END", '-DTORCHWHEEL_PACKAGE="pkg"'):
            assert all((macro in step.command) is expected for step in steps)
    steps = recipe.whole()
    words = [word for step in steps for word in step.command if word.startswith("/cuda")]
    assert bool(words) is (target is KERNELS), words
    torch = [word for word in steps[-1].command if "libtorch" in word]
    assert ("stub/libtorch.so" in torch, bool(torch)) == (target in (STABLE, OLD),) * 2


def test_each_part_claims_the_flags_that_its_commands_have(project):
    flags = Flags(cxx=("-O3",), cuda=("--use_fast_math",), link=("-Wl,-z,now",))
    flagged = dataclasses.replace(DIVIDED, flags=flags)
    everywhere = ("cxx: -O3", "link: -Wl,-z,now")
    for target in (STABLE, OLD, DLPACK):
        recipe = recipe_of(target, project, flagged)
        assert recipe.flag_texts() == everywhere
        assert all("-O3" in command for command in commands(recipe))
    recipe = recipe_of(KERNELS, project, flagged)
    assert set(recipe.flag_texts()) == {"cuda: --use_fast_math", *everywhere}
    fast = ["--use_fast_math" in command for command in commands(recipe)]
    assert fast == ["nvcc" in command[0] for command in commands(recipe)]


def commands(recipe: Recipe) -> list[tuple[str, ...]]:
    """Its compile commands, but for the one of torchwheel's own file."""
    steps = [step for group in recipe.groups.values() for step in group]
    return [step.command for step in steps if not step.inputs[0].endswith("interface.c")]


def test_kernels_are_compiled_as_those_of_a_whole_library(project):
    """So that both share the objects."""
    whole = dataclasses.replace(CUDA_STABLE, source=project)
    alone = Recipe(DIVIDED, sources_of(DIVIDED, whole), whole)
    assert recipe_of(KERNELS, project).groups["device"] == alone.groups["device"]


def interface(target: Target, project: Path) -> str:
    names = recipe_of(target, project).groups
    return next(name for name in names if name.startswith("interface-"))


def test_a_changed_header_changes_the_interface(project):
    before = {interface(target, project) for target in (KERNELS, STABLE, OLD, DLPACK)}
    assert len(before) == 1
    (project / "kernels/a.h").write_text("long a();")
    assert interface(KERNELS, project) not in before
    assert interface(KERNELS, project) == interface(OLD, project)


def test_a_newer_torchwheel_changes_the_interface_by_its_version_alone(
    project, tmp_path, monkeypatch
):
    """So that it can build kernels for a front end that is installed."""
    before = interface(STABLE, project)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "interface.c").write_text("// with a comment\n")
    monkeypatch.setattr(recipes, "INCLUDE", tmp_path / "own")
    monkeypatch.setattr(recipes, "_INTERFACE_FILE", tmp_path / "own" / "interface.c")
    assert interface(KERNELS, project) == before
    monkeypatch.setattr(recipes, "INTERFACE", recipes.INTERFACE + 1)
    assert interface(KERNELS, project) != before


def test_an_extension_in_one_library_has_no_parts(project):
    with pytest.raises(UsageError, match="pkg: its Extension has no `split`"):
        sources_of(EXTENSION, dataclasses.replace(KERNELS, source=project))


def test_an_unknown_part_is_refused():
    says = "TORCHWHEEL_PART=kernel: kernels, front_end, entry_points"
    with pytest.raises(UsageError, match=says):
        variables.read_target(environ_of(Path("/none"), TORCHWHEEL_PART="kernel"), Path("/p"))
