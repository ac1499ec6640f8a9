// Chains of scales and shifts by constants, one for each channel or one for all: what fold_batch_norm and
// fold_batch_norm_forward merge into convolutions. Factors are computed in f64.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {

// y = scale * x + shift, one entry for each channel, or a single one for the whole tensor.
struct Affine {
  std::vector<double> scale{1.0}, shift{0.0};

  void widen(size_t channels) {
    if (scale.size() == 1) scale.assign(channels, scale[0]);
    if (shift.size() == 1) shift.assign(channels, shift[0]);
  }
  // This function first, then `next`.
  void then(const Affine& next) {
    const size_t channels = std::max({scale.size(), shift.size(), next.scale.size(), next.shift.size()});
    const auto at = [](const std::vector<double>& v, size_t i) { return v.size() == 1 ? v[0] : v[i]; };
    widen(channels);
    for (size_t i = 0; i < channels; ++i) {
      scale[i] *= at(next.scale, i);
      shift[i] = shift[i] * at(next.scale, i) + at(next.shift, i);
    }
  }
  bool scales() const {
    return std::any_of(scale.begin(), scale.end(), [](double s) { return s != 1; });
  }
  bool shifts() const {
    return std::any_of(shift.begin(), shift.end(), [](double s) { return s != 0; });
  }
};

struct AffineChain {
  ValueId start = -1;         // x
  NodeId conv = -1;           // the producer of x when it takes part
  std::vector<NodeId> steps;  // from x to the last value
  Affine affine;
};

class ChainFinder {
 public:
  explicit ChainFinder(const Graph& graph) : graph_(graph), users_(graph.users()), uses_(use_counts(graph)) {}

  // The longest chain whose first step is `first`.
  std::optional<AffineChain> find(NodeId first) const;

 private:
  const Graph& graph_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<int> uses_;
};

}  // namespace tessera::inline graph_passes
