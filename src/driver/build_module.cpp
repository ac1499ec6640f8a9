#include "driver/build_module.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "codegen/llvm/llvm_codegen.h"
#include "codegen/llvm/target.h"
#include "driver/devices.h"
#include "package/link.h"
#include "tessera/compiler.h"

namespace tessera::inline driver {

ModuleInfo module_info(std::string model_name, const Target& target) {
  ModuleInfo info;
  info.model_name = std::move(model_name);
  info.producer = fmt::format("tessera {}", compiler_version());
  info.target_triple = target.triple;
  info.target_cpu = target.cpu;
  info.features = required_features(target);
  info.num_threads = target.num_threads;
  return info;
}

BuiltModule link_module(const ObjectCode& object, Program planned, const Target& target, const CodegenOptions& options,
                        std::span<const ObjectCode> more) {
  BuiltModule built;
  LinkOptions link;
  link.files = object.link;
  planned.scratch_bytes = object.scratch_bytes;
  std::vector<std::span<const std::byte>> objects = {object.object};
  for (const ObjectCode& code : more) {
    objects.emplace_back(code.object);
    planned.scratch_bytes = std::max(planned.scratch_bytes, code.scratch_bytes);
  }
  built.code = link_shared_object(objects, link);
  built.images = device_images(planned, target, options);
  built.program = std::move(planned);
  return built;
}

AnonymousFile build_module(Program planned, const Target& target, const ModuleInfo& info, const CodegenOptions& options,
                           std::vector<std::string>* remarks) {
  const ObjectCode object = generate_llvm(planned, target, options);
  if (remarks) *remarks = object.remarks;
  const BuiltModule built = link_module(object, std::move(planned), target, options);
  return write_module_memory({built.code, built.program, info, built.images});
}

}  // namespace tessera::inline driver
