#!/usr/bin/env python3
"""Functions of one's own in compiled models: examples/kernels, and what a declaration may get wrong.

    kernels_test.py TESSERA [CC]

oneDNN's matrix product is tried where its headers and library are (TESSERA_ONEDNN: a folder with include/ and lib/)."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TESSERA = sys.argv[1]
CC = sys.argv[2] if len(sys.argv) > 2 else "cc"
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "kernels"
failures = []


def run(*args):
    return subprocess.run([TESSERA, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED", text)


def make_model(path, m=24, k=40, n=33):
    """relu(x * w + b) * v: one product with something behind it, and one without."""
    rng = np.random.default_rng(1)
    constant = lambda name, *shape: numpy_helper.from_array(rng.standard_normal(shape, np.float32), name)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "b"], ["u"]),
             helper.make_node("Relu", ["u"], ["r"]), helper.make_node("MatMul", ["r", "v"], ["y"])]
    value = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "two", [value("x", m, k)], [value("y", m, 17)],
                              [constant("w", k, n), constant("b", n), constant("v", n, 17)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


def check_example(work):
    model, declaration = work / "model.onnx", work / "matmul.kernel"
    make_model(model)
    shutil.copy(FOLDER / "matmul.c", work)
    text = (FOLDER / "matmul.kernel").read_text()
    declaration.write_text(text)
    missing = run("compile", model, "--kernel", declaration, "-o", work / "m.so")
    expect(missing.returncode == 1 and "TSR-3131" in missing.stdout, f"missing object: {missing.stdout}")
    flags = re.search(r"^cc (.*) matmul\.c$", (FOLDER / "README.md").read_text(), re.M)[1].split()
    subprocess.run([CC, *flags, work / "matmul.c", "-o", work / "matmul.o"], check=True)

    declaration.write_text(text.replace("call ", "use always\n  call "))
    loops = run("compile", model, "--kernel", declaration, "--emit", "loop")
    expect(loops.stdout.count('tensorized "my.matmul"') == 2, f"both products are called: {loops.stdout}")
    for flags in ([], ["-O0"], ["--threads", "2"]):
        same = run("diff", model, "--kernel", declaration, *flags)
        expect(same.returncode == 0, f"results with {flags}: {same.stdout}")
    compiled = run("compile", model, "--kernel", declaration, "-o", work / "m.so")
    expect(compiled.returncode == 0, compiled.stdout)
    # The module needs the object no more.
    (work / "matmul.o").rename(work / "gone.o")
    ran = run("run", work / "m.so")
    expect(ran.returncode == 0, f"the module alone: {ran.stdout}")
    (work / "gone.o").rename(work / "matmul.o")

    # A slow function is not taken: ours stays.
    slow = (work / "matmul.c").read_text().replace("for (int64_t i = 0; i < m; ++i) {",
                                                  "for (volatile int w = 0; w < 3000000; ++w) {}\n  for (int64_t i = 0; i < m; ++i) {", 1)
    (work / "slow.c").write_text(slow)
    subprocess.run([CC, "-c", "-O1", "-fPIC", work / "slow.c", "-o", work / "matmul.o"], check=True)
    declaration.write_text(text)
    loops = run("compile", model, "--kernel", declaration, "--emit", "loop")
    expect(loops.returncode == 0 and 'tensorized "my.matmul"' not in loops.stdout, f"a slow function is taken: {loops.stdout[:300]}")

    # One that computes something else.
    (work / "wrong.c").write_text((work / "matmul.c").read_text().replace("+=", "-="))
    subprocess.run([CC, "-c", "-O1", "-fPIC", work / "wrong.c", "-o", work / "matmul.o"], check=True)
    wrong = run("compile", model, "--kernel", declaration, "-o", work / "w.so")
    expect(wrong.returncode == 1 and "TSR-3133" in wrong.stdout and wrong.stdout.count("error TSR") == 1, wrong.stdout)
    # A symbol that is not there.
    declaration.write_text(text.replace('"my_matmul"', '"no_matmul"'))
    missing = run("compile", model, "--kernel", declaration, "-o", work / "w.so")
    expect(missing.returncode == 1 and "TSR-6110" in missing.stdout and "no_matmul" in missing.stdout, missing.stdout)
    # No object at all.
    (work / "matmul.o").write_text("not an object")
    declaration.write_text(text)
    junk = run("compile", model, "--kernel", declaration, "-o", work / "w.so")
    expect(junk.returncode == 1 and "TSR-6110" in junk.stdout, junk.stdout)
    # A text that is no declaration, and a file that is not there.
    declaration.write_text('intrinsic "a" { pattern kernel @p(')
    bad = run("compile", model, "--kernel", declaration, "-o", work / "w.so")
    expect(bad.returncode == 1 and "error TSR-3" in bad.stdout, bad.stdout)
    none = run("compile", model, "--kernel", work / "none.kernel", "-o", work / "w.so")
    expect(none.returncode == 1 and "TSR-4026" in none.stdout, none.stdout)


MEMORY = r"""
#include <stdint.h>
#include <string.h>
static volatile int64_t unknown;  // sizes that no compiler sees through
void my_matmul(const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k) {
  unsigned char bytes[200], other[200];
  int wrong = 0;
  for (int64_t size = 0; size <= 100; ++size) {
    for (int64_t from = 0; from < 90; from += 13)
      for (int64_t to = 0; to < 90; to += 13) {
        for (int i = 0; i < 200; ++i) bytes[i] = other[i] = (unsigned char)(i * 7 + 3);
        unknown = size;
        wrong += memmove(bytes + to, bytes + from, (size_t)unknown) != bytes + to;
        for (int i = 0; i < 200; ++i) {
          const int source = i >= to && i < to + size ? i - (int)to + (int)from : i;
          wrong += bytes[i] != (unsigned char)(source * 7 + 3);
        }
        unknown = size;
        memcpy(bytes, other, sizeof(bytes));
        wrong += memset(bytes + to, 0x1f5, (size_t)unknown) != bytes + to;
        for (int i = 0; i < 200; ++i) wrong += bytes[i] != (i >= to && i < to + size ? 0xf5 : other[i]);
      }
    memcpy(bytes, other, sizeof(bytes));
    unknown = size;
    wrong += memcmp(bytes, other, (size_t)unknown) != 0;
    bytes[size] ^= 0x80;
    wrong += memcmp(bytes, other, (size_t)unknown) != 0;
    unknown = size + 1;
    const int order = memcmp(bytes, other, (size_t)unknown);
    wrong += bytes[size] < other[size] ? order >= 0 : order <= 0;
  }
  for (int64_t i = 0; i < m; ++i) {
    unknown = n;
    memset(c + i * n, 0, (size_t)unknown * sizeof(float));
    for (int64_t x = 0; x < k; ++x)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + x] * b[x * n + j];
  }
  c[0] += 1000.0f * (float)wrong;
}
"""


def check_memory_functions(work):
    """What C compilers make calls of is in the module; other functions of a C library are not."""
    model, declaration = work / "memory.onnx", work / "memory.kernel"
    make_model(model)
    declaration.write_text((FOLDER / "matmul.kernel").read_text().replace("matmul.o", "memory.o").replace("call ", "use always\n  call "))
    (work / "memory.c").write_text(MEMORY)
    for level in ("-O0", "-O1", "-O3"):
        flags = ["-c", level, "-fPIC", "-fno-stack-protector", "-fno-builtin"]
        subprocess.run([CC, *flags, work / "memory.c", "-o", work / "memory.o"], check=True)
        same = run("diff", model, "--kernel", declaration)
        expect(same.returncode == 0, f"memset and its like, {level}: {same.stdout}")
    compiled = run("compile", model, "--kernel", declaration, "-o", work / "m.so")
    expect(compiled.returncode == 0, compiled.stdout)
    # An object's own one is taken.
    own = "void *memset(void *to, int value, unsigned long count) { for (char *p = to; count-- > 0;) *p++ = (char)value; return to; }\n"
    (work / "memory.c").write_text((FOLDER / "matmul.c").read_text() + own)
    subprocess.run([CC, "-c", "-O1", "-fPIC", "-fno-builtin", work / "memory.c", "-o", work / "memory.o"], check=True)
    same = run("diff", model, "--kernel", declaration)
    expect(same.returncode == 0, f"a memset of its own: {same.stdout}")
    other = (FOLDER / "matmul.c").read_text().replace("+=", "+= expf(0) *")
    (work / "memory.c").write_text("#include <math.h>\n" + other)
    subprocess.run([CC, "-c", "-O1", "-fPIC", "-fno-builtin", work / "memory.c", "-o", work / "memory.o"], check=True)
    missing = run("compile", model, "--kernel", declaration, "-o", work / "m.so")
    expect(missing.returncode == 1 and "TSR-6110" in missing.stdout and "undefined symbol: expf" in missing.stdout
           and "memset, memcpy, memmove and memcmp only" in missing.stdout, missing.stdout)


def check_onednn(work):
    place = os.environ.get("TESSERA_ONEDNN", "/usr")
    headers = pathlib.Path(place) / "include"
    libraries = [*pathlib.Path(place).glob("lib/libdnnl.so*"), *pathlib.Path(place).glob("lib/*/libdnnl.so*")]
    if not (headers / "oneapi/dnnl/dnnl.h").exists() or not libraries:
        print("skipped: oneDNN: no headers or no library (Debian: libdnnl-dev; or TESSERA_ONEDNN)")
        return
    model = work / "large.onnx"
    make_model(model, 256, 512, 512)
    shutil.copy(FOLDER / "onednn_matmul.c", work)
    subprocess.run([CC, "-c", "-O2", "-fPIC", f"-I{headers}", work / "onednn_matmul.c", "-o", work / "onednn_matmul.o"], check=True)
    (work / "libdnnl.so").symlink_to(sorted(libraries)[0].resolve())
    text = (FOLDER / "onednn.kernel").read_text()
    for declared, always in ((text, False), (text.replace("call ", "use always\n  call "), True)):
        (work / "onednn.kernel").write_text(declared)
        compiled = run("compile", model, "--kernel", work / "onednn.kernel", "--threads", "1", "-o", work / "d.so")
        expect(compiled.returncode == 0, f"oneDNN: {compiled.stdout}")
        ran = run("run", work / "d.so")
        expect(ran.returncode == 0, f"oneDNN: {ran.stdout}")
        loops = run("compile", model, "--kernel", work / "onednn.kernel", "--threads", "1", "--emit", "loop").stdout
        count = loops.count('tensorized "onednn.matmul"')
        print(f"oneDNN: {count} of 2 products {'with use always' if always else 'where faster'}")
        expect(not always or count == 2, "oneDNN is not called")


if not shutil.which(CC):
    print(f"skipped: no {CC} to compile C with")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    check_example(pathlib.Path(folder))
    check_memory_functions(pathlib.Path(folder))
    check_onednn(pathlib.Path(folder))
print("failed" if failures else "passed")
sys.exit(1 if failures else 0)
