#include "device/thread_form.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "device/barriers.h"
#include "loop/printer.h"
#include "types/dtype.h"

namespace tessera::inline device {
namespace {

size_t axis_of(ForKind kind) {
  const ForKind first = is_block_axis(kind) ? ForKind::kBlockX : ForKind::kThreadX;
  return static_cast<size_t>(kind) - static_cast<size_t>(first);
}
ForKind thread_axis(size_t axis) { return static_cast<ForKind>(static_cast<size_t>(ForKind::kThreadX) + axis); }

bool has_axis(const Stmt& s, bool (*is_axis)(ForKind)) {
  bool found = false;
  walk(
      s, [&](const Stmt& node) { found = found || (node->kind == StmtKind::kFor && is_axis(node->for_kind)); },
      nullptr);
  return found;
}
bool has_threads(const Stmt& s) { return has_axis(s, is_thread_axis); }
bool has_blocks(const Stmt& s) { return has_axis(s, is_block_axis); }

class LaunchMaker {
 public:
  Launch run(const Stmt& body) {
    launch_.blocks = {Expr(1), Expr(1), Expr(1)};
    launch_.threads = {1, 1, 1};
    find_extents(body);
    launch_.body = shape(body);
    place_barriers(launch_, nests_);
    return std::move(launch_);
  }
  const std::string& problem() const { return problem_; }

 private:
  void report(std::string text) {
    if (problem_.empty()) problem_ = std::move(text);
  }

  void find_extents(const Stmt& body) {
    std::set<size_t> axes;
    walk(
        body,
        [&](const Stmt& s) {
          if (s->kind != StmtKind::kFor) return;
          if (is_thread_axis(s->for_kind)) {
            int64_t& most = launch_.threads[axis_of(s->for_kind)];
            most = std::max(most, as_int(s->extent).value_or(1));
          } else if (is_block_axis(s->for_kind)) {
            if (!axes.insert(axis_of(s->for_kind)).second)
              report(fmt::format("'{}' is not the only loop of its axis", summary(s)));
            launch_.blocks[axis_of(s->for_kind)] = s->extent;
          }
        },
        nullptr);
  }

  // The body with thread loops of all axes around what threads do, and buffers of the threads' own without the
  // dimensions that stand for threads.
  Stmt shape(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kSeq: {
        std::vector<Stmt> parts;
        for (const Stmt& child : s->stmts) parts.push_back(shape(child));
        return seq(std::move(parts));
      }
      case StmtKind::kStore: return nest(s);
      case StmtKind::kAlloc: return shape_alloc(s);
      case StmtKind::kTensorized: return shape(s->stmts[0]);
      case StmtKind::kIf:
        if (!has_threads(s) && !has_blocks(s)) return nest(s);
        return if_then(s->condition, shape(s->stmts[0]), s->stmts.size() > 1 ? shape(s->stmts[1]) : Stmt());
      case StmtKind::kFor:
        if (is_thread_axis(s->for_kind)) return nest(s);
        if (!has_threads(s) && !has_blocks(s)) return nest(s);
        if (!is_block_axis(s->for_kind) && has_blocks(s))
          report(fmt::format("'{}' has blocks of threads inside of it", summary(s)));
        return for_loop(s->var, s->begin, s->extent, is_block_axis(s->for_kind) ? s->for_kind : ForKind::kSerial,
                        shape(s->stmts[0]));
    }
    return s;
  }

  // Around a statement of threads: loops over the axes that it has not.
  Stmt nest(const Stmt& s) {
    Stmt result = s;
    std::set<size_t> own;
    walk(
        s,
        [&](const Stmt& node) {
          if (node->kind == StmtKind::kFor && is_thread_axis(node->for_kind)) own.insert(axis_of(node->for_kind));
        },
        nullptr);
    for (size_t axis = 0; axis < 3; ++axis)
      if (launch_.threads[axis] > 1 && !own.contains(axis))
        result = for_loop(make_var("first"), 0, 1, thread_axis(axis), result);
    nests_.insert(result.get());
    keep_.push_back(result);
    return result;
  }

  Stmt shape_alloc(const Stmt& s) {
    const Buffer& buffer = *s->buffer;
    int64_t elements = 1;
    for (const Expr& extent : buffer.shape) {
      const auto number = as_int(extent);
      if (!number || __builtin_mul_overflow(elements, *number, &elements)) {
        report(fmt::format("{} has no constant size", buffer.name));
        return s;
      }
    }
    if (has_blocks(s)) report(fmt::format("{} is allocated outside of the blocks of threads", buffer.name));
    if (!has_threads(s)) return nest(s);  // one thread's own
    const size_t own = buffer.scope == MemoryScope::kRegister ? dimensions_of_threads(s) : 0;
    if (own == 0) {
      launch_.shared.push_back(s->buffer);
      launch_.shared_bytes += (dtype_bytes(buffer.dtype, elements) + 15) / 16 * 16;
      return alloc(s->buffer, shape(s->stmts[0]));
    }
    return alloc_of_threads(s, own);
  }

  // How many of an allocation's first dimensions are the threads: each access begins with the variables of all loops
  // over threads around it, and the same dimension is the same axis everywhere. 0: it is not each thread's own.
  size_t dimensions_of_threads(const Stmt& s) const {
    const BufferPtr& buffer = s->buffer;
    std::vector<const StmtNode*> loops;  // over threads, around the current place
    std::vector<ForKind> axes;           // of the dimensions
    bool is_own = true;
    const auto see = [&](const std::vector<Expr>& indices) {
      std::vector<ForKind> here;
      for (size_t i = 0; i < std::min(loops.size(), indices.size()); ++i)
        for (const StmtNode* loop : loops)
          if (indices[i].same_node(loop->var)) here.push_back(loop->for_kind);
      is_own = is_own && !loops.empty() && here.size() == loops.size() && (axes.empty() || axes == here);
      axes = here;
    };
    const auto expression = [&](const Expr& e) {
      if (!e) return;
      walk(e, [&](const Expr& node) {
        if (node->kind == ExprKind::kLoad && node->buffer == buffer) see(node->operands);
      });
    };
    const std::function<void(const Stmt&)> visit = [&](const Stmt& node) {
      const bool thread = node->kind == StmtKind::kFor && is_thread_axis(node->for_kind);
      for (const Expr& e : {node->begin, node->extent, node->condition, node->value}) expression(e);
      for (const Expr& e : node->indices) expression(e);
      if (node->kind == StmtKind::kStore && node->buffer == buffer) see(node->indices);
      if (thread) loops.push_back(node.get());
      for (const Stmt& child : node->stmts) visit(child);
      if (thread) loops.pop_back();
    };
    visit(s->stmts[0]);
    return is_own ? axes.size() : 0;
  }

  // Without those dimensions.
  Stmt alloc_of_threads(const Stmt& s, size_t dropped) {
    const BufferPtr& old = s->buffer;
    const BufferPtr own =
        make_buffer(old->name, old->dtype,
                    {old->shape.begin() + static_cast<std::ptrdiff_t>(dropped), old->shape.end()}, old->scope);
    const auto rest = [&](const std::vector<Expr>& indices) {
      return std::vector<Expr>(indices.begin() + static_cast<std::ptrdiff_t>(dropped), indices.end());
    };
    const Stmt body = transform(
        s->stmts[0],
        [&](const Expr& node) -> Expr {
          return node->kind == ExprKind::kLoad && node->buffer == old ? load(own, rest(node->operands)) : Expr();
        },
        [&](const Stmt& node) -> Stmt {
          return node->kind == StmtKind::kStore && node->buffer == old ? store(own, rest(node->indices), node->value)
                                                                       : Stmt();
        });
    return alloc(own, shape(body));
  }

  Launch launch_;
  std::string problem_;
  std::set<const StmtNode*> nests_;
  std::vector<Stmt> keep_;
};

void cut(const Stmt& body, std::vector<Stmt>& launches) {
  if (body->kind == StmtKind::kSeq && has_blocks(body)) {
    for (const Stmt& child : body->stmts) cut(child, launches);
  } else {
    launches.push_back(body);
  }
}

}  // namespace

DeviceKernel thread_form(const LoopProgram& program) {
  DeviceKernel result;
  std::vector<Stmt> launches;
  cut(program.body, launches);
  for (const Stmt& body : launches) {
    LaunchMaker maker;
    result.launches.push_back(maker.run(body));
    if (result.problem.empty()) result.problem = maker.problem();
  }
  return result;
}

}  // namespace tessera::inline device
