"""Entry points by type, those of Python; the module's are held against these where it is loaded."""

import inspect
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from cases import CASES  # noqa: E402
from cases.case import outputs  # noqa: E402

import fusedops  # noqa: E402
from fusedops.typed import TYPES, entry_points  # noqa: E402

PYTHONS = entry_points(None)
CPU = torch.device("cpu")
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@every
@pytest.mark.parametrize("suffix", TYPES)
def test_an_entry_point_is_its_operator_for_one_type(case, suffix):
    if TYPES[suffix] not in case.dtypes:
        pytest.skip(f"{case.name} is not for {suffix}")
    function = PYTHONS[f"{case.op}_{suffix}"]
    args = case.inputs(case.tiny, TYPES[suffix], CPU)
    expected = outputs(case.ours(*args))
    names = list(inspect.signature(getattr(fusedops, case.op)).parameters)
    named = dict(zip(names, args, strict=False))
    for found in (function(*args, **case.keywords), function(**named, **case.keywords)):
        assert all(torch.equal(x, y) for x, y in zip(outputs(found), expected, strict=True))
    assert function.__name__ == f"{case.op}_{suffix}"
    assert list(inspect.signature(function).parameters) == names


@every
def test_another_type_is_refused_by_name(case):
    first = next(iter(inspect.signature(getattr(fusedops, case.op)).parameters))
    says = f"{case.op}_fp16: {first}: expected dtype float16, found float32"
    with pytest.raises(ValueError, match=says):
        PYTHONS[f"{case.op}_fp16"](*case.inputs(case.tiny, torch.float32, CPU), **case.keywords)


@every
def test_a_gradient_is_refused_and_not_lost(case):
    function = PYTHONS[f"{case.op}_fp32"]
    args = case.inputs(case.tiny, torch.float32, CPU)
    args[0].requires_grad_()
    with pytest.raises(RuntimeError, match=f"has no gradient; call fusedops.{case.op}, or"):
        function(*args, **case.keywords)
    with torch.no_grad():
        assert not outputs(function(*args, **case.keywords))[0].requires_grad


def test_all_of_them_are_the_packages():
    for name in PYTHONS:
        assert name in fusedops.__all__
        assert callable(getattr(fusedops, name))


def test_a_modules_function_comes_first():
    module = SimpleNamespace(bias_gelu_fp16=len)
    found = entry_points(module)
    assert found["bias_gelu_fp16"] is len
    assert set(found) == set(PYTHONS)
