"""IREE: compiled for this CPU with -O3, run by its task system on as many workers as there are threads."""

IMPORTS = ("onnx", "iree.compiler.tools", "iree.runtime")


def open_peer(engine, model, inputs, threads, folder):
    import importlib.metadata
    import subprocess
    import sys

    import iree.compiler.tools as tools
    import iree.runtime as runtime

    imported, compiled = str(folder / "model.mlir"), str(folder / "model.vmfb")
    done = subprocess.run([sys.executable, "-m", "iree.compiler.tools.import_onnx", fixed_shapes(model, inputs, folder),
                           "-o", imported], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise ValueError("its importer refuses the model: " + (done.stderr.strip().splitlines() or ["no reason given"])[-1])
    flags = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
    try:
        tools.compile_file(imported, output_file=compiled, target_backends=["llvm-cpu"], extra_args=flags)
    except tools.CompilerToolError as problem:
        if "stack allocation limit" not in str(problem):
            raise
        flags += ["--iree-llvmcpu-stack-allocation-limit=262144"]  # its default is too small for some networks
        tools.compile_file(imported, output_file=compiled, target_backends=["llvm-cpu"], extra_args=flags)
    runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    config = runtime.Config("local-task")
    context = runtime.SystemContext(config=config)
    context.add_vm_module(runtime.VmModule.mmap(context.instance, compiled))
    module = list(context.modules.values())[-1]
    name = next(name for name in module.vm_module.function_names if not name.startswith("__") and "$" not in name)
    function = module[name]
    values = [runtime.asdevicearray(config.device, value) for value in inputs.values()]

    def run():
        outputs = function(*values)
        return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

    return importlib.metadata.version("iree-base-runtime"), run
