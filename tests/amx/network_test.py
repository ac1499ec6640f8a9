#!/usr/bin/env python3
"""Whole networks as machine code for AMX, whose instructions are emulated where the processor has none.

    network_test.py TESSERA AMX_NETWORK PRELOAD [PYTHON_PACKAGE]

amx_network compares them with multiply-adds of f32 on this processor. The module that it writes also runs in the
command, on two threads, and in the Python package, with the emulator loaded in front (PRELOAD); every configuration of
tiles is released there. A network of quantised convolutions has to be the same bit for bit. A module that names AMX is
refused where there is none."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TESSERA, NETWORK, PRELOAD = sys.argv[1:4]
PACKAGE = sys.argv[4] if len(sys.argv) > 4 else ""
MODELS = pathlib.Path(__file__).resolve().parents[1] / "models"
TARGET = "x86-64-v4,+amx-tile,+amx-bf16,+amx-int8"
HAS_AMX = " amx_tile" in pathlib.Path("/proc/cpuinfo").read_text()


def run(*args, **environment):
    result = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, **environment})
    return result.returncode, result.stdout


def need(condition, text):
    if not condition:
        print(f"FAILED {text}")
        sys.exit(1)


def quantized_chain(path):
    random = np.random.default_rng(0)
    values = {"xs": np.float32(0.02), "xz": np.uint8(120), "ys": np.float32(0.3), "yz": np.uint8(110),
              "wz": np.int8(0), "ws": np.float32(0.01)}
    nodes, name, channels = [], "x", 32
    for i, (outputs, size, stride, groups) in enumerate([(64, 3, 1, 1), (64, 3, 1, 64), (48, 1, 1, 1), (64, 3, 2, 1)]):
        values[f"w{i}"] = random.integers(-127, 128, (outputs, channels // groups, size, size), dtype=np.int8)
        values[f"b{i}"] = random.integers(-1000, 1000, outputs, dtype=np.int32)
        given = ["xs", "xz"] if i == 0 else ["ys", "yz"]
        nodes.append(helper.make_node("QLinearConv", [name, *given, f"w{i}", "ws", "wz", "ys", "yz", f"b{i}"],
                                      [f"y{i}"], pads=[size // 2] * 4, strides=[stride] * 2, group=groups))
        name, channels = f"y{i}", outputs
    graph = helper.make_graph(nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 32, 14, 14])],
                              [helper.make_tensor_value_info(name, TensorProto.UINT8, [1, 64, 7, 7])],
                              [numpy_helper.from_array(v, k) for k, v in values.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def check(model, module, precision, fp32, threads, tolerance, products):
    code, text = run(NETWORK, model, TARGET, precision, fp32, threads, tolerance, module)
    if "TSR-7014" in text:
        print(f"skipped: {text.splitlines()[-1]}")
        sys.exit(77)
    need(code == 0 and "agrees" in text, f"{model.name} {precision} {fp32}: {text}")
    counted = re.search(r"(\d+) products of bf16, (\d+) of int8", text)
    need(HAS_AMX or int(counted.group(products)) > 0, f"{model.name}: no product ran in tiles: {text}")
    print(f"{model.name} {precision} {fp32}: " + " ".join(text.splitlines()[-3:]))
    if HAS_AMX:
        return
    loaded = {"LD_PRELOAD": PRELOAD, "ASAN_OPTIONS": "verify_asan_link_order=0"}
    for who in [(TESSERA, "run", module)] + ([(
            sys.executable, "-c", "import sys, numpy, tessera; m = tessera.load(sys.argv[1]); "
            "m.run({i.name: numpy.zeros(i.shape, i.dtype) for i in m.inputs})", module)] if PACKAGE else []):
        code, text = run(*who, **loaded, PYTHONPATH=PACKAGE)
        counts = re.search(r"AMX emulator: (\d+) configurations, (\d+) releases", text)
        need(code == 0 and counts and counts.group(1) == counts.group(2), f"{who[0]} {module}: {code} {text}")


with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    subprocess.run([sys.executable, str(MODELS / "materialize.py"), "squeezenet1_1", "lstm_2x256", "--out", folder],
                   check=True, stdout=subprocess.DEVNULL)
    quantized_chain(work / "chain.onnx")
    check(work / "squeezenet1_1.onnx", work / "bf16.so", "bf16", "fma", 2, 0.1, 1)
    check(work / "lstm_2x256.onnx", work / "pieces.so", "f32", "pieces", 1, 1e-5, 1)
    check(work / "chain.onnx", work / "bytes.so", "f32", "fma", 2, 0, 2)
    if not HAS_AMX:
        need(run(TESSERA, "compile", work / "chain.onnx", "--target", TARGET, "-o", work / "needs.so")[0] == 0, "compile")
        code, text = run(TESSERA, "run", work / "needs.so")
        need(code == 1 and "TSR-7014" in text and "or this process may not use: amx-" in text, f"not refused: {text}")
print("passed")
