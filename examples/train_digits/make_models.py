#!/usr/bin/env python3
"""Two classifiers of 8x8 pictures with random weights, for `tessera train`: a perceptron of three layers and a LeNet.

    make_models.py FOLDER          mlp.graph and lenet.graph, built without a file; lenet.onnx where `onnx` is installed
"""
import pathlib
import sys

import numpy as np

from tessera import graph


def weights(random, *shape):
    """He's initial values: the same spread of activations in every layer."""
    return (random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)


def lenet_weights(seed=0, widths=(16, 32, 64)):
    random = np.random.default_rng(seed)
    a, b, c = widths
    return {
        "conv1.weight": weights(random, a, 1, 3, 3), "conv1.bias": np.zeros(a, np.float32),
        "conv2.weight": weights(random, b, a, 3, 3), "conv2.bias": np.zeros(b, np.float32),
        "fc1.weight": weights(random, c, 4 * b), "fc1.bias": np.zeros(c, np.float32),
        "fc2.weight": weights(random, 10, c), "fc2.bias": np.zeros(10, np.float32),
    }


def linear(g, x, name, weight, bias):
    product = graph.matmul(x, g.constant(weight, name=name + ".weight"), transpose_a=False, transpose_b=True)
    return graph.add(product, g.constant(bias, name=name + ".bias"))


def mlp(seed=0):
    random = np.random.default_rng(seed)
    g = graph.Graph("mlp")
    x = g.input("x", np.float32, (g.symbol("n", 1, 64), 64))
    for i, (inputs, outputs) in enumerate([(64, 128), (128, 64), (64, 10)], 1):
        x = linear(g, x, f"fc{i}", weights(random, outputs, inputs), np.zeros(outputs, np.float32))
        if i < 3:
            x = graph.relu(x)
    g.output("scores", x)
    return g


def lenet(seed=0, widths=(16, 32, 64)):
    w = lenet_weights(seed, widths)
    g = graph.Graph("lenet")
    n = g.symbol("n", 1, 64)
    x = g.input("x", np.float32, (n, 1, 8, 8))
    for name in ("conv1", "conv2"):
        x = graph.conv(x, g.constant(w[name + ".weight"], name=name + ".weight"), strides=[1, 1], pads_begin=[1, 1],
                       pads_end=[1, 1], dilations=[1, 1], input_dilations=[1, 1], groups=1)
        x = graph.add(x, g.constant(w[name + ".bias"].reshape(-1, 1, 1), name=name + ".bias"))
        x = graph.max_pool(graph.relu(x), window=[2, 2], strides=[2, 2], pads_begin=[0, 0], pads_end=[0, 0],
                           dilations=[1, 1], name=name + ".pool")
    x = graph.reshape(x, shape=[n, 4 * widths[1]])
    x = graph.relu(linear(g, x, "fc1", w["fc1.weight"], w["fc1.bias"]))
    g.output("scores", linear(g, x, "fc2", w["fc2.weight"], w["fc2.bias"]))
    return g


def lenet_onnx(path, seed=0, widths=(16, 32, 64)):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = []
    value = "x"
    for name in ("conv1", "conv2"):
        nodes += [helper.make_node("Conv", [value, name + ".weight", name + ".bias"], [name], name, pads=[1, 1, 1, 1]),
                  helper.make_node("Relu", [name], [name + ".relu"], name + ".relu"),
                  helper.make_node("MaxPool", [name + ".relu"], [name + ".pool"], name + ".pool", kernel_shape=[2, 2],
                                   strides=[2, 2])]
        value = name + ".pool"
    nodes += [helper.make_node("Flatten", [value], ["flat"], "flatten"),
              helper.make_node("Gemm", ["flat", "fc1.weight", "fc1.bias"], ["fc1"], "fc1", transB=1),
              helper.make_node("Relu", ["fc1"], ["fc1.relu"], "fc1.relu"),
              helper.make_node("Gemm", ["fc1.relu", "fc2.weight", "fc2.bias"], ["scores"], "fc2", transB=1)]
    border = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
              for name, shape in (("x", ["n", 1, 8, 8]), ("scores", ["n", 10]))]
    initializers = [numpy_helper.from_array(array, name) for name, array in lenet_weights(seed, widths).items()]
    model = helper.make_model(helper.make_graph(nodes, "lenet", border[:1], border[1:], initializers),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    mlp().save(folder / "mlp.graph")
    lenet().save(folder / "lenet.graph")
    try:
        lenet_onnx(folder / "lenet.onnx")
    except ImportError:
        print("lenet.onnx is not written: onnx is not installed", file=sys.stderr)


if __name__ == "__main__":
    main()
