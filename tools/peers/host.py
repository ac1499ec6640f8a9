"""Another engine behind a pipe: started by `tessera bench --against`. Below stands the adapter of the engine, which defines

    IMPORTS = ("package", ...)
    open_peer(engine, model, inputs, threads, folder) -> (version, run)

with `inputs` {name: array} in the model's order and `folder` for what the engine writes; run() computes once and gives the
outputs, in the model's order, as what numpy.asarray takes or as something with numpy() or to_host().

argv: ENGINE MODEL THREADS. Every answer is a line of JSON, and {"error": ...} when something went wrong: at once
{"folder": F}; to the first line of standard input, {"inputs": [names], "outputs": [types]}, with F/input_N.npy written, the
outputs F/output_N.npy and what opening cost; then to each line {"warm_up": W, "repeat": R} the times {"ms": [...]}.

There are two processes. The first waits; when standard input closes, because nobody wants answers any more or because who
asked has died, it ends the second, with all that this one started, and removes F."""

import importlib
import json
import os
import pathlib
import select
import shutil
import signal
import sys
import tempfile
import time

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


def answer(pipe, value):
    os.write(pipe, (json.dumps(value) + "\n").encode())


def peak_bytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def fixed_shapes(model, inputs, folder):
    """The path of `model` with the shapes of `inputs`, for engines that compile for fixed ones."""
    import onnx

    proto = onnx.load(model, load_external_data=False)
    is_open = False
    for value in proto.graph.input:
        if value.name not in inputs:
            continue
        for dim, extent in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape):
            if dim.WhichOneof("value") != "dim_value":
                dim.dim_value = extent
                is_open = True
    if not is_open:
        return model
    proto = onnx.load(model)
    for value in proto.graph.input:
        if value.name in inputs:
            for dim, extent in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape):
                dim.dim_value = extent
    path = str(folder / "fixed.onnx")
    onnx.save(proto, path)
    return path


def as_array(value, dtype):
    import numpy

    for method in ("numpy", "to_host"):
        if hasattr(value, method):
            value = getattr(value, method)()
            break
    array = numpy.asarray(value)
    # Some engines have no integers of this width and give the same numbers in another one.
    return array.astype(dtype) if array.dtype.kind in "iub" and array.dtype != dtype else array


def work(answers, engine, model, threads, folder):
    commands = os.fdopen(0, "r")
    try:
        request = json.loads(commands.readline())
        for variable in ("OMP_NUM_THREADS", "TVM_NUM_THREADS"):
            os.environ[variable] = str(threads)
        os.environ["TMPDIR"] = str(folder)  # what engines leave there goes away with the rest
        begin = time.perf_counter()
        for package in ("numpy", *IMPORTS):
            importlib.import_module(package)
        imported = time.perf_counter()
        import numpy

        inputs = {name: numpy.load(folder / f"input_{i}.npy") for i, name in enumerate(request["inputs"])}
        opening = time.perf_counter()
        version, run = open_peer(engine, model, inputs, threads, folder)
        opened = time.perf_counter()
        outputs = run()
        first = time.perf_counter()
        if len(outputs) != len(request["outputs"]):
            raise ValueError(f"it gives {len(outputs)} outputs, the model has {len(request['outputs'])}")
        for i, (value, dtype) in enumerate(zip(outputs, request["outputs"])):
            numpy.save(folder / f"output_{i}.npy", as_array(value, numpy.dtype(dtype)))
        peak = peak_bytes()
        run_ms = (first - opened) * 1e3
        if run_ms < 2000:
            again = time.perf_counter()
            run()
            run_ms = (time.perf_counter() - again) * 1e3
        answer(answers, {"version": version, "outputs": len(outputs), "import_s": imported - begin,
                         "open_s": opened - opening, "first_ms": (first - opened) * 1e3, "run_ms": run_ms,
                         "peak_bytes": peak})
        for line in commands:
            request = json.loads(line)
            for _ in range(request["warm_up"]):
                run()
            times = []
            for _ in range(request["repeat"]):
                begin = time.perf_counter()
                run()
                times.append((time.perf_counter() - begin) * 1e3)
            answer(answers, {"ms": times})
    except BaseException as problem:
        lines = [line for line in str(problem).strip().splitlines() if line.strip()]
        told = [line for line in lines if "error:" in line] or lines[:1] or [""]
        answer(answers, {"error": f"{type(problem).__name__}: {told[0].strip()}"[:500]})


def last_line(log):
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


def main():
    engine, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for number in SIGNALS:  # the end of standard input ends us, after we have tidied up
        signal.signal(number, signal.SIG_IGN)
    answers = os.dup(1)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-peer-"))
    worker = 0
    try:
        log = folder / "log.txt"
        ended, held = os.pipe()
        worker = os.fork()
        if worker == 0:
            os.setsid()
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            os.close(ended)
            printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(printed, 1)  # libraries that print must not disturb the answers
            os.dup2(printed, 2)
            work(answers, engine, model, threads, folder)
            os._exit(0)
        os.close(held)
        answer(answers, {"folder": str(folder)})
        poll = select.poll()
        poll.register(0, 0)  # POLLHUP: nobody writes any more
        poll.register(ended, 0)
        events = dict(poll.poll())
        if 0 not in events:
            _, status = os.waitpid(worker, 0)
            if os.WIFSIGNALED(status):
                why = f"signal {os.WTERMSIG(status)} ended it: {last_line(log)}"
                answer(answers, {"error": why})
    finally:
        if worker > 0:
            for kill in (os.killpg, os.kill):  # it may not lead its group yet
                try:
                    kill(worker, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        # What was killed may have been about to write: again until the folder is gone.
        for _ in range(50):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.02)


main()
