// SSD's prior boxes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "import/caffe/layers/handlers.h"

namespace tessera::inline caffe {
namespace {

constexpr int64_t kMostBoxes = int64_t{1} << 22;

// Ratios of width to height, without repetitions; the first is 1.
std::vector<float> ratios_of(LayerContext& c, const proto::PriorBoxParameter& p) {
  std::vector<float> ratios = {1};
  const auto add = [&](float ratio) {
    const auto is_there = [&](float other) { return std::abs(ratio - other) < 1e-6F; };
    if (std::none_of(ratios.begin(), ratios.end(), is_there)) ratios.push_back(ratio);
  };
  for (const float ratio : p.aspect_ratio()) {
    if (!(ratio > 0)) c.malformed(fmt::format("aspect_ratio: {}", ratio), "more than 0");
    add(ratio);
    if (p.flip()) add(1 / ratio);
  }
  return ratios;
}

// Boxes around each place of a map, in parts of the image's width and height, and the variances that a decoder takes
// them with: f32[1, 2, places * boxes * 4]. A constant, because it depends on sizes alone.
void import_prior_box(LayerContext& c) {
  c.require_bottoms(2, 2);
  c.require_rank(0, 4);
  c.require_rank(1, 4);
  const proto::PriorBoxParameter& p = c.layer().prior_box_param();
  const Ints map = c.dims(c.in(0)), image = c.dims(c.in(1));
  const auto extent = [&](bool has, uint32_t own, int64_t otherwise) {
    return static_cast<float>(has ? int64_t{own} : p.has_img_size() ? int64_t{p.img_size()} : otherwise);
  };
  const float height = extent(p.has_img_h(), p.img_h(), image[2]), width = extent(p.has_img_w(), p.img_w(), image[3]);
  const auto step = [&](bool has, float own, float whole, int64_t places) {
    const float given = has ? own : p.has_step() ? p.step() : 0;
    return given == 0 ? whole / static_cast<float>(places) : given;
  };
  const float step_h = step(p.has_step_h(), p.step_h(), height, map[2]);
  const float step_w = step(p.has_step_w(), p.step_w(), width, map[3]);
  if (p.min_size_size() == 0 || (p.max_size_size() != 0 && p.max_size_size() != p.min_size_size()))
    c.malformed(fmt::format("{} min_size and {} max_size", p.min_size_size(), p.max_size_size()),
                "one min_size or more, and as many max_size or none");
  if (p.variance_size() != 0 && p.variance_size() != 1 && p.variance_size() != 4)
    c.malformed(fmt::format("{} variances", p.variance_size()), "none, 1 or 4");
  if (map[2] < 1 || map[3] < 1 || !(height > 0) || !(width > 0)) c.malformed("an empty map or image", "places");

  const std::vector<float> ratios = ratios_of(c, p);
  std::vector<std::pair<float, float>> sizes;  // of the boxes of a place: width and height
  for (int i = 0; i < p.min_size_size(); ++i) {
    const float least = p.min_size(i);
    sizes.emplace_back(least, least);
    if (p.max_size_size() > 0) {
      const float middle = std::sqrt(least * p.max_size(i));
      sizes.emplace_back(middle, middle);
    }
    for (size_t r = 1; r < ratios.size(); ++r)
      sizes.emplace_back(least * std::sqrt(ratios[r]), least / std::sqrt(ratios[r]));
  }
  const int64_t boxes = map[2] * map[3] * std::ssize(sizes);
  if (boxes > kMostBoxes) c.malformed(fmt::format("{} boxes", boxes), fmt::format("{} at most", kMostBoxes));
  Tensor priors(DType::kF32, {1, 2, boxes * 4});
  float* to = priors.as_mutable<float>().data();
  for (int64_t y = 0; y < map[2]; ++y) {
    for (int64_t x = 0; x < map[3]; ++x) {
      const float center_x = (static_cast<float>(x) + p.offset()) * step_w;
      const float center_y = (static_cast<float>(y) + p.offset()) * step_h;
      for (const auto& [w, h] : sizes) {
        for (const float place : {(center_x - w / 2) / width, (center_y - h / 2) / height, (center_x + w / 2) / width,
                                  (center_y + h / 2) / height})
          *to++ = p.clip() ? std::clamp(place, 0.0F, 1.0F) : place;
      }
    }
  }
  for (int64_t i = 0; i < boxes * 4; ++i)
    *to++ = p.variance_size() == 0 ? 0.1F : p.variance(p.variance_size() == 1 ? 0 : static_cast<int>(i % 4));
  c.out(c.constant_value(std::move(priors)));
}

}  // namespace

std::span<const CaffeLayer> box_layers() {
  static constexpr CaffeLayer rows[] = {{"PriorBox", import_prior_box}};
  return rows;
}

}  // namespace tessera::inline caffe
