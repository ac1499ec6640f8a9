#!/usr/bin/env python3
"""Layers of int8 networks on accelerators that files describe: bit-equal to the CPU's, with and without virtual threads.

    accel_networks.py TESSERA [--layers C2,C6,..] [--size tiny|reduced|whole] [--unit FILE ..] [--threads] [--rtl] [--unsigned]
                      [--json FILE] [--pictures]

All layers are one model. `tiny` layers have 32 channels at most and a quarter of their pixels, `reduced` ones an eighth of their
channels and half of their pixels; with TESSERA_TEST_FULL set, `reduced` is `whole`. --threads counts cycles without virtual
threads, too: no layer may take more with them, and whole ones must take fewer. With --rtl, each layer also runs on the unit's
hardware, by Verilator: its cycles and memories must be those of the simulators. --unsigned: inputs and outputs are u8 with zero
points."""
import argparse
import json
import os
import pathlib
import re
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


def shape_of(name, size):
    """Pixels, channels in and out, window, stride, groups."""
    if name in CONVOLUTIONS:
        pixels, channels, out, window, stride = CONVOLUTIONS[name]
        if size == "reduced":
            pixels, channels, out = (pixels + 1) // 2, max(channels // 8, min(16, channels)), max(out // 8, 16)
        if size == "tiny":
            pixels, channels, out = max(pixels // 4, 4), min(channels, 32), min(out, 32)
        return pixels, channels, out, window, stride, 1
    pixels, channels, stride = DEPTHWISE[name]
    if size != "whole":
        pixels, channels = (pixels + 1) // 2 if size == "reduced" else max(pixels // 4, 4), max(channels // 8, 16)
    return pixels, channels, channels, 3, stride, channels


class LayersModel:
    """Convolutions of bytes beside each other, each with what stands around it in a network: factors for each channel, bias, relu,
    bytes again. Node conv_NAME, input x_NAME, output y_NAME."""

    def __init__(self, names, size, unsigned):
        self.nodes, self.constants, self.inputs, self.outputs, self.values = [], {}, [], [], {}
        self.tensor = TensorProto.UINT8 if unsigned else TensorProto.INT8
        self.dtype = numpy.uint8 if unsigned else numpy.int8
        for seed, name in enumerate(names):
            self.add(name, *shape_of(name, size), numpy.random.default_rng(seed))

    def add(self, name, pixels, channels, out, window, stride, groups, random):
        unsigned = self.dtype is numpy.uint8
        weights = random.integers(-127, 128, (out, channels // groups, window, window), dtype=numpy.int8)
        terms = channels // groups * window * window
        mine = {"w": weights, "ws": random.uniform(0.5, 1.5, out).astype(numpy.float32) / 64, "wz": numpy.zeros(out, numpy.int8),
                "xs": numpy.float32(1 / 73), "z": self.dtype(119 if unsigned else 0), "b": random.normal(0, 1, out).astype(numpy.float32),
                "ys": numpy.float32(73.0 * numpy.sqrt(terms) / 64 / 48), "yz": self.dtype(3 if unsigned else 0)}
        self.constants |= {f"{key}_{name}": numpy.asarray(value) for key, value in mine.items()}

        def node(kind, inputs, output, title, **attributes):
            self.nodes.append(helper.make_node(kind, [f"{value}_{name}" for value in inputs], [f"{output}_{name}"], f"{title}_{name}",
                                               **attributes))

        node("DequantizeLinear", ["x", "xs", "z"], "xf", "dq_x")
        node("DequantizeLinear", ["w", "ws", "wz"], "wf", "dq_w", axis=0)
        node("Conv", ["xf", "wf", "b"], "c", "conv", kernel_shape=[window, window], strides=[stride, stride], pads=[window // 2] * 4,
             group=groups)
        node("Relu", ["c"], "r", "relu")
        node("QuantizeLinear", ["r", "ys", "yz"], "y", "q")
        self.inputs.append(helper.make_tensor_value_info(f"x_{name}", self.tensor, [1, channels, pixels, pixels]))
        self.outputs.append(helper.make_tensor_value_info(f"y_{name}", self.tensor, None))
        info = numpy.iinfo(self.dtype)
        self.values[name] = random.integers(info.min, info.max + 1, (1, channels, pixels, pixels), dtype=self.dtype)

    def save(self, path):
        graph = helper.make_graph(self.nodes, "layers", self.inputs, self.outputs,
                                  [numpy_helper.from_array(value, key) for key, value in self.constants.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)


def call(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def run(tessera, model, values, folder, name, *options):
    """The outputs by layer."""
    module = folder / f"{name}.so"
    call(tessera, "compile", model, "-o", module, "--force", "-q", *options)
    inputs = []
    for layer, value in values.items():
        numpy.save(folder / f"x_{layer}.npy", value)
        inputs += ["--input", f"x_{layer}=@{folder / f'x_{layer}.npy'}"]
    call(tessera, "run", module, *inputs, "--output-dir", folder / name)
    return {layer: numpy.load(folder / name / f"y_{layer}.npy") for layer in values}


def check_pictures(tessera, model, unit, folder):
    """--pictures draws a roofline with a point for each layer, and the queues of each kernel with a bar for each instruction."""
    report = json.loads(call(tessera, "bench", model, "--target", unit, "--pictures", folder, "--json"))
    layers = [layer for layer in report["layers"] if layer["multiply_adds"]]
    pictures = {path.name: xml.etree.ElementTree.parse(path).getroot() for path in folder.iterdir()}
    svg = "{http://www.w3.org/2000/svg}"
    roofline = pictures.pop("roofline.svg")
    assert len(list(roofline.iter(svg + "circle"))) == len(layers) and list(roofline.iter(svg + "polyline")), folder
    assert len(pictures) == len(layers), pictures
    instructions = {f" {layer['cycles']} cycles": layer["instructions"] for layer in layers}
    for picture in pictures.values():
        bars = [title.text for title in picture.iter(svg + "title")]
        assert all("cycles" in bar for bar in bars), bars[:3]
        texts = [text.text or "" for text in picture.iter(svg + "text")]
        assert any(known in text and len(bars) == instructions[known] for known in instructions for text in texts), texts[:3]


def layers_of(report):
    """By name, those of a report that multiply."""
    found = {}
    for layer in report.get("layers", []):
        name = re.search(r"conv_([CD]\d+)", layer["nodes"])
        if name and layer["multiply_adds"]:
            found[name[1]] = layer
    return found


def check_unit(options, unit, model, values, want, folder):
    """One unit; answers its report by layer."""
    title = json.loads(unit.read_text())["name"]
    place = f"conv_*={unit}"
    got = run(options.tessera, model, values, folder, title, "--place", place)
    for name in values:
        assert want[name].dtype == got[name].dtype and (want[name] == got[name]).all(), \
            f"{title} {name}: {(want[name] != got[name]).sum()} of {want[name].size} differ"
    explained = call(options.tessera, "explain", model, "--place", place)
    for name in values:
        refused = re.findall(rf"place_calls\s+(\S*conv_{name}(?!\d)\S*)\s+{title}\s+(.*)", explained)
        if name in DEPTHWISE:
            assert any("channels one by one" in why for _, why in refused), explained
        elif not options.unsigned:
            assert not any("relu" in nodes for nodes, _ in refused), refused
    # Named layers run there, however many of the lanes they fill.
    hardware = ["--rtl", folder / "rtl"] if options.rtl else []
    report = json.loads(call(options.tessera, "bench", model, "--target", unit, "--place", place, "--json", *hardware))
    assert all(not ran["differences"] for ran in report.get("hardware", [])), report["hardware"]
    layers = layers_of(report)
    assert set(layers) == {name for name in values if name in CONVOLUTIONS}, sorted(layers)
    assert not options.rtl or {layer["cycles"] for layer in layers.values()} <= {ran["cycles"] for ran in report["hardware"]}, report
    single = {}
    if options.threads:
        slower = folder / "one_thread.json"
        slower.write_text(json.dumps(json.loads(unit.read_text()) | {"threads": 1}))
        single = layers_of(json.loads(call(options.tessera, "bench", model, "--target", slower, "--place", f"conv_*={slower}", "--json")))
    for name in values:
        if name not in layers:
            print(f"{title} {name}: equal, on the host", flush=True)
            continue
        layer = layers[name] = layers[name] | {"shape": shape_of(name, options.size)}
        before = ""
        if single:
            layer["cycles_of_one_thread"] = one = single[name]["cycles"]
            before = f"{single[name]['percent_of_peak']:.1f} -> "
            assert layer["cycles"] < one if options.size == "whole" and name != "C1" else layer["cycles"] <= one, f"{title} {name}: {layer}"
        print(f"{title} {name}: equal, {layer['cycles']} cycles, {before}{layer['percent_of_peak']:.1f} % of the peak, roof "
              f"{layer['roof_percent']:.1f} % ({layer['bound']}){', hardware agrees' if options.rtl else ''}", flush=True)
    if options.pictures:
        check_pictures(options.tessera, model, unit, folder / f"{title}_pictures")
    return layers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--layers")
    parser.add_argument("--size", choices=("tiny", "reduced", "whole"), default="reduced")
    parser.add_argument("--unit", action="append", type=pathlib.Path)
    for flag in ("--threads", "--rtl", "--unsigned", "--pictures"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.rtl and not shutil.which("verilator"):
        print("skipped: there is no Verilator (scripts/setup.sh --rtl)")
        return 0
    if options.size == "reduced" and os.environ.get("TESSERA_TEST_FULL"):
        options.size = "whole"
    names = options.layers.split(",") if options.layers else [*CONVOLUTIONS, *DEPTHWISE]
    reports = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        layers = LayersModel(names, options.size, options.unsigned)
        layers.save(folder / "layers.onnx")
        # As the model says: the CPU's default joins scales and rounds once.
        want = run(options.tessera, folder / "layers.onnx", layers.values, folder, "cpu", "--disable-pass", "scale_sums_once")
        for name, value in want.items():
            assert len(numpy.unique(value)) > 20, f"{name}: outputs are nearly all the same"
        for unit in options.unit or [ROOT / "examples/accel/vdla.json"]:
            reports[unit.stem] = check_unit(options, unit, folder / "layers.onnx", layers.values, want, folder)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
