// region_pool: regions of images cut into bins, in each of which a grid of places is read bilinearly.
//
// What RoiAlign (He et al., "Mask R-CNN", 2017, section 3) computes when the size of a region decides how many places
// of a bin are read: places are at most one pixel apart. Those that lie outside of the image count as zeros and are not
// visited, so that the time for a region is bounded by the size of the image, however large the region is.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/index_gradients.h"
#include "ops/loop_util.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

constexpr int64_t kLanes = 64;  // channels that are accumulated in registers

bool is_coordinate(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

struct Plan {
  int64_t images, height, width, channels;
  Expr regions;
  int64_t rows, columns;
  double scale;
  bool half, average;
  DType stored, wide, place;  // of the elements, of sums, of coordinates
};

// `x`: the images.
Plan plan_of(const OpContext& ctx, const TensorType& x) {
  const TensorType& boxes = ctx.inputs[1];
  const bool narrow = x.dtype == DType::kF16 || x.dtype == DType::kBF16;
  return {extent_of(ctx, x.shape, 0, 1),
          extent_of(ctx, x.shape, 1, 2),
          extent_of(ctx, x.shape, 2, 3),
          extent_of(ctx, x.shape, 3, 4),
          boxes.shape[0],
          ctx.attrs.get_int("rows"),
          ctx.attrs.get_int("columns"),
          ctx.attrs.get<double>("scale"),
          ctx.attrs.get_or<bool>("half_pixel", false),
          ctx.attrs.get_or<std::string>("kind", "average") == "average",
          x.dtype,
          narrow ? DType::kF32 : x.dtype,
          boxes.dtype};
}

TensorType checked_bins(const OpContext& ctx) {
  const TensorType &x = ctx.inputs[0], &boxes = ctx.inputs[1], &image = ctx.inputs[2];
  require_dtype(ctx, 0, is_real, kRealTypes);
  require_dtype(ctx, 1, is_coordinate, "f64, f32");
  require_dtype(ctx, 2, is_index, kIndexTypes);
  require_rank(ctx, 0, 4, 4);
  require_rank(ctx, 1, 2, 2);
  require_rank(ctx, 2, 1, 1);
  const int64_t rows = require_int(ctx, "rows", 1, kMaxExtent), columns = require_int(ctx, "columns", 1, kMaxExtent);
  if (!is_const_int(boxes.shape[1], 4) || !equal_extents(boxes.shape[0], image.shape[0]))
    ctx.fail("TSR-2024", describe_operand(ctx, 1) + " and " + describe_operand(ctx, 2),
             "regions [R, 4] and the numbers of their images [R]");
  for (size_t axis = 0; axis < 3; ++axis) require_elements(ctx, axis, boxes.shape);
  return TensorType{x.dtype, {boxes.shape[0], rows, columns, x.shape[3]}, {}};
}

std::vector<TensorType> infer(const OpContext& ctx) {
  require_word(ctx, "kind", ctx.attrs.get<std::string>("kind"), {"average", "max"});
  return {checked_bins(ctx)};
}

// The places of a bin along one dimension, as `loops` has them.
template <typename T>
struct PlainLine {
  T base, bin, count;
  int64_t places, extent;

  PlainLine(T low, T high, int64_t bins, int64_t bin_number, bool half, T scale, int64_t extent_) : extent(extent_) {
    const T offset = half ? T(0.5) : T(0), start = low * scale - offset;
    T length = high * scale - offset - start;
    if (!half) length = std::max(length, T(1));
    bin = length / static_cast<T>(bins);
    count = std::ceil(bin);
    base = start + static_cast<T>(bin_number) * bin;
    places = std::isnan(count) ? 0
             : count > T(9e18) ? std::numeric_limits<int64_t>::max()
             : count < T(0)    ? 0
                               : static_cast<int64_t>(count);
  }
  T at(int64_t k) const { return base + (static_cast<T>(k) + T(0.5)) * bin / count; }
  bool inside(T at) const { return at >= T(-1) && at <= static_cast<T>(extent); }
  // The places that are inside, of which the first is found by halving: they ascend.
  std::vector<T> all_inside() const {
    int64_t low = 0, high = places;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (at(middle) < T(-1)) low = middle + 1;
      else high = middle;
    }
    std::vector<T> result;
    for (int64_t k = low; k < places && inside(at(k)) && std::ssize(result) <= 4 * (extent + 2); ++k)
      result.push_back(at(k));
    return result;
  }
};

template <typename T>
void evaluate_region(const Plan& plan, const Tensor& x, const Tensor& boxes, int64_t region, int64_t image, Tensor& y) {
  const auto edge = [&](int64_t i) { return static_cast<T>(boxes.get_double(region * 4 + i)); };
  const T scale = static_cast<T>(plan.scale);
  for (int64_t row = 0; row < plan.rows; ++row)
    for (int64_t column = 0; column < plan.columns; ++column) {
      const PlainLine<T> down(edge(1), edge(3), plan.rows, row, plan.half, scale, plan.height);
      const PlainLine<T> across(edge(0), edge(2), plan.columns, column, plan.half, scale, plan.width);
      const std::vector<T> vs = down.all_inside(), us = across.all_inside();
      const bool leaves = std::ssize(vs) < down.places || std::ssize(us) < across.places || vs.empty() || us.empty();
      std::vector<double> total(static_cast<size_t>(plan.channels),
                                plan.average || leaves ? 0 : -std::numeric_limits<double>::infinity());
      for (const T v : vs)
        for (const T u : us) {
          const T top = std::max(v, T(0)), left = std::max(u, T(0));
          const int64_t r = std::min(static_cast<int64_t>(top), plan.height - 1),
                        c = std::min(static_cast<int64_t>(left), plan.width - 1);
          const int64_t r2 = std::min(r + 1, plan.height - 1), c2 = std::min(c + 1, plan.width - 1);
          const double ly = r == plan.height - 1 ? 0 : static_cast<double>(top - static_cast<T>(r)),
                       lx = c == plan.width - 1 ? 0 : static_cast<double>(left - static_cast<T>(c));
          for (int64_t k = 0; k < plan.channels; ++k) {
            const auto at = [&](int64_t p, int64_t q) {
              return x.get_double(((image * plan.height + p) * plan.width + q) * plan.channels + k);
            };
            double& sum = total[static_cast<size_t>(k)];
            if (plan.average)
              sum += (1 - ly) * ((1 - lx) * at(r, c) + lx * at(r, c2)) + ly * ((1 - lx) * at(r2, c) + lx * at(r2, c2));
            else
              sum = std::max({sum, (1 - ly) * (1 - lx) * at(r, c), (1 - ly) * lx * at(r, c2), ly * (1 - lx) * at(r2, c),
                              ly * lx * at(r2, c2)});
          }
        }
      const double count = std::max<double>(static_cast<double>(down.places) * static_cast<double>(across.places), 1);
      for (int64_t k = 0; k < plan.channels; ++k)
        y.set_double(((region * plan.rows + row) * plan.columns + column) * plan.channels + k,
                     total[static_cast<size_t>(k)] / (plan.average ? count : 1));
    }
}

Tensor evaluate(const OpContext& ctx, const std::vector<const Tensor*>& inputs) {
  const Plan plan = plan_of(ctx, ctx.inputs[0]);
  const Tensor &x = *inputs[0], &boxes = *inputs[1];
  const int64_t regions = boxes.dims()[0];
  Tensor y(plan.stored, {regions, plan.rows, plan.columns, plan.channels});
  for (int64_t r = 0; r < regions; ++r) {
    int64_t image = inputs[2]->get_int(r);
    if (image < 0) image += plan.images;
    image = std::clamp<int64_t>(image, 0, plan.images - 1);
    if (plan.place == DType::kF64) evaluate_region<double>(plan, x, boxes, r, image, y);
    else evaluate_region<float>(plan, x, boxes, r, image, y);
  }
  return y;
}

// The places of a bin along one dimension, in variables of the loops.
struct Line {
  DType dtype;
  int64_t extent;
  Cell base, bin, count, first, end, low, high, fraction;

  Line(const std::string& name, DType place, int64_t extent_)
      : dtype(place),
        extent(extent_),
        base(name + "_base", place),
        bin(name + "_bin", place),
        count(name + "_count", place),
        first(name + "_first", DType::kI64),
        end(name + "_end", DType::kI64),
        low(name + "_low", DType::kI64),
        high(name + "_high", DType::kI64),
        fraction(name + "_fraction", place) {}

  void add_to(std::vector<BufferPtr>& buffers) const {
    for (const Cell* cell : {&base, &bin, &count, &first, &end, &low, &high, &fraction})
      buffers.push_back(cell->buffer);
  }
  Expr real(double value) const { return constant(dtype, value); }
  Expr real(const Expr& value) const { return cast(dtype, value); }
  static Expr floor(const Expr& v) { return index_of(unary(UnaryOp::kFloor, v)); }
  static Expr ceil(const Expr& v) { return index_of(unary(UnaryOp::kCeil, v)); }

  Expr places() const { return index_of(count.get()); }
  Expr at(const Expr& k) const {
    return base.get() + binary(BinaryOp::kDiv, (real(k) + real(0.5)) * bin.get(), count.get());
  }
  // -1 <= v <= extent, in integers.
  Expr inside(const Expr& v) const { return logical_and(Expr(-1) <= floor(v), ceil(v) <= Expr(extent)); }
  // Some of the places lie outside: the first or the last one.
  Expr leaves() const {
    const auto outside = [&](const Expr& v) { return logical_or(floor(v) < Expr(-1), Expr(extent) < ceil(v)); };
    return logical_or(outside(at(Expr(0))), outside(at(places() - Expr(1))));
  }

  Stmt begin(const Plan& plan, const Expr& from, const Expr& to, int64_t bins, const Expr& bin_number) const {
    const auto edge = [&](const Expr& v) {
      const Expr scaled = v * real(plan.scale);
      return plan.half ? scaled - real(0.5) : scaled;
    };
    Expr length = edge(to) - edge(from);
    if (!plan.half) length = max(length, real(1));
    // Places from the first that may be inside to behind the last; one more at each end for rounding.
    const Expr step = binary(BinaryOp::kDiv, bin.get(), count.get());
    const auto number = [&](const Expr& place) {
      return floor(binary(BinaryOp::kDiv, place - base.get(), step) - real(0.5));
    };
    const Expr most = Expr(std::numeric_limits<int64_t>::max() - 4);
    return seq({bin.set(binary(BinaryOp::kDiv, length, real(Expr(bins)))), count.set(unary(UnaryOp::kCeil, bin.get())),
                base.set(edge(from) + real(bin_number) * bin.get()),
                first.set(max(min(number(real(-1)), most) - Expr(1), 0)),
                end.set(min(min(number(real(Expr(extent))), most) + Expr(2), places()))});
  }
  // The pixels around the place and how far it is from the first.
  Stmt read(const Expr& v) const {
    const Expr clamped = max(v, real(0));
    const Expr last = Expr(extent - 1);
    return seq({low.set(min(floor(clamped), last)), high.set(min(low.get() + Expr(1), last)),
                fraction.set(select(low.get() < last, clamped - real(low.get()), real(0)))});
  }
};

LoopProgram loops(const OpContext& ctx) {
  const Plan plan = plan_of(ctx, ctx.inputs[0]);
  const int64_t bins = plan.rows * plan.columns;
  LoopProgram program = start_loops(ctx, plan.stored, normalize_size(plan.regions * Expr(bins * plan.channels)));
  const BufferPtr &x = program.params[0], &boxes = program.params[1], &images = program.params[2],
                  &out = program.params[3];
  if (is_const_int(plan.regions, 0) || bins * plan.channels == 0) {
    program.body = seq({});
    return program;
  }
  const Line down("down", plan.place, plan.height), across("across", plan.place, plan.width);
  const Cell image("image", DType::kI64), share("share", plan.wide);

  // `lanes` channels from `channel` on of the bin whose result begins at `to`.
  const auto channels = [&](const Expr& channel, int64_t lanes, const Expr& to) {
    const BufferPtr sum = make_buffer("sum", plan.wide, {lanes}, MemoryScope::kRegister);
    std::array<Cell, 4> weight = {Cell("w0", plan.wide), Cell("w1", plan.wide), Cell("w2", plan.wide),
                                  Cell("w3", plan.wide)};
    std::array<Cell, 4> place = {Cell("p0", DType::kI64), Cell("p1", DType::kI64), Cell("p2", DType::kI64),
                                 Cell("p3", DType::kI64)};
    std::vector<Stmt> corners;
    for (size_t i = 0; i < 4; ++i) {
      const auto share_of = [&](const Line& line, bool far) {
        return far ? line.fraction.get() : line.real(1) - line.fraction.get();
      };
      const bool lower = i >= 2, right = i % 2 == 1;
      corners.push_back(weight[i].set(cast(plan.wide, share_of(down, lower) * share_of(across, right))));
      const Expr row = image.get() * Expr(plan.height) + (lower ? down.high.get() : down.low.get());
      const Expr column = right ? across.high.get() : across.low.get();
      corners.push_back(place[i].set((row * Expr(plan.width) + column) * Expr(plan.channels) + channel));
    }
    const Stmt accumulate = vector_loop("l", lanes, [&](const Var& l) {
      const auto term = [&](size_t i) { return weight[i].get() * cast(plan.wide, load(x, {place[i].get() + l})); };
      const Expr value =
          plan.average ? term(0) + term(1) + term(2) + term(3) : max(max(term(0), term(1)), max(term(2), term(3)));
      return store(sum, {l}, plan.average ? load(sum, {l}) + value : max(load(sum, {l}), value));
    });
    const auto empty = [](const Line& line) { return line.places() < Expr(1); };
    const Expr none = logical_or(empty(down), empty(across));
    const Expr start =
        plan.average ? constant(plan.wide, 0)
                     : select(logical_or(none, logical_or(down.leaves(), across.leaves())), constant(plan.wide, 0),
                              constant(plan.wide, -std::numeric_limits<double>::infinity()));
    std::vector<BufferPtr> buffers = {sum};
    for (size_t i = 0; i < 4; ++i) buffers.insert(buffers.end(), {weight[i].buffer, place[i].buffer});
    const auto each = [&](const Line& line, const std::string& name, const std::function<Stmt()>& body) {
      return serial_loop(name, line.end.get() - line.first.get(), [&](const Var& k) {
        const Expr v = line.at(line.first.get() + k);
        return if_then(line.inside(v), seq({line.read(v), body()}));
      });
    };
    return with(buffers,
                {share.set(start), vector_loop("l", lanes, [&](const Var& l) { return store(sum, {l}, share.get()); }),
                 each(down, "i",
                      [&] {
                        return each(across, "j", [&] {
                          std::vector<Stmt> body = corners;
                          body.push_back(accumulate);
                          return seq(body);
                        });
                      }),
                 share.set(plan.average ? cast(plan.wide, max(down.count.get() * across.count.get(), down.real(1)))
                                        : constant(plan.wide, 1)),
                 vector_loop("l", lanes, [&](const Var& l) {
                   const Expr total = load(sum, {l});
                   return store(out, {to + channel + l},
                                cast(plan.stored, plan.average ? binary(BinaryOp::kDiv, total, share.get()) : total));
                 })});
  };
  const int64_t whole = plan.channels / kLanes, rest = plan.channels % kLanes;
  const auto bin = [&](const Expr& to) {
    std::vector<Stmt> parts;
    if (whole > 0)
      parts.push_back(serial_loop("c", whole, [&](const Var& c) { return channels(c * Expr(kLanes), kLanes, to); }));
    if (rest > 0) parts.push_back(channels(Expr(whole * kLanes), rest, to));
    return seq(parts);
  };
  std::vector<BufferPtr> buffers = {image.buffer, share.buffer};
  down.add_to(buffers);
  across.add_to(buffers);
  program.body = parallel_loop("t", plan.regions * plan.rows, [&](const Var& t) {
    const Expr region = floordiv(t, Expr(plan.rows)), row = floormod(t, Expr(plan.rows));
    const auto edge = [&](int64_t i) { return load(boxes, {region * Expr(4) + Expr(i)}); };
    return with(buffers, {image.set(index_in_range(load(images, {region}), Expr(plan.images))),
                          down.begin(plan, edge(1), edge(3), plan.rows, row),
                          serial_loop("w", plan.columns, [&](const Var& column) {
                            return seq({across.begin(plan, edge(0), edge(2), plan.columns, column),
                                        bin((t * Expr(plan.columns) + column) * Expr(plan.channels))});
                          })});
  });
  return program;
}

// ---- the gradient of the mean ----

TensorType images_of(const OpContext& ctx) {
  return {ctx.inputs[0].dtype, require_sizes(ctx, "shape", 4, 1, kMaxExtent), {}};
}

std::vector<TensorType> infer_gradient(const OpContext& ctx) {
  const TensorType &g = ctx.inputs[0], &boxes = ctx.inputs[1], &image = ctx.inputs[2], x = images_of(ctx);
  require_dtype(ctx, 0, [](DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }, "f64, f32");
  require_dtype(ctx, 1, is_coordinate, "f64, f32");
  require_dtype(ctx, 2, is_index, kIndexTypes);
  require_rank(ctx, 0, 4, 4);
  require_rank(ctx, 1, 2, 2);
  require_rank(ctx, 2, 1, 1);
  const int64_t rows = require_int(ctx, "rows", 1, kMaxExtent), columns = require_int(ctx, "columns", 1, kMaxExtent);
  if (!is_const_int(boxes.shape[1], 4) || !equal_extents(boxes.shape[0], image.shape[0]) ||
      !equal_extents(boxes.shape[0], g.shape[0]) || !is_const_int(g.shape[1], rows) ||
      !is_const_int(g.shape[2], columns) || !equal_extents(g.shape[3], x.shape[3]))
    ctx.fail("TSR-2024",
             describe_operand(ctx, 0) + " for " + describe_operand(ctx, 1) + " and " + describe_operand(ctx, 2),
             "gradients [R, rows, columns, C], regions [R, 4] and the numbers of their images [R]");
  return {x};
}

template <typename T>
void add_region(const Plan& plan, const Tensor& g, const Tensor& boxes, int64_t region, int64_t image, Tensor& x) {
  const auto edge = [&](int64_t i) { return static_cast<T>(boxes.get_double(region * 4 + i)); };
  const T scale = static_cast<T>(plan.scale);
  for (int64_t row = 0; row < plan.rows; ++row)
    for (int64_t column = 0; column < plan.columns; ++column) {
      const PlainLine<T> down(edge(1), edge(3), plan.rows, row, plan.half, scale, plan.height);
      const PlainLine<T> across(edge(0), edge(2), plan.columns, column, plan.half, scale, plan.width);
      const double count = std::max<double>(static_cast<double>(down.places) * static_cast<double>(across.places), 1);
      for (const T v : down.all_inside())
        for (const T u : across.all_inside()) {
          const T top = std::max(v, T(0)), left = std::max(u, T(0));
          const int64_t r = std::min(static_cast<int64_t>(top), plan.height - 1),
                        c = std::min(static_cast<int64_t>(left), plan.width - 1);
          const double ly = r == plan.height - 1 ? 0 : static_cast<double>(top - static_cast<T>(r)),
                       lx = c == plan.width - 1 ? 0 : static_cast<double>(left - static_cast<T>(c));
          const auto add = [&](int64_t p, int64_t q, double weight) {
            p = std::min(p, plan.height - 1);
            q = std::min(q, plan.width - 1);
            for (int64_t k = 0; k < plan.channels; ++k) {
              const int64_t at = ((image * plan.height + p) * plan.width + q) * plan.channels + k;
              const double given =
                  g.get_double(((region * plan.rows + row) * plan.columns + column) * plan.channels + k);
              x.set_double(at, x.get_double(at) + weight * given / count);
            }
          };
          add(r, c, (1 - ly) * (1 - lx));
          add(r, c + 1, (1 - ly) * lx);
          add(r + 1, c, ly * (1 - lx));
          add(r + 1, c + 1, ly * lx);
        }
    }
}

Tensor evaluate_gradient(const OpContext& ctx, const std::vector<const Tensor*>& inputs) {
  const Plan plan = plan_of(ctx, images_of(ctx));
  Tensor x(plan.stored, {plan.images, plan.height, plan.width, plan.channels});
  for (int64_t r = 0; r < inputs[1]->dims()[0]; ++r) {
    int64_t image = inputs[2]->get_int(r);
    if (image < 0) image += plan.images;
    image = std::clamp<int64_t>(image, 0, plan.images - 1);
    if (plan.place == DType::kF64) add_region<double>(plan, *inputs[0], *inputs[1], r, image, x);
    else add_region<float>(plan, *inputs[0], *inputs[1], r, image, x);
  }
  return x;
}

// Each thread has channels of its own, and adds the regions to them one after the other.
LoopProgram gradient_loops(const OpContext& ctx) {
  const Plan plan = plan_of(ctx, images_of(ctx));
  const int64_t bins = plan.rows * plan.columns, pixels = plan.images * plan.height * plan.width;
  LoopProgram program = start_loops(ctx, plan.stored, Expr(pixels * plan.channels));
  const BufferPtr &g = program.params[0], &boxes = program.params[1], &images = program.params[2],
                  &out = program.params[3];
  const auto part = [&](const Expr& channel, int64_t lanes) {
    const Line down("down", plan.place, plan.height), across("across", plan.place, plan.width);
    const Cell image("image", DType::kI64), share("share", plan.wide), weight("weight", plan.wide);
    const auto zeros = serial_loop("p", pixels, [&](const Var& p) {
      return vector_loop("l", lanes, [&](const Var& l) {
        return store(out, {p * Expr(plan.channels) + channel + l}, constant(plan.stored, 0));
      });
    });
    if (is_const_int(plan.regions, 0)) return zeros;
    const auto corner = [&](bool lower, bool right, const Expr& from) {
      const auto share_of = [&](const Line& line, bool far) {
        return far ? line.fraction.get() : line.real(1) - line.fraction.get();
      };
      const Expr row = image.get() * Expr(plan.height) + (lower ? down.high.get() : down.low.get());
      const Expr place =
          (row * Expr(plan.width) + (right ? across.high.get() : across.low.get())) * Expr(plan.channels) + channel;
      return seq({weight.set(binary(BinaryOp::kDiv, cast(plan.wide, share_of(down, lower) * share_of(across, right)),
                                    share.get())),
                  vector_loop("l", lanes, [&](const Var& l) {
                    return store(out, {place + l}, load(out, {place + l}) + weight.get() * load(g, {from + l}));
                  })});
    };
    const auto each = [&](const Line& line, const std::string& name, const std::function<Stmt()>& body) {
      return serial_loop(name, line.end.get() - line.first.get(), [&](const Var& k) {
        const Expr v = line.at(line.first.get() + k);
        return if_then(line.inside(v), seq({line.read(v), body()}));
      });
    };
    const Stmt regions = serial_loop("t", plan.regions * plan.rows, [&](const Var& t) {
      const Expr region = floordiv(t, Expr(plan.rows)), row = floormod(t, Expr(plan.rows));
      const auto edge = [&](int64_t i) { return load(boxes, {region * Expr(4) + Expr(i)}); };
      return seq({image.set(index_in_range(load(images, {region}), Expr(plan.images))),
                  down.begin(plan, edge(1), edge(3), plan.rows, row),
                  serial_loop("w", plan.columns, [&](const Var& column) {
                    const Expr from = (t * Expr(plan.columns) + column) * Expr(plan.channels) + channel;
                    return seq({across.begin(plan, edge(0), edge(2), plan.columns, column),
                                share.set(cast(plan.wide, max(down.count.get() * across.count.get(), down.real(1)))),
                                each(down, "i", [&] {
                                  return each(across, "j", [&] {
                                    return seq({corner(false, false, from), corner(false, true, from),
                                                corner(true, false, from), corner(true, true, from)});
                                  });
                                })});
                  })});
    });
    std::vector<BufferPtr> buffers = {image.buffer, share.buffer, weight.buffer};
    down.add_to(buffers);
    across.add_to(buffers);
    return with(buffers, {zeros, regions});
  };
  const int64_t whole = plan.channels / kLanes, rest = plan.channels % kLanes;
  std::vector<Stmt> parts;
  if (whole > 0)
    parts.push_back(parallel_loop("c", whole, [&](const Var& c) { return part(c * Expr(kLanes), kLanes); }, bins > 0));
  if (rest > 0) parts.push_back(part(Expr(whole * kLanes), rest));
  program.body = seq(parts);
  return program;
}

// ---- which pixel is the maximum ----

// Of a bin and a channel: the place of the pixel among the elements of the images, -1 where a place outside is the
// largest, and its share. Places are visited from top to bottom, each line from left to right, and of equal ones the
// first counts.
std::vector<TensorType> infer_largest(const OpContext& ctx) {
  require_word(ctx, "what", ctx.attrs.get<std::string>("what"), {"place", "share"});
  TensorType type = checked_bins(ctx);
  type.dtype = ctx.attrs.get<std::string>("what") == "place" ? DType::kI64
               : type.dtype == DType::kF64                   ? DType::kF64
                                                             : DType::kF32;
  return {type};
}

Plan plan_of_largest(const OpContext& ctx) {
  Plan plan = plan_of(ctx, ctx.inputs[0]);
  plan.average = false;
  return plan;
}

template <typename T>
void find_largest(const Plan& plan, const Tensor& x, const Tensor& boxes, int64_t region, int64_t image, bool place,
                  Tensor& found) {
  const auto edge = [&](int64_t i) { return static_cast<T>(boxes.get_double(region * 4 + i)); };
  const T scale = static_cast<T>(plan.scale);
  for (int64_t row = 0; row < plan.rows; ++row)
    for (int64_t column = 0; column < plan.columns; ++column) {
      const PlainLine<T> down(edge(1), edge(3), plan.rows, row, plan.half, scale, plan.height);
      const PlainLine<T> across(edge(0), edge(2), plan.columns, column, plan.half, scale, plan.width);
      const std::vector<T> vs = down.all_inside(), us = across.all_inside();
      const bool leaves = std::ssize(vs) < down.places || std::ssize(us) < across.places || vs.empty() || us.empty();
      for (int64_t k = 0; k < plan.channels; ++k) {
        double largest = leaves ? 0 : -std::numeric_limits<double>::infinity(), share = 0;
        int64_t at = -1;
        for (const T v : vs)
          for (const T u : us) {
            const T top = std::max(v, T(0)), left = std::max(u, T(0));
            const int64_t r = std::min(static_cast<int64_t>(top), plan.height - 1),
                          c = std::min(static_cast<int64_t>(left), plan.width - 1);
            const T ly = r == plan.height - 1 ? T(0) : top - static_cast<T>(r),
                    lx = c == plan.width - 1 ? T(0) : left - static_cast<T>(c);
            const auto visit = [&](int64_t p, int64_t q, T weight) {
              const int64_t from =
                  ((image * plan.height + std::min(p, plan.height - 1)) * plan.width + std::min(q, plan.width - 1)) *
                      plan.channels +
                  k;
              const double wide = plan.wide == DType::kF32 ? static_cast<float>(weight) : static_cast<double>(weight);
              const double value = plan.wide == DType::kF32
                                       ? static_cast<float>(wide) * static_cast<float>(x.get_double(from))
                                       : wide * x.get_double(from);
              if (!(value > largest)) return;
              largest = value;
              share = wide;
              at = from;
            };
            visit(r, c, (1 - ly) * (1 - lx));
            visit(r, c + 1, (1 - ly) * lx);
            visit(r + 1, c, ly * (1 - lx));
            visit(r + 1, c + 1, ly * lx);
          }
        const int64_t to = ((region * plan.rows + row) * plan.columns + column) * plan.channels + k;
        if (place) found.set_int(to, at);
        else found.set_double(to, share);
      }
    }
}

Tensor evaluate_largest(const OpContext& ctx, const std::vector<const Tensor*>& inputs) {
  const Plan plan = plan_of_largest(ctx);
  const bool place = ctx.attrs.get<std::string>("what") == "place";
  const int64_t regions = inputs[1]->dims()[0];
  Tensor found(place ? DType::kI64 : plan.wide, {regions, plan.rows, plan.columns, plan.channels});
  for (int64_t r = 0; r < regions; ++r) {
    int64_t image = inputs[2]->get_int(r);
    if (image < 0) image += plan.images;
    image = std::clamp<int64_t>(image, 0, plan.images - 1);
    if (plan.place == DType::kF64) find_largest<double>(plan, *inputs[0], *inputs[1], r, image, place, found);
    else find_largest<float>(plan, *inputs[0], *inputs[1], r, image, place, found);
  }
  return found;
}

// One channel after the other: what is largest so far is a number, and no vector.
LoopProgram largest_loops(const OpContext& ctx) {
  const Plan plan = plan_of_largest(ctx);
  const bool wants_place = ctx.attrs.get<std::string>("what") == "place";
  const int64_t bins = plan.rows * plan.columns;
  LoopProgram program = start_loops(ctx, wants_place ? DType::kI64 : plan.wide,
                                    normalize_size(plan.regions * Expr(bins * plan.channels)));
  const BufferPtr &x = program.params[0], &boxes = program.params[1], &images = program.params[2],
                  &out = program.params[3];
  if (is_const_int(plan.regions, 0) || bins * plan.channels == 0) {
    program.body = seq({});
    return program;
  }
  const Line down("down", plan.place, plan.height), across("across", plan.place, plan.width);
  const Cell image("image", DType::kI64), largest("largest", plan.wide), weight("weight", plan.wide),
      value("value", plan.wide), share("share", plan.wide), place("place", DType::kI64), at("at", DType::kI64);
  const auto zero = constant(plan.wide, 0);
  const auto empty = [](const Line& line) { return line.places() < Expr(1); };
  const auto each = [&](const Line& line, const std::string& name, const std::function<Stmt()>& body) {
    return serial_loop(name, line.end.get() - line.first.get(), [&](const Var& k) {
      const Expr v = line.at(line.first.get() + k);
      return if_then(line.inside(v), seq({line.read(v), body()}));
    });
  };
  const auto visit = [&](const Expr& channel, bool lower, bool right) {
    const auto share_of = [&](const Line& line, bool far) {
      return far ? line.fraction.get() : line.real(1) - line.fraction.get();
    };
    const Expr row = image.get() * Expr(plan.height) + (lower ? down.high.get() : down.low.get());
    const Expr column = right ? across.high.get() : across.low.get();
    return seq({weight.set(cast(plan.wide, share_of(down, lower) * share_of(across, right))),
                at.set((row * Expr(plan.width) + column) * Expr(plan.channels) + channel),
                value.set(weight.get() * cast(plan.wide, load(x, {at.get()}))),
                if_then(largest.get() < value.get(),
                        seq({largest.set(value.get()), wants_place ? place.set(at.get()) : share.set(weight.get())}))});
  };
  const auto channel_of = [&](const Expr& channel, const Expr& to) {
    const Expr outside = logical_or(logical_or(empty(down), empty(across)), logical_or(down.leaves(), across.leaves()));
    return seq({largest.set(select(outside, zero, constant(plan.wide, -std::numeric_limits<double>::infinity()))),
                wants_place ? place.set(Expr(-1)) : share.set(zero),
                each(down, "i",
                     [&] {
                       return each(across, "j", [&] {
                         return seq({visit(channel, false, false), visit(channel, false, true),
                                     visit(channel, true, false), visit(channel, true, true)});
                       });
                     }),
                store(out, {to + channel}, wants_place ? place.get() : share.get())});
  };
  std::vector<BufferPtr> buffers = {image.buffer, largest.buffer, weight.buffer,
                                    value.buffer, at.buffer,      wants_place ? place.buffer : share.buffer};
  down.add_to(buffers);
  across.add_to(buffers);
  program.body = parallel_loop("t", plan.regions * plan.rows, [&](const Var& t) {
    const Expr region = floordiv(t, Expr(plan.rows)), row = floormod(t, Expr(plan.rows));
    const auto edge = [&](int64_t i) { return load(boxes, {region * Expr(4) + Expr(i)}); };
    return with(
        buffers,
        {image.set(index_in_range(load(images, {region}), Expr(plan.images))),
         down.begin(plan, edge(1), edge(3), plan.rows, row), serial_loop("w", plan.columns, [&](const Var& column) {
           const Expr to = (t * Expr(plan.columns) + column) * Expr(plan.channels);
           return seq({across.begin(plan, edge(0), edge(2), plan.columns, column),
                       serial_loop("c", plan.channels, [&](const Var& c) { return channel_of(c, to); })});
         })});
  });
  return program;
}

// The pixel that is the maximum of its bin has the bin's gradient, times its share; where the maximum is what lies
// outside of the image, none has.
std::vector<ValueId> max_gradient(Adjoint& a) {
  const TensorType x = a.type(a.in(0)), g = a.type(a.gradient());
  const DType wide = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto largest = [&](const char* what) {
    Attrs attrs = a.attrs();
    attrs.erase("kind");
    attrs.set("what", std::string(what));
    return a.op("region_pool_largest", {a.in(0), a.in(1), a.in(2)}, attrs);
  };
  const ValueId place = largest("place"), share = largest("share");
  const ValueId given = a.mul(a.cast(a.gradient(), wide), share);  // shares are 0 where there is no pixel
  const Expr all = elements_of(g.shape, 0, g.shape.size());
  const ValueId zero = a.integer(0);
  const ValueId places = a.reshape(a.op("max", {place, zero}), {all});
  const ValueId flat = added_at(a, a.reshape(given, {all}), places, {elements_of(x.shape, 0, x.shape.size())}, 0);
  return {a.cast(a.reshape(flat, x.shape), x.dtype), Adjoint::kNone, Adjoint::kNone};
}

// Places and shares change in jumps with the images.
std::vector<ValueId> gradient_of_largest(Adjoint& a) {
  if (a.wants(1)) a.fail("the corners of regions", "regions that are not differentiated");
  return {Adjoint::kNone, Adjoint::kNone, Adjoint::kNone};
}

std::vector<ValueId> pool_gradient(Adjoint& a) {
  if (a.wants(1)) a.fail("the corners of regions", "regions that are not differentiated");
  if (a.attrs().get<std::string>("kind") == "max") return max_gradient(a);
  const TensorType x = a.type(a.in(0));
  Attrs attrs = a.attrs();
  attrs.erase("kind");
  attrs.set("shape", x.shape);
  const DType wide = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  return {a.cast(a.op("region_pool_gradient", {a.cast(a.gradient(), wide), a.in(1), a.in(2)}, attrs), x.dtype),
          Adjoint::kNone, Adjoint::kNone};
}

// It is linear in the gradients, which are read where they were added.
std::vector<ValueId> gradient_of_gradient(Adjoint& a) {
  if (a.wants(1)) a.fail("the corners of regions", "regions that are not differentiated");
  Attrs attrs = a.attrs();
  attrs.erase("shape");
  attrs.set("kind", std::string("average"));
  return {a.op("region_pool", {a.gradient(), a.in(1), a.in(2)}, attrs), Adjoint::kNone, Adjoint::kNone};
}

std::vector<AttrDef> bin_attrs() {
  return {{"rows", AttrKind::kInt, true, "bins of a region, from top to bottom"},
          {"columns", AttrKind::kInt, true, "bins of a region, from left to right"},
          {"scale", AttrKind::kFloat, true, "pixels per unit of a region's corners"},
          {"half_pixel", AttrKind::kBool, false,
           "corners lie half a pixel before their pixel, and a region may be smaller than a pixel; default false"}};
}

// Operands, attributes and kind that all of them have, and one attribute more.
OpDef procedure_of_bins(const char* name, AttrDef more) {
  OpDef def;
  def.name = name;
  def.kind = OpKind::kProcedure;
  def.min_inputs = def.max_inputs = 3;
  def.attrs = bin_attrs();
  def.attrs.push_back(std::move(more));
  return def;
}

}  // namespace

const OpDef& region_pool_gradient_op() {
  static const OpDef op = [] {
    OpDef def =
        procedure_of_bins("region_pool_gradient", {"shape", AttrKind::kSizes, true, "of the images [N, H, W, C]"});
    def.doc =
        "The gradient of the images of region_pool with kind = average: gradients of bins [R, rows, columns, C], added "
        "at the pixels that the bins' places read, times their shares.";
    def.infer = infer_gradient;
    def.evaluate = evaluate_gradient;
    def.loops = gradient_loops;
    def.gradient = gradient_of_gradient;
    def.example = R"(
graph @main(%g: f32[1,1,1,1], %r: f32[1,4], %i: i64[1]) -> (%x: f32[1,2,2,1]) {
  %x = region_pool_gradient(%g, %r, %i) {columns = 1, rows = 1, scale = 1.0, shape = [1, 2, 2, 1]} : f32[1,2,2,1]
}
run g = 4 ; r = 0 0 1 1 ; i = 0 -> x = 1 1 1 1
)";
    return def;
  }();
  return op;
}

const OpDef& region_pool_largest_op() {
  static const OpDef op = [] {
    OpDef def = procedure_of_bins("region_pool_largest", {"what", AttrKind::kString, true, "place or share"});
    def.doc =
        "Of region_pool with kind = max: which pixel is a bin's maximum, as its place among the elements of x, the "
        "first of equal ones and -1 where none is larger than what lies outside of the image (0); or its share, the "
        "weight of its bilinear value, 0 where there is no pixel.";
    def.infer = infer_largest;
    def.evaluate = evaluate_largest;
    def.loops = largest_loops;
    def.gradient = gradient_of_largest;
    def.example = R"(
graph @main(%x: f32[1,2,2,1], %r: f32[1,4], %i: i64[1]) -> (%p: i64[1,1,1,1], %s: f32[1,1,1,1]) {
  %p = region_pool_largest(%x, %r, %i) {columns = 1, rows = 1, scale = 1.0, what = "place"} : i64[1,1,1,1]
  %s = region_pool_largest(%x, %r, %i) {columns = 1, rows = 1, scale = 1.0, what = "share"} : f32[1,1,1,1]
}
run x = 1 2 4 3 ; r = 0 0 1 1 ; i = 0 -> p = 2 ; s = 0.25
)";
    return def;
  }();
  return op;
}

const OpDef& region_pool_op() {
  static const OpDef op = [] {
    OpDef def = procedure_of_bins(
        "region_pool",
        {"kind", AttrKind::kString, true, "average, or max: the largest of the four weighted pixels of all places"});
    def.doc =
        "Regions [R, 4] (x, y of two corners, times `scale`) of images x [N, H, W, C], whose numbers are [R], cut "
        "into rows by columns of bins: the mean or maximum of values read bilinearly at ceil(bin height) by ceil(bin "
        "width) places of each bin, zeros outside of the image. 16-bit floats are summed in f32.";
    def.infer = infer;
    def.evaluate = evaluate;
    def.loops = loops;
    def.gradient = pool_gradient;
    def.example = R"(
graph @main(%x: f32[1,2,2,1], %r: f32[1,4], %i: i64[1]) -> (%y: f32[1,1,1,1]) {
  %y = region_pool(%x, %r, %i) {columns = 1, kind = "average", rows = 1, scale = 1.0} : f32[1,1,1,1]
}
run x = 1 2 3 4 ; r = 0 0 1 1 ; i = 0 -> y = 2.5
)";
    return def;
  }();
  return op;
}

}  // namespace tessera::inline ops
