#!/usr/bin/env python3
"""The verbs that look at models, modules and machines.    cli_tools_test.py TESSERA [unittest options]"""

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support
from cli_support import CliTest, affine_model, conv_model, make_model

import numpy
from onnx import TensorProto, helper, numpy_helper


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


def rewritten_model():
    """What passes have names for: a normalisation behind a convolution, SiLU in two nodes, products of one operand."""
    random = numpy.random.default_rng(1)
    weights = {
        name: random.standard_normal(dims).astype(numpy.float32)
        for name, dims in {"w": (8, 4, 3, 3), "q": (4, 4), "k": (4, 4), "v": (4, 4)}.items()
    }
    weights |= {name: numpy.ones(8, numpy.float32) for name in ("scale", "bias", "mean", "var")}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["b"], name="norm"),
        helper.make_node("Sigmoid", ["b"], ["s"], name="sigmoid"),
        helper.make_node("Mul", ["b", "s"], ["y"], name="times"),
        helper.make_node("MatMul", ["t", "q"], ["tq"], name="query"),
        helper.make_node("MatMul", ["t", "k"], ["tk"], name="key"),
        helper.make_node("MatMul", ["t", "v"], ["tv"], name="value"),
        *(helper.make_node("Transpose", [x], [x + "t"], name=x + "t") for x in ("tq", "tk", "tv")),
    ]
    return make_model(
        nodes,
        [("x", TensorProto.FLOAT, (1, 4, 8, 8)), ("t", TensorProto.FLOAT, (5, 4))],
        [("y", TensorProto.FLOAT, (1, 8, 6, 6)), *((x, TensorProto.FLOAT, (4, 5)) for x in ("tqt", "tkt", "tvt"))],
        weights,
        name="rewritten",
    )


class Explain(CliTest):
    def setUp(self):
        super().setUp()
        self.save(story_model(), "story.onnx")

    def test_branches(self):
        def branch(op, out):
            nodes = [helper.make_node("MatMul", ["x", "w"], [out + "p"], name=op + "_product"),
                     helper.make_node(op, [out + "p"], [out], name=op)]
            return helper.make_graph(nodes, out, [], [helper.make_tensor_value_info(out, TensorProto.FLOAT, (4, 4))])
        choose = helper.make_node("If", ["c"], ["y"], name="choose", then_branch=branch("Exp", "t"),
                                  else_branch=branch("Neg", "e"))
        info = lambda name: (name, TensorProto.FLOAT, (4, 4))
        self.save(make_model([choose], [("c", TensorProto.BOOL, ()), info("x")], [info("y")],
                             {"w": numpy.eye(4, dtype=numpy.float32)}), "branches.onnx")
        text, _ = self.tessera("explain", "branches.onnx", "--json", "--disable-pass", "cse", "--disable-pass", "merge_matmuls")
        found = {kernel["only_if"][0] for kernel in json.loads(text)["kernels"] if kernel["only_if"]}
        self.assertEqual(found, {"c", "not c"})

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
        told = self.explained("--target", "x86-64-v3", "--disable-pass", "winograd")
        first = next(node for node in told["nodes"] if node["name"] == "first")
        kernel = told["kernels"][first["kernels"][-1]]  # the one before copies the input to another layout
        self.assertEqual(kernel["nodes"], ["first", "relu"])
        # 64 pixels, 16 channels, 144 multiply-adds each, and one maximum.
        self.assertEqual(kernel["flops"], 64 * 16 * (144 * 2 + 1))
        self.assertEqual(kernel["bytes"], 4 * (16 * 64 * 2 + 16 * 16 * 9))
        self.assertEqual(kernel["layout"], "{0,1/8,2,3,1%8}")
        self.assertRegex(kernel["schedule"], r"^register_tile\{.*rows=\d+.*,vectors=\d+.*\}$|^register_tile\{.*vectors=\d+.*rows=\d+.*\}$")
        rules = {rule["rule"]: rule for rule in kernel["rules"]}
        self.assertEqual([rule["chosen"] for rule in kernel["rules"]].count(True), 1)
        self.assertTrue(rules["register_tile"]["chosen"])
        self.assertGreater(rules["register_tile"]["predicted_us"], 0)
        self.assertLess(rules["register_tile"]["predicted_us"], rules["scalar_loops"]["predicted_us"])
        self.assertEqual(rules["injective"]["declined"], "the kernel reduces")
        self.assertEqual(rules["winograd"]["declined"], "--disable-pass leaves it out")

    def test_refusals_have_reasons(self):
        told = self.explained()
        second = next(node for node in told["nodes"] if node["name"] == "second")
        reasons = {(entry["node"], entry.get("other")): entry["text"] for entry in second["refused"]}
        self.assertEqual(reasons[("relu", "second")], "a kernel has one reduction")
        self.assertTrue(any(entry["pass"] == "assign_layouts" for entry in second["done"]))

    def test_rewrites_are_told(self):
        self.save(rewritten_model(), "rewritten.onnx")
        text, _ = self.tessera("explain", "rewritten.onnx", "--json")
        done = {node["name"]: {entry["pass"]: entry["text"] for entry in node["done"]} for node in json.loads(text)["nodes"]}
        for name in ("conv", "norm"):
            self.assertEqual(
                done[name]["fold_batch_norm"], "scales and shifts by constants are in the convolution's weights and bias"
            )
        for name in ("sigmoid", "times"):
            self.assertEqual(done[name]["raise_to_composites"], "together these nodes are one silu")
        for name in ("query", "key", "value"):
            self.assertEqual(done[name]["merge_matmuls"], "3 products that share their left operand are one")

    def test_open_products_do_not_gather(self):
        # Keys that lie column by column, as attention has them: lanes along the sum would gather each.
        product = make_model([helper.make_node("MatMul", ["q", "k"], ["y"], name="scores")],
                             [("q", TensorProto.FLOAT, ("n", 64)), ("k", TensorProto.FLOAT, (64, "n"))],
                             [("y", TensorProto.FLOAT, ("n", "n"))], {}, name="product")
        self.save(product, "open.onnx")
        text, _ = self.tessera("explain", "open.onnx", "--json", "--dim", "n=1..256")
        (kernel,) = json.loads(text)["kernels"]
        self.assertEqual(kernel["rule"], "register_tile")
        declined = {rule["rule"]: rule.get("declined") for rule in kernel["rules"]}
        self.assertEqual(declined["row_reduce"], "an operand is not contiguous along the reduced axis")

    def test_pooling_of_rows_takes_lanes_of_outputs(self):
        nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
                 helper.make_node("ReduceSum", ["y"], ["z"], keepdims=0)]
        pooling = make_model(nodes, [("x", TensorProto.FLOAT, (1, 3, 9, 20))], [("z", TensorProto.FLOAT, ())], {}, name="pooling")
        self.save(pooling, "pooling.onnx")
        text, _ = self.tessera("explain", "pooling.onnx", "--json", "--target", "x86-64-v3")
        pool, total = json.loads(text)["kernels"]
        self.assertEqual(pool["rule"], "window_rows")
        declined = {rule["rule"]: rule.get("declined") for rule in total["rules"]}
        self.assertEqual(declined["window_rows"], "the output is one element")

    def test_levels_differ(self):
        self.assertNotIn("relu", self.explained("-O0")["nodes"][0]["fused_with"])

    def test_text_and_one_node(self):
        text, _ = self.tessera("explain", "story.onnx")
        self.assertRegex(text, r"^story: for x86_64.* at -O3\n8 nodes became \d+ kernels: 4 in kernels, ")
        self.assertRegex(text, r"(?m)^first +Conv +.*kernel \d+ \(\w+\)$")
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
                "a model",
                "give the model that it was compiled from, or use 'tessera inspect' on the module",
            ),
        )
        _, errors = self.tessera("explain", "nix.onnx", code=1)
        self.assertTrue(errors.startswith("error TSR-1001: cannot open the model 'nix.onnx'"), errors)
        (self.folder / "text.onnx").write_text("hello")
        _, errors = self.tessera("explain", "text.onnx", code=1)
        self.assertTrue(errors.startswith("error TSR-1002: 'text.onnx' is not an ONNX model"), errors)


class Inspect(CliTest):
    def test_module(self):
        self.save(conv_model(), "conv.onnx")
        self.tessera("compile", "conv.onnx", "-q", "--target", "x86-64-v3", "-O2")
        text, _ = self.tessera("inspect", "conv.so", "--json")
        told = json.loads(text)
        self.assertEqual((told["kind"], told["bytes"]), ("module", (self.folder / "conv.so").stat().st_size))
        self.assertEqual(told["inputs"], [{"name": "x", "type": "f32[1,3,16,16]"}])
        self.assertEqual(told["outputs"], [{"name": "y", "type": "f32[1,8,16,16]"}])
        self.assertEqual(told["operators"]["conv"], 1)
        self.assertEqual(told["options"], {"opt-level": "2"})
        self.assertEqual(told["model"]["name"], "conv")
        self.assertIn("avx2", told["target"]["features"])
        self.assertTrue(told["producer"].startswith("tessera "))
        # 8 channels of 256 pixels: 27 multiply-adds, the bias and the maximum each.
        self.assertEqual(max(kernel["flops"] for kernel in told["kernels"]), 8 * 256 * (27 * 2 + 2))
        self.assertEqual(len(told["live_bytes"]), len(told["calls"]))
        self.assertLessEqual(max(told["live_bytes"]), told["memory"]["arena_bytes"])
        for buffer in told["arena"]:
            self.assertLessEqual(buffer["offset"] + buffer["bytes"], told["memory"]["arena_bytes"])
            self.assertLessEqual(buffer["first"], buffer["last"])
        self.assertGreater(sum(weight["bytes"] for weight in told["weights"]), 8 * 27 * 4)
        text, _ = self.tessera("inspect", "conv.so")
        self.assertRegex(text, r"^conv\.so: a module of .*: code .*, weights .*, descriptor .*, metadata ")
        for begin in ("model  ", "made by  ", "target  ", "needs  ", "inputs  ", "outputs  ", "memory  ", "operator  "):
            self.assertIn("\n" + begin, text)
        self.assertRegex(text, r"(?m)^ *\d+  register_tile +[\d.]+ k +[\d.]+ kB  Conv_0\+Relu_1$")

    def test_module_of_another_machine_is_only_read(self):
        self.save(conv_model(), "conv.onnx")
        self.tessera("compile", "conv.onnx", "-q", "--target", "aarch64-unknown-linux-gnu", "-o", "arm.so")
        text, _ = self.tessera("inspect", "arm.so", "--json")
        self.assertEqual(json.loads(text)["target"]["triple"], "aarch64-unknown-linux-gnu")

    def test_onnx(self):
        path = self.save(story_model(), "story.onnx")
        text, _ = self.tessera("inspect", "story.onnx", "--json")
        told = json.loads(text)
        self.assertEqual((told["kind"], told["bytes"], told["nodes"]), ("onnx", path.stat().st_size, 8))
        self.assertEqual(
            told["operators"], {"Add": 2, "Conv": 2, "Exp": 1, "Flatten": 1, "Identity": 1, "Relu": 1}
        )
        self.assertEqual(told["opsets"], {"ai.onnx": 17})
        self.assertEqual(told["inputs"], [{"name": "x", "type": "f32[1,16,8,8]"}])
        elements = 16 * 16 * 9 + 16 * 16
        self.assertEqual(
            told["weights"],
            {
                "count": 4,
                "elements": elements + 4,
                "bytes": 4 * elements + 8 * 4,
                "external": 0,
                "bytes_of": {"f32": 4 * elements, "i64": 32},
            },
        )
        text, _ = self.tessera("inspect", "story.onnx")
        self.assertRegex(text, r"^story\.onnx: an ONNX model of .*: 8 nodes, 4 weights\n")
        self.assertRegex(text, r"(?m)^Conv +2$")

    def test_onnx_that_cannot_be_imported(self):
        nodes = [helper.make_node("Unheard", ["x"], ["y"], name="u", domain="org.example")]
        dims = ["batch", None, 4]
        model = make_model(nodes, [("x", TensorProto.FLOAT, dims)], [("y", TensorProto.FLOAT, None)])
        model.opset_import.append(helper.make_opsetid("org.example", 3))
        self.save(model, "odd.onnx")
        told = json.loads(self.tessera("inspect", "odd.onnx", "--json")[0])
        self.assertEqual(told["unsupported"], ["org.example.Unheard"])
        self.assertEqual(told["inputs"], [{"name": "x", "type": "f32[batch,?,4]"}])
        self.assertEqual(told["outputs"], [{"name": "y", "type": "f32[...]"}])
        self.assertIn("unsupported  org.example.Unheard\n", self.tessera("inspect", "odd.onnx")[0])

    def test_mistakes(self):
        _, errors = self.tessera("inspect", "nix.onnx", code=1)
        self.assertTrue(errors.startswith("error TSR-1001: cannot open the model 'nix.onnx'"), errors)
        _, errors = self.tessera("inspect", "nix.so", code=1)
        self.assertTrue(errors.startswith("error TSR-7001: "), errors)
        (self.folder / "foreign.so").write_bytes(pathlib.Path(sys.executable).resolve().read_bytes())
        _, errors = self.tessera("inspect", "foreign.so", code=1)
        self.assertTrue(errors.startswith("error TSR-7003: "), errors)
        self.save(affine_model())
        self.tessera("compile", "model.onnx", "-q")
        whole = (self.folder / "model.so").read_bytes()
        (self.folder / "cut.so").write_bytes(whole[:-100])
        _, errors = self.tessera("inspect", "cut.so", code=1)
        self.assertTrue(errors.startswith("error TSR-7003: "), errors)
        (self.folder / "damaged.so").write_bytes(whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:])
        _, errors = self.tessera("inspect", "damaged.so", code=1)
        self.assertTrue(errors.startswith("error TSR-7009: "), errors)


class Doctor(CliTest):
    def examined(self, **variables):
        text, _ = self.tessera("doctor", "--json", **variables)
        return json.loads(text)

    def test_measures(self):
        told = self.examined()
        self.assertRegex(told["version"], r"^tessera .* \(LLVM 19\.")
        self.assertEqual(told["cache"]["folder"], str(self.folder / "cache"))
        self.assertGreaterEqual(told["cpus"]["usable"], 1)
        self.assertEqual([level["name"] for level in told["peaks"]["bandwidth"]][-1], "memory")
        cpu = pathlib.Path("/proc/cpuinfo").read_text()
        names = [peak["name"] for peak in told["peaks"]["arithmetic"]]
        self.assertEqual(names[0], "f32 multiply-add")
        self.assertEqual("i8 dot products" in names, " avx512_vnni" in cpu or " avx_vnni" in cpu)
        self.assertEqual("i8 tiles" in names, " amx_int8" in cpu)
        self.assertEqual("bf16 tiles" in names, " amx_bf16" in cpu)
        for peak in told["peaks"]["arithmetic"]:
            self.assertGreater(peak["one_thread_gops"], 0.02)  # even with sanitizers
            self.assertLess(peak["one_thread_gops"], 1e5)
        bandwidth = {level["name"]: level["one_thread_gbytes"] for level in told["peaks"]["bandwidth"]}
        self.assertGreater(min(bandwidth.values()), 0.1)
        self.assertLess(bandwidth["memory"], 3 * bandwidth["L1"])  # generous: others may be running
        levels = {level["name"]: level for level in told["peaks"]["bandwidth"]}
        self.assertNotIn("capacity", levels["memory"])
        for name, level in levels.items():
            if name == "memory":
                continue
            # Of a cache that other machines share, what it was seen to hold, and for how long.
            self.assertLessEqual(level["capacity"], told["caches"][name.lower()])
            self.assertGreaterEqual(level["capacity"], min(level["working_set"], told["caches"][name.lower()]))
            if name != "L3":
                self.assertNotIn("keeps_ms", level)
            elif "keeps_ms" in level:
                self.assertIn(level["keeps_ms"], [0.125 * 2**i for i in range(7)])
        text, _ = self.tessera("doctor")
        self.assertRegex(text, r"measured reading +holds +for +bytes read +1 thread")

    def test_warns(self):
        told = self.examined(OMP_NUM_THREADS="500", TESSERA_CACHE_SIZE="0")
        warnings = "\n".join(told["warnings"])
        self.assertIn("sessions use 500 threads on ", warnings)
        self.assertIn("the cache of compiled modules is off", warnings)
        self.assertEqual(told["environment"]["OMP_NUM_THREADS"], "500")

    def test_text(self):
        text, _ = self.tessera("doctor")
        for begin in ("back end ", "processor ", "features ", "CPUs ", "caches ", "memory ", "cache folder "):
            self.assertIn("\n" + begin, text)
        self.assertRegex(text, r"(?m)^f32 multiply-add +\w.* +[\d.]+ +[\d.]+  G operations/s$")
        self.assertNotIn("\x1b", text)


class Profile(CliTest):
    def test_a_slice_for_each_kernel_and_thread(self):
        self.save(conv_model(96, 96, 16, 32), "conv.onnx")
        for threads in (1, 2):
            _, errors = self.tessera("run", "conv.onnx", "--threads", threads, "--profile", "trace.json")
            trace = json.loads((self.folder / "trace.json").read_text())
            slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
            told = json.loads(self.tessera("explain", "conv.onnx", "--json", "--threads", threads)[0])
            calling = [event for event in slices if event["tid"] == 0]
            self.assertEqual(len(calling), len(told["kernels"]))
            self.assertEqual(
                [event["args"]["flops"] for event in calling], [kernel["flops"] for kernel in told["kernels"]]
            )
            self.assertIn("Conv_0+Relu_1", [event["name"] for event in calling])
            # Calls follow each other; another thread's part lies within its kernel's call.
            for before, after in zip(calling, calling[1:]):
                self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 0.01)
            for event in slices:
                whole = calling[event["args"]["call"]]
                self.assertEqual(event["name"], whole["name"])
                self.assertGreaterEqual(event["ts"], whole["ts"] - 0.01)
                self.assertLessEqual(event["ts"] + event["dur"], whole["ts"] + whole["dur"] + 0.01)
                self.assertLessEqual(event["args"]["busy_us"], event["dur"] + 0.01)
                self.assertLess(event["tid"], threads)
            names = [event for event in trace["traceEvents"] if event["name"] == "thread_name"]
            self.assertEqual(names[0]["args"]["name"], "caller")

    def test_results_are_the_same(self):
        self.save(affine_model())
        x = self.save_npy("x.npy", numpy.ones((2, 3), numpy.float32))
        self.tessera("run", "model.onnx", "-i", x, "-o", "y=@plain.npy")
        self.tessera("run", "model.onnx", "-i", x, "-o", "y=@traced.npy", "--profile", "t.json")
        numpy.testing.assert_array_equal(self.load_npy("plain.npy"), self.load_npy("traced.npy"))

    def test_mistakes(self):
        self.save(affine_model())
        _, errors = self.tessera("run", "model.onnx", "--engine", "interp", "--profile", "t.json", code=1)
        self.assertIn(
            error("TSR-4042", "the interpreter has no kernels to record", "--profile with --engine native"), errors
        )
        _, errors = self.tessera("run", "model.onnx", "--profile", "nowhere/t.json", code=1)
        self.assertIn("error TSR-6102: profile 'nowhere/t.json' cannot be written", errors)
        self.assertEqual(self.files("*.json*"), [])


class Roofline(CliTest):
    def test_json_always_has_kernels(self):
        self.save(conv_model(64, 64, 16, 32), "conv.onnx")
        text, _ = self.tessera("bench", "conv.onnx", "--json", "--repeat", 3, "--threads", 1)
        told = json.loads(text)
        explained = json.loads(self.tessera("explain", "conv.onnx", "--json", "--threads", 1)[0])
        self.assertEqual(
            [kernel["flops"] for kernel in told["kernels"]], [kernel["flops"] for kernel in explained["kernels"]]
        )
        self.assertEqual(
            [kernel["bytes"] for kernel in told["kernels"]], [kernel["bytes"] for kernel in explained["kernels"]]
        )
        peak = told["roofline"]["peak_gflops"]
        self.assertGreater(peak, 0.5)
        for kernel in told["kernels"]:
            self.assertGreater(kernel["us"], 0)
            self.assertIn(kernel["bound"], ("compute", "memory"))
            self.assertAlmostEqual(kernel["gflops"], kernel["flops"] / kernel["us"] / 1e3, delta=1e-6 + kernel["gflops"] / 1e3)
            self.assertAlmostEqual(
                kernel["percent_of_peak"], 100 * kernel["gflops"] / peak, delta=1e-6 + kernel["percent_of_peak"] / 1e3
            )
        self.assertAlmostEqual(sum(kernel["percent"] for kernel in told["kernels"]), 100, delta=0.01)
        conv = next(kernel for kernel in told["kernels"] if "Conv_0" in kernel["nodes"] and kernel["flops"] > 0)
        self.assertEqual(conv["flops"], 32 * 64 * 64 * (16 * 9 * 2 + 2))
        self.assertEqual(conv["constant_bytes"], 4 * (32 * 16 * 9 + 32))

    def test_rules_behind_equal_kernels(self):
        # Two calls of one kernel, and another kernel behind them.
        weights = [numpy_helper.from_array(numpy.full((64, 64), 0.1, numpy.float32), f"w{i}") for i in range(2)]
        nodes = [
            helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
            helper.make_node("MatMul", ["a", "w1"], ["b"], name="second"),
            helper.make_node("ReduceMax", ["b"], ["y"], name="rows", axes=[1], keepdims=0),
        ]
        graph = helper.make_graph(
            nodes,
            "rules",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
            weights,
        )
        self.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "rules.onnx")
        told = json.loads(self.tessera("bench", "rules.onnx", "--kernels", "--json", "--repeat", 1, "--threads", 1)[0])
        rules = {kernel["nodes"]: kernel["rule"] for kernel in told["kernels"]}
        self.assertEqual((rules["first"], rules["second"]), ("register_tile", "register_tile"))
        self.assertEqual(rules["rows"], "row_reduce")

    def test_text(self):
        self.save(conv_model(), "conv.onnx")
        text, _ = self.tessera("bench", "conv.onnx", "--kernels", "--repeat", 3, "--threads", 1)
        self.assertRegex(text, r"(?m)^ *# +time +% +FLOP +bytes +GFLOP/s +% of peak +of +GB/s +bound +% of bound +rule +nodes$")
        self.assertRegex(text, r"(?m) (compute|memory \(\w+\)) +\d+  \w+  Conv_0\+Relu_1$")
        self.assertRegex(text, r"(?m)^measured peak on 1 thread: [\d.]+ GFLOP/s; reading L1 [\d.]+ .*memory [\d.]+ GB/s$")
        self.assertNotIn("?", text)
        self.save(make_model([helper.make_node("Tanh", ["x"], ["y"], name="t")], [("x", TensorProto.FLOAT, ["n", 64])],
                             [("y", TensorProto.FLOAT, ["n", 64])]), "open.onnx")
        self.tessera("compile", "open.onnx", "--dim", "n=1..64", "-o", "open.so")
        text, _ = self.tessera("bench", "open.so", "--dim", "n=7", "--kernels", "--repeat", 3, "--threads", 1)
        # The formulas of an open kernel, at the sizes of the run.
        self.assertNotIn("?", text)
        open_kernel = json.loads(self.tessera("bench", "open.so", "--dim", "n=7", "--json", "--repeat", 3)[0])["kernels"][0]
        self.tessera("compile", "open.onnx", "--dim", "n=7", "-o", "fixed.so")
        fixed_kernel = json.loads(self.tessera("bench", "fixed.so", "--json", "--repeat", 3)[0])["kernels"][0]
        self.assertEqual([open_kernel[key] for key in ("flops", "bytes")], [fixed_kernel[key] for key in ("flops", "bytes")])
        told = json.loads(self.tessera("bench", "conv.onnx", "--engine", "interp", "--json", "--repeat", 1)[0])
        self.assertEqual((told["kernels"], told["roofline"]), ([], None))


class Against(CliTest):
    def test_onnxruntime(self):
        if importlib.util.find_spec("onnxruntime") is None:
            raise unittest.SkipTest("no onnxruntime in this Python")
        self.save(conv_model(), "conv.onnx")
        text, _ = self.tessera(
            *("bench", "conv.onnx", "--against", "onnxruntime", "--json", "--repeat", 3, "--threads", 1),
            TESSERA_PYTHON=sys.executable,
        )
        against = json.loads(text)["against"]
        self.assertEqual((against["peer"], against["agrees"], against["rounds"]), ("onnxruntime", True, 5))
        self.assertEqual([len(against[key]) for key in ("tessera_rounds_ms", "peer_rounds_ms")], [5, 5])
        self.assertAlmostEqual(against["speedup"], against["peer_ms"] / against["tessera_ms"])
        self.assertAlmostEqual(against["ratio"] * against["speedup"], 1)
        self.assertEqual(against["outputs"][0]["name"], "y")
        text, _ = self.tessera(
            *("bench", "conv.onnx", "--against", "onnxruntime", "--repeat", 3), TESSERA_PYTHON=sys.executable
        )
        self.assertRegex(text, r"(?m)^tessera [\d.]+ ms, onnxruntime [\d.]+ [\d.]+ ms: [\d.]+ times as fast \(5 rounds of 3 runs")

    def test_mistakes(self):
        self.save(affine_model())
        arguments = ("bench", "model.onnx", "--against", "onnxruntime", "--repeat", 1)
        _, errors = self.tessera(*arguments, code=1, TESSERA_PYTHON="/no/such/python")
        self.assertEqual(
            errors,
            error(
                "TSR-4044",
                "ONNX Runtime cannot be used beside us: '/no/such/python' cannot be started: No such file or directory",
                "a Python with the packages onnxruntime and numpy, and a model that it runs",
                "pip install onnxruntime; set TESSERA_PYTHON to that Python if it is not 'python3'",
            ),
        )
        bare = self.folder / "bare"
        bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")  # without site-packages
        bare.chmod(0o755)
        _, errors = self.tessera(*arguments, code=1, TESSERA_PYTHON=str(bare))
        self.assertRegex(errors, r"^error TSR-4044: .*: ModuleNotFoundError: No module named '\w+'\n")
        self.tessera("compile", "model.onnx", "-q")
        _, errors = self.tessera("bench", "model.so", "--against", "onnxruntime", code=1)
        self.assertEqual(
            errors,
            error(
                "TSR-4043",
                "'model.so' is a compiled module, which onnxruntime cannot run",
                "an ONNX model with --against",
                "give the model that the module was compiled from",
            ),
        )


STAND_IN = """
import os, signal, time
import numpy
__version__ = "1.2.3"
SHIFT = float(os.environ.get("STAND_IN_SHIFT", 0))
def act():
    how = os.environ.get("STAND_IN")
    if how == "hang":
        time.sleep(1000)
    elif how == "crash":
        print("about to crash", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "refuse":
        raise RuntimeError("this model is not for me")
class Core:
    def read_model(self, path):
        act()
        return self
    inputs = []
    def compile_model(self, network, device, options):
        self.outputs = [0, 1]
        return self
    def create_infer_request(self):
        return self
    def infer(self):
        pass
    def get_output_tensor(self, i):
        class Held:
            data = numpy.arange(6, dtype=numpy.float32).reshape(2, 3) + SHIFT
        return Held()
"""


class AgainstSeveral(CliTest):
    """Beside ONNX Runtime a package stands in for OpenVINO and does what the test wants: the engine itself need not be
    installed. The model gives what the package gives."""

    def setUp(self):
        super().setUp()
        if importlib.util.find_spec("onnxruntime") is None:
            raise unittest.SkipTest("no onnxruntime in this Python")
        nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["z"])]
        outputs = [(name, TensorProto.FLOAT, (2, 3)) for name in ("y", "z")]
        self.save(make_model(nodes, [("x", TensorProto.FLOAT, (2, 3))], outputs))
        (self.folder / "openvino.py").write_text(STAND_IN)
        (self.folder / "tmp").mkdir()
        self.environment |= {"TESSERA_PYTHON": sys.executable, "PYTHONPATH": str(self.folder),
                             "TMPDIR": str(self.folder / "tmp")}
        self.inputs = ("--input", self.save_npy("x.npy", numpy.arange(6, dtype=numpy.float32).reshape(2, 3)))

    def bench(self, *arguments, **options):
        return self.tessera("bench", "model.onnx", "--threads", 1, "--repeat", 3, *self.inputs, *arguments, **options)

    def against(self, *arguments, **options):
        text, _ = self.bench("--against", "onnxruntime,openvino", "--json", *arguments, **options)
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])
        told = json.loads(text)["against"]
        self.assertEqual([peer["peer"] for peer in told["peers"]], ["onnxruntime", "openvino"])
        self.assertTrue(told["peers"][0]["agrees"])
        return told

    def test_both(self):
        told = self.against("--rounds", 2)
        self.assertTrue(told["agrees"])
        self.assertEqual((told["rounds"], told["repeats"], len(told["tessera_rounds_ms"])), (2, 3, 2))
        for peer in told["peers"]:
            self.assertEqual((peer["agrees"], peer["repeats"], len(peer["peer_rounds_ms"])), (True, 3, 2))
            self.assertEqual([output["name"] for output in peer["outputs"]], ["y", "z"])
            self.assertLessEqual(peer["peer_min_ms"], peer["peer_ms"])
            self.assertAlmostEqual(peer["speedup"], peer["peer_ms"] / told["tessera_ms"])
            self.assertGreater(peer["peak_bytes"], 1 << 20)
        self.assertEqual(told["peers"][1]["version"], "1.2.3")
        text, _ = self.bench("--against", "onnxruntime,openvino")
        self.assertRegex(text, r"(?m)^engine +median ms +min ms +theirs/ours  version \(5 rounds, in turn\)\n"
                               r"tessera +[\d.]+ +[\d.]+ +1\.00\n"
                               r"onnxruntime +[\d.]+ +[\d.]+ +[\d.]+  [\d.]+\nopenvino +[\d.]+ +[\d.]+ +[\d.]+  1\.2\.3\n"
                               r"tessera is [\d.]+ times as fast as the fastest of them, (onnxruntime|openvino)\n")
        self.assertIn("openvino, output 'z': equal", text)

    def test_one_differs(self):
        told = self.against(code=2, STAND_IN_SHIFT="0.01")
        self.assertEqual((told["agrees"], told["peers"][1]["agrees"]), (False, False))
        text, _ = self.bench("--against", "onnxruntime,openvino", code=2, STAND_IN_SHIFT="0.01")
        self.assertTrue(text.endswith("OUTPUTS DIFFER from openvino's\n"), text)
        self.assertRegex(text, r"(?m)^tessera is [\d.]+ times as fast as the fastest of them, onnxruntime; "
                               r"openvino, whose outputs differ: [\d.]+$")
        self.assertIn("\ntessera is nearer to the interpreter: 0 off, openvino 0.002 (of the largest magnitude)\n", text)
        self.bench("--against", "openvino", STAND_IN_SHIFT="5e-7")
        # The bound of bf16 is wider.
        self.bench("--against", "openvino-bf16", STAND_IN_SHIFT="0.01")
        self.bench("--against", "openvino-bf16", code=2, STAND_IN_SHIFT="1")
        self.bench("--against", "openvino", "--mtol", "0.02", STAND_IN_SHIFT="0.01")
        self.bench("--against", "openvino-bf16", "--mtol", "1e-4", code=2, STAND_IN_SHIFT="0.01")

    def test_one_fails(self):
        for how, reason in (("refuse", "RuntimeError: this model is not for me"),
                            ("crash", "signal 11 ended it: about to crash")):
            told = self.against(STAND_IN=how)
            self.assertEqual(told["peers"][1], {"peer": "openvino", "reason": reason})
            self.assertTrue(told["agrees"])
            _, errors = self.bench("--against", "openvino", code=1, STAND_IN=how)
            self.assertEqual(errors, error("TSR-4044", "OpenVINO cannot be used beside us: " + reason,
                                           "a Python with the packages openvino and numpy, and a model that it runs",
                                           "pip install openvino; set TESSERA_PYTHON to that Python if it is not 'python3'"))
        text, _ = self.bench("--against", "onnxruntime,openvino", STAND_IN="refuse")
        self.assertRegex(text, r"(?m)^openvino +not measured: RuntimeError: this model is not for me$")

    def test_package_missing(self):
        (self.folder / "openvino.py").write_text("import package_that_does_not_exist\n")
        told = self.against()
        self.assertEqual(told["peers"][1]["reason"], "ModuleNotFoundError: No module named 'package_that_does_not_exist'")

    def test_time_limit(self):
        told = self.against("--against-limit", 10, STAND_IN="hang")
        self.assertEqual(told["peers"][1]["reason"], "no answer within 10 s")

    def test_interrupted(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(number):
                self.interrupt(number, code)

    def interrupt(self, number, code):
        process = subprocess.Popen(
            [cli_support.TESSERA, "bench", "model.onnx", "--against", "onnxruntime,openvino", "--repeat", "1", *self.inputs],
            cwd=self.folder, env={**self.environment, "STAND_IN": "hang"}, stdout=subprocess.DEVNULL,
            start_new_session=True)
        deadline = time.monotonic() + 60
        while len(list((self.folder / "tmp").iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.2)
        ours = f"{self.folder / 'tmp'}/"
        # Ctrl-C and the like reach all of the terminal's processes, SIGKILL one.
        (os.kill if number == signal.SIGKILL else os.killpg)(process.pid, number)
        self.assertEqual(process.wait(20), code)
        running = lambda: [path for path in pathlib.Path("/proc").glob("[0-9]*/environ")
                           if ours[:-1].encode() in self.read_or_nothing(path)]
        while (list((self.folder / "tmp").iterdir()) or running()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual((list((self.folder / "tmp").iterdir()), running()), ([], []))

    @staticmethod
    def read_or_nothing(path):
        try:
            return path.read_bytes()
        except OSError:
            return b""

    def test_no_such_peer(self):
        for name, wrong, hint in (("onnxruntime,nothing", "nothing", "separate several by commas"),
                                  ("openvino,", "", "separate several by commas")):
            _, errors = self.bench("--against", name, code=1)
            self.assertEqual(errors, error("TSR-4045", f"--against '{wrong}' is no engine to measure beside",
                                           "onnxruntime, openvino, openvino-bf16, iree, tvm, mnn, torch, torch-compile", hint))
        _, errors = self.bench("--against", "mnn,mnn", code=1)
        self.assertEqual(errors, error("TSR-4045", "--against names 'mnn' twice", "each engine once"))


def slow_model():
    """Takes seconds to compile: many convolutions of different sizes."""
    nodes, weights, channels = [], {}, 16
    random = numpy.random.default_rng(0)
    for i in range(60):
        following = 16 + (i * 7) % 23
        weights[f"w{i}"] = random.standard_normal((following, channels, 3, 3)).astype(numpy.float32)
        nodes.append(helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=f"c{i}", pads=[1, 1, 1, 1]))
        channels = following
    return make_model(
        nodes, [("x0", TensorProto.FLOAT, (1, 16, 33, 31))], [("x60", TensorProto.FLOAT, (1, channels, 33, 31))], weights
    )


class Limits(CliTest):
    def test_compile_time(self):
        self.save(slow_model(), "slow.onnx")
        for verb in (("compile", "slow.onnx"), ("run", "slow.onnx"), ("bench", "slow.onnx")):
            _, errors = self.tessera(*verb, "--max-compile-time", 0.2, code=1)
            self.assertRegex(
                errors,
                r"^error TSR-5110: compiling takes longer than 0\.2 s; it was at '\w+'\n"
                r"  legal: a compile within --max-compile-time\n  hint:  give it more time, .*\n$",
            )
        self.assertEqual([name for name in self.files() if name != "slow.onnx"], [])
        self.save(affine_model())
        self.tessera("compile", "model.onnx", "--max-compile-time", 100, "-q")
        self.tessera("run", "model.so", "--max-compile-time", 100)
        _, errors = self.tessera("compile", "model.onnx", "--max-compile-time", 0, code=1)
        self.assertIn("error TSR-4001: ", errors)

    def test_interrupted(self):
        self.save(slow_model(), "slow.onnx")
        for wait in (0, 0.2, 0.4):
            process = subprocess.Popen(
                [cli_support.TESSERA, "compile", "slow.onnx", "-o", "slow.so", "--print-ir-after", "import"],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.assertEqual(process.stderr.readline(), "// after import\n")  # it is at work
            time.sleep(wait)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=30), 130)
            self.assertLess(time.monotonic() - begin, 5)
            process.stderr.close()
            self.assertEqual(self.files(), ["slow.onnx"])


if __name__ == "__main__":
    cli_support.main()
