// Expressions over graph values in text, as rewrite rules write them, and how they are found in a graph and built.
//
//   x y z u v w      any value; the same one wherever the name stands again
//   a b c d          a constant
//   2  -0.5  inf     a constant of which every element equals this number
//   add(x, c)        a node; the operands of commutative operators match in either order
//   transpose:t(x)   a node that the rule's condition asks for as t; in the replacement, one whose attributes it gives
//   concat:k(...)    a node with whatever number of operands
//   *:o(...)         a node of any operator
//
// In a replacement a number takes the element type of its neighbour and is a constant of rank 0; operations on
// constants alone are evaluated at once. A label of the pattern stands for that node's result.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

struct Term {
  enum class Kind : uint8_t { kValue, kConstant, kNumber, kNode };
  Kind kind = Kind::kValue;
  std::string name;   // of the value, constant or operator
  std::string label;  // of a node; often empty
  double number = 0;
  std::vector<Term> operands;
  bool any_operands = false;  // "..."
};

// InternalError on a text that is none: patterns are part of the program.
Term parse_term(std::string_view text);

// What a pattern was found to stand for. `root` is not part of `graph` yet: its operands are.
struct Match {
  Graph& graph;
  const PassContext& ctx;
  const Node& root;
  const TensorType& type;                   // of the root's result
  std::string name;                         // of the root's result; new nodes are named after it
  std::map<std::string, ValueId> values{};  // of names, constants included, and of labels other than the root's
  std::map<std::string, Node> nodes{};      // of labels
  std::vector<ValueId> rest{};              // the operands of the node with "...", in the replacement too
  std::vector<ValueId> inner{};             // results of the nodes between root and leaves
  std::map<std::string, Attrs> attrs{};     // set by conditions: of labelled nodes in the replacement

  ValueId value(const std::string& name) const { return values.at(name); }
  const TensorType& type_of(const std::string& name) const { return graph.type(value(name)); }
  const Tensor& constant(const std::string& name) const;
  const Node& node(const std::string& label) const { return nodes.at(label); }
};

bool is_commutative(std::string_view op);

// Fills `match`; false (and `match` spoilt) when the root is something else.
bool find_pattern(const Term& pattern, Match& match);

// What replaces a root: a value that exists, or a node yet to be added.
struct Replacement {
  ValueId value = -1;
  Node node;  // when value is -1
};

// Adds the inner nodes of `term` to the graph. They and the replacement get the locations of all that was matched.
Replacement build_replacement(const Term& term, const Match& match);

}  // namespace tessera::inline graph_passes
