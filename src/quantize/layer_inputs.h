// Graphs that say of a model's products what rounding and corrections are made from, so that samples are run through
// them and nothing but sums is kept.
#pragma once

#include <vector>

#include "quantize/quantize_graph.h"

namespace tessera::inline quantize {

// Terms of one output, and groups of outputs that read other terms (convolutions of channels in groups).
struct ProductTerms {
  int64_t terms = 0, groups = 1;
};
ProductTerms product_terms(const Graph& graph, const WeightedProduct& product);

// For each product an output f32[groups, terms, terms]: the sum of x x^T over all columns x of terms that its outputs
// are made of; the order of terms is that of rows_of (weight_rows.h).
Graph gram_graph(const Graph& graph, const std::vector<WeightedProduct>& products, const OpTable& ops);

// For each product an output f32[outputs]: the mean of what it is in f32 less what its integers make of the same data.
// REQUIRES: `weights` of each.
Graph shift_graph(const Graph& graph, const std::vector<QuantizedProduct>& products, const QuantizeOptions& options,
                  const OpTable& ops);

}  // namespace tessera::inline quantize
