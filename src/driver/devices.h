// Devices beside the host: the table of their back ends, and which kernels run where.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/common/object_code.h"
#include "codegen/source/dialect.h"
#include "driver/options.h"
#include "graph_passes/pass.h"
#include "package/module_writer.h"
#include "program/program.h"
#include "schedule/gpu/gpu_rules.h"
#include "support/remarks.h"
#include "target/target.h"

namespace tessera::inline driver {

// What makes the code of one kind of device. A new kind is a row here, a room that generates its code, and a library
// for the runtime (docs/add-a-back-end.md).
struct DeviceBackEnd {
  std::string_view kind;     // as --place and the runtime's library know it
  std::string_view summary;  // one sentence
  // Of the kernels of device number `device`. `target` is the host's. Null: there is no run time for it, and the
  // kernels of a GPU are printed alone.
  DeviceImage (*generate)(const Program& program, int32_t device, const Target& target, const CodegenOptions& options);
  // Of a GPU: what its kernels may use, and the language that they are printed in. Null: kernels are scheduled as for
  // the host.
  const GpuLimits* gpu = nullptr;
  const Dialect* language = nullptr;
  bool is_communicator = false;  // its kernels are collectives, and nothing else
  // A program may have several, "KIND:1" and so on, which read one another's memory.
  bool has_several = false;
  // A file says what it is, whose name stands for the kind: "unit.json".
  bool is_described = false;
};
std::span<const DeviceBackEnd> device_back_ends();

// The device that `--target` names, where it names one: the host's code is for this machine then, and all kernels that
// the device takes run there. Null: `target` is a processor.
const DeviceBackEnd* device_target(const CompileOptions& options);
// The processor that the host's code is for.
std::string host_target(const CompileOptions& options);
// Those of the options, and that of the target behind them.
std::vector<std::string> places_of(const CompileOptions& options);
// Whether a kernel of the program runs on a GPU.
bool runs_on_gpu(const Program& program, const Kernel& kernel);
// Whether its loops are made for its device, and stay as they are: an accelerator's.
bool has_fixed_loops(const Program& program, const Kernel& kernel);

// UserError TSR-4070 for text that is not "PATTERN=DEVICE", TSR-4071 for an unknown device.
void check_places(const std::vector<std::string>& places);
// UserError TSR-4072: places are given to a model of which `what` is so; `who` ("devices run") cannot do that.
[[noreturn]] void refuse_places(std::string_view what, std::string_view who);
// The first device among the options' places that runs fixed sizes alone: an accelerator. Empty when there is none.
std::string place_of_fixed_sizes(const CompileOptions& options);
// The same of one that takes sums in an order of its own.
std::string place_of_other_sums(const CompileOptions& options);
// Whether something of the program runs on devices: what is named, and collectives.
bool needs_places(const Program& program, const std::vector<std::string>& places);
// Moves the calls of the nodes that the options' patterns name to devices, one for each kind that is named, and
// collectives of several ranks to a communicator, in an order in which host and devices work at the same time. What a
// GPU does not take stays on the host; `remarks` (may be null) are told why. UserError TSR-4073 for a pattern that no
// node fits; what a communicator cannot do, and collectives elsewhere, a pattern does not fit. REQUIRES: check_places,
// and as assign_devices (program/assign_devices.h).
// `decisions` (may be null) know tilings of accelerators' kernels.
void place_calls(Program& program, const CompileOptions& options, Remarks* remarks = nullptr,
                 Decisions* decisions = nullptr);
// What accelerators multiply that take nodes, by the options' patterns. REQUIRES: check_places.
std::function<std::optional<DeviceProducts>(const Node& node)> device_products(const CompileOptions& options);
// Gives the kernels that run on GPUs their loops. `remarks` (may be null) are told which of them stay apart, and why.
void schedule_on_gpus(Program& program, Numerics loosest, Remarks* remarks = nullptr);

// The source of the kernels on the device that the target names; empty where none runs there. REQUIRES: a target that
// names a GPU.
std::string gpu_source(const Program& program, const CompileOptions& options);

// The code of the program's devices, in their order, by the options of the host's code.
std::vector<DeviceImage> device_images(const Program& program, const Target& target, const CodegenOptions& options);

}  // namespace tessera::inline driver
