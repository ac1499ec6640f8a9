// Graphs as models: those of a text file, and those that a program built (tessera/graph.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "driver/formats.h"
#include "graph/graph.h"
#include "import/onnx/onnx_import.h"
#include "tessera/compiler.h"

namespace tessera::inline driver {

// True for text that begins, behind white space and comments, as a graph does: "graph @".
bool looks_like_graph(std::string_view text);

// The graph of a text. UserError TSR-3xxx for text that is no graph, and what require_model_graph says. `file` is for
// messages.
Graph read_graph_text(std::string_view text, const std::string& file);

// What parsing does not hold against a graph that comes from outside: TSR-2066 for a composite that has the name of an
// operator and another body, TSR-2067 for a constant without data, TSR-2068 for a group or a layout, which only passes
// make.
void require_model_graph(const Graph& graph);

// The options with the ranges of the graph's symbols that they do not mention. UserError TSR-1022 for a value outside
// of its symbol's range.
CompileOptions with_declared_sizes(const Graph& graph, const CompileOptions& options);

// The graph with every symbol replaced by its value, those excepted that the options leave in a range
// (ImportOptions::symbols). UserError TSR-1020 to TSR-1025, as for ONNX models.
Graph bind_options(const Graph& graph, const ImportOptions& options);

// A graph in memory as a model.
ModelReader reader_of_graph(std::shared_ptr<const Graph> graph);

}  // namespace tessera::inline driver
