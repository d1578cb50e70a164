"""Entry points by type, those of Python; the module's are held against these where it is loaded."""

import inspect
import pickle
from types import BuiltinFunctionType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from cases import CASES  # noqa: E402
from cases.case import copies, outputs  # noqa: E402

import fusedops  # noqa: E402
from fusedops.typed import TYPES, direct_call, entry_point, names  # noqa: E402

PYTHONS = {name: entry_point(name, None) for name in names()}
CPU = torch.device("cpu")
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def writes(op):
    """Whether an operator writes to an argument."""
    return getattr(torch.ops.fusedops, op).default._schema.is_mutable


@every
@pytest.mark.parametrize("suffix", TYPES)
def test_an_entry_point_is_its_operator_for_one_type(case, suffix):
    if TYPES[suffix] not in case.dtypes:
        pytest.skip(f"{case.name} is not for {suffix}")
    function = PYTHONS[f"{case.op}_{suffix}"]
    args = case.inputs(case.tiny, TYPES[suffix], CPU)
    expected = outputs(case.ours(*args))
    names = [
        argument.name for argument in getattr(torch.ops.fusedops, case.op).default._schema.arguments
    ]
    named = dict(zip(names, copies(args), strict=False))
    by_position = function(*copies(args), **case.keywords)
    for actual in (by_position, function(**named, **case.keywords)):
        assert all(torch.equal(x, y) for x, y in zip(outputs(actual), expected, strict=True))
    assert function.__name__ == f"{case.op}_{suffix}"
    out = [] if writes(case.op) else ["out"]
    assert list(inspect.signature(function).parameters) == [*names, *out]


def test_an_entry_point_in_python_is_pickled_by_its_name():
    if isinstance(fusedops.rms_norm_fp32, BuiltinFunctionType):
        pytest.skip("it is the module's")
    made = pickle.dumps(fusedops.rms_norm_fp32)
    assert pickle.loads(made) is fusedops.rms_norm_fp32  # noqa: S301 - our own


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


@every
def test_results_go_to_the_callers_tensors(case):
    function = PYTHONS[f"{case.op}_fp32"]
    args = case.inputs(case.tiny, torch.float32, CPU)
    if writes(case.op):
        with pytest.raises((TypeError, RuntimeError), match="out"):
            function(*copies(args), **case.keywords, out=args[0])
        return
    expected = outputs(function(*args, **case.keywords))
    outs = tuple(torch.full_like(one, float("nan")) for one in expected)
    out = outs if len(outs) > 1 else outs[0]
    assert function(*args, **case.keywords, out=out) is out
    assert all(torch.equal(one, other) for one, other in zip(outs, expected, strict=True))


def test_out_that_does_not_fit_is_refused_by_the_entry_points_name():
    """test_outputs.py of tests/smoke has all that does not fit."""
    x = torch.ones(2, 3)
    says = r"bias_add_fp32: out: expected shape \[2, 3\], found \[3, 2\]"
    with pytest.raises(ValueError, match=says):
        PYTHONS["bias_add_fp32"](x, x[0], out=torch.empty(3, 2))


def stand_in(functions, made):
    """A module that has these functions by the operator's name; `made` gets what it is given."""

    def entry_point_of(package, op, suffix, parameters, results, over_arguments, text, python):
        assert package == "fusedops"
        made[op] = (suffix, parameters, results, over_arguments, text, python)
        return functions.get(op)

    return SimpleNamespace(entry_point=entry_point_of)


@pytest.mark.parametrize("over_dlpack", [False, True])
def test_a_module_gets_the_schema_and_the_way_in_python(over_dlpack, monkeypatch):
    made = {}
    module = stand_in({"pre_rms_norm": len}, made)
    monkeypatch.setattr(fusedops.typed.runtime, "entry_points", lambda package: module)
    own = None if over_dlpack else module
    assert entry_point("pre_rms_norm_fp32", own) is len
    assert entry_point("rms_norm_fp32", own).__name__ == "rms_norm_fp32"  # no kernel there
    assert entry_point("rms_mlp_gemm_fp32", own).__name__ == "rms_mlp_gemm_fp32"
    suffix, parameters, results, over_arguments, text, python = made["pre_rms_norm"]
    assert (suffix, results, over_arguments) == ("fp32", 2, False)
    assert python.__name__ == "pre_rms_norm_fp32"
    assert parameters[0] == ("x", False, False, False, False, None)
    assert parameters[3][:5] == ("eps", False, True, False, True)
    assert text.startswith("pre_rms_norm_fp32(x, residual, gamma, *, eps=")
    assert [name for name, *_, written, _, _ in made["rms_mlp_gemm"][1] if written] == ["residual"]


def test_a_wrong_call_is_refused_in_one_sentence():
    x = torch.ones(2, 4)
    call = PYTHONS["bias_add_fp32"]
    for refused, says in (
        (lambda: call(x), "missing a required argument: 'bias'"),
        (lambda: call(x, x[0], 1), "too many positional arguments"),
        (lambda: call(x, x[0], b=1), "got an unexpected keyword argument 'b'"),
        (
            lambda: PYTHONS["rms_mlp_gemm_fp32"](*[x] * 5, out=x),
            "got an unexpected keyword .*out.*",
        ),
    ):
        with pytest.raises(TypeError, match=rf"^\w+_fp32\(\) {says}$"):
            refused()


@pytest.fixture
def direct_calls(monkeypatch):
    """The calls that a stand-in for bias_add's direct call got; it takes what has four columns."""
    got = []

    def direct(x, bias, **keywords):
        got.append(keywords)
        return x.neg() if x.shape[1] == 4 else NotImplemented

    monkeypatch.setattr(fusedops.call, "_DIRECT", {"fusedops::bias_add": direct})
    return got


def test_a_direct_call_passes_the_dispatcher(direct_calls):
    x, other = torch.ones(2, 4), torch.ones(2, 3)
    assert torch.equal(fusedops.bias_add(x, x[0]), -x)
    out = torch.empty(2, 4)
    fusedops.bias_add(x, x[0], out=out)
    assert direct_calls == [{"out": None}, {"out": out}]
    assert torch.equal(fusedops.bias_add(other, other[0]), other + 1)  # not taken
    assert len(direct_calls) == 3


@pytest.mark.parametrize("taken", [True, False])
def test_a_direct_call_in_place_counts_the_versions_itself(monkeypatch, taken):
    got = []

    def direct(*args, **keywords):
        got.append(keywords)
        return None if taken else NotImplemented

    monkeypatch.setattr(fusedops.call, "_DIRECT", {"fusedops::apply_rotary_pos_emb_": direct})
    q = torch.ones(1, 2, 1, 4)
    fusedops.apply_rotary_pos_emb_(q, q.clone(), rotary_dim=4)
    assert "out" not in got[0]
    assert (q._version == 0) is taken


def test_a_compiled_call_is_not_direct(direct_calls):
    x = torch.ones(2, 4)
    compiled = torch.compile(fusedops.bias_add, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, x[0]), x + 1)
    assert direct_calls == []


def test_the_module_over_dlpack_is_asked_for_a_direct_call_once(monkeypatch):
    made = {}
    module = stand_in({"bias_gelu": len}, made)
    monkeypatch.setattr(fusedops.typed.runtime, "entry_points", lambda package: module)
    assert direct_call("bias_gelu") is len
    assert direct_call("bias_relu") is None
    assert list(made) == ["bias_gelu", "bias_relu"]
    assert all(given[0] == "" and given[-1] is None for given in made.values())
    monkeypatch.setattr(fusedops.call, "_DIRECT", {})
    x = torch.ones(2, 4)
    for _ in range(2):
        fusedops.bias_add(x, x[0])
    assert fusedops.call._DIRECT == {}  # the module is not imported for a CPU


def test_an_operators_second_call_on_a_gpu_is_the_first_that_is_direct(monkeypatch):
    monkeypatch.setattr(fusedops.call, "_CALLED", set())
    monkeypatch.setattr(fusedops.call, "_DIRECT", {})
    monkeypatch.setattr(fusedops.typed, "direct_call", lambda name: name)
    on_gpu = torch.empty(1)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: tensor is on_gpu))
    find, op = fusedops.call._direct, torch.ops.fusedops.bias_add
    assert [find(op, (torch.empty(1),)) for _ in range(2)] == [None, None]
    assert [find(op, (None, on_gpu)) for _ in range(3)] == [None, "bias_add", "bias_add"]


def test_all_of_them_are_the_packages():
    for name in PYTHONS:
        assert name in fusedops.__all__
        assert callable(getattr(fusedops, name))


@pytest.mark.parametrize("name", ["bias_gleu_fp16", "bias_gelu_fp8", "bias_gelu", "fp16"])
def test_another_name_is_none_of_them(name):
    assert entry_point(name, None) is None
    if name != "bias_gelu":
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(fusedops, name)


def test_the_package_lists_what_it_makes_at_first_use():
    assert {*PYTHONS, "convert", "Decoder"} <= set(dir(fusedops))
