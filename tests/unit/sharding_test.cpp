// Shardings: their text, moves between all pairs of them, factors of nodes, and random graphs whose local graphs, run
// side by side, give what the whole graph gives.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/factors.h"
#include "dist/localize.h"
#include "dist/propagate.h"
#include "dist/redistribute.h"
#include "graph/parser.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "interp/ranks.h"
#include "ops/op_table.h"
#include "random_graph.h"
#include "support/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

Mesh mesh_of(const char* text) {
  Mesh mesh;
  EXPECT_EQ(parse_mesh(text, mesh), "");
  return mesh;
}

Sharding sharding_of(const char* text, const Mesh& mesh) {
  Sharding sharding;
  EXPECT_EQ(parse_sharding(text, mesh, sharding), "") << text;
  return sharding;
}

TEST(Mesh, RanksAndGroups) {
  const Mesh mesh = mesh_of("data=2,model=3");
  EXPECT_EQ(mesh.ranks(), 6);
  EXPECT_EQ(mesh.place_of(4), (std::vector<int64_t>{1, 1}));
  for (int64_t r = 0; r < 6; ++r) EXPECT_EQ(mesh.rank_at(mesh.place_of(r)), r);
  EXPECT_EQ(mesh.group_of(4, {"data"}), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(mesh.group_of(4, {"model"}), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(mesh.group_of(4, {"model", "data"}), (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
}

TEST(Sharding, Text) {
  const Mesh mesh = mesh_of("data=2,model=4");
  for (const char* text : {"@{}", "@{_}", "@{data,_}", "@{_,model,data}", "@{data.model,_}", "@{_,_}+sum(model)",
                           "@{data}+max(model)", "@{}+min(data)+prod(model)"})
    EXPECT_EQ(sharding_of(text, mesh).to_string(), text);
  const auto wrong = [&](const char* text) {
    Sharding sharding;
    return parse_sharding(text, mesh, sharding);
  };
  EXPECT_EQ(wrong("{data}"), "it does not begin with '@{'");
  EXPECT_EQ(wrong("@{data"), "there is no '}'");
  EXPECT_EQ(wrong("@{rows}"), "the mesh data=2,model=4 has no axis 'rows'");
  EXPECT_EQ(wrong("@{data,data}"), "axis 'data' stands twice");
  EXPECT_EQ(wrong("@{data}+sum(data)"), "axis 'data' stands twice");
  EXPECT_EQ(wrong("@{_}+mean(data)"), "behind '+' stands none of sum(AXIS), prod(AXIS), min(AXIS), max(AXIS)");
  EXPECT_EQ(wrong("@{_}x"), "'x' is left over");
  EXPECT_EQ(check_sharding(sharding_of("@{_,model}", mesh), {3, 6}, mesh), "dimension 1 of 6 is not cut evenly in 4");
  EXPECT_EQ(check_sharding(sharding_of("@{_}", mesh), {3, 6}, mesh), "1 dimensions for a tensor of 2");
  const Sharding both = sharding_of("@{data.model,_}", mesh);
  EXPECT_EQ(local_dims(both, {16, 3}, mesh), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(local_begin(both, {16, 3}, mesh, 6), (std::vector<int64_t>{12, 0}));
}

// All shardings over a mesh that a tensor can have, one mesh axis a dimension.
std::vector<Sharding> all_shardings(const Mesh& mesh, const std::vector<int64_t>& dims, bool with_partial) {
  std::vector<Sharding> found;
  const auto choices = static_cast<int64_t>(dims.size()) + 2;
  const auto ways = static_cast<int64_t>(std::pow(choices, mesh.axes.size()));
  for (int64_t way = 0; way < ways; ++way) {
    Sharding s = Sharding::replicated(dims.size());
    int64_t rest = way;
    for (const MeshAxis& axis : mesh.axes) {
      const int64_t choice = rest % choices;
      if (choice > 0 && choice + 1 < choices) s.dims[static_cast<size_t>(choice - 1)].push_back(axis.name);
      if (choice + 1 == choices) s.partial.push_back({axis.name, CollectiveCombiner::kSum});
      rest /= choices;
    }
    const bool fits = std::all_of(s.dims.begin(), s.dims.end(), [](const auto& dim) { return dim.size() <= 1; });
    if (fits && check_sharding(s, dims, mesh).empty() && (with_partial || s.partial.empty())) found.push_back(s);
  }
  return found;
}
std::vector<Sharding> all_shardings(const Mesh& mesh, bool with_partial) {
  return all_shardings(mesh, {8, 16}, with_partial);
}

// What one move may make of a sharding, written down apart from the planner.
std::vector<Move> single_moves(const Sharding& s, const std::vector<int64_t>& dims, const Mesh& mesh) {
  std::vector<Move> moves;
  for (const MeshAxis& axis : mesh.axes) {
    const int at = s.dim_of(axis.name);
    const bool partial = s.is_partial(axis.name);
    const CollectiveCombiner combiner = partial ? CollectiveCombiner::kSum : CollectiveCombiner::kNone;
    if (partial || at >= 0)
      moves.push_back({partial ? MoveKind::kAllReduce : MoveKind::kAllGather, axis.name, combiner, at, -1});
    for (int d = 0; d < static_cast<int>(dims.size()); ++d)
      if (s.dims[static_cast<size_t>(d)].empty() && dims[static_cast<size_t>(d)] % axis.extent == 0)
        moves.push_back({partial   ? MoveKind::kReduceScatter
                         : at >= 0 ? MoveKind::kAllToAll
                                   : MoveKind::kKeepPart,
                         axis.name, combiner, at, d});
  }
  return moves;
}

// The least seconds from one sharding to every other, by relaxing all moves until nothing changes.
std::map<std::string, double> least_seconds(const Sharding& from, const TensorType& type, const Mesh& mesh,
                                            const RankSpeed& speed, int64_t most_bytes, const Sharding& to) {
  std::map<std::string, double> least = {{from.to_string(), 0}};
  std::map<std::string, Sharding> shardings = {{from.to_string(), from}};
  for (bool changed = true; changed;) {
    changed = false;
    const auto known = shardings;
    for (const auto& [text, s] : known)
      for (const Move& move : single_moves(s, type.dims(), mesh)) {
        const Sharding next = after_move(s, move);
        if (most_bytes > 0 && next != to && local_bytes(type, next, mesh) > most_bytes) continue;
        const double seconds = least.at(text) + move_seconds(move, local_bytes(type, s, mesh), mesh, speed);
        const auto [at, is_new] = least.try_emplace(next.to_string(), seconds);
        shardings.emplace(next.to_string(), next);
        if (!is_new && seconds >= at->second * (1 - 1e-12)) continue;
        at->second = seconds;
        changed = true;
      }
  }
  return least;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kMostMilliseconds = 20;
#else
constexpr double kMostMilliseconds = 1;
#endif

// That this thread has worked: others on the machine do not count.
double thread_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// Every pair of shardings: it gets there, as cheaply as anything can, in less than a millisecond, and with a bound on
// memory never has more on the way.
TEST(Redistribution, IsTheCheapestWay) {
  int64_t pairs = 0, bounded = 0, refused = 0;
  double worst = 0, total = 0;
  for (const char* text : {"a=2", "a=2,b=2", "a=2,b=4", "a=2,b=2,c=2"}) {
    const Mesh mesh = mesh_of(text);
    for (const std::vector<int64_t>& dims : {std::vector<int64_t>{8, 16}, {64, 6, 1024}, {3, 4}, {40}})
      for (const RankSpeed& speed : {RankSpeed{}, RankSpeed{.bytes_per_second = 1e9, .latency_seconds = 0}}) {
        const TensorType type{DType::kF32, make_shape(dims), {}};
        const std::vector<Sharding> ends = all_shardings(mesh, dims, false);
        for (const Sharding& from : all_shardings(mesh, dims, true)) {
          const auto least = least_seconds(from, type, mesh, speed, 0, from);
          for (const Sharding& to : ends) {
            const double begin = thread_milliseconds();
            const std::vector<Move> moves = moves_between(from, to, type, mesh, speed);
            const double ms = thread_milliseconds() - begin;
            worst = std::max(worst, ms);
            total += ms;
            ++pairs;
            Sharding now = from;
            double seconds = 0;
            for (const Move& move : moves) {
              seconds += move_seconds(move, local_bytes(type, now, mesh), mesh, speed);
              now = after_move(now, move);
              for (const auto& dim : now.dims) ASSERT_LE(dim.size(), 1u);
            }
            ASSERT_EQ(now, to) << from.to_string() << " -> " << to.to_string();
            ASSERT_NEAR(seconds, least.at(to.to_string()), 1e-12 + 1e-9 * seconds)
                << from.to_string() << " -> " << to.to_string() << " of " << type.to_string() << " over " << text;
          }
        }
      }
  }
  const Mesh mesh = mesh_of("a=2,b=2,c=2");
  const TensorType type{DType::kF32, make_shape({64, 6, 1024}), {}};
  const RankSpeed speed{.bytes_per_second = 1e9, .latency_seconds = 1e-6};
  for (const Sharding& from : all_shardings(mesh, type.dims(), false))
    for (const Sharding& to : all_shardings(mesh, type.dims(), false)) {
      const int64_t most = std::max(local_bytes(type, from, mesh), local_bytes(type, to, mesh));
      const auto least = least_seconds(from, type, mesh, speed, most, to);
      const auto moves = moves_between(from, to, type, mesh, speed, most);
      ASSERT_EQ(moves.has_value(), least.contains(to.to_string())) << from.to_string() << " -> " << to.to_string();
      refused += moves ? 0 : 1;
      if (!moves) continue;
      ++bounded;
      Sharding now = from;
      double seconds = 0;
      for (const Move& move : *moves) {
        seconds += move_seconds(move, local_bytes(type, now, mesh), mesh, speed);
        now = after_move(now, move);
        ASSERT_LE(local_bytes(type, now, mesh), most);
      }
      ASSERT_NEAR(seconds, least.at(to.to_string()), 1e-12 + 1e-9 * seconds);
    }
  EXPECT_GT(pairs, 8000);
  EXPECT_GT(bounded, 500);
  EXPECT_LT(worst, kMostMilliseconds);
  fmt::print("{} pairs, {:.4f} ms each, at most {:.3f}; {} within a bound, {} not\n", pairs,
             total / static_cast<double>(pairs), worst, bounded, refused);
}

// Axes that change places go round by a dimension that is free, not by copies; a long sum is cut first.
TEST(Redistribution, GoesRound) {
  const RankSpeed speed{.bytes_per_second = 1e9, .latency_seconds = 0};
  const auto kinds = [&](const char* from, const char* to, const char* mesh_text, std::vector<int64_t> dims) {
    const Mesh mesh = mesh_of(mesh_text);
    std::string text;
    for (const Move& move : moves_between(sharding_of(from, mesh), sharding_of(to, mesh),
                                          {DType::kF32, make_shape(dims), {}}, mesh, speed))
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", move_kind_name(move.kind), move.axis);
    return text;
  };
  EXPECT_EQ(kinds("@{a,b,_}", "@{b,a,_}", "a=4,b=4", {16, 16, 16}), "all_to_all a, all_to_all b, all_to_all a");
  EXPECT_EQ(kinds("@{_,_}+sum(a)", "@{_,_}", "a=8,b=2", {16, 16}), "part b, all_reduce a, all_gather b");
  EXPECT_EQ(kinds("@{_,_}+sum(a)", "@{a,_}", "a=8,b=2", {16, 16}), "part b, reduce_scatter a, all_gather b");
  EXPECT_EQ(kinds("@{_,_}+sum(a)", "@{a,_}", "a=8", {16, 16}), "reduce_scatter a");
}

Graph parse(const std::string& text) { return parse_graph(text, standard_ops()); }

std::string factors_text(const std::string& text) {
  const Graph graph = parse(text);
  const auto factors = factors_of(graph, graph.nodes().back());
  if (!factors) return "none";
  std::string result;
  for (const Factor& f : factors->factors)
    result += fmt::format("{} {} -> {} [{}]{}\n", f.name, f.extent, f.result_dim, fmt::join(f.operand_dims, " "),
                          f.refused.empty() ? "" : " " + f.refused);
  return result;
}

TEST(Factors, FollowFromBodies) {
  EXPECT_EQ(
      factors_text("graph @main(%x: f32[4,6], %w: f32[6,8]) -> (%y: f32[4,8]) {\n  %y = matmul(%x, %w) : f32[4,8]\n}"),
      "i0 4 -> 0 [0 -1]\ni1 8 -> 1 [-1 1]\nk 6 -> -1 [1 0]\n");
  EXPECT_EQ(
      factors_text(
          "graph @main(%x: f32[4,6]) -> (%y: f32[4,2,3]) {\n  %y = reshape(%x) {shape = [4, 2, 3]} : f32[4,2,3]\n}"),
      "i0 4 -> 0 [0]\ni1 2 -> 1 [1]\n");
  EXPECT_EQ(
      factors_text("graph @main(%x: f32[1,4,6]) -> (%y: f32[24]) {\n  %y = reshape(%x) {shape = [24]} : f32[24]\n}"),
      "i0 4 -> 0 [1]\n");
  EXPECT_EQ(
      factors_text("graph @main(%x: f32[4,6]) -> (%y: f32[6]) {\n  %y = reduce(%x) {axes = [0], keepdims = false, "
                   "kind = \"max\"} : f32[6]\n}"),
      "i0 6 -> 0 [1]\nr0 4 -> -1 [0]\n");
  EXPECT_THAT(factors_text("graph @main() -> (%y: i64[4,6]) {\n  %y = iota() {axis = 1, dtype = i64, shape = [4, 6]} : "
                           "i64[4,6]\n}"),
              HasSubstr("i1 6 -> 1 [] what is computed depends on the place along it"));
}

constexpr const char* kMlp = R"(graph @mlp(%x: f32[8,16]) -> (%y: f32[8,16]) {
  %w1 = constant {value = splat<f32[16,64] 0.5>} : f32[16,64]
  %w2 = constant {value = splat<f32[64,16] 0.25>} : f32[64,16]
  %zero = constant {value = dense<f32[] 0>} : f32[]
  %h = matmul(%x, %w1) : f32[8,64]
  %g = max(%h, %zero) : f32[8,64]
  %p = matmul(%g, %w2) : f32[8,16]
  %y = add(%p, %x) : f32[8,16]
}
)";

// Columns, then rows: one sum.
TEST(Propagation, APerceptronOfTwoLayers) {
  const Graph graph = parse(kMlp);
  const Mesh mesh = mesh_of("data=2,model=2");
  const ShardingPlan plan = propagate(graph, mesh, {{"x", sharding_of("@{data,_}", mesh)}}, {});
  EXPECT_EQ(plan_text(graph, plan), R"(mesh data=2,model=2
input %x: f32[8,16]@{data,_}
%w1: f32[16,64]@{_,model} = constant()
%w2: f32[64,16]@{model,_} = constant()
%zero: f32[]@{} = constant()
%h: f32[8,64]@{data,model} = matmul(%x, %w1)
%g: f32[8,64]@{data,model} = max(%h, %zero)
%p: f32[8,16]@{data,_}+sum(model) = matmul(%g, %w2)
  all_reduce %p over model: @{data,_}, 256 bytes
%y: f32[8,16]@{data,_} = add(%p, %x)
  all_gather %y over data: @{_,_}, 256 bytes
output %y
)");
}

void expect_ranks_agree(const Graph& graph, const Mesh& mesh, const Pins& pins, uint64_t seed, int64_t* cut) {
  const ShardingPlan plan = propagate(graph, mesh, pins, {});
  std::vector<Graph> graphs;
  for (int64_t r = 0; r < mesh.ranks(); ++r) {
    graphs.push_back(localize(graph, plan, r, standard_ops()));
    ASSERT_THAT(verify(graphs.back()), testing::IsEmpty()) << plan_text(graph, plan);
  }
  for (const Sharding& s : plan.values) *cut += s.is_replicated() ? 0 : 1;
  const std::vector<Tensor> inputs = random_inputs(graph, seed);
  const std::vector<std::vector<Tensor>> got =
      evaluate_ranks(graphs, std::vector<std::vector<Tensor>>(graphs.size(), inputs));
  const std::vector<Tensor> want = GraphInterpreter().evaluate(graph, inputs);
  for (size_t r = 0; r < got.size(); ++r)
    for (size_t o = 0; o < want.size(); ++o) {
      ASSERT_EQ(got[r][o].dims(), want[o].dims());
      double largest = 1e-6;
      for (int64_t i = 0; i < want[o].num_elements(); ++i) largest = std::max(largest, std::abs(want[o].get_double(i)));
      for (int64_t i = 0; i < want[o].num_elements(); ++i)
        ASSERT_NEAR(got[r][o].get_double(i), want[o].get_double(i), 1e-4 * largest)
            << "rank " << r << ", output " << o << "\n"
            << plan_text(graph, plan);
    }
}

// Twice a sum is the sum of all twice; minus the largest is not the largest of all minus.
TEST(Propagation, OnlySumsStayPartialThroughWhatIsLinear) {
  for (const char* kind : {"max", "min", "prod", "sum"}) {
    const Graph graph = parse(fmt::format(R"(graph @main(%x: f32[8,16]) -> (%y: f32[16]) {{
  %minus = constant {{value = dense<f32[] -2>}} : f32[]
  %r = reduce(%x) {{axes = [0], keepdims = false, kind = "{}"}} : f32[16]
  %y = mul(%r, %minus) : f32[16]
}}
)",
                                          kind));
    const Mesh mesh = mesh_of("data=4");
    const Pins pins = {{"x", sharding_of("@{data,_}", mesh)}};
    const std::string text = plan_text(graph, propagate(graph, mesh, pins, {}));
    EXPECT_THAT(text, HasSubstr(fmt::format("%r: f32[16]@{{_}}+{}(data) = reduce(%x)", kind)));
    EXPECT_THAT(text, HasSubstr(std::string(kind) == "sum" ? "%y: f32[16]@{_}+sum(data)" : "%y: f32[16]@{_} ="));
    int64_t cut = 0;
    expect_ranks_agree(graph, mesh, pins, 7, &cut);
  }
}

// What no communicator can add is not divided, nor what lies two to a byte.
TEST(Propagation, TypesThatRanksCannotShare) {
  const Mesh mesh = mesh_of("data=2");
  const Graph halves = parse(R"(graph @main(%x: f16[8,16]) -> (%y: f16[]) {
  %y = reduce(%x) {axes = [0, 1], keepdims = false, kind = "sum"} : f16[]
}
)");
  const ShardingPlan plan = propagate(halves, mesh, {{"x", sharding_of("@{data,_}", mesh)}}, {});
  EXPECT_THAT(plan_text(halves, plan), HasSubstr("%y: f16[]@{} = reduce(%x)"));
  EXPECT_THAT(plan.remarks, testing::ElementsAre(HasSubstr("data not along r0: ranks do not combine f16")));
  const Graph nibbles = parse(R"(graph @main(%x: f32[8,4]) -> (%y: f32[8,6]) {
  %w = constant {value = dense<i4[4,6] 1 2 3 4 5 6 7 -8 -7 -6 -5 -4 -3 -2 -1 0 1 2 3 4 5 6 7 -8>} : i4[4,6]
  %f = cast(%w) {to = f32} : f32[4,6]
  %y = matmul(%x, %f) : f32[8,6]
}
)");
  int64_t cut = 0;
  expect_ranks_agree(nibbles, mesh, {}, 5, &cut);
  EXPECT_THAT([&] { propagate(nibbles, mesh, {{"w", sharding_of("@{data,_}", mesh)}}, {}); },
              testing::ThrowsMessage<UserError>(HasSubstr("TSR-2110: @{data,_} for 'w', which is i4[4,6]")));
}

std::string refusal(const std::string& name, const char* sharding) {
  const Mesh mesh = mesh_of("data=2,model=3");
  try {
    propagate(parse(kMlp), mesh, {{name, sharding_of(sharding, mesh)}}, {});
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Propagation, PinsThatDoNotFit) {
  EXPECT_THAT(refusal("h", "@{data,_}"), HasSubstr("TSR-2110: 'h' is to be sharded, and is no input or constant\n"
                                                   "  legal: x, w1, w2"));
  EXPECT_THAT(refusal("x", "@{model,_}"),
              HasSubstr("TSR-2110: @{model,_}: dimension 0 of 8 is not cut evenly in 3 for 'x', which is f32[8,16]"));
  EXPECT_THAT(refusal("x", "@{_,_}+sum(data)"), HasSubstr("TSR-2110: @{_,_}+sum(data) for 'x', which is f32[8,16]"));
}

// Of an input or a constant: a random sharding that fits it.
Sharding random_sharding(const std::vector<int64_t>& dims, const Mesh& mesh, std::mt19937& random) {
  Sharding s = Sharding::replicated(dims.size());
  for (const MeshAxis& axis : mesh.axes) {
    if (dims.empty() || random() % 3 == 0) continue;
    const size_t d = random() % dims.size();
    if (s.dims[d].empty() && dims[d] % axis.extent == 0) s.dims[d].push_back(axis.name);
  }
  return s;
}

TEST(Ranks, RandomGraphsAndShardingsAgreeWithTheWholeGraph) {
  int64_t cut = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    const Graph graph = random_graph(seed, 8);
    std::mt19937 random(static_cast<unsigned>(seed));
    const Mesh mesh = mesh_of(seed % 3 == 0 ? "a=2" : seed % 3 == 1 ? "a=2,b=2" : "a=4,b=2");
    Pins pins;
    for (size_t v = 0; v < graph.values().size(); ++v) {
      const auto value = static_cast<ValueId>(v);
      const Node* producer = graph.producer(value);
      if ((producer && producer->op->kind != OpKind::kConstant) || random() % 3 == 0) continue;
      pins[graph.value(value).name] = random_sharding(*static_dims(graph.type(value).shape), mesh, random);
    }
    SCOPED_TRACE(seed);
    expect_ranks_agree(graph, mesh, pins, seed, &cut);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(cut, 300);  // the test is of something
}

// Images cut along rows and columns: ranks get what stands at their neighbours' borders.
TEST(Ranks, WindowsReachOverBorders) {
  std::mt19937 random(4);
  int64_t divided = 0, rounds = 0;
  for (int round = 0; round < 150; ++round) {
    const int64_t window = 1 + random() % 5, stride = 1 + random() % 3, dilation = 1 + random() % 2;
    const int64_t begin = random() % 3, end = random() % 3, columns = 3 + random() % 4, rows = 4 * (1 + random() % 5);
    const int64_t reach = (window - 1) * dilation + 1;
    if (rows + begin + end < reach || begin >= reach || end >= reach) continue;
    const int64_t out = (rows + begin + end - reach) / stride + 1;
    const bool pools = round % 3 == 2;
    const std::string attrs =
        fmt::format("dilations = [{0}, 1], {4}pads_begin = [{1}, 0], pads_end = [{2}, 0], strides = [{3}, 1]", dilation,
                    begin, end, stride, pools ? "" : "groups = 1, input_dilations = [1, 1], ");
    std::string weights;
    for (int64_t i = 0; i < 6 * window; ++i) weights += fmt::format(" {}", i % 7 - 3);
    const std::string text =
        pools ? fmt::format(
                    "graph @main(%x: f32[1,2,{0},{1}]) -> (%y: f32[1,2,{2},{1}]) {{\n  %y = reduce_window(%x) "
                    "{{{3}, kind = \"max\", window = [{4}, 1]}} : f32[1,2,{2},{1}]\n}}",
                    rows, columns, out, attrs, window)
              : fmt::format(
                    "graph @main(%x: f32[1,2,{0},{1}]) -> (%y: f32[1,3,{2},{1}]) {{\n  %w = constant {{value = "
                    "dense<f32[3,2,{4},1]{5}>}} : f32[3,2,{4},1]\n  %y = conv(%x, %w) {{{3}}} : f32[1,3,{2},{1}]\n}}",
                    rows, columns, out, attrs, window, weights);
    SCOPED_TRACE(text);
    const Graph graph = parse(text.c_str());
    for (const char* mesh_text : {"rows=2", "rows=4", "rows=2,b=2"}) {
      const Mesh mesh = mesh_of(mesh_text);
      const ShardingPlan plan = propagate(graph, mesh, {{"x", sharding_of("@{_,_,rows,_}", mesh)}}, {});
      ++rounds;
      divided += plan.nodes.back().windows.empty() ? 0 : 1;
      int64_t cut = 0;
      expect_ranks_agree(graph, mesh, {{"x", sharding_of("@{_,_,rows,_}", mesh)}}, static_cast<uint64_t>(round), &cut);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(divided, rounds / 4);  // the test is of something
}

TEST(Propagation, HalosAreRowsAtBorders) {
  const Graph graph = parse(R"(graph @main(%x: f32[1,2,8,6]) -> (%y: f32[1,1,8,6]) {
  %w = constant {value = dense<f32[1,2,3,3] 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9>} : f32[1,2,3,3]
  %y = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [1, 1], pads_end = [1, 1],
    strides = [1, 1]} : f32[1,1,8,6]
})");
  const Mesh mesh = mesh_of("rows=4");
  // Windows of a sixth of the image: more is sent by gathering it.
  const ShardingPlan plan = propagate(graph, mesh, {{"x", sharding_of("@{_,_,rows,_}", mesh)}}, {.latency_seconds = 0});
  EXPECT_THAT(plan_text(graph, plan), HasSubstr("  halo %x over rows: 1 before, 1 behind, 96 bytes\n"
                                                "%y: f32[1,1,8,6]@{_,_,rows,_} = conv"));
  EXPECT_EQ(halo_of({2, 0, 1}, 8, 4, 4)->before, 0);  // windows side by side
  EXPECT_EQ(halo_of({2, 0, 1}, 8, 4, 4)->after, 0);
  EXPECT_FALSE(halo_of({1, -3, 3}, 8, 8, 4).has_value());  // beyond the neighbour
}

// Rows of a table that ranks have parts of; indices may be negative, or outside.
TEST(Ranks, LookUpInPartsOfTables) {
  for (const char* text : {R"(graph @main(%i: i64[3,5]) -> (%y: f32[3,5,4]) {
  %w = constant {value = dense<f32[6,4] 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24>} : f32[6,4]
  %y = gather(%w, %i) {axis = 0} : f32[3,5,4]
})",
                           R"(graph @main(%i: i64[3,5]) -> (%y: f32[4,3,5]) {
  %w = constant {value = dense<f32[4,6] 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24>} : f32[4,6]
  %y = gather(%w, %i) {axis = 1} : f32[4,3,5]
})",
                           R"(graph @main(%i: i64[4,2]) -> (%y: f32[4,2]) {
  %w = constant {value = dense<f32[4,6] 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24>} : f32[4,6]
  %y = gather_elements(%w, %i) {axis = 1} : f32[4,2]
})"}) {
    const Graph graph = parse(text);
    const bool rows = std::string(text).find("axis = 0") != std::string::npos;
    for (const char* mesh_text : {"model=2", "model=3", "data=2,model=3"}) {
      const Mesh mesh = mesh_of(mesh_text);
      const ShardingPlan plan =
          propagate(graph, mesh, {{"w", sharding_of(rows ? "@{model,_}" : "@{_,model}", mesh)}}, {});
      EXPECT_THAT(plan_text(graph, plan), HasSubstr("+sum(model) = gather"));
      EXPECT_THAT(plan_text(graph, plan), testing::Not(HasSubstr("all_gather %w")));
      std::vector<Graph> graphs;
      for (int64_t r = 0; r < mesh.ranks(); ++r) graphs.push_back(localize(graph, plan, r, standard_ops()));
      Tensor indices(DType::kI64, graph.type(graph.inputs[0]).dims());
      for (int64_t i = 0; i < indices.num_elements(); ++i) indices.set_int(i, i - 7);
      const auto got = evaluate_ranks(graphs, std::vector<std::vector<Tensor>>(graphs.size(), {indices}));
      const Tensor want = GraphInterpreter().evaluate(graph, {indices})[0];
      for (const std::vector<Tensor>& outputs : got)
        for (int64_t i = 0; i < want.num_elements(); ++i)
          ASSERT_EQ(outputs[0].get_double(i), want.get_double(i)) << mesh_text << " " << i;
    }
  }
  // Without a pin nothing is looked up in parts.
  const Graph graph = parse(R"(graph @main(%i: i64[3]) -> (%y: f32[3,2]) {
  %w = constant {value = dense<f32[4,2] 1 2 3 4 5 6 7 8>} : f32[4,2]
  %y = gather(%w, %i) {axis = 0} : f32[3,2]
})");
  EXPECT_THAT(plan_text(graph, propagate(graph, mesh_of("model=2"), {}, {})), HasSubstr("%y: f32[3,2]@{_,_} = gather"));
}

TEST(Ranks, AllMovesOfAMatrix) {
  const Graph graph = parse("graph @main(%x: f32[8,16]) -> (%y: f32[8,16]) {\n  %y = add(%x, %x) : f32[8,16]\n}");
  for (const char* text : {"a=2,b=2", "a=2,b=4", "a=2,b=2,c=2"}) {
    const Mesh mesh = mesh_of(text);
    for (const Sharding& from : all_shardings(mesh, false))
      for (const Sharding& to : all_shardings(mesh, false)) {
        ShardingPlan plan = propagate(graph, mesh, {{"x", from}}, {});
        plan.nodes[0].operands = {to, to};
        plan.nodes[0].results = {to};
        plan.values[static_cast<size_t>(graph.outputs[0])] = to;
        std::vector<Graph> graphs;
        for (int64_t r = 0; r < mesh.ranks(); ++r) graphs.push_back(localize(graph, plan, r, standard_ops()));
        const std::vector<Tensor> inputs = random_inputs(graph, 3);
        const auto got = evaluate_ranks(graphs, std::vector<std::vector<Tensor>>(graphs.size(), inputs));
        for (const std::vector<Tensor>& outputs : got)
          for (int64_t i = 0; i < 128; ++i)
            ASSERT_EQ(outputs[0].get_double(i), 2 * inputs[0].get_double(i)) << from.to_string() << to.to_string();
      }
  }
}

}  // namespace
}  // namespace tessera
