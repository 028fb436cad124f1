"""TreeLM.extend: a tree that is scored layer by layer equals the tree scored at once."""

import numpy as np
import pytest
import torch

from goose.engine.lm import TreeLM
from goose.engine.tree import DraftTree
from toy import TREE7, TREE7_PROMPT, random_tree, tiny_model

WAYS = {
    "eager grouped": {"engine": "eager"},
    "eager sdpa": {"engine": "eager", "attention": "sdpa"},
    "fused": {"engine": "fused"},
    "graph": {"engine": "graph"},
    "graph padded": {"engine": "graph", "node_buckets": (4, 16, 32)},
    "graph too small": {"engine": "graph", "node_buckets": (2, 16)},
}
TARGET = tiny_model()


@torch.no_grad()
def plain_logits(model, ids) -> torch.Tensor:
    return model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]


def levels(tree: DraftTree) -> tuple[DraftTree, list[int]]:
    """The tree with its nodes in breadth-first order, and where its layers begin and end."""
    order = np.argsort(tree.depths, kind="stable")
    new = np.empty_like(order)
    new[order] = np.arange(len(order))
    parents = [-1, *(int(new[p]) for p in tree.parents[order][1:])]
    return DraftTree.from_lists(tree.tokens[order].tolist(), parents), np.cumsum(np.bincount(tree.depths)).tolist()


def upper(tree: DraftTree, n: int) -> DraftTree:
    return DraftTree(tree.tokens[:n], tree.parents[:n], tree.sources[:n], tree.scores[:n])


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_tree_scored_in_layers_equals_the_tree_scored_at_once(family, way):
    model = tiny_model(family)
    for seed, size in ((0, 7), (1, 12), (2, 30)):
        tree, ends = levels(random_tree(np.random.default_rng(seed), 8, size, 64))
        whole, layered = (TreeLM(model, **way) for _ in range(2))
        for lm in (whole, layered):
            lm.prefill(TREE7_PROMPT, 64)
        expected = whole.score(tree)
        rows = [layered.extend(upper(tree, b), a) for a, b in zip([0, *ends], ends, strict=False)]
        assert (torch.cat(rows) - expected).abs().max() < 1e-4


def test_a_path_of_a_tree_scored_in_layers_is_committed_like_any_other():
    lm = TreeLM(TARGET)
    lm.prefill(TREE7_PROMPT, 64)
    for first, end in ((0, 1), (1, 3), (3, 6), (6, 7)):
        lm.extend(upper(TREE7, end), first)
    lm.commit([0, 2, 5])
    after = lm.score(DraftTree.from_lists([61], [-1]))
    assert (after[0] - plain_logits(TARGET, [*TREE7_PROMPT, 20, 35, 35, 61])[-1]).abs().max() < 1e-4


def test_another_head_sees_the_new_nodes_hidden_states():
    lm = TreeLM(TARGET)
    lm.prefill(TREE7_PROMPT, 64)
    lm.extend(upper(TREE7, 3), 0)
    hidden = lm.extend(TREE7, 3, head=lambda rows: rows)
    assert hidden.shape == (4, 64)
    lm.extend(upper(TREE7, 3), 0)
    with torch.no_grad():
        assert torch.equal(TARGET.lm_head(hidden), lm.extend(TREE7, 3))


def test_more_rows_than_were_reserved_are_refused():
    lm = TreeLM(TARGET)
    lm.prefill(TREE7_PROMPT, 6)
    lm.extend(upper(TREE7, 3), 0)
    with pytest.raises(ValueError, match="9 committed \\+ 7 nodes exceed the cache's 15 rows"):
        lm.extend(TREE7, 3)
    assert lm.score(upper(TREE7, 6)).shape == (6, 64)  # the failed one left nothing in flight
