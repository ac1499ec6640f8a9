// Nodes that cannot be imported, gathered so that one error names them all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "import/common/emitter.h"
#include "import/common/options.h"
#include "support/error.h"

namespace tessera::inline import_common {

// A node as messages name it.
struct NodeLabel {
  std::string kind;   // its operator: "Relu (ai.onnx:13)"
  std::string label;  // its name in the model
};

class FailureList {
 public:
  void add(const NodeLabel& node, const UnsupportedNode& unsupported);
  // A node that is malformed, or has what is not supported; `breaks_rule`: an OperatorRuleError.
  void add(const NodeLabel& node, const Diagnostic& diagnostic, bool breaks_rule, bool unsupported = false);
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  // Takes back what came after the first `size`.
  void truncate(size_t size) { entries_.resize(size); }
  // Whether there are failures from `first` on, and all are nodes that break the rules of their operators.
  bool break_rules(size_t first) const;
  // Takes them back and answers the first of them when that is so.
  std::optional<Diagnostic> withdraw(size_t first);
  // A part of the list, to be put back.
  FailureList from(size_t size) const;
  void append(const FailureList& other);
  // REQUIRES: !empty(). The last node's refusal as one of a form of another node that was tried.
  UnsupportedNode last_as(Refusal refusal) const {
    return refused_form(refusal, entries_.back().reason, entries_.back().cause);
  }

  // REQUIRES: !empty(). A single node that is malformed speaks for itself; otherwise all nodes, those with the same
  // reason together.
  NodesRefused refusal() const;

 private:
  struct Entry {
    std::string reason;
    std::string cause;  // the reason without the node's operator, and without what was tried
    std::string label;
    std::optional<Diagnostic> diagnostic;
    bool breaks_rule = false;
    bool unsupported = false;  // what `diagnostic` is about
  };
  std::vector<Entry> entries_;
};

}  // namespace tessera::inline import_common
