#include "runtime/core/module_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/core/bundle.h"
#include "runtime/core/descriptor_check.h"
#include "runtime/core/digest.h"
#include "runtime/core/errors.h"

namespace tessera {

static_assert(sizeof(void*) == 8, "modules are mapped whole; a 32-bit address space is too small");
static_assert(sizeof(tsr_footer) == 144 && sizeof(tsr_descriptor) == 240, "these sizes are part of the file format");

namespace {

constexpr char kAgain[] = "get the file again or compile the model again";

struct Section {
  const char* name;
  uint64_t offset, size;
};

bool all_zero(const uint8_t* begin, const uint8_t* end) {
  return begin == end || (*begin == 0 && memcmp(begin, begin + 1, static_cast<size_t>(end - begin - 1)) == 0);
}

// Everything at once if the kernel lets us; errno tells when it did not.
bool write_all(int fd, const uint8_t* bytes, uint64_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    size -= static_cast<uint64_t>(written);
  }
  return true;
}

}  // namespace

bool ModuleFile::may_alias(uint32_t output, uint32_t input) const {
  const tsr_alias_descr* rows = table<tsr_alias_descr>(descriptor->aliases);
  uint32_t begin = 0, end = descriptor->num_aliases;
  while (begin < end) {
    const uint32_t middle = begin + (end - begin) / 2;
    const tsr_alias_descr& row = rows[middle];
    if (row.output == output && row.input == input) return true;
    if (row.output < output || (row.output == output && row.input < input)) begin = middle + 1;
    else end = middle;
  }
  return false;
}

tessera_status ModuleFile::open_path(const char* path, const char* entry, bool check_weights, tessera_error* error) {
  // O_NONBLOCK: a FIFO must be refused below, not waited for.
  const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (opened >= 0) return open_fd(opened, path, entry, check_weights, error);
  const int reason = errno;
  if (reason == ENOENT || reason == ENOTDIR) {
    return fail(error, kErrNotFound,
                "module file '%s' does not exist; give the path of a file written by "
                "'tessera compile'",
                clip_path(path).text);
  }
  return fail(error, kErrUnreadable, "module file '%s' cannot be opened: %s; a readable file is needed",
              clip_path(path).text, strerror(reason));
}

tessera_status ModuleFile::open_fd(int open_file, const char* file_name, const char* entry, bool check_weights,
                                   tessera_error* error) {
  fd = open_file;
  snprintf(name, sizeof(name), "%s", clip_path(file_name).text);
  const tessera_status status = map_and_check(entry, check_weights, error);
  if (status != TESSERA_OK) close();
  return status;
}

tessera_status ModuleFile::open_memory(const void* bytes, uint64_t num_bytes, const char* entry, bool check_weights,
                                       tessera_error* error) {
  snprintf(name, sizeof(name), "module in memory");
  const tessera_status status = copy_and_check(bytes, num_bytes, entry, check_weights, error);
  if (status != TESSERA_OK) close();
  return status;
}

void ModuleFile::close() {
  if (mapped) munmap(const_cast<uint8_t*>(mapped), mapped_size);
  copy.unmap();
  if (fd >= 0) ::close(fd);
  *this = ModuleFile();
}

tessera_status ModuleFile::map_and_check(const char* entry, bool check_weights, tessera_error* error) {
  struct stat info;
  if (fstat(fd, &info) != 0) {
    return fail(error, kErrUnreadable, "module file '%s' cannot be read: %s; a readable file is needed", name,
                strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return fail(error, kErrUnreadable, "module file '%s' is %s; a regular file written by 'tessera compile' is needed",
                name, S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
  }
  const uint64_t bytes = static_cast<uint64_t>(info.st_size);
  if (const tessera_status status = check_size(bytes, error); status != TESSERA_OK) return status;
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) {
    return fail(error, kErrUnreadable, "module file '%s' cannot be mapped: %s; it has %llu bytes", name,
                strerror(errno), static_cast<unsigned long long>(bytes));
  }
  mapped = static_cast<const uint8_t*>(memory);
  mapped_size = bytes;
  // Only advice: what is not in memory yet comes in huge pages, where the file system has them.
  madvise(memory, bytes, MADV_HUGEPAGE);
  BundlePlace place;
  tessera_status status = find_entry(mapped, bytes, entry, name, &bundle, &place, error);
  if (status != TESSERA_OK) return status;
  data = mapped + place.offset;
  size = place.size;
  status = check_all(check_weights, error);
  if (status != TESSERA_OK || place.offset == 0) return status;
  ::close(fd);  // it does not begin with this code
  return own_file_for_code(error);
}

tessera_status ModuleFile::copy_and_check(const void* bytes, uint64_t num_bytes, const char* entry, bool check_weights,
                                          tessera_error* error) {
  if (const tessera_status status = check_size(num_bytes, error); status != TESSERA_OK) return status;
  BundlePlace place;
  if (const tessera_status status =
          find_entry(static_cast<const uint8_t*>(bytes), num_bytes, entry, name, &bundle, &place, error);
      status != TESSERA_OK)
    return status;
  bytes = static_cast<const uint8_t*>(bytes) + place.offset;
  num_bytes = place.size;
  if (!copy.map(num_bytes)) {
    return fail(error, kErrMemory, "not enough memory to load a module: %llu bytes were refused",
                static_cast<unsigned long long>(num_bytes));
  }
  memcpy(copy.data, bytes, num_bytes);
  mprotect(copy.data, num_bytes, PROT_READ);  // what it protects from are mistakes: a refusal changes nothing
  data = copy.data;
  size = num_bytes;
  if (const tessera_status status = check_all(check_weights, error); status != TESSERA_OK) return status;
  return own_file_for_code(error);
}

// What maps code wants a file that begins with it.
tessera_status ModuleFile::own_file_for_code(tessera_error* error) {
  fd = memfd_create("tessera-module", MFD_CLOEXEC);
  if (fd >= 0 && write_all(fd, code(), footer.code_size)) return TESSERA_OK;
  return fail(error, kErrMemoryFile,
              "a module of %llu bytes in memory cannot be loaded: the kernel refuses an "
              "anonymous file (%s); write the module to a file of its own and load that",
              static_cast<unsigned long long>(size), strerror(errno));
}

tessera_status ModuleFile::check_size(uint64_t bytes, tessera_error* error) const {
  if (bytes >= sizeof(tsr_footer)) return TESSERA_OK;
  return fail(error, kErrNotAModule,
              "'%s' is not a module: it has %llu bytes, and a module's footer alone has %zu; "
              "it is cut off, or not written by 'tessera compile'",
              name, static_cast<unsigned long long>(bytes), sizeof(tsr_footer));
}

tessera_status ModuleFile::check_all(bool check_weights, tessera_error* error) {
  tessera_status status = check_footer(error);
  if (status == TESSERA_OK) status = check_layout(error);
  if (status == TESSERA_OK) status = check_digests(check_weights, error);
  if (status != TESSERA_OK) return status;
  descriptor = reinterpret_cast<const tsr_descriptor*>(data + footer.descriptor_offset);
  return check_descriptor(data + footer.descriptor_offset, footer.descriptor_size, footer.weights_size,
                          footer.images_size, name, error);
}

tessera_status ModuleFile::check_footer(tessera_error* error) {
  memcpy(&footer, data + (size - sizeof(footer)), sizeof(footer));
  const uint8_t* magic = reinterpret_cast<const uint8_t*>(TSR_FOOTER_MAGIC);
  constexpr int kVersionByte = sizeof(footer.magic) - 1;
  if (memcmp(footer.magic, magic, kVersionByte) != 0) {
    const bool elf = memcmp(data, "\177ELF", 4) == 0;
    return fail(error, kErrNotAModule, "'%s' is not a module: its last bytes are not a module's footer; %s", name,
                elf ? "it is a shared object that was cut off, or not written by 'tessera compile'"
                    : "give a file written by 'tessera compile'");
  }
  if (footer.magic[kVersionByte] != magic[kVersionByte]) {
    return fail(error, kErrFormatVersion,
                "'%s' has module format %d; this runtime (%s) reads format %d; compile the "
                "model with the tessera of this runtime's version",
                name, footer.magic[kVersionByte], tessera_version(), magic[kVersionByte]);
  }
  if (module_digest(&footer, offsetof(tsr_footer, footer_digest)) != footer.footer_digest) {
    return fail(error, kErrFooterDigest, "'%s' is damaged: its footer does not match its digest; %s", name, kAgain);
  }
  if (footer.file_size != size) {
    return fail(error, kErrFileSize, "'%s' is damaged: it has %llu bytes and was written with %llu; %s", name,
                static_cast<unsigned long long>(size), static_cast<unsigned long long>(footer.file_size), kAgain);
  }
  return TESSERA_OK;
}

tessera_status ModuleFile::check_layout(tessera_error* error) const {
  const Section sections[] = {{"code", 0, footer.code_size},
                              {"weights", footer.weights_offset, footer.weights_size},
                              {"images", footer.images_offset, footer.images_size},
                              {"descriptor", footer.descriptor_offset, footer.descriptor_size},
                              {"metadata", footer.metadata_offset, footer.metadata_size},
                              {"footer", size - sizeof(tsr_footer), sizeof(tsr_footer)}};
  uint64_t end = 0;  // of the section before; always <= size, so the differences below cannot wrap
  for (const Section& section : sections) {
    const char* wrong = nullptr;
    if (section.offset < end) {
      wrong = "begins inside the section before it";
    } else if (section.offset > size || section.size > size - section.offset) {
      wrong = "does not fit in the file";
    } else if (section.offset - end >= TSR_WEIGHTS_ALIGN) {
      wrong = "is too far from the section before it";
    }
    if (wrong) {
      return fail(error, kErrLayout, "'%s' is damaged: its %s section (offset %llu, %llu bytes) %s; %s", name,
                  section.name, static_cast<unsigned long long>(section.offset),
                  static_cast<unsigned long long>(section.size), wrong, kAgain);
    }
    if (!all_zero(data + end, data + section.offset)) {
      return fail(error, kErrPadding, "'%s' is damaged: the padding before its %s section is not zero; %s", name,
                  section.name, kAgain);
    }
    end = section.offset + section.size;
  }
  const struct {
    const char* name;
    uint64_t offset;
    uint32_t alignment;
  } aligned[] = {{"weights", footer.weights_offset, TSR_WEIGHTS_ALIGN},
                 {"images", footer.images_offset, TSR_BUFFER_ALIGN},
                 {"descriptor", footer.descriptor_offset, TSR_SECTION_ALIGN}};
  for (const auto& section : aligned) {
    if (section.offset % section.alignment == 0) continue;
    return fail(error, kErrLayout, "'%s' is damaged: its %s section is at offset %llu, not at a multiple of %u; %s",
                name, section.name, static_cast<unsigned long long>(section.offset), section.alignment, kAgain);
  }
  return TESSERA_OK;
}

tessera_status ModuleFile::check_digests(bool check_weights, tessera_error* error) const {
  const struct {
    const char* name;
    bool check;
    uint64_t offset, size, digest;
  } sections[] = {{"descriptor", true, footer.descriptor_offset, footer.descriptor_size, footer.descriptor_digest},
                  {"metadata", true, footer.metadata_offset, footer.metadata_size, footer.metadata_digest},
                  {"code", true, 0, footer.code_size, footer.code_digest},
                  {"images", check_weights, footer.images_offset, footer.images_size, footer.images_digest},
                  {"weights", check_weights, footer.weights_offset, footer.weights_size, footer.weights_digest}};
  for (const auto& section : sections) {
    if (!section.check) continue;
    if (module_digest(data + section.offset, section.size) == section.digest) continue;
    return fail(error, kErrSectionDigest, "'%s' is damaged: its %s section does not match its digest; %s", name,
                section.name, kAgain);
  }
  return TESSERA_OK;
}

}  // namespace tessera
