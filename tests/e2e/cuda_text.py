#!/usr/bin/env python3
"""CUDA C++ of the printer and the runtime for it, without a GPU: run on the CPU by tests/cuda_shim, and compiled by nvcc.

    cuda_text.py TESSERA FAKE_DRIVER [--full] [--models NAME,...]

Modules run through src/runtime/cuda on a driver that is none, which fails where it is told to: each failure is one error,
and none hangs. It runs the operators of opencl_operators.py and resnet18 (all quick networks with --full), held against ONNX
Runtime. nvcc compiles two networks in turn with the date (all with --full) to PTX for sm_80 and machine code for
sm_90a: no registers are spilled, and no block shares more memory than the table says; clang compiles the same kernels as HIP for
gfx90a. nvcc is $TESSERA_NVCC, the one of
`scripts/setup.sh --cuda`, or that of PATH; without one that part is skipped.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import onnx
from onnx import TensorProto, helper

import model_runs as runs
from opencl_operators import zoo
from suite_models import LARGE, QUICK

SHARE = 2


def find_nvcc():
    own = runs.ROOT / ".deps/cuda/nvidia/cu13/bin/nvcc"
    return os.environ.get("TESSERA_NVCC") or (str(own) if own.exists() else shutil.which("nvcc"))


def on_shim(binary, path, feeds, want, work):
    module = f"{work}/cuda.so"
    return runs.tessera(binary, "compile", path, "-o", module, "--target", "cuda") or runs.run(
        [binary, "run", module], feeds, len(want), work)


def check_shim(binary, count, models):
    with tempfile.TemporaryDirectory() as work:
        z = zoo(runs.today())
        path = f"{work}/zoo.onnx"
        onnx.save(z.model(), path)
        want = runs.onnx_runtime(path, z.feeds)
        got = on_shim(binary, path, z.feeds, want, work)
        count.result("operators on the shim", got if isinstance(got, str) else runs.compare(got, want, z.names()))
    for name in models:
        with tempfile.TemporaryDirectory() as work:
            model, feeds = runs.suite_model(name)
            path = f"{work}/{name}.onnx"
            onnx.save(model, path)
            want = runs.onnx_runtime(path, feeds)
            got = on_shim(binary, path, feeds, want, work)
            count.result(f"{name} on the shim", got if isinstance(got, str) else runs.compare(got, want))


def compiled(nvcc, source, work, arch, *flags):
    """What nvcc says, and whether it failed."""
    done = subprocess.run([nvcc, f"-arch={arch}", "-fmad=false", *flags, "-o", f"{work}/out", source], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout, done.returncode


# What fails, and what the error says of it.
FAILURES = [("FAKE_CUDA_SHARED=1000", "TSR-7019", "blocks that share 2304 bytes, and 'no GPU' has 1000"),
            ("FAKE_CUDA_MEMORY=500", "TSR-7019", "not that much memory free: weights take 2048 bytes"),
            ("cuInit:1", "TSR-7019", "the driver of CUDA does not begin: CUDA_ERROR_NO_DEVICE"),
            ("cuMemAlloc_v2:1", "TSR-7019", "not that much memory free: weights take"),
            ("cuMemAlloc_v2:2", "TSR-7019", "not that much memory free: values of a run take"),
            ("nvrtcCompileProgram:1", "TSR-7019", "NVRTC fails: tessera.cu(1): error: as FAKE_CUDA_FAIL says"),
            ("cuStreamCreate:1", "TSR-7019", "'no GPU' has no stream: CUDA_ERROR_OUT_OF_MEMORY"),
            ("cuLaunchKernel:1", "TSR-7026", "op_0: error 701; the outputs are not valid"),
            ("kernel:1", "TSR-7026", "a kernel: CUDA_ERROR_LAUNCH_FAILED; the outputs are not valid"),
            ("cuMemcpyHtoDAsync_v2:2", "TSR-7026", "a copy to the device: CUDA_ERROR_LAUNCH_FAILED")]


def check_failures(binary, count):
    with tempfile.TemporaryDirectory() as work:
        weights = helper.make_tensor("w", TensorProto.FLOAT, [32, 16], [0.5] * 512)
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, [12, 32])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [12, 16])], [weights])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), f"{work}/m.onnx")
        problem = runs.tessera(binary, "compile", f"{work}/m.onnx", "-o", f"{work}/m.so", "--target", "cuda")
        count.result("compile for CUDA", problem or 0.0)
        for where, error, text in FAILURES:
            variable, value = where.split("=") if "=" in where else ("FAKE_CUDA_FAIL", where)
            done = subprocess.run([binary, "run", f"{work}/m.so", "--input", "random:1"], text=True, timeout=60,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={**os.environ, variable: value})
            said = done.stdout.strip()
            right = done.returncode == 1 and f"error {error}:" in said and text in said and said.count("error ") >= 1
            count.result(f"{where} fails", 0.0 if right else f"exit code {done.returncode}: {said}")


# Runs of several sizes in turn: the same bits each time that a size comes.
RUNS = """
import sys
import numpy as np
import tessera
model, seen = tessera.load(sys.argv[1]), {}
for n in map(int, sys.argv[2:]):
    x = np.random.default_rng(n).standard_normal((n, 32)).astype(np.float32)
    y = model.run([x])[0]
    assert np.array_equal(seen.setdefault(n, y.copy()), y), n
    assert np.abs(y - np.tanh(x @ np.full((32, 16), 0.5, np.float32)).sum(1, keepdims=True)).max() < 1e-3, n
"""


def check_graphs(binary, count):
    """Launches that come again are captured, once for each size, and then started as one."""
    with tempfile.TemporaryDirectory() as work:
        weights = [helper.make_tensor("w", TensorProto.FLOAT, [32, 16], [0.5] * 512)]
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["t"]),
                 helper.make_node("ReduceSum", ["t", "axes"], ["y"])]
        weights.append(helper.make_tensor("axes", TensorProto.INT64, [1], [1]))
        graph = helper.make_graph(nodes, "graphs", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])], weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), f"{work}/m.onnx")
        problem = runs.tessera(binary, "compile", f"{work}/m.onnx", "-o", f"{work}/m.so", "--target", "cuda", "--dim", "n=1..64")
        if problem:
            return count.result("graphs", problem)
        python = os.path.join(os.path.dirname(os.path.dirname(binary)), "python")
        # With how many captures and starts of graphs, of so many runs.
        for sizes, more, captures, starts in (("3 3 3 3", {}, 1, 3), ("3 5 3 5 5 3", {}, 2, 4), ("3 5 7 3", {}, 1, 1),
                                              ("3 3 3", {"TESSERA_CUDA_GRAPHS": "0"}, 0, 0),
                                              ("3 3 3", {"FAKE_CUDA_FAIL": "cuStreamBeginCapture_v2:1"}, 0, 0),
                                              ("3 3 3", {"FAKE_CUDA_FAIL": "cuGraphInstantiateWithFlags:1"}, 1, 0)):
            log = f"{work}/log"
            open(log, "w").close()
            done = subprocess.run([sys.executable, "-c", RUNS, f"{work}/m.so", *sizes.split()], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": python, "FAKE_CUDA_LOG": log, **more})
            with open(log) as f:
                events = f.read().split()
            got = (events.count("capture"), events.count("graph"))
            what = f"graphs of runs of {sizes}" + "".join(f", {k}={v}" for k, v in more.items())
            right = done.returncode == 0 and got == (captures, starts)
            count.result(what, 0.0 if right else f"{got} captures and starts instead of {(captures, starts)}: {done.stdout[-300:]}")


def printed(binary, name, language, work):
    """A file with the network's kernels, and what went wrong."""
    model, _ = runs.suite_model(name)
    path, source = f"{work}/{name}.onnx", f"{work}/kernels.{'cu' if language == 'cuda' else language}"
    onnx.save(model, path)
    return source, runs.tessera(binary, "compile", path, "--emit", language, "-o", source)


def check_nvcc(binary, nvcc, name):
    with tempfile.TemporaryDirectory() as work:
        source, problem = printed(binary, name, "cuda", work)
        if problem:
            return problem
        with open(source) as f:
            text = f.read()
        threads, shared = map(int, re.search(r"^//tsr limits (\d+) (\d+)", text, re.M).groups())
        said, failed = compiled(nvcc, source, work, "sm_80", "-ptx")
        if failed:
            return f"sm_80: {said.strip()[:300]}"
        said, failed = compiled(nvcc, source, work, "sm_90a", "-cubin", "-Xptxas", "-v")
        if failed:
            return f"sm_90a: {said.strip()[:300]}"
        spilled = re.findall(r"[1-9]\d* bytes spill stores", said)
        if spilled:
            return f"sm_90a: {len(spilled)} kernels spill registers"
        most = max((int(n) for n in re.findall(r"(\d+) bytes smem", said)), default=0)
        if most > shared:
            return f"sm_90a: a block shares {most} bytes, and the table says {shared}"
        registers = max(int(n) for n in re.findall(r"Used (\d+) registers", said))
        kernels = len(re.findall(r"^//tsr launch", text, re.M))
        print(f"     {name}: {kernels} kernels, at most {registers} registers, {most} bytes shared, blocks of {threads}", flush=True)
        return 0.0


def check_hip(binary, clang, name):
    with tempfile.TemporaryDirectory() as work:
        source, problem = printed(binary, name, "hip", work)
        if problem:
            return problem
        done = subprocess.run([clang, "-x", "hip", "--offload-arch=gfx90a", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-O2", "-S",
                               "-o", f"{work}/out.s", source], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            return f"gfx90a: {done.stdout.strip()[:300]}"
        with open(f"{work}/out.s") as f:
            spilled = re.findall(r"vgpr_spill_count: +[1-9]", f.read())
        return f"gfx90a: {len(spilled)} kernels spill registers" if spilled else 0.0


def main():
    binary = os.path.abspath(sys.argv[1])
    os.environ["TESSERA_CUDA_LIBRARY"] = os.environ["TESSERA_NVRTC_LIBRARY"] = os.path.abspath(sys.argv[2])
    count = runs.Count()
    chosen = sys.argv[sys.argv.index("--models") + 1].split(",") if "--models" in sys.argv else None
    check_failures(binary, count)
    check_graphs(binary, count)
    check_shim(binary, count, chosen or (QUICK if runs.is_full() else ["resnet18"]))
    nvcc, clang = find_nvcc(), shutil.which("clang++-19")
    networks = QUICK + LARGE
    if not runs.is_full():
        networks = [networks[(runs.today() * SHARE + i) % len(networks)] for i in range(SHARE)]
    for name in chosen or networks:
        if clang:
            count.result(f"{name} by clang for gfx90a", check_hip(binary, clang, name))
        else:
            count.skip(f"{name} by clang for gfx90a", "there is no clang++-19")
        if nvcc:
            count.result(f"{name} by nvcc", check_nvcc(binary, nvcc, name))
        else:
            count.skip(f"{name} by nvcc", "there is no nvcc (scripts/setup.sh --cuda)")
    return count.exit_code()


if __name__ == "__main__":
    sys.exit(main())
