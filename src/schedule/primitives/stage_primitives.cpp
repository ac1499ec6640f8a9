// compute_at, reverse_compute_at, compute_inline: where a stage is computed.
#include <fmt/format.h>

#include <algorithm>

#include "loop/printer.h"
#include "schedule/primitives/region.h"
#include "schedule/primitives/rewriter.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

bool is_param(const LoopProgram& program, const Buffer* buffer) {
  return std::any_of(program.params.begin(), program.params.end(),
                     [&](const BufferPtr& p) { return p.get() == buffer; });
}

StmtPath alloc_of(const LoopProgram& program, const BufferPtr& buffer, const char* primitive) {
  auto path = find_alloc(program.body, buffer.get());
  if (!path)
    refuse(refusal::kStructure, fmt::format("{}: {} is a parameter of the kernel", primitive, buffer->name),
           "a buffer that the kernel allocates", "cache_write gives an output a buffer to be computed in");
  return std::move(*path);
}

// Restricts the loops of one nest that choose the given buffer's indices to a box. `sides` empty for loops to be left.
class Restriction {
 public:
  Restriction(const LoopProgram& program, const Box& box, const Bounds& bounds, const char* primitive)
      : program_(program), box_(box), bounds_(bounds), primitive_(primitive) {}

  // The loop that chooses index d of an access in the nest; refuses when the nest is not that simple.
  void add(const std::vector<Stmt>& loops, const std::vector<Expr>& indices, const Stmt& where) {
    for (size_t d = 0; d < indices.size(); ++d) {
      if (box_[d].whole) continue;
      if (const auto at = as_int(indices[d])) {
        const auto begin = as_int(box_[d].begin);
        if (begin && *begin <= *at && *at < *begin + box_[d].extent) continue;
        refuse(refusal::kRegion,
               fmt::format("{}: '{}' belongs to some iterations only: its index {} is the constant {}", primitive_,
                           summary(where), d, *at),
               "a stage whose loops are its buffer's dimensions");
      }
      const auto chosen = index_loop(indices[d], loops);
      if (!chosen)
        refuse(refusal::kRegion,
               fmt::format("{}: index {} in '{}' is not one loop's variable", primitive_, to_string(indices[d]),
                           summary(where)),
               "a stage whose loops are its buffer's dimensions", "split and fuse its loops after this line");
      const auto [it, fresh] = sides_.try_emplace(chosen->loop.get(), d, chosen->offset);
      if (!fresh && it->second != std::pair{d, chosen->offset})
        refuse(refusal::kRegion,
               fmt::format("{}: loop {} chooses two indices of one buffer", primitive_, chosen->loop->var->name),
               "a stage whose loops are its buffer's dimensions");
    }
  }

  Stmt apply(const Stmt& s) const {
    if (s->kind != StmtKind::kFor && s->stmts.empty()) return s;
    std::vector<Stmt> children;
    for (const Stmt& child : s->stmts) children.push_back(apply(child));
    if (s->kind == StmtKind::kFor) {
      const auto it = sides_.find(s.get());
      if (it == sides_.end()) return with_body(s, children[0]);
      const Side& side = box_[it->second.first];
      const Expr first = simplify(side.begin - Expr(it->second.second), bounds_);
      const Var var = make_var(s->var->name);
      Bounds inner = bounds_;
      inner.set(var, 0, side.extent - 1);
      const Expr at = simplify(first + var, inner);
      Stmt body = substitute(children[0], {{s->var.get(), at}});
      Expr guard = const_int(DType::kBool, 1);
      if (!can_prove(s->begin <= at, inner)) guard = s->begin <= at;
      if (const Expr below = at < simplify(s->begin + s->extent, inner); !can_prove(below, inner))
        guard = is_true(guard) ? below : logical_and(guard, below);
      return for_loop(var, 0, side.extent, s->for_kind, if_then(guard, body));
    }
    auto node = std::make_shared<StmtNode>(*s.get());
    node->stmts = children;
    return s->kind == StmtKind::kSeq ? seq(children) : Stmt(std::move(node));
  }

 private:
  const LoopProgram& program_;
  const Box& box_;
  const Bounds& bounds_;
  const char* primitive_;
  std::unordered_map<const StmtNode*, std::pair<size_t, int64_t>> sides_;
};

std::vector<Expr> extents_of(const Box& box) {
  std::vector<Expr> shape;
  for (const Side& side : box) shape.push_back(side.extent);
  return shape;
}

// Accesses of `from` become accesses of `to`, which holds the box only.
Stmt rebased(const Stmt& s, const Buffer* from, const BufferPtr& to, const Box& box) {
  const auto moved = [&](const std::vector<Expr>& indices) {
    std::vector<Expr> result;
    for (size_t d = 0; d < indices.size(); ++d)
      result.push_back(box[d].whole ? indices[d] : simplify(indices[d] - box[d].begin));
    return result;
  };
  return rewrite_accesses(
      s, from, [&](const std::vector<Expr>& indices) { return load(to, moved(indices)); },
      [&](const Stmt& node) { return store(to, moved(node->indices), node->value); });
}

// Every concurrent and vectorized loop around `name`, and that one, must still have independent iterations.
void recheck_kinds(const LoopProgram& program, const Stmt& body, const std::string& name, const char* primitive) {
  LoopProgram next = program;
  next.body = body;
  for (const Stmt& loop : loop_named(next, name).loops(true))
    recheck_kind(program, body, loop->var->name, primitive, "a place outside of that loop");
}

// Buffers that are read by `readers` and written by one of `writers`; null when there is none.
const Buffer* written_meanwhile(const std::vector<const Buffer*>& read, const std::vector<Stmt>& writers,
                                const Buffer* except) {
  for (const Stmt& s : writers)
    for (const Buffer* buffer : buffers_written(s))
      if (buffer != except && std::find(read.begin(), read.end(), buffer) != read.end()) return buffer;
  return nullptr;
}

// What moves must have loops of its own and store to one buffer.
void check_movable(const Stmt& s, const Buffer* buffer, const char* primitive) {
  for (const Buffer* written : buffers_written(s))
    if (written != buffer)
      refuse(refusal::kStructure, fmt::format("{}: '{}' computes {} too", primitive, summary(s), written->name),
             "a stage with a nest of its own", "fission takes a nest apart");
  if (contains(s, [](const Stmt& node) {
        return node->kind == StmtKind::kTensorized || (node->kind == StmtKind::kFor && is_concurrent(node->for_kind));
      }))
    refuse(refusal::kStructure, fmt::format("{}: '{}' is tensorized or parallel", primitive, summary(s)),
           "a stage of serial loops");
}

// Loops between the allocation and the stage: what earlier iterations left in the buffer must not matter.
void check_defined_whole(const StagePlace& place, const Buffer& buffer, const char* primitive) {
  if (place.loops_inside == 0) return;
  for (const size_t p : place.producers)
    for (const StmtPath& path : find_statements(place.children[p], [&](const Stmt& s) {
           return s->kind == StmtKind::kStore && s->buffer.get() == &buffer;
         }))
      if (!covers_buffer(path, 0))
        refuse(refusal::kRegion,
               fmt::format("{}: '{}' may leave elements of {} from an earlier iteration", primitive,
                           summary(path.stmt()), buffer.name),
               "a buffer that is stored to as a whole, or allocated beside its stage");
}

// A part of a running sum is not computed by a part of its loop.
void check_parts_alone(const LoopProgram& program, const StagePlace& place, const BufferPtr& buffer,
                       const char* primitive) {
  for (const size_t p : place.producers)
    for (const StmtPath& store : find_statements(
             place.children[p], [&](const Stmt& s) { return s->kind == StmtKind::kStore && s->buffer == buffer; }))
      for (const Stmt& loop : store.loops()) {
        const std::vector<Expr>& indices = store.stmt()->indices;
        if (std::none_of(indices.begin(), indices.end(), [&](const Expr& e) { return uses_var(e, loop->var); }))
          continue;
        if (const auto carried = carried_dependence(program, loop_named(program, loop->var->name), true))
          refuse(refusal::kDependence,
                 fmt::format("{}: a part of {} needs more than its part of '{}': {}", primitive, buffer->name,
                             summary(loop), describe(*carried)),
                 "a stage whose elements do not need each other");
      }
}

}  // namespace

void Schedule::compute_at(const std::string& stage, const std::string& loop_name) {
  const BufferPtr buffer = buffer_named(program_, stage);
  const StmtPath alloc_path = alloc_of(program_, buffer, "compute_at");
  if (loop_name == kRootLocation) {
    commit(program_.body, {{}, "compute_at", {TraceArg::name(stage), TraceArg::name(loop_name)}, {}, {}});
    return;
  }
  const StmtPath target = loop_named(program_, loop_name);
  refuse_tensorized(target, "loop " + loop_name);
  const StagePlace place = stage_place(program_, buffer, "compute_at");
  const auto is_inside = [&](const Stmt& s) {
    return contains(s, [&](const Stmt& node) { return node.same_node(target.stmt()); });
  };
  for (const size_t p : place.producers) {
    check_movable(place.children[p], buffer.get(), "compute_at");
    if (is_inside(place.children[p]))
      refuse(refusal::kStructure, fmt::format("compute_at: loop {} computes {} itself", loop_name, stage),
             "a loop of a nest that uses it", "reverse_compute_at moves what uses a stage into the stage's loops");
  }
  std::optional<size_t> user;
  for (const size_t c : place.consumers)
    if (is_inside(place.children[c])) user = c;
  Names legal;
  for (const size_t c : place.consumers)
    for (const Stmt& s : {place.children[c]})
      walk(
          s,
          [&](const Stmt& node) {
            if (node->kind == StmtKind::kFor && reads_buffer(node, buffer.get())) legal.push_back(node->var->name);
          },
          nullptr);
  if (!user)
    refuse(refusal::kStructure, fmt::format("compute_at: loop {} does not use {}", loop_name, stage),
           "loops " + listed(legal));
  // Everything that loads it is in the loop's body.
  size_t loads_outside = 0;
  walk(program_.body, nullptr,
       [&](const Expr& e) { loads_outside += e->kind == ExprKind::kLoad && e->buffer == buffer; });
  const auto count_loads = [&](const Stmt& s) {
    size_t n = 0;
    walk(s, nullptr, [&](const Expr& e) { n += e->kind == ExprKind::kLoad && e->buffer == buffer; });
    return n;
  };
  loads_outside -= count_loads(target.stmt());
  for (const size_t p : place.producers) loads_outside -= count_loads(place.children[p]);
  if (loads_outside > 0)
    refuse(refusal::kStructure, fmt::format("compute_at: {} is used outside of loop {} as well", stage, loop_name),
           "a loop around all uses", "cache_read gives a reader a copy of its own");
  const auto first_store = find_statements(place.children[place.producers[0]], [&](const Stmt& s) {
    return s->kind == StmtKind::kStore && s->buffer == buffer;
  });
  if (loads_buffer(first_store[0].stmt()->value, buffer.get()))
    refuse(refusal::kStructure,
           fmt::format("compute_at: '{}' adds to what was there before", summary(first_store[0].stmt())),
           "a stage that begins by storing its first values");
  check_defined_whole(place, *buffer, "compute_at");
  check_parts_alone(program_, place, buffer, "compute_at");
  // What the stage reads may not change on the way.
  std::vector<const Buffer*> read;
  for (const size_t p : place.producers)
    for (const Buffer* b : buffers_read(place.children[p]))
      if (b != buffer.get()) read.push_back(b);
  std::vector<Stmt> passed;
  for (size_t i = place.producers[0]; i <= *user; ++i)
    if (std::find(place.producers.begin(), place.producers.end(), i) == place.producers.end())
      passed.push_back(place.children[i]);
  if (const Buffer* changed = written_meanwhile(read, passed, buffer.get()))
    refuse(
        refusal::kDependence,
        fmt::format("compute_at: {} reads {}, which is stored to before loop {} ends", stage, changed->name, loop_name),
        "a stage whose operands do not change on the way");

  const Stmt& loop = target.stmt();
  const Bounds bounds = bounds_of_loops(program_, target.loops(true));
  const auto box = touched_box(loop->stmts[0], *buffer, true, false, bounds);
  if (!box)
    refuse(refusal::kRegion, fmt::format("compute_at: what loop {} needs of {} has no constant size", loop_name, stage),
           "a loop each iteration of which needs a box of constant size");
  std::vector<Stmt> body;
  for (const size_t p : place.producers) {
    Restriction restriction(program_, *box, bounds, "compute_at");
    for (const StmtPath& path : find_statements(
             place.children[p], [&](const Stmt& s) { return s->kind == StmtKind::kStore && s->buffer == buffer; }))
      restriction.add(path.loops(), path.stmt()->indices, path.stmt());
    body.push_back(restriction.apply(place.children[p]));
  }
  body.push_back(loop->stmts[0]);
  const BufferPtr small = make_buffer(buffer->name, buffer->dtype, extents_of(*box), buffer->scope);
  const Stmt inner = alloc(small, rebased(simplified(seq(body), bounds), buffer.get(), small, *box));
  // The new loop body, then without the old stage, then without its allocation.
  Stmt root = replaced(target, with_body(loop, inner));
  LoopProgram next = program_;
  next.body = root;
  for (size_t i = place.producers.size(); i-- > 0;) {
    const Stmt& old = place.children[place.producers[i]];
    root = replaced(find_statements(root, [&](const Stmt& s) { return s.same_node(old); })[0], {});
  }
  const StmtPath old_alloc = *find_alloc(root, buffer.get());
  root = replaced(old_alloc, old_alloc.stmt()->stmts[0]);
  recheck_kinds(program_, root, loop_name, "compute_at");
  commit(root, {{}, "compute_at", {TraceArg::name(stage), TraceArg::name(loop_name)}, {}, {}});
}

void Schedule::reverse_compute_at(const std::string& stage, const std::string& loop_name) {
  const BufferPtr result = buffer_named(program_, stage);
  const StmtPath target = loop_named(program_, loop_name);
  refuse_tensorized(target, "loop " + loop_name);
  const StagePlace place = stage_place(program_, result, "reverse_compute_at", target.stmt());
  if (place.producers.size() != 1 || place.parent.stmt()->kind != StmtKind::kSeq)
    refuse(refusal::kStructure, fmt::format("reverse_compute_at: {} has no single nest beside others", stage),
           "a stage with one nest");
  const Stmt& moving = place.children[place.producers[0]];
  check_movable(moving, result.get(), "reverse_compute_at");
  const auto stores = find_statements(moving, [](const Stmt& s) { return s->kind == StmtKind::kStore; });
  if (stores.size() != 1 || loads_buffer(stores[0].stmt()->value, result.get()))
    refuse(refusal::kStructure,
           fmt::format("reverse_compute_at: {} is not computed by one store of finished values", stage),
           "a stage without a reduction");
  size_t computing = place.children.size();
  for (size_t i = 0; i < place.producers[0]; ++i)
    if (contains(place.children[i], [&](const Stmt& node) { return node.same_node(target.stmt()); })) computing = i;
  if (computing == place.children.size())
    refuse(refusal::kStructure, fmt::format("reverse_compute_at: loop {} is not in a nest before {}", loop_name, stage),
           "a loop of the nest that computes what the stage reads");
  const Stmt& loop = target.stmt();
  const std::vector<const Buffer*> read = buffers_read(moving);
  const std::vector<const Buffer*> written = buffers_written(place.children[computing]);
  const Buffer* source = nullptr;
  for (const Buffer* b : read) {
    if (std::find(written.begin(), written.end(), b) == written.end()) continue;
    if (source)
      refuse(refusal::kStructure,
             fmt::format("reverse_compute_at: {} reads {} and {}, both computed around loop {}", stage, source->name,
                         b->name, loop_name),
             "a stage that reads one buffer of the nest");
    source = b;
  }
  if (!source)
    refuse(refusal::kStructure,
           fmt::format("reverse_compute_at: {} reads nothing that loop {} computes", stage, loop_name),
           "a loop of the nest that computes what the stage reads");
  if (is_param(program_, source))
    refuse(refusal::kStructure, fmt::format("reverse_compute_at: {} is a parameter", source->name),
           "an allocated buffer between the two");
  const BufferPtr buffer = buffer_named(program_, source->name);
  // Between the two nothing touches what moves.
  std::vector<Stmt> passed(place.children.begin() + static_cast<std::ptrdiff_t>(computing),
                           place.children.begin() + static_cast<std::ptrdiff_t>(place.producers[0]));
  std::vector<Stmt> between(passed.begin() + 1, passed.end());
  if (const Buffer* changed = written_meanwhile(read, between, nullptr))
    refuse(refusal::kDependence,
           fmt::format("reverse_compute_at: {}, which {} reads, is stored to in between", changed->name, stage),
           "a stage whose operands do not change on the way");
  if (const Buffer* changed = written_meanwhile(read, {passed[0]}, source))
    refuse(refusal::kDependence,
           fmt::format("reverse_compute_at: {}, which {} reads, is stored to around loop {}", changed->name, stage,
                       loop_name),
           "a stage whose other operands are finished before the nest");
  for (const Stmt& s : passed)
    if (reads_buffer(s, result.get()) || writes_buffer(s, result.get()))
      refuse(refusal::kDependence, fmt::format("reverse_compute_at: {} is used by '{}' before", stage, summary(s)),
             "a stage that nothing before it uses");
  // All else that touches the source is in the loop's body.
  size_t outside = 0;
  for (const Access& access : accesses_of(program_)) {
    if (access.buffer != source || access.stmt.same_node(stores[0].stmt())) continue;
    const bool inside =
        std::any_of(access.loops.begin(), access.loops.end(), [&](const Stmt& l) { return l.same_node(loop); });
    if (!inside) {
      ++outside;
      refuse(refusal::kStructure,
             fmt::format("reverse_compute_at: '{}' uses {} outside of loop {}", summary(access.stmt), source->name,
                         loop_name),
             "a loop around everything that computes it");
    }
  }
  const Bounds bounds = bounds_of_loops(program_, target.loops(true));
  const auto box = touched_box(loop->stmts[0], *source, true, true, bounds);
  if (!box)
    refuse(refusal::kRegion,
           fmt::format("reverse_compute_at: what loop {} computes of {} has no constant size", loop_name, source->name),
           "a loop each iteration of which computes a box of constant size");
  // An element belongs to one iteration: the boxes of different iterations do not meet.
  {
    Access whole;
    whole.stmt = stores[0].stmt();
    whole.buffer = source;
    whole.is_write = true;
    whole.loops = target.loops(true);
    const StmtPath alloc_path = alloc_of(program_, buffer, "reverse_compute_at");
    whole.private_depth = alloc_path.loops().size();
    const size_t outer = whole.loops.size();
    Access other = whole;
    for (size_t d = 0; d < box->size(); ++d) {
      for (Access* access : {&whole, &other}) {
        const Var t = make_var("t");
        access->loops.push_back(for_loop(t, 0, (*box)[d].extent, ForKind::kSerial, seq({})));
        access->indices.push_back((*box)[d].begin + t);
      }
    }
    for (size_t p = whole.private_depth; p < outer; ++p) {
      std::vector<Relation> relations(p, Relation::kEqual);
      relations.push_back(Relation::kLess);
      if (may_conflict(whole, other, relations))
        refuse(refusal::kRegion,
               fmt::format("reverse_compute_at: iterations of loop {} store to the same elements of {}: one of them is "
                           "not finished "
                           "when loop {} ends an iteration",
                           whole.loops[p]->var->name, source->name, loop_name),
               "a loop outside of those that reduce");
    }
  }
  // Different iterations of the stage store to different elements.
  const std::vector<Access> all = accesses_of(program_);
  for (const Access& a : all)
    for (const Access& b : all)
      if (a.is_write && b.is_write && a.buffer == result.get() && b.buffer == result.get() &&
          a.stmt.same_node(stores[0].stmt()) && b.stmt.same_node(stores[0].stmt())) {
        const size_t common = common_loops(a, b);
        const size_t from = place.parent.loops().size() + (place.parent.stmt()->kind == StmtKind::kFor ? 1 : 0);
        for (size_t p = from; p < common; ++p) {
          std::vector<Relation> relations(p, Relation::kEqual);
          relations.push_back(Relation::kLess);
          if (may_conflict(a, b, relations))
            refuse(refusal::kDependence,
                   fmt::format("reverse_compute_at: iterations of {} store to the same element", stage),
                   "a stage that stores to each element once");
        }
      }
  Restriction restriction(program_, *box, bounds, "reverse_compute_at");
  std::optional<std::vector<Expr>> indices;
  walk(stores[0].stmt()->value, [&](const Expr& e) {
    if (e->kind != ExprKind::kLoad || e->buffer.get() != source) return;
    if (indices && !std::equal(indices->begin(), indices->end(), e->operands.begin(), structurally_equal))
      refuse(refusal::kRegion, fmt::format("reverse_compute_at: {} reads {} at several places", stage, source->name),
             "a stage that reads one element");
    indices = e->operands;
  });
  for (const StmtPath& path :
       find_statements(moving, [](const Stmt& s) { return s->kind == StmtKind::kIf || s->kind == StmtKind::kFor; }))
    for (const Expr* e : {&path.stmt()->condition, &path.stmt()->begin, &path.stmt()->extent})
      if (*e && loads_buffer(*e, source)) indices.reset();
  // An instance that does not read its element belongs to no iteration of the loop, and would be lost.
  walk(stores[0].stmt()->value, [&](const Expr& e) {
    const bool choice = e->kind == ExprKind::kSelect ||
                        (e->kind == ExprKind::kBinary && e->dtype == DType::kBool && !is_comparison(e->binary));
    for (size_t i = 1; choice && i < e->operands.size(); ++i)
      if (loads_buffer(e->operands[i], source))
        refuse(refusal::kRegion,
               fmt::format("reverse_compute_at: {} reads {} only where a condition holds", stage, source->name),
               "a stage that reads what the loop computes wherever it stores");
  });
  if (!indices)
    refuse(refusal::kStructure,
           fmt::format("reverse_compute_at: the value of {} is not read from {}", stage, source->name),
           "a stage that reads what the loop computes wherever it stores");
  restriction.add(stores[0].loops(), *indices, stores[0].stmt());
  // A dimension that stays whole in the box would be walked again by every iteration: it must be each one's own.
  const Stmt moved = restriction.apply(moving);
  const BufferPtr small = make_buffer(buffer->name, buffer->dtype, extents_of(*box), buffer->scope);
  const Stmt inner = alloc(small, rebased(simplified(seq({loop->stmts[0], moved}), bounds), source, small, *box));
  Stmt root = replaced(target, with_body(loop, inner));
  root = replaced(find_statements(root, [&](const Stmt& s) { return s.same_node(moving); })[0], {});
  const StmtPath old_alloc = *find_alloc(root, source);
  root = replaced(old_alloc, old_alloc.stmt()->stmts[0]);
  recheck_kinds(program_, root, loop_name, "reverse_compute_at");
  commit(root, {{}, "reverse_compute_at", {TraceArg::name(stage), TraceArg::name(loop_name)}, {}, {}});
}

void Schedule::compute_inline(const std::string& stage) {
  const BufferPtr buffer = buffer_named(program_, stage);
  alloc_of(program_, buffer, "compute_inline");
  const StagePlace place = stage_place(program_, buffer, "compute_inline");
  if (place.producers.size() != 1)
    refuse(refusal::kStructure,
           fmt::format("compute_inline: {} is computed in {} nests", stage, place.producers.size()), "one nest");
  const Stmt& nest = place.children[place.producers[0]];
  check_movable(nest, buffer.get(), "compute_inline");
  check_defined_whole(place, *buffer, "compute_inline");
  const auto stores = find_statements(nest, [](const Stmt& s) { return s->kind == StmtKind::kStore; });
  if (stores.size() != 1 || loads_buffer(stores[0].stmt()->value, buffer.get()))
    refuse(refusal::kStructure,
           fmt::format("compute_inline: {} is not computed by one store without a reduction", stage),
           "a stage of one store that does not read what it stores to");
  const Stmt& definition = stores[0].stmt();
  for (const Stmt& s : stores[0].nodes)
    if (s->kind != StmtKind::kFor && !s.same_node(definition))
      refuse(refusal::kStructure, fmt::format("compute_inline: '{}' stands around the value of {}", summary(s), stage),
             "only loops around it");
  std::vector<std::pair<Var, int64_t>> vars;  // per dimension
  for (const Expr& index : definition->indices) {
    const auto chosen = index_loop(index, stores[0].loops());
    if (!chosen && !as_int(index))
      refuse(refusal::kRegion,
             fmt::format("compute_inline: index {} in '{}' is not one loop's variable", to_string(index),
                         summary(definition)),
             "a stage whose loops are its buffer's dimensions");
    vars.emplace_back(chosen ? chosen->loop->var : Var(), chosen ? chosen->offset : 0);
  }
  for (const Stmt& loop : stores[0].loops())
    if (uses_var(definition->value, loop->var) && std::count_if(vars.begin(), vars.end(), [&](const auto& v) {
                                                    return v.first && v.first.same_node(loop->var);
                                                  }) != 1)
      refuse(refusal::kRegion,
             fmt::format("compute_inline: loop {} does not choose one index of {}", loop->var->name, stage),
             "a stage whose loops are its buffer's dimensions");
  std::vector<const Buffer*> read;
  walk(definition->value, [&](const Expr& e) {
    if (e->kind == ExprKind::kLoad) read.push_back(e->buffer.get());
  });
  const std::vector<Stmt> later(place.children.begin() + static_cast<std::ptrdiff_t>(place.producers[0]) + 1,
                                place.children.end());
  if (const Buffer* changed = written_meanwhile(read, later, buffer.get()))
    refuse(
        refusal::kDependence,
        fmt::format("compute_inline: {} reads {}, which is stored to before {} is used", stage, changed->name, stage),
        "a stage whose operands do not change");
  Stmt root = replaced(find_statements(program_.body, [&](const Stmt& s) { return s.same_node(nest); })[0], {});
  root = rewrite_accesses(
      root, buffer.get(),
      [&](const std::vector<Expr>& indices) {
        VarMap map;
        for (size_t d = 0; d < indices.size(); ++d)
          if (vars[d].first) map[vars[d].first.get()] = indices[d] - Expr(vars[d].second);
        return substitute(definition->value, map);
      },
      nullptr);
  if (const auto old_alloc = find_alloc(root, buffer.get())) root = replaced(*old_alloc, old_alloc->stmt()->stmts[0]);
  LoopProgram next = program_;
  next.body = root;
  commit(simplified(root, bounds_of_loops(next, {})), {{}, "compute_inline", {TraceArg::name(stage)}, {}, {}});
}

}  // namespace tessera::inline schedule
