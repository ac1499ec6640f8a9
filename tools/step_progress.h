// The steps of a compile on the line that says what is going on, and in the watch over its time.
#pragma once

#include <string>
#include <string_view>

#include "compile_watch.h"
#include "driver/observer.h"
#include "progress.h"

namespace tessera {

// Borrows both; `watch` may be null.
class StepProgress : public Observer {
 public:
  explicit StepProgress(Progress& progress, CompileWatch* watch = nullptr) : progress_(progress), watch_(watch) {}

  void step_begins(std::string_view step) override {
    progress_.update(std::string(step));
    if (watch_) watch_->step(std::string(step));
  }

 private:
  Progress& progress_;
  CompileWatch* watch_;
};

}  // namespace tessera
