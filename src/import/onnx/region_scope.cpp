#include "import/onnx/region_scope.h"

#include <utility>

namespace tessera::inline onnx_import {

ValueId RegionScope::captured(ValueId outer, bool strings) {
  if (strings) throw UnsupportedNode{"a region that reads strings"};
  if (const auto sizes = outer_constants_.find_sizes(outer)) return size_values(*sizes, outer_.type(outer));
  const auto [it, added] = inputs_.emplace(outer, -1);
  if (added) {
    it->second = region_.add_input(outer_.value(outer).name, outer_.type(outer));
    captured_.push_back(outer);
  }
  return it->second;
}

ValueId RegionScope::size_values(const Shape& sizes, const TensorType& type) {
  const ValueId values = builder_.add(ops_.get("sizes"), {}, {{"sizes", sizes}, {"dtype", type.dtype}});
  if (type.rank() == 1) return values;
  return builder_.add(ops_.get("reshape"), {values}, {{"shape", type.shape}});
}

ImportedRegion RegionScope::finish(Graph live) const {
  ImportedRegion region{std::move(live), captured_};
  region.graph.name = region_.name;
  region.graph.symbols.clear();  // those of the graph around it
  return region;
}

void check_region(const ImportState& region) {
  if (!region.checks.empty()) throw UnsupportedNode{"a region whose values a run has to check"};
  if (region.flow.num_steps() > 0) throw UnsupportedNode{"a region with values that only a run knows"};
  for (const ValueId output : region.graph.outputs)
    if (region.flow.is_string(output)) throw UnsupportedNode{"a region that gives strings"};
}

}  // namespace tessera::inline onnx_import
