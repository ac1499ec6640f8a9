#!/usr/bin/env python3
"""Times of quantised networks beside ONNX Runtime, OpenVINO and LiteRT: one file for all, rounds in turn, an engine a process.

    bench/int8.py NAME=FILE ... [--threads 1] [--seconds 30] [--wait FILE]

FILE.onnx in QDQ form (../shared/peers/int8_peers.py makes such of models in f32, or tessera quantize) or FILE.tflite.
PEERS_PYTHON is a Python with onnxruntime and openvino, LITERT_PYTHON one with ai-edge-litert; this one has tessera. Engines
that are missing are left out. With --wait everything is loaded, "ready" is printed, and the rounds begin when FILE is
there: for a machine on which other work is stopped meanwhile. Prints the least and the median time of each engine in ms,
and the least time of the best other engine as a multiple of ours."""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy

ROUND = 0.12  # seconds of one engine


def random_input(random, shape, dtype):
    dtype = numpy.dtype(dtype)
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    if dtype.itemsize == 1:
        info = numpy.iinfo(dtype)
        return random.integers(info.min, info.max + 1, shape).astype(dtype)
    return random.integers(0, 2, shape).astype(dtype)  # tokens, masks


def runner(engine, model, threads):
    random = numpy.random.default_rng(0)
    if engine == "tessera":
        import tessera
        compiled = tessera.compile(model, threads=threads)
        inputs = {i.name: random_input(random, i.shape, i.dtype) for i in compiled.inputs}
        return lambda: compiled.run(inputs)
    if engine == "onnxruntime":
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        dtypes = {"tensor(float)": "f4", "tensor(int64)": "i8", "tensor(uint8)": "u1", "tensor(int8)": "i1"}
        inputs = {i.name: random_input(random, [d if isinstance(d, int) else 1 for d in i.shape], dtypes[i.type])
                  for i in session.get_inputs()}
        return lambda: session.run(None, inputs)
    if engine == "openvino":
        import openvino
        compiled = openvino.Core().compile_model(
            model, "CPU", {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"})
        request = compiled.create_infer_request()
        inputs = [random_input(random, list(port.shape), port.element_type.to_dtype()) for port in compiled.inputs]
        return lambda: request.infer(inputs, share_inputs=True)
    from ai_edge_litert.interpreter import Interpreter
    interpreter = Interpreter(model_path=model, num_threads=threads)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], random_input(random, detail["shape"], detail["dtype"]))
    return interpreter.invoke


def work(engine, model, threads):
    run = runner(engine, model, threads)
    for _ in range(3):
        run()
    print("ready", flush=True)
    for line in sys.stdin:
        begin, times = time.perf_counter(), []
        while time.perf_counter() - begin < float(line) or len(times) < 2:
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1000)
        print(min(times), statistics.median(times), flush=True)


def start(engine, model, threads):
    python = {"tessera": sys.executable, "litert": os.environ.get("LITERT_PYTHON")}.get(engine, os.environ.get("PEERS_PYTHON"))
    if not python:
        return None
    process = subprocess.Popen([python, __file__, "--worker", engine, f"m={model}", "--threads", str(threads)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process if process.stdout.readline().strip() == "ready" else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--wait", type=pathlib.Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    models = dict(text.split("=", 1) for text in options.models)
    if options.worker:
        return work(options.worker, models["m"], options.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.threads:])
    workers = {}
    for name, model in models.items():
        for engine in ("tessera", *(("litert",) if model.endswith(".tflite") else ("onnxruntime", "openvino"))):
            if (process := start(engine, model, options.threads)) is not None:
                workers[name, engine] = process
    print("ready", flush=True)
    while options.wait and not options.wait.exists():
        time.sleep(0.05)
    times, begin = {key: [] for key in workers}, time.time()
    while time.time() - begin < options.seconds:
        for key, process in workers.items():
            process.stdin.write(f"{ROUND}\n")
            process.stdin.flush()
            times[key].append([float(part) for part in process.stdout.readline().split()])
    for process in workers.values():
        process.stdin.close()
    print(f"| network, {options.threads} thread{'s' if options.threads > 1 else ''} | tessera | best other | ratio |\n|---|--:|--:|--:|")
    for name in models:
        rows = {engine: (min(t[0] for t in times[n, engine]), statistics.median(t[1] for t in times[n, engine]))
                for n, engine in times if n == name}
        others = {engine: row for engine, row in rows.items() if engine != "tessera"}
        best = min(others, key=lambda engine: others[engine][0], default=None)
        ours = "{:.3f} ({:.3f})".format(*rows["tessera"]) if "tessera" in rows else "-"
        theirs = f"{best} {others[best][0]:.3f} ({others[best][1]:.3f})" if best else "-"
        ratio = f"{others[best][0] / rows['tessera'][0]:.2f}" if best and "tessera" in rows else "-"
        print(f"| {name} | {ours} | {theirs} | {ratio} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
