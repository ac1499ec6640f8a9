#include "random_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>

#include "program/parser.h"

namespace tessera {
namespace {

constexpr int kSlices = 6;  // of what loops take apart and stack
constexpr int kDeepest = 3;

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(static_cast<unsigned>(seed)) {
    static constexpr int kSizes[] = {1, 3, 17, 64, 300, 3000};
    size_ = kSizes[pick(6)];
  }

  std::string run() {
    add_buffer("x", vector(), "input 0");
    add_buffer("z", vector(), "input 1");
    add_buffer("slices", stack(), "input 2");
    add_buffer("y", vector(), "output 0");
    add_buffer("w", stack(), "output 1");
    Scope scope;
    scope.readable = {"x", "z"};
    block(scope, 0);
    line(fmt::format("call @copy({}, %y)", any(scope)), 0);
    line("call @fill(%w)", 0);
    loop(scope, 0, "w");
    line(fmt::format("call @mean(%y, {}, %y2)", any(scope)), 0);
    add_buffer("y2", vector(), "output 2");
    return fmt::format(
        "program @random(%x, %z, %slices) -> (%y, %w, %y2) {{\n  plan arena 0 weights 0 scratch 0\n{}{}{}{}}}\n",
        indices_, buffers_, kernels(), steps_);
  }

 private:
  struct Scope {
    std::vector<std::string> readable;  // vectors
    std::vector<std::string> own;       // those that may be written over
    std::vector<std::string> indices;
  };

  size_t pick(size_t count) { return random_() % count; }
  bool once_in(size_t count) { return pick(count) == 0; }
  std::string vector() const { return fmt::format("f32[{}]", size_); }
  std::string stack() const { return fmt::format("f32[{},{}]", kSlices, size_); }

  void line(const std::string& text, int depth) {
    steps_ += std::string(2 * static_cast<size_t>(depth) + 2, ' ') + text + "\n";
  }

  void add_buffer(const std::string& name, const std::string& type, const std::string& kind) {
    buffers_ += fmt::format("  buffer %{}: {} {}\n", name, type, kind);
  }
  std::string fresh(const std::string& type, const std::string& kind = "arena") {
    const std::string name = fmt::format("b{}", number_++);
    add_buffer(name, type, kind);
    return name;
  }

  std::string any(const Scope& scope) { return "%" + scope.readable[pick(scope.readable.size())]; }

  // A call that writes `to`.
  void call(const Scope& scope, const std::string& to, int depth) {
    if (!scope.indices.empty() && once_in(4)) {
      line(fmt::format("call @number_{}({}, %{})", scope.indices[pick(scope.indices.size())], any(scope), to), depth);
      return;
    }
    switch (pick(5)) {
      case 0: line(fmt::format("call @turn({}, %{})", any(scope), to), depth); break;
      case 1: line(fmt::format("call @copy({}, %{})", any(scope), to), depth); break;
      default: line(fmt::format("call @mean({}, {}, %{})", any(scope), any(scope), to), depth);
    }
  }

  void block(Scope& scope, int depth) {
    for (size_t count = 1 + pick(4); count > 0; --count) {
      switch (pick(depth >= kDeepest ? 4 : 7)) {
        case 0: {  // write over something, which no call reads at the same time
          if (scope.own.empty()) break;
          const std::string to = scope.own[pick(scope.own.size())];
          Scope others = scope;
          std::erase(others.readable, to);
          call(others, to, depth);
          break;
        }
        case 4: branch(scope, depth); break;
        case 5:
        case 6: loop(scope, depth, once_in(2) ? "" : "new"); break;
        default: {
          const std::string to = fresh(vector());
          call(scope, to, depth);
          scope.readable.push_back(to);
          scope.own.push_back(to);
        }
      }
    }
  }

  std::string condition(const Scope& scope, int depth) {
    const std::string name = fresh(once_in(2) ? "bool[1]" : "bool[]");
    const bool scalar = buffers_.find(fmt::format("%{}: bool[]", name)) != std::string::npos;
    line(fmt::format("call @less{}({}, {}, %{})", scalar ? "_scalar" : "", any(scope), any(scope), name), depth);
    return name;
  }

  void branch(Scope& scope, int depth) {
    const std::string decides = condition(scope, depth);
    std::vector<std::string> results;
    for (size_t count = 1 + pick(2); count > 0; --count) results.push_back(fresh(vector()));
    line(fmt::format("branch %{} {{", decides), depth);
    for (int arm = 0; arm < 2; ++arm) {
      if (arm == 1) line("} else {", depth);
      Scope inner = scope;
      if (!once_in(4)) block(inner, depth + 1);
      for (const std::string& result : results) call(inner, result, depth + 1);
    }
    line("}", depth);
    scope.readable.insert(scope.readable.end(), results.begin(), results.end());
    scope.own.insert(scope.own.end(), results.begin(), results.end());
  }

  // `stacked`: where each iteration writes a slice: "" for nowhere, "new" for a buffer that is read behind the loop.
  void loop(Scope& scope, int depth, std::string stacked) {
    const std::string index = fmt::format("t{}", num_indices_++);
    static constexpr int kCounts[] = {0, 1, 2, 3, 5, kSlices};
    const int most = kCounts[pick(6)];
    indices_ += fmt::format("  index {} < {}\n", index, kSlices);
    std::string limit;
    std::string condition_name;
    switch (pick(4)) {
      case 0: {
        const std::string count = fresh("i64[1]");
        line(fmt::format("call @count({}, %{})", any(scope), count), depth);
        limit = " < %" + count;
        break;
      }
      case 1: break;  // the condition and the index end it
      default: limit = fmt::format(" < {}", most);
    }
    std::string carry;
    std::vector<std::pair<std::string, std::string>> carried;
    for (size_t count = pick(3); count > 0; --count) {
      carried.emplace_back(fresh(vector()), fresh(vector()));
      line(fmt::format("call @copy({}, %{})", any(scope), carried.back().first), depth);
    }
    std::string next_condition;
    if (limit.empty() || once_in(3)) {
      condition_name = condition(scope, depth);
      // Written over inside, or carried.
      if (once_in(2))
        next_condition = fresh(
            buffers_.find(fmt::format("%{}: bool[]", condition_name)) == std::string::npos ? "bool[1]" : "bool[]");
    }
    for (const auto& [current, next] : carried)
      carry += fmt::format("{}%{} = %{}", carry.empty() ? " carry " : ", ", current, next);
    if (!next_condition.empty())
      carry += fmt::format("{}%{} = %{}", carry.empty() ? " carry " : ", ", condition_name, next_condition);
    if (stacked == "new") {
      stacked = fresh(stack());
      line(fmt::format("call @fill(%{})", stacked), depth);
    }
    line(
        fmt::format("loop {}{}{}{} {{", index, limit, condition_name.empty() ? "" : " while %" + condition_name, carry),
        depth);
    Scope inner = scope;
    inner.indices.push_back(index);
    const int64_t stride = int64_t{4} * size_;
    if (once_in(2)) {
      const std::string slice = fmt::format("b{}", number_++);
      const bool backwards = once_in(3);
      buffers_ += fmt::format("  buffer %{}: {} input alias %slices from {}\n", slice, vector(),
                              backwards ? fmt::format("(({} - {}) * {})", kSlices - 1, index, stride)
                                        : fmt::format("({} * {})", index, stride));
      inner.readable.push_back(slice);
    }
    for (const auto& [current, next] : carried) inner.readable.push_back(current);
    block(inner, depth + 1);
    for (const auto& [current, next] : carried) call(inner, next, depth + 1);
    if (!condition_name.empty()) {
      const std::string to = next_condition.empty() ? condition_name : next_condition;
      const bool scalar = buffers_.find(fmt::format("%{}: bool[]", to)) != std::string::npos;
      line(fmt::format("call @less{}({}, {}, %{})", scalar ? "_scalar" : "", any(inner), any(inner), to), depth + 1);
    }
    if (!stacked.empty()) {
      const std::string slice = fmt::format("b{}", number_++);
      buffers_ += fmt::format("  buffer %{}: {} {} alias %{} from ({} * {})\n", slice, vector(),
                              stacked == "w" ? "output" : "arena", stacked, index, stride);
      call(inner, slice, depth + 1);
    }
    line("}", depth);
    for (const auto& [current, next] : carried) scope.readable.push_back(current);
    if (stacked.empty() || stacked == "w") return;
    const std::string sum = fresh(vector());
    line(fmt::format("call @ends(%{}, %{})", stacked, sum), depth);
    scope.readable.push_back(sum);
  }

  std::string kernels() const {
    std::string text;
    const auto add = [&](const std::string& head, const std::string& body) {
      text += fmt::format("  define rule \"naive\"\n  kernel @{} {{\n    {}\n  }}\n", head, body);
    };
    const std::string v = vector();
    const std::string each = fmt::format("parallel for i in 0..{} ", size_);
    add(fmt::format("copy(a: {}) -> (b: {})", v, v), each + "{ b[i] = a[i] }");
    add(fmt::format("mean(a: {0}, b: {0}) -> (c: {0})", v), each + "{ c[i] = ((a[i] + b[i]) * 0.5:f32) }");
    add(fmt::format("turn(a: {0}) -> (b: {0})", v), fmt::format("{}{{ b[i] = a[({} - i)] }}", each, size_ - 1));
    add(fmt::format("less(a: {0}, b: {0}) -> (c: bool[1])", v), "c[0] = (a[0] < b[0])");
    add(fmt::format("less_scalar(a: {0}, b: {0}) -> (c: bool[])", v), "c[] = (a[0] < b[0])");
    add(fmt::format("count(a: {}) -> (n: i64[1])", v), "n[0] = cast:i64((a[0] * 4:f32))");
    add(fmt::format("fill() -> (a: {})", stack()),
        fmt::format("for s in 0..{} {{ for i in 0..{} {{ a[s, i] = 0.25:f32 }} }}", kSlices, size_));
    add(fmt::format("ends(a: {}) -> (b: {})", stack(), v),
        fmt::format("{}{{ b[i] = ((a[0, i] + a[{}, i]) * 0.5:f32) }}", each, kSlices - 1));
    for (int t = 0; t < num_indices_; ++t)
      add(fmt::format("number_t{0}<t{0}>(a: {1}) -> (b: {1})", t, v),
          fmt::format("{}{{ b[i] = ((a[i] + cast:f32(t{})) * 0.5:f32) }}", each, t));
    return text;
  }

  std::mt19937 random_;
  int size_ = 1;
  int number_ = 0, num_indices_ = 0;
  std::string indices_, buffers_, steps_;
};

}  // namespace

Program random_steps(uint64_t seed) { return parse_program(Generator(seed).run(), "random.program"); }

std::vector<Tensor> random_step_inputs(const Program& program, uint64_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed) + 77);
  std::vector<Tensor> inputs;
  for (const BufferId id : program.inputs) {
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(id)];
    Tensor tensor(buffer.type.dtype, buffer.type.dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      tensor.set_double(i, static_cast<double>(random() % 2000) / 1000 - 0.5);
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

}  // namespace tessera
