// Adds nodes to the graph of a region, for the operator whose node has it.
#pragma once

#include <fmt/format.h>

#include <string>

#include "import/tflite/operator_context.h"

namespace tessera::inline tflite_import {

class RegionEmitter : public Emitter {
 public:
  RegionEmitter(EmitState& state, const OperatorContext& around)
      : Emitter(state), type_(around.op_type()), label_(around.label()) {}
  const std::string& op_type() const override { return type_; }
  const std::string& label() const override { return label_; }

 protected:
  Diagnostic malformed_diagnostic(const std::string& found, const std::string& legal,
                                  const std::string& hint) const override {
    return {"TSR-1105", fmt::format("{}: {}", type_, found), label_, legal, hint};
  }

 private:
  std::string type_, label_;
};

// A graph that an operator runs, while its nodes are written.
struct RegionGraph {
  RegionGraph(OperatorContext& around, const char* name)
      : builder(graph),
        state{around.state().ops, graph, builder, ConstantFinder(graph, around.state().evaluator)},
        emit(state, around) {
    graph.name = name;
    builder.set_loc(around.label());
  }

  Graph graph;
  GraphBuilder builder;
  EmitState state;
  RegionEmitter emit;
};

}  // namespace tessera::inline tflite_import
