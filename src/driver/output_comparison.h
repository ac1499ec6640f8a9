// How far two models' values of one output are apart, over many samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "types/tensor.h"

namespace tessera::inline driver {

// Over all samples: the ratio of the squares of the f32 model's values to those of the differences, in dB.
struct OutputReport {
  std::string name;
  double sqnr_db = 0;    // infinity: equal
  double agreement = 1;  // of the places of the largest element along the last dimension, the share that is equal
  double drop = 0;       // what agreement lacks in percent; with labels, the points of accuracy that are lost
  // With labels: the shares of samples whose largest element is at the label's place.
  std::optional<double> real_accuracy, byte_accuracy;
};

class OutputComparison {
 public:
  explicit OutputComparison(std::string name) : name_(std::move(name)) {}

  // `label`: the right place of the largest element, where it is known.
  void add(const Tensor& real, const Tensor& bytes, std::optional<int64_t> label = std::nullopt);

  double signal() const { return signal_; }
  double noise() const { return noise_; }  // infinity: one is a number where the other is none
  OutputReport report() const;

 private:
  std::string name_;
  double signal_ = 0, noise_ = 0;
  int64_t rows_ = 0, equal_ = 0, labels_ = 0, real_right_ = 0, byte_right_ = 0;
};

}  // namespace tessera::inline driver
