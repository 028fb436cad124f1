"""Grouped-query attention for tree verification, registered with transformers under its public interface.

Query heads that share a K/V head are folded into extra query rows, so K/V are read once and never repeated. The mask
is additive float, 0 = visible and -inf = hidden, one row per (query head of the group, node).
"""

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

GROUPED = "goose_grouped"


def grouped_attention(
    module: torch.nn.Module | None,  # unused
    query: torch.Tensor,  # [1, heads, n, d]
    key: torch.Tensor,  # [1, kv heads, L, d]
    value: torch.Tensor,  # [1, kv heads, L, d]
    attention_mask: torch.Tensor | None,  # [1, 1, group * n, L], or None: causal over all L = n rows, or n = 1
    scaling: float | None = None,
    **_,
) -> tuple[torch.Tensor, None]:
    """Attention output [1, n, heads, d], as transformers expects it."""
    n_heads, n, d = query.shape[1:]
    n_kv_heads = key.shape[1]
    if attention_mask is None and n > 1:
        out = scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=n_heads != n_kv_heads
        )
    else:
        # Query head h reads K/V head h // group, so the heads of a group are neighbours and fold by a reshape.
        folded = query.reshape(1, n_kv_heads, n_heads // n_kv_heads * n, d)
        out = scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
        out = out.reshape(1, n_heads, n, d)
    return out.transpose(1, 2), None


AttentionInterface.register(GROUPED, grouped_attention)
