// How a language that is like C differs from C99, as data: C99 itself, OpenCL C and CUDA C++ are one printer's rows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace tessera::inline source_codegen {

struct Dialect {
  std::string_view name;
  std::string_view function;       // before a helper function: "static inline"
  std::string_view kernel;         // before a kernel: "static void"
  std::string_view restrict_word;  // of a pointer whose elements nothing else reaches, with a blank
  bool fuses = false;              // whether multiply-adds are the function `fma`
  // Helpers that are written otherwise than in C, without `function`.
  std::span<const std::pair<std::string_view, std::string_view>> helpers = {};
  std::span<const std::string_view> reserved = {};  // names that C leaves free

  // Of languages for the threads of a device; empty in others.
  std::string_view global = {};          // before a pointer to memory that all threads reach, with a blank
  std::string_view shared = {};          // before an array that a block's threads share, with a blank
  std::string_view aligned = {};         // before an array of which vectors are read, with a blank
  std::string_view shared_pointer = {};  // before a pointer to such an array, with a blank
  bool has_warp_products = false;        // whether the prelude has tsr_mma_bf16 (kernel_printer.cpp)
  // Of languages with asynchronous copies of 16 bytes: one of them, {0} and {1} where to and from; what ends a group of
  // them; and what waits until {0} groups at most are under way.
  std::string_view async_copy = {}, end_of_copies = {}, wait_for_copies = {};
  // Two values of f32, {1} and {2}, rounded to 16 bits each, as one of 32; {0} is their type.
  std::string_view narrow_pair = {};
  std::string_view short_exp = {};  // exp of {0}, which is not above 0 (IntrinsicCode::kShortExp)
  // Memory that a block's threads share may be one array of the name {0} whose size a launch says, from so many bytes
  // on.
  std::string_view dynamic_shared = {};
  int64_t most_static_shared = 0;
  // Types of vectors of 4, 8 and 16 bytes; empty where the printer writes elements one by one.
  std::array<std::string_view, 3> vectors = {};
  std::array<std::string_view, 3> thread = {}, block = {};  // along the axes x, y and z
  std::string_view barrier = {};                            // a statement
  std::string_view bounds = {};  // behind `kernel`: threads of a block along {0}, {1} and {2}, together {3}
  std::string_view unroll = {};  // a line before loops that are written out
  bool has_pointers = true;      // whether a kernel gets addresses; else memory and an offset in bytes for each buffer
};

const Dialect& c99();

}  // namespace tessera::inline source_codegen
