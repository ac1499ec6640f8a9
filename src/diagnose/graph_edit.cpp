#include "diagnose/graph_edit.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>

#include "arith/simplify.h"
#include "graph/bind_symbols.h"
#include "graph/data_sizes.h"
#include "graph/hash.h"
#include "graph/op_def.h"
#include "graph/subgraph.h"
#include "graph/verify.h"
#include "support/error.h"

namespace tessera::inline diagnose {

namespace {

using Kind = OpKind;

bool is_constant(const Node& node) { return node.op->kind == Kind::kConstant; }

// The candidate, if it verifies and is another graph. Edits are made without asking whether operators take what is left
// of their operands: what they throw says that they do not.
std::optional<EditableGraph> changed(const Graph& before, const std::function<std::optional<Graph>()>& edit) {
  try {
    const KnownSymbols known(before.symbols);
    std::optional<Graph> after = edit();
    if (!after || !verify(*after).empty()) return std::nullopt;
    const bool same_size = after->nodes().size() == before.nodes().size() &&
                           after->inputs.size() == before.inputs.size() && after->states.size() == before.states.size();
    if (same_size && structural_hash(*after) == structural_hash(before)) return std::nullopt;
    return EditableGraph(std::move(*after));
  } catch (const UserError&) {
    return std::nullopt;  // operands that no longer fit their operator
  } catch (const InternalError&) {
    return std::nullopt;
  }
}

// Of the sizes that data decide, those that an input of the part has or that no node of it binds any more.
std::vector<SymbolRange> unbound_sizes(const Graph& graph, const Subgraph& part) {
  if (!has_data_symbols(graph)) return {};
  SymbolSet of_inputs, mentioned, bound;
  for (const ValueId input : part.inputs) add_symbols(graph.type(input).shape, of_inputs);
  for (const NodeId id : part.nodes) {
    const Node& node = graph.node(id);
    add_symbols(graph, node, mentioned);
    if (node.op->kind == Kind::kBindSize) bound.insert(bound_symbol(node).get());
  }
  std::vector<SymbolRange> unbound;
  for (const SymbolRange& symbol : graph.symbols) {
    const ExprNode* var = symbol.var.get();
    if (symbol.is_data() && (of_inputs.contains(var) || (mentioned.contains(var) && !bound.contains(var))))
      unbound.push_back(symbol);
  }
  return unbound;
}

// What of the nodes is needed for these outputs, for states and for checks, as a graph. States and checks whose values
// the nodes no longer give are dropped. Sizes of which the part no longer sees how data decide them are what they are
// at most.
std::optional<Graph> cut(const Graph& graph, const std::set<NodeId>& nodes, const std::vector<ValueId>& own_outputs) {
  const auto is_given = [&](ValueId id) {
    const NodeId producer = graph.value(id).producer;
    return producer < 0 || is_constant(graph.node(producer)) || nodes.count(producer);
  };
  Subgraph part;
  std::vector<State> states;
  std::vector<ValueId> state_inputs, state_outputs;
  for (size_t i = 0; i < graph.states.size(); ++i) {
    if (!is_given(graph.state_output(i))) continue;
    states.push_back(graph.states[i]);
    state_inputs.push_back(graph.state_input(i));
    state_outputs.push_back(graph.state_output(i));
  }
  for (const ValueId output : own_outputs) {
    const bool is_state = std::find(state_outputs.begin(), state_outputs.end(), output) != state_outputs.end();
    const bool seen = std::find(part.outputs.begin(), part.outputs.end(), output) != part.outputs.end();
    if (!is_state && !seen) part.outputs.push_back(output);
  }
  if (part.outputs.empty() && states.empty()) return std::nullopt;
  part.outputs.insert(part.outputs.end(), state_outputs.begin(), state_outputs.end());
  std::vector<RuntimeCheck> checks;
  for (size_t i = 0; i < graph.checks.size(); ++i) {
    const ValueId output = graph.outputs[graph.first_check() + i];
    if (!is_given(output)) continue;
    checks.push_back(graph.checks[i]);
    part.outputs.push_back(output);
  }

  std::vector<bool> read(graph.values().size(), false);
  for (const ValueId output : part.outputs) read[static_cast<size_t>(output)] = true;
  NeededSizes sizes(graph);
  for (NodeId id = static_cast<NodeId>(graph.nodes().size()); id-- > 0;) {
    const Node& node = graph.node(id);
    const auto is_read = [&](ValueId output) { return read[static_cast<size_t>(output)]; };
    if (!nodes.count(id) || !(sizes.needs(node) || std::any_of(node.outputs.begin(), node.outputs.end(), is_read)))
      continue;
    part.nodes.insert(id);
    for (const ValueId input : node.inputs) read[static_cast<size_t>(input)] = true;
    sizes.keep(node);
  }
  const auto is_state_input = [&](ValueId id) {
    return std::find(state_inputs.begin(), state_inputs.end(), id) != state_inputs.end();
  };
  for (const ValueId input : graph.inputs)
    if (read[static_cast<size_t>(input)] && !is_state_input(input)) part.inputs.push_back(input);
  for (size_t i = 0; i < graph.values().size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (read[i] && !is_given(id)) part.inputs.push_back(id);
  }
  part.inputs.insert(part.inputs.end(), state_inputs.begin(), state_inputs.end());
  std::map<std::string, int64_t> sizes_at_most;
  std::set<NodeId> fewer = nodes;
  for (const SymbolRange& symbol : unbound_sizes(graph, part)) {
    if (!as_int(symbol.bound)) return std::nullopt;
    sizes_at_most[symbol.var->name] = symbol.hi;
    std::erase_if(fewer, [&](NodeId id) {
      return graph.node(id).op->kind == Kind::kBindSize && bound_symbol(graph.node(id)).same_node(symbol.var);
    });
  }
  if (fewer.size() < nodes.size()) return cut(graph, fewer, own_outputs);
  Graph result = bind_symbols(extract(graph, part), sizes_at_most);
  result.states = std::move(states);
  result.checks = std::move(checks);
  return result;
}

std::vector<ValueId> own_outputs(const Graph& graph) {
  return {graph.outputs.begin(), graph.outputs.begin() + static_cast<std::ptrdiff_t>(graph.num_own_outputs())};
}

std::set<NodeId> all_nodes(const Graph& graph) {
  std::set<NodeId> nodes;
  for (NodeId id = 0; id < std::ssize(graph.nodes()); ++id)
    if (!is_constant(graph.node(id))) nodes.insert(id);
  return nodes;
}

std::optional<Graph> trimmed(const Graph& graph) { return cut(graph, all_nodes(graph), own_outputs(graph)); }

// The graph node by node with other types of inputs and other attributes; types are inferred again, regions included.
struct Rebuild {
  std::function<TensorType(TensorType)> input;
  std::function<Attrs(const Node&)> attrs;
  std::function<TensorPtr(const TensorPtr&)> initial;
  std::function<SymbolRange(const SymbolRange&)> data_size = [](const SymbolRange& symbol) { return symbol; };
};

Graph rebuilt(const Graph& source, const Rebuild& edit) {
  Graph result;
  result.copy_header(source);
  for (SymbolRange& symbol : result.symbols)
    if (symbol.is_data()) symbol = edit.data_size(symbol);
  const KnownSymbols known(result.symbols);
  for (State& state : result.states)
    if (state.initial) state.initial = edit.initial(state.initial);
  std::vector<ValueId> map(source.values().size(), -1);
  for (const ValueId input : source.inputs)
    map[static_cast<size_t>(input)] = result.add_input(source.value(input).name, edit.input(source.type(input)));
  GraphBuilder builder(result);
  for (const Node& node : source.nodes()) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(map[static_cast<size_t>(input)]);
    std::vector<GraphPtr> regions;
    for (const GraphPtr& region : node.regions)
      regions.push_back(std::make_shared<const Graph>(rebuilt(*region, edit)));
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) names.push_back(source.value(output).name);
    builder.set_loc(node.loc);
    const std::vector<ValueId> outputs =
        builder.add_multi(*node.op, std::move(inputs), edit.attrs(node), std::move(regions), std::move(names));
    for (size_t i = 0; i < outputs.size(); ++i) map[static_cast<size_t>(node.outputs[i])] = outputs[i];
  }
  for (const ValueId output : source.outputs) result.outputs.push_back(map[static_cast<size_t>(output)]);
  drop_unused_symbols(result);
  return result;
}

// The elements of `tensor` whose index along each axis is below that of `dims`.
Tensor low_corner(const Tensor& tensor, const std::vector<int64_t>& dims) {
  Tensor result(tensor.dtype(), dims);
  std::vector<int64_t> index(dims.size(), 0);
  for (int64_t flat = 0; flat < result.num_elements(); ++flat) {
    int64_t from = 0;
    for (size_t d = 0; d < dims.size(); ++d) from = from * tensor.dims()[d] + index[d];
    if (is_float(tensor.dtype())) result.set_double(flat, tensor.get_double(from));
    else result.set_int(flat, tensor.get_int(from));
    for (size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
  }
  return result;
}

// A constant with `to` for the dimension `from`, and in lists of integers, which may be sizes, for the number.
TensorPtr with_size(const TensorPtr& tensor, int64_t from, int64_t to) {
  std::vector<int64_t> dims = tensor->dims();
  const bool has_dim = std::count(dims.begin(), dims.end(), from) > 0;
  const bool is_list = tensor->dtype() == DType::kI64 && dims.size() <= 1;
  if ((!has_dim && !is_list) || tensor->dtype() == DType::kString) return tensor;
  std::replace(dims.begin(), dims.end(), from, to);
  auto result = std::make_shared<Tensor>(low_corner(*tensor, dims));
  for (int64_t i = 0; is_list && i < result->num_elements(); ++i)
    if (result->get_int(i) == from) result->set_int(i, to);
  return result;
}

bool is_plain(const Tensor& tensor) {
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    if (tensor.get_double(i) != 1) return false;
  return true;
}

// A plainer attribute: variant 0 leaves it out, 1 is false, zero or zeros, 2 is one or ones. Empty where the attribute
// is as plain already or has no such form.
std::optional<Attrs> with_plain_attribute(const Node& node, const std::string& name, int variant) {
  Attrs attrs = node.attrs;
  const Attr& attr = attrs.all().at(name);
  if (variant == 0) {
    attrs.erase(name);
    return attrs;
  }
  const int64_t number = variant - 1;
  if (const auto* value = std::get_if<int64_t>(&attr)) {
    if (*value == number || *value == 0) return std::nullopt;
    attrs.set(name, number);
  } else if (const auto* flag = std::get_if<bool>(&attr)) {
    if (!*flag || variant == 2) return std::nullopt;
    attrs.set(name, false);
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(&attr)) {
    const auto all = [&](int64_t n) { return std::count(list->begin(), list->end(), n) == std::ssize(*list); };
    if (all(number) || all(0)) return std::nullopt;
    attrs.set(name, std::vector<int64_t>(list->size(), number));
  } else {
    return std::nullopt;
  }
  return attrs;
}

// The node's region in the node's place.
Graph opened(const Graph& graph, NodeId id, const Graph& region, size_t first_operand) {
  const Node& open = graph.node(id);
  return GraphRewriter(graph).run([&](GraphRewriter& rewriter, const Node& node,
                                      const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
    if (&node != &open) return {};
    std::vector<ValueId> map(region.values().size(), -1);
    for (size_t i = 0; i < region.inputs.size(); ++i)
      map[static_cast<size_t>(region.inputs[i])] = inputs[first_operand + i];
    for (const Node& inner : region.nodes()) {
      Node clone = inner;
      for (ValueId& input : clone.inputs) input = map[static_cast<size_t>(input)];
      std::vector<TensorType> types;
      std::vector<std::string> names;
      for (const ValueId output : inner.outputs) {
        types.push_back(region.type(output));
        names.push_back(region.value(output).name);
      }
      Graph& target = rewriter.target();
      const auto outputs = target.node(target.add_node(std::move(clone), std::move(types), std::move(names))).outputs;
      for (size_t i = 0; i < outputs.size(); ++i) map[static_cast<size_t>(inner.outputs[i])] = outputs[i];
    }
    std::vector<ValueId> results;
    for (const ValueId output : region.outputs) results.push_back(map[static_cast<size_t>(output)]);
    return results;
  });
}

int64_t count_elements(const Graph& graph) {
  int64_t sum = 0;
  for (const Node& node : graph.nodes()) {
    if (is_constant(node)) sum += node.attrs.get<TensorPtr>("value")->num_elements();
    for (const GraphPtr& region : node.regions) sum += count_elements(*region);
  }
  return sum;
}

}  // namespace

std::vector<NodeId> EditableGraph::ids() const {
  const std::set<NodeId> nodes = all_nodes(graph_);
  return {nodes.begin(), nodes.end()};
}

int EditableGraph::num_nodes() const { return static_cast<int>(ids().size()); }

int EditableGraph::num_details() const { return static_cast<int>(details().size()); }

int64_t EditableGraph::num_elements() const { return count_elements(graph_); }

std::vector<int64_t> EditableGraph::dims() const {
  std::set<int64_t, std::greater<>> found;
  const auto add = [&](const TensorType& type) {
    for (const Expr& dim : type.shape)
      if (const auto number = as_int(dim); number && *number > 1) found.insert(*number);
  };
  for (const ValueId input : graph_.inputs) add(graph_.type(input));
  for (const Node& node : graph_.nodes())
    if (is_constant(node)) add(graph_.type(node.outputs[0]));
  return {found.begin(), found.end()};
}

std::optional<EditableGraph> EditableGraph::with_nodes(const std::set<int>& nodes) const {
  const std::vector<NodeId> ids = this->ids();
  if (nodes.empty() || nodes.size() == ids.size()) return std::nullopt;
  return changed(graph_, [&]() -> std::optional<Graph> {
    std::set<NodeId> kept;
    for (const int node : nodes) kept.insert(ids[static_cast<size_t>(node)]);
    std::vector<bool> read(graph_.values().size(), false);
    for (const NodeId id : kept)
      for (const ValueId input : graph_.node(id).inputs) read[static_cast<size_t>(input)] = true;
    const std::vector<ValueId> old = own_outputs(graph_);
    std::vector<ValueId> outputs;
    for (const ValueId output : old)
      if (graph_.value(output).producer >= 0 && kept.count(graph_.value(output).producer)) outputs.push_back(output);
    for (const NodeId id : kept)
      for (const ValueId output : graph_.node(id).outputs)
        if (!read[static_cast<size_t>(output)] && graph_.node(id).op->kind != Kind::kBindSize)
          outputs.push_back(output);
    return cut(graph_, kept, outputs);
  });
}

std::optional<EditableGraph> EditableGraph::with_output(int output) const {
  if (num_outputs() < 2) return std::nullopt;
  return changed(graph_, [&] { return cut(graph_, all_nodes(graph_), {graph_.outputs[static_cast<size_t>(output)]}); });
}

std::optional<EditableGraph> EditableGraph::without_node(int node, int operand) const {
  const Node& gone = graph_.node(ids()[static_cast<size_t>(node)]);
  if (operand >= std::ssize(gone.inputs) || gone.outputs.size() != 1) return std::nullopt;
  const TensorType& type = graph_.type(gone.outputs[0]);
  const ValueId instead = gone.inputs[static_cast<size_t>(operand)];
  if (!(type == graph_.type(instead))) return std::nullopt;
  return changed(graph_, [&] {
    return trimmed(GraphRewriter(graph_).run(
        [&](GraphRewriter&, const Node& each, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
          if (&each != &gone) return {};
          return {inputs[static_cast<size_t>(operand)]};
        }));
  });
}

std::optional<EditableGraph> EditableGraph::with_dimension(int64_t from, int64_t to) const {
  return changed(graph_, [&]() -> std::optional<Graph> {
    return rebuilt(graph_, {.input =
                                [&](TensorType type) {
                                  for (Expr& dim : type.shape)
                                    if (as_int(dim) == from) dim = Expr(to);
                                  return type;
                                },
                            .attrs =
                                [&](const Node& node) {
                                  Attrs attrs = node.attrs;
                                  for (const auto& [name, attr] : node.attrs.all()) {
                                    if (const auto* number = std::get_if<int64_t>(&attr)) {
                                      if (*number == from) attrs.set(name, to);
                                    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&attr)) {
                                      std::vector<int64_t> numbers = *list;
                                      std::replace(numbers.begin(), numbers.end(), from, to);
                                      attrs.set(name, std::move(numbers));
                                    } else if (const auto* tensor = std::get_if<TensorPtr>(&attr)) {
                                      attrs.set(name, with_size(*tensor, from, to));
                                    }
                                  }
                                  return attrs;
                                },
                            .initial = [&](const TensorPtr& tensor) { return with_size(tensor, from, to); },
                            .data_size =
                                [&](SymbolRange symbol) {
                                  if (as_int(symbol.bound) == from) symbol.bound = Expr(to), symbol.hi = to;
                                  return symbol;
                                }});
  });
}

std::vector<EditableGraph::Detail> EditableGraph::details() const {
  using K = Detail::Kind;
  // Reducing takes the last first: what takes most away stands at the end.
  std::vector<Detail> list;
  for (NodeId id = 0; id < std::ssize(graph_.nodes()); ++id) {
    const Node& node = graph_.node(id);
    if (is_constant(node)) {
      list.push_back({K::kOnes, id, 0, ""});
      continue;
    }
    for (const AttrDef& attr : node.op->attrs) {
      if (!node.attrs.has(attr.name)) continue;
      for (int variant = attr.required ? 1 : 0; variant < 3; ++variant)
        list.push_back({K::kAttribute, id, variant, attr.name});
    }
  }
  if (!graph_.checks.empty()) list.push_back({K::kNoChecks, -1, 0, ""});
  for (int i = 0; i < std::ssize(graph_.states); ++i) list.push_back({K::kState, -1, i, ""});
  for (int i = 0; i < std::ssize(graph_.symbols); ++i) list.push_back({K::kSymbol, -1, i, ""});
  for (NodeId id = 0; id < std::ssize(graph_.nodes()); ++id) {
    const Kind kind = graph_.node(id).op->kind;
    if (kind != Kind::kIf && kind != Kind::kLoop && kind != Kind::kCall) continue;
    for (int region = 0; region < std::ssize(graph_.node(id).regions); ++region) {
      if (kind != Kind::kLoop) list.push_back({K::kOpen, id, region, ""});
      list.push_back({K::kDescend, id, region, ""});
    }
  }
  return list;
}

std::optional<EditableGraph> EditableGraph::with_plain_detail(int number) const {
  using K = Detail::Kind;
  const Detail detail = details()[static_cast<size_t>(number)];
  return changed(graph_, [&]() -> std::optional<Graph> {
    const Node* node = detail.node < 0 ? nullptr : &graph_.node(detail.node);
    switch (detail.kind) {
      case K::kOnes: {
        const TensorPtr& value = node->attrs.get<TensorPtr>("value");
        if (!is_float(value->dtype()) || !value->has_data() || is_plain(*value)) return std::nullopt;
        auto ones = std::make_shared<Tensor>(value->dtype(), value->dims());
        for (int64_t i = 0; i < ones->num_elements(); ++i) ones->set_double(i, 1);
        Graph copy = graph_;
        copy.node(detail.node).attrs.set("value", TensorPtr(ones));
        return copy;
      }
      case K::kAttribute: {
        const std::optional<Attrs> attrs = with_plain_attribute(*node, detail.attribute, detail.number);
        if (!attrs) return std::nullopt;
        return rebuilt(graph_, {.input = [](TensorType type) { return type; },
                                .attrs = [&](const Node& each) { return &each == node ? *attrs : each.attrs; },
                                .initial = [](const TensorPtr& tensor) { return tensor; }});
      }
      case K::kNoChecks: {
        Graph copy = graph_;
        copy.outputs.resize(copy.first_check());
        copy.checks.clear();
        return trimmed(copy);
      }
      case K::kState: {
        // Its places move behind the graph's own.
        Graph copy = graph_;
        const auto move_to = [](std::vector<ValueId>& list, size_t from, size_t to) {
          std::rotate(list.begin() + static_cast<std::ptrdiff_t>(to), list.begin() + static_cast<std::ptrdiff_t>(from),
                      list.begin() + static_cast<std::ptrdiff_t>(from) + 1);
        };
        const auto state = static_cast<size_t>(detail.number);
        move_to(copy.inputs, copy.num_own_inputs() + state, copy.num_own_inputs());
        move_to(copy.outputs, copy.num_own_outputs() + state, copy.num_own_outputs());
        copy.states.erase(copy.states.begin() + detail.number);
        return copy;
      }
      case K::kSymbol: {
        const SymbolRange& symbol = graph_.symbols[static_cast<size_t>(detail.number)];
        if (!symbol.is_data()) return bind_symbols(graph_, {{symbol.var->name, symbol.lo}});
        std::set<NodeId> nodes = all_nodes(graph_);
        std::erase_if(nodes, [&](NodeId id) {
          return graph_.node(id).op->kind == Kind::kBindSize && bound_symbol(graph_.node(id)).same_node(symbol.var);
        });
        return cut(graph_, nodes, own_outputs(graph_));
      }
      case K::kOpen: {
        const size_t first = node->op->kind == Kind::kIf ? 1 : 0;
        return trimmed(opened(graph_, detail.node, *node->regions[static_cast<size_t>(detail.number)], first));
      }
      case K::kDescend: {
        Graph region = *node->regions[static_cast<size_t>(detail.number)];
        region.name = graph_.name;
        region.symbols = graph_.symbols;
        drop_unused_symbols(region);
        return trimmed(region);
      }
    }
    return std::nullopt;
  });
}

std::optional<EditableGraph> EditableGraph::tidied() const {
  return changed(graph_, [&] { return trimmed(graph_); });
}

}  // namespace tessera::inline diagnose
