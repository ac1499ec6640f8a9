// Collectives in compiled modules: sessions of one module are the ranks of a mesh (loopback), each on a thread of its
// own, beside what types/collective.h says of all operands together.
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/compile.h"
#include "graph/parser.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "tessera/tessera.h"
#include "types/collective.h"

namespace tessera {
namespace {

using testing::HasSubstr;

std::vector<std::byte> module_of(const std::string& text, const std::string& kind = "loopback") {
  DriverOptions options;
  options.emit = Emit::kModule;
  options.compile.num_threads = 1;
  options.compile.places = {"*=" + kind};
  PassRunner runner(options);
  const AnonymousFile file = module_in_memory(compile_graph(parse_graph(text, standard_ops()), options, runner));
  return file.contents();
}

// A loaded module; sessions of it are ranks.
class Ranks {
 public:
  explicit Ranks(const std::vector<std::byte>& bytes) {
    tessera_error error = {};
    if (tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module_, &error) != TESSERA_OK)
      throw InternalError(std::string(error.id) + ": " + error.message);
  }
  ~Ranks() {
    for (tessera_session* session : sessions_) tessera_session_free(session);
    tessera_module_free(module_);
  }

  // Runs every rank with its input, at the same time; the errors, "" for those that have none.
  std::vector<std::string> run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
    while (sessions_.size() < inputs.size()) {
      tessera_session* session = nullptr;
      tessera_error error = {};
      if (tessera_session_create(module_, nullptr, &session, &error) != TESSERA_OK)
        throw InternalError(std::string(error.id) + ": " + error.message);
      sessions_.push_back(session);
    }
    std::vector<std::string> errors(inputs.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < inputs.size(); ++r) {
      threads.emplace_back([&, r] {
        const tessera_tensor in = described(inputs[r], const_cast<std::byte*>(inputs[r].bytes())),
                             out = described(outputs[r], outputs[r].mutable_bytes());
        tessera_error error = {};
        if (tessera_session_run(sessions_[r], &in, 1, &out, 1, &error) != TESSERA_OK)
          errors[r] = std::string(error.id) + ": " + error.message;
      });
      // Ranks are numbered as they come to their first operation.
      if (!numbered_) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    for (std::thread& thread : threads) thread.join();
    numbered_ = true;
    return errors;
  }

  void end_session(size_t rank) {
    tessera_session_free(sessions_[rank]);
    sessions_[rank] = nullptr;
  }

 private:
  static tessera_tensor described(const Tensor& tensor, std::byte* data) {
    tessera_tensor result = {};
    result.data = data;
    result.dtype = static_cast<tessera_dtype>(tensor.dtype());
    result.rank = static_cast<int32_t>(tensor.dims().size());
    std::copy(tensor.dims().begin(), tensor.dims().end(), result.dims);
    return result;
  }

  tessera_module* module_ = nullptr;
  std::vector<tessera_session*> sessions_;
  bool numbered_ = false;
};

// What rank `rank` gets: small whole numbers, so that the order of sums does not count.
std::vector<double> expected(const Collective& c, const std::vector<Tensor>& operands, int64_t rank) {
  const std::vector<int64_t> group = c.mesh.group_of(rank, c.axes);
  const auto n = static_cast<int64_t>(group.size()), elements = operands[0].num_elements(), part = elements / n;
  int64_t own = 0;
  while (group[static_cast<size_t>(own)] != rank) ++own;
  const auto at = [&](int64_t member, int64_t i) {
    return operands[static_cast<size_t>(group[static_cast<size_t>(member)])].get_double(i);
  };
  const auto combined = [&](int64_t i) {
    double value = at(0, i);
    for (int64_t m = 1; m < n; ++m) {
      const double next = at(m, i);
      value = c.combiner == CollectiveCombiner::kSum    ? value + next
              : c.combiner == CollectiveCombiner::kProd ? value * next
              : c.combiner == CollectiveCombiner::kMin  ? std::min(value, next)
                                                        : std::max(value, next);
    }
    return value;
  };
  std::vector<double> result;
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      for (int64_t i = 0; i < elements; ++i) result.push_back(combined(i));
      break;
    case CollectiveKind::kAllGather:
      for (int64_t m = 0; m < n; ++m)
        for (int64_t i = 0; i < elements; ++i) result.push_back(at(m, i));
      break;
    case CollectiveKind::kReduceScatter:
      for (int64_t i = 0; i < part; ++i) result.push_back(combined(own * part + i));
      break;
    case CollectiveKind::kAllToAll:
      for (int64_t m = 0; m < n; ++m)
        for (int64_t i = 0; i < part; ++i) result.push_back(at(m, own * part + i));
      break;
    case CollectiveKind::kShift:
      for (int64_t i = 0; i < elements; ++i)
        result.push_back(own - c.shift >= 0 && own - c.shift < n ? at(own - c.shift, i) : 0);
      break;
    default: ADD_FAILURE() << "no collective";
  }
  return result;
}

TEST(Collectives, EveryKindOverEveryGroupOfAMesh) {
  std::mt19937 random(1);
  for (const char* mesh : {"data=2", "data=3", "data=2,model=2"})
    for (const char* axes : {"data", "model", "data,model", "model,data"})
      for (const char* kind : {"all_reduce sum", "all_reduce prod", "all_reduce min", "all_reduce max",
                               "all_gather none", "reduce_scatter sum", "reduce_scatter max", "all_to_all none",
                               "rank_shift none 1", "rank_shift none -1", "rank_shift none 2"})
        for (const char* dtype : {"f32", "i64"}) {
          const std::string what = kind;
          const size_t end = what.starts_with("rank_shift") ? what.rfind(' ') : what.size();
          const auto c = Collective::parse(fmt::format("collective {} over {} of {}{} as y", what.substr(0, end), axes,
                                                       mesh, end < what.size() ? " by" + what.substr(end) : ""));
          if (!c) continue;  // the mesh has no such axis
          const int64_t n = c->group_size(), rows = 12;
          const int64_t results = c->kind == CollectiveKind::kAllGather       ? rows * n
                                  : c->kind == CollectiveKind::kReduceScatter ? rows / n
                                                                              : rows;
          const std::string combiner = c->combiner == CollectiveCombiner::kNone
                                           ? ""
                                           : fmt::format(", kind = \"{}\"", collective_combiner_name(c->combiner));
          const std::string text = fmt::format(
              "graph @main(%x: {0}[{1}]) -> (%z: {0}[{2}]) {{\n  %a = add(%x, %x) : {0}[{1}]\n"
              "  %y = {3}(%a) {{axes = \"{4}\", mesh = \"{5}\"{6}}} : {0}[{2}]\n  %z = neg(%y) : {0}[{2}]\n}}\n",
              dtype, rows, results, collective_kind_name(c->kind), axes, mesh,
              c->shift != 0 ? fmt::format(", by = {}", c->shift) : combiner);
          SCOPED_TRACE(text);
          Ranks ranks(module_of(text));
          const DType type = dtype == std::string("f32") ? DType::kF32 : DType::kI64;
          for (int run = 0; run < 2; ++run) {
            std::vector<Tensor> inputs, doubled, outputs;
            for (int64_t r = 0; r < c->mesh.ranks(); ++r) {
              inputs.emplace_back(type, std::vector<int64_t>{rows});
              doubled.emplace_back(type, std::vector<int64_t>{rows});
              outputs.emplace_back(type, std::vector<int64_t>{results});
              for (int64_t i = 0; i < rows; ++i) {
                const auto value = static_cast<int64_t>(random() % 9) - 4;
                inputs.back().set_int(i, value);
                inputs.back().set_double(i, static_cast<double>(value));
                doubled.back().set_double(i, static_cast<double>(2 * value));
              }
            }
            for (const std::string& error : ranks.run(inputs, outputs)) ASSERT_EQ(error, "");
            for (size_t r = 0; r < inputs.size(); ++r) {
              const std::vector<double> want = expected(*c, doubled, static_cast<int64_t>(r));
              for (int64_t i = 0; i < results; ++i)
                ASSERT_EQ(outputs[r].get_double(i), -want[static_cast<size_t>(i)]) << "rank " << r << ", element " << i;
            }
          }
        }
}

constexpr const char* kSum = R"(graph @main(%x: f32[4]) -> (%z: f32[4]) {
  %y = all_reduce(%x) {axes = "data", kind = "sum", mesh = "data=2"} : f32[4] loc("the sum")
  %z = neg(%y) : f32[4]
}
)";

// Whoever waits says for whom, and later runs fail, too.
TEST(Collectives, ARankThatDoesNotComeIsNamed) {
  setenv("TESSERA_COMM_TIMEOUT", "0.3", 1);
  Ranks ranks(module_of(kSum));
  const Tensor x(DType::kF32, {4});
  std::vector<Tensor> outputs;
  outputs.emplace_back(DType::kF32, std::vector<int64_t>{4});
  for (int run = 0; run < 2; ++run) {
    const std::vector<std::string> errors = ranks.run({x}, outputs);
    EXPECT_THAT(errors[0], HasSubstr("TSR-7026: device 'loopback' of 'module in memory' (kind 'loopback') has failed: "
                                     "rank 0 waits for rank 1 of 2 in all_reduce 'y'"));
  }
  unsetenv("TESSERA_COMM_TIMEOUT");
}

TEST(Collectives, ARankThatHasEndedIsNamedAtOnce) {
  Ranks ranks(module_of(kSum));
  const std::vector<Tensor> inputs(2, Tensor(DType::kF32, {4}));
  std::vector<Tensor> outputs;
  for (int i = 0; i < 2; ++i) outputs.emplace_back(DType::kF32, std::vector<int64_t>{4});
  for (const std::string& error : ranks.run(inputs, outputs)) ASSERT_EQ(error, "");
  ranks.end_session(1);
  EXPECT_THAT(ranks.run({inputs[0]}, outputs)[0], HasSubstr("rank 0 waits for rank 1 of 2 in all_reduce 'y'"));
}

TEST(Collectives, ThereAreNoMoreRanksThanTheMeshHas) {
  setenv("TESSERA_COMM_TIMEOUT", "5", 1);
  Ranks ranks(module_of(kSum));
  const std::vector<Tensor> inputs(3, Tensor(DType::kF32, {4}));
  std::vector<Tensor> outputs;
  for (int i = 0; i < 3; ++i) outputs.emplace_back(DType::kF32, std::vector<int64_t>{4});
  const std::vector<std::string> errors = ranks.run(inputs, outputs);
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
  EXPECT_THAT(errors[2], HasSubstr("the module is made for 2 ranks, and this session is one more"));
  unsetenv("TESSERA_COMM_TIMEOUT");
}

// Two sums, of which the host need not wait for the first before it goes on.
TEST(Collectives, TheHostWorksMeanwhile) {
  DriverOptions options;
  options.emit = Emit::kProgram;
  options.compile.places = {"*=loopback"};
  PassRunner runner(options);
  const Compiled result = compile_graph(parse_graph(R"(graph @main(%x: f32[8,8]) -> (%u: f32[8,8], %w: f32[8,8]) {
  %g = matmul(%x, %x) : f32[8,8] loc("g")
  %h = matmul(%g, %x) : f32[8,8] loc("h")
  %s = all_reduce(%g) {axes = "data", kind = "sum", mesh = "data=2"} : f32[8,8] loc("s")
  %t = all_reduce(%h) {axes = "data", kind = "sum", mesh = "data=2"} : f32[8,8] loc("t")
  %u = neg(%s) : f32[8,8] loc("u")
  %w = neg(%t) : f32[8,8] loc("w")
}
)",
                                                    standard_ops()),
                                        options, runner);
  const std::string text = result.text.substr(result.text.find("  call "));
  const auto at = [&](const char* what) { return text.find(what); };
  EXPECT_LT(at("loc(\"g\")"), at("start 0 on loopback"));
  EXPECT_LT(at("start 0 on loopback"), at("loc(\"h\")"));
  EXPECT_LT(at("loc(\"h\")"), at("start 1 on loopback"));
  EXPECT_LT(at("start 1 on loopback"), at("wait 0"));
  EXPECT_LT(at("wait 0"), at("loc(\"u\")"));
  EXPECT_LT(at("loc(\"u\")"), at("wait 1"));
  EXPECT_LT(at("wait 1"), at("loc(\"w\")"));
}

// Ranks by MPI unless a pattern says otherwise; a group of one rank needs nobody.
TEST(Collectives, RunOnACommunicator) {
  const auto program_of = [](const std::string& text, const std::vector<std::string>& places) {
    DriverOptions options;
    options.emit = Emit::kProgram;
    options.compile.places = places;
    PassRunner runner(options);
    return compile_graph(parse_graph(text, standard_ops()), options, runner).text;
  };
  EXPECT_THAT(program_of(kSum, {}), HasSubstr("device mpi \"mpi\""));
  EXPECT_THAT(program_of(kSum, {"*=null"}), HasSubstr("device mpi \"mpi\""));
  std::string alone = kSum;
  alone.replace(alone.find("data=2"), 6, "data=1");
  EXPECT_THAT(program_of(alone, {}), testing::Not(HasSubstr("device")));
}

}  // namespace
}  // namespace tessera
