#!/usr/bin/env python3
"""What it costs to come to the first result: compiling, loading, the first inference, memory and size, beside other engines.

    costs.py [MODEL...] [--folder out/bench] [--peers onnxruntime,openvino] [--threads 1] [--repeat 3]
             [--out bench/results/costs] [--again]

MODEL is as for models.py; default: the suite. Every figure is the median of --repeat processes, one after another:
  tessera   compiling in one process (`tessera compile`: seconds, peak resident memory, size of the module); then a process
            of Python with numpy that loads the module through the C API and runs it once
  a peer    a process of Python with numpy and its package that makes a session (or compiles the model) and runs it once
Loading and the first run are timed inside, behind the imports. Memory is the peak of the resident set after the first
run; pages of a mapped file count. "Libraries" are the files of shared libraries of the package that the process has
mapped; ours is libtessera_runtime.so, stripped. Files are in the page cache.
A model and peer that the results already have is left out, unless --again. Writes NAME.json, NAME.md and NAME.png. The
Python of the peers is what TESSERA_PYTHON names."""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import report as common
from models import find_models
from tessera_module import Module

PEERS = common.ROOT / "tools/peers"
LABELS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "mnn": "MNN", "iree": "IREE", "tvm": "TVM"}


def peak_bytes(process="self"):
    text = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def child(module, inputs, threads):
    """In a process of its own: prints what loading and running a module once costs."""
    values = dict(np.load(inputs))
    begin = time.perf_counter()
    loaded = Module(common.RUNTIME, module, values, threads)
    ready = time.perf_counter()
    loaded.run()
    first = time.perf_counter()
    peak = peak_bytes()
    loaded.run()
    print(json.dumps({"load_ms": (ready - begin) * 1e3, "first_ms": (first - ready) * 1e3, "peak_bytes": peak,
                      "run_ms": (time.perf_counter() - first) * 1e3}))


def timed(command):
    """(seconds, peak resident bytes, what it printed) of a command."""
    begin = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"costs.py: '{' '.join(map(str, command))}' ended with exit code {process.returncode}")
    return time.perf_counter() - begin, usage.ru_maxrss * 1024, text


def medians(rows):
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def measure_tessera(path, inputs, args):
    module = args.work / f"{path.stem}.costs.so"
    compiles, runs = [], []
    for _ in range(args.repeat):
        seconds, peak, _ = timed([common.TESSERA, "compile", path, "-o", module, "--threads", args.threads, "-q"])
        compiles.append({"compile_s": seconds, "compile_peak_bytes": peak})
        runs.append(json.loads(timed([sys.executable, __file__, "--child", module, inputs, args.threads])[2]))
    size = module.stat().st_size
    module.unlink()
    return medians(compiles) | medians(runs) | {"module_bytes": size, "model_bytes": path.stat().st_size}


def library_bytes(process):
    """Of the shared libraries below site-packages that the worker of a peer has mapped, but for numpy's."""
    worker = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()[0]
    mapped = {line.split(maxsplit=5)[5].strip() for line in open(f"/proc/{worker}/maps") if "/site-packages/" in line}
    return sum(os.path.getsize(path) for path in mapped if ".so" in path and "/site-packages/numpy" not in path)


def start_peer(peer, path, values, threads):
    """One process with one engine, through the protocol of tools/peers/host.py: what getting ready cost."""
    adapter = (PEERS / f"{peer.split('-')[0]}_adapter.py").read_text()
    python = os.environ.get("TESSERA_PYTHON", "python3")
    process = subprocess.Popen([python, "-c", adapter + "\n\n" + (PEERS / "host.py").read_text(), peer, str(path),
                                str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        folder = json.loads(process.stdout.readline())["folder"]
        for i, value in enumerate(values.values()):
            np.save(f"{folder}/input_{i}.npy", value)
        print(json.dumps({"inputs": list(values), "outputs": output_types(path)}), file=process.stdin, flush=True)
        told = json.loads(process.stdout.readline())
        if "error" in told:
            raise RuntimeError(told["error"])
        told["library_bytes"] = library_bytes(process.pid)
        return told
    finally:
        process.stdin.close()
        process.wait()


def output_types(path):
    import onnx
    outputs = onnx.load(path, load_external_data=False).graph.output
    return [str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)) for value in outputs]


def measure_peer(peer, path, values, args):
    try:
        told = [start_peer(peer, path, values, args.threads) for _ in range(args.repeat)]
    except RuntimeError as problem:
        return {"reason": str(problem)}
    version = told[0].pop("version")
    row = medians([{key: value for key, value in one.items() if key != "version"} for one in told])
    return {"version": version, "load_ms": row["open_s"] * 1e3, "first_ms": row["first_ms"], "run_ms": row["run_ms"],
            "peak_bytes": row["peak_bytes"], "import_s": row["import_s"], "library_bytes": row["library_bytes"]}


def runtime_bytes():
    """Of libtessera_runtime.so without symbols."""
    with tempfile.TemporaryDirectory() as folder:
        stripped = pathlib.Path(folder) / "runtime.so"
        shutil.copy(common.RUNTIME, stripped)
        subprocess.run(["strip", stripped], check=True)
        return stripped.stat().st_size


def megabytes(value):
    return common.figure(value / 1e6)


def tables(results):
    peers = [peer for peer in LABELS if any(peer in row["peers"] for row in results["rows"])]
    first = [["model", "model MB", "module MB", "compile s", "peak MB", "peak / model"]]
    second = [["model", "tessera: load ms", "first run ms", "peak MB"]]
    for peer in peers:
        second[0] += [f"{LABELS[peer]}: load ms", "first run ms", "peak MB"]
    for row in sorted(results["rows"], key=lambda row: row["model"]):
        ours = row["tessera"]
        first.append([row["model"], megabytes(ours["model_bytes"]), megabytes(ours["module_bytes"]),
                      f"{ours['compile_s']:.2f}", megabytes(ours["compile_peak_bytes"]),
                      f"{ours['compile_peak_bytes'] / ours['model_bytes']:.1f}"])
        cells = [row["model"]]
        for told in (ours, *(row["peers"].get(peer, {"reason": "not measured"}) for peer in peers)):
            cells += ["no", "", ""] if "reason" in told else \
                [common.figure(told["load_ms"]), common.figure(told["first_ms"]), megabytes(told["peak_bytes"])]
        second.append(cells)
    libraries = [["engine", "libraries MB"], ["tessera (stripped)", f"{results['runtime_bytes'] / 1e6:.3f}"]]
    for peer in peers:
        sizes = [row["peers"][peer]["library_bytes"] for row in results["rows"] if "library_bytes" in row["peers"].get(peer, {})]
        libraries.append([LABELS[peer], megabytes(max(sizes)) if sizes else ""])
    return "\n\n".join(("## Compiling with Tessera", common.markdown(first), "## To the first result", common.markdown(second),
                        "## Size of what runs", common.markdown(libraries)))


def description(results):
    versions = {}
    for row in results["rows"]:
        versions |= {LABELS[peer]: told["version"] for peer, told in row["peers"].items() if "version" in told}
    dates, commits = (sorted({row[key] for row in results["rows"]}) for key in ("date", "commit"))
    return (f"{' to '.join(sorted({*dates[:1], *dates[-1:]}))}, {results['cpu']}, threads: {results['threads']}, tessera "
            f"{results['tessera']} ({', '.join(commits)}), " + ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) +
            f". Medians of {results['repeat']} processes each, one after another. Loading is a session made from the model (peers, "
            "behind the imports) or from the compiled module (tessera); memory is the peak resident set after the first run, Python and "
            "numpy (about 30 MB) included on every side.")


def plot(results, path):
    pyplot = common.pyplot()
    rows = sorted(results["rows"], key=lambda row: row["model"], reverse=True)
    engines = ["tessera", *(peer for peer in LABELS if any(peer in row["peers"] for row in rows))]
    figure, panels = pyplot.subplots(1, 2, figsize=(12.5, 0.36 * len(rows) + 1.6), sharey=True)
    height = 0.8 / len(engines)
    for axes, title, value in ((panels[0], "load and first run, ms", lambda told: told["load_ms"] + told["first_ms"]),
                               (panels[1], "peak memory, MB", lambda told: told["peak_bytes"] / 1e6)):
        for i, engine in enumerate(engines):
            told = [row["tessera"] if engine == "tessera" else row["peers"].get(engine, {}) for row in rows]
            places = [j for j, one in enumerate(told) if "load_ms" in one]
            axes.barh([j + 0.4 - height * (i + 0.5) for j in places], [value(told[j]) for j in places], height=height,
                      color=common.COLOURS[engine], label=engine)
        axes.set_xscale("log")
        axes.set_xlabel(title, fontsize=8)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    panels[0].set_yticks(range(len(rows)), [row["model"] for row in rows], fontsize=8)
    figure.suptitle(f"To the first result, {results['cpu']}, threads: {results['threads']}", fontsize=10)
    figure.tight_layout()
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="upper right", ncol=len(engines))
    figure.savefig(path, dpi=110)


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--peers", default="onnxruntime,openvino")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=common.ROOT / "bench/results/costs")
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    args.work = common.ROOT / "out/bench"
    args.work.mkdir(parents=True, exist_ok=True)
    peers = args.peers.split(",")
    if wrong := [peer for peer in peers if peer not in LABELS]:
        sys.exit(f"costs.py: there is no peer '{wrong[0]}'; there are {', '.join(LABELS)}")
    results = common.load(args.out.with_suffix(".json")) or {"rows": []}
    same = {"cpu": common.cpu_name(), "threads": args.threads, "repeat": args.repeat}
    if results["rows"] and any(results[key] != value for key, value in same.items()):
        sys.exit(f"costs.py: {args.out}.json was measured otherwise; name another file with --out")
    results |= same | {"tessera": common.tessera_version(), "runtime_bytes": runtime_bytes()}
    for name, path in find_models(args.models, args.folder or args.work, args.folder is not None):
        inputs = path.with_suffix(".inputs.npz")
        if not inputs.is_file():
            sys.exit(f"costs.py: there is no {inputs}")
        values = dict(np.load(inputs))
        row = next((row for row in results["rows"] if row["model"] == name), None)
        if row is None or args.again:
            results["rows"] = [old for old in results["rows"] if old["model"] != name]
            row = {"model": name, "date": common.today(), "commit": common.commit(),
                   "tessera": measure_tessera(path, inputs, args), "peers": {}}
            results["rows"].append(row)
        for peer in peers:
            if peer not in row["peers"]:
                row["peers"][peer] = measure_peer(peer, path, values, args)
        common.save_json(results, args.out.with_suffix(".json"))
        args.out.with_suffix(".md").write_text(f"# What the first result costs\n\n{description(results)}\n\n{tables(results)}\n")
        plot(results, args.out.with_suffix(".png"))
        print(f"{name:<24} " + "  ".join(
            f"{engine} " + (told["reason"] if "reason" in told else
                            f"{told['load_ms']:.0f} + {told['first_ms']:.1f} ms, {told['peak_bytes'] / 1e6:.0f} MB")
            for engine, told in (("tessera", row["tessera"]), *row["peers"].items())), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
