// Elements added around a tensor.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

// The amounts stand from the last dimension on: before it, behind it, before the one in front of it, ...
void padded(AtenContext& c, const char* name, const std::string& mode) {
  const ValueId x = c.tensor("self");
  const Shape amounts = c.sizes(name);
  const auto rank = static_cast<size_t>(c.rank(x));
  if (amounts.size() % 2 != 0 || amounts.size() / 2 > rank)
    c.malformed(fmt::format("{} amounts for {}", amounts.size(), c.type(x).to_string()), "two for each dimension");
  Shape low(rank, 0), high(rank, 0);
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    low[rank - 1 - i] = amounts[2 * i];
    high[rank - 1 - i] = amounts[2 * i + 1];
  }
  std::vector<ValueId> operands = {x};
  if (mode == "constant") operands.push_back(c.has("value") ? c.as("value", c.dtype(x)) : c.scalar_like(x, 0));
  c.out(c.op("pad", operands, {{"low", low}, {"high", high}, {"mode", mode}}));
}

void import_constant_pad(AtenContext& c) { padded(c, "pad", "constant"); }
void import_reflection_pad(AtenContext& c) { padded(c, "padding", "reflect"); }
void import_replication_pad(AtenContext& c) { padded(c, "padding", "edge"); }

void import_pad(AtenContext& c) {
  const std::string mode = c.text("mode", "constant");
  if (mode == "constant") padded(c, "pad", "constant");
  else if (mode == "reflect") padded(c, "pad", "reflect");
  else if (mode == "replicate") padded(c, "pad", "edge");
  else if (mode == "circular") padded(c, "pad", "wrap");
  else c.malformed(fmt::format("the mode '{}'", mode), "constant, reflect, replicate or circular");
}

}  // namespace

std::span<const AtenOperator> padding_operators() {
  static constexpr AtenOperator table[] = {
      {"constant_pad_nd", import_constant_pad},      {"pad", import_pad},
      {"reflection_pad1d", import_reflection_pad},   {"reflection_pad2d", import_reflection_pad},
      {"reflection_pad3d", import_reflection_pad},   {"replication_pad1d", import_replication_pad},
      {"replication_pad2d", import_replication_pad}, {"replication_pad3d", import_replication_pad},
  };
  return table;
}

}  // namespace tessera::inline aten
