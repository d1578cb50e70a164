"""Each trick that once made a release believe a record or publish a foreign file is refused.

`docs/security.md` has the table of them.
"""

import dataclasses
import datetime
import json
import re
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from release_artifacts import CPU, H200, TAG, Artifacts, commit, refused, run
from release_artifacts import NATIVE as WHEEL

from torchwheel.check.audit import Audit
from torchwheel.check.facts import Fact, Limits, WheelFacts
from torchwheel.check.gates import judge
from torchwheel.findings import CheckResult
from torchwheel.inspect.wheel import read_wheel
from torchwheel.pipeline.repair import repack_members, stamp, wheel_members
from torchwheel.release import artifacts as artifacts_
from torchwheel.release import rules, sdists
from torchwheel.release.rules import skips_allowed
from torchwheel.smoke.smoke_record import (
    SCHEMA,
    GpuRecord,
    ImportRecord,
    MachineRecord,
    SmokeRecord,
    TestResult,
    summarize,
)
from torchwheel_runtime.json_files import read_json
from wheelmaker import PURE as PURE_CLAIMS
from wheelmaker import make_wheel, stable

INIT = {"demo/__init__.py": b"answer = 42\n"}
NATIVE, PURE = "cu130-stable", "pure"


def repacked(a: Artifacts, change: Callable[[Path], Path]) -> None:
    """The pure wheel as `change` leaves it, with new records."""
    shutil.rmtree(a.root / "smoke-pure")
    a.add(PURE, change(a.wheels[PURE]))


@pytest.fixture
def pure_alone(artifacts: Artifacts) -> Artifacts:
    """Only the pure wheel, so that the real gates judge."""
    artifacts.drop(NATIVE)
    return artifacts


def with_files(**files: bytes) -> Callable[[Artifacts], None]:
    return lambda a: a.again(PURE, files={**INIT, **files})


def rezipped(path: Path, mode: str = "w", executable: str = "") -> Path:
    """Write the members again; one of them may become executable."""
    with zipfile.ZipFile(path) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    if mode == "a":
        path.write_bytes(b"#!/bin/sh\n")  # offsets count from the first byte
    with zipfile.ZipFile(path, mode) as archive:
        for info, data in members:
            if executable:
                bits = 0o755 if info.filename == executable else 0o644
                info.create_system, info.external_attr = 3, (0o100000 | bits) << 16
            archive.writestr(info, data)
    return path


def console_script(a: Artifacts) -> None:
    text = b"[console_scripts]\npip = demo:main\n"
    a.again(PURE, bend=lambda m: m.update({"demo-1.0.0.dist-info/entry_points.txt": text}))


GATE = "pure: gate content: "
OUTSIDE = "is installed outside the packages; expected files of demo"
NO_METADATA = "is no metadata that a build writes"
FILES = {
    "evil.pth": "runs whenever Python starts",
    "torch/__init__.py": "is not of the project; expected files of demo",
    "sitecustomize.py": "runs whenever Python starts",
    "demo-1.0.0.data/scripts/pip": OUTSIDE,
    "demo-1.0.0.data/data/etc/profile.d/x.sh": OUTSIDE,
    "demo.libs/x.py": "is no library, beside those of auditwheel",
    "demo/__pycache__/__init__.cpython-311.pyc": "is compiled Python, which no source",
    "demo-1.0.0.dist-info/direct_url.json": NO_METADATA,
    "demo-1.0.0.dist-info/sub/evil.py": NO_METADATA,
}
CONTENT = {
    name: (with_files(**{name: b"x"}), f"{GATE}{name}: {says}") for name, says in FILES.items()
}
CONTENT |= {
    "a console script": (
        console_script,
        f'{GATE}entry_points.txt: console_scripts "pip" = "demo:main" is not in the project\'s '
        "pyproject.toml",
    ),
    "an executable file": (
        lambda a: repacked(a, lambda p: rezipped(p, executable="demo/__init__.py")),
        f"{GATE}demo/__init__.py: is executable; only libraries are",
    ),
    "a build tag": (
        lambda a: repacked(a, lambda p: p.rename(p.with_name("demo-1.0.0-1-py3-none-any.whl"))),
        f"{GATE}its file name has the build tag 1; none expected",
    ),
    "bytes before the zip": (
        lambda a: repacked(a, lambda p: rezipped(p, "a")),
        "demo-1.0.0-py3-none-any.whl: member 'demo/__init__.py' comes after 10 bytes of no member",
    ),
}


@pytest.mark.parametrize(("damage", "line"), CONTENT.values(), ids=CONTENT)
def test_a_foreign_file_is_refused(pure_alone, damage, line):
    damage(pure_alone)
    assert line in [one[: len(line)] for one in refused(pure_alone, selection=PURE)]


def test_licenses_and_lists_of_parts_are_metadata(pure_alone):
    names = ("LICENSE.txt", "licenses/a/COPYING", "sboms/auditwheel.cdx.json", "top_level.txt")
    with_files(**{f"demo-1.0.0.dist-info/{name}": b"" for name in names})(pure_alone)
    run(pure_alone, selection=PURE)


def test_an_entry_point_that_the_project_declares_is_published(pure_alone):
    console_script(pure_alone)
    project = pure_alone.matrix.parent / "project" / "pyproject.toml"
    project.write_text('[project]\nname = "demo"\n[project.scripts]\npip = "demo:main"\n')
    pure_alone.add(PURE, pure_alone.wheels[PURE])
    out = pure_alone.matrix.parent / "release"
    run(pure_alone, selection=PURE)
    assert (out / "catalogue.json").is_file()


# The records of the native wheel's GPU run, and of the pure wheel.


def edited(
    variant: str, machine: MachineRecord | None = None, **changes: object
) -> Callable[[Artifacts], None]:
    """Every smoke record of a variant with changes; of the native wheel, those of the GPU run."""

    def edit(a: Artifacts) -> None:
        for artifact in ("", f"wheel-{variant}"):
            a.smoke(variant, machine, artifact, **changes)

    return edit


def on(arch: str, name: str = "NVIDIA H200") -> MachineRecord:
    return dataclasses.replace(H200, gpu=GpuRecord(name, arch, None))


NO_GPU = (
    f"{NATIVE}: not run on a GPU of its kind, though the matrix names a runner "
    "(self-hosted, cuda); smoke-test it there"
)
AGAIN = "smoke-test this wheel again"
INVENTED = summarize((TestResult("test_x.py::test_invented", "passed", 0.1),))
ONE_OF_TWO = summarize((TestResult("test_demo.py::test_a", "passed", 0.1),))
ALL_SKIPPED = summarize(
    (
        TestResult("test_demo.py::test_a", "skipped", 0.0, "slow"),
        TestResult("test_demo.py::TestB::test_b", "skipped", 0.0, "slow"),
        TestResult("test_x.py::test_invented", "passed", 0.1),
    )
)
ONE_AND_49 = tuple(
    TestResult(
        f"test_demo.py::{name}[{case}]",
        "skipped" if case else "passed",
        0.1,
        "no GPU that torch can use" if case else None,
    )
    for name, cases in (("test_a", 50), ("TestB::test_b", 1))
    for case in range(cases)
)
ELSEWHERE = (ImportRecord("demo", "other/__init__.py"),)
RECORDS = {
    "one invented test": (
        edited(PURE, tests=INVENTED),
        f"pure: a smoke record has no test test_demo.py::test_a, which tests/smoke holds; {AGAIN}",
    ),
    "one test of two": (
        edited(PURE, tests=ONE_OF_TWO),
        "pure: a smoke record has no test test_demo.py::TestB::test_b, which tests/smoke holds; "
        + AGAIN,
    ),
    "no test of a file passed": (
        edited(NATIVE, tests=ALL_SKIPPED),
        f"{NATIVE}: no test of test_demo.py passed on the GPU; expected at least one of them",
    ),
    "tests of other sources": (
        edited(PURE, sources="0" * 64),
        f"pure: was smoke-tested with other tests than tests/smoke holds here; {AGAIN}",
    ),
    "nothing imported": (
        edited(PURE, imported=()),
        f'pure: a smoke record imported "demo" from "nowhere"; {AGAIN}',
    ),
    "imported from elsewhere": (
        edited(PURE, imported=ELSEWHERE),
        f'pure: a smoke record imported "demo" from "other/__init__.py"; {AGAIN}',
    ),
    "an old torch": (
        edited(PURE, machine=dataclasses.replace(CPU, torch="1.0")),
        'pure: was smoke-tested with torch "1.0"; expected >=2.6',
    ),
    "no torch": (
        edited(PURE, machine=dataclasses.replace(CPU, torch="new")),
        'pure: was smoke-tested with torch "new"; expected >=2.6',
    ),
    "a GPU without code": (edited(NATIVE, machine=on("3.0", "GTX 9")), NO_GPU),
    "a GPU that no toolkit knows": (edited(NATIVE, machine=on("9.9")), NO_GPU),
    "a GPU without an arch": (edited(NATIVE, machine=on("new")), NO_GPU),
    "a GPU of the other kind": (edited(NATIVE, machine=on("gfx942")), NO_GPU),
    "built just in time": (
        edited(NATIVE, operators={"demo": {"scale": "jit build", "add": "prebuilt"}}),
        f"{NATIVE}: 1 of 2 operator families did not run prebuilt on the GPU, first "
        '"demo.scale": "jit build"; `torchwheel doctor` says why there',
    ),
}
NO_REASON = dataclasses.replace(summarize(ONE_AND_49), skipped={})
FLAKY = summarize(
    (
        *(TestResult(f"test_demo.py::test_a[{n}]", "skipped", 0.0, "flaky") for n in range(9)),
        TestResult("test_demo.py::TestB::test_b", "passed", 0.1),
    )
)
DID_NOT_RUN = (
    'all cases of test_demo.py::test_a were skipped: "flaky"; let one of each run, or list the '
    "reason under smoke.skips in the matrix"
)
RECORDS |= {
    "a test of which no case ran": (edited(NATIVE, tests=FLAKY), f"{NATIVE}: {DID_NOT_RUN}"),
    "one without a GPU": (edited(PURE, tests=FLAKY), f"pure: {DID_NOT_RUN}"),
    "tests skipped on a GPU for want of one": (
        edited(NATIVE, tests=summarize(ONE_AND_49)),
        f'{NATIVE}: 49 tests were skipped on NVIDIA H200: "no GPU that torch can use"; expected '
        "them to run there",
    ),
    "tests skipped for no reason": (
        edited(NATIVE, tests=NO_REASON),
        f"{NATIVE}: a smoke record has 49 skipped tests and the reasons of 0; {AGAIN}",
    ),
    "operators of another package": (
        edited(NATIVE, operators={"other": {"x": "prebuilt"}}),
        f'{NATIVE}: a smoke record has operators of "other"; expected those of demo; {AGAIN}',
    ),
}
SET_CLOCK = f"set the clock of that machine, and {AGAIN}"
TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
DATES = {
    "yesterday": rf'"yesterday"; expected e\.g\. {TIME}',
    "2026-01-01T00:00:00": rf'"2026-01-01T00:00:00"; expected e\.g\. {TIME}',
    "2999-01-01T00:00:00+00:00": (
        rf"2999-01-01T00:00:00\+00:00, later than now, {TIME}; {SET_CLOCK}"
    ),
}
"""What a record says, and what is said of it."""


@pytest.mark.usefixtures("green_gates")
@pytest.mark.parametrize(("damage", "line"), RECORDS.values(), ids=RECORDS)
def test_a_record_that_lies_is_refused(artifacts, damage, line):
    damage(artifacts)
    assert set(refused(artifacts)) == {line}


@pytest.mark.usefixtures("green_gates")
def test_a_record_lacks_a_family_of_operators(artifacts):
    """Another run on a GPU names it."""
    edited(NATIVE, operators={"demo": {"scale": "prebuilt", "add": "prebuilt"}})(artifacts)
    artifacts.smoke(NATIVE, operators={"demo": {"scale": "prebuilt"}})
    assert refused(artifacts) == [
        f'{NATIVE}: a smoke record has no "demo.add" among its operators, which another record of '
        f"this release has; {AGAIN}"
    ]


RUNS = [
    path
    for path in sorted(Path(__file__).parents[3].glob("docs/records/smoke-h*.json"))
    if json.loads(path.read_text())["schema"] == SCHEMA
]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_skips_of_real_runs_are_allowed(path):
    """Other skips than for want of a GPU: a second one, memory, a type, a rule."""
    record = read_json(path, SmokeRecord, schema=SCHEMA)
    case = SimpleNamespace(smokes=(record,))
    assert record.machine.gpu
    assert list(skips_allowed(None, case)) == []


@pytest.mark.parametrize(
    ("absent", "reasons"),
    [
        (True, ["no GPU", "Requires CUDA", "CUDA is not available", "needs a GPU"]),
        (False, ["no GPU memory free", "only one GPU", "needs two GPUs"]),
        (False, ["this GPU has no clusters", "no CUDA graph of it"]),
    ],
)
def test_a_reason_that_says_there_is_no_gpu(absent, reasons):
    assert [bool(rules._NO_GPU.search(one)) for one in reasons] == [absent] * len(reasons)


@pytest.mark.usefixtures("green_gates")
@pytest.mark.parametrize("date", DATES)
def test_a_date_that_is_none_or_to_come_is_refused(artifacts, date):
    edited(PURE, date=date)(artifacts)
    for line, folder in zip(refused(artifacts), ("smoke", "wheel"), strict=True):
        place = rf"pure: {folder}-pure/smoke/[^/]+\.json: was smoke-tested at "
        assert re.fullmatch(place + DATES[date], line)


def at(seconds: float) -> str:
    """A time as a record has it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat()


@pytest.mark.usefixtures("green_gates")
@pytest.mark.parametrize("clock", [240, -240])
def test_a_clock_may_be_four_minutes_wrong(artifacts, clock):
    commit(artifacts, at(time.time()))
    edited(NATIVE, date=at(time.time()))(artifacts)
    edited(PURE, date=at(time.time() + clock))(artifacts)
    run(artifacts)


@pytest.mark.usefixtures("green_gates")
def test_ptx_of_an_older_arch_runs_on_a_newer_gpu(artifacts):
    artifacts.replace('"9.0"]', '"9.0+PTX"]')
    wheel = {**WHEEL, "claims": stable(archs=("8.0", "9.0+PTX"))}
    artifacts.again(NATIVE, on("12.0", "RTX 5090"), **wheel)
    assert "RTX 5090" in run(artifacts)
    shutil.rmtree(artifacts.matrix.parent / "release")
    artifacts.replace('"9.0+PTX"]', '"9.0"]')
    artifacts.again(NATIVE, on("12.0", "RTX 5090"), **WHEEL)
    assert refused(artifacts) == [NO_GPU]


@pytest.mark.usefixtures("green_gates")
def test_a_wheel_that_brings_the_runtime_must_say_how_its_operators_ran(artifacts):
    artifacts.again(NATIVE, **{**WHEEL, "requires": ("torch>=2.11", "torchwheel-runtime>=0.1")})
    assert refused(artifacts) == [
        f"{NATIVE}: a smoke record does not say how its operators ran on the GPU; {AGAIN}"
    ]
    edited(NATIVE, operators={"demo": {"scale": "prebuilt"}})(artifacts)
    run(artifacts)


@pytest.mark.usefixtures("green_gates")
def test_without_a_gpu_the_chosen_files_are_enough(artifacts):
    tests = artifacts.matrix.parent / "tests" / "smoke"
    (tests / "test_gpu.py").write_text("def test_c(): pass\n")
    artifacts.replace("skips: [slow]}", "skips: [slow], without_gpu: [test_demo.py]}")
    edited(PURE)(artifacts)
    edited(NATIVE)(artifacts)
    line = f"{NATIVE}: a smoke record has no test test_gpu.py::test_c, which tests/smoke holds; "
    assert set(refused(artifacts)) == {line + AGAIN}


@pytest.mark.usefixtures("green_gates")
def test_a_record_older_than_the_commit_is_refused(artifacts):
    commit(artifacts, "2026-11-21T00:00:00Z")
    edited(NATIVE, date="2026-11-22T00:00:00+00:00")(artifacts)
    assert {line.rpartition(": ")[2] for line in refused(artifacts)} == {
        "was smoke-tested at 2026-11-20T00:00:00+00:00, before the commit of "
        f"2026-11-21T00:00:00Z; {SET_CLOCK}"
    }


@pytest.mark.usefixtures("green_gates")
def test_an_earlier_wheel_is_not_this_releases(artifacts):
    """Of the same version, with its own records, and built from the sources of that time."""
    (artifacts.matrix.parent / "project" / "demo.py").write_text("answer = 43\n")
    why = "was built from other sources than those in this folder; build it from these"
    assert refused(artifacts) == [f"{NATIVE}: {why}", f"{PURE}: {why}"]


@pytest.mark.usefixtures("green_gates")
def test_bundled_packages_have_the_names_of_their_sources(artifacts):
    artifacts.replace("source: project}", "source: project, bundled: [helper]}")
    helper = artifacts.matrix.parent / "helper"
    helper.mkdir()
    (helper / "pyproject.toml").write_text('[project]\nname = "helper"\n')

    def bundle(**wheel: object) -> list[str]:
        for folder in artifacts.root.glob("*/bundled"):
            shutil.rmtree(folder)
        for variant in (NATIVE, PURE):
            folder = artifacts.root / f"wheel-{variant}" / "bundled"
            make_wheel(folder, claims=None, requires=(), **wheel)  # type: ignore[arg-type]
            artifacts.add(variant, artifacts.wheels[variant])
            artifacts.smoke(variant)
        return [line.partition("/bundled/")[2] for line in refused(artifacts)]

    assert bundle(name="requests", version="9") == [
        "requests-9-py3-none-any.whl: a bundled package named requests; expected helper"
    ]
    files = {"helper/__init__.py": b"", "requests/__init__.py": b""}
    assert bundle(name="helper", version="1", files=files) == [
        "helper-1-py3-none-any.whl: requests/__init__.py: is not of the project; "
        "expected files of helper"
    ]


def test_the_glibc_of_the_matrix_holds_for_every_wheel(artifacts, monkeypatch):
    """A wheel that a host built asks for more than one of a container may."""
    limit = 'containers: {base: bullseye, glibc: "2.28", python: "3.11"}\n'
    artifacts.matrix.write_text(artifacts.matrix.read_text() + limit)
    artifacts.again(NATIVE, **{**WHEEL, "tag": "py3-none-manylinux_2_34_x86_64"})

    def one_gate(path: Path, limits: Limits) -> tuple[CheckResult, ...]:
        facts = WheelFacts(
            Fact(read_wheel(path)), Fact(()), Fact({}), Fact(Audit("manylinux_2_34_x86_64", ()))
        )
        one = [result for result in judge(facts, limits) if result.name == "platform-tag"]
        return tuple(one) if "manylinux" in path.name else ()

    monkeypatch.setattr(artifacts_, "run_gates", one_gate)
    assert refused(artifacts) == [
        f"{NATIVE}: gate platform-tag: manylinux_2_34_x86_64 is for newer systems than glibc 2.28: "
        'nothing stricter is known; build without these functions, or set containers.glibc: "2.34" '
        "in matrix.yaml"
    ]


def test_every_record_has_the_fields_that_the_rules_ask(artifacts):
    fields = {field.name for field in dataclasses.fields(SmokeRecord)}
    assert {"sources", "operators", "date", "tests", "imported", "machine"} <= fields


# Metadata of a wheel whose records all agree: what the sources give is built again, and compared.


def rewritten(name: str, old: bytes, new: bytes) -> Callable[[dict[str, bytes]], None]:
    """Replace a text in a file of dist-info."""

    def bend(members: dict[str, bytes]) -> None:
        member = f"demo-1.0.0.dist-info/{name}"
        assert old in members[member]
        members[member] = members[member].replace(old, new)

    return bend


def with_field(line: str) -> Callable[[dict[str, bytes]], None]:
    return rewritten("METADATA", b"\nVersion", f"\n{line}\nVersion".encode())


def with_member(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({f"demo-1.0.0.dist-info/{name}": b"import os\n"})


METADATA = {
    "a requirement by URL": (with_field("Requires-Dist: x @ https://x.example/x.whl"), "METADATA"),
    "one more requirement": (with_field("Requires-Dist: requests"), "METADATA"),
    "another extra": (with_field("Provides-Extra: all"), "METADATA"),
    "another Requires-Python": (rewritten("METADATA", b">=3.10", b">=3.13"), "METADATA"),
    "another name's case": (rewritten("METADATA", b"Name: demo", b"Name: Demo"), "METADATA"),
    "a name it provides": (with_field("Provides-Dist: torch"), "METADATA"),
    "a name it makes obsolete": (with_field("Obsoletes-Dist: torch"), "METADATA"),
    "a dynamic field": (with_field("Dynamic: Summary"), "METADATA"),
    "a summary": (with_field("Summary: see https://x.example"), "METADATA"),
    "a description": (rewritten("METADATA", b">=3.10\n", b">=3.10\n\nrun this\n"), "METADATA"),
    "an injected tag": (rewritten("WHEEL", b"Tag: ", b"Tag: py3-none-any\nTag: "), "WHEEL"),
    "a field of WHEEL": (rewritten("WHEEL", b"Tag: ", b"Build: 9\nTag: "), "WHEEL"),
    "code among licenses": (with_member("licenses/evil.pth"), "licenses/evil.pth"),
    "a list of parts": (with_member("sboms/auditwheel.cdx.json"), "sboms/auditwheel.cdx.json"),
    "top modules": (with_member("top_level.txt"), "top_level.txt"),
    "entry points": (
        lambda members: members.update({"demo-1.0.0.dist-info/entry_points.txt": b"[x]\n"}),
        "entry_points.txt",
    ),
}


@pytest.fixture
def rebuilt(artifacts, tmp_path, monkeypatch):
    """`rebuilt(variant, …)`: a wheel as a run stamps it, where the sources give `demo` alone."""
    base = make_wheel(tmp_path / "base", claims=None, requires=())
    monkeypatch.setattr(sdists, "_built", lambda _: base)
    monkeypatch.setattr("torchwheel.release.assemble.sdist_faults", sdists.sdist_faults)

    def stamped(variant: str, **bent: object) -> Path:
        artifacts.drop(variant)
        native = variant == NATIVE
        tag = TAG if native else "py3-none-any"
        made = make_wheel(tmp_path / "bent", claims=None, requires=(), tag=tag, **bent)  # type: ignore[arg-type]
        out = artifacts.root / f"wheel-{variant}"
        out.mkdir()
        wheel = stamp(made, stable() if native else PURE_CLAIMS, out)
        artifacts.add(variant, wheel)
        artifacts.smoke(variant)
        return wheel

    stamped(NATIVE)
    stamped(PURE)
    return stamped


@pytest.mark.usefixtures("green_gates")
def test_a_wheel_has_the_metadata_that_its_sources_give(artifacts, rebuilt):
    rebuilt(NATIVE, bend=with_member("sboms/auditwheel.cdx.json"))
    run(artifacts)


@pytest.mark.usefixtures("green_gates")
@pytest.mark.parametrize("variant", [NATIVE, PURE])
@pytest.mark.parametrize("trick", METADATA)
def test_other_metadata_is_refused(artifacts, rebuilt, trick, variant):
    bend, name = METADATA[trick]
    wheel = rebuilt(variant, bend=bend)
    if trick == "a list of parts" and variant == NATIVE:
        return  # auditwheel's, of the libraries that it copies into a wheel
    info = f"demo-{wheel.name.split('-')[1]}.dist-info"
    assert refused(artifacts) == [
        f'demo-1.0.0.tar.gz: gives another wheel than {wheel.name}: "{info}/{name}" differs; '
        "assemble from the sources that the wheels were built from"
    ]


@pytest.mark.usefixtures("green_gates")
def test_another_case_of_the_name_is_refused(artifacts, rebuilt):
    gives = "demo-1.0.0.tar.gz: gives another wheel than"
    wheel = rebuilt(PURE, name="Demo", files=INIT)
    assert refused(artifacts)[0].startswith(f'{gives} {wheel.name}: "{wheel.name}" differs; ')
    wheel = rebuilt(PURE)
    members = {
        name.replace("demo-1.0.0.", "Demo-1.0.0."): data
        for name, data in wheel_members(wheel).items()
    }
    artifacts.add(PURE, repack_members(members, wheel))
    artifacts.smoke(PURE)
    assert refused(artifacts)[0].startswith(f'{gives} {wheel.name}: "Demo-1.0.0.dist-info/')
