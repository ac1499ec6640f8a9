// What the files behind the public headers share.
#pragma once

#include <exception>
#include <vector>

#include "driver/engine/model.h"
#include "import/common/refused_model.h"
#include "support/error.h"
#include "tessera/compiler.h"

namespace tessera::inline driver {

inline CompileError::Details details_of(const Diagnostic& d,
                                        CompileError::Reason reason = CompileError::Reason::kOther) {
  return {d.id, d.message, d.node, d.legal, d.hint, reason};
}

// Runs `work`; what it throws becomes a CompileError.
template <typename Work>
auto translate_errors(const Work& work) {
  try {
    return work();
  } catch (const RefusedModel& error) {
    const bool open = error.reason() == RefusedModel::Reason::kOpenSizes;
    throw CompileError(error.what(), details_of(error.diagnostic(), open ? CompileError::Reason::kOpenSizes
                                                                         : CompileError::Reason::kUnsupported));
  } catch (const UserError& error) {
    throw CompileError(error.what(), details_of(error.diagnostic()));
  } catch (const std::exception& error) {
    throw CompileError(error.what(), {.id = {}, .message = error.what(), .node = {}, .legal = {}, .hint = {}});
  }
}

// Of the caller, who keeps the data.
Tensor borrow(const tessera_tensor& tensor);

// Names are those of `infos`.
std::vector<tessera_tensor_info> public_infos(const std::vector<TensorInfo>& infos);

// Runs the model once on the caller's tensors and writes the caller's outputs. UserError TSR-6304, TSR-6305 for outputs
// of another number or type, and what Model::bind says of inputs.
void run_on(Model& model, const std::vector<tessera_tensor>& inputs, const std::vector<tessera_tensor>& outputs);

}  // namespace tessera::inline driver
