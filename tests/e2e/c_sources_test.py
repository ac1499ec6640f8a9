#!/usr/bin/env python3
"""`tessera compile --emit c`: C99 by gcc and clang without a warning, the interpreter's results, nothing outside of its memory.

c_sources_test.py TESSERA [unittest options]"""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support

import numpy
import onnx
from onnx import helper

from c_models import models, perceptron, quantized_conv, text
from interpreted_models import BOUND, InterpretedTest, random_inputs
from test_data import find_test_data

COMPILERS = [name for name in ("gcc", "clang", "clang-19") if shutil.which(name)][:2]
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZE = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "{name}.h"
static void *read_file(const char *path, size_t bytes) {{
  void *data = malloc(bytes ? bytes : 1);
  FILE *file = fopen(path, "rb");
  if (!data || !file || fread(data, 1, bytes, file) != bytes) exit(9);
  fclose(file);
  return data;
}}
int main(void) {{
  void *arena = malloc({big}_ARENA_BYTES);
{reads}{makes}  int status = 0;
  for (int run = 0; run < {runs}; ++run) status = {prefix}_run({arguments}arena);
{writes}  printf("%d\\n", status);
{frees}  free(arena);
  return 0;
}}
"""


class CSource:
    """A folder that `--emit c` wrote."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.header = (folder / f"{name}.h").read_text()
        self.source = (folder / f"{name}.c").read_text()
        self.prefix = re.search(r"int (\w+)_run\(", self.header)[1]
        self.arena_bytes = int(re.search(r"_ARENA_BYTES (\d+)", self.header)[1])
        self.outputs = re.findall(r"^/\* Output (\w+): (\w+)\[([0-9,]*)\]", self.header, re.M)
        self.has_state = "_STATE_BYTES" in self.header

    def compile(self, compiler, *flags, output, sources=()):
        command = [compiler, *STRICT, *flags, f"{self.name}.c", *sources, "-o", output, "-lm"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{' '.join(command)}\n{done.stderr[:3000]}")
        return self.folder / output

    def places(self):
        """Memory for the outputs, as the header declares them."""
        def dtype_of(name):
            return numpy.dtype("?" if name == "bool" else "u2" if name == "bf16" else f"{name[0]}{int(name[1:]) // 8}")

        return [numpy.zeros([int(dim) for dim in dims.split(",") if dim], dtype_of(dtype)) for _, dtype, dims in self.outputs]

    def run(self, library, inputs, runs=1):
        """The outputs of the last run, and its answer."""
        code = ctypes.CDLL(str(library))
        arena = numpy.full(self.arena_bytes // 8 + 1, 0x7ff4dead7ff4dead, numpy.uint64)
        outputs = self.places()
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in [*inputs, *outputs]]
        state = numpy.zeros(1)
        if self.has_state:
            state = numpy.full(int(re.search(r"_STATE_BYTES (\d+)", self.header)[1]) // 8 + 1, numpy.nan)
            pointers.append(ctypes.c_void_p(state.ctypes.data))
            code[f"{self.prefix}_reset"](pointers[-1])
        for _ in range(runs):
            answer = code[f"{self.prefix}_run"](*pointers, ctypes.c_void_p(arena.ctypes.data))
        return outputs, answer

    def run_program(self, compiler, runner, inputs):
        """The same in a program, all memory in pieces of its own. `compiler` begins with its name, `runner` may be empty."""
        names = [f"in{i}" for i in range(len(inputs))] + [f"out{i}" for i in range(len(self.outputs))]
        outputs = self.places()
        for i, array in enumerate(inputs):
            numpy.ascontiguousarray(array).tofile(self.folder / f"in{i}.bin")
        main = MAIN.format(
            name=self.name, big=self.prefix.upper(), prefix=self.prefix, runs=2,
            reads="".join(f'  void *in{i} = read_file("in{i}.bin", {a.nbytes});\n' for i, a in enumerate(inputs)),
            makes="".join(f"  void *out{i} = malloc({max(a.nbytes, 1)});\n" for i, a in enumerate(outputs)),
            arguments="".join(f"{name}, " for name in names),
            writes="".join(f'  {{ FILE *f = fopen("out{i}.bin", "wb"); fwrite(out{i}, 1, {a.nbytes}, f); fclose(f); }}\n'
                           for i, a in enumerate(outputs)),
            frees="".join(f"  free({name});\n" for name in names))
        (self.folder / "main.c").write_text(main)
        program = self.compile(compiler[0], "-O1", *compiler[1:], output="program", sources=["main.c"])
        done = subprocess.run([*runner, str(program)], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stderr[:3000])
        return [numpy.fromfile(self.folder / f"out{i}.bin", a.dtype).reshape(a.shape) for i, a in enumerate(outputs)], int(done.stdout)


class CSources(InterpretedTest):
    def emit(self, model, *arguments):
        path = model if isinstance(model, pathlib.Path) else self.save(model, "m.onnx")
        self.tessera("compile", path, "--emit", "c", "-o", "c", "-q", *arguments)
        return CSource(self.folder / "c", path.stem)

    def check(self, model, inputs=None, sanitized=True, bound=BOUND):
        source = self.emit(model)
        model = onnx.load(model) if isinstance(model, pathlib.Path) else model
        inputs = inputs or random_inputs(model)
        want = self.interpreted(self.save(model, "m.onnx"), inputs)
        results = []
        for compiler, level in zip(COMPILERS, ("-O2", "-O0")):
            library = source.compile(compiler, level, "-shared", "-fPIC", output=f"{compiler}.so")
            got, answer = source.run(library, list(inputs.values()))
            self.assertEqual(answer, 0)
            self.assert_agree(want, got, f"{compiler} {level}", bound)
            results.append([array.tobytes() for array in got])
        self.assertEqual(results, results[:1] * len(results), "the compilers' bits")
        if sanitized:
            got, answer = source.run_program([COMPILERS[-1], *SANITIZE], [], list(inputs.values()))
            self.assertEqual(answer, 0)
            self.assert_agree(want, got, "sanitized", bound)
        return source

    def test_nothing_but_c99(self):
        source = self.emit(quantized_conv())
        included = set(re.findall(r"#include <(.*)>", source.header + source.source))
        self.assertLessEqual(included, {"stdint.h", "stddef.h", "math.h", "string.h"})
        for word in ("malloc", "fopen", "printf"):
            self.assertNotIn(word, source.source)
        # The same text every time.
        self.assertEqual(self.emit(quantized_conv()).source, source.source)
        library = source.compile(COMPILERS[0], "-O2", "-shared", "-fPIC", output="symbols.so")
        needed = subprocess.run(["nm", "-D", "-u", str(library)], capture_output=True, text=True, check=True).stdout
        allowed = {"memcpy", "memset", "rintf", "floorf", "sqrtf", "truncf", "ceilf"}
        used = {re.sub("@.*", "", line.split()[-1]) for line in needed.splitlines()}
        self.assertLessEqual({name for name in used if not name.startswith("_")}, allowed)

    def test_bits_are_the_interpreters_for_integers(self):
        source = self.check(quantized_conv())
        self.assertIn("i8", source.source)

    def digits(self):
        folder = find_test_data("real")
        if folder is None:
            self.skipTest("real/ is neither in TESSERA_TEST_DATA nor in ../shared")
        return folder / "mnist-ort-examples", folder / "mnist-opt-wonnx"

    def test_networks(self):
        for folder in self.digits():
            for file in sorted(folder.glob("input_*.npy"))[:2]:
                with self.subTest(file=file):
                    image = numpy.load(file).astype(numpy.float32).reshape(1, 1, 28, 28)
                    self.check(onnx.load(folder / "model.onnx"), {"Input3": image}, sanitized=False)

    def test_a_network_of_int8(self):
        try:
            from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
        except ImportError as missing:
            self.skipTest(str(missing))
        folder = self.digits()[0]
        images = [numpy.load(file).astype(numpy.float32).reshape(1, 1, 28, 28) for file in sorted(folder.glob("input_*.npy"))]

        class Images(CalibrationDataReader):
            def __init__(self):
                self.left = list(images)

            def get_next(self):
                return {"Input3": self.left.pop()} if self.left else None

        quantize_static(folder / "model.onnx", self.folder / "int8.onnx", Images(), quant_format=QuantFormat.QDQ, per_channel=True)
        model = onnx.load(self.folder / "int8.onnx")
        source = self.check(model, {"Input3": images[1]})
        # Bytes and sums of i32, not floats: a quarter of the weights.
        self.assertRegex(source.source, r"static const i8 w\d+\[3200\]")
        self.assertNotRegex(source.source, r"static const f32 w\d+\[3200\]")

    def test_the_bits_of_another_machine(self):
        if not shutil.which("aarch64-linux-gnu-gcc") or not shutil.which("qemu-aarch64"):
            self.skipTest("no aarch64-linux-gnu-gcc or qemu-aarch64 here")
        for model in (quantized_conv(), perceptron()):
            source = self.emit(model)
            inputs = list(random_inputs(model).values())
            here, _ = source.run_program(["gcc"], [], inputs)
            there, _ = source.run_program(["aarch64-linux-gnu-gcc", "-static"], ["qemu-aarch64"], inputs)
            for one, other in zip(here, there):
                self.assertEqual(one.tobytes(), other.tobytes())

    def test_states_lie_in_memory_of_the_caller(self):
        model = text("t = Mul(old, x)\n new = Add(t, x)\n y = Exp(old)", "float[3] x, float[3] old", "float[3] y, float[3] new")
        model.graph.initializer.append(onnx.numpy_helper.from_array(numpy.array([1, 2, 3], numpy.float32), "old"))
        entry = model.metadata_props.add()
        entry.key, entry.value = "tessera.state.old", "new"
        source = self.emit(model)
        library = source.compile(COMPILERS[0], "-O2", "-shared", "-fPIC", output="states.so")
        x, old = numpy.array([1, 0.5, 0.25], numpy.float32), numpy.array([1, 2, 3], numpy.float32)
        for runs in range(1, 5):
            (y,), answer = source.run(library, [x], runs)
            self.assertEqual(answer, 0)
            numpy.testing.assert_allclose(y, numpy.exp(old), rtol=1e-6)
            old = old * x + x

    def test_checks_answer_their_number(self):
        # What the model declares of a value that comes with a run.
        model = text("y = ReduceSum<keepdims = 0>(x, axes)", "float[3,4] x, int64[1] axes", "float[4] y")
        source = self.emit(model)
        library = source.compile(COMPILERS[0], "-O2", "-shared", "-fPIC", output="checks.so")
        x = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        (y,), answer = source.run(library, [x, numpy.array([0])])
        self.assertEqual((answer, y.tolist()), (0, x.sum(0).tolist()))
        _, answer = source.run(library, [x, numpy.array([1])])
        self.assertEqual(answer, 1)
        self.assertIn("1 when ReduceSum", source.header)

    def test_what_is_refused_is_named(self):
        open_size = text("y = Relu(x)", "float[n] x", "float[n] y")
        _, errors = self.tessera("compile", self.save(open_size, "open.onnx"), "--emit", "c", "-o", "c", "--dim", "n=1..9", code=1)
        self.assertIn("TSR-5130", errors)
        self.assertIn("the open size 'n' (1 to 9)", errors)
        small = text("a = Cast<to = 22>(x)\n y = Cast<to = 1>(a)", "float[4] x", "float[4] y")
        _, errors = self.tessera("compile", self.save(small, "small.onnx"), "--emit", "c", "-o", "c", code=1)
        self.assertIn("elements of type i4", errors)
        strings = text("y = StringConcat(x, x)", "string[4] x", "string[4] y")
        _, errors = self.tessera("compile", self.save(strings, "strings.onnx"), "--emit", "c", "-o", "c", code=1)
        self.assertIn("TSR-5130", errors)
        self.assertIn("strings, sequences", errors)
        _, errors = self.tessera("compile", self.save(open_size, "open.onnx"), "--emit", "c", "-o", "-", "--dim", "n=2", code=1)
        self.assertIn("TSR-4064", errors)
        self.assertFalse((self.folder / "c").exists())


class Large(CSources):
    """What takes the compilers longer."""

    def test_squeezenet(self):
        folder = find_test_data("onnx-light/squeezenet")
        if folder is None:
            self.skipTest("onnx-light/ is neither in TESSERA_TEST_DATA nor in ../shared")
        source = self.emit(folder / "model.onnx")
        library = source.compile("gcc", "-O2", "-shared", "-fPIC", output="large.so")
        image, want = (onnx.numpy_helper.to_array(onnx.TensorProto.FromString((folder / "test_data_set_0" / name).read_bytes()))
                       for name in ("input_0.pb", "output_0.pb"))
        got, answer = source.run(library, [image])
        self.assertEqual(answer, 0)
        self.assert_agree([want], got, "squeezenet", 1e-4)


    def test_mlperf_tiny(self):
        """The networks of MLPerf Tiny as their files are: bytes equal the reference's, floats agree."""
        folders = sorted(self.digits()[0].parent.glob("mlperftiny-*"))
        self.assertGreater(len(folders), 4)
        for folder in folders:
            with self.subTest(folder.name):
                name = re.sub(r"\W", "_", folder.name)
                shutil.copy(folder / "model.tflite", self.folder / f"{name}.tflite")
                source = self.emit(self.folder / f"{name}.tflite")
                library = source.compile("gcc", "-O2", "-shared", "-fPIC", output=f"{name}.so")
                file = sorted(folder.glob("input_*_0.npy"))[0]
                want = numpy.load(folder / file.name.replace("input_", "expected_"))
                (got,), answer = source.run(library, [numpy.ascontiguousarray(numpy.load(file))])
                self.assertEqual(answer, 0)
                if want.dtype.kind == "f":
                    self.assert_agree([want], [got], folder.name, 1e-4)
                else:
                    numpy.testing.assert_array_equal(want, got.reshape(want.shape))


class Operators(CSources):
    """A test for each model of c_models."""


for model_name, made in models().items():
    def test(self, model=made):
        self.check(model)
    setattr(Operators, f"test_{model_name}", test)
for inherited in [name for name in dir(CSources) if name.startswith("test_")]:
    setattr(Operators, inherited, None)
    setattr(Large, inherited, None)

if __name__ == "__main__":
    if len(COMPILERS) < 2 or os.environ.get("TESSERA_SANITIZE"):
        print("skipped: gcc and clang are needed, and a tessera without sanitizers")
        sys.exit(77)
    cli_support.main()
