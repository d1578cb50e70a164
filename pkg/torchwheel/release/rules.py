"""What must hold for a wheel before it is published; each fault is one line. Pure functions."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from packaging.utils import canonicalize_name
from packaging.version import Version

from torchwheel.matrix.runners import PURE, gpu_runner
from torchwheel.matrix.sections import Matrix
from torchwheel.pipeline.inputs import claims_of
from torchwheel.release.cases import ReleaseCase
from torchwheel.smoke import record as smokes
from torchwheel.text import join_names

ReleaseRule = Callable[[Matrix, ReleaseCase], Iterator[str]]


def faults(matrix: Matrix, cases: Sequence[ReleaseCase], version: Version | None) -> list[str]:
    """Every rule on every case; `version` is the release's, if it is known."""
    found = [
        f"{case.variant.id}: {text}"
        for case in cases
        for rule in RULES
        for text in rule(matrix, case)
    ]
    return found + list(_versions(cases, version))


def named(matrix: Matrix, case: ReleaseCase) -> Iterator[str]:
    """The wheel is of this project, and its tags are the variant's."""
    wheel, variant = case.candidate.wheel, case.variant
    if wheel.name != canonicalize_name(matrix.project.name):
        yield f"a wheel of {wheel.name}; expected one of {matrix.project.name}"
    machine = variant.platform.removeprefix("linux_")
    for tag in sorted(map(str, wheel.tags)):
        python, _, platform = tag.split("-")
        if python != variant.python_tag or not platform.endswith(machine):
            yield f"tag {tag}; expected {variant.python_tag}-…-…{machine}"


def claimed(_: Matrix, case: ReleaseCase) -> Iterator[str]:
    """The wheel was made from this matrix."""
    found, expected = case.candidate.claims, claims_of(case.variant)
    for field in dataclasses.fields(expected):
        came, wanted = getattr(found, field.name), getattr(expected, field.name)
        if came != wanted:
            text = f"{field.name} is {_text(came)}; expected {_text(wanted)}"
            yield f"made from another matrix: {text}"


def gated(_: Matrix, case: ReleaseCase) -> Iterator[str]:
    """Every gate holds now, whatever the record says."""
    for result in case.candidate.gates:
        if not result.ok:
            yield f"gate {result.name}: {result.says}"


def built(_: Matrix, case: ReleaseCase) -> Iterator[str]:
    """One green build record, and it is of these very bytes."""
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
    """Where the matrix wants it, a second build gave the same bytes."""
    wanted = matrix.gates.reproducible and case.variant.toolkit is not None
    if wanted and not any(record.built_twice for record in case.builds):
        yield "was built once; the matrix wants two builds to agree: build it with --twice"


def smoked(_: Matrix, case: ReleaseCase) -> Iterator[str]:
    """At least one smoke record, all of them green, each of these very bytes."""
    if not case.smokes:
        yield "no smoke record; one expected"
    for record in case.smokes:
        verdict, _why = smokes.judge_smoke(record.machine, record.imported, record.tests, 0)
        if record.sha256 != case.candidate.sha256:
            yield f"sha256 {case.candidate.sha256}; a smoke record says {record.sha256}"
        elif not record.ok:
            yield f"smoke {record.verdict}: {record.why}"
        elif record.verdict != verdict:
            yield f'a smoke record says "{record.verdict}", its tests and machine say "{verdict}"'
        elif case.variant.platform not in (PURE, record.machine.platform):
            yield f"was smoke-tested on {record.machine.platform}; expected {case.variant.platform}"


def has_bundled(_: Matrix, case: ReleaseCase) -> Iterator[str]:
    """It was tried with the bundled packages that are published with it."""
    tried = [("build record", one.bundled) for one in case.builds]
    tried += [("smoke record", one.bundled) for one in case.smokes]
    for what, bundled in tried:
        for name, wanted in case.bundled.items():
            came = bundled.get(name)
            if came is None:
                yield f"was tried without {name}, as a {what} says"
            elif came != wanted:
                yield f"sha256 {wanted} of {name}; a {what} says {came}"


def ran_on_gpu(matrix: Matrix, case: ReleaseCase) -> Iterator[str]:
    """Where the matrix names a runner with the wheel's GPU, the wheel ran on one."""
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
    return bool(machine.gpu and runtime and toolkit)


RULES: tuple[ReleaseRule, ...] = (
    named,
    claimed,
    gated,
    built,
    reproducible,
    smoked,
    has_bundled,
    ran_on_gpu,
)


def _versions(cases: Sequence[ReleaseCase], expected: Version | None) -> Iterator[str]:
    """All wheels are of one version, that of the release."""
    found = {case.variant.id: case.candidate.wheel.version.public for case in cases}
    wanted = expected.public if expected else next(iter(found.values()), None)
    for name, version in found.items():
        if version != wanted:
            yield f"{name}: version {version}; expected {wanted}"


def _text(value: object) -> str:
    return (
        join_names(map(str, value)) or "none" if isinstance(value, tuple) else f"{value or 'none'}"
    )
