#!/usr/bin/env python3
"""CUDA C++ of the printer and the runtime for it, without a GPU: run on the CPU by tests/cuda_shim, and compiled by nvcc.

    cuda_text.py TESSERA FAKE_DRIVER [--full] [--models NAME,...]

Modules run through src/runtime/cuda on a driver that is none, which fails where it is told to: each failure is one error,
and none hangs. It runs the operators of opencl_operators.py and resnet18 (all quick networks with --full), held against ONNX
Runtime; so are products and attention of bf16 and f16, which go through tensor cores. nvcc compiles two networks in turn
with the date (all with --full) to PTX for sm_80 and machine code for sm_90a: no registers are spilled, and no block shares
more memory than the table says; clang compiles the same kernels as HIP for gfx90a. nvcc is $TESSERA_NVCC, the one of
`scripts/setup.sh --cuda`, or that of PATH; without one that part is skipped.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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


def check_bytes(binary, count):
    """A convolution of bytes scales its sums by one multiply-add, as for every other target."""
    random = np.random.default_rng(3)
    constants = {"s": np.array(0.1, np.float32), "z": np.array(3, np.uint8), "t": np.array(0.02, np.float32), "n": np.array(0, np.int8),
                 "w": random.integers(-50, 50, (32, 16, 3, 3)).astype(np.int8), "b": random.standard_normal(32).astype(np.float32)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]), helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
             helper.make_node("DequantizeLinear", ["w", "t", "n"], ["wd"]),
             helper.make_node("Conv", ["xd", "wd", "b"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("QuantizeLinear", ["r", "s", "z"], ["yq"]), helper.make_node("DequantizeLinear", ["yq", "s", "z"], ["y"])]
    graph = helper.make_graph(nodes, "bytes", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 14, 14])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 14, 14])],
                              [numpy_helper.from_array(value, key) for key, value in constants.items()])
    with tempfile.TemporaryDirectory() as work:
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), f"{work}/m.onnx")
        for language in ("cuda", "opencl"):
            source = f"{work}/kernels.{language}"
            problem = runs.tessera(binary, "compile", f"{work}/m.onnx", "--emit", language, "-o", source)
            if not problem:
                with open(source) as f:
                    problem = "" if "fmaf(((f32)total)" in f.read() else "sums are not scaled by one multiply-add"
            count.result(f"bytes in {language}", problem or 0.0)


def narrow_cases(random):
    """Products and attention: name, model, inputs, and the smaller precision that they are compiled for."""
    def model_of(nodes, inputs, shape, constants):
        infos = [helper.make_tensor_value_info(key, TensorProto.FLOAT, value.shape) for key, value in inputs.items()]
        graph = helper.make_graph(nodes, "narrow", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
                                  [numpy_helper.from_array(value, key) for key, value in constants.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def normal(*shape):
        return random.standard_normal(shape, dtype=np.float32)

    node = helper.make_node
    for precision, (m, k, n) in (("bf16", (256, 512, 384)), ("f16", (130, 96, 264)), ("bf16", (1500, 64, 1600)), ("f16", (17, 40, 33))):
        feeds = {"x": normal(m, k)}
        model = model_of([node("MatMul", ["x", "w"], ["y"])], feeds, [m, n], {"w": normal(k, n) / np.float32(k ** 0.5)})
        yield f"product {m}x{k}x{n} {precision}", model, feeds, precision
    for precision, (heads, queries, keys, depth, out), mask in (
            ("bf16", (2, 100, 100, 64, 64), "causal"), ("f16", (1, 70, 133, 32, 48), "rows"),
            ("bf16", (200, 128, 96, 64, 64), ""), ("f16", (1, 33, 64, 128, 128), "causal")):
        feeds = {"q": normal(1, heads, queries, depth), "k": normal(1, heads, keys, depth), "v": normal(1, heads, keys, out)}
        nodes = [node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "t"], ["p"]), node("Mul", ["p", "f"], ["s"]),
                 node("Softmax", ["a" if mask else "s"], ["w"], axis=-1), node("MatMul", ["w", "v"], ["y"])]
        constants = {"f": np.array(depth ** -0.5, np.float32)}
        if mask:
            nodes.insert(3, node("Add", ["s", "m"], ["a"]))
            hidden = np.triu(np.full((queries, keys), -np.inf, np.float32), 1) if mask == "causal" else normal(queries, keys)
            constants["m"] = hidden
        model = model_of(nodes, feeds, [1, heads, queries, out], constants)
        yield f"attention {heads}x{queries}x{keys}x{depth} {mask} {precision}", model, feeds, precision


def check_narrow(binary, count, nvcc):
    """Tensor cores: `--precision` within what it rounds, on the shim; the text compiles, and spills no registers."""
    for name, model, feeds, precision in narrow_cases(np.random.default_rng(int(runs.today()))):
        with tempfile.TemporaryDirectory() as work:
            path, module, source = f"{work}/m.onnx", f"{work}/m.so", f"{work}/kernels.cu"
            onnx.save(model, path)
            want = runs.onnx_runtime(path, feeds)
            problem = (runs.tessera(binary, "compile", path, "-o", module, "--target", "cuda", "--precision", precision) or
                       runs.tessera(binary, "compile", path, "--emit", "cuda", "-o", source, "--precision", precision))
            got = problem or runs.run([binary, "run", module], feeds, 1, work)
            if isinstance(got, str):
                count.result(name, got)
                continue
            error = float(np.abs(got[0] - want[0]).max() / np.abs(want[0]).max())
            with open(source) as f:
                text = f.read()
            if f"tsr_mma_{precision}<" not in text:
                problem = "no product goes through tensor cores"
            elif "attention" in name and text.count("//tsr launch") > 4:
                problem = "attention is not one kernel"
            elif not error <= (1e-2 if precision == "bf16" else 2e-3):
                problem = f"differs by {error:.2g} of the largest value"
            for arch in ("sm_80", "sm_90a") if nvcc and not problem else ():
                said, failed = compiled(nvcc, source, work, arch, "-cubin", "-Xptxas", "-v")
                if failed or re.search(r"[1-9]\d* bytes spill stores", said):
                    problem = f"{arch}: {'registers are spilled' if not failed else said.strip()[:300]}"
            count.result(f"{name} on the shim", problem or 0.0)


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
    check_bytes(binary, count)
    check_narrow(binary, count, nvcc)
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
