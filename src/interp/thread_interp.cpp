#include "interp/thread_interp.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "arith/int_ops.h"
#include "interp/scalar_ops.h"
#include "loop/intrinsic.h"
#include "support/error.h"
#include "types/tensor.h"

namespace tessera::inline interp {
namespace {

// Integers in canonical form in `i`, floats in `d`.
struct Value {
  int64_t i = 0;
  double d = 0;
};

using Variables = std::unordered_map<const ExprNode*, int64_t>;

// Who has touched an element: a thread of a block, between two barriers.
struct Touch {
  int64_t block = -1, thread = -1, epoch = -1;
};

struct Memory {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  std::byte* data = nullptr;
  std::vector<std::byte> own;
  std::vector<bool> written;          // of allocations
  std::vector<Touch> writer, reader;  // of what several threads reach
  std::vector<bool> more_readers;     // since the barrier at which `reader` is
  std::vector<bool> is_coming;        // by a copy that is under way

  int64_t elements() const { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }
  void track() {
    const auto count = static_cast<size_t>(elements());
    writer.resize(count), reader.resize(count), more_readers.resize(count), is_coming.resize(count);
  }
};

class ThreadRun {
 public:
  ThreadRun(const LoopProgram& program, const Launch& launch, ThreadOrder order,
            std::unordered_map<const Buffer*, Memory*> params, Variables symbols)
      : program_(program), launch_(launch), params_(std::move(params)), symbols_(std::move(symbols)) {
    threads_.resize(static_cast<size_t>(launch.num_threads()));
    std::iota(threads_.begin(), threads_.end(), int64_t{0});
    if (order == ThreadOrder::kBackwards) std::reverse(threads_.begin(), threads_.end());
    if (order == ThreadOrder::kShuffled) std::shuffle(threads_.begin(), threads_.end(), std::mt19937(7));
  }

  void run() {
    std::array<int64_t, 3> blocks = {};
    for (size_t axis = 0; axis < 3; ++axis) blocks[axis] = value(launch_.blocks[axis], symbols_).i;
    for (int64_t z = 0; z < blocks[2]; ++z)
      for (int64_t y = 0; y < blocks[1]; ++y)
        for (int64_t x = 0; x < blocks[0]; ++x) {
          place_ = {x, y, z};
          shared_.clear();
          own_ = std::vector<Stores>(threads_.size());
          copies_ = std::vector<std::deque<std::vector<Copy>>>(threads_.size());
          Variables variables = symbols_;
          of_block(launch_.body, variables);
          run_pending();
          ++block_;
        }
  }

 private:
  using Stores = std::unordered_map<const Buffer*, std::unique_ptr<Memory>>;

  [[noreturn]] void fault(LoopFault::Kind kind, const std::string& text) const {
    throw LoopFault(kind, fmt::format("kernel {}: {}", program_.name, text));
  }

  // ---- what all threads of a block do ----

  void of_block(const Stmt& s, Variables& variables) {
    if (const auto wait = launch_.waits.find(s.get()); wait != launch_.waits.end()) {
      run_pending();
      end_copies(static_cast<size_t>(wait->second));
    }
    if (launch_.barriers.contains(s.get())) {
      run_pending();
      ++epoch_;
    }
    switch (s->kind) {
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) of_block(child, variables);
        return;
      case StmtKind::kFor: break;
      case StmtKind::kIf:
        run_pending();  // the condition may read what threads store
        if (value(s->condition, variables).i) of_block(s->stmts[0], variables);
        else if (s->stmts.size() > 1) of_block(s->stmts[1], variables);
        return;
      case StmtKind::kAlloc: {
        const bool is_shared =
            std::find(launch_.shared.begin(), launch_.shared.end(), s->buffer) != launch_.shared.end();
        if (is_shared && !shared_.contains(s->buffer.get())) {
          shared_[s->buffer.get()] = allocated(*s->buffer);
          shared_[s->buffer.get()]->track();
        } else if (!is_shared) {
          for (Stores& own : own_)
            if (!own.contains(s->buffer.get())) own[s->buffer.get()] = allocated(*s->buffer);
        }
        return of_block(s->stmts[0], variables);
      }
      default: pending_.emplace_back(s, variables); return;  // of a block of one thread
    }
    if (is_thread_axis(s->for_kind)) {
      pending_.emplace_back(s, variables);
      return;
    }
    if (is_block_axis(s->for_kind)) {
      variables[s->var.get()] = place_[axis_of(s->for_kind, ForKind::kBlockX)];
      return of_block(s->stmts[0], variables);
    }
    const int64_t begin = value(s->begin, variables).i, extent = value(s->extent, variables).i;
    for (int64_t i = begin; i < begin + extent; ++i) {
      variables[s->var.get()] = i;
      of_block(s->stmts[0], variables);
    }
  }

  void run_pending() {
    for (const int64_t thread : threads_) {
      thread_ = thread;
      for (auto& [s, variables] : pending_) {
        Variables own = variables;
        if (launch_.copies.contains(s.get())) copies_of_thread().emplace_back();
        of_thread(s, own);
      }
    }
    pending_.clear();
    thread_ = 0;
  }

  // ---- what one thread does ----

  static size_t axis_of(ForKind kind, ForKind first) { return static_cast<size_t>(kind) - static_cast<size_t>(first); }

  int64_t index_of_thread(ForKind axis) const {
    const auto& [x, y, z] = launch_.threads;
    if (axis == ForKind::kThreadX) return thread_ % x;
    return axis == ForKind::kThreadY ? thread_ / x % y : thread_ / (x * y) % z;
  }

  void of_thread(const Stmt& s, Variables& variables) {
    switch (s->kind) {
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) of_thread(child, variables);
        return;
      case StmtKind::kTensorized:
        is_copying_ = s->intrinsic && s->intrinsic->code == IntrinsicCode::kAsyncCopy && !copies_of_thread().empty();
        of_thread(s->stmts[0], variables);
        is_copying_ = false;
        return;
      case StmtKind::kFor: {
        const int64_t extent = value(s->extent, variables).i, begin = value(s->begin, variables).i;
        if (is_thread_axis(s->for_kind)) {
          variables[s->var.get()] = index_of_thread(s->for_kind);
          if (variables[s->var.get()] < extent) of_thread(s->stmts[0], variables);
          return;
        }
        for (int64_t i = begin; i < begin + extent; ++i) {
          variables[s->var.get()] = i;
          of_thread(s->stmts[0], variables);
        }
        return;
      }
      case StmtKind::kIf:
        if (value(s->condition, variables).i) of_thread(s->stmts[0], variables);
        else if (s->stmts.size() > 1) of_thread(s->stmts[1], variables);
        return;
      case StmtKind::kAlloc:
        own_[static_cast<size_t>(thread_)][s->buffer.get()] = allocated(*s->buffer);
        return of_thread(s->stmts[0], variables);
      case StmtKind::kStore: {
        const Value stored = value(s->value, variables);
        Memory& memory = memory_of(*s->buffer);
        const int64_t at = place(*s->buffer, memory, s->indices, variables, LoopFault::Kind::kStore);
        touch(*s->buffer, memory, at, true);
        if (is_copying_ && !memory.is_coming.empty()) {
          memory.is_coming[static_cast<size_t>(at)] = true;
          copies_of_thread().back().push_back({s->buffer.get(), at, stored});
          return;
        }
        if (!memory.written.empty()) memory.written[static_cast<size_t>(at)] = true;
        write(memory, at, stored);
        return;
      }
    }
  }

  // ---- asynchronous copies: as late as they may come ----

  struct Copy {
    const Buffer* buffer;
    int64_t at;
    Value value;
  };
  std::deque<std::vector<Copy>>& copies_of_thread() { return copies_[static_cast<size_t>(thread_)]; }

  void end_copies(size_t most_under_way) {
    for (const int64_t thread : threads_) {
      thread_ = thread;
      for (auto& groups = copies_of_thread(); groups.size() > most_under_way; groups.pop_front())
        for (const auto& [buffer, at, arrived] : groups.front()) {
          Memory& memory = memory_of(*buffer);
          memory.is_coming[static_cast<size_t>(at)] = false;
          touch(*buffer, memory, at, true);
          memory.written[static_cast<size_t>(at)] = true;
          write(memory, at, arrived);
        }
    }
    thread_ = 0;
  }

  // ---- memory ----

  static void write(Memory& memory, int64_t at, const Value& value) {
    if (is_float(memory.dtype)) write_float(memory.dtype, memory.data, at, value.d);
    else write_int(memory.dtype, memory.data, at, value.i);
  }

  static std::unique_ptr<Memory> allocated(const Buffer& buffer) {
    auto memory = std::make_unique<Memory>();
    memory->dtype = buffer.dtype;
    for (const Expr& extent : buffer.shape) memory->dims.push_back(*as_int(extent));
    memory->own.resize(static_cast<size_t>(dtype_bytes(buffer.dtype, memory->elements())));
    memory->data = memory->own.data();
    memory->written.resize(static_cast<size_t>(memory->elements()));
    return memory;
  }

  Memory& memory_of(const Buffer& buffer) {
    if (const auto param = params_.find(&buffer); param != params_.end()) return *param->second;
    if (const auto shared = shared_.find(&buffer); shared != shared_.end()) return *shared->second;
    return *own_[static_cast<size_t>(thread_)].at(&buffer);
  }

  int64_t place(const Buffer& buffer, const Memory& memory, const std::vector<Expr>& indices,
                const Variables& variables, LoopFault::Kind kind) {
    int64_t at = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      const int64_t index = value(indices[i], variables).i;
      if (index < 0 || index >= memory.dims[i])
        fault(kind, fmt::format("index {} of {} is {}, outside its extent {}", i, buffer.name, index, memory.dims[i]));
      at = at * memory.dims[i] + index;
    }
    return at;
  }

  void touch(const Buffer& buffer, Memory& memory, int64_t at, bool stores) {
    if (memory.writer.empty()) return;
    const auto number = static_cast<size_t>(at);
    if (memory.is_coming[number])
      fault(LoopFault::Kind::kRace,
            fmt::format("thread {} of block {} touches element {} of {}, to which a copy is under way", thread_, block_,
                        at, buffer.name));
    const auto is_unordered = [&](const Touch& other) {
      return other.block >= 0 && (other.block != block_ || (other.epoch == epoch_ && other.thread != thread_));
    };
    Touch& reader = memory.reader[number];
    const bool others_read =
        is_unordered(reader) || (reader.block == block_ && reader.epoch == epoch_ && memory.more_readers[number]);
    if (is_unordered(memory.writer[number]) || (stores && others_read)) {
      const Touch& other = is_unordered(memory.writer[number]) ? memory.writer[number] : reader;
      fault(LoopFault::Kind::kRace,
            fmt::format(
                "thread {} of block {} and thread {} of block {} touch element {} of {}, and no barrier is between "
                "them",
                other.thread, other.block, thread_, block_, at, buffer.name));
    }
    const Touch now = {block_, thread_, epoch_};
    if (stores) {
      memory.writer[number] = now;
      return;
    }
    const bool same_time = reader.block == block_ && reader.epoch == epoch_;
    memory.more_readers[number] = same_time && (memory.more_readers[number] || reader.thread != thread_);
    reader = now;
  }

  // ---- expressions ----

  Value value(const Expr& e, const Variables& variables) {
    switch (e->kind) {
      case ExprKind::kConst: return {e->int_value, e->float_value};
      case ExprKind::kVar: return {variables.at(e.get()), 0};
      case ExprKind::kLoad: {
        Memory& memory = memory_of(*e->buffer);
        const int64_t at = place(*e->buffer, memory, e->operands, variables, LoopFault::Kind::kLoad);
        touch(*e->buffer, memory, at, false);
        if (!memory.written.empty() && !memory.written[static_cast<size_t>(at)])
          fault(LoopFault::Kind::kUnwritten, fmt::format("thread {} loads element {} of {}, which was never stored to",
                                                         thread_, at, e->buffer->name));
        if (is_float(memory.dtype)) return {0, read_float(memory.dtype, memory.data, at)};
        return {read_int(memory.dtype, memory.data, at), 0};
      }
      case ExprKind::kSelect:
        return value(value(e->operands[0], variables).i ? e->operands[1] : e->operands[2], variables);
      case ExprKind::kUnary: return unary_value(e, value(e->operands[0], variables));
      case ExprKind::kBinary: return binary_value(e, variables);
      case ExprKind::kFma: {
        const double a = value(e->operands[0], variables).d, b = value(e->operands[1], variables).d;
        return {0, round_to(e->dtype, a * b + value(e->operands[2], variables).d)};
      }
      case ExprKind::kCast: return cast_value(e->dtype, e->operands[0].dtype(), value(e->operands[0], variables));
    }
    throw InternalError("unknown expression kind");
  }

  static Value unary_value(const Expr& e, const Value& a) {
    const DType from = e->operands[0].dtype();
    if (e->unary == UnaryOp::kBitcast) {
      const uint64_t bits = is_float(from) ? float_bits(from, a.d) : int_bits(from, a.i);
      return is_float(e->dtype) ? Value{0, float_from_bits(e->dtype, bits)} : Value{int_from_bits(e->dtype, bits), 0};
    }
    if (!is_float(from)) return {int_unary(e->unary, from, a.i), 0};
    if (e->unary == UnaryOp::kIsNan || e->unary == UnaryOp::kIsInf) return {float_test(e->unary, a.d), 0};
    return {0, round_to(e->dtype, float_unary(e->unary, a.d))};
  }

  Value binary_value(const Expr& e, const Variables& variables) {
    const DType from = e->operands[0].dtype();
    const Value a = value(e->operands[0], variables);
    if (from == DType::kBool && e->binary == BinaryOp::kAnd && !a.i) return {0, 0};
    if (from == DType::kBool && e->binary == BinaryOp::kOr && a.i) return {1, 0};
    const Value b = value(e->operands[1], variables);
    if (!is_float(from)) return {int_binary(e->binary, from, a.i, b.i), 0};
    if (is_comparison(e->binary)) return {float_compare(e->binary, a.d, b.d), 0};
    return {0, round_to(e->dtype, float_binary(e->binary, a.d, b.d))};
  }

  static Value cast_value(DType to, DType from, const Value& a) {
    if (is_float(from)) return is_float(to) ? Value{0, round_to(to, a.d)} : Value{float_to_int(to, a.d), 0};
    return is_float(to) ? Value{0, int_to_float(from, to, a.i)} : Value{canonical_int(to, a.i), 0};
  }

  const LoopProgram& program_;
  const Launch& launch_;
  std::unordered_map<const Buffer*, Memory*> params_;
  const Variables symbols_;
  std::vector<int64_t> threads_;  // in the order in which they run
  std::array<int64_t, 3> place_ = {};
  int64_t block_ = 0, thread_ = 0, epoch_ = 0;
  bool is_copying_ = false;
  std::vector<std::deque<std::vector<Copy>>> copies_;  // by thread: groups, the oldest first
  Stores shared_;
  std::vector<Stores> own_;                          // by thread
  std::vector<std::pair<Stmt, Variables>> pending_;  // since the last barrier
};

}  // namespace

void interpret_threads(const LoopProgram& program, const DeviceKernel& kernel, std::span<Tensor* const> params,
                       ThreadOrder order, std::span<const int64_t> symbols) {
  check(kernel.problem.empty(), "the kernel has no thread form: " + kernel.problem);
  Variables values;
  for (size_t i = 0; i < symbols.size(); ++i) values[program.symbols[i].get()] = symbols[i];
  const size_t num_inputs = params.size() - static_cast<size_t>(program.num_outputs);
  for (const Launch& launch : kernel.launches) {
    std::vector<std::unique_ptr<Memory>> memory;
    std::unordered_map<const Buffer*, Memory*> by_buffer;
    for (size_t i = 0; i < params.size(); ++i) {
      auto own = std::make_unique<Memory>();
      own->dtype = params[i]->dtype();
      for (const Expr& extent : program.params[i]->shape) own->dims.push_back(*as_int(extent));
      own->data = i < num_inputs ? const_cast<std::byte*>(params[i]->bytes()) : params[i]->mutable_bytes();
      if (i >= num_inputs) own->track();
      by_buffer[program.params[i].get()] = own.get();
      memory.push_back(std::move(own));
    }
    ThreadRun(program, launch, order, std::move(by_buffer), values).run();
  }
}

}  // namespace tessera::inline interp
