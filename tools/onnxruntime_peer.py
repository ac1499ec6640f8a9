"""ONNX Runtime behind a pipe: started by `tessera bench --against onnxruntime`.

argv: MODEL FOLDER THREADS. FOLDER holds inputs.json (names) and input_N.npy; outputs are written there as output_N.npy,
and the folder is removed at the end. Then each line of standard input is a number of runs to time. Each answer is a
line of JSON; {"error": ...} when something went wrong."""

import json
import os
import pathlib
import shutil
import signal
import sys
import time


def main():
    model, folder, threads = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries that print must not disturb the answers

    def answer(value):
        print(json.dumps(value), file=answers, flush=True)

    try:
        import numpy
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = json.loads((folder / "inputs.json").read_text())
        inputs = {name: numpy.load(folder / f"input_{i}.npy") for i, name in enumerate(names)}
        outputs = session.run(None, inputs)
        for i, value in enumerate(outputs):
            numpy.save(folder / f"output_{i}.npy", value)
        answer({"version": onnxruntime.__version__, "outputs": len(outputs)})
    except Exception as problem:
        answer({"error": f"{type(problem).__name__}: {problem}"})
        return
    for line in sys.stdin:
        for _ in range(2):
            session.run(None, inputs)
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            session.run(None, inputs)
            times.append((time.perf_counter() - begin) * 1e3)
        answer({"ms": times})


signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of standard input ends us, and then we tidy up
try:
    main()
finally:
    shutil.rmtree(sys.argv[2], ignore_errors=True)
