#include "diagnose/find_difference.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <unordered_map>

#include <fmt/format.h>

#include "support/error.h"

namespace tessera::inline diagnose {

namespace {

// How many values that differ are looked at more closely, in order, before the whole model is taken.
constexpr size_t kMaxCandidates = 20;
constexpr int kNearby = 8;  // distance up to which neighbours are tried for each of them
constexpr size_t kMaxFurther = 5;

// A difference of so many times what rounding the inputs makes is still put down to rounding: a part rounds inside too.
constexpr double kRoundingShare = 32;

// Floats changed by up to a few units in the last place, the same way for the same seed.
Tensor nudged(const Tensor& tensor, uint64_t seed) {
  double unit = 0;
  switch (tensor.dtype()) {
    case DType::kF64: unit = 0x1p-52; break;
    case DType::kF32: unit = 0x1p-23; break;
    case DType::kF16: unit = 0x1p-10; break;
    case DType::kBF16: unit = 0x1p-7; break;
    default: return tensor;
  }
  Tensor result(tensor.dtype(), tensor.dims());
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double factor = static_cast<double>(static_cast<int64_t>(state >> 33) % 9 - 4);  // -4 .. 4
    result.set_double(i, tensor.get_double(i) * (1 + unit * factor));
  }
  return result;
}

class DifferenceFinder {
 public:
  DifferenceFinder(const GraphParts& model, const std::vector<Tensor>& inputs, ValueSource& reference,
                   ValueSource& tested, const PartRunners& parts, const FindOptions& options)
      : model_(model), reference_(reference), tested_(tested), run_(parts), options_(options) {
    for (size_t i = 0; i < inputs.size(); ++i) values_[model.inputs().at(i)] = inputs[i];
    for (const std::string& name : reference.names()) in_reference_.insert(name);
  }

  Difference find() {
    compare_values();
    if (candidates_.empty()) return std::move(result_);
    begin_ = std::chrono::steady_clock::now();
    const bool outputs_differ = !result_.outputs.empty();
    const size_t tried = std::min(candidates_.size(), kMaxCandidates);
    for (size_t i = 0; i < tried && !result_.reproduction; ++i) look_near(candidates_[i]);
    if (!result_.reproduction && outputs_differ) {
      const auto unexplained = std::find_if(candidates_.begin(), candidates_.end(), [&](const ValueReport& candidate) {
        return !follows_rounding(model_.producer(candidate.value));
      });
      if (unexplained != candidates_.end()) look_far(*unexplained);
    }
    if (!result_.reproduction) {
      note_hidden();
      if (!outputs_differ) return std::move(result_);
      result_.first = candidates_.front();
    }
    for (const ValueReport& report : candidates_)
      if (report.value != result_.first->value && result_.further.size() < kMaxFurther)
        result_.further.push_back(report);
    return std::move(result_);
  }

 private:
  void step(const std::string& text) const {
    if (options_.step) options_.step(text);
  }

  ValueReport report(const std::string& name, const Tensor& want, Comparison comparison) const {
    const int node = model_.producer(name);
    const PartNode& producer = model_.nodes().at(static_cast<size_t>(node));
    return {name, producer.label, producer.op_type, tensor_type_text(want), std::move(comparison)};
  }

  // ---- the whole model, value by value ----

  void compare_values() {
    std::set<std::string> common;
    for (const std::string& name : tested_.names())
      if (in_reference_.count(name) && model_.producer(name) >= 0) common.insert(name);
    const std::set<std::string> outputs(model_.outputs().begin(), model_.outputs().end());
    std::vector<std::string> order;
    std::map<std::string, Tensor> pending;
    int64_t bytes = 0;
    bool found = false;
    const auto flush = [&] {
      step(fmt::format("comparing {} values", pending.size()));
      std::map<std::string, ValueReport> different;
      std::set<std::string> wanted;
      for (const auto& [name, want] : pending) wanted.insert(name);
      size_t left = wanted.size();
      tested_.run(wanted, [&](const std::string& name, const Tensor& got) {
        const Tensor& want = pending.at(name);
        // A pass may give a name to something of another shape: that is another value.
        if (got.dtype() != want.dtype() || got.dims() != want.dims()) return --left > 0;
        ++result_.compared;
        Comparison comparison = compare(got, want, tolerance_for(options_.tolerance, want.dtype()));
        if (!comparison.agrees) different.emplace(name, report(name, want, std::move(comparison)));
        return --left > 0;
      });
      for (const std::string& name : order) {
        const auto it = different.find(name);
        if (it == different.end()) continue;
        if (outputs.count(name)) result_.outputs.push_back(name);
        candidates_.push_back(std::move(it->second));
      }
      found = found || !different.empty();
      order.clear();
      pending.clear();
      bytes = 0;
    };
    step("computing the reference");
    reference_.run(common, [&](const std::string& name, const Tensor& value) {
      // Once something differs only the model's outputs are still of interest.
      if (found && !outputs.count(name)) return true;
      order.push_back(name);
      pending[name] = value;
      bytes += value.num_bytes();
      if (bytes >= options_.chunk_bytes) flush();
      return true;
    });
    if (!pending.empty()) flush();
  }

  // ---- parts of the model ----

  // The reference's values of these names, as far as it has them.
  bool fetch(const std::vector<std::string>& names) {
    std::set<std::string> missing;
    for (const std::string& name : names) {
      if (values_.count(name)) continue;
      if (!in_reference_.count(name)) return false;
      missing.insert(name);
    }
    size_t left = missing.size();
    if (left == 0) return true;
    reference_.run(missing, [&](const std::string& name, const Tensor& value) {
      values_[name] = value;
      return --left > 0;
    });
    return left == 0;
  }

  bool can_cut(const std::string& name) const {
    return options_.cuts.count(name) && (in_reference_.count(name) || values_.count(name));
  }

  // With the nodes that give what the model cannot be cut at.
  GraphParts::Part closed(std::set<int> nodes) const {
    while (true) {
      const GraphParts::Part part = model_.part(nodes);
      const size_t before = nodes.size();
      for (const std::string& name : part.inputs) {
        if (model_.producer(name) >= 0 && !can_cut(name)) nodes.insert(model_.producer(name));
      }
      if (nodes.size() == before) return part;
    }
  }

  bool out_of_budget() const {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
    return parts_ >= options_.max_parts || taken.count() > options_.max_seconds;
  }

  // Compiles the part alone; whether it shows a difference.
  bool shows(std::set<int> nodes) {
    GraphParts::Part part = closed(std::move(nodes));
    std::erase_if(part.outputs, [&](const std::string& name) { return !can_cut(name) && !values_.count(name); });
    if (part.outputs.empty() || out_of_budget() || !tried_.insert(part.nodes).second) return false;
    std::vector<std::string> names = part.inputs;
    names.insert(names.end(), part.outputs.begin(), part.outputs.end());
    for (const auto& [symbol, value] : part.sizes) names.push_back(value);
    if (!fetch(names)) return false;
    step(fmt::format("compiling {} node{} alone", part.nodes.size(), part.nodes.size() == 1 ? "" : "s"));
    ++parts_;
    try {
      std::map<std::string, int64_t> sizes;
      for (const auto& [symbol, value] : part.sizes) sizes[symbol] = values_.at(value).get_int(0);
      Reproduction found{part, model_.labels(part.nodes), model_.graph_of(part, sizes), {}, {}, {}};
      for (const std::string& name : part.inputs) found.inputs.push_back(values_.at(name));
      for (const std::string& name : part.outputs) found.outputs.push_back(values_.at(name));
      const std::vector<Tensor> results = run_.tested(found.graph, found.inputs);
      std::optional<std::vector<double>> sensitivity;
      for (size_t i = 0; i < results.size(); ++i) {
        Comparison comparison =
            compare(results[i], found.outputs[i], tolerance_for(options_.tolerance, found.outputs[i].dtype()));
        if (comparison.agrees) continue;
        if (!sensitivity) sensitivity = changes_by_rounding(found);
        if (comparison.max_difference <= kRoundingShare * (*sensitivity)[i]) {
          note_rounding(part, comparison, part.outputs[i]);
          continue;
        }
        found.output = report(part.outputs[i], found.outputs[i], std::move(comparison));
        result_.reproduction = std::move(found);
        return true;
      }
    } catch (const UserError&) {
      // Cut off from its neighbours, a node may be one that cannot be compiled: a shape that is computed, say.
    } catch (const InternalError& error) {
      result_.notes.push_back(fmt::format("a bug of its own: '{}' and {} other nodes, compiled alone: {}",
                                          model_.nodes()[static_cast<size_t>(*part.nodes.begin())].label,
                                          part.nodes.size() - 1, error.what()));
    }
    return false;
  }

  // For each output of a part how much it changes when the inputs change by a few units in the last place; 0 where that
  // cannot be computed.
  std::vector<double> changes_by_rounding(const Reproduction& found) const {
    std::vector<double> changes(found.outputs.size(), 0);
    try {
      const std::vector<Tensor> base = run_.interpreted(found.graph, found.inputs);
      std::vector<Tensor> inputs;
      for (size_t i = 0; i < found.inputs.size(); ++i) inputs.push_back(nudged(found.inputs[i], i));
      const std::vector<Tensor> moved = run_.interpreted(found.graph, inputs);
      for (size_t i = 0; i < changes.size(); ++i)
        changes[i] = compare(moved[i], base[i], {.rtol = 0, .atol = 0, .mtol = 0}).max_difference;
    } catch (const UserError&) {  // the part cannot be interpreted: nothing is known of its rounding
    } catch (const InternalError&) {
    }
    return changes;
  }

  void note_rounding(const GraphParts::Part& part, const Comparison& comparison, const std::string& output) {
    const int node = model_.producer(output);
    if (!rounded_.insert(node).second || rounded_.size() > kMaxFurther) return;
    result_.notes.push_back(
        fmt::format("'{}' differs by {:.2g}, no more than rounding the inputs of these {} nodes makes",
                    model_.nodes()[static_cast<size_t>(node)].label, comparison.max_difference, part.nodes.size()));
  }

  // The nodes up to `distance` steps away, readers and producers.
  std::set<int> ball(int center, int distance) const {
    std::set<int> nodes = {center};
    std::vector<int> border = {center};
    for (int i = 0; i < distance && !border.empty(); ++i) {
      std::vector<int> next;
      const auto add = [&](int node) {
        if (node >= 0 && nodes.insert(node).second) next.push_back(node);
      };
      for (const int at : border) {
        const PartNode& node = model_.nodes()[static_cast<size_t>(at)];
        for (const std::string& name : node.reads) add(model_.producer(name));
        for (const std::string& name : node.gives)
          for (const int reader : model_.readers(name)) add(reader);
      }
      border = std::move(next);
    }
    return nodes;
  }

  // The node and those between it and the nearest values that both sides show.
  std::set<int> fused(int center) const {
    std::set<std::string> shown;
    for (const std::string& name : tested_.names()) shown.insert(name);
    std::set<int> nodes = {center};
    std::deque<int> queue = {center};
    while (!queue.empty() && nodes.size() < 200) {
      const int at = queue.front();
      queue.pop_front();
      for (const std::string& name : model_.nodes()[static_cast<size_t>(at)].reads) {
        const int producer = model_.producer(name);
        if (producer < 0 || shown.count(name) || !nodes.insert(producer).second) continue;
        queue.push_back(producer);
      }
    }
    return nodes;
  }

  void look_near(const ValueReport& candidate) {
    const int center = model_.producer(candidate.value);
    values_keep_inputs();
    bool found = shows({center});
    const bool found_alone = found;
    const size_t rounded = rounded_.size();
    const bool behind_rounding = follows_rounding(center);
    if (!found) found = shows(fused(center));
    // What rounding explains is not explained better with more nodes; nor is what follows from it.
    for (int distance = 1; !found && distance <= kNearby && rounded_.size() == rounded && !behind_rounding;
         distance *= 2)
      found = shows(ball(center, distance));
    if (!found) return;
    settle(candidate);
    result_.right_alone = !found_alone && closed({center}).nodes.size() == 1;
  }

  // Whether a node reads, over any number of others, what rounding made different.
  bool follows_rounding(int node) const {
    std::set<int> seen = {node};
    std::vector<int> pending = {node};
    while (!pending.empty()) {
      const int at = pending.back();
      pending.pop_back();
      if (rounded_.count(at)) return true;
      for (const std::string& name : model_.nodes()[static_cast<size_t>(at)].reads) {
        const int producer = model_.producer(name);
        if (producer >= 0 && seen.insert(producer).second) pending.push_back(producer);
      }
    }
    return false;
  }

  // A part shows a difference: cuts it down, and names the node.
  void settle(const ValueReport& candidate) {
    const int center = model_.producer(candidate.value);
    trim(center);
    const bool holds_it = result_.reproduction->part.nodes.count(center) != 0;
    result_.first = holds_it ? candidate : result_.reproduction->output;
    result_.alone = result_.reproduction->part.nodes.size() == 1;
  }

  void look_far(const ValueReport& candidate) {
    const int center = model_.producer(candidate.value);
    const auto count = model_.nodes().size();
    std::set<int> nodes;
    for (int distance = 2 * kNearby; nodes.size() < count && static_cast<size_t>(distance) < 2 * count; distance *= 2) {
      nodes = ball(center, distance);
      values_keep_inputs();
      if (!shows(nodes)) continue;
      settle(candidate);
      return;
    }
    nodes.clear();
    for (size_t i = 0; i < count; ++i) nodes.insert(static_cast<int>(i));
    if (shows(nodes)) settle(candidate);
  }

  // Takes nodes away, those far from the center first, as long as the rest still shows a difference.
  void trim(int center) {
    std::unordered_map<int, int> distance;
    const std::set<int> all = result_.reproduction->part.nodes;
    for (int d = 0; distance.size() < all.size() && d < static_cast<int>(model_.nodes().size()) + 1; ++d) {
      const size_t before = distance.size();
      for (const int node : ball(center, d))
        if (all.count(node)) distance.emplace(node, d);
      if (d > 0 && distance.size() == before && ball(center, d).size() == ball(center, d - 1).size()) break;
    }
    std::vector<int> order(all.begin(), all.end());
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const auto far = [&](int node) { return distance.count(node) ? distance[node] : INT32_MAX; };
      return far(a) > far(b);
    });
    // Whole runs first: halves, quarters, ..., single nodes; again as long as single nodes go.
    for (size_t run = std::max<size_t>(order.size() / 2, 1); run >= 1; run /= 2) {
      bool again = true;
      while (again) {
        again = false;
        std::erase_if(order, [&](int node) { return !result_.reproduction->part.nodes.count(node); });
        for (size_t begin = 0; begin < order.size() && order.size() > 1 && !out_of_budget(); begin += run) {
          std::set<int> rest = result_.reproduction->part.nodes;
          for (size_t i = begin; i < std::min(begin + run, order.size()); ++i) rest.erase(order[i]);
          if (!rest.empty() && shows(rest)) again = run == 1;
        }
      }
      if (run == 1) break;
    }
  }

  // Forgets the values that were fetched for the candidate before.
  void values_keep_inputs() {
    std::erase_if(values_, [&](const auto& entry) { return model_.producer(entry.first) >= 0; });
  }

  void note_hidden() {
    if (!result_.outputs.empty()) return;
    for (size_t i = 0; i < std::min(candidates_.size(), kMaxFurther); ++i) {
      if (follows_rounding(model_.producer(candidates_[i].value))) continue;
      result_.notes.push_back(fmt::format(
          "'{}' ({}) differs inside, but no output of the model does, and no part of it that is compiled alone: {}",
          candidates_[i].value, candidates_[i].node, candidates_[i].comparison.text));
    }
  }

  const GraphParts& model_;
  ValueSource& reference_;
  ValueSource& tested_;
  const PartRunners& run_;
  const FindOptions& options_;
  std::set<std::string> in_reference_;
  std::map<std::string, Tensor> values_;  // of the reference: inputs, and what parts need
  std::vector<ValueReport> candidates_;   // in the reference's order
  std::set<std::set<int>> tried_;
  std::set<int> rounded_;  // nodes whose differences rounding explains
  int parts_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();  // of the search for a part
  Difference result_;
};

}  // namespace

Difference find_difference(const GraphParts& model, const std::vector<Tensor>& inputs, ValueSource& reference,
                           ValueSource& tested, const PartRunners& parts, const FindOptions& options) {
  return DifferenceFinder(model, inputs, reference, tested, parts, options).find();
}

Tolerance tolerance_for(Tolerance tolerance, DType dtype) {
  const auto at_least = [&](double bound) { tolerance.mtol = std::max(tolerance.mtol, bound); };
  switch (dtype) {
    case DType::kF16: at_least(1.0 / 256); break;
    case DType::kBF16: at_least(1.0 / 32); break;
    case DType::kF8E4M3FN:
    case DType::kF8E4M3FNUZ: at_least(1.0 / 4); break;
    case DType::kF8E5M2:
    case DType::kF8E5M2FNUZ: at_least(1.0 / 2); break;
    default: break;
  }
  return tolerance;
}

}  // namespace tessera::inline diagnose
