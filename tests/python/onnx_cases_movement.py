"""Cases for make_onnx_cases.py: operators that move values (concat, reshape, transpose, slice, gather, resize, pad)."""
import itertools

import numpy as np
from onnx import helper


def i64(*values):
    return np.array(values, np.int64)


def f32(*values):
    return np.array(values, np.float32)


def add_concat(b):
    b.op("concat_one_input", "Concat", [(2, 3)], axis=1)
    for axis in (0, 1, 2, -1):
        shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
        for i, size in enumerate((1, 5, 2)):
            shapes[i][axis] = size
        b.op(f"concat_axis{str(axis).replace('-', 'minus')}", "Concat", [tuple(s) for s in shapes], axis=axis)
    b.op("concat_channels", "Concat", [(1, 24, 8, 9), (1, 24, 8, 9), (1, 3, 8, 9)], axis=1)
    b.op("concat_empty_part", "Concat", [(2, 0), (2, 3)], axis=1)
    b.op("concat_same_input_twice_1d", "Concat", [i64(1, 2), i64(3)], axis=0)
    b.op("concat_opset4_int64", "Concat", [i64(1, 2), i64(3)], 7, axis=0, constants=(1,))


def add_reshape(b):
    for name, shape, target in [("flat", (2, 3, 4), (24,)), ("infer", (2, 3, 4), (4, -1)), ("to_scalar", (1, 1), ()),
                                ("zero_copies", (2, 3, 4), (0, -1)), ("from_scalar", (), (1, 1, 1)),
                                ("same", (2, 3), (2, 3)), ("ones", (6,), (1, 6, 1)), ("empty", (0, 4), (2, 0))]:
        target_array = np.array(target, np.int64)
        value = b.random(name).standard_normal(shape).astype(np.float32)
        attributes = {"allowzero": 1} if name == "empty" else {}
        b.op(f"reshape_{name}", "Reshape", [value, target_array], 14, constants=(1,), **attributes)
    b.op("reshape_opset7", "Reshape", [(2, 3, 4), i64(6, -1)], 7, constants=(1,))
    for axis in (0, 1, 2, 3, -1):
        b.op(f"flatten_axis{str(axis).replace('-', 'minus')}", "Flatten", [(2, 3, 4)], 13, axis=axis)
    b.op("flatten_opset9", "Flatten", [(2, 3, 4)], 9)
    b.op("squeeze_axes", "Squeeze", [(1, 3, 1, 5), i64(0, -2)], 13, constants=(1,))
    b.op("squeeze_all", "Squeeze", [(1, 3, 1, 5)], 13)
    b.op("squeeze_opset11", "Squeeze", [(1, 3, 1, 5)], 11, axes=[2])
    b.op("unsqueeze_axes", "Unsqueeze", [(3, 5), i64(0, -1, 2)], 13, constants=(1,))
    b.op("unsqueeze_scalar", "Unsqueeze", [np.array(3, np.int64), i64(0)], 13, constants=(1,))
    b.op("unsqueeze_opset9", "Unsqueeze", [(3, 5)], 9, axes=[0, 3])
    b.op("expand", "Expand", [(3, 1), i64(2, 1, 6)], 13, constants=(1,))


def add_transpose(b):
    for rank in (1, 2, 3, 4):
        for perm in itertools.permutations(range(rank)):
            shape = (3, 5, 2, 7)[:rank]
            b.op(f"transpose_{''.join(map(str, perm))}", "Transpose", [shape], perm=list(perm))
    b.op("transpose_default", "Transpose", [(2, 3, 4)])
    b.op("transpose_to_channels_last", "Transpose", [(1, 64, 30, 40)], perm=[0, 2, 3, 1])
    b.op("transpose_empty", "Transpose", [(2, 0, 3)], perm=[2, 0, 1])
    b.op("transpose_int64", "Transpose", [np.arange(12, dtype=np.int64).reshape(3, 4)])
    b.op("transpose_5d", "Transpose", [(2, 3, 2, 4, 3)], perm=[4, 1, 3, 0, 2])


def add_slice(b):
    last = np.iinfo(np.int64).max
    for name, starts, ends, axes, steps in [
            ("begin", [1], [3], [0], None), ("all_axes", [0, 1, 2], [3, 4, 5], None, None),
            ("to_the_end", [2], [last], [2], None), ("negative", [-3], [-1], [1], None),
            ("steps", [0, 1], [5, 6], [1, 2], [2, 3]), ("backwards", [-1], [-last], [1], [-1]),
            ("backwards_by_two", [4, 5], [0, 1], [1, 2], [-2, -2]),
            ("out_of_range", [-100], [100], [2], None), ("empty", [3], [2], [1], None), ("one", [4], [5], [2], None)]:
        inputs = [(4, 5, 6), i64(*starts), i64(*ends), None if axes is None else i64(*axes),
                  None if steps is None else i64(*steps)]
        while inputs[-1] is None:
            inputs.pop()
        constants = [i for i in range(1, len(inputs)) if inputs[i] is not None]
        b.op(f"slice_{name}", "Slice", inputs, 13, constants=constants)
    b.op("slice_opset9", "Slice", [(1, 6, 4)], 9, axes=[2], starts=[0], ends=[2])
    b.op("slice_opset9_to_the_end", "Slice", [(1, 6, 4)], 9, axes=[2], starts=[2], ends=[last])
    b.op("slice_opset9_default_axes", "Slice", [(4, 6)], 9, starts=[1, -2], ends=[3, last])
    for name, split, axis, count in [("even", None, 1, 2), ("sizes", i64(1, 2, 3), 0, 3),
                                     ("last_axis", i64(5, 1), -1, 2)]:
        inputs = [(6, 4, 6)] + ([] if split is None else [split])
        b.op(f"split_{name}", "Split", inputs, 13, outputs=count, constants=() if split is None else (1,), axis=axis)


def add_gather(b):
    for axis in (0, 1, -1):
        for name, indices in [("scalar", np.array(2, np.int64)), ("vector", i64(0, 2, 2, -1)),
                              ("matrix", i64(0, 1, -2, 2).reshape(2, 2)), ("int32", np.array([1, 0], np.int32)),
                              ("empty", np.zeros((0,), np.int64))]:
            b.op(f"gather_axis{str(axis).replace('-', 'minus')}_{name}", "Gather", [(3, 4, 5), indices], 13, axis=axis,
                 constants=(1,) if name != "vector" else ())
    b.op("gather_shape_element", "Gather", [i64(1, 30, 40, 6), np.array(1, np.int64)], 9, constants=(1,))
    node = helper.make_node
    x = b.random("shape").standard_normal((2, 30, 4)).astype(np.float32)
    b.op("shape", "Shape", [x])
    b.op("shape_start_end", "Shape", [x], 15, start=1, end=-1)
    b.op("shape_scalar", "Shape", [np.array(1, np.float32)])
    exporter = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["g"], axis=0),
                node("Unsqueeze", ["g"], ["u"], axes=[0]), node("Concat", ["u", "minus", "two"], ["t"], axis=0),
                node("Reshape", ["x", "t"], ["y"])]
    constants = {"zero": np.array(0, np.int64), "minus": i64(-1), "two": i64(2)}
    b.graph("chain_reshape_from_shape", exporter, {"x": x} | constants, ["y"], 9, list(constants))


def add_turned_tiles(b):
    """Transposes that are cut into square tiles, with something left over on neither, one and both sides."""
    for shape, perm in [((32, 48), (1, 0)), ((33, 50), (1, 0)), ((16, 77), (1, 0)), ((2, 19, 40), (0, 2, 1)),
                        ((3, 5, 20, 18), (0, 2, 3, 1)), ((2, 9, 7, 35), (0, 3, 1, 2)), ((20, 3, 21), (2, 1, 0)),
                        ((17, 2, 3, 16), (3, 1, 2, 0))]:
        for dtype in (np.float32, np.int64, np.float16):
            x = b.random("turned").standard_normal(shape) * 100
            b.op(f"transpose_tiles_{'x'.join(map(str, shape))}_{np.dtype(dtype).name}", "Transpose", [x.astype(dtype)], 13,
                 perm=perm)


def add_resize(b):
    def case(name, x, scales=None, sizes=None, opset=13, **attributes):
        if opset == 10:
            inputs, constants = [x, f32(*scales)], (1,)
        elif sizes is None:
            inputs, constants = [x, f32(), f32(*scales)], (1, 2)
        else:
            inputs, constants = [x, f32(), f32(), i64(*sizes)], (1, 2, 3)
        b.op(f"resize_{name}", "Resize", inputs, opset, constants=constants, **attributes)

    nearest = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    for factor in (2, 4, 8):
        case(f"nearest_times{factor}", (1, 6, 5, 7), (1, 1, factor, factor), **nearest)
    case("nearest_opset11", (1, 3, 5, 7), (1, 1, 2, 3), opset=11, **nearest)
    case("nearest_opset10", (1, 3, 5, 7), (1, 1, 2, 3), opset=10, mode="nearest")
    case("nearest_sizes", (1, 3, 5, 7), sizes=(1, 3, 8, 9), **nearest)
    case("nearest_down", (1, 3, 9, 8), (1, 1, 0.5, 0.625), **nearest)
    for coordinates in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            if (coordinates, rounding) == ("align_corners", "floor"):
                continue  # positions fall exactly on pixels, so rounding errors would decide
            case(f"nearest_{coordinates}_{rounding}", (1, 2, 5, 6), (1, 1, 1.7, 2.5), mode="nearest",
                 coordinate_transformation_mode=coordinates, nearest_mode=rounding)
        case(f"linear_{coordinates}", (1, 2, 5, 6), (1, 1, 2, 1.5), mode="linear",
             coordinate_transformation_mode=coordinates)
        case(f"linear_down_{coordinates}", (1, 2, 9, 8), sizes=(1, 2, 4, 5), mode="linear",
             coordinate_transformation_mode=coordinates)
    case("one_position", (1, 2, 1, 1), (1, 1, 4, 3), mode="linear")
    for mode in ("nearest", "linear"):
        b.op(f"upsample_{mode}_opset9", "Upsample", [(1, 2, 4, 5), f32(1, 1, 2, 3)], 9, constants=(1,), mode=mode)
        b.op(f"upsample_{mode}_opset7", "Upsample", [(1, 2, 4, 5)], 7, mode=mode, scales=[1.0, 1.0, 2.0, 2.0])


def add_pad(b):
    for mode in ("constant", "reflect", "edge"):
        b.op(f"pad_{mode}", "Pad", [(1, 2, 5, 6), i64(0, 0, 1, 2, 0, 0, 3, 1)], 13, constants=(1,), mode=mode)
        b.op(f"pad_{mode}_opset7", "Pad", [(1, 2, 5, 6)], 7, mode=mode, pads=[0, 0, 1, 2, 0, 0, 3, 1])
    b.op("pad_value", "Pad", [(2, 3), i64(1, 0, 0, 2), np.array(-1.5, np.float32)], 13, constants=(1, 2))
    b.op("pad_negative_crops", "Pad", [(5, 6), i64(-1, 1, -2, 0)], 13, constants=(1,))
    b.op("pad_axes_opset18", "Pad", [(2, 3, 4), i64(1, 2), None, i64(2)], 18, constants=(1, 3))
    b.op("pad_empty_input", "Pad", [(0, 3), i64(2, 0, 1, 0)], 13, constants=(1,))


def add_cases(b):
    add_concat(b)
    add_reshape(b)
    add_transpose(b)
    add_slice(b)
    add_gather(b)
    add_turned_tiles(b)
    add_resize(b)
    add_pad(b)
