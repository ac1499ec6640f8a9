#!/usr/bin/env python3
"""Losses of training steps beside PyTorch's, from the same weights, batches and settings.

    training_curves.py TESSERA [--match REGEX] [--steps 100] [--json FILE]

Networks without batch normalisation stay within 1e-5 of PyTorch's losses in f32 for 20 steps and within 1e-4 for 100. Where rounding
errors grow (with batch normalisations, or once random labels are learnt by heart), the losses are held against PyTorch's in f64: no
farther away than three times what PyTorch in f32 is. The
optimizers change the weights of a model of f64 as torch.optim does, to 1e-9 of the largest weight after 50 steps, by `tessera train`
and by tessera.optim. Runs with the Python of tests/python/torch_python.py; without one it is skipped."""

import argparse
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import other_python  # noqa: E402

if __name__ == "__main__":
    other_python.enter("torch", "torch")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import tessera  # noqa: E402
from tessera import optim  # noqa: E402

BATCHES, CLIP = 4, 1.0
FIRST_BOUND, BOUND, DRIFT = 1e-5, 1e-4, 3.0  # 20 steps, all of them, times PyTorch's own distance from f64
OPTIMIZER_BOUND = 1e-9


class CharLm(nn.Module):
    def __init__(self, vocab=65, h=256):
        super().__init__()
        self.emb, self.lstm, self.fc = nn.Embedding(vocab, h), nn.LSTM(h, h, 2, batch_first=True), nn.Linear(h, vocab)

    def forward(self, x):
        return self.fc(self.lstm(self.emb(x))[0])


class Residual(nn.Module):
    """Two convolutions with batch normalisations beside their input, as in ResNet."""

    def __init__(self, i, o, stride):
        super().__init__()
        self.a, self.na = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.b, self.nb = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.side = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.nb(self.b(torch.relu(self.na(self.a(x))))) + self.side(x))


class Separable(nn.Module):
    """An inverted bottleneck with a depthwise convolution, as in MobileNet V2."""

    def __init__(self, c, wide):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(c, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, c, 1, bias=False), nn.BatchNorm2d(c))  # fmt: skip

    def forward(self, x):
        return x + self.net(x)


def head(channels):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


# Name: the network, the shape of a batch, classes (of each place, for words), the learning rate, whether it has batch normalisations.
NETWORKS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), (32, 784), 10, 1e-3, False),
    "lenet": (lambda: nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)), (32, 1, 28, 28), 10, 1e-3, False),
    "lstm": (CharLm, (16, 64), 65, 1e-3, False),
    "residual": (lambda: nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), Residual(32, 32, 1), Residual(32, 64, 2),
        Residual(64, 128, 2), *head(128)), (8, 3, 32, 32), 10, 1e-4, True),
    "separable": (lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(), Separable(16, 96), Separable(16, 96), *head(16)),
        (8, 3, 32, 32), 10, 1e-4, True),
}  # fmt: skip

# Name: flags of `tessera train`, torch's optimizer, ours.
OPTIMIZERS = {
    "sgd": (["--optimizer", "sgd"], torch.optim.SGD, optim.SGD, {}),
    "momentum": (["--optimizer", "sgd", "--momentum", "0.9"], torch.optim.SGD, optim.SGD, {"momentum": 0.9}),
    "nesterov": (["--optimizer", "sgd", "--momentum", "0.9", "--nesterov", "--weight-decay", "0.01"], torch.optim.SGD, optim.SGD,
                 {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": (["--optimizer", "adam"], torch.optim.Adam, optim.Adam, {}),
    "adam, decay": (["--optimizer", "adam", "--weight-decay", "0.1"], torch.optim.Adam, optim.Adam, {"weight_decay": 0.1}),
    "adamw": (["--optimizer", "adamw", "--weight-decay", "0.1"], torch.optim.AdamW, optim.AdamW, {"weight_decay": 0.1}),
    "rmsprop": (["--optimizer", "rmsprop"], torch.optim.RMSprop, optim.RMSprop, {}),
    "rmsprop, momentum": (["--optimizer", "rmsprop", "--momentum", "0.9"], torch.optim.RMSprop, optim.RMSprop, {"momentum": 0.9}),
    "adagrad": (["--optimizer", "adagrad"], torch.optim.Adagrad, optim.Adagrad, {}),
}  # fmt: skip


def save(net, x, path):
    """For inference, with nothing folded: every parameter has its name."""
    net.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".pt2":
            torch.export.save(torch.export.export(net, (x,)), path)
        else:
            torch.onnx.export(net, (x,), path, dynamo=True, optimize=False, external_data=False, verbose=False)
    net.train()


def train(tessera_command, folder, model, x, y, steps, rate, more):
    """The losses of `tessera train`, with the batches in turn."""
    data = folder / "data.npz"
    np.savez(data, x=x.reshape(-1, *x.shape[2:]), y=y.reshape(-1, *y.shape[2:]))
    command = [tessera_command, "train", model, "--data", data, "--in-order", "--batch", x.shape[1], "--epochs", -(-steps // len(x)),
               "--lr", rate, "--threads", 1, "--json", *more]  # fmt: skip
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{run.stderr}")
    return json.loads(run.stdout)["losses"][:steps]


def torch_losses(net, x, y, steps, rate, double):
    if double:
        net = net.double()
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=0.01)
    losses = []
    for step in range(steps):
        batch = torch.from_numpy(x[step % BATCHES])
        optimizer.zero_grad()
        scores = net(batch.double() if double and batch.is_floating_point() else batch)
        loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), torch.from_numpy(y[step % BATCHES]).reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


def copy_of(net):
    buffer = io.BytesIO()
    torch.save(net, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)


def most(a, b, steps=None):
    return max(abs(p - q) for p, q in list(zip(a, b))[:steps])


def check_network(name, command, folder, steps):
    make, shape, classes, rate, has_norms = NETWORKS[name]
    torch.manual_seed(0)
    net = make().train()
    random = np.random.default_rng(0)
    if name == "lstm":
        words = random.integers(0, classes, (BATCHES, *shape[:-1], shape[-1] + 1))
        x, y = words[..., :-1].copy(), words[..., 1:].copy()
    else:
        x, y = random.standard_normal((BATCHES, *shape), dtype=np.float32), random.integers(0, classes, (BATCHES, shape[0]))
    model = folder / f"{name}{'.onnx' if name == 'lstm' else '.pt2'}"  # aten.lstm is not read
    save(net, torch.from_numpy(x[0]), model)
    more = ["--optimizer", "adamw", "--weight-decay", 0.01, "--clip-norm", CLIP] + ["--classes-last"] * (y.ndim > 2)
    ours = train(command, folder, model, x, y, steps, rate, more)
    theirs, exact = (torch_losses(copy_of(net), x, y, steps, rate, double) for double in (False, True))
    report = {"first": most(ours, theirs, 1), "20 steps": most(ours, theirs, 20), "all": most(ours, theirs),
              "off f64": most(ours, exact), "torch off f64": most(theirs, exact), "loss": [exact[0], exact[-1]]}  # fmt: skip
    held = report["off f64"] <= DRIFT * report["torch off f64"]
    if not has_norms:
        held = report["20 steps"] <= FIRST_BOUND and (held or report["all"] <= BOUND)
    return report, held and report["first"] <= 1e-6 * max(1.0, theirs[0])


def weights_of(module):
    return [p.detach().numpy().copy() for p in module.parameters()]


def distance(ours, theirs):
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(ours, theirs))


def check_optimizer(name, command, folder, steps=50, rate=0.01):
    flags, theirs, mine, settings = OPTIMIZERS[name]
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).double().train()
    random = np.random.default_rng(1)
    x, y = random.standard_normal((BATCHES, 12, 8)), random.integers(0, 4, (BATCHES, 12))
    first = weights_of(net)
    save(net, torch.from_numpy(x[0]), folder / "model.pt2")
    steps = steps // BATCHES * BATCHES
    checkpoint = folder / "weights.safetensors"
    checkpoint.unlink(missing_ok=True)
    train(command, folder, folder / "model.pt2", x, y, steps, rate, [*flags, "--checkpoint", checkpoint])
    kept = read_safetensors(checkpoint)
    names = [n for n, _ in net.named_parameters()]
    by_command = [kept[next(k for k in kept if k == n or k.endswith("." + n) or k.endswith("_" + n.replace(".", "_")))] for n in names]

    params = [tessera.Tensor(value, requires_grad=True) for value in first]
    own = mine(params, lr=rate, **settings)
    optimizer = theirs(net.parameters(), lr=rate, **settings)
    for step in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(torch.from_numpy(x[step % BATCHES])), torch.from_numpy(y[step % BATCHES])).backward()
        for param, p in zip(params, net.parameters()):
            param.grad = tessera.Tensor(p.grad.numpy().copy())  # the optimizer alone
        optimizer.step()
        own.step()
    last = weights_of(net)
    report = {"train": distance(by_command, last), "tessera.optim": distance([p.numpy() for p in params], last),
              "moved": distance(last, first)}  # fmt: skip
    return report, max(report["train"], report["tessera.optim"]) <= OPTIMIZER_BOUND < report["moved"]


def read_safetensors(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    types = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32}
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name != "__metadata__" and entry["dtype"] in types:
            begin, end = (8 + size + place for place in entry["data_offsets"])
            tensors[name] = np.frombuffer(raw[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera", help="the command")
    parser.add_argument("--match", default="", help="networks and optimizers whose names this is found in")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", help="write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    figures, failed = {}, []
    with tempfile.TemporaryDirectory() as folder:
        checks = [(n, lambda n=n: check_network(n, args.tessera, pathlib.Path(folder), args.steps)) for n in NETWORKS]
        checks += [(n, lambda n=n: check_optimizer(n, args.tessera, pathlib.Path(folder))) for n in OPTIMIZERS]
        for name, check in checks:
            if not re.search(args.match, name):
                continue
            if name == "lstm" and not importlib.util.find_spec("onnxscript"):
                print("lstm: left out, because PyTorch writes no ONNX without the package onnxscript")
                continue
            figures[name], held = check()
            text = ", ".join(f"{key} {value:.1e}" if isinstance(value, float) else f"{key} {value[0]:.4f} to {value[1]:.4f}"
                             for key, value in figures[name].items())  # fmt: skip
            print(f"{name}: {text}{'' if held else '  FAILED'}", flush=True)
            failed += [] if held else [name]
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(figures, indent=1))
    if not figures:
        sys.exit(f"nothing matches {args.match!r}")
    if failed:
        sys.exit(f"too far away: {', '.join(failed)}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
