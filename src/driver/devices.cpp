#include "driver/devices.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "codegen/llvm/llvm_codegen.h"
#include "package/link.h"
#include "program/assign_devices.h"
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

constexpr std::array kBackEnds = {
    DeviceBackEnd{"null", "No device: other memory and a queue in the host's own process, for tests", generate_null},
};

const DeviceBackEnd* find_back_end(std::string_view kind) {
  const auto it = std::find_if(kBackEnds.begin(), kBackEnds.end(), [&](const auto& b) { return b.kind == kind; });
  return it == kBackEnds.end() ? nullptr : &*it;
}

struct Placement {
  std::string pattern, kind;
};

Placement parse_place(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw UserError({.id = "TSR-4070",
                     .message = fmt::format("--place: '{}' does not say which nodes run on which device", text),
                     .node = {},
                     .legal = "PATTERN=DEVICE, such as '*=null' or 'Conv_*=null'",
                     .hint = {}});
  return {text.substr(0, at), text.substr(at + 1)};
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

}  // namespace

std::span<const DeviceBackEnd> device_back_ends() { return kBackEnds; }

void check_places(const std::vector<std::string>& places) {
  for (const std::string& text : places) {
    const std::string kind = parse_place(text).kind;
    if (find_back_end(kind)) continue;
    std::vector<std::string> known = {"cpu"};
    for (const DeviceBackEnd& back_end : kBackEnds) known.emplace_back(back_end.kind);
    if (kind == known[0]) continue;
    throw UserError({.id = "TSR-4071",
                     .message = fmt::format("--place: there is no device '{}'", kind),
                     .node = {},
                     .legal = fmt::format("{}", fmt::join(known, ", ")),
                     .hint = did_you_mean(kind, known)});
  }
}

void refuse_places(std::string_view what) {
  throw UserError({.id = "TSR-4072",
                   .message = fmt::format("--place: the model {}, and devices run fixed sizes alone", what),
                   .node = {},
                   .legal = "models of tensors whose sizes are fixed",
                   .hint = "fix the sizes with --shape or --dim, or leave --place out"});
}

void place_calls(Program& program, const std::vector<std::string>& places) {
  std::vector<Placement> placements;
  std::vector<ProgramDevice> devices;
  std::map<std::string, int32_t> numbers = {{"cpu", 0}};
  for (const std::string& text : places) {
    placements.push_back(parse_place(text));
    const std::string& kind = placements.back().kind;
    if (numbers.try_emplace(kind, static_cast<int32_t>(devices.size()) + 1).second) devices.push_back({kind, kind});
  }
  std::vector<bool> used(placements.size(), false);
  assign_devices(program, devices, [&](const KernelCall& call) {
    for (size_t i = 0; i < placements.size(); ++i) {
      if (!fits(placements[i].pattern, call.loc)) continue;
      used[i] = true;
      return numbers.at(placements[i].kind);
    }
    return 0;
  });
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

std::vector<DeviceImage> device_images(const Program& program, const Target& target, const CodegenOptions& options) {
  std::vector<DeviceImage> images;
  for (size_t i = 0; i < program.devices.size(); ++i) {
    const DeviceBackEnd* back_end = find_back_end(program.devices[i].kind);
    check(back_end != nullptr, "a device without a back end: " + program.devices[i].kind);
    CodegenOptions own = options;
    own.module_name = program.devices[i].name;
    own.want_ir = own.want_asm = false;
    images.push_back(back_end->generate(program, static_cast<int32_t>(i) + 1, target, own));
  }
  return images;
}

}  // namespace tessera::inline driver
