"""Language models in GGUF files.

    from tessera import llm

    model = llm.load("SmolLM2-135M-Instruct.Q4_1.gguf")
    for text in model.stream("The capital of France is", max_tokens=20):
        print(text, end="", flush=True)
    print(model.chat([{"role": "user", "content": "What is a compiler?"}]))

One module serves prompts and single tokens, of any length up to `context`; keys and values of the tokens before are kept
beside it, so that a prompt that begins as the last one did goes on where it differs. Tokens are made, drawn and turned into
text by the library of `tessera generate MODEL --prompt TEXT` (src/generate); `tessera serve MODEL` is a server.
docs/language-models.md has what is read, and figures.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Union

import numpy as np

from . import _native, _options, compile, compile_file
from ._chat_template import render
from ._errors import Error
from ._interrupt import interruptible

__all__ = ["Cache", "Detokenizer", "Generation", "LanguageModel", "Tokenizer", "load"]

Prompt = Union[str, Sequence[int]]

Cache = _native.KeyValueCache
"""Keys and values of the tokens so far, `tokens`."""
Generation = _native.Generation
"""An answer on its way, until it is `done`: made by :meth:`LanguageModel.begin`, read on by :meth:`LanguageModel.step`."""
Tokenizer = _native.Tokenizer
"""Text as tokens: `encode(text, begin=True)`, `decode(tokens)`."""
Detokenizer = _native.Detokenizer
"""The text of tokens that come one after another: `add(token)` says what there is to say, `rest()` what is left at the end."""


def _numbers(tokens: Sequence[int]) -> list[int]:
    """Numbers that may be tokens; the model knows whether they are."""
    try:
        numbers = [operator.index(token) for token in tokens]
    except TypeError:
        numbers = [-1]
    return [number if 0 <= number < 1 << 31 else -1 for number in numbers]


def _seed(seed: Any) -> int | None:
    seed = None if seed is None else _options.number("seed", seed, 65)
    if seed is not None and seed < 0:
        raise Error(f"the seed is {seed}", id="TSR-4038", legal="a number of 64 bits, from 0 on")
    return seed


class LanguageModel:
    """Made by :func:`load`. One run is made at a time; a cache belongs to one thread."""

    def __init__(self, native: _native.LanguageModel, path: str) -> None:
        self._native, self._path = native, path
        self._file = _native.LanguageModelFile(path)
        self.context: int = native.context
        """The most tokens of a prompt and its answer."""
        self.sequences: int = native.sequences
        """How many sequences one run takes."""
        self.vocabulary: int = native.vocabulary
        self.ends: set[int] = self._file.ends
        """Tokens that end an answer."""
        self._cache = self.new_cache()

    @property
    def chunk(self) -> int:
        """The most tokens that one run takes of a sequence; longer prompts come in pieces. It may be set to fewer."""
        return self._native.chunk

    @chunk.setter
    def chunk(self, chunk: int) -> None:
        self._native.chunk = _options.number("chunk", chunk, 64)

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """What the file says of the model: GGUF's metadata."""
        return json.loads(_native.language_model_metadata(self._path))

    @property
    def tokenizer(self) -> Tokenizer:
        """:class:`Error` TSR-4037 where the file has none that is read."""
        return self._file.tokenizer

    def new_cache(self) -> Cache:
        return self._native.new_cache()

    def logits(self, tokens: Sequence[int], cache: Cache | None = None, *, every: bool = False) -> np.ndarray:
        """The scores of what may follow the last token, f32[1, vocabulary], or each of them. `cache` has the tokens before and
        then these as well; None: there are none before."""
        cache = self.new_cache() if cache is None else cache
        numbers = _numbers(tokens)
        if not numbers or min(numbers) < 0 or max(numbers) >= self.vocabulary:
            raise Error("these are no tokens of the model", id="TSR-4038", legal=f"one or more numbers, 0 to {self.vocabulary - 1}")
        if len(cache.tokens) + len(numbers) > self.context:
            raise Error(
                f"{len(cache.tokens) + len(numbers)} tokens", id="TSR-4038", legal=f"at most {self.context}",
                hint="load the model with a larger context, or give less",
            )
        results = []
        for begin in range(0, len(numbers), self.chunk):
            part = numbers[begin : begin + self.chunk]
            scores = self.together([(part, cache, len(part) if every else 1)])[0]
            if every or begin + self.chunk >= len(numbers):
                results.append(scores)
        return np.concatenate(results) if len(results) > 1 else results[0]

    def together(self, pieces: Sequence[tuple[Sequence[int], Cache, int]]) -> list[np.ndarray]:
        """One run for several sequences, at most `sequences`: of each, tokens, the cache of those before, which then has these
        as well, and of how many of the last tokens scores are wanted. The scores are those of a run for each alone."""
        return self._native.together([(_numbers(tokens), cache, wanted) for tokens, cache, wanted in pieces])

    def _prompt(self, prompt: Prompt) -> list[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else _numbers(prompt)

    def _sampling(
        self, *, max_tokens: int = 128, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, stop_at_end: bool = True,
        lookup: int = 0,
    ) -> dict[str, Any]:
        counts = {"max_tokens": max_tokens, "top_k": top_k, "lookup": lookup}
        return {
            **{name: _options.number(name, count, 64) for name, count in counts.items()},
            "temperature": float(temperature), "top_p": float(top_p), "ends": self.ends if stop_at_end else set(),
        }

    def begin(self, prompt: Prompt, cache: Cache | None = None, *, seed: int | None = None, **options: Any) -> Generation:
        """An answer that waits for :meth:`step`. Options are those of :meth:`tokens`."""
        cache = self._cache if cache is None else cache
        return Generation(self._native, cache, self._prompt(prompt), seed=_seed(seed), **self._sampling(**options))

    def step(self, generations: Sequence[Generation], most: int = 0) -> list[list[int]]:
        """One run for at most `sequences` answers that are not done, each with a cache of its own. The tokens that are decided
        of each: none while its prompt is not through, of which at most `most` tokens are read (0: `chunk`)."""
        return _native.step(self._native, generations, most)

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
        generation = self.begin(prompt, cache, **options)
        while not generation.done:
            yield from self.step([generation])[0]

    def tokens_of_all(self, prompts: Sequence[Prompt], *, seed: Any = None, **options: Any) -> list[list[int]]:
        """The tokens that follow each of several prompts, `sequences` of which are in work at a time. They are those of
        :meth:`tokens`, however many there are. Of options, `seed` may be a list."""
        seeds = list(seed) if isinstance(seed, Sequence) else [seed] * len(prompts)
        if len(seeds) != len(prompts):
            raise Error(f"{len(seeds)} seeds of {len(prompts)} prompts", id="TSR-4038", legal="a seed for each, or one for all")
        numbers = [self._prompt(prompt) for prompt in prompts]
        return self._native.all_tokens(numbers, [_seed(seed) for seed in seeds], **self._sampling(**options))

    def generate_all(self, prompts: Sequence[Prompt], **options: Any) -> list[str]:
        """The texts that follow several prompts. Options are those of :meth:`tokens_of_all`."""
        return [self.tokenizer.decode(tokens) for tokens in self.tokens_of_all(prompts, **options)]

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[str]:
        """The text that follows a prompt, in pieces as they come. Options are those of :meth:`tokens`."""
        text = Detokenizer(self.tokenizer)
        for token in self.tokens(prompt, **options):
            if piece := text.add(token):
                yield piece
        if rest := text.rest():
            yield rest

    def generate(self, prompt: Prompt, **options: Any) -> str:
        """The text that follows a prompt. Options are those of :meth:`tokens`."""
        return "".join(self.stream(prompt, **options))

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens of a conversation as the model was taught it, up to where the answer begins: messages with a "role"
        (system, user, assistant) and a "content". Needs the package jinja2. :class:`Error` TSR-4036, TSR-4037."""
        return self.tokenizer.encode(render(self._file, messages), begin=False)

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> str:
        """The answer to a conversation, as :meth:`chat_prompt` takes it. Options are those of :meth:`tokens`."""
        return "".join(self.stream_chat(messages, **options))

    def stream_chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Iterator[str]:
        return self.stream(self.chat_prompt(messages), **options)


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
    trained = _native.LanguageModelFile(path).context
    context, chunk, sequences = int(context), int(chunk), int(sequences)
    threads = None if threads is None else int(threads)
    num_threads = 0 if threads is None else _options.number("threads", threads)
    context = min(context, trained)
    chunk = min(chunk, context)
    if sequences < 1:
        raise Error(f"{sequences} sequences", id="TSR-4038", legal="1 or more")
    dims = {"length": (1, chunk), "past": (0, max(context - 1, 1)), "kept": (1, chunk * sequences)}
    for number in range(1, sequences):
        dims |= {f"length.{number}": dims["length"], f"past.{number}": dims["past"]}
    options: dict[str, Any] = {"threads": threads, "precision": precision, "dims": dims}
    if module is None:
        cancel, (sizes, _) = _native.CancelFlag(), _options.dims_and_shapes(dims, {})
        cached = interruptible(lambda: _native.compile_to_cache(path, precision, num_threads, sizes, cancel), cancel.set)
        if cached:
            return LanguageModel(_native.load_language_model(cached, num_threads, trained), path)
        contents = compile(path, **options)._engine.contents()
        return LanguageModel(_native.load_language_model_bytes(contents, num_threads, trained), path)
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
    return LanguageModel(_native.load_language_model(os.fspath(module), num_threads, trained), path)
