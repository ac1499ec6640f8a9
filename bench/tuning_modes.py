#!/usr/bin/env python3
"""How many trials each mode of `tessera tune` needs on convolutions of the suite.

    tuning_modes.py run [--trials 96] [--seeds 1,2,3] [--only C2]... [--modes random,evolutionary,model,pretrained,sketches]
                        [--minutes M] [--records FILE]
    tuning_modes.py report [--records FILE] [--out bench/results/tuning_modes]

`run` tunes one convolution at a time, with one thread, in each mode and from each seed, and keeps the answers in
bench/results/tuning_modes.records.json (--records: another file, for another machine) and the trials in
out/bench/tuning_modes/SHAPE-MODE-SEED.db. What is there is not done again, so it can be stopped at any time and started again;
--minutes ends it after a while. The seeds' order is the
outer one: each round of all shapes and modes is complete before the next. `model` begins without a model of costs, `pretrained`
with the shipped one, which was trained on none of these shapes (cost_model.py); these and random and evolutionary search the rules'
knobs (--space templates). `sketches` is `pretrained` on generated schedules (--space sketches), of which the model has seen none.
`report` writes NAME.json, NAME.md and NAME.png. The best of a shape is the least time over its default's that any run of
any mode confirmed (twice, in processes of their own); a run's figure is the first trial of its own, the rules' choice not
counted, within 95% of the best speed. A run that never came there counts with one trial more than it had. A trial's time
over the default's is the product of medians of paired rounds, so that a busy machine meets both. Sketches reach the templates' best
on a shape when a trial of theirs came within 95% of the best speed that any run of the templates confirmed there.
The compiler is build/bin/tessera, or what TESSERA names."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from report import ROOT, TESSERA, commit, cpu_name, load, markdown, pyplot, save_json, today

WORK = ROOT / "out/bench/tuning_modes"
RECORDS = ROOT / "bench/results/tuning_modes.records.json"
# Height = width, channels in and out, kernel, stride, groups; padding as SAME.
SHAPES = {"C1": (224, 3, 64, 7, 2, 1), "C2": (56, 64, 64, 3, 1, 1), "C3": (56, 64, 64, 1, 1, 1),
          "C7": (28, 128, 256, 3, 2, 1), "C11": (14, 256, 512, 1, 2, 1), "D1": (112, 32, 32, 3, 1, 32),
          "D4": (56, 128, 128, 3, 2, 128), "D9": (7, 1024, 1024, 3, 1, 1024)}
ENOUGH = 0.95
COLOURS = {"random": "#7a7a7a", "evolutionary": "#4a6fa5", "model": "#3b7a57", "pretrained": "#c8a13a", "sketches": "#a54a5b"}
# What --mode and the flags behind it are called.
TEMPLATES = ["--space", "templates"]
MODES = {"random": ["random", *TEMPLATES], "evolutionary": ["evolutionary", *TEMPLATES],
         "model": ["model", "--cost-model", "none", *TEMPLATES], "pretrained": ["model", *TEMPLATES],
         "sketches": ["model", "--space", "sketches"]}


def write_model(shape, path):
    """One convolution as ONNX, from a tensor to a tensor, weights from a seed."""
    size, channels, filters, kernel, stride, groups = SHAPES[shape]
    draw = np.random.default_rng(5)
    dims = (filters, channels // groups, kernel, kernel)
    weight = (draw.standard_normal(dims) / np.sqrt(np.prod(dims[1:]))).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name=shape, auto_pad="SAME_UPPER", strides=[stride] * 2, group=groups)
    out = -(-size // stride)
    graph = helper.make_graph(
        [node], shape,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, filters, out, out])],
        [numpy_helper.from_array(weight, "w")])
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def tune(shape, db, *more):
    model = WORK / f"{shape}.onnx"
    if not model.is_file():
        write_model(shape, model)
    command = [TESSERA, "tune", str(model), "--threads", "1", "--db", str(db), "--no-graph", "--json", *map(str, more)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def rounded(values):
    return [round(value, 4) for value in values]


def run_one(shape, mode, seed, trials, records):
    kernel = records["kernels"].get(shape)
    if kernel is None:
        # The convolution is the kernel with most time; others only change a layout, which the rule `injective` does.
        answer = tune(shape, WORK / f"{shape}-probe.db", "--trials", 2)
        tasks = [task for task in answer["tasks"] if task["rule"] not in ("", "injective")]
        kernel = max(tasks, key=lambda task: task["share"])["kernel"]
        records["kernels"][shape] = kernel
    db = WORK / f"{shape}-{mode}-{seed}.db"
    for leftover in WORK.glob(db.name + "*"):
        leftover.unlink()  # of a run that was cut off
    # The shipped model was trained on none of these shapes (cost_model.py).
    how = MODES[mode]
    begin = time.time()
    answer = tune(shape, db, "--only", kernel, "--trials", trials, "--seed", seed, "--mode", *how)
    task = next(task for task in answer["tasks"] if task["kernel"] == kernel)
    default = task["default_us"]
    if default == 0:
        return None  # the machine was too busy for the first trial: another time
    return {"shape": shape, "mode": mode, "seed": seed, "trials": task["trials"], "default_us": round(default, 2),
            "default_point": task["default_point"], "best_point": task["best_point"], "outcome": task["outcome"],
            "tried": rounded(us / default if us > 0 else -1 for us in task["trial_us"]),
            "standing": rounded(us / default for us in task["standing_us"]),
            "predictions": answer["predictions"], "prediction_us": round(answer["prediction_us"], 1),
            "seconds": round(time.time() - begin, 1), "date": today(), "commit": commit()}


def run(options):
    records = load(options.records) or {"cpu": cpu_name(), "kernels": {}, "runs": []}
    if records["cpu"] != cpu_name():
        sys.exit(f"{options.records} has runs of {records['cpu']}, and this is {cpu_name()}: give another file with --records")
    there = {(entry["shape"], entry["mode"], entry["seed"]) for entry in records["runs"]}
    end = time.time() + 60 * options.minutes if options.minutes else None
    WORK.mkdir(parents=True, exist_ok=True)
    for seed in map(int, options.seeds.split(",")):
        for shape in options.only or SHAPES:
            for mode in options.modes.split(","):
                if (shape, mode, seed) in there:
                    continue
                if end and time.time() > end:
                    return
                entry = run_one(shape, mode, seed, options.trials, records)
                if entry is None:
                    print(f"{shape} {mode} {seed}: {shape} could not be measured now", flush=True)
                    continue
                records["runs"].append(entry)
                save_json(records, options.records)
                print(f"{shape} {mode} {seed}: {1 / entry['standing'][-1]:.2f} times the default's speed, {entry['seconds']} s",
                      flush=True)


def needed(entry, best):
    """The first trial of the search's own, counted from 1, within 95% of the best speed; one more than there were when none
    was. Trial 0, the rules' choice, is the same in all modes and does not count."""
    for number, ratio in enumerate(entry["tried"][1:]):
        if ratio > 0 and best / ratio >= ENOUGH:
            return number + 1
    return len(entry["tried"])


def confirmed(entry, best):
    """The same, where a trial counts when it was confirmed: then what stands is within 95% of the best speed."""
    for number, ratio in enumerate(entry["standing"][1:]):
        if best / ratio >= ENOUGH:
            return number + 1
    return len(entry["standing"])


def sketches_beside_templates(runs):
    """The best that templates confirmed, the fastest trial of a sketch, and the best that sketches confirmed, as speeds over the
    default's; None where one of them was not run."""
    templates = [entry["standing"][-1] for entry in runs if entry["mode"] != "sketches"]
    tried = [ratio for entry in runs if entry["mode"] == "sketches" for ratio in entry["tried"][1:] if ratio > 0]
    if not templates or not tried:
        return None
    best, fastest = min(templates), min(tried)
    stands = min(entry["standing"][-1] for entry in runs if entry["mode"] == "sketches")
    return {"templates": round(1 / best, 3), "sketches": round(1 / fastest, 3), "reached": best / fastest >= ENOUGH,
            "confirmed": round(1 / stands, 3), "reached_confirmed": best / stands >= ENOUGH}


def summary(records):
    """For each shape the best, and for each mode the trials that its runs needed."""
    rows = {}
    for shape in SHAPES:
        runs = [entry for entry in records["runs"] if entry["shape"] == shape]
        if not runs:
            continue
        best = min(entry["standing"][-1] for entry in runs)
        modes = {}
        for mode in COLOURS:
            mine = sorted((entry for entry in runs if entry["mode"] == mode), key=lambda entry: entry["seed"])
            if mine:
                modes[mode] = {"needed": [needed(entry, best) for entry in mine],
                               "confirmed": [confirmed(entry, best) for entry in mine],
                               "gain": [round(1 / entry["standing"][-1], 3) for entry in mine]}
        rows[shape] = {"best_gain": round(1 / best, 3), "trials": max(entry["trials"] for entry in runs), "modes": modes,
                       "sketches": sketches_beside_templates(runs)}
    return rows


def report(options):
    records = load(options.records)
    if records is None:
        sys.exit(f"there are no runs in {options.records}: begin with 'run'")
    rows = summary(records)
    modes = [mode for mode in COLOURS if any(mode in row["modes"] for row in rows.values())]
    table = [["shape", "best found", *(f"{mode}: trials for 95%" for mode in modes), *(f"{mode}: gain" for mode in modes)]]
    for shape, row in rows.items():
        cells = [row["modes"].get(mode) for mode in modes]
        table.append([shape, f"{row['best_gain']:.2f}",
                      *(", ".join(str(n) if n < row["trials"] else "-" for n in cell["needed"]) if cell else "" for cell in cells),
                      *(f"{statistics.median(cell['gain']):.2f}" if cell else "" for cell in cells)])
    medians = {mode: statistics.median(n for row in rows.values() if mode in row["modes"] for n in row["modes"][mode]["needed"])
               for mode in modes}
    table.append(["median", "", *(f"{medians[mode]:g}" for mode in modes), *([""] * len(modes))])
    strictly = {mode: statistics.median(n for row in rows.values() if mode in row["modes"]
                                        for n in row["modes"][mode]["confirmed"]) for mode in modes}
    table.append(["median, confirmed trials", "", *(f"{strictly[mode]:g}" for mode in modes), *([""] * len(modes))])
    costs = [entry["prediction_us"] for entry in records["runs"] if entry["predictions"]]
    dates = sorted({entry["date"] for entry in records["runs"]})
    name = pathlib.Path(options.out)
    result = {"cpu": records["cpu"], "dates": dates, "runs": len(records["runs"]), "rows": rows, "median_trials": medians,
              "median_confirmed_trials": strictly,
              "prediction_us": {"median": statistics.median(costs), "largest": max(costs)} if costs else None}
    text = (f"{records['cpu']}, one thread, {dates[0]}" + (f" to {dates[-1]}" if dates[-1] != dates[0] else "")
            + f", {len(records['runs'])} runs. Trials of the search's own until one was within 95% of the best speed "
            "that any run confirmed, for each seed; - where none was. "
            "Gains are over the rules' choice, medians of the seeds.\n\n" + markdown(table) + "\n")
    beside = {shape: row["sketches"] for shape, row in rows.items() if row["sketches"]}
    if beside:
        result["reached"] = sum(cell["reached"] for cell in beside.values())
        lines = [["", *beside], ["templates' best, confirmed", *(f"{cell['templates']:.2f}" for cell in beside.values())],
                 ["sketches' fastest trial", *(f"{cell['sketches']:.2f}" for cell in beside.values())],
                 ["sketches' best, confirmed", *(f"{cell['confirmed']:.2f}" for cell in beside.values())]]
        result["reached_confirmed"] = sum(cell["reached_confirmed"] for cell in beside.values())
        text += (f"\nSketches reach the templates' best (within 5%) on {result['reached']} of {len(beside)}, by what was "
                 f"confirmed of both on {result['reached_confirmed']}. Speeds over the rules' choice:\n\n" + markdown(lines) + "\n")
    save_json(result, name.with_suffix(".json"))
    if costs:
        text += f"\nOne prediction, with the features: {statistics.median(costs):.0f} us (median of runs), {max(costs):.0f} us at most.\n"
    name.with_suffix(".md").write_text(text)

    plt = pyplot()
    figure, axes = plt.subplots(2, 4, figsize=(14, 6), sharex=True)
    for axis, shape in zip(axes.flat, SHAPES):
        for mode in modes:
            for entry in records["runs"]:
                if entry["shape"] == shape and entry["mode"] == mode:
                    axis.step(range(1, len(entry["standing"]) + 1), [1 / ratio for ratio in entry["standing"]], where="post",
                              color=COLOURS[mode], linewidth=1, label=mode if entry["seed"] == 1 else None)
        axis.set_title(shape)
    for axis in axes[1]:
        axis.set_xlabel("trials")
    for axis in axes[:, 0]:
        axis.set_ylabel("speed over the default's")
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(name.with_suffix(".png"), dpi=110)
    print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run_parser = verbs.add_parser("run")
    run_parser.add_argument("--trials", type=int, default=96)
    run_parser.add_argument("--seeds", default="1,2,3")
    run_parser.add_argument("--only", action="append", choices=SHAPES)
    run_parser.add_argument("--modes", default=",".join(MODES))
    run_parser.add_argument("--minutes", type=float, help="end after so many")
    run_parser.add_argument("--records", type=pathlib.Path, default=RECORDS)
    report_parser = verbs.add_parser("report")
    report_parser.add_argument("--records", type=pathlib.Path, default=RECORDS)
    report_parser.add_argument("--out", default=str(ROOT / "bench/results/tuning_modes"))
    options = parser.parse_args()
    run(options) if options.verb == "run" else report(options)


if __name__ == "__main__":
    main()
