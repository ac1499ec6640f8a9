#!/usr/bin/env python3
"""Strings, sequences, optionals and maps: small models whose results the evaluator of the package onnx computes (or that
are written down here), run by compiled code and by the interpreter; and runs that must end with an error.

    check_structures.py TESSERA [--match REGEX] [--keep DIR]"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnx.parser
import onnx.reference
from onnx import TensorProto, helper

import case_folder

HEADER = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4]>\n'


def strings(*texts, shape=None):
    array = np.array(texts, dtype=object)
    return array if shape is None else array.reshape(shape)


def f32(*values):
    return np.array(values, np.float32)


# name -> (model text, inputs, outputs or None: ask the reference)
CASES = {
    # Known while compiling.
    "known_at": ("m (float[3] a, float[3] b) => (float[3] y) { s = SequenceConstruct(a, b)\n"
                 "i = Constant<value = int64 {-1}>()\n y = SequenceAt(s, i) }", [f32(1, 2, 3), f32(4, 5, 6)], None),
    "known_split_length": ("m (float[5,2] x) => (int64 n) { two = Constant<value = int64 {2}>()\n"
                           "s = SplitToSequence(x, two)\n n = SequenceLength(s) }",
                           [np.ones((5, 2), np.float32)], None),
    "known_join": ("m (float[2,3] a, float[2,1] b) => (float[2,4] y) { s = SequenceConstruct(a, b)\n"
                   "y = ConcatFromSequence<axis = -1>(s) }",
                   [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 1), np.float32)], None),
    "known_optional": ("m (float[2] x) => (bool h, float[2] y) { o = Optional(x)\n h = OptionalHasElement(o)\n"
                       "y = OptionalGetElement(o) }", [f32(1, 2)], [np.array(True), f32(1, 2)]),
    # What only a run knows.
    "at_run_time": ("m (float[2] a, float[2] b, int64 i) => (float[2] y) { s = SequenceConstruct(a, b)\n"
                    "y = SequenceAt(s, i) }", [f32(1, 2), f32(3, 4), np.array(-2, np.int64)], None),
    "at_then_kernel": ("m (float[2,2] a, float[2,2] b, int64 i) => (float[2,2] y) { s = SequenceConstruct(a, b)\n"
                       "e = SequenceAt(s, i)\n p = MatMul(e, a)\n y = Relu(p) }",
                       [np.ones((2, 2), np.float32), -np.eye(2, dtype=np.float32), np.array(1, np.int64)], None),
    "insert_erase": ("m (seq(float[N]) s, float[2] x, int64 i, int64 j) => (seq(float[N]) y) {\n"
                     "t = SequenceInsert(s, x, i)\n y = SequenceErase(t, j) }",
                     [[f32(1), f32(2, 3)], f32(7, 8), np.array(1, np.int64), np.array(-1, np.int64)],
                     [[f32(1), f32(7, 8)]]),
    "erase_last": ("m (seq(float[N]) s) => (seq(float[N]) y, int64 n) { y = SequenceErase(s)\n n = SequenceLength(y) }",
                   [[f32(1), f32(2, 3)]], [[f32(1)], np.array(1, np.int64)]),
    "join_run_time": ("m (seq(float[N]) s) => (float[M] y) { y = ConcatFromSequence<axis = 0>(s) }",
                      [[f32(1), f32(2, 3), f32()]], [f32(1, 2, 3)]),
    "stack_run_time": ("m (seq(int64[N]) s) => (int64[M,K] y) { y = ConcatFromSequence<axis = 1, new_axis = 1>(s) }",
                       [[np.array([1, 2]), np.array([3, 4]), np.array([5, 6])]],
                       [np.array([[1, 3, 5], [2, 4, 6]])]),
    "elementwise": ("m (seq(float[N,M]) s, int64 i, float[1,3] b) => (float[K,L] y, int64[2] d) {\n"
                    "x = SequenceAt(s, i)\n t = Add(x, b)\n u = Tanh(t)\n h = Constant<value = float {0.5}>()\n"
                    "v = Mul(u, h)\n c = Greater(v, h)\n y = Where(c, t, v)\n d = Shape(y) }",
                    [[np.ones((1, 3), np.float32), np.linspace(-3, 3, 3 * 700, dtype=np.float32).reshape(700, 3)],
                     np.array(1, np.int64), np.array([[0, 1, -1]], np.float32)], None),
    "moves": ("m (seq(float[N,M]) s, int64 i) => (float[A] y) { x = SequenceAt(s, i)\n t = Transpose<perm=[1,0]>(x)\n"
              "a = Constant<value = int64[1] {1}>()\n e = Constant<value = int64[1] {9}>()\n z = Constant<value = int64[1] {0}>()\n"
              "u = Slice(t, a, e, z)\n g = Constant<value = int64[2] {1, 0}>()\n v = Gather<axis = 1>(u, g)\n"
              "w = Concat<axis = 1>(v, v)\n m1 = Constant<value = int64[1] {-1}>()\n y = Reshape(w, m1) }",
              [[np.zeros((1, 1), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)], np.array(-1, np.int64)],
              None),
    "if_sequences": ("m (bool c, float[2] x) => (seq(float[N]) y) { y = If(c) <\n"
                     "then_branch = g1 () => (seq(float[N]) r1) { r1 = SequenceConstruct(x, x) },\n"
                     "else_branch = g2 () => (seq(float[N]) r2) { r2 = SequenceConstruct(x) }> }",
                     [np.array(False), f32(1, 2)], [[f32(1, 2)]]),
    "loop_unbounded": ("m (int64 n, float[2] x) => (float[2] y, float[K,2] all) { c = Constant<value = bool {1}>()\n"
                       "y, all = Loop(n, c, x) < body = b (int64 i, bool ci, float[2] v) => (bool co, float[2] w, float[2] o)"
                       " { co = Identity(ci)\n w = Add(v, v)\n o = Identity(w) }> }",
                       [np.array(3, np.int64), f32(1, 2)], [f32(8, 16), np.array([[2, 4], [4, 8], [8, 16]], np.float32)]),
    "loop_none": ("m (int64 n, float[2] x) => (float[2] y, float[K,2] all) { c = Constant<value = bool {1}>()\n"
                  "y, all = Loop(n, c, x) < body = b (int64 i, bool ci, float[2] v) => (bool co, float[2] w, float[2] o)"
                  " { co = Identity(ci)\n w = Add(v, v)\n o = Identity(w) }> }",
                  [np.array(0, np.int64), f32(1, 2)], [f32(1, 2), np.zeros((0, 2), np.float32)]),
    # Strings.
    "string_moves": ("m (string[3] a, string[1] b, int64[2] i) => (string[2] y, bool[3] e, string[4] z) {\n"
                     "y = Gather(a, i)\n e = Equal(a, b)\n z = Concat<axis = 0>(a, b) }",
                     [strings("x", "", "ähm"), strings("x"), np.array([2, 0], np.int64)],
                     [strings("ähm", "x"), np.array([True, False, False]), strings("x", "", "ähm", "x")]),
    "string_constant": ("m (bool c) => (string[2] y) { a = Constant<value_strings = [\"p\", \"q\"]>()\n"
                        "y = Where(c, a, b) }", [np.array(False)], [strings("new", "")]),
    "string_where_if": ("m (bool c, string[2] a, string[2] b) => (string[2] y) { y = If(c) <\n"
                        "then_branch = g1 () => (string[2] r1) { r1 = StringConcat(a, b) },\n"
                        "else_branch = g2 () => (string[2] r2) { r2 = Identity(b) }> }",
                        [np.array(True), strings("a", "b"), strings("1", "2")], [strings("a1", "b2")]),
    "string_casts": ("m (string[3] s) => (float[3] f, string[3] t) { f = Cast<to = 1>(s)\n t = Cast<to = 8>(f) }",
                     [strings("1.5", "-2e3", "0.1")], [f32(1.5, -2000, 0.1), strings("1.5", "-2000.0", "0.1")]),
    "string_int_casts": ("m (int32[3] x) => (string[3] t, int64[3] y) { t = Cast<to = 8>(x)\n y = Cast<to = 7>(t) }",
                         [np.array([1, -20, 300], np.int32)], [strings("1", "-20", "300"), np.array([1, -20, 300])]),
    "string_split_sequence": ("m (seq(string[N]) s) => (seq(string[M,K]) y) { y = SequenceMap(s) <body = b (string[N] x)"
                              " => (string[M,K] p) { p, n = StringSplit<delimiter = \",\">(x) }> }",
                              [[strings("a,b", "c"), strings("")]],
                              [[strings("a", "b", "c", "", shape=(2, 2)), strings("", shape=(1, 1))]]),
    "string_case": ("m (string[4] x) => (string[K] y) { y = StringNormalizer<case_change_action = \"UPPER\","
                    " stopwords = [\"Über\"]>(x) }", [strings("straße", "ÜBER", "éa", "日本")],
                    [strings("STRAßE", "ÉA", "日本")]),
    "labels_to_strings": ("m (int64[3] x) => (string[3] y) { y = ai.onnx.ml.LabelEncoder<keys_int64s = [1, 2],"
                          " values_strings = [\"one\", \"two\"], default_string = \"many\">(x) }",
                          [np.array([2, 1, 7], np.int64)], [strings("two", "one", "many")]),
    "categories": ("m (string[3] x) => (int64[3] y) { y = ai.onnx.ml.CategoryMapper<cats_strings = [\"a\", \"b\"],"
                   " cats_int64s = [5, 6], default_int64 = -3>(x) }", [strings("b", "?", "a")],
                   [np.array([6, -3, 5], np.int64)]),
    "tfidf_strings": ("m (string[5] x) => (float[3] y) { y = TfIdfVectorizer<mode = \"TF\", min_gram_length = 1,"
                      " max_gram_length = 2, max_skip_count = 0, ngram_counts = [0, 2], ngram_indexes = [0, 1, 2],"
                      " pool_strings = [\"a\", \"b\", \"a\", \"b\"]>(x) }", [strings("a", "b", "c", "a", "b")],
                      [f32(2, 2, 2)]),
    "one_hot_strings": ("m (string[2] x) => (float[2,3] y) { y = ai.onnx.ml.OneHotEncoder<cats_strings = [\"u\", \"v\","
                        " \"w\"]>(x) }", [strings("w", "z")], [np.array([[0, 0, 1], [0, 0, 0]], np.float32)]),
}

# name -> (model text, inputs, what the error says)
ERRORS = {
    "at_out_of_range": (CASES["at_run_time"][0], [f32(1, 2), f32(3, 4), np.array(2, np.int64)],
                        "TSR-7041: SequenceAt .*: position 2 of a sequence of 2 elements; legal: -2 to 1"),
    "insert_out_of_range": (CASES["insert_erase"][0],
                            [[f32(1)], f32(7, 8), np.array(-2, np.int64), np.array(0, np.int64)],
                            "TSR-7041: SequenceInsert .*: position -2 of a sequence of 1 elements; legal: -1 to 1"),
    "erase_from_empty": (CASES["erase_last"][0], [[]], "TSR-7041: SequenceErase .*: a sequence without elements"),
    "join_empty": (CASES["join_run_time"][0], [[]], "TSR-7041: ConcatFromSequence .*: a sequence without elements"),
    "join_shapes": (CASES["stack_run_time"][0], [[np.array([1, 2]), np.array([3])]],
                    r"TSR-7041: ConcatFromSequence .*: elements i64\[2\] and i64\[1\]; legal: one type and shape"),
    "empty_optional": ("m (optional(float[2]) x) => (float[2] y) { y = OptionalGetElement(x) }", [None],
                       "TSR-7041: OptionalGetElement .*: an optional without an element"),
    "broadcast": (CASES["elementwise"][0], [[np.ones((2, 2), np.float32)], np.array(0, np.int64), np.ones((1, 3), np.float32)],
                  r"TSR-7041: Add .*: operands of shapes \[2,2\] and \[1,3\]; legal: shapes that broadcast"),
    "no_number": (CASES["string_casts"][0], [strings("1.5", "x", "2")],
                  "TSR-7041: Cast .*: 'x' is no number; legal: numbers such as 3.14"),
    "spaces_are_no_number": (CASES["string_casts"][0], [strings("1.5", "  ", "2")], "TSR-7041: Cast .*: '  ' is no number"),
    "number_behind_nul": (CASES["string_casts"][0], [strings("1.5", "2\0x", "2")], "TSR-7041: Cast .*: '2.x' is no number"),
    "split_sizes": ("m (float[3] x, int64[2] n) => (seq(float[N]) y) { y = SplitToSequence(x, n) }",
                    [f32(1, 2, 3), np.array([1, 1], np.int64)],
                    "TSR-7041: SplitToSequence .*: split has 2 parts, which do not add up to dimension 0 of 3 elements"),
    "other_shape": ("m (seq(float[2,2]) s, int64 i, float[2,2] a) => (float[2,2] y) { e = SequenceAt(s, i)\n y = MatMul(e, a) }",
                    [[np.ones((3, 2), np.float32)], np.array(0, np.int64), np.ones((2, 2), np.float32)],
                    r"TSR-7041: .*an operand is f32\[3,2\]; this module was compiled for f32\[2,2\]"),
}
# name -> (model text, what the error says)
REFUSED = {
    "mixed_dtypes": ("m (float[2] a, int64[2] b) => (seq(float[N]) y) { y = SequenceConstruct(a, b) }",
                     r"SequenceConstruct: an element i64\[2\] for a sequence of f32; .*legal: elements of one type"),
    "add_strings": ("m (string[2] a) => (string[2] y) { y = Add(a, a) }",
                    r"Add: input 0 is string\[2\]; .*legal: numbers: the operator does not take strings"),
    "tensor_as_sequence": ("m (float[2] a) => (int64 n) { n = SequenceLength(a) }",
                           r"SequenceLength: input 0 is f32\[2\]; .*legal: a sequence"),
    "sequence_as_tensor": ("m (seq(float[2]) s) => (float[2] y) { y = Relu(s) }", r"Relu.* is seq\(f32\[2\]\)"),
    "known_out_of_range": ("m (float[2] a) => (float[2] y) { s = SequenceConstruct(a)\n i = Constant<value = int64 {1}>()\n"
                           "y = SequenceAt(s, i) }", "SequenceAt: position 1 of a sequence of 1 elements"),
    "softmax_of_unknown": ("m (seq(float[]) s, int64 i) => (float[M] y) { x = SequenceAt(s, i)\n y = Softmax(x) }",
                           "Softmax.*its shape is known only when the model runs"),
}


def model_of(text):
    model = onnx.parser.parse_model(HEADER + text)
    if "string_constant" in text or "Where(c, a, b)" in text:  # the text form has no tensors of strings
        model.graph.initializer.append(helper.make_tensor("b", TensorProto.STRING, [2], [b"new", b""]))
    return model


def expected(model, inputs):
    names = [value.name for value in model.graph.input]
    return onnx.reference.ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--match", default=".")
    parser.add_argument("--keep")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(options.keep or folder)
        problems = []
        for name, (text, inputs, outputs) in CASES.items():
            if re.search(options.match, name):
                model = model_of(text)
                case_folder.write_case(out / "right" / name, model, [(inputs, outputs or expected(model, inputs))])
        for engine in ("native", "interp"):
            run = subprocess.run([options.tessera, "verify", str(out / "right"), "--quiet", "--engine", engine],
                                 capture_output=True, text=True)
            print(f"{engine}: {run.stdout.strip()}")
            if run.returncode != 0:
                problems.append(f"{engine}: {run.stdout}{run.stderr}")
        for name, (text, inputs, message) in ERRORS.items():
            if not re.search(options.match, name):
                continue
            model = model_of(text)
            outputs = [[f32(0)] if value.type.HasField("sequence_type") else f32(0) for value in model.graph.output]
            case_folder.write_case(out / "wrong" / name, model, [(inputs, outputs)])
            for engine in ("native", "interp"):
                run = subprocess.run([options.tessera, "verify", str(out / "wrong" / name), "--engine", engine],
                                     capture_output=True, text=True)
                if not re.search(message, run.stdout):
                    problems.append(f"{name}, {engine}: got {run.stdout.strip()}\n  wanted {message}")
        for name, (text, message) in REFUSED.items():
            if not re.search(options.match, name):
                continue
            path = out / f"{name}.onnx"
            path.write_bytes(model_of(text).SerializeToString())
            run = subprocess.run([options.tessera, "compile", str(path), "-o", str(out / "x.so")], capture_output=True,
                                 text=True)
            if run.returncode != 1 or not re.search(message, run.stderr.replace("\n", "; ")):
                problems.append(f"{name}: {run.returncode}, got {run.stderr.strip()}\n  wanted {message}")
        print("\n".join(problems))
        print(f"{len(CASES)} cases, {len(ERRORS) + len(REFUSED)} errors, {len(problems)} problems")
        return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
