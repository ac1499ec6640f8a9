#!/usr/bin/env python3
"""The command line as a user sees it.    cli_test.py TESSERA [unittest options]"""

import json
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support
from cli_support import CliTest, affine, affine_model, conv_model, make_model

import numpy
from case_folder import write_case
from onnx import TensorProto, helper

X = numpy.array([[1, -2, 3], [-4, 5, -6]], numpy.float32)


class Compile(CliTest):
    def test_module_is_written_runs_and_is_the_same_every_time(self):
        self.save(affine_model())
        text, _ = self.tessera("compile", "model.onnx", "-o", "a.so")
        self.assertRegex(text, r"^a\.so: .* kB in .* s: \d+ kernels \(\d+ different\), code .*, weights .*, arena ")
        self.tessera("compile", "model.onnx", "-o", "b.so", "-q")
        self.assertEqual((self.folder / "a.so").read_bytes(), (self.folder / "b.so").read_bytes())
        text, _ = self.tessera("run", "a.so", "-i", self.save_npy("x.npy", X), "-o", "y=@y.npy")
        numpy.testing.assert_allclose(self.load_npy("y.npy"), affine(X)[0], rtol=1e-6)

    def test_default_output_stands_in_the_current_folder(self):
        (self.folder / "sub").mkdir()
        self.save(affine_model(), "sub/tiny.onnx")
        self.tessera("compile", "sub/tiny.onnx")
        self.assertEqual(self.files("*.so"), ["tiny.so"])
        self.tessera("compile", "sub/tiny.onnx", "--emit", "obj")
        self.assertEqual(self.files("*.o"), ["tiny.o"])

    def test_a_graph_as_text_is_a_model(self):
        text = """// A classifier of any batch.
graph @main[n in 1..8](%x: f32[n,3]) -> (%y: f32[n,2]) {
  %w = constant {value = dense<f32[3,2] 1 -1 2 -2 3 -3>}
  %t = matmul(%x, %w) loc("product")
  %c = constant {value = dense<f32[] 0>}
  %y = max(%t, %c)
}
"""
        (self.folder / "small.graph").write_text(text)
        (self.folder / "nameless").write_text(text)
        x = numpy.array([[1, 2, 3], [-1, -1, 0]], numpy.float32)
        want = [[14, 0], [0, 3]]
        given = self.save_npy("x.npy", x)
        self.tessera("compile", "small.graph", "-q")
        self.tessera("run", "small.so", "-i", given, "-o", "y=@y.npy")
        self.assertEqual(self.load_npy("y.npy").tolist(), want)
        for arguments in (["small.graph"], ["nameless", "--dim", "n=2"], ["small.graph", "--shape", "x=2x3", "--engine", "interp"]):
            self.tessera("run", *arguments, "-i", given, "-o", "y=@z.npy")
            self.assertEqual(self.load_npy("z.npy").tolist(), want, arguments)
        self.assertIn("product", self.tessera("explain", "small.graph", "--dim", "n=2")[0])
        self.assertIn("agrees", self.tessera("diff", "small.graph", "--dim", "n=2")[0])
        for arguments, ident in (
            (["run", "small.graph", "--engine", "interp"], "TSR-1025"),
            (["diff", "small.graph"], "TSR-1025"),
            (["compile", "small.graph", "--dim", "n=9"], "TSR-1022"),
            (["compile", "small.graph", "--dim", "m=2"], "TSR-1021"),
            (["compile", "small.graph", "--shape", "x=2x4"], "TSR-1022"),
        ):
            _, errors = self.tessera(*arguments, code=1)
            self.assertIn(f"error {ident}: ", errors)
        (self.folder / "open.graph").write_text(text.replace("1..8", "1.."))
        _, errors = self.tessera("compile", "open.graph", code=1)
        self.assertTrue(errors.startswith("error TSR-1020: "), errors)
        (self.folder / "bad.graph").write_text(text.replace("matmul", "matmull"))
        _, errors = self.tessera("compile", "bad.graph", code=1)
        self.assertTrue(errors.startswith("error TSR-3002: ") and "bad.graph:4:8" in errors, errors)

    def test_every_level_can_be_printed(self):
        self.save(conv_model())
        begins = {
            "graph": "graph @",
            "loop": "kernel @",
            "program": "program @",
            "llvm": "; ModuleID",
            "asm": "\t.text",
        }
        for kind, begin in begins.items():
            text, _ = self.tessera("compile", "model.onnx", "--emit", kind)
            self.assertTrue(text.startswith(begin), f"{kind}: {text[:200]}")
        for kind in ("graph", "loop", "program"):
            text, _ = self.tessera("compile", "model.onnx", "--emit", kind)
            again, _ = self.tessera("opt", "-", "--kind", kind, stdin=text)
            self.assertEqual(again.strip(), text.strip(), kind)
        self.assertEqual(self.files("*.so"), [])

    def test_levels_and_instruction_sets_agree(self):
        self.save(conv_model())
        x = numpy.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(numpy.float32)
        spec = self.save_npy("x.npy", x)
        self.tessera("run", "model.onnx", "--engine", "interp", "-i", spec, "-o", "@want.npy")
        cpu = pathlib.Path("/proc/cpuinfo").read_text()
        targets = ["native", "x86-64-v2"] + ["x86-64-v3"] * (" avx2 " in cpu) + ["x86-64-v4"] * (" avx512vl " in cpu)
        for target in targets:
            for level in range(4):
                for threads in (1, 2):
                    self.tessera(
                        "run",
                        "model.onnx",
                        f"-O{level}",
                        "--target",
                        target,
                        "--threads",
                        threads,
                        "-i",
                        spec,
                        "--expected-output",
                        "@want.npy",
                        "--rtol",
                        0,
                        "--atol",
                        0,
                        "--mtol",
                        1e-5,
                    )

    def test_steps_can_be_timed_printed_left_out_and_saved(self):
        self.save(conv_model())
        _, errors = self.tessera("compile", "model.onnx", "-o", "m.so", "--time-passes", "--verify-each")
        for step in ("import", "cse", "lower", "schedule", "plan_memory", "codegen", "link", "total"):
            self.assertRegex(errors, rf"(?m)^ +\d+\.\d +\d+\.\d  {step}$")
        _, errors = self.tessera("compile", "model.onnx", "-o", "m.so", "--print-ir-after", "all")
        self.assertIn("// after import\ngraph @model(%x", errors)
        self.assertIn("// after cse (unchanged)\n", errors)
        self.assertIn("// after plan_memory\nprogram @", errors)
        _, errors = self.tessera("compile", "model.onnx", "-o", "m.so", "--print-ir-after", "fuse_groups")
        self.assertEqual(re.findall(r"(?m)^// after .*$", errors), ["// after fuse_groups"])
        _, errors = self.tessera(
            "compile", "model.onnx", "-o", "m.so", "--print-ir-after", "all", "--disable-pass", "fuse_groups"
        )
        self.assertNotIn("// after fuse_groups", errors)
        self.tessera("compile", "model.onnx", "-o", "m.so", "--save-temps", "temps")
        names = [re.sub(r"^temps/\d\d-", "", name) for name in self.files("temps/*")]
        for name in (
            "import.graph",
            "fuse_groups.graph",
            "lower.program",
            "plan_memory.program",
            "module.ll",
            "module.s",
            "module.o",
        ):
            self.assertIn(name, names)

    def test_interrupted_writing_leaves_nothing(self):
        # 64 MB of weights take a moment to write; the signal comes as soon as the temporary file is there.
        w = numpy.random.default_rng(0).standard_normal((4096, 4096)).astype(numpy.float32)
        node = helper.make_node("MatMul", ["x", "w"], ["y"], name="MatMul_0")
        self.save(
            make_model([node], [("x", TensorProto.FLOAT, (1, 4096))], [("y", TensorProto.FLOAT, (1, 4096))], {"w": w})
        )
        process = subprocess.Popen(
            [cli_support.TESSERA, "compile", "model.onnx", "-o", "m.so"],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.environment,
        )
        while process.poll() is None and not self.files("*.tmp-*"):
            time.sleep(0.0005)
        process.terminate()
        process.wait(60)
        self.assertEqual(self.files("*.tmp-*"), [])


class Run(CliTest):
    def setUp(self):
        super().setUp()
        self.save(affine_model())

    def test_output_is_described(self):
        text, errors = self.tessera("run", "model.onnx", "-i", self.save_npy("x.npy", X))
        self.assertEqual(errors, "")
        self.assertEqual(
            text,
            "output 'y': f32[2,3]  min -17.5  max 10.5  mean -0.5  [1.5, -3.5, 9.5, -3.5, 10.5, -17.5]\n"
            "output 'z': f32[2,3]  min 0  max 10.5  mean 3.58333  [1.5, 0, 9.5, 0, 10.5, 0]\n",
        )

    def test_inputs_can_be_written_in_every_form(self):
        for spec, x in [
            ("2x3xf32=2", numpy.full((2, 3), 2, numpy.float32)),
            ("x=2x3xf32=1,-2,3,-4,5,-6", X),
            (self.save_npy("x.npy", X), X),
            ("x=" + self.save_npy("named.npy", X), X),
            (self.save_npy("fortran.npy", numpy.asfortranarray(X)), X),
            (self.save_npy("big.npy", X.astype(">f4")), X),
            *self.archives(),
        ]:
            self.tessera("run", "model.onnx", "-i", spec, "-o", "@y.npy", "--output", "z=@z.npy")
            numpy.testing.assert_allclose(self.load_npy("y.npy"), affine(x)[0], rtol=1e-6, err_msg=spec)
            numpy.testing.assert_allclose(self.load_npy("z.npy"), affine(x)[1], rtol=1e-6, err_msg=spec)

    def archives(self):
        """By the input's name, by position, an array of another name; stored and deflated."""
        numpy.savez(self.folder / "named.npz", x=X)
        numpy.savez_compressed(self.folder / "packed.npz", x=numpy.asfortranarray(X), other=X + 1)
        numpy.savez(self.folder / "numbered.npz", X)
        yield "@named.npz", X
        yield "@numbered.npz", X
        yield "x=@packed.npz", X
        yield "@packed.npz:other", X + 1
        yield "x=@packed.npz:other", X + 1

    def test_archives_that_do_not_fit(self):
        list(self.archives())
        _, errors = self.tessera("run", "model.onnx", "-i", "@packed.npz", code=1)
        self.assertIn("error TSR-4011: --input: there is no 'other'", errors)
        _, errors = self.tessera("run", "model.onnx", "-i", "@packed.npz:othr", code=1)
        self.assertEqual(
            errors,
            "error TSR-6213: 'packed.npz' has no array 'othr'\n  legal: x, other\n  hint:  did you mean 'other'?\n",
        )
        whole = (self.folder / "packed.npz").read_bytes()
        for damaged in (b"", b"PK", whole[:-1], whole[: len(whole) // 2], whole[:60] + b"\xff" * 8 + whole[68:]):
            (self.folder / "bad.npz").write_bytes(damaged)
            _, errors = self.tessera("run", "model.onnx", "-i", "x=@bad.npz", code=1)
            self.assertRegex(errors, r"^error TSR-62(11|12|13): ")

    def test_a_bitmap_is_a_picture(self):
        """Two pixels, blue and white: rows begin with the lowest, channels with blue."""
        rows = bytes([255, 255, 255, 0, 255, 0, 0, 0])
        header = b"BM" + struct.pack("<IIIIiiHHIIiiII", 54 + len(rows), 0, 54, 40, 1, 2, 1, 24, 0, 0, 0, 0, 0, 0)
        (self.folder / "p.bmp").write_bytes(header + rows)
        identity = [helper.make_node("Identity", ["x"], ["y"])]
        shape = [("x", TensorProto.FLOAT, (1, 3, 2, 1))], [("y", TensorProto.FLOAT, (1, 3, 2, 1))]
        self.save(make_model(identity, *shape), "picture.onnx")
        self.tessera("run", "picture.onnx", "-i", "@p.bmp", "-o", "@y.npy")
        numpy.testing.assert_allclose(self.load_npy("y.npy")[0, :, :, 0], [[0, 1], [0, 1], [1, 1]])

    def test_a_scalar_may_come_as_one_element(self):
        info = lambda name: (name, TensorProto.FLOAT, ())
        self.save(make_model([helper.make_node("Neg", ["x"], ["y"])], [info("x")], [info("y")]), "scalar.onnx")
        for engine in ("native", "interp"):
            for spec in ("f32=3", "1xf32=3", "1x1xf32=3"):
                self.tessera("run", "scalar.onnx", "--engine", engine, "-i", spec, "-o", "@y.npy")
                numpy.testing.assert_array_equal(self.load_npy("y.npy"), numpy.float32(-3))
            _, errors = self.tessera("run", "scalar.onnx", "--engine", engine, "-i", "2xf32=3", code=1)
            self.assertIn("TSR-6303", errors)

    def test_random_inputs_are_seeded_and_said_to_be_random(self):
        first, errors = self.tessera("run", "model.onnx")
        self.assertEqual(errors, "input 'x': random (seed 0); give a tensor with --input\n")
        self.assertEqual(self.tessera("run", "model.onnx", "-i", "random:0")[0], first)
        self.assertEqual(self.tessera("run", "model.onnx", "-i", "x=2x3xf32=random:0")[0], first)
        self.assertNotEqual(self.tessera("run", "model.onnx", "-i", "x=random:1")[0], first)

    def test_pb_files_go_in_and_out(self):
        self.tessera("run", "model.onnx", "-i", self.save_npy("x.npy", X), "-o", "@y.pb")
        self.tessera("run", "model.onnx", "-i", "@x.npy", "--expected-output", "@y.pb", "--rtol", 0, "--atol", 0)
        self.tessera("run", "model.onnx", "-i", "@y.pb")

    def test_expected_outputs_are_compared(self):
        want = affine(X)[0]
        want[1, 2] += 0.5
        self.save_npy("x.npy", X), self.save_npy("want.npy", want), self.save_npy("z.npy", affine(X)[1])
        text, _ = self.tessera(
            "run",
            "model.onnx",
            "-i",
            "@x.npy",
            "--expected-output",
            "@want.npy",
            "--expected-output",
            "z=@z.npy",
            code=2,
        )
        self.assertIn(
            "  MISMATCH: 1 of 6 elements differ, worst at [1,2]: got -17.5, expected -17; max|d| 0.5 (0.029 of "
            "max|ref|)\n",
            text,
        )
        self.assertIn("  agrees: equal\n", text)
        self.tessera("run", "model.onnx", "-i", "@x.npy", "--expected-output", "@want.npy", "--atol", 0.5)
        self.tessera(
            "run", "model.onnx", "-i", "@x.npy", "--expected-output", "@want.npy", "--rtol", 0, "--mtol", 0.03
        )
        self.save_npy("wide.npy", want.astype(numpy.float64))
        text, _ = self.tessera("run", "model.onnx", "-i", "@x.npy", "--expected-output", "@wide.npy", code=2)
        self.assertIn("  MISMATCH: got f32[2,3], expected f64[2,3]\n", text)

    def test_nan_and_infinity_agree_with_themselves_only(self):
        odd = numpy.array([[numpy.nan, numpy.inf, -numpy.inf], [0, 0, 0]], numpy.float32)
        self.save_npy("x.npy", odd), self.save_npy("y.npy", affine(odd)[0])
        self.tessera("run", "model.onnx", "-i", "@x.npy", "--expected-output", "@y.npy")
        for place in ((0, 0), (0, 1), (1, 1)):
            want = affine(odd)[0]
            want[place] = 7 if place[0] == 0 else numpy.inf
            self.save_npy("want.npy", want)
            self.tessera("run", "model.onnx", "-i", "@x.npy", "--expected-output", "@want.npy", code=2)

    def test_json_is_one_line(self):
        text, _ = self.tessera(
            "run", "model.onnx", "-i", self.save_npy("x.npy", X), "--json", "--expected-output", "z=@x.npy", code=2
        )
        self.assertEqual(text.count("\n"), 1)
        outputs = json.loads(text)["outputs"]
        self.assertEqual(
            [(o["name"], o["dtype"], o["shape"], o.get("agrees")) for o in outputs],
            [("y", "f32", [2, 3], None), ("z", "f32", [2, 3], False)],
        )

    def test_interpreter_gives_the_same(self):
        self.tessera("run", "model.onnx", "--engine", "interp", "-i", self.save_npy("x.npy", X), "-o", "@y.npy")
        numpy.testing.assert_allclose(self.load_npy("y.npy"), affine(X)[0], rtol=1e-6)

    def test_pictures_become_inputs(self):
        from PIL import Image

        picture = numpy.zeros((8, 8, 3), numpy.uint8)
        picture[:, :, 0], picture[:, :, 1], picture[:, :, 2] = 255, 51, 0
        Image.fromarray(picture).save(self.folder / "p.png")
        identity = lambda dims, dtype: make_model(
            [helper.make_node("Identity", ["x"], ["y"])], [("x", dtype, dims)], [("y", dtype, dims)]
        )
        self.save(identity((1, 3, 4, 5), TensorProto.FLOAT), "nchw.onnx")
        self.tessera("run", "nchw.onnx", "-i", "@p.png", "-o", "@y.npy")
        want = numpy.broadcast_to(numpy.array([1, 0.2, 0], numpy.float32).reshape(1, 3, 1, 1), (1, 3, 4, 5))
        numpy.testing.assert_allclose(self.load_npy("y.npy"), want, atol=1e-6)
        self.tessera(
            "run",
            "nchw.onnx",
            "-i",
            "@p.png",
            "-o",
            "@y.npy",
            "--scale",
            1,
            "--mean",
            "55,1,0",
            "--std",
            "2,5,1",
            "--bgr",
        )
        want = numpy.broadcast_to(numpy.array([-27.5, 10, 255], numpy.float32).reshape(1, 3, 1, 1), (1, 3, 4, 5))
        numpy.testing.assert_allclose(self.load_npy("y.npy"), want, atol=1e-4)
        self.save(identity((4, 5, 3), TensorProto.UINT8), "nhwc.onnx")
        self.tessera("run", "nhwc.onnx", "-i", "@p.png", "-o", "@y.npy")
        numpy.testing.assert_array_equal(self.load_npy("y.npy"), numpy.broadcast_to([255, 51, 0], (4, 5, 3)))

    def test_every_dtype_passes_through(self):
        for onnx_type, dtype in [
            (TensorProto.DOUBLE, "f8"),
            (TensorProto.FLOAT16, "f2"),
            (TensorProto.INT64, "i8"),
            (TensorProto.INT32, "i4"),
            (TensorProto.INT16, "i2"),
            (TensorProto.INT8, "i1"),
            (TensorProto.UINT64, "u8"),
            (TensorProto.UINT32, "u4"),
            (TensorProto.UINT16, "u2"),
            (TensorProto.UINT8, "u1"),
            (TensorProto.BOOL, "?"),
        ]:
            self.save(
                make_model(
                    [helper.make_node("Identity", ["x"], ["y"])], [("x", onnx_type, (4,))], [("y", onnx_type, (4,))]
                ),
                "id.onnx",
            )
            x = numpy.array([0, 1, 100, 1], dtype)
            self.tessera(
                "run", "id.onnx", "-i", self.save_npy("x.npy", x), "-o", "@y.npy", "--expected-output", "@x.npy"
            )
            y = self.load_npy("y.npy")
            self.assertEqual(y.dtype, x.dtype)
            numpy.testing.assert_array_equal(y, x)


class Cache(CliTest):
    def setUp(self):
        super().setUp()
        self.save(affine_model())
        self.save_npy("x.npy", X)

    def entries(self):
        return self.files("cache/*.so")

    def run_model(self, *arguments, **variables):
        _, errors = self.tessera("run", "model.onnx", "-i", "@x.npy", "-o", "@y.npy", *arguments, **variables)
        numpy.testing.assert_allclose(self.load_npy("y.npy"), affine(X)[0], rtol=1e-6)
        return errors

    def test_a_model_is_compiled_once_for_each_setting(self):
        self.run_model()
        first = self.entries()
        self.assertEqual(len(first), 1)
        stamp = (self.folder / first[0]).stat().st_ino
        self.run_model()
        self.assertEqual(self.entries(), first)
        self.assertEqual((self.folder / first[0]).stat().st_ino, stamp)
        self.run_model("-O1")
        self.assertEqual(len(self.entries()), 2)
        self.save(affine_model((4, 3)))
        self.tessera("run", "model.onnx")
        self.assertEqual(len(self.entries()), 3)
        # What a session may take decides about the code, too.
        self.tessera("bench", "model.onnx", "--repeat", "1", "--max-memory", "1M")
        self.assertEqual(len(self.entries()), 4)
        self.assertEqual(self.files("cache/*.tmp-*"), [])

    def test_other_weights_are_another_model(self):
        self.run_model()
        model = affine_model()
        model.graph.initializer[0].raw_data = numpy.array([1, 1, 1], numpy.float32).tobytes()
        self.save(model)
        self.tessera("run", "model.onnx", "-i", "@x.npy", "-o", "@y.npy")
        numpy.testing.assert_allclose(self.load_npy("y.npy"), X + numpy.float32(0.5), rtol=1e-6)

    def test_no_cache_keeps_nothing(self):
        self.run_model("--no-cache")
        self.run_model(TESSERA_CACHE_SIZE="0")
        self.assertEqual(self.entries(), [])

    def test_bench_and_run_share_what_is_compiled(self):
        stamps = []
        for cached in (False, True):
            told = json.loads(self.tessera("bench", "model.onnx", "--repeat", "1", "--json")[0])
            self.assertEqual((told["compile_s"] == 0, told["from_cache"]), (cached, cached))
            self.assertEqual(len(self.entries()), 1)
            stamps.append((self.folder / self.entries()[0]).stat().st_ino)
        self.assertEqual(*stamps)
        self.run_model()
        self.assertEqual((self.folder / self.entries()[0]).stat().st_ino, stamps[1])
        self.run_model("-O1")
        self.tessera("bench", "model.onnx", "--repeat", "1", "--no-cache", "-O2")
        self.assertEqual(len(self.entries()), 2)

    def test_damaged_entry_is_compiled_again(self):
        self.run_model()
        entry = self.folder / self.entries()[0]
        data = bytearray(entry.read_bytes())
        data[70] ^= 1
        entry.write_bytes(data)
        self.assertRegex(self.run_model(), r"^warning: the cached module '.*' cannot be used and is compiled again: ")
        self.assertEqual(self.run_model(), "")

    def test_least_recently_used_entries_go_first(self):
        self.run_model()
        first = self.entries()[0]
        size = (self.folder / first).stat().st_size
        self.run_model("-O1")
        second = next(name for name in self.entries() if name != first)
        now = time.time()
        os.utime(self.folder / first, (now - 100, now - 100))
        os.utime(self.folder / second, (now - 50, now - 50))
        self.run_model()  # uses the first
        self.run_model("-O2", TESSERA_CACHE_SIZE=str(5 * size // 2))
        self.assertIn(first, self.entries())
        self.assertNotIn(second, self.entries())
        self.assertEqual(len(self.entries()), 2)

    def test_unusable_folder_only_warns(self):
        (self.folder / "file").write_text("")
        for place in ("file/cache", "/proc/cache"):
            self.assertRegex(
                self.run_model(TESSERA_CACHE_DIR=place), r"^warning: the cache folder '.*' cannot be used: "
            )
        self.assertRegex(
            self.run_model(TESSERA_CACHE_SIZE="many"),
            r"^warning: TESSERA_CACHE_SIZE='many' is not a size such as 500M or 2G; using 2G",
        )

    def test_folder_comes_from_the_environment(self):
        del self.environment["TESSERA_CACHE_DIR"]
        self.run_model(XDG_CACHE_HOME=str(self.folder / "xdg"))
        self.assertEqual(len(self.files("xdg/tessera/*.so")), 1)
        self.run_model(HOME=str(self.folder / "home"))
        self.assertEqual(len(self.files("home/.cache/tessera/*.so")), 1)


class Verify(CliTest):
    def setUp(self):
        super().setUp()
        want = list(affine(X))
        write_case(self.folder / "cases/b_good", affine_model(), [([X], want), ([X * 2], list(affine(X * 2)))])
        write_case(self.folder / "cases/a_wrong", affine_model(), [([X], want), ([X], [want[0] + 1, want[1]])])
        write_case(self.folder / "cases/c/shape", affine_model(), [([X], [want[0][:1], want[1]])])
        exotic = make_model(
            [helper.make_node("Exotic", ["x"], ["y"], name="Exotic_0")],
            [("x", TensorProto.FLOAT, (2, 3))],
            [("y", TensorProto.FLOAT, (2, 3))],
        )
        write_case(self.folder / "cases/d_exotic", exotic, [([X], [X])])

    def test_every_case_has_its_line(self):
        for flags in ((), ("--engine", "interp"), ("-j", 3), ("--threads", 2)):
            text, _ = self.tessera("verify", "cases", *flags, code=2)
            lines = [re.sub(r" \(\d+\.\d\d s\)", "", line) for line in text.splitlines()]
            self.assertEqual(len(lines), 5, text)
            self.assertEqual(
                lines[0],
                "FAIL cases/a_wrong: test_data_set_1, output 'y': 6 of 6 elements differ, worst at "
                "[0,0]: got 1.5, expected 2.5; max|d| 1 (0.061 of max|ref|)",
            )
            self.assertEqual(lines[1], "PASS cases/b_good")
            self.assertEqual(
                lines[2], "FAIL cases/c/shape: test_data_set_0, output 'y': got f32[2,3], expected f32[1,3]"
            )
            self.assertRegex(lines[3], r"^UNSUPPORTED cases/d_exotic: error TSR-1040: .*Exotic")
            self.assertEqual(lines[4], "1 passed, 3 failed")

    def test_all_passed(self):
        text, _ = self.tessera("verify", "cases/b_good", "-q")
        self.assertEqual(text, "1 passed, 0 failed\n")

    def test_tolerance(self):
        text, _ = self.tessera("verify", "cases/a_wrong", "cases/b_good", "--atol", 1.5)
        self.assertTrue(text.endswith("2 passed, 0 failed\n"))

    def test_the_model_is_compiled_before_other_files_are_opened(self):
        # Nobody writes to these pipes: whoever opens one waits for ever.
        for name in ("input_0.pb", "output_0.pb"):
            path = self.folder / "cases/d_exotic/test_data_set_0" / name
            path.unlink()
            os.mkfifo(path)
        text, _ = self.tessera("verify", "cases/d_exotic", "--timeout", 20, code=2)
        self.assertIn("UNSUPPORTED", text)

    def test_a_case_that_hangs_or_lacks_files_is_its_own_failure(self):
        fifo = self.folder / "cases/b_good/test_data_set_0/input_0.pb"
        data = fifo.read_bytes()
        fifo.unlink()
        text, _ = self.tessera("verify", "cases/b_good", code=2)
        self.assertIn("has 0 input files, none for input 'x'", text)
        fifo.write_bytes(data[:10])
        text, _ = self.tessera("verify", "cases/b_good", code=2)
        self.assertIn("TSR-", text)

    def test_data_sets_are_needed(self):
        self.save(affine_model(), "empty/model.onnx")
        text, _ = self.tessera("verify", "empty", code=1)
        self.assertIn("there is no test_data_set_* folder beside the model", text)


class Bench(CliTest):
    def test_json(self):
        self.save(affine_model())
        text, errors = self.tessera("bench", "model.onnx", "--json", "--repeat", 7, "--threads", 1)
        self.assertRegex(errors, r"^(warning: other programs are running .*\n)?$")
        self.assertEqual(text.count("\n"), 1)
        result = json.loads(text)
        self.assertEqual((result["repeats"], result["threads"], result["model"]), (7, 1, "model.onnx"))
        self.assertGreater(result["compile_s"], 0)
        self.assertGreater(result["load_s"], 0)
        self.assertTrue(0 < result["min_ms"] <= result["median_ms"] <= result["p90_ms"] <= result["p99_ms"])

    def test_text(self):
        self.save(affine_model())
        self.tessera("compile", "model.onnx")
        text, _ = self.tessera("bench", "model.so", "--repeat", 5, "--warm-up", 1)
        self.assertRegex(
            text,
            r"^model\.so: median [\d.]+ (us|ms)  \(min [\d.]+, p90 [\d.]+, p99 [\d.]+, mean [\d.]+, stddev [\d.]+\)\n"
            r"5 runs after warm-up, [\d.e+]+ runs a second, \d+ threads?, loaded in [\d.]+ s\n$",
        )

    def test_duration_warm_up_and_concurrency(self):
        self.save(affine_model())
        bench = lambda *arguments: json.loads(self.tessera("bench", "model.onnx", "--json", *arguments)[0])
        begin = time.monotonic()
        told = bench("--duration", 0.5, "--warm-up", 0)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertGreater(told["repeats"], 100)
        self.assertAlmostEqual(told["runs_per_s"] * 0.5, told["repeats"], delta=0.5 * told["repeats"])
        told = bench("--concurrency", 3, "--repeat", 50)
        self.assertEqual((told["concurrency"], told["repeats"], told["threads"]), (3, 50, 1))
        text, _ = self.tessera("bench", "model.onnx", "--concurrency", 2, "--repeat", 4)
        self.assertRegex(text, r"\n4 runs after warm-up, [\d.e+]+ runs a second, 2 sessions at once, each with 1 thread, ")
        text, _ = self.tessera("bench", "model.onnx", "--no-cache", "--repeat", 4)
        self.assertRegex(text, r", compiled in [\d.]+ s, loaded in ")

    def test_thread_numbers_come_from_the_environment(self):
        self.save(affine_model())
        threads = lambda **variables: json.loads(
            self.tessera("bench", "model.onnx", "--json", "--repeat", 1, "--warm-up", 1, **variables)[0]
        )["threads"]
        self.assertEqual(threads(TESSERA_NUM_THREADS="3", OMP_NUM_THREADS="2"), 3)
        self.assertEqual(threads(OMP_NUM_THREADS="2"), 2)


class Terminal(CliTest):
    """Under a pseudo terminal: colours, progress."""

    def on_terminal(self, *arguments, **variables):
        main, end = pty.openpty()
        process = subprocess.Popen(
            [cli_support.TESSERA, *arguments],
            cwd=self.folder,
            stdout=end,
            stderr=end,
            env={**self.environment, "TERM": "xterm", **variables},
        )
        os.close(end)
        text = b""
        while True:
            try:
                if not select.select([main], [], [], 60)[0]:
                    self.fail("no output for a minute")
                data = os.read(main, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            text += data
        os.close(main)
        process.wait(60)
        return text.decode()

    def test_colours_only_where_wanted(self):
        self.assertIn("\x1b[31merror\x1b[0m TSR-", self.on_terminal("compile", "missing.onnx"))
        self.assertNotIn("\x1b", self.on_terminal("compile", "missing.onnx", NO_COLOR="1"))
        self.assertNotIn("\x1b", self.on_terminal("compile", "missing.onnx", TERM="dumb"))

    def test_progress_for_more_than_a_second_and_nothing_left_of_it(self):
        self.save(affine_model())
        text = self.on_terminal("bench", "model.onnx")
        self.assertRegex(text, r"\rbenchmarking model\.onnx 1\.\d s: measuring *")
        self.assertRegex(text, r"\r {79}\r(\S*warning:.*\r\n)?model\.onnx: median ")
        self.assertNotIn("benchmarking", self.on_terminal("bench", "model.onnx", "--repeat", "1", "--warm-up", "1"))


class Opt(CliTest):
    GRAPH = """graph @main(%x: f32[4]) -> (%y: f32[4]) {
  %a = constant {value = dense<f32[1] 2>} : f32[1]
  %b = constant {value = dense<f32[1] 2>} : f32[1]
  %c = mul(%x, %a) : f32[4] loc("Mul_0")
  %y = add(%c, %b) : f32[4] loc("Add_1")
}
"""

    def test_round_trip(self):
        text, _ = self.tessera("opt", "-", "--kind", "graph", stdin=self.GRAPH)
        self.assertEqual(text, self.GRAPH)
        (self.folder / "g.graph").write_text(self.GRAPH)
        self.tessera("opt", "g.graph", "-o", "out.graph")
        self.assertEqual((self.folder / "out.graph").read_text(), self.GRAPH)

    def test_passes_run_in_the_order_given(self):
        text, _ = self.tessera("opt", "-", "--kind", "graph", "--pass=cse,dce", stdin=self.GRAPH)
        self.assertEqual(
            text, self.GRAPH.replace("  %b = constant {value = dense<f32[1] 2>} : f32[1]\n", "").replace("%b", "%a")
        )
        text, _ = self.tessera(
            "opt",
            "-",
            "--kind",
            "graph",
            "--pass=fuse_groups",
            "--pass=lower,schedule,simplify_loops,plan_memory",
            stdin=self.GRAPH,
        )
        self.assertTrue(text.startswith("program @main(%x) -> (%y) {"), text)
        self.assertIn("plan arena", text)

    def test_passes_are_listed(self):
        text, _ = self.tessera("opt", "--list-passes")
        self.assertRegex(text, r"(?m)^graph: .*\bcse\b.*\blower$")
        self.assertRegex(text, r"(?m)^loop: .*\bexpand_math\b")
        self.assertRegex(text, r"(?m)^program: schedule, .*\bplan_memory$")


if __name__ == "__main__":
    cli_support.main()
