#!/usr/bin/env python3
"""The tutorials of schedules (examples/schedules): each step's time, and its share of the measured multiply-add peak.

    tutorials.py [--only matmul]... [--seconds 2] [--threads 2] [--out bench/results/tutorials]

Writes NAME.json, NAME.md and NAME.png, and the loops of each step and a table with its caches and its inner loop to
out/bench/tutorials. The peak is measured in the same run as each step, with as many threads. The steps are for AVX-512. The
compiler is build/bin/tessera, or what TESSERA names; with --threads 1, pin it to a CPU (taskset -c 1)."""
import argparse
import importlib.util
import pathlib
import sys

from report import ROOT, TESSERA, commit, cpu_name, figure, markdown, pyplot, save_json, today

TUTORIALS = ("matmul", "conv", "softmax")


def runner():
    """examples/schedules/run.py, which is no package."""
    spec = importlib.util.spec_from_file_location("run", ROOT / "examples/schedules/run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plot(result, path):
    plt = pyplot()
    drawing, axes = plt.subplots(len(result), 1, figsize=(9, 3 * len(result)), squeeze=False)
    for place, (name, rows) in zip(axes[:, 0], result.items(), strict=True):
        bars = place.bar([row["step"] for row in rows], [row["percent_of_peak"] for row in rows], color="#3b7a57")
        place.bar_label(bars, fmt="%.1f", padding=2)
        place.set_ylim(0, 1.15 * max(row["percent_of_peak"] for row in rows))
        place.set_ylabel(f"{name}: % of peak")
        plt.setp(place.get_xticklabels(), rotation=20, ha="right")
    drawing.tight_layout()
    drawing.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=TUTORIALS)
    parser.add_argument("--seconds", default="2", help="for each step")
    parser.add_argument("--threads", type=int, default=2, help="of the steps that have a parallel loop")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/tutorials")
    options = parser.parse_args()
    run = runner()
    work = argparse.Namespace(out=ROOT / "out/bench/tutorials", seconds=options.seconds, threads=options.threads)
    result = {}
    for name in options.only or TUTORIALS:
        print(name, flush=True)
        result[name] = run.measure(TESSERA, run.HERE / name, work)
        (work.out / f"{name}.md").write_text(run.table(result[name]))
    save_json({"cpu": cpu_name(), "threads": options.threads, "date": today(), "commit": commit(), "tutorials": result},
              options.out.with_suffix(".json"))
    table = [["tutorial", "step", "", "ms", "GFLOP/s", "peak, GFLOP/s", "% of peak"]]
    for name, rows in result.items():
        for row in rows:
            peak = 100 * row["scheduled_gflops"] / row["percent_of_peak"] if row["percent_of_peak"] > 0 else 0
            table.append([name, row["step"], row["title"], figure(row["scheduled_ms"]), figure(row["scheduled_gflops"]),
                          figure(peak), f"{row['percent_of_peak']:.1f}"])
    last = ", ".join(f"{name} {rows[-1]['percent_of_peak']:.1f} %" for name, rows in result.items())
    head = f"{cpu_name()}, {options.threads} thread{'s' * (options.threads > 1)} where a step has a parallel loop, {today()}."
    options.out.with_suffix(".md").write_text(f"{head} The last step's share of the multiply-add peak: {last}.\n\n{markdown(table)}\n")
    plot(result, options.out.with_suffix(".png"))
    print(f"the last step's share of the peak: {last}")


if __name__ == "__main__":
    sys.exit(main())
