"""The step viewer's pure functions (benchmarks/show/templates/steps.js), run by Node and compared with Python."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from benchmarks.metrics import acceptance_by_source
from goose.engine.tree import ADJACENCY, CONTEXT, ROOT, SOURCE_NAMES
from handmade import line, tree_step
from paths import REPO
from recorded import finished_run
from toy import PARENTS7, random_tree

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js to run the page's functions")
STEPS = REPO / "benchmarks" / "show" / "templates" / "steps.js"
TARGET = len(SOURCE_NAMES)


def js(expression: str, argument: object = None):
    """The value of an expression over `given`, through JSON."""
    code = f"{STEPS.read_text()}\nconst given = JSON.parse(require('fs').readFileSync(0, 'utf8'));\n"
    code += f"process.stdout.write(JSON.stringify({expression}));"
    done = subprocess.run([NODE, "-e", code], input=json.dumps(argument), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Where nodes stand


def test_a_spine_is_straight_and_its_branches_share_rows():
    #  0 - 1 - 2 - 3          row 0
    #   \   \   6 (of 1)      row 1: 4 is at depth 1, 6 at depth 2
    #    4                    ..4 has a child 5, which must stay below 6
    parents = [-1, 0, 1, 2, 0, 4, 1]
    order = [-1, 0, 1, 2, 1, 0, 5]  # the same tree, 1's second child listed before 0's
    assert js("layout(given)", parents) == {"depth": [0, 1, 2, 3, 1, 2, 2], "row": [0, 0, 0, 0, 2, 2, 1]}
    assert js("layout(given)", order) == {"depth": [0, 1, 2, 3, 2, 1, 2], "row": [0, 0, 0, 0, 1, 2, 2]}


def test_leaves_go_as_high_as_their_depth_is_free():
    assert js("layout(given)", [-1, 0, 1, 2, 3, 0, 1, 2])["row"] == [0, 0, 0, 0, 0, 1, 1, 1]
    assert js("layout(given)", PARENTS7)["row"] == [0, 0, 1 + 1, 0, 1, 2, 0]
    assert js("layout(given)", [-1]) == {"depth": [0], "row": [0]}


def preorder(parents: list[int]) -> list[int]:
    children = {node: [c for c, p in enumerate(parents) if p == node] for node in range(len(parents))}
    order, stack = [], [0]
    while stack:
        order.append(stack.pop())
        stack += reversed(children[order[-1]])
    return order


def test_random_trees_have_no_two_nodes_in_one_place_and_no_edges_that_cross():
    rng = np.random.default_rng(0)
    trees = [random_tree(rng, 0, int(n), 1000).parents.tolist() for n in rng.integers(1, 90, 60)]
    trees += [list(range(-1, 512)), [-1] + [0] * 300]
    for parents, placed in zip(trees, js("given.map((parents) => layout(parents))", trees), strict=True):
        depth, row = placed["depth"], placed["row"]
        assert depth == [0, *(depth[p] + 1 for p in parents[1:])]
        assert len(set(zip(depth, row, strict=True))) == len(parents)
        for level in range(max(depth) + 1):
            # Seen from top to bottom a level is in the order of a walk through the tree, so edges cannot cross.
            rows = [row[node] for node in preorder(parents) if depth[node] == level]
            assert rows == sorted(rows)
        for node in range(1, len(parents)):
            siblings = [c for c in range(1, len(parents)) if parents[c] == parents[node]]
            assert row[siblings[0]] == row[parents[node]]


def test_boxes_do_not_overlap_and_fill_the_drawing():
    nodes = "nodesOf({steps: {tokens: [given], parents: [[-1, 0, 0, 1]], sources: [[0, 1, 1, 1]], path: [[0]],"
    nodes += " emitted: [1]}}, [0, 9], 0, 4)"
    made = js(f"boxes({nodes}, (t) => 'w'.repeat(t))", [1, 3, 40, 2])
    assert [node["label"] for node in made["nodes"]] == ["w", "www", "w" * 13 + "…", "ww", "w" * 9]
    for one in made["nodes"]:
        assert 0 < one["x"] < one["x"] + one["width"] < made["width"]
        assert 0 < one["y"] < one["y"] + 19 < made["height"]
        if one["parent"] >= 0:
            parent = made["nodes"][one["parent"]]
            assert one["x"] > parent["x"] + parent["width"]
    assert js("shortened('👍👍👍', 3) + shortened('👍👍👍', 2)") == "👍👍👍👍…"


# What a step shows

STEP = tree_step([-1, 0, 0, 1, 2, 3], [ROOT, CONTEXT, ADJACENCY, CONTEXT, ADJACENCY, CONTEXT], [0, 1, 3])


def states(step: dict, output: list[int]) -> list[str]:
    turn = line(steps=[step], output_ids=output)
    return [node["state"] for node in js("nodesOf(given, given.output_ids, 0, 4)", turn)]


def test_states_of_nodes_and_the_bonus_behind_the_last_accepted_one():
    assert states(STEP, [50, 1, 3, 60]) == ["root", "accepted", "tested", "accepted", "untested", "tested", "bonus"]
    bonus = js("nodesOf(given, given.output_ids, 0, 4)[6]", line(steps=[STEP], output_ids=[50, 1, 3, 60]))
    # The bonus goes on in the row of 3; 5, the first drafted child of 3, gives way to it.
    assert bonus == {"token": 60, "parent": 3, "source": 4, "depth": 3, "row": 0, "state": "bonus"}
    assert js("nodesOf(given, given.output_ids, 0, 4)[5].row", line(steps=[STEP], output_ids=[50, 1, 3, 60])) == 1


def test_a_step_cut_by_a_stop_id_has_no_bonus_and_what_lies_behind_the_cut_is_not_accepted():
    assert states({**STEP, "emitted": 1}, [50, 1]) == ["root", "accepted", "tested", "cut", "untested", "untested"]
    assert states({**STEP, "emitted": 2}, [50, 1, 3])[3] == "accepted"
    assert "bonus" not in states({**STEP, "emitted": 2}, [50, 1, 3])
    cut = line(steps=[{**STEP, "emitted": 1}], output_ids=[50, 1])
    assert [node["token"] for node in js("testedOf(nodesOf(given, given.output_ids, 0, 4))", cut)] == [1, 2, 3]
    assert acceptance_by_source([cut])["context"].tested == 2  # 1 and 3


def test_every_output_token_has_its_origin_and_its_step():
    turn = line(steps=[STEP, {**STEP, "path": [0, 2]}, {**STEP, "path": [0]}], output_ids=range(7))
    turn["steps"]["emitted"] = [3, 2, 1]
    assert js("origins(given, 4)", turn) == [4, CONTEXT, CONTEXT, 4, ADJACENCY, 4, 4]
    assert js("starts(given)", turn) == [1, 4, 6]
    assert js("[0, 1, 3, 4, 5, 6, 99].map((p) => stepAt(given, p))", turn) == [0, 0, 0, 1, 1, 2, 2]
    assert js("origins(given, 4)", line()) == [4]


def test_counts_over_a_recorded_run_are_those_of_the_metrics(tmp_path):
    lines = finished_run(tmp_path).lines()
    trees = "given.flatMap((t) => t.steps.emitted.map((_, k) => nodesOf(t, t.output_ids, k, 4)))"
    all_nodes, all_tested = f"{trees}.flat()", f"{trees}.flatMap(testedOf)"
    nodes, tested = js(f"[{all_nodes}, {all_tested}]", lines)
    assert any(node["state"] == "accepted" for node in nodes)
    for name, counts in acceptance_by_source(lines).items():
        own = [node["state"] for node in nodes if node["source"] == SOURCE_NAMES.index(name)]
        assert len(own) == counts.drafted
        assert sum(node["source"] == SOURCE_NAMES.index(name) for node in tested) == counts.tested
        assert own.count("accepted") == counts.accepted
    for one in lines:
        origin = js("origins(given, 4)", one)
        assert len(origin) == len(one["output_ids"])
