#!/usr/bin/env python3
"""Three recipes for a smaller network of the digits, with figures: four bits, half the channels, a teacher.

    smaller.py FOLDER --data digits.npz [--tessera build/bin/tessera] [--recipes qat,prune,distill]

Each is `tessera train` with an option or two; what it prints is what the options gave, on the same test digits.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np

import make_models

COMMON = ["--scale", 1 / 16, "--threads", 1, "--schedule", "cosine"]


class Recipes:
    def __init__(self, tessera, data, folder):
        self.tessera, self.data, self.folder = tessera, data, folder

    def run(self, *words):
        done = subprocess.run([self.tessera, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return json.loads(done.stdout)

    def right(self, model, *options):
        """How many test digits are right of how many, after training."""
        report = self.run("train", model, "--data", self.data, "--json", *COMMON, *options)
        return report["test_right"], report["test_total"]

    def milliseconds(self, model):
        """Of 32 pictures on one thread: the least of three measurements."""
        times = [self.run("bench", model, "--dim", "n=32", "--threads", 1, "--duration", 1, "--json") for _ in range(3)]
        return min(one["min_ms"] for one in times)

    def qat(self):
        """Four bits: weights rounded behind training (the learning rate moves nothing), and trained so."""
        make_models.lenet(widths=(4, 8, 16)).save(self.folder / "lenet.graph")
        whole, all = self.right("lenet.graph", "--epochs", 30, "--lr", 0.01, "-o", "trained.graph")
        print(f"f32: {whole} of {all} right")
        for bits in (4, 3, 2):
            rounded, _ = self.right("trained.graph", "--epochs", 2, "--lr", 1e-12, "--qat", "--qat-bits", bits)
            learnt, _ = self.right("trained.graph", "--epochs", 30, "--lr", 0.003, "--qat", "--qat-bits", bits, "-o", f"q{bits}.onnx")
            print(f"{bits} bits: {rounded} rounded afterwards, {learnt} trained so")

    def prune(self):
        """Half the channels of each layer, cut out of the graph, so that the clock notices."""
        make_models.lenet(widths=(32, 64, 128)).save(self.folder / "wide.graph")
        whole, all = self.right("wide.graph", "--epochs", 25, "--lr", 0.002, "-o", "whole.graph")
        half, _ = self.right("whole.graph", "--epochs", 25, "--lr", 0.001, "--prune", "channels:0.5", "-o", "half.graph")
        before, after = self.milliseconds("whole.graph"), self.milliseconds("half.graph")
        print(f"whole: {whole} of {all} right, {before:.3f} ms; half the channels: {half} right, {after:.3f} ms, {before / after:.2f}x")

    def distill(self):
        """A small network that sees 256 digits, trained alone and beside a larger one that saw all of them."""
        make_models.lenet(widths=(32, 64, 128)).save(self.folder / "wide.graph")
        taught, all = self.right("wide.graph", "--epochs", 25, "--lr", 0.002, "-o", "teacher.graph")
        print(f"teacher: {taught} of {all} right")
        with np.load(self.data) as data:
            few = dict(data)
        few["train_index"] = few["train_index"][:256]
        np.savez(self.folder / "few.npz", **few)
        self.data = "few.npz"
        for seed in (1, 2, 3):
            make_models.lenet(seed, (3, 6, 12)).save(self.folder / "student.graph")
            options = ["--epochs", 200, "--lr", 0.005, "--seed", seed]
            alone, _ = self.right("student.graph", *options)
            options += ["--distill", "teacher.graph"]
            with_teacher, _ = self.right("student.graph", *options)
            features, _ = self.right("student.graph", *options, "--distill-features", "conv2.pool=conv2.pool")
            print(f"student {seed}: {alone} alone, {with_teacher} with the teacher, {features} with its features, too")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--tessera", default="tessera")
    parser.add_argument("--recipes", default="qat,prune,distill")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    recipes = Recipes(args.tessera, args.data.resolve(), args.folder)
    for name in args.recipes.split(","):
        getattr(recipes, name)()


if __name__ == "__main__":
    main()
