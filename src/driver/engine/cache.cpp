#include "driver/engine/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "driver/engine/native_model.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kDefaultCapacity = uint64_t{2} << 30;
constexpr char kSuffix[] = ".so";
// A temporary file this old was left behind by a process that was killed.
constexpr std::chrono::hours kStale(1);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string default_folder() {
  if (const std::string folder = variable("TESSERA_CACHE_DIR"); !folder.empty()) return folder;
  if (const std::string folder = variable("XDG_CACHE_HOME"); !folder.empty()) return folder + "/tessera";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/tessera";
  return "";
}

struct Entry {
  fs::path path;
  uint64_t bytes = 0;
  fs::file_time_type used;
};

}  // namespace

std::optional<uint64_t> parse_size(const std::string& text) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return {};
  const std::string unit(stop, text.data() + text.size());
  const int shift = unit.empty() ? 0 : unit == "k" || unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (shift < 0 || value > UINT64_MAX >> shift) return {};
  return value << shift;
}

ModuleCache ModuleCache::from_environment(Warn warn) {
  uint64_t capacity = kDefaultCapacity;
  if (const std::string text = variable("TESSERA_CACHE_SIZE"); !text.empty()) {
    const std::optional<uint64_t> parsed = parse_size(text);
    if (!parsed) warn(fmt::format("TESSERA_CACHE_SIZE='{}' is not a size such as 500M or 2G; using 2G", text));
    capacity = parsed.value_or(kDefaultCapacity);
  }
  return ModuleCache(default_folder(), capacity, std::move(warn));
}

ModuleCache::ModuleCache(std::string folder, uint64_t capacity_bytes, Warn warn)
    : folder_(std::move(folder)), capacity_(capacity_bytes), warn_(std::move(warn)) {}

std::string ModuleCache::path_of(const std::string& key) const { return folder_ + "/" + key + kSuffix; }

std::unique_ptr<Model> ModuleCache::find(const std::string& key, const std::string& name, int num_threads) const {
  if (!enabled()) return nullptr;
  const std::string path = path_of(key);
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return nullptr;
  try {
    std::unique_ptr<Model> model = load_module(path, num_threads, name);
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now; a read-only cache just ages
    return model;
  } catch (const UserError& error) {
    warn_(fmt::format("the cached module '{}' cannot be used and is compiled again: {}", path,
                      error.diagnostic().message));
    std::error_code ignored;
    fs::remove(path, ignored);
    return nullptr;
  }
}

std::string ModuleCache::place_for(const std::string& key) const {
  if (!enabled()) return "";
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    warn_(fmt::format("the cache folder '{}' cannot be used: {}", folder_, error.message()));
    return "";
  }
  return path_of(key);
}

void ModuleCache::trim(const std::string& key) const {
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code error;
  const fs::file_time_type now = fs::file_time_type::clock::now();
  for (auto it = fs::directory_iterator(folder_, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    // Other processes may remove files while we look: what cannot be asked is skipped.
    std::error_code gone;
    const uint64_t bytes = it->file_size(gone);
    if (gone) continue;
    const fs::file_time_type used = it->last_write_time(gone);
    if (gone) continue;
    const std::string name = it->path().filename();
    if (name.find(std::string(kSuffix) + ".tmp-") != std::string::npos) {
      if (now - used > kStale) fs::remove(it->path(), gone);
    } else if (name.ends_with(kSuffix)) {
      entries.push_back({it->path(), bytes, used});
      total += bytes;
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= capacity_) return;
    if (entry.path == path_of(key)) continue;
    std::error_code ignored;
    fs::remove(entry.path, ignored);
    total -= entry.bytes;
  }
  if (total > capacity_) {  // the new entry alone is too large
    std::error_code ignored;
    fs::remove(path_of(key), ignored);
  }
}

}  // namespace tessera::inline driver
