#!/usr/bin/env python3
"""The verbs that look for what went wrong, on graphs as text.    cli_graphs_test.py TESSERA [unittest options]"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support
from cli_support import CliTest, make_model

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper

LOOP = """graph @power(%x: f32[4], %w: f32[4], %n: i64[]) -> (%y: f32[4]) {
  %a = exp(%x) loc("A")
  %k = constant {value = dense<f32[4] 1 2 3 FOUR>}
  %b = mul(%a, %k) loc("B")
  %r = loop(%n, %b, %w) {counted = true, max_trip = [5], num_carried = 1} ({
    graph @body(%i: i64[], %c: f32[4], %v: f32[4]) -> (%d: f32[4]) {
      %e = mul(%c, %v) loc("inner/mul")
      %d = tanh(%e) loc("inner/tanh")
    }
  }) : f32[4] loc("L")
  %y = sub(%r, %x) loc("Y")
}
"""
BRANCH = """graph @branch(%c: bool[], %x: f32[4]) -> (%y: f32[4]) {
  %a = exp(%x) loc("A")
  %r = if(%c, %a) ({
    graph @then(%p: f32[4]) -> (%q: f32[4]) {
      %s = tanh(%p)
      %q = exp(%s)
    }
    graph @else(%p: f32[4]) -> (%q: f32[4]) {
      %q = neg(%p)
    }
  }) : f32[4] loc("I")
  %y = sub(%r, %x) loc("Y")
}
"""
STATE = """graph @count(%x: f32[4], %n: f32[4] state("count", dense<f32[4] 1 2 3 4>)) -> (%y: f32[4], %m: f32[4] state("count")) {
  %a = exp(%x) loc("A")
  %y = mul(%a, %n) loc("Y")
  %m = add(%n, %x) loc("M")
}
"""
OPEN = """graph @open[n in 1..64](%x: f32[n,3]) -> (%y: f32[n,2]) {
  %w = constant {value = dense<f32[3,2] 1 -1 2 -2 3 -3>}
  %t = matmul(%x, %w) loc("product")
  %e = exp(%t) loc("exp")
  %c = constant {value = dense<f32[] 0>}
  %y = max(%e, %c)
}
"""
DATA = """graph @data[c upto 8](%x: f32[8], %n: i64[]) -> (%y: f32[c], %z: f32[]) {
  %e = exp(%x) loc("E")
  %k = bind_size(%n) {size = [c]} loc("S")
  %s = slice(%e) {sizes = [c], starts = [0], steps = [1]} loc("P")
  %t = tanh(%s) loc("T")
  %y = mul(%t, %t) loc("Y")
  %z = reduce(%y) {axes = [0], keepdims = false, kind = "sum"} loc("Z")
}
"""
ZEROS = """graph @last[n in 1..9](%x: f32[n], %s: f32[n] state("last")) -> (%y: f32[n], %t: f32[n] state("last")) {
  %y = add(%x, %s) loc("Y")
  %t = neg(%x) loc("T")
}
"""
TIGHT = ["--mtol", 0, "--rtol", "1e-9", "--atol", "1e-9"]  # what no polynomial keeps


class Graphs(CliTest):
    def write(self, name, text):
        (self.folder / name).write_text(text)

    def json_of(self, *arguments, code=0):
        return json.loads(self.tessera(*arguments, "--json", "--threads", 1, code=code)[0])

    def test_diff_agrees(self):
        for name, text, more in (
            ("loop", LOOP.replace("FOUR", "4"), ["-i", "n=i64=3"]),
            ("branch", BRANCH, []),
            ("state", STATE, []),
            ("open", OPEN, ["--dim", "n=5"]),
            ("open", OPEN, ["-i", "x=5x3=0.5"]),
        ):
            self.write(f"{name}.graph", text)
            for against in ("interp", "O0"):
                for verb in ("diff", "bisect"):
                    told = self.json_of(verb, f"{name}.graph", "--against", against, *more)
                    self.assertTrue(told["agrees"], (name, told))
                    self.assertEqual(told.get("difference", told)["notes"], [], (name, told))
        self.assertEqual(self.files("*-diff"), [])

    def test_diff_cuts_a_part_with_a_loop_out(self):
        """The first part that is wrong holds the loop: it is written as a graph, and verify takes it."""
        self.write("good.graph", LOOP.replace("FOUR", "4"))
        wrong = LOOP.replace("FOUR", "4").replace("tanh(%e)", "exp(%e)")
        self.write("wrong.graph", wrong)
        self.tessera("compile", "wrong.graph", "-q", "--threads", 1)
        told = self.json_of("diff", "good.graph", "--against", "wrong.so", "-i", "n=i64=3", code=2)
        self.assertIn("L", told["reproduction"]["nodes"])
        self.assertNotIn("A", told["reproduction"]["nodes"])
        self.assertIn("good-diff/model.graph", self.files("good-diff/*"))
        text = (self.folder / "good-diff/model.graph").read_text()
        self.assertIn("loop(", text)
        self.assertIn("inner/tanh", text)
        out, _ = self.tessera(*told["reproduction"]["command"].split()[1:], code=2)
        self.assertIn("1 failed", out)
        told = self.json_of("diff", "good.graph", "--against", "wrong.so", "-i", "n=i64=3", "--format", "onnx", code=2)
        model = onnx.load(self.folder / "good-diff/model.onnx")
        self.assertIn("Loop", [node.op_type for node in model.graph.node])
        out, _ = self.tessera(*told["reproduction"]["command"].split()[1:], code=2)
        self.assertIn("1 failed", out)

    def test_sizes_that_data_decide(self):
        """diff and bisect compare such models as the graphs that they are; parts have the sizes of the run."""
        self.write("good.graph", DATA)
        for n in (0, 3, 8):
            for against in ("interp", "O0"):
                told = self.json_of("diff", "good.graph", "--against", against, "-i", f"n=i64={n}")
                self.assertTrue(told["agrees"] and told["compared"] >= 2, told)
        self.assertTrue(self.json_of("bisect", "good.graph", "-i", "n=i64=3")["agrees"])

        self.write("wrong.graph", DATA.replace("mul(%t, %t)", "add(%t, %t)"))
        self.tessera("compile", "wrong.graph", "-q", "--threads", 1)
        command = ["--against", "wrong.so", "-i", "n=i64=3"]
        told = self.json_of("diff", "good.graph", *command, code=2)
        self.assertEqual(told["first"]["node"], "Y")
        self.assertIn("f32[3]", told["first"]["type"])
        out, _ = self.tessera(*told["reproduction"]["command"].split()[1:], code=2)
        self.assertIn("1 failed", out)
        told = self.json_of("bisect", "good.graph", *command, code=2)
        self.assertEqual(told["pass"], "import")

        self.tessera("export", "good.graph", "-o", "good.onnx", "-q")
        session = onnxruntime.InferenceSession(self.folder / "good.onnx")
        x = numpy.linspace(-1, 1, 8, dtype=numpy.float32)
        for n in (-1, 0, 5, 9):
            y, z = session.run(["y", "z"], {"x": x, "n": numpy.array(n)})
            numpy.testing.assert_allclose(y, numpy.tanh(numpy.exp(x[:max(0, min(n, 8))])) ** 2, rtol=1e-5)
        self.tessera("export", "good.onnx", "-o", "back.graph", "-q")
        self.assertIn("bind_size", (self.folder / "back.graph").read_text())
        self.assertTrue(self.json_of("diff", "good.onnx", "-i", "n=i64=3")["agrees"])

    def test_reduce_of_sizes_that_data_decide(self):
        """They go where they are not the failure, and stay where they are."""
        told, text = self.reduced(DATA, *TIGHT)
        self.assertEqual((told["failure"], told["nodes"]), ("differs", 1))
        self.assertNotIn("upto", text)
        told, text = self.reduced(DATA, "--command", "if grep -q 'tanh.*c\\]' {model}; then exit 7; fi")
        self.assertEqual(told["failure"], "exit 7")
        self.assertIn("bind_size", text)
        self.assertIn("tanh", text)
        self.assertNotIn("exp", text)
        told = self.json_of("reduce", "model.graph", "-q", "-o", "small.onnx", "--command",
                            "if grep -q Unsqueeze {model}; then exit 7; fi")
        self.assertEqual((told["failure"], told["cut"]), ("exit 7", "graph"))

    def test_why_a_model_is_a_flow(self):
        """explain and the metadata name the node that makes a model steps of a run, and the reason."""
        number = ("n", TensorProto.INT64, ())
        nodes = [helper.make_node("Mul", ["n", "two"], ["twice"], name="double"),
                 helper.make_node("Range", ["zero", "twice", "one"], ["y"], name="count")]
        constants = {name: numpy.array(value) for name, value in (("zero", 0), ("one", 1), ("two", 2))}
        self.save(make_model(nodes, [number], [("y", TensorProto.INT64, ("k",))], constants), "range.onnx")
        told = self.json_of("explain", "range.onnx")
        self.assertEqual(told["flow"]["node"], "count")
        self.assertIn("nothing bounds", told["flow"]["reason"])
        text, _ = self.tessera("explain", "range.onnx")
        self.assertRegex(text, "(?m)^a flow: steps of a run, and pieces between them, because of count: .*nothing bounds")
        text, _ = self.tessera("explain", "range.onnx", "--node", "count")
        self.assertIn("a flow: ", text)
        self.assertEqual(self.json_of("explain", "range.onnx", "--node", "count")["flow"], told["flow"])
        self.assertNotIn("flow", self.json_of("explain", "range.onnx", "--node", "double"))
        self.tessera("compile", "range.onnx", "-q", "--threads", 1)
        self.assertEqual(self.json_of_inspect("range.so")["flow"], told["flow"])
        text, _ = self.tessera("inspect", "range.so")
        self.assertRegex(text, "(?m)^flow +because of count: ")
        _, errors = self.tessera("export", "range.onnx", "-o", "range.graph", code=1)
        self.assertIn("error TSR-1046: ", errors)
        self.assertIn("nothing bounds", errors)
        self.assertIn("count", errors)

        sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
        nodes = [helper.make_node("SplitToSequence", ["x"], ["s"], name="split")]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,))], [sequence])
        self.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), "sequence.onnx")
        told = self.json_of("explain", "sequence.onnx")
        self.assertEqual(told["flow"]["node"], "")
        self.assertIn("sequences", told["flow"]["reason"])
        nodes = [helper.make_node("Relu", ["x"], ["a"], name="first"), nodes[0],
                 helper.make_node("SequenceAt", ["s", "i"], ["b"], name="at"),
                 helper.make_node("Exp", ["b"], ["y"], name="last")]
        nodes[1].input[0] = "a"
        self.save(make_model(nodes, [("x", TensorProto.FLOAT, (4,)), ("i", TensorProto.INT64, ())],
                             [("y", TensorProto.FLOAT, None)]), "pieces.onnx")
        told = self.json_of("explain", "pieces.onnx")
        named = {node for kernel in told["kernels"] for node in kernel["nodes"]}
        self.assertTrue({"first", "last"} <= named, "the kernels of all pieces")
        self.write("loop.graph", LOOP.replace("FOUR", "4"))
        self.assertNotIn("flow", self.json_of("explain", "loop.graph"))

    def test_diff_writes_the_asked_format(self):
        self.write("good.graph", LOOP.replace("FOUR", "4"))
        self.write("wrong.graph", LOOP.replace("FOUR", "5"))
        self.tessera("compile", "wrong.graph", "-q", "--threads", 1)
        command = ["diff", "good.graph", "--against", "wrong.so", "-i", "n=i64=3", "-o", "case"]
        told = self.json_of(*command, code=2)
        self.assertEqual((told["first"]["node"], told["first"]["op_type"]), ("B", "mul"))
        verify = told["reproduction"]["command"].split()[1:]
        self.assertIn("case/model.graph", self.files("case/*"))
        self.tessera(*verify, code=2)
        self.json_of(*command, "--format", "onnx", code=2)
        self.assertIn("case/model.onnx", self.files("case/*"))
        self.assertNotIn("case/model.graph", self.files("case/*"))
        self.tessera(*verify, code=2)
        _, errors = self.tessera("diff", "good.graph", "-o", ".", "-i", "n=i64=3", code=0)
        self.write("model.graph", LOOP.replace("FOUR", "4"))
        _, errors = self.tessera("diff", "model.graph", "-o", ".", code=1)
        self.assertIn("error TSR-4062: ", errors)

    def test_an_onnx_model_may_be_cut_as_a_graph(self):
        nodes = [
            helper.make_node("Exp", ["x"], ["a"], name="a"),
            helper.make_node("Mul", ["a", "w"], ["y"], name="b"),
        ]
        for name, factor in (("good", 1), ("wrong", 2)):
            w = numpy.arange(1, 5, dtype=numpy.float32) * factor
            shape = [("x", TensorProto.FLOAT, (3, 4))], [("y", TensorProto.FLOAT, (3, 4))]
            self.save(make_model(nodes, *shape, {"w": w}), f"{name}.onnx")
        self.tessera("compile", "wrong.onnx", "-q", "--threads", 1)
        told = self.json_of("diff", "good.onnx", "--against", "wrong.so", "--format", "graph", code=2)
        self.assertEqual((told["first"]["node"], told["first"]["op_type"]), ("b", "Mul"))
        self.assertIn("good-diff/model.graph", self.files("good-diff/*"))
        self.tessera(*told["reproduction"]["command"].split()[1:], code=2)

    def reduced(self, text, *arguments, name="model"):
        self.write(f"{name}.graph", text)
        told = self.json_of("reduce", f"{name}.graph", "-q", *arguments)
        self.assertEqual(told["output"], f"{name}-reduced.graph")
        self.assertEqual(told["cut"], "graph")
        return told, (self.folder / told["output"]).read_text()

    def test_reduce(self):
        told, text = self.reduced(LOOP.replace("FOUR", "4"), *TIGHT)
        self.assertEqual((told["failure"], told["nodes_before"], told["nodes"]), ("differs", 4, 1))
        told, text = self.reduced(OPEN, *TIGHT)
        self.assertEqual((told["failure"], told["nodes"]), ("differs", 1))
        self.assertNotIn(" in 1..64", text)

    def test_reduce_keeps_a_state_that_is_the_failure(self):
        told, text = self.reduced(STATE, "--command", "if grep -q 'state(' {model}; then exit 7; fi")
        self.assertEqual((told["failure"], told["nodes"]), ("exit 7", 1))
        self.assertIn('state("count"', text)

        told = self.json_of("reduce", "model.graph", "-q", "-o", "small.onnx", "--command",
                            "if grep -q tessera.state {model}; then exit 7; fi")
        self.assertEqual((told["failure"], told["nodes"]), ("exit 7", 1))
        self.assertEqual(onnx.load(self.folder / "small.onnx").graph.output[-1].name, "count.next")

    def test_reduce_goes_into_regions(self):
        """As long as the text has a tanh: it stands in a body, and then in the graph itself."""
        for text in (LOOP.replace("FOUR", "4"), BRANCH):
            told, small = self.reduced(text, "--command", "if grep -q tanh {model}; then exit 7; fi", "--budget", 100)
            self.assertEqual((told["failure"], told["nodes"]), ("exit 7", 1))
            self.assertRegex(small, r"^graph @\w+\(%\w+: f32\[1\]\) -> \(%\w+: f32\[1\]\) \{\n  %\w+ = tanh\(%\w+\)[^\n]*\n\}\n$")

    def test_reduce_mistakes(self):
        self.write("state.graph", ZEROS)
        _, errors = self.tessera("reduce", "state.graph", "-o", "small.onnx", code=1)
        self.assertIn("error TSR-1060: ", errors)
        self.assertIn("give -o FILE.graph", errors)
        self.write("bad.graph", STATE.replace("exp", "expo"))
        _, errors = self.tessera("reduce", "bad.graph", code=1)
        self.assertIn("error TSR-3002: ", errors)
        nodes = [helper.make_node("Mystery", ["x"], ["y"], name="a")]
        self.save(make_model(nodes, [("x", TensorProto.FLOAT, (3,))], [("y", TensorProto.FLOAT, (3,))]), "mystery.onnx")
        _, errors = self.tessera("reduce", "mystery.onnx", "-o", "small.graph", code=1)
        self.assertIn("error TSR-4048: 'mystery.onnx' fails (error TSR-1040) before it is a graph", errors)
        told = self.json_of("reduce", "mystery.onnx", "-q")
        self.assertEqual(told["cut"], "onnx")

    def test_export_of_control_flow_and_state(self):
        """What is exported runs in ONNX Runtime, and is read back with its loops and states."""
        given = {"x": numpy.linspace(-1, 1, 4, dtype=numpy.float32), "w": numpy.ones(4, numpy.float32),
                 "n": numpy.array(3), "c": numpy.array(True)}
        for name, text in (("loop", LOOP.replace("FOUR", "4")), ("branch", BRANCH), ("state", STATE)):
            self.write(f"{name}.graph", text)
            self.tessera("export", f"{name}.graph", "-o", f"{name}.onnx", "-q")
            session = onnxruntime.InferenceSession(self.folder / f"{name}.onnx")
            feeds = {value.name: given[value.name] for value in session.get_inputs()}
            want = session.run(["y"], feeds)[0]
            inputs = [f"{key}={self.save_npy(f'{key}.npy', value)}" for key, value in feeds.items()]
            for model in (f"{name}.graph", f"{name}.onnx"):
                self.tessera("run", model, *sum((["-i", text] for text in inputs), []), "--output-dir", "out")
                numpy.testing.assert_allclose(self.load_npy("out/y.npy"), want, rtol=1e-5)
            self.assertEqual([value.name for value in session.get_overridable_initializers()],
                             ["count"] if name == "state" else [])
            self.tessera("export", f"{name}.onnx", "-o", f"{name}-back.graph", "-q")
            self.assertIn({"loop": "= loop(", "branch": "= if(", "state": 'state("count"'}[name],
                          (self.folder / f"{name}-back.graph").read_text())

    def test_inspect(self):
        self.write("loop.graph", LOOP.replace("FOUR", "4"))
        told = self.json_of_inspect("loop.graph")
        self.assertEqual((told["kind"], told["nodes"], told["inner_nodes"]), ("graph", 4, 2))
        self.assertEqual(told["operators"], {"exp": 1, "mul": 2, "loop": 1, "tanh": 1, "sub": 1})
        self.assertEqual(told["weights"], {"count": 1, "elements": 4, "bytes": 16, "bytes_of": {"f32": 16}})
        self.write("open.graph", OPEN)
        told = self.json_of_inspect("open.graph")
        self.assertEqual(told["symbols"], [{"name": "n", "lo": 1, "hi": 64, "step": 1}])
        self.assertEqual(told["inputs"], [{"name": "x", "type": "f32[n,3]"}])
        self.write("state.graph", STATE)
        text, _ = self.tessera("inspect", "state.graph")
        self.assertRegex(text, r"(?m)^states +count: f32\[4\]$")

    def json_of_inspect(self, name):
        return json.loads(self.tessera("inspect", name, "--json")[0])

    def test_explain(self):
        self.write("loop.graph", LOOP.replace("FOUR", "4"))
        told = self.json_of("explain", "loop.graph")
        self.assertEqual([(node["name"], node["op_type"]) for node in told["nodes"]],
                         [("A", "exp"), ("B", "mul"), ("L", "loop"), ("Y", "sub")])
        self.write("open.graph", OPEN)
        text, _ = self.tessera("explain", "open.graph")
        self.assertRegex(text, r"(?m)^product +matmul +kernel 0")
        self.assertIn("by shapes that are expressions", text)

    def test_work_of_open_sizes(self):
        """Formulas in the module, numbers in a run."""
        self.write("open.graph", OPEN)
        self.tessera("compile", "open.graph", "-q", "--threads", 1)
        module = self.json_of_inspect("open.so")
        self.assertEqual([kernel["flops"] for kernel in module["kernels"]], [-1] * len(module["kernels"]))
        self.assertTrue(all("n" in kernel["flops_formula"] for kernel in module["kernels"]), module["kernels"])
        for n in (1, 7, 64):
            self.tessera("compile", "open.graph", "-q", "--threads", 1, "--dim", f"n={n}", "-o", "fixed.so")
            fixed = sum(kernel["flops"] for kernel in self.json_of_inspect("fixed.so")["kernels"])
            out, _ = self.tessera("bench", "open.so", "--shape", f"x={n}x3", "--kernels", "--json", "--repeat", 3, "--warm-up", 1)
            kernels = json.loads(out)["kernels"]
            self.assertEqual(sum(kernel["flops"] for kernel in kernels), fixed, n)
            self.assertTrue(all(kernel["gflops"] is not None for kernel in kernels), kernels)


if __name__ == "__main__":
    cli_support.main()
