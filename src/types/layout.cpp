#include "types/layout.h"

#include <fmt/format.h>

namespace tessera::inline types {

std::string Layout::to_string() const {
  if (dims.empty()) return "";
  std::string text = "{";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i) text += ',';
    text += fmt::format("{}", dims[i].axis);
    if (dims[i].part == LayoutDim::Part::kQuotient) text += fmt::format("/{}", dims[i].block);
    if (dims[i].part == LayoutDim::Part::kRemainder) text += fmt::format("%{}", dims[i].block);
  }
  return text + "}";
}

Layout Layout::blocked(int rank, int axis, int64_t block) {
  Layout layout;
  for (int i = 0; i < rank; ++i)
    layout.dims.push_back({i, i == axis ? LayoutDim::Part::kQuotient : LayoutDim::Part::kWhole, i == axis ? block : 1});
  layout.dims.push_back({axis, LayoutDim::Part::kRemainder, block});
  return layout;
}

LayoutDim Layout::inner_block() const {
  if (!dims.empty() && dims.back().part == LayoutDim::Part::kRemainder) return dims.back();
  return {-1, LayoutDim::Part::kWhole, 1};
}

}  // namespace tessera::inline types
