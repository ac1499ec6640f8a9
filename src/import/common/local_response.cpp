#include "import/common/local_response.h"

#include <string>
#include <vector>

namespace tessera::inline import_common {

// A window over the channels, the dimensions behind them taken as one.
ValueId local_response(Emitter& c, ValueId x, int64_t size, double alpha, double beta, double bias) {
  using Ints = std::vector<int64_t>;
  const Shape dims = c.shape(x);
  const Expr inner = Emitter::count(Shape(dims.begin() + 2, dims.end()));
  const ValueId squares = c.reshape(c.mul(x, x), {dims[0], 1, dims[1], inner});
  const ValueId sums = c.op("reduce_window", {squares},
                            {{"kind", std::string("sum")},
                             {"window", Ints{size, 1}},
                             {"strides", Ints{1, 1}},
                             {"dilations", Ints{1, 1}},
                             {"pads_begin", Ints{(size - 1) / 2, 0}},
                             {"pads_end", Ints{size - 1 - (size - 1) / 2, 0}}});
  const ValueId scaled = c.mul(c.reshape(sums, dims), c.scalar_like(x, alpha / static_cast<double>(size)));
  const ValueId base = c.add(scaled, c.scalar_like(x, bias));
  return c.div(x, c.op("pow", {base, c.scalar_like(x, beta)}));
}

}  // namespace tessera::inline import_common
