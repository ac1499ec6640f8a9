#include "codegen/llvm/module_emitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "codegen/common/abi_fields.h"
#include "codegen/common/host_plan.h"
#include "codegen/common/object_code.h"
#include "codegen/llvm/kernel_emitter.h"
#include "graph/flow.h"
#include "program/memory_plan.h"
#include "program/steps.h"
#include "program/symbolic_sizes.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {
namespace {

using llvm::Value;

// The exported function: int32_t tessera_module_run(const tsr_call*). It calls functions that make a few of the calls
// each (HostPlan::functions_of). Of a program with steps, the exported
// function has the branches and loops, and those functions get a frame besides: the indices of loops, and where the
// carried values that change places lie. Of a flow, the exported function has the steps of the flow, which the host
// does, and what decides between them; the pieces are functions that the host is given.
class EntryEmitter {
 public:
  EntryEmitter(llvm::Module& module, const HostPlan& plan, std::vector<llvm::Function*> kernels,
               const std::string& suffix)
      : module_(module),
        b_(module.getContext()),
        plan_(plan),
        program_(plan.program),
        kernels_(std::move(kernels)),
        entry_name_(TSR_ENTRY_SYMBOL + suffix),
        prepare_name_(TSR_PREPARE_SYMBOL + suffix) {}

  void emit() {
    if (!program_.symbols.empty()) emit_prepare();
    if (!program_.flow) {
      open_ = !program_.symbols.empty();
      if (program_.steps.empty()) emit_calls(entry_name_, llvm::Function::ExternalLinkage, 0, program_.calls.size());
      else emit_steps(entry_name_, llvm::Function::ExternalLinkage, 0, program_.steps.size());
      return;
    }
    for (size_t i = 0; i < program_.pieces.size(); ++i) {
      const ProgramPiece& piece = program_.pieces[i];
      open_ = piece.num_symbols > 0;
      const std::string name = fmt::format("piece_{}", i);
      const auto linkage = llvm::Function::InternalLinkage;
      pieces_.push_back(program_.steps.empty()
                            ? emit_calls(name, linkage, piece.first_call, piece.first_call + piece.num_calls)
                            : emit_steps(name, linkage, piece.first_step, piece.first_step + piece.num_steps));
    }
    function_ = llvm::Function::Create(run_type(), llvm::Function::ExternalLinkage, entry_name_, module_);
    b_.SetInsertPoint(new_block("entry"));
    host_ = field(function_->getArg(0), abi::kCallHost, "host");
    self_ = field(host_, abi::kHostSelf, "self");
    step_ = field(host_, abi::kHostStep, "step");
    stop_ = llvm::BasicBlock::Create(module_.getContext(), "stop");
    emit_block(program_.flow->body);
    b_.CreateRet(b_.getInt32(0));
    stop_->insertInto(function_);
    b_.SetInsertPoint(stop_);
    b_.CreateRet(b_.getInt32(TSR_RUN_STOPPED));
  }

 private:
  static constexpr llvm::Align kElement = llvm::Align::Constant<8>();

  llvm::FunctionType* run_type() { return llvm::FunctionType::get(b_.getInt32Ty(), {b_.getPtrTy()}, false); }
  llvm::BasicBlock* new_block(const char* name) {
    return llvm::BasicBlock::Create(module_.getContext(), name, function_);
  }

  // int32_t name(const tsr_call*), which makes these calls.
  llvm::Function* emit_calls(const std::string& name, llvm::GlobalValue::LinkageTypes linkage, size_t first,
                             size_t end) {
    std::vector<llvm::Function*> parts;
    for (const CallRange& calls : HostPlan::functions_of(first, end)) parts.push_back(emit_part(calls));
    function_ = llvm::Function::Create(run_type(), linkage, name, module_);
    b_.SetInsertPoint(new_block("entry"));
    for (llvm::Function* part : parts) b_.CreateCall(part, {function_->getArg(0)});
    b_.CreateRet(b_.getInt32(0));
    return function_;
  }

  // ---- branches and loops ----

  // int32_t name(const tsr_call*), which does these of the program's steps.
  llvm::Function* emit_steps(const std::string& name, llvm::GlobalValue::LinkageTypes linkage, size_t first,
                             size_t end) {
    // The functions with the calls of each run come first: one function is written at a time.
    std::map<size_t, std::vector<llvm::Function*>> parts;  // by the first call of the run
    const auto parts_of = [&](const ProgramStep& step) {
      if (step.kind != StepKind::kCalls || plan_.is_of_device(step)) return;
      for (const CallRange& calls : HostPlan::functions_of(step.first_call, step.first_call + step.num_calls))
        parts[step.first_call].push_back(emit_part(calls));
    };
    for (size_t i = first; i < end; ++i) {
      parts_of(program_.steps[i]);
      for (const StepBlock& block : program_.steps[i].blocks) for_each_step(block, parts_of);
    }
    function_ = llvm::Function::Create(run_type(), linkage, name, module_);
    call_ = function_->getArg(0);
    b_.SetInsertPoint(new_block("entry"));
    frame_ = b_.CreateAlloca(
        llvm::ArrayType::get(b_.getInt64Ty(), static_cast<uint64_t>(std::max(1, plan_.num_frame_slots))), nullptr,
        "frame");
    load_fields();
    if (!program_.devices.empty()) {
      const int64_t slots = *std::max_element(plan_.argument_slots.begin(), plan_.argument_slots.end());
      args_ = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt64Ty(), static_cast<uint64_t>(slots)), nullptr, "args");
      stop_ = llvm::BasicBlock::Create(module_.getContext(), "stop");
    }
    for (const auto& [id, slot] : plan_.place_slots) b_.CreateStore(home_pointer(id), frame_slot(slot));
    for (size_t i = first; i < end; ++i) emit_step_of(program_.steps[i], parts);
    emit_decided();
    b_.CreateRet(b_.getInt32(0));
    if (!program_.devices.empty()) {
      stop_->insertInto(function_);
      b_.SetInsertPoint(stop_);
      b_.CreateRet(b_.getInt32(TSR_RUN_STOPPED));
    }
    return function_;
  }

  using Parts = std::map<size_t, std::vector<llvm::Function*>>;

  void emit_step_of(const ProgramStep& step, const Parts& parts) {
    switch (step.kind) {
      case StepKind::kCalls:
        if (const auto own = parts.find(step.first_call); own != parts.end() && step.num_calls > 0)
          for (llvm::Function* part : own->second) b_.CreateCall(part, {call_, frame_});
        break;
      case StepKind::kBranch: emit_branch(step, parts); break;
      case StepKind::kLoop: emit_loop(step, parts); break;
      case StepKind::kBind: emit_bind(step); break;
      case StepKind::kStart:
        for (const ProgramStep& inner : step.blocks[0]) emit_started(inner);
        or_stop(host_call(abi::kHostMark, "mark", {b_.getInt32(row_of(step.device)), token(step)}));
        break;
      case StepKind::kWait:
        or_stop(host_call(abi::kHostWait, "wait",
                          {b_.getInt32(row_of(plan_.device_of_token.at(step.token))), token(step)}));
        break;
      case StepKind::kCopy: throw InternalError("a copy outside of a start");
    }
  }

  // ---- devices ----

  static uint32_t row_of(int32_t device) { return static_cast<uint32_t>(device) - 1; }
  Value* token(const ProgramStep& step) { return b_.getInt32(static_cast<uint32_t>(step.token)); }

  // What the host answers, of a function of tsr_host that begins with `self`.
  Value* host_call(int64_t at, const char* name, std::vector<Value*> args) {
    args.insert(args.begin(), self_);
    std::vector<llvm::Type*> types;
    for (const Value* arg : args) types.push_back(arg->getType());
    auto* type = llvm::FunctionType::get(b_.getInt32Ty(), types, false);
    return b_.CreateCall(type, field(host_, at, name), args);
  }

  // The run ends where the host could not do it.
  void or_stop(Value* answer) {
    llvm::BasicBlock* next = new_block("next");
    b_.CreateCondBr(b_.CreateICmpSLT(answer, b_.getInt32(0)), stop_, next);
    b_.SetInsertPoint(next);
  }

  void emit_started(const ProgramStep& step) {
    if (step.kind == StepKind::kCopy) {
      const ProgramBuffer &from = program_.buffers[static_cast<size_t>(step.from)],
                          &to = program_.buffers[static_cast<size_t>(step.to)];
      const bool brings = to.device > 0;
      or_stop(
          host_call(abi::kHostCopy, "copy",
                    {b_.getInt32(row_of(brings ? to.device : from.device)), pointer_to(brings ? step.to : step.from),
                     pointer_to(brings ? step.from : step.to), bytes_of(to), b_.getInt32(brings ? 1 : 0)}));
      return;
    }
    for (size_t c = step.first_call; c < step.first_call + step.num_calls; ++c) {
      const KernelCall& call = program_.calls[c];
      const Kernel& kernel = program_.kernels[static_cast<size_t>(call.kernel)];
      int64_t slot = 0;
      for (const BufferId id : call.args) b_.CreateStore(pointer_to(id), offset(args_, 8 * slot++));
      Value* sizes = offset(args_, 8 * slot);
      for (const Var& symbol : kernel.program.symbols) b_.CreateStore(size_value(symbol), offset(args_, 8 * slot++));
      or_stop(host_call(
          abi::kHostStart, "start",
          {b_.getInt32(static_cast<uint32_t>(plan_.operations[static_cast<size_t>(call.kernel)])), args_, sizes}));
    }
  }

  // The arena or the weights that a buffer lies in.
  Value* memory_of(const BufferAddress& at) {
    const bool is_weight = at.base == BufferAddress::Base::kWeights;
    if (at.device == 0) return is_weight ? weights_ : arena_;
    return field(devices_, abi::kDeviceMemoryBytes * row_of(at.device) + (is_weight ? 8 : 0),
                 is_weight ? "weights" : "arena");
  }

  // Gives a data symbol its value.
  void emit_bind(const ProgramStep& step) {
    const size_t number = plan_.size_slot(step.symbol);
    const auto least = [&](Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSLT(a, b), a, b); };
    const auto largest = [&](Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSGT(a, b), a, b); };
    Value* count = b_.CreateAlignedLoad(b_.getInt64Ty(), pointer_to(step.count_buffer), kElement);
    Value* most = size_value(program_.symbols[number].bound);
    Value* lo = b_.getInt64(static_cast<uint64_t>(program_.symbols[number].lo));
    b_.CreateStore(largest(least(count, most), lo), size_slot(static_cast<int64_t>(number)));
  }

  // The dimensions of outputs that data have decided, for the host.
  void emit_decided() {
    int64_t slot = plan_.first_decided_slot();
    for (const DecidedDim& dim : plan_.decided) b_.CreateStore(size_value(dim.size), size_slot(slot++));
  }

  Value* size_slot(int64_t slot) { return offset(sizes_, 8 * slot); }

  void emit_block_of(const StepBlock& block, const Parts& parts) {
    for (const ProgramStep& step : block) emit_step_of(step, parts);
  }

  Value* is_true(BufferId condition) {
    return b_.CreateIsNotNull(b_.CreateLoad(b_.getInt8Ty(), pointer_to(condition)), "holds");
  }

  void emit_branch(const ProgramStep& step, const Parts& parts) {
    llvm::BasicBlock *taken = new_block("taken"), *other = new_block("else"), *after = new_block("after");
    b_.CreateCondBr(is_true(step.condition), taken, other);
    b_.SetInsertPoint(taken);
    emit_block_of(step.blocks[0], parts);
    b_.CreateBr(after);
    b_.SetInsertPoint(other);
    emit_block_of(step.blocks[1], parts);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  void emit_loop(const ProgramStep& step, const Parts& parts) {
    const auto least = [&](Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSLT(a, b), a, b); };
    Value* trips = step.index.hi == INT64_MAX ? nullptr : b_.getInt64(static_cast<uint64_t>(step.index.hi + 1));
    Value* count = nullptr;
    if (step.count_buffer >= 0) count = b_.CreateAlignedLoad(b_.getInt64Ty(), pointer_to(step.count_buffer), kElement);
    else if (step.count) count = size_value(step.count);
    if (count) trips = trips ? least(count, trips) : count;
    Value* index = frame_slot(*plan_.index_slot(step.index.var));
    b_.CreateStore(b_.getInt64(0), index);
    llvm::BasicBlock *head = new_block("loop"), *body = new_block("body"), *after = new_block("done");
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    if (trips) {
      llvm::BasicBlock* next = step.condition < 0 ? body : new_block("while");
      b_.CreateCondBr(b_.CreateICmpSLT(b_.CreateLoad(b_.getInt64Ty(), index), trips), next, after);
      b_.SetInsertPoint(next);
    }
    if (step.condition >= 0) {
      b_.CreateCondBr(is_true(step.condition), body, after);
      b_.SetInsertPoint(body);
    }
    check(trips || step.condition >= 0, "a loop that never ends");
    emit_block_of(step.blocks[0], parts);
    for (const CarriedValue& carried : step.carried) emit_carry(carried);
    b_.CreateStore(b_.CreateAdd(b_.CreateLoad(b_.getInt64Ty(), index), b_.getInt64(1)), index);
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
    for (const CarriedValue& carried : step.carried)
      if (carried.swap) emit_return_home(carried);
  }

  void emit_carry(const CarriedValue& carried) {
    if (!carried.swap) return emit_copy(pointer_to(carried.current), pointer_to(carried.next), carried.current);
    Value *current = frame_slot(plan_.place_slots.at(carried.current)),
          *next = frame_slot(plan_.place_slots.at(carried.next));
    Value *from = b_.CreateLoad(b_.getPtrTy(), current), *to = b_.CreateLoad(b_.getPtrTy(), next);
    b_.CreateStore(to, current);
    b_.CreateStore(from, next);
  }

  // Behind the loop, what was carried lies where everybody else looks for it.
  void emit_return_home(const CarriedValue& carried) {
    Value* home = home_pointer(carried.current);
    Value* place = pointer_to(carried.current);
    llvm::BasicBlock *away = new_block("away"), *after = new_block("home");
    b_.CreateCondBr(b_.CreateICmpNE(home, place), away, after);
    b_.SetInsertPoint(away);
    emit_copy(home, place, carried.current);
    b_.CreateStore(home, frame_slot(plan_.place_slots.at(carried.current)));
    b_.CreateStore(home_pointer(carried.next), frame_slot(plan_.place_slots.at(carried.next)));
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  // In this run.
  Value* bytes_of(const ProgramBuffer& buffer) {
    return open_ ? size_value(bytes_formula(buffer.type)) : b_.getInt64(static_cast<uint64_t>(buffer.bytes));
  }

  // As many bytes as `id` has.
  void emit_copy(Value* to, Value* from, BufferId id) {
    b_.CreateCall(copy_function(), {to, from, bytes_of(program_.buffers[static_cast<size_t>(id)])});
  }

  // void copy(ptr to, ptr from, i64 bytes): 32 bytes at a time, then one by one.
  llvm::Function* copy_function() {
    if (copy_) return copy_;
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getPtrTy(), b_.getInt64Ty()}, false);
    copy_ = llvm::Function::Create(type, llvm::Function::InternalLinkage, "copy", module_);
    copy_->addFnAttr(llvm::Attribute::NoInline);
    llvm::IRBuilder<> b(module_.getContext());
    const auto block = [&](const char* name) { return llvm::BasicBlock::Create(module_.getContext(), name, copy_); };
    llvm::BasicBlock* from = block("entry");
    b.SetInsertPoint(from);
    Value* place = b.getInt64(0);
    Value* end = copy_->getArg(2);
    Value* whole = b.CreateAnd(end, b.getInt64(~uint64_t{31}));
    llvm::Type* const chunks[] = {llvm::FixedVectorType::get(b.getInt8Ty(), 32), b.getInt8Ty()};
    for (llvm::Type* chunk : chunks) {
      const bool wide = chunk->isVectorTy();
      llvm::BasicBlock *head = block("head"), *body = block("body"), *after = block("after");
      b.CreateBr(head);
      b.SetInsertPoint(head);
      auto* at = b.CreatePHI(b.getInt64Ty(), 2);
      at->addIncoming(place, from);
      b.CreateCondBr(b.CreateICmpULT(at, wide ? whole : end), body, after);
      b.SetInsertPoint(body);
      Value* value = b.CreateAlignedLoad(chunk, b.CreateGEP(b.getInt8Ty(), copy_->getArg(1), at), llvm::Align(1));
      b.CreateAlignedStore(value, b.CreateGEP(b.getInt8Ty(), copy_->getArg(0), at), llvm::Align(1));
      at->addIncoming(b.CreateAdd(at, b.getInt64(wide ? 32 : 1)), body);
      b.CreateBr(head);
      b.SetInsertPoint(after);
      place = at;
      from = after;
    }
    b.CreateRetVoid();
    return copy_;
  }

  Value* frame_slot(int slot) { return offset(frame_, int64_t{8} * slot); }

  // uint64_t tessera_module_prepare(int64_t* sizes, uint32_t piece): derived dimensions, then where each part of the
  // arena begins; of a flow, those of the piece.
  void emit_prepare() {
    auto* type = llvm::FunctionType::get(b_.getInt64Ty(), {b_.getPtrTy(), b_.getInt32Ty()}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, prepare_name_, module_);
    b_.SetInsertPoint(new_block("entry"));
    sizes_ = function_->getArg(0);
    if (!program_.flow) return emit_prepare_of(0);
    llvm::BasicBlock* other = new_block("other");
    auto* choice = b_.CreateSwitch(function_->getArg(1), other);
    for (size_t piece = 0; piece < program_.pieces.size(); ++piece) {
      if (program_.pieces[piece].num_symbols == 0) continue;
      llvm::BasicBlock* block = new_block("piece");
      choice->addCase(b_.getInt32(static_cast<uint32_t>(piece)), block);
      b_.SetInsertPoint(block);
      emit_prepare_of(piece);
    }
    b_.SetInsertPoint(other);
    b_.CreateRet(b_.getInt64(0));
  }

  void emit_prepare_of(size_t piece) {
    const auto largest = [&](Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSGT(a, b), a, b); };
    int64_t slot = 0;
    for (const SymbolRange& symbol : program_.symbols) {
      if (symbol.is_data())
        b_.CreateStore(largest(size_value(symbol.bound), b_.getInt64(static_cast<uint64_t>(symbol.lo))),
                       size_slot(slot));
      ++slot;
    }
    for (const Expr& dim : plan_.derived) {
      if (is_of_piece(dim, program_, piece)) b_.CreateStore(size_value(dim), offset(sizes_, 8 * slot));
      ++slot;
    }
    std::vector<Value*> ends(plan_.parts.size(), nullptr);
    Value* total = b_.getInt64(0);
    for (size_t i = 0; i < plan_.parts.size(); ++i, ++slot) {
      const ArenaPart& part = plan_.parts[i];
      if (part.piece != piece) continue;
      Value* begin = b_.getInt64(0);
      for (const size_t below : part.below) begin = largest(begin, ends[below]);
      b_.CreateStore(begin, offset(sizes_, 8 * slot));
      ends[i] = b_.CreateAdd(begin, size_value(part.bytes));
      total = largest(total, ends[i]);
    }
    b_.CreateRet(total);
  }

  // An expression of the symbols.
  Value* size_value(const Expr& e) {
    if (const auto value = as_int(e)) return b_.getInt64(static_cast<uint64_t>(*value));
    if (e->kind == ExprKind::kVar) {
      if (const auto slot = plan_.index_slot(e)) return b_.CreateLoad(b_.getInt64Ty(), frame_slot(*slot), e->name);
      return b_.CreateLoad(b_.getInt64Ty(), size_slot(static_cast<int64_t>(plan_.size_slot(e))), e->name);
    }
    if (e->kind == ExprKind::kSelect) {  // of programs behind a switch
      const Expr& condition = e->operands[0];
      check(condition->kind == ExprKind::kBinary && condition->binary == BinaryOp::kLt,
            "a size under another condition: " + to_string(e));
      Value* below = b_.CreateICmpSLT(size_value(condition->operands[0]), size_value(condition->operands[1]));
      return b_.CreateSelect(below, size_value(e->operands[1]), size_value(e->operands[2]));
    }
    check(e->kind == ExprKind::kBinary && e->dtype == DType::kI64, "a size of another kind: " + to_string(e));
    Value* x = size_value(e->operands[0]);
    Value* y = size_value(e->operands[1]);
    // Round towards minus infinity: the remainder has the sign of the divisor, which is positive.
    const auto remainder = [&] {
      Value* r = b_.CreateSRem(x, y);
      return b_.CreateSelect(b_.CreateICmpSLT(r, b_.getInt64(0)), b_.CreateAdd(r, y), r);
    };
    switch (e->binary) {
      case BinaryOp::kAdd: return b_.CreateAdd(x, y);
      case BinaryOp::kSub: return b_.CreateSub(x, y);
      case BinaryOp::kMul: return b_.CreateMul(x, y);
      case BinaryOp::kFloorMod: return remainder();
      case BinaryOp::kFloorDiv: return b_.CreateSDiv(b_.CreateSub(x, remainder()), y);
      case BinaryOp::kMin: return b_.CreateSelect(b_.CreateICmpSLT(x, y), x, y);
      case BinaryOp::kMax: return b_.CreateSelect(b_.CreateICmpSGT(x, y), x, y);
      default: throw InternalError("a size with the operator " + std::string(binary_name(e->binary)));
    }
  }

  // The host does a step; the run ends when it could not. Its answer, for those that ask something.
  Value* emit_step(const FlowStep& step) {
    auto* type = llvm::FunctionType::get(b_.getInt32Ty(), {b_.getPtrTy(), b_.getInt32Ty(), b_.getPtrTy()}, false);
    Value* piece = step.piece < 0 ? static_cast<Value*>(llvm::ConstantPointerNull::get(b_.getPtrTy()))
                                  : pieces_[static_cast<size_t>(step.piece)];
    Value* answer = b_.CreateCall(type, step_, {self_, b_.getInt32(step_number_++), piece}, "answer");
    or_stop(answer);
    return answer;
  }

  // Steps have the numbers of steps_in_order.
  void emit_block(const FlowBlock& block) {
    for (const FlowStep& step : block.steps) {
      llvm::BasicBlock* head = nullptr;
      if (step.op == FlowOp::kWhile) {
        head = new_block("while");
        b_.CreateBr(head);
        b_.SetInsertPoint(head);
      }
      Value* answer = emit_step(step);
      if (step.blocks.empty()) continue;
      llvm::BasicBlock *body = new_block("body"), *other = new_block("else"), *after = other;
      b_.CreateCondBr(b_.CreateICmpNE(answer, b_.getInt32(0)), body, other);
      b_.SetInsertPoint(body);
      emit_block(step.blocks[0]);
      if (step.op == FlowOp::kWhile) {
        b_.CreateBr(head);
      } else {
        after = new_block("after");
        b_.CreateBr(after);
        b_.SetInsertPoint(other);
        emit_block(step.blocks[1]);
        b_.CreateBr(after);
      }
      b_.SetInsertPoint(after);
    }
  }

  llvm::Function* emit_part(const CallRange& calls) {
    std::vector<llvm::Type*> params(program_.steps.empty() ? 1 : 2, b_.getPtrTy());
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), params, false);
    function_ =
        llvm::Function::Create(type, llvm::Function::InternalLinkage, fmt::format("calls_{}", calls.begin), module_);
    call_ = function_->getArg(0);
    if (params.size() > 1) frame_ = function_->getArg(1);
    b_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function_));
    const auto slots = static_cast<uint64_t>(plan_.argument_slots_of(calls));
    args_ = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt64Ty(), slots), nullptr, "args");
    load_fields();
    for (size_t i = calls.begin; i < calls.end; ++i) emit_call(program_.calls[i], static_cast<int32_t>(i));
    b_.CreateRetVoid();
    return function_;
  }

  // At the begin of a function that is given a tsr_call.
  void load_fields() {
    host_ = field(call_, abi::kCallHost, "host");
    arena_ = field(call_, abi::kCallArena, "arena");
    weights_ = field(call_, abi::kCallWeights, "weights");
    scratch_ = field(call_, abi::kCallScratch, "scratch");
    inputs_ = field(call_, abi::kCallInputs, "inputs");
    outputs_ = field(call_, abi::kCallOutputs, "outputs");
    trace_ = field(host_, abi::kHostTrace, "trace");
    self_ = field(host_, abi::kHostSelf, "self");
    tracing_ = b_.CreateIsNotNull(trace_, "tracing");
    if (open_) sizes_ = field(call_, abi::kCallSymbols, "sizes");
    if (!program_.devices.empty()) devices_ = field(call_, abi::kCallDevices, "devices");
  }

  Value* offset(Value* base, int64_t bytes) {
    return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), base, static_cast<uint64_t>(bytes));
  }
  Value* field(Value* base, int64_t bytes, const char* name) {
    return b_.CreateLoad(b_.getPtrTy(), offset(base, bytes), name);
  }

  Value* pointer_to(BufferId id) { return pointer_at(plan_.address(id, open_)); }
  // Where the plan puts it.
  Value* home_pointer(BufferId id) { return pointer_at(plan_.home(id, open_)); }

  Value* pointer_at(const BufferAddress& at) {
    using Base = BufferAddress::Base;
    // What changes places is found first, and the way to everything else.
    Value* base = at.base == Base::kPlace
                      ? b_.CreateLoad(b_.getPtrTy(), frame_slot(static_cast<int>(at.index)), "place")
                      : nullptr;
    Value* way = at.moves ? b_.getInt64(0) : nullptr;
    for (const Expr& step : at.way) way = b_.CreateAdd(way, size_value(step));
    switch (at.base) {
      case Base::kArena:
      case Base::kWeights: base = offset(memory_of(at), at.offset); break;
      case Base::kInput: base = field(inputs_, 8 * at.index, "input"); break;
      case Base::kOutput: base = field(outputs_, 8 * at.index, "output"); break;
      case Base::kPart:
        base = b_.CreateInBoundsGEP(b_.getInt8Ty(), arena_, b_.CreateLoad(b_.getInt64Ty(), size_slot(at.index)));
        break;
      case Base::kPlace: break;
    }
    if (at.moves) return b_.CreateInBoundsGEP(b_.getInt8Ty(), base, way);
    const bool is_own = at.base == Base::kInput || at.base == Base::kOutput;
    return is_own ? offset(base, at.offset) : base;
  }

  void emit_trace(int32_t number, int phase) {
    llvm::LLVMContext& context = module_.getContext();
    auto* report = llvm::BasicBlock::Create(context, "trace", function_);
    auto* after = llvm::BasicBlock::Create(context, "run", function_);
    b_.CreateCondBr(tracing_, report, after);
    b_.SetInsertPoint(report);
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getInt32Ty(), b_.getInt32Ty()}, false);
    b_.CreateCall(type, trace_,
                  {self_, b_.getInt32(static_cast<uint32_t>(number)), b_.getInt32(static_cast<uint32_t>(phase))});
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  void emit_call(const KernelCall& call, int32_t number) {
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(call.kernel)].program;
    int slot = 0;
    for (const BufferId id : call.args) b_.CreateStore(pointer_to(id), offset(args_, 8 * slot++));
    b_.CreateStore(scratch_, offset(args_, 8 * slot++));
    for (const Var& symbol : kernel.symbols) b_.CreateStore(size_value(symbol), offset(args_, 8 * slot++));
    emit_trace(number, 0);
    b_.CreateCall(kernels_[static_cast<size_t>(call.kernel)], {args_, host_});
    emit_trace(number, 1);
  }

  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  const HostPlan& plan_;
  const Program& program_;
  std::vector<llvm::Function*> kernels_;
  const std::string entry_name_, prepare_name_;
  Value* frame_ = nullptr;  // of a program with steps
  Value* devices_ = nullptr;
  llvm::Function* copy_ = nullptr;
  Value* sizes_ = nullptr;
  bool open_ = false;  // what is being written has sizes that come with a call
  std::vector<llvm::Function*> pieces_;
  uint32_t step_number_ = 0;
  Value* step_ = nullptr;
  llvm::BasicBlock* stop_ = nullptr;
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

namespace {

// By kernel; null where it is another device's.
std::vector<llvm::Function*> emit_kernels(llvm::Module& module, const HostPlan& plan, int32_t device,
                                          const EmitTarget& target, EmittedModule& result) {
  const Program& program = plan.program;
  for (const Kernel& kernel : program.kernels)
    if (kernel.device == device)
      result.scratch_bytes = std::max(result.scratch_bytes, plan_locals(kernel.program).scratch_bytes);
  std::vector<llvm::Function*> kernels(program.kernels.size(), nullptr);
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    if (program.kernels[i].device != device) continue;
    const LoopProgram& loops = program.kernels[i].program;
    KernelEmitter emitter(module, target, loops, symbol_of(i, loops.name), plan.alias_classes[i], result.scratch_bytes,
                          result.remarks);
    kernels[i] = emitter.emit();
  }
  return kernels;
}

}  // namespace

EmittedModule emit_module(llvm::Module& module, const Program& program, const EmitTarget& target,
                          const std::string& suffix) {
  EmittedModule result;
  const HostPlan plan(program);
  std::vector<llvm::Function*> kernels = emit_kernels(module, plan, 0, target, result);
  EntryEmitter(module, plan, std::move(kernels), suffix).emit();
  return result;
}

EmittedModule emit_operations(llvm::Module& module, const Program& program, int32_t device, const EmitTarget& target) {
  EmittedModule result;
  const HostPlan plan(program);
  const std::vector<llvm::Function*> kernels = emit_kernels(module, plan, device, target, result);
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (!kernels[i]) continue;
    kernels[i]->setLinkage(llvm::Function::ExternalLinkage);
    kernels[i]->setName(codegen::operation_name(static_cast<int32_t>(i)));
  }
  return result;
}

}  // namespace tessera::inline llvm_codegen
