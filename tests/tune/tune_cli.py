#!/usr/bin/env python3
"""A small network tuned with a few trials: the module compiled with the records computes what ONNX Runtime computes, the log
never rises, a killed search leaves usable records, and every verb of `tessera db` does what it says. No timing decides.

    tune_cli.py TESSERA"""

import json
import pathlib
import random
import signal
import sqlite3
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tune_support import TESSERA, expect, finish, run


def network(path):
    """Two convolutions, a depthwise one, a pool and a matrix product."""
    draw = np.random.default_rng(5)

    def weight(name, *shape):
        return numpy_helper.from_array((draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32), name)

    weights = [weight("w0", 24, 3, 3, 3), weight("w1", 24, 1, 3, 3), weight("w2", 32, 24, 3, 3), weight("w3", 32, 10)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1, 1, 1, 1], group=24, name="depthwise"),
        helper.make_node("Conv", ["c", "w2"], ["d"], pads=[1, 1, 1, 1], name="second"),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("MatMul", ["g", "w3"], ["y"], name="classes"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 40, 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def with_folder(folder):
    model, db = folder / "small.onnx", folder / "small.db"
    network(model)
    x = np.random.default_rng(1).standard_normal((1, 3, 40, 40)).astype(np.float32)
    np.save(folder / "x.npy", x)
    want = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.save(folder / "y.npy", want)

    tune = ["tune", model, "--threads", 1, "--db", db, "--json"]
    for mode, *space in (("random",), ("evolutionary",), ("model",), ("random", "--space", "sketches"), ("model", "--space", "all")):
        done = run(*tune, "--trials", 24, "--mode", mode, *space, "--report", folder / f"{mode}.html")
        answer = json.loads(done.stdout)
        expect(done.stderr == "", f"standard error is quiet when it is no terminal: {done.stderr}")
        expect(answer["trials"] >= 24 - len(answer["tasks"]), f"{mode}: {answer['trials']} trials")
        expect(answer["tasks"] and all(task["outcome"] for task in answer["tasks"]), "each task has an outcome")
        log = [entry["model_us"] for entry in answer["log"] if entry["what"] == "estimate"]
        expect(log and all(b <= a for a, b in zip(log, log[1:])), f"the log rises: {log}")
        for task in answer["tasks"]:
            expect(task["best_us"] <= task["default_us"] or not task["trials"], f"regret: {task}")
            expect("sketch" not in task["default_point"], f"the rules' choice is the first trial: {task}")
        page = (folder / f"{mode}.html").read_text()
        expect("<svg" in page and "http" not in page.replace("http://www.w3.org", ""), "the page stands alone")

    # What wins on this machine now depends on the time of day; that what the records name is used must not. So a choice is
    # written for the largest kernel: whatever the search found first and was measured.
    shown = json.loads(run("db", "show", db, "--json").stdout)
    expect(shown["trials"] > 0 and len(shown["machines"]) == 1, f"db show: {shown}")
    trials = [json.loads(line) for line in run("db", "export", db).stdout.splitlines()]
    statuses = {entry["status"] for entry in trials if entry["record"] == "trial"}
    expect("wrong result" not in statuses and "crash" not in statuses, f"statuses: {statuses}")
    kernels = {entry["kernel"] for entry in trials if entry["record"] == "kernel"}
    expect({entry["kind"] for entry in trials if entry["record"] == "trial"} == {"rule point", "trace"}, "kinds of schedules")
    run("compile", model, "--threads", 1, "-o", folder / "plain.so")
    modules = ["plain.so"]
    for kind in ("trace", "rule point"):
        wanted = {}
        for entry in trials:
            if entry["record"] == "trial" and entry["status"] == "ok" and entry["number"] > 0 and entry["kind"] == kind:
                wanted[entry["kernel"]] = entry
        connection = sqlite3.connect(db)
        connection.execute("DELETE FROM choices")
        for kernel, entry in wanted.items():
            connection.execute(
                "INSERT OR REPLACE INTO choices VALUES(?,?,1,?,?,?,?,1,2,30,30,'won','2026-01-01T00:00:00Z')",
                (kernel, entry["machine"], kind, entry["schedule"], entry["knob_format"], entry["rule_version"]),
            )
        connection.commit()
        connection.close()
        expect(wanted and set(wanted) <= kernels, "trials belong to kernels")
        modules.append(f"tuned {kind}.so")
        run("compile", model, "--threads", 1, "--db", db, "-o", folder / modules[-1])
        rules = [k["rule"] for k in json.loads(run("inspect", folder / modules[-1], "--json").stdout)["kernels"]]
        mark = "sketch." if kind == "trace" else "{"
        expect(sum(mark in rule for rule in rules) >= len(wanted) / 2, f"inspect shows which kernels are tuned: {rules}")
        shown = run("db", "show", db).stdout
        expect((mark in shown) and " used " in shown, f"db show names the schedules: {shown}")
        if kind == "trace":
            expect("sketch." in run("explain", model, "--threads", 1, "--db", db).stdout, "explain names the sketch")
            answer = json.loads(run("bench", folder / modules[-1], "--threads", 1, "--kernels", "--repeat", 3, "--json").stdout)
            expect("sketch." in json.dumps(answer), f"bench --kernels names the sketch: {answer}")
            # The trace itself is another form of the same: a file of another form, or none at all, gives the default and a reason.
            for column, value, reason in (("knob_format", 99, "trace of form 99"), ("payload", "unroll(i0", "expected")):
                connection = sqlite3.connect(db)
                kept = connection.execute(f"SELECT kernel, {column} FROM choices").fetchall()
                connection.execute(f"UPDATE choices SET {column} = ?", (value,))
                connection.commit()
                text = run("compile", model, "--threads", 1, "--db", db, "--emit", "program", "-o", "-").stdout
                expect(reason in text and "sketch." not in text, f"{column}={value} is refused with a reason: {text[:2000]}")
                for kernel, old in kept:
                    connection.execute(f"UPDATE choices SET {column} = ? WHERE kernel = ?", (old, kernel))
                connection.commit()
                connection.close()
    for module in modules:
        run("run", folder / module, "--input", f"x=@{folder / 'x.npy'}", "--expected-output", f"y=@{folder / 'y.npy'}")
    run("bench", model, "--threads", 1, "--db", db, "--repeat", 3)
    expect("{" in run("explain", model, "--threads", 1, "--db", db).stdout, "explain shows which kernels are tuned")
    # Records for one thread say nothing about two.
    run("compile", model, "--threads", 2, "--db", db, "-o", folder / "two.so")
    two = [k["rule"] for k in json.loads(run("inspect", folder / "two.so", "--json").stdout)["kernels"]]
    expect(not any("{" in rule for rule in two), f"records are used for other threads: {two}")
    # A record of another form of knobs is refused with a reason, and the default stays.
    connection = sqlite3.connect(db)
    connection.execute("UPDATE choices SET knob_format = 99")
    connection.commit()
    connection.close()
    text = run("compile", model, "--threads", 1, "--db", db, "--emit", "program", "-o", "-").stdout
    expect("knobs of form 99" in text, "a record of another form is refused with a reason")
    expect("knobs of form 99" in run("db", "show", db).stdout, "db show says what is not used")

    # kill -9 at ten random moments: the records stay usable, and a search goes on from them.
    draw = random.Random(3)
    killed = folder / "killed.db"
    counts = []
    for _ in range(10):
        process = subprocess.Popen(
            [TESSERA, "tune", str(model), "--threads", "1", "--db", str(killed), "--budget", "60s", "--resume"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(1.5 + 2.5 * draw.random())
        process.kill()
        process.wait()
        if killed.exists():
            counts.append(json.loads(run("db", "show", killed, "--json").stdout)["trials"])
    expect(counts == sorted(counts), f"trials were lost: {counts}")
    process = subprocess.Popen(
        [TESSERA, "tune", str(model), "--threads", "1", "--db", str(killed), "--budget", "120s", "--resume", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    expect(process.returncode == 130, f"Ctrl-C: exit {process.returncode}")
    if output:
        expect(json.loads(output)["interrupted"], "Ctrl-C ends with what was found")
    answer = json.loads(run("db", "merge", db, killed, "--json").stdout)
    now = json.loads(run("db", "show", killed, "--json").stdout)["trials"]
    expect(answer["merged"][0]["trials"] == now, f"merge: {answer}, {now} trials")
    run("db", "prune", db, "--keep", 1)
    left = [json.loads(line) for line in run("db", "export", db).stdout.splitlines()]
    others = [entry["kernel"] for entry in left if entry["record"] == "trial" and entry["number"] > 0]
    defaults = {entry["kernel"] for entry in left if entry["record"] == "trial" and entry["number"] == 0}
    expect(len(others) == len(set(others)) and set(others) <= defaults, f"prune leaves defaults and one more each: {left}")

    # Where only what was chosen is left, a search begins with the default again.
    schedules = {entry["kernel"]: entry["schedule"] for entry in left if entry["record"] == "trial" and entry["number"] == 0}
    with sqlite3.connect(db) as records:
        records.execute("INSERT OR REPLACE INTO choices SELECT kernel, machine, threads, kind, payload, knob_format, rule_version, us, "
                        "us * 2, 30, 30, 'won', made FROM trials WHERE number > 0 AND status = 'ok'")
    records.close()
    run("db", "prune", db, "--keep", 0)
    run("tune", model, "--threads", 1, "--db", db, "--trials", 6, "--resume")
    trials = [json.loads(line) for line in run("db", "export", db).stdout.splitlines() if '"trial"' in line]
    firsts = {entry["kernel"]: entry["schedule"] for entry in trials if entry["number"] == 0}
    wrong = {kernel: schedule for kernel, schedule in firsts.items() if schedules.get(kernel, schedule) != schedule}
    expect(firsts and not wrong, f"trial 0 is the default's: {wrong}, and not of {schedules}")

    # Errors are one error each.
    (folder / "foreign.db").write_bytes(b"no database at all, just text" * 100)
    for arguments, name in (
        (["compile", model, "--db", folder / "foreign.db"], "TSR-6402"),
        (["compile", model, "--db", folder / "none.db"], "TSR-6401"),
        (["tune", model, "--db", folder / "foreign.db"], "TSR-6402"),
        (["tune", folder / "plain.so"], "TSR-4051"),
        (["tune", model, "--budget", "soon"], "TSR-4050"),
        # Before the search: this one would take ten minutes.
        (["tune", model, "--budget", "10m", "--report", folder / "none" / "report.html", "--db", folder / "only.db"], "TSR-6102"),
        (["tune", model, "--only", "zzz", "--trials", 2, "--db", folder / "only.db"], "TSR-4056"),
        (["db", "show", folder / "none.db"], "TSR-6401"),
    ):
        done = run(*arguments, code=1)
        expect(name in done.stderr and done.stderr.count("error ") == 1, f"{arguments}: {done.stderr}")


with tempfile.TemporaryDirectory() as name:
    with_folder(pathlib.Path(name))
finish()
