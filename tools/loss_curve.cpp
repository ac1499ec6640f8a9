#include "loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "package/atomic_file.h"

namespace tessera {

namespace {

constexpr double kWidth = 800, kHeight = 420, kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;
constexpr size_t kMostPoints = 1000;

// The means of `parts` equal parts.
std::vector<double> means(const std::vector<double>& values, size_t parts) {
  std::vector<double> result;
  for (size_t p = 0; p < parts; ++p) {
    const size_t begin = p * values.size() / parts, end = std::max((p + 1) * values.size() / parts, begin + 1);
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += values[i];
    result.push_back(sum / static_cast<double>(end - begin));
  }
  return result;
}

double level(double loss) { return std::log10(std::max(loss, 1e-12)); }

}  // namespace

std::string sparkline(const std::vector<double>& losses, size_t width) {
  static constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (losses.empty() || width == 0) return "";
  std::vector<double> parts = means(losses, std::min(width, losses.size()));
  for (double& part : parts) part = level(part);
  const auto [low, high] = std::minmax_element(parts.begin(), parts.end());
  const double least = *low, range = *high - *low;
  std::string line;
  for (const double part : parts)
    line += kBars[range > 0 ? static_cast<size_t>(std::lround((part - least) / range * 7)) : 0];
  return line;
}

void write_curve(const std::string& path, const std::string& title, const std::vector<double>& losses) {
  const std::vector<double> points = means(losses, std::min(losses.size(), kMostPoints));
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const double point : points) low = std::min(low, level(point)), high = std::max(high, level(point));
  if (points.empty()) low = 0, high = 1;
  low = std::floor(low), high = std::max(std::ceil(high), low + 1);
  const auto x_of = [&](double step) {
    return kLeft + (kWidth - kLeft - kRight) * step / std::max<double>(static_cast<double>(losses.size()), 1);
  };
  const auto y_of = [&](double loss) {
    return kTop + (kHeight - kTop - kBottom) * (high - level(loss)) / (high - low);
  };
  std::string escaped;
  for (const char c : title) escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"15\">{3}</text>\n",
      kWidth, kHeight, kLeft, escaped);
  for (double exponent = low; exponent <= high; exponent += 1) {
    const double y = y_of(std::pow(10, exponent));
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n<text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:g}</text>\n",
        kLeft, kWidth - kRight, y, y, kLeft - 8, y + 4, std::pow(10, exponent));
  }
  for (int i = 0; i <= 4; ++i) {
    const double step = static_cast<double>(losses.size()) * i / 4;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n", x_of(step),
                       kHeight - kBottom + 20, step);
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n", (kLeft + kWidth - kRight) / 2,
                     kHeight - 10);
  const auto line = [&](const std::vector<double>& values, const char* style) {
    std::string path_text;
    for (size_t i = 0; i < values.size(); ++i)
      path_text += fmt::format("{}{:.1f},{:.1f}", i ? " " : "",
                               x_of((static_cast<double>(i) + 0.5) * static_cast<double>(losses.size()) /
                                    static_cast<double>(values.size())),
                               y_of(values[i]));
    svg += fmt::format("<polyline fill=\"none\" {} points=\"{}\"/>\n", style, path_text);
  };
  line(points, "stroke=\"#9ecae1\" stroke-width=\"1\"");
  line(means(losses, std::min<size_t>(losses.size(), 60)), "stroke=\"#08519c\" stroke-width=\"2\"");
  svg += "</svg>\n";
  write_file(path, "curve", svg);
}

}  // namespace tessera
