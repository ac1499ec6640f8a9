// A program of ATen operators -> graph: .pt2 files, which torch.export.save writes, and the same archive in memory. The
// graph has the program's names of values, and a node's location is the name of the program's node.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/evaluator.h"
#include "graph/op_def.h"
#include "import/aten/read/program.h"
#include "import/common/options.h"

namespace tessera::inline aten {

// Whether a file that begins so is a zip archive.
bool looks_like_pt2(std::string_view beginning);

// The program of an archive, whose bytes `owner` keeps alive; null: they outlive the program and all graphs that are
// made of it. UserError TSR-111x for files that are damaged, hostile or of another version.
AtenProgram open_pt2(std::string_view bytes, std::shared_ptr<const void> owner, const std::string& place);

// The tensors that a caller gives and gets.
struct AtenBorderTensor {
  std::string name;
  AtenType type;
  std::vector<std::string> size_names;  // a symbol's where a size is nothing else, else empty
};
struct AtenBorder {
  std::vector<AtenBorderTensor> inputs, outputs;
};
AtenBorder border_of(const AtenProgram& program);

// UserError TSR-102x for options that do not fit; all nodes that cannot be imported are in one NodesRefused.
// `evaluator` is used during the call only. The graph's constants borrow from the program's bytes. Buffers that the
// program changes are states of the graph.
ReadOutcome read_aten_program(const AtenProgram& program, const ImportOptions& options, const OpTable& ops,
                              Evaluator& evaluator);

struct RefusedAtenNode {
  std::string name;    // the program's
  std::string target;  // its operator
  std::string reason;
};
// All nodes that cannot be imported. What reads their results is judged all the same, by the types that the program
// declares for these.
std::vector<RefusedAtenNode> find_refused_nodes(const AtenProgram& program, const ImportOptions& options,
                                                const OpTable& ops, Evaluator& evaluator);

// The names of all operators that are read in some form: "aten.add".
std::vector<std::string> read_aten_operators();

}  // namespace tessera::inline aten
