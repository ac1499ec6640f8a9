#!/usr/bin/env python3
"""Files that are written over, sizes that inputs decide, options that modules refuse.

cli_files_test.py TESSERA [unittest options]"""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support
from cli_support import CliTest, affine, affine_model, conv_model, make_model

import numpy
import onnx
from case_folder import write_case
from onnx import TensorProto, helper

OPEN = ["N", 3, "H", "W"]


def open_model(dims=OPEN, out=OPEN):
    """y = relu(x) + x: any shape."""
    nodes = [helper.make_node("Relu", ["x"], ["t"], name="r"), helper.make_node("Add", ["t", "x"], ["y"], name="a")]
    return make_model(nodes, [("x", TensorProto.FLOAT, dims)], [("y", TensorProto.FLOAT, out)])


def two_inputs():
    """c = a + b over [batch, 4] each, and d = e + 1 over [other]."""
    one = numpy.array([1], numpy.float32)
    nodes = [helper.make_node("Add", ["a", "b"], ["c"], name="ab"), helper.make_node("Add", ["e", "one"], ["d"], name="e1")]
    inputs = [("a", TensorProto.FLOAT, ["batch", 4]), ("b", TensorProto.FLOAT, ["batch", 4]), ("e", TensorProto.FLOAT, ["other"])]
    outputs = [("c", TensorProto.FLOAT, ["batch", 4]), ("d", TensorProto.FLOAT, ["other"])]
    return make_model(nodes, inputs, outputs, {"one": one})


def want(x):
    return numpy.maximum(x, 0) + x


class Outputs(CliTest):
    """Nothing that is read is written over, and nothing of somebody else's."""

    def kept(self, name, arguments, ident):
        before = (self.folder / name).read_bytes()
        _, errors = self.tessera(*arguments, code=1)
        self.assertRegex(errors, rf"^error {ident}: ")
        self.assertEqual((self.folder / name).read_bytes(), before)
        self.assertEqual(self.files("*.tmp-*"), [])

    def test_the_model_is_kept(self):
        self.save(affine_model())
        (self.folder / "soft.so").symlink_to("model.onnx")
        (self.folder / "hard.so").hardlink_to(self.folder / "model.onnx")
        for output in ("model.onnx", "./model.onnx", str(self.folder / "model.onnx"), "soft.so", "hard.so"):
            for emit in ("module", "graph", "obj"):
                self.kept("model.onnx", ["compile", "model.onnx", "-o", output, "--emit", emit, "--force"], "TSR-4062")
        self.assertTrue((self.folder / "soft.so").is_symlink())
        self.kept("model.onnx", ["reduce", "model.onnx", "-o", "model.onnx"], "TSR-4062")
        self.kept("model.onnx", ["diff", "model.onnx", "-o", "."], "TSR-4062")
        self.kept("model.onnx", ["bisect", "model.onnx", "-o", "."], "TSR-4062")
        self.kept("model.onnx", ["run", "model.onnx", "--profile", "model.onnx"], "TSR-4062")
        self.tessera("compile", "model.onnx", "-o", "m.so")
        self.kept("m.so", ["run", "m.so", "--profile", "m.so"], "TSR-4062")

    def test_external_data_are_kept(self):
        model = affine_model((2, 400))
        onnx.save(
            model,
            self.folder / "model.onnx",
            save_as_external_data=True,
            location="weights.bin",
            size_threshold=16,
        )
        self.assertIn("weights.bin", self.files())
        self.kept("weights.bin", ["compile", "model.onnx", "-o", "weights.bin", "--force"], "TSR-4062")

    def test_other_files_are_kept_without_force(self):
        self.save(affine_model())
        for name, contents in (("notes.txt", b"mine"), ("true.so", pathlib.Path("/bin/true").read_bytes())):
            (self.folder / name).write_bytes(contents)
            self.kept(name, ["compile", "model.onnx", "-o", name], "TSR-4063")
            self.tessera("compile", "model.onnx", "-o", name, "--force")
            self.tessera("run", f"./{name}", "-i", "random:0")
        (self.folder / "empty").write_bytes(b"")
        self.tessera("compile", "model.onnx", "-o", "empty")

    def test_what_is_replaced_is_said(self):
        self.save(affine_model())
        _, errors = self.tessera("compile", "model.onnx", "-o", "m.so")
        self.assertEqual(errors, "")
        _, errors = self.tessera("compile", "model.onnx", "-o", "m.so", "-O1")
        self.assertEqual(errors, "")
        self.save(conv_model(), "other.onnx")
        _, errors = self.tessera("compile", "other.onnx", "-o", "m.so")
        self.assertRegex(errors, r"^replaced m\.so, a module of 'model' for x86_64\S*, \S+\n$")
        _, errors = self.tessera("compile", "other.onnx", "-o", "m.so", "--target", "x86-64-v2")
        self.assertRegex(errors, r"^replaced m\.so, a module of this model for x86_64\S*, \S+\n$")
        _, errors = self.tessera("compile", "model.onnx", "-o", "m.so", "-q")
        self.assertEqual(errors, "")

    def test_the_default_output_replaces_no_other_model(self):
        self.save(affine_model())
        self.tessera("compile", "model.onnx")
        self.save(affine_model((4, 3)), "sub/model.onnx")  # of other sizes: the same model
        _, errors = self.tessera("compile", "sub/model.onnx")
        self.assertRegex(errors, r"^replaced model\.so, a module of 'model' with other weights or sizes for ")
        self.save(conv_model(), "sub/model.onnx")
        self.kept("model.so", ["compile", "sub/model.onnx"], "TSR-4065")
        self.kept("model.so", ["compile", "model.onnx", "--target", "aarch64-unknown-linux-gnu"], "TSR-4065")
        self.tessera("compile", "sub/model.onnx", "-o", "model.so")
        self.kept("model.so", ["compile", "model.onnx"], "TSR-4065")
        self.tessera("compile", "model.onnx", "--force")

    def test_standard_output(self):
        self.save(affine_model())
        done = subprocess.run(
            [cli_support.TESSERA, "compile", "model.onnx", "-o", "-"],
            cwd=self.folder, capture_output=True, check=True, env=self.environment,
        )
        self.assertEqual(done.stderr, b"")
        (self.folder / "piped.so").write_bytes(done.stdout)
        self.tessera("compile", "model.onnx", "-o", "m.so", "-q")
        self.assertEqual(done.stdout, (self.folder / "m.so").read_bytes())
        self.tessera("run", "piped.so", "-i", "random:0")
        self.assertNotIn("-", self.files())


class Sizes(CliTest):
    def setUp(self):
        super().setUp()
        self.save(open_model())
        self.x = numpy.random.default_rng(0).standard_normal((1, 3, 5, 7)).astype(numpy.float32)
        self.spec = self.save_npy("x.npy", self.x)

    def test_run_takes_the_sizes_of_its_inputs(self):
        for engine in ("native", "interp"):
            _, errors = self.tessera("run", "model.onnx", "-i", self.spec, "-o", "@y.npy", "--engine", engine)
            self.assertEqual(errors, "input 'x' taken as 1x3x5x7\n")
            numpy.testing.assert_allclose(self.load_npy("y.npy"), want(self.x), rtol=1e-6)
        for shape in ("2x3x1x9", "1x3x0x4"):
            text, errors = self.tessera("run", "model.onnx", "-i", f"{shape}xf32=random:1")
            self.assertEqual(errors, f"input 'x' taken as {shape}\n")
            self.assertIn(f"f32[{shape.replace('x', ',')}]", text)

    def test_other_verbs_take_them_too(self):
        for verb in (["bench", "model.onnx", "--repeat", 3], ["diff", "model.onnx"], ["bisect", "model.onnx"]):
            _, errors = self.tessera(*verb, "-i", self.spec)
            self.assertIn("input 'x' taken as 1x3x5x7\n", errors)

    def test_only_what_nothing_fixes_is_asked_for(self):
        _, errors = self.tessera("run", "model.onnx", code=1)
        self.assertRegex(errors, r"^error TSR-1020: .*\n    input 'x': f32\[N,3,H,W\]\n")
        self.assertIn("  hint:  add --shape x=1x3x224x224, with your sizes, or a range of sizes: --dim N=1..8\n", errors)
        self.save(two_inputs(), "two.onnx")
        _, errors = self.tessera("run", "two.onnx", "-i", "b=3x4xf32=1", code=1)
        self.assertIn("    input 'e': f32[other]\n", errors)
        self.assertNotIn("input 'a'", errors)
        _, errors = self.tessera("run", "two.onnx", "-i", "b=3x4xf32=1", "--dim", "other=2")
        self.assertIn("input 'b' taken as 3x4\n", errors)
        self.assertIn("input 'a': random", errors)
        _, errors = self.tessera("run", "two.onnx", "-i", "a=3x4xf32=1", "-i", "b=2x4xf32=1", "-i", "e=1xf32=0", code=1)
        self.assertRegex(errors, r"^error TSR-1022: input 'b' got 2x4: dimension 'batch' is 2 there, and 3 in input 'a'")
        _, errors = self.tessera("run", "model.onnx", "-i", "5x7xf32=1", code=1)
        self.assertRegex(errors, r"^error TSR-6303: input 'x' got a tensor of 2 dimensions, 5x7\n")

    def test_options_come_first(self):
        _, errors = self.tessera("run", "model.onnx", "-i", self.spec, "--shape", "x=1x3x5x8", code=1)
        self.assertRegex(errors, r"^error TSR-6303: ")
        _, errors = self.tessera("run", "model.onnx", "-i", self.spec, "--dim", "H=5")
        self.assertEqual(errors, "input 'x' taken as 1x3x5x7\n")

    def test_a_picture_brings_its_own_size(self):
        import struct
        import zlib

        rows = b"".join(b"\0" + bytes([10 * y + x for x in range(4) for _ in range(3)]) for y in range(3))
        chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 3, 8, 2, 0, 0, 0))
        png += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
        (self.folder / "p.png").write_bytes(png)
        _, errors = self.tessera("run", "model.onnx", "-i", "@p.png", "--scale", 1, "-o", "@y.npy")
        self.assertEqual(errors, "input 'x' taken as 1x3x3x4\n")
        numpy.testing.assert_array_equal(self.load_npy("y.npy")[0, 1, 2], 2 * numpy.array([20, 21, 22, 23], numpy.float32))

    def test_axes_by_number_and_ranges_in_shapes(self):
        _, errors = self.tessera("run", "model.onnx", "--dim", "x[0]=1", "--dim", "x[2]=4", "--dim", "W=6")
        self.assertIn("input 'x': random", errors)
        self.tessera("compile", "model.onnx", "--shape", "x=1x3x2..6:2x3..5", "-o", "open.so", "-q")
        text, _ = self.tessera("inspect", "open.so")
        self.assertIn("f32[1,3,H,W]", text)
        for shape in ((1, 3, 2, 3), (1, 3, 6, 5), (1, 3, 4, 4)):
            x = numpy.random.default_rng(1).standard_normal(shape).astype(numpy.float32)
            self.tessera("run", "open.so", "-i", self.save_npy("r.npy", x), "-o", "@y.npy")
            numpy.testing.assert_allclose(self.load_npy("y.npy"), want(x), rtol=1e-6)
        self.tessera("run", "open.so", "-i", "1x3x7x4xf32=0", code=1)
        for dims, message in (
            (["x[1]=4"], r"--dim x\[1\]=4 contradicts the model: dimension 1 is 3"),
            (["x[2]=4", "H=5"], r"--dim x\[2\]=4: dimension 'H' is 5 elsewhere"),
        ):
            flags = [part for dim in dims for part in ("--dim", dim)]
            _, errors = self.tessera("compile", "model.onnx", *flags, "-o", "no.so", code=1)
            self.assertRegex(errors, rf"^error TSR-1022: {message}\n")
        self.tessera("compile", "model.onnx", "--shape", "x=1x3x2..6x3..5", "--dim", "x[1]=3", "-o", "open.so", "-q")

    def test_cases_of_several_sizes(self):
        folder = self.folder / "case"
        write_case(folder, open_model(), [([x], [want(x)]) for x in (self.x, self.x[:, :, :2])])
        text, _ = self.tessera("verify", "case")
        self.assertIn("1 passed, 0 failed", text)
        (folder / "test_data_set_1" / "output_0.pb").write_bytes((folder / "test_data_set_0" / "output_0.pb").read_bytes())
        text, _ = self.tessera("verify", "case", code=2)
        self.assertIn("0 passed, 1 failed", text)


class Modules(CliTest):
    def setUp(self):
        super().setUp()
        self.save(affine_model())
        self.tessera("compile", "model.onnx", "-o", "m.so", "-q")
        self.save(open_model(), "open.onnx")
        self.tessera("compile", "open.onnx", "-o", "open.so", "-q", "--shape", "x=1..4x3x5x2..9")

    def test_what_belongs_to_compile_is_refused(self):
        for verb in ("run", "bench"):
            for flags, names in (
                (["-O0"], "-O belongs"),
                (["--precision", "bf16"], "--precision belongs"),
                (["--target", "native", "--time-passes"], "--target, --time-passes belong"),
            ):
                _, errors = self.tessera(verb, "m.so", *flags, code=1)
                self.assertRegex(errors, rf"^error TSR-4060: {names} to compile: 'm\.so' is compiled already\n")
                self.assertRegex(errors, r"\n  legal: this module was compiled with -O3 f32 for \S+\n")
        self.tessera("run", "m.so", "--threads", 1, "--no-cache")

    def test_sizes_choose_among_those_that_are_open(self):
        text, errors = self.tessera("run", "open.so", "--dim", "N=2", "--dim", "x[3]=7")
        self.assertIn("f32[2,3,5,7]", text)
        self.assertEqual(errors, "input 'x': random (seed 0); give a tensor with --input\n")
        text, _ = self.tessera("run", "open.so", "--shape", "x=4x3x5x9")
        self.assertIn("f32[4,3,5,9]", text)
        self.tessera("bench", "open.so", "--shape", "x=4x3x5x9", "--repeat", 2)
        for flags, message in (
            ([], r"TSR-4012: input 'x' is f32\[\?,3,5,\?\]: its open dimensions need values"),
            (["--dim", "M=1"], "TSR-4061: --dim M: the module has no open dimension of that name"),
            (["--dim", "N=1..2"], r"TSR-4061: --dim N=1\.\.2: a run has one size"),
            (["--shape", "x=1x3x6x2"], r"TSR-4061: --shape x=1x3x6x2: the input is f32\[\?,3,5,\?\]"),
            (["--shape", "z=1"], "TSR-4061: --shape z: the module has no such input"),
            (["--shape", "x=5x3x5x9"], "TSR-70"),
        ):
            _, errors = self.tessera("run", "open.so", *flags, code=1)
            self.assertRegex(errors, rf"(?m)^error {message}")
        _, errors = self.tessera("bench", "open.so", code=1)
        self.assertIn("legal: a tensor of one size, such as --input x=1x3x5x128xf32=random:0\n", errors)
        self.assertIn("hint:  or choose the size alone: --shape x=1x3x5x128\n", errors)

    def test_sizes_of_a_fixed_module(self):
        self.tessera("run", "m.so", "--shape", "x=2x3")
        _, errors = self.tessera("run", "m.so", "--shape", "x=3x3", code=1)
        self.assertRegex(errors, r"^error TSR-4061: --shape x=3x3: the input is f32\[2,3\]\n  legal: the module's inputs are fixed: 'x': f32\[2,3\]\n")


if __name__ == "__main__":
    cli_support.main()
