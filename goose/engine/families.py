"""Which models can be verified exactly, and why another cannot. Reads configurations only, never weights.

Exact means: the logits of every node of a draft tree equal those of a forward without a cache over the context and the
node's ancestors. tests/goose/engine/test_families.py checks this for each family.
"""

from typing import Any

# transformers' model_type -> models of that kind. All have full attention in every layer and rotary (or no) positions.
FAMILIES = {
    "llama": "Llama 2 and 3, SmolLM2",
    "mistral": "Mistral from v0.2 on",
    "qwen2": "Qwen2, Qwen2.5",
    "qwen3": "Qwen3",
    "phi3": "Phi-3 and Phi-4 without longrope",
    "olmo2": "OLMo 2",
    "smollm3": "SmolLM3",
    "granite": "Granite 3",
    "gemma": "Gemma 1",
    "mixtral": "Mixtral",
    "qwen2_moe": "Qwen1.5-MoE, Qwen2-MoE",
    "qwen3_moe": "Qwen3-MoE",
}
_WINDOWS = "some of its layers attend within a sliding window, whose state cannot be rolled back to an accepted path"
_RECURRENT = "its recurrent layers keep a state that cannot be rolled back to an accepted path"
REFUSED = {
    "gemma2": _WINDOWS,
    "gemma3": _WINDOWS,
    "gemma3_text": _WINDOWS,
    "gpt_oss": _WINDOWS,
    "cohere2": _WINDOWS,
    "mamba": _RECURRENT,
    "mamba2": _RECURRENT,
    "qwen3_next": _RECURRENT,
    "granitemoehybrid": _RECURRENT,
    "deepseek_v3": "its latent attention does not store keys and values of one width",
}


def unsupported_reason(config: Any) -> str | None:
    """Why a model with this configuration cannot be verified exactly, in a sentence; None when it can."""
    name = getattr(config, "model_type", type(config).__name__)
    if name not in FAMILIES:
        reason = f": {REFUSED[name]}" if name in REFUSED else ""
        return f"model family {name!r} is not supported{reason} (supported: {', '.join(FAMILIES)}); choose one of those"
    layer_types = set(getattr(config, "layer_types", None) or [])
    window = getattr(config, "sliding_window", None)
    # A window as wide as the model's positions hides nothing.
    narrow = window and window < config.max_position_embeddings and getattr(config, "use_sliding_window", True)
    if layer_types - {"full_attention"} or (narrow and not layer_types):
        return (
            f"this {name} has sliding-window or recurrent layers, whose state cannot be rolled back to an accepted "
            "path; use a full-attention checkpoint"
        )
    if getattr(config, "use_bidirectional_attention", False):
        return f"this {name} attends to later tokens, which do not exist yet; use a causal checkpoint"
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        return (
            f"this {name} rescales its rotary positions with the sequence length (rope_type={rope['rope_type']}), so a "
            "drafted node would change the accepted ones; use a checkpoint with fixed rotary scaling"
        )
    return None


def head_dim(config: Any) -> int:
    """The width of one attention head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
