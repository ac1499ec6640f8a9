#include "driver/wasm_file.h"

#include <nlohmann/json.hpp>

#include "codegen/llvm/wasm_module.h"
#include "package/link_wasm.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

using Json = nlohmann::ordered_json;

Json tensor(const ProgramBuffer& buffer, const std::string& name, int64_t offset) {
  const auto dims = static_dims(buffer.type.shape);
  check(dims.has_value(), "a tensor of open sizes in WebAssembly: " + name);
  return {{"name", name},
          {"dtype", dtype_name(buffer.type.dtype)},
          {"dims", *dims},
          {"offset", offset},
          {"bytes", buffer.bytes}};
}

std::string description(const Program& program, const WasmLayout& layout, const ModuleInfo& info) {
  const auto buffer = [&](BufferId id) -> const ProgramBuffer& { return program.buffers[static_cast<size_t>(id)]; };
  Json json = {{"format", 1},
               {"model", info.model_name},
               {"producer", info.producer},
               {"digest", info.model_digest},
               {"inputs", Json::array()},
               {"outputs", Json::array()},
               {"checks", Json::array()}};
  for (size_t i = 0; i < program.num_own_inputs(); ++i)
    json["inputs"].push_back(tensor(buffer(program.inputs[i]), buffer(program.inputs[i]).name, layout.inputs[i]));
  for (size_t i = 0; i < program.num_own_outputs(); ++i) {
    const ProgramBuffer& output = buffer(program.outputs[i]);
    const std::string& name = i < program.output_names.size() ? program.output_names[i] : output.name;
    json["outputs"].push_back(tensor(output, name, layout.outputs[i]));
  }
  for (size_t i = 0; i < program.checks.size(); ++i)
    json["checks"].push_back(
        {{"what", program.checks[i].what}, {"legal", program.checks[i].legal}, {"offset", layout.checks[i]}});
  // Names come from the model, and may be no UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::vector<std::byte> wasm_file(const Program& program, const Target& target, const CodegenOptions& options,
                                 const ModuleInfo& info) {
  const WasmCode code = generate_wasm(program, target, options);
  return link_wasm(code.object, {.functions = {kWasmRun, kWasmReset},
                                 .globals = {kWasmMemory},
                                 .description = description(program, code.layout, info)});
}

}  // namespace tessera::inline driver
