#!/usr/bin/env python3
"""Networks of Caffe that are damaged, hostile or more than is read: each is refused with an error that says where, at once and
without a crash.

    caffe_bad_models_test.py TESSERA"""

import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from caffe_support import Network

SECONDS = 10.0  # of a loaded machine; what a hostile file could cost is far more
INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }\n'
CONV = 'layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 4 kernel_size: 3 %s } }\n'


def layer(kind, parameters="", bottom="data", top="y"):
    return INPUT + f'layer {{ name: "l" type: "{kind}" bottom: "{bottom}" top: "{top}" {parameters} }}\n'


REFUSED = {
    "cut": (INPUT[:60], "TSR-1131", "bad.prototxt"),
    "no layers": ('name: "n"\n', "TSR-1131", "it has no layers"),
    "no input": ('layer { name: "d" type: "Data" top: "data" }\n', "TSR-1131", "no input"),
    "input without sizes": ('input: "data"\nlayer { name: "r" type: "ReLU" bottom: "data" top: "y" }', "TSR-1131", "'data' has no sizes"),
    "negative size": (INPUT.replace("dim: 8", "dim: -8"), "TSR-1131", "an extent of -8"),
    "huge size": (INPUT.replace("dim: 8", "dim: 9000000000000000000") + "", "TSR-1023", "data"),
    "two inputs": (INPUT + INPUT, "TSR-1131", "two inputs 'data'"),
    "deep": ("layer { " + "a { " * 100000, "TSR-1131", "more than 32 deep"),
    "word": (INPUT.replace("dim: 8", "dim: wide"), "TSR-1131", "1:"),
    "unknown layers": (layer("Data") + layer("Python", top="z")[len(INPUT) :], "TSR-1", "Python"),
    "missing bottom": (layer("ReLU", bottom="x"), "TSR-1133", "reads 'x', which no layer before it makes"),
    "made twice": (layer("ReLU") + layer("ReLU")[len(INPUT) :], "TSR-1133", "makes 'y', which is there already"),
    "no weights": (INPUT + CONV % "", "TSR-1133", "there is no .caffemodel"),
    "groups": (INPUT + CONV % "group: 2", "TSR-1133", "2 groups of 3 channels"),
    "kernel 0": (INPUT + CONV.replace("kernel_size: 3", "kernel_size: 0") % "", "TSR-1133", "kernel_size = 0"),
    "pooling": (layer("Pooling", "pooling_param { kernel_size: 2 pad: 2 }"), "TSR-1133", "padded by 2"),
    "stochastic": (layer("Pooling", "pooling_param { kernel_size: 2 pool: STOCHASTIC }"), "TSR-1", "STOCHASTIC"),
    "slices": (layer("Slice", "slice_param { slice_point: 2 }"), "TSR-1133", "1 places for 1 tops"),
    "reshape": (layer("Reshape", "reshape_param { shape { dim: 5 dim: -1 } }"), "TSR-1133", "as many elements"),
    "reshape overflow": (layer("Reshape", "reshape_param { shape { dim: 4000000000 dim: 4000000000 dim: 4 } }"), "TSR-1133", "elements"),
    "permute": (layer("Permute", "permute_param { order: 1 order: 1 }"), "TSR-1133", "order [1, 1]"),
    "tiles": (layer("Tile", "tile_param { tiles: 2000000000 }").replace("dim: 8", "dim: 900"), "TSR-1133", "at most 2^40 elements"),
    "window": (layer("LRN", "lrn_param { local_size: 4 }"), "TSR-1133", "local_size = 4"),
    "axis": (layer("Softmax", "softmax_param { axis: 7 }"), "TSR-1133", "axis"),
    "boxes": (
        INPUT.replace("dim: 8", "dim: 3000")
        + 'layer { name: "p" type: "PriorBox" bottom: "data" bottom: "data" top: "p" prior_box_param { min_size: 3 } }',
        "TSR-1133",
        "9000000 boxes",
    ),
}


def refusal(tessera, path):
    begin = time.time()
    done = subprocess.run([tessera, "compile", path.name, "-o", "m.so"], cwd=path.parent, capture_output=True, text=True, timeout=60)
    return done, time.time() - begin


def main():
    tessera = pathlib.Path(sys.argv[1]).resolve()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path = folder / "bad.prototxt"

        def check(name, number, words):
            nonlocal failed
            done, seconds = refusal(tessera, path)
            fine = done.returncode == 1 and number in done.stderr and words in done.stderr and seconds < SECONDS
            if not fine:
                failed += 1
                print(f"FAILED {name}: exit {done.returncode} after {seconds:.1f} s, wanted {number} '{words}':\n{done.stderr[:800]}")

        for name, (text, number, words) in REFUSED.items():
            path.write_text(text)
            check(name, number, words)

        # Weights: damaged, of other sizes, of another name, two files.
        net = Network((1, 3, 8, 8))
        net.conv(4, 3, name="c")
        good = net.weights.SerializeToString()
        path.write_text(net.text)
        weights = folder / "bad.caffemodel"
        weights.write_bytes(b"\xff" * 100)
        check("no weights of Caffe", "TSR-1132", "bad.caffemodel")
        weights.write_bytes(good[: len(good) // 2])
        check("half of the weights", "TSR-1132", "is damaged")
        net.weights.layer[0].blobs[0].ClearField("data")
        net.weights.layer[0].blobs[0].data.extend(np.zeros(7).tolist())
        weights.write_bytes(net.weights.SerializeToString())
        check("other sizes", "TSR-1133", "weights 0 of 7 elements")
        net.weights.layer[0].name = "other"
        weights.write_bytes(net.weights.SerializeToString())
        check("another name", "TSR-1133", "weights 0 are not in the .caffemodel")
        weights.rename(folder / "a.caffemodel")
        (folder / "b.caffemodel").write_bytes(good)
        check("two files", "TSR-1132", "may have the weights of")
        (folder / "a.caffemodel").unlink()
        done, _ = refusal(tessera, path)
        if done.returncode != 0:
            failed += 1
            print(f"FAILED the only weights of the folder: {done.stderr}")
    print(f"{len(REFUSED) + 6 - failed} of {len(REFUSED) + 6} as they should be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
