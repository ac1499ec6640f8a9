// An accelerator that is simulated: memories of its own, a queue's scratch memory, and coded instructions, which are
// done one after the other as they stand in a stream. What an instruction computes is code of the host that came with
// the image (abi/accel_abi.h). Tokens are left out: a stream is proven to give in any order that they allow what it
// gives in its own.
//
// TESSERA_ACCEL_FAIL=N makes the N-th operation of each queue fail.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/accel_abi.h"
#include "abi/device_abi.h"
#include "abi/module_abi.h"
#include "runtime/process/process_device.h"

namespace tessera {

namespace {

using Entry = void (*)(void** slots, const tsr_host* host);

struct Image {
  uint8_t* bytes;  // a copy
  const tsr_accel_header* header;
  ProcessCode code;
  Entry* entries;  // of each kind
  ProcessOperation* operations;
};

struct Operation : ProcessOperation {
  const Image* image;
  const tsr_accel_operation* row;
};

template <typename T>
const T* at(const Image& image, uint64_t offset) {
  return reinterpret_cast<const T*>(image.bytes + offset);
}

// ---- images ----

bool lies_inside(const tsr_accel_header& header, uint64_t offset, uint64_t count, uint64_t each) {
  return offset % 8 == 0 && offset <= header.size && count <= (header.size - offset) / each;
}

// Whether tables lie inside of the image, and numbers fit what they count.
bool is_sound(const Image& image, uint64_t size) {
  const tsr_accel_header& header = *image.header;
  if (size < sizeof(header) || memcmp(header.magic, TSR_ACCEL_MAGIC, sizeof(TSR_ACCEL_MAGIC)) != 0 ||
      header.size != size)
    return false;
  if (header.words == 0 || !lies_inside(header, header.memories, header.num_memories, sizeof(tsr_accel_memory)) ||
      !lies_inside(header, header.kinds, header.num_kinds, sizeof(tsr_accel_kind)) ||
      !lies_inside(header, header.operations, header.num_operations, sizeof(tsr_accel_operation)) ||
      !lies_inside(header, header.code, header.code_bytes, 1))
    return false;
  for (uint32_t k = 0; k < header.num_kinds; ++k) {
    const tsr_accel_kind& kind = at<tsr_accel_kind>(image, header.kinds)[k];
    if (!lies_inside(header, kind.operands, kind.num_operands, sizeof(uint32_t)) ||
        !lies_inside(header, kind.fields, kind.num_fields, sizeof(tsr_accel_field)))
      return false;
    uint64_t bits = 0, slots = kind.num_operands + uint64_t{1};
    for (uint32_t p = 0; p < kind.num_operands; ++p) {
      const uint32_t memory = at<uint32_t>(image, kind.operands)[p];
      if (memory != TSR_ACCEL_DRAM && memory >= header.num_memories) return false;
    }
    for (uint32_t f = 0; f < kind.num_fields; ++f) {
      const tsr_accel_field& field = at<tsr_accel_field>(image, kind.fields)[f];
      if (field.bits == 0 || field.bits > 64 || field.width == 0 ||
          (field.role != TSR_ACCEL_SKIPPED && field.role != TSR_ACCEL_NUMBER && field.operand >= kind.num_operands))
        return false;
      bits += field.bits;
      slots += 2;
    }
    if (bits > header.words * uint64_t{64} || slots > TSR_ACCEL_MOST_SLOTS) return false;
  }
  for (uint32_t i = 0; i < header.num_operations; ++i) {
    const tsr_accel_operation& row = at<tsr_accel_operation>(image, header.operations)[i];
    if (!lies_inside(header, row.instructions, row.num_instructions, header.words * uint64_t{8}) ||
        !lies_inside(header, row.segments, row.num_segments, sizeof(uint64_t)) || row.entry >= header.size)
      return false;
  }
  return true;
}

void unload(void*, void* loaded) {
  auto* image = static_cast<Image*>(loaded);
  if (image->code.handle) process_unload_code(image->code);
  while (ProcessOperation* operation = image->operations) {
    image->operations = operation->next;
    free(operation->name);
    free(operation);
  }
  free(image->entries);
  free(image->bytes);
  free(image);
}

// The functions of the code. False where one is missing.
bool find_entries(Image* image) {
  const tsr_accel_header& header = *image->header;
  image->entries = static_cast<Entry*>(calloc(header.num_kinds + size_t{1}, sizeof(Entry)));
  if (!image->entries) return false;
  for (uint32_t k = 0; k < header.num_kinds; ++k) {
    char name[32];
    snprintf(name, sizeof(name), "op_%u", k);
    image->entries[k] = reinterpret_cast<Entry>(dlsym(image->code.handle, name));
    if (!image->entries[k]) return false;
  }
  return true;
}

int32_t load(void*, const void* bytes, uint64_t size, void** loaded, char* message) {
  auto* image = static_cast<Image*>(calloc(1, sizeof(Image)));
  if (image) image->bytes = static_cast<uint8_t*>(aligned_alloc(64, (size + 63) / 64 * 64));
  if (!image || !image->bytes) {
    snprintf(message, TSR_DEVICE_MESSAGE, "no memory for an image");
    free(image);
    return -1;
  }
  memcpy(image->bytes, bytes, size);
  image->header = reinterpret_cast<const tsr_accel_header*>(image->bytes);
  if (!is_sound(*image, size)) {
    snprintf(message, TSR_DEVICE_MESSAGE, "this is no image of an accelerator");
    free(image->bytes);
    free(image);
    return -1;
  }
  if (process_load_code(image->bytes + image->header->code, image->header->code_bytes, &image->code, message) < 0) {
    unload(nullptr, image);
    return -1;
  }
  if (!find_entries(image)) {
    snprintf(message, TSR_DEVICE_MESSAGE, "the code for the unit's instructions is not whole");
    unload(nullptr, image);
    return -1;
  }
  *loaded = image;
  return 0;
}

void* find(void* loaded, const char* name) {
  auto* image = static_cast<Image*>(loaded);
  for (uint32_t i = 0; i < image->header->num_operations; ++i) {
    const tsr_accel_operation* row = at<tsr_accel_operation>(*image, image->header->operations) + i;
    if (strcmp(at<char>(*image, row->entry), name) != 0) continue;
    auto* operation = static_cast<Operation*>(calloc(1, sizeof(Operation)));
    char* own_name = operation ? strdup(name) : nullptr;
    if (!own_name) {
      free(operation);
      return nullptr;
    }
    operation->image = image;
    operation->row = row;
    operation->name = own_name;
    operation->next = image->operations;
    return image->operations = operation;
  }
  return nullptr;
}

// ---- instructions ----

// Takes bits one after the other.
struct Bits {
  const uint64_t* words;
  uint64_t at = 0;

  int64_t take(const tsr_accel_field& field) {
    const uint32_t shift = at % 64, width = field.bits;
    uint64_t value = words[at / 64] >> shift;
    if (shift + width > 64) value |= words[at / 64 + 1] << (64 - shift);
    at += width;
    if (width == 64) return static_cast<int64_t>(value);
    value &= (uint64_t{1} << width) - 1;
    if (field.is_signed && (value >> (width - 1) & 1)) value |= ~uint64_t{0} << width;
    return static_cast<int64_t>(value);
  }
};

uint32_t kind_of(const Image& image, const uint64_t* words) {
  const tsr_accel_kind& first = at<tsr_accel_kind>(image, image.header->kinds)[0];
  return static_cast<uint32_t>(Bits{words}.take(at<tsr_accel_field>(image, first.fields)[0]));
}

void* as_slot(int64_t value) { return reinterpret_cast<void*>(static_cast<intptr_t>(value)); }

bool do_instruction(const Image& image, const tsr_accel_operation& row, const uint64_t* words, void** segments,
                    uint8_t* scratch) {
  const uint32_t number = kind_of(image, words);
  if (number >= image.header->num_kinds) return false;
  const tsr_accel_kind& kind = at<tsr_accel_kind>(image, image.header->kinds)[number];
  void* slots[TSR_ACCEL_MOST_SLOTS];
  uint64_t sizes[TSR_ACCEL_MOST_SLOTS] = {};
  for (uint32_t p = 0; p < kind.num_operands; ++p) {
    const uint32_t memory = at<uint32_t>(image, kind.operands)[p];
    if (memory == TSR_ACCEL_DRAM) continue;
    const tsr_accel_memory& of = at<tsr_accel_memory>(image, image.header->memories)[memory];
    slots[p] = scratch + of.offset;
    sizes[p] = of.bytes;
  }
  uint32_t next = kind.num_operands;
  slots[next++] = nullptr;
  Bits bits{words};
  for (uint32_t f = 0; f < kind.num_fields; ++f) {
    const tsr_accel_field& field = at<tsr_accel_field>(image, kind.fields)[f];
    const int64_t value = bits.take(field);
    const int64_t element = field.element, width = field.width;
    switch (field.role) {
      case TSR_ACCEL_NUMBER: slots[next++] = as_slot(value); break;
      case TSR_ACCEL_SEGMENT:
        if (value < 0 || value >= row.num_segments) return false;
        slots[field.operand] = segments[value];
        sizes[field.operand] = at<uint64_t>(image, row.segments)[value];
        break;
      case TSR_ACCEL_BASE:
        slots[next++] = as_slot(static_cast<int64_t>(sizes[field.operand]) / width);
        slots[next++] = as_slot(value * element / width);
        break;
      case TSR_ACCEL_STRIDE: slots[next++] = as_slot(value * element / width); break;
      default: break;
    }
  }
  static const tsr_host nobody = {};
  image.entries[number](slots, &nobody);
  return true;
}

int32_t run(const ProcessOperation* wanted, void** slots, void* scratch) {
  const auto* operation = static_cast<const Operation*>(wanted);
  const Image& image = *operation->image;
  // Nothing is left of the operation before.
  auto* memories = static_cast<uint8_t*>(scratch);
  for (uint32_t m = 0; m < image.header->num_memories; ++m) {
    const tsr_accel_memory& memory = at<tsr_accel_memory>(image, image.header->memories)[m];
    memset(memories + memory.offset, 0xa5, memory.bytes);
  }
  const auto* words = at<uint64_t>(image, operation->row->instructions);
  for (uint64_t i = 0; i < operation->row->num_instructions; ++i)
    if (!do_instruction(image, *operation->row, words + i * image.header->words, slots, memories)) return -1;
  return 0;
}

constexpr ProcessKind kAccelerator = {run, "TESSERA_ACCEL_FAIL"};

int32_t open_queue(void*, uint32_t num_tokens, uint64_t scratch_bytes, void** queue, char* message) {
  return process_open_queue(&kAccelerator, num_tokens, scratch_bytes, queue, message);
}

}  // namespace

}  // namespace tessera

extern "C" __attribute__((visibility("default"))) const tsr_device_functions tessera_device_accel;
extern "C" const tsr_device_functions tessera_device_accel =
    tessera::process_functions(tessera::load, tessera::unload, tessera::find, tessera::open_queue);
