#include "diagnose/reduce_model.h"

#include <algorithm>
#include <set>

namespace tessera::inline diagnose {

namespace {

class Reducer {
 public:
  Reducer(EditableModel model, const ReduceSteps& steps) : best_(std::move(model)), steps_(steps) { learn_types(); }

  EditableModel run() {
    keep(best_.tidied());
    bool smaller = true;
    while (smaller && !steps_.time_is_up()) {
      smaller = false;
      smaller |= drop_outputs();
      smaller |= drop_nodes();
      smaller |= bridge_nodes();
      smaller |= shrink_dimensions();
      smaller |= drop_attributes();
      smaller |= make_weights_plain();
    }
    return std::move(best_);
  }

 private:
  void learn_types() { types_ = steps_.types(best_); }

  bool keep(const std::optional<EditableModel>& candidate) {
    if (!candidate || steps_.time_is_up() || !steps_.fails(*candidate)) return false;
    best_ = *candidate;
    learn_types();
    best_ = best_.declared(types_);
    steps_.found(best_);
    return true;
  }

  bool drop_outputs() {
    for (int i = 0; best_.num_outputs() > 1 && i < best_.num_outputs(); ++i)
      if (keep(best_.with_output(i))) return true;
    return false;
  }

  bool drop_nodes() {
    bool any = false;
    for (int run = std::max(best_.num_nodes() / 2, 1);; run /= 2) {
      // From the end: what is behind the failure goes first.
      for (int end = best_.num_nodes(); end > 0 && !steps_.time_is_up();) {
        const int begin = std::max(end - run, 0);
        std::set<int> rest;
        for (int i = 0; i < best_.num_nodes(); ++i)
          if (i < begin || i >= end) rest.insert(i);
        const bool kept = keep(best_.with_nodes(rest, types_));
        any |= kept;
        end = kept ? std::min(begin, best_.num_nodes()) : begin;
      }
      if (run == 1) return any;
    }
  }

  bool bridge_nodes() {
    bool any = false;
    for (int node = best_.num_nodes(); node-- > 0;) {
      for (int operand = 0; operand < 3 && node < best_.num_nodes(); ++operand) {
        if (!keep(best_.without_node(node, operand, types_))) continue;
        any = true;
        break;
      }
    }
    return any;
  }

  bool shrink_dimensions() {
    bool any = false;
    for (const int64_t dim : best_.dims()) {
      int64_t now = dim;
      // The smallest first: most failures do not need the size.
      for (const int64_t to : {int64_t{1}, int64_t{2}, int64_t{3}, dim / 4, dim / 2, dim - 1}) {
        if (to < 1 || to >= now || !keep(best_.with_dimension(now, to))) continue;
        any = true;
        now = to;
        break;
      }
    }
    return any;
  }

  bool drop_attributes() {
    bool any = false;
    for (int node = 0; node < best_.num_nodes(); ++node)
      for (int i = best_.num_attributes(node); i-- > 0;) any |= keep(best_.without_attribute(node, i));
    return any;
  }

  bool make_weights_plain() {
    bool any = false;
    for (int i = 0; i < best_.num_weights(); ++i) any |= keep(best_.with_plain_weight(i));
    return any;
  }

  EditableModel best_;
  const ReduceSteps& steps_;
  EditableModel::Types types_;
};

}  // namespace

EditableModel reduce_model(EditableModel model, const ReduceSteps& steps) {
  return Reducer(std::move(model), steps).run();
}

}  // namespace tessera::inline diagnose
