"""GPUs as a driver lists them, and the variables that choose among them."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from torchwheel.arch.model import Arch

_KINDS = ("GPU-", "MIG-")
# "1gpu2" is 1, as strtoul() reads it and CUDA with it.
_NUMBER = re.compile(r"\s*\+?([0-9]{1,9})", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Board:
    """A GPU as its driver knows it.

    Attributes:
        name: e.g. "NVIDIA H200".
        arch: what it runs.
        uuid: e.g. "GPU-8a6c…"; empty if it has none.
        slices: UUIDs of its MIG instances.
        speed: cores times clock, to compare boards by; 0 if unknown, or if all are alike.
    """

    name: str
    arch: Arch
    uuid: str = ""
    slices: tuple[str, ...] = ()
    speed: int = 0


def cuda_order(boards: Sequence[Board], environ: Mapping[str, str]) -> Sequence[Board]:
    """Boards as CUDA counts them: the fastest first, unless told to keep the order of the bus.

    How it ranks unlike boards is nowhere written; cores times clock is an estimate.
    """
    if environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({b.name for b in boards}) < 2:
        return boards
    return sorted(boards, key=lambda board: -board.speed)


def chosen(value: str, boards: Sequence[Board]) -> Sequence[Board]:
    """The boards that a variable such as CUDA_VISIBLE_DEVICES names, in its order.

    It holds numbers, or beginnings of UUIDs. The list ends before an entry of the other kind, or
    one that names no board or more than one; if a board is named twice by then, there is none. Of
    MIG instances a process can use one, the first.
    """
    kind = next((kind for kind in _KINDS if value.startswith(kind)), "")
    found: list[int] = []
    for entry in value.split(","):
        index = _by_id(entry, kind, boards) if kind else _by_number(entry, boards)
        if index is None:
            break
        found.append(index)
    if kind == "MIG-":
        found = found[:1]
    return [boards[i] for i in found] if len(set(found)) == len(found) else []


def _by_number(entry: str, boards: Sequence[Board]) -> int | None:
    found = _NUMBER.match(entry)
    return int(found[1]) if found and int(found[1]) < len(boards) else None


def _by_id(entry: str, kind: str, boards: Sequence[Board]) -> int | None:
    digits = entry.removeprefix(kind).lower()
    if not digits or not entry.startswith(kind):
        return None
    ids = [(i, uuid) for i, board in enumerate(boards) for uuid in (board.uuid, *board.slices)]
    found = [i for i, uuid in ids if uuid.startswith(kind + digits)]
    return found[0] if len(found) == 1 else None
