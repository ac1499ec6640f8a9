#include "random_schedule.h"

#include "loop/intrinsic.h"
#include "schedule/primitives/loop_tree.h"
#include "support/error.h"

namespace tessera {
namespace {

class Random {
 public:
  Random(const Schedule& s, std::mt19937_64& random) : random_(random), program_(s.program()) {
    loops_ = loop_names(program_);
    for (const BufferPtr& buffer : buffers_of(program_)) buffers_.push_back(buffer->name);
  }
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }
  std::string pick(const Names& names) { return names.empty() ? "none" : names[below(names.size())]; }
  std::string loop() { return pick(loops_); }
  std::string buffer() { return pick(buffers_); }
  std::string allocated() {
    Names names;
    for (const BufferPtr& buffer : buffers_of(program_))
      if (find_alloc(program_.body, buffer.get())) names.push_back(buffer->name);
    return pick(names);
  }
  // A loop around the allocation of a buffer, or any.
  std::string loop_around(const std::string& buffer) {
    for (const BufferPtr& b : buffers_of(program_)) {
      if (b->name != buffer) continue;
      if (const auto path = find_alloc(program_.body, b.get())) return one_of(path->loops());
      const auto stores =
          find_statements(program_.body, [&](const Stmt& s) { return s->kind == StmtKind::kStore && s->buffer == b; });
      if (!stores.empty()) return one_of(stores[below(stores.size())].loops());
    }
    return loop();
  }
  // Loops that stand in each other: a stretch of the way to a random store.
  Names nest() {
    const auto stores = find_statements(program_.body, [](const Stmt& s) { return s->kind == StmtKind::kStore; });
    if (stores.empty()) return {};
    const std::vector<Stmt> loops = stores[below(stores.size())].loops();
    if (loops.size() < 2) return {};
    const size_t first = below(loops.size() - 1);
    const size_t count = 2 + below(std::min<size_t>(loops.size() - first - 1, 3));
    Names names;
    for (size_t i = first; i < loops.size() && names.size() < count; ++i) names.push_back(loops[i]->var->name);
    return names;
  }
  std::string statement() {
    const auto stores = find_statements(program_.body, [](const Stmt& s) { return s->kind == StmtKind::kStore; });
    if (stores.empty()) return "none";
    const Stmt s = stores[below(stores.size())].stmt();
    size_t number = 0;
    for (const StmtPath& path : stores) {
      if (path.stmt().same_node(s)) break;
      number += path.stmt()->buffer == s->buffer;
    }
    return s->buffer->name + "#" + std::to_string(number);
  }
  std::string loop_around_statement(const std::string& statement) {
    return loop_around(statement.substr(0, statement.find('#')));
  }
  int64_t factor() {
    static constexpr int64_t kFactors[] = {1, 2, 2, 3, 4, 4, 5, 8, 16};
    return kFactors[below(std::size(kFactors))];
  }
  const Buffer* find(const std::string& name) {
    for (const BufferPtr& b : buffers_of(program_))
      if (b->name == name) return b.get();
    return nullptr;
  }
  std::mt19937_64& random_;

 private:
  std::string one_of(const std::vector<Stmt>& loops) {
    return loops.empty() ? loop() : loops[below(loops.size())]->var->name;
  }
  LoopProgram program_;
  Names loops_, buffers_;
};

void apply_one(Schedule& s, const std::string& what, Random& r) {
  const auto scope = [&] { return r.below(5) == 0 ? MemoryScope::kRegister : MemoryScope::kLocal; };
  if (what == "split") {
    std::vector<std::optional<int64_t>> factors(2 + r.below(2));
    for (size_t i = 1; i < factors.size(); ++i) factors[i] = r.factor();
    if (r.below(4) == 0) std::swap(factors[0], factors.back());
    s.split(r.loop(), factors);
  } else if (what == "fuse") {
    s.fuse(r.nest());
  } else if (what == "reorder") {
    Names names = r.nest();
    std::shuffle(names.begin(), names.end(), r.random_);
    s.reorder(names);
  } else if (what == "tile") {
    const Names names = r.nest();
    if (names.size() >= 2) s.tile(names[0], names[1], r.factor(), r.factor());
  } else if (what == "vectorize") {
    s.vectorize(r.loop());
  } else if (what == "unroll") {
    s.unroll(r.loop());
  } else if (what == "parallel") {
    s.parallel(r.loop());
  } else if (what == "bind") {
    static const Names kAxes = {"blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.z"};
    s.bind(r.loop(), kAxes[r.below(kAxes.size())]);
  } else if (what == "pad") {
    s.pad(r.loop(), r.factor());
  } else if (what == "fission") {
    const std::string statement = r.statement();
    s.fission(r.loop_around_statement(statement), statement);
  } else if (what == "decompose_reduction") {
    const std::string buffer = r.buffer();
    s.decompose_reduction(buffer, r.loop_around(buffer));
  } else if (what == "rfactor") {
    s.rfactor(r.buffer() + ".update", r.loop());
  } else if (what == "predicate") {
    s.predicate(r.buffer() + (r.below(2) ? ".update" : ""));
  } else if (what == "compute_at") {
    s.compute_at(r.allocated(), r.loop());
  } else if (what == "reverse_compute_at") {
    s.reverse_compute_at(r.buffer(), r.loop());
  } else if (what == "compute_inline") {
    s.compute_inline(r.allocated());
  } else if (what == "cache_read") {
    s.cache_read(r.buffer(), scope(), r.below(3) == 0 ? r.buffer() : "");
  } else if (what == "cache_write") {
    s.cache_write(r.buffer(), scope());
  } else if (what == "set_scope") {
    s.set_scope(r.allocated(), scope());
  } else if (what == "store_at") {
    const std::string buffer = r.allocated();
    s.store_at(buffer, r.loop_around(buffer));
  } else if (what == "transform_layout") {
    const std::string name = r.allocated();
    const Buffer* buffer = r.find(name);
    if (!buffer) return;
    std::vector<Var> vars;
    std::vector<Expr> index;
    for (size_t d = 0; d < buffer->shape.size(); ++d) {
      vars.push_back(make_var("d" + std::to_string(d)));
      if (r.below(2) == 0) {
        index.push_back(vars.back());
      } else {
        const int64_t c = r.factor();
        index.push_back(floordiv(vars.back(), c));
        index.push_back(floormod(vars.back(), c));
      }
    }
    std::shuffle(index.begin(), index.end(), r.random_);
    s.transform_layout(name, vars, index);
  } else if (what == "virtual_thread") {
    s.virtual_thread(r.loop());
  } else if (what == "software_pipeline") {
    s.software_pipeline(r.loop(), 1 + static_cast<int64_t>(r.below(2)));
  } else if (what == "annotate") {
    s.annotate(r.statement(), "fma", 1);
  } else if (what == "tensorize") {
    const auto all = all_intrinsics();
    s.tensorize(r.loop(), all[r.below(all.size())].name);
  } else if (what == "sample_perfect_tile") {
    s.sample_perfect_tile(r.loop(), 2 + static_cast<int64_t>(r.below(2)), 16, &r.random_);
  } else if (what == "sample_categorical") {
    s.sample_categorical({1, 2, 4}, &r.random_);
  } else if (what == "sample_compute_location") {
    const std::string stage = r.allocated();
    s.compute_at(stage, s.sample_compute_location(stage, &r.random_));
  }
}

// A product in register tiles, as in examples/schedules: random choices of loops, factors and intrinsics in an order of
// primitives that ends with a tensorized nest where they fit. Throws UserError where they do not.
void matrix_tile(Schedule& s, Random& r) {
  const auto updates = find_statements(s.program().body, [](const Stmt& node) { return is_reduction_update(node); });
  if (updates.empty()) return;
  const StmtPath& path = updates[r.below(updates.size())];
  const std::string name = path.stmt()->buffer->name;
  std::string after;  // what takes the sums from a scalar accumulator
  for (const StmtPath& store : find_statements(s.program().body, [&](const Stmt& node) {
         return node->kind == StmtKind::kStore && node->buffer->name != name;
       }))
    if (loads_buffer(store.stmt()->value, path.stmt()->buffer.get())) after = store.stmt()->buffer->name;
  struct Loop {
    std::string name;
    int64_t extent;
  };
  std::vector<Loop> data, folded;
  const bool is_scalar = path.stmt()->indices.size() == 1 && is_const_int(path.stmt()->indices[0], 0);
  for (const Stmt& node : path.nodes) {
    if (node->kind != StmtKind::kFor) continue;
    bool chooses = false;
    for (const Expr& index : path.stmt()->indices) chooses |= uses_var(index, node->var);
    const auto alloc = find_alloc(node, path.stmt()->buffer.get());
    chooses |= is_scalar && alloc.has_value();
    (chooses ? data : folded).push_back({node->var->name, as_int(node->extent).value_or(1)});
  }
  if (data.empty() || folded.empty()) return;
  const size_t column = r.below(4) ? data.size() - 1 : r.below(data.size());
  const size_t row = r.below(data.size());
  const auto factor_of = [&](int64_t extent, std::initializer_list<int64_t> factors) -> int64_t {
    std::vector<int64_t> fitting;
    for (const int64_t f : factors)
      if (extent % f == 0) fitting.push_back(f);
    return fitting.empty() ? 1 : fitting[r.below(fitting.size())];
  };
  const int64_t lanes = factor_of(data[column].extent, {4, 8, 16});
  const int64_t vectors = factor_of(data[column].extent / lanes, {1, 2});
  Names order, tile;
  std::string acc = is_scalar ? name : s.cache_write(name, MemoryScope::kLocal);
  const Names columns = s.split(data[column].name, {std::nullopt, vectors, lanes});
  std::string rows;
  for (size_t i = 0; i < data.size(); ++i) {
    if (i == column) {
      order.push_back(columns[0]);
    } else if (i == row) {
      const Names parts = s.split(data[i].name, {std::nullopt, factor_of(data[i].extent, {1, 2, 3, 4, 5})});
      order.push_back(parts[0]);
      rows = parts[1];
    } else {
      order.push_back(data[i].name);
    }
  }
  const std::string around = order.back();
  tile = {columns[1]};
  if (!rows.empty()) tile.push_back(rows);
  tile.push_back(columns[2]);
  order.insert(order.end(), tile.begin(), tile.end());
  s.reorder(order);
  if (is_scalar) s.store_at(acc, tile[0]);
  s.decompose_reduction(acc, tile[0]);
  if (is_scalar && !after.empty()) s.fission(tile[0], after);
  Names nest;
  const std::string suffix = is_scalar && !after.empty() ? "_before" : "";
  for (const Loop& loop : folded) nest.push_back(loop.name);
  for (const std::string& loop : tile) nest.push_back(loop + suffix);
  s.reorder(nest);
  try {
    if (!is_scalar) s.reverse_compute_at(name, around);
  } catch (const UserError&) {  // where it is no output: the sums stay together
  }
  s.set_scope(acc, MemoryScope::kRegister);
  for (size_t i = folded.size(); i + 1 < nest.size(); ++i) s.unroll(nest[i]);
  s.vectorize(nest.back());
  static const Names kF32 = {"x86.sse.mul_add.f32", "x86.fma.f32", "x86.avx512.fma.f32"};
  if (lanes >= 4) s.tensorize(nest[folded.size()], kF32[lanes == 4 ? 0 : lanes == 8 ? 1 : 2]);
}

}  // namespace

int apply_random(Schedule& schedule, int tries, std::mt19937_64& random, PrimitiveCounts* counts) {
  // Structure first, kinds of loops last, as people write them: what is vectorized or unrolled is refused by most.
  static const Names kStructure = {"split",
                                   "split",
                                   "fuse",
                                   "reorder",
                                   "reorder",
                                   "tile",
                                   "fission",
                                   "decompose_reduction",
                                   "rfactor",
                                   "predicate",
                                   "compute_at",
                                   "compute_at",
                                   "reverse_compute_at",
                                   "reverse_compute_at",
                                   "compute_inline",
                                   "cache_read",
                                   "cache_write",
                                   "set_scope",
                                   "store_at",
                                   "transform_layout",
                                   "pad",
                                   "software_pipeline",
                                   "annotate",
                                   "sample_perfect_tile",
                                   "sample_categorical",
                                   "sample_compute_location"};
  static const Names kKinds = {"vectorize",      "vectorize", "unroll", "parallel", "bind",
                               "virtual_thread", "set_scope", "split",  "tensorize"};
  // Most schedules cut loops first, as people do; the others also move what is parallel or in vectors.
  const bool is_mixed = random() % 3 == 0;
  int taken = 0;
  if (random() % 8 == 0) {
    const size_t before = schedule.steps().size();
    try {
      Random r(schedule, random);
      matrix_tile(schedule, r);
    } catch (const UserError&) {  // what was taken before stays
    }
    if (counts)
      for (size_t i = before; i < schedule.steps().size(); ++i) {
        ++(*counts)[schedule.steps()[i].primitive].first;
        ++(*counts)[schedule.steps()[i].primitive].second;
      }
    taken += static_cast<int>(schedule.steps().size() - before);
  }
  for (int i = 0; i < tries; ++i) {
    Random r(schedule, random);
    const bool structure = is_mixed ? r.below(3) > 0 : i < tries * 2 / 3 ? r.below(10) > 0 : r.below(3) == 0;
    const Names& from = structure ? kStructure : kKinds;
    const std::string& what = from[r.below(from.size())];
    bool ok = true;
    try {
      const size_t before = schedule.steps().size();
      apply_one(schedule, what, r);
      ok = schedule.steps().size() > before;
    } catch (const UserError&) {
      ok = false;
    }
    taken += ok;
    if (counts) {
      ++(*counts)[what].first;
      (*counts)[what].second += ok;
    }
  }
  return taken;
}

}  // namespace tessera
