#!/usr/bin/env python3
"""Writes ONNX models that must be refused with one clear error, and the list of what is wrong with each.

    make_bad_models.py --out DIR

DIR/NAME/model.onnx (and what lies beside it), DIR/index.json: a list of {"name", "wrong", "mentions"}: what is wrong in
words, and texts that the error message must contain (the node's name, say). The models are in bad_models.py, the
messages in bad_models_messages.txt."""
import argparse
import json
import pathlib
import shutil

import bad_models


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    index = []
    for case in bad_models.cases():
        folder = args.out / case.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(case.data)
        for name, data in case.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for name, target in case.links.items():
            (folder / name).symlink_to(target)
        index.append({"name": case.name, "wrong": case.wrong, "mentions": case.mentions})
    (args.out / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    print(f"make_bad_models: {len(index)} models in {args.out}")


if __name__ == "__main__":
    main()
