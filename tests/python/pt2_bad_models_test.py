#!/usr/bin/env python3
"""PyTorch programs (.pt2) that are damaged, hostile or more than is read: each is refused with an error that says where, at
once and without a crash. And a few that are right. PyTorch is not needed.

    pt2_bad_models_test.py TESSERA"""

import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

import numpy as np

from pt2_support import archive, dense_layer, meta, tensor

SECONDS = 10.0  # of a loaded machine; what a hostile file could cost is far more


def changed(change):
    program = dense_layer()
    change(program)
    return program.bytes()


def with_entries(change):
    entries = dense_layer().entries()
    change(entries)
    return archive(entries)


def with_document(change):
    program = dense_layer()
    document = program.document()
    change(document)
    entries = program.entries()
    entries["models/model.json"] = json.dumps(document).encode()
    return archive(entries)


def renamed(name):
    return lambda: with_entries(lambda e: e.update({name: b"#!/bin/sh"}))


def bomb():
    entries = dense_layer().entries()
    entries["models/model.json"] = b" " * (1 << 27)
    return archive(entries, compression=zipfile.ZIP_DEFLATED)


def with_header(offset, format, *values):
    """A field of the last entry's line in the list of contents."""
    data = bytearray(dense_layer().bytes())
    at = data.rfind(b"PK\1\2")
    struct.pack_into(format, data, at + offset, *values)
    return bytes(data)


def flipped_weight():
    data = bytearray(dense_layer().bytes())
    weights = dense_layer().files["data/weights/weight_0"]
    data[data.find(weights)] ^= 1
    return bytes(data)


def twice():
    stream = io.BytesIO(dense_layer().bytes())
    with zipfile.ZipFile(stream, "a") as file:
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file.writestr("model/archive_format", b"pt2")
    return stream.getvalue()


def set_weight(**fields):
    return lambda: changed(lambda p: p.config["the.w"]["tensor_meta"].update(fields))


def unknown_operators(program):
    program.node("nonzero.default", "nonzero", "int64", [4, 2], self=tensor("relu"))
    program.node("fft_fft.default", "fft", "float32", [4, 2], self=tensor("nonzero"))
    program.node("add.Tensor", "add", "float32", [4, 2], self=tensor("fft"), other=tensor("nonzero"))
    program.output("add")


def wrong_declaration(program):
    program.types["relu"] = meta("float32", [5, 4])


def reads_nothing(program):
    program.nodes[1]["inputs"][0]["arg"] = tensor("nobody")


def writes_twice(program):
    program.node("relu.default", "relu", "float32", [2, 4], self=tensor("addmm"))


# What is wrong, the file, the error's id, and a part of its message.
BAD = [
    ("cut off", lambda: dense_layer().bytes()[:-40], "TSR-1111", "no list of contents"),
    ("only the magic", lambda: b"PK\3\4" + bytes(40), "TSR-1111", "no list of contents"),
    ("a flipped bit of a weight", flipped_weight, "TSR-1111", "checksum of the entry 'data/weights/weight_0'"),
    ("an entry of two sizes", lambda: with_header(20, "<I", 1 << 30), "TSR-1111", "has two sizes"),
    ("an entry beyond the file", lambda: with_header(20, "<II", 1 << 30, 1 << 30), "TSR-1111", ""),
    ("an unknown compression", lambda: with_header(10, "<H", 99), "TSR-1112", "method 99"),
    ("encryption", lambda: with_header(8, "<H", 1), "TSR-1112", "encrypted"),
    ("a name that leads up", renamed("../../etc/cron.d/job"), "TSR-1112", "leads out"),
    ("a zip bomb", bomb, "TSR-1112", "would become 134217728"),
    ("an entry twice", twice, "TSR-1112", "there twice"),
    ("no program", lambda: with_entries(lambda e: e.pop("models/model.json")), "TSR-1113", "no program"),
    ("no weight", lambda: with_entries(lambda e: e.pop("data/weights/weight_1")), "TSR-1113", "data/weights/weight_1"),
    ("no JSON", lambda: with_entries(lambda e: e.update({"models/model.json": b"{]"})), "TSR-1114", "is no JSON"),
    ("deep JSON", lambda: with_entries(lambda e: e.update({"models/model.json": b"[" * 100000})), "TSR-1114", "is no JSON"),
    ("a list for an object", lambda: with_document(lambda d: d.update(graph_module=[])), "TSR-1114", "graph_module"),
    ("a node without a target", lambda: with_document(lambda d: d["graph_module"]["graph"]["nodes"][1].pop("target")),
     "TSR-1114", "graph_module.graph.nodes[1]"),
    ("a negative size", lambda: changed(lambda p: p.types["x"]["sizes"].__setitem__(0, {"as_int": -2})), "TSR-1114", "sizes[0]"),
    ("an output of nothing", lambda: changed(lambda p: p.outputs.append({"user_output": {"arg": tensor("nobody")}})),
     "TSR-1114", "'nobody'"),
    ("a value twice", lambda: changed(writes_twice), "TSR-1114", "made twice"),
    ("another schema", lambda: changed(lambda p: p.schema.update(major=9)), "TSR-1115", "schema 9"),
    ("a pickle for weights", lambda: with_entries(lambda e: e.update({"data/weights/model.pt": b"PK"})), "TSR-1115", "pickled"),
    ("a pickled weight", lambda: changed(lambda p: p.config["the.w"].update(use_pickle=True)), "TSR-1115", "'the.w' is a pickled"),
    ("two programs", lambda: with_entries(lambda e: e.update({"models/other.json": b"{}"})), "TSR-1115", "several programs"),
    ("a changed input", lambda: with_document(lambda d: d["graph_module"]["signature"]["output_specs"].append(
        {"user_input_mutation": {"arg": {"name": "relu"}, "user_input_name": "x"}})), "TSR-1115", "user_input_mutation"),
    ("a weight of more elements", set_weight(sizes=[{"as_int": 3}, {"as_int": 5}], strides=[{"as_int": 5}, {"as_int": 1}]),
     "TSR-1116", "goes beyond its 48 bytes"),
    ("a weight with an offset", set_weight(storage_offset={"as_int": 1}), "TSR-1116", "goes beyond"),
    ("a weight that fills the memory", set_weight(sizes=[{"as_int": 1 << 38}], strides=[{"as_int": 0}]), "TSR-1116", "in 48 bytes"),
    ("a weight with strides that overflow", set_weight(strides=[{"as_int": 1 << 62}, {"as_int": 1 << 62}]), "TSR-1116", "goes beyond"),
    ("an argument that is missing", lambda: changed(lambda p: p.nodes[1]["inputs"].clear()), "TSR-1117", "no argument 'self'"),
    ("an argument of another kind", lambda: changed(lambda p: p.nodes[1]["inputs"][0].update(arg={"as_int": 3})), "TSR-1117",
     "of another kind"),
    ("a wrong declaration", lambda: changed(wrong_declaration), "TSR-1117", "is declared as f32[5,4] and would be f32[2,4]"),
    ("a read of nothing", lambda: changed(reads_nothing), "TSR-1117", "'nobody'"),
    ("operators that are not read", lambda: changed(unknown_operators), "TSR-1040", "aten.fft_fft.default"),
]


def run(tessera, data, folder, *arguments):
    path = pathlib.Path(folder) / "bad.pt2"
    path.write_bytes(data)
    begin = time.monotonic()
    done = subprocess.run([tessera, "compile", str(path), "-o", str(path.with_suffix(".so")), *arguments], capture_output=True,
                          text=True, timeout=60)
    return done, time.monotonic() - begin


def check_good(tessera, folder):
    """The layer computes what numpy computes: stored and deflated, of a fixed and of an open size."""
    x = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    fixed, open_sizes = dense_layer(), dense_layer("n")
    for program, data in [(fixed, fixed.bytes()), (fixed, archive(fixed.entries(), compression=zipfile.ZIP_DEFLATED)),
                          (fixed, archive(fixed.entries(), folder="")), (open_sizes, open_sizes.bytes())]:
        done, _ = run(tessera, data, folder)
        assert done.returncode == 0, done.stderr
        np.save(f"{folder}/x.npy", x)
        module = f"{folder}/bad.so"
        done = subprocess.run([tessera, "run", module, "--input", f"@{folder}/x.npy", "--output-dir", folder], capture_output=True,
            text=True)
        assert done.returncode == 0, done.stderr
        w = np.frombuffer(program.files["data/weights/weight_0"], np.float32).reshape(3, 4)
        b = np.frombuffer(program.files["data/weights/weight_1"], np.float32)
        np.testing.assert_allclose(np.load(f"{folder}/relu.npy"), np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-6)
    done, _ = run(tessera, open_sizes.bytes(), folder, "--dim", "n=17")
    assert done.returncode == 1 and "TSR-1022" in done.stderr and "1 to 16" in done.stderr, done.stderr
    done, _ = run(tessera, open_sizes.bytes(), folder, "--dim", "x[0]=5")
    assert done.returncode == 0, done.stderr


def main():
    tessera, failures = sys.argv[1], []
    with tempfile.TemporaryDirectory() as folder:
        check_good(tessera, folder)
        for what, make, id, part in BAD:
            done, seconds = run(tessera, make(), folder)
            if done.returncode != 1 or id not in done.stderr or part not in done.stderr:
                failures.append(f"{what}: exit code {done.returncode}, expected {id} with '{part}':\n{done.stderr}")
            elif seconds > SECONDS:
                failures.append(f"{what}: refused after {seconds:.1f} s")
    print("\n".join(failures))
    print(f"{len(BAD)} bad programs, {len(failures)} of them not refused as they should be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
