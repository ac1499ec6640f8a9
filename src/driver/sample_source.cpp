#include "driver/sample_source.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "graph/bind_symbols.h"

namespace tessera::inline driver {
namespace {

Tensor random_tensor_of(const TensorType& type, uint64_t seed) {
  Tensor tensor(type.dtype, type.dims());
  std::mt19937_64 engine(seed);  // the language defines its numbers
  const int64_t most = type.dtype == DType::kBool ? 2 : int64_t{1} << std::min(3, dtype_bits(type.dtype) - 1);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const uint64_t bits = engine() >> 40;
    if (is_float(type.dtype)) tensor.set_double(i, static_cast<double>(bits) / static_cast<double>(1 << 24));
    else tensor.set_int(i, static_cast<int64_t>(bits) % most);
  }
  return tensor;
}

}  // namespace

SampleSource random_sample(const Graph& graph) {
  std::map<std::string, int64_t> middles;
  for (const SymbolRange& symbol : graph.symbols)
    if (!symbol.is_data())
      middles[symbol.var->name] = symbol.lo + (symbol.hi - symbol.lo) / 2 / symbol.step * symbol.step;
  const Graph bound = bind_symbols(graph, middles);
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < bound.num_own_inputs(); ++i)
    tensors.push_back(random_tensor_of(bound.type(bound.inputs[i]), i));
  return {1, [tensors = std::move(tensors)](size_t) { return tensors; }, {}};
}

}  // namespace tessera::inline driver
