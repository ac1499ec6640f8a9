#!/usr/bin/env python3
"""The Python package on strings, sequences, optionals and maps: every form of them, results against the evaluator of the
package onnx or written down here, what is refused, and several threads on one model."""
import gc
import pathlib
import re
import tempfile
import threading
import unittest

import numpy as np
import onnx.parser

import check_structures
import tessera
from check_structures import HEADER, f32, strings
from package_test import ALL_DTYPES
from onnx import TensorProto, helper

ENGINES = ("native", "interp")
ZIP = ("m (float[N,2] x) => (seq(map(string,float)) y) "
       "{ y = ai.onnx.ml.ZipMap<classlabels_strings = [\"a\", \"ß\"]>(x) }")
ZIP_NUMBERS = "m (float[2,2] x) => (seq(map(int64,float)) y) { y = ai.onnx.ml.ZipMap<classlabels_int64s = [7, -2]>(x) }"
VECTORIZE = ("m (map(string,float) x) => (float[1,3] y) "
             "{ y = ai.onnx.ml.DictVectorizer<string_vocabulary = [\"a\", \"b\", \"c\"]>(x) }")
CAST_MAP = "m (map(int64,float) x) => (float[1,K] y) { y = ai.onnx.ml.CastMap(x) }"
JOIN = "m (string[N,2] a, string b) => (string[N,2] y) { y = StringConcat(a, b) }"
INSERT = "m (seq(float[N]) s, float[M] x) => (seq(float[K]) y, int64 n) { y = SequenceInsert(s, x)\n n = SequenceLength(y) }"
HAS = "m (optional(seq(string[N])) o) => (bool y) { y = OptionalHasElement(o) }"
# One that only a run can do, whatever the type is: the last element of a sequence.
LAST = "m (seq(%s[N]) s, int64 i) => (%s[M] y) { y = SequenceAt(s, i) }"


def compiled(text, engine="native", **options):
    model = onnx.parser.parse_model(HEADER + text) if isinstance(text, str) else text
    return tessera.compile(model, engine=engine, **options)


class ValuesTest(unittest.TestCase):
    def assert_same(self, got, want):
        """The same forms all through, the same dtypes and shapes, and the same elements."""
        self.assertIs(type(got), type(want))
        if isinstance(want, list):
            self.assertEqual(len(got), len(want))
            for one, other in zip(got, want):
                self.assert_same(one, other)
        elif isinstance(want, np.ndarray):
            self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))
            if want.dtype.kind == "f":
                np.testing.assert_allclose(got, want, rtol=1e-6)
            else:
                np.testing.assert_array_equal(got, want)
            if want.dtype == object:
                self.assertTrue(all(type(text) is str for text in got.reshape(-1)))
        else:
            self.assertEqual(got, want)

    def assert_raises(self, id, call, *mentions):
        with self.assertRaises(tessera.Error) as caught:
            call()
        self.assertEqual(caught.exception.id, id, str(caught.exception))
        for text in mentions:
            self.assertIn(text, str(caught.exception))


class Results(ValuesTest):
    def test_every_case_of_the_command_line(self):
        for name, (text, inputs, outputs) in check_structures.CASES.items():
            model = check_structures.model_of(text)
            want = outputs or check_structures.expected(model, inputs)
            for engine in ENGINES:
                with self.subTest(name, engine=engine):
                    self.assert_same(compiled(model, engine).run(inputs), list(want))

    def test_what_a_run_cannot_do(self):
        for name, (text, inputs, message) in check_structures.ERRORS.items():
            model = compiled(check_structures.model_of(text))
            with self.subTest(name), self.assertRaises(tessera.Error) as caught:
                model.run(inputs)
            self.assertRegex(f"{caught.exception.id}: {caught.exception.message}", message)

    def test_maps(self):
        x = np.array([[1, 2], [3, 4]], np.float32)
        for engine in ENGINES:
            self.assert_same(compiled(ZIP, engine, shapes={"x": (2, 2)}).run([x]),
                             [[{"a": 1.0, "ß": 2.0}, {"a": 3.0, "ß": 4.0}]])
            self.assert_same(compiled(ZIP_NUMBERS, engine).run([x]), [[{7: 1.0, -2: 2.0}, {7: 3.0, -2: 4.0}]])
            vectorize = compiled(VECTORIZE, engine)
            for given in ({"c": 3.5, "a": 1}, {"c": np.float32(3.5), np.str_("a"): np.float32(1)}):
                self.assert_same(vectorize.run([given]), [f32(1, 0, 3.5).reshape(1, 3)])
            self.assert_same(vectorize.run({"x": {}}), [np.zeros((1, 3), np.float32)])
            self.assert_same(compiled(CAST_MAP, engine).run([{4: 0.5, np.int64(-1): 2}]), [f32(2, 0.5).reshape(1, 2)])

    def test_optionals(self):
        for engine in ENGINES:
            has = compiled(HAS, engine)
            for given, want in ((None, False), ([], True), ([strings("a"), strings("b", "c")], True)):
                self.assert_same(has.run([given]), [np.array(want)])
            self.assert_same(has.run({}), [np.array(False)])

    def test_an_optional_that_a_run_gives(self):
        give = ("m (bool c, float[2] x) => (optional(float[2]) y) { y = If(c) <"
                "then_branch = g1 () => (optional(float[2]) r1) { r1 = Optional(x) }, "
                "else_branch = g2 () => (optional(float[2]) r2) { r2 = Optional<type = float[2]>() }> }")
        for engine in ENGINES:
            model = compiled(give, engine)
            self.assert_same(model.run([np.array(True), f32(1, 2)]), [f32(1, 2)])
            self.assert_same(model.run([np.array(False), f32(1, 2)]), [None])

    def test_every_dtype_in_a_sequence(self):
        for dtype in map(np.dtype, ALL_DTYPES):
            kind = TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(dtype)).lower()
            values = np.arange(5) % 2
            if dtype.name == "float8_e8m0fnu":
                values = 2.0 ** np.arange(5)
            elements = [values.astype(dtype)[:3], values.astype(dtype)]
            nodes = [helper.make_node("SequenceAt", ["s", "i"], ["y"])]
            number = helper.np_dtype_to_tensor_dtype(dtype)
            graph = helper.make_graph(
                nodes, kind, [helper.make_tensor_sequence_value_info("s", number, None),
                              helper.make_tensor_value_info("i", TensorProto.INT64, [])],
                [helper.make_tensor_value_info("y", number, [None])])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
            for engine in ENGINES:
                with self.subTest(dtype=dtype.name, engine=engine):
                    (y,) = compiled(model, engine).run([elements, -1])
                    self.assertEqual((y.dtype, y.shape), (dtype, (5,)))
                    np.testing.assert_array_equal(y.astype(np.float64), elements[1].astype(np.float64))

    def test_results_belong_to_the_caller(self):
        model = compiled(INSERT)
        (first, n) = model.run([[f32(1, 2)], f32(3)])
        first[0][0] = 9
        self.assert_same(model.run([first, f32()])[0], [f32(9, 2), f32(3), f32()])
        element = first[1]
        del model, first, n
        gc.collect()
        element += 1
        self.assert_same(element, f32(4))
        constant = compiled("m (bool c, seq(float[N]) s) => (seq(float[N]) t, float[2] y) {\n"
                            "t = Identity(s)\n y = Constant<value = float[2] {1, 2}>() }", "interp")
        constant.run([np.array(True), []])[1][:] = 0
        self.assert_same(constant.run([np.array(True), []])[1], f32(1, 2))

    def test_results_in_arrays_of_the_caller(self):
        model = compiled(LAST % ("float", "float"))
        y = np.zeros(2, np.float32)
        (result,) = model.run([[f32(1), f32(2, 3)], -1], {"y": y})
        self.assertIs(result, y)
        self.assert_same(y, f32(2, 3))
        (result,) = model.run([[y], 0], [y])
        self.assert_same(result, f32(2, 3))
        self.assert_raises("TSR-6305", lambda: model.run([[f32(1)], 0], [y]), "float32[2]")
        self.assert_raises("TSR-6305", lambda: model.run([[f32(1)], 0], [np.zeros(1)]), "float64[1]")
        self.assert_raises("TSR-6305", lambda: compiled(INSERT).run([[], f32(1)], {"y": []}), "seq(float32[?])")

    def test_saved_and_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.so"
            compiled(INSERT).save(path)
            model = tessera.load(path)
            self.assert_same(model.run([[], f32(1)]), [[f32(1)], np.array(1)])
            self.assertEqual(str(model.inputs[0]), "s: seq(float32[?])")


class Forms(ValuesTest):
    def test_a_model_says_what_it_takes_and_gives(self):
        for engine in ENGINES:
            described = [str(info) for text in (ZIP_NUMBERS, VECTORIZE, HAS) for model in [compiled(text, engine)]
                         for info in model.inputs + model.outputs]
            self.assertEqual(described, [
                "x: float32[2,2]", "y: seq(map(int64,float32))", "x: map(string,float32)", "y: float32[1,3]",
                "o: opt(seq(string[?]))", "y: bool[]"])
            info = compiled(HAS, engine).inputs[0]
            self.assertEqual((info.kind, info.wrappers, info.dtype, info.shape, info.key),
                             ("optional", ("optional", "sequence"), np.dtype(object), ("?",), None))
            self.assertEqual(compiled(ZIP_NUMBERS, engine).outputs[0].key, np.int64)
        joined = compiled(check_structures.model_of(check_structures.CASES["join_run_time"][0]))
        self.assertEqual((str(joined.outputs[0]), joined.outputs[0].shape), ("y: float32[*]", None))

    def test_strings(self):
        want = strings("ab+", "ü+", "+", "日本+", shape=(2, 2))
        texts = [["ab", "ü"], ["", "日本"]]
        coded = [[text.encode() for text in row] for row in texts]
        for engine in ENGINES:
            model = compiled(JOIN, engine, shapes={"a": (2, 2)})
            for given in (np.array(texts), np.array(texts, object), np.array(texts, np.dtypes.StringDType()), texts,
                          np.array(coded), np.array(coded, object), coded, tuple(map(tuple, texts)),
                          [[np.str_(text) for text in row] for row in texts], np.array(texts).T.copy().T,
                          np.array(texts, ">U4"), np.repeat(np.array(texts, object), 2, axis=1)[:, ::2]):
                for plus in ("+", np.str_("+"), np.array("+"), b"+", np.array("+", object)):
                    self.assert_same(model.run([given, plus]), [want])

    def test_strings_that_are_special(self):
        model = compiled(LAST % ("string", "string"))
        for text in ("", "a\0b", "\0", "x" * 100_000, "\U0001f600", "\ufeff"):
            self.assert_same(model.run([[[text, "end"]], 0]), [strings(text, "end")])
        self.assert_same(model.run([[np.zeros((0,), object)], 0]), [np.zeros((0,), object)])
        self.assert_same(model.run([[[]], 0]), [np.zeros((0,), object)])

    def test_sequences(self):
        model = compiled(INSERT)
        want = [[f32(1, 2), f32(3)], np.array(2)]
        for given in ([f32(1, 2)], (f32(1, 2),), [[1, 2]], [np.array([1, 2], ">f4")],
                      [np.array([1, 0, 2], np.float32)[::2]]):
            self.assert_same(model.run([given, f32(3)]), want)


class Refused(ValuesTest):
    def test_other_kinds(self):
        for text, given, mentions in (
                (INSERT, [f32(1), f32(1)], ("'s'", "ndarray", "a list or tuple", "seq(float32[?])")),
                (INSERT, ["ab", f32(1)], ("'s'", "str")),
                (INSERT, [[f32(1), None], f32(1)], ("'s[1]'", "NoneType", "an array")),
                (INSERT, [[{}], f32(1)], ("'s[0]'", "dict")),
                (VECTORIZE, [[("a", 1)]], ("'x'", "list", "a dict", "map(string,float32)")),
                (VECTORIZE, [{"a": [1, 2]}], ("'x'", "values", "more than one")),
                (HAS, [[["a"], None]], ("'o[1]'", "NoneType")),
                (HAS, [{"a": 1}], ("'o'", "dict", "a list or tuple")),
                (JOIN, [None, "a"], ("'a'", "NoneType"))):
            for engine in ENGINES:
                with self.subTest(given):
                    model = compiled(text, engine, **({"shapes": {"a": (1, 2)}} if text == JOIN else {}))
                    id = "TSR-6309"
                    self.assert_raises(id, lambda: model.run(given), *mentions)

    def test_other_dtypes(self):
        for text, given, mentions in (
                (INSERT, [[f32(1), np.zeros(2)], f32(1)], ("'s[1]'", "float64[2]", "float32[?]")),
                (INSERT, [[], np.zeros(2, np.int64)], ("'x'", "int64[2]")),
                (INSERT, [[strings("a")], f32(1)], ("'s[0]'",)),
                (INSERT, [[[[1], [1, 2]]], f32(1)], ("'s[0]'",)),
                (HAS, [[f32(1)]], ("'o[0]'", "float32[1]", "an array of str")),
                (HAS, [[["a", 1]]], ("'o[0]'", "int at position 1", "str")),
                (HAS, [[np.array([None, "a"], object)]], ("NoneType at position 0",)),
                (HAS, [[[["a"], ["b", "c"]]]], ("'o[0]'",)),
                (VECTORIZE, [{1: 2.0}], ("'x.keys'", "int at position 0")),
                (VECTORIZE, [{"a": "b"}], ("'x.values'",)),
                (CAST_MAP, [{"a": 1.0}], ("'x.keys'",)),
                (CAST_MAP, [{2**70: 1.0}], ("'x.keys'",)),
                (CAST_MAP, [{1.5: 1.0}], ("'x.keys'",))):
            for engine in ENGINES:
                with self.subTest(given):
                    self.assert_raises("TSR-6302", lambda: compiled(text, engine).run(given), *mentions)

    def test_text_that_has_no_utf8(self):
        for engine in ENGINES:
            has = compiled(HAS, engine)
            for given in (["ok", "\ud800"], [b"\xff"], np.array([b"ok", b"\xc3"]), np.array(["\udfff"])):
                self.assert_raises("TSR-7044", lambda: has.run([[given]]), "'o")

    def test_shapes(self):
        for engine, id in (("native", "TSR-7033"), ("interp", "TSR-6303")):
            model = compiled(JOIN, engine, shapes={"a": (1, 2)})
            self.assert_raises(id, lambda: model.run([[["a"]], "b"]), "'a'")
            self.assert_raises(id, lambda: model.run([["a", "b"], "b"]), "'a'")
        self.assert_raises("TSR-7042", lambda: compiled(INSERT).run([[], np.zeros((1,) * 20, np.float32)]), "'x'", "16")
        self.assert_raises("TSR-7042", lambda: compiled(HAS).run([[np.zeros((1,) * 20, "U1")]]), "'o'", "16")

    def test_how_many(self):
        model = compiled(INSERT)
        self.assert_raises("TSR-6301", lambda: model.run([[]]))
        self.assert_raises("TSR-6301", lambda: model.run({"s": []}), "'x'")
        self.assert_raises("TSR-6308", lambda: model.run(f32(1)))
        self.assert_raises("TSR-4011", lambda: model.run({"s": [], "x": f32(1), "z": 1}), "'z'")


class Threads(ValuesTest):
    def test_one_model_runs_in_several_threads_at_once(self):
        text = ("m (seq(string[N]) s, int64 n, float[2,2] x) => (seq(string[M]) t, float[2,2] y) {\n"
                "f = Constant<value = int64 {0}>()\n e = SequenceAt(s, f)\n d = StringConcat(e, e)\n"
                "t = SequenceInsert(s, d)\n c = Constant<value = bool {1}>()\n y = Loop(n, c, x) < body = b "
                "(int64 i, bool ci, float[2,2] v) => (bool co, float[2,2] w) { co = Identity(ci)\n w = MatMul(v, x) }> }")
        for engine in ENGINES:
            model = compiled(text, engine)
            wrong = []

            def work(number):
                for step in range(60):
                    texts, count = [f"{number}", "ü" * step], (number + step) % 5
                    x = np.array([[1, number], [0, 1]], np.float32)
                    try:
                        if step % 10 == 9:
                            with self.assertRaises(tessera.Error):
                                model.run([[], count, x])
                            continue
                        t, y = model.run([[texts], count, x])
                        self.assert_same(t, [strings(*texts), strings(*[text * 2 for text in texts])])
                        self.assert_same(y, np.linalg.matrix_power(x, count + 1))
                    except Exception as error:  # noqa: BLE001
                        wrong.append((number, step, error))

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
