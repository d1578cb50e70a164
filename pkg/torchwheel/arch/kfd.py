"""AMD's GPUs as the Linux kernel lists them in /sys: nothing of ROCm is loaded."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from torchwheel.arch.board import Board
from torchwheel.arch.model import RocmArch
from torchwheel.errors import TorchwheelError

_NODES = "sys/class/kfd/kfd/topology/nodes"
_DEVICE = "dev/kfd"
_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
_VERSION = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{1,2})", re.ASCII)


def boards(environ: Mapping[str, str], root: Path = Path("/")) -> list[Board]:
    """The GPUs that this process may open, in the order in which ROCm counts them.

    HSA_OVERRIDE_GFX_VERSION says that a GPU is to be taken for another, as ROCm takes it then.

    Raises:
        TorchwheelError: there is no driver, or this user may not use it.
    """
    nodes, device = root / _NODES, root / _DEVICE
    try:
        numbers = sorted(int(entry.name) for entry in nodes.iterdir() if entry.name.isdecimal())
    except OSError as error:
        raise TorchwheelError(f"no AMD GPU driver: {nodes}: {error.strerror}") from error
    if not os.access(device, os.R_OK | os.W_OK):
        raise TorchwheelError(
            f"no access to {device}: add this user to the groups render and video, "
            "or give the container the device"
        )
    found = (_board(nodes / str(number), number, environ, root) for number in numbers)
    return [board for board in found if board is not None]


def driver(root: Path = Path("/")) -> str | None:
    """The release of AMD's kernel driver, the kernel's where it came with that; None without it."""
    module = root / "sys/module/amdgpu"
    try:
        return (module / "version").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return os.uname().release if module.is_dir() else None


def _board(node: Path, number: int, environ: Mapping[str, str], root: Path) -> Board | None:
    """A node's GPU; None for a processor, and for a GPU that is kept from this container."""
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
    found = _VERSION.fullmatch(value)
    if found is None:
        return None
    major, minor, stepping = map(int, found.groups())
    return RocmArch(major, minor, stepping)


def _name(root: Path, facts: Mapping[str, str]) -> str:
    """The product's name, which only some boards tell the kernel."""
    render = root / f"sys/class/drm/renderD{facts.get('drm_render_minor')}/device/product_name"
    try:
        return render.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
