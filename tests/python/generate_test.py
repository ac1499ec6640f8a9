#!/usr/bin/env python3
"""`tessera generate` beside tessera.llm: the same tokens of a text, the same text of a prompt, however it is drawn; in little memory.

    generate_test.py TESSERA [MODEL...]      as language_models_test.py"""
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import llm_python

if __name__ == "__main__":
    llm_python.enter()

from language_models_test import PROMPTS  # noqa: E402
from tessera import llm  # noqa: E402

MEGABYTE = 1 << 20
BAR = 30 * MEGABYTE  # beside the module and the caches
LETTERS = ["a", "Z", "é", "ß", "你", "好", "🙂", "\u00a0", " ", " ", "\n", "\t", "\r\n", "0", "12", "٣", "½", "'s", "'LL", ".", "!?",
           "<|im_end|>", "\u2581", "e\u0301", "the", "ing", "def", "<0x41>", "<end_of_turn>"]


def run(program, *arguments, text=None, status=0):
    done = subprocess.run([program, *map(str, arguments)], input=text, capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == status, f"{arguments} ends with {done.returncode}: {done.stderr}"
    return done


def check_tokens(program, path, tokenizer):
    draw = random.Random(5)
    texts = [*PROMPTS, "x", " ", "\n", "a" * 3000, *("".join(draw.choices(LETTERS, k=draw.randint(1, 40))) for _ in range(100))]
    for text in texts:
        found = [int(word) for word in run(program, path, "--tokens", "--prompt", "-", text=text).stdout.split()]
        assert found == tokenizer.encode(text), (text, found, tokenizer.encode(text))
    return len(texts)


def check(tessera, name, path, folder):
    program = pathlib.Path(tessera).parent / "tessera-generate"
    module = folder / f"{name}.so"
    model = llm.load(path, module=module, threads=1)
    count = check_tokens(program, path, model.tokenizer)
    print(f"{name}: the tokens of {count} texts are those of the package tokenizers")
    for prompt in (*PROMPTS[:5], " ".join(PROMPTS)):
        for options in ({}, {"temperature": 0.8, "top_k": 40, "seed": 3}, {"temperature": 1.2, "top_p": 0.9, "seed": 2**40}, {"lookup": 8}):
            flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
            usual = ("--module", module, "--threads", 1, "--prompt", "-", "--max-tokens", 24)
            found = run(tessera, "generate", path, *usual, *flags, text=prompt)
            want = model.generate(prompt, max_tokens=24, **options)
            assert found.stdout == want + "\n", (prompt, options, found.stdout, want)
    print(f"{name}: the same texts")

    stats = run(program, path, module, "--threads", 1, "--prompt", " ".join(PROMPTS), "--max-tokens", 8, "--stats").stderr
    peak = float(re.search(r"at most ([\d.]+) MB", stats)[1]) * MEGABYTE
    cache = sum(4 * array.shape[1] for array in model.new_cache()._arrays) * (len(model.tokenizer.encode(" ".join(PROMPTS))) + 8)
    beside = peak - os.path.getsize(module) - cache
    print(f"{name}: {peak / MEGABYTE:.0f} MB at most, {beside / MEGABYTE:.0f} MB beside the module and the caches")
    assert beside < BAR, f"{name}: {beside / MEGABYTE:.0f} MB beside the module and the caches"

    for arguments, error in (
        ((path, module, "--prompt", ""), "TSR-4038"), ((path, module, "--prompt", "a b " * 3000), "TSR-4038"),
        ((path, module, "--prompt", "a", "--top-p", 2), "TSR-4038"), ((path, path, "--prompt", "a"), "TSR-7003"),
        ((module, module, "--prompt", "a"), "TSR-1070"), (("nothing", module, "--prompt", "a"), "TSR-1001"),
    ):
        assert error in run(program, *arguments, status=1).stderr, (arguments, error)


def main():
    tessera = sys.argv.pop(1)
    models = {name: path for name, path in llm_python.models().items() if not sys.argv[1:] or name in sys.argv[1:]}
    if not models:
        llm_python.skip("no package with a model is installed")
    folder = pathlib.Path(os.environ.get("TESSERA_TEST_LLM_MODULES") or tempfile.mkdtemp(prefix="generate_test"))
    for name, path in models.items():
        check(tessera, name, path, folder)


if __name__ == "__main__":
    main()
