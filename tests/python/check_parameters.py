#!/usr/bin/env python3
"""Operands that come with a run where the compiler needs a shape: one module serves every value that leads to the
declared shape, and refuses the others by name. Compiled code and the interpreter say the same words.

    check_parameters.py TESSERA"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper


def i64(*values):
    return np.array(values, np.int64)


def f32(*values):
    return np.array(values, np.float32)


X = np.arange(1, 28, dtype=np.float32).reshape(3, 3, 3)
WIDE = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
END = "; the outputs are not valid"


def message(node, what, found, legal):
    return f"error TSR-7040: {node}: {what} is {found}; this module was compiled for {legal}{END}"


# (name, node, declared shapes of the outputs, runs); a run is (inputs, what it gives): an array for output 0 or a message.
def node(op, inputs, outputs=("y",), **attributes):
    return helper.make_node(op, inputs, list(outputs), name="n", **attributes)


AXES = "'axes' (input 1, value 'p')"
SHAPE = "'shape' (input 1, value 'p')"
CASES = [
    ("equal_extents", node("ReduceSum", ["x", "p"], keepdims=0), [(3, 3)],
     [({"x": X, "p": i64(axis)}, X.sum(axis)) for axis in (0, 1, 2, -1, -3)]
     + [({"x": X, "p": i64(bad)}, message("ReduceSum 'n'", AXES, bad, "0 or 1 or 2, for the declared shape [3,3] of 'y'"))
        for bad in (3, -4, 2**40)]),
    ("two_axes", node("ReduceMax", ["x", "p"], keepdims=1), [(1, 3, 1)],
     [({"x": X, "p": i64(2, 0)}, X.max((0, 2), keepdims=True)), ({"x": X, "p": i64(0, -1)}, X.max((0, 2), keepdims=True)),
      ({"x": X, "p": i64(0, 1)}, message("ReduceMax 'n'", AXES, "[0, 1]", "[0, 2], for the declared shape [1,3,1] of 'y'")),
      ({"x": X, "p": i64(1, 1)}, message("ReduceMax 'n'", AXES, "[1, 1]", "[0, 2], for the declared shape [1,3,1] of 'y'"))]),
    ("cumsum", node("CumSum", ["x", "p"]), [(3, 4)],
     [({"x": WIDE, "p": np.array(axis)}, WIDE.cumsum(axis)) for axis in (0, 1, -1, -2)]
     + [({"x": WIDE, "p": np.array(2)},
         message("CumSum 'n'", "'axis' (input 1, value 'p')", 2, "0 or 1, for the declared shape [3,4] of 'y'"))]),
    ("reshape", node("Reshape", ["x", "p"]), [(4, 3)],
     [({"x": WIDE, "p": p}, WIDE.reshape(4, 3)) for p in (i64(4, 3), i64(-1, 3), i64(4, -1))]
     + [({"x": WIDE, "p": p}, message("Reshape 'n'", SHAPE, found, "the declared shape [4,3] of 'y'"))
        for p, found in ((i64(3, 4), "[3, 4]"), (i64(-1, -1), "[-1, -1]"), (i64(0, 4), "[0, 4]"))]),
    ("expand", node("Expand", ["x", "p"]), [(2, 3, 4)],
     [({"x": WIDE, "p": p}, np.broadcast_to(WIDE, (2, 3, 4))) for p in (i64(2, 3, 4), i64(2, 1, 4), i64(2, 3, 1))]
     + [({"x": WIDE, "p": i64(3, 3, 4)}, message("Expand 'n'", SHAPE, "[3, 3, 4]", "the declared shape [2,3,4] of 'y'"))]),
    ("tile", node("Tile", ["x", "p"]), [(6, 4)],
     [({"x": WIDE, "p": i64(2, 1)}, np.tile(WIDE, (2, 1))),
      ({"x": WIDE, "p": i64(1, 2)}, message("Tile 'n'", "'repeats' (input 1, value 'p')", "[1, 2]", "[2, 1]"))]),
    ("unsqueeze", node("Unsqueeze", ["x", "p"]), [(3, 1, 4)],
     [({"x": WIDE, "p": i64(1)}, WIDE[:, None]), ({"x": WIDE, "p": i64(-2)}, WIDE[:, None]),
      ({"x": WIDE, "p": i64(0)}, message("Unsqueeze 'n'", AXES, 0, "1, for the declared shape [3,1,4] of 'y'"))]),
    ("slice", node("Slice", ["x", "p", "e", "a", "s"]), [(2, 4)],
     [({"x": WIDE, "p": i64(p), "e": i64(e), "a": i64(a), "s": i64(s)}, WIDE[p:e:s])
      for p, e, a, s in ((0, 2, 0, 1), (1, 9, 0, 1), (0, 3, 0, 2), (2, 0, -2, -1))]
     + [({"x": WIDE, "p": i64(p), "e": i64(e), "a": i64(a), "s": i64(s)},
         message("Slice 'n'", "the shape of 'y' (output 0)", found, "the declared shape [2, 4]"))
        for p, e, a, s, found in ((0, 3, 0, 1, "[3, 4]"), (0, 2, 1, 1, "[3, 2]"), (0, 2, 2, 1, "[3, 4]"))]),
    ("pad", node("Pad", ["x", "p"]), [(4, 6)],
     [({"x": WIDE, "p": i64(*p)}, np.pad(WIDE, ((p[0], p[2]), (p[1], p[3])))) for p in ((1, 2, 0, 0), (0, 1, 1, 1))]
     + [({"x": WIDE, "p": i64(1, 1, 1, 1)},
         message("Pad 'n'", "the shape of 'y' (output 0)", "[5, 6]", "the declared shape [4, 6]"))]),
    ("split", node("Split", ["x", "p"], ("y", "z"), axis=1), [(3, 1), (3, 3)],
     [({"x": WIDE, "p": i64(1, 3)}, WIDE[:, :1]),
      ({"x": WIDE, "p": i64(2, 2)}, message("Split 'n'", "'split' (input 1, value 'p')", "[2, 2]", "[1, 3]"))]),
    ("top_k", node("TopK", ["x", "p"], ("y", "i")), [(3, 2), (3, 2)],
     [({"x": WIDE, "p": i64(2)}, WIDE[:, :1:-1]),
      ({"x": WIDE, "p": i64(3)}, message("TopK 'n'", "'K' (input 1, value 'p')", 3, 2))]),
    ("range", node("Range", ["a", "b", "c"]), [(3,)],
     [({"a": np.array(a), "b": np.array(b), "c": np.array(c)}, np.arange(a, b, c))
      for a, b, c in ((0, 3, 1), (5, 0, -2), (-1, 5, 2))]
     + [({"a": np.array(0), "b": np.array(b), "c": np.array(c)},
         message("Range 'n'", "the shape of 'y' (output 0)", found, "the declared shape [3]"))
        for b, c, found in ((4, 1, 4), (3, 0, 0), (-3, 1, 0))]),
    ("resize", node("Resize", ["x", "", "p"], mode="nearest", coordinate_transformation_mode="asymmetric",
                    nearest_mode="floor"), [(6, 4)],
     [({"x": WIDE, "p": f32(2, 1)}, WIDE.repeat(2, 0)), ({"x": WIDE, "p": f32(2.2, 1.1)}, WIDE[[0, 0, 0, 1, 1, 2]][:, [0, 0, 1, 2]]),
      ({"x": WIDE, "p": f32(1, 2)}, message("Resize 'n'", "what 'scales' (input 2, value 'p') asks for", "[3, 8]",
                                          "[6, 4], for the declared shape [6,4] of 'y'"))]),
    ("dropout", node("Dropout", ["x", "r", "p"]), [(3, 4)],
     [({"x": WIDE, "r": np.float32(r), "p": np.array(p)}, WIDE) for r, p in ((0.5, False), (0, True))]
     + [({"x": WIDE, "r": np.float32(0.5), "p": np.array(True)},
         message("Dropout 'n'", "'training_mode' (input 2, value 'p')", 1, "inference, or a ratio of 0"))]),
]


def extent(name, found, legal, axis=0, output=0):
    return message(name, f"the extent of dimension {axis} of 'y' (output {output})", found, f"{legal}, as the model declares")


def check_counts():
    """Numbers of results that only a run knows are those declared, or the run is refused."""
    flags = lambda *values: np.array(values, bool)
    compress = [({"x": WIDE, "p": flags(*p)}, WIDE[list(p)] if sum(p) == 2 else extent("Compress 'n'", sum(p), 2))
                for p in ((True, False, True), (False, True, True), (True, True, True), (False, True, False))]
    non_zero = [({"x": f32(*x)}, np.array(np.nonzero(f32(*x))) if np.count_nonzero(x) == 2 else
                 extent("NonZero 'n'", np.count_nonzero(x), 2, 1))
                for x in ((1, 0, 3, 0), (0, 0, 0.5, -1), (0, 0, 0, 0), (1, 2, 3, 0))]
    unique = [({"x": f32(*x)}, np.unique(f32(*x)) if len(set(x)) == 2 else extent("Unique 'n'", len(set(x)), 2))
              for x in ((5, 1, 5, 1), (2, 2, 2, 7), (1, 1, 1, 1), (1, 2, 3, 4))]
    boxes = np.float32([[[0, 0, 1, 1], [0, 0.01, 1, 1.01], [0, 5, 1, 6]]])
    def suppress(scores, limit):
        chosen = [i for i in np.argsort(-np.array(scores)) if not (i == 1 and scores[0] > scores[1])
                  and not (i == 0 and scores[1] > scores[0]) and scores[i] > 0.5][:limit]
        given = {"x": boxes, "s": f32(*scores).reshape(1, 1, 3), "m": np.array(limit), "o": np.float32(0.5), "t": np.float32(0.5)}
        wanted = np.array([[0, 0, i] for i in chosen], np.int64)
        return given, wanted if len(chosen) == 1 else extent("NonMaxSuppression 'n'", len(chosen), 1)
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "one"], ["w"]), helper.make_node("Less", ["w", "top"], ["go"]),
         helper.make_node("Identity", ["w"], ["each"])], "body",
        [helper.make_tensor_value_info("i", 7, ()), helper.make_tensor_value_info("c", 9, ()),
         helper.make_tensor_value_info("v", 1, ())],
        [helper.make_tensor_value_info("go", 9, ()), helper.make_tensor_value_info("w", 1, ()),
         helper.make_tensor_value_info("each", 1, ())], [onnx.numpy_helper.from_array(np.float32(1), "one")])
    loop = lambda trips, top: ({"p": np.array(trips), "b": np.array(True), "x": np.float32(0), "top": np.float32(top)},
                               f32(1, 2, 3) if min(trips, top) == 3 else extent("Loop 'n'", min(trips, top, 4), 3, output=1))
    return [
        ("compress", node("Compress", ["x", "p"], axis=0), [(2, 4)], compress),
        ("non_zero", node("NonZero", ["x"]), [(1, 2)], non_zero),
        ("unique", node("Unique", ["x"]), [(2,)], unique),
        ("suppression", node("NonMaxSuppression", ["x", "s", "m", "o", "t"]), [(1, 3)],
         [suppress((0.9, 0.8, 0.1), 3), suppress((0.6, 0.8, 0.1), 3), suppress((0.9, 0.8, 0.7), 1),
          suppress((0.9, 0.8, 0.7), 3), suppress((0.1, 0.2, 0.3), 3)]),
        ("loop", node("Loop", ["p", "b", "x"], ("", "y"), body=body), [(3,)],
         [loop(3, 9), loop(9, 3), loop(2, 9), loop(9, 2), loop(7, 5)]),
    ]


def check_seed():
    """Dropout for training draws what the standard's reference draws for a seed."""
    def outcome(ratio):
        keep = np.random.RandomState(3).uniform(0, 1, WIDE.shape) >= ratio
        return np.where(keep, WIDE / np.float32(1 - ratio), 0).astype(np.float32)
    runs = [({"x": WIDE, "r": np.float32(r), "p": np.array(t)}, outcome(r) if t else WIDE)
            for r, t in ((0.5, True), (0.25, True), (0, True), (0.5, False))]
    return ("seed", node("Dropout", ["x", "r", "p"], seed=3), [(3, 4)], runs)


def check_not_taken():
    """A check in a branch of an If counts only when the branch is taken."""
    def branch(name, axis):
        nodes = [helper.make_node("ReduceSum", ["x", axis], [name], name=f"sum_{name}", keepdims=0)]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, 1, (3,))])
    if_node = helper.make_node("If", ["c"], ["y"], name="n", then_branch=branch("t", "p"), else_branch=branch("e", "q"))
    refused = message("ReduceSum '{}'", "'axes' (input 1, value '{}')", 0, "1, for the declared shape [3] of '{}'")
    runs = [({"c": np.array(c), "x": WIDE, "p": i64(p), "q": i64(q)}, outcome) for c, p, q, outcome in
            ((True, 1, 0, WIDE.sum(1)), (False, 0, 1, WIDE.sum(1)), (True, 0, 1, refused.format("sum_t", "p", "t")),
             (False, 1, 0, refused.format("sum_e", "q", "e")))]
    return ("not_taken", if_node, [(3,)], runs)


def check_contradiction():
    """A branch that contradicts the shapes at hand is refused when it is taken; the other one runs."""
    def branch(name, axis, shape):
        nodes = [helper.make_node("ReduceSum", ["x", axis], [f"{name}s"], name=f"sum_{name}", keepdims=0),
                 helper.make_node("Reshape", [f"{name}s", shape], [name], name=f"shape_{name}")]
        weights = [onnx.numpy_helper.from_array(i64(int(axis[1:])), axis), onnx.numpy_helper.from_array(i64(int(shape[1:])), shape)]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, 1, (3,))], weights)
    good, bad = branch("t", "a1", "s3"), branch("e", "b1", "r5")
    cases = []
    for flip in (False, True):
        if_node = helper.make_node("If", ["c"], ["y"], name="n", then_branch=bad if flip else good,
                                   else_branch=good if flip else bad)
        refused = message("If 'n'", "'cond' (input 0, value 'c')", int(flip), "shapes that "
                          f"{'then' if flip else 'else'}_branch contradicts: shape_e: Reshape: the shape [5] for an operand of type f32[3]")
        cases.append((f"contradiction_{flip}", if_node, [(3,)],
                      [({"c": np.array(not flip), "x": WIDE}, WIDE.sum(1)), ({"c": np.array(flip), "x": WIDE}, refused)]))
    return cases


def write_model(path, node_proto, declared, inputs):
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value))
             for name, value in inputs.items()]
    kinds = {"i": onnx.TensorProto.INT64} | {"y": helper.np_dtype_to_tensor_dtype(np.dtype(np.int64))
                                             if node_proto.op_type in ("Range", "NonZero", "NonMaxSuppression") else onnx.TensorProto.FLOAT}
    outputs = [helper.make_tensor_value_info(name, kinds.get(name, onnx.TensorProto.FLOAT), shape)
               for name, shape in zip(filter(None, node_proto.output), declared)]
    graph = helper.make_graph([node_proto], "g", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())


def run_once(tessera, folder, model, inputs, flags):
    command = [tessera, "run", str(model), *flags, "--output", f"y=@{folder}/y.npy"]
    for name, value in inputs.items():
        np.save(folder / f"{name}.npy", value)
        command += ["-i", f"{name}=@{folder}/{name}.npy"]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout, np.load(folder / "y.npy") if done.returncode == 0 else None


def main():
    tessera = sys.argv[1]
    failures = count = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for case, node_proto, declared, runs in CASES + check_counts() + [check_not_taken(), check_seed()] + check_contradiction():
            model = folder / f"{case}.onnx"
            write_model(model, node_proto, declared, runs[0][0])
            for flags in (["-O3"], ["-O0"], ["--engine", "interp"]):
                for inputs, wanted in runs:
                    count += 1
                    code, text, found = run_once(tessera, folder, model, inputs, flags)
                    if isinstance(wanted, str):
                        good = code == 1 and text.splitlines()[0] == wanted
                    else:
                        good = code == 0 and found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-5)
                    if not good:
                        failures += 1
                        shown = {k: v.tolist() for k, v in inputs.items() if k != "x"}
                        print(f"{case} {flags} {shown}: exit code {code}, {text}\n  wanted: {wanted}")
    print(f"{count - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
