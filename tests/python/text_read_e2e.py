#!/usr/bin/env python3
"""Reading as a test: compiles PP-OCR's three networks, lets the example program read examples/text.png, and checks
- every network's output, every line's text, confidence and direction against ONNX Runtime on the same inputs,
- the text against what make_text_picture.py wrote there, the boxes against tests/python/text_boxes.json,
- the same page upside down, and what is said about pictures and folders that will not do.

    text_read_e2e.py TESSERA TEXT_DETECT TEXT_READ MODELS

Exit code 77: skipped."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import page_beside_ort
from verify_cases import matrix_flags

PICTURE = ROOT / "examples/text.png"
BOXES = pathlib.Path(__file__).with_name("text_boxes.json")
WIDTHS = (320, 640)
# In reading order. The recogniser often leaves out a space, in ONNX Runtime too, so that spaces do not count.
TRUTH = """HARBOUR LIBRARY|Tessera|Opening hours in winter|carved in wood|Monday to Thursday|9:00 - 19:30|Friday|9:00 - 17:00
Saturday|10:00 - 14:00|CAFE NORD|Coffee|Sunday|closed|Rye bread|2.80|Apple cake|3.20
Please return books through the slot beside the door|4.10|when the building is closed. Thank you!|TOTAL|10.10
phone 0471 - 220 86|2024-11-08 16:42""".replace("\n", "|").split("|")
THREADS = os.environ.get("TESSERA_TEST_THREADS", "0")


def without_spaces(texts):
    return [text.replace(" ", "") for text in texts]


def compile_all(tessera, text_detect, models, folder):
    shape = subprocess.run([text_detect, "--print-shape", PICTURE], check=True, capture_output=True,
                           text=True).stdout.strip()
    shutil.copy(models / "characters.txt", folder)
    todo = {"detector": ("detector", shape), "classifier": ("classifier", "1x3x48x192")}
    todo.update({f"recogniser_{width}": ("recogniser", f"1x3x48x{width}") for width in WIDTHS})
    for name, (stage, dims) in todo.items():
        subprocess.run([tessera, "compile", models / page_beside_ort.MODELS[stage], "-o", folder / f"{name}.so", "--quiet",
                        "--shape", f"x={dims}", *matrix_flags()], check=True)


def read(text_read, folder, picture, *options):
    done = subprocess.run([text_read, folder, picture, "--json", "--repeat", "1", "--threads", THREADS, *options],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["lines"]


def check_page(text_read, folder, models, scratch):
    drawn, stages = scratch / "page.png", scratch / "stages"
    lines = read(text_read, folder, PICTURE, "--save-stages", stages, "--out", drawn)
    page, letters = page_beside_ort.Page(stages), page_beside_ort.read_letters(models / "characters.txt")
    complaints = list(page_beside_ort.compare(page, page_beside_ort.Ort(models, 0), letters))
    assert not complaints, "\n".join(complaints)
    # compare() decoded our outputs by itself; the program must have come to the same.
    for line, (_, output) in zip(lines, page.calls["recogniser"], strict=True):
        text, confidence = page_beside_ort.decode(output, letters)
        assert (line["text"], round(line["confidence"], 4)) == (text, round(confidence, 4)), (line, text, confidence)

    assert without_spaces(line["text"] for line in lines) == without_spaces(TRUTH), [line["text"] for line in lines]
    assert min(line["confidence"] for line in lines) > 0.9
    assert not any(line["turned"] for line in lines)
    boxes = sorted(line["box"] for line in lines)
    expected = sorted(line["box"] for line in json.loads(BOXES.read_text()))
    assert np.abs(np.array(boxes) - np.array(expected)).max() <= 1, boxes
    long_line = next(line for line in lines if line["text"].startswith("Please"))
    assert long_line["recogniser_width"] == max(WIDTHS), "the longest line went to a narrow recogniser"

    pixels, source = np.asarray(Image.open(drawn)), np.asarray(Image.open(PICTURE).convert("RGB"))
    assert pixels.shape == (source.shape[0], 2 * source.shape[1], 3), pixels.shape
    right = pixels[:, source.shape[1]:]
    for line in lines:
        left, top = np.min(line["box"], axis=0).astype(int)
        far, low = np.max(line["box"], axis=0).astype(int)
        assert (right[top:low, left:far] < 100).all(axis=2).sum() > 20, f"no ink where '{line['text']}' should be"


def check_upside_down(text_read, folder, scratch):
    picture = scratch / "turned.png"
    Image.open(PICTURE).convert("RGB").rotate(180).save(picture)
    lines = read(text_read, folder, picture)
    turned = [line for line in lines if line["turned"]]
    # The classifier is a small network: it may miss a line of a few letters.
    assert len(turned) >= len(TRUTH) - 3, [line["text"] for line in lines if not line["turned"]]
    found = set(without_spaces(line["text"] for line in turned)) & set(without_spaces(TRUTH))
    assert len(found) >= len(TRUTH) - 4, sorted(found)
    print(f"upside down: {len(turned)} of {len(lines)} lines turned, {len(found)} of them read without a mistake")


def check_errors(text_read, folder, scratch):
    not_picture, small = scratch / "no.png", scratch / "small.png"
    not_picture.write_text("this is text")
    Image.new("RGB", (100, 80)).save(small)
    empty, swapped = scratch / "empty", scratch / "swapped"
    empty.mkdir()
    shutil.copytree(folder, swapped)
    (swapped / "characters.txt").write_text("a\nb\n")
    cases = [
        ([folder, scratch / "none.png"], f"cannot read '{scratch / 'none.png'}': No such file or directory"),
        ([folder, not_picture], f"'{not_picture}' is neither a PNG nor a JPEG nor a BMP file"),
        ([folder, small], "was compiled for an input of 1x3x736x992, but this picture needs 1x3x736x928; compile it with "
                          "--shape x=1x3x736x928"),
        ([empty, PICTURE], f"'{empty}/detector.so'"),
        ([swapped, PICTURE], "is it PP-OCR's recogniser, and characters.txt its 2 letters?"),
        ([folder, PICTURE, "--out", scratch / "x.png", "--font", not_picture], f"cannot read a font from '{not_picture}'"),
        ([folder], "expected a folder and a picture, got 1 names"),
        ([folder, PICTURE, "--repeat", "0"], "--repeat wants a number from 1 to 100000, got '0'"),
        ([folder, PICTURE, "--sideways"], "unknown option '--sideways'"),
    ]
    for arguments, message in cases:
        done = subprocess.run([text_read, *arguments], capture_output=True, text=True)
        assert done.returncode == 1, (arguments, done)
        assert done.stderr.startswith("text_read: error: ") and message in done.stderr, (message, done.stderr)


def main():
    tessera, text_detect, text_read = sys.argv[1:4]
    models = pathlib.Path(sys.argv[4])
    for name in [*page_beside_ort.MODELS.values(), "characters.txt"]:
        if not (models / name).is_file():
            print(f"skipped: there is no {models / name}; scripts/setup.sh fetches it")
            return 77
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        folder = scratch / "reader"
        folder.mkdir()
        compile_all(tessera, text_detect, models, folder)
        check_page(text_read, folder, models, scratch)
        check_upside_down(text_read, folder, scratch)
        check_errors(text_read, folder, scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
