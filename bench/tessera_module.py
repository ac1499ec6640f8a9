"""A compiled module in this process, through the C API, so that it can be timed in turn with another engine."""
import ctypes

import numpy as np

MAX_RANK = 16
NUMBERS = {"float64": 1, "float32": 2, "float16": 3, "int64": 16, "int32": 17, "int16": 18, "int8": 19, "uint64": 24,
           "uint32": 25, "uint16": 26, "uint8": 27, "bool": 32}
NAMES = {number: name for name, number in NUMBERS.items()}


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int32),
                ("dims", ctypes.c_int64 * MAX_RANK)]


class TensorInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int32),
                ("dims", ctypes.c_int64 * MAX_RANK)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("id", ctypes.c_char * 16), ("message", ctypes.c_char * 1000)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("num_threads", ctypes.c_int32)]


class Module:
    """Inputs are given once; `run` is one call of the module into buffers that `outputs` shows."""

    def __init__(self, library, path, inputs, threads):
        self.c = ctypes.CDLL(str(library))
        self.error = Error()
        self.module, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.c.tessera_module_load(str(path).encode(), None, ctypes.byref(self.module),
                                              ctypes.byref(self.error)))
        options = SessionOptions(ctypes.sizeof(SessionOptions), threads)
        self.check(self.c.tessera_session_create(self.module, ctypes.byref(options), ctypes.byref(self.session),
                                                 ctypes.byref(self.error)))
        self.arrays, self.results = [], []
        self.inputs = self.tensors("input", lambda info: np.ascontiguousarray(inputs[info.name.decode()]), self.arrays)
        empty = lambda info: np.empty(tuple(info.dims[:info.rank]), NAMES[info.dtype])
        self.outputs_ = self.tensors("output", empty, self.results)
        self.call = self.c.tessera_session_run
        self.arguments = (self.session, self.inputs, len(self.arrays), self.outputs_, len(self.results),
                          ctypes.byref(self.error))

    def check(self, status):
        if status != 0:
            raise RuntimeError(f"{self.error.id.decode()}: {self.error.message.decode()}")

    def tensors(self, kind, array_of, kept):
        count = getattr(self.c, f"tessera_module_num_{kind}s")(self.module)
        tensors = (Tensor * max(1, count))()
        for i in range(count):
            info = TensorInfo()
            getattr(self.c, f"tessera_module_{kind}")(self.module, i, ctypes.byref(info))
            array = array_of(info)
            kept.append(array)
            tensors[i].data, tensors[i].dtype = array.ctypes.data, NUMBERS[array.dtype.name]
            tensors[i].rank = array.ndim
            tensors[i].dims[:array.ndim] = array.shape
        return tensors

    def run(self):
        self.check(self.call(*self.arguments))

    def outputs(self):
        self.run()
        return [result.copy() for result in self.results]

    def close(self):
        self.c.tessera_session_free(self.session)
        self.c.tessera_module_free(self.module)
