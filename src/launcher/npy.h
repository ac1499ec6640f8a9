// numpy's .npy files, for what a module takes and gives.
#pragma once

#include <stddef.h>

#include "tessera/tessera.h"

// Reads the array of a file, row-major and in this machine's byte order, to memory from malloc. `dtype` is what the
// module takes: elements of types that numpy has no letter for (bf16, floats of 8 bits) are raw bytes of their size
// ("V2", "V1"), as ml_dtypes writes them. Nothing is converted. Null where it did, else why it did not; `id` is the
// error's then.
const char* read_npy(const char* path, tessera_dtype dtype, tessera_tensor* tensor, const char** id);

// Writes one. Null where it did, else why it did not.
const char* write_npy(const char* path, const tessera_tensor* tensor);

// Elements and bytes of a tensor; 0 elements when a dimension is.
size_t count_elements(const tessera_tensor* tensor);
size_t count_bytes(const tessera_tensor* tensor);
