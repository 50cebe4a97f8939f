// Losses of GRPO, their gradients and their metrics, compared with those of TRL computed by torch in float64
// (make_grpo.py), for several splits into micro-batches.
#include <gtest/gtest.h>

#include <cmath>

#include "core/json_value.h"
#include "ops/fill/fill.h"
#include "ops/policy_term/policy_term.h"
#include "ops/registry.h"
#include "ops/weighted_sum/weighted_sum.h"
#include "passes/gradient.h"
#include "program/executable.h"
#include "rl/grpo_metrics.h"
#include "rl/importance.h"
#include "support/device.h"
#include "support/paths.h"

namespace hone::test {
namespace {

// The samples of the fixture; all belong to one optimizer step.
struct Step {
  std::vector<PolicySample> samples;
  std::vector<std::vector<double>> logps;
  std::vector<std::vector<double>> entropies;
  std::vector<std::vector<float>> sampler_logps;
};

Step read_step(const Json& json) {
  Step step;
  step.logps = json.at("logps").get<std::vector<std::vector<double>>>();
  step.entropies = json.at("entropies").get<std::vector<std::vector<double>>>();
  step.sampler_logps = json.at("sampler_logps").get<std::vector<std::vector<float>>>();
  for (std::size_t s = 0; s < step.logps.size(); ++s) {
    PolicySample sample;
    sample.prompt.assign(1 + s % 3, 1);
    sample.completion.assign(step.logps[s].size(), 2);
    sample.logps = json.at("old_logps")[s].get<std::vector<float>>();
    sample.ref_logps = json.at("ref_logps")[s].get<std::vector<float>>();
    sample.truncated = json.at("truncated")[s].get<bool>();
    sample.advantage = json.at("advantages")[s].get<double>();
    step.samples.push_back(std::move(sample));
  }
  return step;
}

GrpoLoss loss_of(const std::string& name) {
  const auto names = names_of<GrpoLoss>();
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw std::invalid_argument(name);
  return static_cast<GrpoLoss>(found - names.begin());
}

// Returns the importance correction of a case, or nullopt if it has none.
std::optional<ImportanceOptions> importance_of(const Json& json) {
  if (!json.contains("importance")) return std::nullopt;
  ImportanceOptions options;
  const auto names = names_of<ImportanceMode>();
  const auto found = std::ranges::find(names, json.at("importance").get<std::string>());
  options.mode = static_cast<ImportanceMode>(found - names.begin());
  options.most = json.at("cap").get<double>();
  if (json.contains("clip_min")) options.least = json.at("clip_min").get<double>();
  return options;
}

// Sets the importance ratios of the samples and returns the metrics.
NamedValues correct(Step& step, const ImportanceOptions& options, bool masked) {
  ImportanceMetrics metrics(options);
  for (std::size_t s = 0; s < step.samples.size(); ++s) {
    PolicySample& sample = step.samples[s];
    sample.importance = importance_ratios(sample.logps, step.sampler_logps[s], options);
    metrics.add(sample.logps, step.sampler_logps[s], sample.importance, masked && sample.truncated);
  }
  return metrics.values();
}

GrpoOptions options_of(const Json& json) {
  GrpoOptions options;
  options.loss_type = loss_of(json.at("loss_type").get<std::string>());
  options.beta = json.at("beta").get<double>();
  options.num_iterations = json.at("num_iterations").get<std::int64_t>();
  options.epsilon = json.at("epsilon").get<double>();
  if (json.contains("epsilon_high")) options.epsilon_high = json.at("epsilon_high").get<double>();
  if (json.contains("delta")) options.delta = json.at("delta").get<double>();
  if (json.contains("level")) options.importance_sampling_level = ImportanceLevel::kSequence;
  if (json.contains("top_entropy_quantile")) {
    options.top_entropy_quantile = json.at("top_entropy_quantile").get<double>();
  }
  options.mask_truncated_completions = json.at("masked").get<bool>();
  options.max_completion_length = json.at("max_completion_length").get<std::int64_t>();
  return options;
}

struct Result {
  double loss = 0;
  std::vector<std::vector<double>> gradient;  // [samples][completion tokens]
  NamedValues metrics;
};

// Returns one value per row of the batch: the values of completion tokens on the rows that predict them, otherwise 0.
template <class T>
std::vector<T> on_rows(const PolicyBatch& batch, std::span<const PolicySample> samples,
                       std::span<const std::vector<double>> values) {
  std::vector<T> rows(batch.batch.tokens.size());
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const std::size_t first = static_cast<std::size_t>(batch.batch.cu_seqlens[s]) + samples[s].prompt.size() - 1;
    for (std::size_t i = 0; i < values[s].size(); ++i) rows[first + i] = static_cast<T>(values[s][i]);
  }
  return rows;
}

template <class T>
std::vector<T> as(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// Runs one micro-batch and adds its loss, gradient and metrics.
template <class T>
void run_micro_batch(const PolicyLossOptions& loss, const PolicyBatch& batch, std::span<const PolicySample> samples,
                     const std::vector<T>& logps, const std::vector<float>& entropies, Result& result,
                     PolicyMetrics& metrics) {
  Program program;
  const Type type{DTypeOf<T>::value, {{static_cast<std::int64_t>(logps.size()), Count::tokens}}};
  const Type ids{DType::kI32, type.shape};
  const Type bounds{DType::kI32, {static_cast<std::int64_t>(batch.batch.cu_seqlens.size())}};
  const Tensor logp = program.input("logp", type);
  const Tensor old_logp = loss.old_logps ? program.input("old_logp", type) : Tensor();
  const Tensor ref_logp = loss.beta != 0 ? program.input("ref_logp", type) : Tensor();
  const PolicyTerms terms = policy_terms({.logp = logp,
                                          .old_logp = old_logp,
                                          .ref_logp = ref_logp,
                                          .advantages = program.input("advantages", type),
                                          .targets = program.input("targets", ids),
                                          .cu_seqlens = program.input("cu_seqlens", bounds)},
                                         loss);
  const Tensor sum = weighted_sum(terms.term, program.input("loss_weights", type));
  const GradientSeed seeds[] = {{sum, fill(program, sum.type(), 1.0)}};
  program.output("loss", sum);
  if (terms.kl) program.output("kl", terms.kl);
  program.output("gradient", append_gradients(program, seeds, {&logp, 1})[0]);
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  executable.set<T>("logp", logps);
  if (old_logp) executable.set<T>("old_logp", as<T>(batch.old_logps));
  if (ref_logp) executable.set<T>("ref_logp", as<T>(batch.ref_logps));
  executable.set<T>("advantages", as<T>(batch.loss_advantages));
  executable.set<std::int32_t>("targets", batch.batch.targets);
  executable.set<std::int32_t>("cu_seqlens", batch.batch.cu_seqlens);
  executable.set<T>("loss_weights", as<T>(batch.weights));
  executable.run();
  T value = 0;
  std::vector<T> kl(loss.beta != 0 ? logps.size() : 0);
  std::vector<T> gradient(logps.size());
  executable.get<T>("loss", {&value, 1});
  if (loss.beta != 0) executable.get<T>("kl", kl);
  executable.get<T>("gradient", gradient);
  result.loss += static_cast<double>(value);
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const std::size_t first = static_cast<std::size_t>(batch.batch.cu_seqlens[s]) + samples[s].prompt.size() - 1;
    const auto begin = gradient.begin() + static_cast<std::ptrdiff_t>(first);
    result.gradient.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(samples[s].completion.size()));
  }
  const std::vector<float> kls(kl.begin(), kl.end());
  metrics.add(batch, std::vector<float>(logps.begin(), logps.end()), entropies, kls, true);
}

template <class T>
Result run_step(const GrpoOptions& options, const Step& step, std::size_t micro_batch) {
  register_operations();
  const PolicyLossOptions loss = policy_loss_options(options, {.steps_per_generation = 1});
  EXPECT_EQ(loss.old_logps, options.num_iterations > 1);
  LossNormaliser normaliser{.loss = options.loss_type,
                            .max_completion_length = options.max_completion_length,
                            .mask_truncated = options.mask_truncated_completions};
  normaliser.count(step.samples);
  std::vector<float> unmasked;
  for (std::size_t s = 0; s < step.samples.size(); ++s) {
    if (normaliser.weight(step.samples[s]) == 0) continue;
    unmasked.insert(unmasked.end(), step.entropies[s].begin(), step.entropies[s].end());
  }
  const double threshold = entropy_threshold(unmasked, options.top_entropy_quantile);
  PolicyMetrics metrics(loss);
  Result result;
  for (std::size_t first = 0; first < step.samples.size(); first += micro_batch) {
    const auto samples = std::span(step.samples).subspan(first, micro_batch);
    PolicyBatch batch = make_policy_batch(samples);
    set_loss_weights(batch, samples, normaliser);
    const auto logps = on_rows<T>(batch, samples, std::span(step.logps).subspan(first));
    const auto entropies = on_rows<float>(batch, samples, std::span(step.entropies).subspan(first));
    mask_low_entropy(batch, entropies, threshold);
    run_micro_batch<T>(loss, batch, samples, logps, entropies, result, metrics);
  }
  result.metrics = metrics.values();
  return result;
}

void expect_reference(const Result& result, const Json& wanted, double tolerance, const std::string& where) {
  const double loss = wanted.at("loss").get<double>();
  EXPECT_NEAR(result.loss, loss, tolerance * std::abs(loss)) << where;
  const auto gradient = wanted.at("gradient").get<std::vector<std::vector<double>>>();
  double largest = 0;
  for (const auto& of_sample : gradient) {
    for (const double value : of_sample) largest = std::max(largest, std::abs(value));
  }
  ASSERT_GT(largest, 0) << where;
  ASSERT_EQ(result.gradient.size(), gradient.size()) << where;
  for (std::size_t s = 0; s < gradient.size(); ++s) {
    ASSERT_EQ(result.gradient[s].size(), gradient[s].size()) << where;
    for (std::size_t i = 0; i < gradient[s].size(); ++i) {
      ASSERT_NEAR(result.gradient[s][i], gradient[s][i], tolerance * largest)
          << where << ", completion " << s << ", token " << i;
    }
  }
}

TEST(PolicyLoss, LossesAndGradientsAreThoseOfTheReferenceInAnySplit) {
  const Json file = read_json(fixture("rl/grpo.json")).at("losses");
  ASSERT_EQ(file.at("cases").size(), 66u);
  for (const Json& wanted : file.at("cases")) {
    const GrpoOptions options = options_of(wanted.at("options"));
    Step step = read_step(file);
    ASSERT_EQ(step.samples.size(), 8u);
    const auto importance = importance_of(wanted.at("options"));
    if (importance) (void)correct(step, *importance, options.mask_truncated_completions);
    for (const std::size_t micro_batch : {1, 2, 4, 8}) {
      const std::string where = wanted.at("options").dump() + ", micro-batches of " + std::to_string(micro_batch);
      expect_reference(run_step<double>(options, step, micro_batch), wanted, 1e-6, where + ", f64");
      expect_reference(run_step<float>(options, step, micro_batch), wanted, 1e-5, where + ", f32");
    }
  }
}

TEST(PolicyLoss, MetricsAreThoseOfTheReference) {
  const Json file = read_json(fixture("rl/grpo.json")).at("losses");
  const Step step = read_step(file);
  for (const Json& wanted : file.at("cases")) {
    const GrpoOptions options = options_of(wanted.at("options"));
    for (const auto& [micro_batch, metrics] : wanted.at("metrics").items()) {
      const Result result = run_step<double>(options, step, std::stoul(micro_batch));
      std::size_t found = 0;
      for (const auto& [name, value] : result.metrics) {
        if (!metrics.contains(name)) continue;
        ++found;
        EXPECT_NEAR(value, metrics.at(name).get<double>(), 1e-6)
            << name << ", " << wanted.at("options").dump() << ", micro-batches of " << micro_batch;
      }
      EXPECT_EQ(found, metrics.size()) << wanted.at("options").dump();
    }
  }
}

TEST(PolicyLoss, MetricsOfImportanceAreThoseOfTheReference) {
  const Json file = read_json(fixture("rl/grpo.json")).at("losses");
  std::size_t cases = 0;
  for (const Json& wanted : file.at("cases")) {
    const auto importance = importance_of(wanted.at("options"));
    if (!importance) continue;
    ++cases;
    Step step = read_step(file);
    const NamedValues metrics = correct(step, *importance, wanted.at("options").at("masked").get<bool>());
    ASSERT_EQ(metrics.size(), wanted.at("importance").size());
    for (const auto& [name, value] : metrics) {
      EXPECT_NEAR(value, wanted.at("importance").at(name).get<double>(), 1e-6)
          << name << ", " << wanted.at("options").dump();
    }
  }
  EXPECT_EQ(cases, 20u);
}

// Importance ratios of 1 change no bit.
TEST(PolicyLoss, EqualProbabilitiesChangeNothing) {
  const Json file = read_json(fixture("rl/grpo.json")).at("losses");
  const Step without = read_step(file);
  for (const ImportanceMode mode : {ImportanceMode::kTokenTruncate, ImportanceMode::kSequenceMask}) {
    Step with = without;
    for (PolicySample& sample : with.samples) {
      sample.importance = importance_ratios(sample.logps, sample.logps, {.mode = mode});
    }
    const GrpoOptions options = options_of(file.at("cases")[0].at("options"));
    const Result expected = run_step<float>(options, without, 4);
    const Result result = run_step<float>(options, with, 4);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.gradient, expected.gradient);
  }
}

TEST(PolicyLoss, ComparesEveryTokenOfRolloutAndTrainer) {
  const Json file = read_json(fixture("rl/grpo.json")).at("losses");
  const Step step = read_step(file);
  const Result result = run_step<double>(options_of(file.at("cases")[1].at("options")), step, 4);
  double sum = 0;
  double largest = 0;
  double tokens = 0;
  double ratios = 0;
  double least_ratio = 1e9;
  double largest_ratio = 0;
  for (std::size_t s = 0; s < step.samples.size(); ++s) {
    for (std::size_t i = 0; i < step.logps[s].size(); ++i) {
      const double difference = step.logps[s][i] - static_cast<double>(step.samples[s].logps[i]);
      sum += std::abs(difference);
      largest = std::max(largest, std::abs(difference));
      ratios += std::exp(difference);
      least_ratio = std::min(least_ratio, std::exp(difference));
      largest_ratio = std::max(largest_ratio, std::exp(difference));
      ++tokens;
    }
  }
  const std::vector<std::pair<std::string, double>> wanted{{"sampling/sampling_logp_difference/mean", sum / tokens},
                                                           {"sampling/sampling_logp_difference/max", largest},
                                                           {"sampling/importance_sampling_ratio/min", least_ratio},
                                                           {"sampling/importance_sampling_ratio/mean", ratios / tokens},
                                                           {"sampling/importance_sampling_ratio/max", largest_ratio}};
  for (const auto& [name, value] : wanted) {
    const auto found =
        std::find_if(result.metrics.begin(), result.metrics.end(), [&](const auto& m) { return m.first == name; });
    ASSERT_NE(found, result.metrics.end()) << name;
    EXPECT_NEAR(found->second, value, 1e-9) << name;
  }
}

TEST(PolicyLoss, AStepOfMaskedCompletionsHasNoLossAndNoFigures) {
  Step step = read_step(read_json(fixture("rl/grpo.json")).at("losses"));
  for (PolicySample& sample : step.samples) sample.truncated = true;
  for (const GrpoLoss loss : {GrpoLoss::kGrpo, GrpoLoss::kBnpo, GrpoLoss::kDrGrpo, GrpoLoss::kDapo, GrpoLoss::kCispo}) {
    GrpoOptions options;
    options.loss_type = loss;
    options.mask_truncated_completions = true;
    const Result result = run_step<float>(options, step, 4);
    EXPECT_EQ(result.loss, 0.0);
    for (const auto& of_sample : result.gradient) EXPECT_EQ(of_sample, std::vector<double>(of_sample.size(), 0.0));
    for (const auto& [name, value] : result.metrics) EXPECT_TRUE(name.starts_with("sampling/")) << name;
  }
}

}  // namespace
}  // namespace hone::test
