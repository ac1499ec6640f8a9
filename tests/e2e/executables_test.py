#!/usr/bin/env python3
"""`tessera compile --emit exe`: a program that needs libc alone, the outputs of `tessera run`, messages that help.

executables_test.py TESSERA [unittest options]"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support
from cli_support import CliTest, affine, affine_model, conv_model

import numpy
import onnx.parser

X = numpy.linspace(-3, 3, 6, dtype=numpy.float32).reshape(2, 3)


def parsed(text):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{text}')


class Executables(CliTest):
    def program(self, model, *arguments, name="model"):
        self.save(model, "m.onnx")
        self.tessera("compile", "m.onnx", "--emit", "exe", "-o", name, "-q", *arguments)
        return name

    def run_program(self, name, *arguments, code=0):
        # Nothing of the compiler's is in reach.
        done = subprocess.run([f"./{name}", *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env={"PATH": "/nowhere"}, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def fails(self, id, name, *arguments, mentions=()):
        _, errors = self.run_program(name, *arguments, code=1)
        for text in (f"error {id}: ", *mentions):
            self.assertIn(text, errors)

    def save(self, model, name="model.onnx"):
        if isinstance(model, numpy.ndarray):
            numpy.save(self.folder / name, model)
            return name
        return super().save(model, name)

    def test_files_in_order_and_by_name(self):
        program = self.program(affine_model())
        self.save(X, "x.npy")
        y, z = affine(X)
        self.run_program(program, "x.npy", "y.npy", "z.npy")
        numpy.testing.assert_array_equal(self.load_npy("y.npy"), y)
        numpy.testing.assert_array_equal(self.load_npy("z.npy"), z)
        shown, _ = self.run_program(program, "z=only.npy", "x=x.npy", "--threads", 1)
        numpy.testing.assert_array_equal(self.load_npy("only.npy"), z)
        self.assertRegex(shown, r"^y: f32\[2,3\] -2\.5 ")

    def test_it_is_one_file_that_needs_libc_alone(self):
        program = self.program(conv_model())
        os.makedirs(self.folder / "elsewhere")
        shutil.move(self.folder / program, self.folder / "elsewhere/other")
        x = numpy.random.default_rng(1).random((1, 3, 16, 16), numpy.float32)
        self.save(x, "x.npy")
        self.run_program("elsewhere/other", "x.npy", "y.npy")
        self.tessera("run", "m.onnx", "--input", "@x.npy", "--output", "@want.npy")
        numpy.testing.assert_array_equal(self.load_npy("y.npy"), self.load_npy("want.npy"))
        # Without optimisation, functions of the C++ library are called where they are not written out otherwise.
        optimised = os.environ.get("TESSERA_OPTIMISED", "1") == "1"
        if optimised and shutil.which("readelf") and not os.environ.get("TESSERA_SANITIZE"):
            text = subprocess.run(["readelf", "-d", self.folder / "elsewhere/other"], capture_output=True, text=True, check=True).stdout
            needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\]", text))
            self.assertTrue(needed and all(re.match(r"(libc|libm|libpthread|libdl|ld-linux.*)\.so", name) for name in needed), needed)
            size = (self.folder / "elsewhere/other").stat().st_size
            self.tessera("compile", "m.onnx", "-o", "m.so", "-q")
            self.assertLess(size - (self.folder / "m.so").stat().st_size, 250_000)

    def test_the_same_bytes_twice(self):
        first = (self.folder / self.program(affine_model())).read_bytes()
        self.assertEqual(first, (self.folder / self.program(affine_model(), name="again")).read_bytes())

    def test_open_sizes(self):
        model = parsed("m (float[n, 3] x) => (float[n, 3] y, int64[k, r] z) { y = Relu(x)\n z = NonZero(x) }")
        program = self.program(model, "--dim", "n=1..20")
        for rows in (1, 7, 20):
            x = numpy.random.default_rng(rows).integers(-1, 2, (rows, 3)).astype(numpy.float32)
            self.save(x, "x.npy")
            self.run_program(program, "x.npy", "y.npy", "z.npy")
            numpy.testing.assert_array_equal(self.load_npy("y.npy"), numpy.maximum(x, 0))
            numpy.testing.assert_array_equal(self.load_npy("z.npy"), numpy.stack(numpy.nonzero(x)))
        self.save(numpy.zeros((21, 3), numpy.float32), "x.npy")
        self.fails("TSR-7034", program, "x.npy", mentions=["21"])
        shown, _ = self.run_program(program, "--help")
        self.assertIn("x: f32[n,3]", shown)
        self.assertIn("n: 1 to 20", shown)

    def test_element_types_and_orders(self):
        model = parsed("m (int8[2,3] a, bool[2] b, double[2,3] c, float16[2] d) => (int8[2,3] p, bool[2] q, double[2,3] r, float16[2] s)"
                       "{ p = Neg(a)\n q = Not(b)\n r = Neg(c)\n s = Neg(d) }")
        program = self.program(model)
        a, b = numpy.arange(6, dtype=numpy.int8).reshape(2, 3), numpy.array([True, False])
        c, d = numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)), numpy.array([1, -2], ">f2")
        for name, array in (("a", a), ("b", b), ("c", c), ("d", d)):
            self.save(array, f"{name}.npy")
        self.run_program(program, "a.npy", "b.npy", "c.npy", "d.npy", "p.npy", "q.npy", "r.npy", "s.npy")
        for name, want in (("p", -a), ("q", ~b), ("r", -c), ("s", -d)):
            got = self.load_npy(f"{name}.npy")
            numpy.testing.assert_array_equal(got, want)
            self.assertEqual(got.dtype, want.dtype.newbyteorder("="))

    def test_what_is_printed(self):
        numbers = numpy.array([0, 1, 1.5, 5.9604645e-08, 65504, 0.333], numpy.float32)
        kinds = {"uint64": numpy.uint64, "uint32": numpy.uint32, "uint16": numpy.uint16, "int16": numpy.int16, "int8": numpy.int8,
                 "float16": numpy.float16, "double": numpy.float64}
        for text, kind in kinds.items():
            program = self.program(parsed(f"g ({text}[6] x) => ({text}[6] y) {{ y = Identity(x) }}"), name=text)
            values = (numbers if "f" in numpy.dtype(kind).kind else numpy.arange(6)).astype(kind)
            self.save(values, "x.npy")
            shown, _ = self.run_program(program, "x.npy")
            printed = numpy.array([float(word) for word in shown.split("] ")[1].split()])
            numpy.testing.assert_allclose(printed, values.astype(numpy.float64), rtol=1e-5, err_msg=text)
        program = self.program(parsed("g (float[6] x) => (bfloat16[6] y) { y = Cast<to = 16>(x) }"), name="bfloat16")
        self.save(numbers, "x.npy")
        shown, _ = self.run_program(program, "x.npy")
        printed = [float(word) for word in shown.split("] ")[1].split()]
        numpy.testing.assert_allclose(printed, numbers, rtol=1e-2)

    def test_names_with_slashes_and_equals(self):
        text = '<ir_version: 10, opset_import: ["": 21]>\ng (float[2,3] x) => (float[2,3] y) { y = Relu(x) }'
        model = onnx.parser.parse_model(text)
        model.graph.input[0].name = model.graph.node[0].input[0] = "/in/a=b"
        model.graph.output[0].name = model.graph.node[0].output[0] = "/fc/Relu_output_0"
        program = self.program(model)
        self.save(X, "x.npy")
        self.run_program(program, "/in/a=b=x.npy", "/fc/Relu_output_0=y.npy")
        numpy.testing.assert_array_equal(self.load_npy("y.npy"), numpy.maximum(X, 0))

    def test_foreign_files_are_kept(self):
        self.save(affine_model(), "m.onnx")
        (self.folder / "mine").write_text("#!/bin/sh\n")
        _, errors = self.tessera("compile", "m.onnx", "--emit", "exe", "-o", "mine", code=1)
        self.assertIn("TSR-4063", errors)
        self.assertEqual((self.folder / "mine").read_text(), "#!/bin/sh\n")
        self.tessera("compile", "m.onnx", "--emit", "exe", "-o", "mine", "--force", "-q")
        self.tessera("compile", "m.onnx", "--emit", "exe", "-o", "mine", "-q")  # a program of ours
        (self.folder / "c").mkdir()
        (self.folder / "c" / "m.c").write_text("int mine;\n")
        _, errors = self.tessera("compile", "m.onnx", "--emit", "c", "-o", "c", code=1)
        self.assertIn("TSR-4063", errors)
        self.tessera("compile", "m.onnx", "--emit", "c", "-o", "c", "--force", "-q")
        self.tessera("compile", "m.onnx", "--emit", "c", "-o", "c", "-q")

    def test_scalars_and_nothing(self):
        program = self.program(parsed("m (float x, float[0, 3] e) => (float y, float[0, 3] f) { y = Neg(x)\n f = Neg(e) }"))
        self.save(numpy.array(2, numpy.float32), "x.npy")
        self.save(numpy.zeros((0, 3), numpy.float32), "e.npy")
        self.run_program(program, "x.npy", "e.npy", "y.npy", "f.npy")
        self.assertEqual((self.load_npy("y.npy").shape, self.load_npy("y.npy"), self.load_npy("f.npy").shape), ((), -2, (0, 3)))

    def test_values(self):
        program = self.program(parsed(
            "m (float[4] x, int64 n) => (seq(float[2]) h, float[k] y) { two = Constant<value = int64 {2}>()\n h = SplitToSequence(x, two)\n"
            " y = SequenceAt(h, n) }"))
        self.save(numpy.arange(4, dtype=numpy.float32), "x.npy")
        self.save(numpy.array(1), "n.npy")
        shown, _ = self.run_program(program, "x.npy", "n.npy", "y=y.npy")
        numpy.testing.assert_array_equal(self.load_npy("y.npy"), [2, 3])
        self.assertIn("h: seq(f32[", shown)
        self.fails("TSR-4013", program, "x.npy", "n.npy", "h=h.npy", mentions=["h"])
        strings = self.program(parsed("m (string[2] x) => (string[2] y) { y = Identity(x) }"), name="strings")
        self.fails("TSR-4013", strings, "x.npy", mentions=["x"])

    def test_bench(self):
        program = self.program(affine_model())
        shown, _ = self.run_program(program, "--bench", 5, "--threads", 1)
        self.assertRegex(shown, r"^5 runs on 1 threads: median \d+\.\d+ ms, min ")

    def test_messages(self):
        program = self.program(affine_model())
        self.save(X, "x.npy")
        self.fails("TSR-6301", program, mentions=["'x'", "--help"])
        self.fails("TSR-4011", program, "w=x.npy", mentions=["'w'"])
        self.fails("TSR-4011", program, "x.npy", "x=x.npy", mentions=["two files"])
        self.fails("TSR-4011", program, "x.npy", "a.npy", "b.npy", "c.npy", mentions=["c.npy", "1 inputs and 2 outputs"])
        self.fails("TSR-4001", program, "--fast", mentions=["--fast"])
        self.fails("TSR-4001", program, "--bench", "many")
        self.fails("TSR-6211", program, "missing.npy", mentions=["missing.npy"])
        self.fails("TSR-6211", program, "m.onnx")
        self.save(X.astype(numpy.complex64), "c.npy")
        self.fails("TSR-6212", program, "c.npy", mentions=["astype"])
        self.save(X.astype(numpy.float64), "d.npy")
        self.fails("TSR-7031", program, "d.npy")
        self.save(X[:1], "s.npy")
        self.fails("TSR-7033", program, "s.npy")
        self.fails("TSR-6101", program, "x.npy", "nowhere/y.npy", mentions=["nowhere/y.npy"])
        whole = (self.folder / "x.npy").read_bytes()
        (self.folder / "short.npy").write_bytes(whole[:-1])
        self.fails("TSR-6211", program, "short.npy")
        (self.folder / "huge.npy").write_bytes(whole.replace(b"(2, 3)", b"(99999999999999, 99999999)"))
        self.fails("TSR-6211", program, "huge.npy")
        shown, _ = self.run_program(program, "--help")
        for text in ("x: f32[2,3]", "z: f32[2,3]", "--bench N"):
            self.assertIn(text, shown)

    def test_damage_is_found(self):
        program = self.program(affine_model())
        contents = bytearray((self.folder / program).read_bytes())
        (self.folder / "cut").write_bytes(contents[:-100])
        contents[-200] ^= 1
        (self.folder / "flipped").write_bytes(contents)
        for name in ("cut", "flipped"):
            (self.folder / name).chmod(0o755)
        self.fails("TSR-7003", "cut")
        _, errors = self.run_program("flipped", "--help", code=1)
        self.assertIn("is damaged", errors)

    def test_other_machines_are_refused(self):
        self.save(affine_model(), "m.onnx")
        _, errors = self.tessera("compile", "m.onnx", "--emit", "exe", "-o", "arm", "--target", "aarch64-unknown-linux-gnu", code=1)
        self.assertIn("TSR-4078", errors)
        self.assertFalse((self.folder / "arm").exists())
        _, errors = self.tessera("compile", "m.onnx", "--emit", "exe", "-o", "-", code=1)
        self.assertIn("TSR-4064", errors)
        _, errors = self.tessera("compile", "m.onnx", "--emit", "exe", "-o", "m.onnx", code=1)
        self.assertIn("TSR-4062", errors)


if __name__ == "__main__":
    cli_support.main()
