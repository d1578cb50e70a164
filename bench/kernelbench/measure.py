"""Times the cells."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kernelbench import host
from kernelbench.case import DEVICE, Arguments, Case
from kernelbench.peers import contestants
from kernelbench.record import HostTime, Row
from kernelbench.timing import (
    Cache,
    Captured,
    Contestant,
    Copies,
    interleaved,
    sets_needed,
    turn,
)

LARGE_BYTES = 1 << 28


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _recover() -> None:
    """Go on after a call that failed, if the context is not broken."""
    with contextlib.suppress(RuntimeError):  # a launch that was refused fails the next check too
        torch.zeros((), device=DEVICE)
    torch.cuda.synchronize()  # a broken context must not pass for a slow peer


def _copied(arguments: Arguments) -> Arguments:
    return tuple(a.clone() if isinstance(a, Tensor) else a for a in arguments)


def _tensors(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else result


def difference(case: Case, arguments: Arguments) -> float:
    """The largest relative difference, by norm, of our results and plain PyTorch's."""
    ours = _tensors(case.ours(*_copied(arguments)))
    right = _tensors(case.plain(*_copied(arguments)))
    norm = torch.linalg.vector_norm
    return max(
        float(
            norm(a.reshape(b.shape) - b, dtype=torch.float32)
            / norm(b, dtype=torch.float32).clamp_min(1e-30)
        )
        for a, b in zip(ours, right, strict=True)
    )


def _check(case: Case, arguments: Arguments) -> str | None:
    """What is wrong with our results."""
    try:
        found = difference(case, arguments)
    except Exception as error:
        return _first_line(error)
    return None if found <= case.tolerance else f"wrong: differs by {found:.2g} from the first peer"


def measure(
    family: str, case: Case, cache: Cache, samples: int, without: Mapping[str, str], lock: Path
) -> Row:
    """Time one cell; who cannot run is noted, not fatal.

    Args:
        family: whose cell it is.
        case: the cell.
        cache: emptied before every sample.
        samples: of each contestant.
        without: peers that are not to be tried, and why.
        lock: of the GPU, while the samples are taken.
    """
    torch.compiler.reset()
    moved = case.bytes_moved
    inputs = [case.inputs(DEVICE) for _ in range(sets_needed(moved))]
    failures = dict(without)
    wrong = _check(case, inputs[0])
    if wrong:
        failures["ours"] = wrong
    ready: dict[str, Contestant] = {} if case.in_time else {"copy": Copies(moved, cache)}
    for who, call in ({"ours": case.ours} | contestants(case)).items():
        if who in without:
            continue
        try:
            ready[who] = Captured(call, inputs, moved, cache)
        except Exception as error:
            failures.setdefault(who, _first_line(error))
            _recover()
    with turn(lock):
        times = interleaved(ready, samples)
    row = Row(
        *(family, case.op, case.way, case.dtype_name, case.shape_name),
        *(moved, case.in_time, times, failures),
    )
    del ready, inputs
    if moved > LARGE_BYTES:
        torch.cuda.empty_cache()
    return row


def host_time(family: str, case: Case) -> HostTime:
    """What calls on tiny tensors cost the host: ours, the peers that run, and F.gelu.

    F.gelu also as torch.ops has it, which is the way to every operator of an extension.
    """
    arguments = case.inputs(DEVICE)
    x = torch.randn(64, device=DEVICE, dtype=case.dtype)
    calls: dict[str, Any] = {"ours": lambda: case.ours(*arguments)}
    calls |= {who: lambda call=call: call(*arguments) for who, call in case.peers.items()}
    calls["torch.ops.gelu"] = lambda: torch.ops.aten.gelu(x)
    calls["gelu"] = lambda: functional.gelu(x)
    for who, call in list(calls.items()):
        try:
            call()
            torch.cuda.synchronize()
        except Exception:  # the cells say why
            del calls[who]
            _recover()
    return HostTime(family, case.op, case.way, host.medians_us(calls, torch.cuda.synchronize))
