#include "core/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string_view>

#include "core/error.h"

namespace hone {
namespace {

struct Bounds {
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;
};

void widen(double& low, double& high) {
  if (high > low) return;
  const double margin = low == 0 ? 1 : std::abs(low) * 0.5;
  low -= margin;
  high += margin;
}

bool is_point(const PlotSeries& series, std::size_t i) {
  return std::isfinite(series.x[i]) && std::isfinite(series.y[i]);
}

// Returns the range of all finite points, widened where it is empty; nullopt if there is no finite point.
std::optional<Bounds> bounds_of(std::span<const PlotSeries> all) {
  std::optional<Bounds> bounds;
  for (const PlotSeries& series : all) {
    HONE_ASSERT(series.x.size() == series.y.size(), series.name, ": ", series.x.size(), " x, ", series.y.size(), " y");
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!is_point(series, i)) continue;
      const double x = series.x[i];
      const double y = series.y[i];
      if (!bounds) bounds = Bounds{x, x, y, y};
      *bounds = {std::min(bounds->x_low, x), std::max(bounds->x_high, x), std::min(bounds->y_low, y),
                 std::max(bounds->y_high, y)};
    }
  }
  if (bounds) {
    widen(bounds->x_low, bounds->x_high);
    widen(bounds->y_low, bounds->y_high);
  }
  return bounds;
}

std::string tick_text(double value, const char* format = "%.4g") {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

// Canvas of braille characters (U+2800 and up), each with two by four dots: one bit of the code point for each dot.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns),
        rows_(rows),
        cells_(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows)),
        owners_(cells_.size()) {}

  void line(double x0, double y0, double x1, double y1, int owner) {
    const int steps = std::max(1, static_cast<int>(std::ceil(std::max(std::abs(x1 - x0), std::abs(y1 - y0)))));
    for (int i = 0; i <= steps; ++i) {
      const double share = static_cast<double>(i) / steps;
      dot(static_cast<int>(std::lround(x0 + (x1 - x0) * share)), static_cast<int>(std::lround(y0 + (y1 - y0) * share)),
          owner);
    }
  }

  [[nodiscard]] std::string row(int index, bool color) const {
    std::string text;
    int owner = -1;
    for (int column = 0; column < columns_; ++column) {
      const std::size_t at = cell(column, index);
      if (color && cells_[at] != 0 && owners_[at] != owner) {
        owner = owners_[at];
        text += text_of("\033[", kColors[static_cast<std::size_t>(owner) % kColors.size()], "m");
      }
      // Encode U+2800 + bits as UTF-8.
      const unsigned code = 0x2800u + cells_[at];
      if (cells_[at] == 0) {
        text += ' ';
      } else {
        text += {static_cast<char>(0xE2), static_cast<char>(0x80u | (code >> 6 & 0x3Fu)),
                 static_cast<char>(0x80u | (code & 0x3Fu))};
      }
    }
    if (owner >= 0) return text + "\033[0m";
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

  static constexpr std::array<int, 6> kColors{34, 33, 32, 35, 36, 31};

 private:
  [[nodiscard]] std::size_t cell(int column, int row_index) const {
    return static_cast<std::size_t>(row_index) * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(column);
  }

  // Sets a dot and the colour of its cell; (0, 0) is the lower left dot.
  void dot(int x, int y, int owner) {
    constexpr std::array<std::array<std::uint8_t, 4>, 2> kBits{{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    const int from_top = rows_ * 4 - 1 - y;
    if (x < 0 || x >= columns_ * 2 || from_top < 0 || from_top >= rows_ * 4) return;
    const std::size_t at = cell(x / 2, from_top / 4);
    cells_[at] |= kBits[static_cast<std::size_t>(x % 2)][static_cast<std::size_t>(from_top % 4)];
    owners_[at] = owner;
  }

  int columns_;
  int rows_;
  std::vector<std::uint8_t> cells_;
  std::vector<int> owners_;
};

std::string padded_left(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

// Calls draw(i, i - 1) for each segment between two finite points, and draw(i, i) for each finite point that begins a
// segment or is isolated.
template <class Draw>
void for_each_segment(const PlotSeries& series, const Draw& draw) {
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (is_point(series, i)) draw(i, i > 0 && is_point(series, i - 1) ? i - 1 : i);
  }
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) out += c;
    }
  }
  return out;
}

constexpr double kWidth = 720, kHeight = 400, kLeft = 70, kRight = 20, kTop = 58, kBottom = 52;
// Palette of Okabe and Ito, whose colours remain distinguishable for colour-blind readers.
constexpr std::array<std::string_view, 6> kPalette{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"};

// Maps data coordinates to pixels of the SVG image.
struct Frame {
  Bounds bounds;

  [[nodiscard]] double x(double value) const {
    return kLeft + (value - bounds.x_low) / (bounds.x_high - bounds.x_low) * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double value) const {
    return kHeight - kBottom - (value - bounds.y_low) / (bounds.y_high - bounds.y_low) * (kHeight - kTop - kBottom);
  }
};

std::string pixel(double value) { return tick_text(value, "%.1f"); }

std::string svg_text(double x, double y, std::string_view anchor, std::string_view extra, std::string_view text) {
  return text_of("<text x=\"", pixel(x), "\" y=\"", pixel(y), "\" text-anchor=\"", anchor, "\"", extra, ">",
                 escaped(text), "</text>\n");
}

std::string svg_grid(const Frame& frame) {
  std::string svg;
  for (const double tick : plot_ticks(frame.bounds.y_low, frame.bounds.y_high, 5)) {
    const std::string y = pixel(frame.y(tick));
    svg += text_of("<path d=\"M", pixel(kLeft), " ", y, "H", pixel(kWidth - kRight), "\" stroke=\"#e3e3e3\"/>\n");
    svg += svg_text(kLeft - 8, frame.y(tick) + 4, "end", "", tick_text(tick));
  }
  for (const double tick : plot_ticks(frame.bounds.x_low, frame.bounds.x_high, 8)) {
    svg += svg_text(frame.x(tick), kHeight - kBottom + 18, "middle", "", tick_text(tick));
  }
  return svg + text_of("<path d=\"M", pixel(kLeft), " ", pixel(kTop), "V", pixel(kHeight - kBottom), "H",
                       pixel(kWidth - kRight), "\" fill=\"none\" stroke=\"#666\"/>\n");
}

std::string svg_curve(const PlotSeries& series, const Frame& frame, std::string_view color) {
  std::string path;
  for_each_segment(series, [&](std::size_t i, std::size_t before) {
    const std::string place = pixel(frame.x(series.x[i])) + " " + pixel(frame.y(series.y[i]));
    const bool alone = before == i && (i + 1 == series.x.size() || !is_point(series, i + 1));
    path += (before == i ? "M" : "L") + place + (alone ? "h0.1" : "");
  });
  return text_of("<path d=\"", path, "\" fill=\"none\" stroke=\"", color,
                 "\" stroke-width=\"1.8\" stroke-linejoin=\"round\" stroke-linecap=\"round\"/>\n");
}

}  // namespace

std::vector<double> plot_ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  if (!(rough > 0) || !std::isfinite(rough)) return {low};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;
  const double step = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= 2 * std::max(1, count); ++i) {
    const double value = (first + i) * step;
    if (value > high + step * 1e-9) break;
    ticks.push_back(std::abs(value) < step * 1e-9 ? 0.0 : value);
  }
  return ticks;
}

std::string terminal_plot(std::span<const PlotSeries> series, const PlotLabels& labels, int width, int height,
                          bool color) {
  const std::optional<Bounds> bounds = bounds_of(series);
  std::string text = labels.title.empty() ? "" : labels.title + "\n";
  if (!bounds) return text + "(no data)\n";
  const std::string high = tick_text(bounds->y_high);
  const std::string low = tick_text(bounds->y_low);
  const std::size_t margin = std::max(high.size(), low.size());
  const int columns = std::max(8, width - static_cast<int>(margin) - 2);
  const int rows = std::max(2, height);
  Canvas canvas(columns, rows);
  const auto x_dot = [&](double x) {
    return (x - bounds->x_low) / (bounds->x_high - bounds->x_low) * (columns * 2 - 1);
  };
  const auto y_dot = [&](double y) { return (y - bounds->y_low) / (bounds->y_high - bounds->y_low) * (rows * 4 - 1); };
  for (std::size_t s = 0; s < series.size(); ++s) {
    for_each_segment(series[s], [&](std::size_t i, std::size_t before) {
      canvas.line(x_dot(series[s].x[before]), y_dot(series[s].y[before]), x_dot(series[s].x[i]), y_dot(series[s].y[i]),
                  static_cast<int>(s));
    });
  }
  if (!labels.y.empty()) text += labels.y + "\n";
  for (int row = 0; row < rows; ++row) {
    const std::string& label = row == 0 ? high : row == rows - 1 ? low : std::string();
    text += padded_left(label, margin) + (label.empty() ? " │" : " ┤") + canvas.row(row, color) + "\n";
  }
  text += std::string(margin + 1, ' ') + "└";
  for (int i = 0; i < columns; ++i) text += "─";
  const std::string left = tick_text(bounds->x_low);
  const std::string right = (labels.x.empty() ? "" : labels.x + " ") + tick_text(bounds->x_high);
  text +=
      "\n" + std::string(margin + 2, ' ') + left +
      padded_left(right, static_cast<std::size_t>(columns) - std::min(left.size(), static_cast<std::size_t>(columns))) +
      "\n";
  if (series.size() < 2) return text;
  text += std::string(margin + 1, ' ');
  for (std::size_t s = 0; s < series.size(); ++s) {
    text += color ? text_of(" \033[", Canvas::kColors[s % Canvas::kColors.size()], "m━ ", series[s].name, "\033[0m")
                  : " ━ " + series[s].name;
  }
  return text + "\n";
}

std::string svg_plot(std::span<const PlotSeries> series, const PlotLabels& labels) {
  const std::optional<Bounds> bounds = bounds_of(series);
  std::string svg =
      text_of("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth, " ", kHeight, "\" width=\"", kWidth,
              "\" height=\"", kHeight, "\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#333\">\n",
              "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  svg += svg_text(kLeft, 22, "start", " font-size=\"15\" font-weight=\"600\"", labels.title);
  if (!bounds) return svg + svg_text(kWidth / 2, kHeight / 2, "middle", "", "no data") + "</svg>\n";
  const Frame frame{*bounds};
  svg += svg_grid(frame);
  double legend = kLeft;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const std::string_view color = kPalette[i % kPalette.size()];
    svg += svg_curve(series[i], frame, color);
    if (series.size() < 2) continue;
    svg += text_of("<path d=\"M", pixel(legend), " 40h18\" stroke=\"", color, "\" stroke-width=\"3\"/>\n");
    svg += svg_text(legend + 24, 44, "start", "", series[i].name);
    legend += 44 + 7 * static_cast<double>(series[i].name.size());
  }
  svg += svg_text((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", "", labels.x);
  const double middle = (kTop + kHeight - kBottom) / 2;
  svg += svg_text(16, middle, "middle", text_of(" transform=\"rotate(-90 16 ", pixel(middle), ")\""), labels.y);
  return svg + "</svg>\n";
}

}  // namespace hone
