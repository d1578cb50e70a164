"""The front end of a universal wheel, in torch: it takes a kernel library for each GPU."""

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.runtime.parts import ChosenParts, KernelLibrary
from torchwheel_runtime.runtime.prebuilt import load_library, reason_of
from torchwheel_runtime.text import join_names


class FrontEnd:
    """A front end that is loaded: torch has its operators."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Take the function of the library, which torch has loaded."""
        self._takers = [_taker(library)]
        self._kernels: list[tuple[int, KernelLibrary]] = []

    def use(self, gpu: int, library: KernelLibrary) -> bool:
        """Add a kernel library for a GPU; returns whether it was added.

        A kernel is taken from the first library of the GPU that has it.
        """
        self._kernels.append((gpu, library))
        taken = [take(gpu, library.handle) for take in self._takers]
        return all(taken)

    def join(self, library: ctypes.CDLL) -> None:
        """Have another loaded front end, of entry points, use the same kernels, now and later."""
        self._takers.append(take := _taker(library))
        for gpu, kernels in self._kernels:
            take(gpu, kernels.handle)


def _taker(library: ctypes.CDLL) -> Callable[[int, int], bool]:
    """The function of a loaded front end that takes a kernel library for a GPU."""
    take = library.torchwheel_use_kernels
    take.argtypes, take.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_bool
    return take


def load_front_end(parts: ChosenParts) -> tuple[FrontEnd, ChosenParts]:
    """Load the front end, and give it the kernel library of each GPU.

    Returns:
        The front end, and the parts with the kernel libraries that it took.

    Raises:
        TorchwheelError: it does not load; the message names what torch lacks.
    """
    try:
        load_library(parts.library)
    except Exception as error:
        lacks = missing_symbols(parts.library.path, parts.torch.folder)
        why = _lack_text(parts, lacks) if lacks else reason_of(error)
        raise TorchwheelError(f"front end {parts.front_end.name}: {why}") from error
    front_end = FrontEnd(parts.library.load())
    taken = {gpu: kernels for gpu, kernels in parts.kernels.items() if front_end.use(gpu, kernels)}
    return front_end, dataclasses.replace(parts, kernels=taken)


_MOST_NAMES = 3


def _lack_text(parts: ChosenParts, lacks: Sequence[str]) -> str:
    more = f" and {len(lacks) - _MOST_NAMES} more" if len(lacks) > _MOST_NAMES else ""
    return (
        f"expected {join_names(lacks[:_MOST_NAMES])}{more} in torch, found torch "
        f"{parts.torch.version} without; install a release of the package for this torch"
    )


def missing_symbols(file: Path, torch: Path) -> Sequence[str]:
    """The symbols that a library needs and torch does not have; () if they cannot be read.

    Args:
        file: the library.
        torch: the folder of the torch package.
    """
    from torchwheel_runtime.inspect.elf import read_library  # noqa: PLC0415 - for a message alone

    try:
        of_torch = ctypes.CDLL(str(torch / "lib" / "libtorch.so"))
        undefined = read_library(file).undefined
    except (OSError, TorchwheelError):
        return ()
    needed = {symbol.name for symbol in undefined if not symbol.weak}
    return sorted(name for name in needed if not hasattr(of_torch, name))
