"""Functions of JAX beside JAX itself: compiled from its StableHLO text, in the form that it prints and in the generic one.

jax_test.py TESSERA [NAME...]
"""

import pathlib
import subprocess
import sys
import tempfile
import time

import other_python

other_python.enter("jax", "jax")

import jax
import numpy as np

import jax_functions
import tessera
from recognition import composites_of

BOUND = 1e-5


def difference(got, want):
    """Of the largest magnitude; infinite where shapes, dtypes, NaN or infinities differ."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if not np.issubdtype(want.dtype, np.floating):
        return 0.0 if (got == want).all() else float("inf")
    got, want = got.astype(np.float64), want.astype(np.float64)
    same = (np.isfinite(got) == np.isfinite(want)) & ((got == want) | np.isfinite(want) | (np.isnan(got) & np.isnan(want)))
    if not same.all():
        return float("inf")
    finite = np.isfinite(want)
    if not finite.any():
        return 0.0
    return float(np.abs(got[finite] - want[finite]).max() / max(np.abs(want[finite]).max(), 1e-30))


def check(name, function, arguments):
    begin = time.time()
    with jax.default_matmul_precision("highest"):
        want = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
        compiled = tessera.from_jax(function, *arguments)
        got = jax.tree_util.tree_leaves(compiled(*arguments))
        lowered = jax.jit(lambda *a: function(*a), keep_unused=True).lower(*arguments)
    generic = lowered.compiler_ir("stablehlo").operation.get_asm(print_generic_op_form=True)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "f.mlir")
        path.write_text(generic)
        leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(arguments)]
        again = tessera.compile(path).run(leaves)
    if len(got) != len(want) or len(again) != len(want):
        return f"{len(got)} results for {len(want)}"
    worst = 0.0
    for i, (a, b, w) in enumerate(zip(got, again, want)):
        for form, y in (("printed", a), ("generic", b)):
            off = difference(y, w)
            if isinstance(off, str) or off > BOUND:
                return f"result {i} ({form} form): {off}"
            worst = max(worst, off)
    print(f"ok {name}: {len(want)} results, {worst:.1e}, {time.time() - begin:.1f} s", flush=True)
    return None


# What of a model's operators is recognised, however JAX took it apart: composites of the graph that the compiler makes.
RECOGNISED = {
    "attention": {"softmax": 1},
    "flax_mlp": {"layer_norm": 1, "gelu": 1, "silu": 1, "softmax": 1},
    "flax_gpt": {"layer_norm": 5, "gelu": 2, "softmax": 2},
}


def check_recognised(program, name, function, arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "f.mlir")
        path.write_text(jax.jit(function).lower(*arguments).as_text())
        found = composites_of(program, path)
    wrong = {op: found[op] for op, count in RECOGNISED[name].items() if found[op] != count}
    return f"{dict(found)} are recognised, and {RECOGNISED[name]} wanted" if wrong else None


def check_frontend():
    """The four steps: import, build, set, run."""
    random = np.random.default_rng(1)
    x, w = random.random((2, 3), np.float32), random.random((3, 4), np.float32)
    function = lambda x, w: jax.numpy.tanh(x @ w)
    module, params = tessera.frontend.from_jax(function, x, w)
    built = tessera.build(module, params=params)
    built.set_input("arg0", x)
    built.set_input("arg1", w)
    built.run()
    with jax.default_matmul_precision("highest"):
        off = difference(built.get_output(0), jax.jit(function)(x, w))
    return None if off <= BOUND else f"frontend.from_jax: {off}"


def main():
    program, *names = sys.argv[1:]
    names = names or [*jax_functions.FUNCTIONS, *jax_functions.FLAX]
    failed = []
    if len(sys.argv) == 2:
        docs = pathlib.Path(__file__).with_name("python_docs.py")
        if subprocess.run([sys.executable, docs, "jax.md"]).returncode:
            failed.append("docs/jax.md")
        if problem := check_frontend():
            failed.append("frontend")
            print(f"FAILED frontend: {problem}")
    for name in names:
        case = jax_functions.FLAX[name]() if name in jax_functions.FLAX else jax_functions.FUNCTIONS[name]
        if case is None:
            print(f"{name} is left out: flax is not installed")
            continue
        function, *arguments = case
        try:
            problem = check(name, function, arguments)
            if not problem and name in RECOGNISED:
                problem = check_recognised(program, name, function, arguments)
        except tessera.Error as error:
            problem = f"{error}"
        if problem:
            failed.append(name)
            print(f"FAILED {name}: {problem}", flush=True)
    print(f"{len(names) - len(failed)} of {len(names)} functions match")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
