"""Rules: their data, ranges and what lets one pass."""

import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchwheel_runtime import data
from torchwheel_runtime.arch.releases import archs_by_release, cxx_standard, torch_releases
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.machine.facts import InstalledToolkit, Torch
from torchwheel_runtime.toolkit.host import HostCompiler
from torchwheel_runtime.validate import torch_rules
from torchwheel_runtime.validate.before_build import check_host_compiler
from torchwheel_runtime.validate.findings import (
    RULES,
    Finding,
    drop_ignored,
    enforce,
    ignored_rules,
)
from torchwheel_runtime.validate.torch_rules import range_contains
from torchwheel_runtime.versions import version_numbers

# The rules that are data agree with themselves and with the other tables.


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


GLIBC = Finding("glibc", expected="glibc 2.31", found="glibc 2.28", fix="use a newer system")
DRIVER = Finding("driver", expected="a newer driver", found="an old one", fix="update it")
ADVICE = Finding("two-toolkits", expected="one", found="two", fix="take one", level="warning")


def say(names: str) -> dict[str, str]:
    return {"TORCHWHEEL_IGNORE": names}


def test_what_is_let_pass_is_said_every_time(capsys):
    assert drop_ignored([GLIBC, DRIVER], {}) == (GLIBC, DRIVER)
    assert drop_ignored([GLIBC], say("")) == (GLIBC,)
    assert capsys.readouterr().err == ""
    line = (
        "torchwheel: warning: TORCHWHEEL_IGNORE lets pass: glibc: expected glibc 2.31; found "
        "glibc 2.28; use a newer system\n"
    )
    for _ in range(2):
        assert drop_ignored([GLIBC, DRIVER], say(" glibc , torch,")) == (DRIVER,)
        assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        ("glib", 'TORCHWHEEL_IGNORE: "glib" is no rule: did you mean "glibc"?'),
        ("torch,arch", 'TORCHWHEEL_IGNORE: "arch" is no rule: did you mean "archs"'),
        ("all", 'TORCHWHEEL_IGNORE: "all" is no rule: expected one of: torch, backend'),
        ("*", 'TORCHWHEEL_IGNORE: "*" is no rule: expected one of: torch, backend'),
    ],
)
def test_an_unknown_rule_is_an_error_with_the_nearest(names, advice):
    with pytest.raises(UsageError) as caught:
        drop_ignored([], say(names))
    assert str(caught.value).startswith(advice)


@given(st.text(max_size=30) | st.lists(st.sampled_from(list(RULES))).map(" , ".join))
def test_any_text_names_rules_or_is_one_line(text):
    names = {name.strip() for name in text.split(",")} - {""}
    if names <= set(RULES):
        assert ignored_rules(say(text)) == names
    else:
        with pytest.raises(UsageError) as caught:
            ignored_rules(say(text))
        assert len(str(caught.value).splitlines()) == 1


def test_what_stands_stops_a_build():
    with pytest.raises(TorchwheelError) as caught:
        enforce([GLIBC, DRIVER, ADVICE], {})
    assert str(caught.value) == (
        "glibc: expected glibc 2.31; found glibc 2.28; use a newer system\n"
        "driver: expected a newer driver; found an old one; update it "
        "(TORCHWHEEL_IGNORE=glibc,driver goes on all the same)"
    )


def test_what_blocks_nothing_stops_nothing(capsys):
    enforce([ADVICE], {})
    enforce([GLIBC, DRIVER, ADVICE], say("glibc,driver"))
    assert capsys.readouterr().err.count("lets pass") == 2


RELEASE = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(
    lambda parts: ".".join(map(str, parts))
)
VERSION = st.builds(
    lambda release, pre, local: release + pre + local,
    RELEASE,
    st.sampled_from(["", "a0", "rc1", ".dev20260101", ".post1"]),
    st.sampled_from(["", "+cu130", "+cpu", "+rocm7.1", "+git1a2b3c"]),
)
RANGE = st.one_of(
    RELEASE.map(">={}".format),
    RELEASE.map("=={}.*".format),
    st.builds(">={},<{}".format, RELEASE, RELEASE),
    st.just(""),
)


@given(RANGE, VERSION)
def test_a_range_holds_what_packaging_says_it_does(wanted, version):
    expected = SpecifierSet(wanted).contains(Version(version), prereleases=True)
    assert range_contains(wanted, version) is expected


@pytest.mark.parametrize(
    ("wanted", "version", "inside"),
    [
        (">=2.11", "2.11.0+cu130", True),
        (">=2.11.0", "2.11", True),
        (">=2.11", "2.6.0+cu124", False),  # as numbers, not as text
        (">=2.12", "2.12.0a0+gitf1a6e6c", False),
        (">=2.11", "2.12.0.dev20260401+cu130", True),
        ("==2.6.*", "2.60.0", False),
        ("==2.0.*", "2", True),
        ("==2.6.*", "2.6.0a0+ecf3bae40a.nv25.01", True),
        (">=2.6", "2.8.0_of_my_own!", True),
        (">=2.6", "main", False),
    ],
)
def test_ranges_and_versions(wanted, version, inside):
    assert range_contains(wanted, version) is inside


def test_what_torchwheel_writes_is_read_without_packaging(monkeypatch):
    monkeypatch.setitem(sys.modules, "packaging.specifiers", None)
    assert range_contains(">=2.11", "2.13.0+cpu")
    assert range_contains("==2.6.*", "2.6.0+cu124")
    assert range_contains("", "2.6.0+cu124")  # of a kernel library
    with pytest.raises(ImportError):
        range_contains(">=2.11,<3", "2.13.0+cpu")


@pytest.mark.parametrize(
    ("torch", "family", "version", "found"),
    [
        ("2.13.0+cu130", "gcc", "10.2.0", None),
        (
            "2.14.1+cu130",
            "gcc",
            "10.2.0",
            "gcc >=11 or clang >=16, for the C++20 of the headers of",
        ),
        ("2.14.1+cu130", "gcc", "11.4.0", None),
        ("2.15.0+cu130", "clang", "15.0.7", "gcc >=11 or clang >=16, for the C++20"),
        ("2.15.0+cu130", "clang", "16.0.6", None),
        # Whatever torch wants, nvcc is asked first.
        (
            "2.14.1+cu130",
            "gcc",
            "16.1.0",
            "gcc >=6,<16 or clang >=7,<21, which CUDA 13.0 works with",
        ),
        (None, "gcc", "10.2.0", None),
    ],
)
def test_the_host_compiler_serves_nvcc_and_torchs_headers(torch, family, version, found):
    toolkit = InstalledToolkit("cuda", Path("/cuda"), "13.0", "CUDA_HOME")
    of = Torch(torch, "13.0", None, Path("/torch")) if torch else None
    finding = check_host_compiler(HostCompiler(Path("/c++"), family, version), None, toolkit, of)
    assert ((finding and finding.expected) or "").startswith(found or "")
    assert bool(finding) == bool(found)
    rocm = InstalledToolkit("rocm", Path("/rocm"), "7.2", "ROCM_PATH")
    assert check_host_compiler(HostCompiler(Path("/c++"), family, version), None, rocm, of) is None


def test_the_cxx_standard_of_a_torch():
    found = {minor: cxx_standard(minor) for minor in (None, "2.6", "2.13", "2.14", "2.15", "9.9")}
    assert list(found.values()) == [17, 17, 17, 20, 20, 20]
    for facts in torch_releases().values():
        assert facts.cxx == 17 or torch_rules.cxx_bounds(facts.cxx)
