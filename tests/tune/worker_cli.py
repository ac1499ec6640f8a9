#!/usr/bin/env python3
"""`tessera worker` and `tessera tune --workers`: what is refused, and a search that goes on whatever happens to its workers.

    worker_cli.py TESSERA"""

import json
import pathlib
import platform
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tune_support import TESSERA, expect, finish, run
from worker_support import WorkerProcess, trials_of


def network(path):
    draw = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array(draw.standard_normal((96, 128)).astype(np.float32), "w"),
        numpy_helper.from_array(draw.standard_normal((128, 64)).astype(np.float32), "v"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [48, 96])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [48, 64])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


class Worker(WorkerProcess):
    def wait_for_place(self, hello, seconds=20):
        """Until the worker serves again: connections that have just ended count for a moment."""
        end = time.time() + seconds
        while time.time() < end:
            try:
                if "machine" in (self.talk(hello)[0] or {}):
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise AssertionError("the worker serves nobody")

    def talk(self, *messages, raw=b"", seconds=30):
        """What the worker answers to each message; None when it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            answers = []
            if raw:
                connection.sendall(raw)
            for message in messages:
                data = message if isinstance(message, bytes) else json.dumps(message).encode()
                connection.sendall(struct.pack(">I", len(data)) + data)
                answers.append(receive(connection))
            return answers if messages else receive(connection)


def receive(connection):
    def exactly(count):
        data = b""
        while len(data) < count:
            try:
                part = connection.recv(count - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return data

    while True:
        head = exactly(4)
        if head is None:
            return None
        answer = json.loads(exactly(struct.unpack(">I", head)[0]))
        if "alive" not in answer:
            return answer


def refusals(folder, token, model):
    open_token, short = folder / "open", folder / "short"
    open_token.write_text("0123456789abcdef0123456789abcdef\n")
    open_token.chmod(0o644)
    short.write_text("secret\n")
    short.chmod(0o600)
    for file in (folder / "none", open_token, short, folder):
        expect("TSR-6408" in run("worker", "--token", file, "--listen", "127.0.0.1:0", code=1, seconds=30).stderr, f"{file}")
    expect("TSR-6407" in run("worker", "--token", token, "--listen", "nowhere", code=1, seconds=30).stderr, "an address")
    expect("TSR-6409" in run("worker", "--token", token, "--listen", "192.0.2.1:1", code=1, seconds=30).stderr, "not ours")
    run("worker", code=1, seconds=30)
    tune = ["tune", model, "--threads", 1, "--trials", 4, "--db", folder / "refused.db"]
    expect("TSR-4053" in run(*tune, "--no-local", code=1).stderr, "--no-local alone")
    expect("TSR-6407" in run(*tune, "--workers", "here", "--token", token, code=1).stderr, "a bad address")
    expect("TSR-4053" in run(*tune, "--workers", "127.0.0.1:1", code=1).stderr, "no token")


def hostile(folder, token, model):
    """What is not the protocol ends its own connection, and nothing else."""
    secret = token.read_text().strip()
    hello = {"tessera": 3, "token": secret}
    worker = Worker(token, "--max-size", "65536", "--build-limit", "10")
    try:
        for wrong in ("", "x", secret + "x", secret[:-1], "a" * len(secret)):
            expect(worker.talk({"tessera": 3, "token": wrong})[0].get("error") == "the token is wrong", f"token {wrong!r}")
        expect("error" in worker.talk({"tessera": 3})[0], "no token at all")
        expect("protocol" in worker.talk({"tessera": 99, "token": secret})[0].get("error", ""), "another protocol")
        expect("error" in worker.talk(b"\x00\xff not json")[0], "no JSON")
        expect("of at most" in worker.talk(raw=struct.pack(">I", 2**31)).get("error", ""), "a greeting of 2 GiB")
        answers = worker.talk(hello, b"[" * 65000)
        expect("machine" in answers[0] and "error" in answers[1], f"deep JSON: {answers}")
        none = {"kernel": "x", "threads": 1, "incumbent": "a", "candidates": [], "thorough": False, "seconds": 1}
        for job in ({}, {"kernel": 5}, [], none):
            answers = worker.talk(hello, job)
            expect("machine" in answers[0] and "error" in answers[1], f"{job}: {answers}")
        job = {"threads": 1, "incumbent": "injective", "candidates": ["injective"], "thorough": False, "seconds": 1, "reuse": []}
        sizes = "i64:1048576 i64:1048576"
        huge = f"param  f32 {sizes}\naxis i64:1048576\naxis i64:1048576\ne0 = load b0 f32 v0 v1\nstage  none e0 f32 {sizes}\n"
        outside = "param  f32 i64:4\naxis i64:8\ne0 = load b0 f32 v0\nstage  none e0 f32 i64:8\n"
        for kernel in ("", "stage", huge, outside):
            answers = worker.talk(hello, {**job, "kernel": kernel})
            expect("refused" in (answers[1] or {}), f"{kernel!r}: {answers}")
        good = "param  f32 i64:64\naxis i64:64\ne0 = load b0 f32 v0\ne1 = neg f32 e0\nstage  none e1 f32 i64:64\n"
        answers = worker.talk(hello, {**job, "kernel": huge}, {**job, "kernel": good, "seconds": 10})
        expect("refused" in answers[1], f"a kernel that is too large: {answers}")
        expect(answers[2].get("status") == "ok" and answers[2]["rounds"], f"a good job behind it: {answers}")
        answers = worker.talk(hello, {**job, "kernel": good, "reuse": [1, 2, 3]}, {**job, "kernel": good, "reuse": [10**8, 0]})
        expect("3 distances for 2 operands" in answers[1].get("refused", ""), f"distances of another kernel: {answers}")
        expect(answers[2].get("status") == "ok", f"operands far away: {answers}")
        # Above the limit of a message, and bytes that end in the middle of one.
        answers = worker.talk(hello, b" " * 65537)
        expect("error" in (answers[1] or {"error": "closed"}), f"a long message: {answers}")
        with socket.create_connection(("127.0.0.1", worker.port)) as connection:
            connection.sendall(b"\x00\x00\x10")
        draw = np.random.default_rng(11)
        for _ in range(30):
            with socket.create_connection(("127.0.0.1", worker.port)) as connection:
                try:
                    connection.sendall(draw.integers(0, 256, int(draw.integers(1, 3000)), dtype=np.uint8).tobytes())
                except OSError:
                    pass
        worker.wait_for_place(hello)
        # Expressions that share parts: 2^60 nodes for what walks them as a tree.
        shared = "param  f32 i64:8\naxis i64:8\ne0 = load b0 f32 v0\n"
        shared += "".join(f"e{i} = add f32 e{i - 1} e{i - 1}\n" for i in range(1, 61)) + "stage  none e60 f32 i64:8\n"
        begin = time.time()
        answers = worker.talk(hello, {**job, "kernel": shared})
        expect(time.time() - begin < 25 and answers[1] is not None, f"an expression of shared parts: {answers}")
        # Byte after byte, each soon enough for a limit on single reads: the connection ends, and others are served meanwhile.
        begin = time.time()
        with socket.create_connection(("127.0.0.1", worker.port), timeout=30) as slow:
            slow.sendall(struct.pack(">I", 1000))
            closed = False
            while not closed and time.time() - begin < 30:
                if abs(time.time() - begin - 3) < 0.3:
                    expect("machine" in (worker.talk(hello)[0] or {}), "someone else is served beside a slow client")
                slow.settimeout(0.5)
                try:
                    slow.sendall(b"x")
                    data = slow.recv(4096)
                    closed = not data
                except TimeoutError:
                    pass
                except OSError:
                    closed = True
        expect(closed and time.time() - begin < 15, f"a slow client is gone after {time.time() - begin:.0f} s")
        # More connections than it serves: the next one is told, and those that said nothing are closed after a while.
        silent = [socket.create_connection(("127.0.0.1", worker.port)) for _ in range(6)]
        time.sleep(1)
        last = receive(silent[-1])
        expect(last == {"error": "too many connections"}, f"too many connections: {last}")
        for connection in silent:
            connection.close()
        wrong = folder / "wrong"
        wrong.write_text("another token, long enough\n")
        wrong.chmod(0o600)
        time.sleep(1)
        tune = ["tune", model, "--threads", 1, "--trials", 4, "--db", folder / "wrong.db", "--workers", worker.address]
        expect("TSR-6410" in run(*tune, "--token", wrong, code=1).stderr, "a wrong token")
        other = run(*tune, "--token", token, "--target", "x86-64-v2", code=1).stderr if platform.machine() == "x86_64" else "TSR-6410"
        expect("TSR-6410" in other and "another kind of machine" in other, f"another kind of machine: {other}")
        expect(worker.process.poll() is None, "the worker lives")
    finally:
        expect(worker.end() == 0, "the worker ends well")


def searches(folder, token, model):
    tune = [TESSERA, "tune", str(model), "--threads", "1", "--json", "--token", str(token)]

    def begin(db, workers, trials, *more):
        command = [*tune, "--db", str(db), "--trials", str(trials), "--workers", ",".join(w.address for w in workers), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(process, db, trials):
        output, said = process.communicate(timeout=600)
        expect(process.returncode == 0, f"{db.name}: exit {process.returncode}\n{said}")
        answer = json.loads(output)
        exhausted = answer["trials"] < trials
        expect(answer["trials"] == trials or exhausted, f"{db.name}: {answer['trials']} trials of {trials}")
        expect(trials_of(db) == answer["trials"], f"{db.name}: {trials_of(db)} trials in the records, {answer['trials']} made")
        return answer, said

    # Both workers measure; the machine is one, so the records know one.
    workers = [Worker(token), Worker(token)]
    db = folder / "two.db"
    _, said = finish(begin(db, workers, 24, "--no-local"), db, 24)
    expect(said == "", f"nothing to say: {said}")
    lines = [json.loads(line) for line in run("db", "export", db).stdout.splitlines()]
    statuses = {line["status"] for line in lines if line["record"] == "trial"}
    expect(statuses <= {"ok", "refused"}, f"statuses: {statuses}")
    expect(sum(line["record"] == "machine" for line in lines) == 1, "workers of the same machine are the same machine")

    # Workers build sketches' schedules as well.
    db = folder / "sketches.db"
    _, said = finish(begin(db, workers, 24, "--no-local", "--space", "sketches", "--mode", "random"), db, 24)
    expect(said == "", f"nothing to say: {said}")
    lines = [json.loads(line) for line in run("db", "export", db).stdout.splitlines()]
    kinds = {(line["kind"], line["status"]) for line in lines if line["record"] == "trial"}
    expect(("trace", "ok") in kinds and {status for _, status in kinds} == {"ok"}, f"schedules of sketches: {kinds}")

    # kill -9 in the middle; then nobody is left but this machine.
    db = folder / "killed.db"
    process = begin(db, workers, 40, "--no-local")
    deadline = time.time() + 120
    while time.time() < deadline and (not db.exists() or trials_of(db) < 4):
        time.sleep(0.2)
    workers[0].process.kill()
    while time.time() < deadline and trials_of(db) < 16 and process.poll() is None:
        time.sleep(0.2)
    workers[1].process.kill()
    _, said = finish(process, db, 40)
    expect(len(re.findall(r"is lost", said)) <= 2, f"each worker is reported once: {said}")
    expect(workers[0].address in said, f"the killed worker is named: {said}")
    for worker in workers:
        worker.process.wait()

    # A worker that stops answering.
    worker = Worker(token)
    db = folder / "hung.db"
    process = begin(db, [worker], 40, "--batch", "4")  # small rounds: there are some left when it hangs
    while time.time() < deadline + 60 and (not db.exists() or trials_of(db) < 3):
        time.sleep(0.05)
    worker.group(signal.SIGSTOP)
    _, said = finish(process, db, 40)
    expect(said.count("is lost") == 1 or trials_of(db) < 40, f"the hanging worker is reported once: {said}")
    worker.group(signal.SIGCONT)
    expect(worker.end() == 0, "the worker that hung ends well")

    # A kernel that a worker does not take is measured here, and the worker stays.
    small = Worker(token, "--max-memory", "1000")
    db = folder / "refused.db"
    _, said = finish(begin(db, [small], 16), db, 16)
    expect("does not measure a kernel" in said and "is lost" not in said, f"a kernel that is refused: {said}")
    expect(small.end() == 0, "the worker that refused ends well")

    # One that is not there is no reason to stop.
    db = folder / "nobody.db"
    _, said = finish(begin(db, [worker], 8), db, 8)
    expect("is lost" in said, f"nobody there: {said}")


with tempfile.TemporaryDirectory() as name:
    home = pathlib.Path(name)
    token_file = home / "token"
    token_file.write_text("0123456789abcdef0123456789abcdef\n")
    token_file.chmod(0o600)
    network(home / "small.onnx")
    refusals(home, token_file, home / "small.onnx")
    hostile(home, token_file, home / "small.onnx")
    searches(home, token_file, home / "small.onnx")
finish()
