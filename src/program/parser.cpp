#include "program/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "graph/tensor_text.h"
#include "loop/parser.h"
#include "program/steps.h"
#include "program/symbolic_sizes.h"
#include "support/error.h"
#include "support/text_reader.h"

namespace tessera::inline program {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : reader_(text, std::string(file)) {}

  Program run() {
    reader_.expect("program");
    program_.name = reader_.name('@', "a program");
    TextReader symbols_start = reader_;
    if (reader_.accept("[")) program_.symbols = parse_symbols(reader_, scope_);
    for (const SymbolRange& symbol : program_.symbols) {
      if (symbol.hi > kMaxSymbol)
        symbols_start.fail("TSR-3204", fmt::format("symbol {} has no largest value", symbol.var->name),
                           "a range that ends, at 2^40 at most");
      symbols_.push_back(symbol.var);
    }
    // The buffers of the signature are defined further down.
    const std::vector<std::string> inputs = names();
    reader_.expect("->");
    const std::vector<std::string> outputs = names();
    TextReader after_signature = reader_;
    reader_.expect("{");
    reader_.expect("plan");
    program_.arena_bytes = size("arena");
    program_.weight_bytes = size("weights");
    program_.scratch_bytes = size("scratch");
    view_scope_ = scope_;
    while (reader_.accept("device")) device();
    while (reader_.accept("index")) index();
    while (reader_.accept("check")) {
      RuntimeCheck& check = program_.checks.emplace_back();
      check.what = reader_.quoted("what is checked");
      reader_.expect(",");
      check.legal = reader_.quoted("what is legal");
    }
    std::vector<std::pair<size_t, std::string>> initial;  // of which state
    TextReader before_states = reader_;
    while (reader_.accept("state")) {
      program_.states.push_back({reader_.quoted("the name of a state")});
      if (reader_.accept("=")) initial.emplace_back(program_.states.size() - 1, reader_.name('%', "a buffer"));
    }
    while (!reader_.accept("}")) statement();
    const auto has_blocks = [](const ProgramStep& step) { return step.kind != StepKind::kCalls; };
    if (std::any_of(body_.begin(), body_.end(), has_blocks)) program_.steps = std::move(body_);
    if (!reader_.at_end()) reader_.fail_expected("the end of the text");
    for (TakesOver& over : overs_)
      program_.buffers[static_cast<size_t>(over.id)].over = find_buffer(over.at, over.name);
    for (const auto& [state, name] : initial) program_.states[state].initial = find_buffer(before_states, name);
    for (const std::string& name : inputs) program_.inputs.push_back(find_buffer(after_signature, name));
    for (const std::string& name : outputs) program_.outputs.push_back(find_buffer(after_signature, name));
    return std::move(program_);
  }

 private:
  std::vector<std::string> names() {
    std::vector<std::string> result;
    reader_.expect("(");
    if (reader_.accept(")")) return result;
    do {
      result.push_back(reader_.name('%', "a buffer"));
    } while (reader_.accept(","));
    reader_.expect(")");
    return result;
  }

  int64_t size(const char* word) {
    reader_.expect(word);
    return not_negative(word);
  }

  int64_t not_negative(const char* what) {
    TextReader start = reader_;
    const int64_t value = reader_.integer(what);
    if (value < 0) start.fail("TSR-3201", fmt::format("{} of {}", what, value), "0 or more");
    return value;
  }

  BufferId find_buffer(TextReader& at, const std::string& name) {
    const auto it = buffers_.find(name);
    if (it == buffers_.end())
      at.fail("TSR-3202", fmt::format("there is no buffer '%{}'", name), "buffers that are defined above");
    return it->second;
  }

  std::string loc() {
    if (!reader_.accept("loc")) return "";
    reader_.expect("(");
    std::string text = reader_.quoted("a location");
    reader_.expect(")");
    return text;
  }

  void statement() {
    if (reader_.accept("buffer")) return buffer();
    if (reader_.accept("define")) return kernel();
    if (step(body_)) return;
    reader_.fail_expected("buffer, define, call, branch, loop, bind, start, wait or '}'");
  }

  // "device gpu "null" arena 0 weights 0".
  void device() {
    TextReader start = reader_;
    ProgramDevice device;
    device.name = reader_.symbol("a device");
    for (const ProgramDevice& known : program_.devices)
      if (known.name == device.name)
        start.fail("TSR-3203", fmt::format("device {} is declared twice", symbol_text(device.name)));
    device.kind = reader_.quoted("a back end");
    if (reader_.accept("in")) {
      reader_.expect("host");
      device.in_host_memory = true;
    }
    device.arena_bytes = size("arena");
    device.weight_bytes = size("weights");
    program_.devices.push_back(std::move(device));
  }

  int32_t on_device() {
    if (!reader_.accept("on")) return 0;
    TextReader start = reader_;
    const std::string name = reader_.symbol("a device");
    for (size_t i = 0; i < program_.devices.size(); ++i)
      if (program_.devices[i].name == name) return static_cast<int32_t>(i) + 1;
    start.fail("TSR-3202", fmt::format("there is no device {}", symbol_text(name)), "devices that are declared above");
  }

  // "index t < 10": the symbol of a loop further down.
  void index() {
    TextReader start = reader_;
    SymbolRange range{{}, 0, INT64_MAX, 1};
    const std::string name = reader_.symbol("an index");
    if (view_scope_.count(name) != 0) start.fail("TSR-3203", fmt::format("symbol {} is declared twice", name));
    if (reader_.accept("<")) range.hi = not_negative("a largest number of iterations") - 1;
    range.var = make_var(name);
    view_scope_[name] = range.var;
    symbols_.push_back(range.var);
    indices_.push_back(range);
  }

  bool step(StepBlock& block) {
    if (reader_.accept("call")) call(block);
    else if (reader_.accept("branch")) branch(block);
    else if (reader_.accept("loop")) loop(block);
    else if (reader_.accept("bind")) bind(block);
    else if (reader_.accept("start")) start(block);
    else if (reader_.accept("wait")) wait(block);
    else if (reader_.accept("copy")) copy(block);
    else return false;
    return true;
  }

  StepBlock block() {
    StepBlock result;
    if (++depth_ > kMaxDepth) reader_.fail("TSR-3201", fmt::format("more than {} blocks inside each other", kMaxDepth));
    reader_.expect("{");
    while (!reader_.accept("}"))
      if (!step(result)) reader_.fail_expected("call, branch, loop, bind, start, wait, copy or '}'");
    --depth_;
    return result;
  }

  BufferId step_buffer(const char* what) {
    TextReader start = reader_;
    return find_buffer(start, reader_.name('%', what));
  }

  void branch(StepBlock& block_around) {
    ProgramStep step;
    step.kind = StepKind::kBranch;
    step.condition = step_buffer("a buffer of one bool");
    step.loc = loc();
    step.blocks.push_back(block());
    step.blocks.push_back(reader_.accept("else") ? block() : StepBlock());
    block_around.push_back(std::move(step));
  }

  int32_t token() {
    TextReader start = reader_;
    const int64_t number = not_negative("the number of a start");
    if (number > INT32_MAX) start.fail("TSR-3201", fmt::format("a start of number {}", number), "less than 2^31");
    return static_cast<int32_t>(number);
  }

  void start(StepBlock& block_around) {
    ProgramStep step;
    step.kind = StepKind::kStart;
    step.token = token();
    step.device = on_device();
    step.loc = loc();
    step.blocks.push_back(block());
    block_around.push_back(std::move(step));
  }

  void wait(StepBlock& block_around) {
    ProgramStep step;
    step.kind = StepKind::kWait;
    step.token = token();
    step.loc = loc();
    block_around.push_back(std::move(step));
  }

  void copy(StepBlock& block_around) {
    ProgramStep step;
    step.kind = StepKind::kCopy;
    step.to = step_buffer("a buffer");
    reader_.expect("=");
    step.from = step_buffer("a buffer");
    step.loc = loc();
    block_around.push_back(std::move(step));
  }

  void bind(StepBlock& block_around) {
    ProgramStep step;
    step.kind = StepKind::kBind;
    TextReader start = reader_;
    const std::string name = reader_.symbol("a symbol");
    for (const SymbolRange& symbol : program_.symbols)
      if (symbol.is_data() && symbol.var->name == name) step.symbol = symbol.var;
    if (!step.symbol)
      start.fail("TSR-3202", fmt::format("there is no symbol '{}' to bind", name), "symbols declared with `upto`");
    reader_.expect("=");
    step.count_buffer = step_buffer("a buffer of one i64");
    step.loc = loc();
    block_around.push_back(std::move(step));
  }

  void loop(StepBlock& block_around) {
    ProgramStep step;
    step.kind = StepKind::kLoop;
    TextReader start = reader_;
    const std::string name = reader_.symbol("an index");
    const auto known =
        std::find_if(indices_.begin(), indices_.end(), [&](const SymbolRange& i) { return i.var->name == name; });
    if (known == indices_.end())
      start.fail("TSR-3202", fmt::format("there is no index '{}'", name), "indices that are declared above");
    step.index = *known;
    if (reader_.accept("<")) {
      if (reader_.peek_is("%")) step.count_buffer = step_buffer("a buffer of one i64");
      else step.count = parse_size(reader_, scope_);
    }
    if (reader_.accept("while")) step.condition = step_buffer("a buffer of one bool");
    if (reader_.accept("carry")) {
      do {
        CarriedValue carried;
        carried.swap = reader_.accept("swap");
        carried.current = step_buffer("a buffer");
        reader_.expect("=");
        carried.next = step_buffer("a buffer");
        step.carried.push_back(carried);
      } while (reader_.accept(","));
    }
    step.loc = loc();
    step.blocks.push_back(block());
    block_around.push_back(std::move(step));
  }

  void buffer() {
    ProgramBuffer buffer;
    TextReader start = reader_;
    buffer.name = reader_.name('%', "a buffer");
    if (buffers_.count(buffer.name) != 0)
      start.fail("TSR-3203", fmt::format("buffer '%{}' is defined twice", buffer.name));
    reader_.expect(":");
    TextReader type_start = reader_;
    buffer.type = parse_type(reader_, scope_);
    const SizePoint largest = largest_sizes(program_.symbols);
    std::vector<int64_t> dims;
    for (const Expr& dim : physical_shape(buffer.type.shape, buffer.type.layout))
      dims.push_back(value_at(dim, program_.symbols, largest));
    const auto bytes = checked_bytes(buffer.type.dtype, dims);
    if (!bytes)
      type_start.fail("TSR-3204", fmt::format("the type {} has no size", buffer.type.to_string()),
                      "dimensions from 0, less than 2^63 bits in all");
    buffer.bytes = *bytes;
    kind(buffer);
    buffer.device = on_device();
    if (reader_.accept("at")) buffer.offset = not_negative("an offset");
    if (reader_.accept("alias")) {
      TextReader alias_start = reader_;
      buffer.alias_of = find_buffer(alias_start, reader_.name('%', "a buffer"));
      if (reader_.accept("from")) {
        TextReader from_start = reader_;
        const Expr from = parse_size(reader_, view_scope_);
        if (!set_view_offset(buffer, from, program_.symbols, indices_))
          from_start.fail("TSR-3204",
                          fmt::format("the begin of a view, {}, has no smallest and largest value", to_string(from)),
                          "symbols and indices with a largest value");
        if (buffer.view_offset < 0)
          from_start.fail("TSR-3201", fmt::format("the begin of a view of {}", buffer.view_offset), "0 or more");
      }
    }
    if (reader_.accept("over")) {
      const TextReader over_start = reader_;
      overs_.push_back({static_cast<BufferId>(program_.buffers.size()), reader_.name('%', "a buffer"), over_start});
    }
    if (reader_.accept("=")) {
      for (const char* keyword : {"dense", "splat", "hex", "elided"})
        if (!buffer.data && reader_.accept(keyword)) buffer.data = parse_tensor(reader_, keyword);
      if (!buffer.data) reader_.fail_expected("dense, splat, hex or elided");
    }
    buffers_.emplace(buffer.name, static_cast<BufferId>(program_.buffers.size()));
    program_.buffers.push_back(std::move(buffer));
  }

  void kind(ProgramBuffer& buffer) {
    for (const BufferKind kind : {BufferKind::kInput, BufferKind::kOutput, BufferKind::kWeight, BufferKind::kArena}) {
      if (!reader_.accept(buffer_kind_name(kind))) continue;
      buffer.kind = kind;
      if (reader_.peek() >= '0' && reader_.peek() <= '9') {
        TextReader start = reader_;
        const int64_t index = reader_.integer("a number in the signature");
        if (index > INT32_MAX) start.fail("TSR-3201", fmt::format("a number in the signature of {}", index));
        buffer.index = static_cast<int32_t>(index);
      }
      return;
    }
    reader_.fail_expected("input, output, weight or arena");
  }

  void kernel() {
    Kernel kernel;
    reader_.expect("rule");
    kernel.rule = reader_.quoted("a rule");
    kernel.device = on_device();
    if (reader_.accept("flops")) kernel.flops = not_negative("flops");
    if (reader_.accept("bytes")) kernel.bytes = not_negative("bytes");
    if (reader_.accept("tuning")) kernel.refused_tuning = reader_.quoted("why a tuned schedule is not taken");
    while (reader_.accept("refused")) kernel.refused.push_back(reader_.quoted("a reason"));
    kernel.loc = loc();
    TextReader start = reader_;
    kernel.program = parse_kernel(reader_, symbols_);
    if (!kernels_.emplace(kernel.program.name, static_cast<int32_t>(program_.kernels.size())).second)
      start.fail("TSR-3203", fmt::format("kernel '@{}' is defined twice", kernel.program.name));
    program_.kernels.push_back(std::move(kernel));
  }

  void call(StepBlock& block) {
    KernelCall call;
    TextReader start = reader_;
    const std::string name = reader_.name('@', "a kernel");
    const auto it = kernels_.find(name);
    if (it == kernels_.end())
      start.fail("TSR-3202", fmt::format("there is no kernel '@{}'", name), "kernels that are defined above");
    call.kernel = it->second;
    TextReader args_start = reader_;
    for (const std::string& arg : names()) call.args.push_back(find_buffer(args_start, arg));
    if (reader_.peek_is("if"))
      reader_.fail("TSR-3201", "a call has no condition of its own", "branch %c { call ... } else { call ... }");
    call.loc = loc();
    add_call(program_, block, std::move(call));
  }

  static constexpr int64_t kMaxSymbol = int64_t{1} << 40;
  static constexpr int kMaxDepth = 16;  // the verifier goes through the block of each loop twice

  TextReader reader_;
  Program program_;
  SymbolScope scope_, view_scope_;  // where views begin, indices have a meaning, too
  std::vector<Var> symbols_;        // those of the program, and indices
  std::vector<SymbolRange> indices_;
  StepBlock body_;
  int depth_ = 0;
  struct TakesOver {
    BufferId id = -1;
    std::string name;  // may be defined further down
    TextReader at;
  };
  std::vector<TakesOver> overs_;
  std::unordered_map<std::string, BufferId> buffers_;
  std::unordered_map<std::string, int32_t> kernels_;
};

}  // namespace

Program parse_program(std::string_view text, std::string_view file) { return Parser(text, file).run(); }

}  // namespace tessera::inline program
