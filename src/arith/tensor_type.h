// The type of a tensor value: element type, logical shape, layout of its buffer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arith/expr.h"
#include "support/error.h"
#include "types/layout.h"

namespace tessera::inline arith {

using Shape = std::vector<Expr>;  // i64 expressions over named symbols; constants when static

Shape make_shape(const std::vector<int64_t>& dims);
// The shape as integers; empty when a dimension is symbolic.
std::optional<std::vector<int64_t>> static_dims(const Shape& shape);
bool same_shape(const Shape& a, const Shape& b);
std::string to_string(const Shape& shape);  // "[1,3,n,n*2]"

// A size's name and the values it may take at run time: lo, lo + step, ..., up to hi.
struct SymbolRange {
  Var var;
  int64_t lo = 1, hi = INT64_MAX;
  int64_t step = 1;
  // Of a data symbol, whose value a run finds among its data: what it does not exceed, an expression of symbols that
  // have their values before. lo is 0 then, hi the largest value of the bound. Null: the inputs' shapes give the value.
  Expr bound = {};

  bool is_data() const { return static_cast<bool>(bound); }
};

// A symbolic shape where numbers are needed. Whoever can do without catches it.
class StaticShapeNeeded : public InternalError {
 public:
  using InternalError::InternalError;
};

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
  Layout layout;

  int rank() const { return static_cast<int>(shape.size()); }
  // REQUIRES: static shape. StaticShapeNeeded otherwise.
  std::vector<int64_t> dims() const;
  int64_t num_elements() const;
  bool is_static() const { return static_dims(shape).has_value(); }
  std::string to_string() const;  // "f32[1,64,56,56]{0,1/16,2,3,1%16}"
};

bool operator==(const TensorType& a, const TensorType& b);

// The buffer shape and index that a layout gives to a logical shape and index.
Shape physical_shape(const Shape& shape, const Layout& layout);
std::vector<Expr> physical_index(const std::vector<Expr>& index, const Layout& layout);

}  // namespace tessera::inline arith
