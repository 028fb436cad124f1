"""Trees over a draft model: the output is plain decoding's, a perfect draft is accepted whole, drafts go by name."""

import copy
import warnings

import numpy as np
import pytest
import torch

from baselines.autoregressive import AutoregressiveDrafter
from baselines.opt_tree import OptTreeDrafter
from baselines.sequoia import SequoiaDrafter
from benchmarks.errors import UserError
from benchmarks.models.drafts import DraftCandidates, DraftChoice
from benchmarks.models.load import ModelSpec
from benchmarks.models.tiny import tiny_model as embedded_tiny
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.tree import DRAFT_MODEL
from goose.engine.verify import Sampling
from goose.sources.draft_model import DraftModelCandidates, HeadTrim
from toy import P0, counter, tiny_model

PROMPT = [5, 6, 7, 8, 9, 10, 11, 7, 8, 9, 5, 6, 7]
TARGET = tiny_model()


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


def draft_candidates(model=OTHER, **settings) -> DraftModelCandidates:
    return DraftModelCandidates(TreeLM(model), **settings)


DRAFTS = {"other": lambda: OTHER, "near": lambda: NEAR, "same": lambda: TARGET}
MAKERS = {
    "opt_tree": lambda model: OptTreeDrafter(draft_candidates(model)),
    "opt_tree trimmed": lambda model: OptTreeDrafter(draft_candidates(model, trim=HeadTrim(np.arange(40)))),
    "sequoia": lambda model: SequoiaDrafter([0.6, 0.2, 0.1], candidates=draft_candidates(model)),
}
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
every_draft = pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS.keys())


@every_maker
@every_draft
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_output_is_plain_decodings_at_every_budget(make, draft, temperature):
    lm = TreeLM(TARGET)
    settings = {"max_new_tokens": 24, "sampling": Sampling(temperature, seed=3)}
    plain = decode(lm, PROMPT, AutoregressiveDrafter(), **settings).output_ids
    drafter = make(draft())
    for budget in (1, 2, 3, 16, 60):
        generation = decode(lm, PROMPT, drafter, node_budget=budget, **settings)
        assert generation.output_ids == plain
        assert max(tree.n_nodes for tree in generation.steps.trees) <= budget
        for tree in generation.steps.trees:
            assert set(tree.sources[1:].tolist()) <= {DRAFT_MODEL}


@every_maker
def test_the_output_is_plain_decodings_on_a_target_that_accepts_everything_copied(make):
    plain = decode(counter(), P0, AutoregressiveDrafter(), max_new_tokens=24).output_ids
    assert decode(counter(), P0, make(OTHER), max_new_tokens=24).output_ids == plain


@every_maker
def test_a_request_between_two_equal_ones_changes_nothing(make):
    lm, drafter = TreeLM(TARGET), make(NEAR)

    def run(prompt, drafter):
        generation = decode(lm, prompt, drafter, max_new_tokens=30, node_budget=16)
        steps = generation.steps
        return generation.output_ids, steps.paths, [tree.scores.tolist() for tree in steps.trees]

    first = run(PROMPT, drafter)
    run([9, 8, 7, 9, 8, 7, 40], drafter)
    assert run(PROMPT, drafter) == first == run(PROMPT, make(NEAR))


@pytest.mark.parametrize("budget", [2, 5, 16])
def test_a_perfect_draft_is_accepted_to_its_last_layer(budget):
    lm = TreeLM(TARGET)
    generation = decode(lm, PROMPT, OptTreeDrafter(draft_candidates(TARGET)), max_new_tokens=60, node_budget=budget)
    steps = generation.steps
    for tree, path in zip(steps.trees, steps.paths, strict=True):
        n_greedy = 1  # the draft's first choices that the tree holds in a row
        node = 0
        while (children := np.flatnonzero(tree.parents == node)).size:
            node = int(children[tree.scores[children].argmax()])
            n_greedy += 1
        assert len(path) == n_greedy > 1


def test_a_perfect_chain_emits_all_of_its_budget_every_step():
    drafter = SequoiaDrafter([1.0], candidates=draft_candidates(TARGET), max_levels=6)
    steps = decode(TreeLM(TARGET), PROMPT, drafter, max_new_tokens=60, node_budget=6).steps
    assert [len(path) for path in steps.paths] == [6] * len(steps)
    assert steps.emitted[:-1] == [6] * (len(steps) - 1)


def test_the_draft_scores_every_node_once(monkeypatch):
    """No forward repeats a node of the tree, and only the bonus and the last layer are caught up."""
    source = draft_candidates(TARGET)
    fresh = []
    extend = source.lm.extend

    def counted(tree, first, head=None):
        fresh.append(tree.n_nodes - first)
        return extend(tree, first, head)

    monkeypatch.setattr(source.lm, "extend", counted)
    drafter = SequoiaDrafter([1.0], candidates=source, max_levels=4)
    decode(TreeLM(TARGET), PROMPT, drafter, max_new_tokens=40, node_budget=4)
    assert fresh[:3] == [1, 1, 1]
    assert set(fresh[3::3]) == {2}  # the unscored last node and the bonus, which is the next root
    assert set(fresh[4::3]) == set(fresh[5::3]) == {1}


def test_a_target_with_fewer_rows_than_its_tokenizer_and_the_draft():
    """Tokens were added to the tokenizer, and the target was not resized: the draft must not propose them."""
    target, draft = TreeLM(seeded(2, vocab_size=60)), seeded(1, vocab_size=96)
    with torch.no_grad():
        draft.lm_head.weight[60:] *= 50  # what it likes best
    for settings in ({}, {"ids": np.arange(90)}, {"trim": HeadTrim(np.arange(20, 96))}):
        candidates = draft_candidates(draft, **settings)
        plain = decode(target, PROMPT, AutoregressiveDrafter(), max_new_tokens=16).output_ids
        generation = decode(target, PROMPT, OptTreeDrafter(candidates), max_new_tokens=16, node_budget=12)
        assert generation.output_ids == plain
        assert max(len(tree.tokens) for tree in generation.steps.trees) > 1
    larger = TreeLM(draft)  # the same draft serves a target that has the rows
    wide = decode(larger, PROMPT, OptTreeDrafter(draft_candidates(draft)), max_new_tokens=16, node_budget=12)
    assert max(int(tree.tokens.max()) for tree in wide.steps.trees) >= 60


@every_maker
def test_beyond_the_drafts_positions_decoding_goes_on_without_it(make):
    lm, short = TreeLM(TARGET), seeded(1, max_position_embeddings=24)
    plain = decode(lm, PROMPT, AutoregressiveDrafter(), max_new_tokens=40).output_ids
    drafter = make(short)
    with pytest.warns(UserWarning, match="the draft model has 24 positions") as caught:
        generation = decode(lm, PROMPT, drafter, max_new_tokens=40, node_budget=16)
    assert len(caught) == 1
    with warnings.catch_warnings(action="error"):  # a prompt that is too long for the draft, and no second warning
        assert len(decode(lm, PROMPT * 2, drafter, max_new_tokens=4).output_ids) == 4
    assert generation.output_ids == plain
    assert generation.steps.trees[0].n_nodes > 1
    assert generation.steps.trees[-1].n_nodes == 1


# By name


TINY = ModelSpec("tiny", "tiny")


def test_a_draft_by_name_is_loaded_at_once_and_shared(monkeypatch):
    one, other = DraftCandidates(TINY), DraftCandidates(TINY)
    target = TreeLM(embedded_tiny())
    outputs = []
    for source in (one, other):
        generation = decode(target, [72, 101, 108], OptTreeDrafter(source), max_new_tokens=20, node_budget=8)
        outputs.append(generation.output_ids)
    plain = decode(target, [72, 101, 108], AutoregressiveDrafter(), max_new_tokens=20).output_ids
    assert outputs == [plain, plain]
    assert one._candidates.lm is not other._candidates.lm
    assert one._candidates.lm.model is other._candidates.lm.model
    assert one.unproposable(260).tolist() == [259]


def test_a_folder_drafts_when_its_tokenizer_is_the_targets(tmp_path):
    from benchmarks.models.tiny import tiny_tokenizer

    draft = seeded(1, vocab_size=300)  # padded
    draft.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    source = DraftCandidates(TINY, DraftChoice(path=str(tmp_path)), head_size=None)
    target = TreeLM(embedded_tiny())
    generation = decode(target, [72, 101, 108], OptTreeDrafter(source), max_new_tokens=12, node_budget=20)
    assert (
        generation.output_ids == decode(target, [72, 101, 108], AutoregressiveDrafter(), max_new_tokens=12).output_ids
    )
    assert max(int(tree.tokens.max()) for tree in generation.steps.trees) < 259
    assert source.unproposable(300).tolist() == list(range(259, 300))


def test_a_folder_with_another_tokenizer_is_refused(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    seeded(1, vocab_size=259).save_pretrained(tmp_path)
    core = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=core).save_pretrained(tmp_path)
    with pytest.raises(
        UserError, match=r"cannot draft for tiny: .* ids mean different tokens .*target's own tokenizer"
    ):
        DraftCandidates(TINY, DraftChoice(path=str(tmp_path)))
