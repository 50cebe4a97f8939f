// Complete GRPO runs on a small model with artificial rewards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "checkpoint/training_state.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "model/state_tensors.h"
#include "rl/advantages.h"
#include "rl/small_run.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDifference = "sampling/sampling_logp_difference/max";

TEST(GrpoRun, RolloutAndTrainerComputeTheSameProbabilities) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const char* model : {"qwen3", "llama_tied"}) {
      const TemporaryDirectory directory;
      GrpoOptions options = small_options(directory.path());
      options.top_k = 100;
      options.repetition_penalty = 1.2;
      options.top_p = 0.95;
      options.learning_rate = 1e-2;
      const std::vector<MetricRow> rows = train_rows(options, 4, model, dtype);
      ASSERT_EQ(rows.size(), 4u);
      for (const MetricRow& row : rows) {
        EXPECT_EQ(value_of(row, kDifference), 0.0) << model;
        EXPECT_EQ(value_of(row, "sampling/importance_sampling_ratio/min"), 1.0);
        EXPECT_GT(value_of(row, "entropy"), 0.0);
        EXPECT_GT(value_of(row, "grad_norm"), 0.0);
        EXPECT_FALSE(row.find("kl"));
      }
    }
  }
}

// If rollout and trainer have the same probabilities, the importance correction changes no bit.
TEST(GrpoRun, ACorrectionOfEqualProbabilitiesChangesNothing) {
  std::vector<std::vector<MetricRow>> rows;
  for (const bool corrected : {false, true}) {
    const TemporaryDirectory directory;
    GrpoOptions options = small_options(directory.path());
    options.per_device_train_batch_size = 8;
    options.num_iterations = 2;
    options.learning_rate = 1e-2;
    if (corrected) options.vllm_importance_sampling_correction = true;
    rows.push_back(train_rows(options, 4));
    ASSERT_EQ(rows.back().size(), 4u);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    for (const char* name : {"loss", "grad_norm", "entropy", "clip_ratio/region_mean"}) {
      EXPECT_EQ(value_of(rows[0][i], name), value_of(rows[1][i], name)) << name;
    }
    EXPECT_EQ(rows[1][i].find(kDifference).has_value(), i % 2 == 0);
  }
  EXPECT_EQ(value_of(rows[1][2], kDifference), 0.0);
  EXPECT_EQ(value_of(rows[1][2], "sampling/importance_sampling_ratio/mean"), 1.0);
}

TEST(GrpoRun, OnlyAnUpdatedPolicyIsClipped) {
  const TemporaryDirectory directory;
  GrpoOptions options = small_options(directory.path());
  options.num_iterations = 3;
  options.epsilon = 0.05;
  options.learning_rate = 1e-2;
  const std::vector<MetricRow> rows = train_rows(options, 6);
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool fresh = i % 3 == 0;
    EXPECT_EQ(rows[i].find(kDifference).has_value(), fresh) << i;
    EXPECT_EQ(rows[i].find("reward").has_value(), fresh) << i;
    EXPECT_EQ(value_of(rows[i], "clip_ratio/region_mean") > 0, !fresh) << i;
  }
  EXPECT_EQ(value_of(rows[0], "num_tokens"), value_of(rows[2], "num_tokens"));
  EXPECT_LT(value_of(rows[2], "num_tokens"), value_of(rows[3], "num_tokens"));
}

TEST(GrpoRun, RewardRises) {
  const TemporaryDirectory directory;
  GrpoOptions options = small_options(directory.path());
  options.per_device_train_batch_size = 24;
  options.learning_rate = 1e-2;
  const std::vector<MetricRow> rows = train_rows(options, 25);
  double last = 0;
  for (std::size_t i = 20; i < 25; ++i) last += value_of(rows[i], "reward/early") / 5;
  EXPECT_GT(last, value_of(rows[0], "reward/early") + 0.1);
}

// Metrics of time and of the machine, which differ between equal runs.
const std::set<std::string, std::less<>> kOfTheMachine{"tokens_per_second",
                                                       "tokens_per_second_per_device",
                                                       "step_time",
                                                       "gflops_per_second",
                                                       "mfu",
                                                       "cpu_utilization",
                                                       "device_utilization",
                                                       "device_memory_gib",
                                                       "process_memory_gib",
                                                       "system_memory",
                                                       "step_time/generation",
                                                       "step_time/rewards",
                                                       "step_time/logprobs",
                                                       "step_time/reference",
                                                       "step_time/loss"};

// Resumes in the middle of a generation that is used twice, with a reference model that moves: from the checkpoint as
// it was saved, with its state in several files, and in the first format.
TEST(GrpoRun, ResumesBitwise) {
  const TemporaryDirectory whole;
  GrpoOptions options = small_options(whole.path());
  options.num_iterations = 2;
  options.steps_per_generation = 2;
  options.beta = 0.1;
  options.sync_ref_model = true;
  options.ref_model_sync_steps = 2;
  options.learning_rate = 1e-2;
  options.save_strategy = SaveStrategy::kSteps;
  options.save_steps = 3;
  const std::vector<MetricRow> rows = train_rows(options, 7);
  const fs::path checkpoint = whole.path() / "checkpoint-3";
  EXPECT_EQ(TrainingState(checkpoint).json().at("task").at("samples").size(), 8u);
  ASSERT_EQ(rows.size(), 7u);
  const std::vector<std::function<void(const fs::path&)>> forms = {
      [](const fs::path&) {}, [](const fs::path& from) { write_state_in_several_files(from, 20'000); },
      [](const fs::path& from) { write_as_first_format(from, *FixtureModel("qwen3").model); }};
  for (std::size_t form = 0; form < forms.size(); ++form) {
    SCOPED_TRACE(text_of("form ", form));
    const TemporaryDirectory resumed;
    const TemporaryDirectory copied;
    const fs::path from = copied.path() / "checkpoint-3";
    fs::copy(checkpoint, from, fs::copy_options::recursive);
    forms[form](from);
    options.output_dir = resumed.path().string();
    options.resume_from_checkpoint = from.string();
    const std::vector<MetricRow> later = train_rows(options, 7);
    ASSERT_EQ(later.size(), 4u);
    for (std::size_t i = 0; i < later.size(); ++i) {
      const MetricRow& wanted = rows[i + 3];
      EXPECT_EQ(later[i].step, wanted.step);
      for (const auto& [name, value] : wanted.values) {
        if (kOfTheMachine.contains(name)) continue;
        EXPECT_EQ(value_of(later[i], name), value) << "step " << wanted.step << ", " << name;
      }
    }
    EXPECT_EQ(completions_of(options, 5).size(), 8u);
    for (const char* file : {"model.safetensors", "completions/step-5.jsonl", "checkpoint-6/optimizer.safetensors"}) {
      EXPECT_EQ(read_file(whole.path() / file), read_file(resumed.path() / file)) << file;
    }
  }
}

TEST(GrpoRun, ResumesWithinAGenerationOfTheSameSizeOnly) {
  const TemporaryDirectory directory;
  GrpoOptions options = small_options(directory.path());
  options.steps_per_generation = 2;
  options.save_strategy = SaveStrategy::kSteps;
  options.save_steps = 1;
  (void)train_rows(options, 1);
  options.resume_from_checkpoint = (directory.path() / "checkpoint-1").string();
  options.steps_per_generation = 4;
  try {
    (void)train_rows(options, 2);
    FAIL() << "it was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "resume_from_checkpoint: the checkpoint was saved within a generation, of which it holds 8 completions; a "
        "generation of this run has 16 (resume with the checkpoint's batch keys, or from another checkpoint)");
  }
}

// The weights of a checkpoint by name, and those of its reference model.
struct Both {
  TensorStore policy;
  std::vector<std::vector<float>> reference;
};
Both read_both(const fs::path& checkpoint, const Model& model) {
  Both both{load_weights(model, ModelDirectory(checkpoint), DType::kF32, cpu_device()), {}};
  const TrainingState state(checkpoint);
  TensorStore reference(cpu_device(), both.policy.tensors());
  load_states(StateLayout(model.weights()), PiecedTensors(state.tensors().files()), "extra.", reference);
  for (const NamedType& tensor : reference.tensors()) {
    const auto* values = reinterpret_cast<const float*>(reference.data(tensor.name));
    both.reference.emplace_back(values, values + tensor.type.elements());
  }
  return both;
}

TEST(GrpoRun, TheReferenceModelMovesByTheMixture) {
  const TemporaryDirectory directory;
  GrpoOptions options = small_options(directory.path());
  options.beta = 0.1;
  options.sync_ref_model = true;
  options.ref_model_sync_steps = 2;
  options.ref_model_mixup_alpha = 0.7;
  options.learning_rate = 1e-2;
  options.save_strategy = SaveStrategy::kSteps;
  options.save_steps = 1;
  const std::vector<MetricRow> rows = train_rows(options, 4);
  EXPECT_EQ(value_of(rows[0], "kl"), 0.0);
  EXPECT_GT(value_of(rows[1], "kl"), 0.0);
  EXPECT_EQ(value_of(rows[1], "kl"), value_of(rows[1], "policy/kl"));

  FixtureModel fixture("qwen3");
  std::vector<std::vector<float>> reference;
  for (const NamedType& tensor : fixture.weights.tensors()) {
    const std::vector<std::byte> bytes = fixture.weights.download(tensor.name);
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    reference.emplace_back(values, values + tensor.type.elements());
  }
  for (const std::int64_t step : {1, 2, 3, 4}) {
    const Both both = read_both(directory.path() / ("checkpoint-" + std::to_string(step)), *fixture.model);
    double moved = 0;
    for (std::size_t t = 0; t < reference.size(); ++t) {
      const auto* policy = reinterpret_cast<const float*>(both.policy.data(both.policy.tensors()[t].name));
      ASSERT_EQ(both.reference[t].size(), reference[t].size());
      for (std::size_t i = 0; i < reference[t].size(); ++i) {
        const double before = static_cast<double>(reference[t][i]);
        const double wanted = step % 2 == 0 ? 0.7 * static_cast<double>(policy[i]) + 0.3 * before : before;
        ASSERT_NEAR(both.reference[t][i], wanted, step % 2 == 0 ? 1e-6 : 0.0) << "step " << step;
        moved = std::max(moved, std::abs(wanted - before));
      }
    }
    EXPECT_EQ(moved > 1e-4, step % 2 == 0);
    reference = both.reference;
  }
}

TEST(GrpoRun, ThePlanIsWhatTheDeviceHolds) {
  struct Case {
    double beta;
    std::int64_t num_iterations;
    std::int64_t micro_batch;
    Recomputation recomputation;
    DType dtype;
  };
  for (const Case& c :
       {Case{0, 1, 4, Recomputation::kOff, DType::kF32}, Case{0.04, 2, 8, Recomputation::kOn, DType::kF32},
        Case{0.04, 1, 2, Recomputation::kAutomatic, DType::kBf16}}) {
    const TemporaryDirectory directory;
    GrpoOptions options = small_options(directory.path());
    options.beta = c.beta;
    options.num_iterations = c.num_iterations;
    options.per_device_train_batch_size = c.micro_batch;
    options.gradient_accumulation_steps = 8 / c.micro_batch;
    options.gradient_checkpointing = c.recomputation;
    GrpoRun run = make_run(options, 1, "qwen3", c.dtype);
    const MemoryBreakdown memory = trace_run(run).memory();
    const std::size_t before = test_device().allocated_bytes();
    std::size_t held = 0;
    run.rewards.push_back({"probe", "probe", each([&](const RewardInput&) {
                             held = test_device().allocated_bytes() - before;
                             return std::optional<double>();
                           })});
    run.reward_weights.push_back(1.0);
    (void)train(run);
    EXPECT_EQ(held, memory.total());
    EXPECT_EQ(memory.reference, c.beta == 0 ? 0u : memory.weights);
    EXPECT_EQ(test_device().allocated_bytes(), before);
  }
}

// The split of a generation into micro-batches changes loss and gradient only by rounding, and no completion.
TEST(GrpoRun, MicroBatchesOfOneGenerationAgree) {
  std::vector<std::vector<MetricRow>> runs;
  std::vector<std::vector<Json>> completions;
  for (const std::int64_t micro_batch : {8, 4, 1}) {
    const TemporaryDirectory directory;
    GrpoOptions options = small_options(directory.path());
    options.per_device_train_batch_size = micro_batch;
    options.gradient_accumulation_steps = 8 / micro_batch;
    options.mask_truncated_completions = true;
    options.beta = 0.04;
    runs.push_back(train_rows(options, 1));
    completions.push_back(completions_of(options, 1));
  }
  for (std::size_t i = 1; i < runs.size(); ++i) {
    EXPECT_EQ(completions[i], completions[0]);
    for (const char* name : {"loss", "grad_norm"}) {
      const double wanted = value_of(runs[0][0], name);
      EXPECT_NEAR(value_of(runs[i][0], name), wanted, 1e-5 * std::max(std::abs(wanted), 0.1)) << name;
    }
  }
}

// Micro-batches of other numbers of tokens, in programs of several capacities, change loss and gradient only by
// rounding. Metrics stay those of batches of per_device_train_batch_size completions.
TEST(GrpoRun, MicroBatchesAreCutByTokens) {
  std::vector<std::vector<MetricRow>> runs;
  std::vector<std::vector<Json>> completions;
  for (const std::optional<std::int64_t> most : {std::optional<std::int64_t>(), {23}, {140}, {1'000'000}}) {
    const TemporaryDirectory directory;
    GrpoOptions options = small_options(directory.path());
    options.per_device_train_batch_size = 12;
    options.gradient_accumulation_steps = 2;
    options.num_iterations = 2;
    options.top_entropy_quantile = 0.8;
    options.beta = 0.04;
    options.max_tokens_per_micro_batch = most;
    runs.push_back(train_rows(options, 2));
    completions.push_back(completions_of(options, 1));
    EXPECT_EQ(value_of(runs.back()[0], "sampling/sampling_logp_difference/max"), 0);
    EXPECT_LT(value_of(runs.back()[0], "padding"), 0.7);
  }
  for (std::size_t i = 1; i < runs.size(); ++i) {
    EXPECT_EQ(completions[i], completions[0]);
    for (const char* name : {"entropy", "kl", "sampling/sampling_logp_difference/mean"}) {
      EXPECT_EQ(value_of(runs[i][0], name), value_of(runs[0][0], name)) << name;
    }
    for (std::size_t step = 0; step < 2; ++step) {
      for (const char* name : {"loss", "grad_norm", "entropy", "kl", "clip_ratio/region_mean"}) {
        const double wanted = value_of(runs[0][step], name);
        EXPECT_NEAR(value_of(runs[i][step], name), wanted, 1e-4 * std::max(std::abs(wanted), 0.1)) << name;
      }
    }
  }
  const TemporaryDirectory directory;
  GrpoOptions options = small_options(directory.path());
  const std::int64_t longest = make_run(options, 1).engine.max_model_len;
  options.max_tokens_per_micro_batch = longest - 1;
  try {
    (void)train_rows(options, 1);
    FAIL() << "it was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), text_of("max_tokens_per_micro_batch: is ", longest - 1,
                                                 ", but the longest prompt and max_completion_length are ", longest,
                                                 " tokens together, and a completion is never split (at least ",
                                                 longest, ", or lower max_completion_length)"));
  }
}

TEST(GrpoRun, CompletionsAreKeptWithTheirRewards) {
  const TemporaryDirectory directory;
  GrpoOptions options = small_options(directory.path());
  options.per_device_train_batch_size = 8;
  const std::vector<MetricRow> rows = train_rows(options, 3);
  std::vector<std::int64_t> prompts;
  for (std::int64_t step = 1; step <= 3; ++step) {
    const std::vector<Json> lines = completions_of(options, step);
    ASSERT_EQ(lines.size(), 8u);
    std::vector<std::optional<double>> totals;
    std::size_t truncated = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const Json& line = lines[i];
      EXPECT_EQ(line.at("step"), step);
      EXPECT_EQ(line.at("row"), lines[i / 4 * 4].at("row"));
      EXPECT_FALSE(line.at("prompt").get<std::string>().empty());
      const auto completion = line.at("completion").get<std::string>();
      EXPECT_EQ(completion.starts_with("zz"), line.at("row") == 1);
      const Json& rewards = line.at("rewards");
      EXPECT_EQ(rewards.at("sometimes").is_null(), line.at("row").get<std::int64_t>() % 3 == 2);
      EXPECT_EQ(rewards.at("early").get<double>(), *early_letters({.completion = completion}));
      totals.push_back(rewards.at("early").get<double>() +
                       0.5 * (rewards.at("sometimes").is_null() ? 0.0 : rewards.at("sometimes").get<double>()));
      truncated += line.at("finish_reason") == "length" ? 1 : 0;
      if (i % 4 == 0) prompts.push_back(line.at("row").get<std::int64_t>());
    }
    const Advantages advantages = compute_advantages(totals, 4, RewardScale::kGroup);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_DOUBLE_EQ(lines[i].at("advantage").get<double>(), advantages.values[i]);
    }
    const MetricRow& row = rows[static_cast<std::size_t>(step - 1)];
    EXPECT_NEAR(value_of(row, "reward"), advantages.reward_mean, 1e-9);
    EXPECT_NEAR(value_of(row, "completions/clipped_ratio"), static_cast<double>(truncated) / 8, 1e-9);
  }
  std::sort(prompts.begin(), prompts.end());
  EXPECT_EQ(prompts, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5})) << "three generations are an epoch";
}

TEST(GrpoRun, AStepMayEndOneGenerationAndBeginAnother) {
  const TemporaryDirectory directory;
  GrpoOptions options = small_options(directory.path());
  options.steps_per_generation = 1;
  options.gradient_accumulation_steps = 2;
  options.num_iterations = 3;
  options.learning_rate = 1e-2;
  const std::vector<MetricRow> rows = train_rows(options, 3);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(value_of(rows[0], kDifference), 0.0);
  EXPECT_EQ(value_of(rows[1], kDifference), 0.0) << "only what this policy sampled is compared";
  EXPECT_FALSE(rows[2].find(kDifference));
  EXPECT_EQ(completions_of(options, 2).size(), 4u);
}

TEST(GrpoRun, AStepOfSeveralGenerationsKeepsThemAll) {
  const TemporaryDirectory directory;
  GrpoOptions options = small_options(directory.path());
  options.steps_per_generation = 1;
  options.gradient_accumulation_steps = 3;
  const std::vector<MetricRow> rows = train_rows(options, 2);
  for (std::int64_t step = 1; step <= 2; ++step) {
    const std::vector<Json> lines = completions_of(options, step);
    ASSERT_EQ(lines.size(), 12u);
    double sum = 0;
    for (const Json& line : lines) sum += line.at("rewards").at("early").get<double>();
    EXPECT_NEAR(value_of(rows[static_cast<std::size_t>(step - 1)], "rewards/early_reward/mean"), sum / 12, 1e-9);
  }
}

}  // namespace
}  // namespace hone::test
