#!/usr/bin/env python3
"""StableHLO modules that are damaged, hostile or more than is read: each is refused with an error that says where, at once and
without a crash; and a few forms that JAX does not print and MLIR does. JAX is not needed.

    stablehlo_bad_modules_test.py TESSERA"""

import pathlib
import subprocess
import sys
import tempfile
import time

SECONDS = 10.0  # of a loaded machine; what a hostile file could cost is far more


def main(body, arguments="%a: tensor<2x3xf32>", results="tensor<2x3xf32>"):
    return f"module {{ func.func @main({arguments}) -> {results} {{\n{body} }} }}"


REFUSED = {
    "cut": ("module { func.func @main(%a: tensor<2x", "TSR-3001", "bad.mlir:1:"),
    "no function": ("module { }", "TSR-1121", "a module of 0 functions"),
    "no main": (
        "module { func.func @f(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }"
        " func.func @g(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> } }",
        "TSR-1121",
        "none is called main",
    ),
    "calls itself": (
        "module { func.func @main(%a: tensor<f32>) -> tensor<f32> { %0 = call @f(%a) : (tensor<f32>) -> tensor<f32>\n"
        " return %0 : tensor<f32> }"
        " func.func @f(%a: tensor<f32>) -> tensor<f32> { %0 = call @f(%a) : (tensor<f32>) -> tensor<f32>\n return %0 : tensor<f32> } }",
        "TSR-1121",
        "calls itself",
    ),
    "unknown function": (
        main("%0 = call @g(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>\n return %0 : tensor<2x3xf32>"),
        "TSR-1121",
        "'g'",
    ),
    "brackets": (main("%0 = stablehlo.constant dense<" + "[" * 100000), "TSR-1122", "without end"),
    "attributes": (main('%0 = "stablehlo.x"() {a = ' + "[" * 100000), "TSR-1121", "without end"),
    "regions": (main('"stablehlo.if"(%a) (' + '{ "stablehlo.if"(%a) (' * 100000), "TSR-1121", "without end"),
    "bytes": (
        main('%0 = stablehlo.constant dense<"0x0000"> : tensor<2x3xf32>\n return %0 : tensor<2x3xf32>'),
        "TSR-1122",
        "2 bytes for 6 elements of 4 bytes",
    ),
    "elements": (
        main("%0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2x3xf32>\n return %0 : tensor<2x3xf32>"),
        "TSR-1122",
        "2 elements",
    ),
    "ragged": (
        main("%0 = stablehlo.constant dense<[[1.0, 2.0], [3.0]]> : tensor<2x2xf32>\n return %0 : tensor<2x2xf32>"),
        "TSR-1122",
        "different lengths",
    ),
    "elided": (
        main("%0 = stablehlo.constant dense_resource<__elided__> : tensor<2x3xf32>\n return %0 : tensor<2x3xf32>"),
        "TSR-1122",
        "do not stand",
    ),
    "huge": (
        main(
            "%0 = stablehlo.iota dim = 0 : tensor<1099511627776x1099511627776xf32>\n return %0 : tensor<1099511627776x1099511627776xf32>"
        ),
        "TSR-1123",
        "2^40",
    ),
    "huge constant": (
        main("%0 = stablehlo.constant dense<0.0> : tensor<99999999x99999999xf32>\n return %a : tensor<2x3xf32>"),
        "TSR-1122",
        "99999999",
    ),
    "dimension": (main("%0 = stablehlo.iota dim = 0 : tensor<99999999999999999999xf32>"), "TSR-3001", "is no dimension"),
    "declared": (
        main("%0 = stablehlo.add %a, %a : tensor<2x4xf32>\n return %0 : tensor<2x4xf32>"),
        "TSR-1123",
        "would be f32[2,3]",
    ),
    "undefined": (main("%0 = stablehlo.add %a, %b : tensor<2x3xf32>\n return %0 : tensor<2x3xf32>"), "TSR-1123", "%b#0"),
    "twice": (
        main("%0 = stablehlo.abs %a : tensor<2x3xf32>\n %0 = stablehlo.abs %a : tensor<2x3xf32>\n return %0 : tensor<2x3xf32>"),
        "TSR-1123",
        "made twice",
    ),
    "inside a region": (
        main(
            "%0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [7] : "
            "(tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>\n return %0 : tensor<2xf32>",
            "%a: tensor<2x3xf32>, %c: tensor<f32>",
        ),
        "TSR-1123",
        "entry of axes is 7",
    ),
    "complex": (main("return %a : tensor<2x3xcomplex<f32>>", "%a: tensor<2x3xcomplex<f32>>"), "TSR-1024", "complex"),
    "complex result": (
        main("%0 = stablehlo.complex %a, %a : tensor<2x3xcomplex<f32>>\n return %0 : tensor<2x3xcomplex<f32>>"),
        "TSR-1024",
        "result 0",
    ),
    "complex operator": (
        main(
            "%0 = stablehlo.complex %a, %a : tensor<2x3xcomplex<f32>>\n %1 = stablehlo.tanh %0 : tensor<2x3xcomplex<f32>>\n"
            " %2 = stablehlo.real %1 : (tensor<2x3xcomplex<f32>>) -> tensor<2x3xf32>\n return %2 : tensor<2x3xf32>"
        ),
        "TSR-1040",
        "not supported for complex numbers",
    ),
    "complex beside real": (
        main(
            "%0 = stablehlo.complex %a, %a : tensor<2x3xcomplex<f32>>\n"
            " %1 = \"stablehlo.add\"(%0, %a) : (tensor<2x3xcomplex<f32>>, tensor<2x3xf32>) -> tensor<2x3xcomplex<f32>>\n"
            " return %a : tensor<2x3xf32>"
        ),
        "TSR-1123",
        "beside complex ones",
    ),
    "complex as real": (
        main(
            "%0 = stablehlo.complex %a, %a : tensor<2x3xcomplex<f32>>\n"
            " %1 = \"stablehlo.negate\"(%0) : (tensor<2x3xcomplex<f32>>) -> tensor<2x3xf32>\n return %1 : tensor<2x3xf32>"
        ),
        "TSR-1123",
        "is declared as",
    ),
    "complex out of a region": (
        main(
            "%0 = stablehlo.complex %a, %a : tensor<2x3xcomplex<f32>>\n"
            ' %1 = "stablehlo.if"(%p) ({ stablehlo.return %0 : tensor<2x3xf32> }, { stablehlo.return %a : tensor<2x3xf32> })'
            " : (tensor<i1>) -> tensor<2x3xf32>\n return %1 : tensor<2x3xf32>",
            "%p: tensor<i1>, %a: tensor<2x3xf32>",
        ),
        "TSR-1040",
        "returns complex numbers",
    ),
    "complex constant": (
        main("%0 = stablehlo.constant dense<[(1.0, 2.0), 3.0]> : tensor<2xcomplex<f32>>\n return %a : tensor<2x3xf32>"),
        "TSR-1122",
        "beside complex ones",
    ),
    "complex constant of one": (
        main("%0 = stablehlo.constant dense<[(1.0, 2.0)]> : tensor<2xcomplex<f32>>\n return %a : tensor<2x3xf32>"),
        "TSR-1122",
        "2 parts",
    ),
    "complex constant as real": (
        main("%0 = stablehlo.constant dense<(1.0, 2.0)> : tensor<2xf32>\n return %a : tensor<2x3xf32>"),
        "TSR-1122",
        "complex numbers for the type",
    ),
    "transform": (
        main(
            "%0 = stablehlo.fft %a, type = RFFT, length = [2, 3, 4] : (tensor<2x3xf32>) -> tensor<2x3xcomplex<f32>>\n"
            " return %a : tensor<2x3xf32>"
        ),
        "TSR-1123",
        "3 lengths",
    ),
    "transform of nothing": (
        main(
            "%0 = stablehlo.fft %a, type = RFFT, length = [0] : (tensor<2x3xf32>) -> tensor<2x1xcomplex<f32>>\n"
            " return %a : tensor<2x3xf32>"
        ),
        "TSR-1040",
        "a transform of 0 values",
    ),
    "open": (main("return %a : tensor<?x3xf32>", "%a: tensor<?x3xf32>"), "TSR-1020", "arg0[0]=8"),
    "all unsupported": (
        main(
            "%0 = stablehlo.cholesky %a, lower = true : tensor<2x3xf32>\n"
            " %1 = stablehlo.custom_call @lapack(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>\n"
            " %2 = stablehlo.add %0, %1 : tensor<2x3xf32>\n return %2 : tensor<2x3xf32>"
        ),
        "TSR-1040",
        "2 nodes cannot be imported",
    ),
}

OPEN = main("return %a : tensor<?x3xf32>", "%a: tensor<?x3xf32>")
OPTIONS = {
    "--dim n=3": ("TSR-1021", "--dim names the dimension 'n', which the module does not have"),
    "--shape b=2x3": ("TSR-1021", "--shape names the input 'b', which the module does not have"),
    "--shape arg0=2x4": ("TSR-1022", "--shape arg0=2x4 contradicts the module: tensor<?x3xf32>"),
    "--dim arg0[0]=5 --shape arg0=2x3": ("TSR-1022", "contradicts another option: 'arg0[0]' is 5 there"),
}

READ = {
    "no module": "func.func @f(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }",
    "comments": "// one\nmodule @m { func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> { // two\n return %a : tensor<2xf32> } }",
    "empty constant": main(
        "%0 = stablehlo.constant dense<> : tensor<0x3xf32>\n"
        " %1 = stablehlo.concatenate %a, %0, dim = 0 : (tensor<2x3xf32>, tensor<0x3xf32>) -> tensor<2x3xf32>\n return %1 : tensor<2x3xf32>"
    ),
    "if": main(
        '%0 = "stablehlo.if"(%p) ({ stablehlo.return %a : tensor<2x3xf32> }, { %1 = stablehlo.negate %a : tensor<2x3xf32>\n'
        ' stablehlo.return %1 : tensor<2x3xf32> }) : (tensor<i1>) -> tensor<2x3xf32>\n'
        "return %0 : tensor<2x3xf32>",
        "%p: tensor<i1>, %a: tensor<2x3xf32>",
    ),
    "composite": 'module { func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { '
    '%0 = stablehlo.composite "my.op" %a {decomposition = @f} : (tensor<2xf32>) -> tensor<2xf32>\n return %0 : tensor<2xf32> }'
    " func.func private @f(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> } }",
}


def run(tessera, folder, text, *options):
    path = pathlib.Path(folder, "bad.mlir")
    path.write_text(text)
    begin = time.time()
    command = [tessera, "compile", path.name, "-o", "bad.so", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)
    return done, time.time() - begin


def test():
    tessera, failed = pathlib.Path(sys.argv[1]).resolve(), 0
    with tempfile.TemporaryDirectory() as folder:
        refused = REFUSED | {options: (OPEN, *wanted) for options, wanted in OPTIONS.items()}
        for name, (text, id, part) in refused.items():
            done, seconds = run(tessera, folder, text, *(name.split() if name in OPTIONS else ()))
            if done.returncode != 1 or f"error {id}" not in done.stderr or part not in done.stderr or seconds > SECONDS:
                failed += 1
                print(
                    f"FAILED {name}: wanted {id} with {part!r}; exit code {done.returncode}, {seconds:.1f} s\n{done.stderr[:600]}"
                )
        for name, text in READ.items():
            done, _ = run(tessera, folder, text)
            if done.returncode != 0:
                failed += 1
                print(f"FAILED {name}: {done.stderr[:600]}")
    print(f"{len(refused) + len(READ) - failed} of {len(refused) + len(READ)} modules")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(test())
