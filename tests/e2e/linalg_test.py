"""`--emit linalg`: mlir-opt-19 takes it, and what MLIR and clang make of it gives what the interpreter gives. Skipped
where they are missing.

linalg_test.py TESSERA"""

import ctypes
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BOUND = 1e-5
# From tensors to loops, calls of libm and machine code.
PIPELINE = [
    "--one-shot-bufferize=bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map",
    "--convert-linalg-to-loops",
    "--convert-scf-to-cf",
    "--expand-strided-metadata",
    "--lower-affine",
    "--convert-math-to-llvm",
    "--convert-math-to-libm",
    "--arith-expand",
    "--convert-arith-to-llvm",
    "--finalize-memref-to-llvm",
    "--convert-func-to-llvm",
    "--convert-index-to-llvm",
    "--convert-cf-to-llvm",
    "--reconcile-unrealized-casts",
]
RANDOM = np.random.default_rng(0)


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def model(nodes, inputs, output, constants={}):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


CASES = {
    "mlp": model(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "v"], ["z"]),
            helper.make_node("Softmax", ["z"], ["y"], axis=1),
        ],
        {"x": [3, 5]},
        "y",
        {"w": real(5, 7), "b": real(7), "v": real(7, 4)},
    ),
    "convolution": model(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 1]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
            helper.make_node("GlobalAveragePool", ["p"], ["y"]),
        ],
        {"x": [1, 3, 7, 6]},
        "y",
        {"w": real(4, 3, 3, 3), "b": real(4)},
    ),
    "elementwise": model(
        [
            helper.make_node("Erf", ["x"], ["a"]),
            helper.make_node("Tanh", ["a"], ["b"]),
            helper.make_node("Exp", ["b"], ["c"]),
            helper.make_node("Floor", ["x"], ["d"]),
            helper.make_node("Mul", ["c", "d"], ["e"]),
            helper.make_node("Clip", ["e", "lo", "hi"], ["y"]),
        ],
        {"x": [4, 6]},
        "y",
        {"lo": np.float32(-2), "hi": np.float32(2)},
    ),
    "layer_norm": model(
        [
            helper.make_node("LayerNormalization", ["x", "s", "t"], ["n"], axis=-1),
            helper.make_node("Transpose", ["n"], ["u"], perm=[1, 0]),
            helper.make_node("Slice", ["u", "from", "to"], ["y"]),
        ],
        {"x": [4, 8]},
        "y",
        {"s": real(8), "t": real(8), "from": np.array([2], np.int64), "to": np.array([7], np.int64)},
    ),
    "gather": model(
        [
            helper.make_node("Gather", ["table", "i"], ["g"]),
            helper.make_node("Add", ["g", "x"], ["a"]),
            helper.make_node("ReduceSum", ["a", "axes"], ["y"], keepdims=0),
        ],
        {"x": [3, 4]},
        "y",
        {"table": real(6, 4), "i": np.array([5, 0, -1], np.int64), "axes": np.array([1], np.int64)},
    ),
    "pad": model(
        [helper.make_node("Pad", ["x", "pads"], ["p"], mode="reflect"), helper.make_node("Concat", ["p", "p"], ["y"], axis=0)],
        {"x": [3, 4]},
        "y",
        {"pads": np.array([1, 2, 0, 1], np.int64)},
    ),
}


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)


def descriptor(rank):
    class Memref(ctypes.Structure):
        _fields_ = [("allocated", ctypes.c_void_p), ("aligned", ctypes.c_void_p), ("offset", ctypes.c_int64)] + (
            [("sizes", ctypes.c_int64 * rank), ("strides", ctypes.c_int64 * rank)] if rank else []
        )

    return Memref


def called(library, x, rank):
    """The function of the library for x, as MLIR's C interface has it: descriptors of memory, the result's first."""
    given, result = descriptor(x.ndim)(), descriptor(rank)()
    given.allocated = given.aligned = x.ctypes.data
    given.sizes[:] = x.shape
    given.strides[:] = [stride // x.itemsize for stride in x.strides]
    ctypes.CDLL(str(library))._mlir_ciface_main(ctypes.byref(result), ctypes.byref(given))
    shape, strides = list(result.sizes), [4 * stride for stride in result.strides]
    buffer = np.ctypeslib.as_array(
        ctypes.cast(result.aligned, ctypes.POINTER(ctypes.c_float)), (result.offset + int(np.prod(shape)),)
    )
    return np.lib.stride_tricks.as_strided(buffer[result.offset :], shape, strides).copy()


def built(text, folder, optimiser):
    """Through mlir-opt, mlir-translate and clang to a shared library; what went wrong, otherwise."""
    interface = re.sub(r"(func\.func @main\(.*\)) \{\n", r"\1 attributes {llvm.emit_c_interface} {\n", text, count=1)
    (folder / "run.mlir").write_text(interface)
    steps = [
        [optimiser, folder / "run.mlir", *PIPELINE, "-o", folder / "llvm.mlir"],
        [optimiser.replace("mlir-opt", "mlir-translate"), "--mlir-to-llvmir", folder / "llvm.mlir", "-o", folder / "run.ll"],
        [
            "clang-19",
            "-O1",
            "-shared",
            "-fPIC",
            "-Wno-override-module",
            folder / "run.ll",
            "-lm",
            "-o",
            folder / f"{len(list(folder.glob('*.so')))}.so",
        ],
    ]
    for step in steps:
        done = run(*step)
        if done.returncode:
            return done.stderr[:1500]
    return pathlib.Path(step[-1])


def main():
    tessera = pathlib.Path(sys.argv[1]).resolve()
    optimiser = shutil.which("mlir-opt-19") or shutil.which("mlir-opt")
    if not optimiser:
        print("skipped: no mlir-opt-19; scripts/setup.sh --mlir installs it")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, case in CASES.items():
            onnx.save(case, folder / "m.onnx")
            emitted = run(tessera, "compile", folder / "m.onnx", "--emit", "linalg")
            if emitted.returncode:
                failed += 1
                print(f"FAILED {name}: {emitted.stderr}")
                continue
            (folder / "m.mlir").write_text(emitted.stdout)
            taken = run(optimiser, folder / "m.mlir")
            if taken.returncode:
                failed += 1
                print(f"FAILED {name}: mlir-opt: {taken.stderr[:1500]}")
                continue
            shape = [d.dim_value for d in case.graph.input[0].type.tensor_type.shape.dim]
            x = real(*shape)
            np.save(folder / "x.npy", x)
            want = run(
                tessera, "run", folder / "m.onnx", "--engine", "interp", "--input", f"x=@{folder}/x.npy", "--output-dir", folder
            )
            library = built(emitted.stdout, folder, optimiser)
            if want.returncode or isinstance(library, str):
                failed += 1
                print(f"FAILED {name}: {want.stderr}{library}")
                continue
            reference = np.load(folder / "y.npy")
            got = called(library, x, reference.ndim)
            off = np.abs(got - reference).max() / np.abs(reference).max() if got.shape == reference.shape else np.inf
            if off > BOUND:
                failed += 1
                print(f"FAILED {name}: off by {off}\n{got.ravel()[:8]}\n{reference.ravel()[:8]}")
            else:
                print(f"ok {name}: {got.size} elements, {off:.1e}")
        sort = model([helper.make_node("CumSum", ["x", "axis"], ["y"])], {"x": [3, 4]}, "y", {"axis": np.array(1, np.int64)})
        onnx.save(sort, folder / "m.onnx")
        refused = run(tessera, "compile", folder / "m.onnx", "--emit", "linalg")
        if refused.returncode != 1 or "TSR-5140" not in refused.stderr or "cumulate" not in refused.stderr:
            failed += 1
            print(f"FAILED refusal: {refused.stderr}")
    print(f"{len(CASES) + 1 - failed} of {len(CASES) + 1} cases")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
