#!/usr/bin/env python3
"""Holds the models of the suite (tests/models) against ONNX Runtime.

    suite_models.py TESSERA [--full] [--models NAME,...]

Agreement is that of model_runs.py, on seeded weights and inputs. --full or TESSERA_TEST_FULL=1: every model in every
configuration. Otherwise the quick models each compiled with -O3 and in one more configuration, and of the large ones
LARGE_SHARE a day the same way; what rotates is chosen by the date.
Of the others, at most 1.5 G multiply-adds are interpreted; reduced_models.py has larger models, made smaller.
"""
import os
import sys
import tempfile

import numpy as np
import onnx

import model_runs as runs

QUICK = ["squeezenet1_1", "mobilenet_v2", "mobilenet_v3_large", "shufflenet_v2_x1_0", "efficientnet_b0", "dcgan_gen",
         "lstm_2x256", "resnet18", "deeplabv3_mobilenet_v3", "densenet121"]
LARGE = ["resnet50", "bert_base", "inception_v3", "vit_b_16", "convnext_tiny", "gpt2_small", "swin_t", "vgg16"]
LARGE_SHARE = 2
INTERPRETED = {"squeezenet1_1", "mobilenet_v2", "mobilenet_v3_large", "shufflenet_v2_x1_0", "efficientnet_b0",
               "dcgan_gen", "lstm_2x256"}


def chosen(number, name, configurations):
    """The configurations of model `number`: all, or the first and one that rotates."""
    usable = [c for c in configurations if c[1] is not None or runs.is_full() or name in INTERPRETED]
    return usable if runs.is_full() else [usable[0], usable[1 + (runs.today() + number) % (len(usable) - 1)]]


def selection():
    if "--models" in sys.argv:
        names = sys.argv[sys.argv.index("--models") + 1].split(",")
        unknown = set(names) - set(QUICK + LARGE)
        if unknown:
            sys.exit(f"suite_models: no model is called {', '.join(sorted(unknown))}")
        return names
    if runs.is_full():
        return QUICK + LARGE
    begin = runs.today() * LARGE_SHARE
    return QUICK + [LARGE[(begin + i) % len(LARGE)] for i in range(LARGE_SHARE)]


def main():
    binary = os.path.abspath(sys.argv[1])
    if sorted(QUICK + LARGE) != runs.materialize.names():
        sys.exit("suite_models: the lists above and tests/models/skeletons differ")
    count = runs.Count()
    for number, name in enumerate(selection()):
        with tempfile.TemporaryDirectory() as work:
            model, feeds = runs.suite_model(name)
            path = f"{work}/{name}.onnx"
            onnx.save(model, path)
            want = runs.onnx_runtime(path, feeds)
            if not all(np.ptp(w) > 0 for w in want):
                count.result(name, "the reference is constant: it cannot show an error")
            for configuration in chosen(number, name, runs.CONFIGURATIONS):
                runs.check_configuration(binary, name, path, [], configuration, [(feeds, want)], work, count)
    return count.exit_code()


if __name__ == "__main__":
    sys.exit(main())
