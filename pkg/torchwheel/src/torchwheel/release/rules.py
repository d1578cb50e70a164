"""The rules that a wheel must meet before it is published; each fault is one line."""

import dataclasses
import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from torchwheel.matrix.variants import PURE, gpu_runner
from torchwheel.pipeline.inputs import claims_of
from torchwheel.release.artifacts import ReleaseCase
from torchwheel.release.sources import ReleaseSources, date_fault
from torchwheel.smoke import smoke_record as smokes
from torchwheel.smoke.testing import import_names
from torchwheel_runtime.arch.model import Arch, Backend, parse
from torchwheel_runtime.arch.releases import arch_names
from torchwheel_runtime.arch.runs import runs_on
from torchwheel_runtime.claims import Claims, Part
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.text import join_names, quote
from torchwheel_runtime.variant_format import Properties, properties_of

_NONE = smokes.Counts()
_RUNTIME = "torchwheel-runtime"
"""The distribution that loads an extension and knows what its operators run on."""
_AGAIN = "smoke-test this wheel again"
_REBUILD = "build it from these"

CaseRule = Callable[[ReleaseSources, ReleaseCase], Iterator[str]]
ReleaseRule = Callable[[ReleaseSources, Sequence[ReleaseCase], Version | None], Iterator[str]]


def release_faults(
    sources: ReleaseSources, cases: Sequence[ReleaseCase], version: Version | None
) -> list[str]:
    """The faults of all cases by all rules; `version` is that of the release, if known."""
    faults = [
        f"{case.variant.id}: {text}"
        for case in cases
        for rule in CASE_RULES
        for text in rule(sources, case)
    ]
    return [*faults, *(text for rule in RELEASE_RULES for text in rule(sources, cases, version))]


def name_and_tags(sources: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """The wheel has the name of the project and the tags of the variant."""
    wheel, variant = case.candidate.wheel, case.variant
    project = sources.matrix.project.name
    if wheel.name != canonicalize_name(project):
        yield f"a wheel of {wheel.name}; expected one of {project}"
    machine = variant.platform.removeprefix("linux_")
    for tag in sorted(map(str, wheel.tags)):
        python, abi, platform = tag.split("-")
        # The tag of an abi3 wheel names the oldest Python that it serves.
        served = abi if variant.python_tag == "abi3" else python
        if served != variant.python_tag or not platform.endswith(machine):
            expected = "cp3x-abi3" if served is abi else f"{variant.python_tag}-…"
            yield f"tag {tag}; expected {expected}-…{machine}"


def claims_match(_: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """The wheel was built from this matrix."""
    claims = _without_files(case.candidate.claims)
    # An ordinary project's own version, and what it borrows: gates hold them to the wheel.
    own = (claims.project_local, claims.borrowed) if case.variant.ordinary else ()
    expected = claims_of(case.variant, *own)
    for what, found, value in _differences(claims, expected):
        yield f"made from another matrix: {what} is {_text(found)}; expected {_text(value)}"


def _differences(found: Claims | Part, expected: Claims | Part) -> Iterator[tuple[str, Any, Any]]:
    """The fields that differ, with both values; those of parts one by one."""
    for field in dataclasses.fields(expected):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if field.name != "parts":
            if one != other:
                yield field.name, one, other
            continue
        names, wanted = (tuple(part.name for part in parts) for parts in (one, other))
        if names != wanted:
            yield "the list of parts", names, wanted
            continue
        for part, like in zip(one, other, strict=True):
            for name, *values in _differences(part, like):
                yield f"{name} of {part.name}", *values


def _without_files(claims: Claims) -> Claims:
    """The claims without what only the finished files tell."""
    parts = (dataclasses.replace(p, file="", sha256="", old_abi=False) for p in claims.parts)
    return dataclasses.replace(claims, parts=tuple(parts))


def gates_hold(_: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """Every gate holds now; the build record is not believed."""
    for result in case.candidate.gates:
        if not result.ok:
            yield f"gate {result.name}: {result.says}"


def build_record_matches(sources: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
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
    if record.sources != sources.digest:
        yield f"was built from other sources than those in this folder; {_REBUILD}"


def reproducible(sources: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """A second build gave the same bytes, if the matrix requires it."""
    required = sources.matrix.gates.reproducible and case.variant.native
    if required and not any(record.built_twice for record in case.builds):
        yield "was built once; the matrix wants two builds to agree: build it with --twice"


def smoke_records_match(_: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """There is a smoke record; all are green and have the hash of this file."""
    if not case.smokes:
        yield "no smoke record; one expected"
    for record in case.smokes:
        verdict, _reason = smokes.judge_smoke(
            record.machine, record.imported, record.tests, 0, tested=bool(record.sources)
        )
        if record.sha256 != case.candidate.sha256:
            yield f"sha256 {case.candidate.sha256}; a smoke record says {record.sha256}"
        elif not record.ok:
            yield f"smoke {record.verdict}: {record.why}"
        elif record.verdict != verdict:
            yield f'a smoke record says "{record.verdict}", its tests and machine say "{verdict}"'
        elif case.variant.platform not in (PURE, record.machine.platform):
            yield f"was smoke-tested on {record.machine.platform}; expected {case.variant.platform}"


def imports_complete(_: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """Every smoke run imported each package of the wheel from the wheel."""
    wheel = case.candidate.wheel
    try:
        names = import_names(wheel)
    except TorchwheelError as error:
        yield str(error)
        return
    for record in case.smokes:
        files = {package.name: package.file for package in record.imported}
        for name in names:
            if files.get(name) not in wheel.members:
                place = files.get(name) or "nowhere"
                yield f"a smoke record imported {quote(name)} from {quote(place)}; {_AGAIN}"


def torch_claimed(_: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """Every smoke run had a torch that the wheel claims to run with."""
    claimed = case.candidate.claims.torch_range
    for record in case.smokes:
        try:
            fits = SpecifierSet(claimed).contains(Version(record.machine.torch), prereleases=True)
        except InvalidVersion:
            fits = False
        if not fits:
            yield f"was smoke-tested with torch {quote(record.machine.torch)}; expected {claimed}"


def tests_complete(sources: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """Every smoke run collected each test of these sources that the matrix names for it."""
    suite, matrix = sources.suite, sources.matrix
    tests, without_gpu = matrix.smoke.tests or matrix.own_build.tests, matrix.without_gpu
    if tests is None:
        return  # an ordinary project that is imported alone
    if not suite.functions:
        yield f"{tests} holds no smoke test here; expected those that its records name"
        return
    for record in case.smokes:
        if without_gpu is None and not record.machine.gpu:
            continue  # imported alone
        if record.sources != suite.digest:
            yield f"was smoke-tested with other tests than {tests} holds here; {_AGAIN}"
            continue
        ran = {file.name: file for file in record.tests.files}
        for name in suite.files(() if record.machine.gpu else without_gpu or ()):
            counts = ran[name].functions if name in ran else {}
            missing = [f for f in suite.functions[name] if not counts.get(f, _NONE).total]
            if missing:
                yield (
                    f"a smoke record has no test {name}::{missing[0]}, which "
                    f"{tests} holds; {_AGAIN}"
                )
            elif record.machine.gpu and not ran[name].counts.passed:
                yield f"no test of {name} passed on the GPU; expected at least one of them"


def skips_allowed(_: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """On a GPU no test was skipped for want of one, and every skip has its reason."""
    for record in case.smokes:
        skipped, reasons = record.tests.counts.skipped, record.tests.skipped
        if skipped != sum(reasons.values()):
            yield (
                f"a smoke record has {skipped} skipped tests and the reasons of "
                f"{sum(reasons.values())}; {_AGAIN}"
            )
        absent = [reason for reason in reasons if _NO_GPU.search(reason)]
        if record.machine.gpu and absent:
            yield (
                f"{reasons[absent[0]]} tests were skipped on {record.machine.gpu.name}: "
                f"{quote(absent[0])}; expected them to run there"
            )


_NO_GPU = re.compile(
    r"\b(no|without an?) gpus?\b(?! memory)|\bno (cuda|rocm|hip)( devices?)?$"
    r"|\b(gpu|cuda|rocm|hip)( is)? (not |un)available\b|\b(needs|requires)( an?)? (gpu|cuda|rocm)$",
    re.IGNORECASE,
)
"""A reason for a skip that says there is no GPU; too few, or too little memory, is another."""


_ABOUT_GPU = re.compile(r"gpu|cuda|rocm|\bhip\b|\bdevices?\b", re.IGNORECASE)
"""A reason for a skip that speaks of a GPU."""


def every_test_ran(sources: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """Of each test function a case ran, unless the matrix admits why all were skipped."""
    for record in case.smokes:
        refused = list(_refused_skips(record, sources.matrix.smoke.skips))
        if refused:
            (name, reason), *others = refused
            more = f", and so {len(others)} other test functions" if others else ""
            yield (
                f"all cases of {name} were skipped{more}: {quote(reason)}; let one of each run, or "
                "list the reason under smoke.skips in the matrix"
            )


def _refused_skips(
    record: smokes.SmokeRecord, patterns: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """The functions of which no case ran, each with a reason that is not admitted."""
    tests, on_gpu = record.tests, record.machine.gpu is not None
    if tests.unrun:
        for name in tests.skipped_functions:
            reasons = tests.unrun.get(name, ("",))
            if others := [why for why in reasons if not _is_admitted(why, patterns, on_gpu)]:
                yield name, others[0]
        return
    # An older record does not say which test was skipped for which reason.
    other = {w: n for w, n in tests.skipped.items() if not _is_admitted(w, patterns, on_gpu)}
    if sum(tests.skipped_functions.values()) > tests.counts.skipped - sum(other.values()):
        yield from ((name, next(iter(other), "")) for name in tests.skipped_functions)


def _is_admitted(reason: str, patterns: Sequence[str], on_gpu: bool) -> bool:
    if not on_gpu and _ABOUT_GPU.search(reason):
        return True
    return any(fnmatch.fnmatchcase(reason, pattern) for pattern in patterns)


def dates_possible(sources: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """Every smoke run was after the commit of the sources, and before now."""
    for file in case.smoke_files:
        if fault := date_fault(file.record.date, sources.committed, sources.now):
            yield f"{file.path}: {fault}"


def bundled_match(_: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
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


def ran_on_gpu(sources: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """The wheel ran on a GPU, if the matrix names a runner with its kind of GPU."""
    labels = gpu_runner(sources.matrix, case.variant)
    if labels and not any(on_gpu(case, record) for record in case.smokes):
        yield (
            "not run on a GPU of its kind, though the matrix names a runner "
            f"({join_names(labels)}); smoke-test it there"
        )


def ran_prebuilt(_: ReleaseSources, case: ReleaseCase) -> Iterator[str]:
    """On a GPU every operator family of a native wheel ran on the libraries in the wheel."""
    requirements: list[Requirement] = case.candidate.wheel.metadata.requires_dist or []
    shipped = any(canonicalize_name(r.name) == _RUNTIME for r in requirements)
    for record in case.smokes:
        if not on_gpu(case, record):
            continue
        members = case.candidate.wheel.members
        own = {package.name for package in record.imported if package.file in members}
        for package in sorted(record.operators.keys() - own):
            yield (
                f"a smoke record has operators of {quote(package)}; expected those of "
                f"{join_names(sorted(own))}; {_AGAIN}"
            )
        ways = [
            (f"{package}.{family}", way)
            for package, families in record.operators.items()
            for family, way in families.items()
        ]
        if not ways and shipped:
            yield f"a smoke record does not say how its operators ran on the GPU; {_AGAIN}"
        others = [(name, way) for name, way in ways if way != "prebuilt"]
        if others:
            name, way = others[0]
            yield (
                f"{len(others)} of {len(ways)} operator families did not run prebuilt on the GPU, "
                f"first {quote(name)}: {quote(way)}; `torchwheel doctor` says why there"
            )


def on_gpu(case: ReleaseCase, record: smokes.SmokeRecord) -> bool:
    """Whether a smoke run was on a GPU that the wheel has code for: machine code, or PTX."""
    machine = record.machine
    backend: Backend = "rocm" if case.variant.backends == {"rocm"} else "cuda"
    runtime = machine.hip if backend == "rocm" else machine.cuda
    if machine.gpu is None or not runtime or not case.variant.native:
        return False
    device = known_arch(machine.gpu.arch, backend)
    claims = case.candidate.claims
    archs = (*claims.archs, *(arch for part in claims.parts for arch in part.archs))
    return device is not None and any(runs_on(arch, device) for arch in archs)


def known_arch(text: str, backend: Backend) -> Arch | None:
    """The arch of a GPU as a record has it; None for one that no toolkit has code for."""
    try:
        arch = parse(text)
    except ValueError:
        return None
    return arch if arch.name in arch_names(backend) else None


def families_complete(
    _sources: ReleaseSources, cases: Sequence[ReleaseCase], _version: Version | None
) -> Iterator[str]:
    """A line for each run on a GPU that lacks an operator family which another one names."""
    runs = [
        (case, record)
        for case in cases
        for record in case.smokes
        if record.operators and on_gpu(case, record)
    ]
    every: dict[str, set[str]] = {}
    for _, record in runs:
        for package, families in record.operators.items():
            every.setdefault(package, set()).update(families)
    for case, record in runs:
        for package, families in record.operators.items():
            if missing := sorted(every[package] - families.keys()):
                yield (
                    f"{case.variant.id}: a smoke record has no {quote(f'{package}.{missing[0]}')} "
                    f"among its operators, which another record of this release has; {_AGAIN}"
                )


def one_version(
    _sources: ReleaseSources, cases: Sequence[ReleaseCase], expected: Version | None
) -> Iterator[str]:
    """A line for each wheel that has another version than the release, or than the first wheel."""
    versions = {case.variant.id: case.candidate.wheel.version.public for case in cases}
    right = expected.public if expected else next(iter(versions.values()), None)
    for name, version in versions.items():
        if version != right:
            yield f"{name}: version {version}; expected {right}"


def labels_cover(
    sources: ReleaseSources, cases: Sequence[ReleaseCase], _version: Version | None
) -> Iterator[str]:
    """A line for what labelled wheels have not of the plain one, and for what differs in them."""
    universal = sources.matrix.abis.universal
    unlabelled = universal.unlabelled if universal else ()
    first: dict[str, Properties] = {}
    for claims in (case.candidate.claims for case in cases):
        if claims.label and first.setdefault(claims.label, own := properties_of(claims)) != own:
            says = f"label {claims.label} is for other machines on another platform"
            yield f"{claims.variant}: {says}; an index has one entry for both: give it another"
    for plain in cases:
        name, parts = plain.variant.id, {part.name: part for part in plain.candidate.claims.parts}
        labelled = [one for one in cases if one.variant.label and one.variant.unlabelled_id == name]
        covered = set(unlabelled)
        for case in labelled:
            for part in case.candidate.claims.parts:
                covered.add(part.name)
                if part != parts.get(part.name):
                    yield f"{case.variant.id}: {part.name} is not that of {name}; {_REBUILD}"
        missing = [part for part in parts if part not in covered]
        if labelled and missing:
            yield f"{name}: no labelled wheel has its {join_names(missing)}; select the label too"


CASE_RULES: tuple[CaseRule, ...] = (
    name_and_tags,
    claims_match,
    gates_hold,
    build_record_matches,
    reproducible,
    smoke_records_match,
    imports_complete,
    torch_claimed,
    tests_complete,
    skips_allowed,
    every_test_ran,
    dates_possible,
    bundled_match,
    ran_on_gpu,
    ran_prebuilt,
)
"""What each variant of a release must hold."""

RELEASE_RULES: tuple[ReleaseRule, ...] = (families_complete, one_version, labels_cover)
"""What the variants must hold together."""


def _text(value: object) -> str:
    return (
        join_names(map(str, value)) or "none" if isinstance(value, tuple) else f"{value or 'none'}"
    )
