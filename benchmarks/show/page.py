"""Writes the report: one HTML page with tables, figures and the step viewer, that asks the network for nothing.

`page` puts together sections, figures and the data of the viewer and does not know where they come from; `build` has
them from finished run folders. Numbers are made in cell_table.py, what the viewer shows in viewer_data.py.
"""

import base64
import html
import importlib.resources
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cost.curve import curve_of
from benchmarks.errors import UserError
from benchmarks.files import read_object
from benchmarks.record.identity import model_labels
from benchmarks.record.run_folder import CELL, RUN, RunFolder
from benchmarks.show.cell_table import cell_table
from benchmarks.show.figures import SOURCE_COLOURS
from benchmarks.show.viewer_data import Readers, ViewerLimits, compact_json, run_title, shown_run
from goose.engine.tree import SOURCE_NAMES

TARGET = "target"  # the prefill's token and every bonus: the target's own, from no tree
COLOURS = {**SOURCE_COLOURS, TARGET: "#CC79A7"}  # Okabe-Ito as the others
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
TableRows = Sequence[dict[str, str]]


@dataclass(frozen=True)
class Section:
    """A titled part of the page: tables by their titles (may be ""), each a list of rows, and notes below them."""

    title: str
    tables: dict[str, TableRows]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    title: str
    png: bytes


def find_runs(roots: Sequence[Path]) -> list[Path]:
    """The run folders at or below `roots`, sorted. Raises UserError where there is none."""
    runs = sorted({file.parent for root in roots for file in root.rglob(CELL)})
    if not runs:
        raise UserError(f"{', '.join(map(str, roots))} holds no run; make one with `make demo`, or name other folders")
    return runs


def build(
    runs: Sequence[Path], figures: Sequence[Path], limits: ViewerLimits, sections: Sequence[Section] = ()
) -> tuple[str, list[str]]:
    """The page, and notices of what it lacks: `sections`, then a section for each run, the figures and the viewer.

    `limits`: prompts a run, bytes of all runs. A run that is unfinished or cannot be read is left out with a notice.
    Raises UserError for a figure that is no PNG.
    """
    readers, left, labels = Readers(), limits.n_bytes, _model_labels(runs)
    sections, shown, notices = list(sections), [], []
    for n_before, path in enumerate(runs):
        try:
            folder, lines, divergences = _read(path)
        except UserError as error:
            notices.append(f"left out: {error}")
            continue
        header = folder.header | {"model": folder.header["model"] | {"name": labels[path]}}
        sections.append(run_section(header, lines, divergences))
        # What a run leaves of its share goes to those after it.
        run = shown_run(header, lines, readers, ViewerLimits(limits.n_prompts, left // (len(runs) - n_before)))
        left -= run.n_bytes
        notices += run.notices
        if run.data is not None:
            shown.append(run.data)
    return page(sections, [read_figure(file) for file in figures], shown, notices), notices


def _model_labels(runs: Sequence[Path]) -> dict[Path, str]:
    """Of every run whose header can be read: what tells its model from the others' on the page."""
    headers = {}
    for path in runs:
        with suppress(UserError):
            headers[path] = read_object(path / CELL, "").get("model")
    known = {path: model for path, model in headers.items() if isinstance(model, dict) and "name" in model}
    return dict(zip(known, model_labels(list(known.values())), strict=True))


def _read(path: Path) -> tuple[RunFolder, list[dict], list[dict]]:
    """A finished run, its lines and what was judged of them. Raises UserError for any other folder."""
    folder = RunFolder.open(path)
    if not folder.is_complete:
        raise UserError(f"{path} is not finished; finish it with `python run.py resume={path}`")
    return folder, folder.lines(), json.loads((path / RUN).read_text(encoding="utf-8"))["divergences"]


def run_section(header: dict, lines: Sequence[dict], divergences: Sequence[dict]) -> Section:
    """The tables of one run, its conditions and what is wrong with it."""
    table = cell_table(header, lines, divergences, curve_of(header["config"]))
    return Section(run_title(header), table.blocks, [*table.problems, *table.notices, *table.conditions.split("\n")])


def read_figure(file: Path) -> Figure:
    """A PNG file, titled by its name. Raises UserError when it is something else."""
    try:
        png = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} could not be read ({error.strerror}); name a PNG file") from error
    if not png.startswith(_PNG_MAGIC):
        raise UserError(f"{file} is not a PNG, and the page takes no other pictures; name a PNG file")
    return Figure(file.stem.replace("_", " "), png)


def page(sections: Sequence[Section], figures: Sequence[Figure], runs: Sequence[dict], notices: Sequence[str]) -> str:
    """The whole page. `runs`: the viewer's data (viewer_data.ShownRun.data), one per run."""
    folder = importlib.resources.files("benchmarks.show") / "templates"
    names = ("report.html", "report.css", "steps.js", "viewer.js")
    html_text, css, steps, viewer = ((folder / name).read_text(encoding="utf-8") for name in names)
    colours = "".join(f"--{name}: {colour};" for name, colour in COLOURS.items())
    parts = {
        "style": f":root {{ {colours} }}\n{css}",
        "steps": steps,
        "viewer": viewer,
        "notices": _list(notices),
        "sections": "\n".join(map(_section, sections)),
        "figures": "\n".join(map(_figure, figures)),
        "data": script_json({"sources": [*SOURCE_NAMES, TARGET], "runs": runs}),
    }
    # One pass, so that nothing inserted is read as a place to insert at.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], html_text)


def script_json(value: object) -> str:
    """JSON that may stand inside <script>: no "<" that could end the element, and no letter outside ASCII."""
    return compact_json(value).replace("<", r"\u003c")


def _section(section: Section) -> str:
    tables = "\n".join(_table(title, rows) for title, rows in section.tables.items())
    summary = f"<summary>{html.escape(section.title)}</summary>"
    return f'<details open>{summary}\n<div class="tables">{tables}</div>\n{_list(section.notes)}</details>'


def _table(title: str, rows: TableRows) -> str:
    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    columns = list(rows[0]) if rows else []
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in columns)
    body = "\n".join(f"<tr>{_cells([row.get(column, '') for column in columns])}</tr>" for row in rows)
    return f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _cells(texts: Sequence[str]) -> str:
    return "".join(f"<td>{html.escape(str(text))}</td>" for text in texts)


def _figure(figure: Figure) -> str:
    title, data = html.escape(figure.title), base64.b64encode(figure.png).decode()
    return f'<figure><img src="data:image/png;base64,{data}" alt="{title}"><figcaption>{title}</figcaption></figure>'


def _list(notes: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(note)}</li>" for note in notes) + "</ul>" if notes else ""
