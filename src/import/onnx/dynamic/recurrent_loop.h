// Recurrent operators over a length that only a run knows, as Loops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx-ml.pb.h"

namespace tessera::inline onnx_import {

// Nodes that give the outputs of an LSTM, GRU or RNN `node`, in their order: a Loop for each direction, whose body
// takes one step of the operands, by the operator itself on a length of 1. `state_type` is the TensorProto.DataType of
// the states.
std::vector<onnx::NodeProto> loop_of_recurrent(const onnx::NodeProto& node, int state_type);

// The dimension of operand 0 that is its length.
int64_t length_axis(const onnx::NodeProto& node);

// Whether the operator is one of those.
bool is_recurrent(const onnx::NodeProto& node);

}  // namespace tessera::inline onnx_import
