// Constant parameters stored in the order in which a kernel reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "types/tensor.h"

namespace tessera::inline schedule {

// Dimension of a packed tensor: steps along one or more logical places of the source. The value of place `axis` is
// the sum over dimensions of index * multiplier; places outside of the axis hold zero.
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
  // Rows and columns of outputs of a Winograd tile, and of a filter's window. Not 0: filters are first transformed; the
  // parts describe the result.
  struct FilterTransform {
    int64_t rows = 0, columns = 0;
    int64_t height = 0, width = 0;
    bool operator==(const FilterTransform&) const = default;
  } winograd = {};
  // Not 0: weights of f32 that become so many numbers of bf16 each, with the elements of the first piece in front, then
  // those of the second; the parts describe the result. Behind the parts stand two more numbers: the least and the
  // greatest magnitude that the other factor may have (0 has every right) if no product of pieces is to be lost to
  // underflow or overflow.
  int64_t pieces = 0;

  int64_t num_elements() const;
};

// Why these weights cannot be packed so; empty when they can. Pieces of numbers that are not 0 and not in
// [2^-60, 2^60] may not exist.
std::string packing_problem(const Tensor& source, const PackedParam& packed);

// The packed elements of all parts as a one-dimensional tensor of the source's dtype, or of bf16 when it is cut into
// pieces. REQUIRES: no packing_problem.
Tensor pack(const Tensor& source, const PackedParam& packed);

}  // namespace tessera::inline schedule
