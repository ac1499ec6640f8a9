#include "driver/devices.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "accel/network/offload.h"
#include "accel/network/unit_roles.h"
#include "arith/simplify.h"
#include "codegen/gpu/gpu_codegen.h"
#include "codegen/gpu/gpu_dialects.h"
#include "codegen/llvm/llvm_codegen.h"
#include "driver/accelerators.h"
#include "driver/collective_image.h"
#include "driver/decisions.h"
#include "driver/step_names.h"
#include "driver/unit_tilings.h"
#include "package/link.h"
#include "program/assign_devices.h"
#include "program/overlap_calls.h"
#include "schedule/gpu/gpu_attention.h"
#include "schedule/gpu/gpu_rows.h"
#include "support/error.h"
#include "support/nearest_names.h"

namespace tessera::inline driver {
namespace {

// The null device runs code of the host's processor: a shared object with an entry for each kernel.
DeviceImage generate_null(const Program& program, int32_t device, const Target& target, const CodegenOptions& options) {
  const DeviceCode code = generate_llvm_operations(program, device, target, options);
  LinkOptions link;
  link.soname = "tessera_null_image.so";
  link.exports = {kOperationNames};
  link.files = code.link;
  return {link_shared_object(code.object, link), code.scratch_bytes};
}

DeviceImage source_image(const std::string& source) {
  const auto* first = reinterpret_cast<const std::byte*>(source.data());
  return {{first, first + source.size()}, 0};
}

DeviceImage generate_opencl(const Program& program, int32_t device, const Target&, const CodegenOptions&) {
  return source_image(generate_gpu_source(program, device, opencl_c()));
}
DeviceImage generate_cuda(const Program& program, int32_t device, const Target&, const CodegenOptions&) {
  return source_image(generate_gpu_source(program, device, cuda_cpp()));
}

// What collectives of several ranks run on unless a pattern says otherwise.
constexpr const char* kDefaultCommunicator = "mpi";

constexpr GpuLimits kGpuLimits = {};
// What every GPU from sm_80 on has: tensor cores, 64 Ki registers for 512 threads at once, and dozens of
// multiprocessors.
constexpr GpuLimits kCudaLimits = {.shared_bytes = 48 << 10,
                                   .staged_bytes = 99 << 10,
                                   .wanted_threads = 48 << 10,
                                   .warp_products = true,
                                   .multiprocessors = 132,
                                   .sums_of_thread = 8};

const std::array kBackEnds = {
    DeviceBackEnd{"null", "No device: other memory and a queue in the host's own process, for tests", generate_null,
                  nullptr, nullptr, false, true},
    DeviceBackEnd{"opencl", "A device that OpenCL 1.2 reaches: a GPU, or the CPU by PoCL", generate_opencl, &kGpuLimits,
                  &opencl_c()},
    DeviceBackEnd{"cuda", "A GPU of NVIDIA's, by its driver", generate_cuda, &kCudaLimits, &cuda_cpp()},
    DeviceBackEnd{"hip", "A GPU of AMD's: its kernels' text alone (--emit hip)", nullptr, &kGpuLimits, &hip_cpp()},
    DeviceBackEnd{"mpi", "A communicator: collectives between processes, by MPI", generate_collectives, nullptr,
                  nullptr, true},
    DeviceBackEnd{"gloo", "A communicator between processes that torchrun has started, by gloo", generate_collectives,
                  nullptr, nullptr, true},
    DeviceBackEnd{"loopback", "A communicator between sessions of one process, for tests", generate_collectives,
                  nullptr, nullptr, true},
    DeviceBackEnd{kAcceleratorKind, "An accelerator that a file describes, simulated: UNIT.json", generate_accelerator,
                  nullptr, nullptr, false, false, true},
};

const DeviceBackEnd* find_back_end(std::string_view kind) {
  const auto it = std::find_if(kBackEnds.begin(), kBackEnds.end(), [&](const auto& b) { return b.kind == kind; });
  return it == kBackEnds.end() ? nullptr : &*it;
}

struct Placement {
  std::string pattern, kind,
      device;  // "null", "null:1"; the kind is what is there as a whole where there is no such kind
};

// "null:1" without the number, where there may be several.
std::string kind_of_device(const std::string& device) {
  const size_t colon = device.find(':');
  if (colon == std::string::npos) return device;
  const std::string kind = device.substr(0, colon), number = device.substr(colon + 1);
  const DeviceBackEnd* back_end = find_back_end(kind);
  const bool is_number = number.size() == 1 && number[0] >= '1' && number[0] <= '9';
  return back_end && back_end->has_several && is_number ? kind : device;
}

Placement parse_place(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw UserError({.id = "TSR-4070",
                     .message = fmt::format("--place: '{}' does not say which nodes run on which device", text),
                     .node = {},
                     .legal = "PATTERN=DEVICE, such as '*=null' or 'Conv_*=null'",
                     .hint = {}});
  const std::string device = text.substr(at + 1);
  if (names_accelerator(device)) return {text.substr(0, at), kAcceleratorKind, device};
  return {text.substr(0, at), kind_of_device(device), device};
}

// Whether the kernel cannot be computed by one rank alone.
bool joins_ranks(const Kernel& kernel) {
  const std::optional<Collective> collective = collective_of(kernel);
  return collective && (collective->is_message() || collective->group_size() > 1);
}

bool has_open_sizes(const Kernel& kernel) {
  return std::any_of(kernel.program.params.begin(), kernel.program.params.end(),
                     [](const BufferPtr& param) { return !static_dims(param->shape); });
}

// Whether the pattern fits one of the names of a kernel's nodes, which '+' joins.
bool fits(const std::string& pattern, const std::string& loc) {
  for (size_t begin = 0; begin <= loc.size();) {
    const size_t end = std::min(loc.find('+', begin), loc.size());
    if (fnmatch(pattern.c_str(), loc.substr(begin, end - begin).c_str(), 0) == 0) return true;
    begin = end + 1;
  }
  return false;
}

// Which kernels run on the accelerator of which placement. Changes the calls that accelerators take (accel/network).
// Those of the first `named` placements are named by the user, who knows what he does.
std::set<std::pair<size_t, int32_t>> offload(Program& program, const std::vector<Placement>& placements, size_t named,
                                             Remarks* remarks, Decisions* decisions, std::vector<bool>& used) {
  std::set<std::pair<size_t, int32_t>> result;
  for (size_t i = 0; i < placements.size(); ++i) {
    if (placements[i].kind != kAcceleratorKind) continue;
    const Accelerator& unit = accelerator_of(placements[i].device);
    OffloadOptions options;
    options.threads = unit.threads;
    options.only_full_lanes = i >= named;
    if (decisions)
      options.known_tiling = [&](const std::shared_ptr<const TensorProgram>& kernel) -> std::optional<UnitTiling> {
        const TunedChoice choice = decisions->choose_tiling(unit, kernel);
        return choice.point ? tiling_at(*choice.point) : std::nullopt;
      };
    const auto wanted = [&](const KernelCall& call) {
      const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
      size_t first = 0;
      while (first < placements.size() && !fits(placements[first].pattern, call.loc)) ++first;
      if (first == i) used[i] = true;
      return first == i && !joins_ranks(kernel);
    };
    const auto stays = [&](const KernelCall& call, const std::string& reason) {
      if (remarks) remarks->refused(std::string(kPlaceCalls), call.loc, reason, unit.name);
    };
    for (const int32_t kernel : offload_calls(program, unit, options, wanted, stays)) result.emplace(i, kernel);
  }
  return result;
}

// The kind of the first device among the options' places that is so; empty when none is.
template <typename Is>
std::string first_place(const CompileOptions& options, const Is& is) {
  for (const std::string& text : places_of(options)) {
    const std::string kind = parse_place(text).kind;
    if (const DeviceBackEnd* back_end = find_back_end(kind); back_end && is(*back_end)) return kind;
  }
  return "";
}

// Why a GPU does not run the kernel; empty when it does.
std::string not_for_gpu(const Kernel& kernel, const GpuLimits& limits) {
  if (!kernel.definition) return "it has loops of its own, which are not cut into threads";
  auto answer = schedule_for_gpu(*kernel.definition, limits);
  if (const auto* declined = std::get_if<Declined>(&answer)) return declined->reason;
  LoopProgram& loops = std::get<GpuAnswer>(answer).program;
  loops.symbols = kernel.program.symbols;
  return no_gpu_code(loops);
}

}  // namespace

std::span<const DeviceBackEnd> device_back_ends() { return kBackEnds; }

const DeviceBackEnd* device_target(const CompileOptions& options) {
  const DeviceBackEnd* back_end = find_back_end(options.target);
  return back_end && back_end->gpu ? back_end : nullptr;
}

std::string host_target(const CompileOptions& options) {
  return device_target(options) || names_accelerator(options.target) ? "native" : options.target;
}

std::vector<std::string> places_of(const CompileOptions& options) {
  std::vector<std::string> places = options.places;
  if (const DeviceBackEnd* back_end = device_target(options)) places.push_back(fmt::format("*={}", back_end->kind));
  if (names_accelerator(options.target)) places.push_back("*=" + options.target);
  return places;
}

bool runs_on_gpu(const Program& program, const Kernel& kernel) {
  if (kernel.device == 0) return false;
  const DeviceBackEnd* back_end = find_back_end(program.devices[static_cast<size_t>(kernel.device) - 1].kind);
  return back_end && back_end->gpu;
}

bool has_fixed_loops(const Program& program, const Kernel& kernel) {
  return kernel.device > 0 && program.devices[static_cast<size_t>(kernel.device) - 1].kind == kAcceleratorKind;
}

void schedule_on_gpus(Program& program, Numerics loosest, Remarks* remarks) {
  const KnownSymbols known(program.symbols);
  const auto limits_of = [&](const Kernel& kernel) -> const GpuLimits* {
    if (!runs_on_gpu(program, kernel)) return nullptr;
    return find_back_end(program.devices[static_cast<size_t>(kernel.device) - 1].kind)->gpu;
  };
  if (loosest >= Numerics::kRounding) {
    join_attention_on_gpus(program, limits_of, remarks);
    join_rows_on_gpus(program, limits_of);
  }
  for (Kernel& kernel : program.kernels) {
    if (!runs_on_gpu(program, kernel) || kernel.joined) continue;
    const DeviceBackEnd& back_end = *find_back_end(program.devices[static_cast<size_t>(kernel.device) - 1].kind);
    auto answer = schedule_for_gpu(*kernel.definition, *back_end.gpu, loosest);
    check(std::holds_alternative<GpuAnswer>(answer), "a kernel on a GPU that no rule takes: " + kernel.program.name);
    auto& taken = std::get<GpuAnswer>(answer);
    taken.program.symbols = kernel.program.symbols;
    taken.program.name = kernel.program.name;
    kernel.program = std::move(taken.program);
    kernel.rule = taken.rule;
    kernel.refused = std::move(taken.refused);
  }
}

void check_places(const std::vector<std::string>& places) {
  for (const std::string& text : places) {
    const Placement place = parse_place(text);
    const std::string& kind = place.kind;
    const DeviceBackEnd* own = find_back_end(kind);
    if (own && own->generate && own->is_described == names_accelerator(place.device)) continue;
    std::vector<std::string> known = {"cpu"};
    for (const DeviceBackEnd& back_end : kBackEnds)
      if (back_end.generate) known.emplace_back(back_end.is_described ? "UNIT.json" : back_end.kind);
    if (kind == known[0]) continue;
    throw UserError({.id = "TSR-4071",
                     .message = fmt::format("--place: there is no device '{}'", kind),
                     .node = {},
                     .legal = fmt::format("{}", fmt::join(known, ", ")),
                     .hint = did_you_mean(kind, known)});
  }
}

void refuse_places(std::string_view what, std::string_view who) {
  throw UserError({.id = "TSR-4072",
                   .message = fmt::format("--place or --target: the model {}, and {} fixed sizes alone", what, who),
                   .node = {},
                   .legal = "models of tensors whose sizes are fixed",
                   .hint = "fix the sizes with --shape or --dim, or run it on the CPU"});
}

std::string place_of_fixed_sizes(const CompileOptions& options) {
  return first_place(options, [](const DeviceBackEnd& back_end) { return back_end.is_described; });
}

std::string place_of_other_sums(const CompileOptions& options) {
  return first_place(options, [](const DeviceBackEnd& back_end) { return back_end.gpu || back_end.is_described; });
}

bool needs_places(const Program& program, const std::vector<std::string>& places) {
  return !places.empty() || std::any_of(program.kernels.begin(), program.kernels.end(), joins_ranks);
}

std::function<std::optional<DeviceProducts>(const Node& node)> device_products(const CompileOptions& options) {
  std::vector<std::pair<std::string, std::optional<DeviceProducts>>> of_pattern;  // the first that fits a node decides
  bool any = false;
  for (const std::string& text : places_of(options)) {
    const Placement place = parse_place(text);
    std::optional<DeviceProducts> products;
    if (place.kind == kAcceleratorKind) {
      std::string why_none;
      const UnitRoles roles = roles_of(accelerator_of(place.device), why_none);
      const bool is_named = of_pattern.size() < options.places.size();
      const auto least = [&](int64_t lanes) { return is_named ? 1 : least_filled_lanes(lanes); };
      const UnitProduct& product = roles.product;
      if (why_none.empty()) products = {product.x_dtype, product.w_dtype, false, least(product.in), least(product.out)};
    } else if (const DeviceBackEnd* back_end = find_back_end(place.kind);
               back_end && back_end->gpu && back_end->gpu->warp_products) {
      products = {.x = DType::kF32, .weights = DType::kF32, .narrow_values = true};
    }
    any = any || products;
    of_pattern.emplace_back(place.pattern, products);
  }
  if (!any) return nullptr;
  return [of_pattern = std::move(of_pattern)](const Node& node) -> std::optional<DeviceProducts> {
    for (const auto& [pattern, products] : of_pattern)
      if (fits(pattern, node.loc)) return products;
    return std::nullopt;
  };
}

void place_calls(Program& program, const CompileOptions& options, Remarks* remarks, Decisions* decisions) {
  const KnownSymbols known(program.symbols);
  std::vector<Placement> placements;
  std::vector<ProgramDevice> devices;
  std::map<std::string, int32_t> numbers = {{"cpu", 0}};
  const auto number_of = [&](const std::string& device, const std::string& kind) {
    const auto [known, is_new] = numbers.try_emplace(device, static_cast<int32_t>(devices.size()) + 1);
    std::string name = device;
    std::erase(name, ':');
    if (!is_new) return known->second;
    const DeviceBackEnd* back_end = find_back_end(kind);
    devices.push_back({name, kind, 0, 0, back_end && back_end->is_communicator});
    if (kind == kAcceleratorKind) devices.back().name = accelerator_of(device).name;
    return known->second;
  };
  for (const std::string& text : places_of(options)) {
    placements.push_back(parse_place(text));
    number_of(placements.back().device, placements.back().kind);
  }
  std::vector<bool> used(placements.size(), false);
  const auto offloaded = offload(program, placements, options.places.size(), remarks, decisions, used);
  std::vector<std::optional<std::string>> declined(program.kernels.size());  // by kernel, of those that were asked
  const auto is_declined = [&](const DeviceBackEnd& back_end, size_t kernel) {
    if (!back_end.gpu) return false;
    if (!declined[kernel]) declined[kernel] = not_for_gpu(program.kernels[kernel], *back_end.gpu);
    return !declined[kernel]->empty();
  };
  const auto device_of = [&](const KernelCall& call) -> int32_t {
    const auto number = static_cast<size_t>(call.kernel);
    const Kernel& kernel = program.kernels[number];
    for (size_t i = 0; i < placements.size(); ++i) {
      if (!fits(placements[i].pattern, call.loc)) continue;
      const DeviceBackEnd* back_end = find_back_end(placements[i].kind);
      const bool is_communicator = back_end && back_end->is_communicator;
      if (is_communicator ? !collective_of(kernel) : joins_ranks(kernel)) continue;
      if (is_communicator && has_open_sizes(kernel))
        refuse_places("has a collective whose sizes are open", "communicators run");
      used[i] = true;
      if (back_end && back_end->is_described) {
        const bool takes = offloaded.contains({i, call.kernel});
        return takes ? numbers.at(placements[i].device) : 0;
      }
      if (!back_end || !is_declined(*back_end, number)) return numbers.at(placements[i].device);
      if (remarks) remarks->refused(std::string(kPlaceCalls), call.loc, *declined[number], std::string(back_end->kind));
      return 0;
    }
    if (!joins_ranks(kernel)) return 0;
    if (has_open_sizes(kernel)) refuse_places("has a collective whose sizes are open", "communicators run");
    return number_of(kDefaultCommunicator, kDefaultCommunicator);
  };
  // All devices must be known, and each call is remarked upon once.
  bool any = false;
  for (const KernelCall& call : program.calls) any = device_of(call) > 0 || any;
  remarks = nullptr;
  if (any) {
    // Stages of a pipeline stand in the order of their schedule, and so does what is gathered when it is read.
    const bool stays = std::any_of(program.kernels.begin(), program.kernels.end(), [](const Kernel& kernel) {
      const std::optional<Collective> collective = collective_of(kernel);
      return collective && collective->stays();
    });
    if (!stays) overlap_calls(program, device_of);
    std::set<std::string> direct;
    for (const DeviceBackEnd& back_end : kBackEnds)
      if (back_end.has_several) direct.emplace(back_end.kind);
    assign_devices(program, devices, device_of, direct);
  }
  used.resize(options.places.size());  // a target has no pattern that could be mistaken
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused == used.end()) return;
  const std::string& pattern = placements[static_cast<size_t>(unused - used.begin())].pattern;
  std::vector<std::string> names;
  for (const KernelCall& call : program.calls) names.push_back(call.loc);
  throw UserError(
      {.id = "TSR-4073",
       .message = fmt::format("--place: no node fits '{}', or an earlier pattern takes all that do", pattern),
       .node = {},
       .legal = "names of nodes, with *, ? and [...]",
       .hint = did_you_mean(pattern, names, "'tessera explain MODEL' lists the kernels and their nodes")});
}

std::string gpu_source(const Program& program, const CompileOptions& options) {
  const DeviceBackEnd* back_end = device_target(options);
  check(back_end != nullptr, "the source for a GPU of a compile for none");
  for (size_t i = 0; i < program.devices.size(); ++i)
    if (program.devices[i].kind == back_end->kind)
      return generate_gpu_source(program, static_cast<int32_t>(i) + 1, *back_end->language);
  return {};
}

std::vector<DeviceImage> device_images(const Program& program, const Target& target, const CodegenOptions& options) {
  std::vector<DeviceImage> images;
  for (size_t i = 0; i < program.devices.size(); ++i) {
    const DeviceBackEnd* back_end = find_back_end(program.devices[i].kind);
    check(back_end != nullptr, "a device without a back end: " + program.devices[i].kind);
    if (!back_end->generate)
      throw UserError({.id = "TSR-4082",
                       .message = fmt::format("there is no run time for '{}': its kernels can be printed, and not run",
                                              back_end->kind),
                       .node = {},
                       .legal = fmt::format("--emit {}", back_end->kind),
                       .hint = {}});
    CodegenOptions own = options;
    own.module_name = program.devices[i].name;
    own.want_ir = own.want_asm = false;
    images.push_back(back_end->generate(program, static_cast<int32_t>(i) + 1, target, own));
  }
  return images;
}

}  // namespace tessera::inline driver
