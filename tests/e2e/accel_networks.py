#!/usr/bin/env python3
"""Layers of int8 networks on accelerators that a file describes: bit-equal to the CPU's, with and without virtual threads.

    accel_networks.py TESSERA [--layers C2,C6,..] [--full] [--unit FILE] [--json FILE] [--rtl]

Without --full, layers have an eighth of their channels (16 at least) and half of their pixels. With --rtl, each layer also
runs on the unit's hardware, by Verilator: its cycles and memories must be those of the simulators."""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Pixels, channels in and out, window, stride: the TVM paper's table 2.
CONVOLUTIONS = {"C1": (224, 3, 64, 7, 2), "C2": (56, 64, 64, 3, 1), "C3": (56, 64, 64, 1, 1), "C4": (56, 64, 128, 3, 2),
                "C5": (56, 64, 128, 1, 2), "C6": (28, 128, 128, 3, 1), "C7": (28, 128, 256, 3, 2), "C8": (28, 128, 256, 1, 2),
                "C9": (14, 256, 256, 3, 1), "C10": (14, 256, 512, 3, 2), "C11": (14, 256, 512, 1, 2), "C12": (7, 512, 512, 3, 1)}
DEPTHWISE = {"D1": (112, 32, 1), "D2": (112, 64, 2), "D3": (56, 128, 1), "D4": (56, 128, 2), "D5": (28, 256, 1),
             "D6": (28, 256, 2), "D7": (14, 512, 1), "D8": (14, 512, 2), "D9": (7, 1024, 1)}


def layer_model(path, pixels, channels, out, window, stride, groups, seed):
    """A convolution of bytes with what stands around it in a network: factors for each channel, bias, relu, bytes again."""
    random = numpy.random.default_rng(seed)
    weights = random.integers(-127, 128, (out, channels // groups, window, window), dtype=numpy.int8)
    scales = random.uniform(0.5, 1.5, out).astype(numpy.float32) / 64
    terms = channels // groups * window * window
    bias = random.normal(0, 1, out).astype(numpy.float32)
    step = numpy.float32(73.0 * numpy.sqrt(terms) / 64 / 48)
    constants = {"w": weights, "ws": scales, "wz": numpy.zeros(out, numpy.int8), "xs": numpy.float32(1 / 73), "z": numpy.int8(0),
                 "b": bias, "ys": step}
    nodes = [helper.make_node("DequantizeLinear", ["x", "xs", "z"], ["xf"], "dq_x"),
             helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], "dq_w", axis=0),
             helper.make_node("Conv", ["xf", "wf", "b"], ["c"], "conv", kernel_shape=[window, window], strides=[stride, stride],
                              pads=[window // 2] * 4, group=groups),
             helper.make_node("Relu", ["c"], ["r"], "relu"),
             helper.make_node("QuantizeLinear", ["r", "ys", "z"], ["y"], "q_y")]
    graph = helper.make_graph(nodes, "layer", [helper.make_tensor_value_info("x", TensorProto.INT8, [1, channels, pixels, pixels])],
                              [helper.make_tensor_value_info("y", TensorProto.INT8, None)],
                              [numpy_helper.from_array(numpy.asarray(value), name) for name, value in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return random.integers(-128, 128, (1, channels, pixels, pixels), dtype=numpy.int8)


def call(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def run(tessera, model, x, folder, name, *options):
    numpy.save(folder / "x.npy", x)
    module = folder / f"{name}.so"
    call(tessera, "compile", model, "-o", module, "--force", "-q", *options)
    call(tessera, "run", module, "--input", f"x=@{folder / 'x.npy'}", "--output-dir", folder / name)
    return numpy.load(folder / name / "y.npy")


def check_pictures(tessera, model, unit, folder, layers):
    """--pictures draws a roofline with a point for each layer, and the queues of each kernel with a bar for each instruction."""
    call(tessera, "bench", model, "--target", unit, "--pictures", folder, "--json")
    pictures = {path.name: xml.etree.ElementTree.parse(path).getroot() for path in folder.iterdir()}
    svg = "{http://www.w3.org/2000/svg}"
    roofline = pictures.pop("roofline.svg")
    assert len(list(roofline.iter(svg + "circle"))) == len(layers) and list(roofline.iter(svg + "polyline")), folder
    assert len(pictures) == len(layers), pictures
    for picture, layer in zip((pictures[name] for name in sorted(pictures)), layers):
        bars = [title.text for title in picture.iter(svg + "title")]
        assert len(bars) == layer["instructions"] and all("cycles" in bar for bar in bars), bars[:3]
        assert any(f"{layer['cycles']} cycles" in (text.text or "") for text in picture.iter(svg + "text"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--layers")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--unit", default=ROOT / "examples/accel/vdla.json")
    parser.add_argument("--json")
    parser.add_argument("--rtl", action="store_true")
    options = parser.parse_args()
    if options.rtl and not shutil.which("verilator"):
        print("skipped: there is no Verilator (scripts/setup.sh --rtl)")
        return 0
    wanted = options.layers.split(",") if options.layers else [*CONVOLUTIONS, *DEPTHWISE]
    rows = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for seed, name in enumerate(wanted):
            if name in CONVOLUTIONS:
                pixels, channels, out, window, stride = CONVOLUTIONS[name]
                groups = 1
                if not options.full:
                    pixels, channels, out = (pixels + 1) // 2, max(channels // 8, min(16, channels)), max(out // 8, 16)
            else:
                pixels, channels, stride = DEPTHWISE[name]
                if not options.full:
                    pixels, channels = (pixels + 1) // 2, max(channels // 8, 16)
                out, groups, window = channels, channels, 3
            model = folder / f"{name}.onnx"
            x = layer_model(model, pixels, channels, out, window, stride, groups, seed)
            want = run(options.tessera, model, x, folder, "cpu")
            got = run(options.tessera, model, x, folder, "unit", "--place", f"conv*={options.unit}")
            assert want.dtype == got.dtype and (want == got).all(), f"{name}: {(want != got).sum()} of {want.size} differ"
            assert len(numpy.unique(want)) > 20, f"{name}: outputs are nearly all the same"
            explained = call(options.tessera, "explain", model, "--place", f"conv*={options.unit}")
            if name in DEPTHWISE:
                assert "channels one by one" in explained, explained
                rows[name] = {"stays": True}
                print(f"{name}: stays on the host, equal", flush=True)
                continue
            report = json.loads(call(options.tessera, "bench", model, "--target", options.unit, "--json",
                                     *(["--rtl", folder / "rtl"] if options.rtl else [])))
            for ran in report.get("hardware", []):
                assert not ran["differences"], ran
                print(f"{name}: {ran['kernel']}: the hardware's {ran['cycles']} cycles, as simulated", flush=True)
            rows[name] = report
            layers = [layer for layer in report.get("layers", []) if layer["multiply_adds"]]
            if layers:
                check_pictures(options.tessera, model, options.unit, folder / f"{name}_pictures", layers)
            print(f"{name}: equal", *(f"{layer['cycles']} cycles, {layer['percent_of_peak']:.1f} % of the peak, roof "
                                     f"{layer['roof_percent']:.1f} % ({layer['bound']})" for layer in layers), flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
