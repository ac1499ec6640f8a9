#!/usr/bin/env python3
"""Compiles real networks in many configurations and holds their outputs against reference results.

    models_matrix.py TESSERA [--full]

Agreement: max|d| <= 1e-4 * max|reference| for every output. Small models run in every configuration; of the large
ones (text detector, ResNet-50) one configuration besides the default runs each day, all of them with --full or
TESSERA_TEST_FULL=1. References: the recorded outputs of ONNX Runtime in the test data, or ONNX Runtime itself.
What is missing (test data, an instruction set) is skipped, and said.
"""
import datetime
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BOUND = 1e-4
# name, compile flags, run flags
CONFIGURATIONS = [
    ("O3 1 thread", [], ["--threads", "1"]),
    ("O3 2 threads", [], ["--threads", "2"]),
    ("O0 1 thread", ["-O0"], ["--threads", "1"]),
    ("O0 2 threads", ["-O0"], ["--threads", "2"]),
    ("O1", ["-O1"], ["--threads", "1"]),
    ("x86-64-v2", ["--target", "x86-64-v2"], ["--threads", "1"]),
    ("x86-64-v3", ["--target", "x86-64-v3"], ["--threads", "2"]),
    ("x86-64-v4", ["--target", "x86-64-v4"], ["--threads", "1"]),
    ("interpreter", None, []),
]
ALWAYS = 2  # so many of them run for large models too


def cpu_flags():
    with open("/proc/cpuinfo") as f:
        return next((set(line.split()) for line in f if line.startswith("flags")), set())


def missing_feature(configuration):
    need = {"x86-64-v2": "sse4_2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}.get(configuration)
    return need if need and need not in cpu_flags() else None


def test_data():
    for folder in (os.environ.get("TESSERA_TEST_DATA"), os.path.join(ROOT, "..", "shared")):
        if folder and os.path.isdir(os.path.join(folder, "real")):
            return folder
    return None


def onnx_runtime(model, feeds):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: x for i, x in zip(session.get_inputs(), feeds)})


def recorded(folder, case):
    load = lambda kind: [np.load(p) for p in sorted(glob.glob(os.path.join(folder, f"{kind}_{case}_*.npy")))]
    return load("input"), load("expected")


def models(work):
    """Yields (name, model file, shape flags, large, [(inputs, outputs)]), or (name, reason)."""
    data = test_data()
    for name in ("mnist-ort-examples", "mnist-opt-wonnx", "ultraface-rfb-320"):
        if not data:
            yield name, "no test data: set TESSERA_TEST_DATA"
            continue
        folder = os.path.join(data, "real", name)
        cases = sorted({os.path.basename(p).split("_")[1] for p in glob.glob(os.path.join(folder, "input_*_0.npy"))})
        yield name, os.path.join(folder, "model.onnx"), [], False, [recorded(folder, case) for case in cases]

    detector = os.path.join(ROOT, ".deps", "ppocr", "ch_PP-OCRv4_det_infer.onnx")
    if os.path.exists(detector):
        from PIL import Image
        picture = Image.open(os.path.join(ROOT, "examples", "text.png")).convert("RGB").resize((480, 320))
        pixels = np.asarray(picture, dtype=np.float32)[:, :, ::-1] / 255
        x = ((pixels - np.float32(0.5)) / np.float32(0.5)).transpose(2, 0, 1)[None].copy()
        yield "text detector", detector, ["--shape", "x=1x3x320x480"], True, [([x], onnx_runtime(detector, [x]))]
    else:
        yield "text detector", "its ONNX file is missing: run scripts/setup.sh"

    resnet = os.path.join(work, "resnet50.onnx")
    subprocess.run([sys.executable, os.path.join(ROOT, "tests", "models", "materialize.py"), "resnet50", "--out", work, "--inputs"],
                   check=True, stdout=subprocess.DEVNULL)
    stored = np.load(os.path.join(work, "resnet50.inputs.npz"))
    feeds = [stored[key] for key in stored.files]
    yield "resnet50", resnet, [], True, [(feeds, onnx_runtime(resnet, feeds))]


def run_case(tessera, model, flags, inputs, expected, work):
    command = [tessera, "run", model] + flags
    for i, x in enumerate(inputs):
        np.save(os.path.join(work, f"in{i}.npy"), x)
        command += ["--input", f"@{work}/in{i}.npy"]
    for i in range(len(expected)):
        command += ["--output", f"@{work}/out{i}.npy"]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        return f"exit code {done.returncode}: {done.stdout.strip()}"
    worst = 0.0
    for i, want in enumerate(expected):
        got = np.load(os.path.join(work, f"out{i}.npy"))
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"output {i} is {got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
        error = float(np.max(np.abs(got.astype(np.float64) - want), initial=0)) / max(float(np.max(np.abs(want), initial=0)), 1e-30)
        if not error <= BOUND:
            return f"output {i}: max|d| is {error:.2e} of max|reference|, more than {BOUND:.0e}"
        worst = max(worst, error)
    return worst


def main():
    tessera = os.path.abspath(sys.argv[1])
    full = "--full" in sys.argv or os.environ.get("TESSERA_TEST_FULL") == "1"
    today = datetime.date.today().toordinal()
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as work:
        os.environ["TESSERA_CACHE_DIR"] = os.path.join(work, "cache")
        for entry in models(work):
            if len(entry) == 2:
                print(f"SKIP {entry[0]}: {entry[1]}")
                skipped += 1
                continue
            name, model, shape, large, cases = entry
            rotating = ALWAYS + today % (len(CONFIGURATIONS) - ALWAYS)
            for index, (configuration, compile_flags, run_flags) in enumerate(CONFIGURATIONS):
                if large and not full and index >= ALWAYS and index != rotating:
                    continue
                feature = missing_feature(configuration)
                if feature:
                    print(f"SKIP {name}, {configuration}: this machine has no {feature}")
                    skipped += 1
                    continue
                if compile_flags is None:
                    program, flags = model, shape + ["--engine", "interp"]
                else:
                    program, flags = os.path.join(work, "module.so"), run_flags
                    done = subprocess.run([tessera, "compile", model, "-o", program] + shape + compile_flags, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                    if done.returncode != 0:
                        print(f"FAIL {name}, {configuration}: {done.stdout.strip()}")
                        failed += 1
                        continue
                results = [run_case(tessera, program, flags, x, y, work) for x, y in cases]
                problems = [r for r in results if isinstance(r, str)]
                if problems or not results:
                    print(f"FAIL {name}, {configuration}: {problems[0] if problems else 'no cases'}")
                    failed += 1
                else:
                    print(f"PASS {name}, {configuration}: {len(results)} inputs, worst {max(results):.1e} of max|reference|")
                    passed += 1
                sys.stdout.flush()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
