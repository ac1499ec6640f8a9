// Operators on tensors whose shapes only a run knows, in models that have such values anyway: those that work element
// by element, and those that only move elements or look at shapes.
#pragma once

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

using WhenRun = void (*)(NodeContext& c);

// Null for operators that need to know shapes while compiling.
WhenRun find_when_run(const onnx::NodeProto& node);

}  // namespace tessera::inline onnx_import
