"""PyTorch on the CPU: the model made of modules by onnx2torch, run as it is (engine torch) or compiled by Inductor
(torch-compile)."""

IMPORTS = ("onnx", "onnx2torch", "torch")


def open_peer(engine, model, inputs, threads, folder):
    import onnx2torch
    import torch

    torch.set_num_threads(threads)
    network = onnx2torch.convert(model).eval()
    if engine == "torch-compile":
        network = torch.compile(network, dynamic=False)
    values = [torch.from_numpy(value.copy()) for value in inputs.values()]

    def run():
        with torch.inference_mode():
            outputs = network(*values)
        return [output.numpy() for output in ([outputs] if torch.is_tensor(outputs) else outputs)]

    return torch.__version__, run
