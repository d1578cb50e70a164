"""`torchwheel split`: a smaller wheel for each label, made of a finished wheel of anybody."""

import dataclasses
import itertools
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel.check.gates import judge_case
from torchwheel.check.label import properties_text
from torchwheel.check.named_claims import NamedCase, case_of
from torchwheel.findings import CheckResult
from torchwheel.inspect.archive import open_archive
from torchwheel.inspect.inspection import inspect_wheel
from torchwheel.inspect.sbom import is_grafted
from torchwheel.inspect.wheel import UNHASHED, OpenWheel, find_dist_info, open_wheel
from torchwheel.pipeline.repair import pack
from torchwheel.split.labels import (
    NamedArchs,
    SplitLabel,
    default_labels,
    make_labels,
    properties_of_label,
)
from torchwheel.split.libraries import (
    CudaLibrary,
    archs_of_code,
    blocks_for,
    ptx_versions,
    read_cuda_library,
    require_same_code,
)
from torchwheel_runtime.arch.model import CudaArch
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import make_folder_atomically
from torchwheel_runtime.inspect.window import WheelError
from torchwheel_runtime.text import join_names, quote, size_text, table_rows
from torchwheel_runtime.variant_format import (
    FILE,
    Properties,
    file_text,
    index_file_name,
    is_labelled,
    labelled_name,
    ptx_release,
)
from torchwheel_runtime.versions import major_version, version_numbers


@dataclasses.dataclass(frozen=True)
class SplitRequest:
    """A call of `torchwheel split`.

    Attributes:
        wheels: their files.
        labels: the archs of each label; empty for a label for each major version.
        cuda: the CUDA release that the wheels are for; None for what they say themselves.
        out: the output folder, which must be new.
    """

    wheels: tuple[Path, ...]
    labels: NamedArchs
    cuda: str | None
    out: Path


@dataclasses.dataclass(frozen=True)
class SplitWheel:
    """The wheel of a label.

    Attributes:
        label: the label.
        properties: those by which an installer takes it.
        size: bytes of the file.
        kernels: how many kernels its machine code has, e.g. "61"; "61+" where not all were
            counted, "-" where none was.
        compared: how many modules have the bytes of the plain wheel's.
    """

    label: SplitLabel
    properties: Properties
    size: int
    kernels: str
    compared: int


def split(request: SplitRequest, progress: Progress) -> str:
    """Write the labelled wheels of all wheels, and the files that name their properties.

    The output folder appears when all of them are proven.
    """
    if request.out.exists():
        raise UsageError(f"{request.out}: is there already; remove it, or name another by --out")
    if request.cuda and not re.fullmatch(r"\d{1,2}(\.\d{1,2})?", request.cuda, re.ASCII):
        raise UsageError(f"--cuda: expected e.g. 12.8, found {quote(request.cuda)}")
    texts: list[str] = []
    files: dict[str, dict[str, Properties]] = defaultdict(dict)
    with make_folder_atomically(request.out) as folder:
        for path in request.wheels:
            made, text = _split_wheel(path, request, folder, progress)
            texts.append(text)
            name = index_file_name(path.name)
            for label, properties in ((one.label.name, one.properties) for one in made):
                if files[name].setdefault(label, properties) != properties:
                    raise UsageError(
                        f"{path.name}: expected the properties that {label} has of another wheel "
                        "of the release, found others; split it alone, with --label"
                    )
        for name, labels in files.items():
            (folder / name).write_text(file_text(labels), encoding="utf-8")
    return "\n\n".join([*texts, join_names(str(request.out / name) for name in files)])


def _split_wheel(
    path: Path, request: SplitRequest, out: Path, progress: Progress
) -> tuple[tuple[SplitWheel, ...], str]:
    if is_labelled(path.name):
        raise UsageError(f"{path.name}: expected a wheel without a label; give the plain one")
    progress.step(f"{path.name}: gates")
    case = case_of(inspect_wheel(path))
    gates = judge_case(case)[0]
    with open_wheel(path) as opened, opened.extract() as files:
        if opened.wheel.claims:
            raise UsageError(
                f"{path.name}: expected a wheel without torchwheel.json; declare its labels under "
                "abis.universal in matrix.yaml"
            )
        libraries = _read_libraries(files)
        if not libraries:
            raise UsageError(f"{path.name}: expected CUDA code in its libraries, found none")
        release = request.cuda or _cuda_release(case)
        made = []
        for label in _labels_of(libraries, request.labels):
            progress.step(f"{path.name}: {label.name}")
            properties = _properties(label, libraries, release)
            target = out / labelled_name(path.name, label.name)
            _write(opened, libraries, label, properties, target)
            progress.step(f"{target.name}: gates")
            kernels = _judge(target, gates)
            compared = _compare(target, libraries, label)
            size = target.stat().st_size
            made.append(SplitWheel(label, properties, size, kernels, compared))
    return tuple(made), "\n".join(_report(case, libraries, made, gates))


def _read_libraries(files: Mapping[str, Path]) -> tuple[CudaLibrary, ...]:
    """The libraries with CUDA code, without those that auditwheel copied into the wheel."""
    own = ((name, path) for name, path in files.items() if not is_grafted(name))
    return tuple(found for name, path in own if (found := read_cuda_library(path, name)))


def _cuda_release(case: NamedCase) -> str:
    runtimes = (one for library in case.facts.libraries for one in library.runtimes)
    versions = {one.version for one in runtimes if one.backend == "cuda" and one.version}
    if found := case.claims.cuda or max(versions, key=version_numbers, default=None):
        return found
    raise UsageError(
        f"{case.facts.title}: expected the CUDA release in its version, its requirements or the "
        "name of its runtime, found none; add e.g. --cuda 12.8"
    )


def _labels_of(libraries: Sequence[CudaLibrary], named: NamedArchs) -> tuple[SplitLabel, ...]:
    code = frozenset[CudaArch]().union(*map(archs_of_code, libraries))
    entries = itertools.chain.from_iterable(library.entries() for library in libraries)
    has_ptx = any(entry.kind == "ptx" and not entry.arch.suffix for entry in entries)
    return make_labels(named or default_labels(code, has_ptx=has_ptx), code)


def _properties(label: SplitLabel, libraries: Iterable[CudaLibrary], release: str) -> Properties:
    """The properties of a label: a driver of its CUDA's major version, or one for its PTX."""
    bounds, entries = [f"{major_version(release)}.0"], []
    for library in libraries:
        bounds += [ptx_release(one) or release for one in ptx_versions(library, label)]
        entries += list(library.entries(label))
    return properties_of_label(label, entries, max(bounds, key=version_numbers))


def _write(
    opened: OpenWheel,
    libraries: Iterable[CudaLibrary],
    label: SplitLabel,
    properties: Properties,
    target: Path,
) -> None:
    """Write the wheel of a label. Other files than libraries have the plain wheel's bytes."""
    info = find_dist_info(opened.wheel.members)
    members: dict[str, Iterable[bytes]] = {
        member.name: opened.archive.blocks(member)
        for member in opened.archive.files
        if member.name not in {f"{info}/{name}" for name in UNHASHED}
    }
    members |= {library.name: blocks_for(library, label) for library in libraries}
    members[f"{info}/{FILE}"] = (file_text({label.name: properties}).encode(),)
    pack(members, f"{info}/RECORD", target, executable=opened.wheel.executable)


def _judge(target: Path, plain: Iterable[CheckResult]) -> str:
    """Hold a labelled wheel to the gates; returns how many kernels were counted.

    Raises:
        TorchwheelError: a gate does not hold that holds for the plain wheel.
    """
    case = case_of(inspect_wheel(target))
    held = {gate.name for gate in plain if gate.ok}
    lost = [gate for gate in judge_case(case)[0] if gate.name in held and not gate.ok]
    if lost:
        says = "; ".join(f"gate {gate.name}: {gate.says}" for gate in lost)
        raise TorchwheelError(f"{target.name}: expected the gates of the plain wheel, found {says}")
    targets = itertools.chain.from_iterable(library.targets for library in case.facts.libraries)
    counts = [one.kernels for one in targets if one.kind == "sass"]
    counted = sum(filter(None, counts))
    return str(counted) if None not in counts else f"{counted}+" if counted else "-"


def _compare(target: Path, libraries: Iterable[CudaLibrary], label: SplitLabel) -> int:
    """Compare the code in a finished wheel with the plain wheel's; returns how many modules."""
    compared = 0
    with open_archive(target) as archive, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "library.so")
        for library in libraries:
            with path.open("wb") as file:
                archive.digest(archive.members[library.name], file)
            try:
                after = read_cuda_library(path, library.name)
                compared += require_same_code(library, after, label)
            except WheelError as error:
                raise WheelError(f"{target.name}: {error}") from error
    return compared


def _report(
    case: NamedCase,
    libraries: Sequence[CudaLibrary],
    made: Sequence[SplitWheel],
    gates: Iterable[CheckResult],
) -> Iterator[str]:
    facts = case.facts
    yield f"{facts.title}: {size_text(facts.size)}, {size_text(facts.unpacked)} on disk"
    every = {(library.name, entry) for library in libraries for entry in library.entries()}
    left = set(every)
    rows = [("label", "wheel", "of plain", "zeros on disk", "modules", "kernels", "serves")]
    for one in made:
        own = {(lib.name, entry) for lib in libraries for entry in lib.entries(one.label)}
        left -= own
        gpus = join_names(map(str, one.label.gpus))
        rows.append(
            (
                one.label.name,
                size_text(one.size),
                f"{100 * one.size / facts.size:.0f} %",
                size_text(sum(entry.room for _, entry in every - own)),
                str(one.compared),
                one.kernels,
                f"{gpus} and newer" if one.label.ptx else gpus,
            )
        )
    yield from table_rows("< > > > > > <", rows)
    yield from (f"{one.label.name}: {properties_text(one.properties)}" for one in made)
    counts = Counter(f"{entry.kind.upper()} {entry.arch}" for _, entry in left)
    nowhere = join_names(f"{name} ({count})" for name, count in sorted(counts.items()))
    yield f"modules in no label: {nowhere or 'none'}"
    failed = join_names(gate.name for gate in gates if not gate.ok)
    yield f"gates: as for the plain wheel, {f'which fails {failed}' if failed else 'all hold'}"
