// Compiled modules kept between runs, so that `tessera run MODEL.onnx` compiles a model once.
//
// The folder is TESSERA_CACHE_DIR, else XDG_CACHE_HOME/tessera, else HOME/.cache/tessera; its size is held under
// TESSERA_CACHE_SIZE (a number with an optional k, M or G; default 2G; 0 turns the cache off) by removing what was not
// used for longest. Entries appear whole or not at all, so several processes may share a folder. A cache that cannot
// be used only costs time: every function here reports problems through `warn` and goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "driver/engine/model.h"

namespace tessera::inline driver {

using Warn = std::function<void(const std::string& text)>;

class ModuleCache {
 public:
  // From the environment. Empty folder: no cache.
  static ModuleCache from_environment(Warn warn);
  ModuleCache(std::string folder, uint64_t capacity_bytes, Warn warn);

  const std::string& folder() const { return folder_; }
  uint64_t capacity_bytes() const { return capacity_; }
  bool enabled() const { return !folder_.empty() && capacity_ > 0; }
  // The entry for `key` (the name of a file without its ending), loaded and called `name`; null when there is none or
  // it is damaged (then it is removed).
  std::unique_ptr<Model> find(const std::string& key, const std::string& name, int num_threads) const;
  // Where to write the module for `key`; empty when the folder cannot be used.
  std::string place_for(const std::string& key) const;
  // Makes room after something was written: the entry `key` stays.
  void trim(const std::string& key) const;

 private:
  std::string path_of(const std::string& key) const;

  std::string folder_;
  uint64_t capacity_ = 0;
  Warn warn_;
};

// "2G", "500M", "64k", "1000"; empty for anything else.
std::optional<uint64_t> parse_size(const std::string& text);

}  // namespace tessera::inline driver
