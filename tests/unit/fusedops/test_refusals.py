"""A call that a kernel refuses raises the words of the operator's check, as where no kernel is."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from cases import CASES  # noqa: E402
from cases.case import copies  # noqa: E402

import fusedops  # noqa: E402
from fusedops.typed import entry_point  # noqa: E402

CPU = torch.device("cpu")
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
ERROR = RuntimeError("X: the arguments are not as fusedops.X takes them")


@pytest.fixture
def failing():
    """Gives operators a kernel for the CPU that raises ERROR, as one for a GPU refuses a call."""

    def kernel(*_, **__):
        raise ERROR

    with torch.library._scoped_library("fusedops", "IMPL") as library:
        yield lambda *ops: [library.impl(op, kernel, "CPU") for op in ops]


def refusal(call, *args, **keywords):
    with pytest.raises(ValueError, match=r"^\w+: \w+: expected .*, found") as caught:
        call(*args, **keywords)
    return str(caught.value)


@every
def test_a_refused_call_raises_the_words_of_the_check(case, failing):
    function, by_type = getattr(fusedops, case.op), entry_point(f"{case.op}_fp32", None)
    args = case.inputs(case.tiny, torch.float32, CPU)
    if len(args) == 1:
        pytest.skip(f"{case.op} has one tensor")
    wrong = (args[0], *(one.double() if torch.is_tensor(one) else one for one in args[1:]))
    schema = getattr(torch.ops.fusedops, case.op).default._schema
    by_name = dict(zip([one.name for one in schema.arguments], wrong, strict=False))
    calls = [
        lambda: function(*copies(wrong), **case.keywords),
        lambda: by_type(*copies(wrong), **case.keywords),
        lambda: by_type(**by_name, **case.keywords),
    ]
    if not schema.is_mutable:
        workspace = fusedops.Workspace(8, 1, 1, 1, 1, 1, device=CPU, results=1 << 16)
        calls += [lambda: function(*copies(wrong), **case.keywords, workspace=workspace)]
    expected = [refusal(call) for call in calls]
    failing(case.op, f"{case.op}_out")
    assert [refusal(call) for call in calls] == expected
    assert expected[0].startswith(f"{case.op}: ")
    assert expected[1] == expected[2] == expected[0].replace(case.op, f"{case.op}_fp32", 1)


@every
def test_another_failure_is_raised_as_it_is(case, failing):
    """The check takes the arguments, so they are not what is wrong."""
    args = case.inputs(case.tiny, torch.float32, CPU)
    workspace = fusedops.Workspace(8, 1, 1, 1, 1, 1, device=CPU, results=1 << 16)
    function, by_type = getattr(fusedops, case.op), entry_point(f"{case.op}_fp32", None)
    failing(case.op, f"{case.op}_out")
    for call, more in (
        *((function, one) for one in ({}, {"workspace": workspace})),
        (by_type, {}),
    ):
        with pytest.raises(RuntimeError) as caught:
            call(*copies(args), **case.keywords, **more)
        assert str(caught.value) == str(ERROR)


def test_an_out_that_is_refused_is_named(failing):
    x = torch.ones(2, 4)
    failing("vector_add_out")
    says = "vector_add: out: expected shape [2, 4], found [4, 2]"
    assert refusal(fusedops.vector_add, x, x, out=torch.empty(4, 2)) == says
    says = "vector_add: b: expected dtype float32 (that of a), found float64"
    assert refusal(fusedops.vector_add, x, x.double(), out=torch.empty(4, 2)) == says
    with pytest.raises(RuntimeError, match=r"X: the arguments"):
        fusedops.vector_add(x, x, out=torch.empty(2, 4))


STEPS = {
    "heads": ({"heads": 4}, "heads: expected 2 .the workspace's., found 4"),
    "dtype": ({"dtype": torch.float16}, "qkv: expected dtype float32 .that of the workspace."),
    "batch": ({"batch": 3}, "qkv: expected at most 2 sequences, found 3"),
    "width": ({"width": 47}, "qkv: expected shape .B, S, a multiple of 6. "),
    "layer": ({"layer_id": -1}, "layer_id: expected 0 to 0, found -1"),
    "rotary_dim": ({"rotary_dim": 3}, "rotary_dim: expected an even number up to 8"),
    "rotary_style": ({"rotary_style": "third"}, "rotary_style: expected 'half' or 'interleaved'"),
    "theta": ({"theta": 0.0}, "theta: expected a positive finite number, found 0"),
    "window": ({"window": -1}, "window: expected 0 .all keys. or more, found -1"),
    "mask": ({"mask": torch.zeros(3, 9)}, "mask: expected shape .2, L., .2, 1, L. or .2, 2, 1, L"),
    "alibi": ({"alibi": torch.zeros(3)}, r"alibi: expected shape .2. \(a slope a head\)"),
}


@pytest.mark.parametrize("kernel", [False, True], ids=["reference", "kernel"])
@pytest.mark.parametrize("why", STEPS)
def test_a_step_that_is_refused_has_written_to_nothing(why, kernel, failing):
    given, says = STEPS[why]
    how = {"batch": 2, "width": 48, "dtype": torch.float32, "layer_id": 0, "heads": 2, **given}
    qkv = torch.ones(how.pop("batch"), 1, how.pop("width"), dtype=how.pop("dtype"))
    workspace = fusedops.Workspace(16, 2, 2, 1, 2, 10, torch.float32, CPU)
    memory = workspace.memory
    kept = (*memory.keys, *memory.values, memory.positions, memory.counters, memory.context)
    for one in kept:
        one.zero_()
    if kernel:
        failing("softmax_context_step")
    with pytest.raises(ValueError, match=rf"^softmax_context\w*: {says}"):
        fusedops.softmax_context(qkv, workspace=workspace, **how)
    assert not any(one.any() for one in kept)
    assert workspace.tokens == 0


def test_a_step_that_fails_for_another_reason_raises_that(failing):
    workspace = fusedops.Workspace(16, 2, 2, 1, 2, 10, torch.float32, CPU)
    failing("softmax_context_step")
    with pytest.raises(RuntimeError, match=r"X: the arguments"):
        fusedops.softmax_context(torch.ones(2, 1, 48), workspace=workspace, layer_id=0, heads=2)
    assert workspace.tokens == 0
