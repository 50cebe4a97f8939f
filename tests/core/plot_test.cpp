#include "core/plot.h"

#include <gtest/gtest.h>

#include <limits>

namespace hone {
namespace {

TEST(Plot, TicksAreRoundAndCoverTheRange) {
  EXPECT_EQ(plot_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(plot_ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(plot_ticks(3, 3, 4), std::vector<double>{3});
  for (const double scale : {1e-12, 0.7, 3e9}) {
    const std::vector<double> ticks = plot_ticks(0.3 * scale, 9.1 * scale, 6);
    EXPECT_GE(ticks.size(), 3u) << scale;
    EXPECT_LE(ticks.size(), 13u) << scale;
    EXPECT_GE(ticks.front(), 0.3 * scale);
    EXPECT_LE(ticks.back(), 9.1 * scale * (1 + 1e-9));
  }
}

TEST(Plot, ARisingLineGoesFromLowerLeftToUpperRight) {
  const std::vector<PlotSeries> series{{"up", {0, 10}, {1, 3}}};
  EXPECT_EQ(terminal_plot(series, {.title = "T", .x = "step"}, 13, 3),
            "T\n"
            "3 ┤      ⢀⡠⠔⠊\n"
            "  │   ⢀⠤⠒⠁\n"
            "1 ┤⡠⠔⠊⠁\n"
            "  └──────────\n"
            "   0  step 10\n");
}

TEST(Plot, HolesSinglePointsAndNothingAreDrawn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<PlotSeries> flat{{"flat", {5}, {2}}};
  EXPECT_EQ(terminal_plot(flat, {}, 20, 4),
            "3 ┤\n"
            "  │        ⢀\n"
            "  │\n"
            "1 ┤\n"
            "  └─────────────────\n"
            "   2.5           7.5\n");
  const std::vector<PlotSeries> hole{{"hole", {0, 1, 2, 3, 4}, {0, 0, nan, 1, 1}}};
  EXPECT_NE(svg_plot(hole, {}).find("M70.0 348.0L227.5 348.0M542.5 58.0L700.0 58.0"), std::string::npos)
      << svg_plot(hole, {});
  EXPECT_EQ(terminal_plot({}, {.title = "T"}), "T\n(no data)\n");
  EXPECT_NE(svg_plot({}, {}).find("no data"), std::string::npos);
}

TEST(Plot, SvgEscapesAndNamesEverySeries) {
  const std::vector<PlotSeries> series{{"a<b", {0, 1}, {0, 1}}, {"c&d", {0, 1}, {1, 0}}};
  const std::string svg = svg_plot(series, {.title = "\"loss\"", .x = "step", .y = "nats"});
  for (const char* part : {"a&lt;b", "c&amp;d", "&quot;loss&quot;", ">step<", ">nats<", "#0072B2", "#D55E00"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(svg.find("a<b"), std::string::npos);
}

TEST(Plot, ColoursTellSeriesApart) {
  const std::vector<PlotSeries> series{{"one", {0, 1}, {0, 0}}, {"two", {0, 1}, {1, 1}}};
  const std::string text = terminal_plot(series, {}, 20, 4, true);
  EXPECT_NE(text.find("\033[34m━ one\033[0m"), std::string::npos) << text;
  EXPECT_NE(text.find("\033[33m━ two\033[0m"), std::string::npos);
  EXPECT_EQ(terminal_plot(series, {}, 20, 4).find('\033'), std::string::npos);
}

}  // namespace
}  // namespace hone
