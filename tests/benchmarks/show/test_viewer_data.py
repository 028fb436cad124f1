"""What the step viewer is given: the recorded columns, texts, and as many prompts as there is room for."""

import json

import pytest

from benchmarks.models.tiny import TINY_EOS
from benchmarks.show.viewer_data import STEP_COLUMNS, Readers, ViewerLimits, compact_json, shown_run
from handmade import failed
from recorded import ASKED, SAID, finished_run

WIDE = ViewerLimits(n_prompts=9, n_bytes=10**9)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("viewer"), repeats=2)


def shown(run, limits=WIDE, lines=None, **header):
    return shown_run({**run.header, **header}, run.lines() if lines is None else lines, Readers(), limits)


def test_the_first_repeats_columns_are_copied_as_recorded(run):
    found = shown(run)
    assert found.notices == []
    assert [p["id"] for p in found.data["prompts"]] == ["T/0", "T/1", "T/2"]
    recorded = {(x["prompt_id"], x["method"]): x for x in run.lines() if x["repeat"] == 0}
    for prompt in found.data["prompts"]:
        assert [turn["method"] for turn in prompt["turns"]] == ["ar", "goose"]  # the header's order, not the clock's
        for turn in prompt["turns"]:
            line = recorded[prompt["id"], turn["method"]]
            assert turn["steps"] == {name: line["steps"][name] for name in STEP_COLUMNS}
            assert prompt["outputs"][turn["output"]]["ids"] == line["output_ids"]


def test_texts_are_the_prompts_and_the_outputs_and_equal_outputs_are_kept_once(run):
    for asked, prompt in zip(ASKED, shown(run).data["prompts"], strict=True):
        assert prompt["text"] == asked
        (output,) = prompt["outputs"]
        assert "".join(output["texts"]) == SAID + "<eos>"


def test_the_vocabulary_is_what_trees_and_outputs_use(run):
    data = shown(run).data
    steps = [turn["steps"] for prompt in data["prompts"] for turn in prompt["turns"]]
    drafted = {token for columns in steps for tokens in columns["tokens"] for token in tokens}
    assert set(data["vocabulary"]) == drafted | {*SAID.encode(), TINY_EOS}
    assert data["vocabulary"][ord("\n")] == "↵"


def test_whole_prompts_are_left_out_where_there_is_no_room_and_it_is_said(run):
    everything = shown(run)
    sizes = [len(compact_json(prompt)) for prompt in everything.data["prompts"]]
    assert everything.n_bytes == len(compact_json(everything.data)) > sum(sizes)
    assert shown(run, ViewerLimits(2, 10**9)).data["prompts"] == everything.data["prompts"][:2]
    assert shown(run, ViewerLimits(2, 10**9)).notices == []
    short = shown(run, ViewerLimits(9, sum(sizes) - 1))
    assert short.data["prompts"] == everything.data["prompts"][:2]
    assert short.data["n_prompts"] == 3
    (notice,) = short.notices
    assert "has room for 2 of 3 prompts" in notice
    nothing = shown(run, ViewerLimits(9, 10))
    assert (nothing.data, nothing.n_bytes) == (None, 0)
    assert "0 of 3" in nothing.notices[0]
    assert shown(run, ViewerLimits(0, 10**9)).data is None


def test_prompts_of_a_dataset_that_is_gone_or_changed_are_not_guessed(run):
    config = run.header["config"]
    gone = shown(run, config={**config, "dataset": {**config["dataset"], "path": "/nowhere.jsonl"}})
    assert [p["text"] for p in gone.data["prompts"]] == [None] * 3
    assert "its prompts are not available" in gone.notices[0]
    assert "".join(gone.data["prompts"][0]["outputs"][0]["texts"]) == SAID + "<eos>"
    other = [{**line, "prompt_sha256": "f" * 64} if line["prompt_id"] == "T/1" else line for line in run.lines()]
    changed = shown(run, lines=other)
    assert [p["text"] for p in changed.data["prompts"]] == [ASKED[0], None, ASKED[2]]
    assert "1 prompts are rendered differently now and left out" in changed.notices[0]


def test_without_a_tokenizer_ids_are_shown(run):
    config = {**run.header["config"], "model": {"name": "m", "source": "hub", "path": "/nowhere"}}
    found = shown(run, config=config)
    assert "its texts are not available" in found.notices[0]
    assert found.data["prompts"][0]["outputs"][0]["texts"][0] == f" #{ord(SAID[0])}"
    assert found.data["vocabulary"][ord("f")] == f"#{ord('f')}"
    assert found.data["prompts"][0]["text"] is None


def test_a_failed_prompt_is_there_with_its_error(run):
    lines = [x for x in run.lines() if (x["prompt_id"], x["method"]) != ("T/0", "goose")] + [failed("T/0", "goose")]
    turns = shown(run, lines=lines).data["prompts"][0]["turns"]
    assert turns[1] == {"method": "goose", "error": "NonFiniteLogits: nan"}
    assert turns[0]["error"] is None
    json.dumps(turns)
