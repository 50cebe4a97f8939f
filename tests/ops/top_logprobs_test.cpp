#include "ops/top_logprobs/top_logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "core/random.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "ops/sample/sample.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

struct Listed {
  std::vector<std::int32_t> ids;  // [samples, most]
  std::vector<float> logps;       // [samples, most]
};

// Returns the lists, and in `drawn` the log-probabilities of the tokens that ops/sample draws greedily.
Listed list(const std::vector<float>& logits, std::int64_t samples, const std::vector<float>& temperatures,
            const std::vector<std::int32_t>& counts, std::int64_t most, std::vector<float>& drawn,
            std::int64_t parts = 1) {
  register_operations();
  const std::int64_t vocab = std::ssize(logits) / samples;
  Program program;
  const Dim rows{samples, Count::samples};
  const Tensor given = program.input("logits", {DType::kF32, {rows, vocab}});
  const Tensor parameters = program.input("parameters", {DType::kF32, {rows, kSampleParameters}});
  const TopLogprobs top =
      top_logprobs(given, parameters, program.input("counts", {DType::kI32, {rows}}), {.most = most, .parts = parts});
  program.output("ids", top.ids);
  program.output("logps", top.logps);
  program.output(
      "drawn",
      sample(given, parameters, program.input("keys", {DType::kI64, {rows, 2}}), {}, {}, {.parts = parts}).logp);
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  std::vector<float> settings;
  for (const float temperature : temperatures) settings.insert(settings.end(), {temperature, 1, 0, 1});  // top_k 1
  executable.set<float>("logits", logits);
  executable.set<float>("parameters", settings);
  executable.set<std::int32_t>("counts", counts);
  executable.set<std::int64_t>("keys", std::vector<std::int64_t>(static_cast<std::size_t>(2 * samples)));
  executable.run();
  Listed listed{std::vector<std::int32_t>(static_cast<std::size_t>(samples * most)),
                std::vector<float>(static_cast<std::size_t>(samples * most))};
  executable.get<std::int32_t>("ids", listed.ids);
  executable.get<float>("logps", listed.logps);
  drawn.resize(static_cast<std::size_t>(samples));
  executable.get<float>("drawn", drawn);
  return listed;
}

// The ids of a row in the order of the list.
std::vector<std::int32_t> ranked(const float* logits, std::int64_t vocab) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(vocab));
  std::iota(ids.begin(), ids.end(), 0);
  std::erase_if(ids, [&](std::int32_t id) { return std::isnan(logits[id]); });
  std::ranges::stable_sort(ids, [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  return ids;
}

TEST(TopLogprobs, AreThoseOfASortedLogSoftmax) {
  using Sizes = std::pair<std::int64_t, std::int64_t>;  // of the vocabulary and its number of parts
  for (const auto& [vocab, parts] :
       {Sizes{1, 1}, {5, 1}, {255, 3}, {256, 1}, {4096, 2}, {4097, 1}, {9001, 1}, {9002, 2}, {12000, 4}}) {
    const std::vector<std::int32_t> counts{3, 0, 20, 1};
    const std::vector<float> temperatures{1, 0.7f, 0, 1.6f};
    const RandomStream random(3, "logits");
    std::vector<float> logits(static_cast<std::size_t>(4 * vocab));
    // Few different values, so that many are equal.
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 0.25f * static_cast<float>(random.below(i, 60)) - 7;
    std::vector<float> drawn;
    const Listed listed = list(logits, 4, temperatures, counts, 20, drawn, parts);
    for (std::size_t row = 0; row < counts.size(); ++row) {
      const float* values = logits.data() + static_cast<std::int64_t>(row) * vocab;
      const double temperature = temperatures[row] > 0 ? static_cast<double>(temperatures[row]) : 1.0;
      double sum = 0;
      for (std::int64_t id = 0; id < vocab; ++id) sum += std::exp(static_cast<double>(values[id]) / temperature);
      const std::vector<std::int32_t> order = ranked(values, vocab);
      const auto wanted = std::min<std::size_t>(static_cast<std::size_t>(counts[row]), order.size());
      for (std::size_t i = 0; i < 20; ++i) {
        SCOPED_TRACE(text_of("vocabulary ", vocab, ", sample ", row, ", place ", i));
        const std::int32_t id = listed.ids[row * 20 + i];
        if (i >= wanted) {
          EXPECT_EQ(id, -1);
          EXPECT_EQ(listed.logps[row * 20 + i], 0.0f);
          continue;
        }
        ASSERT_EQ(id, order[i]);
        const double expected = static_cast<double>(values[id]) / temperature - std::log(sum);
        EXPECT_NEAR(listed.logps[row * 20 + i], expected, 2e-6 * std::max(1.0, std::abs(expected)));
      }
      if (wanted > 0) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(listed.logps[row * 20]), std::bit_cast<std::uint32_t>(drawn[row]));
      }
    }
  }
}

TEST(TopLogprobs, LeavesOutWhatIsNoNumberAndListsNoTokenTwice) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> drawn;
  const Listed listed = list({nan, -infinity, 2, -infinity, nan, nan, nan, nan}, 2, {1, 1}, {4, 2}, 4, drawn);
  EXPECT_EQ(listed.ids, (std::vector<std::int32_t>{2, 1, 3, -1, -1, -1, -1, -1}));
}

TEST(TopLogprobs, RowsAfterTheCountAreZero) {
  const Dim samples{3, Count::samples};
  check({.name = "top_logprobs",
         .inputs = {{.name = "logits", .type = {DType::kF32, {samples, 40}}, .scale = 3.0, .keeps_dtype = true},
                    {.name = "parameters",
                     .type = {DType::kF32, {samples, kSampleParameters}},
                     .values = {1, 1, 0, 0, 0.5, 1, 0, 0, 0, 1, 0, 0},
                     .differentiable = false,
                     .keeps_dtype = true},
                    {.name = "counts", .type = {DType::kI32, {samples}}, .values = {2, 1, 3}}},
         .below = {{Count::samples, 2}},
         .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
           return {top_logprobs(in[0], in[1], in[2], {.most = 3}).logps};
         },
         .reference =
             [](std::span<const Values> in, const Counts& counts) {
               Values logps(9);
               for (std::size_t row = 0; row < static_cast<std::size_t>(rows_in_use(counts, Count::samples, 3));
                    ++row) {
                 const double temperature = in[1][4 * row] > 0 ? in[1][4 * row] : 1;
                 Values sorted(in[0].begin() + static_cast<std::ptrdiff_t>(40 * row),
                               in[0].begin() + static_cast<std::ptrdiff_t>(40 * row + 40));
                 std::ranges::sort(sorted, std::greater());
                 double sum = 0;
                 for (const double logit : sorted) sum += std::exp(logit / temperature);
                 for (std::size_t i = 0; i < static_cast<std::size_t>(in[2][row]); ++i) {
                   logps[3 * row + i] = sorted[i] / temperature - std::log(sum);
                 }
               }
               return std::vector<Values>{logps};
             },
         .seeded = {false}});
}

}  // namespace
}  // namespace hone::test
