"""TFLite models made in tests: the tables of src/import/tflite/model.fbs as Python classes, a builder of small models, and
LiteRT's reference kernels where the PyPI package ai-edge-litert is installed (in this Python, or in the folder of packages
that TESSERA_TEST_LITERT names)."""

import functools
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile

import flatbuffers
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIP = 77


@functools.cache
def tables():
    """The module that flatc writes of our schema."""
    folder = tempfile.mkdtemp(prefix="tessera-tflite-")
    subprocess.run(["flatc", "--python", "--gen-object-api", "--gen-onefile", "-o", folder,
                    ROOT / "src/import/tflite/model.fbs"], check=True)
    sys.path.insert(0, folder)
    return importlib.import_module("model_generated")


def _package(name):
    folder = os.environ.get("TESSERA_TEST_LITERT")
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module(f"ai_edge_litert.{name}")
    except ImportError:
        print("skipped: the PyPI package ai-edge-litert is not installed (TESSERA_TEST_LITERT may name its folder)")
        sys.exit(SKIP)


def litert_schema():
    return _package("schema_py_generated")


def has_reference(model):
    """Whether LiteRT's reference kernels know all operators."""
    package = _package("interpreter")
    try:
        package.Interpreter(model_content=model, experimental_op_resolver_type=package.OpResolverType.BUILTIN_REF)
    except (RuntimeError, ValueError) as error:
        return "Didn't find op" not in str(error)
    return True


def _interpreter(model):
    # A few operators have one kernel, which the reference ones do not count; with them all kernels are the fast ones.
    package = _package("interpreter")
    kinds = package.OpResolverType
    kind = kinds.BUILTIN_REF if has_reference(model) else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    return package.Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=kind)


def run_reference_often(model, runs):
    """The outputs of LiteRT's reference kernels, of several runs in a row."""
    interpreter = _interpreter(model)
    interpreter.allocate_tensors()
    results = []
    for inputs in runs:
        for detail, value in zip(interpreter.get_input_details(), inputs):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        results.append([interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()])
    return results


def run_reference(model, inputs):
    return run_reference_often(model, [inputs])[0]


class Builder:
    """A model, tensor by tensor and operator by operator; `graph` adds one that operators run."""

    TYPES = {"float32": "FLOAT32", "int8": "INT8", "uint8": "UINT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
             "bool": "BOOL", "float64": "FLOAT64", "float16": "FLOAT16", "complex64": "COMPLEX64", "uint32": "UINT32", "uint16": "UINT16"}

    def __init__(self, around=None):
        self.fb = tables()
        self.tensors, self.operators, self.inputs, self.outputs = [], [], [], []
        self.codes, self.buffers, self.graphs = ([], [self.fb.BufferT()], []) if around is None else (
            around.codes, around.buffers, around.graphs)
        self.number = len(self.graphs)
        self.graphs.append(self)

    def graph(self):
        return Builder(self)

    def tensor(self, shape, dtype="float32", scale=None, zero=0, data=None, axis=0, name=None):
        tensor = self.fb.TensorT()
        tensor.name = name or f"t{len(self.tensors)}"
        tensor.shape = [int(d) for d in shape]
        tensor.type = getattr(self.fb.TensorType, "RESOURCE" if dtype == "resource" else self.TYPES[np.dtype(dtype).name])
        tensor.buffer = 0
        if data is not None:
            buffer = self.fb.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data, dtype).tobytes(), np.uint8)
            self.buffers.append(buffer)
            tensor.buffer = len(self.buffers) - 1
        if scale is not None:
            quantization = self.fb.QuantizationParametersT()
            quantization.scale = [float(np.float32(s)) for s in np.atleast_1d(scale)]
            quantization.zeroPoint = [int(z) for z in np.broadcast_to(zero, np.shape(np.atleast_1d(scale)))]
            quantization.quantizedDimension = axis
            tensor.quantization = quantization
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def input(self, *args, **kwargs):
        self.inputs.append(self.tensor(*args, **kwargs))
        return self.inputs[-1]

    def output(self, *args, **kwargs):
        self.outputs.append(self.tensor(*args, **kwargs))
        return self.outputs[-1]

    def ints(self, values):
        return self.tensor(np.shape(values), "int32", data=np.array(values, np.int32))

    def operator(self, kind, inputs, outputs, options=None, version=1, **fields):
        code = self.fb.OperatorCodeT()
        number = getattr(self.fb.BuiltinOperator, kind)
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), version
        self.codes.append(code)
        operator = self.fb.OperatorT()
        operator.opcodeIndex = len(self.codes) - 1
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if options:
            operator.builtinOptionsType = getattr(self.fb.Options, options)
            operator.builtinOptions = getattr(self.fb, options + "T")()
            for name, value in fields.items():
                assert hasattr(operator.builtinOptions, name), (options, name)
                setattr(operator.builtinOptions, name, value)
        self.operators.append(operator)

    def custom(self, name, inputs, outputs, options):
        """An operator by name, with the bytes of its options."""
        self.operator("CUSTOM", inputs, outputs)
        self.codes[-1].customCode = name
        self.operators[-1].customOptions = np.frombuffer(options, np.uint8)

    def bytes(self):
        graphs = []
        for part in self.graphs:
            graphs.append(self.fb.SubGraphT())
            graphs[-1].name = "main" if part is self else f"graph_{part.number}"
            graphs[-1].tensors, graphs[-1].operators = part.tensors, part.operators
            graphs[-1].inputs, graphs[-1].outputs = part.inputs, part.outputs
        model = self.fb.ModelT()
        model.version, model.description = 3, "made by a test"
        model.operatorCodes, model.subgraphs, model.buffers = self.codes, graphs, self.buffers
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def run_tessera(tessera, model, inputs, num_outputs, flags=()):
    """The outputs of our compiled code; the text of the error where there is one."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "m.tflite"
        path.write_bytes(model)
        command = [tessera, "run", path, "--no-cache", *flags]
        for i, value in enumerate(inputs):
            np.save(folder / f"i{i}.npy", value)
            command += ["--input", f"@{folder}/i{i}.npy"]
        for i in range(num_outputs):
            command += ["--output", f"@{folder}/o{i}.npy"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            return run.stderr
        return [np.load(folder / f"o{i}.npy") for i in range(num_outputs)]


def run_seeds(checks):
    """The exit code. Arguments: TESSERA FIRST..LAST [NAMES]; `checks` are functions (tessera, seed) by name, which give the
    problem or None."""
    first, last = (int(n) for n in sys.argv[2].split(".."))
    failed = 0
    for seed in range(first, last + 1):
        for name in sys.argv[3:] or checks:
            try:
                problem = checks[name](sys.argv[1], seed)
            except (RuntimeError, ValueError) as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                print(f"seed {seed} {name}: {problem}", flush=True)
                failed += 1
    print(f"{last - first + 1} seeds, {failed} problems")
    return 1 if failed else 0
