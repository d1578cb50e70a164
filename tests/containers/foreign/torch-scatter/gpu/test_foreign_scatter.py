"""torch-scatter's operators on a GPU, against float64 on the CPU.

torchwheel smoke --here --tests tests/containers/foreign/torch-scatter/gpu WHEEL
"""

import pytest
import torch
import torch_scatter

ROWS, GROUPS, COLS = 4096, 257, 48
# Some roundings of the type, which sums of many elements need, over the largest expected value.
BOUNDS = {torch.float64: 1e-14, torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
REDUCTIONS = {"sum": "sum", "mean": "mean", "min": "amin", "max": "amax"}

requires_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def error(found, expected):
    assert found.is_cuda
    difference = found.double().cpu() - expected
    return (difference.abs().max() / expected.abs().max()).item()


@pytest.fixture(params=BOUNDS, ids=str)
def x(request):
    generator = torch.Generator("cuda").manual_seed(0)
    return torch.randn(ROWS, COLS, device="cuda", generator=generator).to(request.param)


@pytest.fixture
def index():
    generator = torch.Generator("cuda").manual_seed(1)
    return torch.randint(GROUPS, (ROWS,), device="cuda", generator=generator).sort().values


@requires_gpu
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("op", ["scatter", "segment_coo", "segment_csr"])
def test_reductions(x, index, op, reduce):
    wide = index.cpu()[:, None].expand(ROWS, COLS)
    empty = torch.zeros(GROUPS, COLS, dtype=torch.float64)
    reduction = REDUCTIONS[reduce]
    expected = empty.scatter_reduce(0, wide, x.double().cpu(), reduction, include_self=False)
    bounds = torch.searchsorted(index, torch.arange(GROUPS + 1, device="cuda"))
    found = {
        "scatter": lambda: torch_scatter.scatter(x, index, 0, None, GROUPS, reduce),
        "segment_coo": lambda: torch_scatter.segment_coo(x, index, None, GROUPS, reduce),
        "segment_csr": lambda: torch_scatter.segment_csr(x, bounds, None, reduce),
    }[op]()
    assert error(found, expected) < BOUNDS[x.dtype]


@requires_gpu
def test_gather(x, index):
    bounds = torch.searchsorted(index, torch.arange(GROUPS + 1, device="cuda"))
    found = torch_scatter.gather_csr(x[:GROUPS].contiguous(), bounds)
    assert torch.equal(found.cpu(), x[:GROUPS].cpu()[index.cpu()])


@requires_gpu
def test_gradients(index):
    x = torch.randn(ROWS, COLS, device="cuda", requires_grad=True)
    weight = torch.randn(GROUPS, COLS, device="cuda")
    (torch_scatter.scatter(x, index, 0, None, GROUPS, "sum") * weight).sum().backward()
    assert torch.equal(x.grad, weight[index])
