// What is done to a model otherwise than by default: steps that are left out, as a whole or for one chain of kernels.
// Which layouts images have, which products are one, what is fused and where a chain of kernels ends follows from them.
// `tessera tune` searches over such choices (tune/graph_search.h), and tuning records keep the one that won.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "program/program.h"

namespace tessera::inline driver {

struct GraphChoice {
  std::set<std::string> steps;  // left out as a whole: passes and schedule steps
  // Chains of kernels that are not joined (name_of_chain). Without one, others of its kernels may be made in its place.
  std::set<std::string> chains;

  bool empty() const { return steps.empty() && chains.empty(); }
  bool operator==(const GraphChoice&) const = default;
};

// "without assign_layouts overlapped_tiles@0123456789abcdef"; empty for the default.
std::string to_string(const GraphChoice& choice);
// Nothing, with a reason, for any other text, and for steps that this version does not search over.
std::optional<GraphChoice> parse_graph_choice(std::string_view text, std::string& why);

// The steps that may be left out, those first that change most.
std::span<const std::string_view> searched_steps();
// Of them: those whose chains may be left alone one by one.
bool makes_chains(std::string_view step);
// The step, and the hash of the kernel that it makes of a chain, as its rules write it: what else is joined or tuned in
// the model does not count.
std::string name_of_chain(std::string_view step, const Kernel& made);

// A program before its kernels are scheduled, as 16 hexadecimal digits: what its kernels compute, in which order, and
// on which of its buffers. Names and weights do not count.
std::string model_hash(const Program& program);

// A choice that records hold for a model.
struct TunedGraph {
  GraphChoice choice;
  std::string refused;  // why something that is known of the model is not used; may be empty
};

}  // namespace tessera::inline driver
