#include "runtime/core/bundle.h"

#include <stddef.h>
#include <string.h>

#include "runtime/core/digest.h"
#include "runtime/core/errors.h"

namespace tessera {

static_assert(sizeof(tsr_bundle_footer) == 552, "this size is part of the file format");

namespace {

constexpr char kAgain[] = "get the file again or make it again";

bool is_bundle(const uint8_t* data, uint64_t size) {
  return size >= sizeof(tsr_bundle_footer) && memcmp(data + size - 16, TSR_BUNDLE_MAGIC, 15) == 0;
}

bool ends_in_time(const tsr_bundle_entry& entry) {
  return entry.name[0] != 0 && memchr(entry.name, 0, sizeof(entry.name)) != nullptr;
}

// What is wrong with the table; null: nothing.
const char* fault_of(const tsr_bundle_footer& footer, const uint8_t* data, uint64_t size) {
  if (footer.num_entries == 0 || footer.num_entries > TSR_MAX_ENTRIES) return "has an impossible number of entries";
  if (footer.entries[0].kind != TSR_ENTRY_MODULE) return "does not begin with a module";
  uint64_t end = 0;
  const uint64_t last = size - sizeof(footer);
  const auto pad = [&](uint64_t begin) {
    if (begin < end || begin - end >= TSR_WEIGHTS_ALIGN || begin > last) return false;
    for (; end < begin; ++end)
      if (data[end] != 0) return false;
    return true;
  };
  for (uint64_t i = 0; i < footer.num_entries; ++i) {
    const tsr_bundle_entry& entry = footer.entries[i];
    if (!ends_in_time(entry)) return "has an entry without a name";
    for (uint64_t other = 0; other < i; ++other)
      if (strcmp(footer.entries[other].name, entry.name) == 0) return "has two entries of one name";
    if (entry.offset % TSR_WEIGHTS_ALIGN != 0 || (i == 0 && entry.offset != 0) || !pad(entry.offset))
      return "has an entry that is not where it should be";
    if (entry.size > last - entry.offset) return "has an entry that does not fit";
    if (entry.kind == TSR_ENTRY_MODULE && entry.size < sizeof(tsr_footer)) return "has an entry that is no module";
    end = entry.offset + entry.size;
  }
  return pad(last) ? nullptr : "has bytes that belong to no entry";
}

}  // namespace

tessera_status find_entry(const uint8_t* data, uint64_t size, const char* entry, const char* name,
                          tsr_bundle_footer* footer, BundlePlace* place, tessera_error* error) {
  if (!is_bundle(data, size)) {
    *place = {0, size};
    if (!entry) return TESSERA_OK;
    return fail(error, kErrEntry, "'%s' is one module, which has no entry '%s'; load it without the name of an entry",
                name, clip_name(entry).text);
  }
  memcpy(footer, data + (size - sizeof(*footer)), sizeof(*footer));
  if (footer->magic[15] != static_cast<uint8_t>(TSR_BUNDLE_MAGIC[15])) {
    return fail(error, kErrFormatVersion, "'%s' is a bundle of format %d; this runtime (%s) reads format %d", name,
                footer->magic[15], tessera_version(), TSR_BUNDLE_MAGIC[15]);
  }
  if (module_digest(footer, offsetof(tsr_bundle_footer, digest)) != footer->digest)
    return fail(error, kErrFooterDigest, "'%s' is damaged: its footer does not match its digest; %s", name, kAgain);
  if (footer->file_size != size) {
    return fail(error, kErrFileSize, "'%s' is damaged: it has %llu bytes and was written with %llu; %s", name,
                static_cast<unsigned long long>(size), static_cast<unsigned long long>(footer->file_size), kAgain);
  }
  if (const char* fault = fault_of(*footer, data, size))
    return fail(error, kErrLayout, "'%s' is damaged: it is a bundle that %s; %s", name, fault, kAgain);
  for (uint64_t i = 0; i < footer->num_entries; ++i) {
    const tsr_bundle_entry& row = footer->entries[i];
    if (row.kind != TSR_ENTRY_MODULE || (entry && strcmp(row.name, entry) != 0)) continue;
    *place = {row.offset, row.size};
    return TESSERA_OK;
  }
  char names[TSR_MAX_ENTRIES * (TSR_ENTRY_NAME + 2)];
  size_t length = 0;
  for (uint64_t i = 0; i < footer->num_entries; ++i) {
    const tsr_bundle_entry& row = footer->entries[i];
    if (row.kind != TSR_ENTRY_MODULE) continue;
    if (length > 0) {
      memcpy(names + length, ", ", 2);
      length += 2;
    }
    const size_t bytes = strlen(row.name);
    memcpy(names + length, row.name, bytes);
    length += bytes;
  }
  names[length] = 0;
  return fail(error, kErrEntry, "'%s' has no module called '%s'; it has %s", name, clip_name(entry).text, names);
}

}  // namespace tessera
