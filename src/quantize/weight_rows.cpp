#include "quantize/weight_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/error.h"

namespace tessera::inline quantize {
namespace {

struct Layout {
  int64_t outer = 1, rows = 1, inner = 1;  // of [outer, rows, inner]
};

Layout layout_of(const std::vector<int64_t>& dims, size_t axis) {
  Layout layout;
  for (size_t d = 0; d < dims.size(); ++d) (d < axis ? layout.outer : d > axis ? layout.inner : layout.rows) *= dims[d];
  return layout;
}

// For each place of the tensor, in order: row and term.
template <typename Visit>
void for_each_place(const std::vector<int64_t>& dims, size_t axis, const Visit& visit) {
  const Layout layout = layout_of(dims, axis);
  size_t place = 0;
  for (int64_t o = 0; o < layout.outer; ++o)
    for (int64_t r = 0; r < layout.rows; ++r)
      for (int64_t i = 0; i < layout.inner; ++i) visit(place++, r, o * layout.inner + i);
}

struct Step {
  float scale = 1;
  int64_t zero = 0;
};

int64_t nearest(float number, const Step& step, const IntegerGrid& grid) {
  const float place = std::nearbyint(number / step.scale) + static_cast<float>(step.zero);
  return static_cast<int64_t>(std::clamp(place, static_cast<float>(grid.low), static_cast<float>(grid.high)));
}

bool is_usable(double scale) {
  return scale >= std::numeric_limits<float>::min() && scale <= std::numeric_limits<float>::max();
}

// Least squares of a group whose integers a step decides: their best scale, and the error that it leaves.
struct Fit {
  float scale = 0;
  float error = std::numeric_limits<float>::infinity();
};

// To the nearest integer without a call, so that loops become vectors; |x| < 2^22.
float rounded(float x) {
  constexpr float kMagic = 12582912;
  return (x + kMagic) - kMagic;
}

Fit fit_of(std::span<const float> numbers, const Step& step, const IntegerGrid& grid) {
  const float inverse = 1 / step.scale;
  const auto low = static_cast<float>(grid.low - step.zero), high = static_cast<float>(grid.high - step.zero);
  // Of what the step itself leaves, which is small: sums of large squares would hide it.
  float errors = 0, products = 0, integers = 0;
  for (const float number : numbers) {
    const float integer = rounded(std::min(std::max(number * inverse, low), high));
    const float error = number - integer * step.scale;
    errors += error * error;
    products += error * integer;
    integers += integer * integer;
  }
  if (!(integers > 0)) return {};
  const float scale = step.scale + products / integers;
  if (!is_usable(std::abs(scale))) return {};
  return {scale, errors - products * products / integers};
}

Step whole_range(std::span<const float> numbers, const IntegerGrid& grid, int64_t zero) {
  float low = 0, high = 0;
  for (const float number : numbers) low = std::min(low, number), high = std::max(high, number);
  double scale;
  if (grid.has_zero) {
    scale = (static_cast<double>(high) - low) / static_cast<double>(grid.high - grid.low);
    if (!is_usable(scale)) return {1, zero};
    zero = std::clamp<int64_t>(grid.low + std::llround(-low / scale), grid.low, grid.high);
  } else {
    scale = std::max(-low, high) / static_cast<float>(grid.high - zero);
  }
  return is_usable(scale) ? Step{static_cast<float>(scale), zero} : Step{1, zero};
}

// Of ranges that are narrower, or of which the largest number is on the side that has one integer more, the one whose
// integers leave the least error at their best scale.
Step least_error(std::span<const float> numbers, const IntegerGrid& grid, int64_t zero) {
  constexpr int kSteps = 14;
  constexpr float kStep = 0.03F;
  float low = 0, high = 0;
  for (const float number : numbers) low = std::min(low, number), high = std::max(high, number);
  Step best = whole_range(numbers, grid, zero);
  float least = std::numeric_limits<float>::infinity();
  const auto contest = [&](const Step& step) {
    if (!is_usable(std::abs(step.scale))) return;
    const Fit fit = fit_of(numbers, step, grid);
    if (fit.error < least) least = fit.error, best = {fit.scale, step.zero};
  };
  contest(best);
  const auto steps = static_cast<float>(grid.high - grid.low);
  for (int narrower = 0; narrower < kSteps; ++narrower) {
    const float share = 1.05F - kStep * static_cast<float>(narrower);
    if (grid.has_zero) {
      const float scale = (high - low) * share / steps;
      if (is_usable(scale))
        contest({scale, std::clamp<int64_t>(grid.low + std::llround(-low * share / scale), grid.low, grid.high)});
    } else {
      // A negative scale turns the integers.
      for (const float end : {low, high})
        if (end != 0) contest({end * share / static_cast<float>(grid.low - zero), zero});
    }
  }
  return best;
}

void check_finite(const WeightRows& weights, const std::string& name) {
  for (const float number : weights.numbers)
    if (!std::isfinite(number))
      throw UserError({.id = "TSR-2091",
                       .message = "a weight is not finite",
                       .node = name,
                       .legal = "finite weights",
                       .hint = "leave the layer out with --keep " + name});
}

// One row's rounding. `error` is row - integers in real numbers, `pull` the gram times it.
class RowDescent {
 public:
  RowDescent(IntegerRows& rows, const IntegerGrid& grid, std::span<const float> gram, std::span<const float> numbers,
             int64_t row)
      : rows_(rows),
        grid_(grid),
        gram_(gram),
        numbers_(numbers),
        row_(row),
        terms_(rows.terms),
        pull_(static_cast<size_t>(terms_), 0.F) {
    for (int64_t k = 0; k < terms_; ++k) {
      const float error = numbers_[static_cast<size_t>(k)] - rows_.real(row_, k);
      if (error != 0) add(k, error);
    }
  }

  void run() {
    constexpr int kMostSweeps = 20;
    for (int sweep = 0; sweep < kMostSweeps; ++sweep)
      if (!this->sweep()) return;
  }

 private:
  const float* column(int64_t k) const { return gram_.data() + k * terms_; }

  void add(int64_t k, float change) {
    const float* const column = this->column(k);
    for (int64_t i = 0; i < terms_; ++i) pull_[static_cast<size_t>(i)] += change * column[i];
  }

  bool sweep() {
    bool moved = false;
    for (int64_t k = 0; k < terms_; ++k) {
      const size_t group = rows_.group_of(row_, k);
      int16_t& integer = rows_.integers[static_cast<size_t>(row_ * terms_ + k)];
      const double place =
          static_cast<double>(numbers_[static_cast<size_t>(k)]) / rows_.scales[group] + rows_.zeros[group];
      const auto below = static_cast<int64_t>(std::floor(place)), above = below + 1;
      const int64_t other = integer == below ? above : integer == above ? below : integer;
      if (other == integer || other < grid_.low || other > grid_.high) continue;
      // The error changes by this much at k; the products' by 2 change pull + change^2 gram.
      const float change = static_cast<float>(integer - other) * rows_.scales[group];
      const double gain =
          2.0 * change * pull_[static_cast<size_t>(k)] + static_cast<double>(change) * change * column(k)[k];
      if (!(gain < 0)) continue;
      integer = static_cast<int16_t>(other);
      add(k, change);
      moved = true;
    }
    return moved;
  }

  IntegerRows& rows_;
  const IntegerGrid& grid_;
  std::span<const float> gram_, numbers_;
  int64_t row_, terms_;
  std::vector<float> pull_;
};

}  // namespace

WeightRows rows_of(const Tensor& weights, size_t axis) {
  const Layout layout = layout_of(weights.dims(), axis);
  WeightRows rows{layout.rows, layout.outer * layout.inner, {}};
  rows.numbers.resize(static_cast<size_t>(weights.num_elements()));
  const std::span<const float> numbers = weights.as<float>();
  for_each_place(weights.dims(), axis, [&](size_t place, int64_t row, int64_t term) {
    rows.numbers[static_cast<size_t>(row * rows.terms + term)] = numbers[place];
  });
  return rows;
}

IntegerRows nearest_integers(const WeightRows& weights, const IntegerGrid& grid, const std::string& name) {
  check_finite(weights, name);
  IntegerRows result;
  result.rows = weights.rows;
  result.terms = weights.terms;
  result.group = grid.group > 0 ? grid.group : std::max<int64_t>(weights.terms, 1);
  result.groups = (weights.terms + result.group - 1) / result.group;
  result.integers.resize(weights.numbers.size());
  const int64_t zero = grid.low < 0 ? 0 : (grid.low + grid.high + 1) / 2;
  const auto step_of = [&](std::span<const float> numbers) {
    return grid.fits_scale ? least_error(numbers, grid, zero) : whole_range(numbers, grid, zero);
  };
  const Step one = grid.one_scale ? step_of(weights.numbers) : Step{};
  for (int64_t row = 0; row < weights.rows; ++row)
    for (int64_t begin = 0; begin < weights.terms; begin += result.group) {
      const int64_t count = std::min(result.group, weights.terms - begin);
      const auto numbers = weights.row(row).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
      const Step step = grid.one_scale ? one : step_of(numbers);
      result.scales.push_back(step.scale);
      result.zeros.push_back(static_cast<int16_t>(step.zero));
      for (int64_t i = 0; i < count; ++i)
        result.integers[static_cast<size_t>(row * weights.terms + begin + i)] =
            static_cast<int16_t>(nearest(numbers[static_cast<size_t>(i)], step, grid));
    }
  return result;
}

void round_for_data(IntegerRows& integers, const WeightRows& weights, const IntegerGrid& grid,
                    std::span<const float> gram, int64_t gram_groups) {
  const auto size = static_cast<size_t>(weights.terms * weights.terms);
  for (int64_t row = 0; row < weights.rows; ++row) {
    const auto group = static_cast<size_t>(row * gram_groups / weights.rows);
    RowDescent(integers, grid, gram.subspan(group * size, size), weights.row(row), row).run();
  }
}

int64_t vanished_rows(const IntegerRows& integers, const WeightRows& weights) {
  int64_t vanished = 0;
  for (int64_t row = 0; row < integers.rows; ++row) {
    const std::span<const float> numbers = weights.row(row);
    if (std::all_of(numbers.begin(), numbers.end(), [](float number) { return number == 0; })) continue;
    bool is_zero = true;
    for (int64_t term = 0; term < integers.terms && is_zero; ++term) is_zero = integers.real(row, term) == 0;
    vanished += is_zero;
  }
  return vanished;
}

Tensor integer_tensor(const IntegerRows& rows, const std::vector<int64_t>& dims, size_t axis) {
  Tensor tensor(DType::kI8, dims);
  const std::span<int8_t> numbers = tensor.as_mutable<int8_t>();
  for_each_place(dims, axis, [&](size_t place, int64_t row, int64_t term) {
    numbers[place] = static_cast<int8_t>(rows.integers[static_cast<size_t>(row * rows.terms + term)]);
  });
  return tensor;
}

Tensor real_tensor(const IntegerRows& rows, const std::vector<int64_t>& dims, size_t axis) {
  Tensor tensor(DType::kF32, dims);
  const std::span<float> numbers = tensor.as_mutable<float>();
  for_each_place(dims, axis, [&](size_t place, int64_t row, int64_t term) { numbers[place] = rows.real(row, term); });
  return tensor;
}

PackedRows packed_rows(const IntegerRows& rows, int bits) {
  const int64_t in_byte = 8 / bits, row_bytes = rows.groups * rows.group / in_byte;
  const int64_t zero_bytes = (rows.groups + in_byte - 1) / in_byte;
  PackedRows packed{Tensor(DType::kU8, {rows.rows, row_bytes}), Tensor(DType::kF32, {rows.rows, rows.groups}),
                    Tensor(DType::kU8, {rows.rows, zero_bytes})};
  std::copy(rows.scales.begin(), rows.scales.end(), packed.scales.as_mutable<float>().begin());
  const std::span<uint8_t> bytes = packed.bytes.as_mutable<uint8_t>(), zeros = packed.zeros.as_mutable<uint8_t>();
  const auto put = [&](std::span<uint8_t> to, int64_t row_start, int64_t place, int64_t value) {
    const auto shift = static_cast<int>(place % in_byte) * bits;
    uint8_t& byte = to[static_cast<size_t>(row_start + place / in_byte)];
    byte = static_cast<uint8_t>(byte | static_cast<uint8_t>(value << shift));
  };
  for (int64_t row = 0; row < rows.rows; ++row) {
    // Room that a row does not need stands for zeros.
    for (int64_t k = 0; k < rows.groups * rows.group; ++k)
      put(bytes, row * row_bytes, k,
          k < rows.terms ? rows.integers[static_cast<size_t>(row * rows.terms + k)]
                         : rows.zeros[rows.group_of(row, k)]);
    for (int64_t g = 0; g < rows.groups; ++g)
      put(zeros, row * zero_bytes, g, rows.zeros[static_cast<size_t>(row * rows.groups + g)]);
  }
  return packed;
}

}  // namespace tessera::inline quantize
