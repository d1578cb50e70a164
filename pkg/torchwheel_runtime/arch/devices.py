"""Lists the GPUs that this process may use, and starts neither CUDA nor HIP.

A process that has started one of them cannot fork workers that use a GPU.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel_runtime.arch import drivers
from torchwheel_runtime.arch.drivers import Board, cuda_order, select_boards
from torchwheel_runtime.arch.model import Arch, Backend
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.text import quote

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
    library: str = drivers.NVML,
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
            boards = cuda_order(drivers.nvidia_boards(library), environ)
            return _select_visible(boards, (_CUDA,), environ)
        # HIP reads CUDA's variable where its own is not set.
        hip = _HIP if _HIP in environ else _CUDA
        return _select_visible(drivers.amd_boards(environ, root), (_ROCR, hip), environ)
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
