#!/usr/bin/env python3
"""Cycles of layers on examples/accel/systolic.json beside those of SCALE-Sim's weight-stationary array of the same size: a table.

    .venv-scalesim/bin/python bench/accel_scalesim.py CYCLES.json

CYCLES.json: what tests/e2e/accel_networks.py --size whole --unit examples/accel/systolic.json --json wrote. SCALE-Sim (the Python
package scalesim) counts what its array computes, with operands that are always there; ours has DRAM, memories and tiles, too."""
import json
import pathlib
import sys

import numpy


def scalesim_cycles(pixels, summed, outputs, size=16):
    """Of a product of pixels x summed by summed x outputs: the rows of what the array reads, a cycle each."""
    from scalesim.compute.systolic_compute_ws import systolic_compute_ws
    from scalesim.scale_config import scale_config

    config = scale_config()
    config.array_rows = config.array_cols = size
    config.valid_conf_flag = True
    array = systolic_compute_ws()
    places, weights = numpy.zeros((pixels, summed)), numpy.zeros((summed, outputs))
    array.set_params(config_obj=config, ifmap_op_mat=places, filter_op_mat=weights, ofmap_op_mat=numpy.zeros((pixels, outputs)),
                     sparsity_ratio_N=1, sparsity_ratio_M=1, ifmap_op_mat_original=places, sparsity_filter_array=weights)
    return array.get_demand_matrices()[0].shape[0]


def main():
    try:
        import scalesim  # noqa: F401
    except ImportError:
        print("skipped: there is no scalesim (scripts/setup.sh --rtl)")
        return
    layers, ours_of_all, theirs_of_all = json.loads(pathlib.Path(sys.argv[1]).read_text())["systolic"], 0, 0
    print("| layer | SCALE-Sim | ours | difference |\n|---|---|---|---|")
    for name, layer in layers.items():
        pixels, channels, out, window, stride, _ = layer["shape"]
        theirs, ours = scalesim_cycles((-(-pixels // stride)) ** 2, channels * window * window, out), layer["cycles"]
        ours_of_all, theirs_of_all = ours_of_all + ours, theirs_of_all + theirs
        print(f"| {name} | {theirs:,} | {ours:,} | {100 * (ours / theirs - 1):+.1f} % |")
    print(f"| all | {theirs_of_all:,} | {ours_of_all:,} | {100 * (ours_of_all / theirs_of_all - 1):+.1f} % |")


if __name__ == "__main__":
    main()
