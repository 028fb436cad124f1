"""Single-token rows: how they are made, kept, and brought to drafters."""

import numpy as np
import pytest
import torch

from benchmarks.models.single_token_rows import kept_rows, with_single_token_rows
from goose.drafters.goose import GooseDrafter
from goose.drafters.goose_opt import GooseOptDrafter
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.verify import top_k_rows
from goose.sources import single_token_rows
from goose.sources.evidence import Evidence
from goose.sources.single_token_rows import make_rows
from toy import counter, tiny_model

K = 5


def newline(text: str) -> dict[str, list[int]]:
    """A tokenizer whose line's end is two ids."""
    assert text == "\n"
    return {"input_ids": [3, 7]}


@pytest.mark.parametrize("line_end", [[7], [3, 7]])
def test_a_row_is_what_a_plain_forward_says_after_the_line_end(line_end, monkeypatch):
    monkeypatch.setattr(single_token_rows, "_WIDTH", 10)
    model, told = tiny_model(), []
    rows = make_rows(TreeLM(model), line_end, 64, K, told.append)
    ids, scores = rows.ids, rows.scores
    assert told == [10, 20, 30, 40, 50, 60, 64]
    assert (ids.shape, ids.dtype, scores.shape, scores.dtype) == ((64, K), np.int64, (64, K), np.float32)
    with torch.no_grad():
        for token in range(64):
            logits = model(torch.tensor([[*line_end, line_end[-1], token]])).logits[0, -1:]
            expected, expected_scores = top_k_rows(logits, K)
            assert ids[token].tolist() == expected[0].tolist()
            assert np.abs(scores[token] - expected_scores[0].numpy()).max() < 1e-3


def test_no_more_rows_than_the_vocabulary_and_none_of_nothing():
    rows = make_rows(counter(vocab_size=9), [1], 100, 3)
    assert rows.ids[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 0]
    for line_end, n in (([], 5), ([1], 0)):
        with pytest.raises(ValueError, match="n_ids >= 1 tokens after a line end"):
            make_rows(counter(), line_end, n, 3)


def test_with_little_time_the_first_rows_are_made_and_the_same(monkeypatch):
    monkeypatch.setattr(single_token_rows, "_FIRST_WIDTH", 4)
    lm = TreeLM(tiny_model())
    few, all_rows = make_rows(lm, [7], 64, K, limit_s=0.0), make_rows(lm, [7], 64, K)
    assert (len(few.ids), len(all_rows.ids)) == (4, 64)
    assert few.ids.tolist() == all_rows.ids[:4].tolist()


def test_rows_are_made_once_for_a_model_and_again_where_the_file_is_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path))
    folder = tmp_path / "single_token_rows"
    lm = TreeLM(tiny_model())
    made = kept_rows(lm, newline, 20, K)
    assert made.is_new
    (file,) = folder.iterdir()
    monkeypatch.setattr(lm, "score", None)  # from here on there is nothing to make rows with
    kept = kept_rows(lm, newline, 20, K)
    assert (kept.is_new, kept.made_s) == (False, made.made_s)
    assert (kept.ids == made.ids).all()
    assert (kept.scores == made.scores).all()
    others = [(TreeLM(tiny_model("qwen2")), 20, K), (TreeLM(tiny_model()), 21, K), (TreeLM(tiny_model()), 20, K + 1)]
    for other, n_ids, k in others:
        assert kept_rows(other, newline, n_ids, k).ids.shape == (n_ids, k)
    assert len(list(folder.iterdir())) == 4
    file.write_bytes(file.read_bytes()[:100])
    assert (kept_rows(TreeLM(tiny_model()), newline, 20, K).ids == made.ids).all()
    assert len(list(folder.iterdir())) == 4
    ids, scores = made.ids, made.scores
    for wrong in [(ids[:, 0], scores[:, 0]), (ids + 64, scores), (ids - 64, scores), (ids, scores * np.nan)]:
        np.savez(file, ids=wrong[0], scores=wrong[1], made_s=1.0)  # a whole file of something else
        again = kept_rows(TreeLM(tiny_model()), newline, 20, K)
        assert again.is_new
        assert (again.ids == ids).all()


def test_a_cache_that_cannot_be_written_is_done_without_and_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(single_token_rows, "_unkept", {})
    rows = kept_rows(TreeLM(tiny_model()), newline, 20, K)
    assert rows.ids.shape == (20, K)
    assert rows.not_kept.startswith(str(tmp_path / "file"))
    assert not kept_rows(TreeLM(tiny_model()), newline, 20, K).is_new  # made once a process all the same


def trees_of(drafter, lm) -> tuple[list[int], list[list[int]]]:
    generation = decode(lm, [5, 6, 7, 8, 5, 6], drafter, max_new_tokens=40, node_budget=12)
    return generation.output_ids, [tree.tokens.tolist() for tree in generation.steps.trees]


def test_drafters_that_want_them_have_them_and_the_output_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path))
    lm = TreeLM(tiny_model())

    def wanting() -> Evidence:
        return Evidence(K, n_single_token_rows=64)

    makers = {
        "goose": GooseDrafter,
        "opt": lambda: GooseOptDrafter(wanting(), size="budget"),
        "none wanted": lambda: GooseOptDrafter(Evidence(K), size="budget"),
    }
    ready, rows = with_single_token_rows(makers, lm, newline)
    assert (ready["goose"], ready["none wanted"]) == (GooseDrafter, makers["none wanted"])
    assert {name: len(own.ids) for name, own in rows.items()} == {"opt": 64}
    without, with_rows = trees_of(makers["none wanted"](), lm), trees_of(ready["opt"](), lm)
    assert without[0] == with_rows[0]
    assert without[1] != with_rows[1]
    # From Python: the line end alone is named, and the drafter asks the model itself.
    by_itself = GooseOptDrafter(wanting(), size="budget", line_end=[3, 7])
    assert trees_of(by_itself, lm) == with_rows
