"""What a shape says of a forward's bytes and operations, against the models themselves; random weights at it."""

from types import SimpleNamespace

import pytest
import torch
from conf_files import model_spec

from benchmarks.errors import UserError
from benchmarks.models import load, shapes
from benchmarks.models.load import ModelSpec, load_model
from benchmarks.models.shapes import attention_work, config_of, forward_work, matrix_elements, matrix_work, random_model
from goose.engine.lm import TreeLM
from toy import tiny_model

# Parameters of the published checkpoints.
PUBLISHED = {
    "smollm2": 134_515_008,
    "llama3": 8_030_261_248,
    "qwen3": 8_190_735_360,
    "vicuna7b": 6_738_415_616,
    "vicuna13b": 13_015_864_320,
    "vicuna33b": 32_528_943_616,
    "llama3_1b": 1_235_814_400,
    "llama3_3b": 3_212_749_824,
    "qwen25coder_0b5": 494_032_768,
    "qwen25coder_1b5": 1_543_714_304,
    "qwen3_0b6": 596_049_920,
    "qwen3_1b7": 1_720_574_976,
}
SMALL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}  # fmt: skip


def matrices_of(model) -> int:
    """Counted one by one: every matrix but the embedding table, unless it is the head too."""
    head, table = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    return sum(p.numel() for p in model.parameters() if p.ndim == 2 and (p is head or p is not table))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_shapes_are_the_published_models(name):
    model = random_model(model_spec(name).shape, "meta", torch.float16)
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]
    assert matrix_elements(model.config) == matrices_of(model)
    assert model.dtype == torch.float16


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize("tied", [False, True])
def test_matrices_are_counted_for_every_family(family, tied):
    model = tiny_model(family, tie_word_embeddings=tied)
    assert matrix_elements(model.config) == matrices_of(model)


def test_the_work_of_a_forward_by_hand():
    # d = 16. A layer: q, o 64 x 64 each; k, v 64 x 32 each; three of 64 x 128: 36864. Two layers, and the head 64 x 64.
    config = config_of(SMALL)
    assert matrix_elements(config) == 2 * 36864 + 4096 == 77824
    assert matrix_work(config, 3, 2) == shapes.Work(2 * 77824, 2 * 3 * 77824)
    # 2 layers x (K and V) x 2 heads x 16 x (10 + 3) rows x 2 bytes; QK and PV for 4 heads of 3 nodes over 13 rows.
    assert attention_work(config, 3, 10, 2) == shapes.Work(2 * 2 * 2 * 16 * 13 * 2, 2 * 2 * (2 * 4 * 3 * 13 * 16))
    assert forward_work(config, 3, 10, 2) == shapes.Work(2 * 77824 + 3328, 6 * 77824 + 9984 * 2)


def test_random_weights_lie_on_the_device_in_the_dtype_and_are_the_same_each_time():
    state = torch.get_rng_state()
    one, other = (random_model(SMALL, "cpu", torch.bfloat16) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert {p.dtype for p in one.parameters()} == {torch.bfloat16}
    assert one.model.rotary_emb.inv_freq.dtype == torch.float32
    assert not one.training
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    logits = TreeLM(one).prefill([1, 2, 3], reserve=1)
    assert torch.isfinite(logits).all()
    assert logits.std() > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"model_type": "never-heard-of"}, "makes no config"),
        ({"model_type": "gpt2"}, "'gpt2' is not supported"),
        ({"model_type": "mistral", "sliding_window": 32}, "sliding-window"),
    ],
)
def test_what_is_no_shape_is_refused(changes, message):
    with pytest.raises(UserError, match=message) as caught:
        config_of(SMALL | changes)
    assert "\n" not in str(caught.value)


def test_a_shape_is_left_as_it_was():
    shape = model_spec("llama3").shape
    before = repr(shape)
    config_of(shape)
    assert repr(shape) == before


def test_weights_that_do_not_fit_are_refused_and_other_errors_are_not_hidden(monkeypatch):
    def fails(text):
        def from_config(*_, **__):
            raise RuntimeError(text)

        monkeypatch.setattr(shapes, "AutoModelForCausalLM", SimpleNamespace(from_config=from_config))

    fails("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
    with pytest.raises(UserError, match="16 GB of random weights do not fit on cpu"):
        random_model(model_spec("llama3").shape, "cpu", torch.bfloat16)
    fails("something else")
    with pytest.raises(RuntimeError, match="something else"):
        random_model(SMALL, "cpu", torch.bfloat16)


# As a model config


def test_a_spec_with_random_weights_needs_no_files_and_says_what_it_is(monkeypatch):
    monkeypatch.setattr(load, "_locate", lambda spec: pytest.fail("files were looked for"))
    spec = ModelSpec("small", "hub", hub_id="someone/small", shape=SMALL, weights="random")
    loaded = load_model(spec, device="cpu", dtype="bfloat16")
    assert (loaded.name, loaded.source, loaded.weights, loaded.dtype) == ("small", "random:small", "random", "bfloat16")
    assert loaded.revision.startswith("shape-sha256:")
    assert loaded.tokenizer is None
    wider = ModelSpec("small", "hub", hub_id="x/y", shape=SMALL | {"intermediate_size": 96}, weights="random")
    assert load_model(wider, device="cpu").revision != loaded.revision
    assert hash(spec) != 0  # a shape is a dictionary, and specs are keys


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": None}, "has no shape"),
        ({"path": "/models/small"}, "model.path places a checkpoint"),
        ({"device_map": "auto"}, "model.device_map places a checkpoint"),
        ({"weights": "none"}, "model.weights is 'none'; choose one of pretrained, random"),
    ],
)
def test_settings_that_random_weights_exclude(changes, message):
    with pytest.raises(UserError, match=message):
        load_model(ModelSpec(**{"name": "small", "source": "embedded", "shape": SMALL, "weights": "random", **changes}))


def test_specs_by_name():
    spec = model_spec("vicuna33b", weights="random")
    assert (spec.hub_id, spec.weights, spec.shape["num_hidden_layers"]) == ("lmsys/vicuna-33b-v1.3", "random", 60)
    with pytest.raises(UserError, match="there is no model 'gpt5'; conf/model has hf, llama3, "):
        model_spec("gpt5")
