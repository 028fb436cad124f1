"""A GGUF file of a tiny model of any family, made by hand. Not a test file."""

from pathlib import Path

import gguf
import numpy as np

from benchmarks.models.tiny import TINY_BOS, TINY_EOS, TINY_PAD, TINY_TEMPLATE, tiny_tokenizer

HIDDEN, HEADS, KV_HEADS, INNER, LAYERS = 64, 4, 2, 128, 2
PLAIN, CONTROL = 1, 3  # kinds of tokens
VOCAB = 260  # the tiny tokenizer's 259 ids and "he", the one merge


def written(file: Path, *, family: str = "llama", tokenizer: bool = True, seed: int = 0) -> Path:
    """Weights of tiny's shape, random and half of them quantised (Q8_0), with tiny's tokenizer."""
    rng = np.random.default_rng(seed)
    out = gguf.GGUFWriter(file, family)
    out.add_name("a tiny one")
    out.add_context_length(512)
    out.add_embedding_length(HIDDEN)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_rope_dimension_count(HIDDEN // HEADS)
    out.add_rope_freq_base(10000.0)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_vocab_size(VOCAB)
    if tokenizer:
        _add_tokenizer(out)

    def add(name: str, *shape: int, quantised: bool = False) -> None:
        values = np.ones(shape) if len(shape) == 1 else rng.normal(0, 0.3, shape)
        values = values.astype(np.float32)
        if quantised:
            kind = gguf.GGMLQuantizationType.Q8_0
            out.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
        else:
            out.add_tensor(name, values)

    add("token_embd.weight", VOCAB, HIDDEN)
    add("output_norm.weight", HIDDEN)
    add("output.weight", VOCAB, HIDDEN)
    for layer in (f"blk.{i}" for i in range(LAYERS)):
        add(f"{layer}.attn_norm.weight", HIDDEN)
        add(f"{layer}.ffn_norm.weight", HIDDEN)
        add(f"{layer}.attn_q.weight", HIDDEN, HIDDEN, quantised=True)
        for name in ("attn_k", "attn_v"):
            add(f"{layer}.{name}.weight", HIDDEN * KV_HEADS // HEADS, HIDDEN, quantised=True)
        add(f"{layer}.attn_output.weight", HIDDEN, HIDDEN, quantised=True)
        add(f"{layer}.ffn_gate.weight", INNER, HIDDEN, quantised=True)
        add(f"{layer}.ffn_up.weight", INNER, HIDDEN, quantised=True)
        add(f"{layer}.ffn_down.weight", HIDDEN, INNER, quantised=True)
        if family == "qwen2":
            for name, n in (("attn_q", HIDDEN), ("attn_k", HIDDEN // 2), ("attn_v", HIDDEN // 2)):
                add(f"{layer}.{name}.bias", n)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return file


def _add_tokenizer(out: gguf.GGUFWriter) -> None:
    of_id = {i: text for text, i in tiny_tokenizer().get_vocab().items()}
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("default")
    out.add_token_list([*(of_id[i] for i in range(VOCAB - 1)), "he"])
    out.add_token_types([PLAIN] * 256 + [CONTROL] * 3 + [PLAIN])
    out.add_token_merges(["h e"])
    out.add_bos_token_id(TINY_BOS)
    out.add_eos_token_id(TINY_EOS)
    out.add_pad_token_id(TINY_PAD)
    out.add_add_bos_token(False)
    out.add_chat_template(TINY_TEMPLATE)
