// Makes a failing model smaller while it keeps failing: nodes are taken out in halves, quarters and one by one, outputs
// dropped, nodes bridged, dimensions shrunk, attributes and weights made plain, over and over until nothing helps or
// the time is up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>

namespace tessera::inline diagnose {

template <typename Edited>
struct ReduceSteps {
  std::function<bool(const Edited&)> fails;  // in the same way as at the beginning
  std::function<Edited(Edited)> learn;       // with what can be known of its values; null: nothing is to be learnt
  std::function<bool()> time_is_up;
  std::function<void(const Edited&)> found;  // told of every smaller model that fails
};

// `Edited` is a model whose edits give copies or nothing: EditableGraph or EditableModel.
template <typename Edited>
class ModelReducer {
 public:
  ModelReducer(Edited model, const ReduceSteps<Edited>& steps)
      : best_(learnt(std::move(model), steps)), steps_(steps) {}

  Edited run() {
    keep(best_.tidied());
    bool smaller = true;
    while (smaller && !steps_.time_is_up()) {
      smaller = false;
      smaller |= drop_outputs();
      smaller |= drop_nodes();
      smaller |= bridge_nodes();
      smaller |= shrink_dimensions();
      smaller |= make_details_plain();
    }
    return std::move(best_);
  }

 private:
  static Edited learnt(Edited model, const ReduceSteps<Edited>& steps) {
    return steps.learn ? steps.learn(std::move(model)) : model;
  }

  bool keep(const std::optional<Edited>& candidate) {
    if (!candidate || steps_.time_is_up() || !steps_.fails(*candidate)) return false;
    best_ = learnt(*candidate, steps_);
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
        const bool kept = keep(best_.with_nodes(rest));
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
        if (!keep(best_.without_node(node, operand))) continue;
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

  bool make_details_plain() {
    bool any = false;
    for (int i = best_.num_details(); i-- > 0;) any |= i < best_.num_details() && keep(best_.with_plain_detail(i));
    return any;
  }

  Edited best_;
  const ReduceSteps<Edited>& steps_;
};

template <typename Edited>
Edited reduce_model(Edited model, const ReduceSteps<Edited>& steps) {
  return ModelReducer<Edited>(std::move(model), steps).run();
}

}  // namespace tessera::inline diagnose
