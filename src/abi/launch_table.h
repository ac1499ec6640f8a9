/* The table in front of a GPU's source (codegen/gpu/gpu_codegen.h), which says what its operations launch; read by the
 * libraries of the devices. Each row is a line "//tsr ...":
 *
 *   //tsr 1 OpenCL                         version, language
 *   //tsr limits 256 8256 0                threads of a block and bytes that it shares, at most; whether f64 is used
 *   //tsr operation op_3 4 0 1             entry, buffers, symbols, launches: those of the rows that follow
 *   //tsr launch k3_conv 49 1 1 16 16 1    kernel, blocks along x, y and z, threads along x, y and z; and, where the
 *                                          kernel does not declare it, the bytes that a block shares
 *
 * Blocks are numbers, or formulas of the operation's symbols: terms behind one another, with what is done to the last
 * two behind them ("s0,63,+,64,/" are tiles of 64 of the first symbol). / and % round down, < is the smaller one of two
 * numbers, > the larger one.
 */
#ifndef TESSERA_ABI_LAUNCH_TABLE_H_
#define TESSERA_ABI_LAUNCH_TABLE_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_launch_limits {
  long long threads, shared_bytes, doubles;
} tsr_launch_limits;

typedef struct tsr_operation_row {
  char entry[48];
  uint32_t num_args, num_sizes, num_launches;
} tsr_operation_row;

#define TSR_BLOCKS_TEXT 128 /* of a formula, with its end */
typedef struct tsr_launch_row {
  char kernel[160];
  char blocks[3][TSR_BLOCKS_TEXT];
  unsigned long long threads[3];
  unsigned long long shared_bytes; /* that the launch asks for: 0 where the kernel declares what it has */
} tsr_launch_row;

#define TSR_TABLE_LINE 1024

/* The next row, without "//tsr ", and where the one behind it begins; null behind the last row. */
static inline const char* tsr_next_row(const char* at, const char* end, char line[TSR_TABLE_LINE]) {
  const char* stop = (const char*)memchr(at, '\n', (size_t)(end - at));
  if (!stop || stop - at < 6 || stop - at >= TSR_TABLE_LINE || memcmp(at, "//tsr ", 6) != 0) return 0;
  memcpy(line, at + 6, (size_t)(stop - at) - 6);
  line[stop - at - 6] = 0;
  return stop + 1;
}

/* Each answers whether the row is one of its kind. */
static inline int tsr_is_limits(const char* line, tsr_launch_limits* row) {
  return sscanf(line, "limits %lld %lld %lld", &row->threads, &row->shared_bytes, &row->doubles) == 3;
}
static inline int tsr_is_operation(const char* line, tsr_operation_row* row) {
  return sscanf(line, "operation %47s %u %u %u", row->entry, &row->num_args, &row->num_sizes, &row->num_launches) == 4;
}
static inline int tsr_is_launch(const char* line, tsr_launch_row* row) {
  row->shared_bytes = 0;
  return sscanf(line, "launch %159s %127s %127s %127s %llu %llu %llu %llu", row->kernel, row->blocks[0], row->blocks[1],
                row->blocks[2], row->threads, row->threads + 1, row->threads + 2, &row->shared_bytes) >= 7;
}

/* What a formula of blocks gives for these symbols, 0 for less. Answers 0 when it is none, or a number is too large. */
static inline int tsr_count_blocks(const char* formula, const int64_t* sizes, uint32_t num_sizes, int64_t* count) {
  int64_t stack[16];
  int depth = 0;
  for (;;) {
    char* end = (char*)formula;
    if (*formula >= '0' && *formula <= '9' && depth < 16) {
      stack[depth++] = strtoll(formula, &end, 10);
    } else if (*formula == 's' && depth < 16) {
      const unsigned long number = strtoul(formula + 1, &end, 10);
      if (end == formula + 1 || number >= num_sizes) return 0;
      stack[depth++] = sizes[number];
    } else if (depth >= 2) {
      const int64_t a = stack[depth - 2], b = stack[depth - 1];
      int64_t* result = &stack[depth - 2];
      --depth;
      ++end;
      switch (*formula) {
        case '+':
          if (__builtin_add_overflow(a, b, result)) return 0;
          break;
        case '-':
          if (__builtin_sub_overflow(a, b, result)) return 0;
          break;
        case '*':
          if (__builtin_mul_overflow(a, b, result)) return 0;
          break;
        case '/':
        case '%': {
          if (b <= 0) return 0;
          const int64_t quotient = a / b - (a % b < 0);
          *result = *formula == '/' ? quotient : a - quotient * b;
          break;
        }
        case '<': *result = a < b ? a : b; break;
        case '>': *result = a > b ? a : b; break;
        default: return 0;
      }
    } else {
      return 0;
    }
    if (*end == 0) break;
    if (*end != ',') return 0;
    formula = end + 1;
  }
  *count = stack[0] > 0 ? stack[0] : 0;
  return depth == 1;
}

/* Blocks along all axes. */
static inline int tsr_count_grid(const char blocks[3][TSR_BLOCKS_TEXT], const int64_t* sizes, uint32_t num_sizes,
                                 int64_t count[3]) {
  for (int axis = 0; axis < 3; ++axis)
    if (!tsr_count_blocks(blocks[axis], sizes, num_sizes, &count[axis])) return 0;
  return 1;
}

/* The limits of a table for the language, and how many rows it has; where the row behind the limits begins, or null
 * when it is no table, or one whose operations want more launches than it has. */
static inline const char* tsr_open_table(const char* text, const char* end, const char* language,
                                         tsr_launch_limits* limits, uint32_t* operations, uint32_t* launches) {
  char line[TSR_TABLE_LINE];
  tsr_operation_row operation;
  tsr_launch_row launch;
  uint64_t wanted = 0;
  const char* at = tsr_next_row(text, end, line);
  if (!at || strncmp(line, "1 ", 2) != 0 || strcmp(line + 2, language) != 0) return 0;
  at = tsr_next_row(at, end, line);
  if (!at || !tsr_is_limits(line, limits)) return 0;
  *operations = *launches = 0;
  for (const char* row = at; (row = tsr_next_row(row, end, line)) != 0;) {
    if (tsr_is_operation(line, &operation)) {
      if (wanted != *launches) return 0;
      wanted += operation.num_launches;
      ++*operations;
    } else if (tsr_is_launch(line, &launch)) {
      ++*launches;
    } else {
      return 0;
    }
  }
  return wanted == *launches ? at : 0;
}

/* Where the first line of a compiler's log that names an error begins; the log itself when none does. */
static inline const char* tsr_first_error(const char* log) {
  const char* error = strstr(log, "error");
  while (error && error > log && error[-1] != '\n') --error;
  return error ? error : log;
}

#ifdef __cplusplus
}
#endif
#endif /* TESSERA_ABI_LAUNCH_TABLE_H_ */
