// Losses over classes: scores [N, C, ...], targets [N, ...].
#include <fmt/format.h>

#include "arith/simplify.h"
#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

void import_loss(NodeContext& c, std::string_view composite) {
  c.require_inputs(2, 3);
  const std::string reduction = c.attrs.get_string("reduction", "mean");
  if (reduction != "none" && reduction != "mean" && reduction != "sum")
    c.malformed(fmt::format("reduction = {}", reduction), "none, mean, sum");
  const Shape scores = c.shape(c.in(0)), targets = c.shape(c.in(1));
  bool fits = scores.size() >= 2 && targets.size() + 1 == scores.size();
  for (size_t d = 0; fits && d < targets.size(); ++d) fits = equal_sizes(scores[d == 0 ? 0 : d + 1], targets[d]);
  if (!fits)
    c.malformed(fmt::format("targets of type {} for scores of type {}", c.type(c.in(1)).to_string(),
                            c.type(c.in(0)).to_string()),
                "the scores' shape without dimension 1");
  Attrs attrs = {{"reduction", reduction}};
  if (c.attrs.has("ignore_index")) attrs.set("ignore_index", c.attrs.get_int("ignore_index", 0));
  std::vector<ValueId> operands = c.all_inputs();
  operands[1] = c.cast(operands[1], DType::kI64);
  const std::vector<ValueId> results = c.composite_results(composite, operands, attrs);
  for (size_t i = 0; i < results.size(); ++i) c.out(static_cast<int>(i), results[i]);
}

void import_negative_log_likelihood_loss(NodeContext& c) { import_loss(c, "nll_loss"); }
void import_softmax_cross_entropy_loss(NodeContext& c) { import_loss(c, "softmax_cross_entropy"); }

}  // namespace

OperatorFamily losses_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"NegativeLogLikelihoodLoss", 12, import_negative_log_likelihood_loss},
      OperatorImporter{"SoftmaxCrossEntropyLoss", 12, import_softmax_cross_entropy_loss},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
