#!/usr/bin/env python3
"""Tuning records that a model does not use are said to be so, with the reason; the same for declared kernels. Then `db merge`,
`db prune` and `db train` where something is missing. One kernel is tuned for a moment; no timing decides.

    records_cli.py TESSERA"""

import itertools
import json
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tune_support import ROOT, expect, finish, run


MODULES = itertools.count()


def new_module(folder):
    """A path where no module is yet: a compile that replaces another one says so."""
    return folder / f"m{next(MODULES)}.so"


def network(path, channels, read=8):
    draw = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array(draw.standard_normal((channels, read, 3, 3)).astype(np.float32), "w0"),
        numpy_helper.from_array(draw.standard_normal((channels, 10)).astype(np.float32), "w1"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1], name="first"),
        helper.make_node("GlobalAveragePool", ["a"], ["b"], name="mean"),
        helper.make_node("Flatten", ["b"], ["c"], name="flat"),
        helper.make_node("MatMul", ["c", "w1"], ["y"], name="classes"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, read, 24, 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def changed(source, path, *statements):
    """A copy of a file of records in which something is changed."""
    path.write_bytes(source.read_bytes())
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(*statement if isinstance(statement, tuple) else (statement,))
    connection.commit()
    connection.close()
    return path


def check_declarations(folder, model):
    """Declared kernels that no kernel calls."""
    if not shutil.which("cc"):
        print("skipped: declared kernels: no cc to compile C with")
        return
    for file in ("matmul.kernel", "matmul.c"):
        (folder / file).write_text((ROOT / "examples/kernels" / file).read_text())
    subprocess.run(["cc", "-c", "-O1", "-fPIC", folder / "matmul.c", "-o", folder / "matmul.o"], check=True)
    declaration = folder / "matmul.kernel"
    text = declaration.read_text()
    declaration.write_text(text.replace("call ", 'needs "no_such_feature"\n  call ') if "needs" not in text else text)
    done = run("compile", model, "--kernel", declaration, "-o", new_module(folder))
    expect(f"{declaration}: no kernel of this model calls my.matmul: the target lacks one of" in done.stderr, done.stderr)
    expect(run("compile", model, "--kernel", declaration, "-o", new_module(folder), "-q").stderr == "", "--quiet")
    declaration.write_text(text.replace("call ", "use always\n  call "))
    done = run("compile", model, "--kernel", declaration, "-o", new_module(folder))
    expect("no kernel of this model calls my.matmul: 'tessera explain' says why" in done.stderr or done.stderr == "", done.stderr)


def check_candidates(model, records, insertion, compiled):
    """What won alone, as a killed search leaves it: no compile uses it before a model was asked."""
    statement = insertion[0].replace("INTO choices", "INTO candidates").replace("'won'", "'won alone'")
    alone = records("alone.db", "DELETE FROM choices", (statement, insertion[1]))
    done = compiled(alone)
    expect("faster alone was not compared in a model yet: 'tessera tune --resume' does" in done.stderr, done.stderr)
    expect(" 0 tuned)" in done.stdout, f"what won alone is used: {done.stdout}")
    shown = json.loads(run("db", "show", alone, "--json").stdout)["choices"]
    expect([entry["state"] for entry in shown] == ["won alone"], f"db show: {shown}")
    expect("won alone: 'tune --resume'" in run("db", "show", alone).stdout, "db show says what is to be done")
    expect("won alone" in run("db", "export", alone).stdout, "db export has it")
    run("tune", model, "--only", "first", "--threads", 1, "--trials", 1, "--resume", "--db", alone)
    shown = json.loads(run("db", "show", alone, "--json").stdout)["choices"]
    expect([entry["state"] in ("won", "reverted") for entry in shown] == [True], f"--resume compares it: {shown}")
    # Beside a choice that is used it changes nothing.
    both = records("both.db", (statement, (*insertion[1][:3], "register_tile{rows=1000}", *insertion[1][4:])))
    done = compiled(both)
    expect(done.stderr == "" and " 1 tuned)" in done.stdout, f"a candidate beside a choice: {done.stdout}{done.stderr}")


def check_what_stays(model, records, trials, insertion):
    """A choice that is as fast as the default - it is the default - is not surely slower: search after search it stays."""
    default = next(entry for entry in trials if entry["number"] == 0 and entry["kernel"] == insertion[1][0])
    same = records("same.db", "DELETE FROM choices", (insertion[0], (*insertion[1][:3], default["schedule"], *insertion[1][4:])))
    for flags in (["--resume", "--trials", 1], ["--resume", "--trials", 1], ["--trials", 1, "--seed", 2]):
        text = run("tune", model, "--only", "first", "--threads", 1, "--no-graph", "--db", same, *flags).stdout
        shown = json.loads(run("db", "show", same, "--json").stdout)["choices"]
        expect([entry["state"] for entry in shown] == ["won"], f"{flags}: {shown}")
        expect("than what the records hold, which stays" in text, f"{flags}: {text}")


def with_folder(folder):
    model, other, base = folder / "small.onnx", folder / "other.onnx", folder / "base.db"
    network(model, 32)
    network(other, 48, 12)
    run("tune", model, "--only", "first", "--threads", 1, "--trials", 20, "--space", "templates", "--mode", "random", "--db", base)
    sqlite3.connect(base).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    trials = [json.loads(line) for line in run("db", "export", base).stdout.splitlines()]
    trials = [entry for entry in trials if entry["record"] == "trial" and entry["status"] == "ok"]
    point = next(entry for entry in trials if entry["number"] > 0 and entry["schedule"].startswith("register_tile"))
    kernel = point["kernel"]
    insertion = (
        "INSERT OR REPLACE INTO choices VALUES(?,?,1,?,?,?,?,1,2,30,30,'won','2026-01-01T00:00:00Z')",
        (kernel, point["machine"], point["kind"], point["schedule"], point["knob_format"], point["rule_version"]),
    )

    def records(name, *statements):
        return changed(base, folder / name, "DELETE FROM choices", insertion, *statements)

    def compiled(db, *flags, of=model):
        return run("compile", of, "--threads", 1, "--db", db, "-o", new_module(folder), *flags)

    # What fits is used, and said in the summary alone.
    good = records("good.db")
    done = compiled(good)
    expect(done.stderr == "" and " 1 tuned)" in done.stdout, f"a record that fits: {done.stdout}{done.stderr}")
    expect("tuned" not in run("compile", model, "--threads", 1, "-o", new_module(folder)).stdout, "no records were asked for")
    for verb in (["run"], ["bench", "--repeat", 2, "--warm-up", 2]):
        done = run(*verb, model, "--threads", 1, "--db", good)
        expect("good.db" not in done.stderr, f"{verb[0]} with a record that fits: {done.stderr}")

    # What does not is one line with the reason.
    untuned = records("untuned.db", "DELETE FROM choices")
    reverted = records("reverted.db", "UPDATE choices SET state = 'reverted'")
    smaller = records("smaller.db", "UPDATE machines SET facts = replace(facts, '[', '[0feature,')")
    faster = records("faster.db", "UPDATE machines SET peak_gflops = 1000 * peak_gflops")
    slower = records("slower.db", "UPDATE machines SET peak_gflops = peak_gflops / 1000")
    alone = ["--threads", 1]
    for db, flags, reason in (
        (good, ["--threads", 2], "its records are for 1 thread, and this compile is for 2"),
        (good, ["--threads", 1, "--target", "x86-64-v2"], "its records are of another machine"),
        (good, ["--threads", 1, "--precision", "bf16"], "its records for this machine are of other kernels"),
        (untuned, alone, "its search found nothing that is faster"),
        (reverted, alone, "what was faster alone was not in the model, and reverted"),
        (smaller, alone, "its records are of another machine (features there: +0feature)"),
        (faster, alone, "its records are of a machine like this one with a peak of"),
        (slower, alone, "its records are of a machine like this one with a peak of"),
    ):
        done = run("compile", model, "--db", db, "-o", new_module(folder), *flags)
        expect(done.stderr.startswith(f"{db}: no choice for this model: {reason}"), f"{db.name} {flags}: {done.stderr}")
        expect(done.stderr.count("\n") == 1 and " 0 tuned)" in done.stdout, f"one line: {done.stdout}{done.stderr}")
        done = run("compile", model, "--db", db, "-o", new_module(folder), "--quiet", *flags)
        expect(done.stdout + done.stderr == "", f"--quiet: {done.stderr}")
        for verb in (["run"], ["bench", "--repeat", 2, "--warm-up", 2]):
            done = run(*verb, model, "--db", db, "--json", *flags)
            expect(f"{db}: no choice for this model: {reason}" in done.stderr, f"{verb[0]}: {done.stderr}")
            json.loads(done.stdout)
    # Of another model the file's own searches say nothing.
    for db in (good, untuned, reverted):
        done = compiled(db, of=other)
        expect("are of other kernels (another model, other shapes" in done.stderr, f"another model, {db.name}: {done.stderr}")
    # A model that has one kernel of those that the file knows.
    with_more = folder / "more.onnx"
    network(with_more, 32)
    grown = onnx.load(with_more)
    grown.graph.node.append(helper.make_node("Tanh", ["a"], ["t"], name="tanh"))
    grown.graph.output.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [1, 32, 24, 24]))
    onnx.save(grown, with_more)
    done = compiled(untuned, of=with_more)
    expect("faster than the default (its records are of " in done.stderr and " of this model's " in done.stderr, done.stderr)
    # A file of an older version.
    done = compiled(records("older.db", "DROP TABLE candidates"))
    expect(done.stderr == "" and " 1 tuned)" in done.stdout, f"a file without candidates: {done.stdout}{done.stderr}")
    check_candidates(model, records, insertion, compiled)
    check_what_stays(model, records, trials, insertion)

    # A record that a kernel does not take: `explain` has the reason.
    for change, reason in (
        ("UPDATE choices SET knob_format = 99", "knobs of form 99"),
        ("UPDATE choices SET payload = 'no_such_rule{rows=2}'", "names the rule 'no_such_rule'"),
        ("UPDATE choices SET payload = 'register_tile{rows=1000}'", "rows=1000 is not one of"),
    ):
        refused = records("refused.db", change)
        done = compiled(refused)
        shown = json.loads(run("db", "show", refused, "--json").stdout)["choices"]
        expect(reason in shown[0]["use"], f"db show says what is not used: {shown}")
        expect(done.stderr == f"{refused}: 1 of 1 tuned kernels of this model are not used; 'tessera explain' says why\n", done.stderr)
        for node in ([], ["--node", "first"]):
            text = run("explain", model, "--threads", 1, "--db", refused, *node).stdout
            expect(reason in text and "tuned" in text, f"explain {node} says why: {text}")
        told = json.loads(run("explain", model, "--threads", 1, "--db", refused, "--json").stdout)
        remarks = {entry["name"]: entry["refused"] for entry in told["nodes"]}
        expect(any(r["pass"] == "tuned" and reason in r["text"] for r in remarks["first"]), f"{reason}: {remarks}")
        expect(not any(r["pass"] == "tuned" for r in remarks["classes"]), f"of the other kernel nothing is known: {remarks}")

    check_declarations(folder, model)

    # The default's trial stays, so that what is left can still be learned from.
    pruned = records("pruned.db")
    run("db", "prune", pruned, "--keep", 1)
    left = [json.loads(line) for line in run("db", "export", pruned).stdout.splitlines()]
    numbers = [entry["number"] for entry in left if entry["record"] == "trial" and entry["kernel"] == kernel]
    expect(len(numbers) == 2 and numbers[0] == 0, f"prune leaves the default and one more: {numbers}")
    orphans = records("orphans.db", "DELETE FROM trials WHERE number = 0")
    done = run("db", "train", orphans, "-o", folder / "m.json", code=1)
    expect("TSR-6411" in done.stderr and "have no trial of their kernel's default before them" in done.stderr, done.stderr)
    done = run("db", "train", good, "--test", good, "-o", folder / "m.json")
    expect(" of its kernels were trained on, and 0 have too few trials" in done.stdout, f"a test of nothing: {done.stdout}")

    # Files that are damaged or not there leave no new file behind.
    damaged = folder / "damaged.db"
    damaged.write_bytes(good.read_bytes()[:6000])
    for wrong in (damaged, folder / "none.db"):
        done = run("db", "merge", folder / "new.db", good, wrong, code=1)
        expect(wrong.name in done.stderr and "tessera db merge" not in done.stderr, f"merge of {wrong.name}: {done.stderr}")
        expect(not list(folder.glob("new.db*")), f"{wrong.name}: a file was made")
    done = run("tune", model, "--mode", "model", "--trials", 1, "--cost-model", folder / "none.json", "--db", base, code=1)
    expect("TSR-6405" in done.stderr and "there is no cost model" in done.stderr, done.stderr)


with tempfile.TemporaryDirectory() as name:
    with_folder(pathlib.Path(name))
finish()
