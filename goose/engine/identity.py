"""What a model is, whatever it is called: a digest of its shape, which decides its cost, and one of its weights.

Two checkpoints of one shape cost the same and answer differently, so measured seconds are kept by shape and everything
learnt from answers by weights. Knows no file and no name.
"""

import hashlib
from typing import Any

import torch

# Fields of a transformers config that decide what a forward moves and computes. Absent ones count as None.
SHAPE_FIELDS = (
    "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
    # mixture of experts
    "num_local_experts", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "shared_expert_intermediate_size", "decoder_sparse_step", "mlp_only_layers",
)  # fmt: skip
# Numbers of a config that change the logits and lie in no weight.
VALUE_FIELDS = (
    "rope_parameters", "rms_norm_eps", "layer_norm_eps", "hidden_act", "num_experts_per_tok", "norm_topk_prob",
    "embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling",
    "final_logit_softcapping", "no_rope_layers",
)  # fmt: skip
_SAMPLES = 256  # numbers read of each weight


def shape_digest(config: Any) -> str:
    """Sixteen hexadecimal digits of a transformers config's shape: equal for all checkpoints that cost the same.

    The dtype is not in it, nor the number of positions, nor whether head and embedding are one matrix.
    """
    n_heads = config.num_attention_heads
    fields = {name: getattr(config, name, None) for name in SHAPE_FIELDS}
    fields["num_key_value_heads"] = getattr(config, "num_key_value_heads", None) or n_heads
    fields["head_dim"] = getattr(config, "head_dim", None) or config.hidden_size // n_heads
    return _digest(_plain(fields))


def weights_digest(model: Any) -> str:
    """Sixteen hexadecimal digits of a Hugging Face model's weights as loaded: another dtype is another digest.

    Of each weight some numbers are read, evenly spread: enough to tell checkpoints, their finetunes and merges apart in
    under a second, but not two models that differ in a few single numbers.
    """
    values = {name: getattr(model.config, name, None) for name in VALUE_FIELDS}
    parts = [_plain({"model_type": model.config.model_type, **values}).encode()]
    for name, weight in sorted(model.named_parameters()):
        flat = weight.detach().flatten()
        some = flat[:: len(flat) // _SAMPLES | 1].to("cpu", torch.float32)  # odd: not one column of a matrix
        parts.append(f" {name} {list(weight.shape)} {weight.dtype} ".encode() + some.numpy().tobytes())
    return _digest(*parts)


def _plain(value: Any) -> str:
    """Text that does not depend on the order of a dictionary's keys."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_plain(value[key])}" for key in sorted(value, key=str)) + "}"
    return repr(value)


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()[:16]
