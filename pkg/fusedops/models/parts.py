"""A module whose weights are given, not made."""

from collections.abc import Mapping

from torch import Tensor, nn


class Parts(nn.Module):
    """Holds the tensors that its class annotates, as buffers: they move and are saved with it."""

    def __init__(self, weights: Mapping[str, Tensor | None]) -> None:
        super().__init__()
        names = type(self).__annotations__
        if names.keys() != weights.keys():
            odd = sorted(names.keys() ^ weights.keys())
            raise ValueError(
                f"{type(self).__name__}: expected weights {', '.join(names)}; "
                f"missing or too many: {', '.join(odd)}"
            )
        for name, tensor in weights.items():
            self.register_buffer(name, None if tensor is None else tensor.detach())
