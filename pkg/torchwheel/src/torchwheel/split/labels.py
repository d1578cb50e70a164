"""Which GPU code the wheel of a label keeps: what the driver takes for each GPU of the label.

The driver chooses in each container by itself. So a label for 9.0 keeps the machine code for 9.0,
and where a container has none, what runs in its place: the PTX for 8.0, say.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from torchwheel_runtime.arch.model import CudaArch, parse
from torchwheel_runtime.arch.releases import arch_names
from torchwheel_runtime.arch.runs import machine_code_runs_on, number_of, ptx_runs_on
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.inspect.fatbin import FatbinEntry
from torchwheel_runtime.text import join_names, quote
from torchwheel_runtime.variant_format import (
    ARCH_FEATURE,
    LOWER_BOUND,
    NAMESPACES,
    NULL,
    Properties,
    code_values,
    label_problem,
)

NEWER = CudaArch(99, 0)
"""Stands for GPUs that are newer than all code of a wheel."""

NamedArchs = Mapping[str, tuple[CudaArch, ...]]
"""The archs of each label, as the caller gave them."""


@dataclasses.dataclass(frozen=True)
class SplitLabel:
    """A label and the GPUs that its wheel is for.

    Attributes:
        name: what stands in the file name.
        gpus: the GPUs, in order.
        ptx: whether it is for newer GPUs too, which have PTX alone.
    """

    name: str
    gpus: tuple[CudaArch, ...]
    ptx: bool

    @property
    def targets(self) -> tuple[CudaArch, ...]:
        """Its GPUs, and `NEWER` if it is for newer ones."""
        return (*self.gpus, NEWER) if self.ptx else self.gpus


def parse_labels(texts: Iterable[str]) -> NamedArchs:
    """Read the values of --label, e.g. "sm90=9.0" or "sm10x=10.0;10.3+PTX"."""
    labels: dict[str, tuple[CudaArch, ...]] = {}
    for text in texts:
        name, equals, archs = text.partition("=")
        words = archs.replace(";", " ").split()
        if not (equals and words):
            raise UsageError(f"--label: expected e.g. sm90=9.0, found {quote(text)}")
        if problem := label_problem(name):
            raise UsageError(f"--label: {problem}")
        if name == NULL or name in labels:
            what = "is the wheel without machine code" if name == NULL else "is there twice"
            raise UsageError(f"--label {name}: expected another name, as {name} {what}")
        labels[name] = tuple(_parse_gpu(word, name) for word in words)
    return labels


def _parse_gpu(word: str, label: str) -> CudaArch:
    try:
        arch = parse(word)
    except ValueError as error:
        raise UsageError(f"--label {label}: {error}") from error
    if not isinstance(arch, CudaArch) or arch.suffix:
        raise UsageError(
            f"--label {label}: expected a GPU of NVIDIA, e.g. 9.0, found {quote(word)}; "
            "code for 9.0a is taken with that for 9.0"
        )
    return arch


def default_labels(code: Iterable[CudaArch], *, has_ptx: bool) -> NamedArchs:
    """A label for each major version of machine code; the last one has the PTX for newer GPUs."""
    majors: dict[int, list[CudaArch]] = defaultdict(list)
    for arch in sorted(set(code), key=number_of):
        majors[number_of(arch)[0]].append(arch)
    if majors and has_ptx:
        last = majors[max(majors)]
        last[-1] = last[-1].with_ptx()
    return {f"sm{major}x": tuple(archs) for major, archs in sorted(majors.items())}


def make_labels(named: NamedArchs, code: Collection[CudaArch]) -> tuple[SplitLabel, ...]:
    """The labels with their GPUs: each GPU is of the label with the best machine code for it.

    Args:
        named: the archs of each label.
        code: those of the wheel's machine code, without suffixes.

    Raises:
        UsageError: an arch is in two labels, or the wheel has no machine code for it.
    """
    owners: dict[CudaArch, str] = {}
    for name, archs in named.items():
        for arch in (one.in_binary for one in archs):
            if arch not in code:
                has = join_names(map(str, sorted(code)))
                raise UsageError(f"--label {name}: expected one of the wheel's {has}; found {arch}")
            if owners.setdefault(arch, name) != name:
                raise UsageError(f"--label {name}: {arch} is in the label {owners[arch]} already")
    gpus: dict[str, list[CudaArch]] = defaultdict(list)
    for gpu in sorted(known_gpus() | {*code}):
        able = [arch for arch in owners if machine_code_runs_on(arch, gpu)]
        if able:
            gpus[owners[max(able, key=number_of)]].append(gpu)
    return tuple(
        SplitLabel(name, tuple(gpus[name]), any(arch.ptx for arch in archs))
        for name, archs in named.items()
    )


def known_gpus() -> frozenset[CudaArch]:
    """NVIDIA's GPUs, each by its number of today."""
    archs = map(parse, arch_names("cuda"))
    numbers = {number_of(arch) for arch in archs if isinstance(arch, CudaArch)}
    return frozenset(CudaArch(major, minor) for major, minor in numbers)


def taken(entries: Sequence[FatbinEntry], gpu: CudaArch) -> tuple[FatbinEntry, ...]:
    """The modules of a container among which the driver chooses for a GPU.

    Machine code goes before PTX, and a higher number before a lower one. Which of "9.0" and "9.0a"
    it takes is documented nowhere, so both count.
    """
    for kind, runs in (("sass", machine_code_runs_on), ("ptx", ptx_runs_on)):
        able = [entry for entry in entries if entry.kind == kind and runs(entry.arch, gpu)]
        if able:
            best = max(number_of(entry.arch) for entry in able)
            return tuple(entry for entry in able if number_of(entry.arch) == best)
    return ()


def kept(entries: Sequence[FatbinEntry], label: SplitLabel) -> tuple[FatbinEntry, ...]:
    """The modules of a container that the wheel of a label keeps, in their order."""
    wanted = {entry.at for gpu in label.targets for entry in taken(entries, gpu)}
    return tuple(entry for entry in entries if entry.at in wanted)


def properties_of_label(
    label: SplitLabel, entries: Iterable[FatbinEntry], lower_bound: str
) -> Properties:
    """What an installer takes the wheel by: the code for the label's own GPUs.

    Code that is there for want of better, such as PTX for 8.0 in a wheel for 9.0, is not named: a
    GPU of 8.0 would take the wheel for it.

    Args:
        label: the label.
        entries: the modules that its wheel keeps.
        lower_bound: the oldest CUDA of a driver.
    """
    own = {number_of(gpu) for gpu in label.gpus}
    found = {
        (number_of(entry.arch), entry.kind == "ptx", value)
        for entry in entries
        if number_of(entry.arch) in own
        and (entry.kind == "sass" or (label.ptx and not entry.arch.suffix))
        for value in code_values(entry.kind, entry.arch.of_gpu)
    }
    values = tuple(value for _, _, value in sorted(found))
    namespace = NAMESPACES["cuda"]
    return {namespace: {LOWER_BOUND: (lower_bound,), ARCH_FEATURE[namespace]: values}}
