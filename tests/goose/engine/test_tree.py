"""DraftTree and TreeBuilder: hand-written tables, and the slow obvious computation against the fast one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goose.engine.tree import (
    ADJACENCY,
    CONTEXT,
    DRAFT_MODEL,
    NO_PARENT,
    ROOT,
    SOURCE_NAMES,
    DraftTree,
    TreeBuilder,
    chain,
    single_node,
)
from toy import PARENTS7, TREE7, TREEC

many = settings(max_examples=60, deadline=None)

# One attempt to grow a tree: (which node so far, counted modulo their number; token; source).
attempts = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 7), st.sampled_from([CONTEXT, ADJACENCY, DRAFT_MODEL])),
    max_size=300,
)


def grown(plan, budget: int, root: int = 9) -> TreeBuilder:
    builder = TreeBuilder(root, budget)
    for where, token, source in plan:
        builder.add(where % builder.n_nodes, token, source, score=token / 8)
    return builder


def ancestors_and_self(tree: DraftTree, node: int) -> list[int]:
    """Up the parents, one at a time."""
    line = [node]
    while tree.parents[line[-1]] != NO_PARENT:
        line.append(int(tree.parents[line[-1]]))
    return line


# --- TREE7, by hand


def test_tree7_mask_rows_and_depths():
    rows = ["".join(str(int(bit)) for bit in row) for row in TREE7.ancestor_mask]
    assert rows == ["1000000", "1100000", "1010000", "1101000", "1100100", "1010010", "1101001"]
    assert TREE7.ancestor_mask.dtype == bool
    assert TREE7.depths.tolist() == [0, 1, 1, 2, 2, 2, 3]
    assert (9 + TREE7.depths).tolist() == [9, 10, 10, 11, 11, 11, 12]
    assert not TREE7.is_chain


def test_tree7_pruned_to_each_depth():
    assert TREE7.pruned_to_depth(0).tokens.tolist() == [20]
    assert TREE7.pruned_to_depth(1).tokens.tolist() == [20, 23, 35]
    assert TREE7.pruned_to_depth(2).parents.tolist() == [-1, 0, 0, 1, 1, 2]
    assert TREE7.pruned_to_depth(3) is TREE7
    assert TREE7.pruned_to_depth(99) is TREE7


def test_pruning_renumbers_the_parents_behind_a_removed_node():
    #   0 - 1 - 2 - 3       node 3 goes; node 5 keeps its parent, now counted without node 3
    #    \- 4 - 5
    tree = DraftTree.from_lists([7, 1, 2, 3, 4, 5], [-1, 0, 1, 2, 0, 4], scores=[1, 0.9, 0.8, 0.7, 0.6, 0.5])
    pruned = tree.pruned_to_depth(2)
    assert pruned.tokens.tolist() == [7, 1, 2, 4, 5]
    assert pruned.parents.tolist() == [-1, 0, 1, 0, 3]
    assert pruned.scores.tolist() == pytest.approx([1, 0.9, 0.8, 0.6, 0.5])
    assert tree.parents.tolist() == [-1, 0, 1, 2, 0, 4]  # the original is untouched


def test_chains_and_single_nodes():
    line = chain(5, [6, 7, 8], CONTEXT, budget=10)
    assert line.tokens.tolist() == [5, 6, 7, 8]
    assert line.parents.tolist() == [-1, 0, 1, 2]
    assert line.sources.tolist() == [ROOT, CONTEXT, CONTEXT, CONTEXT]
    assert line.is_chain
    assert (line.ancestor_mask == np.tril(np.ones((4, 4), bool))).all()
    assert chain(5, [6, 7, 8], CONTEXT, budget=3).tokens.tolist() == [5, 6, 7]
    assert chain(5, [6, 7, 8], CONTEXT, budget=1).tokens.tolist() == [5]
    assert chain(5, [], CONTEXT, budget=10).tokens.tolist() == [5]
    alone = single_node(5)
    assert (alone.tokens.tolist(), alone.parents.tolist(), alone.is_chain) == ([5], [-1], True)
    assert alone.ancestor_mask.tolist() == [[True]]


def test_a_chain_may_repeat_one_token():
    assert chain(5, [5, 5, 5], CONTEXT, budget=10).tokens.tolist() == [5, 5, 5, 5]


def test_columns_have_the_stated_types_and_the_sources_have_names():
    for tree in (TREE7, grown([(0, 1, CONTEXT), (1, 2, ADJACENCY)], 9).build()):
        kinds = [tree.tokens.dtype, tree.parents.dtype, tree.sources.dtype, tree.scores.dtype, tree.depths.dtype]
        assert kinds == [np.int64, np.int32, np.int8, np.float32, np.int64]
    assert [SOURCE_NAMES[s] for s in (ROOT, CONTEXT, ADJACENCY, DRAFT_MODEL)] == [
        "root",
        "context",
        "adjacency",
        "draft_model",
    ]


# --- the builder, by hand


def test_the_same_token_under_one_parent_is_merged_and_the_better_continuation_is_found():
    builder = TreeBuilder(10, budget=10)
    first = builder.add(0, 11, ADJACENCY, 0.9)
    again = builder.add(0, 11, CONTEXT, 0.1)  # not a second sibling
    assert again == first == 1
    deep = builder.add(again, 12, CONTEXT)
    tree = builder.build()
    assert tree.tokens.tolist() == [10, 11, 12]
    assert tree.parents.tolist() == [-1, 0, first]
    assert deep == 2
    assert tree.sources.tolist() == [ROOT, ADJACENCY, CONTEXT]  # who came first stays
    assert builder.add(0, 12, ADJACENCY) == 3  # the same token elsewhere is a node of its own


def test_a_spent_budget_gives_none_but_still_finds_what_exists():
    builder = TreeBuilder(10, budget=2)
    assert builder.add(0, 11, ADJACENCY) == 1
    assert builder.add(0, 12, ADJACENCY) is None
    assert builder.add(1, 11, ADJACENCY) is None
    assert builder.add(0, 11, ADJACENCY) == 1
    assert builder.build().tokens.tolist() == [10, 11]


def test_chains_merge_along_their_common_start():
    builder = TreeBuilder(0, budget=6)
    assert builder.add_chain(0, [1, 2, 3], CONTEXT) == [1, 2, 3]
    assert builder.add_chain(0, [1, 2, 4, 5, 6], CONTEXT) == [1, 2, 4, 5]  # 6 does not fit
    assert builder.build().parents.tolist() == [-1, 0, 1, 2, 2, 4]
    assert builder.add_chain(0, [], CONTEXT) == []


def test_build_is_a_snapshot():
    builder = TreeBuilder(0, budget=6)
    builder.add(0, 1, CONTEXT)
    before = builder.build()
    builder.add(1, 2, CONTEXT)
    assert before.tokens.tolist() == [0, 1]
    assert builder.build().tokens.tolist() == [0, 1, 2]


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_without_room_for_the_root_is_refused(budget):
    with pytest.raises(ValueError, match="node budget must be >= 1"):
        TreeBuilder(0, budget)


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ([], [], "non-empty"),
        ([1, 2], [-1], "equal-length"),
        ([1, 2], [0, 0], r"parents\[0\] must be -1"),
        ([1, 2], [-1, -1], "earlier node"),  # two roots
        ([1, 2], [-1, 1], "earlier node"),  # its own parent
        ([1, 2, 3], [-1, 2, 0], "earlier node"),  # the child before its parent
        ([1, 2, 2], [-1, 0, 0], "siblings must carry distinct tokens"),
        ([1, 2.5], [-1, 0], r"tokens are whole numbers, got \[1, 2.5\]"),
        ([1, 2, 3], [-1, 0, 0.5], "parents are whole numbers"),
    ],
)
def test_lists_that_are_no_tree_are_refused(tokens, parents, message):
    with pytest.raises(ValueError, match=message):
        DraftTree.from_lists(tokens, parents)


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="equal-length"):
        DraftTree.from_lists([1, 2], [-1, 0], sources=[0])
    with pytest.raises(ValueError, match="equal-length"):
        DraftTree.from_lists([1, 2], [-1, 0], scores=[1.0, 1.0, 1.0])


# --- properties


@many
@given(attempts, st.integers(1, 400))
def test_whatever_is_added_the_builder_gives_a_valid_tree_within_its_budget(plan, budget):
    tree = grown(plan, budget).build()
    parents = tree.parents.tolist()
    assert tree.n_nodes <= budget
    assert parents[0] == NO_PARENT
    assert all(0 <= parent < node for node, parent in enumerate(parents[1:], 1))
    pairs = list(zip(parents, tree.tokens.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    again = DraftTree.from_lists(tree.tokens.tolist(), parents, tree.sources.tolist(), tree.scores.tolist())
    assert (again.tokens == tree.tokens).all()
    assert (again.scores == tree.scores).all()


@many
@given(attempts, st.integers(1, 400))
def test_the_builder_equals_a_dictionary_of_token_paths(plan, budget):
    """A node is the tokens on the way to it: the slow model of merging under a budget."""
    paths, n_refused = [()], 0
    builder = TreeBuilder(9, budget)
    for where, token, source in plan:
        parent = where % builder.n_nodes
        path = (*paths[parent], token)
        if path in paths:
            expected = paths.index(path)
        elif len(paths) < budget:
            expected = len(paths)
            paths.append(path)
        else:
            expected, n_refused = None, n_refused + 1
        assert builder.add(parent, token, source) == expected
    tree = builder.build()
    assert builder.n_nodes == tree.n_nodes == len(paths)
    assert builder.depths == tree.depths.tolist() == [len(path) for path in paths]
    assert n_refused == 0 or tree.n_nodes == budget


@many
@given(attempts)
def test_everything_derived_equals_walking_up_the_parents(plan):
    tree = grown(plan, 400).build()
    lines = [ancestors_and_self(tree, node) for node in range(tree.n_nodes)]
    mask = np.zeros((tree.n_nodes, tree.n_nodes), bool)
    for node, line in enumerate(lines):
        mask[node, line] = True
    assert (tree.ancestor_mask == mask).all()
    assert tree.depths.tolist() == [len(line) - 1 for line in lines]
    assert tree.is_chain == all(line == list(range(node, -1, -1)) for node, line in enumerate(lines))


@many
@given(attempts, st.integers(0, 12))
def test_pruning_keeps_exactly_the_shallow_nodes_in_their_order(plan, max_depth):
    tree = grown(plan, 400).build()
    pruned = tree.pruned_to_depth(max_depth)
    kept = [node for node in range(tree.n_nodes) if tree.depths[node] <= max_depth]
    assert pruned.tokens.tolist() == tree.tokens[kept].tolist()
    assert pruned.sources.tolist() == tree.sources[kept].tolist()
    assert pruned.depths.tolist() == tree.depths[kept].tolist()
    assert [NO_PARENT if p < 0 else kept[p] for p in pruned.parents.tolist()] == tree.parents[kept].tolist()
    assert (pruned.ancestor_mask == tree.ancestor_mask[np.ix_(kept, kept)]).all()


@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 64, 65, 255, 256, 700])
def test_the_mask_is_right_at_byte_and_word_boundaries(n):
    star = DraftTree.from_lists(list(range(n)), [-1] + [0] * (n - 1))
    expected = np.eye(n, dtype=bool)
    expected[:, 0] = True
    assert (star.ancestor_mask == expected).all()
    line = DraftTree.from_lists([3] * n, list(range(-1, n - 1)))
    assert (line.ancestor_mask == np.tril(np.ones((n, n), bool))).all()
    assert line.is_chain


def test_treec_is_tree7s_shape():
    assert TREEC.parents.tolist() == TREE7.parents.tolist() == PARENTS7
    assert (TREEC.ancestor_mask == TREE7.ancestor_mask).all()
