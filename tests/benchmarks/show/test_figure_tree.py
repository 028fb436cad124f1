"""The picture of one tree: rows of a tree drawn by hand, and the same bytes each time."""

from benchmarks.show.figure_tree import draw_tree, layout
from goose.engine.tree import ADJACENCY, CONTEXT, ROOT

#  0 - 1 - 3
#   \- 2 - 4
#        \ 5
PARENTS = [-1, 0, 0, 1, 2, 2]


def test_a_first_child_goes_straight_on_and_every_other_leaf_opens_a_row():
    assert layout(PARENTS) == ([0, 1, 1, 2, 2, 2], [0, 0, 1, 0, 1, 2])
    assert layout([-1]) == ([0], [0])


def test_the_same_tree_gives_the_same_bytes(tmp_path):
    sources = [ROOT, CONTEXT, ADJACENCY, CONTEXT, ADJACENCY, ADJACENCY]
    files = [tmp_path / "a.png", tmp_path / "new" / "b.png"]
    for file in files:
        draw_tree(PARENTS, sources, [0, 1, 3], list("abcdef"), "a tree", file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes().startswith(b"\x89PNG")
