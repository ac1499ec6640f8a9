"""Cases for make_onnx_cases.py: operators with subgraphs."""
import numpy as np
from onnx import TensorProto, helper


def branch(nodes, output, dtype=TensorProto.FLOAT):
    return helper.make_graph(nodes, f"branch_{output}", [], [helper.make_tensor_value_info(output, dtype, None)])


def add_if(b):
    """y = x + 1 or exp(x) * x; by an input, by a comparison of sums, by a shape."""
    x = b.random("if").standard_normal((3, 5)).astype(np.float32)
    one = np.ones((), np.float32)
    yes = branch([helper.make_node("Add", ["x", "one"], ["r"])], "r")
    no = branch([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Mul", ["e", "x"], ["r"])], "r")
    node = helper.make_node("If", ["c"], ["y"], name="choose", then_branch=yes, else_branch=no)
    for value in (True, False):
        word = str(value).lower()
        b.graph(f"if_input_{word}", [node], {"c": np.array(value), "x": x, "one": one}, ["y"], constants=("one",))
        b.graph(f"if_input_vector_{word}", [node], {"c": np.array([value]), "x": x, "one": one}, ["y"],
                constants=("one",))
        compare = [helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
                   helper.make_node("Greater" if (x.sum() > 0) == value else "Less", ["sum", "zero"], ["c"])]
        b.graph(f"if_computed_{word}", [*compare, node], {"x": x, "one": one, "zero": np.zeros((), np.float32)}, ["y"],
                constants=("one", "zero"))
        shape = [helper.make_node("Shape", ["x"], ["dims"]),
                 helper.make_node("Gather", ["dims", "first"], ["rows"]),
                 helper.make_node("Equal", ["rows", "wanted"], ["c"])]
        b.graph(f"if_shape_{word}", [*shape, node],
                {"x": x, "one": one, "first": np.array(0, np.int64), "wanted": np.array(3 if value else 4, np.int64)},
                ["y"], constants=("one", "first", "wanted"))


def add_cases(b):
    add_if(b)
