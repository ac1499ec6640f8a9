#!/usr/bin/env python3
"""Tokens are those of the package tokenizers, and their texts too; `tessera generate` writes what tessera.llm does, however it is
drawn; in little memory.

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

import gguf_tokenizers  # noqa: E402
from language_models_test import PROMPTS  # noqa: E402
from tessera import llm  # noqa: E402

MEGABYTE = 1 << 20
BAR = 30 * MEGABYTE  # beside the module and the caches
FIRST_TOKEN = {"SmolLM2-135M-Instruct": 0.4}  # seconds, for a prompt of 64 tokens
LETTERS = ["a", "Z", "é", "ß", "你", "好", "🙂", "\u00a0", " ", " ", "\n", "\t", "\r\n", "0", "12", "٣", "½", "'s", "'LL", ".", "!?",
           "<|im_end|>", "\u2581", "e\u0301", "the", "ing", "def", "<0x41>", "<end_of_turn>"]


def run(program, *arguments, text=None, status=0):
    done = subprocess.run([program, *map(str, arguments)], input=text, capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == status, f"{arguments} ends with {done.returncode}: {done.stderr}"
    return done


def check_tokens(program, path, model):
    draw, tokenizer, wanted = random.Random(5), model.tokenizer, gguf_tokenizers.Tokenizer(model.metadata)
    texts = [*PROMPTS, "x", " ", "\n", "", "a" * 3000, *("".join(draw.choices(LETTERS, k=draw.randint(1, 40))) for _ in range(1000))]
    for text in texts:
        for begin in (True, False):
            found, want = tokenizer.encode(text, begin=begin), wanted.encode(text, begin=begin)
            assert found == want, (text, found, want)
    for text in texts[:30]:
        found = [int(word) for word in run(program, path, "--tokens", "--prompt", "-", text=text).stdout.split()]
        assert found == wanted.encode(text), (text, found, wanted.encode(text))
    for text in ("\ud800", "a\udfffb"):  # halves of pairs are no characters
        assert tokenizer.encode(text) == wanted.encode(text.encode("utf-8", "replace").decode())
    # The texts of tokens as they are made of texts, and of any tokens, parts of characters among them; in pieces too.
    answers = [wanted.encode(text) for text in texts]
    answers += [[draw.randrange(model.vocabulary) for _ in range(draw.randint(0, 30))] for _ in range(2000)]
    for tokens in answers:
        text = llm.Detokenizer(tokenizer)
        found, want = tokenizer.decode(tokens), wanted.decode(tokens)
        assert found == want, (tokens, found, want)
        assert "".join(map(text.add, tokens)) + text.rest() == want, tokens
    return len(texts), len(answers)


def check_costs(program, name, path, folder, precision):
    """Memory beside the module and the caches, and the time of one thread from the start of the process to the first token."""
    module = folder / f"{name}{'' if precision == 'f32' else '.' + precision}.so"
    model = llm.load(path, module=module, threads=1, precision=precision)
    prompt = model.tokenizer.decode(model.tokenizer.encode(" ".join(PROMPTS))[:64])
    for text, count in ((" ".join(PROMPTS), 8), (prompt, 1)):
        before = os.times()
        stats = run(program, path, module, "--threads", 1, "--prompt", text, "--max-tokens", count, "--stats").stderr
        after = os.times()
        peak = float(re.search(r"at most ([\d.]+) MB", stats)[1]) * MEGABYTE
        cache = model.new_cache().bytes_per_token * (len(model.tokenizer.encode(text)) + count)
        beside = peak - os.path.getsize(module) - cache
        assert beside < BAR, f"{name} {precision}: {beside / MEGABYTE:.0f} MB beside the module and the caches"
    # Of the process alone: what else the machine does costs it no time of its own.
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{name} {precision}: {beside / MEGABYTE:.0f} MB beside the module and the caches; the first token takes {seconds:.2f} s")
    if name in FIRST_TOKEN:
        assert seconds < FIRST_TOKEN[name], f"{name} {precision}: the first token takes {seconds:.2f} s"


def check(tessera, name, path, folder):
    program = pathlib.Path(tessera).parent / "tessera-generate"
    module = folder / f"{name}.so"
    model = llm.load(path, module=module, threads=1)
    texts, answers = check_tokens(program, path, model)
    print(f"{name}: the tokens of {texts} texts, and the texts of {answers} answers, are those of the package tokenizers")
    for prompt in (*PROMPTS[:5], " ".join(PROMPTS)):
        for options in ({}, {"temperature": 0.8, "top_k": 40, "seed": 3}, {"temperature": 1.2, "top_p": 0.9, "seed": 2**40}, {"lookup": 8}):
            flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
            usual = ("--module", module, "--threads", 1, "--prompt", "-", "--max-tokens", 24)
            found = run(tessera, "generate", path, *usual, *flags, text=prompt)
            want = model.generate(prompt, max_tokens=24, **options)
            assert found.stdout == want + "\n", (prompt, options, found.stdout, want)
    print(f"{name}: the same texts")

    for precision in ("f32", "i8", "bf16"):
        check_costs(program, name, path, folder, precision)

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
