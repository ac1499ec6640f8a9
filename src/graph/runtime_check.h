// What must hold of the values that a model is run with: shapes are fixed while compiling, so where one depends on a
// tensor's contents, the module is compiled for the shape that the model declares and checks the contents in every run.
//
// A check is a tensor of type i64[1 + n]: its first element is not 0 when the check holds, the others are the values
// that the message shows. Checks are outputs behind a graph's and a program's own, so that every pass keeps them and
// their order does not matter; whoever runs the graph reads them afterwards, and the outputs are void when one fails.
#pragma once

#include <string>

namespace tessera::inline graph {

// The message is "<what> is <values>; this module was compiled for <legal>".
struct RuntimeCheck {
  std::string what;   // which node and operand, "ReduceSum 'sum': 'axes' (input 1, value 'a')"
  std::string legal;  // "axes that give the declared shape [3,1] of 'y'"
};

// A longer list of values is a mistake of whoever makes the check.
inline constexpr int kMaxCheckedValues = 4096;

}  // namespace tessera::inline graph
