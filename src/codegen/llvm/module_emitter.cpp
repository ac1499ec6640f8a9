#include "codegen/llvm/module_emitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "codegen/common/abi_fields.h"
#include "codegen/common/object_code.h"
#include "codegen/llvm/kernel_emitter.h"
#include "support/error.h"

namespace tessera {
namespace {

using llvm::Value;

// A buffer's own bytes: follows views to what they are views of.
const ProgramBuffer& storage_of(const Program& program, BufferId id) {
  check(id >= 0 && static_cast<size_t>(id) < program.buffers.size(), "kernel call with an unknown buffer");
  for (size_t steps = 0; steps <= program.buffers.size(); ++steps) {
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(id)];
    if (buffer.alias_of < 0) return buffer;
    id = buffer.alias_of;
  }
  throw InternalError("buffers are views of each other in a circle");
}

bool overlap(const ProgramBuffer& a, const ProgramBuffer& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind) return false;
  if (a.kind == BufferKind::kArena) return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  return (a.kind == BufferKind::kInput || a.kind == BufferKind::kOutput) && a.index == b.index;
}

// Parameters that share bytes in some call get the same number.
std::vector<int> alias_classes(const Program& program, int32_t kernel) {
  const size_t n = program.kernels[static_cast<size_t>(kernel)].program.params.size();
  std::vector<int> classes(n);
  for (size_t i = 0; i < n; ++i) classes[i] = static_cast<int>(i);
  for (const KernelCall& call : program.calls) {
    if (call.kernel != kernel) continue;
    check(call.args.size() == n,
          "kernel call with a wrong number of buffers: " + program.kernels[static_cast<size_t>(kernel)].program.name);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = i + 1; j < n; ++j)
        if (classes[i] != classes[j] && overlap(storage_of(program, call.args[i]), storage_of(program, call.args[j])))
          std::replace(classes.begin(), classes.end(), classes[j], classes[i]);
  }
  return classes;
}

// The exported function: int32_t tessera_module_run(const tsr_call*).
class EntryEmitter {
 public:
  EntryEmitter(llvm::Module& module, const Program& program, std::vector<llvm::Function*> kernels)
      : module_(module),
        b_(module.getContext()),
        program_(program),
        kernels_(std::move(kernels)),
        symbols_(symbol_order(program)) {}

  void emit() {
    llvm::LLVMContext& context = module_.getContext();
    auto* type = llvm::FunctionType::get(b_.getInt32Ty(), {b_.getPtrTy()}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, TSR_ENTRY_SYMBOL, module_);
    call_ = function_->getArg(0);
    b_.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function_));
    int slots = 1;
    for (const Kernel& kernel : program_.kernels) slots = std::max(slots, KernelEmitter::num_slots(kernel.program));
    args_ = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt64Ty(), static_cast<uint64_t>(slots)), nullptr, "args");
    host_ = field(call_, abi::kCallHost, "host");
    arena_ = field(call_, abi::kCallArena, "arena");
    weights_ = field(call_, abi::kCallWeights, "weights");
    scratch_ = field(call_, abi::kCallScratch, "scratch");
    inputs_ = field(call_, abi::kCallInputs, "inputs");
    outputs_ = field(call_, abi::kCallOutputs, "outputs");
    trace_ = field(host_, abi::kHostTrace, "trace");
    self_ = field(host_, abi::kHostSelf, "self");
    tracing_ = b_.CreateIsNotNull(trace_, "tracing");
    for (const KernelCall& call : program_.calls) emit_call(call);
    b_.CreateRet(b_.getInt32(0));
  }

 private:
  Value* offset(Value* base, int64_t bytes) {
    return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), base, static_cast<uint64_t>(bytes));
  }
  Value* field(Value* base, int64_t bytes, const char* name) {
    return b_.CreateLoad(b_.getPtrTy(), offset(base, bytes), name);
  }

  Value* pointer_to(BufferId id) {
    const ProgramBuffer& buffer = storage_of(program_, id);
    switch (buffer.kind) {
      case BufferKind::kArena:
      case BufferKind::kWeight:
        check(buffer.offset >= 0, "buffer without an offset: " + buffer.name);
        return offset(buffer.kind == BufferKind::kArena ? arena_ : weights_, buffer.offset);
      case BufferKind::kInput: return field(inputs_, 8 * buffer.index, "input");
      case BufferKind::kOutput: return field(outputs_, 8 * buffer.index, "output");
    }
    throw InternalError("unknown kind of buffer");
  }

  void emit_trace(int32_t kernel, int phase) {
    llvm::LLVMContext& context = module_.getContext();
    auto* report = llvm::BasicBlock::Create(context, "trace", function_);
    auto* after = llvm::BasicBlock::Create(context, "run", function_);
    b_.CreateCondBr(tracing_, report, after);
    b_.SetInsertPoint(report);
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getInt32Ty(), b_.getInt32Ty()}, false);
    b_.CreateCall(type, trace_,
                  {self_, b_.getInt32(static_cast<uint32_t>(kernel)), b_.getInt32(static_cast<uint32_t>(phase))});
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  void emit_call(const KernelCall& call) {
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(call.kernel)].program;
    int slot = 0;
    for (const BufferId id : call.args) b_.CreateStore(pointer_to(id), offset(args_, 8 * slot++));
    b_.CreateStore(scratch_, offset(args_, 8 * slot++));
    for (const Var& symbol : kernel.symbols) {
      const auto number = std::find(symbols_.begin(), symbols_.end(), symbol->name) - symbols_.begin();
      Value* values = field(call_, abi::kCallSymbols, "symbols");
      b_.CreateStore(b_.CreateLoad(b_.getInt64Ty(), offset(values, 8 * number), symbol->name),
                     offset(args_, 8 * slot++));
    }
    emit_trace(call.kernel, 0);
    b_.CreateCall(kernels_[static_cast<size_t>(call.kernel)], {args_, host_});
    emit_trace(call.kernel, 1);
  }

  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  const Program& program_;
  std::vector<llvm::Function*> kernels_;
  std::vector<std::string> symbols_;
  llvm::Function* function_ = nullptr;
  Value *call_ = nullptr, *args_ = nullptr, *host_ = nullptr, *arena_ = nullptr, *weights_ = nullptr,
        *scratch_ = nullptr, *inputs_ = nullptr, *outputs_ = nullptr, *trace_ = nullptr, *self_ = nullptr,
        *tracing_ = nullptr;
};

// A kernel's name as a symbol that profilers can show.
std::string symbol_of(size_t number, const std::string& name) {
  std::string symbol = fmt::format("k{}_{}", number, name);
  for (char& c : symbol)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return symbol.substr(0, 100);
}

}  // namespace

EmittedModule emit_module(llvm::Module& module, const Program& program, const Target& target) {
  EmittedModule result;
  for (const Kernel& kernel : program.kernels)
    result.scratch_bytes = std::max(result.scratch_bytes, plan_locals(kernel.program).scratch_bytes);
  std::vector<llvm::Function*> kernels;
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const LoopProgram& loops = program.kernels[i].program;
    KernelEmitter emitter(module, target, loops, symbol_of(i, loops.name),
                          alias_classes(program, static_cast<int32_t>(i)), result.scratch_bytes, result.remarks);
    kernels.push_back(emitter.emit());
  }
  EntryEmitter(module, program, std::move(kernels)).emit();
  return result;
}

}  // namespace tessera
