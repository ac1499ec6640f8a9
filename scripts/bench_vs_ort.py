#!/usr/bin/env python3
"""Times compiled models beside ONNX Runtime in alternating rounds, and checks that their outputs agree.

    bench_vs_ort.py [MODEL...] [--threads 1,2] [--rounds 5] [--repeat 10] [--json OUT.json] [--min-speedup NAME=S]...

MODEL is a name below (default: the first three) or an .onnx file, with :INPUT=1x3x224x224 appended where shapes are open.
  text_detector   PP-OCR's detector (.deps/ppocr, fetched by scripts/setup.sh), at 1x3x640x640
  ultraface       a face detector, 1x3x240x320; needs test data: TESSERA_TEST_DATA, else ../shared
  resnet50, ...   a network of tests/models/skeletons with seeded random weights and inputs
  suite           all of those networks (2.3 GB of models in out/bench)
The compiler is build/bin/tessera, or what the variable TESSERA names.
Exit code: 2 when outputs differ, 3 when a speedup (ONNX Runtime / ours) is below its --min-speedup (on one thread)."""
import argparse
import functools
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import time

import numpy as np
import onnx
from PIL import Image

import latency

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESSERA = pathlib.Path(os.environ.get("TESSERA", ROOT / "build/bin/tessera"))
WORK = ROOT / "out/bench"


def test_data():
    return pathlib.Path(os.environ.get("TESSERA_TEST_DATA", ROOT.parent / "shared"))


def text_detector():
    return ROOT / ".deps/ppocr/ch_PP-OCRv4_det_infer.onnx", {"x": "1x3x640x640"}


def ultraface():
    return test_data() / "real/ultraface-rfb-320/model.onnx", {}


SUITE = sorted(path.stem for path in (ROOT / "tests/models/skeletons").glob("*.onnx"))


def suite_model(name):
    path = WORK / f"{name}.onnx"
    if not path.is_file() or not path.with_suffix(".inputs.npz").is_file():
        script = ROOT / "tests/models/materialize.py"
        subprocess.run([sys.executable, script, name, "--out", WORK, "--inputs"], check=True, stdout=subprocess.DEVNULL)
    return path, {}


NAMED = {"text_detector": text_detector, "ultraface": ultraface}
NAMED |= {name: functools.partial(suite_model, name) for name in SUITE}


def find_model(text):
    """(name, path, shapes) or (name, None, reason)."""
    if text in NAMED:
        path, shapes = NAMED[text]()
        return (text, path, shapes) if path.is_file() else (text, None, f"there is no {path}")
    path, *shapes = text.split(":")
    if not pathlib.Path(path).is_file():
        return text, None, f"there is no {path}, and no model is called so"
    return pathlib.Path(path).stem, pathlib.Path(path), dict(shape.split("=") for shape in shapes)


def picture(dims):
    """examples/text.png as -1..1, for networks that look at pictures: a detector sees nothing in noise, its output is
    tiny, and even two runs of ONNX Runtime with different optimisations differ by 1e-2 of that."""
    pixels = Image.open(ROOT / "examples/text.png").resize((dims[3], dims[2]))
    return (np.asarray(pixels, np.float32).transpose(2, 0, 1)[None] / 127.5 - 1).repeat(dims[0], axis=0)


def make_inputs(path, shapes):
    if path.with_suffix(".inputs.npz").is_file():
        return dict(np.load(path.with_suffix(".inputs.npz")))
    graph = onnx.load(path, load_external_data=False).graph
    initialized = {tensor.name for tensor in graph.initializer}
    random = np.random.default_rng(0)
    inputs = {}
    for value in graph.input:
        if value.name in initialized:
            continue
        if value.name in shapes:
            dims = [int(dim) for dim in shapes[value.name].split("x")]
        else:
            dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if min(dims, default=1) < 1:
            sys.exit(f"{path}: input {value.name} has an open shape; give it as {path}:{value.name}=1x3x224x224")
        if len(dims) == 4 and dims[1] == 3:
            data = picture(dims)
        else:
            is_float = np.issubdtype(dtype, np.floating)
            data = random.standard_normal(dims) if is_float else random.integers(0, 100, dims)
        inputs[value.name] = data.astype(dtype)
    return inputs


def compile_model(path, shapes, module):
    flags = [flag for name, dims in shapes.items() for flag in ("--shape", f"{name}={dims}")]
    begin = time.perf_counter()
    subprocess.run([TESSERA, "compile", path, "-o", module, *flags], check=True)
    return time.perf_counter() - begin


def check_outputs(name, module, inputs, want):
    """The largest |difference| / max|reference| over the outputs of one run."""
    command = [TESSERA, "run", module]
    for index, (input_name, value) in enumerate(inputs.items()):
        np.save(WORK / f"{name}.in{index}.npy", value)
        command += ["--input", f"{input_name}=@{WORK}/{name}.in{index}.npy"]
    for index in range(len(want)):
        command += ["--output", f"@{WORK}/{name}.out{index}.npy"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    worst = 0.0
    for index, reference in enumerate(want):
        difference, magnitude = latency.largest_difference(np.load(WORK / f"{name}.out{index}.npy"), reference)
        worst = max(worst, difference / magnitude if magnitude > 0 else difference)
    return worst


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["text_detector", "ultraface", "resnet50"])
    parser.add_argument("--threads", default=",".join(map(str, sorted({1, latency.available_cpus()}))))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--min-speedup", action="append", default=[], metavar="NAME=S")
    args = parser.parse_args()
    limits = {name: float(limit) for name, limit in (text.split("=") for text in args.min_speedup)}
    WORK.mkdir(parents=True, exist_ok=True)

    report = {"date": time.strftime("%Y-%m-%d"), "cpu": cpu_name(), "onnxruntime": latency.onnxruntime.__version__,
              "rounds": args.rounds, "repeat": args.repeat, "models": []}
    print(f"{report['date']}, {report['cpu']}, ONNX Runtime {report['onnxruntime']}, {args.rounds} rounds of "
          f"{args.repeat} runs; medians in ms")
    print(f"{'model':<22} {'thr':>3} {'tessera':>9} {'ort':>9} {'speedup':>7} {'difference':>10} {'compile s':>9} "
          f"{'module MB':>9}")
    status = 0
    speedups = {}
    for text in [model for text in args.models for model in (SUITE if text == "suite" else [text])]:
        name, path, shapes = find_model(text)
        if path is None:
            print(f"{name:<22} skipped: {shapes}")
            continue
        module = WORK / f"{name}.so"
        try:
            compile_s = compile_model(path, shapes, module)
        except subprocess.CalledProcessError:
            print(f"{name:<22} does not compile (see above)", flush=True)
            status = max(status, 1)
            continue
        inputs = make_inputs(path, shapes)
        difference = None
        for threads in map(int, args.threads.split(",")):
            ort = latency.OrtSession(path, inputs, threads)
            if difference is None:
                difference = check_outputs(name, module, inputs, ort.outputs())
                if difference > 1e-4:
                    status = max(status, 2)
            command = [str(TESSERA), "bench", str(module), "--threads", str(threads), "--repeat", str(args.repeat),
                       "--json"]
            row = latency.compare(command, ort, args.rounds, args.repeat)
            row |= {"model": name, "threads": threads, "difference": difference, "compile_s": compile_s,
                    "module_bytes": module.stat().st_size}
            report["models"].append(row)
            speedups.setdefault(threads, []).append(row["speedup"])
            under = threads == 1 and name in limits and row["speedup"] < limits[name]
            status = max(status, 3 if under else 0)
            print(f"{name:<22} {threads:>3} {row['tessera_ms']:>9.2f} {row['ort_ms']:>9.2f} {row['speedup']:>7.2f} "
                  f"{difference:>10.1e} {compile_s:>9.1f} {row['module_bytes'] / 1e6:>9.2f}"
                  f"{'  BELOW ' + str(limits[name]) if under else ''}", flush=True)
    for threads, values in speedups.items():
        if len(values) > 1:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"{'geometric mean':<22} {threads:>3} {'':>19} {mean:>7.2f}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
