#include "import/onnx/read/window_attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "arith/simplify.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// Far below the limits of the operators, so that the arithmetic on them here cannot overflow.
constexpr int64_t kMax = int64_t{1} << 31;

Ints read_list(NodeContext& c, const std::string& name, size_t count, int64_t lo, int64_t fallback) {
  Ints values = c.attrs.get_ints(name, Ints(count, fallback));
  if (values.empty() && count > 0) values.assign(count, fallback);
  if (values.size() != count)
    c.malformed(fmt::format("{} = [{}] for {} spatial dimensions", name, fmt::join(values, ","),
                            count / (name == "pads" ? 2 : 1)),
                fmt::format("{} entries", count));
  for (const int64_t value : values)
    if (value < lo || value > kMax)
      c.malformed(fmt::format("{} = [{}]", name, fmt::join(values, ",")), fmt::format("entries from {} to 2^31", lo));
  return values;
}

}  // namespace

Shape spatial_extents(NodeContext& c, ValueId x) {
  const Shape dims = c.shape(x);
  if (dims.size() < 3)
    c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()),
                "[batch, channels, one or more spatial dimensions]");
  if (dims.size() > 5) c.unsupported(fmt::format("{} spatial dimensions; at most 3 are supported", dims.size() - 2));
  return {dims.begin() + 2, dims.end()};
}

void require_fixed_pads(NodeContext& c, const WindowAttributes& window) {
  if (window.more_begin.empty()) return;
  c.unsupported(fmt::format("auto_pad asks for {} and {} elements of padding", to_string(window.more_begin),
                            to_string(window.more_end)));
}

WindowAttributes read_window(NodeContext& c, const Shape& extents, Ints kernel, bool pad_for_output) {
  const size_t rank = extents.size();
  WindowAttributes w;
  if (kernel.empty()) {
    w.kernel = c.attrs.require_ints("kernel_shape");
    if (w.kernel.size() != rank ||
        std::any_of(w.kernel.begin(), w.kernel.end(), [](int64_t k) { return k < 1 || k > kMax; }))
      c.malformed(fmt::format("kernel_shape = [{}] for {} spatial dimensions", fmt::join(w.kernel, ","), rank),
                  fmt::format("{} entries of at least 1", rank));
  } else {
    w.kernel = std::move(kernel);
    if (std::any_of(w.kernel.begin(), w.kernel.end(), [](int64_t k) { return k > kMax; }))
      c.malformed(fmt::format("weights with a kernel of [{}]", fmt::join(w.kernel, ",")), "extents of up to 2^31");
    const Ints declared = c.attrs.get_ints("kernel_shape");
    if (!declared.empty() && declared != w.kernel)
      c.malformed(fmt::format("kernel_shape = [{}]", fmt::join(declared, ",")),
                  fmt::format("[{}], as the weights have it", fmt::join(w.kernel, ",")));
  }
  w.strides = read_list(c, "strides", rank, 1, 1);
  w.dilations = read_list(c, "dilations", rank, 1, 1);
  const Ints pads = read_list(c, "pads", 2 * rank, -kMax, 0);
  w.pads_begin.assign(pads.begin(), pads.begin() + static_cast<ptrdiff_t>(rank));
  w.pads_end.assign(pads.begin() + static_cast<ptrdiff_t>(rank), pads.end());

  const std::string mode = c.attrs.get_string("auto_pad", "NOTSET");
  if (mode == "NOTSET" || mode.empty()) return w;
  if (mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER")
    c.malformed(fmt::format("auto_pad is '{}'", mode), "NOTSET, VALID, SAME_UPPER or SAME_LOWER");
  for (size_t d = 0; d < rank; ++d) {
    w.pads_begin[d] = w.pads_end[d] = 0;
    if (mode == "VALID" || !pad_for_output) continue;
    // As many outputs as strides fit into the input; the odd element goes to the end (UPPER) or the beginning.
    const Expr outputs = floordiv(extents[d] + Expr(w.strides[d] - 1), w.strides[d]);
    const int64_t span = (w.kernel[d] - 1) * w.dilations[d] + 1;
    const Expr needed = normalize_size(max((outputs - Expr(1)) * Expr(w.strides[d]) + Expr(span) - extents[d], 0));
    if (!as_int(needed)) {
      w.more_begin.resize(rank, 0);
      w.more_end.resize(rank, 0);
      const Expr half = floordiv(needed, 2), rest = needed - half;
      w.more_begin[d] = normalize_size(mode == "SAME_UPPER" ? half : rest);
      w.more_end[d] = normalize_size(mode == "SAME_UPPER" ? rest : half);
      continue;
    }
    const int64_t total = *as_int(needed);
    w.pads_begin[d] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.pads_end[d] = total - w.pads_begin[d];
  }
  return w;
}

}  // namespace tessera::inline onnx_import
