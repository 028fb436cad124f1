"""tiny: a random Llama over bytes, made on the spot, for tests and dry runs. What it writes means nothing."""

from typing import Any

TINY_SCALE = 6.0  # as initialised, random weights give the same few tokens for every context
TINY_BOS, TINY_EOS, TINY_PAD = 256, 257, 258  # after the 256 bytes
TINY_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def tiny_model() -> Any:
    """Random weights, the same on every call; the caller's random state is left as it was."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=259, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=False, bos_token_id=TINY_BOS,
        eos_token_id=TINY_EOS, pad_token_id=TINY_PAD, attn_implementation="sdpa", dtype="float32",
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.random.default_generator.manual_seed(0)  # torch.manual_seed would also reseed every GPU
        model = LlamaForCausalLM(config)
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(TINY_SCALE)
    return model.eval()


def tiny_tokenizer() -> Any:
    """Token id = byte value. Adds nothing on its own; only the chat template starts with <bos>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # The byte-level convention writes a byte without a printable Latin-1 character as the next free one from 256 on.
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    vocab = {chr(byte if byte in printable else next(spare)): byte for byte in range(256)}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False, **special)
    tokenizer.chat_template = TINY_TEMPLATE
    return tokenizer
