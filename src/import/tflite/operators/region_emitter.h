// Graphs that operators run.
#pragma once

#include "import/common/region_emitter.h"
#include "import/tflite/operator_context.h"

namespace tessera::inline tflite_import {

// A graph that an operator runs, while its nodes are written.
struct RegionGraph {
  RegionGraph(OperatorContext& around, const char* name)
      : builder(graph),
        state{around.state().ops, graph, builder, ConstantFinder(graph, around.state().evaluator)},
        emit(state, around, "TSR-1105") {
    graph.name = name;
    builder.set_loc(around.label());
  }

  Graph graph;
  GraphBuilder builder;
  EmitState state;
  RegionEmitter emit;
};

}  // namespace tessera::inline tflite_import
