#!/usr/bin/env python3
"""Training that several processes share, by MPI: the same losses as of one process, to the last bit with --leaves; ranks
that do not come.    data_parallel.py TESSERA [unittest options]"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "examples/train_digits")]
import cli_support
from cli_support import CliTest
from mpi_support import MPIRUN, why_no_mpi
from test_data import find_test_data

import numpy
from tessera import graph

import make_models

DIGITS = find_test_data("real/digits/digits.npz")


class DataParallel(CliTest):
    def setUp(self):
        super().setUp()
        if reason := (why_no_mpi() or (None if DIGITS else "real/digits/digits.npz is not in TESSERA_TEST_DATA")):
            print("skipped:", reason)
            self.skipTest(reason)
        make_models.lenet().save(self.folder / "lenet.graph")

    def command(self, ranks, *arguments):
        return [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), cli_support.TESSERA] + [
            str(argument) for argument in arguments
        ]

    def mpirun(self, ranks, *arguments, code=0, **environment):
        done = subprocess.run(
            self.command(ranks, *arguments), cwd=self.folder, env=os.environ | environment, capture_output=True, text=True,
            timeout=300,
        )
        if code == 0:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        else:
            self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stdout, done.stderr

    def arguments(self, *more):
        return ["train", "lenet.graph", "--data", DIGITS, "--scale", 1 / 16, "--epochs", 2, "--threads", 1, *more]

    def losses(self, ranks, *more):
        out, _ = self.mpirun(ranks, *self.arguments("--json", *more))
        self.assertEqual(len(out.strip().splitlines()), 1, "one process writes")
        return json.loads(out)["losses"]

    def test_losses_are_those_of_one_process(self):
        alone = json.loads(self.tessera(*self.arguments("--json"))[0])["losses"]
        for ranks in (1, 2, 4):
            shared = self.losses(ranks)
            self.assertEqual(len(shared), len(alone))
            for a, b in zip(shared, alone):
                self.assertAlmostEqual(a, b, delta=1e-5 * max(1, abs(b)))
        self.assertLess(alone[-1], 0.7 * alone[0])

    def test_leaves_give_the_same_bits(self):
        for more in ((), ("--deterministic",), ("--optimizer", "sgd", "--momentum", 0.9, "--lr", 0.05, "--clip-norm", 1)):
            with self.subTest(more):
                alone = json.loads(self.tessera(*self.arguments("--json", "--leaves", 8, *more))[0])["losses"]
                for ranks in (2, 4, 8) if not more else (2,):
                    self.assertEqual(self.losses(ranks, "--leaves", 8, *more), alone)

    def batch_norm_net(self):
        random = numpy.random.default_rng(1)
        g = graph.Graph("normed")
        n = g.symbol("n", 1, 64)
        x = g.input("x", numpy.float32, (n, 1, 8, 8))
        for i, (inputs, outputs) in enumerate([(1, 8), (8, 16)]):
            weight = random.standard_normal((outputs, inputs, 3, 3)).astype(numpy.float32) / 3
            x = graph.conv(x, g.constant(weight, name=f"conv{i}.weight"), strides=[2, 2], pads_begin=[1, 1],
                           pads_end=[1, 1], dilations=[1, 1], input_dilations=[1, 1], groups=1)
            ones, zeros = numpy.ones(outputs, numpy.float32), numpy.zeros(outputs, numpy.float32)
            values = (("scale", ones), ("bias", zeros), ("mean", zeros.copy()), ("variance", ones.copy()))
            operands = [g.constant(value, name=f"norm{i}.{name}") for name, value in values]
            x = graph.relu(graph.batch_norm(x, *operands, epsilon=1e-5))
        x = graph.reshape(graph.reduce_mean(x, axes=[2, 3], keepdims=False), shape=[n, 16])
        head = random.standard_normal((16, 10)).astype(numpy.float32) / 4
        g.output("scores", graph.matmul(x, g.constant(head, name="head")))
        g.save(self.folder / "lenet.graph")

    def test_batch_normalisations_see_all_samples(self):
        self.batch_norm_net()
        # Adam's first steps are signs of gradients, and so of rounding errors where a gradient is zero.
        more = ("--json", "--optimizer", "sgd", "--momentum", 0.9, "--lr", 0.05)
        out, _ = self.tessera(*self.arguments(*more, "-o", "alone.graph"))
        alone = json.loads(out)
        for ranks in (2, 4):
            out, _ = self.mpirun(ranks, *self.arguments(*more, "-o", f"shared{ranks}.graph"))
            shared = json.loads(out)
            for a, b in zip(shared["losses"], alone["losses"], strict=True):
                self.assertAlmostEqual(a, b, delta=1e-5 * max(1, abs(b)))
            self.assertAlmostEqual(shared["test_right"], alone["test_right"], delta=2)

    def test_leaves_have_statistics_of_their_own(self):
        """Means and variances of each leaf, running values averaged: the same bits for any number of processes."""
        self.batch_norm_net()
        more = ("--deterministic", "--leaves", 4, "--optimizer", "sgd", "--momentum", 0.9, "--lr", 0.05)
        self.tessera(*self.arguments("-q", *more, "-o", "alone.graph"))
        for ranks, zero in ((2, 0), (4, 0), (2, 2)):
            with self.subTest(ranks=ranks, zero=zero):
                self.mpirun(ranks, *self.arguments("-q", *more, "--zero", zero, "-o", "shared.graph"))
                self.assertEqual((self.folder / "shared.graph").read_bytes(), (self.folder / "alone.graph").read_bytes())

    def test_what_is_written_is_the_same(self):
        more = ("-q", "--leaves", 4)
        self.tessera(*self.arguments(*more, "-o", "alone.graph"))
        self.mpirun(2, *self.arguments(*more, "-o", "shared.graph"))
        self.assertEqual((self.folder / "shared.graph").read_bytes(), (self.folder / "alone.graph").read_bytes())

    def test_masks(self):
        """They follow from whole weights, where ranks have parts of these, too."""
        more = ("-q", "--leaves", 4, "--prune", 0.5)
        self.tessera(*self.arguments(*more, "-o", "alone.graph"))
        for zero in (2, 3):
            self.mpirun(2, *self.arguments(*more, "--zero", zero, "-o", "shared.graph"))
            self.assertEqual((self.folder / "shared.graph").read_bytes(), (self.folder / "alone.graph").read_bytes())

    def test_stages_of_zero_give_the_same_bits(self):
        report = lambda ranks, *more: json.loads(self.mpirun(ranks, *self.arguments("--json", *more))[0])
        # Without leaves, the order of sums is MPI's: the same ranks give the same bits here.
        for ranks, batch, more in (2, 32, ()), (3, 48, ("--optimizer", "sgd", "--momentum", 0.9, "--lr", 0.05)):
            whole = report(ranks, "--batch", batch, *more)
            for zero in (1, 2, 3):
                with self.subTest(ranks=ranks, zero=zero):
                    cut = report(ranks, "--batch", batch, "--zero", zero, *more)
                    for a, b in zip(cut["losses"], whole["losses"], strict=True):
                        self.assertAlmostEqual(a, b, delta=1e-5 * max(1, abs(b)))
                    self.assertAlmostEqual(cut["optimizer_bytes"], whole["optimizer_bytes"] / ranks,
                                           delta=0.05 * whole["optimizer_bytes"] / ranks)
                    parts = ranks if zero == 3 else 1
                    self.assertAlmostEqual(cut["parameter_bytes"], whole["parameter_bytes"] / parts,
                                           delta=0.05 * whole["parameter_bytes"] / parts)
                    self.assertEqual(cut["parameters"], whole["parameters"])
        alone = json.loads(self.tessera(*self.arguments("--json", "--leaves", 8, "-o", "alone.graph"))[0])
        for zero in (1, 2, 3):
            with self.subTest(leaves=8, zero=zero):
                cut = report(4, "--leaves", 8, "--zero", zero, "-o", "cut.graph")
                self.assertEqual(cut["losses"], alone["losses"])
                self.assertEqual(cut["test_right"], alone["test_right"])
                self.assertEqual((self.folder / "cut.graph").read_bytes(), (self.folder / "alone.graph").read_bytes())

    def test_any_number_of_processes_goes_on_from_a_checkpoint(self):
        self.tessera(*self.arguments("-q", "--leaves", 4, "-o", "whole.graph"))
        half = ("--leaves", 4, "--checkpoint", "half.safetensors")
        # Killed behind the first epoch: four ranks with parts of the states have written it.
        launcher = subprocess.Popen(self.command(4, *self.arguments("--zero", 3, *half)), cwd=self.folder,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in launcher.stdout:
            if line.startswith("epoch"):
                break
        launcher.kill()
        launcher.communicate()
        written = (self.folder / "half.safetensors").read_bytes()
        for ranks, zero in (1, 0), (2, 1), (2, 3), (4, 2):
            with self.subTest(ranks=ranks, zero=zero):
                (self.folder / "half.safetensors").write_bytes(written)
                out, _ = self.mpirun(ranks, *self.arguments("--zero", zero, "--resume", "half.safetensors",
                                                            "-o", "rest.graph", *half))
                self.assertIn("going on after step", out)
                self.assertEqual((self.folder / "rest.graph").read_bytes(), (self.folder / "whole.graph").read_bytes())

    def test_collectives_overlap_the_backward_pass(self):
        self.mpirun(2, *self.arguments("-q", "--profile", "trace.json", "--step", "step.graph"))
        for name in ("trace.json", "trace.json.1"):
            events = [e for e in json.loads((self.folder / name).read_text())["traceEvents"] if e["ph"] == "X"]
            operations = [e["name"] for e in events if e["cat"] == "operation"]
            self.assertEqual(len(operations), 10)  # eight gradients, the loss, how many are right
            self.assertEqual(operations[0], "loss.shared")
            self.assertEqual(operations[-1], "conv1.weight.gradient.shared")
        # When a thread gets a core is the system's business; what waits for what is the program's.
        self.tessera("compile", "step.graph", "--emit", "program", "-o", "step.program")
        steps = re.findall(r"^  (?:(start|wait) (\d+)|call @(\S+)\()", (self.folder / "step.program").read_text(), re.M)
        started = {number: place for place, (kind, number, _) in enumerate(steps) if kind == "start"}
        waited = {number: place for place, (kind, number, _) in enumerate(steps) if kind == "wait"}
        backward = max(place for place, (_, _, call) in enumerate(steps) if call == "conv_1")
        self.assertEqual(len(started), 10)
        self.assertEqual(sum(place < backward for place in started.values()), 9, steps)
        self.assertGreater(min(waited.values()), backward, steps)

    def test_wrong_numbers(self):
        _, err = self.mpirun(2, *self.arguments("--leaves", 3), code=1)
        self.assertIn("error TSR-2085: 3 leaves for 2 ranks\n  legal: as many leaves for each rank", err)
        _, err = self.mpirun(2, *self.arguments("--zero", 3, "--prune", "channels:0.5"), code=1)
        self.assertIn("error TSR-4080: --prune channels of layers that processes have parts of\n  legal: --prune 0.8, or 2:4", err)
        _, err = self.mpirun(2, *self.arguments("--zero", 2, "--leaves", 2, "--clip-norm", 1), code=1)
        self.assertIn("error TSR-2085: the norm of gradients of which ranks have parts, and leaves", err)
        _, err = self.mpirun(3, *self.arguments(), code=1)
        self.assertIn("error TSR-4080: --batch 32\n  legal: a multiple of 3, the number of parts", err)
        _, err = self.tessera(*self.arguments(), code=1, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="two")
        self.assertIn("error TSR-6250: OMPI_COMM_WORLD_RANK is 'two' in the environment", err)
        _, err = self.tessera(*self.arguments(), code=1, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")
        self.assertIn("the module is made for 2 ranks, and this run has 1: mpirun -n 2 starts them", err)

    def children(self, parent):
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
                command = (stat.parent / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == parent and b"train" in command:
                found.append(int(stat.parent.name))
        return found

    def ranks_of(self, launcher):
        """The processes of ranks, once they train."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            line = launcher.stdout.readline()
            if line.startswith("epoch"):
                return sorted(self.children(launcher.pid))
        self.fail("training has not begun")

    def launched(self, **environment):
        command = self.command(2, *self.arguments())
        command[command.index("--epochs") + 1] = "100000"
        launcher = subprocess.Popen(
            command, cwd=self.folder, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(lambda: launcher.poll() is None and launcher.kill())
        return launcher

    def test_a_killed_rank_ends_the_run(self):
        launcher = self.launched()
        os.kill(self.ranks_of(launcher)[-1], signal.SIGKILL)
        _, err = launcher.communicate(timeout=60)
        self.assertNotEqual(launcher.returncode, 0)
        self.assertRegex(err, r"(?s)process rank \d with PID .*signal 9")

    def test_a_rank_that_stops_is_named(self):
        launcher = self.launched(TESSERA_COMM_TIMEOUT="2")
        stopped = self.ranks_of(launcher)[-1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            _, err = launcher.communicate(timeout=60)
        finally:
            try:
                os.kill(stopped, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.assertNotEqual(launcher.returncode, 0)
        self.assertRegex(err, r"TSR-7026: device 'mpi' .* rank \d has waited \d s in all_reduce '.*': rank \d does not answer")


if __name__ == "__main__":
    cli_support.main()
