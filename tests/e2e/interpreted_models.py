"""What tests of forms without a run time share: random inputs, and the interpreter's outputs beside theirs."""

import numpy
import onnx
from onnx import helper

from cli_support import CliTest

BOUND = 1e-5  # of the largest: functions are polynomials there, and libm's in the interpreter


def random_inputs(model, seed=1):
    random = numpy.random.default_rng(seed)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        dims = [dim.dim_value for dim in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        inputs[value.name] = (random.random(dims) if dtype.kind == "f" else random.integers(0, 10, dims)).astype(dtype).reshape(dims)
    return inputs


class InterpretedTest(CliTest):
    def interpreted(self, path, inputs, *arguments):
        given = []
        for i, (name, array) in enumerate(inputs.items()):
            numpy.save(self.folder / f"in{i}.npy", array)
            given += ["--input", f"{name}=@in{i}.npy"]
        outputs = [value.name for value in onnx.load(path, load_external_data=False).graph.output]
        for i, name in enumerate(outputs):
            given += ["--output", f"{name}=@want{i}.npy"]
        self.tessera("run", path, "--engine", "interp", *given, *arguments)
        return [numpy.load(self.folder / f"want{i}.npy") for i in range(len(outputs))]

    def assert_agree(self, want, got, what, bound=BOUND):
        self.assertEqual(len(want), len(got), what)
        for one, other in zip(want, got):
            other = other.reshape(one.shape)
            if one.dtype.kind != "f":
                numpy.testing.assert_array_equal(one, other, what)
                continue
            finite = numpy.abs(one[numpy.isfinite(one)]).max(initial=0)
            scale = bound if one.dtype != numpy.float16 else 1e-3
            numpy.testing.assert_allclose(other, one, rtol=0, atol=scale * max(finite, 1e-30), err_msg=what)
