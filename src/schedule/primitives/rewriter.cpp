#include "schedule/primitives/rewriter.h"

#include <fmt/format.h>

#include <algorithm>

#include "arith/expr_parser.h"
#include "loop/intrinsic.h"
#include "loop/loop_range.h"
#include "loop/printer.h"
#include "support/error.h"
#include "support/nearest_names.h"

namespace tessera::inline schedule {
namespace {

// Beside the list of all names, which it does not repeat.
std::string did_you_mean(const std::string& wanted, const Names& names) {
  const Names near = nearest_names(wanted, names, 3);
  return near.empty() || (near.size() > 1 && near.size() == names.size())
             ? ""
             : "did you mean " + fmt::format("{}?", fmt::join(near, ", "));
}

bool is_word(const std::string& name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

void refuse(const char* id, std::string message, std::string legal, std::string hint) {
  throw UserError(
      {.id = id, .message = std::move(message), .node = {}, .legal = std::move(legal), .hint = std::move(hint)});
}

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

StmtPath loop_named(const LoopProgram& program, const std::string& name) {
  if (auto path = find_loop(program.body, name)) return std::move(*path);
  const Names names = loop_names(program);
  refuse(refusal::kNoLoop, fmt::format("there is no loop '{}'", name), "the loops are " + listed(names),
         did_you_mean(name, names));
}

BufferPtr buffer_named(const LoopProgram& program, const std::string& name) {
  Names names;
  for (const BufferPtr& buffer : buffers_of(program)) {
    if (buffer->name == name) return buffer;
    names.push_back(buffer->name);
  }
  refuse(refusal::kNoStatement, fmt::format("there is no buffer '{}'", name), "the buffers are " + listed(names),
         did_you_mean(name, names));
}

std::vector<StmtPath> stores_of(const LoopProgram& program, const Buffer* buffer) {
  return find_statements(program.body,
                         [&](const Stmt& s) { return s->kind == StmtKind::kStore && s->buffer.get() == buffer; });
}

StmtPath store_named(const LoopProgram& program, const std::string& name) {
  std::string rest = name;
  std::optional<size_t> number;
  if (const size_t hash = rest.find('#'); hash != std::string::npos) {
    size_t value = 0;
    for (const char c : rest.substr(hash + 1))
      value = std::min<size_t>(value * 10 + static_cast<size_t>(c - '0'), 1 << 20);
    number = value;
    rest.resize(hash);
  }
  std::string part;
  if (const size_t dot = rest.find('.'); dot != std::string::npos) {
    part = rest.substr(dot + 1);
    rest.resize(dot);
  }
  const BufferPtr buffer = buffer_named(program, rest);
  const std::vector<StmtPath> all = stores_of(program, buffer.get());
  std::vector<StmtPath> chosen;
  for (const StmtPath& path : all) {
    const bool update = loads_buffer(path.stmt()->value, buffer.get());
    if (part.empty() || part == (update ? "update" : "init")) chosen.push_back(path);
  }
  if (number && *number < chosen.size()) return chosen[*number];
  if (!number && chosen.size() == 1) return chosen[0];
  Names legal;
  for (size_t i = 0; i < all.size(); ++i) legal.push_back(fmt::format("{}#{}: {}", rest, i, summary(all[i].stmt())));
  refuse(refusal::kNoStatement,
         chosen.empty() || number ? fmt::format("there is no statement '{}'", name)
                                  : fmt::format("'{}' may be {} statements", name, chosen.size()),
         listed(legal), "name one as BUFFER.init, BUFFER.update or BUFFER#NUMBER");
}

void refuse_names(size_t given, size_t results) {
  refuse(refusal::kArguments, fmt::format("{} names are given for {} results", given, results),
         fmt::format("{} name{}, or none", results, results == 1 ? "" : "s"));
}

Names accepted(const Names& names, const std::function<void(const std::string&)>& attempt) {
  Names result;
  for (const std::string& name : names) {
    try {
      attempt(name);
      result.push_back(name);
    } catch (const UserError&) {
    }
  }
  return result;
}

Names new_names(const LoopProgram& program, const Names& as, const Names& wishes) {
  if (!as.empty() && as.size() != wishes.size()) refuse_names(as.size(), wishes.size());
  Names result;
  LoopProgram known = program;  // with what was named already
  for (size_t i = 0; i < wishes.size(); ++i) {
    const std::string& wish = as.empty() ? wishes[i] : as[i];
    std::string name = free_name(known, wish);
    if (!as.empty()) {
      if (!is_word(wish) || is_reserved_word(wish))
        refuse(refusal::kArguments, fmt::format("'{}' cannot be a name", wish),
               "letters, digits and '_', no word of the language");
      if (name != wish)
        refuse(refusal::kNameTaken, fmt::format("the name '{}' is taken", wish), "a name that no loop or buffer has");
    }
    known.symbols.push_back(make_var(name));
    result.push_back(std::move(name));
  }
  return result;
}

std::optional<Carried> carried_dependence(const LoopProgram& program, const StmtPath& path, bool allow_reduction) {
  const size_t depth = path.loops().size();
  const Stmt& loop = path.stmt();
  std::vector<Access> inside;
  for (Access& access : accesses_of(program))
    if (access.loops.size() > depth && access.loops[depth].same_node(loop)) inside.push_back(std::move(access));
  std::vector<Relation> relations(depth, Relation::kEqual);
  relations.push_back(Relation::kLess);
  for (const Access& a : inside) {
    for (const Access& b : inside) {
      if (a.buffer != b.buffer || (!a.is_write && !b.is_write)) continue;
      if (allow_reduction && same_reduction(a, b) &&
          std::none_of(a.indices.begin(), a.indices.end(), [&](const Expr& e) { return uses_var(e, loop->var); }))
        continue;
      if (may_conflict(a, b, relations)) return Carried{a, b};
    }
  }
  return std::nullopt;
}

std::string describe(const Carried& d) {
  const auto place = [](const Access& access) {
    std::string text = access.stmt->kind == StmtKind::kStore && access.is_write
                           ? summary(access.stmt)
                           : fmt::format("the load of {} in '{}'", access.buffer->name, summary(access.stmt));
    return text;
  };
  if (d.first.stmt.same_node(d.second.stmt) && is_reduction_update(d.first.stmt))
    return fmt::format("'{}' folds values of different iterations into one element", summary(d.first.stmt));
  return fmt::format("'{}' and, in a later iteration, '{}' may touch the same element of {}", place(d.first),
                     place(d.second), d.first.buffer->name);
}

std::vector<std::string> loops_where(const LoopProgram& program, const std::function<bool(const StmtPath&)>& test) {
  Names names;
  for (const StmtPath& path : find_statements(program.body, [](const Stmt& s) { return s->kind == StmtKind::kFor; }))
    if (test(path)) names.push_back(path.stmt()->var->name);
  return names;
}

bool contains(const Stmt& s, const std::function<bool(const Stmt&)>& test) {
  bool found = false;
  walk(s, [&](const Stmt& node) { found = found || test(node); }, nullptr);
  return found;
}

void refuse_tensorized(const StmtPath& path, const std::string& what) {
  for (const Stmt& s : path.nodes)
    if (s->kind == StmtKind::kTensorized)
      refuse(refusal::kStructure,
             fmt::format("{} is part of the tensorized nest {}", what, s->intrinsic ? s->intrinsic->name : ""),
             "primitives on loops outside of it", "put this line before 'tensorize'");
}

void refuse_changing_range(const Stmt& loop, const char* primitive, const Stmt& by) {
  if (changes_range(loop, by ? by : loop->stmts[0]))
    refuse(refusal::kStructure,
           fmt::format("{}: the range of '{}' is loaded from what {} stores to", primitive, summary(loop),
                       by && !by.same_node(loop) ? "loop " + by->var->name : "the loop"),
           "loops whose ranges stay as they are");
}

Stmt with_kind(const Stmt& loop, ForKind kind) {
  return for_loop(loop->var, loop->begin, loop->extent, kind, loop->stmts[0]);
}

Stmt with_body(const Stmt& loop, Stmt body) {
  return for_loop(loop->var, loop->begin, loop->extent, loop->for_kind, std::move(body));
}

Stmt simplified(const Stmt& s, Bounds bounds) {
  auto node = std::make_shared<StmtNode>(*s.get());
  for (Expr* e : {&node->begin, &node->extent, &node->condition, &node->value})
    if (*e) *e = simplify(*e, bounds);
  for (Expr& index : node->indices) index = simplify(index, bounds);
  if (s->kind == StmtKind::kFor)
    bounds.set(s->var,
               Interval{bounds_of(node->begin, bounds).lo, bounds_of(node->begin + node->extent - Expr(1), bounds).hi});
  if (s->kind == StmtKind::kTensorized) return s;  // it stays as its pattern wants it
  for (Stmt& child : node->stmts) child = simplified(child, bounds);
  const auto is_empty = [](const Stmt& child) { return child->kind == StmtKind::kSeq && child->stmts.empty(); };
  if (s->kind == StmtKind::kSeq) return seq(node->stmts);
  if ((s->kind == StmtKind::kFor || s->kind == StmtKind::kAlloc) && is_empty(node->stmts[0])) return seq({});
  if (s->kind == StmtKind::kIf)
    return if_then(node->condition, node->stmts[0], node->stmts.size() > 1 ? node->stmts[1] : Stmt());
  return Stmt(std::move(node));
}

void recheck_kind(const LoopProgram& program, const Stmt& body, const std::string& name, const char* primitive,
                  const char* legal) {
  LoopProgram next = program;
  next.body = body;
  const StmtPath path = loop_named(next, name);
  const Stmt& loop = path.stmt();
  if (!is_concurrent(loop->for_kind) && loop->for_kind != ForKind::kVectorized) return;
  if (const auto carried = carried_dependence(next, path, loop->for_kind == ForKind::kVectorized))
    refuse(refusal::kDependence,
           fmt::format("{}: iterations of '{}' would not be independent any more: {}", primitive, summary(loop),
                       describe(*carried)),
           legal);
}

}  // namespace tessera::inline schedule
