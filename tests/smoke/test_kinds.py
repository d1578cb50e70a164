"""What is no tensor that the operators take is refused in one sentence; torch.jit.trace works."""

import pytest
import torch
import torch.distributed
from cases import CASES, PRIVATE
from cases.case import copies, outputs
from exact import by_case, the_case
from torch.fx import Graph, GraphModule, Proxy
from torch.fx.node import map_aggregate
from torch.fx.proxy import GraphAppendingTracer

import fusedops

FORMS = ("vector_add", "bias_gelu", "rms_norm", "qkv_gemm", "vector_matmul_int8")


def required(args):
    """Index of each argument that is a tensor."""
    return [index for index, arg in enumerate(args) if torch.is_tensor(arg)]


def argument_of(op, index):
    return getattr(torch.ops.fusedops, op).default._schema.arguments[index]


def name_of(op, index):
    return argument_of(op, index).name


def is_optional(op, index):
    return isinstance(argument_of(op, index).real_type, torch.OptionalType)


def with_one(args, index, value):
    return [value if at == index else arg for at, arg in enumerate(copies(args))]


def sparse(tensor):
    return tensor.to_sparse()


def compressed(tensor):
    return (tensor if tensor.dim() > 1 else tensor[None]).to_sparse_csr()


def nested(tensor):
    return torch.nested.nested_tensor([tensor, tensor], layout=torch.strided)


def jagged(tensor):
    rows = tensor if tensor.dim() > 0 else tensor[None]
    return torch.nested.nested_tensor([rows, rows[:1]], layout=torch.jagged)


WRONG = {
    "None": (lambda tensor: None, r"expected a torch\.Tensor, found NoneType$"),
    "a list": (lambda tensor: [tensor], r"expected a torch\.Tensor, found list$"),
    "COO": (sparse, r"expected a tensor with strides, found .* sparse_coo; call to_dense\(\)$"),
    "CSR": (compressed, r"expected a tensor with strides, found .* sparse_csr; call to_dense\(\)$"),
    "nested": (nested, r"expected a tensor with strides, found a nested tensor; call to_padded_"),
    "jagged": (jagged, r"expected a tensor with strides, found a nested tensor; call to_padded_"),
}
by_wrong = pytest.mark.parametrize("wrong", WRONG)
quiet = pytest.mark.filterwarnings("ignore")  # torch's own: prototypes


@quiet
@by_wrong
@by_case
def test_every_tensor_of_every_operator(case, wrong, anywhere):
    make, says = WRONG[wrong]
    args, function = case.inputs(case.tiny, torch.float32, anywhere), getattr(fusedops, case.op)
    for index in required(args):
        if (wrong == "None" and is_optional(case.op, index)) or (
            wrong == "CSR" and args[index].dim() > 3
        ):
            continue
        value = make(args[index])
        for keywords in ({}, {"workspace": fusedops.Workspace(8, 1, 1, 1, 1, 1, device=anywhere)}):
            with pytest.raises(TypeError, match=f"^{case.op}: {name_of(case.op, index)}: {says}"):
                function(*with_one(args, index, value), **case.keywords, **keywords)


WORDS = {
    torch.FloatType: "a float",
    torch.IntType: "an int",
    torch.BoolType: "a bool",
    torch.StringType: "a str",
}


@by_case
def test_every_number_and_word_of_every_operator(case, anywhere):
    args, function = case.inputs(case.tiny, torch.float32, anywhere), getattr(fusedops, case.op)
    workspace = fusedops.Workspace(8, 1, 1, 1, 1, 1, device=anywhere)
    for argument in getattr(torch.ops.fusedops, case.op).default._schema.arguments:
        optional = isinstance(argument.real_type, torch.OptionalType)
        kind = argument.real_type.getElementType() if optional else argument.real_type
        if type(kind) not in WORDS:
            continue
        expected = WORDS[type(kind)] + (" or None" if optional else "")
        # torch takes None for False.
        nothing = () if optional or isinstance(kind, torch.BoolType) else (None,)
        for wrong in (object(), [1], *nothing):
            says = f"{case.op}: {argument.name}: expected {expected}, found {type(wrong).__name__}"
            given = {**case.keywords, argument.name: wrong}
            for more in ({}, {"workspace": workspace}):
                with pytest.raises(TypeError, match=f"^{says}$"):
                    function(*copies(args), **given, **more)


@quiet
@pytest.mark.parametrize("wrong", ["None", "COO", "nested"])
@pytest.mark.parametrize("op", FORMS)
def test_entry_points_by_type(op, wrong, anywhere):
    make, _ = WRONG[wrong]
    case = the_case(op)
    args = case.inputs(case.tiny, torch.float32, anywhere)
    function = getattr(fusedops, f"{op}_fp32")
    for index in required(args):
        if wrong == "None" and is_optional(op, index):
            continue
        with pytest.raises((TypeError, RuntimeError)) as caught:
            function(*with_one(args, index, make(args[index])), **case.keywords)
        assert f"{op}_fp32: {name_of(op, index)}: " in str(caught.value)
        assert "\n" not in str(caught.value)


@quiet
@by_wrong
def test_functions_that_are_no_operators(wrong, anywhere):
    make, says = WRONG[wrong]
    workspace = fusedops.Workspace(16, 2, 2, 1, 2, 10, torch.float32, anywhere)
    how = {"workspace": workspace, "layer_id": 0, "heads": 2}
    x = torch.ones(2, 2, 48, device=anywhere)
    heads = torch.ones(1, 3, 2, 8, device=anywhere)
    matrix = torch.ones(4, 6, device=anywhere)
    numbers, scale = fusedops.quantize(matrix, 2)
    for name, call, tensor in (
        ("softmax_context: qkv", lambda t: fusedops.softmax_context(t, **how), x),
        ("softmax_context_fp32: qkv", lambda t: fusedops.softmax_context_fp32(t, **how), x),
        ("quantize: weight", lambda t: fusedops.quantize(t, 2), matrix),
        ("dequantize: weight", lambda t: fusedops.dequantize(t, scale), numbers),
        ("dequantize: scale", lambda t: fusedops.dequantize_fp16(numbers, t), scale),
        (
            "apply_rotary_pos_emb_: q",
            lambda t: fusedops.apply_rotary_pos_emb_(t, heads, rotary_dim=8),
            heads,
        ),
    ):
        with pytest.raises(TypeError, match=f"^{name}: {says}"):
            call(make(tensor))


@pytest.mark.parametrize("op", ["apply_rotary_pos_emb_", "rms_mlp_gemm", "rms_mlp_gemm_int8"])
def test_an_inference_tensor_is_not_half_written(op):
    """On a CPU, where torch refuses a write to one after it is done."""
    cpu, function = torch.device("cpu"), getattr(fusedops, op)
    case = the_case(op.removesuffix("_"))
    args = case.inputs(case.small[-1], torch.float32, cpu)
    if op == "apply_rotary_pos_emb_":
        args = args[:2]
    with torch.inference_mode():
        made = copies(args)
    schema = getattr(torch.ops.fusedops, op).default._schema.arguments
    first = [one.name for one in schema].index("q" if op.endswith("_") else "residual")
    says = f"^{op}: {schema[first].name}: expected a tensor with a version counter, found an inf"
    with pytest.raises(TypeError, match=says):
        function(*made, **case.keywords)
    assert all(torch.equal(*both) for both in zip(made, args, strict=True))
    with torch.inference_mode():
        function(*made, **case.keywords)
    assert not torch.equal(made[first], args[first])


def test_a_view_of_negatives_is_not_written(anywhere):
    heads = torch.randn(2, 3, 4, 8, device=anywhere)
    numbers = torch.complex(heads, heads)
    kept, negatives = numbers.clone(), numbers.conj().imag
    for given, name in (((negatives, heads), "q"), ((heads, negatives), "k")):
        says = f"^apply_rotary_pos_emb_: {name}: expected a tensor's own values, found a view of th"
        with pytest.raises(TypeError, match=says):
            fusedops.apply_rotary_pos_emb_(*given, rotary_dim=8)
    assert torch.equal(numbers, kept)


@pytest.mark.parametrize("name", ["rms_mlp_gemm", "rms_mlp_gemm_fp32", "rms_mlp_gemm_int8_fp32"])
def test_a_residual_that_is_a_view_of_negatives_is_not_written(name, anywhere):
    case = the_case(name.removesuffix("_fp32"))
    args = list(case.inputs(case.small[-1], torch.float32, anywhere))
    numbers = torch.complex(args[1], args[1])
    kept, args[1] = numbers.clone(), numbers.conj().imag
    says = f"^{name}: residual: expected a tensor's own values, found a view of their negatives"
    with pytest.raises(TypeError, match=says):
        getattr(fusedops, name)(*args, **case.keywords)
    assert torch.equal(numbers, kept)


def test_a_workspace_that_is_none(anywhere):
    with pytest.raises(TypeError, match=r"^softmax_context: workspace: expected a Workspace"):
        fusedops.softmax_context(
            torch.ones(1, 1, 48, device=anywhere), workspace=None, layer_id=0, heads=2
        )


@pytest.fixture
def mesh(anywhere):
    distributed = torch.distributed
    if not distributed.is_available() or distributed.is_initialized():
        pytest.skip("no group of processes can be made")
    from torch.distributed.device_mesh import init_device_mesh

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh(anywhere.type, (1,))
    distributed.destroy_process_group()


@quiet
def test_distributed_tensors(mesh, anywhere):
    from torch.distributed.tensor import DTensor, Replicate

    for case in CASES:
        args = case.inputs(case.tiny, torch.float32, anywhere)
        for index in required(args):
            spread = DTensor.from_local(args[index], mesh, [Replicate()])
            says = (
                f"^{case.op}: {name_of(case.op, index)}: expected a tensor of this process, found"
            )
            with pytest.raises(TypeError, match=says):
                getattr(fusedops, case.op)(*with_one(args, index, spread), **case.keywords)


@quiet
@by_case
def test_a_trace_gives_the_operators_bits(case, anywhere):
    """A module's trace: its tensors require gradients, and torch checks the trace by a second."""
    args, others = (case.inputs(case.small[-1], torch.float32, anywhere) for _ in range(2))
    at = required(args)

    def function(*tensors):
        whole = list(args)
        for index, tensor in zip(at, tensors, strict=True):
            whole[index] = tensor
        return outputs(case.ours(*whole))

    def asking(tensors):
        differentiable = case.differentiable
        return [
            one.requires_grad_(differentiable and one.is_floating_point())
            for one in copies([tensors[index] for index in at])
        ]

    traced = torch.jit.trace(function, asking(args))
    expected, found = outputs(function(*asking(others))), outputs(traced(*asking(others)))
    assert all(torch.equal(*both) for both in zip(found, expected, strict=True))
    assert [one.requires_grad for one in found] == [one.requires_grad for one in expected]


@by_case
def test_fx_records_every_operator(case, anywhere):
    args = case.inputs(case.small[-1], torch.float32, anywhere)
    graph, at = Graph(), required(args)
    given, tracer = list(args), GraphAppendingTracer(graph)
    for index in at:
        given[index] = Proxy(graph.placeholder(f"x{index}"), tracer)
    result = getattr(fusedops, case.op)(*given, **case.keywords)
    graph.output(map_aggregate(result, lambda one: one.node))
    with torch.no_grad():
        found = outputs(GraphModule({}, graph)(*copies([args[index] for index in at])))
        expected = outputs(case.ours(*copies(args)))
    assert all(torch.equal(*both) for both in zip(found, expected, strict=True))


@quiet
def test_a_trace_with_out_and_with_a_workspace(anywhere):
    x = torch.randn(3, 8, device=anywhere)
    out = torch.empty_like(x)
    workspace = fusedops.Workspace(8, 1, 1, 1, 1, 1, torch.float32, anywhere, results=4096)
    trace = torch.jit.trace
    into = trace(lambda x, out: fusedops.vector_add(x, x, out=out), (x, out))
    into(3 * x, out)
    assert torch.equal(out, 6 * x)
    plain = trace(lambda x: fusedops.vector_add(x, x, workspace=workspace), (x,))
    workspace.rewind()  # torch calls the function itself too, to check the trace
    assert torch.equal(plain(3 * x), 6 * x)
    assert workspace.used == 0


@quiet
def test_a_trace_of_what_keeps_a_cache_is_refused(anywhere):
    workspace = fusedops.Workspace(16, 2, 2, 1, 2, 10, torch.float32, anywhere)
    for tokens in (1, 3):
        with pytest.raises(RuntimeError, match=r"^softmax_context: a trace of torch"):
            torch.jit.trace(
                lambda x: fusedops.softmax_context(x, workspace=workspace, layer_id=0, heads=2),
                (torch.ones(2, tokens, 48, device=anywhere),),
            )


@quiet
@pytest.mark.parametrize("name", PRIVATE)
def test_operators_that_are_not_public(name, anywhere):
    """Called as torch.ops.fusedops has them: from the reference, for a tensor without strides."""
    args, keywords = PRIVATE[name](anywhere)
    operator = getattr(torch.ops.fusedops, name)
    for index in required(args):
        if args[index].dim() == 0:
            continue
        says = rf"{name}: {name_of(name, index)}: expected a tensor with strides, found"
        with torch.no_grad(), pytest.raises((TypeError, RuntimeError), match=says):
            operator(*with_one(args, index, args[index].to_sparse()), **keywords)
