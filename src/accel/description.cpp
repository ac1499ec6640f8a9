#include "accel/description.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "arith/expr_parser.h"
#include "loop/intrinsic_text.h"
#include "support/error.h"

namespace tessera::inline accel {

namespace {

using nlohmann::json;

constexpr int64_t kMostBytes = int64_t{1} << 30, kMostCycles = int64_t{1} << 20;
constexpr size_t kMostQueues = 8, kMostMemories = 16, kMostInstructions = 64, kMostLoops = 8;

bool uses(const LoopProgram& kernel, const Buffer& buffer) {
  bool found = false;
  walk(
      kernel.body, [&](const Stmt& s) { found = found || (s->kind == StmtKind::kStore && s->buffer.get() == &buffer); },
      [&](const Expr& e) { found = found || (e->kind == ExprKind::kLoad && e->buffer.get() == &buffer); });
  return found;
}

class Description {
 public:
  explicit Description(std::string file) : file_(std::move(file)) {}

  Accelerator read(std::string_view text) {
    const json root = json::parse(text, nullptr, false, true);
    if (!root.is_object()) fail("this is no JSON object", "see docs/accelerator.md");
    only(root, "the file",
         {"name", "clock_mhz", "dram", "fetch", "threads", "memories", "queues", "instructions", "about"});
    Accelerator result;
    result.name = name(root, "name", "the file");
    const json& clock = at(root, "clock_mhz", "the file");
    if (!clock.is_number() || !(clock.get<double>() > 0)) fail("clock_mhz is no number above 0", "\"clock_mhz\": 200");
    result.clock_mhz = clock.get<double>();
    const json& dram = object(root, "dram", "the file");
    only(dram, "dram", {"bytes_per_cycle", "latency", "burst", "about"});
    result.dram_bytes_per_cycle = integer(dram, "bytes_per_cycle", "dram", 1, 4096);
    result.dram_latency = integer(dram, "latency", "dram", 0, kMostCycles);
    result.dram_burst = integer(dram, "burst", "dram", 1, 4096);
    const json& fetch = object(root, "fetch", "the file");
    only(fetch, "fetch", {"cycles", "queue_depth", "about"});
    result.fetch_cycles = integer(fetch, "cycles", "fetch", 1, kMostCycles);
    result.queue_depth = integer(fetch, "queue_depth", "fetch", 1, kMostCycles);
    if (root.contains("threads")) result.threads = static_cast<int>(integer(root, "threads", "the file", 1, 2));
    for (const json& entry : list(root, "memories", kMostMemories)) {
      only(entry, "a memory", {"name", "bytes", "element", "about"});
      UnitMemory memory;
      memory.name = name(entry, "name", "a memory");
      memory.bytes = integer(entry, "bytes", memory.name, 1, kMostBytes);
      memory.element = integer(entry, "element", memory.name, 1, memory.bytes);
      if (memory.name == "dram" || index_of(result.memories, memory.name) >= 0)
        fail(fmt::format("a second memory '{}'", memory.name), "names of their own");
      if (memory.bytes % memory.element)
        fail(fmt::format("memory '{}' has {} bytes in elements of {}", memory.name, memory.bytes, memory.element),
             "a whole number of elements");
      result.memories.push_back(memory);
    }
    for (const json& entry : list(root, "queues", kMostQueues)) {
      if (!entry.is_string() || entry.get<std::string>().empty())
        fail("a queue has no name", "\"queues\": [\"load\", ..]");
      if (std::count(result.queues.begin(), result.queues.end(), entry.get<std::string>()))
        fail(fmt::format("a second queue '{}'", entry.get<std::string>()), "names of their own");
      result.queues.push_back(entry.get<std::string>());
    }
    read_instructions(result, list(root, "instructions", kMostInstructions));
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& message, const std::string& legal) const {
    throw UserError({.id = "TSR-3501",
                     .message = fmt::format("the description of an accelerator: {}", message),
                     .node = file_,
                     .legal = legal,
                     .hint = {}});
  }

  void only(const json& entry, const std::string& where, const std::set<std::string>& known) const {
    if (!entry.is_object()) fail(fmt::format("{} is no object", where), fmt::format("{}", fmt::join(known, ", ")));
    for (const auto& [key, value] : entry.items())
      if (!known.contains(key)) fail(fmt::format("{} has '{}'", where, key), fmt::format("{}", fmt::join(known, ", ")));
  }

  const json& at(const json& entry, const char* key, const std::string& where) const {
    const auto it = entry.find(key);
    if (it == entry.end()) fail(fmt::format("{} has no '{}'", where, key), "see docs/accelerator.md");
    return *it;
  }

  const json& object(const json& entry, const char* key, const std::string& where) const {
    const json& value = at(entry, key, where);
    if (!value.is_object()) fail(fmt::format("'{}' of {} is no object", key, where), "{..}");
    return value;
  }

  const json& list(const json& root, const char* key, size_t most) const {
    const json& value = at(root, key, "the file");
    if (!value.is_array() || value.empty() || value.size() > most)
      fail(fmt::format("'{}' is no list of 1 to {} entries", key, most), "[..]");
    return value;
  }

  std::string name(const json& entry, const char* key, const std::string& where) const {
    const json& value = at(entry, key, where);
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    const bool legal =
        !text.empty() && text.size() < 64 &&
        std::all_of(
            text.begin(), text.end(),
            [](char c) {
              return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
            });
    if (!legal) fail(fmt::format("'{}' of {} is no name", key, where), "letters, digits and '_'");
    return text;
  }

  int64_t integer(const json& entry, const char* key, const std::string& where, int64_t least, int64_t most) const {
    const json& value = at(entry, key, where);
    if (!value.is_number_integer() || value.get<int64_t>() < least || value.get<int64_t>() > most)
      fail(fmt::format("'{}' of {} is no number from {} to {}", key, where, least, most), "");
    return value.get<int64_t>();
  }

  static int index_of(const std::vector<UnitMemory>& memories, const std::string& name) {
    for (size_t i = 0; i < memories.size(); ++i)
      if (memories[i].name == name) return static_cast<int>(i);
    return kDram;
  }

  void read_instructions(Accelerator& unit, const json& entries) const {
    std::vector<json> immediates;
    std::string text;  // of the intrinsics
    for (const json& entry : entries) {
      only(entry, "an instruction",
           {"name", "queue", "loops", "cycles", "operands", "kernel", "padded", "moves", "stationary", "immediates",
            "extent_bits", "about"});
      UnitInstruction instruction;
      instruction.name = name(entry, "name", "an instruction");
      const std::string where = fmt::format("instruction '{}'", instruction.name);
      const json& queue = at(entry, "queue", where);
      const auto found = std::find(unit.queues.begin(), unit.queues.end(),
                                   queue.is_string() ? queue.get<std::string>() : std::string());
      if (found == unit.queues.end())
        fail(fmt::format("{} is in no queue", where), fmt::format("{}", fmt::join(unit.queues, ", ")));
      instruction.queue = static_cast<int>(found - unit.queues.begin());
      instruction.loops = static_cast<int>(integer(entry, "loops", where, 0, kMostLoops));
      if (entry.contains("extent_bits"))
        instruction.extent_bits = static_cast<int>(integer(entry, "extent_bits", where, 1, 24));
      const json& kernel = at(entry, "kernel", where);
      if (!kernel.is_string()) fail(fmt::format("{} has no kernel", where), "\"kernel\": \"kernel @..\"");
      text +=
          fmt::format("intrinsic \"{}.{}\" {{\n  pattern {}\n", unit.name, instruction.name, kernel.get<std::string>());
      if (entry.contains("padded")) {
        for (const json& padded : entry["padded"])
          text += fmt::format("  padded {}\n", padded.is_string() ? padded.get<std::string>() : "?");
      }
      if (entry.contains("moves")) {
        if (!entry["moves"].is_boolean()) fail(fmt::format("'moves' of {} is not true or false", where), "true");
        if (entry["moves"].get<bool>()) text += "  moves\n";
      }
      if (entry.contains("immediates"))
        for (const auto& [symbol, range] : object(entry, "immediates", where).items()) {
          if (!range.is_array() || range.size() != 2 || !range[0].is_number_integer() ||
              !range[1].is_number_integer() || range[0].get<int64_t>() > range[1].get<int64_t>())
            fail(fmt::format("immediate '{}' of {} has no range", symbol, where), "\"n\": [-128, 127]");
          text += fmt::format("  range {} {}..{}\n", symbol, range[0].get<int64_t>(), range[1].get<int64_t>());
        }
      text += fmt::format("  body {}\n}}\n", kernel.get<std::string>());
      for (int i = 0; i < instruction.loops; ++i) instruction.extents.push_back(make_var(fmt::format("n{}", i)));
      instruction.cycles = formula(entry, where, instruction.extents);
      unit.instructions.push_back(std::move(instruction));
    }
    const Intrinsics intrinsics = parse_intrinsics(text, file_);
    for (size_t i = 0; i < unit.instructions.size(); ++i) bind(unit, unit.instructions[i], *intrinsics[i], entries[i]);
  }

  Expr formula(const json& entry, const std::string& where, const std::vector<Var>& extents) const {
    const json& cycles = at(entry, "cycles", where);
    if (cycles.is_number_integer()) return Expr(cycles.get<int64_t>());
    if (!cycles.is_string()) fail(fmt::format("'cycles' of {} is no expression", where), "\"n0 * n1 + 4\"");
    const std::string text = cycles.get<std::string>();
    ExprScope scope;
    for (const Var& extent : extents) scope.names[extent->name] = extent;
    TextReader reader(text, fmt::format("{}: cycles of {}", file_, where));
    Expr result = parse_expr(reader, scope);
    if (!reader.at_end() || result.dtype() != DType::kI64)
      fail(fmt::format("'cycles' of {} is no expression of i64", where), "\"n0 * n1 + 4\"");
    return result;
  }

  void bind(const Accelerator& unit, UnitInstruction& instruction, const TensorIntrinsic& intrinsic,
            const json& entry) const {
    const std::string where = fmt::format("instruction '{}'", instruction.name);
    instruction.intrinsic = &intrinsic;
    const LoopProgram& kernel = *intrinsic.pattern();
    const PatternRules& rules = intrinsic.patterns[0].rules;
    const json& operands = object(entry, "operands", where);
    int in_dram = 0;
    for (const BufferPtr& param : kernel.params) {
      const json& memory = at(operands, param->name.c_str(), where + "'s operands");
      const std::string text = memory.is_string() ? memory.get<std::string>() : "";
      const int index = index_of(unit.memories, text);
      if (index == kDram && text != "dram")
        fail(fmt::format("operand '{}' of {} is in no memory", param->name, where), "a memory's name, or dram");
      for (const Expr& extent : param->shape)
        if (!as_int(extent)) fail(fmt::format("operand '{}' of {} has an open shape", param->name, where), "numbers");
      if (!uses(kernel, *param))
        fail(fmt::format("operand '{}' of {} is neither read nor written by its kernel", param->name, where),
             "parameters that the kernel uses");
      if (rules.padded.contains(param->name) && instruction.loops == 0)
        fail(fmt::format("operand '{}' of {} is padded, and there is no loop", param->name, where),
             "a loop, outside of whose steps it is zeros");
      in_dram += index == kDram;
      instruction.operands.push_back(index);
      instruction.padded.push_back(rules.padded.contains(param->name));
      const int64_t bytes = core_bytes(instruction, instruction.operands.size() - 1);
      if (index != kDram && bytes % unit.memories[static_cast<size_t>(index)].element)
        fail(fmt::format("operand '{}' of {} has {} bytes, in a memory of elements of {}", param->name, where, bytes,
                         unit.memories[static_cast<size_t>(index)].element),
             "a whole number of elements");
    }
    instruction.stationary.assign(kernel.params.size(), 0);
    if (entry.contains("stationary")) {
      const json& stationary = object(entry, "stationary", where);
      std::set<std::string> names;
      for (const BufferPtr& param : kernel.params) names.insert(param->name);
      only(stationary, where + "'s 'stationary'", names);
      for (size_t p = 0; p < kernel.params.size(); ++p)
        if (stationary.contains(kernel.params[p]->name))
          instruction.stationary[p] =
              static_cast<int>(integer(stationary, kernel.params[p]->name.c_str(), where, 1, instruction.loops));
    }
    if (operands.size() != kernel.params.size())
      fail(
          fmt::format("{} has {} operands, and its kernel {} parameters", where, operands.size(), kernel.params.size()),
          "a memory for each");
    if (in_dram > 1) fail(fmt::format("{} has {} operands in DRAM", where, in_dram), "one at most");
    for (const Var& symbol : kernel.symbols)
      if (!rules.ranges.contains(symbol->name))
        fail(fmt::format("immediate '{}' of {} has no range", symbol->name, where), "\"immediates\": {\"n\": [0, 31]}");
  }

  const std::string file_;
};

}  // namespace

int UnitInstruction::dram_operand() const {
  const auto it = std::find(operands.begin(), operands.end(), kDram);
  return it == operands.end() ? -1 : static_cast<int>(it - operands.begin());
}

Intrinsics Accelerator::intrinsics() const {
  Intrinsics result;
  for (const UnitInstruction& instruction : instructions) result.push_back(instruction.intrinsic);
  return result;
}

const UnitInstruction* Accelerator::find(const TensorIntrinsic* intrinsic) const {
  for (const UnitInstruction& instruction : instructions)
    if (instruction.intrinsic == intrinsic) return &instruction;
  return nullptr;
}

Accelerator read_accelerator(std::string_view text, const std::string& file) { return Description(file).read(text); }

int64_t core_bytes(const UnitInstruction& instruction, size_t operand) {
  const Buffer& param = *instruction.intrinsic->pattern()->params[operand];
  int64_t elements = 1;
  for (const Expr& extent : param.shape) elements *= as_int(extent).value_or(1);
  return dtype_bytes(param.dtype, elements);
}

}  // namespace tessera::inline accel
