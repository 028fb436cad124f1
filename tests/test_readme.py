"""What README and docs show must run or exist: Python blocks, commands, links, names of models, methods and columns."""

import re

import pytest
import yaml

import goose
from benchmarks.models.tiny import tiny_model, tiny_tokenizer
from paths import REPO
from toy import P0, counter

ROOT = REPO
README = (ROOT / "README.md").read_text()
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *(ROOT / "docs").glob("*.md")]
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    """A local folder in place of the checkpoint that the README names."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def test_the_python_examples_run_and_agree_with_plain_generate(checkpoint, capsys):
    hub_id = "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert hub_id in BLOCKS[0]
    scope: dict = {}
    exec(BLOCKS[0].replace(hub_id, checkpoint), scope)
    plain = scope["model"].generate(**scope["inputs"], max_new_tokens=64, do_sample=False)
    assert scope["out"].tolist() == plain.tolist()

    exec(BLOCKS[1], scope)
    n_prompt = scope["inputs"]["input_ids"].shape[1]
    assert scope["generation"].output_ids == plain[0, n_prompt:].tolist()
    assert "forwards" in capsys.readouterr().out


def test_the_worked_drafter_is_lossless_and_accepts_something():
    scope: dict = {}
    exec(BLOCKS[2], scope)
    generation = goose.decode(counter(), P0, scope["FrequentSuccessors"](), max_new_tokens=12)
    assert generation.output_ids == list(range(12, 24))
    assert len(generation.steps) < 11
    assert len(BLOCKS[2].splitlines()) <= 36


def test_the_readme_stays_short():
    assert len(README.splitlines()) <= 250


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_make_targets_and_scripts_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    makefile = (ROOT / "Makefile").read_text()
    code = "\n".join(_code(text))
    for line in re.findall(r"^make ([a-z -]+?)(?:  |$| [A-Z]+=)", code, flags=re.MULTILINE):
        for target in line.split():
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for script in re.findall(r"python ((?:scripts|examples)/\w+\.py)", text):
        assert (ROOT / script).is_file(), script


def test_every_model_and_every_method_is_explained():
    for group, page in (("model", "README.md"), ("method", "docs/methods.md")):
        text = (ROOT / page).read_text()
        for file in (ROOT / "conf" / group).glob("*.yaml"):
            assert f"`{file.stem}`" in text, file


def test_settings_in_run_commands_are_settings():
    """The names before `=`; which values they take is for the commands' own tests."""
    known = set(yaml.safe_load((ROOT / "conf" / "config.yaml").read_text())) | {"model", "dataset", "method"}
    for command in re.findall(r"python run\.py ([^#\n]*)", "\n".join(page.read_text() for page in PAGES)):
        for key in re.findall(r"(?:^|\s)'?([a-z_]+)[.\w]*=", command):
            assert key in known, command


def _code(text: str) -> list[str]:
    """Fenced blocks and inline code."""
    blocks = re.findall(r"```\n(.*?)```", text, flags=re.DOTALL)
    return blocks + re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
