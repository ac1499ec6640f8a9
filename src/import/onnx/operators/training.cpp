// Updates of weights by their gradients: Adagrad, Adam, Momentum of ai.onnx.preview.training.
#include <fmt/format.h>

#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

// One composite for each tensor that is optimised. The node's operands are the learning rate, the number of the step,
// then groups of tensors: weights, gradients, states. Results are in groups, too: the new weights, then the new states.
void import_steps(NodeContext& c, std::string_view composite, int states, const Attrs& attrs) {
  const int groups = states + 2;
  c.require_inputs(2 + groups, -1);
  if ((c.num_inputs() - 2) % groups != 0)
    c.malformed(fmt::format("{} inputs", c.num_inputs()), fmt::format("2 and a multiple of {}", groups));
  for (int i = 0; i < 2; ++i)
    if (!c.has_one_element(c.in(i)))
      c.malformed(fmt::format("input {} of type {}", i, c.type(c.in(i)).to_string()), "one element");
  const int count = (c.num_inputs() - 2) / groups;
  for (int i = 0; i < count; ++i) {
    std::vector<ValueId> operands;
    for (int group = 0; group < groups; ++group) {
      operands.push_back(c.in(2 + group * count + i));
      const TensorType &weight = c.type(operands[0]), &other = c.type(operands.back());
      if (!(weight == other))
        c.malformed(fmt::format("a gradient or state of type {} for {}", other.to_string(), weight.to_string()),
                    "equal types");
    }
    for (int scalar = 0; scalar < 2; ++scalar) operands.push_back(c.reshape(c.in(scalar), {}));
    const std::vector<ValueId> results = c.composite_results(composite, operands, attrs);
    for (size_t group = 0; group < results.size(); ++group) c.out(static_cast<int>(group) * count + i, results[group]);
  }
}

void import_adagrad(NodeContext& c) {
  import_steps(c, "adagrad", 1,
               {{"l2", c.attrs.get_float("norm_coefficient", 0)},
                {"epsilon", c.attrs.get_float("epsilon", 1e-6)},
                {"decay", c.attrs.get_float("decay_factor", 0)}});
}

void import_adam(NodeContext& c) {
  import_steps(c, "adam", 2,
               {{"l2", c.attrs.get_float("norm_coefficient", 0)},
                {"epsilon", c.attrs.get_float("epsilon", 1e-6f)},
                {"alpha", c.attrs.get_float("alpha", 0.9f)},
                {"beta", c.attrs.get_float("beta", 0.999f)},
                {"shrink", c.attrs.get_float("norm_coefficient_post", 0)}});
}

void import_momentum(NodeContext& c) {
  const std::string mode = c.attrs.get_string("mode", "standard");
  if (mode != "standard" && mode != "nesterov") c.malformed(fmt::format("mode = {}", mode), "standard, nesterov");
  import_steps(c, "momentum", 1,
               {{"l2", c.attrs.get_float("norm_coefficient", 0)},
                {"alpha", c.attrs.get_float("alpha", 0)},
                {"beta", c.attrs.get_float("beta", 0)},
                {"nesterov", mode == "nesterov"}});
}

}  // namespace

OperatorFamily training_operators() {
  static constexpr OperatorImporter training[] = {
      OperatorImporter{"Adagrad", 1, import_adagrad},
      OperatorImporter{"Adam", 1, import_adam},
      OperatorImporter{"Momentum", 1, import_momentum},
  };
  return {{kTrainingDomain, training}};
}

}  // namespace tessera::inline onnx_import
