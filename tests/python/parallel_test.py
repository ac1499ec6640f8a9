#!/usr/bin/env python3
"""tessera.parallel: meshes and plans, and scripts that several processes run, started by mpirun and by torchrun.
    parallel_test.py [unittest options]"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "examples/parallel")]
import numpy as np

import make_gpt
from mpi_support import MPIRUN

import tessera
from tessera import graph, parallel
from tessera.parallel import DeviceMesh, Partial, Replicate, Shard

BATCH, LENGTH, WORDS = 4, 8, 24
TORCHRUN = ROOT / ".venv-torch/bin/torchrun"

# What a script of the user's does, in one process and in many.
TRAIN = """
    import json, sys
    import numpy as np
    import tessera
    from tessera import parallel

    mesh = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] else None
    settings = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    data = np.load("text.npz")
    report = tessera.train("gpt.graph", data["x"], data["y"], "trained.graph", mesh=mesh, classes_last=True, batch=8, epochs=2,
                           threads=1, **settings)
    if parallel.rank() == 0:
        json.dump({"losses": report["losses"], "ranks": parallel.ranks(), "by": parallel.communicator()}, open("report.json", "w"))
"""
RUN = """
    import sys
    import numpy as np
    from tessera import parallel
    from tessera.parallel import Replicate, Shard

    mesh = parallel.DeviceMesh(sys.argv[1])
    places = {"tokens": [Shard(0) if name == "data" else Replicate() for name in mesh.names]}
    plan = parallel.parallelize("gpt.graph", mesh, places)
    (scores,) = plan.compile(threads=1).run([np.load("x.npy")])
    np.save(f"y{parallel.rank()}.npy", scores)
"""


class Meshes(unittest.TestCase):
    def test_forms(self):
        mesh = DeviceMesh("data=2,model=3")
        self.assertEqual(mesh, DeviceMesh({"data": 2, "model": 3}))
        self.assertEqual(mesh, DeviceMesh((2, 3), ("data", "model")))
        self.assertEqual((mesh.size(), mesh.size("model"), mesh.names, mesh.shape), (6, 3, ("data", "model"), (2, 3)))
        self.assertEqual(repr(mesh), "DeviceMesh('data=2,model=3')")
        self.assertEqual(parallel.world(), DeviceMesh("data=1"))
        self.assertEqual(parallel.world().get_coordinate(), (0,))
        for wrong in ("", "data", "data=0", "data=x", "data=2,data=3", "2=data", {"data": -1}, {"a b": 2}):
            with self.subTest(wrong), self.assertRaises(tessera.Error) as error:
                DeviceMesh(wrong)
            self.assertEqual(error.exception.id, "TSR-2110")
        with self.assertRaises(tessera.Error) as error:
            DeviceMesh((2, 2), ("data",))
        self.assertEqual(error.exception.id, "TSR-2110")
        with self.assertRaises(tessera.Error) as error:
            mesh.get_coordinate()
        self.assertEqual(error.exception.id, "TSR-6251")
        self.assertIn("is of 6 processes, and this run has 1", str(error.exception))

    def test_environment(self):
        for names in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpi"), ("PMI_RANK", "PMI_SIZE", "mpi"),
                      ("RANK", "WORLD_SIZE", "gloo")):
            script = ("from tessera import parallel as p; "
                      "print(p.rank(), p.ranks(), p.communicator(), p.DeviceMesh('a=2,b=2').get_coordinate())")
            environment = {**os.environ, names[0]: "2", names[1]: "4"}
            out = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True).stdout
            self.assertEqual(out, f"2 4 {names[2]} (1, 0)\n")
        out = subprocess.run([sys.executable, "-c", "from tessera import parallel as p; p.rank()"], capture_output=True, text=True,
                             env={**os.environ, "RANK": "4", "WORLD_SIZE": "4"})
        self.assertIn("TSR-6250", out.stderr)


class Plans(unittest.TestCase):
    def setUp(self):
        self.model = make_gpt.gpt(2, 32, 4, LENGTH, BATCH, WORDS)

    def test_plan(self):
        plan = parallel.parallelize(self.model, "data=2,model=2")
        self.assertTrue(str(plan).startswith("mesh data=2,model=2\n4 ranks; of each: weights"))
        self.assertIn("input %tokens: i64[4,8]@{data,_}\n", plan.text)
        self.assertEqual(plan.placements("tokens"), (Shard(0), Replicate()))
        partial = next(line for line in plan.text.splitlines() if "+sum(model) = matmul(" in line)
        self.assertEqual(plan.placements(partial[1:partial.index(":")]), (Shard(0), Partial("sum")))
        report = plan.report
        self.assertEqual(report["mesh"], "data=2,model=2")
        self.assertLess(report["weight_bytes"], report["weight_bytes_alone"])
        self.assertTrue(any(move["kind"] == "all_reduce" for move in report["collectives"]))
        self.assertEqual([value.name for value in plan.graph(3).inputs], ["tokens"])
        self.assertIn("all_reduce", plan.graph(0).text())

    def test_placements_decide(self):
        g = graph.Graph("mlp")
        x = g.input("x", np.float32, (8, 16))
        w = g.constant(np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32), name="w")
        g.output("y", graph.matmul(x, w))
        for places, result in (({"w": [Shard(1)]}, (Shard(1),)), ({"x": [Shard(0)], "w": [Replicate()]}, (Shard(0),)),
                               ({"x": [Shard(1)], "w": [Shard(0)]}, (Partial("sum"),))):
            with self.subTest(places):
                plan = parallel.parallelize(g, DeviceMesh("model=4"), places)
                self.assertEqual([move["kind"] for move in plan.report["collectives"]],
                                 ["all_reduce" if result == (Partial("sum"),) else "all_gather"])
                self.assertEqual(plan.placements(plan.graph(0).outputs[0].name), result)
                for name, given in places.items():
                    self.assertEqual(list(plan.placements(name)), given)

    def test_what_is_refused(self):
        def refused(places, mesh="data=2,model=2"):
            with self.assertRaises(tessera.Error) as error:
                parallel.parallelize(self.model, mesh, places)
            return f"{error.exception.id}: {error.exception.message}"

        self.assertIn("TSR-2110: 'nothing' is to be sharded", refused({"nothing": [Shard(0), Replicate()]}))
        self.assertIn("TSR-2110: 1 places of 'tokens' for 2 axes", refused({"tokens": [Shard(0)]}))
        self.assertIn("TSR-2110: dimension 7 of 'tokens'", refused({"tokens": [Shard(7), Replicate()]}))
        self.assertIn("TSR-2110: Partial(combiner='sum') for 'tokens'", refused({"tokens": [Partial(), Replicate()]}))
        self.assertIn("TSR-2110", refused({"tokens": [Shard(-1), Replicate()]}))
        self.assertIn("dimension 0 of 4 is not cut evenly in 3", refused({"tokens": [Shard(0)]}, "data=3"))
        plan = parallel.parallelize(self.model, "data=2")
        for call, id in ((lambda: plan.compile(), "TSR-6251"), (lambda: plan.placements("nothing"), "TSR-4034"),
                         (lambda: plan.graph(2), "TSR-4034")):
            with self.assertRaises(tessera.Error) as error:
                call()
            self.assertEqual(error.exception.id, id)
        x, y = np.zeros((8, LENGTH), np.int64), np.zeros((8, LENGTH), np.int64)
        for mesh, more, id in (("data=2", {}, "TSR-6251"), ("rows=1", {}, "TSR-2110"), (None, {"micro_batches": 2}, "TSR-4080"),
                               ("data=1", {"pipeline": "none"}, "TSR-4080"), ("data=1", {"zero": 4}, "TSR-4080")):
            with self.subTest(mesh=mesh, more=more), self.assertRaises(tessera.Error) as error:
                tessera.train(self.model, x, y, mesh=mesh, classes_last=True, **more)
            self.assertEqual(error.exception.id, id)


class Processes(unittest.TestCase):
    """`start` is how many processes are started."""

    def setUp(self):
        if reason := self.why_not():
            print("skipped:", reason)
            self.skipTest(reason)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        make_gpt.gpt(2, 32, 4, LENGTH, BATCH, WORDS).save(self.folder / "gpt.graph")
        tokens = np.random.default_rng(0).integers(0, WORDS, (32, LENGTH))
        np.savez(self.folder / "text.npz", x=tokens, y=(tokens * 7 + 3) % WORDS)
        np.save(self.folder / "x.npy", tokens[:BATCH])

    @staticmethod
    def why_not():
        return None if MPIRUN else "there is no mpirun: scripts/setup.sh installs it"

    @staticmethod
    def start(ranks):
        return [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", ranks, sys.executable]

    def script(self, ranks, text, *arguments):
        (self.folder / "script.py").write_text(textwrap.dedent(text))
        command = [*(self.start(ranks) if ranks > 1 else [sys.executable]), "script.py", *arguments]
        done = subprocess.run([str(part) for part in command], cwd=self.folder, capture_output=True, text=True, timeout=300,
                              env={**os.environ, "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def train(self, ranks, mesh, **settings):
        self.script(ranks, TRAIN, mesh or "", json.dumps(settings))
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual((report["ranks"], report["by"]), (ranks, self.COMMUNICATOR if ranks > 1 else "mpi"))
        self.assertTrue((self.folder / "trained.graph").exists())
        return report["losses"]

    COMMUNICATOR = "mpi"
    MESHES = [(2, "data=2", {"leaves": 4}), (2, "data=2", {"leaves": 4, "zero": 2}), (2, "stage=2", {"micro_batches": 4}),
              (4, "data=2,stage=2", {"micro_batches": 2, "zero": 1})]
    PLANS = [(2, "data=2"), (2, "model=2"), (4, "data=2,model=2")]

    def test_train(self):
        """The same script: equal bits in deterministic order of sums, and otherwise within rounding."""
        make_gpt.gpt(2, 32, 4, LENGTH, 2, WORDS).save(self.folder / "gpt.graph")  # of a part
        alone = self.train(1, None, leaves=4)
        self.assertLess(alone[-1], alone[0])
        for ranks, mesh, settings in self.MESHES:
            with self.subTest(mesh=mesh, settings=settings):
                losses = self.train(ranks, mesh, **settings)
                np.testing.assert_allclose(losses, alone, rtol=1e-5)

    def test_run_a_plan(self):
        (want,) = tessera.compile(str(self.folder / "gpt.graph"), threads=1).run([np.load(self.folder / "x.npy")])
        for ranks, mesh in self.PLANS:
            with self.subTest(mesh):
                self.script(ranks, RUN, mesh)
                for rank in range(ranks):
                    np.testing.assert_allclose(np.load(self.folder / f"y{rank}.npy"), want, rtol=1e-4, atol=1e-5)


class ByTorchrun(Processes):
    COMMUNICATOR = "gloo"

    @staticmethod
    def why_not():
        return None if TORCHRUN.exists() else "there is no torchrun: scripts/setup.sh --torch installs it"

    @staticmethod
    def start(ranks):
        return [TORCHRUN, "--standalone", "--no-python", "--nproc-per-node", ranks, sys.executable]


if __name__ == "__main__":
    unittest.main()
