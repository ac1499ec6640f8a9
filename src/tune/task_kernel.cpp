#include "tune/task_kernel.h"

#include <algorithm>

#include "schedule/dynamic/dynamic_tiles.h"
#include "te/canonical.h"

namespace tessera::inline tune {

std::span<const TensorParam> TaskKernel::params() const {
  return joined_ ? std::span(joined_->values).first(joined_->num_args - 1) : std::span(single_->params);
}

TensorParam TaskKernel::result() const {
  if (joined_) return joined_->result();
  return {single_->output().out, single_->output().layout};
}

std::string TaskKernel::text() const { return joined_ ? canonical_text(*joined_) : canonical_text(*single_); }

std::string TaskKernel::hash() const { return structural_hash(text()); }

bool TaskKernel::is_open() const {
  if (single_) return is_symbolic(*single_);
  return std::any_of(joined_->members.begin(), joined_->members.end(),
                     [](const JoinedMember& member) { return is_symbolic(member.program); });
}

int64_t TaskKernel::constant_bytes() const {
  if (single_) return count_constant_bytes(*single_);
  int64_t bytes = 0;
  for (const JoinedMember& member : joined_->members) {
    const int64_t own = count_constant_bytes(member.program);
    if (own < 0) return -1;
    bytes += own;
  }
  return bytes;
}

}  // namespace tessera::inline tune
