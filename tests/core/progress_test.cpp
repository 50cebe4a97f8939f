#include "core/progress.h"

#include <gtest/gtest.h>

#include <string>

namespace hone {
namespace {

ProgressState sample() {
  return {.label = "Training", .done = 37, .total = 100, .initial = 10, .elapsed_seconds = 9, .postfix = "loss 2.31"};
}

// Width of UTF-8 text in columns: the number of bytes that are not continuation bytes.
int columns(const std::string& text) {
  int count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0u) != 0x80u ? 1 : 0;
  return count;
}

TEST(Progress, LineCountsOnlyWhatThisRunDid) {
  EXPECT_EQ(progress_line(sample()), "Training  37% 37/100 [9s<21s, 3.00 step/s, loss 2.31]");
}

TEST(Progress, SlowRatesAreSecondsAUnit) {
  ProgressState state = sample();
  state.elapsed_seconds = 54;
  EXPECT_EQ(progress_line(state), "Training  37% 37/100 [54s<2m 06s, 2.00 s/step, loss 2.31]");
}

TEST(Progress, UnknownTotalsAndNoProgressShowNoGuess) {
  EXPECT_EQ(progress_line({.label = "Reading", .unit = "row", .done = 1500, .elapsed_seconds = 10}),
            "Reading 1,500 [10s, 150 row/s]");
  EXPECT_EQ(progress_line({.label = "Training", .total = 10}), "Training   0% 0/10 [0s]");
}

TEST(Progress, BarFillsTheWidthItIsGiven) {
  for (const int width : {0, 1, 10, 30, 60, 64, 70, 80, 200}) {
    EXPECT_LE(columns(progress_bar(sample(), width)), width) << width;
  }
  EXPECT_EQ(progress_bar(sample(), 70), "Training  37% |████▊        | 37/100 [9s<21s, 3.00 step/s, loss 2.31]");
}

TEST(Progress, NarrowTerminalsGetNoHalfCharacter) {
  EXPECT_EQ(progress_bar({.label = "élève", .total = 10}, 6), "élè");
}

}  // namespace
}  // namespace hone
