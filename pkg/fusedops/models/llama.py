"""Models of the Llama kind: RMS norms, rotary positions, a gated MLP, no biases."""

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from fusedops.families.attention import softmax_context
from fusedops.families.gemm import rms_mlp_gemm, rms_qkv_gemm, vector_matmul
from fusedops.families.norm import rms_norm
from fusedops.families.vector_add import vector_add
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
        width = self.qkv.shape[0]
        made = (self.qkv.shape[1], *(width,) * 4, self.up.shape[1], self.down.shape[0])
        return rows_bytes(batch, self.qkv.dtype, *made)

    def forward(
        self, hidden: Tensor, workspace: Workspace, layer_id: int, results: Workspace | None
    ) -> Tensor:
        """One block, in place of `hidden` [B, S, N]; `results` is where the rest lies, if given."""
        sizes = self.sizes
        qkv, _ = rms_qkv_gemm(hidden, self.qkv, self.gamma, eps=sizes.eps, workspace=results)
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
        attention = vector_matmul(context, self.out, workspace=results)
        mlp, hidden = rms_mlp_gemm(
            attention,
            hidden,
            self.up,
            self.down,
            self.mlp_gamma,
            eps=sizes.eps,
            activation="swiglu",
            workspace=results,
        )
        return vector_add(mlp, hidden, out=hidden)


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
        normed = rms_norm(hidden, self.gamma, eps=self.sizes.eps, workspace=results)
        return vector_matmul(normed, self.head, workspace=results)
