"""ONNX Runtime: its CPU provider with all optimisations of graphs."""

IMPORTS = ("onnxruntime",)


def open_peer(engine, model, inputs, threads, folder):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return onnxruntime.__version__, lambda: session.run(None, inputs)
