// What a compile tells whoever started it. Every event has an implementation that does nothing, so that an observer
// overrides those that it wants; none of them changes what is compiled.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "driver/graph_choice.h"
#include "driver/pass_application.h"
#include "support/remarks.h"

namespace tessera::inline driver {

// Told from the compile's thread. What it throws ends the compile.
class Observer {
 public:
  virtual ~Observer() = default;

  // A step begins: a reader, a pass, a part of code generation.
  virtual void step_begins(std::string_view step) { (void)step; }
  // A step has given a graph or a program. Of a flow each piece is a graph.
  virtual void graph_made(std::string_view step, const Graph& graph) { (void)step, (void)graph; }
  virtual void program_made(std::string_view step, const Program& program) { (void)step, (void)program; }

  // Around an application that is done; a rule's ends with the step that asks the rules. A model that is compiled for
  // several sizes, or once more in another form, counts from the same number again.
  virtual void application_begins(const PassApplication& application, const ChangedIr& before) {
    (void)application, (void)before;
  }
  virtual void application_ended(const PassApplication& application, const ChangedIr& after) {
    (void)application, (void)after;
  }

  // What Decisions::choose_graph answered.
  virtual void graph_chosen(const TunedGraph& graph) { (void)graph; }
  // A chain of kernels could become `made`, whether or not the choice for the model lets it (name_of_chain).
  virtual void chain_offered(std::string_view step, const Kernel& made) { (void)step, (void)made; }

  // What passes decided, and why. Their texts cost time: they are made where an observer wants them.
  virtual bool wants_remarks() const { return false; }
  virtual void remarked(const Remark& remark) { (void)remark; }
};

// Borrowed observers, told in the order in which they came.
class Observers {
 public:
  // `observer` outlives every compile with this list, and with copies of it.
  void add(Observer& observer) { list_.push_back(&observer); }

  template <typename... Parameters, typename... Arguments>
  void tell(void (Observer::*event)(Parameters...), const Arguments&... arguments) const {
    for (Observer* observer : list_) (observer->*event)(arguments...);
  }
  bool empty() const { return list_.empty(); }
  bool want_remarks() const {
    return std::any_of(list_.begin(), list_.end(), [](const Observer* observer) { return observer->wants_remarks(); });
  }

 private:
  std::vector<Observer*> list_;
};

}  // namespace tessera::inline driver
