// The table of schedule primitives: how a line of a trace calls a method of Schedule.
#include <fmt/format.h>

#include <array>

#include "schedule/primitives/rewriter.h"
#include "schedule/primitives/trace.h"

namespace tessera::inline schedule {
namespace {

// The arguments of one step, read in order; refuses with the primitive's usage.
class Args {
 public:
  Args(const TraceStep& step) : step_(step) {}  // NOLINT: built where a step is handed in

  std::string name() { return take(TraceArg::Kind::kName, "a name").text; }
  int64_t number() { return take(TraceArg::Kind::kInt, "a number").number; }
  std::string text() { return take(TraceArg::Kind::kText, "a text in double quotes").text; }
  std::string optional_text() { return next_ < step_.args.size() ? text() : ""; }
  Names names() {
    Names result;
    for (const TraceArg& item : take(TraceArg::Kind::kList, "a list of names").list) {
      if (item.kind != TraceArg::Kind::kName) wrong("a list of names");
      result.push_back(item.text);
    }
    return result;
  }
  std::vector<std::optional<int64_t>> factors() {
    std::vector<std::optional<int64_t>> result;
    for (const TraceArg& item : take(TraceArg::Kind::kList, "a list of factors").list) {
      if (item.kind == TraceArg::Kind::kInt) result.emplace_back(item.number);
      else if (item.kind == TraceArg::Kind::kOpen) result.emplace_back();
      else wrong("factors that are numbers or '_'");
    }
    return result;
  }
  std::vector<int64_t> numbers() {
    std::vector<int64_t> result;
    for (const TraceArg& item : take(TraceArg::Kind::kList, "a list of numbers").list) {
      if (item.kind != TraceArg::Kind::kInt) wrong("a list of numbers");
      result.push_back(item.number);
    }
    return result;
  }
  const TraceArg& mapping() { return take(TraceArg::Kind::kMapping, "a mapping '(i, j) -> [...]'"); }
  MemoryScope scope() {
    const std::string word = name();
    // In the field's words "global" is memory: for an allocation that is what the loop IR calls local.
    if (word == "local" || word == "global") return MemoryScope::kLocal;
    if (word == "register") return MemoryScope::kRegister;
    refuse(refusal::kArguments, fmt::format("{}: there is no memory scope '{}'", step_.primitive, word),
           "local (or global: memory), register");
  }
  // What many primitives begin with.
  std::pair<std::string, MemoryScope> name_and_scope() {
    std::string first = name();
    return {std::move(first), scope()};
  }
  // A named argument; empty when it is left out.
  std::string optional_name(const std::string& key) {
    for (const TraceArg& arg : step_.args)
      if (arg.key == key) {
        if (arg.kind != TraceArg::Kind::kName) wrong("a name");
        ++used_keys_;
        return arg.text;
      }
    return "";
  }
  const Names& results() const { return step_.results; }
  std::string result() const { return step_.results.empty() ? "" : step_.results[0]; }
  const std::vector<int64_t>& decision() const { return step_.decision; }

  // After the last argument: nothing may be left, and not more results than the primitive has (`at_most`).
  void done(size_t at_most) {
    size_t keys = 0;
    for (const TraceArg& arg : step_.args) keys += !arg.key.empty();
    if (next_ + keys < step_.args.size() || keys != used_keys_) wrong("no further arguments");
    if (step_.results.size() > at_most)
      refuse(refusal::kArguments, fmt::format("{}: {} results are named", step_.primitive, step_.results.size()),
             at_most == 0   ? "no result"
             : at_most == 1 ? "one result"
                            : fmt::format("at most {}", at_most));
  }
  [[noreturn]] void wrong(const std::string& expected) const {
    const SchedulePrimitive* primitive = find_schedule_primitive(step_.primitive);
    refuse(refusal::kArguments, fmt::format("{}: wrong arguments, expected {}", to_string(step_), expected),
           primitive ? std::string(primitive->usage) : "");
  }

 private:
  const TraceArg& take(TraceArg::Kind kind, const char* what) {
    while (next_ < step_.args.size() && !step_.args[next_].key.empty()) wrong("named arguments last");
    if (next_ >= step_.args.size() || step_.args[next_].kind != kind) wrong(what);
    return step_.args[next_++];
  }

  const TraceStep& step_;
  size_t next_ = 0, used_keys_ = 0;
};

constexpr size_t kMany = 64;

void apply_split(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string loop = a.name();
  const auto factors = a.factors();
  a.done(kMany);
  s.split(loop, factors, a.results());
}
void apply_fuse(Schedule& s, const TraceStep& step) {
  Args a(step);
  const Names loops = a.names();
  a.done(1);
  s.fuse(loops, a.result());
}
void apply_reorder(Schedule& s, const TraceStep& step) {
  Args a(step);
  const Names loops = a.names();
  a.done(0);
  s.reorder(loops);
}
void apply_tile(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string i = a.name();
  const std::string j = a.name();
  const int64_t fi = a.number();
  const int64_t fj = a.number();
  a.done(4);
  s.tile(i, j, fi, fj, a.results());
}
template <void (Schedule::*method)(const std::string&)>
void apply_to_loop(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string loop = a.name();
  a.done(0);
  (s.*method)(loop);
}
template <void (Schedule::*method)(const std::string&, const std::string&)>
void apply_to_two(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string first = a.name();
  const std::string second = a.name();
  a.done(0);
  (s.*method)(first, second);
}
template <void (Schedule::*method)(const std::string&, int64_t)>
void apply_with_number(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string loop = a.name();
  const int64_t number = a.number();
  a.done(0);
  (s.*method)(loop, number);
}

void apply_rfactor(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string block = a.name();
  const std::string loop = a.name();
  a.done(1);
  s.rfactor(block, loop, a.result());
}
void apply_cache_read(Schedule& s, const TraceStep& step) {
  Args a(step);
  const auto [buffer, scope] = a.name_and_scope();
  const std::string reader = a.optional_name("reader");
  a.done(1);
  s.cache_read(buffer, scope, reader, a.result());
}
void apply_cache_write(Schedule& s, const TraceStep& step) {
  Args a(step);
  const auto [stage, scope] = a.name_and_scope();
  a.done(1);
  s.cache_write(stage, scope, a.result());
}
void apply_set_scope(Schedule& s, const TraceStep& step) {
  Args a(step);
  const auto [buffer, scope] = a.name_and_scope();
  a.done(0);
  s.set_scope(buffer, scope);
}
void apply_transform_layout(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string buffer = a.name();
  const TraceArg& mapping = a.mapping();
  a.done(0);
  s.transform_layout(buffer, mapping.vars, mapping.index);
}
void apply_tensorize(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string loop = a.name();
  const std::string intrinsic = a.optional_text();
  a.done(0);
  s.tensorize(loop, intrinsic);
}
void apply_intrinsic(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string name = a.text();
  a.done(2);
  s.intrinsic(name, a.decision(), a.results());
}
void apply_annotate(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string statement = a.name();
  const std::string key = a.name();
  const int64_t value = a.number();
  a.done(0);
  s.annotate(statement, key, value);
}
void apply_sample_perfect_tile(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string loop = a.name();
  const int64_t count = a.number();
  const int64_t most = a.number();
  a.done(kMany);
  s.sample_perfect_tile(loop, count, most, nullptr, a.decision(), a.results());
}

void apply_sample_categorical(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::vector<int64_t> candidates = a.numbers();
  a.done(1);
  s.sample_categorical(candidates, nullptr, a.decision(), a.result());
}
void apply_sample_compute_location(Schedule& s, const TraceStep& step) {
  Args a(step);
  const std::string stage = a.name();
  a.done(1);
  s.sample_compute_location(stage, nullptr, a.decision(), a.result());
}

constexpr std::array kPrimitives = {
    SchedulePrimitive{"split", "i0, i1 = split(i, [_, 32])",
                      "One loop becomes several; the open factor covers the rest.", apply_split},
    SchedulePrimitive{"fuse", "f = fuse([i, j])", "Loops that stand directly in each other become one.", apply_fuse},
    SchedulePrimitive{"reorder", "reorder([j, i])", "Loops of one nest change places.", apply_reorder},
    SchedulePrimitive{"tile", "i0, j0, i1, j1 = tile(i, j, 8, 32)",
                      "Two loops become a loop over tiles and one in them.", apply_tile},
    SchedulePrimitive{"pad", "pad(i, 32)", "The loop's extent becomes a multiple; what is too much does nothing.",
                      apply_with_number<&Schedule::pad>},
    SchedulePrimitive{"vectorize", "vectorize(j)", "Iterations become lanes of vectors.",
                      apply_to_loop<&Schedule::vectorize>},
    SchedulePrimitive{"unroll", "unroll(j)", "Iterations become copies of the body.", apply_to_loop<&Schedule::unroll>},
    SchedulePrimitive{"parallel", "parallel(i)", "Iterations may run on different threads.",
                      apply_to_loop<&Schedule::parallel>},
    SchedulePrimitive{"fission", "fission(i, C.update)", "One loop becomes two: before the statement, and from it on.",
                      apply_to_two<&Schedule::fission>},
    SchedulePrimitive{"decompose_reduction", "decompose_reduction(C, j)",
                      "The store that a reduction starts from gets a nest of its own before the loop.",
                      apply_to_two<&Schedule::decompose_reduction>},
    SchedulePrimitive{"rfactor", "C_rf = rfactor(C.update, k)", "Partial results per iteration, combined afterwards.",
                      apply_rfactor},
    SchedulePrimitive{"predicate", "predicate(C.update)",
                      "Places where a reduction adds nothing are left out by an `if`.",
                      apply_to_loop<&Schedule::predicate>},
    SchedulePrimitive{"compute_at", "compute_at(T, i)",
                      "A stage moves into the loop that uses it, as far as needed there.",
                      apply_to_two<&Schedule::compute_at>},
    SchedulePrimitive{"reverse_compute_at", "reverse_compute_at(C, i)",
                      "A stage moves into the loop that computes what it reads.",
                      apply_to_two<&Schedule::reverse_compute_at>},
    SchedulePrimitive{"compute_inline", "compute_inline(T)", "A stage's value stands where it was loaded.",
                      apply_to_loop<&Schedule::compute_inline>},
    SchedulePrimitive{"cache_read", "A_local = cache_read(A, local)",
                      "Readers (or reader=STAGE) use a copy of a buffer.", apply_cache_read},
    SchedulePrimitive{"cache_write", "C_local = cache_write(C, local)",
                      "A stage computes into a new buffer, which is then copied.", apply_cache_write},
    SchedulePrimitive{"set_scope", "set_scope(T, register)", "An allocation lives in memory or in registers.",
                      apply_set_scope},
    SchedulePrimitive{"store_at", "store_at(acc, j)", "An allocation moves out of loops, a dimension for each.",
                      apply_to_two<&Schedule::store_at>},
    SchedulePrimitive{"transform_layout", "transform_layout(T, (k, j) -> [floordiv(j, 16), k, floormod(j, 16)])",
                      "An allocation is stored under another index.", apply_transform_layout},
    SchedulePrimitive{"intrinsic", "lanes, depth = intrinsic(\"x86.fma.f32\")",
                      "Numbers for split and packing, and what tensorize means from here on.", apply_intrinsic},
    SchedulePrimitive{"blockize", "blockize(v)", "A nest becomes one piece, until it is tensorized.",
                      apply_to_loop<&Schedule::blockize>},
    SchedulePrimitive{"tensorize", "tensorize(v, \"x86.fma.f32\")", "A nest becomes a tensor intrinsic.",
                      apply_tensorize},
    SchedulePrimitive{"virtual_thread", "virtual_thread(i)", "Iterations run side by side, statement by statement.",
                      apply_to_loop<&Schedule::virtual_thread>},
    SchedulePrimitive{"software_pipeline", "software_pipeline(k, 1)",
                      "The first statements of a loop run one iteration ahead.",
                      apply_with_number<&Schedule::software_pipeline>},
    SchedulePrimitive{"annotate", "annotate(C.update, fma, 1)", "A multiply and add round once.", apply_annotate},
    SchedulePrimitive{"bind", "bind(i, threadIdx.x)",
                      "Iterations on an axis of a GPU's threads; a CPU runs them in order.",
                      apply_to_two<&Schedule::bind>},
    SchedulePrimitive{"sample_perfect_tile", "f0, f1 = sample_perfect_tile(i, 2, 64) decided [32, 32]",
                      "Numbers for split that somebody drew.", apply_sample_perfect_tile},
    SchedulePrimitive{"sample_categorical", "u = sample_categorical([1, 2, 4]) decided [2]",
                      "One of several numbers that somebody drew.", apply_sample_categorical},
    SchedulePrimitive{"sample_compute_location", "at = sample_compute_location(T) decided [-1]",
                      "A loop for compute_at that somebody drew.", apply_sample_compute_location},
};

}  // namespace

std::span<const SchedulePrimitive> schedule_primitives() { return kPrimitives; }

std::string Schedule::trace() const { return print_trace(steps_); }

}  // namespace tessera::inline schedule
