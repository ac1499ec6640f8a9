#!/usr/bin/env python3
"""Modules for AArch64, run under qemu: the operators' cases and whole networks, with the runtime built for it.

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
    sources = sorted((ROOT / "src/runtime").glob("*/*.cpp")) + [ROOT / "tests/cross/run_modules.cpp"]
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
        jobs = [*case_jobs(args.cases, work), *network_jobs(names, work)]
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
