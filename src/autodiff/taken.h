// Where something depends on a value whose elements a select takes or leaves.
#pragma once

#include <memory>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline autodiff {

// An expression of conditions, which becomes nodes when it is asked for.
class Taken;
using TakenPtr = std::shared_ptr<Taken>;

class Taken {
 public:
  // Where the condition holds, or where it does not.
  static TakenPtr where(ValueId condition, bool holds) { return std::make_shared<Taken>(condition, holds); }
  static TakenPtr both(TakenPtr a, TakenPtr b) {
    return std::make_shared<Taken>("logical_and", std::move(a), std::move(b));
  }
  static TakenPtr either(TakenPtr a, TakenPtr b) {
    return std::make_shared<Taken>("logical_or", std::move(a), std::move(b));
  }

  // For something of `shape` that broadcasts to `whole`: whether `a` holds for any of the elements that it becomes.
  static TakenPtr any_of(TakenPtr a, Shape whole, Shape shape) {
    auto any = std::make_shared<Taken>(nullptr, std::move(a), nullptr);
    any->whole_ = std::move(whole);
    any->shape_ = std::move(shape);
    return any;
  }

  Taken(ValueId condition, bool holds) : condition_(condition), holds_(holds) {}
  Taken(const char* op, TakenPtr a, TakenPtr b) : op_(op), a_(std::move(a)), b_(std::move(b)) {}

  // Whether it broadcasts to a shape; to that of a number, it holds for all elements at once.
  bool fits(const Graph& graph, const Shape& shape) const;
  // As a bool value of the graph.
  ValueId value(GraphBuilder& builder, const OpTable& ops);

 private:
  ValueId condition_ = -1;
  bool holds_ = true;
  const char* op_ = nullptr;
  TakenPtr a_ = {}, b_ = {};
  Shape whole_ = {}, shape_ = {};  // of any_of, which has no operator
  ValueId made_ = -1;
};

// Whether each element of the node's result depends on one element of each operand, at its own place.
bool works_by_element(const Node& node);

// Of one node: where something depends on the operand by way of it, if `taken` says where something depends on its
// result. None: everywhere it may.
TakenPtr taken_of_operand(const Graph& graph, const Node& node, size_t operand, const TakenPtr& taken);

}  // namespace tessera::inline autodiff
