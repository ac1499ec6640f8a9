// Constant parameters stored in the order in which a kernel reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "types/tensor.h"

namespace tessera {

// Dimension of a packed tensor: steps along one or more logical places of the source. The value of place `axis` is
// the sum over dimensions of index * multiplier; places beyond the axis' extent hold zero.
struct PackDim {
  int64_t extent = 1;
  int axis = 0;  // index into PackSpec::axes
  int64_t multiplier = 1;
};

struct PackAxis {
  int64_t extent = 1;  // valid places: [0, extent)
  int64_t stride = 0;  // elements in the source per place
};

struct PackSpec {
  std::vector<PackAxis> axes;
  std::vector<PackDim> dims;  // of the packed tensor, outermost first
  int64_t offset = 0;         // element of the source at place 0 of every axis

  int64_t num_elements() const;
};

struct PackedParam {
  size_t param = 0;             // index into the kernel's parameters
  std::vector<PackSpec> parts;  // stored one after another
  // Not 0: 3x3 filters that are first transformed for Winograd tiles of this many outputs; the parts describe the
  // result.
  int64_t winograd = 0;

  int64_t num_elements() const;
};

// The packed elements of all parts as a one-dimensional tensor of the source's dtype.
Tensor pack(const Tensor& source, const PackedParam& packed);

}  // namespace tessera
