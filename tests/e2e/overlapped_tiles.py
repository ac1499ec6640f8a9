#!/usr/bin/env python3
"""Kernels that run strip by strip together (schedule/fusion/overlapped_tiles.h), from ONNX to results: beside the same model with the
step disabled, on one thread and two. The images are a batch that no cache holds, so that chains are made on every machine;
a shape that no strip divides is none. What `explain` says names all nodes of a chain.

    .venv/bin/python tests/e2e/overlapped_tiles.py build/bin/tessera
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import parser

ONE = "<kernel_shape=[1,1]>"
# Name, images of 8 channels, rows, the nodes, and how many chains they make; e.g. the second number of a shape is what
# the first operand has.
MODELS = [
    ("inverted residual", 64, 64,
     f"a = Conv{ONE}(x, widen) b = Clip(a, low, high) c = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=48>(b, filter) "
     f"d = Clip(c, low, high) e = Conv{ONE}(d, narrow) z = Add(e, x)", 1),
    ("convolution and pool", 64, 64,
     f"a = Conv{ONE}(x, widen) b = Relu(a) z = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(b)", 1),
    ("mean of rows without padding", 64, 66,
     f"a = Conv{ONE}(x, widen) b = Relu(a) z = AveragePool<kernel_shape=[3,3]>(b)", 1),
    ("rows that no strip divides", 64, 61,
     f"a = Conv{ONE}(x, widen) b = Relu(a) z = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(b)", 0),
    ("small images", 1, 16,
     f"a = Conv{ONE}(x, widen) b = Relu(a) z = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(b)", 0),
]


def main():
    tessera = sys.argv[1]
    rng = np.random.default_rng(3)
    weights = {"widen": (48, 8, 1, 1), "filter": (48, 1, 3, 3), "narrow": (8, 48, 1, 1)}
    problems = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, images, rows, nodes, chains in MODELS:
            x = rng.normal(0, 1, (images, 8, rows, 64)).astype(np.float32)
            text = f"""<ir_version: 8, opset_import: ["" : 17]> chain (float[{','.join(map(str, x.shape))}] x) => (float[n,c,h,w] z)
                <float low = {{0}}, float high = {{6}}> {{ {nodes} }}"""
            model = parser.parse_model(text)
            for key, shape in weights.items():
                if key in nodes:
                    array = rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)
                    model.graph.initializer.append(onnx.numpy_helper.from_array(array, key))
            onnx.save(model, folder / "m.onnx")
            np.save(folder / "x.npy", x)
            # Level v2 has the cache sizes that the compiler takes for typical, not those of this machine.
            for threads in ("1", "2"):
                options = ["--target", "x86-64-v2", "--threads", threads]
                results = []
                for extra in ([], ["--disable-pass", "overlapped_tiles"]):
                    run = subprocess.run(
                        [tessera, "run", folder / "m.onnx", "--no-cache", *options, *extra, "--input",
                         f"x=@{folder / 'x.npy'}", "--output", f"@{folder / 'z.npy'}"],
                        capture_output=True, text=True, check=False)
                    if run.returncode != 0:
                        problems.append(f"{name}, {threads} threads: {run.stderr}")
                        break
                    results.append(np.load(folder / "z.npy"))
                else:
                    off = np.abs(results[0] - results[1]).max() / np.abs(results[1]).max()
                    if not off <= 1e-5:
                        problems.append(f"{name}, {threads} threads: off by {off:.2g} of the largest element")
                said = json.loads(subprocess.run([tessera, "explain", folder / "m.onnx", "--json", *options],
                                                 capture_output=True, text=True, check=True).stdout)
                made = [kernel for kernel in said["kernels"] if kernel["rule"] == "overlapped_tiles"]
                if len(made) != chains:
                    problems.append(f"{name}, {threads} threads: {len(made)} chains instead of {chains}")
                if any("merged" in json.dumps(node) for node in said["nodes"]):
                    problems.append(f"{name}, {threads} threads: a node became nothing of its own")
    print(*problems, f"{len(MODELS)} models, {len(problems)} problems", sep="\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
