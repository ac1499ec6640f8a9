"""OpenVINO: its CPU plugin, set for latency, computing in f32 (engine openvino) or where it can in bf16 (openvino-bf16)."""

IMPORTS = ("openvino",)


def open_peer(engine, model, inputs, threads, folder):
    import openvino

    core = openvino.Core()
    network = core.read_model(model)
    if any(port.get_partial_shape().is_dynamic for port in network.inputs):
        network.reshape({name: list(value.shape) for name, value in inputs.items()})
    precision = "bf16" if engine == "openvino-bf16" else "f32"
    compiled = core.compile_model(network, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads,
                                                   "INFERENCE_PRECISION_HINT": precision})
    request = compiled.create_infer_request()
    for port in compiled.inputs:
        name = next((name for name in port.get_names() if name in inputs), None)
        if name is None:
            raise ValueError(f"its input {sorted(port.get_names())} has no name of the model's")
        request.set_tensor(port, openvino.Tensor(inputs[name]))

    def run():
        request.infer()
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return openvino.__version__.split("-")[0], run
