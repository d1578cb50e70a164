"""Catalogues: what is written is read again, and a malformed one is refused in one line."""

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchwheel.errors import MalformedError, TorchwheelError, UsageError
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
from torchwheel.inspect.wheel import read_wheel
from wheelmaker import make_wheel, stable, universal

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


def wheel(**changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["wheels"][1].update(changes)


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "schema": (lambda d: d.update(schema=2), "expected schema 1, found 2"),
    "tag": (lambda d: d.update(tag="../v1"), 'tag: expected e.g. "v1.0.0", found "../v1"'),
    "tag with a brace": (lambda d: d.update(tag="{tag}"), "tag: expected"),
    "file": (wheel(file="demo.whl"), 'wheels[1].file: expected the name of a wheel, found "demo'),
    "folder": (wheel(file="../x"), 'wheels[1].file: expected the name of a file, found "../x"'),
    "project": (
        wheel(project="torch"),
        'wheels[1].project: expected "demo", as its name says, found "torch"',
    ),
    "version": (
        wheel(version="9"),
        'wheels[1].version: expected "1.0.0+cu130", as its name says, found "9"',
    ),
    "tags": (wheel(tags=["py3-none-any"]), "wheels[1].tags: expected "),
    "sha256": (wheel(sha256="0"), 'wheels[1].sha256: expected 64 hex digits, found "0"'),
    "metadata": (wheel(metadata_sha256="x" * 64), "wheels[1].metadata_sha256: expected 64 hex"),
    "time": (wheel(uploaded="today"), 'wheels[1].uploaded: expected e.g. "2026-11-24T08:00:00Z"'),
    "python": (wheel(requires_python="<b>"), 'wheels[1].requires_python: expected e.g. ">=3.10"'),
    "long python": (wheel(requires_python=">=" + "9" * 5000), "wheels[1].requires_python: expec"),
    "long version": (
        wheel(file=f"demo-{'9' * 5000}-py3-none-any.whl"),
        "wheels[1].file: expected the name of a wheel, found ",
    ),
    "size": (wheel(size=-1), "wheels[1].size: expected a number of bytes"),
    "size as text": (wheel(size="1"), 'wheels[1].size: expected a whole number, found "1"'),
    "provenance": (wheel(provenance="//x"), "wheels[1].provenance: expected the name of a file"),
    "arch": (
        lambda d: d["wheels"][1]["claims"].update(archs=["GTX"]),
        "wheels[1].claims.archs[0]: ",
    ),
    "torch": (
        lambda d: d["wheels"][1]["claims"].update(torch_release="new"),
        "wheels[1].claims: expected those of a wheel, found ",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_malformed_catalogue_is_one_line(tmp_path: Path, fault: str) -> None:
    damage, says = FAULTS[fault]
    document = json.loads(KEPT.read_text())
    damage(document)
    path = tmp_path / "catalogue.json"
    path.write_text(json.dumps(document))
    with pytest.raises(MalformedError) as caught:
        read_catalogue(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: {says}"), line
    assert line.endswith("; download the catalogue again")
    assert "\n" not in line


@settings(max_examples=60, deadline=None)
@given(
    at=st.integers(0, 2),
    field=st.sampled_from(sorted(json.loads(KEPT.read_text())["wheels"][0])),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=4,
    ),
)
def test_any_value_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, at: int, field: str, value: object
) -> None:
    document = json.loads(KEPT.read_text())
    document["wheels"][at][field] = value
    path = tmp_path_factory.mktemp("any") / "catalogue.json"
    path.write_text(json.dumps(document))
    with contextlib.suppress(MalformedError):
        read_catalogue(path)


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
