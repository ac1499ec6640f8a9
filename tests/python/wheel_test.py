#!/usr/bin/env python3
"""The wheel, in a virtual environment with numpy and ml_dtypes alone: what is in it and what it needs of a machine; models
compiled and run there give ONNX Runtime's results.

    wheel_test.py [WHEEL]

Without a wheel it builds one, as `pip wheel .` does, with the Python packages that are there (no network is needed). Import
time is printed, and nothing depends on it."""
import importlib.util
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import unittest
import zipfile

import numpy as np
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_BYTES = 60_000_000
# What every distribution has (PEP 600), for the names in DT_NEEDED.
SYSTEM = re.compile(r"(ld-linux-.*|lib(c|m|z|gcc_s|stdc\+\+))\.so\.\d+")
BUNDLED = re.compile(r"lib(LLVM|lld|protobuf|fmt|minizip|zstd|pcre2|tessera_)")

RUN = """
import sys
import numpy as np
import tessera
assert not any(name in sys.modules for name in ("onnx", "torch", "tessera.nn")), "the import brought more than it needs"
folder = sys.argv[1]
inputs = dict(np.load(f"{folder}/resnet18.inputs.npz"))
model = tessera.compile(f"{folder}/resnet18.onnx", threads=1)
model.save(f"{folder}/resnet18.so")
np.save(f"{folder}/compiled.npy", model.run(inputs)[0])
np.save(f"{folder}/loaded.npy", tessera.load(f"{folder}/resnet18.so").run(inputs)[0])
session = tessera.InferenceSession(f"{folder}/resnet18.onnx")
np.save(f"{folder}/session.npy", session.run(None, inputs)[0])
device = tessera.compile(f"{folder}/lstm_2x256.onnx", places=["*=null"], threads=1)
np.save(f"{folder}/device.npy", device.run(dict(np.load(f"{folder}/lstm_2x256.inputs.npz")))[0])
x = tessera.tensor([1.0, 2.0], requires_grad=True)
(x * x).sum().backward()
assert x.grad.numpy().tolist() == [2, 4]
print("\\n".join(sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line})))
"""


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def build(folder):
    """By the environment's own packages; the build folder stays, so that another build is short."""
    run([sys.executable, "-m", "pip", "wheel", ROOT, "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", folder,
         "--config-settings", f"build-dir={os.environ.get('TESSERA_WHEEL_BUILD', ROOT / 'build-python')}"])
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder):
    """A Python with numpy and ml_dtypes alone, which are links to those of this one."""
    run([sys.executable, "-m", "venv", "--without-pip", folder])
    (site,) = folder.glob("lib/python*/site-packages")
    for package in ("numpy", "ml_dtypes"):
        place = pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])
        for path in (place, place.with_name(f"{package}.libs")):
            if path.exists():
                (site / path.name).symlink_to(path)
    return folder / "bin/python"


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="tessera-wheel-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.wheel = GIVEN[0] if GIVEN else build(cls.folder)
        cls.python = make_environment(cls.folder / "venv")
        # --no-deps: the links are no installed packages.
        run([sys.executable, "-m", "pip", "--python", cls.python, "install", "--no-index", "--no-deps", cls.wheel])
        (cls.package,) = (cls.folder / "venv").glob("lib/python*/site-packages/tessera")
        (cls.native,) = cls.package.glob("_native*.so")
        cls.environment = {name: value for name, value in os.environ.items()
                           if not name.startswith(("PYTHON", "LD_", "TESSERA_"))}

    def run_python(self, *arguments):
        return run([self.python, *arguments], env=self.environment, cwd=self.folder)

    def test_size_and_files(self):
        size = self.wheel.stat().st_size
        print(f"{self.wheel.name}: {size / 1e6:.1f} MB, the module {self.native.stat().st_size / 1e6:.1f} MB unpacked")
        self.assertLess(size, MOST_BYTES)
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            (metadata,) = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
        self.assertEqual(len(names), len(set(names)))
        for name in ("tessera/py.typed", "tessera/_native.pyi", "tessera/torch/__init__.py", "tessera/lib/libtessera_opencl.so.0"):
            self.assertIn(name, names)
        self.assertTrue(any(name.endswith("licenses/LICENSE") for name in names))
        self.assertEqual([name for name in names if not name.startswith("tessera")], [], "files outside of the package")
        required = re.findall(r"^Requires-Dist: (\w+)(?!.*extra)", metadata, re.M)
        self.assertEqual(required, ["numpy", "ml_dtypes"])

    def test_symbols_and_libraries(self):
        symbols = [line.split()[-1] for line in run(["nm", "-D", "--defined-only", self.native]).splitlines()]
        self.assertEqual(symbols, ["PyInit__native"])
        bundled = {path.name for path in (self.package / "lib").iterdir()}
        for library in (self.native, *(self.package / "lib").iterdir()):
            for name in re.findall(r"\(NEEDED\).*\[(.*)\]", run(["readelf", "-d", library])):
                self.assertTrue(name in bundled or SYSTEM.fullmatch(name), f"{library.name} needs {name}")

    def test_models(self):
        run([sys.executable, ROOT / "tests/models/materialize.py", "resnet18", "lstm_2x256", "--out", self.folder, "--inputs"])
        script = self.folder / "run.py"
        script.write_text(RUN)
        mapped = self.run_python(script, self.folder).splitlines()
        outside = [path for path in mapped if BUNDLED.match(pathlib.Path(path).name) and not path.startswith(str(self.folder))]
        self.assertEqual(outside, [], "libraries of this machine were loaded")
        self.assertTrue(any("libtessera_null" in path for path in mapped))
        for name, outputs in (("resnet18", ("compiled", "loaded", "session")), ("lstm_2x256", ("device",))):
            session = onnxruntime.InferenceSession(self.folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
            want = session.run(None, dict(np.load(self.folder / f"{name}.inputs.npz")))[0]
            for output in outputs:
                got = np.load(self.folder / f"{output}.npy")
                self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))
                self.assertLessEqual(np.abs(got - want).max(), 1e-4 * np.abs(want).max(), output)

    def test_missing_packages_are_named(self):
        done = subprocess.run([self.python, "-c", "import tessera.torch"], capture_output=True, text=True, env=self.environment)
        self.assertIn("No module named 'torch'", done.stderr)
        self.assertNotEqual(done.returncode, 0)

    def test_import_time(self):
        """Processor and wall time of `import tessera` after numpy's; printed."""
        script = ("import time, numpy; a, b = time.process_time(), time.perf_counter(); import tessera; "
                  "print(1e3 * (time.process_time() - a), 1e3 * (time.perf_counter() - b))")
        times = [tuple(map(float, self.run_python("-c", script).split())) for _ in range(9)]
        processor, wall = zip(*times)
        print(f"import tessera beyond numpy: {statistics.median(processor):.0f} ms of processor time (least {min(processor):.0f}), "
              f"{statistics.median(wall):.0f} ms on the clock (least {min(wall):.0f})")
        self.assertGreater(min(processor), 0)


GIVEN = [pathlib.Path(argument).resolve() for argument in sys.argv[1:] if argument.endswith(".whl")]

if __name__ == "__main__":
    unittest.main(argv=[argument for argument in sys.argv if not argument.endswith(".whl")])
