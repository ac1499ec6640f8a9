"""Cases for make_onnx_cases.py: axes, shapes, pads, sizes and the like as graph inputs, with the results' shapes declared
(make_onnx_cases.py declares what ONNX Runtime gives)."""
import itertools

import numpy as np
from onnx import helper


def i64(*values):
    return np.array(values, np.int64)


def f32(*values):
    return np.array(values, np.float32)


def scalar(value, dtype=np.int64):
    return np.array(value, dtype)


def add_reductions(b):
    kinds = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    for kind in kinds:
        x = np.abs(b.random(kind).standard_normal((3, 4, 5))).astype(np.float32) + 0.1
        b.op(f"parameter_reduce_{kind}", f"Reduce{kind}", [x, i64(-2)], 18, keepdims=1)
        b.op(f"parameter_reduce_{kind}_drop", f"Reduce{kind}", [x, i64(2, 0)], 18, keepdims=0)
    # Extents that are equal, or 1: the axes decide, not the shape.
    for axis in (0, 1, 2, -1):
        b.op(f"parameter_reduce_cube_{axis % 4}", "ReduceSum", [(3, 3, 3), i64(axis)], 13, keepdims=0)
        b.op(f"parameter_reduce_ones_{axis % 4}", "ReduceMax", [(3, 1, 1), i64(axis)], 18, keepdims=1)
    for axes in itertools.combinations(range(3), 2):
        b.op(f"parameter_reduce_pair_{axes[0]}{axes[1]}", "ReduceMean", [(4, 4, 4), i64(*axes)], 18, keepdims=0)
    b.op("parameter_reduce_no_axes", "ReduceSum", [(3, 2), i64()], 13, keepdims=1)
    b.op("parameter_reduce_no_axes_noop", "ReduceSum", [(3, 2), i64()], 13, noop_with_empty_axes=1)
    b.op("parameter_reduce_empty", "ReduceSum", [(2, 0, 4), i64(1)], 13, keepdims=1)
    b.op("parameter_reduce_int64", "ReduceProd", [np.arange(1, 7).reshape(2, 3), i64(0)], 18, keepdims=0)
    # Declared behind functions of each element.
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0), helper.make_node("Sqrt", ["sum"], ["r"]),
             helper.make_node("Mul", ["r", "two"], ["y"])]
    b.graph("parameter_reduce_behind", nodes, {"x": np.ones((3, 4), np.float32), "axes": i64(0), "two": f32(2)}, ["y"],
            13, ["two"])


def add_shapes(b):
    for name, shape, target in [("same", (2, 3), (2, 3)), ("infer", (2, 3, 4), (4, -1)), ("copy", (2, 3, 4), (0, 12)),
                                ("both", (2, 3, 4), (0, -1, 2)), ("one", (1, 1), (1,)), ("more", (6,), (1, 6, 1)),
                                ("empty", (0, 4), (0, 2, 2))]:
        b.op(f"parameter_reshape_{name}", "Reshape", [shape, i64(*target)], 14)
    b.op("parameter_reshape_allowzero", "Reshape", [(0, 4), i64(2, 0)], 14, allowzero=1)
    for name, shape, target in [("wider", (3, 1), (2, 3, 6)), ("ones", (3, 4), (1, 1)), ("own", (3, 1), (3, 4)),
                                ("shorter", (2, 3, 1), (3, 5)), ("scalar", (), (2, 2)), ("empty", (1, 2), (0, 2))]:
        b.op(f"parameter_expand_{name}", "Expand", [shape, i64(*target)], 13)
    b.op("parameter_tile", "Tile", [(2, 3), i64(3, 2)], 13)
    b.op("parameter_tile_once", "Tile", [(2, 3, 1), i64(1, 1, 4)], 13)
    b.op("parameter_tile_none", "Tile", [(2, 3), i64(1, 0)], 13)
    for axes in ((0,), (1,), (-1,), (0, 2), (2, -4)):
        b.op(f"parameter_unsqueeze_{'_'.join(map(str, axes)).replace('-', 'm')}", "Unsqueeze", [(3, 5), i64(*axes)], 13)
    b.op("parameter_unsqueeze_ones", "Unsqueeze", [(1, 1), i64(1)], 13)
    for axes in ((0,), (-2,), (0, 2)):
        b.op(f"parameter_squeeze_{'_'.join(map(str, axes)).replace('-', 'm')}", "Squeeze", [(1, 3, 1, 5), i64(*axes)], 13)
    for shape in ((2, 3), (0,), (1, 2, 1)):
        b.op(f"parameter_constant_of_shape_{len(shape)}", "ConstantOfShape", [i64(*shape)], 9)
    for name, values in [("i64", (scalar(10), scalar(1), scalar(-3))), ("i32", tuple(scalar(v, np.int32) for v in (2, 9, 3))),
                         ("f32", tuple(scalar(v, np.float32) for v in (0.5, 3, 0.25))),
                         ("none", (scalar(5), scalar(1), scalar(2)))]:
        b.op(f"parameter_range_{name}", "Range", list(values), 11)
    b.op("parameter_range_from_zero", "Range", [scalar(0), scalar(7), scalar(1)], 11, constants=(0, 2))


def add_parts(b):
    cases = [("both", i64(1, 0), i64(3, 2), i64(0, 2), i64(1, 1)), ("negative", i64(-4, -2), i64(-1, -1), i64(0, 1), None),
             ("steps", i64(0, 4), i64(5, 0), i64(0, 1), i64(2, -1)), ("backwards", i64(-1), i64(-100), i64(-1), i64(-1)),
             ("beyond", i64(1), i64(2**62), i64(0), i64(1)), ("first_axes", i64(1, 2), i64(4, 4), None, None),
             ("nothing", i64(3), i64(3), i64(1), None), ("smallest", i64(4), i64(-2**63), i64(1), i64(-3)),
             ("all", i64(0), i64(1000), i64(1), None), ("reversed_end", i64(-1), i64(0), i64(0), i64(-2))]
    for name, starts, ends, axes, steps in cases:
        b.op(f"parameter_slice_{name}", "Slice", [(5, 6, 4), starts, ends, axes, steps], 13)
        if axes is not None:
            b.op(f"parameter_slice_{name}_known_axes", "Slice", [(5, 6, 4), starts, ends, axes, steps], 13, constants=(3,))
    b.op("parameter_slice_starts", "Slice", [(5, 6), i64(2), i64(4), i64(1)], 13, constants=(2, 3))
    b.op("parameter_slice_int32", "Slice", [(5, 6), np.array([2], np.int32), np.array([4], np.int32)], 13)
    for name, sizes, axis in [("two", (2, 4), 0), ("three", (1, 3, 2), 1), ("zero", (0, 6), -1)]:
        b.op(f"parameter_split_{name}", "Split", [(6, 6), i64(*sizes)], 13, len(sizes), axis=axis)
    for mode in ("constant", "reflect", "edge", "wrap"):
        opset = 19 if mode == "wrap" else 13
        b.op(f"parameter_pad_{mode}", "Pad", [(1, 2, 5, 6), i64(0, 0, 1, 2, 0, 0, 3, 1)], opset, mode=mode)
        b.op(f"parameter_pad_{mode}_axes", "Pad", [(4, 5), i64(2, 1), None, i64(-1)], 19, mode=mode)
    b.op("parameter_pad_value", "Pad", [(2, 3), i64(1, 0, 0, 2), scalar(-1.5, np.float32)], 13)
    b.op("parameter_pad_crops", "Pad", [(5, 6), i64(-1, 1, -2, 0)], 13)
    b.op("parameter_pad_int64", "Pad", [np.arange(6).reshape(2, 3), i64(1, 1, 0, 0), scalar(7)], 13)
    b.op("parameter_pad_empty", "Pad", [(0, 3), i64(2, 0, 1, 0)], 13)
    for k in (1, 3, 5):
        b.op(f"parameter_top_k_{k}", "TopK", [(3, 5), i64(k)], 11, 2)
    b.op("parameter_top_k_axis", "TopK", [(4, 3), i64(2)], 11, 2, axis=0, largest=0)
    for axis in (0, 1, -1):
        b.op(f"parameter_one_hot_{axis % 3}", "OneHot", [np.array([[1, -2], [3, 9]]), scalar(5), f32(0, 2)], 11, axis=axis)
    b.op("parameter_one_hot_float", "OneHot", [i64(0, 2), scalar(3, np.float32), f32(0, 1)], 11)


def add_cumulated(b):
    for axis, exclusive, reverse in itertools.product((0, 1, -1), (0, 1), (0, 1)):
        b.op(f"parameter_cumsum_{axis % 3}_{exclusive}{reverse}", "CumSum", [(4, 4), scalar(axis)], 14,
             exclusive=exclusive, reverse=reverse)
    b.op("parameter_cumsum_rank1", "CumSum", [(7,), np.array([0], np.int32)], 14)
    b.op("parameter_cumsum_rank4", "CumSum", [(2, 3, 1, 4), scalar(-2)], 14)
    b.op("parameter_dropout", "Dropout", [(3, 4), scalar(0.5, np.float32), np.array(False)], 13, 2)
    b.op("parameter_dropout_ratio_zero", "Dropout", [(3, 4), scalar(0, np.float32), np.array(True)], 13, 2)


def add_resize(b):
    def case(name, shape, scales=None, sizes=None, opset=18, **attributes):
        inputs = [shape, None, f32(*scales)] if sizes is None else [shape, None, None, i64(*sizes)]
        b.op(f"parameter_resize_{name}", "Resize", inputs, opset, **attributes)

    for coordinates in ("half_pixel", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"):
        extra = {"coordinate_transformation_mode": coordinates, "opset": 19}
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            case(f"nearest_{coordinates}_{rounding}", (1, 2, 5, 6), (1, 1, 1.7, 2.4), mode="nearest",
                 nearest_mode=rounding, **extra)
            case(f"nearest_{coordinates}_{rounding}_ties", (1, 1, 5, 6), (1, 1, 2.5, 2.3), mode="nearest",
                 nearest_mode=rounding, **extra)
        for mode in ("linear", "cubic"):
            case(f"{mode}_{coordinates}", (1, 2, 5, 6), (1, 1, 1.7, 2.4), mode=mode, **extra)
            case(f"{mode}_{coordinates}_down", (1, 2, 9, 8), (1, 1, 0.6, 0.7), mode=mode, **extra)
            case(f"{mode}_{coordinates}_sizes", (1, 2, 9, 8), sizes=(1, 2, 4, 11), mode=mode, **extra)
    for mode in ("nearest", "linear", "cubic"):
        case(f"{mode}_align_corners", (1, 1, 4, 5), (1, 1, 2, 3), mode=mode, nearest_mode="round_prefer_ceil",
             coordinate_transformation_mode="align_corners")
    for policy in ("not_larger", "not_smaller"):
        for mode in ("nearest", "linear"):
            case(f"{mode}_{policy}", (1, 1, 6, 8), sizes=(9, 10), mode=mode, axes=[2, 3], keep_aspect_ratio_policy=policy)
    for mode in ("linear", "cubic"):
        case(f"{mode}_antialias", (1, 1, 9, 8), (1, 1, 0.5, 0.4), mode=mode, antialias=1)
        case(f"{mode}_antialias_sizes", (1, 1, 9, 8), sizes=(1, 1, 2, 3), mode=mode, antialias=1)
        case(f"{mode}_antialias_up", (1, 1, 4, 4), (1, 1, 2, 0.5), mode=mode, antialias=1)
    case("cubic_exclude_outside", (1, 1, 5, 6), (1, 1, 1.7, 0.6), mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
    case("same", (1, 1, 4, 4), (1, 1, 1, 1), mode="linear")
    for roi in ((0, 0, 0.4, 0.6, 1, 1, 0.6, 0.8), (0, 0, 1.2, -0.2, 1, 1, 0.1, 1.3)):
        b.op(f"parameter_resize_crop_{len(str(roi))}", "Resize", [(1, 1, 4, 5), f32(*roi), None, i64(1, 1, 3, 3)], 13,
             mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=10.0)
    b.op("parameter_upsample", "Upsample", [(1, 2, 4, 5), f32(1, 1, 2, 3)], 9, mode="nearest")


def add_cases(b):
    add_reductions(b)
    add_shapes(b)
    add_parts(b)
    add_cumulated(b)
    add_resize(b)
