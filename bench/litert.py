"""LiteRT on the cases of a list that it has operators for: a process of bench/litert_bench.py for each case."""
import os
import pathlib
import subprocess
import tempfile

import numpy as np

PROGRAM = pathlib.Path(__file__).with_name("litert_bench.py")
NOT_SUPPORTED = 3


def python():
    """The Python that has LiteRT, or None."""
    program = os.environ.get("TESSERA_PYTHON")
    if not program:
        return None
    found = subprocess.run([program, "-c", "import ai_edge_litert, onnx"], capture_output=True)
    return program if found.returncode == 0 else None


class LiteRt:
    """One model with its inputs. `result` is what it gives; None where LiteRT has no such operator, then `reason`."""

    def __init__(self, program, model, inputs, threads):
        with tempfile.TemporaryDirectory(prefix="tessera-litert-") as folder:
            np.savez(f"{folder}/inputs.npz", **inputs)
            self.process = subprocess.Popen(
                [program, PROGRAM, model, f"{folder}/inputs.npz", f"{folder}/y.npy", str(threads)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            told = self.process.stdout.readline().strip()
            self.result = self.version = None
            if pathlib.Path(f"{folder}/y.npy").exists():
                self.version, self.result = told, np.load(f"{folder}/y.npy")
                return
            errors = self.process.communicate()[1].strip()
            if self.process.returncode != NOT_SUPPORTED:
                raise RuntimeError(f"{PROGRAM.name}: {errors}")
            self.reason = told

    def time_for(self, seconds):
        """The median time of one run, in microseconds."""
        print(seconds, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self):
        if self.result is not None:
            self.process.communicate()
