"""What the README shows must run: its Python blocks, its commands' names, its links."""

import re

import pytest

import goose
from benchmarks.models.tiny import tiny_model, tiny_tokenizer
from paths import REPO
from toy import P0, counter

ROOT = REPO
README = (ROOT / "README.md").read_text()
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


def test_links_and_make_targets_exist():
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for group in ("model", "method"):
        for file in (ROOT / "conf" / group).glob("*.yaml"):
            assert f"`{file.stem}`" in README, file
