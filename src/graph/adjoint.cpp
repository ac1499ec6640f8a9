#include "graph/adjoint.h"

#include <memory>

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
  throw UserError({"TSR-2072", node_.op->name + " has no gradient: " + found, node_.loc, legal,
                   "compute it from operators that have one"});
}

}  // namespace tessera::inline graph
