#include "interp/loop_interp.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "interp/loop_code.h"
#include "interp/scalar_ops.h"
#include "support/error.h"

namespace tessera::inline interp {
namespace {

// Reading of a slot as a double for float types, whatever their width.
double as_double(DType dtype, const Slot& slot) { return dtype == DType::kF32 ? slot.s : slot.d; }

void set_float(DType dtype, Slot& slot, double value) {
  if (dtype == DType::kF32) slot.s = static_cast<float>(value);
  else slot.d = round_to(dtype, value);
}

class Machine {
 public:
  Machine(LoopCode code, std::span<const BufferView> params) : code_(std::move(code)), memory_(code_.buffers.size()) {
    for (size_t i = 0; i < code_.buffers.size(); ++i) {
      const LoopCodeBuffer& buffer = code_.buffers[i];
      if (buffer.is_param) {
        memory_[i].data = params[i].data;
        continue;
      }
      const auto bytes = static_cast<size_t>(dtype_bytes(buffer.buffer->dtype, buffer.elements));
      memory_[i].storage.resize(bytes + 8);
      memory_[i].data = memory_[i].storage.data();
      memory_[i].written.resize(static_cast<size_t>(buffer.elements));
    }
  }

  void run();

 private:
  struct Memory {
    std::byte* data = nullptr;
    std::vector<std::byte> storage;
    std::vector<uint8_t> written;  // allocations: 1 for every element stored to since the allocation
  };

  void mark(const LoopInstr& in, int64_t at) {
    auto& written = memory_[static_cast<size_t>(in.b)].written;
    if (!written.empty()) written[static_cast<size_t>(at)] = 1;
  }

  [[noreturn]] void index_error(const LoopInstr& in, int64_t index) const {
    const LoopCodeAccess& access = code_.accesses[static_cast<size_t>(in.b)];
    throw LoopFault(
        access.is_store ? LoopFault::Kind::kStore : LoopFault::Kind::kLoad,
        fmt::format("kernel {}: {} outside its buffer {}: {} has index {} in dimension {}", code_.kernel,
                    access.is_store ? "store" : "load", describe(access.buffer), text_of(access), index, in.c));
  }

  [[noreturn]] void unwritten_error(const LoopInstr& in, int64_t at) const {
    const LoopCodeAccess& access = code_.accesses[static_cast<size_t>(in.imm)];
    const auto& dims = code_.buffers[static_cast<size_t>(access.buffer)].dims;
    std::string index;
    for (size_t d = dims.size(); d-- > 0; at /= dims[d])
      index = fmt::format("{}{}{}", at % dims[d], index.empty() ? "" : ", ", index);
    throw LoopFault(LoopFault::Kind::kUnwritten,
                    fmt::format("kernel {}: load of {} from {} reads element [{}], which was never stored to",
                                code_.kernel, text_of(access), describe(access.buffer), index));
  }

  // "x[(i - 1), j]"
  std::string text_of(const LoopCodeAccess& access) const {
    std::string text = code_.buffers[static_cast<size_t>(access.buffer)].buffer->name + "[";
    for (size_t i = 0; i < access.indices.size(); ++i) text += (i ? ", " : "") + to_string(access.indices[i]);
    return text + "]";
  }

  std::string describe(int32_t buffer) const {
    const LoopCodeBuffer& b = code_.buffers[static_cast<size_t>(buffer)];
    return fmt::format("{}: {}[{}]", b.buffer->name, dtype_name(b.buffer->dtype), fmt::join(b.dims, ","));
  }

  void slow_unary(const LoopInstr& in);
  void slow_binary(const LoopInstr& in);
  void convert(const LoopInstr& in);
  void bitcast(const LoopInstr& in);

  LoopCode code_;
  std::vector<Memory> memory_;
};

void Machine::slow_unary(const LoopInstr& in) {
  Slot& dst = code_.slots[static_cast<size_t>(in.dst)];
  const Slot a = code_.slots[static_cast<size_t>(in.a)];
  const auto op = static_cast<UnaryOp>(in.sub);
  if (!is_float(in.from)) dst.i = int_unary(op, in.from, a.i);
  else if (op == UnaryOp::kIsNan || op == UnaryOp::kIsInf) dst.i = float_test(op, as_double(in.from, a));
  else set_float(in.dtype, dst, float_unary(op, as_double(in.from, a)));
}

void Machine::slow_binary(const LoopInstr& in) {
  Slot& dst = code_.slots[static_cast<size_t>(in.dst)];
  const Slot a = code_.slots[static_cast<size_t>(in.a)];
  const Slot b = code_.slots[static_cast<size_t>(in.b)];
  const auto op = static_cast<BinaryOp>(in.sub);
  if (!is_float(in.from)) dst.i = int_binary(op, in.from, a.i, b.i);
  else set_float(in.dtype, dst, float_binary(op, as_double(in.from, a), as_double(in.from, b)));
}

void Machine::convert(const LoopInstr& in) {
  Slot& dst = code_.slots[static_cast<size_t>(in.dst)];
  const Slot a = code_.slots[static_cast<size_t>(in.a)];
  if (is_float(in.from)) {
    const double value = as_double(in.from, a);
    if (is_float(in.dtype)) set_float(in.dtype, dst, value);
    else dst.i = float_to_int(in.dtype, value);
  } else if (is_float(in.dtype)) {
    set_float(in.dtype, dst, int_to_float(in.from, in.dtype, a.i));
  } else {
    dst.i = canonical_int(in.dtype, a.i);
  }
}

void Machine::bitcast(const LoopInstr& in) {
  Slot& dst = code_.slots[static_cast<size_t>(in.dst)];
  const Slot a = code_.slots[static_cast<size_t>(in.a)];
  const uint64_t bits = is_float(in.from) ? float_bits(in.from, as_double(in.from, a)) : int_bits(in.from, a.i);
  if (is_float(in.dtype)) set_float(in.dtype, dst, float_from_bits(in.dtype, bits));
  else dst.i = int_from_bits(in.dtype, bits);
}

void Machine::run() {
  Slot* const slots = code_.slots.data();
  Memory* const memory = memory_.data();
  const LoopInstr* in = code_.instrs.data();
  const LoopInstr* const end = in + code_.instrs.size();
  for (; in != end; ++in) {
    Slot& dst = slots[in->dst];
    const Slot& a = slots[in->a];
    const Slot& b = slots[in->b];
    switch (in->op) {
      case LoopOp::kMulAdd:
        dst.i = static_cast<int64_t>(static_cast<uint64_t>(a.i) +
                                     static_cast<uint64_t>(b.i) * static_cast<uint64_t>(in->imm));
        break;
      case LoopOp::kCheck:
        if (static_cast<uint64_t>(a.i) >= static_cast<uint64_t>(in->imm)) index_error(*in, a.i);
        break;
      case LoopOp::kCheckWritten:
        if (!memory[in->b].written[static_cast<size_t>(a.i)]) unwritten_error(*in, a.i);
        break;
      case LoopOp::kLoadF32: std::memcpy(&dst.s, memory[in->b].data + a.i * 4, 4); break;
      case LoopOp::kLoadI64: std::memcpy(&dst.i, memory[in->b].data + a.i * 8, 8); break;
      case LoopOp::kLoadFloat: dst.d = read_float(in->dtype, memory[in->b].data, a.i); break;
      case LoopOp::kLoadInt: {
        const int64_t value = read_int(in->dtype, memory[in->b].data, a.i);
        dst.i = value;
        break;
      }
      case LoopOp::kStoreF32:
        std::memcpy(memory[in->b].data + a.i * 4, &dst.s, 4);
        mark(*in, a.i);
        break;
      case LoopOp::kStoreI64:
        std::memcpy(memory[in->b].data + a.i * 8, &dst.i, 8);
        mark(*in, a.i);
        break;
      case LoopOp::kStoreFloat:
        write_float(in->dtype, memory[in->b].data, a.i, dst.d);
        mark(*in, a.i);
        break;
      case LoopOp::kStoreInt:
        write_int(in->dtype, memory[in->b].data, a.i, dst.i);
        mark(*in, a.i);
        break;
      case LoopOp::kMove: dst = a; break;
      case LoopOp::kSelect: dst = a.i ? b : slots[in->c]; break;
      case LoopOp::kAddF32: dst.s = a.s + b.s; break;
      case LoopOp::kSubF32: dst.s = a.s - b.s; break;
      case LoopOp::kMulF32: dst.s = a.s * b.s; break;
      case LoopOp::kDivF32: dst.s = a.s / b.s; break;
      case LoopOp::kMinF32: dst.s = std::isnan(a.s) || std::isnan(b.s) ? a.s + b.s : b.s < a.s ? b.s : a.s; break;
      case LoopOp::kMaxF32: dst.s = std::isnan(a.s) || std::isnan(b.s) ? a.s + b.s : a.s < b.s ? b.s : a.s; break;
      // The product of two floats is exact in double.
      case LoopOp::kFmaF32:
        dst.s = static_cast<float>(static_cast<double>(a.s) * static_cast<double>(b.s) +
                                   static_cast<double>(slots[in->c].s));
        break;
      case LoopOp::kAddI64:
        dst.i = static_cast<int64_t>(static_cast<uint64_t>(a.i) + static_cast<uint64_t>(b.i));
        break;
      case LoopOp::kSubI64:
        dst.i = static_cast<int64_t>(static_cast<uint64_t>(a.i) - static_cast<uint64_t>(b.i));
        break;
      case LoopOp::kMulI64:
        dst.i = static_cast<int64_t>(static_cast<uint64_t>(a.i) * static_cast<uint64_t>(b.i));
        break;
      case LoopOp::kLtI64: dst.i = a.i < b.i; break;
      case LoopOp::kLeI64: dst.i = a.i <= b.i; break;
      case LoopOp::kAnd: dst.i = a.i & b.i; break;
      case LoopOp::kUnary: slow_unary(*in); break;
      case LoopOp::kBinary: slow_binary(*in); break;
      case LoopOp::kCompareFloat:
        dst.i = float_compare(static_cast<BinaryOp>(in->sub), as_double(in->from, a), as_double(in->from, b));
        break;
      case LoopOp::kFma: set_float(in->dtype, dst, std::fma(a.d, b.d, slots[in->c].d)); break;
      case LoopOp::kCast: convert(*in); break;
      case LoopOp::kBitcast: bitcast(*in); break;
      case LoopOp::kJump: in += in->imm; break;
      case LoopOp::kJumpIfNot:
        if (!a.i) in += in->imm;
        break;
      case LoopOp::kLoopEnter: {
        const int64_t begin = a.i;
        const int64_t extent = b.i;
        if (extent <= 0) {
          in += in->imm;
          break;
        }
        dst.i = begin;
        if (__builtin_add_overflow(begin, extent, &slots[in->c].i))
          throw InternalError(fmt::format("kernel {}: a loop ends beyond the largest i64", code_.kernel));
        break;
      }
      case LoopOp::kLoopNext:
        if (++dst.i < slots[in->c].i) in += in->imm;
        break;
      case LoopOp::kAlloc: {
        auto& written = memory[in->b].written;
        std::memset(written.data(), 0, written.size());
        break;
      }
    }
  }
}

}  // namespace

void interpret(const LoopProgram& program, std::span<const BufferView> params, std::span<const int64_t> symbols) {
  const auto fail = [&](const std::string& message) {
    throw InternalError(fmt::format("kernel {}: {}", program.name, message));
  };
  if (params.size() != program.params.size())
    fail(fmt::format("called with {} parameters instead of {}", params.size(), program.params.size()));
  if (symbols.size() != program.symbols.size())
    fail(fmt::format("called with {} symbols instead of {}", symbols.size(), program.symbols.size()));
  std::vector<bool> writable;
  for (const BufferView& param : params) writable.push_back(param.writable);
  LoopCode code = compile_loop_code(program, {symbols.begin(), symbols.end()}, writable);
  for (size_t i = 0; i < params.size(); ++i) {
    const LoopCodeBuffer& expected = code.buffers[i];
    if (params[i].dtype != expected.buffer->dtype || params[i].dims != expected.dims)
      fail(fmt::format("parameter {} is {}[{}], called with {}[{}]", expected.buffer->name,
                       dtype_name(expected.buffer->dtype), fmt::join(expected.dims, ","), dtype_name(params[i].dtype),
                       fmt::join(params[i].dims, ",")));
    if (!params[i].data && expected.elements != 0)
      fail(fmt::format("parameter {} has no memory", expected.buffer->name));
  }
  Machine(std::move(code), params).run();
}

void interpret(const LoopProgram& program, std::span<Tensor* const> params, std::span<const int64_t> symbols) {
  std::vector<BufferView> views;
  for (Tensor* tensor : params) {
    check(tensor != nullptr, "null tensor given to kernel " + program.name);
    std::byte* const own = tensor->mutable_bytes();
    // The code never stores through a view that is not writable.
    views.push_back(
        {tensor->dtype(), tensor->dims(), own ? own : const_cast<std::byte*>(tensor->bytes()), own != nullptr});
  }
  interpret(program, std::span<const BufferView>(views), symbols);
}

}  // namespace tessera::inline interp
