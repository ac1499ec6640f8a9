#!/usr/bin/env python3
"""Compiles every model of make_bad_models.py and checks that each is refused as promised: exit code 1 in good time and
bounded memory, one error on stderr with an id, the texts that the message must mention, and no module left behind.

    check_bad_models.py TESSERA FOLDER [--match REGEX] [--show]

--show prints each message. Ends with 'N passed, N failed'."""
import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

TIME_LIMIT_S = 20
MEMORY_LIMIT = 8 << 30  # of address space: LLVM's libraries and the arena of every thread take a share

ERROR_ID = re.compile(r"\bTSR-\d{4}\b")


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def problems_of(case, done, module):
    found = []
    if done.returncode != 1:
        found.append(f"exit code {done.returncode}, not 1")
    ids = ERROR_ID.findall(done.stderr)
    if not ids:
        found.append("no error id on stderr")
    elif case["id"] and ids[0] != case["id"]:
        found.append(f"id {ids[0]}, not {case['id']}")
    for text in case["mentions"]:
        if text not in done.stderr:
            found.append(f"the message does not mention '{text}'")
    if module.exists():
        found.append("left a module behind")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--match", default="")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--no-memory-limit", action="store_true", help="for sanitizers, which reserve address space")
    args = parser.parse_args()
    passed = failed = 0
    for case in json.loads((args.folder / "index.json").read_text()):
        if not re.search(args.match, case["name"]):
            continue
        with tempfile.TemporaryDirectory() as out:
            module = pathlib.Path(out, "module.so")
            command = [args.tessera, "compile", str(args.folder / case["name"] / "model.onnx"), "-o", str(module)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S,
                                      preexec_fn=None if args.no_memory_limit else limit_memory)
                found = problems_of(case, done, module)
                message = done.stderr.strip()
            except subprocess.TimeoutExpired:
                found, message = [f"still running after {TIME_LIMIT_S} s"], ""
        passed, failed = passed + (not found), failed + bool(found)
        if found or args.show:
            print(f"{'FAIL' if found else 'ok'} {case['name']} ({case['wrong']}): {'; '.join(found)}")
            print("    " + message.replace("\n", "\n    ")[:1500])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
