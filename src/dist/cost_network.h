// The cheapest choice for each of many variables, where pairs of variables have costs together: exact by eliminating
// one variable after the other (Bertele and Brioschi 1972), which takes the product of the choices of those that stay
// connected; chains with short skips have two or three. What would need larger tables is cut in groups that are
// minimised apart (mini-buckets, Dechter and Rish 2003), which still bounds the cost from below.
//
// A bound on the sum of a second number of each choice, memory, is priced (Lagrange multipliers), and closed by
// branching where prices leave a gap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace tessera::inline dist {

struct CostNetwork {
  std::vector<std::vector<double>> costs;   // by variable and choice; not negative, infinity: it may not be chosen
  std::vector<std::vector<double>> memory;  // the same; empty: nothing needs any
  struct Edge {
    size_t a = 0, b = 0;        // two variables
    std::vector<double> costs;  // [choices of a][choices of b]
  };
  std::vector<Edge> edges;
};

struct NetworkChoice {
  std::vector<size_t> choices;  // by variable
  double cost = 0, memory = 0;
  double bound = 0;      // nothing that fits costs less than this
  int64_t branches = 0;  // that were looked at because of memory
  double gap() const { return cost > 0 ? (cost - bound) / cost : 0; }
};

struct NetworkLimits {
  double most_memory = std::numeric_limits<double>::infinity();
  int64_t most_branches = 10000;
  int64_t most_work = 2'000'000'000;        // numbers that are added up before a gap is left
  int64_t most_entries = int64_t{1} << 21;  // of a table
};

// None where no choice fits into memory, or none was found within the branches.
std::optional<NetworkChoice> cheapest_choice(const CostNetwork& network, const NetworkLimits& limits = {});
// Of an assignment.
double cost_of(const CostNetwork& network, const std::vector<size_t>& choices);
double memory_of(const CostNetwork& network, const std::vector<size_t>& choices);

}  // namespace tessera::inline dist
