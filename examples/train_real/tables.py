#!/usr/bin/env python3
"""Classifiers of small tables: logistic regression and a network with a hidden layer, beside scikit-learn's on the same rows.

    PYTHONPATH=build/python examples/train_real/tables.py FOLDER...      each with an .npz of features, labels and a split

Needs numpy and scikit-learn.
"""
import argparse
import pathlib
import time
import warnings

import numpy as np
import tessera
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from tessera import nn


def network(features, classes, hidden):
    nn.manual_seed(1)
    layers = [nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes)] if hidden else [nn.Linear(features, classes)]
    return tessera.capture(nn.Sequential(*layers), np.zeros((12, features), np.float32))


def ours(data, hidden):
    (x, y), (x_test, y_test) = data
    begin = time.perf_counter()
    report = tessera.train(
        network(x.shape[1], y.max() + 1, hidden), x, y, test=(x_test, y_test), epochs=120, lr=0.02, schedule="cosine", weight_decay=1e-4,
        optimizer="adamw", threads=1,
    )
    return report["test_right"], time.perf_counter() - begin


def theirs(data, hidden):
    (x, y), (x_test, y_test) = data
    begin = time.perf_counter()
    model = MLPClassifier((hidden,), learning_rate_init=0.02, max_iter=120, random_state=1) if hidden else LogisticRegression(max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    return int((model.predict(x_test) == y_test).sum()), time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    print(f"{'table':15} {'model':12} {'right of':>8} {'tessera':>8} {'scikit-learn':>12}   seconds")
    for folder in args.folders:
        (path,) = folder.glob("*.npz")
        with np.load(path) as file:
            x, y, train, test = (file[name] for name in ("features", "labels", "train_index", "test_index"))
        x = ((x - x[train].mean(0)) / x[train].std(0)).astype(np.float32)
        data = (x[train], y[train]), (x[test], y[test])
        for name, hidden in (("logistic", 0), ("32 hidden", 32)):
            (right, seconds), (other, other_seconds) = ours(data, hidden), theirs(data, hidden)
            print(f"{folder.name:15} {name:12} {len(test):8} {right:8} {other:12}   {seconds:.2f}, {other_seconds:.2f}")


if __name__ == "__main__":
    main()
