"""Cases for make_onnx_cases.py: operators that are composed of others (quantised tensors, orders, samples, losses)."""
import numpy as np
from onnx import TensorProto, helper


def add_quantized(b):
    for name, shape, scale_shape, axis in [("one", (3, 5), (), 1), ("channels", (2, 5, 3), (5,), 1),
                                           ("last", (4, 33), (33,), -1)]:
        for dtype in (np.uint8, np.int8):
            random = b.random(name)
            x = (random.standard_normal(shape) * 40).astype(np.float32)
            scale = np.asarray(random.uniform(0.1, 0.9, scale_shape), np.float32)
            zero = np.asarray(random.integers(0, 20, scale_shape), dtype)
            b.op(f"quantize_{name}_{np.dtype(dtype).name}", "QuantizeLinear", [x, scale, zero], 13, axis=axis)
            stored = random.integers(0, 120, shape).astype(dtype)
            b.op(f"dequantize_{name}_{np.dtype(dtype).name}", "DequantizeLinear", [stored, scale, zero], 13, axis=axis)
    b.op("quantize_no_zero", "QuantizeLinear", [(3, 4), np.float32(0.02)], 13)
    for shape in ((7,), (3, 50)):
        b.op(f"dynamic_quantize_{len(shape)}", "DynamicQuantizeLinear", [shape], 11, 3)
    random = b.random("qlinear")

    def u8(*shape):
        return random.integers(0, 256, shape).astype(np.uint8)

    one = [np.float32(0.02), np.uint8(120)]
    b.op("qlinear_matmul", "QLinearMatMul", [u8(5, 7), *one, u8(7, 9), np.float32(0.03), np.uint8(100),
                                             np.float32(0.2), np.uint8(128)], 10)
    b.op("qlinear_matmul_batch", "QLinearMatMul", [u8(2, 5, 40), *one, u8(2, 40, 3), np.float32(0.03), np.uint8(100),
                                                   np.float32(0.5), np.uint8(128)], 10)
    w = random.integers(-128, 128, (6, 3, 3, 3)).astype(np.int8)
    b.op("qlinear_conv", "QLinearConv", [u8(1, 3, 9, 9), *one, w, np.float32(0.01), np.int8(0), np.float32(0.1),
                                         np.uint8(128), random.integers(-99, 99, 6).astype(np.int32)], 10,
         pads=[1, 1, 1, 1])
    b.op("qlinear_conv_channels", "QLinearConv",
         [u8(1, 3, 9, 9), *one, w, random.uniform(0.005, 0.02, 6).astype(np.float32), np.zeros(6, np.int8),
          np.float32(0.1), np.uint8(128)], 10, strides=[2, 2])


def add_orders(b):
    for exclusive in (0, 1):
        for reverse in (0, 1):
            for axis in (0, 1, -1):
                b.op(f"cumsum_{exclusive}{reverse}_{axis}".replace("-", "m"), "CumSum",
                     [(3, 17, 5), np.int64(axis)], 14, constants=(1,), exclusive=exclusive, reverse=reverse)
    for shape, axis in [((1, 700, 70), 1), ((4000,), 0), ((3, 513), 1), ((2, 0, 3), 1)]:
        for exclusive, reverse in ((0, 1), (1, 0), (1, 1)):
            for dtype in (np.float32, np.int64):
                values = b.random("cumsum").integers(-9, 9, shape).astype(dtype)
                b.op(f"cumsum_{'x'.join(map(str, shape))}_{exclusive}{reverse}_{np.dtype(dtype).name}", "CumSum",
                     [values, np.int64(axis)], 14, constants=(1,), exclusive=exclusive, reverse=reverse)
    b.op("cumsum_long", "CumSum", [(2, 1000), np.int64(1)], 14, constants=(1,))
    b.op("cumsum_int64", "CumSum", [np.arange(20, dtype=np.int64), np.int32(0)], 14, constants=(1,))
    b.op("reverse_sequence_time", "ReverseSequence", [(6, 4, 3), np.array([6, 1, 3, 5])], 10)
    b.op("reverse_sequence_batch", "ReverseSequence", [(4, 6), np.array([6, 1, 3, 5])], 10, time_axis=1, batch_axis=0)
    for name, shape, k, axis in [("last", (3, 20), 5, -1), ("first", (20, 3), 4, 0), ("all", (2, 7), 7, 1),
                                 ("none", (2, 7), 0, 1), ("long", (2, 1000), 10, 1)]:
        for largest in (0, 1):
            b.op(f"top_k_{name}_{largest}", "TopK", [shape, np.array([k])], 11, 2, constants=(1,), axis=axis,
                 largest=largest)
    # Each way in which the compiled code finds them.
    for name, shape, k in [("list", (3, 777), 33), ("digits", (2, 3000), 300), ("sort", (300,), 200),
                           ("wide", (1, 40000), 70)]:
        for dtype in (np.float32, np.int64):
            random = b.random(f"top_k_{name}")
            values = (random.standard_normal(shape) * 1e6).astype(dtype)
            for largest in (0, 1):
                b.op(f"top_k_{name}_{np.dtype(dtype).name}_{largest}", "TopK", [values, np.array([k])], 11, 2,
                     constants=(1,), largest=largest)
    equal = b.random("top_k_equal").integers(0, 5, (2, 900)).astype(np.float32)
    for k in (3, 100, 900):
        b.op(f"top_k_equal_{k}", "TopK", [equal, np.array([k])], 11, 2, constants=(1,))
    ties = np.array([[1, 3, 3, 2, 3, 1]], np.int64)
    b.op("top_k_ties", "TopK", [ties, np.array([4])], 11, 2, constants=(1,))
    for name, equation, shapes in [
            ("matmul", "ij,jk->ik", [(3, 4), (4, 5)]), ("batch", "bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
            ("transpose", "ij->ji", [(3, 4)]), ("sum", "ij->i", [(3, 4)]), ("all", "ij->", [(3, 4)]),
            ("inner", "i,i->", [(5,), (5,)]), ("outer", "i,j->ij", [(5,), (3,)]), ("trace", "ii->", [(4, 4)]),
            ("diagonal", "bii->bi", [(2, 4, 4)]), ("implicit", "ij,jk", [(3, 4), (4, 5)]),
            ("ellipsis", "...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]), ("attention", "bqhd,bkhd->bhqk",
                                                                         [(2, 3, 2, 4), (2, 5, 2, 4)]),
            ("three", "ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]), ("weighted", "bij,bj->bi", [(2, 3, 4), (2, 4)]),
            ("spaces", "i j , j k -> k i", [(3, 4), (4, 5)]), ("summed_early", "ijk,kl->l", [(2, 3, 4), (4, 5)])]:
        b.op(f"einsum_{name}", "Einsum", shapes, 12, equation=equation)


def add_samples(b):
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (0, 1):
                name = f"grid_sample_{mode}_{padding}_{align}"
                grid = b.random(name).uniform(-1.3, 1.3, (2, 5, 4, 2)).astype(np.float32)
                b.op(name, "GridSample", [(2, 3, 6, 7), grid], 16, mode=mode, padding_mode=padding,
                     align_corners=align)
    random = b.random("roi_align")
    corner = random.uniform(0, 6, (5, 2))
    rois = np.concatenate([corner, corner + random.uniform(0.5, 8, (5, 2))], 1).astype(np.float32)
    batch = np.array([0, 1, 1, 0, 1])
    for mode in ("avg", "max"):
        for opset in (10, 16):
            b.op(f"roi_align_{mode}_{opset}", "RoiAlign", [(2, 3, 9, 11), rois, batch], opset, mode=mode,
                 output_height=3, output_width=4, sampling_ratio=2, spatial_scale=0.9)
    # As many places as each box is large: boxes inside of the image, tiny, empty and larger than it.
    for kind, low, size in (("inside", 0, 6), ("tiny", 0, 0.3), ("empty", 2, 0), ("large", -40, 100), ("around", -9, 20)):
        random = b.random(f"roi_align_adaptive_{kind}")
        corner = low + random.uniform(0, 6, (7, 2))
        extents = random.uniform(0, size, (7, 2)) if size else -random.uniform(0, 2, (7, 2)) * [[k % 2] for k in range(7)]
        rois = np.concatenate([corner, corner + extents], 1)
        batch = random.integers(0, 2, 7)
        for mode in ("avg", "max"):
            for opset in (10, 16):
                for dtype in (np.float32, np.float64):
                    name = f"roi_align_adaptive_{kind}_{mode}_{opset}_{np.dtype(dtype).name}"
                    image = b.random(name).standard_normal((2, 67 if kind == "inside" else 3, 9, 11)).astype(dtype)
                    b.op(name, "RoiAlign", [image, rois.astype(dtype), batch], opset, mode=mode, output_height=3,
                         output_width=4, spatial_scale=0.9)
    places = np.array([[[[5, 7], [13, 15]]]], np.int64)
    b.op("max_unpool", "MaxUnpool", [(1, 1, 2, 2), places], 11, kernel_shape=[2, 2], strides=[2, 2])


def add_losses(b):
    for name, shape in (("flat", (4, 5)), ("image", (2, 5, 3, 4))):
        for reduction in ("none", "mean", "sum"):
            for weighted in (False, True):
                case = f"{name}_{reduction}_{'weighted' if weighted else 'plain'}"
                target = b.random(case).integers(0, 5, (shape[0], *shape[2:]))
                weights = [np.array([0.2, 0.3, 0.6, 0.1, 0.9], np.float32)] if weighted else []
                b.op(f"nll_loss_{case}", "NegativeLogLikelihoodLoss", [shape, target, *weights], 13,
                     reduction=reduction, ignore_index=2)
                b.op(f"cross_entropy_{case}", "SoftmaxCrossEntropyLoss", [shape, target, *weights], 13, 2,
                     reduction=reduction)


def add_control(b):
    for condition in (False, True):
        def branch(name, op):
            return helper.make_graph([helper.make_node(op, ["x"], [f"{name}_y"], name=op)], name, [],
                                     [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

        node = helper.make_node("If", ["c"], ["y"], name="If_0", then_branch=branch("then", "Neg"),
                                else_branch=branch("else", "Exp"))
        b.graph(f"if_constant_{condition}".lower(), [helper.make_node("Abs", ["z"], ["x"]), node],
                {"z": np.array([1, -2], np.float32), "c": np.array(condition)}, ["y"], 17, ["c"])


def add_cases(b):
    add_quantized(b)
    add_orders(b)
    add_samples(b)
    add_losses(b)
    add_control(b)
