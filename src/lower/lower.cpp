#include "lower/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "graph/control_flow.h"
#include "graph/data_sizes.h"
#include "graph/op_def.h"
#include "graph/slices.h"
#include "loop/naive_loops.h"
#include "lower/kernel_lowering.h"
#include "lower/narrow_values.h"
#include "lower/place_tables.h"
#include "program/steps.h"
#include "program/symbolic_sizes.h"
#include "support/error.h"
#include "support/symbolic_shape_error.h"
#include "te/find_weights.h"
#include "types/collective.h"

namespace tessera::inline lower {
namespace {

std::vector<Var> those_seen(const std::unordered_set<const ExprNode*>& seen, const std::vector<SymbolRange>& symbols) {
  std::vector<Var> used;
  for (const SymbolRange& symbol : symbols)
    if (seen.count(symbol.var.get())) used.push_back(symbol.var);
  return used;
}

// Those of the symbols that sizes or the body of the kernel depend on.
std::vector<Var> used_symbols(const TensorProgram& program, const std::vector<SymbolRange>& symbols) {
  std::unordered_set<const ExprNode*> seen;
  const auto look = [&](const Expr& e) {
    walk(e, [&](const Expr& node) {
      seen.insert(node.get());
      if (node->kind == ExprKind::kLoad)
        for (const Expr& extent : node->buffer->shape) seen.insert(extent.get());
    });
  };
  const auto look_at_buffer = [&](const BufferPtr& buffer) {
    std::for_each(buffer->shape.begin(), buffer->shape.end(), look);
  };
  for (const TensorParam& param : program.params) look_at_buffer(param.buffer);
  for (const Stage& stage : program.stages) {
    look_at_buffer(stage.out);
    for (const auto* axes : {&stage.body.axes, &stage.body.reduce_axes})
      for (const Axis& axis : *axes) look(axis.extent);
    look(stage.body.value);
  }
  return those_seen(seen, symbols);
}

// The same of loops.
std::vector<Var> used_symbols(const LoopProgram& program, const std::vector<SymbolRange>& symbols) {
  std::unordered_set<const ExprNode*> seen;
  const auto look = [&](const Expr& e) { seen.insert(e.get()); };
  walk(program.body, nullptr, look);
  for (const BufferPtr& param : program.params)
    for (const Expr& dim : param->shape) walk(dim, look);
  return those_seen(seen, symbols);
}

// What the graphs of one program share: the program, and names that are taken.
struct LoweredProgram {
  Program program;
  std::map<std::string, int> names;
};

// Assigns buffers to the values of one graph, the model's or a region, and collects calls and steps.
class GraphLowering {
 public:
  GraphLowering(const Graph& graph, LoweredProgram& shared, StepBlock& block, std::vector<SymbolRange> indices = {})
      : graph_(graph), shared_(shared), program_(shared.program), block_(block), indices_(std::move(indices)) {}

  // The model's graph: its inputs and outputs are the program's.
  void run() {
    for (const SymbolRange& symbol : graph_.symbols)
      if (symbol.hi == INT64_MAX)
        throw SymbolicShapeError({"TSR-5020", fmt::format("the range of symbol {} has no end", symbol.var->name), "",
                                  "ranges with a largest value, for which memory is planned",
                                  "give a range with --dim"});
    for (const SymbolRange& symbol : graph_.symbols) {
      const auto is_dim = [&](ValueId input) {
        const Shape& shape = graph_.type(input).shape;
        return std::any_of(shape.begin(), shape.end(), [&](const Expr& dim) { return dim.same_node(symbol.var); });
      };
      if (!symbol.is_data() && std::none_of(graph_.inputs.begin(), graph_.inputs.end(), is_dim))
        throw SymbolicShapeError(
            {"TSR-5020", fmt::format("symbol {} is no dimension of an input by itself", symbol.var->name), "",
             "symbols that the inputs of a run give values", "declare an input with such a dimension"});
    }
    program_.name = graph_.name;
    program_.symbols = graph_.symbols;
    std::stable_partition(program_.symbols.begin(), program_.symbols.end(),
                          [](const SymbolRange& symbol) { return !symbol.is_data(); });
    program_.checks = graph_.checks;
    for (size_t i = 0; i < graph_.states.size(); ++i) {
      const TensorType& type = graph_.type(graph_.state_input(i));
      if (type.is_static()) continue;
      throw UserError({"TSR-5025", fmt::format("state {} is {}", graph_.states[i].name, type.to_string()), "",
                       "states of fixed shapes, whose memory a session keeps", "give its dimensions numbers"});
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const BufferId id =
          add_buffer(graph_.value(graph_.inputs[i]).name, BufferKind::kInput, graph_.type(graph_.inputs[i]));
      program_.buffers[static_cast<size_t>(id)].index = static_cast<int32_t>(i);
      program_.inputs.push_back(id);
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      TensorType type = graph_.type(graph_.outputs[i]);
      check(type.layout.row_major(), "graph output with a layout");
      const BufferId id = add_buffer(graph_.value(graph_.outputs[i]).name, BufferKind::kOutput, type);
      program_.buffers[static_cast<size_t>(id)].index = static_cast<int32_t>(i);
      program_.outputs.push_back(id);
      program_.output_names.push_back(graph_.value(graph_.outputs[i]).name);
    }
    for (const State& state : graph_.states) {
      ProgramState& kept = program_.states.emplace_back(ProgramState{state.name});
      if (!state.initial) continue;
      kept.initial = add_buffer(state.name + ".initial", BufferKind::kWeight,
                                graph_.type(graph_.state_input(program_.states.size() - 1)));
      buffer(kept.initial).data = state.initial;
    }
    run(program_.inputs, program_.outputs);
  }

  // `inputs` hold the values of the graph's inputs; those of its outputs are written to `outputs`, which nothing else
  // reads or writes in these steps. An output of which nobody wants a copy is -1.
  void run(const std::vector<BufferId>& inputs, const std::vector<BufferId>& outputs) {
    for (size_t i = 0; i < inputs.size(); ++i) buffer_of_[graph_.inputs[i]] = inputs[i];
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] < 0) continue;
      // The first output whose bytes this storage is writes into it directly; others are copied at the end.
      const ValueId root = storage_value(graph_, graph_.outputs[i]);
      const Node* producer = graph_.producer(root);
      if (producer && producer->op->kind != OpKind::kConstant && !is_slice_view(*producer) && !direct_.count(root) &&
          !may_carry_twice(*producer, root))
        direct_[root] = outputs[i];
      else copies_.push_back({graph_.outputs[i], outputs[i]});
    }
    place_concats();
    for (size_t i = 0; i < graph_.nodes().size(); ++i) lower(graph_.nodes()[i], placed_[i]);
    for (const auto& [value, output] : copies_) copy(value, output);
  }

 private:
  BufferId add_buffer(const std::string& name, BufferKind kind, const TensorType& type) {
    ProgramBuffer buffer;
    buffer.name = unique(name);
    buffer.kind = kind;
    buffer.type = type;
    buffer.bytes = bytes_at(type, program_.symbols, largest_sizes(program_.symbols));
    require_bound(type);
    program_.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(program_.buffers.size() - 1);
  }

  // Memory is laid out for the bounds of what data decide.
  void require_bound(const TensorType& type) const {
    constexpr int64_t kMostBytes = int64_t{1} << 35;
    const Expr bytes = bytes_formula(type);
    if (!uses_data_symbols(bytes, program_.symbols)) return;
    bool bounded = true;
    for (const Expr& dim : type.shape) bounded = bounded && bound_of_size(dim, program_.symbols);
    const Expr most = bounded ? bound_of_size(bytes, program_.symbols) : Expr();
    if (most && value_at(most, program_.symbols, largest_sizes(program_.symbols)) <= kMostBytes) return;
    throw SymbolicShapeError({"TSR-5027",
                              fmt::format("data decide the size of {}, which may need {}", type.to_string(),
                                          most ? "more than 32 GiB" : "any amount of memory"),
                              "", "sizes that something bounds, and memory for these bounds", "give smaller ranges"});
  }

  ProgramBuffer& buffer(BufferId id) { return program_.buffers[static_cast<size_t>(id)]; }

  std::string unique(const std::string& name) {
    int& count = shared_.names[name];
    return count++ ? fmt::format("{}.{}", name, count - 1) : name;
  }

  // A slice that is a view of memory. Constants are stored in the order of whoever reads them: no views of those.
  bool is_slice_view(const Node& node) const {
    if (node.op->name != "slice" || !is_in_place(node)) return false;
    const Node* producer = graph_.producer(storage_value(graph_, node.inputs[0]));
    return !producer || producer->op->kind != OpKind::kConstant;
  }

  // The part of buffer `whole` from byte `begin` on, as a buffer of its own. `begin` may depend on indices of loops.
  BufferId add_view(const std::string& name, const TensorType& type, BufferId whole, Expr begin = 0) {
    for (BufferId of = whole; of >= 0; of = buffer(of).alias_of) {
      begin = begin + (buffer(of).view_offset_formula ? buffer(of).view_offset_formula : Expr(buffer(of).view_offset));
      whole = of;
    }
    if (indices_.empty()) begin = normalize_size(begin);
    const BufferId id = add_buffer(name, buffer(whole).kind, type);
    buffer(id).alias_of = whole;
    check(set_view_offset(buffer(id), begin, program_.symbols, indices_), "a view whose begin has no bounds: " + name);
    return id;
  }

  // Where the kernel that computes `value` writes it.
  BufferId result_buffer(ValueId value) {
    const std::string& name = graph_.value(value).name;
    const TensorType& type = graph_.type(value);
    if (const auto part = part_of_.find(value); part != part_of_.end())
      return add_view(name, type, part->second.first, part->second.second);
    const auto direct = direct_.find(value);
    if (direct == direct_.end()) return add_buffer(name, BufferKind::kArena, type);
    const bool same = program_.buffers[static_cast<size_t>(direct->second)].type == type;
    return same ? direct->second : add_view(name, type, direct->second);
  }

  // In-place concats have their buffers before their operands, the largest first: a concat may be part of another.
  void place_concats() {
    placed_ = place_operands(graph_);
    for (size_t i = placed_.size(); i-- > 0;) {
      if (placed_[i].empty()) continue;
      const ValueId result = graph_.nodes()[i].outputs[0];
      buffer_of_[result] = result_buffer(result);
      for (const PlacedOperand& operand : placed_[i])
        if (operand.storage >= 0) part_of_[operand.storage] = {buffer_of_[result], operand.offset};
    }
  }

  void lower(const Node& node, const std::vector<PlacedOperand>& placed) {
    if (node.op->kind == OpKind::kConstant) {
      const TensorPtr& value = node.attrs.get<TensorPtr>("value");
      const TensorType& type = graph_.type(node.outputs[0]);
      check(type.layout.row_major(), "a constant with a layout");
      const BufferId id = add_buffer(graph_.value(node.outputs[0]).name, BufferKind::kWeight, type);
      program_.buffers[static_cast<size_t>(id)].data = value;
      buffer_of_[node.outputs[0]] = id;
      return;
    }
    if (node.op->kind == OpKind::kView) {
      const BufferId source = buffer_of_.at(node.inputs[0]);
      const TensorType& type = graph_.type(node.outputs[0]);
      check(type.layout.row_major() && graph_.type(node.inputs[0]).layout.row_major(), "a view of a layout");
      buffer_of_[node.outputs[0]] = add_view(graph_.value(node.outputs[0]).name, type, source);
      return;
    }
    if (is_slice_view(node)) {
      const auto begin = contiguous_slice(graph_, node);
      check(begin.has_value(), "an in-place slice that is not contiguous: " + node.loc);
      const ValueId result = node.outputs[0];
      buffer_of_[result] =
          add_view(graph_.value(result).name, graph_.type(result), buffer_of_.at(node.inputs[0]), *begin);
      return;
    }
    if (!placed.empty()) {
      for (size_t i = 0; i < placed.size(); ++i) {
        if (placed[i].storage >= 0) continue;
        const std::string name = graph_.value(node.inputs[i]).name + ".part";
        const BufferId whole = buffer_of_.at(node.outputs[0]);
        copy(node.inputs[i], add_view(name, graph_.type(node.inputs[i]), whole, placed[i].offset));
      }
      return;
    }
    switch (node.op->kind) {
      case OpKind::kIf: return lower_if(node);
      case OpKind::kLoop: return lower_loop(node);
      case OpKind::kCall: return inline_region(*node.regions[0], operand_buffers(node, 0), result_buffers(node));
      case OpKind::kBindSize: return lower_bind_size(node);
      default: break;
    }
    check(node.outputs.size() == 1 || node.op->kind == OpKind::kGroup, "an operator of a kernel has one result");
    if (node.op->kind == OpKind::kProcedure) return lower_procedure(node);
    std::vector<size_t> kept;
    auto definition = std::make_shared<TensorProgram>(lower_node(graph_, node, kept));
    if (!calls_with_.empty()) {
      std::vector<int64_t> calls;
      for (size_t i : kept) {
        const auto found = calls_with_.find(node.inputs[i]);
        calls.push_back(found == calls_with_.end() ? 1 : found->second);
      }
      find_weights(*definition, calls);
    }
    std::vector<BufferId> args;
    for (size_t i : kept) args.push_back(buffer_of_.at(node.inputs[i]));
    for (PlaceTable& table : take_place_tables(*definition)) {
      args.push_back(
          add_buffer(table.program.name, BufferKind::kArena, {table.buffer->dtype, table.buffer->shape, {}}));
      add_call(std::make_shared<TensorProgram>(std::move(table.program)), {args.back()}, node.loc);
    }
    for (const ValueId result : node.outputs) args.push_back(buffer_of_[result] = result_buffer(result));
    add_call(std::move(definition), std::move(args), node.loc);
  }

  // A procedure of ranks of a mesh. Each has a name of its own, so that it is not merged with others.
  static std::optional<Collective> collective_of(const Graph& graph, const Node& node) {
    const std::string mesh = node.attrs.get_or<std::string>("mesh", "");
    const auto kind = find_collective_kind(node.op->name);
    if (mesh.empty() || !kind) return std::nullopt;
    Collective collective{*kind, CollectiveCombiner::kNone, {}, {}, graph.value(node.outputs[0]).name};
    std::replace(collective.name.begin(), collective.name.end(), '\n', ' ');
    if (const auto combiner = find_collective_combiner(node.attrs.get_or<std::string>("kind", "none")))
      collective.combiner = *combiner;
    collective.turn = node.attrs.get_or<int64_t>("turn", 0);
    if (collective.is_message()) {
      collective.peer = node.attrs.get<int64_t>("peer");
      collective.message = node.attrs.get<int64_t>("message");
    }
    collective.shift = node.attrs.get_or<int64_t>("by", 0);
    check(parse_mesh(mesh, collective.mesh).empty() &&
              parse_mesh_axes(node.attrs.get<std::string>("axes"), collective.mesh, collective.axes).empty(),
          "a collective without a mesh: " + node.loc);
    return collective;
  }

  // Its loops are written already: no schedule rule is asked.
  void lower_procedure(const Node& node) {
    Kernel kernel;
    kernel.program = node_loops(graph_, node);
    kernel.program.name = kernel_name(identifier(node.loc.empty() ? node.op->name : node.loc));
    const std::optional<Collective> collective = collective_of(graph_, node);
    kernel.rule = collective ? collective->to_string() : "procedure";
    kernel.loc = node.loc;
    std::vector<BufferId> args;
    for (const ValueId input : node.inputs) args.push_back(buffer_of_.at(input));
    const ValueId result = node.outputs[0];
    buffer_of_[result] = result_buffer(result);
    args.push_back(buffer_of_[result]);
    kernel.program.symbols = used_symbols(kernel.program, program_.symbols);
    kernel.bytes = kernel.program.symbols.empty() ? 0 : -1;
    for (const BufferId arg : args)
      if (kernel.bytes >= 0) kernel.bytes += program_.buffers[static_cast<size_t>(arg)].bytes;
    add_call(std::move(kernel), std::move(args), node.loc);
  }

  std::vector<BufferId> operand_buffers(const Node& node, size_t first) {
    std::vector<BufferId> buffers;
    for (size_t i = first; i < node.inputs.size(); ++i) buffers.push_back(buffer_of_.at(node.inputs[i]));
    return buffers;
  }

  std::vector<BufferId> result_buffers(const Node& node) {
    std::vector<BufferId> buffers;
    for (const ValueId result : node.outputs) {
      const auto [placed, is_new] = buffer_of_.try_emplace(result, -1);
      if (is_new) placed->second = result_buffer(result);
      buffers.push_back(placed->second);
    }
    return buffers;
  }

  void inline_region(const Graph& region, const std::vector<BufferId>& inputs, const std::vector<BufferId>& outputs) {
    GraphLowering(region, shared_, block_, indices_).run(inputs, outputs);
  }

  // What the node gives is the symbol's value, which kernels have anyway.
  void lower_bind_size(const Node& node) {
    ProgramStep bind;
    bind.kind = StepKind::kBind;
    bind.symbol = bound_symbol(node);
    bind.count_buffer = buffer_of_.at(node.inputs[0]);
    bind.loc = node.loc;
    block_.push_back(std::move(bind));
    const ValueId result = node.outputs[0];
    if (is_read(result)) buffer_of_[result] = add_number(result_buffer(result), bound_symbol(node), node.loc);
  }

  void lower_if(const Node& node) {
    const std::vector<BufferId> operands = operand_buffers(node, first_captured(*node.op)),
                                results = result_buffers(node);
    ProgramStep branch;
    branch.kind = StepKind::kBranch;
    branch.condition = buffer_of_.at(node.inputs[0]);
    branch.loc = node.loc;
    branch.blocks.resize(2);
    for (size_t i = 0; i < 2; ++i)
      GraphLowering(*node.regions[i], shared_, branch.blocks[i], indices_).run(operands, results);
    block_.push_back(std::move(branch));
  }

  // Row i of `whole`, of type `type`, where i is the number of the iteration, or from the end.
  BufferId row_view(const std::string& name, const TensorType& type, BufferId whole, const Var& index, const Expr& trip,
                    bool reversed) {
    if (dtype_bits(type.dtype) < 8)
      throw UserError({"TSR-5026", fmt::format("a loop reads or writes slices of type {}", type.to_string()), "",
                       "elements of whole bytes, in compiled code", "insert a cast around the loop"});
    return add_view(name, type, whole,
                    (reversed ? trip - 1 - index : Expr(index)) * normalize_size(bytes_formula(type)));
  }

  // A value that is carried and stacked as well (the hidden state of a recurrent layer): memory of one more row than
  // the stacked result has, where an iteration reads the row that the one before it has written.
  struct StackedState {
    size_t carried = 0, stacked = 0;  // which of each
    BufferId rows = -1;
    Expr row_bytes, trip;
    bool reversed = false;

    // The row that is written last before iteration i; what is there before the first one, and behind the last one.
    Expr row(const Expr& i) const { return (reversed ? trip - i : i) * row_bytes; }
  };

  // Gives those of a loop's results that are such values their places.
  std::vector<StackedState> place_stacked_states(const Node& node, const LoopParts& parts,
                                                 const std::optional<Expr>& trip) {
    std::vector<StackedState> states;
    if (!trip || parts.has_condition || parts.counted) return states;
    const Graph& body = *node.regions[0];
    const auto has_place = [&](ValueId v) { return direct_.count(v) || part_of_.count(v) || buffer_of_.count(v); };
    std::set<size_t> taken;
    for (size_t i = 0; i < parts.carried; ++i)
      for (size_t k = 0; k < parts.stacked; ++k) {
        const ValueId last = node.outputs[i], whole = node.outputs[parts.carried + k];
        const ValueId next = body.outputs[parts.first_carried_result() + i],
                      row = body.outputs[parts.first_stacked_result() + k];
        const TensorType& type = body.type(row);
        if (storage_value(body, next) != storage_value(body, row) || !body.producer(storage_value(body, row)) ||
            !type.layout.row_major() || !graph_.type(last).layout.row_major() || dtype_bits(type.dtype) < 8 ||
            !as_int(bytes_formula(type)) ||
            !is_const_int(bytes_formula(body.type(next)), *as_int(bytes_formula(type))) || has_place(whole) ||
            !taken.insert(k).second)
          continue;
        StackedState state{i, k, -1, bytes_formula(type), *trip, parts.stack_reversed[k] != 0};
        TensorType rows = graph_.type(whole);
        rows.shape[0] = normalize_size(rows.shape[0] + 1);
        const std::string& name = graph_.value(whole).name;
        state.rows = add_buffer(name + ".rows", BufferKind::kArena, rows);
        buffer_of_[whole] = add_view(name, graph_.type(whole), state.rows, state.reversed ? 0 : state.row_bytes);
        if (!has_place(last))
          buffer_of_[last] = add_view(graph_.value(last).name, graph_.type(last), state.rows, state.row(*trip));
        states.push_back(std::move(state));
        break;
      }
    return states;
  }

  // Carried values have a buffer that the block reads, and one that it writes; scanned operands and stacked results are
  // views that move with the index, and so are carried values that are stacked.
  void lower_loop(const Node& node) {
    const LoopParts parts = loop_parts(node);
    const Graph& body = *node.regions[0];
    std::optional<Expr> trip = parts.max_trip;
    if (parts.scanned > 0) trip = graph_.type(node.inputs[parts.first_scanned()]).shape[0];
    int64_t most = std::numeric_limits<int64_t>::max();
    if (trip) most = value_at(*trip, program_.symbols, largest_sizes(program_.symbols));

    // Steps before the loop.
    const std::vector<StackedState> states = place_stacked_states(node, parts, trip);
    const auto state_of = [&](size_t carried) {
      return std::find_if(states.begin(), states.end(), [&](const StackedState& s) { return s.carried == carried; });
    };
    const std::vector<BufferId> results = result_buffers(node);
    std::vector<BufferId> first = results;  // of carried values, where the first iteration finds them
    for (const StackedState& state : states)
      first[state.carried] = add_view(graph_.value(node.outputs[state.carried]).name + ".first",
                                      graph_.type(node.outputs[state.carried]), state.rows, state.row(0));
    for (size_t i = 0; i < parts.carried; ++i) copy(node.inputs[parts.first_carried() + i], first[i]);
    const auto copy_last = [&] {
      for (const StackedState& state : states) {
        const ValueId value = node.outputs[state.carried];
        if (!direct_.count(value) && !part_of_.count(value)) continue;
        const BufferId out = results[state.carried];
        buffer_of_[value] =
            add_view(graph_.value(value).name + ".last", graph_.type(value), state.rows, state.row(state.trip));
        copy(value, out);
        buffer_of_[value] = out;
      }
    };
    if (most == 0) return copy_last();
    for (size_t i = parts.carried; i < results.size(); ++i)
      if (parts.has_condition || parts.counted) fill_with_zeros(graph_.type(node.outputs[i]), results[i]);
    std::vector<BufferId> scanned;
    for (size_t i = 0; i < parts.scanned; ++i)
      scanned.push_back(row_major_bytes(node.inputs[parts.first_scanned() + i]));
    ProgramStep loop;
    loop.kind = StepKind::kLoop;
    loop.loc = node.loc;
    loop.index = {make_var(index_name()), 0, most - 1};
    if (parts.counted) loop.count_buffer = count_of(node.inputs[0], trip, node.loc);
    else if (trip) loop.count = *trip;
    if (parts.has_condition) {
      const ValueId condition = node.inputs[parts.condition()];
      loop.condition = add_buffer(graph_.value(condition).name, BufferKind::kArena, graph_.type(condition));
      copy(condition, loop.condition);
    }

    // The block.
    const Var& index = loop.index.var;
    std::vector<SymbolRange> indices = indices_;
    indices.push_back(loop.index);
    StepBlock block;
    GraphLowering inner(body, shared_, block, indices);
    const auto input_name = [&](size_t i) { return body.value(body.inputs[i]).name; };
    std::vector<BufferId> inputs = {inner.is_read(body.inputs[0]) ? inner.add_number(input_name(0), index, node.loc)
                                                                  : -1};
    for (size_t i = 0; i < parts.carried; ++i) {
      const auto state = state_of(i);
      inputs.push_back(state == states.end()
                           ? results[i]
                           : inner.add_view(input_name(parts.kFirstCarriedInput + i), graph_.type(node.outputs[i]),
                                            state->rows, state->row(index)));
    }
    for (size_t i = 0; i < parts.scanned; ++i) {
      const size_t at = parts.first_slice() + i;
      inputs.push_back(inner.row_view(input_name(at), body.type(body.inputs[at]), scanned[i], index, *trip,
                                      parts.scan_reversed[i] != 0));
      inner.bring_near(body.inputs[at], inputs.back());
    }
    for (size_t i = 0; i < parts.invariants; ++i) {
      inputs.push_back(buffer_of_.at(node.inputs[parts.first_invariant() + i]));
      const ValueId own = body.inputs[body.inputs.size() - parts.invariants + i];
      inner.calls_with_[own] = std::min<int64_t>(most, INT32_MAX);
    }

    std::vector<BufferId> outputs;
    const auto carry = [&](size_t result, BufferId current) {
      const ValueId value = body.outputs[result];
      const BufferId next = add_buffer(body.value(value).name, BufferKind::kArena, buffer(current).type);
      loop.carried.push_back({current, next});
      outputs.push_back(next);
    };
    if (parts.has_condition) carry(0, loop.condition);
    for (size_t i = 0; i < parts.carried; ++i) {
      const size_t at = parts.first_carried_result() + i;
      if (body.outputs[at] == body.inputs[parts.kFirstCarriedInput + i] || state_of(i) != states.end())
        outputs.push_back(-1);
      else carry(at, results[i]);
    }
    for (size_t i = 0; i < parts.stacked; ++i) {
      const ValueId value = body.outputs[parts.first_stacked_result() + i];
      outputs.push_back(inner.row_view(body.value(value).name, body.type(value), results[parts.carried + i], index,
                                       *trip, parts.stack_reversed[i] != 0));
    }
    inner.run(inputs, outputs);
    loop.blocks.push_back(std::move(block));
    block_.push_back(std::move(loop));
    copy_last();
  }

  // What a loop carries has a buffer of its own inside of another loop, which may carry what is written there.
  bool may_carry_twice(const Node& node, ValueId result) const {
    if (node.op->kind != OpKind::kLoop || indices_.empty()) return false;
    const auto carried = node.outputs.begin() + static_cast<ptrdiff_t>(loop_parts(node).carried);
    return std::find(node.outputs.begin(), carried, result) != carried;
  }

  // A slice comes from memory in every iteration. Kernels that fuse its reader into their tiles read large ones line by
  // line in an order that no prefetcher follows, so that a copy in order is cheaper (an LSTM of 16 sequences, 128 wide:
  // 16.6 ms instead of 30.8 ms for 1,024 steps). Where all of them fit the caches near a core, it is not.
  void bring_near(ValueId input, BufferId& slice) {
    constexpr int64_t kLargeSlice = 16 << 10, kFarWhole = 2 << 20;
    const BufferId whole = buffer(slice).alias_of;
    if (buffer(slice).bytes < kLargeSlice || buffer(whole).bytes < kFarWhole) return;
    buffer_of_[input] = slice;
    slice = add_buffer(graph_.value(input).name, BufferKind::kArena, graph_.type(input));
    copy(input, slice);
  }

  bool is_read(ValueId input) const {
    return !graph_.users()[static_cast<size_t>(input)].empty() ||
           std::find(graph_.outputs.begin(), graph_.outputs.end(), input) != graph_.outputs.end();
  }

  // The buffer of a loop's count. A limit that is a number ends the loop's index; another one is put into the count.
  BufferId count_of(ValueId count, const std::optional<Expr>& limit, const std::string& loc) {
    if (!limit || as_int(*limit)) return buffer_of_.at(count);
    const BufferId id = add_buffer(graph_.value(count).name + ".limited", BufferKind::kArena, {DType::kI64, {}, {}});
    Kernel kernel;
    kernel.program.name = kernel_name("limited_count");
    kernel.program.params = {make_buffer("x", DType::kI64, {}), make_buffer("y", DType::kI64, {})};
    kernel.program.body = store(kernel.program.params[1], {}, min(load(kernel.program.params[0], {}), *limit));
    kernel.program.symbols = used_symbols(kernel.program, program_.symbols);
    kernel.rule = "procedure";
    kernel.loc = loc;
    kernel.bytes = buffer(id).bytes;
    add_call(std::move(kernel), {buffer_of_.at(count), id}, loc);
    return id;
  }

  // A buffer with the number of the iteration.
  BufferId add_number(const std::string& name, const Var& index, const std::string& loc) {
    return add_number(add_buffer(name, BufferKind::kArena, {DType::kI64, {}, {}}), index, loc);
  }

  // Writes the value of a symbol to a buffer.
  BufferId add_number(BufferId id, const Var& index, const std::string& loc) {
    Kernel kernel;
    kernel.program.name = kernel_name("number");
    kernel.program.params = {make_buffer("y", DType::kI64, {})};
    kernel.program.symbols = {index};
    kernel.program.body = store(kernel.program.params[0], {}, index);
    kernel.rule = "procedure";
    kernel.loc = loc;
    kernel.bytes = buffer(id).bytes;
    add_call(std::move(kernel), {id}, loc);
    return id;
  }

  // Where the rows of a value stand one after the other: constants are stored in the order of whoever reads them.
  BufferId row_major_bytes(ValueId value) {
    const BufferId id = buffer_of_.at(value);
    const Node* producer = graph_.producer(storage_value(graph_, value));
    if (!producer || producer->op->kind != OpKind::kConstant) return id;
    const BufferId rows = add_buffer(graph_.value(value).name + ".rows", BufferKind::kArena, graph_.type(value));
    copy(value, rows);
    return rows;
  }

  std::string kernel_name(const std::string& wish) {
    std::string name = unique(wish);
    for (char& c : name) c = c == '.' ? '_' : c;
    return name;
  }

  // That nothing else in the program has, symbols included.
  std::string index_name() {
    for (;;) {
      std::string name = kernel_name("t");
      const auto same = [&](const SymbolRange& symbol) { return symbol.var->name == name; };
      if (std::none_of(program_.symbols.begin(), program_.symbols.end(), same)) return name;
    }
  }

  void add_call(std::shared_ptr<TensorProgram> definition, std::vector<BufferId> args, const std::string& loc) {
    definition->name = kernel_name(definition->name);
    Kernel kernel;
    kernel.program = naive_loops(*definition);
    kernel.program.symbols = used_symbols(*definition, program_.symbols);
    kernel.loc = loc;
    const bool fixed = kernel.program.symbols.empty();
    kernel.flops = fixed ? count_flops(*definition) : -1;
    kernel.bytes = fixed ? count_bytes(*definition) : -1;
    kernel.definition = std::move(definition);
    add_call(std::move(kernel), std::move(args), loc);
  }

  void add_call(Kernel kernel, std::vector<BufferId> args, const std::string& loc) {
    program_.kernels.push_back(std::move(kernel));
    program::add_call(program_, block_, {static_cast<int32_t>(program_.kernels.size() - 1), std::move(args), loc});
  }

  // An identity kernel from a value's buffer to another that cannot be the same bytes.
  void copy(ValueId value, BufferId output) {
    const TensorType& type = graph_.type(value);
    auto definition = std::make_shared<TensorProgram>();
    definition->name = identifier("copy_" + graph_.value(value).name);
    KernelLowering kernel(*definition);
    const auto param = kernel.add_param("x", type, OperandKind::kActivation);
    Body body;
    body.inputs = {param.buffer};
    body.axes = make_axes("i", type.shape);
    body.value = load(param.buffer, body.axis_vars());
    kernel.add_stage("y", type, body, {param});
    add_call(std::move(definition), {buffer_of_.at(value), output}, graph_.value(value).name);
  }

  void fill_with_zeros(const TensorType& type, BufferId output) {
    auto definition = std::make_shared<TensorProgram>();
    definition->name = identifier("zeros_" + buffer(output).name);
    KernelLowering kernel(*definition);
    Body body;
    body.axes = make_axes("i", type.shape);
    body.value = const_of(type.dtype, 0);
    kernel.add_stage("y", type, body, {});
    add_call(std::move(definition), {output}, buffer(output).name);
  }

  const Graph& graph_;
  LoweredProgram& shared_;
  Program& program_;
  StepBlock& block_;
  std::vector<SymbolRange> indices_;       // of the loops around the graph
  std::map<ValueId, int64_t> calls_with_;  // of what a loop around the graph does not change: its iterations
  std::map<ValueId, BufferId> buffer_of_;
  std::map<ValueId, BufferId> direct_;
  std::vector<std::pair<ValueId, BufferId>> copies_;
  std::vector<std::vector<PlacedOperand>> placed_;        // by node
  std::map<ValueId, std::pair<BufferId, Expr>> part_of_;  // the concat's buffer and the place in it, in bytes
};

}  // namespace

Program lower_graph(const Graph& graph) {
  const KnownSymbols known(graph.symbols);
  LoweredProgram lowered;
  StepBlock steps;
  GraphLowering(graph, lowered, steps).run();
  const bool plain =
      std::all_of(steps.begin(), steps.end(), [](const ProgramStep& s) { return s.kind == StepKind::kCalls; });
  if (!plain) lowered.program.steps = std::move(steps);
  narrow_values(lowered.program);
  return std::move(lowered.program);
}

}  // namespace tessera::inline lower
