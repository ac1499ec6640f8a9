#!/usr/bin/env python3
"""Real language models beside float64: logits of 20 prompts, and the same text whatever the threads and the pieces of a prompt.

    language_models_test.py [MODEL...]      SmolLM2-135M-Instruct, Gemma-3-270M; default: all that are installed

The reference is numpy in float64 on the weights as PyPI's gguf dequantises them. Runs with the Python of llm_python.py."""
import os
import pathlib
import sys
import tempfile

import llm_python

if __name__ == "__main__":
    llm_python.enter()

import gguf  # noqa: E402
import numpy as np  # noqa: E402

import gguf_models  # noqa: E402
from tessera import llm  # noqa: E402

BAR = 1e-3  # of logits, of their largest magnitude
PROMPTS = [
    "The capital of France is", "Once upon a time", "def fibonacci(n):\n", "Water boils at", "1, 2, 3, 4, 5,", "A",
    "The quick brown fox jumps over the lazy dog. The quick brown fox", "To be, or not to be, that is the", "SELECT * FROM users WHERE",
    "In 1969, the first humans", "E = mc", "Dear Sir or Madam,\n\nI am writing to", "<html>\n<head>\n<title>", "Bonjour, je m'appelle",
    "Der schnelle braune Fuchs", "the the the the the the the the", "Q: What is a compiler?\nA:", "                ", "é à ü 你好 🙂",
    "My favourite colour is blue because the sky is blue and the sea is blue, and when I look at them I feel",
]


def weights_of(path):
    reader = gguf.GGUFReader(path)
    weights = {tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64) for tensor in reader.tensors}
    metadata = {name: field.contents() for name, field in reader.fields.items() if not name.startswith(("tokenizer.", "GGUF."))}
    return metadata, weights


def check(name, path, folder):
    module = folder / f"{name}.so"
    model = llm.load(path, module=module, threads=1)
    metadata, weights = weights_of(path)
    worst = 0.0
    prompts = [model.tokenizer.encode(text) for text in PROMPTS]
    for ids in prompts:
        want = gguf_models.reference(metadata, weights, np.array(ids))
        found = model.logits(ids, every=True)
        worst = max(worst, np.abs(found - want).max() / np.abs(want).max())
        assert (found.argmax(-1) == want.argmax(-1)).mean() > 0.99, ids
    assert worst < BAR, f"{name}: logits differ by {worst:.2e} of the largest"
    print(f"{name}: logits of {len(prompts)} prompts differ by at most {worst:.1e} of the largest")
    del weights
    long = model.tokenizer.encode(" ".join(PROMPTS))
    every = [*prompts[:6], long]
    want = [list(model.tokens(ids, max_tokens=24, cache=model.new_cache())) for ids in every]
    two = llm.load(path, module=module, threads=2)
    for threads, chunk, other in ((2, 512, two), (1, 5, model), (2, 64, two)):
        other.chunk = chunk
        found = [list(other.tokens(ids, max_tokens=24, cache=other.new_cache())) for ids in every]
        assert found == want, f"{name}: other text with {threads} threads, prompts in pieces of {chunk}"
    print(f"{name}: the same text of {len(every)} prompts for 1 and 2 threads, in one piece and in pieces")


def main():
    models = {name: path for name, path in llm_python.models().items() if not sys.argv[1:] or name in sys.argv[1:]}
    if not models:
        llm_python.skip("no package with a model is installed")
    folder = pathlib.Path(os.environ.get("TESSERA_TEST_LLM_MODULES") or tempfile.mkdtemp(prefix="language_models_test"))
    for name, path in models.items():
        check(name, path, folder)


if __name__ == "__main__":
    main()
