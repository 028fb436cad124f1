"""The page as text: complete, self-contained, and safe whatever stands in prompts, outputs and cells."""

import json
import re
import runpy
import shutil
import sys
from html.parser import HTMLParser

import pytest

from benchmarks.errors import UserError
from benchmarks.show.figures import SOURCE_COLOURS
from benchmarks.show.page import COLOURS, Figure, Section, build, page, read_figure, script_json
from benchmarks.show.viewer_data import ViewerLimits
from paths import REPO
from recorded import ASKED, DRAFTERS, SAID, finished_run

ROOT = REPO
PNG = b"\x89PNG\r\n\x1a\n and so on"
WIDE = ViewerLimits(9, 10**9)
NASTY = "</script><script>alert(1)</script>{{data}}\u2028\u2029<!-- & \"'"


class Reader(HTMLParser):
    """Elements with their attributes and, for scripts and cells, their texts, as a browser would read them."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "td", "th", "summary", "caption", "li", "figcaption"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data):
        if self._open:
            self.texts[self._open[-1]][-1] += data


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("report"))


def embedded(text: str) -> dict:
    """The viewer's data in a page."""
    return json.loads(Reader(text).texts["script"][0])


def test_the_page_of_a_run_holds_its_tables_and_its_steps(run):
    text, notices = build([run.path], [], WIDE)
    read = Reader(text)
    assert notices == []
    assert len(read.texts["script"]) == 3
    data = embedded(text)
    assert data["sources"] == ["root", "context", "adjacency", "draft_model", "target"]
    assert [p["text"] for p in data["runs"][0]["prompts"]] == list(ASKED)
    assert "".join(data["runs"][0]["prompts"][0]["outputs"][0]["texts"]) == SAID + "<eos>"
    assert {"ar", "goose", "3/3 equal"} <= set(read.texts["td"])
    assert {"speed-up", "MAL"} <= set(read.texts["th"])
    assert run.header["run_id"] in read.texts["summary"][0]
    assert "{{" not in text.replace("{{data}}", "")


def test_nothing_is_fetched(run):
    text, _ = build([run.path], [], WIDE)
    policy = dict(Reader(text).elements)["meta"]
    assert policy is not None
    assert "default-src 'none'" in text
    addresses = set(re.findall(r"""https?://[^\s"'<>]+""", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    for tag, attributes in Reader(text).elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert attributes.get("src", "data:").startswith("data:")
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|innerHTML|document\.write", text)


def test_no_text_of_a_run_or_a_table_becomes_markup():
    section = Section(NASTY, {NASTY: [{"a": NASTY, NASTY: "b"}, {"a": "short"}]}, [NASTY])
    read = Reader(page([section], [Figure(NASTY, PNG)], [{"title": NASTY}], [NASTY]))
    assert len(read.texts["script"]) == 3
    assert json.loads(read.texts["script"][0])["runs"] == [{"title": NASTY}]
    assert [t for t, _ in read.elements].count("table") == 1
    assert read.texts["td"] == [NASTY, "b", "short", ""]
    assert NASTY in read.texts["th"]
    assert read.texts["summary"] == read.texts["caption"] == read.texts["figcaption"] == [NASTY]
    assert read.texts["li"].count(NASTY) == 2
    assert next(a for t, a in read.elements if t == "img")["alt"] == NASTY


def test_json_in_a_script_element_is_ascii_without_a_tag():
    text = script_json({"text": NASTY})
    assert text.isascii()
    assert "<" not in text
    assert json.loads(text) == {"text": NASTY}
    with pytest.raises(ValueError):
        script_json(float("nan"))


def test_colours_are_those_of_the_figures():
    assert {name: COLOURS[name] for name in SOURCE_COLOURS} == SOURCE_COLOURS
    assert len(set(COLOURS.values())) == len(COLOURS)
    text = page([], [], [], [])
    assert all(f"--{name}: {colour};" in text for name, colour in COLOURS.items())


def test_figures_are_embedded_and_other_files_refused(tmp_path):
    (tmp_path / "two_words.png").write_bytes(PNG)
    (tmp_path / "x.pdf").write_bytes(b"%PDF")
    assert read_figure(tmp_path / "two_words.png") == Figure("two words", PNG)
    for name, expected in (("x.pdf", "is not a PNG"), ("none.png", "could not be read")):
        with pytest.raises(UserError, match=expected):
            read_figure(tmp_path / name)


def test_what_one_run_leaves_of_its_share_goes_to_those_behind_it(run, tmp_path):
    small = finished_run(tmp_path, {"ar": DRAFTERS["ar"]})
    both = sum(len(script_json(shown)) for shown in embedded(build([small.path, run.path], [], WIDE)[0])["runs"])
    limits = ViewerLimits(9, both + 100)
    assert build([small.path, run.path], [], limits)[1] == []
    assert "has room for" in build([run.path, small.path], [], limits)[1][0]


def test_runs_that_are_unfinished_or_damaged_are_left_out_and_named(run, tmp_path):
    interrupted = finished_run(tmp_path / "interrupted", complete=False)
    damaged = finished_run(tmp_path / "damaged")
    (damaged.path / "turns.jsonl").write_text("{}\n")
    text, notices = build([interrupted.path, damaged.path, run.path], [], WIDE)
    assert (
        notices[0]
        == f"left out: {interrupted.path} is not finished; finish it with `python run.py resume={interrupted.path}`"
    )
    assert notices[1].startswith(f"left out: {damaged.path}")
    read = Reader(text)
    assert len(read.texts["summary"]) == len(embedded(text)["runs"]) == 1
    assert notices == read.texts["li"][:2]


def test_other_sections_stand_before_the_runs_own(run):
    text, _ = build([run.path], [], WIDE, [Section("Speed-up over AR", {"": [{"model": "m", "goose": "2.00x"}]})])
    assert Reader(text).texts["summary"][0] == "Speed-up over AR"
    assert len(Reader(text).texts["summary"]) == 2


def script(monkeypatch, capsys, *arguments: str) -> tuple[int | str | None, str, str]:
    monkeypatch.setattr(sys, "argv", ["report.py", *arguments])
    status = None
    try:
        runpy.run_path(str(ROOT / "scripts" / "report.py"), run_name="__main__")
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def test_the_script_takes_the_runs_that_are_there(run, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, _, _ = script(monkeypatch, capsys)
    assert status.startswith("error: results/runs holds no run; make one with `make demo`")
    shutil.copytree(run.path, tmp_path / "results" / "runs" / "a grid" / "cell")
    (tmp_path / "f.png").write_bytes(PNG)
    status, out, err = script(monkeypatch, capsys, "--prompts", "1", "--figures", "f.png")
    assert (status, err) == (None, "")
    assert out.startswith("results/report.html (")
    written = (tmp_path / "results" / "report.html").read_text(encoding="utf-8")
    assert len(embedded(written)["runs"][0]["prompts"]) == 1
    assert "data:image/png;base64,iVBOR" in written
    status, _, err = script(monkeypatch, capsys, str(run.path), "--max-mb", "0", "--out", "x.html")
    assert status is None
    assert "0 of 3 prompts" in err
    status, _, _ = script(monkeypatch, capsys, str(run.path), "--out", "x.html/y.html")
    assert status.startswith("error: x.html")
    assert script(monkeypatch, capsys, "--prompts", "-1")[0] == "error: --prompts must not be negative, got -1"


def test_a_report_is_never_committed():
    assert "results/report.html" in (ROOT / ".gitignore").read_text().split()
