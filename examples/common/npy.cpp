#include "common/npy.h"

#include <fstream>
#include <stdexcept>

namespace example {

void save_npy(const std::string& path, std::span<const float> values, std::span<const std::int64_t> dims) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (const std::int64_t dim : dims) header += std::to_string(dim) + ",";
  header += "), }";
  // Magic bytes, version 1.0, the header's length; all of it padded with spaces to a multiple of 64.
  constexpr std::size_t kPreamble = 10;
  while ((kPreamble + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  const char length[2] = {char(header.size() & 0xff), char(header.size() >> 8)};
  file.write(length, 2);
  file.write(header.data(), std::streamsize(header.size()));
  file.write(reinterpret_cast<const char*>(values.data()), std::streamsize(values.size_bytes()));
  file.close();
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
}

}  // namespace example
