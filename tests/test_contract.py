"""What every drafter owes the loop (9, 10, 12, 13). Adding a drafter to the contract is one line in DRAFTERS."""

import pytest

from baselines.autoregressive import AutoregressiveDrafter
from baselines.balanced import BalancedDrafter, MixedBalancedDrafter
from baselines.opt_tree import OptTreeDrafter
from baselines.pld import PromptLookupDrafter
from baselines.sequoia import SequoiaDrafter
from baselines.suffix import SuffixDrafter
from baselines.token_recycling import TokenRecyclingDrafter
from drafting import columns, run, steep
from goose.drafters.goose import GooseDrafter
from goose.drafters.goose_opt import GooseOptDrafter
from goose.drafters.probabilities import AcceptanceProbabilities
from goose.engine.lm import TreeLM
from goose.engine.tree import DraftTree
from goose.engine.verify import Sampling
from goose.sources.context import ContextMatcher
from goose.sources.draft_model import DraftModelCandidates
from goose.sources.evidence import Evidence
from goose.sources.transition import AdjacencyTable
from toy import P0, counter, tiny_model

DRAFTERS = {
    "ar": AutoregressiveDrafter,
    "pld hf": lambda: PromptLookupDrafter("hf"),
    "pld original": lambda: PromptLookupDrafter("original"),
    "pld vllm": lambda: PromptLookupDrafter("vllm"),
    "goose strict": GooseDrafter,
    "goose elastic": lambda: GooseDrafter(budget_mode="elastic"),
    "goose linear": lambda: GooseDrafter(bypass="linear"),
    "goose no bypass": lambda: GooseDrafter(bypass="off"),
    "goose linear allocation": lambda: GooseDrafter(allocation="linear"),
    "goose optimal allocation": lambda: GooseDrafter(allocation="optimal"),
    "goose context only": lambda: GooseDrafter(use_adjacency=False),
    "goose adjacency only": lambda: GooseDrafter(use_context=False),
    "goose no bigram": lambda: GooseDrafter(table=AdjacencyTable(bigram=False)),
    "goose no harvest": lambda: GooseDrafter(table=AdjacencyTable(prefill_harvest=False)),
    "goose warm": lambda: GooseDrafter(table=AdjacencyTable(state="warm")),
    "goose one-token n-grams": lambda: GooseDrafter(ContextMatcher((1,)), budget_mode="elastic"),
    "iso 3": lambda: BalancedDrafter(3),
    "iso 5": lambda: BalancedDrafter(5),
    "iso 3 elastic": lambda: BalancedDrafter(3, budget_mode="elastic"),
    "iso 5 elastic": lambda: BalancedDrafter(5, budget_mode="elastic"),
    "iso mixed": MixedBalancedDrafter,
    "tr": TokenRecyclingDrafter,
    "sequoia": lambda: SequoiaDrafter([0.6, 0.2, 0.1]),
    "opt tree": OptTreeDrafter,
    "suffix tree": SuffixDrafter,
    "suffix chain": lambda: SuffixDrafter("chain"),
    "suffix warm": lambda: SuffixDrafter(state="warm"),
    "goose opt": lambda: GooseOptDrafter(size="budget"),
    "goose opt by cost": lambda: GooseOptDrafter(size="cost", cost=steep),
    "goose opt by cost, a request's rate": lambda: GooseOptDrafter(size="cost", cost=steep, rate="request"),
    "goose opt at face value": lambda: GooseOptDrafter(chances=AcceptanceProbabilities("none"), size="budget"),
    "goose opt, sources apart": lambda: GooseOptDrafter(Evidence(joint=False, all_lengths=False), size="budget"),
    "goose opt warm": lambda: GooseOptDrafter(Evidence(state="warm"), size="budget"),
}
# Over a draft model: of TINY, of which it is a perfect copy, and of COUNTER, of which it knows nothing.
DRAFT = tiny_model()
OVER_A_DRAFT = {
    "opt tree draft": lambda: OptTreeDrafter(DraftModelCandidates(TreeLM(DRAFT))),
    "sequoia draft": lambda: SequoiaDrafter([0.6, 0.2, 0.1], candidates=DraftModelCandidates(TreeLM(DRAFT))),
    "goose opt draft": lambda: GooseOptDrafter(fill=DraftModelCandidates(TreeLM(DRAFT)), size="budget"),
}
WARM = {"goose warm", "suffix warm", "goose opt warm"}


ALL = {**DRAFTERS, **OVER_A_DRAFT}
every_drafter = pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())
every_drafter_of_any_vocabulary = pytest.mark.parametrize("make", DRAFTERS.values(), ids=DRAFTERS.keys())
COLD = {name: make for name, make in ALL.items() if name not in WARM}
every_cold_drafter = pytest.mark.parametrize("make", COLD.values(), ids=COLD.keys())

REPEATING = [5, 6, 7, 8, 9, 10, 11, 7, 8, 9, 5, 6, 7]
TINY_LM = TreeLM(tiny_model())
TARGETS = {
    "counter": (counter(), P0),
    "tiny": (TINY_LM, REPEATING),
    "tiny, static shapes": (TreeLM(tiny_model(), engine="graph"), REPEATING),
}


class Watched:
    """A drafter, and what the contract says about each call of it."""

    def __init__(self, drafter):
        self.drafter, self.top_k, self.overdraft = drafter, drafter.top_k, drafter.overdraft
        self.n_drafts = self.n_observed = 0

    def begin(self, prompt_ids, prefill):
        before = list(prompt_ids)
        self.drafter.begin(prompt_ids, prefill)
        assert prompt_ids == before

    def draft(self, context, budget):
        before = list(context)
        tree = self.drafter.draft(context, budget)
        assert context == before  # never mutated
        assert tree.n_nodes <= budget + self.overdraft
        assert tree.tokens[0] == context[-1]
        DraftTree.from_lists(*columns(tree))  # raises on equal siblings and on parents out of order
        assert columns(self.drafter.draft(context, budget)) == columns(tree)  # deterministic, whoever asks twice
        self.n_drafts += 1
        return tree

    def observe(self, tree, verdict, scored):
        self.drafter.observe(tree, verdict, scored)
        self.n_observed += 1


@every_drafter
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("target", TARGETS)
def test_output_equals_plain_decodings_at_every_budget(make, target, temperature):
    lm, prompt = TARGETS[target]
    settings = {"sampling": Sampling(temperature, seed=3), "max_new_tokens": 24}
    plain, _ = run(lm, prompt, AutoregressiveDrafter(), **settings)
    for budget in (1, 2, 3, 16, 60):
        watched = Watched(make())
        assert run(lm, prompt, watched, node_budget=budget, **settings)[0] == plain
        assert watched.n_observed == watched.n_drafts - 1  # not after the step that ends the request


@every_drafter
def test_a_stop_id_ends_the_output_where_plain_decoding_ends(make):
    for stop_ids in ([14], [14, 60], [20], [12], []):
        plain, _ = run(counter(), P0, AutoregressiveDrafter(), stop_ids=stop_ids)
        assert run(counter(), P0, make(), stop_ids=stop_ids)[0] == plain


@every_cold_drafter
def test_a_request_between_two_equal_ones_changes_nothing(make):
    drafter = make()
    first = run(TINY_LM, REPEATING, drafter)
    run(TINY_LM, [9, 8, 7, 9, 8, 7, 9, 8], drafter)
    assert run(TINY_LM, REPEATING, drafter) == first
    assert run(TINY_LM, REPEATING, make()) == first


@every_drafter
@pytest.mark.parametrize("prompt", [[5], [0], [7, 7], [7] * 30])
def test_a_short_or_uniform_prompt_decodes_like_any_other(make, prompt):
    for lm in (counter(), TINY_LM):
        plain, _ = run(lm, prompt, AutoregressiveDrafter())
        assert run(lm, prompt, Watched(make()))[0] == plain


@every_drafter_of_any_vocabulary
def test_a_vocabulary_smaller_than_the_successors_kept_is_no_obstacle(make):
    for vocab_size in (1, 2, 4):
        lm = counter(vocab_size)
        plain, _ = run(lm, [0], AutoregressiveDrafter())
        assert run(lm, [0], Watched(make()))[0] == plain


@every_drafter
def test_a_tree_never_reaches_past_the_models_last_position(make):
    lm = counter(max_positions=40)
    output, _ = run(lm, P0, make(), max_new_tokens=100)
    assert len(output) == 40 - len(P0)
    assert lm.largest_position < 40
