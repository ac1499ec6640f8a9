#!/usr/bin/env python3
"""bench/loadgen.py: MLPerf's LoadGen runs a model in both scenarios, and the answers that it logs are those of the model."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import tessera
from cli_support import conv_model

try:
    import mlperf_loadgen  # noqa: F401
except ImportError:
    print("skipped: no mlperf_loadgen; scripts/setup.sh installs it (mlcommons-loadgen)")
    sys.exit(77)

HARNESS = pathlib.Path(__file__).resolve().parents[2] / "bench/loadgen.py"


class LoadGen(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-loadgen-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "conv.onnx"
        self.path.write_bytes(conv_model().SerializeToString())

    def harness(self, *arguments, code=0):
        command = [sys.executable, HARNESS, self.path, "--out", self.folder / "logs", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def test_scenarios(self):
        for scenario, figure in (("SingleStream", "90.0th percentile latency (ns)"), ("Offline", "Samples per second")):
            told = json.loads(self.harness("--scenario", scenario, "--seconds", 0.2, "--queries", 100, "--sessions", 2))
            self.assertEqual((told["Scenario"], told["Result is"]), (scenario, "VALID"))
            self.assertGreater(told[figure], 0)
            self.assertTrue((self.folder / "logs/mlperf_log_detail.txt").exists())

    def test_answers(self):
        model = tessera.compile(self.path, threads=1)
        random = np.random.default_rng(7)
        inputs = {info.name: random.standard_normal((5, *info.shape)).astype(info.dtype) for info in model.inputs}
        np.savez(self.folder / "inputs.npz", **inputs)
        for scenario in ("SingleStream", "Offline"):
            self.harness("--scenario", scenario, "--mode", "AccuracyOnly", "--inputs", self.folder / "inputs.npz")
            log = json.loads((self.folder / "logs/mlperf_log_accuracy.json").read_text())
            self.assertEqual(sorted(entry["qsl_idx"] for entry in log), list(range(5)))
            for entry in log:
                want = model.run({name: values[entry["qsl_idx"]] for name, values in inputs.items()})
                self.assertEqual(bytes.fromhex(entry["data"]), b"".join(array.tobytes() for array in want))

    def test_a_run_that_is_too_short(self):
        # LoadGen's estimate of a tail takes 64 queries.
        self.assertIn('"INVALID"', self.harness("--seconds", 0.001, "--queries", 10, code=3))


if __name__ == "__main__":
    unittest.main()
