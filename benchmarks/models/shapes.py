"""A model's shape: what one forward of it must read and compute, and the same network with random weights.

A shape is a dictionary of a transformers config's own fields, `model_type` among them, so that a published model can be
timed without its checkpoint: cost does not depend on values. Nothing here knows what a model writes. Needs torch and
transformers alone.

Dimension letters: n = nodes of a forward, L = committed tokens before it, b = bytes of one element.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.errors import UserError, first_line
from goose.engine.families import head_dim, unsupported_reason

REQUIRED = (
    "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "vocab_size", "max_position_embeddings", "tie_word_embeddings",
)  # fmt: skip


@dataclass(frozen=True)
class Work:
    """What a forward must at least move and compute."""

    n_bytes: int
    n_flops: int  # a multiplication and an addition are two


def config_of(shape: Mapping[str, Any]) -> Any:
    """The transformers config of a shape. Raises UserError for one that is incomplete or cannot be verified exactly."""
    missing = [key for key in REQUIRED if shape.get(key) is None]
    if missing:
        raise UserError(f"the model's shape lacks {', '.join(missing)}; compare conf/model")
    try:
        config = AutoConfig.for_model(**deepcopy(dict(shape)))  # transformers completes nested fields in place
    except (TypeError, ValueError, KeyError) as error:
        raise UserError(
            f"the model's shape makes no config ({first_line(error)}); see conf/model/llama3.yaml"
        ) from error
    if reason := unsupported_reason(config):
        raise UserError(f"the model's shape: {reason}")
    return config


def random_model(shape: Mapping[str, Any], device: str | torch.device, dtype: torch.dtype, seed: int = 0) -> Any:
    """A causal LM of this shape with random weights, made on `device` in `dtype`: no copy of it ever lies elsewhere.

    Raises UserError when the shape is none or the model does not fit.
    """
    device, config = torch.device(device), config_of(shape)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), device:
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    except RuntimeError as error:
        if "memory" not in str(error):  # torch's own error of a full GPU; on a CPU a plain RuntimeError
            raise
        gigabytes = dtype.itemsize * (matrix_elements(config) + embedding_elements(config)) / 1e9
        raise UserError(
            f"{gigabytes:.0f} GB of random weights do not fit on {device}; choose a smaller model or another device"
        ) from error
    return model.eval()


def matrix_elements(config: Any) -> int:
    """Elements of all matrices that every forward multiplies by: the layers' and the head's, tied or not.

    Left out: the embedding table, of which a forward reads n rows, and norms and biases (less than 0.1 %).
    """
    d = head_dim(config)
    hidden, n_heads, n_kv_heads = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
    attention = hidden * d * (n_heads + 2 * n_kv_heads) + n_heads * d * hidden
    layer = attention + 3 * hidden * config.intermediate_size
    return config.num_hidden_layers * layer + config.vocab_size * hidden


def embedding_elements(config: Any) -> int:
    """Elements of an embedding table of its own; 0 when the head is it."""
    return 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size


def matrix_work(config: Any, n_nodes: int, element_bytes: int) -> Work:
    """The matrix products: W b bytes and 2 n W operations, with W = matrix_elements."""
    weights = matrix_elements(config)
    return Work(weights * element_bytes, 2 * n_nodes * weights)


def attention_work(config: Any, n_nodes: int, context: int, element_bytes: int) -> Work:
    """Attention of n nodes over L + n rows of K and V: each row read once, and 2 + 2 operations an element and node.

    Masked rows count: the kernels compute them.
    """
    rows, d, n_layers = context + n_nodes, head_dim(config), config.num_hidden_layers
    n_bytes = 2 * n_layers * config.num_key_value_heads * d * rows * element_bytes
    return Work(n_bytes, 4 * n_layers * config.num_attention_heads * d * rows * n_nodes)


def forward_work(config: Any, n_nodes: int, context: int, element_bytes: int) -> Work:
    """Both parts together. Activations are left out: they stay in caches."""
    parts = matrix_work(config, n_nodes, element_bytes), attention_work(config, n_nodes, context, element_bytes)
    return Work(sum(part.n_bytes for part in parts), sum(part.n_flops for part in parts))
