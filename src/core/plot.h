// Line plots of curves: in Unicode for a terminal, in SVG for a report.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace hone {

struct PlotSeries {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;  // as many as x; a point that is not finite breaks the line
};

struct PlotLabels {
  std::string title;
  std::string x;
  std::string y;
};

// At most `width` columns and `height` lines of dots (braille, two by four a character) within axes that show their
// ends. With `color` the series are told apart by ANSI colours.
[[nodiscard]] std::string terminal_plot(std::span<const PlotSeries> series, const PlotLabels& labels, int width = 72,
                                        int height = 12, bool color = false);

// A stand-alone SVG image with grid, axes, labels and a legend.
[[nodiscard]] std::string svg_plot(std::span<const PlotSeries> series, const PlotLabels& labels);

// Round values that cover [low, high] in about `count` steps of 1, 2 or 5 times a power of ten.
[[nodiscard]] std::vector<double> plot_ticks(double low, double high, int count);

}  // namespace hone
