#!/usr/bin/env python3
"""Networks of the suite in two places: all kernels, or about half of them, on the null device, and the rest on the CPU or
a second such device.

    devices.py TESSERA [--full]

The outputs are those of the CPU alone, bit for bit, and each kernel has its time, wherever it runs. Three networks in
turn with the date; all with --full or TESSERA_TEST_FULL=1.
"""
import os
import sys
import tempfile

import numpy as np
import onnx

import model_runs as runs
from suite_models import QUICK

SHARE = 3
PLACES = [("all on the device", ["*=null"]),
          ("half on the device", ["*[02468]=null", "*[02468]/[A-Z]*=null", "*[02468]/squeeze/*=null"]),
          ("half on another device", ["*[02468]=null:1", "*[02468]/[A-Z]*=null:1", "*[02468]/squeeze/*=null:1", "*=null"]),
          ("convolutions and products on the host", ["*onv*=cpu", "*[mM]at[mM]ul*=cpu", "*=null"])]


def main():
    binary = os.path.abspath(sys.argv[1])
    count = runs.Count()
    names = QUICK if runs.is_full() else [QUICK[(runs.today() * SHARE + i) % len(QUICK)] for i in range(SHARE)]
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            model, feeds = runs.suite_model(name)
            path = f"{work}/{name}.onnx"
            onnx.save(model, path)
            outputs = len(model.graph.output)

            def results(module, places):
                flags = [flag for place in places for flag in ("--place", place)]
                problem = runs.tessera(binary, "compile", path, "-o", module, *flags)
                if problem and "TSR-4073" in problem:  # a pattern that fits no node of this network
                    others = [p for p in places if f"'{p.split('=')[0]}'" not in problem]
                    return results(module, others) if others else None
                return problem or runs.run([binary, "run", module], feeds, outputs, work)

            want = results(f"{work}/cpu.so", [])
            if isinstance(want, str):
                count.result(name, want)
                continue
            for what, places in PLACES:
                got = results(f"{work}/device.so", places)
                if got is None:
                    count.skip(f"{name}, {what}", "no node has such a name")
                    continue
                same = not isinstance(got, str) and all(np.array_equal(g, w) for g, w in zip(got, want, strict=True))
                count.result(f"{name}, {what}", got if isinstance(got, str) else 0.0 if same else "other bits")
                count.result(f"{name}, {what}: times", runs.check_times(binary, f"{work}/device.so", "null"))
    return count.exit_code()


if __name__ == "__main__":
    sys.exit(main())
