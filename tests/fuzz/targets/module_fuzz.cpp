// The module loader: what is behind the digests, which this target makes right before it hands the bytes over.
//
// The first byte says how the rest is read:
//   bit 0: the rest is a whole module file, of which the magic, the sizes and the digests are set right (bits 1 and 2
//          leave them as they are); else it is a descriptor, in a module with the code part of this program.
// No foreign code runs: dlopen is replaced (CMakeLists.txt: --wrap=dlopen) and answers with this very program, whose
// entry point does nothing.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#define XXH_INLINE_ALL
#include <elf.h>
#include <xxhash.h>

#include "abi/module_abi.h"
#include "fuzz_target.h"
#include "tessera/tessera.h"

extern "C" {
void* __real_dlopen(const char* path, int flags);
void* __wrap_dlopen(const char* path, int flags) {
  return path && std::strncmp(path, "/proc/self/fd/", 14) == 0 ? __real_dlopen(nullptr, flags)
                                                               : __real_dlopen(path, flags);
}
// What the "code" of every module is.
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call*) { return 0; }
}

namespace {

using tessera::fuzz::require;
using Module = std::vector<uint8_t>;

enum Flags : uint8_t { kWholeFile = 1, kKeepMagic = 2, kKeepDigests = 4 };

constexpr size_t kLargest = 1 << 20;  // of a section that is digested here

void set_digest(const Module& bytes, uint64_t offset, uint64_t size, uint64_t& digest) {
  if (offset <= bytes.size() && size <= bytes.size() - offset) digest = XXH3_64bits(bytes.data() + offset, size);
}

void seal(Module& bytes, uint8_t flags) {
  if (bytes.size() < sizeof(tsr_footer)) return;
  tsr_footer footer;
  uint8_t* const place = bytes.data() + bytes.size() - sizeof(footer);
  std::memcpy(&footer, place, sizeof(footer));
  if (!(flags & kKeepMagic)) std::memcpy(footer.magic, TSR_FOOTER_MAGIC, sizeof(footer.magic));
  if (!(flags & kKeepDigests)) {
    footer.file_size = bytes.size();
    set_digest(bytes, 0, footer.code_size, footer.code_digest);
    set_digest(bytes, footer.weights_offset, footer.weights_size, footer.weights_digest);
    set_digest(bytes, footer.descriptor_offset, footer.descriptor_size, footer.descriptor_digest);
    set_digest(bytes, footer.metadata_offset, footer.metadata_size, footer.metadata_digest);
    footer.footer_digest = XXH3_64bits(&footer, offsetof(tsr_footer, footer_digest));
  }
  std::memcpy(place, &footer, sizeof(footer));
}

// The descriptor in a file that is right in all other parts. The code part is the least that is taken for ELF.
Module around(const uint8_t* descriptor, size_t size) {
  Elf64_Ehdr elf = {};
  std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_ident[EI_DATA] = ELFDATA2LSB;
  elf.e_type = ET_DYN;
  elf.e_machine = EM_X86_64;
  elf.e_phentsize = sizeof(Elf64_Phdr);
  tsr_footer footer = {};
  footer.code_size = sizeof(elf);
  footer.weights_offset = TSR_WEIGHTS_ALIGN;
  footer.descriptor_offset = TSR_WEIGHTS_ALIGN;
  footer.descriptor_size = size;
  footer.metadata_offset = footer.descriptor_offset + size;
  Module bytes(TSR_WEIGHTS_ALIGN + size + sizeof(footer));
  std::memcpy(bytes.data(), &elf, sizeof(elf));
  std::memcpy(bytes.data() + footer.descriptor_offset, descriptor, size);
  std::memcpy(bytes.data() + bytes.size() - sizeof(footer), &footer, sizeof(footer));
  seal(bytes, 0);
  return bytes;
}

void require_clear(tessera_status status, const tessera_error& error) {
  if (status == TESSERA_OK) return;
  require(std::strncmp(error.id, "TSR-7", 5) == 0 && error.status == status, "a failure without an id");
  const size_t length = strnlen(error.message, sizeof(error.message));
  require(length > 0 && length < sizeof(error.message), "a failure without a message");
}

size_t length(const char* text) {
  require(text != nullptr, "a name that is null");
  return std::strlen(text);
}

void visit_tensor(const tessera_tensor_info& info) {
  length(info.name);
  require(tessera_dtype_bits(info.dtype) > 0, "a tensor of a dtype without a size");
  require(info.rank >= 0 && info.rank <= TESSERA_MAX_RANK, "a tensor of a rank out of range");
}

// Asks for everything that a module says of itself.
void visit(const tessera_module* module) {
  for (int32_t i = -1; i <= tessera_module_num_symbols(module); ++i) {
    tessera_symbol_info info = {};
    if (tessera_module_symbol(module, i, &info) == TESSERA_OK) length(info.name);
  }
  for (int32_t i = -1; i <= tessera_module_num_kernels(module); ++i) {
    tessera_kernel_info info = {};
    if (tessera_module_kernel(module, i, &info) == TESSERA_OK) length(info.name);
  }
  const int32_t num_inputs = tessera_module_num_inputs(module), num_outputs = tessera_module_num_outputs(module);
  for (int32_t i = -1; i <= num_inputs; ++i) {
    tessera_tensor_info info = {};
    if (tessera_module_input(module, i, &info) == TESSERA_OK) visit_tensor(info);
    tessera_value_info value = {};
    if (tessera_module_input_value(module, i, &value) == TESSERA_OK) length(value.name);
  }
  for (int32_t i = -1; i <= num_outputs; ++i) {
    tessera_tensor_info info = {};
    if (tessera_module_output(module, i, &info) == TESSERA_OK) visit_tensor(info);
    tessera_value_info value = {};
    if (tessera_module_output_value(module, i, &value) == TESSERA_OK) length(value.name);
    for (int32_t input = -1; input <= num_inputs && input < 20; ++input)
      tessera_module_writes_in_place(module, i, input);
  }
  size_t size = 0;
  tessera_module_metadata(module, &size);
}

// A session and one run of it on tensors of the declared shapes, symbols at their lower ends; what is large is left
// out.
void run(const tessera_module* module) {
  if (tessera_module_arena_bytes(module) > kLargest || tessera_module_has_values(module)) return;
  tessera_session* session = nullptr;
  tessera_error error = {};
  const tessera_session_options options = {sizeof(options), 1};
  tessera_status status = tessera_session_create(module, &options, &session, &error);
  require_clear(status, error);
  if (status != TESSERA_OK) return;
  const auto tensors = [&](int32_t count, auto info_of, std::vector<tessera_tensor>& all, Module& memory) {
    std::vector<size_t> places;
    for (int32_t i = 0; i < count; ++i) {
      tessera_tensor_info info = {};
      info_of(module, i, &info);
      tessera_tensor tensor = {};
      tensor.dtype = info.dtype;
      tensor.rank = info.rank;
      int64_t bits = tessera_dtype_bits(info.dtype);
      for (int32_t d = 0; d < info.rank; ++d) {
        tensor.dims[d] = info.dims[d];
        if (info.dims[d] < 0) {
          tessera_symbol_info symbol = {};
          tessera_module_symbol(module, static_cast<int32_t>(-(info.dims[d] + 1)), &symbol);
          tensor.dims[d] = symbol.lo;
        }
        bits *= tensor.dims[d] < 64 ? tensor.dims[d] : 64;
        if (tensor.dims[d] > 64 || bits > 8 << 16) return false;
      }
      places.push_back(memory.size());
      memory.resize(memory.size() + (static_cast<size_t>(bits) + 1023) / 512 * 64);
      if (memory.size() > kLargest) return false;
      all.push_back(tensor);
    }
    for (size_t i = 0; i < all.size(); ++i) all[i].data = memory.data() + places[i];
    return true;
  };
  std::vector<tessera_tensor> inputs, outputs;
  Module input_memory, output_memory;
  if (tensors(tessera_module_num_inputs(module), tessera_module_input, inputs, input_memory) &&
      tensors(tessera_module_num_outputs(module), tessera_module_output, outputs, output_memory)) {
    status = tessera_session_run(session, inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                                 static_cast<int32_t>(outputs.size()), &error);
    require_clear(status, error);
  }
  tessera_session_free(session);
}

// tessera_module_check reads files only; this one is the same memory under a name.
void check_as_file(const Module& bytes, bool loads) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())) {
    char path[32];
    std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    tessera_error error = {};
    const tessera_status status = tessera_module_check(path, &error);
    require_clear(status, error);
    require(!loads || status == TESSERA_OK, "a module that loads and is refused by tessera_module_check");
  }
  close(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t flags = data[0];
  Module bytes;
  if (flags & kWholeFile) {
    bytes.assign(data + 1, data + size);
    seal(bytes, flags);
  } else {
    bytes = around(data + 1, size - 1);
  }
  tessera_module* module = nullptr;
  tessera_error error = {};
  const tessera_status status = tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error);
  require_clear(status, error);
  check_as_file(bytes, status == TESSERA_OK);
  if (module) {
    visit(module);
    run(module);
  }
  tessera_module_free(module);
  return 0;
}
