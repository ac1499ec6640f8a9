#!/usr/bin/env python3
"""The models of the suite that are large for the interpreter, made smaller: interpreter and -O3 beside ONNX Runtime.

    reduced_models.py TESSERA [--full]

A network of convolutions gets a smaller image; a transformer, whose graph has its length in constants, keeps its size
and ends after its first layers. Four in turn with the date; all with --full or TESSERA_TEST_FULL=1, which also lets
suite_models.py interpret every model whole. Agreement is that of model_runs.py.
"""
import os
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

import model_runs as runs

SHARE = 4


def with_image(name, size):
    """The model for images of size x size, and inputs."""
    model, feeds = runs.suite_model(name)
    del model.graph.value_info[:]
    for value in list(model.graph.input):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 4:
            dims[2].dim_value = dims[3].dim_value = size
            x = feeds[value.name]
            feeds[value.name] = np.ascontiguousarray(x[:, :, :size, :size])
    return model, feeds


def vgg(size):
    """VGG flattens its last image: the first matrix behind it loses the columns that no longer have an element."""
    model, feeds = with_image("vgg16", size)
    for tensor in model.graph.initializer:
        if tensor.name == "classifier.0.weight":
            w = numpy_helper.to_array(tensor)[:, :512 * (size // 32) ** 2]
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(w), tensor.name))
    return model, feeds


def up_to(name, layer_norms):
    """The model as far as the output of that LayerNormalization (counted from 1)."""
    model, feeds = runs.suite_model(name)
    norms = [node.output[0] for node in model.graph.node if node.op_type == "LayerNormalization"]
    needed, nodes = {norms[layer_norms - 1]}, []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            nodes.insert(0, node)
            needed |= set(node.input)
    weights = [t for t in model.graph.initializer if t.name in needed]
    inputs = [v for v in model.graph.input if v.name in needed]
    graph = onnx.helper.make_graph(nodes, name, inputs, [], weights)
    reduced = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    reduced.graph.output.append(onnx.helper.make_empty_tensor_value_info(norms[layer_norms - 1]))
    return reduced, {v.name: feeds[v.name] for v in inputs}


# name: what it is reduced to, in words and as a function
REDUCED = {
    "resnet18": ("images of 64", lambda: with_image("resnet18", 64)),
    "resnet50": ("images of 64", lambda: with_image("resnet50", 64)),
    "densenet121": ("images of 64", lambda: with_image("densenet121", 64)),
    "inception_v3": ("images of 96", lambda: with_image("inception_v3", 96)),
    "convnext_tiny": ("images of 64", lambda: with_image("convnext_tiny", 64)),
    "vgg16": ("images of 64", lambda: vgg(64)),
    "vit_b_16": ("the first layer", lambda: up_to("vit_b_16", 3)),
    "bert_base": ("the first layer", lambda: up_to("bert_base", 3)),
    "gpt2_small": ("the first two layers", lambda: up_to("gpt2_small", 5)),
    "swin_t": ("the first two layers", lambda: up_to("swin_t", 6)),
}


def main():
    binary = os.path.abspath(sys.argv[1])
    count = runs.Count()
    names = list(REDUCED)
    if not runs.is_full():
        names = [names[(runs.today() * SHARE + i) % len(names)] for i in range(SHARE)]
    configurations = [c for c in runs.CONFIGURATIONS if c[0] in ("interpreter", "O3 1 thread")]
    for name in names:
        how, make = REDUCED[name]
        with tempfile.TemporaryDirectory() as work:
            model, feeds = make()
            path = f"{work}/{name}.onnx"
            onnx.save(model, path)
            want = runs.onnx_runtime(path, feeds)
            for configuration in configurations:
                runs.check_configuration(binary, f"{name}, {how}", path, [], configuration, [(feeds, want)], work, count)
    return count.exit_code()


if __name__ == "__main__":
    sys.exit(main())
