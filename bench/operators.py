#!/usr/bin/env python3
"""Times single operators, compiled by Tessera, beside ONNX Runtime (same model, same inputs, one process) and, where
bench/onednn_bench.cpp was built, convolutions and matrix products beside oneDNN; where the Python that TESSERA_PYTHON
names has LiteRT, those, softmax and attention beside LiteRT's XNNPACK; all in turn.

    operators.py [LIST] [--only TEXT]... [--threads 1] [--rounds 7] [--seconds 0.05] [--out bench/results/NAME]
                 [--min-speed R] [--no-onednn] [--no-litert]

LIST is a name in bench/lists (default: operators). Outputs are compared first: integers must be equal, floats agree to
1e-4 of the largest magnitude (or the case's own tolerance). Then each round times both engines for --seconds each; a
figure is the median over the rounds of each round's median, "speed" the median of the rounds' (ONNX Runtime's time /
ours), "best" the same with the faster of ONNX Runtime and oneDNN. oneDNN's figure is its fastest way from the model's
layout to the model's layout, of all builds at hand; "in its layout" leaves out what changing the layout takes, which
ours and ONNX Runtime's figures contain. So does LiteRT's, whose images have their channels last.
--out NAME writes NAME.json, NAME.md and NAME.png.
The compiler is build/bin/tessera, or what TESSERA names; the run time is build/lib/libtessera_runtime.so, or what
TESSERA_RUNTIME names. Exit code: 1 when something does not compile, 2 when outputs differ, 3 when a speed is below
--min-speed."""
import functools
import json
import math
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime

import litert
import onednn
from operator_models import Case
from report import ROOT, RUNTIME, TESSERA, case_arguments, cpu_name
from tessera_module import Module

WORK = ROOT / "out/bench/operators"
WARM_UP_SECONDS = 0.02


class OrtModel:
    """ONNX Runtime with inputs and outputs bound beforehand, so that a call costs as little as it can."""

    def __init__(self, path, inputs, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(data) for name, data in inputs.items()}
        for name, value in self.values.items():
            self.binding.bind_ortvalue_input(name, value)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name, "cpu")

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def outputs(self):
        self.run()
        return self.binding.copy_outputs_to_cpu()

    def keep_output_memory(self):
        """Later runs write where this one did, as ours do."""
        self.run()
        for output, value in zip(self.session.get_outputs(), self.binding.get_outputs()):
            self.binding.bind_ortvalue_output(output.name, value)


def time_for(run, seconds):
    """The median time of one call, in microseconds."""
    times = []
    end = time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        run()
        now = time.perf_counter()
        times.append(now - begin)
        if now > end and len(times) >= 3:
            return statistics.median(times) * 1e6


def compare(ours, theirs, onednns, lite, rounds, seconds):
    """`onednns`: {build: OneDnn}; `lite`: LiteRt or None."""
    engines = {"tessera": lambda seconds: time_for(ours.run, seconds),
               "onnxruntime": lambda seconds: time_for(theirs.run, seconds)}
    for build, peer in onednns.items():
        for way in peer.ways:
            engines[f"onednn {build} {way}"] = functools.partial(peer.time_for, way)
    if lite:
        engines["litert"] = lite.time_for
    for time in engines.values():
        time(WARM_UP_SECONDS)
    times = [{name: time(seconds) for name, time in engines.items()} for _ in range(rounds)]
    medians = {name: statistics.median(told[name] for told in times) for name in engines}
    own = [name for name in engines if name.endswith(" own")]
    whole = [name for name in engines if name.startswith("onednn") and name not in own]
    row = {"tessera_us": medians["tessera"], "onnxruntime_us": medians["onnxruntime"],
           "speed": statistics.median(told["onnxruntime"] / told["tessera"] for told in times), "rounds_us": times}
    if whole:
        row["onednn_us"] = min(medians[name] for name in whole)
        row["best"] = statistics.median(min(told[name] for name in ("onnxruntime", *whole)) / told["tessera"]
                                        for told in times)
    if lite:
        row["litert_us"] = medians["litert"]
    if own:
        row["onednn_own_us"] = min(medians[name] for name in own)
    return row


def difference(got, want):
    """0 when they agree exactly; for floats the largest difference, relative to the largest magnitude."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return math.inf
    if want.size == 0 or np.array_equal(got, want, equal_nan=want.dtype.kind == "f"):
        return 0.0
    if want.dtype.kind != "f" or not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return math.inf
    finite = np.isfinite(want)
    largest = np.abs(want[finite].astype(np.float64)).max(initial=0)
    return float(np.abs(got[finite].astype(np.float64) - want[finite]).max() / (largest or 1))


def measure(case, args):
    path = WORK / ("".join(c if c.isalnum() else "_" for c in case.name) + ".onnx")
    case.write(path)
    theirs = OrtModel(path, case.inputs, args.threads)
    want = theirs.outputs()
    case.write(path, want)  # with the results' shapes, which some operators cannot know
    module = path.with_suffix(".so")
    begin = time.perf_counter()
    done = subprocess.run([TESSERA, "compile", path, "-o", module, "--threads", str(args.threads)],
                          stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    row = {"name": case.name, "op": case.op, "compile_s": time.perf_counter() - begin,
           "tolerance": case.tolerance}
    if done.returncode != 0:
        return row | {"error": done.stderr.strip().splitlines()[0]}
    ours = Module(RUNTIME, module, case.inputs, args.threads)
    row["difference"] = max(difference(a, b) for a, b in zip(ours.outputs(), want, strict=True))
    theirs.keep_output_memory()
    described = onednn.describe(case)
    onednns = {program.name.rpartition("_")[2]: onednn.OneDnn(program, described, args.threads, want[0])
               for program in ([] if described is None or args.no_onednn else onednn.programs())}
    for build, peer in onednns.items():
        worst = max(difference(got, want[0]) for got in peer.results.values())
        if worst > case.tolerance:
            sys.exit(f"{case.name}: oneDNN {peer.version} is not given the same problem: difference {worst:.1e}")
        row.setdefault("onednn_versions", {})[build] = peer.version
    lite = litert.LiteRt(args.litert, path, case.inputs, args.threads) if args.litert else None
    if lite and lite.result is None:
        lite = None
    if lite:
        row["litert_version"] = lite.version
        worst = difference(lite.result, want[0])
        if worst > case.tolerance:
            sys.exit(f"{case.name}: LiteRT is not given the same problem: difference {worst:.1e}")
    row |= compare(ours, theirs, onednns, lite, args.rounds, args.seconds)
    for peer in (*onednns.values(), *([lite] if lite else [])):
        peer.close()
    if case.flops:
        row["gflops"] = case.flops / row["tessera_us"] / 1e3
        row["onnxruntime_gflops"] = case.flops / row["onnxruntime_us"] / 1e3
    ours.close()
    return row


def table(report):
    peak = report.get("peak_gflops")
    head = ["operator", "tessera us", "ONNX Runtime us", "speed", "difference"]
    beside = any("onednn_us" in row for row in report["cases"])
    head += ["oneDNN us", "in its layout", "best"] if beside else []
    lite = any("litert_us" in row for row in report["cases"])
    head += ["LiteRT us"] if lite else []
    head += ["GFLOP/s", "of the peak", "ONNX Runtime's"] if peak else []
    rows = [head]
    for row in report["cases"]:
        if "error" in row:
            rows.append([row["name"], row["error"]] + [""] * (len(head) - 2))
            continue
        cells = [row["name"], f"{row['tessera_us']:.1f}", f"{row['onnxruntime_us']:.1f}", f"{row['speed']:.2f}",
                 f"{row['difference']:.1e}" if row["difference"] else "0"]
        if beside:
            cells += [f"{row[key]:{form}}" if key in row else ""
                      for key, form in (("onednn_us", ".1f"), ("onednn_own_us", ".1f"), ("best", ".2f"))]
        if lite:
            cells.append(f"{row['litert_us']:.1f}" if "litert_us" in row else "")
        if peak:
            cells += [f"{row['gflops']:.1f}", f"{row['gflops'] / peak:.0%}", f"{row['onnxruntime_gflops'] / peak:.0%}"] \
                if "gflops" in row else ["", "", ""]
        rows.append(cells)
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)


def description(report):
    text = (f"{report['date']}, {report['cpu']}, threads: {report['threads']}, tessera {report['tessera']}, ONNX Runtime "
            f"{report['onnxruntime']}, {report['rounds']} rounds of {report['seconds']} s for each engine")
    versions = sorted({version for row in report["cases"] for version in row.get("onednn_versions", {}).values()})
    if versions:
        text += f"; oneDNN {' and '.join(versions)}, the faster for each case"
    lite = {row["litert_version"] for row in report["cases"] if "litert_version" in row}
    if lite:
        text += f"; LiteRT {' and '.join(sorted(lite))}, in its own layout"
    if "peak_gflops" in report:
        text += f"; measured f32 multiply-add peak: {report['peak_gflops']:.0f} GFLOP/s"
    return text


def plot(report, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot
    rows = [row for row in report["cases"] if "speed" in row][::-1]
    figure, axes = pyplot.subplots(figsize=(9, 0.24 * len(rows) + 1.4))
    speeds = [row.get("best", row["speed"]) for row in rows]
    beside = "ONNX Runtime's" if all("best" not in row for row in rows) else "the faster of ONNX Runtime's and oneDNN's"
    axes.barh(range(len(rows)), [speed - 1 for speed in speeds], left=1,
              color=["#3b7a57" if speed >= 1 else "#c8a13a" if speed >= 0.9 else "#b5483a" for speed in speeds])
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=7)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel(f"{beside} time / ours (logarithmic; right of 1: Tessera is faster)", fontsize=8)
    axes.set_title(f"{report['title']}\n{report['date']}, {report['cpu']}, threads: {report['threads']}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def write(report, out):
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    out.with_suffix(".md").write_text(f"# {report['title']}\n\n{description(report)}\n\n{table(report)}\n")
    plot(report, out.with_suffix(".png"))


def measured_peak(threads):
    """GFLOP/s of f32 multiply-adds, as tessera doctor measures them on this machine now."""
    done = subprocess.run([TESSERA, "doctor", "--json"], capture_output=True, text=True, check=True)
    peaks = json.loads(done.stdout.strip().splitlines()[-1])["peaks"]["arithmetic"]
    peak = next(peak for peak in peaks if peak["name"] == "f32 multiply-add")
    return peak["one_thread_gops"] if threads == 1 else peak["all_threads_gops"]


def main():
    parser = case_arguments(__doc__, "operators", rounds=7, seconds=0.05)
    parser.add_argument("--min-speed", type=float, default=0)
    parser.add_argument("--no-onednn", action="store_true")
    parser.add_argument("--no-litert", action="store_true")
    args = parser.parse_args()
    args.litert = None if args.no_litert else litert.python()
    WORK.mkdir(parents=True, exist_ok=True)
    listed = json.loads((ROOT / f"bench/lists/{args.list}.json").read_text())
    version = subprocess.run([TESSERA, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    report = {"title": listed["title"], "date": time.strftime("%Y-%m-%d"), "cpu": cpu_name(), "threads": args.threads,
              "tessera": version, "onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__,
              "rounds": args.rounds, "seconds": args.seconds, "cases": []}
    if not args.no_onednn and not onednn.programs():
        print("oneDNN is left out: there is no build/bin/onednn_bench_* (bench/README.md says how to build it)")
    if not args.no_litert and not args.litert:
        print("LiteRT is left out: TESSERA_PYTHON names no Python that has ai-edge-litert and onnx (bench/README.md)")
    if listed.get("peak"):
        report["peak_gflops"] = measured_peak(args.threads)
        print(f"peak: {report['peak_gflops']:.1f} GFLOP/s of f32 multiply-adds")
    status = 0
    for entry in listed["cases"]:
        if args.only and not any(text.lower() in entry["name"].lower() for text in args.only):
            continue
        row = measure(Case(entry), args)
        report["cases"].append(row)
        if "error" in row:
            status = status or 1
            print(f"{row['name']:<44} {row['error']}", flush=True)
            continue
        wrong, slow = row["difference"] > row["tolerance"], row["speed"] < args.min_speed
        status = 2 if wrong else status or (3 if slow else 0)
        share = f"  {row['gflops'] / report['peak_gflops']:.0%} of the peak" \
            if "gflops" in row and "peak_gflops" in report else ""
        print(f"{row['name']:<44} {row['tessera_us']:>10.1f} us {row['onnxruntime_us']:>10.1f} us  speed "
              f"{row['speed']:>6.2f}  difference {row['difference']:.1e}{'  DIFFERS' if wrong else ''}"
              f"{'  SLOW' if slow else ''}{share}", flush=True)
        if "best" in row:
            print(f"{'':<44} oneDNN {row['onednn_us']:.1f} us, in its layout {row.get('onednn_own_us', math.nan):.1f} us, "
                  f"best of both / ours {row['best']:.2f}", flush=True)
        if "litert_us" in row:
            print(f"{'':<44} LiteRT {row['litert_us']:.1f} us", flush=True)
    if args.out:
        write(report, args.out)
    return status


if __name__ == "__main__":
    sys.exit(main())
