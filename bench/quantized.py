#!/usr/bin/env python3
"""Products, convolutions and networks of 8 bits beside ONNX Runtime and beside f32, on one thread.

    quantized.py [--target native] [--before TESSERA] [NETWORK.onnx...]

Products and convolutions are QLinearMatMul and QLinearConv with u8 or i8 activations and i8 weights, of the shapes of
ResNet, BERT and MobileNet. Networks are f32 models with fixed shapes, which are quantised here by ONNX Runtime: random
calibration, i8 weights with a scale for each channel, as pairs of QuantizeLinear and DequantizeLinear (qdq) and as
QLinear operators (qop). Medians in ms of `tessera bench` and of ONNX Runtime's session, one process each; G
operations/s count a multiplication and an addition as two. Our outputs are compared with ONNX Runtime's: they may
differ by one step of quantisation where sums are rounded. `--before` names an older compiler to time as well. The
compiler is build/bin/tessera or what TESSERA names."""
import argparse
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from report import ROOT, TESSERA, answer_of

WORK = ROOT / "out/bench/quantized"
ELEMENTS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8, np.float32: TensorProto.FLOAT}
PRODUCTS = [(256, 512, 512), (1024, 1024, 1024), (128, 768, 3072), (1, 1024, 1024)]
# Channels, side, outputs, window, stride, padding, groups.
CONVOLUTIONS = [(64, 56, 64, 3, 1, 1, 1), (128, 28, 128, 3, 1, 1, 1), (256, 14, 256, 3, 1, 1, 1),
                (64, 56, 256, 1, 1, 0, 1), (1024, 14, 256, 1, 1, 0, 1), (512, 7, 2048, 1, 1, 0, 1),
                (128, 56, 128, 3, 2, 1, 1), (3, 224, 64, 7, 2, 3, 1), (96, 112, 96, 3, 1, 1, 96)]


def save(path, operator, x_type, x_shape, y_shape, weights, attributes):
    """A model of one operator; in f32 without scales and zero points."""
    random = np.random.default_rng(1)
    is_conv = "Conv" in operator
    values, inputs = {"w": weights}, ["x", "w"]
    if x_type is not np.float32:
        channels = weights.shape[0] if is_conv else 1
        terms = weights[0].size if is_conv else weights.shape[0]
        scales = random.uniform(0.01, 0.03, channels).astype(np.float32)
        values |= {"sx": np.float32(0.02), "zx": x_type(3), "sw": scales if is_conv else scales[0],
                   "zw": np.zeros(channels, np.int8) if is_conv else np.int8(0),
                   "sy": np.float32(0.04 * np.sqrt(terms)), "zy": x_type(3)}
        inputs = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    graph = helper.make_graph([helper.make_node(operator, inputs, ["y"], **attributes)], path.stem,
                              [helper.make_tensor_value_info("x", ELEMENTS[x_type], x_shape)],
                              [helper.make_tensor_value_info("y", ELEMENTS[x_type], y_shape)],
                              [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


def make_operators():
    """Name, operations and the models of u8, i8 and f32 of each operator."""
    random = np.random.default_rng(0)
    for m, k, n in PRODUCTS:
        weights = random.integers(-128, 128, (k, n)).astype(np.int8)
        paths = [save(WORK / f"product_{m}_{k}_{n}_{t.__name__}.onnx", "MatMul" if t is np.float32 else "QLinearMatMul",
                      t, [m, k], [m, n], weights.astype(np.float32) / 64 if t is np.float32 else weights, {})
                 for t in ELEMENTS]
        yield f"{m} x {k} x {n}", 2 * m * k * n, paths
    for c, side, o, window, stride, pad, groups in CONVOLUTIONS:
        weights = random.integers(-128, 128, (o, c // groups, window, window)).astype(np.int8)
        out = (side + 2 * pad - window) // stride + 1
        attributes = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
        name = f"{c} x {side} x {side}, {o} of {window}x{window}" + (f", stride {stride}" if stride > 1 else "")
        name += ", depthwise" if groups > 1 else ""
        paths = [save(WORK / f"conv_{c}_{side}_{o}_{window}_{stride}_{t.__name__}.onnx",
                      "Conv" if t is np.float32 else "QLinearConv", t, [1, c, side, side], [1, o, out, out],
                      weights.astype(np.float32) / 64 if t is np.float32 else weights, attributes) for t in ELEMENTS]
        yield name, 2 * out * out * weights.size, paths


def make_networks(path):
    """Name and path of the quantised forms of an f32 model."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            random = np.random.default_rng(0)
            self.batches = iter([{i.name: random.standard_normal(i.shape).astype(np.float32)
                                  for i in session.get_inputs()} for _ in range(3)])

        def get_next(self):
            return next(self.batches, None)

    prepared = WORK / f"{path.stem}_prepared.onnx"
    quant_pre_process(str(path), str(prepared))
    for form, kind, name in ((QuantFormat.QDQ, QuantType.QUInt8, "qdq_u8"),
                             (QuantFormat.QOperator, QuantType.QUInt8, "qop_u8"),
                             (QuantFormat.QDQ, QuantType.QInt8, "qdq_i8")):
        quantised = WORK / f"{path.stem}_{name}.onnx"
        quantize_static(str(prepared), str(quantised), Reader(), quant_format=form, activation_type=kind,
                        weight_type=QuantType.QInt8, per_channel=True)
        yield f"{path.stem} {name}", quantised


def ours(path, target, compiler=TESSERA):
    return answer_of([compiler, "bench", path, "--threads", "1", "--target", target, "--json"])["median_ms"]


def theirs(path, target):
    """ONNX Runtime's median, and how far our outputs are from its, in parts of the largest."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(2)
    info = session.get_inputs()[0]
    kind = {"tensor(uint8)": np.uint8, "tensor(int8)": np.int8}.get(info.type)
    x = random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, info.shape).astype(kind) if kind \
        else random.standard_normal(info.shape).astype(np.float32)
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < 1:
        start = time.perf_counter()
        want = session.run(None, {info.name: x})[0]
        times.append(time.perf_counter() - start)
    np.save(WORK / "x.npy", x)
    subprocess.run([TESSERA, "run", path, "--target", target, "--threads", "1", "--input", f"@{WORK}/x.npy", "--output",
                    f"@{WORK}/y.npy"], check=True, stdout=subprocess.DEVNULL)
    got = np.load(WORK / "y.npy").astype(np.float64)
    greatest = max(1e-30, np.abs(want.astype(np.float64)).max())
    return statistics.median(times[1:]) * 1e3, np.abs(got - want).max() / greatest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="native")
    parser.add_argument("--before")
    parser.add_argument("networks", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    before = "before | " if args.before else ""

    def old(path):
        return f"{ours(path, args.target, args.before):.3f} | " if args.before else ""

    print(f"| operator | {before}u8 x i8 | G operations/s | i8 x i8 | f32 | ONNX Runtime, u8 x i8 |")
    print("|---|" + "--:|" * (5 + bool(args.before)))
    worst = 0.0
    for name, operations, (u8, i8, f32) in make_operators():
        mine, (peer, difference) = ours(u8, args.target), theirs(u8, args.target)
        worst = max(worst, difference)
        print(f"| {name} | {old(u8)}{mine:.4f} | {operations / mine / 1e6:.0f} | {ours(i8, args.target):.4f} | "
              f"{ours(f32, args.target):.4f} | {peer:.4f} |", flush=True)
    print(f"\n| network | {before}Tessera | ONNX Runtime |\n|---|" + "--:|" * (2 + bool(args.before)))
    for path in args.networks:
        for name, model in [*make_networks(path), (f"{path.stem} f32", path)]:
            peer, difference = theirs(model, args.target)
            worst = max(worst, difference)
            print(f"| {name} | {old(model)}{ours(model, args.target):.2f} | {peer:.2f} |", flush=True)
    print(f"\ngreatest difference from ONNX Runtime, in parts of the greatest output: {worst:.2g}")
    return 0 if worst < 0.05 else 2


if __name__ == "__main__":
    sys.exit(main())
