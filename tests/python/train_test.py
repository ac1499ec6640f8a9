"""tessera.train and tessera.data: what the command does, as calls.    train_test.py [unittest options]"""

import pathlib
import sys
import tempfile
import threading
import unittest

import numpy as np
import onnx
import tessera
from tessera import nn

RANDOM = np.random.default_rng(5)


def two_rings(count):
    """Points around the origin, and what ring they are on: no line separates the classes."""
    labels = RANDOM.integers(0, 2, count)
    angles, radii = RANDOM.uniform(0, 2 * np.pi, count), 0.5 + labels + RANDOM.normal(0, 0.08, count)
    points = np.stack([radii * np.cos(angles), radii * np.sin(angles)], 1)
    return points.astype(np.float32), labels


def network(width=16):
    nn.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
    return tessera.capture(model.eval(), np.zeros((32, 2), np.float32))


class Train(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.x, self.y = two_rings(1024)
        self.test = two_rings(256)
        self.options = {"test": self.test, "epochs": 15, "lr": 0.01, "threads": 1}

    def train(self, *arguments, **options):
        return tessera.train(network(), self.x, self.y, *arguments, **{**self.options, **options})

    def right(self, path):
        model = tessera.load(path) if path.suffix == ".so" else tessera.compile(path)
        points, labels = self.test
        batches = points.reshape(-1, 32, 2)
        return sum(int((model.run([batch])[0].argmax(1) == of).sum()) for batch, of in zip(batches, labels.reshape(-1, 32)))

    def test_learns_and_writes(self):
        for name in ("model.so", "model.onnx", "model.graph"):
            with self.subTest(name):
                report = self.train(self.folder / name)
                self.assertEqual(len(report["losses"]), 15 * 32)
                self.assertGreater(report["test_right"], 245)
                self.assertEqual(self.right(self.folder / name), report["test_right"])

    def test_models_of_every_kind(self):
        graph = network()
        graph.save(self.folder / "net.graph")
        self.train(self.folder / "net.onnx", epochs=1)
        for one, other in ((graph, self.folder / "net.graph"), (str(self.folder / "net.onnx"), onnx.load(self.folder / "net.onnx"))):
            losses = [tessera.train(model, self.x, self.y, epochs=2, threads=1)["losses"] for model in (one, other)]
            self.assertEqual(losses[0], losses[1])

    def test_epochs_are_told(self):
        told = []
        self.train(on_epoch=told.append, epochs=3)
        self.assertEqual([entry["epoch"] for entry in told], [1, 2, 3])
        self.assertGreater(told[0]["loss"], told[2]["loss"])
        report = self.train(self.folder / "early.so", on_epoch=lambda epoch: epoch["epoch"] < 4)
        self.assertEqual(report["steps"], 4 * 32)
        self.assertTrue((self.folder / "early.so").exists())

    def test_what_a_listener_raises_is_raised(self):
        def fail(epoch):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            self.train(self.folder / "none.so", on_epoch=fail, checkpoint=self.folder / "kept.safetensors")

    def test_goes_on_with_the_same_bits(self):
        whole = self.train(epochs=4, checkpoint=self.folder / "a.safetensors")
        self.train(epochs=4, on_epoch=lambda epoch: epoch["epoch"] < 2, checkpoint=self.folder / "b.safetensors")
        rest = self.train(epochs=4, resume=self.folder / "b.safetensors")
        self.assertEqual(whole["losses"][2 * 32:], rest["losses"])

    def test_pruned(self):
        report = self.train(self.folder / "sparse.onnx", prune=0.5)
        self.assertAlmostEqual(report["sparsity"], 0.5, delta=0.02)
        weights = [onnx.numpy_helper.to_array(t) for t in onnx.load(self.folder / "sparse.onnx").graph.initializer]
        matrices = [w for w in weights if w.ndim == 2]
        self.assertEqual(len(matrices), 3)
        for matrix in matrices:
            self.assertAlmostEqual((matrix == 0).mean(), 0.5, delta=0.03)
        self.train(self.folder / "pattern.graph", prune="2:4")
        wide = network(64)
        report = tessera.train(wide, self.x, self.y, self.folder / "cut.onnx", prune="channels:0.5", importance="taylor", **self.options)
        self.assertGreater(report["test_right"], 240)
        shapes = [tuple(t.dims) for t in onnx.load(self.folder / "cut.onnx").graph.initializer]
        self.assertIn((2, 32), [tuple(sorted(shape)) for shape in shapes])
        self.assertEqual(self.right(self.folder / "cut.onnx"), report["test_right"])

    def test_with_few_bits_in_mind(self):
        report = self.train(self.folder / "bytes.onnx", qat=True, qat_bits=4)
        self.assertIn("QuantizeLinear", {node.op_type for node in onnx.load(self.folder / "bytes.onnx").graph.node})
        self.assertGreater(report["test_right"], 235)
        self.assertEqual(self.right(self.folder / "bytes.onnx"), report["test_right"])

    def test_of_a_teacher(self):
        teacher = self.folder / "teacher.graph"
        tessera.train(network(64), self.x, self.y, teacher, **self.options)
        alone = self.train(epochs=5)
        taught = self.train(epochs=5, teacher=teacher, distill_weight=0.5)
        self.assertNotEqual(alone["losses"], taught["losses"])
        self.assertGreater(taught["test_right"], 240)

    def test_mean_squared_error(self):
        nn.manual_seed(2)
        model = tessera.capture(nn.Linear(2, 1), np.zeros((16, 2), np.float32))
        report = tessera.train(model, self.x, self.x @ np.array([[2.0], [-1.0]]) + 3, loss="mse", optimizer="sgd", lr=0.1, momentum=0.9,
                               epochs=10, batch=16, test=(self.x[:64], self.x[:64] @ np.array([[2.0], [-1.0]]) + 3))
        self.assertLess(report["test_loss"], 1e-6)

    def test_curves(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("matplotlib is missing")
        for name, begin in (("loss.png", b"\x89PNG"), ("loss.svg", b"<?xml")):
            self.train(epochs=2, curve=self.folder / name)
            self.assertTrue((self.folder / name).read_bytes().startswith(begin))
        with self.assertRaisesRegex(tessera.Error, "TSR-6102"):
            self.train(epochs=1, curve=self.folder / "absent" / "loss.png")

    def test_what_is_refused(self):
        for id, text, options in (
            ("TSR-4080", "lr=0", {"lr": 0}), ("TSR-4080", "batch=0", {"batch": 0}), ("TSR-4080", "prune=2", {"prune": "2"}),
            ("TSR-4080", "qat_bits=9", {"qat_bits": 9}), ("TSR-2080", "'adamm'", {"optimizer": "adamm"}),
            ("TSR-4080", "schedule='step'", {"schedule": "step"}), ("TSR-4080", "features", {"features": {"a": "b"}}),
            ("TSR-6230", "samples are", {"test": (self.x, self.y[:5])}), ("TSR-2083", "nothing", {"frozen": "nothing"}),
            ("TSR-6234", "checkpoint|absent", {"resume": self.folder / "absent"}), ("TSR-4034", "epochs", {"epochs": 1.5}),
        ):
            with self.subTest(options), self.assertRaisesRegex(tessera.Error, text) as caught:
                self.train(self.folder / "none.so", **options)
            if id != "TSR-6234":
                self.assertEqual(caught.exception.id, id)
        twice = self.folder / "twice"
        with self.assertRaisesRegex(tessera.Error, "TSR-4062.*written twice"):
            self.train(twice, checkpoint=twice)
        with self.assertRaises(TypeError):
            tessera.train(3, self.x, self.y)
        with self.assertRaisesRegex(tessera.Error, "TSR-6232"):
            tessera.train(network(), self.x, self.y + 1)
        with self.assertRaisesRegex(tessera.Error, "TSR-6230"):
            tessera.train(network(), self.x, self.y[:7])
        with self.assertRaisesRegex(tessera.Error, "TSR-6230"):
            tessera.train(network(), self.x, np.full(len(self.x), "a"))
        self.assertFalse((self.folder / "none.so").exists())


def recurrent(ratio, unrolled):
    """Three times tanh(dropout(x) w), by ONNX's Loop or one after the other."""
    f32, int64, boolean = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node

    def iteration(x, y, number):
        return [node("Dropout", [x, "ratio"], [f"d{number}"]), node("MatMul", [f"d{number}", "w"], [f"m{number}"]),
                node("Add", [f"m{number}", "b"], [f"s{number}"]), node("Tanh", [f"s{number}"], [y])]

    if unrolled:
        nodes = [*iteration("x", "y0", 0), *iteration("y0", "y1", 1), *iteration("y1", "y", 2)]
    else:
        body = onnx.helper.make_graph(
            [*iteration("a", "o", 0), node("Identity", ["c"], ["goes_on"])], "body",
            [info("i", int64, []), info("c", boolean, []), info("a", f32, [8, 16])],
            [info("goes_on", boolean, []), info("o", f32, [8, 16])])
        nodes = [node("Loop", ["n", "t", "x"], ["y"], body=body)]
    weights = {"ratio": np.float32(ratio), "w": (np.random.default_rng(0).standard_normal((16, 16)) / 4).astype(np.float32),
               "b": np.zeros(16, np.float32), "n": np.array(3), "t": np.array(True)}
    graph = onnx.helper.make_graph(nodes, "recurrent", [info("x", f32, [8, 16])], [info("y", f32, [8, 16])],
                                   [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


class Loops(unittest.TestCase):
    def test_weights_of_the_graph_around_learn(self):
        x = RANDOM.standard_normal((64, 16)).astype(np.float32)
        labels = RANDOM.integers(0, 16, 64)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trained.onnx"

            def losses(ratio, unrolled):
                report = tessera.train(recurrent(ratio, unrolled), x, labels, path, epochs=3, batch=8, shuffle=False, threads=1, lr=0.01)
                return report["losses"]

            np.testing.assert_allclose(losses(0, False), losses(0, True), rtol=2e-6)
            plain, dropping = losses(0, False), losses(0.5, False)
            self.assertGreater(np.abs(np.subtract(plain, dropping)).min(), 1e-4)
            self.assertLess(plain[-1], plain[0])
            (loop,) = onnx.load(path).graph.node
            (body,) = [attribute.g for attribute in loop.attribute if attribute.name == "body"]
            self.assertEqual([node.op_type for node in body.node if node.op_type != "Identity"], ["MatMul", "Add", "Tanh"])


class Bundle(unittest.TestCase):
    """One file with a model and its training step, over one state."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.x, self.y = two_rings(1024)
        self.path = self.folder / "both.so"
        self.report = self.train(self.path, epochs=2, with_step=True)

    def train(self, *arguments, **options):
        return tessera.train(network(), self.x, self.y, *arguments, **{"lr": 0.01, "threads": 1, "shuffle": False, **options})

    def test_goes_on_where_training_ended(self):
        whole = self.train(epochs=4)
        self.assertEqual(whole["losses"][:64], self.report["losses"])
        step, infer = tessera.load(self.path, entry="step"), tessera.load(self.path)
        self.assertEqual(infer.entries, ("infer", "step"))
        infer.share_states(step)
        before = infer.run([self.x[:32]])[0]
        losses = []
        for batch in range(2 * 32):
            rows = slice(32 * (batch % 32), 32 * (batch % 32 + 1))
            losses.append(float(step.run([self.x[rows], self.y[rows], np.float64(0.01)])[0]))
        self.assertEqual(whole["losses"][64:], losses)
        after = infer.run([self.x[:32]])[0]
        self.assertFalse(np.array_equal(before, after))
        alone = tessera.load(self.path, entry="infer")
        np.testing.assert_array_equal(alone.run([self.x[:32]])[0], before)
        alone.set_states({name: step.states[name] for name in alone.states})
        np.testing.assert_array_equal(alone.run([self.x[:32]])[0], after)

    def test_states_are_one(self):
        step, infer = tessera.load(self.path, entry="step"), tessera.load(self.path, entry="infer")
        infer.share_states(step)
        name, value = next(iter(infer.states.items()))
        infer.set_states({name: value + 1})
        np.testing.assert_array_equal(step.states[name], value + 1)
        infer.reset_states()                                       # leaves what is another's alone
        np.testing.assert_array_equal(step.states[name], value + 1)
        step.reset_states()
        np.testing.assert_array_equal(infer.states[name], value)
        again = tessera.load(self.path)
        for wrong, of in ((infer, step), (again, again), (again, infer)):
            with self.assertRaisesRegex(tessera.Error, "TSR-7029"):
                wrong.share_states(of)
        with self.assertRaisesRegex(tessera.Error, "TSR-7029"):    # no state has its name
            again.share_states(tessera.compile(counter()))

    def test_every_batch_is_open(self):
        infer, step = tessera.load(self.path), tessera.load(self.path, entry="step")
        infer.share_states(step)
        self.assertEqual(infer.run([self.x[:32]])[0].shape, (32, 2))

    def test_what_is_no_bundle(self):
        with self.assertRaisesRegex(tessera.Error, "TSR-7028.*infer, step"):
            tessera.load(self.path, entry="other")
        tessera.train(network(), self.x, self.y, self.folder / "plain.so", epochs=1, threads=1)
        with self.assertRaisesRegex(tessera.Error, "TSR-7028"):
            tessera.load(self.folder / "plain.so", entry="infer")
        self.assertEqual(tessera.load(self.folder / "plain.so").entries, ())
        for options, text in (({"prune": "channels:0.5"}, "prune"), ({}, "module")):
            with self.assertRaisesRegex(tessera.Error, text) as caught:
                self.train(self.folder / ("a.so" if options else "a.onnx"), epochs=1, with_step=True, **options)
            self.assertEqual(caught.exception.id, "TSR-4080")

    def test_damage_is_found(self):
        whole = self.path.read_bytes()
        broken = self.folder / "broken.so"
        places = [*range(len(whole) - 552, len(whole), 7), *RANDOM.integers(0, len(whole), 40)]
        refused = 0
        for place in places:
            bytes_ = bytearray(whole)
            bytes_[place] ^= 1 << int(RANDOM.integers(0, 8))
            broken.write_bytes(bytes_)
            for entry in ("infer", "step"):
                try:
                    tessera.load(broken, entry=entry)
                except tessera.Error as error:
                    refused += 1
                    self.assertRegex(error.id, "TSR-70")
        self.assertGreater(refused, 79)            # of the footer every bit counts, of a module those of its own
        for size in (0, 16, 144, 551, 552, len(whole) // 2, len(whole) - 1):
            broken.write_bytes(whole[:size])
            with self.assertRaisesRegex(tessera.Error, "TSR-70"):
                tessera.load(broken, entry="step")

    def test_models_with_fewer_bits_and_masks(self):
        for options in ({"qat": True}, {"prune": 0.5}):
            with self.subTest(options):
                path = self.folder / "other.so"
                self.train(path, epochs=4, with_step=True, **options)
                infer, step = tessera.load(path), tessera.load(path, entry="step")
                infer.share_states(step)
                before = infer.run([self.x[:32]])[0]
                step.run([self.x[:32], self.y[:32], np.float64(0.05)])
                self.assertFalse(np.array_equal(before, infer.run([self.x[:32]])[0]))


def counter():
    graph = tessera.graph.Graph("counter")
    state = graph.state("count", np.zeros((1,), np.float32))
    graph.output("now", state + state)
    graph.assign(state, state + state)
    return graph


class Data(unittest.TestCase):
    def test_every_row_once_in_an_order_of_its_own(self):
        x, y = np.arange(100).reshape(100, 1), np.arange(100)
        for prefetch in (0, 1, 5):
            loader = tessera.data.DataLoader(x, y, batch_size=8, shuffle=True, seed=3, drop_last=False, prefetch=prefetch)
            epochs = [list(loader) for _ in range(2)]
            self.assertEqual([len(epoch) for epoch in epochs], [13, 13])
            for epoch in epochs:
                rows = np.concatenate([targets for _, targets in epoch])
                self.assertEqual(sorted(rows), list(range(100)))
                for samples, targets in epoch:
                    np.testing.assert_array_equal(samples[:, 0], targets)
            self.assertFalse(np.array_equal(epochs[0][0][1], epochs[1][0][1]))
            again = tessera.data.DataLoader(x, y, batch_size=8, shuffle=True, seed=3, drop_last=False, epoch=1)
            for (_, a), (_, b) in zip(epochs[1], again):
                np.testing.assert_array_equal(a, b)

    def test_whole_batches_and_transforms(self):
        loader = tessera.data.DataLoader(np.arange(10), batch_size=4, transform=lambda rows: rows * 2)
        self.assertEqual([batch.tolist() for batch in loader], [[0, 2, 4, 6], [8, 10, 12, 14]])
        self.assertEqual(len(loader), 2)
        self.assertEqual(list(tessera.data.DataLoader(np.zeros((0, 3)))), [])

    def test_errors_and_early_ends(self):
        def fail(rows):
            if rows[0] >= 8:
                raise OSError("a broken file")
            return rows

        seen = []
        with self.assertRaisesRegex(OSError, "a broken file"):
            for batch in tessera.data.DataLoader(np.arange(40), batch_size=4, transform=fail):
                seen.append(batch)
        self.assertEqual(len(seen), 2)
        before = threading.active_count()
        for _ in tessera.data.DataLoader(np.arange(400), batch_size=4):
            break
        self.assertEqual(threading.active_count(), before)
        for wrong in ({"batch_size": 0}, {"prefetch": -1}, {"epoch": 1.5}):
            with self.assertRaises(ValueError):
                tessera.data.DataLoader(np.arange(4), **wrong)
        with self.assertRaises(ValueError):
            tessera.data.DataLoader(np.arange(4), np.arange(5))
        with self.assertRaises(ValueError):
            tessera.data.DataLoader()


if __name__ == "__main__":
    sys.exit(unittest.main())
