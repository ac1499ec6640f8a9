#!/usr/bin/env python3
"""Modules for AArch64, run under qemu: the operators' cases, products of bytes, and whole networks, with the runtime built
for it.

    aarch64.py CASES [MODELS...]      CASES: a folder of folders with model.onnx and test_data_set_0

The runtime and tests/cross/run_modules.cpp are compiled with aarch64-linux-gnu-g++ (Debian: g++-aarch64-linux-gnu) and
run by qemu-aarch64 (Debian: qemu-user). Expected values are the cases' own; those of networks are ONNX Runtime's. A part
of the cases that rotates with the day runs; TESSERA_TEST_FULL=1 asks for all. Exit code 77, with the reason, when a
program is missing."""
import argparse
import datetime
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from onnx import numpy_helper

import tessera

ROOT = pathlib.Path(__file__).resolve().parents[2]
SYSROOT = "/usr/aarch64-linux-gnu"
TRIPLE = "aarch64-unknown-linux-gnu"
SHARE = 12  # of the cases, one in so many runs on a day
RTOL, ATOL = 1e-3, 1e-7
NETWORKS = ("mobilenet_v2", "lstm_2x256", "squeezenet1_1", "shufflenet_v2_x1_0")


def is_full():
    return os.environ.get("TESSERA_TEST_FULL") == "1"


def build_runner(folder):
    compiler = shutil.which("aarch64-linux-gnu-g++")
    parts = ("core", "cpu", "values")  # the others are libraries of devices
    sources = [s for part in parts for s in sorted((ROOT / "src/runtime" / part).glob("*.cpp"))] + [ROOT / "tests/cross/run_modules.cpp"]
    shutil.copy("/usr/include/xxhash.h", folder)  # a header alone; nothing else of this machine's may be seen
    command = [compiler, "-std=c++20", "-O2", "-D_GNU_SOURCE", '-DTESSERA_VERSION="cross"',
               f"-I{ROOT}/src", f"-I{ROOT}/include", f"-I{folder}", *map(str, sources), "-o", f"{folder}/run_modules",
               "-pthread", "-ldl"]
    subprocess.run(command, check=True)
    return folder / "run_modules"


def tensors(folder, kind, infos):
    values = []
    for i in range(len(infos)):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"{kind}_{i}.pb").read_bytes())
        values.append(numpy_helper.to_array(tensor))
    return values


class Job:
    def __init__(self, name, work, threads, inputs, expected):
        self.name, self.expected = name, expected
        self.module = work / "model.so"
        self.outputs = [work / f"output_{i}" for i in range(len(expected))]
        paths = []
        for i, value in enumerate(inputs):
            paths.append(work / f"input_{i}")
            np.ascontiguousarray(value).tofile(paths[-1])
        self.line = " ".join(map(str, [self.module, threads, *paths, "--", *self.outputs]))

    def problem(self):
        for path, want in zip(self.outputs, self.expected):
            got = np.fromfile(path, dtype=want.dtype)
            if got.size != want.size:
                return f"{got.size} elements instead of {want.size}"
            got = got.reshape(want.shape)
            exact = want.dtype.kind in "biu"
            wide, reference = (got, want) if exact else (got.astype(np.float64), want.astype(np.float64))
            close = np.array_equal(wide, reference) if exact else \
                np.allclose(wide, reference, RTOL, ATOL + 1e-4 * self.bound(reference), equal_nan=True)
            if not close:
                return "other values"
        return ""

    @staticmethod
    def bound(reference):
        finite = np.abs(reference[np.isfinite(reference)])
        return float(finite.max()) if finite.size else 0.0


def case_jobs(cases, work):
    """Jobs of the cases whose values are tensors of numbers with known shapes; others are counted."""
    today = datetime.date.today().toordinal()
    skipped = 0
    for number, folder in enumerate(sorted(path for path in cases.iterdir() if (path / "model.onnx").exists())):
        if not is_full() and number % SHARE != today % SHARE:
            continue
        place = work / f"case_{number}"
        place.mkdir()
        try:
            model = onnx.load(folder / "model.onnx")
            constants = {tensor.name for tensor in model.graph.initializer}
            inputs = tensors(folder / "test_data_set_0", "input",
                             [info for info in model.graph.input if info.name not in constants])
            expected = tensors(folder / "test_data_set_0", "output", model.graph.output)
            if any(value.dtype.kind in "OSU" or value.dtype.itemsize < 1 or "int4" in str(value.dtype)
                   or "int2" in str(value.dtype) or "float4" in str(value.dtype) for value in inputs + expected):
                raise ValueError("values of other kinds")
            tessera.compile_file(str(folder / "model.onnx"), place / "model.so", target=TRIPLE, threads=2)
            yield Job(folder.name, place, 1 + number % 2, inputs, expected)
        except (ValueError, FileNotFoundError, DecodeError, tessera.Error):  # other tests run these on this machine
            skipped += 1
            shutil.rmtree(place)
    print(f"{skipped} cases have values, types or shapes that this test does not carry to the other machine")


def convolved(x, w, stride, pad):
    """Sums of i32 of a convolution of integers, padded with zeros."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, w, optimize=True).astype(np.int32)


def byte_jobs(work):
    """MatMulInteger and ConvInteger with all pairs of types, for a machine with dot products of bytes."""
    random = np.random.default_rng(8)
    shapes = [((5, 67), (67, 21), None), ((64, 128), (128, 48), None), ((1, 20, 9, 7), (24, 20, 3, 3), (1, 1)),
              ((2, 3, 12, 13), (9, 3, 3, 3), (2, 1))]
    for number, (x_shape, w_shape, window) in enumerate(shapes):
        for x_type, w_type in ((np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)):
            name = f"bytes_{number}_{np.dtype(x_type)}_{np.dtype(w_type)}"
            place = work / name
            place.mkdir()
            x, w = (random.integers(np.iinfo(t).min, np.iinfo(t).max + 1, s).astype(t)
                    for t, s in ((x_type, x_shape), (w_type, w_shape)))
            zero = x_type(7)
            attributes = {"strides": [window[0]] * 2, "pads": [window[1]] * 4} if window else {}
            node = onnx.helper.make_node("ConvInteger" if window else "MatMulInteger", ["x", "w", "zero"], ["y"],
                                         **attributes)
            centred, weights = x.astype(np.int64) - zero, w.astype(np.int64)
            expected = convolved(centred, weights, *window) if window else (centred @ weights).astype(np.int32)
            elements = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(x_type))
            graph = onnx.helper.make_graph(
                [node], name, [onnx.helper.make_tensor_value_info("x", elements, x_shape)],
                [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, expected.shape)],
                [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array(zero), "zero")])
            model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
            model.ir_version = 8
            onnx.save(model, place / "model.onnx")
            tessera.compile_file(place / "model.onnx", place / "model.so", target=TRIPLE + ",+dotprod", threads=1)
            yield Job(name, place, 1, [x], [expected])


def network_jobs(names, work):
    for name in names:
        subprocess.run([sys.executable, ROOT / "tests/models/materialize.py", name, "--out", work], check=True,
                       stdout=subprocess.DEVNULL)
        session = onnxruntime.InferenceSession(str(work / f"{name}.onnx"), providers=["CPUExecutionProvider"])
        random = np.random.default_rng(3)
        inputs = {}
        for info in session.get_inputs():
            dtype = {"tensor(float)": np.float32, "tensor(int64)": np.int64}[info.type]
            values = random.standard_normal(info.shape) if dtype == np.float32 else random.integers(0, 2, info.shape)
            inputs[info.name] = values.astype(dtype)
        place = work / name
        place.mkdir()
        tessera.compile_file(work / f"{name}.onnx", place / "model.so", target=TRIPLE, threads=2)
        yield Job(name, place, 2, list(inputs.values()), session.run(None, inputs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=pathlib.Path)
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    for program in ("aarch64-linux-gnu-g++", "qemu-aarch64"):
        if not shutil.which(program):
            print(f"skipped: {program} is missing; scripts/setup.sh installs it")
            return 77
    names = args.models
    if not names:
        today = datetime.date.today().toordinal()
        names = NETWORKS if is_full() else [NETWORKS[today % len(NETWORKS)]]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        runner = build_runner(work)
        jobs = [*case_jobs(args.cases, work), *byte_jobs(work), *network_jobs(names, work)]
        (work / "list").write_text("".join(job.line + "\n" for job in jobs))
        done = subprocess.run(["qemu-aarch64", "-L", SYSROOT, runner, work / "list"], stdout=subprocess.PIPE, text=True)
        answers = done.stdout.splitlines()
        failed = 0
        for number, job in enumerate(jobs):
            answer = answers[number] if number < len(answers) else f"the runner ended with exit code {done.returncode}"
            problem = job.problem() if answer == "ok" else answer
            if problem:
                print(f"FAIL {job.name}: {problem}")
                failed += 1
        print(f"{len(jobs) - failed} passed, {failed} failed on AArch64 (qemu)")
        return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
