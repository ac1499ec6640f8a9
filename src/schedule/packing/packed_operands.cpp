#include "schedule/packing/packed_operands.h"

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "program/memory_plan.h"
#include "program/steps.h"
#include "schedule/kernel/pack_loops.h"
#include "schedule/packing/shared_tables.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

// What a packing does, without the parameter's number.
std::string text_of(const PackedParam& packed) {
  std::string text = fmt::format("{}x{}:{}x{} {}", packed.winograd.rows, packed.winograd.columns,
                                 packed.winograd.height, packed.winograd.width, packed.pieces);
  for (const PackSpec& part : packed.parts) {
    text += fmt::format(" part {}", part.offset);
    for (const PackAxis& axis : part.axes) text += fmt::format(" a{},{}", axis.extent, axis.stride);
    for (const PackDim& dim : part.dims) text += fmt::format(" d{},{},{}", dim.extent, dim.axis, dim.multiplier);
  }
  return text;
}

int64_t elements_of(const ProgramBuffer& buffer) { return buffer.bytes * 8 / dtype_bits(buffer.type.dtype); }

// Rebuilds a program's calls and steps with the calls that pack.
class CallPlacer {
 public:
  struct Wanted {
    size_t param = 0, packing = 0;
  };

  CallPlacer(Program& program, const Target& target, const std::vector<PackedParam>& packings,
             const std::map<size_t, std::vector<Wanted>>& wanted)
      : program_(program), target_(target), packings_(packings), wanted_(wanted) {}

  void run() {
    const bool plain = program_.steps.empty();
    const StepBlock steps = steps_of(program_);
    calls_ = std::exchange(program_.calls, {});
    StepBlock placed = block(steps);
    if (!plain) program_.steps = std::move(placed);
  }

 private:
  using Key = std::pair<BufferId, size_t>;  // the source, and how it is packed

  BufferId root(BufferId id) const { return root_buffer(program_, id); }

  template <typename Visit>
  void for_each_call(const ProgramStep& step, const Visit& visit) const {
    for (size_t c = 0; c < step.num_calls; ++c) visit(step.first_call + c);
    for (const StepBlock& block : step.blocks)
      for (const ProgramStep& inner : block) for_each_call(inner, visit);
  }

  void add_written(size_t call, std::set<BufferId>& written) const {
    const KernelCall& c = calls_[call];
    const auto outputs = static_cast<size_t>(program_.kernels[static_cast<size_t>(c.kernel)].program.num_outputs);
    for (size_t i = c.args.size() - outputs; i < c.args.size(); ++i) written.insert(root(c.args[i]));
  }

  // The roots that a step and those in it write.
  std::set<BufferId> written_in(const ProgramStep& step) const {
    std::set<BufferId> written;
    for_each_call(step, [&](size_t call) { add_written(call, written); });
    const auto carried = [&](const ProgramStep& s) {
      if (s.kind == StepKind::kCopy) written.insert(root(s.to));
      for (const CarriedValue& value : s.carried) {
        written.insert(root(value.current));
        written.insert(root(value.next));
      }
    };
    carried(step);
    for (const StepBlock& block : step.blocks) for_each_step(block, carried);
    return written;
  }

  void forget(const std::set<BufferId>& written) {
    std::erase_if(packed_, [&](const auto& entry) { return written.contains(root(entry.first.first)); });
  }

  // Whether the view moves with the loop's index, or with that of a loop in it.
  bool moves_in(BufferId id, const ProgramStep& loop) const {
    std::vector<Var> indices = {loop.index.var};
    for (const StepBlock& block : loop.blocks)
      for_each_step(block, [&](const ProgramStep& step) {
        if (step.kind == StepKind::kLoop) indices.push_back(step.index.var);
      });
    for (; id >= 0; id = program_.buffers[static_cast<size_t>(id)].alias_of) {
      const Expr& offset = program_.buffers[static_cast<size_t>(id)].view_offset_formula;
      if (!offset) continue;
      for (const Var& index : indices)
        if (uses_var(offset, index)) return true;
    }
    return false;
  }

  StepBlock block(const StepBlock& steps) {
    StepBlock result;
    for (const ProgramStep& step : steps) {
      switch (step.kind) {
        case StepKind::kCalls:
          for (size_t c = step.first_call; c < step.first_call + step.num_calls; ++c) call(c, result);
          break;
        case StepKind::kBranch: {
          ProgramStep branch = step;
          const std::map<Key, BufferId> before = packed_;
          for (StepBlock& inner : branch.blocks) {
            packed_ = before;
            inner = block(inner);
          }
          packed_ = before;
          forget(written_in(step));
          result.push_back(std::move(branch));
          break;
        }
        case StepKind::kLoop: result.push_back(loop(step, result)); break;
        case StepKind::kStart: {
          ProgramStep start = step;
          start.blocks[0] = block(step.blocks[0]);  // a queue keeps its order: what it packs is there from then on
          result.push_back(std::move(start));
          break;
        }
        case StepKind::kCopy:
          forget({root(step.to)});
          result.push_back(step);
          break;
        case StepKind::kBind:
        case StepKind::kWait: result.push_back(step); break;
      }
    }
    return result;
  }

  ProgramStep loop(const ProgramStep& step, StepBlock& before_loop) {
    const std::set<BufferId> written = written_in(step);
    for_each_call(step, [&](size_t c) {
      const auto wanted = wanted_.find(c);
      if (wanted == wanted_.end()) return;
      for (const Wanted& want : wanted->second) {
        const BufferId source = calls_[c].args[want.param];
        if (program_.buffers[static_cast<size_t>(source)].device != 0) continue;  // before a loop stands no start
        if (!written.contains(root(source)) && !moves_in(source, step)) packed(source, want, calls_[c], before_loop);
      }
    });
    forget(written);
    const std::map<Key, BufferId> outside = packed_;
    ProgramStep result = step;
    for (StepBlock& inner : result.blocks) inner = block(inner);
    packed_ = outside;
    return result;
  }

  void call(size_t number, StepBlock& block) {
    KernelCall own = calls_[number];
    if (const auto wanted = wanted_.find(number); wanted != wanted_.end())
      for (const Wanted& want : wanted->second)
        own.args[want.param] = packed(calls_[number].args[want.param], want, calls_[number], block);
    add_call(program_, block, std::move(own));
    std::set<BufferId> written;
    add_written(number, written);
    forget(written);
  }

  // The packed form of `source`, made at the end of `block` where there is none yet.
  BufferId packed(BufferId source, const Wanted& want, const KernelCall& reader, StepBlock& block) {
    const auto [entry, is_new] = packed_.try_emplace({source, want.packing}, -1);
    if (!is_new) return entry->second;
    const PackedParam& how = packings_[want.packing];
    const DType dtype = program_.buffers[static_cast<size_t>(source)].type.dtype;
    ProgramBuffer whole;
    whole.name =
        fmt::format("{}.packed{}", program_.buffers[static_cast<size_t>(source)].name, program_.buffers.size());
    whole.device = program_.buffers[static_cast<size_t>(source)].device;
    whole.type = {dtype, {Expr(how.num_elements())}, {}};
    whole.bytes = dtype_bytes(dtype, how.num_elements());
    const auto id = static_cast<BufferId>(program_.buffers.size());
    program_.buffers.push_back(whole);
    int64_t begin = 0;
    for (size_t part = 0; part < how.parts.size(); ++part) {
      BufferId to = id;
      const int64_t elements = how.parts[part].num_elements();
      if (how.parts.size() > 1) {
        ProgramBuffer view = whole;
        view.name += fmt::format(".{}", part);
        view.type.shape = {Expr(elements)};
        view.bytes = dtype_bytes(dtype, elements);
        view.alias_of = id;
        view.view_offset = dtype_bytes(dtype, begin);
        to = static_cast<BufferId>(program_.buffers.size());
        program_.buffers.push_back(std::move(view));
      }
      begin += elements;
      const int32_t made = kernel(source, want.packing, part, reader);
      add_call(program_, block, {made, {as_parameter(source, made, 0), as_parameter(to, made, 1)}, reader.loc});
    }
    return entry->second = id;
  }

  // The buffer as the kernel's parameter: numbers that are only moved are moved as words of their width, or in pairs.
  BufferId as_parameter(BufferId id, int32_t kernel, size_t param) {
    const Buffer& wanted = *program_.kernels[static_cast<size_t>(kernel)].program.params[param];
    const ProgramBuffer& own = program_.buffers[static_cast<size_t>(id)];
    if (own.type.dtype == wanted.dtype) return id;
    ProgramBuffer view;
    view.name = fmt::format("{}.bits{}", own.name, program_.buffers.size());
    view.kind = own.kind;
    view.device = own.device;
    view.type = {wanted.dtype, wanted.shape, {}};
    view.bytes = own.bytes;
    view.alias_of = own.alias_of >= 0 ? own.alias_of : id;
    view.view_offset = own.view_offset;
    view.view_offset_formula = own.view_offset_formula;
    view.view_travel = own.view_travel;
    program_.buffers.push_back(std::move(view));
    return static_cast<BufferId>(program_.buffers.size() - 1);
  }

  int32_t kernel(BufferId source, size_t packing, size_t part, const KernelCall& reader) {
    const ProgramBuffer& from = program_.buffers[static_cast<size_t>(source)];
    const auto [entry, is_new] =
        kernels_.try_emplace({packing, part, from.device}, static_cast<int32_t>(program_.kernels.size()));
    if (!is_new) return entry->second;
    const std::string& reader_name = program_.kernels[static_cast<size_t>(reader.kernel)].program.name;
    Kernel made;
    const std::string suffix = packings_[packing].parts.size() > 1 ? fmt::format("_{}", part) : "";
    made.program = pack_loops(fmt::format("{}_pack{}{}", reader_name, packing, suffix), packings_[packing], part,
                              from.type.dtype, elements_of(from), target_);
    made.rule = "pack";
    made.device = from.device;
    made.loc = reader.loc;
    made.flops = 0;
    made.bytes = from.bytes + dtype_bytes(from.type.dtype, packings_[packing].parts[part].num_elements());
    program_.kernels.push_back(std::move(made));
    return entry->second;
  }

  Program& program_;
  const Target& target_;
  const std::vector<PackedParam>& packings_;
  const std::map<size_t, std::vector<Wanted>>& wanted_;
  std::vector<KernelCall> calls_;                                   // as they were
  std::map<Key, BufferId> packed_;                                  // that hold what their sources hold, at this place
  std::map<std::tuple<size_t, size_t, int32_t>, int32_t> kernels_;  // by packing, part and device
};

}  // namespace

// How many parameters of calls read each buffer, counted for the buffer of which it is a view.
PackedOperands::PackedOperands(Program& program, const Target& target)
    : program_(program), target_(target), uses_(program.buffers.size(), 0) {
  for (const KernelCall& call : program.calls)
    for (const BufferId arg : call.args) ++uses_[static_cast<size_t>(root_buffer(program, arg))];
}

std::string PackedOperands::problem(int32_t kernel, const std::vector<PackedParam>& packed) const {
  for (const KernelCall& call : program_.calls) {
    if (call.kernel != kernel) continue;
    for (const PackedParam& param : packed) {
      const BufferId root_id = root_buffer(program_, call.args[param.param]);
      const ProgramBuffer& root = program_.buffers[static_cast<size_t>(root_id)];
      std::string why;
      if (root.data) why = packing_problem(*root.data, param);
      else if (root.kind != BufferKind::kWeight) why = run_time_packing_problem(param, root.type.dtype);
      if (!why.empty()) return why;
    }
  }
  return "";
}

void PackedOperands::use(int32_t kernel, const PackedParam& packed) {
  std::map<BufferId, BufferId> made;  // calls may share a constant
  for (size_t c = 0; c < program_.calls.size(); ++c) {
    KernelCall& call = program_.calls[c];
    if (call.kernel != kernel) continue;
    const BufferId source = call.args[packed.param];
    if (program_.buffers[static_cast<size_t>(root_buffer(program_, source))].kind == BufferKind::kWeight)
      use_constant(call, packed, made);
    else requests_[c].push_back({packed.param, number_of(packed, source)});
  }
}

void PackedOperands::use_constant(KernelCall& call, const PackedParam& packed, std::map<BufferId, BufferId>& made) {
  const BufferId source = call.args[packed.param];
  const BufferId source_root = root_buffer(program_, source);
  if (const auto it = made.find(source); it != made.end()) {
    call.args[packed.param] = it->second;
    --uses_[static_cast<size_t>(source_root)];
    return;
  }
  ProgramBuffer buffer;
  {
    const ProgramBuffer& old = program_.buffers[static_cast<size_t>(source)];
    const ProgramBuffer& root = program_.buffers[static_cast<size_t>(source_root)];
    check(root.data != nullptr, "a packed constant without data: " + old.name);
    auto data = std::make_shared<Tensor>(pack(*root.data, packed));
    buffer.name = old.name + ".packed" + std::to_string(program_.buffers.size());
    buffer.kind = BufferKind::kWeight;
    buffer.device = old.device;
    buffer.type = {data->dtype(), make_shape(data->dims()), {}};
    buffer.bytes = data->num_bytes();
    buffer.data = std::move(data);
  }
  program_.buffers.push_back(std::move(buffer));
  made[source] = call.args[packed.param] = static_cast<BufferId>(program_.buffers.size() - 1);
  constants_.push_back({source, call.args[packed.param], packed});
  uses_.push_back(1);
  if (--uses_[static_cast<size_t>(source_root)] == 0) program_.buffers[static_cast<size_t>(source_root)].data = nullptr;
}

size_t PackedOperands::number_of(const PackedParam& packed, BufferId source) {
  const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(source)];
  const std::string text = fmt::format("{} {} {}", dtype_name(buffer.type.dtype), elements_of(buffer), text_of(packed));
  const auto [entry, is_new] = packing_numbers_.try_emplace(text, packings_.size());
  if (is_new) packings_.push_back(packed);
  return entry->second;
}

void PackedOperands::share_tables() {
  constexpr int64_t kLargeBytes = 1 << 20;
  for (const PackedConstant& constant : constants_) {
    // Of a row of floats each is in a line of its own then; bytes are fewer.
    const DType dtype = program_.buffers[static_cast<size_t>(constant.packed)].type.dtype;
    if (constant.packing.winograd.rows != 0 || constant.packing.pieces != 0 || dtype_bits(dtype) > 8) continue;
    for (KernelCall& call : program_.calls) {
      const auto arg = std::find(call.args.begin(), call.args.end(), constant.source);
      if (arg == call.args.end() || std::count(arg, call.args.end(), constant.source) != 1) continue;
      const auto is_same = [&](const KernelCall& other) { return other.kernel == call.kernel; };
      Kernel& kernel = program_.kernels[static_cast<size_t>(call.kernel)];
      const auto param = static_cast<size_t>(arg - call.args.begin());
      const auto root = static_cast<size_t>(root_buffer(program_, constant.source));
      if (program_.buffers[root].bytes < kLargeBytes ||
          std::count_if(program_.calls.begin(), program_.calls.end(), is_same) != 1 || !looks_up(kernel.program, param))
        continue;
      kernel.program = with_packed(kernel.program, param, constant.packing);
      *arg = constant.packed;
      if (--uses_[root] == 0) program_.buffers[root].data = nullptr;
    }
  }
}

void PackedOperands::place_calls() {
  if (requests_.empty()) return;
  std::map<size_t, std::vector<CallPlacer::Wanted>> wanted;
  for (const auto& [call, requests] : requests_)
    for (const Request& request : requests) wanted[call].push_back({request.param, request.packing});
  CallPlacer(program_, target_, packings_, wanted).run();
}

}  // namespace tessera::inline schedule
