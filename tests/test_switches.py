"""Every switch of every drafter is read (28). Adding a parameter to a drafter is one line in SWITCHES."""

import inspect
from collections.abc import Callable

import numpy as np
import pytest
import torch

from baselines.adjacency import AdjacencyCandidates
from baselines.balanced import BalancedDrafter, MixedBalancedDrafter
from baselines.opt_tree import OptTreeDrafter
from baselines.pld import PromptLookupDrafter
from baselines.sequoia import SequoiaDrafter
from baselines.suffix import SuffixDrafter
from baselines.token_recycling import TokenRecyclingDrafter
from drafting import run, steep
from goose.drafters.goose import GooseDrafter
from goose.drafters.goose_opt import GooseOptDrafter
from goose.drafters.probabilities import AcceptanceProbabilities
from goose.sources.context import ContextMatcher
from goose.sources.evidence import Evidence
from goose.sources.single_token_rows import make_rows
from goose.sources.transition import AdjacencyTable
from toy import StubLM


def markov() -> StubLM:
    """16 tokens; the next one depends on the last two, so rows differ by pair and greedy text falls into long loops.

    Token 15 is never the next one: a stop id that only prompts hold.
    """
    rng = np.random.default_rng(4)
    by_last, by_pair = rng.normal(0, 2, (16, 16)), rng.normal(0, 1, (16, 16, 16))
    by_last[:, 15] = -100.0

    def next_logits(ids):
        return torch.tensor(by_last[ids[-1]] + by_pair[ids[-2] if len(ids) > 1 else 0, ids[-1]], dtype=torch.float32)

    return StubLM(next_logits, 16)


def goose(context=None, table=None, **settings) -> GooseDrafter:
    """A GOOSE drafter whose sources are given by their own settings."""
    return GooseDrafter(ContextMatcher(**(context or {})), AdjacencyTable(**(table or {})), **settings)


def goose_with_matcher(**settings) -> GooseDrafter:
    return goose(context={"lengths": (2, 1), **settings})


def goose_with_table(**settings) -> GooseDrafter:
    return goose(table=settings)


def sequoia_sized(size: str) -> SequoiaDrafter:
    return SequoiaDrafter([0.6, 0.2, 0.1], size=size, cost={1: 1.0, 60: 9.0} if size == "cost" else None)


def opt_evidence(**settings) -> GooseOptDrafter:
    drafter = GooseOptDrafter(Evidence(**settings), size="budget")
    if drafter.n_single_token_rows:
        rows = make_rows(markov(), [1], drafter.n_single_token_rows, 10)
        drafter.set_single_token_rows(rows.ids, rows.scores)
    return drafter


def opt_chances(**settings) -> GooseOptDrafter:
    return GooseOptDrafter(chances=AcceptanceProbabilities(**settings), size="budget")


def opt_of_budget(**settings) -> GooseOptDrafter:
    return GooseOptDrafter(size="budget", **settings)


def opt_sized(size: str) -> GooseOptDrafter:
    return GooseOptDrafter(size=size, cost=steep if size == "cost" else None)


def opt_by_cost(**settings) -> GooseOptDrafter:
    return GooseOptDrafter(size="cost", **{"cost": steep, **settings})


def table_of(top_k: int) -> Callable[[], AdjacencyTable]:
    return lambda: AdjacencyTable(top_k)


def candidates_of(top_k: int) -> Callable[[], AdjacencyCandidates]:
    return lambda: AdjacencyCandidates(AdjacencyTable(top_k))


VECTOR = {"acceptance": [0.6, 0.2, 0.1]}
BY_COST = {**VECTOR, "size": "cost", "cost": {1: 1.0, 60: 1.1}}

# Whose parameter, what makes a drafter of it, its name, one value, another value, what else is set in both.
SWITCHES = [
    (GooseDrafter, GooseDrafter, "context", lambda: ContextMatcher((2,)), lambda: ContextMatcher((1,)), {}),
    (GooseDrafter, GooseDrafter, "table", lambda: AdjacencyTable(10), lambda: AdjacencyTable(2), {}),
    (GooseDrafter, GooseDrafter, "use_context", True, False, {}),
    (GooseDrafter, GooseDrafter, "use_adjacency", True, False, {}),
    (GooseDrafter, GooseDrafter, "budget_mode", "strict", "elastic", {}),
    (GooseDrafter, GooseDrafter, "bypass", "saturate", "linear", {"max_chain": 20}),
    (GooseDrafter, GooseDrafter, "bypass", "saturate", "off", {}),
    (GooseDrafter, GooseDrafter, "allocation", "harmonic", "linear", {}),
    (GooseDrafter, GooseDrafter, "allocation", "linear", "optimal", {"bypass": "off"}),
    (GooseDrafter, GooseDrafter, "rho", 0.5, 0.0, {}),
    (GooseDrafter, GooseDrafter, "max_depth", 6, 2, {}),
    (GooseDrafter, GooseDrafter, "min_score", 0.01, 0.2, {}),
    (GooseDrafter, GooseDrafter, "max_chain", 100, 22, {}),
    (GooseDrafter, GooseDrafter, "ema_alpha", 0.3, 1.0, {}),
    (GooseDrafter, GooseDrafter, "ema_initial", 0.5, 0.1, {}),
    (GooseDrafter, GooseDrafter, "spine_tiers", (0.15, 0.3, 0.5), (0.1, 0.1, 0.1), {}),
    (ContextMatcher, goose_with_matcher, "lengths", (2, 1), (3,), {}),
    (ContextMatcher, goose_with_matcher, "max_match", 20, 2, {}),
    (ContextMatcher, goose_with_matcher, "long_match", 8, 2, {}),
    (ContextMatcher, goose_with_matcher, "match_policy", "earliest", "latest", {}),
    (ContextMatcher, goose_with_matcher, "match_policy", "earliest", "longest_continuation", {}),
    (ContextMatcher, goose_with_matcher, "match_policy", "latest", "most_frequent", {}),
    (ContextMatcher, goose_with_matcher, "match_policy", "latest", "longest_continuation", {}),
    (ContextMatcher, goose_with_matcher, "consensus", "occurrences", "lengths", {}),
    (AdjacencyTable, goose_with_table, "top_k", 10, 2, {}),
    (AdjacencyTable, goose_with_table, "bigram", True, False, {}),
    (AdjacencyTable, goose_with_table, "prefill_harvest", True, False, {}),
    (AdjacencyTable, goose_with_table, "state", "cold", "warm", {}),
    (PromptLookupDrafter, PromptLookupDrafter, "variant", "hf", "vllm", {}),
    (PromptLookupDrafter, PromptLookupDrafter, "variant", "vllm", "original", {}),
    (PromptLookupDrafter, PromptLookupDrafter, "max_ngram", 3, 1, {}),
    (PromptLookupDrafter, PromptLookupDrafter, "min_ngram", 1, 3, {}),
    (PromptLookupDrafter, PromptLookupDrafter, "num_tokens", 10, 2, {}),
    (BalancedDrafter, BalancedDrafter, "k", 3, 5, {}),
    (BalancedDrafter, BalancedDrafter, "table", lambda: AdjacencyTable(10), lambda: AdjacencyTable(2), {}),
    (BalancedDrafter, BalancedDrafter, "max_depth", 6, 2, {}),
    (BalancedDrafter, BalancedDrafter, "min_score", 0.01, 0.2, {}),
    (BalancedDrafter, BalancedDrafter, "budget_mode", "strict", "elastic", {}),
    (BalancedDrafter, BalancedDrafter, "max_chain", 100, 70, {"budget_mode": "elastic"}),
    (MixedBalancedDrafter, MixedBalancedDrafter, "k", 3, 5, {}),
    (MixedBalancedDrafter, MixedBalancedDrafter, "context", ContextMatcher, lambda: ContextMatcher((1,)), {}),
    (MixedBalancedDrafter, MixedBalancedDrafter, "table", table_of(10), table_of(2), {}),
    (MixedBalancedDrafter, MixedBalancedDrafter, "max_depth", 6, 2, {}),
    (MixedBalancedDrafter, MixedBalancedDrafter, "min_score", 0.01, 0.2, {}),
    (TokenRecyclingDrafter, TokenRecyclingDrafter, "table", table_of(8), table_of(2), {}),
    (TokenRecyclingDrafter, TokenRecyclingDrafter, "template", None, [(0,), (0, 0)], {}),
    (SequoiaDrafter, SequoiaDrafter, "acceptance", [0.6, 0.2, 0.1], [0.3, 0.3, 0.3], {}),
    (SequoiaDrafter, SequoiaDrafter, "candidates", candidates_of(10), candidates_of(2), VECTOR),
    (SequoiaDrafter, SequoiaDrafter, "max_levels", 10, 3, VECTOR),
    (SequoiaDrafter, sequoia_sized, "size", "budget", "cost", {}),
    (SequoiaDrafter, SequoiaDrafter, "cost", {1: 1.0, 60: 1.1}, {1: 1.0, 60: 99.0}, {**VECTOR, "size": "cost"}),
    (SequoiaDrafter, SequoiaDrafter, "layer_cost", 0.0, 5.0, BY_COST),
    (OptTreeDrafter, OptTreeDrafter, "candidates", candidates_of(10), candidates_of(2), {}),
    (OptTreeDrafter, OptTreeDrafter, "delta", 0.0, 5.0, {}),
    (OptTreeDrafter, OptTreeDrafter, "max_depth", 10, 2, {}),
    (SuffixDrafter, SuffixDrafter, "shape", "tree", "chain", {}),
    (SuffixDrafter, SuffixDrafter, "max_match", 24, 1, {}),
    (SuffixDrafter, SuffixDrafter, "max_spec_factor", 4.0, 1.0, {}),
    (SuffixDrafter, SuffixDrafter, "max_spec_offset", 0.0, 9.0, {"max_match": 2}),
    (SuffixDrafter, SuffixDrafter, "min_score", 0.1, 0.9, {}),
    (SuffixDrafter, SuffixDrafter, "state", "cold", "warm", {}),
    (GooseOptDrafter, opt_of_budget, "evidence", Evidence, lambda: Evidence(2), {}),
    (GooseOptDrafter, opt_of_budget, "chances", AcceptanceProbabilities, lambda: AcceptanceProbabilities("none"), {}),
    (GooseOptDrafter, opt_sized, "size", "budget", "cost", {}),
    (GooseOptDrafter, opt_by_cost, "cost", lambda: steep, lambda: lambda n, _: 1 + n / 1000, {}),
    (GooseOptDrafter, opt_by_cost, "host_s", 0.0, 9.0, {}),
    (GooseOptDrafter, opt_by_cost, "rate", "step", "request", {}),
    (Evidence, opt_evidence, "top_k", 10, 2, {}),
    (Evidence, opt_evidence, "state", "cold", "warm", {}),
    (Evidence, opt_evidence, "n_harvested", None, 2, {}),
    (Evidence, opt_evidence, "n_single_token_rows", 0, 12, {}),
    (Evidence, opt_evidence, "all_lengths", True, False, {}),
    (Evidence, opt_evidence, "joint", True, False, {}),
    (AcceptanceProbabilities, opt_chances, "calibration", "online", "prior", {}),
    (AcceptanceProbabilities, opt_chances, "calibration", "prior", "none", {}),
    (AcceptanceProbabilities, opt_chances, "strength", 20.0, 2.0, {}),
]
OWNERS = (
    GooseDrafter, ContextMatcher, AdjacencyTable, PromptLookupDrafter, BalancedDrafter, MixedBalancedDrafter,
    TokenRecyclingDrafter, SequoiaDrafter, OptTreeDrafter, SuffixDrafter, GooseOptDrafter, Evidence,
    AcceptanceProbabilities,
)  # fmt: skip
ELSEWHERE = {
    (SequoiaDrafter, "acceptance_of"),  # changes no tree: said in the table
    (SequoiaDrafter, "acceptance_file"),  # the same vector from a file: test_sequoia.py
    (AcceptanceProbabilities, "prior_file"),  # likewise: test_chances.py
    (GooseOptDrafter, "fill"),  # a draft model: test_optimal.py
    (GooseOptDrafter, "draft_nodes"),
    (GooseOptDrafter, "draft_depth"),
    (GooseOptDrafter, "line_end"),  # asks the model itself: test_single_token_rows.py
}


# Many loose repetitions, then one short prompt that every rule sees the end of; 15 is the stop id.
PROMPTS = [np.random.default_rng(0).choice([*range(15), 15, 15], 150).tolist(), [1, 2, 3, 1, 2, 4, 1, 2, 4, 9, 1, 2]]


def test_every_parameter_is_in_the_list_of_switches():
    for owner in OWNERS:
        elsewhere = {name for of, name in ELSEWHERE if of is owner}
        listed = {name for of, _, name, *_ in SWITCHES if of is owner} | elsewhere
        assert listed == set(inspect.signature(owner).parameters)


@pytest.mark.parametrize(
    ("owner", "make", "name", "value", "other", "rest"),
    SWITCHES,
    ids=[f"{of.__name__}.{name}" for of, _, name, *_ in SWITCHES],
)
def test_flipping_a_switch_changes_the_trees_and_not_the_output(owner, make, name, value, other, rest):
    def trace(setting):
        drafter = make(**{name: setting() if callable(setting) else setting, **rest})
        requests = [run(markov(), prompt, drafter, max_new_tokens=60, stop_ids=[15]) for prompt in PROMPTS]
        return zip(*requests, strict=True)

    outputs, trees = trace(value)
    other_outputs, other_trees = trace(other)
    assert outputs == other_outputs
    assert trees != other_trees
