#!/usr/bin/env python3
"""tessera.graph: models built in Python, beside numpy, beside the same model from ONNX, and what is refused."""
import inspect
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

import ml_dtypes
import numpy as np

import tessera
from tessera import graph

RANDOM = np.random.default_rng(0)


def floats(*shape):
    return RANDOM.standard_normal(shape, np.float32)


def classifier(weights, bias):
    g = graph.Graph("classifier")
    n = g.symbol("n", 1, 64)
    x = g.input("x", np.float32, (n, 12))
    g.output("y", graph.softmax(x @ weights + bias, axis=1))
    return g


def softmax(scores):
    shares = np.exp(scores - scores.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


class Building(unittest.TestCase):
    def test_a_model_of_ten_lines_runs_at_every_size(self):
        weights, bias = floats(12, 5), floats(5)
        g = classifier(weights, bias)
        model = tessera.compile(g)
        self.assertEqual(model.inputs[0].shape, ("n", 12))
        self.assertEqual(model.symbols, {"n": (1, 64)})
        for n in (1, 3, 64):
            x = floats(n, 12)
            want = softmax(x @ weights + bias)
            np.testing.assert_allclose(model.run([x])[0], want, rtol=1e-4, atol=1e-6)
            by_interpreter = tessera.compile(g, dims={"n": n}, engine="interp")
            np.testing.assert_allclose(by_interpreter.run([x])[0], want, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(tessera.compile(g, dims={"n": n}).run([x])[0], want, rtol=1e-4, atol=1e-6)

    def test_is_the_imported_model(self):
        import onnx
        from onnx import TensorProto, helper

        weights, bias = floats(12, 5), floats(5)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "b"], ["u"]),
                 helper.make_node("Softmax", ["u"], ["y"], axis=1)]
        initializers = [onnx.numpy_helper.from_array(weights, "w"), onnx.numpy_helper.from_array(bias, "b")]
        proto = helper.make_graph(
            nodes, "classifier", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 12])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 5])], initializers)
        model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        g = graph.Graph("classifier")
        x = g.input("x", np.float32, (4, 12))
        g.output("y", graph.softmax(x @ weights + bias, axis=1))
        of_onnx = tessera.compile(model).metadata
        self.assertEqual(of_onnx["operators"], tessera.compile(g).metadata["operators"])
        given = floats(4, 12)
        self.assertTrue(np.array_equal(tessera.compile(model).run([given])[0], tessera.compile(g).run([given])[0]))

    def test_text_is_a_model(self):
        g = classifier(floats(12, 5), floats(5))
        again = graph.Graph.from_text(g.text())
        self.assertEqual((again.hash(), again.text(), again.name), (g.hash(), g.text(), "classifier"))
        self.assertRegex(g.hash(), "^[0-9a-f]{16}$")
        self.assertIn("elided<", big_graph().text(elide_constants=True))
        x = floats(2, 12)
        want = tessera.compile(g).run([x])[0]
        with tempfile.NamedTemporaryFile(suffix=".graph") as file:
            g.save(file.name)
            self.assertTrue(np.array_equal(tessera.compile(file.name).run([x])[0], want))
        self.assertTrue(np.array_equal(tessera.compile(g.text().encode()).run([x])[0], want))

    def test_every_dtype_is_a_constant(self):
        for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int64, np.int32,
                      np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8, np.bool_, ml_dtypes.int4,
                      ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2):
            g = graph.Graph()
            values = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
            x = g.input("x", np.int64, ())
            y = graph.gather(g.constant(values), x, axis=0)
            self.assertEqual((y.dtype, y.shape), (np.dtype(dtype), (3,)), dtype)
            g.output("y", y)
            got = tessera.compile(g, engine="interp").run([np.array(1)])[0]
            self.assertTrue(np.array_equal(got, values[1]), (dtype, got))

    def test_numbers_take_the_dtype_of_the_value_beside_them(self):
        g = graph.Graph()
        x = g.input("x", np.float16, (2,))
        y = 1 - (2 * x + 0.5) / 4
        self.assertEqual(y.dtype, np.float16)
        i = g.input("i", np.int32, (2,))
        self.assertEqual((i * 3).dtype, np.int32)
        self.assertEqual((floats(2, 2) @ g.input("m", np.float32, (2, 3))).shape, (2, 3))
        g.output("y", y)
        x, i, m = np.array([1, 2], np.float16), np.zeros(2, np.int32), floats(2, 3)
        self.assertEqual(tessera.compile(g).run([x, i, m])[0].tolist(), [0.375, -0.125])

    def test_an_operator_of_ones_own(self):
        body = graph.Graph("swap_sign")
        body.output("b", graph.neg(body.input("a", np.float32, (2,))))
        g = graph.Graph()
        g.output("y", g.composite("swap_sign", body, g.input("x", np.float32, (2,)), note="own"))
        self.assertIn('name = "swap_sign"', g.text())
        self.assertEqual(tessera.compile(g).run([np.array([1, -2], np.float32)])[0].tolist(), [-1, 2])

    def test_models_are_graphs(self):
        g = graph.Graph("block")
        x = g.input("x", np.float32, (2, 3))
        g.output("y", g.op("tanh", x) * x)
        read = graph.Graph.from_model(g.text().encode())
        self.assertEqual(read.hash(), g.hash())
        values = floats(2, 3)
        (got,) = tessera.compile(tessera.grad(read, wrt="x")).run([values])
        np.testing.assert_allclose(got, np.tanh(values) + values * (1 - np.tanh(values) ** 2), atol=1e-5)
        with self.assertRaises(tessera.Error) as caught:
            graph.Graph.from_model(3)
        self.assertEqual(caught.exception.id, "TSR-4032")

    def test_states_live_from_run_to_run(self):
        weights, x = floats(12, 5), floats(3, 12)
        g = graph.Graph("average")
        calls = g.state("calls", dtype=np.int64)
        mean = g.state("mean", np.full((3, 5), 2, np.float32))
        small = g.state("small", np.array([1, -7, 3]), dtype=ml_dtypes.int4)
        after = mean * 0.5 + g.input("x", np.float32, (3, 12)) @ weights
        g.output("y", after - mean)
        g.assign(mean, after)
        g.assign(calls, calls + 1)
        self.assertEqual([value.name for value in g.inputs + g.outputs], ["x", "y"])
        self.assertEqual(graph.Graph.from_text(g.text()).hash(), g.hash())
        native, interpreted = tessera.compile(g), tessera.compile(g, engine="interp")
        for model in (native, interpreted):
            self.assertEqual(list(model.states), ["calls", "mean", "small"])
            expected = np.full((3, 5), 2, np.float32)
            for call in range(1, 4):
                (y,) = model.run([x])
                before, expected = expected, expected / 2 + x @ weights
                np.testing.assert_allclose(y, expected - before, atol=1e-5)
                np.testing.assert_allclose(model.states["mean"], expected, atol=1e-5)
                self.assertEqual(model.states["calls"], call)
            np.testing.assert_array_equal(model.states["small"].astype(np.int8), [1, -7, 3])
            model.set_states({"calls": 40, "small": np.array([0, 1, 2], ml_dtypes.int4)})
            model.run([x])
            self.assertEqual((model.states["calls"], model.states["small"].astype(int).tolist()), (41, [0, 1, 2]))
            for values, id in [({"call": 1}, "TSR-4011"), ({"calls": np.float32(1)}, "TSR-6302"), ({"calls": [1]}, "TSR-6303")]:
                with self.assertRaises(tessera.Error) as caught:
                    model.set_states(values)
                self.assertEqual(caught.exception.id, id, caught.exception)
            model.reset_states()
            np.testing.assert_array_equal(model.states["mean"], np.full((3, 5), 2))
        self.assertEqual([state["in_place"] for state in native.metadata["states"]], [True, False, True])

    def test_runs_of_states_come_one_after_another(self):
        g = graph.Graph("counter")
        calls = g.state("calls", dtype=np.int64, shape=(100,))
        g.assign(calls, calls + 1)
        model = tessera.compile(g)
        threads = [threading.Thread(target=lambda: [model.run([]) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(model.states["calls"], np.full(100, 200))

    def test_threads_compile_one_graph(self):
        g, results = classifier(floats(12, 5), floats(5)), []
        x = floats(3, 12)
        threads = [threading.Thread(target=lambda: results.append(tessera.compile(g).run([x])[0])) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 3)
        self.assertTrue(all(np.array_equal(result, results[0]) for result in results))


def big_graph():
    g = graph.Graph()
    g.output("y", g.input("x", np.float32, (100, 1)) + floats(100, 7))
    return g


class Operators(unittest.TestCase):
    def test_each_has_a_function_with_a_signature(self):
        listed = graph.operators()
        self.assertGreater(len(listed), 80)
        for op in listed:
            self.assertTrue(op.doc and op.example, op.name)
            self.assertFalse({attribute.name for attribute in op.attributes} & {"name", "operands"}, op.name)
            if op.max_operands == 0:
                continue
            function = getattr(graph, op.name)
            self.assertTrue(function.__doc__.startswith(op.doc), op.name)
            names = inspect.signature(function).parameters
            for attribute in op.attributes:
                self.assertIn(attribute.name, names)
        self.assertIn("axis (int)", graph.softmax.__doc__)

    def test_the_stub_is_of_these_operators(self):
        script = pathlib.Path(__file__).resolve().parents[2] / "scripts/write-graph-stub"
        done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_documents_cpp_block_is_compiled(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        block = re.search(r"^```cpp\n(.*?)^```$", (root / "docs/graph-api.md").read_text(), re.S | re.M)[1]
        self.assertIn(textwrap.indent(block, "  "), (root / "tests/driver/graph_api_test.cpp").read_text())


class DataSizes(unittest.TestCase):
    """Dimensions whose value a run finds among its data."""

    @staticmethod
    def nonzero(rows, columns):
        """The rows of x that are not all zero, without their order changed, and how many."""
        g = graph.Graph("rows")
        n = g.symbol("n", 1, rows)
        x = g.input("x", np.float32, (n, columns))
        used = graph.cast(graph.gt(graph.reduce(graph.abs(x), kind="max", axes=[1], keepdims=False), 0.0), to=np.int64)
        size = g.bind_size("c", graph.reduce(used, kind="sum", axes=[0], keepdims=False), "n", name="used rows")
        # Each row's place among those that are used; the others' place does not exist.
        place = graph.select(graph.gt(used, 0), graph.cumulate(used, axis=0, kind="sum", exclusive=True), g.constant(rows))
        packed = graph.scatter(
            graph.broadcast(g.constant(np.zeros((1, 1, 1), np.float32)), shape=[1, "n", columns]),
            graph.reshape(place, shape=[1, "n"]), graph.reshape(x, shape=[1, "n", columns]), join="none")
        kept = graph.slice(packed, starts=[0, 0, 0], sizes=[1, "c", columns], steps=[1, 1, 1])
        g.output("y", graph.reshape(kept, shape=["c", columns]))
        g.output("size", size)
        return g

    def test_as_many_rows_as_are_used(self):
        g = self.nonzero(9, 3)
        self.assertEqual(graph.Graph.from_text(g.text()).hash(), g.hash())
        self.assertEqual(g.outputs[0].shape, ("c", 3))
        compiled = tessera.compile(g)
        for n in (1, 2, 9):
            interpreted = tessera.compile(g, dims={"n": n}, engine="interp")
            for used in {0, 1, n // 2, n}:
                x = floats(n, 3)
                x[RANDOM.permutation(n)[used:]] = 0
                want = x[np.abs(x).max(1) > 0]
                for model in (compiled, interpreted):
                    y, size = model.run([x])
                    np.testing.assert_array_equal(y, want)
                    self.assertEqual(size, used)

    def test_counts_stay_within_the_bound(self):
        g = graph.Graph()
        x, count = g.input("x", np.int64, (4,)), g.input("count", np.int64, ())
        size = g.bind_size("c", count, 4)
        self.assertEqual(size.shape, ())
        g.output("y", graph.add(graph.slice(x, starts=[0], sizes=["c"], steps=[1]), 1))
        model = tessera.compile(g)
        for count, length in ((-5, 0), (0, 0), (3, 3), (4, 4), (2**40, 4)):
            np.testing.assert_array_equal(model.run([np.arange(4), np.int64(count)])[0], np.arange(length) + 1)

    def test_refusals(self):
        g = graph.Graph()
        x, count = g.input("x", np.float32, (4,)), g.input("count", np.int64, ())
        g.bind_size("c", count, 4)
        for id, call in [
            ("TSR-2061", lambda: g.bind_size("c", count, 4)),
            ("TSR-2065", lambda: g.bind_size("d", count, -1)),
            ("TSR-2020", lambda: g.bind_size("d", graph.cast(count, to=np.int32), 4)),
            ("TSR-2022", lambda: g.bind_size("d", graph.reshape(count, shape=[1]), 4)),
            ("TSR-2036", lambda: g.input("u", np.float32, ("c",))),
            ("TSR-3003", lambda: graph.slice(x, starts=[0], sizes=["d"], steps=[1])),
            ("TSR-2062", lambda: g.op("bind_size", count, size=["c"])),
        ]:
            with self.assertRaises(tessera.Error, msg=id) as caught:
                call()
            self.assertEqual(caught.exception.id, id, caught.exception)


class Refusals(unittest.TestCase):
    def test_errors_have_ids_and_the_callers_names(self):
        g = graph.Graph()
        x = g.input("x", np.float32, (2, 3))
        other = graph.Graph().input("x", np.float32, (2, 3))

        def wrong_operands():
            graph.matmul(x, x, name="projection")

        with self.assertRaises(tessera.Error) as caught:
            wrong_operands()
        self.assertEqual((caught.exception.id, caught.exception.node), ("TSR-2024", "projection"))
        cases = [
            ("TSR-2060", lambda: graph.add(x, other)),
            ("TSR-2060", lambda: graph.add(1, 2)),
            ("TSR-2061", lambda: g.input("x", np.float32, ())),
            ("TSR-2062", lambda: g.op("sofmax", x)),
            ("TSR-2064", lambda: g.constant(["text"])),
            ("TSR-2065", lambda: g.symbol("n", 2, 1)),
            ("TSR-2003", lambda: graph.softmax(x, axis="last")),
            ("TSR-4034", lambda: graph.softmax(x, axis=object())),
            ("TSR-4034", lambda: g.input("u", "no dtype", ())),
            ("TSR-3003", lambda: g.input("u", np.float32, ("m",))),
            ("TSR-2061", lambda: g.state("x", 1.0)),
            ("TSR-2070", lambda: g.assign(x, x)),
            ("TSR-2071", lambda: g.assign(g.state("s", 1.0), x)),
            ("TSR-2069", lambda: tessera.compile(graph.Graph())),
            ("TSR-2066", lambda: g.composite("softmax", g, x)),
        ]
        for id, call in cases:
            with self.assertRaises(tessera.Error, msg=id) as caught:
                call()
            self.assertEqual(caught.exception.id, id, caught.exception)
        with self.assertRaisesRegex(TypeError, "softmax: missing a required .*'axis'"):
            graph.softmax(x)
        with self.assertRaisesRegex(TypeError, "softmax: .*unexpected keyword argument 'axes'"):
            graph.softmax(x, axis=1, axes=1)


if __name__ == "__main__":
    unittest.main()
