import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from torchwheel.validate.torch_rules import range_contains

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
        (">=2.11", "2.11", True),
        (">=2.11.0", "2.11", True),
        (">=2.11", "2.10.1", False),
        (">=2.11", "2.6.0+cu124", False),  # as numbers, not as text
        (">=2.11", "3.0", True),
        (">=2.12", "2.12.0a0+gitf1a6e6c", False),
        (">=2.11", "2.12.0.dev20260401+cu130", True),
        ("==2.6.*", "2.6.0+cu124", True),
        ("==2.6.*", "2.60.0", False),
        ("==2.6.*", "2", False),
        ("==2.0.*", "2", True),
        ("==2.6.*", "2.6.0a0+ecf3bae40a.nv25.01", True),
        (">=2.6,<2.9", "2.8.0", True),
        (">=2.6,<2.9", "2.9.0", False),
        ("", "2.9.0", True),
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
