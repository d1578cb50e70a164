"""The parts that decoder-only models share: their sizes, and a module of given weights."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusedops.families.attention.cache import round_up
from fusedops.workspace import Workspace
from fusedops.workspace_layout import ALIGNMENT


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a decoder-only model.

    Attributes:
        heads: query heads.
        kv_heads: key and value heads; a divisor of `heads`.
        head_dim: elements of a head.
        layers: blocks.
        max_tokens: positions that the model was made for.
        eps: what the norms add to the variance.
    """

    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    max_tokens: int
    eps: float


class WeightsModule(nn.Module):
    """Holds the tensors that its class annotates, as buffers: they move and are saved with it."""

    def __init__(self, weights: Mapping[str, Tensor | None]) -> None:
        super().__init__()
        names = type(self).__annotations__
        if names.keys() != weights.keys():
            differing = sorted(names.keys() ^ weights.keys())
            raise ValueError(
                f"{type(self).__name__}: expected weights {', '.join(names)}; "
                f"missing or too many: {', '.join(differing)}"
            )
        for name, tensor in weights.items():
            self.register_buffer(name, None if tensor is None else tensor.detach())


def rows_bytes(batch: int, dtype: torch.dtype, *widths: int) -> int:
    """Bytes that a workspace needs for matrices of `batch` rows, of these widths."""
    return sum(round_up(batch * width * dtype.itemsize, ALIGNMENT) for width in widths)


def embedding_in(workspace: Workspace, table: Tensor, ids: Tensor) -> Tensor:
    """The rows of a table for ids [B, 1], as [B, 1, N] in the workspace."""
    shape = torch.Size((*ids.shape, table.shape[1]))
    rows = workspace.take("embedding", shape, table.dtype)
    torch.index_select(table, 0, ids.reshape(-1), out=rows.view(-1, table.shape[1]))
    return rows
