#!/usr/bin/env python3
"""Holds the ids of errors against docs/errors.md: every id used in src/, tools/ and python/ has exactly one row in its tables,
and every row's id is used. Families in comments ("TSR-1xxx", "TSR-61xx") do not count."""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ID = re.compile(r"\bTSR-\d{4}\b")
EXAMPLE = {"TSR-1203"}  # in a comment of support/error.h


def main():
    used = collections.defaultdict(set)
    for folder in ("src", "tools", "python"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".c", ".py"):
                for found in ID.findall(path.read_text()):
                    used[found].add(str(path.relative_to(ROOT)))
    document = (ROOT / "docs/errors.md").read_text()
    listed = collections.Counter(re.findall(r"^\| (TSR-\d{4}) \|", document, re.M))
    problems = [
        f"{name} (in {', '.join(sorted(files))}) has no row in docs/errors.md"
        for name, files in sorted(used.items())
        if name not in listed and name not in EXAMPLE
    ]
    problems += [
        f"{name} has a row in docs/errors.md and is used nowhere" for name in sorted(listed) if name not in used
    ]
    problems += [f"{name} has {count} rows in docs/errors.md" for name, count in sorted(listed.items()) if count > 1]
    print("\n".join(problems) or f"{len(listed)} ids, all listed and used")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
