"""The table, its registration with torch, the public functions and the reference."""

import inspect
import math
import os
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from cases import CASES, PRIVATE  # noqa: E402
from cases.case import outputs  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import fusedops  # noqa: E402
from fusedops.registry import OPS  # noqa: E402
from programmaker import run_python  # noqa: E402

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


# The reference against float64 formulas, over random shapes, strides and values.

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SHAPES = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple)


def gelu(v, form):
    if form == "none":
        return 0.5 * v * torch.special.erfc(-v * math.sqrt(0.5))
    return v * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))


def close(actual, exact, dtype):
    assert actual.dtype == dtype
    assert actual.is_contiguous()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(
        actual.double(), exact, rtol=max(0.51 * eps, 4e-7 if eps > 1e-12 else 8 * eps), atol=2e-6
    )


@given(shape=SHAPES, dtype=st.sampled_from(DTYPES), seed=st.integers(0, 2**31), turn=st.booleans())
@settings(max_examples=120)
def test_bias_operators(shape, dtype, seed, turn):
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(shape, generator=generator, dtype=torch.float64) * 3).to(dtype)
    if turn:
        x = x.transpose(0, -1)
    bias = torch.randn(x.shape[-1], generator=generator, dtype=torch.float64).to(dtype)
    v = x.double() + bias.double()
    close(fusedops.bias_add(x, bias), v, dtype)
    close(fusedops.bias_relu(x, bias), v.clamp_min(0), dtype)
    for form in ("tanh", "none"):
        close(fusedops.bias_gelu(x, bias, approximate=form), gelu(v, form), dtype)


def test_16_bit_results_are_rounded_once():
    # 1 + 2^-8 is no bfloat16; rounding the sum before adding again would lose both halves.
    x = torch.full((4,), 1.0, dtype=torch.bfloat16)
    bias = torch.full((4,), 2.0**-8, dtype=torch.bfloat16)
    once = fusedops.bias_gelu(x, bias, approximate="none")
    exact = gelu((x.double() + bias.double()), "none").to(torch.bfloat16)
    twice = gelu((x + bias).double(), "none").to(torch.bfloat16)
    assert not torch.equal(exact, twice)
    assert torch.equal(once, exact)


def test_without_torch_one_sentence_names_the_remedy():
    places = os.pathsep.join([str(Path(fusedops.__file__).parents[1]), *sys.path])
    code = "import sys; sys.modules['torch'] = None; import fusedops"
    *_, line = run_python(code, env={**os.environ, "PYTHONPATH": places}).stderr.splitlines()
    assert line == (
        f"ModuleNotFoundError: fusedops needs torch, which {sys.executable} does not have: "
        f"run `{sys.executable} -m pip install torch`"
    )


def test_the_status_is_a_table():
    lines = str(fusedops.status()).splitlines()
    assert lines[0].startswith("fusedops: ")
    assert {line.split()[0] for line in lines[1:]} >= {"bias_act", "norm", "softmax"}
    assert len(max(lines, key=len)) < 200
