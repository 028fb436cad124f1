"""TreeCache against a plain list: what is committed, what a forward sees, and what a commit costs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from goose.engine.cache import TreeCache

N_LAYERS, N_HEADS, HEAD_DIM = 3, 2, 4
CPU = torch.device("cpu")


def new_cache(capacity: int, dtype: torch.dtype = torch.float32) -> TreeCache:
    cache = TreeCache([CPU] * N_LAYERS, N_HEADS, HEAD_DIM, dtype)
    cache.reset(capacity)
    return cache


def rows(labels, layer: int, is_value: bool) -> torch.Tensor:
    """[1, heads, n, dim]: every number of a row tells its label, layer, K or V, head and dimension."""
    n = len(labels)
    label = torch.tensor(labels, dtype=torch.float32).view(1, 1, n, 1)
    head = torch.arange(N_HEADS).view(1, N_HEADS, 1, 1)
    dim = torch.arange(HEAD_DIM).view(1, 1, 1, HEAD_DIM)
    return label * 1000 + layer * 100 + is_value * 50 + head * 10 + dim


def forward(cache: TreeCache, labels) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a model does: every layer writes its new rows and reads all rows so far."""
    layers = range(N_LAYERS)
    return [cache.update(rows(labels, layer, False), rows(labels, layer, True), layer) for layer in layers]


def assert_holds(seen, labels) -> None:
    for layer, (keys, values) in enumerate(seen):
        assert torch.equal(keys, rows(labels, layer, False))
        assert torch.equal(values, rows(labels, layer, True))


def test_a_forward_sees_the_committed_rows_and_its_own():
    cache = new_cache(10)
    assert_holds(forward(cache, [1, 2, 3]), [1, 2, 3])
    assert cache.n_committed == cache.get_seq_length() == 0  # written, not committed
    cache.commit([0, 1, 2])
    assert cache.n_committed == cache.get_seq_length() == 3
    assert_holds(forward(cache, [4, 5]), [1, 2, 3, 4, 5])
    assert_holds(forward(cache, [6]), [1, 2, 3, 6])  # the rows of the forward before were never committed


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ([0], [20]),
        ([0, 1], [20, 21]),
        ([0, 2], [20, 22]),
        ([0, 2, 5], [20, 22, 25]),
        ([0, 1, 3, 6], [20, 21, 23, 26]),
        ([0, 1, 2, 3, 4, 5, 6], [20, 21, 22, 23, 24, 25, 26]),
        ([0, 4, 5, 6], [20, 24, 25, 26]),  # sources and targets overlap
        ([0, 1, 2, 4], [20, 21, 22, 24]),  # a prefix and one row more
    ],
)
def test_commit_keeps_exactly_the_path(path, kept):
    cache = new_cache(20)
    forward(cache, [1, 2])
    cache.commit([0, 1])
    forward(cache, range(20, 27))
    cache.commit(path)
    assert cache.n_committed == 2 + len(kept)
    assert_holds(forward(cache, [9]), [1, 2, *kept, 9])


steps = st.lists(
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(1, max(1, n - 1)), max_size=n))),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), steps), min_size=1, max_size=4))
def test_any_requests_and_paths_equal_a_list(requests):
    """The slow model: a list of labels; a commit appends those of the path. One cache serves all requests."""
    cache, label = TreeCache([CPU] * N_LAYERS, N_HEADS, HEAD_DIM, torch.float32), 0
    for n_prompt, request in requests:
        cache.reset(n_prompt + 9 * (len(request) + 1))
        committed = []
        for n, chosen in [(n_prompt, set(range(1, n_prompt))), *request]:
            written = list(range(label, label + n))
            label += n
            path = [0, *sorted(i for i in chosen if 0 < i < n)]
            assert_holds(forward(cache, written), committed + written)
            cache.commit(path)
            committed += [written[i] for i in path]
            assert cache.n_committed == len(committed)


def test_reset_forgets_reuses_a_large_enough_block_and_grows_a_small_one():
    cache = new_cache(8)
    (keys, _), *_ = forward(cache, [1, 2, 3])
    cache.commit([0, 1, 2])
    cache.reset(5)  # smaller: the same memory, no row of the old request visible
    assert (cache.n_committed, cache.capacity) == (0, 8)
    (again, _), *_ = seen = forward(cache, [7])
    assert again.data_ptr() == keys.data_ptr()
    assert_holds(seen, [7])
    cache.reset(8)
    assert forward(cache, [7])[0][0].data_ptr() == keys.data_ptr()
    cache.reset(9)
    assert (cache.n_committed, cache.capacity) == (0, 9)
    assert_holds(forward(cache, range(9)), range(9))
    assert cache._blocks[0].shape == (N_LAYERS, 2, N_HEADS, 9, HEAD_DIM)


def test_a_full_cache_is_usable_to_its_last_row_and_no_further():
    cache = new_cache(4)
    assert_holds(forward(cache, [1, 2, 3, 4]), [1, 2, 3, 4])
    cache.commit([0, 1, 2])
    assert_holds(forward(cache, [5]), [1, 2, 3, 5])
    with pytest.raises(ValueError, match="5 rows do not fit the cache's 4"):
        forward(cache, [5, 6])
    cache.commit([0])
    with pytest.raises(ValueError, match="5 rows do not fit"):  # one row would broadcast into nothing
        forward(cache, [6])


def test_rows_are_kept_in_the_caches_own_type():
    cache = new_cache(4, torch.bfloat16)
    keys, values = cache.update(torch.ones(1, N_HEADS, 1, HEAD_DIM), torch.ones(1, N_HEADS, 1, HEAD_DIM), 0)
    assert keys.dtype == values.dtype == torch.bfloat16


def test_update_returns_views_of_the_block():
    cache = new_cache(6)
    (keys, values), *_ = forward(cache, [1, 2])
    start = cache._blocks[0].untyped_storage().data_ptr()
    assert keys.untyped_storage().data_ptr() == values.untyped_storage().data_ptr() == start


# --- the cost of a commit, counted in numbers written


class Written(TorchDispatchMode):
    """Adds up the elements that any operation makes or overwrites; views cost nothing."""

    def __init__(self):
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not func.is_view:
            self.n += out.numel()
        return out


def numbers_written_by_commit(n_context: int, path, n_nodes: int = 60) -> int:
    cache = new_cache(n_context + n_nodes)
    forward(cache, range(n_context))
    cache.commit(range(n_context))
    forward(cache, range(n_nodes))
    with Written() as written:
        cache.commit(path)
    return written.n


@pytest.mark.parametrize("n_context", [1, 100, 5000])
def test_a_commit_touches_the_accepted_rows_only_whatever_the_contexts_length(n_context):
    path = [0, 3, 7, 40]
    row = N_LAYERS * 2 * N_HEADS * HEAD_DIM
    gathered_and_stored = 2 * len(path) * row
    index = 4 * len(path)  # making it, moving it, adding the offset
    assert numbers_written_by_commit(n_context, path) <= gathered_and_stored + index


@pytest.mark.parametrize("path", [[0], [0, 1, 2], list(range(60))])
def test_a_path_that_is_a_prefix_moves_nothing(path):
    assert numbers_written_by_commit(100, path) == 0


def test_what_was_left_is_cleared_once_and_again_only_after_a_write():
    """So that clearing ahead of a timed prefill spares the prefill."""
    cache = TreeCache([torch.device("cpu")], 1, 2, torch.float32)
    cache.reset(8)
    rows = torch.ones(1, 1, 3, 2)
    for _ in range(2):
        cache.update(rows, rows, 0)
        cache.reset(8, clear=True)
        assert not cache._blocks[0].any()
        cache._blocks[0].fill_(7)  # behind its back: a second clearing would show
        cache.reset(8, clear=True)
        assert (cache._blocks[0] == 7).all()
    cache.reset(9, clear=True)
    assert not cache._blocks[0].any()
