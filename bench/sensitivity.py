#!/usr/bin/env python3
"""Draws what `tessera quantize --sensitivity --json` prints: what each layer loses by itself, and choices of layers by time and
loss.

    tessera quantize model.onnx --calib samples --sensitivity --json > report.json
    bench/sensitivity.py report.json -o sensitivity.png"""
import argparse
import json
import pathlib
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("sensitivity.png"))
    arguments = parser.parse_args()
    report = json.loads(arguments.report.read_text().strip().splitlines()[-1])
    layers = [layer for layer in report["layers"] if "sqnr_db" in layer]
    if not layers:
        sys.exit(f"{arguments.report}: no layer has a loss; quantize with --sensitivity")
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 2 + 0.18 * len(layers)), width_ratios=(3, 2))
    in_bytes = [layer["choice"] == "bytes" for layer in layers]
    left.barh(range(len(layers)), [layer["sqnr_db"] for layer in layers], color=["#3b7a57" if b else "#c8a13a" for b in in_bytes])
    left.set_yticks(range(len(layers)), [layer["layer"][-40:] for layer in layers], fontsize=7)
    left.invert_yaxis()
    left.set_xlabel("signal to noise when it alone is quantised, dB (green: becomes integers)")
    choices = [choice for choice in report.get("choices", []) if "sqnr_db" in choice]
    right.plot([choice["estimated_ms"] for choice in choices], [choice["sqnr_db"] for choice in choices], "o-", color="#4a6fa5")
    for choice in choices:
        place = (choice["estimated_ms"], choice["sqnr_db"])
        right.annotate(choice["layers"], place, textcoords="offset points", xytext=(4, -8), fontsize=7)
    right.axvline(report["f32_ms"], color="#7a7a7a", linestyle=":")
    right.set_xlabel("estimated ms (dotted: f32); numbers: layers in integers")
    right.set_ylabel("signal to noise, dB")
    figure.tight_layout()
    figure.savefig(arguments.output, dpi=120)


if __name__ == "__main__":
    main()
