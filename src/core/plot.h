// Draws line plots: with Unicode characters for a terminal, as SVG for a report.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace hone {

struct PlotSeries {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;  // [x.size()]; a point with a value that is not finite breaks the line
};

struct PlotLabels {
  std::string title;
  std::string x;
  std::string y;
};

// Draws the series on a braille canvas (two by four dots a character) of `height` lines; with its axes, which are
// labelled at both ends, the plot is at most `width` columns wide. `color` gives each series its ANSI colour.
[[nodiscard]] std::string terminal_plot(std::span<const PlotSeries> series, const PlotLabels& labels, int width = 72,
                                        int height = 12, bool color = false);

// Draws a stand-alone SVG image with grid, axes, labels and, for two or more series, a legend.
[[nodiscard]] std::string svg_plot(std::span<const PlotSeries> series, const PlotLabels& labels);

// Returns the multiples of a step within [low, high]; the step is 1, 2 or 5 times a power of ten, chosen to give about
// `count` of them.
[[nodiscard]] std::vector<double> plot_ticks(double low, double high, int count);

}  // namespace hone
