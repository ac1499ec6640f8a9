#!/usr/bin/env python3
"""Writes the official ONNX node tests as test-case folders, out of the PyPI package `onnx`.

    make_node_tests.py --out DIR --ops Conv,Relu,Add     the tests of these operators
    make_node_tests.py --out DIR --match '^test_conv_'   the tests whose name matches
    make_node_tests.py --ops Conv --list                 only print the names
    ... [--exclude REGEX] [--expanded] [--only-ops A,B]

A test named ..._expanded has the operator replaced by its function body; those are left out without --expanded.
--only-ops keeps a test only if every operator in it is listed. Random inputs are drawn after seeding with 0, so
the files are the same every time. A second call with the same arguments does nothing."""
import argparse
import pathlib
import re
import sys
import warnings

import numpy as np
import onnx

import case_folder


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
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if not args.out and not args.list:
        parser.error("--out is needed")
    key = repr((onnx.__version__, np.__version__, args.ops, args.match, args.exclude, args.only_ops, args.expanded,
                case_folder.source_digest(__file__, case_folder.__file__)))
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
            case_folder.write_case(args.out / case.name, case.model, case.data_sets)
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
