"""out= and workspace= of the operators' functions: the same bits, in memory of the caller."""

from contextlib import nullcontext

import pytest
import torch
from cases import CASES
from cases.case import copies, outputs
from exact import by_case, by_case_and_dtype, by_dtype, by_operator, the_case
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import fusedops
from fusedops.registry import OPS

OWN_ACTIVATION = {
    f"{name}{end}" for name in ("mlp_gemm", "fused_gemm_gelu") for end in ("", "_int8")
}
"""Without a workspace the BLAS library may apply the activation, to another rounding."""
OVER = {op.name for op in OPS if op.over_arguments}


def results(case):
    """How many results there are beside the arguments that the operator writes to."""
    return len(getattr(torch.ops.fusedops, case.op).default._schema.returns)


def call(case, args, **more):
    with torch.no_grad():
        return case.function(*args, **case.keywords, **more)


def out_of(outs):
    return outs if len(outs) > 1 else outs[0]


@by_case_and_dtype()
def test_results_go_to_the_callers_tensors(case, dtype, anywhere):
    for shape in (*case.small, *case.empty[:1]):
        args = case.inputs(shape, dtype, anywhere)
        expected = outputs(call(case, copies(args)))
        outs = tuple(torch.full_like(one, float("nan")) for one in expected[: results(case)])
        versions = [one._version for one in outs]
        found = outputs(call(case, copies(args), out=out_of(outs)))
        assert all(one is out for one, out in zip(found, outs, strict=False))
        assert all(torch.equal(*both) for both in zip(found, expected, strict=True))
        assert all(one._version > before for one, before in zip(outs, versions, strict=True))


@by_case
@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_results_without_memory(case, kind):
    args = case.inputs(case.small[-1], torch.float32, torch.device("cpu"))
    mode = FakeTensorMode() if kind == "fake" else nullcontext()
    make = mode.from_tensor if kind == "fake" else lambda tensor: tensor.to("meta")
    args = [make(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
    with mode:
        outs = tuple(map(torch.empty_like, outputs(call(case, args))[: results(case)]))
        found = outputs(call(case, args, out=out_of(outs)))
    assert all(one is out for one, out in zip(found, outs, strict=False))


@by_case
def test_the_form_of_an_operator_is_an_operator_too(case, anywhere):
    args = case.inputs(case.small[-1], torch.float32, anywhere)
    into = getattr(torch.ops.fusedops, f"{case.op}_out")
    own = {argument.name for argument in into.default._schema.arguments}
    names = sorted(name for name in own if name.startswith("out") and name != "output")
    expected = outputs(call(case, copies(args)))
    outs = tuple(map(torch.empty_like, expected[: results(case)]))
    keywords = {**case.keywords, **dict(zip(names, outs, strict=True))}
    assert into(*copies(args), **keywords) is None
    assert all(torch.equal(*both) for both in zip(outs, expected, strict=False))
    assert all(one._version for one in outs)
    asking = [arg.clone().requires_grad_() if arg is args[0] else arg for arg in args]
    with pytest.raises(RuntimeError, match="a result in given memory has no gradient"):
        into(*asking, **keywords)


def test_a_refused_call_writes_to_nothing(anywhere):
    case = the_case("rms_mlp_gemm")
    args = case.inputs(case.small[-1], torch.float32, anywhere)
    own = copies(args)
    with pytest.raises(ValueError, match="rms_mlp_gemm: out: expected shape"):
        fusedops.rms_mlp_gemm(*own, **case.keywords, out=torch.empty(3, device=anywhere))
    assert all(torch.equal(*both) for both in zip(own, args, strict=True))


@by_case
def test_strided_arguments(case, anywhere):
    args = case.inputs(case.strided, torch.float32, anywhere)
    turned = args[0].transpose(0, -1).contiguous().transpose(0, -1)
    expected = outputs(call(case, (turned, *copies(args[1:]))))
    outs = tuple(map(torch.empty_like, expected[: results(case)]))
    found = outputs(call(case, (turned, *copies(args[1:])), out=out_of(outs)))
    assert all(torch.equal(*both) for both in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.op in OVER], ids=lambda case: case.name
)
@by_dtype
def test_a_result_may_replace_an_argument(case, dtype, anywhere):
    for shape in ((5,), (3, 129), (37, 264), (4, 1000)):
        args = case.inputs(shape, dtype, anywhere)
        expected = call(case, args)
        for index, arg in enumerate(args):
            if arg is not None and arg.shape == expected.shape:
                own = copies(args)
                assert call(case, own, out=own[index]) is own[index]
                assert torch.equal(own[index], expected)


X = torch.ones(2, 8)
SHARED = torch.ones(48)
REFUSED = {
    "shape": (
        lambda x: {"out": x.new_empty(2, 4)},
        r"out: expected shape \[2, 8\], found \[2, 4\]",
    ),
    "dtype": (lambda x: {"out": x.half()}, "out: expected dtype float32, found float16"),
    "device": (lambda x: {"out": x.to("meta")}, r"out: expected device \S+, found meta"),
    "strides": (
        lambda x: {"out": x.new_empty(8, 2).t()},
        r"out: expected contiguous memory that starts on 16 bytes, found strides \[1, 2\]",
    ),
    "alignment": (
        lambda x: {"out": x.new_empty(17)[1:].view(2, 8)},
        "out: expected contiguous memory that starts on 16 bytes",
    ),
    "no tensor": (lambda x: {"out": 3}, r"out: expected a torch\.Tensor, found int"),
    "a tuple": (lambda x: {"out": (x,)}, r"out: expected a torch\.Tensor, found tuple"),
    "sparse": (
        lambda x: {"out": x.to_sparse()},
        r"out: expected a tensor with strides, found a tensor of layout sparse_coo; call to_d",
    ),
    "compressed": (
        lambda x: {"out": x.to_sparse_csr()},
        r"out: expected a tensor with strides, found a tensor of layout sparse_csr; call to_d",
    ),
    "nested": (
        lambda x: {"out": torch.nested.nested_tensor([x, x], layout=torch.strided)},
        "out: expected a tensor with strides, found a nested tensor; call to_padded_tensor",
    ),
    "jagged": (
        lambda x: {"out": torch.nested.nested_tensor([x, x], layout=torch.jagged)},
        "out: expected a tensor with strides, found a nested tensor; call to_padded_tensor",
    ),
    "negatives": (
        lambda x: {"out": torch.complex(x, x).conj().imag},
        "out: expected a tensor's own values, found a view of their negatives; give other memory$",
    ),
}


@pytest.mark.filterwarnings("ignore")  # torch's own: prototypes
@pytest.mark.parametrize("why", REFUSED)
@pytest.mark.parametrize("function", [fusedops.vector_add, fusedops.pre_rms_norm])
def test_out_that_does_not_fit_is_refused(why, function, anywhere):
    make, says = REFUSED[why]
    x = X.to(anywhere)
    keywords = make(x)
    args = (x, x.clone())
    if function is fusedops.pre_rms_norm:
        if why in ("no tensor", "a tuple"):
            says = "out: expected a tuple of 2 tensors"
        else:
            keywords["out"] = (keywords["out"], torch.empty_like(x))
        args = (*args, x[0].clone())
    with pytest.raises((ValueError, TypeError), match=f"{function.__name__}: {says}"):
        function(*args, **keywords)


@by_case
def test_an_inference_tensor_is_written_in_inference_mode_alone(case, anywhere):
    args = case.inputs(case.small[-1], torch.float32, anywhere)
    with torch.inference_mode():
        expected = outputs(call(case, copies(args)))
        outs = tuple(map(torch.zeros_like, expected[: results(case)]))
    with pytest.raises(TypeError, match=f"^{case.op}: out: expected a tensor with a version .*, f"):
        call(case, copies(args), out=out_of(outs))
    assert not any(one.any() for one in outs)
    with torch.inference_mode():
        call(case, copies(args), out=out_of(outs))
    assert all(torch.equal(*both) for both in zip(outs, expected, strict=False))


def test_memory_that_is_shared_is_refused(anywhere):
    memory = SHARED.to(anywhere)
    x, half_on = memory[:16].view(2, 8), memory[4:20].view(2, 8)
    apart, row = memory[32:].view(2, 8), torch.ones(8, device=anywhere)
    own = "out: expected memory of its own"
    with pytest.raises(
        ValueError, match=f"vector_add: {own}, or all of an argument's, found .* x?"
    ):
        fusedops.vector_add(apart, x, out=half_on)
    with pytest.raises(ValueError, match="memory that it shares with b"):
        fusedops.vector_add(apart, x, out=half_on)
    with pytest.raises(ValueError, match=f"bias_add: {own}.* shares with x"):
        fusedops.bias_add(x.view(8, 2).t(), row, out=x)  # the same bytes in another order
    with pytest.raises(ValueError, match=f"rms_norm: {own}, found memory that it shares with x"):
        fusedops.rms_norm(x, row, out=x)
    with pytest.raises(
        ValueError, match="pre_rms_norm: out: expected tensors that share no memory"
    ):
        fusedops.pre_rms_norm(apart, apart.clone(), row, out=(x, half_on))
    square = torch.ones(8, 8, device=anywhere)
    with pytest.raises(ValueError, match=f"vector_matmul: {own}, .* shares with weight"):
        fusedops.vector_matmul(square.clone(), square, out=square)


class Subclass(torch.Tensor):
    """Has the memory of the tensor that it was made of."""


@pytest.mark.parametrize("which", ["out", "argument", "two results"])
def test_shared_memory_of_a_subclass_is_refused(which, anywhere):
    memory = torch.randn(100, device=anywhere)
    kept = memory.clone()
    a, b, apart = (memory[at : at + 32].view(4, 8) for at in (0, 32, 64))
    out = memory[16:48].view(4, 8)
    says = "out: expected .*, found (memory that it shares with|two that do)"
    function, args, outs = {
        "out": (fusedops.vector_add, (a, b), out.as_subclass(Subclass)),
        "argument": (fusedops.vector_add, (apart, b.as_subclass(Subclass)), out),
        "two results": (
            fusedops.pre_rms_norm,
            (apart, apart.clone(), kept[:8]),
            (a, out.as_subclass(Subclass)),
        ),
    }[which]
    with pytest.raises(ValueError, match=says):
        function(*args, out=outs)
    assert torch.equal(memory, kept)
    own = apart.clone().as_subclass(Subclass)
    assert fusedops.vector_add(own, b, out=own) is own
    assert torch.equal(own.as_subclass(torch.Tensor), apart + b)


def test_no_gradient_is_lost(anywhere):
    x = X.to(anywhere)
    asking, out = x.clone().requires_grad_(), torch.empty_like(x)
    says = "vector_add: out: a result in given memory has no gradient"
    for args, into in (((asking, x), out), ((x, x), asking)):
        with pytest.raises(RuntimeError, match=says):
            fusedops.vector_add(*args, out=into)
    with torch.no_grad():
        assert torch.equal(fusedops.vector_add(asking, x, out=out), 2 * x)
    with pytest.raises(NotImplementedError, match="cannot be given under a transform"):
        torch.func.vmap(lambda row: fusedops.vector_add(row, row, out=out[0]))(x)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward mode"):
        fusedops.vector_add(forward_ad.make_dual(x, x), x, out=out)


def test_one_score_a_head_goes_to_the_callers_tensor(anywhere):
    scores = torch.randn(2, 3, 5, device=anywhere)
    out = torch.empty_like(scores)
    assert fusedops.softmax(scores, out=out) is out
    assert torch.equal(out, fusedops.softmax(scores))


@by_operator()
def test_compiled(case, anywhere):
    torch._dynamo.reset()
    args = case.inputs(case.small[-1], torch.float32, anywhere)
    expected = outputs(call(case, copies(args)))
    outs = tuple(torch.full_like(one, float("nan")) for one in expected[: results(case)])
    compiled = torch.compile(
        lambda out, *args: case.function(*args, **case.keywords, out=out),
        fullgraph=True,
        backend="aot_eager",
    )
    with torch.no_grad():
        compiled(out_of(outs), *copies(args))
    assert all(torch.equal(*both) for both in zip(outs, expected, strict=False))


def make_workspace(device, results=1 << 18, dtype=torch.float32):
    return fusedops.Workspace(128, 4, 2, 1, 2, 10, dtype, device, results=results)


def inside(tensor, memory):
    begin = memory.data_ptr()
    at = tensor.data_ptr()
    return begin <= at and at + tensor.nbytes <= begin + memory.nbytes


@by_case_and_dtype()
def test_results_go_to_the_workspace(case, dtype, anywhere):
    workspace = make_workspace(anywhere)
    args = case.inputs(case.small[-1], dtype, anywhere)
    expected = outputs(call(case, copies(args)))
    found = outputs(call(case, copies(args), workspace=workspace))
    for one, other in zip(found, expected, strict=True):
        if case.op in OWN_ACTIVATION:
            apart = (one.double() - other.double()).norm()
            assert apart <= 4 * torch.finfo(dtype).eps * other.double().norm()
        else:
            assert torch.equal(one, other)
    made = found[: results(case)]
    assert all(inside(one, workspace.memory.results) for one in made)
    assert all(one.data_ptr() % 256 == 0 for one in made)
    assert sum(one.nbytes for one in made) <= workspace.used
    workspace.rewind()
    again = outputs(call(case, copies(args), workspace=workspace))
    assert all(one is other for one, other in zip(made, again, strict=False))


def test_results_follow_each_other_until_the_workspace_is_rewound(anywhere):
    workspace = make_workspace(anywhere, 1024)
    x = X.to(anywhere)
    first = fusedops.vector_add(x, x, workspace=workspace)
    kept = workspace.used
    second = fusedops.vector_add(first, x, workspace=workspace)
    assert torch.equal(first, 2 * x)
    assert torch.equal(second, 3 * x)
    workspace.rewind(kept)
    third = fusedops.vector_add(x, x, gamma=6.0, workspace=workspace)
    assert third.data_ptr() == second.data_ptr()
    assert torch.equal(first, 2 * x)
    with pytest.raises(ValueError, match=r"Workspace.rewind: to: expected 0 to 512 .*, found 513"):
        workspace.rewind(513)
    workspace.reset()
    assert workspace.used == 0
    workspace.release()
    assert torch.equal(third, 7 * x)  # it keeps the memory alive


def test_too_little_room_is_an_error(anywhere):
    x = X.to(anywhere)
    says = (
        "vector_add: workspace: expected room for 64 bytes of a result, found 0 of 0; call rewind"
    )
    with pytest.raises(ValueError, match=says):
        fusedops.vector_add(x, x, workspace=make_workspace(anywhere, 0))
    with pytest.raises(ValueError, match="Workspace: results: expected 0 or more bytes, found -1"):
        make_workspace(anywhere, -1)
    workspace = make_workspace(anywhere)
    workspace.release()
    with pytest.raises(RuntimeError, match="it has been released"):
        fusedops.vector_add(x, x, workspace=workspace)


@pytest.mark.parametrize("wrong", [3, False, "a", torch.ones(4), (None,)], ids=repr)
def test_what_is_no_workspace_is_refused_in_one_sentence(wrong, anywhere):
    x, found = X.to(anywhere), type(wrong).__name__
    for more in ({}, {"out": torch.empty_like(x)}):
        with pytest.raises(
            TypeError, match=f"^vector_add: workspace: expected a Workspace, found {found}$"
        ):
            fusedops.vector_add(x, x, workspace=wrong, **more)


def test_what_is_no_workspace_is_refused_under_torch_compile_too():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: fusedops.vector_add(x, x, workspace=3), backend="eager")
    with pytest.raises(TypeError, match="vector_add: workspace: expected a Workspace, found int"):
        compiled(X)


@pytest.mark.parametrize("wrong", ["a", 1.5, None, (1,)], ids=repr)
def test_sizes_of_a_workspace_are_integers(wrong, anywhere):
    sizes = dict.fromkeys(("heads", "kv_heads", "layers", "max_batch", "max_tokens"), 1)
    sizes |= {"hidden": 8, "results": 0}
    says = f"expected an integer, found {type(wrong).__name__}$"
    for name in sizes:
        with pytest.raises(TypeError, match=f"^Workspace: {name}: {says}"):
            fusedops.Workspace(**{**sizes, name: wrong}, device=anywhere)
    workspace = fusedops.Workspace(**sizes, device=anywhere)
    with pytest.raises(TypeError, match=rf"^Workspace\.rewind: to: {says}"):
        workspace.rewind(wrong)
    with pytest.raises(TypeError, match=rf"^Workspace\.count: tokens: {says}"):
        workspace.count(wrong)


def test_a_wrong_call_with_a_workspace_says_what_is_wrong(anywhere):
    x = X.to(anywhere)
    workspace = make_workspace(anywhere)
    says = r"rms_norm: gamma: expected shape \[8\] \(the last dimension of x\), found \[4\]"
    with pytest.raises(ValueError, match=says):
        fusedops.rms_norm(x, x[0, :4], workspace=workspace)
    says = r"vector_matmul: weight: expected shape \[8, any\]"
    with pytest.raises(ValueError, match=says):
        fusedops.vector_matmul(x, x[0], workspace=workspace)
