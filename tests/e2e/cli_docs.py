#!/usr/bin/env python3
"""Holds docs/cli.md against the program: each block behind a comment `<!-- tessera VERB --help -->` is what that
command prints, every verb has its block, and every environment variable that the sources read is described.

    cli_docs.py TESSERA            check
    cli_docs.py TESSERA --update   write the blocks anew"""

import difflib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs/cli.md"
BLOCK = re.compile(r"(<!-- tessera ?(\w*) --help -->\n```\n)(.*?)(```\n)", re.S)


def help_text(program, verb):
    done = subprocess.run([program, *([verb] if verb else []), "--help"], capture_output=True, text=True, check=True)
    return "\n".join(line.rstrip() for line in re.sub(r"\n{3,}", "\n\n", done.stdout).strip().split("\n")) + "\n"


def main():
    program, update = sys.argv[1], "--update" in sys.argv[2:]
    old = DOCUMENT.read_text()
    new = BLOCK.sub(lambda match: match[1] + help_text(program, match[2]) + match[4], old)
    if update:
        DOCUMENT.write_text(new)
        return 0
    problems = list(
        difflib.unified_diff(old.splitlines(), new.splitlines(), "docs/cli.md", "--help", lineterm="", n=1)
    )
    if problems:
        problems.append(f"bring the document up to date with: {sys.argv[0]} {program} --update")
    verbs = re.findall(r"(?m)^  (\w+) {2,}", help_text(program, "").split("Subcommands:")[1])
    problems += [
        f"docs/cli.md has no block for 'tessera {verb} --help'"
        for verb in verbs
        if verb not in {match[2] for match in BLOCK.finditer(old)}
    ]
    sources = [path for folder in ("src", "tools") for path in (ROOT / folder).rglob("*.cpp")]
    variables = {
        name
        for path in sources
        for name in re.findall(r'"(TESSERA_[A-Z_]+|OMP_NUM_THREADS|NO_COLOR|XDG_CACHE_HOME)"', path.read_text())
    }
    problems += [
        f"docs/cli.md does not describe the environment variable {name}"
        for name in sorted(variables)
        if f"`{name}`" not in old
    ]
    print("\n".join(problems) or f"{len(verbs)} verbs, {len(variables)} variables: all as the program has them")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
