"""Apache TVM: Relax with its default pipelines for this CPU. No schedule is searched for, which would take hours."""

IMPORTS = ("onnx", "tvm", "tvm.relax.frontend.onnx")


def open_peer(engine, model, inputs, threads, folder):
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    shapes = {name: list(value.shape) for name, value in inputs.items()}
    module = from_onnx(onnx.load(model), shape_dict=shapes, keep_params_in_input=False)
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": threads})
    with target:
        executable = tvm.compile(relax.get_pipeline("zero")(module), target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    values = [tvm.runtime.tensor(value) for value in inputs.values()]

    def run():
        outputs = machine["main"](*values)
        return [outputs] if hasattr(outputs, "numpy") else list(outputs)

    return tvm.__version__, run
