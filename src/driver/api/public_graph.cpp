// include/tessera/graph.h over the graph room: GraphBuilder infers, composites come from their definitions.
#include "tessera/graph.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "driver/api/api_support.h"
#include "driver/api/graph_access.h"
#include "driver/graph_reader.h"
#include "graph/data_sizes.h"
#include "graph/hash.h"
#include "graph/op_def.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/tensor_text.h"
#include "graph/verify.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "support/nearest_names.h"
#include "support/text_reader.h"

namespace tessera::builder {

namespace {

[[noreturn]] void fail(const char* id, std::string message, std::string node, std::string legal,
                       std::string hint = "") {
  throw UserError({id, std::move(message), std::move(node), std::move(legal), std::move(hint)});
}

const tessera::Value& ir_value(const std::shared_ptr<GraphState>& state, ValueId id) { return state->graph.value(id); }

// What operators() does not list: constants and sizes that data decide have functions of their own, and the others
// stand for regions.
bool is_listed(const OpDef& op) {
  const bool has_regions = op.kind == OpKind::kComposite || op.kind == OpKind::kGroup || op.kind == OpKind::kIf ||
                           op.kind == OpKind::kLoop || op.kind == OpKind::kCall;
  return !has_regions && op.kind != OpKind::kConstant && op.kind != OpKind::kBindSize && op.name != "relayout";
}

const char* kind_name(AttrKind kind) {
  static constexpr const char* kNames[] = {"bool",   "int",   "float",  "string", "ints",
                                           "floats", "dtype", "layout", "tensor", "sizes"};
  static_assert(std::size(kNames) == static_cast<size_t>(AttrKind::kSizes) + 1);
  return kNames[static_cast<size_t>(kind)];
}

std::vector<OperatorAttribute> listed_attributes(const std::vector<AttrDef>& attrs) {
  std::vector<OperatorAttribute> result;
  for (const AttrDef& attr : attrs) result.push_back({attr.name, kind_name(attr.kind), attr.required, attr.doc});
  return result;
}

// The attribute as the operator wants it: what `kind` cannot be made of stays as it is, and the operator refuses it.
Attr attribute_as(const Attribute& attribute, const AttrKind* kind, const std::string& name, const std::string& node,
                  const SymbolScope& symbols) {
  const Attribute::Content& content = attribute.content();
  if (const auto* dims = std::get_if<Dims>(&content)) {
    Shape sizes;
    for (const Dim& dim : *dims) {
      TextReader reader(dim.text(), fmt::format("attribute '{}' of {}", name, node));
      sizes.push_back(normalize_size(parse_size(reader, symbols)));
      if (!reader.at_end()) reader.fail_expected("the end of the size");
    }
    if (auto numbers = static_dims(sizes)) return *std::move(numbers);
    return sizes;
  }
  if (kind) {
    if (const auto* number = std::get_if<int64_t>(&content); number && *kind == AttrKind::kFloat)
      return static_cast<double>(*number);
    if (const auto* list = std::get_if<std::vector<int64_t>>(&content); list && *kind == AttrKind::kFloats)
      return std::vector<double>(list->begin(), list->end());
    if (const auto* list = std::get_if<std::vector<double>>(&content);
        list && list->empty() && (*kind == AttrKind::kInts || *kind == AttrKind::kSizes))
      return std::vector<int64_t>();
    if (const auto* text = std::get_if<std::string>(&content)) {
      if (*kind == AttrKind::kDType)
        if (const auto dtype = parse_dtype(*text)) return *dtype;
      if (*kind == AttrKind::kLayout) {
        TextReader reader(*text, fmt::format("attribute '{}' of {}", name, node));
        return parse_layout(reader);
      }
    }
  }
  return std::visit(
      [](const auto& value) -> Attr {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Dims>) return Shape();  // above
        else return value;
      },
      content);
}

Attrs attributes_as(const Attributes& attributes, const std::vector<AttrDef>& defs, const std::string& node,
                    const SymbolScope& symbols) {
  Attrs attrs;
  for (const auto& [name, attribute] : attributes) {
    const auto def =
        std::find_if(defs.begin(), defs.end(), [&name = name](const AttrDef& known) { return known.name == name; });
    attrs.set(name, attribute_as(attribute, def == defs.end() ? nullptr : &def->kind, name, node, symbols));
  }
  return attrs;
}

void require_new_name(const IrGraph& graph, const std::string& name) {
  for (const tessera::Value& value : graph.values())
    if (value.name == name)
      fail("TSR-2061", fmt::format("there is a value '{}' already", name), name, "a name that no other value has",
           "declare inputs and states before operators");
}

void require_new_symbol(const GraphState& state, const std::string& name) {
  TextReader reader(name, fmt::format("symbol '{}'", name));
  if (name.empty() || reader.word("a word") != name || parse_dtype(name))
    fail("TSR-2061", fmt::format("'{}' cannot be the name of a dimension", name), "",
         "letters, digits and '_', not beginning with a digit, and no element type");
  if (state.symbols.count(name))
    fail("TSR-2061", fmt::format("there is a dimension '{}' already", name), "", "one range for each name");
}

std::vector<ValueId> own_inputs(const IrGraph& graph) {
  return {graph.inputs.begin(), graph.inputs.begin() + static_cast<ptrdiff_t>(graph.num_own_inputs())};
}
std::vector<ValueId> own_outputs(const IrGraph& graph) {
  return {graph.outputs.begin(), graph.outputs.begin() + static_cast<ptrdiff_t>(graph.num_own_outputs())};
}

[[noreturn]] void fail_unknown(const std::string& kind, const std::string& node) {
  if (kind == "constant") fail("TSR-2062", "'constant' is made by a function of its own", node, "Graph::constant");
  if (kind == "bind_size") fail("TSR-2062", "'bind_size' is made by a function of its own", node, "Graph::bind_size");
  std::vector<std::string> known;
  for (const Operator& op : operators()) known.push_back(op.name);
  const std::vector<std::string> near = nearest_names(kind, known, 5);
  fail("TSR-2062", fmt::format("there is no operator '{}'", kind), node,
       near.empty() ? "those of operators()" : fmt::format("{}, ...: operators() lists all", fmt::join(near, ", ")));
}

bool has_name(const IrGraph& graph, const std::vector<ValueId>& ids, const std::string& name) {
  return std::any_of(ids.begin(), ids.end(), [&](ValueId id) { return graph.value(id).name == name; });
}

// A graph that may be a region of a node.
void require_body(const IrGraph& body, const std::string& kind, const std::string& node) {
  if (body.outputs.empty())
    fail("TSR-2069", fmt::format("the body of '{}' has no outputs", kind), node, "one output or more");
  if (!body.states.empty())
    fail("TSR-2070", fmt::format("the body of '{}' has states", kind), node, "states of the graph itself",
         "pass their values in as operands");
  if (!body.symbols.empty())
    fail("TSR-2005", fmt::format("the body of '{}' declares dimensions of its own", kind), node,
         "a body for the operands' sizes, as numbers");
}

// The operands of a body one by one.
void require_inputs(const IrGraph& body, const std::vector<ValueId>& operands, const IrGraph& graph,
                    const std::string& node) {
  if (body.inputs.size() != operands.size())
    fail("TSR-2005", fmt::format("a body of {} inputs", body.inputs.size()), node,
         fmt::format("{}, as many as operands", operands.size()));
  for (size_t i = 0; i < operands.size(); ++i)
    if (!types_agree(body.type(body.inputs[i]), graph.type(operands[i])))
      fail("TSR-2005",
           fmt::format("input '{}' of the body is {}", body.value(body.inputs[i]).name,
                       body.type(body.inputs[i]).to_string()),
           node, fmt::format("{}, as the operand", graph.type(operands[i]).to_string()));
}

// Gives `id` the name; whoever has it gets another.
void take_name(IrGraph& graph, ValueId id, const std::string& name) {
  if (graph.value(id).name == name) return;
  for (size_t i = 0; i < graph.values().size(); ++i)
    if (graph.values()[i].name == name) graph.rename(static_cast<ValueId>(i), graph.unique_name(name));
  graph.rename(id, name);
}

std::string place_of(const IrGraph& graph, const std::string& kind, const std::string& name) {
  return name.empty() ? fmt::format("{}_{}", kind, graph.nodes().size()) : name;
}

ValueId add_constant(const std::shared_ptr<GraphState>& state, Tensor tensor, const std::string& name) {
  GraphBuilder b(state->graph);
  b.set_loc(place_of(state->graph, "constant", name));
  return b.add(standard_ops().get("constant"), {}, {{"value", TensorPtr(std::make_shared<Tensor>(std::move(tensor)))}},
               name);
}

// TSR-2064, or the type of the tensor.
DType checked_dtype(const tessera_tensor& tensor, const std::string& name) {
  const std::string known = tessera_dtype_name(tensor.dtype);
  const auto dtype = parse_dtype(known);
  if (!dtype || *dtype == DType::kString)
    fail("TSR-2064", fmt::format("a constant of the type {}", known), name, "a tensor of numbers");
  if (tensor.rank < 0 || tensor.rank > TESSERA_MAX_RANK)
    fail("TSR-2064", fmt::format("a constant of {} dimensions", tensor.rank), name,
         fmt::format("0 to {} dimensions", TESSERA_MAX_RANK));
  const auto bytes = checked_bytes(*dtype, {tensor.dims, tensor.dims + tensor.rank});
  if (!bytes)
    fail("TSR-2064", "a constant with a negative dimension, or of too many elements", name, "sizes in memory");
  if (*bytes > 0 && !tensor.data) fail("TSR-2064", "a constant without data", name, "a pointer to its elements");
  return *dtype;
}

}  // namespace

std::vector<ValueId> ids_of(const std::shared_ptr<GraphState>& state, const Values& operands, const std::string& node) {
  std::vector<ValueId> ids;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (GraphAccess::owner(operands[i]) != state.get())
      fail("TSR-2060", fmt::format("operand {} is a value of another graph", i + 1), node, "values of this graph");
    ids.push_back(GraphAccess::id(operands[i]));
  }
  return ids;
}

Values values_of(const std::shared_ptr<GraphState>& state, const std::vector<ValueId>& ids) {
  Values values;
  for (const ValueId id : ids) values.push_back(GraphAccess::value(state, id));
  return values;
}

Graph GraphAccess::graph(IrGraph graph) {
  const auto state = std::make_shared<GraphState>();
  state->graph = std::move(graph);
  for (const SymbolRange& symbol : state->graph.symbols) state->symbols.emplace(symbol.var->name, symbol.var);
  return GraphAccess::graph(state);
}

const std::string& Value::name() const { return ir_value(state_, id_).name; }

tessera_dtype Value::dtype() const { return static_cast<tessera_dtype>(ir_value(state_, id_).type.dtype); }

Dims Value::dims() const {
  Dims dims;
  for (const Expr& dim : ir_value(state_, id_).type.shape) dims.emplace_back(to_string(dim));
  return dims;
}

std::string Value::type() const { return ir_value(state_, id_).type.to_string(); }

Graph::Graph(const std::string& name) : state_(std::make_shared<GraphState>()) { state_->graph.name = name; }

Graph Graph::from_text(std::string_view text, const std::string& file) {
  return translate_errors([&] { return GraphAccess::graph(read_graph_text(text, file)); });
}

void Graph::symbol(const std::string& name, int64_t lo, int64_t hi, int64_t step) {
  translate_errors([&] {
    require_new_symbol(*state_, name);
    if (lo < 0 || hi < lo || step < 1)
      fail("TSR-2065", fmt::format("the dimension '{}' is in {}..{}:{}", name, lo, hi, step), "",
           "0 <= least <= greatest, and steps of 1 or more");
    const Var var = make_var(name);
    state_->graph.symbols.push_back({var, lo, hi, step});
    state_->symbols.emplace(name, var);
  });
}

Value Graph::bind_size(const std::string& symbol, const Value& count, const Dim& bound, const std::string& name) {
  return translate_errors([&] {
    IrGraph& graph = state_->graph;
    const std::string node = place_of(graph, "bind_size", name);
    require_new_symbol(*state_, symbol);
    const std::vector<ValueId> inputs = ids_of(state_, {count}, node);
    TextReader reader(bound.text(), fmt::format("the bound of '{}'", symbol));
    KnownSymbols known(graph.symbols);
    const Expr most = normalize_size(parse_size(reader, state_->symbols));
    if (!reader.at_end()) reader.fail_expected("the end of the bound");
    if (!size_at_most(0, most))
      fail("TSR-2065", fmt::format("the dimension '{}' is at most {}", symbol, to_string(most)), node, "0 or more");
    const SymbolRange range = data_symbol(symbol, most);
    known.add(range);
    GraphBuilder b(graph);
    b.set_loc(node);
    const ValueId id = b.add(standard_ops().get("bind_size"), inputs, {{"size", Shape{Expr(range.var)}}}, name);
    graph.symbols.push_back(range);
    state_->symbols.emplace(symbol, range.var);
    return GraphAccess::value(state_, id);
  });
}

Value Graph::input(const std::string& name, tessera_dtype dtype, const Dims& dims) {
  std::vector<std::string> texts;
  for (const Dim& dim : dims) texts.push_back(dim.text());
  return input(name, fmt::format("{}[{}]", tessera_dtype_name(dtype), fmt::join(texts, ",")));
}

Value Graph::input(const std::string& name, const std::string& type) {
  return translate_errors([&] {
    if (name.empty()) fail("TSR-2061", "an input without a name", "", "a name that no other value has");
    require_new_name(state_->graph, name);
    TextReader reader(type, fmt::format("the type of input '{}'", name));
    TensorType parsed = parse_type(reader, state_->symbols);
    if (!reader.at_end()) reader.fail_expected("the end of the type");
    if (!parsed.layout.row_major())
      fail("TSR-2068", fmt::format("the input '{}' has a layout", name), name, "row-major inputs");
    IrGraph& graph = state_->graph;
    SymbolSet read;
    add_symbols(parsed.shape, read);
    for (const SymbolRange& symbol : graph.symbols)
      if (symbol.is_data() && read.contains(symbol.var.get()))
        fail("TSR-2036", fmt::format("the input '{}' has the size {}, which data decide", name, symbol.var->name), name,
             "dimensions that Graph::symbol declares");
    const ValueId id = graph.add_input(name, std::move(parsed));
    // The states' inputs stay the last.
    std::rotate(graph.inputs.end() - 1 - std::ssize(graph.states), graph.inputs.end() - 1, graph.inputs.end());
    return GraphAccess::value(state_, id);
  });
}

Value Graph::state(const std::string& name, tessera_dtype dtype, const std::vector<int64_t>& dims,
                   const void* initial) {
  return translate_errors([&] {
    if (name.empty()) fail("TSR-2061", "a state without a name", "", "a name that no other value has");
    IrGraph& graph = state_->graph;
    require_new_name(graph, name);
    tessera_tensor tensor = {};
    tensor.data = const_cast<void*>(initial ? initial : &tensor);
    tensor.dtype = dtype;
    if (dims.size() > TESSERA_MAX_RANK)
      fail("TSR-2064", fmt::format("a state of {} dimensions", dims.size()), name,
           fmt::format("0 to {} dimensions", TESSERA_MAX_RANK));
    tensor.rank = static_cast<int32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), tensor.dims);
    const DType checked = checked_dtype(tensor, name);
    TensorPtr first;
    if (initial) {
      Tensor copy(checked, dims);
      if (copy.num_bytes() > 0) std::memcpy(copy.mutable_bytes(), initial, static_cast<size_t>(copy.num_bytes()));
      first = std::make_shared<const Tensor>(std::move(copy));
    }
    const ValueId id = graph.add_input(name, {checked, make_shape(dims), {}});
    // Behind the graph's own outputs and the other states, before anything is assigned: it stays what it is.
    graph.outputs.push_back(id);
    graph.states.push_back({name, std::move(first)});
    return GraphAccess::value(state_, id);
  });
}

void Graph::assign(const Value& state, const Value& value) {
  translate_errors([&] {
    IrGraph& graph = state_->graph;
    const std::string& name = state.name();
    const std::vector<ValueId> ids = ids_of(state_, {state, value}, name);
    const auto first = graph.inputs.begin() + static_cast<ptrdiff_t>(graph.num_own_inputs());
    const auto at = std::find(first, graph.inputs.end(), ids[0]);
    if (at == graph.inputs.end())
      fail("TSR-2070", fmt::format("'{}' is no state of the graph", name), name, "a value that Graph::state gave");
    ValueId& after = graph.outputs[graph.num_own_outputs() + static_cast<size_t>(at - first)];
    if (after != ids[0])
      fail("TSR-2070", fmt::format("the state '{}' has been given a value already", name), name,
           "one value for each state");
    if (!(graph.type(ids[1]) == graph.type(ids[0])))
      fail("TSR-2071",
           fmt::format("the state '{}' is {} and was given {}", name, graph.type(ids[0]).to_string(),
                       graph.type(ids[1]).to_string()),
           name, "a value of the state's type", "cast or reshape it");
    after = ids[1];
  });
}

Value Graph::constant(const tessera_tensor& tensor, const std::string& name) {
  return translate_errors([&] {
    const DType dtype = checked_dtype(tensor, name);
    Tensor copy(dtype, {tensor.dims, tensor.dims + tensor.rank});
    if (copy.num_bytes() > 0) std::memcpy(copy.mutable_bytes(), tensor.data, static_cast<size_t>(copy.num_bytes()));
    return GraphAccess::value(state_, add_constant(state_, std::move(copy), name));
  });
}

Value Graph::constant(const tessera_tensor& tensor, std::shared_ptr<const void> owner, const std::string& name) {
  return translate_errors([&] {
    const DType dtype = checked_dtype(tensor, name);
    Tensor borrowed(dtype, {tensor.dims, tensor.dims + tensor.rank}, std::move(owner), tensor.data);
    return GraphAccess::value(state_, add_constant(state_, std::move(borrowed), name));
  });
}

Value Graph::constant(const void* elements, size_t count, tessera_dtype dtype, const std::vector<int64_t>& dims,
                      const std::string& name) {
  translate_errors([&] {
    if (dims.size() > TESSERA_MAX_RANK)
      fail("TSR-2064", fmt::format("a constant of {} dimensions", dims.size()), name,
           fmt::format("0 to {} dimensions", TESSERA_MAX_RANK));
    const auto bytes = checked_bytes(static_cast<DType>(dtype), dims);
    if (!bytes || *bytes != dtype_bytes(static_cast<DType>(dtype), static_cast<int64_t>(count)))
      fail("TSR-2064", fmt::format("{} elements for a constant [{}]", count, fmt::join(dims, ",")), name,
           "as many as the dimensions say");
  });
  tessera_tensor tensor = {};
  tensor.data = const_cast<void*>(elements);
  tensor.dtype = dtype;
  tensor.rank = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), tensor.dims);
  return constant(tensor, name);
}

Value Graph::scalar(double value, tessera_dtype dtype, const std::string& name) {
  return translate_errors([&] {
    tessera_tensor tensor = {};
    tensor.data = &tensor;  // read by nobody
    tensor.dtype = dtype;
    Tensor one(checked_dtype(tensor, name), {});
    one.set_double(0, value);
    return GraphAccess::value(state_, add_constant(state_, std::move(one), name));
  });
}

Values Graph::ops(const std::string& kind, const Values& operands, const Attributes& attributes,
                  const std::string& name) {
  return translate_errors([&] {
    IrGraph& graph = state_->graph;
    const std::string node = place_of(graph, kind, name);
    const std::vector<ValueId> inputs = ids_of(state_, operands, node);
    const KnownSymbols known(graph.symbols);
    GraphBuilder b(graph);
    b.set_loc(node);
    std::vector<ValueId> results;
    if (const OpDef* op = standard_ops().find(kind); op && is_listed(*op)) {
      results = b.add_multi(*op, inputs, attributes_as(attributes, op->attrs, node, state_->symbols), {}, {name});
    } else if (const CompositeDef* composite = find_composite(kind)) {
      results = add_composite(b, standard_ops(), kind, inputs,
                              attributes_as(attributes, composite->attrs, node, state_->symbols));
      graph.rename(results[0], graph.unique_name(name.empty() ? kind : name));
    } else {
      fail_unknown(kind, node);
    }
    return values_of(state_, results);
  });
}

Value Graph::op(const std::string& kind, const Values& operands, const Attributes& attributes,
                const std::string& name) {
  const Values results = ops(kind, operands, attributes, name);
  translate_errors([&] {
    if (results.size() != 1)
      fail("TSR-2063", fmt::format("{} has {} results", kind, results.size()), name, "Graph::ops for such operators");
  });
  return results[0];
}

Values Graph::composite(const std::string& kind, const Graph& body, const Values& operands,
                        const Attributes& attributes, const std::string& name) {
  return translate_errors([&] {
    IrGraph& graph = state_->graph;
    const std::string node = place_of(graph, kind, name);
    if (kind.empty() || find_composite(kind) || standard_ops().find(kind))
      fail("TSR-2066", fmt::format("'{}' is an operator of the compiler", kind), node, "a name that no operator has");
    require_body(body.state_->graph, kind, node);
    const std::vector<ValueId> inputs = ids_of(state_, operands, node);
    auto region = std::make_shared<IrGraph>(body.state_->graph);
    region->name = kind;
    Attrs attrs = attributes_as(attributes, {}, node, state_->symbols);
    attrs.set("name", kind);
    const KnownSymbols known(graph.symbols);
    GraphBuilder b(graph);
    b.set_loc(node);
    return values_of(state_, b.add_multi(standard_ops().get("composite"), inputs, std::move(attrs), {region},
                                         {name.empty() ? kind : name}));
  });
}

Values Graph::with_regions(const std::string& kind, const std::vector<const Graph*>& bodies, const Values& operands,
                           const Attributes& attributes, const std::string& name) {
  return translate_errors([&] {
    IrGraph& graph = state_->graph;
    const std::string node = place_of(graph, kind, name);
    std::vector<GraphPtr> regions;
    for (const Graph* body : bodies) {
      require_body(body->state_->graph, kind, node);
      regions.push_back(std::make_shared<const IrGraph>(body->state_->graph));
    }
    const std::vector<ValueId> inputs = ids_of(state_, operands, node);
    const OpDef& op = standard_ops().get(kind);
    const KnownSymbols known(graph.symbols);
    GraphBuilder b(graph);
    b.set_loc(node);
    return values_of(state_, b.add_multi(op, inputs, attributes_as(attributes, op.attrs, node, state_->symbols),
                                         std::move(regions), {name.empty() ? kind : name}));
  });
}

Values Graph::branch(const Value& condition, const Graph& then, const Graph& otherwise, const Values& operands,
                     const std::string& name) {
  Values all = {condition};
  all.insert(all.end(), operands.begin(), operands.end());
  // The operator's own check of the regions' inputs is the verifier's: say it here.
  for (const Graph* body : {&then, &otherwise})
    translate_errors([&] {
      require_inputs(body->state_->graph, ids_of(state_, operands, name), state_->graph,
                     place_of(state_->graph, "if", name));
    });
  return with_regions("if", {&then, &otherwise}, all, {}, name);
}

Values Graph::loop(const Graph& body, const Values& operands, const Attributes& attributes, const std::string& name) {
  return with_regions("loop", {&body}, operands, attributes, name);
}

void Graph::output(const std::string& name, const Value& value) {
  translate_errors([&] {
    IrGraph& graph = state_->graph;
    ValueId id = ids_of(state_, {value}, name)[0];
    if (name.empty() || has_name(graph, graph.outputs, name) || has_name(graph, graph.inputs, name))
      fail("TSR-2061", fmt::format("'{}' cannot be the name of an output", name), name,
           "a name that no input and no other output has");
    const auto is_taken = [&](const std::vector<ValueId>& ids) {
      return std::find(ids.begin(), ids.end(), id) != ids.end();
    };
    // A value has one name: an output that is an input, or another output too, becomes a value of its own.
    if (is_taken(graph.inputs) || is_taken(graph.outputs)) {
      GraphBuilder b(graph);
      b.set_loc(name);
      const TensorType& type = graph.type(id);
      id = type.is_static() ? b.add(standard_ops().get("reshape"), {id}, {{"shape", type.dims()}})
                            : b.add(standard_ops().get("cast"), {id}, {{"to", type.dtype}});
    }
    take_name(graph, id, name);
    graph.outputs.insert(graph.outputs.begin() + static_cast<ptrdiff_t>(graph.num_own_outputs()), id);
  });
}

const std::string& Graph::name() const { return state_->graph.name; }
Values Graph::inputs() const { return values_of(state_, own_inputs(state_->graph)); }
Values Graph::outputs() const { return values_of(state_, own_outputs(state_->graph)); }

std::string Graph::text(bool elide_constants) const {
  return translate_errors([&] { return print(state_->graph, {.elide_constants = elide_constants}); });
}

std::string Graph::hash() const {
  return translate_errors([&] { return fmt::format("{:016x}", structural_hash(state_->graph)); });
}

const std::vector<Operator>& operators() {
  static const std::vector<Operator> list = [] {
    std::vector<Operator> result;
    for (const OpDef* op : standard_ops().all()) {
      if (!is_listed(*op)) continue;
      result.push_back(
          {op->name, op->doc, op->min_inputs, op->max_inputs, listed_attributes(op->attrs), false, op->example});
    }
    for (const CompositeDef* composite : all_composites())
      result.push_back({composite->name, composite->doc, composite->min_operands, composite->max_operands,
                        listed_attributes(composite->attrs), true, composite->example});
    std::sort(result.begin(), result.end(), [](const Operator& a, const Operator& b) { return a.name < b.name; });
    return result;
  }();
  return list;
}

}  // namespace tessera::builder

namespace tessera::inline driver {

ModelReader reader_of(const builder::Graph& graph) {
  const std::shared_ptr<builder::GraphState>& state = builder::GraphAccess::state(graph);
  if (state->graph.num_own_outputs() == 0 && state->graph.states.empty())
    throw UserError({"TSR-2069", "the graph has no outputs", "", "one output or more", "call Graph::output"});
  return reader_of_graph(std::make_shared<const Graph>(state->graph));
}

}  // namespace tessera::inline driver
