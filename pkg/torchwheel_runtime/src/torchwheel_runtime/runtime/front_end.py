"""The front end of a universal wheel, in torch: it takes a kernel library for each GPU.

Where the wheel has no kernels for a GPU, those of one operator family are built for its arch. The
front end takes them as it takes the wheel's. A wheel may have one more front end, an extension
module of entry points over DLPack.
"""

import ctypes
import dataclasses
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from torchwheel_runtime.builder.extension import LIBRARIES, Extension
from torchwheel_runtime.claims import Part
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.loadable import LoadableFile
from torchwheel_runtime.runtime.prebuilt import (
    import_from,
    installed_claims,
    load_library,
    reason_of,
)
from torchwheel_runtime.runtime.status import OperatorStatus, Refusal
from torchwheel_runtime.runtime.universal import ChosenParts, load_built, verify_part
from torchwheel_runtime.text import join_names


class FrontEnd:
    """A front end that is loaded: torch has its operators."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Take the function of the library, which torch has loaded."""
        self._takers = [_taker(library)]
        self._kernels: list[tuple[int, int]] = []

    def use(self, gpu: int, library: LoadableFile) -> bool:
        """Add a loaded kernel library for a GPU; returns whether it was added.

        A kernel is taken from the first library of the GPU that has it.
        """
        handle = library.load()._handle
        self._kernels.append((gpu, handle))
        taken = [take(gpu, handle) for take in self._takers]
        return all(taken)

    def join(self, library: ctypes.CDLL) -> None:
        """Have another loaded front end, of entry points, use the same kernels, now and later."""
        self._takers.append(take := _taker(library))
        for gpu, handle in self._kernels:
            take(gpu, handle)


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
    choices = tuple(
        choice
        if choice.file and front_end.use(choice.gpu.index, choice.file)
        else dataclasses.replace(choice, used=None, file=None)
        for choice in parts.choices
    )
    return front_end, dataclasses.replace(parts, choices=choices)


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


_EXCHANGE_API = "__dlpack_c_exchange_api__"


@dataclasses.dataclass(frozen=True)
class EntryPoints:
    """The module, which is one more front end.

    Attributes:
        module: the module; its `entry_point` makes a function.
        library: its library, loaded.
        interface: the digest of the headers that it shares with kernel libraries.
    """

    module: ModuleType
    library: ctypes.CDLL
    interface: str


def import_entry_points(extension: Extension, package: Path) -> EntryPoints | None:
    """The module of the installed wheel; None if it has none, or none for this torch and Python.

    A free-threaded CPython crashes in a module of the limited API, and torch has the exchange API
    since 2.10.

    Raises:
        Exception: it is not the file that was installed, or does not load.
    """
    import torch  # noqa: PLC0415 - the doctor reads this package where there is no torch

    if not hasattr(torch.Tensor, _EXCHANGE_API) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    claims = installed_claims(extension.package)
    parts = [part for part in claims.parts if part.kind == "entry_points"] if claims else []
    return _import_part(parts[0], package) if parts else None


def _import_part(part: Part, package: Path) -> EntryPoints:
    library, interface = verify_part(part, package)
    name = f"{package.name}.{LIBRARIES}.{part.kind}.{part.name}"
    return EntryPoints(import_from(name, library), library.load(), interface)


def build_kernels(
    extension: Extension,
    package: Path,
    parts: ChosenParts,
    front_end: FrontEnd,
    status: OperatorStatus,
    gpu: int,
) -> Mapping[int, OperatorStatus]:
    """Build a family's kernels for a GPU, and give them to the front end. Never raises.

    `status` is the family's, with the reason why nothing prebuilt serves the GPU.

    Returns:
        What the family runs on there, and on other GPUs of the same arch that nothing serves.
    """
    from torchwheel_runtime.runtime import operator_library  # noqa: PLC0415 - for a build

    unserved = parts.unserved(extension.operator(status.operator))
    gpus = {one.gpu.index: one.gpu for one in parts.choices if one.gpu.index in unserved}
    alike = [index for index, other in gpus.items() if other.arch == gpus[gpu].arch]
    try:
        built, step = operator_library.obtain_library(
            extension, package, status.operator, kernels_for=gpus[alike[0]]
        )
        library = load_built(built, parts.interface)
        if not all(front_end.use(index, library) for index in alike):
            raise RuntimeError("the front end takes none for this GPU")
    except Exception as error:  # any failure: PyTorch still works
        refusals = (*status.refusals, Refusal("jit build", reason_of(error)))
        settled = dataclasses.replace(status, way="fallback", refusals=refusals)
    else:
        settled = dataclasses.replace(status, way=step, library=built.path)
    return dict.fromkeys(alike, settled)
