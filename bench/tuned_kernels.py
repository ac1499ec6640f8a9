#!/usr/bin/env python3
"""What `tessera tune` gains for kernels whose default is far from their roofline.

    tuned_kernels.py run [MODEL...] [--trials 200] [--space all] [--below 80] [--share 0.5] [--threads 1] [--minutes M]
                         [--folder out/bench]
    tuned_kernels.py report [--out bench/results/tuned_kernels]

`run` measures each network's kernels once, and gives every kernel of its own whose default stays below --below percent of its
roofline, and takes at least --share percent of the network's time (the tuner leaves out what takes less than 0.2), --trials
trials of its own (`tessera tune MODEL --only KERNEL`). The answers go to bench/results/tuned_kernels.json at once, and what is
there is not done again. A kernel's gain is its default's time over the time of the schedule that was confirmed against it,
kernel by kernel, in processes of their own with a statistical test; 1 where none was. Kernels of several networks with the
same program count once. `report` writes NAME.md and NAME.png. The compiler is build/bin/tessera, or what TESSERA names."""
import argparse
import pathlib
import re
import sys
import time

from report import (COLOURS, ROOT, SUITE, TESSERA, answer_of, commit, cpu_name, figure, fresh, geometric_mean, input_flags, load,
                    markdown, pyplot, save_json, suite_model, today)

WORK = ROOT / "out/bench/tuned_kernels"
RESULT = ROOT / "bench/results/tuned_kernels.json"


def run_one(model, task, inputs, args):
    """One kernel's trials. `task` is its row in the network's own answer."""
    db = fresh(WORK / f"{model.stem}-{task['kernel'][:8]}.db")
    begin = time.time()
    answer = answer_of([TESSERA, "tune", model, *inputs, "--threads", args.threads, "--trials", args.trials, "--mode", "model",
                        "--space", args.space, "--only", task["kernel"], "--db", db, "--json"])
    mine = next(entry for entry in answer["tasks"] if entry["kernel"] == task["kernel"])
    choices = [choice for choice in answer_of([TESSERA, "db", "show", db, "--json"])["choices"]
               if choice["kernel"] == task["kernel"]]
    gain = max([1.0, *(choice["default_us"] / choice["us"] for choice in choices)])
    return {"model": model.stem, "kernel": task["kernel"], "nodes": task["nodes"], "rule": task["rule"],
            "share": round(task["share"], 4), "percent_of_bound": round(mine["percent_of_bound"] or task["percent_of_bound"], 1),
            "default_us": mine["default_us"], "default_point": mine["default_point"],
            "best_point": choices[0]["schedule"] if choices else mine["default_point"], "gain": round(gain, 4),
            "trials": mine["trials"], "in_the_model": mine["outcome"], "seconds": round(time.time() - begin, 1),
            "space": args.space, "threads": args.threads, "date": today(), "commit": commit()}


def run(args):
    report = load(RESULT) or {"cpu": cpu_name(), "probed": {}, "rows": []}
    if report["cpu"] != cpu_name():
        sys.exit(f"{RESULT} has runs of {report['cpu']}, and this is {cpu_name()}: move it away first")
    WORK.mkdir(parents=True, exist_ok=True)
    end = time.time() + 60 * args.minutes if args.minutes else None
    for name in args.models or SUITE:
        model = suite_model(name, pathlib.Path(args.folder))
        inputs = input_flags(model, WORK)
        if name not in report["probed"]:
            tasks = answer_of([TESSERA, "tune", model, *inputs, "--threads", args.threads, "--trials", 1, "--db",
                               fresh(WORK / f"{name}-probe.db"), "--json"])["tasks"]
            report["probed"][name] = {"kernels": len(tasks), "tasks": [
                {key: task[key] for key in ("kernel", "nodes", "rule", "share", "percent_of_bound")} for task in tasks
                if task["kernel"] and task["percent_of_bound"] < args.below and task["share"] * 100 >= args.share]}
            save_json(report, RESULT)
        for task in report["probed"][name]["tasks"]:
            if any(row["kernel"] == task["kernel"] and row["threads"] == args.threads for row in report["rows"]):
                continue
            if end and time.time() > end:
                return
            row = run_one(model, task, inputs, args)
            report["rows"].append(row)
            save_json(report, RESULT)
            print(f"{name} {row['kernel'][:8]} {row['percent_of_bound']:.0f}% of its bound, {figure(row['default_us'])} us: "
                  f"{row['gain']:.2f}, {row['trials']} trials, {row['seconds']} s", flush=True)


def one_line(schedule):
    """Knobs as they are; of a sketch's trace its name and its decisions."""
    if not schedule.startswith("// "):
        return schedule
    decided = re.findall(r"^(.*?) = sample.* decided \[(.*)\]$", schedule, re.MULTILINE)
    return f"{schedule.splitlines()[0][3:]}{{{'; '.join(f'{names}={values}' for names, values in decided)}}}"


def write_report(args):
    report = load(RESULT)
    if not report or not report["rows"]:
        sys.exit(f"{RESULT}: nothing was run")
    rows = sorted((row for row in report["rows"] if row["trials"]), key=lambda row: -row["gain"])
    gains = [row["gain"] for row in rows]
    models = len({row["model"] for row in rows})
    most = max(row["trials"] for row in rows)
    head = (f"{report['cpu']}, {rows[-1]['date']}. {len(rows)} kernels of {models} networks whose default stays below their roofline, up "
            f"to {most} trials each: {geometric_mean(gains):.3f} times as fast in the geometric mean, "
            f"{sum(gain >= 1.2 for gain in gains)} of them 1.2 times or more, {sum(gain == 1 for gain in gains)} not surely faster.")
    still = [row["gain"] for row in rows if row["percent_of_bound"] < args.below]
    head += (f" {len(still)} of them were below {args.below:g} % when their trials began, too: {geometric_mean(still):.3f} times.")
    table = [["model", "kernel", "rule", "% of bound", "default, us", "gain", "trials", "schedule found"]]
    for row in rows:
        table.append([row["model"], row["kernel"][:8], row["rule"], f"{row['percent_of_bound']:.0f}", figure(row["default_us"]),
                      f"{row['gain']:.2f}", row["trials"], f"`{one_line(row['best_point'])}`" if row["gain"] > 1 else ""])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".md").write_text(head + "\n\n" + markdown(table) + "\n")
    plot = pyplot()
    _, axes = plot.subplots(figsize=(8, 4))
    axes.scatter([row["percent_of_bound"] for row in rows], gains, color=COLOURS["tessera"], s=18)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xlabel("default, % of its roofline")
    axes.set_ylabel("gain by tuning")
    plot.tight_layout()
    plot.savefig(args.out.with_suffix(".png"), dpi=110)
    print(head)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("models", nargs="*")
    runs.add_argument("--trials", type=int, default=200)
    runs.add_argument("--space", choices=["templates", "sketches", "all"], default="all")
    runs.add_argument("--below", type=float, default=80)
    runs.add_argument("--share", type=float, default=0.5)
    runs.add_argument("--threads", type=int, default=1)
    runs.add_argument("--minutes", type=float, default=0)
    runs.add_argument("--folder", default=str(ROOT / "out/bench"))
    runs.set_defaults(do=run)
    reports = verbs.add_parser("report")
    reports.add_argument("--below", type=float, default=80)
    reports.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/tuned_kernels")
    reports.set_defaults(do=write_report)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
