"""Token Recycling (arXiv 2408.08696): one fixed tree a step, filled from the target's own earlier top-K rows.

The shape is data, a template of successor ranks; no step adapts it. Knows ids, ranks and scores only, and nothing of
the context before the root.
"""

import json
from collections.abc import Sequence
from importlib.resources import files

from baselines.adjacency import learn_step
from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, DraftTree, TreeBuilder
from goose.engine.verify import Scored, Verdict
from goose.sources.transition import AdjacencyTable

Path = tuple[int, ...]  # successor ranks from 0, one a level; the root is ()

TEMPLATE_FILE = "token_recycling_template.yaml"


class TokenRecyclingDrafter:
    """Node (i1, ..., id) carries successor number i_d of its parent's token; without one its subtree is left out.

    table: 8 successors a token, no bigram tier, no prefill harvest, as in the reference.
        Deviation: the reference keeps it from prompt to prompt (state "warm"); ours is cold unless asked, like all.
    template: the paths, root left out; None is the authors' 81 nodes. A budget above them changes nothing; below them
        those that trim_template keeps.

    A node's score is the table's for that successor: its softmax share of the parent's K best, no product along a path.
    Raises ValueError for a template that is no tree of ranks.
    """

    overdraft = 0

    def __init__(self, table: AdjacencyTable | None = None, template: Sequence[Sequence[int]] | None = None):
        self.table = table or AdjacencyTable(8, bigram=False, prefill_harvest=False)
        self.template = read_template() if template is None else [tuple(path) for path in template]
        ranks = [rank for path in self.template for rank in path]
        paths = {(), *self.template}
        if (
            any(not isinstance(rank, int) or rank < 0 for rank in ranks)
            or {path[:-1] for path in self.template} - paths
            or len(paths) != 1 + len(self.template)  # the root, or a path twice
        ):
            raise ValueError(
                "a template lists distinct paths of successor ranks (whole numbers from 0), the parent of each among "
                f"them, the root not; got {template}"
            )
        self.top_k = self.table.top_k
        self._trimmed: dict[int, list[Path]] = {}

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        self.table.begin(prompt_ids, prefill.top_k)

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        self._previous = context[-2]
        if budget not in self._trimmed:
            self._trimmed[budget] = trim_template(self.template, budget)
        builder = TreeBuilder(context[-1], budget)
        # Path -> node and its successors: at most one look-up a node, and none for a leaf.
        drafted: dict[Path, tuple[int, tuple[list[int], list[float]] | None]] = {(): (0, None)}
        for path in self._trimmed[budget]:
            parent_path = path[:-1]
            if parent_path not in drafted:
                continue
            parent, row = drafted[parent_path]
            if row is None:
                above = builder.tokens[builder.parents[parent]] if parent else context[-2]
                row = self.table.successors(above, builder.tokens[parent])
                drafted[parent_path] = parent, row
            rank = path[-1]
            if rank < len(row[0]):
                child = builder.add(parent, row[0][rank], ADJACENCY, row[1][rank])
                if child is not None:
                    drafted[path] = child, None
        return builder.build()

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        # Of nodes with equal tokens the later one's row stays; the reference leaves it to the GPU which one does.
        learn_step(self.table, tree, self._previous, scored)


def read_template() -> list[Path]:
    """The authors' 80 paths below the root, breadth first."""
    lines = files("baselines").joinpath(TEMPLATE_FILE).read_text(encoding="utf-8").splitlines()
    return [tuple(json.loads(line.removeprefix("- "))) for line in lines if line.startswith("- ")]


def trim_template(template: Sequence[Path], budget: int) -> list[Path]:
    """The first budget - 1 paths in rank order, breadth first (shorter, then smaller ranks first).

    Rank order: the sum over the path of (rank + 1), smallest first; equal sums shorter first, then smaller ranks first.
    A parent's sum is smaller than its child's, so what stays is a tree. One level deeper costs as much as one rank
    further: (0) | (1) (0,0) | (2) (0,1) (1,0) (0,0,0) | ...
    """
    in_rank_order = sorted(template, key=lambda path: (sum(path) + len(path), len(path), path))
    return sorted(in_rank_order[: budget - 1], key=lambda path: (len(path), path))
