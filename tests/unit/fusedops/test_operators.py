"""The table, its registration with torch, and the public functions."""

import inspect

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import fusedops  # noqa: E402
from fusedops.schemas import NAMESPACE, OPS  # noqa: E402

by_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
public = pytest.mark.parametrize("op", [op for op in OPS if op.public], ids=lambda op: op.name)


def arguments(op, grad=False):
    schema = torch._C.parse_schema(f"{NAMESPACE}::{op.schema}")
    names = [a.name for a in schema.arguments if not a.kwarg_only]
    shapes = {"bias": (5,)}
    return tuple(
        torch.randn(shapes.get(name, (3, 5)), dtype=torch.float64, requires_grad=grad)
        for name in names
    )


def call(op):
    return getattr(torch.ops.fusedops, op.name).default


@by_op
def test_registered_as_declared(op):
    assert call(op)._schema == torch._C.parse_schema(f"{NAMESPACE}::{op.schema}")


@public
def test_public_function_is_exported_documented_and_has_the_schemas_arguments(op):
    function = getattr(fusedops, op.name)
    assert op.name in fusedops.__all__
    for section in ("Args:", "Returns:", "Raises:"):
        assert section in function.__doc__
    declared = call(op)._schema.arguments
    found = inspect.signature(function).parameters
    assert list(found) == [argument.name for argument in declared]
    for argument, parameter in zip(declared, found.values(), strict=True):
        assert argument.kwarg_only == (parameter.kind is parameter.KEYWORD_ONLY)
        if argument.has_default_value():
            assert parameter.default == argument.default_value
        assert f"{argument.name}: " in function.__doc__


@by_op
def test_the_fake_agrees_with_the_reference(op):
    real = call(op)(*arguments(op))
    fake = call(op)(*(a.to("meta") for a in arguments(op)))
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (real, fake)), strict=True)
    for one, other in pairs:
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


@by_op
def test_torchs_own_check(op):
    torch.library.opcheck(call(op), arguments(op, grad=op.public))


@public
def test_gradcheck(op):
    assert torch.autograd.gradcheck(getattr(fusedops, op.name), arguments(op, grad=True))


@public
def test_compiles_in_one_graph(op):
    function = getattr(fusedops, op.name)
    compiled = torch.compile(
        lambda *a: function(*a) * 2, backend="aot_eager", fullgraph=True, dynamic=True
    )
    args = arguments(op, grad=True)
    torch.testing.assert_close(compiled(*args), function(*args) * 2)


def test_keywords_reach_the_gradient():
    a, b = (torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    fusedops.vector_add(a, b, gamma=-2.5).sum().backward()
    assert a.grad.tolist() == [-2.5] * 4
    assert b.grad.tolist() == [1.0] * 4
    x, bias = arguments(OPS[3], grad=True)
    assert torch.autograd.gradcheck(
        lambda x, b: fusedops.bias_gelu(x, b, approximate="none"), (x, bias)
    )


def test_slope_of_relu():
    x = torch.tensor([-1.0, 0.0, 1e-3, 1.0, float("nan")], requires_grad=True)
    fusedops.bias_relu(x, torch.zeros(5)).sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 1, 1]


def test_second_derivative_is_refused():
    x, bias = arguments(OPS[3], grad=True)
    (grad,) = torch.autograd.grad(fusedops.bias_gelu(x, bias).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives are not provided"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("x", "bias", "message"),
    [
        ((2, 4), (3,), r"bias_add: bias: expected shape \[4\] \(the last .*\), found \[3\]"),
        ((2, 4), (4, 4), r"bias_add: bias: expected shape \[4\] \(the last .*\), found \[4, 4\]"),
        ((), (1,), "bias_add: x: expected at least 1 dimension, found 0"),
    ],
)
def test_wrong_shapes(x, bias, message):
    for device in ("cpu", "meta"):
        with pytest.raises(ValueError, match=message):
            fusedops.bias_add(torch.ones(x, device=device), torch.ones(bias, device=device))


def test_wrong_types_and_devices():
    x = torch.ones(2, 4)
    with pytest.raises(ValueError, match=r"bias_relu: x: expected dtype .*, found int64"):
        fusedops.bias_relu(x.long(), x[0].long())
    with pytest.raises(ValueError, match=r"bias: expected dtype float32 \(that of x\), found"):
        fusedops.bias_relu(x, x[0].half())
    with pytest.raises(ValueError, match="approximate: expected 'tanh' or 'none', found 'erf'"):
        fusedops.bias_gelu(x, x[0], approximate="erf")
