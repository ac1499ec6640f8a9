#!/usr/bin/env python3
"""Times a language model in a GGUF file: the prompt, the answer, the first token of a new process, and its memory.

    bench/language_model.py MODEL.gguf [--tokens 64] [--new 128] [--threads 1] [--precision i8] [--repeat 3]
                            [--module FILE] [--prompt-file FILE]

One run up to the first token, one to warm up, then --repeat timed ones, each with other text in the prompt, so that nothing of
an earlier prompt helps. Prints one line of JSON:
  prefill_tps    tokens of the prompt over the time until the first new token is known (median)
  decode_tps     new tokens but the first over the time that they took (median; null with one new token)
  first_token_s  from the start of this process, with all that it loads, to the first new token of the first run
  peak_rss_mb    the most memory of this process, mapped pages of the model and Python included
  text           what followed the first prompt
A module that --module names is made first, by a process of its own, if it is not there yet."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SENTENCES = [
    "The river rose slowly through the night and by morning the lower fields were under water.",
    "Nobody in the village could remember a spring as wet as this one.",
    "She opened the window, looked at the grey sky, and decided to stay where she was.",
    "A train passed in the distance, so far away that it made hardly any sound.",
    "The old engineer kept a notebook in which every repair of the bridge was written down.",
    "In the afternoon two boys came with a boat and asked whether anybody needed bread.",
]


def process_start():
    """When this process was started, on the clock of time.time()."""
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    with open("/proc/uptime", encoding="ascii") as file:
        uptime = float(file.read().split()[0])
    return time.time() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))


def peak_rss_mb():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(round(int(line.split()[1]) / 1024, 1) for line in file if line.startswith("VmHWM"))


def prompts(given):
    if given.prompt_file:
        with open(given.prompt_file, encoding="utf8") as file:
            text = file.read()
        sentences = [part.strip() + "." for part in text.split(".") if part.strip()]
        yield text
    else:
        sentences = SENTENCES
    for first in range(0 if not given.prompt_file else 1, given.repeat + 2):
        first %= len(sentences)
        yield " ".join((sentences[first:] + sentences[:first]) * (given.tokens // 40 + 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=64, help="of the prompt")
    parser.add_argument("--new", type=int, default=128, help="tokens of the answer")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="i8")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--module", help="where the compiled model is, or goes to")
    parser.add_argument("--prompt-file", help="the text of which the prompt is cut")
    given = parser.parse_args()
    options = {"precision": given.precision, "threads": given.threads, "module": given.module}
    if given.module and not os.path.exists(given.module):
        subprocess.run([sys.executable, "-c", f"from tessera import llm; llm.load({given.model!r}, **{options!r})"], check=True)
        return subprocess.run([sys.executable, *sys.argv], check=False).returncode  # a process whose first token is timed

    from tessera import llm  # its time is part of the first token's

    model = llm.load(given.model, **options)

    def timed(text, new):
        ids = model.tokenizer.encode(text)[: given.tokens]
        begin, times, tokens = time.perf_counter(), [], []
        for token in model.tokens(ids, cache=model.new_cache(), max_tokens=new, stop_at_end=False):
            times.append(time.perf_counter())
            tokens.append(token)
        return len(ids) / (times[0] - begin), (new - 1) / (times[-1] - times[0]) if new > 1 else None, tokens

    texts = list(prompts(given))
    timed(texts[0], 1)
    first_token = time.time() - process_start()
    answer = timed(texts[0], given.new)[2]
    runs = [timed(text, given.new) for text in texts[1 : given.repeat + 1]]
    print(json.dumps({
        "prefill_tps": statistics.median(run[0] for run in runs),
        "decode_tps": statistics.median(run[1] for run in runs) if given.new > 1 else None,
        "first_token_s": round(first_token, 3), "peak_rss_mb": peak_rss_mb(), "text": model.tokenizer.decode(answer),
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
