"""Compares the bits of a modelled GPU with those of a real one.

    python emulated_bits.py dump FILE [DEVICE]     # in an environment with a wheel, on its GPU
    nox -s emulate -- --model sm_90 --bits FILE    # the same on the model
    python emulated_bits.py compare FILE FILE      # how many elements differ, and by how much

The inputs are made on the CPU, so they are the same everywhere. FILE holds a table for the results
of each case and dtype, and one for their gradients: torch sums some of these, such as a bias's.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "smoke"))
from cases import CASES, Case
from cases.case import outputs

Tables = dict[str, list[torch.Tensor]]
RESULTS, GRADIENTS = "results", "gradients"


def of_case(case: Case, device: torch.device) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Tables of results and gradients of every dtype, at the small shapes and the strided one."""
    for dtype in case.dtypes:
        name = f"{case.name} {str(dtype).removeprefix('torch.')}"
        found: list[torch.Tensor] = []
        found_gradients: list[torch.Tensor] = []
        # float64 is for gradient checks: the small shapes are enough.
        larger = () if dtype == torch.float64 else (case.strided,)
        for shape in (*case.small, *larger):
            torch.manual_seed(sum(shape))
            args = tuple(
                arg.to(device) if isinstance(arg, torch.Tensor) else arg
                for arg in case.inputs(shape, dtype, torch.device("cpu"))
            )
            wanted = [one for one in args if isinstance(one, torch.Tensor)]
            wanted = [one for one in wanted if case.differentiable and one.is_floating_point()]
            for one in wanted:
                one.requires_grad_()
            results = outputs(case.ours(*args))
            found += [one.detach().cpu() for one in results]
            if wanted:
                grads = [torch.randn(one.shape).to(one.dtype).to(device) for one in results]
                gradients = torch.autograd.grad(results, wanted, grads, allow_unused=True)
                found_gradients += [one.cpu() for one in gradients if one is not None]
        yield f"{name} {RESULTS}", found
        if found_gradients:
            yield f"{name} {GRADIENTS}", found_gradients


def dump(path: Path, device: torch.device) -> None:
    """Writes the tables of all cases."""
    tables: Tables = {}
    for case in CASES:
        tables.update(of_case(case, device))
    torch.save(tables, path)
    print(f"{path}: {len(tables)} tables of {device}")


def compare(one: Tables, other: Tables) -> list[tuple[str, int, int, float]]:
    """For each table: elements, those with other bits, and the largest difference in ulps."""
    rows = []
    for name in one.keys() & other.keys():
        total, differ, most = 0, 0, 0.0
        for a, b in zip(one[name], other[name], strict=True):
            same = (a == b) | (a.isnan() & b.isnan())
            total, differ = total + a.numel(), differ + int((~same).sum())
            scale = torch.finfo(a.dtype).eps * b.double().abs().clamp_min(
                b.double().square().mean().sqrt() if b.numel() else 0
            )
            off = ((a.double() - b.double()).abs() / scale)[~same]
            most = max(most, float(off.max()) if off.numel() else 0.0)
        rows.append((name, total, differ, most))
    return sorted(rows)


def main(arguments: list[str]) -> int:
    """Dumps or compares, as the arguments say."""
    if arguments[:1] == ["compare"]:
        rows = compare(*(torch.load(path) for path in arguments[1:3]))
        for name, total, differ, most in rows:
            print(f"{name:60} {total:9} elements  {differ:9} differ  {most:8.2f} ulp")
        for kind in (RESULTS, GRADIENTS):
            equal = [differ == 0 for name, _, differ, _ in rows if name.endswith(f" {kind}")]
            print(f"{sum(equal)} of {len(equal)} tables of {kind} are equal bit for bit")
        return 0
    dump(Path(arguments[1]), torch.device(arguments[2] if len(arguments) > 2 else "cuda"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
