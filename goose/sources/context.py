"""Context match: what followed the same n-gram earlier in the context (prompt + every emitted token).

One hash index per length maps an n-gram to the positions where its continuation starts. Only occurrences that have a
following token are indexed, so a query is never its own hit. Knows ids only.

Source: GOOSE, arXiv 2604.02047, section 4.1 (match) and 4.3 (consensus, confidence); prompt lookup (Saxena, 2023).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

MATCH_POLICIES = ("earliest", "latest", "longest_continuation", "most_frequent")
CONSENSUS = ("occurrences", "lengths")


@dataclass(slots=True)
class Occurrences:
    """Where one n-gram occurred. Every question a policy asks is answered without going through the occurrences."""

    starts: list[int] = field(default_factory=list)  # positions of the token after it, ascending
    followers: dict[int, list[int]] = field(default_factory=dict)  # that token -> [how often, its last start]

    def add(self, start: int, token: int) -> None:
        self.starts.append(start)
        follower = self.followers.setdefault(token, [0, 0])
        follower[0] += 1
        follower[1] = start


class ContextMatcher:
    """Proposes the continuation of the longest matching n-gram and says how far to trust it.

    lengths: n-gram lengths, tried longest first; the first with an occurrence wins.
    max_match: most tokens one match returns.
    long_match: chain length from which a match without consensus counts as long.
    match_policy: which occurrence at the winning length.
        earliest: the first (the reference) · latest: the most recent ·
        longest_continuation: the most recent of those with the most following tokens, max_match at most ·
        most_frequent: the most recent of those that continue with the most frequent next token.
    consensus: occurrences (the reference's code): at the winning length at least two occurrences, all continuing with
        the same token · lengths (the paper's prose): at least two lengths match and propose the same token.

    Raises ValueError for an unknown policy or rule and for a length below 1.
    """

    def __init__(
        self,
        lengths: Sequence[int] = (5, 4, 3),
        max_match: int = 20,
        long_match: int = 8,
        match_policy: str = "earliest",
        consensus: str = "occurrences",
    ):
        if match_policy not in MATCH_POLICIES:
            raise ValueError(f"match_policy must be one of {MATCH_POLICIES}, got {match_policy!r}")
        if consensus not in CONSENSUS:
            raise ValueError(f"consensus must be one of {CONSENSUS}, got {consensus!r}")
        if not lengths or min(lengths) < 1:
            raise ValueError(f"n-gram lengths must be >= 1, got {list(lengths)}")
        if max_match < 1 or long_match < 1:
            raise ValueError(f"max_match and long_match must be >= 1, got {max_match} and {long_match}")
        self.lengths = tuple(sorted(set(lengths), reverse=True))
        self.max_match = max_match
        self.long_match = long_match
        self.match_policy = match_policy
        self.consensus_rule = consensus
        self.reset()

    def reset(self) -> None:
        """Forgets the request's text."""
        self._tokens: list[int] = []
        self._occurrences: dict[int, dict[tuple[int, ...], Occurrences]] = {n: {} for n in self.lengths}

    def extend(self, context: Sequence[int]) -> None:
        """Indexes the tokens of `context` that are new since the last call; earlier tokens must be unchanged.

        Raises ValueError for a context shorter than what was indexed.
        """
        known = len(self._tokens)
        if len(context) < known:
            raise ValueError(
                f"the context must grow: {known} tokens were indexed, got {len(context)}; call reset() for a new text"
            )
        self._tokens.extend(context[known:])
        tokens = self._tokens
        for n, occurrences in self._occurrences.items():
            for start in range(max(n, known), len(tokens)):
                gram = tuple(tokens[start - n : start])
                if gram not in occurrences:
                    occurrences[gram] = Occurrences()
                occurrences[gram].add(start, tokens[start])

    def match(self, query: Sequence[int], at_least: int = 1) -> list[int]:
        """Up to max_match tokens that followed the end of `query` earlier; [] when no length has an occurrence.

        A length whose chosen occurrence has fewer than `at_least` following tokens counts as having none.
        """
        for occurrences in self._hits(query, first_only=at_least == 1):
            start = self._choose(occurrences)
            if start + at_least <= len(self._tokens):
                return self._tokens[start : start + self.max_match]
        return []

    def has_consensus(self, query: Sequence[int]) -> bool:
        """Whether the earlier occurrences of the end of `query` agree on the next token (rule: self.consensus_rule)."""
        hits = self._hits(query, first_only=self.consensus_rule == "occurrences")
        if self.consensus_rule == "occurrences":
            return bool(hits) and len(hits[0].starts) >= 2 and len(hits[0].followers) == 1
        return len(hits) >= 2 and len({self._tokens[self._choose(hit)] for hit in hits}) == 1

    def confidence(self, query: Sequence[int], chain: Sequence[int]) -> float:
        """Confidence c in [0, 1] in `chain` proposed at the end of `query` (GOOSE, section 4.3)."""
        return confidence(len(chain), bool(chain) and self.has_consensus(query), self.long_match)

    def _hits(self, query: Sequence[int], first_only: bool) -> list[Occurrences]:
        """The occurrences of the end of `query`, one for each matching length, longest first."""
        hits = []
        for n in self.lengths:
            # A query shorter than n gives a shorter key, which no n-gram equals.
            occurrences = self._occurrences[n].get(tuple(query[-n:]))
            if occurrences is not None:
                hits.append(occurrences)
                if first_only:
                    break
        return hits

    def _choose(self, occurrences: Occurrences) -> int:
        starts = occurrences.starts
        if self.match_policy == "earliest":
            return starts[0]
        if self.match_policy == "latest":
            return starts[-1]
        if self.match_policy == "longest_continuation":
            n_whole = bisect_right(starts, len(self._tokens) - self.max_match)  # those that max_match tokens follow
            return starts[n_whole - 1] if n_whole else starts[0]
        return max(occurrences.followers.values())[1]  # the most frequent; of equally frequent ones the most recent


def confidence(chain_length: int, consensus: bool, long_match: int = 8) -> float:
    """c = 0 without a chain; 1 on consensus; else 0.7 to 0.9 for a long chain, up to 0.6 for a short one.

    GOOSE, section 4.3; constants as in the reference code.
    """
    if chain_length == 0:
        return 0.0
    if consensus:
        return 1.0
    if chain_length >= long_match:
        return min(0.9, 0.7 + 0.2 * (chain_length - long_match) / 12)
    return 0.6 * chain_length / long_match
