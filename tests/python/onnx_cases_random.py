"""Cases for make_onnx_cases.py: random numbers. Their values are compared with the generator written down in
src/import/onnx/operators/random.cpp, in Python; their distribution is asked for by the model itself, which answers
true, as it does in ONNX Runtime with another generator."""
import numpy as np
from onnx import TensorProto, helper

MASK = (1 << 64) - 1


def key_of(seed):
    x = (int(np.float32(seed).view(np.uint32)) + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return (x ^ (x >> 31)) | 1


def bits(counter, key):
    y = (counter * key) & MASK
    z = (y + key) & MASK
    x = y
    for more in (y, z, y):
        x = (x * x + more) & MASK
        x = (x >> 32) | ((x << 32) & MASK)
    return ((x * x + z) & MASK) >> 32


def uniform(seed, count, f64=False, draws=None, draw=0):
    key = key_of(seed)
    draws = draws or (2 if f64 else 1)
    if f64:
        return np.array([((bits(draws * i + draw, key) >> 5) * 2**26 + (bits(draws * i + draw + 1, key) >> 6)) / 2**53
                         for i in range(count)])
    return np.array([(bits(draws * i + draw, key) >> 8) / 2**24 for i in range(count)], np.float32)


def add_values(b):
    def case(name, op, shape, expected, dtype, **attributes):
        node = helper.make_node(op, [], ["y"], name="draw", shape=list(shape),
                                dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), **attributes)
        b.graph(name, [node], {}, ["y"], 22)
        b.results[name] = [expected.reshape(shape).astype(dtype)]

    for seed in (0.0, 1.0, 42.5):
        case(f"random_uniform_values_{seed}", "RandomUniform", (3, 7), uniform(seed, 21) * np.float32(5) - np.float32(2),
             np.float32, seed=seed, low=-2.0, high=3.0)
        case(f"random_uniform_values_f64_{seed}", "RandomUniform", (33,), uniform(seed, 33, True), np.float64, seed=seed)
        radius = np.sqrt(-2 * np.log(1 - uniform(seed, 20, draws=2).astype(np.float64)))
        normal = radius * np.cos(2 * np.pi * uniform(seed, 20, draws=2, draw=1).astype(np.float64))
        case(f"random_normal_values_{seed}", "RandomNormal", (4, 5), normal * 0.5 + 2, np.float32, seed=seed, mean=2.0,
             scale=0.5)
    x = b.random("like").uniform(0, 1, (5, 6)).astype(np.float32)
    b.op("bernoulli_values", "Bernoulli", [x], 22, seed=3.0)
    b.results["bernoulli_values"] = [(uniform(3.0, 30).reshape(5, 6) < x).astype(np.float32)]
    b.op("bernoulli_certain", "Bernoulli", [np.float32([0, 1, 0, 1])], 15)
    b.results["bernoulli_certain"] = [np.float32([0, 1, 0, 1])]


def add_distributions(b):
    def check(name, draw, facts, tensors=None):
        """Facts: (expression nodes that end in a scalar value, what it should be, how far off it may be)."""
        nodes, results = [draw], []
        for i, (steps, value, slack) in enumerate(facts):
            last = "y"
            for k, (op, attributes) in enumerate(steps):
                operands = [last, last] if op == "Mul" and not attributes else [last]
                nodes.append(helper.make_node(op, operands, [f"v{i}_{k}"], **attributes))
                last = f"v{i}_{k}"
            for word, number in (("want", value), ("slack", slack)):
                nodes.append(helper.make_node("Constant", [], [f"{word}{i}"], value_float=float(number)))
            nodes += [helper.make_node("Sub", [last, f"want{i}"], [f"off{i}"]),
                      helper.make_node("Abs", [f"off{i}"], [f"distance{i}"]),
                      helper.make_node("LessOrEqual", [f"distance{i}", f"slack{i}"], [f"ok{i}"])]
            results.append(f"ok{i}")
        b.graph(name, nodes, tensors or {}, results, 17)

    mean = [("ReduceMean", dict(keepdims=0))]
    square = [("Mul", {}), ("ReduceMean", dict(keepdims=0))]
    fourth = [("Mul", {}), ("Mul", {}), ("ReduceMean", dict(keepdims=0))]
    lowest, highest = [("ReduceMin", dict(keepdims=0))], [("ReduceMax", dict(keepdims=0))]
    shape = [200, 500]
    like = {"x": np.zeros(shape, np.float32)}
    # Six standard deviations of a mean over 100,000 draws.
    for seed in (0.0, 7.0):
        uniform_facts = [(mean, 0.5, 0.006), (square, 1 / 3, 0.006), (fourth, 0.2, 0.006), (lowest, 0, 0.001),
                         (highest, 1, 0.001)]
        check(f"random_uniform_{seed}", helper.make_node("RandomUniform", [], ["y"], shape=shape, seed=seed), uniform_facts)
        check(f"random_uniform_like_{seed}", helper.make_node("RandomUniformLike", ["x"], ["y"], seed=seed), uniform_facts,
              like)
        normal_facts = [(mean, 0, 0.02), (square, 1, 0.03), (fourth, 3, 0.2)]
        check(f"random_normal_{seed}", helper.make_node("RandomNormal", [], ["y"], shape=shape, seed=seed), normal_facts)
        check(f"random_normal_like_{seed}", helper.make_node("RandomNormalLike", ["x"], ["y"], seed=seed), normal_facts,
              like)
        check(f"random_bernoulli_{seed}", helper.make_node("Bernoulli", ["x"], ["y"], seed=seed), [(mean, 0.3, 0.01)],
              {"x": np.full(shape, 0.3, np.float32)})
        # ONNX Runtime's own draws do not have this mean.
        b.results[f"random_bernoulli_{seed}"] = [np.array(True)]
    # Rows and columns do not repeat each other: the mean of each row and of each column is near the mean of all.
    for axis, slack in ((0, 0.13), (1, 0.08)):
        facts = [([("ReduceMean", dict(axes=[axis], keepdims=0))] + end, 0.5, slack) for end in (lowest, highest)]
        check(f"random_uniform_axis_{axis}", helper.make_node("RandomUniform", [], ["y"], shape=shape, seed=5.0), facts)
    # How often each class is drawn.
    weights = np.log(np.array([[1, 2, 3, 4], [4, 1, 1, 2]], np.float32))
    nodes = [helper.make_node("Multinomial", ["x"], ["d"], seed=2.0, sample_size=20000, dtype=TensorProto.INT32),
             helper.make_node("Constant", [], ["classes"], value_ints=[0, 1, 2, 3]),
             helper.make_node("Cast", ["classes"], ["c"], to=TensorProto.INT32),
             helper.make_node("Unsqueeze", ["d", "two"], ["d3"]), helper.make_node("Equal", ["d3", "c"], ["e"]),
             helper.make_node("Cast", ["e"], ["f"], to=TensorProto.FLOAT),
             helper.make_node("ReduceMean", ["f"], ["share"], axes=[1], keepdims=0),
             helper.make_node("Sub", ["share", "want"], ["off"]), helper.make_node("Abs", ["off"], ["distance"]),
             helper.make_node("Less", ["distance", "slack"], ["ok"])]
    b.graph("random_multinomial", nodes,
            {"x": weights, "two": np.int64([2]), "slack": np.float32(0.02),
             "want": np.float32([[0.1, 0.2, 0.3, 0.4], [0.5, 0.125, 0.125, 0.25]])}, ["ok"], 17,
            constants=("two", "slack", "want"))


def add_cases(b):
    add_values(b)
    add_distributions(b)
