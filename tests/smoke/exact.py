"""How far a result may be from the truth, and what makes a test able to see a wrong one."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from cases import CASES, DTYPES
from cases.case import Case, outputs
from torch import Tensor

import fusedops

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
DIFFERENTIABLE = tuple(case for case in CASES if case.differentiable)
by_differentiable = pytest.mark.parametrize("case", DIFFERENTIABLE, ids=lambda case: case.name)
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).split(".")[1])


def by_operator(cases: Sequence[Case] = CASES) -> pytest.MarkDecorator:
    """Parametrizes slow tests. A push tries the first case of each operator, a wheel every case."""
    marked = [pytest.param(case, marks=_of_night(case, cases), id=case.name) for case in cases]
    return pytest.mark.parametrize("case", marked)


def _of_night(
    case: Case, cases: Sequence[Case], dtype: torch.dtype | None = None
) -> tuple[pytest.MarkDecorator, ...]:
    first = next(one for one in cases if one.op == case.op)
    each_push = case is first and dtype in (None, case.dtypes[0], torch.bfloat16)
    return () if each_push else (pytest.mark.nightly,)


def by_case_and_dtype(*, slow: bool = False) -> pytest.MarkDecorator:
    """Parametrizes over the dtypes of each case.

    A push tries the first case of each operator in two of them if the test is slow.
    """
    marked = [
        pytest.param(
            case,
            dtype,
            marks=_of_night(case, CASES, dtype) if slow else (),
            id=f"{str(dtype).split('.')[1]}-{case.name}",
        )
        for dtype in DTYPES
        for case in CASES
        if dtype in case.dtypes
    ]
    return pytest.mark.parametrize(("case", "dtype"), marked)


def the_case(name: str) -> Case:
    """The case of that name, or the first of the operator of that name."""
    return next(case for case in CASES if name in (case.name, case.op))


def fell_back() -> bool:
    """Whether plain PyTorch runs on the GPU: nothing is prebuilt and nothing could be built."""
    return any(one.way == "fallback" for one in fusedops.status().operators)


def by_torch(device: torch.device, case: Case) -> bool:
    """Whether plain PyTorch computes the case. A modelled GPU has kernels for CPU tensors."""
    if device.type != "cpu":
        return fell_back()
    return not torch._C._dispatch_has_kernel_for_dispatch_key(f"fusedops::{case.op}", "CPU")


def assert_close(actual: Any, exact: Any, dtype: torch.dtype, case: Case) -> None:
    """Every result has the shape of the truth, is contiguous and close to it."""
    pairs = list(zip(outputs(actual), outputs(exact), strict=True))
    for one, truth in pairs:
        assert one.dtype == dtype
        assert one.shape == truth.shape
        assert one.is_contiguous()
        if one.numel():
            _assert_close(one, truth, dtype, case)


def _assert_close(actual: Tensor, exact: Tensor, dtype: torch.dtype, case: Case) -> None:
    """Every element is within a rounding of `dtype` and the arithmetic's own error of the truth.

    16-bit results are rounded once: half an ulp and a little. float32's sum x + b is rounded before
    the activation, which magnifies it in the negative tail, so its bound is absolute there; and
    torch's GELU, which is the reference, loses digits there by cancellation.
    """
    relative, absolute = {
        torch.float32: (1e-6, 1e-6),
        torch.float16: (0.51 * 2**-10, 2e-7),
        torch.bfloat16: (0.51 * 2**-7, 1e-7),
        torch.float64: (1e-13, 1e-15),
    }[dtype]
    finer = 2**-26 if dtype == torch.float64 else 1  # its functions are not quite 2^29 times better
    relative, absolute = relative + case.relative * finer, absolute + case.absolute * finer
    if dtype == torch.float64:
        absolute = max(absolute, case.float64_absolute)
    elif by_torch(actual.device, case):
        # F.gelu's vectorised erf is off by 1.3e-6 at most (20 M points between -12 and 12).
        absolute = max(absolute, 2e-6)
    sum_ulps = max(case.sum_ulps, case.float32_ulps if dtype == torch.float32 else 0.0)
    if sum_ulps:
        scale = exact.square().mean().sqrt().item()
        absolute += sum_ulps * torch.finfo(dtype).eps * scale
    error = (actual.double() - exact).abs()
    bound = relative * exact.abs() + absolute
    worst = int((error - bound).nan_to_num(nan=math.inf).argmax())
    assert bool((error <= bound).all()), (
        f"{case.name} {dtype}: element {worst} of {list(exact.shape)} is "
        f"{actual.flatten()[worst].item()!r}, exact {exact.flatten()[worst].item()!r}"
    )


def poison(like: Any) -> None:
    """Fill with NaN the memory that torch's allocator gives out next for such tensors."""
    blocks = [
        torch.full(one.shape, math.nan, dtype=one.dtype, device=one.device)
        for one in outputs(like)
        if one.is_floating_point()
        for _ in range(3)
    ]
    del blocks


def laid_out_otherwise(tensor: Tensor) -> Iterator[Tensor]:
    """The same values: off 16 bytes by each number of elements, with gaps, with turned strides."""
    flat = tensor.reshape(-1)
    for off in range(1, 16 // tensor.element_size()):
        yield torch.cat([flat[:1].expand(off), flat])[off:].view(tensor.shape)
    other = ~tensor if tensor.dtype == torch.bool else -tensor
    yield torch.stack([tensor, other], -1)[..., 0]
    if tensor.dim() > 1:
        yield torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]]
        yield tensor.transpose(0, -1).contiguous().transpose(0, -1)


def relative_error(actual: Tensor, exact: Tensor, scale: float = 0.0) -> float:
    """Of the norm; `scale`, the size of what came in, is the least that an error is compared with.

    The slope of GELU crosses 0, and a sum can cancel.
    """
    return (actual.double() - exact).norm().item() / max(exact.norm().item(), scale, 1e-30)
