#!/usr/bin/env python3
"""torch.compile(backend="tessera") and .pt2 programs beside PyTorch.

    torch_test.py TESSERA [--match REGEX]

Runs with the Python of torch_python.py; without one it is skipped."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

import torch_python

ROOT = torch_python.ROOT


if __name__ == "__main__":
    torch_python.enter()

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import tessera  # noqa: E402
import tessera.torch  # noqa: E402
import torch_operators  # noqa: E402
from torch_same import same  # noqa: E402


def compiled(function, *inputs, what, dynamic=False, allow_eager=False, **options):
    torch._dynamo.reset()
    tessera.torch.reset()
    run = torch.compile(function, backend="tessera", dynamic=dynamic, **options)
    with torch.no_grad():
        same(run(*inputs), function(*inputs), what)
    for report in tessera.torch.reports():
        assert allow_eager or not (report.eager or report.reason), f"{what}: {report}"
    return run


def check_operators():
    """Every operator by families: fixed and random shapes, several dtypes."""
    failures = []
    for name, function, inputs in torch_operators.cases():
        try:
            compiled(function, *inputs, what=name)
        except Exception as error:  # noqa: BLE001 - all failures are listed
            failures.append(f"{name}: {str(error).strip().splitlines()[0] if str(error).strip() else error!r}")
    print("\n".join(failures))
    assert not failures, f"{len(failures)} of the operator cases fail"


def resnet():
    import torchvision
    torch.manual_seed(0)
    return torchvision.models.resnet18(weights=None).eval()


def check_resnet():
    model, x = resnet(), torch.randn(1, 3, 64, 64)
    run = compiled(model, x, what="resnet18")
    report = tessera.torch.last_report()
    assert report.frozen == 102 and len(report.regions) == 1 and report.compiled == report.operators, str(report)
    # Frozen parameters that change are noticed.
    with torch.no_grad():
        model.fc.bias.add_(1)
        same(run(x), model(x), "resnet18 with another bias")
        assert report.recompiled == 1, report
        model.fc.bias = torch.nn.Parameter(torch.zeros_like(model.fc.bias))
        same(run(x), model(x), "resnet18 with a new bias")


def check_frontend():
    """The four steps: import, build, set, run."""
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)).eval()
    x = torch.randn(4, 6)
    module, params = tessera.frontend.from_pytorch(model, [("x", (4, 6))])
    built = tessera.build(module, params=params)
    built.set_input("x", x.numpy())
    built.run()
    with torch.no_grad():
        np.testing.assert_allclose(built.get_output(0), model(x).numpy(), rtol=1e-5, atol=1e-6)


def check_open_sizes():
    """One compiled program for all batches: nothing is compiled again."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
                                torch.nn.Flatten(), torch.nn.Linear(8, 5)).eval()
    run = compiled(model, torch.randn(2, 3, 9, 9), what="open batch", dynamic=True)
    with torch.no_grad():
        for batch, extent in ((3, 9), (7, 12), (4, 31)):
            x = torch.randn(batch, 3, extent, extent)
            same(run(x), model(x), f"batch {batch}, extent {extent}")
    assert len(tessera.torch.reports()) == 1, tessera.torch.reports()
    report = tessera.torch.last_report()
    assert report.regions[0].symbols and report.eager_runs == 0, report
    # Factors of open sizes are computed by operators of the library prims.
    decoder = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.Upsample(scale_factor=2),
                                  torch.nn.ConvTranspose2d(8, 3, 4, 2, 1)).eval()
    run = compiled(decoder, torch.randn(1, 3, 16, 16), what="upsampling of open sizes", dynamic=True)
    with torch.no_grad():
        for extent in (9, 31):
            x = torch.randn(1, 3, extent, extent)
            same(run(x), decoder(x), f"upsampling of {extent}")


def check_fallback():
    """What is not read is left to PyTorch, named and counted; the rest is compiled."""
    def function(x):
        y = torch.relu(x @ x) + 1
        return torch.special.airy_ai(y) * 2 + y

    compiled(function, torch.rand(4, 4), what="fallback", allow_eager=True)
    report = tessera.torch.last_report()
    assert [target for _, target, _ in report.eager] == ["aten.special_airy_ai.default"], report.eager
    assert len(report.regions) >= 1 and report.compiled >= 4, report
    assert "1 x aten.special_airy_ai.default left to PyTorch" in str(report), report
    # Complex numbers are PyTorch's, and what reads them.
    compiled(lambda x: torch.fft.fft(x * 2).real.relu() + 1, torch.rand(4, 4), what="complex numbers", allow_eager=True)
    report = tessera.torch.last_report()
    assert report.compiled >= 1 and any("complex" in reason for _, _, reason in report.eager), report
    # With gradients all of it is PyTorch's.
    torch._dynamo.reset()
    layer = torch.nn.Linear(3, 2)
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.compile(layer, backend="tessera")(torch.randn(1, 3)).sum().backward()
    assert layer.weight.grad is not None and any("no_grad" in str(w.message) for w in caught)


class Counter(torch.nn.Module):
    """A buffer that each run changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


def check_changes():
    """Buffers that the model writes to, and parameters that keep changing."""
    torch._dynamo.reset()
    tessera.torch.reset()
    model, expected = Counter(), Counter()
    run = torch.compile(model, backend="tessera", dynamic=False)
    with torch.no_grad():
        for step in range(1, 4):
            same(run(torch.ones(3)), expected(torch.ones(3)), f"counter, step {step}")
            assert torch.equal(model.total, expected.total), step
    report = tessera.torch.last_report()
    assert report.recompiled == 0 and report.frozen == 0 and not report.eager, report
    layer = torch.nn.Linear(3, 2)
    run = torch.compile(layer, backend="tessera", dynamic=False)
    with torch.no_grad():
        for step in range(8):
            layer.weight.mul_(0.5)
            same(run(torch.ones(1, 3)), layer(torch.ones(1, 3)), f"another weight, step {step}")
    report = tessera.torch.last_report()
    assert report.recompiled == 5 and report.frozen == 0, report


def memory(tensors):
    return [(t.stride(), t.storage_offset(), [t.untyped_storage().data_ptr() == o.untyped_storage().data_ptr() for o in tensors])
            for t in tensors if isinstance(t, torch.Tensor)]


def check_views():
    """Results that are views of inputs, or of each other, are that; sizes that are results are numbers."""
    def of_inputs(x):
        return x[x.shape[0] // 2:], x.t()[1:], x.expand(3, *x.shape), x.chunk(2)[1], x, x.sum(0)

    def of_results(x):
        y = x * 2
        return y, y[1:], y.t(), y[x.shape[0] // 2:].t(), x.shape[0] * 2 + 1

    def lone(x):
        return (x * 2)[1:], (x + 1).t()

    for function in (of_inputs, of_results, lone):
        for dynamic in (False, True):
            run = compiled(function, torch.randn(4, 5), what=function.__name__, dynamic=dynamic)
            with torch.no_grad():
                for rows in (4, 6, 9):
                    x = torch.randn(rows, 5)
                    got, want = run(x), function(x)
                    same([*got[:4]], [*want[:4]], f"{function.__name__} of {rows}")
                    if function is not lone:
                        assert memory(got[:4]) == memory(want[:4]), (function.__name__, rows, memory(got[:4]), memory(want[:4]))
                        assert not isinstance(want[-1], int) or got[-1] == want[-1], (got[-1], want[-1])
    # A number that is an input and nobody's size.
    torch._dynamo.reset()
    run = torch.compile(lambda x, n: (torch.arange(n) + x[0], n * 2 + 1, x * n), backend="tessera", dynamic=True)
    with torch.no_grad():
        for n in (4, 7, 20):
            got = run(torch.ones(3), n)
            assert got[0].shape == (n,) and got[1] == 2 * n + 1 and (got[2] == n).all(), got


def check_inference_tensors():
    """Weights made in inference mode have no version: they are not frozen."""
    torch._dynamo.reset()
    with torch.inference_mode():
        layer = torch.nn.Linear(3, 2)
        run = torch.compile(layer, backend="tessera")
        for _ in range(3):
            layer.weight.mul_(0.5)
            same(run(torch.ones(1, 3)), layer(torch.ones(1, 3)), "weights of inference mode")


def check_pt2(tessera_command):
    """Programs of torch.export, by the command line and by the package."""
    with tempfile.TemporaryDirectory() as folder:
        batch = torch.export.Dim("batch", min=1, max=8)
        for name, decomposed in (("raw", False), ("core", True)):
            model, x = resnet(), torch.randn(2, 3, 64, 64)
            program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
            if decomposed:
                program = program.run_decompositions()
            path = f"{folder}/{name}.pt2"
            torch.export.save(program, path)
            done = subprocess.run([tessera_command, "compile", path, "-o", f"{folder}/{name}.so"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            module = tessera.load(f"{folder}/{name}.so")
            with torch.no_grad():
                for count in (1, 5):
                    x = torch.randn(count, 3, 64, 64)
                    same(torch.from_numpy(module.run([x.numpy()])[0]), model(x), f"{name}.pt2, batch {count}")
        # Rows that see nothing are zeros.
        class Masked(torch.nn.Module):
            def forward(self, q, mask):
                return F.scaled_dot_product_attention(q, q, q, mask), F.scaled_dot_product_attention(q, q, q, torch.log(mask.float()))

        example = torch.randn(1, 2, 5, 8), torch.arange(25).reshape(5, 5).tril() > 0
        torch.export.save(torch.export.export(Masked(), example), f"{folder}/masked.pt2")
        got = tessera.compile(f"{folder}/masked.pt2").run([t.numpy() for t in example])
        same([torch.from_numpy(y) for y in got], Masked()(*example), "masked.pt2")
        program = torch.export.export(Counter().eval(), (torch.ones(3),)).run_decompositions()
        torch.export.save(program, f"{folder}/counter.pt2")
        counter = tessera.compile(f"{folder}/counter.pt2")
        for step in (1, 2, 3):
            (y,) = counter.run([np.ones(3, np.float32)])
            assert (y == 2 * step).all(), (step, y)


def check_transformer():
    """A layer with attention, masked and causal, of open length."""
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.norm = torch.nn.Linear(32, 96), torch.nn.LayerNorm(32)

        def forward(self, x, mask):
            q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return x + y.transpose(1, 2).flatten(2), F.scaled_dot_product_attention(q, k, v, is_causal=True)

    layer = Layer().eval()
    mask = torch.rand(2, 1, 1, 10) > 0.3
    compiled(layer, torch.randn(2, 10, 32), mask, what="transformer layer")
    run = compiled(layer, torch.randn(2, 10, 32), mask, what="transformer layer of open length", dynamic=True)
    with torch.no_grad():
        x, mask = torch.randn(2, 23, 32), torch.rand(2, 1, 1, 23) > 0.3
        same(run(x, mask), layer(x, mask), "transformer layer of another length")


def check_docs():
    """The blocks of docs/pytorch.md, in order, in a folder of their own."""
    torch._dynamo.reset()
    text, names = (ROOT / "docs/pytorch.md").read_text(), {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for block in re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M):
            exec(block, names)
        os.chdir(ROOT)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera", type=os.path.abspath)
    parser.add_argument("--match", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    checks = {"operators": check_operators, "resnet": check_resnet, "frontend": check_frontend,
              "open_sizes": check_open_sizes, "fallback": check_fallback, "changes": check_changes, "views": check_views,
              "inference_tensors": check_inference_tensors, "pt2": lambda: check_pt2(args.tessera),
              "transformer": check_transformer, "docs": check_docs}
    failed = 0
    for name, check in checks.items():
        if not re.search(args.match, name):
            continue
        begin = time.monotonic()
        try:
            check()
            print(f"ok    {name} ({time.monotonic() - begin:.1f} s)")
        except Exception as error:  # noqa: BLE001
            failed += 1
            print(f"wrong {name}: {error}")
            if not isinstance(error, AssertionError):
                import traceback
                traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
