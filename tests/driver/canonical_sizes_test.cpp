// Canonical forms of programs that compute the same in other ways, and of some that do not.
#include "driver/canonical_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "driver/compile.h"
#include "loop/naive_loops.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "support/onnx_model.h"
#include "support/symbolic_shape_error.h"
#include "support/test_data.h"

namespace tessera {
namespace {

const Var kSize = make_var("n");

// Calls of kernels on an input x and whatever they give; the last gives the output.
class Calls {
 public:
  explicit Calls(Shape input, bool open = true) {
    if (open) program_.symbols = {{kSize, 1, 64}};
    program_.inputs.push_back(buffer("x", BufferKind::kInput, std::move(input)));
  }

  BufferId x() const { return 0; }

  BufferId buffer(const std::string& name, BufferKind kind, Shape shape) {
    ProgramBuffer buffer;
    buffer.name = name;
    buffer.kind = kind;
    buffer.type = {DType::kF32, std::move(shape), {}};
    buffer.bytes = bytes_at(buffer.type, program_.symbols, largest_sizes(program_.symbols));
    if (kind != BufferKind::kArena) buffer.index = 0;
    program_.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(program_.buffers.size() - 1);
  }

  BufferId view(BufferId of, Shape shape, int64_t offset = 0) {
    const BufferId id = buffer("view", program_.buffers[static_cast<size_t>(of)].kind, std::move(shape));
    program_.buffers[static_cast<size_t>(id)].alias_of = of;
    program_.buffers[static_cast<size_t>(id)].view_offset = offset;
    return id;
  }

  // result[axes] = combined `value` of the operand and its axes, then those that are summed.
  using Value = std::function<Expr(const BufferPtr&, const std::vector<Expr>& axes)>;
  void call(BufferId operand, BufferId result, const Value& value, const Shape& summed = {}) {
    auto definition = std::make_shared<TensorProgram>();
    definition->name = "k";
    const BufferPtr param = make_buffer("a", DType::kF32, shape(operand));
    definition->params.push_back({param, {}});
    Stage stage;
    stage.out = make_buffer("y", DType::kF32, shape(result));
    stage.body.axes = make_axes("i", shape(result));
    stage.body.reduce_axes = make_axes("r", summed);
    if (!summed.empty()) stage.body.combiner = Combiner::kSum;
    std::vector<Expr> axes = stage.body.axis_vars();
    for (const Axis& axis : stage.body.reduce_axes) axes.push_back(axis.var);
    stage.body.value = value(param, axes);
    definition->stages.push_back(std::move(stage));
    Kernel kernel;
    kernel.program = naive_loops(*definition);
    for (const SymbolRange& symbol : program_.symbols) kernel.program.symbols.push_back(symbol.var);
    kernel.definition = std::move(definition);
    program_.calls.push_back({static_cast<int32_t>(program_.kernels.size()), {operand, result}, "k"});
    program_.kernels.push_back(std::move(kernel));
  }

  BufferId arena(Shape shape) { return buffer("t", BufferKind::kArena, std::move(shape)); }
  BufferId output(Shape shape) {
    program_.outputs.push_back(buffer("y", BufferKind::kOutput, std::move(shape)));
    return program_.outputs.back();
  }

  const Program& program() const { return program_; }

 private:
  const Shape& shape(BufferId id) const { return program_.buffers[static_cast<size_t>(id)].type.shape; }

  Program program_;
};

Expr exp_of(const Expr& e) { return unary(UnaryOp::kExp, e); }

std::string difference(const Calls& general, int64_t n, const Calls& own) {
  SizeProver prover;
  return prover.difference(general.program(), {n}, own.program());
}

// exp(x) of x[n,4].
Calls exponentials() {
  Calls calls({kSize, 4});
  calls.call(calls.x(), calls.output({kSize, 4}),
             [](const BufferPtr& a, const std::vector<Expr>& i) { return exp_of(load(a, {i[0], i[1]})); });
  return calls;
}

TEST(CanonicalSizes, AxesOfOnePlaceAndGroupedAxes) {
  Calls one({1, 4}, false);
  one.call(one.x(), one.output({1, 4}),
           [](const BufferPtr& a, const std::vector<Expr>& i) { return exp_of(load(a, {0, i[1]})); });
  EXPECT_EQ(difference(exponentials(), 1, one), "");
  // All rows in one axis, over a view.
  Calls flat({3, 4}, false);
  const BufferId y = flat.output({3, 4});
  flat.call(flat.view(flat.x(), {12}), flat.view(y, {12}),
            [](const BufferPtr& a, const std::vector<Expr>& i) { return exp_of(load(a, {i[0]})); });
  EXPECT_EQ(difference(exponentials(), 3, flat), "");
  EXPECT_EQ(difference(exponentials(), 2, flat), "'x' has another shape");
}

TEST(CanonicalSizes, CopiesAndKernelsOfTheirOwn) {
  Calls two({3, 4}, false);
  const BufferId t = two.arena({3, 4});
  two.call(two.x(), t, [](const BufferPtr& a, const std::vector<Expr>& i) { return load(a, {i[0], i[1]}); });
  // Rows 0 and 1, and row 2, in pieces.
  const BufferId y = two.output({3, 4});
  const auto exp_at = [](const BufferPtr& a, const std::vector<Expr>& i) { return exp_of(load(a, {i[0], i[1]})); };
  two.call(two.view(t, {2, 4}), two.view(y, {2, 4}), exp_at);
  two.call(two.view(t, {1, 4}, 2 * 16), two.view(y, {1, 4}, 2 * 16), exp_at);
  EXPECT_EQ(difference(exponentials(), 3, two), "");
  // One kernel reads the pieces that another two have written.
  Calls joined({3, 4}, false);
  const BufferId whole = joined.arena({3, 4});
  const auto copy = [](const BufferPtr& a, const std::vector<Expr>& i) { return load(a, {i[0], i[1]}); };
  joined.call(joined.view(joined.x(), {2, 4}), joined.view(whole, {2, 4}), copy);
  joined.call(joined.view(joined.x(), {1, 4}, 2 * 16), joined.view(whole, {1, 4}, 2 * 16), copy);
  joined.call(whole, joined.output({3, 4}), exp_at);
  EXPECT_EQ(difference(exponentials(), 3, joined), "");
}

TEST(CanonicalSizes, ConditionsThatAlwaysHold) {
  Calls general({kSize, 4});
  general.call(general.x(), general.output({kSize, 4}), [](const BufferPtr& a, const std::vector<Expr>& i) {
    return select(i[0] < Expr(5), load(a, {i[0], i[1]}), const_float(DType::kF32, 0));
  });
  Calls copy({5, 4}, false);
  copy.call(copy.x(), copy.output({5, 4}),
            [](const BufferPtr& a, const std::vector<Expr>& i) { return load(a, {i[0], i[1]}); });
  EXPECT_EQ(difference(general, 5, copy), "");
  Calls longer({6, 4}, false);
  longer.call(longer.x(), longer.output({6, 4}),
              [](const BufferPtr& a, const std::vector<Expr>& i) { return load(a, {i[0], i[1]}); });
  EXPECT_EQ(difference(general, 6, longer), "'y' has another form");
}

TEST(CanonicalSizes, Sums) {
  const auto sum = [](Calls calls, const Shape& summed) {
    calls.call(
        calls.x(), calls.output({4}),
        [&](const BufferPtr& a, const std::vector<Expr>& i) {
          return summed.size() == 2 ? load(a, {i[1] * Expr(3) + i[2], i[0]}) : load(a, {i[1], i[0]});
        },
        summed);
    return calls;
  };
  const Calls general = sum(Calls({kSize, 4}), {kSize});
  EXPECT_EQ(difference(general, 6, sum(Calls({6, 4}, false), {6})), "");
  EXPECT_EQ(difference(general, 6, sum(Calls({6, 4}, false), {2, 3})), "") << "in two axes";
  EXPECT_EQ(difference(general, 6, sum(Calls({6, 4}, false), {5})), "'y' has another form");
  // Of one element nothing is left to sum.
  Calls one({1, 4}, false);
  one.call(one.x(), one.output({4}), [](const BufferPtr& a, const std::vector<Expr>& i) { return load(a, {0, i[0]}); });
  EXPECT_EQ(difference(general, 1, one), "");
}

TEST(CanonicalSizes, OtherArithmetic) {
  const auto scaled = [](Calls calls, const Shape& shape, const std::function<Expr(const Expr&)>& of) {
    calls.call(calls.x(), calls.output(shape),
               [&](const BufferPtr& a, const std::vector<Expr>& i) { return of(load(a, {i[0], i[1]})); });
    return calls;
  };
  const auto f32 = [](double value) { return const_float(DType::kF32, value); };
  // x / n, where a division by 4 is a multiplication.
  const Calls general = scaled(Calls({kSize, 4}), {kSize, 4},
                               [](const Expr& x) { return binary(BinaryOp::kDiv, x, cast(DType::kF32, kSize)); });
  const auto own = [&](int64_t n, const std::function<Expr(const Expr&)>& of) {
    return scaled(Calls({n, 4}, false), {n, 4}, of);
  };
  EXPECT_EQ(difference(general, 4, own(4, [&](const Expr& x) { return x * f32(0.25); })), "");
  EXPECT_EQ(difference(general, 3, own(3, [&](const Expr& x) { return binary(BinaryOp::kDiv, x, f32(3)); })), "");
  EXPECT_NE(difference(general, 3, own(3, [&](const Expr& x) { return x * f32(1.0f / 3); })), "")
      << "rounded otherwise";
  EXPECT_NE(difference(general, 1, own(1, [&](const Expr& x) { return x + f32(2); })), "");
}

// y = x + (3 where the batch fulfils a condition, else 5).
OnnxModel deciding(const std::string& op, int64_t number, int64_t modulo = 0) {
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("n"), {4, ""}}).output("y");
  model.ints("zero", {}, {0}).ints("number", {}, {number}).floats("three", {}, {3}).floats("five", {}, {5});
  model.ints("modulo", {}, {modulo}).node("Shape", {"x"}, {"shape"});
  model.node("Gather", {"shape", "zero"}, {"size"});
  if (modulo) model.node("Mod", {"size", "modulo"}, {"rest"});
  model.node(op, {modulo ? "rest" : "size", "number"}, {"decision"});
  model.node("Where", {"decision", "three", "five"}, {"chosen"});
  model.node("Add", {"x", "chosen"}, {"y"});
  return model;
}

// y = the negative of: exp(x) where the input c holds, else x with its size, by `op`.
OnnxModel branching(const std::string& op, const OnnxModel::Dim& n) {
  OnnxModel model;
  model.open_input("x", {n, {4, ""}}).input("c", {}, onnx::TensorProto::BOOL).output("y");
  model.node("Shape", {"x"}, {"shape"});
  onnx::AttributeProto& to = *model.node("Cast", {"shape"}, {"sizes"}).add_attribute();
  to.set_name("to");
  to.set_type(onnx::AttributeProto::INT);
  to.set_i(onnx::TensorProto::FLOAT);
  set_attribute(model.node("ReduceSum", {"sizes"}, {"size"}), "keepdims", int64_t{0});
  onnx::NodeProto& choice = model.node("If", {"c"}, {"chosen"});
  for (const bool yes : {true, false}) {
    onnx::AttributeProto& attribute = *choice.add_attribute();
    attribute.set_name(yes ? "then_branch" : "else_branch");
    attribute.set_type(onnx::AttributeProto::GRAPH);
    onnx::NodeProto& node = *attribute.mutable_g()->add_node();
    node.set_op_type(yes ? "Exp" : op);
    node.add_input("x");
    if (!yes) node.add_input("size");
    node.add_output(yes ? "e" : "f");
    attribute.mutable_g()->add_output()->set_name(yes ? "e" : "f");
  }
  model.node("Neg", {"chosen"}, {"y"});
  return model;
}

TEST(CanonicalSizes, Branches) {
  const auto program = [](const std::string& op, int64_t n) { return lower_graph(branching(op, {n, ""}).import()); };
  SizeProver prover;
  EXPECT_EQ(prover.difference(program("Mul", 3), {}, program("Mul", 3)), "");
  EXPECT_EQ(prover.difference(program("Add", 3), {}, program("Mul", 3)), "'y' has another form");
}

Compiled compiled(const OnnxModel& model, DimBounds bounds, bool may_be_flow) {
  const TemporaryFolder folder;
  DriverOptions options;
  options.compile.dims["n"] = bounds;
  options.compile.disabled_passes.insert("symbolic_sizes");  // programs of sizes are held against each other
  options.runner.verify_each = true;
  PassRunner runner(options);
  ImportedModel imported = read_model(folder.write("model.onnx", model.bytes()), options, runner);
  if (!may_be_flow) imported.as_flow = nullptr;
  return compile_imported(std::move(imported), options, runner);
}

TEST(OpenSizesThatDecide, EverySizeIsProved) {
  const Compiled all = compiled(deciding("Less", -1), {1, 40}, false);
  EXPECT_EQ(all.info.sizes, "proved at 40, run at 0, of 40 sizes");
  EXPECT_EQ(all.program.calls.size(), 1u);
}

TEST(OpenSizesThatDecide, BranchesOfARunAreProvedToo) {
  const Compiled all = compiled(branching("Mul", OnnxModel::named("n")), {1, 40}, false);
  EXPECT_EQ(all.info.sizes, "proved at 40, run at 0, of 40 sizes");
  EXPECT_EQ(std::count_if(all.program.steps.begin(), all.program.steps.end(),
                          [](const ProgramStep& step) { return step.kind == StepKind::kBranch; }),
            1);
}

TEST(OpenSizesThatDecide, TheRangeIsCut) {
  for (const auto& [op, number, calls] :
       {std::tuple{"Equal", 1, 3}, {"Equal", 40, 3}, {"Less", 17, 3}, {"Equal", 11, 5}}) {
    const Compiled cut = compiled(deciding(op, number), {1, 40}, false);
    EXPECT_EQ(cut.info.sizes, "proved at 40, run at 0, of 40 sizes") << op << number;
    EXPECT_EQ(cut.program.calls.size(), static_cast<size_t>(calls)) << "programs and the switches before them";
  }
}

TEST(OpenSizesThatDecide, TooManyBordersAreRefused) {
  try {
    compiled(deciding("Equal", 1, 3), {1, 40}, false);
    FAIL() << "every third size is another";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-5022");
    EXPECT_EQ(error.diagnostic().message.rfind("the model cannot be compiled for a range of sizes: ", 0), 0u)
        << error.diagnostic().message;
  }
  EXPECT_TRUE(compiled(deciding("Equal", 1, 3), {1, 40}, true).program.flow) << "a flow takes all sizes";
}

// A reader that negates x of any length, and answers `refusal` when it is asked for symbols.
Compiled compile_with(const ReadOutcome& refusal, int& reads) {
  ModelReader reader;
  reader.reads_symbols = true;
  reader.read = [&](const ImportOptions& options) -> ReadOutcome {
    ++reads;
    if (!options.symbols.empty()) return refusal;
    Graph graph;
    GraphBuilder builder(graph);
    const ValueId x = graph.add_input("x", {DType::kF32, make_shape({options.dims.at("n").lo}), {}});
    graph.outputs = {builder.add(standard_ops().get("neg"), {x}, {}, "y")};
    return ImportedModel{std::move(graph), nullptr};
  };
  DriverOptions options;
  options.compile.dims["n"] = {1, 8};
  PassRunner runner(options);
  return compile_imported(read_model(reader, "m", options, runner), options, runner);
}

TEST(OpenSizesThatDecide, OnlyModelsWithoutSuchAGraphAreReadAtSamples) {
  int reads = 0;
  EXPECT_EQ(compile_with(NoGraph{"node", "a number"}, reads).info.sizes, "proved at 8, run at 0, of 8 sizes");
  reads = 0;
  EXPECT_THROW(compile_with(NodesRefused{{"TSR-1044", "a wrong model", "node", "", ""}, true}, reads), UserError);
  EXPECT_EQ(reads, 1) << "what is wrong with the model is said at once";
}

TEST(OpenSizesThatDecide, OperatorsRefuseSymbolsByAnErrorOfTheirOwn) {
  const auto infer = [](const Expr& extent) {
    infer_types(
        standard_ops().get("slice"), {{DType::kF32, Shape{extent}, {}}},
        {{"starts", std::vector<int64_t>{3}}, {"sizes", std::vector<int64_t>{2}}, {"steps", std::vector<int64_t>{1}}},
        {}, "part");
  };
  EXPECT_THROW(infer(kSize), SymbolicShapeError);
  try {
    infer(4);
    FAIL() << "a slice outside of its operand";
  } catch (const SymbolicShapeError&) {
    FAIL() << "no size is symbolic";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-2032");
  }
}

}  // namespace
}  // namespace tessera
