#!/usr/bin/env python3
"""The Python package: compiling, running on arrays of every kind, results in the caller's arrays, errors, threads."""
import concurrent.futures
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import tessera
from cli_support import affine, affine_model, conv_model, make_model

ALL_DTYPES = [
    np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn, np.int64,
    np.int32, np.int16, np.int8, ml_dtypes.int4, ml_dtypes.int2, np.uint64, np.uint32, np.uint16, np.uint8,
    ml_dtypes.uint4, ml_dtypes.uint2, np.bool_]
X = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)


class OnlyDlpack:
    """An array of another library: nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class PackageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-python-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assert_raises(self, id, call, *mentions):
        with self.assertRaises(tessera.Error) as caught:
            call()
        error = caught.exception
        self.assertEqual(error.id, id, str(error))
        for text in mentions:
            self.assertIn(text, str(error))
        return error


class Compile(PackageTest):
    def test_paths_bytes_and_models_give_the_same_module(self):
        model = affine_model()
        path = self.folder / "model.onnx"
        onnx.save(model, path)
        compiled = [tessera.compile(source, threads=1) for source in
                    (path, str(path), path.read_bytes(), memoryview(path.read_bytes()), model)]
        for each in compiled:
            np.testing.assert_array_equal(each.run([X]), affine(X))
        self.assertEqual(compiled[4].metadata["model"]["name"], "affine")

    def test_external_data_beside_a_path(self):
        model = affine_model()
        onnx.save_model(model, self.folder / "m.onnx", save_as_external_data=True, location="weights.bin",
                        size_threshold=0)
        np.testing.assert_array_equal(tessera.compile(self.folder / "m.onnx").run([X]), affine(X))
        self.assert_raises("TSR-1033", lambda: tessera.compile((self.folder / "m.onnx").read_bytes()))

    def test_a_model_says_what_it_takes_and_gives(self):
        model = tessera.compile(affine_model(), threads=1)
        self.assertEqual(model.inputs, (tessera.TensorInfo("x", np.dtype("float32"), (2, 3)),))
        self.assertEqual([str(info) for info in model.outputs], ["y: float32[2,3]", "z: float32[2,3]"])
        self.assertEqual((model.engine, model.num_threads, model.symbols), ("native", 1, {}))
        self.assertEqual(repr(model), "<tessera.Model (x: float32[2,3]) -> (y: float32[2,3], z: float32[2,3])>")

    def test_open_dimensions_get_values(self):
        model = affine_model(("n", 3))
        for options in ({"dims": {"n": 2}}, {"dims": {"n": (2, 2)}}, {"shapes": {"x": (2, 3)}}):
            np.testing.assert_array_equal(tessera.compile(model, **options).run([X]), affine(X))
        for options in ({"dims": {"x[0]": 2}}, {"dims": {"n": (1, 9, 4)}}, {"shapes": {"x": ((1, 4), 3)}},
                        {"shapes": {"x": ((2, 8, 2), 3)}}):
            x = X[:1] if options.get("dims", {}).get("n") else X
            np.testing.assert_array_equal(tessera.compile(model, **options).run([x]), [y[: len(x)] for y in affine(X)])
        with self.assertRaises(tessera.Error) as caught:
            tessera.compile_file(model, self.folder / "m.so")
        self.assertEqual(caught.exception.id, "TSR-1020")
        self.assertEqual(caught.exception.reason, "open_sizes")
        self.assertIn("add shapes={'x': (1, 3,)}, with your sizes, or a range of sizes: dims={'n': (1, 8)}", caught.exception.hint)

    def test_open_sizes_are_those_of_the_arrays(self):
        for engine in ("native", "interp"):
            model = tessera.compile(affine_model(("n", 3)), threads=1, engine=engine)
            self.assertIsInstance(model, tessera.OpenModel)
            self.assertEqual((str(model.inputs[0]), model.engine, model.symbols), ("x: float32[n,3]", engine, {}))
            for rows in (1, 2, 5, 2, 0):
                x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3) - 4
                for y, want in zip(model.run({"x": x}), affine(x)):
                    np.testing.assert_array_equal(y, want)
            self.assertEqual(len(model._models), 4)
            self.assert_raises("TSR-6303", lambda: model.run([X[0]]))
            # The runtime's ids, or the interpreter's.
            shape, dtype = ("TSR-7033", "TSR-7031") if engine == "native" else ("TSR-6303", "TSR-6302")
            self.assert_raises(shape, lambda: model.run([X[:, :2]]))
            self.assert_raises(dtype, lambda: model.run([X.astype(np.float64)]))
            self.assert_raises("TSR-4067", lambda: model.save(self.folder / "m.so"))
        for rows in range(1, 20):
            model.run([np.zeros((rows, 3), np.float32)])
        self.assertEqual(len(model._models), 8)
        sum_of = make_model([helper.make_node("Add", ["x", "x"], ["y"])], [("x", TensorProto.FLOAT, ("n", "m"))],
                            [("y", TensorProto.FLOAT, ("n", "m"))])
        for options in ({"dims": {"m": 3}}, {"dims": {"x[1]": (1, 4)}}, {}):
            partly = tessera.compile(sum_of, **options)
            self.assertIsInstance(partly, tessera.OpenModel)
            for x in (X, X[:1]):
                np.testing.assert_array_equal(partly.run([x]), [x + x])

    def test_threads_share_an_open_model(self):
        model = tessera.compile(affine_model(("n", 3)), threads=1)
        arrays = [np.full((rows, 3), rows, np.float32) for rows in (1, 2, 3, 4)] * 3
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for x, results in zip(arrays, pool.map(lambda x: model.run([x]), arrays)):
                for y, want in zip(results, affine(x)):
                    np.testing.assert_array_equal(y, want)

    def test_the_model_is_not_written_over(self):
        path = self.folder / "model.onnx"
        onnx.save(affine_model(), path)
        before = path.read_bytes()
        (self.folder / "link.so").symlink_to(path)
        for output in (path, self.folder / "link.so"):
            self.assert_raises("TSR-4062", lambda: tessera.compile_file(path, output))
        self.assertEqual(path.read_bytes(), before)

    def test_interrupts_are_heard_at_once(self):
        """In the interpreter, on a product that takes it seconds, and in a compile of many layers."""
        program = """
import os, signal, sys, threading, time
import numpy as np, onnx, tessera
from onnx import helper, numpy_helper
size, layers = (700, 40) if sys.argv[1] == "interp" else (64, 400)
w = numpy_helper.from_array(np.ones((size, size), np.float32), "w")
nodes = [helper.make_node(op, inputs, [output]) for i in range(layers)
         for op, inputs, output in (("MatMul", [f"x{i}", "w"], f"t{i}"), ("Sin" if i % 2 else "Cos", [f"t{i}"], f"x{i + 1}"))]
info = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [size, size])
model = helper.make_model(helper.make_graph(nodes, "g", [info("x0")], [info(f"x{layers}")], [w]),
                          opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
sent = []
def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
if sys.argv[1] == "interp":
    ready = tessera.compile(model, engine="interp")
    work = lambda: ready.run([np.ones((size, size), np.float32)])
else:
    work = lambda: tessera.compile(model)
threading.Timer(0.25, interrupt).start()
try:
    work()
    print("ended")
except KeyboardInterrupt:
    print("heard", time.monotonic() - sent[0])
"""
        for what in ("interp", "compile"):
            done = subprocess.run([sys.executable, "-c", program, what], capture_output=True, text=True, timeout=100)
            self.assertRegex(done.stdout, r"^heard [\d.e-]+\n$", done.stderr)
            self.assertLess(float(done.stdout.split()[1]), 0.5, what)  # 0.1 on a machine that does nothing else
            self.assertIn(done.returncode, (0, 130), done.stderr)

    def test_options_reach_the_compiler(self):
        on_device = tessera.compile(conv_model(), places=["*=null"], threads=1)
        on_host = tessera.compile(conv_model(), threads=1)
        x = [np.random.default_rng(3).random(i.shape, dtype=np.float32) for i in on_host.inputs]
        np.testing.assert_array_equal(on_device.run(x)[0], on_host.run(x)[0])
        self.assert_raises("TSR-4071", lambda: tessera.compile(conv_model(), places="*=gpu9"))
        model = tessera.compile(conv_model(), opt_level=1, target="x86-64-v2", disable_passes=["cse"], threads=1)
        self.assertEqual(model.metadata["options"], {"opt-level": "1", "disabled-passes": "cse"})
        self.assertIn("x86-64-v2", str(model.metadata["target"]))
        self.assert_raises("TSR-4020", lambda: tessera.compile(conv_model(), disable_passes=["nothing"]))
        self.assert_raises("TSR-4074", lambda: tessera.compile(conv_model(), numerics="exact"))
        self.assert_raises("TSR-4075", lambda: tessera.compile(conv_model(), numerics="strict", precision="f16"))
        self.assert_raises("TSR-4021", lambda: tessera.compile(conv_model(), opt_level=7))
        self.assert_raises("TSR-5001", lambda: tessera.compile(conv_model(), target="pdp11"))
        self.assert_raises("TSR-4031", lambda: tessera.compile(conv_model(), engine="steam"))
        self.assert_raises("TSR-4032", lambda: tessera.compile(7))

    def test_arguments_of_the_wrong_kind(self):
        model = affine_model(("n", 3))
        for arguments, text in (({"dims": {"n": "x"}}, "dims['n'] is 'x'"), ({"dims": {"n": (1, 2, 3, 4)}}, "(1, 2, 3, 4)"),
                                ({"dims": {"n": (5, 2)}}, "0 <= least <= greatest"), ({"dims": {"n": (1, 2, 0)}}, "1 <= step"),
                                ({"dims": {"n": 2**70}}, "64 bits"), ({"dims": {3: 2}}, "a name in dims is 3"),
                                ({"dims": 3}, "a mapping"), ({"shapes": {"x": 5}}, "shapes['x'] is 5"),
                                ({"shapes": {"x": (2, "a")}}, "'a'"), ({"shapes": "x"}, "a mapping"),
                                ({"target": 5}, "target is 5"), ({"opt_level": "3"}, "opt_level is '3'"),
                                ({"threads": 1.5}, "threads is 1.5"), ({"disable_passes": [3]}, "disable_passes is 3"),
                                ({"disable_passes": 3}, "names of passes")):
            with self.subTest(arguments):
                self.assert_raises("TSR-4034", lambda: tessera.compile(model, **arguments), text)
        self.assert_raises("TSR-1023", lambda: tessera.compile(model, dims={"n": -1}))
        self.assert_raises("TSR-7022", lambda: tessera.compile(model, dims={"n": 2}, threads=-1))
        self.assert_raises("TSR-1001", lambda: tessera.compile(""))
        self.assertEqual(tessera.compile(model, dims={"n": np.int64(2)}).inputs[0].shape, (2, 3))

    def test_the_interpreter_agrees_with_compiled_code(self):
        x = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
        interpreted = tessera.compile(conv_model(), engine="interp")
        self.assertEqual((interpreted.engine, interpreted.metadata), ("interp", {}))
        want = onnxruntime.InferenceSession(conv_model().SerializeToString()).run(None, {"x": x})[0]
        for model in (interpreted, tessera.compile(conv_model()), tessera.compile(conv_model(), opt_level=0)):
            np.testing.assert_allclose(model.run([x])[0], want, rtol=1e-4, atol=1e-4)
        self.assert_raises("TSR-4030", lambda: interpreted.save(self.folder / "m.so"))
        self.assert_raises("TSR-6303", lambda: interpreted.run([x[:, :, 1:]]))

    def test_modules_are_saved_and_loaded(self):
        model = tessera.compile(affine_model())
        model.save(self.folder / "saved.so")
        tessera.compile_file(affine_model(), self.folder / "written.so")
        self.assertEqual((self.folder / "saved.so").read_bytes(), (self.folder / "written.so").read_bytes())
        loaded = tessera.load(self.folder / "saved.so", threads=1)
        self.assertEqual(loaded.num_threads, 1)
        np.testing.assert_array_equal(loaded.run([X]), affine(X))
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["saved.so", "written.so"])
        self.assert_raises("TSR-7001", lambda: tessera.load(self.folder / "missing.so"))
        self.assert_raises("TSR-6102", lambda: model.save(self.folder / "no" / "folder.so"), "folder.so")
        (self.folder / "bad.so").write_bytes(b"no module")
        self.assert_raises("TSR-7003", lambda: tessera.load(self.folder / "bad.so"))

    def test_modules_for_other_machines_are_written_and_not_run(self):
        path = self.folder / "arm.so"
        tessera.compile_file(affine_model(), path, target="aarch64-unknown-linux-gnu")
        self.assert_raises("TSR-7013", lambda: tessera.load(path), "aarch64")


class Run(PackageTest):
    def setUp(self):
        super().setUp()
        self.model = tessera.compile(affine_model())

    def check(self, inputs):
        np.testing.assert_array_equal(self.model.run(inputs), affine(X))

    def test_arrays_of_every_kind(self):
        self.check([X])
        self.check((X,))
        self.check({"x": X})
        self.check([np.asfortranarray(X)])
        self.check([np.repeat(X, 2, axis=1)[:, ::2]])
        self.check([X.astype(">f4")])
        read_only = X.copy()
        read_only.flags.writeable = False
        self.check([read_only])
        unaligned = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)
        self.assertFalse(unaligned.flags.aligned)
        self.check([unaligned])
        self.check([OnlyDlpack(X)])
        self.check([X.tolist()])
        self.check([memoryview(X)])

    def test_numbers_take_the_dtype_of_the_input(self):
        node = helper.make_node("Add", ["a", "b"], ["c"])
        model = tessera.compile(make_model([node], [("a", TensorProto.INT8, [2]), ("b", TensorProto.INT8, [])],
                                           [("c", TensorProto.INT8, [2])]))
        np.testing.assert_array_equal(model.run([[1, 2], 3]), [[4, 5]])
        self.assert_raises("TSR-6302", lambda: model.run([[1, 2], 300]), "input 'b'")
        self.assert_raises("TSR-7031", lambda: model.run([[1, 2], 0.5]))

    def test_nothing_is_converted_silently(self):
        self.assert_raises("TSR-7031", lambda: self.model.run([X.astype(np.float64)]))
        self.assert_raises("TSR-7033", lambda: self.model.run([X[:1]]))
        self.assert_raises("TSR-7032", lambda: self.model.run([X[0]]))
        self.assert_raises("TSR-7032", lambda: self.model.run([np.zeros((1,) * 20, np.float32)]))
        self.assert_raises("TSR-6302", lambda: self.model.run([X.astype(np.complex64)]), "complex64[2,3]")
        self.assert_raises("TSR-6302", lambda: self.model.run([["a", "b"]]))
        self.assert_raises("TSR-6302", lambda: self.model.run([[[1], [1, 2]]]))

    def test_inputs_by_name_and_number(self):
        self.assert_raises("TSR-6308", lambda: self.model.run(X), "run([x])")
        self.assert_raises("TSR-6301", lambda: self.model.run([X, X]))
        self.assert_raises("TSR-6301", lambda: self.model.run({}), "'x'")
        self.assert_raises("TSR-4011", lambda: self.model.run({"x": X, "w": X}), "'w'", "legal: x")

    def test_results_in_arrays_of_the_caller(self):
        y, z = np.empty_like(X), np.empty_like(X)
        for outputs in ({"y": y, "z": z}, [y, z]):
            y[:] = z[:] = 0
            results = self.model.run([X], outputs)
            self.assertIs(results[0], y)
            self.assertIs(results[1], z)
            np.testing.assert_array_equal([y, z], affine(X))
        results = self.model.run([X], {"z": z})
        self.assertIs(results[1], z)
        np.testing.assert_array_equal(results, affine(X))
        read_only = np.empty_like(X)
        read_only.flags.writeable = False
        self.assert_raises("TSR-6305", lambda: self.model.run([X], {"y": np.empty((2, 3))}))
        self.assert_raises("TSR-6305", lambda: self.model.run([X], {"y": np.empty((3, 2), np.float32)}))
        self.assert_raises("TSR-6305", lambda: self.model.run([X], {"y": [1.0]}))
        self.assert_raises("TSR-6306", lambda: self.model.run([X], {"y": read_only}), "not writable")
        self.assert_raises("TSR-6306", lambda: self.model.run([X], {"y": np.empty((3, 2), np.float32).T}))
        self.assert_raises("TSR-4011", lambda: self.model.run([X], {"w": y}))
        self.assert_raises("TSR-6301", lambda: self.model.run([X], [y]))

    def test_an_output_may_be_an_input(self):
        x = X.copy()
        results = self.model.run([x], {"y": x})
        np.testing.assert_array_equal(results, affine(X))
        self.assertIs(results[0], x)
        # Not so in part, which also shows that the runtime sees the very memory of the arrays; nor another output.
        memory = np.zeros(9, np.float32)
        x, y = memory[:6].reshape(2, 3), memory[3:].reshape(2, 3)
        self.assert_raises("TSR-7038", lambda: self.model.run([x], {"y": y}), "'x'", "'y'")
        self.assert_raises("TSR-7038", lambda: self.model.run([X], {"y": y, "z": y}), "'z'", "'y'")

    def test_state_is_updated_in_place(self):
        # h' = tanh(h w + x) twice: reading and writing h element by element would be wrong.
        w = np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32)
        nodes = [helper.make_node("MatMul", ["h", "w"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"]),
                 helper.make_node("Tanh", ["b"], ["c"]), helper.make_node("MatMul", ["c", "w"], ["d"]),
                 helper.make_node("Tanh", ["d"], ["h_next"]), helper.make_node("ReduceSum", ["h"], ["y"], keepdims=0)]
        shape = [1, 4]
        model = make_model(nodes, [("x", TensorProto.FLOAT, shape), ("h", TensorProto.FLOAT, shape)],
                           [("y", TensorProto.FLOAT, []), ("h_next", TensorProto.FLOAT, shape)], {"w": w})
        for engine in ("native", "interp"):
            compiled = tessera.compile(model, engine=engine)
            state, want = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32)
            for step in range(5):
                x = np.full((1, 4), step, np.float32)
                total = want.sum()
                want = np.tanh(np.tanh(want @ w + x) @ w)
                y, updated = compiled.run({"x": x, "h": state}, {"h_next": state})
                self.assertIs(updated, state)
                np.testing.assert_allclose(state, want, rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(y, total, rtol=1e-5, atol=1e-6)

    def test_every_dtype(self):
        for dtype in map(np.dtype, ALL_DTYPES):
            kind = helper.np_dtype_to_tensor_dtype(dtype)
            node = helper.make_node("Reshape", ["x", "s"], ["y"])
            model = make_model([node], [("x", kind, [3, 5])], [("y", kind, [5, 3])],
                               {"s": np.array([5, 3], np.int64)}, opset=25)
            values = np.arange(15) % 4 if dtype.kind in "bu" or dtype.name.startswith("uint") else np.arange(15) % 4 - 2
            if dtype.name == "float8_e8m0fnu":
                values = 2.0 ** (np.arange(15) - 7)
            x = values.astype(dtype).reshape(3, 5)
            for engine in ("native", "interp"):
                with self.subTest(dtype=dtype.name, engine=engine):
                    compiled = tessera.compile(model, engine=engine)
                    self.assertEqual(compiled.inputs[0].dtype, dtype)
                    (y,) = compiled.run([x])
                    self.assertEqual(y.dtype, dtype)
                    np.testing.assert_array_equal(y.astype(np.float64), x.reshape(5, 3).astype(np.float64))

    def test_empty_and_rank_0_tensors(self):
        nodes = [helper.make_node("Neg", ["a"], ["c"]), helper.make_node("Neg", ["b"], ["d"])]
        model = tessera.compile(make_model(
            nodes, [("a", TensorProto.FLOAT, [0, 3]), ("b", TensorProto.INT64, [])],
            [("c", TensorProto.FLOAT, [0, 3]), ("d", TensorProto.INT64, [])]))
        c, d = model.run([np.zeros((0, 3), np.float32), np.int64(5)])
        self.assertEqual((c.shape, d.shape, int(d)), ((0, 3), (), -5))


class Errors(PackageTest):
    def test_an_error_has_its_parts(self):
        nodes = [helper.make_node("NoSuchOperator", ["x"], ["y"], name="the_node")]
        model = make_model(nodes, [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])])
        error = self.assert_raises("TSR-1040", lambda: tessera.compile(model), "NoSuchOperator", "the_node")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.id, type(again)), (str(error), error.id, tessera.Error))
        nodes = [helper.make_node("Gather", ["t", "i"], ["y"], name="pick")]
        model = make_model(nodes, [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [1])],
                           {"t": np.zeros(3, np.float32), "i": np.array([7], np.int64)})
        error = self.assert_raises("TSR-1044", lambda: tessera.compile(model))
        self.assertEqual((error.node, error.legal), ("pick", "-3 to 2"))
        self.assertTrue(error.message and error.hint)

    def test_users_errors_and_bugs_are_different(self):
        self.assertFalse(issubclass(tessera.Error, tessera.InternalError))
        self.assertFalse(issubclass(tessera.InternalError, tessera.Error))


class Threads(PackageTest):
    def test_one_model_runs_in_several_threads_at_once(self):
        model = tessera.compile(conv_model(height=64, width=64), threads=1)
        random = np.random.default_rng(1)
        inputs = [random.standard_normal((1, 3, 64, 64)).astype(np.float32) for _ in range(8)]
        want = [model.run([x])[0] for x in inputs]
        wrong = []

        def work(start):
            for step in range(40):
                index = (start + step) % len(inputs)
                if not np.array_equal(model.run([inputs[index]])[0], want[index]):
                    wrong.append(index)

        threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_other_threads_go_on_during_a_run(self):
        size = 400
        model = tessera.compile(make_model(
            [helper.make_node("MatMul", ["a", "a"], ["b"]), helper.make_node("MatMul", ["b", "a"], ["c"])],
            [("a", TensorProto.DOUBLE, [size, size])], [("c", TensorProto.DOUBLE, [size, size])]),
            threads=1, opt_level=0)
        a = np.eye(size)
        steps, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                steps[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        try:
            before = steps[0]
            model.run([a])
            during = steps[0] - before
        finally:
            stop.set()
            thread.join()
        # With the lock held, the other thread would get one switch interval (5 ms) at most.
        self.assertGreater(during, 200_000)


class Stub(PackageTest):
    def test_the_stub_is_that_of_the_module(self):
        out = self.folder / "_native.pyi"
        subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "tessera._native", "-o", out], check=True)
        stub = pathlib.Path(tessera.__file__).with_name("_native.pyi")
        self.assertEqual(stub.read_text(), out.read_text(),
                         f"write it again: python -m nanobind.stubgen -m tessera._native -o {stub.resolve()}")


if __name__ == "__main__":
    unittest.main(verbosity=1)
