// The strings of one run: each once, found by its number or by its text.
#pragma once

#include "runtime/values/object.h"

namespace tessera {

class StringTable {
 public:
  explicit StringTable(Heap* heap) : heap_(heap) {}
  void clear();

  // The number of the text, which is copied unless `lasting` (it outlives the table). -1 when there is no memory.
  int64_t number(const char* data, size_t size, bool lasting = false);
  tessera_string text(int64_t number) const { return entries_[number]; }
  int64_t size() const { return size_; }

 private:
  bool grow();

  struct Chunk {
    Chunk* next;
    size_t used, capacity;
  };
  Heap* heap_;
  tessera_string* entries_ = nullptr;
  uint32_t* places_ = nullptr;       // number + 1 by hash; 0: free
  int64_t size_ = 0, capacity_ = 0;  // of entries; there are twice as many places, a power of two
  Chunk* chunks_ = nullptr;
};

}  // namespace tessera
