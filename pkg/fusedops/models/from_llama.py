"""Llama (Touvron et al. 2023) as transformers hold it."""

from typing import Any

from fusedops.models.decoder import Decoder
from fusedops.models.llama import LlamaBlock, LlamaEnds
from fusedops.models.sizes import Sizes
from fusedops.models.taken import beside, demand


def decoder(model: Any) -> Decoder:  # noqa: ANN401 - a LlamaForCausalLM
    """The decoder of a LlamaForCausalLM."""
    config, weights = model.config, model.state_dict()
    demand(config, "llama", hidden_act="silu", attention_bias=False, mlp_bias=False)
    sizes = Sizes(
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None)
        or config.hidden_size // config.num_attention_heads,
        layers=config.num_hidden_layers,
        max_tokens=config.max_position_embeddings,
        eps=config.rms_norm_eps,
    )
    blocks = []
    for layer in range(sizes.layers):
        of = f"model.layers.{layer}."
        blocks.append(
            LlamaBlock(
                sizes,
                {
                    "qkv": beside(
                        *(weights[f"{of}self_attn.{name}_proj.weight"] for name in "qkv")
                    ),
                    "out": weights[f"{of}self_attn.o_proj.weight"].t(),
                    "gamma": weights[f"{of}input_layernorm.weight"],
                    "up": beside(
                        weights[f"{of}mlp.up_proj.weight"], weights[f"{of}mlp.gate_proj.weight"]
                    ),
                    "down": weights[f"{of}mlp.down_proj.weight"].t(),
                    "mlp_gamma": weights[f"{of}post_attention_layernorm.weight"],
                },
                theta=_theta(config),
            )
        )
    ends = LlamaEnds(
        sizes,
        {
            "tokens": weights["model.embed_tokens.weight"],
            "gamma": weights["model.norm.weight"],
            "head": weights["lm_head.weight"].t(),
        },
    )
    return Decoder(sizes, ends, blocks)


def _theta(config: Any) -> float:  # noqa: ANN401 - a LlamaConfig
    """The base of the rotary angles; transformers 5 and 4 keep it in different places."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(
            f"convert: a llama model with rope_type={kind!r} is not provided; "
            "expected rope_type='default'"
        )
    return float(rope.get("rope_theta", getattr(config, "rope_theta", 10000.0)))
