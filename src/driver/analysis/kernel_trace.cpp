#include "driver/analysis/kernel_trace.h"

#include <algorithm>
#include <chrono>

namespace tessera::inline driver {

namespace {

int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

int64_t KernelTrace::now() const { return clock_ns() - zero_; }

void KernelTrace::start() {
  for (Worker& worker : workers_) worker.spans.clear();
  operations_.clear();
  call_ = -1;
  zero_ = clock_ns();
}

void KernelTrace::on_kernel(int32_t kernel, int32_t phase) {
  std::vector<KernelSpan>& spans = workers_[0].spans;
  if (phase == 0) {
    const int64_t begin = now();
    spans.push_back({kernel, ++call_, 0, begin, begin, 0, 0});
  } else {
    spans.back().end_ns = now();
    if (spans.back().pieces == 0) spans.back().busy_ns = spans.back().end_ns - spans.back().begin_ns;
  }
}

void KernelTrace::on_piece(int32_t kernel, int32_t worker, int32_t phase) {
  Worker& own = workers_[static_cast<size_t>(worker)];
  if (phase == 0) {
    own.piece_begin = now();
    if (own.spans.empty() || own.spans.back().call != call_)
      own.spans.push_back({kernel, call_, worker, own.piece_begin, own.piece_begin, 0, 0});
    return;
  }
  KernelSpan& span = own.spans.back();
  span.end_ns = now();
  span.busy_ns += span.end_ns - own.piece_begin;
  ++span.pieces;
}

void KernelTrace::on_operation(int32_t device, const char* operation, int64_t begin_ns, int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  operations_.push_back({-1, -1, device, begin_ns - zero_, end_ns - zero_, end_ns - begin_ns, 0, operation});
}

std::vector<KernelSpan> KernelTrace::spans() const {
  std::vector<KernelSpan> all;
  for (const Worker& worker : workers_) all.insert(all.end(), worker.spans.begin(), worker.spans.end());
  std::stable_sort(all.begin(), all.end(), [](const KernelSpan& a, const KernelSpan& b) {
    return a.call != b.call ? a.call < b.call : a.worker < b.worker;
  });
  all.insert(all.end(), operations_.begin(), operations_.end());
  return all;
}

}  // namespace tessera::inline driver
