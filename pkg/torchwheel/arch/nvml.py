"""NVIDIA's management library, by ctypes: it asks the driver and never starts CUDA."""

import contextlib
import ctypes
import dataclasses
from collections.abc import Iterator

from torchwheel.arch.board import Board
from torchwheel.arch.model import CudaArch
from torchwheel.errors import TorchwheelError

LIBRARY = "libnvidia-ml.so.1"

_NOT_FOUND = 13  # NVML_ERROR_FUNCTION_NOT_FOUND
_FIXES = {
    9: "load the driver's kernel module (modprobe nvidia), or restart the machine",
    18: "the driver was updated under it: restart the machine, or reload the kernel module",
}
_TEXT = 96  # more than any name, UUID or version has
_SM_CLOCK = 1


@dataclasses.dataclass(frozen=True)
class Driver:
    """NVIDIA's driver.

    Attributes:
        release: e.g. "580.95.05".
        cuda: the newest CUDA release it serves, e.g. "13.0"; None if it does not tell.
    """

    release: str
    cuda: str | None


def boards(library: str = LIBRARY) -> list[Board]:
    """The GPUs that the driver lists, in the order of the bus; one that is lost is not listed.

    Raises:
        TorchwheelError: there is no driver, or it does not answer.
    """
    with _started(library) as nvml:
        count = nvml.number("nvmlDeviceGetCount_v2")
        handles = (nvml.handle("nvmlDeviceGetHandleByIndex_v2", i) for i in range(count))
        found = [(_board(nvml, handle), handle) for handle in handles if handle is not None]
        listed = [(board, handle) for board, handle in found if board is not None]
        if len({board.name for board, _ in listed}) < 2:
            return [board for board, _ in listed]
        # Milliseconds each, for an order that unlike boards alone have.
        return [dataclasses.replace(board, speed=_speed(nvml, of)) for board, of in listed]


def driver(library: str = LIBRARY) -> Driver:
    """The driver. NVML loads CUDA's library to tell its release; that starts nothing.

    Raises:
        TorchwheelError: there is no driver, or it does not answer.
    """
    with _started(library) as nvml:
        cuda = nvml.number("nvmlSystemGetCudaDriverVersion_v2")
        release = nvml.text("nvmlSystemGetDriverVersion")
        return Driver(release, f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None)


class _Nvml:
    """Calls of the library; one that fails gives nothing."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def call(self, function: str, *arguments: object) -> int:
        """The status of a call; a library that has no such function says so too."""
        found = getattr(self._library, function, None)
        return int(found(*arguments)) if found else _NOT_FOUND

    def number(self, function: str, *arguments: object) -> int:
        number = ctypes.c_uint(0)
        return 0 if self.call(function, *arguments, ctypes.byref(number)) else number.value

    def text(self, function: str, *arguments: object) -> str:
        text = ctypes.create_string_buffer(_TEXT)
        failed = self.call(function, *arguments, text, ctypes.c_uint(_TEXT))
        return "" if failed else text.value.decode(errors="replace")

    def handle(self, function: str, *arguments: object) -> ctypes.c_void_p | None:
        handle = ctypes.c_void_p()
        return None if self.call(function, *arguments, ctypes.byref(handle)) else handle

    def error(self, status: int) -> str:
        """What a status means."""
        describe = getattr(self._library, "nvmlErrorString", None)
        if describe is None:
            return f"error {status}"
        describe.restype = ctypes.c_char_p
        return str((describe(status) or b"").decode(errors="replace"))


@contextlib.contextmanager
def _started(library: str) -> Iterator[_Nvml]:
    try:
        nvml = _Nvml(ctypes.CDLL(library))
    except OSError as error:
        raise TorchwheelError(f"no NVIDIA driver: {error}") from error
    if status := nvml.call("nvmlInit_v2"):
        fix = f"; {_FIXES[status]}" if status in _FIXES else ""
        raise TorchwheelError(f"the NVIDIA driver does not answer: {nvml.error(status)}{fix}")
    try:
        yield nvml
    finally:
        nvml.call("nvmlShutdown")


def _board(nvml: _Nvml, handle: ctypes.c_void_p) -> Board | None:
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    found = (ctypes.byref(major), ctypes.byref(minor))
    if nvml.call("nvmlDeviceGetCudaComputeCapability", handle, *found):
        return None
    return Board(
        name=nvml.text("nvmlDeviceGetName", handle),
        arch=CudaArch(major.value, minor.value),
        uuid=nvml.text("nvmlDeviceGetUUID", handle),
        slices=_slices(nvml, handle),
    )


def _speed(nvml: _Nvml, handle: ctypes.c_void_p) -> int:
    cores = nvml.number("nvmlDeviceGetNumGpuCores", handle)
    return cores * nvml.number("nvmlDeviceGetMaxClockInfo", handle, ctypes.c_uint(_SM_CLOCK))


def _slices(nvml: _Nvml, handle: ctypes.c_void_p) -> tuple[str, ...]:
    count = nvml.number("nvmlDeviceGetMaxMigDeviceCount", handle)
    handles = (
        nvml.handle("nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(i))
        for i in range(count)
    )
    return tuple(nvml.text("nvmlDeviceGetUUID", part) for part in handles if part is not None)
