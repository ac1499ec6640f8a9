#include "schedule/primitives/unrolled_copies.h"

#include <fmt/format.h>

#include <vector>

#include "loop/printer.h"

namespace tessera::inline schedule {
namespace {

struct Copies {
  double count = 0;  // of all statements that are copied
  int statements = 0;
  double most = 0;  // of one statement
  Stmt statement;   // that one
  std::vector<std::string> loops;
};

void add(const Stmt& s, double times, std::vector<std::string>& loops, Copies& copies) {
  const auto extent = s->kind == StmtKind::kFor ? as_int(s->extent) : std::nullopt;
  const bool unrolled = extent && *extent > 1 && s->for_kind == ForKind::kUnrolled;
  if (unrolled) {
    times *= static_cast<double>(*extent);
    loops.push_back(s->var->name);
  }
  if (s->kind == StmtKind::kStore && !loops.empty()) {
    copies.count += times;
    ++copies.statements;
    if (times > copies.most) {
      copies.most = times;
      copies.statement = s;
      copies.loops = loops;
    }
  }
  for (const Stmt& child : s->stmts) add(child, times, loops, copies);
  if (unrolled) loops.pop_back();
}

Copies copies_of(const Stmt& body) {
  Copies copies;
  std::vector<std::string> loops;
  add(body, 1, loops, copies);
  return copies;
}

}  // namespace

std::string too_many_copies(const Stmt& before, const Stmt& after) {
  const Copies copies = copies_of(after);
  if (copies.count <= kMaxCopies || copies.count <= copies_of(before).count) return "";
  return fmt::format("there would be {:.0f} copies of {} statement{}, {:.0f} of them of '{}' in unrolled {} {}",
                     copies.count, copies.statements, copies.statements == 1 ? "" : "s", copies.most,
                     summary(copies.statement), copies.loops.size() == 1 ? "loop" : "loops",
                     fmt::join(copies.loops, ", "));
}

std::string legal_copies() { return fmt::format("up to {} copies of statements in a program", kMaxCopies); }

}  // namespace tessera::inline schedule
