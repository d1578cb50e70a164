import torch
from plus import add


def test_add_is_there():
    assert callable(add)


def test_add_on_the_gpu():
    if not torch.cuda.is_available():
        return
    a, b = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    out = torch.empty_like(a)
    assert add(a.numel(), a.data_ptr(), b.data_ptr(), out.data_ptr()) == 0
    assert torch.equal(out, a + b)
