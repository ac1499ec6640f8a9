#include "codegen/gpu/gpu_dialects.h"

#include <array>
#include <string_view>
#include <utility>

namespace tessera::inline gpu_codegen {
namespace {

using Text = std::pair<std::string_view, std::string_view>;

// The languages have functions for what C does by copying bytes.
constexpr std::array kOpenClHelpers = {
    Text{"bits_of_f32", "u32 bits_of_f32(f32 a) { return as_uint(a); }"},
    Text{"f32_of_bits", "f32 f32_of_bits(u32 bits) { return as_float(bits); }"},
    Text{"bits_of_f64", "u64 bits_of_f64(f64 a) { return as_ulong(a); }"},
    Text{"f64_of_bits", "f64 f64_of_bits(u64 bits) { return as_double(bits); }"},
};
constexpr std::array kCudaHelpers = {
    Text{"bits_of_f32", "u32 bits_of_f32(f32 a) { return __float_as_uint(a); }"},
    Text{"f32_of_bits", "f32 f32_of_bits(u32 bits) { return __uint_as_float(bits); }"},
    Text{"bits_of_f64", "u64 bits_of_f64(f64 a) { return (u64)__double_as_longlong(a); }"},
    Text{"f64_of_bits", "f64 f64_of_bits(u64 bits) { return __longlong_as_double((i64)bits); }"},
    Text{"bf16_of_f32", "u16 bf16_of_f32(f32 a) { return tsr_bf16_of_f32(a); }"},
    Text{"f16_of_f32", "u16 f16_of_f32(f32 a) { return tsr_f16_of_f32(a); }"},
    Text{"f32_of_f16", "f32 f32_of_f16(u16 bits) { return tsr_f32_of_f16(bits); }"},
};

// What the device has instructions for; NaN is one of theirs where they give one.
constexpr std::string_view kCudaConversions = R"(
#ifndef TESSERA_CUDA_SHIM
static __device__ inline u16 tsr_bf16_of_f32(f32 a) {
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(a));
  return bits;
}
static __device__ inline u16 tsr_f16_of_f32(f32 a) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(a));
  return bits;
}
static __device__ inline f32 tsr_short_exp(f32 a) {
  f32 power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(a * 1.442695040f));
  return power;
}
static __device__ inline u32 tsr_bf16_pair(f32 a, f32 b) {
  u32 bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(b), "f"(a));
  return bits;
}
static __device__ inline u32 tsr_f16_pair(f32 a, f32 b) {
  u32 bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(b), "f"(a));
  return bits;
}
static __device__ inline f32 tsr_f32_of_f16(u16 bits) {
  f32 a;
  asm("cvt.f32.f16 %0, %1;" : "=f"(a) : "h"(bits));
  return a;
}
#endif
)";

constexpr std::array kHipHelpers = {
    Text{"bits_of_f32", "u32 bits_of_f32(f32 a) { return __builtin_bit_cast(u32, a); }"},
    Text{"f32_of_bits", "f32 f32_of_bits(u32 bits) { return __builtin_bit_cast(f32, bits); }"},
    Text{"bits_of_f64", "u64 bits_of_f64(f64 a) { return __builtin_bit_cast(u64, a); }"},
    Text{"f64_of_bits", "f64 f64_of_bits(u64 bits) { return __builtin_bit_cast(f64, bits); }"},
};

constexpr std::array<std::string_view, 30> kOpenClNames = {
    "kernel", "global",   "local",   "constant", "private",      "read_only",   "write_only", "read_write",
    "half",   "uchar",    "ushort",  "uint",     "ulong",        "pipe",        "complex",    "imaginary",
    "quad",   "vec_step", "fabsf",   "sqrtf",    "floorf",       "ceilf",       "rintf",      "truncf",
    "fmaf",   "isnan",    "generic", "barrier",  "get_local_id", "get_group_id"};
constexpr std::array<std::string_view, 14> kCudaNames = {"threadIdx", "blockIdx", "blockDim",  "gridDim",  "warpSize",
                                                         "dim3",      "float2",   "float4",    "int2",     "int4",
                                                         "asm",       "operator", "constexpr", "namespace"};

constexpr std::string_view kOpenClPrelude =
    "typedef char i8; typedef short i16; typedef int i32; typedef long i64;\n"
    "typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64;\n"
    "typedef float f32;\n"
    "#define INT64_C(x) x##L\n#define UINT64_C(x) x##UL\n#define UINT32_C(x) x##U\n"
    "#define INT8_MAX CHAR_MAX\n#define INT8_MIN CHAR_MIN\n#define UINT8_MAX UCHAR_MAX\n"
    "#define INT16_MAX SHRT_MAX\n#define INT16_MIN SHRT_MIN\n#define UINT16_MAX USHRT_MAX\n"
    "#define INT32_MAX INT_MAX\n#define INT32_MIN INT_MIN\n#define UINT32_MAX UINT_MAX\n"
    "#define INT64_MAX LONG_MAX\n#define INT64_MIN LONG_MIN\n#define UINT64_MAX ULONG_MAX\n"
    "#define fabsf fabs\n#define sqrtf sqrt\n#define floorf floor\n#define ceilf ceil\n"
    "#define rintf rint\n#define truncf trunc\n#define fmaf fma\n"
    "#pragma OPENCL FP_CONTRACT OFF\n";
constexpr std::string_view kOpenClDoubles = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\ntypedef double f64;\n";

// Functions are the compiler's own, so that no header is needed, and none disturbs.
constexpr std::string_view kHipPrelude =
    "#define fmaf __builtin_fmaf\n#define fma __builtin_fma\n#define fabsf __builtin_fabsf\n#define fabs "
    "__builtin_fabs\n"
    "#define sqrtf __builtin_sqrtf\n#define sqrt __builtin_sqrt\n#define floorf __builtin_floorf\n"
    "#define floor __builtin_floor\n#define ceilf __builtin_ceilf\n#define ceil __builtin_ceil\n"
    "#define rintf __builtin_rintf\n#define rint __builtin_rint\n#define truncf __builtin_truncf\n"
    "#define trunc __builtin_trunc\n#define isnan(x) __builtin_isnan(x)\n#define isinf(x) __builtin_isinf(x)\n"
    "#define NAN __builtin_nanf(\"\")\n#define INFINITY __builtin_inff()\n"
    "typedef unsigned tsr_uint2 __attribute__((ext_vector_type(2)));\n"
    "typedef unsigned tsr_uint4 __attribute__((ext_vector_type(4)));\n"
    "typedef __PTRDIFF_TYPE__ ptrdiff_t;\n"
    "static __attribute__((device)) inline void tsr_barrier() {\n"
    "  __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\");\n  __builtin_amdgcn_s_barrier();\n"
    "  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");\n}\n"
    "#pragma clang fp contract(off)\n";

// No header is needed: what C's headers define is here, unless the compiler has included them.
constexpr std::string_view kCudaPrelude =
    "typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;\n"
    "typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;\n"
    "typedef float f32; typedef double f64;\n"
    "#ifndef INT64_C\n#define INT64_C(x) x##LL\n#define UINT64_C(x) x##ULL\n#define UINT32_C(x) x##U\n#endif\n"
    "#ifndef INT64_MAX\n"
    "#define INT8_MAX 127\n#define INT8_MIN (-128)\n#define UINT8_MAX 255\n"
    "#define INT16_MAX 32767\n#define INT16_MIN (-32768)\n#define UINT16_MAX 65535\n"
    "#define INT32_MAX 2147483647\n#define INT32_MIN (-2147483647 - 1)\n#define UINT32_MAX 4294967295U\n"
    "#define INT64_MAX 9223372036854775807LL\n#define INT64_MIN (-9223372036854775807LL - 1)\n"
    "#define UINT64_MAX 18446744073709551615ULL\n#endif\n"
    "#ifndef NAN\n#define NAN __int_as_float(0x7fffffff)\n#endif\n"
    "#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n";

// What a warp multiplies (loop IR: the intrinsics cuda.mma.bf16 and, with the other name throughout, cuda.mma.f16): I x
// J tiles of 16 x 8 sums, 16 steps of the sum. `a` and `b` are where the warp's operands begin in shared memory, whose
// rows are multiples of 16 bytes apart: the rows of a are rows of the tiles (BY_STEPS: neighbours are steps) or steps,
// those of b columns or steps.
constexpr std::string_view kCudaMatrixLoads = R"(
#ifndef TESSERA_CUDA_SHIM
template <bool TURNED>
static __device__ inline void tsr_ldmatrix(u32 (&r)[4], const u16 *p) {
  const u32 at = (u32)__cvta_generic_to_shared(p);
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
#endif
)";
constexpr std::string_view kCudaCopies = R"(
#ifndef TESSERA_CUDA_SHIM
static __device__ inline void tsr_copy(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
static __device__ inline void tsr_end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
static __device__ inline void tsr_wait_for_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
#endif
)";
constexpr std::string_view kCudaShared = R"(
#ifndef TESSERA_CUDA_SHIM
extern __shared__ __align__(16) u8 tsr_shared[];
#endif
)";
constexpr std::string_view kCudaWarpProducts = R"(
#ifndef TESSERA_CUDA_SHIM
template <int I, int J, int IN_ROW, bool A_BY_STEPS, bool B_BY_STEPS>
static __device__ inline void tsr_mma_bf16(f32 *c, const u16 *a, i32 a_pitch, const u16 *b, i32 b_pitch) {
  const i32 lane = threadIdx.x, row = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
  u32 as[I][4], bs[J / 2][4];
#pragma unroll
  for (i32 i = 0; i < I; ++i)
    tsr_ldmatrix<!A_BY_STEPS>(as[i], A_BY_STEPS ? a + (i * 16 + low + row) * a_pitch + high
                                                : a + (high + row) * a_pitch + i * 16 + low);
#pragma unroll
  for (i32 j = 0; j < J / 2; ++j)
    tsr_ldmatrix<!B_BY_STEPS>(bs[j], B_BY_STEPS ? b + (j * 16 + high + row) * b_pitch + low
                                                : b + (low + row) * b_pitch + j * 16 + high);
#pragma unroll
  for (i32 i = 0; i < I; ++i)
#pragma unroll
    for (i32 j = 0; j < J; ++j) {
      f32 *d = c + (i * IN_ROW + j) * 4;
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                   "{%0,%1,%2,%3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(as[i][0]), "r"(as[i][1]), "r"(as[i][2]), "r"(as[i][3]), "r"(bs[j / 2][j % 2 * 2]),
                     "r"(bs[j / 2][j % 2 * 2 + 1]));
    }
}
#endif
)";

constexpr Dialect kOpenCl{
    .name = "OpenCL C 1.2",
    .function = "static inline",
    .kernel = "__kernel",
    .restrict_word = "restrict ",
    .fuses = true,
    .helpers = kOpenClHelpers,
    .reserved = kOpenClNames,
    .global = "__global ",
    .shared = "__local ",
    .aligned = "__attribute__((aligned(16))) ",
    .shared_pointer = "__local ",
    .vectors = {"u32", "uint2", "uint4"},
    .thread = {"get_local_id(0)", "get_local_id(1)", "get_local_id(2)"},
    .block = {"get_group_id(0)", "get_group_id(1)", "get_group_id(2)"},
    .barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    .bounds = "__attribute__((reqd_work_group_size({0}, {1}, {2}))) void",
    .unroll = "#pragma unroll",
    .has_pointers = false,
};

constexpr Dialect kCuda{
    .name = "CUDA C++",
    .function = "static __device__ inline",
    .kernel = "extern \"C\" __global__",
    .restrict_word = "__restrict__ ",
    .fuses = true,
    .helpers = kCudaHelpers,
    .reserved = kCudaNames,
    .global = "",
    .shared = "__shared__ ",
    .aligned = "__align__(16) ",
    .has_warp_products = true,
    .async_copy = "tsr_copy({0}, {1});",
    .end_of_copies = "tsr_end_of_copies();",
    .wait_for_copies = "tsr_wait_for_copies<{0}>();",
    .narrow_pair = "tsr_{0}_pair({1}, {2})",
    .short_exp = "tsr_short_exp({0})",
    .dynamic_shared = "tsr_shared",
    .most_static_shared = 48 << 10,
    .vectors = {"u32", "uint2", "uint4"},
    .thread = {"threadIdx.x", "threadIdx.y", "threadIdx.z"},
    .block = {"blockIdx.x", "blockIdx.y", "blockIdx.z"},
    .barrier = "__syncthreads();",
    // Two blocks at a time leave a thread 128 registers; without the number ptxas aims at more blocks, and spills.
    .bounds = "void __launch_bounds__({3}, 2)",
    .unroll = "#pragma unroll",
    .has_pointers = true,
};

constexpr Dialect kHip{
    .name = "HIP C++",
    .function = "static __attribute__((device)) inline",
    .kernel = "extern \"C\" __attribute__((global))",
    .restrict_word = "__restrict__ ",
    .fuses = true,
    .helpers = kHipHelpers,
    .reserved = kCudaNames,
    .global = "",
    .shared = "__attribute__((shared)) ",
    .aligned = "__attribute__((aligned(16))) ",
    .vectors = {"u32", "tsr_uint2", "tsr_uint4"},
    .thread = {"__builtin_amdgcn_workitem_id_x()", "__builtin_amdgcn_workitem_id_y()",
               "__builtin_amdgcn_workitem_id_z()"},
    .block = {"__builtin_amdgcn_workgroup_id_x()", "__builtin_amdgcn_workgroup_id_y()",
              "__builtin_amdgcn_workgroup_id_z()"},
    .barrier = "tsr_barrier();",
    .bounds = "void __attribute__((amdgpu_flat_work_group_size({3}, {3})))",
    .unroll = "#pragma unroll",
    .has_pointers = true,
};

}  // namespace

const Dialect& opencl_c() { return kOpenCl; }
const Dialect& cuda_cpp() { return kCuda; }
const Dialect& hip_cpp() { return kHip; }

std::string prelude_of(const Dialect& dialect, bool doubles, const std::string& kernels) {
  if (&dialect == &kCuda) {
    std::string text = std::string(kCudaPrelude) + std::string(kCudaConversions);
    const bool bf16 = kernels.find("tsr_mma_bf16") != std::string::npos;
    const bool f16 = kernels.find("tsr_mma_f16") != std::string::npos;
    if (bf16 || f16) text += kCudaMatrixLoads;
    if (kernels.find("tsr_wait_for_copies") != std::string::npos) text += kCudaCopies;
    if (kernels.find("tsr_shared") != std::string::npos) text += kCudaShared;
    if (bf16) text += kCudaWarpProducts;
    if (f16) {
      std::string products(kCudaWarpProducts);
      for (size_t at; (at = products.find("bf16")) != std::string::npos;) products.replace(at, 4, "f16");
      text += products;
    }
    return text;
  }
  if (&dialect == &kHip) return std::string(kHipPrelude) + std::string(kCudaPrelude);
  return std::string(doubles ? kOpenClDoubles : "") + std::string(kOpenClPrelude);
}

}  // namespace tessera::inline gpu_codegen
