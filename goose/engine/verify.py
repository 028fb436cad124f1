"""What the target says after each node, and the walk that accepts a path.

Greedy and sampling share one walk: `next_tokens` fixes the target's own token after every node, the walk compares
integers. Candidates are fixed before the draw, so sampling is exact, and the sampled output equals plain sampled
decoding token for token. This file knows logits and trees, no models and no drafters.

Dimension letters: n = nodes, V = vocabulary, K = entries kept of each row.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

from goose.engine.tree import DraftTree


class NonFiniteLogits(RuntimeError):
    """The model returned NaN or infinite logits; token 0 would be read from them and acceptance would look perfect."""


@dataclass(frozen=True)
class Sampling:
    """How the target chooses: temperature 0 is greedy; above it a Gumbel-max draw keyed by (seed, position)."""

    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self):
        if self.temperature != 0.0 and not 1e-4 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 (greedy) or a finite number from 1e-4 up, got {self.temperature}")


@dataclass(frozen=True)
class Scored:
    """What the host needs of one target forward, fetched in one transfer."""

    next_tokens: list[int]  # n: the target's token after each node
    top_ids: np.ndarray  # int64[n, K], best first; K = 0 when the drafter asked for none
    top_scores: np.ndarray  # float32[n, K], softmax over the K entries only


@dataclass(frozen=True)
class Verdict:
    """The accepted path and the target's own token after it."""

    path: list[int]  # node indices, root first
    bonus: int


def next_tokens(
    logits: torch.Tensor, positions: np.ndarray, sampling: Sampling, maxima: torch.Tensor | None = None
) -> torch.Tensor:
    """int64[n]: the target's token at each of `positions` (int64[n], absolute), from logits [n, V].

    Noise depends on (seed, position) alone, so all nodes of a depth, and plain decoding, meet the same draw. Of equal
    logits the first wins. A row whose maximum is not finite gives -1 (NaN wins every maximum), so the check costs no
    transfer of its own. `maxima`: chunk_maxima(logits), where they are at hand.
    """
    if maxima is None:
        best, ids = logits.max(dim=-1)
    else:
        best, chunks = maxima.max(dim=-1)
        ids = _in_chunks(logits)[torch.arange(len(logits)), chunks].argmax(dim=-1) + chunks * _CHUNK
    if sampling.temperature > 0.0:
        for position in np.unique(positions).tolist():
            rows = torch.from_numpy(np.flatnonzero(positions == position)).to(logits.device)
            ids[rows] = choice_scores(logits[rows], position, sampling).argmax(dim=-1)
    return torch.where(torch.isfinite(best), ids, -1)


def choice_scores(logits: torch.Tensor, position: int, sampling: Sampling) -> torch.Tensor:
    """float32[n, V]: what the target maximises at an absolute position: the logits, or at temperature T > 0

    logits / T + Gumbel noise, whose argmax is a draw from softmax(logits / T).
    """
    if sampling.temperature == 0.0:
        return logits.float()
    return logits.float() / sampling.temperature + _gumbel(logits.shape[-1], sampling.seed, position, logits.device)


def _gumbel(n_vocab: int, seed: int, position: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device=device)
    # A hash, since generators look at few of a seed's bits and (seed, position) must not meet (seed', position').
    key = hashlib.blake2b(f"{seed} {position}".encode(), digest_size=4).digest()
    generator.manual_seed(int.from_bytes(key, "little"))
    return -torch.empty(n_vocab, device=device).exponential_(generator=generator).log()


_CHUNK = 64


def chunk_maxima(logits: torch.Tensor) -> torch.Tensor | None:
    """[n, V / 64]: the maximum of every 64 logits; None off the CPU, or where V is no multiple, and torch's own serve.

    The argmax lies in the first chunk of the greatest maximum and the K best in the K chunks of the greatest maxima:
    one fast pass over the rows does for both.
    """
    if logits.device.type != "cpu" or logits.shape[-1] % _CHUNK:
        return None
    return _in_chunks(logits).amax(dim=-1)


def _in_chunks(logits: torch.Tensor) -> torch.Tensor:
    n, n_vocab = logits.shape
    return logits.view(n, n_vocab // _CHUNK, _CHUNK)


def top_k_rows(logits: torch.Tensor, k: int, maxima: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(int64[n, K], float32[n, K]): the K best ids of each row, best first, and the softmax over those K alone.

    `maxima`: chunk_maxima(logits), where they are at hand.
    """
    n, n_vocab = logits.shape
    k, n_body = min(k, n_vocab), n_vocab - n_vocab % _CHUNK
    body = logits[:, :n_body]
    if maxima is None:
        maxima = chunk_maxima(body)
    if maxima is None or maxima.shape[-1] <= 2 * k:
        values, ids = logits.topk(k, dim=-1)
    else:
        chunks = maxima.topk(k, dim=-1).indices  # [n, K]
        candidates = _in_chunks(body).gather(1, chunks[:, :, None].expand(n, k, _CHUNK)).view(n, k * _CHUNK)
        if n_body < n_vocab:
            candidates = torch.cat([candidates, logits[:, n_body:]], dim=1)
            chunks = torch.cat([chunks, chunks.new_full((n, 1), n_body // _CHUNK)], dim=1)
        values, columns = candidates.topk(k, dim=-1)
        ids = chunks.gather(1, columns // _CHUNK) * _CHUNK + columns % _CHUNK
    return ids, torch.softmax(values.float(), dim=-1)


def fetch(logits: torch.Tensor, positions: np.ndarray, sampling: Sampling, top_k: int) -> Scored:
    """Everything the host needs of logits [n, V], in one device-to-host transfer. Raises NonFiniteLogits."""
    maxima = chunk_maxima(logits) if top_k else None  # torch's own argmax alone is as fast on a few rows
    tokens = next_tokens(logits, positions, sampling, maxima)
    if top_k == 0:
        packed = tokens[:, None].cpu()
        scores = np.empty((len(tokens), 0), dtype=np.float32)
    else:
        ids, k_scores = top_k_rows(logits, top_k, maxima)
        # Ids and float32 bits share one int64 block: token | ids | scores.
        packed = torch.cat([tokens[:, None], ids, k_scores.view(torch.int32).long()], dim=1).cpu()
        scores = packed[:, 1 + ids.shape[1] :].to(torch.int32).view(torch.float32).numpy()
    n_ids = scores.shape[1]
    next_ids = packed[:, 0].tolist()
    if min(next_ids) < 0:
        row = next_ids.index(-1)
        raise NonFiniteLogits(f"non-finite logits after position {int(positions[row]) - 1} (row {row} of the forward)")
    return Scored(next_ids, packed[:, 1 : 1 + n_ids].numpy(), scores)


def walk(tree: DraftTree, next_ids: list[int]) -> Verdict:
    """The longest path from the root on which every node is the target's own token after its parent."""
    path, last, wanted = [0], 0, next_ids[0]
    # One pass finds it: children come after their parents, and no two siblings carry the wanted token.
    for node, (parent, token) in enumerate(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True)):
        if parent == last and token == wanted:
            path.append(node)
            last, wanted = node, next_ids[node]
    return Verdict(path, wanted)
