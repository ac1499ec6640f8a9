#!/usr/bin/env python3
"""ResNet-18 or MobileNet V2, at 32 x 32, learn which photo a piece was cut out of; tested on other pieces.

    PYTHONPATH=build/python examples/train_real/pictures.py FOLDER [--model resnet18|mobilenet_v2] [--epochs 8] [-o net.onnx]

FOLDER has photos (.jpg, .bmp, .png; masks aside). Needs numpy and Pillow.
"""
import argparse
import pathlib

import numpy as np
import tessera
from PIL import Image
from tessera import nn

SIZE, CUTS, TESTS = 32, 160, 40  # pixels of a piece; pieces of a photo that train, and that test


class Block(nn.Module):
    """Two 3x3 convolutions beside what they add to."""

    def __init__(self, inside, outside, stride):
        self.first, self.norm1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.second, self.norm2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        changes = stride != 1 or inside != outside
        self.beside = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)) if changes else None
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.norm2(self.second(self.relu(self.norm1(self.first(x)))))
        return self.relu(y + (self.beside(x) if self.beside else x))


class Inverted(nn.Module):
    """Wide, depthwise, narrow."""

    def __init__(self, inside, outside, stride, widening):
        wide = inside * widening
        self.body = nn.Sequential(
            nn.Conv2d(inside, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU(),
            nn.Conv2d(wide, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )  # fmt: skip
        self.adds = stride == 1 and inside == outside

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def resnet18(classes):
    blocks, inside = [], 64
    for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [Block(inside, outside, stride), Block(outside, outside, 1)]
        inside = outside
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *blocks, nn.AvgPool2d(4), nn.Flatten(),
                         nn.Linear(512, classes))


def mobilenet_v2(classes):
    blocks, inside = [], 32
    shapes = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for widening, outside, count, stride in shapes:
        for number in range(count):
            blocks.append(Inverted(inside, outside, 1 if number else stride, widening))
            inside = outside
    return nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), *blocks, nn.Conv2d(320, 1280, 1, bias=False),
                         nn.BatchNorm2d(1280), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(1280, classes))


def pieces(photo, count, random):
    """Squares of various sizes, some of them turned round."""
    found = []
    for _ in range(count):
        side = int(random.integers(48, 113))
        left, top = int(random.integers(0, photo.width - side + 1)), int(random.integers(0, photo.height - side + 1))
        piece = photo.crop((left, top, left + side, top + side)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        piece = np.asarray(piece, np.float32) / 127.5 - 1
        found.append((piece[:, ::-1] if random.integers(2) else piece).transpose(2, 0, 1))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", choices=("resnet18", "mobilenet_v2"), default="resnet18")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--photos", type=int, default=100, help="of them at most")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", help="write the trained model")
    args = parser.parse_args()

    random = np.random.default_rng(0)
    kinds = (".jpg", ".bmp", ".png")
    paths = sorted(path for path in args.folder.iterdir() if path.suffix in kinds and "mask" not in path.stem)[:args.photos]
    train, test = [], []
    for number, path in enumerate(paths):
        photo = Image.open(path).convert("RGB")
        photo = photo.resize((320, max(160, 320 * photo.height // photo.width)))
        train += [(piece, number) for piece in pieces(photo, CUTS, random)]
        test += [(piece, number) for piece in pieces(photo, TESTS, random)]
    x, x_test = (np.stack([piece for piece, _ in part]) for part in (train, test))
    y, y_test = (np.array([number for _, number in part]) for part in (train, test))
    print(f"{len(x)} pieces of {len(paths)} photos for training, {len(x_test)} for testing")

    nn.manual_seed(1)
    model = {"resnet18": resnet18, "mobilenet_v2": mobilenet_v2}[args.model](len(paths))
    graph = tessera.capture(model.eval(), np.zeros((32, 3, SIZE, SIZE), np.float32))
    report = tessera.train(graph, x, y, args.output, test=(x_test, y_test), epochs=args.epochs, lr=5e-4, schedule="cosine",
                           optimizer="adamw", weight_decay=0.01, threads=args.threads, verbose=True)
    print(f"right: {report['test_right']} of {report['test_total']}, chance {report['test_total'] // len(paths)}")


if __name__ == "__main__":
    main()
