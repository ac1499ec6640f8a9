"""Element types: the numbers of include/tessera/tessera.h and numpy's types."""

from __future__ import annotations

import ml_dtypes
import numpy as np

# Number -> numpy type, and the type as which its bytes go to the extension module where the buffer protocol and DLPack
# have no name for it.
_TABLE = {
    1: (np.float64, None),
    2: (np.float32, None),
    3: (np.float16, None),
    4: (ml_dtypes.bfloat16, np.uint16),
    5: (ml_dtypes.float8_e4m3fn, np.uint8),
    6: (ml_dtypes.float8_e4m3fnuz, np.uint8),
    7: (ml_dtypes.float8_e5m2, np.uint8),
    8: (ml_dtypes.float8_e5m2fnuz, np.uint8),
    9: (ml_dtypes.float8_e8m0fnu, np.uint8),
    10: (ml_dtypes.float4_e2m1fn, np.uint8),
    16: (np.int64, None),
    17: (np.int32, None),
    18: (np.int16, None),
    19: (np.int8, None),
    20: (ml_dtypes.int4, np.uint8),
    21: (ml_dtypes.int2, np.uint8),
    24: (np.uint64, None),
    25: (np.uint32, None),
    26: (np.uint16, None),
    27: (np.uint8, None),
    28: (ml_dtypes.uint4, np.uint8),
    29: (ml_dtypes.uint2, np.uint8),
    32: (np.bool_, None),
}

# Tensors of strings are numpy arrays of str objects.
STRING = 33
OBJECT = np.dtype(object)

NUMPY = {number: np.dtype(kind) for number, (kind, _) in _TABLE.items()}
NUMBER = {dtype: number for number, dtype in NUMPY.items()}
CARRIER = {np.dtype(kind): np.dtype(carrier) for kind, carrier in _TABLE.values() if carrier}
