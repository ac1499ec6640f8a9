#include "driver/analysis/cache_sim.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "arith/int_ops.h"
#include "arith/simplify.h"
#include "codegen/common/local_plan.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

constexpr int64_t kLine = 64;

[[noreturn]] void fail(const std::string& message, const std::string& legal) {
  throw UserError({.id = "TSR-3425", .message = message, .node = {}, .legal = legal, .hint = {}});
}

class Cache {
 public:
  explicit Cache(const CacheShape& shape)
      : ways_(static_cast<size_t>(shape.ways)), sets_(static_cast<size_t>(shape.bytes / kLine / shape.ways)) {
    lines_.assign(ways_ * sets_, -1);
  }
  // Whether the line was there; it is now the most recently used of its set.
  bool touch(int64_t line) {
    int64_t* set = &lines_[(static_cast<size_t>(line) % sets_) * ways_];
    size_t i = 0;
    while (i < ways_ && set[i] != line) ++i;
    const bool hit = i < ways_;
    for (size_t j = std::min(i, ways_ - 1); j > 0; --j) set[j] = set[j - 1];
    set[0] = line;
    return hit;
  }

 private:
  size_t ways_, sets_;
  std::vector<int64_t> lines_;  // per set, most recently used first
};

struct LimitReached {};

class Simulator {
 public:
  Simulator(const CacheShape& l1, const CacheShape& l2, int64_t max_accesses) : l1_(l1), l2_(l2), max_(max_accesses) {}

  CacheCounts run(const LoopProgram& program) {
    if (!program.symbols.empty()) fail("the program has sizes that only a run knows", "constant sizes");
    for (const BufferPtr& param : program.params) place(*param);
    const Action action = statement(program.body);
    slots_.assign(vars_.size(), 0);
    counts_.complete = true;
    try {
      action();
    } catch (const LimitReached&) {
      counts_.complete = false;
    }
    return counts_;
  }

 private:
  using Action = std::function<void()>;
  struct Address {
    int64_t constant = 0;
    std::vector<std::pair<size_t, int64_t>> terms;  // slot, elements per step
    Expr general;                                   // when it is not affine
    int64_t base = 0, bytes = 4;
    size_t id = 0;  // of its memory of lines
  };

  void place(const Buffer& buffer) {
    const auto elements = constant_elements(buffer);
    if (!elements) fail(fmt::format("{} has a size that only a run knows", buffer.name), "constant sizes");
    bases_[&buffer] = next_base_;
    next_base_ += (dtype_bytes(buffer.dtype, *elements) + 4095) / 4096 * 4096;
  }

  size_t slot(const Var& var) {
    const auto [it, fresh] = vars_.try_emplace(var.get(), vars_.size());
    return it->second;
  }

  // Integers of loop variables; what depends on data is 0.
  int64_t evaluate(const Expr& e) const {
    if (const auto c = as_int(e)) return *c;
    const auto operand = [&](size_t i) { return evaluate(e->operands[i]); };
    switch (e->kind) {
      case ExprKind::kVar: {
        const auto it = vars_.find(e.get());
        return it == vars_.end() ? 0 : slots_[it->second];
      }
      case ExprKind::kSelect: return operand(0) ? operand(1) : operand(2);
      case ExprKind::kCast: return operand(0);
      case ExprKind::kUnary: return e->unary == UnaryOp::kNot ? !operand(0) : -operand(0);
      case ExprKind::kBinary: break;
      default: return 0;
    }
    const int64_t a = operand(0);
    const int64_t b = operand(1);
    return int_binary(e->binary, DType::kI64, a, b);
  }

  static bool depends_on_data(const Expr& e) {
    bool found = false;
    walk(e, [&](const Expr& node) { found |= node->kind == ExprKind::kLoad || is_float(node.dtype()); });
    return found;
  }

  Action access(const Buffer& buffer, const std::vector<Expr>& indices) {
    if (buffer.scope == MemoryScope::kRegister) return {};
    Address address;
    Expr flat = 0;
    for (size_t d = 0; d < indices.size(); ++d) flat = flat * buffer.shape[d] + indices[d];
    flat = simplify(flat);
    address.base = bases_.at(&buffer);
    address.bytes = std::max<int64_t>(dtype_bytes(buffer.dtype, 1), 1);
    address.id = last_lines_.size();
    last_lines_.push_back(-1);
    Expr rest = flat;
    for (const Var& var : loops_) {
      const auto c = linear_coefficient(rest, var);
      if (!c) {
        address.general = flat;
        break;
      }
      if (*c == 0) continue;
      address.terms.emplace_back(slot(var), *c);
      rest = simplify(substitute(rest, {{var.get(), Expr(0)}}));
    }
    if (!address.general) {
      if (const auto c = as_int(rest)) address.constant = *c;
      else address.general = flat;
    }
    if (address.general) return [this, address] { touch(address, evaluate(address.general)); };
    return [this, address] {
      int64_t at = address.constant;
      for (const auto& [slot, c] : address.terms) at += slots_[slot] * c;
      touch(address, at);
    };
  }

  void touch(const Address& address, int64_t element) {
    const int64_t line = (address.base + element * address.bytes) / kLine;
    if (in_tile_) {
      // Registers hold what a tile loads: one access per line.
      if (std::find(tile_lines_.begin(), tile_lines_.end(), line) != tile_lines_.end()) return;
      tile_lines_.push_back(line);
    } else if (in_vector_) {
      if (last_lines_[address.id] == line) return;
      last_lines_[address.id] = line;
      touched_.push_back(address.id);
    }
    if (++counts_.accesses > max_) throw LimitReached();
    if (l1_.touch(line)) return;
    ++counts_.l1_misses;
    if (!l2_.touch(line)) ++counts_.l2_misses;
  }

  // All loads of an expression, in the arms that its integer conditions choose.
  Action loads(const Expr& e) {
    std::vector<Action> actions;
    collect(e, actions);
    if (actions.empty()) return {};
    if (actions.size() == 1) return actions[0];
    return [actions] {
      for (const Action& action : actions) action();
    };
  }
  void collect(const Expr& e, std::vector<Action>& actions) {
    if (e->kind == ExprKind::kSelect && !depends_on_data(e->operands[0])) {
      const Action yes = loads(e->operands[1]);
      const Action no = loads(e->operands[2]);
      if (yes || no)
        actions.push_back([this, condition = e->operands[0], yes, no] {
          const Action& chosen = evaluate(condition) ? yes : no;
          if (chosen) chosen();
        });
      return;
    }
    for (const Expr& operand : e->operands) collect(operand, actions);
    if (e->kind == ExprKind::kLoad)
      if (Action action = access(*e->buffer, e->operands)) actions.push_back(std::move(action));
  }

  Action statement(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kSeq: {
        std::vector<Action> actions;
        for (const Stmt& child : s->stmts) actions.push_back(statement(child));
        return [actions] {
          for (const Action& action : actions) action();
        };
      }
      case StmtKind::kStore: {
        std::vector<Action> actions;
        for (const Expr& index : s->indices) collect(index, actions);
        collect(s->value, actions);
        if (Action action = access(*s->buffer, s->indices)) actions.push_back(std::move(action));
        return [this, actions] {
          ++counts_.stores;
          for (const Action& action : actions) action();
        };
      }
      case StmtKind::kIf: {
        const Action then = statement(s->stmts[0]);
        const Action otherwise = s->stmts.size() > 1 ? statement(s->stmts[1]) : Action();
        if (depends_on_data(s->condition))
          return [then, otherwise] {
            then();
            if (otherwise) otherwise();
          };
        return [this, condition = s->condition, then, otherwise] {
          if (evaluate(condition)) then();
          else if (otherwise) otherwise();
        };
      }
      case StmtKind::kAlloc: place(*s->buffer); return statement(s->stmts[0]);
      case StmtKind::kTensorized: {
        const Action body = statement(s->stmts[0]);
        return [this, body] {
          in_tile_ = true;
          tile_lines_.clear();
          body();
          in_tile_ = false;
        };
      }
      case StmtKind::kFor: break;
    }
    const size_t at = slot(s->var);
    loops_.push_back(s->var);
    const Action body = statement(s->stmts[0]);
    loops_.pop_back();
    const bool vectorized = s->for_kind == ForKind::kVectorized;
    return [this, begin = s->begin, extent = s->extent, at, body, vectorized] {
      const int64_t first = evaluate(begin);
      const int64_t end = first + evaluate(extent);
      const bool outer = in_vector_;
      in_vector_ = in_vector_ || vectorized;
      for (int64_t i = first; i < end; ++i) {
        slots_[at] = i;
        body();
      }
      in_vector_ = outer;
      if (vectorized) {
        for (const size_t id : touched_) last_lines_[id] = -1;
        touched_.clear();
      }
    };
  }

  Cache l1_, l2_;
  int64_t max_;
  CacheCounts counts_;
  std::unordered_map<const Buffer*, int64_t> bases_;
  int64_t next_base_ = 1 << 20;
  std::unordered_map<const ExprNode*, size_t> vars_;
  std::vector<Var> loops_;  // around the statement being translated
  std::vector<int64_t> slots_, last_lines_, tile_lines_;
  std::vector<size_t> touched_;
  bool in_vector_ = false, in_tile_ = false;
};

}  // namespace

CacheCounts simulate_caches(const LoopProgram& program, const CacheShape& l1, const CacheShape& l2,
                            int64_t max_accesses) {
  for (const CacheShape& shape : {l1, l2})
    if (shape.ways < 1 || shape.ways > 64 || shape.bytes < kLine * shape.ways || shape.bytes > (int64_t{1} << 30))
      fail(fmt::format("a cache of {} bytes in {} ways", shape.bytes, shape.ways),
           "up to 64 ways of lines of 64 bytes, up to 1G");
  return Simulator(l1, l2, max_accesses).run(program);
}

std::string cache_text(const CacheCounts& c, const CacheShape& l1, const CacheShape& l2) {
  const auto share = [](int64_t part, int64_t of) {
    return of == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(of);
  };
  return fmt::format(
      "{} accesses{}\nL1 {} kB, {}-way: {} misses, {:.2f} % of the accesses\nL2 {} kB, {}-way: {} misses, {:.2f} % of "
      "the accesses, "
      "{:.1f} MB from beyond\n",
      c.accesses, c.complete ? "" : " (the simulation ended here; the program goes on)", l1.bytes >> 10, l1.ways,
      c.l1_misses, share(c.l1_misses, c.accesses), l2.bytes >> 10, l2.ways, c.l2_misses, share(c.l2_misses, c.accesses),
      static_cast<double>(c.l2_misses) * kLine / 1e6);
}

CacheShape parse_cache(const std::string& text) {
  CacheShape shape;
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, shape.bytes);
  bool ok = error == std::errc() && shape.bytes > 0 && shape.bytes < (int64_t{1} << 30);
  if (ok && at < end && (*at == 'K' || *at == 'M')) shape.bytes <<= *at++ == 'K' ? 10 : 20;
  if (ok && at < end && *at == '/') {
    const auto ways = std::from_chars(at + 1, end, shape.ways);
    ok = ways.ec == std::errc();
    at = ways.ptr;
  }
  if (!ok || at != end) fail(fmt::format("a cache '{}' cannot be read", text), "BYTES[K|M][/WAYS], as 32K/8");
  return shape;
}

}  // namespace tessera::inline driver
