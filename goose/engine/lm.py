"""TreeLM: prefill, score a tree, commit a path, over an unmodified Hugging Face decoder.

It knows no drafters, no stop rule and no text. Which models it takes: families.py.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from goose.engine.attention import GROUPED
from goose.engine.cache import TreeCache
from goose.engine.families import head_dim, unsupported_reason
from goose.engine.fused import FusedLayers, not_fusable_reason
from goose.engine.graph import NODE_BUCKETS, StaticForward, bucket, length_bucket
from goose.engine.tree import ROOT, DraftTree, chain
from goose.engine.verify import top_k_rows

ATTENTIONS = ("grouped", "sdpa", "eager")
ENGINES = ("eager", "fused", "graph")
_PROMPT_ROWS = 128  # prompt rows scored at once by prompt_top_k, so that [L, V] logits never exist
_RANDOM_IN_TRAINING = ("attention_dropout", "resid_pdrop", "embd_pdrop", "router_jitter_noise")


def _refuse(model: Any, engine: str, attention: str) -> None:
    """Raises ValueError, in a sentence, for what cannot be verified exactly."""
    reason = unsupported_reason(model.config)
    if reason is not None:
        raise ValueError(reason)
    if attention not in ATTENTIONS:
        raise ValueError(
            f"attention {attention!r} drops or misreads a tree mask; choose one of {', '.join(ATTENTIONS)}"
        )
    if engine not in ("auto", *ENGINES):
        raise ValueError(f"engine is {engine!r}; choose auto, {', '.join(ENGINES)}")
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        raise ValueError(f"{type(model).__name__} has no language-model head; load it with AutoModelForCausalLM")
    if model.training and any(getattr(model.config, name, 0.0) for name in _RANDOM_IN_TRAINING):
        raise ValueError("the model is in training mode, where dropout changes its output; call model.eval()")


def _chosen_engine(
    model: Any, engine: str, attention: str, layer_devices: Sequence[torch.device]
) -> tuple[str, str | None]:
    """The engine by name, and why "auto" is not the fastest. Raises ValueError when a named one cannot be had."""
    not_fused: str | None
    if attention != "grouped":
        not_fused = f"attention {attention!r} is transformers' own"
    elif len(set(layer_devices)) > 1:  # what moves hidden states from device to device hangs on the modules
        not_fused = "it lies on several devices"
    else:
        not_fused = not_fusable_reason(model)
    not_recorded = _not_recordable_reason(model)
    if engine == "auto":
        if not_fused:
            return "eager", not_fused
        if layer_devices[0].type != "cuda":
            return "fused", None
        return ("fused", not_recorded) if not_recorded else ("graph", None)
    if engine != "eager" and not_fused:
        raise ValueError(f"engine {engine!r} cannot run this model: {not_fused}; choose engine 'eager'")
    if engine == "graph" and not_recorded:
        raise ValueError(f"engine 'graph' cannot run this model: {not_recorded}; choose engine 'fused'")
    return engine, None


def _not_recordable_reason(model: Any) -> str | None:
    """Why a CUDA graph cannot record this model's forward, in a sentence; None when it can.

    Of transformers' ways to multiply by experts, "eager" loops over those that were chosen; "grouped_mm" brings the
    number of rows of each to the host where GPU or type lack the kernel; "batched_mm" has fixed shapes throughout.
    """
    if all(not hasattr(layer.mlp, "experts") for layer in model.base_model.layers):
        return None
    way = getattr(model.config, "_experts_implementation", None) or "eager"
    if way == "batched_mm":
        return None
    return (
        f"its mixtures of experts (experts_implementation={way!r}) may take shapes that depend on the data, which no "
        "CUDA graph records ('batched_mm' does not)"
    )


class TreeLM:
    """One sequence in flight over one model.

    `model`: a transformers causal language model of a family in families.py.
    `engine`: "eager" runs the model's own modules, as the papers did · "fused" replaces a layer's parts by faster ones
    (fused.py) · "graph" also runs at fixed shapes, recorded as CUDA graphs on a GPU (graph.py) · "auto" is "graph" on
    one GPU ("fused" for most mixtures of experts), "fused" on a CPU, "eager" where the others cannot be had (several
    GPUs, say). Afterwards `engine` is the one in use and `engine_note` what it leaves out and why, None when nothing.
    `attention`: "grouped" (default), or transformers' own "sdpa" / "eager" for comparison, with engine "eager" only.
    `node_buckets`: node counts that engine "graph" pads up to; a larger tree runs as in "fused".
    Raises ValueError when the model or the attention cannot be verified exactly, or a named engine cannot be had.
    """

    def __init__(
        self,
        model: Any,
        *,
        engine: str = "auto",
        attention: str = "grouped",
        node_buckets: Sequence[int] = NODE_BUCKETS,
    ):
        _refuse(model, engine, attention)
        config = model.config
        self.model = model
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        self.max_positions: int = config.max_position_embeddings
        self._decoder = model.base_model
        self._config = config
        self.attention = attention
        self._attention = GROUPED if attention == "grouped" else attention
        self._mask_repeats = config.num_attention_heads // config.num_key_value_heads if attention == "grouped" else 1
        # transformers renamed the argument in 5.2x; asking the signature serves both.
        names = inspect.signature(self._decoder.forward).parameters
        self._cache_argument = "cache" if "cache" in names else "past_key_values"
        layer_devices = [next(layer.parameters()).device for layer in self._decoder.layers]
        self.device: torch.device = self._decoder.embed_tokens.weight.device
        self.dtype: torch.dtype = self._decoder.embed_tokens.weight.dtype
        self.engine, self.engine_note = _chosen_engine(model, engine, attention, layer_devices)
        self._fused = None if self.engine == "eager" else FusedLayers.of(model)
        if self._fused and self._fused.own_parts:
            own = f"these parts run as the model's own modules: {', '.join(self._fused.own_parts)}"
            self.engine_note = f"{self.engine_note}; {own}" if self.engine_note else own
        self._full_head = self._fused.head if self._fused else model.get_output_embeddings()
        self._logits_scaling: float = getattr(config, "logits_scaling", 1.0)  # Granite's
        self._node_buckets = sorted(node_buckets) if self.engine == "graph" else []
        self._static: dict[tuple[int, int, int], StaticForward] = {}
        self._pool = torch.cuda.graph_pool_handle() if self._node_buckets and self.device.type == "cuda" else None
        self._cache = TreeCache(layer_devices, config.num_key_value_heads, head_dim(config), self.dtype)
        self._prompt_hidden: torch.Tensor | None = None  # [L, hidden], until the first tree is scored

    @property
    def n_committed(self) -> int:
        return self._cache.n_committed

    @torch.inference_mode()
    def reserve(self, n_rows: int) -> None:
        """Makes room for a sequence of n_rows committed rows and nodes; forgets the sequence in flight.

        prefill does it too. Done before, what it takes (an allocation, clearing the rows of the last request) stays out
        of the prefill's time.
        """
        if self._node_buckets:
            n_rows = length_bucket(n_rows + self._node_buckets[-1])  # padded nodes lie after the tree
        if n_rows > self._cache.capacity:
            self._static.clear()  # they hold the memory that is about to move
        self._cache.reset(n_rows, clear=bool(self._node_buckets))

    @torch.inference_mode()
    def prepare(self, n_rows: int, n_nodes: int) -> None:
        """Does ahead of time what sequences of up to n_rows rows and trees of up to n_nodes nodes will need.

        Room in the cache, and with engine "graph" every forward that may be called for: recording takes a fraction of
        a second each and would otherwise fall into the first requests.
        """
        self.reserve(n_rows)
        length = length_bucket(1)
        while self._node_buckets and length <= self._cache.capacity:
            for width in self._node_buckets:
                forward = self._static_forward(width, width, length)
                if self.device.type == "cuda":
                    forward(chain(0, [0] * (width - 1), ROOT, width), 0, 0)
                if width >= n_nodes:
                    break
            length = length_bucket(length + 1)

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int], reserve: int) -> torch.Tensor:
        """Starts a sequence: commits the prompt `ids` and returns its last row's logits [1, V].

        `reserve`: how many further rows the sequence may need: tokens to come plus the nodes of one tree.
        """
        self.reserve(len(ids) + reserve)
        tokens = torch.tensor([ids], device=self.device)
        mask = None
        if self._attention != GROUPED:
            n = len(ids)
            mask = torch.full((n, n), -torch.inf, dtype=self.dtype, device=self.device).triu(1)[None, None]
        hidden = self._forward(tokens, torch.arange(len(ids), device=self.device)[None], mask)
        self._cache.n_committed = len(ids)
        self._prompt_hidden = hidden
        return self._logits(hidden[-1:])

    @torch.inference_mode()
    def prompt_top_k(self, k: int, rows: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Top-k of the prompt's `rows`, of all by default: int64[n, K] ids and float32[n, K] scores (top_k_rows).

        To be asked for between prefill and the first score; the rows are scored now, in pieces.
        """
        if self._prompt_hidden is None:
            raise RuntimeError("prompt rows are only kept until the first tree is scored; call prefill first")
        hidden = self._prompt_hidden if rows is None else self._prompt_hidden[list(rows)]
        pieces = [top_k_rows(part, k) for part in map(self._logits, hidden.split(_PROMPT_ROWS))]
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
        at its index, so its K/V lie there and are not computed again. `head`: what is called instead of the model's own
        head, on hidden states [n - first, hidden]; a family's scaling of logits applies to it too.
        """
        self._prompt_hidden = None
        start, n = self._cache.n_committed, tree.n_nodes - first
        if start + tree.n_nodes > self._cache.capacity:
            nodes = f"{start} committed + {tree.n_nodes} nodes"
            raise ValueError(f"{nodes} exceed the cache's {self._cache.capacity} rows")
        width, seen = bucket(n, self._node_buckets), bucket(tree.n_nodes, self._node_buckets)
        if width is not None and seen is not None:
            length = length_bucket(start + first + width)
            if length <= self._cache.capacity:
                hidden = self._static_forward(width, seen, length)(tree, first, start)
                return self._logits(hidden[:n], head)
        self._cache.n_in_flight = first
        try:
            hidden = self._forward(
                torch.from_numpy(tree.tokens[first:]).to(self.device)[None],
                torch.from_numpy(start + tree.depths[first:]).to(self.device)[None],
                self._tree_mask(tree, first),
            )
        finally:
            self._cache.n_in_flight = 0
        return self._logits(hidden, head)

    @torch.inference_mode()
    def commit(self, path: Sequence[int]) -> None:
        """Keeps the K/V of the accepted path of the last scored tree: node indices, increasing, root first."""
        self._cache.commit(path)

    def _logits(self, hidden: torch.Tensor, head: Callable[[torch.Tensor], torch.Tensor] | None = None) -> torch.Tensor:
        logits = (head or self._full_head)(hidden)
        return logits if self._logits_scaling == 1.0 else logits / self._logits_scaling

    def _static_forward(self, width: int, seen: int, length: int) -> StaticForward:
        key = width, seen, length
        if key not in self._static:
            self._static[key] = StaticForward(
                self._forward, self._cache, *key, self._mask_repeats, self.device, self.dtype, self._pool
            )
        return self._static[key]

    def _tree_mask(self, tree: DraftTree, first: int) -> torch.Tensor | None:
        """Additive mask [1, 1, repeats * n, L] of the n nodes from `first` on; None for a lone root.

        The committed rows, ancestors and self are visible (0), all else is -inf.
        """
        if tree.n_nodes == 1 and self._attention == GROUPED:
            return None
        n, start = tree.n_nodes - first, self._cache.n_committed
        hidden = torch.from_numpy(~tree.ancestor_mask[first:]).to(self.device)
        mask = torch.zeros((n, start + tree.n_nodes), dtype=self.dtype, device=self.device)
        mask[:, start:].masked_fill_(hidden, -torch.inf)
        return mask.repeat(self._mask_repeats, 1)[None, None]

    def _forward(self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Last hidden states [n, hidden] of tokens [1, n] at positions [1, n]; K/V land after the committed rows."""
        with self._patched_forward():
            out = self._decoder(
                input_ids=tokens,
                position_ids=positions,
                attention_mask=mask,
                use_cache=True,
                **{self._cache_argument: self._cache},
            )
        return out.last_hidden_state[0]

    @contextmanager
    def _patched_forward(self) -> Iterator[None]:
        """Our attention and fused layers for one forward only: the model stays as its owner loaded it."""
        before = self._config._attn_implementation
        self._config._attn_implementation = self._attention
        try:
            with self._fused.patched_in() if self._fused else nullcontext():
                yield
        finally:
            self._config._attn_implementation = before
