"""Arch lists as users write them: archs, names of generations, and words such as "native"."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from torchwheel import data
from torchwheel.arch.backend import BRANDS, Backend
from torchwheel.arch.devices import Visible
from torchwheel.arch.model import Arch, CudaArch, RocmArch, backend, parse
from torchwheel.arch.selection import LeftOut, Selection, compilable, for_gpus, merged
from torchwheel.arch.table import Compiler, names
from torchwheel.errors import UsageError
from torchwheel.shown import nearest, quoted

_PTX = "+PTX"
_WORDS: Mapping[Backend, Sequence[str]] = {"cuda": ("all", "all-major"), "rocm": ("all",)}


def read(text: str, compiler: Compiler, gpus: Callable[[], Visible], where: str) -> Selection:
    """Read an arch list, e.g. "8.0;9.0+PTX", "Ampere Hopper", "native" or "gfx90a;gfx942".

    Entries stand between ";" or blanks. What torch.utils.cpp_extension takes is taken, and what
    nvcc's -arch takes: "native" (the GPUs that are visible), "all" and "all-major".

    Args:
        text: the list.
        compiler: what it is for; archs that it cannot compile are left out.
        gpus: asked for the visible GPUs when the list says "native".
        where: what the list is from, for messages, e.g. "TORCH_CUDA_ARCH_LIST".

    Raises:
        UsageError: an entry is no arch that any release of the toolkit knows, the list is empty,
            or "native" finds no GPU.
    """
    words = text.replace(";", " ").split()
    if not words:
        raise UsageError(f"{where}: an arch list expected, e.g. {_example(compiler)}; it is empty")
    archs: list[Arch] = []
    left_out: list[LeftOut] = []
    for word in words:
        if word == "native":
            native = for_gpus(_visible(gpus, where), compiler)
            archs += native.archs
            left_out += native.left_out
        else:
            archs += _expanded(word, compiler, where)
    found = compilable(archs, compiler)
    return Selection(found.archs, (*found.left_out, *left_out))


def _visible(gpus: Callable[[], Visible], where: str) -> Iterable[Arch]:
    seen = gpus()
    if not seen.gpus:
        raise UsageError(f'{where}: "native" finds no GPU: {seen.why}; name the archs instead')
    return {gpu.arch for gpu in seen.gpus}


def _expanded(word: str, compiler: Compiler, where: str) -> Sequence[Arch]:
    """The archs that one word stands for."""
    if word in _WORDS[compiler.backend]:
        return _every(compiler, major=word == "all-major")
    known = _named() if compiler.backend == "cuda" else {}
    if (name := word.removesuffix(_PTX)) in known:
        return known[name] if name == word else _newest_with_ptx(known[name])
    try:
        arch = parse(word)
    except ValueError:
        words = ["native", *_WORDS[compiler.backend], *known, *names(compiler.backend)]
        raise UsageError(
            f"{where}: {quoted(word)} is not an arch; {nearest(word, words)}"
        ) from None
    brand = BRANDS[compiler.backend]
    if backend(arch) != compiler.backend:
        raise UsageError(
            f"{where}: {quoted(word)} is not an arch of {brand}; expected e.g. {_example(compiler)}"
        )
    if arch.name not in names(compiler.backend):
        advice = nearest(arch.name, names(compiler.backend))
        raise UsageError(f"{where}: no release of {brand} knows {quoted(arch.name)}; {advice}")
    return (arch,)


def _every(compiler: Compiler, *, major: bool) -> Sequence[Arch]:
    """What nvcc means by "all", or by "all-major": the oldest arch and the first of each major.

    Both have PTX of the newest major. An AMD processor has one arch, and no generic one.
    """
    plain = [a for a in compiler.archs if isinstance(a, CudaArch) and not a.suffix]
    if not plain:
        return [a for a in compiler.archs if isinstance(a, RocmArch) and not a.generic]
    majors = [arch for arch in plain if arch.minor == 0]
    chosen = [plain[0], *majors] if major else plain
    return merged([*chosen, *_newest_with_ptx(majors)])


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


def _example(compiler: Compiler) -> str:
    return '"9.0;12.0+PTX"' if compiler.backend == "cuda" else '"gfx90a;gfx942"'
