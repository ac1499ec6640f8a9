"""The examples of training on real data, in a short form.    train_real_test.py [unittest options]

Skipped where the data are missing (TESSERA_TEST_DATA)."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
import tessera
from tessera import nn

from test_data import find_test_data

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/train_real"
RANDOM = np.random.default_rng(6)


def data(path):
    found = find_test_data(f"real/{path}")
    if not found:
        raise unittest.SkipTest(f"real/{path} is not in TESSERA_TEST_DATA")
    return str(found)


class Recurrent(unittest.TestCase):
    """Layers beside ONNX Runtime's LSTM and GRU, which have other orders of gates."""

    ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}  # ONNX: input, output, forget, cell; update, reset, new

    def reference(self, kind, layer, x):
        names, inits = ["x"], {}
        for name, suffix in (("weight_ih_l0", "W"), ("weight_hh_l0", "R")):
            gates = getattr(layer, name).numpy().reshape(len(self.ORDERS[kind]), layer.hidden_size, -1)
            inits[suffix] = gates[list(self.ORDERS[kind])].reshape(1, -1, gates.shape[-1])
        order = list(self.ORDERS[kind])
        biases = [getattr(layer, f"bias_{name}_l0").numpy().reshape(len(order), -1)[order] for name in ("ih", "hh")]
        inits["B"] = np.concatenate(biases).reshape(1, -1)
        attributes = {"hidden_size": layer.hidden_size} | ({"linear_before_reset": 1} if kind == "GRU" else {})
        node = onnx.helper.make_node(kind, [*names, "W", "R", "B"], ["y"], **attributes)
        info = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph([node], "g", [info("x", 1, x.shape)], [info("y", 1, None)],
                                       [onnx.numpy_helper.from_array(value, name) for name, value in inits.items()])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        (y,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
        return y[:, 0]

    def test_beside_onnx_runtime(self):
        for kind, shape, hidden in (("LSTM", (7, 3, 5), 6), ("GRU", (7, 3, 5), 6), ("LSTM", (1, 1, 1), 1), ("GRU", (20, 2, 33), 17)):
            layer = getattr(nn, kind)(shape[2], hidden)
            x = RANDOM.standard_normal(shape).astype(np.float32)
            y, last = layer(tessera.tensor(x))
            np.testing.assert_allclose(y.numpy(), self.reference(kind, layer, x), atol=2e-6)
            np.testing.assert_array_equal((last[0] if kind == "LSTM" else last).numpy()[0], y.numpy()[-1])
            turned, _ = self.turned(kind, layer)(tessera.tensor(np.ascontiguousarray(x.transpose(1, 0, 2))))
            np.testing.assert_array_equal(turned.numpy().transpose(1, 0, 2), y.numpy())
            state = tuple(part for part in last) if kind == "LSTM" else last
            again, _ = layer(tessera.tensor(x), state)
            self.assertFalse(np.array_equal(again.numpy(), y.numpy()))

    def turned(self, kind, layer):
        other = getattr(nn, kind)(layer.input_size, layer.hidden_size, batch_first=True)
        other.load_state_dict(layer.state_dict())
        return other

    def test_gradients_are_differences(self):
        for kind in ("LSTM", "GRU"):
            layer = getattr(nn, kind)(3, 4, 2)
            x = tessera.tensor(RANDOM.standard_normal((5, 2, 3)).astype(np.float32), requires_grad=True)
            y, _ = layer(x)
            (y * y).sum().backward()
            for tensor in (x, *layer.parameters()):
                along = RANDOM.standard_normal(tensor.shape).astype(np.float32)
                values, kept = [], tensor.numpy().copy()
                for sign in (1, -1):
                    with tessera.no_grad():
                        tensor.copy_(tessera.tensor(kept + np.float32(sign * 5e-3) * along))
                        y, _ = layer(x)
                        values.append(float((y * y).sum().numpy()))
                        tensor.copy_(tessera.tensor(kept))
                self.assertAlmostEqual((values[0] - values[1]) / 1e-2, float((tensor.grad.numpy() * along).sum()), delta=0.02)


class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_example(self, script, *arguments):
        done = subprocess.run([sys.executable, EXAMPLES / script, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_text(self):
        for model, steps, most in (("gpt", 60, 2.8), ("lstm", 40, 3.2)):
            out = self.run_example("text.py", pathlib.Path(data("text/train.txt")).parent, "--model", model, "--steps", steps)
            self.assertLess(float(re.search(r"test loss ([\d.]+)", out)[1]), most, out)

    def test_tables(self):
        folders = [pathlib.Path(data(f"{name}/{name}.npz")).parent for name in ("iris", "wine", "breast_cancer")]
        rows = re.findall(r"^(\w+) +(?:logistic|32 hidden) +(\d+) +(\d+) +(\d+) ", self.run_example("tables.py", *folders), re.M)
        self.assertEqual(len(rows), 6)
        for name, total, ours, theirs in rows:
            self.assertGreaterEqual(int(ours), int(theirs) - 0.04 * int(total), name)

    def test_pictures(self):
        images = pathlib.Path(data("images/owl.jpg")).parent
        for model in ("resnet18", "mobilenet_v2"):
            out = self.run_example("pictures.py", images, "--model", model, "--epochs", 6, "--photos", 3)
            right, total = map(int, re.search(r"right: (\d+) of (\d+)", out).groups())
            self.assertGreater(right, 0.75 * total, out)

    def test_digits_of_another_hand(self):
        out = self.run_example("fine_tune.py", "digits", data("mnist-ort-examples/model.onnx"), data("digits/digits.npz"), "--epochs", 1)
        before, behind = (int(re.search(rf"{word}: (\d+) of", out)[1]) for word in ("before", "behind"))
        self.assertGreater(behind, before)

    def test_faces_at_night(self):
        folder = pathlib.Path(data("ultraface-rfb-320/model.onnx")).parent
        out = self.run_example("fine_tune.py", "faces", folder / "model.onnx", *sorted(folder.glob("input_*.npy")), "--epochs", 1, "-o",
                               self.folder / "night.onnx")
        before, now, most = map(int, re.search(r"night: (\d+) before, (\d+) now, of (\d+)", out).groups())
        self.assertGreater(now, before)
        self.assertLessEqual(now, most)


if __name__ == "__main__":
    sys.exit(unittest.main())
