#!/usr/bin/env python3
"""Trained models learn what they do not know yet: a classifier of 28 x 28 digits those of 8 x 8, a face detector faces in the dark.

    PYTHONPATH=build/python examples/train_real/fine_tune.py digits MNIST.onnx DIGITS.npz
    PYTHONPATH=build/python examples/train_real/fine_tune.py faces ULTRAFACE.onnx INPUT.npy... [-o night.onnx]

Needs numpy, and Pillow for digits.
"""
import argparse

import numpy as np
import tessera


def digits(args):
    """Samples of another size, written by other people."""
    from PIL import Image

    with np.load(args.data[0]) as file:
        images, labels, train, test = (file[name] for name in ("images", "labels", "train_index", "test_index"))
    large = np.zeros((len(images), 1, 28, 28), np.float32)
    for number, image in enumerate(images):
        picture = Image.fromarray((image * 15.9).astype(np.uint8)).resize((20, 20), Image.Resampling.BICUBIC)
        large[number, 0, 4:24, 4:24] = np.asarray(picture, np.float32)
    model = tessera.compile(args.model, threads=args.threads)
    known = sum(int(model.run([large[[row]]])[0].argmax() == labels[row]) for row in test)
    print(f"before: {known} of {len(test)}")
    report = tessera.train(args.model, large[train], labels[train], args.output, test=(large[test], labels[test]), batch=1,
                           epochs=args.epochs, lr=1e-4, threads=args.threads, verbose=True)
    print(f"behind: {report['test_right']} of {report['test_total']}")


def faces(args):
    """What the detector says of a photo by day is what it should say of the photo at night: scores of 4,420 places."""
    detector = tessera.compile(args.model, threads=args.threads)
    days = [np.load(path) for path in args.data]
    scores = [detector.run([day])[0] for day in days]
    random = np.random.default_rng(0)

    def night(day):
        """Of a fifth to a third of the light, with the grain of a sensor."""
        dark = (day + 1) * random.uniform(0.2, 0.35) - 1
        return (dark + random.normal(0, 0.02, day.shape)).astype(np.float32)

    numbers = random.integers(0, len(days), 24 * len(days))
    nights = np.concatenate([night(days[number]) for number in numbers])
    wanted = np.concatenate([scores[number] for number in numbers])
    tests = [night(day) for day in days for _ in range(4)]
    of_tests = [of_day for of_day in scores for _ in range(4)]

    def found(model):
        pairs = ((model.run([dark])[0][0, :, 1] > 0.7, of_day[0, :, 1] > 0.7) for dark, of_day in zip(tests, of_tests))
        return sum(int((by_night & by_day).sum()) for by_night, by_day in pairs)

    by_day = sum(int((of_day[0, :, 1] > 0.7).sum()) for of_day in of_tests)
    before = found(detector)
    output = args.output or "faces_at_night.onnx"
    report = tessera.train(args.model, nights, wanted, output, test=(np.concatenate(tests), np.concatenate(of_tests)), loss="mse", lr=2e-5,
                           batch=1, epochs=args.epochs, threads=args.threads, verbose=True)
    now = found(tessera.compile(output, threads=args.threads))
    print(f"places with a face that it finds at night: {before} before, {now} now, of {by_day} by day")
    print(f"test loss {report['test_loss']:.6f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("digits", "faces"))
    parser.add_argument("model")
    parser.add_argument("data", nargs="+")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", help="write the model that has learnt")
    args = parser.parse_args()
    {"digits": digits, "faces": faces}[args.what](args)


if __name__ == "__main__":
    main()
