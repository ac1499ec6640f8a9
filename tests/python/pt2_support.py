"""PyTorch programs as .pt2 archives, written without PyTorch: the parts of the format that the reader reads."""

import io
import json
import struct
import zipfile

import numpy as np

DTYPES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8, "bool": 12}


def size(value):
    if isinstance(value, str):
        return {"as_expr": {"expr_str": f"Symbol('{value}', positive=True, integer=True)", "hint": None}}
    return {"as_int": value}


def meta(dtype, shape, strides=None):
    dense = [int(np.prod(shape[d + 1:])) if not any(isinstance(s, str) for s in shape) else 1 for d in range(len(shape))]
    return {"dtype": DTYPES[dtype], "sizes": [size(s) for s in shape], "requires_grad": False,
            "device": {"type": "cpu", "index": None}, "strides": [{"as_int": s} for s in (strides or dense)],
            "storage_offset": {"as_int": 0}, "layout": 7}


class Program:
    """One whose document and entries a test may change before `bytes`."""

    def __init__(self):
        self.inputs, self.outputs, self.nodes, self.types, self.sizes = [], [], [], {}, {}
        self.ranges, self.config, self.files = {}, {}, {}
        self.schema = {"major": 8, "minor": 20}

    def input(self, name, dtype, shape):
        self.types[name] = meta(dtype, shape)
        self.inputs.append({"user_input": {"arg": {"as_tensor": {"name": name}}}})
        return name

    def weight(self, name, array):
        self.types[name] = meta(array.dtype.name, list(array.shape))
        self.inputs.append({"parameter": {"arg": {"name": name}, "parameter_name": f"the.{name}"}})
        path = f"weight_{len(self.config)}"
        self.config[f"the.{name}"] = {"path_name": path, "is_param": True, "use_pickle": False,
                                      "tensor_meta": meta(array.dtype.name, list(array.shape))}
        self.files[f"data/weights/{path}"] = np.ascontiguousarray(array).tobytes()
        return name

    def node(program, target, name, dtype, shape, /, **arguments):  # an operand may be called self
        program.types[name] = meta(dtype, shape)
        inputs = [{"name": key, "arg": value, "kind": 1} for key, value in arguments.items()]
        program.nodes.append({"target": f"torch.ops.aten.{target}", "inputs": inputs, "outputs": [{"as_tensor": {"name": name}}],
                           "metadata": {}, "name": name})
        return name

    def output(self, name):
        self.outputs.append({"user_output": {"arg": {"as_tensor": {"name": name}}}})

    def document(self):
        return {
            "graph_module": {
                "graph": {"inputs": [], "outputs": [], "nodes": self.nodes, "tensor_values": self.types,
                          "sym_int_values": self.sizes, "sym_bool_values": {}},
                "signature": {"input_specs": self.inputs, "output_specs": self.outputs}, "module_call_graph": [],
            },
            "opset_version": {"aten": 10}, "range_constraints": self.ranges, "schema_version": self.schema,
            "torch_version": "2.15.0",
        }

    def entries(self):
        return {"archive_format": b"pt2", "models/model.json": json.dumps(self.document()).encode(),
                "data/weights/model_weights_config.json": json.dumps({"config": self.config}).encode(),
                "data/constants/model_constants_config.json": b'{"config": {}}', **self.files}

    def bytes(self):
        return archive(self.entries())


def archive(entries, folder="model", compression=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        for name, contents in entries.items():
            info = zipfile.ZipInfo(f"{folder}/{name}" if folder else name)
            info.compress_type = compression
            header = stream.tell() + 30 + len(info.filename)
            info.extra = struct.pack("<HH", 0x4254, (-header - 4) % 64) + bytes((-header - 4) % 64)
            file.writestr(info, contents)
    return stream.getvalue()


def tensor(name):
    return {"as_tensor": {"name": name}}


def dense_layer(batch=2):
    """y = relu(x @ w + b): x of `batch` rows, a number or a symbol's name."""
    program = Program()
    random = np.random.default_rng(0)
    program.input("x", "float32", [batch, 3])
    program.weight("w", random.standard_normal((3, 4)).astype(np.float32))
    program.weight("b", random.standard_normal(4).astype(np.float32))
    program.node("addmm.default", "addmm", "float32", [batch, 4], self=tensor("b"), mat1=tensor("x"), mat2=tensor("w"))
    program.node("relu.default", "relu", "float32", [batch, 4], self=tensor("addmm"))
    program.output("relu")
    if isinstance(batch, str):
        program.ranges[batch] = {"min_val": 1, "max_val": 16}
    return program
