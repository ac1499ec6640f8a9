#include "thread_checks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arith/tensor_type.h"
#include "interp/loop_interp.h"
#include "loop/printer.h"
#include "loop/verify.h"

namespace tessera {

std::vector<Tensor> random_params(const LoopProgram& program, std::mt19937& random) {
  std::vector<Tensor> tensors;
  for (const BufferPtr& param : program.params) {
    Tensor tensor(param->dtype, *static_dims(param->shape));
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      tensor.set_double(i, static_cast<double>(static_cast<int>(random() % 33) - 16) / 8);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Tensor reshaped(const Tensor& tensor, const Buffer& like) {
  Tensor result(tensor.dtype(), *static_dims(like.shape));
  std::copy_n(tensor.bytes(), tensor.num_bytes(), result.mutable_bytes());
  return result;
}

namespace {

template <typename Run>
std::vector<Tensor> results_of(const LoopProgram& program, const std::vector<Tensor>& given, const Run& run) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < given.size(); ++i) tensors.push_back(reshaped(given[i], *program.params[i]));
  std::vector<Tensor*> params;
  for (Tensor& tensor : tensors) params.push_back(&tensor);
  run(params);
  return {tensors.end() - program.num_outputs, tensors.end()};
}

}  // namespace

std::vector<Tensor> by_loops(const LoopProgram& program, const std::vector<Tensor>& given) {
  return results_of(program, given, [&](const std::vector<Tensor*>& params) { interpret(program, params); });
}
std::vector<Tensor> by_threads(const LoopProgram& program, const DeviceKernel& kernel, const std::vector<Tensor>& given,
                               ThreadOrder order) {
  return results_of(program, given,
                    [&](const std::vector<Tensor*>& params) { interpret_threads(program, kernel, params, order); });
}

std::string difference(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double tolerance) {
  for (size_t t = 0; t < want.size(); ++t) {
    double scale = 0;
    for (int64_t i = 0; i < want[t].num_elements(); ++i)
      if (std::isfinite(want[t].get_double(i))) scale = std::max(scale, std::fabs(want[t].get_double(i)));
    for (int64_t i = 0; i < want[t].num_elements(); ++i) {
      const double g = got[t].get_double(i), w = want[t].get_double(i);
      const bool same = g == w || (std::isnan(g) && std::isnan(w)) ||
                        (is_float(want[t].dtype()) && std::fabs(g - w) <= tolerance * scale);
      if (!same) return fmt::format("result {}, element {}: {} instead of {}", t, i, g, w);
    }
  }
  return "";
}

namespace {

// Whether some order of the threads shows that the form is wrong.
bool is_found(const LoopProgram& program, const DeviceKernel& kernel, const std::vector<Tensor>& given) {
  return std::any_of(std::begin(kOrders), std::end(kOrders), [&](ThreadOrder order) {
    try {
      by_threads(program, kernel, given, order);
      return false;
    } catch (const LoopFault&) {
      return true;
    }
  });
}

}  // namespace

void expect_threads_agree(const LoopProgram& program, const std::vector<Tensor>& given, const std::vector<Tensor>& want,
                          Counts& counts, bool needs_all_barriers, double tolerance) {
  ASSERT_THAT(verify(program), testing::IsEmpty()) << print(program);
  ASSERT_NO_THROW(by_loops(program, given)) << print(program);
  ASSERT_EQ(difference(by_loops(program, given), want, tolerance), "") << print(program);
  const DeviceKernel form = thread_form(program);
  ASSERT_EQ(form.problem, "") << print(program);
  for (const ThreadOrder order : kOrders)
    ASSERT_EQ(difference(by_threads(program, form, given, order), want, tolerance), "") << print(program);
  for (size_t l = 0; l < form.launches.size(); ++l) {
    for (const auto& [statement, under_way] : form.launches[l].waits) {
      DeviceKernel without = form;
      without.launches[l].waits.erase(statement);
      ASSERT_TRUE(is_found(program, without, given)) << "a wait that nothing needs\n" << print(program);
      // One group more under way: some iteration needs it.
      without.launches[l].waits[statement] = under_way + 1;
      counts.waits += is_found(program, without, given);
    }
    for (const StmtNode* barrier : form.launches[l].barriers) {
      DeviceKernel without = form;
      without.launches[l].barriers.erase(barrier);
      const bool found = is_found(program, without, given);
      ASSERT_TRUE(found || !needs_all_barriers) << "a barrier that nothing needs\n" << print(program);
      counts.barriers += found;
    }
  }
}

}  // namespace tessera
