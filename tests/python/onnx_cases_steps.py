"""Cases for make_onnx_cases.py: operators that go step by step (Scan, Loop, linear attention) and their relatives."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def body(nodes, inputs, outputs, initializers=()):
    """A subgraph; `inputs` and `outputs`: (name, type, dims)."""
    return helper.make_graph(nodes, "body", [helper.make_tensor_value_info(*i) for i in inputs],
                             [helper.make_tensor_value_info(*o) for o in outputs], list(initializers))


def add_scan(b):
    """Running sums and products; a weight outside, one inside; axes and directions."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["s", "p"], ["t"]),
             helper.make_node("Tanh", ["t"], ["s_out"]), helper.make_node("Mul", ["s_out", "k"], ["y"])]
    k = numpy_helper.from_array(np.float32([2, 3, 4]), "k")
    random = b.random("scan")

    def case(name, opset, steps, axis=0, y_axis=0, backwards=0, y_backwards=0):
        x_dims = [2, 5]
        x_dims.insert(axis, steps)
        graph = body(nodes, [("s", FLOAT, [2, 3]), ("x", FLOAT, [2, 5])],
                     [("s_out", FLOAT, [2, 3]), ("y", FLOAT, [2, 3])], [k])
        node = helper.make_node("Scan", ["s0", "xs"], ["last", "ys"], body=graph, num_scan_inputs=1,
                                scan_input_axes=[axis], scan_output_axes=[y_axis], scan_input_directions=[backwards],
                                scan_output_directions=[y_backwards])
        tensors = {"s0": random.standard_normal((2, 3)).astype(np.float32),
                   "xs": random.standard_normal(x_dims).astype(np.float32),
                   "w": random.standard_normal((5, 3)).astype(np.float32)}
        b.graph(name, [node], tensors, ["last", "ys"], opset, constants=("w",))

    case("scan_plain", 11, 7)
    case("scan_opset_9", 9, 4)
    case("scan_one_step", 21, 1)
    case("scan_axes", 17, 6, axis=1, y_axis=2)
    case("scan_last_axis", 17, 6, axis=2, y_axis=1)
    case("scan_negative_axis", 17, 6, axis=0, y_axis=-1)
    case("scan_backwards", 17, 5, backwards=1)
    case("scan_both_backwards", 17, 5, backwards=1, y_backwards=1)
    case("scan_long", 17, 200)
    # Opset 8 has a batch in front.
    plain = body([helper.make_node("Add", ["s", "x"], ["s_out"]), helper.make_node("Identity", ["s_out"], ["y"])],
                 [("s", FLOAT, [3]), ("x", FLOAT, [3])], [("s_out", FLOAT, [3]), ("y", FLOAT, [3])])
    for name, lengths in [("scan_batch", None), ("scan_batch_lengths", np.array([5, 2]))]:
        node = helper.make_node("Scan", ["" if lengths is None else "n", "s0", "xs"], ["last", "ys"], body=plain,
                                num_scan_inputs=1)
        tensors = {} if lengths is None else {"n": lengths}
        tensors["s0"] = random.standard_normal((2, 3)).astype(np.float32)
        tensors["xs"] = random.standard_normal((2, 5, 3)).astype(np.float32)
        b.graph(name, [node], tensors, ["last", "ys"], 8)
    # Without states, two sequences, two results.
    pair = body([helper.make_node("Mul", ["x", "z"], ["p"]), helper.make_node("ReduceSum", ["p"], ["q"], keepdims=0)],
                [("x", FLOAT, [4]), ("z", FLOAT, [4])], [("p", FLOAT, [4]), ("q", FLOAT, [])])
    node = helper.make_node("Scan", ["xs", "zs"], ["ps", "qs"], body=pair, num_scan_inputs=2)
    b.graph("scan_no_state", [node], {"xs": random.standard_normal((6, 4)).astype(np.float32),
                                      "zs": random.standard_normal((6, 4)).astype(np.float32)}, ["ps", "qs"], 17)


def add_loop(b):
    random = b.random("loop")

    def step(condition, collect=True):
        nodes = [helper.make_node("Mul", ["v", "f"], ["m"]), helper.make_node("Cast", ["i"], ["i_f"], to=FLOAT),
                 helper.make_node("Add", ["m", "i_f"], ["v_out"])] + condition
        outputs = [("c_out", BOOL, []), ("v_out", FLOAT, [3])]
        if collect:
            nodes.append(helper.make_node("Neg", ["v_out"], ["y"]))
            outputs.append(("y", FLOAT, [3]))
        return body(nodes, [("i", INT64, []), ("c", BOOL, []), ("v", FLOAT, [3])], outputs,
                    [numpy_helper.from_array(np.float32(0.75), "f"), numpy_helper.from_array(np.float32(4), "limit")])

    same = [helper.make_node("Identity", ["c"], ["c_out"])]
    # Ends when the sum of the state is large.
    watch = [helper.make_node("ReduceSum", ["v_out"], ["sum"], keepdims=0), helper.make_node("Less", ["sum", "limit"],
                                                                                           ["c_out"])]
    # Ends after the third step, whatever comes.
    third = [helper.make_node("Constant", [], ["two"], value=numpy_helper.from_array(np.int64(2))),
             helper.make_node("Less", ["i", "two"], ["c_out"])]
    v = random.standard_normal(3).astype(np.float32)

    def case(name, condition, count, go, constants, collect=True, opset=13):
        inputs = ["" if count is None else "n", "" if go is None else "go", "v0"]
        tensors = {"v0": v}
        if count is not None:
            tensors["n"] = np.asarray(count, np.int64)
        if go is not None:
            tensors["go"] = np.asarray(go)
        results = ["last", "ys"] if collect else ["last"]
        node = helper.make_node("Loop", inputs, results, body=step(condition, collect))
        b.graph(name, [node], tensors, results, opset, constants=constants)

    both = ("n", "go")
    case("loop_count", same, 5, True, both)
    case("loop_count_opset_11", same, 4, True, both, opset=11)
    case("loop_no_condition", same, 3, None, ("n",))
    case("loop_none", same, 0, True, both)
    case("loop_never", same, 4, False, both)
    case("loop_until_third", third, None, True, ("go",))
    case("loop_until_third_count", third, 9, True, both)
    case("loop_long", same, 150, True, both)
    for n in (0, 1, 3, 8):
        case(f"loop_watch_{n}", watch, n, True, both, collect=False)
    case("loop_condition_given_true", same, 4, True, ("n",), collect=False)
    case("loop_condition_given_false", same, 4, False, ("n",), collect=False)
    # What collects has the length that the model declares.
    case("loop_count_given", same, 6, True, ("go",))
    case("loop_all_given", same, 3, True, ())
    # A state that grows with every step.
    grow = body([helper.make_node("Concat", ["v", "v"], ["v_out"], axis=0), helper.make_node("Identity", ["c"],
                                                                                           ["c_out"])],
                [("i", INT64, []), ("c", BOOL, []), ("v", FLOAT, None)], [("c_out", BOOL, []), ("v_out", FLOAT, None)])
    node = helper.make_node("Loop", ["n", "", "v0"], ["last"], body=grow)
    b.graph("loop_grows", [node], {"n": np.array(3), "v0": v}, ["last"], 13, constants=("n",))
    # A loop in a loop: sums of sums.
    inner = body([helper.make_node("Add", ["w", "u"], ["w_out"]), helper.make_node("Identity", ["c2"], ["c2_out"])],
                 [("i2", INT64, []), ("c2", BOOL, []), ("w", FLOAT, [3])],
                 [("c2_out", BOOL, []), ("w_out", FLOAT, [3])])
    outer = body([helper.make_node("Loop", ["three", "", "u"], ["u_out"], body=inner),
                  helper.make_node("Identity", ["c1"], ["c1_out"])],
                 [("i1", INT64, []), ("c1", BOOL, []), ("u", FLOAT, [3])],
                 [("c1_out", BOOL, []), ("u_out", FLOAT, [3])])
    node = helper.make_node("Loop", ["n", "", "v0"], ["last"], body=outer)
    b.graph("loop_in_loop", [node], {"n": np.array(2), "three": np.array(3), "v0": v}, ["last"], 13,
            constants=("n", "three"))


def add_linear_attention(b):
    def case(name, rule, q_heads=2, heads=2, steps=5, depth=4, width=6, state=True, per_head=False, beta_one=False,
             dtype=np.float32, **attributes):
        random = b.random(name)
        batch = 2

        def unit(*shape):
            x = random.standard_normal(shape)
            return (x / np.sqrt((x * x).sum(-1, keepdims=True))).reshape(shape[0], shape[1], -1).astype(dtype)

        decay = -random.uniform(0.05, 1, (batch, steps, heads * (1 if per_head else depth))).astype(dtype)
        beta = random.uniform(0.2, 0.9, (batch, steps, 1 if beta_one else heads)).astype(dtype)
        inputs = [unit(batch, steps, q_heads, depth), unit(batch, steps, heads, depth),
                  random.standard_normal((batch, steps, heads * width)).astype(dtype),
                  random.standard_normal((batch, heads, depth, width)).astype(dtype) if state else None,
                  decay if "gated" in rule else None, beta if "delta" in rule else None]
        while inputs[-1] is None:
            inputs.pop()
        b.op(name, "LinearAttention", inputs, 27, 2, update_rule=rule, q_num_heads=q_heads, kv_num_heads=heads,
             **attributes)

    with b.onnx_reference():
        for rule in ("linear", "gated", "delta", "gated_delta"):
            case(f"linear_attention_{rule}", rule)
            case(f"linear_attention_{rule}_first", rule, state=False, steps=3)
        case("linear_attention_shared", "gated_delta", q_heads=6, heads=2)
        case("linear_attention_one_key_head", "delta", q_heads=4, heads=1, beta_one=True)
        case("linear_attention_per_head", "gated", per_head=True)
        case("linear_attention_scale", "gated_delta", scale=0.5, steps=1)
        case("linear_attention_long", "gated_delta", steps=70, chunk_size=16)
        for name, shape, kernel, state, bias in [("plain", (2, 3, 9), 4, False, False), ("state", (2, 3, 9), 4, True, True),
                                                 ("short", (1, 5, 2), 6, True, True), ("one", (2, 4, 7), 1, False, True)]:
            for activation in ("none", "silu", "swish"):
                random = b.random(name)
                w = random.standard_normal((shape[1], 1, kernel)).astype(np.float32)
                past = random.standard_normal((shape[0], shape[1], kernel - 1)).astype(np.float32) if state else None
                inputs = [shape, w, random.standard_normal(shape[1]).astype(np.float32) if bias else None, past]
                while inputs[-1] is None:
                    inputs.pop()
                b.op(f"causal_conv_{name}_{activation}", "CausalConvWithState", inputs, 27, 2, activation=activation)


def add_cases(b):
    add_scan(b)
    add_loop(b)
    add_linear_attention(b)
