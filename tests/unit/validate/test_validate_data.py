"""The rules that are data agree with themselves and with the other tables."""

import itertools

import pytest
from packaging.specifiers import SpecifierSet

from torchwheel import data
from torchwheel.arch.toolkit_releases import archs_by_release
from torchwheel.arch.torch_releases import torch_releases
from torchwheel.validate import torch_rules
from torchwheel.versions import version_numbers

TABLE = data.read("compat.json")


@pytest.mark.parametrize("part", ["ptx", "host_compiler"])
def test_every_cuda_release_that_archs_are_known_of(part):
    assert list(TABLE[part]) == list(archs_by_release("cuda"))


@pytest.mark.parametrize("part", ["ptx", "host_compiler"])
def test_newer_releases_take_no_less(part):
    releases = list(TABLE[part].values())
    for older, newer in itertools.pairwise(releases):
        if part == "ptx":
            assert version_numbers(older) <= version_numbers(newer)
        else:
            for family in ("gcc", "clang"):
                assert newest(older[family]) <= newest(newer[family])


def newest(bound: str) -> int:
    return int(bound.rpartition("<")[2])


def test_bounds_are_ranges():
    for bounds in TABLE["host_compiler"].values():
        assert set(bounds) == {"gcc", "clang"}
        for bound in bounds.values():
            assert str(newest(bound) - 1) in SpecifierSet(bound)
            assert str(newest(bound)) not in SpecifierSet(bound)


def test_every_cuda_major_has_a_driver():
    majors = {release.partition(".")[0] for release in archs_by_release("cuda")}
    assert set(TABLE["driver"]) == majors
    floors = [version_numbers(entry["floor"]) for entry in TABLE["driver"].values()]
    assert floors == sorted(floors)
    for major, entry in TABLE["driver"].items():
        assert version_numbers(entry["older"]) <= (int(major), 0)


def test_the_releases_of_torch_are_known():
    for facts in torch_releases().values():
        for release in facts.toolkits["cuda"]:
            assert torch_rules.host_bounds(release)
            assert torch_rules.driver_floor(release)


@pytest.mark.parametrize(
    ("driver", "release", "can"),
    [
        ("13.0", "13.0", True),
        ("13.0", "13.2", False),
        ("13.2", "13.0", True),
        ("12.9", "13.0", False),
        ("13.0", "12.4", True),
        ("12.5", "12.6", True),  # both write PTX 8.5
        ("12.4", "12.5", False),
        ("13.9", "13.5", True),  # newer than the table
        ("13.5", "13.9", False),
        ("14.0", "13.9", True),
        ("13.0", "13", True),
    ],
)
def test_which_driver_compiles_which_ptx(driver, release, can):
    assert torch_rules.compiles_ptx(driver, release) is can


@pytest.mark.parametrize(
    ("backend", "abi", "size"),
    [("cuda", "stable", 0), ("cuda", "aten", 1), ("rocm", "stable", 1), ("rocm", "aten", 1)],
)
def test_how_much_of_a_release_is_shared(backend, abi, size):
    assert torch_rules.shared_parts(backend, abi)[0] == size


def test_unknown_releases_have_no_rules():
    assert torch_rules.host_bounds("99.0") == {}
    assert torch_rules.driver_floor("99.0") is None


def test_bounds_agree_with_torchs_own():
    """torch keeps bounds for some releases: they may be narrower, for its headers' sake."""
    cpp_extension = pytest.importorskip("torch.utils.cpp_extension")
    for theirs, family in (
        (cpp_extension.CUDA_GCC_VERSIONS, "gcc"),
        (cpp_extension.CUDA_CLANG_VERSIONS, "clang"),
    ):
        for release, (_, limit) in theirs.items():
            if ours := torch_rules.host_bounds(release):
                assert abs(newest(ours[family]) - limit[0]) <= 1, release
