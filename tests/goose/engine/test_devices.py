"""A model spread over several devices: two names of the one CPU stand in for two GPUs.

The layers' devices differ, so K/V lie in two blocks and accelerate's hooks move what goes between layers, as under
model.device_map=auto; that no byte is on the wrong chip only several chips can show.
"""

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module

from baselines.balanced import BalancedDrafter
from goose import GooseDrafter, TreeLM, decode
from goose.engine.cache import TreeCache
from toy import TREE7_PROMPT, tiny_model

HERE, THERE = torch.device("cpu"), torch.device("cpu", 0)


def spread_lm() -> TreeLM:
    model = tiny_model()
    for layer, device in zip(model.model.layers, (HERE, THERE), strict=True):
        add_hook_to_module(layer, AlignDevicesHook(execution_device=device, io_same_device=False))
    lm, config = TreeLM(model, engine="eager"), model.config
    lm._cache = TreeCache([HERE, THERE], config.num_key_value_heads, config.head_dim, lm.dtype)
    return lm


def test_each_device_has_a_block_of_its_own_layers():
    cache = TreeCache([HERE, THERE, HERE], 2, 4, torch.float32)
    cache.reset(5)
    assert [tuple(block.shape) for block in cache._blocks] == [(2, 2, 2, 5, 4), (1, 2, 2, 5, 4)]
    for layer in range(3):
        rows = (10.0 * layer + torch.arange(4)).view(1, 1, 4, 1).expand(1, 2, 4, 4)
        cache.update(rows, -rows, layer)
    cache.commit([0, 2, 3])
    for layer in range(3):
        keys, values = cache._layers[layer]
        assert keys[0, 0, :3, 0].tolist() == [10.0 * layer, 10.0 * layer + 2, 10.0 * layer + 3]
        assert torch.equal(keys, -values)
    assert cache.n_committed == 3


@pytest.mark.parametrize("make", [GooseDrafter, BalancedDrafter])
def test_trees_over_a_spread_model_give_the_same_steps_and_output(make):
    whole = decode(TreeLM(tiny_model(), engine="eager"), TREE7_PROMPT, make(), max_new_tokens=40, node_budget=30)
    spread = decode(spread_lm(), TREE7_PROMPT, make(), max_new_tokens=40, node_budget=30)
    assert spread.output_ids == whole.output_ids
    assert spread.steps.paths == whole.steps.paths
    assert any(len(path) > 1 and path[-1] != len(path) - 1 for path in whole.steps.paths)  # rows were gathered
