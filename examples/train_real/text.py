#!/usr/bin/env python3
"""A character LSTM, or a small GPT, learns English: a compiled training step, the loss on text that it has not seen, and text that it
writes.

    PYTHONPATH=build/python examples/train_real/text.py FOLDER [--model lstm|gpt] [--steps 600] [--curve loss.png]

FOLDER has train.txt and test.txt, plain text. Needs numpy, and matplotlib for the curve.
"""
import argparse
import math
import pathlib
import time

import numpy as np
import tessera
from tessera import nn, optim

LENGTH, BATCH = 64, 16  # characters of a sample, samples of a step


class CharacterLstm(nn.Module):
    """One character after the other, through two LSTM layers."""

    def __init__(self, letters, width=192):
        self.embedding, self.head = nn.Embedding(letters, width), nn.Linear(width, letters)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)

    def forward(self, places):
        return self.head(self.lstm(self.embedding(places))[0])


class Attention(nn.Module):
    """Several heads; each character sees itself and those before it."""

    def __init__(self, width, heads):
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mask = np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads).transpose(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        scores = q @ k.transpose(0, 1, 3, 2) * (1 / math.sqrt(width // self.heads)) + self.mask[:length, :length]
        return self.out((scores.softmax() @ v).transpose(0, 2, 1, 3).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.other_norm, self.gelu = nn.LayerNorm(width), nn.GELU()
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.narrow(self.gelu(self.wide(self.other_norm(x))))


class Gpt(nn.Module):
    def __init__(self, letters, width=128, heads=4, layers=3):
        self.embedding, self.norm, self.head = nn.Embedding(letters, width), nn.LayerNorm(width), nn.Linear(width, letters)
        self.places = nn.Parameter(0.02 * np.random.default_rng(1).standard_normal((LENGTH, width), np.float32))
        self.blocks = [Block(width, heads) for _ in range(layers)]

    def forward(self, places):
        x = self.embedding(places) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model, text, targets):
    scores = model(text)
    return nn.CrossEntropyLoss()(scores.reshape(-1, scores.shape[-1]), targets.reshape(-1))


def samples(text, count, random):
    """Pieces of the text, and the same one character on."""
    begins = random.integers(0, len(text) - LENGTH - 1, count)
    places = begins[:, None] + np.arange(LENGTH)
    return text[places], text[places + 1]


def write(scores, letters, begin, count, random, temperature=0.7):
    """Goes on behind `begin`, one character at a time."""
    text = list(begin)
    for _ in range(count):
        last = text[-LENGTH:]
        places = np.zeros((1, LENGTH), np.int64)
        places[0, :len(last)] = [letters.index(letter) for letter in last]
        of_next = scores.run([places])[0][0, len(last) - 1].astype(np.float64) / temperature
        chances = np.exp(of_next - of_next.max())
        text.append(letters[random.choice(len(letters), p=chances / chances.sum())])
    return "".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", choices=("lstm", "gpt"), default="gpt")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--curve", help="draw the loss of every step: PNG, SVG")
    args = parser.parse_args()

    texts = [(args.folder / f"{name}.txt").read_text(errors="replace") for name in ("train", "test")]
    letters = sorted(set(texts[0]))
    place = {letter: number for number, letter in enumerate(letters)}
    train, test = (np.array([place[letter] for letter in text if letter in place]) for text in texts)
    nn.manual_seed(1)
    model = (CharacterLstm if args.model == "lstm" else Gpt)(len(letters))
    optimizer = optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)

    @tessera.training_step(threads=args.threads)
    def step(text, targets, rate):
        optimizer.lr = rate
        optimizer.zero_grad()
        loss = loss_of(model, text, targets)
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    random = np.random.default_rng(2)
    losses, begin = [], time.perf_counter()
    for number in range(args.steps):
        rate = 2e-3 * min(1, (number + 1) / 50) * (0.1 + 0.45 * (1 + math.cos(math.pi * number / args.steps)))
        losses.append(float(step(*samples(train, BATCH, random), np.float64(rate))))
        if (number + 1) % max(args.steps // 10, 1) == 0:
            speed = (number + 1) / (time.perf_counter() - begin)
            print(f"step {number + 1:5}/{args.steps}  loss {np.mean(losses[-20:]):.3f}  {speed:.1f} steps/s", flush=True)
    step.to_tensors()

    text, targets = samples(test, 256, np.random.default_rng(3))
    graph = tessera.capture(lambda text, targets: loss_of(model, text, targets), text, targets)
    of_test = float(tessera.compile(graph, threads=args.threads).run([text, targets])[0])
    print(f"test loss {of_test:.3f}: {math.exp(of_test):.1f} characters to choose from, of {len(letters)}")
    if args.curve:
        tessera.plots.draw_losses(args.curve, f"{args.model}: loss", losses)
    scores = tessera.compile(tessera.capture(model, np.zeros((1, LENGTH), np.int64)), threads=args.threads)
    print(write(scores, letters, "The ", 240, np.random.default_rng(4)))


if __name__ == "__main__":
    main()
