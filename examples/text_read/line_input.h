// From a box around a line of text to what the direction classifier and the recogniser take.
#pragma once

#include "common/quad.h"
#include "text_detect/db_postprocess.h"

#include <span>
#include <vector>

namespace example {

// The line, straightened and lying: one that is at least half as tall again as wide is taken for text from top to
// bottom and turned left. It may still be upside down.
Image cut_out_line(const Image& page, const TextBox& box);

// How wide the line is once it has the given height, proportions kept; at least 1.
int width_at_height(const Image& line, int height);

// Resizes the line to `height` with its proportions kept, but to `width` at most, puts it at the left, and fills up
// with zeros. Channels are in the order blue, green, red, mapped from 0..255 to -1..1. `values` has 3 * height * width
// elements: one plane per channel.
void fill_line_input(const Image& line, int width, int height, std::span<float> values);

// Sorts boxes as a person reads them: rows from top to bottom, each from left to right. A box belongs to a row when the
// middle of the row's box nearest to it is no further up or down than half the height of the smaller of both.
void sort_as_read(std::vector<TextBox>& boxes);

}  // namespace example
