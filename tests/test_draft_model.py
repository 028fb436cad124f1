"""A draft model as a source: layered scoring against whole trees, its own cache, what it may propose, losslessness."""

import copy

import numpy as np
import pytest
import torch

from baselines.autoregressive import AutoregressiveDrafter
from baselines.opt_tree import OptTreeDrafter
from baselines.sequoia import SequoiaDrafter
from benchmarks.draft import DraftChoice, DraftFiller
from benchmarks.embedded import tiny_model as embedded_tiny
from benchmarks.errors import UserError
from benchmarks.models import ModelSpec
from goose.engine.decode import Prefill, decode
from goose.engine.lm import TreeLM
from goose.engine.tree import DRAFT_MODEL, DraftTree
from goose.engine.verify import Sampling, Scored, Verdict
from goose.sources.draft_model import DraftModelFiller, HeadTrim, shared_ids
from toy import P0, TREE7, TREE7_PROMPT, counter, random_tree, tiny_model

ATTENTIONS = ["grouped", "sdpa", "eager"]
PROMPT = [5, 6, 7, 8, 9, 10, 11, 7, 8, 9, 5, 6, 7]
TARGET = tiny_model()
NO_PREFILL = Prefill(0, frozenset(), lambda k: None)


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


def levels(tree: DraftTree) -> tuple[DraftTree, list[int]]:
    """The tree with its nodes in breadth-first order, and where its layers begin and end."""
    order = np.argsort(tree.depths, kind="stable")
    new = np.empty_like(order)
    new[order] = np.arange(len(order))
    parents = [-1, *(int(new[p]) for p in tree.parents[order][1:])]
    return DraftTree.from_lists(tree.tokens[order].tolist(), parents), np.cumsum(np.bincount(tree.depths)).tolist()


def upper(tree: DraftTree, n: int) -> DraftTree:
    return DraftTree(tree.tokens[:n], tree.parents[:n], tree.sources[:n], tree.scores[:n])


# TreeLM.extend


@pytest.mark.parametrize("buckets", [(), (4, 16)], ids=["exact", "padded"])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_tree_scored_in_layers_equals_the_tree_scored_at_once(family, attention, buckets):
    model = tiny_model(family)
    for seed, size in ((0, 7), (1, 12), (2, 30)):
        tree, ends = levels(random_tree(np.random.default_rng(seed), 8, size, 64))
        whole, layered = (TreeLM(model, attention=attention, buckets=buckets) for _ in range(2))
        for lm in (whole, layered):
            lm.prefill(TREE7_PROMPT, 64)
        expected = whole.score(tree)
        rows = [layered.extend(upper(tree, b), a) for a, b in zip([0, *ends], ends, strict=False)]
        assert (torch.cat(rows) - expected).abs().max() < 1e-4


def test_a_path_of_a_tree_scored_in_layers_is_committed_like_any_other():
    lm = TreeLM(TARGET)
    lm.prefill(TREE7_PROMPT, 64)
    for first, end in ((0, 1), (1, 3), (3, 6), (6, 7)):
        lm.extend(upper(TREE7, end), first)
    lm.commit([0, 2, 5])
    after = lm.score(DraftTree.from_lists([61], [-1]))
    assert (after[0] - plain_logits(TARGET, [*TREE7_PROMPT, 20, 35, 35, 61])[-1]).abs().max() < 1e-4


def test_another_head_sees_the_new_nodes_hidden_states():
    lm = TreeLM(TARGET)
    lm.prefill(TREE7_PROMPT, 64)
    lm.extend(upper(TREE7, 3), 0)
    hidden = lm.extend(TREE7, 3, head=lambda rows: rows)
    assert hidden.shape == (4, 64)
    lm.extend(upper(TREE7, 3), 0)
    with torch.no_grad():
        assert torch.equal(TARGET.lm_head(hidden), lm.extend(TREE7, 3))


def test_more_rows_than_were_reserved_are_refused():
    lm = TreeLM(TARGET)
    lm.prefill(TREE7_PROMPT, 6)
    lm.extend(upper(TREE7, 3), 0)
    with pytest.raises(ValueError, match="9 committed \\+ 7 nodes exceed the cache's 15 rows"):
        lm.extend(TREE7, 3)
    assert lm.score(upper(TREE7, 6)).shape == (6, 64)  # the failed one left nothing in flight


# The filler


def filler(model=OTHER, **settings) -> DraftModelFiller:
    return DraftModelFiller(TreeLM(model), **settings)


def expected_row(model, ids, n: int) -> list[tuple[int, float]]:
    values, best = plain_logits(model, ids)[-1].log_softmax(-1).topk(n)
    return list(zip(best.tolist(), values.tolist(), strict=True))


def same(row, expected) -> bool:
    return [t for t, _ in row] == [t for t, _ in expected] and np.allclose(
        [q for _, q in row], [q for _, q in expected], atol=1e-4
    )


def test_rows_are_the_drafts_own_distribution_whatever_of_a_layer_is_asked_for():
    fill = filler(n_proposed=4)
    fill.begin(PROMPT, NO_PREFILL)
    fill.start([*PROMPT, 33])
    tokens, parents = [33], [-1]
    (row,) = fill.expand(tokens, parents, [0])
    assert same(row, expected_row(OTHER, [*PROMPT, 33], 4))
    tokens += [1, 2, 3]
    parents += [0, 0, 0]
    rows = fill.expand(tokens, parents, [1, 3])  # node 2 is never asked about
    assert same(rows[0], expected_row(OTHER, [*PROMPT, 33, 1], 4))
    assert same(rows[1], expected_row(OTHER, [*PROMPT, 33, 3], 4))
    tokens += [9, 10]
    parents += [3, 1]
    rows = fill.expand(tokens, parents, [4, 5])
    assert same(rows[0], expected_row(OTHER, [*PROMPT, 33, 3, 9], 4))
    assert same(rows[1], expected_row(OTHER, [*PROMPT, 33, 1, 10], 4))


def observed(fill, tokens, parents, path, bonus=0) -> None:
    tree = DraftTree.from_lists(tokens, parents)
    empty = Scored([0] * tree.n_nodes, np.empty((tree.n_nodes, 0)), np.empty((tree.n_nodes, 0)))
    fill.observe(tree, Verdict(path, bonus), empty)


@pytest.mark.parametrize(
    ("path", "n_kept"),
    [([0], 1), ([0, 1], 2), ([0, 2], 1), ([0, 3], 2), ([0, 3, 4], 2)],
    ids=["root", "scored", "unscored", "second scored", "last layer unscored"],
)
def test_accepted_nodes_that_the_draft_scored_are_kept_and_the_rest_is_caught_up(path, n_kept):
    fill = filler(n_proposed=4)
    fill.begin(PROMPT, NO_PREFILL)
    context = [*PROMPT, 33]
    fill.start(context)
    fill.expand([33], [-1], [0])
    tokens, parents = [33, 1, 2, 3], [-1, 0, 0, 0]
    fill.expand(tokens, parents, [1, 3])
    tokens, parents = [*tokens, 9], [*parents, 3]
    observed(fill, tokens, parents, path)
    assert fill.lm.n_committed == len(PROMPT) + n_kept
    context += [*(tokens[node] for node in path[1:]), 44]
    fill.start(context)
    (row,) = fill.expand([44], [-1], [0])
    assert same(row, expected_row(OTHER, context, 4))
    (row,) = fill.expand([44, 7], [-1, 0], [1])
    assert same(row, expected_row(OTHER, [*context, 7], 4))


def test_the_final_tree_may_number_its_nodes_anew():
    fill = filler()
    fill.begin(PROMPT, NO_PREFILL)
    fill.start([*PROMPT, 33])
    fill.expand([33], [-1], [0])
    fill.expand([33, 1, 2, 3], [-1, 0, 0, 0], [1, 2, 3])
    observed(fill, [33, 3], [-1, 0], [0, 1])  # node 3 while it grew
    context = [*PROMPT, 33, 3, 50]
    assert fill.lm.n_committed == len(context) - 1
    fill.start(context)
    assert same(fill.expand([50], [-1], [0])[0], expected_row(OTHER, context, 10))


def test_steps_that_drafted_nothing_are_caught_up_later():
    fill = filler()
    fill.begin(PROMPT, NO_PREFILL)
    context = list(PROMPT)
    for token in (33, 34, 35):
        context.append(token)
        fill.start(context)
        observed(fill, [token], [-1], [0])
    assert fill.lm.n_committed == len(PROMPT)
    assert same(fill.expand([35], [-1], [0])[0], expected_row(OTHER, context, 10))


def test_rows_that_run_out_are_reserved_anew(monkeypatch):
    monkeypatch.setattr("goose.sources.draft_model._ROOM", 3)
    fill = filler()
    fill.begin(PROMPT, NO_PREFILL)
    context = [*PROMPT, 33]
    for _ in range(20):
        fill.start(context)
        row = fill.expand([context[-1]], [-1], [0])[0]
        assert same(row, expected_row(OTHER, context, 10))
        token = row[0][0]
        fill.expand([context[-1], token], [-1, 0], [1])
        observed(fill, [context[-1], token], [-1, 0], [0, 1])
        context += [token, 21]


def test_the_same_step_asked_twice_gives_the_same_tree_to_the_last_bit():
    drafter = OptTreeDrafter(filler(NEAR))
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
    fill = filler(n_proposed=64, trim=HeadTrim.most_frequent([50, 51, 3, 9, 5], 4))
    fill.begin(PROMPT, NO_PREFILL)
    context = [*PROMPT, 33]
    fill.start(context)
    (row,) = fill.expand([33], [-1], [0])
    kept = sorted({50, 51, 3, 9, *PROMPT})
    assert sorted(token for token, _ in row) == kept
    logits = plain_logits(OTHER, context)[-1]
    log_q = dict(zip(kept, logits[kept].log_softmax(-1).tolist(), strict=True))
    assert all(abs(log_q[token] - q) < 1e-4 for token, q in row)
    assert [q for _, q in row] == sorted((q for _, q in row), reverse=True)
    assert fill.unproposable(66).tolist() == [i for i in range(66) if i not in kept]
    fill.begin([1, 2], NO_PREFILL)  # another prompt, other ids
    assert fill.unproposable(64).tolist() == [i for i in range(64) if i not in {50, 51, 3, 9, 1, 2}]


@pytest.mark.parametrize("trim", [None, HeadTrim(np.arange(64))], ids=["whole", "trimmed"])
def test_ids_that_are_not_shared_are_never_proposed(trim):
    allowed = [*range(10), *range(20, 60)]
    fill = filler(n_proposed=64, ids=allowed, trim=trim)
    fill.begin(PROMPT, NO_PREFILL)
    fill.start([*PROMPT, 33])
    (row,) = fill.expand([33], [-1], [0])
    assert sorted(token for token, _ in row) == allowed
    assert np.exp([q for _, q in row]).sum() == pytest.approx(1.0, abs=1e-5)
    assert set(fill.unproposable(64)) == set(range(64)) - set(allowed)


def test_a_token_that_only_the_target_has_is_no_obstacle():
    fill = filler()
    fill.begin([*PROMPT, 70], NO_PREFILL)
    fill.start([*PROMPT, 70, 71])
    assert len(fill.expand([71], [-1], [0])[0]) == 10


def test_a_draft_that_breaks_proposes_nothing():
    broken = copy.deepcopy(OTHER)
    with torch.no_grad():
        broken.lm_head.weight.fill_(torch.nan)
    fill = filler(broken)
    fill.begin(PROMPT, NO_PREFILL)
    fill.start([*PROMPT, 33])
    assert fill.expand([33], [-1], [0]) == [[]]


@pytest.mark.parametrize("n_prompt", [5, 20, 24, 25, 26, 30])
def test_a_draft_with_fewer_positions_than_the_target_falls_silent(n_prompt):
    prompt = (PROMPT * 3)[:n_prompt]
    short = TreeLM(seeded(1, max_positions=25))
    generation = decode(TreeLM(TARGET), prompt, OptTreeDrafter(DraftModelFiller(short)), max_new_tokens=40)
    plain = decode(TreeLM(TARGET), prompt, AutoregressiveDrafter(), max_new_tokens=40)
    assert generation.output_ids == plain.output_ids
    sizes = [tree.n_nodes for tree in generation.steps.trees]
    assert sizes[-1] == 1
    assert (sizes[0] > 1) == (n_prompt < 25)


@pytest.mark.parametrize("n_proposed", [0, -1])
def test_bad_settings_are_refused(n_proposed):
    with pytest.raises(ValueError, match="n_proposed must be >= 1"):
        filler(n_proposed=n_proposed)
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


# Decoding


DRAFTS = {"other": lambda: OTHER, "near": lambda: NEAR, "same": lambda: TARGET}
MAKERS = {
    "opt_tree": lambda model: OptTreeDrafter(filler(model)),
    "opt_tree trimmed": lambda model: OptTreeDrafter(filler(model, trim=HeadTrim(np.arange(40)))),
    "sequoia": lambda model: SequoiaDrafter([0.6, 0.2, 0.1], fill=filler(model)),
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
    generation = decode(lm, PROMPT, OptTreeDrafter(filler(TARGET)), max_new_tokens=60, node_budget=budget)
    steps = generation.steps
    for tree, path in zip(steps.trees, steps.paths, strict=True):
        n_greedy = 1  # the draft's first choices that the tree holds in a row
        node = 0
        while (children := np.flatnonzero(tree.parents == node)).size:
            node = int(children[tree.scores[children].argmax()])
            n_greedy += 1
        assert len(path) == n_greedy > 1


def test_a_perfect_chain_emits_all_of_its_budget_every_step():
    drafter = SequoiaDrafter([1.0], fill=filler(TARGET), max_levels=6)
    steps = decode(TreeLM(TARGET), PROMPT, drafter, max_new_tokens=60, node_budget=6).steps
    assert [len(path) for path in steps.paths] == [6] * len(steps)
    assert steps.emitted[:-1] == [6] * (len(steps) - 1)


def test_the_draft_scores_every_node_once(monkeypatch):
    """No forward repeats a node of the tree, and only the bonus and the last layer are caught up."""
    fill = filler(TARGET)
    fresh = []
    extend = fill.lm.extend

    def counted(tree, first, head=None):
        fresh.append(tree.n_nodes - first)
        return extend(tree, first, head)

    monkeypatch.setattr(fill.lm, "extend", counted)
    drafter = SequoiaDrafter([1.0], fill=fill, max_levels=4)
    decode(TreeLM(TARGET), PROMPT, drafter, max_new_tokens=40, node_budget=4)
    assert fresh[:3] == [1, 1, 1]
    assert set(fresh[3::3]) == {2}  # the unscored last node and the bonus, which is the next root
    assert set(fresh[4::3]) == set(fresh[5::3]) == {1}


# By name


TINY = ModelSpec("tiny", "tiny")


def test_a_draft_by_name_is_loaded_at_once_and_shared(monkeypatch):
    one, other = DraftFiller(TINY), DraftFiller(TINY)
    target = TreeLM(embedded_tiny())
    outputs = []
    for fill in (one, other):
        generation = decode(target, [72, 101, 108], OptTreeDrafter(fill), max_new_tokens=20, node_budget=8)
        outputs.append(generation.output_ids)
    plain = decode(target, [72, 101, 108], AutoregressiveDrafter(), max_new_tokens=20).output_ids
    assert outputs == [plain, plain]
    assert one._filler.lm is not other._filler.lm
    assert one._filler.lm.model is other._filler.lm.model
    assert one.unproposable(260).tolist() == [259]


def test_a_folder_drafts_when_its_tokenizer_is_the_targets(tmp_path):
    from benchmarks.embedded import tiny_tokenizer

    draft = seeded(1, vocab_size=300)  # padded
    draft.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    fill = DraftFiller(TINY, DraftChoice(path=str(tmp_path)), head_size=None)
    target = TreeLM(embedded_tiny())
    generation = decode(target, [72, 101, 108], OptTreeDrafter(fill), max_new_tokens=12, node_budget=20)
    assert (
        generation.output_ids == decode(target, [72, 101, 108], AutoregressiveDrafter(), max_new_tokens=12).output_ids
    )
    assert max(int(tree.tokens.max()) for tree in generation.steps.trees) < 259
    assert fill.unproposable(300).tolist() == list(range(259, 300))


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
        DraftFiller(TINY, DraftChoice(path=str(tmp_path)))
