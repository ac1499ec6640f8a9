#!/usr/bin/env python3
"""The networks of the suite before and after `tessera tune`: no regret, and what is gained.

    tuned_models.py run [MODEL...] [--budget 3m] [--mode model] [--threads 1] [--rounds 9] [--before "chrt -r 1"] [--folder out/bench]
    tuned_models.py report [--out bench/results/tuned_models]

`run` tunes one network at a time into out/bench/tuned_models/MODEL.db, compiles it with and without these records and times both
modules in turn, in processes of their own; it keeps the answers in bench/results/tuned_models.json at once, and what is there is not
done again. "after / before" is the median over the rounds of the quotients of medians; the search itself has compared both
before it kept anything ("verdict"). "monotone": whether the search's own estimate of the model's time never rose.
`report` writes NAME.md and NAME.png.
The compiler is build/bin/tessera, or what TESSERA names; --before stands before the commands that time both modules."""
import argparse
import pathlib
import statistics
import sys
import time

from report import (COLOURS, ROOT, SUITE, TESSERA, answer_of, commit, cpu_name, figure, fresh, geometric_mean, input_flags, load,
                    markdown, pyplot, save_json, suite_model, today)

WORK = ROOT / "out/bench/tuned_models"
RESULT = ROOT / "bench/results/tuned_models.json"


def median_ms(module, inputs, args):
    return answer_of([*args.before.split(), TESSERA, "bench", module, "--threads", args.threads, *inputs, "--json"])["median_ms"]


def run_one(name, args):
    model = suite_model(name, pathlib.Path(args.folder))
    db, plain, tuned = (WORK / f"{name}{end}" for end in (".db", ".plain.so", ".tuned.so"))
    fresh(db)
    begin = time.time()
    inputs = input_flags(model, WORK)
    answer = answer_of([TESSERA, "tune", model, *inputs, "--threads", args.threads, "--budget", args.budget, "--mode",
                        args.mode, "--db", db, "--json"])
    seconds = time.time() - begin
    answer_of([TESSERA, "compile", model, "--threads", args.threads, "-o", plain])
    answer_of([TESSERA, "compile", model, "--threads", args.threads, "--db", db, "-o", tuned])
    rounds = [[median_ms(plain, inputs, args), median_ms(tuned, inputs, args)] for _ in range(args.rounds)]
    estimates = [entry["model_us"] for entry in answer["log"] if entry["what"] == "estimate"]
    outcomes = [task["outcome"] for task in answer["tasks"]]
    return {"model": name, "threads": args.threads, "budget": args.budget, "mode": args.mode, "trials": answer["trials"],
            "seconds": round(seconds, 1), "kernels": len(outcomes),
            "outcomes": {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}, "verdict": answer["verdict"],
            "tasks": [{key: task[key] for key in ("kernel", "rule", "default_us", "best_us", "percent_of_bound", "trials", "outcome")}
                      for task in answer["tasks"]],
            "monotone": all(b <= a for a, b in zip(estimates, estimates[1:])), "estimates_us": [round(us, 1) for us in estimates],
            "rounds_ms": [[round(ms, 4) for ms in pair] for pair in rounds],
            "before_ms": statistics.median(pair[0] for pair in rounds), "after_ms": statistics.median(pair[1] for pair in rounds),
            "after_over_before": statistics.median(pair[1] / pair[0] for pair in rounds), "date": today(), "commit": commit()}


def run(args):
    report = load(RESULT) or {"cpu": cpu_name(), "rows": []}
    if report["cpu"] != cpu_name():
        sys.exit(f"{RESULT} has runs of {report['cpu']}, and this is {cpu_name()}: move it away first")
    WORK.mkdir(parents=True, exist_ok=True)
    for name in args.models or SUITE:
        if any(row["model"] == name and row["threads"] == args.threads for row in report["rows"]):
            continue
        row = run_one(name, args)
        report["rows"].append(row)
        save_json(report, RESULT)
        print(f"{name}: {figure(row['before_ms'])} ms before, {figure(row['after_ms'])} after, {row['trials']} trials; {row['verdict']}",
              flush=True)


def write_report(args):
    report = load(RESULT)
    if not report:
        sys.exit(f"{RESULT}: nothing was run")
    rows = sorted(report["rows"], key=lambda row: (row["threads"], row["model"]))
    table = [["model", "threads", "budget", "trials", "kernels", "changed", "before, ms", "after, ms", "after / before",
              "estimate monotone"]]
    for row in rows:
        changed = row["outcomes"].get("tuned", 0)
        table.append([row["model"], row["threads"], row["budget"], row["trials"], row["kernels"], changed, figure(row["before_ms"]),
                      figure(row["after_ms"]), f"{row['after_over_before']:.3f}", "yes" if row["monotone"] else "no"])
    ratios = [row["after_over_before"] for row in rows]
    head = (f"{report['cpu']}, {rows[-1]['date']}. Networks with `tessera tune`, each {rows[-1]['budget']}; medians of "
            f"{len(rows[-1]['rounds_ms'])} rounds in turn. After / before: geometric mean {geometric_mean(ratios):.3f}, the largest "
            f"{max(ratios):.3f}.")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".md").write_text(head + "\n\n" + markdown(table) + "\n")
    plot = pyplot()
    _, axes = plot.subplots(figsize=(9, 4))
    names = [f"{row['model']} ({row['threads']})" for row in rows]
    axes.bar(names, [1 / ratio for ratio in ratios], color=COLOURS["tessera"])
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_ylabel("speed after tuning / before")
    axes.set_ylim(0.9, max(1.2, 1.05 / min(ratios)))
    axes.tick_params(axis="x", rotation=60)
    plot.tight_layout()
    plot.savefig(args.out.with_suffix(".png"), dpi=110)
    print(head)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("models", nargs="*")
    runs.add_argument("--budget", default="3m")
    runs.add_argument("--mode", default="model")
    runs.add_argument("--threads", type=int, default=1)
    runs.add_argument("--rounds", type=int, default=9)
    runs.add_argument("--before", default="")
    runs.add_argument("--folder", default=str(ROOT / "out/bench"))
    runs.set_defaults(do=run)
    reports = verbs.add_parser("report")
    reports.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/tuned_models")
    reports.set_defaults(do=write_report)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
