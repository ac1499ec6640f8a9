// Writes the test module (y = x * w) to the file of argument 1, for tests that are not in C++.
#include <fstream>

#include "module_builder.h"

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const tessera::Bytes bytes = tessera::ModuleSpec().build();
  std::ofstream file(argv[1], std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file ? 0 : 1;
}
