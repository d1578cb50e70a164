"""The rules that a wheel must meet before it is published; each fault is one line."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from packaging.utils import canonicalize_name
from packaging.version import Version

from torchwheel.claims import Claims
from torchwheel.matrix.runners import PURE, gpu_runner
from torchwheel.matrix.sections import Matrix
from torchwheel.pipeline.inputs import claims_of
from torchwheel.release.cases import ReleaseCase
from torchwheel.smoke import record as smokes
from torchwheel.text import join_names

ReleaseRule = Callable[[Matrix, ReleaseCase], Iterator[str]]


def release_faults(
    matrix: Matrix, cases: Sequence[ReleaseCase], version: Version | None
) -> list[str]:
    """The faults of all cases by all rules; `version` is that of the release, if known."""
    faults = [
        f"{case.variant.id}: {text}"
        for case in cases
        for rule in RULES
        for text in rule(matrix, case)
    ]
    return faults + list(_version_faults(cases, version))


def name_and_tags(matrix: Matrix, case: ReleaseCase) -> Iterator[str]:
    """The wheel has the name of the project and the tags of the variant."""
    wheel, variant = case.candidate.wheel, case.variant
    if wheel.name != canonicalize_name(matrix.project.name):
        yield f"a wheel of {wheel.name}; expected one of {matrix.project.name}"
    machine = variant.platform.removeprefix("linux_")
    for tag in sorted(map(str, wheel.tags)):
        python, _, platform = tag.split("-")
        if python != variant.python_tag or not platform.endswith(machine):
            yield f"tag {tag}; expected {variant.python_tag}-…-…{machine}"


def claims_match(_: Matrix, case: ReleaseCase) -> Iterator[str]:
    """The wheel was built from this matrix."""
    claims, expected = _without_files(case.candidate.claims), claims_of(case.variant)
    for field in dataclasses.fields(expected):
        actual, value = getattr(claims, field.name), getattr(expected, field.name)
        if actual != value:
            text = f"{field.name} is {_text(actual)}; expected {_text(value)}"
            yield f"made from another matrix: {text}"


def _without_files(claims: Claims) -> Claims:
    """The claims without what only the finished files tell."""
    parts = (dataclasses.replace(p, file="", sha256="", old_abi=False) for p in claims.parts)
    return dataclasses.replace(claims, parts=tuple(parts))


def gates_hold(_: Matrix, case: ReleaseCase) -> Iterator[str]:
    """Every gate holds now; the build record is not believed."""
    for result in case.candidate.gates:
        if not result.ok:
            yield f"gate {result.name}: {result.says}"


def build_record_matches(_: Matrix, case: ReleaseCase) -> Iterator[str]:
    """There is one green build record, and it has the hash of this file."""
    if len(case.builds) != 1:
        yield f"{len(case.builds)} build records; one expected"
        return
    (record,) = case.builds
    if record.file != case.candidate.path.name:
        yield f"the build record is of {record.file}; expected {case.candidate.path.name}"
    if record.sha256 != case.candidate.sha256:
        yield f"sha256 {case.candidate.sha256}; its build record says {record.sha256}"
    if record.smoke == "failed":
        yield "its build record says: smoke failed"


def reproducible(matrix: Matrix, case: ReleaseCase) -> Iterator[str]:
    """A second build gave the same bytes, if the matrix requires it."""
    required = matrix.gates.reproducible and case.variant.native
    if required and not any(record.built_twice for record in case.builds):
        yield "was built once; the matrix wants two builds to agree: build it with --twice"


def smoke_records_match(_: Matrix, case: ReleaseCase) -> Iterator[str]:
    """There is a smoke record; all are green and have the hash of this file."""
    if not case.smokes:
        yield "no smoke record; one expected"
    for record in case.smokes:
        verdict, _reason = smokes.judge_smoke(record.machine, record.imported, record.tests, 0)
        if record.sha256 != case.candidate.sha256:
            yield f"sha256 {case.candidate.sha256}; a smoke record says {record.sha256}"
        elif not record.ok:
            yield f"smoke {record.verdict}: {record.why}"
        elif record.verdict != verdict:
            yield f'a smoke record says "{record.verdict}", its tests and machine say "{verdict}"'
        elif case.variant.platform not in (PURE, record.machine.platform):
            yield f"was smoke-tested on {record.machine.platform}; expected {case.variant.platform}"


def bundled_match(_: Matrix, case: ReleaseCase) -> Iterator[str]:
    """All records name the bundled packages that are published with the wheel."""
    tried = [("build record", record.bundled) for record in case.builds]
    tried += [("smoke record", record.bundled) for record in case.smokes]
    for kind, bundled in tried:
        for name, digest in case.bundled.items():
            recorded = bundled.get(name)
            if recorded is None:
                yield f"was tried without {name}, as a {kind} says"
            elif recorded != digest:
                yield f"sha256 {digest} of {name}; a {kind} says {recorded}"


def ran_on_gpu(matrix: Matrix, case: ReleaseCase) -> Iterator[str]:
    """The wheel ran on a GPU, if the matrix names a runner with its kind of GPU."""
    labels = gpu_runner(matrix, case.variant)
    if labels and not any(on_gpu(case, record) for record in case.smokes):
        yield (
            "not run on a GPU of its kind, though the matrix names a runner "
            f"({join_names(labels)}); smoke-test it there"
        )


def on_gpu(case: ReleaseCase, record: smokes.SmokeRecord) -> bool:
    """Whether a smoke run was on a GPU that the wheel has code for."""
    machine, toolkit = record.machine, case.variant.toolkit
    runtime = machine.hip if toolkit and toolkit.backend == "rocm" else machine.cuda
    return bool(machine.gpu and runtime and case.variant.native)


RULES: tuple[ReleaseRule, ...] = (
    name_and_tags,
    claims_match,
    gates_hold,
    build_record_matches,
    reproducible,
    smoke_records_match,
    bundled_match,
    ran_on_gpu,
)


def _version_faults(cases: Sequence[ReleaseCase], expected: Version | None) -> Iterator[str]:
    """A line for each wheel that has another version than the release, or than the first wheel."""
    versions = {case.variant.id: case.candidate.wheel.version.public for case in cases}
    right = expected.public if expected else next(iter(versions.values()), None)
    for name, version in versions.items():
        if version != right:
            yield f"{name}: version {version}; expected {right}"


def _text(value: object) -> str:
    return (
        join_names(map(str, value)) or "none" if isinstance(value, tuple) else f"{value or 'none'}"
    )
