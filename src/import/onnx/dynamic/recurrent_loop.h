// Recurrent operators over a length that only a run knows, as Loops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx-ml.pb.h"

namespace tessera::inline onnx_import {

// Nodes that give the outputs of an LSTM, GRU, RNN or Scan `node`, in their order: a Loop for each direction, whose
// body takes one step of the operands, by the operator itself on a length of 1 or by the Scan's body. `state_type` is
// the TensorProto.DataType of the states of an LSTM, GRU or RNN. Empty, with a reason, for what has no such form: a
// Scan whose results are not stacked along dimension 0.
std::vector<onnx::NodeProto> loop_of_recurrent(const onnx::NodeProto& node, int state_type, std::string& reason);

// The dimension of operand 0 of an LSTM, GRU or RNN that is its length.
int64_t length_axis(const onnx::NodeProto& node);

// Whether the operator is one of those.
bool is_recurrent(const onnx::NodeProto& node);

}  // namespace tessera::inline onnx_import
