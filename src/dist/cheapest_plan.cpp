#include "dist/cheapest_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "dist/factors.h"
#include "dist/forms.h"
#include "dist/localize.h"
#include "dist/node_choices.h"
#include "graph/hash.h"
#include "support/error.h"

namespace tessera::inline dist {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

size_t index(ValueId v) { return static_cast<size_t>(v); }

bool is_constant(const Node& node) { return node.op->kind == OpKind::kConstant; }

// Seconds from one sharding of a type to another, each computed once.
class Moving {
 public:
  Moving(const Mesh& mesh, const RankSpeed& speed) : mesh_(mesh), speed_(speed) {}

  double seconds(const TensorType& type, const Sharding& from, const Sharding& to) {
    if (from == to) return 0;
    auto& of_type = known_[type.to_string()];
    const auto [known, is_new] = of_type.try_emplace(from.to_string() + to.to_string(), kNever);
    if (!is_new) return known->second;
    for (const PartialAxis& p : to.partial)
      if (!from.is_partial(p.axis)) return kNever;
    return known->second = moves_seconds(moves_between(from, to, type, mesh_, speed_), from, type, mesh_, speed_);
  }

 private:
  const Mesh& mesh_;
  const RankSpeed& speed_;
  std::map<std::string, std::unordered_map<std::string, double>> known_;
};

// A way to do a node, with what a rank then does.
struct Way {
  NodePlan plan;
  double seconds = 0;
};

struct Sharings {
  NodePlan plan;
  double sharers = 1;
};

std::vector<Way> ways_of(const Graph& graph, const Node& node, const Mesh& mesh, const RankSpeed& speed) {
  const NodeChoices choices(graph, mesh, speed);
  const std::optional<NodeFactors> factors = factors_of(graph, node);
  std::vector<Sharings> found = {{choices.whole(node)}};
  if (!factors) return {{found[0].plan, 0}};
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.extent == 1) continue;
    std::vector<Sharings> next;
    for (const Sharings& before : found) {
      next.push_back(before);
      const auto take = [&](const MeshChoice& choice, double sharers) {
        Sharings way = before;
        NodeChoices::apply(*factors, axis, choice, way.plan);
        way.sharers *= sharers;
        next.push_back(std::move(way));
      };
      for (const Factor& factor : factors->factors)
        if (factor.refused.empty() && choices.why_not(node, *factors, factor, axis, before.plan).empty())
          take({&factor}, static_cast<double>(axis.extent));
      for (size_t o = 0; o < node.inputs.size(); ++o) {
        const Node* producer = graph.producer(node.inputs[o]);
        const bool may_be_sum = producer && !is_constant(*producer) && is_combined(graph.type(node.inputs[o]).dtype);
        if (may_be_sum && factors->linear[o] && is_combined(graph.type(node.outputs[0]).dtype))
          take({nullptr, static_cast<int>(o)}, 1);
      }
    }
    found = std::move(next);
  }
  std::vector<Way> ways;
  for (const Sharings& sharing : found) {
    Way way{sharing.plan, choices.working(node, *factors, sharing.plan, sharing.sharers)};
    for (const NodePlan::Window& window : way.plan.windows)
      way.seconds += choices.sending(halo_bytes(graph, node, way.plan, window, mesh));
    ways.push_back(std::move(way));
  }
  return ways;
}

// What makes two nodes have the same ways: what they compute, and of which operands it is computed by nodes.
std::string key_of(const Graph& graph, const Node& node) {
  std::string key = fmt::format("{:x}", node_hash(graph, node));
  for (const ValueId input : node.inputs) {
    const Node* producer = graph.producer(input);
    key += producer && !is_constant(*producer) ? '1' : '0';
  }
  return key;
}

}  // namespace

struct PlanNetwork::State {
  State(const Graph& graph, const Mesh& mesh, const Pins& pins, const RankSpeed& speed)
      : graph(graph),
        mesh(mesh),
        speed(speed),
        pinned(pinned_values(graph, mesh, pins)),
        moving(this->mesh, this->speed) {
    find_readers();
    for (const Node& node : graph.nodes()) {
      kinds.push_back(nullptr);
      variable_of_node.push_back(-1);
      if (is_constant(node)) continue;
      const auto [known, is_new] = of_key.try_emplace(key_of(graph, node));
      if (is_new) known->second = {static_cast<int>(of_key.size()), ways_of(graph, node, mesh, speed)};
      kinds.back() = &known->second;
      const std::vector<Way>& all = known->second.ways;
      variable_of_node.back() = add_variable(all.size());
      for (size_t w = 0; w < all.size(); ++w) network.costs.back()[w] = all[w].seconds;
    }
    shardings_of_variable.resize(network.costs.size());
    for (size_t v = 0; v < graph.values().size(); ++v) add_value(static_cast<ValueId>(v));
    for (auto& [between, costs] : edges) network.edges.push_back({between.first, between.second, std::move(costs)});
    edges.clear();
  }

  void find_readers() {
    readers.resize(graph.values().size());
    is_output.assign(graph.values().size(), false);
    for (size_t n = 0; n < graph.nodes().size(); ++n)
      for (const ValueId input : graph.nodes()[n].inputs)
        if (readers[index(input)].empty() || readers[index(input)].back() != n) readers[index(input)].push_back(n);
    for (const ValueId output : graph.outputs) is_output[index(output)] = true;
  }

  int add_variable(size_t choices) {
    network.costs.emplace_back(choices, 0.0);
    network.memory.emplace_back(choices, 0.0);
    return static_cast<int>(network.costs.size()) - 1;
  }
  // A variable that is a sharding.
  int add_sharding(std::vector<Sharding> choices) {
    const int variable = add_variable(choices.size());
    shardings_of_variable.push_back(std::move(choices));
    return variable;
  }

  // The shardings in which a way of a node reads the value.
  static std::vector<Sharding> demands(const Node& node, const Way& way, ValueId value) {
    std::vector<Sharding> found;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == value && std::find(found.begin(), found.end(), way.plan.operands[i]) == found.end())
        found.push_back(way.plan.operands[i]);
    return found;
  }

  double seconds_to(ValueId value, const Sharding& from, const std::vector<Sharding>& to) {
    double seconds = 0;
    for (const Sharding& one : to) seconds += moving.seconds(graph.type(value), from, one);
    return seconds;
  }

  // All shardings that anybody wants a value in.
  std::vector<Sharding> wanted(ValueId value) const {
    std::vector<Sharding> found;
    std::set<std::string> texts;
    const auto want = [&](const Sharding& sharding) {
      if (texts.insert(sharding.to_string()).second) found.push_back(sharding);
    };
    want(Sharding::replicated(graph.type(value).shape.size()));
    for (const size_t n : readers[index(value)])
      for (const Way& way : ways(n))
        for (const Sharding& demand : demands(graph.nodes()[n], way, value)) want(demand);
    return found;
  }

  // Which operands of a node a value is, and of which kind the node is: equal layers have equal costs.
  std::string reading(size_t n, ValueId value) const {
    std::string text = fmt::format("{}", kinds[n]->number);
    for (size_t i = 0; i < graph.nodes()[n].inputs.size(); ++i)
      if (graph.nodes()[n].inputs[i] == value) text += fmt::format(".{}", i);
    return text;
  }
  std::string readings(ValueId value) const {
    std::string text;
    for (const size_t n : readers[index(value)]) text += reading(n, value) + ",";
    return text;
  }

  // `key`: edges of the same have the same costs.
  template <typename Cost>
  void add_edge(int a, int b, const std::string& key, const Cost& cost) {
    const auto va = static_cast<size_t>(a), vb = static_cast<size_t>(b);
    const size_t rows = network.costs[va].size(), columns = network.costs[vb].size();
    const auto [known, is_new] = of_edge.try_emplace(key);
    if (is_new)
      for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < columns; ++j) known->second.push_back(cost(i, j));
    std::vector<double>& costs = edges[{va, vb}];
    costs.resize(rows * columns, 0);
    for (size_t e = 0; e < costs.size(); ++e) costs[e] += known->second[e];
  }

  // From a variable that is a sharding to all readers.
  void add_readers(ValueId value, int from, const std::vector<Sharding>& choices) {
    std::string texts;
    for (const Sharding& choice : choices) texts += choice.to_string();
    for (const size_t n : readers[index(value)])
      add_edge(from, variable_of_node[n],
               fmt::format("{} of {} to {}", graph.type(value).to_string(), texts, reading(n, value)),
               [&](size_t i, size_t w) {
                 return seconds_to(value, choices[i], demands(graph.nodes()[n], ways(n)[w], value));
               });
    if (!is_output[index(value)]) return;
    const Sharding whole = Sharding::replicated(graph.type(value).shape.size());
    for (size_t i = 0; i < choices.size(); ++i)
      network.costs[static_cast<size_t>(from)][i] += moving.seconds(graph.type(value), choices[i], whole);
  }

  void add_constant(ValueId value) {
    const std::vector<size_t>& of = readers[index(value)];
    const auto pin = pinned.find(value);
    if (pin == pinned.end() && of.size() == 1 && !is_output[index(value)]) {
      // It lies as its reader wants it; whole where that wants it in two ways.
      const auto v = static_cast<size_t>(variable_of_node[of[0]]);
      for (size_t w = 0; w < ways(of[0]).size(); ++w)
        network.memory[v][w] += static_cast<double>(local_bytes(graph.type(value), lies(value, of[0], w), mesh));
      return;
    }
    const std::vector<Sharding> choices = pin == pinned.end() ? wanted(value) : std::vector{pin->second};
    const int variable = add_sharding(choices);
    for (size_t i = 0; i < choices.size(); ++i)
      network.memory[static_cast<size_t>(variable)][i] =
          static_cast<double>(local_bytes(graph.type(value), choices[i], mesh));
    variable_of_value[value] = variable;
    add_readers(value, variable, choices);
  }

  Sharding lies(ValueId value, size_t reader, size_t way) const {
    const std::vector<Sharding> wanted = demands(graph.nodes()[reader], ways(reader)[way], value);
    return wanted.size() == 1 ? wanted[0] : Sharding::replicated(graph.type(value).shape.size());
  }

  void add_value(ValueId value) {
    const Node* producer = graph.producer(value);
    if (producer && is_constant(*producer)) return add_constant(value);
    const std::vector<size_t>& of = readers[index(value)];
    if (!producer) {
      const auto pin = pinned.find(value);
      if (pin == pinned.end() && !is_output[index(value)]) return;  // whole: every part of it is there
      const Sharding here = pin == pinned.end() ? Sharding::replicated(graph.type(value).shape.size()) : pin->second;
      const std::vector<Sharding> choices = wanted(value);
      const int variable = add_sharding(choices);
      for (size_t i = 0; i < choices.size(); ++i)
        network.costs[static_cast<size_t>(variable)][i] += moving.seconds(graph.type(value), here, choices[i]);
      variable_of_value[value] = variable;
      add_readers(value, variable, choices);
      return;
    }
    const auto n = static_cast<size_t>(producer - graph.nodes().data());
    const auto result = static_cast<size_t>(std::find(producer->outputs.begin(), producer->outputs.end(), value) -
                                            producer->outputs.begin());
    const auto made = [&](size_t w) -> const Sharding& { return ways(n)[w].plan.results[result]; };
    if (of.size() + (is_output[index(value)] ? 1 : 0) == 1) {
      if (of.empty()) {
        const Sharding whole = Sharding::replicated(graph.type(value).shape.size());
        for (size_t w = 0; w < ways(n).size(); ++w)
          network.costs[static_cast<size_t>(variable_of_node[n])][w] +=
              moving.seconds(graph.type(value), made(w), whole);
      } else {
        add_edge(variable_of_node[n], variable_of_node[of[0]],
                 fmt::format("{}.{} to {}", kinds[n]->number, result, reading(of[0], value)), [&](size_t a, size_t b) {
                   return seconds_to(value, made(a), demands(graph.nodes()[of[0]], ways(of[0])[b], value));
                 });
      }
      return;
    }
    if (of.empty()) return;
    const std::vector<Sharding> choices = wanted(value);
    const int variable = add_sharding(choices);
    variable_of_value[value] = variable;
    add_edge(variable_of_node[n], variable, fmt::format("{}.{} for {}", kinds[n]->number, result, readings(value)),
             [&](size_t w, size_t i) { return moving.seconds(graph.type(value), made(w), choices[i]); });
    add_readers(value, variable, choices);
  }

  ShardingPlan plan_of(const std::vector<size_t>& choices) const {
    ShardingPlan plan;
    plan.mesh = mesh;
    plan.speed = speed;
    for (const Value& value : graph.values()) plan.values.push_back(Sharding::replicated(value.type.shape.size()));
    plan.forms.resize(graph.values().size());
    for (const auto& [value, sharding] : pinned) plan.values[index(value)] = sharding;
    for (const auto& [value, variable] : variable_of_value) {
      const auto v = static_cast<size_t>(variable);
      const Sharding& chosen = shardings_of_variable[v][choices[v]];
      const Node* producer = graph.producer(value);
      if (producer && is_constant(*producer)) plan.values[index(value)] = chosen;
      else plan.forms[index(value)] = chosen;
    }
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      const Node& node = graph.nodes()[n];
      if (is_constant(node)) {
        const ValueId value = node.outputs[0];
        const std::vector<size_t>& of = readers[index(value)];
        if (!variable_of_value.contains(value) && of.size() == 1)
          plan.values[index(value)] = lies(value, of[0], choices[static_cast<size_t>(variable_of_node[of[0]])]);
        plan.nodes.push_back({{}, {plan.values[index(value)]}});
        continue;
      }
      plan.nodes.push_back(ways(n)[choices[static_cast<size_t>(variable_of_node[n])]].plan);
      for (size_t o = 0; o < node.outputs.size(); ++o)
        plan.values[index(node.outputs[o])] = plan.nodes.back().results[o];
    }
    return plan;
  }

  const Graph& graph;
  const Mesh mesh;
  const RankSpeed speed;
  const std::map<ValueId, Sharding> pinned;
  Moving moving;
  CostNetwork network;
  std::vector<std::vector<size_t>> readers;  // nodes, by value
  std::vector<bool> is_output;               // by value
  struct Kind {
    int number = 0;
    std::vector<Way> ways;
  };
  const std::vector<Way>& ways(size_t node) const { return kinds[node]->ways; }
  std::map<std::string, Kind> of_key;
  std::map<std::string, std::vector<double>> of_edge;
  std::vector<const Kind*> kinds;            // by node; null of constants
  std::vector<int> variable_of_node;         // -1: it has none
  std::map<ValueId, int> variable_of_value;  // whose form is chosen
  std::vector<std::vector<Sharding>> shardings_of_variable;
  std::map<std::pair<size_t, size_t>, std::vector<double>> edges;
};

PlanNetwork::PlanNetwork(const Graph& graph, const Mesh& mesh, const Pins& pins, const RankSpeed& speed)
    : state_(std::make_unique<State>(graph, mesh, pins, speed)) {}
PlanNetwork::~PlanNetwork() = default;

const CostNetwork& PlanNetwork::network() const { return state_->network; }
ShardingPlan PlanNetwork::plan_of(const std::vector<size_t>& choices) const { return state_->plan_of(choices); }

CheapestPlan cheapest_plan(const Graph& graph, const Mesh& mesh, const Pins& pins, const RankSpeed& speed,
                           int64_t most_bytes, NetworkLimits limits) {
  check(graph.states.empty() && graph.checks.empty() && graph.symbols.empty(),
        "sharding of a graph with states or symbols");
  const PlanNetwork network(graph, mesh, pins, speed);
  if (most_bytes > 0) limits.most_memory = static_cast<double>(most_bytes);
  const std::optional<NetworkChoice> chosen = cheapest_choice(network.network(), limits);
  if (!chosen) {
    double least = 0;
    for (const std::vector<double>& memory : network.network().memory)
      least += *std::min_element(memory.begin(), memory.end());
    throw UserError(
        {.id = "TSR-2112",
         .message = fmt::format("constants do not fit into {} bytes on each of {} ranks", most_bytes, mesh.ranks()),
         .node = {},
         .legal = fmt::format("{:.0f} bytes or more, or more ranks", least),
         .hint = {}});
  }
  CheapestPlan result;
  result.plan = network.plan_of(chosen->choices);
  result.seconds = chosen->cost;
  result.bound = chosen->bound;
  result.constant_bytes = static_cast<int64_t>(chosen->memory);
  result.branches = chosen->branches;
  return result;
}

std::vector<double> node_seconds(const Graph& graph, const ShardingPlan& plan) {
  const NodeChoices choices(graph, plan.mesh, plan.speed);
  std::vector<double> seconds(graph.nodes().size(), 0);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (is_constant(node)) continue;
    const std::optional<NodeFactors> factors = factors_of(graph, node);
    if (!factors) continue;
    double sharers = 1;
    const NodePlan& own = plan.nodes[n];
    for (const MeshAxis& axis : plan.mesh.axes) {
      const bool cuts_result = own.results[0].dim_of(axis.name) >= 0;
      const bool cuts_operand = std::any_of(own.operands.begin(), own.operands.end(),
                                            [&](const Sharding& s) { return s.dim_of(axis.name) >= 0; });
      if (cuts_result || cuts_operand) sharers *= static_cast<double>(axis.extent);
    }
    seconds[n] = choices.working(node, *factors, own, sharers);
  }
  return seconds;
}

double plan_seconds(const Graph& graph, const ShardingPlan& plan) {
  const NodeChoices choices(graph, plan.mesh, plan.speed);
  double sum = 0;
  for (const double seconds : node_seconds(graph, plan)) sum += seconds;
  for (const PlannedMove& move : planned_collectives(graph, plan)) sum += choices.sending(move.bytes);
  return sum;
}

}  // namespace tessera::inline dist
