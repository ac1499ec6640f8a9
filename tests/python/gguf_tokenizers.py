"""The tokenizer of a GGUF file as the package tokenizers has it: what src/generate/tokenizer.h is held against."""

import tokenizers

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# What is one word before pieces of it are joined, by tokenizer.ggml.pre.
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
    def __init__(self, metadata):
        def of(key, otherwise=None):
            return metadata.get("tokenizer.ggml." + key, otherwise)

        tokens, kinds, kind, words = of("tokens"), of("token_type", []), of("model"), of("pre", "default")
        numbers = {token: number for number, token in enumerate(tokens)}
        if kind == "gpt2":
            self._tokenizer = _of_bytes(numbers, of("merges", []), _WORDS[words], words == "llama-bpe")
        else:
            self._tokenizer = _of_scores(numbers, of("scores", []), of("add_space_prefix", True))

        def of_kind(wanted):
            return [
                tokenizers.AddedToken(token, normalized=False, special=wanted == _CONTROL)
                for token, of_type in zip(tokens, kinds) if of_type == wanted
            ]

        # Both are found in a text as they are; only the former stand for none.
        self._tokenizer.add_special_tokens(of_kind(_CONTROL))
        self._tokenizer.add_tokens(of_kind(_USER_DEFINED))
        self._begin = int(of("bos_token_id", -1))
        self._adds_begin = bool(of("add_bos_token", kind == "llama" or words == "llama-bpe")) and self._begin >= 0

    def encode(self, text, *, begin=True):
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [self._begin, *ids] if begin and self._adds_begin and ids[:1] != [self._begin] else ids

    def decode(self, tokens):
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)


def _of_bytes(numbers, merges, words, whole):
    """Byte pairs, by the order in which they are joined; with `whole` a word that is a token is one, whatever the pairs."""
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    result = tokenizers.Tokenizer(tokenizers.models.BPE(numbers, pairs, ignore_merges=whole))
    steps = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(word), "isolated") for word in words]
    steps.append(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    result.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    result.decoder = tokenizers.decoders.ByteLevel()
    return result


def _of_scores(numbers, scores, prefix):
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
