"""SuffixDecoding: frequency-weighted continuations of the context's own suffix, at every match length.

Source: SuffixDecoding, arXiv 2411.04975, section 3 (its authors' code: snowflakedb/ArcticInference). Every suffix of
the context that occurred before, up to max_match tokens long, roots a tree of what followed it. Symbols:

    C(N) = count(N) / count(parent of N)   probability of a node, the pattern's own end counted among its occurrences
    D(N) = C(N) D(parent of N)             path probability, D = 1 at the pattern: the score of a node, the heap's key
    score(tree) = sum of D over its nodes  expected accepted tokens; of all match lengths the tree of the highest wins
    MAX_SPEC(p) = alpha p + offset         most nodes after a match of p tokens

Knows ids only. It does not know the target's scores, and it measures nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from math import inf

from goose.engine.contract import Prefill
from goose.engine.tree import CONTEXT, DraftTree, TreeBuilder
from goose.engine.verify import Scored, Verdict
from goose.sources.suffix_index import SuffixIndex

SHAPES = ("tree", "chain")
STATES = ("cold", "warm")
MAX_STATES = 12  # match states expanded a step, longest first; recorded answers have 9 at most, 2 on average


@dataclass(frozen=True)
class Continuation:
    """What followed one pattern: nodes numbered from 1 in drafting order, node 0 being the pattern's end."""

    nodes: list[tuple[int, int, float]]  # (parent, token, path probability D)
    score: float  # sum of D: expected accepted tokens


NOTHING = Continuation([], 0.0)


class SuffixDrafter:
    """The best continuation of the context's suffixes, by the counts of a suffix automaton.

    shape: tree: greedily by path probability (the paper's) · chain: the most frequent token each time.

    max_match: longest suffix looked up. max_spec_factor, max_spec_offset: alpha and offset of MAX_SPEC.
    min_score: least path probability of a node.
    state: cold forgets at every request · warm keeps what earlier requests' contexts taught.

    Deviation: the paper keeps two indexes, of the request and of earlier outputs, and drafts from the better; here one
    index counts both, prompts included (when warm). The tokens of a request's last step never reach it.
    Deviation: B caps the tree as well; the paper has MAX_SPEC alone.
    Deviation: in a loop of a few tokens almost every match length is a state of its own, with much the same tree; only
    the MAX_STATES longest are expanded, which bounds the cost of a step.

    A node's score is D. Raises ValueError for an unknown shape or state and for values out of range.
    """

    top_k = 0
    overdraft = 0

    def __init__(
        self,
        shape: str = "tree",
        max_match: int = 24,
        max_spec_factor: float = 4.0,
        max_spec_offset: float = 0.0,
        min_score: float = 0.1,
        state: str = "cold",
    ):
        if shape not in SHAPES:
            raise ValueError(f"shape must be one of {SHAPES}, got {shape!r}")
        if state not in STATES:
            raise ValueError(f"state must be one of {STATES}, got {state!r}")
        if max_match < 1:
            raise ValueError(f"max_match must be >= 1, got {max_match}")
        if not (max_spec_factor >= 0 and 1 <= max_spec_factor * max_match + max_spec_offset < inf):
            raise ValueError(
                "max_spec_factor must be >= 0 and max_spec_factor x max_match + max_spec_offset finite and >= 1, or "
                f"nothing is ever drafted; got {max_spec_factor} x {max_match} + {max_spec_offset}"
            )
        if not 0 < min_score <= 1:
            raise ValueError(f"min_score must lie in (0, 1], got {min_score}")
        self.shape, self.state, self.min_score = shape, state, min_score
        self.max_match, self.max_spec_factor, self.max_spec_offset = max_match, max_spec_factor, max_spec_offset
        self._index = self._empty_index()

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        if self.state == "cold":
            self._index = self._empty_index()
        self._index.start()
        self._n_indexed = 0
        self._extend(prompt_ids)

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        self._extend(context)
        builder = TreeBuilder(context[-1], budget)
        for parent, token, score in self._best(budget - 1).nodes:
            builder.add(parent, token, CONTEXT, score)
        return builder.build()

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        pass

    def _empty_index(self) -> SuffixIndex:
        return SuffixIndex(horizon=self.max_match + self._max_spec(self.max_match))

    def _extend(self, context: Sequence[int]) -> None:
        for token in context[self._n_indexed :]:
            self._index.append(token)
        self._n_indexed = len(context)

    def _max_spec(self, match_length: int) -> int:
        # As in the reference, a hair above the product: 0.29 x 100 must give 29.
        return int(self.max_spec_factor * match_length + self.max_spec_offset + 1e-6)

    def _best(self, n_free: int) -> Continuation:
        """The continuation of the highest score over all match lengths; of equal ones the longer match's."""
        best = NOTHING
        grow = most_likely_tree if self.shape == "tree" else most_frequent_chain
        for state, match_length in islice(self._index.matches(self.max_match), MAX_STATES):
            max_nodes = min(n_free, self._max_spec(match_length))
            if max_nodes <= best.score:  # no node scores above 1: neither this nor a shorter match can be better
                break
            continuation = grow(self._index, state, max_nodes, self.min_score)
            if continuation.score > best.score:
                best = continuation
        return best


def most_likely_tree(index: SuffixIndex, state: int, max_nodes: int, min_score: float) -> Continuation:
    """The nodes of the highest path probability, best first, at least min_score each (the paper's expansion)."""
    following, counts = index.following, index.counts
    nodes: list[tuple[int, int, float]] = []
    heap: list[tuple[float, int, int, int, int]] = []  # (-D, arrival, parent, token, state): ties in order of arrival
    parent, score, n_arrived = 0, 1.0, 0
    while len(nodes) < max_nodes:
        for token, child in following[state].items():
            path_probability = score * counts[child] / counts[state]
            if path_probability >= min_score:
                heappush(heap, (-path_probability, n_arrived, parent, token, child))
                n_arrived += 1
        if not heap:
            break
        negative, _, above, token, state = heappop(heap)
        score = -negative
        nodes.append((above, token, score))
        parent = len(nodes)
    return Continuation(nodes, sum(score for _, _, score in nodes))


def most_frequent_chain(index: SuffixIndex, state: int, max_nodes: int, min_score: float) -> Continuation:
    """The most frequent token each time, of equally frequent ones the first seen, while D is at least min_score."""
    following, counts = index.following, index.counts
    nodes: list[tuple[int, int, float]] = []
    score = 1.0
    while len(nodes) < max_nodes and following[state]:
        options = following[state]
        token = max(options, key=lambda token: counts[options[token]]) if len(options) > 1 else next(iter(options))
        child = options[token]
        score = score * counts[child] / counts[state]
        if score < min_score:
            break
        nodes.append((len(nodes), token, score))
        state = child
    return Continuation(nodes, sum(score for _, _, score in nodes))
