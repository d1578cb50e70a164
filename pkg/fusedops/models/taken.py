"""Weights and settings of another library's model, asked for by name."""

from typing import Any

import torch
from torch import Tensor


def demand(config: Any, kind: str, **settings: object) -> None:  # noqa: ANN401 - any configuration
    """Raise ValueError where a setting is other than the decoder can compute."""
    for name, expected in settings.items():
        found = getattr(config, name, expected)
        if found != expected:
            raise ValueError(
                f"convert: a {kind} model with {name}={found!r} is not provided; "
                f"expected {name}={expected!r}"
            )


def beside(*linears: Tensor) -> Tensor:
    """Weights [out, in] of linear layers with one input, as one [in, outs together]."""
    return torch.cat(linears).t()
