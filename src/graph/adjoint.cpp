#include "graph/adjoint.h"

#include <memory>

#include "graph/no_gradient_error.h"
#include "support/error.h"

namespace tessera::inline graph {

ValueId Adjoint::op(std::string_view name, std::vector<ValueId> inputs, Attrs attrs) {
  return builder_.add(ops_.get(name), std::move(inputs), std::move(attrs));
}

ValueId Adjoint::scalar(double value, ValueId like) {
  Tensor tensor(type(like).dtype, {});
  tensor.set_double(0, value);
  return op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
}

ValueId Adjoint::integer(const Expr& value) {
  if (const auto known = as_int(value)) {
    Tensor tensor(DType::kI64, {});
    tensor.set_int(0, *known);
    return op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  return reshape(op("sizes", {}, {{"sizes", Shape{value}}, {"dtype", DType::kI64}}), {});
}

ValueId Adjoint::filled(double value, DType dtype, const Shape& shape) {
  Tensor tensor(dtype, {});
  tensor.set_double(0, value);
  return broadcast(op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}}), shape);
}

ValueId Adjoint::reduce(const char* kind, ValueId v, std::vector<int64_t> axes, bool keepdims) {
  return op("reduce", {v}, {{"axes", std::move(axes)}, {"keepdims", keepdims}, {"kind", std::string(kind)}});
}

ValueId Adjoint::cast(ValueId v, DType dtype) { return type(v).dtype == dtype ? v : op("cast", {v}, {{"to", dtype}}); }

ValueId Adjoint::transpose(ValueId v, std::vector<int64_t> perm) {
  for (size_t d = 0; d < perm.size(); ++d)
    if (perm[d] != static_cast<int64_t>(d)) return op("transpose", {v}, {{"perm", std::move(perm)}});
  return v;
}

ValueId Adjoint::reshape(ValueId v, const Shape& shape) {
  return same_shape(type(v).shape, shape) ? v : op("reshape", {v}, {{"shape", shape}});
}

ValueId Adjoint::broadcast(ValueId v, const Shape& shape) {
  return same_shape(type(v).shape, shape) ? v : op("broadcast", {v}, {{"shape", shape}});
}

ValueId Adjoint::sum_to(ValueId v, ValueId like) {
  const Shape from = type(v).shape, to = type(like).shape;
  std::vector<int64_t> axes;
  const size_t extra = from.size() - to.size();
  for (size_t d = 0; d < from.size(); ++d)
    if (d < extra || (is_const_int(to[d - extra], 1) && !is_const_int(from[d], 1)))
      axes.push_back(static_cast<int64_t>(d));
  if (!axes.empty())
    v = op("reduce", {v}, {{"axes", std::move(axes)}, {"keepdims", false}, {"kind", std::string("sum")}});
  return reshape(v, to);
}

void Adjoint::fail(const std::string& found, const std::string& legal) const {
  throw NoGradientError({"TSR-2072", node_.op->name + " has no gradient: " + found, node_.loc, legal,
                         "compute it from operators that have one"});
}

std::function<std::vector<ValueId>(Adjoint& a)> no_gradient(std::string why) {
  return [why = std::move(why)](Adjoint& a) -> std::vector<ValueId> { a.fail(why, "operators with a gradient"); };
}

}  // namespace tessera::inline graph
