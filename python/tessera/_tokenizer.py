"""Text as the tokens of a language model, out of a GGUF file's metadata. The work is done by the package tokenizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._errors import Error

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# What is one word before pieces of it are joined, by tokenizer.ggml.pre: the file does not say it otherwise.
_WORDS = {
    "default": [_GPT2],
    "gpt-2": [_GPT2],
    "phi-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
    "qwen2": [_LETTERS + r"\p{N}" + _REST],
    "llama-bpe": [_LETTERS + r"\p{N}{1,3}" + _REST],
}
_CONTROL, _USER_DEFINED = 3, 4  # kinds of tokens, in tokenizer.ggml.token_type


class Tokenizer:
    def __init__(self, metadata: Mapping[str, Any]) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise Error(
                "the package tokenizers is missing, by which text becomes tokens", id="TSR-4036", legal="pip install tokenizers",
                hint="give prompts as lists of tokens otherwise",
            ) from error

        def of(key: str, otherwise: Any = None) -> Any:
            return metadata.get("tokenizer.ggml." + key, otherwise)

        tokens, kinds = of("tokens"), of("token_type", [])
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise Error("the file has no tokenizer", id="TSR-4037", legal="the metadata 'tokenizer.ggml.tokens'")
        numbers = {token: number for number, token in enumerate(tokens)}
        kind, words = of("model"), of("pre", "default")
        if kind not in ("llama", "gpt2") or (kind == "gpt2" and words not in _WORDS):
            raise Error(
                f"the tokenizer is of the kind {kind!r} with words as in {words!r}, which is not read", id="TSR-4037",
                legal=f"'llama', or 'gpt2' with one of {', '.join(_WORDS)}", hint="give prompts as lists of tokens",
            )
        try:
            if kind == "gpt2":
                self._tokenizer = _of_bytes(tokenizers, numbers, of("merges", []), _WORDS[words], words == "llama-bpe")
            else:
                self._tokenizer = _of_scores(tokenizers, numbers, of("scores", []), of("add_space_prefix", True))
            kinds = [int(of_type) for of_type in kinds]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library has exceptions of its own kind, panics among them
            raise Error(
                f"the tokenizer of the file cannot be: {error}", id="TSR-4037", legal="pieces, and pairs or scores that fit them",
                hint="convert the model again",
            ) from error

        def of_kind(wanted: int) -> list[Any]:
            return [
                tokenizers.AddedToken(token, normalized=False, special=wanted == _CONTROL)
                for token, of_type in zip(tokens, kinds) if of_type == wanted
            ]

        # Both are found in a text as they are; only the former stand for none.
        self._tokenizer.add_special_tokens(of_kind(_CONTROL))
        self._tokenizer.add_tokens(of_kind(_USER_DEFINED))
        self.end = {int(of(key)) for key in ("eos_token_id", "eot_token_id") if of(key) is not None}
        self.end |= {numbers[token] for token in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>") if token in numbers}
        self._begin = int(of("bos_token_id", -1))
        self._adds_begin = bool(of("add_bos_token", kind == "llama" or words == "llama-bpe")) and self._begin >= 0
        self._template = metadata.get("tokenizer.chat_template")
        self._names = {"bos_token": _token(tokens, of("bos_token_id")), "eos_token": _token(tokens, of("eos_token_id"))}

    def encode(self, text: str, *, begin: bool = True) -> list[int]:
        """The tokens of a text; `begin` puts the token in front that a model may want there."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [self._begin, *ids] if begin and self._adds_begin and ids[:1] != [self._begin] else ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that stand for no text."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt of a conversation as the model was taught it, up to where the answer begins."""
        if not isinstance(self._template, str):
            raise Error(
                "the file has no chat template", id="TSR-4037", legal="the metadata 'tokenizer.chat_template'",
                hint="write the prompt out, for generate()",
            )
        try:
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise Error(
                "the package jinja2 is missing, by which a conversation becomes a prompt", id="TSR-4036", legal="pip install jinja2",
            ) from error

        def refuse(message: str) -> None:
            raise Error(f"the chat template refuses the conversation: {message}", id="TSR-4037")

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        template = environment.from_string(self._template)
        return template.render(messages=list(messages), add_generation_prompt=True, **self._names)


def _token(tokens: Sequence[str], number: Any) -> str:
    return tokens[int(number)] if number is not None and 0 <= int(number) < len(tokens) else ""


def _of_bytes(tokenizers: Any, numbers: dict[str, int], merges: Sequence[str], words: Sequence[str], whole: bool) -> Any:
    """Byte pairs, by the order in which they are joined; with `whole` a word that is a token is one, whatever the pairs."""
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    result = tokenizers.Tokenizer(tokenizers.models.BPE(numbers, pairs, ignore_merges=whole))
    steps = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(word), "isolated") for word in words]
    steps.append(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    result.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    result.decoder = tokenizers.decoders.ByteLevel()
    return result


def _of_scores(tokenizers: Any, numbers: dict[str, int], scores: Sequence[float], prefix: bool) -> Any:
    """Pieces of text as SentencePiece joins them: two neighbours at a time, those first whose whole has the best score."""
    pairs = []
    for whole, number in numbers.items():
        for middle in range(1, len(whole)):
            left, right = whole[:middle], whole[middle:]
            if left in numbers and right in numbers:
                pairs.append((-scores[number], number, (left, right)))
    pairs.sort(key=lambda pair: pair[:2])
    model = tokenizers.models.BPE(numbers, [pair for _, _, pair in pairs], byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    result = tokenizers.Tokenizer(model)
    steps = [tokenizers.normalizers.Prepend("\u2581")] if prefix else []
    result.normalizer = tokenizers.normalizers.Sequence([*steps, tokenizers.normalizers.Replace(" ", "\u2581")])
    parts = [tokenizers.decoders.Replace("\u2581", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    result.decoder = tokenizers.decoders.Sequence([*parts, *([tokenizers.decoders.Strip(" ", 1, 0)] if prefix else [])])
    return result
