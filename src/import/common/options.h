// What a reader of models is told besides the model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "arith/tensor_type.h"
#include "graph/flow.h"
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
  // What training does and inference does not is kept as composites: dropouts, and batch normalisations that follow
  // their batches are those whose statistics a training step moves.
  bool for_training = false;
  // Not empty: dimensions with a range become these symbols, by name, and the model one graph whose shapes are
  // expressions of them, or NoGraph.
  std::vector<SymbolRange> symbols;
  // Sizes that data decide become symbols of the graph (graph/data_sizes.h) where the model would be a flow without
  // that. Only of a model that has no graph otherwise, and of one with `symbols`.
  bool data_sizes = false;
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
struct NodesRefused {
  Diagnostic diagnostic;
  bool break_rules = false;  // a single node, whose operands do not fit its operator: for other sizes they may
  bool unsupported = false;  // there is nothing wrong with the model: it uses what is not supported
};

// What a reader makes of a model. NoGraph answers ImportOptions::symbols only: the model has no graph with symbolic
// shapes, or the reader cannot make it, and whoever asked for one reads the model at fixed sizes. What is wrong
// with the file or with the options is a UserError.
using ReadOutcome = std::variant<ImportedModel, NoGraph, NodesRefused>;

// For those who have nothing else to do with it: a RefusedModel where it is unsupported, else a UserError.
[[noreturn]] void throw_refusal(const NodesRefused& refused);

}  // namespace tessera::inline import_common
