// What a reader of models is told besides the model.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "arith/tensor_type.h"
#include "support/error.h"

namespace tessera::inline import_common {

struct DimRange {
  int64_t lo = 1, hi = 1;  // inclusive
};

// Values for the dimensions that the model leaves open. Every such dimension must get one, or a range with
// `leave_open` or `symbols`.
struct ImportOptions {
  std::map<std::string, DimRange> dims;                // --dim NAME=V|LO..HI: by the name that the model gives them
  std::map<std::string, std::vector<int64_t>> shapes;  // --shape INPUT=1x3x640x640
  // Dimensions with a range of values stay open, and the model becomes a flow.
  bool leave_open = false;
  // Loop, Scan, LSTM, GRU and RNN become loops of the graph (graph/control_flow.h) where these can say what they do.
  // Without it, and otherwise, their steps are written out: programs of several sample sizes are compared call by call.
  bool loop_nodes = true;
  // Not empty: dimensions with a range become these symbols, by name, and the model one graph whose shapes are
  // expressions of them. The reader throws NeedsFixedSizes when there is no such graph.
  std::vector<SymbolRange> symbols;
  // Sizes that data decide become symbols of the graph (graph/data_sizes.h) where the model would be a flow without
  // that. Only of a model that has no graph otherwise, and of one with `symbols`.
  bool data_sizes = false;
  // The reader throws BecomesFlow as soon as it finds that the model would be a flow.
  bool graph_alone = false;
  // Dimensions that are no symbols of their own but these expressions of them.
  std::map<std::string, Expr> equal = {};
};

// The model computes only where a symbol has the value `size` of others: "total" is past + length. The import starts
// again with that in ImportOptions::equal, and inputs that contradict it are refused by their shapes.
struct EqualSizes {
  std::string symbol;
  Expr size;
};

// Nodes of the model cannot be imported, with the sizes that it is read for.
class NodesRefused : public UserError {
 public:
  using UserError::UserError;
};

// The model has no graph with symbolic shapes, or the reader cannot make it: whoever asked for one reads the model at
// fixed sizes. The model may be sound, so this is no UserError.
class NeedsFixedSizes : public std::exception {
 public:
  NeedsFixedSizes(std::string node, std::string reason)
      : node_(std::move(node)), reason_(std::move(reason)), text_(node_.empty() ? reason_ : node_ + ": " + reason_) {}
  const std::string& node() const { return node_; }      // the model's name of the node; empty for the whole model
  const std::string& reason() const { return reason_; }  // "needs the extents of 'x' as numbers, but it is f32[n,4]"
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string node_, reason_, text_;
};

// ImportOptions::graph_alone: the model has no graph of fixed sizes.
struct BecomesFlow {};

}  // namespace tessera::inline import_common
