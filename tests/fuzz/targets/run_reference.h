// What the interpreter makes of the model that a module was compiled from, for comparison.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/flow.h"
#include "graph/graph.h"
#include "run_inputs.h"

namespace tessera::fuzz {

class Reference {
 public:
  // Empty when the model draws random numbers.
  static std::unique_ptr<Reference> of_model(const std::string& path);

  struct Answer {
    std::string refused;  // the id of the error; empty when there are results
    std::vector<RunValue> results;
  };
  Answer run(const std::vector<RunValue>& inputs) const;

  // Whether weights of a convolution are no constants of the model.
  bool convolves_by_inputs() const;

  // What makes the two sets of results different, in words; empty when they agree. Integers, bools, strings and shapes
  // are equal; floats up to `tolerance` of the largest.
  static std::string difference(const std::vector<RunValue>& wanted, const std::vector<RunValue>& found);

 private:
  ImportedModel model_;
};

}  // namespace tessera::fuzz
