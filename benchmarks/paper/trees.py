"""Tables 3 to 6: acceptance of the two sources, topology at equal budget, ablations, synergy."""

from collections.abc import Sequence

import pandas as pd

from benchmarks.metrics import NodeCounts, tree_metrics
from benchmarks.paper import layout
from benchmarks.paper.compare import side_by_side
from benchmarks.paper.layout import PaperTable, by_dataset, cell, facts, speed_up_text
from benchmarks.paper.runs import Arm
from benchmarks.show.format import NOT_AVAILABLE, number, percent

TOPOLOGIES = ("iso3", "iso5", "iso_mixed", "sequoia", "opt_tree", "goose", "goose_opt")
ABLATIONS = (
    "goose_no_spine_branches", "goose_no_bigram", "goose_no_bypass", "goose_no_prefill_harvest", "goose_context_only",
    "goose_adjacency_only", "goose_elastic",
)  # fmt: skip
WHOLE = "goose"
OVER_BUDGET = "over budget"
DEPTHS, RANKS = 8, 6  # columns of the acceptance by depth and by rank


# --- 3. acceptance ---------------------------------------------------------------------------------------------------


def heterogeneity(arms: Sequence[Arm]) -> PaperTable:
    """p_s and p_t of every method that drafts from both sources, and the medians over the cells of GOOSE."""
    comparison = layout.main_arms(arms)
    both = [arm for arm in comparison.arms if arm.numbers.get("p_ratio") is not None]
    names = ("p_s", "p_t", "p_ratio", "p_s_tested", "p_t_tested")
    numbers = pd.DataFrame([facts(arm) | {name: arm.numbers[name] for name in names} for arm in both])
    columns = ["model", "dataset", "method", "p_s", "p_t", "p_s / p_t", "p_s tested", "p_t tested"]
    rows = [(arm.run.model, arm.run.dataset, arm.method, *(arm.numbers[name] for name in names)) for arm in both]
    for method in layout.methods_of(both):
        own = [arm.numbers for arm in both if arm.method == method]
        if len(own) > 1:
            medians = (tree_metrics.median_known(row[name] for row in own) for name in names)
            rows.append(("median", f"{len(own)} cells", method, *medians))
    body = [(*r[:3], number(r[3], 3), number(r[4], 3), number(r[5], 1), number(r[6], 3), number(r[7], 3)) for r in rows]
    shown = pd.DataFrame(body, columns=columns)
    notes = [
        "p_s: context nodes, p_t: adjacency nodes; accepted / drafted, and, tested, accepted / nodes whose parent was "
        "accepted",
        *layout.notes_of(comparison, shown, "make grid EXP=main or EXP=embedded", both),
    ]
    return PaperTable("table3_heterogeneity", "Table 3. Acceptance of the two sources", shown, numbers, notes)


def by_depth_and_rank(arms: Sequence[Arm]) -> PaperTable:
    """Accepted / tested by depth and by rank, the datasets of a model together."""
    comparison = layout.main_arms(arms)
    drafting = [arm for arm in comparison.arms if arm.state == "measured" and arm.by_depth]
    rows, numbers = [], []
    for model in layout.models_of(drafting):
        for method in layout.methods_of(a for a in drafting if a.run.model == model):
            own = [arm for arm in drafting if (arm.run.model, arm.method) == (model, method)]
            depths = tree_metrics.pooled([arm.by_depth for arm in own])
            ranks = tree_metrics.pooled([arm.by_rank for arm in own])
            texts = [*_tested(depths, DEPTHS), *_tested(ranks, RANKS)]
            rows.append((model, method, *texts))
            for kind, counts, start in (("depth", depths, 1), ("rank", ranks, 0)):
                numbers += [
                    {"model": model, "method": method, "by": kind, "at": at, "drafted": c.drafted, "tested": c.tested,
                     "accepted": c.accepted, "accepted_of_tested": c.conditional_acceptance}
                    for at, c in enumerate(counts, start)
                ]  # fmt: skip
    columns = ["model", "method", *(f"depth {d}" for d in range(1, DEPTHS + 1)), *(f"rank {r}" for r in range(RANKS))]
    shown = pd.DataFrame(rows, columns=columns)
    notes = [
        "accepted / tested (tested: the parent was accepted), all datasets of a model together; rank: the node's "
        "number among its siblings, in the order they are tried; deeper and later ones are in the CSV",
        *layout.notes_of(comparison, shown, "make grid EXP=main or EXP=embedded", drafting),
    ]
    title = "Table 3b. Acceptance by depth and by rank"
    return PaperTable("table3b_depth_and_rank", title, shown, pd.DataFrame(numbers), notes)


def _tested(counts: Sequence[NodeCounts], n: int) -> list[str]:
    known = [
        NOT_AVAILABLE if c.conditional_acceptance is None else f"{c.conditional_acceptance:.2f}" for c in counts[:n]
    ]
    return known + [""] * (n - len(known))


# --- 4. topology -----------------------------------------------------------------------------------------------------


def topology(arms: Sequence[Arm]) -> PaperTable:
    """MAL and speed-up of the tree shapes under the same strict node budget."""
    comparison = side_by_side(arm for arm in arms if arm.stem in TOPOLOGIES and arm.run.temperature == 0)
    kept = comparison.arms
    rows = [
        (model, budget, method)
        for model in layout.models_of(kept)
        for budget in sorted({arm.run.node_budget for arm in kept if arm.run.model == model})
        for method in layout.methods_of(a for a in kept if (a.run.model, a.run.node_budget) == (model, budget))
    ]
    shown = by_dataset(kept, rows, layout.datasets_of(kept), _topology_text, timed=True)
    notes = [
        "MAL, then the speed-up over plain decoding; every tree has at most B nodes, root included. iso3, iso5, "
        "sequoia and opt_tree draft from the adjacency table alone; iso_mixed and goose from the table and the context",
        *layout.notes_of(comparison, shown, "make grid EXP=topology"),
    ]
    names = ("mal", "speed_up", "speed_up_low", "speed_up_high", "mean_nodes", "max_nodes", "draft_acceptance")
    numbers = pd.DataFrame(
        [facts(arm) | {"over_budget": arm.overdraws} | {n: arm.numbers.get(n) for n in names} for arm in kept]
    )
    return PaperTable("table4_topology", "Table 4. Topology at equal node budget", shown, numbers, notes)


def _topology_text(arm: Arm) -> str:
    return OVER_BUDGET if arm.overdraws else f"{number(arm.numbers['mal'], 2)}, {speed_up_text(arm)}"


# --- 5. ablations ----------------------------------------------------------------------------------------------------


def ablations(arms: Sequence[Arm]) -> PaperTable:
    """What GOOSE loses without each of its parts: change of speed-up and of MAL against the whole method."""
    comparison = layout.main_arms([arm for arm in arms if arm.method in (WHOLE, *ABLATIONS)])
    kept = comparison.arms
    whole = {(arm.run.model, arm.run.dataset): arm for arm in kept if arm.method == WHOLE}
    numbers = []
    for arm in kept:
        reference = whole.get((arm.run.model, arm.run.dataset))
        if arm.method != WHOLE and reference is not None:
            numbers.append(facts(arm) | changes(arm, reference))
    found = {(row["model"], row["method"], row["dataset"]): row for row in numbers}
    datasets = layout.datasets_of(kept)
    by_place = {(arm.run.model, arm.method, arm.run.dataset): arm for arm in kept}
    body = []
    for model in layout.models_of(kept):
        for method in [m for m in ABLATIONS if any((a.run.model, a.method) == (model, m) for a in kept)]:
            own = [found[key] for key in found if key[:2] == (model, method)]
            texts = {
                d: _ablation_text(by_place.get((model, method, d)), found.get((model, method, d))) for d in datasets
            }
            body.append({"model": model, "method": method, **texts, "mean": _mean_text(own)})
    shown = pd.DataFrame(body, columns=["model", "method", *datasets, "mean"])
    notes = [
        f"change of the speed-up, change of MAL, both against {WHOLE} on the same prompts; mean: over the datasets",
        *layout.notes_of(comparison, shown, "make grid EXP=ablation"),
    ]
    return PaperTable("table5_ablations", "Table 5. Ablations of GOOSE", shown, pd.DataFrame(numbers), notes)


def changes(arm: Arm, reference: Arm) -> dict[str, float | None]:
    """Relative changes of an arm against another of the same cell."""
    names = ("speed_up", "mal", "tau")
    return {f"{name}_change": tree_metrics.change(arm.numbers.get(name), reference.numbers.get(name)) for name in names}


def _ablation_text(arm: Arm | None, row: dict | None) -> str:
    return cell(arm, lambda _: _change_text([row]) if row else f"no {WHOLE}", timed=True)


def _change_text(rows: Sequence[dict]) -> str:
    texts = []
    for name in ("speed_up_change", "mal_change"):
        texts.append(percent(tree_metrics.mean_known(row[name] for row in rows), 1, " %", sign=True))
    return ", ".join(texts)


def _mean_text(rows: Sequence[dict]) -> str:
    return _change_text(rows) if rows else NOT_AVAILABLE


# --- 6. synergy ------------------------------------------------------------------------------------------------------


def synergies(arms: Sequence[Arm]) -> PaperTable:
    """MAL(goose) / max(MAL(pld), MAL(tr)) in every cell that has the three at the same node budget."""
    names = (WHOLE, "pld", "tr")
    comparison = side_by_side(arm for arm in arms if arm.method in names and arm.run.temperature == 0)
    places = {(a.run.model, a.run.dataset, a.run.node_budget): {} for a in comparison.arms}
    for arm in comparison.arms:
        places[arm.run.model, arm.run.dataset, arm.run.node_budget][arm.method] = arm
    numbers, body = [], []
    for (model, dataset, budget), own in places.items():
        mals = [own[name].numbers.get("mal") if name in own else None for name in names]
        value = tree_metrics.synergy(*mals)
        each = {f"mal_{name}": mal for name, mal in zip(names, mals, strict=True)}
        numbers.append({"model": model, "dataset": dataset, "node_budget": budget, **each, "synergy": value})
        texts = [cell(own.get(name), lambda arm: number(arm.numbers["mal"], 2)) for name in names]
        holds = NOT_AVAILABLE if value is None else "yes" if value >= 1 else "no"
        body.append((model, dataset, str(budget), *texts, number(value, 3), holds))
    shown = pd.DataFrame(body, columns=["model", "dataset", "B", *names, "synergy", "not degraded"])
    known = [row["synergy"] for row in numbers if row["synergy"] is not None]
    notes = [
        "MAL of each, and synergy = MAL(goose) / max(MAL(pld), MAL(tr)) at the same B; not degraded: synergy >= 1",
        *([f"holds in {sum(v >= 1 for v in known)} of {len(known)} cells"] if known else []),
        *layout.notes_of(comparison, shown, "make grid EXP=main or EXP=embedded"),
    ]
    return PaperTable("table6_synergy", "Table 6. Synergy and non-degradation", shown, pd.DataFrame(numbers), notes)
