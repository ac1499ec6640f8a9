// A module as data: a file mapped read-only, or a copy of bytes in memory, checked from its last byte to its first.
// Nothing here maps code.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/module_abi.h"
#include "runtime/core/memory.h"
#include "tessera/tessera.h"

namespace tessera {

// The checked file. The pointers below point into the mapping or the copy and live until close().
// Invariant after a successful open: sections are ordered code, weights, images, descriptor, metadata, footer; every
// byte of the file is covered by a digest or by the zero-padding check (but for the weights if their digest was
// skipped); every offset and string of the descriptor is in bounds.
struct ModuleFile {
  int fd = -1;        // of a file that begins with the code
  MemoryRegion copy;  // only of a module in memory
  const uint8_t* data = nullptr;
  uint64_t size = 0;
  const uint8_t* mapped = nullptr;  // the whole file, where it is mapped: `data` is an entry of it
  uint64_t mapped_size = 0;
  tsr_bundle_footer bundle = {};  // of the file, when it is one
  tsr_footer footer = {};
  const tsr_descriptor* descriptor = nullptr;
  char name[244] = {};  // for messages

  const uint8_t* code() const { return data; }
  const uint8_t* weights() const { return data + footer.weights_offset; }
  const uint8_t* images() const { return data + footer.images_offset; }
  const char* metadata() const { return reinterpret_cast<const char*>(data + footer.metadata_offset); }

  const char* text(uint32_t offset) const { return reinterpret_cast<const char*>(descriptor) + offset; }
  const tsr_tensor_descr* inputs() const { return table<tsr_tensor_descr>(descriptor->inputs); }
  const tsr_tensor_descr* outputs() const { return table<tsr_tensor_descr>(descriptor->outputs); }
  const tsr_symbol_descr* symbols() const { return table<tsr_symbol_descr>(descriptor->symbols); }
  const tsr_decided_descr* decided() const { return table<tsr_decided_descr>(descriptor->decided); }
  const tsr_kernel_descr* kernels() const { return table<tsr_kernel_descr>(descriptor->kernels); }
  const tsr_check_descr* checks() const { return table<tsr_check_descr>(descriptor->checks); }
  const tsr_state_descr* states() const { return table<tsr_state_descr>(descriptor->states); }
  const tsr_device_descr* devices() const { return table<tsr_device_descr>(descriptor->devices); }
  const tsr_operation_descr* operations() const { return table<tsr_operation_descr>(descriptor->operations); }
  const tsr_variant_descr* variants() const { return table<tsr_variant_descr>(descriptor->variants); }
  // Whether the output may have the very memory of the input.
  bool may_alias(uint32_t output, uint32_t input) const;
  const tsr_value_descr* value_inputs() const { return table<tsr_value_descr>(descriptor->value_inputs); }
  const tsr_value_descr* value_outputs() const { return table<tsr_value_descr>(descriptor->value_outputs); }
  const tsr_step_descr* steps() const { return table<tsr_step_descr>(descriptor->steps); }
  const tsr_piece_descr* pieces() const { return table<tsr_piece_descr>(descriptor->pieces); }
  const tsr_string_descr* strings() const { return table<tsr_string_descr>(descriptor->strings); }
  const int32_t* slots(uint32_t offset) const { return table<int32_t>(offset); }
  const int64_t* ints(uint32_t offset) const { return table<int64_t>(offset); }
  bool has_values() const { return descriptor->num_steps > 0 || descriptor->num_value_outputs > 0; }

  // Opens and checks the file at `path`, of a bundle the entry of this name; null: the first. On failure nothing stays
  // open.
  tessera_status open_path(const char* path, const char* entry, bool check_weights, tessera_error* error);
  // The same for an open file; takes ownership of `fd` in every case. `name` is for messages.
  tessera_status open_fd(int fd, const char* name, const char* entry, bool check_weights, tessera_error* error);
  // The same for bytes in memory, which are copied: into huge pages where there are some, which a file in memory has
  // not.
  tessera_status open_memory(const void* bytes, uint64_t num_bytes, const char* entry, bool check_weights,
                             tessera_error* error);
  void close();

 private:
  template <typename T>
  const T* table(uint32_t offset) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const uint8_t*>(descriptor) + offset);
  }
  tessera_status map_and_check(const char* entry, bool check_weights, tessera_error* error);
  tessera_status copy_and_check(const void* bytes, uint64_t num_bytes, const char* entry, bool check_weights,
                                tessera_error* error);
  tessera_status check_size(uint64_t bytes, tessera_error* error) const;
  tessera_status own_file_for_code(tessera_error* error);
  tessera_status check_all(bool check_weights, tessera_error* error);
  tessera_status check_footer(tessera_error* error);
  tessera_status check_layout(tessera_error* error) const;
  tessera_status check_digests(bool check_weights, tessera_error* error) const;
};

}  // namespace tessera
