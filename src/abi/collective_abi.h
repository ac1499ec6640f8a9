// What a communicator, a device whose operations are collectives, gets as its image: which ranks there are, and what
// each operation is. A header, then `num_operations` rows; text as in tsr_descriptor, offsets from the header.
// src/runtime/comm reads it. Plain C, like abi/module_abi.h.
#ifndef TESSERA_ABI_COLLECTIVE_ABI_H_
#define TESSERA_ABI_COLLECTIVE_ABI_H_

#include <stdint.h>

#define TSR_COLLECTIVE_MAGIC "tessera ranks 2" /* with its zero, 16 bytes */
#define TSR_MAX_RANKS 65536u

typedef enum tsr_collective_kind {
  TSR_ALL_REDUCE = 1,
  TSR_ALL_GATHER = 2,
  TSR_REDUCE_SCATTER = 3,
  TSR_ALL_TO_ALL = 4,
  TSR_SEND = 5,
  TSR_RECEIVE = 6,
  TSR_RANK_SHIFT = 7
} tsr_collective_kind;

typedef enum tsr_collective_combiner {
  TSR_COMBINE_NONE = 0,
  TSR_COMBINE_SUM = 1,
  TSR_COMBINE_PROD = 2,
  TSR_COMBINE_MIN = 3,
  TSR_COMBINE_MAX = 4
} tsr_collective_combiner;

typedef struct tsr_collective_header {
  char magic[16];
  uint64_t size;   /* of the whole image */
  uint64_t digest; /* of what all ranks do, and in which order; ranks compare it. 0 where each has steps of its own */
  uint32_t num_ranks;
  uint32_t num_operations;
} tsr_collective_header;

/* The operation of this entry has two arguments, operand and result, which may be the same memory where they have the
 * same size. Of messages, which have no operand or no result, the one of these two that they have is what `count` and
 * `bytes` are of; the second one of a send is an operand that nobody reads, and so is the first one of a receive. */
typedef struct tsr_collective_row {
  uint32_t entry; /* offset of a string: the operation's name in the image */
  uint32_t name;  /* offset of a string: the model's, for messages */
  uint32_t kind;  /* tsr_collective_kind */
  uint32_t combiner;
  uint32_t dtype;      /* tsr_dtype */
  uint32_t group_size; /* ranks that take part: a divisor of num_ranks */
  uint64_t count;      /* elements of the operand */
  uint64_t bytes;      /* of the operand */
  uint32_t groups;  /* offset of uint32_t[num_ranks]: group by group, the ranks in the order in which operands stand */
  uint32_t peer;    /* of a message: the other rank */
  uint32_t message; /* its number, which no other one between the two ranks has */
  int32_t shift;    /* of TSR_RANK_SHIFT: a rank gets the operand of the one so many places before it in its group; 0 of
                     * all others */
} tsr_collective_row;

#endif /* TESSERA_ABI_COLLECTIVE_ABI_H_ */
