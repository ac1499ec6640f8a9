"""What tests of the command line share: running it, small models, a scratch folder. Standard library, numpy, onnx.

A test script calls `main()`, with the path of the tessera program as its first argument."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

TESSERA = None  # set by main()


class CliTest(unittest.TestCase):
    """A test with a scratch folder (`self.folder`) as current folder and a cache of its own."""

    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("TESSERA_", "OMP_", "XDG_", "NO_COLOR"))
        }
        self.environment["TESSERA_CACHE_DIR"] = str(self.folder / "cache")

    def tessera(self, *arguments, code=0, stdin=None, **variables):
        """Runs the program in the scratch folder; answers (stdout, stderr)."""
        done = subprocess.run(
            [TESSERA, *map(str, arguments)],
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            env={**self.environment, **variables},
        )
        self.assertEqual(
            done.returncode, code, f"tessera {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
        )
        return done.stdout, done.stderr

    def files(self, *pattern):
        return sorted(
            str(path.relative_to(self.folder)) for path in self.folder.rglob(*(pattern or ("*",))) if path.is_file()
        )

    def save(self, model, name="model.onnx"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model, path)
        return path

    def save_npy(self, name, values):
        numpy.save(self.folder / name, values)
        return f"@{name}"

    def load_npy(self, name):
        return numpy.load(self.folder / name)


def make_model(nodes, inputs, outputs, initializers=None, name="test", opset=17):
    """`inputs`, `outputs`: (name, dtype, dims)."""
    info = lambda entry: helper.make_tensor_value_info(entry[0], entry[1], entry[2])
    tensors = [numpy_helper.from_array(value, key) for key, value in (initializers or {}).items()]
    graph = helper.make_graph(
        nodes, name, [info(entry) for entry in inputs], [info(entry) for entry in outputs], tensors
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def affine_model(dims=(2, 3)):
    """y = x * w + b, with one w and b for each column: w = 1, 2, ..., b = 0.5. A second output relu(y)."""
    columns = dims[-1]
    w, b = numpy.arange(1, columns + 1, dtype=numpy.float32), numpy.full(columns, 0.5, numpy.float32)
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["t"], name="Mul_0"),
        helper.make_node("Add", ["t", "b"], ["y"], name="Add_1"),
        helper.make_node("Relu", ["y"], ["z"], name="Relu_2"),
    ]
    return make_model(
        nodes,
        [("x", TensorProto.FLOAT, dims)],
        [("y", TensorProto.FLOAT, dims), ("z", TensorProto.FLOAT, dims)],
        {"w": w, "b": b},
        name="affine",
    )


def affine(x):
    y = x * numpy.arange(1, x.shape[-1] + 1, dtype=numpy.float32) + numpy.float32(0.5)
    return y, numpy.maximum(y, 0)


def conv_model(height=16, width=16, channels_in=3, channels_out=8, seed=0):
    """A 3x3 convolution with padding 1, a bias and a relu: enough for every level of the compiler to have work."""
    random = numpy.random.default_rng(seed)
    w = random.standard_normal((channels_out, channels_in, 3, 3)).astype(numpy.float32)
    b = random.standard_normal(channels_out).astype(numpy.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["t"], name="Conv_0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["t"], ["y"], name="Relu_1"),
    ]
    return make_model(
        nodes,
        [("x", TensorProto.FLOAT, (1, channels_in, height, width))],
        [("y", TensorProto.FLOAT, (1, channels_out, height, width))],
        {"w": w, "b": b},
        name="conv",
    )


def main():
    global TESSERA
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} TESSERA [unittest options]")
    TESSERA = os.path.abspath(sys.argv.pop(1))
    unittest.main(module="__main__", verbosity=1)
