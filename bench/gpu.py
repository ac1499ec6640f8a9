#!/usr/bin/env python3
"""Everything there is to know about a machine with a GPU: whether networks are right on it, and how fast kernels are.

    gpu.py TESSERA [--target cuda] [--out gpu-results] [--steps networks,products,...] [--models NAME,...] [--minutes 30]
           [--folder DIR] [--only PATTERN]

The steps, in this order:
  device        what `tessera doctor` and nvidia-smi say
  networks      the networks of the suite beside ONNX Runtime, with times of a whole run and of the kernels alone
  training      a LeNet learns as it does on the CPU
  bandwidth     element by element, sums, transposes: bytes a second, beside a copy by PyTorch
  rows          softmax and layer normalisation, likewise
  products      products of matrices in f32, beside PyTorch's (cuBLAS)
  narrow        the same in bf16
  convolutions  C2 to C12 of ResNet-18 for 32 images, beside PyTorch's (cuDNN)
  attention     beside PyTorch's scaled_dot_product_attention
  torch         ResNet-50 and BERT for one input, beside eager PyTorch and torch.compile
  sanitizer     compute-sanitizer's memcheck and racecheck over two small networks

Each result is written to OUT/gpu.json at once, and what is there already is not done again: a run that was cut off goes
on. OUT/gpu.md is the table. Times are medians that the device itself measured, of kernels alone; copies of inputs and
outputs are not in them. Without PyTorch its columns stay empty. `--target opencl` does the same by OpenCL.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import model_runs as runs  # noqa: E402
from opencl import check_training  # noqa: E402
from suite_models import LARGE, QUICK  # noqa: E402

try:
    import torch
    torch = torch if torch.cuda.is_available() else None
except ImportError:
    torch = None

CONVOLUTIONS = {  # of ResNet-18, as the TVM paper numbers them: size, channels, filters, window, stride
    "C2": (56, 64, 64, 3, 1), "C3": (56, 64, 64, 1, 1), "C4": (56, 64, 128, 3, 2), "C5": (56, 64, 128, 1, 2),
    "C6": (28, 128, 128, 3, 1), "C7": (28, 128, 256, 3, 2), "C8": (28, 128, 256, 1, 2), "C9": (14, 256, 256, 3, 1),
    "C10": (14, 256, 512, 3, 2), "C11": (14, 256, 512, 1, 2), "C12": (7, 512, 512, 3, 1)}
PRODUCTS = [(1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (128, 768, 3072), (1, 4096, 4096),
            (4096, 4096, 1000)]


class Results:
    def __init__(self, folder, minutes, only):
        self.only = re.compile(only)
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "gpu.json"
        self.rows = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.end = time.monotonic() + 60 * minutes

    def add(self, key, make):
        """Keeps what make() gives for the key, unless it is there. A failure is a result, and is tried again."""
        if key in self.rows and "problem" not in self.rows[key] or not self.only.search(key):
            return
        if time.monotonic() > self.end:
            return
        begin = time.monotonic()
        try:
            row = make()
        except Exception as error:  # noqa: BLE001: whatever it is, the other steps go on
            row = {"problem": f"{type(error).__name__}: {error}"[-600:]}
        row["seconds"] = round(time.monotonic() - begin, 2)
        self.rows[key] = row
        text = " ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in row.items())
        print(f"{key:34} {text}", flush=True)
        self.path.write_text(json.dumps(self.rows, indent=1))

    def table(self):
        lines = ["| what | result |", "|---|---|"]
        for key, row in self.rows.items():
            text = ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                             for name, value in row.items() if name != "seconds")
            lines.append(f"| {key} | {text} |")
        (self.folder / "gpu.md").write_text("\n".join(lines) + "\n")


class Machine:
    def __init__(self, args):
        self.tessera, self.target = os.path.abspath(args.tessera), args.target

    def call(self, *arguments, timeout=600):
        done = subprocess.run([self.tessera, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=timeout)
        if done.returncode:
            raise RuntimeError((done.stderr or done.stdout).strip()[-500:])
        return done.stdout

    def bench(self, path, *options):
        return json.loads(self.call("bench", path, "--target", self.target, "--kernels", "--json", *options))

    def compare(self, path, feeds, want, work, *options):
        module = f"{work}/module.so"
        self.call("compile", path, "-o", module, "--target", self.target, *options)
        got = runs.run([self.tessera, "run", module], feeds, len(want), work)
        if isinstance(got, str):
            raise RuntimeError(got[-500:])
        return runs.compare(got, want)


def kernel_us(report):
    """Of the kernels on the device, and of those that stayed on the host; with the rule of the longest one."""
    kernels = report["kernels"]
    device = [kernel for kernel in kernels if kernel["device"] != "cpu"]
    longest = max(device, key=lambda kernel: kernel["us"], default={"rule": "none"})
    return (sum(kernel["us"] for kernel in device), sum(kernel["us"] for kernel in kernels if kernel["device"] == "cpu"),
            longest["rule"])


def torch_us(function, *arrays):
    """The median of 30 calls, by events, behind 5 that warm up; None without PyTorch. Inputs of 128 MB and more are not
    kept in the cache by themselves; smaller ones take turns among copies that do not fit in it."""
    if torch is None:
        return None
    tensors = [torch.from_numpy(np.ascontiguousarray(array)).cuda() for array in arrays]
    for _ in range(5):
        function(*tensors)
    times = []
    for _ in range(30):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function(*tensors)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def model_of(nodes, inputs, outputs, constants=(), name="case"):
    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16}
    graph = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info(key, types[value.dtype], value.shape) for key, value in inputs.items()],
        [helper.make_tensor_value_info(key, TensorProto.FLOAT, shape) for key, shape in outputs.items()],
        [numpy_helper.from_array(value, key) for key, value in constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def operator_case(machine, model, feeds, torch_function, torch_arrays, work_count, unit, bound=1e-4, options=()):
    """One operator: the largest difference from ONNX Runtime on the CPU, its kernels' time, and PyTorch's."""
    with tempfile.TemporaryDirectory() as work:
        path = f"{work}/case.onnx"
        onnx.save(model, path)
        want = runs.onnx_runtime(path, feeds)
        module = f"{work}/module.so"
        machine.call("compile", path, "-o", module, "--target", machine.target, *options)
        got = runs.run([machine.tessera, "run", module], feeds, len(want), work)
        if isinstance(got, str):
            raise RuntimeError(got[-500:])
        error = max(float(np.max(np.abs(g.astype(np.float64) - w)) / max(np.max(np.abs(w)), 1e-30)) for g, w in zip(got, want))
        if not error <= bound:
            raise RuntimeError(f"differs by {error:.3g} of the largest value")
        del want, got
        us, host_us, rule = kernel_us(machine.bench(path, "--repeat", "3", "--warm-up", "1", *options))
    peer = torch_us(torch_function, *torch_arrays)
    row = {"us": us, unit: work_count / us / 1e6, "rule": rule, "error": error}
    if host_us:
        row["host_us"] = host_us
    if peer:
        row.update({"torch_us": peer, f"torch_{unit}": work_count / peer / 1e6, "speed": peer / us})
    return row


# ---- the steps ----

def step_device(machine, results):
    def what():
        row = {"doctor": machine.call("doctor", "--json")[:4000]}
        if shutil.which("nvidia-smi"):
            row["nvidia-smi"] = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                                               stdout=subprocess.PIPE, text=True).stdout.strip()
        row["torch"] = torch.__version__ if torch else "none"
        return row
    results.add("device", what)


def network(name, folder):
    """The network and its inputs: out of the folder that tests/models/materialize.py --inputs has filled, or made."""
    path = pathlib.Path(folder or ".") / f"{name}.onnx"
    if folder and path.exists():
        with np.load(path.with_suffix(".inputs.npz")) as inputs:
            return str(path), None, dict(inputs)
    model, feeds = runs.suite_model(name)
    return None, model, feeds


def step_networks(machine, results, names, folder):
    for name in names:
        def one(name=name):
            with tempfile.TemporaryDirectory() as work:
                path, model, feeds = network(name, folder)
                if model is not None:
                    path = f"{work}/{name}.onnx"
                    onnx.save(model, path)
                error = machine.compare(path, feeds, runs.onnx_runtime(path, feeds), work)
                if isinstance(error, str):
                    raise RuntimeError(error)
                report = machine.bench(path, "--repeat", "20")
                us, host_us, _ = kernel_us(report)
                return {"error": error, "run_us": report["median_ms"] * 1e3, "kernels_us": us, "host_us": host_us,
                        "kernels": len(report["kernels"])}
        results.add(f"network {name}", one)


def step_training(machine, results):
    def one():
        class Count:
            def result(self, _, value):
                self.value = value
        count = Count()
        check_training(machine.tessera, count, machine.target)
        if isinstance(count.value, str):
            raise RuntimeError(count.value)
        return {"error": count.value}
    results.add("training of LeNet", one)


def step_bandwidth(machine, results):
    random = np.random.default_rng(1)
    n = 1 << 25
    x = random.standard_normal(n, dtype=np.float32)
    square = x.reshape(4096, 8192)
    node = helper.make_node

    def case(key, nodes, inputs, shape, function, arrays, count):
        results.add(key, lambda: operator_case(machine, model_of(nodes, inputs, {"y": shape}), inputs, function, arrays, count, "TB/s"))
    case("relu, 128 MB", [node("Relu", ["x"], ["y"])], {"x": x}, [n], lambda t: torch.relu(t), [x], 8 * n)
    case("abs, 128 MB, beside a copy", [node("Abs", ["x"], ["y"])], {"x": x}, [n], lambda t: t.clone(), [x], 8 * n)
    case("sum of two, 128 MB", [node("Add", ["x", "z"], ["y"])], {"x": x, "z": x[::-1].copy()}, [n],
         lambda a, b: torch.add(a, b), [x, x[::-1].copy()], 12 * n)
    case("tanh, 128 MB", [node("Tanh", ["x"], ["y"])], {"x": x}, [n], lambda t: torch.tanh(t), [x], 8 * n)
    case("transposition, 4096 x 8192", [node("Transpose", ["x"], ["y"], perm=[1, 0])], {"x": square}, [8192, 4096],
         lambda t: t.t().contiguous(), [square], 8 * n)
    case("sum of rows, 4096 x 8192",
         [node("Constant", [], ["a"], value=numpy_helper.from_array(np.array([1]))), node("ReduceSum", ["x", "a"], ["y"], keepdims=0)],
         {"x": square}, [4096], lambda t: t.sum(1), [square], 4 * n)
    case("sum of columns, 4096 x 8192",
         [node("Constant", [], ["a"], value=numpy_helper.from_array(np.array([0]))), node("ReduceSum", ["x", "a"], ["y"], keepdims=0)],
         {"x": square}, [8192], lambda t: t.sum(0), [square], 4 * n)


def step_rows(machine, results):
    random = np.random.default_rng(2)
    for rows, columns in ((16384, 1024), (4096, 4096), (128, 50257)):
        x = random.standard_normal((rows, columns), dtype=np.float32)
        scale = random.standard_normal(columns, dtype=np.float32)
        softmax = model_of([helper.make_node("Softmax", ["x"], ["y"], axis=-1)], {"x": x}, {"y": x.shape})
        results.add(f"softmax, {rows} x {columns}", lambda: operator_case(
            machine, softmax, {"x": x}, lambda t: torch.softmax(t, -1), [x], 8 * x.size, "TB/s"))
        norm = model_of([helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)], {"x": x}, {"y": x.shape},
                        [("s", scale), ("b", scale)])
        results.add(f"layer norm, {rows} x {columns}", lambda: operator_case(
            machine, norm, {"x": x}, lambda t, s: torch.nn.functional.layer_norm(t, s.shape, s, s), [x, scale],
            8 * x.size, "TB/s"))


def step_products(machine, results):
    random = np.random.default_rng(3)
    for m, k, n in PRODUCTS:
        a, b = random.standard_normal((m, k), dtype=np.float32), random.standard_normal((k, n), dtype=np.float32) / np.float32(k ** 0.5)
        for constant in (False, True):
            model = model_of([helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": a} if constant else {"a": a, "b": b}, {"y": [m, n]},
                             [("b", b)] if constant else [])
            results.add(f"product {m}x{k}x{n} f32{', constant' if constant else ''}", lambda: operator_case(
                machine, model, {"a": a} if constant else {"a": a, "b": b}, lambda x, y: x @ y, [a, b], 2 * m * k * n, "TFLOP/s"))


def step_narrow(machine, results):
    """Products of bf16 with sums in f32."""
    random = np.random.default_rng(6)
    for m, k, n in [*PRODUCTS, (8192, 8192, 8192)]:
        a, b = random.standard_normal((m, k), dtype=np.float32), random.standard_normal((k, n), dtype=np.float32) / np.float32(k ** 0.5)
        weights = model_of([helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": a}, {"y": [m, n]}, [("b", b)])
        pair = []  # PyTorch's operands, rounded before its time is taken

        def product(x, y, pair=pair):
            if not pair:
                pair += [x.bfloat16(), y.bfloat16()]
            return pair[0] @ pair[1]
        results.add(f"product {m}x{k}x{n} bf16", lambda: operator_case(
            machine, weights, {"a": a}, product, [a, b], 2 * m * k * n, "TFLOP/s", bound=2e-2, options=("--precision", "bf16")))


def step_convolutions(machine, results, images=32):
    random = np.random.default_rng(4)
    for name, (size, channels, filters, window, stride) in CONVOLUTIONS.items():
        x = random.standard_normal((images, channels, size, size), dtype=np.float32)
        w = random.standard_normal((filters, channels, window, window), dtype=np.float32) / np.float32((channels * window ** 2) ** 0.5)
        out = (size - 1) // stride + 1
        model = model_of([helper.make_node("Conv", ["x", "w"], ["y"], pads=[window // 2] * 4, strides=[stride] * 2)], {"x": x},
                         {"y": [images, filters, out, out]}, [("w", w)])
        results.add(f"convolution {name}, {images} images", lambda: operator_case(
            machine, model, {"x": x}, lambda a, b: torch.nn.functional.conv2d(a, b, stride=stride, padding=window // 2), [x, w],
            2 * images * out * out * filters * channels * window ** 2, "TFLOP/s"))


def step_attention(machine, results):
    """In f32 and, with queries, keys and values rounded, in bf16: PyTorch's operands are rounded before its time is taken."""
    random = np.random.default_rng(5)
    cases = [("f32", 1, 12, 128, 64), ("f32", 4, 16, 1024, 64), ("f32", 1, 16, 4096, 64), ("bf16", 1, 12, 128, 64),
             ("bf16", 4, 16, 4096, 64), ("bf16", 4, 16, 4096, 128)]
    for precision, batch, heads, length, width in cases:
        q, k, v = (random.standard_normal((batch, heads, length, width), dtype=np.float32) for _ in range(3))
        node = helper.make_node
        nodes = [node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["s"]), node("Mul", ["s", "f"], ["t"]),
                 node("Softmax", ["t"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["y"])]
        model = model_of(nodes, {"q": q, "k": k, "v": v}, {"y": q.shape}, [("f", np.array(width ** -0.5, np.float32))])
        rounded = []

        def attention(*qkv, rounded=rounded, precision=precision):
            if not rounded:
                rounded += [t.bfloat16() if precision == "bf16" else t for t in qkv]
            return torch.nn.functional.scaled_dot_product_attention(*rounded)
        results.add(f"attention {batch}x{heads}x{length}x{width} {precision}", lambda: operator_case(
            machine, model, {"q": q, "k": k, "v": v}, attention, [q, k, v], 4 * batch * heads * length * length * width, "TFLOP/s",
            **({"bound": 2e-2, "options": ("--precision", "bf16")} if precision == "bf16" else {})))


def step_torch(_, results):
    """What PyTorch takes for the networks whose times `networks` has."""
    if torch is None:
        return
    import torchvision
    import transformers

    def resnet():
        return torchvision.models.resnet50(weights=None).cuda().eval(), (torch.randn(1, 3, 224, 224).cuda(),)

    def bert():
        return (transformers.BertModel(transformers.BertConfig()).cuda().eval(), (torch.randint(0, 30000, (1, 128)).cuda(),))
    for name, make in (("resnet50", resnet), ("bert_base", bert)):
        def one(make=make):
            torch.backends.cudnn.allow_tf32 = False
            model, inputs = make()
            row = {}
            with torch.no_grad():
                for way, function in (("eager", model), ("compiled", torch.compile(model, mode="reduce-overhead"))):
                    def once(function=function):
                        return function(*inputs)
                    for _ in range(5):
                        once()
                    times = []
                    for _ in range(50):
                        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                        begin.record()
                        once()
                        end.record()
                        end.synchronize()
                        times.append(begin.elapsed_time(end) * 1e3)
                    row[f"{way}_us"] = statistics.median(times)
            return row
        results.add(f"torch {name}", one)


def step_sanitizer(machine, results):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        return
    for name in ("squeezenet1_1", "lstm_2x256"):
        for check in ("memcheck", "racecheck"):
            def one(name=name, check=check):
                with tempfile.TemporaryDirectory() as work:
                    model, feeds = runs.suite_model(name)
                    onnx.save(model, f"{work}/m.onnx")
                    machine.call("compile", f"{work}/m.onnx", "-o", f"{work}/m.so", "--target", machine.target)
                    arguments = []
                    for key, value in feeds.items():
                        np.save(f"{work}/{key}.npy", value)
                        arguments += ["--input", f"{key}=@{work}/{key}.npy"]
                    command = [tool, "--tool", check, "--error-exitcode", "9", machine.tessera, "run", f"{work}/m.so", *arguments]
                    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
                    summary = [line for line in done.stdout.splitlines() if "SUMMARY" in line]
                    if done.returncode:
                        raise RuntimeError(done.stdout[-500:])
                    return {"summary": summary[-1].strip("= ") if summary else "no summary"}
            results.add(f"{check} of {name}", one)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--out", default="gpu-results")
    parser.add_argument("--steps", default="device,networks,training,bandwidth,rows,products,narrow,convolutions,attention,torch,sanitizer")
    parser.add_argument("--models", default=",".join(QUICK + LARGE))
    parser.add_argument("--only", default="", help="a pattern of the results that are wanted")
    parser.add_argument("--folder", help="with networks that are made already")
    parser.add_argument("--minutes", type=float, default=30)
    args = parser.parse_args()
    machine, results = Machine(args), Results(args.out, args.minutes, args.only)
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    for step in args.steps.split(","):
        function = globals()[f"step_{step}"]
        if step == "networks":
            function(machine, results, args.models.split(","), args.folder)
        else:
            function(machine, results)
        results.table()
    failed = [key for key, row in results.rows.items() if "problem" in row]
    print(f"{len(results.rows) - len(failed)} results in {results.path}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
