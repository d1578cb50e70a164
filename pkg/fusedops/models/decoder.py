"""A decoder-only model: embeddings, blocks, logits; a prompt, then a token at a time."""

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from fusedops import checks
from fusedops.kinds import check_integer, check_kind, check_workspace
from fusedops.models.gpt import GptBlock, GptEnds
from fusedops.models.llama import LlamaBlock, LlamaEnds
from fusedops.models.parts import ModelSizes
from fusedops.workspace import Workspace


class Decoder(nn.Module):
    """A language model for inference on the fused operators.

    `forward` takes a prompt or one further token of each sequence and keeps keys and values in a
    workspace; `generate` does the whole of it. Made by `fusedops.convert`.
    """

    ends: GptEnds | LlamaEnds

    def __init__(
        self,
        sizes: ModelSizes,
        ends: GptEnds | LlamaEnds,
        blocks: Sequence[GptBlock] | Sequence[LlamaBlock],
    ) -> None:
        super().__init__()
        self.sizes, self.ends, self.blocks = sizes, ends, nn.ModuleList(blocks)

    def workspace(self, batch: int, tokens: int) -> Workspace:
        """Memory for `batch` sequences of up to `tokens` tokens each, on the model's device.

        Raises:
            ValueError: more tokens than the model has positions for.
        """
        sizes, like = self.sizes, self.ends.tokens
        before, after = self.ends.results(batch)
        blocks = cast("Iterable[GptBlock | LlamaBlock]", self.blocks)
        if tokens > sizes.max_tokens:
            raise ValueError(
                f"workspace: tokens: expected at most {sizes.max_tokens} (the model's positions), "
                f"found {tokens}"
            )
        return Workspace(
            hidden=sizes.heads * sizes.head_dim,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            layers=sizes.layers,
            max_batch=batch,
            max_tokens=tokens,
            dtype=like.dtype,
            device=like.device,
            results=before + max(after, *(block.results(batch) for block in blocks)),
        )

    @torch.no_grad()
    def forward(self, ids: Tensor, workspace: Workspace) -> Tensor:
        """Take a prompt, or one more token of each sequence.

        Args:
            ids: [B, S]. S > 1 is a prompt and starts the sequences anew; S = 1 is one more token.
            workspace: of `self.workspace`, the same for all steps of the sequences.

        Returns:
            Logits of the next token, [B, vocabulary], in the model's dtype. A step allocates
            nothing: its logits lie in the workspace, and the next step overwrites them.
        """
        _check_ids(ids)
        check_workspace("Decoder", workspace)
        tokens = ids.shape[1]
        in_place = tokens == 1 and workspace.sizes.results > 0
        results = workspace if in_place and not torch.compiler.is_compiling() else None
        workspace.rewind()
        if tokens == 1:
            positions = workspace.positions[: ids.shape[0], None]
        else:
            positions = torch.arange(tokens, device=ids.device)
        hidden = self.ends.embed(ids, positions, results)
        kept = workspace.used
        for layer_id, block in enumerate(self.blocks):
            workspace.rewind(kept)
            hidden = block(hidden, workspace, layer_id, results)
        workspace.rewind(kept)
        return self.ends.logits(hidden[:, -1], results)

    @torch.no_grad()
    def generate(self, ids: Tensor, max_new_tokens: int) -> Tensor:
        """Continue sequences greedily: each next token is the likeliest.

        On a GPU the step is captured in a CUDA graph and replayed, so that the host's time does
        not count.

        Args:
            ids: prompts [B, S] of one length, S >= 1.
            max_new_tokens: how many to add, >= 0.

        Returns:
            Prompts and new tokens, [B, S + max_new_tokens].
        """
        _check_ids(ids)
        check_integer("Decoder.generate", "max_new_tokens", max_new_tokens)
        if max_new_tokens < 0:
            checks.fail("Decoder.generate", "max_new_tokens", "at least 0", max_new_tokens)
        batch, length = ids.shape
        workspace = self.workspace(batch, length + max_new_tokens)
        sequences = ids.new_empty(batch, length + max_new_tokens)
        sequences[:, :length] = ids
        token = likeliest(self(ids, workspace))
        sequences[:, length : length + 1] = token
        step = DecodeStep(self, token, workspace)
        for at in range(length + 1, length + max_new_tokens):
            sequences[:, at : at + 1] = step()
        return sequences


def _check_ids(ids: Tensor) -> None:
    check_kind("Decoder", "ids", ids)
    if ids.dim() != 2 or ids.shape[1] == 0:
        checks.fail("Decoder", "ids", "shape [B, S], S at least 1", list(ids.shape))
    if ids.dtype not in (torch.int64, torch.int32):
        checks.fail("Decoder", "ids", "dtype int64 or int32", checks.dtype_name(ids.dtype))


class DecodeStep:
    """Adds a token to each sequence at every call; the token is the next call's input.

    On a GPU the first call runs as it is, the second is captured in a CUDA graph, the others replay
    it. Positions live on the device, so every replay goes one token further.
    """

    def __init__(self, model: Decoder, token: Tensor, workspace: Workspace) -> None:
        self._model, self._token, self._workspace = model, token, workspace
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = False

    def __call__(self) -> Tensor:
        """The next token of each sequence, [B, 1]; overwritten by the next call."""
        if not self._token.is_cuda or not self._warm:
            self._warm = True
            self._next()
        else:
            self._workspace.count(1)
            if self._graph is None:
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph):
                    self._next()
            self._graph.replay()
        return self._token

    def _next(self) -> None:
        likeliest(self._model(self._token, self._workspace), out=self._token)


def likeliest(logits: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The index of each row's largest number: [B, V] gives [B, 1], int64.

    torch has one block for each row, so that a row of 128 k takes 27 us (H200). In 256 parts, and
    then once more, it takes 11; shorter rows gain nothing.
    """
    rows, width = logits.shape
    parts = 256
    if width < 1 << 16 or width % parts:
        return torch.argmax(logits, -1, keepdim=True, out=out)
    of_part, indices = logits.view(rows, parts, -1).max(-1)
    part = of_part.argmax(-1, keepdim=True)
    return torch.add(indices.gather(1, part), part, alpha=width // parts, out=out)
