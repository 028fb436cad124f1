"""What the recorded trees of one line come to: nodes counted by source, depth, rank and place.

A line holds every tree of every step, ten thousand numbers and more; `with_tree_counts` makes a hundred of them, so
that tables read any number of lines without keeping their trees. It only counts; ratios are the other files' business.

Words: a node's rank is its number among its siblings, from 0 in the order they are tried; its place is the path of
ranks from the root to it. Drafted, tested and accepted as in the glossary; what lies after a stop id or the limit was
not accepted into the output. Dimension letters: s = steps, n = nodes of all steps together, p = places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from goose.engine.tree import SOURCE_NAMES

DRAFTED, TESTED, ACCEPTED = range(3)  # rows of every count
N_SOURCES = len(SOURCE_NAMES)
NUMBER_COLUMNS = (
    "emitted", "context", "expected", "draft_s", "forward_s", "fetch_s", "walk_s", "commit_s", "observe_s",
)  # fmt: skip
ROOT_KEY = np.uint64(0)
# Any odd number does: places are told apart by a polynomial in it, modulo 2^64.
_BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class TreePlaces:
    """Nodes by the place they hung at; the root's place is not one of them."""

    keys: np.ndarray  # uint64[p], sorted, each once
    parent_keys: np.ndarray  # uint64[p]; ROOT_KEY for the root's children
    ranks: np.ndarray  # int64[p]
    depths: np.ndarray  # int64[p]
    drafted: np.ndarray  # int64[p, N_SOURCES]
    accepted: np.ndarray  # int64[p, N_SOURCES]


@dataclass(frozen=True)
class TreeCounts:
    """Counts over the steps of one recorded line. Node counts include the root; the rows do not."""

    n_steps: int
    n_nodes: int
    max_nodes: int
    n_empty: int  # steps whose tree was the root alone
    by_source: np.ndarray  # int64[3, N_SOURCES]
    by_depth: np.ndarray  # int64[3, largest depth + 1]
    by_rank: np.ndarray  # int64[3, largest rank + 1]
    places: TreePlaces


def with_tree_counts(line: dict) -> dict:
    """The line with its trees counted (`trees`) and dropped; `steps` keeps its columns of numbers, as arrays.

    Three columns are added. `n_nodes` is each tree's size, root included; `is_chain` says that it was a chain; `n_path`
    is the length of the accepted path, root included and uncut: the tokens that the step would have emitted without a
    stop id or limit. A failed line comes back as it is.
    """
    if line["error"] is not None:
        return line
    steps = line["steps"]
    numbers = {name: _numbers(steps[name]) for name in NUMBER_COLUMNS if name in steps}
    numbers["n_nodes"], numbers["is_chain"] = sizes_and_chains(steps)
    numbers["n_path"] = np.array([len(path) for path in steps["path"]], dtype=np.int64)
    return {**line, "steps": numbers, "trees": count_trees(steps)}


def sizes_and_chains(steps: dict) -> tuple[np.ndarray, np.ndarray]:
    """int64[s] nodes of each tree, root included, and bool[s], whether it is a chain; of counted columns or not."""
    if "n_nodes" in steps:
        return steps["n_nodes"], steps["is_chain"]
    sizes = [len(parents) for parents in steps["parents"]]
    chains = [parents == list(range(-1, len(parents) - 1)) for parents in steps["parents"]]
    return np.array(sizes, dtype=np.int64), np.array(chains, dtype=bool)


def trees_of(turn: dict) -> TreeCounts:
    """The turn's counts, whether they were made when it was read (with_tree_counts) or not."""
    return turn["trees"] if "trees" in turn else count_trees(turn["steps"])


def count_trees(steps: dict) -> TreeCounts:
    """Counts of the recorded columns parents, sources, path and emitted, each a list over the steps."""
    n_nodes = np.array([len(parents) for parents in steps["parents"]], dtype=np.int64)  # [s]
    n = int(n_nodes.sum())
    first = np.cumsum(n_nodes) - n_nodes  # [s], each step's root
    parents = np.fromiter(chain.from_iterable(steps["parents"]), np.int64, n)
    sources = np.fromiter(chain.from_iterable(steps["sources"]), np.int64, n)
    is_node = parents >= 0  # the root is in no row
    above = np.where(is_node, parents + np.repeat(first, n_nodes), np.arange(n))  # a root is above itself
    on_path = np.zeros(n, dtype=bool)
    cut = zip(first.tolist(), steps["path"], steps["emitted"], strict=True)
    on_path[[root + node for root, path, emitted in cut for node in path[: emitted + 1]]] = True

    ranks = _ranks(above, is_node)
    depths, keys = _depths_and_keys(above, ranks, is_node)
    rows = (is_node, is_node & on_path[above], is_node & on_path)
    return TreeCounts(
        n_steps=len(n_nodes),
        n_nodes=n,
        max_nodes=int(n_nodes.max(initial=0)),
        n_empty=int((n_nodes == 1).sum()),
        by_source=_counts(rows, sources, N_SOURCES),
        by_depth=_counts(rows, depths, int(depths.max(initial=0)) + 1),
        by_rank=_counts(rows, ranks, int(ranks.max(initial=0)) + 1),
        places=_places(above, keys, ranks, depths, sources, rows),
    )


def merged_places(parts: Sequence[TreePlaces]) -> TreePlaces:
    """The places of several lines together."""
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in TreePlaces.__annotations__}
    keys, where, group = np.unique(columns["keys"], return_index=True, return_inverse=True)
    sums = {}
    for name in ("drafted", "accepted"):
        sums[name] = np.zeros((len(keys), N_SOURCES), dtype=np.int64)
        np.add.at(sums[name], group, columns[name])
    return TreePlaces(keys, *(columns[name][where] for name in ("parent_keys", "ranks", "depths")), **sums)


def _numbers(values: Sequence) -> np.ndarray:
    """One column of numbers; None (a method without such a number) becomes NaN."""
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _ranks(above: np.ndarray, is_node: np.ndarray) -> np.ndarray:
    """int64[n]: each node's number among its siblings; 0 for a root."""
    nodes = np.flatnonzero(is_node)
    by_parent = nodes[np.argsort(above[nodes], kind="stable")]  # siblings side by side, in the order of the tree
    parent = above[by_parent]
    is_first = np.ones(len(parent), dtype=bool)
    is_first[1:] = parent[1:] != parent[:-1]
    start = np.flatnonzero(is_first)
    ranks = np.zeros(len(above), dtype=np.int64)
    ranks[by_parent] = np.arange(len(parent)) - np.repeat(start, np.diff(start, append=len(parent)))
    return ranks


def _depths_and_keys(above: np.ndarray, ranks: np.ndarray, is_node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64[n] depths and uint64[n] keys of all nodes, by doubling the jump towards the root.

    key(v) = sum over the path from v upwards of (rank + 1) BASE^i, so equal places have equal keys in every tree.
    """
    depths = is_node.astype(np.int64)
    keys = np.where(is_node, ranks + 1, 0).astype(np.uint64)
    jump, power = above, _BASE
    with np.errstate(over="ignore"):  # modulo 2^64 on purpose
        while is_node[jump].any():
            keys = keys + power * keys[jump]
            depths = depths + depths[jump]
            jump, power = jump[jump], power * power
    return depths, keys


def _counts(rows: Sequence[np.ndarray], values: np.ndarray, size: int) -> np.ndarray:
    return np.array([np.bincount(values[row], minlength=size) for row in rows], dtype=np.int64)


def _places(above, keys, ranks, depths, sources, rows) -> TreePlaces:
    nodes = np.flatnonzero(rows[DRAFTED])
    unique, where, group = np.unique(keys[nodes], return_index=True, return_inverse=True)
    example = nodes[where]
    cells = group * N_SOURCES + sources[nodes]
    size = len(unique) * N_SOURCES
    drafted = np.bincount(cells, minlength=size)
    accepted = np.bincount(cells[rows[ACCEPTED][nodes]], minlength=size)
    shape = (len(unique), N_SOURCES)
    return TreePlaces(
        unique, keys[above[example]], ranks[example], depths[example], drafted.reshape(shape), accepted.reshape(shape)
    )
