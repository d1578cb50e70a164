"""Models of the Llama kind: RMS norms, rotary positions, a gated MLP, no biases."""

from collections.abc import Mapping
from functools import partial

from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from fusedops.families.attention import softmax_context
from fusedops.families.gemm import decode_gemm
from fusedops.models.parts import ModelSizes, WeightsModule, embedding_in, rows_bytes
from fusedops.workspace import Workspace


class LlamaBlock(WeightsModule):
    """h + attention(RMS(h)), then that + MLP(RMS(that)).

    Weights are [in, out]: qkv [N, (H + 2 Hkv) D], out [H D, N], up [N, 2 F] with the value in the
    first half and the gate in the second, down [F, N].
    """

    qkv: Tensor
    out: Tensor
    gamma: Tensor
    up: Tensor
    down: Tensor
    mlp_gamma: Tensor

    def __init__(
        self, sizes: ModelSizes, weights: Mapping[str, Tensor | None], *, theta: float
    ) -> None:
        super().__init__(weights)
        self.sizes, self.theta = sizes, theta

    def results(self, batch: int) -> int:
        """Bytes of a workspace for the results and temporaries of a step."""
        width, inner = self.down.shape[1], self.down.shape[0]
        made = (self.qkv.shape[1], self.out.shape[0], width, inner)
        between = (width, self.up.shape[1])  # norms and values with gates, where kernels need them
        return rows_bytes(batch, self.qkv.dtype, *made, *between)

    def forward(
        self, hidden: Tensor, workspace: Workspace, layer_id: int, results: Workspace | None
    ) -> Tensor:
        """One block, in place of `hidden` [B, S, N]; `results` is where the rest lies, if given."""
        sizes = self.sizes
        # Nobody writes the weights while the model runs.
        product = partial(decode_gemm, eps=sizes.eps, constant=True, workspace=results)
        qkv = product(hidden, self.qkv, self.gamma)
        context = softmax_context(
            qkv,
            workspace=workspace,
            layer_id=layer_id,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            rotary_dim=sizes.head_dim,
            rotary_style="half",
            theta=self.theta,
        )
        total = product(context, self.out, None, hidden)
        inner = product(total, self.up, self.mlp_gamma, activation="swiglu")
        return product(inner, self.down, None, total, out=hidden)


class LlamaEnds(WeightsModule):
    """Before and after the blocks: the token table, the last norm, the head."""

    tokens: Tensor
    gamma: Tensor
    head: Tensor

    def __init__(self, sizes: ModelSizes, weights: Mapping[str, Tensor | None]) -> None:
        super().__init__(weights)
        self.sizes = sizes

    def results(self, batch: int) -> tuple[int, int]:
        """Bytes of a workspace before the blocks, and after them."""
        width, dtype = self.tokens.shape[1], self.tokens.dtype
        after = rows_bytes(batch, dtype, width, self.head.shape[1])
        return rows_bytes(batch, dtype, width), after

    def embed(self, ids: Tensor, positions: Tensor, results: Workspace | None) -> Tensor:
        """Token ids [B, S] as hidden states [B, S, N]; positions are the blocks' concern."""
        del positions
        return embedding_in(results, self.tokens, ids) if results else F.embedding(ids, self.tokens)

    def logits(self, hidden: Tensor, results: Workspace | None) -> Tensor:
        """Hidden states [B, N] as logits [B, vocabulary]."""
        eps = self.sizes.eps
        return decode_gemm(hidden, self.head, self.gamma, eps=eps, constant=True, workspace=results)
