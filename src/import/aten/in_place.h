// Operators that write into their first operand ("add_"), as programs have them that torch.export did not decompose.
// Values do not change here: what such a node gives stands for its operand from then on. That is the same as long as
// nothing else looks at the operand's memory: a view of it, or whoever gave it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "import/aten/read/program.h"

namespace tessera::inline aten {

// The operator without the writing, "aten.add.Tensor" of "aten.add_.Tensor"; empty for all others.
std::string without_writing(const std::string& target);

class SharedMemory {
 public:
  // An input or a weight, which is the caller's.
  void add_given(const std::string& name) { given_.insert(name); }
  // A node that has been read: its results may be views of its first operand.
  void add(const AtenNode& node);
  // Why the operand of a node cannot be written to; empty when it can.
  std::string refusal(const AtenNode& node) const;
  // The names of the operand, which stand for the node's result from now on.
  std::set<std::string> names_of_operand(const AtenNode& node) const;

 private:
  std::string root(const std::string& name) const;

  std::set<std::string> given_;
  std::map<std::string, std::string> root_;  // of a view, and of what was written: the tensor whose memory it has
  std::set<std::string> viewed_;             // tensors with views
  std::set<std::string> views_;
};

}  // namespace tessera::inline aten
