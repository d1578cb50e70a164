"""A whole decode step takes its memory from the workspace, and nothing from torch's allocator."""

from contextlib import contextmanager

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import fusedops
from fusedops.models.decoder import DecodeStep
from fusedops.models.gpt import GptBlock, GptEnds
from fusedops.models.llama import LlamaBlock, LlamaEnds
from fusedops.models.parts import ModelSizes

WIDTH, INNER, HEADS, LAYERS, WORDS, TOKENS = 64, 96, 4, 3, 52, 24
SIZES = ModelSizes(HEADS, 2, WIDTH // HEADS, LAYERS, TOKENS, 1e-5)
PACKED = (HEADS + 4) * WIDTH // HEADS


def weights(device, dtype, **shapes):
    return {
        name: (torch.randn(shape, device=device) * (0.1 if len(shape) > 1 else 1)).to(dtype)
        for name, shape in shapes.items()
    }


def llama(device, dtype):
    blocks = [
        LlamaBlock(
            SIZES,
            weights(
                *(device, dtype),
                qkv=(WIDTH, PACKED),
                out=(WIDTH, WIDTH),
                gamma=(WIDTH,),
                up=(WIDTH, 2 * INNER),
                down=(INNER, WIDTH),
                mlp_gamma=(WIDTH,),
            ),
            theta=10000.0,
        )
        for _ in range(LAYERS)
    ]
    ends = weights(device, dtype, tokens=(WORDS, WIDTH), gamma=(WIDTH,), head=(WIDTH, WORDS))
    return fusedops.Decoder(SIZES, LlamaEnds(SIZES, ends), blocks)


def gpt(device, dtype, activation="gelu"):
    blocks = [
        GptBlock(
            SIZES,
            weights(
                *(device, dtype),
                qkv=(WIDTH, PACKED),
                qkv_bias=(PACKED,),
                out=(WIDTH, WIDTH),
                out_bias=(WIDTH,),
                gamma=(WIDTH,),
                beta=(WIDTH,),
                up=(WIDTH, INNER),
                up_bias=(INNER,),
                down=(INNER, WIDTH),
                down_bias=(WIDTH,),
                mlp_gamma=(WIDTH,),
                mlp_beta=(WIDTH,),
            ),
            activation=activation,
        )
        for _ in range(LAYERS)
    ]
    ends = weights(
        *(device, dtype),
        tokens=(WORDS, WIDTH),
        positions=(TOKENS + 2, WIDTH),
        gamma=(WIDTH,),
        beta=(WIDTH,),
        head=(WIDTH, WORDS),
    )
    return fusedops.Decoder(SIZES, GptEnds(SIZES, ends, first_position=2), blocks)


MODELS = {
    "llama": llama,
    "gpt": gpt,
    "opt": lambda device, dtype: gpt(device, dtype, "relu"),
}
by_model = pytest.mark.parametrize("kind", MODELS)
by_batch = pytest.mark.parametrize("batch", [1, 20])  # more than 16 rows go to the BLAS library


@contextmanager
def allocations(device):
    """The sizes of what torch's allocator gives meanwhile, of a GPU or of a modelled one."""
    found = []
    if device.type == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats(device)
        yield found
        after = torch.cuda.memory_stats(device)
        found += [1] * (after["allocation.all.allocated"] - before["allocation.all.allocated"])
        return
    # oneDNN's products of bfloat16 allocate; a GPU's do not.
    with (
        torch.backends.mkldnn.flags(enabled=False),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled,
    ):
        yield found
    events = profiled.profiler.kineto_results.events()
    sizes = [event.nbytes() for event in events if event.name() == "[memory]"]
    found += [size for size in sizes if size > 0]


def without_results(model, batch):
    sizes = model.sizes
    like = model.ends.tokens
    heads = sizes.heads * sizes.head_dim
    return fusedops.Workspace(
        *(heads, sizes.heads, sizes.kv_heads, sizes.layers, batch, TOKENS), like.dtype, like.device
    )


@by_model
@by_batch
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_step_gives_the_bits_that_it_gives_without(kind, batch, dtype, anywhere):
    model = MODELS[kind](anywhere, dtype)
    into, plain = model.workspace(batch, TOKENS), without_results(model, batch)
    ids = torch.randint(WORDS, (batch, 5), device=anywhere)
    assert torch.equal(model(ids, into), model(ids, plain))
    for _ in range(3):
        token = torch.randint(WORDS, (batch, 1), device=anywhere)
        expected, found = model(token, plain), model(token, into)
        if kind == "llama" or batch == 1:
            assert torch.equal(found, expected)
        else:  # the BLAS library's own activation takes no memory of ours
            torch.testing.assert_close(found, expected, atol=0.05, rtol=0.05)


def has_kernels(device):
    key = "CUDA" if device.type == "cuda" else "CPU"
    return torch._C._dispatch_has_kernel_for_dispatch_key("fusedops::rms_norm", key)


@by_model
@by_batch
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_step_allocates_nothing(kind, batch, dtype, anywhere):
    if not has_kernels(anywhere):
        pytest.skip("no kernels for the CPU: the references allocate")
    if kind != "llama" and torch.__version__.startswith("2.6."):
        pytest.skip("torch 2.6 allocates memory for cuBLASLt at each product with a bias")
    model = MODELS[kind](anywhere, dtype)
    workspace = model.workspace(batch, TOKENS)
    tokens = [torch.randint(WORDS, (batch, 1), device=anywhere) for _ in range(6)]
    for token in tokens[:3]:
        model(token, workspace)
    with allocations(anywhere) as found:
        for token in tokens[3:]:
            model(token, workspace)
    assert found == []
    with allocations(anywhere) as found:
        model(tokens[0], without_results(model, batch))
    assert found  # it counts


def test_a_step_of_generation_is_one_graph_and_allocates_nothing(counted_gpu):
    model = llama(counted_gpu, torch.bfloat16)
    workspace = model.workspace(2, TOKENS)
    token = torch.randint(WORDS, (2, 1), device=counted_gpu)
    step = DecodeStep(model, token, workspace)
    first = [step().clone() for _ in range(3)]  # as it is, captured, replayed
    with allocations(counted_gpu) as found:
        for _ in range(4):
            step()
    assert found == []
    assert all(int(one.max()) < WORDS for one in first)


def test_sequences_are_those_without(anywhere):
    model = llama(anywhere, torch.float32)
    ids = torch.randint(WORDS, (2, 4), device=anywhere)
    found = model.generate(ids, 8)
    workspace = without_results(model, 2)
    token = model(ids, workspace).argmax(-1, keepdim=True)
    expected = [ids, token]
    for _ in range(7):
        token = model(token, workspace).argmax(-1, keepdim=True)
        expected.append(token)
    assert torch.equal(found, torch.cat(expected, 1))


def test_a_step_in_inference_mode_and_one_outside(anywhere):
    model = llama(anywhere, torch.float32)
    ids = torch.randint(WORDS, (2, 4), device=anywhere)
    expected = model.generate(ids, 4)
    workspace, token, found = model.workspace(2, TOKENS), ids, [ids]
    for inside in (True, True, False, True):
        with torch.inference_mode(inside):
            token = model(token, workspace).argmax(-1, keepdim=True)
            found.append(token)
    assert torch.equal(torch.cat(found, 1), expected)


def test_wrong_calls_of_a_decoder(anywhere):
    model = llama(anywhere, torch.float32)
    ids = torch.randint(WORDS, (2, 4), device=anywhere)
    workspace = model.workspace(2, TOKENS)
    for wrong in (ids[0], ids[:, :0], ids[None]):
        found = str(list(wrong.shape)).replace("[", r"\[")
        says = rf"^Decoder: ids: expected shape \[B, S\], S at least 1, found {found}$"
        with pytest.raises(ValueError, match=says):
            model(wrong, workspace)
        with pytest.raises(ValueError, match=says):
            model.generate(wrong, 2)
    for wrong in (ids.float(), ids.bool()):
        with pytest.raises(ValueError, match="Decoder: ids: expected dtype int64 or int32, found "):
            model(wrong, workspace)
    with pytest.raises(TypeError, match=r"^Decoder: ids: expected a torch\.Tensor, found list$"):
        model([[1, 2]], workspace)
    with pytest.raises(TypeError, match="Decoder: workspace: expected a Workspace, found None"):
        model(ids, None)
    with pytest.raises(ValueError, match="generate: max_new_tokens: expected at least 0, found -1"):
        model.generate(ids, -1)
    with pytest.raises(TypeError, match="generate: max_new_tokens: expected an integer, found str"):
        model.generate(ids, "2")
