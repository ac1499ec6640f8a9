#!/usr/bin/env python3
"""The tuned convolutions of the suite beside those that TVM's MetaSchedule finds, with as many trials.

    metaschedule.py run [--trials 96] [--only C2]... [--seed 1] [--core N] [--before "chrt -r 1"] [--rounds 30] [--minutes M]
                        [--again | --remeasure] [--out bench/results/metaschedule]
    metaschedule.py report [--out bench/results/metaschedule]

For each shape of tuning_modes.py, one ONNX model from NCHW to NCHW with constant weights, `run` has both search with --trials and
for one thread, and measures what they found: `tessera tune --mode model` with the shipped cost model, which was trained on none of
these shapes; and MetaSchedule (metaschedule_tvm.py, with the Python of TESSERA_PYTHON) with its defaults for a CPU (XGBoost,
evolutionary), its rewriting of weights, and batches of 16, twice: as the model is, and with ConvertLayout to NHWC before,
where the layouts of input and output are changed within the model, as in ours. Each has all the trials; the faster one counts.
Outputs are compared first (1e-4 of the largest). Then the three run in turn, each in a process of its own, pinned to one core:
TVM in its own loop (time_evaluator), ours called from Python. A round's times are means of 50 ms, the quotient is the median over
the rounds.
Writes NAME.json (--out; at once after each shape; shapes that are there are not done again), NAME.md and NAME.png; what was
built and found is in out/bench/metaschedule, and is used again. --remeasure times shapes that are there again, --again has
all of it done anew. TVM needs xgboost, cloudpickle and psutil beside it, see README.md.
The compiler is build/bin/tessera, or what TESSERA names."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import helper

from report import (COLOURS, ROOT, RUNTIME, TESSERA, commit, cpu_name, figure, geometric_mean, load, markdown, pyplot, save_json,
                    today)
from tuning_modes import SHAPES, write_model

WORK = ROOT / "out/bench/metaschedule"
PEER = pathlib.Path(__file__).with_name("metaschedule_tvm.py")
LAYOUTS = ("NCHW", "NHWC")
ROUND_SECONDS = 0.05


def model_of(shape):
    """tuning_modes.py's model with its padding as numbers: TVM's importer makes an operator of its own of auto_pad."""
    path = WORK / f"{shape}.onnx"
    size, channels, _, kernel, stride, _ = SHAPES[shape]
    write_model(shape, path)
    model = onnx.load(path)
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    begin, end = total // 2, total - total // 2
    node = model.graph.node[0]
    kept = [attribute for attribute in node.attribute if attribute.name != "auto_pad"]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("pads", [begin, begin, end, end])])
    onnx.save(model, path)
    value = np.random.default_rng(7).standard_normal((1, channels, size, size)).astype(np.float32)
    np.save(path.with_suffix(".npy"), value)
    return path


def must(command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}")
    return done.stdout


def tune_ours(model, args):
    module, told = model.with_suffix(".so"), model.with_suffix(".tessera.json")
    if module.is_file() and told.is_file() and not args.again:
        return module, load(told)
    db = model.with_suffix(".db")
    for leftover in WORK.glob(db.name + "*"):
        leftover.unlink()
    begin = time.time()
    answer = json.loads(must([TESSERA, "tune", model, "--threads", 1, "--trials", args.trials, "--mode", "model",
                              "--seed", args.seed, "--db", db, "--json"]))
    must([TESSERA, "compile", model, "--threads", 1, "--db", db, "-o", module])
    keys = ("nodes", "trials", "default_us", "best_us", "best_point", "outcome")
    kernels = [{key: task[key] for key in keys} for task in answer["tasks"]]
    result = {"seconds": round(time.time() - begin, 1), "trials": answer["trials"], "verdict": answer["verdict"], "kernels": kernels}
    save_json(result, told)
    return module, result


def tune_tvm(model, layout, python, args):
    library = model.with_name(f"{model.stem}.{layout}.tvm.so")
    told = library.with_suffix(".json")
    if library.is_file() and told.is_file() and not args.again:
        return library, load(told)
    work = WORK / f"{model.stem}-{layout}"
    for leftover in work.glob("*.json"):
        leftover.unlink()  # of a run that was cut off
    answer = must([python, PEER, "tune", model, library, "--work", work, "--layout", layout, "--trials", args.trials, "--seed",
                   args.seed], stderr=subprocess.STDOUT)
    library.with_suffix(".log").write_text(answer)
    result = json.loads(answer.strip().splitlines()[-1])
    save_json(result, told)
    return library, result


class Runner:
    """A process that runs one of them, pinned to a core."""

    def __init__(self, command, args):
        core = args.core
        self.process = subprocess.Popen([*args.before.split(), *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"{command}: does not begin")

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def serve(module, path):
    """Ours, in a process of its own; answers as metaschedule_tvm.py does."""
    from tessera_module import Module
    ours = Module(RUNTIME, module, {"x": np.load(path)}, 1)
    ours.run()
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        ours.run()
        times.append(time.perf_counter() - begin)
    print("ready", flush=True)
    for line in sys.stdin:
        verb, _, what = line.strip().partition(" ")
        if verb == "outputs":
            np.save(what, ours.outputs()[0])
            print("done", flush=True)
            continue
        number = max(1, round(float(what) / min(times)))
        begin = time.perf_counter()
        for _ in range(number):
            ours.run()
        print(1e6 * (time.perf_counter() - begin) / number, flush=True)


def compare(model, module, libraries, python, args):
    value = model.with_suffix(".npy")
    runners = {"tessera": Runner([sys.executable, __file__, "serve", module, value], args)}
    for layout, library in libraries.items():
        runners[layout] = Runner([python, PEER, "serve", library, value], args)
    outputs = {}
    for name, runner in runners.items():
        path = model.with_name(f"{model.stem}.{name}.out.npy")
        runner.ask(f"outputs {path}")
        outputs[name] = np.load(path)
    want = outputs["tessera"]
    agrees = {name: bool(np.abs(outputs[name] - want).max() <= 1e-4 * np.abs(want).max()) for name in libraries}
    rounds = {name: [] for name in runners}
    for number in range(args.rounds + 1):
        for name in list(runners)[::-1 if number % 2 else 1]:
            us = float(runners[name].ask(f"time {ROUND_SECONDS}"))
            if number > 0:  # the first warms up
                rounds[name].append(round(us, 3))
    for runner in runners.values():
        runner.end()
    return agrees, rounds


def run(args):
    python = os.environ.get("TESSERA_PYTHON")
    if not python:
        sys.exit("name a Python that has apache-tvm and xgboost in TESSERA_PYTHON")
    WORK.mkdir(parents=True, exist_ok=True)
    path = args.out.with_suffix(".json")
    result = load(path) or {"cpu": cpu_name(), "rows": []}
    if result["cpu"] != cpu_name():
        sys.exit(f"{path} has results of {result['cpu']}, and this is {cpu_name()}: give another name with --out")
    end = time.time() + 60 * args.minutes if args.minutes else None
    for shape in args.only or SHAPES:
        there = any(row["shape"] == shape for row in result["rows"])
        if (there and not args.again and not args.remeasure) or (args.remeasure and not there):
            continue
        if end and time.time() > end:
            break
        model = model_of(shape)
        module, ours = tune_ours(model, args)
        print(f"{shape}: ours tuned in {ours['seconds']} s", flush=True)
        libraries, theirs = {}, {}
        for layout in LAYOUTS:
            libraries[layout], theirs[layout] = tune_tvm(model, layout, python, args)
            print(f"{shape}: TVM {layout} tuned in {theirs[layout]['seconds']} s", flush=True)
        agrees, rounds = compare(model, module, libraries, python, args)
        row = {"shape": shape, "trials": args.trials, "seed": args.seed, "date": today(), "commit": commit(), "tessera": ours,
               "tvm": theirs, "agrees": agrees, "rounds_us": rounds}
        result = load(path) or result  # shapes that another process did meanwhile
        result["rows"] = [old for old in result["rows"] if old["shape"] != shape] + [row]
        result["rows"].sort(key=lambda row: list(SHAPES).index(row["shape"]))
        save_json(result, path)
        print(f"{shape}: TVM's faster one takes {quotients(row)['best']:.2f} of our time", flush=True)
        if not all(agrees.values()):
            print(f"{shape}: outputs differ: {agrees}", flush=True)
    report(result, args.out)


def quotients(row):
    """TVM's time over ours: for each layout, medians over the rounds, and the smaller one, of layouts with the right outputs."""
    ours = row["rounds_us"]["tessera"]
    each = {layout: statistics.median(theirs / own for theirs, own in zip(row["rounds_us"][layout], ours)) for layout in LAYOUTS}
    right = [each[layout] for layout in LAYOUTS if row["agrees"][layout]]
    return each | {"best": min(right) if right else float("nan")}


def report(result, out):
    rows = result["rows"]
    table = [["shape", "tessera, us", *(f"TVM {layout}, us" for layout in LAYOUTS), "TVM's faster / ours", "tuned in s: ours",
              "TVM's two"]]
    speeds = []
    for row in rows:
        found = quotients(row)
        speeds.append(found["best"])
        cells = [figure(statistics.median(row["rounds_us"][name])) + ("" if row["agrees"].get(name, True) else " (differs)")
                 for name in ("tessera", *LAYOUTS)]
        table.append([row["shape"], *cells, f"{found['best']:.2f}", f"{row['tessera']['seconds']:.0f}",
                      " + ".join(f"{row['tvm'][layout]['seconds']:.0f}" for layout in LAYOUTS)])
    dates = sorted({row["date"] for row in rows})
    versions = sorted({row["tvm"][layout]["version"] for row in rows for layout in LAYOUTS})
    faster = sum(speed > 1 for speed in speeds)
    text = (f"{result['cpu']}, one thread, {dates[0]}" + (f" to {dates[-1]}" if dates[-1] != dates[0] else "")
            + f", TVM {', '.join(versions)}, {rows[0]['trials']} trials of each search. Medians of {len(rows[0]['rounds_us']['tessera'])} "
            f"rounds in turn. Ours is faster on {faster} of {len(rows)}, {geometric_mean(speeds):.2f} times as fast as TVM's faster layout "
            "(geometric mean).\n\n" + markdown(table) + "\n")
    out.with_suffix(".md").write_text(text)
    plt = pyplot()
    figure_, axis = plt.subplots(figsize=(9, 4))
    width = 0.4
    for index, (layout, colour) in enumerate(zip(LAYOUTS, (COLOURS["tvm"], COLOURS["mnn"]))):
        places = [number + (index - 0.5) * width for number in range(len(rows))]
        axis.bar(places, [1 / quotients(row)[layout] for row in rows], width, color=colour, label=f"TVM {layout}")
    axis.axhline(1, color=COLOURS["tessera"], label="tessera")
    axis.set_xticks(range(len(rows)), [row["shape"] for row in rows])
    axis.set_ylabel("speed over ours, tuned")
    axis.legend()
    figure_.tight_layout()
    figure_.savefig(out.with_suffix(".png"), dpi=110)
    print(text)


def main():
    if sys.argv[1:2] == ["serve"]:
        return serve(*map(pathlib.Path, sys.argv[2:4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("--trials", type=int, default=96)
    running.add_argument("--only", action="append", choices=SHAPES)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="on which the measurements run")
    running.add_argument("--before", default="", help="words before the commands that are measured")
    running.add_argument("--rounds", type=int, default=30)
    running.add_argument("--minutes", type=float, help="begin no further shape after so many")
    how = running.add_mutually_exclusive_group()
    how.add_argument("--again", action="store_true", help="search and measure again what is there")
    how.add_argument("--remeasure", action="store_true", help="measure again what is there")
    for verb in (running, verbs.add_parser("report")):
        verb.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/metaschedule")
    args = parser.parse_args()
    if args.verb == "run":
        return run(args)
    result = load(args.out.with_suffix(".json"))
    if result is None:
        sys.exit(f"there are no results in {args.out}.json: begin with 'run'")
    return report(result, args.out)


if __name__ == "__main__":
    main()
