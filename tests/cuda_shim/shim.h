// CUDA C++ of the printer (codegen/gpu) on a CPU, for tests: the threads of a block are fibers of one thread of the
// system, which change places at __syncthreads(). Blocks run one after the other. For x86-64.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

using std::isinf;
using std::isnan;

#define __global__
#define __device__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct __attribute__((may_alias)) uint2 {
  unsigned x, y;
};
struct __attribute__((may_alias, aligned(16))) uint4 {
  unsigned x, y, z, w;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace cuda_shim {

constexpr size_t kStackBytes = 64 << 10;

// A thread's copies of 16 bytes that have not arrived: groups, the oldest first, and the one that has no end yet.
struct Copies {
  struct Copy {
    void* to;
    const void* from;
  };
  std::deque<std::vector<Copy>> groups;
  std::vector<Copy> open;
};

struct Fiber {
  void* stack_pointer = nullptr;
  Copies copies;
  char* stack = nullptr;
  bool done = false;
  dim3 thread;
};

inline Fiber* current;
inline void* scheduler;
inline dim3 block;
inline const std::function<void()>* body;

extern "C" void cuda_shim_switch(void** from, void* to);
asm(".text\n.globl cuda_shim_switch\n.type cuda_shim_switch, @function\ncuda_shim_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".section .note.GNU-stack,\"\",@progbits\n.text\n");

inline void wait() { cuda_shim_switch(&current->stack_pointer, scheduler); }

inline void run_fiber() {
  (*body)();
  current->done = true;
  for (;;) wait();
}

inline void begin(Fiber& fiber) {
  fiber.done = false;
  fiber.copies = {};
  // As the switch leaves it: six registers, and where to go; the stack is aligned as behind a call.
  auto** top = reinterpret_cast<void**>(fiber.stack + kStackBytes - 64);
  *top = reinterpret_cast<void*>(run_fiber);
  fiber.stack_pointer = top - 6;
  memset(fiber.stack_pointer, 0, 6 * sizeof(void*));
}

// False when some threads of a block have ended while others wait at a barrier.
inline bool launch(dim3 grid, dim3 threads, const std::function<void()>& kernel) {
  const unsigned count = threads.x * threads.y * threads.z;
  std::vector<Fiber> fibers(count);
  for (Fiber& fiber : fibers) fiber.stack = static_cast<char*>(aligned_alloc(64, kStackBytes));
  body = &kernel;
  bool converged = true;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block = {x, y, z};
        for (unsigned i = 0; i < count; ++i) {
          fibers[i].thread = {i % threads.x, i / threads.x % threads.y, i / (threads.x * threads.y)};
          begin(fibers[i]);
        }
        for (unsigned done = 0; done < count && converged;) {
          done = 0;
          for (Fiber& fiber : fibers) {
            current = &fiber;
            cuda_shim_switch(&scheduler, fiber.stack_pointer);
            done += fiber.done;
          }
          converged = done == 0 || done == count;
        }
      }
  for (Fiber& fiber : fibers) free(fiber.stack);
  return converged;
}

// With parameters as cuLaunchKernel takes them: the address of each.
template <typename... Arguments, size_t... I>
bool call(void (*kernel)(Arguments...), dim3 grid, dim3 threads, void** parameters, std::index_sequence<I...>) {
  return launch(grid, threads, [&] { kernel(*static_cast<Arguments*>(parameters[I])...); });
}

// Pointers and 64-bit integers.
template <typename... Arguments>
constexpr unsigned num_parameters(void (*)(Arguments...)) {
  static_assert(((sizeof(Arguments) == 8) && ...));
  return sizeof...(Arguments);
}

template <typename... Arguments>
bool call(void (*kernel)(Arguments...), dim3 grid, dim3 threads, void** parameters) {
  return call(kernel, grid, threads, parameters, std::index_sequence_for<Arguments...>());
}

}  // namespace cuda_shim

#define threadIdx (cuda_shim::current->thread)
#define blockIdx (cuda_shim::block)
#define __syncthreads() cuda_shim::wait()

// As late as they may come: when the thread waits for them.
inline void tsr_copy(void* to, const void* from) { cuda_shim::current->copies.open.push_back({to, from}); }
inline void tsr_end_of_copies() {
  cuda_shim::Copies& copies = cuda_shim::current->copies;
  copies.groups.push_back(std::exchange(copies.open, {}));
}
template <int N>
inline void tsr_wait_for_copies() {
  for (auto& groups = cuda_shim::current->copies.groups; groups.size() > N; groups.pop_front())
    for (const auto& copy : groups.front()) memcpy(copy.to, copy.from, 16);
}
alignas(16) inline unsigned char tsr_shared[256 << 10];

template <typename To, typename From>
inline To cuda_shim_bits(From from) {
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}
inline unsigned short tsr_bf16_of_f32(float a) {
  const unsigned bits = cuda_shim_bits<unsigned>(a);
  return static_cast<unsigned short>(a != a ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline unsigned short tsr_f16_of_f32(float a) { return cuda_shim_bits<unsigned short>(static_cast<_Float16>(a)); }
inline float tsr_short_exp(float a) { return a < -87 ? 0 : std::exp(a); }
inline unsigned tsr_bf16_pair(float a, float b) {
  return tsr_bf16_of_f32(a) | static_cast<unsigned>(tsr_bf16_of_f32(b)) << 16;
}
inline unsigned tsr_f16_pair(float a, float b) {
  return tsr_f16_of_f32(a) | static_cast<unsigned>(tsr_f16_of_f32(b)) << 16;
}
inline float tsr_f32_of_f16(unsigned short bits) { return static_cast<float>(cuda_shim_bits<_Float16>(bits)); }
// The same sums as the instruction's, each thread's own: the operands lie in memory that all threads see.
#define TESSERA_CUDA_SHIM
template <int I, int J, int IN_ROW, bool A_BY_STEPS, bool B_BY_STEPS, typename Number>
void cuda_shim_mma(float* c, const unsigned short* a, int a_pitch, const unsigned short* b, int b_pitch,
                   const Number& number) {
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j)
      for (int r = 0; r < 4; ++r) {
        const int row = i * 16 + r / 2 * 8 + lane / 4, column = j * 8 + lane % 4 * 2 + r % 2;
        for (int k = 0; k < 16; ++k)
          c[(i * IN_ROW + j) * 4 + r] += number(A_BY_STEPS ? a[row * a_pitch + k] : a[k * a_pitch + row]) *
                                         number(B_BY_STEPS ? b[column * b_pitch + k] : b[k * b_pitch + column]);
      }
}
template <int I, int J, int IN_ROW, bool A_BY_STEPS, bool B_BY_STEPS>
void tsr_mma_bf16(float* c, const unsigned short* a, int a_pitch, const unsigned short* b, int b_pitch) {
  cuda_shim_mma<I, J, IN_ROW, A_BY_STEPS, B_BY_STEPS>(c, a, a_pitch, b, b_pitch, [](unsigned short bits) {
    return cuda_shim_bits<float>(static_cast<unsigned>(bits) << 16);
  });
}
template <int I, int J, int IN_ROW, bool A_BY_STEPS, bool B_BY_STEPS>
void tsr_mma_f16(float* c, const unsigned short* a, int a_pitch, const unsigned short* b, int b_pitch) {
  cuda_shim_mma<I, J, IN_ROW, A_BY_STEPS, B_BY_STEPS>(c, a, a_pitch, b, b_pitch, [](unsigned short bits) {
    return static_cast<float>(cuda_shim_bits<_Float16>(bits));
  });
}
inline unsigned __float_as_uint(float a) { return cuda_shim_bits<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return cuda_shim_bits<float>(a); }
inline long long __double_as_longlong(double a) { return cuda_shim_bits<long long>(a); }
inline double __longlong_as_double(long long a) { return cuda_shim_bits<double>(a); }
