#!/usr/bin/env python3
"""Layer C6 on the accelerator of examples/accel: bit-equal to its loops, faster with virtual threads, as the page says.

    accelerator_test.py TESSERA"""
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACCEL = ROOT / "examples" / "accel"


def schedule(tessera, name, *options):
    done = subprocess.run([tessera, "schedule", ACCEL / "c6.loop", "--accel", ACCEL / "vdla.json", "--apply", ACCEL / name, *options],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def main():
    tessera = sys.argv[1]
    reports = {}
    for name in ("c6_one_thread.sched", "c6.sched"):
        report = json.loads(schedule(tessera, name, "--check", "--bench", "--json"))
        assert [check["agrees"] for check in report["check"]] == [True], report
        assert report["bench"]["multiply_adds"] == 28 * 28 * 128 * 128 * 9, report
        reports[name] = report["bench"]
    slow, fast = reports["c6_one_thread.sched"], reports["c6.sched"]
    print(f"{slow['utilisation']:.1%} of the peak without virtual threads, {fast['utilisation']:.1%} with two")
    assert fast["utilisation"] > 0.88 > slow["utilisation"], reports
    # The page shows these numbers.
    page = (ROOT / "docs" / "accelerator.md").read_text()
    assert f"{fast['cycles']} cycles" in page and f"{slow['cycles']:,} cycles" in page, reports
    stream = schedule(tessera, "c6.sched", "--emit", "stream")
    assert stream.startswith(f"stream of vdla: {fast['instructions']} instructions of "), stream[:100]
    timeline = schedule(tessera, "c6.sched", "--emit", "timeline")
    picture = xml.etree.ElementTree.fromstring(timeline)
    texts = ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any(f"{fast['cycles']} cycles" in text for text in texts) and {"load", "compute", "store"} <= set(texts), texts
    steps = sum(1 for _ in picture.iter("{http://www.w3.org/2000/svg}title"))
    assert steps == fast["instructions"], (steps, fast["instructions"])
    # A schedule that the memories do not hold.
    text = (ACCEL / "c6.sched").read_text().replace("h0, h1 = split(yh, [_, 7])", "h0, h1 = split(yh, [_, 28])")
    done = subprocess.run([tessera, "schedule", ACCEL / "c6.loop", "--accel", ACCEL / "vdla.json", "--apply", "-"], input=text,
                          capture_output=True, text=True)
    assert done.returncode == 1 and "TSR-3504" in done.stderr and "131072 bytes" in done.stderr, done.stderr
    return 0


if __name__ == "__main__":
    sys.exit(main())
