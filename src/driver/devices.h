// Devices beside the host: the table of their back ends, and which kernels run where.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/common/object_code.h"
#include "package/module_writer.h"
#include "program/program.h"
#include "target/target.h"

namespace tessera::inline driver {

// What makes the code of one kind of device. A new kind is a row here, a room that generates its code, and a library
// for the runtime (docs/add-a-back-end.md).
struct DeviceBackEnd {
  std::string_view kind;     // as --place and the runtime's library know it
  std::string_view summary;  // one sentence
  // Of the kernels of device number `device`. `target` is the host's.
  DeviceImage (*generate)(const Program& program, int32_t device, const Target& target, const CodegenOptions& options);
  bool is_communicator = false;  // its kernels are collectives, and nothing else
};
std::span<const DeviceBackEnd> device_back_ends();

// UserError TSR-4070 for text that is not "PATTERN=DEVICE", TSR-4071 for an unknown device.
void check_places(const std::vector<std::string>& places);
// UserError TSR-4072: places are given to a model of which `what` is so.
[[noreturn]] void refuse_places(std::string_view what);
// Whether something of the program runs on devices: what is named, and collectives.
bool needs_places(const Program& program, const std::vector<std::string>& places);
// Moves the calls of the nodes that the patterns name to devices, one for each kind that is named, and collectives of
// several ranks to a communicator, in an order in which host and devices work at the same time. UserError TSR-4073 for
// a pattern that no node fits; what a communicator cannot do, and collectives elsewhere, a pattern does not fit.
// REQUIRES: check_places, and as assign_devices (program/assign_devices.h).
void place_calls(Program& program, const std::vector<std::string>& places);

// The code of the program's devices, in their order, by the options of the host's code.
std::vector<DeviceImage> device_images(const Program& program, const Target& target, const CodegenOptions& options);

}  // namespace tessera::inline driver
