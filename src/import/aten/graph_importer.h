// The walk over a program's nodes.
#pragma once

#include <string>
#include <vector>

#include "graph/evaluator.h"
#include "graph/op_def.h"
#include "import/aten/aten_import.h"
#include "import/aten/read/program.h"
#include "import/common/options.h"

namespace tessera::inline aten {

ReadOutcome build_graph(const AtenProgram& program, const ImportOptions& options, const OpTable& ops,
                        Evaluator& evaluator);

// The nodes that build_graph would refuse, in order; each is judged as if those before it were read.
std::vector<RefusedAtenNode> find_refused(const AtenProgram& program, const ImportOptions& options, const OpTable& ops,
                                          Evaluator& evaluator);

}  // namespace tessera::inline aten
