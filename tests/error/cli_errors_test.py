#!/usr/bin/env python3
"""What the command line says to mistakes: every message in full.    cli_errors_test.py TESSERA [unittest options]"""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cli_support
from cli_support import CliTest, affine_model, make_model

import numpy
from onnx import TensorProto, helper


def error(ident, message, legal="", hint="", node=""):
    lines = [f"error {ident}: {message}"]
    lines += [f"  {key:6} {text}" for key, text in (("node:", node), ("legal:", legal), ("hint:", hint)) if text]
    return "\n".join(lines) + "\n"


ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/cli.md"
RUN_HELP = "see 'tessera run --help' for examples"
FORMS = "[NAME=]@FILE, NAME=0.5, [NAME=]1x3x224x224[xf32][=0], [NAME=]1x3x224x224[xf32]=random:SEED or [NAME=]random:SEED"


class CommandLine(CliTest):
    def setUp(self):
        super().setUp()
        self.save(affine_model())

    def refuses(self, arguments, *expected, **more):
        _, errors = self.tessera(*arguments, code=1)
        self.assertEqual(errors, error(*expected, **more))

    def test_usage(self):
        # As docs/cli.md lists them, which a test holds against the program.
        help_text = DOCUMENT.read_text().split("Subcommands:\n")[1].split("\n\n")[0]
        verbs = ", ".join(re.findall(r"(?m)^  (\w+) {2,}", help_text))
        self.refuses([], "TSR-4001", "a verb is required", verbs, "see 'tessera --help'")
        self.refuses(["fly"], "TSR-4001", "there is no verb 'fly'", verbs, "see 'tessera --help'")
        for arguments in (["complie", "model.onnx"], ["complie"], ["man", "complie"]):
            _, errors = self.tessera(*arguments, code=1)
            self.assertRegex(errors, r"^error TSR-4001: there is no verb 'complie'\n")
            self.assertIn("\n  hint:  did you mean 'compile'?", errors)
        self.refuses(
            ["compile", "model.onnx", "--shapes", "x:2x3"],
            "TSR-4001",
            "there is no option '--shapes'",
            hint="did you mean '--shape'? see 'tessera compile --help'",
        )
        self.refuses(
            ["compile", "model.onnx", "more.onnx"],
            "TSR-4001",
            "'more.onnx' is one argument too many for 'tessera compile'",
            hint="see 'tessera compile --help'",
        )
        self.refuses(
            ["run", "model.onnx", "--engine", "nativ"],
            "TSR-4001",
            "--engine: unknown value 'nativ'",
            "native, interp",
            "did you mean 'native'? see 'tessera run --help'",
        )
        self.refuses(
            ["compile", "model.onnx", "-O", "fast"],
            "TSR-4001",
            "-O: 'fast' is no number",
            hint="see 'tessera compile --help'",
        )
        self.refuses(
            ["operators", "Conb"],
            "TSR-4068",
            "there is no operator 'Conb' among those that are supported",
            "what 'tessera operators' lists",
            "nearest are Conv, Cos, Cosh",
        )
        self.refuses(
            ["compile", "model.onnx", "--place", "null"],
            "TSR-4070",
            "--place: 'null' does not say which nodes run on which device",
            "PATTERN=DEVICE, such as '*=null' or 'Conv_*=null'",
        )
        self.refuses(
            ["compile", "model.onnx", "--place", "*=nul"],
            "TSR-4071",
            "--place: there is no device 'nul'",
            "cpu, null, opencl, cuda, mpi, gloo, loopback, UNIT.json",
            "did you mean 'null'?",
        )
        for names, found in (("x86-64-v2,x86-64-v2", "'x86-64-v2' is named twice, or is the target"),
                             ("x86-64-v3", "'x86-64-v3' is named twice, or is the target")):
            self.refuses(
                ["compile", "model.onnx", "--target", "x86-64-v3", "--variants", names],
                "TSR-4076",
                f"--variants: {found}",
                "each target once, that of --target left out",
            )
        self.refuses(
            ["compile", "model.onnx", "--target", "x86-64-v3", "--variants", "aarch64-unknown-linux-gnu"],
            "TSR-4076",
            "--variants: 'aarch64-unknown-linux-gnu' is of another architecture than the target 'x86-64-v3'",
            "targets of one architecture: --target x86-64-v3 --variants x86-64-v2,x86-64-v4",
            "compile a module of its own for each architecture",
        )
        self.refuses(
            ["compile", "model.onnx", "--target", "x86-64-v3", "--variants", "x86-64-v2", "--place", "*=null"],
            "TSR-4077",
            "--variants: the code of a device is of one kind, so it cannot stand beside --place or a device's --target",
            hint="leave one of the two options out",
        )
        self.refuses(
            ["compile", "model.onnx", "--emit", "cuda", "--target", "opencl"],
            "TSR-4079",
            "--emit cuda: the target 'opencl' has no such language",
            "--target cuda, or none",
        )
        self.refuses(
            ["compile", "model.onnx", "--target", "hip"],
            "TSR-4082",
            "there is no run time for 'hip': its kernels can be printed, and not run",
            "--emit hip",
        )
        self.refuses(
            ["compile", "model.onnx", "--numerics", "strikt"],
            "TSR-4074",
            "there are no numerics 'strikt'",
            "default, strict, deterministic",
            "did you mean 'strict'?",
        )
        self.refuses(
            ["compile", "model.onnx", "--numerics", "strict", "--precision", "bf16"],
            "TSR-4075",
            "--precision bf16: a lower precision is another algorithm, which has no place under numerics 'strict'",
            hint="leave one of the two options out",
        )
        self.refuses(
            ["compile", "model.onnx", "--deterministic", "--kernel", "mine.loop"],
            "TSR-4075",
            "--kernel: what a function of one's own computes is not known, so it has no place under numerics "
            "'deterministic'",
            hint="leave one of the two options out",
        )
        self.refuses(
            ["compile", "model.onnx", "--deterministic", "--target", "opencl"],
            "TSR-4075",
            "--target or --place opencl: the sums of a GPU are taken in another order, which has no place under numerics "
            "'deterministic'",
            hint="leave one of the two options out",
        )
        self.refuses(["compile"], "TSR-4001", "MODEL is required", hint="see 'tessera compile --help'")
        self.refuses(
            ["compile", "model.onnx", "--fast"],
            "TSR-4001",
            "there is no option '--fast'",
            hint="see 'tessera compile --help'",
        )
        self.refuses(["opt"], "TSR-4001", "FILE is required", hint="see 'tessera opt --help'")
        for flag in (["--save-model", "costs.json"], ["--cost-model", "none"]):
            self.refuses(
                ["tune", "model.onnx", *flag],
                "TSR-4057",
                f"{flag[0]} without --mode model, which alone has a learned model of costs",
                "--mode model beside it",
                "'tessera db train' makes a cost model of the trials of any search",
            )
        (self.folder / "outside.loop").write_text(
            "kernel @k(x: f32[4], n: i32[4]) -> (y: f32[4]) { for i in 0..4 { y[i] = x[floormod(cast:i64(n[i]), 9)] } }\n"
        )
        self.refuses(
            ["schedule", "outside.loop", "--check"],
            "TSR-3426",
            "kernel k: load outside its buffer x: f32[4]: x[floormod(cast:i64(n[i]), 9)] has index 5 in dimension 0",
            "indices inside of the buffer, and elements that were stored to, for any inputs",
            "--check runs the program on random inputs: bound indices that are loaded from them, as by floormod(n[i], 10)",
        )
        for arguments, words in [
            (["compile", "model.onnx", "-O", "fast"], "-O"),
            (["compile", "model.onnx", "--threads", "-1"], "--threads"),
            (["compile", "model.onnx", "--threads", "513"], "--threads: Value 513 not in range 0 to 512"),
            (["schedule", "matmul.loop", "--json"], "--json requires --check or --bench"),
            (["schedule", "matmul.loop", "--only-scheduled", "--check"], "--only-scheduled requires --bench"),
            (["schedule", "-", "--apply", "-"], "'-', which is standard input, can be only one of"),
            (["schedule", "matmul.loop", "--apply", "-", "--intrinsics", "-"], "'-', which is standard input"),
            (["compile", "model.onnx", "--emit", "jar"], "--emit"),
            (["run", "model.onnx", "--engine", "gpu"], "--engine"),
            (["bench", "model.onnx", "--repeat", "0"], "--repeat"),
            (["verify", ".", "--timeout", "soon"], "--timeout"),
        ]:
            _, errors = self.tessera(*arguments, code=1)
            self.assertRegex(
                errors, rf"^error TSR-4001: .*{words}.*\n(  legal: .*\n)?  hint:  .*see 'tessera {arguments[0]} --help'\n$"
            )

    def test_options(self):
        self.refuses(["compile", "model.onnx", "-O4"], "TSR-4021", "there is no optimisation level 4", "0, 1, 2, 3")
        shapes = "INPUT=1x3x224x224: whole numbers or ranges LOW..HIGH[:STEP] with 'x' between them"
        wrong = ("x", "x=", "=1x2", "x=1x", "x=1xx2", "x=axb", "x=-1x2", "x=99999999999999999999", "x=-1..3x2", "x=4..3", "x=1..4:0")
        for text in wrong:
            self.refuses(
                ["compile", "model.onnx", "--shape", text], "TSR-4022", f"--shape '{text}' cannot be read", shapes
            )
        for text in ("n", "n=", "=1", "n=-1", "n=5..2", "n=1..", "n=..2", "n=x"):
            self.refuses(
                ["compile", "model.onnx", "--dim", text],
                "TSR-4022",
                f"--dim '{text}' cannot be read",
                "NAME=VALUE, NAME=LOW..HIGH or NAME=LOW..HIGH:STEP, with 0 <= LOW <= HIGH and 1 <= STEP",
            )

    def test_did_you_mean(self):
        """Names that are nearly right."""
        for flag, name, near in (
            ("--disable-pass", "winogard", "winograd"),
            ("--disable-pass", "fold_constant", "fold_constants"),
            ("--print-ir-after", "fold_constants1", "fold_constants"),
            ("--precision", "bf61", "bf16"),
            ("--fp32", "peices", "pieces"),
            ("--target", "naitve", "native"),
            ("--target", "x86-64-v5", "x86-64-v2"),
            ("--target", "aarhc64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"),
            ("--target", "x86_64-unknown-linux-gnu,cpu=skylaek", "skylake"),
            ("--target", "x86_64-unknown-linux-gnu,+avx521f", "avx512f"),
        ):
            _, errors = self.tessera("compile", "model.onnx", flag, name, code=1)
            self.assertRegex(errors, rf"\n  hint:  did you mean '{near}'\?\n$")
        (self.folder / "g.graph").write_text("graph @main(%x: f32[4]) -> (%y: f32[4]) {\n  %y = neg(%x)\n}\n")
        _, errors = self.tessera("opt", "g.graph", "--pass", "fold_constant", code=1)
        self.assertTrue(errors.endswith("\n  hint:  did you mean 'fold_constants'?\n"), errors)

    def test_passes(self):
        for flag in ("--disable-pass", "--print-ir-after"):
            _, errors = self.tessera("compile", "model.onnx", flag, "magic", code=1)
            self.assertRegex(
                errors, rf"^error TSR-4020: {flag}: there is no pass 'magic'\n  legal: .*\bcse, .*\bexpand_math.*\n$"
            )
        self.refuses(
            ["compile", "model.onnx", "--disable-pass", "expand_math"],
            "TSR-4023",
            "--disable-pass: 'expand_math' cannot be left out",
            "passes that -O0 leaves out",
            "later steps rely on what this pass does",
        )
        (self.folder / "g.graph").write_text("graph @main(%x: f32[4]) -> (%x) {\n}\n")
        (self.folder / "k.loop").write_text(
            "kernel @k(x: f32[4]) -> (y: f32[4]) {\n  for i in 0..4 { y[i] = x[i] }\n}\n"
        )
        _, errors = self.tessera("opt", "k.loop", "--pass", "magic", code=1)
        self.assertRegex(errors, r"^error TSR-4020: --pass: there is no pass 'magic'\n  legal: simplify_loops, .*\n$")
        _, errors = self.tessera("opt", "k.loop", "--pass", "cse", code=1)
        self.assertRegex(
            errors,
            r"^error TSR-4024: pass 'cse' works on a graph, and this is a loop\n  legal: simplify_loops, .*\n$",
        )

    def test_text_files(self):
        self.refuses(
            ["opt", "model.onnx"],
            "TSR-4025",
            "the kind of 'model.onnx' cannot be told by its extension",
            ".graph, .loop, .program",
            "name the kind with --kind",
        )
        _, errors = self.tessera("opt", "missing.graph", code=1)
        self.assertRegex(errors, r"^error TSR-4026: .*'missing\.graph'.*No such file or directory")
        _, errors = self.tessera("opt", "-", "--kind", "graph", stdin="graph main", code=1)
        self.assertRegex(errors, r"^error TSR-3001: expected .*\n  node:  <stdin>:1:7\n")
        bad = "kernel @k(x: f32[4]) -> (y: f32[4]) {\n  for i in 0..5 { y[i] = x[i] }\n}\n"
        _, errors = self.tessera("opt", "-", "--kind", "loop", stdin=bad, code=1)
        self.assertRegex(errors, r"^error TSR-3300: the loop breaks its rules: kernel k: .*outside its extent 4")

    def test_tensors(self):
        for spec, why, legal in [
            ("", "it has none of the known forms", FORMS),
            ("zeros", "it has none of the known forms", FORMS),
            ("@", "there is no file name behind '@'", FORMS),
            ("x=one", "there is no shape and dtype before '='", FORMS),
            ("=1", "there is no shape and dtype before '='", FORMS),
            ("x.npy", "a file is written with '@': did you mean '@x.npy'?", FORMS),
            ("x=x.npy", "a file is written with '@': did you mean 'x=@x.npy'?", FORMS),
            ("photo.png", "a file is written with '@': did you mean '@photo.png'?", FORMS),
            ("2xstring=random", "strings cannot be drawn", "values, or a file"),
        ]:
            self.refuses(
                ["run", "model.onnx", "-i", spec], "TSR-4010", f"'{spec}' is not a tensor: {why}", legal, RUN_HELP
            )
        for spec, why, legal in [
            ("2x3xf32=1,2", "it has 6 elements and 2 values", "one value for all elements, or one for each"),
            ("2x3xf32=one", "'one' is not a number", FORMS),
            ("2x3xi64=1.5", "'1.5' is not an integer", FORMS),
            ("999999999999x999999999xf32=1", "it has too many elements", "at most 2^40 elements"),
        ]:
            self.refuses(
                ["run", "model.onnx", "-i", spec], "TSR-4010", f"'{spec}' is not a tensor: {why}", legal, RUN_HELP
            )
        self.refuses(
            ["run", "model.onnx", "-o", "y.npy"],
            "TSR-4010",
            "'y.npy' is not a tensor: a file is written with '@': did you mean '@y.npy'?",
            "[NAME=]@FILE.npy or [NAME=]@FILE.pb",
            RUN_HELP,
        )

        self.refuses(
            ["run", "model.onnx", "-o", "y"],
            "TSR-4010",
            "'y' is not a tensor: it does not name a file",
            "[NAME=]@FILE.npy or [NAME=]@FILE.pb",
            RUN_HELP,
        )

    def test_json(self):
        text, errors = self.tessera("run", "missing.onnx", "--json", code=1)
        self.assertRegex(errors, r"^error TSR-1001: ")
        told = json.loads(text)["error"]
        self.assertEqual(told["id"], "TSR-1001")
        self.assertEqual(errors, error(told["id"], told["message"], told["legal"], told["hint"]))
        text, _ = self.tessera("bench", "model.onnx", "--jsen", "--json", code=1)
        self.assertEqual(json.loads(text)["error"]["message"], "there is no option '--jsen'")
        text, errors = self.tessera("compile", "model.onnx", "-o", "-", "--json", code=1)
        self.assertEqual(json.loads(text)["error"]["id"], "TSR-4069")

    def test_standard_output_without_room(self):
        for arguments in (["inspect", "model.onnx"], ["operators"], ["run", "model.onnx"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run(
                    [cli_support.TESSERA, *arguments], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True,
                    env=self.environment,
                )
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn("error TSR-6101: standard output cannot be written: No space left on device\n", done.stderr)

    def test_environment(self):
        for name, value in (("TESSERA_NUM_THREADS", "abc"), ("TESSERA_NUM_THREADS", "1000"), ("TESSERA_BIND_THREADS", "yes")):
            _, errors = self.tessera("inspect", "model.onnx", **{name: value})
            self.assertRegex(errors, rf"^warning: {name}='{value}' is no whole number from \d to \d+, and is not used\n$")
        self.assertEqual(self.tessera("inspect", "model.onnx", TESSERA_NUM_THREADS="2")[1], "")

    def test_concurrency_of_the_interpreter(self):
        self.refuses(
            ["bench", "model.onnx", "--engine", "interp", "--concurrency", 2],
            "TSR-4066",
            "--concurrency runs several sessions of compiled code, and the interpreter has none",
            "--engine native",
        )

    def test_tensors_and_names(self):
        self.save_npy("x.npy", numpy.zeros((2, 3), numpy.float32))
        self.refuses(
            ["run", "model.onnx", "-i", "w=@x.npy"], "TSR-4011", "--input: there is no 'w'", "the model has 'x'"
        )
        self.refuses(
            ["run", "model.onnx", "-i", "x=@x.npy", "-i", "x=@x.npy"],
            "TSR-4011",
            "--input: 'x' is given twice",
            "the model has 'x'",
        )
        self.refuses(
            ["run", "model.onnx", "-i", "@x.npy", "-i", "@x.npy"],
            "TSR-4011",
            "--input: '@x.npy' is one too many",
            "the model has 'x'",
        )
        self.refuses(
            ["run", "model.onnx", "-o", "u=@u.npy"], "TSR-4011", "--output: there is no 'u'", "the model has 'y', 'z'"
        )
        self.refuses(
            ["run", "model.onnx", "--expected-output", "u=@u.npy"],
            "TSR-4011",
            "--expected-output: there is no 'u'",
            "the model has 'y', 'z'",
        )

    def test_tensors_that_do_not_fit(self):
        for engine in ("native", "interp"):
            self.refuses(
                ["run", "model.onnx", "--engine", engine, "-i", "2x3xf64=0"],
                "TSR-6302",
                "input 'x' got f64[2,3]",
                "f32[2,3], its declared type",
                "convert the values to that dtype; nothing is converted silently",
            )
            for dims, shape in (("3x2x", "3,2"), ("6x", "6"), ("1x2x3x", "1,2,3"), ("", "")):
                self.refuses(
                    ["run", "model.onnx", "--engine", engine, "-i", f"{dims}f32=0"],
                    "TSR-6303",
                    f"input 'x' got f32[{shape}]",
                    "f32[2,3], its declared type",
                    "give a tensor of that shape, or compile the model for this one with --shape",
                )

    def test_files_that_do_not_fit(self):
        self.save_npy("d.npy", numpy.zeros((2, 3), numpy.float64))
        self.refuses(
            ["run", "model.onnx", "-i", "@d.npy"],
            "TSR-6302",
            "input 'x' got f64[2,3] from 'd.npy'",
            "f32[2,3], its declared type",
            "convert the values to that dtype; nothing is converted silently",
        )
        self.save_npy("e.npy", numpy.zeros((4, 3), numpy.float64))
        self.refuses(
            ["run", "model.onnx", "-i", "@e.npy"],
            "TSR-6302",
            "input 'x' got f64[4,3] from 'e.npy'",
            "f32[2,3], its declared type",
            "convert the values to that dtype, and give a tensor of that shape; nothing is converted silently",
        )

    def test_tensor_files(self):
        _, errors = self.tessera("run", "model.onnx", "-i", "@missing.npy", code=1)
        self.assertRegex(errors, r"^error TSR-6211: .*'missing\.npy'.*No such file or directory")
        _, errors = self.tessera("run", "model.onnx", "-i", "@missing.pb", code=1)
        self.assertRegex(errors, r"^error TSR-6001: .*'missing\.pb'.*No such file or directory")
        self.refuses(
            ["run", "model.onnx", "-i", "@x.txt"],
            "TSR-6210",
            "'x.txt' is of no kind that is known by its extension",
            ".npy, .npz, .pb; for inputs also .png, .jpg, .jpeg and .bmp",
            "save the tensor with numpy.save",
        )
        numpy.save(self.folder / "good.npy", numpy.zeros((2, 3), numpy.float32))
        good = (self.folder / "good.npy").read_bytes()
        huge = good.replace(b"(2, 3), ", b"(2222222222222, 3333333333333), ", 1)
        for data, why in [
            (b"", "it does not begin as one"),
            (b"hello, world", "it does not begin as one"),
            (good[:40], "its header is cut off"),
            (good[:-1], "its header asks for more elements than its 23 bytes of data hold"),
            (good[:6] + b"\x09" + good[7:], "its format version is 9"),
            (good.replace(b"descr", b"dexcr"), "its header does not say the element type"),
            (good.replace(b"shape", b"shaqe"), "its header does not say the shape"),
            (good.replace(b"False", b"Maybe"), "its header does not say the memory order"),
            (
                huge[:8] + struct.pack("<H", len(huge) - 10 - 24) + huge[10:],
                "its header asks for more elements than its 24 bytes of data hold",
            ),
        ]:
            (self.folder / "bad.npy").write_bytes(data)
            self.refuses(
                ["run", "model.onnx", "-i", "@bad.npy"],
                "TSR-6211",
                f"'bad.npy' is not a usable .npy file: {why}",
                "a file written by numpy.save",
            )
        numpy.save(self.folder / "complex.npy", numpy.zeros((2, 3), numpy.complex64))
        self.refuses(
            ["run", "model.onnx", "-i", "@complex.npy"],
            "TSR-6212",
            "'complex.npy' holds elements of numpy type '<c8'",
            "floats of 16, 32 or 64 bits, integers of 8 to 64 bits, bool, strings (U)",
            "convert the array with astype()",
        )
        (self.folder / "bad.pb").write_bytes(b"\xff\xff\xff")
        _, errors = self.tessera("run", "model.onnx", "-i", "@bad.pb", code=1)
        self.assertRegex(errors, r"^error TSR-6002: 'bad\.pb' is not a serialised ONNX tensor")

    def test_pictures(self):
        (self.folder / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
        identity = make_model(
            [helper.make_node("Identity", ["x"], ["y"])],
            [("x", TensorProto.FLOAT, (1, 3, 4, 4))],
            [("y", TensorProto.FLOAT, (1, 3, 4, 4))],
        )
        self.save(identity, "picture.onnx")
        _, errors = self.tessera("run", "picture.onnx", "-i", "@p.png", code=1)
        self.assertRegex(
            errors,
            r"^error TSR-6201: cannot decode 'p\.png': .*\n  legal: a readable PNG, JPEG or BMP file\n"
            r"  hint:  convert the picture, or give the tensor as \.npy\n$",
        )
        self.refuses(
            ["run", "model.onnx", "-i", "@p.png"],
            "TSR-6202",
            "input 'x' is f32[2,3] and cannot be made from the picture 'p.png'",
            "an input [1,]CxHxW or [1,]HxWxC of f32, f16 or u8 with 1 or 3 channels",
            "prepare the tensor yourself and give it as .npy",
        )
        self.refuses(
            ["run", "picture.onnx", "-i", "@p.png", "--mean", "1,2"],
            "TSR-6203",
            "--mean has 2 values and input 'x' has 3 channels",
            "one value for all channels, or one for each",
        )

    def test_places_that_cannot_be_written(self):
        for path, reason in [
            ("missing/m.so", "No such file or directory"),
            ("/proc/m.so", "No such file or directory"),
            (".", "it is a folder"),
        ]:
            _, errors = self.tessera("compile", "model.onnx", "-o", path, code=1)
            self.assertEqual(
                errors,
                error(
                    "TSR-6102",
                    f"module '{path}' cannot be written: {reason}",
                    "a file name in an existing folder that may be written to",
                    "make the folder, or give another file name",
                ),
            )
        _, errors = self.tessera("run", "model.onnx", "-i", "2x3xf32=0", "-o", "@missing/y.npy", code=1)
        self.assertRegex(
            errors, r"^error TSR-6102: tensor 'missing/y\.npy' cannot be written: No such file or directory"
        )
        _, errors = self.tessera("compile", "model.onnx", "-o", "/dev/full", code=1)
        self.assertRegex(errors, r"^error TSR-6101: module '/dev/full' cannot be written: No space left on device")
        (self.folder / "file").write_text("")
        _, errors = self.tessera("compile", "model.onnx", "--save-temps", "file/temps", code=1)
        self.assertRegex(errors, r"^error TSR-6103: folder 'file/temps' cannot be made: Not a directory")
        self.assertEqual(self.files("*.tmp-*"), [])
        self.assertEqual(self.files("m.so"), [])

    @unittest.skipIf(os.environ.get("TESSERA_SANITIZE"), "sanitizers end the program where memory is refused")
    def test_more_memory_than_there_is(self):
        huge = ("x", TensorProto.FLOAT, (2**39,)), ("y", TensorProto.FLOAT, (2**39,))
        self.save(make_model([helper.make_node("Relu", ["x"], ["y"])], huge[:1], huge[1:]), "huge.onnx")
        for engine in ("native", "interp"):
            _, errors = self.tessera("run", "huge.onnx", "--engine", engine, "-i", "random:1", code=1)
            self.assertEqual(
                errors,
                error(
                    "TSR-5100",
                    "not enough memory",
                    "a model whose weights and tensors fit in this machine's memory",
                    "give smaller dimensions, close other programs, or take a machine with more memory",
                ),
            )

    def test_models_and_modules(self):
        for verb in ("compile", "run", "bench"):
            _, errors = self.tessera(verb, "missing.onnx", code=1)
            self.assertRegex(errors, r"^error TSR-1001: .*'missing\.onnx'.*No such file or directory")
        _, errors = self.tessera("run", "missing.so", code=1)
        self.assertRegex(errors, r"^error TSR-7001: module file 'missing\.so' does not exist")
        self.tessera("compile", "model.onnx", "-o", "m.so")
        self.refuses(
            ["run", "m.so", "--engine", "interp"],
            "TSR-4030",
            "'m.so' is a compiled module, which the interpreter cannot run",
            "a model with --engine interp, or a module with --engine native",
            "give the model that the module was compiled from",
        )
        data = (self.folder / "m.so").read_bytes()
        for name, damaged, ident in [
            ("cut.so", data[: len(data) // 2], "TSR-7003"),
            ("empty.so", b"", "TSR-7003"),
            ("flipped.so", data[:100] + bytes([data[100] ^ 1]) + data[101:], "TSR-7009"),
            ("foreign.so", pathlib.Path("/bin/true").read_bytes(), "TSR-7003"),
        ]:
            (self.folder / name).write_bytes(damaged)
            _, errors = self.tessera("run", name, code=1)
            self.assertRegex(errors, rf"^error {ident}: '{name}' ")

    def test_targets(self):
        for target, ident in [
            ("pdp11", "TSR-5001"),
            ("x86_64-unknown-linux-gnu,cpu=magic", "TSR-5002"),
            ("x86_64-unknown-linux-gnu,+magic", "TSR-5003"),
        ]:
            _, errors = self.tessera("compile", "model.onnx", "--target", target, code=1)
            self.assertRegex(errors, rf"^error {ident}: .*{target.split('=')[-1].split('+')[-1]}.*\n")
            self.assertIn("\n  legal: ", errors)

    def test_devices(self):
        self.refuses(
            ["compile", "model.onnx", "--place", "Nowhere*=null"],
            "TSR-4073",
            "--place: no node fits 'Nowhere*', or an earlier pattern takes all that do",
            "names of nodes, with *, ? and [...]",
            "'tessera explain MODEL' lists the kernels and their nodes",
        )
        x, y = (("x", TensorProto.FLOAT, ["n", 4]), ("y", TensorProto.FLOAT, ["n", 4]))
        self.save(make_model([helper.make_node("Relu", ["x"], ["y"])], [x], [y]), "open.onnx")
        self.refuses(
            ["compile", "open.onnx", "--dim", "n=1..4", "--target", str(ROOT / "examples/accel/vdla.json")],
            "TSR-4072",
            "--place or --target: the model has sizes that are open, and 'accel' runs fixed sizes alone",
            "models of tensors whose sizes are fixed",
            "fix the sizes with --shape or --dim, or run it on the CPU",
        )
        self.tessera("compile", "open.onnx", "--dim", "n=2", "--place", "*=null", "-o", "device.so")
        self.tessera("run", "device.so", "--input", "random:1")
        _, errors = self.tessera("run", "device.so", "--input", "random:1", code=1, TESSERA_NULL_FAIL="1")
        self.assertEqual(
            errors,
            error(
                "TSR-7026",
                "device 'null' of 'device.so' (kind 'null') has failed: operation 1 of its queue failed, as "
                "TESSERA_NULL_FAIL says; the outputs are not valid",
            ),
        )

    def test_no_threads(self):
        (self.folder / "blocks.loop").write_text(
            "kernel @k(x: f32[8]) -> (y: f32[8]) { for i in 0..2 { blockIdx.x for b in 0..4 { y[i * 4 + b] = x[i * 4 + b] } } }"
        )
        self.refuses(
            ["schedule", "blocks.loop", "--emit", "opencl"],
            "TSR-3427",
            "the program cannot be written for a GPU: 'serial for i in 0..+2' has blocks of threads inside of it",
            "blocks of threads whose memory is their own or their block's",
        )

    def test_no_opencl(self):
        self.tessera("compile", "model.onnx", "--target", "opencl", "-o", "opencl.so")
        _, errors = self.tessera("run", "opencl.so", "--input", "random:1", code=1, TESSERA_OPENCL_LIBRARY="/nowhere.so")
        self.assertEqual(
            errors,
            error(
                "TSR-7019",
                "'opencl.so' needs a device of the kind 'opencl', and it cannot be opened: there is no OpenCL: "
                "/nowhere.so: cannot open shared object file: No such file or directory",
            ),
        )

    def test_folders_of_cases(self):
        legal = "folders with test cases: model.onnx or model.graph, test_data_set_0/input_0.pb, output_0.pb"
        (self.folder / "void").mkdir()
        self.refuses(["verify", "void"], "TSR-6220", "there is no model.onnx or model.graph in or below 'void'", legal)
        self.refuses(
            ["verify", "gone"], "TSR-6220", "folder 'gone' cannot be searched: No such file or directory", legal
        )


if __name__ == "__main__":
    cli_support.main()
