#!/usr/bin/env python3
"""Perplexity of a language model on a text, and how far its logits are from those of another precision.

    bench/perplexity.py MODEL.gguf TEXT [--precision f32,i8] [--windows 16] [--threads 1] [--modules FOLDER]

Separate windows of 512 tokens, over all tokens but the first and over the second half, as shared/peers/llm_peers.py --prepare has
it of llama.cpp. Beside each precision but the first: the mean of Kullback-Leibler's divergence from the first one's, in nats,
and how often the best token is the same."""
import argparse
import os
import sys

import numpy as np

from tessera import llm

WINDOW = 512


def log_chances(logits):
    z = logits.astype(np.float64)
    z -= z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--precision", default="f32,i8")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--modules", help="where compiled models are, or go to")
    given = parser.parse_args()
    names = given.precision.split(",")
    module = {name: os.path.join(given.modules, f"{os.path.basename(given.model)}.{name}.so") if given.modules else None for name in names}
    models = {name: llm.load(given.model, precision=name, threads=given.threads, module=module[name]) for name in names}
    tokenizer = models[names[0]].tokenizer
    with open(given.text, encoding="utf8", errors="replace") as file:
        ids = tokenizer.encode(file.read(), begin=False)
    begin = tokenizer.encode("x")[: len(tokenizer.encode("x")) - len(tokenizer.encode("x", begin=False))]
    losses = {name: [] for name in names}
    divergence, same = {name: [] for name in names}, {name: [] for name in names}
    for window in range(min(given.windows, len(ids) // WINDOW)):
        part = ids[window * WINDOW : (window + 1) * WINDOW]
        part[: len(begin)] = begin
        first = None
        for name in names:
            found = log_chances(models[name].logits(part, every=True))
            losses[name].append(-found[np.arange(WINDOW - 1), part[1:]])
            first = found if first is None else first
            divergence[name].append((np.exp(first) * (first - found)).sum(1).mean())
            same[name].append((first.argmax(1) == found.argmax(1)).mean())
    for name in names:
        loss = np.stack(losses[name])
        whole, half = np.exp(loss.mean()), np.exp(loss[:, WINDOW // 2 - 1 :].mean())
        line = f"{name}: perplexity {whole:.3f} (all but the first), {half:.3f} (second half)"
        if name != names[0]:
            line += f"; divergence from {names[0]} {np.mean(divergence[name]):.5f}, the same best token {100 * np.mean(same[name]):.1f} %"
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
