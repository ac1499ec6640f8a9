#!/usr/bin/env python3
"""Modules that an earlier version compiled: this one loads each and gives the outputs that were recorded, and refuses by
its number what is older than that. scripts/make-golden-modules makes them."""
import json
import os
import platform
import subprocess
import sys
import unittest

import golden_modules as golden
import tessera


@unittest.skipUnless(platform.machine() == "x86_64", "the modules are for x86-64")
class GoldenModulesTest(unittest.TestCase):
    def check(self, name):
        module = tessera.load(golden.FOLDER / f"{name}.so", threads=1)
        record = json.loads((golden.FOLDER / f"{name}.json").read_text())
        self.assertEqual(len(record), golden.RUNS)
        for number, run in enumerate(record):
            got = module.run([golden.from_json(value) for value in run["inputs"]])
            self.assertEqual(golden.difference(list(got), golden.from_json(run["outputs"])), "", f"{name}, run {number}")

    def test_every_kind_is_there(self):
        self.assertEqual({path.stem for path in golden.FOLDER.glob("*.so")} - {"interface5", "bundle"}, set(golden.cases()))
        for path in golden.FOLDER.glob("*.so"):
            self.assertLess(path.stat().st_size, 300_000 if path.stem == "bundle" else 200_000, f"{path} is larger than a test needs")

    def test_outputs(self):
        for name in golden.cases():
            with self.subTest(name):
                self.check(name)

    def test_a_bundle(self):
        """Its second module is a training step, whose state the first one reads."""
        path = golden.FOLDER / "bundle.so"
        step, model = tessera.load(path, entry="step", threads=1), tessera.load(path, threads=1)
        self.assertEqual(model.entries, ("infer", "step"))
        model.share_states(step)
        for run in json.loads((golden.FOLDER / "bundle.json").read_text()):
            inputs = [golden.from_json(value) for value in run["inputs"]]
            got = [step.run(inputs)[0], model.run([inputs[0]])[0]]
            self.assertEqual(golden.difference(got, golden.from_json(run["outputs"])), "")

    def test_each_variant(self):
        """Of those that this machine runs, one after another, in processes of their own."""
        script = ("import sys, golden_modules_test as t; c = t.GoldenModulesTest(); "
                  "c.check('variants')")
        ran = []
        for variant in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
            done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "TESSERA_VARIANT": variant},
                                  capture_output=True, text=True, cwd=os.path.dirname(os.path.abspath(__file__)))
            if done.returncode != 0:
                self.assertIn("TSR-7014", done.stderr, variant)
                self.assertNotEqual(variant, "x86-64-v2")
            else:
                ran.append(variant)
        self.assertIn("x86-64-v2", ran)
        done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "TESSERA_VARIANT": "x86-64-v5"},
                              capture_output=True, text=True, cwd=os.path.dirname(os.path.abspath(__file__)))
        self.assertIn("TSR-7027", done.stderr)
        self.assertIn("x86-64-v4, x86-64-v3, x86-64-v2", done.stderr)

    def test_an_old_interface_is_refused_by_its_number(self):
        """A module that version 0.1.0 wrote when its interface was number 5."""
        with self.assertRaises(tessera.Error) as caught:
            tessera.load(golden.FOLDER / "interface5.so")
        self.assertIn("TSR-7004", str(caught.exception))
        self.assertIn("has module format 1; this runtime", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
