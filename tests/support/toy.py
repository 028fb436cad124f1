"""The fake models and fixed inputs that tests share: COUNTER, TINY, TREE7 and TREEC.

COUNTER is a target whose next token is (last + 1) mod V. Unlike a random model it accepts everything that was copied
from an ascending run, so it exercises the code behind long acceptances, stop ids and limits.
"""

from collections.abc import Sequence

import numpy as np
import torch

from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, CONTEXT, DraftTree, chain

PARENTS7 = [-1, 0, 0, 1, 1, 2, 3]
TREE7 = DraftTree.from_lists([20, 23, 35, 23, 6, 35, 23], PARENTS7)
TREE7_PROMPT = [5, 6, 7, 8, 9, 10, 11, 7, 8]
TREEC = DraftTree.from_lists([10, 11, 30, 12, 40, 31, 50], PARENTS7)
P0 = [*range(10, 30), 10, 11]


class StubLM:
    """TreeLM's interface over a function from the tokens so far to a row of logits. Keeps no K/V, only the ids."""

    device = torch.device("cpu")

    def __init__(self, next_logits, vocab_size: int, max_positions: int = 10_000):
        self._next_logits = next_logits  # list[int] -> float32[V]
        self.vocab_size = vocab_size
        self.max_positions = max_positions
        self.committed: list[int] = []
        self.largest_position = -1
        self._tree: DraftTree | None = None

    @property
    def n_committed(self) -> int:
        return len(self.committed)

    def reserve(self, n_rows: int) -> None:
        self.committed = []

    def prefill(self, ids: Sequence[int], reserve: int) -> torch.Tensor:
        self.committed = list(ids)
        return self._next_logits(self.committed)[None]

    def prompt_top_k(self, k: int, rows: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
        wanted = range(len(self.committed)) if rows is None else rows
        logits = torch.stack([self._next_logits(self.committed[: i + 1]) for i in wanted])
        values, ids = logits.topk(min(k, self.vocab_size), dim=-1)
        return ids.numpy(), values.softmax(-1).numpy()

    def score(self, tree: DraftTree) -> torch.Tensor:
        self._tree = tree
        self.largest_position = max(self.largest_position, self.n_committed + int(tree.depths.max()))
        paths = [tree.tokens[row].tolist() for row in tree.ancestor_mask]
        return torch.stack([self._next_logits(self.committed + path) for path in paths])

    def commit(self, path: Sequence[int]) -> None:
        self.committed += self._tree.tokens[list(path)].tolist()


def counter(vocab_size: int = 64, max_positions: int = 10_000) -> StubLM:
    """COUNTER: the next token is (last + 1) mod V."""

    def next_logits(ids: Sequence[int]) -> torch.Tensor:
        logits = torch.zeros(vocab_size)
        logits[(ids[-1] + 1) % vocab_size] = 10.0
        return logits

    return StubLM(next_logits, vocab_size, max_positions)


# What each family has and the others lack, switched on. Families of goose.engine.families.FAMILIES.
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "experts_implementation": "batched_mm",
}
TINY_FAMILIES = {
    "llama": ("Llama", {}),
    "mistral": ("Mistral", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "phi3": (
        "Phi3",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    ),
    "olmo2": ("Olmo2", {}),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 0]}),
    "granite": (
        "Granite",
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.5,
            "logits_scaling": 4.0,
        },
    ),
    "gemma": ("Gemma", {}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "batched_mm"}),
    "qwen2_moe": ("Qwen2Moe", {**_EXPERTS, "shared_expert_intermediate_size": 32}),
    "qwen3_moe": ("Qwen3Moe", {**_EXPERTS, "mlp_only_layers": [0]}),
}
DENSE_FAMILIES = [name for name, (_, own) in TINY_FAMILIES.items() if "num_experts_per_tok" not in own]


def tiny_model(family: str = "llama", max_positions: int = 512, **overrides) -> torch.nn.Module:
    """TINY: seed 0, two layers, four heads over two K/V heads, every matrix times 6."""
    import transformers

    name, own = TINY_FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(
        **{
            "vocab_size": 64,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": max_positions,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "bos_token_id": 0,
            "eos_token_id": 63,
            "pad_token_id": None,
            **own,
            **overrides,
        }
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(6)
    return model


class ScriptedDrafter:
    """Drafts what `propose(context, budget) -> DraftTree` says; for perfect, adversarial and random drafts."""

    overdraft = 0

    def __init__(self, propose, top_k: int = 0):
        self._propose = propose
        self.top_k = top_k

    def begin(self, prompt_ids, prefill) -> None:
        self.n_steps = 0

    def draft(self, context, budget) -> DraftTree:
        self.n_steps += 1
        return self._propose(context, budget)

    def observe(self, tree, verdict, scored) -> None:
        pass


def chain_of(context: Sequence[int], tokens: Sequence[int], budget: int) -> DraftTree:
    return chain(context[-1], tokens, CONTEXT, budget)


def random_tree(rng: np.random.Generator, root: int, n_nodes: int, vocab_size: int) -> DraftTree:
    """A random tree of at most n_nodes nodes with distinct siblings."""
    tokens, parents, seen = [root], [-1], set()
    for _ in range(n_nodes - 1):
        parent, token = int(rng.integers(len(tokens))), int(rng.integers(vocab_size))
        if (parent, token) not in seen:
            seen.add((parent, token))
            tokens.append(token)
            parents.append(parent)
    return DraftTree.from_lists(tokens, parents, [0] + [ADJACENCY] * (len(tokens) - 1))


def begun_knowing(drafter, successors: dict):
    """The drafter at a new request, its table holding token or (previous, token) -> {successor: score}, best first."""
    drafter.begin([0], Prefill(0, frozenset(), None))
    for key, row in successors.items():
        previous, token = key if isinstance(key, tuple) else (None, key)
        ids, scores = np.array([list(row)]), np.array([list(row.values())], dtype=np.float32)
        drafter.table.learn([token], [previous], ids, scores)
    return drafter


def shown(tree: DraftTree) -> list[str]:
    """Every node as the tokens of its path, root first."""
    return [" ".join(str(tree.tokens[node]) for node in np.flatnonzero(row)) for row in tree.ancestor_mask]


def level_sizes(tree: DraftTree) -> list[int]:
    return np.bincount(tree.depths).tolist()
