#!/usr/bin/env python3
"""Compiles every model of make_bad_models.py and checks that each is refused as promised: exit code 1 in good time and
bounded memory, exactly the error on stderr that bad_models_messages.txt has for it, in which stand an id, what is legal, what to
do and the texts that the message must mention, and no module left behind.

    check_bad_models.py TESSERA FOLDER [--match REGEX] [--show] [--update]

--show prints each message; --update writes the messages that came into bad_models_messages.txt, to be read before they
are committed. Ends with 'N passed, N failed'."""
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

# Blocks "== NAME", then what stands on stderr, with {folder} for the model's folder.
MESSAGES = pathlib.Path(__file__).with_name("bad_models_messages.txt")
FORM = re.compile(r"^error TSR-\d{4}: .+\n(    .+\n)*(  node:  .+\n)?  legal: .+\n  hint:  .+\n$")


def read_messages():
    blocks = re.split(r"^== (\S+)\n", MESSAGES.read_text(), flags=re.MULTILINE) if MESSAGES.exists() else [""]
    return dict(zip(blocks[1::2], blocks[2::2]))


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def problems_of(case, done, message, expected, module):
    found = []
    if done.returncode != 1:
        found.append(f"exit code {done.returncode}, not 1")
    if not FORM.match(message):
        found.append("the message does not have an id, what is legal and what to do")
    for text in case["mentions"]:
        if text not in message:
            found.append(f"the message does not mention '{text}'")
    if message != expected:
        found.append(f"another message than in {MESSAGES.name}" if expected else f"no message in {MESSAGES.name}")
    if module.exists():
        found.append("left a module behind")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--match", default="")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--no-memory-limit", action="store_true", help="for sanitizers, which reserve address space")
    args = parser.parse_args()
    passed = failed = 0
    expected, got = read_messages(), {}
    for case in json.loads((args.folder / "index.json").read_text()):
        if not re.search(args.match, case["name"]):
            continue
        with tempfile.TemporaryDirectory() as out:
            module = pathlib.Path(out, "module.so")
            command = [args.tessera, "compile", str(args.folder / case["name"] / "model.onnx"), "-o", str(module)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S,
                                      preexec_fn=None if args.no_memory_limit else limit_memory)
                message = done.stderr.replace(str(args.folder / case["name"]), "{folder}")
                got[case["name"]] = message
                wanted = message if args.update else expected.pop(case["name"], None)
                found = problems_of(case, done, message, wanted, module)
            except subprocess.TimeoutExpired:
                found, message = [f"still running after {TIME_LIMIT_S} s"], ""
        passed, failed = passed + (not found), failed + bool(found)
        if found or args.show:
            print(f"{'FAIL' if found else 'ok'} {case['name']} ({case['wrong']}): {'; '.join(found)}")
            print("    " + message.strip().replace("\n", "\n    ")[:1500])
    if args.update:
        kept = expected if args.match else {}
        MESSAGES.write_text("".join(f"== {name}\n{text}" for name, text in {**kept, **got}.items()))
    elif expected and not args.match:
        print(f"FAIL {MESSAGES.name} has messages of models that do not exist: {', '.join(expected)}")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
