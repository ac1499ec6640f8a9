#!/usr/bin/env python3
"""Writes the official ONNX node tests as test-case folders, out of the PyPI package `onnx`.

    make_node_tests.py --out DIR --ops Conv,Relu,Add     the tests of these operators
    make_node_tests.py --out DIR --match '^test_conv_'   the tests whose name matches
    make_node_tests.py --ops Conv --list                 only print the names
    ... [--exclude REGEX] [--expanded] [--only-ops A,B] [--fold-parameters]

A test named ..._expanded has the operator replaced by its function body; those are left out without --expanded.
--only-ops keeps a test only if every operator in it is listed. --fold-parameters turns inputs that are parameters
rather than data (the shape of a Reshape, the axes of a ReduceSum) into constants, as they are in real models. Random
inputs are drawn after seeding with 0, so the files are the same every time. A second call with the same arguments
does nothing."""
import argparse
import pathlib
import re
import sys
import warnings

import numpy as np
import onnx

import case_folder


# Operator -> the inputs that decide shapes.
PARAMETERS = {"ConstantOfShape": [0], "Expand": [1], "Pad": [1, 3], "ReduceMax": [1], "ReduceMean": [1],
              "ReduceMin": [1], "ReduceProd": [1], "ReduceSum": [1], "Reshape": [1], "Resize": [1, 2, 3],
              "Slice": [1, 2, 3, 4], "Split": [1], "Squeeze": [1], "Tile": [1], "TopK": [1], "Unsqueeze": [1],
              "Upsample": [1]}


def fold_parameters(case):
    """(model, data_sets) with the parameters as initializers; unchanged when data sets disagree about one."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    wanted = {name for node in model.graph.node for i, name in enumerate(node.input)
              if i in PARAMETERS.get(node.op_type, [])}
    positions = [i for i, info in enumerate(model.graph.input) if info.name in wanted]
    inputs = [list(given) for given, _ in case.data_sets]
    if any(not np.array_equal(given[i], inputs[0][i]) for given in inputs for i in positions):
        return case.model, case.data_sets
    for i in reversed(positions):
        info = model.graph.input[i]
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(inputs[0][i]), info.name))
        del model.graph.input[i]
        for given in inputs:
            del given[i]
    return model, [(given, outputs) for given, (_, outputs) in zip(inputs, case.data_sets)]


def operators_of(graph):
    for node in graph.node:
        yield f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from operators_of(attribute.g)
            for graph_value in attribute.graphs:
                yield from operators_of(graph_value)


def collect():
    """All node tests: a list of onnx.backend.test.case.test_case.TestCase."""
    np.random.seed(0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases
        return collect_testcases()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--ops", default="", help="comma-separated operator names")
    parser.add_argument("--match", default="", help="regular expression on the test's name")
    parser.add_argument("--exclude", default="", help="regular expression on the test's name")
    parser.add_argument("--only-ops", default="")
    parser.add_argument("--expanded", action="store_true")
    parser.add_argument("--fold-parameters", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if not args.out and not args.list:
        parser.error("--out is needed")
    key = repr((onnx.__version__, np.__version__, args.ops, args.match, args.exclude, args.only_ops, args.expanded,
                args.fold_parameters, case_folder.source_digest(__file__, case_folder.__file__)))
    if args.out and case_folder.is_current(args.out, key):
        return 0

    if args.out:
        case_folder.clear(args.out)
    wanted = set(filter(None, args.ops.split(",")))
    allowed = set(filter(None, args.only_ops.split(",")))
    written, tested = 0, set()
    for case in collect():
        operators = list(operators_of(case.model.graph))
        is_expanded = "_expanded" in case.name
        main_op = operators[0] if operators else ""
        if is_expanded and not args.expanded:
            continue
        if wanted and not (main_op in wanted or (is_expanded and wanted & set(operators))):
            continue
        if not re.search(args.match, case.name) or (args.exclude and re.search(args.exclude, case.name)):
            continue
        if allowed and not set(operators) <= allowed:
            continue
        tested.add(main_op)
        written += 1
        if args.list:
            print(case.name)
        else:
            model, data_sets = fold_parameters(case) if args.fold_parameters else (case.model, case.data_sets)
            case_folder.write_case(args.out / case.name, model, data_sets)
    missing = wanted - tested
    if missing:
        print(f"make_node_tests: no test for: {', '.join(sorted(missing))}", file=sys.stderr)
    if written == 0:
        print("make_node_tests: nothing matches", file=sys.stderr)
        return 1
    if not args.list:
        case_folder.mark_current(args.out, key)
        print(f"make_node_tests: {written} cases in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
