// The graph of a language model:
//
//   tokens i64[length], rows i64[kept], keys.N f32[past, heads * depth], values.N of every layer
//   -> logits f32[kept, vocabulary], all_keys.N f32[past + length, heads * depth], all_values.N
//
// `past` tokens were there before; their keys and values are inputs, with those of the new tokens behind them they are
// outputs, which may begin in the memory of the inputs: nothing is copied then. So a prompt may come in pieces, and
// what several prompts begin with is computed once. `rows` says of which of the new tokens there are logits.
#pragma once

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "graph/op_def.h"
#include "import/gguf/hyperparameters.h"
#include "import/gguf/weights.h"

namespace tessera::inline gguf {

// The dimensions: expressions of symbols, or numbers.
// A sequence of a run: its new tokens, and those that were there before.
struct SequenceLengths {
  Expr length, past;
};
struct Lengths {
  std::vector<SequenceLengths> sequences;  // at least one
  Expr kept;
  int64_t longest = 0;  // of past + length
};

Graph transformer_graph(const Hyperparameters& h, Weights& weights, const Lengths& lengths,
                        const std::vector<SymbolRange>& symbols, const OpTable& ops, Evaluator& evaluator);

}  // namespace tessera::inline gguf
