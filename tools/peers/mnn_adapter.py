"""MNN: converted, then run on the CPU with high precision."""

IMPORTS = ("onnx", "MNN", "_tools")


def open_peer(engine, model, inputs, threads, folder):
    import _tools  # the converter as a library; its command reports that it was used, and installs packages for that
    import MNN
    import numpy

    converted = folder / "model.mnn"
    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", fixed_shapes(model, inputs, folder), "--MNNModel",
                       str(converted), "--bizCode", "tessera"])
    if not converted.is_file():
        raise ValueError("its converter refuses the model")
    manager = MNN.nn.create_runtime_manager(({"backend": "CPU", "precision": "high", "numThread": threads},))
    network = MNN.nn.load_module_from_file(str(converted), list(inputs), [], runtime_manager=manager)

    def variable(value):
        is_integer = value.dtype.kind in "iub"  # it has no 64-bit integers
        made = MNN.expr.placeholder(list(value.shape), MNN.expr.NCHW, MNN.expr.int if is_integer else MNN.expr.float)
        made.write(value.astype(numpy.int32) if is_integer else value)
        return made

    def run():
        outputs = network.forward([variable(value) for value in inputs.values()])
        return [numpy.array(output.read()) for output in outputs]  # reading is what makes it compute

    return MNN.version(), run
