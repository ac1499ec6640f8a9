"""What the tests over whole models share: the configurations, compiling, running, comparing and counting.

Agreement: max|d| <= 1e-4 * max|reference| for every output of a float type, equality for all others.
TESSERA_TEST_FULL=1 asks for everything; without it a part that rotates with the day runs.
"""
import datetime
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"
BOUND = 1e-4
# name, compile flags (None: the interpreter), run flags
CONFIGURATIONS = [
    ("O3 1 thread", [], ["--threads", "1"]),
    ("O3 2 threads", [], ["--threads", "2"]),
    ("O0 1 thread", ["-O0"], ["--threads", "1"]),
    ("O0 2 threads", ["-O0"], ["--threads", "2"]),
    ("O1", ["-O1"], ["--threads", "1"]),
    ("O2", ["-O2"], ["--threads", "2"]),
    ("x86-64-v2", ["--target", "x86-64-v2"], ["--threads", "1"]),
    ("x86-64-v3", ["--target", "x86-64-v3"], ["--threads", "2"]),
    ("x86-64-v4", ["--target", "x86-64-v4"], ["--threads", "1"]),
    ("interpreter", None, []),
]

sys.path.insert(0, str(MODELS))
import materialize  # noqa: E402


def is_full():
    return "--full" in sys.argv or os.environ.get("TESSERA_TEST_FULL") == "1"


def today():
    return datetime.date.today().toordinal()


def cpu_flags():
    with open("/proc/cpuinfo") as f:
        return next((set(line.split()) for line in f if line.startswith("flags")), set())


def missing_feature(configuration):
    need = {"x86-64-v2": "sse4_2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}.get(configuration)
    return need if need and need not in cpu_flags() else None


def test_data(folder):
    """The folder of that name in the test data, or None."""
    for root in (os.environ.get("TESSERA_TEST_DATA"), ROOT.parent / "shared"):
        if root and (pathlib.Path(root) / folder).is_dir():
            return pathlib.Path(root) / folder
    return None


def suite_model(name):
    """A model of the suite with its seeded weights, and its inputs by name."""
    model = materialize.build(name)
    return model, materialize.make_inputs(model)


def onnx_runtime(model, feeds, optimise=True):
    """All outputs. `model`: a file's name or bytes; `feeds`: arrays by name, or in the model's order."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    if not isinstance(feeds, dict):
        feeds = {i.name: x for i, x in zip(session.get_inputs(), feeds)}
    return session.run(None, feeds)


def difference(got, want):
    """max|d| / max|reference|, or what is wrong."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else f"{np.count_nonzero(got != want)} of {want.size} values differ"
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return "NaN or infinity in other places"
    got, want = got[finite].astype(np.float64), want[finite].astype(np.float64)
    error, largest = float(np.max(np.abs(got - want), initial=0)), float(np.max(np.abs(want), initial=0))
    if error == 0:
        return 0.0
    if not error <= BOUND * largest:  # not so for NaN, and where all of the reference is 0
        return f"max|d| is {error / max(largest, 1e-300):.2e} of max|reference|, more than {BOUND:.0e}"
    return error / largest


def tessera(*arguments):
    """Runs the command line; None, or what it said before it failed."""
    done = subprocess.run([str(a) for a in arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return None if done.returncode == 0 else f"exit code {done.returncode}: {done.stdout.strip()}"


def run(command, feeds, count, work):
    """Runs `command` (tessera run MODEL FLAGS...) on `feeds` (arrays by name or in order): its outputs, or an error."""
    command = list(command)
    named = feeds.items() if isinstance(feeds, dict) else ((None, x) for x in feeds)
    for i, (name, x) in enumerate(named):
        np.save(f"{work}/in{i}.npy", x)
        command += ["--input", f"{name}=@{work}/in{i}.npy" if name else f"@{work}/in{i}.npy"]
    for i in range(count):
        command += ["--output", f"@{work}/out{i}.npy"]
    problem = tessera(*command)
    return problem or [np.load(f"{work}/out{i}.npy") for i in range(count)]


def compare(got, want, names=None):
    """The largest difference of all outputs, or what is wrong with the first that is not right."""
    worst = 0.0
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        error = difference(g, w)
        if isinstance(error, str):
            return f"output {names[i] if names else i}: {error}"
        worst = max(worst, error)
    return worst


class Count:
    """Prints one line a result and counts; `exit_code` is 1 when anything failed or nothing ran."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def skip(self, what, reason):
        self.skipped += 1
        print(f"SKIP {what}: {reason}", flush=True)

    def result(self, what, result, more=""):
        """`result`: a difference, or what is wrong."""
        if isinstance(result, str):
            self.failed += 1
            print(f"FAIL {what}: {result}", flush=True)
        else:
            self.passed += 1
            print(f"PASS {what}: worst {result:.1e} of max|reference|{more}", flush=True)

    def exit_code(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed or self.passed == 0 else 0


def check_times(binary, module, device):
    """0.0 where `bench --kernels` knows how long each kernel of the module takes, and some run on the device; else what is wrong."""
    done = subprocess.run([binary, "bench", module, "--kernels", "--repeat", "2", "--warm-up", "1", "--json"], capture_output=True,
                          text=True, timeout=600)
    if done.returncode:
        return done.stderr
    timed = json.loads(done.stdout)["kernels"]
    there = json.loads(subprocess.run([binary, "inspect", module, "--json"], capture_output=True, text=True).stdout)["kernels"]
    if len(timed) != len(there):
        return f"{len(timed)} of {len(there)} kernels have times"
    if not any(kernel["device"] == device for kernel in timed):
        return f"no kernel runs on {device}"
    bad = [kernel["nodes"] for kernel in timed if kernel["us"] <= 0]
    return f"no time of {bad}" if bad else 0.0


def check_configuration(binary, what, model, shape, configuration, cases, work, count):
    """One configuration of one model file on `cases`: [(feeds, expected outputs)]. True when it ran."""
    name, compile_flags, run_flags = configuration
    feature = missing_feature(name)
    if feature:
        count.skip(f"{what}, {name}", f"this machine has no {feature}")
        return False
    if compile_flags is None:
        command = [binary, "run", model, *shape, "--engine", "interp"]
    else:
        module = f"{work}/module.so"
        problem = tessera(binary, "compile", model, "-o", module, *shape, *compile_flags)
        if problem:
            count.result(f"{what}, {name}", problem)
            return True
        command = [binary, "run", module, *run_flags]
    worst = 0.0 if cases else "no cases"
    for feeds, want in cases:
        got = run(command, feeds, len(want), work)
        error = got if isinstance(got, str) else compare(got, want)
        if isinstance(error, str):
            worst = error
            break
        worst = max(worst, error)
    count.result(f"{what}, {name}", worst, f", {len(cases)} inputs" if len(cases) > 1 else "")
    return True
