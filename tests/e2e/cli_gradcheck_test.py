#!/usr/bin/env python3
"""`tessera gradcheck`: models whose gradients agree with differences, and what is refused. That a wrong rule is named is
in tests/unit/gradient_check_test.cpp.    cli_gradcheck_test.py TESSERA [unittest options]"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
import cli_support
from cli_support import CliTest, make_model

import numpy
from onnx import TensorProto, helper

REFUSED = """graph @refused(%n: i64[], %x: f32[4]) -> (%y: f32[4]) {
  %a = loop(%n, %x) {counted = true, num_carried = 1} ({
    graph @body(%i: i64[], %p: f32[4]) -> (%q: f32[4]) {
      %q = tanh(%p)
    }
  }) : f32[4] loc("A")
  %y = loop(%n, %a) {counted = true, num_carried = 1} ({
    graph @body(%i: i64[], %p: f32[4]) -> (%q: f32[4]) {
      %q = sin(%p)
    }
  }) : f32[4] loc("I")
}
"""
BRANCH = """graph @branch(%c: bool[], %x: f32[4], %r: f32[3,4]) -> (%y: f32[4]) {
  %a = compute(%x) {body = "out[i<4] = x0[i] * x0[i]"} : f32[4] loc("A")
  %b = if(%c, %a) ({
    graph @then(%p: f32[4]) -> (%q: f32[4]) {
      %q = tanh(%p)
    }
    graph @else(%p: f32[4]) -> (%q: f32[4]) {
      %q = neg(%p)
    }
  }) : f32[4] loc("I")
  %y = loop(%b, %r) {num_carried = 1, num_scanned = 1} ({
    graph @body(%i: i64[], %p: f32[4], %s: f32[4]) -> (%q: f32[4]) {
      %t = mul(%p, %s)
      %q = sin(%t)
    }
  }) : f32[4] loc("L")
}
"""
OPEN = """graph @open[n in 1..64](%x: f32[n,3]) -> (%y: f32[n,2]) {
  %w = constant {value = dense<f32[3,2] 1 -1 2 -2 3 -3>}
  %t = matmul(%x, %w) loc("product")
  %y = tanh(%t)
}
"""
DATA = """graph @data[c upto 8](%x: f32[8], %n: i64[]) -> (%y: f32[c]) {
  %e = exp(%x) loc("E")
  %k = bind_size(%n) {size = [c]} loc("S")
  %s = slice(%e) {sizes = [c], starts = [0], steps = [1]}
  %y = sin(%s)
}
"""


def network():
    """Convolution, batch normalisation, pool, product, softmax; an embedding and a GELU beside it."""
    random = numpy.random.default_rng(0)
    value = lambda *dims: random.standard_normal(dims).astype(numpy.float32)
    weights = {
        "w0": value(4, 2, 3, 3),
        "scale": abs(value(4)) + 0.5,
        "shift": value(4),
        "mean": value(4),
        "variance": abs(value(4)) + 0.5,
        "w1": value(36, 5) / 10,  # softmax is not to saturate
        "b1": value(5),
        "table": value(7, 5),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["g"], name="gemm"),
        helper.make_node("Gather", ["table", "ids"], ["e"], name="embedding"),
        helper.make_node("Gelu", ["e"], ["h"], name="gelu"),
        helper.make_node("Add", ["g", "h"], ["s"], name="sum"),
        helper.make_node("Softmax", ["s"], ["y"], name="softmax"),
    ]
    return make_model(
        nodes,
        [("x", TensorProto.FLOAT, ("batch", 2, 6, 6)), ("ids", TensorProto.INT64, ("batch",))],
        [("y", TensorProto.FLOAT, ("batch", 5))],
        weights,
        opset=20,
    )


class Gradcheck(CliTest):
    def graph(self, text):
        (self.folder / "model.graph").write_text(text)

    def report(self, *arguments, code=0):
        return json.loads(self.tessera("gradcheck", *arguments, "--json", code=code)[0])

    def test_a_network_from_onnx(self):
        self.save(network())
        ids = self.save_npy("ids.npy", numpy.array([3, 0]))
        out, err = self.tessera("gradcheck", "model.onnx", "--dim", "batch=2", "--input", "ids=" + ids)
        self.assertIn("input 'x': random (seed 0)", err)
        self.assertIn("all gradients agree with differences", out)
        for name in ("w0", "scale", "table"):
            self.assertRegex(out, rf"(?m)^{name} .* parameter +4 .* agrees$")
        report = self.report("model.onnx", "--dim", "batch=2", "--input", "ids=" + ids, "--directions", 5)
        self.assertTrue(report["agrees"])
        self.assertIsNone(report["first_wrong"])
        self.assertEqual(report["operators"], 10)
        by_name = {value["name"]: value for value in report["values"]}
        self.assertNotIn("ids", by_name)  # integers have no gradient
        self.assertEqual(by_name["x"]["type"], "f32[2,2,6,6]")
        for value in report["values"]:
            self.assertEqual(value["checks"] + value["near_kinks"], 7, value)
            self.assertLess(value["max_relative_difference"], 1e-6, value)

    def test_sizes_that_are_open_or_data(self):
        self.graph(OPEN)
        self.assertTrue(self.report("model.graph", "--dim", "n=3")["agrees"])
        self.assertTrue(self.report("model.graph", "--input", "x=5x3")["agrees"])
        _, err = self.tessera("gradcheck", "model.graph", code=1)
        self.assertIn("TSR-1025", err)
        self.graph(DATA)
        for size in (0, 3, 8):
            self.assertTrue(self.report("model.graph", "--input", f"n={size}")["agrees"], size)

    def test_operators_without_a_gradient_are_named_together(self):
        self.graph(REFUSED)
        _, err = self.tessera("gradcheck", "model.graph", code=1)
        self.assertRegex(err, r"error TSR-2072.*loop has no gradient.*\(A\).*loop has no gradient.*\(I\)")

    def test_derivatives_as_graphs(self):
        self.graph(BRANCH)
        out, _ = self.tessera("grad", "model.graph", "--wrt", "x", "-o", "first.graph")
        self.assertEqual(out, "first.graph: (c: bool[], x: f32[4], r: f32[3,4]) -> (y: f32[4], x.gradient: f32[4])\n")
        self.tessera("grad", "first.graph", "--of", "x.gradient", "--wrt", "x", "--as", "gradient", "-o", "second.graph")
        self.tessera("compile", "second.graph", "-o", "second.so")
        self.tessera("grad", "model.graph", "--wrt", "x", "--as", "hessian", "-o", "hessian.graph")
        for kind in ("vjp", "jvp", "jacobian", "hvp"):
            out, _ = self.tessera("grad", "model.graph", "--as", kind)
            self.assertTrue(out.startswith("graph @model("), out[:80])
        _, err = self.tessera("grad", "model.graph", "--wrt", "c", code=1)
        self.assertRegex(err, r"error TSR-2073.*'c' is bool")
        _, err = self.tessera("grad", "model.graph", "--of", "z", code=1)
        self.assertIn("TSR-2073", err)
        _, err = self.tessera("grad", "model.graph", "--json", code=1)
        self.assertIn("TSR-4069", err)

    def test_branches_loops_and_bodies(self):
        self.graph(BRANCH)
        for taken in (0, 1):
            report = self.report("model.graph", "--input", f"c={taken}")
            self.assertTrue(report["agrees"])
            self.assertEqual(report["operators"], 3)

    def test_nothing_to_check(self):
        self.graph("graph @main(%x: i64[3]) -> (%y: i64[3]) {\n  %y = neg(%x)\n}\n")
        _, err = self.tessera("gradcheck", "model.graph", code=1)
        self.assertIn("error TSR-2084", err)


if __name__ == "__main__":
    cli_support.main()
