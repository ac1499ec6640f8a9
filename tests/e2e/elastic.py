#!/usr/bin/env python3
"""Training that goes on when its processes are killed: started again by tessera itself, or by whoever sets torchrun's
variables; the end has the bits of a run that nobody disturbed.    elastic.py TESSERA [unittest options]

KILLS=30 SECONDS=600 give the long version."""

import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "examples/train_digits")]
import cli_support
from cli_support import CliTest
from mpi_support import MPIRUN
from test_data import find_test_data

import make_models

DIGITS = find_test_data("real/digits/digits.npz")
VENV = ROOT / ".venv/bin"
KILLS, SECONDS = int(os.environ.get("KILLS", 4)), float(os.environ.get("SECONDS", 0))


def steps_in(checkpoint):
    """Of a .safetensors file: how many steps were done before it was written; -1: it is not there."""
    try:
        content = checkpoint.read_bytes()
    except FileNotFoundError:
        return -1
    size = int.from_bytes(content[:8], "little")
    begin, end = json.loads(content[8 : 8 + size])["training.step"]["data_offsets"]
    return int.from_bytes(content[8 + size + begin : 8 + size + end], "little")


def processes(parent, name=b"train"):
    """All descendants that train."""
    tree = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        tree.setdefault(int(fields[1]), []).append((int(stat.parent.name), command))
    found, left = [], [parent]
    while left:
        for pid, command in tree.get(left.pop(), []):
            found.append((pid, command))
            left.append(pid)
    return found


class Elastic(CliTest):
    def setUp(self):
        super().setUp()
        if not DIGITS:
            print("skipped: real/digits/digits.npz is not in TESSERA_TEST_DATA")
            self.skipTest("no digits")
        make_models.lenet().save(self.folder / "lenet.graph")
        self.checkpoint = self.folder / "c.safetensors"

    def arguments(self, epochs, *more):
        return [cli_support.TESSERA, "train", "lenet.graph", "--data", DIGITS, "--scale", 1 / 16, "--epochs", epochs,
                "--threads", 1, "--leaves", 4, *more]

    def start(self, command, **variables):
        environment = self.environment | {"PATH": f"{VENV}:{self.environment['PATH']}"} | variables
        return subprocess.Popen([str(part) for part in command], cwd=self.folder, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def undisturbed(self, epochs):
        done = self.start(self.arguments(epochs, "-q", "-o", "alone.graph"))
        self.assertEqual(done.communicate(timeout=600 + 4 * SECONDS)[1], "")
        return (self.folder / "alone.graph").read_bytes()

    def needs(self, library):
        path = pathlib.Path(cli_support.TESSERA).resolve().parents[1] / f"lib/libtessera_{library}.so.0"
        if not path.exists() or (library == "mpi" and not MPIRUN):
            print(f"skipped: the build has no libtessera_{library}, or there is no mpirun")
            self.skipTest(library)

    def test_random_kills(self):
        """Of ranks, and of mpirun; never is more than one step lost, and the group goes on within seconds."""
        self.needs("mpi")
        group_of = ("--processes", 2, "--restarts", 1000, "--checkpoint", self.checkpoint, "-o", "out.graph")
        epochs = 12
        if SECONDS:
            # Enough for all kills, however fast this machine is.
            def seconds_of(epochs):
                begin = time.monotonic()
                self.assertEqual(self.start(self.arguments(epochs, "-q", *group_of)).communicate(timeout=600)[1], "")
                self.checkpoint.unlink()
                return time.monotonic() - begin

            epochs = int(SECONDS / max((seconds_of(64) - seconds_of(4)) / 60, 1e-3))
        want = self.undisturbed(epochs)
        group = self.start(self.arguments(epochs, *group_of))
        told, lines, noticed, killed, pauses, hangs = [], [], [], [], [], []

        def read():
            for line in group.stderr:
                lines.append(line)
                if line.startswith("restart "):
                    noticed.append(time.monotonic())

        readers = [threading.Thread(target=read), threading.Thread(target=lambda: told.extend(group.stdout))]
        for reader in readers:
            reader.start()
        draw = random.Random(1)
        begin = time.monotonic()
        while group.poll() is None and len(killed) < KILLS:
            # Somewhere in the next steps, or while the group starts.
            before = steps_in(self.checkpoint)
            pause = time.monotonic()
            while group.poll() is None and steps_in(self.checkpoint) <= before:
                time.sleep(0.01)
            pauses.append(time.monotonic() - pause)
            # From a kill until all that was left of the group has ended.
            if killed and len(noticed) == len(killed):
                hangs.append(noticed[-1] - pause)
            time.sleep(draw.uniform(0, max(0.4, 2 * SECONDS / KILLS - 4)))
            ranks = [pid for pid, command in processes(group.pid) if b"train" in command]
            if group.poll() is not None or not ranks:
                break
            killed.append((steps_in(self.checkpoint), draw.choice(ranks)))
            try:
                os.kill(killed[-1][1], signal.SIGKILL)
            except ProcessLookupError:
                killed.pop()
        group.wait(timeout=600 + 4 * SECONDS)
        for reader in readers:
            reader.join()
        out = "".join(told)
        self.assertEqual(group.returncode, 0, out + "".join(lines))
        self.assertGreaterEqual(len(killed), KILLS if SECONDS else min(KILLS, 3))
        self.assertLess(max(hangs, default=0), 2)
        resumed = [int(step) for step in re.findall(r"going on after step (\d+)", out)]
        # A group that was killed while it started has not said where it goes on.
        self.assertEqual(resumed, sorted(resumed))
        self.assertGreaterEqual(resumed[-1], max(seen for seen, _ in killed))
        self.assertEqual((self.folder / "out.graph").read_bytes(), want)
        print(f"{len(killed)} kills in {time.monotonic() - begin:.0f} s, {epochs} epochs; from a kill until the group has ended "
              f"{max(hangs, default=0):.2f} s at most, to the next step {max(pauses[1:], default=0):.1f} s at most, "
              f"{statistics.median(pauses[1:] or [0]):.1f} in the median")
        self.assertEqual(processes(group.pid), [])

    def test_errors_are_not_repeated(self):
        self.needs("mpi")
        done = self.start(self.arguments(1, "--processes", 2, "--restarts", 5, "--checkpoint", self.checkpoint, "--lr", -1))
        _, err = done.communicate(timeout=120)
        self.assertEqual(done.returncode, 1, err)
        self.assertEqual(err.count("restart "), 0, err)
        self.assertIn("error TSR-4080: --lr -1", err)
        _, err = self.tessera(*self.arguments(1, "--processes", 2, "--restarts", 5)[1:], code=1)
        self.assertIn("error TSR-4080: --restarts without --checkpoint", err)
        _, err = self.tessera(*self.arguments(1, "--processes", 2)[1:], code=1, PATH="/nowhere")
        self.assertIn("error TSR-6252: there is no mpirun", err)

    def ranks_by_variables(self, ranks, command):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        return [self.start(command, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
                for rank in range(ranks)]

    def test_torchruns_variables(self):
        self.needs("gloo")
        want = self.undisturbed(2)
        for ranks, more in (2, ()), (4, ()), (2, ("--zero", 3)):
            with self.subTest(ranks=ranks, more=more):
                group = self.ranks_by_variables(ranks, self.arguments(2, "-q", "-o", "out.graph", *more))
                for rank in group:
                    out, err = rank.communicate(timeout=300)
                    self.assertEqual(rank.returncode, 0, out + err)
                self.assertEqual((self.folder / "out.graph").read_bytes(), want)
        stages = [part for part in self.arguments(2, "--deterministic", "--json") if part not in ("--leaves", 4)]
        alone = self.start([*stages, "--leaves", 4])
        losses = json.loads(alone.communicate(timeout=300)[0])["losses"]
        group = self.ranks_by_variables(2, [*stages, "--stages", 2, "--micro-batches", 4])
        outs = [rank.communicate(timeout=300) for rank in group]
        self.assertEqual([rank.returncode for rank in group], [0, 0], outs)
        self.assertEqual(json.loads(outs[0][0])["losses"], losses)

    def test_a_killed_rank_is_noticed_at_once(self):
        self.needs("gloo")
        want = self.undisturbed(6)
        command = self.arguments(6, "--checkpoint", self.checkpoint, "--checkpoint-steps", 1, "--continue", "-o", "out.graph")
        group = self.ranks_by_variables(2, command)
        while steps_in(self.checkpoint) < 20:
            time.sleep(0.01)
        group[1].kill()
        begin = time.monotonic()
        _, err = group[0].communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 2)
        self.assertEqual(group[0].returncode, 1)
        self.assertIn("TSR-7026", err)
        for rank in self.ranks_by_variables(2, command):
            out, err = rank.communicate(timeout=300)
            self.assertEqual(rank.returncode, 0, out + err)
        self.assertEqual((self.folder / "out.graph").read_bytes(), want)


if __name__ == "__main__":
    cli_support.main()
