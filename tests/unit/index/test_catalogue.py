"""Catalogues of releases, and the groups of wheels that an index makes of them."""

import dataclasses
import json
from pathlib import Path

import pytest

from torchwheel.index.catalogue import (
    Catalogue,
    CatalogueSdist,
    SmokeRun,
    catalogue_text,
    check_published,
    read_catalogue,
    read_catalogues,
    read_wheel_entry,
    upload_times,
)
from torchwheel.index.groups import (
    by_version_alone,
    groups_of,
    groups_of_releases,
    kind_of,
    torch_builds,
)
from torchwheel.index.listing import all_groups
from torchwheel.inspect.wheel import read_wheel
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.arch.releases import TorchFacts, torch_releases
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.versions import version_numbers
from wheelmaker import PURE, make_wheel, stable, universal

# Catalogues: what is written is read again, and a malformed one is refused in one line.


TIME = "2026-11-24T08:00:00Z"
TAG = "py3-none-manylinux_2_28_x86_64"
RUN = SmokeRun(
    *("universal.smoke-1.json", "2026-11-24T08:00:00+00:00", "passed", True, "3.12.1"),
    *("linux_x86_64", "2.13.0+cu130", "NVIDIA H200", "9.0", "580.1", 3018, 104),
)
KEPT = Path(__file__).with_name("catalogue-schema-1.json")
"""A catalogue of the first release that had one. It is never written anew."""


def made(folder: Path) -> Catalogue:
    """The catalogue of a universal wheel, a small one and a bundled package."""
    wide = make_wheel(folder, tag=TAG, claims=universal())
    small = make_wheel(folder, version="1.0.0+cu130", tag=TAG, claims=stable(archs=("9.0+PTX",)))
    helper = make_wheel(folder, name="helper", claims=None, requires=())
    entries = [read_wheel_entry(read_wheel(wheel), TIME) for wheel in (wide, small, helper)]
    entries[0] = dataclasses.replace(
        entries[0],
        gates={"archs": "8.0"},
        smoke=(RUN,),
        record="universal.build.json",
        provenance=f"{wide.name}.provenance",
    )
    sdist = CatalogueSdist("demo-1.0.0.tar.gz", "1.0.0", "0" * 64, 7)
    return Catalogue("demo", "v1.0.0", tuple(entries), (sdist,))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    catalogue = made(tmp_path)
    (tmp_path / "catalogue.json").write_text(catalogue_text(catalogue))
    assert read_catalogue(tmp_path / "catalogue.json") == catalogue


def test_catalogues_of_old_releases_can_be_read(tmp_path: Path) -> None:
    """If this fails, give the new field a default: nobody writes old releases anew."""
    catalogue = read_catalogue(KEPT)
    assert [wheel.version for wheel in catalogue.wheels] == ["1.0.0", "1.0.0+cu130", "1.0.0"]
    assert catalogue.wheels[0].smoke == (RUN,)
    document = json.loads(KEPT.read_text())
    document["wheels"][0]["of the future"] = {"x": [1]}
    (tmp_path / "new.json").write_text(json.dumps(document))
    assert read_catalogue(tmp_path / "new.json") == catalogue


NINES = "9" * 5000
AS_NAMED = "expected {}, as its name says, found {}"
# A key of the catalogue, or of its second wheel; a value; and the beginning of what is said of it.
FAULTS: list[tuple[str, object, str]] = [
    ("schema", 2, "expected schema 1, found 2"),
    ("tag", "../v1", 'tag: expected e.g. "v1.0.0", found "../v1"'),
    ("tag", "{tag}", "tag: expected"),
    ("wheel.file", "demo.whl", 'expected the name of a wheel, found "demo'),
    ("wheel.file", "../x", 'expected the name of a file, found "../x"'),
    ("wheel.file", f"demo-{NINES}-py3-none-any.whl", "expected the name of a wheel, found "),
    ("wheel.project", "torch", AS_NAMED.format('"demo"', '"torch"')),
    ("wheel.version", "9", AS_NAMED.format('"1.0.0+cu130"', '"9"')),
    ("wheel.tags", ["py3-none-any"], "expected "),
    ("wheel.sha256", "0", 'expected 64 hex digits, found "0"'),
    ("wheel.metadata_sha256", "x" * 64, "expected 64 hex"),
    ("wheel.uploaded", "today", 'expected e.g. "2026-11-24T08:00:00Z"'),
    ("wheel.requires_python", "<b>", 'expected e.g. ">=3.10"'),
    ("wheel.requires_python", f">={NINES}", "expec"),
    ("wheel.requires", ["--pre"], 'expected requirements such as "einops>=0.7", found "--pre"'),
    ("wheel.size", -1, "expected a number of bytes"),
    ("wheel.size", "1", 'expected a whole number, found "1"'),
    ("wheel.provenance", "//x", "expected the name of a file"),
    ("about.source", "javascript:alert(1)", "wheels[1].about.source: expected an address of http"),
    (
        "about.module",
        "a; rm",
        'wheels[1].about.module: expected the name of a module, found "a; rm"',
    ),
    ("about.doctor", "yes", "wheels[1].about.doctor: expected true or false"),
    ("claims.archs", ["GTX"], "wheels[1].claims.archs[0]: "),
    ("claims.torch_release", "new", "wheels[1].claims: expected those of a wheel, found "),
]


@pytest.mark.parametrize(("key", "value", "says"), FAULTS, ids=lambda one: str(one)[:30])
def test_a_malformed_catalogue_is_one_line(
    tmp_path: Path, key: str, value: object, says: str
) -> None:
    document = json.loads(KEPT.read_text())
    wheel = document["wheels"][1]
    part, _, name = key.rpartition(".")
    about = wheel.setdefault("about", {})
    {"": document, "wheel": wheel, "claims": wheel["claims"], "about": about}[part][name] = value
    path = tmp_path / "catalogue.json"
    path.write_text(json.dumps(document))
    with pytest.raises(MalformedError) as caught:
        read_catalogue(path)
    line = str(caught.value)
    place = f"wheels[1].{name}: " if part == "wheel" else ""
    assert line.startswith(f"{path}: {place}{says}"), line
    assert line.endswith("; download the catalogue again")
    assert "\n" not in line


def test_each_malformed_catalogue_of_a_folder_has_a_line(tmp_path: Path) -> None:
    for tag, text in (("v1", "[]"), ("v2", KEPT.read_text()), ("v3", "{")):
        (tmp_path / tag).mkdir()
        (tmp_path / tag / "catalogue.json").write_text(text)
    (tmp_path / "v0").mkdir()
    with pytest.raises(TorchwheelError) as caught:
        read_catalogues([tmp_path])
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [
        str(tmp_path / tag / "catalogue.json") for tag in ("v1", "v3")
    ]
    (one,) = read_catalogues([tmp_path / "v2"])
    assert read_catalogues([tmp_path / "v2" / "catalogue.json"]) == (one,)


def test_a_name_has_one_file_in_all_releases(tmp_path: Path) -> None:
    first = made(tmp_path)
    later = dataclasses.replace(first.wheels[2], uploaded="2026-12-01T00:00:00Z")
    check_published([first, Catalogue("demo", "v1.1.0", (later,))])
    assert upload_times([Catalogue("demo", "v1.1.0", (later,)), first])[later.sha256] == TIME
    other = dataclasses.replace(later, sha256="0" * 64)
    line = (
        "helper-1.0.0-py3-none-any.whl: expected one file of this name, found different ones in "
        "the catalogues of v1.0.0 and v1.1.0"
    )
    with pytest.raises(UsageError, match=line):
        check_published([first, Catalogue("demo", "v1.1.0", (other,))])


# Which groups there are, and which wheels each offers.


BUILDS = torch_builds(
    {
        "2.6": TorchFacts({"cuda": ("11.8", "12.4"), "rocm": ("6.2",)}, ()),
        "2.11": TorchFacts({"cuda": ("12.8", "13.0"), "rocm": ("7.2",)}, ()),
        "2.12": TorchFacts({"cuda": ("13.0", "13.2"), "rocm": ("7.2",)}, ()),
    }
)
CU132 = stable(toolkit="cu132", toolkit_version="13.2")


def aten(torch: str, cuda: str | None = None) -> Claims:
    if cuda is None:
        return Claims("x", "aten", torch)
    toolkit = f"cu{cuda.replace('.', '')}"
    return Claims("x", "aten", torch, "cuda", toolkit, cuda, (parse("9.0"),))


ATEN = aten("2.6", "12.4")
ALL_13 = (*("cu130", "cu130/torch2.11", "cu130/torch2.12", "cu132", "cu132/torch2.12"),)
GROUPS: dict[str, tuple[list[Claims], list[tuple[str, ...]]]] = {
    "stable": ([stable()], [ALL_13]),
    "stable, of a newer torch": (
        [stable(torch_release="2.12")],
        [("cu130", "cu130/torch2.12", "cu132", "cu132/torch2.12")],
    ),
    "a toolkit with a wheel of its own is not offered another": (
        [stable(), CU132],
        [ALL_13[:3], ALL_13[3:]],
    ),
    "aten": ([ATEN], [("cu124", "cu124/torch2.6")]),
    "a torch that was not published for the toolkit": (
        [aten("2.11", "13.0"), aten("2.11", "13.2")],
        [("cu130", "cu130/torch2.11"), ("cu132",)],
    ),
    "aten, for CPUs": ([aten("2.6")], [("cpu", "cpu/torch2.6")]),
    "the pure wheel is wherever another is": (
        [PURE, ATEN],
        [("cpu", "cu124", "cu124/torch2.6"), ("cu124", "cu124/torch2.6")],
    ),
    "pure alone": ([PURE], [("cpu",)]),
    "a universal wheel is in a group for each torch that it serves": (
        [universal(("cuda 12.4", "cuda 13.0", "rocm 7.2"))],
        [
            (
                *("cpu", "cu124", "cu124/torch2.6", "cu128", "cu128/torch2.11", *ALL_13),
                *("rocm7.2", "rocm7.2/torch2.11", "rocm7.2/torch2.12"),
            )
        ],
    ),
    "universal, without a front end for 2.6": (
        [universal(("cuda 12.4",), torch=("2.11",))],
        [("cpu", "cu128", "cu128/torch2.11")],
    ),
}


@pytest.mark.parametrize(("claims", "groups"), GROUPS.values(), ids=GROUPS)
def test_groups(claims: list[Claims], groups: list[tuple[str, ...]]) -> None:
    assert list(groups_of(claims, BUILDS)) == groups


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
