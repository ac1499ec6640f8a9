#!/usr/bin/env python3
"""Runs the Python blocks of a file of docs/ (python_docs.py python.md), in order, in a folder of its own; the lines that a
comment shows as printed must be what is printed."""
import contextlib
import io
import os
import pathlib
import re
import sys
import tempfile

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / sys.argv[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)


def main():
    text = DOCUMENT.read_text()
    blocks = [(text.count("\n", 0, match.start(1)), match[1]) for match in BLOCK.finditer(text)]
    expected = re.findall(r"^ *print\(.*\) +# (.*?)(?:;.*)?$", "\n".join(code for _, code in blocks), re.M)
    printed, names = io.StringIO(), {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for line, code in blocks:
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * line + code, str(DOCUMENT), "exec"), names)
    lines = printed.getvalue().splitlines()
    wrong = [f"{DOCUMENT.name} says '{want}' is printed; it is '{got}'" for want, got in zip(expected, lines)
             if not got.startswith(want)]
    if len(lines) != len(expected) or not lines:
        wrong.append(f"{len(lines)} lines are printed, and {DOCUMENT.name} shows {len(expected)}")
    print("\n".join(wrong) or f"{len(blocks)} blocks run, {len(lines)} lines printed as shown")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
