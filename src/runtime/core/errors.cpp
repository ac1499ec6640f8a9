#include "runtime/core/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

namespace tessera {

namespace {

constexpr size_t kMaxClipped = sizeof(ClippedText::text) - 4;  // room for "..." and the NUL

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u; }

void copy_printable(char* to, const char* from, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    const unsigned char c = static_cast<unsigned char>(from[i]);
    to[i] = c < 0x20 || c == 0x7f ? '?' : from[i];
  }
  to[size] = 0;
}

}  // namespace

tessera_status fail(tessera_error* error, const RuntimeErrorKind& kind, const char* format, ...) {
  if (error) {
    error->status = kind.status;
    snprintf(error->id, sizeof(error->id), "%s", kind.id);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
  }
  return kind.status;
}

ClippedText clip_name(const char* name) {
  ClippedText clipped;
  size_t size = strlen(name);
  if (size <= kMaxClipped) {
    copy_printable(clipped.text, name, size);
    return clipped;
  }
  size = kMaxClipped;
  while (size > 0 && is_continuation(name[size])) --size;
  copy_printable(clipped.text, name, size);
  memcpy(clipped.text + size, "...", 4);
  return clipped;
}

ClippedText clip_path(const char* path) {
  ClippedText clipped;
  const size_t size = strlen(path);
  if (size <= kMaxClipped) {
    copy_printable(clipped.text, path, size);
    return clipped;
  }
  const char* tail = path + (size - kMaxClipped);
  while (is_continuation(*tail)) ++tail;
  memcpy(clipped.text, "...", 3);
  copy_printable(clipped.text + 3, tail, static_cast<size_t>(path + size - tail));
  return clipped;
}

}  // namespace tessera
