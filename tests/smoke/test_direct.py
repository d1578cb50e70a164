"""The direct calls of a universal wheel: what they take, and what they leave to the dispatcher."""

import pytest
import torch
from cases import CASES
from cases.case import copies, outputs
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fusedops
from fusedops.typed import TYPES, direct_call
from torchwheel import runtime


@pytest.fixture(autouse=True)
def module(gpu):
    if runtime.entry_points("fusedops") is None:
        pytest.skip("no module over DLPack: another wheel than the universal one, or another torch")
    fusedops.bias_gelu(torch.ones(4, 8, device=gpu), torch.ones(8, device=gpu))


@pytest.mark.parametrize("dtype", TYPES.values())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_direct_call_gives_the_dispatchers_bits(case, dtype, gpu):
    direct = direct_call(case.op)
    if direct is None or dtype not in case.dtypes:
        pytest.skip(f"{case.name}: for {dtype} it has no direct call")
    args = case.inputs(case.strided, dtype, gpu)
    with torch.no_grad():
        given = outputs(direct(*copies(args), **case.keywords))
        packet = getattr(torch.ops.fusedops, case.op)
        expected = outputs(packet(*copies(args), **case.keywords))
    assert len(given) == len(expected)
    for one, other in zip(given, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


class Subclass(torch.Tensor):
    """A tensor of its own type."""


class DispatchMode(TorchDispatchMode):
    """Sees operators and changes nothing."""

    def __torch_dispatch__(self, function, types, args=(), keywords=None):
        return function(*args, **(keywords or {}))


class FunctionMode(TorchFunctionMode):
    """Sees functions and changes nothing."""


def test_what_only_the_dispatcher_can_take_is_left_to_it(gpu):
    direct = direct_call("bias_gelu")
    x = torch.randn(4, 8, device=gpu)
    plain = direct(x, x[0])
    assert torch.equal(plain, torch.ops.fusedops.bias_gelu(x, x[0]))
    asked = x.clone().requires_grad_()
    for first, second, keywords in (
        (x.as_subclass(Subclass), x[0], {}),
        (x.cpu(), x[0].cpu(), {}),
        (asked, x[0], {}),
        (x, x[0], {"out": asked}),
        (x, x[0], {"out": x[:, :4]}),
        (x, x[0], {"approximate": 1}),
        (x.to_sparse(), x[0], {}),
        (None, x[0], {}),
        (torch.complex(x, x).conj().imag, x[0], {}),
    ):
        assert direct(first, second, **keywords) is NotImplemented
    for watched in (DispatchMode(), FunctionMode(), torch.profiler.profile()):
        with watched:
            assert direct(x, x[0]) is NotImplemented
    with forward_ad.dual_level():
        assert direct(x, x[0]) is NotImplemented
    left = []
    torch.func.vmap(lambda row: left.append(direct(row, x[0])) or row)(x)
    torch.func.functionalize(lambda row: left.append(direct(row, x[0])) or row)(x)
    torch.jit.trace(lambda row: left.append(direct(row, x[0])) or row, x, check_trace=False)
    assert left == [NotImplemented] * 3
    with torch.no_grad():
        assert torch.equal(direct(asked, x[0]), plain)
    with pytest.raises(RuntimeError, match=r"bias_gelu: bias: expected shape \[8\]"):
        direct(x, x[0, :4])
    with pytest.raises(RuntimeError, match="bias_gelu: bias: expected device cuda"):
        direct(x, x[0].cpu())


def test_a_profiler_sees_the_operator(gpu):
    x = torch.randn(4, 8, device=gpu)
    with torch.profiler.profile() as profile:
        fusedops.bias_gelu(x, x[0])
    assert "fusedops::bias_gelu" in {event.key for event in profile.key_averages()}
