#!/usr/bin/env python3
"""Layer C6 of ResNet-18 on examples/accel/vdla.json with DRAM of other bandwidths and latencies: the share of the peak with one
virtual thread and with two, as a table (Markdown), and as a picture.

    accel_sweep.py TESSERA [--picture FILE.png]"""
import argparse
import json
import pathlib
import subprocess
import tempfile

ACCEL = pathlib.Path(__file__).resolve().parents[1] / "examples" / "accel"
BANDWIDTHS, LATENCIES = (2, 4, 8, 16), (20, 60, 120, 200)  # bytes a cycle; cycles
SCHEDULES = ("c6_one_thread.sched", "c6.sched")


def utilisation(tessera, unit, schedule):
    done = subprocess.run([tessera, "schedule", ACCEL / "c6.loop", "--accel", unit, "--apply", ACCEL / schedule, "--bench", "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["bench"]["utilisation"]


def measured(tessera):
    """By bandwidth and latency, the share of the peak of each schedule."""
    unit, result = json.loads((ACCEL / "vdla.json").read_text()), {}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "unit.json"
        for bandwidth in BANDWIDTHS:
            for latency in LATENCIES:
                unit["dram"] |= {"bytes_per_cycle": bandwidth, "latency": latency}
                file.write_text(json.dumps(unit))
                result[bandwidth, latency] = [utilisation(tessera, file, schedule) for schedule in SCHEDULES]
    return result


def draw(shares, path):
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for bandwidth, colour in zip(BANDWIDTHS, ("C0", "C1", "C2", "C3")):
        for thread, style in ((0, "--"), (1, "-")):
            axes.plot(LATENCIES, [100 * shares[bandwidth, latency][thread] for latency in LATENCIES], style, color=colour, marker="o",
                      label=f"{bandwidth} bytes a cycle" if thread else None)
    axes.axhline(70, color="grey", linewidth=0.8)
    axes.axhline(88, color="grey", linewidth=0.8)
    axes.annotate("TVM paper, best layer: 70 % without, 88 % with", (LATENCIES[0], 88.5), fontsize=8, color="grey")
    axes.set(xlabel="latency of DRAM, cycles", ylabel="% of the peak", ylim=(0, 102),
             title="C6: one virtual thread (dashed), two (solid)")
    axes.legend(loc="lower left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--picture")
    options = parser.parse_args()
    shares = measured(options.tessera)
    print("| bytes a cycle | " + " | ".join(f"{latency} cycles" for latency in LATENCIES) + " |")
    print("|---" * (len(LATENCIES) + 1) + "|")
    for bandwidth in BANDWIDTHS:
        cells = (" -> ".join(f"{100 * share:.1f}" for share in shares[bandwidth, latency]) for latency in LATENCIES)
        print(f"| {bandwidth} | " + " | ".join(cells) + " |")
    if options.picture:
        draw(shares, options.picture)


if __name__ == "__main__":
    main()
