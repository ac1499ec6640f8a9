#include "codegen/llvm/tile_ops.h"

#include <fmt/format.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <array>
#include <functional>

namespace tessera::inline llvm_codegen {

using llvm::Value;

namespace {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;
using Builder = llvm::IRBuilder<>;

class AmxTiles final : public TileOps {
 public:
  void configure(Builder& b) override {
    // Palette 1: at byte 16 the bytes of a row of each tile, at byte 48 its rows.
    std::array<uint8_t, 64> bytes{};
    bytes[0] = 1;
    for (size_t tile = 0; tile < kTiles; ++tile) bytes[16 + 2 * tile] = kRowBytes, bytes[48 + tile] = kRows;
    llvm::Module& module = *b.GetInsertBlock()->getModule();
    constexpr const char* kName = "tessera.tile_config";
    llvm::GlobalVariable* config = module.getNamedGlobal(kName);
    if (!config) {
      auto* data = llvm::ConstantDataArray::get(b.getContext(), llvm::ArrayRef(bytes));
      config = new llvm::GlobalVariable(module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, kName);
      config->setAlignment(llvm::Align(64));
    }
    b.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {}, {config});
  }
  void release(Builder& b) override { b.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {}, {}); }
  void load(Builder& b, int tile, Value* pointer, Value* stride) override {
    b.CreateIntrinsic(llvm::Intrinsic::x86_tileloadd64, {}, {number(b, tile), pointer, stride});
  }
  void store(Builder& b, int tile, Value* pointer, Value* stride) override {
    b.CreateIntrinsic(llvm::Intrinsic::x86_tilestored64, {}, {number(b, tile), pointer, stride});
  }
  void clear(Builder& b, int tile) override { b.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {}, {number(b, tile)}); }
  void dot(Builder& b, DType a_type, DType b_type, int acc, int a, int b_tile) override {
    namespace ids = llvm::Intrinsic;
    const auto id = a_type == DType::kBF16 ? ids::x86_tdpbf16ps
                    : a_type == DType::kU8 ? (b_type == DType::kU8 ? ids::x86_tdpbuud : ids::x86_tdpbusd)
                                           : (b_type == DType::kU8 ? ids::x86_tdpbsud : ids::x86_tdpbssd);
    b.CreateIntrinsic(id, {}, {number(b, acc), number(b, a), number(b, b_tile)});
  }

 private:
  static Value* number(Builder& b, int tile) { return b.getInt8(static_cast<uint8_t>(tile)); }
};

// for i < count: body(i)
void emit_loop(Builder& b, uint64_t count, const std::function<void(Value*)>& body) {
  llvm::BasicBlock* before = b.GetInsertBlock();
  auto* block = llvm::BasicBlock::Create(b.getContext(), "tile_loop", before->getParent());
  auto* after = llvm::BasicBlock::Create(b.getContext(), "tile_done", before->getParent());
  b.CreateBr(block);
  b.SetInsertPoint(block);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2);
  i->addIncoming(b.getInt64(0), before);
  body(i);
  Value* next = b.CreateAdd(i, b.getInt64(1));
  i->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpULT(next, b.getInt64(count)), block, after);
  b.SetInsertPoint(after);
}

class PortableTiles final : public TileOps {
 public:
  explicit PortableTiles(llvm::BasicBlock* entry) {
    Builder at(entry, entry->begin());
    for (Value*& tile : tiles_) {
      auto* slot = at.CreateAlloca(llvm::ArrayType::get(at.getInt8Ty(), kRows * kRowBytes), nullptr, "tile");
      slot->setAlignment(llvm::Align(64));
      tile = slot;
    }
  }
  void configure(Builder&) override {}
  void release(Builder&) override {}
  void load(Builder& b, int tile, Value* pointer, Value* stride) override {
    copy(b, pointer, stride, tiles_[static_cast<size_t>(tile)], b.getInt64(kRowBytes));
  }
  void store(Builder& b, int tile, Value* pointer, Value* stride) override {
    copy(b, tiles_[static_cast<size_t>(tile)], b.getInt64(kRowBytes), pointer, stride);
  }
  void clear(Builder& b, int tile) override {
    llvm::Type* row_type = llvm::FixedVectorType::get(b.getInt32Ty(), 16);
    emit_loop(b, kRows, [&](Value* row) {
      b.CreateAlignedStore(llvm::Constant::getNullValue(row_type),
                           row_of(b, tiles_[static_cast<size_t>(tile)], b.getInt64(kRowBytes), row), llvm::Align(64));
    });
  }
  void dot(Builder& b, DType a_type, DType b_type, int acc, int a, int b_tile) override {
    const auto at = [&](int tile) { return tiles_[static_cast<size_t>(tile)]; };
    llvm::Module& module = *b.GetInsertBlock()->getModule();
    llvm::Function* function = a_type == DType::kBF16 ? bf16_function(module) : int8_function(module, a_type, b_type);
    b.CreateCall(function, {at(acc), at(a), at(b_tile)});
  }

 private:
  static Value* row_of(Builder& b, Value* pointer, Value* stride, Value* row) {
    return b.CreateInBoundsGEP(b.getInt8Ty(), pointer, b.CreateMul(row, stride));
  }

  static void copy(Builder& b, Value* from, Value* from_stride, Value* to, Value* to_stride) {
    llvm::Type* row_type = llvm::FixedVectorType::get(b.getInt32Ty(), 16);
    emit_loop(b, kRows, [&](Value* row) {
      Value* bytes = b.CreateAlignedLoad(row_type, row_of(b, from, from_stride, row), llvm::Align(1));
      b.CreateAlignedStore(bytes, row_of(b, to, to_stride, row), llvm::Align(1));
    });
  }

  // A function (acc, a, b), and the builder at its start.
  static llvm::Function* begin_function(llvm::Module& module, const std::string& name, Builder& b) {
    auto* type = llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), b.getPtrTy()}, false);
    auto* function = llvm::Function::Create(type, llvm::Function::InternalLinkage, name, module);
    b.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", function));
    return function;
  }

  // The products of even and of odd places are summed apart, then added, as AMX does; denormals are kept.
  static llvm::Function* bf16_function(llvm::Module& module) {
    const std::string name = "tessera.tile_dot";
    if (llvm::Function* known = module.getFunction(name)) return known;
    Builder b(module.getContext());
    llvm::Function* function = begin_function(module, name, b);
    llvm::Type* ints = llvm::FixedVectorType::get(b.getInt32Ty(), 16);
    llvm::Type* floats = llvm::FixedVectorType::get(b.getFloatTy(), 16);
    const std::array<Value*, 2> sums = {b.CreateAlloca(floats), b.CreateAlloca(floats)};
    // A bf16 is the upper half of an f32.
    const auto half = [&](Value* pairs, size_t odd) {
      llvm::Type* type_of = pairs->getType();
      Value* bits = odd != 0 ? b.CreateAnd(pairs, llvm::ConstantInt::get(type_of, 0xffff0000u))
                             : b.CreateShl(pairs, llvm::ConstantInt::get(type_of, 16));
      return b.CreateBitCast(bits, floats);
    };
    Value* stride = b.getInt64(kRowBytes);
    emit_loop(b, kRows, [&](Value* r) {
      for (Value* sum : sums) b.CreateStore(llvm::ConstantFP::getZero(floats), sum);
      emit_loop(b, kRows, [&](Value* k) {
        Value* pair = b.CreateAlignedLoad(
            b.getInt32Ty(), b.CreateInBoundsGEP(b.getInt32Ty(), row_of(b, function->getArg(1), stride, r), k),
            llvm::Align(4));
        Value* row = b.CreateAlignedLoad(ints, row_of(b, function->getArg(2), stride, k), llvm::Align(64));
        Value* pairs = b.CreateVectorSplat(16, pair);
        for (size_t odd = 0; odd < 2; ++odd) {
          // Exact: products of bf16 have 16 bits.
          Value* product = b.CreateFMul(half(pairs, odd), half(row, odd));
          b.CreateStore(b.CreateFAdd(b.CreateLoad(floats, sums[odd]), product), sums[odd]);
        }
      });
      Value* at = row_of(b, function->getArg(0), stride, r);
      Value* both = b.CreateFAdd(b.CreateLoad(floats, sums[0]), b.CreateLoad(floats, sums[1]));
      b.CreateAlignedStore(b.CreateFAdd(b.CreateAlignedLoad(floats, at, llvm::Align(64)), both), at, llvm::Align(64));
    });
    b.CreateRetVoid();
    return function;
  }

  static llvm::Function* int8_function(llvm::Module& module, DType a_type, DType b_type) {
    const std::string name = fmt::format("tessera.tile_dot_{}{}", dtype_name(a_type), dtype_name(b_type));
    if (llvm::Function* known = module.getFunction(name)) return known;
    Builder b(module.getContext());
    llvm::Function* function = begin_function(module, name, b);
    llvm::Type* ints = llvm::FixedVectorType::get(b.getInt32Ty(), 16);
    Value* sums = b.CreateAlloca(ints);
    // Byte `i` of each 32 bits.
    const auto byte = [&](Value* quads, uint64_t i, DType type) {
      Value* top = b.CreateShl(quads, llvm::ConstantInt::get(ints, 24 - 8 * i));
      llvm::Constant* shift = llvm::ConstantInt::get(ints, 24);
      return type == DType::kI8 ? b.CreateAShr(top, shift) : b.CreateLShr(top, shift);
    };
    Value* stride = b.getInt64(kRowBytes);
    emit_loop(b, kRows, [&](Value* r) {
      Value* at = row_of(b, function->getArg(0), stride, r);
      b.CreateStore(b.CreateAlignedLoad(ints, at, llvm::Align(64)), sums);
      emit_loop(b, kRows, [&](Value* k) {
        Value* quad = b.CreateAlignedLoad(
            b.getInt32Ty(), b.CreateInBoundsGEP(b.getInt32Ty(), row_of(b, function->getArg(1), stride, r), k),
            llvm::Align(4));
        Value* row = b.CreateAlignedLoad(ints, row_of(b, function->getArg(2), stride, k), llvm::Align(64));
        Value* quads = b.CreateVectorSplat(16, quad);
        for (uint64_t i = 0; i < 4; ++i) {
          Value* product = b.CreateMul(byte(quads, i, a_type), byte(row, i, b_type));
          b.CreateStore(b.CreateAdd(b.CreateLoad(ints, sums), product), sums);
        }
      });
      b.CreateAlignedStore(b.CreateLoad(ints, sums), at, llvm::Align(64));
    });
    b.CreateRetVoid();
    return function;
  }

  std::array<Value*, kTiles> tiles_{};
};

}  // namespace

std::unique_ptr<TileOps> amx_tiles() { return std::make_unique<AmxTiles>(); }
std::unique_ptr<TileOps> portable_tiles(llvm::BasicBlock* entry) { return std::make_unique<PortableTiles>(entry); }

}  // namespace tessera::inline llvm_codegen
