#!/usr/bin/env python3
"""Builds small random models of one or a few operators, with a reference's outputs (or, for forms that none has, outputs
that numpy computes), as ONNX test-case folders.

    make_onnx_cases.py --out DIR [--match REGEX] [--list]

They complete the official node tests where those are thin: odd, tiny, large and zero-size shapes, all pads, strides,
dilations and groups, broadcasting in both directions, weights as constants or as inputs, and the opsets in which an
operator changed. The reference is ONNX Runtime; for operators that it does not have, the evaluator of the package onnx.
Everything is seeded by the case's name, so a case does not depend on the others. A second call
with the same arguments does nothing. The cases themselves are in onnx_cases_*.py."""
import argparse
import pathlib
import re
import sys
import warnings
import zlib

import numpy as np
import onnx
import onnx.reference
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import case_folder
import onnx_cases_choosing
import onnx_cases_composed
import onnx_cases_contraction
import onnx_cases_contrib
import onnx_cases_control
import onnx_cases_elementwise
import onnx_cases_fourier
import onnx_cases_legacy
import onnx_cases_ml
import onnx_cases_movement
import onnx_cases_parameters
import onnx_cases_patches
import onnx_cases_random
import onnx_cases_recurrent
import onnx_cases_steps

MODULES = (onnx_cases_choosing, onnx_cases_composed, onnx_cases_contraction, onnx_cases_contrib, onnx_cases_control,
           onnx_cases_elementwise, onnx_cases_fourier, onnx_cases_legacy, onnx_cases_ml, onnx_cases_movement,
           onnx_cases_parameters, onnx_cases_patches, onnx_cases_random, onnx_cases_recurrent, onnx_cases_steps)


def domain_version(domain, nodes):
    """Of ai.onnx.ml the last one before tree ensembles took their newer form, unless that is used; of others 1."""
    if domain != "ai.onnx.ml":
        return 1
    return 5 if any(node.op_type == "TreeEnsemble" for node in nodes) else 3


class Builder:
    """Collects cases. What the functions of onnx_cases_*.py are given."""

    def __init__(self):
        self.cases = []  # (name, model, inputs, outputs or None: ask the reference)
        self.results = {}  # name -> outputs, of cases that need no reference
        self.by_onnx = set()  # names of cases whose reference is the evaluator of the package onnx

    def random(self, name):
        return np.random.default_rng(zlib.crc32(name.encode()))

    def op(self, name, op_type, inputs, opset=17, outputs=1, constants=(), **attributes):
        """One node. `inputs`: arrays, shapes (a tuple stands for random float32 values), None for an optional one that
        is absent. `constants`: indices of the inputs that become initializers instead of graph inputs."""
        random = self.random(name)
        arrays = [random.standard_normal(value).astype(np.float32) if isinstance(value, tuple) else value
                  for value in inputs]
        names = ["" if value is None else f"x{i}" for i, value in enumerate(arrays)]
        results = [f"y{i}" for i in range(outputs)]
        node = helper.make_node(op_type, names, results, name=f"{op_type}_under_test", **attributes)
        self.graph(name, [node], {n: a for n, a in zip(names, arrays) if n}, results, opset,
                   [names[i] for i in constants])

    def known(self, name, op_type, inputs, expected, opset, constants=(), **attributes):
        """One node whose results are given, for operators that ONNX Runtime does not have in this opset."""
        self.op(name, op_type, inputs, opset, len(expected), constants, **attributes)
        _, model, given, _ = self.cases.pop()
        model.ir_version = 3
        inputs = [array for array in inputs if array is not None]
        for i in constants:  # an initializer is an input too before IR version 4
            model.graph.input.insert(i, helper.make_tensor_value_info(
                f"x{i}", helper.np_dtype_to_tensor_dtype(inputs[i].dtype), inputs[i].shape))
        for output, array in zip(model.graph.output, expected):
            output.CopyFrom(helper.make_tensor_value_info(output.name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                                          array.shape))
        self.cases.append((name, model, given, expected))

    def graph(self, name, nodes, tensors, outputs, opset=17, constants=()):
        """Several nodes. `tensors` maps a name to its array; those in `constants` become initializers."""
        if any(name == other for other, *_ in self.cases):
            raise SystemExit(f"make_onnx_cases: two cases are called {name}")
        inputs = {n: np.asarray(a, order="C") for n, a in tensors.items() if n not in constants}
        infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                 for n, a in inputs.items()]
        graph = helper.make_graph(nodes, name, infos,
                                  [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in outputs],
                                  [numpy_helper.from_array(np.asarray(tensors[n], order="C"), n) for n in constants])
        opsets = [helper.make_opsetid("", opset)]
        domains = sorted({n.domain for n in nodes if n.domain})
        opsets += [helper.make_opsetid(domain, domain_version(domain, nodes)) for domain in domains]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="tessera-tests")
        model.ir_version = 8 if opset <= 18 else 10
        self.cases.append((name, model, inputs, None))

    def onnx_reference(self):
        """The cases from here on in this block have the evaluator of the package onnx as their reference."""
        return OnnxReference(self)


class OnnxReference:
    def __init__(self, builder):
        self.builder = builder

    def __enter__(self):
        self.first = len(self.builder.cases)

    def __exit__(self, *_):
        self.builder.by_onnx.update(name for name, *_ in self.builder.cases[self.first:])


def complete(model, inputs, by_onnx, results=None):
    """Runs the model in ONNX Runtime or the package onnx, unless the results are known; gives the graph outputs the types
    and shapes found and returns the arrays."""
    del model.graph.output[:]
    names = [name for node in model.graph.node for name in node.output if name]
    consumed = {name for node in model.graph.node for name in node.input}
    for name in names:
        if name not in consumed:
            model.graph.output.append(helper.make_empty_tensor_value_info(name))
    inferred = onnx.shape_inference.infer_shapes(model)
    for output, known in zip(model.graph.output, inferred.graph.output):
        output.CopyFrom(known)
    if results is not None:
        pass
    elif by_onnx:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = [np.asarray(result) for result in onnx.reference.ReferenceEvaluator(model).run(None, inputs)]
        # The evaluator computes some operators in float64 whatever they are given.
        if all(value.dtype != np.float64 for value in inputs.values()):
            results = [result.astype(np.float32) if result.dtype == np.float64 else result for result in results]
    else:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # The plain kernels: a reference should not depend on fusions.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = session.run(None, inputs)
    for output, result in zip(model.graph.output, results):
        output.CopyFrom(helper.make_tensor_value_info(output.name, helper.np_dtype_to_tensor_dtype(result.dtype),
                                                      result.shape))
    return results


def all_cases():
    builder = Builder()
    for module in MODULES:
        module.add_cases(builder)
    return builder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--match", default="")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if not args.out and not args.list:
        parser.error("--out is needed")
    sources = [__file__, case_folder.__file__, *(module.__file__ for module in MODULES)]
    key = repr((onnx.__version__, np.__version__, onnxruntime.__version__, args.match,
                case_folder.source_digest(*sources)))
    if args.out and case_folder.is_current(args.out, key):
        return 0

    builder = all_cases()
    selected = [case for case in builder.cases if re.search(args.match, case[0])]
    if args.list:
        print("\n".join(name for name, *_ in selected))
        return 0
    case_folder.clear(args.out)
    written, refused = 0, []
    for name, model, inputs, known in selected:
        try:
            outputs = known or complete(model, inputs, name in builder.by_onnx, builder.results.get(name))
        except Exception as error:  # references have gaps of their own; a case without a reference is no case
            refused.append(name)
            print(f"make_onnx_cases: no reference for {name}: {str(error).splitlines()[0][:160]}", file=sys.stderr)
            continue
        case_folder.write_case(args.out / name, model, [(list(inputs.values()), outputs)])
        written += 1
    if written == 0:
        print("make_onnx_cases: nothing matches", file=sys.stderr)
        return 1
    case_folder.mark_current(args.out, key)
    print(f"make_onnx_cases: {written} cases in {args.out}, {len(refused)} without a reference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
