// Sizes that data decide: symbols that a node binds, in graphs, programs and modules. Random graphs that choose rows of
// a matrix, and rows of those again, at none, one, some and all of them; the interpreter of graphs is the definition.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "../support/module_session.h"
#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "codegen/llvm/llvm_codegen.h"
#include "codegen/llvm/target.h"
#include "graph/bind_symbols.h"
#include "graph/data_sizes.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "interp/program_interp.h"
#include "loop_passes/pass.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "package/link.h"
#include "package/module_writer.h"
#include "program/memory_plan.h"
#include "program/parser.h"
#include "program/pass.h"
#include "program/printer.h"
#include "program/verify.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "support/symbolic_shape_error.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

// ---- graphs ----

class Builder {
 public:
  explicit Builder(uint64_t seed) : known_({}), builder_(graph_), random_(seed) {}

  int64_t upto(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  Shape shape(ValueId v) const { return graph_.type(v).shape; }
  Expr open(const std::string& name, int64_t lo, int64_t hi) {
    const SymbolRange symbol{make_var(name), lo, hi};
    graph_.symbols.push_back(symbol);
    known_.add(symbol);
    return symbol.var;
  }
  ValueId input(const std::string& name, Shape shape, DType dtype = DType::kF32) {
    return graph_.add_input(name, {dtype, std::move(shape), {}});
  }
  ValueId add(const std::string& op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    builder_.set_loc(fmt::format("{}{}", op, ++count_));
    return builder_.add(standard_ops().get(op), std::move(inputs), std::move(attrs));
  }
  ValueId constant(Tensor tensor) {
    return add("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  ValueId number(DType dtype, double value) {
    Tensor tensor(dtype, {});
    tensor.set_double(0, value);
    return constant(std::move(tensor));
  }
  ValueId weights(const Ints& dims) {
    Tensor tensor(DType::kF32, dims);
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      tensor.set_double(i, static_cast<double>(random_() % 2001) / 1000 - 1);
    return constant(std::move(tensor));
  }
  ValueId broadcast(ValueId v, Shape shape) { return add("broadcast", {v}, {{"shape", std::move(shape)}}); }
  ValueId reshape(ValueId v, Shape shape) { return add("reshape", {v}, {{"shape", std::move(shape)}}); }
  ValueId sum(ValueId v, Ints axes) {
    return add("reduce", {v}, {{"axes", std::move(axes)}, {"keepdims", false}, {"kind", std::string("sum")}});
  }
  ValueId first(ValueId v, size_t axis, const Expr& size) {
    Shape sizes = shape(v);
    const Shape starts(sizes.size(), 0);
    sizes[axis] = size;
    return add("slice", {v}, {{"sizes", sizes}, {"starts", starts}, {"steps", Ints(sizes.size(), 1)}});
  }
  Expr bind(ValueId count, const Expr& bound) {
    const SymbolRange symbol = data_symbol(fmt::format("c{}", graph_.symbols.size()), normalize_size(bound));
    graph_.symbols.push_back(symbol);
    known_.add(symbol);
    add("bind_size", {count}, {{"size", Shape{symbol.var}}});
    return symbol.var;
  }

  // The places at which the mask, bool[n], holds.
  ValueId places(ValueId mask) {
    const Expr n = shape(mask)[0];
    const ValueId wide = add("cast", {mask}, {{"to", DType::kI64}});
    const Expr count = bind(sum(wide, {0}), n);
    const ValueId running =
        add("cumulate", {wide},
            {{"axis", int64_t{0}}, {"kind", std::string("sum")}, {"exclusive", false}, {"reverse", false}});
    const ValueId minus_one = number(DType::kI64, -1);
    const ValueId to = add("select", {mask, add("add", {running, minus_one}), minus_one});
    const ValueId zeros = broadcast(number(DType::kI64, 0), {1, n, 1});
    const ValueId from =
        reshape(add("iota", {}, {{"shape", Shape{n}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}}), {1, n, 1});
    const ValueId all = add("scatter", {zeros, reshape(to, {1, n}), from}, {{"join", std::string("none")}});
    return first(reshape(all, {n}), 0, count);
  }

  // The rows of x, [n,width], in which the first element is above `least`.
  ValueId rows_above(ValueId x, ValueId least) {
    const Expr n = shape(x)[0];
    const ValueId column = reshape(first(x, 1, 1), {n});
    return add("gather", {x, places(add("gt", {column, least}))}, {{"axis", int64_t{0}}});
  }

  Graph finish(std::vector<ValueId> outputs) {
    graph_.outputs = std::move(outputs);
    return std::move(graph_);
  }

 private:
  Graph graph_;
  KnownSymbols known_;
  GraphBuilder builder_;
  std::mt19937_64 random_;
  int count_ = 0;
};

// One more operator on r, [c,width].
ValueId next(Builder& b, ValueId r, ValueId least, std::vector<ValueId>& outputs) {
  const Expr c = b.shape(r)[0];
  const int64_t width = *as_int(b.shape(r)[1]);
  switch (b.upto(11)) {
    case 0: return b.add("add", {r, b.weights({width})});
    case 1: return b.add("matmul", {r, b.weights({width, 1 + b.upto(9)})});
    case 2: return b.add("tanh", {r});
    case 3: return b.add("concat", {r, b.add("neg", {r})}, {{"axis", b.upto(2)}});
    case 4: {
      outputs.push_back(b.sum(r, {b.upto(2)}));
      return r;
    }
    case 5: {
      const ValueId rows = b.add("matmul", {r, b.add("transpose", {r}, {{"perm", Ints{1, 0}}})});  // [c,c]
      outputs.push_back(rows);
      return b.add("matmul", {rows, r});
    }
    case 6: return b.rows_above(r, least);
    case 7: {
      const ValueId count = b.add("sizes", {}, {{"sizes", Shape{c}}, {"dtype", DType::kF32}});
      return b.add("add", {r, count});
    }
    case 8: {
      outputs.push_back(b.add("iota", {}, {{"shape", Shape{c, 2}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}}));
      return r;
    }
    case 9: {
      outputs.push_back(b.reshape(r, {normalize_size(c * Expr(width))}));
      return b.add("mul", {r, b.broadcast(b.number(DType::kF32, 0.5), {c, width})});
    }
    default: {
      const ValueId top = b.add("reduce", {r}, {{"axes", Ints{1}}, {"keepdims", true}, {"kind", std::string("max")}});
      return b.add("exp", {b.add("sub", {r, top})});
    }
  }
}

// Inputs: x f32[n,w] and what the first element of a row must exceed.
Graph random_graph(uint64_t seed, bool open) {
  Builder b(seed);
  const Expr n = open ? b.open("n", 1, 40) : Expr(1 + b.upto(33));
  const ValueId x = b.input("x", {n, 1 + b.upto(7)}), least = b.input("least", {});
  std::vector<ValueId> outputs;
  ValueId r = b.rows_above(x, least);
  for (int64_t steps = 1 + b.upto(6); steps > 0; --steps) r = next(b, r, least, outputs);
  if (outputs.empty() || b.upto(2)) outputs.push_back(r);
  return b.finish(std::move(outputs));
}

// ---- modules ----

Graph optimized(Graph graph, const Target& target) {
  const KnownSymbols known(graph.symbols);
  GraphInterpreter evaluator;
  const PassContext context{standard_ops(), evaluator, target};
  for (const GraphPass& pass : graph_pipeline()) {
    graph = pass.run(graph, context);
    verify_or_throw(graph, pass.name);
  }
  return graph;
}

Program scheduled(Program program, const Target& target) {
  const auto run = [&](ProgramPhase phase) {
    for (const ProgramPass& pass : program_pipeline())
      if (pass.phase == phase) {
        pass.run(program, target);
        verify_or_throw(program, pass.name);
      }
  };
  run(ProgramPhase::kLowered);
  schedule_program(program, target, 3, {});
  for (const LoopPass& pass : loop_pipeline())
    for (Kernel& kernel : program.kernels) kernel.program = pass.run(kernel.program, {target, 3});
  run(ProgramPhase::kScheduled);
  plan_memory(program);
  verify_or_throw(program, "plan_memory");
  return program;
}

std::vector<std::byte> module_of(Program program, const Target& target) {
  CodegenOptions options;
  options.opt_level = 3;
  options.module_name = "data_sizes";
  const ObjectCode object = generate_llvm(program, target, options);
  program.scratch_bytes = object.scratch_bytes;
  ModuleInfo info;
  info.model_name = "data_sizes";
  info.model_digest = "0";
  info.producer = "test";
  info.target_triple = target.triple;
  info.target_cpu = target.cpu;
  const std::vector<std::byte> code = link_shared_object(object.object, {.files = object.link});
  return write_module_memory({code, program, info}).contents();
}

class Session : public ModuleSession {
 public:
  using ModuleSession::ModuleSession;

  // The outputs in the shapes that the run decided, from memory for the largest.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    const std::vector<tessera_tensor> in = described(inputs);
    tessera_error error = {};
    check(tessera_session_prepare(session_, in.data(), static_cast<int32_t>(in.size()), &error) == TESSERA_OK,
          error.message);
    std::vector<Tensor> rooms = outputs();
    for (Tensor& room : rooms) std::fill_n(room.mutable_bytes(), room.num_bytes(), std::byte{0xee});
    std::vector<tessera_tensor> out = described(rooms);
    check(tessera_session_run(session_, in.data(), static_cast<int32_t>(in.size()), out.data(),
                              static_cast<int32_t>(out.size()), &error) == TESSERA_OK,
          error.message);
    std::vector<Tensor> results = outputs();
    for (size_t i = 0; i < results.size(); ++i)
      std::copy_n(rooms[i].bytes(), results[i].num_bytes(), results[i].mutable_bytes());
    return results;
  }

  // The same in memory of the run's own.
  std::vector<Tensor> run_values(const std::vector<Tensor>& inputs) {
    std::vector<tessera_value> given(inputs.size());
    std::vector<const tessera_value*> in;
    const std::vector<tessera_tensor> tensors = described(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      given[i].kind = TESSERA_TENSOR;
      given[i].dtype = tensors[i].dtype;
      given[i].rank = tensors[i].rank;
      std::copy_n(tensors[i].dims, TESSERA_MAX_RANK, given[i].dims);
      given[i].data = tensors[i].data;
      in.push_back(&given[i]);
    }
    std::vector<tessera_value*> out(static_cast<size_t>(tessera_module_num_outputs(module_)));
    tessera_error error = {};
    check(tessera_session_run_values(session_, in.data(), static_cast<int32_t>(in.size()), out.data(),
                                     static_cast<int32_t>(out.size()), nullptr, &error) == TESSERA_OK,
          error.message);
    std::vector<Tensor> results;
    for (tessera_value* value : out) {
      Tensor& result =
          results.emplace_back(static_cast<DType>(value->dtype), Ints(value->dims, value->dims + value->rank));
      std::copy_n(static_cast<const std::byte*>(value->data), result.num_bytes(), result.mutable_bytes());
      tessera_value_free(value, nullptr);
    }
    return results;
  }

 private:
  std::vector<Tensor> outputs() const {
    std::vector<Tensor> tensors;
    tessera_tensor_info info;
    for (int i = 0; tessera_session_output(session_, i, &info) == TESSERA_OK; ++i)
      tensors.emplace_back(static_cast<DType>(info.dtype), Ints(info.dims, info.dims + info.rank));
    return tensors;
  }

  static std::vector<tessera_tensor> described(const std::vector<Tensor>& tensors) {
    std::vector<tessera_tensor> result;
    for (const Tensor& tensor : tensors)
      result.push_back(ModuleSession::described(tensor, const_cast<std::byte*>(tensor.bytes())));
    return result;
  }
};

void expect_agree(const std::vector<Tensor>& found, const std::vector<Tensor>& want, const std::string& what) {
  ASSERT_EQ(found.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(found[i].dims(), want[i].dims()) << what << ", output " << i;
    ASSERT_EQ(found[i].dtype(), want[i].dtype()) << what << ", output " << i;
    for (int64_t e = 0; e < want[i].num_elements(); ++e) {
      const double a = found[i].get_double(e), b = want[i].get_double(e);
      if (std::isnan(a) && std::isnan(b)) continue;
      ASSERT_LE(std::abs(a - b), 1e-3 * (1 + std::abs(b))) << what << ", output " << i << ", element " << e;
    }
  }
}

// What is above these numbers: all rows, some, one or so, none.
constexpr double kLimits[] = {-2, 0.1, 0.93, 2};

std::vector<Tensor> inputs_at(const Graph& bound, double limit, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor x(DType::kF32, bound.type(bound.inputs[0]).dims()), least(DType::kF32, {});
  for (int64_t i = 0; i < x.num_elements(); ++i) x.set_double(i, static_cast<double>(random() % 2001) / 1000 - 1);
  least.set_double(0, limit);
  return {x, least};
}

void check_graph(const Graph& graph, uint64_t seed) {
  SCOPED_TRACE(print(graph, {.elide_constants = true}));
  ASSERT_EQ(verify(graph), std::vector<std::string>());
  ASSERT_EQ(print(parse_graph(print(graph), standard_ops(), "text")), print(graph));
  const Target target = parse_target("native");
  const Graph fast = optimized(graph, target);
  const Program naive = lower_graph(graph), planned = scheduled(lower_graph(fast), target);
  Session session(module_of(planned, target));
  const bool open = !graph.symbols.front().is_data();
  for (const int64_t n : open ? Ints{1, 2, 7, 40, 16} : Ints{0})
    for (const double limit : kLimits) {
      const Graph bound = open ? bind_symbols(graph, {{"n", n}}) : graph;
      const std::vector<Tensor> inputs = inputs_at(bound, limit, seed);
      const std::vector<Tensor> want = GraphInterpreter().evaluate(bound, inputs);
      const std::string what = fmt::format("n = {}, above {}", n, limit);
      expect_agree(GraphInterpreter().evaluate(graph, inputs), want, what + ", open graph");
      expect_agree(session.run(inputs), want, what + ", module");
      expect_agree(session.run_values(inputs), want, what + ", module's values");
      if (open) continue;
      expect_agree(GraphInterpreter().evaluate(fast, inputs), want, what + ", graph behind its passes");
      expect_agree(interpret(naive, inputs), want, what + ", naive program");
      expect_agree(interpret(planned, inputs, ProgramRun{{}, true}), want, what + ", planned program");
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(DataSizes, RandomGraphsOfFixedInputs) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    check_graph(random_graph(seed, false), seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(DataSizes, RandomGraphsOfOpenInputs) {
  for (uint64_t seed = 100; seed <= 130; ++seed) {
    SCOPED_TRACE(seed);
    check_graph(random_graph(seed, true), seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// ---- bounds ----

TEST(DataSizes, BoundsOfSizes) {
  const SymbolRange n{make_var("n"), 1, 100};
  std::vector<SymbolRange> symbols = {n};
  KnownSymbols known(symbols);
  const auto add = [&](const char* name, const Expr& bound) {
    symbols.push_back(data_symbol(name, normalize_size(bound)));
    known.add(symbols.back());
    return symbols.back().var;
  };
  const Var c = add("c", Expr(n.var) * 3), d = add("d", Expr(c) * 2);
  EXPECT_EQ(symbols[1].hi, 300);
  EXPECT_EQ(symbols[2].hi, 600);
  const auto bound = [&](const Expr& e) {
    const Expr found = bound_of_size(e, symbols);
    return found ? to_string(found) : "none";
  };
  const auto same = [&](const Expr& e) { return to_string(normalize_size(e)); };
  EXPECT_EQ(bound(Expr(n.var) * 2), same(Expr(n.var) * 2));
  EXPECT_EQ(bound(c), same(Expr(n.var) * 3));
  EXPECT_EQ(bound(Expr(d) + Expr(c) + 1), same(Expr(n.var) * 9 + 1));
  EXPECT_EQ(bound(Expr(n.var) * 3 - Expr(c)), same(Expr(n.var) * 3));
  EXPECT_EQ(bound(Expr(c) * Expr(d)), same(Expr(n.var) * Expr(n.var) * 18));
  EXPECT_EQ(bound(floordiv(c, 2)), same(floordiv(Expr(n.var) * 3, 2)));
  EXPECT_EQ(bound(min(c, 7)), same(min(Expr(n.var) * 3, 7)));
  EXPECT_TRUE(size_at_most(c, Expr(n.var) * 3));
  EXPECT_TRUE(size_at_most(d, Expr(n.var) * 6));
  EXPECT_FALSE(size_at_most(d, Expr(n.var) * 5));
  EXPECT_FALSE(size_at_most(Expr(n.var), c));
}

// ---- what breaks the rules ----

std::string problems_of(const std::string& text) {
  std::string all;
  for (const std::string& problem : verify(parse_graph(text, standard_ops(), "text"))) all += problem + "\n";
  return all;
}

TEST(DataSizes, SizesBeforeTheyAreBound) {
  EXPECT_EQ(problems_of("graph @main[c upto 4](%n: i64[], %x: f32[4]) -> (%y: f32[c]) {\n"
                        "  %s = bind_size(%n) {size = [c]} : i64[]\n"
                        "  %y = slice(%x) {sizes = [c], starts = [0], steps = [1]} : f32[c]\n}\n"),
            "");
  EXPECT_NE(problems_of("graph @main[c upto 4](%n: i64[], %x: f32[4]) -> (%y: f32[c]) {\n"
                        "  %y = slice(%x) {sizes = [c], starts = [0], steps = [1]} : f32[c]\n"
                        "  %s = bind_size(%n) {size = [c]} : i64[]\n}\n")
                .find("node slice %y has the size c before a node binds it"),
            std::string::npos);
  EXPECT_NE(problems_of("graph @main[c upto 4](%x: f32[4]) -> (%x: f32[4]) {\n}\n").find("no node binds symbol c"),
            std::string::npos);
  EXPECT_NE(problems_of("graph @main[c upto 4](%n: i64[], %x: f32[c]) -> (%x: f32[c]) {\n"
                        "  %s = bind_size(%n) {size = [c]} : i64[]\n}\n")
                .find("input %x has the size c before a node binds it"),
            std::string::npos);
  EXPECT_NE(problems_of("graph @main[c upto 4](%n: i64[], %x: f32[4]) -> (%y: f32[c]) {\n"
                        "  %s = bind_size(%n) {size = [c]} : i64[]\n"
                        "  %t = bind_size(%n) {size = [c]} : i64[]\n"
                        "  %y = slice(%x) {sizes = [c], starts = [0], steps = [1]} : f32[c]\n}\n")
                .find("binds c a second time"),
            std::string::npos);
  EXPECT_NE(problems_of("graph @main[c upto 4, d upto (c * 2)](%n: i64[], %x: f32[8]) -> (%y: f32[d]) {\n"
                        "  %t = bind_size(%n) {size = [d]} : i64[]\n"
                        "  %s = bind_size(%n) {size = [c]} : i64[]\n"
                        "  %y = slice(%x) {sizes = [d], starts = [0], steps = [1]} : f32[d]\n}\n")
                .find("the bound of d has the size c before a node binds it"),
            std::string::npos);
}

TEST(DataSizes, OnlyDeclaredSymbolsAreBound) {
  try {
    parse_graph(
        "graph @main[n in 1..4](%c: i64[], %x: f32[n]) -> (%s: i64[]) {\n"
        "  %s = bind_size(%c) {size = [n]} : i64[]\n}\n",
        standard_ops(), "text");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-2036");
  }
}

// Memory is laid out for the bounds: at 32 GiB, and above.
TEST(DataSizes, BoundsThatThereIsMemoryFor) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      lower_graph(parse_graph(text, standard_ops(), "text"));
      return "none";
    } catch (const SymbolicShapeError& error) {
      return error.diagnostic().id + ": " + error.diagnostic().message;
    }
  };
  const auto square = [](int64_t most) {
    return fmt::format(
        "graph @main[c upto {}](%n: i64[], %s: f32[]) -> (%y: f32[c,c]) {{\n"
        "  %size = bind_size(%n) {{size = [c]}} : i64[]\n"
        "  %y = broadcast(%s) {{shape = [c, c]}} : f32[c,c]\n}}\n",
        most);
  };
  EXPECT_EQ(refusal(square(92681)), "none");
  EXPECT_EQ(refusal(square(92682)), "TSR-5027: data decide the size of f32[c,c], which may need more than 32 GiB");
  EXPECT_EQ(refusal("graph @main[c upto 8](%n: i64[], %s: f32[]) -> (%y: f32[floordiv(8, (c + 1))]) {\n"
                    "  %size = bind_size(%n) {size = [c]} : i64[]\n"
                    "  %y = broadcast(%s) {shape = [floordiv(8, (c + 1))]} : f32[floordiv(8, (c + 1))]\n}\n"),
            "TSR-5027: data decide the size of f32[floordiv(8, (c + 1))], which may need any amount of memory");
}

// ---- programs as text ----

constexpr const char* kProgram = R"(program @main[c upto 4](%x, %n) -> (%y) {
  plan arena 0 weights 0 scratch 0
  buffer %x: f32[4] input 0
  buffer %n: i64[] input 1
  buffer %y: f32[c] output 0
  define rule "naive"
  kernel @first<c>(x: f32[4]) -> (y: f32[c]) {
    for i in 0..c { y[i] = x[i] }
  }
  bind c = %n
  call @first(%x, %y)
}
)";

TEST(DataSizes, ProgramText) {
  const Program program = parse_program(kProgram, "text");
  EXPECT_EQ(print(program), kProgram);
  EXPECT_EQ(verify(program), std::vector<std::string>());
  Tensor x(DType::kF32, {4}), n(DType::kI64, {});
  for (int64_t i = 0; i < 4; ++i) x.set_double(i, static_cast<double>(i));
  for (const auto& [count, size] : std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {3, 3}, {9, 4}, {-1, 0}}) {
    n.set_int(0, count);
    EXPECT_EQ(interpret(program, {x, n})[0].dims(), Ints{size});
  }
}

std::string violations_of(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return fmt::format("{}", fmt::join(verify(parse_program(text, "text")), "\n"));
}

TEST(DataSizes, ProgramsThatBreakTheRules) {
  EXPECT_NE(violations_of(kProgram, "  bind c = %n\n  call @first(%x, %y)\n", "  call @first(%x, %y)\n  bind c = %n\n")
                .find("it takes c, which has no value here"),
            std::string::npos);
  EXPECT_NE(violations_of(kProgram, "  bind c = %n\n", "").find("symbol c: no step binds it"), std::string::npos);
  EXPECT_NE(
      violations_of(kProgram, "  bind c = %n\n", "  bind c = %n\n  bind c = %n\n").find("the symbol is bound twice"),
      std::string::npos);
  EXPECT_NE(violations_of(kProgram, "bind c = %n", "bind c = %x").find("the count x is f32[4] instead of one i64"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
