#include "import/common/region_scope.h"

#include <utility>

namespace tessera::inline import_common {

ValueId RegionScope::captured(ValueId outer) {
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

CapturedRegion RegionScope::finish(Graph live) const {
  CapturedRegion region{std::move(live), captured_};
  region.graph.name = region_.name;
  region.graph.symbols.clear();  // those of the graph around it
  return region;
}

}  // namespace tessera::inline import_common
