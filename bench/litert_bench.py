#!/usr/bin/env python3
"""One single-operator ONNX model in LiteRT (XNNPACK), for bench/operators.py; runs with the Python of TESSERA_PYTHON.

    litert_bench.py MODEL.onnx INPUTS.npz RESULT.npy THREADS

Writes the model as a LiteRT model, images as LiteRT keeps them (channels last: nothing is transposed in it, so its
times leave out what changing the layout takes), runs it and stores the result as the ONNX model has it. Then prints
LiteRT's version, and for each line SECONDS of its input the median time of one run in microseconds, measured for that
long. Exit code 3: not a convolution, product with weights, softmax or attention without a mask; the reason is printed."""
import statistics
import sys
import time

import flatbuffers
import numpy as np
import onnx
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from onnx import numpy_helper

NHWC = (0, 2, 3, 1)


class NotSupported(Exception):
    pass


class ModelWriter:
    """Tensors, operators and buffers of one subgraph, all of f32."""

    def __init__(self):
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs = [], [], []
        self.model = schema.ModelT()
        self.model.version, self.model.subgraphs, self.model.operatorCodes = 3, [self.graph], []
        self.model.buffers = [schema.BufferT()]

    def tensor(self, shape, data=None, dtype=schema.TensorType.FLOAT32):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = f"t{len(self.graph.tensors)}", list(shape), dtype, 0
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            self.model.buffers.append(buffer)
            tensor.buffer = len(self.model.buffers) - 1
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def constant(self, data):
        return self.tensor(data.shape, data.astype(np.float32))

    def input(self, shape):
        self.graph.inputs.append(self.tensor(shape))
        return self.graph.inputs[-1]

    def op(self, name, inputs, shape, **attributes):
        """`name`: of the operator and its options, as Conv2D."""
        code = schema.OperatorCodeT()
        upper = {"Conv2D": "CONV_2D", "DepthwiseConv2D": "DEPTHWISE_CONV_2D", "FullyConnected": "FULLY_CONNECTED",
                 "BatchMatMul": "BATCH_MATMUL", "Softmax": "SOFTMAX", "Mul": "MUL"}[name]
        code.builtinCode = getattr(schema.BuiltinOperator, upper)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
        self.model.operatorCodes.append(code)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        options = name + "Options"
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
        operator.builtinOptions = getattr(schema, options + "T")()
        for key, value in attributes.items():
            setattr(operator.builtinOptions, key, value)
        result = self.tensor(shape)
        operator.inputs, operator.outputs = list(inputs), [result]
        self.graph.operators.append(operator)
        return result

    def bytes(self, output):
        self.graph.outputs = [output]
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def convolution(writer, attributes, x, weights, bias):
    """x: NCHW; the result is NHWC."""
    group, (out, _, height, width) = attributes.get("group", 1), weights.shape
    strides, depthwise = attributes.get("strides"), group == x[1] == weights.shape[0]
    if attributes.get("auto_pad") != b"SAME_UPPER" or not strides or "dilations" in attributes or not (group == 1 or depthwise):
        raise NotSupported("padded other than SAME, dilated or in groups")
    filters = weights.transpose(1, 2, 3, 0) if depthwise else weights.transpose(0, 2, 3, 1)
    shape = [x[0], -(-x[2] // strides[0]), -(-x[3] // strides[1]), out]
    options = {"padding": schema.Padding.SAME, "strideH": strides[0], "strideW": strides[1]}
    options |= {"dilationHFactor": 1, "dilationWFactor": 1} | ({"depthMultiplier": 1} if depthwise else {})
    operands = [writer.input([x[axis] for axis in NHWC]), writer.constant(filters), writer.constant(bias)]
    return writer.op("DepthwiseConv2D" if depthwise else "Conv2D", operands, shape, **options)


def attention(writer, shapes):
    """Of queries, keys and values [N, heads, length, size]."""
    q, k, v = (writer.input(shape) for shape in shapes)
    (batch, heads, length, size), keys = shapes[0], shapes[1][2]
    scores = writer.op("BatchMatMul", [q, k], [batch, heads, length, keys], adjX=False, adjY=True)
    scale = writer.constant(np.array(size ** -0.5))
    scaled = writer.op("Mul", [scores, scale], [batch, heads, length, keys])
    weights = writer.op("Softmax", [scaled], [batch, heads, length, keys], beta=1.0)
    return writer.op("BatchMatMul", [weights, v], [*shapes[0][:3], shapes[2][3]], adjX=False, adjY=False)


def convert(model):
    """The LiteRT model, and whether its images have their channels last."""
    if len(model.graph.node) != 1:
        raise NotSupported("more than one node")
    node = model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    weights = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    inputs = [value.type.tensor_type for value in model.graph.input]
    shapes = [[dim.dim_value for dim in value.shape.dim] for value in inputs]
    if any(value.elem_type != onnx.TensorProto.FLOAT for value in inputs):
        raise NotSupported("inputs that are not f32")
    writer = ModelWriter()
    if node.op_type == "Conv" and len(weights) == 2 and len(shapes[0]) == 4:
        return writer.bytes(convolution(writer, attributes, shapes[0], *weights)), True
    if node.op_type == "MatMul" and len(weights) == len(shapes) == 1 and len(shapes[0]) == weights[0].ndim == 2:
        operands = [writer.input(shapes[0]), writer.constant(weights[0].T), -1]
        return writer.bytes(writer.op("FullyConnected", operands, [shapes[0][0], weights[0].shape[1]])), False
    if node.op_type == "Softmax" and not weights:
        return writer.bytes(writer.op("Softmax", [writer.input(shapes[0])], shapes[0], beta=1.0)), False
    if node.op_type == "Attention" and not attributes and [len(shape) for shape in shapes] == [4, 4, 4]:
        return writer.bytes(attention(writer, shapes)), False
    raise NotSupported(node.op_type)


def main():
    model, inputs, result, threads = sys.argv[1:]
    try:
        content, images = convert(onnx.load(model))
    except NotSupported as reason:
        print(reason)
        return 3
    interpreter = Interpreter(model_content=content, num_threads=int(threads))
    interpreter.allocate_tensors()
    data = np.load(inputs)
    for place, name in zip(interpreter.get_input_details(), data.files, strict=True):
        value = data[name]
        interpreter.set_tensor(place["index"], np.ascontiguousarray(value.transpose(NHWC) if images else value))
    interpreter.invoke()
    got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.save(result, got.transpose(0, 3, 1, 2) if images else got)
    from importlib.metadata import version
    print(version("ai-edge-litert"), flush=True)
    for line in sys.stdin:
        times, end = [], time.perf_counter() + float(line)
        while time.perf_counter() < end or len(times) < 3:
            begin = time.perf_counter()
            interpreter.invoke()
            times.append(time.perf_counter() - begin)
        print(statistics.median(times) * 1e6, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
