#!/usr/bin/env python3
"""Models compiled once for a range of sizes (--dim NAME=LO..HI) and run with many of them, beside ONNX Runtime.

    open_sizes.py TESSERA [--full] [MODEL...]
    open_sizes.py TESSERA random:FIRST..LAST        seeds of random networks over pictures

Small models of every kind of kernel, and networks of the suite whose batch, length or picture is left open; without
--full (or TESSERA_TEST_FULL=1) those of the suite rotate. Each is compiled with the configurations below and run with the
ends of its ranges, sizes beside powers of two, and random ones. Exit code 1 when an output differs."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import model_runs

CONFIGURATIONS = [("O3", []), ("O0", ["-O0"]), ("O1", ["-O1"]), ("x86-64-v3", ["--target", "x86-64-v3"]),
                  ("2 threads", ["--threads", "2"]), ("null device", ["--place", "*=null"]), ("opencl", ["--target", "opencl"])]
RANDOM = np.random.default_rng(5)


def model(nodes, inputs, outputs, weights, opset=17):
    graph = helper.make_graph(
        nodes, "sizes", [helper.make_tensor_value_info(n, t, d) for n, t, d in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights.items()])
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    result.ir_version = 8
    return result


def weight(*shape):
    return (RANDOM.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


F = TensorProto.FLOAT


def perceptron():
    return model([helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
                  helper.make_node("MatMul", ["b", "v"], ["c"]), helper.make_node("Softmax", ["c"], ["y"], axis=-1)],
                 [("x", F, ["n", 20])], ["y"], {"w": weight(20, 33), "v": weight(33, 10)}), {"n": (1, 64, 1)}


def products():
    """Products whose weights are fetched ahead, whose last columns are dot products, and of few columns."""
    return model([helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
                  helper.make_node("MatMul", ["b", "v"], ["c"]), helper.make_node("MatMul", ["c", "u"], ["y"])],
                 [("x", F, ["n", 256])], ["y"], {"w": weight(256, 200), "v": weight(200, 65), "u": weight(65, 3)}
                 ), {"n": (1, 70, 1)}


def convolutions():
    return model([helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["a"], ["c"]),
                  helper.make_node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
                  helper.make_node("Conv", ["d", "v"], ["e"], strides=[2, 2], pads=[1, 1, 1, 1]),
                  helper.make_node("GlobalAveragePool", ["e"], ["f"]), helper.make_node("Flatten", ["f"], ["y"])],
                 [("x", F, ["n", 3, 16, 20])], ["y"], {"w": weight(24, 3, 3, 3), "b": weight(24), "v": weight(40, 24, 3, 3)}
                 ), {"n": (1, 9, 1)}


def pictures():
    """Free height and width, with steps and without padding that divides them."""
    return model([helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
                  helper.make_node("HardSwish", ["a"], ["c"]),
                  helper.make_node("Conv", ["c", "u"], ["d"], pads=[1, 1, 1, 1], group=16),
                  helper.make_node("Conv", ["d", "v"], ["e"]), helper.make_node("MaxPool", ["e"], ["y"], kernel_shape=[3, 3])],
                 [("x", F, [1, 3, "h", "w_"])], ["y"],
                 {"w": weight(16, 3, 3, 3), "b": weight(16), "u": weight(16, 1, 3, 3), "v": weight(8, 16, 1, 1)}
                 ), {"h": (16, 60, 1), "w_": (16, 90, 1)}


def encoder(layers=1, d=32, heads=4, inner=64, words=50, longest=70):
    """BERT with free batch and length: positions and reshapes by run-time shapes, as exporters write them."""
    nodes = []

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def linear(x, rows, columns, name):
        weights[name + ".w"], weights[name + ".b"] = weight(rows, columns), weight(columns)
        return node("Add", [node("MatMul", [x, name + ".w"], name + ".product"), name + ".b"], name)

    def normal(x, name):
        weights[name + ".gamma"], weights[name + ".beta"] = 1 + weight(d), weight(d)
        return node("LayerNormalization", [x, name + ".gamma", name + ".beta"], name, axis=-1)

    weights = {"zero": ints(0), "one": ints(1), "heads": ints(heads), "depth": ints(d // heads), "model": ints(d),
               "axes": ints(1, 2), "f1": np.float32(1), "half": np.float32(0.5), "root": np.float32(2 ** 0.5),
               "low": np.float32(-1e4), "scale": np.float32(1 / np.sqrt(d // heads)), "words": weight(words, d),
               "places": weight(longest, d)}
    shape = node("Shape", ["ids"], "shape")
    batch, length = (node("Gather", [shape, i], n, axis=0) for i, n in (("zero", "batch"), ("one", "length")))
    split = node("Concat", [batch, length, "heads", "depth"], "split", axis=0)
    joined = node("Concat", [batch, length, "model"], "joined", axis=0)
    places = node("Slice", ["places", "zero", length, "zero"], "own_places")
    bias = node("Mul", [node("Sub", ["f1", node("Unsqueeze", [node("Cast", ["mask"], "float_mask", to=F), "axes"], "wide")],
                             "hidden"), "low"], "bias")
    x = normal(node("Add", [node("Gather", ["words", "ids"], "embedded"), places], "sum"), "start")
    for layer in range(layers):
        at = f"l{layer}."
        parts = {}
        for part in "qkv":
            cut = node("Reshape", [linear(x, d, d, at + part), split], at + part + ".cut")
            parts[part] = node("Transpose", [cut], at + part + ".part", perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3])
        scores = node("Mul", [node("MatMul", [parts["q"], parts["k"]], at + "raw"), "scale"], at + "scores")
        weighed = node("Softmax", [node("Add", [scores, bias], at + "masked")], at + "weights", axis=-1)
        context = node("Transpose", [node("MatMul", [weighed, parts["v"]], at + "context")], at + "back", perm=[0, 2, 1, 3])
        rows = node("Reshape", [context, joined], at + "rows")
        x = normal(node("Add", [x, linear(rows, d, d, at + "o")], at + "add1"), at + "n1")
        up = linear(x, d, inner, at + "up")
        bell = node("Add", [node("Erf", [node("Div", [up, "root"], at + "g1")], at + "g2"), "f1"], at + "g3")
        gelu = node("Mul", [node("Mul", [up, bell], at + "g4"), "half"], at + "g5")
        x = normal(node("Add", [x, linear(gelu, inner, d, at + "down")], at + "add2"), at + "n2")
    nodes.append(helper.make_node("Identity", [x], ["y"]))
    ids = [("ids", TensorProto.INT64, ["batch", "length"]), ("mask", TensorProto.INT64, ["batch", "length"])]
    return model(nodes, ids, ["y"], weights), {"batch": (1, 6, 1), "length": (1, longest, 1)}


def columns():
    """Sums over an open axis, an open axis between fixed ones, and one in two places."""
    return model([helper.make_node("ReduceMean", ["x"], ["m"], axes=[1], keepdims=1),
                  helper.make_node("Sub", ["x", "m"], ["c"]),
                  helper.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 1]),
                  helper.make_node("MatMul", ["t", "c"], ["y"]),
                  helper.make_node("Concat", ["x", "x"], ["xx"], axis=1), helper.make_node("Exp", ["xx"], ["z"])],
                 [("x", F, [3, "k", 7])], ["y", "z"], {}), {"k": (2, 50, 1)}


def orders():
    """Algorithms over whole tensors: the best of open rows, running sums along an open axis."""
    return model([helper.make_node("TopK", ["x", "three"], ["best", "where"], axis=1),
                  helper.make_node("CumSum", ["x", "zero"], ["sums"]),
                  helper.make_node("Cast", ["where"], ["places"], to=F)],
                 [("x", F, ["n", 40])], ["best", "places", "sums"], {"three": ints(3), "zero": np.array(0, np.int64)}
                 ), {"n": (1, 30, 1)}


def random_pictures(seed):
    """A few layers over pictures of open height and width, of any window, stride, dilation and padding."""
    def build():
        pick = random.Random(seed)
        numbers = np.random.default_rng(seed)
        nodes, weights = [], {}
        value, channels = "x", pick.choice([1, 3, 8, 16, 20])
        first = channels
        for layer in range(pick.randint(1, 4)):
            kind = pick.choice(["conv", "conv", "conv", "depthwise", "pool", "point", "pad", "mean", "half", "transposed"])
            name = f"v{layer}"
            window = [pick.randint(1, 4), pick.randint(1, 4)]
            strides = [pick.choice([1, 1, 2, 3]), pick.choice([1, 1, 2, 3])]
            pads = [pick.randint(0, window[i % 2] // 2) for i in range(4)]
            if kind in ("conv", "depthwise", "transposed"):
                groups = channels if kind == "depthwise" else pick.choice([1, 1, 2]) if channels % 2 == 0 else 1
                out = channels if kind == "depthwise" else pick.choice([4, 8, 16, 24, 32])
                dilations = [pick.choice([1, 1, 2]), pick.choice([1, 1, 2])]
                shape = (out, channels // groups, *window)
                if kind == "transposed":
                    shape, dilations = (channels, out // groups, *window), [1, 1]
                weights[name + "w"] = (numbers.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
                nodes.append(helper.make_node("ConvTranspose" if kind == "transposed" else "Conv", [value, name + "w"],
                                              [name + "c"], strides=strides, pads=pads, dilations=dilations, group=groups))
                nodes.append(helper.make_node(pick.choice(["Relu", "Sigmoid", "HardSwish"]), [name + "c"], [name]))
                channels = out
            elif kind == "pool":
                op = pick.choice(["MaxPool", "AveragePool"])
                nodes.append(helper.make_node(op, [value], [name], kernel_shape=window, strides=strides, pads=pads))
            elif kind == "point":
                nodes.append(helper.make_node("Mul", [value, value], [name]))
            elif kind == "pad":
                weights[name + "p"] = ints(0, 0, *pads[:2], 0, 0, *pads[2:])
                nodes.append(helper.make_node("Pad", [value, name + "p"], [name], mode="constant"))
            elif kind == "mean":
                nodes.append(helper.make_node("ReduceMean", [value], [name + "m"], axes=[2, 3], keepdims=1))
                nodes.append(helper.make_node("Sub", [value, name + "m"], [name]))
            else:
                weights[name + "s"] = np.array([1, 1, 2, 2], np.float32)
                nodes.append(helper.make_node("Resize", [value, "", name + "s"], [name], mode="nearest"))
            value = name
        nodes.append(helper.make_node("Identity", [value], ["y"]))
        step = pick.choice([1, 1, 2, 8])
        low = pick.choice([40, 48, 64])
        return model(nodes, [("x", F, [1, first, "h", "w"])], ["y"], weights), {
            "h": (low, low + 6 * step + pick.randint(8, 40) // step * step, step), "w": (low, low + 90 // step * step, step)}
    return build
def procedures():
    """A running sum along the open dimension, and sorts of rows of which there are any number."""
    return model([helper.make_node("CumSum", ["x", "first"], ["a"]), helper.make_node("CumSum", ["a", "second"], ["b"]),
                  helper.make_node("TopK", ["b", "k"], ["c", "places"]), helper.make_node("TopK", ["c", "all"], ["y", "order"],
                                                                                         largest=0)],
                 [("x", F, ["n", 90])], ["y"],
                 {"first": np.array(0, np.int64), "second": np.array(1, np.int64), "k": ints(7), "all": ints(7)}
                 ), {"n": (1, 64, 1)}


def cells():
    """Recurrent layers over a free batch."""
    weights = {}
    for name, gates, directions in (("l", 4, 1), ("g", 3, 2)):
        weights |= {f"{name}w": weight(directions, gates * 12, 8), f"{name}r": weight(directions, gates * 12, 12),
                    f"{name}b": weight(directions, 2 * gates * 12)}
    return model([helper.make_node("LSTM", ["x", "lw", "lr", "lb"], ["y", "h", "c"], hidden_size=12),
                  helper.make_node("GRU", ["x", "gw", "gr", "gb"], ["z"], hidden_size=12, direction="bidirectional")],
                 [("x", F, [5, "n", 8])], ["y", "h", "c", "z"], weights), {"n": (1, 9, 1)}


def steps():
    """Recurrent layers, and a Scan, over a free length and batch."""
    weights = {}
    for name, gates, directions in (("l", 4, 2), ("g", 3, 1), ("r", 1, 1)):
        weights |= {f"{name}w": weight(directions, gates * 12, 8), f"{name}r": weight(directions, gates * 12, 12),
                    f"{name}b": weight(directions, 2 * gates * 12)}
    body = helper.make_graph(
        [helper.make_node("Add", ["old", "now"], ["sum"]), helper.make_node("Tanh", ["sum"], ["new"]),
         helper.make_node("Mul", ["new", "now"], ["shown"])], "body",
        [helper.make_tensor_value_info(n, F, None) for n in ("old", "now")],
        [helper.make_tensor_value_info(n, F, None) for n in ("new", "shown")])
    return model([helper.make_node("LSTM", ["x", "lw", "lr", "lb"], ["y", "h", "c"], hidden_size=12, direction="bidirectional"),
                  helper.make_node("GRU", ["x", "gw", "gr", "gb"], ["z"], hidden_size=12, direction="reverse",
                                   linear_before_reset=1),
                  helper.make_node("RNN", ["x", "rw", "rr", "rb"], ["", "k"], hidden_size=12),
                  helper.make_node("ReduceSum", ["x", "axes"], ["start"], keepdims=0),
                  helper.make_node("Scan", ["start", "x"], ["last", "scanned"], num_scan_inputs=1, body=body,
                                   scan_input_directions=[1], scan_output_directions=[1])],
                 [("x", F, ["s", "n", 8])], ["y", "h", "c", "z", "k", "last", "scanned"],
                 weights | {"axes": ints(0)}), {"s": (1, 40, 1), "n": (1, 5, 1)}


def suite(name, axes, ranges):
    def build():
        result, feeds = model_runs.suite_model(name)
        for value, dims in axes.items():
            info = next(i for i in result.graph.input if i.name == value)
            for axis, symbol in dims.items():
                info.type.tensor_type.shape.dim[axis].dim_param = symbol
        del result.graph.value_info[:]
        for output in result.graph.output:
            output.type.tensor_type.ClearField("shape")
        return result, ranges
    return build


SMALL = {f.__name__: f for f in (perceptron, products, convolutions, pictures, encoder, columns, orders, procedures, cells,
                                  steps)}


def inputs_for(built, sizes, seed):
    """Random inputs; integers are small, as indices must be."""
    random_numbers = np.random.default_rng(seed)
    feeds = {}
    initializers = {i.name for i in built.graph.initializer}
    for info in built.graph.input:
        if info.name in initializers:
            continue
        tensor = info.type.tensor_type
        dims = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[info.name] = (random_numbers.integers(0, 2, dims).astype(dtype) if dtype.kind in "iub"
                            else random_numbers.standard_normal(dims).astype(dtype))
    return feeds


def sizes_to_try(ranges, count, seed):
    """The ends, and random ones, those beside multiples of 8 more often."""
    names = list(ranges)
    pick = random.Random(seed)
    tried = [{n: ranges[n][0] for n in names}, {n: ranges[n][1] for n in names}]
    while len(tried) < count:
        sizes = {}
        for n in names:
            low, high, step = ranges[n]
            wish = pick.choice([pick.randint(low, high), pick.randint(0, high // 8 + 1) * 8 + pick.randint(-1, 1)])
            sizes[n] = min(high, max(low, low + (wish - low) // step * step))
        tried.append(sizes)
    return tried


def run(tessera, module, feeds, outputs, folder):
    arguments = [tessera, "run", str(module)]
    for name, value in feeds.items():
        np.save(folder / f"{name}.npy", value)
        arguments += ["-i", f"{name}=@{folder / name}.npy"]
    for i, name in enumerate(outputs):
        arguments += ["-o", f"{name}=@{folder}/out{i}.npy"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return [np.load(folder / f"out{i}.npy") for i in range(len(outputs))]


def check_model(tessera, name, build, configurations, count, folder):
    built, ranges = build()
    path = folder / f"{name}.onnx"
    onnx.save(built, path)
    dims = [a for n, (low, high, step) in ranges.items()
            for a in ("--dim", f"{n}={low}..{high}" + (f":{step}" if step > 1 else ""))]
    outputs = [o.name for o in built.graph.output]
    failures = 0
    references = {}
    for label, flags in configurations:
        module = folder / f"{name}.so"
        # Some mistakes show in no result: what a prefetch is of, say.
        verify = [] if flags else ["--verify-each"]
        done = subprocess.run([tessera, "compile", str(path), "-o", str(module), *dims, *flags, *verify],
                              capture_output=True, text=True)
        if done.returncode == 1 and name.startswith("random_") and "TSR-5022" in done.stderr:
            print(f"{name:14} {label:10} is refused: {done.stderr.splitlines()[0][:150]}", flush=True)
            continue
        if done.returncode == 1 and label in ("null device", "opencl") and "TSR-4072" in done.stderr and "are more than" in done.stderr:
            print(f"{name:14} {label:10} is a flow, which has no devices", flush=True)
            continue
        if done.returncode:
            print(f"FAILED {name} {label}: {done.stderr.strip()}", flush=True)
            failures += 1
            continue
        worst = 0
        for i, sizes in enumerate(sizes_to_try(ranges, count, name)):
            feeds = inputs_for(built, sizes, i)
            key = tuple(sizes.values())
            if key not in references:
                # What ONNX Runtime makes of a Pad in front of a pool, it then refuses.
                references[key] = (feeds, model_runs.onnx_runtime(str(path), feeds, optimise=not name.startswith("random_")))
            feeds, wanted = references[key]
            try:
                got = run(tessera, module, feeds, outputs, folder)
            except RuntimeError as error:
                if "TSR-7019" in str(error):
                    print(f"{name:14} {label:10} is skipped: {str(error).splitlines()[0]}", flush=True)
                    break
                print(f"FAILED {name} {label} {sizes}: {error}", flush=True)
                failures += 1
                continue
            for output, have, want in zip(outputs, got, wanted):
                difference = (np.abs(have.astype(np.float64) - want).max(initial=0) if have.shape == want.shape
                              else np.inf)
                # Probabilities of noise are next to nothing, and ONNX Runtime's are not exact there.
                scale = np.abs(want).max(initial=1e-2)
                limit = model_runs.BOUND * scale
                worst = max(worst, difference / scale)
                if not difference <= limit:
                    print(f"FAILED {name} {label} {sizes}: output {output} {have.shape} for {want.shape} differs by "
                          f"{difference:.3g}", flush=True)
                    failures += 1
        else:
            print(f"{name:14} {label:10} {count:3} sizes, worst {worst:.1e} of max|reference|", flush=True)
    return failures


def main():
    arguments = [a for a in sys.argv[1:] if a != "--full"]
    tessera, names = arguments[0], arguments[1:]
    full = model_runs.is_full()
    models = {**SMALL, **SUITE}
    seeds = [n for n in names if n.startswith("random:")]
    for text in seeds or [f"random:{model_runs.today() * 6}..{model_runs.today() * 6 + 5}"]:
        first, last = map(int, text[len("random:"):].split(".."))
        models.update({f"random_{s}": random_pictures(s) for s in range(first, last + 1)})
        if seeds:
            names.remove(text)
            names += [f"random_{s}" for s in range(first, last + 1)]
    if not names:
        rotating = sorted(SUITE)
        names = list(SMALL) + [n for n in models if n.startswith("random_")]
        names += rotating if full else [rotating[model_runs.today() % len(rotating)]]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            small = name in SMALL
            if name.startswith("random_"):
                small = True
                configurations = [CONFIGURATIONS[0], CONFIGURATIONS[int(name[7:]) % len(CONFIGURATIONS)]]
            else:
                configurations = CONFIGURATIONS if small or full else CONFIGURATIONS[:1]
            failures += check_model(tessera, name, models[name], configurations, 12 if small else 4, pathlib.Path(folder))
    print(f"{failures} failed" if failures else "all agree")
    return 1 if failures else 0


def text_model(file, dims, ranges):
    """A network of the demo that reads text; its dimensions have names that no flag wants to repeat."""
    def build():
        result = onnx.load(model_runs.ROOT / ".deps" / "ppocr" / file)
        for dim, symbol in zip(result.graph.input[0].type.tensor_type.shape.dim, dims):
            dim.Clear()
            if isinstance(symbol, int):
                dim.dim_value = symbol
            else:
                dim.dim_param = symbol
        return result, ranges
    return build


SUITE = {
    "find_text": text_model("ch_PP-OCRv4_det_infer.onnx", (1, 3, "h", "w"), {"h": (32, 320, 32), "w": (32, 480, 32)}),
    "read_text": text_model("ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, "w"), {"w": (16, 800, 8)}),
    "resnet50": suite("resnet50", {"input": {0: "n"}}, {"n": (1, 8, 1)}),
}

if __name__ == "__main__":
    sys.exit(main())
