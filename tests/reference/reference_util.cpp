#include "reference_util.h"

#include <fmt/format.h>

#include <cmath>

#include "interp/graph_interp.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"

namespace tessera {

std::vector<DType> arithmetic_dtypes() {
  std::vector<DType> list(std::begin(kRealDTypes), std::end(kRealDTypes));
  for (DType dtype : kIntDTypes) list.push_back(dtype);
  return list;
}

std::vector<DType> movable_dtypes() {
  std::vector<DType> list = arithmetic_dtypes();
  for (DType dtype : {DType::kF8E4M3FN, DType::kF8E4M3FNUZ, DType::kF8E5M2, DType::kF8E5M2FNUZ, DType::kF8E8M0,
                      DType::kF4E2M1, DType::kI4, DType::kI2, DType::kU4, DType::kU2, DType::kBool})
    list.push_back(dtype);
  return list;
}

Tensor random_tensor(std::mt19937& random, DType dtype, const Dims& dims) {
  Tensor tensor(dtype, dims);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const auto roll = static_cast<int64_t>(random() % 19);
    if (dtype == DType::kF8E8M0) {
      tensor.set_double(i, std::ldexp(1.0, static_cast<int>(roll) - 9));
    } else if (is_float(dtype)) {
      tensor.set_double(i, static_cast<double>(roll % 17 - 8) / 2);
    } else if (dtype_bits(dtype) < 8 || dtype == DType::kBool) {
      tensor.set_int(i, roll);
    } else {
      tensor.set_int(i, is_unsigned_int(dtype) ? roll % 10 : roll - 9);
    }
  }
  return tensor;
}

Tensor tensor_of(DType dtype, const Dims& dims, const std::vector<double>& values) {
  Tensor tensor(dtype, dims);
  EXPECT_EQ(tensor.num_elements(), static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
  return tensor;
}

namespace {

std::vector<Tensor> run_graph(const std::vector<Tensor>& inputs,
                              const std::function<std::vector<ValueId>(GraphBuilder&, std::vector<ValueId>)>& build) {
  Graph graph;
  GraphBuilder builder(graph);
  builder.set_loc("node_under_test");
  std::vector<ValueId> operands;
  for (size_t i = 0; i < inputs.size(); ++i)
    operands.push_back(
        graph.add_input(fmt::format("in{}", i), TensorType{inputs[i].dtype(), make_shape(inputs[i].dims()), {}}));
  graph.outputs = build(builder, operands);
  return GraphInterpreter().evaluate(graph, inputs);
}

}  // namespace

std::vector<Tensor> run_op(const std::string& op, const std::vector<Tensor>& inputs, const Attrs& attrs) {
  return run_graph(inputs, [&](GraphBuilder& builder, std::vector<ValueId> operands) {
    return builder.add_multi(standard_ops().get(op), std::move(operands), attrs);
  });
}

std::vector<Tensor> run_composite(const std::string& name, const std::vector<Tensor>& inputs, const Attrs& attrs) {
  return run_graph(inputs, [&](GraphBuilder& builder, std::vector<ValueId> operands) {
    return add_composite(builder, standard_ops(), name, std::move(operands), attrs);
  });
}

void for_each_index(const Dims& dims, const std::function<void(const Dims& index)>& visit) {
  for (int64_t dim : dims)
    if (dim == 0) return;
  Dims index(dims.size(), 0);
  while (true) {
    visit(index);
    size_t d = dims.size();
    while (d > 0 && ++index[d - 1] == dims[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

int64_t flat_index(const Dims& dims, const Dims& index) {
  int64_t flat = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    EXPECT_TRUE(index[d] >= 0 && index[d] < dims[d]) << "the reference reads outside a tensor";
    flat = flat * dims[d] + index[d];
  }
  return flat;
}

double at_broadcast(const Tensor& tensor, const Dims& index) {
  const size_t skip = index.size() - tensor.dims().size();
  Dims own;
  for (size_t d = 0; d < tensor.dims().size(); ++d) own.push_back(tensor.dims()[d] == 1 ? 0 : index[skip + d]);
  return at(tensor, own);
}

void expect_close(const Tensor& found, const Dims& dims, const std::vector<double>& want, const std::string& what,
                  double slack) {
  ASSERT_EQ(found.dims(), dims) << what;
  ASSERT_EQ(found.num_elements(), static_cast<int64_t>(want.size())) << what;
  double largest = 0;
  for (double value : want)
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  const DType dtype = found.dtype();
  double tolerance = 1e-5;
  if (dtype == DType::kF16) tolerance = 2e-3;
  if (dtype == DType::kBF16) tolerance = 1.6e-2;
  for (size_t i = 0; i < want.size(); ++i) {
    const double got = found.get_double(static_cast<int64_t>(i));
    if (!is_float(dtype)) {
      ASSERT_EQ(got, want[i]) << what << " (" << dtype_name(dtype) << "), element " << i;
    } else if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got)) << what << ", element " << i << " is " << got;
    } else if (std::isinf(want[i])) {
      ASSERT_EQ(got, want[i]) << what << ", element " << i;
    } else {
      ASSERT_LE(std::fabs(got - want[i]), slack * tolerance * largest)
          << what << " (" << dtype_name(dtype) << "), element " << i << ": " << got << " and not " << want[i];
    }
  }
}

std::vector<double> reference(const Dims& dims, const std::function<double(const Dims& index)>& value) {
  std::vector<double> result;
  for_each_index(dims, [&](const Dims& index) { result.push_back(value(index)); });
  return result;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError";
  return "";
}

}  // namespace tessera
