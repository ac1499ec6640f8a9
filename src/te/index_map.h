// How a body reads its operands: for each load the map from the body's axes to the indices of the element.
//
// A map is a value: it is read off a body once, and fusion, layouts, overlapped tiles and in-place slices ask it
// instead of the body's expressions. Along each dimension of the operand, an index is made of
//   factor       coefficient * axis, for every axis in which it is linear; which axes those are
//   radix        coefficient * digit, where the digit of an axis is floormod(floordiv(axis, divisor), modulus): what
//                reshapes and blocked layouts read
//   offset       what is left where all axes are 0: a number, or an expression of symbols
//   by data      an index that is loaded from an operand itself: nothing is known of where it points
// and a window is where an index lies while the reduced axes take all their values: [step * axis + lo, step * axis +
// hi].
//
// Conditions are no part of a map: a load behind a select (padding) may have indices outside of the operand where the
// select does not take it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "te/body.h"

namespace tessera::inline tensor_programs {

struct AxisRef {
  bool reduced = false;  // one of Body::reduce_axes, else one of Body::axes
  size_t number = 0;
  bool operator==(const AxisRef&) const = default;
};

// floormod(floordiv(axis, divisor), modulus); modulus 0: without the floormod.
struct IndexRadix {
  int64_t coefficient = 1, divisor = 1, modulus = 0;
  bool operator==(const IndexRadix&) const = default;
};

// How an index depends on an axis that it mentions.
struct AxisUse {
  AxisRef axis;
  // index = coefficient * axis + (terms without the axis), for all values; empty where the index is not linear in it.
  std::optional<int64_t> coefficient;
  // The same for one digit of the axis; empty where the index is linear, or follows from the axis in another way.
  std::optional<IndexRadix> radix;
};

// One index of a load.
struct IndexDim {
  Expr index;                        // as the body has it
  std::vector<AxisUse> uses;         // in the order of the axes, then of the reduced ones
  bool by_data = false;              // it loads an element itself
  std::optional<AxisRef> sole = {};  // the index is this axis and nothing else

  const AxisUse* use_of(AxisRef axis) const;  // null: the index does not mention the axis
  bool is_linear() const;                     // in every axis that it mentions, and not by data
  // The index where every axis is 0. REQUIRES: is_linear().
  Expr offset(const Body& body) const;
};

struct IndexMap {
  BufferPtr operand;  // an input of the body, or, in a tensor program, an earlier stage
  Expr load;          // the first load with these indices
  std::vector<IndexDim> dims;

  bool mentions(AxisRef axis) const;
  // Whether the indices are the axes of the body, in their order.
  bool is_identity(const Body& body) const;
};

// The loads of the body, those in indices and conditions included, in the order of walk(); each index is there once.
// With `operand` its loads alone.
std::vector<IndexMap> index_maps(const Body& body, const Buffer* operand = nullptr);

// Of one load of the body, or of another load whose indices are made of the body's axes.
IndexMap index_map(const Body& body, const Expr& load);

const Axis& axis_of(const Body& body, AxisRef axis);

// Where an index lies at place y of an axis, whatever the reduced axes are: in [step * y + lo, step * y + hi].
struct IndexWindow {
  int64_t step = 1, lo = 0, hi = 0;
};

// Empty where the index is not linear in `axis`, or does not stay within numbers: it depends on other axes, on data or
// on symbols. The ends are the least and the largest index only as far as intervals see that.
std::optional<IndexWindow> window_along(const Body& body, const IndexDim& dim, size_t axis);

// Whether two iterations may read one element: false only if every axis of more than one iteration stands alone, with a
// coefficient other than 0, in one of the indices.
bool may_repeat(const Body& body, const IndexMap& map);

// Whether, all other operands fixed, the body's results are linear functions of the elements of `operand`, up to
// rounding: without it among indices and conditions, and without a constant term.
bool is_linear_in(const Body& body, const Buffer* operand);

}  // namespace tessera::inline tensor_programs
