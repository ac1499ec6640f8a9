// What became of every node of a model, and why: put together from what a compile lets others see (its graphs after
// each pass, its final program, its remarks) without the passes knowing of it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "diagnose/model_outline.h"
#include "diagnose/text_table.h"
#include "graph/flow.h"
#include "graph/graph.h"
#include "program/program.h"
#include "support/remarks.h"
#include "target/target.h"
#include "types/numerics.h"

namespace tessera::inline diagnose {

// The parts of a joined location ("Conv_0+Relu_1") that are names in `known`, in order. Names may hold '+' themselves.
std::vector<std::string> split_location(std::string_view location, const std::set<std::string>& known);

// Where each node of a model was last seen, and what the nodes of the last graph hold.
class NodeTrail {
 public:
  explicit NodeTrail(std::set<std::string> labels) : labels_(std::move(labels)) {}

  // After each pass, in order. Nodes that no output needs any more count as gone: the pass that made them so is named,
  // not the one that sweeps them up.
  void see(std::string_view step, const Graph& graph);

  // The step after which the node no longer was in the graph; "" when it still is. "import" for nodes that the first
  // graph did not have.
  std::string gone_after(const std::string& label) const;
  // Whether what was left of the node when it was last seen was a constant.
  bool became_constant(const std::string& label) const { return constants_.count(label) != 0; }
  // Whether it is a view in the last graph: a different shape for bytes that are there already.
  bool is_view(const std::string& label) const { return views_.count(label) != 0; }
  // By the name of a kernel's result in the last graph: the nodes that the kernel computes.
  const std::map<std::string, std::vector<std::string>>& members() const { return members_; }
  const std::set<std::string>& labels() const { return labels_; }

 private:
  std::set<std::string> labels_, present_, constants_, views_;
  std::map<std::string, std::string> gone_;
  std::map<std::string, std::vector<std::string>> members_;
};

// What one schedule rule says to one kernel.
struct RuleNote {
  std::string rule;
  bool chosen = false;
  std::string declined;      // why it cannot; empty when it could
  double predicted_us = -1;  // of one thread, by the model of the machine that code generation uses; -1 when declined
  std::string schedule;      // what it has chosen: "register_tile{rows=6,vectors=2}"; empty when declined
};

// One call of a kernel.
struct KernelNote {
  std::string name;                // of its function
  std::vector<std::string> nodes;  // of the model
  std::string rule;
  std::string schedule;               // the rule's choices; the rule alone where it has none, or sizes are open
  std::vector<std::string> operands;  // "x: f32[1,3,8,8]", weights with "const" before them
  std::string result;                 // its type with its layout
  std::string layout;                 // of the result, "rows" or "{0,1/16,2,3,1%16}"
  std::vector<std::string> joins;     // "f: f32[8,100]", the kernels whose work it does, and what each of them computes
  int64_t flops = -1, bytes = -1;
  std::vector<RuleNote> rules;       // all that were asked, in order
  std::vector<std::string> only_if;  // what must hold for it to run: "c", "not d"; values of the model
};

struct NodeNote {
  std::string name, op_type;
  std::string fate;                   // "kernel", "view", "constant", "removed", "unused" (no output ever needed it)
  std::string gone_after;             // the step, for "constant", "removed" and "unused"
  std::vector<int> kernels;           // indices of Explanation::kernels
  std::vector<Remark> done, refused;  // that name this node
};

struct Explanation {
  std::string model, target;
  int opt_level = 3;
  std::string sizes;  // of a range: at how many of its sizes the program was held against the model's; "" without one
  std::optional<NoGraph> flow;  // why the model is steps of a run and no graph, when it is
  std::vector<NodeNote> nodes;  // in the model's order
  std::vector<KernelNote> kernels;
};

// How the compile that is explained was asked for.
struct ExplainedOptions {
  Target target;
  int opt_level = 3;
  std::set<std::string> disabled;  // passes and rules
  RuleNumerics numerics = {};
};

// `program` as planned. `remarks` of the whole compile.
Explanation explain(const ModelOutline& model, const NodeTrail& trail, const Program& program, const Remarks& remarks,
                    const ExplainedOptions& options);

// The node called `name`, or that gives the value `name`. UserError TSR-4040 with the nearest names when there is none.
const NodeNote& find_node(const Explanation& explanation, const ModelOutline& model, const std::string& name);

std::string to_text(const Explanation& explanation, const TextStyle& style);
std::string to_text(const Explanation& explanation, const NodeNote& node, const TextStyle& style);
nlohmann::json to_json(const Explanation& explanation);
nlohmann::json to_json(const Explanation& explanation, const NodeNote& node);

}  // namespace tessera::inline diagnose
