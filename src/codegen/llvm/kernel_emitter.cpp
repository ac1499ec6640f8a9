#include "codegen/llvm/kernel_emitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/common/abi_fields.h"
#include "codegen/common/work_estimate.h"
#include "loop/intrinsic.h"
#include "program/donation.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {

using llvm::Value;

KernelEmitter::KernelEmitter(llvm::Module& module, const EmitTarget& target, const LoopProgram& program,
                             std::string symbol, std::vector<int> alias_classes, int64_t scratch_stride,
                             std::vector<std::string>& remarks)
    : module_(module),
      context_(module.getContext()),
      b_(context_),
      emit_for_(target),
      target_(emit_for_.machine),
      ops_(b_, emit_for_),
      program_(program),
      symbol_(std::move(symbol)),
      alias_classes_(std::move(alias_classes)),
      scratch_stride_(scratch_stride),
      remarks_(remarks),
      locals_(plan_locals(program)) {
  llvm::MDBuilder md(context_);
  alias_domain_ = md.createAnonymousAliasScopeDomain(symbol_);
  int next = 0;
  for (size_t i = 0; i < program_.params.size(); ++i) {
    classes_[program_.params[i].get()] = alias_classes_[i];
    next = std::max(next, alias_classes_[i] + 1);
  }
  // Allocations overlap nothing but those that use the same scratch memory after each other. All classes must be known
  // before the first access is written.
  std::vector<const Buffer*> in_scratch;
  walk(
      program_.body,
      [&](const Stmt& s) {
        if (s->kind != StmtKind::kAlloc || classes_.count(s->buffer.get())) return;
        const Buffer* buffer = s->buffer.get();
        const int fresh = classes_[buffer] = next++;
        const auto local = locals_.places.find(buffer);
        if (local == locals_.places.end() || local->second.on_stack) return;
        for (const Buffer* other : in_scratch) {
          if (!share_scratch(local->second, locals_.places.at(other))) continue;
          const int joined = classes_.at(other);
          for (const Buffer* each : in_scratch)
            if (classes_.at(each) == joined) classes_[each] = fresh;
        }
        in_scratch.push_back(buffer);
      },
      nullptr);
  for (int c = 0; c < next; ++c) scopes_[c] = md.createAnonymousAliasScope(alias_domain_);
}

llvm::MDNode* KernelEmitter::scope_of(int alias_class) {
  return llvm::MDNode::get(context_, {scopes_.at(alias_class)});
}

llvm::MDNode* KernelEmitter::scopes_except(int alias_class) {
  std::vector<llvm::Metadata*> others;
  for (const auto& [other, scope] : scopes_)
    if (other != alias_class) others.push_back(scope);
  return others.empty() ? nullptr : llvm::MDNode::get(context_, others);
}

KernelEmitter::Place KernelEmitter::memory_place(const Buffer* buffer, Value* pointer) {
  Place place;
  place.pointer = pointer;
  const int alias_class = classes_.at(buffer);
  place.scope = scope_of(alias_class);
  place.noalias = scopes_except(alias_class);
  return place;
}

llvm::AllocaInst* KernelEmitter::stack_slot(llvm::Type* type, const llvm::Twine& name, llvm::Align align) {
  llvm::IRBuilder<> at(f_.allocas, f_.allocas->begin());
  auto* slot = at.CreateAlloca(type, nullptr, name);
  slot->setAlignment(align);
  return slot;
}

llvm::AllocaInst* KernelEmitter::buffer_slot(const Buffer& buffer, llvm::Type* type, size_t cell) {
  llvm::AllocaInst*& slot = f_.slots[{&buffer, cell, type}];
  if (!slot) slot = stack_slot(type, buffer.name, llvm::Align(64));
  return slot;
}

Value* KernelEmitter::slot_pointer(Value* args, int slot) {
  return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), args, static_cast<uint64_t>(slot) * 8);
}

void KernelEmitter::begin_function(llvm::Function* function) {
  f_ = {};
  f_.function = function;
  f_.allocas = llvm::BasicBlock::Create(context_, "entry", function);
  f_.indices.emplace_back();
  f_.values.emplace_back();
  f_.args = function->arg_empty() ? nullptr : function->getArg(0);
  b_.SetInsertPoint(f_.allocas);
}

// The fixed slots of `args`: parameters and symbols.
void KernelEmitter::load_params() {
  int slot = 0;
  for (const BufferPtr& param : program_.params) {
    Value* pointer = b_.CreateLoad(b_.getPtrTy(), slot_pointer(f_.args, slot++), param->name);
    f_.places[param.get()] = memory_place(param.get(), pointer);
  }
  for (size_t i = 0; i < program_.symbols.size(); ++i) {
    const Var& symbol = program_.symbols[i];
    f_.vars[symbol.get()] =
        b_.CreateLoad(b_.getInt64Ty(), slot_pointer(f_.args, symbol_slot(program_, static_cast<int>(i))), symbol->name);
  }
}

void KernelEmitter::end_function() {
  if (f_.tiles) {
    f_.tiles->release(b_);
    // A task releases the tiles of its thread, and a function of the user's may expect that nobody uses them.
    for (llvm::CallInst* call : f_.calls) {
      llvm::IRBuilder<> at(call);
      f_.tiles->release(at);
      at.SetInsertPoint(call->getNextNode());
      f_.tiles->configure(at);
    }
  }
  b_.CreateRetVoid();
}

llvm::Function* KernelEmitter::emit() {
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getPtrTy()}, false);
  auto* function = llvm::Function::Create(type, llvm::Function::InternalLinkage, symbol_, module_);
  begin_function(function);
  f_.host = function->getArg(1);
  f_.scratch = b_.CreateLoad(b_.getPtrTy(), slot_pointer(f_.args, scratch_slot(program_)), "scratch");
  load_params();
  // A copy to where its operand lies, as of a cache that grows in the caller's memory, is nothing.
  llvm::BasicBlock* done = nullptr;
  if (is_copy(program_) && alias_classes_[0] == alias_classes_[1]) {
    done = llvm::BasicBlock::Create(context_, "done", function);
    auto* work = llvm::BasicBlock::Create(context_, "work", function);
    Value* in_place =
        b_.CreateICmpEQ(f_.places.at(program_.params[0].get()).pointer, f_.places.at(program_.params[1].get()).pointer);
    b_.CreateCondBr(in_place, done, work);
    b_.SetInsertPoint(work);
  }
  emit(program_.body);
  if (done) {
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
  }
  end_function();
  return function;
}

KernelEmitter::Captured KernelEmitter::captured_by(const Stmt& s, std::unordered_set<const void*> known) const {
  Captured captured;
  const auto use_buffer = [&](const BufferPtr& buffer) {
    if (f_.places.contains(buffer.get()) && known.insert(buffer.get()).second) captured.buffers.push_back(buffer.get());
  };
  walk(
      s,
      [&](const Stmt& child) {
        if (child->buffer) use_buffer(child->buffer);
      },
      [&](const Expr& e) {
        if (e->kind == ExprKind::kLoad) use_buffer(e->buffer);
        if (e->kind == ExprKind::kVar && f_.vars.count(e.get()) && known.insert(e.get()).second)
          captured.vars.push_back(e);
      });
  return captured;
}

bool KernelEmitter::is_part(const Stmt& s) const {
  if (s->kind != StmtKind::kFor || s->for_kind != ForKind::kSerial || as_int(s->extent) == 1) return false;
  bool has_tiles = false, has_others = false;
  walk(
      s,
      [&](const Stmt& child) {
        if (child->kind == StmtKind::kAlloc && child->buffer->scope == MemoryScope::kRegister) {
          const int64_t bits = constant_elements(*child->buffer).value_or(0) * dtype_bits(child->buffer->dtype);
          has_tiles |= bits >= int64_t{target_.vector_bits()} * target_.vector_registers() / 2;
        }
        if (child->kind == StmtKind::kTensorized) has_others |= child->intrinsic->code == IntrinsicCode::kTileDot;
        has_others |= child->kind == StmtKind::kFor && child->for_kind == ForKind::kParallel;
      },
      nullptr);
  return has_tiles && !has_others;
}

void KernelEmitter::emit_seq(const Stmt& s) {
  const auto is_other_loop = [&](const Stmt& child) { return child->kind == StmtKind::kFor && !is_part(child); };
  const bool has_parts = !vec_ && std::any_of(s->stmts.begin(), s->stmts.end(), is_other_loop);
  for (const Stmt& child : s->stmts)
    if (!has_parts || !is_part(child) || !emit_part(child)) emit(child);
}

// False where the loop uses registers of this function.
bool KernelEmitter::emit_part(const Stmt& s) {
  const Stmt loop = replaced_.empty() ? s : substitute(s, replaced_);
  const Captured captured = captured_by(loop, {});
  for (const Buffer* buffer : captured.buffers)
    if (f_.places.at(buffer).kind != Place::kMemory) return false;
  kept_stmts_.push_back(loop);

  std::vector<llvm::Type*> types;
  std::vector<Value*> arguments;
  const auto pass = [&](Value* argument) {
    types.push_back(argument->getType());
    arguments.push_back(argument);
  };
  for (const Buffer* buffer : captured.buffers) pass(f_.places.at(buffer).pointer);
  for (const Var& var : captured.vars) pass(f_.vars.at(var.get()));
  if (f_.scratch) pass(f_.scratch);
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), types, false);
  auto* part = llvm::Function::Create(type, llvm::Function::InternalLinkage,
                                      fmt::format("{}.part{}", symbol_, num_parts_++), module_);
  part->addFnAttr(llvm::Attribute::NoInline);

  const FunctionState outer = std::move(f_);
  const auto insert_point = b_.saveIP();
  const VarMap outer_replaced = std::exchange(replaced_, {});
  begin_function(part);
  f_.args = nullptr;
  auto* argument = part->arg_begin();
  for (const Buffer* buffer : captured.buffers) f_.places[buffer] = memory_place(buffer, argument++);
  for (const Var& var : captured.vars) f_.vars[var.get()] = argument++;
  if (outer.scratch) f_.scratch = argument;
  emit(loop);
  end_function();
  f_ = outer;
  replaced_ = outer_replaced;
  b_.restoreIP(insert_point);
  f_.calls.push_back(b_.CreateCall(part, arguments));
  return true;
}

void KernelEmitter::emit_parallel(const Stmt& s) {
  // Unrolled variables around the loop become constants of the task.
  const Stmt loop = replaced_.empty() ? s : substitute(s, replaced_);
  kept_stmts_.push_back(loop);
  // Allocations and loop variables around the loop that it uses.
  std::unordered_set<const void*> passed;
  for (const Var& symbol : program_.symbols) passed.insert(symbol.get());
  for (const BufferPtr& param : program_.params) passed.insert(param.get());
  const auto [buffers, vars] = captured_by(loop, std::move(passed));
  for (const Buffer* buffer : buffers)
    check(f_.places.at(buffer).kind == Place::kMemory,
          where("a parallel loop uses the register buffer " + buffer->name));

  Value* n = evaluate(loop->extent);
  Value* args = f_.args;
  if (!buffers.empty() || !vars.empty()) {
    const int fixed = num_slots(program_);
    const int total = fixed + static_cast<int>(buffers.size() + vars.size());
    args = stack_slot(llvm::ArrayType::get(b_.getInt64Ty(), static_cast<uint64_t>(total)), "task_args", llvm::Align(8));
    for (int slot = 0; slot < fixed; ++slot)
      b_.CreateStore(b_.CreateLoad(b_.getInt64Ty(), slot_pointer(f_.args, slot)), slot_pointer(args, slot));
    int slot = fixed;
    for (const Buffer* buffer : buffers) b_.CreateStore(f_.places.at(buffer).pointer, slot_pointer(args, slot++));
    for (const Var& var : vars) b_.CreateStore(f_.vars.at(var.get()), slot_pointer(args, slot++));
  }

  // The task is written by the same object: put the state of this function aside.
  const FunctionState outer = std::move(f_);
  const auto insert_point = b_.saveIP();
  const VarMap outer_replaced = std::exchange(replaced_, {});
  llvm::Function* task = emit_task(loop, buffers, vars);
  f_ = outer;
  replaced_ = outer_replaced;
  b_.restoreIP(insert_point);

  const double ns = std::max(estimate_ns(loop->stmts[0], target_), 0.1);
  const auto serial_below = static_cast<int64_t>(std::min(std::ceil(kSerialBelowNs / ns), 1e15));
  const auto grain = static_cast<int64_t>(std::min(std::ceil(kGrainNs / ns), 1e15));
  const auto call_direct = [&] { f_.calls.push_back(b_.CreateCall(task, {args, b_.getInt64(0), n, b_.getInt32(0)})); };
  const auto call_split = [&] {
    const auto field = [&](int64_t offset, llvm::Type* type) {
      return b_.CreateLoad(type, b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), f_.host, static_cast<uint64_t>(offset)));
    };
    auto* type = llvm::FunctionType::get(
        b_.getVoidTy(), {b_.getPtrTy(), b_.getPtrTy(), b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty()}, false);
    Value* parallel_for = field(abi::kHostParallelFor, b_.getPtrTy());
    f_.calls.push_back(b_.CreateCall(
        type, parallel_for,
        {field(abi::kHostSelf, b_.getPtrTy()), task, args, n, b_.getInt64(static_cast<uint64_t>(grain))}));
  };
  if (const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(n)) {
    if (constant->getSExtValue() <= 0) return;
    const bool direct = constant->getSExtValue() < std::max<int64_t>(serial_below, 2);
    direct ? call_direct() : call_split();
    return;
  }
  auto* direct_block = llvm::BasicBlock::Create(context_, "direct", f_.function);
  auto* split_block = llvm::BasicBlock::Create(context_, "split", f_.function);
  auto* done = llvm::BasicBlock::Create(context_, "done", f_.function);
  b_.CreateCondBr(b_.CreateICmpSLT(n, b_.getInt64(static_cast<uint64_t>(std::max<int64_t>(serial_below, 2)))),
                  direct_block, split_block);
  b_.SetInsertPoint(direct_block);
  call_direct();
  b_.CreateBr(done);
  b_.SetInsertPoint(split_block);
  call_split();
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

llvm::Function* KernelEmitter::emit_task(const Stmt& loop, const std::vector<const Buffer*>& buffers,
                                         const std::vector<Var>& vars) {
  auto* type = llvm::FunctionType::get(b_.getVoidTy(),
                                       {b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty(), b_.getInt32Ty()}, false);
  auto* task = llvm::Function::Create(type, llvm::Function::InternalLinkage,
                                      fmt::format("{}.task{}", symbol_, num_tasks_++), module_);
  begin_function(task);
  load_params();
  int slot = num_slots(program_);
  for (const Buffer* buffer : buffers)
    f_.places[buffer] = memory_place(buffer, b_.CreateLoad(b_.getPtrTy(), slot_pointer(f_.args, slot++), buffer->name));
  for (const Var& var : vars)
    f_.vars[var.get()] = b_.CreateLoad(b_.getInt64Ty(), slot_pointer(f_.args, slot++), var->name);
  if (locals_.scratch_bytes > 0) {
    Value* base = b_.CreateLoad(b_.getPtrTy(), slot_pointer(f_.args, scratch_slot(program_)));
    Value* worker = b_.CreateSExt(task->getArg(3), b_.getInt64Ty());
    f_.scratch = b_.CreateInBoundsGEP(
        b_.getInt8Ty(), base, b_.CreateMul(worker, b_.getInt64(static_cast<uint64_t>(scratch_stride_))), "scratch");
  }
  const Interval begin = bounds_of(loop->begin, bounds_);
  const Interval extent = bounds_of(loop->extent, bounds_);
  bind(loop->var, {begin.lo, begin.hi && extent.hi ? std::optional(*begin.hi + *extent.hi - 1) : std::nullopt});
  Value* first = task->getArg(1);
  Value* count = b_.CreateSub(task->getArg(2), first);
  // tsr_host promises pieces with at least one iteration; a direct call passes all of a loop that may be empty.
  emit_loop(loop->var, b_.CreateAdd(evaluate(loop->begin), first), count, as_int(loop->extent).value_or(0) > 0,
            [&] { emit(loop->stmts[0]); });
  end_function();
  return task;
}

}  // namespace tessera::inline llvm_codegen
