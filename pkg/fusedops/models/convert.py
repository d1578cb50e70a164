"""From a Hugging Face model to a decoder on the fused operators."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fusedops.models.decoder import Decoder
from fusedops.models.gpt import GptBlock, GptEnds
from fusedops.models.llama import LlamaBlock, LlamaEnds
from fusedops.models.parts import ModelSizes

_GPT2_ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu_erf",
    "relu": "relu",
}
_OPT_ACTIVATIONS = {"relu": "relu", "gelu": "gelu_erf", "gelu_new": "gelu"}
_OPT_FIRST_POSITION = 2  # the row of position 0; the rows before it are reserved


def convert(model: Any) -> Decoder:  # noqa: ANN401 - transformers need not be installed
    """Make a decoder of a causal language model of Hugging Face's transformers.

    Weights are taken over in their dtype and on their device; those of queries, keys and values,
    and of the gate and the value, are copied side by side, the others are shared with `model`.

    Args:
        model: a GPT2LMHeadModel, OPTForCausalLM or LlamaForCausalLM.

    Returns:
        The decoder: the same logits within the dtype's tolerance.

    Raises:
        ValueError: a model of another kind, or with a feature that the decoder does not have.
    """
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind not in _CONVERTERS:
        raise ValueError(
            f"convert: model: expected one of Hugging Face's {', '.join(_CONVERTERS)} models, "
            f"found {kind or type(model).__name__}"
        )
    return _CONVERTERS[kind](model)


def _from_gpt2(model: Any) -> Decoder:  # noqa: ANN401 - a GPT2LMHeadModel
    """GPT-2 (Radford et al. 2019). transformers store its weights as [in, out]."""
    config, weights = model.config, model.state_dict()
    _demand(
        config,
        "gpt2",
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
        reorder_and_upcast_attn=False,
        add_cross_attention=False,
    )
    if config.activation_function not in _GPT2_ACTIVATIONS:
        _demand(config, "gpt2", activation_function="gelu_new")
    sizes = ModelSizes(
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
            activation=_GPT2_ACTIVATIONS[config.activation_function],
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


def _from_opt(model: Any) -> Decoder:  # noqa: ANN401 - an OPTForCausalLM
    """OPT (Zhang et al. 2022)."""
    config, weights = model.config, model.state_dict()
    _demand(
        config,
        "opt",
        do_layer_norm_before=True,
        enable_bias=True,
        layer_norm_elementwise_affine=True,
        word_embed_proj_dim=config.hidden_size,
        _remove_final_layer_norm=False,
    )
    if config.activation_function not in _OPT_ACTIVATIONS:
        _demand(config, "opt", activation_function="relu")
    sizes = ModelSizes(
        heads=config.num_attention_heads,
        kv_heads=config.num_attention_heads,
        head_dim=config.hidden_size // config.num_attention_heads,
        layers=config.num_hidden_layers,
        max_tokens=config.max_position_embeddings,
        eps=1e-5,  # torch's default, which the model takes
    )
    names = {
        **{"qkv": "self_attn.{q,k,v}_proj.weight", "qkv_bias": "self_attn.{q,k,v}_proj.bias"},
        **{"out": "self_attn.out_proj.weight", "out_bias": "self_attn.out_proj.bias"},
        **{"gamma": "self_attn_layer_norm.weight", "beta": "self_attn_layer_norm.bias"},
        **{"up": "fc1.weight", "up_bias": "fc1.bias"},
        **{"down": "fc2.weight", "down_bias": "fc2.bias"},
        **{"mlp_gamma": "final_layer_norm.weight", "mlp_beta": "final_layer_norm.bias"},
    }
    blocks = [
        GptBlock(
            sizes,
            {
                ours: _of_linear(weights, f"model.decoder.layers.{layer}.{name}")
                for ours, name in names.items()
            },
            activation=_OPT_ACTIVATIONS[config.activation_function],
        )
        for layer in range(sizes.layers)
    ]
    ends = GptEnds(
        sizes,
        {
            "tokens": weights["model.decoder.embed_tokens.weight"],
            "positions": weights["model.decoder.embed_positions.weight"],
            "gamma": weights["model.decoder.final_layer_norm.weight"],
            "beta": weights["model.decoder.final_layer_norm.bias"],
            "head": weights["lm_head.weight"].t(),
        },
        first_position=_OPT_FIRST_POSITION,
    )
    return Decoder(sizes, ends, blocks)


def _from_llama(model: Any) -> Decoder:  # noqa: ANN401 - a LlamaForCausalLM
    """Llama (Touvron et al. 2023)."""
    config, weights = model.config, model.state_dict()
    _demand(config, "llama", hidden_act="silu", attention_bias=False, mlp_bias=False)
    sizes = ModelSizes(
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None)
        or config.hidden_size // config.num_attention_heads,
        layers=config.num_hidden_layers,
        max_tokens=config.max_position_embeddings,
        eps=config.rms_norm_eps,
    )
    names = {
        "qkv": "self_attn.{q,k,v}_proj.weight",
        "out": "self_attn.o_proj.weight",
        "gamma": "input_layernorm.weight",
        "up": "mlp.{up,gate}_proj.weight",
        "down": "mlp.down_proj.weight",
        "mlp_gamma": "post_attention_layernorm.weight",
    }
    blocks = [
        LlamaBlock(
            sizes,
            {
                ours: _of_linear(weights, f"model.layers.{layer}.{name}")
                for ours, name in names.items()
            },
            theta=_llama_theta(config),
        )
        for layer in range(sizes.layers)
    ]
    ends = LlamaEnds(
        sizes,
        {
            "tokens": weights["model.embed_tokens.weight"],
            "gamma": weights["model.norm.weight"],
            "head": weights["lm_head.weight"].t(),
        },
    )
    return Decoder(sizes, ends, blocks)


def _llama_theta(config: Any) -> float:  # noqa: ANN401 - a LlamaConfig
    """The base of the rotary angles; transformers 5 and 4 hold it in different places."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(
            f"convert: a llama model with rope_type={kind!r} is not provided; "
            "expected rope_type='default'"
        )
    return float(rope.get("rope_theta", getattr(config, "rope_theta", 10000.0)))


_CONVERTERS: dict[str, Callable[[nn.Module], Decoder]] = {
    "gpt2": _from_gpt2,
    "llama": _from_llama,
    "opt": _from_opt,
}


def _demand(config: Any, kind: str, **settings: object) -> None:  # noqa: ANN401 - any configuration
    """Raise ValueError if a setting is not the one that the decoder computes."""
    for name, expected in settings.items():
        value = getattr(config, name, expected)
        if value != expected:
            raise ValueError(
                f"convert: a {kind} model with {name}={value!r} is not provided; "
                f"expected {name}={expected!r}"
            )


def _of_linear(weights: Mapping[str, Tensor], name: str) -> Tensor:
    """The weight [out, in] of a linear layer as [in, out], or a bias or gamma as it is.

    "x.{a,b}.weight" names layers with the same input, which become one: [in, all outs].
    """
    start, _, rest = name.partition("{")
    options, _, end = rest.partition("}")
    parts = [weights[f"{start}{option}{end}"] for option in options.split(",")]
    return (torch.cat(parts) if len(parts) > 1 else parts[0]).t()
