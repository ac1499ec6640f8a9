#!/usr/bin/env python3
"""Writes the model that docs/tour.md follows: a 1x1 convolution with a bias, a ReLU and a 2x2 max pooling."""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def main(path):
    weights = (np.arange(8 * 4, dtype=np.float32).reshape(8, 4, 1, 1) % 7 - 3) / 8
    bias = np.arange(8, dtype=np.float32) / 4 - 1
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "weights", "bias"], ["conv"], "Conv_0", kernel_shape=[1, 1]),
            helper.make_node("Relu", ["conv"], ["relu"], "Relu_1"),
            helper.make_node("MaxPool", ["relu"], ["y"], "Pool_2", kernel_shape=[2, 2], strides=[2, 2]),
        ],
        "tour",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8, 3, 3])],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(bias, "bias")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tour.onnx")
