// Random numbers of a training step. They are a function of the seed, the number of the step, which dropout it is and
// the place of the element in the whole batch, computed where they are used: nothing is stored, and neither threads nor
// a break change them, nor into how many parts a batch is cut, as long as samples are what tensors are cut along first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/graph_ops.h"

namespace tessera::inline train {

// When and where something is dropped: i64[] both.
struct DropoutPlace {
  ValueId step = -1;  // its number
  ValueId part = -1;  // which part of a batch it is, of equal ones; -1: there is one
};

// x / (1 - ratio) where the element stays, else 0: each is dropped with this probability. `which`: of the dropout in
// the model. REQUIRES: 0 <= ratio <= 1, static sizes.
ValueId dropped(const GraphOps& o, ValueId x, double ratio, uint64_t seed, const DropoutPlace& at, int64_t which);

// Whether the graph has dropouts, in its regions, too.
bool has_dropouts(const Graph& graph);

// Dropouts of a step, in the order in which they are met.
struct DropoutNumbers {
  uint64_t seed = 0;
  int64_t next = 0;
};
// The results of a node whose regions have dropouts, with these dropped: in a loop, other elements in each iteration.
// REQUIRES: an `if` or a `loop`, static sizes.
std::vector<ValueId> dropped_in_regions(GraphBuilder& builder, const OpTable& ops, const Node& node,
                                        std::vector<ValueId> operands, std::vector<std::string> names,
                                        const DropoutPlace& at, DropoutNumbers& numbers);
// The seed of a dropout that may have one of its own.
uint64_t seed_of(const Node& dropout, const DropoutNumbers& numbers);

// The number for an element of a batch, for whoever wants to know which ones stay: those with random_bits >= ratio *
// 2^32.
uint32_t random_bits(uint64_t seed, int64_t step, int64_t which, uint32_t element);

}  // namespace tessera::inline train
