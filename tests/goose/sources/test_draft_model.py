"""A draft model as a source: its rows, its own cache, what it may propose, and whose vocabulary it must share."""

import copy

import numpy as np
import pytest
import torch

from baselines.autoregressive import AutoregressiveDrafter
from baselines.opt_tree import OptTreeDrafter
from goose.engine.contract import Prefill
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.tree import DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.draft_model import DraftModelCandidates, HeadTrim, shared_ids
from toy import tiny_model

PROMPT = [5, 6, 7, 8, 9, 10, 11, 7, 8, 9, 5, 6, 7]
TARGET = tiny_model()
NO_PREFILL = Prefill(0, frozenset(), lambda k, _: None)


def seeded(seed: int, **overrides) -> torch.nn.Module:
    """TINY with other weights."""
    model = tiny_model(**overrides)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.12)
    return model


def near(seed: int, noise: float) -> torch.nn.Module:
    """TINY with a little noise: it agrees with TINY often and not always."""
    model = copy.deepcopy(TARGET)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=generator) * parameter.abs().mean())
    return model


OTHER, NEAR = seeded(1), near(1, 0.1)


@torch.no_grad()
def plain_logits(model, ids) -> torch.Tensor:
    return model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]


def draft_candidates(model=OTHER, **settings) -> DraftModelCandidates:
    return DraftModelCandidates(TreeLM(model), **settings)


def expected_row(model, ids, n: int) -> list[tuple[int, float]]:
    values, best = plain_logits(model, ids)[-1].log_softmax(-1).topk(n)
    return list(zip(best.tolist(), values.tolist(), strict=True))


def same(row, expected) -> bool:
    return [t for t, _ in row] == [t for t, _ in expected] and np.allclose(
        [q for _, q in row], [q for _, q in expected], atol=1e-4
    )


def test_rows_are_the_drafts_own_distribution_whatever_of_a_layer_is_asked_for():
    source = draft_candidates(n_proposed=4)
    source.begin(PROMPT, NO_PREFILL)
    source.start([*PROMPT, 33])
    tokens, parents = [33], [-1]
    (row,) = source.expand(tokens, parents, [0])
    assert same(row, expected_row(OTHER, [*PROMPT, 33], 4))
    tokens += [1, 2, 3]
    parents += [0, 0, 0]
    rows = source.expand(tokens, parents, [1, 3])  # node 2 is never asked about
    assert same(rows[0], expected_row(OTHER, [*PROMPT, 33, 1], 4))
    assert same(rows[1], expected_row(OTHER, [*PROMPT, 33, 3], 4))
    tokens += [9, 10]
    parents += [3, 1]
    rows = source.expand(tokens, parents, [4, 5])
    assert same(rows[0], expected_row(OTHER, [*PROMPT, 33, 3, 9], 4))
    assert same(rows[1], expected_row(OTHER, [*PROMPT, 33, 1, 10], 4))


def observed(source, tokens, parents, path, bonus=0) -> None:
    tree = DraftTree.from_lists(tokens, parents)
    empty = Scored([0] * tree.n_nodes, np.empty((tree.n_nodes, 0)), np.empty((tree.n_nodes, 0)))
    source.observe(tree, Verdict(path, bonus), empty)


@pytest.mark.parametrize(
    ("path", "n_kept"),
    [([0], 1), ([0, 1], 2), ([0, 2], 1), ([0, 3], 2), ([0, 3, 4], 2)],
    ids=["root", "scored", "unscored", "second scored", "last layer unscored"],
)
def test_accepted_nodes_that_the_draft_scored_are_kept_and_the_rest_is_caught_up(path, n_kept):
    source = draft_candidates(n_proposed=4)
    source.begin(PROMPT, NO_PREFILL)
    context = [*PROMPT, 33]
    source.start(context)
    source.expand([33], [-1], [0])
    tokens, parents = [33, 1, 2, 3], [-1, 0, 0, 0]
    source.expand(tokens, parents, [1, 3])
    tokens, parents = [*tokens, 9], [*parents, 3]
    observed(source, tokens, parents, path)
    assert source.lm.n_committed == len(PROMPT) + n_kept
    context += [*(tokens[node] for node in path[1:]), 44]
    source.start(context)
    (row,) = source.expand([44], [-1], [0])
    assert same(row, expected_row(OTHER, context, 4))
    (row,) = source.expand([44, 7], [-1, 0], [1])
    assert same(row, expected_row(OTHER, [*context, 7], 4))


def test_the_final_tree_may_number_its_nodes_anew():
    source = draft_candidates()
    source.begin(PROMPT, NO_PREFILL)
    source.start([*PROMPT, 33])
    source.expand([33], [-1], [0])
    source.expand([33, 1, 2, 3], [-1, 0, 0, 0], [1, 2, 3])
    observed(source, [33, 3], [-1, 0], [0, 1])  # node 3 while it grew
    context = [*PROMPT, 33, 3, 50]
    assert source.lm.n_committed == len(context) - 1
    source.start(context)
    assert same(source.expand([50], [-1], [0])[0], expected_row(OTHER, context, 10))


def test_steps_that_drafted_nothing_are_caught_up_later():
    source = draft_candidates()
    source.begin(PROMPT, NO_PREFILL)
    context = list(PROMPT)
    for token in (33, 34, 35):
        context.append(token)
        source.start(context)
        observed(source, [token], [-1], [0])
    assert source.lm.n_committed == len(PROMPT)
    assert same(source.expand([35], [-1], [0])[0], expected_row(OTHER, context, 10))


def test_rows_that_run_out_are_reserved_anew(monkeypatch):
    monkeypatch.setattr("goose.sources.draft_model._ROOM", 3)
    source = draft_candidates()
    source.begin(PROMPT, NO_PREFILL)
    context = [*PROMPT, 33]
    for _ in range(20):
        source.start(context)
        row = source.expand([context[-1]], [-1], [0])[0]
        assert same(row, expected_row(OTHER, context, 10))
        token = row[0][0]
        source.expand([context[-1], token], [-1, 0], [1])
        observed(source, [context[-1], token], [-1, 0], [0, 1])
        context += [token, 21]


def test_the_same_step_asked_twice_gives_the_same_tree_to_the_last_bit():
    drafter = OptTreeDrafter(draft_candidates(NEAR))
    trees = []

    class Twice:
        top_k, overdraft = drafter.top_k, 0
        begin, observe = drafter.begin, drafter.observe

        def draft(self, context, budget):
            trees.append([drafter.draft(context, budget) for _ in range(2)])
            return trees[-1][1]

    decode(TreeLM(TARGET), PROMPT, Twice(), max_new_tokens=30, node_budget=12)
    assert len(trees) > 3
    for one, other in trees:
        for column in ("tokens", "parents", "scores"):
            assert np.array_equal(getattr(one, column), getattr(other, column))


# What it may propose


def test_a_trimmed_head_proposes_its_ids_and_the_prompts_own():
    source = draft_candidates(n_proposed=64, trim=HeadTrim.most_frequent([50, 51, 3, 9, 5], 4))
    source.begin(PROMPT, NO_PREFILL)
    context = [*PROMPT, 33]
    source.start(context)
    (row,) = source.expand([33], [-1], [0])
    kept = sorted({50, 51, 3, 9, *PROMPT})
    assert sorted(token for token, _ in row) == kept
    logits = plain_logits(OTHER, context)[-1]
    log_q = dict(zip(kept, logits[kept].log_softmax(-1).tolist(), strict=True))
    assert all(abs(log_q[token] - q) < 1e-4 for token, q in row)
    assert [q for _, q in row] == sorted((q for _, q in row), reverse=True)
    assert source.unproposable(66).tolist() == [i for i in range(66) if i not in kept]
    source.begin([1, 2], NO_PREFILL)  # another prompt, other ids
    assert source.unproposable(64).tolist() == [i for i in range(64) if i not in {50, 51, 3, 9, 1, 2}]


@pytest.mark.parametrize("trim", [None, HeadTrim(np.arange(64))], ids=["whole", "trimmed"])
def test_ids_that_are_not_shared_are_never_proposed(trim):
    allowed = [*range(10), *range(20, 60)]
    source = draft_candidates(n_proposed=64, ids=allowed, trim=trim)
    source.begin(PROMPT, NO_PREFILL)
    source.start([*PROMPT, 33])
    (row,) = source.expand([33], [-1], [0])
    assert sorted(token for token, _ in row) == allowed
    assert np.exp([q for _, q in row]).sum() == pytest.approx(1.0, abs=1e-5)
    assert set(source.unproposable(64)) == set(range(64)) - set(allowed)


def test_a_token_that_only_the_target_has_is_no_obstacle():
    source = draft_candidates()
    source.begin([*PROMPT, 70], NO_PREFILL)
    source.start([*PROMPT, 70, 71])
    assert len(source.expand([71], [-1], [0])[0]) == 10


def test_a_draft_that_breaks_proposes_nothing():
    broken = copy.deepcopy(OTHER)
    with torch.no_grad():
        broken.lm_head.weight.fill_(torch.nan)
    source = draft_candidates(broken)
    source.begin(PROMPT, NO_PREFILL)
    source.start([*PROMPT, 33])
    assert source.expand([33], [-1], [0]) == [[]]


@pytest.mark.parametrize("n_prompt", [5, 20, 24, 25, 26, 30])
def test_a_draft_with_fewer_positions_than_the_target_falls_silent(n_prompt):
    prompt = (PROMPT * 3)[:n_prompt]
    short = TreeLM(seeded(1, max_positions=25))
    generation = decode(TreeLM(TARGET), prompt, OptTreeDrafter(DraftModelCandidates(short)), max_new_tokens=40)
    plain = decode(TreeLM(TARGET), prompt, AutoregressiveDrafter(), max_new_tokens=40)
    assert generation.output_ids == plain.output_ids
    sizes = [tree.n_nodes for tree in generation.steps.trees]
    assert sizes[-1] == 1
    assert (sizes[0] > 1) == (n_prompt < 25)


@pytest.mark.parametrize("n_proposed", [0, -1])
def test_bad_settings_are_refused(n_proposed):
    with pytest.raises(ValueError, match="n_proposed must be >= 1"):
        draft_candidates(n_proposed=n_proposed)
    with pytest.raises(ValueError, match="keeps at least one id"):
        HeadTrim.most_frequent([1, 2], n_proposed)


# Vocabularies


class Vocabulary:
    """What shared_ids asks of a tokenizer."""

    def __init__(self, words, added=()):
        self.words, self.added = list(words), list(added)

    def get_vocab(self):
        return {word: i for i, word in enumerate([*self.words, *self.added])}

    def get_added_vocab(self):
        return {word: len(self.words) + i for i, word in enumerate(self.added)}


def test_padding_is_allowed_and_never_proposed():
    one, other = Vocabulary("abcd"), Vocabulary("abcd")
    assert shared_ids(6, 4, one, other).tolist() == shared_ids(4, 8, one, other).tolist() == [0, 1, 2, 3]
    assert shared_ids(6, 6).tolist() == list(range(6))


def test_another_vocabulary_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"the draft has 6 ids and the target 8, and without both tokenizers .*own"):
        shared_ids(6, 8)
    with pytest.raises(ValueError, match=r"2 ids mean different tokens .*\(id 2: 'c' and 'd'\); use a draft of the ta"):
        shared_ids(4, 4, Vocabulary("abcd"), Vocabulary("abdc"))
    with pytest.raises(ValueError, match=r"1 ids mean different .*\(id 3: 'd' and None\)"):
        shared_ids(4, 4, Vocabulary("abcd"), Vocabulary("abc"))


def test_control_tokens_of_another_release_are_left_out():
    one, other = Vocabulary("abc", ["<s>", "<pad>", "<x>"]), Vocabulary("abc", ["<s>", "<reserved>"])
    assert shared_ids(6, 6, one, other).tolist() == [0, 1, 2, 3]
