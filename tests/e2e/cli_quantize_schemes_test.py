#!/usr/bin/env python3
"""`tessera quantize` beyond the static form: dynamic and weight-only networks that ONNX Runtime computes alike, limits on what
is lost, files of precisions, open sizes, and what is refused.    cli_quantize_schemes_test.py TESSERA [unittest options]"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python")]
import cli_support
from cli_support import CliTest

import numpy
import onnx
import onnxruntime
import onnxruntime.quantization
from onnx import numpy_helper, parser

onnxruntime.set_default_logger_severity(3)
DENSE = """<ir_version: 8, opset_import: ["" : 17]>
  net (float[3, 70] x) => (float[3, 33] y) { h = MatMul(x, a) r = Relu(h) y = Gemm<transB = 1>(r, b, c) }"""
CONV = """<ir_version: 8, opset_import: ["" : 17]>
  net (float[1, 4, 11, 9] x) => (float[1, 10] y) {
    p = Conv<pads = [1, 0, 2, 1], strides = [2, 1], group = 2>(x, w)
    q = Relu(p)
    d = Conv<group = 16>(q, v)
    g = GlobalAveragePool(d)
    f = Flatten(g)
    y = MatMul(f, m)
  }"""
ROWS = """<ir_version: 8, opset_import: ["" : 17]>
  net (float[2, 6, 70] x) => (float[2, 6, 10] y) { h = MatMul(x, a) r = Relu(h) y = MatMul(r, e) }"""
SHAPES = {"e": (50, 10), "a": (70, 50), "b": (33, 50), "c": (33,), "w": (16, 2, 3, 3), "v": (16, 1, 3, 3), "m": (16, 10)}


def save(text, path):
    model = parser.parse_model(text)
    random = numpy.random.default_rng(1)
    used = {name for node in model.graph.node for name in node.input}
    for name, shape in SHAPES.items():
        if name in used:
            model.graph.initializer.append(numpy_helper.from_array(random.standard_normal(shape).astype(numpy.float32), name))
    onnx.save(model, path)


def decibels(want, got):
    return 10 * numpy.log10((want.astype(float) ** 2).sum() / ((want.astype(float) - got) ** 2).sum())


class Schemes(CliTest):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(2)
        save(DENSE, self.folder / "dense.onnx")
        save(CONV, self.folder / "conv.onnx")
        numpy.save(self.folder / "dense.npy", self.random.standard_normal((8, 3, 70)).astype(numpy.float32))
        numpy.save(self.folder / "conv.npy", self.random.standard_normal((8, 1, 4, 11, 9)).astype(numpy.float32))

    def quantize(self, model, *arguments, code=0):
        return self.tessera("quantize", f"{model}.onnx", "--all", "--min-speedup", 0, "--threads", 1, *arguments, code=code)

    def both(self, x, name="q.onnx"):
        """The quantised file by us and by ONNX Runtime."""
        numpy.save(self.folder / "x.npy", x)
        self.tessera("run", name, "--input", "@x.npy", "--output", "@y.npy", "--no-cache")
        session = onnxruntime.InferenceSession(str(self.folder / name), providers=["CPUExecutionProvider"])
        return numpy.load(self.folder / "y.npy"), session.run(None, {"x": x})[0]

    def real(self, model, x):
        return onnxruntime.InferenceSession(str(self.folder / f"{model}.onnx")).run(None, {"x": x})[0]

    def test_dynamic(self):
        for model, operators in (("dense", {"MatMulInteger"}), ("conv", {"MatMulInteger", "ConvInteger"})):
            x = numpy.load(self.folder / f"{model}.npy")[0]
            for granularity in ("channel", "tensor"):
                with self.subTest(model=model, granularity=granularity):
                    self.quantize(model, "--scheme", "dynamic", "--granularity", granularity, "-o", "q.onnx", "--quiet")
                    nodes = {node.op_type for node in onnx.load(self.folder / "q.onnx").graph.node}
                    self.assertLessEqual(operators | {"DynamicQuantizeLinear"}, nodes)
                    ours, theirs = self.both(x)
                    numpy.testing.assert_allclose(ours, theirs, atol=1e-4 * numpy.abs(theirs).max())
                    self.assertGreater(decibels(self.real(model, x), ours), 25)
        # A range of zeros alone has scale 1, and numbers that no sample had are no matter.
        for x in (numpy.zeros((3, 70), numpy.float32), numpy.full((3, 70), 1e30, numpy.float32), -numpy.ones((3, 70), numpy.float32)):
            self.quantize("dense", "--scheme", "dynamic", "-o", "q.onnx", "--quiet")
            ours, theirs = self.both(x)
            numpy.testing.assert_allclose(ours, theirs, atol=1e-4 * max(1, numpy.abs(theirs).max()))

    def test_weight_only(self):
        x = numpy.load(self.folder / "dense.npy")[0]
        want, found = self.real("dense", x), {}
        for bits in (4, 8):
            for group in (16, 32, 64, 128):
                for zeros in ("--zero-points", "--no-zero-points"):
                    with self.subTest(bits=bits, group=group, zeros=zeros):
                        self.quantize("dense", "--scheme", "weight-only", "--bits", bits, "--group", group, zeros, "-o", "q.onnx",
                                      "--quiet")
                        nodes = onnx.load(self.folder / "q.onnx").graph.node
                        self.assertEqual([n.op_type for n in nodes if "MatMul" in n.op_type], ["MatMulNBits"] * 2)
                        ours, theirs = self.both(x)
                        numpy.testing.assert_allclose(ours, theirs, atol=1e-4 * numpy.abs(theirs).max())
                        found[bits, group, zeros] = decibels(want, ours)
                        self.assertGreater(found[bits, group, zeros], 15 if bits == 4 else 38)
        self.assertGreater(found[4, 16, "--zero-points"], found[4, 128, "--zero-points"])
        for granularity in ("channel", "tensor"):
            self.quantize("dense", "--scheme", "weight-only", "--bits", 8, "--granularity", granularity, "-o", "q.onnx", "--quiet")
            ours, theirs = self.both(x)
            numpy.testing.assert_allclose(ours, theirs, atol=1e-4 * numpy.abs(theirs).max())

    def test_files_are_of_the_oldest_opset_that_they_need(self):
        """From opset 21 on, ONNX Runtime 1.31 refuses signed activations of products that its optimiser makes Gemm of."""
        save(ROWS, self.folder / "rows.onnx")
        x = self.random.standard_normal((4, 2, 6, 70)).astype(numpy.float32)
        numpy.save(self.folder / "rows.npy", x)
        for activations in ("u8", "i8"):
            for granularity in ("channel", "tensor"):
                with self.subTest(activations=activations, granularity=granularity):
                    self.quantize("rows", "--calib", "rows.npy", "--activations", activations, "--granularity", granularity,
                                  "-o", "q.onnx", "--quiet")
                    model = onnx.load(self.folder / "q.onnx")
                    onnx.checker.check_model(model, full_check=True)
                    self.assertEqual((model.opset_import[0].version, model.ir_version), (18, 8))
                    ours, theirs = self.both(x[0])
                    self.assertGreater(decibels(theirs, ours), 45)
                    self.assertGreater(decibels(self.real("rows", x[0]), ours), 30)

    def test_residual_blocks_of_bytes_stay_bytes(self):
        """What a product and the sum behind a skip both read is stored in bytes: neither wide integers nor floats."""
        model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
          net (float[1, 32, 14, 14] x) => (float[1, 32, 14, 14] y) {
            [first] a = Conv(x, w1)  b = Relu(a)
            [second] c = Conv(b, w2) d = Add(c, b) e = Relu(d)
            [third] f = Conv(e, w3)  g = Add(f, e) y = Relu(g) }""")
        for name in ("w1", "w2", "w3"):
            weights = self.random.standard_normal((32, 32, 1, 1)).astype(numpy.float32) / 6
            model.graph.initializer.append(numpy_helper.from_array(weights, name))
        onnx.save(model, self.folder / "skips.onnx")
        samples = [{"x": self.random.standard_normal((1, 32, 14, 14)).astype(numpy.float32)} for _ in range(4)]

        class Reader(onnxruntime.quantization.CalibrationDataReader):
            def __init__(self):
                self.left = iter(samples)

            def get_next(self):
                return next(self.left, None)

        kinds = onnxruntime.quantization.QuantType
        onnxruntime.quantization.quantize_static(str(self.folder / "skips.onnx"), str(self.folder / "q.onnx"), Reader(), per_channel=True,
                                                 activation_type=kinds.QUInt8, weight_type=kinds.QInt8)
        ours, theirs = self.both(samples[0]["x"])
        self.assertGreater(decibels(theirs, ours), 35)
        kernels = json.loads(self.tessera("explain", "q.onnx", "--threads", 1, "--target", "x86-64-v4,+avx512vnni", "--json")[0])["kernels"]
        between = [operand for kernel in kernels for operand in kernel["operands"]
                   if "[1,32,14,14]" in operand and operand.split(":")[0].split(".")[0] not in ("x", "y")]
        self.assertTrue(between)
        for operand in between:
            self.assertRegex(operand, r": [ui]8[[]")

    def test_weights_that_vanish_are_reported(self):
        model = onnx.load(self.folder / "dense.onnx")
        for tensor in model.graph.initializer:
            if tensor.name == "a":
                weights = numpy_helper.to_array(tensor).copy()
                weights[:, 2] *= numpy.float32(1e-40)
                tensor.CopyFrom(numpy_helper.from_array(weights, "a"))
        onnx.save(model, self.folder / "tiny.onnx")
        for granularity in ("channel", "tensor"):
            text = self.quantize("tiny", "--calib", "dense.npy", "--granularity", granularity)[0]
            self.assertEqual(text.count("the weights of 1 output are too small for their scale and become 0"), 1, text)
            report = json.loads(self.quantize("tiny", "--calib", "dense.npy", "--granularity", granularity, "--json")[0])
            self.assertEqual([layer.get("vanished_outputs", 0) for layer in report["layers"]], [1, 0])

    def test_a_module_and_a_graph(self):
        x = numpy.load(self.folder / "dense.npy")[0]
        numpy.save(self.folder / "x.npy", x)
        results = []
        for output in ("q.onnx", "q.graph", "q.so"):
            self.quantize("dense", "--scheme", "weight-only", "-o", output, "--quiet")
            self.tessera("run", output, "--input", "@x.npy", "--output", "@y.npy", "--no-cache")
            results.append(numpy.load(self.folder / "y.npy"))
        for result in results[1:]:
            numpy.testing.assert_allclose(result, results[0], rtol=1e-5, atol=1e-4)

    def test_rounding_for_samples(self):
        """Each of the three loses less than the plain form, on the samples that it saw."""
        for model in ("dense", "conv"):
            lost = {}
            for name, flags in (("plain", ["--no-bias-correction"]), ("bias", []), ("adaround", ["--adaround"])):
                done = self.quantize(model, "--calib", f"{model}.npy", "--bits", 4, "--json", *flags)
                lost[name] = json.loads(done[0])["outputs"][0]["sqnr_db"]
            self.assertGreater(lost["bias"], lost["plain"] - 0.1, model)
            self.assertGreater(lost["adaround"], lost["plain"] + 1, model)
        done = self.quantize("dense", "--calib", "dense.npy", "--scheme", "weight-only", "--adaround", "--json")
        plain = self.quantize("dense", "--calib", "dense.npy", "--scheme", "weight-only", "--json")
        self.assertGreater(*(json.loads(d[0])["outputs"][0]["sqnr_db"] for d in (done, plain)))

    def test_equalize(self):
        model = onnx.load(self.folder / "conv.onnx")
        for tensor in model.graph.initializer:
            if tensor.name == "w":
                weights = numpy_helper.to_array(tensor).copy()
                weights[3] *= 50
                tensor.CopyFrom(numpy_helper.from_array(weights, "w"))
            if tensor.name == "v":
                weights = numpy_helper.to_array(tensor).copy()
                weights[3] /= 50
                tensor.CopyFrom(numpy_helper.from_array(weights, "v"))
        onnx.save(model, self.folder / "uneven.onnx")
        lost = [json.loads(self.quantize("uneven", "--calib", "conv.npy", "--granularity", "tensor", "--json", *flags)[0])
                ["outputs"][0]["sqnr_db"] for flags in ([], ["--equalize"])]
        self.assertGreater(lost[1], lost[0] + 3)

    def test_losses_and_limits(self):
        done = self.quantize("conv", "--calib", "conv.npy", "--sensitivity", "--json")
        report = json.loads(done[0])
        alone = {layer["layer"]: layer["sqnr_db"] for layer in report["layers"]}
        together = report["outputs"][0]["sqnr_db"]
        self.assertEqual(len(alone), 3)
        self.assertLess(together, min(alone.values()) + 1)
        choices = report["choices"]
        self.assertEqual(choices[-1]["layers"], 0)
        for faster, slower in zip(choices, choices[1:]):
            self.assertLessEqual(faster["estimated_ms"], slower["estimated_ms"])
            if "sqnr_db" in slower:
                self.assertLess(faster["sqnr_db"], slower["sqnr_db"])
        # More than all layers together reach: some go back.
        done = self.quantize("conv", "--calib", "conv.npy", "--min-sqnr", together + 2, "--json")
        report = json.loads(done[0])
        self.assertIn("f32: the outputs would lose too much", {layer["choice"] for layer in report["layers"]})
        self.assertGreater(report["outputs"][0]["sqnr_db"], together + 2)
        self.assertIn("TSR-4087", self.quantize("conv", "--calib", "conv.npy", "--min-sqnr", 300, code=1)[1])

    def test_labels(self):
        samples = numpy.load(self.folder / "conv.npy")
        right = numpy.array([self.real("conv", x).argmax() for x in samples])
        right[0] = (right[0] + 1) % 10
        numpy.save(self.folder / "labels.npy", right)
        done = self.quantize("conv", "--calib", "conv.npy", "--labels", "labels.npy", "--max-drop", 50, "--json")
        output = json.loads(done[0])["outputs"][0]
        self.assertEqual(output["f32_accuracy"], 7 / 8)
        self.assertAlmostEqual(output["drop"], 100 * (output["f32_accuracy"] - output["bytes_accuracy"]))
        numpy.save(self.folder / "short.npy", right[:3])
        self.assertIn("TSR-6240", self.quantize("conv", "--calib", "conv.npy", "--labels", "short.npy", code=1)[1])
        right[3] = 10
        numpy.save(self.folder / "labels.npy", right)
        error = self.quantize("conv", "--calib", "conv.npy", "--labels", "labels.npy", "--max-drop", 50, code=1)[1]
        self.assertIn("TSR-4085", error)
        self.assertIn("0 to 9", error)

    def test_outputs_of_other_sizes(self):
        """How many elements there are depends on values, which bytes change: nothing is held beside one another."""
        save("""<ir_version: 8, opset_import: ["" : 17]>
          net (float[2, 70] x) => (int64[2, n] y) { h = MatMul(x, a) zero = Constant<value_float = 0.0>()
            above = Greater(h, zero) y = NonZero(above) }""", self.folder / "places.onnx")
        numpy.save(self.folder / "places.npy", self.random.standard_normal((16, 2, 70)).astype(numpy.float32))
        self.assertIn("TSR-4087", self.quantize("places", "--calib", "places.npy", "-o", "q.onnx", code=1)[1])

    def test_per_layer(self):
        (self.folder / "plan.txt").write_text("# all but one\n*  i8\n\nConv#2  f32 # sensitive\n")
        done = self.quantize("conv", "--calib", "conv.npy", "--per-layer", "plan.txt", "--json")
        self.assertEqual({layer["layer"]: layer["choice"] for layer in json.loads(done[0])["layers"]},
                         {"Conv#0": "bytes", "Conv#2": "f32: kept", "MatMul#5": "bytes"})
        for text, word in (("Conv#0 int9\n", "line 1"), ("Conv#0\n", "line 1"), ("Nothing f32\n", "Nothing")):
            (self.folder / "plan.txt").write_text(text)
            error = self.quantize("conv", "--calib", "conv.npy", "--per-layer", "plan.txt", code=1)[1]
            self.assertIn("TSR-4088", error)
            self.assertIn(word, error)

    def test_open_sizes(self):
        text = DENSE.replace("float[3, 70] x", "float[batch, 70] x").replace("float[3, 33] y", "float[batch, 33] y")
        save(text, self.folder / "open.onnx")
        (self.folder / "samples").mkdir()
        for i in range(4):
            numpy.save(self.folder / "samples" / f"{i}.npy", self.random.standard_normal((1 + i, 70)).astype(numpy.float32))
        for scheme in ("static", "dynamic", "weight-only"):
            self.quantize("open", "--calib", "samples", "--scheme", scheme, "--dim", "batch=1..8", "-o", "q.onnx", "--quiet")
            for rows in (1, 3, 8):
                ours, theirs = self.both(self.random.standard_normal((rows, 70)).astype(numpy.float32))
                numpy.testing.assert_allclose(ours, theirs, atol=2e-2 * numpy.abs(theirs).max())

    def test_samples_by_names(self):
        """A folder of .npz files of a model with two inputs."""
        text = """<ir_version: 8, opset_import: ["" : 17]>
          net (float[2, 70] x, float[2, 50] z) => (float[2, 50] y) { h = MatMul(x, a) y = Add(h, z) }"""
        save(text, self.folder / "two.onnx")
        (self.folder / "samples").mkdir()
        for i in range(3):
            arrays = {name: self.random.standard_normal((2, size)).astype(numpy.float32) for name, size in (("x", 70), ("z", 50))}
            numpy.savez(self.folder / "samples" / f"{i}.npz", **arrays)
        self.assertEqual(json.loads(self.quantize("two", "--calib", "samples", "--json")[0])["samples"], 3)

    def test_what_is_refused(self):
        def refused(id, *arguments):
            self.assertIn(id, self.quantize("dense", *arguments, code=1)[1])

        refused("TSR-4085")  # static without samples
        refused("TSR-4085", "--scheme", "dynamic", "--granularity", "group")
        refused("TSR-4085", "--scheme", "weight-only", "--bits", 3)
        refused("TSR-4085", "--scheme", "weight-only", "--group", 48)
        refused("TSR-4085", "--scheme", "weight-only", "--adaround")
        refused("TSR-4085", "--scheme", "dynamic", "--labels", "l.npy")
        refused("TSR-4085", "--scheme", "dynamic", "--max-drop", -1)
        refused("TSR-6211", "--scheme", "dynamic", "--per-layer", "missing.txt")
        done = self.tessera("quantize", "conv.onnx", "--scheme", "weight-only", "--keep", "MatMul*", code=1)
        self.assertIn("TSR-2092", done[1])
        # Both times are in the refusal.
        error = self.tessera("quantize", "dense.onnx", "--scheme", "dynamic", "--all", "--min-speedup", 1000, code=1)[1]
        self.assertIn("TSR-4086", error)
        self.assertRegex(error, r"[\d.]+ ms and f32 [\d.]+ ms")


if __name__ == "__main__":
    cli_support.main()
