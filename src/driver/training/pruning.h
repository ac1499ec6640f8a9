// Pruning while a model learns: which weights become zero, when, and what is cut out of the graph at the end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "driver/engine/model.h"
#include "driver/training/whole_states.h"
#include "graph/graph.h"
#include "train/channels.h"
#include "train/training_step.h"

namespace tessera::inline driver {

struct PruneSpec {
  enum class Kind : uint8_t { kNone, kWeights, kPattern, kChannels } kind = Kind::kNone;
  double share = 0;                // kWeights, kChannels: of each layer, that goes
  int64_t stays = 0, of_each = 0;  // kPattern: so many of so many neighbours along the sum of a product
};

// "0.8": weights; "2:4": a pattern; "channels:0.5". UserError TSR-4080 for anything else; empty: kNone.
PruneSpec prune_spec(const std::string& text);

// By what channels are chosen.
enum class Importance : uint8_t { kMagnitude, kTaylor, kScale };
// "l1", "taylor", "bn".
Importance importance_named(const std::string& name);

// A mask of `weights`: ones where a weight stays. Ties fall to the later ones.
Tensor magnitude_mask(const Tensor& weights, double share);
// Neighbours along `dim` and those behind it, together; a rest that is no whole group stays.
Tensor pattern_mask(const Tensor& weights, int64_t stays, int64_t of_each, size_t dim);

class Pruner {
 public:
  // `parameters`: names of those of `model` that learn. UserError TSR-2083: none of its layers can be pruned.
  // TSR-4080: another importance than magnitudes, without channels that go.
  Pruner(const Graph& model, const std::vector<std::string>& parameters, const PruneSpec& spec,
         Importance importance = Importance::kMagnitude);

  bool is_used() const { return spec_.kind != PruneSpec::Kind::kNone; }
  const std::vector<std::string>& masked() const { return masked_; }
  // Dimensions whose importance the step is to keep.
  std::vector<WeighedDim> weighed() const;
  // Before an epoch (from 0): weights that are to go become zeros, and stay so. Nothing in the first fifth of the
  // epochs, ever more up to three fifths of them, as Zhu and Gupta (2017) have it. All ranks at the same time, each of
  // which finds the same.
  void at_epoch(WholeStates& states, int64_t epoch, int64_t epochs) const;

  // What is left of a model whose weights have learnt with these masks: without its pruned channels, or the model.
  // REQUIRES: with channels that go, a step that has all states.
  Graph cut(const Graph& learnt, const Model& step) const;
  // The share of the masked weights that are zero. All ranks at the same time.
  double sparsity(const WholeStates& states) const;

 private:
  void prune_channels(WholeStates& states, double share) const;

  std::vector<double> importance_of(const ChannelGroup& group, const WholeStates& states,
                                    const std::map<std::string, TensorPtr>& values) const;

  const PruneSpec spec_;
  const Importance importance_;
  std::vector<std::string> masked_;
  std::map<std::string, size_t> sum_dim_;  // kPattern: from which dimension on a weight is summed over
  std::vector<ChannelGroup> groups_;
};

}  // namespace tessera::inline driver
