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
        with self.assertRaisesRegex(tessera.Error, "TSR-4085.*'x' leaves sizes open"):
            tessera.quantize_dynamic(self.path, self.output, **self.all)
        tessera.quantize_dynamic(self.path, self.output, shapes={"x": (2, 40)}, **self.all)
        self.check("MatMulInteger")

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
