"""ONNX's Attention with a cache and a mask whose sizes are open: the mask's keys are those of the cache and the new ones
together, whatever dimension the model has for them.    open_attention_test.py [unittest options]"""

import itertools
import unittest

import numpy as np
import tessera
from onnx import TensorProto, helper

RANDOM = np.random.default_rng(2)


def model_of(opset, groups, rank, causal):
    heads = 2 * groups

    def info(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    mask = {2: ["S", "T"], 3: [heads, "S", "T"], 4: ["B", 1, "S", "T"]}[rank]
    inputs = [
        info("q", ["B", heads, "S", 4]), info("k", ["B", 2, "S", 4]), info("v", ["B", 2, "S", 4]), info("mask", mask),
        info("past_k", ["B", 2, "P", 4]), info("past_v", ["B", 2, "P", 4]),
    ]
    names = ["y", "keys", "values"]
    node = helper.make_node("Attention", [value.name for value in inputs], names, is_causal=int(causal))
    graph = helper.make_graph([node], "attention", inputs, [info(name, None) for name in names])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


class OpenAttention(unittest.TestCase):
    def test_masks_of_caches(self):
        for opset, groups, rank, causal in ((23, 1, 4, False), (23, 2, 3, True), (24, 2, 2, False), (24, 1, 4, True)):
            model = tessera.compile(
                model_of(opset, groups, rank, causal), dims={"B": (1, 2), "S": (1, 3), "P": (1, 4), "T": (2, 7)}, threads=1,
            )
            for b, s, p in itertools.product((1, 2), (1, 3), (1, 4)):
                def floats(*shape):
                    return RANDOM.standard_normal(shape).astype(np.float32)

                heads = 2 * groups
                mask = {2: (s, p + s), 3: (heads, s, p + s), 4: (b, 1, s, p + s)}[rank]
                x = {
                    "q": floats(b, heads, s, 4), "k": floats(b, 2, s, 4), "v": floats(b, 2, s, 4), "mask": floats(*mask),
                    "past_k": floats(b, 2, p, 4), "past_v": floats(b, 2, p, 4),
                }
                keys, values = (np.concatenate([x["past_" + name], x[name]], 2) for name in "kv")
                scores = x["q"] @ np.repeat(keys, groups, 1).transpose(0, 1, 3, 2) / 2 + x["mask"]
                if causal:
                    scores = np.where(np.arange(p + s) <= np.arange(s)[:, None] + p, scores, -np.inf)
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                weights /= weights.sum(-1, keepdims=True)
                y, new_keys, new_values = model.run(x)
                np.testing.assert_allclose(y, weights @ np.repeat(values, groups, 1), atol=1e-5)
                np.testing.assert_array_equal(new_keys, keys)
                np.testing.assert_array_equal(new_values, values)


if __name__ == "__main__":
    unittest.main()
