"""Which models and attentions cannot be verified exactly, and that the reason is said."""

import pytest
import torch
import transformers

from goose.engine.families import unsupported_reason
from goose.engine.lm import TreeLM
from toy import tiny_model


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.MistralConfig(sliding_window=4096), "sliding-window or recurrent"),
        (transformers.Qwen2Config(use_sliding_window=True, sliding_window=64, max_window_layers=1), "sliding-window"),
        (transformers.Qwen3Config(use_sliding_window=True, sliding_window=64, max_window_layers=1), "sliding-window"),
        (transformers.GPT2Config(), "family 'gpt2' is not supported"),
        (transformers.Gemma2Config(), "family 'gemma2' is not supported"),
        (transformers.MambaConfig(), "family 'mamba' is not supported"),
        (
            transformers.LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
            "rope_type=dynamic",
        ),
        (transformers.LlamaConfig(rope_scaling={"rope_type": "dynamic", "factor": 2.0}), "rope_type=dynamic"),
    ],
)
def test_what_cannot_be_rolled_back_is_refused_with_the_reason(config, reason):
    assert reason in unsupported_reason(config)
    model = torch.nn.Module()
    model.config = config
    with pytest.raises(ValueError, match=reason):
        TreeLM(model)


@pytest.mark.parametrize(
    "config",
    [
        transformers.LlamaConfig(),
        transformers.MistralConfig(sliding_window=None),
        transformers.Qwen2Config(use_sliding_window=False, sliding_window=64),
        transformers.Qwen3Config(),
        transformers.LlamaConfig(rope_scaling={"rope_type": "linear", "factor": 2.0}),
    ],
)
def test_full_attention_checkpoints_are_accepted(config):
    assert unsupported_reason(config) is None


@pytest.mark.parametrize("attention", ["flash_attention_2", "flex_attention", ""])
def test_attention_that_misreads_a_tree_mask_is_refused(attention):
    with pytest.raises(ValueError, match="choose one of grouped, sdpa, eager"):
        TreeLM(tiny_model(), attention=attention)
