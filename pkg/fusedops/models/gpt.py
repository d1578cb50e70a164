"""Models of the GPT-2 and OPT kind: layer norms, learned positions, a plain MLP, biases."""

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from fusedops.families.attention import softmax_context
from fusedops.families.gemm import mlp_gemm, qkv_gemm, vector_matmul
from fusedops.families.norm import layer_norm
from fusedops.families.residual import residual_add_bias
from fusedops.models.parts import ModelSizes, WeightsModule, embedding_in, rows_bytes
from fusedops.workspace import Workspace


class GptBlock(WeightsModule):
    """h + attention(LN(h)), then that + MLP(LN(that)).

    Weights are [in, out]: qkv [N, (H + 2 Hkv) D], out [H D, N], up [N, F], down [F, N].
    """

    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    out_bias: Tensor
    gamma: Tensor
    beta: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor
    mlp_gamma: Tensor
    mlp_beta: Tensor

    def __init__(
        self, sizes: ModelSizes, weights: Mapping[str, Tensor | None], *, activation: str
    ) -> None:
        super().__init__(weights)
        self.sizes, self.activation = sizes, activation

    def results(self, batch: int) -> int:
        """Bytes of a workspace for the results and temporaries of a step."""
        width, inner = self.qkv.shape[0], self.up.shape[1]
        return rows_bytes(batch, self.qkv.dtype, self.qkv.shape[1], *(width,) * 4, inner, inner)

    def forward(
        self, hidden: Tensor, workspace: Workspace, layer_id: int, results: Workspace | None
    ) -> Tensor:
        """One block, in place of `hidden` [B, S, N]; `results` is where the rest lies, if given."""
        sizes = self.sizes
        qkv, _ = qkv_gemm(
            *(hidden, self.qkv, self.qkv_bias, self.gamma, self.beta),
            eps=sizes.eps,
            workspace=results,
        )
        context = softmax_context(
            qkv,
            workspace=workspace,
            layer_id=layer_id,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
        )
        attention = vector_matmul(context, self.out, workspace=results)
        mlp, _ = mlp_gemm(
            attention,
            hidden,
            self.out_bias,
            self.up,
            self.up_bias,
            self.down,
            self.mlp_gamma,
            self.mlp_beta,
            eps=sizes.eps,
            activation=self.activation,
            workspace=results,
        )
        return residual_add_bias(mlp, hidden, attention, self.out_bias, self.down_bias, out=hidden)


class GptEnds(WeightsModule):
    """Before and after the blocks: token and position tables, the last norm, the head.

    The head is [N, vocabulary]. The tables are [rows, N]; the row of position 0 is
    `first_position`: OPT has two rows before it.
    """

    tokens: Tensor
    positions: Tensor
    gamma: Tensor
    beta: Tensor
    head: Tensor

    def __init__(
        self, sizes: ModelSizes, weights: Mapping[str, Tensor | None], *, first_position: int
    ) -> None:
        super().__init__(weights)
        self.sizes, self.first_position = sizes, first_position

    def results(self, batch: int) -> tuple[int, int]:
        """Bytes of a workspace before the blocks, and after them."""
        width, dtype = self.tokens.shape[1], self.tokens.dtype
        after = rows_bytes(batch, dtype, width, self.head.shape[1])
        return rows_bytes(batch, dtype, width, width), after

    def embed(self, ids: Tensor, positions: Tensor, results: Workspace | None) -> Tensor:
        """Token ids [B, S] at positions [B, S] or [S] as hidden states [B, S, N]."""
        table = self.positions[self.first_position :]
        if results:
            hidden = embedding_in(results, self.tokens, ids)
            return hidden.add_(embedding_in(results, table, positions))
        return F.embedding(ids, self.tokens) + F.embedding(positions, table)

    def logits(self, hidden: Tensor, results: Workspace | None) -> Tensor:
        """Hidden states [B, N] as logits [B, vocabulary]."""
        normed = layer_norm(hidden, self.gamma, self.beta, eps=self.sizes.eps, workspace=results)
        return vector_matmul(normed, self.head, workspace=results)
