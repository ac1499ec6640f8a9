"""Small models for the C back end: every kind of loop, operation and element type that it writes."""

import numpy
import onnx.parser
import onnx.shape_inference
from onnx import TensorProto, helper, numpy_helper

from cli_support import conv_model, make_model

F, I64 = TensorProto.FLOAT, TensorProto.INT64


def text(body, inputs, outputs, name="m", opset=21, ir=10):
    return onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]>\n{name} ({inputs}) => ({outputs}) {{\n{body}\n}}')


def window(kind, **attributes):
    node = helper.make_node(kind, ["x"], ["y"], name=kind, **attributes)
    return make_model([node], [("x", F, (1, 3, 11, 9))], [("y", F, None)])


def depthwise():
    random = numpy.random.default_rng(3)
    w = random.standard_normal((6, 1, 3, 3)).astype(numpy.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=6, pads=[1, 1, 1, 1], strides=[2, 2], name="depthwise")
    return make_model([node], [("x", F, (1, 6, 13, 10))], [("y", F, None)], {"w": w})


def perceptron():
    random = numpy.random.default_rng(4)
    sizes = [20, 33, 7]
    nodes, weights, last = [], {}, "x"
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        weights[f"w{i}"] = random.standard_normal((a, b)).astype(numpy.float32)
        weights[f"b{i}"] = random.standard_normal(b).astype(numpy.float32)
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"g{i}"], name=f"gemm{i}"))
        nodes.append(helper.make_node("Softmax" if i else "Gelu", [f"g{i}"], [f"a{i}"], name=f"act{i}"))
        last = f"a{i}"
    nodes[-1].output[0] = "y"
    return make_model(nodes, [("x", F, (3, 20))], [("y", F, None)], weights, opset=20)


def recurrent(kind):
    random = numpy.random.default_rng(5)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    w = random.standard_normal((1, gates * 5, 3)).astype(numpy.float32)
    r = random.standard_normal((1, gates * 5, 5)).astype(numpy.float32)
    node = helper.make_node(kind, ["x", "w", "r"], ["y"], hidden_size=5, name=kind)
    return make_model([node], [("x", F, (40, 2, 3))], [("y", F, None)], {"w": w, "r": r})


def quantized_conv():
    """QDQ around a convolution and a dense layer, as exporters of int8 models write it."""
    random = numpy.random.default_rng(6)
    weights = {
        "w": random.integers(-127, 128, (8, 3, 3, 3)).astype(numpy.int8), "ws": (random.random(8) / 100 + 0.001).astype(numpy.float32),
        "wz": numpy.zeros(8, numpy.int8), "b": random.integers(-500, 500, 8).astype(numpy.int32),
        "bs": (random.random(8) / 1000 + 0.0001).astype(numpy.float32), "bz": numpy.zeros(8, numpy.int32),
        "xs": numpy.float32(0.02), "xz": numpy.uint8(128), "ys": numpy.float32(0.05), "yz": numpy.uint8(3),
        "d": random.integers(-127, 128, (128, 10)).astype(numpy.int8), "ds": numpy.float32(0.01), "dz": numpy.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        helper.make_node("Conv", ["xd", "wd", "bd"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], name="conv"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["rq"]),
        helper.make_node("DequantizeLinear", ["rq", "ys", "yz"], ["rd"]),
        helper.make_node("Flatten", ["rd"], ["f"]),
        helper.make_node("DequantizeLinear", ["d", "ds", "dz"], ["dd"]),
        helper.make_node("MatMul", ["f", "dd"], ["m"], name="dense"),
        helper.make_node("QuantizeLinear", ["m", "ys", "yz"], ["y"])]
    return make_model(nodes, [("x", F, (1, 3, 8, 8))], [("y", TensorProto.UINT8, None)], weights)


def operator_models():
    """Name -> model. Inputs are random; integers are 0..9."""
    loop = """
  zero = Constant<value = float[3] {0, 0, 0}>()
  true_ = Constant<value = bool {1}>()
  n = Constant<value = int64 {30}>()
  last, all = Loop(n, true_, zero) <body = step (int64 i, bool c, float[3] sum) => (bool go, float[3] next, float[3] row) {
    next = Add(sum, x)
    row = Mul(next, x)
    total = ReduceSum<keepdims = 0>(next)
    limit = Constant<value = float {1000}>()
    go = Less(total, limit)
  }>
  y = Mul(last, two)
  z = Mul(all, two)"""
    branch = """
  total = ReduceSum<keepdims = 0>(x)
  limit = Constant<value = float {8}>()
  more = Greater(total, limit)
  y = If(more) <then_branch = t () => (float[4,4] a) { a = Exp(x) }, else_branch = e () => (float[4,4] b) { b = Neg(x) }>"""
    return {
        "conv": conv_model(),
        "depthwise": depthwise(),
        "max_pool": window("MaxPool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
        "average_pool": window("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        "perceptron": perceptron(),
        "lstm": recurrent("LSTM"),
        "gru": recurrent("GRU"),
        "quantized": quantized_conv(),
        "functions": text(
            "a = Exp(x)\n b = Log(a)\n c = Tanh(b)\n d = Sigmoid(c)\n e = Erf(d)\n f = Sqrt(e)\n g = Sin(f)\n h = Cos(g)\n"
            " i = Pow(h, x)\n j = Atan(i)\n k = Softplus(j)\n y = HardSwish(k)", "float[5,7] x", "float[5,7] y"),
        "rounding": text(
            "s = Constant<value = float {7}>()\n a = Sub(x, h)\n b = Mul(a, s)\n y = Round(b)\n f = Floor(b)\n c = Ceil(b)\n"
            " z = Sub(f, c)\n u = Sign(b)\n v = Abs(b)", "float[9] x, float h", "float[9] y, float[9] z, float[9] u, float[9] v"),
        "integers": text(
            "a = Div(x, w)\n b = Mod(x, w)\n c = Mul(a, b)\n y = Sub(c, x)\n s = Cast<to = 3>(y)\n t = Mul(s, s)\n z = Cast<to = 7>(t)\n"
            " u = Cast<to = 2>(x)\n v = BitShift<direction = \"LEFT\">(u, u)", "int64[11] x, int64[11] w",
            "int64[11] y, int64[11] z, uint8[11] v"),
        "casts": text(
            "a = Cast<to = 10>(x)\n b = Mul(a, a)\n c = Cast<to = 16>(x)\n d = Add(c, c)\n y = Cast<to = 1>(b)\n z = Cast<to = 1>(d)\n"
            " e = Cast<to = 11>(x)\n v = Exp(e)\n n = Cast<to = 9>(x)\n u = Not(n)\n i = Cast<to = 2>(e)\n h = Cast<to = 10>(e)",
            "float[6,5] x", "float[6,5] y, float[6,5] z, double[6,5] v, bool[6,5] u, uint8[6,5] i, float16[6,5] h"),
        "gather": text(
            "four = Constant<value = int64 {4}>()\n k = Mod(j, four)\n y = Gather<axis = 1>(x, i)\n z = GatherElements(x, k)",
            "float[4,10] x, int64[3] i, int64[2,10] j", "float[4,3] y, float[2,10] z"),
        "movement": text(
            "t = Transpose<perm = [1, 0, 2]>(x)\n c = Concat<axis = 2>(t, t)\n p = Constant<value = int64[6] {0, 1, 2, 1, 0, 3}>()\n"
            " d = Pad<mode = \"reflect\">(c, p)\n s = Constant<value = int64[1] {1}>()\n e = Constant<value = int64[1] {-1}>()\n"
            " y = Slice(d, s, e, s)", "float[3,4,5] x", "float[5,2,15] y"),
        "reductions": text(
            "y = ReduceMean<keepdims = 0>(x, a)\n z = ArgMax<axis = 2, keepdims = 0>(x)\n u = ReduceMax<keepdims = 0>(x, a)\n"
            " s = LayerNormalization(x, g)\n v = CumSum(x, b)", "float[3,4,6] x, float[6] g",
            "float[3,6] y, int64[3,4] z, float[3,6] u, float[3,4,6] s, float[3,4,6] v"),
        "resize": text("y = Resize<mode = \"linear\">(x, , r)", "float[1,2,5,4] x", "float[1,2,10,8] y"),
        "choice": text(
            "n = Less(x, h)\n m = Not(n)\n y = Where(n, x, h)\n o = Or(n, m)\n z = And(o, n)\n w = Max(x, h)\n v = Clip(w, l, u)",
            "float[12] x, float[12] h", "float[12] y, bool[12] z, float[12] v"),
        # Names that the source has for things of its own, and names that differ by case alone.
        "names": text("K = Constant<value = float[4,3] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>()\n p = MatMul(w0, K)\n"
                      " q = Add(p, n0)\n r = Mul(q, sqrtf)\n y = Floor(r)\n Y = Relu(r)",
                      "float[4,4] w0, float[4,3] n0, float[4,3] sqrtf", "float[4,3] y, float[4,3] Y"),
        # Comparisons with the ends of types, and complements, which compilers warn about.
        "ends": text("c = Constant<value = uint8[1] {255}>()\n y = Greater(x, c)\n d = Constant<value = uint16[1] {65535}>()\n"
                     " z = LessOrEqual(h, d)\n e = Cast<to = 3>(b)\n w = BitwiseNot(e)\n v = BitwiseNot(x)",
                     "uint8[4] x, uint16[4] h, bool[4] b", "bool[4] y, bool[4] z, int8[4] w, uint8[4] v"),
        "top_k": text("y, z = TopK(x, k)", "float[3,9] x", "float[3,4] y, int64[3,4] z"),
        "loop": text(loop, "float[3] x", "float[3] y, float[30,3] z"),
        "branch": text(branch, "float[4,4] x", "float[4,4] y"),
        "two_inputs": text("y = MatMul(x, w)", "float[5,17] x, float[17,3] w", "float[5,3] y"),
        "scalar": text("y = Mul(x, x)", "float x", "float y"),
    }


def with_constants(model, **values):
    for name, value in values.items():
        model.graph.initializer.append(numpy_helper.from_array(numpy.asarray(value), name))
    return model


def models():
    made = operator_models()
    with_constants(made["reductions"], a=numpy.array([1], numpy.int64), b=numpy.int64(2))
    with_constants(made["resize"], r=numpy.array([1, 1, 2, 2], numpy.float32))
    with_constants(made["choice"], l=numpy.float32(0.25), u=numpy.float32(0.75))
    with_constants(made["top_k"], k=numpy.array([4], numpy.int64))
    with_constants(made["loop"], two=numpy.float32(2))
    return {name: onnx.shape_inference.infer_shapes(model) for name, model in made.items()}
