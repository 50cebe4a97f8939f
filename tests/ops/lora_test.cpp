#include "ops/lora/lora.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "ops/op_case.h"

namespace hone::test {
namespace {

constexpr std::int64_t kLoraRows = 9, kIn = 12, kOutputs = 10, kRank = 3;

LoraParts some_parts() {
  LoraParts parts;
  parts.add(0, 4);
  parts.add(7, 3);
  return parts;
}

// Adds a [m, k] b [n, k]^T to `to` [m, n].
void add_product(Values& to, const Values& a, const Values& b, std::int64_t k, std::int64_t n, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t l = 0; l < k; ++l) {
        to[static_cast<std::size_t>(i * n + j)] +=
            a[static_cast<std::size_t>(i * k + l)] * b[static_cast<std::size_t>(j * k + l)];
      }
    }
  }
}

// Reference of lora_spread for b [kOutputs, kRank] and some_parts().
Values spread(const Values& b, double scale) {
  Values up(static_cast<std::size_t>(kOutputs * 2 * kRank));
  for (std::int64_t row = 0; row < kOutputs; ++row) {
    const int part = row < 4 ? 0 : row >= 7 ? 1 : -1;
    for (std::int64_t i = 0; part >= 0 && i < kRank; ++i) {
      up[static_cast<std::size_t>(row * 2 * kRank + part * kRank + i)] =
          scale * b[static_cast<std::size_t>(row * kRank + i)];
    }
  }
  return up;
}

OpCase adapted_case(std::int64_t rows, bool with_bias) {
  OpCase test{.name = with_bias ? "lora_linear with bias" : "lora_linear",
              .inputs = {{"x", {DType::kF32, {Dim(rows, Count::tokens), kIn}}},
                         {"weight", {DType::kF32, {kOutputs, kIn}}, false, {}, 0.3, false},
                         {"h", {DType::kF32, {Dim(rows, Count::tokens), 2 * kRank}}},
                         {"b", {DType::kF32, {kOutputs, kRank}}, true, {}, 0.3}},
              .below = {}};
  if (with_bias) test.inputs.push_back({"bias", {DType::kF32, {kOutputs}}, true});
  test.below[Count::tokens] = rows - 2;
  test.build = [with_bias](Program&, std::span<const Tensor> in) {
    const Tensor up = lora_spread(in[3], some_parts(), 1.5);
    return std::vector<Tensor>{linear_adapted(in[0], in[1], with_bias ? in[4] : Tensor(), in[2], up)};
  };
  test.reference = [with_bias, rows](std::span<const Values> in, const Counts&) {
    Values y(static_cast<std::size_t>(rows * kOutputs));
    add_product(y, in[0], in[1], kIn, kOutputs, rows);
    add_product(y, in[2], spread(in[3], 1.5), 2 * kRank, kOutputs, rows);
    for (std::int64_t i = 0; with_bias && i < rows * kOutputs; ++i) {
      y[static_cast<std::size_t>(i)] += in[4][static_cast<std::size_t>(i % kOutputs)];
    }
    return std::vector<Values>{y};
  };
  return test;
}

TEST(Lora, LinearAdapted) {
  for (const std::int64_t rows : {3, 9, 40}) {
    check(adapted_case(rows, false));
    check(adapted_case(rows, true));
  }
}

TEST(Lora, SpreadPutsEachPartIntoItsColumns) {
  OpCase test{.name = "lora_spread", .inputs = {{"b", {DType::kF32, {kOutputs, kRank}}, true}}, .below = {}};
  test.build = [](Program&, std::span<const Tensor> in) {
    return std::vector<Tensor>{lora_spread(in[0], some_parts(), 2.5)};
  };
  test.reference = [](std::span<const Values> in, const Counts&) { return std::vector<Values>{spread(in[0], 2.5)}; };
  check(test);
}

TEST(Lora, DoraScale) {
  for (const bool with_bias : {false, true}) {
    Values norms;
    for (std::int64_t i = 0; i < kOutputs; ++i) norms.push_back(0.5 + 0.25 * static_cast<double>(i));
    OpCase test{.name = "lora_dora_scale",
                .inputs = {{"z", {DType::kF32, {Dim(kLoraRows, Count::tokens), kOutputs}}},
                           {"magnitude", {DType::kF32, {kOutputs}}, true},
                           {"norm", {DType::kF32, {kOutputs}}, false, norms, 1.0, false, true}},
                .below = {}};
    if (with_bias) test.inputs.push_back({"bias", {DType::kF32, {kOutputs}}, true});
    test.below[Count::tokens] = 5;
    test.build = [with_bias](Program&, std::span<const Tensor> in) {
      return std::vector<Tensor>{dora_scale(in[0], in[1], in[2], with_bias ? in[3] : Tensor(), some_parts())};
    };
    test.reference = [with_bias](std::span<const Values> in, const Counts&) {
      Values y(static_cast<std::size_t>(kLoraRows * kOutputs));
      for (std::int64_t i = 0; i < kLoraRows * kOutputs; ++i) {
        const auto column = static_cast<std::size_t>(i % kOutputs);
        const bool adapted = column < 4 || column >= 7;
        y[static_cast<std::size_t>(i)] =
            in[0][static_cast<std::size_t>(i)] * (adapted ? in[1][column] / in[2][column] : 1.0) +
            (with_bias ? in[3][column] : 0.0);
      }
      return std::vector<Values>{y};
    };
    check(test);
  }
}

TEST(Lora, DoraNorm) {
  OpCase test{.name = "lora_dora_norm",
              .inputs = {{"weight", {DType::kF32, {kOutputs, kIn}}, false, {}, 1.0, false},
                         {"delta", {DType::kF32, {kOutputs, kIn}}, false, {}, 0.5, false}},
              .below = {}};
  test.build = [](Program&, std::span<const Tensor> in) { return std::vector<Tensor>{dora_norm(in[0], in[1])}; };
  test.reference = [](std::span<const Values> in, const Counts&) {
    Values norms(static_cast<std::size_t>(kOutputs));
    for (std::size_t i = 0; i < in[0].size(); ++i) {
      norms[i / static_cast<std::size_t>(kIn)] += std::pow(in[0][i] + in[1][i], 2);
    }
    for (double& norm : norms) norm = std::sqrt(norm);
    return std::vector<Values>{norms};
  };
  test.seeded = {false};
  check(test);
}

TEST(Lora, BiasIsTrainedWhereAPartIs) {
  OpCase test{.name = "lora_bias",
              .inputs = {{"trained", {DType::kF32, {kOutputs}}, true},
                         {"frozen", {DType::kF32, {kOutputs}}, false, {}, 1.0, false}},
              .below = {}};
  test.build = [](Program&, std::span<const Tensor> in) {
    return std::vector<Tensor>{lora_bias(in[0], in[1], some_parts())};
  };
  test.reference = [](std::span<const Values> in, const Counts&) {
    Values bias = in[1];
    for (const std::size_t i : {0, 1, 2, 3, 7, 8, 9}) bias[i] = in[0][i];
    return std::vector<Values>{bias};
  };
  check(test);
}

TEST(Lora, JoinColumns) {
  constexpr std::int64_t kLeft = 5;
  OpCase test{.name = "lora_join",
              .inputs = {{"a", {DType::kF32, {Dim(kLoraRows, Count::tokens), kLeft}}},
                         {"b", {DType::kF32, {Dim(kLoraRows, Count::tokens), kRank}}}},
              .below = {}};
  test.below[Count::tokens] = 6;
  test.build = [](Program&, std::span<const Tensor> in) { return std::vector<Tensor>{join_columns(in[0], in[1])}; };
  test.reference = [](std::span<const Values> in, const Counts&) {
    Values joined;
    for (std::int64_t row = 0; row < kLoraRows; ++row) {
      joined.insert(joined.end(), in[0].begin() + row * kLeft, in[0].begin() + (row + 1) * kLeft);
      joined.insert(joined.end(), in[1].begin() + row * kRank, in[1].begin() + (row + 1) * kRank);
    }
    return std::vector<Values>{joined};
  };
  check(test);
}

TEST(Lora, PartsAreText) {
  EXPECT_EQ(to_text(some_parts()), "0+4,7+3");
  const LoraParts parts = lora_parts_from_text("0+4,7+3");
  EXPECT_EQ(parts.count, 2);
  EXPECT_EQ(parts.of(3), 0);
  EXPECT_EQ(parts.of(4), -1);
  EXPECT_EQ(parts.of(9), 1);
  EXPECT_EQ(parts.of(10), -1);
  for (const char* text : {"1", "a+1", "1+", "1+2,", "-1+2", "0+1,1+1,2+1,3+1,4+1,5+1,6+1,7+1,8+1"}) {
    EXPECT_THROW((void)lora_parts_from_text(text), Error) << text;
  }
}

}  // namespace
}  // namespace hone::test
