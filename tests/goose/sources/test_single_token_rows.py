"""The rows of single tokens: how they are made, kept, and brought to drafters."""

import numpy as np
import pytest
import torch

from benchmarks.models.single_token_rows import kept_rows, knowing
from goose.drafters.goose import GooseDrafter
from goose.drafters.goose_opt import GooseOptDrafter
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.verify import top_k_rows
from goose.sources.evidence import Evidence
from goose.sources.single_token_rows import rows_alone
from toy import counter, tiny_model

K = 5


def newline(text: str) -> dict[str, list[int]]:
    """A tokenizer whose line's end is two ids."""
    assert text == "\n"
    return {"input_ids": [3, 7]}


@pytest.mark.parametrize("line_end", [[7], [3, 7]])
def test_a_row_is_what_a_plain_forward_says_behind_the_line_end(line_end, monkeypatch):
    monkeypatch.setattr("goose.sources.single_token_rows._WIDTH", 10)
    model, told = tiny_model(), []
    ids, scores = rows_alone(TreeLM(model), line_end, 64, K, told.append)
    assert told == [10, 20, 30, 40, 50, 60, 64]
    assert (ids.shape, ids.dtype, scores.shape, scores.dtype) == ((64, K), np.int64, (64, K), np.float32)
    with torch.no_grad():
        for token in range(64):
            logits = model(torch.tensor([[*line_end, line_end[-1], token]])).logits[0, -1:]
            expected, expected_scores = top_k_rows(logits, K)
            assert ids[token].tolist() == expected[0].tolist()
            assert np.abs(scores[token] - expected_scores[0].numpy()).max() < 1e-3


def test_no_more_rows_than_the_vocabulary_and_none_of_nothing():
    ids, _ = rows_alone(counter(vocab_size=9), [1], 100, 3)
    assert ids[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 0]
    for line_end, n in (([], 5), ([1], 0)):
        with pytest.raises(ValueError, match="n_ids >= 1 tokens behind a line's end"):
            rows_alone(counter(), line_end, n, 3)


def test_rows_are_made_once_for_a_model_and_again_where_the_file_is_torn(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path))
    lm = TreeLM(tiny_model())
    made = kept_rows(lm, newline, 20, K)
    (file,) = (tmp_path / "alone").iterdir()
    monkeypatch.setattr(lm, "score", None)  # from here on there is nothing to make rows with
    for kept, fresh in zip(kept_rows(lm, newline, 20, K), made, strict=True):
        assert (kept == fresh).all()
    others = [(TreeLM(tiny_model("qwen2")), 20, K), (TreeLM(tiny_model()), 21, K), (TreeLM(tiny_model()), 20, K + 1)]
    for other, n_ids, k in others:
        ids, _ = kept_rows(other, newline, n_ids, k)
        assert ids.shape == (n_ids, k)
    assert len(list((tmp_path / "alone").iterdir())) == 4
    file.write_bytes(file.read_bytes()[:100])
    again = kept_rows(TreeLM(tiny_model()), newline, 20, K)
    assert (again[0] == made[0]).all()
    assert len(list((tmp_path / "alone").iterdir())) == 4
    ids, scores = made
    for wrong in [(ids[:, 0], scores[:, 0]), (ids + 64, scores), (ids - 64, scores), (ids, scores * np.nan)]:
        np.savez(file, ids=wrong[0], scores=wrong[1])  # a whole file of something else
        again = kept_rows(TreeLM(tiny_model()), newline, 20, K)
        assert (again[0] == ids).all()


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path / "file"))
    assert kept_rows(TreeLM(tiny_model()), newline, 20, K)[0].shape == (20, K)


def test_drafters_that_want_them_know_them_and_the_output_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path))
    lm = TreeLM(tiny_model())
    makers = {"goose": GooseDrafter, "opt": lambda: GooseOptDrafter(Evidence(K, n_alone=64))}
    informed = knowing(makers, lm, newline)
    assert informed["goose"] is GooseDrafter
    prompt = [5, 6, 7, 8, 5, 6]
    plain = GooseOptDrafter(Evidence(K))
    knows = informed["opt"]()
    generations = [decode(lm, prompt, drafter, max_new_tokens=40, node_budget=12) for drafter in (plain, knows)]
    assert generations[0].output_ids == generations[1].output_ids
    assert [tree.n_nodes for tree in generations[0].steps.trees] != [
        tree.n_nodes for tree in generations[1].steps.trees
    ]
