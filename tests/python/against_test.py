"""`tessera verify MODEL.onnx --against module.py`: a faithful export passes, a changed one is found and its operator named.

    against_test.py TESSERA"""

import os
import pathlib
import subprocess
import sys
import tempfile

import other_python

other_python.enter("torch", "torch, onnx")

import onnx
import torch

MODULE = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)

    def forward(self, x):
        return torch.softmax(self.b(torch.nn.functional.gelu(self.n(self.a(x)))), -1)


torch.manual_seed(0)
model = Net()
"""


def verify(tessera, folder, name, against):
    environment = {**os.environ, "TESSERA_PYTHON": sys.executable}
    return subprocess.run([tessera, "verify", name, "--against", against], cwd=folder, capture_output=True, text=True, env=environment)


def main():
    tessera = pathlib.Path(sys.argv[1]).resolve()
    failed = []

    def check(name, done, code, part):
        if done.returncode != code or part not in done.stdout + done.stderr:
            failed.append(name)
            print(f"FAILED {name}: exit code {done.returncode}, wanted {code} with {part!r}\n{done.stdout}{done.stderr[-800:]}")
        else:
            print(f"ok {name}")

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "module.py").write_text(MODULE)
        names = {}
        exec(MODULE, names)
        model = names["model"].eval()
        example = (torch.randn(2, 6),)
        batch = ({0: torch.export.Dim("n", min=1, max=16)},)
        torch.export.save(torch.export.export(model, example, dynamic_shapes=batch), folder / "net.pt2")
        torch.onnx.export(
            model, example, str(folder / "net.onnx"), dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}, opset_version=17
        )
        check("faithful", verify(tessera, folder, "net.onnx", "module.py"), 0, "same for 3x6")
        check("beside a .pt2 file", verify(tessera, folder, "net.onnx", "net.pt2"), 0, "same for 3x6")
        check("a .pt2 file itself", verify(tessera, folder, "net.pt2", "module.py"), 0, "same for 2x6")
        changed = onnx.load(folder / "net.onnx")
        for node in changed.graph.node:
            if node.op_type == "LayerNormalization":
                node.attribute[[a.name for a in node.attribute].index("epsilon")].f = 0.5
        onnx.save(changed, folder / "changed.onnx")
        check("changed", verify(tessera, folder, "changed.onnx", "module.py"), 2, "aten.layer_norm.default 'layer_norm'")
        (folder / "empty.py").write_text("x = 1\n")
        check("no module", verify(tessera, folder, "net.onnx", "empty.py"), 1, "TSR-4084")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
