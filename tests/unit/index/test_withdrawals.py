"""yanked.yaml: what it means, and one line for each fault of it."""

import dataclasses
from pathlib import Path

import pytest

from torchwheel.index.catalogue import CatalogueWheel, read_catalogue
from torchwheel.index.withdrawals import (
    ProjectStatus,
    Withdrawals,
    parse_withdrawals,
    read_withdrawals,
)
from torchwheel_runtime.errors import UsageError

KEPT = Path(__file__).with_name("catalogue-schema-1.json")
WIDE, SMALL, HELPER = read_catalogue(KEPT).wheels
PURE = dataclasses.replace(WIDE, file="demo-1.0.0-py3-none-any.whl", tags=("py3-none-any",))
WHEELS = [WIDE, SMALL, HELPER, PURE]


def withdrawals(text: str) -> Withdrawals:
    return parse_withdrawals(f"schema: 1\n{text}", "yanked.yaml")


def yanked(text: str, wheels: list[CatalogueWheel] = WHEELS) -> dict[str, str]:
    return withdrawals(f"yanked:\n  {text}\n").yanked_files(wheels)


def test_a_file_is_withdrawn_by_its_name() -> None:
    assert yanked(f"{PURE.file}: wrong sums") == {PURE.file: "wrong sums"}


def test_a_version_means_its_local_versions_too() -> None:
    every = {WIDE.file, SMALL.file, PURE.file}
    assert yanked("demo==1.0.0: wrong").keys() == every
    assert yanked("Demo==1.0: wrong").keys() == every
    assert yanked("demo==1.0.0+cu130: wrong").keys() == {SMALL.file}
    assert yanked("helper==1.0.0: wrong").keys() == {HELPER.file}


def test_a_release_candidate_is_withdrawn() -> None:
    candidate = dataclasses.replace(PURE, version="1.0.0rc1")
    assert yanked("demo==1.0.0rc1: wrong", [candidate]) == {candidate.file: "wrong"}


def test_the_first_reason_stands() -> None:
    text = f"demo==1.0.0: all of it\n  {PURE.file}: this one"
    assert yanked(text)[PURE.file] == "all of it"


def test_what_was_removed_and_the_states_of_projects() -> None:
    text = (
        f"removed: {{{PURE.file}: deleted}}\n"
        "projects: {Demo: {status: archived, reason: it is part of torch}}\n"
    )
    found = withdrawals(text)
    assert found.removed_files(WHEELS) == {PURE.file}
    assert found.yanked_files(WHEELS) == {}
    assert found.projects == {"demo": ProjectStatus("archived", "it is part of torch", 3)}
    found.check(WHEELS)
    assert withdrawals("") == Withdrawals(where="yanked.yaml")


NAME = 'expected the file name of a wheel or e.g. "demo==1.0.1", found'
REASON = "expected the reason on one line, found"
LONG, SHORT = "9" * 5000, f"{'9' * 54}…"
STATES = "active, archived, deprecated, quarantined"
FAULTS = {
    "schema: 2": "1: schema: expected 1, found a number",
    "schema: true": "1: schema: expected 1, found a boolean",
    "yanked: {}": "1: schema: expected 1, found none",
    "[a]": "1: expected a mapping, found a list",
    "": '1: the file is empty; expected "schema: 1" and the rest',
    "+yanked: [a]": "2: yanked: expected a mapping, found a list",
    "+yank: {}": '2: yank: expected one of schema, yanked, removed, projects, found "yank"',
    "+yanked:\n  demo: x": f'3: yanked.demo: {NAME} "demo"',
    "+yanked:\n  demo==1.x: y": f'3: yanked["demo==1.x"]: {NAME} "demo==1.x"',
    f"+yanked:\n  ? demo=={LONG}\n  : y": f'3: yanked["demo=={SHORT}"]: {NAME} "demo=={SHORT}"',
    "+removed:\n  ../x.whl: y": f'3: removed["../x.whl"]: {NAME} "../x.whl"',
    "+yanked:\n  demo==1: 5": f'3: yanked["demo==1"]: {REASON} a number',
    '+yanked:\n  demo==1: "a\\nb"': f'3: yanked["demo==1"]: {REASON} "a\\nb"',
    "+projects:\n  demo: archived": (
        '3: projects.demo: expected the keys status and reason, found "archived"'
    ),
    "+projects:\n  demo: {status: gone, reason: x}": (
        f'3: projects.demo.status: expected one of {STATES}, found "gone"'
    ),
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_is_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_withdrawals(text.replace("+", "schema: 1\n", 1), "yanked.yaml")
    assert str(caught.value) == f"yanked.yaml:{FAULTS[text]}"


def test_what_was_never_published_is_one_line_each() -> None:
    text = (
        "yanked:\n  demo==1.0.1: wrong\n"
        "removed:\n  demo-1.0.0-py3-none-win32.whl: gone\n"
        "projects:\n  domo: {status: archived, reason: x}\n"
    )
    with pytest.raises(UsageError) as caught:
        withdrawals(text).check(WHEELS)
    first, third = str(caught.value).splitlines()
    (second,) = withdrawals(text).gone(WHEELS)
    assert first.startswith(
        'yanked.yaml:3: yanked: expected a published wheel, found "demo==1.0.1"; did you mean '
        '"demo==1.0.0"'
    )
    # A release that was deleted whole must not stop the index.
    assert second == (
        'yanked.yaml:5: removed: "demo-1.0.0-py3-none-win32.whl" is in no release; remove the line '
        "if it is not a misspelling"
    )
    assert third == (
        'yanked.yaml:7: projects: expected a published project, found "domo"; did you mean "demo"?'
    )


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "yanked.yaml"
    with pytest.raises(UsageError, match="no such file; run where it is, or name it with --yanked"):
        read_withdrawals(path)
    path.write_bytes(b"schema: 1\n# \xff")
    with pytest.raises(UsageError, match=r":2: not UTF-8: byte 0xff; save it as UTF-8"):
        read_withdrawals(path)
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(UsageError, match="expected at most 1024 KiB, found more"):
        read_withdrawals(path)
    with pytest.raises(UsageError, match=str(tmp_path)):
        read_withdrawals(tmp_path)
