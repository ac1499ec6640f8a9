// A module as a program: ./model x.npy y.npy. The module stands behind this program's code in the same file, and a
// trailer (package/executable.h) behind the module.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "abi/executable_trailer.h"
#include "npy.h"

enum { kShownElements = 8 };

typedef struct Port {
  tessera_value_info info;
  const char* path;       // of its .npy file; null: none
  tessera_tensor tensor;  // an input's, from malloc; an output's when a run gave it room
} Port;

static const char* program_name;
static tessera_module* module;
static Port *inputs, *outputs;
static int32_t num_inputs, num_outputs;

// ---- messages ----

static void fail_with(const char* id, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "error %s: ", id);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

static void check(tessera_status status, const tessera_error* error) {
  if (status == TESSERA_OK) return;
  fprintf(stderr, "error %s: %s\n", error->id, error->message);
  exit(status == TESSERA_INTERNAL ? 64 : 1);
}

static void* allocate(size_t bytes) {
  void* memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (!memory) fail_with("TSR-7016", "there are no %zu bytes of memory", bytes);
  return memory;
}

// "f32[batch,3]", around which there may be "seq(...)", "opt(...)" or "map(...)".
static void print_type(FILE* file, const tessera_value_info* info, const tessera_tensor_info* tensor) {
  static const char* const kKinds[] = {"", "seq(", "opt(", "map("};
  for (int32_t i = 0; i < info->num_wrappers; ++i) fputs(kKinds[info->wrappers[i]], file);
  fprintf(file, "%s", info->dtype == TESSERA_STRING ? "string" : tessera_dtype_name(info->dtype));
  if (info->rank < 0) fputs("[*", file);
  for (int32_t axis = 0; axis < info->rank; ++axis) {
    fputc(axis ? ',' : '[', file);
    const int64_t dim = tensor ? tensor->dims[axis] : info->dims[axis];
    tessera_symbol_info symbol;
    if (dim >= 0) fprintf(file, "%lld", (long long)dim);
    else if (tensor && tessera_module_symbol(module, (int32_t)(-dim - 1), &symbol) == TESSERA_OK)
      fputs(symbol.name, file);
    else fputc('?', file);
  }
  fputs(info->rank == 0 ? "[]" : "]", file);
  for (int32_t i = 0; i < info->num_wrappers; ++i) fputc(')', file);
}

static void print_ports(const char* title, const Port* ports, int32_t count, int are_inputs) {
  printf("%s\n", title);
  for (int32_t i = 0; i < count; ++i) {
    tessera_tensor_info tensor;
    const tessera_status known =
        are_inputs ? tessera_module_input(module, i, &tensor) : tessera_module_output(module, i, &tensor);
    printf("  %s: ", ports[i].info.name);
    print_type(stdout, &ports[i].info, known == TESSERA_OK ? &tensor : NULL);
    putchar('\n');
  }
}

static void print_help(void) {
  printf("Usage: %s [OPTIONS] FILE.npy...\n\n", program_name);
  puts(
      "Runs a model once. Files without a name are inputs, in their order, then outputs; NAME=FILE.npy is the input "
      "or\n"
      "output of that name. Outputs without a file are printed.\n");
  print_ports("Inputs:", inputs, num_inputs, 1);
  print_ports("Outputs:", outputs, num_outputs, 0);
  const int32_t num_symbols = tessera_module_num_symbols(module);
  if (num_symbols > 0) puts("Sizes:");
  for (int32_t i = 0; i < num_symbols; ++i) {
    tessera_symbol_info symbol;
    if (tessera_module_symbol(module, i, &symbol) != TESSERA_OK) continue;
    printf("  %s: %lld to %lld", symbol.name, (long long)symbol.lo, (long long)symbol.hi);
    if (symbol.step > 1) printf(", in steps of %lld", (long long)symbol.step);
    putchar('\n');
  }
  puts(
      "\nOptions:\n"
      "  --bench N    Run N times and print how long a run took; inputs without a file are zeros\n"
      "  --threads N  Threads of a run; default: all processors\n"
      "  --version    The version of the runtime in this program\n"
      "  --help       This text");
}

// ---- the module behind the program ----

static void load_module(void) {
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat info;
  if (file < 0 || fstat(file, &info) != 0)
    fail_with("TSR-7002", "the program cannot read itself (/proc/self/exe): %s", strerror(errno));
  const size_t size = (size_t)info.st_size;
  const unsigned char* bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (bytes == MAP_FAILED) fail_with("TSR-7002", "the program cannot read itself: %s", strerror(errno));
  tsr_executable_trailer trailer;
  if (size >= sizeof(trailer)) memcpy(&trailer, bytes + size - sizeof(trailer), sizeof(trailer));
  if (size < sizeof(trailer) || memcmp(trailer.magic, TSR_EXECUTABLE_MAGIC, sizeof(trailer.magic)) != 0 ||
      trailer.module_offset > size || trailer.module_size > size - trailer.module_offset)
    fail_with("TSR-7003",
              "there is no model in this program: it was cut off or stripped; copy the file as it was written");
  tessera_error error = {0};
  check(tessera_module_load_memory(bytes + trailer.module_offset, trailer.module_size, NULL, &module, &error), &error);
  munmap((void*)bytes, size);
  close(file);
}

static void read_ports(void) {
  num_inputs = tessera_module_num_inputs(module);
  num_outputs = tessera_module_num_outputs(module);
  inputs = calloc((size_t)num_inputs + 1, sizeof(Port));
  outputs = calloc((size_t)num_outputs + 1, sizeof(Port));
  if (!inputs || !outputs) fail_with("TSR-7016", "there is not enough memory");
  for (int32_t i = 0; i < num_inputs; ++i) tessera_module_input_value(module, i, &inputs[i].info);
  for (int32_t i = 0; i < num_outputs; ++i) tessera_module_output_value(module, i, &outputs[i].info);
}

// ---- arguments ----

static int32_t number_of(const char* option, const char* text) {
  char* end = NULL;
  const long number = text ? strtol(text, &end, 10) : 0;
  if (!text || end == text || *end || number < 1 || number > 1000000)
    fail_with("TSR-4001", "%s wants a number from 1 on, as in '%s 10'", option, option);
  return (int32_t)number;
}

// The port of that name which has no file yet; of those that have one, the first.
static Port* port_named(const char* name, size_t length) {
  Port* taken = NULL;
  for (int32_t i = 0; i < num_inputs + num_outputs; ++i) {
    Port* port = i < num_inputs ? &inputs[i] : &outputs[i - num_inputs];
    if (strlen(port->info.name) != length || memcmp(port->info.name, name, length) != 0) continue;
    if (!port->path) return port;
    if (!taken) taken = port;
  }
  return taken;
}

static void take(Port* port, const char* path) {
  if (port->path) fail_with("TSR-4011", "'%s' was given two files", port->info.name);
  port->path = path;
}

static void take_file(const char* argument) {
  // Names may have '=' and '/' in them: the longest that is one.
  for (const char* at = argument + strlen(argument); at-- > argument;) {
    Port* named = *at == '=' ? port_named(argument, (size_t)(at - argument)) : NULL;
    if (!named) continue;
    take(named, at + 1);
    return;
  }
  const char* sign = strchr(argument, '=');
  const char* slash = strchr(argument, '/');
  if (sign && !(slash && slash < sign))
    fail_with("TSR-4011", "there is no input or output '%.*s'; '%s --help' lists them", (int)(sign - argument),
              argument, program_name);
  for (int32_t i = 0; i < num_inputs + num_outputs; ++i) {
    Port* port = i < num_inputs ? &inputs[i] : &outputs[i - num_inputs];
    if (port->path) continue;
    port->path = argument;
    return;
  }
  fail_with("TSR-4011", "'%s' is one file too many: the model has %d inputs and %d outputs", argument, num_inputs,
            num_outputs);
}

// ---- running ----

// Zeros of the least sizes.
static void fill_with_zeros(int32_t number) {
  Port* port = &inputs[number];
  tessera_tensor_info info;
  if (tessera_module_input(module, number, &info) != TESSERA_OK)
    fail_with("TSR-6301", "nothing was given for input '%s', whose size is not known", port->info.name);
  port->tensor = (tessera_tensor){.dtype = info.dtype, .rank = info.rank};
  for (int32_t axis = 0; axis < info.rank; ++axis) {
    tessera_symbol_info symbol = {.lo = 1};
    if (info.dims[axis] < 0) tessera_module_symbol(module, (int32_t)(-info.dims[axis] - 1), &symbol);
    port->tensor.dims[axis] = info.dims[axis] < 0 ? symbol.lo : info.dims[axis];
  }
  const size_t bytes = count_bytes(&port->tensor);
  port->tensor.data = allocate(bytes);
  memset(port->tensor.data, 0, bytes);
}

static void read_inputs(int may_be_zeros) {
  for (int32_t i = 0; i < num_inputs; ++i) {
    Port* port = &inputs[i];
    if (!port->path && may_be_zeros) {
      fill_with_zeros(i);
      continue;
    }
    if (!port->path)
      fail_with("TSR-6301", "nothing was given for input '%s'; '%s --help' says what it is", port->info.name,
                program_name);
    if (port->info.num_wrappers > 0 || port->info.dtype == TESSERA_STRING)
      fail_with(
          "TSR-4013",
          "input '%s' is no tensor of numbers, which is all that a .npy file has here; load the module with the C API",
          port->info.name);
    const char* id = NULL;
    const char* why = read_npy(port->path, port->info.dtype, &port->tensor, &id);
    if (why) fail_with(id, "'%s' is not a usable .npy file: %s", port->path, why);
  }
}

// The number that 16 bits stand for: f16, or the upper half of an f32.
static double half_value(uint16_t bits, int is_bf16) {
  if (is_bf16) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
  }
  const int exponent = bits >> 10 & 31;
  double value = bits & 1023;
  if (exponent == 31) {
    value = bits & 1023 ? (double)NAN : (double)INFINITY;
  } else {
    if (exponent > 0) value += 1024;
    // The least subnormal is 2^-24.
    for (int e = exponent > 0 ? exponent - 1 : 0; e > 0; --e) value *= 2;
    value /= 16777216;
  }
  return bits >> 15 ? -value : value;
}

static void print_element(const tessera_tensor* tensor, size_t i) {
  const char* data = tensor->data;
  switch (tensor->dtype) {
    case TESSERA_F32: printf(" %g", (double)((const float*)data)[i]); break;
    case TESSERA_F64: printf(" %g", ((const double*)data)[i]); break;
    case TESSERA_I64: printf(" %lld", (long long)((const int64_t*)data)[i]); break;
    case TESSERA_I32: printf(" %d", ((const int32_t*)data)[i]); break;
    case TESSERA_U64: printf(" %llu", (unsigned long long)((const uint64_t*)data)[i]); break;
    case TESSERA_U32: printf(" %u", ((const uint32_t*)data)[i]); break;
    case TESSERA_I16: printf(" %d", ((const int16_t*)data)[i]); break;
    case TESSERA_U16: printf(" %d", ((const uint16_t*)data)[i]); break;
    case TESSERA_F16: printf(" %g", half_value(((const uint16_t*)data)[i], 0)); break;
    case TESSERA_BF16: printf(" %g", half_value(((const uint16_t*)data)[i], 1)); break;
    case TESSERA_I8: printf(" %d", ((const signed char*)data)[i]); break;
    case TESSERA_U8:
    case TESSERA_BOOL: printf(" %d", ((const unsigned char*)data)[i]); break;
    default: break;
  }
}

static void give(const Port* port, const tessera_tensor* tensor) {
  if (port->path) {
    const char* why = write_npy(port->path, tensor);
    if (why) fail_with("TSR-6101", "output '%s' cannot be written to '%s': %s", port->info.name, port->path, why);
    return;
  }
  printf("%s: ", port->info.name);
  tessera_value_info info = {.dtype = tensor->dtype, .rank = tensor->rank};
  memcpy(info.dims, tensor->dims, sizeof(info.dims));
  print_type(stdout, &info, NULL);
  const size_t count = count_elements(tensor);
  for (size_t i = 0; i < count && i < kShownElements; ++i) print_element(tensor, i);
  puts(count > kShownElements ? " ..." : "");
}

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static int compare_times(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

// What one run does, whatever the module has; `bench` counts how often it is done again.
typedef void (*RunFn)(tessera_session* session, void* memory);

static void run_and_time(RunFn run, tessera_session* session, void* memory, int32_t bench) {
  run(session, memory);
  if (bench == 0) return;
  double* times = allocate(sizeof(double) * (size_t)bench);
  for (int32_t i = 0; i < bench; ++i) {
    const double begin = milliseconds();
    run(session, memory);
    times[i] = milliseconds() - begin;
  }
  qsort(times, (size_t)bench, sizeof(double), compare_times);
  printf("%d runs on %d threads: median %.3f ms, min %.3f, max %.3f\n", bench, tessera_session_num_threads(session),
         times[bench / 2], times[0], times[bench - 1]);
  free(times);
}

typedef struct Tensors {
  tessera_tensor *in, *out;
} Tensors;

static void run_tensors(tessera_session* session, void* memory) {
  const Tensors* tensors = memory;
  tessera_error error = {0};
  check(tessera_session_run(session, tensors->in, num_inputs, tensors->out, num_outputs, &error), &error);
}

static void run_module(tessera_session* session, int32_t bench) {
  Tensors tensors = {calloc((size_t)num_inputs + 1, sizeof(tessera_tensor)),
                     calloc((size_t)num_outputs + 1, sizeof(tessera_tensor))};
  if (!tensors.in || !tensors.out) fail_with("TSR-7016", "there is not enough memory");
  for (int32_t i = 0; i < num_inputs; ++i) tensors.in[i] = inputs[i].tensor;
  tessera_error error = {0};
  if (tessera_module_num_symbols(module) > 0)
    check(tessera_session_prepare(session, tensors.in, num_inputs, &error), &error);
  for (int32_t i = 0; i < num_outputs; ++i) {
    tessera_tensor_info info;
    if (tessera_session_output(session, i, &info) != TESSERA_OK) tessera_module_output(module, i, &info);
    tensors.out[i] = (tessera_tensor){.dtype = info.dtype, .rank = info.rank};
    memcpy(tensors.out[i].dims, info.dims, sizeof(info.dims));
    tensors.out[i].data = allocate(count_bytes(&tensors.out[i]));
  }
  run_and_time(run_tensors, session, &tensors, bench);
  for (int32_t i = 0; i < num_outputs; ++i) {
    tessera_tensor_info info;  // data may have decided its dimensions
    if (tessera_module_decides_shapes(module) && tessera_session_output(session, i, &info) == TESSERA_OK)
      memcpy(tensors.out[i].dims, info.dims, sizeof(info.dims));
    if (outputs[i].path || bench == 0) give(&outputs[i], &tensors.out[i]);
    free(tensors.out[i].data);
  }
  free(tensors.in);
  free(tensors.out);
}

typedef struct Values {
  const tessera_value** in;
  tessera_value** out;
} Values;

static void run_values(tessera_session* session, void* memory) {
  Values* values = memory;
  for (int32_t i = 0; i < num_outputs; ++i) tessera_value_free(values->out[i], NULL);
  memset(values->out, 0, sizeof(*values->out) * (size_t)num_outputs);
  tessera_error error = {0};
  check(tessera_session_run_values(session, values->in, num_inputs, values->out, num_outputs, NULL, &error), &error);
}

// A module with values: those of its inputs and outputs that are tensors of numbers.
static void run_module_of_values(tessera_session* session, int32_t bench) {
  tessera_value* in = calloc((size_t)num_inputs + 1, sizeof(tessera_value));
  Values values = {calloc((size_t)num_inputs + 1, sizeof(*values.in)),
                   calloc((size_t)num_outputs + 1, sizeof(*values.out))};
  if (!in || !values.in || !values.out) fail_with("TSR-7016", "there is not enough memory");
  for (int32_t i = 0; i < num_inputs; ++i) {
    in[i] = (tessera_value){.kind = TESSERA_TENSOR,
                            .dtype = inputs[i].tensor.dtype,
                            .rank = inputs[i].tensor.rank,
                            .data = inputs[i].tensor.data};
    memcpy(in[i].dims, inputs[i].tensor.dims, sizeof(in[i].dims));
    values.in[i] = &in[i];
  }
  run_and_time(run_values, session, &values, bench);
  for (int32_t i = 0; i < num_outputs; ++i) {
    const tessera_value* value = values.out[i];
    const int is_tensor = value->kind == TESSERA_TENSOR && value->dtype != TESSERA_STRING;
    if (!is_tensor && outputs[i].path)
      fail_with(
          "TSR-4013",
          "output '%s' is no tensor of numbers, which is all that a .npy file has here; load the module with the C API",
          outputs[i].info.name);
    if (!is_tensor) {
      printf("%s: ", outputs[i].info.name);
      print_type(stdout, &outputs[i].info, NULL);
      putchar('\n');
    } else if (outputs[i].path || bench == 0) {
      tessera_tensor tensor = {.data = (void*)value->data, .dtype = value->dtype, .rank = value->rank};
      memcpy(tensor.dims, value->dims, sizeof(tensor.dims));
      give(&outputs[i], &tensor);
    }
    tessera_value_free(values.out[i], NULL);
  }
  free(in);
  free(values.in);
  free(values.out);
}

int main(int argc, char** argv) {
  program_name = argc > 0 ? argv[0] : "model";
  load_module();
  read_ports();
  int32_t bench = 0;
  tessera_session_options options = {.size = sizeof(options)};
  for (int i = 1; i < argc; ++i) {
    const char* argument = argv[i];
    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
      print_help();
      return 0;
    }
    if (strcmp(argument, "--version") == 0) {
      printf("tessera %s\n", tessera_version());
      return 0;
    }
    if (strcmp(argument, "--bench") == 0) bench = number_of(argument, argv[++i]);
    else if (strcmp(argument, "--threads") == 0) options.num_threads = number_of(argument, argv[++i]);
    else if (argument[0] == '-' && argument[1])
      fail_with("TSR-4001", "there is no option %s; '%s --help' lists them", argument, program_name);
    else take_file(argument);
  }
  read_inputs(bench > 0);
  tessera_session* session = NULL;
  tessera_error error = {0};
  check(tessera_session_create(module, &options, &session, &error), &error);
  if (tessera_module_has_values(module)) run_module_of_values(session, bench);
  else run_module(session, bench);
  for (int32_t i = 0; i < num_inputs; ++i) free(inputs[i].tensor.data);
  free(inputs);
  free(outputs);
  tessera_session_free(session);
  tessera_module_free(module);
  return fflush(stdout) == 0 ? 0 : 1;
}
