// cache_read, cache_write, set_scope, store_at, transform_layout: where and how values are kept.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "loop/printer.h"
#include "schedule/primitives/region.h"
#include "schedule/primitives/rewriter.h"

namespace tessera::inline schedule {
namespace {

const char* scope_word(MemoryScope scope) { return scope == MemoryScope::kRegister ? "register" : "local"; }

// for b_0 { for b_1 { to[b_0, b_1] = from[b_0, b_1] } }
Stmt copy_nest(const LoopProgram& program, const BufferPtr& from, const BufferPtr& to, const std::string& name) {
  std::vector<Expr> indices;
  Names wishes;
  for (size_t d = 0; d < to->shape.size(); ++d) wishes.push_back(fmt::format("{}_{}", name, d));
  LoopProgram known = program;
  known.symbols.push_back(make_var(to->name));
  for (const std::string& n : new_names(known, {}, wishes)) indices.push_back(make_var(n));
  Stmt nest = store(to, indices, load(from, indices));
  for (size_t d = to->shape.size(); d-- > 0;) nest = for_loop(indices[d], 0, to->shape[d], ForKind::kSerial, nest);
  return nest;
}

void require_constant_shape(const Buffer& buffer, const char* primitive) {
  for (const Expr& dim : buffer.shape)
    if (!as_int(dim))
      refuse(refusal::kStructure, fmt::format("{}: {} has an extent that only a run knows", primitive, buffer.name),
             "buffers of constant shape");
}

StmtPath alloc_named(const LoopProgram& program, const BufferPtr& buffer, const char* primitive) {
  auto path = find_alloc(program.body, buffer.get());
  if (!path)
    refuse(refusal::kStructure, fmt::format("{}: {} is a parameter of the kernel", primitive, buffer->name),
           "a buffer that the kernel allocates", "cache_read or cache_write gives it a copy that may be changed");
  return std::move(*path);
}

Stmt rewritten(const Stmt& s, const BufferPtr& from, const BufferPtr& to,
               const std::function<std::vector<Expr>(const std::vector<Expr>&)>& index) {
  return rewrite_accesses(
      s, from.get(), [&](const std::vector<Expr>& indices) { return load(to, index(indices)); },
      [&](const Stmt& node) { return store(to, index(node->indices), node->value); });
}

// A copy of a whole buffer reads all of it: some store must be known to reach every element.
void require_covered(const StagePlace& place, const BufferPtr& buffer, const char* primitive) {
  for (const size_t p : place.producers)
    for (const StmtPath& path : find_statements(
             place.children[p], [&](const Stmt& s) { return s->kind == StmtKind::kStore && s->buffer == buffer; }))
      if (!loads_buffer(path.stmt()->value, buffer.get()) && covers_buffer(path, 0)) return;
  refuse(refusal::kRegion, fmt::format("{}: no store is known to reach every element of {}", primitive, buffer->name),
         "a stage of which one store covers the buffer",
         fmt::format("put '{}' before the lines that rewrite the stage's loops", primitive));
}

}  // namespace

std::string Schedule::cache_read(const std::string& buffer_name, MemoryScope scope, const std::string& reader,
                                 std::string as) {
  const BufferPtr buffer = buffer_named(program_, buffer_name);
  require_constant_shape(*buffer, "cache_read");
  const BufferPtr only = reader.empty() ? BufferPtr() : buffer_named(program_, reader);
  const std::string name =
      new_names(program_, as.empty() ? Names{} : Names{as}, {fmt::format("{}_{}", buffer_name, scope_word(scope))})[0];
  const BufferPtr copy = make_buffer(name, buffer->dtype, buffer->shape, scope);
  bool any = false;
  const auto redirect = [&](const Stmt& s) {
    const auto in_expr = [&](const Expr& e) {
      if (!e) return e;
      return transform(e, [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad || node->buffer != buffer) return {};
        any = true;
        return load(copy, node->operands);
      });
    };
    return transform(s, nullptr, [&](const Stmt& node) -> Stmt {
      if (only ? node->kind != StmtKind::kStore || node->buffer != only : node->kind == StmtKind::kSeq) return {};
      auto changed = std::make_shared<StmtNode>(*node.get());
      for (Expr* e : {&changed->begin, &changed->extent, &changed->condition, &changed->value}) *e = in_expr(*e);
      for (Expr& index : changed->indices) index = in_expr(index);
      return Stmt(std::move(changed));
    });
  };
  const Stmt nest = copy_nest(program_, buffer, copy, name);
  Stmt body;
  const bool written = !stores_of(program_, buffer.get()).empty();
  if (!written) {
    const bool is_param = !find_alloc(program_.body, buffer.get());
    if (!is_param)
      refuse(refusal::kStructure, fmt::format("cache_read: nothing stores to {}", buffer_name),
             "a parameter, or a buffer that is stored to");
    body = alloc(copy, seq({nest, redirect(program_.body)}));
  } else {
    const StagePlace place = stage_place(program_, buffer, "cache_read");
    require_covered(place, buffer, "cache_read");
    const size_t last = place.producers.back();
    std::vector<Stmt> before(place.children.begin(), place.children.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    std::vector<Stmt> after(place.children.begin() + static_cast<std::ptrdiff_t>(last) + 1, place.children.end());
    Stmt rest = seq(after);
    rest = redirect(rest);
    before.push_back(alloc(copy, seq({nest, rest})));
    body = replaced(place.parent, seq(before));
  }
  if (!any)
    refuse(refusal::kNoStatement,
           fmt::format("cache_read: nothing{} reads {}", reader.empty() ? "" : " in " + reader, buffer_name),
           "a buffer that is read after it was stored to");
  std::vector<TraceArg> args = {TraceArg::name(buffer_name), TraceArg::name(scope_word(scope))};
  if (!reader.empty()) args.push_back(TraceArg::name(reader).with_key("reader"));
  commit(body, {{name}, "cache_read", std::move(args), {}, {}});
  return name;
}

std::string Schedule::cache_write(const std::string& stage, MemoryScope scope, std::string as) {
  const BufferPtr buffer = buffer_named(program_, stage);
  require_constant_shape(*buffer, "cache_write");
  const StagePlace place = stage_place(program_, buffer, "cache_write");
  const std::string name =
      new_names(program_, as.empty() ? Names{} : Names{as}, {fmt::format("{}_{}", stage, scope_word(scope))})[0];
  const BufferPtr cache = make_buffer(name, buffer->dtype, buffer->shape, scope);
  require_covered(place, buffer, "cache_write");
  const size_t first = place.producers.front();
  const size_t last = place.producers.back();
  std::vector<Stmt> before(place.children.begin(), place.children.begin() + static_cast<std::ptrdiff_t>(first));
  std::vector<Stmt> inside(place.children.begin() + static_cast<std::ptrdiff_t>(first),
                           place.children.begin() + static_cast<std::ptrdiff_t>(last) + 1);
  const std::vector<Stmt> after(place.children.begin() + static_cast<std::ptrdiff_t>(last) + 1, place.children.end());
  const auto same = [](const std::vector<Expr>& indices) { return indices; };
  Stmt computing = rewritten(seq(inside), buffer, cache, same);
  before.push_back(alloc(cache, seq({computing, copy_nest(program_, cache, buffer, stage)})));
  before.insert(before.end(), after.begin(), after.end());
  commit(replaced(place.parent, seq(before)),
         {{name}, "cache_write", {TraceArg::name(stage), TraceArg::name(scope_word(scope))}, {}, {}});
  return name;
}

void Schedule::set_scope(const std::string& name, MemoryScope scope) {
  const BufferPtr buffer = buffer_named(program_, name);
  const StmtPath path = alloc_named(program_, buffer, "set_scope");
  if (scope == MemoryScope::kGlobal)
    refuse(refusal::kArguments, "set_scope: an allocation is local or in registers", "local, register");
  if (scope == MemoryScope::kRegister) {
    require_constant_shape(*buffer, "set_scope");
    Stmt crossed;
    walk(
        path.stmt()->stmts[0],
        [&](const Stmt& s) {
          if (s->kind == StmtKind::kFor && is_concurrent(s->for_kind) &&
              (reads_buffer(s, buffer.get()) || writes_buffer(s, buffer.get())))
            crossed = s;
        },
        nullptr);
    if (crossed)
      refuse(refusal::kStructure, fmt::format("set_scope: '{}' uses {} on other threads", summary(crossed), name),
             "registers of one thread: an allocation inside of the parallel loop");
  }
  const BufferPtr changed = make_buffer(name, buffer->dtype, buffer->shape, scope);
  const Stmt body =
      rewritten(path.stmt()->stmts[0], buffer, changed, [](const std::vector<Expr>& indices) { return indices; });
  commit(replaced(path, alloc(changed, body)),
         {{}, "set_scope", {TraceArg::name(name), TraceArg::name(scope_word(scope))}, {}, {}});
}

void Schedule::store_at(const std::string& name, const std::string& loop_name) {
  const BufferPtr buffer = buffer_named(program_, name);
  const StmtPath path = alloc_named(program_, buffer, "store_at");
  refuse_tensorized(path, "the allocation " + name);
  const StmtPath target = loop_named(program_, loop_name);
  const size_t at = target.nodes.size() - 1;
  if (at >= path.nodes.size() || !path.nodes[at].same_node(target.stmt())) {
    Names around;
    for (const Stmt& loop : path.loops()) around.push_back(loop->var->name);
    refuse(refusal::kStructure, fmt::format("store_at: loop {} is not around the allocation of {}", loop_name, name),
           "loops " + listed(around));
  }
  std::vector<Expr> shape, prefix;
  for (size_t i = at; i < path.nodes.size(); ++i) {
    const Stmt& s = path.nodes[i];
    if (s->kind == StmtKind::kIf || s->kind == StmtKind::kSeq || s->kind == StmtKind::kAlloc) continue;
    if (!as_int(s->extent))
      refuse(refusal::kStructure, fmt::format("store_at: '{}' has no constant extent", summary(s)),
             "loops of constant extents");
    if (is_concurrent(s->for_kind) && buffer->scope == MemoryScope::kRegister)
      refuse(refusal::kStructure,
             fmt::format("store_at: {} is in registers and '{}' runs on other threads", name, summary(s)),
             "set_scope to local first");
    refuse_changing_range(s, "store_at");
    shape.push_back(Expr(std::max<int64_t>(*as_int(s->extent), 1)));
    prefix.push_back(simplify(s->var - s->begin));
  }
  // An accumulator of one element needs no dimension of its own.
  bool single = true;
  for (const Access& access : accesses_of(program_))
    if (access.buffer == buffer.get())
      for (size_t d = 0; d < access.indices.size(); ++d)
        single = single && as_int(access.indices[d]) == 0 && as_int(buffer->shape[d]) == 1;
  if (!single) shape.insert(shape.end(), buffer->shape.begin(), buffer->shape.end());
  const BufferPtr larger = make_buffer(name, buffer->dtype, shape, buffer->scope);
  require_constant_shape(*larger, "store_at");
  const Stmt body = rewritten(path.stmt()->stmts[0], buffer, larger, [&](const std::vector<Expr>& indices) {
    std::vector<Expr> result = prefix;
    if (!single) result.insert(result.end(), indices.begin(), indices.end());
    return result;
  });
  const Stmt root = replaced(path, body);
  const StmtPath again = loop_named(
      [&] {
        LoopProgram next = program_;
        next.body = root;
        return next;
      }(),
      loop_name);
  commit(replaced(again, alloc(larger, again.stmt())),
         {{}, "store_at", {TraceArg::name(name), TraceArg::name(loop_name)}, {}, {}});
}

namespace {

// Each old dimension of a transformed layout is a mixed-radix number, of which the new dimensions are digits.
struct Digit {
  int64_t div = 1, mod = 0;  // floormod(floordiv(v, div), mod); mod 0: none
  size_t dim = 0;            // of the old dimensions
  int64_t extent = 1;
  bool none = false;  // floormod(v, 1), of a schedule for groups of any size
};

std::vector<Digit> digits_of(const Buffer& buffer, const std::vector<Var>& vars, const std::vector<Expr>& index) {
  std::vector<Digit> digits;
  const auto not_legal = [&](const Expr& e) {
    refuse(refusal::kArguments, fmt::format("transform_layout: '{}' is no part of a dimension", to_string(e)),
           "a dimension v, floordiv(v, c), floormod(v, c), or floormod(floordiv(v, c), d)");
  };
  for (const Expr& e : index) {
    Digit& digit = digits.emplace_back();
    if (is_const_int(e, 0)) {
      digit.none = true;
      continue;
    }
    Expr rest = e;
    const auto taken = [&](BinaryOp op, int64_t& number) {
      if (rest->kind != ExprKind::kBinary || rest->binary != op) return;
      const auto c = as_int(rest->operands[1]);
      if (!c || *c < 1) not_legal(e);
      number = *c;
      rest = rest->operands[0];
    };
    taken(BinaryOp::kFloorMod, digit.mod);
    taken(BinaryOp::kFloorDiv, digit.div);
    const auto var = std::find_if(vars.begin(), vars.end(), [&](const Var& v) { return v.same_node(rest); });
    if (var == vars.end()) not_legal(e);
    digit.dim = static_cast<size_t>(var - vars.begin());
    const int64_t extent = std::max<int64_t>(*as_int(buffer.shape[digit.dim]), 1);
    const int64_t values = extent / digit.div + (extent % digit.div != 0 ? 1 : 0);
    digit.extent = digit.mod > 0 ? std::min(digit.mod, values) : values;
  }
  return digits;
}

// Refuses unless the digits tell all elements apart; with `once` they may not do so twice.
void require_all_digits(const Buffer& buffer, const std::vector<Var>& vars, const std::vector<Digit>& digits,
                        bool once) {
  for (size_t d = 0; d < vars.size(); ++d) {
    const int64_t extent = *as_int(buffer.shape[d]);
    std::vector<Digit> own;
    for (const Digit& digit : digits)
      if (!digit.none && digit.dim == d) own.push_back(digit);
    std::sort(own.begin(), own.end(), [](const Digit& a, const Digit& b) { return a.div < b.div; });
    int64_t known = 1;  // the value modulo `known` is given
    for (const Digit& digit : own) {
      if (digit.div > known) break;
      if (once && digit.div != known && digit.extent > 1)
        refuse(refusal::kRegion,
               fmt::format("transform_layout: {} would hold its elements more than once in {}", buffer.name,
                           vars[d]->name),
               "an index that has each part of a dimension once");
      if (digit.mod == 0) {
        known = INT64_MAX;
        continue;
      }
      if (digit.div == known && !__builtin_mul_overflow(known, digit.mod, &known)) continue;
    }
    if (known < extent)
      refuse(
          refusal::kRegion,
          fmt::format("transform_layout: elements of {} that differ in {} would meet at one place", buffer.name,
                      vars[d]->name),
          fmt::format("an index that keeps all {} values of {} apart: {}, or floordiv and floormod of it by one number",
                      extent, vars[d]->name, vars[d]->name));
  }
}

// The elements of a constant parameter in their new places.
PackedParam packing_of(size_t param, const Buffer& buffer, const std::vector<Digit>& digits) {
  PackSpec spec;
  int64_t stride = 1, old_elements = 1, elements = 1;
  spec.axes.resize(buffer.shape.size());
  for (size_t d = buffer.shape.size(); d-- > 0;) {
    spec.axes[d] = {*as_int(buffer.shape[d]), stride};
    stride *= *as_int(buffer.shape[d]);
  }
  old_elements = stride;
  constexpr int64_t kMostPadding = 4, kFreePadding = 1 << 16;
  for (const Digit& digit : digits) {
    spec.dims.push_back({digit.extent, static_cast<int>(digit.dim), digit.div});
    if (__builtin_mul_overflow(elements, digit.extent, &elements) ||
        elements > kMostPadding * old_elements + kFreePadding)
      refuse(refusal::kTooLarge,
             fmt::format("transform_layout: {} would take more than {} times its memory", buffer.name, kMostPadding),
             "divisors near the dimensions' extents");
  }
  return {param, {std::move(spec)}};
}

}  // namespace

void Schedule::transform_layout(const std::string& name, const std::vector<Var>& vars, const std::vector<Expr>& index) {
  const BufferPtr buffer = buffer_named(program_, name);
  const auto param = std::find(program_.params.begin(), program_.params.end(), buffer);
  const bool constant = std::find(constants_.begin(), constants_.end(), name) != constants_.end();
  std::optional<StmtPath> path;
  if (!constant) path = alloc_named(program_, buffer, "transform_layout");
  require_constant_shape(*buffer, "transform_layout");
  if (vars.size() != buffer->shape.size())
    refuse(refusal::kArguments,
           fmt::format("transform_layout: {} has {} dimensions, {} are named", name, buffer->shape.size(), vars.size()),
           fmt::format("(..) -> [..] with {} names before the arrow, one for each dimension", buffer->shape.size()));
  if (index.empty() || index.size() > 8 + 4 * static_cast<size_t>(constant))
    refuse(refusal::kArguments, fmt::format("transform_layout: {} new dimensions", index.size()),
           fmt::format("1 to {}", constant ? 12 : 8));
  const std::vector<Digit> digits = digits_of(*buffer, vars, index);
  require_all_digits(*buffer, vars, digits, constant);
  std::vector<Expr> shape;
  for (const Digit& digit : digits) shape.push_back(Expr(digit.extent));
  const BufferPtr changed = make_buffer(name, buffer->dtype, shape, buffer->scope);
  Stmt body = rewritten(constant ? program_.body : path->stmt()->stmts[0], buffer, changed,
                        [&](const std::vector<Expr>& indices) {
                          VarMap map;
                          for (size_t d = 0; d < indices.size(); ++d) map[vars[d].get()] = indices[d];
                          std::vector<Expr> result;
                          for (const Expr& e : index) result.push_back(substitute(e, map));
                          return result;
                        });
  TraceArg mapping;
  mapping.kind = TraceArg::Kind::kMapping;
  mapping.vars = vars;
  mapping.index = index;
  TraceStep step{{}, "transform_layout", {TraceArg::name(name), mapping}, {}, {}};
  if (!constant) {
    body = simplified(body, bounds_of_loops(program_, path->loops()));
    commit(replaced(*path, alloc(changed, body)), std::move(step));
    return;
  }
  const auto number = static_cast<size_t>(param - program_.params.begin());
  if (std::any_of(packed_.begin(), packed_.end(), [&](const PackedParam& p) { return p.param == number; }))
    refuse(refusal::kStructure, fmt::format("transform_layout: {} has another layout already", name),
           "one layout for a parameter");
  PackedParam packed = packing_of(number, *buffer, digits);
  LoopProgram next = program_;
  next.params[number] = changed;
  next.body = simplified(body, bounds_of_loops(program_, {}));
  commit(std::move(next), std::move(step));
  packed_.push_back(std::move(packed));
}

}  // namespace tessera::inline schedule
