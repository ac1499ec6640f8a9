/* The table in front of a GPU's source (codegen/gpu/gpu_codegen.h), which says what its operations launch; read by the
 * libraries of the devices. Each row is a line "//tsr ...":
 *
 *   //tsr 1 OpenCL                         version, language
 *   //tsr limits 256 8256 0                threads of a block and bytes that it shares, at most; whether f64 is used
 *   //tsr operation op_3 4 0 1             entry, buffers, symbols, launches: those of the rows that follow
 *   //tsr launch k3_conv 49 1 1 16 16 1    kernel, blocks along x, y and z, threads along x, y and z
 */
#ifndef TESSERA_ABI_LAUNCH_TABLE_H_
#define TESSERA_ABI_LAUNCH_TABLE_H_

#include <stdint.h>
#include <stdio.h>
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

typedef struct tsr_launch_row {
  char kernel[160];
  unsigned long long blocks[3], threads[3];
} tsr_launch_row;

#define TSR_TABLE_LINE 512

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
  return sscanf(line, "launch %159s %llu %llu %llu %llu %llu %llu", row->kernel, row->blocks, row->blocks + 1,
                row->blocks + 2, row->threads, row->threads + 1, row->threads + 2) == 7;
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
