"""Writing and reading ONNX test-case folders: CASE/model.onnx, CASE/test_data_set_N/{input,output}_K.pb."""
import pathlib
import shutil

import onnx
from onnx import TensorProto, numpy_helper


def to_proto(value, value_info):
    """The protobuf that belongs into a .pb file for a graph input or output of this type."""
    name, kind = value_info.name, value_info.type.WhichOneof("value")
    if isinstance(value, TensorProto):
        copy = TensorProto()
        copy.CopyFrom(value)
        copy.name = name
        return copy
    if kind == "map_type":
        return numpy_helper.from_dict(value, name)
    if kind == "sequence_type":
        return numpy_helper.from_list(value, name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, name)
    return numpy_helper.from_array(value, name)


def write_case(folder, model, data_sets, external_threshold=None):
    """Replaces `folder`. `data_sets` is a list of (inputs, outputs); inputs may be fewer than the graph's."""
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if external_threshold is None:
        (folder / "model.onnx").write_bytes(model.SerializeToString())
    else:
        onnx.save_model(model, folder / "model.onnx", save_as_external_data=True, all_tensors_to_one_file=True,
                        location="weights.bin", size_threshold=external_threshold)
    # Inputs that have an initializer are not given as files.
    initialized = {tensor.name for tensor in model.graph.initializer}
    given = [info for info in model.graph.input if info.name not in initialized]
    for number, (inputs, outputs) in enumerate(data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        for index, (value, info) in enumerate(zip(inputs, given)):
            (data / f"input_{index}.pb").write_bytes(to_proto(value, info).SerializeToString())
        for index, (value, info) in enumerate(zip(outputs, model.graph.output)):
            (data / f"output_{index}.pb").write_bytes(to_proto(value, info).SerializeToString())


def read_tensor(path):
    tensor = TensorProto()
    tensor.ParseFromString(pathlib.Path(path).read_bytes())
    return numpy_helper.to_array(tensor)


def is_current(out, key):
    """Whether `out` was written by a finished run with the same key (a string that says everything that matters)."""
    stamp = pathlib.Path(out) / ".complete"
    return stamp.is_file() and stamp.read_text() == key


def clear(out):
    """Removes the cases of an earlier run, and nothing that is not a case."""
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / ".complete").unlink(missing_ok=True)
    for folder in out.iterdir():
        if (folder / "model.onnx").is_file():
            shutil.rmtree(folder)


def mark_current(out, key):
    pathlib.Path(out, ".complete").write_text(key)


def source_digest(*paths):
    """A short digest of scripts, to be part of a key."""
    import hashlib
    digest = hashlib.sha256()
    for path in paths:
        digest.update(pathlib.Path(path).read_bytes())
    return digest.hexdigest()[:16]
