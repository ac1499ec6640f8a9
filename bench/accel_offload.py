#!/usr/bin/env python3
"""What of a network runs on accelerators, before and after they learn to add residuals and to activate: a table (Markdown).

    accel_offload.py TESSERA MODEL.onnx SAMPLES.npz [--units FILE ..] [--without NAME,..] [--json FILE]

The model is quantised with the samples. `before`: the unit without the instructions of --without (those that a description does
not have are no matter), so that the host does what follows sums. Outputs must be the CPU's int8 network's, bit for bit.
Amdahl's bound: how much faster the whole would be, had the unit no work at all."""
import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[1]


def call(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def outputs(tessera, model, folder, name, *options):
    """And the seconds that compiling takes."""
    begin = time.monotonic()
    call(tessera, "compile", model, "-o", folder / f"{name}.so", "--force", "-q", *options)
    seconds = time.monotonic() - begin
    call(tessera, "run", folder / f"{name}.so", "--input", "random:0", "--output-dir", folder / name)
    return {path.name: numpy.load(path) for path in sorted((folder / name).glob("*.npy"))}, seconds


def variant(unit, without, folder):
    """A description that lacks instructions."""
    description = json.loads(unit.read_text())
    description["instructions"] = [entry for entry in description["instructions"] if entry["name"] not in without]
    path = folder / f"{unit.stem}_before.json"
    path.write_text(json.dumps(description))
    return path


def report(tessera, model, unit, title, want, folder):
    got, seconds = outputs(tessera, model, folder, title, "--target", unit)
    assert want.keys() == got.keys() and all((want[name] == got[name]).all() for name in want), f"{title}: outputs differ from the CPU's"
    bench = json.loads(call(tessera, "bench", model, "--target", unit, "--json"))
    share = bench["multiply_adds_on_unit"] / bench["multiply_adds"]
    # The first convolution has 3 channels, and stays.
    first = max((host["multiply_adds"] for host in bench["host"]), default=0)
    other = bench["multiply_adds_on_unit"] / max(bench["multiply_adds"] - first, 1)
    return {"offloaded": share, "offloaded_but_first": other, "cycles": bench["cycles"], "unit_ms": bench["unit_ms"],
            "host_ms": bench["host_ms"], "host_kernels": len(bench["host"]), "compile_s": seconds,
            "bound": (bench["unit_ms"] + bench["host_ms"]) / bench["host_ms"],
            "simulated_cycles_per_second": bench["simulated_cycles_per_second"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("samples", type=pathlib.Path)
    parser.add_argument("--units", nargs="+", type=pathlib.Path,
                        default=[ROOT / "examples/accel" / f"{name}.json" for name in ("vdla", "tile8", "systolic")])
    parser.add_argument("--without", default="add,relu,scale_relu")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = {}
    print("| unit | | offloaded | but for the largest that stays | cycles | unit, ms | host, ms | kernels of the host | Amdahl's bound | "
          "to compile, s | M cycles/s simulated |")
    print("|---" * 11 + "|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        model = folder / "int8.onnx"
        call(options.tessera, "quantize", options.model, "--calib", options.samples, "--activations", "i8", "--all", "-o", model)
        # As the model says: the CPU's default joins scales and rounds once.
        want, _ = outputs(options.tessera, model, folder, "cpu", "--disable-pass", "scale_sums_once")
        for unit in options.units:
            for title, file in (("before", variant(unit, options.without.split(","), folder)), ("after", unit)):
                row = rows[f"{unit.stem} {title}"] = report(options.tessera, model, file, f"{unit.stem}_{title}", want, folder)
                print(f"| {unit.stem} | {title} | {100 * row['offloaded']:.1f} % | {100 * row['offloaded_but_first']:.1f} % | "
                      f"{row['cycles']:,} | {row['unit_ms']:.1f} | {row['host_ms']:.1f} | {row['host_kernels']} | {row['bound']:.2f} | "
                      f"{row['compile_s']:.0f} | {row['simulated_cycles_per_second'] / 1e6:.0f} |", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
