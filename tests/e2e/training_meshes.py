#!/usr/bin/env python3
"""One training by 1, 2, 4 and 8 processes, whatever they share: batches, layers, stages, or all three. In deterministic mode
the losses and weights of one process, to the last bit, where layers are not shared, and of a perceptron where two share them;
else its losses within 1e-5 (kernels of a part of a normalisation or of attention may add in another order).
    training_meshes.py TESSERA [unittest options]"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "examples/train_digits"), str(ROOT / "examples/parallel"),
                str(ROOT / "examples/train_real")]
import cli_support
from cli_support import CliTest
from mpi_support import MPIRUN, why_no_mpi

import numpy
import tessera
from tessera import graph, nn

import make_gpt
import make_models
import pictures

LEAVES = 4
# How many processes, and what they share: data x stages x model.
MESHES = {
    "data=2": (2, ()),
    "data=4": (4, ()),
    "stage=2": (2, ("--stages", 2, "--micro-batches", 4)),
    "model=2": (2, ("--tensor-parallel", 2)),
    "model=4": (4, ("--tensor-parallel", 4)),
    "data=2,model=2": (4, ("--tensor-parallel", 2)),
    "data=2,stage=2": (4, ("--stages", 2, "--micro-batches", 2)),
    "stage=2,model=2": (4, ("--stages", 2, "--micro-batches", 4, "--tensor-parallel", 2)),
    "stage=2,model=2, gpipe": (4, ("--stages", 2, "--micro-batches", 4, "--tensor-parallel", 2, "--pipeline", "gpipe")),
    "stage=2,model=2, interleaved": (4, ("--stages", 2, "--micro-batches", 4, "--tensor-parallel", 2, "--pipeline", "interleaved")),
    "data=2,stage=2,model=2": (8, ("--stages", 2, "--micro-batches", 2, "--tensor-parallel", 2)),
    "data=2,stage=2,model=2, zero 1": (8, ("--stages", 2, "--micro-batches", 2, "--tensor-parallel", 2, "--zero", 1)),
}


class TrainingMeshes(CliTest):
    def setUp(self):
        super().setUp()
        if reason := why_no_mpi():
            print("skipped:", reason)
            self.skipTest(reason)
        self.random = numpy.random.default_rng(0)

    def run_ranks(self, ranks, *arguments):
        if ranks == 1:
            return self.tessera(*arguments)[0]
        command = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", ranks, cli_support.TESSERA, *arguments]
        done = subprocess.run([str(part) for part in command], cwd=self.folder, env=self.environment, capture_output=True,
                              text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def perceptron(self):
        g = graph.Graph("perceptron")
        x = g.input("x", numpy.float32, (2, 8))
        for i, (inputs, outputs) in enumerate(((8, 16), (16, 16), (16, 8))):
            weight = (self.random.standard_normal((inputs, outputs)) / numpy.sqrt(inputs)).astype(numpy.float32)
            x = graph.matmul(graph.relu(x) if i else x, g.constant(weight, name=f"weight{i}"))
            x = graph.add(x, g.constant(numpy.zeros(outputs, numpy.float32), name=f"bias{i}"))
        g.output("y", x)
        g.save(self.folder / "net.graph")
        numpy.savez(self.folder / "data.npz", x=self.random.standard_normal((32, 8)).astype(numpy.float32),
                    y=self.random.integers(0, 8, 32))
        return ["--batch", 8, "--epochs", 4]

    def lenet(self):
        make_models.lenet().save(self.folder / "net.graph")
        numpy.savez(self.folder / "data.npz", x=self.random.random((64, 1, 8, 8), numpy.float32), y=self.random.integers(0, 10, 64))
        return ["--batch", 16, "--epochs", 2]

    def gpt(self):
        make_gpt.gpt(2, 32, 4, 8, 2, 24).save(self.folder / "net.graph")
        tokens = self.random.integers(0, 24, (32, 9))
        numpy.savez(self.folder / "data.npz", x=tokens[:, :-1], y=(tokens[:, :-1] * 7 + 3) % 24)
        return ["--classes-last", "--batch", 8, "--epochs", 2]

    def resnet18(self):
        nn.manual_seed(1)
        model = pictures.resnet18(8).eval()
        tessera.capture(model, numpy.zeros((2, 3, 32, 32), numpy.float32)).save(self.folder / "net.graph")
        numpy.savez(self.folder / "data.npz", x=self.random.random((16, 3, 32, 32), numpy.float32), y=self.random.integers(0, 8, 16))
        return ["--batch", 8, "--epochs", 1]

    def check(self, model, meshes, deterministic=True):
        settings = getattr(self, model)()
        arguments = ["train", "net.graph", "--data", "data.npz", "--threads", 1, "--in-order", "--leaves", LEAVES, *settings]
        if deterministic:
            arguments.append("--deterministic")
        report = ["--json", "-o", "trained.graph"]
        alone = json.loads(self.run_ranks(1, *arguments, *report))
        weights = (self.folder / "trained.graph").read_bytes()
        for mesh in meshes:
            ranks, more = MESHES[mesh]
            with self.subTest(model=model, mesh=mesh, deterministic=deterministic):
                shared = json.loads(self.run_ranks(ranks, *arguments, *more, *report))
                worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(shared["losses"], alone["losses"], strict=True))
                print(f"{model} {mesh}: {len(alone['losses'])} losses, {worst:.1e} apart at most; parameters of a process "
                      f"{shared['parameter_bytes']} of {alone['parameter_bytes']} bytes", flush=True)
                # A quarter of the perceptron's layers has four columns, whose kernels add in another order.
                if not deterministic or mesh == "model=4" or (model != "perceptron" and "model" in mesh):
                    self.assertLess(worst, 1e-5)
                    continue
                self.assertEqual(shared["losses"], alone["losses"])
                self.assertEqual((self.folder / "trained.graph").read_bytes(), weights)

    def test_perceptron_to_the_last_bit(self):
        self.check("perceptron", MESHES)

    def test_lenet_deterministic(self):
        self.check("lenet", ("data=2", "data=4", "stage=2", "model=2"))

    def test_gpt_deterministic(self):
        self.check("gpt", ("data=2", "data=4", "stage=2", "model=2"))

    def test_resnet18_deterministic(self):
        self.check("resnet18", ("data=2", "data=4"))

    def test_within_rounding(self):
        self.check("perceptron", MESHES, deterministic=False)
        self.check("gpt", ("model=2",), deterministic=False)


if __name__ == "__main__":
    cli_support.main()
