// Tessera's run-time C API: load a compiled module, give it tensors, run it. No compiler is needed or linked.
//
// Ownership: what a `*_load` / `*_create` function returns is freed by the matching `*_free`. Tensors are memory of
// the caller. Strings returned belong to the object they were asked of.
// Thread safety: a tessera_module is immutable and may be shared; a tessera_session is used by one thread at a time.
// Errors: every function that can fail returns a status and, when `error` is not null, fills it; nothing is printed.
#ifndef TESSERA_TESSERA_H_
#define TESSERA_TESSERA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_API_VERSION 1u
#define TESSERA_MAX_RANK 16

typedef enum tessera_status {
  TESSERA_OK = 0,
  TESSERA_INVALID_ARGUMENT = 1, /* the caller's mistake: wrong name, shape, dtype, null pointer */
  TESSERA_NOT_FOUND = 2,        /* no such file or input */
  TESSERA_BAD_MODULE = 3,       /* damaged, truncated or foreign module file, or one of another ABI version */
  TESSERA_UNSUPPORTED = 4,      /* this machine lacks a CPU feature or a library that the module needs */
  TESSERA_OUT_OF_MEMORY = 5,
  TESSERA_DEVICE_FAILED = 6, /* a device could not do what a run asked of it */
  TESSERA_INTERNAL = 64      /* a bug of ours */
} tessera_status;

/* What went wrong, for a person. `id` is stable ("TSR-7003"); `message` says what was found, what is legal and
 * what to do. */
typedef struct tessera_error {
  tessera_status status;
  char id[16];
  char message[1000];
} tessera_error;

typedef enum tessera_dtype { /* same numbers as in the module format */
                             TESSERA_F64 = 1,
                             TESSERA_F32 = 2,
                             TESSERA_F16 = 3,
                             TESSERA_BF16 = 4,
                             TESSERA_F8E4M3FN = 5,
                             TESSERA_F8E4M3FNUZ = 6,
                             TESSERA_F8E5M2 = 7,
                             TESSERA_F8E5M2FNUZ = 8,
                             TESSERA_F8E8M0 = 9,
                             TESSERA_F4E2M1 = 10,
                             TESSERA_I64 = 16,
                             TESSERA_I32 = 17,
                             TESSERA_I16 = 18,
                             TESSERA_I8 = 19,
                             TESSERA_I4 = 20,
                             TESSERA_I2 = 21,
                             TESSERA_U64 = 24,
                             TESSERA_U32 = 25,
                             TESSERA_U16 = 26,
                             TESSERA_U8 = 27,
                             TESSERA_U4 = 28,
                             TESSERA_U2 = 29,
                             TESSERA_BOOL = 32,
                             TESSERA_STRING = 33
} tessera_dtype;

/* A dense row-major tensor in the caller's memory. */
typedef struct tessera_tensor {
  void* data;
  tessera_dtype dtype;
  int32_t rank;
  int64_t dims[TESSERA_MAX_RANK];
} tessera_tensor;

/* An input or output as the module declares it. A negative dim is symbol number -(dim + 1); from the number of symbols
 * on it is derived from symbols, or decided by the data of a run, and tessera_session_output tells it for the sizes at
 * hand. */
typedef struct tessera_tensor_info {
  const char* name;
  tessera_dtype dtype;
  int32_t rank;
  int64_t dims[TESSERA_MAX_RANK];
} tessera_tensor_info;

/* A named dimension and the values the module was compiled for: lo, lo + step, ..., up to hi. */
typedef struct tessera_symbol_info {
  const char* name;
  int64_t lo, hi, step;
} tessera_symbol_info;

typedef struct tessera_kernel_info {
  const char* name; /* the model's node names it stands for */
  int64_t flops, bytes;
} tessera_kernel_info;

/* ---- values that are more than tensors of numbers ---- */
typedef enum tessera_value_kind {
  TESSERA_TENSOR = 0,
  TESSERA_SEQUENCE = 1,
  TESSERA_OPTIONAL = 2,
  TESSERA_MAP = 3
} tessera_value_kind;

/* UTF-8, not NUL-terminated. */
typedef struct tessera_string {
  const char* data;
  size_t size;
} tessera_string;

typedef struct tessera_value {
  tessera_value_kind kind;
  tessera_dtype dtype; /* of a tensor */
  int32_t rank;        /* of a tensor */
  int32_t reserved;
  int64_t dims[TESSERA_MAX_RANK];
  const void* data; /* of a tensor; of one of strings: tessera_string[] */
  /* A sequence: its elements. An optional: none or one. A map: keys and values, tensors of rank 1 and one length. */
  int64_t num_items;
  const struct tessera_value* const* items;
} tessera_value;

/* An input or output as the module declares it: `wrappers` around a tensor, the outermost first. */
typedef struct tessera_value_info {
  const char* name;
  int32_t num_wrappers;
  tessera_value_kind wrappers[4];
  tessera_dtype dtype;            /* of the tensors inside */
  tessera_dtype key;              /* of maps: TESSERA_I64 or TESSERA_STRING */
  int32_t rank;                   /* -1: any */
  int64_t dims[TESSERA_MAX_RANK]; /* -1: any */
} tessera_value_info;

/* Where memory comes from whose size only a run knows. `allocate` answers memory aligned as malloc's, or null. */
typedef struct tessera_allocator {
  void* user;
  void* (*allocate)(void* user, size_t size);
  void (*release)(void* user, void* memory);
} tessera_allocator;

typedef struct tessera_module tessera_module;
typedef struct tessera_session tessera_session;

typedef struct tessera_load_options {
  uint32_t size;               /* sizeof(tessera_load_options) */
  int32_t skip_weights_digest; /* nonzero: do not read all weights at load to check them */
  const char* entry;           /* which module of a file that holds several; null: the first */
} tessera_load_options;

typedef struct tessera_session_options {
  uint32_t size;       /* sizeof(tessera_session_options) */
  int32_t num_threads; /* 0: TESSERA_NUM_THREADS, then OMP_NUM_THREADS, then CPUs by affinity and cgroup limit */
} tessera_session_options;

const char* tessera_version(void);
/* Bytes of one element times 8: 4-bit types answer 4. 0 for strings and unknown numbers. */
int32_t tessera_dtype_bits(tessera_dtype dtype);
const char* tessera_dtype_name(tessera_dtype dtype); /* "f32", "i64", ...; "?" when unknown */
/* The number of threads a session with num_threads = 0 would use. */
int32_t tessera_default_num_threads(void);

/* Loads a module file: reads it as data, checks every digest, checks the CPU's features, then maps its code.
 * `options` may be null. */
tessera_status tessera_module_load(const char* path, const tessera_load_options* options, tessera_module** module,
                                   tessera_error* error);
/* The same for a module in memory. The bytes are copied once (to an anonymous file) and may be freed afterwards. */
tessera_status tessera_module_load_memory(const void* data, size_t size, const tessera_load_options* options,
                                          tessera_module** module, tessera_error* error);
/* Checks the file without mapping its code, and without asking whether this machine could run it. */
tessera_status tessera_module_check(const char* path, tessera_error* error);
void tessera_module_free(tessera_module* module);

int32_t tessera_module_num_inputs(const tessera_module* module);
int32_t tessera_module_num_outputs(const tessera_module* module);
int32_t tessera_module_num_symbols(const tessera_module* module);
int32_t tessera_module_num_kernels(const tessera_module* module);
/* These answer TESSERA_NOT_FOUND for an index out of range. */
tessera_status tessera_module_input(const tessera_module* module, int32_t index, tessera_tensor_info* info);
tessera_status tessera_module_output(const tessera_module* module, int32_t index, tessera_tensor_info* info);
tessera_status tessera_module_symbol(const tessera_module* module, int32_t index, tessera_symbol_info* info);
tessera_status tessera_module_kernel(const tessera_module* module, int32_t index, tessera_kernel_info* info);
/* 1 when a run that is given one piece of memory for this output and this input writes the output there at once; 0 when
 * it would write it elsewhere and copy it, and for an index out of range. */
int32_t tessera_module_writes_in_place(const tessera_module* module, int32_t output, int32_t input);
/* A state is a value that lives from one run of a session to the next. NOT_FOUND for an index out of range. */
int32_t tessera_module_num_states(const tessera_module* module);
tessera_status tessera_module_state(const tessera_module* module, int32_t index, tessera_tensor_info* info);
/* The names of the modules in the file that this one was loaded from; none where it is alone there. */
int32_t tessera_module_num_entries(const tessera_module* module);
const char* tessera_module_entry(const tessera_module* module, int32_t index); /* null for an index out of range */
uint64_t tessera_module_arena_bytes(const tessera_module* module);
uint64_t tessera_module_weights_bytes(const tessera_module* module);
/* 1 when the data of a run decide a dimension of an output (tessera_session_output): such a module runs with
 * tessera_session_run, into memory for the largest dimensions, and with tessera_session_run_values. */
int32_t tessera_module_decides_shapes(const tessera_module* module);
/* The metadata section, JSON, not NUL-terminated; `*size` is its length. */
const char* tessera_module_metadata(const tessera_module* module, size_t* size);
/* The whole module file, `*size` bytes: what is written to a file can be loaded again. */
const void* tessera_module_contents(const tessera_module* module, size_t* size);

/* A session owns the memory of one run (arena, scratch) and uses the process's thread pool. The module must outlive
 * it. `options` may be null. */
tessera_status tessera_session_create(const tessera_module* module, const tessera_session_options* options,
                                      tessera_session** session, tessera_error* error);
void tessera_session_free(tessera_session* session);
int32_t tessera_session_num_threads(const tessera_session* session);

/* For modules with named dimensions: binds them to those of the inputs, whose data is not looked at, and gets the
 * memory that runs with them need, which depends on them alone and not on what was run before. A run does the same when
 * its inputs have other dimensions than the run before; after this call, runs with these dimensions allocate nothing.
 */
tessera_status tessera_session_prepare(tessera_session* session, const tessera_tensor* inputs, int32_t num_inputs,
                                       tessera_error* error);
/* An output with the dimensions that it has for the inputs of the last tessera_session_prepare or run. NOT_FOUND for an
 * index out of range, INVALID_ARGUMENT before there was either. Where the data of a run decide a dimension (how many
 * elements are not zero), it is the largest that they may decide, until a run has: the tensor that is given to a run
 * has the dimensions of that, and memory for them; after the run this function tells those that the run has decided,
 * and the elements stand in row-major order of these from the begin of the memory on. */
tessera_status tessera_session_output(const tessera_session* session, int32_t index, tessera_tensor_info* info);
/* The memory between inputs and outputs that the session has for the dimensions at hand. */
uint64_t tessera_session_arena_bytes(const tessera_session* session);

/* Runs the module once. Inputs and outputs are in the module's order; dtype, rank and dims of each are checked, data
 * of every output is written. Outputs must not share memory with other tensors, except that an output may have the
 * memory of an input of its type and shape: the state of a recurrent model or a cache then stays in place (when no
 * dimension of it is named, or tessera_module_writes_in_place says so). Named dimensions are bound by the inputs.
 * Allocates nothing (see tessera_session_prepare), takes no lock, and starts no thread: when another session is using
 * the threads, this run does its work on the calling thread. Results do not depend on the caller's rounding and
 * denormal modes. */
tessera_status tessera_session_run(tessera_session* session, const tessera_tensor* inputs, int32_t num_inputs,
                                   const tessera_tensor* outputs, int32_t num_outputs, tessera_error* error);

/* The value of a state: `tensor` is where it lies, in memory of the session, until the next run, which may move it. It
 * may be read and written there by the thread that uses the session. A run that fails leaves the states what they were,
 * or, where the module writes one in its place, void: later runs are refused (TSR-7025) until tessera_session_reset,
 * which gives all states their initial values. */
tessera_status tessera_session_state(const tessera_session* session, int32_t index, tessera_tensor* tensor);
tessera_status tessera_session_reset(tessera_session* session, tessera_error* error);
/* States of `session` become those of `owner` that have their names, in its memory: what one run writes, the next run
 * of either reads. The module of `session` keeps each in one place (one that only reads states does). `owner`, which
 * shares no others, must outlive `session`, and the two must not run at the same time; a reset of `session` leaves
 * these states alone. TSR-7029 where types differ, or no name is in both; nothing has changed then. */
tessera_status tessera_session_share_states(tessera_session* session, const tessera_session* owner,
                                            tessera_error* error);

/* A module has values when one of its inputs or outputs, or something between them, is no tensor of numbers of a shape
 * that is known before the run. To load one takes the library libtessera_values beside the runtime, linked to the
 * program or in the runtime's folder (TSR-7018). It runs with tessera_session_run_values alone; of the functions above,
 * tessera_module_input and _output answer TESSERA_UNSUPPORTED for it. The two below answer for every module. */
int32_t tessera_module_has_values(const tessera_module* module);
tessera_status tessera_module_input_value(const tessera_module* module, int32_t index, tessera_value_info* info);
tessera_status tessera_module_output_value(const tessera_module* module, int32_t index, tessera_value_info* info);

/* Runs a module that has values. Inputs are the caller's and are only read. Outputs are made by the run, each in one
 * piece of memory from `allocator`, which may be null for malloc, and belong to the caller, who gives each to
 * tessera_value_free. Memory for what is between comes from `allocator`, too, and is given back before the run ends.
 * On failure there are no outputs. */
tessera_status tessera_session_run_values(tessera_session* session, const tessera_value* const* inputs,
                                          int32_t num_inputs, tessera_value** outputs, int32_t num_outputs,
                                          const tessera_allocator* allocator, tessera_error* error);
void tessera_value_free(tessera_value* value, const tessera_allocator* allocator);

/* Called at the begin (phase 0) and end (phase 1) of every kernel of later runs; null turns it off. */
typedef void (*tessera_trace_fn)(void* user, int32_t kernel, int32_t phase);
void tessera_session_set_trace(tessera_session* session, tessera_trace_fn trace, void* user);

/* Called on each thread at the begin (phase 0) and end (phase 1) of every piece of a kernel's parallel loops that it
 * does in later runs, by several threads at once; `worker` is 0 for the thread that called tessera_session_run and
 * below the session's number of threads. null turns it off. */
typedef void (*tessera_worker_trace_fn)(void* user, int32_t kernel, int32_t worker, int32_t phase);
void tessera_session_set_worker_trace(tessera_session* session, tessera_worker_trace_fn trace, void* user);

/* Called after each operation of a device's queue in later runs, on any thread, with its begin and end in nanoseconds
 * of the clock CLOCK_MONOTONIC; `device` numbers the module's. GPUs are waited for after each operation then, whose
 * length is what the device itself measured. null turns it off, and returns when no call is under way. */
typedef void (*tessera_device_trace_fn)(void* user, int32_t device, const char* operation, int64_t begin_ns,
                                        int64_t end_ns);
void tessera_session_set_device_trace(tessera_session* session, tessera_device_trace_fn trace, void* user);

#ifdef __cplusplus
}
#endif
#endif /* TESSERA_TESSERA_H_ */
