#!/usr/bin/env python3
"""One row by a matrix whose weights are stored in 4 or 8 bits (MatMulNBits), beside ONNX Runtime and the machine's memory.

    bench/weight_only.py TESSERA [--threads 1] [--bits 4] [--group 32,128] [--rows 1] [--precision f32] [--only llama] [--json FILE]

Shapes of GPT-2 small and Llama 7B. For each: the median time of interleaved rounds, the bytes of weights and scales over it,
and that as a share of what one sequential read of memory gives (tessera bench --kernels measures it in the same minute).
Matrices that fit a cache are read from it: theirs is no share of memory."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

SHAPES = {  # steps of the sum, columns
    "gpt2 attn": (768, 2304), "gpt2 proj": (768, 768), "gpt2 fc": (768, 3072), "gpt2 mlp": (3072, 768), "gpt2 head": (768, 50257),
    "llama attn": (4096, 4096), "llama gate": (4096, 11008), "llama down": (11008, 4096), "llama head": (4096, 32000),
}


def model_of(rows, steps, columns, bits, group, path):
    rng = np.random.default_rng(steps + columns)
    blocks = (steps + group - 1) // group
    weights = rng.integers(0, 256, (columns, blocks, group * bits // 8), dtype=np.uint8)
    scales = (rng.random((columns * blocks,), dtype=np.float32) + 0.5) / 100
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=steps, N=columns, bits=bits,
                            block_size=group)
    graph = helper.make_graph(
        [node], "weight_only", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, steps])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
        [onnx.numpy_helper.from_array(weights, "w"), onnx.numpy_helper.from_array(scales, "s")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
                                ir_version=9), path)
    return weights.nbytes + scales.nbytes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tessera")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--group", default="32,128")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="f32", help="i8 rounds the row to bytes, 32 with a scale each")
    parser.add_argument("--only", default="", help="shapes whose name has this in it")
    parser.add_argument("--json")
    given = parser.parse_args()
    try:
        import onnxruntime
    except ImportError:
        onnxruntime = None
        print("skipped: no onnxruntime to compare with", file=sys.stderr)
    found = []
    with tempfile.TemporaryDirectory() as work:
        for name, (steps, columns) in SHAPES.items():
            if given.only not in name:
                continue
            for group in map(int, given.group.split(",")):
                path = pathlib.Path(work) / "m.onnx"
                size = model_of(given.rows, steps, columns, given.bits, group, path)
                module = path.with_suffix(".so")
                subprocess.run([given.tessera, "compile", path, "-o", module, "--force", "-q", "--threads", str(given.threads),
                                "--precision", given.precision],
                               check=True)
                session, x = None, np.random.default_rng(0).standard_normal((given.rows, steps), dtype=np.float32)
                if onnxruntime:
                    options = onnxruntime.SessionOptions()
                    options.intra_op_num_threads = given.threads
                    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
                ours, peers, memory = [], [], []
                for _ in range(given.rounds):
                    done = subprocess.run([given.tessera, "bench", module, "--threads", str(given.threads), "--kernels", "--json"],
                                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
                    report = json.loads(done.stdout)
                    ours.append(report["median_ms"])
                    memory.append(next(level["gbytes"] for level in report["roofline"]["bandwidth"] if level["name"] == "memory"))
                    if session:
                        times = []
                        for _ in range(40):
                            begin = time.perf_counter()
                            session.run(None, {"x": x})
                            times.append(time.perf_counter() - begin)
                        peers.append(statistics.median(times) * 1e3)
                row = {"shape": name, "group": group, "bits": given.bits, "ms": statistics.median(ours),
                       "gbytes": size / statistics.median(ours) / 1e6, "memory_gbytes": statistics.median(memory),
                       "onnxruntime_ms": statistics.median(peers) if peers else None}
                found.append(row)
                print(f"{name:<11} {steps:>5} x {columns:<5} group {group:>3}: {row['ms']:8.3f} ms  {row['gbytes']:6.1f} GB/s, "
                      f"{100 * row['gbytes'] / row['memory_gbytes']:4.0f} % of {row['memory_gbytes']:.1f}"
                      + (f"   ONNX Runtime {row['onnxruntime_ms']:8.3f} ms" if peers else ""), flush=True)
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
