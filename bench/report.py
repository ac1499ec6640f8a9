"""What the benchmarks share: the machine, the programs, tables and the files of a result."""
import argparse
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESSERA = os.environ.get("TESSERA", str(ROOT / "build/bin/tessera"))
RUNTIME = os.environ.get("TESSERA_RUNTIME", str(ROOT / "build/lib/libtessera_runtime.so"))
COLOURS = {"tessera": "#3b7a57", "onnxruntime": "#4a6fa5", "openvino": "#c8a13a", "openvino-bf16": "#8a6fb0",
           "iree": "#7a7a7a", "tvm": "#b5483a", "mnn": "#5fa8a0", "onednn": "#a0522d",
           "torch": "#d0662f", "torch-compile": "#e0a07a"}


def cpu_name():
    """Clouds call all generations of a processor the same: the name has its core, or the family and model that tell it."""
    facts = {}
    for line in open("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    if "model name" not in facts:
        return platform.processor()
    family, model = facts.get("cpu family"), facts.get("model")
    if facts.get("vendor_id") == "AuthenticAMD" and (family == "26" or family == "25" and "avx512f" in facts["flags"]):
        return f"{facts['model name']} (Zen {5 if family == '26' else 4})"
    return f"{facts['model name']} (family {family}, model {model})" if family else facts["model name"]


def tessera_version():
    return subprocess.run([TESSERA, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def commit():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def answer_of(command):
    """The last line that a command prints, read as JSON; nothing without --json. Ends the program when the command fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1]) if "--json" in command else None


def fresh(path):
    """The path, with nothing there or beside it under a longer name: what a run that was cut off had left."""
    for leftover in path.parent.glob(path.name + "*"):
        leftover.unlink()
    return path


def today():
    return time.strftime("%Y-%m-%d")


def case_arguments(description, listed="kernels", rounds=5, seconds=0.2):
    """The options of scripts that go through the cases of a list of bench/lists; more may be added."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", nargs="?", default=listed)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--out", type=pathlib.Path)
    return parser


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def figure(value):
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


def markdown(rows):
    """`rows`: lists of cells, the head first."""
    lines = ["| " + " | ".join(map(str, cells)) + " |" for cells in rows]
    lines.insert(1, "|---" * len(rows[0]) + "|")
    return "\n".join(lines)


def load(path):
    return json.loads(path.read_text()) if path.is_file() else None


def save_json(report, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".json.new")
    unfinished.write_text(json.dumps(report, indent=1) + "\n")
    unfinished.rename(path)


def pyplot():
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot
    return matplotlib.pyplot


# --- the networks of the suite

SUITE = sorted(path.stem for path in (ROOT / "tests/models/skeletons").glob("*.onnx"))


def suite_model(name, folder):
    """The path of a network of the suite with seeded weights, written to `folder` when it is not there, inputs beside."""
    import sys
    path = folder / f"{name}.onnx"
    if not path.is_file() or not path.with_suffix(".inputs.npz").is_file():
        script = ROOT / "tests/models/materialize.py"
        subprocess.run([sys.executable, script, name, "--out", folder, "--inputs"], check=True,
                       stdout=subprocess.DEVNULL)
    return path


def input_flags(path, folder):
    """Flags that give a model the inputs beside it, if there are any; without them tessera takes random ones."""
    import numpy
    flags, given = [], path.with_suffix(".inputs.npz")
    if given.is_file():
        for i, (name, value) in enumerate(numpy.load(given).items()):
            array = folder / f"{path.stem}.in{i}.npy"
            numpy.save(array, value)
            flags += ["--input", f"{name}=@{array}"]
    return flags
