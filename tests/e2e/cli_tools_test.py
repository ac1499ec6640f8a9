#!/usr/bin/env python3
"""The verbs that look at models, modules and machines.    cli_tools_test.py TESSERA [unittest options]"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support
from cli_support import CliTest, affine_model, conv_model, make_model

import numpy
from onnx import TensorProto, helper


def error(ident, message, legal="", hint=""):
    lines = [f"error {ident}: {message}"]
    lines += [f"  {key:6} {text}" for key, text in (("legal:", legal), ("hint:", hint)) if text]
    return "\n".join(lines) + "\n"


def story_model():
    """Every fate a node can have: two convolutions that meet in an addition, shape arithmetic, a view, a dead node."""
    random = numpy.random.default_rng(0)
    weights = {
        "w0": random.standard_normal((16, 16, 3, 3)).astype(numpy.float32),
        "w1": random.standard_normal((16, 16, 1, 1)).astype(numpy.float32),
        "shift": numpy.array([[2, 0]], numpy.int64),
        "c": numpy.array([1, 1], numpy.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w1"], ["d"], name="second"),
        helper.make_node("Add", ["d", "b"], ["e"], name="sum"),
        helper.make_node("Add", ["c", "c"], ["f"], name="arithmetic"),
        helper.make_node("Exp", ["x"], ["g"], name="dead"),
        helper.make_node("Flatten", ["e"], ["y"], name="flat"),
        helper.make_node("Identity", ["f"], ["h"], name="same"),
    ]
    return make_model(
        nodes,
        [("x", TensorProto.FLOAT, (1, 16, 8, 8))],
        [("y", TensorProto.FLOAT, (1, 1024)), ("h", TensorProto.INT64, (2,))],
        weights,
        name="story",
    )


class Explain(CliTest):
    def setUp(self):
        super().setUp()
        self.save(story_model(), "story.onnx")

    def explained(self, *flags):
        text, _ = self.tessera("explain", "story.onnx", "--json", *flags)
        self.assertEqual(text.count("\n"), 1)
        return json.loads(text)

    def test_every_node_has_a_fate(self):
        told = self.explained()
        fates = {node["name"]: node["fate"] for node in told["nodes"]}
        self.assertEqual(
            fates,
            {
                "first": "kernel",
                "relu": "kernel",
                "second": "kernel",
                "sum": "kernel",
                "arithmetic": "constant",
                "dead": "unused",
                "flat": "view",
                "same": fates["same"],  # a copy of a constant to an output: whichever way it is done
            },
        )
        nodes = {node["name"]: node for node in told["nodes"]}
        self.assertEqual(nodes["first"]["fused_with"], ["relu"])
        self.assertEqual(nodes["sum"]["fused_with"], ["second"])
        self.assertEqual(nodes["first"]["op_type"], "Conv")
        self.assertEqual(set(told), {"model", "target", "opt_level", "nodes", "kernels"})

    def test_kernels_have_candidates_work_and_layouts(self):
        told = self.explained("--target", "x86-64-v3")
        first = next(node for node in told["nodes"] if node["name"] == "first")
        kernel = told["kernels"][first["kernels"][-1]]  # the one before copies the input to another layout
        self.assertEqual(kernel["nodes"], ["first", "relu"])
        # 64 pixels, 16 channels, 144 multiply-adds each, and one maximum.
        self.assertEqual(kernel["flops"], 64 * 16 * (144 * 2 + 1))
        self.assertEqual(kernel["bytes"], 4 * (16 * 64 * 2 + 16 * 16 * 9))
        self.assertEqual(kernel["layout"], "{0,1/8,2,3,1%8}")
        rules = {rule["rule"]: rule for rule in kernel["rules"]}
        self.assertEqual([rule["chosen"] for rule in kernel["rules"]].count(True), 1)
        self.assertTrue(rules["register_tile"]["chosen"])
        self.assertGreater(rules["register_tile"]["predicted_us"], 0)
        self.assertLess(rules["register_tile"]["predicted_us"], rules["scalar_loops"]["predicted_us"])
        self.assertEqual(rules["injective"]["declined"], "the kernel reduces")

    def test_refusals_have_reasons(self):
        told = self.explained()
        second = next(node for node in told["nodes"] if node["name"] == "second")
        reasons = {(entry["node"], entry.get("other")): entry["text"] for entry in second["refused"]}
        self.assertEqual(reasons[("relu", "second")], "a kernel has one reduction")
        self.assertTrue(any(entry["pass"] == "assign_layouts" for entry in second["done"]))

    def test_levels_differ(self):
        self.assertNotIn("relu", self.explained("-O0")["nodes"][0]["fused_with"])

    def test_text_and_one_node(self):
        text, _ = self.tessera("explain", "story.onnx")
        self.assertRegex(text, r"^story: for x86_64.* at -O3\n8 nodes became \d+ kernels: 4 in kernels, ")
        self.assertRegex(text, r"(?m)^first +Conv +.*kernel \d+ \(register_tile\)$")
        self.assertRegex(text, r"(?m)^dead +Exp +nothing: no output needs it$")
        self.assertRegex(text, r"(?m)^fuse_groups +relu +second +a kernel has one reduction$")
        self.assertNotIn("\x1b", text)
        for name in ("second", "d"):  # the node's name, or that of the value it gives
            text, _ = self.tessera("explain", "story.onnx", "--node", name)
            self.assertRegex(text, r"^second \(Conv\) became .*kernel \d+ \(register_tile\)\n  fused with sum\n")
            self.assertRegex(text, r"(?m)^  register_tile +[\d.]+ (us|ms)  chosen$")
            self.assertRegex(text, r"(?m)^  injective +-  declined: the kernel reduces$")
        one = self.explained("--node", "second")
        self.assertEqual((one["name"], len(one["kernels"])), ("second", 1))

    def test_mistakes(self):
        _, errors = self.tessera("explain", "story.onnx", "--node", "secnd", code=1)
        self.assertEqual(
            errors,
            error(
                "TSR-4040",
                "the model has no node 'secnd'",
                "nearest names: second",
                "without --node all nodes are listed",
            ),
        )
        _, errors = self.tessera("explain", "story.onnx", "--node", "zzzzzzzzzzzzzzzzz", code=1)
        self.assertEqual(
            errors,
            error(
                "TSR-4040",
                "the model has no node 'zzzzzzzzzzzzzzzzz'",
                "one of its 8 nodes, or the name of a value that one gives",
                "without --node all nodes are listed",
            ),
        )
        self.tessera("compile", "story.onnx", "-q")
        _, errors = self.tessera("explain", "story.so", code=1)
        self.assertEqual(
            errors,
            error(
                "TSR-4041",
                "'story.so' is a compiled module, which no longer knows why it became so",
                "an ONNX model",
                "give the model that it was compiled from, or use 'tessera inspect' on the module",
            ),
        )
        _, errors = self.tessera("explain", "nix.onnx", code=1)
        self.assertTrue(errors.startswith("error TSR-1001: cannot open the model 'nix.onnx'"), errors)
        (self.folder / "text.onnx").write_text("hello")
        _, errors = self.tessera("explain", "text.onnx", code=1)
        self.assertTrue(errors.startswith("error TSR-1002: 'text.onnx' is not an ONNX model"), errors)


if __name__ == "__main__":
    cli_support.main()
