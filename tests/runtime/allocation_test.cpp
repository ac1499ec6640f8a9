// A run allocates nothing: every allocator of libc, and mmap, is counted by this executable's own versions of them.
// The same hooks make chosen allocations fail, for the messages about memory.
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>

#include "module_fixture.h"

namespace {
std::atomic<int64_t> allocations{0};
std::atomic<size_t> refused_size{0};  // requests of this many bytes fail
[[maybe_unused]] bool refuse(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return size != 0 && size == refused_size.load(std::memory_order_relaxed);
}
}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) { return refuse(size) ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return refuse(0) ? nullptr : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return refuse(0) ? nullptr : __libc_realloc(old, size); }
void* memalign(size_t alignment, size_t size) { return refuse(0) ? nullptr : __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return refuse(0) ? nullptr : __libc_memalign(alignment, size); }
int posix_memalign(void** result, size_t alignment, size_t size) {
  *result = refuse(0) ? nullptr : __libc_memalign(alignment, size);
  return *result ? 0 : ENOMEM;
}
void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  if (refuse(0)) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, fd, offset));
}
}
#endif

namespace tessera {
namespace {

constexpr bool kHooked = !kThreadSanitizer && !kAddressSanitizer;

// A module with several parallel loops, long enough that workers take part, and an error for negative inputs.
ModuleSpec loops_spec() {
  ModuleSpec spec;
  spec.source = R"(
#include "abi/module_abi.h"
static void body(const void* arg, int64_t begin, int64_t end, int32_t worker) {
  float* y = (float*)arg;
  (void)worker;
  for (int64_t i = begin; i < end; ++i) for (int k = 0; k < 200; ++k) y[i % 1024] = y[i % 1024] * 0.5f + 1;
}
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  for (int i = 0; i < 20; ++i) call->host->parallel_for(call->host->self, body, call->arena, 1024, 1);
  *(float*)call->outputs[0] = *(const float*)call->inputs[0];
  return 0;
})";
  spec.inputs = {{"x", TSR_F32, {1}}};
  spec.outputs = {{"y", TSR_F32, {1}}};
  spec.arena_bytes = 8 << 20;
  return spec;
}

TEST(Allocation, TheHooksCount) {
  if (!kHooked) GTEST_SKIP() << "sanitizers bring their own allocator";
  const int64_t before = allocations;
  void* volatile memory = malloc(100);
  free(memory);
  ::operator delete(::operator new(8));
  memory = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(memory, 4096);
  EXPECT_GE(allocations - before, 3);
}

TEST(Allocation, RunsAllocateNothing) {
  if (!kHooked) GTEST_SKIP() << "sanitizers bring their own allocator";
  const ModulePtr module = load_bytes(loops_spec().build());
  for (const int threads : {1, 2, 4}) {
    const SessionPtr session = make_session(module, threads);
    const float x = 3;
    float y = 0;
    const tessera_tensor input = tensor(&x, TESSERA_F32, {1}), output = tensor(&y, TESSERA_F32, {1});
    tessera_error error = {};
    // From the very first run, and across workers that fell asleep.
    const int64_t before = allocations;
    int failures = 0;
    for (int i = 0; i < 50; ++i) {
      failures += tessera_session_run(session.get(), &input, 1, &output, 1, &error) != TESSERA_OK;
      if (i % 10 == 0) usleep(2000);
    }
    const int64_t after = allocations;
    EXPECT_EQ(after - before, 0) << threads << " threads";
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(y, 3);
  }
}

// Memory of a run with values: pieces of a block, as malloc would align them.
struct Pool {
  alignas(64) uint8_t block[1 << 16];
  size_t used = 0, taken = 0, given = 0;

  static void* allocate(void* self, size_t size) {
    Pool& pool = *static_cast<Pool*>(self);
    const size_t begin = pool.used;
    if (size > sizeof(pool.block) - begin) return nullptr;
    pool.used += (size + 63) / 64 * 64;
    ++pool.taken;
    return pool.block + begin;
  }
  static void release(void* self, void*) { ++static_cast<Pool*>(self)->given; }
};

TEST(Allocation, RunsWithValuesUseTheAllocatorOfTheCallerAlone) {
  if (!kHooked) GTEST_SKIP() << "sanitizers bring their own allocator";
  const ModulePtr module = load_bytes(flow_spec().build());
  const SessionPtr session = make_session(module, 1);
  const float numbers[4] = {1, 10, 100, 1000};
  const tessera_string text = {"ab", 2};
  tessera_value x = {}, s = {};
  x.dtype = TESSERA_F32;
  x.rank = 1;
  x.dims[0] = 4;
  x.data = numbers;
  s.dtype = TESSERA_STRING;
  s.data = &text;
  const tessera_value* inputs[] = {&x, &s};
  tessera_value* outputs[2] = {};
  static Pool pool;
  const tessera_allocator allocator = {&pool, Pool::allocate, Pool::release};
  tessera_error error = {};
  const int64_t before = allocations;
  const tessera_status status = tessera_session_run_values(session.get(), inputs, 2, outputs, 2, &allocator, &error);
  const int64_t after = allocations;
  ASSERT_EQ(outcome(status, error), "ok");
  EXPECT_EQ(after - before, 0);
  EXPECT_EQ(static_cast<const float*>(outputs[0]->data)[3], 7000);
  const tessera_string& twice = *static_cast<const tessera_string*>(outputs[1]->data);
  EXPECT_EQ(std::string(twice.data, twice.size), "abab");
  EXPECT_EQ(pool.taken, pool.given + 2) << "all but the outputs is given back";
  for (tessera_value* output : outputs) tessera_value_free(output, &allocator);
  EXPECT_EQ(pool.taken, pool.given);
}

TEST(Allocation, RefusedMemoryIsReported) {
  if (!kHooked) GTEST_SKIP() << "sanitizers bring their own allocator";
  const Bytes bytes = loops_spec().build();
  tessera_module* module = nullptr;
  tessera_error error = {};
  refused_size = sizeof(tessera_module);
  const tessera_status status = tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error);
  refused_size = 0;
  EXPECT_EQ(outcome(status, error), "TSR-7016: not enough memory to load a module: " +
                                        std::to_string(sizeof(tessera_module)) + " bytes were refused");
}

}  // namespace
}  // namespace tessera
