"""TreeLM: prefill, score a tree, commit a path, over an unmodified Hugging Face decoder.

The only place, with cache.py and attention.py, that touches transformers' model classes. It knows no drafters, no stop
rule and no text. Full-attention decoders of the Llama, Qwen2, Qwen3 and Mistral kind; everything else is refused.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from goose.engine.attention import GROUPED
from goose.engine.cache import TreeCache
from goose.engine.tree import DraftTree
from goose.engine.verify import top_k_rows

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
ATTENTIONS = ("grouped", "sdpa", "eager")
_PROMPT_ROWS = 128  # prompt rows scored at once by prompt_top_k, so that [L, V] logits never exist


def refusal(config) -> str | None:
    """Why a model with this configuration cannot be verified exactly, in a sentence; None when it can."""
    name = getattr(config, "model_type", type(config).__name__)
    if name not in FAMILIES:
        return f"model family {name!r} is not supported (supported: {', '.join(FAMILIES)}); choose one of those"
    layer_types = set(getattr(config, "layer_types", None) or [])
    window = getattr(config, "sliding_window", None)
    windowed = window and getattr(config, "use_sliding_window", True)
    if layer_types - {"full_attention"} or (windowed and not layer_types):
        return (
            f"this {name} has sliding-window or recurrent layers, whose state cannot be rolled back to an accepted "
            "path; use a full-attention checkpoint"
        )
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        return (
            f"this {name} rescales its rotary positions with the sequence length (rope_type={rope['rope_type']}), so a "
            "drafted node would change the accepted ones; use a checkpoint with fixed rotary scaling"
        )
    return None


class TreeLM:
    """One sequence in flight over one model.

    `attention`: "grouped" (default), or transformers' own "sdpa" / "eager" for comparison.
    `buckets`: node counts that a forward is padded up to (static shapes); () pads nothing.
    Raises ValueError when the model or the attention cannot be verified exactly.
    """

    def __init__(self, model: torch.nn.Module, *, attention: str = "grouped", buckets: Sequence[int] = ()):
        reason = refusal(model.config)
        if reason is not None:
            raise ValueError(reason)
        if attention not in ATTENTIONS:
            raise ValueError(
                f"attention {attention!r} drops or misreads a tree mask; choose one of {', '.join(ATTENTIONS)}"
            )
        config = model.config
        if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
            raise ValueError(f"{type(model).__name__} has no language-model head; load it with AutoModelForCausalLM")
        if model.training and getattr(config, "attention_dropout", 0.0):
            raise ValueError("the model is in training mode, where dropout changes its output; call model.eval()")
        self.model = model
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        self.max_positions: int = config.max_position_embeddings
        self._decoder = model.base_model
        self._head = model.get_output_embeddings()
        self._config = config
        self._attention = GROUPED if attention == "grouped" else attention
        self._mask_repeats = config.num_attention_heads // config.num_key_value_heads if attention == "grouped" else 1
        self._buckets = sorted(buckets)
        # transformers renamed the argument in 5.2x; asking the signature serves both.
        names = inspect.signature(self._decoder.forward).parameters
        self._cache_argument = "cache" if "cache" in names else "past_key_values"
        layers = self._decoder.layers
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.device = self._decoder.embed_tokens.weight.device
        self.dtype = self._decoder.embed_tokens.weight.dtype
        self._cache = TreeCache(
            [next(layer.parameters()).device for layer in layers], config.num_key_value_heads, head_dim, self.dtype
        )
        self._prompt_hidden: torch.Tensor | None = None  # [L, hidden], until the first tree is scored

    @property
    def n_committed(self) -> int:
        return self._cache.n_committed

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int], reserve: int) -> torch.Tensor:
        """Starts a sequence: commits the prompt `ids` and returns its last row's logits [1, V].

        `reserve`: how many further rows the sequence may need: tokens to come plus the nodes of one tree.
        """
        self._cache.reset(len(ids) + reserve + (self._buckets[-1] if self._buckets else 0))
        tokens = torch.tensor([ids], device=self.device)
        mask = None
        if self._attention != GROUPED:
            n = len(ids)
            mask = torch.full((n, n), -torch.inf, dtype=self.dtype, device=self.device).triu(1)[None, None]
        hidden = self._forward(tokens, torch.arange(len(ids), device=self.device)[None], mask)
        self._cache.n_committed = len(ids)
        self._prompt_hidden = hidden
        return self._head(hidden[-1:])

    @torch.inference_mode()
    def prompt_top_k(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Top-k of every prompt row: int64[L, K] ids and float32[L, K] scores (verify.top_k_rows).

        To be asked for between prefill and the first score; the rows are scored now, in pieces.
        """
        if self._prompt_hidden is None:
            raise RuntimeError("prompt rows are only kept until the first tree is scored; call prefill first")
        pieces = [top_k_rows(self._head(rows), k) for rows in self._prompt_hidden.split(_PROMPT_ROWS)]
        ids, scores = (torch.cat(column).cpu().numpy() for column in zip(*pieces, strict=True))
        return ids, scores

    @torch.inference_mode()
    def score(self, tree: DraftTree) -> torch.Tensor:
        """Logits [n, V]: row i is the target's distribution after the context and node i's ancestors and node i."""
        return self.extend(tree, 0)

    @torch.inference_mode()
    def extend(
        self, tree: DraftTree, first: int, head: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Logits [n - first, V] of the nodes first, first + 1, ... of a tree whose earlier nodes were scored before.

        For a tree that is grown in layers: since the last commit, each earlier node was scored by `score` or `extend`
        at its index, so its K/V lie there and are not computed again. `head`: what takes the place of the model's
        own head, from hidden states [n - first, hidden].
        """
        self._prompt_hidden = None
        n = tree.n_nodes - first
        start = self._cache.n_committed
        width = next((b for b in self._buckets if b >= n), n)
        if start + first + width > self._cache.capacity:
            nodes = f"{start} committed + {first + width} nodes"
            raise ValueError(f"{nodes} exceed the cache's {self._cache.capacity} rows")
        tokens, positions = tree.tokens[first:], start + tree.depths[first:]
        if width > n:  # padded nodes repeat the first one: a real token at a real position
            tokens = np.concatenate([tokens, np.repeat(tokens[:1], width - n)])
            positions = np.concatenate([positions, np.repeat(positions[:1], width - n)])
        self._cache.n_in_flight = first
        try:
            hidden = self._forward(
                torch.from_numpy(tokens).to(self.device)[None],
                torch.from_numpy(positions).to(self.device)[None],
                self._tree_mask(tree, first, width),
            )
        finally:
            self._cache.n_in_flight = 0
        return (head or self._head)(hidden[:n])

    @torch.inference_mode()
    def commit(self, path: Sequence[int]) -> None:
        """Keeps the K/V of the accepted path of the last scored tree: node indices, increasing, root first."""
        self._cache.commit(path)

    def _tree_mask(self, tree: DraftTree, first: int, width: int) -> torch.Tensor | None:
        """Additive mask [1, 1, repeats * width, L] of the nodes from `first` on, padded to `width` rows.

        The committed rows, ancestors and self are visible (0), all else is -inf.
        """
        if first == 0 and width == 1 and self._attention == GROUPED:
            return None
        n, start = tree.n_nodes - first, self._cache.n_committed
        visible = np.eye(width, first + width, k=first, dtype=bool)  # a padded node sees itself: no row is empty
        visible[:n, : first + n] = tree.ancestor_mask[first:]
        mask = torch.zeros((width, start + first + width), dtype=self.dtype, device=self.device)
        mask[:, start:].masked_fill_(torch.from_numpy(~visible).to(self.device), -torch.inf)
        return mask.repeat(self._mask_repeats, 1)[None, None]

    def _forward(self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Last hidden states [n, hidden] of tokens [1, n] at positions [1, n]; K/V land behind the committed rows."""
        with self._own_attention():
            out = self._decoder(
                input_ids=tokens,
                position_ids=positions,
                attention_mask=mask,
                use_cache=True,
                **{self._cache_argument: self._cache},
            )
        return out.last_hidden_state[0]

    @contextmanager
    def _own_attention(self):
        """Our attention for one forward only: the model stays as its owner loaded it."""
        before = self._config._attn_implementation
        self._config._attn_implementation = self._attention
        try:
            yield
        finally:
            self._config._attn_implementation = before
