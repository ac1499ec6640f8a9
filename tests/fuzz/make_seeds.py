#!/usr/bin/env python3
"""Writes the seeds and dictionaries of the fuzz targets, which are committed: run it when the text forms change.

    make_seeds.py TESSERA

seeds/expr_text: below. seeds/kernel_text: below, and of the committed tuning records. seeds/module: descriptors of modules
that TESSERA compiles, and a whole module without code.
seeds/onnx: for each set of operators the smallest of the models that tests/python builds, and the models with strings,
sequences, optionals and maps. seeds/onnx_json: those of them that have fields which others lack, as JSON.
seeds/tflite: one operator each, of f32 and of bytes.
seeds/caffe: a few layers each, with their weights, by tests/python/caffe_support.py.
seeds/pt2: a layer, of fixed and of open sizes, as an archive and as JSON.
seeds/{graph,loop,program}_text: what TESSERA makes of some of them, with the optimiser off and on, where that is short.
dictionaries/: the words of all these."""
import argparse
import contextlib
import json
import lzma
import pathlib
import re
import sqlite3
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from google.protobuf import json_format

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
import caffe_support  # noqa: E402
import check_structures  # noqa: E402
import gguf_models  # noqa: E402
import make_onnx_cases  # noqa: E402
import pt2_support  # noqa: E402
import tflite_operators_test as tflite  # noqa: E402

LARGEST_MODEL, LARGEST_TEXT = 700, 1500
SIGNS = ["->", "..", "0..", "[", "]", "{", "}", "(", ")", "<", ">", "%", "@", "$0", "*", "/", "&", "|", "^", "==", "!=",
         "<=", ">=", ":i64", ":f32", "-1", "inf", "nan", "0x", "9223372036854775807", "-9223372036854775808",
         "4294967296", "1e38", "1e-45", "\\x00", "\\\"", "\\\\"]
EXPRESSIONS = """
(i + (j * 4))|floordiv(((i * 8) + j), 8)|floormod((i + (n * 3)), 3)|min(max(i, 0), (n - 1))|select((i < n), i, -1)
((i / 3) * 3) + rem(i, 3)|(((i * 4) + j) == ((j * 2) - 7))|fma(x, 2:f32, exp(-x))|cast:i64(floor(A[i, (n - 1)]))
A[floormod(i, 8), I[j]]|bitcast:i32(x) & 8388607:i32|select((t & (x != x)), nan:f32, inf:f32)|-9223372036854775808
pow(abs(x), 0.5:f32)|(b + -128:i8)|cast:f16(cast:f32(h) * 1e-07:f32)|shl(i, 3) ^ shr(j, 70)|!t | (i >= j)
floordiv(i, 0) + floormod(j, 0)|max((n - (i * -1)), ((9223372036854775807 - j) + 1))|round(tanh(x)) + erf(sin(cos(x)))
""".replace("\n", "|").strip("|").split("|")


def empty(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    return folder


def graphs_in(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_in(attribute.g)


def operators(model):
    for graph in graphs_in(model.graph):
        for node in graph.node:
            yield f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def smallest_models():
    """{name: bytes}. Every output has its type and shape: what shapes depend on may then be inputs."""
    builder = make_onnx_cases.all_cases()
    models = [(name, model, given, known) for name, model, given, known in builder.cases]
    models += [(name, check_structures.model_of(text), None, None)
               for name, (text, *_) in check_structures.CASES.items()]
    smallest = {}
    for case in models:
        size, kinds = case[1].ByteSize(), frozenset(operators(case[1]))
        if size <= LARGEST_MODEL and (kinds not in smallest or size < smallest[kinds][1].ByteSize()):
            smallest[kinds] = case
    for name, model, given, known in smallest.values():
        if given is not None and not known:
            make_onnx_cases.complete(model, given, name in builder.by_onnx, builder.results.get(name))
    return {name: model.SerializeToString() for name, model, *_ in smallest.values()}


def write_dictionary(name, words):
    quoted = (word if word.startswith("\\") else word.replace("\\", "\\\\").replace('"', '\\"') for word in words)
    lines = sorted({f'"{word}"' for word in quoted})
    folder = HERE / "dictionaries"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.dict").write_text("\n".join(lines) + "\n")


def write_onnx(models):
    out = empty(HERE / "seeds" / "onnx")
    words = {"ai.onnx", "ai.onnx.ml", "com.microsoft", "ai.onnx.preview.training"}
    for name, content in models.items():
        (out / f"{name}.onnx").write_bytes(content)
        for graph in graphs_in(onnx.load_from_string(content).graph):
            for node in graph.node:
                words.add(node.op_type)
                for attribute in node.attribute:
                    words.add(attribute.name)
                    if attribute.type == onnx.AttributeProto.STRING and re.fullmatch(rb"[A-Za-z_]+", attribute.s):
                        words.add(attribute.s.decode())
    write_dictionary("onnx", words)


def write_json(models):
    """Each new combination of fields once, and one model with all kinds of numbers."""
    out = empty(HERE / "seeds" / "onnx_json")
    texts = []
    for name, content in models.items():
        model = onnx.load_from_string(content)
        texts += [(name, json_format.MessageToJson(model, indent=0)),
                  (f"{name}_schema", json_format.MessageToJson(model, indent=0, preserving_proto_field_name=True))]
    numbers = onnx.helper.make_tensor("f", onnx.TensorProto.FLOAT, [4], [1.5, float("nan"), float("inf"), -1e-30])
    whole = onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [2], [-1, 2**63 - 1])
    large = onnx.helper.make_tensor("u", onnx.TensorProto.UINT64, [1], [2**64 - 1])
    double = onnx.helper.make_tensor("d", onnx.TensorProto.DOUBLE, [1], [1e300])
    graph = onnx.helper.make_graph([], "numbers", [], [], [numbers, whole, large, double])
    texts.append(("numbers", json_format.MessageToJson(onnx.helper.make_model(graph), indent=0)))
    seen = set()
    for name, text in sorted(texts, key=lambda item: len(item[1])):
        found = set(re.findall(r'"(\w+)":', text)) - seen
        if found:
            (out / f"{name}.onnxjson").write_text(text)
            seen |= found
    words = {f'"{word}"' for word in seen} | {"null", "true", "1.5", "-1", '"NaN"', '"-Infinity"', '"18446744073709551615"',
                                               "AAAA", "[", "]", "{", "}", ":", ","}
    write_dictionary("onnx_json", words | {f'"{word}"' for word in ("FLOAT", "GRAPH", "EXTERNAL", "INT4", "TENSORS")})
    print(f"onnx_json: {len(list(out.iterdir()))} seeds")


def write_texts(tessera, models):
    """Each kind of text out of the models, each new combination of words once."""
    kinds = {"graph": ["-O0", "-O3"], "loop": ["-O0", "-O3"], "program": ["-O0", "-O3"]}
    for kind, levels in kinds.items():
        out = empty(HERE / "seeds" / f"{kind}_text")
        seen, words = set(), set(SIGNS)
        for path in (HERE.parent / "golden" / kind).iterdir():
            words |= set(re.findall(r"[a-z_]{2,}", re.sub(r"//.*", "", path.read_text())))
        texts = []
        for name in models:
            for level in levels:
                done = subprocess.run([tessera, "compile", str(HERE / "seeds" / "onnx" / f"{name}.onnx"), level,
                                       "--target", "x86-64-v3", "--threads", "1", "--emit", kind, "-o", "-"],
                                      capture_output=True, text=True)
                if done.returncode == 0 and 0 < len(done.stdout) <= LARGEST_TEXT:
                    texts.append((len(done.stdout), f"{name}{level}.{kind}", done.stdout))
        for _, name, text in sorted(texts):
            found = set(re.findall(r"[a-z_]{2,}", re.sub(r'"[^"]*"|loc\([^)]*\)', "", text))) - seen
            if len(found) > 3:
                (out / name).write_text(text)
                seen |= found
        write_dictionary(f"{kind}_text", words | {word for word in seen if len(word) < 20})
        print(f"{kind}_text: {len(list(out.iterdir()))} seeds")


def write_expressions():
    out = empty(HERE / "seeds" / "expr_text")
    for number, text in enumerate(EXPRESSIONS):
        (out / f"{number:02}.expr").write_text(text + "\n")
    words = set(re.findall(r"[a-z]+[0-9]*", (HERE / "dictionaries" / "loop_text.dict").read_text()))
    write_dictionary("expr_text", {word for word in words if len(word) < 9} | set(SIGNS) | set("ijnxhbtAI"))


# All that the records below do not have: casts, conditions, integers, tests of numbers, several stages.
KERNEL = """param  f32 i64:4 i64:6
param  i32 i64:4
axis i64:4
reduce i64:6
e0 = load b0 f32 v0 v1
e1 = isnan bool e0
e2 = load b1 i32 v0
e3 = cast f32 e2
e4 = select f32 e1 e3 e0
e5 = fma f32 e4 e4 e3
stage  max e5 f32 i64:4
axis i64:4
e6 = load b2 f32 v2
e7 = exp f32 e6
e8 = lt bool e7 f32:0x1p+3
e9 = not bool e8
stage  none e9 bool i64:4
"""


def write_kernels():
    """Kernels of the tuner's committed records, each new combination of words once."""
    out = empty(HERE / "seeds" / "kernel_text")
    texts = [KERNEL]
    with tempfile.TemporaryDirectory() as work:
        for part in ("train", "test"):
            database = pathlib.Path(work, f"{part}.db")
            packed = HERE.parents[1] / f"bench/results/cost_model.{part}.db.xz"
            database.write_bytes(lzma.decompress(packed.read_bytes()))
            with contextlib.closing(sqlite3.connect(database)) as records:
                texts += [text for (text,) in records.execute("SELECT text FROM kernels ORDER BY length(text), hash")]
    words, number = set(), 0
    for text in texts:
        found = set(re.findall(r"[a-z]+\d*|\{[^}]*\}", text)) - words
        if found and len(text) <= LARGEST_TEXT:
            (out / f"{number:02}.kernel").write_text(text)
            words |= found
            number += 1
    write_dictionary("kernel_text", {word for word in words if len(word) < 20} | {"i64:", "f32:0x1p-3", " = ", "\\x0a"})
    print(f"kernel_text: {number} seeds")


# abi/module_abi.h: the footer's first seven numbers.
FOOTER = struct.Struct("<7Q")
FOOTER_SIZE = 120


def write_modules(tessera):
    out = empty(HERE / "seeds" / "module")
    texts = {name: text for name, (text, *_) in check_structures.CASES.items()
             if name in ("at_run_time", "insert_erase", "string_case", "elementwise", "loop_unbounded", "tfidf_strings")}
    texts["checked"] = "m (float[4,3] x, int64[2] i) => (float[2,3] y, float[4,3] z) { y = Gather(x, i)\n z = Add(x, x) }"
    texts["scalars"] = "m (float16 x, bool[0,2] c) => (float16 y, bool[0,2] z) { y = Neg(x)\n z = Not(c) }"
    with tempfile.TemporaryDirectory() as work:
        for name, text in texts.items():
            model, module = pathlib.Path(work, "m.onnx"), pathlib.Path(work, "m.so")
            model.write_bytes(check_structures.model_of(text).SerializeToString())
            subprocess.run([tessera, "compile", str(model), "--target", "x86-64-v2", "-o", str(module)], check=True)
            content = module.read_bytes()
            *_, begin, size, _, _ = FOOTER.unpack_from(content, len(content) - FOOTER_SIZE)
            descriptor = content[begin:begin + size]
            (out / f"{name}.descriptor").write_bytes(b"\0" + descriptor)
            if name == "checked":
                sections = (0, 0, 0, 0, len(descriptor), len(descriptor), 2)
                (out / "whole.module").write_bytes(
                    b"\1" + descriptor + b"{}" + FOOTER.pack(*sections).ljust(FOOTER_SIZE, b"\0"))
    numbers = (3, 4, 16, 17, 32, 33, 64, 120, 136, 256, 4097, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
    words = [struct.pack("<Q" if number > 2**32 - 1 else "<I", number) for number in numbers]
    words += [struct.pack("<q", -1), struct.pack("<q", -2), b"TESSERA-MODULE\0\1", b"avx2,fma", b"\x7fELF"]
    write_dictionary("module", ["".join(f"\\x{byte:02x}" for byte in word) for word in words])


def write_tflite():
    folder = empty(HERE / "seeds/tflite")
    for number, kind in enumerate(tflite.KINDS):
        for dtype in (np.float32, np.uint8, np.int8):
            case = tflite.Case(100 + number)
            kind(case, dtype)
            (folder / f"{number:02}_{np.dtype(dtype).name}.tflite").write_bytes(case.builder.bytes())


def write_pt2():
    folder = empty(HERE / "seeds/pt2")
    for name, program in (("fixed", pt2_support.dense_layer()), ("open", pt2_support.dense_layer("n"))):
        (folder / f"{name}.pt2").write_bytes(program.bytes())
        (folder / f"{name}.json").write_text(json.dumps(program.document()))
    program = pt2_support.dense_layer()
    shapes = {"as_ints": [-1, 2]}
    program.node("view.default", "view", "float32", [4, 2], self=pt2_support.tensor("relu"), size=shapes)
    program.node("permute.default", "permute", "float32", [2, 4], self=pt2_support.tensor("view"), dims={"as_ints": [1, 0]})
    program.node("sum.dim_IntList", "sum_1", "float32", [2], self=pt2_support.tensor("permute"), dim={"as_ints": [1]})
    program.node("add_.Tensor", "add_", "float32", [2], self=pt2_support.tensor("sum_1"), other={"as_float": 1.5})
    program.node("slice.Tensor", "slice_1", "float32", [1], self=pt2_support.tensor("add_"), dim={"as_int": 0}, start={"as_int": 1})
    program.node("gather.default", "gather", "float32", [1], self=pt2_support.tensor("add_"), dim={"as_int": 0},
                 index=pt2_support.tensor("i"))
    program.input("i", "int64", [1])
    program.outputs.clear()
    program.output("slice_1")
    program.output("gather")
    (folder / "operators.json").write_text(json.dumps(program.document()))
    words = ["as_tensor", "as_ints", "as_sym_int", "as_none", "torch.ops.aten.add.Tensor", "Symbol('n', integer=True)", "buffer_mutation"]
    write_dictionary("pt2", words)
    print(f"pt2: {len(list(folder.iterdir()))} seeds")


def write_gguf():
    """A model of every architecture, one with every kind of blocks, and one with every kind of tokenizer."""
    out = empty(HERE / "seeds" / "gguf")
    small = {"block_count": 1, "embedding_length": 4, "feed_forward_length": 8, "attention.head_count": 2, "context_length": 8,
             "attention.head_count_kv": 1, "attention.key_length": 4, "attention.value_length": 4}
    blocks = {"F32": {"embedding_length": 4}, "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 F16 BF16": {"embedding_length": 32, "feed_forward_length": 32},
              "Q4_K Q5_K Q6_K": {"embedding_length": 256}}
    for architecture in gguf_models.ARCHITECTURES:
        heads = {"attention.head_count_kv": 2} if architecture in ("gpt2", "phi2") else {}
        metadata = gguf_models.metadata_of(architecture, **{**small, **heads})
        metadata |= {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.scores": [0.5, -1.0], "tokenizer.ggml.add_bos_token": False}
        tensors = gguf_models.tensors_of(metadata, np.random.default_rng(0), vocabulary=3)
        gguf_models.write(out / f"{architecture}.gguf", metadata, tensors)
    for number, (types, sizes) in enumerate(blocks.items()):
        metadata = gguf_models.metadata_of("llama", **{**small, **sizes})
        tensors = gguf_models.tensors_of(metadata, np.random.default_rng(0), vocabulary=1, types=types.split())
        gguf_models.write(out / f"blocks{number}.gguf", metadata, tensors)
    pairs = {"model": "gpt2", "pre": "smollm", "tokens": ["a", "b", "aa", "ba", "\u0120", "\u00c3", "\u00a9", "<s>"],
             "merges": ["a a", "b a"], "token_type": [1, 1, 1, 1, 1, 1, 1, 3], "bos_token_id": 7, "add_bos_token": True}
    scores = {"model": "llama", "tokens": ["<unk>", "<s>", "<0xC3>", "<0xA9>", "\u2581", "a", "b", "\u2581a", "ab"],
              "token_type": [2, 3, 6, 6, 1, 1, 1, 1, 4], "scores": [0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -0.5, -0.25], "bos_token_id": 1,
              "eos_token_id": 0}
    for tokenizer in (pairs, scores):
        metadata = {f"tokenizer.ggml.{key}": value for key, value in tokenizer.items()}
        gguf_models.write(out / f"tokenizer_{tokenizer['model']}.gguf", metadata, {})
    write_dictionary("gguf", ["GGUF", "general.architecture", "general.alignment", "tokenizer.ggml.", *gguf_models.ARCHITECTURES])
    print(f"gguf: {len(list(out.iterdir()))} seeds")


def write_caffe():
    """Text, a zero byte, weights."""
    folder = empty(HERE / "seeds/caffe")
    made = {}
    net = made["conv"] = caffe_support.Network((1, 2, 5, 5))
    net.conv(2, 3, "pad: 1", group=2)
    net.batch_norm()
    net.relu()
    net.pool("AVE", "kernel_size: 3 stride: 2")
    net = made["dense"] = caffe_support.Network((1, 2, 4, 4))
    net.layer("LRN", "lrn_param { local_size: 3 }")
    net.layer("PReLU", "", [net.noise(2)])
    net.dense(3, 32)
    net.layer("Softmax")
    net = made["shapes"] = caffe_support.Network((1, 4, 3, 3))
    net.layer("Slice", tops=["a", "b"])
    net.layer("Eltwise", "eltwise_param { coeff: 1 coeff: -1 }", bottoms=["a", "b"])
    net.layer("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
    net.layer("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }")
    net = made["boxes"] = caffe_support.Network((1, 2, 4, 4))
    net.layer("Pooling", "pooling_param { kernel_size: 2 stride: 2 }")
    net.layer("PriorBox", "prior_box_param { min_size: 2 max_size: 3 aspect_ratio: 2 }", bottoms=[net.x, "data"])
    net.layer("Tile", "tile_param { axis: 0 tiles: 2 }")
    for name, net in made.items():
        (folder / name).write_bytes(net.text.encode() + b"\0" + net.weights.SerializeToString())
    old = 'layers { bottom: "d" top: "y" name: "y" type: POWER power_param { power: 2 shift: 1 } include { phase: TEST } }'
    (folder / "old").write_text('name: "o" input: "d" input_dim: 1 input_dim: 1 input_dim: 2 input_dim: 2 ' + old)
    messages = (caffe_support.ROOT / "src/import/caffe/net.proto").read_text()
    words = set(re.findall(r"\b(\w+) = \d+", messages)) | set(re.findall(r'type: "(\w+)"', "".join(net.text for net in made.values())))
    write_dictionary("caffe", sorted(words) + [" { ", " }", ": ", '"'])
    print(f"caffe: {len(list(folder.iterdir()))} seeds")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    args = parser.parse_args()
    models = smallest_models()
    write_onnx(models)
    print(f"onnx: {len(models)} seeds")
    write_json(models)
    write_tflite()
    write_pt2()
    write_caffe()
    write_texts(args.tessera, models)
    write_expressions()
    write_kernels()
    write_modules(args.tessera)
    write_gguf()


if __name__ == "__main__":
    main()
