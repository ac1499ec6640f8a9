#!/usr/bin/env python3
"""The cost model that ships is the one that `tessera db train` makes of the committed trials, and it orders trials of kernels
that are not among them.

    cost_model_cli.py TESSERA"""

import json
import lzma
import pathlib
import tempfile

from tune_support import ROOT, expect, finish, run


with tempfile.TemporaryDirectory() as name:
    home = pathlib.Path(name)
    for part in ("train", "test"):
        data = (ROOT / f"bench/results/cost_model.{part}.db.xz").read_bytes()
        (home / f"{part}.db").write_bytes(lzma.decompress(data))
    model = home / "model.json"
    answer = json.loads(run("db", "train", home / "train.db", "--test", home / "test.db", "-o", model, "--json").stdout)
    ranks = {kernel["name"]: kernel["spearman"] for kernel in answer["test"]}
    mean = sum(ranks.values()) / len(ranks)
    print(f"rank correlation on {len(ranks)} kernels that it has not seen: {mean:.3f}; {answer['prediction_us']:.0f} us each")
    expect(len(ranks) == 10 and mean >= 0.8 and min(ranks.values()) > 0.6, f"rank correlations {ranks}")
    expect(answer["skipped"] < 100 and answer["trials"] > 2000, f"trials that were used: {answer}")

    # The same trees, but for the last digits of thresholds and leaves.
    def trees(path):
        return json.loads(path.read_text())["learner"]["gradient_booster"]["model"]["trees"]

    made, shipped = trees(model), trees(ROOT / "src/tune/pretrained/cost_model.json")
    expect(len(made) == len(shipped), f"{len(made)} trees, {len(shipped)} of the shipped model")
    same = sum(a["split_indices"] == b["split_indices"] for a, b in zip(made, shipped, strict=False))
    expect(same > 0.5 * len(shipped), f"{same} of {len(shipped)} trees are the shipped model's: bench/cost_model.py train")

    # Records that were trained on are no test, and nothing to learn from is said.
    again = json.loads(run("db", "train", home / "train.db", "--test", home / "train.db", "-o", model, "--json").stdout)
    expect(again["test"] == [], "kernels that it was trained on are no test")
    run("db", "prune", home / "test.db", "--keep", 0)
    expect("TSR-6411" in run("db", "train", home / "test.db", "-o", model, code=1).stderr, "no trials")
    expect("TSR-6401" in run("db", "train", home / "none.db", "-o", model, code=1).stderr, "no file")
    expect("TSR-6405" in run("db", "train", home / "train.db", "-o", home / "none/m.json", code=1).stderr, "no folder")
finish()
