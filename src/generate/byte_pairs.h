// Joins neighbours until none can be joined: always the two with the lowest rank, of these the first.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera::inline generate {

// What two neighbours become, and when: lower ranks first.
struct Join {
  double rank = 0;
  int32_t second_rank = 0, third_rank = 0;  // of equal ranks
  int32_t token = -1;

  bool operator<(const Join& other) const {
    if (rank != other.rank) return rank < other.rank;
    if (second_rank != other.second_rank) return second_rank < other.second_rank;
    return third_rank < other.third_rank;
  }
};

using JoinOf = std::function<std::optional<Join>(int32_t left, int32_t right)>;

// In O(n log n) of the number of parts.
std::vector<int32_t> join_neighbours(std::vector<int32_t> parts, const JoinOf& join_of);

}  // namespace tessera::inline generate
