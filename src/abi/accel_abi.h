// What a simulated accelerator gets as its image: streams of coded instructions, how an instruction's bits are read,
// and code of the host for what each kind of instruction computes. src/runtime/accel reads it; the driver writes it
// (src/driver/accelerator_image.h). Plain C, like abi/module_abi.h. Offsets are from the header; tables lie at
// multiples of 8.
//
// The code is a shared object with a function `op_K` for each kind K, `void(void** slots, const tsr_host*)`: its slots
// are a pointer to the memory of each operand, one that is not used, and numbers (below).
#ifndef TESSERA_ABI_ACCEL_ABI_H_
#define TESSERA_ABI_ACCEL_ABI_H_

#include <stdint.h>

#define TSR_ACCEL_MAGIC "tessera unit 1" /* 15 bytes with its zero */
#define TSR_ACCEL_DRAM UINT32_MAX
#define TSR_ACCEL_MOST_SLOTS 160u /* of one instruction */

typedef struct tsr_accel_header {
  char magic[16];
  uint64_t size; /* of the whole image */
  uint64_t code, code_bytes;
  uint32_t num_memories, memories;     /* tsr_accel_memory[] */
  uint32_t num_kinds, kinds;           /* tsr_accel_kind[] */
  uint32_t num_operations, operations; /* tsr_accel_operation[] */
  uint32_t words;                      /* 64-bit words of an instruction */
  uint32_t reserved;
} tsr_accel_header;

typedef struct tsr_accel_memory {
  uint64_t offset; /* in the scratch memory of a queue */
  uint64_t bytes;
} tsr_accel_memory;

/* Bits of an instruction, from the least significant of its first word on, become numbers of the slots in this order.
 */
typedef enum tsr_accel_role {
  TSR_ACCEL_SKIPPED = 0, /* the kind, and tokens */
  TSR_ACCEL_NUMBER = 1,
  TSR_ACCEL_SEGMENT = 2, /* which argument of the operation the operand is */
  TSR_ACCEL_BASE = 3,  /* of an operand, in elements of its memory: two numbers, the memory's elements and its place */
  TSR_ACCEL_STRIDE = 4 /* the same unit, one number */
} tsr_accel_role;

typedef struct tsr_accel_field {
  uint8_t bits, is_signed, role, operand;
  uint32_t element; /* bytes that an address counts by */
  uint32_t width;   /* bytes of an element of the operand: numbers count by them */
} tsr_accel_field;

typedef struct tsr_accel_kind {
  uint32_t num_operands;
  uint32_t operands;           /* uint32_t[]: the memory of each, or TSR_ACCEL_DRAM */
  uint32_t num_fields, fields; /* tsr_accel_field[] */
} tsr_accel_kind;

typedef struct tsr_accel_operation {
  uint32_t entry; /* offset of a string */
  uint32_t num_segments;
  uint64_t num_instructions, instructions; /* uint64_t[] */
  uint32_t segments;                       /* uint64_t[]: bytes of each argument */
  uint32_t reserved;
} tsr_accel_operation;

#endif /* TESSERA_ABI_ACCEL_ABI_H_ */
