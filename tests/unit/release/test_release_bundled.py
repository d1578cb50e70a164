"""A release with a bundled package, and tests that were skipped."""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from release_artifacts import CPU, H200, Artifacts, refused, run, smoke_of
from release_artifacts import NATIVE as NATIVE_WHEEL

from torchwheel.index.catalogue import read_catalogue
from torchwheel.matrix.load import load
from torchwheel.release.assemble import assemble
from torchwheel.release.rules import every_test_ran
from torchwheel.smoke.smoke_record import (
    SCHEMA,
    MachineRecord,
    SmokeRecord,
    TestReport,
    TestResult,
    summarize,
)
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.json_files import read_json
from wheelmaker import make_wheel

# A release with a bundled package: the same bytes in every artifact, tried with every wheel.


pytestmark = pytest.mark.usefixtures("green_gates")

HELPER = "helper-0.1-py3-none-any.whl"
NATIVE, PURE = "cu130-stable", "pure"


HELPER_WHEEL = {"name": "helper", "version": "0.1", "claims": None, "requires": ()}


def add_helper(folder: Path, **wheel: object) -> Path:
    return make_wheel(folder / "bundled", **{**HELPER_WHEEL, **wheel})  # type: ignore[arg-type]


def add_variants(made: Artifacts, version: str = "1.0.0") -> None:
    """Both wheels of the release, each artifact with the bundled package, and their records."""
    native = {**NATIVE_WHEEL, "version": f"{version}+cu130", "requires": ("torch>=2.11", "helper")}
    pure = {"version": version, "requires": ("torch>=2.6", "helper")}
    for variant, wheel in ((NATIVE, native), (PURE, pure)):
        folder = made.root / f"wheel-{variant}"
        add_helper(folder)
        made.add(variant, make_wheel(folder, **wheel))  # type: ignore[arg-type]
        made.smoke(variant)


@pytest.fixture
def artifacts(artifacts: Artifacts) -> Artifacts:
    shutil.rmtree(artifacts.root)
    artifacts.replace("source: project}", "source: project, bundled: [helper]}")
    folder = artifacts.matrix.parent / "helper"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "helper"\n')
    add_variants(artifacts)
    return artifacts


def test_it_is_released_with_the_wheels(artifacts, out):
    text = run(artifacts, out)
    assert f"with {HELPER}" in text.splitlines()
    digest = hashlib.sha256((out / HELPER).read_bytes()).hexdigest()
    assert f"{digest}  {HELPER}\n" in (out / "SHA256SUMS").read_text()
    assert sorted(path.name for path in (out / "pypi").iterdir()) == [
        "demo-1.0.0-py3-none-any.whl",
        "demo-1.0.0.tar.gz",
        HELPER,
    ]
    *_, helper = read_catalogue(out / "catalogue.json").wheels
    assert (helper.file, helper.project, helper.sha256) == (HELPER, "helper", digest)
    assert (helper.claims, helper.smoke) == (None, ())
    assert (out / f"{HELPER}.metadata").is_file()


def test_a_release_is_a_valid_input(artifacts, out):
    """In a release the bundled package lies beside the wheels, not in a folder of its own."""
    run(artifacts, out)
    before = (out / "catalogue.json").read_bytes()
    assemble(artifacts.matrix, ["release"], [out], out, Quiet())
    assert (out / "catalogue.json").read_bytes() == before
    assert (out / HELPER).is_file()


def test_other_bytes_in_one_artifact_are_refused(artifacts, out):
    add_helper(artifacts.root / "wheel-pure", files={"helper/__init__.py": b"other = 1\n"})
    (line,) = refused(artifacts, out)
    assert line.startswith(f"wheel-pure/bundled/{HELPER}: sha256 ")
    assert f"; {artifacts.root}/" not in line
    assert f"wheel-cu130-stable/bundled/{HELPER} has " in line


@pytest.mark.parametrize(
    ("wheel", "says"),
    [
        (
            {"tag": "cp312-none-any"},
            "a bundled package has the tag py3-none-any; got cp312-none-any",
        ),
        (
            {"files": {"helper/x.so": b"\x7fELF"}},
            "a bundled package is pure Python, but helper/x.so is machine code",
        ),
    ],
)
def test_one_that_is_not_pure_is_refused(artifacts, out, wheel, says):
    shutil.rmtree(artifacts.root)
    for variant in (NATIVE, PURE):
        add_helper(artifacts.root / f"wheel-{variant}", **wheel)
    lines = refused(artifacts, out)
    assert [line.partition(": ")[2] for line in lines if line.startswith("helper-")] == [says]


def test_one_that_is_missing_is_named(artifacts, out):
    for folder in artifacts.root.glob("*/bundled"):
        shutil.rmtree(folder)
    assert refused(artifacts, out) == ["bundled packages: none; expected one for each of helper"]


def test_one_that_the_matrix_does_not_name_is_refused(artifacts, out):
    artifacts.replace(", bundled: [helper]", "")
    assert f"bundled packages: {HELPER}; expected none" in refused(artifacts, out)


def test_two_versions_are_refused(artifacts, out):
    add_helper(artifacts.root / "wheel-pure", version="0.2")
    expected = (
        "bundled packages: helper-0.1-py3-none-any.whl, helper-0.2-py3-none-any.whl; expected"
    )
    assert any(line.startswith(expected) for line in refused(artifacts, out))


@pytest.mark.parametrize("record", ["build", "smoke"])
def test_a_wheel_that_was_tried_with_other_bytes_is_refused(artifacts, out, record):
    file = artifacts.build_file(PURE) if record == "build" else artifacts.smoke_file(PURE)
    artifacts.edit(file, bundled={HELPER: "0" * 64})
    digest = hashlib.sha256((artifacts.root / "wheel-pure/bundled" / HELPER).read_bytes())
    (line,) = refused(artifacts, out)
    wanted = f"pure: sha256 {digest.hexdigest()} of {HELPER}; a {record} record says {'0' * 64}"
    assert line == wanted


def test_a_wheel_that_was_tried_without_it_is_refused(artifacts, out):
    artifacts.edit(artifacts.smoke_file(NATIVE), bundled={})
    (line,) = refused(artifacts, out)
    assert line == f"{NATIVE}: was tried without {HELPER}, as a smoke record says"


def test_a_published_name_keeps_its_bytes(artifacts, out, tmp_path):
    run(artifacts, tmp_path / "earlier" / "v1.0.0", version="v1.0.0")
    run(artifacts, out, earlier=tmp_path / "earlier")
    shutil.rmtree(out)
    for variant, wheel in artifacts.wheels.items():
        add_helper(wheel.parent, files={"helper/__init__.py": b"other = 1\n"})
        artifacts.add(variant, wheel)
        artifacts.write_smoke(variant, smoke_of(wheel, H200))
    (line,) = refused(artifacts, out, earlier=tmp_path / "earlier")
    assert f"bundled/{HELPER}: expected sha256 " in line
    assert ", as v1.0.0 published this name, found " in line
    assert line.endswith("; raise its version")


@pytest.fixture
def carried(artifacts: Artifacts) -> Path:
    """The project carries the bundled package as a wheel, and has no sources of it."""
    artifacts.replace("bundled: [helper]", f"bundled: [{HELPER}]")
    shutil.rmtree(artifacts.matrix.parent / "helper")
    wheel = next(artifacts.root.rglob(HELPER))
    return Path(shutil.copy(wheel, artifacts.matrix.parent))


def test_a_carried_wheel_is_released_as_it_is(artifacts, carried, out):
    run(artifacts, out)
    assert (out / HELPER).read_bytes() == carried.read_bytes()
    assert HELPER in (out / "SHA256SUMS").read_text()


def test_another_wheel_than_the_carried_one_is_refused(artifacts, carried, out):
    make_wheel(carried.parent, **HELPER_WHEEL, files={"helper/__init__.py": b"other = 1\n"})
    faults = refused(artifacts, out)
    assert any("a bundled package named helper; expected none" in line for line in faults)


# A test function of which no case ran is refused, unless the matrix admits the reason.


ROOT = Path(__file__).parents[3]
RECORDS = sorted(
    path
    for path in (ROOT / "docs" / "records").glob("smoke-*.json")
    if json.loads(path.read_text())["schema"] == SCHEMA
)
OURS = load(ROOT / "matrix.yaml").smoke.skips


def lines(record: SmokeRecord, skips: tuple[str, ...]) -> list[str]:
    sources = SimpleNamespace(matrix=SimpleNamespace(smoke=SimpleNamespace(skips=skips)))
    return list(every_test_ran(sources, SimpleNamespace(smokes=(record,))))  # type: ignore[arg-type]


def record_of(tests: TestReport, machine: MachineRecord = H200) -> SmokeRecord:
    return SmokeRecord("a.whl", "ab", 9, "", machine, (), tests, "cd", {}, "passed")


NAME = "test_x.py::test_a"


def skipped(reason: str, name: str = NAME) -> TestResult:
    return TestResult(name, "skipped", 0.0, reason)


RAN = TestResult("test_x.py::test_b", "passed", 0.1)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_our_records_are_admitted(path):
    """Those of wheels that passed, and of two that failed; they have reasons for each run alone."""
    assert lines(read_json(path, SmokeRecord, schema=SCHEMA), OURS) == []


def test_our_records_are_not_admitted_without_their_reasons():
    refused = [
        path for path in RECORDS if lines(read_json(path, SmokeRecord, schema=SCHEMA), ("none",))
    ]
    assert len(refused) > 20


BAD, GOOD = skipped("bad"), skipped("good")
TOOLS = skipped("needs 3 tools")
UNRUN = {
    "a pattern": ((TOOLS, RAN), ("needs 3 tools",), None),
    "a pattern within": ((TOOLS, RAN), ("needs * tools",), None),
    "a pattern at the end": ((TOOLS, RAN), ("*tools",), None),
    "two patterns for less": (
        (TOOLS, RAN),
        ("needs 3 tool", "tools"),
        'test_x.py::test_a were skipped: "needs 3 tools"; ',
    ),
    "a case ran": (
        (skipped("bad", f"{NAME}[1]"), TestResult(f"{NAME}[2]", "passed", 0)),
        (),
        None,
    ),
    "one reason of several is not admitted": (
        (skipped("good", f"{NAME}[1]"), skipped("bad", f"{NAME}[2]"), RAN),
        ("good",),
        'test_x.py::test_a were skipped: "bad"',
    ),
    "50 cases of another, of which one ran, were skipped for a good reason": (
        (*(skipped("good", f"test_x.py::test_b[{n}]") for n in range(50)), RAN, BAD),
        ("good",),
        'test_x.py::test_a were skipped: "bad"',
    ),
    "others are counted": (
        [skipped("bad", f"test_x.py::test_{name}") for name in "acd"],
        (),
        'test_x.py::test_a were skipped, and so 2 other test functions: "bad"; ',
    ),
    "a file": (
        (skipped("bad", "test_y.py"), RAN),
        (),
        'test_y.py were skipped: "bad"',
    ),
}


@pytest.mark.parametrize(("results", "admitted", "says"), UNRUN.values(), ids=UNRUN)
def test_a_function_of_which_no_case_ran(results, admitted, says):
    found = lines(record_of(summarize(results)), admitted)
    assert [line.startswith(f"all cases of {says}") for line in found] == [True] * bool(says)


@pytest.mark.parametrize("reason", ["no GPU that torch can use", "needs CUDA", "ROCm is absent"])
def test_a_reason_that_speaks_of_a_gpu_is_admitted_where_there_is_none(reason):
    tests = summarize((skipped(reason), RAN))
    assert lines(record_of(tests, CPU), ()) == []
    assert len(lines(record_of(tests), ())) == 1


def test_an_older_record_names_no_function():
    """It has the reasons of all skips: those that are admitted must be enough."""
    for reason, is_refused in (("flaky", True), ("good", False)):
        tests = dataclasses.replace(summarize((skipped(reason), RAN)), unrun={})
        assert bool(lines(record_of(tests), ("good",))) is is_refused


def test_a_record_that_leaves_out_a_function():
    tests = summarize((skipped("good"), skipped("flaky", "test_x.py::test_c"), RAN))
    tests = dataclasses.replace(tests, unrun={"test_x.py::test_a": ("good",)})
    (line,) = lines(record_of(tests), ("good",))
    assert line.startswith('all cases of test_x.py::test_c were skipped: ""')
