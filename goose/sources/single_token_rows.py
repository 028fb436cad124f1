"""What the target says of a token by itself: its row behind two line ends and nothing else.

For tokens that a request has not met, whose row no table can know. The rows depend on the model and its line end alone,
so they are made once and serve every request; they hold nothing of any text, and the target is not trained for them.
"""

from collections.abc import Callable, Sequence

import numpy as np

from goose.engine.tree import NO_PARENT, DraftTree
from goose.engine.verify import top_k_rows

_WIDTH = 255  # tokens a forward: siblings of one tree, none of which sees another


def rows_alone(
    lm, line_end: Sequence[int], n_ids: int, top_k: int, on_rows: Callable[[int], None] = lambda n: None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the ids 0 .. n_ids - 1 (at most the vocabulary): int64[n, K] ids, float32[n, K] scores (top_k_rows).

    lm: a TreeLM, whose sequence in flight is forgotten. line_end: ids of a line's end, the model's own beginning of a
    text before it where it has one; its last id comes twice, committed and as the root of all. on_rows is told how many
    rows are done.
    """
    n_ids = min(n_ids, lm.vocab_size)
    if n_ids < 1 or not line_end:
        raise ValueError(f"rows are made of n_ids >= 1 tokens behind a line's end, got {n_ids} and {list(line_end)}")
    lm.prefill(list(line_end), reserve=1 + _WIDTH)
    parts = []
    for first in range(0, n_ids, _WIDTH):
        tokens = range(first, min(first + _WIDTH, n_ids))
        tree = DraftTree.from_lists([line_end[-1], *tokens], [NO_PARENT] + [0] * len(tokens))
        logits = lm.score(tree)[1:]
        parts.append([column.cpu().numpy() for column in top_k_rows(logits, top_k)])
        on_rows(tokens.stop)
    ids, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ids, scores
