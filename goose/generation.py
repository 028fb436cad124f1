"""GOOSE inside transformers' own `generate`: a drafter wrapped as its `custom_generate` callable.

>>> model.generate(**inputs, max_new_tokens=128, custom_generate=goose.generate_with(goose.GooseDrafter()))
"""

import warnings
from collections.abc import Callable

import torch

from goose.engine.contract import Drafter
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.verify import Sampling


def generate_with(
    drafter: Drafter, *, node_budget: int = 60, temperature: float = 0.0, seed: int = 0
) -> Callable[..., torch.Tensor]:
    """A callable for `model.generate(custom_generate=...)`: greedy (or seeded sampling), one sequence.

    It honours the call's max_length / max_new_tokens and eos_token_id. Sampling settings and logits processors of the
    model's generation_config are ignored with a warning. Whatever else would change the answer is refused with a
    ValueError: other stopping criteria, beams, padding, embeddings or positions of the caller's, a cache, a
    dictionary of scores. A `streamer` gets the prompt alone: transformers does not hand it to a callable.
    """
    sampling = Sampling(temperature, seed)
    lm: TreeLM | None = None  # of the model last used: its cache block serves the next call

    def run(model, input_ids, logits_processor=(), stopping_criteria=(), generation_config=None, **kwargs):
        nonlocal lm
        _refuse_unsupported(input_ids, stopping_criteria, generation_config, kwargs)
        if len(logits_processor) or generation_config.do_sample:
            warnings.warn(
                "goose ignores the generation_config's sampling settings and logits processors "
                f"({[type(p).__name__ for p in logits_processor]}); pass temperature= to generate_with to sample",
                stacklevel=2,
            )
        weight = model.get_input_embeddings().weight  # the model may have been moved since the last call
        if lm is None or lm.model is not model or (lm.device, lm.dtype) != (weight.device, weight.dtype):
            lm = TreeLM(model)
        eos = generation_config.eos_token_id
        generation = decode(
            lm,
            input_ids,
            drafter,
            max_new_tokens=generation_config.max_length - input_ids.shape[1],
            stop_ids=[] if eos is None else [eos] if isinstance(eos, int) else list(eos),
            node_budget=node_budget,
            sampling=sampling,
        )
        if generation.stop_reason == "positions":
            warnings.warn(f"stopped at the model's last position, {lm.max_positions - 1}", stacklevel=2)
        new = torch.tensor([generation.output_ids], dtype=input_ids.dtype, device=input_ids.device)
        return torch.cat([input_ids, new], dim=1)

    return run


def _refuse_unsupported(input_ids, stopping_criteria, generation_config, kwargs: dict) -> None:
    if generation_config.num_beams > 1:
        raise ValueError(f"goose has no beam search, got num_beams={generation_config.num_beams}; leave it at 1")
    if generation_config.return_dict_in_generate:
        raise ValueError(
            "goose returns ids only; leave out return_dict_in_generate, or call goose.decode for its steps"
        )
    own = {"MaxLengthCriteria", "EosTokenCriteria"}
    foreign = sorted({type(criterion).__name__ for criterion in stopping_criteria} - own)
    if foreign:
        raise ValueError(f"goose stops at length and EOS only; remove the stopping criteria {foreign}")
    mask = kwargs.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        raise ValueError("goose decodes one unpadded sequence; remove the padding from the prompt")
    if kwargs.get("inputs_embeds") is not None:
        raise ValueError("goose decodes token ids; pass input_ids alone, without inputs_embeds")
    positions = kwargs.get("position_ids")
    if positions is not None and not bool(
        (positions == torch.arange(input_ids.shape[1], device=positions.device)).all()
    ):
        raise ValueError("goose numbers positions from 0; leave out position_ids")
    for name in ("cache", "past_key_values"):
        cache = kwargs.get(name)
        if cache is not None and cache.get_seq_length() > 0:
            raise ValueError(f"goose keeps its own K/V cache and cannot continue from {name}; pass the whole prompt")
