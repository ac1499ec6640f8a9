#include "pipeline_flags.h"

#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "driver/training/stages.h"
#include "support/mapped_file.h"
#include "support/refuse.h"

namespace tessera {

void add_pipeline_flags(CLI::App& app, PipelineFlags& flags, const std::string& schedule) {
  app.add_option("--stages", flags.settings.stages,
                 "Cut the model into so many parts, one behind the other, for as many processes")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  app.add_option("--micro-batches", flags.settings.micro_batches, "A batch goes through the stages in so many parts")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  const auto& kinds = pipeline_kind_names();
  app.add_option(
         schedule, flags.settings.kind,
         "What a stage does when: all forwards first (gpipe), a backward as soon as it can (1f1b), or that with "
         "several pieces of the model on each stage (interleaved)")
      ->check(CLI::IsMember(std::vector<std::string>(kinds.begin(), kinds.end())))
      ->capture_default_str()
      ->type_name("NAME");
  app.add_option("--chunks", flags.settings.chunks, "Pieces of the model on each stage, interleaved; 0: 2 of them")
      ->check(CLI::Range(int64_t{0}, int64_t{64}))
      ->capture_default_str();
}

PipelineShape shape_of(const PipelineFlags& flags, const ProcessRank& process) {
  return shape_of_process(flags.plan.empty() ? pipeline_shape(flags.settings) : shape_in_plan(flags.plan), process,
                          flags.settings.tensor);
}

std::string to_text(const PipelineShape& shape) {
  return fmt::format("{} stage{}, {} micro-batch{}, {}{}", shape.stages, shape.stages == 1 ? "" : "s",
                     shape.micro_batches, shape.micro_batches == 1 ? "" : "es",
                     pipeline_kind_names()[static_cast<size_t>(shape.kind)],
                     shape.chunks > 1 ? fmt::format(" with {} chunks each", shape.chunks) : "");
}

std::string plan_json(const PipelineShape& shape, const std::string& model) {
  const nlohmann::json plan = {{"model", model},
                               {"stages", shape.stages},
                               {"micro_batches", shape.micro_batches},
                               {"schedule", pipeline_kind_names()[static_cast<size_t>(shape.kind)]},
                               {"chunks", shape.chunks},
                               {"cuts", shape.cuts}};
  return plan.dump() + "\n";
}

PipelineShape shape_in_plan(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "plan.json").string();
  const std::string text(MappedFile::open(path, "plan", "TSR-6251")->text());
  const nlohmann::json plan = nlohmann::json::parse(text, nullptr, false);
  const auto is_number = [&](const char* key) { return plan.contains(key) && plan[key].is_number_integer(); };
  const auto& names = pipeline_kind_names();
  const bool fits = plan.is_object() && is_number("stages") && is_number("micro_batches") && is_number("chunks") &&
                    plan.contains("schedule") && plan["schedule"].is_string() &&
                    std::find(names.begin(), names.end(), plan["schedule"].get<std::string>()) != names.end() &&
                    plan.contains("cuts") && plan["cuts"].is_array() &&
                    std::all_of(plan["cuts"].begin(), plan["cuts"].end(),
                                [](const nlohmann::json& cut) { return cut.is_number_integer(); });
  if (!fits)
    refuse("TSR-6251", fmt::format("'{}' is no plan of stages", path),
           "what 'tessera parallelize --stages N -o' writes");
  PipelineShape shape;
  shape.stages = plan["stages"].get<int64_t>();
  shape.micro_batches = plan["micro_batches"].get<int64_t>();
  shape.chunks = plan["chunks"].get<int64_t>();
  shape.kind = pipeline_kind(plan["schedule"].get<std::string>());
  shape.cuts = plan["cuts"].get<std::vector<int64_t>>();
  check_pipeline(shape);
  return shape;
}

}  // namespace tessera
