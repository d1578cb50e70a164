"""Host time of a call by type, beside torch.nn.functional.gelu and the dispatching function.

    python bench/entry_points.py [--rounds 31] [--out FILE]

Tensors are tiny, so the GPU waits for the host. The table has medians over all rounds, in
microseconds and as a multiple of F.gelu's of the same rounds. Needs a GPU and an installed wheel.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from kernelbench.host import medians_us
from torch.nn import functional as F  # noqa: N812

import fusedops
from torchwheel_runtime import runtime

_ROWS, _COLS = 4, 256

_Form = Callable[[Any], Callable[[], object]]
_OutForm = Callable[[Any, Any], Callable[[], object]]


def contestants() -> dict[str, Callable[[], object]]:
    """Calls on bfloat16 tensors, by name; `X out=` writes to a tensor that is there."""

    def tensor(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16)

    x, residual, row = tensor(_ROWS, _COLS), tensor(_ROWS, _COLS), tensor(_COLS)
    gates, scores = tensor(_ROWS, 2 * _COLS), tensor(1, 2, 4, 64)
    q, k = tensor(1, 2, 4, 64), tensor(1, 2, 2, 64)
    # A call as a user writes it, and the same with out=. functools.partial would add time for out=.
    forms: dict[str, tuple[_Form, _OutForm]] = {
        "vector_add": (
            lambda f: lambda: f(x, residual),
            lambda f, out: lambda: f(x, residual, out=out),
        ),
        "bias_add": (lambda f: lambda: f(x, row), lambda f, out: lambda: f(x, row, out=out)),
        "bias_gelu": (lambda f: lambda: f(x, row), lambda f, out: lambda: f(x, row, out=out)),
        "gated_activation": (
            lambda f: lambda: f(gates, kind="swiglu"),
            lambda f, out: lambda: f(gates, kind="swiglu", out=out),
        ),
        "bias_residual": (
            lambda f: lambda: f(x, residual, row),
            lambda f, out: lambda: f(x, residual, row, out=out),
        ),
        "layer_norm": (
            lambda f: lambda: f(x, row, row),
            lambda f, out: lambda: f(x, row, row, out=out),
        ),
        "rms_norm": (lambda f: lambda: f(x, row), lambda f, out: lambda: f(x, row, out=out)),
        "softmax": (lambda f: lambda: f(scores), lambda f, out: lambda: f(scores, out=out)),
        "apply_rotary_pos_emb": (
            lambda f: lambda: f(q, k, rotary_dim=64),
            lambda f, out: lambda: f(q, k, rotary_dim=64, out=out),
        ),
    }
    calls: dict[str, Callable[[], object]] = {
        "F.gelu": lambda: F.gelu(x),
        "torch.empty_like": lambda: torch.empty_like(x),
    }
    for name, (form, with_out) in forms.items():
        typed, function = getattr(fusedops, f"{name}_bf16"), getattr(fusedops, name)
        calls[f"{name}_bf16"] = form(typed)
        calls[f"{name}_bf16 out="] = with_out(typed, form(typed)())
        calls[name] = form(function)
    return calls


def main() -> None:
    """Measure, print the table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with torch.inference_mode():
        calls = contestants()
        for call in calls.values():
            for _ in range(20):
                call()
        medians = medians_us(calls, torch.cuda.synchronize, options.rounds)
    gelu = medians["F.gelu"]
    print(f"{'':32}{'us':>8}{'x F.gelu':>10}")
    for name, us in medians.items():
        print(f"{name:32}{us:8.2f}{us / gelu:10.2f}")
    if options.out:
        record = {
            "date": time.strftime("%Y-%m-%d"),
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "over_dlpack": runtime.entry_points("fusedops") is not None,
            "rounds": options.rounds,
            "median_us": medians,
            "times_gelu": {name: us / gelu for name, us in medians.items()},
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
