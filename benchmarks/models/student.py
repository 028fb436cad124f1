"""A student: some of a target's layers between the target's own embeddings and head; how it is built and kept on disk.

It is kept without the embeddings and head that it shares with its target. This file does not know how a student is
trained (benchmarks/learn/distill.py) or how a draft model grows a tree (goose/sources/draft_model.py).
"""

import copy
import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, LlamaForCausalLM

from benchmarks.errors import UserError
from benchmarks.models.embedded import ensure_embedded
from benchmarks.models.gguf import prepared
from benchmarks.models.load import DTYPES, ModelSpec

FOLDER = "smollm2-draft-4l"  # under the cache root
WEIGHTS = "student.safetensors"
RECORD = "manifest.json"  # how the student was made
BY_FREQUENCY = "ids_by_frequency"  # int32[V] in WEIGHTS, most frequent first
EMBEDDINGS = "model.embed_tokens.weight"  # of the target; its head too
MAKE = "run `make draft` (25 minutes on two cores, once)"


@dataclass(frozen=True, eq=False)
class LoadedDraft:
    model: Any
    ids: np.ndarray  # int64[...]: what it may propose
    by_frequency: np.ndarray  # int64[V]: ids, most frequent first


def make_student(target, layers: Sequence[int]):
    """A model of the target's class with copies of its layers `layers`; embeddings and head are shared and frozen."""
    config = copy.deepcopy(target.config)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[i] for i in layers]
    with torch.random.fork_rng(devices=[]):
        student = type(target)(config).to(target.dtype)
    for new, old in enumerate(layers):
        student.base_model.layers[new].load_state_dict(target.base_model.layers[old].state_dict())
    student.base_model.norm.load_state_dict(target.base_model.norm.state_dict())
    share_ends(student, target)
    return student


def share_ends(student, target) -> None:
    """Gives the student the target's embeddings and head, frozen: its own parameters are the rest."""
    student.set_input_embeddings(target.get_input_embeddings())
    student.set_output_embeddings(target.get_output_embeddings())
    for module in (student.get_input_embeddings(), student.get_output_embeddings()):
        module.requires_grad_(False)


def save_student(student, by_frequency: np.ndarray, record: dict, folder: Path) -> Path:
    """Keeps the student's own weights in half precision; the folder appears whole or not at all."""
    own = {name: p.detach().half().contiguous() for name, p in student.named_parameters() if p.requires_grad}
    own[BY_FREQUENCY] = torch.from_numpy(by_frequency.astype(np.int32))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=folder.parent, ignore_cleanup_errors=True) as work:
        built = Path(work) / "built"
        built.mkdir()
        save_file(own, built / WEIGHTS)
        student.config.save_pretrained(built)
        (built / WEIGHTS).chmod((built / "config.json").stat().st_mode)  # safetensors writes for the owner alone
        record = {**record, "weights_bytes": (built / WEIGHTS).stat().st_size}
        (built / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        if folder.exists():
            folder.rename(Path(work) / "replaced")
        built.rename(folder)
    return folder


def load_student(folder: Path, target: ModelSpec, device: str, dtype: str) -> LoadedDraft:
    """A kept student between the target's embeddings and head. Raises UserError when it is absent or another's."""
    if not (folder / RECORD).is_file():
        raise UserError(f"the draft model of {target.name} is not there ({folder.name} in the cache folder); {MAKE}")
    if target.source != "embedded" and not target.path:
        raise UserError(f"{folder.name} drafts for the embedded model or a copy of it, not for {target.name}")
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    try:
        target_folder = _folder_of(target)
        with safe_open(target_folder / "model.safetensors", "pt") as weights:
            embeddings = weights.get_tensor(EMBEDDINGS)
        with safe_open(folder / WEIGHTS, "pt") as weights:
            own = {name: weights.get_tensor(name) for name in weights.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError) as error:
        raise UserError(f"the draft {folder.name} could not be read ({error}); {MAKE}") from error
    if sha256_of(embeddings) != record["target"]["embeddings_sha256"]:
        raise UserError(f"{folder.name} was distilled from other weights than {target.name}'s; {MAKE}")
    by_frequency = own.pop(BY_FREQUENCY).numpy().astype(np.int64)
    with torch.random.fork_rng(devices=[]):
        student = LlamaForCausalLM(AutoConfig.from_pretrained(folder))
    student.get_input_embeddings().weight = torch.nn.Parameter(embeddings, requires_grad=False)
    student.tie_weights()
    left = student.load_state_dict({name: tensor.float() for name, tensor in own.items()}, strict=False)
    missing = set(left.missing_keys) - {EMBEDDINGS, "lm_head.weight"}
    if missing or left.unexpected_keys:
        raise UserError(f"{folder.name} does not hold the layers its config names; {MAKE}")
    return LoadedDraft(placed(student, device, dtype), np.arange(len(embeddings)), by_frequency)


def _folder_of(target: ModelSpec) -> Path:
    if not target.path:
        return ensure_embedded()
    path = Path(target.path).expanduser()
    return prepared(path).folder if path.is_file() else path


def sha256_of(tensor: torch.Tensor) -> str:
    """Of the values in single precision."""
    return hashlib.sha256(tensor.detach().cpu().float().contiguous().numpy()).hexdigest()


def placed(model, device: str, dtype: str):
    for parameter in model.parameters():  # model.to(dtype) would round the rotary frequencies too
        parameter.data = parameter.data.to(DTYPES[dtype])
    return model.to(device).eval()
