"""The models of make_bad_models.py: each with one thing wrong that a user can meet."""

import dataclasses

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


@dataclasses.dataclass
class BadModel:
    name: str
    wrong: str  # in words
    data: bytes  # of model.onnx; a ModelProto is serialized
    mentions: list  # texts that the message must contain
    files: dict = dataclasses.field(default_factory=dict)  # path relative to the model's folder -> bytes
    links: dict = dataclasses.field(default_factory=dict)  # path -> target of a symbolic link

    def __post_init__(self):
        if isinstance(self.data, onnx.ModelProto):
            self.data = self.data.SerializeToString()


def value(name, dims=(2, 3), dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, dims)


def model_of(nodes, inputs=None, outputs=None, initializers=(), opset=17, value_info=()):
    graph = helper.make_graph(
        nodes,
        "bad",
        [value("x")] if inputs is None else inputs,
        [value("y", None)] if outputs is None else outputs,
        list(initializers),
        value_info=list(value_info),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def relu(source="x", target="y", name="the_relu"):
    return helper.make_node("Relu", [source], [target], name=name)


def good():
    return model_of([relu()])


def weights(name, dims, fill=0.5):
    return numpy_helper.from_array(np.full(dims, fill, np.float32), name)


def file_cases():
    whole = model_of(
        [helper.make_node("MatMul", ["x", "kernel"], ["y"], name="mm")], initializers=[weights("kernel", (3, 50))]
    ).SerializeToString()
    yield BadModel("empty_file", "the file has no bytes", b"", [])
    yield BadModel("garbage", "random bytes", np.random.default_rng(1).bytes(4096), [])
    yield BadModel("text_file", "a text file", b"This is not a model.\n" * 40, [])
    yield BadModel("truncated_half", "the second half of the file is missing", whole[: len(whole) // 2], [])
    yield BadModel("truncated_last_byte", "the last byte is missing", whole[:-1], [])
    yield BadModel(
        "length_beyond_end", "a length field larger than the file", b"\x3a\xff\xff\xff\xff\x0f" + whole[:64], []
    )
    nested = b""
    for _ in range(400):  # a graph in an attribute of a node of a graph ..., deeper than any real model
        attribute = b"\x32" + varint(len(nested)) + nested
        node = b"\x2a" + varint(len(attribute)) + attribute
        nested = b"\x0a" + varint(len(node)) + node
    yield BadModel("nested_too_deep", "graphs nested 400 deep", b"\x08\x08\x3a" + varint(len(nested)) + nested, [])
    zeros = b"\x00" * 100
    yield BadModel("zeros", "only zero bytes", zeros, [])
    no_graph = onnx.ModelProto()
    no_graph.ir_version = 8
    no_graph.opset_import.append(helper.make_opsetid("", 17))
    yield BadModel("no_graph", "a model without a graph", no_graph, [])


def varint(number):
    out = bytearray()
    while True:
        byte, number = number & 0x7F, number >> 7
        out.append(byte | (0x80 if number else 0))
        if not number:
            return bytes(out)


def version_cases():
    model = good()
    del model.opset_import[:]
    yield BadModel("no_opset", "no opset_import", model, ["opset"])
    yield BadModel("opset0", "opset 0, older than the oldest", model_of([relu()], opset=0), ["opset 0"])
    yield BadModel("opset_of_the_future", "opset 9999", model_of([relu()], opset=9999), ["9999"])
    yield BadModel("opset_negative", "opset -3", model_of([relu()], opset=-3), ["-3"])
    model = good()
    model.ir_version = 9999
    yield BadModel("ir_version_of_the_future", "IR version 9999", model, ["9999"])


def operator_cases():
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first_unknown"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Twist", ["b"], ["y"], name="second_unknown", domain="com.example"),
    ]
    model = model_of(nodes)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    yield BadModel(
        "unknown_operators",
        "two operators that do not exist: both must be named",
        model,
        ["Frobnicate", "first_unknown", "Twist", "second_unknown"],
    )
    yield BadModel(
        "operator_of_undeclared_domain",
        "a node whose domain has no opset_import",
        model_of([helper.make_node("Relu", ["x"], ["y"], name="stray", domain="com.example")]),
        ["com.example"],
    )
    yield BadModel(
        "operator_without_type",
        "a node whose op_type is empty",
        model_of([helper.make_node("", ["x"], ["y"], name="untyped")]),
        ["untyped"],
    )


def graph_cases():
    yield BadModel(
        "cycle_of_two",
        "two nodes that need each other",
        model_of(
            [helper.make_node("Add", ["x", "b"], ["a"], name="ring_a"), relu("a", "b", "ring_b"), relu("b", "y", "out")]
        ),
        ["ring"],
    )
    yield BadModel(
        "cycle_of_one",
        "a node that needs its own output",
        model_of([helper.make_node("Add", ["x", "y"], ["y"], name="selfish")]),
        ["selfish"],
    )
    yield BadModel(
        "dangling_input",
        "a node reads a value that nothing makes",
        model_of([helper.make_node("Add", ["x", "ghost"], ["y"], name="reader")]),
        ["ghost", "reader"],
    )
    yield BadModel(
        "dangling_output",
        "a graph output that nothing makes",
        model_of([relu("x", "a")], outputs=[value("phantom")]),
        ["phantom"],
    )
    yield BadModel(
        "value_made_twice",
        "two nodes make the same value",
        model_of([relu("x", "result", "one"), relu("x", "result", "two")], outputs=[value("result")]),
        ["result"],
    )
    yield BadModel(
        "input_made_again",
        "a node makes a value that is a graph input",
        model_of([relu("picture", "picture", "again")], [value("picture")], [value("picture")]),
        ["picture"],
    )
    yield BadModel(
        "input_twice",
        "two graph inputs of one name",
        model_of([relu("picture")], [value("picture"), value("picture")]),
        ["picture"],
    )
    yield BadModel(
        "initializer_twice",
        "two initializers of one name",
        model_of(
            [helper.make_node("Add", ["x", "kernel"], ["y"])],
            initializers=[weights("kernel", (3,)), weights("kernel", (3,), 2)],
        ),
        ["kernel"],
    )
    yield BadModel("no_outputs", "a graph without outputs", model_of([relu()], outputs=[]), ["output"])
    model = model_of([relu("picture")], [value("picture")])
    model.graph.input[0].ClearField("type")
    yield BadModel("input_without_type", "a graph input without a type", model, ["picture"])


def operand_cases():
    node = helper.make_node

    def conv(x, w, name, **attributes):
        nodes = [node("Conv", ["x", "kernel"], ["y"], name=name, **attributes)]
        return model_of(nodes, [value("x", x)], initializers=[weights("kernel", w)])

    yield BadModel(
        "matmul_sizes",
        "inner sizes 3 and 4",
        model_of([node("MatMul", ["x", "kernel"], ["y"], name="mm")], initializers=[weights("kernel", (4, 5))]),
        ["mm", "3", "4"],
    )
    yield BadModel(
        "add_shapes",
        "shapes that do not broadcast",
        model_of([node("Add", ["x", "kernel"], ["y"], name="sum")], initializers=[weights("kernel", (4,))]),
        ["sum", "3", "4"],
    )
    yield BadModel("conv_rank", "a convolution of a matrix", conv((2, 3), (4, 3, 3, 3), "flat"), ["flat"])
    yield BadModel(
        "conv_channels", "5 channels, weights for 3", conv((1, 5, 8, 8), (4, 3, 3, 3), "conv"), ["conv", "5", "3"]
    )
    yield BadModel(
        "conv_kernel_shape",
        "kernel_shape 5x5, weights 3x3",
        conv((1, 3, 8, 8), (4, 3, 3, 3), "conv", kernel_shape=[5, 5]),
        ["conv"],
    )
    yield BadModel(
        "conv_group", "3 channels in 2 groups", conv((1, 3, 8, 8), (4, 3, 3, 3), "conv", group=2), ["conv", "group"]
    )
    yield BadModel("conv_group_zero", "group 0", conv((1, 3, 8, 8), (4, 3, 3, 3), "conv", group=0), ["conv", "group"])
    yield BadModel(
        "conv_stride_zero", "stride 0", conv((1, 3, 8, 8), (4, 3, 3, 3), "conv", strides=[0, 1]), ["conv", "0"]
    )
    yield BadModel(
        "conv_stride_negative", "stride -1", conv((1, 3, 8, 8), (4, 3, 3, 3), "conv", strides=[-1, 1]), ["conv"]
    )
    yield BadModel(
        "conv_pads_count",
        "three pads for two axes",
        conv((1, 3, 8, 8), (4, 3, 3, 3), "conv", pads=[1, 1, 1]),
        ["conv", "pads"],
    )
    yield BadModel(
        "conv_kernel_larger_than_input",
        "the output would have a negative size",
        conv((1, 3, 2, 2), (4, 3, 5, 5), "conv"),
        ["conv"],
    )
    yield BadModel(
        "conv_huge_pads", "pads of 2^62", conv((1, 3, 8, 8), (4, 3, 3, 3), "conv", pads=[2**62] * 4), ["conv"]
    )
    yield BadModel(
        "dtypes_differ",
        "float + int64",
        model_of([node("Add", ["x", "k"], ["y"], name="mixed")], [value("x"), value("k", (2, 3), TensorProto.INT64)]),
        ["mixed", "64"],
    )
    yield BadModel(
        "relu_of_strings",
        "an operator on a dtype it does not take",
        model_of([relu(name="textual")], [value("x", (2,), TensorProto.STRING)]),
        ["textual"],
    )
    yield BadModel(
        "too_few_inputs", "a Conv with one input", model_of([node("Conv", ["x"], ["y"], name="lonely")]), ["lonely"]
    )
    yield BadModel(
        "too_many_inputs",
        "a Relu with two inputs",
        model_of([node("Relu", ["x", "x"], ["y"], name="crowded")]),
        ["crowded"],
    )
    yield BadModel(
        "missing_attribute",
        "a Concat without axis",
        model_of([node("Concat", ["x", "x"], ["y"], name="cat")]),
        ["cat", "axis"],
    )
    yield BadModel(
        "unknown_attribute",
        "an attribute that Relu does not have",
        model_of([node("Relu", ["x"], ["y"], name="odd", slope=2.0)]),
        ["odd", "slope"],
    )
    yield BadModel(
        "attribute_of_wrong_type",
        "axis given as a text",
        model_of([node("Concat", ["x", "x"], ["y"], name="cat", axis="one")]),
        ["cat", "axis"],
    )
    yield BadModel(
        "axis_out_of_range",
        "Concat along axis 7 of a matrix",
        model_of([node("Concat", ["x", "x"], ["y"], name="cat", axis=7)]),
        ["cat", "7"],
    )
    yield BadModel(
        "transpose_perm",
        "perm names an axis twice",
        model_of([node("Transpose", ["x"], ["y"], name="turn", perm=[0, 0])]),
        ["turn"],
    )
    yield BadModel(
        "reshape_count",
        "6 elements into 4x2",
        model_of(
            [node("Reshape", ["x", "s"], ["y"], name="fold")],
            initializers=[numpy_helper.from_array(np.array([4, 2]), "s")],
        ),
        ["fold"],
    )
    yield BadModel(
        "reshape_two_unknowns",
        "two dims of -1",
        model_of(
            [node("Reshape", ["x", "s"], ["y"], name="fold")],
            initializers=[numpy_helper.from_array(np.array([-1, -1]), "s")],
        ),
        ["fold"],
    )
    yield BadModel(
        "gather_index",
        "a constant index out of range",
        model_of(
            [node("Gather", ["x", "i"], ["y"], name="pick")], initializers=[numpy_helper.from_array(np.array([5]), "i")]
        ),
        ["pick"],
    )


def size_cases():
    yield BadModel(
        "input_dim_huge",
        "an input of 2^62 elements",
        model_of([relu("picture")], [value("picture", (2**31, 2**31))]),
        ["picture"],
    )
    yield BadModel(
        "size_overflow",
        "sizes whose product overflows 64 bits",
        model_of([relu("picture")], [value("picture", (2**40, 2**40, 2**40))]),
        ["picture"],
    )
    yield BadModel(
        "broadcast_huge",
        "two inputs that broadcast to 2^60 elements",
        model_of(
            [helper.make_node("Add", ["x", "z"], ["y"], name="outer")], [value("x", (2**30, 1)), value("z", (1, 2**30))]
        ),
        ["outer"],
    )
    tensor = weights("kernel", (3,))
    tensor.dims[0] = 2**40
    yield BadModel(
        "initializer_dims_lie",
        "an initializer that says 2^40 elements and has 3",
        model_of([helper.make_node("Add", ["x", "kernel"], ["y"])], initializers=[tensor]),
        ["kernel"],
    )
    tensor = weights("kernel", (3,))
    tensor.dims[0] = -3
    yield BadModel(
        "initializer_negative_dim",
        "an initializer of -3 elements",
        model_of([helper.make_node("Add", ["x", "kernel"], ["y"])], initializers=[tensor]),
        ["kernel"],
    )
    tensor = weights("kernel", (3,))
    tensor.dims[:] = [2**32, 2**32]
    tensor.raw_data = b""
    yield BadModel(
        "initializer_size_overflow",
        "initializer dims whose product wraps to 0",
        model_of([helper.make_node("Add", ["x", "kernel"], ["y"])], initializers=[tensor]),
        ["kernel"],
    )
    tensor = weights("kernel", (3,))
    tensor.raw_data = tensor.raw_data[:-1]
    yield BadModel(
        "initializer_short",
        "11 bytes for 3 floats",
        model_of([helper.make_node("Add", ["x", "kernel"], ["y"])], initializers=[tensor]),
        ["kernel"],
    )
    tensor = weights("kernel", (3,))
    tensor.data_type = 999
    yield BadModel(
        "initializer_unknown_dtype",
        "an initializer of dtype 999",
        model_of([helper.make_node("Add", ["x", "kernel"], ["y"])], initializers=[tensor]),
        ["kernel"],
    )
    shape = numpy_helper.from_array(np.array([2**21, 2**21]), "s")
    yield BadModel(
        "constant_of_shape_huge",
        "a constant of 2^42 elements made from a small file",
        model_of(
            [
                helper.make_node("ConstantOfShape", ["s"], ["c"], name="bomb"),
                helper.make_node("Add", ["x", "c"], ["y"], name="user"),
            ],
            [value("x", (1, 1))],
            initializers=[shape],
        ),
        ["bomb"],
    )
    yield BadModel(
        "input_dim_negative",
        "an input dimension of -5",
        model_of([relu("picture")], [value("picture", (-5, 3))]),
        ["picture"],
    )


def external_cases():
    def external(location, offset=None, length=None, dims=(3,)):
        tensor = TensorProto(name="kernel", data_type=FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
        entries = {"location": location, "offset": offset, "length": length}
        for key, text in entries.items():
            if text is not None:
                tensor.external_data.add(key=key, value=str(text))
        return model_of([helper.make_node("Add", ["x", "kernel"], ["y"], name="sum")], initializers=[tensor])

    twelve = {"weights.bin": np.ones(3, np.float32).tobytes()}
    yield BadModel("external_missing", "the data file is not there", external("nowhere.bin"), ["nowhere.bin", "kernel"])
    yield BadModel("external_absolute", "an absolute path", external("/etc/hostname"), ["/etc/hostname"])
    yield BadModel(
        "external_parent", "a path that leaves the model's folder", external("../weights.bin"), ["../weights.bin"]
    )
    yield BadModel(
        "external_parent_hidden",
        "a path that leaves the folder in its middle",
        external("inside/../../weights.bin"),
        ["weights.bin"],
        {"inside/keep": b""},
    )
    yield BadModel(
        "external_symlink",
        "a symbolic link out of the folder",
        external("link.bin"),
        ["link.bin"],
        links={"link.bin": "/etc/hostname"},
    )
    yield BadModel(
        "external_symlink_folder",
        "a file below a symbolic link out of the folder",
        external("etc/hostname"),
        ["etc/hostname"],
        links={"etc": "/etc"},
    )
    yield BadModel("external_folder", "the location is a folder", external("sub"), ["sub"], {"sub/keep": b""})
    yield BadModel(
        "external_short",
        "the data file ends too early",
        external("weights.bin", 0, 400, (100,)),
        ["weights.bin"],
        twelve,
    )
    yield BadModel(
        "external_offset_beyond",
        "an offset after the file's end",
        external("weights.bin", 4096, 12),
        ["weights.bin"],
        twelve,
    )
    yield BadModel("external_offset_negative", "offset -4", external("weights.bin", -4, 12), ["-4"], twelve)
    yield BadModel(
        "external_offset_overflow",
        "offset + length overflows",
        external("weights.bin", 2**63 - 1, 12),
        ["weights.bin"],
        twelve,
    )
    yield BadModel(
        "external_length_wrong",
        "a length that does not fit the dims",
        external("weights.bin", 0, 8),
        ["kernel"],
        twelve,
    )
    yield BadModel(
        "external_offset_no_number", "an offset that is no number", external("weights.bin", "ten", 12), ["ten"], twelve
    )
    yield BadModel("external_no_location", "no location", external(None, 0, 12), ["kernel"], twelve)
    yield BadModel(
        "external_pipe_device", "a device instead of a file", external("zero"), ["zero"], links={"zero": "/dev/zero"}
    )


def cases():
    for group in (file_cases, version_cases, operator_cases, graph_cases, operand_cases, size_cases, external_cases):
        yield from group()
