"""The modules in tests/golden/modules: what each is made of, and how inputs and outputs stand beside them as JSON."""
import pathlib

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden/modules"
RUNS = 2  # of each module, one after another: states go on

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
COUNTER = """graph @counter(%x: f32[4], %sum: f32[4] state("sum"), %n: i64[1] state("calls", dense<i64[1] 5>))
    -> (%y: f32[4], %next: f32[4] state("sum"), %m: i64[1] state("calls")) {
  %one = constant {value = dense<i64[1] 1>}
  %m = add(%n, %one)
  %next = add(%sum, %x)
  %y = sqrt(%next)
}
"""


def _parsed(text):
    return onnx.parser.parse_model(HEADER + text)


def _network():
    """A convolution, a pool and a product: packed weights, an arena, several kernels."""
    random = np.random.default_rng(1)
    weights = {"w": random.normal(size=(4, 3, 3, 3)), "b": random.normal(size=(4,)), "m": random.normal(size=(4, 5))}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("GlobalAveragePool", ["r"], ["p"]),
             helper.make_node("Flatten", ["p"], ["f"]),
             helper.make_node("MatMul", ["f", "m"], ["y"])]
    f32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(nodes, "network", [helper.make_tensor_value_info("x", f32, [1, 3, 8, 8])],
                              [helper.make_tensor_value_info("y", f32, [1, 5])],
                              [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LEARNER = """graph @learner(%x: f32[4,3]) -> (%y: f32[4,2]) {
  %w = constant {value = dense<f32[3,2] 0.5 -0.25 0.125 1 -0.5 0.75>}
  %y = matmul(%x, %w)
}
"""


def bundle_runs():
    """The inputs of the steps of the bundle, which has a model and its training step over one state."""
    return [[_floats(4, 3, seed=i), np.array([0, 1, 1, 0]), np.array(0.125)] for i in range(RUNS)]


# Name -> the model (a ModelProto, or a graph as text), options of `tessera compile`, the inputs of each run.
def cases():
    baseline = ["--target", "x86-64-v2"]
    image = [[_floats(1, 3, 8, 8, seed=i)] for i in range(RUNS)]
    return {
        "fixed": (_network(), baseline, image),
        "open": (_parsed("open (float[N,6] x) => (float[N,6] y) { e = Softmax<axis = 1>(x) y = Mul(e, x) }"),
                 [*baseline, "--dim", "N=1..16"], [[_floats(3, 6)], [_floats(16, 6, seed=1)]]),
        "decided": (_parsed("decided (float[8] x) => (int64[1,N] y) { p = Relu(x) y = NonZero(p) }"),
                    baseline, [[_floats(8)], [_floats(8, seed=1)]]),
        "state": (COUNTER, baseline, [[np.abs(_floats(4))], [np.abs(_floats(4, seed=1))]]),
        "loop": (_parsed("""loop (int64 n, bool c, float[4] x) => (float[4] y) {
          y = Loop (n, c, x) <body = b (int64 i, bool go, float[4] a) => (bool on, float[4] z) {
            on = Identity(go) f = Cast<to = 1>(i) s = Add(a, f) z = Sin(s) }> }"""), baseline,
                 [[np.array(3, np.int64), np.array(True), _floats(4)], [np.array(0, np.int64), np.array(True), _floats(4)]]),
        "flow": (_parsed("""flow (string[N,2] a, string b, seq(float[K]) s, float[M] x)
          => (string[N,2] joined, seq(float[L]) more, int64 n) {
          joined = StringConcat(a, b) square = Mul(x, x) more = SequenceInsert(s, square) n = SequenceLength(more) }"""), baseline,
                 [[np.array([["a", "ß"]], object), np.array("-", object), [_floats(2)], _floats(3)],
                  [np.array([["x", ""], ["y", "zz"]], object), np.array("é", object), [], _floats(1)]]),
        "device": (_network(), [*baseline, "--place", "*=null"], image),
        "variants": (_network(), [*baseline, "--variants", "x86-64-v3,x86-64-v4"], image),
    }


def to_json(value):
    if isinstance(value, list):
        return [to_json(element) for element in value]
    value = np.asarray(value)
    return {"dtype": str(value.dtype), "shape": list(value.shape), "data": value.reshape(-1).tolist()}


def difference(got, want):
    """Empty when they are the same values; floats to the last few bits, since a variant may round otherwise."""
    if isinstance(want, list):
        if len(got) != len(want):
            return f"{len(got)} values instead of {len(want)}"
        return next((text for text in map(difference, got, want) if text), "")
    got, want = np.asarray(got), np.asarray(want)
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    same = np.allclose(got, want, rtol=1e-5, atol=1e-6) if want.dtype.kind == "f" else np.array_equal(got, want)
    return "" if same else f"{got} instead of {want}"


def from_json(value):
    if isinstance(value, list):
        return [from_json(element) for element in value]
    return np.array(value["data"], value["dtype"]).reshape(value["shape"])
