#!/usr/bin/env python3
"""Holds src/import/tflite/model.fbs against the format's own schema, as the PyPI package ai-edge-litert has it: the
numbers, types and defaults of fields, and the numbers of operators, types and members of unions."""

import re
import sys

import tflite_support

# Ours has types for fields of these kinds, the package's writers of fields do not.
FIELD = re.compile(r"^def (\w+?)Add(\w+)\(builder, \w+\):\s+builder\.Prepend(\w+)Slot\((\d+), (.*)\)$", re.M)
ENUMS = {"Activation": "ActivationFunctionType", "Options": "BuiltinOptions", "Options2": "BuiltinOptions2"}


def fields_of(module):
    """By table and number of the field: its name, kind and default."""
    with open(module.__file__, encoding="utf-8") as file:
        text = file.read()
    fields = {}
    for table, name, kind, number, values in FIELD.findall(text):
        default = float({"False": 0, "True": 1}.get(values.split(", ")[-1], values.split(", ")[-1]))
        fields.setdefault(table, {})[int(number)] = (name.lower(), kind, default)
    return fields


def numbers_of(cls):
    return {name: number for name, number in vars(cls).items() if isinstance(number, int)}


def main():
    theirs, ours = tflite_support.litert_schema(), tflite_support.tables()
    problems = []
    own_fields, their_fields = fields_of(ours), fields_of(theirs)
    for table, fields in own_fields.items():
        for number, field in fields.items():
            other = their_fields.get(table, {}).get(number)
            if other != field:
                problems.append(f"{table}: field {number} is {field}, and {other} in the format")
    for name in ("TensorType", "Activation", "Padding", "BuiltinOperator", "SparseIndexVector", "QuantizationDetails",
                 "Options", "Options2"):
        own, other = numbers_of(getattr(ours, name)), numbers_of(getattr(theirs, ENUMS.get(name, name)))
        problems += [f"{name}: {word} is {number}, and {other.get(word)} in the format"
                     for word, number in own.items() if other.get(word) != number]
    assert len(own_fields) > 60, len(own_fields)
    print(*problems, sep="\n")
    print(f"{len(own_fields)} tables, {len(problems)} differences")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
