#include "program/verify.h"

#include <fmt/format.h>

#include <set>

#include "loop/verify.h"
#include "program/memory_plan.h"
#include "support/error.h"

namespace tessera {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program) {}

  std::vector<std::string> run() {
    for (size_t i = 0; i < program_.buffers.size(); ++i) buffer(static_cast<BufferId>(i));
    signature(program_.inputs, BufferKind::kInput);
    signature(program_.outputs, BufferKind::kOutput);
    for (const Kernel& kernel : program_.kernels)
      for (std::string& violation : verify(kernel.program)) violations_.push_back(std::move(violation));
    if (!violations_.empty()) return std::move(violations_);  // the rest relies on sound ids
    for (const KernelCall& c : program_.calls) call(c);
    for (const BufferId output : program_.outputs)
      if (written_.count(root_buffer(program_, output)) == 0) report(at(output).name, "the output is never written");
    if (violations_.empty()) placement();
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
    const auto dims = static_dims(physical_shape(b.type.shape, b.type.layout));
    if (!dims) return report(where, "the shape is not constant");
    int64_t count = 1;
    for (const int64_t dim : *dims) count *= dim;
    if (b.bytes != dtype_bytes(b.type.dtype, count))
      report(where, fmt::format("{} bytes for the type {}", b.bytes, b.type.to_string()));
    const BufferId root = root_buffer(program_, id);
    if (root < 0) return report(where, "the alias leads to no buffer");
    if (at(root).bytes != b.bytes)
      report(where, fmt::format("{} bytes, its root {} has {}", b.bytes, at(root).name, at(root).bytes));
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

  void signature(const std::vector<BufferId>& ids, BufferKind kind) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string where = fmt::format("{} {}", buffer_kind_name(kind), i);
      if (!valid(ids[i])) report(where, fmt::format("no buffer {}", ids[i]));
      else if (at(ids[i]).kind != kind || at(ids[i]).index != static_cast<int32_t>(i))
        report(where,
               fmt::format("buffer {} is {} {}", at(ids[i]).name, buffer_kind_name(at(ids[i]).kind), at(ids[i]).index));
    }
  }

  void call(const KernelCall& c) {
    if (c.kernel < 0 || static_cast<size_t>(c.kernel) >= program_.kernels.size())
      return report("a call", fmt::format("no kernel {}", c.kernel));
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(c.kernel)].program;
    const std::string where = "call of " + kernel.name;
    if (c.args.size() != kernel.params.size())
      return report(where, fmt::format("{} parameters instead of {}", c.args.size(), kernel.params.size()));
    const size_t num_inputs = kernel.params.size() - static_cast<size_t>(kernel.num_outputs);
    for (size_t i = 0; i < c.args.size(); ++i) {
      if (!valid(c.args[i])) return report(where, fmt::format("no buffer {}", c.args[i]));
      const ProgramBuffer& b = at(c.args[i]);
      const Buffer& param = *kernel.params[i];
      const Shape physical = physical_shape(b.type.shape, b.type.layout);
      if (param.dtype != b.type.dtype || !(same_shape(param.shape, physical) || flattened(param.shape, physical)))
        report(where, fmt::format("parameter {} is {}{}, given {} of {}{}", param.name, dtype_name(param.dtype),
                                  to_string(param.shape), b.name, dtype_name(b.type.dtype), to_string(physical)));
      const BufferId root = root_buffer(program_, c.args[i]);
      const bool written = written_.count(root) != 0 || b.kind == BufferKind::kInput || b.kind == BufferKind::kWeight;
      if (i < num_inputs) {
        if (!written) report(where, fmt::format("{} is read before it is written", b.name));
        continue;
      }
      if (b.kind == BufferKind::kInput || b.kind == BufferKind::kWeight)
        report(where, fmt::format("the {} {} is written", buffer_kind_name(b.kind), b.name));
      for (size_t j = 0; j < c.args.size(); ++j)
        if (j != i && valid(c.args[j]) && root_buffer(program_, c.args[j]) == root)
          report(where, fmt::format("the output {} shares bytes with parameter {}", b.name, kernel.params[j]->name));
    }
    for (size_t i = num_inputs; i < c.args.size(); ++i) written_.insert(root_buffer(program_, c.args[i]));
  }

  // Kernels may see a buffer as one dimension.
  static bool flattened(const Shape& param, const Shape& physical) {
    if (param.size() != 1) return false;
    const auto dims = static_dims(physical);
    const auto length = as_int(param[0]);
    if (!dims || !length) return false;
    int64_t count = 1;
    for (const int64_t dim : *dims) count *= dim;
    return count == *length;
  }

  void placement() {
    const std::vector<Lifetime> lifetimes = arena_lifetimes(program_);
    bool planned = program_.arena_bytes > 0;
    for (const Lifetime& l : lifetimes) planned = planned || at(l.buffer).offset >= 0;
    if (!planned) return;
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const ProgramBuffer& b = program_.buffers[i];
      const bool weight = b.kind == BufferKind::kWeight;
      if (b.offset < 0 || (!weight && b.kind != BufferKind::kArena)) continue;
      const int64_t limit = weight ? program_.weight_bytes : program_.arena_bytes;
      if (b.offset % kBufferAlign != 0 || b.bytes > limit - b.offset)
        report("buffer " + b.name, fmt::format("{} bytes at {} of {}", b.bytes, b.offset, limit));
      if (b.offset != at(root_buffer(program_, static_cast<BufferId>(i))).offset)
        report("buffer " + b.name, "not at the place of its root");
    }
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      const Lifetime& a = lifetimes[i];
      if (at(a.buffer).offset < 0) {
        report("buffer " + at(a.buffer).name, "used but without a place");
        continue;
      }
      for (size_t j = 0; j < i; ++j) {
        const Lifetime& b = lifetimes[j];
        const bool together = a.first <= b.last && b.first <= a.last;
        const int64_t a_at = at(a.buffer).offset;
        const int64_t b_at = at(b.buffer).offset;
        if (together && a_at < b_at + at(b.buffer).bytes && b_at < a_at + at(a.buffer).bytes)
          report("buffer " + at(a.buffer).name, fmt::format("overlaps {} while both are alive", at(b.buffer).name));
      }
    }
  }

  const Program& program_;
  std::vector<std::string> violations_;
  std::set<BufferId> written_;  // roots
};

}  // namespace

std::vector<std::string> verify(const Program& program) { return Verifier(program).run(); }

void verify_or_throw(const Program& program, std::string_view after_step) {
  const std::vector<std::string> violations = verify(program);
  if (violations.empty()) return;
  throw InternalError(fmt::format("after {}:\n  {}", after_step, fmt::join(violations, "\n  ")));
}

}  // namespace tessera
