"""What a checkpoint's generation_config says: which ids end an output, and what would change greedy decoding."""

import reprlib
from typing import Any

from benchmarks.errors import UserError

# Fields of generation_config. Unset or falsy always leaves greedy decoding alone; in the first group 1 does so too.
_ONE_IS_NEUTRAL = ("temperature", "num_beams", "repetition_penalty", "encoder_repetition_penalty", "guidance_scale")
_ZERO_IS_NEUTRAL = (
    "do_sample", "min_length", "min_new_tokens", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "force_words_ids", "constraints", "sequence_bias", "suppress_tokens", "begin_suppress_tokens",
    "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty", "diversity_penalty",
    "penalty_alpha", "dola_layers", "stop_strings", "remove_invalid_values", "watermarking_config", "token_healing",
)  # fmt: skip
_ONLY_WHEN_SAMPLING = ("top_p", "top_k", "min_p", "typical_p", "top_h", "epsilon_cutoff", "eta_cutoff")


def generation_notice(model: Any) -> str | None:
    """A sentence on what the checkpoint's generation_config would add to greedy decoding; None when it adds nothing."""
    config = getattr(model, "generation_config", None)
    fields = _ZERO_IS_NEUTRAL + _ONE_IS_NEUTRAL + (_ONLY_WHEN_SAMPLING if getattr(config, "do_sample", None) else ())
    found = []
    for name in fields:
        value = getattr(config, name, None)
        if value and not (value == 1 and name in _ONE_IS_NEUTRAL):
            found.append(f"{name}={reprlib.repr(value)}")
    return f"the model's generation_config sets {', '.join(found)}; ignored in every arm" if found else None


def stop_ids(model: Any, tokenizer: Any, rule: str) -> frozenset[int]:
    """The ids that end an output; an empty set when nothing declares one, and then only the length limit does.
    rule "generation_config": the checkpoint's eos_token_id (or several), else the tokenizer's; "tokenizer": only that.
    """
    if rule not in ("generation_config", "tokenizer"):
        raise UserError(f"stop_rule is {rule!r}; choose generation_config or tokenizer")
    ids = tokenizer.eos_token_id
    if rule == "generation_config":
        declared = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        ids = ids if declared in (None, []) else declared
    if ids is None:
        return frozenset()
    return frozenset(int(token) for token in (ids if isinstance(ids, (list, tuple)) else [ids]))
