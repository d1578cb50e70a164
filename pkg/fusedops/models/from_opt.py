"""OPT (Zhang et al. 2022) as transformers hold it."""

from typing import Any

import torch

from fusedops.models.decoder import Decoder
from fusedops.models.gpt import GptBlock, GptEnds
from fusedops.models.sizes import Sizes
from fusedops.models.taken import beside, demand

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu_erf", "gelu_new": "gelu"}
_RESERVED = 2  # rows of the position table before position 0


def decoder(model: Any) -> Decoder:  # noqa: ANN401 - an OPTForCausalLM
    """The decoder of an OPTForCausalLM."""
    config, weights = model.config, model.state_dict()
    demand(
        config,
        "opt",
        do_layer_norm_before=True,
        enable_bias=True,
        layer_norm_elementwise_affine=True,
        word_embed_proj_dim=config.hidden_size,
        _remove_final_layer_norm=False,
    )
    if config.activation_function not in _ACTIVATIONS:
        demand(config, "opt", activation_function="relu")
    sizes = Sizes(
        heads=config.num_attention_heads,
        kv_heads=config.num_attention_heads,
        head_dim=config.hidden_size // config.num_attention_heads,
        layers=config.num_hidden_layers,
        max_tokens=config.max_position_embeddings,
        eps=1e-5,  # torch's default, which the model takes
    )
    blocks = []
    for layer in range(sizes.layers):
        of = f"model.decoder.layers.{layer}."
        projections = [f"{of}self_attn.{name}_proj" for name in "qkv"]
        blocks.append(
            GptBlock(
                sizes,
                {
                    "qkv": beside(*(weights[f"{name}.weight"] for name in projections)),
                    "qkv_bias": torch.cat([weights[f"{name}.bias"] for name in projections]),
                    "out": weights[f"{of}self_attn.out_proj.weight"].t(),
                    "out_bias": weights[f"{of}self_attn.out_proj.bias"],
                    "gamma": weights[f"{of}self_attn_layer_norm.weight"],
                    "beta": weights[f"{of}self_attn_layer_norm.bias"],
                    "up": weights[f"{of}fc1.weight"].t(),
                    "up_bias": weights[f"{of}fc1.bias"],
                    "down": weights[f"{of}fc2.weight"].t(),
                    "down_bias": weights[f"{of}fc2.bias"],
                    "mlp_gamma": weights[f"{of}final_layer_norm.weight"],
                    "mlp_beta": weights[f"{of}final_layer_norm.bias"],
                },
                activation=_ACTIVATIONS[config.activation_function],
            )
        )
    ends = GptEnds(
        sizes,
        {
            "tokens": weights["model.decoder.embed_tokens.weight"],
            "positions": weights["model.decoder.embed_positions.weight"],
            "gamma": weights["model.decoder.final_layer_norm.weight"],
            "beta": weights["model.decoder.final_layer_norm.bias"],
            "head": weights["lm_head.weight"].t(),
        },
        first_position=_RESERVED,
    )
    return Decoder(sizes, ends, blocks)
