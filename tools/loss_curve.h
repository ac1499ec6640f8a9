// A curve of losses, as text and as a picture.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// At most `width` characters, the highest of which stands for the largest loss; a logarithmic scale.
std::string sparkline(const std::vector<double>& losses, size_t width);

// Writes an SVG: the loss of each step, thin, and its running mean, with axes. UserError TSR-6101, TSR-6102.
void write_curve(const std::string& path, const std::string& title, const std::vector<double>& losses);

}  // namespace tessera
