// What a search found, for people and programs.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "diagnose/text_table.h"
#include "tune/tuner.h"

namespace tessera::inline tune {

std::string tune_result_text(const TuneOptions& options, const TuneResult& result, const TextStyle& style);
nlohmann::json tune_result_json(const TuneOptions& options, const TuneResult& result);
// A page that needs nothing beside it: the model's time over the search, and each kernel's trials, as SVG.
std::string tune_report_html(const TuneOptions& options, const TuneResult& result);

}  // namespace tessera::inline tune
