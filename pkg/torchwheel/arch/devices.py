"""The GPUs that this process may use, found without starting CUDA or HIP in it.

A process that has started them cannot fork workers that use a GPU, so nothing here may.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.arch import kfd, nvml
from torchwheel.arch.backend import Backend
from torchwheel.arch.board import Board, chosen, cuda_order
from torchwheel.arch.model import Arch
from torchwheel.errors import TorchwheelError
from torchwheel.shown import quoted

_CUDA, _HIP, _ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU that a process may use; `index` as torch counts them."""

    index: int
    name: str
    arch: Arch


@dataclasses.dataclass(frozen=True)
class Visible:
    """The GPUs that a process may use; without any, `why` is one line."""

    gpus: tuple[Gpu, ...]
    why: str | None = None


def visible(
    backend: Backend,
    environ: Mapping[str, str] = os.environ,
    *,
    library: str = nvml.LIBRARY,
    root: Path = Path("/"),
) -> Visible:
    """The GPUs of `backend` that this process may use, in torch's order.

    Args:
        backend: whose GPUs.
        environ: environment variables; those that hide or order GPUs are heeded.
        library: NVIDIA's management library.
        root: the folder that holds /sys and /dev.
    """
    try:
        if backend == "cuda":
            boards = cuda_order(nvml.boards(library), environ)
            return _seen(boards, (_CUDA,), environ)
        # HIP heeds CUDA's variable where its own is not set.
        hip = _HIP if _HIP in environ else _CUDA
        return _seen(kfd.boards(environ, root), (_ROCR, hip), environ)
    except TorchwheelError as error:
        return Visible((), str(error))


def _seen(boards: Sequence[Board], variables: Sequence[str], environ: Mapping[str, str]) -> Visible:
    """What is left when each variable has chosen from what the one before it left."""
    for variable in variables:
        value = environ.get(variable)
        if value is not None and boards:
            left = chosen(value, boards)
            if not left:
                what = f"{variable}={quoted(value)} hides every GPU; {len(boards)} could be used"
                return Visible((), what)
            boards = left
    if not boards:
        return Visible((), "the driver knows of no GPU")
    return Visible(tuple(Gpu(i, board.name, board.arch) for i, board in enumerate(boards)))
