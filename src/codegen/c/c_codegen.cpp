#include "codegen/c/c_codegen.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <regex>
#include <set>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "codegen/c/unsupported.h"
#include "codegen/common/host_plan.h"
#include "codegen/common/local_plan.h"
#include "codegen/common/run_memory.h"
#include "codegen/source/c_text.h"
#include "codegen/source/kernel_printer.h"
#include "graph/flow.h"
#include "program/memory_plan.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline c_codegen {

namespace {

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// Text inside of a comment.
std::string comment(std::string text) {
  for (size_t at = text.find("*/"); at != std::string::npos; at = text.find("*/")) text.replace(at, 2, "* /");
  for (char& c : text)
    if (c == '\n' || c == '\\') c = ' ';
  return text;
}

class Printer {
 public:
  Printer(const Program& program, const COptions& options)
      : program_(program), options_(options), plan_(program), prefix_(identifier(options.name)) {}

  CSource print() {
    name_arguments();
    lay_out_memory();
    std::string kernels = print_kernels(), run = print_run();
    std::string source = fmt::format("/* {}.c: see {}.h. Written by {}. */\n", comment(options_.name),
                                     comment(options_.name), options_.producer);
    source += fmt::format("#include \"{}.h\"\n\n#include <stddef.h>\n", options_.name);
    if (ops_.needs_math()) source += "#include <math.h>\n";
    if (ops_.needs_string()) source += "#include <string.h>\n";
    source += types_text();
    source += ops_.helper_text() + '\n';
    return {print_header(), source + weights_ + kernels + run};
  }

 private:
  using WeightKey = std::tuple<int64_t, int64_t, DType>;  // offset, bytes

  const ProgramBuffer& buffer(BufferId id) const { return program_.buffers[static_cast<size_t>(id)]; }
  BufferId own_input(size_t i) const { return program_.inputs[i]; }

  static std::string types_text() {
    return "\n/* Memory is used again for elements of other types. */\n"
           "#if defined(__GNUC__)\n#define ANY_ELEMENT __attribute__((may_alias))\n#else\n#define ANY_ELEMENT\n#endif\n"
           "typedef float ANY_ELEMENT f32;\ntypedef double ANY_ELEMENT f64;\n"
           "typedef int8_t ANY_ELEMENT i8;\ntypedef int16_t ANY_ELEMENT i16;\n"
           "typedef int32_t ANY_ELEMENT i32;\ntypedef int64_t ANY_ELEMENT i64;\n"
           "typedef uint8_t ANY_ELEMENT u8;\ntypedef uint16_t ANY_ELEMENT u16;\n"
           "typedef uint32_t ANY_ELEMENT u32;\ntypedef uint64_t ANY_ELEMENT u64;\n\n"
           "/* Products and sums are rounded one by one. */\n"
           "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n#endif\n\n";
  }

  // ---- names and memory ----

  void name_arguments() {
    // Names of the function's own, and, as names become macros in capitals, whatever differs by case alone.
    std::set<std::string> taken = {"ARENA", "STATE", "ARENA_MEMORY", "STATE_MEMORY", "COUNT", "OTHER"};
    static const std::regex own("(w|n|place)[0-9]+|k[0-9]+_.*");
    const auto name = [&](const std::string& text) {
      std::string unique = identifier(text);
      if (std::regex_match(unique, own)) unique += '_';
      while (!taken.insert(upper(unique)).second) unique += '_';
      return unique;
    };
    for (size_t i = 0; i < program_.num_own_inputs(); ++i)
      input_names_.push_back(name(buffer(program_.inputs[i]).name));
    for (size_t i = 0; i < program_.num_own_outputs(); ++i)
      output_names_.push_back(
          name(i < program_.output_names.size() ? program_.output_names[i] : buffer(program_.outputs[i]).name));
  }

  void lay_out_memory() {
    int64_t scratch = 0;
    for (const Kernel& kernel : program_.kernels)
      scratch = std::max(scratch, plan_locals(kernel.program).scratch_bytes);
    memory_ = plan_run_memory(program_, scratch);
  }

  // ---- weights ----

  // The array of a weight. Weights that share their bytes share an array; arrays are written when they are used.
  std::string weight(const ProgramBuffer& root) {
    const WeightKey key{root.offset, root.bytes, root.type.dtype};
    const auto [it, fresh] = weight_names_.emplace(key, fmt::format("w{}", weight_names_.size()));
    if (fresh) weights_ += weight_text(root, it->second);
    return it->second;
  }

  template <typename T>
  static std::vector<T> elements_of(const ProgramBuffer& weight) {
    std::vector<T> elements(static_cast<size_t>(weight.bytes) / sizeof(T));
    if (!elements.empty()) std::memcpy(elements.data(), weight.data->bytes(), elements.size() * sizeof(T));
    return elements;
  }

  std::string weight_text(const ProgramBuffer& weight, const std::string& name) {
    const DType dtype = weight.type.dtype;
    std::vector<std::string> numbers;
    const auto integers = [&](auto zero, DType type) {
      for (const auto value : elements_of<decltype(zero)>(weight))
        numbers.push_back(std::string(without_parentheses(ops_.number(type, static_cast<int64_t>(value)))));
    };
    if (dtype == DType::kF64)
      for (const double value : elements_of<double>(weight)) numbers.push_back(ops_.number(dtype, value));
    else if (dtype == DType::kF32)
      for (const float value : elements_of<float>(weight))
        numbers.push_back(std::string(without_parentheses(ops_.number(dtype, static_cast<double>(value)))));
    else if (dtype == DType::kI64) integers(int64_t{}, dtype);
    else if (dtype == DType::kU64) integers(uint64_t{}, dtype);
    else if (dtype == DType::kI32) integers(int32_t{}, dtype);
    else if (dtype == DType::kU32) integers(uint32_t{}, dtype);
    else if (dtype == DType::kI16) integers(int16_t{}, dtype);
    else if (dtype == DType::kI8) integers(int8_t{}, dtype);
    else if (dtype_bits(dtype) == 16) integers(uint16_t{}, DType::kU16);
    else integers(uint8_t{}, DType::kU8);
    if (numbers.empty()) numbers.emplace_back("0");
    weight_bytes_ += weight.bytes;
    std::string text = fmt::format("/* {}: {} */\nstatic const {} {}[{}] = {{", comment(weight.name),
                                   weight.type.to_string(), storage_type(dtype), name, numbers.size());
    size_t column = 200;
    for (const std::string& number : numbers) {
      if (column + number.size() > 118) {
        text += "\n  ";
        column = 2;
      }
      text += number + ",";
      column += number.size() + 1;
    }
    return text + "\n};\n";
  }

  // ---- kernels ----

  std::string print_kernels() {
    std::string text;
    std::set<int32_t> called;
    for (const KernelCall& call : program_.calls) called.insert(call.kernel);
    kernel_names_.resize(program_.kernels.size());
    uses_scratch_.resize(program_.kernels.size());
    for (const int32_t number : called) {
      const auto i = static_cast<size_t>(number);
      const Kernel& kernel = program_.kernels[i];
      const std::string name = fmt::format("k{}_{}", i, identifier(kernel.program.name));
      KernelPrinter printer(kernel.program, name, plan_.alias_classes[i], ops_);
      text += "\n" + (kernel.loc.empty() ? "" : fmt::format("/* {} */\n", comment(kernel.loc))) + printer.print();
      kernel_names_[i] = name;
      uses_scratch_[i] = printer.uses_scratch();
    }
    return text;
  }

  // ---- the run ----

  std::string size_text(const Expr& e) {
    if (const auto number = as_int(e)) return fmt::format("{}", *number);
    if (e->kind == ExprKind::kVar) {
      const auto slot = plan_.index_slot(e);
      check(slot.has_value(), "a size that is not a loop's index: " + e->name);
      return fmt::format("n{}", *slot);
    }
    check(e->kind == ExprKind::kBinary, "a size of another kind: " + to_string(e));
    const std::string a = size_text(e->operands[0]), b = size_text(e->operands[1]);
    switch (e->binary) {
      case BinaryOp::kAdd: return fmt::format("({} + {})", a, b);
      case BinaryOp::kSub: return fmt::format("({} - {})", a, b);
      case BinaryOp::kMul: return fmt::format("({} * {})", a, b);
      default: break;
    }
    ops_.binary(e->binary, DType::kI64, a, b);  // wants the helper
    return fmt::format("(ptrdiff_t){}", ops_.binary(e->binary, DType::kI64, a, b));
  }

  // The address of a buffer: `at`, where it lies now or at home.
  std::string pointer_text(BufferId id, const BufferAddress& at, bool writable) {
    using Base = BufferAddress::Base;
    const char* any = writable ? "(void *)" : "(const void *)";
    const char* bytes = writable ? "(unsigned char *)" : "(const unsigned char *)";
    std::string base;
    int64_t offset = at.offset;
    switch (at.base) {
      case Base::kArena: base = "arena"; break;
      case Base::kWeights: {
        const ProgramBuffer& root = buffer(root_buffer(program_, id));
        const std::string name = weight(root);
        offset = at.moves ? 0 : at.offset - root.offset;
        if (offset == 0 && at.way.empty()) return name;
        base = fmt::format("(const unsigned char *){}", name);
        bytes = "";
        break;
      }
      case Base::kInput: base = input_text(static_cast<size_t>(at.index)); break;
      case Base::kOutput: base = output_text(static_cast<size_t>(at.index)); break;
      case Base::kPlace: base = fmt::format("place{}", at.index); break;
      case Base::kPart: throw InternalError("a part of the arena in a program of fixed sizes");
    }
    std::string way;
    for (const Expr& step : at.way)
      if (!is_const_int(step, 0)) way += " + " + size_text(step);
    const bool is_bytes = at.base == Base::kArena || at.base == Base::kPlace || at.base == Base::kWeights ||
                          base.find("arena + ") == 0 || base.find("state + ") == 0;
    if (offset == 0 && way.empty() && !is_bytes) return base;
    if (!is_bytes) base = bytes + base;
    if (offset != 0) way = fmt::format(" + {}", offset) + way;
    return fmt::format("{}({}{})", any, base, way);
  }

  std::string input_text(size_t number) const {
    if (number < program_.num_own_inputs()) return input_names_[number];
    return fmt::format("state + {}", memory_.states[number - program_.num_own_inputs()]);
  }
  std::string output_text(size_t number) const {
    if (number < program_.num_own_outputs()) return output_names_[number];
    const size_t behind = number - program_.num_own_outputs();
    if (behind >= program_.states.size())
      return fmt::format("arena + {}", memory_.checks[behind - program_.states.size()]);
    if (memory_.next_states[behind] < 0) return fmt::format("state + {}", memory_.states[behind]);
    return fmt::format("arena + {}", memory_.next_states[behind]);
  }

  void line(const std::string& text) { run_ += std::string(static_cast<size_t>(2 * depth_), ' ') + text + '\n'; }

  void emit_call(const KernelCall& call) {
    const auto number = static_cast<size_t>(call.kernel);
    const LoopProgram& kernel = program_.kernels[number].program;
    const size_t num_inputs = call.args.size() - static_cast<size_t>(kernel.num_outputs);
    std::string text = kernel_names_[number] + "(";
    for (size_t i = 0; i < call.args.size(); ++i)
      text += (i ? ", " : "") + pointer_text(call.args[i], plan_.address(call.args[i], false), i >= num_inputs);
    if (uses_scratch_[number]) text += fmt::format(", arena + {}", memory_.scratch);
    for (const Var& symbol : kernel.symbols) text += ", " + size_text(symbol);
    line(text + ");");
  }

  std::string read(BufferId id, const char* type) {
    return fmt::format("*(const {} *)(const void *){}", type, pointer_text(id, plan_.address(id, false), false));
  }
  void copy(const std::string& to, const std::string& from, int64_t bytes) {
    ops_.use_string();
    line(fmt::format("memcpy({}, {}, {});", to, from, bytes));
  }

  void emit_steps(const StepBlock& steps) {
    for (const ProgramStep& step : steps) {
      switch (step.kind) {
        case StepKind::kCalls:
          for (size_t i = 0; i < step.num_calls; ++i) emit_call(program_.calls[step.first_call + i]);
          break;
        case StepKind::kBranch:
          line(fmt::format("if ({}) {{", read(step.condition, "u8")));
          emit_nested(step.blocks[0]);
          line("} else {");
          emit_nested(step.blocks[1]);
          line("}");
          break;
        case StepKind::kLoop: emit_loop(step); break;
        default: throw InternalError("a step that is not supported in C");
      }
    }
  }

  void emit_nested(const StepBlock& steps) {
    ++depth_;
    emit_steps(steps);
    --depth_;
  }

  void emit_loop(const ProgramStep& step) {
    const int slot = *plan_.index_slot(step.index.var);
    std::string ends;
    if (step.index.hi != INT64_MAX) ends = fmt::format("n{} <= {}", slot, step.index.hi);
    const auto also = [&](const std::string& condition) { ends += (ends.empty() ? "" : " && ") + condition; };
    line("{");
    ++depth_;
    if (step.count_buffer >= 0) line(fmt::format("const i64 count = {};", read(step.count_buffer, "i64")));
    else if (step.count) line(fmt::format("const i64 count = {};", size_text(step.count)));
    if (step.count_buffer >= 0 || step.count) also(fmt::format("n{} < count", slot));
    if (step.condition >= 0) also(read(step.condition, "u8"));
    check(!ends.empty(), "a loop that never ends");
    line(fmt::format("for (n{0} = 0; {1}; ++n{0}) {{", slot, ends));
    ++depth_;
    emit_steps(step.blocks[0]);
    for (const CarriedValue& carried : step.carried) {
      if (!carried.swap) {
        copy(pointer_text(carried.current, plan_.address(carried.current, false), true),
             pointer_text(carried.next, plan_.address(carried.next, false), false), buffer(carried.current).bytes);
        continue;
      }
      const int current = plan_.place_slots.at(carried.current), next = plan_.place_slots.at(carried.next);
      line(fmt::format("{{ unsigned char *other = place{0}; place{0} = place{1}; place{1} = other; }}", current, next));
    }
    --depth_;
    line("}");
    // Behind the loop, what was carried lies where everybody else looks for it.
    for (const CarriedValue& carried : step.carried) {
      if (!carried.swap) continue;
      const int current = plan_.place_slots.at(carried.current), next = plan_.place_slots.at(carried.next);
      const std::string home = pointer_text(carried.current, plan_.home(carried.current, false), true);
      line(fmt::format("if (place{} != {}) {{", current, home));
      ++depth_;
      copy(home, fmt::format("place{}", current), buffer(carried.current).bytes);
      line(fmt::format("place{} = {};", current, home));
      line(fmt::format("place{} = {};", next, pointer_text(carried.next, plan_.home(carried.next, false), true)));
      --depth_;
      line("}");
    }
    --depth_;
    line("}");
  }

  std::string print_run() {
    for_each_step(program_.steps, [&](const ProgramStep& step) {
      if (step.kind == StepKind::kLoop) line(fmt::format("ptrdiff_t n{} = 0;", *plan_.index_slot(step.index.var)));
    });
    for (const auto& [id, slot] : plan_.place_slots)
      line(fmt::format("unsigned char *place{} = {};", slot, pointer_text(id, plan_.home(id, false), true)));
    if (program_.steps.empty())
      for (const KernelCall& call : program_.calls) emit_call(call);
    else emit_steps(program_.steps);
    for (size_t i = 0; i < program_.checks.size(); ++i)
      line(fmt::format("if (*(const i64 *)(const void *)(arena + {}) == 0) return {};", memory_.checks[i], i + 1));
    for (size_t i = 0; i < program_.states.size(); ++i)
      if (memory_.next_states[i] >= 0)
        copy(fmt::format("state + {}", memory_.states[i]), fmt::format("arena + {}", memory_.next_states[i]),
             buffer(program_.inputs[program_.num_own_inputs() + i]).bytes);
    std::string text = fmt::format("\n{} {{\n", run_signature());
    text += "  unsigned char *const arena = arena_memory;\n";
    if (!program_.states.empty()) text += "  unsigned char *const state = state_memory;\n";
    text += "  (void)arena;\n";
    if (!program_.states.empty()) text += "  (void)state;\n";
    for (const std::string& name : input_names_) text += fmt::format("  (void){};\n", name);
    text += run_ + "  return 0;\n}\n";
    return text + print_reset();
  }

  std::string print_reset() {
    if (program_.states.empty()) return {};
    run_.clear();
    for (size_t i = 0; i < program_.states.size(); ++i) {
      const int64_t bytes = buffer(program_.inputs[program_.num_own_inputs() + i]).bytes;
      const BufferId initial = program_.states[i].initial;
      const std::string place = fmt::format("state + {}", memory_.states[i]);
      ops_.use_string();
      if (initial >= 0) copy(place, pointer_text(initial, plan_.home(initial, false), false), bytes);
      else line(fmt::format("memset({}, 0, {});", place, bytes));
    }
    return fmt::format("\nvoid {}_reset(void *state_memory) {{\n  unsigned char *const state = state_memory;\n{}}}\n",
                       prefix_, run_);
  }

  // ---- the header ----

  std::string run_signature() const {
    std::string text = fmt::format("int {}_run(", prefix_);
    for (size_t i = 0; i < input_names_.size(); ++i)
      text += fmt::format("const {} *{}, ", public_type(buffer(program_.inputs[i]).type.dtype), input_names_[i]);
    for (size_t i = 0; i < output_names_.size(); ++i)
      text += fmt::format("{} *{}, ", public_type(buffer(program_.outputs[i]).type.dtype), output_names_[i]);
    if (!program_.states.empty()) text += "void *state_memory, ";
    return text + "void *arena_memory)";
  }

  std::string argument_text(const char* role, BufferId id, const std::string& name, const std::string& original) const {
    const ProgramBuffer& b = buffer(id);
    const DType dtype = b.type.dtype;
    std::string note = name == original ? "" : fmt::format(" ('{}' in the model)", comment(original));
    if (dtype == DType::kF16 || dtype == DType::kBF16) note += ", the bits of each element";
    if (dtype == DType::kBool) note += ", 0 or 1 each";
    return fmt::format("/* {} {}: {}{} */\n#define {}_{}_ELEMENTS {}\n", role, name, b.type.to_string(), note,
                       upper(prefix_), upper(name), b.bytes * 8 / dtype_bits(dtype));
  }

  std::string print_header() const {
    const std::string big = upper(prefix_);
    std::string text = fmt::format(
        "/* {}: a neural network. Written by {}; it calls no allocator, opens no file and starts no thread.\n"
        "   Compile {}.c with -std=c99{}. */\n"
        "#ifndef {}_H_\n#define {}_H_\n\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n",
        comment(program_.name), options_.producer, comment(options_.name), ops_.needs_math() ? ", and link -lm" : "",
        big, big);
    for (size_t i = 0; i < input_names_.size(); ++i)
      text += argument_text("Input", program_.inputs[i], input_names_[i], buffer(program_.inputs[i]).name);
    for (size_t i = 0; i < output_names_.size(); ++i)
      text +=
          argument_text("Output", program_.outputs[i], output_names_[i],
                        i < program_.output_names.size() ? program_.output_names[i] : buffer(program_.outputs[i]).name);
    text += fmt::format(
        "\n/* Memory of a run, from the caller, at an address that is a multiple of 8; its contents do not matter:\n"
        "     static uint64_t arena[({0}_ARENA_BYTES + 7) / 8]; */\n#define {0}_ARENA_BYTES {1}\n"
        "/* Constant arrays in {2}.c. */\n#define {0}_WEIGHT_BYTES {3}\n",
        big, memory_.arena_bytes, comment(options_.name), weight_bytes_);
    if (!program_.states.empty())
      text += fmt::format(
          "\n/* Memory of what lives from run to run, from the caller, aligned as the arena. {0}_reset gives the "
          "values\n"
          "   from before the first run. */\n#define {1}_STATE_BYTES {2}\nvoid {0}_reset(void *state_memory);\n",
          prefix_, big, memory_.state_bytes);
    text +=
        "\n/* Inputs and outputs are row-major and do not overlap. Runs at the same time need an arena each. Answers 0";
    for (size_t i = 0; i < program_.checks.size(); ++i)
      text += fmt::format(";\n   {} when {} is not {}", i + 1, comment(program_.checks[i].what),
                          comment(program_.checks[i].legal));
    text += fmt::format(". */\n{};\n\n#ifdef __cplusplus\n}}\n#endif\n#endif\n", run_signature());
    return text;
  }

  const Program& program_;
  const COptions& options_;
  const HostPlan plan_;
  const std::string prefix_;
  COps ops_;
  std::vector<std::string> input_names_, output_names_, kernel_names_;
  std::vector<bool> uses_scratch_;
  std::map<WeightKey, std::string> weight_names_;
  RunMemory memory_;
  int64_t weight_bytes_ = 0;
  std::string weights_, run_;
  int depth_ = 1;
};

}  // namespace

CSource generate_c(const Program& program, const COptions& options) {
  refuse_unsupported(program);
  return Printer(program, options).print();
}

}  // namespace tessera::inline c_codegen
