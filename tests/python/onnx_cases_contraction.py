"""Cases for make_onnx_cases.py: convolution, pooling, matrix products, batch normalisation, and what follows them."""
import numpy as np
from onnx import helper


def conv(b, name, x, channels_out, kernel, group=1, bias=True, opset=17, constants=(1, 2), **attributes):
    weight = (channels_out, x[1] // group, *kernel)
    scale = np.float32(1 / np.sqrt(max(1, np.prod(weight[1:]))))
    random = b.random(name + ".w")
    inputs = [x, random.standard_normal(weight).astype(np.float32) * scale]
    if bias:
        inputs.append((channels_out,))
    b.op(f"conv_{name}", "Conv", inputs, opset, constants=[i for i in constants if i < len(inputs)], group=group,
         **attributes)


def add_conv(b):
    conv(b, "1x1", (1, 5, 7, 9), 6, (1, 1))
    conv(b, "1x1_wide", (1, 64, 14, 14), 96, (1, 1))
    conv(b, "1x1_stride2", (1, 24, 15, 13), 17, (1, 1), strides=[2, 2])
    conv(b, "3x3_same", (1, 16, 20, 20), 24, (3, 3), pads=[1, 1, 1, 1])
    conv(b, "3x3_no_bias", (1, 16, 9, 11), 8, (3, 3), bias=False, pads=[1, 1, 1, 1])
    conv(b, "3x3_stride2", (1, 3, 33, 31), 16, (3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    conv(b, "7x7_stride2", (1, 3, 64, 64), 64, (7, 7), pads=[3, 3, 3, 3], strides=[2, 2])
    conv(b, "5x5_valid", (2, 7, 12, 10), 9, (5, 5))
    conv(b, "odd_channels", (1, 17, 13, 13), 33, (3, 3), pads=[1, 1, 1, 1])
    conv(b, "one_channel", (1, 1, 28, 28), 8, (5, 5), auto_pad="SAME_UPPER")
    conv(b, "one_output_channel", (1, 24, 18, 18), 1, (3, 3), pads=[1, 1, 1, 1])
    conv(b, "batch3", (3, 8, 10, 10), 16, (3, 3), pads=[1, 1, 1, 1])
    conv(b, "batch0", (0, 8, 10, 10), 16, (3, 3), pads=[1, 1, 1, 1])
    conv(b, "one_position", (1, 32, 1, 1), 8, (1, 1))
    conv(b, "kernel_covers_input", (1, 4, 5, 6), 7, (5, 6))
    conv(b, "pads_all_different", (1, 4, 9, 9), 5, (3, 4), pads=[0, 2, 1, 3])
    conv(b, "pads_larger_than_input", (1, 2, 2, 2), 3, (3, 3), pads=[4, 3, 5, 4])
    conv(b, "pads_one_side", (1, 3, 8, 8), 4, (3, 3), pads=[0, 0, 2, 2])
    conv(b, "stride_larger_than_kernel", (1, 5, 17, 17), 6, (2, 2), strides=[4, 3])
    conv(b, "strides_differ", (1, 5, 17, 19), 6, (3, 3), strides=[1, 3], pads=[1, 1, 1, 1])
    conv(b, "dilation2", (1, 16, 15, 15), 16, (3, 3), dilations=[2, 2], pads=[2, 2, 2, 2])
    conv(b, "dilation3", (1, 16, 30, 40), 16, (3, 3), dilations=[3, 3], pads=[3, 3, 3, 3])
    conv(b, "dilation5", (1, 8, 30, 40), 8, (3, 3), dilations=[5, 5], pads=[5, 5, 5, 5])
    conv(b, "dilations_differ_strided", (1, 6, 21, 23), 4, (3, 2), dilations=[2, 3], strides=[2, 1])
    for group, channels_in, channels_out in [(2, 8, 8), (3, 9, 15), (4, 16, 8), (8, 16, 16), (5, 5, 10)]:
        conv(b, f"group{group}_{channels_in}to{channels_out}", (1, channels_in, 11, 9), channels_out, (3, 3),
             group=group, pads=[1, 1, 1, 1])
    for channels in (1, 3, 16, 24, 33, 96):
        conv(b, f"depthwise_{channels}", (1, channels, 19, 17), channels, (3, 3), group=channels, pads=[1, 1, 1, 1])
    conv(b, "depthwise_stride2", (1, 32, 21, 20), 32, (3, 3), group=32, pads=[1, 1, 1, 1], strides=[2, 2])
    conv(b, "depthwise_5x5", (1, 40, 12, 12), 40, (5, 5), group=40, pads=[2, 2, 2, 2])
    conv(b, "depthwise_5x5_stride2", (1, 24, 13, 14), 24, (5, 5), group=24, pads=[2, 2, 2, 2], strides=[2, 2])
    conv(b, "depthwise_dilated", (1, 16, 15, 15), 16, (3, 3), group=16, pads=[2, 2, 2, 2], dilations=[2, 2])
    conv(b, "depthwise_multiplier3", (1, 6, 9, 9), 18, (3, 3), group=6, pads=[1, 1, 1, 1])
    conv(b, "depthwise_1x1", (1, 12, 6, 6), 12, (1, 1), group=12)
    for auto_pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        conv(b, f"auto_pad_{auto_pad.lower()}_even_kernel", (1, 4, 10, 11), 6, (4, 2), auto_pad=auto_pad)
        conv(b, f"auto_pad_{auto_pad.lower()}_stride2", (1, 4, 10, 11), 6, (3, 3), auto_pad=auto_pad, strides=[2, 2])
    conv(b, "1d", (2, 5, 40), 7, (5,), pads=[2, 2])
    conv(b, "1d_depthwise_dilated", (1, 8, 33), 8, (3,), group=8, dilations=[4], pads=[4, 4])
    conv(b, "3d", (1, 3, 6, 7, 8), 4, (3, 3, 3), pads=[1, 1, 1, 1, 1, 1], strides=[1, 2, 2])
    conv(b, "weight_is_an_input", (1, 6, 8, 8), 5, (3, 3), constants=(), pads=[1, 1, 1, 1])
    conv(b, "bias_is_an_input", (1, 6, 8, 8), 5, (3, 3), constants=(1,), pads=[1, 1, 1, 1])
    conv(b, "inferred_kernel_shape", (1, 6, 8, 8), 5, (2, 3))
    conv(b, "large", (1, 64, 56, 56), 64, (3, 3), pads=[1, 1, 1, 1])
    conv(b, "large_1x1", (1, 256, 28, 28), 128, (1, 1))
    conv(b, "deep", (1, 512, 7, 7), 64, (3, 3), pads=[1, 1, 1, 1])
    for opset in (7, 11, 22):
        conv(b, f"opset{opset}", (1, 3, 8, 8), 4, (3, 3), pads=[1, 1, 1, 1], opset=opset)
    random = np.random.default_rng(11)
    for number in range(40):
        group = int(random.choice([1, 1, 1, 2, 3]))
        channels_in, channels_out = group * int(random.integers(1, 9)), group * int(random.integers(1, 20))
        kernel, stride, dilation = (random.integers(1, 6, 2), random.integers(1, 4, 2), random.integers(1, 3, 2))
        pads = random.integers(0, 4, 4)
        least = np.maximum(1, (kernel - 1) * dilation + 1 - pads[:2] - pads[2:])
        size = least + random.integers(0, 24, 2)
        conv(b, f"random_{number:02}", (int(random.integers(1, 3)), channels_in, *map(int, size)), channels_out,
             tuple(map(int, kernel)), group=group, bias=bool(random.integers(0, 2)), strides=stride.tolist(),
             dilations=dilation.tolist(), pads=pads.tolist())


def add_conv_transpose(b):
    def case(name, x, channels_out, kernel, group=1, bias=False, opset=17, constants=(1, 2), **attributes):
        weight = (x[1], channels_out // group, *kernel)
        inputs = [x, weight] + ([(channels_out,)] if bias else [])
        b.op(f"convtranspose_{name}", "ConvTranspose", inputs, opset,
             constants=[i for i in constants if i < len(inputs)], group=group, **attributes)

    case("2x2_stride2", (1, 24, 10, 12), 24, (2, 2), strides=[2, 2])
    case("2x2_stride2_to_one_channel", (1, 24, 20, 20), 1, (2, 2), strides=[2, 2], bias=True)
    case("3x3", (1, 5, 6, 7), 4, (3, 3))
    case("3x3_padded", (1, 5, 6, 7), 4, (3, 3), pads=[1, 1, 1, 1], bias=True)
    case("3x3_output_padding", (1, 5, 6, 7), 4, (3, 3), pads=[1, 1, 1, 1], strides=[2, 2], output_padding=[1, 1])
    case("4x4_stride2", (2, 6, 5, 5), 3, (4, 4), pads=[1, 1, 1, 1], strides=[2, 2])
    case("pads_all_different", (1, 3, 7, 8), 2, (4, 3), pads=[0, 1, 2, 0], strides=[2, 1])
    case("dilated", (1, 3, 7, 8), 2, (3, 3), dilations=[2, 3])
    case("stride_larger_than_kernel", (1, 3, 4, 5), 2, (2, 2), strides=[3, 4])
    case("group2", (1, 6, 5, 6), 4, (3, 3), group=2, strides=[2, 2])
    case("depthwise", (1, 7, 5, 6), 7, (2, 2), group=7, strides=[2, 2])
    case("output_shape", (1, 3, 5, 5), 2, (3, 3), strides=[2, 2], output_shape=[10, 10])
    case("auto_pad_same_upper", (1, 3, 5, 5), 2, (3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    case("auto_pad_same_lower", (1, 3, 5, 5), 2, (3, 3), strides=[2, 2], auto_pad="SAME_LOWER")
    case("1d", (1, 3, 9), 2, (3,), strides=[2])
    case("weight_is_an_input", (1, 3, 5, 5), 2, (3, 3), constants=())
    case("opset11", (1, 3, 5, 5), 2, (2, 2), strides=[2, 2], opset=11)


def add_pooling(b):
    for op in ("MaxPool", "AveragePool"):
        low = op.lower()
        b.op(f"{low}_2x2", op, [(1, 8, 28, 28)], kernel_shape=[2, 2], strides=[2, 2])
        b.op(f"{low}_3x3_padded", op, [(1, 5, 17, 15)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        b.op(f"{low}_stride1", op, [(2, 3, 9, 9)], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        b.op(f"{low}_pads_all_different", op, [(1, 3, 9, 10)], kernel_shape=[3, 4], pads=[0, 1, 2, 3], strides=[2, 3])
        b.op(f"{low}_ceil_mode", op, [(1, 3, 10, 12)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        b.op(f"{low}_whole_input", op, [(1, 6, 7, 5)], kernel_shape=[7, 5])
        b.op(f"{low}_1d", op, [(1, 4, 33)], kernel_shape=[4], strides=[3])
        b.op(f"{low}_3d", op, [(1, 2, 6, 7, 8)], kernel_shape=[2, 3, 2], strides=[2, 2, 1])
        b.op(f"{low}_ceil_mode_window_larger_than_input", op, [(1, 4, 3, 5)], kernel_shape=[4, 4], strides=[3, 3], ceil_mode=1)
        b.op(f"{low}_same_upper", op, [(1, 3, 14, 14)], kernel_shape=[3, 3], strides=[3, 3], auto_pad="SAME_UPPER")
        b.op(f"{low}_same_lower", op, [(1, 3, 13, 14)], kernel_shape=[2, 3], strides=[2, 2], auto_pad="SAME_LOWER")
        b.op(f"{low}_batch0", op, [(0, 3, 8, 8)], kernel_shape=[2, 2])
        b.op(f"{low}_opset8", op, [(1, 3, 8, 8)], 8, kernel_shape=[2, 2], strides=[2, 2])
    b.op("maxpool_dilated", "MaxPool", [(1, 3, 12, 12)], kernel_shape=[3, 3], dilations=[2, 2])
    negative = -np.abs(b.random("m").standard_normal((1, 2, 6, 6))).astype(np.float32)
    for name, shape, attributes in [
            ("1d", (2, 3, 11), dict(kernel_shape=[3], strides=[2], pads=[1, 1])),
            ("2d", (2, 3, 7, 9), dict(kernel_shape=[3, 2], strides=[2, 3], pads=[1, 0, 1, 1])),
            ("2d_ceil", (1, 2, 8, 8), dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)),
            ("2d_dilated", (1, 2, 9, 10), dict(kernel_shape=[2, 3], dilations=[3, 2])),
            ("2d_columns", (2, 2, 6, 5), dict(kernel_shape=[2, 2], storage_order=1)),
            ("3d", (1, 2, 5, 4, 6), dict(kernel_shape=[2, 2, 3], pads=[1, 0, 1, 0, 1, 0])),
            ("whole", (1, 1, 4, 4), dict(kernel_shape=[4, 4]))]:
        b.op(f"maxpool_indices_{name}", "MaxPool", [shape], outputs=2, **attributes)
    b.op("maxpool_negative_values", "MaxPool", [negative], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    b.op("averagepool_count_include_pad", "AveragePool", [(1, 3, 9, 9)], kernel_shape=[3, 3], pads=[1, 1, 1, 1],
         count_include_pad=1)
    b.op("averagepool_ceil_count_include_pad", "AveragePool", [(1, 3, 10, 10)], kernel_shape=[3, 3], strides=[2, 2],
         pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1)
    for shape in [(1, 16, 7, 7), (2, 3, 1, 1), (1, 5, 40, 33), (1, 7, 11), (1, 2, 3, 4, 5), (0, 3, 4, 4)]:
        text = "x".join(map(str, shape))
        b.op(f"globalaveragepool_{text}", "GlobalAveragePool", [shape])
        b.op(f"globalmaxpool_{text}", "GlobalMaxPool", [shape])


def add_products(b):
    for m, k, n in [(1, 1, 1), (1, 256, 10), (7, 5, 3), (16, 16, 16), (33, 65, 17), (128, 96, 200), (1, 2048, 100),
                    (100, 1, 50), (300, 300, 1), (0, 4, 5), (4, 0, 5), (4, 5, 0)]:
        b.op(f"matmul_{m}x{k}x{n}", "MatMul", [(m, k), (k, n)], constants=(1,) if m % 2 else ())
    for a, c in [((2, 3, 4), (4, 5)), ((4, 5), (2, 5, 3)), ((2, 1, 4, 5), (1, 3, 5, 6)), ((2, 3, 4, 5), (2, 3, 5, 2)),
                 ((5,), (5, 3)), ((4, 5), (5,)), ((5,), (5,)), ((3, 4, 5), (5,)), ((5,), (3, 5, 4)),
                 ((3, 1, 1), (3, 1, 4))]:
        b.op(f"matmul_{'x'.join(map(str, a))}_by_{'x'.join(map(str, c))}", "MatMul", [a, c])
    for trans_a in (0, 1):
        for trans_b in (0, 1):
            a, c = ((9, 7), (7, 13))
            b.op(f"gemm_{trans_a}{trans_b}", "Gemm", [a[::-1] if trans_a else a, c[::-1] if trans_b else c, (13,)],
                 constants=(1, 2), transA=trans_a, transB=trans_b)
    for shape in [(), (1,), (13,), (1, 13), (9, 1), (9, 13)]:
        value = np.float32(0.5) * np.ones((), np.float32) if shape == () else shape
        b.op(f"gemm_c_{'x'.join(map(str, shape)) or 'scalar'}", "Gemm", [(9, 7), (7, 13), value], alpha=0.5, beta=-2.0)
    b.op("gemm_no_c", "Gemm", [(9, 7), (7, 13)], alpha=1.5)
    b.op("gemm_beta0", "Gemm", [(9, 7), (7, 13), (13,)], beta=0.0)
    weights = b.random("gemm").standard_normal((1000, 512)).astype(np.float32) / np.float32(512**0.5)
    b.op("gemm_large", "Gemm", [(4, 512), weights, (1000,)], constants=(1, 2), transB=1)
    b.op("gemm_k0", "Gemm", [(3, 0), (0, 4), (4,)])
    b.op("gemm_opset9", "Gemm", [(3, 5), (5, 4), (1, 4)], 9)


def add_batch_normalization(b):
    for shape in [(1, 5, 6, 7), (2, 3), (3, 4, 9), (1, 33, 1, 1), (1, 2, 3, 4, 5), (0, 3, 4, 4)]:
        for opset in (9, 15):
            random = b.random(f"bn{shape}")
            channels = shape[1]
            parameters = [random.standard_normal(channels).astype(np.float32) for _ in range(3)]
            variance = random.uniform(0.1, 2, channels).astype(np.float32)
            b.op(f"batchnorm_{'x'.join(map(str, shape))}_opset{opset}", "BatchNormalization",
                 [shape, *parameters, variance], opset, constants=(1, 2, 3, 4), epsilon=1e-3)
    b.op("batchnorm_parameters_are_inputs", "BatchNormalization",
         [(1, 3, 4, 5), (3,), (3,), (3,), np.array([0.5, 1, 2], np.float32)], epsilon=1e-5)


def add_chains(b):
    """What compilers fuse: a contraction and its followers, in orders that do and do not allow it."""
    def weights(name, **shapes):
        random = b.random(name)
        return {key: (random.standard_normal(shape) * 0.3).astype(np.float32) for key, shape in shapes.items()}

    node = helper.make_node
    t = weights("a", x=(1, 8, 14, 14), w=(12, 8, 3, 3), bias=(12,), g=(12,), beta=(12,), mean=(12,))
    t["var"] = np.linspace(0.5, 2, 12).astype(np.float32)
    conv_bn = [node("Conv", ["x", "w", "bias"], ["c"], pads=[1, 1, 1, 1]),
               node("BatchNormalization", ["c", "g", "beta", "mean", "var"], ["n"])]
    constants = ["w", "bias", "g", "beta", "mean", "var"]
    b.graph("chain_conv_bn_relu", conv_bn + [node("Relu", ["n"], ["y"])], t, ["y"], constants=constants)
    b.graph("chain_conv_bn_kept", conv_bn + [node("Relu", ["n"], ["y"]), node("Sigmoid", ["c"], ["also"])], t,
            ["y", "also"], constants=constants)

    t = weights("b", x=(1, 8, 10, 10), w=(8, 8, 3, 3), b=(8,))
    residual = [node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), node("Add", ["c", "x"], ["s"]),
                node("Relu", ["s"], ["y"])]
    b.graph("chain_conv_add_relu", residual, t, ["y"], constants=["w", "b"])

    t = weights("c", x=(1, 16, 12, 12), w=(24, 16, 1, 1), b=(24,))
    t |= {"three": np.float32(3).reshape(()), "zero": np.float32(0).reshape(()), "six": np.float32(6).reshape(())}
    hard_swish = [node("Conv", ["x", "w", "b"], ["c"]), node("Add", ["c", "three"], ["a"]),
                  node("Clip", ["a", "zero", "six"], ["k"]), node("Mul", ["c", "k"], ["m"]),
                  node("Div", ["m", "six"], ["y"])]
    b.graph("chain_conv_hard_swish", hard_swish, t, ["y"], constants=["w", "b", "three", "zero", "six"])

    t = weights("d", x=(1, 16, 9, 9), w1=(4, 16, 1, 1), b1=(4,), w2=(16, 4, 1, 1), b2=(16,))
    squeeze = [node("GlobalAveragePool", ["x"], ["p"]), node("Conv", ["p", "w1", "b1"], ["c1"]),
               node("Relu", ["c1"], ["r"]), node("Conv", ["r", "w2", "b2"], ["c2"]),
               node("HardSigmoid", ["c2"], ["h"], alpha=0.2, beta=0.5), node("Mul", ["x", "h"], ["y"])]
    b.graph("chain_squeeze_excite", squeeze, t, ["y"], constants=["w1", "b1", "w2", "b2"])

    t = weights("e", x=(1, 6, 8, 8), w=(3, 6, 1, 1), b=(3,)) | {"shape": np.array([0, -1, 3], np.int64)}
    head = [node("Conv", ["x", "w", "b"], ["c"]), node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
            node("Reshape", ["t", "shape"], ["r"]), node("Softmax", ["r"], ["y"], axis=2)]
    b.graph("chain_detection_head", head, t, ["y"], constants=["w", "b", "shape"])

    t = weights("f", x=(1, 4, 7, 7), w=(4, 4, 3, 3))
    twice = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Conv", ["c", "w"], ["d"], pads=[1, 1, 1, 1]),
             node("Add", ["c", "d"], ["y"])]
    b.graph("chain_shared_weights", twice, t, ["y"], constants=["w"])

    t = weights("g", x=(3, 5)) | {"one": np.ones((), np.float32)}
    b.graph("chain_input_is_used_twice", [node("Mul", ["x", "x"], ["m"]), node("Sub", ["x", "m"], ["y"])], t, ["y"])
    b.graph("chain_output_is_an_intermediate", [node("Exp", ["x"], ["e"]), node("Add", ["e", "one"], ["y"])], t,
            ["e", "y"], constants=["one"])


def add_long_sums(b):
    """Sums of many 16-bit floats: rounded after each step, the first of them would end at 2048."""
    ones = np.ones((3, 8192), np.float16)
    b.known("long_sum_f16", "ReduceSum", [ones, np.array([1], np.int64)], [np.full((3, 1), 8192, np.float16)], 18,
            constants=(1,))
    # Sums, and numbers of terms, that no f16 holds.
    many = np.full((2, 300, 400), 1.5, np.float16)
    b.known("long_mean_f16", "ReduceMean", [many, np.array([1, 2], np.int64)], [np.full((2, 1, 1), 1.5, np.float16)], 18,
            constants=(1,))
    b.known("long_pool_f16", "GlobalAveragePool", [many[None]], [np.full((1, 2, 1, 1), 1.5, np.float16)], 11)
    for k in (1000, 4097):
        random = b.random(f"long product {k}")
        a, w = (random.standard_normal(s).astype(np.float16) for s in ((5, k), (k, 7)))
        # Rounding the sum once leaves 2^-11 of it, which is above the bound of the cases: powers of two have none.
        a, w = (np.sign(v) * np.float16(2.0) ** random.integers(-2, 1, v.shape).astype(np.float16) for v in (a, w))
        exact = a.astype(np.float64) @ w.astype(np.float64)
        b.known(f"long_matmul_f16_{k}", "MatMul", [a.astype(np.float16), w.astype(np.float16)],
                [exact.astype(np.float16)], 13)
    x = np.full((1, 64, 9, 9), 0.25, np.float16)
    w = np.ones((2, 64, 3, 3), np.float16)
    b.known("long_conv_f16", "Conv", [x, w], [np.full((1, 2, 7, 7), 144, np.float16)], 11)


def add_cases(b):
    add_long_sums(b)
    add_conv(b)
    add_conv_transpose(b)
    add_pooling(b)
    add_products(b)
    add_batch_normalization(b)
    add_chains(b)
