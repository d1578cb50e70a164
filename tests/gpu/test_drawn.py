"""Right numbers for shapes, layouts and magnitudes that are drawn anew every run."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings

torch = pytest.importorskip("torch", reason="torch is not installed")

from cases.case import outputs, wide  # noqa: E402
from exact import assert_close, by_case_and_dtype, laid_out_otherwise, poison  # noqa: E402

pytestmark = pytest.mark.gpu

MOST = 1 << 20  # elements
SIZES = st.one_of(
    st.integers(1, 9),
    st.integers(1, 300),
    # At the kernels' seams, which are near powers of two.
    st.builds(
        lambda power, beside: max(1, 2**power + beside), st.integers(5, 15), st.integers(-9, 9)
    ),
)


@pytest.fixture
def gpu():
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    return torch.device("cuda", torch.cuda.current_device())


@st.composite
def shapes(draw, case):
    """A shape that the case is for: the last dimension first, and no more than MOST elements."""
    rank = draw(st.sampled_from(case.ranks))
    drawn = [draw(SIZES if case.lasts is None else st.sampled_from(case.lasts))]
    while len(drawn) < rank:
        drawn.insert(0, min(draw(SIZES), max(1, MOST // math.prod(drawn))))
    assume(math.prod(drawn) >= case.least)
    return tuple(drawn)


def laid_out(draw, arg):
    """The argument, maybe off its alignment, with gaps or with turned strides."""
    if not isinstance(arg, torch.Tensor) or not draw(st.booleans()):
        return arg
    views = list(laid_out_otherwise(arg))
    return views[draw(st.integers(0, len(views) - 1))]


@by_case_and_dtype()
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_drawn(case, dtype, gpu, data):
    shape = data.draw(shapes(case), "shape")
    torch.manual_seed(data.draw(st.integers(0, 2**32), "seed"))
    args = case.inputs(shape, dtype, gpu)
    if case.most and data.draw(st.booleans(), "large numbers"):
        first = (args[0].double() * case.most).clamp(-case.most, case.most).to(dtype)
        args = (first, *args[1:])
    args = tuple(laid_out(data.draw, arg) for arg in args)
    exact = case.exact(*wide(args))
    poison(case.ours(*args))
    found = case.ours(*args)
    assert_close(found, exact, dtype, case)
    for one, again in zip(outputs(found), outputs(case.ours(*args)), strict=True):
        assert torch.equal(one.view(torch.uint8), again.view(torch.uint8)), "two runs differ"
