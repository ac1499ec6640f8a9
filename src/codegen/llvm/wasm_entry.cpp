#include "codegen/llvm/wasm_entry.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "codegen/common/abi_fields.h"
#include "codegen/common/run_memory.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {
namespace {

using llvm::Constant;

constexpr llvm::Align kAlign = llvm::Align::Constant<TSR_BUFFER_ALIGN>();

int64_t align_up(int64_t bytes) { return (bytes + TSR_BUFFER_ALIGN - 1) / TSR_BUFFER_ALIGN * TSR_BUFFER_ALIGN; }

class WasmEntry {
 public:
  WasmEntry(llvm::Module& module, const Program& program, int64_t scratch_bytes)
      : module_(module), b_(module.getContext()), program_(program), run_(plan_run_memory(program, scratch_bytes)) {}

  WasmLayout emit() {
    lay_out();
    memory_ = bytes_global(kWasmMemory, layout_.bytes, nullptr);
    memory_->setLinkage(llvm::GlobalValue::ExternalLinkage);
    weights_ = weights();
    emit_run();
    if (!program_.states.empty()) emit_reset();
    return layout_;
  }

 private:
  const ProgramBuffer& buffer(BufferId id) const { return program_.buffers[static_cast<size_t>(id)]; }
  int64_t place(int64_t bytes) {
    const int64_t begin = layout_.bytes;
    layout_.bytes += align_up(bytes);
    return begin;
  }

  // States, arena, inputs and outputs, one behind the other.
  void lay_out() {
    states_ = place(run_.state_bytes);
    arena_ = place(run_.arena_bytes);
    for (size_t i = 0; i < program_.num_own_inputs(); ++i)
      layout_.inputs.push_back(place(buffer(program_.inputs[i]).bytes));
    for (size_t i = 0; i < program_.num_own_outputs(); ++i)
      layout_.outputs.push_back(place(buffer(program_.outputs[i]).bytes));
    for (const int64_t offset : run_.checks) layout_.checks.push_back(arena_ + offset);
  }

  // `bytes` zeros, or `contents`.
  llvm::GlobalVariable* bytes_global(const char* name, int64_t bytes, Constant* contents) {
    auto* type = llvm::ArrayType::get(b_.getInt8Ty(), static_cast<uint64_t>(bytes));
    auto* global = new llvm::GlobalVariable(module_, type, contents != nullptr, llvm::GlobalValue::InternalLinkage,
                                            contents ? contents : llvm::ConstantAggregateZero::get(type), name);
    global->setAlignment(kAlign);
    return global;
  }

  Constant* offset(Constant* base, int64_t bytes) {
    return llvm::ConstantExpr::getInBoundsGetElementPtr(b_.getInt8Ty(), base,
                                                        b_.getInt32(static_cast<uint32_t>(bytes)));
  }
  Constant* at(int64_t bytes) { return offset(memory_, bytes); }

  Constant* weights() {
    std::string bytes(static_cast<size_t>(program_.weight_bytes), '\0');
    for (const ProgramBuffer& weight : program_.buffers)
      if (weight.kind == BufferKind::kWeight && weight.alias_of < 0 && weight.bytes > 0)
        std::memcpy(bytes.data() + weight.offset, weight.data->bytes(), static_cast<size_t>(weight.bytes));
    return bytes_global("weights", program_.weight_bytes,
                        llvm::ConstantDataArray::getRaw(bytes, bytes.size(), b_.getInt8Ty()));
  }

  // A structure of the module ABI: its fields by their offsets, zeros between them. A pointer has the first half of its
  // field.
  Constant* structure(const char* name, int64_t bytes, const std::map<int64_t, Constant*>& fields) {
    std::vector<Constant*> words;
    for (int64_t word = 0; word < std::max<int64_t>(bytes, 8); word += 4) {
      const auto field = fields.find(word);
      words.push_back(field == fields.end() ? b_.getInt32(0) : field->second);
    }
    Constant* contents = llvm::ConstantStruct::getAnon(words, /*Packed=*/true);
    auto* global = new llvm::GlobalVariable(module_, contents->getType(), true, llvm::GlobalValue::InternalLinkage,
                                            contents, name);
    global->setAlignment(llvm::Align(8));
    return global;
  }

  Constant* pointers(const char* name, const std::vector<int64_t>& offsets) {
    std::map<int64_t, Constant*> fields;
    for (size_t i = 0; i < offsets.size(); ++i) fields[static_cast<int64_t>(8 * i)] = at(offsets[i]);
    return structure(name, static_cast<int64_t>(8 * offsets.size()), fields);
  }

  // All of a parallel loop on the one thread that there is.
  llvm::Function* parallel_for() {
    llvm::Type *ptr = b_.getPtrTy(), *i64 = b_.getInt64Ty();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr, i64, i64}, false);
    auto* function = llvm::Function::Create(type, llvm::Function::InternalLinkage, "parallel_for", module_);
    b_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function));
    auto* task = llvm::FunctionType::get(b_.getVoidTy(), {ptr, i64, i64, b_.getInt32Ty()}, false);
    b_.CreateCall(task, function->getArg(1),
                  {function->getArg(2), b_.getInt64(0), function->getArg(3), b_.getInt32(0)});
    b_.CreateRetVoid();
    return function;
  }

  Constant* call() {
    Constant* host = structure("host", sizeof(tsr_host),
                               {{0, b_.getInt32(sizeof(tsr_host))},
                                {4, b_.getInt32(TSR_ABI_VERSION)},
                                {abi::kHostNumWorkers, b_.getInt32(1)},
                                {abi::kHostParallelFor, parallel_for()}});
    std::vector<int64_t> inputs = layout_.inputs, outputs = layout_.outputs;
    for (size_t i = 0; i < program_.states.size(); ++i) {
      inputs.push_back(states_ + run_.states[i]);
      outputs.push_back(run_.next_states[i] < 0 ? inputs.back() : arena_ + run_.next_states[i]);
    }
    outputs.insert(outputs.end(), layout_.checks.begin(), layout_.checks.end());
    return structure("call", sizeof(tsr_call),
                     {{abi::kCallHost, host},
                      {abi::kCallWeights, weights_},
                      {abi::kCallArena, at(arena_)},
                      {abi::kCallScratch, at(arena_ + run_.scratch)},
                      {abi::kCallInputs, pointers("inputs", inputs)},
                      {abi::kCallOutputs, pointers("outputs", outputs)}});
  }

  llvm::Function* exported(const char* name, llvm::Type* result) {
    auto* function =
        llvm::Function::Create(llvm::FunctionType::get(result, false), llvm::Function::ExternalLinkage, name, module_);
    b_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function));
    return function;
  }

  // A run whose check does not hold leaves states as they were.
  void emit_run() {
    llvm::Function* run = module_.getFunction(TSR_ENTRY_SYMBOL);
    check(run != nullptr, "a program without its function");
    run->setLinkage(llvm::Function::InternalLinkage);
    Constant* argument = call();
    llvm::Function* function = exported(kWasmRun, b_.getInt32Ty());
    llvm::Value* answer = b_.CreateCall(run, {argument});
    auto* failed = llvm::BasicBlock::Create(module_.getContext(), "failed", function);
    for (size_t i = 0; i < layout_.checks.size(); ++i) {
      auto* next = llvm::BasicBlock::Create(module_.getContext(), "holds", function);
      llvm::Value* number = b_.CreateAlignedLoad(b_.getInt64Ty(), at(layout_.checks[i]), llvm::Align(8));
      b_.CreateCondBr(b_.CreateIsNotNull(number), next, failed);
      b_.SetInsertPoint(next);
    }
    for (size_t i = 0; i < program_.states.size(); ++i)
      if (run_.next_states[i] >= 0) copy(states_ + run_.states[i], at(arena_ + run_.next_states[i]), state_bytes(i));
    b_.CreateRet(answer);
    b_.SetInsertPoint(failed);
    b_.CreateRet(b_.getInt32(TSR_RUN_STOPPED));
  }

  void emit_reset() {
    exported(kWasmReset, b_.getVoidTy());
    for (size_t i = 0; i < program_.states.size(); ++i) {
      const BufferId initial = program_.states[i].initial;
      const int64_t place = states_ + run_.states[i];
      if (initial < 0) b_.CreateMemSet(at(place), b_.getInt8(0), static_cast<uint64_t>(state_bytes(i)), kAlign);
      else copy(place, offset(weights_, buffer(initial).offset), state_bytes(i));
    }
    b_.CreateRetVoid();
  }

  int64_t state_bytes(size_t i) const { return buffer(program_.inputs[program_.num_own_inputs() + i]).bytes; }
  void copy(int64_t to, Constant* from, int64_t bytes) {
    b_.CreateMemCpy(at(to), llvm::Align(8), from, llvm::Align(8), static_cast<uint64_t>(bytes));
  }

  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  const Program& program_;
  const RunMemory run_;
  WasmLayout layout_;
  int64_t states_ = 0, arena_ = 0;
  llvm::GlobalVariable* memory_ = nullptr;
  Constant* weights_ = nullptr;
};

}  // namespace

WasmLayout add_wasm_entry(llvm::Module& module, const Program& program, int64_t scratch_bytes) {
  return WasmEntry(module, program, scratch_bytes).emit();
}

}  // namespace tessera::inline llvm_codegen
