"""Faster versions of the parts of a decoder layer: fewer and larger operations, the same numbers up to rounding.

They replace a layer's norms, attention and dense MLP during our own forwards only; the model keeps its modules, and
transformers' own generate() on it stays what it was. A part of another kind (an MLP of experts, Gemma's norms) runs as
the model's own module. Nothing here knows trees, masks or which rows a cache keeps. What helped and what did not:
results/notes.md.

Dimension letters: n = rows, d = head dim, H = query heads, K = key/value heads.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch.nn import functional as F

from goose.engine.attention import grouped_attention

_PACKED_FOR_ROWS = 16  # what oneDNN picks its blocks for; from 1 to 64 rows they beat the plain layout
_FEWEST_ROWS = 4  # with fewer, oneDNN reads the weights more slowly than with four
# Linear layers that read the same input, by the families' names: one product each.
_INPUTS_OF_ATTENTION = (("q_proj", "k_proj", "v_proj"), ("qkv_proj",))
_INPUTS_OF_MLP = (("gate_proj", "up_proj"), ("gate_up_proj",))


def not_fusable_reason(model: Any) -> str | None:
    """Why this model's layers have no faster version, in a sentence; None when they have one."""
    for layer in model.base_model.layers:
        products = [*_linears(layer.self_attn, _INPUTS_OF_ATTENTION), layer.self_attn.o_proj]
        if _is_dense(layer.mlp):
            products += [*_linears(layer.mlp, _INPUTS_OF_MLP), layer.mlp.down_proj]
        for product in products:
            if type(product) is not torch.nn.Linear:
                return f"its products are {type(product).__name__}, where plain linear layers are expected"
    return None


def _linears(module: Any, choices: Sequence[Sequence[str]]) -> list[Any]:
    """The layers of the first of `choices` that the module has."""
    names = next(names for names in choices if hasattr(module, names[0]))
    return [getattr(module, name) for name in names]


def _is_dense(mlp: torch.nn.Module) -> bool:
    return hasattr(mlp, "down_proj")


def _is_plain_norm(module: torch.nn.Module) -> bool:
    """Root-mean-square normalisation times its weight; Gemma's multiplies by 1 + weight and has no variance_epsilon."""
    return type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon")


class Product:
    """x W^T + b of linear layers that read the same x, as one product: [n, in] -> [n, sum of out].

    On a CPU the weights are kept a second time, in oneDNN's blocked layout. On a GPU the layers' own weights become
    views of the one block that is read: the same values, nothing kept twice.
    """

    def __init__(self, linears: Sequence[torch.nn.Linear]):
        self._weight = _joined([linear.weight for linear in linears])
        self._bias = None if linears[0].bias is None else _joined([linear.bias for linear in linears])
        self._packed = _packed(self._weight)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed is not None:
            n = x.shape[0]
            if n < _FEWEST_ROWS:
                x = F.pad(x, (0, 0, 0, _FEWEST_ROWS - n))
            return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")[:n]
        return F.linear(x, self._weight, self._bias)


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    if len(parts) == 1:
        return parts[0].detach()
    joined = torch.cat([part.detach() for part in parts])
    if joined.device.type != "cpu":
        for part, view in zip(parts, joined.split([len(part) for part in parts]), strict=True):
            part.data = view
    return joined


def _packed(weight: torch.Tensor) -> torch.Tensor | None:
    """The weight in oneDNN's blocked layout; None where that is unavailable or no gain."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return None
    return torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR_ROWS)


class Norm:
    """Root-mean-square normalisation over the last dimension."""

    def __init__(self, norm: Any):
        self._weight, self._eps, self.size = norm.weight.detach(), norm.variance_epsilon, len(norm.weight)
        self._is_cpu_fp32 = self._weight.device.type == "cpu" and self._weight.dtype == torch.float32
        self._eps_tensor = torch.full((1,), self._eps)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not self._is_cpu_fp32:
            return F.rms_norm(x, (self.size,), self._weight, self._eps)
        # torch's own is one kernel on a GPU and nine operations on a CPU; these are five.
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.addcmul(self._eps_tensor, length, length, value=1 / self.size).rsqrt_()
        return (x * scale).mul_(self._weight)


class Attention:
    """transformers' attention module of the supported families: one product for queries, keys and values."""

    def __init__(self, attention: Any, config: Any):
        self._in = Product(_linears(attention, _INPUTS_OF_ATTENTION))
        self._out = Product([attention.o_proj])
        # Over each head (Qwen3), or over the whole projection (OLMo 2).
        self._norms = [Norm(attention.q_norm), Norm(attention.k_norm)] if hasattr(attention, "q_norm") else None
        self._rotates = bool(getattr(attention, "use_rope", True))
        self._layer, self._scaling, self._d = attention.layer_idx, attention.scaling, attention.head_dim
        self._n_heads, self._n_kv_heads = config.num_attention_heads, config.num_key_value_heads

    def __call__(
        self, hidden_states, position_embeddings, attention_mask=None, cache=None, past_key_values=None, **_
    ) -> tuple[torch.Tensor, None]:
        """[1, n, hidden] -> [1, n, hidden]. The cache comes under its new or its old name."""
        n, d, n_heads = hidden_states.shape[1], self._d, self._n_heads
        heads = self._in(hidden_states[0]).view(n, -1, d)  # [n, H + 2 K, d]
        turned, values = heads[:, : n_heads + self._n_kv_heads], heads[:, n_heads + self._n_kv_heads :]
        if self._norms is not None:
            q_norm, k_norm = self._norms
            turned = torch.cat([_normed(q_norm, turned[:, :n_heads]), _normed(k_norm, turned[:, n_heads:])], dim=1)
        if self._rotates:
            turned = _rotated(turned, *position_embeddings)
        turned = turned.transpose(0, 1)[None]  # [1, H + K, n, d]
        keys, values = (past_key_values if cache is None else cache).update(
            turned[:, n_heads:], values.transpose(0, 1)[None], self._layer
        )
        out = grouped_attention(None, turned[:, :n_heads], keys, values, attention_mask, self._scaling)[0]
        return self._out(out.reshape(n, n_heads * d))[None], None


def _normed(norm: Norm, heads: torch.Tensor) -> torch.Tensor:
    """heads [n, heads, d], normalised over as many numbers as the norm has weights."""
    return norm(heads.reshape(len(heads), -1, norm.size)).view(heads.shape)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of x [n, heads, d] by cos and sin [1, n, r], whose halves are alike; beyond r, x stays."""
    r = cos.shape[-1]
    if r < x.shape[-1]:
        return torch.cat([_rotated(x[..., :r], cos, sin), x[..., r:]], dim=-1)
    half = r // 2
    cos, sin = cos[0, :, None], sin[0, :, None, :half]
    out = x * cos
    out[..., :half].addcmul_(x[..., half:], sin, value=-1)
    out[..., half:].addcmul_(x[..., :half], sin)
    return out.to(x.dtype)  # OLMo 2 rotates half precision in single


class Mlp:
    """The gated feed-forward: one product for gate and up."""

    def __init__(self, mlp: Any):
        self._in = Product(_linears(mlp, _INPUTS_OF_MLP))
        self._out = Product([mlp.down_proj])
        self._activation = mlp.act_fn if hasattr(mlp, "act_fn") else mlp.activation_fn

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self._in(x[0]).chunk(2, dim=-1)
        return self._out(self._activation(gate) * up)[None]


class FusedLayers:
    """The faster parts of a whole model, patched in for one forward. The weights must not change meanwhile.

    An entry in a module's __dict__ is found before its submodule of the same name, so nothing is unregistered.
    own_parts: the classes of the norms and MLPs that run as the model's own modules.
    """

    _made: ClassVar[WeakKeyDictionary[torch.nn.Module, "FusedLayers"]] = WeakKeyDictionary()

    @classmethod
    def of(cls, model: Any) -> "FusedLayers":
        """The model's; made anew when its weights are other ones than they were made of."""
        made = cls._made.get(model)
        if made is None or made._weights != _identity(model):
            made = cls._made[model] = cls(model)
        return made

    def __init__(self, model: Any):
        decoder = model.base_model
        own: set[str] = set()
        self._patches: list[tuple[dict, dict]] = []  # a module's __dict__, and what is put into it
        for module in (decoder, *decoder.layers):
            parts: dict[str, Any] = {}
            for name, child in module.named_children():
                if _is_plain_norm(child):
                    parts[name] = Norm(child)
                elif name == "self_attn":
                    parts[name] = Attention(child, model.config)
                elif name == "mlp" and _is_dense(child):
                    parts[name] = Mlp(child)
                elif name == "mlp" or "norm" in name:
                    own.add(type(child).__name__)
            self._patches.append((module.__dict__, parts))
        self.own_parts = tuple(sorted(own))
        self.head = Product([model.get_output_embeddings()])
        self._weights = _identity(model)

    @contextmanager
    def patched_in(self) -> Iterator[None]:
        try:
            for namespace, parts in self._patches:
                namespace.update(parts)
            yield
        finally:
            for namespace, parts in self._patches:
                for name in parts:
                    namespace.pop(name, None)


def _identity(model: torch.nn.Module) -> list[tuple[int, int]]:
    """Where each weight lies and how often it was written to since it was made."""
    return [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in model.parameters()]
