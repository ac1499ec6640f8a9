#!/usr/bin/env python3
"""tessera.quantize_static and quantize_dynamic: readers of ours and of ONNX Runtime, what is written, what is refused."""
import pathlib
import tempfile
import unittest

import numpy
import onnx
import onnxruntime
import onnxruntime.quantization
import tessera
from onnx import numpy_helper, parser

onnxruntime.set_default_logger_severity(3)


class Reader:
    """Whatever has get_next."""

    def __init__(self, samples):
        self.samples = iter(samples)

    def get_next(self):
        return next(self.samples, None)


class Quantization(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
            net (float[2, 40] x) => (float[2, 10] y) { h = MatMul(x, a) r = Relu(h) y = MatMul(r, b) }""")
        random = numpy.random.default_rng(0)
        for name, shape in {"a": (40, 64), "b": (64, 10)}.items():
            self.model.graph.initializer.append(numpy_helper.from_array(random.standard_normal(shape).astype(numpy.float32), name))
        self.path, self.output = self.folder / "net.onnx", self.folder / "q.onnx"
        onnx.save(self.model, self.path)
        self.samples = [{"x": random.standard_normal((2, 40)).astype(numpy.float32)} for _ in range(5)]
        self.all = {"all_layers": True, "min_speedup": 0, "threads": 1}

    def check(self, operator):
        self.assertIn(operator, {node.op_type for node in onnx.load(self.output).graph.node})
        want = onnxruntime.InferenceSession(str(self.path)).run(None, self.samples[0])[0]
        for got in (onnxruntime.InferenceSession(str(self.output)).run(None, self.samples[0])[0],
                    tessera.compile(self.output).run(self.samples[0])[0]):
            self.assertLess(abs(got - want).max(), 0.1 * abs(want).max())

    def test_static(self):
        for model in (self.path, str(self.path), self.model):
            for method in (tessera.CalibrationMethod.Mse, onnxruntime.quantization.CalibrationMethod.Entropy, "MinMax"):
                for per_channel in (True, False):
                    report = tessera.quantize_static(model, self.output, Reader(self.samples), calibrate_method=method,
                                                     per_channel=per_channel, **self.all)
                    self.assertEqual(report["samples"], 5)
                    self.check("QuantizeLinear")

    def test_readers_of_onnxruntime(self):
        class Theirs(Reader, onnxruntime.quantization.CalibrationDataReader):
            pass

        self.assertIsInstance(Theirs([]), tessera.CalibrationDataReader)
        tessera.quantize_static(
            self.path, self.output, Theirs(self.samples), onnxruntime.quantization.QuantFormat.QDQ,
            activation_type=onnxruntime.quantization.QuantType.QInt8, weight_type=onnxruntime.quantization.QuantType.QInt8, **self.all)
        self.check("QuantizeLinear")

    def test_dynamic(self):
        tessera.quantize_dynamic(self.path, self.output, **self.all)
        self.check("MatMulInteger")
        report = tessera.quantize_dynamic(self.path, self.output, weight_only=True, calibration_data_reader=Reader(self.samples),
                                          ada_round=True, nodes_to_exclude="MatMul#0", **self.all)
        self.assertEqual([layer["choice"] for layer in report["layers"]], ["f32: kept", "bytes"])
        self.check("MatMulNBits")

    def test_open_sizes_take_those_of_samples(self):
        self.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
        onnx.save(self.model, self.path)
        tessera.quantize_static(self.path, self.output, Reader(self.samples), **self.all)
        self.check("QuantizeLinear")
        with self.assertRaises(tessera.Error) as caught:
            tessera.quantize_dynamic(self.path, self.output, **self.all)
        self.assertEqual(caught.exception.reason, "open_sizes")
        self.assertNotIn("--", str(caught.exception))
        tessera.quantize_dynamic(self.path, self.output, shapes={"x": (2, 40)}, **self.all)
        self.check("MatMulInteger")

    def test_sizes_that_stay_open(self):
        """The file runs with any batch, and samples may have several sizes."""
        self.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
        self.model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "n"
        onnx.save(self.model, self.path)
        random = numpy.random.default_rng(1)
        samples = [{"x": random.standard_normal((rows, 40)).astype(numpy.float32)} for rows in (3, 1, 8)]
        for quantize in (lambda **sizes: tessera.quantize_static(self.path, self.output, Reader(samples), **sizes, **self.all),
                         lambda **sizes: tessera.quantize_dynamic(self.path, self.output, **sizes, **self.all)):
            for sizes in ({"dims": {"n": (1, 8)}}, {"shapes": {"x": ((1, 8), 40)}}):
                self.output.unlink(missing_ok=True)
                quantize(**sizes)
                self.assertEqual(onnx.load(self.output).graph.input[0].type.tensor_type.shape.dim[0].dim_value, 0)
                theirs = onnxruntime.InferenceSession(str(self.output))
                ours = tessera.compile(self.output, dims={"n": (1, 8)})
                for rows in (1, 5, 8):
                    x = random.standard_normal((rows, 40)).astype(numpy.float32)
                    numpy.testing.assert_allclose(ours.run({"x": x})[0], theirs.run(None, {"x": x})[0], rtol=0, atol=0.3)
        with self.assertRaises(tessera.Error) as caught:  # outside the range
            tessera.quantize_static(self.path, self.output, Reader(samples), dims={"n": (1, 4)}, **self.all)
        self.assertEqual(caught.exception.id, "TSR-7034")

    def test_labels(self):
        for value in (self.model.graph.input[0], self.model.graph.output[0]):
            value.type.tensor_type.shape.dim[0].dim_value = 1
        onnx.save(self.model, self.path)
        self.samples = [{"x": sample["x"][:1]} for sample in self.samples]
        labels = [0, 1, 2, 3, 4]
        report = tessera.quantize_static(self.path, self.output, Reader(self.samples), labels=labels, **self.all)
        self.assertIn("accuracy", str(report["outputs"][0]))
        with self.assertRaisesRegex(tessera.Error, "TSR-4085: 4 labels for 5 samples"):
            tessera.quantize_static(self.path, self.output, Reader(self.samples), labels=labels[:4], **self.all)

    def test_errors_name_arguments(self):
        def said(kind, **more):
            with self.assertRaises(kind) as caught:
                tessera.quantize_static(self.path, self.output, Reader(self.samples), **{**self.all, **more})
            self.assertNotIn("--", str(caught.exception))
            return str(caught.exception)

        self.assertIn("percentile=40", said(tessera.Error, percentile=40, calibrate_method="Percentile"))
        self.assertIn("min_speedup=0", said(tessera.Error, min_speedup=1000))
        self.assertIn("nodes_to_exclude='zz': no layer", said(tessera.Error, nodes_to_exclude="zz"))
        self.assertIn("nodes_to_exclude", said(tessera.Error, nodes_to_exclude="*"))
        self.assertIn("granularity='group' with quantize_static", said(tessera.Error, granularity="group"))
        self.assertIn("Mse, Percentile", said(tessera.Error, min_sqnr=300))
        self.assertIn("max_drop=120", said(tessera.Error, max_drop=120))
        for argument, value, expected in (
                ("percentile", "99", "a number"), ("ada_round", 1, "True or False"), ("min_speedup", None, "a number"),
                ("per_layer", 3, "a string"), ("all_layers", "yes", "True or False"), ("nodes_to_exclude", 7, "names of layers"),
                ("nodes_to_exclude", ["a", 7], "a string"), ("group", 32.5, "a whole number"), ("per_channel", 1, "True or False")):
            message = said(TypeError, **{argument: value})
            self.assertIn(argument, message)
            self.assertIn(f"expected {expected}", message)
        for arguments, name in (((7, self.output), "model_input"), ((self.path, 7), "model_output")):
            with self.assertRaisesRegex(TypeError, f"{name} is a int; expected a path"):
                tessera.quantize_dynamic(*arguments)
        for argument in ("dims", "shapes"):
            self.assertIn(argument, said(tessera.Error, **{argument: 3}))

    def test_what_is_refused(self):
        def refused(id, samples, **more):
            with self.assertRaises(tessera.Error) as caught:
                tessera.quantize_static(self.path, self.output, Reader(samples), **{**self.all, **more})
            self.assertEqual(caught.exception.id, id)
            self.assertFalse(self.output.exists())

        refused("TSR-6240", [])
        refused("TSR-6240", [{"z": self.samples[0]["x"]}])
        refused("TSR-6240", [{"x": self.samples[0]["x"].astype(numpy.float64)}])
        refused("TSR-6303", [{"x": numpy.zeros((3, 40), numpy.float32)}])
        refused("TSR-2093", [self.samples[0], {"x": numpy.full((2, 40), numpy.nan, numpy.float32)}])
        refused("TSR-4085", self.samples, calibrate_method="Median")
        refused("TSR-4085", self.samples, activation_type="QInt4")
        refused("TSR-4086", self.samples, min_speedup=1000)
        refused("TSR-2092", self.samples, nodes_to_exclude=["*"])
        refused("TSR-6240", [[1, 2]])
        with self.assertRaisesRegex(TypeError, "colour"):
            tessera.quantize_static(self.path, self.output, Reader(self.samples), colour=1)
        with self.assertRaises(tessera.Error):
            tessera.quantize_static(self.path, self.output, 7)
        with self.assertRaisesRegex(tessera.Error, "TSR-4085"):
            tessera.quantize_static(self.path, self.output, None)


if __name__ == "__main__":
    unittest.main()
