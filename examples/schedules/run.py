#!/usr/bin/env python3
"""Runs a tutorial of schedules: every step's time, its inner loop, what it does to the caches; a table and a plot.

    run.py TESSERA FOLDER [--out OUT] [--seconds S] [--threads N]   FOLDER is matmul, conv, softmax, gpu_matmul or gpu_window
    run.py TESSERA FOLDER --check                                   small sizes, no times: what the tests run

Writes OUT/FOLDER.md, OUT/FOLDER.png and OUT/FOLDER/STEP.loop (the loops of each step). Times are only worth something on
a quiet machine: pin the script to a CPU (taskset -c 1). The plot needs matplotlib; without it there is none.

Misses are of simulated caches (tessera schedule --emit cache) on a program of half the size in each direction for
matmul, with an L2 cache of a quarter of 1 MB. Cycles are those that llvm-mca foresees for one iteration of the innermost
loop; what it does in it is counted in its fused multiply-adds."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SIMULATED = {"matmul": ("matmul_512.loop", "32K/8", "256K/8")}


def run(command, allowed=(0,)):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in allowed:
        raise SystemExit(f"{' '.join(map(str, command))}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def steps_of(folder):
    return [None] + sorted(folder.glob("[0-9]*.sched"))


def title_of(step):
    if step is None:
        return "naive loops"
    title = re.match(r"// \d+\. (.*?)\.( |$)", step.read_text().split("\n")[0])[1]
    return title[0].lower() + title[1:]


def check(tessera, folder):
    """Every step in the interpreter on a small program; its trace replays to the same program."""
    program = folder / f"{folder.name}_small.loop"
    for step in steps_of(folder)[1:]:
        base = [tessera, "schedule", program, "--target", "x86-64-v4"]
        print(f"{step.name}: " + run(base + ["--apply", step, "--check"]).strip().replace("\n", "; "))
        trace = run(base + ["--apply", step, "--emit", "trace"])
        replayed = subprocess.run(
            [str(part) for part in base] + ["--apply", "-"], input=trace, stdout=subprocess.PIPE, text=True)
        if replayed.returncode != 0 or replayed.stdout != run(base + ["--apply", step]):
            raise SystemExit(f"{step.name}: its trace does not replay to the same program")
    return 0


def inner_loop(tessera, program, apply):
    report = run([tessera, "schedule", program, *apply, "--emit", "mca"])
    code = report.split("\nIterations:")[0]
    return {
        "cycles": float(re.search(r"// ([\d.]+) cycles", report)[1]),
        "fma": len(re.findall(r"\tvf(?:n?)madd\w+", code)),
        "instructions": len(re.findall(r"^\t\w", code, re.M)),
    }


def misses(tessera, folder, program, apply):
    name, l1, l2 = SIMULATED.get(folder.name, (program.name, "32K/8", "1M/8"))
    text = run([tessera, "schedule", folder / name, *apply, "--emit", "cache", "--l1", l1, "--l2", l2])
    found = re.findall(r"(\d+) misses", text)
    return {"accesses": int(text.split()[0]), "l1": int(found[0]), "l2": int(found[1])}


def measure(tessera, folder, options):
    program = folder / f"{folder.name}.loop"
    work = options.out / folder.name
    work.mkdir(parents=True, exist_ok=True)
    rows = []
    for step in steps_of(folder):
        apply = ["--apply", step] if step else []
        name = step.stem if step else "00_naive"
        (work / f"{name}.loop").write_text(run([tessera, "schedule", program, *apply]))
        threads = options.threads if step and "parallel" in step.name else 1
        bench = json.loads(run([
            tessera, "schedule", program, *apply, "--check", "--bench", "--only-scheduled", "--json",
            "--seconds", options.seconds, "--threads", threads]))["bench"]
        row = {"step": name, "title": title_of(step), "threads": threads, **bench}
        row.update(misses(tessera, folder, program, apply))
        row.update(inner_loop(tessera, program, apply))
        rows.append(row)
        print(f"{name}: {row['scheduled_ms']:.3f} ms, {row['percent_of_peak']:.1f} % of the peak", flush=True)
    return rows


def count(number):
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def table(rows):
    lines = [
        "| step | | ms | GFLOP/s | % of peak | accesses | L1 misses | L2 misses | inner loop |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        inner = f"{row['instructions']} instructions, {row['fma']} multiply-adds, {row['cycles']:.1f} cycles"
        threads = f" ({row['threads']} threads)" if row["threads"] > 1 else ""
        lines.append(f"| {row['step']} | {row['title']}{threads} | {row['scheduled_ms']:.3f} | {row['scheduled_gflops']:.1f} | "
                     f"{row['percent_of_peak']:.1f} | {count(row['accesses'])} | {count(row['l1'])} | {count(row['l2'])} | {inner} |")
    return "\n".join(lines) + "\n"


def plot(rows, path):
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as pyplot
    except ImportError:
        print("no plot: matplotlib is missing (scripts/setup.sh installs it)")
        return
    names = [row["step"].split("_", 1)[1] for row in rows]
    figure, (speed, traffic) = pyplot.subplots(2, 1, figsize=(9, 7), sharex=True)
    bars = speed.bar(names, [row["percent_of_peak"] for row in rows], color="#3b6ea5")
    speed.bar_label(bars, fmt="%.1f", padding=2)
    speed.set_ylabel("% of the measured multiply-add peak")
    speed.set_ylim(0, 105)
    traffic.plot(names, [max(row["l1"], 1) for row in rows], "o-", label="L1 misses", color="#c46a2b")
    traffic.plot(names, [max(row["l2"], 1) for row in rows], "s-", label="L2 misses", color="#555555")
    traffic.set_yscale("log")
    traffic.set_ylabel("simulated misses")
    traffic.legend()
    pyplot.setp(traffic.get_xticklabels(), rotation=30, ha="right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    print(f"plot: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("folder")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("schedules-out"))
    parser.add_argument("--seconds", default="2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    folder = HERE / options.folder
    if not folder.is_dir():
        raise SystemExit(f"there is no tutorial {options.folder}; there are matmul, conv, softmax")
    if options.check:
        return check(options.tessera, folder)
    if "avx512f" not in pathlib.Path("/proc/cpuinfo").read_text():
        raise SystemExit("the tutorials' vectors and intrinsic are those of AVX-512, which this machine lacks; --check runs anywhere")
    rows = measure(options.tessera, folder, options)
    (options.out / f"{options.folder}.md").write_text(table(rows))
    print(table(rows))
    plot(rows, options.out / f"{options.folder}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
