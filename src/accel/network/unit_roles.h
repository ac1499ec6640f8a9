// What the instructions of a description are for, found by what they compute: the one that multiplies, those that bring
// its operands, that clear sums, that compute on finished sums, and that store them. No instruction is known by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accel/description.h"

namespace tessera::inline network {

// d[o] = d[o] + x[k] * w[o, k], for o and k in a tile.
struct UnitProduct {
  const UnitInstruction* instruction = nullptr;
  size_t x = 0, w = 0, d = 0;  // its parameters
  int64_t in = 1, out = 1;     // extents of k and o
  bool out_first = true;       // w[o, k] and not w[k, o]
  DType x_dtype = DType::kI8, w_dtype = DType::kI8;
};

// Computes a vector of numbers from vectors of numbers, place by place.
struct UnitMap {
  const UnitInstruction* instruction = nullptr;
  Expr value;  // loads each operand at one place
  Var place;
  DType dtype = DType::kF32;  // of the result
};

struct UnitRoles {
  UnitProduct product;
  const UnitInstruction* load_x = nullptr;
  const UnitInstruction* load_w = nullptr;
  const UnitInstruction* load_sums = nullptr;  // null: nothing comes from DRAM to where sums are
  const UnitInstruction* clear = nullptr;
  std::vector<UnitMap> maps;    // sums to sums
  std::vector<UnitMap> stores;  // sums to DRAM
  bool moves_any_type = false;  // what load_sums brings may be of any type of its width

  int64_t lanes() const { return product.out; }
};

// The reason why the unit cannot multiply and add at all stands in `why`, which is empty otherwise.
UnitRoles roles_of(const Accelerator& unit, std::string& why);

}  // namespace tessera::inline network
