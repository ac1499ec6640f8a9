#!/usr/bin/env python3
"""What the hardware of accelerators is made of, as yosys elaborates it, beside the time that layers take on them: a table
(Markdown), and a picture.

    accel_cells.py TESSERA UNIT.json .. [--cycles FILE.json] [--picture FILE.png]

Counted in bits, of each module as often as it is there, before any mapping to gates: a multiplier of a by b bits is a * b, a
divider too; a shifter is a bit of a multiplexer for each bit and each stage; everything else is as wide as its widest operand.
Memories are black boxes, of which their bits are told. --cycles: what tests/e2e/accel_networks.py --json wrote of these units."""
import argparse
import json
import math
import pathlib
import subprocess
import tempfile

GROUPS = {"multipliers": ("$mul", "$macc"), "dividers": ("$div", "$mod", "$divfloor", "$modfloor"),
          "adders": ("$add", "$sub", "$neg", "$alu", "$lt", "$le", "$gt", "$ge"), "multiplexers": ("$mux", "$pmux", "$bmux"),
          "shifters": ("$shl", "$shr", "$sshl", "$sshr", "$shift", "$shiftx"),
          "registers": ("$dff", "$dffe", "$sdff", "$sdffe", "$sdffce", "$adff", "$adffe"), "memory": ("$mem_v2", "$mem")}
GROUP_OF = {kind: group for group, kinds in GROUPS.items() for kind in kinds}
COLUMNS = ("multipliers", "dividers", "adders", "multiplexers", "shifters", "logic", "registers", "memory")


def written_design(tessera, unit, folder):
    """The design's files, without the bench."""
    subprocess.run([tessera, "accel", unit, "-o", folder], check=True, capture_output=True)
    return sorted(path for path in pathlib.Path(folder).glob("*.sv") if not path.name.startswith("bench"))


def netlist(files, folder):
    """yosys' modules, elaborated and checked: no loops of logic, no wire with two drivers or none."""
    script = [f"read_verilog -sv -I {folder} {' '.join(map(str, files))}", "hierarchy -check -top accelerator", "proc", "check -assert",
              "opt -fast", "wreduce", "memory -nomap", "opt -fast", f"write_json {folder}/netlist.json"]
    done = subprocess.run(["yosys", "-q", "-p", "; ".join(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((pathlib.Path(folder) / "netlist.json").read_text())["modules"]


def bits_of(cell):
    """The column of a cell, and its bits."""
    kind, number = cell["type"], {name: int(value, 2) for name, value in cell["parameters"].items() if value and set(value) <= {"0", "1"}}
    group = GROUP_OF.get(kind, "logic")
    a, b, y = (number.get(f"{port}_WIDTH", 0) for port in "ABY")
    if group == "memory":
        return group, number["WIDTH"] * number["SIZE"]
    if group in ("multipliers", "dividers"):
        return group, a * b
    if group == "shifters":
        return group, max(a, y) * min(b, math.ceil(math.log2(max(a, y, 2))) + 1)
    if group in ("multiplexers", "registers"):
        return group, number["WIDTH"] * number.get("S_WIDTH", 1)
    return group, max(a, b, y)


def counted(modules, top="accelerator"):
    """Bits by column of the whole design."""
    known = {}

    def of(name):
        if name not in known:
            known[name] = dict.fromkeys(COLUMNS, 0)
            for cell in modules[name]["cells"].values():
                parts = of(cell["type"]).items() if cell["type"] in modules else [bits_of(cell)]
                for group, bits in parts:
                    known[name][group] += bits
        return known[name]

    return of(top)


def draw(points, path):
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name, (cells, milliseconds) in points.items():
        axes.scatter(cells / 1e3, milliseconds)
        axes.annotate(name, (cells / 1e3, milliseconds), xytext=(6, 4), textcoords="offset points")
    axes.set(xlabel="thousand bits of cells, without memories", ylabel="ms for layers C2 to C12", ylim=(0, None),
             title="Accelerators: what they are made of, and how long layers take")
    axes.set_xlim(0, 1.25 * max(cells for cells, _ in points.values()) / 1e3)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("units", nargs="+", type=pathlib.Path)
    parser.add_argument("--cycles", type=pathlib.Path)
    parser.add_argument("--picture")
    options = parser.parse_args()
    layers = json.loads(options.cycles.read_text()) if options.cycles else {}
    print("| unit | " + " | ".join(COLUMNS[:-1]) + " | all | memory, KiB | layers, ms |")
    print("|---" * (len(COLUMNS) + 3) + "|")
    points = {}
    for unit in options.units:
        with tempfile.TemporaryDirectory() as folder:
            bits = counted(netlist(written_design(options.tessera, unit, folder), folder))
        memory, total = bits.pop("memory"), sum(bits.values())
        cycles = sum(layer["cycles"] for layer in layers.get(unit.stem, {}).values())
        milliseconds = cycles / json.loads(unit.read_text())["clock_mhz"] / 1e3
        points[unit.stem] = total, milliseconds
        print(f"| {unit.stem} | " + " | ".join(f"{value:,}" for value in bits.values()) +
              f" | {total:,} | {memory / 8192:.0f} | {milliseconds:.2f} |", flush=True)
    if options.picture:
        draw(points, options.picture)


if __name__ == "__main__":
    main()
