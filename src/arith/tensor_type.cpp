#include "arith/tensor_type.h"

namespace tessera::inline arith {

Shape make_shape(const std::vector<int64_t>& dims) { return {dims.begin(), dims.end()}; }

std::optional<std::vector<int64_t>> static_dims(const Shape& shape) {
  std::vector<int64_t> dims;
  for (const Expr& dim : shape) {
    const auto value = as_int(dim);
    if (!value) return std::nullopt;
    dims.push_back(*value);
  }
  return dims;
}

bool same_shape(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!structurally_equal(a[i], b[i])) return false;
  return true;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + to_string(shape[i]);
  return text + "]";
}

std::vector<int64_t> TensorType::dims() const {
  auto dims = static_dims(shape);
  if (!dims) throw StaticShapeNeeded("static shape needed, found " + to_string());
  return *dims;
}

int64_t TensorType::num_elements() const {
  int64_t count = 1;
  for (int64_t dim : dims()) count *= dim;
  return count;
}

std::string TensorType::to_string() const {
  return std::string(dtype_name(dtype)) + tessera::to_string(shape) + layout.to_string();
}

bool operator==(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && a.layout == b.layout && same_shape(a.shape, b.shape);
}

Shape physical_shape(const Shape& shape, const Layout& layout) {
  if (layout.row_major()) return shape;
  Shape result;
  for (const LayoutDim& dim : layout.dims) {
    const Expr& extent = shape[static_cast<size_t>(dim.axis)];
    switch (dim.part) {
      case LayoutDim::Part::kWhole: result.push_back(extent); break;
      case LayoutDim::Part::kQuotient: result.push_back(ceildiv(extent, dim.block)); break;
      case LayoutDim::Part::kRemainder: result.push_back(dim.block); break;
    }
  }
  return result;
}

std::vector<Expr> physical_index(const std::vector<Expr>& index, const Layout& layout) {
  if (layout.row_major()) return index;
  std::vector<Expr> result;
  for (const LayoutDim& dim : layout.dims) {
    const Expr& i = index[static_cast<size_t>(dim.axis)];
    switch (dim.part) {
      case LayoutDim::Part::kWhole: result.push_back(i); break;
      case LayoutDim::Part::kQuotient: result.push_back(floordiv(i, dim.block)); break;
      case LayoutDim::Part::kRemainder: result.push_back(floormod(i, dim.block)); break;
    }
  }
  return result;
}

}  // namespace tessera::inline arith
