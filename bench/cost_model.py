#!/usr/bin/env python3
"""The cost model that ships with the tuner: trials of shapes to train it on and of others to try it on, the training, and
its figures.

    cost_model.py collect [--minutes M] [--trials 64]
    cost_model.py train [--out src/tune/pretrained/cost_model.json] [--report bench/results/cost_model]

`collect` tunes one kernel at a time, with one thread and random points of its space, and keeps the trials in
out/bench/cost_model/{train,test}/SHAPE.db. A shape that is there, or in bench/results/cost_model.{train,test}.db.xz, is not
done again, so it can be stopped at any time and started again; --minutes ends it after a while. Under `taskset -c 1 chrt -r 1`
where other work runs.
`train` adds them to those files (without these files it makes them anew), trains the model on the first (`tessera db train`),
and asks it about the order of the trials of the second: none of those shapes is in the first.
The compiler is build/bin/tessera, or what TESSERA names."""
import argparse
import json
import lzma
import pathlib
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from report import ROOT, TESSERA, commit, cpu_name, markdown, save_json, today

WORK = ROOT / "out/bench/cost_model"
RECORDS = {part: ROOT / f"bench/results/cost_model.{part}.db.xz" for part in ("train", "test")}
# Convolutions: height = width, channels in and out, kernel, stride, groups; padding as SAME. The test's are those that
# tuning_modes.py compares the modes on; the others of ResNet-18 and MobileNet, and some of EfficientNet, YOLO and MobileNet v2,
# train.
CONVOLUTIONS = {
    "train": {"C4": (56, 64, 128, 3, 2, 1), "C5": (56, 64, 128, 1, 2, 1), "C6": (28, 128, 128, 3, 1, 1),
              "C8": (28, 128, 256, 1, 2, 1), "C9": (14, 256, 256, 3, 1, 1), "C10": (14, 256, 512, 3, 2, 1),
              "C12": (7, 512, 512, 3, 1, 1), "D2": (112, 64, 64, 3, 2, 64), "D3": (56, 128, 128, 3, 1, 128),
              "D5": (28, 256, 256, 3, 1, 256), "D6": (28, 256, 256, 3, 2, 256), "D7": (14, 512, 512, 3, 1, 512),
              "D8": (14, 512, 512, 3, 2, 512), "stem3": (160, 3, 32, 3, 2, 1), "expand112": (112, 16, 96, 1, 1, 1),
              "expand56": (56, 24, 144, 1, 1, 1), "project28": (28, 192, 32, 1, 1, 1), "expand14": (14, 96, 576, 1, 1, 1),
              "head7": (7, 320, 1280, 1, 1, 1), "depth28": (28, 96, 96, 5, 1, 96), "depth14": (14, 240, 240, 5, 1, 240),
              "yolo75": (75, 32, 64, 3, 1, 1), "yolo38": (38, 256, 128, 1, 1, 1), "wide56": (56, 64, 256, 1, 1, 1),
              "stem7": (128, 3, 48, 7, 2, 1), "stem5": (96, 1, 32, 5, 1, 1),
              "stem7a": (160, 3, 64, 7, 2, 1), "stem7b": (112, 4, 32, 7, 2, 1), "stem7c": (192, 3, 64, 7, 1, 1),
              "depth112": (112, 48, 48, 3, 1, 48), "depth75": (75, 64, 64, 3, 1, 64), "depth56": (56, 144, 144, 3, 2, 144),
              "expand75": (75, 16, 64, 1, 1, 1), "down56": (56, 32, 64, 3, 2, 1), "down38": (38, 128, 192, 3, 2, 1),
              "down28": (28, 96, 160, 3, 2, 1), "down14": (14, 192, 256, 3, 2, 1), "depth144": (144, 32, 32, 3, 1, 32),
              "depth128": (128, 16, 16, 3, 1, 16), "depth120": (120, 48, 48, 3, 1, 48), "depth96": (96, 32, 32, 3, 1, 32),
              "down28b": (28, 160, 256, 3, 2, 1), "down24": (24, 128, 256, 3, 2, 1), "down20": (20, 256, 256, 3, 2, 1),
              "down40": (40, 64, 128, 3, 2, 1)},
    "test": {"C1": (224, 3, 64, 7, 2, 1), "C2": (56, 64, 64, 3, 1, 1), "C3": (56, 64, 64, 1, 1, 1),
             "C7": (28, 128, 256, 3, 2, 1), "C11": (14, 256, 512, 1, 2, 1), "D1": (112, 32, 32, 3, 1, 32),
             "D4": (56, 128, 128, 3, 2, 128), "D9": (7, 1024, 1024, 3, 1, 1024)},
}
# Products with weights: rows, inner size, columns.
PRODUCTS = {
    "train": {"fc128": (128, 768, 768), "fc512": (512, 256, 256), "fc64": (64, 1000, 512), "fc16": (16, 1024, 1000)},
    "test": {"fc196": (196, 384, 384), "fc32": (32, 768, 1536)},
}


def write_model(part, shape, path):
    draw = np.random.default_rng(5)
    if shape in PRODUCTS[part]:
        rows, inner, columns = PRODUCTS[part][shape]
        dims, given, made = (inner, columns), [rows, inner], [rows, columns]
        node = helper.make_node("MatMul", ["x", "w"], ["y"], name=shape)
    else:
        size, channels, filters, kernel, stride, groups = CONVOLUTIONS[part][shape]
        dims, out = (filters, channels // groups, kernel, kernel), -(-size // stride)
        given, made = [1, channels, size, size], [1, filters, out, out]
        node = helper.make_node("Conv", ["x", "w"], ["y"], name=shape, auto_pad="SAME_UPPER", strides=[stride] * 2, group=groups)
    weight = numpy_helper.from_array(draw.standard_normal(dims).astype(np.float32) / 10, "w")
    graph = helper.make_graph([node], shape, [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, made)], [weight])
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def tessera(*arguments):
    command = [TESSERA, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def committed(part):
    """The records that the project has, as a file in WORK; None where it has none."""
    if not RECORDS[part].is_file():
        return None
    file = WORK / f"{part}.committed.db"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.decompress(RECORDS[part].read_bytes()))
    return file


def shapes_of(records):
    lines = tessera("db", "export", records).splitlines() if records else []
    return {record["nodes"] for record in map(json.loads, lines) if record.get("record") == "kernel"}


def collect(options):
    end = time.time() + 60 * options.minutes if options.minutes else None
    # The test's shapes among the others, so that both parts grow together.
    todo = [("train", shape) for shapes in (CONVOLUTIONS, PRODUCTS) for shape in shapes["train"]]
    for place, shape in enumerate([*CONVOLUTIONS["test"], *PRODUCTS["test"]]):
        todo.insert(4 * place, ("test", shape))
    known = {part: shapes_of(committed(part)) for part in RECORDS}
    for part, shape in todo:
        db = WORK / part / f"{shape}.db"
        if db.is_file() or shape in known[part]:
            continue
        if end and time.time() > end:
            return
        model, new = db.with_suffix(".onnx"), db.with_suffix(".new")
        write_model(part, shape, model)
        for leftover in db.parent.glob(new.name + "*"):
            leftover.unlink()  # of a run that was cut off
        begin = time.time()
        tune = ["tune", model, "--threads", 1, "--mode", "random", "--space", "templates", "--seed", 1, "--json"]
        # What takes most time is what the shape is here for; other kernels change layouts.
        tasks = json.loads(tessera(*tune, "--trials", 1, "--db", db.with_suffix(".probe")))["tasks"]
        kernel = max((task for task in tasks if task["rule"] not in ("", "injective")), key=lambda task: task["share"])["kernel"]
        answer = json.loads(tessera(*tune, "--trials", options.trials, "--budget", options.budget, "--only", kernel, "--db", new))
        for leftover in db.parent.glob(db.stem + ".probe*"):
            leftover.unlink()
        task = next(task for task in answer["tasks"] if task["kernel"] == kernel)
        if task["default_us"] == 0 or task["trials"] < 16:
            print(f"{part} {shape}: {task['trials']} trials, too few: another time", flush=True)
            continue
        new.rename(db)
        print(f"{part} {shape}: {task['trials']} trials, default {task['default_us']:.1f} us, {time.time() - begin:.1f} s", flush=True)


def train(options):
    files = {part: WORK / f"{part}.db" for part in RECORDS}
    WORK.mkdir(parents=True, exist_ok=True)
    for part, file in files.items():
        for leftover in WORK.glob(file.name + "*"):
            leftover.unlink()
        earlier, new = committed(part), sorted((WORK / part).glob("*.db"))
        tessera("db", "merge", file, *([earlier] if earlier else []), *new)
        if new:
            RECORDS[part].write_bytes(lzma.compress(file.read_bytes(), preset=9))
            for db in new:
                db.unlink()
    model = pathlib.Path(options.out)
    model.parent.mkdir(parents=True, exist_ok=True)
    answer = json.loads(tessera("db", "train", files["train"], "--test", files["test"], "-o", model, "--json"))
    name = pathlib.Path(options.report)
    ranks = [kernel["spearman"] for kernel in answer["test"]]
    answer = {"cpu": cpu_name(), "date": today(), "commit": commit(), **answer, "mean": sum(ranks) / len(ranks),
              "model": model.name}
    save_json(answer, name.with_suffix(".json"))
    rows = [["kernel", "trials", "rank correlation"]]
    rows += [[kernel["name"], str(kernel["trials"]), f"{kernel['spearman']:.2f}"] for kernel in answer["test"]]
    rows += [["mean", "", f"{answer['mean']:.2f}"]]
    text = (f"{answer['cpu']}, {answer['date']}: trained on {answer['trials']} trials of {answer['kernels']} kernels; Spearman's "
            f"rank correlation of scores and measured speeds on kernels that are not among them. One prediction, with "
            f"the features: {answer['prediction_us']:.0f} us (one at a time: {answer['single_prediction_us']:.0f} us).\n\n"
            + markdown(rows) + "\n")
    name.with_suffix(".md").write_text(text)
    print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    collect_parser = verbs.add_parser("collect")
    collect_parser.add_argument("--trials", type=int, default=64)
    collect_parser.add_argument("--budget", default="50s", help="for each kernel")
    collect_parser.add_argument("--minutes", type=float, help="end after so many")
    train_parser = verbs.add_parser("train")
    train_parser.add_argument("--out", default=str(ROOT / "src/tune/pretrained/cost_model.json"))
    train_parser.add_argument("--report", default=str(ROOT / "bench/results/cost_model"))
    options = parser.parse_args()
    collect(options) if options.verb == "collect" else train(options)


if __name__ == "__main__":
    main()
