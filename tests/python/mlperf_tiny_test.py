#!/usr/bin/env python3
"""MLPerf Tiny's networks on the samples with known answers that are in the shared data, beside the closed division's quality
targets. Of the rules (mlcommons/tiny, benchmark/MLPerfTiny_Rules.adoc, version 1.2), "Constraints for the Closed division":

    Keyword Spotting      Speech Commands            DS-CNN       90% (Top 1)
    Visual Wake Words     Visual Wake Words Dataset  MobileNet    80% (Top 1)
    Image Classification  Cifar10                    ResNet       85% (Top 1)
    Streaming Wakeword    Custom                     1D DS-CNN    <= 8 FP, <= 8 FN

The division's own samples are not here: six photographs each stand for the pictures of the second and third, so that one
wrong answer is 17 %, and what counts is the target's share of them, rounded down. For the wake word there are 45 recordings.
Of spoken words there are none: keyword spotting has to answer a recorded pattern as LiteRT's reference kernels do."""

import json
import math
import os
import pathlib
import sys
import unittest

import numpy as np

import tessera

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL = next((pathlib.Path(folder) / "real" for folder in (os.environ.get("TESSERA_TEST_DATA"), ROOT.parent / "shared")
             if folder and (pathlib.Path(folder) / "real").exists()), None)
OBJECTS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]  # of CIFAR-10
PERSONS = {"grace_hopper", "man_photo13", "group_photo16"}  # pictures that show one


def network(name):
    folder = REAL / f"mlperftiny-{name}"
    cases = json.loads((folder / "expected.json").read_text())["cases"]
    return folder, tessera.compile(str(folder / "model.tflite")), cases


def answers(name):
    """For each case its name, what the files say of it, and the class that the network answers and that LiteRT's did."""
    folder, model, cases = network(name)
    for case, about in cases.items():
        (found,) = model.run([np.load(folder / f"input_{case}_0.npy")])
        yield case, about, int(found[0].argmax()), int(np.load(folder / f"expected_{case}_0.npy")[0].argmax())


@unittest.skipUnless(REAL, "skipped: no folder 'real' in TESSERA_TEST_DATA or ../shared")
class QualityTargets(unittest.TestCase):
    def share_of_right_answers(self, name, truth, target):
        found = [(case, answer, truth(case, about)) for case, about, answer, _ in answers(name)]
        right = sum(answer == true for _, answer, true in found)
        print(f"{name}: {right} of {len(found)} right ({right / len(found):.0%}; target {target:.0%})")
        self.assertGreaterEqual(right, math.floor(target * len(found)), found)

    def test_image_classification(self):
        def truth(_, about):
            return OBJECTS.index(about["note"].split("true class ")[1].split(")")[0])

        for name in ("pretrainedResnet", "pretrainedResnet_quant", "pretrainedResnet_large_float", "pretrainedResnet_large_int8"):
            self.share_of_right_answers(name, truth, 0.85)

    def test_visual_wake_words(self):
        for name in ("vww_96_float", "vww_96_int8"):
            self.share_of_right_answers(name, lambda case, _: int(case in PERSONS), 0.80)

    def test_streaming_wakeword(self):
        folder, model, _ = network("str_ww_ref_model")
        samples = np.load(folder / "calibration_samples.npz")
        marvin = samples["labels"] == 0
        about = json.loads((folder / "expected.json").read_text())["inputs"][0]
        heard = []
        for sample in samples["specs"]:
            steps = np.round(sample.reshape(about["shape"]) / about["scale"]) + about["zero_point"]
            (found,) = model.run([np.clip(steps, -128, 127).astype(np.int8)])
            heard.append(int(found[0].argmax()) == 0)
        false_positives, false_negatives = int((np.array(heard) & ~marvin).sum()), int((~np.array(heard) & marvin).sum())
        print(f"str_ww_ref_model: {false_positives} false positives, {false_negatives} false negatives of {len(heard)}")
        self.assertLessEqual(false_positives, 8)
        self.assertLessEqual(false_negatives, 8)
        self.assertGreater(marvin.sum(), 8)  # otherwise nothing could fail

    def test_keyword_spotting(self):
        for name in ("kws_ref_model", "kws_ref_model_float32"):
            for case, _, found, of_reference in answers(name):
                self.assertEqual(found, of_reference, f"{name} {case}")


if __name__ == "__main__":
    if not REAL:
        print("skipped: no folder 'real' in TESSERA_TEST_DATA or ../shared")
        sys.exit(77)
    unittest.main()
