// Text of a StableHLO module (MLIR) -> graph: the function main, with the functions that it calls in place.
#pragma once

#include <string>
#include <string_view>

#include "graph/evaluator.h"
#include "graph/op_def.h"
#include "import/common/options.h"
#include "import/stablehlo/read/module_text.h"

namespace tessera::inline stablehlo {

// A tensor that a caller gives or gets: an argument of main by the name of its location ("x"), or that of the argument
// of a function that main hands it on to, else "arg0"; a result by jax's description of it ("result['loss']"), else
// "result_0".
struct HloBorderTensor {
  std::string name;
  HloType type;
  std::vector<std::string> symbols =
      {};  // for each dimension of an argument: what jax calls its size ("n"), or nothing
};
struct HloBorder {
  std::vector<HloBorderTensor> inputs, outputs;
};
HloBorder border_of(const HloModule& module);

// UserError TSR-102x for options that do not fit; all operators that cannot be imported are in one NodesRefused.
// `evaluator` is used during the call only.
ReadOutcome read_stablehlo(const HloModule& module, const ImportOptions& options, const OpTable& ops,
                           Evaluator& evaluator);

}  // namespace tessera::inline stablehlo
