"""Entry points by type: the same bits as the operators, one type each, no gradient."""

import pickle
from inspect import Parameter, signature
from types import BuiltinFunctionType

import other_framework
import pytest
import torch
from cases import DTYPES
from cases.case import copies, outputs
from exact import by_case_and_dtype
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import fusedops
from fusedops.registry import OPS
from torchwheel_runtime import runtime

SUFFIXES = dict(zip(DTYPES, ("fp32", "fp16", "bf16", "fp64"), strict=True))


def typed(case, dtype):
    function = getattr(fusedops, f"{case.op}_{SUFFIXES[dtype]}")
    return lambda *args, **more: function(*args, **case.keywords, **more)


@by_case_and_dtype()
def test_an_entry_point_gives_its_operators_bits(case, dtype, gpu):
    args = case.inputs(case.strided, dtype, gpu)
    strided = args[0].transpose(0, -1).contiguous().transpose(0, -1)
    for first in (args[0], strided):
        actual = outputs(typed(case, dtype)(*copies((first, *args[1:]))))
        expected = outputs(case.ours(first, *args[1:]))
        assert all(torch.equal(one, other) for one, other in zip(actual, expected, strict=True))


@pytest.mark.filterwarnings("ignore")  # torch's own: prototypes
@pytest.mark.parametrize("wrong", ["sparse", "nested"])
def test_a_tensor_without_strides_is_refused_by_name_on_a_cpu_too(wrong, anywhere):
    x = torch.ones(3, 4, device=anywhere)
    found = x.to_sparse() if wrong == "sparse" else torch.nested.nested_tensor([x, x])
    for call, name in (
        (lambda: fusedops.vector_add_fp32(found, x), "vector_add_fp32: a: "),
        (lambda: fusedops.vector_add_fp32(x, found), "vector_add_fp32: "),
        (lambda: fusedops.rms_norm_fp32(found, x[0]), "rms_norm_fp32: x: "),
        (lambda: fusedops.vector_matmul_fp32(found, x.T), "vector_matmul_fp32: x: "),
    ):
        with pytest.raises((TypeError, RuntimeError)) as caught:
            call()
        assert str(caught.value).startswith(name)
        assert "\n" not in str(caught.value)


def test_the_module_has_every_operator_for_every_type():
    module = fusedops.status().module
    if module is None:
        pytest.skip("no extension module is loaded: the entry points are Python's")
    for op in OPS:
        for suffix in SUFFIXES.values() if op.public else ():
            actual = getattr(module, f"{op.name}_{suffix}")
            assert getattr(fusedops, f"{op.name}_{suffix}") is actual
            assert parameters(actual) == expected_parameters(op)


def parameters(function):
    return [(one.name, one.kind, one.default) for one in signature(function).parameters.values()]


def expected_parameters(op):
    """Those of the schema, and out= if it writes to no argument."""
    ours = parameters(getattr(fusedops, op.name))
    declared = ours[: len(getattr(torch.ops.fusedops, op.name).default._schema.arguments)]
    return declared if writes(op.name) else [*declared, ("out", Parameter.KEYWORD_ONLY, None)]


def writes(op):
    return getattr(torch.ops.fusedops, op).default._schema.is_mutable


def test_an_entry_point_is_pickled_by_its_name():
    for function in (fusedops.rms_norm_fp32, fusedops.vector_matmul_fp32):
        assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301 - our own


def test_entry_points_over_dlpack_have_the_operators_signatures():
    if runtime.entry_points("fusedops") is None:
        pytest.skip("no module over DLPack: another wheel than the universal one, or another torch")
    found = 0
    for op in OPS:
        for suffix in SUFFIXES.values() if op.public else ():
            function = getattr(fusedops, f"{op.name}_{suffix}")
            assert parameters(function) == expected_parameters(op)
            found += isinstance(function, BuiltinFunctionType)
    assert found >= 4 * 15  # all operators but products of matrices


@by_case_and_dtype()
def test_results_go_to_the_callers_tensors(case, dtype, gpu):
    if writes(case.op):
        pytest.skip(f"{case.op} writes to its arguments")
    args = case.inputs(case.strided, dtype, gpu)
    expected = outputs(typed(case, dtype)(*args))
    outs = tuple(torch.full_like(one, float("nan")) for one in expected)
    versions = [one._version for one in outs]
    out = outs if len(outs) > 1 else outs[0]
    result = typed(case, dtype)(*args, out=out)
    assert all(one is other for one, other in zip(outputs(result), outs, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(outs, expected, strict=True))
    assert all(one._version > before for one, before in zip(outs, versions, strict=True))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda x: x.new_empty(3, 2), "shape"),
        (lambda x: x.new_empty(3, 2).t(), "contiguous memory that starts on 16 bytes"),
        (lambda x: x.new_empty(8)[1:7].view(2, 3), "contiguous memory that starts on 16 bytes"),
        (lambda x: x.new_empty(2, 3).double(), "dtype float32"),
        (lambda x: x.new_empty(2, 3).cpu(), "device cuda"),
        (lambda x: (x,), "a torch.Tensor"),
    ],
)
def test_out_that_does_not_fit_is_refused(make, says, gpu):
    x = torch.ones(2, 3, device=gpu)
    with pytest.raises((ValueError, TypeError), match=f"out: expected {says}"):
        fusedops.bias_add_fp32(x, x[0], out=make(x))


class Subclass(torch.Tensor):
    """A tensor of its own type."""


class Seen(TorchDispatchMode):
    """The operators that torch ran."""

    def __init__(self):
        super().__init__()
        self.functions = []

    def __torch_dispatch__(self, function, types, args=(), keywords=None):
        self.functions.append(function)
        return function(*args, **(keywords or {}))


def test_the_dispatcher_takes_what_it_alone_can_take(gpu):
    x = torch.randn(4, 8, device=gpu)
    call = fusedops.bias_gelu_fp32
    plain = call(x, x[0])
    negative = torch.complex(x, -x).conj().imag
    with Seen() as seen:
        assert torch.equal(call(x, x[0]), plain)
    assert torch.ops.fusedops.bias_gelu.default in seen.functions
    assert torch.equal(call(x.as_subclass(Subclass), x[0]), plain)
    assert torch.equal(call(negative, x[0]), plain)
    assert torch.equal(call(x[:, 1:1], x[0, 1:1]), plain[:, 1:1])
    for device in ("cpu", gpu):
        here = x.to(device)
        assert torch.equal(call(here, here[0]), fusedops.bias_gelu(here, here[0]))
    assert torch.allclose(torch.func.vmap(lambda row: call(row, x[0]))(x), plain)
    assert torch.equal(torch.func.functionalize(call)(x, x[0]), plain)
    # A tensor that the transform does not know is a constant of its function.
    summed = torch.func.vmap(lambda row: row + call(x, x[0])[0])(x)
    assert torch.equal(summed, x + plain[0])
    with forward_ad.dual_level():
        assert torch.equal(call(x, x[0]), plain)
        with pytest.raises(NotImplementedError, match="bias_gelu"):
            call(forward_ad.make_dual(x, x), x[0])


@pytest.mark.filterwarnings("ignore")  # torch's own: prototypes
def test_a_wrong_call_is_refused_in_one_sentence(gpu):
    x = torch.randn(4, 8, device=gpu)
    call = fusedops.bias_gelu_fp32
    for refused, says in (
        (lambda: call(x), "bias_gelu_fp32() missing a required argument: 'bias'"),
        (lambda: call(x, x[0], "none"), "bias_gelu_fp32() too many positional arguments"),
        (lambda: call(x, x[0], x=x), "bias_gelu_fp32() multiple values for argument 'x'"),
        (lambda: call(x, x[0], b=1), "bias_gelu_fp32() got an unexpected keyword argument 'b'"),
        (
            lambda: call(x, x[0], approximate=1),
            "bias_gelu_fp32: approximate: expected a str, found int",
        ),
        (lambda: call(x, [1]), "bias_gelu_fp32: bias: expected a torch.Tensor, found list"),
        (
            lambda: call(x, x[0], out=[x]),
            "bias_gelu_fp32: out: expected a torch.Tensor, found list",
        ),
        (
            lambda: fusedops.pre_rms_norm_fp32(x, x, x[0], out=(x,)),
            "pre_rms_norm_fp32: out: expected a tuple of 2 tensors, found tuple",
        ),
    ):
        with pytest.raises(TypeError) as caught:
            refused()
        assert str(caught.value) == says


@pytest.mark.parametrize("where", ["x", "bias", "half of x"])
def test_a_result_shares_no_memory(where, gpu):
    memory = torch.randn(8, 8, device=gpu)
    x, bias = memory[:4], torch.randn(32, device=gpu)
    out = {"x": x, "bias": bias.view(4, 8), "half of x": memory[2:6]}[where]
    takes = where == "x" and next(op for op in OPS if op.name == "bias_gelu").over_arguments
    expected = fusedops.bias_gelu(x, bias[:8])
    if takes:
        assert torch.equal(fusedops.bias_gelu_fp32(x, bias[:8], out=out), expected)
        return
    with pytest.raises(ValueError, match="bias_gelu_fp32: out: expected memory of its own"):
        fusedops.bias_gelu_fp32(x, bias[:8], out=out)
    y = torch.empty(8, 8, device=gpu)
    with pytest.raises(ValueError, match="out: expected tensors that share no memory"):
        fusedops.pre_rms_norm_fp32(x, x.clone(), bias[:8], out=(y[:4], y[2:6]))


@pytest.mark.parametrize("made_inside", [False, True])
def test_inference_mode(made_inside, gpu):
    x, before = torch.randn(4, 8, device=gpu), torch.empty(4, 8, device=gpu)
    with torch.inference_mode():
        out = torch.empty_like(x) if made_inside else before
        expected = fusedops.bias_gelu(x, x[0])
        assert torch.equal(fusedops.bias_gelu_fp32(x, x[0], out=out), expected)
        assert fusedops.bias_gelu_fp32(x, x[0]).is_inference()
    assert before._version == (0 if made_inside else 1)
    if made_inside:
        says = "^bias_gelu_fp32: out: expected a tensor with a version counter, found an inference"
        with pytest.raises(TypeError, match=says):
            fusedops.bias_gelu_fp32(x, x[0], out=out)


def test_results_are_on_the_gpu_of_the_arguments(gpu, other_gpu):
    x = torch.randn(4, 8, device=other_gpu)
    with torch.cuda.device(gpu):
        result = fusedops.bias_gelu_fp32(x, x[0])
        assert torch.cuda.current_device() == gpu.index
    assert result.device == x.device
    assert torch.equal(result, fusedops.bias_gelu(x, x[0]))


def test_what_an_entry_point_is_not_for_is_refused_in_words(gpu):
    x = torch.randn(4, 8, device=gpu)
    asked = x.clone().requires_grad_()
    with pytest.raises(RuntimeError, match=r"bias_gelu_fp32: has no gradient; call fusedops\.bias"):
        fusedops.bias_gelu_fp32(asked, x[0])
    with torch.no_grad():
        assert torch.equal(fusedops.bias_gelu_fp32(asked, x[0]), fusedops.bias_gelu(x, x[0]))
    with pytest.raises(ValueError, match="x: expected dtype float16, found float32"):
        fusedops.bias_gelu_fp16(x, x[0])


def test_entry_points_run_on_the_current_stream(gpu):
    x, bias = torch.randn(8, 64, device=gpu), torch.randn(64, device=gpu)
    expected = fusedops.bias_gelu(x * 2, bias)
    out = torch.empty_like(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # what follows on another stream would be far ahead
        doubled = x * 2
        actual = fusedops.bias_gelu_fp32(doubled, bias)
        fusedops.bias_gelu_fp32(doubled, bias, out=out)
    stream.synchronize()
    assert torch.equal(actual, expected)
    assert torch.equal(out, expected)


def test_entry_points_are_captured_in_a_graph(gpu):
    x, bias = torch.randn(8, 64, device=gpu), torch.randn(64, device=gpu)
    fusedops.bias_gelu_fp32(x, bias)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fusedops.bias_gelu_fp32(x, bias)
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(y, fusedops.bias_gelu(x, bias))


def test_arrays_of_another_framework(gpu):
    if runtime.entry_points("fusedops") is None:
        pytest.skip("no module over DLPack: another wheel than the universal one, or another torch")
    other_framework.install()
    array = other_framework.Array
    x, bias = torch.randn(8, 64, device=gpu), torch.randn(64, device=gpu)
    expected = fusedops.bias_gelu(x, bias)
    theirs = fusedops.bias_gelu_fp32(array(x), array(bias))
    assert type(theirs) is array
    assert torch.equal(theirs.tensor, expected)
    assert type(fusedops.bias_gelu_fp32(x, array(bias))) is torch.Tensor
    with pytest.raises(RuntimeError, match="expected a contiguous array, found strides"):
        fusedops.bias_gelu_fp32(array(x.t()), array(bias[:8]))
    for refused, says in (
        (lambda: fusedops.bias_gelu_fp16(array(x), array(bias)), "has another dtype"),
        (lambda: fusedops.bias_gelu_fp32(array(x), array(bias), out=array(x[0])), "shares memory"),
    ):
        with pytest.raises(RuntimeError, match=f"^bias_gelu_fp..: .*{says}"):
            refused()
    with pytest.raises(TypeError, match="missing a required argument: 'bias'"):
        fusedops.bias_gelu_fp32(array(x))


def test_results_that_are_arrays_of_another_framework(gpu):
    functions = fusedops.pre_rms_norm_fp32, fusedops.gated_activation_fp32
    if fusedops.status().module or not all(isinstance(f, BuiltinFunctionType) for f in functions):
        pytest.skip("no module over DLPack with these operators")
    other_framework.install()
    array = other_framework.Array
    x, gamma = torch.randn(8, 64, device=gpu), torch.randn(64, device=gpu)
    sums = fusedops.pre_rms_norm_fp32(array(x), array(x), array(gamma))
    for ours, other in zip(fusedops.pre_rms_norm(x, x, gamma), sums, strict=True):
        assert torch.equal(ours, other.tensor)
    gated = fusedops.gated_activation_fp32(array(x), kind="swiglu")  # a result of another shape
    assert torch.equal(gated.tensor, fusedops.gated_activation(x, kind="swiglu"))


def test_arrays_of_another_framework_on_a_cpu_are_refused(gpu):
    if runtime.entry_points("fusedops") is None:
        pytest.skip("no module over DLPack: another wheel than the universal one, or another torch")
    other_framework.install()
    x = other_framework.Array(torch.randn(8, 64, device=gpu).cpu())
    with pytest.raises(RuntimeError, match="bias_gelu_fp32: expected an array on a GPU"):
        fusedops.bias_gelu_fp32(x, x)
