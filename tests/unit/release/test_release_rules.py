"""Every rule of a release is a row: what breaks it, and the lines that refuse the release.

`docs/security.md` has a table of the tricks among them.
"""

import dataclasses
import datetime
import re
import shutil
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from release_artifacts import (
    CPU,
    H200,
    MATRIX,
    NATIVE,
    TAG,
    Artifacts,
    commit,
    refused,
    require_refused,
    run,
)

from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.pipeline.inputs import claims_of
from torchwheel.release.rules import claims_match, labels_cover
from torchwheel.smoke.smoke_record import (
    GpuRecord,
    ImportRecord,
    MachineRecord,
    TestResult,
    summarize,
)
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import Part
from torchwheel_runtime.files import sha256
from wheelmaker import make_wheel, stable

green = pytest.mark.usefixtures("green_gates")
Damage = Callable[[Artifacts], object]


def build(variant: str = "pure", **changes: object) -> Damage:
    """Other facts in the build record of a variant."""
    return lambda a: a.edit(a.build_file(variant), **changes)


def smoke(**changes: object) -> Damage:
    """Other facts in the smoke record of the pure wheel."""
    return lambda a: a.edit(a.smoke_file("pure"), **changes)


def tried(variant: str, machine: MachineRecord | None = None, **changes: object) -> Damage:
    """Another smoke record, of another run."""
    return lambda a: a.smoke(variant, machine, **changes)


def alone(variant: str, machine: MachineRecord | None = None, **changes: object) -> Damage:
    """The only smoke record of a variant; that of the native wheel is of a run on a GPU."""

    def change(a: Artifacts) -> None:
        a.smoke_file(variant, f"wheel-{variant}").unlink()
        a.smoke(variant, machine, **changes)

    return change


def again(variant: str, **wheel: object) -> Damage:
    """Another wheel of a variant, its records in order."""
    return lambda a: a.again(variant, **wheel)


def one_more(**wheel: object) -> Damage:
    return lambda a: make_wheel(a.root / "x", version="1.0.0+cu132", tag=TAG, **wheel)


def two_wheels(a: Artifacts) -> None:
    name = "demo-1.0.0-1-py3-none-any.whl"
    shutil.copy(a.wheels["pure"], a.wheels["pure"].parent / name)


def two_build_records(a: Artifacts) -> None:
    shutil.copytree(a.build_file("pure").parent, a.root / "smoke-pure" / ".torchwheel")


def a_stray_build_record(a: Artifacts) -> None:
    stray = shutil.copy(a.build_file("pure"), a.build_file("pure").with_name("x.json"))
    a.edit(stray, variant="cu118-stable")


def a_torn_build_record(a: Artifacts) -> None:
    path = a.build_file("pure")
    path.write_text(path.read_text()[:40])


def no_smoke(a: Artifacts) -> None:
    a.smoke_file("pure").unlink()
    a.smoke_file("pure", "wheel-pure").unlink()


def other_sources(a: Artifacts) -> None:
    """The wheels are of the same version, with their own records, but were built earlier."""
    (a.matrix.parent / "project" / "demo.py").write_text("answer = 43\n")


def a_family_less(a: Artifacts) -> None:
    """Another run on a GPU names it."""
    a.smoke(CUDA, H200, f"wheel-{CUDA}", operators={"demo": {"x": "prebuilt", "add": "prebuilt"}})
    a.smoke(CUDA, operators={"demo": {"x": "prebuilt"}})


def another_test_for_a_gpu(a: Artifacts) -> None:
    """Without one the chosen files are enough."""
    (a.matrix.parent / "tests" / "smoke" / "test_gpu.py").write_text("def test_c(): pass\n")
    a.replace("skips: [slow]}", "skips: [slow], without_gpu: [test_demo.py]}")
    tests = summarize((PASSED_A, TestResult("test_demo.py::TestB::test_b", "passed", 0.1)))
    alone("pure")(a)
    alone(CUDA, tests=tests)(a)


def older_than_the_commit(a: Artifacts) -> None:
    commit(a, "2026-11-21T00:00:00Z")
    alone("pure")(a)
    alone(CUDA, date="2026-11-22T00:00:00+00:00")(a)


def on(arch: str, name: str = "NVIDIA H200") -> MachineRecord:
    return dataclasses.replace(H200, gpu=GpuRecord(name, arch, None))


CUDA = "cu130-stable"
PURE = "demo-1.0.0-py3-none-any.whl"
AGAIN = "smoke-test this wheel again"
GPU = (
    f"{CUDA}: not run on a GPU of its kind, though the matrix names a runner "
    "(self-hosted, cuda); smoke-test it there"
)
SOURCES = "was built from other sources than those in this folder; build it from these"
ZEROS = "0" * 64
OTHER = "x/demo-1.0.0+cu132-py3-none-manylinux_2_28_x86_64.whl"
BUILD_RECORD = "wheel-pure/.torchwheel"
PASSED_A = TestResult("test_demo.py::test_a", "passed", 0.1)
INVENTED = TestResult("test_x.py::test_invented", "passed", 0.1)
FAILED = (
    TestResult("test_demo.py::test_a", "failed", 0.1, "no"),
    TestResult("test_demo.py::TestB::test_b", "passed", 0.1),
)
ALL_SKIPPED = (
    TestResult("test_demo.py::test_a", "skipped", 0.0, "slow"),
    TestResult("test_demo.py::TestB::test_b", "skipped", 0.0, "slow"),
    INVENTED,
)
ONE_AND_49 = summarize(
    [
        TestResult(
            f"test_demo.py::{name}[{case}]",
            "skipped" if case else "passed",
            0.1,
            "no GPU that torch can use" if case else None,
        )
        for name, cases in (("test_a", 50), ("TestB::test_b", 1))
        for case in range(cases)
    ]
)
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
REFUSALS: dict[str, tuple[Any, ...]] = {
    "no wheel": (
        lambda a: a.drop("pure"),
        "pure: no wheel; it is selected, so one is expected",
    ),
    "two wheels": (
        two_wheels,
        "pure: 2 wheels; one expected: wheel-pure/demo-1.0.0-1-py3-none-any.whl, "
        f"wheel-pure/{PURE}",
    ),
    "another variant": (
        one_more(claims=stable(variant="cu132-stable", toolkit="cu132")),
        f"{OTHER}: variant cu132-stable is not selected",
    ),
    "no claims": (
        one_more(claims=None),
        f"{OTHER}: claims nothing (no torchwheel.json): not made by this pipeline",
    ),
    "not a wheel": (
        lambda a: (a.root / "demo-1.0.0+x-py3-none-any.whl").write_bytes(b"PK"),
        "demo-1.0.0+x-py3-none-any.whl: not a whole zip archive (cut short?): no end record",
    ),
    "a link": (
        lambda a: (a.root / "demo-9-py3-none-any.whl").symlink_to(a.wheels["pure"]),
        "demo-9-py3-none-any.whl: is no plain file",
    ),
    "no build record": (
        lambda a: a.build_file("pure").unlink(),
        "pure: 0 build records; one expected",
    ),
    "two build records": (two_build_records, "pure: 2 build records; one expected"),
    "a stray build record": (
        a_stray_build_record,
        f"{BUILD_RECORD}/x.json: the record of cu118-stable, which has no wheel here",
    ),
    "another file": (
        build(file="demo-0.9-py3-none-any.whl"),
        f"pure: the build record is of demo-0.9-py3-none-any.whl; expected {PURE}",
    ),
    "other bytes built": (
        build(sha256=ZEROS),
        f"pure: sha256 {{sha}}; its build record says {ZEROS}",
    ),
    "a red build record": (build(smoke="failed"), "pure: its build record says: smoke failed"),
    "no smoke record": (no_smoke, "pure: no smoke record; one expected"),
    "other bytes smoked": (
        smoke(sha256=ZEROS),
        f"pure: sha256 {{sha}}; a smoke record says {ZEROS}",
    ),
    "a red smoke record": (
        smoke(verdict="failed", why="1 of 2 tests failed, first test_a"),
        "pure: smoke failed: 1 of 2 tests failed, first test_a",
    ),
    "a smoke record that lies": (
        tried("pure", tests=summarize(FAILED)),
        'pure: a smoke record says "passed, not run on a GPU", its tests and machine say "failed"',
    ),
    "a smoke record of another schema": (
        smoke(schema=1),
        "smoke-pure/smoke/pure.json: not a smoke record: expected schema 2, found 1",
    ),
    "a stray smoke record": (
        smoke(wheel="demo-2-py3-none-any.whl"),
        "smoke-pure/smoke/pure.json: the record of demo-2-py3-none-any.whl, which is not here",
    ),
    "another machine": (
        tried("cu130-stable", dataclasses.replace(H200, platform="linux_aarch64")),
        "cu130-stable: was smoke-tested on linux_aarch64; expected linux_x86_64",
    ),
    "no GPU": (lambda a: a.smoke_file("cu130-stable").unlink(), GPU),
    "a GPU of the other kind": (
        tried("cu130-stable", dataclasses.replace(H200, cuda=None, hip="6.4")),
        GPU,
    ),
    "another version": (
        again("pure", version="1.0.1"),
        "pure: version 1.0.1; expected 1.0.0",
    ),
    "another project": (
        again("pure", name="other", files={"demo/__init__.py": b""}),
        "pure: a wheel of other; expected one of demo",
    ),
    "another arch list": (
        again("cu130-stable", **{**NATIVE, "claims": stable(archs=("9.0",))}),
        "cu130-stable: made from another matrix: archs is 9.0; expected 8.0, 9.0",
    ),
    "another platform": (
        again("cu130-stable", **{**NATIVE, "tag": "py3-none-manylinux_2_28_aarch64"}),
        "cu130-stable: tag py3-none-manylinux_2_28_aarch64; expected py3-…-…x86_64",
    ),
    "another Python": (
        again("pure", tag="cp312-none-any"),
        "pure: tag cp312-none-any; expected py3-…-…any",
    ),
    "built once": (
        build("cu130-stable", built_twice=False),
        "cu130-stable: was built once; the matrix wants two builds to agree: build it with --twice",
    ),
    "built of other sources": (other_sources, f"{CUDA}: {SOURCES}", f"pure: {SOURCES}"),
    # Records that lie.
    "one invented test": (
        alone("pure", tests=summarize((INVENTED,))),
        f"pure: a smoke record has no test test_demo.py::test_a, which tests/smoke holds; {AGAIN}",
    ),
    "one test of two": (
        alone("pure", tests=summarize((PASSED_A,))),
        "pure: a smoke record has no test test_demo.py::TestB::test_b, which tests/smoke holds; "
        + AGAIN,
    ),
    "no test of a file passed": (
        alone(CUDA, tests=summarize(ALL_SKIPPED)),
        f"{CUDA}: no test of test_demo.py passed on the GPU; expected at least one of them",
    ),
    "tests of other sources": (
        alone("pure", sources=ZEROS),
        f"pure: was smoke-tested with other tests than tests/smoke holds here; {AGAIN}",
    ),
    "tests for a GPU": (
        another_test_for_a_gpu,
        f"{CUDA}: a smoke record has no test test_gpu.py::test_c, which tests/smoke holds; {AGAIN}",
    ),
    "nothing imported": (
        alone("pure", imported=()),
        f'pure: a smoke record imported "demo" from "nowhere"; {AGAIN}',
    ),
    "imported from elsewhere": (
        alone("pure", imported=(ImportRecord("demo", "other/__init__.py"),)),
        f'pure: a smoke record imported "demo" from "other/__init__.py"; {AGAIN}',
    ),
    "an old torch": (
        alone("pure", dataclasses.replace(CPU, torch="1.0")),
        'pure: was smoke-tested with torch "1.0"; expected >=2.6',
    ),
    "no torch": (
        alone("pure", dataclasses.replace(CPU, torch="new")),
        'pure: was smoke-tested with torch "new"; expected >=2.6',
    ),
    "a GPU without code": (alone(CUDA, on("3.0", "GTX 9")), GPU),
    "a GPU that no toolkit knows": (alone(CUDA, on("9.9")), GPU),
    "a GPU without an arch": (alone(CUDA, on("new")), GPU),
    "a GPU of another vendor": (alone(CUDA, on("gfx942")), GPU),
    "built just in time": (
        alone(CUDA, operators={"demo": {"scale": "jit build", "add": "prebuilt"}}),
        f"{CUDA}: 1 of 2 operator families did not run prebuilt on the GPU, first "
        '"demo.scale": "jit build"; `torchwheel doctor` says why there',
    ),
    "operators of another package": (
        alone(CUDA, operators={"other": {"x": "prebuilt"}}),
        f'{CUDA}: a smoke record has operators of "other"; expected those of demo; {AGAIN}',
    ),
    "a family of operators less": (
        a_family_less,
        f'{CUDA}: a smoke record has no "demo.add" among its operators, which another record of '
        f"this release has; {AGAIN}",
    ),
    "a test of which no case ran": (alone(CUDA, tests=FLAKY), f"{CUDA}: {DID_NOT_RUN}"),
    "one without a GPU": (alone("pure", tests=FLAKY), f"pure: {DID_NOT_RUN}"),
    "tests skipped on a GPU for want of one": (
        alone(CUDA, tests=ONE_AND_49),
        f'{CUDA}: 49 tests were skipped on NVIDIA H200: "no GPU that torch can use"; expected '
        "them to run there",
    ),
    "tests skipped for no reason": (
        alone(CUDA, tests=dataclasses.replace(ONE_AND_49, skipped={})),
        f"{CUDA}: a smoke record has 49 skipped tests and the reasons of 0; {AGAIN}",
    ),
    "older than the commit": (
        older_than_the_commit,
        "pure: smoke-pure/smoke/pure.json: was smoke-tested at 2026-11-20T00:00:00+00:00, before "
        f"the commit of 2026-11-21T00:00:00Z; set the clock of that machine, and {AGAIN}",
    ),
    # A fault that brings others.
    "a torn build record": (
        a_torn_build_record,
        f"{BUILD_RECORD}/pure.json: not a build record: …",
        "pure: 0 build records; one expected",
    ),
    "a malformed build record": (
        build(gates="8"),
        f"{BUILD_RECORD}/pure.json: not a build record: gates…",
        "pure: 0 build records; one expected",
    ),
    "a list for a smoke record": (
        lambda a: a.smoke_file("pure").write_text("[]"),
        "smoke-pure/smoke/pure.json: not a smoke record: …",
    ),
    "a run without a GPU that claims one": (
        tried(CUDA, CPU, verdict="passed"),
        f"{CUDA}: a smoke record says…",
        GPU,
    ),
}


@green
@pytest.mark.parametrize("name", REFUSALS)
def test_what_breaks_a_rule_is_refused_and_nothing_is_written(artifacts, name):
    damage, *says = REFUSALS[name]
    damage(artifacts)
    pure = artifacts.wheels["pure"]
    digest = sha256(pure) if pure.is_file() else ""
    require_refused(artifacts, *(line.replace("{sha}", digest) for line in says), version="1.0.0")


TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@green
@pytest.mark.parametrize(
    ("date", "says"),
    [
        ("yesterday", rf'"yesterday"; expected e\.g\. {TIME}'),
        ("2026-01-01T00:00:00", rf'"2026-01-01T00:00:00"; expected e\.g\. {TIME}'),
        (
            "2999-01-01T00:00:00+00:00",
            rf"2999-01-01T00:00:00\+00:00, later than now, {TIME}; set the clock of .* {AGAIN}",
        ),
    ],
)
def test_a_date_that_is_none_or_to_come_is_refused(artifacts, date, says):
    alone("pure", date=date)(artifacts)
    (line,) = refused(artifacts)
    assert re.fullmatch(rf"pure: smoke-pure/smoke/[^/]+\.json: was smoke-tested at {says}", line)


@green
@pytest.mark.parametrize("clock", [240, -240])
def test_a_clock_may_be_four_minutes_wrong(artifacts, clock):
    def at(seconds: float) -> str:
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat()

    commit(artifacts, at(time.time()))
    alone(CUDA, date=at(time.time()))(artifacts)
    alone("pure", date=at(time.time() + clock))(artifacts)
    run(artifacts)


@green
def test_ptx_of_an_older_arch_runs_on_a_newer_gpu(artifacts):
    artifacts.replace('"9.0"]', '"9.0+PTX"]')
    wheel = {**NATIVE, "claims": stable(archs=("8.0", "9.0+PTX"))}
    artifacts.again(CUDA, on("12.0", "RTX 5090"), **wheel)
    assert "RTX 5090" in run(artifacts)
    shutil.rmtree(artifacts.matrix.parent / "release")
    artifacts.replace('"9.0+PTX"]', '"9.0"]')
    artifacts.again(CUDA, on("12.0", "RTX 5090"), **NATIVE)
    require_refused(artifacts, GPU)


@green
def test_a_wheel_that_brings_the_runtime_must_say_how_its_operators_ran(artifacts):
    artifacts.again(CUDA, **{**NATIVE, "requires": ("torch>=2.11", "torchwheel-runtime>=0.1")})
    says = f"{CUDA}: a smoke record does not say how its operators ran on the GPU; {AGAIN}"
    require_refused(artifacts, says)
    artifacts.smoke(CUDA, operators={"demo": {"scale": "prebuilt"}})
    run(artifacts)


def test_the_gates_are_run_again(artifacts):
    """Green records do not help a wheel that claims machine code and has none."""
    lines = refused(artifacts)
    assert lines[0].startswith(f"{CUDA}: gate archs: ")
    assert all(line.startswith(f"{CUDA}: gate ") for line in lines)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda parts: parts, []),
        (
            lambda parts: tuple(part for part in parts if part.name != "cu132"),
            ["the list of parts is cu130, stable; expected cu130, cu132, stable"],
        ),
        (
            lambda parts: (dataclasses.replace(parts[0], archs=parts[0].archs[:1]), *parts[1:]),
            ["archs of cu130 is 8.0; expected 8.0, 9.0"],
        ),
    ],
)
def test_a_universal_wheel_has_the_parts_of_the_matrix(change, says, tmp_path):
    toolkit = "{backend: cuda, version: '13.2', abis: [], archs: ['8.0', '9.0+PTX'], source: pypi}"
    text = MATRIX.replace("pure: {torch", "universal: {toolkits: [cu130, cu132]}, pure: {torch")
    text = text.replace("toolkits:\n", f"toolkits:\n  cu132: {toolkit}\n")
    (tmp_path / "matrix.yaml").write_text(text, encoding="utf-8")
    (variant,) = select(load(tmp_path / "matrix.yaml"), ["universal"])
    claims = claims_of(variant)
    theirs = dataclasses.replace(claims, parts=change(claims.parts))
    case = SimpleNamespace(variant=variant, candidate=SimpleNamespace(claims=theirs))
    found = list(claims_match(None, case))
    assert found == [f"made from another matrix: {line}" for line in says]


KERNELS = Part("kernels", "cu130", "a.so", "1" * 64, backend="cuda", toolkit_version="13.0")
OTHER = dataclasses.replace(KERNELS, name="cu124", toolkit_version="12.4")


@pytest.mark.parametrize(
    ("labelled", "unlabelled", "says"),
    [
        ({"cu13": [KERNELS], "cu12": [OTHER]}, (), []),
        ({"cu13": [KERNELS]}, ("cu124",), []),
        ({}, (), []),
        (
            {"cu13": [KERNELS]},
            (),
            ["universal: no labelled wheel has its cu124; select the label too"],
        ),
        (
            {"cu13": [dataclasses.replace(KERNELS, sha256="2" * 64)], "cu12": [OTHER]},
            (),
            ["universal-cu13: cu130 is not that of universal; build it from these"],
        ),
    ],
)
def test_labelled_wheels_have_all_libraries_of_the_plain_one(labelled, unlabelled, says):
    def case(label, parts):
        variant = SimpleNamespace(
            id=f"universal-{label}" if label else "universal",
            label=label,
            unlabelled_id="universal",
        )
        claims = SimpleNamespace(parts=parts, label=label, variant=variant.id)
        return SimpleNamespace(variant=variant, candidate=SimpleNamespace(claims=claims))

    universal = SimpleNamespace(unlabelled=unlabelled)
    sources = SimpleNamespace(matrix=SimpleNamespace(abis=SimpleNamespace(universal=universal)))
    cases = [case(None, [KERNELS, OTHER]), *(case(*one) for one in labelled.items())]
    assert list(labels_cover(sources, cases, None)) == says


def test_a_label_is_for_the_same_machines_on_every_platform():
    def case(platform, version):
        part = dataclasses.replace(KERNELS, toolkit_version=version, archs=(parse("9.0"),))
        claims = SimpleNamespace(parts=[part], label="cu", variant=f"universal{platform}-cu")
        variant = SimpleNamespace(
            id=claims.variant, label="cu", unlabelled_id=f"universal{platform}"
        )
        return SimpleNamespace(variant=variant, candidate=SimpleNamespace(claims=claims))

    sources = SimpleNamespace(matrix=SimpleNamespace(abis=SimpleNamespace(universal=None)))
    cases = [case("", "13.0"), case("-linux_aarch64", "12.4")]
    assert list(labels_cover(sources, cases, None)) == [
        "universal-linux_aarch64-cu: label cu is for other machines on another platform; an index "
        "has one entry for both: give it another"
    ]
