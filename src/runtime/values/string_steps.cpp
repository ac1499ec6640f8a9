// What makes strings or looks into them.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/values/case_tables.h"
#include "runtime/values/flow_run.h"
#include "runtime/values/moves.h"

namespace tessera {

namespace {

// Text that grows; `failed` when there was no memory.
struct Buffer {
  Heap& heap;
  char* data = nullptr;
  size_t size = 0, capacity = 0;
  bool failed = false;

  explicit Buffer(Heap& memory) : heap(memory) {}
  ~Buffer() {
    if (data) heap.give(data);
  }
  void add(const char* text, size_t length) {
    if (size + length > capacity) {
      const size_t wanted = 2 * (size + length) + 64;
      char* larger = static_cast<char*>(heap.take(wanted));
      if (!larger) {
        failed = true;
        return;
      }
      if (data) {
        memcpy(larger, data, size);
        heap.give(data);
      }
      data = larger;
      capacity = wanted;
    }
    if (length > 0) memcpy(data + size, text, length);
    size += length;
  }
};

int32_t require_strings(Step& step) {
  for (uint32_t i = 0; i < step.row.num_inputs; ++i) {
    const Object* x = step.in(i);
    if (!x || !x->is_tensor() || x->dtype != TSR_STRING) {
      return step.fail("operand %u is no tensor of strings; legal: strings", i);
    }
  }
  return 0;
}

int32_t concat(Step& step) {
  const Object* operands[] = {step.in(0), step.in(1)};
  int32_t rank;
  int64_t dims[TSR_MAX_RANK];
  if (!broadcast_dims(operands, 2, &rank, dims)) {
    return step.fail("operands of shapes %s and %s; legal: shapes that broadcast", dims_text(*operands[0]).text,
                     dims_text(*operands[1]).text);
  }
  Object* result = step.run.heap.make_tensor(TSR_STRING, rank, dims);
  if (!result) return step.no_memory();
  BroadcastWalk a(*operands[0], rank, dims), b(*operands[1], rank, dims);
  Buffer buffer(step.run.heap);
  for (int64_t i = 0; i < result->count; ++i, a.next(), b.next()) {
    const tessera_string x = step.run.strings.text(operands[0]->ints()[a.place]);
    const tessera_string y = step.run.strings.text(operands[1]->ints()[b.place]);
    buffer.size = 0;
    buffer.add(x.data, x.size);
    buffer.add(y.data, y.size);
    const int64_t number = buffer.failed ? -1 : step.run.strings.number(buffer.data, buffer.size);
    if (number < 0) {
      step.run.heap.release(result);
      return step.no_memory();
    }
    result->ints()[i] = number;
  }
  return step.out(0, result);
}

// ---- StringSplit ----

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f); }

// The length of the white space that `text` begins with, one character; 0 when it begins with another.
size_t space_at(const char* text, size_t size) {
  if (size > 0 && is_space(*text)) return 1;
  static const char* const kWide[] = {"\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
                                      "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
                                      "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
                                      "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
  for (const char* wide : kWide) {
    const size_t length = strlen(wide);
    if (size >= length && memcmp(text, wide, length) == 0) return length;
  }
  return 0;
}

struct Splitter {
  const char* text;
  size_t size;
  tessera_string delimiter;  // of no bytes: white space
  int64_t left;              // splits; negative: any number

  // The next part; false behind the last.
  bool next(const char** part, size_t* length) {
    if (!text) return false;
    if (delimiter.size == 0) {
      skip_space();
      if (size == 0) return false;
    }
    *part = text;
    size_t at = 0, gap = 0;
    for (; at < size && left != 0; ++at) {
      gap = delimiter.size == 0 ? space_at(text + at, size - at)
            : size - at >= delimiter.size && memcmp(text + at, delimiter.data, delimiter.size) == 0 ? delimiter.size
                                                                                                    : 0;
      if (gap > 0) break;
    }
    if (left == 0) at = size;
    *length = at;
    if (gap == 0 || left == 0) {
      text = nullptr;
      return true;
    }
    if (left > 0) --left;
    text += at + gap;
    size -= at + gap;
    return true;
  }

 private:
  void skip_space() {
    for (size_t gap; (gap = space_at(text, size)) > 0; text += gap, size -= gap) {
    }
  }
};

int32_t split(Step& step) {
  const Object& x = *step.in(0);
  StringTable& strings = step.run.strings;
  Heap& heap = step.run.heap;
  const tessera_string delimiter = step.number(0) < 0 ? tessera_string{"", 0} : strings.text(step.number(0));
  Object* counts = heap.make_tensor(TSR_I64, x.rank, x.dims);
  if (!counts) return step.no_memory();
  int64_t most = 0;
  for (int64_t i = 0; i < x.count; ++i) {
    const tessera_string text = strings.text(x.ints()[i]);
    Splitter splitter{text.size == 0 ? nullptr : text.data, text.size, delimiter, step.number(1)};
    const char* part;
    size_t length;
    int64_t count = 0;
    while (splitter.next(&part, &length)) ++count;
    // An empty string has one part, itself, where a delimiter is given.
    if (text.size == 0 && delimiter.size > 0) count = 1;
    counts->ints()[i] = count;
    most = count > most ? count : most;
  }
  int64_t dims[TSR_MAX_RANK];
  memcpy(dims, x.dims, sizeof(dims));
  if (x.rank == TSR_MAX_RANK) {
    heap.release(counts);
    return step.fail("a tensor of rank %d; legal: up to %d", x.rank, TSR_MAX_RANK - 1);
  }
  dims[x.rank] = most;
  Object* parts = heap.make_tensor(TSR_STRING, x.rank + 1, dims);
  bool failed = parts == nullptr;
  for (int64_t i = 0; i < x.count && !failed; ++i) {
    const tessera_string text = strings.text(x.ints()[i]);
    Splitter splitter{text.size == 0 ? nullptr : text.data, text.size, delimiter, step.number(1)};
    const char* part;
    size_t length;
    int64_t* out = parts->ints() + i * most;
    for (int64_t k = 0; k < most; ++k) {
      out[k] = splitter.next(&part, &length) ? strings.number(part, length) : 0;
      failed = failed || out[k] < 0;
    }
  }
  if (failed) {
    heap.release(parts);
    heap.release(counts);
    return step.no_memory();
  }
  step.out(1, counts);
  return step.out(0, parts);
}

// ---- StringNormalizer ----

uint32_t changed(uint32_t c, const CaseRange* ranges, size_t count) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (c > ranges[middle].last) low = middle + 1;
    else high = middle;
  }
  if (low == count || c < ranges[low].first || (c - ranges[low].first) % static_cast<uint32_t>(ranges[low].step) != 0) {
    return c;
  }
  return static_cast<uint32_t>(static_cast<int32_t>(c) + ranges[low].distance);
}

uint32_t with_case(uint32_t c, bool upper) {
  if (c < 0x80) return upper ? (c >= 'a' && c <= 'z' ? c - 32 : c) : (c >= 'A' && c <= 'Z' ? c + 32 : c);
  return upper ? changed(c, kToUpper, sizeof(kToUpper) / sizeof(CaseRange))
               : changed(c, kToLower, sizeof(kToLower) / sizeof(CaseRange));
}

// The number of the text in the other case; -1 without memory. Texts are UTF-8.
int64_t case_changed(FlowRun& run, int64_t number, bool upper) {
  const tessera_string text = run.strings.text(number);
  Buffer buffer(run.heap);
  for (size_t i = 0; i < text.size;) {
    const auto byte = [&](size_t k) { return static_cast<uint32_t>(static_cast<unsigned char>(text.data[i + k])); };
    const size_t length = byte(0) < 0x80 ? 1 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
    uint32_t c = length == 1 ? byte(0) : byte(0) & (0xffu >> (length + 1));
    for (size_t k = 1; k < length; ++k) c = c << 6 | (byte(k) & 0x3f);
    i += length;
    c = with_case(c, upper);
    const auto tail = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
    char out[4];
    size_t size = 0;
    if (c < 0x80) {
      out[size++] = static_cast<char>(c);
    } else if (c < 0x800) {
      out[size++] = static_cast<char>(0xc0 | c >> 6);
    } else if (c < 0x10000) {
      out[size++] = static_cast<char>(0xe0 | c >> 12);
      out[size++] = tail(6);
    } else {
      out[size++] = static_cast<char>(0xf0 | c >> 18);
      out[size++] = tail(12);
      out[size++] = tail(6);
    }
    if (c >= 0x80) out[size++] = tail(0);
    buffer.add(out, size);
  }
  return buffer.failed ? -1 : run.strings.number(buffer.data ? buffer.data : "", buffer.size);
}

int32_t normalize(Step& step) {
  const Object& x = *step.in(0);
  if (x.rank != 1 && !(x.rank == 2 && x.dims[0] == 1)) {
    return step.fail("an operand of shape %s; legal: [C] or [1,C]", dims_text(x).text);
  }
  const int64_t action = step.number(0);
  const bool sensitive = step.number(1) != 0;
  const uint32_t words = step.row.num_ints - 2;
  Heap& heap = step.run.heap;
  const int64_t sizes[] = {x.count, words};
  Object* kept = heap.make_tensor(TSR_I64, 1, sizes);
  Object* stops = heap.make_tensor(TSR_I64, 1, sizes + 1);
  bool failed = !kept || !stops;
  for (uint32_t w = 0; w < words && !failed; ++w) {
    stops->ints()[w] = sensitive ? step.number(w + 2) : case_changed(step.run, step.number(w + 2), false);
    failed = stops->ints()[w] < 0;
  }
  int64_t count = 0;
  for (int64_t i = 0; i < x.count && !failed; ++i) {
    int64_t number = x.ints()[i];
    const int64_t compared = sensitive ? number : case_changed(step.run, number, false);
    bool stop = false;
    for (uint32_t w = 0; w < words && !stop; ++w) stop = compared == stops->ints()[w];
    if (!stop && action != 0) number = case_changed(step.run, number, action == 2);
    if (!stop) kept->ints()[count++] = number;
    failed = compared < 0 || number < 0;
  }
  Object* result = nullptr;
  if (!failed) {
    // When nothing is left, one empty string is.
    int64_t dims[] = {1, count == 0 ? 1 : count};
    result = heap.make_tensor(TSR_STRING, x.rank, x.rank == 1 ? dims + 1 : dims);
    if (result) memcpy(result->data(), kept->data(), static_cast<size_t>(count) * sizeof(int64_t));
    if (result && count == 0) result->ints()[0] = 0;
  }
  heap.release(kept);
  heap.release(stops);
  return step.out(0, result);
}

// ---- casts ----

// The fewest digits that read back as the same number, written as most languages do.
int write_float(double value, bool narrow, char* out, size_t size) {
  if (isnan(value)) return snprintf(out, size, "nan");
  if (isinf(value)) return snprintf(out, size, value < 0 ? "-inf" : "inf");
  for (int digits = 1; digits <= 17; ++digits) {
    snprintf(out, size, "%.*e", digits - 1, value);
    if (narrow ? strtof(out, nullptr) == static_cast<float>(value) : strtod(out, nullptr) == value) {
      const long exponent = strtol(strchr(out, 'e') + 1, nullptr, 10);
      if (exponent < -4 || exponent >= 16) return static_cast<int>(strlen(out));
      const long places = digits - 1 - exponent;
      return snprintf(out, size, "%.*f", places < 1 ? 1 : static_cast<int>(places), value);
    }
  }
  return static_cast<int>(strlen(out));
}

int32_t to_string(Step& step) {
  const Object& x = *step.in(0);
  Object* result = step.run.heap.make_tensor(TSR_STRING, x.rank, x.dims);
  if (!result) return step.no_memory();
  for (int64_t i = 0; i < x.count; ++i) {
    char text[64];
    int length = 0;
    switch (x.dtype) {
      case TSR_F32: {
        float value;
        memcpy(&value, x.data() + 4 * i, sizeof(value));
        length = write_float(static_cast<double>(value), true, text, sizeof(text));
        break;
      }
      case TSR_F64: {
        double value;
        memcpy(&value, x.data() + 8 * i, sizeof(value));
        length = write_float(value, false, text, sizeof(text));
        break;
      }
      case TSR_U64: length = snprintf(text, sizeof(text), "%llu", static_cast<unsigned long long>(x.ints()[i])); break;
      case TSR_BOOL: length = snprintf(text, sizeof(text), x.data()[i] ? "True" : "False"); break;
      default: length = snprintf(text, sizeof(text), "%lld", static_cast<long long>(x.ints()[i]));
    }
    const int64_t number = step.run.strings.number(text, static_cast<size_t>(length));
    if (number < 0) {
      step.run.heap.release(result);
      return step.no_memory();
    }
    result->ints()[i] = number;
  }
  return step.out(0, result);
}

int32_t from_string(Step& step) {
  const Object& x = *step.in(0);
  const uint32_t dtype = static_cast<uint32_t>(step.number(0));
  Object* result = step.run.heap.make_tensor(dtype, x.rank, x.dims);
  if (!result) return step.no_memory();
  for (int64_t i = 0; i < x.count; ++i) {
    const tessera_string given = step.run.strings.text(x.ints()[i]);
    char text[128];
    const size_t size = given.size < sizeof(text) - 1 ? given.size : sizeof(text) - 1;
    memcpy(text, given.data, size);
    text[size] = '\0';
    const char* begin = text;
    while (is_space(*begin)) ++begin;
    char* end = text;
    errno = 0;
    if (dtype == TSR_F64) {
      const double value = strtod(begin, &end);
      errno = 0;  // too large and too small have their values
      memcpy(result->data() + 8 * i, &value, sizeof(value));
    } else if (dtype == TSR_U64) {
      const unsigned long long value = strtoull(begin, &end, 10);
      if (*begin == '-') errno = ERANGE;
      result->ints()[i] = static_cast<int64_t>(value);
    } else {
      result->ints()[i] = strtoll(begin, &end, 10);
    }
    const bool read = end != begin && given.size == size && errno == 0;
    while (read && is_space(*end)) ++end;
    if (!read || end != text + size) {
      step.run.heap.release(result);
      for (size_t k = 0; k < size; ++k) text[k] = static_cast<unsigned char>(text[k]) < 0x20 ? '?' : text[k];
      return step.fail("'%.60s' is no number; legal: %s", text,
                       dtype == TSR_F64 ? "numbers such as 3.14 or 1e-5" : "integers of 64 bits");
    }
  }
  return step.out(0, result);
}

// ---- order ----

int compare_texts(const tessera_string& a, const tessera_string& b) {
  const size_t shorter = a.size < b.size ? a.size : b.size;
  const int order = shorter == 0 ? 0 : memcmp(a.data, b.data, shorter);
  if (order != 0) return order;
  return a.size < b.size ? -1 : a.size > b.size ? 1 : 0;
}

// Heap sort: in place, and never quadratic.
void sort_numbers(const StringTable& strings, int64_t* numbers, int64_t count) {
  const auto sift = [&](int64_t root, int64_t end) {
    for (int64_t child; (child = 2 * root + 1) < end; root = child) {
      if (child + 1 < end && compare_texts(strings.text(numbers[child]), strings.text(numbers[child + 1])) < 0) ++child;
      if (compare_texts(strings.text(numbers[root]), strings.text(numbers[child])) >= 0) return;
      const int64_t swapped = numbers[root];
      numbers[root] = numbers[child];
      numbers[child] = swapped;
    }
  };
  for (int64_t root = count / 2 - 1; root >= 0; --root) sift(root, count);
  for (int64_t end = count - 1; end > 0; --end) {
    const int64_t swapped = numbers[0];
    numbers[0] = numbers[end];
    numbers[end] = swapped;
    sift(0, end);
  }
}

int32_t rank(Step& step) {
  const Object& x = *step.in(0);
  Heap& heap = step.run.heap;
  Object* sorted = with_dims(heap, x, 1, &x.count);
  Object* result = heap.make_tensor(TSR_I64, x.rank, x.dims);
  if (sorted && result) {
    int64_t* numbers = sorted->ints();
    sort_numbers(step.run.strings, numbers, x.count);
    int64_t different = 0;
    for (int64_t i = 0; i < x.count; ++i) {
      if (i == 0 || numbers[i] != numbers[i - 1]) numbers[different++] = numbers[i];
    }
    for (int64_t i = 0; i < x.count; ++i) {
      int64_t low = 0, high = different - 1;
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (compare_texts(step.run.strings.text(numbers[middle]), step.run.strings.text(x.ints()[i])) < 0) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      result->ints()[i] = low;
    }
  } else {
    heap.release(result);
    result = nullptr;
  }
  heap.release(sorted);
  return step.out(0, result);
}

}  // namespace

int32_t string_step(Step& step) {
  if (step.row.op == TSR_FLOW_TO_STRING) return to_string(step);
  if (const int32_t code = require_strings(step)) return code;
  switch (step.row.op) {
    case TSR_FLOW_STRING_CONCAT: return concat(step);
    case TSR_FLOW_STRING_SPLIT: return split(step);
    case TSR_FLOW_STRING_NORMALIZE: return normalize(step);
    case TSR_FLOW_FROM_STRING: return from_string(step);
    default: return rank(step);
  }
}

}  // namespace tessera
