// The descriptor section of a module: tables that the runtime reads in place.
#pragma once

#include <cstddef>
#include <vector>

#include "package/module_writer.h"

namespace tessera::inline package {

// Where the code and the weights of a device begin in the section of images.
struct ImageOffsets {
  uint64_t code = 0, weights = 0;
};
struct ImageLayout {
  std::vector<ImageOffsets> devices;
  uint64_t bytes = 0;  // of the section
};
ImageLayout layout_images(const Program& program, std::span<const DeviceImage> images);

// REQUIRES: static shapes of inputs and outputs.
std::vector<std::byte> make_descriptor(const ModuleContents& contents);

}  // namespace tessera::inline package
