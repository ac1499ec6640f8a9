#!/usr/bin/env python3
"""A small GPT with random weights, for `tessera parallelize`: token embedding, blocks of attention with heads and of a
perceptron, each behind a layer norm, and scores for the next token.

    make_gpt.py FILE.graph [--layers 2] [--width 64] [--heads 4] [--length 16] [--batch 4] [--words 96]
"""
import argparse

import numpy as np

from tessera import graph


def gpt(layers=2, width=64, heads=4, length=16, batch=4, words=96, seed=0, tied=False, dropout=0.0):
    """`tied`: scores are products with the embedding; `dropout`: of what is added to the stream."""
    random = np.random.default_rng(seed)
    g = graph.Graph("gpt")

    def weight(name, *shape):
        return g.constant((random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name=name)

    def norm(x, name):
        scale, bias = np.ones(width, np.float32), np.zeros(width, np.float32)
        return graph.layer_norm(x, g.constant(scale, name=name + ".scale"), g.constant(bias, name=name + ".bias"),
                                epsilon=1e-5, axis=2)

    def of_heads(x, name):
        size = width // heads
        return graph.transpose(graph.reshape(graph.matmul(x, weight(name, width, width)),
                                             shape=[batch, length, heads, size]), perm=[0, 2, 1, 3])

    tokens = g.input("tokens", np.int64, (batch, length))
    positions = g.constant((0.1 * random.standard_normal((length, width))).astype(np.float32), name="positions")
    mask = g.constant(np.tril(np.ones((1, 1, length, length), bool)), name="mask")
    embedding = weight("words", words, width)
    x = graph.add(graph.gather(embedding, tokens, axis=0), positions)

    def added(x, y):
        return graph.add(x, graph.dropout(y, ratio=dropout) if dropout else y)

    for i in range(layers):
        name = f"block{i}"
        y = norm(x, name + ".norm1")
        q, k, v = (of_heads(y, f"{name}.{part}") for part in ("query", "key", "value"))
        y = graph.attention(q, k, v, mask, scale=float((width // heads) ** -0.5))
        y = graph.reshape(graph.transpose(y, perm=[0, 2, 1, 3]), shape=[batch, length, width])
        x = added(x, graph.matmul(y, weight(name + ".project", width, width)))
        y = graph.gelu(graph.matmul(norm(x, name + ".norm2"), weight(name + ".up", width, 4 * width)))
        x = added(x, graph.matmul(y, weight(name + ".down", 4 * width, width)))
    x = norm(x, "norm")
    g.output("scores", graph.matmul(x, embedding, transpose_b=True) if tied else graph.matmul(x, weight("head", width, words)))
    return g


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    for option, default in (("layers", 2), ("width", 64), ("heads", 4), ("length", 16), ("batch", 4), ("words", 96)):
        parser.add_argument("--" + option, type=int, default=default)
    options = vars(parser.parse_args())
    gpt(**{name: value for name, value in options.items() if name != "file"}).save(options["file"])
