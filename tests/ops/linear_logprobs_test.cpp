#include "ops/linear_logprobs/linear_logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/parallel.h"
#include "core/random.h"
#include "ops/linear/linear.h"
#include "ops/linear_logprobs/log_softmax.h"
#include "ops/op_case.h"
#include "ops/registry.h"
#include "ops/scale/scale.h"
#include "passes/fusion.h"
#include "passes/gradient.h"
#include "program/executable.h"
#include "support/device.h"

namespace hone::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Distribution {
  double lse = 0, entropy = 0;
  std::size_t argmax = 0;
};

Distribution distribution_of(const Values& scaled) {
  Distribution result;
  result.argmax = static_cast<std::size_t>(std::max_element(scaled.begin(), scaled.end()) - scaled.begin());
  const double max = scaled[result.argmax];
  double sum = 0;
  for (const double z : scaled) sum += std::exp(z - max);
  result.lse = max + std::log(sum);
  for (const double z : scaled) {
    if (z > -kInfinity) result.entropy -= std::exp(z - result.lse) * (z - result.lse);
  }
  return result;
}

// Every fourth row has no target.
OpCase linear_logprobs_case(std::int64_t rows, std::int64_t hidden, std::int64_t vocab, double temperature) {
  Values targets(static_cast<std::size_t>(rows));
  const RandomStream random(4, "targets");
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i] = i % 4 == 2 ? -100.0 : static_cast<double>(random.below(i, static_cast<std::uint64_t>(vocab)));
  }
  return {
      .name = "linear_logprobs_" + std::to_string(rows) + "x" + std::to_string(hidden) + "x" + std::to_string(vocab),
      .inputs = {{.name = "x", .type = {DType::kF32, {{rows, Count::tokens}, hidden}}},
                 {.name = "weight", .type = {DType::kF32, {vocab, hidden}}, .weight = true},
                 {.name = "targets", .type = {DType::kI32, {{rows, Count::tokens}}}, .values = targets}},
      .below = {{Count::tokens, rows / 2 + 1}},
      .build = [=](Program&, std::span<const Tensor> in) -> std::vector<Tensor> {
        const LinearLogprobs result = linear_logprobs(in[0], in[1], in[2], {.temperature = temperature});
        return {result.logp, result.entropy, result.hit};
      },
      .reference =
          [=](std::span<const Values> in, const Counts& counts) {
            const std::int64_t used = rows_in_use(counts, Count::tokens, rows);
            std::vector<Values> outputs(3, Values(static_cast<std::size_t>(rows), 0.0));
            Values scaled(static_cast<std::size_t>(vocab));
            for (std::int64_t row = 0; row < used; ++row) {
              if (in[2][row] < 0) continue;
              for (std::int64_t v = 0; v < vocab; ++v) {
                double logit = 0;
                for (std::int64_t i = 0; i < hidden; ++i) logit += in[0][row * hidden + i] * in[1][v * hidden + i];
                scaled[v] = logit / temperature;
              }
              const auto target = static_cast<std::size_t>(in[2][row]);
              const Distribution distribution = distribution_of(scaled);
              outputs[0][row] = scaled[target] - distribution.lse;
              outputs[1][row] = distribution.entropy;
              outputs[2][row] = distribution.argmax == target ? 1.0 : 0.0;
            }
            return outputs;
          },
      .seeded = {true, false, false},
  };
}

TEST(LinearLogprobs, Cases) {
  check(linear_logprobs_case(1, 8, 5, 1.0));
  check(linear_logprobs_case(9, 24, 3, 0.6));
  check(linear_logprobs_case(7, 4, kVocabChunk, 1.0));
  check(linear_logprobs_case(6, 5, 2 * kVocabChunk + 17, 1.3));
}

TEST(LinearLogprobs, JointCases) {
  for (OpCase each :
       {linear_logprobs_case(1, 8, 5, 1.0), linear_logprobs_case(9, 24, 3, 0.6),
        linear_logprobs_case(7, 4, kVocabChunk, 1.0), linear_logprobs_case(6, 5, 2 * kVocabChunk + 17, 1.3)}) {
    each.name += "_joint";
    each.fused = true;
    check(each);
  }
}

// A hidden size of 16 and a vocabulary of two chunks and a part of a third.
struct HeadSizes {
  std::int64_t hidden = 16;
  std::int64_t vocab = 2 * kVocabChunk + 100;
};

template <class T>
std::vector<T> values_named(std::size_t count, const char* name) {
  const RandomStream random(9, name);
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = T(random.normal(i));
  return values;
}

std::int64_t count_nodes(const Program& program, std::string_view op) {
  return std::count_if(program.nodes().begin(), program.nodes().end(),
                       [&](const Node& node) { return node.op->name() == op; });
}

struct LogprobResult {
  std::vector<float> logp, entropy, hit, lse, dweight;
  std::vector<BFloat16> dx;
};

// Runs the operation on rows [first, first + rows) of a long x with these targets; the gradient of every logp is 1.
LogprobResult run(std::int64_t first, std::int64_t rows, const std::vector<std::int32_t>& targets, double temperature,
                  bool joint = false) {
  const HeadSizes sizes;
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {{rows, Count::tokens}, sizes.hidden}});
  const Tensor weight = program.weight("weight", {DType::kBf16, {sizes.vocab, sizes.hidden}});
  const LinearLogprobs result = linear_logprobs(
      x, weight, program.input("targets", {DType::kI32, {{rows, Count::tokens}}}), {.temperature = temperature});
  program.output("logp", result.logp);
  program.output("entropy", result.entropy);
  program.output("hit", result.hit);
  program.output("lse", result.lse);
  const GradientSeed seeds[] = {{result.logp, program.input("dlogp", result.logp.type())}};
  const Tensor wanted[] = {x};
  program.output("dx", append_gradients(program, seeds, wanted)[0]);
  if (joint) program = fuse(program);
  EXPECT_EQ(count_nodes(program, "linear_logprobs_joint"), joint ? 1 : 0);

  const NamedType weight_type{"weight", {DType::kBf16, {sizes.vocab, sizes.hidden}}};
  const NamedType gradient_type{"weight", {DType::kF32, {sizes.vocab, sizes.hidden}}};
  TensorStore weights(test_device(), {&weight_type, 1});
  TensorStore gradients(test_device(), {&gradient_type, 1});
  const auto elements = static_cast<std::size_t>(sizes.vocab * sizes.hidden);
  const std::vector<BFloat16> values = values_named<BFloat16>(elements, "weight");
  weights.upload("weight", std::as_bytes(std::span(values)));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()),
                        {.weights = &weights, .gradients = &gradients});
  const std::vector<BFloat16> all =
      values_named<BFloat16>(static_cast<std::size_t>((first + rows) * sizes.hidden), "x");
  executable.set<BFloat16>("x", std::span(all).subspan(static_cast<std::size_t>(first * sizes.hidden)));
  const auto count = static_cast<std::size_t>(rows);
  executable.set<std::int32_t>("targets", targets);
  executable.set<float>("dlogp", std::vector<float>(count, 1.0f));
  executable.run();
  LogprobResult out{
      std::vector<float>(count),    std::vector<float>(count),
      std::vector<float>(count),    std::vector<float>(count),
      std::vector<float>(elements), std::vector<BFloat16>(count * static_cast<std::size_t>(sizes.hidden))};
  executable.get<float>("logp", out.logp);
  executable.get<float>("entropy", out.entropy);
  executable.get<float>("hit", out.hit);
  executable.get<float>("lse", out.lse);
  executable.get<BFloat16>("dx", out.dx);
  const std::vector<std::byte> bytes = gradients.download("weight");
  std::memcpy(out.dweight.data(), bytes.data(), bytes.size());
  return out;
}

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

// Compares 700 rows, more than a block, with some of these rows alone, and with a run with another number of threads.
TEST(LinearLogprobs, RowsDoNotDependOnEachOther) {
  const HeadSizes sizes;
  const std::int64_t rows = 700;
  std::vector<std::int32_t> targets(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    targets[row] = row % 3 == 1 ? -1 : static_cast<std::int32_t>(row * 7919 % sizes.vocab);
  }
  const LogprobResult all = run(0, rows, targets, 0.7);
  for (const std::int64_t row : {0, 1, 2, 511, 699}) {
    const LogprobResult one = run(row, 1, {targets[row]}, 0.7);
    ASSERT_EQ(bits(one.logp[0]), bits(all.logp[row])) << row;
    ASSERT_EQ(bits(one.entropy[0]), bits(all.entropy[row])) << row;
    ASSERT_EQ(bits(one.lse[0]), bits(all.lse[row])) << row;
    for (std::int64_t i = 0; i < sizes.hidden; ++i) ASSERT_EQ(one.dx[i].bits, all.dx[row * sizes.hidden + i].bits);
    if (targets[row] < 0) {
      EXPECT_EQ(one.logp[0], 0.0f);
      EXPECT_EQ(one.lse[0], 0.0f);
      EXPECT_TRUE(std::ranges::all_of(one.dweight, [](float each) { return each == 0.0f; }));
    } else {
      EXPECT_LT(one.logp[0], 0.0f);
    }
  }
  const int threads = thread_count();
  set_thread_count(threads == 1 ? 3 : 1);
  const LogprobResult other = run(0, rows, targets, 0.7);
  set_thread_count(threads);
  EXPECT_EQ(all.logp, other.logp);
  EXPECT_EQ(all.entropy, other.entropy);
  EXPECT_EQ(all.dweight, other.dweight);
}

// The outputs are equal bit by bit. Gradients are only close on a GPU, where the joint pass sums other pieces of
// logits.
TEST(LinearLogprobs, BothPassesAsOneGiveWhatTheyGiveApart) {
  const HeadSizes sizes;
  const std::int64_t rows = 700;
  std::vector<std::int32_t> targets(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    targets[row] = row % 5 == 1 ? -1 : static_cast<std::int32_t>(row * 7919 % sizes.vocab);
  }
  const LogprobResult apart = run(0, rows, targets, 0.7);
  const LogprobResult joint = run(0, rows, targets, 0.7, true);
  EXPECT_EQ(joint.logp, apart.logp);
  EXPECT_EQ(joint.entropy, apart.entropy);
  EXPECT_EQ(joint.hit, apart.hit);
  EXPECT_EQ(joint.lse, apart.lse);
  if (test_device().kind() == DeviceKind::kCpu) {
    EXPECT_EQ(joint.dweight, apart.dweight);
    for (std::size_t i = 0; i < apart.dx.size(); ++i) ASSERT_EQ(joint.dx[i].bits, apart.dx[i].bits) << i;
    return;
  }
  for (std::size_t i = 0; i < apart.dweight.size(); ++i) ASSERT_NEAR(joint.dweight[i], apart.dweight[i], 1e-4) << i;
  for (std::size_t i = 0; i < apart.dx.size(); ++i) {
    ASSERT_NEAR(float(joint.dx[i]), float(apart.dx[i]), 1e-2 * std::abs(float(apart.dx[i])) + 1e-4) << i;
  }
}

// The joint pass needs dlogp as an input, so that a dlogp that depends on logp must not be fused.
TEST(LinearLogprobs, PassesStayApartWhereTheGradientDependsOnLogp) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {4, 8}});
  const Tensor targets = program.input("targets", {DType::kI32, {4}});
  const Tensor logp = linear_logprobs(x, program.weight("w", {DType::kF32, {10, 8}}), targets).logp;
  const GradientSeed seeds[] = {{logp, scale(logp, 2.0)}};
  append_gradients(program, seeds);
  EXPECT_EQ(count_nodes(fuse(program), "linear_logprobs_joint"), 0);
}

// The sampler computes whole rows of logits in f32 and then log_softmax; linear_logprobs must give the same bits.
TEST(LinearLogprobs, EqualsTheLogSoftmaxOfTheLogits) {
  if (test_device().kind() != DeviceKind::kCpu) GTEST_SKIP() << "log_softmax is the host's";
  const HeadSizes sizes;
  const std::int64_t rows = 40;
  std::vector<std::int32_t> targets(rows);
  for (std::int64_t row = 0; row < rows; ++row) targets[row] = static_cast<std::int32_t>(row * 7919 % sizes.vocab);
  const LogprobResult fused = run(0, rows, targets, 0.7);

  Program program;
  const Tensor x = program.input("x", {DType::kBf16, {rows, sizes.hidden}});
  const Tensor weight = program.input("weight", {DType::kBf16, {sizes.vocab, sizes.hidden}});
  program.output("logits", linear(x, weight, {}, {.f32_output = true}));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  executable.set<BFloat16>("x", values_named<BFloat16>(static_cast<std::size_t>(rows * sizes.hidden), "x"));
  executable.set<BFloat16>("weight",
                           values_named<BFloat16>(static_cast<std::size_t>(sizes.vocab * sizes.hidden), "weight"));
  executable.run();
  std::vector<float> logits(static_cast<std::size_t>(rows * sizes.vocab));
  executable.get<float>("logits", logits);
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* values = logits.data() + row * sizes.vocab;
    const LogSoftmax<float> softmax = log_softmax(values, sizes.vocab, 0.7f);
    ASSERT_EQ(bits(log_probability(values[targets[row]], 0.7f, softmax.lse())), bits(fused.logp[row])) << row;
    ASSERT_EQ(bits(softmax.entropy()), bits(fused.entropy[row])) << row;
    ASSERT_EQ(softmax.argmax() == targets[row], fused.hit[row] == 1.0f) << row;
  }
}

// The largest scratch memory of the head and its backward pass.
std::size_t peak_workspace(std::int64_t rows, std::int64_t vocab) {
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {{rows, Count::tokens}, 64}});
  const Tensor targets = program.input("targets", {DType::kI32, {{rows, Count::tokens}}});
  const Tensor logp = linear_logprobs(x, program.weight("w", {DType::kF32, {vocab, 64}}), targets).logp;
  const GradientSeed seeds[] = {{logp, program.input("dlogp", logp.type())}};
  append_gradients(program, seeds);
  return plan_memory(program, DeviceKind::kCpu).peak_workspace;
}

// The scratch memory depends on the number of threads, and on the number of rows by one number each, not by their
// logits.
TEST(LinearLogprobs, LogitsAreNeverWhole) {
  register_operations();
  const std::int64_t few = 1 << 13;
  const std::int64_t many = 1 << 16;
  const std::int64_t vocab = 1 << 13;
  EXPECT_EQ(peak_workspace(many, vocab) - peak_workspace(few, vocab), sizeof(float) * (many - few));
}

TEST(LinearLogprobs, NamesWhatDoesNotFit) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {4, 8}});
  const Tensor weight = program.weight("w", {DType::kF32, {10, 8}});
  const Tensor targets = program.input("targets", {DType::kI32, {4}});
  EXPECT_THROW((void)linear_logprobs(x, weight, program.input("short", {DType::kI32, {3}})), Error);
  EXPECT_THROW((void)linear_logprobs(x, program.weight("narrow", {DType::kF32, {10, 7}}), targets), Error);
  EXPECT_THROW((void)linear_logprobs(x, weight, targets, {.temperature = 0.0}), Error);
}

LogSoftmax<float> softmax_of(const Values& values) {
  std::vector<float> logits(values.begin(), values.end());
  return log_softmax(logits.data(), static_cast<std::int64_t>(logits.size()), 1.0f);
}

void expect_follows(const Values& values) {
  const LogSoftmax<float> softmax = softmax_of(values);
  const Distribution expected = distribution_of(values);
  EXPECT_NEAR(softmax.lse(), expected.lse, 1e-6 * std::max(1.0, std::abs(expected.lse)));
  EXPECT_NEAR(softmax.entropy(), expected.entropy, 1e-5);
  EXPECT_EQ(softmax.argmax(), static_cast<std::int64_t>(expected.argmax));
}

TEST(LogSoftmax, FollowsTheDefinition) {
  Values values(3 * kVocabChunk + 5);
  const RandomStream random(2, "logits");
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 4.0f * random.normal(i);
  expect_follows(values);
  Values rising = values;
  for (std::size_t i = 0; i < rising.size(); ++i)
    rising[i] = static_cast<float>(rising[i] + 1e-2 * static_cast<double>(i));
  expect_follows(rising);
  std::ranges::reverse(rising);
  expect_follows(rising);
  for (double& each : values) each += 1024.0;
  for (double& each : values) each = static_cast<float>(each);
  expect_follows(values);
}

TEST(LogSoftmax, LeavesOutWhatIsImpossible) {
  Values values(2 * kVocabChunk + 40, -kInfinity);
  values[5000] = 1.5;
  values[2 * kVocabChunk + 3] = 0.5;
  expect_follows(values);
  expect_follows({-kInfinity, 3.0, -kInfinity});
  EXPECT_EQ(softmax_of({-kInfinity, 3.0}).entropy(), 0.0f);
}

TEST(LogSoftmax, TiesGoToTheLowestId) {
  Values values(2 * kVocabChunk, 0.25);
  EXPECT_EQ(softmax_of(values).argmax(), 0);
  values[17] = values[4095] = values[6000] = 2.0;
  EXPECT_EQ(softmax_of(values).argmax(), 17);
}

TEST(LogSoftmax, NaNIsNotHidden) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double first : {0.0, -kInfinity}) {
    Values values(2 * kVocabChunk, first);
    values[2] = nan;
    values[kVocabChunk + 9] = 7.0;
    EXPECT_TRUE(std::isnan(softmax_of(values).lse()));
    EXPECT_TRUE(std::isnan(softmax_of(values).entropy()));
    EXPECT_EQ(softmax_of(values).argmax(), kVocabChunk + 9);
  }
  EXPECT_TRUE(std::isnan(softmax_of({0.0, kInfinity}).lse()));
  EXPECT_TRUE(std::isnan(softmax_of({-kInfinity, -kInfinity}).entropy()));
}

}  // namespace
}  // namespace hone::test
