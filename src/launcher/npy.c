#include "npy.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// numpy's letters.
static const struct {
  const char* name;
  tessera_dtype dtype;
} kTypes[] = {{"f8", TESSERA_F64},        {"f4", TESSERA_F32},      {"f2", TESSERA_F16},        {"i8", TESSERA_I64},
              {"i4", TESSERA_I32},        {"i2", TESSERA_I16},      {"i1", TESSERA_I8},         {"u8", TESSERA_U64},
              {"u4", TESSERA_U32},        {"u2", TESSERA_U16},      {"u1", TESSERA_U8},         {"b1", TESSERA_BOOL},
              {"V2", TESSERA_BF16},       {"V1", TESSERA_F8E4M3FN}, {"V1", TESSERA_F8E4M3FNUZ}, {"V1", TESSERA_F8E5M2},
              {"V1", TESSERA_F8E5M2FNUZ}, {"V1", TESSERA_F8E8M0}};
enum { kNumTypes = sizeof(kTypes) / sizeof(kTypes[0]), kMaxHeader = 1 << 16 };

static const char kNotNpy[] = "TSR-6211", kType[] = "TSR-6212";
static const char kCutOff[] = "its header asks for more elements than there are bytes";

size_t count_elements(const tessera_tensor* tensor) {
  size_t count = 1;
  for (int32_t axis = 0; axis < tensor->rank; ++axis) count *= (size_t)tensor->dims[axis];
  return count;
}

size_t count_bytes(const tessera_tensor* tensor) {
  return (count_elements(tensor) * (size_t)tessera_dtype_bits(tensor->dtype) + 7) / 8;
}

static size_t number_at(const unsigned char* bytes, int count) {
  size_t number = 0;
  for (int i = count; i-- > 0;) number = number << 8 | bytes[i];
  return number;
}

// The text behind "'key': " in the header of a file; null when it is not there.
static const char* value_of(const char* header, const char* key) {
  const char* at = strstr(header, key);
  if (!at) return NULL;
  at += strlen(key);
  while (*at == ' ') ++at;
  return at;
}

// "(2, 3)". Whether it is one.
static int read_shape(const char* text, tessera_tensor* tensor) {
  if (*text++ != '(') return 0;
  tensor->rank = 0;
  for (;;) {
    while (*text == ' ' || *text == ',') ++text;
    if (*text == ')') return 1;
    char* end = NULL;
    errno = 0;
    const long long dim = strtoll(text, &end, 10);
    if (end == text || errno || dim < 0 || tensor->rank == TESSERA_MAX_RANK) return 0;
    tensor->dims[tensor->rank++] = dim;
    text = *end == 'L' ? end + 1 : end;
  }
}

// Elements whose first axis goes fastest, in row-major order.
static void* transposed(const tessera_tensor* tensor, size_t size) {
  const char* from = tensor->data;
  char* to = malloc(count_bytes(tensor) + 1);
  int64_t index[TESSERA_MAX_RANK] = {0};
  const size_t count = count_elements(tensor);
  for (size_t flat = 0; to && flat < count; ++flat) {
    int64_t source = 0;
    for (int32_t axis = tensor->rank; axis-- > 0;) source = source * tensor->dims[axis] + index[axis];
    memcpy(to + flat * size, from + (size_t)source * size, size);
    for (int32_t axis = tensor->rank; axis-- > 0;) {
      if (++index[axis] < tensor->dims[axis]) break;
      index[axis] = 0;
    }
  }
  return to;
}

static void swap_bytes(unsigned char* data, size_t count, size_t size) {
  for (; count-- > 0; data += size) {
    for (size_t i = 0; i < size / 2; ++i) {
      const unsigned char byte = data[i];
      data[i] = data[size - 1 - i];
      data[size - 1 - i] = byte;
    }
  }
}

// What the header says; the type is `wanted` where the letters may stand for it. Null when it could be read.
static const char* read_header(const char* header, tessera_dtype wanted, tessera_tensor* tensor, int* swapped,
                               int* fortran, const char** id) {
  const char* descr = value_of(header, "'descr':");
  const char* order = value_of(header, "'fortran_order':");
  const char* shape = value_of(header, "'shape':");
  if (!descr || descr[0] != '\'' || !order || !shape) return "its header is not numpy's";
  if (!read_shape(shape, tensor)) return "its header has a shape that no tensor has";
  *fortran = strncmp(order, "True", 4) == 0;
  *swapped = descr[1] == '>';
  tensor->dtype = 0;
  for (int i = 0; i < kNumTypes; ++i) {
    if (!strchr("<>|=", descr[1]) || strncmp(descr + 2, kTypes[i].name, 2) != 0 || descr[4] != '\'') continue;
    if (!tensor->dtype || kTypes[i].dtype == wanted) tensor->dtype = kTypes[i].dtype;
  }
  *id = kType;
  return tensor->dtype ? NULL : "its elements are of a type that tensors do not have; convert the array with astype()";
}

static const char* read_open(FILE* file, tessera_dtype wanted, tessera_tensor* tensor, const char** id) {
  unsigned char start[12];
  if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0) return "it does not begin as one";
  if (start[6] < 1 || start[6] > 3) return "it is of a version that is not known";
  if (start[6] > 1 && fread(start + 10, 1, 2, file) != 2) return "its header is cut off";
  const size_t length = number_at(start + 8, start[6] > 1 ? 4 : 2);
  if (length >= kMaxHeader) return "its header is too long";
  static char header[kMaxHeader];
  if (fread(header, 1, length, file) != length) return "its header is cut off";
  header[length] = 0;
  int swapped = 0, fortran = 0;
  const char* why = read_header(header, wanted, tensor, &swapped, &fortran, id);
  if (why) return why;
  *id = kNotNpy;
  const size_t size = (size_t)tessera_dtype_bits(tensor->dtype) / 8;
  size_t bytes = size;
  for (int32_t axis = 0; axis < tensor->rank; ++axis)
    if (__builtin_mul_overflow(bytes, (size_t)tensor->dims[axis], &bytes)) return kCutOff;
  // Not more than the file has, whatever its header asks for.
  const long begin = ftell(file);
  if (begin < 0 || fseek(file, 0, SEEK_END) != 0) return "it is no regular file";
  const long end = ftell(file);
  if (end < begin || (size_t)(end - begin) < bytes) return kCutOff;
  if (fseek(file, begin, SEEK_SET) != 0) return "it cannot be read";
  tensor->data = malloc(bytes + 1);
  if (!tensor->data) return "there is not enough memory for it";
  if (fread(tensor->data, 1, bytes, file) != bytes) return "it cannot be read";
  if (swapped) swap_bytes(tensor->data, count_elements(tensor), size);
  if (fortran && tensor->rank > 1) {
    void* other = transposed(tensor, size);
    free(tensor->data);
    tensor->data = other;
    if (!other) return "there is not enough memory for it";
  }
  return NULL;
}

const char* read_npy(const char* path, tessera_dtype dtype, tessera_tensor* tensor, const char** id) {
  *tensor = (tessera_tensor){0};
  *id = kNotNpy;
  FILE* file = fopen(path, "rb");
  if (!file) return strerror(errno);
  const char* why = read_open(file, dtype, tensor, id);
  fclose(file);
  if (why) {
    free(tensor->data);
    tensor->data = NULL;
  }
  return why;
}

const char* write_npy(const char* path, const tessera_tensor* tensor) {
  const char* type = NULL;
  for (int i = 0; i < kNumTypes; ++i)
    if (kTypes[i].dtype == tensor->dtype) type = kTypes[i].name;
  if (!type) return ".npy files have no elements of its type";
  char shape[24 * TESSERA_MAX_RANK] = "";
  size_t used = 0;
  for (int32_t axis = 0; axis < tensor->rank; ++axis)
    used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%lld, ", (long long)tensor->dims[axis]);
  char header[1024];
  const int written = snprintf(header, sizeof(header), "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s), }",
                               tessera_dtype_bits(tensor->dtype) > 8 ? '<' : '|', type, shape);
  // The data begins at a multiple of 64; the header ends with a line break.
  const size_t length = ((size_t)written + 11 + 63) / 64 * 64 - 10;
  memset(header + written, ' ', length - 1 - (size_t)written);
  header[length - 1] = '\n';
  const unsigned char start[10] = {
      0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)length, (unsigned char)(length >> 8)};
  FILE* file = fopen(path, "wb");
  if (!file) return strerror(errno);
  const size_t bytes = count_bytes(tensor);
  const int done = fwrite(start, 1, 10, file) == 10 && fwrite(header, 1, length, file) == length &&
                   fwrite(tensor->data, 1, bytes, file) == bytes;
  const int error = errno;
  if (fclose(file) != 0 || !done) return done ? strerror(errno) : strerror(error);
  return NULL;
}
