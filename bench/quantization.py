#!/usr/bin/env python3
"""Signal to quantisation noise of trained models in bytes, all layers: tessera quantize beside ONNX Runtime's quantiser.

    bench/quantization.py [--out FOLDER] [--models NAME,...]

Both get the same samples; ONNX Runtime runs all files on other samples than those. Writes quantization.{json,md}.
Networks of PP-OCR and Magika are those that scripts/setup.sh fetches, the others those of shared/real."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import wave

import numpy
import onnx
import onnx.version_converter
import onnxruntime
from onnxruntime import quantization
from PIL import Image, ImageDraw, ImageFont

import report

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = pathlib.Path(os.environ.get("TESSERA_TEST_DATA", ROOT.parent / "shared")) / "real"
DEPS = pathlib.Path(os.environ.get("TESSERA_DEPS", ROOT / ".deps"))
OURS = {"default": [], "adaround": ["--adaround"], "mse": ["--method", "mse"], "entropy": ["--method", "entropy"]}
PEERS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}


def lines_of_text(count):
    words = (DATA / "text/test.txt").read_text().split()
    lines = textwrap.wrap(" ".join(words[:20 * count]), 28)
    return [line for line in lines if len(line) > 15][:count]


def picture_of_text(line, height, width, seed):
    random = numpy.random.default_rng(seed)
    font = ImageFont.load_default(size=height * 0.6)
    picture = Image.new("RGB", (width, height), tuple(random.integers(150, 256, 3).tolist()))
    ImageDraw.Draw(picture).text((4, height * 0.1), line, fill=tuple(random.integers(0, 100, 3).tolist()), font=font)
    noisy = numpy.asarray(picture, numpy.float32) + random.normal(0, 6, (height, width, 3))
    return numpy.clip(noisy, 0, 255).astype(numpy.float32)


def photos():
    files = sorted(DATA.glob("images/*.bmp")) + sorted(DATA.glob("images/*.jpg")) + sorted(DATA.glob("ultraface*/photo*.jpg"))
    return [Image.open(file).convert("RGB") for file in files if "mask" not in file.name]


def as_planes(pictures, mean, std):
    return [((numpy.asarray(p, numpy.float32) / 255 - mean) / std).transpose(2, 0, 1)[None].astype(numpy.float32) for p in pictures]


def faces():
    pictures = [p.resize((320, 240)) for p in photos()]
    return DATA / "ultraface-rfb-320/model.onnx", [{"input": x} for x in as_planes(pictures, 127 / 255, 128 / 255)]


def detector():
    pictures = []
    for seed, photo in enumerate(photos()):
        picture = photo.resize((320, 320))
        draw = ImageDraw.Draw(picture)
        for row, line in enumerate(lines_of_text(60)[seed * 3:seed * 3 + 3]):
            draw.text((10, 40 + 90 * row), line[:18], fill=(seed * 37 % 256, 255 - row * 90, 20), font=ImageFont.load_default(size=22))
        pictures.append(picture)
    mean, std = numpy.array([0.485, 0.456, 0.406]), numpy.array([0.229, 0.224, 0.225])
    return DEPS / "ppocr/ch_PP-OCRv4_det_infer.onnx", [{"x": x} for x in as_planes(pictures, mean, std)]


def recogniser():
    pictures = [picture_of_text(line, 48, 320, seed) for seed, line in enumerate(lines_of_text(24))]
    return DEPS / "ppocr/ch_PP-OCRv4_rec_infer.onnx", [{"x": x} for x in as_planes(pictures, 0.5, 0.5)]


def classifier():
    pictures = [picture_of_text(line[:16], 48, 192, seed) for seed, line in enumerate(lines_of_text(24))]
    pictures = [p[::-1, ::-1] if seed % 2 else p for seed, p in enumerate(pictures)]
    return DEPS / "ppocr/ch_ppocr_mobile_v2.0_cls_infer.onnx", [{"x": x} for x in as_planes(pictures, 0.5, 0.5)]


def files():
    samples = []
    paths = sorted(p for p in ROOT.rglob("*") if p.suffix in (".py", ".cpp", ".h", ".md", ".txt", ".json", ".cmake", ".sh", ".html")
                   and ".venv" not in p.parts and "build" not in p.parts and p.is_file() and p.stat().st_size > 2100)
    for path in paths[:: max(1, len(paths) // 40)][:40]:
        content = path.read_bytes()
        samples.append({"bytes": numpy.frombuffer(content[:1024] + content[-1024:], numpy.uint8).astype(numpy.int32)[None]})
    return DEPS / "magika/magika/models/standard_v3_3/model.onnx", samples


def speech():
    with wave.open(str(DATA / "silero-vad/test_16k.wav")) as file:
        sound = numpy.frombuffer(file.readframes(file.getnframes()), numpy.int16).astype(numpy.float32) / 32768
    model = DATA / "silero-vad-16k-op15/model.onnx"
    session = onnxruntime.InferenceSession(str(model))
    state, samples = numpy.zeros((2, 1, 128), numpy.float32), []
    for begin in range(64, 64 + 512 * 400, 512):
        sample = {"input": sound[begin - 64:begin + 512][None], "state": state, "sr": numpy.array(16000, numpy.int64)}
        state = session.run(None, sample)[1]
        samples.append(sample)
    return model, samples[::10]


def digits():
    images = numpy.load(DATA / "digits/digits.npz")["images"].astype(numpy.float32)
    grown = [numpy.asarray(Image.fromarray((i * 16).clip(0, 255).astype(numpy.uint8)).resize((28, 28)), numpy.float32) for i in images[:60]]
    return DATA / "mnist-ort-examples/model.onnx", [{"Input3": g[None, None]} for g in grown]


MODELS = {
    "ultraface": faces, "ppocr_det": detector, "ppocr_rec": recogniser, "ppocr_cls": classifier, "magika": files, "silero": speech,
    "mnist": digits,
}


def fixed(path, sample, to):
    """The model with the sizes of a sample, its weights no inputs."""
    model = onnx.load(path)
    constant = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in constant]
    del model.graph.input[:]
    for value in inputs:
        del value.type.tensor_type.shape.dim[:]
        for size in sample[value.name].shape:
            value.type.tensor_type.shape.dim.add().dim_value = size
        model.graph.input.append(value)
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    del model.graph.value_info[:]
    if model.opset_import[0].version < 13:  # scales by channels need it
        model.ir_version = 8  # weights need not be inputs
        model = onnx.version_converter.convert_version(model, 13)
    onnx.save(model, to)
    return to


def outputs(path, samples):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [session.run(None, sample) for sample in samples]


def decibels(want, got):
    """Of the output that has least."""
    worst = numpy.inf
    for place in range(len(want[0])):
        signal = sum(float((w[place].astype(float) ** 2).sum()) for w in want)
        noise = sum(float(((w[place].astype(float) - g[place]) ** 2).sum()) for w, g in zip(want, got))
        worst = min(worst, 10 * numpy.log10(signal / noise) if noise > 0 else numpy.inf)
    return worst


class Reader(quantization.CalibrationDataReader):
    def __init__(self, samples):
        self.samples = iter(samples)

    def get_next(self):
        return next(self.samples, None)


def prepare_and_quantize(model, folder, calibration, method):
    quantization.shape_inference.quant_pre_process(str(model), str(folder / "prepared.onnx"), skip_symbolic_shape=True)
    for per_channel in (True, False):
        try:
            return quantization.quantize_static(
                str(folder / "prepared.onnx"), str(folder / "theirs.onnx"), Reader(calibration), per_channel=per_channel,
                activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
                op_types_to_quantize=["Conv", "MatMul", "Gemm"], calibrate_method=quantization.CalibrationMethod[method])
        except ValueError:  # 1.31 fails on small biases where scales are by channels
            if not per_channel:
                raise


def measure(name, folder):
    path, samples = MODELS[name]()
    calibration, others = samples[::2], samples[1::2]
    model = fixed(path, samples[0], folder / f"{name}.onnx")
    (folder / "samples").mkdir(exist_ok=True)
    for old in (folder / "samples").iterdir():
        old.unlink()
    for i, sample in enumerate(calibration):
        numpy.savez(folder / "samples" / f"{i:03}.npz", **sample)
    want = outputs(model, others)
    row = {"samples": len(calibration), "tessera": {}, "onnxruntime": {}}
    for setting, flags in OURS.items():
        done = subprocess.run([report.TESSERA, "quantize", model, "--calib", folder / "samples", "--all", "--min-speedup", "0",
                               "--threads", "1", "-o", folder / "ours.onnx", "--json", *flags], capture_output=True, text=True)
        if done.returncode != 0:
            row["tessera"][setting] = done.stderr.strip().splitlines()[0]
            continue
        row["layers"] = len(json.loads(done.stdout)["layers"])
        row["tessera"][setting] = decibels(want, outputs(folder / "ours.onnx", others))
    for setting, method in PEERS.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                prepare_and_quantize(model, folder, calibration, method)
            row["onnxruntime"][setting] = decibels(want, outputs(folder / "theirs.onnx", others))
        except Exception as error:  # what it cannot do is a result
            row["onnxruntime"][setting] = f"{type(error).__name__}: {error}"[:120]
    return row


def best(results):
    return max((value for value in results.values() if isinstance(value, float)), default=float("nan"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--models", default=",".join(MODELS))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    onnxruntime.set_default_logger_severity(4)
    results = {}
    for name in arguments.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measure(name, pathlib.Path(folder))
        print(name, json.dumps(results[name]), flush=True)
        (arguments.out / "quantization.json").write_text(json.dumps(results, indent=1))
    lines = ["| network | layers | ours | ours with --adaround | ONNX Runtime, best method |", "|---|---|---|---|---|"]
    for name, row in results.items():
        ours = row["tessera"]
        number = lambda value: f"{value:.1f}" if isinstance(value, float) else str(value)
        cells = [name, row.get("layers", ""), number(ours["default"]), number(ours["adaround"]), f"{best(row['onnxruntime']):.1f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    (arguments.out / "quantization.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
