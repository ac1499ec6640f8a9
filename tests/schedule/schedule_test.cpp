#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <set>

#include "arith/simplify.h"
#include "graph/op_def.h"
#include "graph_passes/fusion/fuse_groups.h"
#include "interp/graph_interp.h"
#include "interp/loop_interp.h"
#include "loop/naive_loops.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "schedule/choose.h"
#include "schedule/kernel/pack_loops.h"
#include "schedule/sketches/sketch.h"
#include "schedule_cases.h"

namespace tessera {
namespace {

Target machine(int bits) {
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  if (bits >= 256) target.features = {"avx", "avx2", "fma"};
  if (bits >= 512) target.features.insert("avx512f"), target.emulated.emplace(kPortableTiles);
  return target;
}

// The physical copy of a logical tensor; padding gets a value that shows up when it leaks into results.
Tensor to_physical(const Tensor& logical, const Layout& layout) {
  if (layout.row_major()) return logical;
  const auto dims = *static_dims(physical_shape(make_shape(logical.dims()), layout));
  Tensor result(logical.dtype(), dims);
  for (int64_t i = 0; i < result.num_elements(); ++i) result.set_double(i, is_float(logical.dtype()) ? NAN : 77777);
  const std::vector<Axis> axes = make_axes("i", make_shape(logical.dims()));
  for (int64_t flat = 0; flat < logical.num_elements(); ++flat) {
    std::vector<Expr> index(axes.size());
    int64_t rest = flat;
    for (size_t d = axes.size(); d-- > 0; rest /= logical.dims()[d]) index[d] = rest % logical.dims()[d];
    int64_t place = 0;
    const auto physical = physical_index(index, layout);
    for (size_t d = 0; d < dims.size(); ++d) place = place * dims[d] + *as_int(physical[d]);
    result.set_double(place, logical.get_double(flat));
  }
  return result;
}

// Compares the logical elements of a physical tensor; empty when they agree.
std::string difference(const Tensor& want, const Tensor& physical, const Layout& layout) {
  double scale = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i)
    if (std::isfinite(want.get_double(i))) scale = std::max(scale, std::fabs(want.get_double(i)));
  Tensor places(DType::kI64, want.dims());
  std::vector<int64_t> dims =
      layout.row_major() ? want.dims() : *static_dims(physical_shape(make_shape(want.dims()), layout));
  for (int64_t flat = 0; flat < want.num_elements(); ++flat) {
    std::vector<Expr> index(want.dims().size());
    int64_t rest = flat;
    for (size_t d = index.size(); d-- > 0; rest /= want.dims()[d]) index[d] = rest % want.dims()[d];
    int64_t place = 0;
    const auto at = physical_index(index, layout);
    for (size_t d = 0; d < dims.size(); ++d) place = place * dims[d] + *as_int(at[d]);
    const double w = want.get_double(flat);
    const double got = physical.get_double(place);
    const bool ok = is_float(want.dtype()) ? (w == got || std::fabs(w - got) <= 1e-5 * scale) : w == got;
    if (!ok) return "element " + std::to_string(flat) + ": " + std::to_string(got) + " instead of " + std::to_string(w);
  }
  return "";
}

// Weights as a kernel of the program stores them in each run. Only Winograd's transform is rounded in another way.
Tensor packed_at_run_time(const Tensor& source, const PackedParam& packed, const Target& target) {
  const Tensor want = pack(source, packed);
  Tensor result(want.dtype(), want.dims());
  int64_t begin = 0;
  for (size_t part = 0; part < packed.parts.size(); ++part) {
    const LoopProgram program = pack_loops("pack", packed, part, source.dtype(), source.num_elements(), target);
    EXPECT_THAT(verify(program), testing::IsEmpty()) << print(program);
    Tensor in(program.params[0]->dtype, *static_dims(program.params[0]->shape));
    Tensor out(program.params[1]->dtype, *static_dims(program.params[1]->shape));
    std::copy_n(source.bytes(), source.num_bytes(), in.mutable_bytes());
    std::vector<Tensor*> params = {&in, &out};
    EXPECT_NO_THROW(interpret(program, params)) << print(program);
    std::copy_n(out.bytes(), out.num_bytes(), result.mutable_bytes() + begin);
    begin += out.num_bytes();
  }
  EXPECT_EQ(begin, want.num_bytes());
  if (packed.winograd.rows == 0) EXPECT_EQ(std::memcmp(want.bytes(), result.bytes(), static_cast<size_t>(begin)), 0);
  return result;
}

struct Runner {
  std::mt19937& random;
  std::map<std::string, int> taken;
  int kernels = 0;

  // Points of the kernel's sketches: where each begins, some drawn, a child of one and of two. Each is its text alone.
  void sketches(const TensorProgram& definition, Target target,
                const std::function<void(const ScheduledKernel&, const std::string&)>& right) {
    if (random() % 2 == 0) return;  // the interpreter takes its time
    if (random() % 4 == 0) target.num_threads = 3;
    std::mt19937_64 draw(random());
    const SketchList list = make_sketches(definition, target);
    for (const std::string& reason : list.declined) EXPECT_TRUE(reason.starts_with("sketch")) << reason;
    for (const Sketch& sketch : list.sketches) {
      std::string why;
      std::vector<KnobPoint> points = {trace_point(sketch.name, sketch.steps)};
      if (auto point = draw_point(sketch, definition, target, draw, why)) points.push_back(std::move(*point));
      if (auto child = mutate_point(points.back(), definition, target, draw, why)) points.push_back(std::move(*child));
      if (auto child = cross_points(points[0], points.back(), definition, target, draw, why))
        points.push_back(std::move(*child));
      for (const KnobPoint& point : points) {
        ASSERT_EQ(parse_trace_point(trace_point_text(point), why), point) << why;
        const auto answer = apply_trace_point(point, definition, target);
        if (const auto* declined = std::get_if<Declined>(&answer)) {
          // Only where a sketch begins may there be too many copies: what is drawn was applied.
          ASSERT_EQ(point, points[0]) << declined->reason << "\n" << point.trace;
          ++taken["sketches declined"];
          continue;
        }
        ++taken[sketch.name];
        const auto again = apply_trace_point(point, definition, target);
        ASSERT_EQ(print(std::get<ScheduledKernel>(answer).program), print(std::get<ScheduledKernel>(again).program));
        if (draw() % 2 == 0) continue;
        right(std::get<ScheduledKernel>(answer), point.rule + "\n" + point.trace);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }

  void run(const std::string& kind, int bits) {
    Target target = machine(bits);
    if (kind == "conv" && random() % 3 == 0) target.l2_bytes = 1 << 10;  // images are large beside it
    ScheduleCase test = random_case(kind, std::max(8, bits / 32), random);
    GraphInterpreter interpreter;
    const PassContext ctx{standard_ops(), interpreter, target, 3};
    const Graph grouped = fuse_groups(test.graph, ctx);
    std::vector<Tensor> inputs;
    for (ValueId id : test.graph.inputs) {
      Tensor tensor(test.graph.type(id).dtype, test.graph.type(id).dims());
      for (int64_t i = 0; i < tensor.num_elements(); ++i)
        tensor.set_double(i, static_cast<double>(static_cast<int>(random() % 33) - 16) / 8);
      inputs.push_back(tensor);
    }
    const Tensor want = interpreter.evaluate(test.graph, inputs).at(0);

    // Values by name: the graph's inputs and constants, then each kernel's result in its layout.
    std::map<std::string, Tensor> values;
    for (size_t i = 0; i < inputs.size(); ++i)
      values[grouped.value(grouped.inputs[i]).name] = to_physical(inputs[i], grouped.type(grouped.inputs[i]).layout);
    for (const Node& node : grouped.nodes()) {
      const std::string result = grouped.value(node.outputs[0]).name;
      const TensorType& type = grouped.type(node.outputs[0]);
      if (node.op->kind == OpKind::kConstant) {
        values[result] = *node.attrs.get<TensorPtr>("value");
        continue;
      }
      if (node.op->name == "reshape") {  // alone: the same memory
        values[result] = values.at(grouped.value(node.inputs[0]).name);
        continue;
      }
      std::vector<size_t> kept;
      TensorProgram definition = lower_node(grouped, node, kept);
      // Every third kernel finds its constants at run time.
      const bool at_run_time = kernels++ % 3 == 0;
      for (TensorParam& param : definition.params)
        if (at_run_time && param.is_constant()) param.kind = OperandKind::kWeight;
      const auto pack_one = [&](const Tensor& source, const PackedParam& packed) {
        const bool by_loops = at_run_time && run_time_packing_problem(packed, source.dtype()).empty();
        taken["packed at run time"] += by_loops;
        return by_loops ? packed_at_run_time(source, packed, target) : pack(source, packed);
      };
      std::vector<Tensor> args;
      for (size_t i : kept) args.push_back(values.at(grouped.value(node.inputs[i]).name));
      const auto execute = [&](const LoopProgram& program, std::vector<Tensor> tensors) {
        std::vector<int64_t> dims;
        for (const Expr& e : program.params.back()->shape) dims.push_back(*as_int(e));
        for (size_t i = 0; i + 1 < program.params.size(); ++i) {
          Tensor flat(tensors[i].dtype(), *static_dims(program.params[i]->shape));
          ASSERT_EQ(flat.num_elements(), tensors[i].num_elements());
          std::copy_n(tensors[i].bytes(), tensors[i].num_bytes(), flat.mutable_bytes());
          tensors[i] = flat;
        }
        Tensor out(type.dtype, dims);
        std::vector<Tensor*> params;
        for (Tensor& tensor : tensors) params.push_back(&tensor);
        params.push_back(&out);
        ASSERT_THAT(verify(program), testing::IsEmpty()) << test.text << print(program);
        ASSERT_NO_THROW(interpret(program, params)) << test.text << print(program);
        values[result] = out;
      };
      for (const ScheduleRule& rule : schedule_rules()) {
        Knobs knobs;
        auto answer = rule.apply(definition, target, knobs);
        const auto right = [&](const ScheduledKernel& scheduled, const std::string& what) {
          std::vector<Tensor> tensors = args;
          for (const PackedParam& packed : scheduled.packed)
            tensors[packed.param] = pack_one(args[packed.param], packed);
          execute(scheduled.program, tensors);
          if (grouped.outputs[0] == node.outputs[0])
            ASSERT_EQ(difference(want, values.at(result), type.layout), "")
                << "rule " << what << ", " << bits << " bits\n"
                << test.text << print(scheduled.program);
        };
        if (std::holds_alternative<Declined>(answer)) {
          EXPECT_FALSE(std::get<Declined>(answer).reason.empty());
        } else {
          ++taken[std::string(rule.name)];
          right(std::get<ScheduledKernel>(answer), std::string(rule.name));
        }
        if (testing::Test::HasFatalFailure()) return;
        // Points of the rule's space: its own choice is one, and the others compute the same.
        const auto space = knob_space(rule, definition, target, Fp32Products::kPieces);
        if (std::holds_alternative<Declined>(space)) {
          EXPECT_TRUE(std::holds_alternative<Declined>(answer)) << std::get<Declined>(space).reason;
          continue;
        }
        const auto& knob_list = std::get<KnobSpace>(space);
        const auto own = apply_point(knob_list.preferred(), definition, target, Fp32Products::kPieces);
        ASSERT_TRUE(std::holds_alternative<ScheduledKernel>(own)) << std::get<Declined>(own).reason;
        if (std::holds_alternative<ScheduledKernel>(answer))
          ASSERT_EQ(print(std::get<ScheduledKernel>(own).program), print(std::get<ScheduledKernel>(answer).program));
        for (int i = 0; i < 4; ++i) {
          KnobPoint point = knob_list.preferred();
          // Few knobs at a time: of points that are far from the rule's own, most are declined.
          for (size_t changes = 1 + random() % 3; changes > 0 && !point.values.empty(); --changes) {
            const size_t k = random() % point.values.size();
            const Knob& knob = knob_list.knobs[k];
            point.values[k].second = knob.values[random() % knob.values.size()];
          }
          std::string why;
          ASSERT_EQ(parse_knob_point(to_string(point), why), point) << why;
          const auto at_point = apply_point(point, definition, target, Fp32Products::kPieces);
          ++taken[std::holds_alternative<Declined>(at_point) ? "points declined" : "points"];
          if (const auto* declined = std::get_if<Declined>(&at_point)) EXPECT_FALSE(declined->reason.empty());
          else right(std::get<ScheduledKernel>(at_point), to_string(point));
          if (testing::Test::HasFatalFailure()) return;
        }
      }
      sketches(definition, target, [&](const ScheduledKernel& scheduled, const std::string& what) {
        std::vector<Tensor> tensors = args;
        for (const PackedParam& packed : scheduled.packed) tensors[packed.param] = pack_one(args[packed.param], packed);
        execute(scheduled.program, tensors);
        if (grouped.outputs[0] == node.outputs[0])
          ASSERT_EQ(difference(want, values.at(result), type.layout), "") << what << ", " << bits << " bits\n"
                                                                          << test.text << print(scheduled.program);
      });
      if (testing::Test::HasFatalFailure()) return;
      execute(naive_loops(definition), args);
      if (grouped.outputs[0] == node.outputs[0])
        ASSERT_EQ(difference(want, values.at(result), type.layout), "") << "naive\n" << test.text;
    }
  }
};

// Cache lines that a product's loops prefetch, by the number of the group of columns whose tiles ask for them.
std::map<int64_t, std::set<int64_t>> prefetched_lines(const LoopProgram& program, int64_t tiles) {
  std::map<int64_t, std::set<int64_t>> lines;
  walk(
      program.body,
      [&](const Stmt& loop) {
        if (loop->kind != StmtKind::kFor || !loop->buffer) return;
        const Stmt& outer = program.body;
        for (int64_t t = 0; t < *as_int(outer->extent); ++t)
          for (int64_t k = 0; k < *as_int(loop->extent); ++k) {
            const VarMap at{{outer->var.get(), Expr(t)}, {loop->var.get(), Expr(k)}};
            lines[t / tiles].insert(*as_int(simplify(substitute(loop->indices[0], at), {})) / 16);
          }
      },
      nullptr);
  return lines;
}

// [rows, 256] times constant weights of [256, columns].
TensorProgram product(int64_t rows, int64_t columns) {
  Graph graph;
  GraphBuilder builder(graph);
  const OpTable& ops = standard_ops();
  graph.add_input("x", TensorType{DType::kF32, make_shape({rows, 256})});
  const auto weights = std::make_shared<const Tensor>(DType::kF32, std::vector<int64_t>{256, columns});
  const ValueId w = builder.add(ops.get("constant"), {}, {{"value", weights}});
  graph.outputs = {builder.add(ops.get("matmul"), {graph.inputs[0], w})};
  std::vector<size_t> kept;
  return lower_node(graph, graph.nodes().back(), kept);
}

ScheduledKernel scheduled_at(const TensorProgram& definition, const char* text) {
  std::string why;
  const auto point = parse_knob_point(text, why);
  return std::get<ScheduledKernel>(apply_point(*point, definition, machine(512)));
}

// What the tiles of a product with 8 lanes in its last column read of the weights, in the order in which they run.
std::vector<int64_t> weights_read(const LoopProgram& program) {
  std::vector<int64_t> places;
  const std::function<void(const Stmt&, VarMap)> run = [&](const Stmt& s, VarMap at) {
    if (s->kind == StmtKind::kIf) {
      const Expr inside = simplify(substitute(s->condition, at), {});
      if (is_true(inside)) run(s->stmts[0], at);
      else if (s->stmts.size() > 1) run(s->stmts[1], at);
      return;
    }
    if (s->kind == StmtKind::kFor) {
      for (int64_t i = 0; i < *as_int(s->extent); ++i) {
        at[s->var.get()] = Expr(i);
        run(s->stmts[0], at);
      }
      return;
    }
    for (const Stmt& inner : s->stmts) run(inner, at);
    if (s->kind != StmtKind::kStore) return;
    walk(s->value, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad && node->buffer == program.params[1])
        places.push_back(*as_int(simplify(substitute(node->operands[0], at), {})));
    });
  };
  run(program.body, {});
  return places;
}

TEST(RegisterTile, ReadsWeightsOfAGroupOneBehindTheOther) {
  // Seven blocks of 16 columns and one of 8: two groups of 3 and one of 2. Behind each group is a step of zeros.
  const TensorProgram definition = product(1, 120);
  for (const bool by_group : {true, false}) {
    const ScheduledKernel kernel =
        scheduled_at(definition, by_group ? "register_tile{vectors=3,rows=1,by_group=1,dots=0}"
                                          : "register_tile{vectors=3,rows=1,by_group=0,dots=0}");
    const std::vector<int64_t> places = weights_read(kernel.program);
    ASSERT_EQ(places.size(), 256u * 128);
    int64_t steps_back = 0, gaps = 0;
    for (size_t i = 1; i < places.size(); ++i) {
      steps_back += places[i] < places[i - 1] ? 1 : 0;
      gaps += places[i] > places[i - 1] + 16 + 3 * 16 ? 1 : 0;
    }
    EXPECT_EQ(kernel.packed[0].parts.size(), by_group ? 2u : 1u);
    if (by_group) EXPECT_EQ(steps_back + gaps, 0);
    else EXPECT_EQ(steps_back, 3 * (256 - 1));
  }
}

TEST(RegisterTile, OneKernelOfSeveralStoresWeightsAsTheOthers) {
  const ScheduleRule& rule = *std::find_if(schedule_rules().begin(), schedule_rules().end(),
                                           [](const ScheduleRule& one) { return one.name == "register_tile"; });
  const auto parts = [&](int64_t rows, Knobs knobs) {
    return std::get<ScheduledKernel>(rule.apply(product(rows, 120), machine(512), knobs)).packed[0].parts;
  };
  EXPECT_GT(parts(1, {})[0].dims.size(), 3u);  // one row: by groups
  for (const int64_t rows : {1, 64}) EXPECT_EQ(parts(rows, Knobs::sharing_weights())[0].dims.size(), 3u);
}

TEST(RegisterTile, PrefetchesTheWeightsOfTheNextColumns) {
  const TensorProgram definition = product(48, 384);
  const ScheduleRule& rule = *std::find_if(schedule_rules().begin(), schedule_rules().end(),
                                           [](const ScheduleRule& one) { return one.name == "register_tile"; });
  const auto scheduled = [&](const char* text) { return scheduled_at(definition, text).program; };
  // 24 blocks of 16 columns, with a line behind each, in 8 groups of 3, 48 rows in 6 tiles of 8: each group asks for
  // the next, and all of it.
  const int64_t group_lines = 3 * (256 + 1);
  const auto lines = prefetched_lines(scheduled("register_tile{vectors=3,rows=8}"), 6);
  ASSERT_EQ(lines.size(), 8u);
  for (const auto& [group, asked] : lines) {
    for (int64_t line = 0; line < group_lines; ++line)
      ASSERT_EQ(asked.count((group + 1) * group_lines + line), 1u) << "group " << group << ", line " << line;
    EXPECT_LE(asked.size(), static_cast<size_t>(group_lines) * 5 / 4);
  }
  EXPECT_TRUE(prefetched_lines(scheduled("register_tile{vectors=3,rows=8,prefetch=0}"), 6).empty());
  Knobs knobs;
  EXPECT_FALSE(
      prefetched_lines(std::get<ScheduledKernel>(rule.apply(definition, machine(512), knobs)).program, 1).empty());
}

// A convolution from an image of size x size to one in blocks of 16 channels.
TensorProgram convolution(int64_t channels, const Layout& layout, int64_t size, int64_t filters, int64_t stride,
                          int64_t groups = 1, int64_t window = 3) {
  Graph graph;
  GraphBuilder builder(graph);
  const OpTable& ops = standard_ops();
  TensorType image{DType::kF32, make_shape({1, channels, size, size})};
  image.layout = layout;
  graph.add_input("x", image);
  const auto weights =
      std::make_shared<const Tensor>(DType::kF32, std::vector<int64_t>{filters, channels / groups, window, window});
  const ValueId w = builder.add(ops.get("constant"), {}, {{"value", weights}});
  const std::vector<int64_t> ones{1, 1}, pads{window / 2, window / 2};
  const Attrs attrs{{"strides", std::vector<int64_t>{stride, stride}},
                    {"dilations", ones},
                    {"input_dilations", ones},
                    {"pads_begin", pads},
                    {"pads_end", pads},
                    {"groups", groups}};
  const ValueId y = builder.add(ops.get("conv"), {graph.inputs[0], w}, attrs);
  graph.value(y).type.layout = Layout::blocked(4, 1, 16);
  graph.outputs = {y};
  std::vector<size_t> kept;
  return lower_node(graph, graph.nodes().back(), kept);
}

TEST(RegisterTile, DepthwiseLayersOfFewTilesAskForTheNextWeights) {
  const auto depthwise = [](int64_t size, int64_t stride, int64_t window) {
    return convolution(192, Layout::blocked(4, 1, 16), size, 192, stride, 192, window);
  };
  // 14 tiles to a block of 16 channels, whose weights are nine lines.
  const LoopProgram few = scheduled_at(depthwise(14, 1, 3), "register_tile{vectors=1,rows=14}").program;
  const auto lines = prefetched_lines(few, 14);
  ASSERT_EQ(lines.size(), 12u);
  for (const auto& [block, asked] : lines)
    for (int64_t line = 0; line < 9; ++line)
      ASSERT_EQ(asked.count((block + 1) * 9 + line), 1u) << "block " << block << ", line " << line;
  const auto asks = [&](int64_t size, int64_t stride, int64_t window) {
    const LoopProgram program =
        scheduled_at(depthwise(size, stride, window), "register_tile{vectors=1,rows=14}").program;
    bool any = false;
    walk(program.body, [&](const Stmt& s) { any |= s->kind == StmtKind::kFor && s->buffer; }, nullptr);
    return any;
  };
  EXPECT_TRUE(asks(14, 1, 3));
  EXPECT_FALSE(asks(28, 1, 3));
  EXPECT_TRUE(asks(28, 1, 5));
  EXPECT_FALSE(asks(28, 2, 3));
}

TEST(RegisterTile, FirstLayersAskForTheRowsBelow) {
  // Rows of 14 places of stride 2 are 112 bytes of the image: two lines, of nine rows of three channels.
  const TensorProgram first = convolution(3, Layout(), 224, 16, 2);
  const auto asked = [](const LoopProgram& program) {
    int64_t lines = 0;
    walk(
        program.body,
        [&](const Stmt& s) { lines += s->kind == StmtKind::kFor && s->buffer == program.params[0] ? 1 : 0; }, nullptr);
    return lines;
  };
  // There are two kinds of tiles, with the image's border and without. The copies of the window ask for its two new
  // rows of three channels at once, in front of the sums; loops do so for each row of the window.
  EXPECT_EQ(asked(scheduled_at(first, "register_tile{vectors=1,rows=14}").program), 2 * (2 * 3) * 2);
  EXPECT_EQ(asked(scheduled_at(first, "register_tile{vectors=1,rows=8}").program), 2 * (2 * 3) * 1);
  EXPECT_EQ(asked(scheduled_at(first, "register_tile{vectors=1,rows=8,expand=0}").program), 2 * 1);
  EXPECT_EQ(asked(scheduled_at(first, "register_tile{vectors=1,rows=14,prefetch=0}").program), 0);
  // Other layers read what the layer before them has just written.
  EXPECT_EQ(asked(scheduled_at(convolution(32, Layout::blocked(4, 1, 16), 224, 16, 2), "register_tile").program), 0);
}

TEST(RegisterTile, PixelsOfManyBlocksAreAskedForAheadWhereTheyAreFar) {
  const ScheduleRule& rule = *std::find_if(schedule_rules().begin(), schedule_rules().end(),
                                           [](const ScheduleRule& one) { return one.name == "register_tile"; });
  const auto places = [&](int64_t channels, int64_t size, int64_t filters) {
    Knobs knobs;
    const auto answer =
        rule.apply(convolution(channels, Layout::blocked(4, 1, 16), size, filters, 1, 1, 1), machine(512), knobs);
    const LoopProgram& program = std::get<ScheduledKernel>(answer).program;
    bool asks = false;
    walk(
        program.body, [&](const Stmt& s) { asks |= s->kind == StmtKind::kFor && s->buffer == program.params[0]; },
        nullptr);
    for (const Knob& knob : knobs.seen())
      if (knob.name == "place_block") return std::pair(asks, knob.preferred);
    return std::pair(asks, int64_t{-1});
  };
  // 32 tiles of 8 pixels of 1024 channels fill the second level of cache.
  EXPECT_EQ(places(1024, 56, 256), std::pair(true, int64_t{32}));
  EXPECT_EQ(places(1024, 14, 256), std::pair(false, int64_t{0})) << "all of the image stays in cache";
  EXPECT_EQ(places(256, 56, 256), std::pair(false, int64_t{0})) << "few streams";
}

TEST(Winograd, ThreadsReadTheWeightsOnceWhereTheyAreMany) {
  const auto iterations = [](int64_t channels, int64_t size, int threads) {
    Target target = machine(512);
    target.num_threads = threads;
    const ScheduleRule& rule = *std::find_if(schedule_rules().begin(), schedule_rules().end(),
                                             [](const ScheduleRule& one) { return one.name == "winograd"; });
    Knobs knobs;
    const TensorProgram conv = convolution(channels, Layout::blocked(4, 1, 16), size, channels, 1);
    const auto answer = rule.apply(conv, target, knobs);
    std::map<std::string, int64_t> chosen;
    if (std::holds_alternative<ScheduledKernel>(answer))
      for (const Knob& knob : knobs.seen()) chosen[knob.name] = knob.preferred;
    return chosen;
  };
  // 38 MB of weights for 49 tiles: on two threads each takes all tiles and half of the outputs.
  EXPECT_EQ(iterations(512, 28, 1)["cuts"], 1);
  auto two = iterations(512, 28, 2);
  EXPECT_EQ(two["cuts"], 2);
  EXPECT_GE(two["strip"], 49);
  // 590 kB for 196 tiles: strips.
  EXPECT_EQ(iterations(64, 56, 2)["cuts"], 1);
}

// What the rule chooses for a convolution of as many inputs as outputs, all in blocks; "" when it takes it.
std::string winograd_declines(const std::vector<int64_t>& image, int64_t channels, const std::vector<int64_t>& window,
                              int64_t gap = 1, int64_t groups = 1, int64_t batch = 1) {
  Graph graph;
  GraphBuilder builder(graph);
  const OpTable& ops = standard_ops();
  std::vector<int64_t> x_shape = {batch, channels}, w_shape = {channels, channels / groups}, gaps, pads;
  for (size_t d = 0; d < image.size(); ++d) {
    x_shape.push_back(image[d]);
    w_shape.push_back(window[d]);
    gaps.push_back(window[d] > 1 ? gap : 1);
    pads.push_back(window[d] / 2 * gaps.back());
  }
  const Layout blocked = Layout::blocked(static_cast<int>(x_shape.size()), 1, 16);
  graph.add_input("x", TensorType{DType::kF32, make_shape(x_shape), blocked});
  const ValueId w =
      builder.add(ops.get("constant"), {}, {{"value", std::make_shared<const Tensor>(DType::kF32, w_shape)}});
  const std::vector<int64_t> ones(image.size(), 1);
  const ValueId y = builder.add(ops.get("conv"), {graph.inputs[0], w},
                                {{"strides", ones},
                                 {"dilations", gaps},
                                 {"input_dilations", ones},
                                 {"pads_begin", pads},
                                 {"pads_end", pads},
                                 {"groups", groups}});
  graph.value(y).type.layout = blocked;
  graph.outputs = {y};
  std::vector<size_t> kept;
  const TensorProgram conv = lower_node(graph, graph.nodes().back(), kept);
  const ScheduleRule& rule = *std::find_if(schedule_rules().begin(), schedule_rules().end(),
                                           [](const ScheduleRule& one) { return one.name == "winograd"; });
  Knobs knobs;
  const auto answer = rule.apply(conv, machine(512), knobs);
  return std::holds_alternative<Declined>(answer) ? std::get<Declined>(answer).reason : "";
}

TEST(Winograd, TakesRowsVolumesGapsAndGroups) {
  EXPECT_EQ(winograd_declines({56, 56}, 64, {3, 3}), "");
  EXPECT_EQ(winograd_declines({35, 35}, 64, {5, 5}), "");
  EXPECT_EQ(winograd_declines({17, 17}, 192, {1, 7}), "");
  EXPECT_EQ(winograd_declines({17, 17}, 192, {7, 1}), "");
  EXPECT_EQ(winograd_declines({1000}, 256, {3}), "");
  EXPECT_EQ(winograd_declines({1000}, 256, {3}, 8), "");
  EXPECT_EQ(winograd_declines({28, 28}, 128, {3, 3}, 2), "");
  EXPECT_EQ(winograd_declines({56, 56}, 128, {3, 3}, 1, 8), "");
  EXPECT_EQ(winograd_declines({8, 28, 28}, 64, {3, 3, 3}), "");
  EXPECT_EQ(winograd_declines({8, 28, 28}, 64, {1, 3, 3}), "");
  EXPECT_EQ(winograd_declines({8, 28, 28}, 64, {3, 1, 1}), "");
  EXPECT_THAT(winograd_declines({56, 56}, 64, {7, 7}), testing::HasSubstr("7 places along two dimensions"));
  EXPECT_THAT(winograd_declines({56, 56}, 64, {1, 1}), testing::HasSubstr("3, 5 or 7 places along any"));
  EXPECT_THAT(winograd_declines({56, 56}, 64, {3, 3}, 1, 8), testing::HasSubstr("do not fill their blocks"));
  EXPECT_EQ(winograd_declines({56, 56}, 64, {3, 3}, 1, 1, 0), "the output is empty");
  // All of the window but its middle lies in the padding, which direct summation leaves out.
  EXPECT_THAT(winograd_declines({32, 32}, 256, {3, 3}, 31), testing::HasSubstr("for direct summation"));
}

TEST(Winograd, PlacesOfATileCompeteForNoLinesOfTheCache) {
  // 256 tiles in strips of 64 vectors: places would be a multiple of 4 KiB apart.
  const ScheduleRule& rule = *std::find_if(schedule_rules().begin(), schedule_rules().end(),
                                           [](const ScheduleRule& one) { return one.name == "winograd"; });
  Knobs knobs;
  const auto answer = rule.apply(convolution(64, Layout::blocked(4, 1, 16), 64, 64, 1), machine(512), knobs);
  ASSERT_TRUE(std::holds_alternative<ScheduledKernel>(answer));
  int64_t buffers = 0;
  walk(
      std::get<ScheduledKernel>(answer).program.body,
      [&](const Stmt& s) {
        if (s->kind != StmtKind::kAlloc || (s->buffer->name != "v" && s->buffer->name != "m")) return;
        ++buffers;
        EXPECT_EQ(*as_int(s->buffer->shape[0]) / 36 / 16 % 2, 1) << s->buffer->name;
      },
      nullptr);
  EXPECT_EQ(buffers, 2);
}

TEST(Injective, BlocksWithoutPaddingAreTransposedInTiles) {
  // Of 58 channels three blocks are whole, and the last is masked.
  Graph graph;
  GraphBuilder builder(graph);
  const OpTable& ops = standard_ops();
  graph.add_input("x", TensorType{DType::kF32, make_shape({1, 58, 28, 28})});
  const Layout blocked = Layout::blocked(4, 1, 16);
  graph.outputs = {builder.add(ops.get("relayout"), {graph.inputs[0]}, {{"layout", blocked}})};
  graph.value(graph.outputs[0]).type.layout = blocked;
  std::vector<size_t> kept;
  const TensorProgram definition = lower_node(graph, graph.nodes().back(), kept);
  int64_t tiles = 0, masked = 0;
  walk(
      scheduled_at(definition, "injective").program.body,
      [&](const Stmt& s) {
        tiles += s->kind == StmtKind::kTensorized ? 1 : 0;
        masked += s->kind == StmtKind::kIf ? 1 : 0;
      },
      nullptr);
  EXPECT_EQ(tiles, 1);
  EXPECT_EQ(masked, 1);
}

TEST(Injective, PiecesOfRowsAreTurnedOutOfBlocksEachByItself) {
  // Detection heads: images in blocks of channels, joined behind one another as rows of pixels.
  Graph graph;
  GraphBuilder builder(graph);
  const OpTable& ops = standard_ops();
  const Layout blocked = Layout::blocked(4, 1, 16);
  for (const int64_t width : {80, 40, 20})
    graph.add_input("x" + std::to_string(width), TensorType{DType::kF32, make_shape({1, 32, 1, width}), blocked});
  graph.outputs = {builder.add(ops.get("concat"), graph.inputs, {{"axis", int64_t{3}}})};
  std::vector<size_t> kept;
  const TensorProgram definition = lower_node(graph, graph.nodes().back(), kept);
  int64_t tiles = 0, selects = 0;
  walk(
      scheduled_at(definition, "injective").program.body,
      [&](const Stmt& s) { tiles += s->kind == StmtKind::kTensorized ? 1 : 0; },
      [&](const Expr& e) { selects += e->kind == ExprKind::kSelect ? 1 : 0; });
  EXPECT_EQ(tiles, 3);
  EXPECT_EQ(selects, 0);
}

class ScheduleFuzz : public testing::TestWithParam<const char*> {};

TEST_P(ScheduleFuzz, EveryRuleKeepsTheResult) {
  const char* given = std::getenv("TESSERA_TEST_SEED");
  const unsigned seed = given ? static_cast<unsigned>(std::atoi(given)) : 20250101u;
  const char* count = std::getenv("TESSERA_TEST_CASES");
  const std::string kind = GetParam();
  const int cases = count                                            ? std::atoi(count)
                    : kind == "winograd"                             ? 8
                    : kind == "transposed" || kind == "conv_weights" ? 12
                                                                     : 25;
  std::map<std::string, int> taken;
  for (int i = 0; i < cases && !HasFailure(); ++i) {
    std::mt19937 random(seed + static_cast<unsigned>(i));
    SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(seed + static_cast<unsigned>(i)) + " TESSERA_TEST_CASES=1");
    Runner runner{random, {}};
    for (int bits : {128, 256, 512}) {
      runner.run(kind, bits);
      if (HasFatalFailure()) break;
    }
    for (const auto& [rule, times] : runner.taken) taken[rule] += times;
  }
  for (const auto& [rule, times] : taken) RecordProperty(rule, times), std::cout << rule << ": " << times << "\n";
  EXPECT_FALSE(taken.empty());
  EXPECT_GT(taken["points"], taken["points declined"]);
  if (kind == "winograd") EXPECT_GT(taken["winograd"], 0);
  if (cases >= 8 && (kind == "conv" || kind == "winograd" || kind == "matmul" || kind == "depthwise"))
    EXPECT_GT(taken["packed at run time"], 0);
  if (kind == "conv_weights" && cases >= 8) EXPECT_GT(taken["packed_panels"], 0);
  if (kind == "pool" && cases >= 20) EXPECT_GT(taken["window_rows"], 0);
  const std::map<std::string, std::vector<std::string>> sketches = {{"conv", {"sketch.tile", "sketch.tile_windows"}},
                                                                    {"depthwise", {"sketch.tile"}},
                                                                    {"pool", {"sketch.tile"}},
                                                                    {"matmul", {"sketch.tile", "sketch.tile_packed"}},
                                                                    {"reduce", {"sketch.tile", "sketch.rfactor"}},
                                                                    {"elementwise", {"sketch.map"}},
                                                                    {"movement", {"sketch.map"}}};
  if (const auto expected = sketches.find(kind); cases >= 20 && expected != sketches.end())
    for (const std::string& name : expected->second) EXPECT_GT(taken[name], 0) << name << " was never taken";
}

INSTANTIATE_TEST_SUITE_P(Kinds, ScheduleFuzz,
                         testing::Values("conv", "depthwise", "transposed", "winograd", "conv_weights", "pool",
                                         "matmul", "reduce", "elementwise", "movement", "shuffle", "resize", "conv1d",
                                         "conv3d"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera
