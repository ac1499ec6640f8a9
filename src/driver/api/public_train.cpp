// include/tessera/train.h on top of the driver.
#include <atomic>

#include <nlohmann/json.hpp>

#include "driver/api/api_support.h"
#include "driver/training/stages.h"
#include "driver/training/train_model.h"
#include "driver/training/training_report.h"
#include "tessera/train.h"

namespace tessera {

std::string train_file(const std::string& model, const std::string& output, const TrainSettings& settings,
                       const TrainRows& train, const TrainRows* test,
                       const std::function<bool(const TrainEpoch&)>& on_epoch, const CompileOptions& options,
                       const PipelineSettings* processes) {
  return translate_errors([&] {
    refuse_files_of_training(model, output, settings);
    TrainingData data = training_data(borrow(train.samples), borrow(train.targets));
    if (test) add_tests(data, borrow(test->samples), borrow(test->targets));
    DriverOptions driver;
    driver.compile = options;
    std::atomic<bool> stop = false;
    TrainingGroup group;
    if (processes) {
      group.process = process_rank();
      group.pipeline = shape_of_process(pipeline_shape(*processes), group.process, processes->tensor);
      group.tensor = processes->tensor;
    }
    TrainingWatch watch;
    watch.stop = &stop;
    watch.on_epoch = [&](const EpochReport& report) {
      if (on_epoch && !on_epoch({report.epoch, report.loss, report.train, report.test_right, report.test_total,
                                 report.test_loss, report.steps_per_second}))
        stop = true;
    };
    const TrainingOutcome outcome = train_model(model, output, settings, data, driver, group, watch, true);
    return training_json(model, output, outcome).dump();
  });
}

}  // namespace tessera
