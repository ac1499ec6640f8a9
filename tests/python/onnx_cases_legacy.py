"""Cases for make_onnx_cases.py: the forms that operators had in opsets 1 to 6.

ONNX Runtime and the package's own evaluator know few of them, so the results are written here with numpy."""
import numpy as np
from onnx import TensorProto


def add_broadcasting(b):
    a, full = (b.random(name).standard_normal((2, 3, 4)).astype(np.float32) for name in ("legacy a", "legacy b"))
    full = np.where(np.abs(full) < 0.1, np.float32(0.5), full).astype(np.float32)
    operations = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    for op, function in operations.items():
        for opset in (1, 6):
            b.known(f"legacy_{op.lower()}_{opset}", op, [a, full], [function(a, full)], opset)
            b.known(f"legacy_{op.lower()}_{opset}_suffix", op, [a, full[0]], [function(a, full[0])], opset, broadcast=1)
            b.known(f"legacy_{op.lower()}_{opset}_axis", op, [a, full[0, :, 0]],
                    [function(a, full[0, :, 0][:, None])], opset, broadcast=1, axis=1)
            b.known(f"legacy_{op.lower()}_{opset}_front", op, [a, full[:, :, 0]],
                    [function(a, full[:, :, :1])], opset, broadcast=1, axis=0)
            b.known(f"legacy_{op.lower()}_{opset}_scalar", op, [a, full[0, 0, :1]],
                    [function(a, full[0, 0, 0])], opset, broadcast=1)
        b.known(f"legacy_{op.lower()}_consumed", op, [a, full], [function(a, full)], 5, consumed_inputs=[0, 0])
    base = np.abs(a) + np.float32(0.1)
    b.known("legacy_pow_axis", "Pow", [base, full[:, 0, 0]], [np.power(base, full[:, :1, :1])], 6, broadcast=1, axis=0)
    comparisons = {"Equal": np.equal, "Less": np.less, "Greater": np.greater}
    small = b.random("legacy compare").integers(0, 3, (2, 3, 4)).astype(np.int32)
    for op, function in comparisons.items():
        left, right = (small, small[0, :, 1]) if op == "Equal" else (a, full[0, :, 1])
        b.known(f"legacy_{op.lower()}_axis", op, [left, right], [function(left, right[:, None])], 6, broadcast=1, axis=1)
    for op, function in {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}.items():
        left, right = small > 0, small[0, :, 2] > 1
        b.known(f"legacy_{op.lower()}_axis", op, [left, right], [function(left, right[:, None])], 6, broadcast=1, axis=1)


def add_contractions(b):
    a, w, bias = (b.random(f"gemm {i}").standard_normal(s).astype(np.float32) for i, s in enumerate([(3, 5), (5, 4), (4,)]))
    full = b.random("gemm c").standard_normal((3, 4)).astype(np.float32)
    for opset in (1, 6):
        b.known(f"legacy_gemm_{opset}", "Gemm", [a, w, full], [a @ w + full], opset)
        b.known(f"legacy_gemm_{opset}_broadcast", "Gemm", [a, w, bias], [a @ w + bias], opset, broadcast=1)
        b.known(f"legacy_gemm_{opset}_transposed", "Gemm", [a.T.copy(), w.T.copy(), full], [0.5 * (a @ w) + 2 * full],
                opset, transA=1, transB=1, alpha=0.5, beta=2.0)


def add_normalization(b):
    x = b.random("legacy bn").standard_normal((2, 3, 4, 5)).astype(np.float32)
    scale, bias, mean = (b.random(f"legacy bn {i}").standard_normal(3).astype(np.float32) for i in range(3))
    variance = b.random("legacy bn v").random(3).astype(np.float32) + np.float32(0.5)
    c = lambda v: v[:, None, None]
    y = (x - c(mean)) / np.sqrt(c(variance) + np.float32(1e-3)) * c(scale) + c(bias)
    b.known("legacy_batchnorm_6", "BatchNormalization", [x, scale, bias, mean, variance], [y], 6, is_test=1, epsilon=1e-3)
    b.known("legacy_batchnorm_1", "BatchNormalization", [x, scale, bias, mean, variance], [y], 1, is_test=1, epsilon=1e-3,
            spatial=1, momentum=0.9, consumed_inputs=[0, 0, 0, 1, 1])
    b.known("legacy_dropout", "Dropout", [x], [x], 6, is_test=1, ratio=0.3)
    b.known("legacy_dropout_1", "Dropout", [x], [x], 1, is_test=1, consumed_inputs=[0])


def add_elementwise(b):
    x = b.random("legacy elementwise").standard_normal((2, 3, 4)).astype(np.float32)
    for op, function in {"Abs": np.abs, "Neg": np.negative, "Exp": np.exp, "Tanh": np.tanh, "Floor": np.floor}.items():
        b.known(f"legacy_{op.lower()}_1", op, [x], [function(x)], 1, consumed_inputs=[0])
    b.known("legacy_sum_1", "Sum", [x, x, x], [x + x + x], 1, consumed_inputs=[0, 0, 0])
    b.known("legacy_max_1", "Max", [x, -x], [np.abs(x)], 1)
    b.known("legacy_clip_1", "Clip", [x], [np.clip(x, -0.5, 0.25)], 1, min=-0.5, max=0.25)
    b.known("legacy_relu_1", "Relu", [x], [np.maximum(x, 0)], 1, consumed_inputs=[1])
    elu = lambda v, alpha, gamma: np.where(v > 0, gamma * v, gamma * (alpha * np.exp(v) - alpha)).astype(np.float32)
    b.known("legacy_elu_1", "Elu", [x], [elu(x, 0.5, 1)], 1, alpha=0.5, consumed_inputs=[0])
    b.known("legacy_selu_1", "Selu", [x], [elu(x, 1.6732, 1.0507)], 1)
    b.known("legacy_selu_6", "Selu", [x], [elu(x, 1.6732631921768188, 1.0507010221481323)], 6)
    for name, slope, wide in (("one", np.array([0.25], np.float32), np.float32(0.25)),
                              ("channels", np.array([0.5, -1, 2], np.float32), np.array([[0.5], [-1], [2]], np.float32))):
        b.known(f"legacy_prelu_{name}", "PRelu", [x, slope], [np.where(x < 0, x * wide, x)], 6)
    numbers = np.array([-2.7, -0.5, 0, 1.5, 100.9], np.float32)
    for name, dtype in {"FLOAT16": np.float16, "INT32": np.int32, "INT64": np.int64, "DOUBLE": np.float64,
                        "BOOL": np.bool_, "UINT8": np.uint8}.items():
        values = np.abs(numbers) if name == "UINT8" else numbers
        b.known(f"legacy_cast_{name.lower()}", "Cast", [values], [values.astype(dtype)], 5, to=name)
    b.known("legacy_cast_number", "Cast", [numbers], [numbers.astype(np.int32)], 6, to=TensorProto.INT32)


def add_movement(b):
    x = b.random("legacy movement").standard_normal((2, 3, 4)).astype(np.float32)
    b.known("legacy_concat_default_axis", "Concat", [x, -x], [np.concatenate([x, -x], 1)], 3)
    b.known("legacy_concat_4", "Concat", [x, -x], [np.concatenate([x, -x], 2)], 4, axis=2)
    b.known("legacy_reshape_1", "Reshape", [x], [x.reshape(2, 12)], 1, shape=[0, -1])
    b.known("legacy_reshape_5", "Reshape", [x, np.array([4, -1], np.int64)], [x.reshape(4, 6)], 5, constants=(1,))
    b.known("legacy_pad_1", "Pad", [x], [np.pad(x, ((0, 0), (1, 2), (3, 0)), constant_values=1.5)], 1,
            paddings=[0, 1, 3, 0, 2, 0], value=1.5)
    b.known("legacy_pad_2", "Pad", [x], [np.pad(x, ((0, 0), (1, 1), (2, 1)), mode="reflect")], 2,
            pads=[0, 1, 2, 0, 1, 1], mode="reflect")
    b.known("legacy_split_1_attribute", "Split", [x], [x[:, :1], x[:, 1:]], 1, axis=1, split=[1, 2])
    b.known("legacy_split_1_operand", "Split", [x, np.array([1, 2], np.float32)], [x[:, :1], x[:, 1:]], 1,
            constants=(1,), axis=1)
    b.known("legacy_split_2", "Split", [x], [x[:1], x[1:]], 2)
    b.known("legacy_tile_1", "Tile", [x, np.array(3, np.float32), np.array(1, np.float32)], [np.tile(x, (1, 3, 1))], 1,
            constants=(1, 2))
    b.known("legacy_tile_6", "Tile", [x, np.array([2, 1, 3], np.int64)], [np.tile(x, (2, 1, 3))], 6, constants=(1,))
    image = b.random("legacy upsample").standard_normal((1, 2, 3, 4)).astype(np.float32)
    b.known("legacy_upsample_1", "Upsample", [image], [image.repeat(2, 2).repeat(3, 3)], 1, height_scale=2.0,
            width_scale=3.0)
    b.known("legacy_slice_1", "Slice", [x], [x[:, 1:3, :-1]], 1, axes=[1, 2], starts=[1, 0], ends=[3, -1])
    b.known("legacy_unsqueeze_1", "Unsqueeze", [x], [x[:, None]], 1, axes=[1])
    b.known("legacy_squeeze_1", "Squeeze", [x[:1]], [x[0]], 1, axes=[0])
    b.known("legacy_topk_1", "TopK", [x], [-np.sort(-x, 2)[..., :2], np.argsort(-x, 2)[..., :2]], 1, k=2, axis=2)


def add_pooling(b):
    x = b.random("legacy pool").standard_normal((1, 2, 4, 6)).astype(np.float32)
    tiles = x.reshape(1, 2, 2, 2, 3, 2)
    b.known("legacy_maxpool_1", "MaxPool", [x], [tiles.max((3, 5))], 1, kernel_shape=[2, 2], strides=[2, 2])
    b.known("legacy_averagepool_1", "AveragePool", [x], [tiles.mean((3, 5))], 1, kernel_shape=[2, 2], strides=[2, 2])
    padded = np.full((1, 2, 2, 2), 0, np.float32)
    for i, rows in enumerate((slice(0, 3), slice(3, 4))):
        for j, columns in enumerate((slice(0, 3), slice(2, 6))):
            padded[:, :, i, j] = x[:, :, rows, columns].mean((2, 3))
    b.known("legacy_averagepool_1_pads", "AveragePool", [x], [padded], 1, kernel_shape=[4, 4], strides=[4, 3],
            pads=[1, 1, 3, 0])
    norm = lambda p: (np.abs(tiles) ** p).sum((3, 5)) ** (1 / p)
    b.known("legacy_lppool_1", "LpPool", [x], [norm(2.5)], 1, kernel_shape=[2, 2], strides=[2, 2], p=2.5)
    b.known("legacy_lppool_2", "LpPool", [x], [norm(3)], 2, kernel_shape=[2, 2], strides=[2, 2], p=3)
    b.known("legacy_globallppool_1", "GlobalLpPool", [x],
            [((np.abs(x) ** 1.5).sum((2, 3), keepdims=True)) ** (1 / 1.5)], 1, p=1.5)


def add_recurrent(b):
    x, w, r = (b.random(f"legacy rnn {i}").standard_normal(s).astype(np.float32)
               for i, s in enumerate([(3, 2, 4), (1, 5, 4), (1, 5, 5)]))
    state, states = np.zeros((2, 5), np.float32), []
    for step in x:
        state = np.tanh(step @ w[0].T + state @ r[0].T)
        states.append(state)
    b.known("legacy_rnn_1", "RNN", [x, w, r], [np.stack(states)[:, None], state[None]], 1, output_sequence=1,
            hidden_size=5)


def add_cases(b):
    add_broadcasting(b)
    add_contractions(b)
    add_normalization(b)
    add_elementwise(b)
    add_movement(b)
    add_pooling(b)
    add_recurrent(b)
