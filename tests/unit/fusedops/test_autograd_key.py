"""What stands in for torch's own functions where a torch does not have them."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from fusedops import autograd  # noqa: E402

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
