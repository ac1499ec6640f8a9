#!/usr/bin/env python3
"""`tessera quantize`: a trained face detector finds the same faces in bytes, by us and by ONNX Runtime; what samples may
be; what is refused.    cli_quantize_test.py TESSERA [unittest options]"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python")]
import cli_support
from cli_support import CliTest
from test_data import find_test_data

import numpy
import onnx
import onnxruntime
from onnx import parser

FACES = find_test_data("real/ultraface-rfb-320/model.onnx")


def faces(scores, boxes):
    """The corners of the faces: score above 0.7, then non-maximum suppression with IoU 0.3."""
    order = [i for i in numpy.argsort(-scores[0, :, 1]) if scores[0, i, 1] > 0.7]

    def overlap(a, b):
        inside = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
        return inside / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside)

    kept = []
    for i in order:
        if all(overlap(boxes[0, i], boxes[0, k]) <= 0.3 for k in kept):
            kept.append(i)
    return boxes[0, kept]


class Faces(CliTest):
    PHOTOS = ["photo2", "photo13", "photo16"]

    def setUp(self):
        super().setUp()
        if not FACES:
            self.skipTest("real/ultraface-rfb-320 is not in TESSERA_TEST_DATA")
        self.real = pathlib.Path(FACES).parent

    def check(self, scores, boxes, photo):
        want = faces(*(numpy.load(self.real / f"expected_{photo}_{i}.npy") for i in (0, 1)))
        got = faces(scores, boxes)
        self.assertEqual(len(got), len(want), photo)
        for face in got:
            self.assertLess(min(numpy.abs(face - other).max() for other in want), 0.02, photo)

    def test_the_same_faces(self):
        (self.folder / "photos").mkdir()
        for photo in self.PHOTOS[:2]:
            (self.folder / "photos" / f"{photo}.jpg").write_bytes((self.real / f"{photo}.jpg").read_bytes())
        done = self.tessera("quantize", FACES, "--calib", "photos", "--mean", 127 / 255, "--std", 128 / 255, "--all",
                            "--min-speedup", 0, "--threads", 1, "-o", "faces.onnx", "--json")
        report = json.loads(done[0])
        self.assertEqual({layer["choice"] for layer in report["layers"]}, {"bytes"})
        self.assertEqual(report["samples"], 2)
        self.assertGreater(min(output["sqnr_db"] for output in report["outputs"]), 35)
        other = onnxruntime.InferenceSession(str(self.folder / "faces.onnx"), providers=["CPUExecutionProvider"])
        for photo in self.PHOTOS:
            picture = numpy.load(self.real / f"input_{photo}_0.npy")
            numpy.save(self.folder / "x.npy", picture)
            self.tessera("run", "faces.onnx", "--input", "@x.npy", "--output", "scores=@s.npy", "--output",
                         "boxes=@b.npy")
            self.check(numpy.load(self.folder / "s.npy"), numpy.load(self.folder / "b.npy"), photo)
            self.check(*other.run(None, {"input": picture}), photo)

    def test_the_contest(self):
        """A layer that stays in f32 is not faster in bytes, and each that does not is."""
        numpy.save(self.folder / "x.npy", numpy.load(self.real / "input_photo2_0.npy"))
        done = self.tessera("quantize", FACES, "--calib", "x.npy", "--min-speedup", 0, "--threads", 1, "--json",
                            "--keep", "Conv#0", "--keep", "Conv#1?")
        layers = {layer["layer"]: layer for layer in json.loads(done[0])["layers"]}
        self.assertEqual(layers["Conv#0"]["choice"], "f32: kept")
        self.assertEqual(layers["Conv#12"]["choice"], "f32: kept")
        for layer in layers.values():
            if layer["choice"] == "f32: bytes are not faster":
                self.assertGreaterEqual(layer["bytes_us"], layer["f32_us"])


class Small(CliTest):
    def setUp(self):
        super().setUp()
        text = """<ir_version: 8, opset_import: ["" : 17]>
            net (float[batch, 16] x) => (float[batch, 10] y) {
              h = MatMul(x, a)
              r = Relu(h)
              y = Gemm<transB = 1>(r, b, c)
            }"""
        model = parser.parse_model(text)
        random = numpy.random.default_rng(1)
        for name, shape in (("a", (16, 32)), ("b", (10, 32)), ("c", (10,))):
            weights = random.standard_normal(shape).astype(numpy.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
        onnx.save(model, self.folder / "net.onnx")
        self.samples = random.standard_normal((40, 16)).astype(numpy.float32)

    def quantize(self, data, *arguments, code=0):
        return self.tessera("quantize", "net.onnx", "--calib", data, "--min-speedup", 0, "--all", *arguments, code=code)

    def test_every_method_and_form(self):
        numpy.savez(self.folder / "d.npz", x=self.samples)
        want = onnxruntime.InferenceSession(str(self.folder / "net.onnx")).run(None, {"x": self.samples[:1]})[0]
        numpy.save(self.folder / "x.npy", self.samples[:1])
        for method in ("minmax", "percentile", "mse", "entropy"):
            for granularity in ("tensor", "channel"):
                for activations in ("u8", "i8"):
                    with self.subTest(method=method, granularity=granularity, activations=activations):
                        self.quantize("d.npz", "--method", method, "--granularity", granularity, "--activations",
                                      activations, "-o", "q.onnx", "--quiet")
                        self.tessera("run", "q.onnx", "--input", "@x.npy", "--output", "@y.npy", "--no-cache")
                        got = numpy.load(self.folder / "y.npy")
                        self.assertLess(numpy.abs(got - want).max(), 0.15 * numpy.abs(want).max())

    def test_what_samples_may_be(self):
        (self.folder / "samples").mkdir()
        for i in range(3):
            numpy.save(self.folder / "samples" / f"{i}.npy", self.samples[i : i + 1])
        numpy.save(self.folder / "d.npy", self.samples)
        numpy.savez(self.folder / "d.npz", anything=self.samples)
        for data, count in (("samples", 3), ("d.npy", 40), ("d.npz", 40)):
            report = json.loads(self.quantize(data, "--json")[0])
            self.assertEqual(report["samples"], count)
        self.assertEqual(json.loads(self.quantize("d.npy", "--json", "--samples", 7)[0])["samples"], 7)

    def test_batches(self):
        """A sample of a model with a batch of its own is so many rows."""
        numpy.save(self.folder / "d.npy", numpy.linspace(-1, 1, 640, dtype=numpy.float32).reshape(40, 16))
        report = json.loads(self.quantize("d.npy", "--dim", "batch=4", "--json")[0])
        self.assertEqual((report["layers"][0]["low"], report["layers"][0]["high"]), (-1, 1))

    def test_others_run_it(self):
        """Gemm becomes what ONNX Runtime knows."""
        numpy.save(self.folder / "d.npy", self.samples)
        self.quantize("d.npy", "-o", "q.onnx", "--quiet")
        domains = {node.domain for node in onnx.load(self.folder / "q.onnx").graph.node}
        self.assertEqual(domains, {""})
        session = onnxruntime.InferenceSession(str(self.folder / "q.onnx"), providers=["CPUExecutionProvider"])
        numpy.save(self.folder / "x.npy", self.samples[:1])
        self.tessera("run", "q.onnx", "--input", "@x.npy", "--output", "@y.npy")
        numpy.testing.assert_allclose(numpy.load(self.folder / "y.npy"), session.run(None, {"x": self.samples[:1]})[0], atol=0.2)

    def test_a_module_and_a_graph(self):
        numpy.save(self.folder / "d.npy", self.samples)
        numpy.save(self.folder / "x.npy", self.samples[:1])
        results = []
        for output in ("q.onnx", "q.graph", "q.so"):
            self.quantize("d.npy", "-o", output, "--quiet")
            self.tessera("run", output, "--input", "@x.npy", "--output", "@y.npy")
            results.append(numpy.load(self.folder / "y.npy"))
        numpy.testing.assert_array_equal(results[0], results[1])
        numpy.testing.assert_array_equal(results[0], results[2])

    def test_what_is_refused(self):
        numpy.save(self.folder / "d.npy", self.samples)

        def refused(id, data, *arguments):
            done = self.tessera("quantize", "net.onnx", "--calib", data, *arguments, code=1)
            self.assertIn(id, done[1])
            return done[1]

        (self.folder / "empty").mkdir()
        refused("TSR-6240", "empty")
        refused("TSR-6211", "missing.npz")
        refused("TSR-6240", "missing")
        refused("TSR-6211", "missing.npy")
        numpy.save(self.folder / "none.npy", self.samples[:0])
        refused("TSR-6240", "none.npy")
        numpy.save(self.folder / "wide.npy", numpy.zeros((4, 17), numpy.float32))
        self.assertIn("[17]", refused("TSR", "wide.npy"))
        numpy.savez(self.folder / "two.npz", p=self.samples, q=self.samples)
        self.assertIn("'p'", refused("TSR-6240", "two.npz"))
        broken = self.samples.copy()
        broken[5, 3] = numpy.nan
        numpy.save(self.folder / "nan.npy", broken)
        self.assertIn("sample 6", refused("TSR-2093", "nan.npy"))
        self.assertIn("ms", refused("TSR-4086", "d.npy", "--min-speedup", 1000, "-o", "q.onnx"))
        self.assertFalse((self.folder / "q.onnx").exists())
        refused("TSR-4087", "d.npy", "--min-speedup", 0, "--all", "--min-sqnr", 200)
        refused("TSR-2092", "d.npy", "--keep", "*")
        self.assertIn("MatMul#0", refused("TSR-4085", "d.npy", "--keep", "[a]"))
        refused("TSR-4085", "d.npy", "--percentile", 20)
        refused("TSR-4085", "d.npy", "--samples", -1)
        refused("TSR-4085", "d.npy", "--min-speedup", "nan")
        refused("TSR-4085", "d.npy", "--min-sqnr", "inf")
        refused("TSR-4062", "d.npy", "-o", "net.onnx")
        text = '<ir_version: 8, opset_import: ["" : 17]> r (float[1,16] x) => (float[1,16] y) { y = Relu(x) }'
        onnx.save(parser.parse_model(text), self.folder / "relu.onnx")
        done = self.tessera("quantize", "relu.onnx", "--calib", "d.npy", code=1)
        self.assertIn("TSR-2092", done[1])

    def test_outputs_that_are_no_numbers(self):
        """NaN in one of the two is no agreement."""
        text = """<ir_version: 8, opset_import: ["" : 17]> n (float[1,16] x) => (float[1,32] y) { h = MatMul(x, a) y = Sqrt(h) }"""
        model = parser.parse_model(text)
        weights = numpy.random.default_rng(3).standard_normal((16, 32)).astype(numpy.float32) * 0.01
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "a"))
        onnx.save(model, self.folder / "net.onnx")
        numpy.save(self.folder / "d.npy", numpy.random.default_rng(4).standard_normal((200, 16)).astype(numpy.float32))
        _, errors = self.quantize("d.npy", "--min-sqnr", 60, code=1)
        self.assertIn("TSR-4087", errors)

    def test_constant_samples(self):
        """Zeros alone have no range: the defined result is that of scale 1."""
        numpy.save(self.folder / "d.npy", numpy.zeros((4, 16), numpy.float32))
        self.quantize("d.npy", "-o", "q.onnx", "--quiet")
        numpy.save(self.folder / "x.npy", numpy.zeros((1, 16), numpy.float32))
        self.tessera("run", "q.onnx", "--input", "@x.npy", "--output", "@y.npy")
        want = onnxruntime.InferenceSession(str(self.folder / "net.onnx")).run(None, {"x": numpy.zeros((1, 16), numpy.float32)})[0]
        numpy.testing.assert_allclose(numpy.load(self.folder / "y.npy"), want, atol=1e-5)


if __name__ == "__main__":
    cli_support.main()
