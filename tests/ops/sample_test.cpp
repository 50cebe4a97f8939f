#include "ops/sample/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "core/parallel.h"
#include "core/random.h"
#include "ops/linear_logprobs/parted_softmax.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kSpread = 3000;  // tokens from one that may be drawn to the next, in tests of several chunks

struct Request {
  float temperature = 1, top_p = 1, min_p = 0, top_k = 0;
  std::int64_t seed = 0, position = 0;
};

struct Drawn {
  std::vector<std::int32_t> tokens;
  std::vector<float> logps;
};

// Samples a token for each request. Row i of the logits belongs to request i; a single row belongs to all. `penalized`:
// logits to draw from instead, optional, for the requests of which penalized_rows is not 0 (empty: all). parts: of the
// vocabulary.
Drawn draw(const std::vector<std::vector<float>>& logits, const std::vector<Request>& requests,
           const std::vector<std::vector<float>>& penalized = {}, std::vector<std::int32_t> penalized_rows = {},
           std::int64_t parts = 1) {
  register_operations();
  const auto samples = static_cast<std::int64_t>(requests.size());
  const auto vocab = static_cast<std::int64_t>(logits[0].size());
  Program program;
  const Dim rows{samples, Count::samples};
  const Sampled sampled =
      sample(program.input("logits", {DType::kF32, {rows, vocab}}),
             program.input("parameters", {DType::kF32, {rows, kSampleParameters}}),
             program.input("keys", {DType::kI64, {rows, 2}}),
             penalized.empty() ? Tensor() : program.input("penalized", {DType::kF32, {rows, vocab}}),
             penalized.empty() ? Tensor() : program.input("penalized_rows", {DType::kI32, {rows}}), {.parts = parts});
  program.output("token", sampled.token);
  program.output("logp", sampled.logp);
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  std::vector<float> all;
  std::vector<float> parameters;
  std::vector<std::int64_t> keys;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::vector<float>& row = logits[logits.size() == 1 ? 0 : i];
    all.insert(all.end(), row.begin(), row.end());
    const Request& request = requests[i];
    parameters.insert(parameters.end(), {request.temperature, request.top_p, request.min_p, request.top_k});
    keys.insert(keys.end(), {request.seed, request.position});
  }
  executable.set<float>("logits", all);
  executable.set<float>("parameters", parameters);
  executable.set<std::int64_t>("keys", keys);
  std::vector<float> drawn_from;
  for (const std::vector<float>& row : penalized) drawn_from.insert(drawn_from.end(), row.begin(), row.end());
  if (penalized_rows.empty()) penalized_rows.assign(requests.size(), 1);
  if (!penalized.empty()) {
    executable.set<float>("penalized", drawn_from);
    executable.set<std::int32_t>("penalized_rows", penalized_rows);
  }
  executable.run();
  Drawn drawn{std::vector<std::int32_t>(requests.size()), std::vector<float>(requests.size())};
  executable.get<std::int32_t>("token", drawn.tokens);
  executable.get<float>("logp", drawn.logps);
  return drawn;
}

// Reference: the probabilities after filtering, by their definition.
Values filtered_probabilities(const std::vector<float>& logits, const Request& request) {
  Values p(logits.size());
  const double max = *std::max_element(logits.begin(), logits.end());
  for (std::size_t v = 0; v < p.size(); ++v) p[v] = std::exp((logits[v] - max) / request.temperature);
  for (double& each : p) each = each >= request.min_p ? each : 0;
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
  const auto k = request.top_k > 0 ? static_cast<std::size_t>(request.top_k) : p.size();
  for (std::size_t i = k; i < p.size(); ++i) p[order[i]] = 0;
  const double mass = std::accumulate(p.begin(), p.end(), 0.0);
  double before = 0;
  for (const std::size_t v : order) {
    const double own = p[v];
    if (before > 0 && before >= static_cast<double>(request.top_p) * mass) p[v] = 0;
    before += own;
  }
  const double left = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& each : p) each /= left;
  return p;
}

// Checks 20,000 draws: no token that is filtered out, and each other token as often as its probability within five
// standard deviations. `kept`: the number of tokens that are not filtered out.
void expect_distribution(const std::vector<float>& logits, Request request, std::size_t kept) {
  const Values expected = filtered_probabilities(logits, request);
  ASSERT_EQ(static_cast<std::size_t>(std::ranges::count_if(expected, [](double p) { return p > 0; })), kept);
  constexpr int kDraws = 20000;
  std::vector<Request> requests;
  for (int i = 0; i < kDraws; ++i) {
    request.position = i;
    requests.push_back(request);
  }
  std::map<std::int32_t, int> counts;
  for (const std::int32_t token : draw({logits}, requests).tokens) ++counts[token];
  for (std::size_t v = 0; v < expected.size(); ++v) {
    const double mean = kDraws * expected[v];
    const double deviation = std::sqrt(mean * (1 - expected[v]));
    EXPECT_NEAR(counts[static_cast<std::int32_t>(v)], mean, 5 * deviation) << "token " << v;
  }
}

const std::vector<float> kLogits{0.5f, 2.0f, -1.0f, 1.0f, 1.0f, -kInfinity, 0.0f, 1.7f};

TEST(Sample, DrawsFromWhatIsLeft) {
  expect_distribution(kLogits, {}, 7);
  expect_distribution(kLogits, {.temperature = 0.5f, .seed = 1}, 7);
  expect_distribution(kLogits, {.top_k = 3}, 3);  // of the two tokens with logit 1, the lower id is kept
  expect_distribution(kLogits, {.top_k = 1}, 1);
  expect_distribution(kLogits, {.top_k = 100}, 7);
  expect_distribution(kLogits, {.top_p = 0.6f}, 2);
  expect_distribution(kLogits, {.top_p = 0.7f}, 3);
  expect_distribution(kLogits, {.top_p = 1e-6f}, 1);
  expect_distribution(kLogits, {.min_p = 0.3f}, 4);
  expect_distribution(kLogits, {.min_p = 1.0f}, 1);
  // In the order of the filters: min_p keeps six tokens, top_k four of them, top_p three. top_p first would leave four.
  expect_distribution(kLogits, {.top_p = 0.85f, .min_p = 0.1f, .top_k = 4}, 3);
  expect_distribution(kLogits, {.top_p = 0.85f}, 4);
}

TEST(Sample, GreedyTakesTheLowestOfTheLargest) {
  std::vector<float> logits(10000, 0.0f);
  logits[9000] = logits[4200] = logits[5000] = 3.0f;
  const Drawn drawn = draw({logits}, {{.temperature = 0}, {.temperature = 0, .seed = 9, .position = 4}});
  EXPECT_EQ(drawn.tokens, (std::vector<std::int32_t>{4200, 4200}));
  EXPECT_NEAR(drawn.logps[0], 3.0 - std::log(9997 + 3 * std::exp(3.0)), 1e-5);
}

std::vector<float> normal_logits(std::size_t vocab, std::uint64_t seed) {
  const RandomStream random(seed, "logits");
  std::vector<float> logits(vocab);
  for (std::size_t i = 0; i < vocab; ++i) logits[i] = 3.0f * random.normal(i);
  return logits;
}

// A request draws the same token alone, among others and with another number of threads, and its log-probability is
// that of log_softmax before filtering.
TEST(Sample, DependsOnItsOwnRequestAlone) {
  const std::size_t vocab = 2 * static_cast<std::size_t>(kVocabChunk) + 11;
  std::vector<std::vector<float>> logits;
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) {
    logits.push_back(normal_logits(vocab, static_cast<std::uint64_t>(i / 4)));
    requests.push_back({.temperature = 0.8f,
                        .top_p = i % 3 == 0 ? 0.9f : 1.0f,
                        .min_p = i % 4 == 1 ? 0.02f : 0.0f,
                        .top_k = i % 5 == 2 ? 40.0f : 0.0f,
                        .seed = 77 + i,
                        .position = (std::int64_t{1} << 33) + i});
  }
  const Drawn all = draw(logits, requests);
  EXPECT_GT(std::set<std::int32_t>(all.tokens.begin(), all.tokens.end()).size(), 12u);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Drawn one = draw({logits[i]}, {requests[i]});
    EXPECT_EQ(one.tokens[0], all.tokens[i]);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(one.logps[0]), std::bit_cast<std::uint32_t>(all.logps[i]));
    const auto softmax = log_softmax(logits[i].data(), static_cast<std::int64_t>(vocab), 0.8f);
    const float expected = log_probability(logits[i][static_cast<std::size_t>(all.tokens[i])], 0.8f, softmax.lse());
    if (test_device().kind() == DeviceKind::kCpu) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(expected), std::bit_cast<std::uint32_t>(all.logps[i]));
    } else {
      EXPECT_NEAR(expected, all.logps[i], 1e-5f);
    }
  }
  const int threads = thread_count();
  set_thread_count(threads == 1 ? 3 : 1);
  EXPECT_EQ(draw(logits, requests).tokens, all.tokens);
  set_thread_count(threads);
}

// Tokens are those drawn from the penalised logits; log-probabilities are those of the unpenalised ones.
TEST(Sample, DrawsFromPenalizedLogits) {
  const std::size_t vocab = static_cast<std::size_t>(kVocabChunk) + 301;
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<float>> penalized;
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    logits.push_back(normal_logits(vocab, static_cast<std::uint64_t>(i)));
    penalized.push_back(logits.back());
    for (std::size_t id = static_cast<std::size_t>(i); id < vocab; id += 2) {
      penalized.back()[id] *= penalized.back()[id] > 0 ? 0.3f : 2.0f;
    }
    requests.push_back({.temperature = i % 3 == 0 ? 0.0f : 0.8f,
                        .top_p = i % 4 == 1 ? 0.9f : 1.0f,
                        .top_k = i % 5 == 2 ? 40.0f : 0.0f,
                        .seed = 3 + i,
                        .position = i});
  }
  const Drawn drawn = draw(logits, requests, penalized);
  EXPECT_EQ(drawn.tokens, draw(penalized, requests).tokens);
  EXPECT_NE(drawn.tokens, draw(logits, requests).tokens);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const float temperature = requests[i].temperature == 0 ? 1.0f : requests[i].temperature;
    const auto softmax = log_softmax(logits[i].data(), static_cast<std::int64_t>(vocab), temperature);
    const float expected =
        log_probability(logits[i][static_cast<std::size_t>(drawn.tokens[i])], temperature, softmax.lse());
    EXPECT_NEAR(expected, drawn.logps[i], test_device().kind() == DeviceKind::kCpu ? 0.0 : 1e-5) << i;
  }
  // With penalised logits equal to the logits, the bits are those of a run without.
  const Drawn same = draw(logits, requests, logits);
  const Drawn without = draw(logits, requests);
  EXPECT_EQ(same.tokens, without.tokens);
  EXPECT_EQ(same.logps, without.logps);
  // Rows that are not penalised have the bits of a run without, whatever is in their place.
  std::vector<std::vector<float>> some = penalized;
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < some.size(); ++i) {
    rows.push_back(i % 2 == 0 ? 1 : 0);
    if (rows[i] == 0) some[i].assign(vocab, std::nanf(""));
  }
  const Drawn mixed = draw(logits, requests, some, rows);
  for (std::size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(mixed.tokens[i], (rows[i] == 0 ? without : drawn).tokens[i]) << i;
    EXPECT_EQ(mixed.logps[i], (rows[i] == 0 ? without : drawn).logps[i]) << i;
  }
}

// The same logits with tokens of no probability between them, so that they are in several chunks.
std::vector<float> spread(const std::vector<float>& logits) {
  std::vector<float> far(logits.size() * kSpread, -kInfinity);
  for (std::size_t i = 0; i < logits.size(); ++i) far[i * kSpread] = logits[i];
  return far;
}

TEST(Sample, ChoosesTheSameFromSeveralChunks) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> kinds{kLogits,
                                              {nan, 1.0f, 0.0f, 2.0f},
                                              {nan, nan, nan, nan},
                                              {0.0f, kInfinity, 0.0f, 1.0f},
                                              {-kInfinity, -kInfinity, -kInfinity, -kInfinity},
                                              {-kInfinity, -kInfinity, 5.0f, -kInfinity}};
  for (const std::vector<float>& logits : kinds) {
    std::vector<Request> requests;
    for (int i = 0; i < 60; ++i) {
      requests.push_back({.temperature = i % 5 == 0 ? 0.0f : 0.7f,
                          .top_p = i % 4 == 1 ? 0.8f : 1.0f,
                          .min_p = i % 3 == 1 ? 0.1f : 0.0f,
                          .top_k = i % 7 == 2 ? 3.0f : 0.0f,
                          .seed = i,
                          .position = 2 * i});
    }
    const Drawn near = draw({logits}, requests);
    const Drawn far = draw({spread(logits)}, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (std::isnan(near.logps[i])) {
        EXPECT_TRUE(std::isnan(far.logps[i])) << i;
        EXPECT_GE(far.tokens[i], 0);
        EXPECT_LT(far.tokens[i], static_cast<std::int32_t>(logits.size() * kSpread));
        continue;
      }
      EXPECT_EQ(far.tokens[i], near.tokens[i] * static_cast<std::int32_t>(kSpread)) << i;
      EXPECT_NEAR(far.logps[i], near.logps[i], 1e-5) << i;
    }
  }
}

TEST(Sample, PartsOfTheVocabularyChangeNoTokenAndMergeTheirStatistics) {
  const std::size_t vocab = 2 * (static_cast<std::size_t>(kVocabChunk) + 300);
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<float>> penalized;
  std::vector<Request> requests;
  std::vector<std::int32_t> rows;
  for (int i = 0; i < 16; ++i) {
    logits.push_back(normal_logits(vocab, static_cast<std::uint64_t>(i)));
    penalized.push_back(normal_logits(vocab, static_cast<std::uint64_t>(100 + i)));
    rows.push_back(i % 2);
    requests.push_back(
        {.temperature = i % 3 == 0 ? 0.0f : 0.8f, .top_p = i % 4 == 1 ? 0.9f : 1.0f, .seed = 3 + i, .position = i});
  }
  const Drawn whole = draw(logits, requests, penalized, rows);
  for (const std::int64_t parts : {2, 8}) {
    const Drawn drawn = draw(logits, requests, penalized, rows, parts);
    EXPECT_EQ(drawn.tokens, whole.tokens);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const float temperature = requests[i].temperature == 0 ? 1.0f : requests[i].temperature;
      const PartedSoftmax<float> softmax(logits[i].data(), static_cast<std::int64_t>(vocab), temperature, parts);
      EXPECT_NEAR(drawn.logps[i], softmax.logp(drawn.tokens[i]), test_device().kind() == DeviceKind::kCpu ? 0.0 : 1e-5)
          << i;
      EXPECT_NEAR(drawn.logps[i], whole.logps[i], 1e-5) << i;
    }
    EXPECT_NE(drawn.logps, whole.logps);
  }
  EXPECT_TRUE(std::isnan(draw({{0.0f, kInfinity, 0.0f, 1.0f}}, {{}}, {}, {}, 2).logps[0]));
}

TEST(Sample, SurvivesAnyLogits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Request hot{.top_p = 0.9f, .top_k = 2};
  const Drawn drawn = draw({{nan, 1.0f, 0.0f},
                            {nan, nan, nan},
                            {0.0f, kInfinity, 0.0f},
                            {-kInfinity, -kInfinity, -kInfinity},
                            {-kInfinity, -kInfinity, 5.0f}},
                           {hot, hot, hot, hot, hot});
  for (const std::int32_t token : drawn.tokens) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 3);
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(drawn.logps[i])) << i;
  EXPECT_EQ(drawn.tokens[4], 2);
  EXPECT_EQ(drawn.logps[4], 0.0f);
}

TEST(Sample, CountsBelowCapacity) {
  const std::int64_t vocab = 300;
  check({
      .name = "sample",
      .inputs =
          {{.name = "logits", .type = {DType::kF32, {{6, Count::samples}, vocab}}, .scale = 4.0, .keeps_dtype = true},
           {.name = "parameters",
            .type = {DType::kF32, {{6, Count::samples}, kSampleParameters}},
            .values = {0, 1, 0, 0, 0, 1, 0, 0, 0.5, 1, 0, 1, 1, 0.001, 0, 0, 2, 1, 1, 0, 0, 1, 0, 0},
            .differentiable = false,
            .keeps_dtype = true},
           {.name = "keys", .type = {DType::kI64, {{6, Count::samples}, 2}}}},
      .below = {{Count::samples, 4}},
      .build = [](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const Sampled sampled = sample(in[0], in[1], in[2]);
        return {sampled.token, sampled.logp};
      },
      // Each of these keeps only the most probable token.
      .reference =
          [=](std::span<const Values> in, const Counts&) {
            std::vector<Values> outputs(2, Values(6));
            for (std::int64_t row = 0; row < 6; ++row) {
              const double* logits = in[0].data() + row * vocab;
              const double temperature = in[1][row * kSampleParameters] == 0 ? 1 : in[1][row * kSampleParameters];
              const auto token = std::max_element(logits, logits + vocab) - logits;
              double sum = 0;
              for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp((logits[v] - logits[token]) / temperature);
              outputs[0][row] = static_cast<double>(token);
              outputs[1][row] = -std::log(sum);
            }
            return outputs;
          },
      .seeded = {false, false},
  });
}

}  // namespace
}  // namespace hone::test
