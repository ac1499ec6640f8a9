// Quantisation-aware training: a model whose products see, while it learns, what 8 or fewer bits will do to their
// operands, and what is made of it when it has learnt.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "quantize/quantize_graph.h"

namespace tessera::inline train {

// `model` with the composite `fake_quantize_weights` in front of the weights of each product, and `fake_quantize` in
// front of its data. The range of these is two constants, "LAYER.low" and "LAYER.high", which a training step moves
// with what it sees (they are statistics, like the means of a batch normalisation) and which begin as zeros: nothing
// was seen.
// REQUIRES: weighted_products(model) finds its products. UserError TSR-2083: there are none.
Graph with_fake_quantization(const Graph& model, const QuantizeOptions& options, const OpTable& ops);

// What a training step's fake quantisation uses and keeps of a range: old, moved towards what the batch has.
constexpr double kRangeMomentum = 0.99;

// `model`, which has learnt with these ranges ("LAYER.low", "LAYER.high", f32[]), with pairs of `quantize` and
// `dequantize`: what fake quantisation computes, bit for bit, as integers.
Graph with_integers(const Graph& model, const std::vector<std::string>& names, const std::vector<TensorPtr>& values,
                    const QuantizeOptions& options, const OpTable& ops);

}  // namespace tessera::inline train
