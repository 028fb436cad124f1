"""An index of a growing text: a suffix automaton with counts. Knows ids only.

Source: SuffixDecoding, arXiv 2411.04975, section 3, keeps suffix trees to the same end.
"""

from collections.abc import Iterator


class SuffixIndex:
    """How often each string of at most `horizon` tokens occurred, and what followed it: a suffix automaton with counts.

    A state stands for all strings that end at the same positions, so they share their count and their continuations;
    the next state by a token stands for the longer string. A state's link is its longest suffix that ends at more
    positions: following links from the newest state gives every matching suffix of the text, longest first.

    Deviation: the paper keeps explicit suffix trees of bounded depth. The automaton gives the same counts up to the
    horizon with at most two states a token instead of one node a token and depth, and needs no copy of the text.
    """

    ROOT = 0  # the empty string

    def __init__(self, horizon: int):
        self.horizon = horizon
        self.following: list[dict[int, int]] = [{}]  # state -> token -> state
        self.counts = [0]  # state -> occurrences
        self.links = [-1]  # state -> its longest suffix that ends at more positions
        self.lengths = [0]  # of the state's longest string
        self.newest = self.ROOT  # of the text's end

    def start(self) -> None:
        """A new text: no string reaches back over its beginning."""
        self.newest = self.ROOT

    def append(self, token: int) -> None:
        """Adds the next token of the text. At most `horizon` counts change; the work is constant on ordinary text."""
        links, lengths, counts = self.links, self.lengths, self.counts
        state = self._state_after(self.newest, token)
        # Longer strings than the horizon are not needed: drop them, or a text of one token would update them all.
        while lengths[links[state]] >= self.horizon:
            state = links[state]
        self.newest = state
        while state != self.ROOT:
            counts[state] += 1
            state = links[state]

    def matches(self, max_match: int) -> Iterator[tuple[int, int]]:
        """(state, match length) of the suffixes of the text, one per state, longest first.

        The shorter lengths that share a state share its continuations and may draft fewer, so they are not listed.
        """
        state = self.newest
        while state != self.ROOT:
            shorter = self.links[state]
            if self.lengths[shorter] < max_match:
                yield state, min(self.lengths[state], max_match)
            state = shorter

    def advance(self, state: int, length: int, token: int) -> tuple[int, int]:
        """(state, length) of the longest known string that ends `length` tokens of `state` and one more `token`."""
        following = self.following
        while token not in following[state]:
            state = self.links[state]
            if state < 0:
                return self.ROOT, 0
            length = self.lengths[state]
        state, length = following[state][token], length + 1
        if length > self.horizon:  # longer strings are not counted
            length = self.horizon
            while self.lengths[self.links[state]] >= length:
                state = self.links[state]
        return state, length

    def _state_after(self, last: int, token: int) -> int:
        """The state of the longest string of `last` followed by `token`; made when it is new."""
        known = self.following[last].get(token)
        if known is not None:
            return self._split_to(last, token, known)
        state = self._new(self.lengths[last] + 1, {}, self.ROOT, 0)
        while last >= 0 and token not in self.following[last]:
            self.following[last][token] = state
            last = self.links[last]
        if last >= 0:
            self.links[state] = self._split_to(last, token, self.following[last][token])
        return state

    def _split_to(self, last: int, token: int, state: int) -> int:
        """The state of exactly the longest string of `last` and `token`: `state`, or its shorter strings split off."""
        length = self.lengths[last] + 1
        if self.lengths[state] == length:
            return state
        short = self._new(length, dict(self.following[state]), self.links[state], self.counts[state])
        self.links[state] = short
        while last >= 0 and self.following[last].get(token) == state:
            self.following[last][token] = short
            last = self.links[last]
        return short

    def _new(self, length: int, following: dict[int, int], link: int, count: int) -> int:
        self.following.append(following)
        self.lengths.append(length)
        self.links.append(link)
        self.counts.append(count)
        return len(self.counts) - 1
