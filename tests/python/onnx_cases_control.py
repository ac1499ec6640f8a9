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


def add_lazy_if(b):
    """Branches with kernels of their own, one in the other; a look-up whose places one branch computes."""
    r = b.random("lazy_if")
    x, w, v = (r.standard_normal(shape).astype(np.float32) for shape in ((8, 24), (24, 24), (24, 24)))
    places = r.integers(0, 8, 5)
    inner = helper.make_node("If", ["d"], ["i"], name="inner",
                             then_branch=branch([helper.make_node("MatMul", ["x", "v"], ["p"]),
                                                 helper.make_node("Exp", ["p"], ["e"])], "e"),
                             else_branch=branch([helper.make_node("Softmax", ["x"], ["q"])], "q"))
    yes = branch([helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["s"])], "s")
    no = branch([helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
                 helper.make_node("Greater", ["sum", "limit"], ["d"]), inner,
                 helper.make_node("MatMul", ["i", "w"], ["o"])], "o")
    outer = helper.make_node("If", ["c"], ["r"], name="outer", then_branch=yes, else_branch=no)
    rows = helper.make_node("If", ["c"], ["y"], name="rows",
                            then_branch=branch([helper.make_node("Abs", ["places"], ["at"]),
                                                helper.make_node("CumSum", ["at", "zero"], ["far"]),
                                                helper.make_node("Mod", ["far", "eight"], ["near"]),
                                                helper.make_node("Gather", ["r", "near"], ["g"])], "g"),
                            else_branch=branch([helper.make_node("Gather", ["r", "places"], ["h"])], "h"))
    for c in (True, False):
        for limit in (-1e9, 1e9):
            name = f"{str(c).lower()}_{'over' if limit < 0 else 'under'}"
            b.graph(f"if_nested_{name}", [outer, helper.make_node("Relu", ["r"], ["y"])],
                    {"c": np.array(c), "x": x, "w": w, "v": v, "limit": np.float32(limit)}, ["y"],
                    constants=("w", "v", "limit"))
        b.graph(f"if_places_{str(c).lower()}", [outer, rows],
                {"c": np.array(c), "x": x, "places": places, "w": w, "v": v, "limit": np.float32(0),
                 "zero": np.array(0), "eight": np.array(8)}, ["y"],
                constants=("w", "v", "limit", "zero", "eight"))


def add_cases(b):
    add_if(b)
    add_lazy_if(b)
