// Writes a test module to the file of argument 1, for tests that are not in C++: y = x * w, or that of flow_spec when
// argument 2 is "flow".
#include <fstream>

#include "module_builder.h"

int main(int argc, char** argv) {
  const bool flow = argc == 3 && std::strcmp(argv[2], "flow") == 0;
  if (argc != 2 && !flow) return 64;
  const tessera::Bytes bytes = (flow ? tessera::flow_spec() : tessera::ModuleSpec()).build();
  std::ofstream file(argv[1], std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file ? 0 : 1;
}
