#!/usr/bin/env python3
"""Kernels on Oclgrind, which runs OpenCL on the CPU and reports threads that race and accesses outside of memory.

    opencl_races.py TESSERA

Products, convolutions, reductions and attention of sizes around those of tiles: nothing is reported; without barriers, races are.
Skipped where there is no Oclgrind (scripts/setup.sh --dev).
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx

import model_runs as runs
from opencl_operators import Zoo

LIBRARY = pathlib.Path("/usr/lib/oclgrind/liboclgrind-rt.so")
# In front of Oclgrind: takes the barriers out of each source.
WITHOUT_BARRIERS = r"""
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char **text, const size_t *size, cl_int *error) {
  cl_program (*next)(cl_context, cl_uint, const char **, const size_t *, cl_int *) = dlsym(RTLD_NEXT, "clCreateProgramWithSource");
  char *own = calloc(1, *size + 1);
  memcpy(own, *text, *size);
  for (char *at = own; (at = strstr(at, "  barrier(CLK")); ) memset(at, ' ', strcspn(at, "\n"));
  const char *changed = own;
  return next(context, count, &changed, size, error);
}
"""


def operators(seed):
    z = Zoo(seed)
    for m, n, k in ((17, 33, 40), (1, 5, 300), (64, 9, 16)):
        z.add("MatMul", z.operand(m, k), z.operand(k, n, weight=True))
    z.add("Conv", z.operand(1, 5, 9, 7), z.operand(12, 5, 3, 3, weight=True), pads=[1, 1, 1, 1], strides=[2, 1])
    z.add("ReduceMean", z.operand(3, 200), axes=[1])
    z.add("ReduceMax", z.operand(3, 70), axes=[1])
    z.add("Softmax", z.operand(2, 80))
    z.add("Mul", z.operand(5, 1, 3), z.operand(7, 1))
    z.attention(9, 21, 5, 7, "rows", batch=1, heads=1)
    return z


def main():
    binary = os.path.abspath(sys.argv[1])
    if not LIBRARY.exists():
        print(f"SKIPPED: there is no {LIBRARY} (scripts/setup.sh --dev)")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        z = operators(runs.today())
        onnx.save(z.model(), f"{work}/zoo.onnx")
        source, without = f"{work}/without.c", f"{work}/without.so"
        with open(source, "w") as f:
            f.write(WITHOUT_BARRIERS)
        os.symlink(LIBRARY, f"{work}/libOpenCL.so")  # as the library calls itself
        subprocess.run(["cc", f"-Wl,-rpath,{work}", "-shared", "-fPIC", "-o", without, source, "-Wl,--no-as-needed",
                        str(LIBRARY), "-ldl"], check=True)
        command = [binary, "run", f"{work}/zoo.onnx", "--target", "opencl"]
        for name, values in z.feeds.items():
            np.save(f"{work}/{name}.npy", values)
            command += ["--input", f"{name}=@{work}/{name}.npy"]
        for what, library, wanted in (("as they are", str(LIBRARY), False), ("without barriers", without, True)):
            done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={**os.environ, "TESSERA_OPENCL_LIBRARY": library, "OCLGRIND_DATA_RACES": "1"})
            races = done.stdout.count("data race")
            wrong = done.returncode != 0 or (races > 0) != wanted or (not wanted and "Invalid" in done.stdout)
            failed += wrong
            print(f"{'FAIL' if wrong else 'PASS'} {what}: {races} races reported")
            if wrong:
                print(done.stdout[:2000])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
