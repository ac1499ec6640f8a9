#include "accel/expand.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arith/int_ops.h"
#include "arith/simplify.h"
#include "loop/printer.h"
#include "loop/unify.h"
#include "support/error.h"

namespace tessera::inline accel {

namespace {

constexpr size_t kMostInstructionsOfAStream = 1'000'000;
constexpr int64_t kMostPointsLookedAt = int64_t{1} << 22;

int64_t rounded_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

UserError refuse(const char* id, const std::string& message, const std::string& node, const std::string& legal) {
  return UserError({.id = id, .message = message, .node = node, .legal = legal, .hint = {}});
}

// Values of loop variables.
using Values = std::unordered_map<const ExprNode*, int64_t>;

int64_t value_of(const Expr& e, const Values& values) {
  switch (e->kind) {
    case ExprKind::kConst:
      if (is_int(e.dtype()) || e.dtype() == DType::kBool) return e->int_value;
      break;
    case ExprKind::kVar:
      if (const auto it = values.find(e.get()); it != values.end()) return it->second;
      break;
    case ExprKind::kUnary: return int_unary(e->unary, e.dtype(), value_of(e->operands[0], values));
    case ExprKind::kBinary: {
      const int64_t a = value_of(e->operands[0], values);
      if (e->binary == BinaryOp::kAnd && e.dtype() == DType::kBool && !a) return 0;
      if (e->binary == BinaryOp::kOr && e.dtype() == DType::kBool && a) return 1;
      return int_binary(e->binary, e->operands[0].dtype(), a, value_of(e->operands[1], values));
    }
    case ExprKind::kSelect: return value_of(e->operands[value_of(e->operands[0], values) ? 1 : 2], values);
    case ExprKind::kCast: return canonical_int(e.dtype(), value_of(e->operands[0], values));
    default: break;
  }
  throw refuse("TSR-3505", fmt::format("'{}' is no number while the program is expanded", to_string(e)), "",
               "loops and addresses of constants and variables of loops");
}

// A nest that is an instruction: what its operands and their places are.
struct Nest {
  const UnitInstruction* kind = nullptr;
  int number = 0;                      // of the kind
  std::vector<const Buffer*> buffers;  // of each operand
  std::vector<Expr> address;           // in bytes from the buffer's beginning
  std::vector<Expr> inside;            // of padded operands; null: everywhere
  std::vector<int64_t> immediates;
};

class Expander {
 public:
  Expander(const Accelerator& unit, const LoopProgram& program) : unit_(unit), program_(program) {
    tops_.assign(unit.memories.size(), 0);
    names_.resize(unit.memories.size());
  }

  InstructionStream run() {
    for (size_t i = 0; i < program_.params.size(); ++i) {
      const BufferPtr& param = program_.params[i];
      stream_.segments.push_back(
          {param->name, bytes_of(*param), i + static_cast<size_t>(program_.num_outputs) >= program_.params.size()});
      segments_[param.get()] = static_cast<int>(i);
    }
    walk(
        program_.body,
        [&](const Stmt& s) {
          if (s->kind == StmtKind::kTensorized) place_operands(nest_of(s));
        },
        nullptr);
    visit(program_.body);
    return std::move(stream_);
  }

 private:
  static int64_t bytes_of(const Buffer& buffer) {
    int64_t elements = 1;
    for (const Expr& extent : buffer.shape) {
      const auto known = as_int(extent);
      if (!known || __builtin_mul_overflow(elements, *known, &elements) || elements > (int64_t{1} << 32))
        throw refuse("TSR-3505", fmt::format("'{}' has no constant size below 2^32", buffer.name), buffer.name,
                     "numbers");
    }
    return dtype_bytes(buffer.dtype, elements);
  }

  const Nest& nest_of(const Stmt& s) {
    const auto it = nests_.find(s.get());
    return it != nests_.end() ? it->second : nests_.emplace(s.get(), matched(s)).first->second;
  }

  Nest matched(const Stmt& s) const {
    Nest nest;
    nest.kind = unit_.find(s->intrinsic);
    if (!nest.kind)
      throw refuse("TSR-3502", fmt::format("'{}' is no instruction of {}", s->intrinsic->name, unit_.name),
                   s->intrinsic->name, instruction_names());
    nest.number = static_cast<int>(nest.kind - unit_.instructions.data());
    const IntrinsicPattern& pattern = s->intrinsic->patterns[0];
    std::vector<Stmt> around;
    const PatternMatch match = unify(*pattern.program, without_single_iterations(s->stmts[0]), pattern.rules);
    if (!match.problem.empty()) {
      throw refuse("TSR-3502", fmt::format("a nest is no '{}': {}", s->intrinsic->name, match.problem),
                   s->intrinsic->name, print(*pattern.program));
    }
    for (const PatternRegion& region : match.regions) {
      nest.buffers.push_back(region.buffer.get());
      Expr flat = 0;
      int64_t step = dtype_bytes(region.buffer->dtype, 1);
      for (size_t d = region.first.size(); d-- > 0;) {
        flat = flat + region.first[d] * Expr(step);
        step *= as_int(region.buffer->shape[d]).value_or(1);
      }
      nest.address.push_back(simplify(flat));
      nest.inside.push_back(region.inside ? simplify(region.inside) : Expr());
    }
    nest.immediates = match.symbols;
    return nest;
  }

  std::string instruction_names() const {
    std::vector<std::string> names;
    for (const UnitInstruction& kind : unit_.instructions) names.push_back(kind.intrinsic->name);
    return fmt::format("{}", fmt::join(names, ", "));
  }

  std::string memory_name(int memory) const {
    return memory == kDram ? "DRAM" : unit_.memories[static_cast<size_t>(memory)].name;
  }

  void place_operands(const Nest& nest) {
    for (size_t p = 0; p < nest.buffers.size(); ++p) {
      const Buffer* buffer = nest.buffers[p];
      const int wanted = nest.kind->operands[p];
      const bool is_param = segments_.contains(buffer);
      if (is_param != (wanted == kDram))
        throw refuse("TSR-3503",
                     fmt::format("'{}' is in {}, and operand '{}' of {} is in {}", buffer->name,
                                 is_param ? "DRAM, as a parameter" : "a memory of the accelerator, as an allocation",
                                 nest.kind->intrinsic->pattern()->params[p]->name, nest.kind->intrinsic->name,
                                 memory_name(wanted)),
                     buffer->name, "cache_read and cache_write make copies in memories");
      if (is_param) continue;
      const auto [it, is_new] = memory_of_.emplace(buffer, wanted);
      if (!is_new && it->second != wanted)
        throw refuse("TSR-3503",
                     fmt::format("'{}' would be in two memories: {} and {}", buffer->name, memory_name(it->second),
                                 memory_name(wanted)),
                     buffer->name, "a copy in each");
    }
  }

  void visit(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) visit(child);
        return;
      case StmtKind::kAlloc: return visit_alloc(s);
      case StmtKind::kIf:
        if (value_of(s->condition, values_)) visit(s->stmts[0]);
        else if (s->stmts.size() > 1) visit(s->stmts[1]);
        return;
      case StmtKind::kFor: {
        std::vector<Stmt> loops;
        Stmt inner = s;
        while (inner->kind == StmtKind::kFor) {
          loops.push_back(inner);
          inner = inner->stmts[0];
        }
        if (inner->kind == StmtKind::kTensorized && are_a_box(loops)) return emit_chain(loops, nest_of(inner));
        return each_iteration(s, [&] { visit(s->stmts[0]); });
      }
      case StmtKind::kTensorized: return emit_chain({}, nest_of(s));
      case StmtKind::kStore: break;
    }
    throw refuse("TSR-3502", fmt::format("'{}' is no instruction of {}", summary(s), unit_.name), s->buffer->name,
                 fmt::format("nests that are tensorized as one of {}", instruction_names()));
  }

  template <typename Body>
  void each_iteration(const Stmt& loop, Body body) {
    const int64_t begin = value_of(loop->begin, values_), extent = value_of(loop->extent, values_);
    for (int64_t i = 0; i < extent; ++i) {
      values_[loop->var.get()] = begin + i;
      body();
    }
  }

  void visit_alloc(const Stmt& s) {
    const auto it = memory_of_.find(s->buffer.get());
    if (it == memory_of_.end()) return visit(s->stmts[0]);  // nobody uses it
    const auto memory = static_cast<size_t>(it->second);
    const UnitMemory& of = unit_.memories[memory];
    const int64_t bytes = rounded_up(bytes_of(*s->buffer), of.element);
    // An element of the memory may be less than one of the buffer.
    const int64_t outside = tops_[memory];
    const int64_t begin = rounded_up(outside, std::lcm(of.element, dtype_bytes(s->buffer->dtype, 1)));
    names_[memory].push_back(fmt::format("{} ({})", s->buffer->name, bytes));
    if (begin + bytes > of.bytes)
      throw refuse("TSR-3504",
                   fmt::format("memory '{}' has {} bytes, and {} need {} at once", of.name, of.bytes,
                               fmt::join(names_[memory], ", "), begin + bytes),
                   s->buffer->name, "smaller tiles: split loops further, or compute_at a deeper loop");
    addresses_[s->buffer.get()] = begin;
    tops_[memory] = begin + bytes;
    visit(s->stmts[0]);
    tops_[memory] = outside;
    names_[memory].pop_back();
  }

  // Whether how far a loop runs does not depend on those around it.
  static bool are_a_box(const std::vector<Stmt>& loops) {
    for (size_t outer = 0; outer < loops.size(); ++outer)
      for (size_t l = outer + 1; l < loops.size(); ++l)
        if (uses_var(loops[l]->begin, loops[outer]->var) || uses_var(loops[l]->extent, loops[outer]->var)) return false;
    return true;
  }

  // Loops that stand directly in each other around a nest.
  void emit_chain(const std::vector<Stmt>& loops, const Nest& nest) {
    std::vector<Stmt> copies, own;
    for (const Stmt& loop : loops) {
      const int64_t extent = value_of(loop->extent, values_);
      if (extent <= 0) return;
      values_[loop->var.get()] = value_of(loop->begin, values_);
      if (extent > 1) (loop->for_kind == ForKind::kUnrolled ? copies : own).push_back(loop);
    }
    if (!copies.empty() && !are_apart(copies, own, nest)) {
      own.clear();
      for (const Stmt& loop : loops)
        if (value_of(loop->extent, values_) > 1) own.push_back(loop);
      copies.clear();
    }
    const int64_t most = (int64_t{1} << nest.kind->extent_bits) - 1;
    size_t outer = 0;  // loops of `own` that are expanded
    while (own.size() - outer > static_cast<size_t>(nest.kind->loops)) ++outer;
    for (size_t l = outer; l < own.size(); ++l)
      if (value_of(own[l]->extent, values_) > most) outer = l + 1;
    const auto inner = [&] { return std::vector<Stmt>(own.begin() + static_cast<std::ptrdiff_t>(outer), own.end()); };
    while (outer < own.size() && !is_regular(inner(), nest)) ++outer;
    while (outer < own.size() &&
           moving_loops(inner(), nest) + stationary_loops(nest) > static_cast<size_t>(nest.kind->loops))
      ++outer;
    std::vector<Stmt> expanded = copies;
    expanded.insert(expanded.end(), own.begin(), own.begin() + static_cast<std::ptrdiff_t>(outer));
    own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(outer));
    emit_each(expanded, 0, own, nest);
  }

  void emit_each(const std::vector<Stmt>& expanded, size_t depth, const std::vector<Stmt>& own, const Nest& nest) {
    if (depth == expanded.size()) return emit(own, nest);
    each_iteration(expanded[depth], [&] { emit_each(expanded, depth + 1, own, nest); });
  }

  int64_t address(const Nest& nest, size_t p) {
    const auto it = addresses_.find(nest.buffers[p]);
    return value_of(nest.address[p], values_) + (it == addresses_.end() ? 0 : it->second);
  }

  // How far each loop moves an address, from where all are at their begin.
  std::vector<int64_t> strides(const std::vector<Stmt>& loops, const Nest& nest, size_t p) {
    const int64_t base = address(nest, p);
    std::vector<int64_t> result;
    for (const Stmt& loop : loops) {
      int64_t& value = values_.at(loop->var.get());
      ++value;
      result.push_back(address(nest, p) - base);
      --value;
    }
    return result;
  }

  // How many there are, or the largest number.
  int64_t points_of(const std::vector<Stmt>& loops) const {
    int64_t points = 1;
    for (const Stmt& loop : loops)
      if (__builtin_mul_overflow(points, value_of(loop->extent, values_), &points))
        return std::numeric_limits<int64_t>::max();
    return points;
  }

  // Calls `body` with the steps of the loops, for each of their points.
  template <typename Body>
  void each_point(const std::vector<Stmt>& loops, Body body) {
    std::vector<int64_t> at(loops.size(), 0), begin, extents;
    for (const Stmt& loop : loops) {
      begin.push_back(values_.at(loop->var.get()));
      extents.push_back(value_of(loop->extent, values_));
    }
    int64_t points = 1;
    for (const int64_t extent : extents) points *= extent;
    for (int64_t point = 0; point < points; ++point) {
      for (size_t l = 0; l < loops.size(); ++l) values_[loops[l]->var.get()] = begin[l] + at[l];
      body(at);
      for (size_t l = loops.size(); l-- > 0;) {
        if (++at[l] < extents[l]) break;
        at[l] = 0;
      }
    }
    for (size_t l = 0; l < loops.size(); ++l) values_[loops[l]->var.get()] = begin[l];
  }

  // In the variables of these loops; all others have values.
  static bool is_linear(const Expr& e, const std::vector<Stmt>& loops) {
    const bool varies = std::any_of(loops.begin(), loops.end(), [&](const Stmt& l) { return uses_var(e, l->var); });
    if (!varies || e->kind == ExprKind::kVar) return true;
    if (e->kind != ExprKind::kBinary) return false;
    const bool sum = e->binary == BinaryOp::kAdd || e->binary == BinaryOp::kSub;
    const bool multiple = e->binary == BinaryOp::kMul && (as_int(e->operands[0]) || as_int(e->operands[1]));
    return (sum || multiple) && is_linear(e->operands[0], loops) && is_linear(e->operands[1], loops);
  }

  // Whether strides say all about the addresses, and a box about what is read of a padded operand.
  bool is_regular(const std::vector<Stmt>& loops, const Nest& nest) {
    const int64_t points = points_of(loops);
    bool regular = true;
    for (size_t p = 0; p < nest.address.size() && regular; ++p) {
      const bool linear = is_linear(nest.address[p], loops);
      if (linear && !nest.inside[p]) continue;
      if (points > kMostPointsLookedAt) return false;
      const std::vector<int64_t> by = strides(loops, nest, p);
      const int64_t base = address(nest, p);
      if (!linear)
        each_point(loops, [&](const std::vector<int64_t>& at) {
          int64_t expected = base;
          for (size_t l = 0; l < at.size(); ++l) expected += at[l] * by[l];
          regular = regular && address(nest, p) == expected;
        });
      if (nest.inside[p] && regular) {
        int64_t count = 0;
        const auto box = box_inside(loops, nest, p, count);
        int64_t volume = 1;
        for (const auto& [begin, end] : box) volume *= end - begin;
        regular = count == 0 || volume == count;
      }
    }
    return regular;
  }

  // The same where each of the conditions that must hold together is about one loop, and holds for a run of its steps.
  std::optional<std::vector<std::pair<int64_t, int64_t>>> box_of_conditions(const std::vector<Stmt>& loops,
                                                                            const Expr& inside, int64_t& count) {
    std::vector<std::vector<Expr>> of_loop(loops.size());
    std::vector<Expr> of_none;
    const std::function<bool(const Expr&)> sort = [&](const Expr& e) {
      if (e->kind == ExprKind::kBinary && e->binary == BinaryOp::kAnd && e.dtype() == DType::kBool)
        return sort(e->operands[0]) && sort(e->operands[1]);
      size_t found = loops.size();
      for (size_t l = 0; l < loops.size(); ++l) {
        if (!uses_var(e, loops[l]->var)) continue;
        if (found != loops.size()) return false;
        found = l;
      }
      (found == loops.size() ? of_none : of_loop[found]).push_back(e);
      return true;
    };
    if (inside && !sort(inside)) return std::nullopt;
    std::vector<std::pair<int64_t, int64_t>> box;
    bool empty = false;
    for (const Expr& e : of_none) empty = empty || !value_of(e, values_);
    count = 1;
    for (size_t l = 0; l < loops.size(); ++l) {
      const int64_t extent = value_of(loops[l]->extent, values_);
      int64_t& value = values_.at(loops[l]->var.get());
      const int64_t begin = value;
      int64_t first = -1, last = -1, holding = 0;
      for (int64_t step = 0; step < extent && !of_loop[l].empty(); ++step) {
        value = begin + step;
        bool holds = true;
        for (const Expr& e : of_loop[l]) holds = holds && value_of(e, values_);
        if (!holds) continue;
        if (first < 0) first = step;
        last = step;
        ++holding;
      }
      value = begin;
      if (of_loop[l].empty()) first = 0, last = extent - 1, holding = extent;
      if (holding && last - first + 1 != holding) return std::nullopt;
      empty = empty || holding == 0;
      box.emplace_back(first, last + 1);
      count *= holding;
    }
    if (empty) {
      count = 0;
      box.assign(loops.size(), {0, 0});
    }
    return box;
  }

  std::vector<std::pair<int64_t, int64_t>> box_inside(const std::vector<Stmt>& loops, const Nest& nest, size_t p,
                                                      int64_t& count) {
    if (auto quick = box_of_conditions(loops, nest.inside[p], count)) return *quick;
    std::vector<std::pair<int64_t, int64_t>> box(loops.size(), {int64_t{1} << 40, 0});
    count = 0;
    each_point(loops, [&](const std::vector<int64_t>& at) {
      if (nest.inside[p] && !value_of(nest.inside[p], values_)) return;
      ++count;
      for (size_t l = 0; l < at.size(); ++l)
        box[l] = {std::min(box[l].first, at[l]), std::max(box[l].second, at[l] + 1)};
    });
    if (count == 0) box.assign(loops.size(), {0, 0});
    return box;
  }

  // Whether copies of virtual threads store to places of their own, which none of them reads: they may then run in any
  // order.
  bool are_apart(const std::vector<Stmt>& copies, const std::vector<Stmt>& own, const Nest& nest) {
    std::vector<Stmt> all = copies;
    all.insert(all.end(), own.begin(), own.end());
    if (points_of(all) > kMostPointsLookedAt) return false;
    for (size_t p = 0; p < nest.buffers.size(); ++p) {
      if (!is_written(*nest.kind, p)) {
        for (size_t q = 0; q < nest.buffers.size(); ++q)
          if (q != p && is_written(*nest.kind, q) && nest.buffers[p] == nest.buffers[q]) return false;
        continue;
      }
      std::map<int64_t, std::vector<int64_t>> owner;  // of each address
      bool apart = true;
      each_point(all, [&](const std::vector<int64_t>& at) {
        const std::vector<int64_t> copy(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(copies.size()));
        const auto [it, is_new] = owner.emplace(address(nest, p), copy);
        apart = apart && (is_new || it->second == copy);
      });
      const int64_t bytes = core_bytes(*nest.kind, p);
      int64_t end = -1;
      const std::vector<int64_t>* last = nullptr;
      for (const auto& [begin, copy] : owner) {
        if (begin < end && *last != copy) apart = false;
        end = begin + bytes;
        last = &copy;
      }
      if (!apart) return false;
    }
    return true;
  }

  // Addresses and strides count elements of their memory.
  void refuse_between_elements(const Nest& nest, size_t p, const UnitOperand& operand) const {
    if (nest.kind->operands[p] == kDram) return;
    const UnitMemory& of = unit_.memories[static_cast<size_t>(nest.kind->operands[p])];
    int64_t wrong = operand.base % of.element ? operand.base : 0;
    for (const int64_t stride : operand.strides) wrong = wrong ? wrong : stride % of.element ? stride : 0;
    if (!wrong) return;
    throw refuse("TSR-3506",
                 fmt::format("'{}' of {} is {} bytes from the begin of '{}', or from its place a step before, and '{}' "
                             "is addressed in elements of {}",
                             nest.kind->intrinsic->pattern()->params[p]->name, nest.kind->intrinsic->name, wrong,
                             nest.buffers[p]->name, of.name, of.element),
                 nest.buffers[p]->name, "rows of whole elements: pad the buffer's last dimensions");
  }

  static size_t stationary_loops(const Nest& nest) {
    int most = 0;
    for (const int loops : nest.kind->stationary) most = std::max(most, loops);
    return static_cast<size_t>(most);
  }

  // All but the innermost loops that move no operand which stays in the array, as many as do not move it at most.
  size_t moving_loops(const std::vector<Stmt>& own, const Nest& nest) {
    const size_t most = stationary_loops(nest);
    size_t still = 0;
    for (bool moves = false; still < std::min(most, own.size()); ++still) {
      for (size_t p = 0; p < nest.buffers.size(); ++p)
        if (nest.kind->stationary[p]) moves = moves || strides(own, nest, p)[own.size() - 1 - still] != 0;
      if (moves) break;
    }
    return own.size() - still;
  }

  void emit(const std::vector<Stmt>& own, const Nest& nest) {
    if (stream_.instructions.size() == kMostInstructionsOfAStream)
      throw refuse("TSR-3505", "the program has more than a million instructions", program_.name,
                   "larger nests: tensorize outer loops");
    const auto loops = static_cast<size_t>(nest.kind->loops);
    // Loops of one step fill up: in front, and between those that move a stationary operand and those that do not.
    const size_t missing = loops - own.size();
    const size_t moving = moving_loops(own, nest), still = own.size() - moving, wanted = stationary_loops(nest);
    const size_t between = wanted > still ? wanted - still : 0, before = missing - between;
    const auto filled = [&](const auto& values, const auto& one) {
      auto result = values;
      result.insert(result.begin() + static_cast<std::ptrdiff_t>(moving), between, one);
      result.insert(result.begin(), before, one);
      return result;
    };
    StreamInstruction instruction;
    instruction.kind = nest.number;
    for (const Stmt& loop : own) instruction.extents.push_back(value_of(loop->extent, values_));
    instruction.extents = filled(instruction.extents, int64_t{1});
    if (steps_of(instruction) > kMostSteps)
      throw refuse("TSR-3505", fmt::format("one '{}' would take more than {} steps", nest.kind->name, kMostSteps),
                   program_.name, "smaller tiles: split loops further");
    for (size_t p = 0; p < nest.buffers.size(); ++p) {
      UnitOperand operand;
      operand.base = address(nest, p);
      operand.strides = filled(strides(own, nest, p), int64_t{0});
      refuse_between_elements(nest, p, operand);
      if (const auto it = segments_.find(nest.buffers[p]); it != segments_.end()) operand.segment = it->second;
      if (nest.kind->padded[p]) {
        int64_t count = 0;
        const auto box = box_inside(own, nest, p, count);
        operand.inside = filled(box, std::pair<int64_t, int64_t>{0, count > 0 ? 1 : 0});
        // An address is of a step that is read: fields hold none below 0.
        if (count > 0)
          for (size_t l = 0; l < loops; ++l) {
            operand.base += operand.inside[l].first * operand.strides[l];
          }
        else operand.base = 0;
      }
      instruction.operands.push_back(std::move(operand));
    }
    instruction.immediates = nest.immediates;
    stream_.instructions.push_back(std::move(instruction));
  }

  const Accelerator& unit_;
  const LoopProgram& program_;
  InstructionStream stream_;
  std::unordered_map<const StmtNode*, Nest> nests_;
  std::unordered_map<const Buffer*, int> segments_, memory_of_;
  std::unordered_map<const Buffer*, int64_t> addresses_;
  std::vector<int64_t> tops_;
  std::vector<std::vector<std::string>> names_;
  Values values_;
};

}  // namespace

InstructionStream expand(const Accelerator& unit, const LoopProgram& program) { return Expander(unit, program).run(); }

}  // namespace tessera::inline accel
