#include "runtime/values/string_table.h"

#include <string.h>

namespace tessera {

namespace {

// FNV-1a.
uint64_t hash_of(const char* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<unsigned char>(data[i])) * 0x100000001b3u;
  return hash ^ (hash >> 29);
}

constexpr size_t kChunkBytes = 1 << 14;

}  // namespace

void StringTable::clear() {
  while (chunks_) {
    Chunk* next = chunks_->next;
    heap_->give(chunks_);
    chunks_ = next;
  }
  if (entries_) heap_->give(entries_);
  if (places_) heap_->give(places_);
  entries_ = nullptr;
  places_ = nullptr;
  size_ = capacity_ = 0;
}

bool StringTable::grow() {
  const int64_t capacity = capacity_ == 0 ? 64 : 2 * capacity_;
  if (capacity > INT32_MAX / 4) return false;
  auto* entries = static_cast<tessera_string*>(heap_->take(static_cast<size_t>(capacity) * sizeof(tessera_string)));
  auto* places = static_cast<uint32_t*>(heap_->take(static_cast<size_t>(2 * capacity) * sizeof(uint32_t)));
  if (!entries || !places) {
    if (entries) heap_->give(entries);
    if (places) heap_->give(places);
    return false;
  }
  memset(places, 0, static_cast<size_t>(2 * capacity) * sizeof(uint32_t));
  const uint64_t mask = static_cast<uint64_t>(2 * capacity) - 1;
  for (int64_t i = 0; i < size_; ++i) {
    entries[i] = entries_[i];
    uint64_t place = hash_of(entries[i].data, entries[i].size) & mask;
    while (places[place] != 0) place = (place + 1) & mask;
    places[place] = static_cast<uint32_t>(i) + 1;
  }
  if (entries_) heap_->give(entries_);
  if (places_) heap_->give(places_);
  entries_ = entries;
  places_ = places;
  capacity_ = capacity;
  return true;
}

int64_t StringTable::number(const char* data, size_t size, bool lasting) {
  if (size_ == capacity_ && !grow()) return -1;
  const uint64_t mask = static_cast<uint64_t>(2 * capacity_) - 1;
  uint64_t place = hash_of(data, size) & mask;
  for (; places_[place] != 0; place = (place + 1) & mask) {
    const tessera_string& entry = entries_[places_[place] - 1];
    if (entry.size == size && (size == 0 || memcmp(entry.data, data, size) == 0)) return places_[place] - 1;
  }
  if (!lasting && size > 0) {
    if (!chunks_ || chunks_->capacity - chunks_->used < size) {
      const size_t capacity = size > kChunkBytes ? size : kChunkBytes;
      auto* chunk = static_cast<Chunk*>(heap_->take(sizeof(Chunk) + capacity));
      if (!chunk) return -1;
      *chunk = {chunks_, 0, capacity};
      chunks_ = chunk;
    }
    char* copy = reinterpret_cast<char*>(chunks_ + 1) + chunks_->used;
    memcpy(copy, data, size);
    chunks_->used += size;
    data = copy;
  }
  entries_[size_] = {data, size};
  places_[place] = static_cast<uint32_t>(size_) + 1;
  return size_++;
}

}  // namespace tessera
