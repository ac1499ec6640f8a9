#!/usr/bin/env python3
"""Attention as networks have it (one projection for queries, keys and values) at sizes whose rows are cut into blocks,
or not, and whose columns are: beside numpy in f64, on every target that this machine runs. Its scores are never in
memory as a whole, and the innermost loops of its products use no stack.

    .venv/bin/python tests/e2e/attention.py build/bin/tessera [--random N]
"""
import argparse
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# batch, places, heads, elements of a head, mask
CASES = [(1, 1, 2, 16, None), (1, 49, 3, 32, "bias"), (2, 300, 2, 24, "padding"), (1, 333, 5, 33, "causal"),
         (1, 1500, 2, 64, None), (1, 1024, 1, 40, "causal"), (1, 700, 3, 20, "padding"), (1, 1100, 2, 16, "holes"),
         (1, 2048, 1, 8, "causal"), (2, 1030, 1, 16, "padding")]


def model_of(batch, places, heads, depth, mask, rng):
    """The model, with the input x of batch x places x 3 widths and, for padding, the mask of batch x 1 x 1 x places, for
    holes of 1 x 1 x places x places."""
    width = heads * depth
    constants = {"split": np.array([width] * 3), "apart": np.array([batch, places, heads, depth]),
                 "together": np.array([batch, places, width]), "scale": np.float32(depth ** -0.5)}
    nodes = [helper.make_node("Split", ["x", "split"], ["q0", "k0", "v0"], axis=2)]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(helper.make_node("Reshape", [name + "0", "apart"], [name + "1"]))
        nodes.append(helper.make_node("Transpose", [name + "1"], [name], perm=order))
    nodes.append(helper.make_node("MatMul", ["q", "k"], ["products"]))
    nodes.append(helper.make_node("Mul", ["products", "scale"], ["scaled"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, places, 3 * width])]
    added = None
    if mask == "bias":
        added = rng.standard_normal((heads, places, places)).astype(np.float32)
    elif mask == "causal":
        added = np.where(np.tri(places) > 0, 0, -np.inf).astype(np.float32)
    if added is not None:
        constants["mask"] = added
    if mask in ("padding", "holes"):
        dims = [batch, 1, 1, places] if mask == "padding" else [1, 1, places, places]
        inputs.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, dims))
    if mask:
        nodes.append(helper.make_node("Add", ["scaled", "mask"], ["scores"]))
    nodes.append(helper.make_node("Softmax", ["scores" if mask else "scaled"], ["weights"], axis=-1))
    nodes.append(helper.make_node("MatMul", ["weights", "v"], ["mixed"]))
    nodes.append(helper.make_node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3]))
    nodes.append(helper.make_node("Reshape", ["turned", "together"], ["y"]))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, places, width])
    graph = helper.make_graph(nodes, "attention", inputs, [output],
                              [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model, added


def holes(places, rng):
    """A mask whose rows begin with places that are masked, up to whole blocks of columns and whole rows (which become
    NaN), and which has a few NaN, +inf and lowest numbers; of a few places zeros."""
    if places < 32:
        return np.zeros((1, 1, places, places), np.float32)
    mask = np.where(rng.random((places, places)) < 0.5, 0, -np.inf).astype(np.float32)
    for row in range(places):
        mask[row, :rng.choice([0, 1, places // 3, places * 2 // 3, places - 1])] = -np.inf
    mask[::7] = np.where(mask[::7] == 0, 0, np.finfo(np.float32).min)
    mask[3] = -np.inf
    mask[5] = np.finfo(np.float32).min
    mask[8, places // 2], mask[9, places - 2], mask[10, 1] = np.nan, np.inf, np.inf
    return mask[None, None]


def reference(x, heads, added):
    batch, places, width = x.shape
    q, k, v = (part.reshape(batch, places, heads, -1).transpose(0, 2, 1, 3)
               for part in np.split(x.astype(np.float64), 3, 2))
    scores = q @ k.transpose(0, 1, 3, 2) * np.float64(np.float32(q.shape[3] ** -0.5))
    if added is not None:
        scores = scores + added
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis=3, keepdims=True))
        weights /= weights.sum(axis=3, keepdims=True)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(batch, places, width // 3)


def check(tessera, folder, case, settings, rng):
    """What is wrong; None when nothing is."""
    batch, places, heads, depth, mask = case
    model, added = model_of(*case, rng)
    onnx.save(model, folder / "m.onnx")
    arrays = {"x": rng.standard_normal((batch, places, 3 * heads * depth)).astype(np.float32)}
    if mask == "padding":
        added = arrays["mask"] = np.where(rng.random((batch, 1, 1, places)) < 0.7, 0, -10000).astype(np.float32)
    if mask == "holes":
        added = arrays["mask"] = holes(places, rng)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    want = reference(arrays["x"], heads, added)
    for flags in settings:
        command = [tessera, "run", folder / "m.onnx", "--no-cache", "--output", f"@{folder / 'y.npy'}", *flags]
        for name in arrays:
            command += ["--input", f"{name}=@{folder / name}.npy"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            return f"{case} {flags}: {run.stderr}"
        got = np.load(folder / "y.npy")
        if not np.array_equal(np.isnan(got), np.isnan(want)):
            return f"{case} {flags}: NaN in other places than by the definition"
        off = np.nanmax(np.abs(got - want)) / np.nanmax(np.abs(want))
        allowed = 2e-2 if "bf16" in flags else 1e-4  # bf16 has 8 bits
        if not off <= allowed:
            return f"{case} {flags}: off by {off:.2g} of the largest element, {allowed} is allowed"
    return None


def check_code(tessera, folder, case, target, rng):
    """What is wrong with the code."""
    onnx.save(model_of(*case, rng)[0], folder / "m.onnx")

    def text_of(kind):
        command = [tessera, "compile", folder / "m.onnx", "--target", target, "--threads", "1", "--emit", kind]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    problems = []
    places = case[1]
    loops = text_of("loop")
    sizes = [int(size) for size in re.findall(r"alloc \w+: f32\[(\d+)\]", loops)]
    if places > 128 and max(sizes) >= places * places:
        problems.append(f"{case} for {target}: all scores of a head are in memory")
    is_long = places >= (2048 if case[4] == "causal" else 1024)
    if ("alloc largest" in loops) != is_long:
        problems.append(f"{case} for {target}: rows of scores are {'whole' if is_long else 'cut'}")
    products = 0
    body, label = [], None
    for line in text_of("asm").splitlines():
        if found := re.match(r"(\.L\w+):", line):
            body, label = [], found[1]
        elif re.match(rf"\s+j\w+\s+{label}$", line):
            # Exponentials have other instructions than multiply-adds.
            if sum("vfmadd231ps" in each for each in body) >= 8 and not any("vmaxps" in each for each in body):
                products += 1
                if any("%rsp" in each or "%rbp" in each for each in body):
                    problems.append(f"{case} for {target}: registers are spilled in a product's innermost loop")
        else:
            body.append(line)
    if products < 2:
        problems.append(f"{case} for {target}: {products} loops of products were found, of at least 2")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--random", type=int, default=0, help="further cases, drawn by chance")
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    draw = random.Random(args.random)
    cases = CASES + [(draw.choice([1, 1, 2, 5]),
                      draw.choice([1, 2, 17, 49, 64, 128, 200, 513, 1200]) + draw.choice([0, 0, 1]), draw.randint(1, 6),
                      draw.choice([1, 7, 16, 31, 64, 80]), draw.choice([None, "bias", "padding", "causal", "holes"]))
                     for _ in range(args.random)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        settings = [["--threads", "1"], ["--threads", "3"], ["--precision", "bf16", "--threads", "1"]]
        for target in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
            runs = subprocess.run([args.tessera, "run", write_probe(folder), "--target", target], capture_output=True,
                                  check=False)
            if runs.returncode:
                print(f"skipped: this machine does not run {target}")
            else:
                settings.append(["--target", target, "--threads", "1"])
        problems = [problem for case in cases if (problem := check(args.tessera, folder, case, settings, rng))]
        for target in ("x86-64-v3", "x86-64-v4"):
            for case in ((1, 128, 12, 64, None), (1, 1500, 6, 64, None), (1, 1024, 12, 64, "causal"), (1, 2048, 2, 64, "causal")):
                problems += check_code(args.tessera, folder, case, target, rng)
    print(*problems, f"{len(cases)} cases with {len(settings)} settings each, {len(problems)} wrong", sep="\n")
    sys.exit(1 if problems else 0)


def write_probe(folder):
    model, _ = model_of(1, 2, 1, 4, None, np.random.default_rng(0))
    onnx.save(model, folder / "probe.onnx")
    return folder / "probe.onnx"


if __name__ == "__main__":
    main()
