"""Arch lists as users write them: archs, names of generations, and words such as "native"."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from torchwheel import data
from torchwheel.arch.devices import VisibleGpus, visible_gpus
from torchwheel.arch.model import BRANDS, Arch, Backend, CudaArch, RocmArch, backend_of, parse
from torchwheel.arch.selection import (
    ArchSelection,
    LeftOut,
    archs_for_gpus,
    merge_archs,
    select_compilable,
)
from torchwheel.arch.toolkit_releases import ToolkitRelease, arch_names
from torchwheel.errors import UsageError
from torchwheel.text import nearest, quote

_PTX = "+PTX"
_WORDS: Mapping[Backend, Sequence[str]] = {"cuda": ("all", "all-major"), "rocm": ("all",)}


def parse_arch_list(
    text: str, toolkit: ToolkitRelease, gpus: Callable[[], VisibleGpus], where: str
) -> ArchSelection:
    """Read an arch list, e.g. "8.0;9.0+PTX", "Ampere Hopper", "native" or "gfx90a;gfx942".

    Entries stand between ";" or blanks. What torch.utils.cpp_extension takes is taken, and what
    nvcc's -arch takes: "native" (the GPUs that are visible), "all" and "all-major".

    Args:
        text: the list.
        toolkit: the release that compiles; archs that it cannot compile are left out.
        gpus: asked for the visible GPUs when the list says "native".
        where: what the list is from, for messages, e.g. "TORCH_CUDA_ARCH_LIST".

    Raises:
        UsageError: an entry is no arch that any release of the toolkit knows, the list is empty,
            or "native" finds no GPU.
    """
    words = text.replace(";", " ").split()
    if not words:
        raise UsageError(f"{where}: an arch list expected, e.g. {_example(toolkit)}; it is empty")
    archs: list[Arch] = []
    left_out: list[LeftOut] = []
    for word in words:
        if word == "native":
            native = archs_for_gpus(_visible(gpus, where), toolkit)
            archs += native.archs
            left_out += native.left_out
        else:
            archs += _expanded(word, toolkit, where)
    found = select_compilable(archs, toolkit)
    return ArchSelection(found.archs, (*found.left_out, *left_out))


def _visible(gpus: Callable[[], VisibleGpus], where: str) -> Iterable[Arch]:
    seen = gpus()
    if not seen.gpus:
        raise UsageError(f'{where}: "native" finds no GPU: {seen.why}; name the archs instead')
    return {gpu.arch for gpu in seen.gpus}


def _expanded(word: str, toolkit: ToolkitRelease, where: str) -> Sequence[Arch]:
    """The archs that one word stands for."""
    if word in _WORDS[toolkit.backend]:
        return _every(toolkit, major=word == "all-major")
    known = _named() if toolkit.backend == "cuda" else {}
    if (name := word.removesuffix(_PTX)) in known:
        return known[name] if name == word else _newest_with_ptx(known[name])
    try:
        arch = parse(word)
    except ValueError:
        words = ["native", *_WORDS[toolkit.backend], *known, *arch_names(toolkit.backend)]
        raise UsageError(f"{where}: {quote(word)} is not an arch; {nearest(word, words)}") from None
    brand = BRANDS[toolkit.backend]
    if backend_of(arch) != toolkit.backend:
        raise UsageError(
            f"{where}: {quote(word)} is not an arch of {brand}; expected e.g. {_example(toolkit)}"
        )
    if arch.name not in arch_names(toolkit.backend):
        advice = nearest(arch.name, arch_names(toolkit.backend))
        raise UsageError(f"{where}: no release of {brand} knows {quote(arch.name)}; {advice}")
    return (arch,)


def _every(toolkit: ToolkitRelease, *, major: bool) -> Sequence[Arch]:
    """What nvcc means by "all", or by "all-major": the oldest arch and the first of each major.

    Both have PTX of the newest major. An AMD processor has one arch, and no generic one.
    """
    plain = [a for a in toolkit.archs if isinstance(a, CudaArch) and not a.suffix]
    if not plain:
        return [a for a in toolkit.archs if isinstance(a, RocmArch) and not a.generic]
    majors = [arch for arch in plain if arch.minor == 0]
    chosen = [plain[0], *majors] if major else plain
    return merge_archs([*chosen, *_newest_with_ptx(majors)])


def _newest_with_ptx(archs: Sequence[Arch]) -> Sequence[Arch]:
    return [
        dataclasses.replace(arch, ptx=True)
        if isinstance(arch, CudaArch) and arch == max(archs)
        else arch
        for arch in archs
    ]


@functools.cache
def _named() -> Mapping[str, tuple[Arch, ...]]:
    table = data.read("arch_names.json")["names"]
    return {name: tuple(map(parse, text.split(";"))) for name, text in table.items()}


def _example(toolkit: ToolkitRelease) -> str:
    return '"9.0;12.0+PTX"' if toolkit.backend == "cuda" else '"gfx90a;gfx942"'


VARIABLES: Mapping[Backend, str] = {"cuda": "TORCH_CUDA_ARCH_LIST", "rocm": "PYTORCH_ROCM_ARCH"}
"""The environment variable that names archs, torch's own."""
VISIBLE = "visible GPUs"


@dataclasses.dataclass(frozen=True)
class ArchChoice:
    """The archs to compile for.

    Attributes:
        archs: in order, each once; there is at least one.
        source: what named them: that of the argument or of the default, the name of an environment
            variable, or "visible GPUs".
        left_out: archs that were named too, and why they are not compiled for.
    """

    archs: tuple[Arch, ...]
    source: str
    left_out: tuple[LeftOut, ...] = ()


def arch_list(archs: Iterable[Arch]) -> str:
    """An arch list as compilers and builds take it, e.g. "8.0;9.0+PTX"."""
    return ";".join(map(str, archs))


@dataclasses.dataclass(frozen=True)
class NamedArchs:
    """An arch list and what it is from, for messages, e.g. "--archs" or "matrix.yaml"."""

    text: str
    source: str


def choose_archs(
    toolkit: ToolkitRelease,
    environ: Mapping[str, str],
    *,
    argument: NamedArchs | None = None,
    for_this_machine: bool = False,
    default: NamedArchs | None = None,
    look: Callable[[Backend, Mapping[str, str]], VisibleGpus] = visible_gpus,
) -> ArchChoice:
    """The archs to compile for.

    An argument comes first, then torch's environment variable, then the visible GPUs if the build
    is for this machine, then a default.

    Args:
        toolkit: the release that compiles.
        environ: environment variables.
        argument: what the caller asks for.
        for_this_machine: whether the visible GPUs are what a build without a list is for.
        default: what the extension is usually built for.
        look: gives the visible GPUs; asked only if they matter.

    Raises:
        UsageError: a list cannot be read, nothing says what to compile for, or the compiler can
            compile for nothing of it.
    """

    def gpus() -> VisibleGpus:
        return look(toolkit.backend, environ)

    variable = VARIABLES[toolkit.backend]
    listed = argument
    if listed is None and environ.get(variable):
        listed = NamedArchs(environ[variable], variable)
    why = None
    if listed is None and for_this_machine:
        seen = gpus()
        if seen.gpus:
            return _some(archs_for_gpus({gpu.arch for gpu in seen.gpus}, toolkit), VISIBLE)
        why = seen.why
    listed = listed or default
    if listed is None:
        example = f"{variable}={'9.0' if toolkit.backend == 'cuda' else 'gfx942'}"
        raise UsageError(
            f"no arch to compile for: {why or 'nothing names one'}; set {variable}, e.g. {example}"
        )
    return _some(parse_arch_list(listed.text, toolkit, gpus, listed.source), listed.source)


def _some(found: ArchSelection, source: str) -> ArchChoice:
    if not found.archs:
        raise UsageError(f"{source}: nothing to compile for: {'; '.join(map(str, found.left_out))}")
    return ArchChoice(found.archs, source, found.left_out)
