#!/usr/bin/env python3
"""Prints what an ONNX model is made of: opsets, inputs, outputs, and per operator its count, attributes and shapes.

    list_ops.py MODEL.onnx... [--nodes] [--shape INPUT=1x3x640x640]
"""
import argparse
import collections
import sys

import onnx
from onnx import TensorProto, helper, shape_inference


def dims_of(value_type):
    if not value_type.tensor_type.HasField("shape"):
        return "?"
    return "x".join(d.dim_param or str(d.dim_value) if d.WhichOneof("value") else "?"
                    for d in value_type.tensor_type.shape.dim) or "scalar"


def type_of(value):
    dtype = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    return f"{dtype}[{dims_of(value.type)}]"


def attribute_text(attribute):
    value = helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.TENSOR:
        return f"{attribute.name}=tensor{list(value.dims)}:{TensorProto.DataType.Name(value.data_type).lower()}"
    if attribute.type == onnx.AttributeProto.GRAPH:
        return f"{attribute.name}=<graph of {len(value.node)} nodes>"
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return f"{attribute.name}={list(value) if hasattr(value, '__len__') and not isinstance(value, str) else value}"


def set_shape(model, text):
    name, dims = text.split("=")
    for value in model.graph.input:
        if value.name == name:
            for dim, size in zip(value.type.tensor_type.shape.dim, dims.split("x")):
                dim.dim_value = int(size)
            return
    sys.exit(f"no input named {name}; the model has {[v.name for v in model.graph.input]}")


def describe(path, shapes, nodes):
    model = onnx.load(path)
    for text in shapes:
        set_shape(model, text)
    try:
        model = shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # the listing is still useful without shapes
        print(f"(shape inference failed: {error})")
    graph = model.graph
    types = {v.name: type_of(v) for v in [*graph.input, *graph.output, *graph.value_info]}
    initializers = {t.name: t for t in graph.initializer}
    for t in graph.initializer:
        dtype, dims = TensorProto.DataType.Name(t.data_type).lower(), "x".join(map(str, t.dims)) or "scalar"
        types[t.name] = f"const {dtype}[{dims}]"
    opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import)
    print(f"== {path}\nir {model.ir_version}, opset {opsets}, producer '{model.producer_name}', "
          f"{len(graph.node)} nodes, {len(initializers)} initializers")
    for value in graph.input:
        note = "  (has an initializer)" if value.name in initializers else ""
        if not note:
            print(f"  input  {value.name}: {type_of(value)}")
    for value in graph.output:
        print(f"  output {value.name}: {type_of(value)}")
    forms = collections.defaultdict(list)
    for node in graph.node:
        attributes = " ".join(sorted(attribute_text(a) for a in node.attribute))
        forms[node.op_type].append((attributes, node))
    for op, uses in sorted(forms.items()):
        print(f"  {op} x{len(uses)}")
        seen = collections.Counter(attributes for attributes, _ in uses)
        for attributes, count in seen.most_common(None if nodes else 12):
            example = next(n for a, n in uses if a == attributes)
            operands = ", ".join(types.get(i, "?") if i else "-" for i in example.input)
            results = ", ".join(types.get(o, "?") for o in example.output)
            print(f"    x{count}  {attributes or '(no attributes)'}\n        e.g. {operands} -> {results}")
        if not nodes and len(seen) > 12:
            print(f"    ... and {len(seen) - 12} more forms")
    if nodes:
        for node in graph.node:
            operands = ", ".join(f"{i}: {types.get(i, '?')}" if i else "-" for i in node.input)
            results = ", ".join(f"{o}: {types.get(o, '?')}" for o in node.output)
            print(f"    {node.op_type} '{node.name}' ({operands}) -> ({results})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--nodes", action="store_true", help="also every node with its operands")
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=DIMS")
    args = parser.parse_args()
    for path in args.models:
        describe(path, args.shape, args.nodes)


if __name__ == "__main__":
    main()
