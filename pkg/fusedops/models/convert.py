"""From a Hugging Face model to a decoder on the fused operators."""

from collections.abc import Callable
from typing import Any

from torch import nn

from fusedops.models import from_gpt2, from_llama, from_opt
from fusedops.models.decoder import Decoder

_KINDS: dict[str, Callable[[nn.Module], Decoder]] = {
    "gpt2": from_gpt2.decoder,
    "llama": from_llama.decoder,
    "opt": from_opt.decoder,
}


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
    if kind not in _KINDS:
        raise ValueError(
            f"convert: model: expected one of Hugging Face's {', '.join(_KINDS)} models, "
            f"found {kind or type(model).__name__}"
        )
    return _KINDS[kind](model)
