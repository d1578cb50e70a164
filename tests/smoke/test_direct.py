"""The direct calls of a universal wheel: what they take, and what they leave to the dispatcher."""

import pytest
import torch
from cases.case import copies, outputs
from exact import by_case_and_dtype
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import fusedops
from fusedops.registry import families
from fusedops.typed import direct_call
from torchwheel_runtime import runtime


@pytest.fixture(autouse=True)
def module(gpu):
    if runtime.entry_points("fusedops") is None:
        pytest.skip("no module over DLPack: another wheel than the universal one, or another torch")
    fusedops.bias_gelu(torch.ones(4, 8, device=gpu), torch.ones(8, device=gpu))


@by_case_and_dtype()
def test_a_direct_call_gives_the_dispatchers_bits(case, dtype, gpu):
    direct = direct_call(case.op)
    if direct is None:
        pytest.skip(f"{case.op} has no direct call")
    args = case.inputs(case.strided, dtype, gpu)
    with torch.no_grad():
        result = direct(*copies(args), **case.keywords)
        if result is NotImplemented:
            in_16_bits = dtype in (torch.float16, torch.bfloat16)
            assert case.op in families()["gemm"]
            assert not in_16_bits or case.op.startswith("rms_mlp_gemm")  # it writes to an argument
            pytest.skip("only torch has this product")
        given = outputs(result)
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

    def __torch_function__(self, function, types, args=(), keywords=None):
        return function(*args, **(keywords or {}))


def test_what_only_the_dispatcher_can_take_is_left_to_it(gpu):
    direct = direct_call("bias_gelu")
    x, bias = torch.randn(4, 8, device=gpu), torch.randn(8, device=gpu)
    plain = direct(x, bias)
    assert torch.equal(plain, torch.ops.fusedops.bias_gelu(x, bias))
    asked = x.clone().requires_grad_()
    with torch.inference_mode():
        unversioned = torch.empty_like(x)
    for first, second, keywords in (
        (x.as_subclass(Subclass), bias, {}),
        (asked, bias, {}),
        (x, bias, {"out": asked}),
        (x, bias, {"out": unversioned}),
        (x, bias, {"out": x[:, :4]}),
        (x, bias, {"approximate": 1}),
        (x.to_sparse(), bias, {}),
        (None, bias, {}),
        (torch.complex(x, x).conj().imag, bias, {}),
    ):
        assert direct(first, second, **keywords) is NotImplemented
    for watched in (DispatchMode(), FunctionMode(), profile(activities=[ProfilerActivity.CPU])):
        with watched:
            assert direct(x, bias) is NotImplemented
    with forward_ad.dual_level():
        assert direct(x, bias) is NotImplemented
    left = []
    torch.func.vmap(lambda row: left.append(direct(row, bias)) or row)(x)
    torch.func.functionalize(lambda row: left.append(direct(row, bias)) or row)(x)
    torch.jit.trace(lambda row: left.append(direct(row, bias)) or row, x, check_trace=False)
    assert left == [NotImplemented] * 3
    with torch.no_grad():
        assert torch.equal(direct(asked, bias), plain)
    for refused in (bias[:4], bias.half()):
        assert direct(x, refused) is NotImplemented  # the dispatcher's way has the words
    with pytest.raises(ValueError, match=r"bias_gelu: bias: expected shape \[8\]"):
        fusedops.bias_gelu(x, bias[:4])


def test_tensors_on_a_cpu_are_left_to_the_dispatcher(gpu):
    direct = direct_call("bias_gelu")
    x, bias = torch.randn(4, 8, device=gpu), torch.randn(8, device=gpu)
    assert direct(x.cpu(), bias.cpu()) is NotImplemented
    assert direct(x, bias.cpu()) is NotImplemented
    with pytest.raises(ValueError, match="bias_gelu: bias: expected device cuda"):
        fusedops.bias_gelu(x, bias.cpu())


def test_a_profiler_sees_the_operator(gpu):
    x = torch.randn(4, 8, device=gpu)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        fusedops.bias_gelu(x, x[0])
    assert "fusedops::bias_gelu" in {event.key for event in profiled.key_averages()}
