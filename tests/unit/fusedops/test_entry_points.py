"""Entry points by type, those of Python; the module's are held against these where it is loaded."""

import inspect
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import fusedops  # noqa: E402
from fusedops.schemas import OPS  # noqa: E402
from fusedops.typed import TYPES, entry_points  # noqa: E402

PYTHONS = entry_points(None)
every = pytest.mark.parametrize("op", [op for op in OPS if op.public], ids=lambda op: op.name)


def arguments(op, dtype):
    second = (3, 4) if op.name == "vector_add" else (4,)
    return torch.randn(3, 4).to(dtype), torch.randn(second).to(dtype)


@every
@pytest.mark.parametrize("suffix", TYPES)
def test_an_entry_point_is_its_operator_for_one_type(op, suffix):
    function = PYTHONS[f"{op.name}_{suffix}"]
    tensors = arguments(op, TYPES[suffix])
    assert torch.equal(function(*tensors), getattr(fusedops, op.name)(*tensors))
    names = list(inspect.signature(op.reference).parameters)
    named = dict(zip(names, tensors, strict=False))
    assert torch.equal(function(**named), function(*tensors))
    assert function.__name__ == f"{op.name}_{suffix}"
    assert inspect.signature(function) == inspect.signature(op.reference)


@every
def test_another_type_is_refused_by_name(op):
    first = next(iter(inspect.signature(op.reference).parameters))
    says = f"{op.name}_fp16: {first}: expected dtype float16, found float32"
    with pytest.raises(ValueError, match=says):
        PYTHONS[f"{op.name}_fp16"](*arguments(op, torch.float32))


@every
def test_a_gradient_is_refused_and_not_lost(op):
    function = PYTHONS[f"{op.name}_fp32"]
    first, second = arguments(op, torch.float32)
    with pytest.raises(RuntimeError, match=f"has no gradient; call fusedops.{op.name}, or"):
        function(first, second.requires_grad_())
    with torch.no_grad():
        assert not function(first, second).requires_grad


def test_all_of_them_are_the_packages():
    for name in PYTHONS:
        assert name in fusedops.__all__
        assert callable(getattr(fusedops, name))


def test_a_modules_function_comes_first():
    module = SimpleNamespace(bias_gelu_fp16=len)
    found = entry_points(module)
    assert found["bias_gelu_fp16"] is len
    assert set(found) == set(PYTHONS)
