#include "driver/training/training_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numbers>

#include "package/safetensors.h"
#include "support/error.h"
#include "support/refuse.h"

namespace tessera::inline driver {

namespace {

constexpr int64_t kMostSkipped = 60;  // one after the other: the scale has become 2^-60 of what it was

Tensor as_type(Tensor tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor other(dtype, tensor.dims());
  for (int64_t i = 0; i < other.num_elements(); ++i) other.set_double(i, tensor.get_double(i));
  return other;
}

}  // namespace

size_t state_named(const Model& model, const std::string& name) {
  for (size_t i = 0; i < model.states().size(); ++i)
    if (model.states()[i].name == name) return i;
  throw InternalError("no state " + name);
}

double RateSchedule::at(int64_t step, int64_t steps) const {
  if (step < warmup) return rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double part = steps > warmup ? static_cast<double>(step - warmup) / static_cast<double>(steps - warmup) : 0;
  switch (kind) {
    case Kind::kConstant: return rate;
    case Kind::kCosine: return rate * 0.5 * (1 + std::cos(std::numbers::pi * part));
    case Kind::kLinear: return rate * (1 - part);
  }
  return rate;
}

TrainingLoop::TrainingLoop(Model& step, WholeStates& states, Model* inference, const TrainingData& data,
                           const LoopOptions& options)
    : step_(step), states_(states), inference_(inference), data_(data), options_(options) {
  const TensorInfo &x = step.inputs()[0], &y = step.inputs()[1];
  batch_ = x.dims.empty() ? 1 : x.dims[0];
  if (batch_ < 1 || y.dims.empty() || y.dims[0] != batch_)
    refuse("TSR-6231", fmt::format("a batch is {} with targets {}", x.type_text(), y.type_text()),
           "a model whose first dimension numbers the samples, of its input as of its output");
  samples_ = as_rows(data.samples, x.dtype, elements_of(x) / batch_, "samples");
  targets_ = as_rows(data.targets, y.dtype, elements_of(y) / batch_, "targets");
  require_finite(samples_, "samples");
  if (options.classes > 0) require_classes(targets_, options.classes, options.ignored);
  else require_finite(targets_, "targets");
  steps_per_epoch_ = std::ssize(data.train) / batch();
  batch_bytes_ = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(dtype_bytes(x.dtype, elements_of(x))));
  target_bytes_ = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(dtype_bytes(y.dtype, elements_of(y))));
  rate_ = std::make_shared<double>(0);
  inputs_ = {Tensor(x.dtype, x.dims, batch_bytes_, batch_bytes_->data()),
             Tensor(y.dtype, y.dims, target_bytes_, target_bytes_->data()),
             Tensor(DType::kF64, {}, rate_, rate_.get())};
  step_.bind(inputs_);
  if (!inference) return;
  const TensorInfo& tested = inference->inputs()[0];
  test_batch_ = tested.dims.empty() ? 1 : tested.dims[0];
  test_bytes_ =
      std::make_shared<std::vector<std::byte>>(static_cast<size_t>(dtype_bytes(x.dtype, elements_of(tested))));
  inference_->bind({Tensor(tested.dtype, tested.dims, test_bytes_, test_bytes_->data())});
}

int64_t TrainingLoop::steps_done() const { return step_.state(step_.states().size() - 1).get_int(0); }

int64_t TrainingLoop::place_in_batch(int64_t sample) const {
  const int64_t part = batch_ / options_.parallel.parts_of_rank();
  return options_.parallel.part(sample / part) * part + sample % part;
}

void TrainingLoop::gather(const std::vector<int64_t>& rows, size_t begin) {
  const auto copy = [&](const Tensor& from, std::vector<std::byte>& to) {
    const size_t size = to.size() / static_cast<size_t>(batch_);
    for (size_t i = 0; i < static_cast<size_t>(batch_); ++i) {
      const auto row = static_cast<size_t>(rows[begin + static_cast<size_t>(place_in_batch(static_cast<int64_t>(i)))]);
      std::memcpy(to.data() + i * size, from.bytes() + row * size, size);
    }
  };
  copy(samples_, *batch_bytes_);
  copy(targets_, *target_bytes_);
}

void TrainingLoop::save(const std::string& path) const {
  NamedTensors contents;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!options_.writes && !states_.is_shared(i)) continue;
    Tensor whole = states_.get(i);
    if (options_.writes) contents.tensors.emplace_back(states_.info(i).name, std::move(whole));
  }
  if (!options_.writes) return;
  contents.metadata = {{"model", options_.model_hash}, {"settings", options_.settings}, {"format", "pt"}};
  write_safetensors(path, contents);
}

void TrainingLoop::resume(const std::string& path) {
  const NamedTensors contents = read_safetensors(path);
  const auto entry = [&](const char* key) {
    const auto found = contents.metadata.find(key);
    return found == contents.metadata.end() ? std::string() : found->second;
  };
  if (entry("model") != options_.model_hash)
    refuse("TSR-6234", fmt::format("checkpoint '{}' is of another model", path), "a checkpoint of this model",
           "give the model that it was written with");
  if (entry("settings") != options_.settings)
    refuse("TSR-6234",
           fmt::format("checkpoint '{}' was made with {}; this is {}", path, entry("settings"), options_.settings),
           "the same data, batch, loss and optimizer");
  std::vector<const Tensor*> found(states_.size(), nullptr);
  for (const auto& [name, tensor] : contents.tensors)
    for (size_t i = 0; i < found.size(); ++i)
      if (states_.info(i).name == name && states_.info(i).dtype == tensor.dtype() &&
          states_.info(i).dims == tensor.dims())
        found[i] = &tensor;
  for (size_t i = 0; i < found.size(); ++i)
    if (!found[i])
      refuse("TSR-6234",
             fmt::format("checkpoint '{}' has no '{}' of type {}", path, states_.info(i).name,
                         states_.info(i).type_text()),
             "a checkpoint of this model");
  if (const int64_t done = found.back()->get_int(0); done < 0)
    refuse("TSR-6234", fmt::format("checkpoint '{}' was made after step {}", path, done), "0 steps or more");
  for (size_t i = 0; i < found.size(); ++i) states_.set(i, *found[i]);
}

void TrainingLoop::test(EpochReport& report) {
  report.test_right = report.test_total = 0;
  report.test_loss = 0;
  if (data_.test.empty() || !inference_) return;
  for (size_t i = 0; i < inference_->states().size(); ++i) {
    const TensorInfo& info = inference_->states()[i];
    inference_->set_state(i, as_type(states_.get(states_.find(info.name)), info.dtype));
  }
  double squares = 0;
  int64_t numbers = 0;
  const auto batch = static_cast<size_t>(test_batch_);
  for (size_t begin = 0; begin < data_.test.size(); begin += batch) {
    const size_t size = test_bytes_->size() / batch;
    for (size_t i = 0; i < batch; ++i) {
      const auto row = static_cast<size_t>(data_.test[std::min(begin + i, data_.test.size() - 1)]);
      std::memcpy(test_bytes_->data() + i * size, samples_.bytes() + row * size, size);
    }
    inference_->run();
    const Tensor& scores = inference_->results()[0];
    const auto count = std::min(batch, data_.test.size() - begin);
    const int64_t each = scores.num_elements() / test_batch_, targets = targets_.dims()[1];
    for (size_t i = 0; i < count; ++i) {
      const int64_t row = data_.test[begin + i], first = static_cast<int64_t>(i) * each;
      if (options_.classes == 0) {
        for (int64_t e = 0; e < each; ++e) {
          const double off = scores.get_double(first + e) - targets_.get_double(row * targets + e);
          squares += off * off;
        }
        numbers += each;
        continue;
      }
      // [classes, places] or [places, classes]: one target for each place.
      const int64_t classes = options_.classes_last ? scores.dims().back() : scores.dims()[1];
      const int64_t places = each / classes;
      const auto score = [&](int64_t place, int64_t of_class) {
        const int64_t at = options_.classes_last ? place * classes + of_class : of_class * places + place;
        return scores.get_double(first + at);
      };
      for (int64_t p = 0; p < places; ++p) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; ++c)
          if (score(p, c) > score(p, best)) best = c;
        report.test_right += best == targets_.get_int(row * targets + p);
        ++report.test_total;
      }
    }
  }
  if (numbers > 0) report.test_loss = squares / static_cast<double>(numbers);
}

void TrainingLoop::refuse_step(int64_t number) const {
  const double loss = step_.results()[0].get_double(0);
  std::vector<Tensor> before = inputs_;
  for (size_t i = 0; i < step_.states().size(); ++i) before.push_back(step_.state(i));
  const std::string cause = options_.find_not_finite ? options_.find_not_finite(before) : "";
  const std::string what = std::isfinite(loss) ? fmt::format("the gradients of step {} are no finite numbers", number)
                                               : fmt::format("the loss of step {} is {}", number, loss);
  refuse("TSR-5120", cause.empty() ? what : fmt::format("{}: {}", what, cause), "finite numbers",
         options_.checkpoint.empty()
             ? "give a smaller --lr, or --clip-norm 1"
             : fmt::format("give a smaller --lr, or --clip-norm 1; '{}' is as the last epoch left it",
                           options_.checkpoint));
}

LoopResult TrainingLoop::run(const std::atomic<bool>& stop, const std::function<void(const EpochReport&)>& on_epoch) {
  LoopResult result;
  const int64_t steps = options_.epochs * steps_per_epoch_;
  int64_t done = steps_done(), skipped = 0;
  while (done < steps && !result.interrupted) {
    const int64_t epoch = done / steps_per_epoch_;
    const std::vector<int64_t> rows =
        options_.shuffled ? shuffled(data_.train, options_.seed, static_cast<uint64_t>(epoch)) : data_.train;
    if (options_.at_epoch && done % steps_per_epoch_ == 0) options_.at_epoch(epoch);
    EpochReport report;
    report.epoch = epoch + 1;
    double sum = 0;
    int64_t right = 0, count = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = done % steps_per_epoch_; i < steps_per_epoch_; ++i) {
      if (stop) {
        result.interrupted = true;
        break;
      }
      const auto step_begin = std::chrono::steady_clock::now();
      gather(rows, static_cast<size_t>(i * batch()));
      *rate_ = options_.schedule.at(done, steps);
      step_.run();
      const double loss = step_.results()[0].get_double(0);
      ++done;
      const bool was_done = step_.results()[2].get_int(0) != 0;
      skipped = was_done ? 0 : skipped + 1;
      if (!was_done && (!options_.skips || skipped > kMostSkipped)) refuse_step(done);
      if (!was_done) continue;
      result.losses.push_back(loss);
      result.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - step_begin).count());
      sum += loss;
      right += step_.results()[1].get_int(0);
      ++count;
      if (!options_.checkpoint.empty() && options_.checkpoint_steps > 0 && done % options_.checkpoint_steps == 0)
        save(options_.checkpoint);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const bool is_saved = options_.checkpoint_steps > 0 && done % options_.checkpoint_steps == 0;
    if (!options_.checkpoint.empty() && count > 0 && !is_saved) save(options_.checkpoint);
    if (result.interrupted) break;
    report.loss = sum / static_cast<double>(std::max<int64_t>(count, 1));
    report.train =
        static_cast<double>(right) / static_cast<double>(std::max<int64_t>(count, 1) * targets_.dims()[1] * batch());
    report.steps_per_second = static_cast<double>(count) / seconds;
    test(report);
    on_epoch(report);
  }
  return result;
}

}  // namespace tessera::inline driver
