"""Entry points by type, those of Python; the module's are held against these where it is loaded."""

import inspect
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from cases import CASES  # noqa: E402
from cases.case import copies, outputs  # noqa: E402

import fusedops  # noqa: E402
from fusedops.typed import TYPES, entry_point, names  # noqa: E402

PYTHONS = {name: entry_point(name, None) for name in names()}
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
    named = dict(zip(names, copies(args), strict=False))
    by_position = function(*copies(args), **case.keywords)
    for actual in (by_position, function(**named, **case.keywords)):
        assert all(torch.equal(x, y) for x, y in zip(outputs(actual), expected, strict=True))
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
    assert entry_point("bias_gelu_fp16", module) is len
    assert entry_point("bias_gelu_bf16", module).__name__ == "bias_gelu_bf16"


@pytest.mark.parametrize("name", ["bias_gleu_fp16", "bias_gelu_fp8", "bias_gelu", "fp16"])
def test_another_name_is_none_of_them(name):
    assert entry_point(name, None) is None
    if name != "bias_gelu":
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(fusedops, name)


def test_the_package_lists_what_it_makes_at_first_use():
    assert {*PYTHONS, "convert", "Decoder"} <= set(dir(fusedops))
