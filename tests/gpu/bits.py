"""Run in an environment with one wheel: prints a digest of what every operator gives.

    python bits.py [DEVICE]

The inputs depend on nothing but torch's generator; gradients are taken too. JSON, one line, last.
"""

import ctypes
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "smoke"))
from cases import CASES, PRIVATE, Case
from cases.case import copies, outputs

import fusedops


def digest(tensors: Iterable[torch.Tensor | None]) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            host = tensor.detach().flatten().clone().view(torch.uint8).cpu()
            found.update(ctypes.string_at(host.data_ptr(), host.numel()))
    return found.hexdigest()


def of_case(case: Case, device: torch.device) -> Iterable[torch.Tensor | None]:
    """Results, and gradients, of every dtype and some shapes."""
    for shape in (*case.small, case.backward[-1] if device.type == "cuda" else case.strided):
        for dtype in case.dtypes:
            torch.manual_seed(sum(shape))
            args = case.inputs(shape, dtype, device)
            wanted = [one for one in args if isinstance(one, torch.Tensor)]
            wanted = [one for one in wanted if case.differentiable and one.is_floating_point()]
            for one in wanted:
                one.requires_grad_()
            results = outputs(case.ours(*args))
            yield from results
            if wanted:
                grads = [torch.randn_like(one) for one in results]
                yield from torch.autograd.grad(results, wanted, grads, allow_unused=True)


def of_private(name: str, device: torch.device) -> Iterable[torch.Tensor]:
    """Results, and the arguments, some of which are written to."""
    torch.manual_seed(len(name))
    args, keywords = PRIVATE[name](device)
    args = copies(args)
    results = getattr(torch.ops.fusedops, name)(*args, **keywords)
    for one in (*outputs(results), *args):
        if isinstance(one, torch.Tensor):
            yield one


def main() -> None:
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
    found = {case.name: digest(of_case(case, device)) for case in CASES}
    found |= {name: digest(of_private(name, device)) for name in PRIVATE}
    assert device.type == "cpu" or fusedops.status().native, fusedops.status().reason
    print(json.dumps({"library": fusedops.status().reason, "bits": found}))


if __name__ == "__main__":
    main()
