"""What all sources together say of the next token: the candidates of a tree node, each with one cell of joint evidence.

    context    the MAX_STATES longest matches of the node's own suffix with the context, of MIN_LENGTH tokens at least:
               what followed, how often, of how many (goose/sources/suffix_index.py)
    adjacency  the target's own row of the longest known key ending in the node's token: trigram, bigram, unigram; of a
               token that was never met, its single-token row (goose/sources/single_token_rows.py)
    deferred   at the root: the other ids of the row whose first became the root; a token just passed over is often next
    draft      a draft model's row of the node, where a drafter has one

A token that several sources name is one candidate. Its evidence is a cell, the pair of a context code and an adjacency
code, both small whole numbers; how probable a cell is, is not known here (goose/drafters/probabilities.py).

    context code    no match names the token: which is the best match, and does it leave a choice
                    a match names it: length of the longest that does, share of its occurrences, their number
    adjacency code  tier · score level in the tier's row, or absent from it, or deferred at some level

Sources: GOOSE, arXiv 2604.02047, section 4 (two sources, bigram over unigram); Token Recycling, arXiv 2408.08696
(rows); SuffixDecoding, arXiv 2411.04975 (counts at every match length). Joint cells, trigram rows, single-token rows
and deferred ids are ours.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, CONTEXT, DRAFT_MODEL, DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.suffix_index import SuffixIndex
from goose.sources.transition import TrigramTable

HORIZON = 40  # longest match told from a longer one
MIN_LENGTH = 2  # of a match; what one token says is the unigram tier's to say, and better
MAX_STATES = 5  # matches looked at a node, longest first

LENGTH_EDGES = (2, 3, 4, 6, 9, 16, 32)
SHARE_EDGES = (0.05, 0.15, 0.3, 0.45, 0.6, 0.8, 0.99)
COUNT_EDGES = (2, 3, 6)
SCORE_EDGES = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95, 0.99)

N_SHARES, N_COUNTS, N_LEVELS = len(SHARE_EDGES) + 1, len(COUNT_EDGES) + 1, len(SCORE_EDGES) + 1
N_LENGTHS = len(LENGTH_EDGES) + 1  # 0: no match
FIRST_MATCHED = 2 * N_LENGTHS  # context codes below it: no match names the token
N_CONTEXT = FIRST_MATCHED + (N_LENGTHS - 1) * N_SHARES * N_COUNTS
ABSENT, DEFERRED = N_LEVELS, N_LEVELS + 1  # after the levels of a tier
TIER = 2 * N_LEVELS + 1  # adjacency codes a tier
SINGLE_TOKEN, UNIGRAM, BIGRAM, TRIGRAM, DRAFT = range(5)  # tiers
N_ADJACENCY = 5 * TIER
N_CELLS = N_CONTEXT * N_ADJACENCY

_MOST = 64  # occurrences whose codes are kept


def _share_code(count: int, total: int) -> int:
    share = min(1.0, count / total) if total > 0 else 0.0
    return bisect_right(SHARE_EDGES, share) * N_COUNTS + bisect_right(COUNT_EDGES, count)


# As tables, since codes are looked up by the hundred a step.
_LENGTH = [bisect_right(LENGTH_EDGES, length) for length in range(HORIZON + 1)]
_MATCHED = [(FIRST_MATCHED + (bucket - 1) * N_SHARES * N_COUNTS) * N_ADJACENCY for bucket in _LENGTH]
_SHARE = [[_share_code(count, total) * N_ADJACENCY for count in range(_MOST + 1)] for total in range(_MOST + 1)]


class NodeState(NamedTuple):
    """A node as the sources see it: the end of the context and the path to it."""

    suffix: int  # state of the suffix index: the longest known string that ends here
    length: int  # of that string
    before: int  # the two tokens before the node's
    previous: int
    token: int
    draft: int = 0  # the draft's own node + 1; 0 where it has none


DraftRows = list[tuple[dict[int, int], list[int], list[int]]]  # a draft's nodes: child's node + 1 by token, ids, levels


class Evidence:
    """top_k: entries kept of a row. state: cold forgets at every request, warm keeps what earlier requests taught.

    n_harvested: prompt rows that fill the table before the first step, the last of each of the n last distinct tokens;
    None for all. Each has to go through the model's head, which on a CPU costs a long prompt more than most bring.
    n_single_token_rows: of how many ids, from 0 on, single-token rows are wanted (the first ids are those that texts
    hold most). Once set_single_token_rows brought them they serve every request; without them all else works.
    all_lengths: whether shorter matches than the longest are looked at. joint: whether the cell of a token tells what
    all sources say of it; else it is two cells, of which the likelier counts.
    """

    def __init__(
        self,
        top_k: int = 10,
        state: str = "cold",
        n_harvested: int | None = 48,
        n_single_token_rows: int = 0,
        all_lengths: bool = True,
        joint: bool = True,
    ):
        if n_harvested is not None and n_harvested < 1:
            raise ValueError(f"n_harvested must be >= 1, or None for the whole prompt, got {n_harvested!r}")
        if n_single_token_rows < 0:
            raise ValueError(f"n_single_token_rows must be >= 0, got {n_single_token_rows!r}")
        self.n_harvested, self.n_single_token_rows = n_harvested, n_single_token_rows
        self.table = TrigramTable(SCORE_EDGES, top_k, state)
        self.index = SuffixIndex(HORIZON)
        self.top_k, self.state, self.joint = self.table.top_k, state, joint
        self._max_states = MAX_STATES if all_lengths else 1

    def set_single_token_rows(self, ids: np.ndarray, scores: np.ndarray) -> None:
        """The rows of the single tokens 0 .. n - 1: int64[n, K] ids, float32[n, K] scores."""
        self.table.set_single_token_rows(ids, scores)

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        rows = None
        if self.n_harvested is not None:
            last_row = {token: row for row, token in enumerate(prompt_ids)}
            rows = sorted(last_row.values())[-self.n_harvested :]
        ids, scores = prefill.top_k(self.top_k, rows)
        self.table.begin(prompt_ids, lambda *_: (ids, scores), rows)
        self._defer(ids[-1], scores[-1], prefill.first_token)
        if self.state == "cold":
            self.index = SuffixIndex(HORIZON)
        self.index.start()
        self._n_indexed = 0

    def root(self, context: Sequence[int], draft: DraftRows | None = None) -> NodeState:
        """The state of a new tree's root; what the context has grown by is indexed."""
        index = self.index
        for token in context[self._n_indexed :]:
            index.append(token)
        self._n_indexed = len(context)
        self._draft = draft or []
        self._before = context[-3] if len(context) > 2 else None
        self._previous = context[-2]
        state, length = index.newest, min(index.lengths[index.newest], HORIZON)
        return NodeState(state, length, self._before or 0, self._previous, context[-1], int(bool(draft)))

    def child(self, parent: NodeState, token: int) -> NodeState:
        state, length = self.index.advance(parent.suffix, parent.length, token)
        draft = self._draft[parent.draft - 1][0].get(token, 0) if parent.draft else 0
        if draft > len(self._draft):  # a node of the draft's last layer, whose row was not made
            draft = 0
        return NodeState(state, length, parent.previous, parent.token, token, draft)

    def candidates(
        self, node: NodeState, probabilities: list[float], min_probability: float, is_root: bool
    ) -> list[tuple[int, int]]:
        """(token, cell) of every token that may follow, but those whose cell is less probable than `min_probability`.

        probabilities: by cell.
        """
        state, length, before, previous, token, draft = node
        matched, unmatched = self._matched(state, length, is_root)
        tier, ids, levels = self.table.longest(before, previous, token)
        rows = [(tier * TIER, ids, levels)]
        if draft:
            rows.insert(0, (DRAFT * TIER, *self._draft[draft - 1][1:]))
        if is_root:
            rows.append((tier * TIER + DEFERRED, *self._deferred))
        found, seen = [], set()
        for code, ids, levels in rows:
            for token, level in zip(ids, levels, strict=True):
                if token in seen:
                    continue
                if len(rows) > 1:
                    seen.add(token)
                if token in matched:
                    cell = self._both(matched.pop(token), unmatched, code + level, probabilities)
                else:
                    cell = unmatched + code + level
                if probabilities[cell] >= min_probability:
                    found.append((token, cell))
        for token, cell in matched.items():
            cell += tier * TIER + ABSENT if self.joint else ABSENT
            if probabilities[cell] >= min_probability:
                found.append((token, cell))
        return found

    def learn(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        """What the target said of the tree whose root was asked for last."""
        self.table.learn_tree(tree, self._previous, scored, self._before)
        last = verdict.path[-1]
        self._defer(scored.top_ids[last], scored.top_scores[last], verdict.bonus)

    def _defer(self, ids: np.ndarray, scores: np.ndarray, said: int) -> None:
        levels = self.table.levels(scores[: self.top_k]).tolist()
        pairs = zip(ids[: self.top_k].tolist(), levels, strict=True)
        kept = [(token, level) for token, level in pairs if token != said]
        self._deferred = [token for token, _ in kept], [level for _, level in kept]

    def _matched(self, state: int, length: int, is_root: bool) -> tuple[dict[int, int], int]:
        """Tokens that a match names, with the cell of their context code, and the cell of the other tokens'."""
        index = self.index
        matched: dict[int, int] = {}
        n_states = longest = has_choice = 0
        while length >= MIN_LENGTH and n_states < self._max_states:
            followers = index.following[state]
            if followers:
                if not n_states:
                    longest, has_choice = _LENGTH[length], len(followers) > 1
                n_states += 1
                counts = index.counts
                total = max(1, counts[state] - is_root)  # nothing follows the text's own end
                for token, child in followers.items():
                    if token in matched:
                        continue
                    if length == HORIZON:  # one token longer is not counted: the longest string that is
                        while index.lengths[index.links[child]] >= HORIZON:
                            child = index.links[child]
                    count = min(counts[child], total)
                    if total > _MOST:
                        matched[token] = _MATCHED[length] + _share_code(count, total) * N_ADJACENCY
                    else:
                        matched[token] = _MATCHED[length] + _SHARE[total][count]
            state = index.links[state]
            length = index.lengths[state]
        return matched, (2 * longest + has_choice) * N_ADJACENCY if self.joint else 0

    def _both(self, matched: int, unmatched: int, code: int, probabilities: list[float]) -> int:
        if self.joint:
            return matched + code
        return max(matched + ABSENT, unmatched + code, key=probabilities.__getitem__)


def source_of(cell: int) -> int:
    """The source that a node of this cell is counted under: a match before a draft before a row."""
    context, adjacency = divmod(cell, N_ADJACENCY)
    if context >= FIRST_MATCHED:
        return CONTEXT
    return DRAFT_MODEL if adjacency >= DRAFT * TIER else ADJACENCY
