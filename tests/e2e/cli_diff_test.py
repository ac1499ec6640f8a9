#!/usr/bin/env python3
"""The verbs that look for what went wrong.    cli_diff_test.py TESSERA [unittest options]

What is wrong is wrong on purpose: a reference that was compiled from a model with one changed weight."""

import importlib.util
import json
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support
from cli_support import CliTest, make_model

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def chain_model(channels=8, change=0.0):
    """Four convolutions with a relu each, and a residual addition. `change` is added to one weight of the third."""
    random = numpy.random.default_rng(0)
    weights = {
        f"w{i}": (random.standard_normal((channels, channels, 3, 3)) / channels).astype(numpy.float32) for i in range(4)
    }
    weights["w2"][3, 0, 0, 0] += change
    nodes, value = [], "x"
    for i in range(4):
        nodes.append(helper.make_node("Conv", [value, f"w{i}"], [f"c{i}"], name=f"Conv_{i}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], name=f"Relu_{i}"))
        value = f"r{i}"
    nodes.append(helper.make_node("Add", ["r3", "r0"], ["y"], name="Add"))
    shape = (1, channels, 12, 12)
    return make_model(nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], weights, name="chain")


def scale_model(factor):
    """y = exp(transpose(x) * w), where transpose(w) is computed while compiling."""
    w = numpy.arange(1, 13, dtype=numpy.float32).reshape(4, 3) / 12
    w[2, 1] *= factor
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"], name="turn_w"),
        helper.make_node("Mul", ["x", "wt"], ["p"], name="times"),
        helper.make_node("Exp", ["p"], ["y"], name="exp"),
    ]
    return make_model(nodes, [("x", FLOAT, (3, 4))], [("y", FLOAT, (3, 4))], {"w": w}, name="scale")


def unstable_model():
    """A sum of large terms that nearly cancel, behind a hard sigmoid: rounding alone makes a visible difference."""
    half = (numpy.random.default_rng(1).standard_normal((256, 16)) * 3e4).astype(numpy.float32)
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["twice"], name="twice", axis=1),
        helper.make_node("MatMul", ["twice", "w"], ["m"], name="sum"),
        helper.make_node("HardSigmoid", ["m"], ["y"], name="gate", alpha=0.02),
    ]
    return make_model(
        nodes, [("x", FLOAT, (4, 256))], [("y", FLOAT, (4, 16))], {"w": numpy.concatenate([half, -half])}
    )


class Diff(CliTest):
    def wrong_module(self, model, name, *flags):
        self.save(model, name + ".onnx")
        self.tessera("compile", name + ".onnx", "-q", "--threads", 1, *flags)
        return name + ".so"

    def diff(self, *arguments, code):
        out, _ = self.tessera("diff", *arguments, "--json", "--threads", 1, code=code, TESSERA_PYTHON=sys.executable)
        return json.loads(out)

    def test_agrees_with_every_reference(self):
        """Blocked layouts and fused kernels, read back as the model's values."""
        self.save(chain_model(channels=32))
        self.wrong_module(chain_model(channels=32), "same")
        references = ["interp", "O0", "same.so"]
        if importlib.util.find_spec("onnxruntime"):
            references.append("onnxruntime")
        for against in references:
            for level in (0, 1, 3):
                told = self.diff("model.onnx", "--against", against, f"-O{level}", code=0)
                self.assertEqual((told["agrees"], told["notes"], told["outputs"]), (True, [], []), told)
                self.assertGreaterEqual(told["compared"], 4, (against, level))
        self.assertEqual(self.files("*-diff"), [])

    def test_names_the_first_node_and_writes_a_case(self):
        self.save(chain_model())
        wrong = self.wrong_module(chain_model(change=1.0), "wrong")
        told = self.diff("model.onnx", "--against", wrong, code=2)
        self.assertEqual(told["first"]["node"], "Relu_2")
        self.assertEqual(told["reproduction"]["nodes"], ["Conv_2", "Relu_2"])
        self.assertEqual([report["node"] for report in told["further"]], ["Add"])
        self.assertEqual(told["outputs"], ["y"])
        self.assertEqual(
            self.files("model-diff/**/*"),
            ["model-diff/model.onnx"] + [f"model-diff/test_data_set_0/{side}put_0.pb" for side in ("in", "out")],
        )
        case = onnx.load(self.folder / "model-diff/model.onnx")
        onnx.checker.check_model(case)
        self.assertEqual([node.name for node in case.graph.node], ["Conv_2", "Relu_2"])
        self.assertEqual([tensor.name for tensor in case.graph.initializer], ["w2"])
        verify = told["reproduction"]["command"].split()[1:]
        out, _ = self.tessera(*verify, code=2)
        self.assertIn("output 'r2': 1 of 1152 elements differ", out)

    def test_text(self):
        self.save(chain_model())
        wrong = self.wrong_module(chain_model(change=1.0), "wrong")
        out, _ = self.tessera("diff", "model.onnx", "--against", wrong, "--threads", 1, "-o", "small", code=2)
        lines = out.splitlines()
        self.assertEqual(lines[0], "DIFFERS: 4 values compared; the first node that goes wrong is Relu_2 (Relu)")
        self.assertEqual(lines[1].split(), "node op value type max|d| elements worst at got want".split())
        self.assertEqual(lines[2].split()[:4], ["Relu_2", "Relu", "r2", "f32[1,8,12,12]"])
        self.assertEqual(lines[4], "These 2 nodes together show it: Conv_2, Relu_2")
        self.assertEqual(lines[5], "written to small: model.onnx and the values it was given")
        self.assertTrue(lines[6].startswith("  tessera verify small --threads 1 --rtol 0"), lines[6])
        out, _ = self.tessera("diff", "model.onnx", "--threads", 1)
        self.assertEqual(out, "agrees: 4 values compared\n")

    def test_values_computed_while_compiling(self):
        """A reference without them has the kernels behind; a model compiled at -O0 has all of them."""
        self.save(scale_model(1))
        wrong = self.wrong_module(scale_model(1.5), "wrong", "-O0")
        told = self.diff("model.onnx", "--against", wrong, code=2)
        self.assertEqual((told["first"]["node"], told["first"]["where"]), ("turn_w", "[1,2]"))
        self.assertEqual(told["reproduction"]["nodes"], ["turn_w"])
        self.tessera(*told["reproduction"]["command"].split()[1:], code=2)

    def test_changed_expected_output(self):
        """A difference in the tolerance is none; a tighter one makes it one."""
        self.save(chain_model())
        wrong = self.wrong_module(chain_model(change=1e-3), "wrong")
        self.assertFalse(self.diff("model.onnx", "--against", wrong, "--mtol", "1e-6", code=2)["agrees"])
        self.assertTrue(self.diff("model.onnx", "--against", wrong, "--mtol", "1e-2", code=0)["agrees"])
        self.assertTrue(self.diff("model.onnx", "--against", wrong, "--atol", "1", code=0)["agrees"])

    def test_rounding_is_not_reported(self):
        self.save(unstable_model())
        told = self.diff("model.onnx", "--against", "O0", code=2)
        self.assertNotIn("reproduction", told)
        self.assertTrue(any("no more than rounding" in note for note in told["notes"]), told)

    def test_mistakes(self):
        self.save(chain_model())
        self.wrong_module(scale_model(1), "other")
        _, error = self.tessera("diff", "model.onnx", "--against", "nothing", code=1)
        self.assertEqual(
            error,
            "error TSR-4045: --against 'nothing' is nothing to compare with\n"
            "  legal: interp, onnxruntime, O0, or the path of a module\n",
        )
        _, error = self.tessera("diff", "model.onnx", "--against", "other.so", "--threads", 1, code=1)
        self.assertEqual(
            error.split("\n", 1)[1],
            "error TSR-4045: module 'other.so' has an input 'x' of type f32[3,4]\n"
            "  legal: the model's own inputs\n"
            "  hint:  compile it from the same model, or from an earlier version of it\n",
        )
        _, error = self.tessera("diff", "other.so", code=1)
        self.assertTrue(error.startswith("error TSR-4043: 'other.so' is a compiled module\n"), error)
        _, error = self.tessera("diff", "model.onnx", "--against", "onnxruntime", code=1, TESSERA_PYTHON="/bin/false")
        self.assertIn("error TSR-4044", error)
        self.assertIn("pip install onnxruntime", error)


class Bisect(CliTest):
    """What faults look like is tested where they can be put in: tests/driver/bisect_test.cpp."""

    def test_nothing_is_wrong(self):
        self.save(chain_model())
        out, _ = self.tessera("bisect", "model.onnx", "--threads", 1)
        self.assertEqual(out, "agrees: 4 values compared\n")

    def test_a_wrong_reference(self):
        self.save(chain_model())
        self.save(chain_model(change=1.0), "wrong.onnx")
        self.tessera("compile", "wrong.onnx", "-q", "--threads", 1)
        out, _ = self.tessera("bisect", "model.onnx", "--against", "wrong.so", "--threads", 1, "--json", code=2)
        told = json.loads(out)
        self.assertEqual((told["pass"], told["kind"], told["nodes"]), ("import", "step", "Conv_2+Relu_2"))
        self.assertIn("no pass is at fault", told["evidence"])
        self.assertEqual(told["application"], 0)
        self.assertGreater(told["applications"], 10)
        self.assertTrue((self.folder / "model-bisect/test_data_set_0/output_0.pb").exists())
        self.tessera(*told["command"].split()[1:], code=2)

    def test_pass_limit(self):
        """Every prefix of the passes computes the same; 0 leaves nothing but what -O0 does."""
        self.save(chain_model(channels=16))
        for limit in range(0, 45, 3):
            self.tessera("diff", "model.onnx", "--threads", 1, "--pass-limit", limit)
        graph = lambda *flags: self.tessera("compile", "model.onnx", "--emit", "graph", *flags)[0]
        self.assertEqual(graph("--pass-limit", 0), graph("-O0"))
        self.assertNotEqual(graph("--pass-limit", 30), graph("-O0"))
        self.assertEqual(graph("--pass-limit", 10**6), graph())


class Reduce(CliTest):
    def reduce(self, *arguments, code=0):
        out, _ = self.tessera("reduce", "model.onnx", "-o", "small.onnx", "-q", "--json", "--threads", 1, *arguments, code=code)
        return json.loads(out)

    def ops(self):
        small = onnx.load(self.folder / "small.onnx")
        onnx.checker.check_model(small)
        return [node.op_type for node in small.graph.node]

    def test_a_difference(self):
        """A tolerance that no polynomial keeps: the smallest model has one function."""
        nodes = [
            helper.make_node("Exp", ["x"], ["a"], name="a"),
            helper.make_node("MatMul", ["a", "w"], ["b"], name="b"),
            helper.make_node("Tanh", ["b"], ["c"], name="c"),
            helper.make_node("Relu", ["c"], ["d"], name="d"),
            helper.make_node("Add", ["d", "v"], ["y"], name="e"),
            helper.make_node("Neg", ["c"], ["z"], name="f"),
        ]
        constants = {"w": numpy.random.default_rng(0).standard_normal((32, 16)).astype(numpy.float32)}
        constants["v"] = numpy.ones((8, 16), numpy.float32)
        self.save(
            make_model(nodes, [("x", FLOAT, (8, 32))], [("y", FLOAT, (8, 16)), ("z", FLOAT, (8, 16))], constants)
        )
        told = self.reduce("--mtol", 0, "--rtol", "1e-9", "--atol", "1e-9")
        self.assertEqual((told["failure"], told["nodes_before"]), ("differs", 6))
        self.assertEqual(told["nodes"], 1)
        self.assertIn(self.ops()[0], ["Exp", "MatMul", "Tanh"])
        self.assertLess(told["elements"], 64)
        self.tessera("diff", "small.onnx", "--threads", 1, "--mtol", "1e-3")

    def test_an_error(self):
        nodes = [
            helper.make_node("Relu", ["x"], ["a"], name="a"),
            helper.make_node("Mystery", ["a", "w"], ["b"], name="b", size=3),
            helper.make_node("Relu", ["b"], ["y"], name="c"),
        ]
        model = make_model(nodes, [("x", FLOAT, (8, 32))], [("y", FLOAT, (8, 32))], {"w": numpy.ones(64, numpy.float32)})
        self.save(model)
        told = self.reduce()
        self.assertEqual((told["failure"], told["nodes"], told["elements"]), ("error TSR-1040", 2, 1))

    def test_a_command(self):
        """As long as there is a convolution the command fails; with another code when there is none."""
        self.save(chain_model())
        script = (
            "import onnx, sys; ops = [n.op_type for n in onnx.load(sys.argv[1]).graph.node]; "
            "sys.exit(3 if 'Conv' in ops else 4)"
        )
        (self.folder / "look.py").write_text(script)
        told = self.reduce("--command", f"'{sys.executable}' look.py {{model}}", "--budget", 100)
        self.assertEqual((told["failure"], told["nodes_before"], told["nodes"]), ("exit 3", 9, 1))
        self.assertEqual(self.ops(), ["Conv"])
        self.assertEqual(self.files("*.trial.onnx"), [])

    def test_the_time_is_up(self):
        self.save(chain_model())
        told = self.reduce("--command", "sleep 0.2; false {model}", "--budget", "0.5")
        self.assertTrue(told["time_is_up"])
        self.assertLessEqual(told["trials"], 5)
        onnx.load(self.folder / "small.onnx")

    def test_interrupted(self):
        self.save(chain_model())
        command = [cli_support.TESSERA, "reduce", "model.onnx", "-o", "small.onnx", "--command", "sleep 0.2; false {model}"]
        process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2):
            process.stderr.readline()  # without texts, then without nodes
        process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stderr.close()
        self.assertEqual(process.returncode, 130)
        self.assertLess(len(onnx.load(self.folder / "small.onnx").graph.node), 9)

    def test_mistakes(self):
        self.save(chain_model())
        _, error = self.tessera("reduce", "model.onnx", "--threads", 1, code=1)
        self.assertTrue(error.startswith("error TSR-4046: 'model.onnx' does not fail: it agrees with interp\n"), error)
        _, error = self.tessera("reduce", "model.onnx", "--command", "false", code=1)
        self.assertEqual(
            error,
            "error TSR-4047: --command 'false' does not say where the model goes\n"
            "  legal: a command with {model} in it\n"
            "  hint:  for example --command 'tessera compile {model} -o /dev/null'\n",
        )
        self.assertEqual(self.files("*reduced*"), [])


if __name__ == "__main__":
    cli_support.main()
