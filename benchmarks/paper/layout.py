"""A table of the paper as text and as numbers, and its Markdown, LaTeX and CSV files.

It knows arms and comparisons, orders models, datasets and methods, and says what is not run, failed, broken or
unstable. What a table holds is the business of the files beside it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from benchmarks.files import disk_errors, write_text_atomically
from benchmarks.paper.compare import Comparison, interrupted_and_failed, side_by_side
from benchmarks.paper.runs import Arm, FailedCell
from benchmarks.show.cell_table import grid_lines
from benchmarks.show.format import FEW_PROMPTS, header_text, number, prompt_text, settings_text, without_step

# The paper's grid (GOOSE v2, section 5) under the names of conf/model and conf/dataset.
PAPER_MODELS = ("vicuna7b", "vicuna13b", "vicuna33b", "llama3", "qwen3")
PAPER_DATASETS = ("humaneval", "mbpp", "classeval", "gsm8k", "mtbench")
METHODS = (
    "ar", "pld", "suffix", "tr", "iso3", "iso5", "iso_mixed", "sequoia", "sequoia_draft", "opt_tree", "opt_tree_draft",
    "goose", "goose_elastic", "goose_opt", "goose_opt_strict",
)  # fmt: skip
NOT_RUN, FAILED, UNFINISHED = "not run", "failed", "unfinished"
BROKEN, NO_BASELINE, NOT_JUDGED = "broken", "no baseline", "not judged"
UNSTABLE_MARK, INTERRUPTED_MARK = "*", "+"
MARKS = {
    UNSTABLE_MARK: "unstable: the repeats differ by more than 5 %",
    INTERRUPTED_MARK: "of a run that is not finished",
}


@dataclass(frozen=True)
class PaperTable:
    name: str  # of its files
    title: str
    shown: pd.DataFrame  # text, as Markdown and LaTeX print it
    numbers: pd.DataFrame  # one row per cell, unrounded: the CSV
    notes: list[str] = field(default_factory=list)  # conditions, marks, and what is left out


def files(table: PaperTable, folder: Path) -> list[Path]:
    """Writes NAME.md, NAME.tex and NAME.csv into `folder`."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    texts = {".md": markdown(table), ".tex": latex(table), ".csv": table.numbers.to_csv(index=False)}
    written = []
    for ending, text in texts.items():
        written.append(folder / f"{table.name}{ending}")
        write_text_atomically(written[-1], text)
    return written


def markdown(table: PaperTable) -> str:
    body = [list(map(str, row)) for row in table.shown.itertuples(index=False)]
    grid = grid_lines(list(map(str, table.shown.columns)), body)
    notes = "\n".join(f"- {note}" for note in table.notes)
    return "\n\n".join(part for part in (f"## {table.title}", grid, notes) if part) + "\n"


def latex(table: PaperTable) -> str:
    """A table of the booktabs package, the notes below it; one too long for a page becomes a longtable."""
    shown = table.shown.map(escaped_latex)
    shown.columns = [escaped_latex(str(column)) for column in table.shown.columns]
    is_long = len(shown) > PAGE_ROWS
    text = shown.to_latex(
        index=False,
        escape=False,
        longtable=is_long,
        column_format="".join("l" if column in TEXT_COLUMNS else "r" for column in table.shown.columns),
        caption=escaped_latex(table.title),
        label=f"tab:{table.name}",
        position=None if is_long else "tbp",
    )
    notes = "".join(f"\\par\\footnotesize {escaped_latex(note)}\n" for note in table.notes)
    if is_long:
        return f"% needs the packages booktabs and longtable\n{text}{notes}"
    text = text.replace("\\begin{tabular}", "\\centering\\small\n\\begin{tabular}", 1)
    text = text.replace("\\end{tabular}\n", f"\\end{{tabular}}\n{notes}", 1)
    return f"% needs the package booktabs\n{text}"


PAGE_ROWS = 40
TEXT_COLUMNS = (
    "curve", "model", "dataset", "method", "source", "structure", "draft", "outputs", "first divergence", "table",
    "metric", "verdict", "why",
)  # fmt: skip
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
}  # fmt: skip


def escaped_latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


# --- order -----------------------------------------------------------------------------------------------------------


def models_of(arms: Iterable[Arm]) -> list[str]:
    return _ordered({arm.run.model for arm in arms}, PAPER_MODELS)


def datasets_of(arms: Iterable[Arm]) -> list[str]:
    """The paper's datasets, run or not, then any others."""
    return _ordered({arm.run.dataset for arm in arms} | set(PAPER_DATASETS), PAPER_DATASETS)


def methods_of(arms: Iterable[Arm]) -> list[str]:
    return _ordered({arm.method for arm in arms}, METHODS)


def _ordered(names: Iterable[str], usual: Sequence[str]) -> list[str]:
    """In the usual order; a name that only extends a usual one follows it, any other comes last."""

    def place(name: str) -> tuple[int, str]:
        stem = name.partition("[")[0]
        return (usual.index(stem) if stem in usual else len(usual)), name

    return sorted(names, key=place)


def main_budget(arms: Sequence[Arm], model: str) -> int | None:
    """The node budget under which most of a model's cells and methods were measured; of equals the larger."""
    budgets: dict[int, set] = {}
    for arm in arms:
        if arm.run.model == model:
            budgets.setdefault(arm.run.node_budget, set()).add((arm.run.dataset, arm.method))
    return max(budgets, key=lambda budget: (len(budgets[budget]), budget), default=None)


def main_arms(arms: Sequence[Arm]) -> Comparison:
    """Greedy arms at each model's main budget, side by side."""
    greedy = [arm for arm in arms if arm.run.temperature == 0]
    budget = {model: main_budget(greedy, model) for model in models_of(greedy)}
    return side_by_side(arm for arm in greedy if arm.run.node_budget == budget[arm.run.model])


# --- text of a cell --------------------------------------------------------------------------------------------------


def cell(arm: Arm | None, text: Callable[[Arm], str], timed: bool = False) -> str:
    """What a table prints for an arm: its numbers with marks, or why there are none."""
    if arm is None:
        return NOT_RUN
    if arm.state != "measured":
        return {"failed": FAILED, "unfinished": UNFINISHED}[arm.state]
    marks = (UNSTABLE_MARK if timed and arm.is_unstable else "") + ("" if arm.run.is_complete else INTERRUPTED_MARK)
    return text(arm) + marks


def speed_up_text(arm: Arm) -> str:
    """1.74x [1.50, 2.01], or why there is no speed-up."""
    if not arm.is_trusted:
        if arm.losslessness.broken and arm.is_judged:
            return BROKEN
        return NO_BASELINE if arm.is_judged else NOT_JUDGED
    low, high = arm.numbers["speed_up_low"], arm.numbers["speed_up_high"]
    return number(arm.numbers["speed_up"], 2, "x") + ("" if low is None else f" [{low:.2f}, {high:.2f}]")


def by_dataset(
    arms: Sequence[Arm], rows: Sequence[tuple], datasets: Sequence[str], text: Callable[[Arm], str], timed: bool = False
) -> pd.DataFrame:
    """One row per (model, node budget, method), one column per dataset."""
    found = {(a.run.model, a.run.node_budget, a.method, a.run.dataset): a for a in arms}
    body = [
        {"model": model, "B": str(budget), "method": method}
        | {d: cell(found.get((model, budget, method, d)), text, timed) for d in datasets}
        for model, budget, method in rows
    ]
    return pd.DataFrame(body, columns=["model", "B", "method", *datasets])


def not_run_models(arms: Sequence[Arm], columns: Sequence[str]) -> pd.DataFrame:
    """A row for each model of the paper that no arm belongs to."""
    absent = [model for model in PAPER_MODELS if model not in {arm.run.model for arm in arms}]
    return pd.DataFrame([{c: model if c == "model" else NOT_RUN for c in columns} for model in absent], columns=columns)


def facts(arm: Arm) -> dict[str, object]:
    """The columns that every CSV begins with."""
    run = arm.run
    return {
        "model": run.model, "dataset": run.dataset, "node_budget": run.node_budget, "temperature": run.temperature,
        "method": arm.method, "state": arm.state, "prompts": arm.n_prompts, "run": run.id,
    }  # fmt: skip


def with_failures(table: PaperTable, failed: Sequence[FailedCell]) -> PaperTable:
    """The table with `failed` where it says `not run` of a cell that was tried, and the reasons below."""
    shown, notes = table.shown.copy(), []
    for cell in failed:
        if "model" not in shown or cell.dataset not in shown:
            continue
        tried = (shown["model"] == cell.model) & (shown[cell.dataset] == NOT_RUN)
        shown.loc[tried, cell.dataset] = FAILED
        if tried.any():
            notes.append(cell.text)
    return replace(table, shown=shown, notes=[*table.notes, *notes])


# --- notes -----------------------------------------------------------------------------------------------------------


MEANINGS = {
    FAILED: "no prompt was finished",
    UNFINISHED: "the run was stopped before this method had a prompt",
    BROKEN: "the output differs from plain decoding's, so no speed-up is printed",
    NO_BASELINE: "plain decoding failed, or its repeats differ from each other",
    NOT_JUDGED: "outputs differ in half precision and the run stopped before they were judged",
}


def notes_of(comparison: Comparison, shown: pd.DataFrame, made_by: str, arms: Sequence[Arm] | None = None) -> list[str]:
    """What stands below a table: marks and words in use, conditions, what is left out, how to get what is missing."""
    arms = comparison.arms if arms is None else arms
    texts = [str(value) for value in shown.to_numpy().ravel()]
    notes = [f"{mark} {meaning}" for mark, meaning in MARKS.items() if any(text.endswith(mark) for text in texts)]
    notes += [f"{word}: {meaning}" for word, meaning in MEANINGS.items() if any(word in text for text in texts)]
    if any(NOT_RUN in text for text in texts) or not len(shown):
        notes.append(f"what is not run: {made_by}")
    if any(" [" in text for text in texts) and any(0 < arm.n_stepping < FEW_PROMPTS for arm in arms):
        notes.append(f"an interval from fewer than {FEW_PROMPTS} prompts covers less often than it says")
    if any(arm.run.header["model"]["weights"] == "random" for arm in arms):
        notes.append("a model with random weights shows that the harness runs; its numbers say nothing about a method")
    return notes + conditions(arms) + interrupted_and_failed(arms) + [f"refused: {text}" for text in comparison.refused]


def conditions(arms: Sequence[Arm]) -> list[str]:
    """One sentence for each kind of run: model, machine, versions, settings, and how many prompts of which dataset."""
    prompts: dict[str, dict[str, tuple[int, int]]] = {}
    for arm in arms:
        if arm.state == "measured":
            counts = prompts.setdefault(_conditions(arm), {})
            counts[arm.run.dataset] = max((arm.n_prompts, arm.n_stepping), counts.get(arm.run.dataset, (0, 0)))
    said = lambda n_prompts, n_stepping: f"{n_prompts}{without_step(n_prompts - n_stepping)}"  # noqa: E731
    listed = {text: ", ".join(f"{d} {said(*n)}" for d, n in counts.items()) for text, counts in prompts.items()}
    return [f"{text}; prompts: {counts}" for text, counts in listed.items()]


def _conditions(arm: Arm) -> str:
    config = arm.run.header["config"]
    return f"{header_text(arm.run.header)}, {prompt_text(config)}, {settings_text(config)}"
