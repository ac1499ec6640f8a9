#!/usr/bin/env python3
"""`tessera train` on real digits: models built without a file and from ONNX, what is written, what goes on, what is
refused.    cli_train_test.py TESSERA [unittest options]"""

import json
import math
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "examples/train_digits")]
import cli_support
from cli_support import CliTest
from test_data import find_test_data

import numpy
import onnx
import onnxruntime
import tessera
from onnx import helper, numpy_helper

import make_models

DIGITS = find_test_data("real/digits/digits.npz")


class Train(CliTest):
    def setUp(self):
        super().setUp()
        if not DIGITS:
            self.skipTest("real/digits/digits.npz is not in TESSERA_TEST_DATA")
        make_models.mlp().save(self.folder / "mlp.graph")
        make_models.lenet().save(self.folder / "lenet.graph")
        make_models.lenet_onnx(str(self.folder / "lenet.onnx"))
        with numpy.load(DIGITS) as data:
            self.data = dict(data)

    def train(self, model, *arguments, code=0):
        threads = [] if "--threads" in arguments else ["--threads", 1]
        return self.tessera("train", model, "--data", DIGITS, "--scale", 1 / 16, *threads, *arguments, code=code)

    def right(self, model, size):
        """How many of the test digits a trained module gets right, one batch after the other."""
        images = self.data["images"][self.data["test_index"]].astype(numpy.float32) / 16
        labels = self.data["labels"][self.data["test_index"]]
        shape = (-1, 64) if "mlp" in model else (-1, 1, 8, 8)
        right = 0
        for begin in range(0, len(images), size):
            numpy.save(self.folder / "x.npy", images[begin : begin + size].reshape(shape))
            self.tessera("run", model, "--input", "@x.npy", "--output", "@y.npy", "--no-cache")
            right += (numpy.load(self.folder / "y.npy").argmax(1) == labels[begin : begin + size]).sum()
        return right

    def test_digits_are_learnt(self):
        for model in ("mlp.graph", "lenet.graph", "lenet.onnx"):
            with self.subTest(model):
                output = model.replace(".", "_") + ".so"
                out, _ = self.train(
                    model, "--epochs", 25, "--lr", 2e-3, "--schedule", "cosine", "-o", output, "--curve", "c.svg"
                )
                right = int(re.findall(r"\((\d+) of 359\)", out)[-1])
                self.assertGreaterEqual(right, 0.98 * 359, out)
                self.assertIn("▁", out)
                self.assertEqual(self.right(output, 32), right)
                self.assertIn("<polyline", (self.folder / "c.svg").read_text())

    def test_less_memory_changes_no_bit(self):
        """What does not fit is computed again; where nothing helps, the error says what is in the way."""
        made = self.train("lenet.onnx", "--epochs", 2, "--step", "step.graph", "--json")[0]
        losses = json.loads(made)["losses"]

        def memory(*more):
            self.tessera("compile", "step.graph", "-o", "step.so", "--threads", 1, *more)
            sizes = json.loads(self.tessera("inspect", "step.so", "--json")[0])["memory"]
            model = tessera.load(str(self.folder / "step.so"), threads=1)
            states = sum(-(-s.nbytes // 64) * 64 for s in model.states.values())
            return sizes["arena_bytes"] + states, states

        whole, states = memory()
        less = states + (whole - states) * 95 // 100
        self.assertLess(memory("--max-memory", less)[0], min(whole, less * 1.05))
        made = self.train("lenet.onnx", "--epochs", 2, "--max-memory", less, "--json")[0]
        self.assertEqual(json.loads(made)["losses"], losses)
        _, error = self.train("lenet.onnx", "--epochs", 1, "--max-memory", states + 1000, code=1)
        self.assertRegex(error, r"TSR-4081: [\d.]+ kB of memory are needed, [\d.]+ kB of them for states, and [\d.]+ kB are allowed")
        self.assertRegex(error, r"Most is needed at '[^']+', where these are alive: '[^']+' \([\d.]+ kB, ")
        with self.assertRaisesRegex(tessera.Error, "TSR-4081"):
            tessera.compile(str(self.folder / "step.graph"), max_memory="0.1M")
        tessera.compile(str(self.folder / "step.graph"), max_memory=less, threads=1)

    def test_the_trained_model_in_other_formats(self):
        self.train("lenet.onnx", "--epochs", 3, "-o", "trained.onnx", "-q")
        self.train("lenet.onnx", "--epochs", 3, "-o", "trained.graph", "-q")
        images = self.data["images"][:32].astype(numpy.float32).reshape(-1, 1, 8, 8) / 16
        numpy.save(self.folder / "x.npy", images)
        self.tessera("run", "trained.graph", "--input", "@x.npy", "--output", "@y.npy", "--no-cache")
        (want,) = onnxruntime.InferenceSession(self.folder / "trained.onnx").run(None, {"x": images})
        numpy.testing.assert_allclose(numpy.load(self.folder / "y.npy"), want, atol=1e-4 * abs(want).max())

    def test_resuming_gives_the_same_bits(self):
        for threads in (1, 2):
            self.train("lenet.graph", "--epochs", 4, "--checkpoint", "whole.safetensors", "-q", "--threads", threads)
            whole = (self.folder / "whole.safetensors").read_bytes()
            if threads == 1:
                first = whole
            self.assertEqual(whole, first)
#Interrupted in the middle of an epoch, then gone on.
        process = subprocess.Popen(
            [cli_support.TESSERA, "train", "lenet.graph", "--data", DIGITS, "--scale", str(1 / 16), "--threads", "1",
             "--epochs", "4", "--checkpoint", "part.safetensors"],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while not process.stdout.readline().startswith("epoch   1"):
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        if process.returncode == 130:
            self.assertIn("go on with --resume part.safetensors", errors)
            self.train(
                "lenet.graph", "--epochs", 4, "--checkpoint", "part.safetensors", "--resume", "part.safetensors", "-q"
            )
        else:  # it was faster
            self.assertEqual(process.returncode, 0)
        self.assertEqual((self.folder / "part.safetensors").read_bytes(), first)
#Python's library reads the form: a length, JSON, bytes.
        length = int.from_bytes(first[:8], "little")
        header = json.loads(first[8 : 8 + length])
        self.assertEqual(header["fc2.weight"]["shape"], [10, 64])
        self.assertEqual(header["training.step"]["dtype"], "I64")
        self.assertIn("fc2.weight.squares", header)

    def test_names_and_ties_of_biases(self):
        """A bias is called what the file calls it; one that two convolutions add is one weight, in what is written, too."""
        random = numpy.random.default_rng(0)
        values = {"w1": (4, 1, 3, 3), "w2": (4, 4, 3, 3), "shared.bias": (4,), "own.bias": (4,), "fc": (256, 10), "__metadata__": (10,)}
        nodes = [
            helper.make_node("Conv", ["x", "w1", "shared.bias"], ["a"], "a", pads=[1, 1, 1, 1]),
            helper.make_node("Conv", ["a", "w2", "shared.bias"], ["b"], "b", pads=[1, 1, 1, 1]),
            helper.make_node("Conv", ["b", "w2", "own.bias"], ["c"], "c", pads=[1, 1, 1, 1]),
            helper.make_node("Flatten", ["c"], ["flat"], "flat"),
            helper.make_node("MatMul", ["flat", "fc"], ["m"], "m"),
            helper.make_node("Add", ["m", "__metadata__"], ["scores"], "scores"),
        ]
        border = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)
                  for n, s in (("x", ["n", 1, 8, 8]), ("scores", ["n", 10]))]  # fmt: skip
        graph = helper.make_graph(
            nodes, "tied", border[:1], border[1:],
            [numpy_helper.from_array((random.standard_normal(s) / 4).astype(numpy.float32), n) for n, s in values.items()],
        )  # fmt: skip
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), self.folder / "tied.onnx")
        errors = self.refused("TSR-2083", "--freeze", "nothing", model="tied.onnx")
        for name in values:
            self.assertIn(name, errors)
        self.assertNotIn("constant", errors)
        self.train("tied.onnx", "--epochs", 1, "-q", "--checkpoint", "t.safetensors", "-o", "t.onnx", "--freeze", "own.bias")
        self.train("tied.onnx", "--epochs", 1, "-q", "--checkpoint", "t.safetensors", "--resume", "t.safetensors",
                   "--freeze", "own.bias")  # fmt: skip
        raw = (self.folder / "t.safetensors").read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        self.assertEqual(header["__metadata___"]["shape"], [10])
        self.assertIn("model", header["__metadata__"])
        self.assertEqual({name for name in header if "." not in name or name.endswith(".bias")} - {"__metadata__"},
                         {"w1", "w2", "shared.bias", "fc", "__metadata___"})  # fmt: skip
        written = onnx.load(self.folder / "t.onnx")
        initializers = {t.name: numpy_helper.to_array(t) for t in written.graph.initializer}
        self.assertEqual(initializers["shared.bias"].size, 4)
        four = [name for name, value in initializers.items() if value.size == 4 and value.dtype == numpy.float32]
        self.assertEqual(sorted(four), ["own.bias", "shared.bias"])
        numpy.testing.assert_array_equal(
            initializers["own.bias"].ravel(), numpy_helper.to_array(next(t for t in graph.initializer if t.name == "own.bias"))
        )
        # The batch is as open as it was.
        self.assertEqual(written.graph.input[0].type.tensor_type.shape.dim[0].dim_param, "n")
        for size in (1, 5):
            x = random.standard_normal((size, 1, 8, 8)).astype(numpy.float32)
            (y,) = onnxruntime.InferenceSession(self.folder / "t.onnx").run(None, {"x": x})
            self.assertEqual(y.shape, (size, 10))

    def test_the_first_operator_that_is_not_finite(self):
        g = tessera.graph.Graph("logs")
        x = g.input("x", numpy.float32, (32, 64))
        logs = tessera.graph.log(x, name="logarithm")
        g.output("y", tessera.graph.matmul(logs, g.constant(numpy.full((64, 10), 0.1, numpy.float32), name="w")))
        g.save(self.folder / "logs.graph")
        errors = self.refused("TSR-5120", "--checkpoint", "l.safetensors", model="logs.graph")
        self.assertIn("the loss of step 1 is ", errors)
        self.assertIn("log 'logarithm' is the first operator whose result has infinite numbers", errors)

    def test_pruning(self):
        out, _ = self.train("lenet.onnx", "--epochs", 15, "--lr", 2e-3, "--prune", 0.8, "-o", "p.so", "--json")
        report = json.loads(out)
        self.assertGreater(report["test_right"], 0.96 * 359)
        self.assertAlmostEqual(report["sparsity"], 0.8, delta=0.01)
        out, _ = self.train("lenet.onnx", "--epochs", 15, "--lr", 2e-3, "--prune", "2:4", "-o", "p.graph", "--json")
        report = json.loads(out)
        self.assertGreater(report["test_right"], 0.96 * 359)
        self.assertAlmostEqual(report["sparsity"], 0.5, delta=0.01)
        out, _ = self.train("lenet.onnx", "--epochs", 15, "--lr", 2e-3, "--prune", "channels:0.5", "-o", "c.onnx", "--json")
        report = json.loads(out)
        self.assertGreater(report["test_right"], 0.94 * 359)
        shapes = {t.name: list(t.dims) for t in onnx.load(self.folder / "c.onnx").graph.initializer}
        self.assertEqual(shapes["conv1.weight"], [8, 1, 3, 3])
        self.assertEqual(shapes["conv2.weight"], [16, 8, 3, 3])
        self.assertEqual(shapes["fc1.weight"], [32, 64])
        self.assertEqual(shapes["fc2.weight"], [10, 32])
        images = self.data["images"][self.data["test_index"]].astype(numpy.float32).reshape(-1, 1, 8, 8) / 16
        (scores,) = onnxruntime.InferenceSession(self.folder / "c.onnx").run(None, {"x": images})
        self.assertEqual((scores.argmax(1) == self.data["labels"][self.data["test_index"]]).sum(), report["test_right"])
        for wrong in ("1.5", "0", "4:2", "channels:x", "some"):
            self.refused("TSR-4080", "--prune", wrong)

    def test_few_bits(self):
        """What is written as integers is right as often as what learnt, and bit for bit what fake quantisation gave."""
        for bits in (8, 4):
            out, _ = self.train(
                "lenet.onnx", "--epochs", 12, "--lr", 2e-3, "--qat", "--qat-bits", bits, "-o", "q.onnx", "--json"
            )
            report = json.loads(out)
            self.assertGreater(report["test_right"], 0.96 * 359)
            operators = [node.op_type for node in onnx.load(self.folder / "q.onnx").graph.node]
            self.assertEqual(operators.count("QuantizeLinear"), 4)
            images = self.data["images"][self.data["test_index"]].astype(numpy.float32).reshape(-1, 1, 8, 8) / 16
            (scores,) = onnxruntime.InferenceSession(self.folder / "q.onnx").run(None, {"x": images})
            right = (scores.argmax(1) == self.data["labels"][self.data["test_index"]]).sum()
            self.assertAlmostEqual(int(right), report["test_right"], delta=1)

    def test_distillation(self):
        self.train("lenet.onnx", "--epochs", 20, "--lr", 2e-3, "-o", "teacher.onnx", "-q")
        out, _ = self.train("mlp.graph", "--batch", 32, "--dim", "n=32", "--epochs", 2, "--json")
        alone = json.loads(out)
        self.assertGreater(alone["test_right"], 0.8 * 359)
        self.refused("TSR-2082", "--distill", "teacher.onnx")  # pictures, and rows
        make_models.lenet(seed=5).save(self.folder / "student.graph")
        out, _ = self.train("student.graph", "--distill", "teacher.onnx", "--epochs", 6, "--json")
        self.assertGreater(json.loads(out)["test_right"], 0.9 * 359)

    def test_sixteen_bits(self):
        for products, scale in (("bf16", 0), ("f16", 65536)):
            out, _ = self.train("lenet.onnx", "--products", products, "--loss-scale", scale, "--epochs", 8, "--json")
            self.assertGreater(json.loads(out)["test_right"], 0.96 * 359)

    def test_dropout_survives_a_break(self):
        g = tessera.graph.Graph("dropping")
        random = numpy.random.default_rng(1)
        x = g.input("x", numpy.float32, (32, 64))
        h = tessera.graph.relu(make_models.linear(g, x, "fc1", make_models.weights(random, 64, 64), numpy.zeros(64, numpy.float32)))
        h = tessera.graph.dropout(h, ratio=0.25)
        g.output("y", make_models.linear(g, h, "fc2", make_models.weights(random, 10, 64), numpy.zeros(10, numpy.float32)))
        g.save(self.folder / "drop.graph")
        kept = []
        for threads in (1, 2):
            self.train("drop.graph", "--epochs", 3, "--checkpoint", "whole.safetensors", "-q", "--threads", threads)
            kept.append((self.folder / "whole.safetensors").read_bytes())
        self.assertEqual(kept[0], kept[1])
        out, _ = self.train("drop.graph", "--epochs", 3, "--seed", 1, "--in-order", "--json")
        other, _ = self.train("drop.graph", "--epochs", 3, "--seed", 2, "--in-order", "--json")
        self.assertNotEqual(json.loads(out)["losses"], json.loads(other)["losses"])
        again, _ = self.train("drop.graph", "--epochs", 3, "--seed", 1, "--in-order", "--json")
        self.assertEqual(json.loads(out)["losses"], json.loads(again)["losses"])

    def test_a_file_that_runs_and_learns(self):
        """--with-step: without a name it is the model; strip takes that alone out of it, as of a checkpoint."""
        for model in ("mlp.graph", "lenet.onnx"):
            stem = model.split(".")[0]
            with self.subTest(model):
                out, _ = self.train(model, "--epochs", 2, "--with-step", "--checkpoint", "c.safetensors", "-o", f"{stem}_both.so", "--json")
                right = json.loads(out)["test_right"]
                self.assertEqual(self.right(f"{stem}_both.so", 32), right)
                self.tessera("strip", f"{stem}_both.so", "-o", f"{stem}_alone.so")
                self.tessera("strip", f"{stem}_both.so", "--checkpoint", "c.safetensors", "-o", f"{stem}_alone.graph", "-q")
                self.assertLess((self.folder / f"{stem}_alone.so").stat().st_size, (self.folder / f"{stem}_both.so").stat().st_size / 2)
                self.assertEqual(self.right(f"{stem}_alone.so", 32), right)
                self.tessera("compile", f"{stem}_alone.graph", "-o", f"{stem}_again.so", "-q")
                self.assertEqual(self.right(f"{stem}_again.so", 32), right)
                self.tessera("strip", f"{stem}_both.so", "-o", f"{stem}_alone.onnx", "-q")
                out, _ = self.tessera("inspect", f"{stem}_both.so")
                self.assertIn("infer, step", out)
        self.train("mlp.graph", "--epochs", 1, "-o", "plain.so", "-q")
        for arguments, id in (
            (["plain.so"], "TSR-6104"), (["absent.so"], "TSR-6104"), (["lenet_both.so", "--checkpoint", "absent"], "TSR-6214"),
        ):
            _, errors = self.tessera("strip", *arguments, "-o", "none.so", code=1)
            self.assertIn(id, errors)
        self.train("mlp.graph", "--epochs", 1, "--checkpoint", "other.safetensors", "-q")
        _, errors = self.tessera("strip", "lenet_both.so", "--checkpoint", "other.safetensors", "-o", "none.so", code=1)
        self.assertIn("TSR-6234", errors)
        damaged = bytearray((self.folder / "lenet_both.so").read_bytes())
        damaged[-552 - 20] ^= 1  # the model as a graph stands before the footer
        (self.folder / "damaged.so").write_bytes(damaged)
        _, errors = self.tessera("strip", "damaged.so", "-o", "none.so", code=1)
        self.assertIn("TSR-6104", errors)
        _, errors = self.tessera("strip", "lenet_both.so", "-o", "lenet_both.so", code=1)
        self.assertIn("TSR-4062", errors)

    def test_dropouts_of_onnx(self):
        """Those of all opsets drop while a model learns, whatever training_mode says; what is written has none."""
        random = numpy.random.default_rng(1)
        weights = [
            numpy_helper.from_array((random.standard_normal(shape) / 8).astype(numpy.float32), name)
            for name, shape in (("w1", (64, 64)), ("w2", (64, 10)))
        ]

        def losses(*arguments, opset=13, ratio=0.25, mode=None, mask=False, **attributes):
            more, inputs = [], ["r"]
            if opset < 12:
                attributes["ratio"] = ratio
            else:
                more.append(numpy_helper.from_array(numpy.float32(ratio), "ratio"))
                inputs.append("ratio")
            if mode is not None:
                more.append(numpy_helper.from_array(numpy.array(mode), "mode"))
                inputs.append("mode")
            nodes = [
                helper.make_node("MatMul", ["x", "w1"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
                helper.make_node("Dropout", inputs, ["d", "mask"] if mask else ["d"], **attributes),
                helper.make_node("MatMul", ["d", "w2"], ["y"]),
            ]  # fmt: skip
            graph = helper.make_graph(
                nodes, "dropping", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 64])],
                [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 10])], weights + more,
            )  # fmt: skip
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
            onnx.save(model, self.folder / "drop.onnx")
            out, _ = self.train("drop.onnx", "--epochs", 2, "--in-order", "--json", "-o", "trained.onnx", *arguments)
            self.assertNotIn("Dropout", [node.op_type for node in onnx.load(self.folder / "trained.onnx").graph.node])
            images = self.data["images"][self.data["test_index"]].astype(numpy.float32).reshape(-1, 64) / 16
            (scores,) = onnxruntime.InferenceSession(self.folder / "trained.onnx").run(None, {"x": images})
            report = json.loads(out)
            self.assertEqual((scores.argmax(1) == self.data["labels"][self.data["test_index"]]).sum(), report["test_right"])
            return report["losses"]

        plain, dropping = losses(ratio=0), losses()
        self.assertNotEqual(plain, dropping)
        for same in (losses(mode=True), losses(mode=False), losses(opset=9), losses(mask=True), losses(mode=True, mask=True)):
            self.assertEqual(same, dropping)
        # The seed of a node is in place of the step's.
        seven = losses("--seed", 7)
        self.assertNotEqual(seven, dropping)
        self.assertEqual(losses(seed=7, mode=True), seven)
        self.assertEqual(losses("--seed", 3, seed=7), seven)
        # The Graph API's dropout has the same numbers.
        g = tessera.graph.Graph("dropping")
        x = g.input("x", numpy.float32, (32, 64))
        w1, w2 = (g.constant(numpy_helper.to_array(weight), name=weight.name) for weight in weights)
        g.output("y", tessera.graph.dropout(tessera.graph.relu(x @ w1), ratio=0.25) @ w2)
        g.save(self.folder / "drop.graph")
        out, _ = self.train("drop.graph", "--epochs", 2, "--in-order", "--json")
        self.assertEqual(json.loads(out)["losses"], dropping)

    def test_importance_of_channels(self):
        for importance in ("l1", "taylor"):
            out, _ = self.train(
                "lenet.onnx", "--epochs", 15, "--lr", 2e-3, "--prune", "channels:0.5", "--importance", importance,
                "-o", f"{importance}.onnx", "--json",
            )  # fmt: skip
            self.assertGreater(json.loads(out)["test_right"], 0.94 * 359)
        self.assertNotEqual(*((self.folder / f"{name}.onnx").read_bytes() for name in ("l1", "taylor")))
        self.refused("TSR-2083", "--importance", "bn", "--prune", "channels:0.5", model="lenet.onnx")  # it has none
        self.refused("TSR-4080", "--importance", "taylor", model="lenet.onnx")
        # Behind a batch normalisation whose scales are small in known places, those channels go.
        random = numpy.random.default_rng(2)
        g = tessera.graph.Graph("scaled")
        x = g.input("x", numpy.float32, (32, 1, 8, 8))
        scale = numpy.array([1, 0.01, 1, 0.01, 0.01, 1, 1, 0.01], numpy.float32)
        window = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1], "input_dilations": [1, 1], "groups": 1}
        h = tessera.graph.conv(x, g.constant(make_models.weights(random, 8, 1, 3, 3), name="w"), **window)
        h = tessera.graph.batch_norm(
            h, g.constant(scale, name="scale"), g.constant(numpy.zeros(8, numpy.float32), name="shift"),
            g.constant(numpy.zeros(8, numpy.float32), name="mean"), g.constant(numpy.ones(8, numpy.float32), name="variance"),
            epsilon=1e-5,
        )  # fmt: skip
        h = tessera.graph.reshape(tessera.graph.relu(h), shape=[32, 512])
        g.output("y", h @ g.constant(make_models.weights(random, 512, 10), name="fc"))
        g.save(self.folder / "scaled.graph")
        self.train("scaled.graph", "--epochs", 5, "--lr", 1e-5, "--prune", "channels:0.5", "--importance", "bn", "-o", "b.onnx", "-q")
        kept = {t.name: numpy_helper.to_array(t) for t in onnx.load(self.folder / "b.onnx").graph.initializer}
        self.assertEqual(kept["w"].shape, (4, 1, 3, 3))
        self.assertEqual(sorted(a.shape for a in kept.values() if a.ndim == 2), [(256, 10)])
        numpy.testing.assert_allclose(kept["scale"], numpy.ones(4), atol=0.05)

    def test_features_of_a_teacher(self):
        """A student of half the width learns the teacher's features through maps that its file does not have."""
        self.train("lenet.onnx", "--epochs", 20, "--lr", 2e-3, "-o", "teacher.onnx", "-q")
        make_models.lenet_onnx(str(self.folder / "narrow.onnx"), seed=5, widths=(4, 8, 16))
        features = ("--distill-features", "conv2.pool=conv2.pool", "--distill-features", "fc1.relu=fc1.relu")
        teacher = ("--distill", "teacher.onnx", "--epochs", 8, "--lr", 2e-3, "--in-order", "--json")
        losses = {}
        for name, more in (("with", features), ("heavy", (*features, "--feature-weight", 100)), ("without", ())):
            out, _ = self.train("narrow.onnx", *teacher, *more, "-o", "student.onnx")
            report = json.loads(out)
            self.assertGreater(report["test_right"], (0.4 if name == "heavy" else 0.8) * 359)
            losses[name] = report["losses"]
            names = [t.name for t in onnx.load(self.folder / "student.onnx").graph.initializer]
            self.assertFalse([name for name in names if name.startswith("distill")])
        self.assertGreater(losses["with"][0], losses["without"][0])
        apart = [losses["heavy"][i] - losses["without"][i] for i in (0, -1)]
        self.assertLess(apart[1], 0.5 * apart[0])
        # Breaks change nothing: the maps are states of the checkpoint.
        for arguments in (("--checkpoint", "whole.st"), ("--checkpoint", "part.st")):
            self.train("narrow.onnx", *teacher, *features, *arguments)
        self.assertEqual((self.folder / "whole.st").read_bytes(), (self.folder / "part.st").read_bytes())
        error = self.refused("TSR-2082", "--distill", "teacher.onnx", "--distill-features", "fc1=none", model="narrow.onnx")
        self.assertIn("conv1.relu", error)
        error = self.refused("TSR-2082", "--distill", "teacher.onnx", "--distill-features", "fc1=conv1", model="narrow.onnx")
        self.assertIn("'fc1' of the teacher is [32,64], and 'conv1' of the model [32,4,8,8]", error)
        self.refused("TSR-4080", "--distill", "teacher.onnx", "--distill-features", "fc1", model="narrow.onnx")
        self.refused("TSR-4080", "--distill-features", "fc1=fc1", model="narrow.onnx")
        self.refused("TSR-2081", "--distill", "teacher.onnx", "--feature-weight", "-1", model="narrow.onnx")

    def test_recurrent_layers_are_trained_as_loops(self):
        """Rows of a digit one after the other: the step has loops, and learns."""
        hidden = 32
        losses = {}

        def tensor(name, *shape):
            return numpy_helper.from_array((random.standard_normal(shape) / numpy.sqrt(shape[-1])).astype(numpy.float32), name)

        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}
        for kind in (*gates, "Scan", "Loop"):
            random = numpy.random.default_rng(3)
            rows = helper.make_node("Transpose", ["x"], ["rows"], "rows", perm=[1, 0, 2])
            weights = [tensor("fc.weight", 10, hidden), numpy_helper.from_array(numpy.zeros(10, numpy.float32), "fc.bias")]
            if kind in gates:
                g = gates[kind] * hidden
                weights += [tensor("w", 1, g, 8), tensor("r", 1, g, hidden)]
                nodes = [helper.make_node(kind, ["rows", "w", "r"], ["", "last"], "layer", hidden_size=hidden),
                         helper.make_node("Squeeze", ["last", "axis"], ["h"], "h")]
                weights.append(numpy_helper.from_array(numpy.array([0]), "axis"))
            else:
                weights += [tensor("w", 8, hidden), tensor("r", hidden, hidden),
                            numpy_helper.from_array(numpy.zeros((32, hidden), numpy.float32), "h0")]
                value = lambda name, shape, dtype=onnx.TensorProto.FLOAT: helper.make_tensor_value_info(name, dtype, shape)
                cell = [helper.make_node("MatMul", ["row", "w"], ["a"]), helper.make_node("MatMul", ["before", "r"], ["b"]),
                        helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Tanh", ["c"], ["after"])]
                state = [value("before", [32, hidden])], [value("after", [32, hidden])]
                if kind == "Scan":
                    body = helper.make_graph(cell, "body", [*state[0], value("row", [32, 8])], state[1])
                    nodes = [helper.make_node("Scan", ["h0", "rows"], ["h"], "layer", body=body, num_scan_inputs=1)]
                else:
                    cell = [helper.make_node("Gather", ["rows", "i"], ["row"]), helper.make_node("Identity", ["on"], ["go"]), *cell]
                    body = helper.make_graph(
                        cell, "body", [value("i", [], onnx.TensorProto.INT64), value("on", [], onnx.TensorProto.BOOL), *state[0]],
                        [value("go", [], onnx.TensorProto.BOOL), *state[1]])
                    weights += [numpy_helper.from_array(numpy.array(8), "count"), numpy_helper.from_array(numpy.array(True), "yes")]
                    nodes = [helper.make_node("Loop", ["count", "yes", "h0"], ["h"], "layer", body=body)]
            nodes.append(helper.make_node("Gemm", ["h", "fc.weight", "fc.bias"], ["scores"], "fc", transB=1))
            border = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                      for name, shape in (("x", [32, 8, 8]), ("scores", [32, 10]))]
            model = helper.make_model(helper.make_graph([rows, *nodes], kind.lower(), border[:1], border[1:], weights),
                                      opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
            onnx.checker.check_model(model)
            onnx.save(model, self.folder / "recurrent.onnx")
            with self.subTest(kind):
                out, _ = self.train("recurrent.onnx", "--epochs", 15, "--lr", 5e-3, "--step", "step.graph", "--json")
                report = json.loads(out)
                losses[kind] = report["losses"]
                self.assertGreater(report["test_right"], (0.9 if kind in gates else 0.6) * 352)
                self.assertEqual((self.folder / "step.graph").read_text().count("= loop("), 2)
        numpy.testing.assert_allclose(losses["Loop"][:50], losses["Scan"][:50], rtol=1e-4)

    def test_every_optimizer_learns(self):
        for optimizer, *more in (
            ("sgd", "--lr", 0.1),
            ("sgd", "--lr", 0.05, "--momentum", 0.9, "--nesterov"),
            ("adamw", "--weight-decay", 0.01),
            ("rmsprop",),
            ("adagrad", "--lr", 0.01),
        ):
            out, _ = self.train("mlp.graph", "--optimizer", optimizer, *more, "--epochs", 5, "--json")
            report = json.loads(out)
            self.assertLess(numpy.mean(report["losses"][-20:]), 0.4, optimizer)
            self.assertEqual(report["steps"], 5 * (1438 // 32))
            self.assertGreater(report["test_right"], 0.85 * report["test_total"])

    def test_smoothed_labels_bound_the_loss(self):
        out, _ = self.train("mlp.graph", "--label-smoothing", 0.1, "--epochs", 8, "--json")
        report = json.loads(out)
        # The entropy of labels of 0.91 and nine times 0.01, which no prediction is below.
        least = -0.91 * math.log(0.91) - 0.09 * math.log(0.01)
        self.assertGreater(min(report["losses"]), least - 1e-5)
        self.assertLess(numpy.mean(report["losses"][-20:]), least + 0.3)
        self.assertGreater(report["test_right"], 0.9 * report["test_total"])

    def refused(self, identifier, *arguments, model="mlp.graph", data=DIGITS, code=1):
        _, errors = self.tessera("train", model, "--data", data, *arguments, code=code)
        self.assertIn(identifier, errors)
        return errors

    def test_what_is_refused(self):
        for value in ("0", "inf", "-1", "nan"):
            self.refused("TSR-4080", "--lr", value)
        self.refused("TSR-4080", "--batch", 0)
        self.refused("TSR-6231", "--batch", 1_000_000_000, model="lenet.onnx")  # more than memory holds
        self.refused("TSR-1025", "--dim", "n=1..7", model="lenet.onnx")
        for value in ("0", str(2**63 - 1)):
            self.refused("TSR-4080", "--epochs", value)
        self.refused("TSR-6211", data="missing.npz")
        self.refused("TSR-2083", "--freeze", "nothing")
        self.refused("TSR-2081", "--momentum", "-1", "--optimizer", "sgd")
        self.refused("TSR-6231", "--batch", 2000, model="lenet.onnx")
        small = {"images": self.data["images"][:64], "labels": self.data["labels"][:64]}

        def saved(**changes):
            numpy.savez(self.folder / "bad.npz", **{**small, **changes})
            return "bad.npz"

        labels = small["labels"].copy()
        labels[7] = 10
        self.assertIn("the target of row 7 is 10", self.refused("TSR-6232", data=saved(labels=labels)))
        for value in (numpy.nan, numpy.inf, 1.5, 1e30):
            labels = small["labels"].astype(numpy.float64)
            labels[7] = value
            self.assertIn(f"targets: row 7 has {value}", self.refused("TSR-6233", data=saved(labels=labels)))
        self.assertIn("row 0", self.refused("TSR-6233", data=saved(labels=numpy.full(64, 2**63, numpy.uint64))))
        self.refused("TSR-6230", data=saved(labels=numpy.full(64, "a")))
        self.refused("TSR-6230", data=saved(train_index=numpy.full(64, "a")))
        self.refused("TSR-6230", data=saved(labels=labels[:5]))
        self.refused("TSR-6230", data=saved(train_index=numpy.array([64])))
        self.refused("TSR-6230", "--samples", "pictures", data=saved(pictures=numpy.array(1.0)))
        self.refused("TSR-6213", "--samples", "pictures", data=saved())
        self.refused("TSR-6231", data=saved(images=small["images"][:, :5]))
        images = small["images"].astype(numpy.float32)
        images[3, 2, 1] = numpy.nan
        self.assertIn("row 3", self.refused("TSR-6233", data=saved(images=images)))
        out = self.refused("TSR-5120", "--lr", "1e30", "--optimizer", "sgd", data=saved())
        self.assertRegex(out, r"the loss of step \d+ is -?(nan|inf)")
        self.tessera("train", "mlp.graph", "--data", saved(), "--epochs", 1, "--checkpoint", "c.safetensors", "-q")
        self.refused("TSR-6234", "--resume", "c.safetensors", model="lenet.graph", data="bad.npz")
        self.refused("TSR-6234", "--resume", "c.safetensors", "--lr", "0.5", data="bad.npz")
        whole = (self.folder / "c.safetensors").read_bytes()
        for damaged in (whole[:100], whole[:-4], whole + b"x"):
            (self.folder / "c.safetensors").write_bytes(damaged)
            self.refused("TSR-6214", "--resume", "c.safetensors", "--epochs", 1, data="bad.npz")
#Its step, a count, is the last tensor.
        (self.folder / "c.safetensors").write_bytes(whole[:-8] + (-1).to_bytes(8, "little", signed=True))
        self.assertIn("after step -1", self.refused("TSR-6234", "--resume", "c.safetensors", "--epochs", 1, data="bad.npz"))
        self.refused("TSR-6214", "--resume", ".", data="bad.npz")
        self.refused("TSR-6214", "--resume", "nothing.safetensors", data="bad.npz")
        self.refused("TSR-4062", "-o", "mlp.graph")
        data = pathlib.Path(saved())
        for flag in ("-o", "--curve", "--checkpoint", "--step"):
            before = (self.folder / data).read_bytes()
            self.refused("TSR-4062", flag, data, data=data)
            self.assertEqual((self.folder / data).read_bytes(), before)
        self.refused("TSR-4062", "-o", "new", "--curve", "new", data=data)
        self.refused("TSR-4062", "-o", "c.safetensors", "--resume", "c.safetensors", data=data)


if __name__ == "__main__":
    cli_support.main()
