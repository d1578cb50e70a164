"""Models of the GPT-2 and OPT kind: layer norms, learned positions, a plain MLP, biases."""

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from fusedops.families.attention import softmax_context
from fusedops.families.gemm import mlp_gemm, qkv_gemm, vector_matmul
from fusedops.families.norm import layer_norm
from fusedops.families.residual import residual_add_bias
from fusedops.models.parts import ModelSizes, WeightsModule
from fusedops.typed import call_by_type
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

    def forward(self, hidden: Tensor, workspace: Workspace, layer_id: int) -> Tensor:
        """One block; the result has the shape of `hidden` [B, S, N]."""
        sizes = self.sizes
        qkv, _ = qkv_gemm(hidden, self.qkv, self.qkv_bias, self.gamma, self.beta, eps=sizes.eps)
        context = softmax_context(
            qkv,
            workspace=workspace,
            layer_id=layer_id,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
        )
        attention = vector_matmul(context, self.out)
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
        )
        return call_by_type(
            residual_add_bias, mlp, hidden, attention, self.out_bias, self.down_bias
        )


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

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Token ids [B, S] at positions [B, S] or [S] as hidden states [B, S, N]."""
        learned = F.embedding(positions + self.first_position, self.positions)
        return F.embedding(ids, self.tokens) + learned

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [B, N] as logits [B, vocabulary]."""
        normed = call_by_type(layer_norm, hidden, self.gamma, self.beta, eps=self.sizes.eps)
        return vector_matmul(normed, self.head)
