#include "generate/key_value_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>

#include "support/error.h"

namespace tessera::inline generate {

KeyValueCache::KeyValueCache(const std::vector<int64_t>& widths, int64_t context) : widths_(widths), context_(context) {
  constexpr size_t kPage = 4096;
  std::vector<size_t> begins;
  for (const int64_t width : widths) {
    begins.push_back(bytes_);
    bytes_ += (static_cast<size_t>(context * width) * sizeof(float) + kPage - 1) / kPage * kPage;
  }
  if (bytes_ == 0) return;
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) {
    memory_ = nullptr;
    throw UserError({.id = "TSR-7016",
                     .message = fmt::format("there is no memory for {} bytes of keys and values", bytes_),
                     .node = {},
                     .legal = {},
                     .hint = "take a smaller --context"});
  }
  for (const size_t begin : begins) rows_.push_back(reinterpret_cast<float*>(static_cast<std::byte*>(memory_) + begin));
}

KeyValueCache::~KeyValueCache() {
  if (memory_) munmap(memory_, bytes_);
}

size_t KeyValueCache::shared_prefix(std::span<const Token> tokens) const {
  return static_cast<size_t>(std::ranges::mismatch(tokens_, tokens).in1 - tokens_.begin());
}

void KeyValueCache::truncate(size_t count) { tokens_.resize(std::min(count, tokens_.size())); }

int64_t KeyValueCache::bytes_per_token() const {
  return std::accumulate(widths_.begin(), widths_.end(), int64_t{0}) * static_cast<int64_t>(sizeof(float));
}

}  // namespace tessera::inline generate
