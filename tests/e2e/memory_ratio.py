#!/usr/bin/env python3
"""How much arena a compiled network needs beside the most that is alive at one call: at most 1.15 times that.

    memory_ratio.py TESSERA [MODEL.onnx...]

The live set is counted here from the program's text, apart from the compiler's own bookkeeping. Without models: small
networks of tests/models, and the light models when the test data are there (TESSERA_TEST_DATA, else ../shared);
TESSERA_TEST_FULL=1 takes the whole suite. Prints a row per model; exit code 1 when one is above the limit."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 1.15
QUICK = ["squeezenet1_1", "mobilenet_v2", "shufflenet_v2_x1_0", "lstm_2x256"]
BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "u64": 64, "u32": 32,
        "u16": 16, "u8": 8, "bool": 8}
NAME = r'%("(?:[^"\\]|\\.)*"|[^\s:,()]+)'
BUFFER = re.compile(rf"  buffer {NAME}: (\w+)\[([\d,]*)\](\{{[^}}]*\}})? (\w+)( \d+)?( at \d+)?"
                    rf"(?: alias {NAME})?(?: from \d+)?(?: over {NAME})?")


def physical_bytes(dtype, dims, layout):
    extents = [int(d) for d in dims.split(",") if d]
    for part in (layout or "{}").strip("{}").split(","):
        if "/" in part:
            axis, block = map(int, part.split("/"))
            extents[axis] = -(-extents[axis] // block) * block
    count = 1
    for extent in extents:
        count *= extent
    return -(-count * BITS[dtype] // 8)


def live_set(text):
    """(arena bytes, most bytes alive at one call, those without writing in place, calls)"""
    arena, owner, chain, sizes = None, {}, {}, {}
    calls = []
    for line in text.splitlines():
        if line.startswith("  plan arena "):
            arena = int(line.split()[2])
        elif match := BUFFER.match(line):
            name, dtype, dims, layout, kind, _, _, alias, over = match.groups()
            owner[name] = owner[alias] if alias else name
            if kind == "arena" and not alias:
                sizes[name] = -(-physical_bytes(dtype, dims, layout) // 64) * 64
                chain[name] = chain[over] if over else name
        elif line.startswith("  call @"):
            calls.append([owner[a] for a in re.findall(NAME, line[line.index("("):].split(" loc(")[0])])

    def most(storage):
        first, last, size = {}, {}, {}
        for number, args in enumerate(calls):
            for arg in args:
                if arg in sizes:
                    place = storage(arg)
                    first.setdefault(place, number)
                    last[place] = number
                    size[place] = sizes[arg]
        change = [0] * (len(calls) + 1)
        for place, number in first.items():
            change[number] += size[place]
            change[last[place] + 1] -= size[place]
        live = peak = 0
        for step in change:
            live += step
            peak = max(peak, live)
        return peak

    return arena, most(lambda name: chain[name]), most(lambda name: name), len(calls)


def models(work):
    full = os.environ.get("TESSERA_TEST_FULL")
    names = ["all"] if full else QUICK
    subprocess.run([sys.executable, ROOT / "tests/models/materialize.py", *names, "--out", work], check=True,
                   stdout=subprocess.DEVNULL)
    found = sorted(pathlib.Path(work).glob("*.onnx"))
    data = pathlib.Path(os.environ.get("TESSERA_TEST_DATA", ROOT.parent / "shared")) / "onnx-light"
    light = sorted(data.glob("*/model.onnx"))
    if not light:
        print(f"skipped: the light models, there is no {data}")
    return found + light


def main():
    tessera, *given = sys.argv[1:]
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        print(f"{'model':28} {'calls':>6} {'arena MB':>9} {'live MB':>9} {'ratio':>6} {'live, nothing in place':>23}")
        for path in [pathlib.Path(p) for p in given] or models(work):
            name = path.parent.name + " (light)" if path.name == "model.onnx" else path.stem
            done = subprocess.run([tessera, "compile", path, "--emit", "program", "-o", "-"], capture_output=True, text=True)
            if done.returncode == 1 and "TSR-1040" in done.stderr:
                print(f"{name:28} skipped: {done.stderr.splitlines()[1].strip()}")
                continue
            if done.returncode != 0:
                print(f"{name:28} FAILED: {done.stderr.strip()}")
                failed += 1
                continue
            arena, live, plain, calls = live_set(done.stdout)
            ratio = arena / live if live else 1.0
            bad = arena < live or ratio > LIMIT
            failed += bad
            print(f"{name:28} {calls:6} {arena / 1e6:9.3f} {live / 1e6:9.3f} {ratio:6.3f} {plain / 1e6:23.3f}"
                  f"{'  FAILED' if bad else ''}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
