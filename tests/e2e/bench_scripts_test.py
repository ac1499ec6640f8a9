#!/usr/bin/env python3
"""The measuring scripts in bench/ on a small model: that they run, what they write, and that they go on where they stopped.

    bench_scripts_test.py TESSERA RUNTIME [unittest options]"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))
import cli_support
from cli_support import CliTest, conv_model

import numpy

RUNTIME = None


class Scripts(CliTest):
    def setUp(self):
        super().setUp()
        for package in ("onnxruntime", "matplotlib"):
            if importlib.util.find_spec(package) is None:
                raise unittest.SkipTest(f"no {package} in this Python")
        self.save(conv_model(), "bench_test.onnx")
        inputs = numpy.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(numpy.float32)
        numpy.savez(self.folder / "bench_test.inputs.npz", x=inputs)
        self.environment |= {"TESSERA": cli_support.TESSERA, "TESSERA_RUNTIME": RUNTIME, "TESSERA_PYTHON": sys.executable}

    def script(self, name, *arguments, code=0):
        done = subprocess.run([sys.executable, ROOT / "bench" / name, *map(str, arguments)], cwd=self.folder, text=True,
                              capture_output=True, timeout=120, env=self.environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def results(self, name):
        for suffix in (".md", ".png"):
            self.assertGreater((self.folder / (name + suffix)).stat().st_size, 100)
        return json.loads((self.folder / f"{name}.json").read_text())

    def test_gpu(self):
        flags = (cli_support.TESSERA, "--target", "opencl", "--out", self.folder / "gpu", "--steps",
                 "device,networks", "--models", "dcgan_gen")
        done = subprocess.run([sys.executable, ROOT / "bench/gpu.py", *flags], cwd=self.folder, text=True, capture_output=True,
                              timeout=300, env=self.environment)
        if "TSR-7019" in done.stdout:
            self.skipTest("OpenCL has no device here")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = json.loads((self.folder / "gpu/gpu.json").read_text())
        self.assertEqual(list(rows), ["device", "network dcgan_gen"])
        self.assertLess(rows["network dcgan_gen"]["error"], 1e-4)
        self.assertGreater(rows["network dcgan_gen"]["kernels_us"], 0)
        self.assertRegex((self.folder / "gpu/gpu.md").read_text(), r"(?m)^\| network dcgan_gen \| error ")
        # What is there is not done again.
        text, _ = self.script("gpu.py", *flags)
        self.assertEqual(text, f"2 results in {self.folder / 'gpu/gpu.json'}\n")

    def test_weight_only(self):
        text, _ = self.script("weight_only.py", cli_support.TESSERA, "--only", "gpt2 proj", "--group", 32, "--rounds", 1,
                              "--json", self.folder / "rows.json")
        self.assertRegex(text, r"^gpt2 proj +768 x 768 +group +32: +[\d.]+ ms +[\d.]+ GB/s, +\d+ % of [\d.]+ +ONNX Runtime +[\d.]+ ms\n$")
        (row,) = json.loads((self.folder / "rows.json").read_text())
        self.assertEqual((row["shape"], row["bits"], row["group"]), ("gpt2 proj", 4, 32))

    def test_models(self):
        flags = ("--folder", self.folder, "--threads", 1, "--rounds", 2, "--out", self.folder / "models")
        text, _ = self.script("models.py", *flags, "--peers", "onnxruntime")
        self.assertRegex(text, r"^bench_test +1  tessera [\d.]+  onnxruntime [\d.]+ \(x[\d.]+\)\n$")
        first = self.results("models")
        self.assertEqual([(row["model"], row["precision"], row["threads"]) for row in first["rows"]],
                         [("bench_test", "f32", 1)])
        self.assertRegex((self.folder / "models.md").read_text(),
                         r"(?m)^\| bench_test \| [\d.]+ \| [\d.]+ \| [\d.]+ \(onnxruntime\) \|\n\| geometric mean \|  \|  \| [\d.]+ \|$")
        # What is there is not measured again, unless it is asked for; what is not there is added.
        text, _ = self.script("models.py", *flags, "--peers", "onnxruntime")
        self.assertEqual((text, self.results("models")), ("", first))
        (self.folder / "openvino.py").write_text("raise RuntimeError('no such engine today')\n")
        self.environment["PYTHONPATH"] = str(self.folder)
        self.script("models.py", *flags, "--peers", "onnxruntime,openvino")
        runs = self.results("models")["rows"][0]["runs"]
        self.assertEqual([run["peers"][0]["peer"] for run in runs], ["onnxruntime", "openvino"])
        self.assertIn("- bench_test: openvino: RuntimeError: no such engine today", (self.folder / "models.md").read_text())
        self.script("models.py", *flags, "--peers", "onnxruntime", "--again")
        runs = self.results("models")["rows"][0]["runs"]
        self.assertEqual(sorted(run["peers"][0]["peer"] for run in runs), ["onnxruntime", "openvino"])
        _, errors = self.script("models.py", "nothing", *flags, code=1)
        self.assertIn("no network of the suite", errors)
        # Results of two machines are not mixed.
        (self.folder / "models.json").write_text(json.dumps(first | {"cpu": "another"}))
        _, errors = self.script("models.py", *flags, "--peers", "onnxruntime", code=1)
        self.assertIn("another machine", errors)

    def test_costs(self):
        flags = ("--folder", self.folder, "--repeat", 1, "--out", self.folder / "costs")
        self.script("costs.py", *flags, "--peers", "onnxruntime")
        row = self.results("costs")["rows"][0]
        for told in (row["tessera"], row["peers"]["onnxruntime"]):
            for key in ("load_ms", "first_ms", "peak_bytes"):
                self.assertGreater(told[key], 0)
        self.assertGreater(row["peers"]["onnxruntime"]["library_bytes"], 1 << 20)
        self.assertEqual(self.script("costs.py", *flags, "--peers", "onnxruntime")[0].count("\n"), 1)
        self.assertEqual(self.results("costs")["rows"], [row])

    def test_fusion(self):
        self.script("fusion.py", "--only", "batch 1, hidden 128", "--rounds", 1, "--seconds", 0.001, "--out",
                    self.folder / "fusion")
        blocks = self.results("fusion")["blocks"]
        self.assertEqual([block["name"] for block in blocks],
                         ["RNN cell, batch 1, hidden 128", "LSTM cell, batch 1, hidden 128"])
        for block in blocks:
            kernels = [variant["kernels"] for variant in block["variants"].values()]
            self.assertLess(kernels[0], kernels[1])
            self.assertLessEqual(block["difference"], 1e-4)
        _, errors = self.script("fusion.py", "--only", "nothing", code=1)
        self.assertIn("no block has such a name", errors)


if __name__ == "__main__":
    RUNTIME = str(pathlib.Path(sys.argv.pop(2)).resolve())
    cli_support.main()
