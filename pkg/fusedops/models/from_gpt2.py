"""GPT-2 (Radford et al. 2019) as transformers hold it. Its weights are [in, out] already."""

from typing import Any

from fusedops.models.decoder import Decoder
from fusedops.models.gpt import GptBlock, GptEnds
from fusedops.models.sizes import Sizes
from fusedops.models.taken import demand

_ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu": "gelu_erf", "relu": "relu"}


def decoder(model: Any) -> Decoder:  # noqa: ANN401 - a GPT2LMHeadModel
    """The decoder of a GPT2LMHeadModel."""
    config, weights = model.config, model.state_dict()
    demand(
        config,
        "gpt2",
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
        reorder_and_upcast_attn=False,
        add_cross_attention=False,
    )
    if config.activation_function not in _ACTIVATIONS:
        demand(config, "gpt2", activation_function="gelu_new")
    sizes = Sizes(
        heads=config.n_head,
        kv_heads=config.n_head,
        head_dim=config.n_embd // config.n_head,
        layers=config.n_layer,
        max_tokens=config.n_positions,
        eps=config.layer_norm_epsilon,
    )
    names = {
        **{"qkv": "attn.c_attn.weight", "qkv_bias": "attn.c_attn.bias"},
        **{"out": "attn.c_proj.weight", "out_bias": "attn.c_proj.bias"},
        **{"gamma": "ln_1.weight", "beta": "ln_1.bias"},
        **{"up": "mlp.c_fc.weight", "up_bias": "mlp.c_fc.bias"},
        **{"down": "mlp.c_proj.weight", "down_bias": "mlp.c_proj.bias"},
        **{"mlp_gamma": "ln_2.weight", "mlp_beta": "ln_2.bias"},
    }
    blocks = [
        GptBlock(
            sizes,
            {ours: weights[f"transformer.h.{layer}.{name}"] for ours, name in names.items()},
            activation=_ACTIVATIONS[config.activation_function],
        )
        for layer in range(sizes.layers)
    ]
    ends = GptEnds(
        sizes,
        {
            "tokens": weights["transformer.wte.weight"],
            "positions": weights["transformer.wpe.weight"],
            "gamma": weights["transformer.ln_f.weight"],
            "beta": weights["transformer.ln_f.bias"],
            "head": weights["lm_head.weight"].t(),
        },
        first_position=0,
    )
    return Decoder(sizes, ends, blocks)
