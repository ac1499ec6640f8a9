"""Cases for make_onnx_cases.py: operators of the domain com.microsoft, with ONNX Runtime as the reference."""
import numpy as np
from onnx import helper
from onnx import helper


def f32(*values):
    return np.array(values, np.float32)


def i32(*values):
    return np.array(values, np.int32)


class Contrib:
    def __init__(self, b):
        self.b = b

    def __call__(self, name, op, inputs, outputs=1, constants=(), opset=None, **attributes):
        self.b.op(f"contrib_{name}", op, inputs, 17, outputs, constants, domain="com.microsoft", **attributes)
        # An attribute of QLinearSoftmax that has the name of a parameter of op().
        if opset is not None:
            self.b.cases[-1][1].graph.node[0].attribute.append(helper.make_attribute("opset", opset))

    def random(self, name):
        return self.b.random(f"contrib_{name}")


def add_small(contrib):
    contrib("gelu", "Gelu", [(3, 20)])
    contrib("fast_gelu", "FastGelu", [(3, 20)])
    contrib("fast_gelu_bias", "FastGelu", [(3, 20), (20,)])
    contrib("bias_gelu", "BiasGelu", [(3, 20), (20,)])
    contrib("quick_gelu", "QuickGelu", [(3, 20)])
    contrib("fused_matmul", "FusedMatMul", [(2, 4, 3), (2, 5, 4)], alpha=0.5, transA=1, transB=1)
    contrib("skip_layer_norm", "SkipLayerNormalization", [(2, 3, 16), (2, 3, 16), (16,), (16,), (16,)], epsilon=1e-5)
    ids, segments = i32([3, 0, 6, 1, 1], [5, 2, 2, 0, 4]), i32([0, 0, 1, 1, 1], [0, 0, 0, 0, 1])
    tables = [(7, 16), (9, 16), (2, 16), (16,), (16,)]
    mask, places = i32([1, 1, 1, 0, 0], [1, 1, 1, 1, 1]), i32([8, 1, 0, 3, 3], [0, 1, 2, 3, 4])
    contrib("embed", "EmbedLayerNormalization", [ids, segments, *tables], 2, epsilon=1e-5)
    contrib("embed_mask", "EmbedLayerNormalization", [ids, segments, *tables, mask], 3)
    contrib("embed_places", "EmbedLayerNormalization", [ids, segments, *tables, None, places], 2)
    contrib("embed_words_alone", "EmbedLayerNormalization",
            [ids, None, (7, 16), (9, 16), None, (16,), (16,), mask, places[:1]], 3, constants=[2, 3])
    for activation, parameters in (("Relu", []), ("Sigmoid", []), ("Tanh", []), ("LeakyRelu", [0.2]),
                                   ("Clip", [-0.5, 0.7]), ("HardSigmoid", [0.3, 0.4])):
        more = {"activation_params": parameters} if parameters else {}
        contrib(f"fused_conv_{activation.lower()}", "FusedConv", [(1, 3, 7, 9), (4, 3, 3, 3), (4,)],
                activation=activation, pads=[1, 0, 1, 1], **more)
    contrib("fused_conv_sum", "FusedConv", [(1, 3, 7, 9), (4, 3, 3, 3), (4,), (1, 4, 5, 7)], activation="Relu")


def add_attention(contrib):
    weights = [(12, 36), (36,)]
    contrib("attention", "Attention", [(2, 5, 12), *weights], num_heads=3)
    contrib("attention_causal", "Attention", [(2, 5, 12), *weights], num_heads=2, unidirectional=1)
    contrib("attention_scale", "Attention", [(2, 5, 12), *weights], num_heads=2, scale=0.3)
    contrib("attention_sizes", "Attention", [(2, 5, 12), (12, 16 + 16 + 24), (56,)], num_heads=4,
            qkv_hidden_sizes=[16, 16, 24])
    contrib("attention_lengths", "Attention", [(2, 5, 12), *weights, i32(3, 5)], num_heads=3)
    contrib("attention_ends", "Attention", [(2, 5, 12), *weights, i32(3, 5, 1, 0)], num_heads=3)
    contrib("attention_mask", "Attention", [(2, 5, 12), *weights, i32([1, 1, 0, 1, 0], [1, 1, 1, 1, 1])], num_heads=3)
    mask = contrib.random("mask").integers(0, 2, (2, 5, 5)).astype(np.int32)
    mask[:, :, 0] = 1
    contrib("attention_mask_of_pairs", "Attention", [(2, 5, 12), *weights, mask], num_heads=3)
    contrib("attention_past", "Attention", [(2, 5, 12), *weights, None, (2, 2, 3, 4, 4)], 2, num_heads=3,
            unidirectional=1)
    contrib("attention_past_mask", "Attention",
            [(2, 1, 12), *weights, i32([1, 1, 0, 1, 1], [1, 1, 1, 1, 1]), (2, 2, 3, 4, 4)], 2, num_heads=3)
    contrib("attention_bias", "Attention", [(2, 5, 12), *weights, None, None, (2, 3, 5, 5)], num_heads=3)

    contrib("heads_cross", "MultiHeadAttention", [(2, 4, 12), (2, 7, 12), (2, 7, 18)], num_heads=3)
    contrib("heads_bias", "MultiHeadAttention", [(2, 4, 12), (2, 4, 12), (2, 4, 12), (36,)], num_heads=2)
    contrib("heads_mask", "MultiHeadAttention",
            [(2, 4, 12), (2, 5, 12), (2, 5, 12), None, i32([1, 1, 0, 1, 0], [1, 1, 1, 1, 1])], num_heads=2)
    contrib("heads_lengths", "MultiHeadAttention", [(2, 4, 12), (2, 5, 12), (2, 5, 12), None, i32(2, 5)], num_heads=2)
    contrib("heads_score_bias", "MultiHeadAttention",
            [(2, 4, 12), (2, 5, 12), (2, 5, 12), None, None, (1, 2, 4, 5)], num_heads=2, scale=0.4)
    contrib("heads_past", "MultiHeadAttention",
            [(2, 4, 12), (2, 4, 12), (2, 4, 12), None, None, None, (2, 2, 3, 6), (2, 2, 3, 6)], 3, num_heads=2)
    contrib("heads_causal", "MultiHeadAttention", [(2, 4, 12), (2, 4, 12), (2, 4, 12)], num_heads=2, unidirectional=1)
    contrib("heads_of_keys", "MultiHeadAttention", [(2, 4, 12), (2, 2, 5, 6), (2, 2, 5, 6)], num_heads=2)


def caches(contrib, name, positions, half):
    angles = contrib.random(name).uniform(0, 3, (positions, half))
    return [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]


def add_rotary(contrib):
    for interleaved in (0, 1):
        contrib(f"rotary_offset_{interleaved}", "RotaryEmbedding",
                [(2, 3, 16), np.array([4]), *caches(contrib, "r", 9, 4)], interleaved=interleaved)
        contrib(f"rotary_positions_{interleaved}", "RotaryEmbedding",
                [(2, 2, 3, 8), np.array([[0, 1, 2], [5, 6, 7]]), *caches(contrib, "r", 9, 4)], interleaved=interleaved)
        contrib(f"rotary_part_{interleaved}", "RotaryEmbedding",
                [(2, 3, 32), np.array([2]), *caches(contrib, "r", 9, 4)], interleaved=interleaved, num_heads=2,
                rotary_embedding_dim=8)


def add_grouped(contrib):
    """One token behind a cache, a prompt, both with rotation, windows; all in the caller's order of operands."""
    def run(name, sequence, past, last, total, packed=False, batch=2, constants=(), **attributes):
        size = 16
        hidden = [(batch, sequence, (4 + 2 * 2) * size), None, None] if packed else \
            [(batch, sequence, 4 * size), (batch, sequence, 2 * size), (batch, sequence, 2 * size)]
        rotation = caches(contrib, name, 16, size // 2) if attributes.get("do_rotary") else []
        store = [(batch, 2, past, size), (batch, 2, past, size)] if past else [None, None]
        contrib(f"grouped_{name}", "GroupQueryAttention",
                [*hidden, *store, i32(*last), np.array(total, np.int32), *rotation], 3, constants, num_heads=4,
                kv_num_heads=2, **attributes)

    run("token", 1, 5, (5, 5), 6)
    run("token_ragged", 1, 5, (3, 5), 6)
    run("token_packed_rotary", 1, 5, (2, 5), 6, packed=True, do_rotary=1)
    run("token_interleaved", 1, 5, (5, 5), 6, do_rotary=1, rotary_interleaved=1)
    run("token_window", 1, 7, (7, 7), 8, local_window_size=3)
    run("prompt", 6, 0, (5, 5), 6)
    run("prompt_rotary", 6, 0, (5, 5), 6, packed=True, do_rotary=1)
    run("prompt_window_cap", 6, 0, (5, 5), 6, local_window_size=2, softcap=5.0)
    run("one", 1, 5, (5,), 6, batch=1, do_rotary=1, scale=0.2)


def add_quantized(contrib):
    r = contrib.random("quantized")
    for bits, block, k in ((4, 16, 64), (4, 32, 80), (8, 32, 64), (4, 128, 96)):
        n, blocks = 24, -(-k // block)
        weights = r.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
        scales = r.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
        zeros = r.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
        common = {"K": k, "N": n, "bits": bits, "block_size": block}
        contrib(f"nbits_{bits}_{block}_{k}", "MatMulNBits", [(2, 3, k), weights, scales], constants=(1, 2), **common)
        contrib(f"nbits_zero_{bits}_{block}_{k}", "MatMulNBits", [(5, k), weights, scales, zeros],
                constants=(1, 2, 3), **common)
    weights = r.integers(0, 256, (24, 2, 16)).astype(np.uint8)
    scales = r.uniform(0.01, 0.1, (24, 2)).astype(np.float32)
    contrib("nbits_bias", "MatMulNBits", [(1, 64), weights, scales, None, None, (24,)], constants=(1, 2, 5), K=64, N=24,
            bits=4, block_size=32)

    def stored(*shape, dtype=np.uint8):
        info = np.iinfo(dtype)
        return r.integers(info.min, info.max + 1, shape).astype(dtype)

    for dtype, zero in ((np.uint8, 120), (np.int8, -7)):
        kind = np.dtype(dtype).name
        # No simple ratio: kernels of the reference differ in how they round halves.
        a, z = [np.float32(0.02134), dtype(zero)], [np.float32(0.05171), dtype(zero + 3)]
        contrib(f"qlinear_add_{kind}", "QLinearAdd", [stored(3, 1, 5, dtype=dtype), *a, stored(4, 5, dtype=dtype), *z, *z])
        contrib(f"qlinear_mul_{kind}", "QLinearMul", [stored(3, 4, 5, dtype=dtype), *a, stored(3, 4, 5, dtype=dtype), *z, *z])
        contrib(f"qlinear_leaky_{kind}", "QLinearLeakyRelu", [stored(3, 40, dtype=dtype), *a, *a], constants=(1, 2, 3, 4),
                alpha=0.2)
        contrib(f"qlinear_sigmoid_{kind}", "QLinearSigmoid",
                [stored(3, 40, dtype=dtype), *a, np.float32(1 / 256), dtype(np.iinfo(dtype).min)], constants=(1, 2, 3, 4))
        contrib(f"qlinear_global_{kind}", "QLinearGlobalAveragePool", [stored(2, 3, 5, 7, dtype=dtype), *a, *z])
        contrib(f"qlinear_average_{kind}", "QLinearAveragePool", [stored(2, 3, 7, 9, dtype=dtype), *a, *z],
                kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        contrib(f"qlinear_concat_{kind}", "QLinearConcat",
                [*z, stored(2, 3, dtype=dtype), *a, stored(2, 5, dtype=dtype), *z], constants=(0, 1, 3, 4, 6, 7), axis=1)
    contrib("qlinear_softmax", "QLinearSoftmax", [stored(3, 20), np.float32(0.02), np.uint8(120), np.float32(1 / 256),
                                                  np.uint8(0)], constants=(1, 2, 3, 4), axis=-1, opset=13)
    contrib("qlinear_where", "QLinearWhere", [r.integers(0, 2, (3, 5)).astype(bool), stored(3, 5), np.float32(0.02),
                                              np.uint8(120), stored(5), np.float32(0.03), np.uint8(100),
                                              np.float32(0.04), np.uint8(110)], constants=(2, 3, 5, 6, 7, 8))
    q = [np.float32(0.02), np.uint8(120)]
    contrib("qgemm", "QGemm", [stored(5, 8), *q, stored(6, 8, dtype=np.int8), f32(*r.uniform(0.01, 0.03, 6)),
                               np.zeros(6, np.int8), i32(*r.integers(-99, 99, 6)), np.float32(0.1), np.uint8(128)],
            transB=1, alpha=1.0)
    contrib("qgemm_float", "QGemm", [stored(5, 8), *q, stored(8, 6), np.float32(0.01), np.uint8(100)], alpha=1.0)
    contrib("integer_to_float", "MatMulIntegerToFloat", [stored(2, 5, 8), stored(8, 6), np.float32(0.02), np.float32(0.03),
                                                         np.uint8(120), np.uint8(100), (6,)])
    contrib("dynamic_matmul", "DynamicQuantizeMatMul", [(5, 8), stored(8, 6), np.float32(0.03), np.uint8(100), (6,)])
    contrib("quantize", "QuantizeLinear", [(3, 7), np.float32(0.02), np.uint8(120)])
    contrib("dequantize", "DequantizeLinear", [stored(3, 7), np.float32(0.02), np.uint8(120)])
    contrib("quantize_16", "QuantizeLinear", [(3, 7), np.float32(0.0002), np.uint16(30000)])


def add_standard_domain(b):
    """What ONNX Runtime's optimiser writes into the standard domain, in opsets that do not have it, and what only it
    computes."""
    for opset in (7, 11, 13, 16):
        b.op(f"layer_norm_opset_{opset}", "LayerNormalization", [(3, 5, 8), (8,), (8,)], opset=opset, axis=-1, epsilon=1e-3)
    b.op("layer_norm_opset_12_axis", "LayerNormalization", [(3, 5, 8), (5, 8)], opset=12, axis=1)
    b.op("layer_norm_opset_12_statistics", "LayerNormalization", [(3, 5, 7), (7,), (7,)], opset=12, outputs=3, axis=-1)
    half = [b.random(f"simplified {i}").standard_normal(shape).astype(np.float16) for i, shape in enumerate(((2, 3, 9), (9,)))]
    for opset in (9, 13, 17, 21):
        b.op(f"simplified_layer_norm_{opset}", "SimplifiedLayerNormalization", [(2, 3, 8), (8,)], opset=opset, axis=-1,
             epsilon=1e-6)
    b.op("simplified_layer_norm_f16", "SimplifiedLayerNormalization", half, opset=13, axis=-1)
    b.op("simplified_layer_norm_inverse", "SimplifiedLayerNormalization", [(4, 1, 5), (5,)], opset=13, outputs=2, axis=-1)
    b.op("simplified_layer_norm_axis", "SimplifiedLayerNormalization", [(1, 3, 5), (3, 5)], opset=13, axis=1)

    r = b.random("max roi pool")
    for name, dims, count, pooled, scale, opset in (
        ("plain", (1, 3, 10, 12), 4, [3, 2], 1.0, 1), ("scaled", (2, 5, 9, 7), 6, [2, 2], 0.25, 11),
        ("one", (3, 1, 5, 5), 3, [1, 1], 0.5, 17), ("fine", (2, 4, 6, 6), 5, [7, 9], 0.0625, 21),
        ("tiny", (1, 2, 1, 1), 3, [2, 2], 1.0, 17), ("none", (1, 2, 4, 4), 0, [2, 2], 1.0, 17)):
        n, _, height, width = dims
        edges = r.uniform(-3, [width / scale + 3, height / scale + 3, width / scale + 3, height / scale + 3], (count, 4))
        halves = np.round(edges * 2) / 2  # ties, corners in the wrong order, boxes beyond the image
        rois = np.concatenate([r.integers(0, n, (count, 1)), halves], 1).astype(np.float32)
        b.op(f"max_roi_pool_{name}", "MaxRoiPool", [dims, rois], opset=opset, pooled_shape=pooled, spatial_scale=scale)


def add_cases(b):
    add_standard_domain(b)
    contrib = Contrib(b)
    add_small(contrib)
    add_attention(contrib)
    add_rotary(contrib)
    add_grouped(contrib)
    add_quantized(contrib)
