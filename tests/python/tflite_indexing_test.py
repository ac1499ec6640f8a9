#!/usr/bin/env python3
"""Random TFLite operators that take, place, count and order elements, beside LiteRT's reference kernels.

    tflite_indexing_test.py TESSERA FIRST..LAST [NAMES]"""

import sys

import numpy as np

import tflite_cases
from tflite_cases import Case

F, I8, U8, I16, I32, I64, B = np.float32, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_


def shape_of(case, low=1, high=4):
    return [case.pick(1, 2, 3, 5, 7) for _ in range(case.number(low, high))]


def gather(case, dtype):
    shape = shape_of(case, 1, 4)
    axis = case.number(0, len(shape) - 1)
    batch = case.number(0, axis)
    places = shape[:batch] + shape_of(case, 0, 2)
    indices = case.constant(case.rng.integers(0, shape[axis], places), case.pick(I32, I64))
    out = shape[:axis] + places[batch:] + shape[axis + 1:]
    case.output("GATHER", out, dtype, [case.input(shape, dtype), indices], "GatherOptions", 5, f"{shape}", axis=axis,
                batchDims=batch)


def nd_places(case, shape, outer):
    width = case.number(1, len(shape))
    flat = np.stack([case.rng.integers(0, d, outer) for d in shape[:width]], -1)
    return flat, width


def gather_nd(case, dtype):
    shape, outer = shape_of(case, 1, 4), shape_of(case, 0, 2)
    places, width = nd_places(case, shape, outer)
    case.output("GATHER_ND", outer + shape[width:], dtype, [case.input(shape, dtype), case.constant(places, case.pick(I32, I64))],
                note=f"{shape}", version=5)


def scatter_nd(case, dtype):
    shape, outer = shape_of(case, 1, 4), shape_of(case, 1, 2)
    places, width = nd_places(case, shape, outer)
    updates = case.input(outer + shape[width:], dtype)
    case.output("SCATTER_ND", shape, dtype, [case.constant(places, I32), updates, case.builder.ints(shape)], "ScatterNdOptions")


def sparse_to_dense(case, dtype):
    shape = shape_of(case, 1, 4)
    total = int(np.prod(shape))
    count = case.number(1, total)
    flat = case.rng.permutation(total)[:count]
    places = np.stack(np.unravel_index(flat, shape), -1)
    if len(shape) == 1 and case.rng.random() < 0.7:
        places = places[:, 0]
        if case.rng.random() < 0.3:
            places, count = places[0], 1
    values = case.input([count] if case.rng.random() < 0.7 and np.ndim(places) else [], dtype)
    rest = case.constant(case.value([], dtype), dtype)
    case.output("SPARSE_TO_DENSE", shape, dtype, [case.constant(places, case.pick(I32, I64)), case.builder.ints(shape), values, rest],
                "SparseToDenseOptions", 3, f"{np.shape(places)}")


def one_hot(case, dtype):
    shape, depth = shape_of(case, 0, 3), case.number(1, 6)
    axis = case.number(-1, len(shape))
    place = len(shape) if axis == -1 else axis
    indices = case.builder.input(shape, I32)
    case.values.append(case.rng.integers(-1, depth + 1, shape).astype(I32))
    on, off = (case.constant(case.value([], dtype), dtype) for _ in range(2))
    case.output("ONE_HOT", shape[:place] + [depth] + shape[place:], dtype, [indices, case.constant(depth, I32), on, off],
                "OneHotOptions", axis=axis)


def reverse_sequence(case, dtype):
    shape = shape_of(case, 2, 4)
    along, batch = (int(n) for n in case.rng.permutation(len(shape))[:2])
    lengths = case.builder.input([shape[batch]], I32)
    case.values.append(case.rng.integers(0, shape[along] + 1, shape[batch]).astype(I32))
    case.output("REVERSE_SEQUENCE", shape, dtype, [case.input(shape, dtype), lengths], "ReverseSequenceOptions", seqDim=along,
                batchDim=batch)


def segments(case, dtype):
    shape = shape_of(case, 1, 3)
    x = case.input(shape, dtype)
    if case.rng.random() < 0.3:
        ids = np.cumsum(case.rng.integers(0, 2, shape[0]))
        ids -= ids[0]
        return case.output("SEGMENT_SUM", [int(ids[-1]) + 1] + shape[1:], dtype, [x, case.constant(ids, I32)])
    count = case.number(1, 6)
    ids = case.rng.integers(0, count, shape[0])
    kind = case.pick("SUM", "PROD", "MAX", "MIN")
    return case.output(f"UNSORTED_SEGMENT_{kind}", [count] + shape[1:], dtype,
                       [x, case.constant(ids, I32), case.constant(count, I32)])


def embedding(case, dtype):
    shape = [case.number(1, 9)] + shape_of(case, 1, 2)
    count = case.number(1, 5)
    rows = case.builder.input([count], I32)
    case.values.append(case.rng.integers(0, shape[0], count).astype(I32))
    scale = None
    if dtype != F:
        scale = case.scale() if case.rng.random() < 0.5 else [case.scale() for _ in range(shape[0])]
    table = case.constant(case.value(shape, dtype), dtype, scale=scale)
    case.output("EMBEDDING_LOOKUP", [count] + shape[1:], F, [rows, table], version=3 if dtype != F else 1,
                note=f"{np.dtype(dtype).name} {np.size(scale)}")


def update_slice(case, dtype):
    shape = shape_of(case, 1, 4)
    part = [case.number(1, d) for d in shape]
    starts = case.builder.input([len(shape)], I32)
    case.values.append(case.rng.integers(-2, 7, len(shape)).astype(I32))
    case.output("DYNAMIC_UPDATE_SLICE", shape, dtype, [case.input(shape, dtype), case.input(part, dtype), starts], note=f"{part}")


def cumsum(case, dtype):
    shape = shape_of(case, 1, 4)
    axis = case.number(-len(shape), len(shape) - 1)
    case.output("CUMSUM", shape, dtype, [case.input(shape, dtype), case.constant(axis, I32)], "CumsumOptions",
                exclusive=bool(case.number(0, 1)), reverse=bool(case.number(0, 1)), note=f"{axis}")


def bucketize(case, dtype):
    shape = shape_of(case, 0, 3)
    limits = sorted(float(np.float32(v)) for v in case.rng.standard_normal(case.number(1, 6)) * 2)
    case.output("BUCKETIZE", shape, I32, [case.input(shape, dtype)], "BucketizeOptions", boundaries=limits)


def top_k(case, dtype):
    shape = shape_of(case, 1, 3)
    count = case.number(1, shape[-1])
    x = case.input(shape, dtype)
    case.values[-1] = (case.values[-1] * (1 if case.rng.random() < 0.5 else 0)).astype(dtype)  # equal ones keep their order
    case.outputs("TOPK_V2", [(shape[:-1] + [count], dtype), (shape[:-1] + [count], I32)], [x, case.constant(count, I32)])


def numbers(case, dtype):
    start, count = case.number(-20, 20), case.number(1, 30)
    delta = case.pick(1, 2, 3, -1, -4)
    if dtype == F:
        start, delta = start * 0.37, delta * 0.1
    limit = start + delta * count
    case.output("RANGE", [count if dtype != F else int(np.ceil(abs((F(limit) - F(start)) / F(delta))))], dtype,
                [case.constant(v, dtype) for v in (start, limit, delta)], note=f"{start} {limit} {delta}")


def broadcast_args(case, dtype):
    full = shape_of(case, 1, 4)
    lists = []
    for _ in range(2):
        part = full[case.number(0, len(full) - 1):]
        lists.append([d if case.rng.random() < 0.6 else 1 for d in part])
    rank = max(map(len, lists))
    operands = []
    for numbers_of in lists:
        operands.append(case.builder.input([len(numbers_of)], dtype))
        case.values.append(np.array(numbers_of, dtype))
    case.output("BROADCAST_ARGS", [rank], dtype, operands)


def diagonal(case, dtype):
    shape = shape_of(case, 1, 3)
    if case.rng.random() < 0.5:
        return case.output("MATRIX_DIAG", shape + [shape[-1]], dtype, [case.input(shape, dtype)])
    shape = shape + [case.pick(1, 2, 4, 6)]
    own = shape[:-2] + [min(shape[-2:])]
    return case.output("MATRIX_SET_DIAG", shape, dtype, [case.input(shape, dtype), case.input(own, dtype)])


def suppression(case, dtype):
    count, most = case.number(1, 30), case.number(1, 12)
    corners = case.rng.random((count, 2, 2)) * 4
    boxes = np.concatenate([corners[:, 0], corners[:, 0] + case.rng.random((count, 2)) * 2], 1).astype(F)
    if case.rng.random() < 0.3:
        boxes = boxes[:, [2, 3, 0, 1]]
    b, s = case.builder.input([count, 4], F), case.builder.input([count], F)
    case.values += [boxes, case.rng.random(count).astype(F)]
    limits = [case.constant(most, I32), case.constant(case.rng.random(), F), case.constant(case.rng.random() * 0.6, F)]
    if case.rng.random() < 0.5:
        return case.outputs("NON_MAX_SUPPRESSION_V4", [([most], I32), ([], I32)], [b, s, *limits])
    return case.outputs("NON_MAX_SUPPRESSION_V5", [([most], I32), ([most], F), ([], I32)],
                        [b, s, *limits, case.constant(0, F)])


def moving_slice(case, dtype):
    shape = shape_of(case, 1, 4)
    sizes = [case.number(1, d) for d in shape]
    starts = case.builder.input([len(shape)], I32)
    first = np.array([case.number(0, d - s) for d, s in zip(shape, sizes)], I32)
    case.values.append(first)
    if case.rng.random() < 0.5:
        return case.output("SLICE", sizes, dtype, [case.input(shape, dtype), starts, case.constant(sizes, I32)], note=f"{shape}")
    # One element along some dimensions, the whole along others.
    mask = [case.number(0, 1) for _ in shape]
    case.values[-1][:] = [case.number(-d, d - 1) if m else 0 for d, m in zip(shape, mask)]
    begin_mask = sum(1 << i for i, m in enumerate(mask) if not m)
    ends = case.builder.tensor([len(shape)], I32)
    case.builder.operator("ADD", [starts, case.constant(np.ones(len(shape)), I32)], [ends], "AddOptions")
    case.output("STRIDED_SLICE", [d for d, m in zip(shape, mask) if not m], dtype,
                [case.input(shape, dtype), starts, ends, case.constant(np.ones(len(shape)), I32)], "StridedSliceOptions",
                note=f"{shape} {mask}", beginMask=begin_mask, endMask=begin_mask,
                shrinkAxisMask=sum(1 << i for i, m in enumerate(mask) if m))


def stablehlo(case, dtype):
    shape = shape_of(case, 1, 4)
    kind = "AND" if dtype == B else case.pick("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")
    case.output(f"STABLEHLO_{kind}", shape, dtype, [case.input(shape, dtype), case.input(shape, dtype)])


def where(case, dtype):
    """Places, and what is chosen by them: as tf.boolean_mask and tf.gather_nd(x, tf.where(...)) are converted."""
    shape = shape_of(case, 1, 4)
    values = case.value(shape, dtype) * (case.rng.random(shape) < case.pick(0.1, 0.3, 1)).astype(dtype)
    values.reshape(-1)[case.number(0, values.size - 1)] = 1  # LiteRT gives no list without elements
    mask = case.builder.input(shape, dtype)
    case.values.append(values.astype(dtype))
    case.output("WHERE", [1, len(shape)], I64, [mask], note=f"{shape}", version=2)
    places = case.builder.outputs[-1]
    x = case.input(shape, case.pick(F, I32))
    dtype_of_x = F if case.values[-1].dtype == F else I32
    if len(shape) > 1:
        return case.output("GATHER_ND", [1], dtype_of_x, [x, places], note=f"{shape} where", version=2)
    list_of_places = case.builder.tensor([1], I64)
    case.builder.operator("SQUEEZE", [places], [list_of_places], "SqueezeOptions", squeezeDims=[1])
    case.output("GATHER", [1], dtype_of_x, [x, list_of_places], "GatherOptions", note=f"{shape} where")
    case.output("SUM", [], dtype_of_x, [case.builder.outputs[-1], case.builder.ints([0])], "ReducerOptions", note="where", tolerance=1e-5)


def unique(case, dtype):
    count = case.pick(1, 2, 7, 40, 300)
    few = case.value([case.pick(1, 3, 50)], dtype)
    x = case.builder.input([count], dtype)
    case.values.append(few[case.rng.integers(0, len(few), count)])
    places = case.pick(I32, I64)
    case.outputs("UNIQUE", [([1], dtype), ([count], places)], [x], "UniqueOptions", note=f"{count} of {len(few)}",
                 idxOutType=2 if places == I32 else 4)


KINDS = {
    "where": (where, (F, I8, U8, I32, I64, B)),
    "unique": (unique, (F, I8, U8, I16, I32, I64)),
    "stablehlo": (stablehlo, (F, I32, I64, B)),
    "moving_slice": (moving_slice, (F, I8, I32, I64)),
    "gather": (gather, (F, I8, U8, I16, I32, I64, B)),
    "gather_nd": (gather_nd, (F, I8, U8, I16, I32, I64, B)),
    "scatter_nd": (scatter_nd, (F, I8, U8, I32, I64, B)),
    "sparse_to_dense": (sparse_to_dense, (F, I8, U8, I32, I64)),
    "one_hot": (one_hot, (F, I8, U8, I32, I64, B)),
    "reverse_sequence": (reverse_sequence, (F, U8, I16, I32, I64)),
    "segments": (segments, (F, I32)),
    "embedding": (embedding, (F, I8)),
    "update_slice": (update_slice, (F, I8, I32, I64, B)),
    "cumsum": (cumsum, (F, I32, I64)),
    "bucketize": (bucketize, (F, np.float64, I32, I64)),
    "top_k": (top_k, (F, I8, U8, I16, I32, I64)),
    "numbers": (numbers, (F, I32, I64)),
    "broadcast_args": (broadcast_args, (I32, I64)),
    "diagonal": (diagonal, (F, I8, U8, I16, I32, I64)),
    "suppression": (suppression, (F,)),
}


if __name__ == "__main__":
    sys.exit(tflite_cases.main_of_kinds(KINDS))
