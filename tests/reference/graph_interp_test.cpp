// The graph interpreter itself: symbols, observers, regions, memory, and what it refuses.
#include "interp/graph_interp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/parser.h"
#include "ops/op_table.h"
#include "reference_util.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

Graph parse(const std::string& text) { return parse_graph(text, standard_ops()); }

std::string internal_error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InternalError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no InternalError";
  return "";
}

TEST(GraphInterpreter, NamedDimensionsTakeTheInputsExtents) {
  const Graph graph = parse(R"(
graph @main[n in 1..64](%x: f32[n,3], %w: f32[3,2]) -> (%y: f32[n,2]) {
  %m = matmul(%x, %w) : f32[n,2]
  %y = max(%m, %m) : f32[n,2]
})");
  for (int64_t n : {1, 5, 64}) {
    std::mt19937 random(1);
    const Tensor x = random_tensor(random, DType::kF32, {n, 3});
    const Tensor w = random_tensor(random, DType::kF32, {3, 2});
    const auto want = reference({n, 2}, [&](const Dims& i) {
      double sum = 0;
      for (int64_t k = 0; k < 3; ++k) sum += at(x, {i[0], k}) * at(w, {k, i[1]});
      return sum;
    });
    expect_close(GraphInterpreter().evaluate(graph, {x, w})[0], {n, 2}, want, "matmul");
  }
}

TEST(GraphInterpreter, RefusesInputsThatDoNotFit) {
  const Graph graph = parse(R"(
graph @main[n in 1..4](%x: f32[n,3], %y: f32[n,3]) -> (%z: f32[n,3]) {
  %z = add(%x, %y) : f32[n,3]
})");
  const auto run = [&](std::vector<Tensor> inputs) {
    return error_of([&] { GraphInterpreter().evaluate(graph, inputs); });
  };
  const Tensor two(DType::kF32, {2, 3});
  EXPECT_EQ(run({two}), "error TSR-2050: 1 inputs for graph main\n  legal: 2 inputs");
  EXPECT_EQ(run({two, Tensor(DType::kF64, {2, 3})}), "error TSR-2050: input y is f64[2,3]\n  legal: f32[n,3]");
  EXPECT_EQ(run({two, Tensor(DType::kF32, {3})}), "error TSR-2050: input y is f32[3]\n  legal: f32[n,3]");
  EXPECT_EQ(run({two, Tensor(DType::kF32, {3, 3})}),
            "error TSR-2050: input y is f32[3,3]: dimension 0 should be 2\n  legal: f32[n,3]");
  EXPECT_EQ(run({two, Tensor(DType::kF32, {2, 4})}),
            "error TSR-2050: input y is f32[2,4]: dimension 1 should be 3\n  legal: f32[n,3]");
  const Tensor five(DType::kF32, {5, 3});
  EXPECT_EQ(run({five, five}), "error TSR-2050: dimension n is 5\n  legal: 1 to 4");
}

TEST(GraphInterpreter, ObserverSeesEveryValueInOrder) {
  const Graph graph = parse(R"(
graph @main(%x: f32[2]) -> (%y: f32[2]) {
  %a = neg(%x) : f32[2]
  %dead = abs(%x) : f32[2]
  %y = composite(%a) {name = "twice"} ({
    graph @twice(%p: f32[2]) -> (%q: f32[2]) {
      %q = add(%p, %p) : f32[2]
    }
  }) : f32[2]
})");
  std::vector<std::string> seen;
  GraphInterpreter interpreter([&](const Graph& owner, ValueId id, const Tensor& tensor) {
    seen.push_back(owner.name + "." + owner.value(id).name + "=" +
                   std::to_string(static_cast<int>(tensor.get_double(0))));
  });
  interpreter.evaluate(graph, {tensor_of(DType::kF32, {2}, {3, 4})});
  EXPECT_EQ(seen, (std::vector<std::string>{"main.x=3", "main.a=-3", "main.dead=3", "twice.p=-3", "twice.q=-6",
                                            "main.y=-6"}));
}

TEST(GraphInterpreter, ValuesWithoutFurtherUseAreDropped) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps memory that was given back, to find uses of it";
#endif
  // A chain of 64 tensors of 4 MB; the observer holds none, so only neighbours may live at once.
  Graph graph;
  GraphBuilder builder(graph);
  ValueId value = graph.add_input("x", TensorType{DType::kF32, make_shape({1 << 20}), {}});
  for (int i = 0; i < 64; ++i) value = builder.add(standard_ops().get("neg"), {value});
  graph.outputs = {value};
  std::vector<const std::byte*> addresses;
  GraphInterpreter interpreter(
      [&](const Graph&, ValueId, const Tensor& tensor) { addresses.push_back(tensor.bytes()); });
  const Tensor x(DType::kF32, {1 << 20});
  interpreter.evaluate(graph, {x});
  // Dropped memory is given out again: far fewer places than values.
  std::sort(addresses.begin(), addresses.end());
  const auto places = std::unique(addresses.begin(), addresses.end()) - addresses.begin();
  EXPECT_LT(places, 32);
}

// An operator whose body is wrong, as an operator's author may write it.
OpDef broken_op(std::function<Expr(const Body&)> value, int64_t declared) {
  return OpDef{
      .name = "broken",
      .doc = "",
      .attrs = {},
      .infer = [declared](const OpContext& ctx) -> std::vector<TensorType> {
        return {TensorType{ctx.inputs[0].dtype, make_shape({declared}), {}}};
      },
      .body =
          [value](const OpContext& ctx) {
            Body body;
            body.inputs = {make_buffer("in0", ctx.inputs[0].dtype, ctx.inputs[0].shape)};
            body.axes = make_axes("i", ctx.inputs[0].shape);
            body.value = value(body);
            return body;
          },
      .example = "",
  };
}

std::string run_broken(const OpDef& op) {
  Graph graph;
  GraphBuilder builder(graph);
  builder.set_loc("Conv_3");
  const ValueId x = graph.add_input("x", TensorType{DType::kF32, make_shape({40}), {}});
  graph.outputs = {builder.add(op, {x}, {}, "y")};
  return internal_error_of([&] { GraphInterpreter().evaluate(graph, {Tensor(DType::kF32, {40})}); });
}

TEST(GraphInterpreter, LoadOutsideItsBufferNamesBufferAndIndex) {
  const OpDef after = broken_op([](const Body& b) { return load(b.inputs[0], {b.axes[0].var + Expr(1)}); }, 40);
  EXPECT_THAT(run_broken(after), HasSubstr("load outside its buffer: in0[40] of shape [40]"));
  EXPECT_THAT(run_broken(after), HasSubstr("node broken (%y, Conv_3)"));
  const OpDef before = broken_op([](const Body& b) { return load(b.inputs[0], {b.axes[0].var - Expr(3)}); }, 40);
  EXPECT_THAT(run_broken(before), HasSubstr("in0[-3] of shape [40]"));
  const OpDef scattered =
      broken_op([](const Body& b) { return load(b.inputs[0], {b.axes[0].var * b.axes[0].var}); }, 40);
  EXPECT_THAT(run_broken(scattered), HasSubstr("in0[49] of shape [40]"));
}

TEST(GraphInterpreter, SelectLoadsOnlyWhereItsArmIsTaken) {
  // Outside the condition these loads would leave the buffer.
  const auto check = [](const std::function<Expr(const Body&)>& value, const std::function<double(int)>& want) {
    const OpDef op = broken_op(value, 40);
    Graph graph;
    GraphBuilder builder(graph);
    const ValueId x = graph.add_input("x", TensorType{DType::kF32, make_shape({40}), {}});
    graph.outputs = {builder.add(op, {x}, {}, "y")};
    Tensor input(DType::kF32, {40});
    for (int i = 0; i < 40; ++i) input.set_double(i, i + 1);
    const Tensor y = GraphInterpreter().evaluate(graph, {input})[0];
    for (int i = 0; i < 40; ++i) ASSERT_EQ(y.get_double(i), want(i)) << i;
  };
  const Expr zero = const_float(DType::kF32, 0);
  const auto shifted = [](const Body& b, int64_t by) { return load(b.inputs[0], {b.axes[0].var + Expr(by)}); };
  // A run at the end, at the begin, in the middle, and lanes picked one by one.
  check([&](const Body& b) { return select(b.axes[0].var < 35, shifted(b, 5), zero); },
        [](int i) { return i < 35 ? i + 6 : 0; });
  check([&](const Body& b) { return select(b.axes[0].var >= 5, shifted(b, -5), zero); },
        [](int i) { return i >= 5 ? i - 4 : 0; });
  check(
      [&](const Body& b) {
        const Expr i = b.axes[0].var;
        return select(logical_and(Expr(10) <= i, i < Expr(20)), zero, select(i < 10, shifted(b, 30), shifted(b, -20)));
      },
      [](int i) { return i < 10   ? i + 31
                         : i < 20 ? 0
                                  : i - 19; });
  check(
      [&](const Body& b) {
        const Expr i = b.axes[0].var;
        const Expr odd = equal(floormod(i, 2), 1);
        // Nested: each arm shares a load that only some of its lanes may do.
        const Expr back = shifted(b, -1);
        return select(odd, back + back, select(i < 38, shifted(b, 2), zero));
      },
      [](int i) { return i % 2    ? 2 * i
                         : i < 38 ? i + 3
                                  : 0; });
  // `and` evaluates its right side only where needed.
  check(
      [&](const Body& b) {
        const Expr i = b.axes[0].var;
        const Expr next_is_big = logical_and(i<39, shifted(b, 1)> const_float(DType::kF32, 20));
        return select(next_is_big, const_float(DType::kF32, 1), zero);
      },
      [](int i) { return i < 39 && i + 2 > 20 ? 1 : 0; });
  check(
      [&](const Body& b) {
        const Expr i = b.axes[0].var;
        const Expr last_or_big = logical_or(i >= 39, shifted(b, 1) > const_float(DType::kF32, 20));
        return select(last_or_big, const_float(DType::kF32, 1), zero);
      },
      [](int i) { return i >= 39 || i + 2 > 20 ? 1 : 0; });
}

TEST(GraphInterpreter, ResultsMustHaveTheirDeclaredType) {
  const OpDef op = broken_op([](const Body& b) { return load(b.inputs[0], {b.axes[0].var}); }, 39);
  EXPECT_THAT(run_broken(op), HasSubstr("node broken (%y, Conv_3) gives f32[40] and is declared f32[39]"));
}

TEST(GraphInterpreter, ConstantsWithoutDataAreRefused) {
  const Graph graph = parse(R"(
graph @main() -> (%y: f32[100]) {
  %y = constant {value = elided<f32[100] 0x0123456789abcdef>} : f32[100]
})");
  EXPECT_THAT(internal_error_of([&] { GraphInterpreter().evaluate(graph, {}); }),
              HasSubstr("a constant whose data was left out of the text"));
}

TEST(GraphInterpreter, SmallFormatsComputeAndStore) {
  // f8 and 4-bit constants, widened by casts.
  const Graph graph = parse(R"(
graph @main() -> (%y: f32[3]) {
  %a = constant {value = dense<f8e4m3fn[3] 1.5 -2 0.25>} : f8e4m3fn[3]
  %b = constant {value = dense<i4[3] 7 -8 3>} : i4[3]
  %c = cast(%a) {to = f32} : f32[3]
  %d = cast(%b) {to = f32} : f32[3]
  %y = mul(%c, %d) : f32[3]
})");
  expect_close(GraphInterpreter().evaluate(graph, {})[0], {3}, {10.5, 16, 0.75}, "y", 0);
}

}  // namespace
}  // namespace tessera
