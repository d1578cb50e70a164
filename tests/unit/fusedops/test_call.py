"""The short way of a call without a gradient, and where it is not taken."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.autograd import forward_ad  # noqa: E402

import fusedops  # noqa: E402
from fusedops import autograd  # noqa: E402
from fusedops.call import AUTOGRAD, call, call_in_place, excluded  # noqa: E402

BIAS = torch.linspace(-1, 1, 5)


@pytest.fixture
def operator():
    """An operator that counts the calls of its kernel for Autograd."""
    seen = []
    with torch.library._scoped_library("fusedops_test_call", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeExplicitAutograd")

        def autograd(x):
            seen.append(x)
            with torch._C._AutoDispatchBelowAutograd():
                return torch.ops.fusedops_test_call.twice(x)

        library.impl("twice", autograd, "Autograd")
        yield torch.ops.fusedops_test_call.twice, seen


def test_no_gradient_is_wanted(operator):
    twice, seen = operator
    assert call(twice, BIAS).equal(2 * BIAS)
    with torch.no_grad():
        call(twice, BIAS.clone().requires_grad_())
    assert not seen


def test_a_gradient_is_wanted(operator):
    twice, seen = operator
    call(twice, BIAS.clone().requires_grad_())
    torch.func.vmap(lambda x: call(twice, x))(BIAS)
    assert len(seen) >= 2


def test_autograd_is_as_it_was_after_the_call(operator):
    twice, _ = operator
    call(twice, BIAS)
    assert not excluded(AUTOGRAD)
    with pytest.raises(TypeError, match=r"twice: x: expected a torch\.Tensor, found str"):
        call(twice, "no tensor")
    assert not excluded(AUTOGRAD)
    with torch.inference_mode():
        call(twice, BIAS)
        assert excluded(AUTOGRAD)


def test_torch_is_told_what_a_call_wrote_to():
    written, read = BIAS.clone(), BIAS.clone()
    with torch.inference_mode():
        unversioned = BIAS.clone()
    with torch.library._scoped_library("fusedops_test_call", "DEF") as library:
        library.define("into(Tensor x, Tensor(a!) y, Tensor(b!) z) -> ()")
        library.impl("into", lambda x, y, z: None, "CompositeExplicitAutograd")
        call_in_place(torch.ops.fusedops_test_call.into, read, written, unversioned)
    assert written._version == 1
    assert read._version == 0


def loss(x, bias):
    return fusedops.bias_gelu(x, bias).square().sum()


def exact(x, bias):
    return torch.nn.functional.gelu(x + bias, approximate="tanh").square().sum()


@pytest.mark.parametrize(
    "transform",
    [
        torch.func.grad,
        lambda f: torch.func.vmap(torch.func.grad(f), (0, None)),
        lambda f: torch.func.grad(lambda x, b: torch.func.vmap(f, (0, None))(x, b).sum()),
    ],
    ids=["grad", "vmap of grad", "grad of vmap"],
)
def test_a_gradient_by_a_transform_is_not_lost(transform):
    """Under vmap a tensor that requires a gradient does not look like one."""
    x = torch.randn(3, 5)
    torch.testing.assert_close(transform(loss)(x, BIAS), transform(exact)(x, BIAS))


def in_place(x):
    heads = x.view(1, 1, 1, -1)
    return fusedops.apply_rotary_pos_emb_(heads, heads.clone(), rotary_dim=2)[0]


def dual(function):
    def call(x):
        with forward_ad.dual_level():
            return function(forward_ad.make_dual(x, torch.ones(4)))

    return call


@pytest.mark.parametrize(
    "function",
    [lambda x: fusedops.bias_gelu(x, x), lambda x: torch.ops.fusedops.bias_gelu(x, x), in_place],
    ids=["function", "operator", "in place"],
)
@pytest.mark.parametrize("transform", [torch.func.jacfwd, dual])
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func's own
def test_a_tangent_is_refused_not_lost(function, transform):
    x = torch.randn(4)
    with pytest.raises(NotImplementedError, match="no derivative in forward mode"):
        transform(function)(x)
    with forward_ad.dual_level():
        function(x)


PLAIN, WANTED = torch.ones(2), torch.ones(2, requires_grad=True)


@pytest.mark.parametrize(
    ("args", "keywords", "wants"),
    [
        ((), {}, False),
        ((PLAIN, None, 3, "tanh"), {"eps": 1e-5}, False),
        ((PLAIN, WANTED), {}, True),
        ((PLAIN,), {"bias": WANTED}, True),
        ((PLAIN, WANTED.detach()), {}, False),
    ],
)
def test_whether_a_gradient_is_wanted(args, keywords, wants):
    """torch 2.6 has no function for it; where there is one, it says the same."""
    assert autograd.any_requires_grad(*args, **keywords) is wants
    assert autograd.asks_for_gradients(*args, **keywords) is wants
