#include "lower/generalize.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "loop/naive_loops.h"
#include "program/generalize_loops.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline lower {
namespace {

class Generalizer {
 public:
  Generalizer(const std::vector<const Program*>& programs, SizeFormulas& formulas)
      : programs_(programs), formulas_(formulas) {}

  std::variant<Program, Unlike> run() {
    try {
      return make();
    } catch (const SizesDiffer& difference) {
      return Unlike{where_, difference.what, difference.no_formula, difference.in_constants};
    }
  }

 private:
  Program make() {
    const Program& first = *programs_[0];
    Program result;
    result.name = first.name;
    result.symbols = formulas_.symbols();
    where_ = "the whole model";
    same(of_all(programs_, &Program::inputs), "signature");
    same(of_all(programs_, &Program::outputs), "signature");
    result.inputs = first.inputs;
    result.outputs = first.outputs;
    result.output_names = first.output_names;
    result.checks = checks();
    same(of_all(programs_, &Program::states), "state");
    result.states = first.states;
    const auto buffers = of_all(programs_, &Program::buffers);
    for (size_t i = 0; i < common_size(buffers, "buffers"); ++i)
      result.buffers.push_back(buffer(static_cast<BufferId>(i), elements(buffers, i)));
    const auto kernels = of_all(programs_, &Program::kernels);
    for (size_t i = 0; i < common_size(kernels, "kernels"); ++i) result.kernels.push_back(kernel(elements(kernels, i)));
    const auto calls = of_all(programs_, &Program::calls);
    for (size_t i = 0; i < common_size(calls, "calls"); ++i) {
      const auto all = elements(calls, i);
      where_ = all[0]->loc;
      same(of_all(all, &KernelCall::kernel), "kernel");
      same(of_all(all, &KernelCall::args), "operand");
      result.calls.push_back(*all[0]);
    }
    same_steps(of_all(programs_, &Program::steps));
    result.steps = first.steps;
    make_constants(result);
    return result;
  }

  void same_steps(const std::vector<const StepBlock*>& blocks) {
    for (size_t i = 0; i < common_size(blocks, "steps"); ++i) {
      const auto all = elements(blocks, i);
      where_ = all[0]->loc;
      const StepKind kind = same(of_all(all, &ProgramStep::kind), "step");
      if (kind == StepKind::kLoop) differ("loops, which are not compared");
      if (kind == StepKind::kBind) differ("sizes that data decide, which are not compared");
      same(of_all(all, &ProgramStep::num_calls), "number of calls");
      same(of_all(all, &ProgramStep::condition), "condition");
      const auto inner = of_all(all, &ProgramStep::blocks);
      for (size_t b = 0; b < common_size(inner, "blocks"); ++b) same_steps(elements(inner, b));
    }
  }

  // A constant that depends on sizes: what computes it, and from which table (null: from none).
  struct MadeConstant {
    BufferId id = -1;
    struct Source {
      TensorPtr table;
      Expr value;  // of the axes, and of `table_buffer`
      std::vector<Axis> axes;
      BufferPtr table_buffer;
    } source;
  };

  // Elements are those of the largest constant that is known, at the same index; or, if they are few, each a formula.
  MadeConstant::Source made_constant(const std::vector<const ProgramBuffer*>& all, ExprGeneralizer& sizes) {
    std::vector<const Shape*> shapes;
    std::vector<const Tensor*> data;
    for (const ProgramBuffer* b : all) {
      shapes.push_back(&b->type.shape);
      data.push_back(b->data->has_data() ? b->data.get() : all[0]->data.get());
      if (!data.back()->has_data() || !b->type.layout.row_major()) differ_in_constants();
    }
    MadeConstant::Source source;
    const Shape shape = sizes.shape(shapes);
    source.axes = make_axes("i", shape);
    // Of a short range sizes beyond its end are known, too.
    TensorPtr table = all[0]->data;
    for (const ProgramBuffer* b : all)
      if (b->data->has_data() && b->data->num_elements() > table->num_elements()) table = b->data;
    const SizePoint largest = largest_sizes(formulas_.symbols());
    const auto reaches = [&](const SizePoint& p) {
      return std::equal(p.begin(), p.end(), largest.begin(), std::greater_equal<>());
    };
    if (std::any_of(formulas_.points().begin(), formulas_.points().end(), reaches) &&
        std::all_of(data.begin(), data.end(), [&](const Tensor* part) { return begins(*table, *part); })) {
      source.table = table;
      source.table_buffer = make_buffer("table", table->dtype(), make_shape(table->dims()));
      std::vector<Expr> index;
      for (const Axis& axis : source.axes) index.push_back(axis.var);
      source.value = load(source.table_buffer, index);
      return source;
    }
    const int64_t count = all[0]->data->num_elements();
    const DType dtype = table->dtype();
    if (!static_dims(shape) || count > kMaxFormulas) differ_in_constants();
    Expr flat = 0;
    for (const Axis& axis : source.axes) flat = flat * axis.extent + axis.var;
    for (int64_t i = count; i-- > 0;) {
      Expr element;
      if (is_float(dtype)) {
        std::vector<std::optional<double>> values;
        for (const Tensor* part : data) values.emplace_back(part->get_double(i));
        element = sizes.float_formula(dtype, values);
        if (!element) differ_in_constants();
      } else {
        ExprGeneralizer::Known values;
        for (const Tensor* part : data) values.emplace_back(part->get_int(i));
        element = cast(dtype, sizes.size(values, "an element of a constant"));
      }
      source.value = source.value ? select(equal(flat, i), element, source.value) : element;
    }
    return source;
  }

  // Whether `part` has the elements of `table` at the same indices.
  static bool begins(const Tensor& table, const Tensor& part) {
    const std::vector<int64_t>& dims = part.dims();
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d] > table.dims()[d]) return false;
    std::vector<int64_t> index(dims.size(), 0);
    for (int64_t i = 0; i < part.num_elements(); ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < dims.size(); ++d) at = at * table.dims()[d] + index[d];
      const bool same = is_float(part.dtype()) ? std::bit_cast<uint64_t>(part.get_double(i)) ==
                                                     std::bit_cast<uint64_t>(table.get_double(at))
                                               : part.get_int(i) == table.get_int(at);
      if (!same) return false;
      for (size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
    }
    return true;
  }

  // Kernels that make the constants of the run's sizes, before all others.
  void make_constants(Program& program) {
    std::vector<KernelCall> calls;
    for (const MadeConstant& made : made_constants_) {
      const ProgramBuffer& target = program.buffers[static_cast<size_t>(made.id)];
      auto definition = std::make_shared<TensorProgram>();
      definition->name = fmt::format("constant_{}", made.id);
      Stage stage;
      stage.out = make_buffer("y", target.type.dtype, target.type.shape);
      stage.body.axes = made.source.axes;
      stage.body.value = made.source.value;
      KernelCall call;
      call.loc = target.name;
      if (made.source.table) {
        definition->params.push_back({made.source.table_buffer, {}, OperandKind::kConstant});
        ProgramBuffer table;
        table.name = target.name + ".table";
        table.kind = BufferKind::kWeight;
        table.type = {target.type.dtype, made.source.table_buffer->shape, {}};
        table.bytes = made.source.table->num_bytes();
        table.data = made.source.table;
        program.buffers.push_back(std::move(table));
        call.args.push_back(static_cast<BufferId>(program.buffers.size() - 1));
      }
      call.args.push_back(made.id);
      definition->stages.push_back(std::move(stage));
      call.kernel = static_cast<int32_t>(program.kernels.size());
      Kernel kernel;
      kernel.loc = call.loc;
      kernel.program = naive_loops(*definition);
      kernel.program.symbols = used_symbols(*definition);
      kernel.definition = std::move(definition);
      program.kernels.push_back(std::move(kernel));
      calls.push_back(std::move(call));
    }
    // Whoever reads them has no weights any more that could be stored in another order.
    for (const KernelCall& call : program.calls) {
      Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
      for (size_t i = 0; i < call.args.size(); ++i) {
        const auto is_made = [&](const MadeConstant& made) { return made.id == call.args[i]; };
        if (!kernel.definition || std::none_of(made_constants_.begin(), made_constants_.end(), is_made)) continue;
        auto definition = std::make_shared<TensorProgram>(*kernel.definition);
        definition->params.at(i).kind = OperandKind::kActivation;
        kernel.definition = std::move(definition);
      }
    }
    insert_calls_first(program, std::move(calls));
  }

  std::vector<RuntimeCheck> checks() {
    const auto lists = of_all(programs_, &Program::checks);
    for (size_t i = 0; i < common_size(lists, "checks of values"); ++i) {
      const auto all = elements(lists, i);
      where_ = all[0]->what;
      same(of_all(all, &RuntimeCheck::what), "check of values");
      same(of_all(all, &RuntimeCheck::legal), "check of values");
    }
    return *lists[0];
  }

  ProgramBuffer buffer(BufferId id, const std::vector<const ProgramBuffer*>& all) {
    const ProgramBuffer& first = *all[0];
    where_ = first.name;
    for (const ProgramBuffer* b : all)
      if (b->kind != first.kind || b->index != first.index || b->alias_of != first.alias_of || b->over != first.over ||
          b->type.dtype != first.type.dtype || !(b->type.layout == first.type.layout))
        differ("the value is stored in another way");
    ProgramBuffer result = first;
    ExprGeneralizer sizes(formulas_);
    if (first.kind == BufferKind::kWeight && first.data) {
      const auto equal = [&](const ProgramBuffer* b) {
        return b->data->dims() == first.data->dims() && b->data->content_hash() == first.data->content_hash();
      };
      if (std::all_of(all.begin(), all.end(), equal)) return result;
      made_constants_.push_back({id, made_constant(all, sizes)});
      result.kind = BufferKind::kArena;
      result.data = nullptr;
    }
    std::vector<const Shape*> shapes;
    ExprGeneralizer::Known offsets;
    for (const ProgramBuffer* b : all) {
      shapes.push_back(&b->type.shape);
      offsets.emplace_back(b->view_offset);
    }
    result.type.shape = sizes.shape(shapes);
    const SizePoint largest = largest_sizes(formulas_.symbols());
    const Expr offset = sizes.size(offsets, "an offset");
    if (!as_int(offset)) {
      result.view_offset_formula = offset;
      result.view_offset = value_at(offset, formulas_.symbols(), largest);
    }
    result.bytes = bytes_at(result.type, formulas_.symbols(), largest);
    return result;
  }

  Kernel kernel(const std::vector<const Kernel*>& all) {
    const Kernel& first = *all[0];
    where_ = first.loc;
    std::vector<const TensorProgram*> definitions;
    for (const Kernel* k : all) {
      if ((k->definition == nullptr) != (first.definition == nullptr)) differ("another kind of kernel");
      definitions.push_back(k->definition.get());
    }
    if (!first.definition) return procedure(all);
    auto definition = std::make_shared<TensorProgram>();
    definition->name = definitions[0]->name;
    definition->num_results = same(of_all(definitions, &TensorProgram::num_results), "number of results");
    ExprGeneralizer exprs(formulas_);
    const auto params = of_all(definitions, &TensorProgram::params);
    for (size_t i = 0; i < common_size(params, "operands"); ++i) {
      const auto same_param = elements(params, i);
      same(of_all(same_param, &TensorParam::layout), "layout");
      definition->params.push_back({exprs.buffer(of_all(same_param, &TensorParam::buffer)), same_param[0]->layout,
                                    same(of_all(same_param, &TensorParam::kind), "kind of operand")});
    }
    const auto stages = of_all(definitions, &TensorProgram::stages);
    for (size_t i = 0; i < common_size(stages, "stages"); ++i) {
      const auto same_stage = elements(stages, i);
      const auto bodies = of_all(same_stage, &Stage::body);
      Stage stage;
      stage.out = exprs.buffer(of_all(same_stage, &Stage::out));
      stage.layout = same(of_all(same_stage, &Stage::layout), "layout");
      stage.body.axes = exprs.axes(of_all(bodies, &Body::axes));
      stage.body.reduce_axes = exprs.axes(of_all(bodies, &Body::reduce_axes));
      stage.body.combiner = same(of_all(bodies, &Body::combiner), "reduction");
      stage.body.value = exprs.expr(of_all(bodies, &Body::value));
      definition->stages.push_back(std::move(stage));
    }
    Kernel result;
    result.loc = first.loc;
    result.program = naive_loops(*definition);
    result.program.symbols = used_symbols(*definition);
    const bool fixed = result.program.symbols.empty();
    result.flops = fixed ? first.flops : -1;
    result.bytes = fixed ? first.bytes : -1;
    result.definition = std::move(definition);
    return result;
  }

  // A kernel that is loops from the beginning.
  Kernel procedure(const std::vector<const Kernel*>& all) {
    std::vector<const LoopProgram*> loops = of_all(all, &Kernel::program);
    Kernel result = *all[0];
    result.flops = result.bytes = -1;
    ExprGeneralizer sizes(formulas_);
    const auto params = of_all(loops, &LoopProgram::params);
    for (size_t i = 0; i < common_size(params, "operands"); ++i)
      result.program.params[i] = sizes.buffer(elements(params, i));
    const bool has_largest = formulas_.points().back() == largest_sizes(formulas_.symbols());
    LoopGeneralizer generalizer(formulas_, result.program.params, has_largest);
    result.program.body = generalizer.run(loops);
    std::unordered_set<const ExprNode*> seen;
    const auto look = [&](const Expr& e) { seen.insert(e.get()); };
    walk(result.program.body, nullptr, look);
    for (const BufferPtr& param : result.program.params)
      for (const Expr& dim : param->shape) walk(dim, look);
    result.program.symbols = those(seen);
    return result;
  }

  std::vector<Var> those(const std::unordered_set<const ExprNode*>& seen) const {
    std::vector<Var> symbols;
    for (const SymbolRange& symbol : formulas_.symbols())
      if (seen.count(symbol.var.get())) symbols.push_back(symbol.var);
    return symbols;
  }

  std::vector<Var> used_symbols(const TensorProgram& program) const {
    std::unordered_set<const ExprNode*> seen;
    const auto look = [&](const Expr& e) {
      if (e) walk(e, [&](const Expr& node) { seen.insert(node.get()); });
    };
    const auto look_at_buffer = [&](const BufferPtr& buffer) {
      for (const Expr& extent : buffer->shape) look(extent);
    };
    for (const TensorParam& param : program.params) look_at_buffer(param.buffer);
    for (const Stage& stage : program.stages) {
      look_at_buffer(stage.out);
      for (const auto* axes : {&stage.body.axes, &stage.body.reduce_axes})
        for (const Axis& axis : *axes) look(axis.extent);
      look(stage.body.value);
    }
    return those(seen);
  }

  static constexpr int64_t kMaxFormulas = 64;

  const std::vector<const Program*>& programs_;
  SizeFormulas& formulas_;
  std::string where_;
  std::vector<MadeConstant> made_constants_;
};

}  // namespace

std::variant<Program, Unlike> generalize(const std::vector<const Program*>& programs, SizeFormulas& formulas) {
  check(programs.size() == formulas.points().size(), "a program for every point");
  return Generalizer(programs, formulas).run();
}

}  // namespace tessera::inline lower
