// Whether a model's gradients are the derivatives of what it computes, and if not, which operator's rule is wrong.
//
// The model is a function of its inputs and parameters (real_graph.h: in f64). What is differentiated is a sum of its
// outputs' elements with random weights; the gradients of that, as autodiff makes them, are held against central
// differences along random directions and for single elements. Both are computed by the interpreter.
//
// Besides, each operator is checked alone, in topological order, on the values that reach it in the model: the first
// whose own gradient differs is the one to look at. A composite that autodiff opens is gone into.
//
// Kinks: where differences on the two sides of a point, or for smaller steps, disagree by as much as there is to
// complain about, the point is near a kink or a jump (relu at 0, equal maxima), or rounding hides the difference. That
// says nothing about the gradient, and is counted. What is no finite number on the model's side is counted, too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "diagnose/text_table.h"
#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline diagnose {

struct GradientCheckOptions {
  double tolerance = 1e-4;   // |gradient - difference|, relative to the larger and to what is usual for the value
  int directions = 2;        // random ones, for each value
  int elements = 2;          // single ones, for each value; the one with the largest gradient is the first
  double max_seconds = 300;  // after which nothing further is checked
  uint64_t seed = 0;
  std::function<void(const std::string&)> step = {};  // told what is being done; may be null
};

struct CheckedGradient {
  std::string name, type;  // the type is the model's own
  bool is_parameter = false;
  int checks = 0;         // directions and elements that count
  int kinks = 0;          // near a kink, or hidden by rounding
  int undefined = 0;      // where the function is no finite number
  bool complete = false;  // false: the time was up before
  bool agrees = true;
  double max_relative = 0;              // difference, among what counts
  double gradient = 0, difference = 0;  // where that is
};

struct WrongOperator {
  std::string node, op_type;  // of an operator in a composite that was opened: "gelu/erf"
  std::string operand, type;  // whose gradient is wrong
  double gradient = 0, difference = 0, relative = 0;
};

struct GradientCheck {
  std::vector<CheckedGradient> values;  // inputs, then parameters, as far as outputs depend on them
  int operators = 0;                    // that were checked alone
  int operator_kinks = 0;               // near kinks among their checks
  std::optional<WrongOperator> wrong;   // the first
  std::vector<std::string> notes;

  bool agrees() const;
};

// `inputs` are the model's own, states aside, which have their initial values. REQUIRES: no sizes that are open.
// UserError TSR-2072 naming all operators without a gradient, TSR-2084 where nothing has a gradient.
GradientCheck check_gradients(const Graph& model, const std::vector<Tensor>& inputs,
                              const GradientCheckOptions& options, const OpTable& ops);

std::string to_text(const GradientCheck& check, const TextStyle& style);
nlohmann::json to_json(const GradientCheck& check);

}  // namespace tessera::inline diagnose
