#!/usr/bin/env python3
"""`tessera parallelize`: what a plan for a small GPT says, what four processes that run it compute, and what is refused.
    parallelize.py TESSERA [unittest options]"""

import json
import pathlib
import resource
import shutil
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "examples/parallel")]
import cli_support
from cli_support import CliTest
from mpi_support import MPIRUN

import numpy

from tessera import graph

import make_gpt

LAYERS, WIDTH, LENGTH, BATCH, WORDS = 2, 64, 16, 4, 96


class Parallelize(CliTest):
    def setUp(self):
        super().setUp()
        make_gpt.gpt(LAYERS, WIDTH, 4, LENGTH, BATCH, WORDS).save(self.folder / "gpt.graph")

    def plan(self, mesh, *arguments):
        return json.loads(self.tessera("parallelize", "gpt.graph", "--mesh", mesh, "--json", *arguments)[0])

    def mpirun(self, ranks, *arguments):
        command = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", ranks, cli_support.TESSERA, *arguments]
        done = subprocess.run([str(part) for part in command], cwd=self.folder, capture_output=True, text=True, timeout=300,
                              env=self.environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def assert_processes_agree(self, ranks):
        """What the plan computes of x.npy is y.npy."""
        self.mpirun(ranks, "run", "plan", "--input", "@x.npy", "--output", "@z.npy", "--threads", 1, "--no-cache")
        want = numpy.load(self.folder / "y.npy")
        self.assertLessEqual(numpy.abs(numpy.load(self.folder / "z.npy") - want).max(), 1e-5 * numpy.abs(want).max())

    def test_tensor_parallel_volume(self):
        """Columns, then rows: of each layer one sum behind attention and one behind the perceptron."""
        plan = self.plan("model=2")
        sums = [move for move in plan["collectives"] if move["kind"] in ("all_reduce", "reduce_scatter")]
        self.assertEqual(len(sums), 2 * LAYERS, plan["collectives"])
        activation = BATCH * LENGTH * WIDTH * 4
        self.assertEqual([move["bytes"] for move in sums if move["kind"] == "all_reduce"], [activation] * 2 * LAYERS)
        # All weights but words, positions and norms are cut in two.
        self.assertLess(plan["weight_bytes"], 0.65 * plan["weight_bytes_alone"])
        self.assertGreater(plan["compute_seconds"], 0)

    def test_data_parallel_sends_results_alone(self):
        plan = self.plan("data=2")
        self.assertEqual([(move["kind"], move["value"]) for move in plan["collectives"]], [("all_gather", "scores")])
        self.assertEqual(plan["collectives"][0]["bytes"], BATCH * LENGTH * WORDS * 4 // 2)

    def test_text(self):
        out, _ = self.tessera("parallelize", "gpt.graph", "--mesh", "data=2,model=2", "--values")
        self.assertIn("mesh data=2,model=2\ninput %tokens: i64[4,16]@{data,_}\n", out)
        self.assertIn("@{data,_,_}+sum(model) = matmul(", out)
        self.assertRegex(out, r"\n4 ranks; of each: weights .* \(alone .*\), memory of a run .* \(alone .*\)\n")
        self.assertRegex(out, r"\n\d+ collectives a run, \d+ bytes sent by each rank\n")
        self.assertRegex(out, r"\npredicted: .* ms = .* computing \+ .* collectives \(alone .* ms\)\n")

    def test_processes_compute_what_one_does(self):
        if not MPIRUN:
            reason = "there is no mpirun: scripts/setup.sh installs it"
            print("skipped:", reason)
            self.skipTest(reason)
        numpy.save(self.folder / "x.npy", numpy.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH)))
        self.tessera("run", "gpt.graph", "--input", "@x.npy", "--output", "@y.npy", "--threads", 1)
        for mesh, ranks in (("data=2,model=2", 4), ("model=2", 2), ("data=2", 2), ("data=2,model=2,rows=2", 8)):
            with self.subTest(mesh):
                self.tessera("parallelize", "gpt.graph", "--mesh", mesh, "-o", "plan")
                self.assert_processes_agree(ranks)
                shutil.rmtree(self.folder / "plan")

    def test_doctor_measures_links(self):
        if not MPIRUN:
            reason = "there is no mpirun: scripts/setup.sh installs it"
            print("skipped:", reason)
            self.skipTest(reason)
        for more in ([], ["--json"]):
            out = self.mpirun(2, "doctor", "--comm", *more)
            if not more:
                self.assertRegex(out, r"^2 processes, by mpi\n.*collective +bytes +ms +GB/s sent.*\nall_reduce +8 ")
                self.assertRegex(out, r"\nplans for them: tessera parallelize \.\.\. --latency [\d.]+ --bandwidth [\d.]+\n$")
                continue
            measured = json.loads(out)
            self.assertEqual((measured["ranks"], len(measured["collectives"])), (2, 12))
            self.assertGreater(measured["bandwidth_gbytes"], 0)
            self.assertGreater(measured["latency_us"], 0)
        _, err = self.tessera("doctor", "--comm", code=1)
        self.assertIn("error TSR-4080: --comm in one process alone", err)

    def test_search(self):
        """The plan of all that is cheapest: never above what is found node by node, and four processes run it."""
        out, _ = self.tessera("parallelize", "gpt.graph", "--mesh", "data=2,model=2", "--auto", "-o", "plan")
        self.assertRegex(out, r"\nthe cheapest plan: [\d.]+ ms by its model, and none is below [\d.]+ ms \(gap 0\.00 %\)\n")
        by_node, found = self.plan("data=2,model=2"), self.plan("data=2,model=2", "--auto")
        self.assertAlmostEqual(found["search"]["gap"], 0, delta=1e-9)
        predicted = lambda plan: plan["compute_seconds"] + plan["collective_seconds"]
        self.assertLess(predicted(found), 1.1 * predicted(by_node))
        eight = json.loads(self.tessera("parallelize", "gpt.graph", "--devices", 8, "--json")[0])
        self.assertIn(eight["mesh"], ("model=8", "data=2,model=4"))
        free = found["weight_bytes"] + found["arena_bytes"]
        tight = self.plan("model=4", "--max-memory", int(0.6 * (found["weight_bytes_alone"] + found["arena_bytes_alone"])))
        self.assertLess(tight["weight_bytes"], 0.6 * tight["weight_bytes_alone"])
        self.assertGreater(free, 0)
        _, err = self.tessera("parallelize", "gpt.graph", "--mesh", "model=2", "--max-memory", 20000, code=1)
        self.assertIn("error TSR-2112: ", err)
        _, err = self.tessera("parallelize", "gpt.graph", "--mesh", "model=2", "--devices", 2, code=1)
        self.assertIn("error TSR-4080: --mesh with --devices", err)
        if not MPIRUN:
            return
        numpy.save(self.folder / "x.npy", numpy.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH)))
        self.tessera("run", "gpt.graph", "--input", "@x.npy", "--output", "@y.npy", "--threads", 1)
        self.assert_processes_agree(4)

    def test_processes_of_torchrun(self):
        """There is no MPI between them: collectives go by gloo."""
        library = pathlib.Path(cli_support.TESSERA).resolve().parents[1] / "lib/libtessera_gloo.so.0"
        if not library.exists():
            print("skipped: the build has no libtessera_gloo")
            self.skipTest("no gloo")
        numpy.save(self.folder / "x.npy", numpy.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH)))
        self.tessera("run", "gpt.graph", "--input", "@x.npy", "--output", "@y.npy", "--threads", 1)
        self.tessera("parallelize", "gpt.graph", "--mesh", "model=2", "-o", "plan")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        command = [cli_support.TESSERA, "run", "plan", "--input", "@x.npy", "--output", "@z.npy", "--threads", "1", "--no-cache"]
        ranks = [subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=self.environment | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                                          "MASTER_PORT": port}) for rank in range(2)]
        for rank in ranks:
            out, err = rank.communicate(timeout=300)
            self.assertEqual(rank.returncode, 0, out + err)
        want = numpy.load(self.folder / "y.npy")
        self.assertLessEqual(numpy.abs(numpy.load(self.folder / "z.npy") - want).max(), 1e-5 * numpy.abs(want).max())

    def test_a_hundred_layers(self):
        """Planned in less than 10 s of a processor's time, with a bound on what is better."""
        make_gpt.gpt(100, 64, 4, LENGTH, 8, WORDS).save(self.folder / "deep.graph")

        def seconds():
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime

        begin = seconds()
        found = json.loads(self.tessera("parallelize", "deep.graph", "--mesh", "data=2,model=4", "--auto", "--json")[0])
        took = seconds() - begin
        print(f"a GPT of 100 layers over data=2,model=4: gap {100 * found['search']['gap']:.3f} %, {took:.1f} s")
        self.assertLess(took, 10)
        self.assertLess(found["search"]["gap"], 0.01)
        self.assertLess(found["compute_seconds"], found["compute_seconds_alone"] / 4)

    def test_halos_go_to_neighbours(self):
        """Convolutions of an image in strips: rows of the border are all that is sent before the outputs are gathered."""
        random = numpy.random.default_rng(1)
        g = graph.Graph("strips")
        x = g.input("x", numpy.float32, (1, 3, 32, 24))
        attrs = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1], "input_dilations": [1, 1], "groups": 1}
        for i, (inputs, outputs) in enumerate(((3, 8), (8, 8))):
            weight = random.standard_normal((outputs, inputs, 3, 3)).astype(numpy.float32)
            x = graph.relu(graph.conv(x, g.constant(weight, name=f"w{i}"), **attrs))
        g.output("y", x)
        g.save(self.folder / "strips.graph")
        arguments = ("--mesh", "rows=4", "--pin", "x=@{_,_,rows,_}", "--latency", 0)
        plan = json.loads(self.tessera("parallelize", "strips.graph", *arguments, "--json", "-o", "plan")[0])
        sent = [(move["kind"], move["bytes"]) for move in plan["collectives"]]
        self.assertEqual(sent, [("rank_shift", 2 * 3 * 24 * 4), ("rank_shift", 2 * 8 * 24 * 4), ("all_gather", 3 * 8 * 8 * 24 * 4)])
        if not MPIRUN:
            return
        numpy.save(self.folder / "x.npy", random.standard_normal((1, 3, 32, 24)).astype(numpy.float32))
        self.tessera("run", "strips.graph", "--input", "@x.npy", "--output", "@y.npy", "--threads", 1)
        self.assert_processes_agree(4)

    def test_constants_of_parts(self):
        """What is computed of constants alone is constant, but each rank has its own part of it."""
        if not MPIRUN:
            self.skipTest("there is no mpirun: scripts/setup.sh installs it")
        (self.folder / "constants.graph").write_text(
            "graph @main(%x: f32[2,4]) -> (%y: f32[2,4]) {\n"
            "  %a = constant {value = dense<f32[2,2] 1 2 3 4>} : f32[2,2]\n"
            "  %w = constant {value = dense<f32[2,4] 1 2 3 4 5 6 7 8>} : f32[2,4]\n"
            "  %p = matmul(%a, %w) : f32[2,4]\n  %y = add(%x, %p) : f32[2,4]\n}\n")
        numpy.save(self.folder / "x.npy", numpy.zeros((2, 4), numpy.float32))
        self.tessera("parallelize", "constants.graph", "--mesh", "m=2", "--pin", "w=@{_,m}", "-o", "plan")
        command = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", 2, cli_support.TESSERA, "run", "plan", "--input",
                   "@x.npy", "--output", "@y.npy", "--threads", 1, "--no-cache"]
        done = subprocess.run([str(part) for part in command], cwd=self.folder, capture_output=True, text=True, timeout=300,
                              env=self.environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        numpy.testing.assert_array_equal(numpy.load(self.folder / "y.npy"), [[11, 14, 17, 20], [23, 30, 37, 44]])

    def test_words_are_divided(self):
        """Embeddings are looked up in parts of the table, and the loss is computed of parts of the scores."""
        random = numpy.random.default_rng(2)
        g = graph.Graph("words")
        tokens, targets = g.input("tokens", numpy.int64, (4, 8)), g.input("targets", numpy.int64, (32,))
        words = g.constant(random.standard_normal((24, 16)).astype(numpy.float32), name="words")
        head = g.constant(random.standard_normal((16, 24)).astype(numpy.float32), name="head")
        x = graph.reshape(graph.gather(words, tokens, axis=0), shape=[32, 16])
        loss = graph.softmax_cross_entropy(graph.matmul(x, head), targets, reduction="mean")
        g.output("loss", loss[0] if isinstance(loss, (tuple, list)) else loss)
        g.save(self.folder / "words.graph")
        pins = ("--pin", "words=@{model,_}", "--pin", "head=@{_,model}")
        plan = json.loads(self.tessera("parallelize", "words.graph", "--mesh", "model=2", *pins, "--json")[0])
        # What is found; of each row of scores the largest and the sum; of the targets the mean.
        self.assertEqual([move["kind"] for move in plan["collectives"]], ["all_reduce"] * 4, plan["collectives"])
        self.assertEqual([move["bytes"] for move in plan["collectives"]], [32 * 16 * 4, 32 * 4, 32 * 4, 4])
        numpy.save(self.folder / "i.npy", random.integers(-24, 24, (4, 8)))
        numpy.save(self.folder / "t.npy", random.integers(0, 24, 32))
        inputs = ("--input", "tokens=@i.npy", "--input", "targets=@t.npy", "--threads", 1)
        self.tessera("run", "words.graph", *inputs, "--output", "@want.npy")
        if not MPIRUN:
            self.skipTest("there is no mpirun: scripts/setup.sh installs it")
        for ranks in (2, 4):
            self.tessera("parallelize", "words.graph", "--mesh", f"model={ranks}", *pins, "-o", "plan")
            command = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", ranks, cli_support.TESSERA, "run", "plan",
                       *inputs, "--output", "@got.npy", "--no-cache"]
            done = subprocess.run([str(part) for part in command], cwd=self.folder, capture_output=True, text=True,
                                  timeout=300, env=self.environment)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            numpy.testing.assert_allclose(numpy.load(self.folder / "got.npy"), numpy.load(self.folder / "want.npy"), 1e-6)

    def test_what_is_refused(self):
        def refused(id, *arguments):
            _, err = self.tessera("parallelize", "gpt.graph", *arguments, code=1)
            self.assertIn(f"error {id}: ", err)
            return err

        self.assertIn("--mesh data: 'data' is not NAME=EXTENT", refused("TSR-2110", "--mesh", "data"))
        self.assertIn("'nothing' is to be sharded, and is no input or constant",
                      refused("TSR-2110", "--mesh", "a=2", "--pin", "nothing=@{a}"))
        self.assertIn("--pin tokens=@{b,_}: the mesh a=2 has no axis 'b'",
                      refused("TSR-2110", "--mesh", "a=2", "--pin", "tokens=@{b,_}"))
        self.assertIn("it is not NAME=@{...}", refused("TSR-2110", "--mesh", "a=2", "--pin", "tokens"))
        (self.folder / "state.graph").write_text(
            'graph @main(%x: f32[2], %s: f32[2] state("s")) -> (%y: f32[2], %t: f32[2] state("s")) {\n'
            "  %y = neg(%x) : f32[2]\n  %t = add(%x, %s) : f32[2]\n}\n")
        _, err = self.tessera("parallelize", "state.graph", "--mesh", "a=2", code=1)
        self.assertIn("error TSR-2111: the model has states", err)
        for mesh in ("data=4", "data=2"):  # the second one takes the place of the first
            self.tessera("parallelize", "gpt.graph", "--mesh", mesh, "-o", "plan")
        _, err = self.tessera("run", "plan", code=1)
        self.assertIn("error TSR-6251: 'plan' is a plan for 2 processes, and this run has 1", err)


if __name__ == "__main__":
    cli_support.main()
