#include "import/onnx/dynamic/open_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "graph/printer.h"
#include "import/onnx/read/model_file.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;
constexpr size_t kMostOpen = 6;       // dimensions of one node
constexpr int64_t kMostTried = 5000;  // known sizes beyond which a node is tried

struct Operand {
  Binding binding;
  FlowType type;
  std::optional<Tensor> constant;
  std::vector<int32_t> symbols;  // of each dimension; -1 where it is known
};

// The node under names of its own, so that what does the same looks the same.
struct OwnNode {
  std::shared_ptr<onnx::NodeProto> proto;
  FlatNode flat;
  std::vector<Operand> operands;

  bool is_open(size_t operand) const { return !operands[operand].constant; }

  std::vector<AloneOperand> at(const Ints& values) const {
    std::vector<AloneOperand> result;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      AloneOperand alone{fmt::format("x{}", i), operand.constant, operand.type.dtype};
      for (size_t d = 0; d < operand.symbols.size(); ++d) {
        const int32_t symbol = operand.symbols[d];
        alone.dims.push_back(symbol < 0 ? (*operand.type.dims)[d] : values[static_cast<size_t>(symbol)]);
      }
      result.push_back(std::move(alone));
    }
    return result;
  }
};

OwnNode own_node(NodeContext& c) {
  OwnNode own;
  own.proto = std::make_shared<onnx::NodeProto>(*c.node().proto);
  own.proto->clear_name();
  own.proto->clear_doc_string();
  std::map<std::string, std::string> names;
  bool any_open = false;
  for (int i = 0; i < own.proto->input_size(); ++i) {
    std::string& name = *own.proto->mutable_input(i);
    if (name.empty()) continue;
    if (const auto known = names.find(name); known != names.end()) {
      name = known->second;
      continue;
    }
    Operand operand;
    operand.binding = c.binding(i);
    operand.type = c.flow_type(operand.binding);
    if (!operand.type.is_tensor() || operand.type.dtype == DType::kString)
      c.unsupported(fmt::format("input {} (value '{}') is {}", i, name, operand.type.to_string()));
    if (!operand.type.dims)
      c.unsupported(fmt::format("input {} (value '{}') is {}: its rank is known only when the model runs", i, name,
                                operand.type.to_string()));
    if (operand.binding.is_value()) operand.constant = c.constant(operand.binding.value);
    any_open = any_open || !operand.type.is_fixed();
    operand.symbols.assign(operand.type.dims->size(), -1);
    name = names.emplace(name, fmt::format("x{}", own.operands.size())).first->second;
    own.operands.push_back(std::move(operand));
  }
  if (!any_open) c.unsupported("no dimension that only a run knows");
  for (int i = 0; i < own.proto->output_size(); ++i)
    if (!own.proto->output(i).empty()) own.proto->set_output(i, fmt::format("y{}", i));
  own.flat = {own.proto.get(), c.label(), c.node().opsets};
  return own;
}

// Every way to call some of `count` things equal: the number of the group of each; more groups first.
std::vector<std::vector<int32_t>> groupings(size_t count) {
  std::vector<std::vector<int32_t>> all{{}};
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::vector<int32_t>> longer;
    for (const auto& groups : all) {
      const int32_t next = groups.empty() ? 0 : *std::max_element(groups.begin(), groups.end()) + 1;
      for (int32_t group = 0; group <= next; ++group) {
        longer.push_back(groups);
        longer.back().push_back(group);
      }
    }
    all = std::move(longer);
  }
  const auto number = [](const auto& groups) {
    return groups.empty() ? 0 : *std::max_element(groups.begin(), groups.end());
  };
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return number(a) > number(b); });
  return all;
}

// The next prime: what is done in blocks leaves a rest for the largest size, too, as for others.
int64_t prime_from(int64_t n) {
  const auto is_prime = [](int64_t p) {
    for (int64_t d = 2; d * d <= p; ++d)
      if (p % d == 0) return false;
    return p > 1;
  };
  while (!is_prime(n)) ++n;
  return n;
}

// Sizes that have nothing in common: primes from `from` on, of which `b` takes the last, in the other order.
struct TrialSizes {
  explicit TrialSizes(int64_t from) {
    for (int64_t prime = from; primes.size() < 2 * kMostOpen; ++prime) primes.push_back(prime = prime_from(prime));
  }
  Ints a(size_t count) const { return {primes.begin(), primes.begin() + static_cast<ptrdiff_t>(count)}; }
  Ints b(size_t count) const { return {primes.rbegin(), primes.rbegin() + static_cast<ptrdiff_t>(count)}; }
  Ints primes;
};

// What is known of a node for one grouping of its open dimensions.
struct Trial {
  std::vector<SymbolRange> symbols;
  AloneNode a, b;
  std::vector<FlowType> most;  // of the slots, with the largest sizes
};

bool same_operators(const Graph& a, const Graph& b) {
  return std::equal(a.nodes().begin(), a.nodes().end(), b.nodes().begin(), b.nodes().end(),
                    [](const Node& x, const Node& y) { return x.op == y.op; });
}

// Whether they are the same but for sizes. For some sizes (none) pieces may do without operands that they need for
// others, and with other operators.
bool alike(const AloneNode& a, const AloneNode& b, bool same_pieces) {
  if (a.block.steps.size() != b.block.steps.size() || a.outputs != b.outputs ||
      a.parts.slots.size() != b.parts.slots.size() || a.parts.pieces.size() != b.parts.pieces.size())
    return false;
  for (size_t i = 0; i < a.block.steps.size(); ++i) {
    const FlowStep &x = a.block.steps[i], &y = b.block.steps[i];
    if (x.op != y.op || x.outputs != y.outputs || x.ints != y.ints || x.piece != y.piece || !x.blocks.empty() ||
        !y.blocks.empty())
      return false;
    if ((x.piece < 0 || same_pieces) && x.inputs != y.inputs) return false;
    if (x.piece >= 0 && same_pieces &&
        !same_operators(a.parts.pieces[static_cast<size_t>(x.piece)], b.parts.pieces[static_cast<size_t>(x.piece)]))
      return false;
  }
  for (size_t i = 0; i < a.parts.slots.size(); ++i) {
    const FlowType &x = a.parts.slots[i], &y = b.parts.slots[i];
    if (!x.is_tensor() || !y.is_tensor() || x.dtype != y.dtype || x.dims.has_value() != y.dims.has_value() ||
        (x.dims && x.dims->size() != y.dims->size()))
      return false;
  }
  return true;
}

// The piece with an input for each of the slots `wanted`; it has one for each of `own`, which are some of those.
Graph with_inputs(Graph piece, const std::vector<SlotId>& own, const std::vector<SlotId>& wanted,
                  const std::vector<FlowType>& types) {
  if (own == wanted) return piece;
  Graph result;
  result.name = piece.name;
  std::map<ValueId, ValueId> map;
  for (const SlotId slot : wanted) {
    const auto at = std::find(own.begin(), own.end(), slot);
    const FlowType& type = types[static_cast<size_t>(slot)];
    const std::string name = at == own.end() ? fmt::format("unused{}", slot)
                                             : piece.value(piece.inputs[static_cast<size_t>(at - own.begin())]).name;
    const ValueId input = result.add_input(name, {type.dtype, make_shape(*type.dims), {}});
    if (at != own.end()) map[piece.inputs[static_cast<size_t>(at - own.begin())]] = input;
  }
  for (const Node& node : piece.nodes()) {
    Node copy = node;
    for (ValueId& input : copy.inputs) input = map.at(input);
    std::vector<TensorType> output_types;
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) {
      output_types.push_back(piece.type(output));
      names.push_back(piece.value(output).name);
    }
    const auto made = result.node(result.add_node(std::move(copy), std::move(output_types), std::move(names))).outputs;
    for (size_t i = 0; i < made.size(); ++i) map[node.outputs[i]] = made[i];
  }
  for (const ValueId output : piece.outputs) result.outputs.push_back(map.at(output));
  result.checks = piece.checks;
  return result;
}

class OpenImport {
 public:
  OpenImport(NodeContext& c, Evaluator& evaluator, const ImportAlone& alone)
      : c_(c), evaluator_(evaluator), alone_(alone), own_(own_node(c)) {
    for (size_t i = 0; i < own_.operands.size(); ++i)
      for (size_t d = 0; d < own_.operands[i].type.dims->size(); ++d)
        if ((*own_.operands[i].type.dims)[d] < 0) open_.emplace_back(i, d);
    if (open_.size() > kMostOpen) c.unsupported(fmt::format("{} dimensions that only a run knows", open_.size()));
  }

  // What decides which pieces the node becomes.
  std::string key() const {
    std::string text = own_.proto->SerializeAsString() + fmt::format("|{}", c_.version());
    for (const Operand& operand : own_.operands) {
      text += "|" + operand.type.to_string();
      for (size_t d = 0; d < operand.type.dims->size(); ++d) text += fmt::format(",{}", operand.type.most_of(d));
      if (operand.constant) text += fmt::format("={:x}", operand.constant->content_hash());
    }
    return text;
  }

  std::shared_ptr<const OpenNode> make() {
    UnsupportedNode refused, ignored;
    auto made = make_with_all_open(refused);
    // Operands of known sizes may need others to be as large, or larger.
    if (const int64_t largest = largest_known(); !made && largest >= sizes_.primes[0] && largest <= kMostTried) {
      sizes_ = TrialSizes(largest + 1);
      made = make_with_all_open(ignored);
    }
    const auto operands = own_.operands;
    const auto open = open_;
    const auto make_fixed = [&](const std::map<size_t, int64_t>& fixed) {
      own_.operands = operands, open_ = open;
      fix(fixed);
      made = make_with_all_open(ignored);
    };
    // As few sizes as can be are given: each is one that a run's operands must have.
    std::vector<std::map<size_t, int64_t>> choices;
    if (!made) {
      choices = as_in_others();
      const auto anywhere = as_anywhere();
      choices.insert(choices.end(), anywhere.begin(), anywhere.end());
      std::stable_sort(choices.begin(), choices.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
    }
    for (size_t i = 0; i < choices.size() && !made; ++i) make_fixed(choices[i]);
    if (!made) throw refused_form(Refusal::kOpenDimensions, refused.reason, refused.cause);
    return made;
  }

  const std::vector<Operand>& operands() const { return own_.operands; }

 private:
  std::shared_ptr<const OpenNode> make_with_all_open(UnsupportedNode& refused) {
    for (const std::vector<int32_t>& groups : groupings(open_.size())) {
      const size_t count =
          groups.empty() ? 0 : static_cast<size_t>(*std::max_element(groups.begin(), groups.end())) + 1;
      for (size_t i = 0; i < open_.size(); ++i) own_.operands[open_[i].first].symbols[open_[i].second] = groups[i];
      std::optional<AloneNode> a = import_at(sizes_.a(count), refused), b;
      if (a) b = import_at(sizes_.b(count), refused);
      if (!a || !b) continue;
      if (!alike(*a, *b, true)) {
        refused = {"it does something else for other sizes"};
        continue;
      }
      std::vector<SymbolRange> symbols = ranges(count, *a);
      return finish({std::move(symbols), std::move(*a), std::move(*b), {}});
    }
    return nullptr;
  }

  int64_t largest_known() const {
    int64_t largest = 0;
    for (const Operand& operand : own_.operands)
      for (const int64_t dim : *operand.type.dims) largest = std::max(largest, dim);
    return largest;
  }

  // By their number, some of the open dimensions of which another operand of that rank has a known one, with that.
  std::vector<std::map<size_t, int64_t>> as_in_others() const {
    constexpr size_t kMostChosenFrom = 6;
    std::map<size_t, int64_t> fixed;
    for (size_t i = 0; i < open_.size(); ++i) {
      const auto& [operand, d] = open_[i];
      const size_t rank = own_.operands[operand].symbols.size();
      for (const Operand& other : own_.operands)
        if (other.symbols.size() == rank && (*other.type.dims)[d] >= 0 && !fixed.contains(i))
          fixed.emplace(i, (*other.type.dims)[d]);
    }
    if (fixed.empty()) return {};
    if (fixed.size() > kMostChosenFrom) return {fixed};
    std::vector<std::map<size_t, int64_t>> all;
    for (size_t mask = 1; mask < size_t{1} << fixed.size(); ++mask) {
      all.emplace_back();
      size_t bit = 0;
      for (const auto& entry : fixed)
        if (mask >> bit++ & 1) all.back().insert(entry);
    }
    return all;
  }

  // Some open dimensions with sizes that operands have anywhere, or that lengths add up to; few dimensions first, and 1
  // last, which broadcasts.
  std::vector<std::map<size_t, int64_t>> as_anywhere() const {
    constexpr size_t kMostFixed = 3, kMostTrials = 100;
    if (open_.size() > kMostFixed) return {};
    std::set<int64_t, std::greater<>> sizes;
    for (const Operand& operand : own_.operands)
      for (const int64_t dim : *operand.type.dims)
        if (dim > 0) sizes.insert(dim);
    for (const Operand& operand : own_.operands) {
      if (!operand.constant || operand.constant->dtype() != DType::kI64 || operand.symbols.size() != 1) continue;
      int64_t sum = 0;
      for (const int64_t length : operand.constant->as<int64_t>())
        sum = sum < 0 || length < 0 || length > kFlowMost ? -1 : sum + length;
      if (sum > 0 && sum <= kFlowMost) sizes.insert(sum);
    }
    std::vector<std::map<size_t, int64_t>> all{{}};
    for (size_t begin = 0, number = 0; number < open_.size(); ++number) {
      const size_t end = all.size();
      for (size_t i = begin; i < end; ++i)
        for (size_t d = all[i].empty() ? 0 : all[i].rbegin()->first + 1; d < open_.size(); ++d)
          for (const int64_t size : sizes) {
            all.push_back(all[i]);
            all.back().emplace(d, size);
          }
      begin = end;
      if (all.size() > kMostTrials) all.resize(kMostTrials);
    }
    all.erase(all.begin());
    return all;
  }

  void fix(const std::map<size_t, int64_t>& fixed) {
    std::vector<std::pair<size_t, size_t>> rest;
    for (size_t i = 0; i < open_.size(); ++i) {
      const auto& [operand, d] = open_[i];
      if (!fixed.contains(i)) {
        rest.push_back(open_[i]);
        continue;
      }
      own_.operands[operand].symbols[d] = -1;
      (*own_.operands[operand].type.dims)[d] = fixed.at(i);
    }
    open_ = std::move(rest);
  }

  std::optional<AloneNode> import_at(const Ints& values, UnsupportedNode& refused) {
    AloneOutcome outcome = alone_(own_.flat, own_.at(values), evaluator_);
    if (auto* node = std::get_if<AloneNode>(&outcome)) return std::move(*node);
    refused = std::get<UnsupportedNode>(std::move(outcome));
    return std::nullopt;
  }

  // From 0, or from the least for which the operator has a meaning, to what the operands' dimensions do not exceed.
  std::vector<SymbolRange> ranges(size_t count, const AloneNode& a) {
    constexpr int64_t kShortest = 2000;  // few sizes tell no formula
    std::vector<SymbolRange> symbols;
    UnsupportedNode ignored;
    const auto means_something = [&](const Ints& values) {
      const auto node = import_at(values, ignored);
      return node && alike(a, *node, false);
    };
    const bool none = means_something(Ints(count, 0));
    for (size_t s = 0; s < count; ++s) {
      Ints values = sizes_.a(count);
      values[s] = 0;
      int64_t lo = none && means_something(values) ? 0 : 1;
      // As indices that are longer than what they pick from.
      for (int64_t hi = sizes_.a(count)[s]; lo > 0 && lo < hi;) {
        values[s] = lo > 1 ? lo + (hi - lo) / 2 : lo;
        if (import_at(values, ignored)) hi = values[s];
        else lo = values[s] + 1;
      }
      symbols.push_back({make_var(fmt::format("n{}", s)), lo, kFlowMost});
    }
    for (const auto& [operand, dim] : open_) {
      SymbolRange& symbol = symbols[static_cast<size_t>(own_.operands[operand].symbols[dim])];
      symbol.hi = std::min(symbol.hi, own_.operands[operand].type.most_of(dim));
    }
    Ints bounds;  // the sizes that there may be, where that is known
    for (SymbolRange& symbol : symbols) {
      bounds.push_back(symbol.hi < kFlowMost ? symbol.hi : 0);
      symbol.hi = prime_from(std::max(symbol.hi, kShortest));
    }
    shorten(symbols, bounds);
    return symbols;
  }

  // Where the largest sizes together have no meaning, as they have more elements than a tensor can: shorter ranges.
  void shorten(std::vector<SymbolRange>& symbols, const Ints& bounds) {
    constexpr int64_t kLeast = 128;
    UnsupportedNode ignored;
    Ints largest, least;
    for (size_t s = 0; s < symbols.size(); ++s) {
      largest.push_back(symbols[s].hi);
      least.push_back(std::max({kLeast, bounds[s], 2 * symbols[s].lo, sizes_.primes.back()}));
    }
    while (!import_at(largest, ignored)) {
      std::optional<size_t> longest;
      for (size_t s = 0; s < largest.size(); ++s)
        if (largest[s] / 2 >= least[s] && (!longest || largest[s] > largest[*longest])) longest = s;
      if (!longest) return;  // for some other reason
      largest[*longest] = prime_from(largest[*longest] / 2);
    }
    for (size_t s = 0; s < symbols.size(); ++s) symbols[s].hi = largest[s];
  }

  std::shared_ptr<const OpenNode> finish(Trial trial) {
    auto result = std::make_shared<OpenNode>();
    Ints largest;
    for (const SymbolRange& symbol : trial.symbols) largest.push_back(symbol.hi);
    UnsupportedNode ignored;
    const std::optional<AloneNode> most = import_at(largest, ignored);
    const bool bounded = most && alike(trial.a, *most, false);
    for (size_t i = 0; i < trial.a.parts.slots.size(); ++i) {
      FlowType type = trial.a.parts.slots[i];
      const FlowType& other = trial.b.parts.slots[i];
      type.most.clear(), type.numbers.clear(), type.most_numbers.clear();
      for (size_t d = 0; type.dims && d < type.dims->size(); ++d) {
        const int64_t here = (*type.dims)[d], there = (*other.dims)[d];
        type.most.push_back(bounded ? most->parts.slots[i].most_of(d) : kFlowMost);
        if (here != there) (*type.dims)[d] = -1;
      }
      result->slots.push_back(std::move(type));
    }
    result->outputs = trial.a.outputs;
    result->block = trial.a.block;
    FlowParts& parts = c_.state().flow.parts();
    for (const auto& [operand, dim] : open_)
      if (trial.symbols[static_cast<size_t>(own_.operands[operand].symbols[dim])].lo > 0 && result->decides < 0)
        result->decides = slot_of(operand);
    if (result->decides >= 0) result->when_empty = block_of_none(trial, parts);
    for (size_t number = 0; number < result->block.steps.size(); ++number) {
      FlowStep& step = result->block.steps[number];
      if (step.op == FlowOp::kElementwise) c_.unsupported("an elementwise operator in a node of its own");
      if (step.op != FlowOp::kPiece) continue;
      step.piece = add_piece(trial, number, result->slots, parts);
    }
    return result;
  }

  SlotId slot_of(size_t operand) const {
    SlotId slot = 0;
    for (size_t i = 0; i < operand; ++i) slot += own_.operands[i].constant ? 0 : 1;
    return slot;
  }

  // What the node does when all open dimensions are 0; none when it has no meaning then.
  std::optional<FlowBlock> block_of_none(const Trial& trial, FlowParts& parts) {
    UnsupportedNode ignored;
    auto node = import_at(Ints(trial.symbols.size(), 0), ignored);
    if (!node || !alike(trial.a, *node, false)) return std::nullopt;
    for (FlowStep& step : node->block.steps) {
      if (step.piece < 0) continue;
      Graph graph = std::move(node->parts.pieces[static_cast<size_t>(step.piece)]);
      step.piece = static_cast<int32_t>(parts.pieces.size());
      graph.name = fmt::format("piece{}", step.piece);
      parts.pieces.push_back(std::move(graph));
    }
    return std::move(node->block);
  }

  // The number of the symbol that a dimension of a slot is; -1 when it is fixed.
  int32_t symbol_of(const Trial& trial, SlotId slot, size_t d) {
    const auto at = static_cast<size_t>(slot);
    const int64_t here = (*trial.a.parts.slots[at].dims)[d], there = (*trial.b.parts.slots[at].dims)[d];
    if (here == there) return -1;
    const Ints a = sizes_.a(trial.symbols.size()), b = sizes_.b(trial.symbols.size());
    for (size_t s = 0; s < a.size(); ++s)
      if (a[s] == here && b[s] == there) return static_cast<int32_t>(s);
    c_.unsupported("sizes between its steps that are no dimensions of operands");
  }

  int32_t add_piece(const Trial& trial, size_t step_number, const std::vector<FlowType>& slots, FlowParts& parts) {
    const FlowStep& step = trial.a.block.steps[step_number];
    const auto piece = static_cast<size_t>(step.piece);
    OpenPiece open;
    std::vector<int32_t> own_number(trial.symbols.size(), -1);
    std::vector<size_t> seen;  // the symbols to which the piece's inputs give values
    for (const SlotId slot : step.inputs) {
      open.inputs.emplace_back();
      for (size_t d = 0; d < slots[static_cast<size_t>(slot)].dims->size(); ++d) {
        const int32_t symbol = symbol_of(trial, slot, d);
        if (symbol >= 0 && own_number[static_cast<size_t>(symbol)] < 0) {
          own_number[static_cast<size_t>(symbol)] = static_cast<int32_t>(seen.size());
          seen.push_back(static_cast<size_t>(symbol));
        }
        open.inputs.back().push_back(symbol < 0 ? -1 : own_number[static_cast<size_t>(symbol)]);
      }
    }
    // What the others are must not matter.
    Ints mixed = sizes_.a(trial.symbols.size());
    const Ints b = sizes_.b(trial.symbols.size());
    for (const size_t symbol : seen) mixed[symbol] = b[symbol];
    UnsupportedNode ignored;
    const auto other = import_at(mixed, ignored);
    if (!other || !alike(trial.a, *other, true) ||
        print(other->parts.pieces[piece], {.elide_constants = true}) !=
            print(trial.b.parts.pieces[piece], {.elide_constants = true}))
      c_.unsupported("a part that depends on sizes which it does not see");
    const auto number = static_cast<int32_t>(parts.pieces.size());
    Graph graph = trial.a.parts.pieces[piece];
    graph.name = fmt::format("piece{}", number);
    parts.pieces.push_back(std::move(graph));
    if (seen.empty()) return number;
    for (const size_t symbol : seen) open.symbols.push_back(trial.symbols[symbol]);
    open.at = [own = own_, alone = alone_, sizes = sizes_, seen, piece, number = step_number, like = trial.a,
               count = trial.symbols.size()](const Ints& values, Evaluator& evaluator) mutable -> GraphOrRefusal {
      own.flat.proto = own.proto.get();
      Ints all = sizes.a(count);
      for (size_t i = 0; i < seen.size(); ++i) all[seen[i]] = values[i];
      AloneOutcome outcome = alone(own.flat, own.at(all), evaluator);
      if (const auto* refused = std::get_if<UnsupportedNode>(&outcome))
        return SizesRefused{
            {"TSR-5023", refused->reason, own.flat.label, "sizes for which the operator has a meaning", ""}};
      auto& node = std::get<AloneNode>(outcome);
      if (alike(like, node, false))
        return with_inputs(std::move(node.parts.pieces[piece]), node.block.steps[number].inputs,
                           like.block.steps[number].inputs, node.parts.slots);
      return SizesRefused{{"TSR-5023", "it does something else for these sizes", own.flat.label,
                           "operators that do the same for all sizes", ""}};
    };
    parts.open.emplace(number, std::move(open));
    return number;
  }

  NodeContext& c_;
  Evaluator& evaluator_;
  const ImportAlone& alone_;
  OwnNode own_;
  std::vector<std::pair<size_t, size_t>> open_;  // operand and dimension
  TrialSizes sizes_{37};
};

}  // namespace

void import_open(NodeContext& c, Evaluator& evaluator, OpenNodes& known, const ImportAlone& alone) {
  OpenImport import(c, evaluator, alone);
  const std::string key = import.key();
  auto found = known.find(key);
  if (found == known.end()) {
    const std::shared_ptr<const OpenNode> made = import.make();
    // The messages of checks name the node.
    const auto& pieces = c.state().flow.parts().pieces;
    const bool checks = std::any_of(made->block.steps.begin(), made->block.steps.end(), [&](const FlowStep& step) {
      return step.piece >= 0 && !pieces[static_cast<size_t>(step.piece)].checks.empty();
    });
    found = known.emplace(checks ? key + "|" + c.label() : key, made).first;
    if (checks) found->second = made;
  }
  const OpenNode& node = *found->second;
  std::vector<SlotId> slots;
  for (const Operand& operand : import.operands())
    if (!operand.constant) slots.push_back(c.slot(operand.binding));
  for (size_t i = slots.size(); i < node.slots.size(); ++i) slots.push_back(c.new_slot(node.slots[i]));
  const auto placed = [&](FlowBlock block) {
    for (FlowStep& step : block.steps) {
      for (SlotId& slot : step.inputs) slot = slot < 0 ? slot : slots[static_cast<size_t>(slot)];
      for (SlotId& slot : step.outputs) slot = slots[static_cast<size_t>(slot)];
      step.loc = c.step_loc();
    }
    return block;
  };
  if (node.when_empty) {
    const SlotId none = c.new_slot({{}, DType::kBool, DType::kI64, Ints{}});
    c.add_step({FlowOp::kSize, {slots[static_cast<size_t>(node.decides)]}, {none}, {1}, -1, {}, c.step_loc()});
    c.add_step({FlowOp::kIf, {none}, {}, {}, -1, {placed(*node.when_empty), placed(node.block)}, c.step_loc()});
  } else {
    FlowBlock block = placed(node.block);
    for (FlowStep& step : block.steps) c.add_step(std::move(step));
  }
  for (const std::string& name : c.attrs.unread()) c.attrs.ignore(name);  // the import alone has read them
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] < 0) continue;
    const SlotId slot = slots[static_cast<size_t>(node.outputs[i])];
    const FlowType& type = node.slots[static_cast<size_t>(node.outputs[i])];
    c.out(static_cast<int>(i), c.from_slot(slot, type, type.is_fixed()));
  }
}

}  // namespace tessera::inline onnx_import
