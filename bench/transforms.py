"""Host time of a call and of its gradient, by autograd and by torch.func, beside F.gelu's.

    python bench/transforms.py [--rounds 31] [--device cuda] [--out FILE]

Tensors are tiny, so the GPU waits for the host. An operator has three rows: the call without a
gradient, and the gradient of its sum by torch.autograd.grad and by torch.func.grad, forward and
backward. The table has medians over all rounds, in microseconds and as a multiple of the same row
of F.gelu. On a CPU the operators are plain PyTorch: that shows that the command works, and no more.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch
from kernelbench.host import medians_us
from torch.nn import functional as F  # noqa: N812

import fusedops

_ROWS, _COLS = 4, 256
_WAYS = ("call", "autograd", "torch.func")


def functions(device: torch.device) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Functions of one tensor [_ROWS, _COLS], by name; F.gelu first."""

    def tensor(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device=device, dtype=torch.bfloat16)

    residual, row = tensor(_ROWS, _COLS), tensor(_COLS)
    return {
        "F.gelu": F.gelu,
        "vector_add": lambda x: fusedops.vector_add(x, residual),
        "bias_gelu": lambda x: fusedops.bias_gelu(x, row),
        "gated_activation": lambda x: fusedops.gated_activation(x, kind="swiglu"),
        "bias_residual": lambda x: fusedops.bias_residual(x, residual, row),
        "layer_norm": lambda x: fusedops.layer_norm(x, row, row),
        "rms_norm": lambda x: fusedops.rms_norm(x, row),
        "softmax": lambda x: fusedops.softmax(x[None, None]),
    }


def contestants(device: torch.device) -> dict[str, Callable[[], object]]:
    """Calls by name: a function's and a way's."""
    plain = torch.randn(_ROWS, _COLS, device=device, dtype=torch.bfloat16)
    asking = plain.clone().requires_grad_()
    calls: dict[str, Callable[[], object]] = {}
    for name, function in functions(device).items():

        def loss(
            x: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor] = function
        ) -> torch.Tensor:
            return function(x).sum()

        gradient = torch.func.grad(loss)
        ways: tuple[Callable[[], object], ...] = (
            lambda function=function: function(plain),
            lambda loss=loss: torch.autograd.grad(loss(asking), asking),
            lambda gradient=gradient: gradient(plain),
        )
        calls |= {f"{name}, {way}": call for way, call in zip(_WAYS, ways, strict=True)}
    return calls


def main() -> None:
    """Measure, print the table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    on_gpu = options.device.type == "cuda"
    calls = contestants(options.device)
    for call in calls.values():
        for _ in range(20):
            call()
    medians = medians_us(calls, torch.cuda.synchronize if on_gpu else lambda: None, options.rounds)
    times = {name: us / medians[f"F.gelu, {name.rsplit(', ')[-1]}"] for name, us in medians.items()}
    print(f"{'':32}{'us':>8}{'x F.gelu':>10}")
    for name, us in medians.items():
        print(f"{name:32}{us:8.2f}{times[name]:10.2f}")
    if options.out:
        record = {
            "date": time.strftime("%Y-%m-%d"),
            "device": torch.cuda.get_device_name() if on_gpu else platform.machine(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "rounds": options.rounds,
            "median_us": medians,
            "times_gelu": times,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
