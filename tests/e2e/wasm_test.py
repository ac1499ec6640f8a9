#!/usr/bin/env python3
"""`tessera compile --emit wasm`: modules that run in Node and give the interpreter's results.

wasm_test.py TESSERA [unittest options]"""

import json
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support

import ml_dtypes
import numpy
import onnx

from c_models import models, perceptron, quantized_conv, text
from interpreted_models import BOUND, InterpretedTest, random_inputs
from test_data import find_test_data

NODE = shutil.which("node") or shutil.which("nodejs")
RUNNER = pathlib.Path(__file__).resolve().parent / "wasm_run.mjs"


def dtype_of(name):
    return numpy.dtype("?" if name == "bool" else getattr(ml_dtypes, "bfloat16") if name == "bf16" else f"{name[0]}{int(name[1:]) // 8}")


class WasmTest(InterpretedTest):
    def setUp(self):
        if not NODE:
            self.skipTest("there is no Node (scripts/setup.sh --browser)")
        super().setUp()

    def emit(self, model, *arguments):
        path = model if isinstance(model, pathlib.Path) else self.save(model, "m.onnx")
        self.tessera("compile", path, "--emit", "wasm", "-o", "m.wasm", "-q", *arguments)
        return self.folder / "m.wasm"

    def run_module(self, module, inputs, runs=1):
        """The outputs of the last run; the message of a run that stopped."""
        names = []
        for i, array in enumerate(inputs):
            numpy.ascontiguousarray(array).tofile(self.folder / f"in{i}.bin")
            names.append(f"in{i}.bin")
        command = [NODE, str(RUNNER), str(module), str(runs), *names]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        answer = json.loads(done.stdout)
        if isinstance(answer, dict):
            return answer["error"]
        return [numpy.fromfile(self.folder / f"out{i}.bin", dtype_of(out["dtype"])).reshape(out["dims"])
                for i, out in enumerate(answer)]

    def check(self, model, inputs=None, bound=BOUND, arguments=()):
        module = self.emit(model, *arguments)
        inputs = inputs or random_inputs(model)
        want = self.interpreted(self.save(model, "m.onnx"), inputs)
        self.assert_agree(want, self.run_module(module, list(inputs.values())), "Node", bound)


class Modules(WasmTest):
    def test_the_same_bytes_every_time(self):
        first = self.emit(perceptron()).read_bytes()
        self.assertEqual(first[:4], b"\0asm")
        self.assertEqual(self.emit(perceptron()).read_bytes(), first)

    def test_nothing_is_imported(self):
        script = "console.log(WebAssembly.Module.imports(new WebAssembly.Module(require('fs').readFileSync(process.argv[1]))).length)"
        for model in (perceptron(), quantized_conv()):
            done = subprocess.run([NODE, "-e", script, str(self.emit(model))], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout.strip(), "0")

    def test_levels(self):
        for level in ("-O0", "-O1", "-O2", "-O3"):
            self.check(perceptron(), arguments=[level])

    def test_the_bits_of_another_machine(self):
        made = models()
        for model in (perceptron(), made["conv"], made["lstm"], made["reductions"]):
            path, inputs = self.save(model, "m.onnx"), random_inputs(model)
            given = []
            for i, (name, array) in enumerate(inputs.items()):
                given += ["--input", f"{name}={self.save_npy(f'x{i}.npy', array)}"]
            names = [value.name for value in model.graph.output]
            for i, name in enumerate(names):
                given += ["--output", f"{name}=@y{i}.npy"]
            self.tessera("compile", path, "-o", "here.so", "--numerics", "deterministic", "-q", "--force")
            self.tessera("run", "here.so", *given)
            got = self.run_module(self.emit(model, "--numerics", "deterministic"), list(inputs.values()))
            for i, array in enumerate(got):
                self.assertEqual(self.load_npy(f"y{i}.npy").tobytes(), array.tobytes(), names[i])

    def test_states_live_from_run_to_run(self):
        model = text("t = Mul(old, x)\n new = Add(t, x)\n y = Exp(old)", "float[3] x, float[3] old", "float[3] y, float[3] new")
        model.graph.initializer.append(onnx.numpy_helper.from_array(numpy.array([1, 2, 3], numpy.float32), "old"))
        entry = model.metadata_props.add()
        entry.key, entry.value = "tessera.state.old", "new"
        module = self.emit(model)
        x, old = numpy.array([1, 0.5, 0.25], numpy.float32), numpy.array([1, 2, 3], numpy.float32)
        for runs in range(1, 5):
            (y,) = self.run_module(module, [x], runs)
            numpy.testing.assert_allclose(y, numpy.exp(old), rtol=1e-6)
            old = old * x + x

    def test_checks_of_data(self):
        model = text("y = ReduceSum<keepdims = 0>(x, axes)", "float[3,4] x, int64[1] axes", "float[4] y")
        module = self.emit(model)
        x = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        (y,) = self.run_module(module, [x, numpy.array([0])])
        self.assertEqual(y.tolist(), x.sum(0).tolist())
        self.assertRegex(self.run_module(module, [x, numpy.array([1])]), "ReduceSum.*'axes'.* is not ")

    def test_arrays_of_another_size_are_refused(self):
        message = self.run_module(self.emit(perceptron()), [numpy.zeros(59, numpy.float32)])
        self.assertEqual(message, "input 'x' has 60 elements (f32 [3,20]); 59 were given")

    def test_no_model_of_ours(self):
        (self.folder / "m.wasm").write_bytes(b"\0asm\1\0\0\0")
        done = subprocess.run([NODE, str(RUNNER), "m.wasm", "1"], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("it has no section 'tessera'", done.stderr)

    def test_what_is_refused_is_named(self):
        open_size = text("y = Relu(x)", "float[n] x", "float[n] y")
        path = self.save(open_size, "open.onnx")
        _, errors = self.tessera("compile", path, "--emit", "wasm", "-o", "o.wasm", "--dim", "n=1..9", code=1)
        self.assertIn("TSR-5150", errors)
        self.assertIn("the open size 'n' (1 to 9)", errors)
        _, errors = self.tessera("compile", path, "--dim", "n=4", "--target", "wasm32", "-o", "o.so", code=1)
        self.assertIn("TSR-4079", errors)
        _, errors = self.tessera("compile", path, "--dim", "n=4", "--emit", "wasm", "--target", "x86-64-v3", "-o", "o.wasm", code=1)
        self.assertIn("TSR-4079", errors)
        self.assertEqual(self.files("o.*"), [])

    def test_networks(self):
        folder = find_test_data("real")
        if folder is None:
            self.skipTest("real/ is neither in TESSERA_TEST_DATA nor in ../shared")
        for name in ("mnist-ort-examples", "mnist-opt-wonnx"):
            for file in sorted((folder / name).glob("input_*.npy"))[:1]:
                image = numpy.load(file).astype(numpy.float32).reshape(1, 1, 28, 28)
                self.check(onnx.load(folder / name / "model.onnx"), {"Input3": image})

    def test_squeezenet(self):
        folder = find_test_data("onnx-light/squeezenet")
        if folder is None:
            self.skipTest("onnx-light/ is neither in TESSERA_TEST_DATA nor in ../shared")
        image, want = (onnx.numpy_helper.to_array(onnx.TensorProto.FromString((folder / "test_data_set_0" / name).read_bytes()))
                       for name in ("input_0.pb", "output_0.pb"))
        self.assert_agree([want], self.run_module(self.emit(folder / "model.onnx"), [image]), "squeezenet", 1e-4)


class Operators(WasmTest):
    """A test for each model of c_models."""


for model_name, made in models().items():
    def test(self, model=made):
        self.check(model)
    setattr(Operators, f"test_{model_name}", test)


if __name__ == "__main__":
    cli_support.main()
