"""Which groups there are, and which wheels each offers."""

import pytest

from torchwheel.arch.model import parse
from torchwheel.arch.torch_releases import TorchFacts, torch_releases
from torchwheel.claims import Claims
from torchwheel.errors import TorchwheelError
from torchwheel.index.contents import all_groups
from torchwheel.index.groups import (
    by_version_alone,
    groups_of,
    groups_of_releases,
    kind_of,
    torch_builds,
)
from torchwheel.versions import version_numbers
from wheelmaker import PURE, stable, universal

BUILDS = torch_builds(
    {
        "2.6": TorchFacts({"cuda": ("11.8", "12.4"), "rocm": ("6.2",)}, ()),
        "2.11": TorchFacts({"cuda": ("12.8", "13.0"), "rocm": ("7.2",)}, ()),
        "2.12": TorchFacts({"cuda": ("13.0", "13.2"), "rocm": ("7.2",)}, ()),
    }
)
ATEN = Claims("x", "aten", "2.6", "cuda", "cu124", "12.4", (parse("9.0"),))
CU132 = stable(toolkit="cu132", toolkit_version="13.2")


def test_groups_of_a_stable_wheel() -> None:
    expected = (*("cu130", "cu130/torch2.11", "cu130/torch2.12", "cu132", "cu132/torch2.12"),)
    assert groups_of([stable()], BUILDS) == (expected,)
    (newer,) = groups_of([stable(torch_release="2.12")], BUILDS)
    assert newer == ("cu130", "cu130/torch2.12", "cu132", "cu132/torch2.12")


def test_a_toolkit_with_a_wheel_of_its_own_is_not_offered_another() -> None:
    one, other = groups_of([stable(), CU132], BUILDS)
    assert one == ("cu130", "cu130/torch2.11", "cu130/torch2.12")
    assert other == ("cu132", "cu132/torch2.12")


def test_groups_of_an_aten_wheel() -> None:
    assert groups_of([ATEN], BUILDS) == (("cu124", "cu124/torch2.6"),)
    # A torch that was not published for the toolkit of the wheel has no group of it.
    one, other = (
        Claims("x", "aten", "2.11", "cuda", f"cu13{minor}", f"13.{minor}", (parse("9.0"),))
        for minor in (0, 2)
    )
    assert groups_of([one, other], BUILDS) == (("cu130", "cu130/torch2.11"), ("cu132",))
    cpu = Claims("x", "aten", "2.6")
    assert groups_of([cpu], BUILDS) == (("cpu", "cpu/torch2.6"),)


def test_the_pure_wheel_is_wherever_another_is() -> None:
    pure, _ = groups_of([PURE, ATEN], BUILDS)
    assert pure == ("cpu", "cu124", "cu124/torch2.6")
    assert groups_of([PURE], BUILDS) == (("cpu",),)


def test_a_universal_wheel_is_in_a_group_for_each_torch_that_it_serves() -> None:
    (groups,) = groups_of([universal(("cuda 12.4", "cuda 13.0", "rocm 7.2"))], BUILDS)
    assert groups == (
        *("cpu", "cu124", "cu124/torch2.6", "cu128", "cu128/torch2.11"),
        *("cu130", "cu130/torch2.11", "cu130/torch2.12", "cu132", "cu132/torch2.12"),
        *("rocm7.2", "rocm7.2/torch2.11", "rocm7.2/torch2.12"),
    )
    # No front end for 2.6: no group for it.
    (groups,) = groups_of([universal(("cuda 12.4",), torch=("2.11",))], BUILDS)
    assert groups == ("cpu", "cu128", "cu128/torch2.11")


def test_every_published_torch_that_our_universal_wheel_serves_has_a_group() -> None:
    ours = universal(
        ("cuda 12.4", "cuda 13.0", "rocm 6.4", "rocm 7.2"),
        ("2.6", "2.7", "2.8", "2.9", "2.10", "2.11"),
    )
    (groups,) = groups_of([ours])
    floors = {"cuda": (12, 4), "rocm": (6, 4)}
    asked = {
        f"{label}/torch{minor}"
        for minor, facts in torch_releases().items()
        for backend, versions in facts.toolkits.items()
        for version in versions
        if version_numbers(version) >= floors[backend]
        for label in (f"cu{version.replace('.', '')}" if backend == "cuda" else f"rocm{version}",)
    }
    assert len(asked) >= 38
    assert "rocm7.2/torch2.13" in asked
    assert not asked - set(groups)
    assert not [name for name in groups if name.startswith("cu118")]


def test_what_is_offered_by_its_version_alone() -> None:
    wide, small, pure = kind_of(universal()), kind_of(stable()), kind_of(PURE)
    both = frozenset({wide, pure})
    for group in ("cu130", "cu130/torch2.11"):
        assert by_version_alone(group, small, both)
        assert not by_version_alone(group, wide, both)
        assert not by_version_alone(group, pure, both)
    # Without a universal wheel the group of a torch offers what was built for it.
    assert by_version_alone("cu130", small, frozenset({pure}))
    assert not by_version_alone("cu130/torch2.11", small, frozenset({pure}))
    # So it does where the universal wheel has no kernels of that major release.
    older = frozenset({kind_of(universal(("cuda 12.4",)))})
    assert not by_version_alone("cu130/torch2.11", small, older)


def test_a_toolkit_of_one_release_is_no_matter_of_another() -> None:
    """The wheels of each release are spread as if it were alone; pure ones are in all groups."""
    first, second = groups_of_releases([[stable(), PURE], [stable(), CU132]], BUILDS)
    assert first == (
        ("cu130", "cu130/torch2.11", "cu130/torch2.12", "cu132", "cu132/torch2.12"),
        ("cpu", "cu130", "cu130/torch2.11", "cu130/torch2.12", "cu132", "cu132/torch2.12"),
    )
    assert second == groups_of([stable(), CU132], BUILDS)


def test_a_new_torch_has_a_group_without_a_new_release() -> None:
    newer = torch_builds({"2.99": TorchFacts({"cuda": ("13.9",), "rocm": ()}, ())})
    (groups,) = groups_of([universal()], (*BUILDS, *newer))
    assert "cu139/torch2.99" in groups


def test_a_bundled_package_is_wherever_a_wheel_is() -> None:
    assert all_groups([("cu130", "cu130/torch2.11"), ("cpu", "cu130")]) == (
        *("cpu", "cu130", "cu130/torch2.11"),
    )
    assert all_groups([]) == ()


def test_a_binary_wheel_without_a_local_version() -> None:
    with pytest.raises(TorchwheelError, match="needs a local version"):
        groups_of([stable(toolkit=None)], BUILDS)
