#!/usr/bin/env python3
"""Networks of the suite on OpenCL, whatever device the machine has; in CI that is the CPU, by PoCL.

    opencl.py TESSERA [--full] [--models NAME,...]

The outputs are those of ONNX Runtime; a LeNet learns on it as it does on the CPU. Two networks in turn with the date and
resnet18; all with --full or TESSERA_TEST_FULL=1. Skipped where OpenCL has no device.
"""
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import model_runs as runs
from suite_models import LARGE, QUICK

SHARE = 2


def selection():
    if "--models" in sys.argv:
        return sys.argv[sys.argv.index("--models") + 1].split(",")
    if runs.is_full():
        return QUICK + LARGE
    others = [name for name in QUICK if name != "resnet18"]
    return ["resnet18"] + [others[(runs.today() * SHARE + i) % len(others)] for i in range(SHARE)]


def lenet(random):
    """A LeNet for a batch of 8, in which everything happens: convolutions, pooling, products, their gradients."""
    def weights(name, *shape):
        return numpy_helper.from_array((random.standard_normal(shape) * 0.15).astype(np.float32), name)
    node = helper.make_node
    nodes = [node("Conv", ["x", "w1", "b1"], ["c1"], pads=[2, 2, 2, 2]), node("Relu", ["c1"], ["r1"]),
             node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
             node("Conv", ["p1", "w2", "b2"], ["c2"]), node("Relu", ["c2"], ["r2"]),
             node("MaxPool", ["r2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]), node("Flatten", ["p2"], ["f"]),
             node("Gemm", ["f", "w3", "b3"], ["h1"]), node("Relu", ["h1"], ["h2"]), node("Gemm", ["h2", "w4", "b4"], ["y"])]
    graph = helper.make_graph(nodes, "lenet", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 1, 28, 28])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 10])],
                              [weights("w1", 6, 1, 5, 5), weights("b1", 6), weights("w2", 16, 6, 5, 5), weights("b2", 16),
                               weights("w3", 400, 84), weights("b3", 84), weights("w4", 84, 10), weights("b4", 10)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check_training(binary, count, target="opencl"):
    random = np.random.default_rng(runs.today())
    with tempfile.TemporaryDirectory() as work:
        onnx.save(lenet(random), f"{work}/lenet.onnx")
        labels = random.integers(0, 10, 64)
        images = random.standard_normal((64, 1, 28, 28)).astype(np.float32) * 0.3
        for image, label in zip(images, labels):
            image[0, 2 * label:2 * label + 4, 4:20] += 1
        np.savez(f"{work}/data.npz", x=images, y=labels)
        losses = []
        for options in ([], ["--target", target]):
            done = subprocess.run([binary, "train", f"{work}/lenet.onnx", "--data", f"{work}/data.npz", "--epochs", "2", "-o",
                                   f"{work}/trained.onnx", *options], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            losses.append([float(number) for number in re.findall(r"loss +([0-9.]+)", done.stdout)])
            if done.returncode or not losses[-1]:
                return count.result("training of LeNet", f"exit code {done.returncode}: {done.stdout.strip()}")
        error = float(np.max(np.abs(np.subtract(*losses)))) / max(losses[0])
        count.result("training of LeNet", error if error < 1e-3 else f"losses {losses[1]} instead of {losses[0]}")


def main():
    binary = os.path.abspath(sys.argv[1])
    count = runs.Count()
    for name in selection():
        with tempfile.TemporaryDirectory() as work:
            model, feeds = runs.suite_model(name)
            path = f"{work}/{name}.onnx"
            onnx.save(model, path)
            want = runs.onnx_runtime(path, feeds)
            module = f"{work}/{name}.so"
            problem = runs.tessera(binary, "compile", path, "-o", module, "--target", "opencl")
            got = problem or runs.run([binary, "run", module], feeds, len(want), work)
            if isinstance(got, str) and "TSR-7019" in got:
                count.skip(name, got.strip().splitlines()[0])
                continue
            count.result(name, got if isinstance(got, str) else runs.compare(got, want))
            count.result(f"{name}: times", runs.check_times(binary, module, "opencl"))
    if count.passed:
        check_training(binary, count)
    if count.skipped and not count.passed + count.failed:
        print("SKIPPED: OpenCL has no device here")
        return 77
    return count.exit_code()


if __name__ == "__main__":
    sys.exit(main())
