#include "support/nearest_names.h"

#include <algorithm>
#include <numeric>

namespace tessera::inline support {

namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

// Insertions, deletions and replacements that turn `a` into `b`.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view wanted, const std::vector<std::string>& names, size_t count) {
  struct Candidate {
    size_t distance;
    const std::string* name;
  };
  constexpr size_t kLongest = 200;  // longer ones are not typed by hand
  const std::string target = lower(wanted.substr(0, kLongest));
  std::vector<Candidate> candidates;
  for (const std::string& name : names) {
    const std::string other = lower(std::string_view(name).substr(0, kLongest));
    const bool contains = !target.empty() && other.find(target) != std::string::npos;
    const size_t distance = contains ? 0 : edit_distance(target, other);
    const size_t longer = std::max(target.size(), other.size());
    if (contains || (distance < longer && distance <= std::max<size_t>(2, longer / 2)))
      candidates.push_back({distance, &name});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  std::vector<std::string> result;
  for (const Candidate& candidate : candidates) {
    if (result.size() < count && std::find(result.begin(), result.end(), *candidate.name) == result.end())
      result.push_back(*candidate.name);
  }
  return result;
}

std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& names, std::string otherwise) {
  const std::vector<std::string> nearest = nearest_names(wanted, names, 1);
  return nearest.empty() ? otherwise : "did you mean '" + nearest[0] + "'?";
}

}  // namespace tessera::inline support
