#!/usr/bin/env python3
"""Runs PP-OCR's three networks in ONNX Runtime on what text_read gave to its own (--save-stages), checks that both come
to the same text, and puts the latency of each stage beside ours, measured in the same minute.

    page_beside_ort.py MODELS STAGES characters.txt [--rounds 3] [--repeat 5] [-- COMMAND...]

COMMAND runs our side: it reads the page {repeat} times on {threads} threads and prints a line of JSON with "median_ms"
of each stage. Without it only the check is done. Exit code 2 when the text or a network's output differs."""
import argparse
import pathlib
import statistics
import sys
import time

import numpy as np

import latency

MODELS = {
    "detector": "ch_PP-OCRv4_det_infer.onnx",
    "classifier": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "recogniser": "ch_PP-OCRv4_rec_infer.onnx",
}
SURE_OF_TURN = 0.9
# Relative to the largest output. The recogniser is badly conditioned where it is unsure of a letter: ONNX Runtime with
# and without its own optimiser is 4e-5 apart on a line of examples/text.png, its sums in another order 1.6e-4.
BOUNDS = {"detector": 1e-4, "classifier": 1e-4, "recogniser": 1e-3}


class Page:
    """The calls that were saved of each stage, in order: (input, our output)."""

    def __init__(self, folder):
        self.calls = {}
        for stage in MODELS:
            paths = sorted(pathlib.Path(folder).glob(f"{stage}_*_in.npy"), key=lambda path: int(path.stem.split("_")[1]))
            self.calls[stage] = [(np.load(path), np.load(str(path).replace("_in.npy", "_out.npy"))) for path in paths]
        if not self.calls["detector"]:
            sys.exit(f"there is no detector_0_in.npy in '{folder}'; text_read --save-stages writes it")


def decode(probabilities, letters):
    """Greedy CTC: (text, mean probability of its letters). `letters` without the blank, which is class 0."""
    steps = probabilities.reshape(-1, len(letters) + 1)
    best = steps.argmax(axis=1)
    keep = (best != 0) & (best != np.concatenate([[0], best[:-1]]))
    text = "".join(letters[i - 1] for i in best[keep])
    return text, float(steps.max(axis=1)[keep].mean()) if text else 0.0


def read_letters(path):
    return pathlib.Path(path).read_text(encoding="utf-8").splitlines() + [" "]


class Ort:
    """The three networks in ONNX Runtime, their shapes left open."""

    def __init__(self, models, threads):
        self.sessions = {
            stage: latency.OrtSession(pathlib.Path(models, name), {}, threads).session for stage, name in MODELS.items()
        }

    def run(self, stage, value):
        return self.sessions[stage].run(None, {"x": value})[0]

    def time_page(self, page):
        """Milliseconds of each stage for one page."""
        times = {}
        for stage, calls in page.calls.items():
            begin = time.perf_counter()
            for value, _ in calls:
                self.run(stage, value)
            times[stage] = (time.perf_counter() - begin) * 1e3
        return times


def compare(page, ort, letters):
    """Yields a sentence for each thing that differs. Largest differences are relative to the largest value."""
    worst = dict.fromkeys(MODELS, 0.0)
    for stage, calls in page.calls.items():
        for number, (value, got) in enumerate(calls):
            want = ort.run(stage, value)
            difference, magnitude = latency.largest_difference(got, want)
            worst[stage] = max(worst[stage], difference / magnitude)
            if not latency.agrees(got, want, BOUNDS[stage]):
                yield f"{stage}, line {number}: outputs differ by {difference:.2e}, largest value {magnitude:.3g}"
            if stage == "classifier" and (got[0, 1] > SURE_OF_TURN) != (want[0, 1] > SURE_OF_TURN):
                yield f"line {number} is upside down for one, not for the other: {got[0]}, {want[0]}"
            if stage == "recogniser":
                (text, confidence), (wanted, sure) = decode(got, letters), decode(want, letters)
                if text != wanted or abs(confidence - sure) > BOUNDS[stage]:
                    yield f"line {number}: '{text}' ({confidence:.5f}), ONNX Runtime '{wanted}' ({sure:.5f})"
    lines = len(page.calls["recogniser"])
    print(f"{lines} lines; largest difference of each network's outputs, relative to the largest value: "
          + ", ".join(f"{stage} {value:.1e}" for stage, value in worst.items()))


def time_both(page, models, command, rounds, repeat):
    print(f"{'threads':>7}  {'stage':<10} {'tessera ms':>10}  {'onnxruntime ms':>14}  {'speedup':>7}")
    for threads in sorted({1, latency.available_cpus()}):
        ort = Ort(models, threads)
        filled = [part.format(threads=threads, repeat=repeat) for part in command]
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(latency.run_json(filled)["median_ms"])
            all_times = [ort.time_page(page) for _ in range(1 + repeat)][1:]
            theirs.append({stage: statistics.median(times[stage] for times in all_times) for stage in MODELS})
            time.sleep(0.1)  # ONNX Runtime's threads go on spinning for a moment; the next round is ours
        total = [0.0, 0.0]
        for stage in MODELS:
            pair = [statistics.median(times[stage] for times in side) for side in (ours, theirs)]
            total = [a + b for a, b in zip(total, pair)]
            print(f"{threads:>7}  {stage:<10} {pair[0]:>10.2f}  {pair[1]:>14.2f}  {pair[1] / pair[0]:>7.2f}")
        print(f"{threads:>7}  {'all three':<10} {total[0]:>10.2f}  {total[1]:>14.2f}  {total[1] / total[0]:>7.2f}",
              flush=True)


def main():
    own, command = sys.argv[1:], []
    if "--" in own:
        command = own[own.index("--") + 1:]
        own = own[:own.index("--")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models")
    parser.add_argument("stages")
    parser.add_argument("letters")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args(own)

    page = Page(args.stages)
    complaints = list(compare(page, Ort(args.models, 0), read_letters(args.letters)))
    print("\n".join(complaints) if complaints else "the text, its confidence and its direction are the same: ok")
    if command:
        time_both(page, args.models, command, args.rounds, args.repeat)
    return 2 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
