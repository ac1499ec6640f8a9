#!/usr/bin/env python3
"""tessera.InferenceSession beside onnxruntime.InferenceSession: the same lines of Python with either package."""
import json
import os
import pathlib
import tempfile
import unittest
import warnings

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnxruntime.datasets import get_example

import tessera
from cli_support import affine_model

PACKAGES = (onnxruntime, tessera)
X = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
OPEN = """<ir_version: 8, opset_import: ["": 17]>
open (float[batch, 3] x, float[1, 3] bias, int64 count) => (float[batch, 3] y, int64 twice) {
  s = Add(x, bias)
  y = Relu(s)
  twice = Add(count, count)
}"""
VALUES = """<ir_version: 8, opset_import: ["": 17]>
values (string[2] texts, float[4] x) => (string[2] same, seq(float[2]) halves) {
  same = Identity(texts)
  two = Constant<value = int64 {2}>()
  halves = SplitToSequence<axis = 0>(x, two)
}"""


def border(session):
    return [[(arg.name, arg.type, list(arg.shape)) for arg in args] for args in (session.get_inputs(), session.get_outputs())]


def arrays_equal(test, expected, got):
    test.assertEqual(len(expected), len(got))
    for one, other in zip(expected, got):
        if isinstance(one, list):
            arrays_equal(test, one, other)
        elif isinstance(one, dict):
            test.assertEqual(one.keys(), other.keys())
            np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=1e-5)
        elif one.dtype == object:
            test.assertEqual(one.tolist(), other.tolist())
        else:
            test.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


class SessionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-session-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def save(self, model, name="model.onnx"):
        path = self.folder / name
        onnx.save(model if isinstance(model, onnx.ModelProto) else onnx.parser.parse_model(model), path)
        return str(path)

    def error(self, id, call, *mentions):
        with self.assertRaises(tessera.Error) as caught:
            call()
        self.assertEqual(caught.exception.id, id, str(caught.exception))
        for text in mentions:
            self.assertIn(text, str(caught.exception))

    def test_the_example_of_onnxruntimes_documentation(self):
        # https://onnxruntime.ai/docs/api/python/auto_examples/plot_load_and_predict.html, line by line.
        got = []
        for rt in PACKAGES:
            sess = rt.InferenceSession(get_example("sigmoid.onnx"), providers=rt.get_available_providers())
            input_name, input_shape, input_type = (getattr(sess.get_inputs()[0], what) for what in ("name", "shape", "type"))
            output_name, output_shape, output_type = (getattr(sess.get_outputs()[0], what) for what in ("name", "shape", "type"))
            x = np.random.RandomState(1).random((3, 4, 5)).astype(np.float32)
            res = sess.run([output_name], {input_name: x})
            got.append((input_name, input_shape, input_type, output_name, output_shape, output_type, res))
        self.assertEqual(got[0][:-1], got[1][:-1])
        arrays_equal(self, got[0][-1], got[1][-1])

    def test_the_classifier_of_its_tutorial(self):
        # https://onnxruntime.ai/docs/api/python/auto_examples/plot_train_convert_predict.html
        try:
            from skl2onnx import convert_sklearn
            from skl2onnx.common.data_types import FloatTensorType
            from sklearn.datasets import load_iris
            from sklearn.linear_model import LogisticRegression
        except ImportError as missing:
            self.skipTest(f"{missing}; scripts/setup.sh installs it")
        rows, labels = load_iris(return_X_y=True)
        classifier = LogisticRegression(max_iter=500).fit(rows, labels)
        onx = convert_sklearn(classifier, initial_types=[("float_input", FloatTensorType([None, 4]))])
        path = self.save(onx)
        results = []
        for rt in PACKAGES:
            sess = rt.InferenceSession(path, providers=rt.get_available_providers())
            input_name, label_name, prob_name = sess.get_inputs()[0].name, sess.get_outputs()[0].name, sess.get_outputs()[1].name
            pred_onx = sess.run([label_name], {input_name: rows.astype(np.float32)})[0]
            prob_rt = sess.run([prob_name], {input_name: rows.astype(np.float32)})[0]
            results.append([border(sess), [pred_onx, prob_rt]])
        # The type of a sequence is not known before a model with open sizes is compiled.
        self.assertEqual(results[1][0][1].pop()[:2], ("output_probability", "unknown"))
        self.assertEqual(results[0][0][1].pop()[0], "output_probability")
        self.assertEqual(results[0][0], results[1][0])
        arrays_equal(self, results[0][1], results[1][1])

    def test_names_types_and_shapes(self):
        for model in (OPEN, VALUES, affine_model(), onnx.load(get_example("mul_1.onnx"))):
            path = self.save(model)
            ours, theirs = (border(rt.InferenceSession(path, providers=["CPUExecutionProvider"])) for rt in (tessera, onnxruntime))
            self.assertEqual(theirs, ours)

    def test_runs(self):
        path = self.save(OPEN)
        feed = {"x": X, "bias": np.ones((1, 3), np.float32), "count": np.array(4)}
        for names in (None, [], ["y"], ["twice", "y"]):
            results = [rt.InferenceSession(path).run(names, feed) for rt in PACKAGES]
            arrays_equal(self, *results)
        session = tessera.InferenceSession(path)
        arrays_equal(self, session.run(["y"], feed), session.run((name for name in ["y"]), feed))
        self.error("TSR-4011", lambda: session.run("y", feed), "one text")
        self.error("TSR-4011", lambda: session.run([None], feed), "None")
        for rows in (1, 5):
            feed["x"] = np.full((rows, 3), -2, np.float32)
            arrays_equal(self, onnxruntime.InferenceSession(path).run(None, feed), session.run(None, feed))

    def test_one_element_for_a_number(self):
        feed = {"x": X, "bias": np.ones((1, 3), np.float32), "count": np.array([4])}
        self.assertEqual(tessera.InferenceSession(self.save(OPEN)).run(["twice"], feed)[0], 8)

    def test_strings_and_sequences(self):
        path = self.save(VALUES)
        feed = {"texts": np.array(["a", "ü"], object), "x": np.arange(4, dtype=np.float32)}
        arrays_equal(self, *(rt.InferenceSession(path).run(None, feed) for rt in PACKAGES))

    def test_bytes_and_modules(self):
        path = self.save(affine_model())
        module = str(self.folder / "model.so")
        tessera.compile_file(path, module)
        expected = onnxruntime.InferenceSession(path).run(None, {"x": X})
        for source in (path, pathlib.Path(path), pathlib.Path(path).read_bytes(), module, pathlib.Path(module).read_bytes()):
            session = tessera.InferenceSession(source)
            arrays_equal(self, expected, session.run(None, {"x": X}))
            self.assertEqual(session.get_inputs()[0].type, "tensor(float)")

    def test_io_binding(self):
        path = self.save(affine_model())
        names = [info.name for info in onnxruntime.InferenceSession(path).get_outputs()]
        results = []
        for rt in PACKAGES:
            session = rt.InferenceSession(path)
            binding = session.io_binding()
            y = np.zeros((2, 3), np.float32)
            binding.bind_cpu_input("x", X)
            binding.bind_output(names[0], "cpu", 0, np.float32, y.shape, y.ctypes.data)
            binding.bind_output(names[1])
            session.run_with_iobinding(binding)
            results.append(binding.copy_outputs_to_cpu())
            np.testing.assert_array_equal(y, results[-1][0])  # in the caller's memory
            # The same with values that own their memory.
            binding = session.io_binding()
            value = rt.OrtValue.ortvalue_from_numpy(X)
            place = rt.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
            binding.bind_input("x", "cpu", 0, np.float32, value.shape(), value.data_ptr())
            binding.bind_ortvalue_output(names[1], place)
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(place.numpy(), results[-1][1])
            self.assertEqual((place.data_type(), place.shape(), len(binding.get_outputs())), ("tensor(float)", [2, 3], 1))
        arrays_equal(self, *results)
        binding = tessera.InferenceSession(path).io_binding()
        self.error("TSR-4011", lambda: binding.bind_output("nothing"), "nothing")
        self.error("TSR-4034", lambda: binding.bind_output(names[0], "cuda"), "cuda")
        self.error("TSR-4034", lambda: binding.bind_output(names[0], "cpu", 0, None, None, X.ctypes.data))

    def test_options(self):
        path = self.save(OPEN)
        feed = {"x": X, "bias": np.ones((1, 3), np.float32), "count": np.array(4)}
        results = []
        for rt in PACKAGES:
            options = rt.SessionOptions()
            options.graph_optimization_level = rt.GraphOptimizationLevel.ORT_ENABLE_BASIC
            options.execution_mode = rt.ExecutionMode.ORT_SEQUENTIAL
            options.intra_op_num_threads = 1
            options.inter_op_num_threads = 1
            options.enable_mem_pattern = False
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            options.add_free_dimension_override_by_name("batch", 2)
            session = rt.InferenceSession(path, sess_options=options)
            self.assertEqual(session.get_inputs()[0].shape, [2, 3])
            results.append(session.run(None, feed))
        arrays_equal(self, *results)
        options = tessera.SessionOptions()
        with self.assertRaises(AttributeError):
            options.graph_optimisation_level = 1
        options.optimized_model_filepath = str(self.folder / "written.so")
        options.add_session_config_entry("tessera.numerics", "deterministic")
        tessera.InferenceSession(self.save(affine_model()), options)
        self.assertEqual(tessera.load(options.optimized_model_filepath).metadata["options"]["numerics"], "deterministic")
        self.error("TSR-4034", lambda: options.add_session_config_entry("tessera.speed", "much"), "tessera.target")
        self.error("TSR-4034", lambda: tessera.InferenceSession(path, onnxruntime.SessionOptions()), "tessera.SessionOptions")

    def test_providers(self):
        path = self.save(affine_model())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tessera.InferenceSession(path, providers=["CPUExecutionProvider", ("TesseraExecutionProvider", {"threads": 1})])
        with self.assertWarnsRegex(UserWarning, "CUDAExecutionProvider"):
            session = tessera.InferenceSession(path, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
        self.assertIn("CPUExecutionProvider", session.get_providers())
        self.error("TSR-4034", lambda: tessera.InferenceSession(path, providers=[3]))

    def test_profiling(self):
        path = self.save(affine_model())
        for rt in PACKAGES:
            options = rt.SessionOptions()
            options.enable_profiling = True
            options.profile_file_prefix = str(self.folder / rt.__name__)
            session = rt.InferenceSession(path, options)
            for _ in range(3):
                session.run(None, {"x": X})
            file = session.end_profiling()
            self.assertTrue(os.path.basename(file).startswith(rt.__name__), file)
            events = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
            self.assertEqual(sum(event["name"] == "model_run" for event in events), 3)
            kernels = [event for event in events if event["name"].endswith("_kernel_time")]
            self.assertGreaterEqual(len(kernels), 3)
            self.assertTrue(all(event["cat"] == "Node" for event in kernels))
            self.assertTrue(all({"name", "ph", "ts", "dur", "cat"} <= event.keys() for event in events if event["ph"] == "X"))
        # Kernels lie within their runs, also where a model is compiled for the sizes of a run.
        options = tessera.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = True, str(self.folder / "open")
        session = tessera.InferenceSession(self.save(OPEN), options)
        for rows in (2, 3):
            session.run(None, {"x": np.ones((rows, 3), np.float32), "bias": np.ones((1, 3), np.float32), "count": np.array(1)})
        events = json.loads(pathlib.Path(session.end_profiling()).read_text(encoding="utf-8"))
        runs = [event for event in events if event["name"] == "model_run"]
        kernels = [event for event in events if event["cat"] == "Node"]
        self.assertGreaterEqual(len(kernels), 2)
        for kernel in kernels:
            self.assertTrue(any(run["ts"] - 1 <= kernel["ts"] and kernel["ts"] + kernel["dur"] <= run["ts"] + run["dur"] + 1
                                for run in runs), (kernel, runs))
        self.assertEqual(tessera.InferenceSession(path).end_profiling(), "")

    def test_errors_are_exceptions_with_an_id(self):
        path = self.save(affine_model())
        session = tessera.InferenceSession(path)
        self.error("TSR-1001", lambda: tessera.InferenceSession(str(self.folder / "no.onnx")), "no.onnx")
        self.error("TSR-4011", lambda: session.run(["nothing"], {"x": X}), "nothing")
        self.error("TSR-4011", lambda: session.run(None, {"w": X}), "w")
        self.error("TSR-6301", lambda: session.run(None, {}), "x")
        self.error("TSR-6308", lambda: session.run(None, [X]), "run(None, {'name': x})")
        self.error("TSR-4034", lambda: session.run(None, {"x": X}, onnxruntime.RunOptions()), "run_options")
        self.error("TSR-7031", lambda: session.run(None, {"x": X.astype(np.float64)}), "f64")


if __name__ == "__main__":
    unittest.main()
