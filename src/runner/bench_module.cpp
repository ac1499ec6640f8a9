#include "runner/bench_module.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace tessera {

namespace {

constexpr size_t kLine = 64;  // bytes; no cache's lines are shorter

// In huge pages where there are some, as a session's memory is.
void* aligned_memory(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t unit = bytes >= kHugePage / 4 ? kHugePage : kLine;
  void* memory = std::aligned_alloc(unit, (bytes / unit + 1) * unit);
  if (!memory) throw std::bad_alloc();
  if (unit == kHugePage) madvise(memory, (bytes / unit + 1) * unit, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  return memory;
}

// Calls `touch` with the begin of each line twice, some megabytes at a time: a last cache that only ever sees lines
// once learns to keep none of them.
template <typename Touch>
void for_each_line(size_t bytes, const Touch& touch) {
  constexpr size_t kChunk = size_t{2} << 20;
  for (size_t begin = 0; begin < bytes; begin += kChunk)
    for (int time = 0; time < 2; ++time)
      for (size_t i = begin; i < std::min(bytes, begin + kChunk); i += kLine) touch(i);
}

void read_lines(const void* memory, size_t bytes) {
  const auto* at = static_cast<const volatile unsigned char*>(memory);
  for_each_line(bytes, [&](size_t i) { static_cast<void>(at[i]); });
}

// As the kernels that wrote an operand leave it: lines that differ from memory stay in caches where others do not.
void write_lines(void* memory, size_t bytes) {
  auto* at = static_cast<volatile unsigned char*>(memory);
  for_each_line(bytes, [&](size_t i) { at[i] = at[i]; });
}

void need(tessera_status status, const tessera_error& error) {
  if (status != TESSERA_OK) throw BenchFailure(error.message);
}

size_t bytes_of(const tessera_tensor_info& info) {
  size_t count = 1;
  for (int32_t i = 0; i < info.rank; ++i) count *= static_cast<size_t>(info.dims[i]);
  return (count * static_cast<size_t>(tessera_dtype_bits(info.dtype)) + 7) / 8;
}

// Times of a run's kernel calls.
struct CallTimes {
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin;
  std::vector<double> us;

  static void on_kernel(void* user, int32_t, int32_t phase) {
    auto& times = *static_cast<CallTimes*>(user);
    const Clock::time_point now = Clock::now();
    if (phase == 0) times.begin = now;
    else times.us.push_back(std::chrono::duration<double, std::micro>(now - times.begin).count());
  }
  double median() {
    if (us.empty()) return 0;
    std::sort(us.begin(), us.end());
    return (us[(us.size() - 1) / 2] + us[us.size() / 2]) / 2;
  }
};

}  // namespace

void CacheWalk::Free::operator()(void* memory) const { std::free(memory); }
void BenchModule::FreeMemory::operator()(void* memory) const { std::free(memory); }

CacheWalk::CacheWalk(int64_t bytes, int threads)
    : bytes_(static_cast<size_t>(std::max<int64_t>(bytes, 0)) / kLine * kLine),
      threads_(std::max(1, threads)),
      memory_(static_cast<unsigned char*>(aligned_memory(bytes_))) {}

void CacheWalk::walk(int64_t bytes) {
  const size_t count = std::min(bytes_, static_cast<size_t>(std::max<int64_t>(bytes, 0)) / kLine * kLine);
  const auto read = [this](size_t from, size_t length) {
    const size_t first = std::min(length, bytes_ - from);
    read_lines(memory_.get() + from, first);
    read_lines(memory_.get(), length - first);
  };
  // Less than this is not worth a thread's start.
  constexpr size_t kLeastShare = size_t{1} << 20;
  const size_t shares = std::clamp<size_t>(count / kLeastShare, 1, static_cast<size_t>(threads_));
  const size_t share = count / shares / kLine * kLine;
  std::vector<std::thread> others;
  for (size_t i = 1; i < shares; ++i) others.emplace_back(read, (at_ + i * share) % bytes_, share);
  if (bytes_ > 0) read(at_, share);
  for (std::thread& thread : others) thread.join();
  if (bytes_ > 0) at_ = (at_ + count) % bytes_;
}

BenchModule::BenchModule(std::span<const std::byte> file, int threads, std::span<const std::byte> inputs) {
  tessera_error error = {};
  tessera_module* module = nullptr;
  need(tessera_module_load_memory(file.data(), file.size(), nullptr, &module, &error), error);
  module_.reset(module);
  const tessera_session_options options = {sizeof(tessera_session_options), threads};
  tessera_session* session = nullptr;
  need(tessera_session_create(module, &options, &session, &error), error);
  session_.reset(session);
  tessera_tensor_info info;
  size_t taken = 0;
  for (int32_t i = 0; tessera_module_input(module, i, &info) == TESSERA_OK; ++i) {
    const size_t bytes = bytes_of(info);
    if (bytes > inputs.size() - taken) throw BenchFailure("there are fewer bytes of inputs than the module takes");
    std::memcpy(add(inputs_, info), inputs.data() + taken, bytes);
    taken += bytes;
  }
  if (taken != inputs.size()) throw BenchFailure("there are more bytes of inputs than the module takes");
  for (int32_t i = 0; tessera_module_output(module, i, &info) == TESSERA_OK; ++i) add(outputs_, info);
  if (outputs_.empty()) throw BenchFailure("a module without outputs");
  run();
}

void* BenchModule::add(std::vector<tessera_tensor>& to, const tessera_tensor_info& info) {
  Memory& memory = memory_.emplace_back();
  memory.bytes = bytes_of(info);
  memory.data.reset(aligned_memory(memory.bytes));
  tessera_tensor tensor = {};
  tensor.dtype = info.dtype;
  tensor.rank = info.rank;
  std::copy_n(info.dims, info.rank, tensor.dims);
  tensor.data = memory.data.get();
  to.push_back(tensor);
  return tensor.data;
}

void BenchModule::run() {
  tessera_error error = {};
  need(tessera_session_run(session_.get(), inputs_.data(), static_cast<int32_t>(inputs_.size()), outputs_.data(),
                           static_cast<int32_t>(outputs_.size()), &error),
       error);
}

// Operands are touched one after the other, the farthest first, with as many other bytes behind each as the model
// touches there.
void BenchModule::leave_caches(CacheWalk& walk, const ReuseDistances& distances) const {
  std::vector<std::pair<int64_t, const Memory*>> operands;
  for (size_t i = 0; i < inputs_.size(); ++i)
    operands.emplace_back(i < distances.inputs.size() ? distances.inputs[i] : 0, &memory_[i]);
  operands.emplace_back(distances.output, &memory_[inputs_.size()]);
  std::stable_sort(operands.begin(), operands.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  int64_t at = std::max(distances.weights, operands[0].first);
  for (const auto& [distance, memory] : operands) {
    walk.walk(at - distance);
    write_lines(memory->data.get(), memory->bytes);
    at = distance;
  }
  walk.walk(at);
}

double BenchModule::timed_run(CacheWalk* walk, const ReuseDistances& distances) {
  if (walk) leave_caches(*walk, distances);
  CallTimes times;
  times.us.reserve(static_cast<size_t>(tessera_module_num_kernels(module_.get())));
  tessera_session_set_trace(session_.get(), CallTimes::on_kernel, &times);
  run();
  tessera_session_set_trace(session_.get(), nullptr, nullptr);
  return times.median();
}

std::span<const std::byte> BenchModule::result() const {
  const Memory& memory = memory_[inputs_.size()];
  return {static_cast<const std::byte*>(memory.data.get()), memory.bytes};
}

}  // namespace tessera
