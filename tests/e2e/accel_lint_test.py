#!/usr/bin/env python3
"""The hardware of each accelerator of examples/accel, read by two tools: Verilator's lint and yosys' check.

    accel_lint_test.py TESSERA [UNIT.json ..]"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import accel_cells  # noqa: E402

# Instructions are as wide as the widest kind's, and kernels are several to a file.
ALLOWED = ("UNUSEDSIGNAL", "DECLFILENAME")


def lint(files, folder):
    done = subprocess.run(["verilator", "--lint-only", "-Wall", "--top-module", "accelerator", f"-I{folder}", *map(str, files)],
                          capture_output=True, text=True)
    return [line for line in done.stderr.splitlines()
            if re.match(r"%(Warning|Error)", line) and "Exiting due to" not in line and not any(f"-{kind}:" in line for kind in ALLOWED)]


def check_tools_see(files, folder):
    """Neither tool is blind to a signal with two drivers, one of which has another width."""
    broken = next(path for path in files if path.name == "tokens.sv")
    broken.write_text(broken.read_text().replace("endmodule", "  assign available = give;\n  assign available = 2'(take);\nendmodule"))
    assert lint(files, folder), "Verilator says nothing of a signal with two drivers"
    try:
        accel_cells.netlist(files, folder)
    except AssertionError as error:
        assert "conflicting drivers" in str(error), error
    else:
        raise AssertionError("yosys says nothing of a signal with two drivers")


def main():
    tessera, units = sys.argv[1], [pathlib.Path(unit) for unit in sys.argv[2:]] or sorted((ROOT / "examples" / "accel").glob("*.json"))
    missing = [tool for tool in ("verilator", "yosys") if not shutil.which(tool)]
    if missing:
        print(f"skipped: there is no {' and no '.join(missing)} (scripts/setup.sh --rtl)")
        return 0
    for unit in units:
        with tempfile.TemporaryDirectory() as folder:
            files = accel_cells.written_design(tessera, unit, folder)
            told = lint(files, folder)
            assert not told, "\n".join(told)
            bits = accel_cells.counted(accel_cells.netlist(files, folder))
            assert bits["multipliers"] and bits["adders"] and bits["registers"] and bits["memory"], bits
            print(f"{unit.stem}: Verilator and yosys find nothing; {sum(bits.values()) - bits['memory']:,} bits of cells", flush=True)
            if unit == units[0]:
                check_tools_see(files, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
