#!/usr/bin/env python3
"""What threads bring: how networks scale beside the machine's own multiply-adds, and how far their cuts could scale.

    threads.py [MODEL...] [--folder out/bench] [--threads 2] [--cores 8,16,64] [--rounds 5] [--out bench/results/threads]

MODEL is a network of the suite (default: resnet50, vgg16, bert_base, vit_b_16). In each round every model runs on one
thread and on --threads, and `tessera doctor` measures multiply-adds on one thread and on all; "scaling" is the median
over the rounds of the quotients, "of the machine's" the median of scaling / the machine's scaling in that round.
Without --threads usable CPUs the machine's figure would be of others, so that is an error.

For --cores no such machine is needed: the module is compiled for N threads and its kernels are timed on one. A kernel
in p equal pieces takes ceil(p / N) of them, one without pieces is not shared; the bound is the time on one thread
divided by the sum of these. It leaves out memory and caches, which the cores share.
Writes NAME.json, NAME.md and NAME.png."""
import argparse
import collections
import json
import math
import pathlib
import statistics
import subprocess
import sys

import report as common

LARGE = ["resnet50", "vgg16", "bert_base", "vit_b_16"]


def tessera(*arguments):
    return subprocess.run([common.TESSERA, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def multiply_adds():
    """GFLOP/s of f32 multiply-adds: on one thread, on all."""
    peaks = json.loads(tessera("doctor", "--json").strip().splitlines()[-1])["peaks"]["arithmetic"]
    peak = next(peak for peak in peaks if peak["name"] == "f32 multiply-add")
    return peak["one_thread_gops"], peak["all_threads_gops"]


def compiled(path, threads, work):
    module = work / f"{path.stem}.{threads}.so"
    tessera("compile", path, "--threads", threads, "-o", module)
    return module


def milliseconds(module, threads, inputs):
    told = tessera("bench", module, "--threads", threads, "--json", *inputs)
    return json.loads(told.strip().splitlines()[-1])["median_ms"]


def kernels(module, threads, inputs, work):
    """{call: [microseconds, pieces]} of one run."""
    trace = work / "trace.json"
    tessera("run", module, "--threads", threads, "--profile", trace, *inputs)
    found = collections.defaultdict(lambda: [0.0, 0])
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("cat") == "kernel":
            call = found[event["args"]["call"]]
            call[0] += event["args"].get("busy_us", event["dur"])
            call[1] += event["args"].get("pieces", 1)
    return found


def bound(path, cores, inputs, work):
    module = compiled(path, cores, work)
    times = [kernels(module, 1, inputs, work) for _ in range(3)]
    pieces = {call: count for call, (_, count) in kernels(module, cores, inputs, work).items()}
    alone = {call: statistics.median(run[call][0] for run in times) for call in pieces}
    shared = {call: time * math.ceil(pieces[call] / cores) / pieces[call] for call, time in alone.items()}
    whole = sum(alone.values())
    return {"cores": cores, "bound": whole / sum(shared.values()), "kernels": len(pieces),
            "serial_kernels": sum(count == 1 for count in pieces.values()),
            "serial_share": sum(time for call, time in alone.items() if pieces[call] == 1) / whole}


def scaling(paths, args):
    inputs = {path: common.input_flags(path, args.work) for path in paths}
    modules = {path: {threads: compiled(path, threads, args.work) for threads in (1, args.threads)} for path in paths}
    rows = {path.stem: {"ms": {1: [], args.threads: []}, "of_machine": []} for path in paths}
    peaks = []
    for _ in range(args.rounds):
        peaks.append(multiply_adds())
        for path in paths:
            row = rows[path.stem]
            for threads, module in modules[path].items():
                row["ms"][threads].append(milliseconds(module, threads, inputs[path]))
            row["of_machine"].append(row["ms"][1][-1] / row["ms"][args.threads][-1] / (peaks[-1][1] / peaks[-1][0]))
    return peaks, rows


def write(report, out):
    threads, cores = report["threads"], [row["cores"] for row in next(iter(report["models"].values()))["cuts"]]
    head = ["model", "1 thread, ms", f"{threads} threads, ms", "scaling", "of the machine's",
            *(f"bound for {n} cores" for n in cores), f"kernels not shared at {cores[-1]}", "their share of the time"]
    table = [head]
    for name, row in report["models"].items():
        last = row["cuts"][-1]
        table.append([name, common.figure(row["ms"][0]), common.figure(row["ms"][1]), f"{row['scaling']:.2f}",
                      f"{row['of_machine']:.2f}", *(f"{cut['bound']:.1f}" for cut in row["cuts"]),
                      f"{last['serial_kernels']} of {last['kernels']}", f"{last['serial_share']:.1%}"])
    common.save_json(report, out.with_suffix(".json"))
    out.with_suffix(".md").write_text(
        f"# Networks on several threads\n\n{report['date']}, {report['cpu']}, tessera {report['tessera']} ({report['commit']}), "
        f"{report['rounds']} rounds. Multiply-adds of f32 on one thread and on all: {report['peak'][0]:.0f} and "
        f"{report['peak'][1]:.0f} GFLOP/s (x{report['machine']:.2f}). What the columns are: bench/threads.py.\n\n"
        f"{common.markdown(table)}\n")
    figure, axes = common.pyplot().subplots(figsize=(6.4, 4))
    for name, row in report["models"].items():
        axes.plot([1, *cores], [1, *(cut["bound"] for cut in row["cuts"])], marker="o", label=name)
    axes.plot([1, cores[-1]], [1, cores[-1]], color="black", linewidth=0.8, label="as many as cores")
    axes.set_xlabel("cores")
    axes.set_ylabel("bound of the speedup that the cuts give")
    axes.legend(fontsize=8)
    axes.set_title(f"How far the cuts of kernels scale, {report['date']}", fontsize=9)
    figure.tight_layout()
    figure.savefig(out.with_suffix(".png"), dpi=110)
    print(common.markdown(table))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=LARGE)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cores", default="8,16,64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=common.ROOT / "bench/results/threads")
    args = parser.parse_args()
    args.work = common.ROOT / "out/bench"
    args.work.mkdir(parents=True, exist_ok=True)
    usable = json.loads(tessera("doctor", "--json").strip().splitlines()[-1])["cpus"]["usable"]
    if usable != args.threads:
        sys.exit(f"threads.py: {usable} CPUs can be used here, which is not --threads {args.threads}; "
                 f"take --threads {usable}, or taskset")
    paths = [common.suite_model(name, args.folder or args.work) for name in args.models]
    peaks, rows = scaling(paths, args)
    report = {"date": common.today(), "cpu": common.cpu_name(), "tessera": common.tessera_version(), "commit": common.commit(),
              "threads": args.threads, "rounds": args.rounds,
              "peak": [statistics.median(of) for of in zip(*peaks)],
              "machine": statistics.median(many / one for one, many in peaks), "models": {}}
    for path in paths:
        row = rows[path.stem]
        one, many = row["ms"][1], row["ms"][args.threads]
        report["models"][path.stem] = {
            "ms": [statistics.median(one), statistics.median(many)],
            "scaling": statistics.median(a / b for a, b in zip(one, many)),
            "of_machine": statistics.median(row["of_machine"]),
            "cuts": [bound(path, int(cores), common.input_flags(path, args.work), args.work)
                     for cores in args.cores.split(",")]}
    write(report, args.out)


if __name__ == "__main__":
    main()
