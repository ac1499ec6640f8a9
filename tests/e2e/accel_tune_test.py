#!/usr/bin/env python3
"""`tessera tune --target UNIT.json`: tilings with fewer simulated cycles, kept in records that compiles use; same bytes.

    accel_tune_test.py TESSERA"""
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

import accel_networks
from accel_networks import call, layers_of, run

UNITS = accel_networks.ROOT / "examples/accel"


def tuned(tessera, model, unit, db, *more):
    return json.loads(call(tessera, "tune", model, "--target", unit, "--db", db, "--seed", 1, "--json", *more))


def cycles(tessera, model, unit, *more):
    """Of all layers on the unit, as `bench` counts them."""
    report = json.loads(call(tessera, "bench", model, "--target", unit, "--json", *more))
    return report["cycles"], layers_of(report)


def refused(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def main():
    tessera = sys.argv[1]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        layers = accel_networks.LayersModel(["C2", "C4", "C5"], "reduced", False)
        model = folder / "layers.onnx"
        layers.save(model)
        want = run(tessera, model, layers.values, folder, "cpu", "--disable-pass", "scale_sums_once")
        for unit, clock in ((UNITS / "vdla.json", 200), (UNITS / "tile8.json", None)):
            clock = clock or json.loads(unit.read_text())["clock_mhz"]
            db = folder / f"{unit.stem}.db"
            before, own = cycles(tessera, model, unit)
            report = tuned(tessera, model, unit, db, "--trials", 120)
            assert report["trials"] == 120 and len(report["tasks"]) == len(own) == 3, report
            assert {round(task["default_us"] * clock) for task in report["tasks"]} == {layer["cycles"] for layer in own.values()}, report
            # Records are of what a compile does with them: cycles to the last one, and the same bytes.
            after, layers_after = cycles(tessera, model, unit, "--db", db)
            assert {round(task["best_us"] * clock) for task in report["tasks"]} == {layer["cycles"] for layer in layers_after.values()}
            assert after <= before and abs(after - sum(task["best_us"] for task in report["tasks"]) * clock) < 1, (before, after, report)
            got = run(tessera, model, layers.values, folder, unit.stem, "--target", unit, "--db", db)
            assert all((want[name] == got[name]).all() for name in want), unit
            # What was tried is not tried again, and what was found stays.
            again = tuned(tessera, model, unit, db, "--trials", 160, "--resume")
            assert again["trials"] == 160, again
            with sqlite3.connect(db) as records:
                tried = records.execute("SELECT kernel, payload FROM trials").fetchall()
                assert len(tried) == len(set(tried)) == 160, len(set(tried))
            last = cycles(tessera, model, unit, "--db", db)[0]
            assert last <= after, (last, after)
            print(f"{unit.stem}: {before} -> {after} cycles in 120 trials, {last} in 160", flush=True)
        check_foreign_records(tessera, model, folder / "vdla.db", layers, want, folder)
        error = refused(tessera, "tune", model, "--target", UNITS / "vdla.json", "--db", folder / "n.db", "--mode", "model")
        assert "TSR-4058" in error and "simulated cycles" in error, error
        error = refused(tessera, "tune", model, "--target", UNITS / "vdla.json", "--db", folder / "n.db", "--only", "nobody")
        assert "TSR-4056" in error, error
    return 0


def check_foreign_records(tessera, model, db, layers, want, folder):
    """Tilings that fit no memory, or are none, are as none: the compiler's own, and the same bytes."""
    unit = UNITS / "vdla.json"
    own = cycles(tessera, model, unit)[0]
    for text in ("unit_tiling{place0=28,place1=28,out=4,in=4,inner=1,x=2,w=2,sums=2}", "unit_tiling{place0=1,out=1}",
                 "unit_tiling{place0=1,place1=1,place2=0,out=1,in=1,inner=1,x=9,w=1,sums=1}", "nonsense", "unit_tiling{out=1}"):
        with sqlite3.connect(db) as records:
            records.execute("UPDATE choices SET payload = ?", (text,))
        assert cycles(tessera, model, unit, "--db", db)[0] == own, text
        got = run(tessera, model, layers.values, folder, "foreign", "--target", unit, "--db", db)
        assert all((want[name] == got[name]).all() for name in want), text


if __name__ == "__main__":
    sys.exit(main())
