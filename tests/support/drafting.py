"""Drafters at work, as tests of all of them look at it. Not a test file."""

from goose.engine.decode import decode
from goose.engine.tree import DraftTree


def steep(n_nodes: int, n_committed: int) -> float:
    """Seconds of a forward: every node costs a tenth of the first."""
    return 0.9 + 0.1 * n_nodes


def columns(tree: DraftTree) -> tuple[list, ...]:
    return tree.tokens.tolist(), tree.parents.tolist(), tree.sources.tolist(), tree.scores.tolist()


def run(lm, prompt, drafter, **settings) -> tuple[list[int], list[tuple]]:
    """Output ids and the trees of all steps."""
    generation = decode(lm, prompt, drafter, **{"max_new_tokens": 40, **settings})
    return generation.output_ids, [columns(tree) for tree in generation.steps.trees]
