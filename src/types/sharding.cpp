#include "types/sharding.h"

#include <algorithm>
#include <set>

namespace tessera::inline types {
namespace {

// The text up to one of `ends`, which stays.
std::string_view take_until(std::string_view& text, std::string_view ends) {
  const size_t end = std::min(text.find_first_of(ends), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end);
  return part;
}

bool accept(std::string_view& text, std::string_view word) {
  if (text.substr(0, word.size()) != word) return false;
  text.remove_prefix(word.size());
  return true;
}

int64_t cuts_of(const std::vector<std::string>& axes, const Mesh& mesh) { return mesh.group_size(axes); }

}  // namespace

bool Sharding::is_replicated() const {
  return partial.empty() && std::all_of(dims.begin(), dims.end(), [](const auto& axes) { return axes.empty(); });
}

int Sharding::dim_of(std::string_view axis) const {
  for (size_t d = 0; d < dims.size(); ++d)
    if (std::find(dims[d].begin(), dims[d].end(), axis) != dims[d].end()) return static_cast<int>(d);
  return -1;
}

bool Sharding::is_partial(std::string_view axis) const {
  return std::any_of(partial.begin(), partial.end(), [&](const PartialAxis& p) { return p.axis == axis; });
}

std::string Sharding::to_string() const {
  std::string text = "@{";
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d > 0) text += ",";
    if (dims[d].empty()) text += "_";
    for (size_t i = 0; i < dims[d].size(); ++i) text += (i > 0 ? "." : "") + dims[d][i];
  }
  text += "}";
  for (const PartialAxis& p : partial)
    text += "+" + std::string(collective_combiner_name(p.combiner)) + "(" + p.axis + ")";
  return text;
}

std::string parse_sharding(std::string_view text, const Mesh& mesh, Sharding& sharding) {
  sharding = {};
  std::set<std::string, std::less<>> seen;
  const auto take_axis = [&](std::string_view name, std::string& wrong) {
    if (mesh.find(name) < 0) wrong = "the mesh " + mesh.to_string() + " has no axis '" + std::string(name) + "'";
    else if (!seen.emplace(name).second) wrong = "axis '" + std::string(name) + "' stands twice";
    return wrong.empty();
  };
  std::string wrong;
  if (!accept(text, "@{")) return "it does not begin with '@{'";
  if (!accept(text, "}")) {
    while (true) {
      sharding.dims.emplace_back();
      std::string_view dim = take_until(text, ",}");
      if (dim != "_") {
        while (true) {
          const std::string_view name = take_until(dim, ".");
          if (!take_axis(name, wrong)) return wrong;
          sharding.dims.back().emplace_back(name);
          if (!accept(dim, ".")) break;
        }
      }
      if (accept(text, "}")) break;
      if (!accept(text, ",")) return "there is no '}'";
    }
  }
  while (accept(text, "+")) {
    const auto combiner = find_collective_combiner(take_until(text, "("));
    if (!combiner || *combiner == CollectiveCombiner::kNone || !accept(text, "("))
      return "behind '+' stands none of sum(AXIS), prod(AXIS), min(AXIS), max(AXIS)";
    const std::string_view name = take_until(text, ")");
    if (!accept(text, ")")) return "there is no ')'";
    if (!take_axis(name, wrong)) return wrong;
    sharding.partial.push_back({std::string(name), *combiner});
  }
  if (!text.empty()) return "'" + std::string(text) + "' is left over";
  std::sort(sharding.partial.begin(), sharding.partial.end(),
            [](const PartialAxis& a, const PartialAxis& b) { return a.axis < b.axis; });
  return "";
}

std::string check_sharding(const Sharding& sharding, const std::vector<int64_t>& dims, const Mesh& mesh) {
  if (sharding.dims.size() != dims.size())
    return std::to_string(sharding.dims.size()) + " dimensions for a tensor of " + std::to_string(dims.size());
  for (size_t d = 0; d < dims.size(); ++d)
    if (const int64_t cuts = cuts_of(sharding.dims[d], mesh); dims[d] % cuts != 0)
      return "dimension " + std::to_string(d) + " of " + std::to_string(dims[d]) + " is not cut evenly in " +
             std::to_string(cuts);
  return "";
}

std::vector<int64_t> local_dims(const Sharding& sharding, const std::vector<int64_t>& dims, const Mesh& mesh) {
  std::vector<int64_t> local = dims;
  for (size_t d = 0; d < dims.size(); ++d) local[d] /= cuts_of(sharding.dims[d], mesh);
  return local;
}

std::vector<int64_t> local_begin(const Sharding& sharding, const std::vector<int64_t>& dims, const Mesh& mesh,
                                 int64_t rank) {
  const std::vector<int64_t> place = mesh.place_of(rank), local = local_dims(sharding, dims, mesh);
  std::vector<int64_t> begin(dims.size(), 0);
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t part = 0;
    for (const std::string& axis : sharding.dims[d]) {
      const auto number = static_cast<size_t>(mesh.find(axis));
      part = part * mesh.axes[number].extent + place[number];
    }
    begin[d] = part * local[d];
  }
  return begin;
}

}  // namespace tessera::inline types
