"""A small finished run with the trees of real drafters: a stub target that says a fixed text after every prompt."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from baselines.autoregressive import AutoregressiveDrafter
from benchmarks.data.items import load_dataset
from benchmarks.data.prompts import render
from benchmarks.models.tiny import TINY_EOS, tiny_tokenizer
from benchmarks.record.run_folder import RunFolder
from benchmarks.run.interleave import CellPrompt, Settings, run_cell
from goose import GooseDrafter, Sampling
from handmade import header
from toy import StubLM

# All that HTML, JSON and JavaScript could trip over, in a text that repeats itself enough to be drafted.
SAID = (
    "for x in a:\n\ty = x\nfor x in b:\n\ty = x</script><!-- {{data}} \u2028é€ & \"'\nfor x in c:\n\ty = x</script>\n"
)
ASKED = ("# for x in a </script>\u2028\n", "# {{data}} ü\n", "# third\n")
DRAFTERS = {"ar": AutoregressiveDrafter, "goose": GooseDrafter}


def telling(said: Sequence[int]) -> StubLM:
    """A target whose output is `said`, whatever the prompt; outside it, it says 0."""
    state = {"n_prompt": 0}

    def next_logits(ids: Sequence[int]) -> torch.Tensor:
        place = len(ids) - state["n_prompt"]
        right = list(ids[state["n_prompt"] :]) == list(said[:place]) and place < len(said)
        logits = torch.linspace(0, -1, TINY_EOS + 10)
        logits[said[place] if right else 0] = 10.0
        return logits

    class Telling(StubLM):
        def prefill(self, ids: Sequence[int], reserve: int) -> torch.Tensor:
            state["n_prompt"] = len(ids)
            return super().prefill(ids, reserve)

    return Telling(next_logits, TINY_EOS + 10)


def finished_run(
    folder: Path, drafters: dict[str, Callable] = DRAFTERS, *, complete: bool = True, repeats: int = 1
) -> RunFolder:
    """A run folder below `folder`, its dataset file beside it."""
    file = folder / "own.jsonl"
    folder.mkdir(exist_ok=True)
    row = {"entry_point": "f", "canonical_solution": "", "test": ""}
    file.write_text("".join(json.dumps({**row, "task_id": f"T/{i}", "prompt": p}) + "\n" for i, p in enumerate(ASKED)))
    dataset = load_dataset("humaneval", path=file)
    settings = {
        "model": {"name": "tiny", "source": "tiny"},
        "dataset": {"name": "humaneval", "path": str(file), "prompt_style": "raw", "max_new_tokens": 9},
        "limit": None,
        "offset": 0,
        "repeats": repeats,
    }
    run = RunFolder.create(folder / "runs", "tiny", header(drafters, **settings))
    rendered = {item.id: render(item, tiny_tokenizer(), "raw") for item in dataset.items}
    prompts = [CellPrompt(name, prompt.ids, prompt.text_sha256) for name, prompt in rendered.items()]
    said = [*SAID.encode(), TINY_EOS]
    shared = Settings(40, 300, frozenset({TINY_EOS}), Sampling(), repeats)
    run_cell(run, telling(said), prompts, drafters, shared, [1, 2, 3])
    assert not any(line["error"] for line in run.lines()), [line["error"] for line in run.lines()]
    run.finish({"divergences": []}) if complete else run.close()
    return run
