#include "device/barriers.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "arith/simplify.h"
#include "loop/intrinsic.h"

namespace tessera::inline device {
namespace {

constexpr int64_t kAnywhere = -1;   // instead of one slot
constexpr int kMostPeriods = 8;     // of a loop that are followed
constexpr int64_t kMostSlots = 64;  // that come round in one

// Memory that several threads reach, by slots, as far as a statement or expression touches it: with whether the first
// thread of a block alone does.
class Touched {
 public:
  using Places = std::map<const Buffer*, std::map<int64_t, bool>>;

  static void add(Places& to, const Buffer* buffer, int64_t slot, bool first_alone) {
    const auto [it, is_new] = to[buffer].try_emplace(slot, first_alone);
    if (!is_new) it->second = it->second && first_alone;
  }
  void read(const Buffer* buffer, int64_t slot, bool first_alone) { add(reads_, buffer, slot, first_alone); }
  void write(const Buffer* buffer, int64_t slot, bool first_alone) { add(writes_, buffer, slot, first_alone); }
  void add(const Touched& other) {
    for (const auto& [buffer, slots] : other.reads_)
      for (const auto& [slot, first_alone] : slots) read(buffer, slot, first_alone);
    for (const auto& [buffer, slots] : other.writes_)
      for (const auto& [slot, first_alone] : slots) write(buffer, slot, first_alone);
  }
  bool conflicts(const Touched& later) const {
    return meet(writes_, later.reads_) || meet(writes_, later.writes_) || meet(reads_, later.writes_);
  }
  bool operator==(const Touched&) const = default;

 private:
  static bool meet(const Places& a, const Places& b) {
    for (const auto& [buffer, slots] : a) {
      const auto other = b.find(buffer);
      if (other == b.end()) continue;
      for (const auto& [slot, first_alone] : slots)
        for (const auto& [other_slot, other_alone] : other->second)
          if ((slot == other_slot || slot == kAnywhere || other_slot == kAnywhere) && !(first_alone && other_alone))
            return true;
    }
    return false;
  }

  Places reads_, writes_;
};

// What has gone before a statement.
struct State {
  Touched pending;              // what threads have touched since all have waited
  std::vector<Touched> groups;  // of copies that may be under way, the oldest first

  bool operator==(const State&) const = default;
  // Either this or the other. Groups are counted from the latest one.
  void add(const State& other) {
    pending.add(other.pending);
    if (groups.size() < other.groups.size()) groups.insert(groups.begin(), other.groups.size() - groups.size(), {});
    for (size_t i = 1; i <= other.groups.size(); ++i)
      groups[groups.size() - i].add(other.groups[other.groups.size() - i]);
  }
};

bool is_async_copy(const Stmt& s) {
  return s->kind == StmtKind::kTensorized && s->intrinsic && s->intrinsic->code == IntrinsicCode::kAsyncCopy;
}

class BarrierPlacer {
 public:
  BarrierPlacer(Launch& launch, const std::set<const StmtNode*>& nests) : launch_(launch), nests_(nests) {
    for (const BufferPtr& buffer : launch.shared) shared_.insert(buffer.get());
  }
  void run() {
    State state;
    place(launch_.body, state);
  }

 private:
  // ---- what is touched ----

  bool is_common(const Buffer& buffer) const {
    return buffer.scope == MemoryScope::kGlobal || shared_.contains(&buffer);
  }
  // The number of slots where the first index is one that grows steadily with the variable; else 0.
  int64_t slots_of(const Buffer& buffer, const std::vector<Expr>& indices, const Var& var) const {
    if (!shared_.contains(&buffer) || indices.size() < 2) return 0;
    const Expr& slot = indices[0];
    if (slot->kind != ExprKind::kBinary || slot->binary != BinaryOp::kFloorMod || !uses_var(slot, var)) return 0;
    const Expr& number = slot->operands[0];
    const Expr step = simplify(substitute(number, {{var.get(), var + Expr(1)}}) - number, {});
    return as_int(step) ? as_int(slot->operands[1]).value_or(0) : 0;
  }
  // Which one: a constant, or, of loops that are followed, the iteration's, where it is one that slots_of knows.
  int64_t slot_of(const Buffer& buffer, const std::vector<Expr>& indices) const {
    if (!shared_.contains(&buffer) || indices.size() < 2) return kAnywhere;
    VarMap iteration;
    for (const auto& [var, number] : followed_) {
      if (!uses_var(indices[0], var)) continue;
      if (slots_of(buffer, indices, var) == 0) return kAnywhere;
      iteration[var.get()] = Expr(number);
    }
    return as_int(simplify(substitute(indices[0], iteration), {})).value_or(kAnywhere);
  }

  Touched touched_by(const Stmt& s) const {
    bool first_alone = true;
    walk(
        s,
        [&](const Stmt& node) {
          if (node->kind == StmtKind::kFor && is_thread_axis(node->for_kind))
            first_alone = first_alone && is_const_int(node->extent, 1);
        },
        nullptr);
    Touched result;
    add_touched(s, first_alone, result);
    return result;
  }
  // What its asynchronous copies touch.
  std::optional<Touched> copied_by(const Stmt& s) const {
    std::optional<Touched> result;
    walk(
        s,
        [&](const Stmt& node) {
          if (!is_async_copy(node)) return;
          if (!result) result.emplace();
          add_touched(node, false, *result);
        },
        nullptr);
    return result;
  }
  void add_touched(const Stmt& s, bool first_alone, Touched& result) const {
    walk(
        s,
        [&](const Stmt& node) {
          if (node->kind == StmtKind::kStore && is_common(*node->buffer))
            result.write(node->buffer.get(), slot_of(*node->buffer, node->indices), first_alone);
        },
        [&](const Expr& e) {
          if (e->kind == ExprKind::kLoad && is_common(*e->buffer))
            result.read(e->buffer.get(), slot_of(*e->buffer, e->operands), first_alone);
        });
  }
  Touched read_by(const Expr& e) const {
    Touched result;
    if (e)
      walk(e, [&](const Expr& node) {
        if (node->kind == ExprKind::kLoad && is_common(*node->buffer))
          result.read(node->buffer.get(), slot_of(*node->buffer, node->operands), false);
      });
    return result;
  }

  // ---- statements in order ----

  void reach(const Stmt& s, const Touched& touches, State& state) {
    size_t waited = state.groups.size();  // groups that must have ended
    while (waited > 0 && !state.groups[waited - 1].conflicts(touches)) --waited;
    const auto under_way = static_cast<int>(state.groups.size() - waited);
    if (waited > 0) {
      const auto [it, is_new] = launch_.waits.try_emplace(s.get(), under_way);
      if (is_new || it->second > under_way) it->second = under_way, ++changes_;
    }
    if ((waited > 0 || state.pending.conflicts(touches)) && launch_.barriers.insert(s.get()).second) ++changes_;
    if (const auto wait = launch_.waits.find(s.get());
        wait != launch_.waits.end() && state.groups.size() > static_cast<size_t>(wait->second))
      state.groups.erase(state.groups.begin(), state.groups.end() - wait->second);
    if (launch_.barriers.contains(s.get())) state.pending = {};
    state.pending.add(touches);
  }

  void place(const Stmt& s, State& state) {
    if (nests_.contains(s.get())) {
      reach(s, touched_by(s), state);
      if (auto copied = copied_by(s)) {
        launch_.copies.insert(s.get());
        state.groups.push_back(*std::move(copied));
      }
      return;
    }
    if (s->kind == StmtKind::kIf) {
      reach(s, read_by(s->condition), state);
      State after = state;  // where the condition does not hold
      for (size_t arm = 0; arm < s->stmts.size(); ++arm) {
        State own = state;
        place(s->stmts[arm], own);
        if (arm == 0 && s->stmts.size() == 2) after = own;
        else after.add(own);
      }
      state = std::move(after);
      return;
    }
    if (s->kind == StmtKind::kFor && !is_block_axis(s->for_kind)) return place_loop(s, state);
    for (const Stmt& child : s->stmts) place(child, state);
  }

  void place_loop(const Stmt& s, State& state) {
    Touched bounds = read_by(s->begin);
    bounds.add(read_by(s->extent));
    reach(s, bounds, state);
    const State before = state;
    if (!follow(s, state)) {
      state = before;
      place(s->stmts[0], state);  // the first iteration
      if (!is_const_int(s->extent, 1)) {
        const State first = state;
        place(s->stmts[0], state);  // any later one
        if (!as_int(s->extent)) state.add(first);
      }
    }
    if (as_int(s->extent).value_or(0) < 1) state.add(before);
  }

  // The loop's iterations one by one, until nothing new comes. False where it has no slots, or there is no end.
  bool follow(const Stmt& s, State& state) {
    int64_t period = 1;  // in which all slots come round
    const auto see = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
      if (const int64_t slots = slots_of(buffer, indices, s->var); slots > 1 && period <= kMostSlots)
        period = std::lcm(period, slots);
    };
    walk(
        s->stmts[0],
        [&](const Stmt& node) {
          if (node->kind == StmtKind::kStore) see(*node->buffer, node->indices);
        },
        [&](const Expr& e) {
          if (e->kind == ExprKind::kLoad) see(*e->buffer, e->operands);
        });
    const auto begin = as_int(s->begin);
    if (period == 1 || period > kMostSlots || !begin) return false;
    const auto extent = as_int(s->extent);
    std::vector<std::pair<State, int>> behind;  // each iteration, with the changes so far
    const auto repeats = [&] {
      const size_t last = behind.size() - 1, before = last - static_cast<size_t>(period);
      return behind.size() > static_cast<size_t>(period) && behind[before] == behind[last];
    };
    followed_.emplace_back(s->var, 0);
    do {
      followed_.back().second = *begin + static_cast<int64_t>(behind.size());
      place(s->stmts[0], state);
      behind.emplace_back(state, changes_);
      if (extent && static_cast<int64_t>(behind.size()) >= *extent) break;  // that was the last one
    } while (!repeats() && static_cast<int64_t>(behind.size()) < kMostPeriods * period);
    followed_.pop_back();
    if (extent && static_cast<int64_t>(behind.size()) >= *extent) return true;
    if (!repeats()) return false;
    // It ends behind an iteration of any place in the period; where nobody knows how many there are, behind any.
    const auto last = static_cast<int64_t>(behind.size()) - 1;
    if (extent) {
      state = behind[static_cast<size_t>(last - period + (*extent - 1 - last) % period)].first;
    } else {
      for (const auto& [other, changes] : behind) state.add(other);
    }
    return true;
  }

  Launch& launch_;
  const std::set<const StmtNode*>& nests_;
  std::set<const Buffer*> shared_;
  std::vector<std::pair<Var, int64_t>> followed_;  // loops around the current place, and their iterations
  int changes_ = 0;                                // barriers and waits that have come
};

}  // namespace

void place_barriers(Launch& launch, const std::set<const StmtNode*>& nests) { BarrierPlacer(launch, nests).run(); }

}  // namespace tessera::inline device
