"""Reads arch lists as users write them, and chooses the archs of a build."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from torchwheel_runtime import data
from torchwheel_runtime.arch.devices import VisibleGpus, visible_gpus
from torchwheel_runtime.arch.model import (
    BRANDS,
    Arch,
    Backend,
    CudaArch,
    RocmArch,
    backend_of,
    parse,
)
from torchwheel_runtime.arch.releases import ToolkitRelease, arch_names, releases_able
from torchwheel_runtime.arch.runs import as_numbered, machine_code_runs_on, ptx_runs_on
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import nearest, quote


@dataclasses.dataclass(frozen=True)
class ArchSelection:
    """Archs to compile for.

    Attributes:
        archs: in order, each once.
        left_out: archs that are asked for too, each with the reason why it is not compiled for.
        source: of `choose_archs`: the source of the argument or of the default, the name of an
            environment variable, or "visible GPUs".
    """

    archs: tuple[Arch, ...]
    left_out: tuple[str, ...] = ()
    source: str = ""

    def require_all(self, where: str) -> tuple[Arch, ...]:
        """The archs of a build that needs them all; `where` is the source of the list.

        Raises:
            UsageError: an arch is left out.
        """
        if self.left_out:
            raise UsageError(f"{where}: {'; '.join(self.left_out)}")
        return self.archs


def merge_archs(archs: Iterable[Arch]) -> tuple[Arch, ...]:
    """Archs of one backend in order, each once; with PTX if any entry of that arch has it."""
    ptx: dict[Arch, bool] = {}
    for arch in archs:
        without = arch.with_ptx(False)
        ptx[without] = ptx.get(without, False) or arch.ptx
    return tuple(arch.with_ptx(ptx[arch]) for arch in sorted(ptx))


def select_compilable(archs: Iterable[Arch], toolkit: ToolkitRelease) -> ArchSelection:
    """Split archs into those that a release can compile and the others."""
    compilable = {arch.name for arch in toolkit.archs}
    merged = merge_archs(archs)
    return ArchSelection(
        tuple(arch for arch in merged if arch.name in compilable),
        tuple(_left_out(arch, toolkit) for arch in merged if arch.name not in compilable),
    )


def archs_for_gpus(gpus: Iterable[Arch], toolkit: ToolkitRelease) -> ArchSelection:
    """The archs to compile so that each GPU has code: machine code if possible, else newest PTX.

    A GPU that is newer than the toolkit needs PTX, which its driver compiles at the first use.

    Args:
        gpus: archs of GPUs, all of the toolkit's backend.
        toolkit: the release that compiles.
    """
    plain = [arch for arch in toolkit.archs if not (isinstance(arch, CudaArch) and arch.suffix)]
    archs: list[Arch] = []
    left_out = []
    for gpu in sorted(set(gpus)):
        if direct := [arch for arch in plain if machine_code_runs_on(arch, gpu)]:
            archs.append(max(direct, key=_closeness))
        elif older := [arch for arch in plain if ptx_runs_on(arch, gpu)]:
            archs.append(max(older).with_ptx())
        else:
            left_out.append(_left_out(gpu, toolkit))
    return ArchSelection(merge_archs(archs), tuple(left_out))


def _closeness(arch: Arch) -> tuple[bool, Arch]:
    """Ranks a processor's own code before a generic target's, and newer archs before older ones."""
    return not (isinstance(arch, RocmArch) and arch.generic), arch


def _left_out(arch: Arch, toolkit: ToolkitRelease) -> str:
    able = releases_able(arch, toolkit.backend)
    return f"{arch}: {toolkit} cannot compile for it; {able} can"


_PTX = "+PTX"
_WORDS: Mapping[Backend, Sequence[str]] = {"cuda": ("all", "all-major"), "rocm": ("all",)}


def parse_arch_list(
    text: str, toolkit: ToolkitRelease, gpus: Callable[[], VisibleGpus], where: str
) -> ArchSelection:
    """Read an arch list, e.g. "8.0;9.0+PTX", "Ampere Hopper", "native" or "gfx90a;gfx942".

    Semicolons or blanks separate the entries. An entry is an arch, a generation's name as
    torch.utils.cpp_extension takes it, or a word of nvcc's -arch: "native" (the visible GPUs),
    "all" or "all-major".

    Args:
        text: the list.
        toolkit: the release that compiles; archs that it cannot compile are left out.
        gpus: gives the visible GPUs; called if the list says "native".
        where: the list's source for messages, e.g. "TORCH_CUDA_ARCH_LIST".

    Raises:
        UsageError: no release of the toolkit knows an entry, the list is empty, or "native" finds
            no GPU.
    """
    words = text.replace(";", " ").split()
    if not words:
        raise UsageError(f"{where}: an arch list expected, e.g. {_example(toolkit)}; it is empty")
    archs: list[Arch] = []
    left_out: list[str] = []
    for word in words:
        if word == "native":
            native = archs_for_gpus(_native_archs(gpus, where), toolkit)
            archs += native.archs
            left_out += native.left_out
        else:
            archs += _expand(word, toolkit, where)
    selection = select_compilable(archs, toolkit)
    return ArchSelection(selection.archs, (*selection.left_out, *left_out))


def _native_archs(gpus: Callable[[], VisibleGpus], where: str) -> Iterable[Arch]:
    visible = gpus()
    if not visible.gpus:
        raise UsageError(f'{where}: "native" finds no GPU: {visible.why}; name the archs instead')
    return {gpu.arch for gpu in visible.gpus}


def _expand(word: str, toolkit: ToolkitRelease, where: str) -> Sequence[Arch]:
    """The archs that one word stands for."""
    if word in _WORDS[toolkit.backend]:
        return _all_archs(toolkit, major=word == "all-major")
    generations = _generations() if toolkit.backend == "cuda" else {}
    if (name := word.removesuffix(_PTX)) in generations:
        return _as_compiled(generations[name], toolkit, ptx=name != word)
    try:
        arch = parse(word)
    except ValueError:
        words = ["native", *_WORDS[toolkit.backend], *generations, *arch_names(toolkit.backend)]
        dotted = re.sub(r"^(?:sm_|compute_)?(\d+)(\d)", r"\1.\2", word)  # as nvcc has it
        form = f"expected e.g. {_example(toolkit)}"
        advice = nearest(dotted if dotted in words else word, words, form)
        raise UsageError(f"{where}: {quote(word)} is not an arch; {advice}") from None
    brand = BRANDS[toolkit.backend]
    if backend_of(arch) != toolkit.backend:
        raise UsageError(
            f"{where}: {quote(word)} is not an arch of {brand}; expected e.g. {_example(toolkit)}"
        )
    if arch.name not in arch_names(toolkit.backend):
        advice = nearest(arch.name, arch_names(toolkit.backend))
        raise UsageError(f"{where}: no release of {brand} knows {quote(arch.name)}; {advice}")
    return (arch,)


def _all_archs(toolkit: ToolkitRelease, *, major: bool) -> Sequence[Arch]:
    """The archs of nvcc's "all", or of "all-major": the oldest arch and the first of each major.

    Both have PTX of the newest major. For AMD it is every processor, without generic targets.
    """
    plain = [a for a in toolkit.archs if isinstance(a, CudaArch) and not a.suffix]
    if not plain:
        return [a for a in toolkit.archs if isinstance(a, RocmArch) and not a.generic]
    majors = [arch for arch in plain if arch.minor == 0]
    chosen = [plain[0], *majors] if major else plain
    return merge_archs([*chosen, *_newest_with_ptx(majors)])


def _newest_with_ptx(archs: Sequence[Arch]) -> Sequence[Arch]:
    return [arch.with_ptx() if arch == max(archs) else arch for arch in archs]


@functools.cache
def _generations() -> Mapping[str, tuple[CudaArch, ...]]:
    table = data.read("arch_names.json")["names"]
    archs = {name: tuple(map(parse, text.split(";"))) for name, text in table.items()}
    return {k: tuple(a for a in v if isinstance(a, CudaArch)) for k, v in archs.items()}


def _as_compiled(
    generation: Sequence[CudaArch], toolkit: ToolkitRelease, *, ptx: bool
) -> Sequence[Arch]:
    """A generation by a toolkit's numbers; its PTX is of the newest that the toolkit compiles."""
    numbered = [as_numbered(arch.in_binary, toolkit.archs) for arch in generation]
    newest = max((arch for arch in numbered if arch in toolkit.archs), default=max(numbered))
    ptx = ptx or any(arch.ptx for arch in generation)
    return [arch.with_ptx(ptx and arch == newest) for arch in numbered]


def _example(toolkit: ToolkitRelease) -> str:
    return '"9.0;12.0+PTX"' if toolkit.backend == "cuda" else '"gfx90a;gfx942"'


VARIABLES: Mapping[Backend, str] = {"cuda": "TORCH_CUDA_ARCH_LIST", "rocm": "PYTORCH_ROCM_ARCH"}
"""Torch's environment variables for arch lists."""
VISIBLE = "visible GPUs"


def arch_list(archs: Iterable[Arch]) -> str:
    """An arch list as compilers and builds take it, e.g. "8.0;9.0+PTX"."""
    return ";".join(map(str, archs))


def cmake_archs(archs: Iterable[Arch]) -> str:
    """An arch list as CMake writes it, e.g. "80-real;90-real;90-virtual"."""
    words = []
    for arch in archs:
        number = arch.in_binary.binary_name.removeprefix("sm_")
        words += [f"{number}-real", *([f"{number}-virtual"] if arch.ptx else [])]
    return ";".join(words)


@dataclasses.dataclass(frozen=True)
class NamedArchs:
    """An arch list and its source for messages, e.g. "--archs" or "matrix.yaml"."""

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
) -> ArchSelection:
    """The archs to compile for, at least one.

    An argument comes first, then torch's environment variable, then the visible GPUs if the build
    is for this machine, then a default.

    Args:
        toolkit: the release that compiles.
        environ: environment variables.
        argument: the caller's list.
        for_this_machine: whether a build without a list is for the visible GPUs.
        default: the extension's usual list.
        look: gives the visible GPUs; called only if they matter.

    Raises:
        UsageError: a list is malformed, there is neither a list nor a GPU, or the toolkit can
            compile none of the archs.
    """

    def gpus() -> VisibleGpus:
        return look(toolkit.backend, environ)

    variable = VARIABLES[toolkit.backend]
    named = argument
    if named is None and environ.get(variable):
        named = NamedArchs(environ[variable], variable)
    why = None
    if named is None and for_this_machine:
        visible = gpus()
        if visible.gpus:
            return _choice(archs_for_gpus({g.arch for g in visible.gpus}, toolkit), VISIBLE)
        why = visible.why
    named = named or default
    if named is None:
        example = f"{variable}={'9.0' if toolkit.backend == 'cuda' else 'gfx942'}"
        raise UsageError(
            f"no arch to compile for: {why or 'nothing names one'}; set {variable}, e.g. {example}"
        )
    return _choice(parse_arch_list(named.text, toolkit, gpus, named.source), named.source)


def _choice(selection: ArchSelection, source: str) -> ArchSelection:
    if not selection.archs:
        raise UsageError(f"{source}: nothing to compile for: {'; '.join(selection.left_out)}")
    return dataclasses.replace(selection, source=source)
