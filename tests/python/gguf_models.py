"""GGUF files made at test time: a writer, random quantised blocks with the floats that they stand for, small language models
of every architecture with random weights, and what these compute, in float64.

Written from the formats' definitions, and on purpose unlike the reader: what both get wrong in the same way is not found."""
import math
import struct

import numpy as np

# name: (number, elements, bytes) of a block
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
         "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}
# Where the f16 scales of a block are.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def _text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value):
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if not value or isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(_text(v) for v in value)
    kind, letter = (6, "f") if isinstance(value[0], float) else (5, "i")
    return struct.pack(f"<IIQ{len(value)}{letter}", 9, kind, len(value), *value)


def write(path, metadata, tensors):
    """`tensors`: name -> (type, dims with the slowest first, bytes)."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _text(key) + _value(value)
    offset, body = 0, b""
    for name, (kind, dims, data) in tensors.items():
        head += _text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *reversed(dims))
        head += struct.pack("<IQ", TYPES[kind][0], offset)
        body += data + b"\0" * (-len(data) % 32)
        offset = len(body)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)


def floats(kind, data):
    """The floats of blocks, each operation rounded to f32."""
    _, elements, size = TYPES[kind]
    if kind == "F32":
        return np.frombuffer(data, np.float32)
    if kind == "F16":
        return np.frombuffer(data, np.float16).astype(np.float32)
    if kind == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    out = []
    f32 = np.float32
    for at in range(0, len(data), size):
        block = data[at : at + size]
        scale = [np.frombuffer(block[p : p + 2], np.float16).astype(f32)[0] for p in SCALES[kind]]
        for i in range(elements):
            if kind == "Q8_0":
                out.append(f32(np.int8(np.uint8(block[2 + i]))) * scale[0])
            elif kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
                begin = size - 16
                q = block[begin + i] & 15 if i < 16 else block[begin + i - 16] >> 4
                if kind[1] == "5":
                    q += (int.from_bytes(block[begin - 4 : begin], "little") >> i & 1) * 16
                if kind[3] == "0":
                    out.append(scale[0] * f32(q - (8 if kind[1] == "4" else 16)))
                else:
                    out.append(f32(scale[0] * f32(q)) + scale[1])
            elif kind in ("Q4_K", "Q5_K"):
                part, j = divmod(i, 32)
                s = block[4:16]
                if part < 4:
                    factor, least = s[part] % 64, s[part + 4] % 64
                else:
                    factor = s[part + 4] % 16 + (s[part - 4] // 64) * 16
                    least = s[part + 4] // 16 + (s[part] // 64) * 16
                pair = block[size - 128 + part // 2 * 32 + j]
                q = pair % 16 if part % 2 == 0 else pair // 16
                if kind == "Q5_K":
                    q += (block[16 + j] >> part & 1) * 16
                out.append(f32(f32(scale[0] * f32(factor)) * f32(q)) - f32(scale[1] * f32(least)))
            else:  # Q6_K
                half, rest = divmod(i, 128)
                quarter, j = divmod(rest, 32)
                pair = block[half * 64 + quarter % 2 * 32 + j]
                q = (pair % 16 if quarter < 2 else pair // 16) + (block[128 + half * 32 + j] >> 2 * quarter & 3) * 16
                factor = np.int8(np.uint8(block[192 + i // 16]))
                out.append(f32(scale[0] * f32(factor)) * f32(q - 32))
    return np.array(out, np.float32)


def random_blocks(random, kind, rows, columns, spread=1.0):
    """Bytes of random blocks, with elements of about that size."""
    _, elements, size = TYPES[kind]
    if elements == 1:
        values = (random.standard_normal((rows, columns)) * spread).astype(np.float32)
        if kind == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        return values.astype({"F32": np.float32, "F16": np.float16}[kind]).tobytes()
    blocks = random.integers(0, 256, (rows * columns // elements, size), np.uint8)
    largest = {"Q4_0": 8, "Q4_1": 16, "Q5_0": 16, "Q5_1": 32, "Q8_0": 128, "Q4_K": 800, "Q5_K": 1600, "Q6_K": 4000}[kind]
    for place, factor in zip(SCALES[kind], (2 / largest, 1 if kind.endswith("_1") else 1 / 50)):
        sign = -1 if factor == 1 else 1
        scale = random.uniform(0.5, 1, len(blocks)) * factor * spread * sign
        blocks[:, place : place + 2] = scale.astype(np.float16)[:, None].view(np.uint8)
    return blocks.tobytes()


# What tells the architectures apart. Sizes are odd where they may be.
COMMON = {"block_count": 2, "context_length": 64, "embedding_length": 32, "feed_forward_length": 64, "attention.head_count": 4,
          "attention.head_count_kv": 2}
RMS, LAYER = {"attention.layer_norm_rms_epsilon": 1e-5}, {"attention.layer_norm_epsilon": 1e-5}
ARCHITECTURES = {
    "llama": {**COMMON, **RMS, "rope.freq_base": 10000.0},
    "qwen2": {**COMMON, **RMS, "rope.freq_base": 1e6},
    "qwen3": {**COMMON, **RMS, "rope.freq_base": 1e6, "attention.key_length": 16, "attention.value_length": 16},
    "gpt2": {**COMMON, **LAYER, "attention.head_count_kv": 4},
    "phi2": {**COMMON, **LAYER, "attention.head_count_kv": 4, "rope.dimension_count": 4},
    "phi3": {**COMMON, **RMS},
    "gemma3": {**COMMON, **RMS, "block_count": 7, "attention.key_length": 16, "attention.value_length": 16,
               "attention.head_count_kv": 1, "rope.freq_base": 1e6, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
               "attention.sliding_window": 5},
}


def metadata_of(architecture, **changes):
    return {"general.architecture": architecture,
            **{f"{architecture}.{key}": value for key, value in {**ARCHITECTURES[architecture], **changes}.items()}}


class Sizes:
    def __init__(self, metadata):
        architecture = metadata["general.architecture"]

        def of(name, otherwise=None):
            return metadata.get(f"{architecture}.{name}", otherwise)

        self.architecture, self.of = architecture, of
        self.layers, self.features, self.hidden = of("block_count"), of("embedding_length"), of("feed_forward_length")
        self.heads, self.key_heads = of("attention.head_count"), of("attention.head_count_kv")
        self.depth = of("attention.key_length", self.features // self.heads)
        self.epsilon = of("attention.layer_norm_rms_epsilon") or of("attention.layer_norm_epsilon")


def tensors_of(metadata, random, vocabulary=50, types=("F32",)):
    """Random weights; matrices have the types in turn."""
    s, result, turn = Sizes(metadata), {}, [0]
    a = s.architecture

    def matrix(name, rows, columns):
        kind = types[turn[0] % len(types)]
        turn[0] += 1
        if columns % TYPES[kind][1] != 0:
            kind = "F32"
        result[name + ".weight"] = (kind, (rows, columns), random_blocks(random, kind, rows, columns, 1 / math.sqrt(columns)))

    def vector(name, size, around):
        result[name] = ("F32", (size,), (around + 0.2 * random.standard_normal(size)).astype(np.float32).tobytes())

    def norm(name, size=None):
        vector(name + ".weight", size or s.features, 1)
        if a in ("gpt2", "phi2"):
            vector(name + ".bias", size or s.features, 0)

    def linear(name, rows, columns, bias):
        matrix(name, rows, columns)
        if bias:
            vector(name + ".bias", rows, 0)

    matrix("token_embd", vocabulary, s.features)
    if a == "gpt2":
        matrix("position_embd", s.of("context_length"), s.features)
    norm("output_norm")
    if a in ("phi2", "phi3", "qwen2"):
        linear("output", vocabulary, s.features, a == "phi2")
    biases = a in ("gpt2", "phi2")
    for n in range(s.layers):
        block = f"blk.{n}."
        norm(block + "attn_norm")
        queries, keys = s.heads * s.depth, s.key_heads * s.depth
        if a in ("gpt2", "phi2", "phi3"):
            linear(block + "attn_qkv", queries + 2 * keys, s.features, biases)
        else:
            for name, rows in (("q", queries), ("k", keys), ("v", keys)):
                linear(f"{block}attn_{name}", rows, s.features, a == "qwen2")
        if a in ("qwen3", "gemma3"):
            norm(block + "attn_q_norm", s.depth)
            norm(block + "attn_k_norm", s.depth)
        linear(block + "attn_output", s.features, queries, biases)
        if a != "phi2":
            norm(block + "ffn_norm")
        if a == "gemma3":
            norm(block + "post_attention_norm")
            norm(block + "post_ffw_norm")
        if a not in ("gpt2", "phi2", "phi3"):
            linear(block + "ffn_gate", s.hidden, s.features, False)
        linear(block + "ffn_up", s.hidden * (2 if a == "phi3" else 1), s.features, biases)
        linear(block + "ffn_down", s.features, s.hidden, biases)
    return result


# Bytes as the byte pairs of GPT-2 write them, for the letters that a small model knows.
LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)] + ["Ġ", "Ċ", ".", "?"]


def tokenizer_of_letters(joined=True):
    """Metadata of a tokenizer of 50 tokens and a chat template. Not `joined`: its one pair is none."""
    tokens = [*LETTERS, "he", *(f"<{n}>" for n in range(49 - len(LETTERS)))]
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": ["h e"] if joined else ["h ?e"], "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}",
    }


def weights_of(tensors):
    return {name: floats(kind, data).reshape(dims).astype(np.float64) for name, (kind, dims, data) in tensors.items()}


def reference(metadata, weights, ids):
    """The logits of every token, in float64."""
    s, w, n = Sizes(metadata), weights, len(ids)
    a = s.architecture
    heads, key_heads, depth = s.heads, s.key_heads, s.depth

    def norm(name, x):
        if a in ("gpt2", "phi2"):
            x = x - x.mean(-1, keepdims=True)
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + s.epsilon) * w[name + ".weight"]
        return y + w.get(name + ".bias", 0)

    def linear(name, x):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def silu(x):
        return x / (1 + np.exp(-x))

    activation = gelu if a in ("gpt2", "phi2", "gemma3") else silu

    def turned(x, base, scale):
        if a == "gpt2":
            return x
        count = s.of("rope.dimension_count", depth)
        y = x.copy()
        for pair in range(count // 2):
            i, j = (2 * pair, 2 * pair + 1) if a == "llama" else (pair, pair + count // 2)
            angle = (np.arange(n) / scale * base ** (-2 * pair / count))[:, None]
            y[..., i] = x[..., i] * np.cos(angle) - x[..., j] * np.sin(angle)
            y[..., j] = x[..., i] * np.sin(angle) + x[..., j] * np.cos(angle)
        return y

    x = w["token_embd.weight"][ids]
    if a == "gemma3":
        x = x * math.sqrt(s.features)
    if a == "gpt2":
        x = x + w["position_embd.weight"][:n]
    rows, columns = np.arange(n)[:, None], np.arange(n)[None]
    for layer in range(s.layers):
        block = f"blk.{layer}."
        h = norm(block + "attn_norm", x)
        if block + "attn_qkv.weight" in w:
            q, k, v = np.split(linear(block + "attn_qkv", h), [heads * depth, (heads + key_heads) * depth], 1)
        else:
            q, k, v = (linear(f"{block}attn_{part}", h) for part in "qkv")
        q, k, v = q.reshape(n, heads, depth), k.reshape(n, key_heads, depth), v.reshape(n, key_heads, depth)
        if a in ("qwen3", "gemma3"):
            q, k = norm(block + "attn_q_norm", q), norm(block + "attn_k_norm", k)
        local = a == "gemma3" and (layer + 1) % 6 != 0
        base = 10000.0 if local else s.of("rope.freq_base", 10000.0)
        scale = 1.0 if local else s.of("rope.scaling.factor", 1.0)
        q, k = turned(q, base, scale), turned(k, base, scale)
        k, v = np.repeat(k, heads // key_heads, 1), np.repeat(v, heads // key_heads, 1)
        visible = columns <= rows
        if local:
            visible &= rows - columns < s.of("attention.sliding_window")
        scores = np.where(visible, np.einsum("qhd,khd->hqk", q, k) / math.sqrt(depth), -np.inf)
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        attended = linear(block + "attn_output", np.einsum("hqk,khd->qhd", chances, v).reshape(n, -1))
        if a == "gemma3":
            attended = norm(block + "post_attention_norm", attended)
        if a != "phi2":
            x = x + attended
            h = norm(block + "ffn_norm", x)
        up = linear(block + "ffn_up", h)
        if a == "phi3":
            gate, up = np.split(up, 2, 1)
            y = activation(gate) * up
        elif block + "ffn_gate.weight" in w:
            y = activation(linear(block + "ffn_gate", h)) * up
        else:
            y = activation(up)
        y = linear(block + "ffn_down", y)
        if a == "gemma3":
            y = norm(block + "post_ffw_norm", y)
        x = x + y if a != "phi2" else x + attended + y
    return linear("output" if "output.weight" in w else "token_embd", norm("output_norm", x))
