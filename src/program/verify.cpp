#include "program/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "loop/verify.h"
#include "program/in_place.h"
#include "program/memory_plan.h"
#include "program/symbolic_sizes.h"
#include "support/error.h"

namespace tessera::inline program {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program), largest_(largest_sizes(program.symbols)) {}

  std::vector<std::string> run() {
    for (size_t i = 0; i < program_.buffers.size(); ++i) buffer(static_cast<BufferId>(i));
    signature(program_.inputs, BufferKind::kInput);
    signature(program_.outputs, BufferKind::kOutput);
    checks();
    for (const Kernel& kernel : program_.kernels)
      for (std::string& violation : verify(kernel.program)) violations_.push_back(std::move(violation));
    if (!violations_.empty()) return std::move(violations_);  // the rest relies on sound ids
    for (const KernelCall& c : program_.calls) signature(c);
    if (violations_.empty()) placement();
    if (!violations_.empty()) return std::move(violations_);
    for (const KernelCall& c : program_.calls) call(c);
    for (const BufferId output : program_.outputs)
      if (at(output).bytes > 0 && !contents(output).empty()) report(at(output).name, "the output is never written");
    return std::move(violations_);
  }

 private:
  void report(const std::string& where, const std::string& rule) {
    violations_.push_back(fmt::format("program {}: {}: {}", program_.name, where, rule));
  }

  bool valid(BufferId id) const { return id >= 0 && static_cast<size_t>(id) < program_.buffers.size(); }
  const ProgramBuffer& at(BufferId id) const { return program_.buffers[static_cast<size_t>(id)]; }

  void buffer(BufferId id) {
    const ProgramBuffer& b = at(id);
    const std::string where = "buffer " + b.name;
    for (const Expr& dim : b.type.shape)
      if (!is_size(dim)) return report(where, "the shape is no expression of the symbols");
    if (b.bytes != bytes_at(b.type, program_.symbols, largest_))
      report(where, fmt::format("{} bytes for the type {}", b.bytes, b.type.to_string()));
    const auto [root, begin] = place_in_root(program_, id);
    if (root < 0) return report(where, "the alias leads to no buffer");
    if (b.view_offset < 0 || b.bytes > at(root).bytes - begin)
      report(where,
             fmt::format("{} bytes from {} on, its root {} has {}", b.bytes, begin, at(root).name, at(root).bytes));
    if (b.bytes > 0 && begin * 8 % std::max(8, dtype_bits(b.type.dtype)) != 0)
      report(where, fmt::format("begins at byte {} of {}, inside an element", begin, at(root).name));
    if (b.over >= 0) takes_over(id);
    if (at(root).kind != b.kind)
      report(where, fmt::format("{} but its root {} is {}", buffer_kind_name(b.kind), at(root).name,
                                buffer_kind_name(at(root).kind)));
    if (root != id) return;
    if (b.kind == BufferKind::kWeight) {
      if (!b.data) report(where, "a weight without contents");
      else if (b.data->num_bytes() != b.bytes)
        report(where, fmt::format("{} bytes of contents for {}", b.data->num_bytes(), b.bytes));
    }
    const auto signature_size = b.kind == BufferKind::kInput ? program_.inputs.size() : program_.outputs.size();
    const bool in_signature = b.kind == BufferKind::kInput || b.kind == BufferKind::kOutput;
    if (in_signature && (b.index < 0 || static_cast<size_t>(b.index) >= signature_size))
      report(where, fmt::format("number {} in a signature of {}", b.index, signature_size));
  }

  bool is_size(const Expr& dim) const {
    bool ok = true;
    walk(dim, [&](const Expr& e) {
      const auto same = [&](const SymbolRange& symbol) { return symbol.var.same_node(e); };
      ok &= e->kind != ExprKind::kLoad &&
            (e->kind != ExprKind::kVar || std::any_of(program_.symbols.begin(), program_.symbols.end(), same));
    });
    return ok;
  }

  void takes_over(BufferId id) {
    const ProgramBuffer& b = at(id);
    const std::string where = "buffer " + b.name;
    if (!valid(b.over) || storage_buffer(program_, id) < 0) return report(where, "it takes over no buffer");
    const ProgramBuffer& old = at(b.over);
    if (b.kind != BufferKind::kArena || old.kind != BufferKind::kArena || b.alias_of >= 0 || old.alias_of >= 0)
      report(where, fmt::format("it takes over {}, but only whole arena buffers do that", old.name));
    else if (b.bytes != old.bytes) report(where, fmt::format("{} bytes over {} of {}", b.bytes, old.name, old.bytes));
    if (!taken_over_.insert(b.over).second) report(where, fmt::format("{} is taken over twice", old.name));
  }

  void signature(const std::vector<BufferId>& ids, BufferKind kind) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string where = fmt::format("{} {}", buffer_kind_name(kind), i);
      if (!valid(ids[i])) report(where, fmt::format("no buffer {}", ids[i]));
      else if (at(ids[i]).kind != kind || at(ids[i]).index != static_cast<int32_t>(i))
        report(where,
               fmt::format("buffer {} is {} {}", at(ids[i]).name, buffer_kind_name(at(ids[i]).kind), at(ids[i]).index));
    }
  }

  void checks() {
    if (program_.checks.size() > program_.outputs.size()) return report("checks", "there are more than outputs");
    for (size_t i = program_.outputs.size() - program_.checks.size(); i < program_.outputs.size(); ++i) {
      if (!valid(program_.outputs[i])) continue;
      const ProgramBuffer& b = at(program_.outputs[i]);
      const auto dims = static_dims(b.type.shape);
      if (b.type.dtype != DType::kI64 || !dims || dims->size() != 1 || dims->at(0) < 1)
        report("check " + b.name, fmt::format("{} instead of a list of i64", b.type.to_string()));
    }
  }

  void signature(const KernelCall& c) {
    if (c.kernel < 0 || static_cast<size_t>(c.kernel) >= program_.kernels.size())
      return report("a call", fmt::format("no kernel {}", c.kernel));
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(c.kernel)].program;
    const std::string where = "call of " + kernel.name;
    if (c.args.size() != kernel.params.size())
      return report(where, fmt::format("{} parameters instead of {}", c.args.size(), kernel.params.size()));
    for (size_t i = 0; i < c.args.size(); ++i) {
      if (!valid(c.args[i])) return report(where, fmt::format("no buffer {}", c.args[i]));
      const ProgramBuffer& b = at(c.args[i]);
      const Buffer& param = *kernel.params[i];
      const Shape physical = physical_shape(b.type.shape, b.type.layout);
      if (param.dtype != b.type.dtype || !(same_shape(param.shape, physical) || flattened(param.shape, physical) ||
                                           (!c.only_if.empty() && agree_at_some_size(param.shape, physical))))
        report(where, fmt::format("parameter {} is {}{}, given {} of {}{}", param.name, dtype_name(param.dtype),
                                  to_string(param.shape), b.name, dtype_name(b.type.dtype), to_string(physical)));
    }
    for (const CallCondition& condition : c.only_if) {
      if (!valid(condition.buffer)) return report(where, fmt::format("no buffer {}", condition.buffer));
      const ProgramBuffer& b = at(condition.buffer);
      if (b.type.dtype != DType::kBool || b.bytes != 1)
        report(where, fmt::format("the condition {} is {} instead of one bool", b.name, b.type.to_string()));
    }
  }

  void call(const KernelCall& c) {
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(c.kernel)].program;
    const std::string where = "call of " + kernel.name;
    const size_t num_inputs = kernel.params.size() - static_cast<size_t>(kernel.num_outputs);
    for (const CallCondition& condition : c.only_if) read(where, condition.buffer);
    for (size_t i = 0; i < c.args.size(); ++i) {
      const ProgramBuffer& b = at(c.args[i]);
      if (i < num_inputs) {
        read(where, c.args[i]);
        continue;
      }
      if (b.kind == BufferKind::kInput || b.kind == BufferKind::kWeight)
        report(where, fmt::format("the {} {} is written", buffer_kind_name(b.kind), b.name));
      for (size_t j = 0; j < c.args.size(); ++j)
        if (j != i) apart(where, c, i, j);
    }
    for (size_t i = num_inputs; i < c.args.size(); ++i) write(c.args[i]);
  }

  // ---- bytes ----

  // A piece of memory: the arena once it is planned (space -1), else the storage of a buffer.
  struct Range {
    BufferId space = -1;
    int64_t begin = 0, end = 0;
    BufferId owner = -1;  // the root whose contents these are
  };

  Range range_of(BufferId id) const {
    const auto [root, begin] = place_in_root(program_, id);
    const ProgramBuffer& r = at(root);
    const bool in_arena = r.kind == BufferKind::kArena && r.offset >= 0;
    const int64_t first = begin + (in_arena ? r.offset : 0);
    return {in_arena ? -1 : storage_buffer(program_, id), first, first + at(id).bytes, root};
  }

  void write(BufferId id) {
    const Range range = range_of(id);
    if (range.begin == range.end) return;
    auto& space = memory_[range.space];
    split(space, range.begin);
    split(space, range.end);
    space.erase(space.lower_bound(range.begin), space.lower_bound(range.end));
    space[range.begin] = {range.end, range.owner};
  }

  // Makes `at` a border between pieces.
  using Pieces = std::map<int64_t, std::pair<int64_t, BufferId>>;  // begin -> end, owner
  static void split(Pieces& space, int64_t at) {
    auto it = space.lower_bound(at);
    if (it == space.begin()) return;
    --it;
    if (it->second.first <= at) return;
    space[at] = it->second;
    it->second.first = at;
  }

  // Empty when the bytes of `id` hold what was written to its root; else what is wrong.
  std::string contents(BufferId id) const {
    const Range range = range_of(id);
    const auto space = memory_.find(range.space);
    int64_t place = range.begin;
    if (space != memory_.end()) {
      auto it = space->second.upper_bound(place);
      if (it != space->second.begin()) --it;
      for (; place < range.end && it != space->second.end() && it->first <= place; ++it) {
        if (it->second.first <= place) continue;
        if (it->second.second != range.owner)
          return fmt::format("{} is read after {} was written over it", at(id).name, at(it->second.second).name);
        place = it->second.first;
      }
    }
    return place < range.end ? fmt::format("{} is read before it is written", at(id).name) : "";
  }

  void read(const std::string& where, BufferId id) {
    const BufferKind kind = at(id).kind;
    if (kind == BufferKind::kInput || kind == BufferKind::kWeight || at(id).bytes == 0) return;
    if (std::string problem = contents(id); !problem.empty()) report(where, problem);
  }

  // Output `i` of a call and another parameter: different bytes, or one over the other.
  void apart(const std::string& where, const KernelCall& c, size_t i, size_t j) {
    const Range out = range_of(c.args[i]);
    const Range other = range_of(c.args[j]);
    if (out.space != other.space || out.begin >= other.end || other.begin >= out.end) return;
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(c.kernel)].program;
    const size_t num_inputs = kernel.params.size() - static_cast<size_t>(kernel.num_outputs);
    const std::string what =
        fmt::format("the output {} shares bytes with parameter {}", at(c.args[i]).name, kernel.params[j]->name);
    if (j >= num_inputs || at(out.owner).over != other.owner || out.begin != other.begin || out.end != other.end)
      return report(where, what);
    const auto [proof, is_new] = in_place_.try_emplace({c.kernel, i, j}, "");
    if (is_new) {
      int64_t elements = 1;
      for (const Expr& dim : at(c.args[i]).type.shape) elements *= value_at(dim, program_.symbols, largest_);
      proof->second = why_not_in_place(kernel, j, i, elements);
    }
    if (!proof->second.empty()) report(where, fmt::format("{}: {}", what, proof->second));
  }

  // Of calls that are made for some sizes alone: what they are given has a legal size for the others, too.
  bool agree_at_some_size(const Shape& param, const Shape& physical) const {
    constexpr int64_t kParts = 8;
    const auto count = [&](const Shape& shape, const SizePoint& point) {
      int64_t elements = 1;
      for (const Expr& dim : shape) elements *= value_at(dim, program_.symbols, point);
      return elements;
    };
    for (int64_t part = 0; part <= kParts; ++part) {
      SizePoint point;
      for (const SymbolRange& s : program_.symbols)
        point.push_back(s.lo + (s.hi - s.lo) / s.step * part / kParts * s.step);
      if (count(param, point) == count(physical, point)) return true;
    }
    return false;
  }

  // Kernels may see a buffer as one dimension.
  bool flattened(const Shape& param, const Shape& physical) const {
    if (param.size() != 1) return false;
    int64_t count = 1;
    for (const Expr& dim : physical) count *= value_at(dim, program_.symbols, largest_);
    return count == value_at(param[0], program_.symbols, largest_);
  }

  void placement() {
    bool planned = program_.arena_bytes > 0;
    std::set<BufferId> used;
    for (const KernelCall& c : program_.calls)
      for (const BufferId arg : c.args)
        if (at(arg).kind == BufferKind::kArena) used.insert(root_buffer(program_, arg));
    for (const BufferId id : used) planned = planned || at(id).offset >= 0;
    if (!planned) return;
    std::set<BufferId> apart;
    for (const ProgramPiece& piece : program_.pieces)
      for (size_t c = 0; piece.num_symbols > 0 && c < piece.num_calls; ++c)
        for (const BufferId arg : program_.calls[piece.first_call + c].args) apart.insert(root_buffer(program_, arg));
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const ProgramBuffer& b = program_.buffers[i];
      const bool weight = b.kind == BufferKind::kWeight;
      if (b.offset < 0 || (!weight && b.kind != BufferKind::kArena)) continue;
      const auto [root, begin] = place_in_root(program_, static_cast<BufferId>(i));
      // The arena of a piece with symbols is no part of the program's.
      const int64_t limit = weight                   ? program_.weight_bytes
                            : apart.count(root) != 0 ? std::numeric_limits<int64_t>::max()
                                                     : program_.arena_bytes;
      if ((b.offset - begin) % kBufferAlign != 0 || b.bytes > limit - b.offset)
        report("buffer " + b.name, fmt::format("{} bytes at {} of {}", b.bytes, b.offset, limit));
      if (b.offset != at(root).offset + begin) report("buffer " + b.name, "not at the place of its root");
      if (b.over >= 0 && b.offset != at(b.over).offset)
        report("buffer " + b.name, "not at the place of the buffer that it takes over");
    }
    for (const BufferId id : used)
      if (at(id).offset < 0) report("buffer " + at(id).name, "used but without a place");
  }

  const Program& program_;
  const SizePoint largest_;
  std::vector<std::string> violations_;
  std::map<BufferId, Pieces> memory_;  // by space
  std::set<BufferId> taken_over_;
  std::map<std::tuple<int32_t, size_t, size_t>, std::string> in_place_;  // kernel, output, input: what the proof said
};

}  // namespace

std::vector<std::string> verify(const Program& program) { return Verifier(program).run(); }

void verify_or_throw(const Program& program, std::string_view after_step) {
  const std::vector<std::string> violations = verify(program);
  if (violations.empty()) return;
  throw InternalError(fmt::format("after {}:\n  {}", after_step, fmt::join(violations, "\n  ")));
}

}  // namespace tessera::inline program
