"""Cases for make_onnx_cases.py: elementwise operators, casts, softmax and reductions."""
import numpy as np
from onnx import TensorProto, helper

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 3.4e38, -3.4e38, 1e-38, -1e-45, np.inf, -np.inf, np.nan, 88.5, -104.0, 0.5,
                    -2.5, 1e-8], np.float32)


def shape_text(shape):
    return "x".join(map(str, shape)) or "scalar"


def integers(b, name, shape, dtype, low=-9, high=9):
    low = max(low, np.iinfo(dtype).min)
    return b.random(name).integers(low, high, shape).astype(dtype)


def add_binary(b):
    shapes = [((), ()), ((1,), (5,)), ((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((4,), (2, 3, 4)), ((2, 1, 4), (3, 1)),
              ((1, 16, 1, 1), (1, 16, 9, 7)), ((1, 8, 5, 5), (8, 1, 1)), ((1,), (1, 3, 7, 5)), ((1, 1, 1), (1,)),
              ((0, 3), (1, 3)), ((3, 0), ()), ((1000,), (1000,)), ((3, 1021), (3, 1))]
    for op in ("Add", "Sub", "Mul", "Div"):
        for a, c in shapes:
            name = f"{op.lower()}_{shape_text(a)}_{shape_text(c)}"
            random = b.random(name)
            left, right = (random.standard_normal(s).astype(np.float32) for s in (a, c))
            if op == "Div":
                right = np.where(np.abs(right) < 0.1, np.float32(0.5), right).astype(np.float32)
            b.op(name, op, [left, right], constants=(1,) if len(a) > len(c) else ())
        b.op(f"{op.lower()}_special_values", op, [SPECIAL[:, None], SPECIAL[None, :]])
        b.op(f"{op.lower()}_opset7", op, [(2, 3), np.array([1, 2, 3], np.float32)], 7)
        for dtype in (np.int64, np.int32, np.float64):
            left = b.random(op).integers(-20, 20, (3, 5)).astype(dtype)
            right = b.random(op + "r").integers(1, 7, (5,)).astype(dtype) * np.array([1, -1, 1, -1, 1], dtype)
            b.op(f"{op.lower()}_{np.dtype(dtype).name}", op, [left, right])
    for exponent in (2.0, 0.5, -1.0, 3.0, 0.0):
        b.op(f"pow_{str(exponent).replace('.', '_').replace('-', 'minus')}", "Pow",
             [np.abs(b.random("pow").standard_normal((3, 7))).astype(np.float32) + np.float32(0.1),
              np.array(exponent, np.float32)], constants=(1,))
    b.op("pow_negative_base", "Pow", [(4, 5), np.array([2, 3, -2, 0, 1], np.float32)])
    b.op("pow_broadcast", "Pow", [np.array([[1.5], [2.5]], np.float32), np.array([1, 2, 0.5], np.float32)])


def add_unary(b):
    for op in ("Relu", "Sigmoid", "Exp", "Tanh", "Neg", "Abs", "Floor", "Ceil", "Erf", "HardSwish"):
        opset = 17
        b.op(f"{op.lower()}_special_values", op, [SPECIAL], opset)
        b.op(f"{op.lower()}_range", op, [np.linspace(-12, 12, 1001, dtype=np.float32)], opset)
        for shape in [(), (1,), (0, 4), (3, 5, 7), (1, 16, 20, 21)]:
            value = np.asarray(b.random(op).standard_normal(shape), np.float32)
            b.op(f"{op.lower()}_{shape_text(shape)}", op, [value], opset)
    for op in ("Sqrt", "Log", "Reciprocal"):
        b.op(f"{op.lower()}_special_values", op, [SPECIAL])
        b.op(f"{op.lower()}_range", op, [np.geomspace(1e-6, 1e6, 777, dtype=np.float32)])
    b.op("exp_wide_range", "Exp", [np.linspace(-110, 90, 2003, dtype=np.float32)])
    b.op("relu_opset6", "Relu", [(2, 3)], 7)
    b.op("hardsigmoid_default", "HardSigmoid", [np.linspace(-4, 4, 101, dtype=np.float32)])
    b.op("hardsigmoid_alpha_beta", "HardSigmoid", [np.linspace(-4, 4, 101, dtype=np.float32)], alpha=1 / 6, beta=0.5)
    b.op("hardsigmoid_special_values", "HardSigmoid", [SPECIAL])
    b.op("leakyrelu", "LeakyRelu", [(3, 50)], alpha=0.1)
    number = lambda value: np.array(value, np.float32)
    b.op("clip_both", "Clip", [(3, 50), number(-0.5), number(0.7)], constants=(1, 2))
    b.op("clip_min_only", "Clip", [(3, 50), number(-0.5)], constants=(1,))
    b.op("clip_max_only", "Clip", [(3, 50), None, number(0.25)], constants=(2,))
    b.op("clip_nothing", "Clip", [(3, 50)])
    b.op("clip_limits_are_inputs", "Clip", [(3, 50), number(0), number(6)])
    b.op("clip_min_above_max", "Clip", [(3, 50), number(2), number(1)], constants=(1, 2))
    b.op("clip_special_values", "Clip", [SPECIAL, number(-1), number(1)], constants=(1, 2))
    b.op("clip_int64", "Clip", [np.arange(-8, 8, dtype=np.int64), np.array(-3, np.int64), np.array(5, np.int64)], 12)
    b.op("clip_attributes_opset7", "Clip", [(3, 50)], 7, min=0.0, max=6.0)
    b.op("clip_attributes_opset7_default", "Clip", [(3, 50)], 7)
    b.op("dropout_inference", "Dropout", [(3, 5)], 13)
    b.op("identity", "Identity", [(2, 3)])


def add_cast(b):
    values = np.array([[-2.7, -1.5, -0.5, 0.0, 0.49, 1.5, 2.5, 100.9]], np.float32)
    types = {"float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "int32": TensorProto.INT32, "int64":
             TensorProto.INT64, "bool": TensorProto.BOOL, "float16": TensorProto.FLOAT16}
    for name, to in types.items():
        b.op(f"cast_float_to_{name}", "Cast", [values], 13, to=to)
        b.op(f"cast_int64_to_{name}", "Cast", [np.array([-3, 0, 1, 7, 2**33], np.int64) if name != "int32" else
                                               np.array([-3, 0, 1, 7, 2**31 - 1], np.int64)], 13, to=to)
        b.op(f"cast_bool_to_{name}", "Cast", [np.array([True, False])], 13, to=to)
    b.op("cast_uint8_to_float", "Cast", [np.arange(256, dtype=np.uint8)], 13, to=TensorProto.FLOAT)


def add_softmax(b):
    for shape, axis in [((3, 5), 1), ((3, 5), 0), ((1, 4420, 2), 2), ((2, 3, 4), -1), ((2, 3, 4), 1), ((7,), 0),
                        ((5, 1), 1), ((1, 1000), 1), ((0, 4), 1), ((2, 6, 5, 5), 1)]:
        b.op(f"softmax_{shape_text(shape)}_axis{str(axis).replace('-', 'minus')}", "Softmax", [shape], 13, axis=axis)
    # Before opset 13 the input is seen as a matrix whose rows begin at `axis`.
    for axis in (0, 1, 2):
        b.op(f"softmax_opset9_axis{axis}", "Softmax", [(2, 3, 4)], 9, axis=axis)
    b.op("softmax_opset11_default_axis", "Softmax", [(2, 3, 4)], 11)
    b.op("softmax_large_values", "Softmax", [np.array([[1e4, 1e4 - 1, -1e4], [-88, -90, -200]], np.float32)], axis=1)
    b.op("softmax_minus_infinity", "Softmax", [np.array([[0, -np.inf, 1]], np.float32)], axis=1)


def add_reductions(b):
    for op in ("ReduceMean", "ReduceSum", "ReduceMax"):
        low = op.lower()
        axes_is_input = op == "ReduceSum"
        for shape, axes, keep in [((3, 4, 5), [1], 1), ((3, 4, 5), [1], 0), ((3, 4, 5), [0, 2], 1),
                                  ((3, 4, 5), [-1], 0), ((1, 7, 9, 8), [2, 3], 1), ((1, 7, 9, 8), [2, 3], 0),
                                  ((2, 3), None, 1), ((2, 3), None, 0), ((1000,), [0], 0), ((5, 1, 3), [1], 0)]:
            axes_text = "all" if axes is None else "axes" + "_".join(map(str, axes)).replace("-", "minus")
            name = f"{low}_{shape_text(shape)}_{axes_text}_keep{keep}"
            if axes_is_input and axes is not None:
                b.op(name, op, [shape, np.array(axes, np.int64)], 13, constants=(1,), keepdims=keep)
            else:
                attributes = {} if axes is None else {"axes": axes}
                b.op(name, op, [shape], 13, keepdims=keep, **attributes)
        if op != "ReduceMax":
            axes = np.array([1], np.int64)
            b.op(f"{low}_opset18", op, [(3, 4, 5), axes], 18, constants=(1,))
            b.op(f"{low}_opset18_no_axes_is_all", op, [(3, 4, 5)], 18)
            b.op(f"{low}_opset18_no_axes_is_nothing", op, [(3, 4, 5)], 18, noop_with_empty_axes=1)
        b.op(f"{low}_opset11", op, [(3, 4, 5)], 11, axes=[0, 1])
    b.op("reducesum_empty", "ReduceSum", [(3, 0, 2), np.array([1], np.int64)], 13, constants=(1,))
    b.op("reducesum_int64", "ReduceSum", [integers(b, "rs", (3, 4), np.int64), np.array([1], np.int64)], 13,
         constants=(1,))


def add_chains(b):
    """Elementwise graphs that fusion turns into one kernel, with shapes that grow on the way."""
    node = helper.make_node
    random = b.random("chains")
    tensors = {"a": random.standard_normal((1, 6, 1, 1)).astype(np.float32),
               "x": random.standard_normal((1, 6, 9, 7)).astype(np.float32),
               "s": random.standard_normal((7,)).astype(np.float32)}
    nodes = [node("Mul", ["x", "a"], ["m"]), node("Add", ["m", "s"], ["p"]), node("Sigmoid", ["p"], ["g"]),
             node("Mul", ["p", "g"], ["y"])]
    b.graph("chain_silu_broadcast", nodes, tensors, ["y"], constants=["a", "s"])
    nodes = [node("Sub", ["x", "a"], ["d"]), node("Mul", ["d", "d"], ["q"]),
             node("ReduceMean", ["q"], ["v"], axes=[2, 3]), node("Sqrt", ["v"], ["r"]), node("Div", ["d", "r"], ["y"])]
    b.graph("chain_instance_norm", nodes, tensors, ["y"], 13)
    nodes = [node("Relu", ["x"], ["r"]), node("Exp", ["r"], ["e"]), node("Relu", ["e"], ["f"]),
             node("Add", ["r", "f"], ["y"])]
    b.graph("chain_diamond", nodes, {"x": tensors["x"]}, ["y"])


def add_newer(b):
    """Operators that ONNX Runtime does not have yet."""
    zeros = np.array([0, -0.0, 0, -0.0, 3, -3, 5.5, -5.5], np.float32)
    divisors = np.array([-2, 2, 2, -2, 3, 3, -2, 2], np.float32)
    for dtype in (np.float32, np.float16):
        operands = [zeros.astype(dtype), divisors.astype(dtype)]
        rest = np.mod(*operands)
        b.known(f"mod_signs_{np.dtype(dtype).name}", "Mod", operands, [rest], 28)
        name, model, given, _ = b.cases.pop()  # 1 / rest tells the zeros apart
        model.graph.node.append(helper.make_node("Reciprocal", ["y0"], ["inverse"]))
        model.graph.output[0].name = "inverse"
        with np.errstate(divide="ignore"):
            b.cases.append((name, model, given, [np.reciprocal(rest)]))
    gate, value = (b.random(name).standard_normal((3, 17)).astype(np.float32) for name in ("gate", "value"))
    for alpha in (1.0, 0.5):
        b.known(f"swiglu_{alpha:g}".replace(".", "_"), "SwiGLU", [gate, value],
                [(gate / (1 + np.exp(-alpha * gate.astype(np.float64))) * value).astype(np.float32)], 28, alpha=alpha)
    pairs = [(np.float32, np.int32), (np.int64, np.float64), (np.float16, np.uint16), (np.uint8, np.int8),
             (np.bool_, np.uint8), (np.uint32, np.float32), (np.int16, np.float16)]
    for source, target in pairs:
        values = (b.random("bits").integers(-99, 99, 37)).astype(source) if source not in (np.uint8, np.bool_, np.uint32) \
            else b.random("bits").integers(0, 2 if source == np.bool_ else 199, 37).astype(source)
        b.known(f"bitcast_{np.dtype(source).name}_{np.dtype(target).name}", "BitCast", [values], [values.view(target)], 26,
                to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


def add_cases(b):
    add_newer(b)
    add_binary(b)
    add_unary(b)
    add_cast(b)
    add_softmax(b)
    add_reductions(b)
    add_chains(b)
