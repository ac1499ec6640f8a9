// numpy's .npy and .npz files.
#pragma once

#include <string>
#include <vector>

#include "types/tensor.h"

namespace tessera {

// Any byte order and either memory order; the result is row-major. UserError TSR-6211 when the file cannot be read or
// is no .npy file, TSR-6212 when it holds elements that tensors do not have (complex numbers, objects, bytes).
Tensor read_npy(const std::string& path);

// The names of the arrays in an .npz file (a ZIP archive of .npy files, compressed or not), in its order. UserError
// TSR-6211.
std::vector<std::string> names_in_npz(const std::string& path);
// One of them. UserError as read_npy, TSR-6213 when no array has that name.
Tensor read_npz(const std::string& path, const std::string& name);

// bf16 and narrower floats, which numpy has no name for, are written as f32; 4- and 2-bit integers as 8-bit ones.
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace tessera
