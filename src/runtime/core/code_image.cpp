#include "runtime/core/code_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

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

// A processor may have tiles that the kernel does not give to this process.
const char* or_may_not_use(const char* missing) {
  return strstr(missing, "amx-") ? " or this process may not use" : "";
}

// The variant that TESSERA_VARIANT names, else the first one that this machine can run.
tessera_status choose_variant(const ModuleFile& file, const char** suffix, tessera_error* error) {
  const uint32_t count = file.descriptor->num_variants;
  const char* wanted = getenv("TESSERA_VARIANT");
  if (wanted && !wanted[0]) wanted = nullptr;
  char missing[200] = {}, names[200] = {};
  size_t used = 0;
  bool is_named = false;
  const char* last = nullptr;
  for (uint32_t i = 0; i < count; ++i) {
    const tsr_variant_descr& variant = file.variants()[i];
    const char* name = file.text(variant.name);
    if (used < sizeof(names)) {
      const int more = snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "", clip_name(name).text);
      used += static_cast<size_t>(more > 0 ? more : 0);
    }
    if (wanted && strcmp(name, wanted) != 0) continue;
    is_named = true;
    last = name;
    if (find_missing_cpu_features(file.text(variant.features), missing, sizeof(missing)) > 0) continue;
    *suffix = file.text(variant.suffix);
    return TESSERA_OK;
  }
  if (!is_named)
    return fail(error, kErrVariant, "'%s' has no code for '%s', which TESSERA_VARIANT names; it has: %s", file.name,
                clip_name(wanted ? wanted : "").text, names);
  return fail(error, kErrCpuFeatures,
              "'%s' has code for %s, and this machine can run none of it%s: for %s it does not have%s: %s; compile the "
              "model with --target native on this machine, or with another target this machine has among --variants",
              file.name, names, wanted ? " that TESSERA_VARIANT lets it" : "", clip_name(last).text,
              or_may_not_use(missing), missing);
}

tessera_status check_host(const ModuleFile& file, const char** suffix, tessera_error* error) {
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
  if (file.descriptor->num_variants > 0) return choose_variant(file, suffix, error);
  char missing[200];
  const char* features = file.text(file.descriptor->features);
  if (!find_missing_cpu_features(features, missing, sizeof(missing))) return TESSERA_OK;
  return fail(error, kErrCpuFeatures,
              "'%s' needs CPU features this machine does not have%s: %s (it was compiled with "
              "%s); compile the model with --target native on this machine, or with --target x86-64-v3, x86-64-v2 or "
              "another target this machine has",
              file.name, or_may_not_use(missing), clip_name(missing).text, clip_name(features).text);
}

}  // namespace

tessera_status CodeImage::load(const ModuleFile& file, tessera_error* error) {
  const char* suffix = "";
  const tessera_status status = check_host(file, &suffix, error);
  if (status != TESSERA_OK) return status;
  // Loading through the open descriptor gives the very file that was checked, even if its path now leads to another
  // one, and keeps the dynamic loader from answering with an older file that had the same path. Each load has a path of
  // its own: the loader keeps all names under which it was asked for a file as long as one of them is open, and the
  // number of a module that is gone may be another's by then.
  static std::atomic<uint64_t> loads{0};
  char path[10 + 2 * 64 + 16];
  char* end = stpcpy(path, "/proc/self");
  for (uint64_t load = loads.fetch_add(1, std::memory_order_relaxed); load > 0; load >>= 1)
    end = stpcpy(end, (load & 1) != 0 ? "/." : "/");
  snprintf(end, 16, "/fd/%d", file.fd);
  handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* reason = dlerror();
    return fail(error, kErrCodeLoad,
                "the code of '%s' cannot be loaded: %s; the file system must allow execution, and "
                "/proc must be mounted",
                file.name, clip_name(reason ? reason : "unknown reason").text);
  }
  const char* symbol = TSR_ENTRY_SYMBOL;
  run = reinterpret_cast<tsr_run_fn>(exported(symbol, suffix));
  if (run && file.descriptor->num_computed > 0) {
    symbol = TSR_PREPARE_SYMBOL;
    prepare = reinterpret_cast<tsr_prepare_fn>(exported(symbol, suffix));
  }
  if (run && (prepare || file.descriptor->num_computed == 0)) return TESSERA_OK;
  unload();
  return fail(error, kErrCodeLoad, "the code of '%s' cannot be used: it does not export %s%s; compile the model again",
              file.name, symbol, suffix);
}

void* CodeImage::exported(const char* name, const char* suffix) const {
  char symbol[sizeof(TSR_PREPARE_SYMBOL) + sizeof(TSR_ENTRY_SYMBOL) + TSR_MAX_SUFFIX];
  snprintf(symbol, sizeof(symbol), "%s%s", name, suffix);
  return dlsym(handle, symbol);
}

void CodeImage::unload() {
  if (handle) dlclose(handle);
  *this = CodeImage();
}

}  // namespace tessera
