// A reader's table of operators: rows of several families, sorted by a key, a row for each.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "support/error.h"

namespace tessera::inline import_common {

template <typename Row, typename Key>
std::vector<Row> sorted_rows(std::vector<Row> rows, Key Row::* key) {
  std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return a.*key < b.*key; });
  for (size_t i = 1; i < rows.size(); ++i) check(rows[i - 1].*key != rows[i].*key, "two rows for an operator");
  return rows;
}

template <typename Row, typename Key>
std::vector<Row> sorted_rows(std::initializer_list<std::span<const Row>> families, Key Row::* key) {
  std::vector<Row> all;
  for (const auto& family : families) all.insert(all.end(), family.begin(), family.end());
  return sorted_rows(std::move(all), key);
}

// Null where there is no such row.
template <typename Row, typename Key, typename Wanted>
const Row* find_row(std::span<const Row> rows, Key Row::* key, const Wanted& wanted) {
  const auto at = std::lower_bound(rows.begin(), rows.end(), wanted,
                                   [&](const Row& row, const Wanted& other) { return row.*key < other; });
  return at != rows.end() && (*at).*key == wanted ? &*at : nullptr;
}

}  // namespace tessera::inline import_common
