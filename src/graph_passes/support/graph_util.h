// What several passes need: constants, opening regions, joining locations.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline graph_passes {

bool is_op(const Node* node, std::string_view name);
// A composite of this name.
bool is_composite(const Node* node, std::string_view name);
// A composite's own attributes, as add_composite takes them.
Attrs composite_attrs(const Node& node);

// The tensor of a constant; null when `id` is computed or its data was elided.
const Tensor* constant_value(const Graph& graph, ValueId id);
ValueId add_constant(Graph& graph, const OpTable& ops, Tensor value, const std::string& name, const std::string& loc);
// Whether the node has sizes that depend on symbols among its attributes.
bool has_symbolic_attrs(const Node& node);
// Whether all extents are the constant 1.
bool is_one_element(const TensorType& type);
bool equal_shapes(const Shape& a, const Shape& b);
// A float or integer scalar for every element of a constant; empty when they differ.
std::optional<double> splat_value(const Tensor& tensor);

// Appends the region's nodes to `target`, reading `operands` for its inputs; returns the values of its outputs. The
// nodes get the location `loc` and names `prefix.name`.
std::vector<ValueId> inline_region(Graph& target, const Graph& region, const std::vector<ValueId>& operands,
                                   const std::string& prefix, const std::string& loc);

// The locations without repetitions, joined by '+'; of a long list the first ones and how many more.
std::string join_locs(const std::vector<std::string>& locs);

// The permutation of `rank` (at least 2) dimensions that swaps the last two.
std::vector<int64_t> swap_of_last_two(int rank);

// Whether each value is an output of the graph.
std::vector<bool> output_mask(const Graph& graph);
// Whether all numbers of the node's list `name` are `value`.
bool all_of_list(const Node& node, const char* name, int64_t value);
// Whether minimal filtering is expected to take this convolution, of typical sizes, and to save more than a factor of
// two: windows of 3x3 or 5x5 (of each frame of a volume), of stride 1, over a picture of at least 14x14 (of so many
// places between gaps), of whole blocks of channels. The rule that decides (schedule/rules/winograd/winograd_match.h)
// sees kernels, after layouts are chosen, and cannot be asked by graph passes: a wrong guess costs time or accuracy, no
// more.
bool suits_minimal_filtering(const Graph& graph, const Node& conv);
// What a convolution adds around its image, for each of the image's dimensions, and its attributes without that.
struct ConvPadding {
  std::vector<int64_t> low, high;
  Attrs others;
};
ConvPadding take_padding(const Node& conv);
// How often each value is used: by nodes and as a graph output.
std::vector<int> use_counts(const Graph& graph);

}  // namespace tessera::inline graph_passes
