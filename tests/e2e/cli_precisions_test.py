#!/usr/bin/env python3
"""Layers of several precisions: what each computes, beside numpy on rounded operands; what explain says; what is refused.
    cli_precisions_test.py TESSERA [unittest options]"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python")]
import cli_support
from cli_support import CliTest

import ml_dtypes
import numpy
import onnx
from onnx import numpy_helper, parser

# Two products and a sum read x, one of the products through a view; the others read what these make.
TEXT = """<ir_version: 8, opset_import: ["" : 17]>
  net (float[8, 64] x) => (float[8, 32] first, float[8, 32] second, float[8, 48] third, float[8, 64] fourth) <int64[2] shape = {8, 64}> {
    [one] first = MatMul(x, a)
    [view] v = Reshape(x, shape)
    [two] second = MatMul(v, b)
    [act] h = Tanh(second)
    [three] third = MatMul(h, c)
    [sum] fourth = Add(x, x)
  }"""
SHAPES = {"a": (64, 32), "b": (64, 32), "c": (32, 48)}
NARROW = {"bf16": ml_dtypes.bfloat16, "f16": numpy.float16, "f32": numpy.float32}


class Precisions(CliTest):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(5)
        model = parser.parse_model(TEXT)
        self.weights = {name: random.standard_normal(shape).astype(numpy.float32) for name, shape in SHAPES.items()}
        for name, numbers in self.weights.items():
            model.graph.initializer.append(numpy_helper.from_array(numbers, name))
        onnx.save(model, self.folder / "net.onnx")
        self.x = random.standard_normal((8, 64)).astype(numpy.float32)
        numpy.save(self.folder / "x.npy", self.x)

    def want(self, one, two, three):
        """The products of what is rounded, and sums in f64."""
        def product(x, w, precision):
            rounded = (m.astype(NARROW[precision]).astype(numpy.float64) for m in (x, w))
            return numpy.matmul(*rounded)
        second = product(self.x, self.weights["b"], two)
        h = numpy.tanh(second).astype(numpy.float32)
        return product(self.x, self.weights["a"], one), second, product(h, self.weights["c"], three)

    def check(self, precisions, *flags):
        self.tessera("run", "net.onnx", "--input", "@x.npy", *[f for name in ("first", "second", "third", "fourth") for f in
                     ("--output", f"{name}=@{name}.npy")], "--no-cache", "--threads", 1, "--target", "x86-64-v4", *flags)
        for name, want in zip(("first", "second", "third"), self.want(*precisions)):
            got = numpy.load(self.folder / f"{name}.npy")
            with self.subTest(output=name, precisions=precisions):
                # Of the values between, one may round to the next number of 16 bits where tanh has another last bit.
                within = 2e-3 if name == "third" and precisions[2] != "f32" else 1e-5
                self.assertLess(numpy.abs(got - want).max(), within * numpy.abs(want).max())
        return numpy.load(self.folder / "fourth.npy")

    def test_each_layer_reads_its_precision(self):
        plans = {
            ("bf16", "bf16", "bf16"): ["--precision", "bf16"],
            ("f32", "bf16", "bf16"): ["--precision", "bf16", "--keep-f32", "one"],
            ("bf16", "f32", "bf16"): ["--precision", "bf16", "--keep-f32", "two"],
            ("f16", "f16", "f32"): ["--precision", "f16", "--keep-f32", "thr*"],
            ("f32", "f32", "f32"): ["--precision", "f16", "--keep-f32", "one", "--keep-f32", "t*"],
            ("f16", "bf16", "f32"): ["--per-layer", "plan"],
            ("f16", "bf16", "f16"): ["--per-layer", "plan", "--precision", "f16"],
            ("f32", "bf16", "f16"): ["--per-layer", "plan", "--precision", "f16", "--keep-f32", "one"],
        }
        (self.folder / "plan").write_text("# two sorts\n*o*  f16\ntwo bf16   # behind it\n\n")
        for precisions, flags in plans.items():
            fourth = self.check(precisions, *flags)
            if precisions[0] == "f32" or precisions[1] == "f32":  # x is as it was for all that read it otherwise
                numpy.testing.assert_array_equal(fourth, 2 * self.x)

    def test_explain_says_why(self):
        (self.folder / "plan").write_text("one f32\nthree i8\n")
        text = self.tessera("explain", "net.onnx", "--precision", "bf16", "--per-layer", "plan")[0]
        lines = {line.split()[0]: line for line in text[text.index("precision\n"):].splitlines()[1:] if line.split()}
        self.assertIn("f32, because of 'one f32'", lines["one"])
        self.assertIn("data and weights are bf16, sums f32, because of --precision bf16", lines["two"])
        self.assertIn("f32 in spite of 'three i8'", lines["three"])
        nodes = {node["name"]: node for node in json.loads(
            self.tessera("explain", "net.onnx", "--precision", "bf16", "--keep-f32", "one", "--json")[0])["nodes"]}
        self.assertEqual([r["text"] for r in nodes["one"]["done"] if r["pass"] == "lower_precision"], ["f32, because of 'one f32'"])
        self.assertNotIn("because of --precision", self.tessera("explain", "net.onnx")[0])

    def test_modules_say_what_they_were_compiled_with(self):
        self.tessera("compile", "net.onnx", "--precision", "bf16", "--keep-f32", "one", "-o", "net.so")
        self.assertEqual(json.loads(self.tessera("inspect", "net.so", "--json")[0])["options"]["layer-precisions"], "one f32")

    def test_cached_modules_differ(self):
        """The cache knows plans apart."""
        found = set()
        for flags in ([], ["--keep-f32", "one"], ["--keep-f32", "two"], ["--keep-f32", "one", "--keep-f32", "two"]):
            self.tessera("run", "net.onnx", "--input", "@x.npy", "--output", "first=@first.npy", "--precision", "bf16", *flags)
            found.add(len(self.files("cache/*")) if (self.folder / "cache").exists() else 0)
        self.assertEqual(len(found), 4)

    def test_what_is_refused(self):
        for flags, words in (
                (["--keep-f32", "four"], ["TSR-4088", "'four' is the name of no layer", "one, three, two"]),
                (["--keep-f32", "sum"], ["TSR-4088", "'sum' is the name of no layer"]),
                (["--keep-f32", "one", "--numerics", "strict"], []),
                (["--per-layer", "plan", "--numerics", "strict"], ["TSR-4075", "--per-layer"]),
                (["--per-layer", "bad"], ["TSR-4088", "line 2 of 'bad' is 'one f8'", "f32, bf16, f16 or i8"]),
                (["--per-layer", "nowhere"], ["TSR-6211", "nowhere"])):
            (self.folder / "plan").write_text("one bf16\n")
            (self.folder / "bad").write_text("two f32\none f8\n")
            said = self.tessera("compile", "net.onnx", "-o", "net.so", *flags, code=1 if words else 0)[1]
            for word in words:
                self.assertIn(word, said)

    def test_quantize_takes_the_same_file(self):
        (self.folder / "plan").write_text("one i8\ntwo bf16\nthree f32\n")
        numpy.save(self.folder / "samples.npy", numpy.random.default_rng(6).standard_normal((6, 8, 64)).astype(numpy.float32))
        flags = ["quantize", "net.onnx", "--calib", "samples.npy", "--all", "--min-speedup", 0, "--threads", 1, "--per-layer", "plan"]
        report = json.loads(self.tessera(*flags, "--json", "-o", "q.so")[0])
        self.assertEqual([layer["choice"] for layer in report["layers"]],
                         ["bytes", "f32: bf16 or f16 when it is compiled", "f32: kept"])
        inspected = json.loads(self.tessera("inspect", "q.so", "--json")[0])
        self.assertIn("two bf16", inspected["options"]["layer-precisions"])
        self.tessera(*flags, "--quiet", "-o", "q.onnx")
        self.tessera("compile", "q.onnx", "--per-layer", "plan", "-o", "q2.so")


if __name__ == "__main__":
    cli_support.main()
