"""Entry points by type: the same bits as the operators, one type each, no gradient."""

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


def test_what_only_the_dispatcher_can_take_is_refused_in_words(gpu):
    if runtime.entry_points("fusedops") is None:
        pytest.skip("no module over DLPack: another wheel than the universal one, or another torch")
    x = torch.randn(4, 8, device=gpu)
    plain = fusedops.bias_gelu_fp32(x, x[0])

    class Subclass(torch.Tensor):
        pass

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), keywords=None):
            return function(*args, **(keywords or {}))

    negative = torch.complex(x, x).conj().imag
    for refused, says in (
        (lambda: fusedops.bias_gelu_fp32(x.as_subclass(Subclass), x[0]), "subclass Subclass"),
        (lambda: torch.func.vmap(lambda row: fusedops.bias_gelu_fp32(row, x[0]))(x), "transform"),
        (lambda: torch.func.functionalize(fusedops.bias_gelu_fp32)(x, x[0]), "transform"),
        (lambda: fusedops.bias_gelu_fp32(x.cpu(), x[0].cpu()), "a tensor on a GPU, found cpu"),
        (lambda: fusedops.bias_gelu_fp32(negative, x[0]), "resolve_neg"),
        (lambda: fusedops.bias_gelu_fp32(x.to_sparse(), x[0]), "bias_gelu_fp32: x: "),
    ):
        with pytest.raises(RuntimeError, match=says):
            refused()
    with pytest.raises(ValueError, match=r"bias: expected device cuda:\d .that of x., found cpu"):
        fusedops.bias_gelu_fp32(x, x[0].cpu())
    with Mode(), pytest.raises(RuntimeError, match="a dispatch mode"):
        fusedops.bias_gelu_fp32(x, x[0])
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward-mode"):
        fusedops.bias_gelu_fp32(forward_ad.make_dual(x, x), x[0])
    assert torch.equal(fusedops.bias_gelu_fp32(x, x[0]), plain)
    # A tensor that the transform does not know is a constant of its function.
    summed = torch.func.vmap(lambda row: row + fusedops.bias_gelu_fp32(x, x[0])[0])(x)
    assert torch.equal(summed, x + plain[0])


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
    sums = fusedops.pre_rms_norm_fp32(array(x), array(x), array(bias))
    for ours, other in zip(fusedops.pre_rms_norm(x, x, bias), sums, strict=True):
        assert torch.equal(ours, other.tensor)
    gated = fusedops.gated_activation_fp32(array(x), kind="swiglu")  # a result of another shape
    assert torch.equal(gated.tensor, fusedops.gated_activation(x, kind="swiglu"))
    with pytest.raises(RuntimeError, match="expected a contiguous array, found strides"):
        fusedops.bias_gelu_fp32(array(x.t()), array(bias[:8]))
    with pytest.raises(RuntimeError, match="expected a tensor on a GPU, found cpu"):
        fusedops.bias_gelu_fp32(array(x.cpu()), array(bias.cpu()))
