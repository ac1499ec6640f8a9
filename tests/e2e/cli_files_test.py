#!/usr/bin/env python3
"""Files that are written over, sizes that inputs decide, options that modules refuse.

cli_files_test.py TESSERA [unittest options]"""

import json
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support
from cli_support import CliTest, affine, affine_model, conv_model, make_model

import numpy
import onnx
import onnxruntime
from case_folder import write_case
from onnx import TensorProto, helper

OPEN = ["N", 3, "H", "W"]
OTHER_INTERFACE = pathlib.Path(__file__).resolve().parent.parent / "golden/modules/interface5.so"


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
        self.tessera("compile", "model.onnx", "-o", "older.so")
        contents = bytearray((self.folder / "older.so").read_bytes())
        contents[-1] = 1  # a module of another format
        (self.folder / "older.so").write_bytes(contents)
        self.tessera("compile", "model.onnx", "-o", "older.so")
        self.tessera("run", "older.so", "-i", "random:0")
        shutil.copy(OTHER_INTERFACE, self.folder / "older.so")  # of another runtime interface
        self.tessera("compile", "model.onnx", "-o", "older.so")
        self.tessera("run", "older.so", "-i", "random:0")
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
        self.assertIn("legal: a tensor of one size, such as --input x=1x3x5x224xf32=random:0\n", errors)
        self.assertIn("hint:  or choose the size alone: --shape x=1x3x5x224\n", errors)

    def test_sizes_of_a_fixed_module(self):
        self.tessera("run", "m.so", "--shape", "x=2x3")
        _, errors = self.tessera("run", "m.so", "--shape", "x=3x3", code=1)
        self.assertRegex(errors, r"^error TSR-4061: --shape x=3x3: the input is f32\[2,3\]\n")
        self.assertIn("\n  legal: the module's inputs are fixed: 'x': f32[2,3]\n", errors)


class Forms(CliTest):
    """Tensors as people write them, what is printed of them, and models in other formats."""

    def setUp(self):
        super().setUp()
        self.save(affine_model())

    def elements(self, *arguments):
        return json.loads(self.tessera("run", "model.onnx", "--json", *arguments)[0])["outputs"]

    def test_what_is_left_out_is_the_model_s(self):
        w, b = numpy.array([1, 2, 3]), 0.5
        for spec, x in (
            ("x=2", numpy.full((2, 3), 2)),
            ("x=1,2,3,4,5,6", numpy.arange(1, 7).reshape(2, 3)),
            ("2x3=-1.5", numpy.full((2, 3), -1.5)),
            ("x=2x3xf32=4", numpy.full((2, 3), 4)),
        ):
            numpy.testing.assert_allclose(self.elements("-i", spec)[0]["values"], (x * w + b).ravel(), rtol=1e-6)
        drawn = self.elements("-i", "x=random:0")
        for spec in ("2x3", "2x3xf32", "x=2x3", "x=2x3xf32", "2x3=random"):
            self.assertEqual(self.elements("-i", spec), drawn, spec)

    def test_json_has_ranges_and_elements(self):
        y = self.elements("-i", "x=1,2,3,4,5,-6")[0]
        values = numpy.array([1.5, 4.5, 9.5, 4.5, 10.5, -17.5])
        self.assertEqual((y["min"], y["max"], y["not_finite"]), (-17.5, 10.5, 0))
        self.assertAlmostEqual(y["mean"], values.mean())
        self.assertEqual(y["values"], list(values))
        y = self.elements("-i", "2x3xf32=inf")[0]
        self.assertEqual((y["not_finite"], y["values"], "min" in y), (6, [None] * 6, False))
        told = json.loads(self.tessera("compile", "model.onnx", "-o", "m.so", "--json")[0])
        self.assertEqual((told["output"], told["bytes"]), ("m.so", (self.folder / "m.so").stat().st_size))
        self.assertGreater(told["kernels"], 0)
        self.assertGreater(told["seconds"], 0)

    def test_a_model_in_other_formats(self):
        x = ("-i", "x=1,2,3,4,5,-6")
        want = self.elements(*x)
        self.assertEqual(self.tessera("export", "model.onnx", "-o", "m.graph")[0].split(":")[0], "m.graph")
        told = json.loads(self.tessera("export", "m.graph", "-o", "again.onnx", "--json")[0])
        self.assertEqual((told["format"], told["inputs"]), ("onnx", [{"name": "x", "type": "f32[2,3]"}]))
        for model in ("m.graph", "again.onnx"):
            self.assertEqual(json.loads(self.tessera("run", model, "--json", *x)[0])["outputs"], want)
        onnx.checker.check_model(str(self.folder / "again.onnx"))
        text, _ = self.tessera("export", "again.onnx", "-o", "-")
        self.assertEqual(text.split("\n", 1)[1], (self.folder / "m.graph").read_text().split("\n", 1)[1])
        _, errors = self.tessera("export", "model.onnx", "-o", "m.txt", code=1)
        self.assertIn("says no format", errors)
        before = (self.folder / "m.graph").read_bytes()
        _, errors = self.tessera("export", "m.graph", "-o", "./m.graph", code=1)
        self.assertRegex(errors, "^error TSR-4062: ")
        self.assertEqual((self.folder / "m.graph").read_bytes(), before)

    def test_a_model_in_json(self):
        value = helper.make_tensor_value_info
        body = helper.make_graph(
            [helper.make_node("Mul", ["v", "w"], ["v_next"]), helper.make_node("Identity", ["go"], ["go_next"])],
            "body",
            [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, ["n", 3])],
            [value("go_next", TensorProto.BOOL, []), value("v_next", TensorProto.FLOAT, ["n", 3])],
        )
        nodes = [
            helper.make_node("Clip", ["x", "least"], ["c"], name="clip"),
            helper.make_node("Cast", ["c"], ["d"], name="cast", to=TensorProto.DOUBLE),
            helper.make_node("Cast", ["d"], ["e"], name="back", to=TensorProto.FLOAT),
            helper.make_node("LeakyRelu", ["e"], ["f"], name="leaky", alpha=0.125),
            helper.make_node("Loop", ["three", "", "f"], ["y"], name="loop", body=body),
            helper.make_node("ReduceMean", ["y"], ["z"], name="mean", axes=[-1], keepdims=0),
        ]
        constants = {"w": numpy.array([1.5, -2, 0.25], numpy.float32), "three": numpy.int64(3), "least": numpy.float32(-numpy.inf)}
        outputs = [("y", TensorProto.FLOAT, ["n", 3]), ("z", TensorProto.FLOAT, ["n"])]
        model = make_model(nodes, [("x", TensorProto.FLOAT, ["n", 3])], outputs, constants)
        for initializer in model.graph.initializer:  # one as a list of numbers, the others as bytes
            if initializer.name == "w":
                initializer.ClearField("raw_data")
                initializer.float_data.extend(constants["w"])
        self.save(model, "m.onnx")
        onnx.save_model(model, self.folder / "m.onnxjson", format="json")
        x = ("-i", "x=1,2,3,-4,5,-6", "--shape", "x=2x3")
        want = json.loads(self.tessera("run", "m.onnx", "--json", *x)[0])["outputs"]
        self.assertEqual(json.loads(self.tessera("run", "m.onnxjson", "--json", *x)[0])["outputs"], want)
        # Whatever looks at an ONNX file looks at it in JSON, too.
        told = {name: json.loads(self.tessera("inspect", name, "--json")[0]) for name in ("m.onnx", "m.onnxjson")}
        for key in ("kind", "inputs", "outputs", "operators", "nodes", "inner_nodes", "weights", "opsets"):
            self.assertEqual(told["m.onnx"][key], told["m.onnxjson"][key], key)
        explained = [json.loads(self.tessera("explain", name, "--json", "--shape", "x=2x3")[0]) for name in told]
        self.assertEqual(explained[0]["nodes"], explained[1]["nodes"])
        for against in ("interp", "onnxruntime"):
            for verb in ("diff", "bisect")[: 2 if against == "interp" else 1]:
                found = json.loads(self.tessera(verb, "m.onnxjson", "--against", against, "--json", *x, TESSERA_PYTHON=sys.executable)[0])
                self.assertTrue(found["agrees"], (verb, found))
        found = json.loads(self.tessera("reduce", "m.onnxjson", *x, "-q", "--json", "--command",
                                        "if grep -q Loop {model}; then exit 7; fi")[0])
        self.assertEqual((found["failure"], found["nodes"], found["output"]), ("exit 7", 1, "m-reduced.onnx"))
        # As a case: with an output that does not agree, and then with the right one.
        case = self.folder / "case"
        (case / "test_data_set_0").mkdir(parents=True)
        (case / "model.onnxjson").write_text((self.folder / "m.onnxjson").read_text())
        given = numpy.array([[1, 2, 3], [-4, 5, -6]], numpy.float32)
        results = onnxruntime.InferenceSession(self.folder / "m.onnx").run(None, {"x": given})
        for right in (False, True):
            for stem, values in (("input", [given]), ("output", [r if right else r + 1 for r in results])):
                for i, value in enumerate(values):
                    path = case / "test_data_set_0" / f"{stem}_{i}.pb"
                    path.write_bytes(onnx.numpy_helper.from_array(value).SerializeToString())
            self.tessera("verify", "case", code=0 if right else 2)
        text = (self.folder / "m.onnxjson").read_text()
        again = json.loads(text)
        self.assertTrue(again["graph"]["node"] and "initializer" in again["graph"])
        for broken, says in (
            (text[:-20], "the text is no JSON"),
            (text.replace('"opset_import"', '"opset_imports"').replace('"opsetImport"', '"opsetImports"'), "is unknown"),
            (text.replace('"LeakyRelu"', "7"), "op_?[tT]ype is no text"),
            (text.replace('"FLOAT"', '"FLOTE"'), 'is "FLOTE"'),
        ):
            (self.folder / "broken.onnxjson").write_text(broken)
            _, errors = self.tessera("run", "broken.onnxjson", *x, code=1)
            self.assertRegex(errors, rf"^error TSR-1002: 'broken.onnxjson' is not an ONNX model in JSON: .*{says}")

    def test_a_model_with_open_sizes_as_a_graph(self):
        self.save(open_model(), "open.onnx")
        sizes = ("--dim", "N=1..4", "--dim", "H=8", "--dim", "W=2..64:2")
        self.tessera("export", "open.onnx", *sizes, "-o", "open.graph")
        self.assertIn("f32[N,3,8,W]", (self.folder / "open.graph").read_text())
        x = numpy.random.default_rng(0).standard_normal((3, 3, 8, 10)).astype(numpy.float32)
        self.tessera("run", "open.graph", "-i", f"x={self.save_npy('x.npy', x)}", "--output-dir", "out")
        numpy.testing.assert_array_equal(self.load_npy("out/y.npy"), want(x))
        self.tessera("export", "open.onnx", *sizes, "-o", "again.onnx")
        dims = onnx.load(self.folder / "again.onnx").graph.input[0].type.tensor_type.shape.dim
        self.assertEqual([dim.dim_param or dim.dim_value for dim in dims], ["N", 3, 8, "W"])
        self.tessera("run", "again.onnx", "-i", f"x={self.save_npy('x.npy', x)}", "--output-dir", "again")
        numpy.testing.assert_array_equal(self.load_npy("again/y.npy"), want(x))

    def test_all_outputs_at_once(self):
        self.tessera("run", "model.onnx", "-i", "x=1,2,3,4,5,-6", "--output-dir", "out/deep")
        self.assertEqual(self.files("*.npy"), ["out/deep/y.npy", "out/deep/z.npy"])
        numpy.testing.assert_array_equal(self.load_npy("out/deep/z.npy"), numpy.maximum(self.load_npy("out/deep/y.npy"), 0))

    def test_pipes_are_read(self):
        shell = lambda command: subprocess.run(
            ["bash", "-c", command.replace("tessera", cli_support.TESSERA)], cwd=self.folder, capture_output=True, text=True,
            env=self.environment,
        )
        plain, _ = self.tessera("run", "model.onnx", "-i", "random:3")
        for command in (
            "tessera run <(cat model.onnx) -i random:3",
            "cat model.onnx | tessera run /dev/stdin -i random:3",
            "tessera compile model.onnx -o - | tessera run /dev/stdin -i random:3",
        ):
            done = shell(command)
            self.assertEqual((done.returncode, done.stdout), (0, plain), done.stderr)
        self.assertEqual(shell("tessera compile model.onnx -q -o >(cat > m.so); sleep 1; tessera run ./m.so -i random:3").stdout, plain)

    def test_profiles_name_the_model(self):
        for _ in range(2):  # the second time from the cache
            self.tessera("run", "model.onnx", "-i", "random:0", "--profile", "t.json")
            events = json.loads((self.folder / "t.json").read_text())
            events = events["traceEvents"] if isinstance(events, dict) else events
            names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
            self.assertEqual(names, ["model.onnx"])

    def test_bodies_and_constants_are_counted(self):
        inner = helper.make_tensor("c", TensorProto.FLOAT, [5], [1, 2, 3, 4, 5])
        constant = helper.make_node("Constant", [], ["k"], value=inner)
        body = lambda name: helper.make_graph([constant], name, [], [helper.make_tensor_value_info("k", TensorProto.FLOAT, [5])])
        node = helper.make_node("If", ["go"], ["y"], then_branch=body("a"), else_branch=body("b"))
        self.save(make_model([node], [("go", TensorProto.BOOL, [])], [("y", TensorProto.FLOAT, [5])]), "if.onnx")
        text, _ = self.tessera("inspect", "if.onnx")
        self.assertRegex(text, r": 1 nodes and 2 in their bodies, 2 weights\n")
        told = json.loads(self.tessera("inspect", "if.onnx", "--json")[0])
        self.assertEqual((told["inner_nodes"], told["weights"]["count"], told["weights"]["bytes"]), (2, 2, 40))

    def test_long_names_do_not_break_tables(self):
        self.save(conv_model())
        long = onnx.load(self.folder / "model.onnx")
        for node in long.graph.node:
            node.name = "/".join(["a_rather_long_name_of_a_module"] * 12) + "/" + node.name
        self.save(long)
        self.tessera("compile", "model.onnx", "-o", "m.so", "-q")
        for arguments in (["inspect", "m.so"], ["bench", "m.so", "--kernels", "--repeat", 1]):
            text, _ = self.tessera(*arguments)
            self.assertLessEqual(max(len(line) for line in text.split("\n") if "Relu_1" in line), 190, text)
            self.assertIn("Relu_1", text)


class Help(CliTest):
    def test_help_and_version_in_every_spelling(self):
        for verb in ("run", "compile"):
            self.assertEqual(self.tessera("help", verb), self.tessera(verb, "--help"))
        self.assertEqual(self.tessera("help"), self.tessera("--help"))
        version = self.tessera("--version")
        self.assertEqual([self.tessera("version"), self.tessera("-V")], [version, version])

    def verbs(self):
        import re

        return re.findall(r"(?m)^  (\w+) {2,}", self.tessera("--help")[0].split("Subcommands:")[1])

    def test_lines_are_short(self):
        for verb in self.verbs():
            text, _ = self.tessera(verb, "--help")
            for line in text.split("\n"):
                self.assertLessEqual(len(line), 120, f"{verb}: {line}")

    def test_bash_completes(self):
        script = self.folder / "c.bash"
        script.write_text(self.tessera("completion", "bash")[0])

        def completed(*words):
            listed = " ".join(f"'{word}'" for word in words)
            command = f"source c.bash; COMP_WORDS=(tessera {listed}); COMP_CWORD={len(words)}; _tessera; "
            command += "printf '%s\\n' \"${COMPREPLY[@]}\""
            done = subprocess.run(["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "")
            return sorted(done.stdout.split())

        self.assertEqual(completed("com"), ["compile", "completion"])
        self.assertEqual(completed(""), sorted([*self.verbs(), "help", "version"]))
        self.assertIn("--expected-output", completed("run", "--exp"))
        self.assertEqual(completed("run", "--engine", ""), ["interp", "native"])
        self.assertEqual(completed("compile", "--emit", "g"), ["graph"])
        (self.folder / "model.onnx").write_text("")
        self.assertEqual(completed("run", "mod"), ["model.onnx"])
        self.assertEqual(completed("run", "x", "--input", "@mod"), ["@model.onnx"])

    def test_other_shells_and_the_manual_name_everything(self):
        zsh, fish, man = (self.tessera(*words)[0] for words in (("completion", "zsh"), ("completion", "fish"), ("man",)))
        for verb in self.verbs():
            self.assertIn(f"    {verb}) _arguments", zsh)
            self.assertIn(f"-a {verb} -d ", fish)
            self.assertIn(f"\n.SH {verb}\n", man)
            self.assertTrue(self.tessera("man", verb)[0].startswith(f".TH tessera\\-{verb} 1 "))
        self.assertIn("\\fB\\-\\-expected\\-output\\fR", man)
        self.assertIn("-l expected-output -r", fish)

    def test_operators(self):
        text, _ = self.tessera("operators")
        self.assertRegex(text, r"(?m)^Conv +1 to 28 +ai\.onnx$")
        self.assertRegex(text, r"(?m)^FusedMatMul +1 to \d+ +com\.microsoft$")
        told = json.loads(self.tessera("operators", "Relu", "--json")[0])
        self.assertEqual([entry["name"] for entry in told["operators"]], ["Relu"])


if __name__ == "__main__":
    cli_support.main()
