"""A workspace: its regions, its lifetime, its errors."""

import gc
from contextlib import nullcontext
from itertools import pairwise

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import fusedops


def make_workspace(device, **sizes):
    arguments = {"hidden": 128, "heads": 4, "kv_heads": 2, "layers": 3, "max_batch": 2}
    arguments |= {"max_tokens": 10, "dtype": torch.float16, "device": device, **sizes}
    return fusedops.Workspace(**arguments)


def tensors(workspace):
    memory = workspace.memory
    others = (memory.context, memory.positions, memory.counters, memory.partials)
    return [*memory.keys, *memory.values, *others]


@pytest.mark.parametrize("sizes", [{}, {"hidden": 20}, {"heads": 64, "dtype": torch.float32}])
def test_regions_are_disjoint_and_aligned(sizes, anywhere):
    workspace = make_workspace(anywhere, **sizes)
    spans = sorted((one.data_ptr(), one.data_ptr() + one.nbytes) for one in tensors(workspace))
    spans = [(begin, end) for begin, end in spans if end > begin]
    assert all(begin % 256 == 0 for begin, _ in spans)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert spans[-1][1] - spans[0][0] <= workspace.bytes()


def test_it_is_one_allocation(counted_gpu):
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats(counted_gpu)["allocation.all.allocated"]
    workspace = make_workspace(counted_gpu)
    assert torch.cuda.memory_stats(counted_gpu)["allocation.all.allocated"] == before + 1
    allocated = torch.cuda.memory_allocated(counted_gpu)
    workspace.release()
    assert allocated - torch.cuda.memory_allocated(counted_gpu) >= workspace.bytes()


def test_a_result_outlives_its_workspace(anywhere):
    workspace = make_workspace(anywhere)
    qkv = torch.randn(2, 1, 8 * 32, device=anywhere).half()
    with torch.no_grad():
        actual = fusedops.softmax_context(qkv, workspace=workspace, layer_id=2, heads=4)
    copy = actual.clone()
    begin = workspace.memory.context.data_ptr()
    assert actual.data_ptr() == begin
    workspace.release()
    del workspace
    gc.collect()
    filler = [torch.full((1 << 12,), 7.0, device=anywhere) for _ in range(200)]
    assert torch.equal(actual, copy)
    assert len(filler) == 200


def test_memory_is_freed_with_its_last_result(counted_gpu):
    gc.collect()  # of other tests, while memory is counted
    before = torch.cuda.memory_allocated(counted_gpu)
    workspace = make_workspace(counted_gpu, max_tokens=4096)
    actual = workspace.memory.context[:1]
    workspace.release()
    assert torch.cuda.memory_allocated(counted_gpu) - before >= workspace.bytes()
    del actual
    assert torch.cuda.memory_allocated(counted_gpu) == before


def test_release_and_retake(anywhere):
    workspace = make_workspace(anywhere)
    qkv = torch.randn(2, 4, 8 * 32, device=anywhere).half()
    how = {"workspace": workspace, "heads": 4}
    with torch.no_grad():
        fusedops.softmax_context(qkv, layer_id=2, **how)
        assert workspace.tokens == 4
        workspace.release()
        assert "released" in repr(workspace)
        assert workspace.tokens == 0
        with pytest.raises(RuntimeError, match=r"Workspace: it has been released; retake\(\)"):
            fusedops.softmax_context(qkv, layer_id=2, **how)
        workspace.retake()
        assert workspace.positions.tolist() == [0, 0]
        fusedops.softmax_context(qkv[:, :1], layer_id=2, **how)
    assert workspace.positions.tolist() == [1, 1]


def test_reset(anywhere):
    workspace = make_workspace(anywhere)
    workspace.positions.fill_(5)
    workspace.count(5)
    workspace.reset()
    assert workspace.tokens == 0
    assert workspace.positions.tolist() == [0, 0]


def test_counting(anywhere):
    workspace = make_workspace(anywhere)
    workspace.count(7)
    assert workspace.tokens == 7
    says = r"Workspace.count: tokens: expected at most 3 tokens .* beside the 7 .*, found 4"
    with pytest.raises(ValueError, match=says):
        workspace.count(4)
    assert workspace.tokens == 7


def test_the_table_names_every_region(anywhere):
    workspace = make_workspace(anywhere)
    text = repr(workspace)
    for region in workspace.layout.regions:
        line = next(line for line in text.splitlines() if line.split()[0] == region.name)
        assert line.split()[1:3] == [str(region.offset), str(region.bytes)]
    assert str(workspace.bytes()) in text
    assert "0 of 10 tokens" in text


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"hidden": 130}, r"hidden: expected a multiple of 4 \(heads\), found 130"),
        ({"hidden": 2048}, "hidden: expected at most 256 for each of 4 heads, found 2048"),
        ({"kv_heads": 3}, r"kv_heads: expected a divisor of 4 \(heads\), found 3"),
        ({"heads": 0}, "heads: expected at least 1, found 0"),
        ({"layers": -1}, "layers: expected at least 1, found -1"),
        ({"max_tokens": 0}, "max_tokens: expected at least 1, found 0"),
        ({"dtype": torch.float64}, "dtype: expected float32, float16 or bfloat16, found float64"),
    ],
)
def test_wrong_sizes(sizes, message, anywhere):
    with pytest.raises(ValueError, match=f"Workspace: {message}"):
        make_workspace(anywhere, **sizes)


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_a_workspace_without_memory(kind):
    """Shapes alone, as a tracer wants them; torch exports no memory of such tensors."""
    device = torch.device("meta" if kind == "meta" else "cpu")
    with FakeTensorMode() if kind == "fake" else nullcontext():
        workspace = make_workspace(device, dtype=torch.float32, results=4096)
        how = {"workspace": workspace, "layer_id": 2, "heads": 4}
        for tokens in (5, 1, 1):
            qkv = torch.empty(2, tokens, 8 * 32, device=device)
            assert fusedops.softmax_context(qkv, **how).shape == (2, tokens, 128)
        x = torch.empty(3, 8, device=device)
        assert fusedops.vector_add(x, x, workspace=workspace).shape == (3, 8)
        assert fusedops.rms_norm(x, x[0], workspace=workspace).device == device
    assert workspace.tokens == 7


def test_a_workspace_of_another_device_is_named(anywhere):
    workspace = make_workspace(anywhere, dtype=torch.float32, results=4096)
    x = torch.ones(3, 8, device="meta")
    says = rf"^vector_add: workspace: expected device meta, found {workspace.device}$"
    with pytest.raises(ValueError, match=says):
        fusedops.vector_add(x, x, workspace=workspace)


def test_results_in_and_outside_of_inference_mode(anywhere):
    workspace = make_workspace(anywhere, dtype=torch.float32, results=4096)
    x = torch.ones(3, 8, device=anywhere)
    for inside in (True, False, True):
        with torch.inference_mode(inside):
            workspace.rewind()
            made = fusedops.vector_add(x, x, workspace=workspace)
            assert not made.is_inference()
            assert not workspace.rest().is_inference()
            made.add_(x)  # torch refuses it to an inference tensor outside
            assert torch.equal(made, 3 * x)
