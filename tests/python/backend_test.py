#!/usr/bin/env python3
"""tessera.backend beyond what the official suite asks of it: open dimensions, inputs with values, single nodes."""
import unittest

import numpy as np
import onnx
import onnx.backend.base
import onnx.parser
from onnx import TensorProto, helper

import tessera
import tessera.backend
from cli_support import affine, affine_model, conv_model, make_model

X = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)


class Prepare(unittest.TestCase):
    def test_it_is_the_standard_interface(self):
        self.assertTrue(issubclass(tessera.backend.TesseraBackend, onnx.backend.base.Backend))
        prepared = tessera.backend.prepare(affine_model())
        self.assertIsInstance(prepared, onnx.backend.base.BackendRep)
        for inputs in ([X], (X,), X, {"x": X}):
            results = prepared.run(inputs)
            self.assertIsInstance(results, tuple)
            np.testing.assert_array_equal(results, affine(X))
        np.testing.assert_array_equal(tessera.backend.run_model(affine_model(), [X]), affine(X))

    def test_options_are_those_of_compile(self):
        prepared = tessera.backend.prepare(affine_model(), "CPU", opt_level=0, threads=1, rtol=1e-3)
        np.testing.assert_array_equal(prepared.run([X]), affine(X))
        with self.assertRaises(tessera.Error):
            tessera.backend.prepare(affine_model(), opt_level=9)

    def test_open_dimensions_are_those_of_each_run(self):
        prepared = tessera.backend.prepare(affine_model(("n", 3)))
        for rows in (1, 4, 2, 4):
            x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
            np.testing.assert_array_equal(prepared.run([x]), affine(x))
        for rows in range(1, 40):  # more than are kept
            x = np.ones((rows, 3), np.float32)
            np.testing.assert_array_equal(prepared.run({"x": x}), affine(x))
        with self.assertRaises(tessera.Error):
            prepared.run([np.zeros((2, 4), np.float32)])

    def test_inputs_that_have_values_need_none(self):
        model = affine_model()
        model.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [3]))
        prepared = tessera.backend.prepare(model)
        np.testing.assert_array_equal(prepared.run([X]), affine(X))
        with self.assertRaises(tessera.Error) as caught:
            prepared.run([X, X, X])
        self.assertEqual(caught.exception.id, "TSR-6301")

    def test_strings_sequences_optionals_and_maps(self):
        text = ('<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4]> m (seq(float[N]) s, optional(string[M]) o, '
                'float[K,2] x) => (seq(float[L]) t, bool b, seq(map(int64,float)) z) { c = Constant<value = float[1] {5}>() '
                't = SequenceInsert(s, c) b = OptionalHasElement(o) '
                'z = ai.onnx.ml.ZipMap<classlabels_int64s = [3, 4]>(x) }')
        model = onnx.parser.parse_model(text)
        self.assertTrue(tessera.backend.is_compatible(model))
        prepared = tessera.backend.prepare(model)
        for rows, optional in ((1, None), (2, np.array(["a"]))):
            x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
            s = [np.arange(rows, dtype=np.float32)]
            t, b, z = prepared.run([s, optional, x])
            self.assertEqual(([each.tolist() for each in t], b, z),
                             ([s[0].tolist(), [5]], optional is not None, [{3: row[0], 4: row[1]} for row in x]))

    def test_devices(self):
        for device, there in (("CPU", True), ("CPU:0", True), ("CUDA", False)):
            self.assertEqual(tessera.backend.supports_device(device), there)
            self.assertEqual(tessera.backend.is_compatible(conv_model(), device), there)
        with self.assertRaises(tessera.Error) as caught:
            tessera.backend.prepare(conv_model(), "CUDA")
        self.assertEqual(caught.exception.id, "TSR-4033")

    def test_compatible_models(self):
        unknown = make_model([helper.make_node("NoSuchOperator", ["x"], ["y"])], [("x", TensorProto.FLOAT, [2])],
                             [("y", TensorProto.FLOAT, [2])])
        self.assertFalse(tessera.backend.is_compatible(unknown))
        self.assertTrue(tessera.backend.is_compatible(affine_model(("n", 3))))


class RunNode(unittest.TestCase):
    def run_node(self, op, inputs, outputs=("y",), names=None, **arguments):
        attributes = arguments.pop("attributes", {})
        names = names or [f"x{i}" for i in range(len(inputs))]
        node = helper.make_node(op, names, outputs, domain=arguments.pop("domain", ""), **attributes)
        return tessera.backend.run_node(node, inputs, **arguments)

    def test_nodes(self):
        np.testing.assert_array_equal(self.run_node("Neg", [X])[0], -X)
        np.testing.assert_array_equal(self.run_node("Neg", X, names=["x"])[0], -X)
        np.testing.assert_array_equal(self.run_node("Add", [X, np.float32(1)])[0], X + 1)
        parts = self.run_node("Split", [X], ("a", "b", "c"), attributes={"axis": 1, "num_outputs": 3})
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), X)

    def test_operands_that_decide_shapes(self):
        np.testing.assert_array_equal(self.run_node("Reshape", [X, np.array([3, 2])])[0], X.reshape(3, 2))
        np.testing.assert_array_equal(self.run_node("ReduceSum", [X, np.array([0])], attributes={"keepdims": 0})[0],
                                      X.sum(axis=0))
        np.testing.assert_array_equal(self.run_node("Range", [np.int64(1), np.int64(9), np.int64(3)])[0], [1, 4, 7])
        (y,) = self.run_node("Reshape", [X, np.array([3, 2])], outputs_info=[(np.float32, (3, 2))])
        np.testing.assert_array_equal(y, X.reshape(3, 2))

    def test_operands_that_are_left_out(self):
        (y,) = self.run_node("Clip", [X, np.float32(1)], names=["x", "", "max"])
        np.testing.assert_array_equal(y, np.minimum(X, 1))

    def test_strings_sequences_and_maps(self):
        (y,) = self.run_node("StringConcat", [np.array(["a", "b"]), np.array(["ü"], object)])
        np.testing.assert_array_equal(y, np.array(["aü", "bü"], object))
        (y,) = self.run_node("SequenceInsert", [[X, X[:1]], X[1:]])
        self.assertIsInstance(y, list)
        for got, want in zip(y, (X, X[:1], X[1:]), strict=True):
            np.testing.assert_array_equal(got, want)
        (y,) = self.run_node("SequenceAt", [(X, X[:1]), np.int64(-1)])
        np.testing.assert_array_equal(y, X[:1])
        (y,) = self.run_node("DictVectorizer", [{"a": 2.5}], domain="ai.onnx.ml",
                             attributes={"string_vocabulary": ["b", "a"]})
        np.testing.assert_array_equal(y, np.array([[0, 2.5]], np.float32))
        for value in (None, {}):
            with self.assertRaises(tessera.Error) as caught:
                self.run_node("OptionalHasElement", [value])
            self.assertEqual(caught.exception.id, "TSR-6309")

    def test_versions_and_domains(self):
        (y,) = self.run_node("Clip", [X], attributes={"min": 0.0}, opset_version=9)
        np.testing.assert_array_equal(y, np.maximum(X, 0))
        (y,) = self.run_node("Binarizer", [X], attributes={"threshold": 0.5}, domain="ai.onnx.ml", domain_version=1)
        np.testing.assert_array_equal(y, (X > 0.5).astype(np.float32))
        with self.assertRaises(tessera.Error):
            self.run_node("Clip", [X], attributes={"min": 0.0}, opset_version=12)


if __name__ == "__main__":
    unittest.main(verbosity=1)
