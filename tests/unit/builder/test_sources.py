import dataclasses

import pytest
from targets import CUDA_ATEN, CUDA_STABLE, EXTENSION, ROCM_STABLE

from torchwheel.arch.model import parse
from torchwheel.builder.extension import ArchFilter
from torchwheel.builder.sources import DeviceFile, sources_of
from torchwheel.errors import UsageError

FILES = (
    *("a.cu", "a.cpp", "a_stable.cpp", "b c.cu", "b_stable.cpp", "b_aten.cpp"),
    *("host.cpp", "aten.cpp", "module.cpp"),
)


@pytest.fixture
def tree(tmp_path):
    for name in FILES:
        (tmp_path / name).touch()
    return tmp_path


def found(tree, target, only=None):
    return sources_of(EXTENSION, dataclasses.replace(target, source=tree), only)


def test_all_of_a_stable_library(tree):
    sources = found(tree, CUDA_STABLE)
    assert sources.device == [
        DeviceFile("a.cu", (parse("9.0"), parse("12.0+PTX"))),
        DeviceFile("b c.cu", (parse("12.0+PTX"),)),
    ]
    assert sources.host == ["host.cpp", "a.cpp"]
    assert sources.binding == ["a_stable.cpp", "b_stable.cpp"]
    assert not sources.python
    assert not sources.included


def test_the_module_of_the_aten_flavour_is_one_unit_with_the_operators_bindings(tree):
    sources = found(tree, CUDA_ATEN)
    assert sources.binding == ["aten.cpp"]
    assert sources.included == ["b_aten.cpp"]
    assert sources.python == ["module.cpp"]


def test_one_operator_alone(tree):
    sources = found(tree, CUDA_STABLE, "a")
    assert [file.path for file in sources.device] == ["a.cu"]
    assert sources.host == ["host.cpp", "a.cpp"]
    assert sources.binding == ["a_stable.cpp"]


def test_one_operator_alone_for_an_older_torch(tree):
    target = dataclasses.replace(CUDA_ATEN, python=None)
    assert found(tree, target, "b").binding == ["b_aten.cpp"]
    with pytest.raises(UsageError, match="a: has no binding for the aten flavour"):
        found(tree, target, "a")


def test_an_operator_without_a_kernel_for_the_target_is_left_out(tree):
    hopper = dataclasses.replace(
        CUDA_STABLE, toolkit=dataclasses.replace(CUDA_STABLE.toolkit, archs=(parse("9.0"),))
    )
    assert [file.path for file in found(tree, hopper).device] == ["a.cu"]
    assert found(tree, hopper).binding == ["a_stable.cpp"]
    with pytest.raises(UsageError, match=r"b: has no kernels for 9\.0"):
        found(tree, hopper, "b")


def test_operators_may_share_a_file(tree):
    a, b = EXTENSION.operators
    target = dataclasses.replace(CUDA_STABLE, source=tree)
    sharing = dataclasses.replace(b, device=(*b.device, *a.device), host=a.host)
    for operators in ((a, sharing), (sharing, a)):
        sources = sources_of(dataclasses.replace(EXTENSION, operators=operators), target)
        assert {file.path: file.archs for file in sources.device} == {
            "a.cu": (parse("9.0"), parse("12.0+PTX")),
            "b c.cu": (parse("12.0+PTX"),),
        }
        assert sources.host == ["host.cpp", "a.cpp"]
    alone = sources_of(dataclasses.replace(EXTENSION, operators=(sharing,)), target)
    assert [(file.path, file.archs) for file in alone.device] == [
        ("b c.cu", (parse("12.0+PTX"),)),
        ("a.cu", (parse("12.0+PTX"),)),
    ]


def test_processors_are_filtered_by_pattern(tree):
    files = {file.path: file.archs for file in found(tree, ROCM_STABLE).device}
    assert files == {"a.cu": (parse("gfx90a"), parse("gfx942")), "b c.cu": (parse("gfx942"),)}
    assert ArchFilter().takes(parse("gfx1100"))
    assert not ArchFilter(cuda=(9, 0)).takes(parse("8.9"))


def test_a_glob_that_names_nothing_is_a_mistake(tree):
    (tree / "a.cpp").unlink()
    with pytest.raises(UsageError, match=r"no file matches 'a\.cpp'"):
        found(tree, CUDA_STABLE)


def test_an_extension_without_a_module_has_no_aten_flavour(tree):
    target = dataclasses.replace(CUDA_ATEN, source=tree)
    with pytest.raises(UsageError, match="pkg: has no extension module for the aten flavour"):
        sources_of(dataclasses.replace(EXTENSION, module=None), target)
