#!/usr/bin/env python3
"""Training in stages, by MPI: the losses and weights of one process, to the last bit in deterministic mode; plans, their
text, and what is refused.    pipeline.py TESSERA [unittest options]"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "examples/train_digits"), str(ROOT / "examples/parallel")]
import cli_support
from cli_support import CliTest
from mpi_support import MPIRUN, why_no_mpi
from test_data import find_test_data

import numpy

import make_gpt
import make_models

DIGITS = find_test_data("real/digits/digits.npz")


class Pipeline(CliTest):
    def setUp(self):
        super().setUp()
        if reason := why_no_mpi():
            print("skipped:", reason)
            self.skipTest(reason)

    def mpirun(self, ranks, *arguments, code=0):
        command = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", ranks, cli_support.TESSERA, *arguments]
        done = subprocess.run([str(part) for part in command], cwd=self.folder, env=self.environment, capture_output=True,
                              text=True, timeout=300)
        if code == 0:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        else:
            self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stdout, done.stderr

    def digits(self, *more):
        if not DIGITS:
            print("skipped: real/digits/digits.npz is not in TESSERA_TEST_DATA")
            self.skipTest("no digits")
        make_models.lenet().save(self.folder / "lenet.graph")
        return ["train", "lenet.graph", "--data", DIGITS, "--scale", 1 / 16, "--epochs", 2, "--threads", 1, *more]

    def gpt(self, *more, layers=3, micro_batches=4):
        make_gpt.gpt(layers, 32, 4, 8, 2, 24).save(self.folder / "gpt.graph")
        random = numpy.random.default_rng(0)
        tokens = random.integers(0, 24, (64, 9))
        numpy.savez(self.folder / "text.npz", x=tokens[:, :-1], y=(tokens[:, :-1] * 7 + 3) % 24)
        return ["train", "gpt.graph", "--data", "text.npz", "--classes-last", "--batch", 2 * micro_batches, "--epochs", 3,
                "--threads", 1, *more]

    def losses(self, ranks, arguments):
        out, _ = self.mpirun(ranks, *arguments, "--json") if ranks > 1 else self.tessera(*arguments, "--json")
        self.assertEqual(len(out.strip().splitlines()), 1, "one process writes")
        return json.loads(out)["losses"]

    SHAPES = [
        (2, ("--stages", 2, "--micro-batches", 4, "--pipeline", "gpipe")),
        (2, ("--stages", 2, "--micro-batches", 4)),
        (2, ("--stages", 2, "--micro-batches", 4, "--pipeline", "interleaved")),
        (3, ("--stages", 3, "--micro-batches", 4)),
    ]

    def test_losses_are_those_of_one_process(self):
        for arguments in (self.digits(), self.gpt()):
            alone = self.losses(1, [*arguments, "--leaves", 4])
            self.assertLess(alone[-1], alone[0])
            for ranks, more in self.SHAPES:
                with self.subTest(model=arguments[1], more=more):
                    shared = self.losses(ranks, [*arguments, *more])
                    for a, b in zip(shared, alone, strict=True):
                        self.assertAlmostEqual(a, b, delta=1e-5 * max(1, abs(b)))

    def test_deterministic_bits_are_those_of_one_process(self):
        for arguments in (self.digits("--deterministic"), self.gpt("--deterministic")):
            self.tessera(*arguments, "-q", "--leaves", 4, "-o", "alone.graph")
            for ranks, more in self.SHAPES:
                with self.subTest(model=arguments[1], more=more):
                    self.mpirun(ranks, *arguments, "-q", *more, "-o", "shared.graph")
                    self.assertEqual((self.folder / "shared.graph").read_bytes(),
                                     (self.folder / "alone.graph").read_bytes())

    def test_rows_of_stages(self):
        arguments = self.digits("--deterministic", "--leaves", 4)
        alone = self.losses(1, arguments)
        self.assertEqual(self.losses(4, [*arguments, "--stages", 2, "--micro-batches", 2]), alone)
        shared = self.losses(4, [*self.digits(), "--stages", 2, "--micro-batches", 2])
        for a, b in zip(shared, alone, strict=True):
            self.assertAlmostEqual(a, b, delta=1e-5 * max(1, abs(b)))

    def test_what_follows_the_batch(self):
        """A word embedding that is also the last matrix, dropouts: the weights of one process, to the last bit; the moments
        of rows of stages in parts."""
        self.gpt()
        text = (self.folder / "gpt.graph").read_text()
        arguments = ["train", "tied.graph", "--data", "text.npz", "--classes-last", "--batch", 8, "--epochs", 2, "--threads", 1,
                     "--deterministic", "--leaves", 4, "-q"]
        g = make_gpt.gpt(2, 32, 4, 8, 2, 24, tied=True, dropout=0.1)
        self.assertNotEqual(g.text(), text)
        g.save(self.folder / "tied.graph")
        self.tessera(*arguments, "-o", "alone.graph")
        for ranks, more in ((2, ("--stages", 2, "--micro-batches", 4)), (4, ("--stages", 2, "--micro-batches", 2)),
                            (4, ("--stages", 2, "--micro-batches", 2, "--zero", 2)),
                            (2, ("--stages", 2, "--micro-batches", 4, "--pipeline", "interleaved"))):
            with self.subTest(ranks=ranks, more=more):
                self.mpirun(ranks, *arguments, *more, "-o", "shared.graph")
                self.assertEqual((self.folder / "shared.graph").read_bytes(), (self.folder / "alone.graph").read_bytes())

    def test_a_teacher(self):
        """Its answers are the last stage's, which has all samples: the bits of one process."""
        arguments = self.digits("--deterministic", "--distill", "teacher.graph", "-q")
        make_models.lenet().save(self.folder / "teacher.graph")
        self.tessera(*arguments, "--leaves", 4, "-o", "alone.graph")
        self.mpirun(2, *arguments, "--stages", 2, "--micro-batches", 4, "-o", "shared.graph")
        self.assertEqual((self.folder / "shared.graph").read_bytes(), (self.folder / "alone.graph").read_bytes())

    def test_masks(self):
        """Weights that go are those of one process, whichever stage has them."""
        for prune in (0.5, "2:4"):
            arguments = self.digits("--deterministic", "--prune", prune, "-q")
            self.tessera(*arguments, "--leaves", 4, "-o", "alone.graph")
            alone = (self.folder / "alone.graph").read_bytes()
            for ranks, more in ((2, ("--micro-batches", 4)), (4, ("--micro-batches", 2, "--zero", 2))):
                with self.subTest(prune=prune, ranks=ranks, more=more):
                    self.mpirun(ranks, *arguments, "--leaves", 4, "--stages", 2, *more, "-o", "shared.graph")
                    self.assertEqual((self.folder / "shared.graph").read_bytes(), alone)

    def test_one_micro_batch_is_naive_model_parallelism(self):
        arguments = self.digits()
        shared = self.losses(2, [*arguments, "--stages", 2])
        for a, b in zip(shared, self.losses(1, arguments), strict=True):
            self.assertAlmostEqual(a, b, delta=1e-5 * max(1, abs(b)))

    def test_checkpoints_are_those_of_any_number_of_processes(self):
        arguments = self.digits("--deterministic")
        stages = ("--stages", 2, "--micro-batches", 4)
        self.mpirun(2, *arguments, "-q", *stages, "-o", "whole.graph")
        # Killed behind the first epoch.
        command = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", 2, cli_support.TESSERA, *arguments, *stages,
                   "--checkpoint", "half.safetensors"]
        launcher = subprocess.Popen([str(part) for part in command], cwd=self.folder, env=self.environment,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in launcher.stdout:
            if line.startswith("epoch"):
                break
        launcher.kill()
        launcher.communicate()
        # One process does the same to the last bit with as many leaves; checkpoints are of a batch, not of its parts.
        out, _ = self.mpirun(2, *arguments, *stages, "--resume", "half.safetensors", "-o", "rest.graph")
        self.assertIn("going on after step", out)
        self.assertEqual((self.folder / "rest.graph").read_bytes(), (self.folder / "whole.graph").read_bytes())
        out, _ = self.tessera(*arguments, "--resume", "half.safetensors", "--json")
        self.assertGreater(json.loads(out)["test_right"], 0)

    def test_plan(self):
        arguments = self.gpt(layers=4)
        shape = ("--stages", 2, "--micro-batches", 4, "--classes-last")
        out, _ = self.tessera("parallelize", "gpt.graph", *shape, "--schedule", "1f1b", "-o", "plan")
        self.assertRegex(out, r"^2 stages, 4 micro-batches, 1f1b\nchunk 0 on stage 0: from '.*', forward .* ms, backward .* ms; "
                              r"gives .* on\nchunk 1 on stage 1: from '.*', forward .* ms, backward .* ms\n")
        self.assertRegex(out, r"\nstage 0: parameters .*, memory of a step .*, at most 2 micro-batches alive, sends .* a step\n")
        self.assertRegex(out, r"\npredicted: .* ms a step without its update \(alone .* ms\), nothing to do for .* %\n")
        plan = json.loads(self.tessera("parallelize", "gpt.graph", *shape, "--json")[0])
        self.assertEqual(plan["cuts"], json.loads((self.folder / "plan/plan.json").read_text())["cuts"])
        # Half of four equal blocks, and what goes over is one activation.
        times = [chunk["forward_seconds"] + chunk["backward_seconds"] for chunk in plan["chunks"]]
        self.assertLess(max(times), 0.65 * sum(times))
        self.assertEqual(plan["chunks"][0]["given_bytes"], 2 * 8 * 32 * 4)
        self.assertEqual(plan["stages"][0]["sent_bytes"], 4 * 2 * 8 * 32 * 4)
        # All micro-batches' activations are kept by gpipe, those of two by 1f1b.
        gpipe = json.loads(self.tessera("parallelize", "gpt.graph", "--stages", 2, "--micro-batches", 16, "--classes-last",
                                        "--schedule", "gpipe", "--json")[0])
        one = json.loads(self.tessera("parallelize", "gpt.graph", "--stages", 2, "--micro-batches", 16, "--classes-last",
                                      "--json")[0])
        self.assertEqual([gpipe["stages"][0]["most_alive"], one["stages"][0]["most_alive"]], [16, 2])
        self.assertLess(one["stages"][0]["memory_bytes"], 0.6 * gpipe["stages"][0]["memory_bytes"])
        by_plan = self.losses(2, [*arguments, "--plan", "plan"])
        self.assertEqual(by_plan, self.losses(2, [*arguments, "--stages", 2, "--micro-batches", 4]))
        measured = json.loads(self.tessera("parallelize", "gpt.graph", *shape, "--measure", "--json")[0])
        self.assertGreater(measured["seconds"], 0)

    def test_stages_fit_into_memory(self):
        self.gpt(layers=4)
        shape = ("--stages", 2, "--micro-batches", 4, "--classes-last", "--json")
        free = json.loads(self.tessera("parallelize", "gpt.graph", *shape)[0])
        most = max(stage["memory_bytes"] for stage in free["stages"])
        self.tessera("parallelize", "gpt.graph", *shape, "--max-memory", most)
        _, err = self.tessera("parallelize", "gpt.graph", *shape, "--max-memory", 20000, code=1)
        self.assertIn("error TSR-2086: 20.0 kB of memory are too little for a stage\n  legal: about ", err)

    def test_what_is_refused(self):
        arguments = self.digits()
        _, err = self.mpirun(3, *arguments, "--stages", 2, code=1)
        self.assertIn("error TSR-4080: 3 processes for 2 stages\n  legal: a multiple of 2", err)
        _, err = self.tessera(*arguments, "--stages", 2, code=1)
        self.assertIn("error TSR-4080: 1 process for 2 stages", err)
        _, err = self.mpirun(2, *arguments, "--stages", 2, "--micro-batches", 3, "--batch", 33, "--pipeline", "interleaved",
                             code=1)
        self.assertIn("error TSR-2086: 3 micro-batches for 2 stages, interleaved", err)
        _, err = self.mpirun(2, *arguments, "--stages", 2, "--zero", 3, code=1)
        self.assertIn("error TSR-2085: zero = 3 of a pipeline", err)
        _, err = self.mpirun(2, *arguments, "--stages", 2, "--prune", "channels:0.5", code=1)
        self.assertIn("error TSR-4080: --prune channels of layers that processes have parts of", err)
        _, err = self.tessera("parallelize", "gpt.graph" if (self.folder / "gpt.graph").exists() else "lenet.graph", "--dim",
                              "n=4", "--stages", 40, "--micro-batches", 4, code=1)
        self.assertRegex(err, r"error TSR-2086: the model can be cut at \d+ places, and there are 40 chunks")


if __name__ == "__main__":
    cli_support.main()
