"""Language models in GGUF files.

    from tessera import llm

    model = llm.load("SmolLM2-135M-Instruct.Q4_1.gguf")
    for text in model.stream("The capital of France is", max_tokens=20):
        print(text, end="", flush=True)
    print(model.chat([{"role": "user", "content": "What is a compiler?"}]))

One module serves prompts and single tokens, of any length up to `context`; keys and values of the tokens before are kept
beside it, so that a prompt that begins as the last one did goes on where it differs. `tessera generate MODEL --prompt TEXT`
(or `python -m tessera.llm`) is the same as a program, `tessera serve MODEL` a server. docs/language-models.md has what is
read, and figures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

import numpy as np

from . import _native, _options, compile, compile_file
from . import load as _load_module
from ._errors import Error
from ._interrupt import interruptible
from ._model import Model
from ._tokenizer import Tokenizer

__all__ = ["Cache", "Generation", "LanguageModel", "Text", "load"]

Prompt = Union[str, Sequence[int]]


class Cache:
    """Keys and values of the tokens so far, with room for more."""

    def __init__(self, widths: Sequence[int]) -> None:
        self.tokens: list[int] = []
        self._arrays = [np.empty((64, width), np.float32) for width in widths]

    def truncate(self, count: int) -> None:
        """Forgets all tokens but the first `count`."""
        del self.tokens[count:]

    def past(self) -> list[np.ndarray]:
        return [array[: len(self.tokens)] for array in self._arrays]

    def room(self, count: int) -> list[np.ndarray]:
        """Where those that there are and those of `count` more tokens are: a run that is given `past` and this as outputs
        copies nothing."""
        begin, end = len(self.tokens), len(self.tokens) + count
        if end > len(self._arrays[0]):
            rows = max(end, 2 * len(self._arrays[0]))
            grown = [np.empty((rows, array.shape[1]), np.float32) for array in self._arrays]
            for new, old in zip(grown, self._arrays):
                new[:begin] = old[:begin]
            self._arrays = grown
        return [array[:end] for array in self._arrays]


class Text:
    """The text of tokens that come one after another."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pending: list[int] = []
        self._said = ""

    def add(self, token: int) -> str:
        """What there is to say now; nothing while a character is not complete."""
        self._pending.append(token)
        text = self._tokenizer.decode(self._pending)
        if text.endswith("\ufffd"):  # the beginning of a character
            return ""
        piece, self._said = text[len(self._said) :], text
        if text.endswith("\n"):  # words behind it do not depend on it
            self._pending = self._pending[-1:]  # which says that they are not the first ones
            self._said = self._tokenizer.decode(self._pending)
        return piece

    def rest(self) -> str:
        """What an end in the middle of a character leaves."""
        return self._tokenizer.decode(self._pending)[len(self._said) :]


class Generation:
    """An answer on its way: `piece` says which tokens the model reads next, `accept` what comes of it. Whoever has several
    of them reads a piece of each in one run (:meth:`LanguageModel.together`)."""

    def __init__(
        self, model: LanguageModel, prompt: Prompt, cache: Cache, *, max_tokens: int = 128, temperature: float = 0.0, top_k: int = 0,
        top_p: float = 1.0, seed: int | None = None, stop_at_end: bool = True, lookup: int = 0,
    ) -> None:
        if not (temperature >= 0 and top_k >= 0 and 0 < top_p <= 1 and max_tokens >= 0 and lookup >= 0):
            raise Error(
                "sampling cannot be so", id="TSR-4038",
                legal="temperature >= 0, top_k >= 0, 0 < top_p <= 1, max_tokens >= 0, lookup >= 0",
            )
        self._ids = model.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not self._ids:
            raise Error("the prompt is empty", id="TSR-4038", legal="at least one token")
        self._model, self.cache = model, cache
        self._sampling = (temperature, top_k, top_p, np.random.default_rng(seed))
        self._end = model.tokenizer.end if stop_at_end else set()
        self._lookup = min(lookup, model.chunk - 1)
        self._left = max_tokens
        self._guessed: list[int] = []
        self.done = max_tokens == 0

    def piece(self, most: int | None = None) -> tuple[list[int], Cache, int]:
        """Tokens, of a prompt at most so many; the cache with those before; and of how many of them scores are wanted."""
        wanted, known = self._ids + self._guessed, self.cache.tokens
        # What the cache begins with as well need not be computed again, but for one token.
        same = len(known) if known == wanted[: len(known)] else next(i for i, (a, b) in enumerate(zip(wanted + [-1], known)) if a != b)
        self.cache.truncate(min(same, len(self._ids) - 1))
        rest = wanted[len(self.cache.tokens) :]
        if len(rest) > 1 + len(self._guessed):
            rest = rest[: min(most or self._model.chunk, self._model.chunk)]
        whole = len(self.cache.tokens) + len(rest) == len(wanted)
        return rest, self.cache, 1 + len(self._guessed) if whole else 1

    def accept(self, scores: np.ndarray) -> list[int]:
        """The tokens that are decided by the scores of the piece; none while the prompt is not through."""
        if len(self.cache.tokens) < len(self._ids) + len(self._guessed):
            return []
        decided = []
        for row in range(len(scores)):
            token = _choose(scores[row], *self._sampling)
            self.done = token in self._end
            if self.done:
                break
            decided.append(token)
            self._left -= 1
            self.done = self._left == 0 or len(self._ids) >= self._model.context
            if self.done:
                break
            self._ids.append(token)
            if row == len(self._guessed) or token != self._guessed[row]:
                break
        self._guessed = []
        if not self.done:
            self._guessed = _guess(self._ids, min(self._lookup, self._left - 1, self._model.context - len(self._ids)))
        return decided


class LanguageModel:
    """Made by :func:`load`. One thread at a time may generate."""

    def __init__(self, model: Model, metadata: Mapping[str, Any], sequences: int = 1) -> None:
        self.model = model
        self.metadata = metadata
        symbols = model.symbols
        self.chunk: int = symbols.get("length", (1, 1))[1]
        """The most tokens that one run takes of a sequence; longer prompts come in pieces."""
        self.context: int = min(symbols["past"][1] + 1, int(metadata[f"{metadata['general.architecture']}.context_length"]))
        """The most tokens of a prompt and its answer."""
        self.sequences = sequences
        """How many sequences one run takes."""
        self._tokenizer: Tokenizer | None = None
        self._widths = [int(info.shape[1]) for info in model.inputs[sequences + 1 : sequences + 1 + len(model.outputs) // sequences]]
        self.vocabulary = int(model.outputs[0].shape[1])
        self._cache = self.new_cache()
        self._idle = [self.new_cache() for _ in range(sequences - 1)]

    @property
    def tokenizer(self) -> Tokenizer:
        """Needs the package tokenizers."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self.metadata)
        return self._tokenizer

    def new_cache(self) -> Cache:
        return Cache(self._widths)

    def logits(self, tokens: Sequence[int], cache: Cache | None = None, *, every: bool = False) -> np.ndarray:
        """The scores of what may follow the last token, f32[1, vocabulary], or each of them. `cache` has the tokens before and
        then these as well; None: there are none before."""
        cache = self.new_cache() if cache is None else cache
        try:
            array = np.asarray(tokens, np.int64)
        except (OverflowError, ValueError):  # numbers beyond 64 bits, lists in lists
            array = np.empty(0, np.int64)
        if array.ndim != 1 or len(array) == 0 or array.min() < 0 or array.max() >= self.vocabulary:
            raise Error("these are no tokens of the model", id="TSR-4038", legal=f"one or more numbers, 0 to {self.vocabulary - 1}")
        if len(cache.tokens) + len(array) > self.context:
            raise Error(
                f"{len(cache.tokens) + len(array)} tokens", id="TSR-4038", legal=f"at most {self.context}",
                hint="load the model with a larger context, or give less",
            )
        results = []
        for begin in range(0, len(array), self.chunk):
            part = array[begin : begin + self.chunk].tolist()
            scores = self.together([(part, cache, len(part) if every else 1)])[0]
            if every or begin + self.chunk >= len(array):
                results.append(scores)
        return np.concatenate(results) if len(results) > 1 else results[0]

    def together(self, pieces: Sequence[tuple[Sequence[int], Cache, int]]) -> list[np.ndarray]:
        """One run for several sequences, at most `sequences`: of each, tokens, the cache of those before, which then has these
        as well, and of how many of the last tokens scores are wanted. The scores are those of a run for each alone."""
        given: list[np.ndarray] = []
        count = 0
        rows: list[int] = []
        past, room, counts = [], [], []
        # Places that nobody has read one token that nobody asks for.
        idle: list[tuple[Sequence[int], Cache, int]] = [([0], cache, 0) for cache in self._idle[: self.sequences - len(pieces)]]
        for tokens, cache, wanted in [*pieces, *idle]:
            given.append(np.array(tokens, np.int64))
            count += len(tokens)
            rows += range(count - wanted, count)
            counts.append(wanted)
            room += cache.room(len(tokens))  # before `past`, whose arrays it may replace
            past += cache.past()
        scores = self.model.run([*given, np.array(rows, np.int64), *past], [None, *room])[0]
        for tokens, cache, _ in pieces:
            cache.tokens += tokens
        ends = np.cumsum(counts)
        return [scores[end - count : end] for end, count in zip(ends, counts[: len(pieces)])]

    def tokens(self, prompt: Prompt, *, cache: Cache | None = None, **options: Any) -> Iterator[int]:
        """The tokens that follow a prompt, one after another.

        `temperature` 0 takes the best one each time; more draws, with `seed` always the same, among the `top_k` best (0: all),
        and of these among the fewest that together have the probability `top_p`. It ends with a token that says so (unless
        `stop_at_end` is false), at `max_tokens`, or when the context is full.

        With `lookup`, so many tokens are guessed at a time: those that followed where the text's last words stood before.
        One run tries all of them, which costs little more than one token; what is drawn decides how many stand, so the text
        is the same as without. Quotations, code and lists come several times as fast, other text hardly slower.

        `cache` is where keys and values are kept; None: the model's own.
        """
        generation = Generation(self, prompt, self._cache if cache is None else cache, **options)
        while not generation.done:
            yield from generation.accept(self.together([generation.piece()])[0])

    def tokens_of_all(self, prompts: Sequence[Prompt], **options: Any) -> list[list[int]]:
        """The tokens that follow each of several prompts, `sequences` of which are in work at a time. They are those of
        :meth:`tokens`, however many there are. Of options, `seed` may be a list."""
        seeds = options.pop("seed", None)
        found: list[list[int]] = [[] for _ in prompts]
        waiting = list(range(len(prompts)))
        caches = [self.new_cache() for _ in range(min(self.sequences, len(prompts)))]
        active: dict[int, Generation] = {}
        while waiting or active:
            while waiting and caches:
                number = waiting.pop(0)
                seed = seeds[number] if isinstance(seeds, Sequence) else seeds
                active[number] = Generation(self, prompts[number], caches.pop(), seed=seed, **options)
            going = [(number, generation) for number, generation in active.items() if not generation.done]
            for number in active.keys() - {number for number, _ in going}:
                caches.append(active.pop(number).cache)
            if not going:
                continue
            for (number, generation), scores in zip(going, self.together([generation.piece() for _, generation in going])):
                found[number] += generation.accept(scores)
        return found

    def generate_all(self, prompts: Sequence[Prompt], **options: Any) -> list[str]:
        """The texts that follow several prompts. Options are those of :meth:`tokens_of_all`."""
        return [self.tokenizer.decode(tokens) for tokens in self.tokens_of_all(prompts, **options)]

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[str]:
        """The text that follows a prompt, in pieces as they come. Options are those of :meth:`tokens`."""
        text = Text(self.tokenizer)
        for token in self.tokens(prompt, **options):
            if piece := text.add(token):
                yield piece
        if rest := text.rest():
            yield rest

    def generate(self, prompt: Prompt, **options: Any) -> str:
        """The text that follows a prompt. Options are those of :meth:`tokens`."""
        return "".join(self.stream(prompt, **options))

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> str:
        """The answer to a conversation: messages with a "role" (system, user, assistant) and a "content"."""
        return "".join(self.stream_chat(messages, **options))

    def stream_chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Iterator[str]:
        return self.stream(self.tokenizer.encode(self.tokenizer.chat(messages), begin=False), **options)


def load(
    path: str | os.PathLike[str], *, module: str | os.PathLike[str] | None = None, context: int = 2048, chunk: int = 512,
    threads: int | None = None, precision: str = "f32", sequences: int = 1,
) -> LanguageModel:
    """A language model out of a GGUF file.

    `module` is where the compiled model is, or goes to when it is not there yet, or was made of another file or for other
    sizes, which a file `module`.key says; None leaves that to the cache of compiled modules (TESSERA_CACHE_DIR; with
    TESSERA_CACHE_SIZE=0 the model is compiled into memory). `context` is the
    most tokens of a prompt and its answer, `chunk` the most that one run takes; both are cut to what the model has. One run
    takes `sequences` of them, which read the weights once. `precision` "i8" rounds what is multiplied with weights in blocks
    to bytes, 32 with one scale, as llama.cpp does.
    """
    path = os.fspath(path)
    metadata = json.loads(_native.language_model_metadata(path))
    declared = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    context, chunk, sequences = int(context), int(chunk), int(sequences)
    threads = None if threads is None else int(threads)
    context = min(context, declared) if isinstance(declared, int) and declared > 0 else context
    chunk = min(chunk, context)
    if sequences < 1:
        raise Error(f"{sequences} sequences", id="TSR-4038", legal="1 or more")
    dims = {"length": (1, chunk), "past": (0, max(context - 1, 1)), "kept": (1, chunk * sequences)}
    for number in range(1, sequences):
        dims |= {f"length.{number}": dims["length"], f"past.{number}": dims["past"]}
    options: dict[str, Any] = {"threads": threads, "precision": precision, "dims": dims}
    if module is None:
        cancel, (sizes, _) = _native.CancelFlag(), _options.dims_and_shapes(dims, {})
        num_threads = 0 if threads is None else _options.number("threads", threads)
        cached = interruptible(lambda: _native.compile_to_cache(path, precision, num_threads, sizes, cancel), cancel.set)
        model = _load_module(cached, threads=threads) if cached else compile(path, **options)
        return LanguageModel(model, metadata, sequences)
    # Beside the module stands what it was compiled from and how: another file, or other sizes, compile it again.
    key, about = f"{os.fspath(module)}.key", os.stat(path)
    made_from = json.dumps(
        {"model": os.path.abspath(path), "bytes": about.st_size, "changed": about.st_mtime_ns, "context": context, "chunk": chunk,
         "precision": precision, "sequences": sequences}
    )
    known = None
    if os.path.exists(key):
        with open(key, encoding="utf-8") as file:
            known = file.read()
    if known != made_from or not os.path.exists(module):
        compile_file(path, module, **options)
        with open(key, "w", encoding="utf-8") as file:
            file.write(made_from)
    return LanguageModel(_load_module(module, threads=threads), metadata, sequences)


_LONGEST_CONTEXT = 3  # tokens by which a guess is looked up


def _guess(ids: list[int], most: int) -> list[int]:
    """What followed the last tokens where they stood before: of the most tokens that did, and of the last such place."""
    if most <= 0:
        return []
    for length in range(min(_LONGEST_CONTEXT, len(ids) - 1), 0, -1):
        last = ids[-length:]
        for begin in range(len(ids) - length - 1, -1, -1):
            if ids[begin : begin + length] == last:
                return ids[begin + length : begin + length + most]
    return []


def _choose(scores: np.ndarray, temperature: float, top_k: int, top_p: float, random: np.random.Generator) -> int:
    if temperature == 0:
        return int(scores.argmax())
    scores = scores.astype(np.float64) / temperature
    best = np.argsort(-scores, kind="stable")
    if top_k > 0:
        best = best[:top_k]
    chances = np.exp(scores[best] - scores[best[0]])
    chances /= chances.sum()
    if top_p < 1:
        count = int(np.searchsorted(np.cumsum(chances), top_p)) + 1
        best, chances = best[:count], chances[:count] / chances[:count].sum()
    return int(best[min(int(np.searchsorted(np.cumsum(chances), random.random(), side="right")), len(best) - 1)])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tessera generate", description="Continues a text, or answers, with a language model.")
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--prompt", help="the text; - reads standard input")
    parser.add_argument("--chat", action="store_true", help="the prompt is a question, asked in the model's chat template")
    parser.add_argument("--max-tokens", type=int, default=128, help="the longest answer (default: 128)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the best token each time (default: 0)")
    parser.add_argument("--top-k", type=int, default=0, help="draw among so many (default: all)")
    parser.add_argument("--top-p", type=float, default=1.0, help="draw among the fewest with this probability (default: 1)")
    parser.add_argument("--seed", type=int, help="of what is drawn")
    parser.add_argument("--lookup", type=int, default=0, help="guess so many tokens at a time from the text so far (default: 0)")
    parser.add_argument("--threads", type=int, help="default: as tessera run")
    parser.add_argument("--context", type=int, default=2048, help="the most tokens of prompt and answer (default: 2048)")
    parser.add_argument("--module", help="where the compiled model is, or goes to (default: the cache)")
    parser.add_argument("--precision", default="f32", help="f32, bf16, f16 or i8 (default: f32)")
    parser.add_argument("--stats", action="store_true", help="tokens per second, on standard error")
    given = parser.parse_args(arguments)
    try:
        text = sys.stdin.read() if given.prompt in (None, "-") else given.prompt
        begin = time.perf_counter()
        model = load(given.model, module=given.module, context=given.context, threads=given.threads, precision=given.precision)
        tokenizer = model.tokenizer
        prompt = tokenizer.chat([{"role": "user", "content": text}]) if given.chat else text
        ids = tokenizer.encode(prompt, begin=not given.chat)
        loaded = time.perf_counter()
        times = []
        options = {
            "max_tokens": given.max_tokens, "temperature": given.temperature, "top_k": given.top_k, "top_p": given.top_p,
            "lookup": given.lookup,
        }
        for piece in model.stream(ids, seed=given.seed, **options):
            times.append(time.perf_counter())
            print(piece, end="", flush=True)
        print()
        if given.stats and times:
            rate = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0
            print(
                f"load {loaded - begin:.2f} s, prompt of {len(ids)} tokens {times[0] - loaded:.3f} s, then {rate:.1f} tokens/s",
                file=sys.stderr,
            )
        return 0
    except Error as error:
        print(f"error {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print()
        return 130


if __name__ == "__main__":
    sys.exit(main())
