#include "tune/report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera::inline tune {

namespace {

using nlohmann::json;
using Align = TextTable::Align;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '&') result += "&amp;";
    else if (c == '"') result += "&quot;";
    else result += c;
  }
  return result;
}

struct Point {
  double x = 0, y = 0;
};

// A line of `points` as steps, and others as dots, over axes from 0 in x and from `low` to `high` in y.
std::string curve_svg(const std::vector<Point>& steps, const std::vector<Point>& dots, double right, double low,
                      double high, const std::string& x_name, const std::string& y_name) {
  constexpr double kWidth = 640, kHeight = 200, kLeft = 64, kBottom = 28, kTop = 8, kRight = 8;
  const double width = kWidth - kLeft - kRight, height = kHeight - kBottom - kTop;
  if (high <= low) high = low + 1;
  const auto x_of = [&](double x) { return kLeft + width * (right > 0 ? x / right : 0); };
  const auto y_of = [&](double y) { return kTop + height * (1 - (std::clamp(y, low, high) - low) / (high - low)); };
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\"><rect x=\"{}\" y=\"{}\" width=\"{}\" "
      "height=\"{}\" "
      "class=\"frame\"/>",
      kWidth, kHeight, kWidth, kHeight, kLeft, kTop, width, height);
  for (int i = 0; i <= 4; ++i) {
    const double y = low + (high - low) * i / 4;
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"grid\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:.4g}</text>",
        kLeft, kWidth - kRight, y_of(y), y_of(y), kLeft - 4, y_of(y) + 4, y);
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\">0</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.4g} {}</text>",
                     kLeft, kHeight - 8, kWidth - kRight, kHeight - 8, right, x_name);
  svg += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>", kLeft + 6, kTop + 14, y_name);
  for (const Point& dot : dots)
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"/>", x_of(dot.x), y_of(dot.y));
  std::string path;
  for (size_t i = 0; i < steps.size(); ++i)
    path += i == 0 ? fmt::format("M{:.1f} {:.1f}", x_of(steps[i].x), y_of(steps[i].y))
                   : fmt::format("H{:.1f}V{:.1f}", x_of(steps[i].x), y_of(steps[i].y));
  if (!steps.empty()) svg += fmt::format("<path d=\"{}H{:.1f}\"/>", path, x_of(right));
  return svg + "</svg>\n";
}

std::string model_curve(const TuneResult& result) {
  std::vector<Point> steps;
  double high = 0;
  for (const ProgressRecord& entry : result.log) {
    if (entry.what != "estimate") continue;
    steps.push_back({entry.seconds, entry.model_us / 1e3});
    high = std::max(high, entry.model_us / 1e3);
  }
  return curve_svg(steps, {}, result.seconds, 0, high * 1.05, "s", "model, ms (estimate)");
}

std::string task_curve(const TunedTask& task) {
  std::vector<Point> steps, dots;
  double best = task.default_us, low = best;
  for (size_t i = 0; i < task.trial_us.size(); ++i) {
    const double us = task.trial_us[i];
    if (us <= 0) continue;
    dots.push_back({static_cast<double>(i), us});
    best = std::min(best, us);
    low = std::min(low, us);
    steps.push_back({static_cast<double>(i), best});
  }
  return curve_svg(steps, dots, static_cast<double>(task.trial_us.size()), 0.8 * low, 2 * task.default_us, "trials",
                   "us");
}

// The columns of both tables of tasks.
const std::vector<TextTable::Column> kTaskColumns = {{"task"},
                                                     {"calls", Align::kRight},
                                                     {"% time", Align::kRight},
                                                     {"% of roofline", Align::kRight},
                                                     {"trials", Align::kRight},
                                                     {"default", Align::kRight},
                                                     {"best", Align::kRight},
                                                     {"gain", Align::kRight},
                                                     {"outcome"}};

std::vector<std::string> task_cells(const TunedTask& task) {
  return {task.name,
          std::to_string(task.calls),
          fmt::format("{:.1f}", 100 * task.share),
          fmt::format("{:.0f}", task.percent_of_bound),
          std::to_string(task.trials),
          time_text(task.default_us),
          time_text(task.best_us),
          fmt::format("{:.2f}", task.best_us > 0 ? task.default_us / task.best_us : 1),
          task.outcome == "tuned" ? task.best_point : task.outcome};
}

// Below both tables; empty where every kernel is below its roofline.
std::string roofline_note(const TuneResult& result) {
  const bool is_above = std::any_of(result.tasks.begin(), result.tasks.end(), [](const TunedTask& task) {
    return task.default_us > 0 && std::lround(task.percent_of_bound) > 100;
  });
  return is_above ? "Above 100 % of the roofline: fewer multiplications than the operation is defined by (Winograd's "
                    "filtering), or caches that hold more than was assumed.\n"
                  : "";
}

// What became of the search over the model as a whole; empty when there was none.
std::string graph_text(const TuneResult& result) {
  const auto count = [&](std::string_view status) {
    return std::count_if(result.graph_trials.begin(), result.graph_trials.end(),
                         [&](const GraphTrial& trial) { return trial.status == status; });
  };
  const auto measured = count("ok");
  if (result.graph_trials.empty()) return result.graph.empty() ? "" : fmt::format("graph: {}\n", result.graph);
  return fmt::format("graph: {}; {} other {} measured, {} that change nothing\n",
                     result.graph.empty() ? "the default stays" : result.graph, measured,
                     measured == 1 ? "program" : "programs", count("same program"));
}

}  // namespace

std::string tune_result_text(const TuneOptions& options, const TuneResult& result, const TextStyle& style) {
  TextTable table(kTaskColumns);
  // By reason, without the numbers in it: how many kernels, and their share.
  std::map<std::string, std::pair<int, double>> left_out;
  for (const TunedTask& task : result.tasks) {
    if (task.default_us <= 0) {
      auto& [count, share] = left_out[task.outcome];
      ++count;
      share += task.share;
      continue;
    }
    table.add(task_cells(task));
  }
  std::string text = table.to_string(style);
  for (const auto& [reason, kernels] : left_out)
    text += fmt::format("{} kernel{}, {:.1f}% of the time: {}\n", kernels.first, kernels.first == 1 ? "" : "s",
                        100 * kernels.second, reason);
  text += roofline_note(result) + graph_text(result);
  text += fmt::format("{} trials in {:.1f} s; records in {}\n", result.trials, result.seconds, options.db);
  if (result.tuned_ms > 0)
    text += fmt::format("model: {:.3f} ms before, {:.3f} ms after\n", result.default_ms, result.tuned_ms);
  return text + result.verdict + "\n";
}

nlohmann::json tune_result_json(const TuneOptions& options, const TuneResult& result) {
  json tasks = json::array(), log = json::array(), graphs = json::array();
  for (const GraphTrial& trial : result.graph_trials)
    graphs.push_back({{"choice", to_string(trial.choice)},
                      {"status", trial.status},
                      {"detail", trial.detail},
                      {"ratio", trial.ratio},
                      {"kept", trial.is_kept}});
  for (const TunedTask& task : result.tasks)
    tasks.push_back({{"kernel", task.hash},
                     {"nodes", task.name},
                     {"rule", task.rule},
                     {"calls", task.calls},
                     {"share", task.share},
                     {"default_us", task.default_us},
                     {"best_us", task.best_us},
                     {"percent_of_bound", task.percent_of_bound},
                     {"default_point", task.default_point},
                     {"best_point", task.best_point},
                     {"trials", task.trials},
                     {"trial_us", task.trial_us},
                     {"standing_us", task.standing_us},
                     {"outcome", task.outcome}});
  for (const ProgressRecord& entry : result.log)
    log.push_back(
        {{"seconds", entry.seconds}, {"trials", entry.trials}, {"model_us", entry.model_us}, {"what", entry.what}});
  return {{"model", options.model},
          {"db", options.db},
          {"mode", search_mode_name(options.mode)},
          {"space", space_kind_name(options.space)},
          {"seed", options.seed},
          {"trials", result.trials},
          {"seconds", result.seconds},
          {"default_ms", result.default_ms},
          {"tuned_ms", result.tuned_ms},
          {"rounds", result.rounds},
          {"wins", result.wins},
          {"verdict", result.verdict},
          {"graph", result.graph},
          {"graph_trials", std::move(graphs)},
          {"predictions", result.predictions},
          {"prediction_us",
           result.predictions > 0 ? 1e6 * result.prediction_seconds / static_cast<double>(result.predictions) : 0},
          {"interrupted", result.interrupted},
          {"tasks", std::move(tasks)},
          {"log", std::move(log)}};
}

std::string tune_report_html(const TuneOptions& options, const TuneResult& result) {
  std::string html = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Tessera: tuning</title><style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;width:100%}td,th{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}code{font-size:13px;overflow-wrap:anywhere}
svg{max-width:100%;height:auto}svg path{fill:none;stroke:#0a6;stroke-width:2}svg circle{fill:#888;opacity:.6}
svg text{font:11px system-ui,sans-serif;fill:#555}.frame{fill:none;stroke:#bbb}.grid{stroke:#eee}
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}td,th{border-color:#333}.grid{stroke:#2a2a2a}svg text{fill:#aaa}}
</style></head><body>
)";
  html += fmt::format("<h1>Tuning of {}</h1>\n<p>{} trials in {:.1f} s, mode {}, space {}, seed {}. {}</p>\n",
                      escaped(options.model), result.trials, result.seconds, search_mode_name(options.mode),
                      space_kind_name(options.space), options.seed, escaped(result.verdict));
  if (result.tuned_ms > 0)
    html += fmt::format("<p>Measured at the end, in turn: {:.3f} ms before, {:.3f} ms after.</p>\n", result.default_ms,
                        result.tuned_ms);
  html += "<h2>The model's time over the search</h2>\n" + model_curve(result);
  if (!result.graph_trials.empty()) {
    html +=
        "<h2>The model as a whole</h2>\n<table><tr><th>choice</th><th>time over what stood</th><th>outcome</th></tr>\n";
    for (const GraphTrial& trial : result.graph_trials)
      html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", escaped(to_string(trial.choice)),
                          trial.ratio < 0 ? "" : fmt::format("{:.3f}", trial.ratio),
                          escaped(trial.is_kept          ? "kept"
                                  : trial.status == "ok" ? "not surely faster"
                                                         : trial.status));
    html += "</table>\n";
  }
  html += "<h2>Kernels</h2>\n<table><tr>";
  for (const TextTable::Column& column : kTaskColumns) html += "<th>" + column.title + "</th>";
  html += "</tr>\n";
  for (const TunedTask& task : result.tasks) {
    html += "<tr>";
    for (const std::string& cell : task_cells(task)) html += "<td>" + escaped(cell) + "</td>";
    html += "</tr>\n";
  }
  html += "</table>\n";
  if (const std::string note = roofline_note(result); !note.empty()) html += "<p>" + escaped(note) + "</p>\n";
  for (const TunedTask& task : result.tasks) {
    if (task.default_us <= 0 || task.trial_us.size() < 2) continue;
    html +=
        fmt::format("<h3>{}</h3>\n<p>Default <code>{}</code>; dots are trials, the line is the fastest so far.</p>\n{}",
                    escaped(task.name), escaped(task.default_point), task_curve(task));
  }
  return html + "</body></html>\n";
}

}  // namespace tessera::inline tune
