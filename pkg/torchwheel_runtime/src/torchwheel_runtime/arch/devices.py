"""Lists the GPUs that this process may use, and starts neither CUDA nor HIP.

A process that has started one of them cannot fork workers that use a GPU. The drivers are asked:
NVIDIA's through NVML, AMD's through /sys.
"""

import contextlib
import ctypes
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel_runtime.arch.model import Arch, Backend, CudaArch, RocmArch, parse
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.text import quote

_KINDS = ("GPU-", "MIG-")
# CUDA reads "1gpu2" as 1, because it uses strtoul().
_NUMBER = re.compile(r"\s*\+?([0-9]{1,9})", re.ASCII)


class DriverError(TorchwheelError):
    """A GPU driver is not installed, or it does not answer.

    Attributes:
        problem: what is wrong, without the fix.
        fix: what to do; None if that is not known.
        installed: whether there is a driver.
    """

    def __init__(self, problem: str, *, fix: str | None = None, installed: bool = False) -> None:
        super().__init__(f"{problem}; {fix}" if fix else problem)
        self.problem = problem
        self.fix = fix
        self.installed = installed


@dataclasses.dataclass(frozen=True)
class Driver:
    """A GPU driver.

    Attributes:
        backend: the backend of its GPUs.
        version: its release, e.g. "580.95.05".
        cuda: the newest CUDA release it serves, e.g. "13.0"; None for AMD's.
    """

    backend: Backend
    version: str
    cuda: str | None = None


@dataclasses.dataclass(frozen=True)
class Board:
    """A GPU as its driver knows it.

    Attributes:
        name: e.g. "NVIDIA H200".
        arch: its arch.
        uuid: e.g. "GPU-8a6c…"; empty if it has none.
        slices: UUIDs of its MIG instances.
        speed: cores times clock, to compare boards; 0 if unknown, or if all boards are alike.
    """

    name: str
    arch: Arch
    uuid: str = ""
    slices: tuple[str, ...] = ()
    speed: int = 0


def cuda_order(boards: Sequence[Board], environ: Mapping[str, str]) -> Sequence[Board]:
    """Boards in CUDA's order: the fastest first, unless a variable asks for the order of the bus.

    CUDA does not document how it ranks different boards; cores times clock is an estimate.
    """
    if environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({b.name for b in boards}) < 2:
        return boards
    return sorted(boards, key=lambda board: -board.speed)


def select_boards(value: str, boards: Sequence[Board]) -> Sequence[Board]:
    """The boards that a variable such as CUDA_VISIBLE_DEVICES names, in its order.

    The value lists numbers or beginnings of UUIDs. It ends before an entry of the other kind, or
    before an entry that names no board or several. If it names a board twice, the result is empty.
    A process can use one MIG instance only, the first.
    """
    kind = next((kind for kind in _KINDS if value.startswith(kind)), "")
    indices: list[int] = []
    for entry in value.split(","):
        index = _index_by_uuid(entry, kind, boards) if kind else _index_by_number(entry, boards)
        if index is None:
            break
        indices.append(index)
    if kind == "MIG-":
        indices = indices[:1]
    return [boards[i] for i in indices] if len(set(indices)) == len(indices) else []


def _index_by_number(entry: str, boards: Sequence[Board]) -> int | None:
    match = _NUMBER.match(entry)
    return int(match[1]) if match and int(match[1]) < len(boards) else None


def _index_by_uuid(entry: str, kind: str, boards: Sequence[Board]) -> int | None:
    digits = entry.removeprefix(kind).lower()
    if not digits or not entry.startswith(kind):
        return None
    uuids = [(i, uuid) for i, board in enumerate(boards) for uuid in (board.uuid, *board.slices)]
    matches = [i for i, uuid in uuids if uuid.startswith(kind + digits)]
    return matches[0] if len(matches) == 1 else None


_NODES = "sys/class/kfd/kfd/topology/nodes"
_DEVICE = "dev/kfd"
_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
# Variables of rocm-bootstrap, AMD's provider for installers: the archs to pretend, or no GPU.
_FORCED = "ROCM_BOOTSTRAP_FORCE_GFX_ARCH"
_NO_DETECTION = "ROCM_BOOTSTRAP_DISABLE_DETECTION"
_VERSION = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{1,2})", re.ASCII)


def amd_boards(environ: Mapping[str, str], root: Path = Path("/")) -> list[Board]:
    """The GPUs that this process may open, in the order in which ROCm counts them.

    Where HSA_OVERRIDE_GFX_VERSION gives a GPU another arch, this function does so too, and where
    rocm-bootstrap is told which archs to find, it finds those.

    Raises:
        TorchwheelError: there is no driver, or this user may not use it; a variable names no arch.
    """
    if environ.get(_NO_DETECTION) == "1":
        return []
    if forced := environ.get(_FORCED):
        return [_forced_board(name.strip()) for name in forced.split(",") if name.strip()]
    nodes, device = root / _NODES, root / _DEVICE
    try:
        numbers = sorted(int(entry.name) for entry in nodes.iterdir() if entry.name.isdecimal())
    except OSError as error:
        raise DriverError(f"no AMD GPU driver: {nodes}: {error.strerror}") from error
    if not os.access(device, os.R_OK | os.W_OK):
        raise TorchwheelError(
            f"no access to {device}: add this user to the groups render and video, "
            "or give the container the device"
        )
    boards = (_amd_board(nodes / str(number), number, environ, root) for number in numbers)
    return [board for board in boards if board is not None]


def _forced_board(name: str) -> Board:
    try:
        arch = parse(name)
    except ValueError:
        arch = None
    if not isinstance(arch, RocmArch):
        raise TorchwheelError(f"{_FORCED}: expected archs such as gfx942, found {quote(name)}")
    return Board(name=name, arch=arch, uuid="")


def amd_driver(root: Path = Path("/")) -> Driver:
    """AMD's kernel driver; its release is the kernel's if the kernel includes it.

    Raises:
        DriverError: there is no driver.
    """
    module = root / "sys/module/amdgpu"
    try:
        return Driver("rocm", (module / "version").read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        if not module.is_dir():
            raise DriverError("no AMD GPU driver") from None
        return Driver("rocm", os.uname().release)


def _amd_board(node: Path, number: int, environ: Mapping[str, str], root: Path) -> Board | None:
    """A node's GPU; None for a CPU, and for a GPU that this container may not use."""
    try:
        facts = dict(line.split() for line in (node / "properties").read_text().splitlines())
        version, cores = int(facts["gfx_target_version"]), int(facts["simd_count"])
        unique = int(facts.get("unique_id", 0))
    except (OSError, ValueError, KeyError):
        return None
    if version <= 0 or cores <= 0:
        return None
    arch = _override(number, environ) or RocmArch(
        version // 10000, version // 100 % 100, version % 100
    )
    return Board(
        name=_name(root, facts) or str(arch),
        arch=arch,
        uuid=f"GPU-{unique:016x}" if unique else "",
    )


def _override(number: int, environ: Mapping[str, str]) -> RocmArch | None:
    value = environ.get(f"{_OVERRIDE}_{number}") or environ.get(_OVERRIDE) or ""
    match = _VERSION.fullmatch(value)
    if match is None:
        return None
    major, minor, stepping = map(int, match.groups())
    return RocmArch(major, minor, stepping)


def _name(root: Path, facts: Mapping[str, str]) -> str:
    """The product's name; empty for boards that do not tell it to the kernel."""
    render = root / f"sys/class/drm/renderD{facts.get('drm_render_minor')}/device/product_name"
    try:
        return render.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


NVML = "libnvidia-ml.so.1"

_NOT_FOUND = 13  # NVML_ERROR_FUNCTION_NOT_FOUND
_FIXES = {
    9: "load the driver's kernel module (modprobe nvidia), or restart the machine",
    18: "the driver was updated under it: restart the machine, or reload the kernel module",
}
_TEXT = 96  # No name, UUID or version is longer.
_SM_CLOCK = 1


def nvidia_boards(library: str = NVML) -> list[Board]:
    """The GPUs that the driver lists, in the order of the bus; it omits a GPU that was lost.

    Raises:
        DriverError: there is no driver, or it does not answer.
    """
    with _open_nvml(library) as nvml:
        count = nvml.number("nvmlDeviceGetCount_v2")
        handles = (nvml.handle("nvmlDeviceGetHandleByIndex_v2", i) for i in range(count))
        pairs = [(handle, _nvidia_board(nvml, handle)) for handle in handles if handle is not None]
        boards = [(handle, board) for handle, board in pairs if board is not None]
        if len({board.name for _, board in boards}) < 2:
            return [board for _, board in boards]
        # The speed costs milliseconds per board and matters for the order of different boards only.
        return [dataclasses.replace(board, speed=_speed(nvml, handle)) for handle, board in boards]


def nvidia_driver(library: str = NVML) -> Driver:
    """The driver. NVML loads CUDA's library to read its release, and does not start CUDA.

    Raises:
        DriverError: there is no driver, or it does not answer.
    """
    with _open_nvml(library) as nvml:
        cuda = nvml.number("nvmlSystemGetCudaDriverVersion_v2")
        release = nvml.text("nvmlSystemGetDriverVersion")
        return Driver("cuda", release, f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None)


class _Nvml:
    """Calls of the library. A failed call gives 0, an empty text or None."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def call(self, function: str, *arguments: object) -> int:
        """The status of a call, which also tells that the library has no such function."""
        call = getattr(self._library, function, None)
        return int(call(*arguments)) if call else _NOT_FOUND

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
        """NVML's text for a status."""
        describe = getattr(self._library, "nvmlErrorString", None)
        if describe is None:
            return f"error {status}"
        describe.restype = ctypes.c_char_p
        return str((describe(status) or b"").decode(errors="replace"))


@contextlib.contextmanager
def _open_nvml(library: str) -> Iterator[_Nvml]:
    try:
        nvml = _Nvml(ctypes.CDLL(library))
    except OSError as error:
        raise DriverError(f"no NVIDIA driver: {error}") from error
    if status := nvml.call("nvmlInit_v2"):
        problem = f"the NVIDIA driver does not answer: {nvml.error(status)}"
        raise DriverError(problem, fix=_FIXES.get(status), installed=True)
    try:
        yield nvml
    finally:
        nvml.call("nvmlShutdown")


def _nvidia_board(nvml: _Nvml, handle: ctypes.c_void_p) -> Board | None:
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    results = (ctypes.byref(major), ctypes.byref(minor))
    if nvml.call("nvmlDeviceGetCudaComputeCapability", handle, *results):
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


_CUDA, _HIP, _ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU that a process may use; `index` is torch's."""

    index: int
    name: str
    arch: Arch


@dataclasses.dataclass(frozen=True)
class VisibleGpus:
    """The GPUs that a process may use.

    Attributes:
        gpus: the GPUs, as torch orders them.
        why: one line that says why there are none.
        hidden_by: the environment variable that hides every GPU, if one does.
    """

    gpus: tuple[Gpu, ...]
    why: str | None = None
    hidden_by: str | None = None


def visible_gpus(
    backend: Backend,
    environ: Mapping[str, str] = os.environ,
    *,
    library: str = NVML,
    root: Path = Path("/"),
) -> VisibleGpus:
    """The GPUs of `backend` that this process may use, in torch's order.

    Args:
        backend: the GPUs' backend.
        environ: environment variables; some hide or order GPUs.
        library: NVIDIA's management library.
        root: the folder that holds /sys and /dev.
    """
    try:
        if backend == "cuda":
            boards = cuda_order(nvidia_boards(library), environ)
            return _select_visible(boards, (_CUDA,), environ)
        # HIP reads CUDA's variable where its own is not set.
        hip = _HIP if _HIP in environ else _CUDA
        return _select_visible(amd_boards(environ, root), (_ROCR, hip), environ)
    except TorchwheelError as error:
        return VisibleGpus((), str(error))


def _select_visible(
    boards: Sequence[Board], variables: Sequence[str], environ: Mapping[str, str]
) -> VisibleGpus:
    """Apply the variables in order; each selects from the boards that the one before it left."""
    for variable in variables:
        value = environ.get(variable)
        if value is not None and boards:
            selected = select_boards(value, boards)
            if not selected:
                why = f"{variable}={quote(value)} hides every GPU; {len(boards)} could be used"
                return VisibleGpus((), why, hidden_by=variable)
            boards = selected
    if not boards:
        return VisibleGpus((), "the driver knows of no GPU")
    return VisibleGpus(tuple(Gpu(i, board.name, board.arch) for i, board in enumerate(boards)))
