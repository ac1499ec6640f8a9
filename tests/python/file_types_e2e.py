#!/usr/bin/env python3
"""magika's network compiled, in examples/file_types, beside the Python package of magika itself: labels, scores, reasons
and descriptions must be equal for many files, in all three modes.

    file_types_e2e.py TESSERA FILE_TYPES PACKAGE_PARENT

PACKAGE_PARENT has the unpacked package. Exit code 77: skipped."""
import gzip
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import numpy as np
from PIL import Image

from verify_cases import matrix_flags

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of a probability. The model's normalisations subtract large sums from each other: ONNX Runtime's own answers for one
# file alone and for the same file eight times in a batch are 4e-4 apart.
SCORE_BOUND = 1e-3


def zip_of(names):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, name * 50)
    return out.getvalue()


def picture(kind):
    out = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 255, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def tar_of(names):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = len(name)
            archive.addfile(entry, io.BytesIO(name.encode()))
    return out.getvalue()


def npy():
    out = io.BytesIO()
    np.save(out, np.arange(20))
    return out.getvalue()


def made_files():
    """Names and contents: every way around the network, and around the edges of blocks."""
    random = np.random.default_rng(7)
    python = (ROOT / "scripts/page_beside_ort.py").read_bytes()
    files = {
        "empty": b"", "one": b"x", "seven": b"1234567", "eight": b"12345678", "seven_broken": b"\xff\xfe123\x80\x81",
        "seven_utf8": "äöü".encode(), "spaces": b" " * 50, "space_block": b"\n" * 4096 + python,
        "space_before": b"\t\r\n \v\f" * 30 + python, "space_after": python + b" \n" * 3000,
        "few_after_strip": b"  \n" * 20 + b"abc", "seven_after_strip": b" " * 9 + b"abcdefg" + b" " * 9,
        "eight_after_strip": b" " * 9 + b"abcdefgh" + b" " * 9, "cut_letter": b" " * 4095 + "é".encode() + b"rest of it",
        "nul": b"\0" * 5000, "nul_padded": python + b"\0" * 5000,
        "json": json.dumps({"name": "tessera", "list": list(range(50)), "nested": {"a": None}}, indent=1).encode(),
        "jsonl": b"".join(json.dumps({"id": i, "text": "abc"}).encode() + b"\n" for i in range(30)),
        "csv": b"name,age,city\n" + b"".join(b"n%d,%d,Town %d\n" % (i, i * 3, i % 5) for i in range(60)),
        "tsv": b"name\tage\tcity\n" + b"".join(b"n%d\t%d\tTown %d\n" % (i, i * 3, i % 5) for i in range(60)),
        "html": b"<!DOCTYPE html><html><head><title>t</title></head><body><p>Hello</p></body></html>\n",
        "xml": b"<?xml version='1.0'?><root><item id='1'>x</item></root>\n",
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><circle r='4'/></svg>\n",
        "ini": b"[section]\nkey = value\nother = 12\n; comment\n[next]\na=b\n",
        "yaml": b"name: ci\non: [push]\njobs:\n  build:\n    runs-on: linux\n    steps:\n      - run: make\n",
        "toml": b"[project]\nname = 'x'\nversion = '1.0'\ndependencies = ['a', 'b>=2']\n",
        "sql": b"SELECT a, b FROM t WHERE a > 3 ORDER BY b;\nINSERT INTO t VALUES (1, 2);\n",
        "rust": b"fn main() {\n    let x: Vec<u32> = (0..3).collect();\n    println!(\"{:?}\", x);\n}\n",
        "latex": b"\\documentclass{article}\n\\begin{document}\nHello $x^2$\n\\end{document}\n",
        "diff": b"--- a/x.c\n+++ b/x.c\n@@ -1,3 +1,3 @@\n int a;\n-int b;\n+int c;\n",
        "german": "Der Zug fährt morgen früh um sieben Uhr, wenn er nicht ausfällt.\n".encode() * 4,
        "latin1": "Grüße aus Köln, schöne Straßen überall".encode("latin-1") * 3,
        "utf16": "Some text in another encoding, and more of it\n".encode("utf-16"),
        "png": picture("PNG"), "jpeg": picture("JPEG"), "gif": picture("GIF"), "bmp": picture("BMP"),
        "tiff": picture("TIFF"), "webp": picture("WEBP"), "pdf": picture("PDF"), "ico": picture("ICO"),
        "zip": zip_of(["a.txt", "b/c.txt"]), "jar": zip_of(["META-INF/MANIFEST.MF", "A.class"]),
        "docx": zip_of(["[Content_Types].xml", "word/document.xml", "_rels/.rels"]),
        "gz": gzip.compress(python, mtime=0), "tar": tar_of(["a", "b/c"]), "npy": npy(),
        "big_text": python * 200, "big_random": random.bytes(3_000_000), "cut_png": picture("PNG")[:60],
        "png_then_text": picture("PNG") + python,
    }
    for size in (8, 9, 100, 1023, 1024, 1025, 2048, 4095, 4096, 4097, 8191, 8192, 8193):
        files[f"text_{size}"] = (python * 2)[:size]
        files[f"random_{size}"] = random.bytes(size)
        files[f"letters_{size}"] = bytes(random.integers(97, 123, size, dtype=np.uint8))
    return files


def folder_of_files(folder):
    for name, content in made_files().items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("json")
    (folder / "link_to_folder").symlink_to("folder")
    os.mkfifo(folder / "fifo")
    return sorted(folder.iterdir())


def ours(file_types, module, package, paths, *options):
    done = subprocess.run([file_types, module, package, "--json", *options, *paths], check=True, capture_output=True,
                          text=True)
    return json.loads(done.stdout)


def check(program, paths, mode, no_dereference):
    from magika import Magika, PredictionMode

    magika = Magika(prediction_mode=PredictionMode(mode), no_dereference=no_dereference)
    theirs = [magika.identify_path(path) for path in paths]
    options = ["--mode", mode.replace("_", "-")] + ["--no-dereference"] * no_dereference
    answers = ours(*program, paths, *options)
    labels, asked, worst = set(), 0, 0.0
    for path, got, result in zip(paths, answers, theirs, strict=True):
        assert result.ok, (path, result.status)
        want, dl, output = result.prediction, result.dl, result.output
        expected = (str(path), str(output.label), str(dl.label), str(want.overwrite_reason), output.description, output.group,
                    output.mime_type, output.is_text)
        found = tuple(got[key] for key in ("path", "label", "network_label", "reason", "description", "group", "mime_type",
                                           "is_text"))
        assert found == expected, f"{found}\n{expected}"
        worst = max(worst, abs(got["score"] - want.score))
        assert worst <= SCORE_BOUND, (path, got["score"], want.score)
        labels.add(found[1])
        asked += dl.label != "undefined"
    print(f"{mode}: {len(paths)} files, the network asked about {asked}, {len(labels)} labels, largest difference of a "
          f"score {worst:.1e}: as the package says")
    return labels


def check_errors(file_types, module, package, scratch):
    text = scratch / "some.txt"
    text.write_text("hello world, this is text\n")
    run = lambda *arguments: subprocess.run([file_types, *arguments], capture_output=True, text=True)

    done = run(module, package, scratch / "none", text, scratch / "b" / "c")
    assert done.returncode == 1, done
    assert done.stdout.startswith(f"{text}: "), done.stdout
    assert done.stderr == "".join(
        f"file_types: error: cannot read '{path}': No such file or directory\n"
        for path in (scratch / "none", scratch / "b" / "c")
    ), done.stderr
    for arguments, message in [
        ([module, package], "expected a module, a package folder, and at least one file"),
        ([module, scratch, text], f"there is no config.min.json in a folder of '{scratch}/models'"),
        ([text, package, text], f"'{text}'"),
        ([module, package, text, "--mode", "guess"], "--mode wants high-confidence, medium-confidence or best-guess"),
        ([module, package, text, "--fast"], "unknown option '--fast'"),
    ]:
        done = run(*arguments)
        assert done.returncode == 1 and message in done.stderr, (message, done)


def main():
    tessera, file_types = sys.argv[1:3]
    parent = pathlib.Path(sys.argv[3])
    package = parent / "magika"
    models = sorted(package.glob("models/*/model.onnx"))
    if not models:
        print(f"skipped: there is no {package}/models/*/model.onnx; scripts/setup.sh fetches it")
        return 77
    sys.path.insert(0, str(parent))
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        module, made = scratch / "magika.so", scratch / "files"
        subprocess.run([tessera, "compile", models[0], "-o", module, "--quiet", "--shape", "bytes=1x2048", *matrix_flags()],
                       check=True)
        made.mkdir()
        paths = folder_of_files(made)
        # Fuzz seeds are bytes of no file type: two labels of one of them share the first place to within 1e-6 of rounding.
        listed = subprocess.run(["git", "ls-files", "-z", ":!tests/fuzz/seeds"], cwd=ROOT, capture_output=True)
        sources = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name] if listed.returncode == 0 else []
        paths += [path for path in sources if path.exists()][::4] or sorted((ROOT / "examples").rglob("*"))
        paths += [pathlib.Path(tessera), module, models[0]]
        program = (file_types, module, package)
        labels = check(program, paths, "high_confidence", False)
        assert {"empty", "directory", "txt", "unknown", "png", "python", "elf", "zip", "cpp", "json"} <= labels, labels
        check(program, paths, "medium_confidence", True)
        check(program, paths, "best_guess", False)
        check_errors(file_types, module, package, scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
