#!/usr/bin/env python3
"""Language models in GGUF files: quantised blocks are the floats that the format defines, bit for bit; small models of every
architecture compute what float64 does, in one piece or in several, with one thread or two; text is what tokens say; broken
files are refused at once.

    gguf_test.py TESSERA"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import numpy as np

import gguf_models
import tessera
from tessera import graph, llm

TESSERA = sys.argv.pop(1)
WORK = pathlib.Path(tempfile.mkdtemp(prefix="gguf_test"))


def make(name, metadata, tensors):
    path = WORK / f"{name}.gguf"
    gguf_models.write(path, metadata, tensors)
    return path


class Blocks(unittest.TestCase):
    """The floats of blocks, as a kernel makes them of rows that it looks up, and what products with them are."""

    def random(self, kind, rows, columns, random):
        elements, size = gguf_models.TYPES[kind][1:]
        data = bytearray(random.integers(0, 256, rows * columns // elements * size, np.uint8).tobytes())
        for at in range(0, len(data), size):  # finite scales
            for place in gguf_models.SCALES.get(kind, [] if kind == "BF16" else [0]):
                data[at + place + 1] &= 0xBF
        if kind == "BF16":
            data = gguf_models.random_blocks(random, kind, rows, columns)
        return np.frombuffer(bytes(data), np.uint8).reshape(rows, -1), gguf_models.floats(kind, bytes(data)).reshape(rows, columns)

    def check(self, kind, random):
        columns = max(gguf_models.TYPES[kind][1], 7) * int(random.integers(1, 4))
        rows = 1 + int(random.integers(60))
        data, want = self.random(kind, rows, columns, random)
        g = graph.Graph("blocks")
        places = g.input("places", np.int64, (rows + 3,))
        g.output("y", graph.gather(graph.dequantize_blocks(g.constant(data), format=kind.lower()), places, axis=0))
        numbers = random.integers(0, rows, rows + 3)
        for options in ({"engine": "interp"}, {"opt_level": 0}, {}):
            (found,) = tessera.compile(g, **options).run([numbers])
            self.assertTrue((found.view(np.uint32) == want[numbers].view(np.uint32)).all(), f"{kind} {options}")

    def test_scales_that_are_read_beside_the_product(self):
        random = np.random.default_rng(8)
        for size in (8, 40):
            data = random.integers(0, 256, (size, size)).astype(np.uint8)
            scales, x = random.standard_normal((2, size, size)).astype(np.float32)
            weights = (data.astype(np.float32) - 128) * scales
            for kind, want in (("behind", x @ weights.T + scales), ("left", scales @ weights.T + x)):
                g = graph.Graph(kind)
                given, shared = g.input("x", np.float32, x.shape), g.constant(scales)
                made = graph.dequantize_blocks(g.constant(data), shared, format="u8", group=1)
                left, added = (given, shared) if kind == "behind" else (shared, given)
                g.output("y", graph.add(graph.matmul(left, made, transpose_b=True), added))
                (found,) = tessera.compile(g).run([x])
                np.testing.assert_allclose(found, want, atol=1e-4 * abs(want).max(), err_msg=f"{kind} {size}")

    def test_products(self):
        """Of any number of rows up to 70, in one module: each row what it is alone, bit for bit."""
        random = np.random.default_rng(5)
        for kind in gguf_models.TYPES:
            if kind == "F32":
                continue
            columns, rows = max(gguf_models.TYPES[kind][1], 7) * int(random.integers(1, 4)), 1 + int(random.integers(90))
            data, weights = self.random(kind, rows, columns, random)
            g = graph.Graph("product")
            x = g.input("x", np.float32, (g.symbol("n", 1, 70), columns))
            g.output("y", graph.matmul(x, graph.dequantize_blocks(g.constant(data), format=kind.lower()), transpose_b=True))
            model = tessera.compile(g)
            given = random.standard_normal((70, columns), np.float32)
            want = given.astype(np.float64) @ weights.T.astype(np.float64)
            (alone,) = np.concatenate([model.run([row[None]])[0] for row in given])[None]
            self.assertLess(np.abs(alone - want).max(), 1e-5 * np.abs(want).max(), kind)
            for count in range(1, 71):
                (found,) = model.run([given[:count]])
                self.assertTrue((found == alone[:count]).all(), f"{kind}: {count} rows")

    def test_every_type(self):
        random = np.random.default_rng(1)
        for kind in gguf_models.TYPES:
            for _ in range(3 if kind != "F32" else 0):
                with self.subTest(kind=kind):
                    self.check(kind, random)

    def test_oracle_beside_gguf(self):
        try:
            import gguf
        except ImportError:
            self.skipTest("the package gguf is not installed")
        random = np.random.default_rng(2)
        for kind in gguf_models.TYPES:
            data = gguf_models.random_blocks(random, kind, 8, 512)
            number = gguf.GGMLQuantizationType[kind]
            rows = np.frombuffer(data, {"F32": np.float32, "F16": np.float16}.get(kind, np.uint8)).reshape(8, -1)
            want = gguf.quants.dequantize(rows, number).reshape(-1)
            found = gguf_models.floats(kind, data)
            self.assertTrue((want.view(np.uint32) == found.view(np.uint32)).all(), kind)


class Models(unittest.TestCase):
    def check(self, architecture, types, **changes):
        random = np.random.default_rng(len(architecture))
        metadata = gguf_models.metadata_of(architecture, **changes)
        tensors = gguf_models.tensors_of(metadata, random, types=types)
        path = make(architecture, metadata, tensors)
        ids = random.integers(0, 50, 40).tolist()
        want = gguf_models.reference(metadata, gguf_models.weights_of(tensors), ids)
        model = llm.load(path, chunk=24, threads=1)
        self.assertEqual(model.context, 64)
        found = model.logits(ids, every=True)
        self.assertLess(np.abs(found - want).max(), 1e-4, architecture)
        pieces, cache = [], model.new_cache()
        for begin, end in ((0, 1), (1, 8), (8, 9), (9, 30), (30, 40)):
            pieces.append(model.logits(ids[begin:end], cache, every=True))
        self.assertLess(np.abs(np.concatenate(pieces) - want).max(), 1e-4, architecture)
        last = model.logits(ids)
        self.assertTrue((last[0] == found[-1]).all())
        two = llm.load(path, chunk=24, threads=2)
        self.assertLess(np.abs(two.logits(ids, every=True) - want).max(), 1e-4, architecture)

    def test_every_architecture(self):
        for architecture in gguf_models.ARCHITECTURES:
            with self.subTest(architecture=architecture):
                self.check(architecture, ("F32",))

    def test_activations_in_bytes(self):
        """What products read is rounded to 8 bits, 32 with one scale; rows do not depend on how many there are."""
        for types, changes in ((("Q4_0", "Q8_0", "Q4_1", "Q5_0", "Q5_1"), {}),
                               (("Q4_K", "Q6_K", "Q5_K"), {"embedding_length": 256, "feed_forward_length": 512})):
            random = np.random.default_rng(12)
            metadata = gguf_models.metadata_of("llama", **changes)
            tensors = gguf_models.tensors_of(metadata, random, types=types)
            path = make("bytes", metadata, tensors)
            ids = random.integers(0, 50, 40).tolist()
            want = gguf_models.reference(metadata, gguf_models.weights_of(tensors), ids)
            model = llm.load(path, threads=1, precision="i8")
            found = model.logits(ids, every=True)
            self.assertLess(np.abs(found - want).max(), 0.06 * np.abs(want).max())
            self.assertGreater(np.abs(found - want).max(), 1e-5 * np.abs(want).max())
            cache = model.new_cache()
            pieces = [model.logits(ids[b:e], cache, every=True) for b, e in ((0, 1), (1, 8), (8, 9), (9, 30), (30, 40))]
            self.assertTrue((np.concatenate(pieces) == found).all())
            self.assertTrue((llm.load(path, threads=2, precision="i8").logits(ids, every=True) == found).all())

    def test_tiles_of_bf16(self):
        """Rounded to bf16 where the machine has tiles of it: pieces of a prompt give nearly what the whole does."""
        metadata = gguf_models.metadata_of("llama", embedding_length=256, feed_forward_length=512)
        random = np.random.default_rng(13)
        for types in (("Q4_0", "Q8_0", "Q4_1", "Q5_0"), ("Q4_K", "Q6_K", "Q5_K")):
            tensors = gguf_models.tensors_of(metadata, random, types=types)
            path = make("tiles", metadata, tensors)
            ids = random.integers(0, 50, 60).tolist()
            want = gguf_models.reference(metadata, gguf_models.weights_of(tensors), ids)
            model = llm.load(path, threads=1, precision="bf16")
            found, most = model.logits(ids, every=True), np.abs(want).max()
            self.assertLess(np.abs(found - want).max(), 0.03 * most)
            self.assertTrue((llm.load(path, threads=2, precision="bf16").logits(ids, every=True) == found).all())
            cache = model.new_cache()
            pieces = [model.logits(ids[b:e], cache, every=True) for b, e in ((0, 1), (1, 17), (17, 20), (20, 59), (59, 60))]
            self.assertLess(np.abs(np.concatenate(pieces) - found).max(), 0.03 * most)

    def test_positions_are_scaled_without_a_way(self):
        """A factor alone means linear scaling."""
        self.check("llama", ("F32",), **{"rope.scaling.factor": 4.0})

    def test_quantised(self):
        types = ("Q4_0", "Q8_0", "F16", "Q4_1", "Q5_0", "BF16", "Q5_1")
        self.check("llama", types)
        self.check("gpt2", types)
        self.check("qwen3", ("Q4_K", "Q6_K", "Q5_K"), embedding_length=256, feed_forward_length=512)


SMALL = {"block_count": 1, "embedding_length": 4, "feed_forward_length": 8, "attention.head_count": 2, "attention.head_count_kv": 1,
         "context_length": 8}


def small_model(architecture="llama", **changes):
    metadata = gguf_models.metadata_of(architecture, **{**SMALL, **changes})
    return metadata, gguf_models.tensors_of(metadata, np.random.default_rng(0), vocabulary=5)


class Broken(unittest.TestCase):
    """Each refused by an id, in milliseconds."""

    def refused(self, data, id, *words):
        path = WORK / "broken.gguf"
        path.write_bytes(data)
        begin = time.perf_counter()
        with self.assertRaises(tessera.Error) as caught:
            llm.load(path)
        self.assertLess(time.perf_counter() - begin, 0.5)
        self.assertEqual(caught.exception.id, id, str(caught.exception))
        for word in words:
            self.assertIn(word, str(caught.exception))

    def file(self, metadata, tensors):
        return make("whole", metadata, tensors).read_bytes()

    def test_header(self):
        def header(version, tensors, values, rest=b""):
            return struct.pack("<4sIQQ", b"GGUF", version, tensors, values) + rest

        most = 2**64 - 1
        self.refused(b"GGUF", "TSR-1070", "at byte 4", "the version")
        for version in (0, 1, 4, 3 << 24):
            self.refused(header(version, 0, 0), "TSR-1070", "version")
        self.refused(header(3, most, 0), "TSR-1070", "the number of tensors")
        self.refused(header(3, 0, most), "TSR-1070", "the number of metadata values")
        self.refused(header(3, 0, 1, struct.pack("<Q", most) + b"key"), "TSR-1070", "a key")
        self.refused(header(3, 0, 1, struct.pack("<Q", 1 << 30) + b"key"), "TSR-1070", "1073741824 bytes")
        key = struct.pack("<Q1s", 1, b"k")
        self.refused(header(3, 0, 1, key + struct.pack("<I", 13)), "TSR-1070", "the type 13")
        self.refused(header(3, 0, 1, key + struct.pack("<IQ", 8, most)), "TSR-1070", "metadata 'k'", "a string")
        nested = struct.pack("<IIQ", 9, 9, 1)
        self.refused(header(3, 0, 1, key + nested), "TSR-1070", "an array holds arrays")
        for kind in (0, 5, 8, 12):
            for count in (most, 1 << 61, 1 << 40):
                self.refused(header(3, 0, 1, key + struct.pack("<IIQ", 9, kind, count)), "TSR-1070", "an array's length")
        twice = (key + struct.pack("<II", 4, 7)) * 2
        self.refused(header(3, 0, 2, twice), "TSR-1070", "the key was there before")
        bad_text = struct.pack("<Q2s", 2, b"\xff\xfe") + struct.pack("<II", 4, 7)
        self.refused(header(3, 0, 1, bad_text), "TSR-1070", "a key")
        for alignment in (0, 3, 1 << 30):
            value = struct.pack("<Q17sII", 17, b"general.alignment", 4, alignment)
            self.refused(header(3, 0, 1, value), "TSR-1070", "alignment")

    def test_tensors(self):
        def with_tensor(dims, kind=0, offset=0, data=b"\0" * 64, name=b"t"):
            entry = struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
            return struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + entry + b"\0" * 32 + data

        self.refused(with_tensor([1] * 5), "TSR-1070", "5 dimensions")
        self.refused(with_tensor([0]), "TSR-1070", "dimension 0 is 0")
        for dims in ([2**32, 2**32], [2**63], [2**64 - 1], [2**20, 2**20, 2**20]):
            self.refused(with_tensor(dims), "TSR-1070", "2^40 elements")
        self.refused(with_tensor([2**20, 2**20]), "TSR-1070", "are not in the file")
        for offset in (2**64 - 32, 2**63, 1 << 20):
            self.refused(with_tensor([4], offset=offset), "TSR-1070", "are not in the file")
        self.refused(with_tensor([4], offset=1), "TSR-1070", "not aligned")
        self.refused(with_tensor([33], kind=2), "TSR-1070", "no whole blocks of 32")
        for kind, word in ((10, "Q2_K"), (16, "IQ2_XXS"), (4, "4"), (2**32 - 1, "4294967295")):
            self.refused(with_tensor([256], kind=kind), "TSR-1071", f"has the type {word}")

    def test_cut_off_anywhere(self):
        data = self.file(*small_model())
        for length in range(4, len(data) - 32, 37):
            self.refused(data[:length], "TSR-1070")

    def test_changed_anywhere(self):
        """Refused, or a model after all: never anything else."""
        data, random, refused = bytearray(self.file(*small_model())), np.random.default_rng(0), 0
        begin = data.index(b"token_embd")
        for _ in range(600):
            changed = bytearray(data)
            for at in random.integers(8, begin + 600, random.integers(1, 4)):
                changed[at] = random.integers(256)
            path = WORK / "changed.gguf"
            path.write_bytes(changed)
            try:
                tessera._native.language_model_metadata(str(path))
            except tessera.Error as error:
                self.assertEqual(error.id[:7], "TSR-107")
                refused += 1
        self.assertGreater(refused, 50)

    def test_metadata(self):
        def changed(key, value, architecture="llama"):
            metadata, tensors = small_model(architecture)
            metadata[key] = value
            if value is None:
                del metadata[key]
            return self.file(metadata, tensors)

        self.refused(changed("general.architecture", "mamba"), "TSR-1072", "'mamba'", "llama, qwen2")
        self.refused(changed("general.architecture", None), "TSR-1072", "does not name")
        for key in ("block_count", "embedding_length", "context_length", "attention.head_count"):
            self.refused(changed("llama." + key, None), "TSR-1073", f"llama.{key}' are missing")
            for value in (0, 2**31, "many", [1, 2], 1.5):
                self.refused(changed("llama." + key, value), "TSR-1073", f"llama.{key}")
        self.refused(changed("llama.block_count", 9), "TSR-1073", "there are 9 layers")
        self.refused(changed("llama.attention.head_count_kv", 3), "TSR-1073", "2 heads for 3")
        self.refused(changed("llama.attention.head_count", 3), "TSR-1073", "4 features for 3 heads")
        self.refused(changed("llama.attention.key_length", 5000), "TSR-1073", "5000 features of a head")
        self.refused(changed("llama.rope.dimension_count", 3), "TSR-1073", "turn 3 of 2")
        self.refused(changed("llama.rope.scaling.type", "yarn"), "TSR-1073", "'yarn'")
        self.refused(changed("llama.rope.freq_base", 0.0), "TSR-1073", "base")
        self.refused(changed("llama.embedding_length", 8), "TSR-1073", "token_embd.weight")

    def test_tensors_that_do_not_fit(self):
        metadata, tensors = small_model()
        for name in ("blk.0.attn_k.weight", "output_norm.weight", "blk.0.ffn_down.weight", "blk.0.ffn_up.weight"):
            fewer = {key: tensor for key, tensor in tensors.items() if key != name}
            self.refused(self.file(metadata, fewer), "TSR-1074", "tensor '")
        kind, dims, data = tensors["blk.0.attn_q.weight"]
        self.refused(self.file(metadata, {**tensors, "blk.0.attn_q.weight": (kind, (2, 4), data[:32])}), "TSR-1074", "[2, 4]")


TEXT = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}


class Generation(unittest.TestCase):
    """By numbers of tokens: needs no tokenizer."""

    @classmethod
    def setUpClass(cls):
        metadata = gguf_models.metadata_of("llama")
        cls.path = make("generation", metadata, gguf_models.tensors_of(metadata, np.random.default_rng(3)))
        cls.metadata = json.loads(tessera._native.language_model_metadata(str(cls.path)))
        cls.module = WORK / "generation.so"
        cls.model = llm.load(cls.path, module=cls.module, threads=1)

    def test_metadata(self):
        self.assertEqual(self.metadata["llama.block_count"], 2)
        self.assertEqual(self.metadata["general.architecture"], "llama")

    def test_inspect_and_explain_need_no_sizes(self):
        for verb, word in (("inspect", "length in 1..64"), ("explain", "attn_norm")):
            done = subprocess.run([TESSERA, verb, self.path], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(word, done.stdout)

    def test_greedy_is_the_best_each_time(self):
        ids = [3, 1, 4, 1, 5]
        answer = list(self.model.tokens(ids, max_tokens=12))
        for token in answer:
            self.assertEqual(token, int(self.model.logits(ids)[0].argmax()))
            ids.append(token)

    def test_the_same_text(self):
        prompt = list(range(1, 31))
        want = list(self.model.tokens(prompt, max_tokens=20))
        again = list(self.model.tokens(prompt, max_tokens=20))                   # what is remembered changes nothing
        longer = list(self.model.tokens(prompt + want[:5], max_tokens=15))
        self.assertEqual(want, again)
        self.assertEqual(want[5:], longer)
        for threads, chunk in ((2, 512), (1, 7), (2, 1)):
            other = llm.load(self.path, threads=threads, chunk=chunk)
            self.assertEqual(want, list(other.tokens(prompt, max_tokens=20)), f"{threads} threads, pieces of {chunk}")

    def test_module_is_kept(self):
        self.assertTrue(self.module.exists())
        again = llm.load(self.path, module=self.module)
        self.assertTrue((again.logits([1, 2, 3]) == self.model.logits([1, 2, 3])).all())

    def test_the_cache_keeps_modules(self):
        folder = WORK / "cache"
        with unittest.mock.patch.dict(os.environ, {"TESSERA_CACHE_DIR": str(folder)}):
            first = llm.load(self.path, threads=1).logits([1, 2, 3])
            (kept,) = folder.iterdir()
            made = kept.stat().st_ino
            self.assertTrue((llm.load(self.path, threads=1).logits([1, 2, 3]) == first).all())
            self.assertEqual(kept.stat().st_ino, made)
            llm.load(self.path, threads=1, context=48)                           # other sizes
            self.assertEqual(len(list(folder.iterdir())), 2)
            kept.write_bytes(b"no module")
            self.assertTrue((llm.load(self.path, threads=1).logits([1, 2, 3]) == first).all())
            self.assertGreater(kept.stat().st_size, 1000)
            with unittest.mock.patch.dict(os.environ, {"TESSERA_CACHE_SIZE": "1k"}):
                model = llm.load(self.path, threads=1, chunk=16)                 # too large to be kept: runs all the same
                self.assertTrue((model.logits([1, 2, 3]) == first).all())
                self.assertEqual(list(folder.iterdir()), [])
        with unittest.mock.patch.dict(os.environ, {"TESSERA_CACHE_DIR": "/proc/no-folder"}):  # cannot be written
            self.assertTrue((llm.load(self.path, threads=1, context=np.int64(64)).logits([1, 2, 3]) == first).all())
        with unittest.mock.patch.dict(os.environ, {"TESSERA_CACHE_DIR": str(folder), "TESSERA_CACHE_SIZE": "0"}):
            self.assertTrue((llm.load(self.path, threads=1).logits([1, 2, 3]) == first).all())
            self.assertEqual(list(folder.iterdir()), [])

    def test_a_module_of_another_model_is_made_again(self):
        metadata = gguf_models.metadata_of("llama")
        other = make("another", metadata, gguf_models.tensors_of(metadata, np.random.default_rng(4)))
        module = WORK / "shared.so"
        first = llm.load(self.path, module=module, threads=1).logits([1, 2, 3])
        second = llm.load(other, module=module, threads=1).logits([1, 2, 3])
        self.assertTrue((first == self.model.logits([1, 2, 3])).all())
        self.assertTrue((second == llm.load(other, threads=1).logits([1, 2, 3])).all())
        self.assertFalse((first == second).all())

    def test_caches_grow_in_place(self):
        """Keys and values of the past stay where they are, and are what they are in memory of their own."""
        model = tessera.load(self.module, threads=1)
        empty = [np.empty((0, info.shape[1]), np.float32) for info in model.inputs[2:]]
        past = model.run([np.array([1, 2, 3, 4, 5], np.int64), np.array([4], np.int64), *empty])[1:]
        tokens, rows = np.array([6, 7], np.int64), np.array([1], np.int64)
        apart = model.run([tokens, rows, *past])
        whole = [np.concatenate([array, np.full((10, array.shape[1]), np.nan, np.float32)]) for array in past]
        before, room = [array[:5] for array in whole], [array[:7] for array in whole]
        together = model.run([tokens, rows, *before], [None, *room])
        for found, want in zip(together, apart, strict=True):
            self.assertTrue((found == want).all())
        for found, array, old in zip(together[1:], room, past, strict=True):
            self.assertIs(found, array)
            self.assertTrue((found[:5] == old).all())
        # Any other overlap is refused.
        with self.assertRaises(tessera.Error) as caught:
            model.run([tokens, rows, *before], [None, *(array[1:8] for array in whole)])
        self.assertEqual(caught.exception.id, "TSR-7038")

    def test_lookup(self):
        """Guessed tokens change nothing, whatever is drawn."""
        for prompt in ([3, 1, 4] * 5, list(range(1, 20)), [7]):
            for options in ({}, {"temperature": 1.0, "seed": 3}, {"temperature": 0.5, "top_k": 4, "seed": 9}):
                want = list(self.model.tokens(prompt, max_tokens=30, **options))
                for lookup in (1, 3, 8, 500):
                    self.assertEqual(want, list(self.model.tokens(prompt, max_tokens=30, lookup=lookup, **options)))
        # A text that repeats itself is guessed.
        runs, step = [], self.model.step
        self.model.step = lambda generations: runs.append(1) or step(generations)
        answer = list(self.model.tokens([5, 6, 7, 8], max_tokens=40, lookup=8))
        del self.model.step
        if len(set(answer[-20:])) < 5:
            self.assertLess(len(runs), 30)

    def test_two_at_a_time(self):
        prompts = ([5, 6, 7, 8], [9, 10])
        alone = [list(self.model.tokens(prompt, max_tokens=8)) for prompt in prompts]
        in_turn = list(zip(*(self.model.tokens(prompt, max_tokens=8) for prompt in prompts), strict=True))
        self.assertEqual(alone, [list(tokens) for tokens in zip(*in_turn)])

    def test_one_cache_for_two(self):
        """Answers that take turns with one cache, in the middle of their guesses too, are what they are alone."""
        prompts = ([1, 2, 3] * 8, [3, 1] * 9)
        model = llm.load(self.path, module=self.module, threads=1)
        alone = [list(model.tokens(prompt, max_tokens=12, lookup=6, cache=model.new_cache())) for prompt in prompts]
        for chunk in (64, 7):
            model.chunk = chunk
            cache = model.new_cache()
            answers = [model.begin(prompt, cache, max_tokens=12, lookup=6) for prompt in prompts]
            found = [[], []]
            while not all(answer.done for answer in answers):
                for answer, tokens in zip(answers, found):
                    while not answer.done:
                        tokens += (decided := model.step([answer])[0])
                        if decided:  # the prompt is through
                            break
            self.assertEqual(found, alone)

    def test_in_a_batch(self):
        """Several sequences in a run, of any lengths, some of them prompts and some of them tokens: each the text that it is
        alone, whatever is drawn and guessed, with one thread or two, in f32 and in bytes."""
        random = np.random.default_rng(6)
        prompts = [random.integers(0, 50, int(random.integers(1, 30))).tolist() for _ in range(5)]
        for precision in ("f32", "i8"):
            alone = llm.load(self.path, threads=1, precision=precision)
            for sequences, threads, chunk in ((2, 1, 512), (3, 2, 7)):
                together = llm.load(self.path, threads=threads, precision=precision, sequences=sequences, chunk=chunk)
                for options in ({}, {"temperature": 1.0, "seed": [*range(5)]}, {"lookup": 4}):
                    want = [list(alone.tokens(prompt, max_tokens=12, **({**options, "seed": n} if "seed" in options else options)))
                            for n, prompt in enumerate(prompts)]
                    self.assertEqual(together.tokens_of_all(prompts, max_tokens=12, **options), want, (precision, sequences, options))
                scores = together.together([(prompt[:7], together.new_cache(), len(prompt[:7])) for prompt in prompts[:sequences]])
                for prompt, found in zip(prompts, scores):
                    self.assertTrue((found == alone.logits(prompt[:7], every=True)).all(), (precision, sequences))
        self.assertEqual(together.tokens_of_all([], max_tokens=3), [])
        self.assertEqual(together.tokens_of_all([[1], [2]], max_tokens=0), [[], []])
        with self.assertRaises(tessera.Error):
            llm.load(self.path, sequences=0)

    def test_sampling(self):
        ids = [7, 8, 9]

        def drawn(**options):
            return list(self.model.tokens(ids, max_tokens=15, **options))

        self.assertEqual(drawn(temperature=1.0, seed=1), drawn(temperature=1.0, seed=1))
        self.assertNotEqual(drawn(temperature=1.0, seed=1), drawn(temperature=1.0, seed=2))
        self.assertEqual(drawn(temperature=1.0, top_k=1, seed=1), drawn())
        self.assertEqual(drawn(temperature=1.0, top_p=1e-9, seed=1), drawn())
        best = set(np.argsort(-self.model.logits(ids)[0])[:3].tolist())
        first = {next(iter(self.model.tokens(ids, max_tokens=1, temperature=5.0, top_k=3, seed=s))) for s in range(60)}
        self.assertEqual(first, best)

    def test_drawn_as_numpy_draws(self):
        """The softmax of the best scores, by numpy's random numbers."""

        def choose(scores, random, temperature, top_k=0, top_p=1.0):
            scores = scores.astype(np.float64) / temperature
            best = np.argsort(-scores, kind="stable")[: top_k or None]
            sums = np.cumsum(np.exp(scores[best] - scores[best[0]]))
            count = int(np.searchsorted(sums, top_p * sums[-1])) + 1 if top_p < 1 else len(best)
            return int(best[np.searchsorted(sums[:count], random.random() * sums[count - 1], side="right")])

        for options in ({"temperature": 1.0}, {"temperature": 3.0, "top_k": 7}, {"temperature": 2.0, "top_p": 0.8},
                        {"temperature": 2.0, "top_k": 20, "top_p": 0.5}):
            for seed in (0, 1, 2**40 + 7, 2**64 - 1):
                ids, random = [7, 8, 9], np.random.default_rng(seed)
                for token in self.model.tokens(ids.copy(), max_tokens=12, seed=seed, **options):
                    self.assertEqual(token, choose(self.model.logits(ids)[0], random, **options), (options, seed))
                    ids.append(token)

    def test_ends(self):
        prompt = list(range(1, 11))
        want = list(self.model.tokens(prompt, max_tokens=100))
        self.assertEqual(len(want), self.model.context - len(prompt) + 1)  # the last one needs no room
        self.model.ends.add(want[3])
        self.assertEqual(list(self.model.tokens(prompt, max_tokens=100)), want[: want.index(want[3])])
        self.assertEqual(list(self.model.tokens(prompt, max_tokens=100, stop_at_end=False)), want)
        self.model.ends.clear()

    def test_refused(self):
        for tokens in ([], [50], [-1], [[1]]):
            with self.assertRaises(tessera.Error) as caught:
                self.model.logits(tokens)
            self.assertEqual(caught.exception.id, "TSR-4038")
        with self.assertRaises(tessera.Error) as caught:
            self.model.logits([1] * 65)
        self.assertIn("at most 64", str(caught.exception))
        for options in ({"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"top_p": 2.0}, {"top_k": -1},
                        {"max_tokens": -1}, {"lookup": -1}, {"seed": -1}, {"seed": "one"}, {"max_tokens": 2**64}):
            with self.assertRaises(tessera.Error, msg=options):
                list(self.model.tokens([1], **options))
        for prompt in ([], [50], [-1], [2**40], [[1]], [None], [1] * 65):
            with self.assertRaises(tessera.Error, msg=prompt) as caught:
                list(self.model.tokens(prompt))
            self.assertEqual(caught.exception.id, "TSR-4038")
        for chunk in (0, -1, 65):
            with self.assertRaises(tessera.Error):
                self.model.chunk = chunk
        cache = self.model.new_cache()
        for pieces in ([], [([], cache, 0)], [([1], cache, 2)], [([1], cache, 1)] * 2, [([50], cache, 1)]):
            with self.assertRaises(tessera.Error, msg=pieces) as caught:
                self.model.together(pieces)
            self.assertEqual(caught.exception.id, "TSR-4038")
        self.assertEqual(cache.tokens, [])
        other = llm.load(self.path, threads=1, context=32)
        answer = self.model.begin([1], cache, max_tokens=1)
        for wrong in (lambda: other.together([([1], cache, 1)]), lambda: self.model.together([([1], other.new_cache(), 1)]),
                      lambda: other.step([answer]), lambda: self.model.step([answer, answer]), lambda: self.model.step([])):
            with self.assertRaises(tessera.Error) as caught:
                wrong()
            self.assertEqual(caught.exception.id, "TSR-4038")
        self.assertEqual(len(self.model.step([answer])[0]), 1)
        self.assertTrue(answer.done)
        with self.assertRaises(tessera.Error):
            self.model.step([answer])
        for wrong in (lambda: self.model.together([([1], None, 1)]), lambda: self.model.step([None])):
            self.assertRaises(TypeError, wrong)

    def test_no_tokenizer(self):
        model = llm.load(self.path, module=self.module)
        with self.assertRaises(tessera.Error) as caught:
            model.generate("text")
        self.assertEqual(caught.exception.id, "TSR-4037")


if __name__ == "__main__":
    unittest.main()
