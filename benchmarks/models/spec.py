"""What names a model: the keys of a file of conf/model, and the name that its records show.

It opens no file: how a model is found and loaded is load.py's business, how its settings are composed is run.py's.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.errors import UserError

SOURCES = ("hub", "embedded", "tiny")
WEIGHTS = ("pretrained", "random")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
AUTO = "auto"  # a gpu_dtype: the checkpoint's own half precision
# The names of conf/model and the hub id that each stands for: another one is another model, whatever it is called.
STANDS_FOR = {
    "hf": "",  # for none: it is called by what is loaded
    "llama3": "meta-llama/Meta-Llama-3-8B-Instruct",
    "llama3_1b": "meta-llama/Llama-3.2-1B-Instruct",
    "llama3_3b": "meta-llama/Llama-3.2-3B-Instruct",
    "qwen25coder_0b5": "Qwen/Qwen2.5-Coder-0.5B-Instruct",
    "qwen25coder_1b5": "Qwen/Qwen2.5-Coder-1.5B-Instruct",
    "qwen3": "Qwen/Qwen3-8B",
    "qwen3_0b6": "Qwen/Qwen3-0.6B",
    "qwen3_1b7": "Qwen/Qwen3-1.7B",
    "smollm2": None,
    "tiny": None,
    "vicuna7b": "lmsys/vicuna-7b-v1.3",
    "vicuna13b": "lmsys/vicuna-13b-v1.3",
    "vicuna33b": "lmsys/vicuna-33b-v1.3",
}


@dataclass(frozen=True)
class ModelSpec:
    """One file of conf/model. `path` (a folder or a GGUF file) overrides `source`; `device_map` spreads over GPUs.

    weights: "pretrained" takes the model's own; "random" makes them up at its `shape` (shapes.py), which needs no
    files: for timing alone, since what such a model writes means nothing.
    """

    name: str
    source: str
    hub_id: str | None = None
    path: str | None = None
    gpu_dtype: str = "float16"
    cpu_dtype: str = "float32"
    device_map: str | None = None
    shape: dict[str, Any] | None = field(default=None, hash=False)
    weights: str = "pretrained"

    def __post_init__(self) -> None:
        if self.weights not in WEIGHTS:
            raise UserError(f"model.weights is {self.weights!r}; choose one of {', '.join(WEIGHTS)}")
        if self.source not in SOURCES:
            raise UserError(f"model.source is {self.source!r}; choose one of {', '.join(SOURCES)}")
        for key in ("path", "hub_id"):
            if getattr(self, key) == "":
                raise UserError(f"model.{key}= is empty; give it a value, or leave it out")
        if self.source == "hub" and not (self.hub_id or self.path):
            raise UserError(
                f"model {self.name!r} names no weights; set model.hub_id=OWNER/NAME, model.path=FOLDER or "
                "model.path=FILE.gguf"
            )

    @property
    def shown_name(self) -> str:
        """The name in records: the spec's own, or what is loaded where that is not what a name of ours stands for."""
        stands_for_itself = not self.path and self.hub_id == STANDS_FOR.get(self.name, self.hub_id)
        if self.name not in STANDS_FOR or stands_for_itself:
            return self.name
        if not self.path:
            return (self.hub_id or self.source).rpartition("/")[2]
        path = Path(self.path).expanduser().resolve()
        return path.stem if path.suffix == ".gguf" else path.name
