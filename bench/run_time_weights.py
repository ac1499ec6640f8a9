#!/usr/bin/env python3
"""Times convolutions and matrix products whose weights are inputs beside the same with constant weights: what packs the
weights in each run, and what reads them.

    run_time_weights.py [LIST] [--only TEXT]... [--threads 1] [--rounds 5] [--seconds 0.2] [--precision f32]
                        [--out bench/results/NAME]

LIST is a name in bench/lists (default: kernels); of its cases those with a weight of more than one dimension are taken.
Each round times the modules in turn, kernel by kernel ('tessera bench --kernels'); a figure is the median over the
rounds. "kernel" is everything but the packing, "ratio" that over the time with constant weights; "copy" is a kernel that
negates as many numbers in each run of the module with constant weights, so that it finds the caches as the packing does;
"copies" is the packing over that. --out NAME writes NAME.json and NAME.md.
The compiler is build/bin/tessera, or what TESSERA names. Exit code: 1 when something does not compile, 2 when the two
modules' outputs differ."""
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
from onnx import helper, numpy_helper

from operator_models import Case
from operators import difference
from report import ROOT, RUNTIME, TESSERA, case_arguments, cpu_name
from tessera_module import Module

WORK = ROOT / "out/bench/run_time_weights"


def weights_as_inputs(entry):
    """The case with its weights of more than one dimension among the inputs; what they are, largest first."""
    case = Case(entry)
    moved = [weight for weight in case.weights if len(weight.dims) > 1]
    for weight in moved:
        data = numpy_helper.to_array(weight)
        case.inputs[weight.name] = data
        case.values.append(helper.make_tensor_value_info(weight.name, weight.data_type, data.shape))
    case.weights = [weight for weight in case.weights if len(weight.dims) <= 1]
    return case, sorted((case.inputs[weight.name] for weight in moved), key=lambda data: -data.nbytes)


def compile_case(case, path, args):
    case.write(path)
    done = subprocess.run([TESSERA, "compile", path, "-o", path.with_suffix(".so"), "--threads", str(args.threads),
                           "--precision", args.precision], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        sys.exit(f"{case.name}: {done.stderr.strip().splitlines()[0]}")
    return path.with_suffix(".so")


def with_copy(entry, weights):
    """The case with an output that is the negative of an input like `weights`: every run reads and writes as many."""
    case = Case(entry)
    element = helper.np_dtype_to_tensor_dtype(weights.dtype)
    case.values.append(helper.make_tensor_value_info("copied", element, weights.shape))
    case.nodes.append(helper.make_node("Neg", ["copied"], ["copy"], name="copy"))
    case.outputs.append("copy")
    return case


def times_by_kernel(module, args):
    done = subprocess.run([TESSERA, "bench", module, "--kernels", "--json", "--threads", str(args.threads),
                           "--duration", str(args.seconds)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])["kernels"]


def kernel_times(module, args):
    """Microseconds a call of what packs, and of everything else."""
    kernels = times_by_kernel(module, args)
    packing = sum(kernel["us"] for kernel in kernels if kernel["rule"] == "pack")
    return packing, sum(kernel["us"] for kernel in kernels) - packing, [kernel["rule"] for kernel in kernels]


def copy_time(module, args):
    return sum(kernel["us"] for kernel in times_by_kernel(module, args) if kernel["nodes"].startswith("copy"))


def outputs_of(module, inputs, args):
    loaded = Module(RUNTIME, module, inputs, args.threads)
    outputs = loaded.outputs()
    loaded.close()
    return outputs


def measure(entry, args):
    constant = Case(entry)
    case, weights = weights_as_inputs(entry)
    if not weights:
        return None
    path = WORK / ("".join(c if c.isalnum() else "_" for c in case.name) + ".onnx")
    fixed = compile_case(constant, path, args)
    moved = compile_case(case, path.with_suffix(".inputs.onnx"), args)
    copying = compile_case(with_copy(entry, weights[0]), path.with_suffix(".copy.onnx"), args)
    row = {"name": case.name, "tolerance": case.tolerance if args.precision == "f32" else 2e-2}
    if pathlib.Path(RUNTIME).exists():
        row["difference"] = max(difference(a, b) for a, b in zip(
            outputs_of(moved, case.inputs, args), outputs_of(fixed, constant.inputs, args), strict=True))
    rounds = []
    for _ in range(args.rounds):
        _, constant_us, _ = kernel_times(fixed, args)
        packing_us, kernel_us, rules = kernel_times(moved, args)
        rounds.append((constant_us, kernel_us, packing_us, copy_time(copying, args)))
    row |= dict(zip(("constant_us", "kernel_us", "packing_us", "copy_us"), map(statistics.median, zip(*rounds))))
    row |= {"ratio": statistics.median(k / c for c, k, _, _ in rounds), "rules": rules, "rounds_us": rounds,
            "copies": statistics.median(p / copy for _, _, p, copy in rounds), "weight_bytes": weights[0].nbytes}
    return row


def table(report):
    lines = ["| operator | constant us | kernel us | ratio | packing us | copy us | copies | both / constant |",
             "|---|---|---|---|---|---|---|---|"]
    for row in report["cases"]:
        both = (row["kernel_us"] + row["packing_us"]) / row["constant_us"]
        lines.append(f"| {row['name']} | {row['constant_us']:.1f} | {row['kernel_us']:.1f} | {row['ratio']:.2f} | "
                     f"{row['packing_us']:.1f} | {row['copy_us']:.1f} | {row['copies']:.1f} | {both:.2f} |")
    return "\n".join(lines)


def main():
    parser = case_arguments(__doc__)
    parser.add_argument("--precision", default="f32")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    listed = json.loads((ROOT / f"bench/lists/{args.list}.json").read_text())
    report = {"title": "Weights that arrive at run time", "date": time.strftime("%Y-%m-%d"), "cpu": cpu_name(),
              "threads": args.threads, "precision": args.precision, "rounds": args.rounds, "cases": []}
    status = 0
    for entry in listed["cases"]:
        if args.only and not any(text.lower() in entry["name"].lower() for text in args.only):
            continue
        row = measure(entry, args)
        if row is None:
            continue
        report["cases"].append(row)
        wrong = row.get("difference", 0) > row["tolerance"]
        status = 2 if wrong else status
        print(f"{row['name']:<40} constant {row['constant_us']:>9.1f} us, kernel {row['kernel_us']:>9.1f} "
              f"({row['ratio']:.2f}), packing {row['packing_us']:>8.1f} = {row['copies']:.1f} copies"
              f"{'  DIFFERS' if wrong else ''}  {' '.join(row['rules'])}", flush=True)
    if args.out:
        args.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        head = (f"{report['date']}, {report['cpu']}, threads: {args.threads}, precision {args.precision}, "
                f"{args.rounds} rounds of {args.seconds} s")
        args.out.with_suffix(".md").write_text(f"# {report['title']}\n\n{head}\n\n{table(report)}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
