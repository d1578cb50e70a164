"""The table, its registration with torch, and the public functions."""

import inspect

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from cases import CASES, PRIVATE  # noqa: E402
from cases.case import outputs  # noqa: E402

import fusedops  # noqa: E402
from fusedops.registry import OPS  # noqa: E402

public = pytest.mark.parametrize("op", [op for op in OPS if op.public], ids=lambda op: op.name)


def call(op):
    return getattr(torch.ops.fusedops, op.name).default


@public
def test_public_function_is_exported_documented_and_has_the_schemas_arguments(op):
    function = getattr(fusedops, op.name)
    assert op.name in fusedops.__all__
    for section in ("Args:", "Returns:", "Raises:"):
        assert section in function.__doc__
    declared = call(op)._schema.arguments
    actual = inspect.signature(function).parameters
    assert list(actual)[: len(declared)] == [argument.name for argument in declared]
    for parameter in list(actual.values())[len(declared) :]:  # what becomes of the arguments first
        assert (parameter.kind, parameter.default) == (parameter.KEYWORD_ONLY, None)
        assert f"{parameter.name}: " in function.__doc__
    for argument, parameter in zip(declared, actual.values(), strict=False):
        assert argument.kwarg_only == (parameter.kind is parameter.KEYWORD_ONLY)
        if argument.has_default_value():
            assert parameter.default == argument.default_value
        assert f"{argument.name}: " in function.__doc__


def matches(real, fake):
    pairs = zip(outputs(real), outputs(fake), strict=True)
    return all((a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride()) for a, b in pairs)


def on_meta(args):
    return [arg.to("meta") if isinstance(arg, torch.Tensor) else arg for arg in args]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_fake_agrees_with_the_reference(case):
    for shape in (*case.small, *case.empty):
        args = case.inputs(shape, torch.float32, torch.device("cpu"))
        assert matches(case.ours(*args), case.ours(*on_meta(args)))


@pytest.mark.parametrize("name", PRIVATE)
def test_the_fake_of_what_is_not_public_agrees(name):
    args, keywords = PRIVATE[name](torch.device("cpu"))
    op = getattr(torch.ops.fusedops, name)
    assert matches(op(*args, **keywords), op(*on_meta(args), **keywords))


def test_slope_of_relu():
    x = torch.tensor([-1.0, 0.0, 1e-3, 1.0, float("nan")], requires_grad=True)
    fusedops.bias_relu(x, torch.zeros(5)).sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 1, 1]


def test_a_wrong_shape_is_refused_where_a_call_is_traced():
    """test_errors.py of tests/smoke has what is refused elsewhere."""
    x, bias = torch.ones(2, 4, device="meta"), torch.ones(3, device="meta")
    with pytest.raises(ValueError, match=r"bias_add: bias: expected shape \[4\] .*, found \[3\]"):
        fusedops.bias_add(x, bias)
