"""Decode tokens a second of a converted model against the model itself, eager and compiled.

    python bench/end_to_end.py [--out OUT.json] [--model llama-1b ...] [--batch 1 32]

Models have the sizes of known ones and random weights, made on the GPU. A prompt is taken, then
tokens are decoded greedily one step at a time; a figure is the median of many steps, by device
events. Eager and torch.compile(mode="reduce-overhead") run on a static cache, ours on its
workspace and CUDA graph. Needs torch, transformers and an installed fusedops.
"""

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers
from kernelbench.about import about
from kernelbench.record import write_text
from kernelbench.timing import Cache, large_copy_bandwidth
from torch import Tensor

import fusedops
from fusedops.models.decoder import DecodeStep

MODELS: dict[str, Callable[[], transformers.PretrainedConfig]] = {
    "llama-1b": lambda: transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=4096,
    ),
    "llama-3.2-1b": lambda: transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    ),
    "llama-8b": lambda: transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=4096,
    ),
    "opt-1.3b": lambda: transformers.OPTConfig(
        hidden_size=2048,
        ffn_dim=8192,
        num_hidden_layers=24,
        num_attention_heads=32,
        word_embed_proj_dim=2048,
        max_position_embeddings=2048,
    ),
}
WAYS = ("ours", "eager", "compile")
WARM = 8  # steps before any is timed: compilation, capture, caches


@dataclass(frozen=True)
class Row:
    """One way of decoding."""

    model: str
    who: str
    batch: int
    prompt: int
    step_ms: float | None
    tokens_per_second: float | None
    share_of_limit: float | None  # time to read the weights at a copy's speed, over a step's
    peak_gb: float | None
    failure: str | None = None


def make(name: str) -> transformers.PreTrainedModel:
    """The model with random weights, bfloat16, on the GPU."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return transformers.AutoModelForCausalLM.from_config(MODELS[name]()).eval()
    finally:
        torch.set_default_dtype(torch.float32)


def theirs(
    model: transformers.PreTrainedModel, ids: Tensor, tokens: int, compiled: bool
) -> Callable[[], None]:
    """A step of transformers' own on a static cache."""
    batch, length = ids.shape
    cache = transformers.StaticCache(config=model.config, max_cache_len=length + tokens)
    forward = model
    if compiled:
        torch.compiler.reset()
        forward = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    logits = model(ids, past_key_values=cache, use_cache=True).logits
    token = logits[:, -1:].argmax(-1)
    position = torch.tensor([length], device=ids.device)

    def step() -> None:
        if compiled:
            torch.compiler.cudagraph_mark_step_begin()
        found = forward(
            token,
            past_key_values=cache,
            use_cache=True,
            cache_position=position,
            position_ids=position.expand(batch, 1),
        ).logits
        token.copy_(found[:, -1:].argmax(-1))
        position.add_(1)

    return step


def ours(model: transformers.PreTrainedModel, ids: Tensor, tokens: int) -> Callable[[], None]:
    """A step of the converted model."""
    decoder = fusedops.convert(model)
    workspace = decoder.workspace(ids.shape[0], ids.shape[1] + tokens)
    token = decoder(ids, workspace).argmax(-1, keepdim=True)
    return DecodeStep(decoder, token, workspace)


def timed(step: Callable[[], None], steps: int) -> float:
    """Median milliseconds of a step."""
    for _ in range(WARM):
        step()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events))


def weight_bytes(model: transformers.PreTrainedModel) -> int:
    """Bytes of the weights that a step reads whole: all but a table of tokens that is no head."""
    table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    return sum(one.nbytes for one in model.parameters() if one is head or one.shape != table.shape)


def measure(
    name: str,
    model: transformers.PreTrainedModel,
    batch: int,
    options: argparse.Namespace,
    limit_ms: float,
) -> list[Row]:
    """Every way of decoding that was asked for, one after another."""
    prompt, steps = options.prompt, options.steps
    ids = torch.randint(1000, (batch, prompt), device="cuda")
    tokens = WARM + steps + 2
    ways: dict[str, Callable[[], Callable[[], None]]] = {
        "ours": lambda: ours(model, ids, tokens),
        "eager": lambda: theirs(model, ids, tokens, compiled=False),
        "compile": lambda: theirs(model, ids, tokens, compiled=True),
    }
    rows = []
    for who in options.who:
        start = ways[who]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            with torch.no_grad():
                milliseconds = timed(start(), steps)
            peak = torch.cuda.max_memory_allocated() / 1e9
            rate = batch / milliseconds * 1e3
            share = limit_ms / milliseconds
            rows.append(Row(name, who, batch, prompt, milliseconds, rate, share, peak))
        except Exception as error:
            if who == "ours":
                raise
            rows.append(Row(name, who, batch, prompt, *(None,) * 4, str(error)[:200]))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("end-to-end.json"), help="the JSON")
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--who", nargs="+", choices=WAYS, default=WAYS, help="ways of decoding")
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--steps", type=int, default=64, help="steps that are timed")
    parser.add_argument("--wheel", type=Path, help="the installed wheel, for its sha256")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench end_to_end: no GPU that torch can use", file=sys.stderr)
        return 1
    rows = []
    bandwidth = large_copy_bandwidth(20, Cache())
    facts = about(options.wheel, steps=options.steps, copy_bytes_per_second=bandwidth)
    heads = f"{'ms a step':>10} {'tokens/s':>9} {'of limit':>8} {'peak GB':>8}"
    print(f"{'model':<12} {'batch':>5} {'who':<8} {heads}")
    for name in options.model:
        model = make(name)
        limit_ms = weight_bytes(model) / bandwidth * 1e3
        for batch in options.batch:
            for row in measure(name, model, batch, options, limit_ms):
                rows.append(row)
                figures = (
                    f"{row.step_ms:10.3f} {row.tokens_per_second:9.0f}"
                    f" {row.share_of_limit:8.1%} {row.peak_gb:8.2f}"
                    if row.step_ms
                    else row.failure
                )
                print(f"{row.model:<12} {row.batch:>5} {row.who:<8} {figures}", flush=True)
            found = {"about": facts, "rows": [asdict(row) for row in rows]}
            write_text(options.out, json.dumps(found, indent=1) + "\n")
        del model
    return 0


if __name__ == "__main__":
    sys.exit(main())
