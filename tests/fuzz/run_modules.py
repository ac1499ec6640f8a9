#!/usr/bin/env python3
"""Compiles the models in seeds/onnx for the fuzz target `run`, and writes an input for each module (DIR/seeds).

    run_modules.py TESSERA --out DIR

A second call with the same compiler and the same models does nothing."""
import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import subprocess
import sys

MODELS = pathlib.Path(__file__).resolve().parent / "seeds" / "onnx"


def hash_of(name):
    """The same as in targets/run_fuzz.cpp."""
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 % 2**32
    return (value ^ value >> 16) % 2**16


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    models = sorted(MODELS.glob("*.onnx"))
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes() + args.tessera.read_bytes())
    for model in models:
        digest.update(model.name.encode() + model.read_bytes())
    stamp = args.out / "made-of"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return 0
    (args.out / "seeds").mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    for old in [*args.out.glob("*.so"), *(args.out / "seeds").iterdir()]:
        old.unlink()

    def compile_model(model):
        module = args.out / f"{model.stem}.so"
        return subprocess.run([args.tessera, "compile", model, "-o", module, "--threads", "1"], capture_output=True,
                              text=True)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [f"{model.name}: {done.stderr}" for model, done in zip(models, pool.map(compile_model, models))
                  if done.returncode != 0]
    if failed:
        print("\n".join(failed))
        return 1
    for model in models:
        chosen = hash_of(model.stem).to_bytes(2, "little")
        for number, rest in enumerate((b"\0\0" + bytes(range(3, 43)), b"\0\4\x0f" + bytes(range(90, 250, 3)) * 2)):
            (args.out / "seeds" / f"{model.stem}-{number}").write_bytes(chosen + rest)
    stamp.write_text(digest.hexdigest())
    print(f"{len(models)} modules in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
