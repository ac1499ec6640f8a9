"""Single-operator ONNX models and their inputs, from the lists in bench/lists.

A case is one node: "op", "opset", "attributes", "inputs", the number of "outputs"; or several: "nodes", each
[op, inputs, outputs, attributes] over the names x0, x1, ... of the inputs, with the results in "outputs".
"tolerance" (default 1e-4) bounds the largest difference, "tolerance_reason" says why another one is needed.
An input is DTYPE[DIMS]=DATA, "" when left out. DATA, all of it from one seed:
  (nothing)        standard normal                      V,V,...          these values (one: everywhere), in the model
  weight           normal / sqrt(last extent), in the model              hann             a window, in the model
  uniform:LO,HI    integers:LO,HI    different:N (numbers below N, none twice)
  boxes:W,H        corners x1,y1,x2,y2 in a picture     corners, centres boxes in clusters    scores  mostly small
"""
import re

import numpy as np
import onnx
from onnx import helper, numpy_helper

DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64, "i32": np.int32, "bool": np.bool_}


def clustered_boxes(random, shape, centres):
    """Boxes of objects in a picture, several proposals for each: [..., 4]."""
    count = int(np.prod(shape[:-1]))
    objects = random.uniform(0.1, 0.9, (max(1, count // 20), 2))
    middle = objects[random.integers(0, len(objects), count)] + random.normal(0, 0.01, (count, 2))
    size = random.uniform(0.05, 0.2, (count, 2))
    boxes = np.concatenate([middle, size] if centres else [middle - size / 2, middle + size / 2], axis=1)
    return boxes.reshape(shape)


def make_data(random, dtype, shape, text):
    kind, _, rest = text.partition(":")
    numbers = [float(number) for number in rest.split(",")] if rest else []
    if kind == "":
        data = random.standard_normal(shape)
    elif kind == "weight":
        data = random.standard_normal(shape) / np.sqrt(shape[-1])
    elif kind == "hann":
        data = np.hanning(shape[0] + 1)[:-1]
    elif kind == "uniform":
        data = random.uniform(*numbers, shape)
    elif kind == "integers":
        data = random.integers(int(numbers[0]), int(numbers[1]), shape)
    elif kind == "different":
        data = random.permutation(int(numbers[0]))[: int(np.prod(shape))].reshape(shape)
    elif kind == "boxes":
        low = random.uniform(0, 0.6, (shape[0], 2)) * numbers
        high = low + random.uniform(0.05, 0.4, (shape[0], 2)) * numbers
        data = np.concatenate([low, high], axis=1)
    elif kind in ("corners", "centres"):
        data = clustered_boxes(random, shape, kind == "centres")
    elif kind == "scores":
        data = random.uniform(0, 1, shape) ** 6
    else:
        data = np.broadcast_to(np.array([float(value) for value in text.split(",")]).reshape(-1), shape) \
            if shape else np.array(float(text))
    return np.asarray(data).astype(DTYPES[dtype]).reshape(shape)


def in_model(text):
    return text in ("weight", "hann") or re.match(r"-?[0-9]", text) is not None


class Case:
    """One model with its inputs. `write` may be told the shapes of the results, for operators whose own decide them."""

    def __init__(self, entry):
        self.name = entry["name"]
        self.op = entry.get("op") or entry["nodes"][-1][0]
        random = np.random.default_rng(sum(map(ord, self.name)))
        self.inputs, self.values, self.weights, names = {}, [], [], []
        for i, text in enumerate(entry["inputs"]):
            names.append(f"x{i}" if text else "")
            if not text:
                continue
            dtype, dims, content = re.fullmatch(r"(\w+)\[([\d,]*)\]=?(.*)", text).groups()
            shape = tuple(int(dim) for dim in dims.split(",") if dim)
            data = make_data(random, dtype, shape, content)
            # A large constant is an input all the same: it stands for what another operator computed.
            if in_model(content) and (content in ("weight", "hann") or data.size <= 16):
                self.weights.append(numpy_helper.from_array(data, f"x{i}"))
            else:
                self.inputs[f"x{i}"] = data
                element = helper.np_dtype_to_tensor_dtype(data.dtype)
                self.values.append(helper.make_tensor_value_info(f"x{i}", element, shape))
        if "nodes" in entry:
            self.nodes = [helper.make_node(op, inputs, outputs, **attributes)
                          for op, inputs, outputs, attributes in entry["nodes"]]
            self.outputs = entry["outputs"]
        else:
            self.outputs = [f"y{i}" for i in range(entry["outputs"])]
            self.nodes = [helper.make_node(entry["op"], names, self.outputs, **entry["attributes"])]
        self.opset = entry["opset"]
        self.flops = entry.get("flops")
        self.tolerance = entry.get("tolerance", 1e-4)

    def write(self, path, results=None):
        infos = []
        for i, name in enumerate(self.outputs):
            if results is None:
                infos.append(onnx.ValueInfoProto(name=name))
            else:
                element = helper.np_dtype_to_tensor_dtype(results[i].dtype)
                infos.append(helper.make_tensor_value_info(name, element, results[i].shape))
        graph = helper.make_graph(self.nodes, "case", self.values, infos, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        onnx.save(model, path)
