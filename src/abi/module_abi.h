// The contract between a compiled module and whatever hosts it. Plain C, no includes of ours: this header is
// all that compile time and run time share.
//
// A module file is an ELF shared object (code only) followed by appended sections; the dynamic loader ignores
// what follows the ELF part. Layout, all offsets from the start of the file, little-endian:
//
//   [ELF .so][zero padding to TSR_WEIGHTS_ALIGN][weights][zero padding to TSR_BUFFER_ALIGN][images]
//   [zero padding to TSR_SECTION_ALIGN][descriptor][metadata JSON][tsr_footer]
//
// The images are those of devices beside the host: their code and their weights, where the descriptor says.
//
// Zero bytes may stand before any section, fewer than TSR_WEIGHTS_ALIGN; weights_offset is set even without weights.
// The footer is read first, as data; every digest is checked before the ELF part is mapped as code.
//
// A file may hold several modules, over states of the same names (a training step and what it trains): a bundle. They
// stand one behind the other, each at a multiple of TSR_WEIGHTS_ALIGN, with zero bytes between, and a tsr_bundle_footer
// at the end. Every one of them is a whole module with offsets of its own.
//
// Thread safety: everything here is immutable after load. A tsr_call belongs to one run; two runs of one module
// may execute at once as long as each has its own tsr_call with its own arena.
#ifndef TESSERA_ABI_MODULE_ABI_H_
#define TESSERA_ABI_MODULE_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_ABI_VERSION 9u                    /* that compilers write */
#define TSR_ABI_OLDEST_VERSION 9u             /* that runtimes read, and all since */
#define TSR_FOOTER_MAGIC "TESSERA-MODULE\0\2" /* 16 bytes with the trailing version byte */
#define TSR_BUNDLE_MAGIC "TESSERA-BUNDLE\0\1" /* likewise */
#define TSR_MAX_ENTRIES 8
#define TSR_ENTRY_NAME 32
#define TSR_WEIGHTS_ALIGN 65536u              /* file alignment of the weights: the largest page size in use */
#define TSR_SECTION_ALIGN 8u                  /* file alignment of the descriptor, and of tables inside it */
#define TSR_BUFFER_ALIGN 64u                  /* alignment of arena, scratch and weights buffers, in bytes */
#define TSR_ENTRY_SYMBOL "tessera_module_run" /* exported, default visibility */
#define TSR_PREPARE_SYMBOL "tessera_module_prepare"
#define TSR_NO_INITIAL UINT64_MAX
#define TSR_MAX_COMPUTED (1u << 20)
#define TSR_MAX_RANK 16
#define TSR_MAX_SUFFIX 32
#define TSR_MAX_CHECK_COUNT 4097

/* Element types; the numbers are part of the file format and never change. */
typedef enum tsr_dtype {
  TSR_F64 = 1,
  TSR_F32 = 2,
  TSR_F16 = 3,
  TSR_BF16 = 4,
  TSR_F8E4M3FN = 5,
  TSR_F8E4M3FNUZ = 6,
  TSR_F8E5M2 = 7,
  TSR_F8E5M2FNUZ = 8,
  TSR_F8E8M0 = 9,
  TSR_F4E2M1 = 10,
  TSR_I64 = 16,
  TSR_I32 = 17,
  TSR_I16 = 18,
  TSR_I8 = 19,
  TSR_I4 = 20,
  TSR_I2 = 21,
  TSR_U64 = 24,
  TSR_U32 = 25,
  TSR_U16 = 26,
  TSR_U8 = 27,
  TSR_U4 = 28,
  TSR_U2 = 29,
  TSR_BOOL = 32,
  TSR_STRING = 33
} tsr_dtype;

/* What a value of a run is. */
typedef enum tsr_value_kind { TSR_TENSOR = 0, TSR_SEQUENCE = 1, TSR_OPTIONAL = 2, TSR_MAP = 3 } tsr_value_kind;

/* What a step of a flow does; src/graph/flow.h says what each reads, gives and means. */
typedef enum tsr_flow_op {
  TSR_FLOW_PIECE = 1,
  TSR_FLOW_ELEMENTWISE = 2,
  TSR_FLOW_MOVE = 3,
  TSR_FLOW_NUMBER = 4,
  TSR_FLOW_TRUTH = 5,
  TSR_FLOW_COUNT = 6,
  TSR_FLOW_IF = 7,
  TSR_FLOW_WHILE = 8,
  TSR_FLOW_SEQUENCE = 10,
  TSR_FLOW_INSERT = 11,
  TSR_FLOW_ERASE = 12,
  TSR_FLOW_AT = 13,
  TSR_FLOW_LENGTH = 14,
  TSR_FLOW_SPLIT = 15,
  TSR_FLOW_JOIN = 16,
  TSR_FLOW_OPTIONAL = 17,
  TSR_FLOW_HAS_ELEMENT = 18,
  TSR_FLOW_GET_ELEMENT = 19,
  TSR_FLOW_SHAPE = 20,
  TSR_FLOW_SIZE = 21,
  TSR_FLOW_SLICE = 22,
  TSR_FLOW_RESHAPE = 23,
  TSR_FLOW_SQUEEZE = 24,
  TSR_FLOW_UNSQUEEZE = 25,
  TSR_FLOW_TRANSPOSE = 26,
  TSR_FLOW_GATHER = 27,
  TSR_FLOW_EXPAND = 28,
  TSR_FLOW_CONCAT = 29,
  TSR_FLOW_FLATTEN = 30,
  TSR_FLOW_RANGE = 31,
  TSR_FLOW_PAD = 32,
  TSR_FLOW_STRING_CONCAT = 40,
  TSR_FLOW_STRING_SPLIT = 41,
  TSR_FLOW_STRING_NORMALIZE = 42,
  TSR_FLOW_TO_STRING = 43,
  TSR_FLOW_FROM_STRING = 44,
  TSR_FLOW_STRING_RANK = 45,
  TSR_FLOW_ZIP_MAP = 50,
  TSR_FLOW_DICT_VECTORIZE = 51,
  TSR_FLOW_CAST_MAP = 52
} tsr_flow_op;
#define TSR_FLOW_BLOCK 1024 /* elements that the piece of a TSR_FLOW_ELEMENTWISE computes at once */
#define TSR_MAX_WRAPPERS 4

/* A piece of parallel work: iterations [begin, end) of a loop. `worker` is in [0, host.num_workers) and no two
 * calls with the same worker run at once, so it indexes per-thread scratch. */
typedef void (*tsr_task_fn)(const void* arg, int64_t begin, int64_t end, int32_t worker);

struct tsr_call;
/* The exported function of a module, TSR_ENTRY_SYMBOL. Returns 0, or TSR_RUN_STOPPED when the host could not do what it
 * was asked for. */
#define TSR_RUN_STOPPED 1
typedef int32_t (*tsr_run_fn)(const struct tsr_call* call);
/* TSR_PREPARE_SYMBOL, the other one of modules with computed sizes: reads the values of the
 * symbols, the first of `sizes`, writes the others, and returns how many bytes the arena has for them. Of a module with
 * steps, it reads and writes those of the piece of this number alone; `piece` is 0 for others. It calls nothing and
 * touches nothing else. */
typedef uint64_t (*tsr_prepare_fn)(int64_t* sizes, uint32_t piece);

/* What the host offers to a module. `size` lets either side be newer than the other. */
typedef struct tsr_host {
  uint32_t size;        /* sizeof(tsr_host) as the host knows it */
  uint32_t abi_version; /* TSR_ABI_VERSION */
  void* self;           /* passed back in every call */
  int32_t num_workers;  /* upper bound (exclusive) of `worker`; 1 = serial */
  int32_t reserved;
  /* Covers [0, n) with disjoint calls of fn, each of at least `grain` iterations where possible, and returns when
   * all are done. Never allocates. Not re-entrant from inside a task. */
  void (*parallel_for)(void* self, tsr_task_fn fn, const void* arg, int64_t n, int64_t grain);
  /* Called around every kernel when not null: phase 0 = begin, 1 = end; `kernel` indexes the descriptor's kernels. */
  void (*trace)(void* self, int32_t kernel, int32_t phase);
  /* Runs step `step` of the descriptor's, of modules that have steps; `piece` is the code of the step's piece, or null.
   * Negative when the run ends here, with an error that the host knows; for TSR_FLOW_IF and TSR_FLOW_WHILE 1 when the
   * (first) block runs (again), else 0. What the code of a piece works on is in the tsr_call that the host passes. */
  int32_t (*step)(void* self, uint32_t step, tsr_run_fn piece);
  /* Of modules with devices. All answer 0, or a negative number when the run ends here, with an error that the host
   * knows. What is given to the queue of a device is done in order, while the host goes on.
   * start: row `operation` of the descriptor's. `args`: addresses of the device; `sizes`: values of symbols; both are
   * copied before it returns. */
  int32_t (*start)(void* self, uint32_t operation, void* const* args, const int64_t* sizes);
  /* To the device's memory, or from there. */
  int32_t (*copy)(void* self, uint32_t device, void* device_memory, void* host_memory, uint64_t bytes,
                  int32_t to_device);
  /* Gives everything that stands in the queue a number, less than the descriptor's num_tokens. */
  int32_t (*mark)(void* self, uint32_t device, uint32_t token);
  /* Returns when what the number was given to is done. */
  int32_t (*wait)(void* self, uint32_t device, uint32_t token);
} tsr_host;

/* What a run has of a device's memory: addresses that mean something to the device alone. */
typedef struct tsr_device_memory {
  uint8_t* arena;
  uint8_t* weights;
} tsr_device_memory;

/* The memory of one run. All pointers are aligned to TSR_BUFFER_ALIGN except inputs and outputs, which need only
 * their element's natural alignment. */
typedef struct tsr_call {
  const tsr_host* host;
  const uint8_t* weights;
  uint8_t* arena;            /* descriptor.arena_bytes */
  uint8_t* scratch;          /* host.num_workers * descriptor.scratch_bytes, worker after worker */
  const void* const* inputs; /* the declared ones, then for each state what it was before the call */
  void* const* outputs; /* the declared ones, then for each state what it is after the call, then an int64_t[count] for
                           each of the descriptor's checks */
  int64_t* symbols; /* the values of the symbols, in the descriptor's order, then the computed sizes; may be null when
                       there are none. The module writes data symbols and decided dimensions. */
  const tsr_device_memory* devices; /* in the descriptor's order; null when there are none */
} tsr_call;

/* ---- the descriptor: position-independent tables, read in place ------------------------------------------
 * Offsets are from the start of the descriptor. Strings are UTF-8, NUL-terminated. */
typedef struct tsr_tensor_descr {
  uint32_t name;  /* offset of a string */
  uint32_t dtype; /* tsr_dtype */
  uint32_t rank;  /* <= TSR_MAX_RANK */
  uint32_t reserved;
  int64_t dims[TSR_MAX_RANK]; /* >= 0: fixed; < 0: size number -(dim + 1), a symbol or derived from symbols */
} tsr_tensor_descr;

/* A dimension of an output that data decide: the tensor's own dims have room for all that it may be, and a run writes
 * what it is. The elements stand in row-major order of the shape that the run decided. */
typedef struct tsr_decided_descr {
  uint32_t output, axis;
  uint32_t size; /* number of the size that the run writes */
  uint32_t reserved;
} tsr_decided_descr;

/* A named dimension, which inputs give a value, or, of the last num_data_symbols, a number that a run finds among its
 * data: tessera_module_prepare gives it the largest value that it may have, and a run its own. */
typedef struct tsr_symbol_descr {
  uint32_t name;
  uint32_t step;  /* legal are lo, lo + step, ...; 0 counts as 1 */
  int64_t lo, hi; /* inclusive range the module was compiled for */
} tsr_symbol_descr;

typedef struct tsr_kernel_descr {
  uint32_t name; /* the model's node names it stands for, joined by '+' */
  uint32_t reserved;
  int64_t flops; /* floating-point operations, multiply and add counted separately; -1 when unknown */
  int64_t bytes; /* bytes read and written at least once; -1 when unknown */
} tsr_kernel_descr;

/* What must hold of the values of a run, because shapes were fixed for them while compiling. The module writes `count`
 * numbers of type int64_t: the first is 0 when the run's outputs are void, the others are what the message shows. */
typedef struct tsr_check_descr {
  uint32_t what;  /* offset of a string: which node and operand */
  uint32_t legal; /* offset of a string: what the module was compiled for */
  uint32_t count; /* 1 .. TSR_MAX_CHECK_COUNT */
  uint32_t reserved;
} tsr_check_descr;

/* The memory of this output may be that of this input, exactly. Rows are in order. */
typedef struct tsr_alias_descr {
  uint32_t output, input;
} tsr_alias_descr;
/* A value that lives from call to call of one session. */
typedef struct tsr_state_descr {
  tsr_tensor_descr tensor; /* of fixed dimensions */
  uint32_t in_place;       /* 1: the call has one memory for what it was and what it is; 0: two, which do not overlap */
  uint32_t reserved;
  uint64_t initial; /* the value before the first call: where in the weights it begins; TSR_NO_INITIAL: zeros */
} tsr_state_descr;
/* An input or output of a module with steps, whose tensors are those of its pieces. */
typedef struct tsr_value_descr {
  uint32_t name;
  uint32_t dtype;                      /* of the tensors inside */
  uint32_t key;                        /* of maps */
  uint32_t num_wrappers;               /* <= TSR_MAX_WRAPPERS */
  uint32_t wrappers[TSR_MAX_WRAPPERS]; /* tsr_value_kind, outermost first */
  int32_t rank;                        /* -1: any; a hint unless it is a tensor */
  uint32_t slot;
  int64_t dims[TSR_MAX_RANK]; /* -1: any */
} tsr_value_descr;

/* The rows of the tables of inputs, outputs, checks and symbols that belong to a piece. One with symbols runs in an
 * arena of its own, of the size that tessera_module_prepare tells. */
typedef struct tsr_piece_descr {
  uint32_t first_input, num_inputs, first_output, num_outputs, first_check, num_checks, first_symbol, num_symbols;
} tsr_piece_descr;

typedef struct tsr_step_descr {
  uint32_t op;                 /* tsr_flow_op */
  uint32_t name;               /* offset of a string: the model's operator and node */
  int32_t piece;               /* -1: none */
  uint32_t num_inputs, inputs; /* int32_t[]: slots, -1 for operands left out */
  uint32_t num_outputs, outputs;
  uint32_t num_ints, ints; /* int64_t[] */
} tsr_step_descr;

/* A device beside the host. */
typedef struct tsr_device_descr {
  uint32_t name;       /* offset of a string */
  uint32_t kind;       /* offset of a string: libtessera_KIND runs it */
  uint32_t num_tokens; /* of its queue in a run */
  uint32_t reserved;
  uint64_t image_offset, image_size;     /* its code: where in the images */
  uint64_t weights_offset, weights_size; /* the offset is a multiple of TSR_BUFFER_ALIGN */
  uint64_t arena_bytes;
  uint64_t scratch_bytes; /* that an operation needs besides */
} tsr_device_descr;

/* What can be given to a device's queue. */
typedef struct tsr_operation_descr {
  uint32_t device; /* row of the table of devices */
  uint32_t entry;  /* offset of a string: its name in the image */
  uint32_t num_args, num_sizes;
} tsr_operation_descr;

/* A string of the model, number = row; not NUL-terminated, UTF-8. */
typedef struct tsr_string_descr {
  uint32_t offset, size;
} tsr_string_descr;

/* The module's code for one more kind of processor: the same program, in other functions of the code part. */
typedef struct tsr_variant_descr {
  uint32_t name;     /* offset of a string: the target that it was compiled for, "x86-64-v4" */
  uint32_t features; /* offset of a string: as the descriptor's */
  uint32_t suffix;   /* offset of a string: what stands behind the names of its exported functions; may be empty */
  uint32_t reserved;
} tsr_variant_descr;

typedef struct tsr_descriptor {
  uint32_t size; /* sizeof(tsr_descriptor) */
  uint32_t abi_version;
  uint32_t target;   /* string: the target triple */
  uint32_t features; /* string: comma-separated CPU features the code needs, e.g. "avx2,fma"; may be empty. Of a
                        module with variants: those of the code that decisions were made for, which is one of them */
  uint32_t model_name;
  uint32_t producer;             /* string: compiler name and version */
  uint32_t num_inputs, inputs;   /* tsr_tensor_descr[] */
  uint32_t num_outputs, outputs; /* tsr_tensor_descr[] */
  uint32_t num_symbols, symbols; /* tsr_symbol_descr[] */
  uint32_t num_kernels, kernels; /* tsr_kernel_descr[]: one per call of a kernel, in the order of calls */
  uint32_t num_checks, checks;   /* tsr_check_descr[] */
  uint32_t num_aliases, aliases; /* tsr_alias_descr[] */
  uint32_t num_slots;
  uint32_t num_computed;                     /* sizes that tessera_module_prepare writes behind the symbols */
  uint32_t num_value_inputs, value_inputs;   /* tsr_value_descr[]; all of these are empty without steps */
  uint32_t num_value_outputs, value_outputs; /* tsr_value_descr[] */
  uint32_t num_steps, steps;                 /* tsr_step_descr[] */
  uint32_t num_pieces, pieces;               /* tsr_piece_descr[] */
  uint32_t num_strings, strings;             /* tsr_string_descr[] */
  uint32_t num_derived;                      /* the first of the computed, which are dimensions of inputs and outputs */
  uint32_t num_data_symbols;                 /* the last of the symbols */
  uint32_t num_decided, decided;             /* tsr_decided_descr[]; their sizes are the last of the computed */
  uint32_t num_states, states;               /* tsr_state_descr[] */
  uint32_t num_devices, devices;             /* tsr_device_descr[] */
  uint32_t num_operations, operations;       /* tsr_operation_descr[] */
  uint64_t arena_bytes;                      /* with the largest sizes, when tessera_module_prepare tells; of a module
                                                with steps, of the pieces without symbols */
  uint64_t scratch_bytes;                    /* per worker; a multiple of TSR_BUFFER_ALIGN */
  uint32_t num_variants, variants;           /* tsr_variant_descr[]: the host takes the first one that it can run; none:
                                                there is one kind of code, for `features` */
  uint32_t reserved[14];                     /* 0: what a later version puts here, this one does not have */
} tsr_descriptor;

/* The last bytes of a module file. Digests are XXH3 64-bit. */
typedef struct tsr_footer {
  uint64_t code_size; /* the ELF part: [0, code_size) */
  uint64_t weights_offset, weights_size;
  uint64_t images_offset, images_size;
  uint64_t descriptor_offset, descriptor_size;
  uint64_t metadata_offset, metadata_size; /* JSON for people and tools; the loader does not need it */
  uint64_t code_digest, weights_digest, images_digest, descriptor_digest, metadata_digest;
  uint64_t file_size;     /* of the whole file, this footer included */
  uint64_t footer_digest; /* of every byte of the footer before this field */
  uint8_t magic[16];
} tsr_footer;

typedef enum tsr_entry_kind { TSR_ENTRY_MODULE = 0, TSR_ENTRY_DATA = 1 } tsr_entry_kind;

typedef struct tsr_bundle_entry {
  char name[TSR_ENTRY_NAME]; /* NUL-terminated, not empty, of no other entry */
  uint64_t offset, size;
  uint64_t digest; /* of data, which the loader leaves alone; 0 for modules, which have their own */
  uint32_t kind;   /* tsr_entry_kind; the first entry is a module */
  uint32_t reserved;
} tsr_bundle_entry;

/* The last bytes of a bundle. */
typedef struct tsr_bundle_footer {
  tsr_bundle_entry entries[TSR_MAX_ENTRIES]; /* in the order of their offsets; rows behind num_entries are zero */
  uint64_t num_entries;                      /* at least 1 */
  uint64_t file_size;
  uint64_t digest; /* of every byte of the footer before this field */
  uint8_t magic[16];
} tsr_bundle_footer;

#ifdef __cplusplus
}
#endif
#endif /* TESSERA_ABI_MODULE_ABI_H_ */
