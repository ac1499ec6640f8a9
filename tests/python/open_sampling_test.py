#!/usr/bin/env python3
"""Pictures of open sizes read between their pixels: GridSample in every mode, a picture moved by a flow (its grid is made of the
picture's own height and width), and RoiAlign over an open number of boxes. One module for the range, beside ONNX Runtime.

    open_sampling_test.py [FIRST..LAST]      seeds; default 0..7"""
import random
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, parser

import tessera

RANGES = {"batch": (1, 3), "h": (1, 40), "w": (1, 40), "p": (1, 30), "q": (0, 30), "r": (0, 20)}
SIZES = [(1, 1, 1, 1, 1, 0), (1, 1, 9, 4, 0, 1), (3, 40, 40, 30, 30, 20), (2, 2, 3, 5, 7, 3), (1, 17, 8, 3, 16, 6), (2, 33, 1, 1, 30, 2)]

# The grid of a picture's own places, moved by a flow in pixels. RIFE, RAFT and others do this.
MOVED = """<ir_version: 9, opset_import: ["" : 20]>
moved (float[batch,3,h,w] x, float[batch,2,h,w] flow) => (y) {
  zero = Constant<value = int64 {0}>()
  one = Constant<value = int64 {1}>()
  onef = Constant<value = float {1.0}>()
  two = Constant<value = float {2.0}>()
  l0 = Constant<value = int64[1] {0}>()
  l1 = Constant<value = int64[1] {1}>()
  l2 = Constant<value = int64[1] {2}>()
  l3 = Constant<value = int64[1] {3}>()
  down = Constant<value = int64[2] {-1, 1}>()
  across = Constant<value = int64[2] {1, -1}>()
  s = Shape(x)
  hl = Gather(s, l2)
  wl = Gather(s, l3)
  hs = Squeeze(hl, l0)
  ws = Squeeze(wl, l0)
  rows = Range(zero, hs, one)
  columns = Range(zero, ws, one)
  hw = Concat<axis = 0>(hl, wl)
  rowsd = Reshape(rows, down)
  columnsa = Reshape(columns, across)
  ygrid = Expand(rowsd, hw)
  xgrid = Expand(columnsa, hw)
  yf = Cast<to = 1>(ygrid)
  xf = Cast<to = 1>(xgrid)
  y3 = Unsqueeze(yf, l0)
  x3 = Unsqueeze(xf, l0)
  both = Concat<axis = 0>(x3, y3)
  at = Add(both, flow)
  ax = Slice(at, l0, l1, l1)
  ay = Slice(at, l1, l2, l1)
  wf = Cast<to = 1>(ws)
  hf = Cast<to = 1>(hs)
  ax2 = Mul(ax, two)
  ay2 = Mul(ay, two)
  ax3 = Add(ax2, onef)
  ay3 = Add(ay2, onef)
  ax4 = Div(ax3, wf)
  ay4 = Div(ay3, hf)
  ax5 = Sub(ax4, onef)
  ay5 = Sub(ay4, onef)
  places = Concat<axis = 1>(ax5, ay5)
  grid = Transpose<perm = [0, 2, 3, 1]>(places)
  y = GridSample<mode = "linear", padding_mode = "border">(x, grid)
}"""


def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def grid_sample(pick):
    attributes = {"mode": pick.choice(["linear", "nearest", "cubic"]), "padding_mode": pick.choice(["zeros", "border", "reflection"]),
                  "align_corners": pick.randrange(2)}
    channels = pick.choice([1, 3, 8])
    inputs = [value("x", ["batch", channels, "h", "w"]), value("grid", ["batch", "p", "q", 2])]
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], **attributes)
    return [node], inputs, [], f"GridSample {attributes}"


def roi_align(pick):
    attributes = {"mode": pick.choice(["avg", "max"]), "output_height": pick.randrange(1, 5), "output_width": pick.randrange(1, 5),
                  "sampling_ratio": pick.randrange(1, 4), "spatial_scale": pick.choice([1.0, 0.5]),
                  "coordinate_transformation_mode": pick.choice(["half_pixel", "output_half_pixel"])}
    inputs = [value("x", [1, pick.choice([1, 5, 16]), "h", "w"]), value("rois", ["r", 4])]
    # All boxes are of the only image.
    nodes = [helper.make_node("Shape", ["rois"], ["s"], end=1),
             helper.make_node("ConstantOfShape", ["s"], ["images"], value=numpy_helper.from_array(np.zeros(1, np.int64))),
             helper.make_node("RoiAlign", ["x", "rois", "images"], ["y"], **attributes)]
    return nodes, inputs, [], f"RoiAlign {attributes}"


def make_model(seed):
    pick = random.Random(seed)
    if seed % 8 == 7:
        return parser.parse_model(MOVED), "moved by a flow"
    nodes, inputs, weights, text = (roi_align if seed % 4 == 2 else grid_sample)(pick)
    graph = helper.make_graph(nodes, "g", inputs, [value("y", None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), text


def numbers_for(name, shape, random_numbers):
    x = random_numbers.standard_normal(shape).astype(np.float32)
    if name == "rois":  # x1 <= x2, y1 <= y2, some of them outside
        x = np.concatenate([x[:, :2] * 10, x[:, :2] * 10 + np.abs(x[:, 2:]) * 12], axis=1)
    return x * 3 if name == "flow" else x


def check(seed):
    model, text = make_model(seed)
    model_bytes = model.SerializeToString()
    reference = onnxruntime.InferenceSession(model_bytes, providers=["CPUExecutionProvider"])
    shapes = {i.name: i.shape for i in reference.get_inputs()}
    used = {d for shape in shapes.values() for d in shape if isinstance(d, str)}
    try:
        module = tessera.compile(model_bytes, threads=1 + seed % 2, dims={d: r for d, r in RANGES.items() if d in used})
    except tessera.Error as error:
        return f"seed {seed} ({text}): {error}"
    random_numbers = np.random.default_rng(seed)
    sizes = SIZES + [tuple(int(random_numbers.integers(lo, hi + 1)) for lo, hi in RANGES.values()) for _ in range(4)]
    for at in (dict(zip(RANGES, size, strict=True)) for size in sizes):
        feeds = {name: numbers_for(name, [at.get(d, d) for d in shape], random_numbers) for name, shape in shapes.items()}
        (want,), (got,) = reference.run(None, feeds), module.run(list(feeds.values()))
        if want.shape != got.shape:
            return f"seed {seed} ({text}): {got.shape} instead of {want.shape} at {at}"
        if want.size and not np.abs(got - want).max() <= 1e-4 * max(1.0, np.abs(want).max()):
            return f"seed {seed} ({text}): off by {np.abs(got - want).max():.2e} of {np.abs(want).max():.2e} at {at}"
    return ""


def main():
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0..7").partition("..")
    problems = [p for p in map(check, range(int(first), int(last) + 1)) if p]
    print("\n".join(problems) or f"{int(last) - int(first) + 1} models agree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
