// What a model is trained on: samples with their targets, and which of them are for training and which for testing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "types/tensor.h"

namespace tessera::inline driver {

// Samples are rows: of both tensors, dimension 0 numbers them.
struct TrainingData {
  Tensor samples, targets;
  std::vector<int64_t> train, test;  // rows; either may be empty

  int64_t rows() const { return samples.dims()[0]; }
};

// All rows for training. UserError TSR-6230: these are not samples with a target each.
TrainingData training_data(Tensor samples, Tensor targets);
// Further rows, for testing. UserError TSR-6230.
void add_tests(TrainingData& data, const Tensor& samples, const Tensor& targets);
// Every number of the samples is multiplied by it. UserError TSR-4080 unless it is finite and above 0.
void scale_samples(TrainingData& data, double scale);

// Rows as tensors of other types, for copying into batches: of `dtype`, each with `elements` elements. UserError
// TSR-6231 where they have others, TSR-6233 where integers would lose what a number says; `what` says of what.
Tensor as_rows(const Tensor& data, DType dtype, int64_t elements, const std::string& what);
// UserError TSR-6231 unless there are as many samples to train on as a batch has.
void require_batch(const TrainingData& data, int64_t batch);
// UserError TSR-6232 unless all of `targets`, i64, are within 0 .. classes - 1, or are ignored.
void require_classes(const Tensor& targets, int64_t classes, std::optional<int64_t> ignored);
// UserError TSR-6233 unless all numbers are finite.
void require_finite(const Tensor& data, const std::string& what);

// The rows of epoch `epoch` in the order in which it sees them: a function of the seed and its number, the same on
// every machine.
std::vector<int64_t> shuffled(std::vector<int64_t> rows, uint64_t seed, uint64_t epoch);

}  // namespace tessera::inline driver
