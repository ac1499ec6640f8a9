#!/usr/bin/env python3
"""Tensors whose shapes only a run knows: small models in which a mask, or boxes that survive a suppression, decide how many
elements there are, and shapes, ranges and pads that are values. ONNX Runtime's results for none, one, some and all, by
compiled code at -O3 and -O0 and by the interpreter; and runs that must end with an error.

    check_open_values.py TESSERA [--match REGEX] [--keep DIR]"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx.parser
import onnxruntime

import case_folder

HEADER = '<ir_version: 10, opset_import: ["": 18]>\n'
RNG = np.random.default_rng(1)
N = 9
MASKS = [np.zeros(N, bool), np.arange(N) == 4, RNG.random(N) < 0.5, np.ones(N, bool)]
X = RNG.random((N, 6), dtype=np.float32)


def chosen(text, *others):
    """A model on the rows r [n,6] of x at which the mask m holds."""
    text = text.replace("{rows}", "t = NonZero(m)\n i = Transpose<perm=[1,0]>(t)\n r = GatherND(x, i)\n")
    return "m (bool[9] m, float[9,6] x" + text, [[mask, X, *others] for mask in MASKS]


def number(value, dtype=np.int64):
    return np.array(value, dtype)


def ints(*values):
    return np.array(values, np.int64)


def recurrent(op, gates, directions, attributes="", lengths=(), states=True, batch_first=False, domain=""):
    """A recurrent layer over an element of a sequence, whose length only a run knows: with lengths of its members of
    their own, or with the batch first, which ONNX Runtime is given as a layer between transpositions."""
    batch, size, hidden = 3, 2, 4
    weights = [RNG.standard_normal(shape).astype(np.float32) / 2
               for shape in ((directions, gates * hidden, size), (directions, gates * hidden, hidden),
                             (directions, 2 * gates * hidden))]
    names = ["h0", "c0"][:2 if op == "LSTM" else 1]
    first = [RNG.standard_normal((directions, batch, hidden)).astype(np.float32) for _ in names] if states else []
    elements = [RNG.standard_normal((length, batch, size)).astype(np.float32) for length in (1, 5, 9, 2)]
    runs = []
    for i, element in enumerate(elements):
        own = [np.minimum(np.array(lengths, np.int32), len(element))] if lengths else []
        turned = [value.swapaxes(0, 1) for value in first] if batch_first else first
        given = [value.swapaxes(0, 1) for value in elements] if batch_first else elements
        runs.append([given, number(i), *weights, *own, *turned])
    shape = f"{batch},{directions},{hidden}" if batch_first else f"{directions},{batch},{hidden}"
    inputs = [f"seq(float[{f'{batch},T' if batch_first else f'T,{batch}'},{size}]) s", "int64 i"]
    inputs += [f"float[{','.join(map(str, value.shape))}] {name}" for name, value in zip("wrb", weights)]
    inputs += [f"int32[{batch}] n"] if lengths else []
    inputs += [f"float[{shape}] {name}" for name in names] if states else []
    results = ["y", "h", "c"][:len(names) + 1]
    operands = ["w", "r", "b", "n" if lengths else "", *(names if states else [])]
    head = f"m ({', '.join(inputs)}) => (float[Y0,Y1,Y2,Y3] y, {', '.join(f'float[{shape}] {r}' for r in results[1:])})"
    layer = "{}{}{}<hidden_size=4{}>({})"

    def text(x, layout, made):
        node = layer.format(domain, "." if domain else "", op, attributes + layout,
                            ", ".join([x, *operands]).rstrip(", "))
        return f"{', '.join(made)} = {node}\n"

    if not batch_first:
        return head + " { x = SequenceAt(s, i)\n" + text("x", "", results) + "}", runs
    ours = head + " { x = SequenceAt(s, i)\n" + text("x", ", layout=1", results) + "}"
    turn = "".join(f"{name}_t = Transpose<perm=[1,0,2]>({name})\n" for name in (names if states else []))
    operands = [name + "_t" if name in names else name for name in operands]
    theirs = (head + " { x = SequenceAt(s, i)\n t = Transpose<perm=[1,0,2]>(x)\n" + turn +
              text("t", "", [r + "_t" for r in results]) + "y = Transpose<perm=[2,0,1,3]>(y_t)\n" +
              "".join(f"{r} = Transpose<perm=[1,0,2]>({r}_t)\n" for r in results[1:]) + "}")
    return ours, runs, theirs


# name -> (model text, the inputs of each run; the text for ONNX Runtime where it does not have the model's form)
CASES = {
    # Cut for most sizes, and padded for the smallest: two programs behind a switch.
    "crop_or_pad": chosen(") => (float[A,6] y) { {rows} s = Constant<value=int64[2] {5,6}>()\n y = CenterCropPad(r, s) }"),
    "lstm": recurrent("LSTM", 4, 1),
    "lstm_lengths": recurrent("LSTM", 4, 1, lengths=(2, 7, 4)),
    "lstm_lengths_reverse": recurrent("LSTM", 4, 1, ', direction="reverse"', (1, 9, 5)),
    "lstm_lengths_both": recurrent("LSTM", 4, 2, ', direction="bidirectional"', (9, 3, 1), states=False),
    "lstm_batch_first": recurrent("LSTM", 4, 2, ', direction="bidirectional"', batch_first=True),
    "lstm_batch_first_lengths": recurrent("LSTM", 4, 1, "", (9, 1, 6), states=False, batch_first=True),
    "lstm_activations": recurrent("LSTM", 4, 2, ', direction="bidirectional", activations=["HardSigmoid", "Tanh", "Tanh", '
                                  '"Sigmoid", "ScaledTanh", "Softsign"], activation_alpha=[0.3, 1.2], '
                                  'activation_beta=[0.4, 0.7]'),
    "gru_lengths": recurrent("GRU", 3, 2, ', direction="bidirectional", linear_before_reset=1', (4, 9, 1)),
    "gru_batch_first": recurrent("GRU", 3, 1, ', direction="reverse"', (2, 6, 9), batch_first=True),
    "rnn_lengths": recurrent("RNN", 1, 1, "", (3, 1, 8)),
    "stft_window": ("m (float[2,9,1] x, int64 s, float[6] w, int64 l) => (float[2,2,4,2] y) { y = STFT(x, s, w, l) }",
                    [[X[:2, :1].repeat(9, 1)[..., None] * np.arange(9, dtype=np.float32)[None, :, None], number(3), X[0], number(6)]]),
    "stft_declared": ("m (float[1,9,1] x, int64 l) => (float[1,5,3,2] y) { s = Constant<value=int64 {1}>()\n"
                      "y = STFT(x, s, , l) }", [[X[None, :, :1], number(5)]]),
    # What a step collects is not copied at every step: that would take minutes.
    "collected": ("m (int64 n, float[4] x) => (float[4] last, float[K,4] all) { t = Constant<value=bool {1}>()\n"
                  "last, all = Loop<body = b (int64 i, bool c, float[4] s) => (bool c2, float[4] s2, float[4] o) {\n"
                  "c2 = Identity(c)\n h = Constant<value=float {0.5}>()\n s2 = Add(s, h)\n o = Mul(s2, h) }>(n, t, x) }",
                  [[number(n), X[0, :4]] for n in (0, 1, 40000)]),
    "rnn_domain": recurrent("RNN", 1, 1, domain="ai.onnx"),
    "rows": chosen(") => (float[K,6] r) { {rows} }"),
    "softmax": chosen(") => (float[K,6] y, float[K,6] z) { {rows} y = Softmax<axis=1>(r)\n z = Softmax<axis=0>(r) }"),
    "matmul": chosen(", float[6,5] w, float[5] b) => (float[K,5] y, float[K,5] g) { {rows} y = MatMul(r, w)\n"
                     "g = Gemm(r, w, b) }", RNG.random((6, 5), dtype=np.float32), RNG.random(5, dtype=np.float32)),
    "inner_product": chosen(") => (float[6,6] y, float[K,K] z) { {rows} t1 = Transpose<perm=[1,0]>(r)\n"
                            "y = MatMul(t1, r)\n z = MatMul(r, t1) }"),
    "reduce": chosen(") => (float[K] a, float[6] b, float c) { {rows} one = Constant<value=int64[1] {1}>()\n"
                     "zero = Constant<value=int64[1] {0}>()\n a = ReduceMax<keepdims=0>(r, one)\n"
                     "b = ReduceSum<keepdims=0>(r, zero)\n c = ReduceSum<keepdims=0>(r) }"),
    "layer_norm": chosen(", float[6] w) => (float[K,6] y) { {rows} y = LayerNormalization<axis=-1>(r, w) }",
                         RNG.random(6, dtype=np.float32)),
    "convolution": chosen(", float[2,6,3] w) => (float[K,2,1] y) { {rows} two = Constant<value=int64[1] {2}>()\n"
                          "u = Unsqueeze(r, two)\n y = Conv<pads=[1,1]>(u, w) }", RNG.random((2, 6, 3), dtype=np.float32)),
    "split": chosen(") => (float[K,2] a, float[K,2] b, float[K,2] c) { {rows} a, b, c = Split<axis=1, num_outputs=3>(r) }"),
    "tile_pad": chosen(") => (float[K,12] y, float[L,8] z) { {rows} one = Constant<value=int64[2] {1,2}>()\n"
                       "y = Tile(r, one)\n p = Constant<value=int64[4] {1,0,1,2}>()\n z = Pad(r, p) }"),
    "scatter": chosen(") => (float[9,6] y) { {rows} y = ScatterND<reduction=\"add\">(x, i, r) }"),
    "scatter_into": chosen(", float[2,6] u) => (float[9,6] y) { {rows} h = Constant<value=float {2}>()\n s = Mul(r, h)\n"
                           "y = ScatterND(x, i, s) }", RNG.random((2, 6), dtype=np.float32)),
    "top_k_run_time": ("m (float[9] x, int64[1] k) => (float[K] v, int64[K] i) { v, i = TopK(x, k) }",
                       [[X[:, 0], ints(k)] for k in (0, 1, 5, 9)]),
    "top_k_bounded": chosen(") => (float[K] v, int64[K] i2, float[K,6] y) { {rows} zero = Constant<value=int64 {0}>()\n"
                            "c = Gather<axis=1>(r, zero)\n n = Shape(c)\n four = Constant<value=int64[1] {4}>()\n"
                            "both = Concat<axis=0>(four, n)\n k = ReduceMin<keepdims=1>(both)\n v, i2 = TopK(c, k)\n"
                            "y = Gather<axis=0>(r, i2) }"),
    "again": chosen(") => (float[K,6] y) { {rows} zero = Constant<value=int64 {0}>()\n c = Gather<axis=1>(r, zero)\n"
                    "h = Constant<value=float {0.5}>()\n q = Greater(c, h)\n t2 = NonZero(q)\n"
                    "j = Transpose<perm=[1,0]>(t2)\n y = GatherND(r, j) }"),
    "compress": chosen(", float[9] s) => (float[K,6] y) { h = Constant<value=float {0.5}>()\n {rows}\n"
                       "zero = Constant<value=int64 {0}>()\n c = Gather<axis=1>(r, zero)\n q = Greater(c, h)\n"
                       "y = Compress<axis=0>(r, q) }", X[:, 1]),
    "reshape": chosen(") => (float[L,3] y, float[L,2,3] z) { {rows} a = Constant<value=int64[2] {-1,3}>()\n"
                      "y = Reshape(r, a)\n n = Shape<start=0, end=1>(r)\n b = Constant<value=int64[2] {2,3}>()\n"
                      "s = Concat<axis=0>(n, b)\n z = Reshape(r, s) }"),
    "counted": chosen(") => (int64[K] y, float[K,2] z, float[K,6] e, int64 n) { {rows} s = Shape(r)\n"
                      "zero = Constant<value=int64 {0}>()\n one = Constant<value=int64 {1}>()\n"
                      "n = Gather<axis=0>(s, zero)\n y = Range(zero, n, one)\n z1 = Constant<value=int64[1] {0}>()\n"
                      "n1 = Unsqueeze(n, z1)\n two = Constant<value=int64[1] {2}>()\n f = Concat<axis=0>(n1, two)\n"
                      "z = ConstantOfShape<value=float[1] {7}>(f)\n o = ConstantOfShape(s)\n e = Add(o, r) }"),
    "cumsum_where": chosen(") => (float[K,6] y, float[K,6] z) { {rows} ax = Constant<value=int64 {0}>()\n"
                           "y = CumSum(r, ax)\n h = Constant<value=float {0.5}>()\n q = Greater(r, h)\n z = Where(q, r, y) }"),
    "instance": chosen(") => (float[K] y, bool[K] q) { {rows} one = Constant<value=int64[1] {1}>()\n"
                       "a = ReduceMean<keepdims=0>(r, one)\n y = Sqrt(a)\n b = ArgMax<axis=1, keepdims=0>(r)\n"
                       "two = Constant<value=int64 {2}>()\n q = Equal(b, two) }"),
    "lines": ("m (int64 a, int64 b, int64 d) => (int64[N] y) { y = Range(a, b, d) }",
              [[number(v) for v in row] for row in ((0, 5, 1), (5, 0, -2), (3, 3, 1), (-7, 8, 4), (4, 1, 1))]),
    "lines_float": ("m (float a, float b, float d) => (float[N] y) { y = Range(a, b, d) }",
                    [[number(v, np.float32) for v in row] for row in ((0, 1, 0.25), (1, -1, -0.5), (2, 2, 1), (0, 1, 0.3))]),
    "filled": ("m (int64[2] s) => (int32[A,B] y) { y = ConstantOfShape<value=int32[1] {-3}>(s) }",
               [[ints(2, 3)], [ints(0, 4)], [ints(1, 1)]]),
    "pads": ("m (float[3,4] x, int64[4] p, float v) => (float[A,B] y, float[A,B] e, float[A,B] w) { y = Pad(x, p, v)\n"
             "e = Pad<mode=\"edge\">(x, p)\n w = Pad<mode=\"reflect\">(x, p) }",
             [[X[:3, :4], p, number(0.5, np.float32)] for p in (ints(0, 0, 0, 0), ints(1, 2, 2, 3), ints(0, 1, 1, 0))]),
    "pads_axes": ("m (int64[3,4] x, int64[2] p, int64[1] a) => (int64[A,B] y) { y = Pad(x, p, , a) }",
                  [[np.arange(12).reshape(3, 4), ints(*p), ints(a)] for p, a in (((1, 2), 0), ((2, -1), -1), ((-3, 0), 0))]),
    "boxes": ("m (float[1,40,4] b, float[1,2,40] s, float[1] thr, float[1,3,12,12] f) =>"
              "(int64[K,3] i, float[K,3,2,2] y, float[K,5] z, float[K,3,3,2] a) {\n"
              "most = Constant<value=int64[1] {20}>()\n iou = Constant<value=float[1] {0.3}>()\n"
              "i = NonMaxSuppression(b, s, most, iou, thr)\n two = Constant<value=int64 {2}>()\n"
              "j = Gather<axis=1>(i, two)\n z1 = Constant<value=int64[1] {0}>()\n b0 = Squeeze(b, z1)\n"
              "r = Gather<axis=0>(b0, j)\n n = Shape(j)\n batch = ConstantOfShape<value=int64[1] {0}>(n)\n"
              "y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(f, r, batch)\n"
              "a = RoiAlign<output_height=3, output_width=2>(f, r, batch)\n"
              "w = Constant<value=float[4,5] {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20}>()\n z = MatMul(r, w) }",
              [[np.concatenate([RNG.random((1, 40, 2), dtype=np.float32) * 6,
                                RNG.random((1, 40, 2), dtype=np.float32) * 6 + 6], 2),
                RNG.random((1, 2, 40), dtype=np.float32), np.array([t], np.float32),
                RNG.random((1, 3, 12, 12), dtype=np.float32)] for t in (0.5, 2.0, 0.99, 0.0)]),
    "scatter_known": ("m (seq(float[N,4]) s, int64 i, float[1,4] u) => (float[N,4] y, float[N,4] z) { x = SequenceAt(s, i)\n"
                      "last = Constant<value=int64[1,1] {-1}>()\n y = ScatterND(x, last, u)\n"
                      "ends = Constant<value=int64[2,1] {-1,0}>()\n two = Concat<axis=0>(u, u)\n"
                      "z = ScatterND<reduction=\"add\">(x, ends, two) }",
                      [[[X[:2, :4], X[:, 2:], X[3:6, :4]], number(i), X[4:5, 1:5]] for i in (0, 1, 2)]),
    "gather_as_large": ("m (float[2,3] x, int64[2] s) => (float[A,B] y) { i = ConstantOfShape<value=int64[1] {1}>(s)\n"
                        "y = GatherElements<axis=1>(x, i) }", [[X[:2, :3], ints(2, 3)]]),
    "cast_like": ("m (seq(int64[N,4]) s, int64 i, seq(float16[]) t) => (float16[N,4] y) { x = SequenceAt(s, i)\n"
                  "like = SequenceAt(t, i)\n y = CastLike(x, like) }",
                  [[[np.arange(8).reshape(2, 4), np.zeros((0, 4), np.int64)],  number(i),
                    [np.zeros(3, np.float16), np.zeros((2, 2), np.float16)]] for i in (0, 1)]),
    # All at their largest are more than a tensor can hold.
    "images": ("m (seq(float[A,3,H,W]) s, int64 i, float[2,3,3,3] w) => (float[A,2,H,W] y, float[B,3,H,X] t) {\n"
               "x = SequenceAt(s, i)\n y = Conv<pads=[1,1,1,1]>(x, w)\n r = Constant<value=int64[4] {2,1,1,3}>()\n t = Tile(x, r) }",
               [[[RNG.random((a, 3, h, w), dtype=np.float32) for a, h, w in ((1, 1, 1), (2, 37, 19), (1, 5, 700))], number(i),
                 RNG.random((2, 3, 3, 3), dtype=np.float32)] for i in (0, 1, 2)]),
    "sequence": ("m (seq(float[N,4]) s, int64 i) => (float[N,4] y, float[4] z) { x = SequenceAt(s, i)\n"
                 "y = Softmax<axis=1>(x)\n zero = Constant<value=int64[1] {0}>()\n z = ReduceSum<keepdims=0>(x, zero) }",
                 [[[X[:2, :4], X[:, 2:], X[:0, :4]], number(i)] for i in (0, 1, 2)]),
}

# What n steps collect of the state.
COLLECT = ("c, y = Loop<body = b (int64 i, bool g, {s} s) => (bool g2, {s} s2, {s} o) {{\n g2 = Identity(g)\n"
           "s2 = Add(s, s)\n o = Identity(s) }}>(n, , {of})\n")
CASES |= {
    # A size that a weight of another rank decides; of two weights that differ, the one that fits.
    "vector_matmul": ("m (int64 n, float x) => (float[2] z) {" + COLLECT.format(s="float", of="x") +
                      "w = Constant<value=float[2,2] {1,2,3,4}>()\n r = Relu(y)\n z = MatMul(r, w) }",
                      [[number(2), number(1.5, np.float32)]]),
    "gemm_column": ("m (int64 n, float[3] x, float[3,4] w, float[2,1] b) => (float[2,4] z) {" +
                    COLLECT.format(s="float[3]", of="x") + "z = Gemm(y, w, b) }",
                    [[number(2), X[0, :3], X[:3, :4], X[:2, :1]]]),
    # Indices that few of the sizes have places for, and more of them than a size that is tried without a reason.
    "scatter_few": ("m (int64 n, float[3] x, int64[2,3] j, float[2,3] u) => (float[N,3] z) {" +
                    COLLECT.format(s="float[3]", of="x") + "z = ScatterElements<axis=1>(y, j, u) }",
                    [[number(n), X[0, :3], np.array([[2, 0, 1], [1, 2, 0]]), X[:2, :3]] for n in (2, 3, 7)]),
    "gather_few": ("m (int64 n, float[3] x, int64[3,2] j) => (float[3,2] z) {" + COLLECT.format(s="float[3]", of="x") +
                   "z = GatherElements<axis=-1>(y, j) }",
                   [[number(n), X[0, :3], np.array([[2, 0], [1, 1], [-1, 0]])] for n in (3, 8)]),
    "gather_many": ("m (int64 n, float[1] x, int64[97,1] j) => (float[97,1] z) {" + COLLECT.format(s="float[1]", of="x") +
                    "z = GatherElements<axis=1>(y, j) }",
                    [[number(n), X[0, :1], np.zeros((97, 1), np.int64)] for n in (97, 120)]),
    # A share of rows of 5 for each of the threads that copy.
    "scatter_nd": ("m (int64 n, float[5] x, int64[3,2] j, float[3] u) => (float[N,5] z) {" +
                   COLLECT.format(s="float[5]", of="x") + "z = ScatterND<reduction=\"min\">(y, j, u) }",
                   [[number(n), X[0, :5], np.array([[0, 4], [-1, 2], [1, 4]]), X[0, 1:4] - 9] for n in (2, 5, 300)]),
    "split_known": ("m (int64 n, int64[2] x) => (int64[2,2] a, int64[1,2] b) { c = Constant<value=int64[2] {2,1}>()\n" +
                    COLLECT.format(s="int64[2]", of="x").replace("c, y", "d, y") + "a, b = Split<axis=-2>(y, c) }",
                    [[number(3), ints(4, 5)]]),
    "top_k_known": ("m (int64 n, float[2] x, float[2] h) => (float[5,2] v, int64[5,2] i, float[1,2] w, int64[1,2] j) {\n"
                    "d, y = Loop<body = b (int64 i, bool g, float[2] s) => (bool g2, float[2] s2, float[2] o) {\n"
                    "g2 = Identity(g)\n t = Mul(s, h)\n s2 = Sub(x, t)\n o = Sin(s) }>(n, , x)\n"
                    "five = Constant<value=int64[1] {5}>()\n one = Constant<value=int64[1] {1}>()\n"
                    "v, i = TopK<axis=0>(y, five)\n w, j = TopK<axis=-2, largest=0>(y, one) }",
                    [[number(n), X[0, :2], np.array([1.3, -1.01], np.float32)] for n in (5, 6, 63, 64, 65, 70, 133, 200)]),
    # A loop without steps: what it collects has the dimensions that its body declares, which open values do not tell.
    "no_steps": ("m (int64 n, float[1] x, int64 k) => (float[1] z, float[K,1] all) {" +
                 COLLECT.format(s="float", of="t") + "z, all = Loop<body = b (int64 i3, bool g3, float[1] s3) => "
                 "(bool g4, float[1] s4, float[1] o4) {\n g4 = Identity(g3)\n s4 = Mul(y, x)\n o4 = Identity(s4) }>(k, , x) }",
                 [[number(1), X[0, :1], number(k)] for k in (0, 1, 3)]),
}
CASES["no_steps"] = (CASES["no_steps"][0].replace(" {c, y", " {r = Constant<value=int64[1] {0}>()\n t = Squeeze(x, r)\nc, y", 1),
                     CASES["no_steps"][1])

# name -> (model text, inputs, what the error says; the engine when it is only one)
ERRORS = {
    "top_k_beyond": (CASES["top_k_run_time"][0], [X[:, 0], ints(10)],
                     "TSR-7040: TopK .*'K'.* is 10; .* compiled for 0 to 9"),
    "no_end": (CASES["lines"][0], [number(0), number(4), number(0)], "TSR-7041: Range .*: a delta that leads to no end"),
    "endless": (CASES["lines_float"][0], [number(0, np.float32), number(np.inf, np.float32), number(1, np.float32)],
                "TSR-7041: Range .*: a delta that leads to no end"),
    "gather_larger": (CASES["gather_as_large"][0], [X[:2, :3], ints(3, 3)], "TSR-70.*GatherElements"),
    "pad_below": (CASES["pads_axes"][0], [np.arange(12).reshape(3, 4), ints(-2, -2), ints(0)],
                  "TSR-7041: Pad .*: pads of -2 and -2 for a dimension of 3"),
    "pad_axis": (CASES["pads_axes"][0], [np.arange(12).reshape(3, 4), ints(1, 1), ints(2)],
                 "TSR-7041: Pad .*: axis 2 for rank 2; legal: -2 to 1"),
    "vector_too_long": (CASES["vector_matmul"][0], [number(3), number(1.5, np.float32)], "TSR-7041: MatMul .*f32.3.*f32.2"),
    "split_others": (CASES["split_known"][0], [number(4), ints(4, 5)], "TSR-7041: Split .*i64.4,2.*i64.3,2"),
    "top_k_too_many": (CASES["top_k_known"][0], [number(4), *CASES["top_k_known"][1][0][1:]],
                       "TSR-7041: TopK .*an operand is f32.4,2.;"),
    "scatter_too_few": (CASES["scatter_few"][0], [number(1), *CASES["scatter_few"][1][0][1:]],
                        "TSR-7041: ScatterElements .*an operand is f32.1,3.;"),
    "negative_shape": (CASES["filled"][0], [ints(2, -1)], "TSR-7041: ConstantOfShape .*: the shape "),
}


def model_of(text):
    return onnx.parser.parse_model(HEADER + text)


def expected(model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: given for value, given in zip(model.graph.input, inputs)})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--match", default=".")
    parser.add_argument("--keep")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(options.keep or folder)
        problems, wanted = [], {name: case for name, case in CASES.items() if re.search(options.match, name)}
        for name, (text, runs, *reference) in wanted.items():
            model, theirs = model_of(text), model_of(reference[0] if reference else text)
            case_folder.write_case(out / "right" / name, model, [(inputs, expected(theirs, inputs)) for inputs in runs])
        # Most are graphs whose data decide sizes. As flows, which they are without that, they are steps and pieces.
        as_flow = ["--disable-pass", "symbolic_sizes"]
        for flags in (["-O3"], ["-O0"], ["--engine", "interp"], as_flow, ["-O0", *as_flow]) if wanted else ():
            run = subprocess.run([options.tessera, "verify", str(out / "right"), "--quiet", "--mtol", "1e-5", *flags],
                                 capture_output=True, text=True)
            print(f"{' '.join(flags)}: {run.stdout.strip()}")
            if run.returncode != 0:
                problems.append(f"{flags}: {run.stdout.splitlines()[-1] if run.stdout else ''}{run.stderr}")
        for name, (text, inputs, message, *only) in ERRORS.items():
            if not re.search(options.match, name):
                continue
            model = model_of(text)
            case_folder.write_case(out / "wrong" / name, model, [(inputs, [np.zeros(1, np.float32)] * len(model.graph.output))])
            for engine in only or ("native", "interp"):
                run = subprocess.run([options.tessera, "verify", str(out / "wrong" / name), "--engine", engine],
                                     capture_output=True, text=True)
                if not re.search(message, run.stdout):
                    problems.append(f"{name}, {engine}: got {run.stdout.strip()}\n  wanted {message}")
        print("\n".join(problems))
        print(f"{len(wanted)} models, {len(ERRORS)} errors, {len(problems)} problems")
        return 1 if problems or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
