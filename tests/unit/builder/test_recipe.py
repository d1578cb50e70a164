import dataclasses
from pathlib import Path

import pytest
from targets import (
    CUDA_ATEN,
    CUDA_ATEN_OLD,
    CUDA_STABLE,
    EVERY,
    EXTENSION,
    PY311,
    ROCM_STABLE,
    sources,
)

from torchwheel.arch.toolkit_releases import ToolkitRelease
from torchwheel.builder import flavour
from torchwheel.builder.flavour import target_version
from torchwheel.builder.ninja import Step, render
from torchwheel.builder.recipe import INCLUDE, Recipe, make_recipe
from torchwheel.builder.target import Target
from torchwheel.errors import UsageError

MAPS = str(Path(flavour.__file__).parent)
every_target = pytest.mark.parametrize("target", EVERY.values(), ids=EVERY)


def recipe(target: Target) -> Recipe:
    return make_recipe(EXTENSION, sources(target), target)


def rendered(made: Recipe) -> str:
    text = render(made.whole())
    return text.replace(MAPS, "/torchwheel").replace(str(INCLUDE), "/torchwheel/include")


def words(step: Step) -> list[str]:
    """A command without torchwheel's own headers, which every file may include."""
    return [word.replace(str(INCLUDE), "") for word in step.command]


@pytest.mark.parametrize("name", EVERY)
def test_the_rendered_plan_is_the_golden_one(name, golden):
    golden(f"{name}.ninja", rendered(recipe(EVERY[name])))


@every_target
def test_every_input_is_a_source_or_an_earlier_output(target):
    made: set[str] = set()
    plan = recipe(target).whole()
    for step in plan.steps:
        assert all(name in made or name.startswith(("/project/", MAPS)) for name in step.inputs), (
            step
        )
        made.add(step.output)
    assert made >= set(plan.outputs)


@every_target
def test_kernels_never_see_torch(target):
    groups = recipe(target).groups
    for name in ("device", next(name for name in groups if name.startswith("host"))):
        for step in groups[name]:
            assert not any("/torch" in part or "/py" in part for part in words(step))


def test_variants_of_a_toolkit_share_what_has_the_same_name():
    """Objects are shared by the name of their group, so its commands must be the same."""
    found: dict[str, object] = {}
    for target in (
        CUDA_STABLE,
        CUDA_ATEN,
        CUDA_ATEN_OLD,
        dataclasses.replace(CUDA_ATEN, python=PY311),
        dataclasses.replace(CUDA_ATEN_OLD, python=PY311),
    ):
        for name, steps in recipe(target).groups.items():
            assert found.setdefault(name, steps) == steps
    assert set(found) == {
        "device",
        "host",
        "host-old-strings",
        "stable2.11",
        "aten2.11",
        "aten2.6",
        "python.cpython-311-x86_64-linux-gnu",
        "python.cpython-312-x86_64-linux-gnu",
    }


def test_what_meets_python_does_not_meet_torch():
    (step,) = recipe(CUDA_ATEN).groups["python.cpython-312-x86_64-linux-gnu"]
    assert not any("/torch" in part for part in words(step))


def test_the_old_strings_are_for_all_that_meets_torchs():
    groups = recipe(CUDA_ATEN_OLD).groups
    flag = "-D_GLIBCXX_USE_CXX11_ABI=0"
    assert {name for name, (step, *_) in groups.items() if flag in step.command} == {
        "host-old-strings",
        "aten2.6",
    }


@every_target
def test_no_folder_of_this_machine_reaches_the_binary(target):
    plan = recipe(target).whole()
    for step in plan.steps:
        if step.label.startswith(("C++", "CUDA", "HIP")):
            assert "-ffile-prefix-map=/project=." in step.command
    assert "-Wl,--strip-all" in plan.steps[-1].command


@pytest.mark.parametrize(("release", "small"), [("12.4", False), ("12.8", True), ("13.2", True)])
def test_device_code_is_compressed_where_the_compiler_can(release, small):
    toolkit = dataclasses.replace(CUDA_STABLE.toolkit, release=ToolkitRelease("cuda", release))
    made = recipe(dataclasses.replace(CUDA_STABLE, toolkit=toolkit)).whole()
    assert ("--compress-mode=size" in made.steps[0].command) == small
    assert ("-Xfatbin=-compress-all" in made.steps[0].command) != small


@pytest.mark.parametrize(
    ("floor", "number"), [("2.11", "0x020b000000000000"), ("2.9.1", "0x0209000000000000")]
)
def test_target_version(floor, number):
    assert target_version(floor) == number


def test_an_ordinary_extension_meets_torch_in_every_file(golden):
    extension = dataclasses.replace(EXTENSION, ordinary=True)
    files = dataclasses.replace(sources(CUDA_ATEN), python=(), included=())
    made = make_recipe(extension, files, CUDA_ATEN)
    golden("cuda-ordinary.ninja", rendered(made))
    for step in made.whole().steps:
        if step.label.startswith(("C++", "CUDA")):
            assert "/torch/torch/include" in step.command
            assert "-DTORCH_EXTENSION_NAME=_C" in step.command
            assert not any("-Werror" in part for part in step.command)


def test_variants_of_an_ordinary_extension_share_what_has_the_same_name():
    extension, found = dataclasses.replace(EXTENSION, ordinary=True), {}
    newer = dataclasses.replace(CUDA_ATEN.torch, release="2.12")
    for target in (
        CUDA_ATEN,
        dataclasses.replace(CUDA_ATEN, torch=newer),
        dataclasses.replace(CUDA_ATEN, python=PY311),
    ):
        files = dataclasses.replace(sources(target), python=(), included=())
        for name, steps in make_recipe(extension, files, target).groups.items():
            assert found.setdefault(name, steps) == steps
    assert len(found) == 3 * 3


def test_an_ordinary_extension_names_its_module():
    extension = dataclasses.replace(EXTENSION, ordinary=True, module=None)
    with pytest.raises(UsageError, match="name its `module`"):
        make_recipe(extension, sources(CUDA_ATEN), CUDA_ATEN)


def test_the_aten_flavour_for_rocm_is_refused_but_for_ordinary_extensions():
    target = dataclasses.replace(CUDA_ATEN, toolkit=ROCM_STABLE.toolkit)
    with pytest.raises(UsageError, match="aten flavour for ROCm: not provided; use the stable"):
        make_recipe(EXTENSION, sources(target), target)
    extension = dataclasses.replace(EXTENSION, ordinary=True)
    assert make_recipe(extension, sources(target), target).flavour.output.endswith(".so")
