#!/usr/bin/env python3
"""Tuning for AArch64 on this machine: `tessera worker --target aarch64-... --runner "qemu-aarch64 ..."`, a search that goes on when
the worker is killed, and a module with the records' schedules, run by the same runner, beside the interpreter.

    runner_cli.py TESSERA

tessera-runner-aarch64 must lie beside TESSERA. Exit code 77, with the reason, where it or qemu-aarch64 is missing."""

import json
import pathlib
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tune_support import TESSERA, expect, finish, run
from worker_support import WorkerProcess, trials_of

PROGRAM = pathlib.Path(TESSERA).parent / "tessera-runner-aarch64"
QEMU = "qemu-aarch64 -L /usr/aarch64-linux-gnu"
TARGET = "aarch64-unknown-linux-gnu"


def network(path):
    """A convolution and a matrix product, small enough for an emulator."""
    draw = np.random.default_rng(5)
    weights = [numpy_helper.from_array(draw.standard_normal((16, 8, 3, 3)).astype(np.float32), "w"),
               numpy_helper.from_array(draw.standard_normal((1024, 24)).astype(np.float32), "v")]
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1], strides=[2, 2]),
             helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Flatten", ["b"], ["c"]),
             helper.make_node("MatMul", ["c", "v"], ["y"], name="product")]
    graph = helper.make_graph(nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 16, 16])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 24])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


class Worker(WorkerProcess):
    def __init__(self, token, port=0):
        super().__init__(token, "--target", TARGET, "--runner", QEMU, port=port)

    def is_gone(self, seconds=10):
        """Whether nothing of it is left: connections, builds, emulators."""
        end = time.time() + seconds
        while time.time() < end:
            # Field 6 is the session; a name in parentheses may have blanks.
            stats = []
            for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
                try:
                    stats.append(path.read_text().rpartition(")")[2].split())
                except OSError:
                    pass
            if not any(int(stat[3]) == self.process.pid and stat[0] != "Z" for stat in stats):
                return True
            time.sleep(0.1)
        return False


def refusals(folder, token, model):
    def worker(*more):
        return run("worker", "--token", token, "--listen", "127.0.0.1:0", *more, code=1, seconds=60).stderr

    tune = ["tune", model, "--threads", 1, "--trials", 4, "--db", folder / "refused.db", "--target", TARGET]
    said = run(*tune, code=1).stderr
    expect("TSR-4052" in said and "tessera worker" in said and "--runner" in said, f"no worker: {said}")
    said = run(*tune, "--workers", "127.0.0.1:1", "--token", token, code=1).stderr
    expect("TSR-6413" in said, f"nobody answers: {said}")
    expect("TSR-4054" in worker("--target", TARGET), "a target that does not run here")
    expect("TSR-4055" in worker("--runner-program", PROGRAM), "a program without a command")
    said = worker("--target", TARGET, "--runner", "qemu-of-no-machine")
    expect("TSR-6412" in said and "cannot be started" in said and "qemu-user" in said, f"no emulator: {said}")
    if not pathlib.Path("/proc/sys/fs/binfmt_misc/qemu-aarch64").exists():
        said = worker("--target", TARGET, "--runner", "")
        expect("TSR-6412" in said and "name an emulator" in said, f"a machine of another kind: {said}")
    said = worker("--target", TARGET, "--runner", "qemu-aarch64")
    expect("TSR-6412" in said and "-L /usr/aarch64-linux-gnu" in said, f"no libraries: {said}")
    said = worker("--target", TARGET, "--runner", QEMU, "--runner-program", folder / "none")
    expect("TSR-6412" in said, f"no program: {said}")
    said = worker("--target", "riscv64-unknown-linux-gnu", "--runner", QEMU, "--runner-program", PROGRAM)
    expect("TSR-6412" in said and "runs on aarch64" in said, f"another architecture: {said}")
    said = worker("--target", TARGET + ",+sve2", "--runner", QEMU + " -cpu cortex-a57")
    expect("TSR-6412" in said and "lacks" in said and "sve2" in said, f"features that are missing: {said}")


def wait_until(condition, seconds=120):
    end = time.time() + seconds
    while time.time() < end and not condition():
        time.sleep(0.05)
    expect(condition(), "waited in vain")


def records_in(db):
    return [json.loads(line) for line in run("db", "export", db).stdout.splitlines()]


def searches(folder, token, model):
    """The records of a search during which the worker was killed and started again."""
    db = folder / "killed.db"
    tune = [TESSERA, "tune", str(model), "--target", TARGET, "--threads", "1", "--batch", "4", "--json", "--db", str(db),
            "--token", str(token)]

    def begin(port, trials, *more):
        command = [*tune, "--workers", f"127.0.0.1:{port}", "--trials", str(trials), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(process, trials):
        output, said = process.communicate(timeout=300)
        expect(process.returncode == 0, f"exit {process.returncode}\n{said}")
        answer = json.loads(output)
        # A kernel that takes hardly any of the time may be left out of one search and not of the next.
        searched = {task["kernel"] for task in answer["tasks"] if task["trials"] > 0}
        recorded = sum(line["record"] == "trial" and line["kernel"] in searched for line in records_in(db))
        expect(answer["trials"] == trials == recorded, f"{recorded} trials in the records, {answer['trials']} made, of {trials}")
        return answer, said

    # kill -9 in the middle, another worker at the same address: the search goes on.
    worker = Worker(token)
    process = begin(worker.port, 24, "--no-local")
    wait_until(lambda: db.exists() and trials_of(db) >= 6)
    before = trials_of(db)
    worker.process.kill()
    worker.process.wait()
    expect(worker.is_gone(), "of a killed worker nothing is left")
    expect(trials_of(db) >= before, "a killed worker loses no record")
    worker = Worker(token, worker.port)
    answer, said = finish(process, 24)
    expect(said.count("is lost") == 1 and "is there again" in said, f"the loss is reported once: {said}")
    verdict = answer["verdict"]
    expect("does not run here" in verdict or "no schedule" in verdict or "default stays" in verdict, verdict)

    # Killed again, and nobody comes: the search ends with an error when it is told to, and can be resumed.
    process = begin(worker.port, 48, "--resume")
    wait_until(lambda: trials_of(db) >= 28)
    worker.process.kill()
    worker.process.wait()
    line = process.stderr.readline()
    expect("is lost" in line, f"the loss is reported: {line}")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    expect(process.returncode == 1 and "TSR-6413" in said and "--resume" in said, f"exit {process.returncode}: {said}")
    kept = trials_of(db)
    expect(kept >= 28, f"{kept} trials are kept")
    worker = Worker(token)
    answer, said = finish(begin(worker.port, 48, "--resume"), 48)
    expect(said == "", f"nothing to say: {said}")
    expect(worker.end() == 0 and worker.is_gone(), "the worker ends well")

    lines = records_in(db)
    machines = [line["facts"] for line in lines if line["record"] == "machine"]
    expect(len(machines) == 1 and machines[0].startswith(TARGET), f"the machine is the worker's: {machines}")
    # A long candidate that is built beside other work may take longer than a build may.
    statuses = [(line["status"], line["detail"]) for line in lines if line["record"] == "trial"]
    unexpected = [status for status in statuses if status[0] not in ("ok", "refused") and status != ("timeout", "while it was built")]
    expect(not unexpected and [name for name, _ in statuses].count("ok") >= 24, f"statuses: {statuses}")
    return db


def choose_others(db):
    """Has each kernel run by a schedule that was measured and is not its default, whatever won; answers how many."""
    with sqlite3.connect(db) as records:
        records.execute("DELETE FROM choices")
        changed = records.execute(
            "INSERT INTO choices SELECT kernel, machine, threads, kind, payload, knob_format, rule_version, us, us * 2, 30, 30, "
            "'won', made "
            "FROM trials AS t WHERE status = 'ok' AND id = (SELECT max(id) FROM trials AS o WHERE o.kernel = t.kernel AND status = 'ok' "
            "AND payload <> (SELECT payload FROM trials AS f WHERE f.kernel = t.kernel AND f.number = 0))").rowcount
    records.close()
    return changed


def run_module(module, value, size):
    """The bytes of the first output, by the worker's runner (src/runner/runner_protocol.h)."""
    with subprocess.Popen([*QEMU.split(), PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runner:
        def ask(operation, argument=0, data=b""):
            runner.stdin.write(struct.pack("<IIQ", operation, argument, len(data)) + data)
            runner.stdin.flush()
            failed, _, count = struct.unpack("<IIQ", runner.stdout.read(16))
            answer = runner.stdout.read(count)
            expect(failed == 0, f"the runner: {answer}")
            return answer

        ask(3, 0, value.tobytes())
        ask(4, 1, module.read_bytes())
        expect(struct.unpack("<d", ask(5))[0] > 0, "a time")
        answer = np.frombuffer(ask(6), dtype=np.float32)
        expect(answer.size == size, f"{answer.size} elements")
        runner.stdin.close()
        return answer


def module_with_records(folder, model, db):
    value = np.random.default_rng(7).standard_normal((1, 8, 16, 16)).astype(np.float32)
    np.save(folder / "x.npy", value)
    run("run", model, "--engine", "interp", "--input", f"@{folder}/x.npy", "--output", f"@{folder}/y.npy")
    want = np.load(folder / "y.npy").ravel()
    kernels = choose_others(db)
    expect(kernels >= 2, f"{kernels} kernels have a choice")
    compiled = ["compile", model, "--target", TARGET, "--threads", 1]
    run(*compiled, "-o", folder / "plain.so")
    run(*compiled, "--db", db, "-o", folder / "tuned.so")
    rules = [[line for line in run(*compiled, *more, "--emit", "program").stdout.splitlines() if line.startswith("  define rule")]
             for more in ([], ["--db", db])]
    changed = sum(plain != tuned for plain, tuned in zip(*rules))
    expect(len(rules[0]) == len(rules[1]) and changed == kernels, f"{changed} kernels of {kernels} run otherwise: {rules}")
    for name in ("plain.so", "tuned.so"):
        got = run_module(folder / name, value, want.size)
        expect(np.abs(got - want).max() <= 1e-4 * np.abs(want).max(), f"{name}: {np.abs(got - want).max()} off, of {np.abs(want).max()}")


for needed in ("qemu-aarch64", PROGRAM):
    if not shutil.which(needed):
        print(f"skipped: {needed} is missing; scripts/setup.sh installs qemu and the cross compiler that builds the runner")
        sys.exit(77)
with tempfile.TemporaryDirectory() as name:
    home = pathlib.Path(name)
    token_file = home / "token"
    token_file.write_text("0123456789abcdef0123456789abcdef\n")
    token_file.chmod(0o600)
    network(home / "small.onnx")
    refusals(home, token_file, home / "small.onnx")
    records = searches(home, token_file, home / "small.onnx")
    module_with_records(home, home / "small.onnx", records)
finish()
