"""The decoding loop: whatever is drafted, the output is plain decoding's, cut where it must be, counted as it was.

The reference never uses a cache: argmax of the plain Hugging Face model over all tokens so far, or COUNTER's +1.
"""

from functools import cache

import numpy as np
import pytest
import torch

from baselines.autoregressive import AutoregressiveDrafter
from baselines.balanced import BalancedDrafter
from baselines.pld import PromptLookupDrafter
from goose import AdjacencyTable, ContextMatcher, GooseDrafter, NonFiniteLogits, Sampling, TreeLM, decode
from goose.engine.tree import DraftTree
from goose.engine.verify import next_tokens
from toy import P0, ScriptedDrafter, chain_of, counter, random_tree, tiny_model

DRAFTERS = {
    "ar": AutoregressiveDrafter,
    "pld hf": PromptLookupDrafter,
    "pld original": lambda: PromptLookupDrafter("original", num_tokens=3),
    "pld vllm": lambda: PromptLookupDrafter("vllm"),
    "goose strict": GooseDrafter,
    "goose elastic": lambda: GooseDrafter(budget_mode="elastic"),
    "goose linear": lambda: GooseDrafter(bypass="linear"),
    "goose no bypass": lambda: GooseDrafter(bypass="off"),
    "goose rho 0": lambda: GooseDrafter(rho=0.0),
    "goose context only": lambda: GooseDrafter(use_adjacency=False),
    "goose adjacency only": lambda: GooseDrafter(use_context=False),
    "goose short n-grams": lambda: GooseDrafter(ContextMatcher((2, 1))),
    "goose unigram, no harvest": lambda: GooseDrafter(table=AdjacencyTable(bigram=False, prefill_harvest=False)),
    "goose warm": lambda: GooseDrafter(table=AdjacencyTable(state="warm")),
    "iso 3": BalancedDrafter,
    "iso 5 elastic": lambda: BalancedDrafter(5, budget_mode="elastic"),
    "random trees": lambda: scripted_random(seed=1, n_nodes=40),
}
PROMPTS = {
    "one token": [3],
    "shorter than every n-gram": [8, 9],
    "nothing matches": list(range(12)),
    "repeats itself": [4, 5, 6, 7, 8, 4, 5, 6, 7, 8, 4, 5, 6],
    "one token over and over": [7] * 9,
}
all_drafters = pytest.mark.parametrize("name", DRAFTERS)


def scripted_random(seed: int, n_nodes: int, vocab_size: int = 64) -> ScriptedDrafter:
    rng = np.random.default_rng(seed)
    return ScriptedDrafter(lambda context, budget: random_tree(rng, context[-1], min(n_nodes, budget), vocab_size))


@cache
def tiny_lm() -> TreeLM:
    """One for all tests, so that every request also meets what the one before left in the cache."""
    return TreeLM(tiny_model())


@cache
@torch.no_grad()
def plain_tiny(prompt: tuple[int, ...], n: int, sampling: Sampling = Sampling()) -> list[int]:  # noqa: B008 (frozen)
    ids = list(prompt)
    for _ in range(n):
        logits = tiny_lm().model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1:]
        ids.append(int(next_tokens(logits, np.array([len(ids)]), sampling)[0]))
    return ids[len(prompt) :]


def run(lm, prompt, drafter, n=24, **options):
    generation = decode(lm, prompt, drafter, max_new_tokens=n, **options)
    assert_consistent(generation, prompt)
    return generation


def assert_consistent(generation, prompt) -> None:
    """Every step column has one entry a step, and they tell one story."""
    steps, out = generation.steps, generation.output_ids
    assert {len(column) for column in vars(steps).values()} == {len(steps)}
    assert 1 + sum(steps.emitted) == len(out)  # prefill gives the first token and is no step
    done = 1
    for i, (tree, path, emitted) in enumerate(zip(steps.trees, steps.paths, steps.emitted, strict=True)):
        assert steps.context[i] == len(prompt) + done - 1  # committed: all of the context but its last token
        assert tree.tokens[0] == out[done - 1]
        assert tree.parents[path].tolist() == [-1, *path[:-1]]
        assert 1 <= emitted <= len(path)
        assert emitted == len(path) or i == len(steps) - 1  # only the last step is cut
        n_accepted = min(emitted, len(path) - 1)
        assert out[done : done + n_accepted] == tree.tokens[path[1 : n_accepted + 1]].tolist()
        done += emitted
    times = [v for name, column in vars(steps).items() if name.endswith("_s") for v in column]
    assert min([*times, generation.prefill_s, generation.decode_s, generation.begin_s]) >= 0
    assert generation.begin_s <= generation.decode_s


# --- the draft never changes the output


@all_drafters
@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_every_drafter_gives_plain_decodings_output(name, prompt):
    generation = run(tiny_lm(), prompt, DRAFTERS[name](), 32)
    assert generation.output_ids == plain_tiny(tuple(prompt), 32)
    assert generation.stop_reason == "length"


@all_drafters
@pytest.mark.parametrize("node_budget", [1, 2, 3, 200])
def test_every_drafter_keeps_to_any_budget(name, node_budget):
    drafter = DRAFTERS[name]()
    generation = run(tiny_lm(), PROMPTS["repeats itself"], drafter, node_budget=node_budget)
    assert generation.output_ids == plain_tiny(tuple(PROMPTS["repeats itself"]), 24)
    assert max(tree.n_nodes for tree in generation.steps.trees) <= node_budget + drafter.overdraft


@all_drafters
@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("temperature", [0.5, 1.5])
def test_sampling_gives_plain_sampled_decodings_tokens_under_the_same_seed(name, temperature, seed):
    sampling = Sampling(temperature * 8, seed)  # TINY's logits are large
    expected = plain_tiny(tuple(P0), 32, sampling)
    assert expected != plain_tiny(tuple(P0), 32)
    assert run(tiny_lm(), P0, DRAFTERS[name](), 32, sampling=sampling).output_ids == expected


@all_drafters
def test_on_counter_every_drafter_counts_and_the_lookups_are_not_idle(name):
    generation = run(counter(), P0, DRAFTERS[name](), 40)
    assert generation.output_ids == [t % 64 for t in range(12, 52)]
    if name not in ("ar", "random trees", "goose unigram, no harvest"):
        assert max(generation.steps.emitted) >= 3


@pytest.mark.parametrize("seed", range(12))
def test_random_trees_change_nothing(seed):
    prompt = np.random.default_rng(seed).integers(64, size=1 + seed).tolist()
    assert run(tiny_lm(), prompt, scripted_random(seed, 64), 20).output_ids == plain_tiny(tuple(prompt), 20)
    many = run(counter(8), [seed % 8], scripted_random(seed, 60, 8), 64)  # few tokens: many random nodes are right
    assert many.output_ids == [(seed + 1 + i) % 8 for i in range(64)]
    assert max(many.steps.emitted) > 1


def around_the_truth(truth: list[int], n_prompt: int, n_right: int, order: int):
    """Trees that hold `n_right` right tokens, then wrong ones, with a decoy beside and below every node."""

    def propose(context, budget) -> DraftTree:
        tokens, parents, spine = [context[-1]], [-1], 0
        for i, right in enumerate(truth[len(context) - n_prompt :][:8]):
            token = right if i < n_right else (right + 1) % 64
            pair = [token, (token + 2) % 64][::order]
            new = len(tokens)
            tokens += pair
            parents += [spine, spine]
            spine = new + pair.index(token)
        return DraftTree.from_lists(tokens, parents)

    return ScriptedDrafter(propose)


@pytest.mark.parametrize("order", [1, -1], ids=["decoy second", "decoy first"])
@pytest.mark.parametrize("n_right", [0, 1, 4, 8], ids=lambda n: f"{n} right")
def test_adversarial_and_perfect_drafts_change_nothing_and_are_accepted_to_the_token(n_right, order):
    for lm, truth in ((tiny_lm(), plain_tiny(tuple(P0), 100)), (counter(), [t % 64 for t in range(12, 112)])):
        generation = run(lm, P0, around_the_truth(truth, len(P0), n_right, order), 91)
        assert generation.output_ids == truth[:91]
        assert generation.steps.emitted == [n_right + 1] * (90 // (n_right + 1))


@pytest.mark.parametrize(("shift", "emitted"), [(1, [1, 2, 4, 6]), (2, [1, 1, 1, 1])], ids=["right", "all wrong"])
def test_no_token_is_doubled_or_dropped_at_the_accept_boundary(shift, emitted):
    """Draft lengths 0, 1, 3, 5 in turn."""
    lengths = iter([0, 1, 3, 5] * 16)
    drafter = ScriptedDrafter(lambda c, b: chain_of(c, [(c[-1] + shift + i) % 64 for i in range(next(lengths))], b))
    generation = run(counter(), P0, drafter, 64)
    assert generation.output_ids == [(12 + i) % 64 for i in range(64)]
    assert generation.steps.emitted[:4] == emitted


@pytest.mark.parametrize("n_right", [0, 4], ids=["none accepted", "all accepted"])
def test_after_every_step_all_but_the_newest_token_is_committed(n_right):
    lm, seen = counter(), []

    def propose(context, budget):
        seen.append((lm.n_committed, lm.committed == context[:-1], len(context)))
        return chain_of(context, [(context[-1] + 1 + i + (n_right == 0)) % 64 for i in range(4)], budget)

    run(lm, P0, ScriptedDrafter(propose), 20)
    assert all(n == length - 1 and same for n, same, length in seen)


@all_drafters
def test_the_request_before_is_not_seen(name):
    """A, B, A through one drafter and one TreeLM; warm drafters may draft differently, not decode so."""
    drafter, a, b = DRAFTERS[name](), PROMPTS["repeats itself"], list(range(40, 60)) * 3
    first, _, again = (run(tiny_lm(), prompt, drafter, 24) for prompt in (a, b, a))
    assert first.output_ids == again.output_ids
    if name not in ("goose warm", "random trees"):
        shapes = [[(t.tokens.tolist(), t.parents.tolist()) for t in g.steps.trees] for g in (first, again)]
        assert shapes[0] == shapes[1]
        assert (first.steps.emitted, first.steps.paths) == (again.steps.emitted, again.steps.paths)


# --- stopping


def five_right() -> ScriptedDrafter:
    return ScriptedDrafter(lambda c, b: chain_of(c, [(c[-1] + 1 + i) % 64 for i in range(5)], b))


@pytest.mark.parametrize(
    ("stop_ids", "limit", "expected", "reason"),
    [
        ([14], 12, [12, 13, 14], "stop"),
        ([14, 60], 12, [12, 13, 14], "stop"),
        ({20}, 12, [*range(12, 21)], "stop"),
        ([12], 12, [12], "stop"),  # the first token
        ([18], 12, [*range(12, 19)], "stop"),  # the bonus
        *[([], n, [*range(12, 12 + n)], "length") for n in (1, 3, 5, 8, 12)],  # no EOS at all
        ([14], 3, [12, 13, 14], "stop"),  # both at once
        ([14], 2, [12, 13], "length"),
    ],
)
@pytest.mark.parametrize("drafter", [five_right, *DRAFTERS.values()], ids=["five right", *DRAFTERS])
def test_a_stop_id_or_the_limit_anywhere_in_a_block_ends_the_output_there(drafter, stop_ids, limit, expected, reason):
    generation = run(counter(), P0, drafter(), limit, stop_ids=stop_ids)
    assert (generation.output_ids, generation.stop_reason) == (expected, reason)


def test_what_lies_behind_a_stop_id_is_not_emitted():
    """The step verifies [13, 14, stop 15, 16, 17, bonus 18] and emits 3."""
    generation = run(counter(), P0, five_right(), 30, stop_ids=[15])
    assert generation.steps.paths == [[0, 1, 2, 3, 4, 5]]
    assert generation.steps.emitted == [3]


@pytest.mark.parametrize("n_prompt", [28, 30, 31])
@pytest.mark.parametrize("drafter", [five_right, *DRAFTERS.values()], ids=["five right", *DRAFTERS])
def test_no_position_beyond_the_models_last_is_used(drafter, n_prompt):
    lm = counter(max_positions=32)
    generation = run(lm, list(range(n_prompt)), drafter(), 12)
    assert generation.output_ids == list(range(n_prompt, 32))
    assert generation.stop_reason == "positions"
    assert lm.largest_position < 32
    small = TreeLM(tiny_model(max_positions=32))
    prompt = list(range(n_prompt))
    assert run(small, prompt, drafter(), 12).output_ids == plain_tiny(tuple(prompt), 32 - n_prompt)


# --- mistakes and failures


@pytest.mark.parametrize(
    "prompt", [P0, tuple(P0), np.array(P0), torch.tensor(P0), torch.tensor([P0]), [np.int64(t) for t in P0]], ids=type
)
def test_a_prompt_may_come_in_any_form_and_is_not_changed(prompt):
    assert decode(tiny_lm(), prompt, GooseDrafter(), max_new_tokens=24).output_ids == plain_tiny(tuple(P0), 24)
    assert np.asarray(prompt).reshape(-1).tolist() == P0


@pytest.mark.parametrize("prompt", [[], (), torch.tensor([], dtype=torch.long), torch.zeros(1, 0, dtype=torch.long)])
def test_an_empty_prompt_is_an_error(prompt):
    with pytest.raises(ValueError, match="the prompt is empty"):
        decode(tiny_lm(), prompt, GooseDrafter())


def test_batches_and_senseless_limits_are_refused():
    with pytest.raises(ValueError, match="batch size must be 1, got 2 sequences"):
        decode(tiny_lm(), torch.tensor([P0, P0]), GooseDrafter())
    with pytest.raises(ValueError, match="max_new_tokens must be a whole number >= 1, got 0"):
        decode(tiny_lm(), P0, GooseDrafter(), max_new_tokens=0)
    with pytest.raises(ValueError, match=r"max_new_tokens must be a whole number >= 1, got 2\.5"):
        decode(tiny_lm(), P0, GooseDrafter(), max_new_tokens=2.5)
    with pytest.raises(ValueError, match="32 tokens leave no room in the model's 32 positions"):
        decode(counter(max_positions=32), [1] * 32, GooseDrafter())
    for prompt in ([[1, 2], [3, 4]], [[1], [2, 3]], [0.5], [True], torch.ones(1, 2, 3, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"batch size must be 1|whole numbers of shape \[L\] or \[1, L\]"):
            decode(tiny_lm(), prompt, GooseDrafter())


@pytest.mark.parametrize("token", [-1, 64])
def test_ids_outside_the_vocabulary_are_refused_in_prompts_and_drafts(token):
    with pytest.raises(ValueError, match=f"the prompt has id {token}, and the model's vocabulary is 0 to 63"):
        decode(tiny_lm(), [1, token], GooseDrafter())
    with pytest.raises(ValueError, match=f"the draft tree has id {token}"):
        decode(tiny_lm(), P0, ScriptedDrafter(lambda c, b: chain_of(c, [token], b)))


def test_stop_ids_may_come_as_a_tensor():
    assert decode(counter(), P0, GooseDrafter(), stop_ids=torch.tensor([14])).output_ids == [12, 13, 14]


@pytest.mark.parametrize("stop_ids", [14, [14.5], "14", None])
def test_stop_ids_that_are_no_ids_are_refused(stop_ids):
    with pytest.raises(ValueError, match="stop_ids is a collection of whole numbers"):
        decode(counter(), P0, GooseDrafter(), stop_ids=stop_ids)


@pytest.mark.parametrize(
    ("propose", "message"),
    [
        (lambda c, b: chain_of(c, range(b), b + 1), "returned 61 nodes where at most 60 are allowed"),
        (lambda c, b: chain_of([5], [6], b), "root is 5, not the last context token 12"),
    ],
)
def test_a_drafters_mistake_is_an_error(propose, message):
    with pytest.raises(ValueError, match=message):
        decode(counter(), P0, ScriptedDrafter(propose))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("from_length", [1, 30], ids=["in prefill", "in a step"])
def test_a_model_that_breaks_fails_the_request_and_not_the_next(from_length, bad):
    """Non-finite logits fail the prompt."""
    for drafter in (AutoregressiveDrafter(), five_right(), GooseDrafter()):
        lm, healthy = counter(), counter()._next_logits
        lm._next_logits = lambda ids, h=healthy: h(ids) + (bad if len(ids) >= from_length else 0)
        with pytest.raises(NonFiniteLogits, match="non-finite logits"):
            decode(lm, P0, drafter)
        lm._next_logits = healthy
        assert run(lm, P0, drafter, 8).output_ids == [*range(12, 20)]


@pytest.mark.parametrize("harm", [lambda c: c.append(3), lambda c: c.pop(), lambda c: c.__setitem__(-1, 3)])
def test_a_drafter_that_changes_the_context_is_refused(harm):
    def propose(context, budget):
        tree = chain_of(context, [4], budget)
        harm(context)
        return tree

    with pytest.raises(ValueError, match="the drafter changed the context"):
        decode(counter(), P0, ScriptedDrafter(propose), max_new_tokens=8)


def test_what_a_drafter_does_to_its_arguments_reaches_neither_output_nor_record():
    class Vandal(ScriptedDrafter):
        def begin(self, prompt_ids, prefill):
            super().begin(prompt_ids, prefill)
            prompt_ids.clear()

        def observe(self, tree, verdict, scored):
            verdict.path.append(0)

    generation = decode(counter(), P0, Vandal(lambda c, b: chain_of(c, [c[-1] + 1], b)), max_new_tokens=8)
    assert generation.output_ids == list(range(12, 20))
    assert all(path == [0, 1] for path in generation.steps.paths)
