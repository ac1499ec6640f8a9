#include "graph/control_flow.h"

namespace tessera::inline graph {

LoopParts loop_parts(const Attrs& attrs, size_t num_operands, const Graph& body) {
  LoopParts parts;
  parts.counted = attrs.get_or<bool>("counted", false);
  parts.has_condition = attrs.get_or<bool>("has_condition", false);
  parts.carried = static_cast<size_t>(attrs.get_or<int64_t>("num_carried", 0));
  parts.scanned = static_cast<size_t>(attrs.get_or<int64_t>("num_scanned", 0));
  // Attributes may promise more operands and results than there are: whoever checks the node says so.
  const auto rest = [](size_t all, size_t taken) { return all > taken ? all - taken : 0; };
  parts.invariants = rest(num_operands, parts.first_invariant());
  parts.stacked = rest(body.outputs.size(), parts.first_stacked_result());
  if (attrs.has("max_trip")) parts.max_trip = attrs.get_sizes("max_trip").at(0);
  const auto flags = [&](const char* name, size_t count) {
    return attrs.get_or<std::vector<int64_t>>(name, std::vector<int64_t>(count, 0));
  };
  parts.scan_reversed = flags("scan_reversed", parts.scanned);
  parts.stack_reversed = flags("stack_reversed", parts.stacked);
  return parts;
}

}  // namespace tessera::inline graph
