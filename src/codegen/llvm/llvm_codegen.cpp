#include "codegen/llvm/llvm_codegen.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/llvm/llvm_headers.h"
#include "codegen/llvm/llvm_target.h"
#include "codegen/llvm/memory_functions.h"
#include "codegen/llvm/module_emitter.h"
#include "codegen/llvm/wasm_entry.h"
#include "codegen/llvm/wasm_module.h"
#include "graph/flow.h"
#include "loop/intrinsic.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {
namespace {

// The list that gave the same code as the whole pipeline for explicit vectors, in a third of the time. The
// vectorisers and the loop idiom pass (which makes calls of memset) stay out.
void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);

  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  llvm::LICMOptions licm;
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(licm), /*UseMemorySSA=*/true));
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::ADCEPass());
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) passes.run(function, functions);
}

void verify(const llvm::Module& module) {
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  if (llvm::verifyModule(module, &stream)) throw InternalError("generated LLVM IR is not valid: " + problems);
}

void emit_file(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type,
               llvm::raw_pwrite_stream& out) {
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, out, nullptr, type))
    throw InternalError("LLVM cannot write an object for " + machine.getTargetTriple().str());
  passes.run(module);
}

std::vector<std::string> linked_files(const Program& program, int32_t device) {
  std::vector<std::string> files;
  for (const Kernel& kernel : program.kernels) {
    if (kernel.device != device) continue;
    walk(
        kernel.program.body,
        [&](const Stmt& s) {
          if (s->kind != StmtKind::kTensorized) return;
          for (const std::string& file : s->intrinsic->link)
            if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
        },
        nullptr);
  }
  return files;
}

void set_up(llvm::Module& module, const Target& target, const llvm::TargetMachine& machine) {
  module.setTargetTriple(target.triple);
  module.setDataLayout(machine.createDataLayout());
  if (machine.isPositionIndependent()) module.setPICLevel(llvm::PICLevel::BigPIC);
}

// What all functions of a module need, and the passes over them.
void finish(llvm::Module& module, const Target& target, llvm::TargetMachine& machine, int opt_level) {
  const std::string features = llvm_features(target);
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.setDoesNotThrow();
    function.setDSOLocal(true);
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", features);
    // Without this, code for a processor tuned to 256 bits would still use the 512 bits that the vectors here have,
    // but the cost models would not know. "min-legal-vector-width" must stay away: it splits the vectors.
    if (target.vector_bits() == 512) function.addFnAttr("prefer-vector-width", "512");
  }
  verify(module);
  if (opt_level > 0) optimize(module, machine);
}

std::vector<std::byte> object_of(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  emit_file(module, machine, llvm::CodeGenFileType::ObjectFile, stream);
  const auto* bytes = reinterpret_cast<const std::byte*>(object.data());
  return {bytes, bytes + object.size()};
}

void refuse_unsupported_by_wasm(const Program& program) {
  std::vector<std::string> found;
  if (program.flow) found.push_back(fmt::format("values without a fixed size ({})", program.flow->why.reason));
  for (const SymbolRange& symbol : program.symbols)
    found.push_back(fmt::format("the open size '{}' ({} to {})", symbol.var->name, symbol.lo, symbol.hi));
  for (const ProgramDevice& device : program.devices) found.push_back(fmt::format("the device '{}'", device.name));
  for (const std::string& file : linked_files(program, 0)) found.push_back(fmt::format("code of '{}'", file));
  constexpr int64_t kMostBytes = int64_t{2} << 30;
  if (const int64_t bytes = program.weight_bytes + program.arena_bytes; bytes > kMostBytes)
    found.push_back(fmt::format("weights and memory of {} bytes", bytes));
  if (found.empty()) return;
  throw UserError(
      {.id = "TSR-5150",
       .message = fmt::format("the model cannot be written as WebAssembly: it has {}", fmt::join(found, "; ")),
       .node = {},
       .legal = "models of fixed sizes whose weights and memory take at most 2 GiB",
       .hint = "give sizes with --shape or --dim; or compile a module, which the runtime runs"});
}

}  // namespace

WasmCode generate_wasm(const Program& program, const Target& target, const CodegenOptions& options) {
  refuse_unsupported_by_wasm(program);
  const auto machine = make_target_machine(target, options.opt_level);
  llvm::LLVMContext context;
  llvm::Module module(options.module_name, context);
  set_up(module, target, *machine);
  EmittedModule emitted = emit_module(module, program, {target, options.bits_of, options.lanes_of}, "");
  WasmCode result;
  result.layout = add_wasm_entry(module, program, emitted.scratch_bytes);
  result.remarks = std::move(emitted.remarks);
  finish(module, target, *machine, options.opt_level);
  result.object = object_of(module, *machine);
  return result;
}

ObjectCode generate_llvm(const Program& program, const Target& target, const CodegenOptions& options) {
  const auto machine = make_target_machine(target, options.opt_level);
  llvm::LLVMContext context;
  llvm::Module module(options.module_name, context);
  set_up(module, target, *machine);
  ObjectCode result;
  EmittedModule emitted = emit_module(module, program, {target, options.bits_of, options.lanes_of}, options.suffix);
  result.scratch_bytes = emitted.scratch_bytes;
  result.remarks = std::move(emitted.remarks);
  result.link = linked_files(program, 0);
  if (!result.link.empty()) add_memory_functions(module);
  finish(module, target, *machine, options.opt_level);
  if (options.want_ir) {
    llvm::raw_string_ostream stream(result.llvm_ir);
    module.print(stream, nullptr);
  }
  if (options.want_asm) {
    // Code generation changes the module: the object comes from a fresh copy of it.
    llvm::SmallVector<char, 0> text;
    llvm::raw_svector_ostream stream(text);
    const auto copy = llvm::CloneModule(module);
    emit_file(*copy, *machine, llvm::CodeGenFileType::AssemblyFile, stream);
    result.assembly.assign(text.begin(), text.end());
  }
  result.object = object_of(module, *machine);
  return result;
}

DeviceCode generate_llvm_operations(const Program& program, int32_t device, const Target& target,
                                    const CodegenOptions& options) {
  const auto machine = make_target_machine(target, options.opt_level);
  llvm::LLVMContext context;
  llvm::Module module(options.module_name, context);
  set_up(module, target, *machine);
  DeviceCode result;
  EmittedModule emitted = emit_operations(module, program, device, {target, options.bits_of, options.lanes_of});
  result.scratch_bytes = emitted.scratch_bytes;
  result.remarks = std::move(emitted.remarks);
  result.link = linked_files(program, device);
  if (!result.link.empty()) add_memory_functions(module);
  finish(module, target, *machine, options.opt_level);
  result.object = object_of(module, *machine);
  return result;
}

}  // namespace tessera::inline llvm_codegen
