#include "runtime/core/code_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "runtime/core/errors.h"
#include "runtime/cpu/cpu_features.h"

namespace tessera {

namespace {

#if defined(__x86_64__)
constexpr uint16_t kHostMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kHostMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr uint16_t kHostMachine = EM_RISCV;
#else
#error "name the ELF machine of this processor here"
#endif

const char* machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64: return "x86-64";
    case EM_AARCH64: return "aarch64";
    case EM_RISCV: return "riscv";
    case EM_386: return "x86 (32-bit)";
    case EM_ARM: return "arm (32-bit)";
    case EM_PPC64: return "ppc64";
    case EM_S390: return "s390";
    default: return "an unknown machine";
  }
}

// The checks below keep the dynamic loader from mapping anything but the code part; what the code does is the
// business of whoever trusts the module.
const char* elf_fault(const uint8_t* code, uint64_t size) {
  Elf64_Ehdr header;
  if (size < sizeof(header)) return "is too short";
  memcpy(&header, code, sizeof(header));
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "is not ELF";
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "is not 64-bit ELF";
  if (header.e_ident[EI_DATA] != (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)) {
    return "has another byte order";
  }
  if (header.e_type != ET_DYN) return "is not a shared object";
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > size ||
      header.e_phnum > (size - header.e_phoff) / sizeof(Elf64_Phdr)) {
    return "has program headers that do not fit";
  }
  for (uint32_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    memcpy(&segment, code + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type == PT_LOAD && (segment.p_offset > size || segment.p_filesz > size - segment.p_offset)) {
      return "has a segment that does not fit";
    }
  }
  return nullptr;
}

tessera_status check_host(const ModuleFile& file, tessera_error* error) {
  if (const char* fault = elf_fault(file.code(), file.footer.code_size)) {
    return fail(error, kErrElf, "'%s' cannot be run: its code part %s; compile the model again", file.name, fault);
  }
  Elf64_Ehdr header;
  memcpy(&header, file.code(), sizeof(header));
  if (header.e_machine != kHostMachine) {
    return fail(error, kErrMachine,
                "'%s' was compiled for %s (target %s) and this machine is %s; compile the model "
                "with --target native here, or run it on %s",
                file.name, machine_name(header.e_machine), clip_name(file.text(file.descriptor->target)).text,
                machine_name(kHostMachine), machine_name(header.e_machine));
  }
  char missing[200];
  const char* features = file.text(file.descriptor->features);
  if (!find_missing_cpu_features(features, missing, sizeof(missing))) return TESSERA_OK;
  // A processor may have tiles that the kernel does not give to this process.
  const char* tiles = strstr(missing, "amx-") ? " or this process may not use" : "";
  return fail(error, kErrCpuFeatures,
              "'%s' needs CPU features this machine does not have%s: %s (it was compiled with "
              "%s); compile the model with --target native on this machine, or with --target x86-64-v3, x86-64-v2 or "
              "another target this machine has",
              file.name, tiles, clip_name(missing).text, clip_name(features).text);
}

}  // namespace

tessera_status CodeImage::load(const ModuleFile& file, tessera_error* error) {
  const tessera_status status = check_host(file, error);
  if (status != TESSERA_OK) return status;
  // Loading through the open descriptor gives the very file that was checked, even if its path now leads to another
  // one, and keeps the dynamic loader from answering with an older file that had the same path. The number stays
  // taken as long as the code is loaded, so no two live modules share a name.
  char path[32];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", file.fd);
  handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* reason = dlerror();
    return fail(error, kErrCodeLoad,
                "the code of '%s' cannot be loaded: %s; the file system must allow execution, and "
                "/proc must be mounted",
                file.name, clip_name(reason ? reason : "unknown reason").text);
  }
  run = reinterpret_cast<tsr_run_fn>(dlsym(handle, TSR_ENTRY_SYMBOL));
  if (!run) {
    unload();
    return fail(error, kErrCodeLoad,
                "the code of '%s' cannot be used: it does not export " TSR_ENTRY_SYMBOL "; compile the model again",
                file.name);
  }
  if (file.descriptor->num_computed == 0) return TESSERA_OK;
  prepare = reinterpret_cast<tsr_prepare_fn>(dlsym(handle, TSR_PREPARE_SYMBOL));
  if (!prepare) {
    unload();
    return fail(error, kErrCodeLoad,
                "the code of '%s' cannot be used: it does not export " TSR_PREPARE_SYMBOL "; compile the model again",
                file.name);
  }
  return TESSERA_OK;
}

void CodeImage::unload() {
  if (handle) dlclose(handle);
  *this = CodeImage();
}

}  // namespace tessera
