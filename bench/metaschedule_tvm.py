#!/usr/bin/env python3
"""TVM's MetaSchedule on one ONNX model, for bench/metaschedule.py; runs with the Python of TESSERA_PYTHON.

    metaschedule_tvm.py tune MODEL LIBRARY --work FOLDER --layout NCHW|NHWC --trials 96 --batch 16 --seed 1
    metaschedule_tvm.py serve LIBRARY INPUT.npy

`tune` takes the steps of relax's pipeline "static_shape_tuning" with its rewriting of weights, for one core of this processor, and
prints a line of JSON. NHWC: the layout is changed before (ConvertLayout), so that inputs and outputs are transposed in the model.
`serve` answers lines on its standard input: "outputs FILE.npy" writes the output, "time SECONDS" runs for so long and answers the
mean of a run in microseconds."""
import argparse
import json
import os
import pathlib
import sys
import time

os.environ["TVM_NUM_THREADS"] = "1"


def only_x86_intrinsics():
    """Has `import tvm.s_tir.tensor_intrin` find those of x86 alone: it parses those of all GPUs as well, 18 s in each process that
    builds, and builds have a limit of time."""
    import importlib
    import pathlib
    import sys
    import types
    import tvm
    name = "tvm.s_tir.tensor_intrin"
    if name not in sys.modules:
        package = types.ModuleType(name)
        package.__path__ = [str(pathlib.Path(tvm.__file__).parent / "s_tir/tensor_intrin")]
        sys.modules[name] = package
        importlib.import_module(name + ".x86")


def tune(args):
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx
    from tvm.s_tir import meta_schedule as ms

    only_x86_intrinsics()
    begin = time.time()
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": 1})
    module = from_onnx(onnx.load(args.model), keep_params_in_input=False)
    steps = [relax.transform.DecomposeOpsForInference()]
    if args.layout == "NHWC":
        steps.append(relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}))
    steps += [relax.transform.CanonicalizeBindings(), relax.transform.FoldConstant(), relax.get_pipeline("zero"),
              relax.transform.AttachAttrLayoutFreeBuffers()]
    with target:
        module = tvm.transform.Sequential(steps)(module)
        tasks = ms.relax_integration.extract_tasks(module, target)
        contexts, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(tasks, str(args.work), num_threads=1, seed=args.seed)
        database = ms.tune.tune_tasks(
            tasks=contexts, task_weights=weights, work_dir=str(args.work), max_trials_global=args.trials,
            num_trials_per_iter=args.batch,
            builder=ms.builder.LocalBuilder(max_workers=args.jobs, timeout_sec=120, initializer=only_x86_intrinsics),
            runner=ms.runner.LocalRunner(timeout_sec=60))
        records = database.get_all_tuning_records()
        with database:
            module = relax.transform.MetaScheduleApplyDatabase()(module)
        module = tvm.transform.Sequential([relax.transform.SplitLayoutRewritePreproc(), relax.transform.FoldConstant()])(module)
    # A weight whose new order were not folded would be rewritten in each run.
    calls = str(module["main"]).count("call_tir")
    tvm.compile(module, target).export_library(str(args.library))
    failed = sum(not any(float(s) < 1e9 for s in record.run_secs) for record in records)
    print(json.dumps({"version": tvm.__version__, "target": str(target), "tasks": len(tasks), "calls": calls, "records": len(records),
                      "failed": failed, "seconds": round(time.time() - begin, 1)}))


def serve(args):
    import numpy as np
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.runtime.load_module(str(args.library)), tvm.cpu())
    value = tvm.runtime.tensor(np.load(args.input))
    first = machine.time_evaluator("main", tvm.cpu(), number=1, repeat=3)(value).min
    print("ready", flush=True)
    for line in sys.stdin:
        verb, _, what = line.strip().partition(" ")
        if verb == "outputs":
            np.save(what, machine["main"](value).numpy())
            print("done", flush=True)
        else:
            # Called in a loop of TVM's own, without Python.
            number = max(1, round(float(what) / first))
            print(1e6 * machine.time_evaluator("main", tvm.cpu(), number=number, repeat=1)(value).mean, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    tuning = verbs.add_parser("tune")
    tuning.add_argument("model", type=pathlib.Path)
    tuning.add_argument("library", type=pathlib.Path)
    tuning.add_argument("--work", type=pathlib.Path, required=True)
    tuning.add_argument("--layout", choices=["NCHW", "NHWC"], required=True)
    tuning.add_argument("--trials", type=int, required=True)
    tuning.add_argument("--batch", type=int, default=16)
    tuning.add_argument("--seed", type=int, default=1)
    tuning.add_argument("--jobs", type=int, default=2)
    serving = verbs.add_parser("serve")
    serving.add_argument("library", type=pathlib.Path)
    serving.add_argument("input", type=pathlib.Path)
    args = parser.parse_args()
    tune(args) if args.verb == "tune" else serve(args)


if __name__ == "__main__":
    main()
