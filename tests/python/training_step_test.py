"""tessera.training_step: what runs operator by operator and what is compiled as one graph agree bit for bit in strict
numerics, for any number of models, losses and optimizers.    training_step_test.py [unittest options]"""

import unittest

import numpy as np
import tessera
from tessera import nn, optim

RANDOM = np.random.default_rng(4)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def network():
    nn.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.LeakyReLU(0.1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(36, 3),
    )


OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.01),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.05, lr_decay=0.1),
}


def step_of(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(x), y)
        loss.backward()
        norm = optim.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss, norm

    return step


class TrainingStep(unittest.TestCase):
    def assert_same(self, one, other):
        for (name, a), (_, b) in zip(one.named_tensors(), other.named_tensors()):
            np.testing.assert_array_equal(a.numpy(), b.numpy(), name)

    def test_has_the_bits_of_operator_by_operator(self):
        x, y = floats(5, 8, 2, 3, 3), RANDOM.integers(0, 3, (5, 8))
        for name, make in OPTIMIZERS.items():
            with self.subTest(name):
                models = [network(), network()]
                optimizers = [make(model.parameters()) for model in models]
                eager, compiled = map(step_of, models, optimizers)
                compiled = tessera.training_step(compiled, numerics="strict")
                for i in range(5):
                    for a, b in zip(eager(x[i], y[i]), compiled(x[i], y[i])):
                        self.assertEqual(float(a), float(b))
                self.assertNotEqual(models[0].state_dict()["1.running_mean"][0], models[1].state_dict()["1.running_mean"][0])
                compiled.to_tensors()
                self.assert_same(*models)
                self.assertEqual(optimizers[1].steps, 5)
                # Both go on from there; what Python changes reaches the states.
                for model in models:
                    model.load_state_dict({key: value * np.float32(0.5) for key, value in model.state_dict().items()})
                compiled.from_tensors()
                self.assertEqual(*(float(step(x[0], y[0])[0]) for step in (eager, compiled)))

    def test_two_networks(self):
        """Each learns from a loss of its own: the second one's gradients go through the first, and not into it."""
        noise, real = floats(4, 6, 3), floats(4, 6, 2)

        def make():
            nn.manual_seed(1)
            g = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
            d = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
            both = optim.Adam(d.parameters(), lr=0.01), optim.SGD(g.parameters(), lr=0.05)
            bce = nn.BCEWithLogitsLoss()

            def step(z, x):
                for optimizer in both:
                    optimizer.zero_grad()
                made = g(z)
                loss_d = bce(d(x), 1.0) + bce(d(made.detach()), 0.0)
                loss_d.backward()
                both[0].step()
                loss_g = bce(d(made), 1.0)
                loss_g.backward()
                both[1].step()
                return loss_d, loss_g

            return nn.Sequential(g, d), step

        (one, eager), (other, step) = make(), make()
        step = tessera.training_step(step, numerics="strict")
        for z, x in zip(noise, real):
            for a, b in zip(eager(z, x), step(z, x)):
                self.assertEqual(float(a), float(b))
        step.to_tensors()
        self.assert_same(one, other)

    def test_no_gradient_goes_through_an_update(self):
        w = tessera.tensor([2.0], requires_grad=True)
        seen = tessera.tensor([0.0])

        @tessera.training_step
        def step(x):
            (w * x).sum().backward()
            first = w.grad
            with tessera.no_grad():
                w.copy_(w - first * w)
            w.grad = None
            (w * w).sum().backward()
            seen.copy_(w.grad)
            return first

        self.assertEqual(step(np.float32([3])).tolist(), [3])  # w = 2 - 3 * 2
        step.to_tensors()
        self.assertEqual((w.tolist(), seen.tolist(), w.grad), ([-4], [-8], None))

    def test_derivatives_inside_and_loops(self):
        w = tessera.tensor([0.5, -0.25], requires_grad=True)
        kept = w.numpy()

        def loss_of(x):
            last, _ = tessera.scan(lambda h, row: ((h * w + row).tanh(),) * 2, np.zeros(2, np.float32), x)
            return (last * last).sum()

        def body(x):
            w.grad = None
            loss = loss_of(x)
            loss.backward(np.float32(2))
            inner = tessera.grad(lambda v: (v * v * w).sum())(x[0])
            with tessera.no_grad():
                w.copy_(w - 0.1 * w.grad)
            return loss, inner

        x = floats(5, 2)
        eager = [value.numpy() for value in body(x)], w.numpy()
        w.copy_(kept)
        step = tessera.training_step(body, numerics="strict")
        compiled = [value.numpy() for value in step(x)]
        step.to_tensors()
        np.testing.assert_allclose(compiled[0], eager[0][0], rtol=1e-6)
        np.testing.assert_allclose(compiled[1], eager[0][1], rtol=1e-6)
        np.testing.assert_allclose(w.numpy(), eager[1], rtol=1e-6)

    def test_a_rate_that_changes(self):
        w = tessera.tensor([1.0], requires_grad=True)
        optimizer = optim.SGD([w], lr=1.0)

        @tessera.training_step
        def step(rate):
            optimizer.lr = rate
            optimizer.zero_grad()
            (w * 3.0).sum().backward()
            optimizer.step()
            return w

        self.assertEqual(step(np.float32(0.5)).tolist(), [-0.5])
        self.assertEqual(step(np.float32(0.25)).tolist(), [-1.25])

    def test_a_state_read_twice_while_it_changes(self):
        """A batch normalisation that is called twice before backward(), eager too: the running mean has no gradient."""
        models = [nn.BatchNorm2d(2), nn.BatchNorm2d(2)]
        x = floats(2, 4, 2, 3, 3)

        def body(model):
            def step(a, b):
                (model(a) * model(b)).sum().backward()
                gradient = model.weight.grad
                model.weight.grad = None
                return gradient

            return step

        eager, step = body(models[0]), tessera.training_step(body(models[1]), numerics="strict")
        np.testing.assert_array_equal(eager(*x).numpy(), step(*x).numpy())
        step.to_tensors()
        self.assert_same(*models)

    def test_refusals(self):
        w = tessera.tensor([1.0], requires_grad=True)

        @tessera.training_step
        def step(x):
            w.copy_(w + x)
            return w

        with self.assertRaisesRegex(tessera.Error, "has not run yet"):
            _ = step.model
        step(np.float32([1]))
        with self.assertRaisesRegex(tessera.Error, "TSR-2071"):
            step(np.float64([1]))
        with self.assertRaisesRegex(tessera.Error, "changes no tensor"):
            tessera.training_step(lambda x: x * w)(np.float32([1]))
        with self.assertRaisesRegex(tessera.Error, "TSR-2074.*without a direction"):
            tessera.training_step(lambda x: (x * w).backward())(np.float32([1, 2]))
        with self.assertRaisesRegex(tessera.Error, "TSR-2076"):
            tessera.capture(lambda x: w.copy_(x), np.float32([1]))
        with self.assertRaisesRegex(tessera.Error, "TSR-2076"):
            tessera.training_step(lambda x: w.copy_(x) if x.sum() > 0 else x)(np.float32([1]))

    def test_dropout_is_the_compilers(self):
        """tessera.nn's dropout draws the numbers of the compiler's training step: a function of seed, call and place."""
        layer = nn.Dropout(0.25)
        layer.seed = 0x123456789ABCDEF
        x = np.ones((40, 50), np.float32)
        masks = [layer(tessera.tensor(x)).numpy() != 0 for _ in range(2)]

        def mixed(v):
            v ^= v >> 16
            v = v * 0x21F0AAAD & 0xFFFFFFFF
            v ^= v >> 15
            v = v * 0xD35A2D97 & 0xFFFFFFFF
            return v ^ v >> 15

        key = mixed(mixed((layer.seed & 0xFFFFFFFF) ^ mixed(0)) ^ layer.seed >> 32)
        for call, mask in enumerate(masks):
            first = mixed(key ^ call)
            second = mixed(first ^ 0x9E3779B9)
            wanted = [mixed(mixed(i ^ first) ^ second) >= 2**30 for i in range(x.size)]
            self.assertEqual(mask.ravel().tolist(), wanted)
        self.assertAlmostEqual(masks[0].mean(), 0.75, delta=0.05)


if __name__ == "__main__":
    unittest.main()
