#include "program/printer.h"

#include <fmt/format.h>

#include <unordered_set>

#include "graph/tensor_text.h"
#include "loop/printer.h"
#include "program/steps.h"
#include "support/text_reader.h"

namespace tessera::inline program {
namespace {

// Names of one kind of things, told apart.
class Names {
 public:
  void add(const std::string& wish) {
    std::string name = wish;
    for (int suffix = 1; name.empty() || !taken_.insert(name).second; ++suffix)
      name = fmt::format("{}_{}", wish, suffix);
    names_.push_back(std::move(name));
  }
  // The name of thing `id` behind its sigil; marks ids outside the program, for programs that do not verify.
  std::string text(char sigil, int64_t id) const {
    if (id < 0 || id >= static_cast<int64_t>(names_.size())) return fmt::format("{}\"<bad id {}>\"", sigil, id);
    return sigil + name_text(names_[static_cast<size_t>(id)]);
  }
  const std::string& name(size_t id) const { return names_[id]; }

 private:
  std::vector<std::string> names_;
  std::unordered_set<std::string> taken_;
};

std::string loc_text(const std::string& loc, const PrintOptions& options) {
  return loc.empty() || !options.locs ? "" : fmt::format(" loc({})", quoted_text(loc));
}

void indented(const std::string& text, std::string& out) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    out += "  ";
    out.append(text, begin, end - begin + 1);
    begin = end + 1;
  }
}

}  // namespace

const char* buffer_kind_name(BufferKind kind) {
  static constexpr const char* kNames[] = {"input", "output", "weight", "arena"};
  return kNames[static_cast<int>(kind)];
}

std::string print(const Program& program, const PrintOptions& options) {
  Names buffers;
  for (const ProgramBuffer& buffer : program.buffers) buffers.add(buffer.name);
  Names kernels;
  for (const Kernel& kernel : program.kernels) kernels.add(kernel.program.name);
  const auto list = [&](const std::vector<BufferId>& ids) {
    std::string text;
    for (size_t i = 0; i < ids.size(); ++i) text += (i ? ", " : "") + buffers.text('%', ids[i]);
    return text;
  };

  std::string symbols;
  for (const SymbolRange& symbol : program.symbols)
    symbols += (symbols.empty() ? "[" : ", ") +
               (symbol.is_data()
                    ? fmt::format("{}{} upto {}", symbol_text(symbol.var->name),
                                  symbol.lo == 0 ? "" : fmt::format(" from {}", symbol.lo), to_string(symbol.bound))
                    : fmt::format("{} in {}..{}{}", symbol_text(symbol.var->name), symbol.lo, symbol.hi,
                                  symbol.step == 1 ? "" : fmt::format(":{}", symbol.step)));
  if (!symbols.empty()) symbols += "]";
  std::string out = fmt::format("program @{}{}({}) -> ({}) {{\n", name_text(program.name), symbols,
                                list(program.inputs), list(program.outputs));
  out += fmt::format("  plan arena {} weights {} scratch {}\n", program.arena_bytes, program.weight_bytes,
                     program.scratch_bytes);
  for (const ProgramDevice& device : program.devices)
    out += fmt::format("  device {} {}{} arena {} weights {}\n", symbol_text(device.name), quoted_text(device.kind),
                       device.in_host_memory ? " in host" : "", device.arena_bytes, device.weight_bytes);
  const auto on = [&](int32_t device) {
    return device == 0 ? std::string() : " on " + symbol_text(program.devices[static_cast<size_t>(device - 1)].name);
  };
  for (const SymbolRange& index : loop_indices(program))
    out += index.hi == INT64_MAX ? fmt::format("  index {}\n", symbol_text(index.var->name))
                                 : fmt::format("  index {} < {}\n", symbol_text(index.var->name), index.hi + 1);
  for (const RuntimeCheck& check : program.checks)
    out += fmt::format("  check {}, {}\n", quoted_text(check.what), quoted_text(check.legal));
  for (const ProgramState& state : program.states)
    out += fmt::format("  state {}{}\n", quoted_text(state.name),
                       state.initial < 0 ? "" : " = " + buffers.text('%', state.initial));
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const ProgramBuffer& buffer = program.buffers[i];
    out += fmt::format("  buffer {}: {} {}", buffers.text('%', static_cast<int64_t>(i)), buffer.type.to_string(),
                       buffer_kind_name(buffer.kind));
    if (buffer.index >= 0) out += fmt::format(" {}", buffer.index);
    out += on(buffer.device);
    if (buffer.offset >= 0) out += fmt::format(" at {}", buffer.offset);
    if (buffer.alias_of >= 0) out += fmt::format(" alias {}", buffers.text('%', buffer.alias_of));
    if (buffer.view_offset_formula) out += fmt::format(" from {}", to_string(buffer.view_offset_formula));
    else if (buffer.view_offset != 0) out += fmt::format(" from {}", buffer.view_offset);
    if (buffer.over >= 0) out += fmt::format(" over {}", buffers.text('%', buffer.over));
    if (buffer.data) out += " = " + tensor_text(*buffer.data, options.elide_constants);
    out += '\n';
  }
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const Kernel& kernel = program.kernels[i];
    out += fmt::format("  define rule {}{}", quoted_text(kernel.rule), on(kernel.device));
    if (kernel.flops >= 0) out += fmt::format(" flops {}", kernel.flops);
    if (kernel.bytes >= 0) out += fmt::format(" bytes {}", kernel.bytes);
    if (!kernel.refused_tuning.empty()) out += fmt::format(" tuning {}", quoted_text(kernel.refused_tuning));
    for (const std::string& reason : kernel.refused) out += fmt::format(" refused {}", quoted_text(reason));
    out += loc_text(kernel.loc, options) + '\n';
    LoopProgram named = kernel.program;
    named.name = kernels.name(i);
    indented(print(named), out);
  }
  const auto print_call = [&](const KernelCall& call, const std::string& indent) {
    out += fmt::format("{}call {}({})", indent, kernels.text('@', call.kernel), list(call.args));
    out += loc_text(call.loc, options) + '\n';
  };
  const auto print_block = [&](const auto& self, const StepBlock& block, const std::string& indent) -> void {
    for (const ProgramStep& step : block) {
      if (step.kind == StepKind::kCalls) {
        for (size_t i = step.first_call; i < step.first_call + step.num_calls; ++i)
          if (i < program.calls.size()) print_call(program.calls[i], indent);
        continue;
      }
      if (step.kind == StepKind::kBind) {
        out += fmt::format("{}bind {} = {}{}\n", indent, symbol_text(step.symbol->name),
                           buffers.text('%', step.count_buffer), loc_text(step.loc, options));
        continue;
      }
      if (step.kind == StepKind::kCopy || step.kind == StepKind::kWait) {
        out += step.kind == StepKind::kWait
                   ? fmt::format("{}wait {}", indent, step.token)
                   : fmt::format("{}copy {} = {}", indent, buffers.text('%', step.to), buffers.text('%', step.from));
        out += loc_text(step.loc, options) + '\n';
        continue;
      }
      if (step.kind == StepKind::kStart) {
        out += fmt::format("{}start {}{}", indent, step.token, on(step.device));
      } else if (step.kind == StepKind::kBranch) {
        out += fmt::format("{}branch {}", indent, buffers.text('%', step.condition));
      } else {
        out += fmt::format("{}loop {}", indent, symbol_text(step.index.var->name));
        if (step.count_buffer >= 0) out += " < " + buffers.text('%', step.count_buffer);
        else if (step.count) out += " < " + to_string(step.count);
        if (step.condition >= 0) out += " while " + buffers.text('%', step.condition);
        const char* separator = " carry ";
        for (const CarriedValue& carried : step.carried) {
          out += fmt::format("{}{}{} = {}", separator, carried.swap ? "swap " : "", buffers.text('%', carried.current),
                             buffers.text('%', carried.next));
          separator = ", ";
        }
      }
      out += loc_text(step.loc, options) + " {\n";
      self(self, step.blocks.at(0), indent + "  ");
      if (step.kind == StepKind::kBranch && !step.blocks.at(1).empty()) {
        out += indent + "} else {\n";
        self(self, step.blocks[1], indent + "  ");
      }
      out += indent + "}\n";
    }
  };
  print_block(print_block, steps_of(program), "  ");
  return out + "}\n";
}

}  // namespace tessera::inline program
