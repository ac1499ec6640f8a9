// Makes a failing model smaller while it keeps failing: nodes are taken out in halves, quarters and one by one, outputs
// dropped, nodes bridged, dimensions shrunk, attributes and weights made plain, over and over until nothing helps or
// the time is up.
#pragma once

#include <functional>

#include "import/onnx/edit/model_edit.h"

namespace tessera::inline diagnose {

struct ReduceSteps {
  std::function<bool(const EditableModel&)> fails;  // in the same way as at the beginning
  // The types of its values, as far as they can be known.
  std::function<EditableModel::Types(const EditableModel&)> types;
  std::function<bool()> time_is_up;
  std::function<void(const EditableModel&)> found;  // told of every smaller model that fails
};

EditableModel reduce_model(EditableModel model, const ReduceSteps& steps);

}  // namespace tessera::inline diagnose
