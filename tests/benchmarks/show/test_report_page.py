"""The page in a real browser, by mouse and keyboard: what it draws and says for a recorded run."""

import re

import pytest

from benchmarks.show.page import Section, build, page
from benchmarks.show.viewer_data import Readers, ViewerLimits, shown_run
from browser import Browser, find_browser
from handmade import failed
from recorded import ASKED, SAID, finished_run

pytestmark = pytest.mark.skipif(find_browser() is None, reason="needs Chromium (apt-get install chromium)")
RIGHT, LEFT, END, HOME, DOWN, UP = (
    ("ArrowRight", 39), ("ArrowLeft", 37), ("End", 35), ("Home", 36), ("ArrowDown", 40), ("ArrowUp", 38)
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(find_browser(), tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def goose(run):
    return next(x for x in run.lines() if (x["prompt_id"], x["method"]) == ("T/0", "goose"))


@pytest.fixture
def viewer(browser, run, tmp_path):
    """The report of `run`, opened anew; without a word in the console in the end."""
    (tmp_path / "report.html").write_text(build([run.path], [], ViewerLimits(9, 10**9))[0], encoding="utf-8")
    browser.open(tmp_path / "report.html")
    yield browser
    assert browser.problems == []


def text_of(browser, selector: str) -> str:
    return browser.js(f"document.querySelector({selector!r}).textContent")


def count(browser, selector: str) -> int:
    return browser.js(f"document.querySelectorAll({selector!r}).length")


def choose(browser, name: str, value: str) -> None:
    select = f"document.getElementById({name!r})"
    browser.js(f"{select}.value = {value!r}, {select}.dispatchEvent(new Event('change'))")


def test_it_opens_at_the_first_step_of_the_last_method(viewer, goose):
    n_steps = len(goose["steps"]["emitted"])
    assert text_of(viewer, "#place") == f"step 1 of {n_steps}"
    assert text_of(viewer, ".panel h3") == "goose"
    assert text_of(viewer, ".text .prompt") == ASKED[0]
    assert text_of(viewer, ".text") == ASKED[0] + SAID[: 1 + goose["steps"]["emitted"][0]]


def test_every_step_draws_its_tree_and_the_text_grows_to_the_end(viewer, goose):
    steps, emitted = goose["steps"], 1
    for k in range(len(steps["emitted"])):
        emitted += steps["emitted"][k]
        n_nodes, n_accepted = len(steps["tokens"][k]), len(steps["path"][k][: steps["emitted"][k] + 1])
        has_bonus = steps["emitted"][k] == len(steps["path"][k])
        assert count(viewer, ".node") == n_nodes + has_bonus
        assert count(viewer, ".edge") == n_nodes - 1 + has_bonus
        assert count(viewer, ".node.root, .node.accepted") == n_accepted
        assert count(viewer, ".edge.accepted") == n_accepted - 1
        assert count(viewer, ".node.bonus") == has_bonus
        shown = bytes(goose["output_ids"][:emitted][: len(SAID.encode())]).decode("utf-8", "ignore")
        assert text_of(viewer, ".text") == ASKED[0] + shown + "<eos>" * (emitted == len(goose["output_ids"]))
        assert f"{n_nodes} nodes" in text_of(viewer, ".summary")
        viewer.press(*RIGHT)
    assert "the output ends here (stop)" in text_of(viewer, ".summary")
    assert count(viewer, ".text .source-context") > 5
    assert max(map(len, steps["tokens"])) > 10


def test_keys_buttons_slider_and_overview_step(viewer, goose):
    n = len(goose["steps"]["emitted"])

    def place() -> int:
        return int(re.match(r"step (\d+) of", text_of(viewer, "#place"))[1])

    for key, expected in ((RIGHT, 2), (RIGHT, 3), (LEFT, 2), (END, n), (RIGHT, n), (HOME, 1), (LEFT, 1)):
        viewer.press(*key)
        assert place() == expected
    for button, expected in (("forward", 2), ("last", n), ("back", n - 1), ("first", 1)):
        viewer.mouse(f"#{button}", click=True)
        assert place() == expected
    viewer.press(*RIGHT)  # a button has the focus
    assert place() == 2
    viewer.js("document.getElementById('slider').focus()")
    viewer.press(*RIGHT)  # its own key, not ours on top
    assert place() == 3
    viewer.mouse(".strip", click=True)
    assert abs(place() - n / 2) <= 1
    viewer.js("document.querySelector('#run').focus()")
    before = place()
    viewer.press(*LEFT)  # belongs to the select
    assert place() == before


def test_a_node_tells_what_it_is_by_mouse_and_by_key(viewer, goose):
    k = max(range(len(goose["steps"]["path"])), key=lambda k: len(goose["steps"]["path"][k]))
    viewer.js(f"go({k})")
    token, node = goose["steps"]["tokens"][k][1], goose["steps"]["path"][k][1]
    viewer.mouse(".node.accepted rect")
    told = rf"token {goose['steps']['tokens'][k][node]} “.+”, depth 1, (context|adjacency), accepted"
    assert re.fullmatch(told, text_of(viewer, ".details"))
    viewer.js("document.querySelector('.tree').focus()")
    viewer.js("pick(view.panels[0], 0)")
    viewer.press(*DOWN)
    assert text_of(viewer, ".details").startswith(f"token {token} ")
    assert count(viewer, ".node.picked") == 1
    viewer.press(*UP)
    assert "root: the last token of the context" in text_of(viewer, ".details")


def test_a_method_beside_shows_the_same_place_of_the_output(viewer, goose):
    choose(viewer, "beside", "ar")
    assert count(viewer, ".panel") == 2
    viewer.press(*RIGHT)
    viewer.press(*RIGHT)
    start = 1 + sum(goose["steps"]["emitted"][:2])
    shown = viewer.js("[...document.querySelectorAll('.panel h3, .panel .summary')].map((e) => e.textContent)")
    assert [shown[0], shown[2]] == ["goose", "ar"]
    assert shown[3].startswith(f"step {start} of ")  # plain decoding's step t emits the output's token t
    choose(viewer, "method", "ar")
    assert count(viewer, ".panel") == 1  # nothing stands beside itself


def test_another_prompt_starts_at_its_first_step(viewer):
    viewer.press(*END)
    choose(viewer, "prompt", "1")
    assert text_of(viewer, "#place").startswith("step 1 of")
    assert text_of(viewer, ".text .prompt") == ASKED[1]


def test_zooming_scales_the_drawing(viewer):
    width = "Number(document.querySelector('.tree svg').getAttribute('width'))"
    before = viewer.js(width)
    viewer.mouse("#larger", click=True)
    assert viewer.js(width) == pytest.approx(before * 1.25)
    viewer.mouse("#auto", click=True)
    assert viewer.js(width) == pytest.approx(before)


def test_colours_have_contrast_in_light_and_dark(browser, run, tmp_path):
    (tmp_path / "report.html").write_text(build([run.path], [], ViewerLimits(9, 10**9))[0], encoding="utf-8")
    for scheme in ("light", "dark"):
        browser.open(tmp_path / "report.html", scheme=scheme)
        style = "(s => [s.color, s.backgroundColor])(getComputedStyle(document.querySelector({!r})))"
        for selector, least in (("body", 7.0), (".key.source-root", 4.5), (".key.source-target", 4.5)):
            assert contrast(*browser.js(style.format(selector))) >= least, (scheme, selector)


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two colours written rgb(r, g, b)."""

    def luminance(colour: str) -> float:
        channels = [int(c) / 255 for c in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_pages_without_steps_say_so(browser, run, tmp_path):
    (tmp_path / "bare.html").write_text(page([Section("A table", {"": [{"x": "1"}]})], [], [], []), encoding="utf-8")
    browser.open(tmp_path / "bare.html")
    assert browser.js("document.getElementById('player').hidden") is True
    assert browser.js("document.getElementById('nothing').hidden") is False
    assert text_of(browser, "td") == "1"
    # One method failed on the first prompt and ended with the prefill's token on the second.
    lines = [x for x in run.lines() if x["method"] == "ar" and x["prompt_id"] == "T/0"]
    at_once = next(x for x in run.lines() if x["method"] == "ar" and x["prompt_id"] == "T/1")
    at_once = {**at_once, "output_ids": at_once["output_ids"][:1]}
    at_once["steps"] = {column: [] for column in at_once["steps"]}
    data = shown_run(run.header, [*lines, failed("T/0", "goose"), at_once], Readers(), ViewerLimits(9, 10**9)).data
    (tmp_path / "odd.html").write_text(page([], [], [data], []), encoding="utf-8")
    browser.open(tmp_path / "odd.html")
    assert text_of(browser, ".panel h3") == "ar"
    assert browser.js("document.querySelector('#method option:disabled').textContent") == "goose: NonFiniteLogits: nan"
    choose(browser, "prompt", "1")
    assert text_of(browser, "#place") == "no step"
    assert "the prefill's token ended the output" in text_of(browser, ".summary")
    browser.press(*RIGHT)
    data = shown_run(run.header, [failed("T/0", "ar"), failed("T/0", "goose")], Readers(), ViewerLimits(9, 10**9)).data
    (tmp_path / "failed.html").write_text(page([], [], [data], []), encoding="utf-8")
    browser.open(tmp_path / "failed.html")
    assert text_of(browser, "#place") == "no method finished this prompt"
    assert browser.problems == []
