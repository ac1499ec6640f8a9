// A file mapped read-only. The mapping lives as long as the object; the file must not shrink meanwhile.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::inline support {

class MappedFile {
 public:
  // UserError `error_id` when the path is missing, unreadable or not a regular file. `what` names the file's role in
  // the message ("model", "external data").
  static std::shared_ptr<const MappedFile> open(const std::string& path, const std::string& what,
                                                const std::string& error_id);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // The first `size` bytes are not needed soon: they leave memory, and are read from the file again if they are.
  void forget(size_t size) const;
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tessera::inline support
