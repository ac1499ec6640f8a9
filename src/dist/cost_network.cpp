#include "dist/cost_network.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <set>
#include <utility>

#include "support/error.h"

namespace tessera::inline dist {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kSame = 1e-9;  // of a cost: less is rounding

// Costs of some variables together, the first one's choices outermost.
struct Table {
  std::vector<size_t> variables;  // ascending
  std::vector<double> costs;
};

class Elimination {
 public:
  Elimination(const CostNetwork& network, int64_t most_entries) : network_(network), most_(most_entries) {
    order_ = elimination_order();
  }

  // Numbers that were added up so far: how long it took, alike on every machine.
  int64_t work() const { return work_; }

  // With a price for memory, and choices that may be taken alone (empty: any).
  struct Outcome {
    double bound = 0;  // of costs with prices
    std::vector<size_t> choices;
  };
  Outcome run(double price, const std::vector<int>& fixed) const {
    const size_t count = network_.costs.size();
    std::vector<std::vector<Table>> buckets(count);  // by the variable that is eliminated first
    std::vector<size_t> place(count);
    for (size_t i = 0; i < count; ++i) place[order_[i]] = i;
    const auto put = [&](Table table) {
      const size_t first = *std::min_element(table.variables.begin(), table.variables.end(),
                                             [&](size_t a, size_t b) { return place[a] < place[b]; });
      buckets[first].push_back(std::move(table));
    };
    for (size_t v = 0; v < count; ++v) {
      Table own{{v}, network_.costs[v]};
      for (size_t c = 0; c < own.costs.size(); ++c) {
        if (!network_.memory.empty() && price > 0) own.costs[c] += price * network_.memory[v][c];
        if (fixed[v] >= 0 && fixed[v] != static_cast<int>(c)) own.costs[c] = kNever;
      }
      put(std::move(own));
    }
    for (const CostNetwork::Edge& edge : network_.edges) put(table_of(edge));
    Outcome outcome;
    for (const size_t v : order_) {
      for (Table& reduced : without(v, buckets[v])) {
        if (reduced.variables.empty()) outcome.bound += reduced.costs[0];
        else put(std::move(reduced));
      }
    }
    outcome.choices.assign(count, 0);
    for (size_t i = count; i-- > 0;)
      outcome.choices[order_[i]] = best_choice(order_[i], buckets[order_[i]], outcome.choices);
    return outcome;
  }

 private:
  size_t choices(size_t v) const { return network_.costs[v].size(); }

  Table table_of(const CostNetwork::Edge& edge) const {
    if (edge.a < edge.b) return {{edge.a, edge.b}, edge.costs};
    Table table{{edge.b, edge.a}, {}};
    for (size_t j = 0; j < choices(edge.b); ++j)
      for (size_t i = 0; i < choices(edge.a); ++i) table.costs.push_back(edge.costs[i * choices(edge.b) + j]);
    return table;
  }

  // The one whose neighbours have the fewest choices together, again and again; neighbours of what has gone are
  // connected.
  std::vector<size_t> elimination_order() const {
    const size_t count = network_.costs.size();
    std::vector<std::set<size_t>> near(count);
    for (const CostNetwork::Edge& edge : network_.edges) near[edge.a].insert(edge.b), near[edge.b].insert(edge.a);
    const auto weight = [&](size_t v) {
      double entries = static_cast<double>(choices(v));
      for (const size_t n : near[v]) entries *= static_cast<double>(choices(n));
      return entries;
    };
    using Item = std::pair<double, size_t>;
    std::priority_queue<Item, std::vector<Item>, std::greater<>> open;
    for (size_t v = 0; v < count; ++v) open.emplace(weight(v), v);
    std::vector<bool> gone(count, false);
    std::vector<size_t> order;
    while (!open.empty()) {
      const auto [entries, v] = open.top();
      open.pop();
      if (gone[v] || entries != weight(v)) continue;
      gone[v] = true;
      order.push_back(v);
      for (const size_t a : near[v]) {
        near[a].erase(v);
        for (const size_t b : near[v])
          if (a != b) near[a].insert(b);
      }
      for (const size_t a : near[v]) open.emplace(weight(a), a);
      near[v].clear();
    }
    return order;
  }

  // The tables added up and minimised over v: one table, or several where one would be too large.
  std::vector<Table> without(size_t v, const std::vector<Table>& tables) const {
    std::vector<std::vector<const Table*>> groups;
    std::vector<std::set<size_t>> scopes;
    for (const Table& table : tables) {
      size_t into = groups.size();
      for (size_t g = 0; g < groups.size() && into == groups.size(); ++g) {
        std::set<size_t> scope = scopes[g];
        scope.insert(table.variables.begin(), table.variables.end());
        double entries = 1;
        for (const size_t u : scope) entries *= static_cast<double>(choices(u));
        if (entries <= static_cast<double>(most_)) into = g;
      }
      if (into == groups.size()) groups.emplace_back(), scopes.emplace_back();
      groups[into].push_back(&table);
      scopes[into].insert(table.variables.begin(), table.variables.end());
    }
    std::vector<Table> results;
    for (size_t g = 0; g < groups.size(); ++g) results.push_back(minimised(v, groups[g], scopes[g]));
    return results;
  }

  Table minimised(size_t v, const std::vector<const Table*>& tables, std::set<size_t> scope) const {
    scope.erase(v);
    Table result{{scope.begin(), scope.end()}, {}};
    size_t entries = 1;
    for (const size_t u : result.variables) entries *= choices(u);
    result.costs.assign(entries, kNever);
    // Of each table, how far its costs are apart for one choice more: of v, and of each of the result's variables.
    std::vector<size_t> of_v;
    std::vector<std::vector<size_t>> steps;
    for (const Table* table : tables) {
      of_v.push_back(step_of(*table, v));
      steps.emplace_back();
      for (const size_t u : result.variables) steps.back().push_back(step_of(*table, u));
    }
    work_ += static_cast<int64_t>(entries * choices(v) * tables.size());
    std::vector<size_t> at(tables.size(), 0), digits(result.variables.size(), 0);
    for (size_t e = 0; e < entries; ++e) {
      double least = kNever;
      for (size_t c = 0; c < choices(v); ++c) {
        double sum = 0;
        for (size_t t = 0; t < tables.size(); ++t) sum += tables[t]->costs[at[t] + c * of_v[t]];
        least = std::min(least, sum);
      }
      result.costs[e] = least;
      for (size_t d = digits.size(); d-- > 0;) {
        const bool carries = ++digits[d] == choices(result.variables[d]);
        for (size_t t = 0; t < tables.size(); ++t) at[t] += steps[t][d];
        if (!carries) break;
        for (size_t t = 0; t < tables.size(); ++t) at[t] -= digits[d] * steps[t][d];
        digits[d] = 0;
      }
    }
    return result;
  }

  size_t step_of(const Table& table, size_t v) const {
    const auto found = std::find(table.variables.begin(), table.variables.end(), v);
    if (found == table.variables.end()) return 0;
    size_t step = 1;
    for (auto u = found + 1; u != table.variables.end(); ++u) step *= choices(*u);
    return step;
  }

  size_t best_choice(size_t v, const std::vector<Table>& tables, const std::vector<size_t>& chosen) const {
    size_t best = 0;
    double least = kNever;
    for (size_t c = 0; c < choices(v); ++c) {
      double sum = 0;
      for (const Table& table : tables) {
        size_t at = 0;
        for (const size_t u : table.variables) at = at * choices(u) + (u == v ? c : chosen[u]);
        sum += table.costs[at];
      }
      if (sum < least) least = sum, best = c;
    }
    return best;
  }

  const CostNetwork& network_;
  const int64_t most_;
  std::vector<size_t> order_;
  mutable int64_t work_ = 0;
};

// Branches on memory: the choices of one variable at a time, the cheapest bound first.
class Search {
 public:
  Search(const CostNetwork& network, const NetworkLimits& limits)
      : network_(network), limits_(limits), elimination_(network, limits.most_entries) {}

  std::optional<NetworkChoice> run() {
    struct Open {
      double bound;
      std::vector<int> fixed;
      bool operator<(const Open& other) const { return bound > other.bound; }
    };
    std::priority_queue<Open> open;
    double left = kNever;  // the least bound of what was not looked at
    const auto look = [&](std::vector<int> fixed) {
      const double bound = relaxed(fixed);
      if (bound < cost_ - kSame * cost_ || (!best_ && bound < kNever)) open.push({bound, std::move(fixed)});
    };
    look(std::vector<int>(network_.costs.size(), -1));
    NetworkChoice result;
    while (!open.empty()) {
      const Open top = open.top();
      if (best_ && top.bound >= cost_ - kSame * cost_) break;
      if (result.branches >= limits_.most_branches || elimination_.work() >= limits_.most_work) {
        left = top.bound;
        break;
      }
      open.pop();
      const int v = undecided(top.fixed);
      if (v < 0) continue;  // there is one choice, and it does not fit
      ++result.branches;
      for (size_t c = 0; c < network_.costs[static_cast<size_t>(v)].size(); ++c) {
        std::vector<int> fixed = top.fixed;
        fixed[static_cast<size_t>(v)] = static_cast<int>(c);
        look(std::move(fixed));
      }
    }
    if (!best_) return std::nullopt;
    result.choices = *best_;
    result.cost = cost_;
    result.memory = memory_of(network_, result.choices);
    result.bound = std::min(cost_, left);
    return result;
  }

 private:
  bool has_memory() const { return !network_.memory.empty() && limits_.most_memory < kNever; }

  void keep(const std::vector<size_t>& choices) {
    if (has_memory() && memory_of(network_, choices) > limits_.most_memory) return;
    const double cost = cost_of(network_, choices);
    if (cost < cost_ || (!best_ && cost < kNever)) best_ = choices, cost_ = cost;
  }

  // A bound from below of all that fits; what was found on the way is kept.
  double relaxed(const std::vector<int>& fixed) {
    const Elimination::Outcome free = elimination_.run(0, fixed);
    if (free.bound == kNever) return kNever;
    keep(free.choices);
    double bound = free.bound;
    if (!has_memory() || memory_of(network_, free.choices) <= limits_.most_memory) return bound;
    const auto at = [&](double price) {
      const Elimination::Outcome outcome = elimination_.run(price, fixed);
      keep(outcome.choices);
      bound = std::max(bound, outcome.bound - price * limits_.most_memory);
      return memory_of(network_, outcome.choices) <= limits_.most_memory;
    };
    const double scale = std::max(free.bound, 1e-12) / std::max(limits_.most_memory, 1.0);
    double low = 0, high = scale;
    bool fits = at(high);
    for (int i = 0; i < 60 && !fits; ++i) {
      low = high;
      fits = at(high *= 8);
    }
    if (!fits) return kNever;  // at any price
    constexpr int kHalvings = 24;
    for (int i = 0; i < kHalvings && high - low > 1e-6 * high; ++i) {
      const double middle = (low + high) / 2;
      (at(middle) ? high : low) = middle;
    }
    return bound;
  }

  // The variable whose choices differ most in memory, of those that are open; -1: none.
  int undecided(const std::vector<int>& fixed) const {
    int best = -1;
    double most = -1;
    for (size_t v = 0; v < fixed.size(); ++v) {
      if (fixed[v] >= 0 || network_.costs[v].size() < 2) continue;
      double spread = 0;
      if (has_memory()) {
        const auto [low, high] = std::minmax_element(network_.memory[v].begin(), network_.memory[v].end());
        spread = *high - *low;
      }
      if (spread > most) most = spread, best = static_cast<int>(v);
    }
    return best;
  }

  const CostNetwork& network_;
  const NetworkLimits& limits_;
  const Elimination elimination_;
  std::optional<std::vector<size_t>> best_;
  double cost_ = kNever;
};

}  // namespace

double cost_of(const CostNetwork& network, const std::vector<size_t>& choices) {
  double cost = 0;
  for (size_t v = 0; v < choices.size(); ++v) cost += network.costs[v][choices[v]];
  for (const CostNetwork::Edge& edge : network.edges)
    cost += edge.costs[choices[edge.a] * network.costs[edge.b].size() + choices[edge.b]];
  return cost;
}

double memory_of(const CostNetwork& network, const std::vector<size_t>& choices) {
  double memory = 0;
  for (size_t v = 0; v < choices.size() && !network.memory.empty(); ++v) memory += network.memory[v][choices[v]];
  return memory;
}

std::optional<NetworkChoice> cheapest_choice(const CostNetwork& network, const NetworkLimits& limits) {
  for (const std::vector<double>& costs : network.costs) check(!costs.empty(), "a variable without choices");
  return Search(network, limits).run();
}

}  // namespace tessera::inline dist
