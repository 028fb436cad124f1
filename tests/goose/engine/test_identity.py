"""Digests of shape and weights: what must change them, and what must not."""

from copy import deepcopy

import pytest
import torch

from goose.engine.identity import shape_digest, weights_digest
from toy import tiny_model


def changed(config, **fields):
    other = deepcopy(config)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


@pytest.mark.parametrize(
    "fields",
    [
        {"num_hidden_layers": 3},
        {"hidden_size": 128},
        {"num_attention_heads": 8},
        {"num_key_value_heads": 4},
        {"head_dim": 32},
        {"intermediate_size": 256},
        {"vocab_size": 65},
        {"num_experts": 8},
        {"num_experts_per_tok": 4},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_whatever_changes_the_work_changes_the_shape(fields):
    config = tiny_model().config
    assert shape_digest(changed(config, **fields)) != shape_digest(config)


def test_a_shape_is_that_of_every_checkpoint_that_costs_the_same():
    config = tiny_model().config
    same = changed(config, max_position_embeddings=64, tie_word_embeddings=True, rms_norm_eps=1e-3, bos_token_id=5)
    assert shape_digest(same) == shape_digest(config)
    assert shape_digest(changed(config, head_dim=None)) == shape_digest(config)  # 64 / 4 heads = 16, as it says
    assert shape_digest(tiny_model("qwen3").config) != shape_digest(config)


def test_the_same_weights_have_one_digest_and_any_matrix_counts():
    digest = weights_digest(tiny_model())
    assert weights_digest(tiny_model()) == digest
    for name, _ in tiny_model().named_parameters():
        model = tiny_model()
        with torch.no_grad():
            model.get_parameter(name).add_(1e-3)
        assert weights_digest(model) != digest, name


def test_what_changes_logits_without_a_weight_counts_too():
    digest = weights_digest(tiny_model())
    other = tiny_model()
    other.config.rms_norm_eps *= 10
    assert weights_digest(other) != digest
    other = tiny_model()
    theta = other.config.rope_parameters
    other.config.rope_parameters = dict(reversed({**theta}.items()))
    assert weights_digest(other) == digest  # the order of keys says nothing
    other.config.rope_parameters = {**theta, "rope_theta": 5.0}
    assert weights_digest(other) != digest
    assert weights_digest(tiny_model().to(torch.bfloat16)) != digest
