// Tests hone profile and hone bench: the times add up, and the command lines work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "backend/measured_rates.h"
#include "cli/bench/training_step.h"
#include "cli/profile/limits.h"
#include "cli/profile/one_op.h"
#include "cli/profile/report.h"
#include "cli/profile/timeline.h"
#include "cli/profile/timing.h"
#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "ops/registry.h"
#include "support/environment.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "train/loss_program.h"
#include "train/setup.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

StepOptions small_step() {
  StepOptions options;
  options.model = "quickstart";
  options.layers = 2;
  options.batch_size = 2;
  options.seq_len = 16;
  options.device = DeviceChoice::kCpu;
  return options;
}

// Returns the category of a registered operation.
std::string_view category_of(std::string_view op) {
  register_operations();
  return name_of(op_registry().get(op).category());
}

TEST(Profile, SortsOperations) {
  EXPECT_EQ(category_of("linear"), "GEMM");
  EXPECT_EQ(category_of("linear_weight_gradient"), "GEMM");
  EXPECT_EQ(category_of("linear_logprobs_backward"), "loss");
  EXPECT_EQ(category_of("add_rms_norm_backward"), "normalization");
  EXPECT_EQ(category_of("rope_table"), "RoPE");
  EXPECT_EQ(category_of("adamw_8bit"), "optimizer");
}

TEST(Profile, EveryOperationHasACategory) {
  register_operations();
  for (const std::string& name : op_registry().names()) EXPECT_NE(category_of(name), "other") << name;
  EXPECT_EQ(category_of("lora_linear"), "GEMM");
  EXPECT_EQ(category_of("muon_apply"), "optimizer");
}

TEST(Profile, LimitsKnowThatSmallCopiesMayBeCached) {
  const DeviceLimits limits{.copy_bytes_per_second = 1e9, .flops_per_second = 1e12, .copies = {{1e3, 4e9}, {1e6, 1e9}}};
  EXPECT_EQ(limits.bytes_per_second(100), 4e9);
  EXPECT_EQ(limits.bytes_per_second(4e3), 4e9) << "a copy's rate holds for up to four times its size";
  EXPECT_EQ(limits.bytes_per_second(5e3), 1e9);
  EXPECT_EQ(limits.bytes_per_second(1e9), 1e9);
  EXPECT_DOUBLE_EQ(limits.floor(2e12, 1), 2);
  EXPECT_DOUBLE_EQ(limits.floor(0, 2e9), 2);
  EXPECT_DOUBLE_EQ(limits.reached(2e12, 1, 4), 0.5);
  EXPECT_DOUBLE_EQ(limits.reached(2e12, 1, 1), 1) << "never above 1";
}

TEST(Profile, LimitsAreMeasuredOnce) {
  const TemporaryDirectory cache;
  const Environment environment({{"HONE_CACHE", cache.path().string()}});
  Device& device = cpu_device();
  EXPECT_GT(device_limits(device, DType::kBf16, 0.01, false).copy_bytes_per_second, 0);
  EXPECT_FALSE(measured_model(device).copy_bytes.is_known()) << "too short to be stored";
  const DeviceLimits first = device_limits(device, DType::kBf16, kMinStoredSeconds, false);
  EXPECT_EQ(first.copies.size(), 5u);
  EXPECT_EQ(measured_model(device).flops(DType::kBf16).per_second, first.flops_per_second);
  EXPECT_TRUE(measured_model(device).flops(DType::kF32).is_known()) << "a CPU measures both";
  DeviceModel other;
  other.bf16_flops = {3e9, RateSource::kMeasured};
  store_measured(device, other);
  const DeviceLimits kept = device_limits(device, DType::kBf16, 0.01, false);
  EXPECT_EQ(kept.flops_per_second, 3e9);
  EXPECT_EQ(kept.copy_bytes_per_second, first.copy_bytes_per_second);
  EXPECT_EQ(kept.copies.size(), first.copies.size());
  EXPECT_EQ(gemm_limit(device, DType::kBf16, 0.01), 3e9);
  EXPECT_NE(device_limits(device, DType::kBf16, 0.01, true).flops_per_second, 3e9);
}

TEST(Profile, RatesHaveThreeDigits) {
  EXPECT_EQ(flops_text(53.44e9), "53.4 GFLOP/s");
  EXPECT_EQ(flops_text(1.234e12), "1.23 TFLOP/s");
  EXPECT_EQ(flops_text(755e12), "755 TFLOP/s");
  EXPECT_EQ(flops_text(9.999e9), "10.0 GFLOP/s");
  EXPECT_EQ(flops_text(12e3), "0.01 MFLOP/s");
}

TEST(Profile, TakesLayersAsOne) {
  EXPECT_EQ(module_of_scope("layers.3.attention"), "layers.*.attention");
  EXPECT_EQ(module_of_scope("layers.31"), "layers.*");
  EXPECT_EQ(module_of_scope("head"), "head");
  EXPECT_EQ(module_of_scope(""), "model");
}

TEST(Profile, CountsPairsOfDocumentsOnly) {
  StepOptions options = small_step();
  const std::unique_ptr<Model> model = open_shape(options);
  const Workspace workspace = trace_step(options, *model);
  const Program& training = workspace.program(kTrainingProgram);
  const HostBatch batch = random_batch(options, 512);
  bool found = false;
  for (const Node& node : training.nodes()) {
    if (node.op->name() != "attention") continue;
    found = true;
    const double whole = work_of(training, node, {}).flops;
    const double share = (2.0 * 16 * 17) / (32 * 33);
    EXPECT_NEAR(work_of(training, node, batch).flops, whole * share, 1e-6 * whole);
  }
  EXPECT_TRUE(found);
}

TEST(Profile, PacksDocumentsOfRandomLengths) {
  StepOptions options = small_step();
  options.batch_size = 3;
  options.seq_len = 200;
  options.document_len = 21;
  const std::vector<std::int64_t> lengths = document_lengths(options);
  std::int64_t sum = 0;
  for (const std::int64_t length : lengths) {
    const std::int64_t left = options.seq_len - sum % options.seq_len;  // tokens left in the sequence
    EXPECT_LE(length, std::min<std::int64_t>(left, 32));
    EXPECT_GE(length, std::min<std::int64_t>(left, 11));
    sum += length;
  }
  EXPECT_EQ(sum, 600);
  EXPECT_NE(lengths[0], lengths[1]);
  const HostBatch batch = random_batch(options, 512);
  ASSERT_EQ(batch.document_count(), static_cast<std::int64_t>(lengths.size()));
  EXPECT_EQ(batch.target_tokens, 600 - batch.document_count());
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    const auto begin = static_cast<std::size_t>(batch.cu_seqlens[d]);
    const auto last = static_cast<std::size_t>(batch.cu_seqlens[d + 1]) - 1;
    EXPECT_EQ(batch.positions[begin], 0);
    EXPECT_EQ(batch.positions[last], lengths[d] - 1);
    EXPECT_EQ(batch.targets[last], -1);
    EXPECT_EQ(batch.loss_weights[last], 0.0f);
    if (lengths[d] > 1) {
      EXPECT_EQ(batch.targets[begin], batch.tokens[begin + 1]);
    }
  }
}

// Profiles two steps of two micro-batches each.
Timeline profiled() {
  const StepOptions options = small_step();
  const std::unique_ptr<Model> model = open_shape(options);
  const std::vector<HostBatch> batches(2, random_batch(options, 512));
  TrainingStep step(*model, trace_step(options, *model), optimizer_options(options.training()), DType::kBf16,
                    cpu_device());
  Timeline timeline;
  for (int i = 0; i < 2; ++i) step.run_profiled(batches, timeline);
  return timeline;
}

TEST(Profile, TimelineHoldsEveryRunInOrder) {
  const Timeline timeline = profiled();
  ASSERT_EQ(timeline.steps.size(), 2u);
  ASSERT_FALSE(timeline.runs.empty());
  double end = timeline.steps[0].begin;
  for (const ProfiledRun& run : timeline.runs) {
    EXPECT_GE(run.begin, end - 1e-6);
    end = run.begin + run.seconds;
  }
  EXPECT_LE(end, timeline.steps[1].begin + timeline.steps[1].seconds + 1e-6);
}

TEST(Profile, SharesAddUpToTheStep) {
  const Timeline timeline = profiled();
  const ProfileReport report = make_report(timeline, {.copy_bytes_per_second = 1e16, .flops_per_second = 1e17});
  EXPECT_NEAR(report.step_seconds, (timeline.steps[0].seconds + timeline.steps[1].seconds) / 2, 1e-12);
  const auto sum = [](const auto& parts) {
    return std::accumulate(parts.begin(), parts.end(), 0.0,
                           [](double total, const auto& part) { return total + part.seconds; });
  };
  EXPECT_NEAR(sum(report.categories), report.step_seconds, 1e-9);
  EXPECT_NEAR(sum(report.kernels) + report.between_seconds, report.step_seconds, 1e-9);
  EXPECT_NEAR(sum(report.modules), sum(report.kernels), 1e-9);
  for (const ShareOfStep& category : report.categories) EXPECT_THAT(kCategories, testing::Contains(category.name));
  double runs = 0;
  for (const KernelSummary& kernel : report.kernels) {
    runs += kernel.runs;
    EXPECT_GT(kernel.runs, 0);
    EXPECT_GE(kernel.floor, std::max(kernel.flops / 1e17, kernel.bytes / 1e16) * (1 - 1e-9));
  }
  EXPECT_NEAR(runs, static_cast<double>(timeline.runs.size()) / 2, 1e-6);
  // The two layers count as one module, so swiglu runs 2 layers x 2 micro-batches times per step.
  const auto swiglu = std::ranges::find_if(report.kernels, [](const auto& k) { return k.op == "swiglu"; });
  ASSERT_NE(swiglu, report.kernels.end());
  EXPECT_EQ(swiglu->module, "layers.*.mlp");
  EXPECT_EQ(swiglu->category, "activation");
  EXPECT_NEAR(swiglu->runs, 4, 1e-9);
  const Json json = to_json(report);
  EXPECT_EQ(json["kernels"].size(), report.kernels.size());
}

TEST(Profile, NothingIsBetterThanPossible) {
  const ProfileReport report = make_report(profiled(), {.copy_bytes_per_second = 1, .flops_per_second = 1});
  for (const KernelSummary& kernel : report.kernels) EXPECT_LE(kernel.achieved(), 1) << kernel.op;
  for (const ShareOfStep& share : report.categories) EXPECT_LE(share.floor, share.seconds) << share.name;
}

TEST(Profile, TraceHasAnEventForEveryRun) {
  const Timeline timeline = profiled();
  const Json trace = parse_json(chrome_trace(timeline, "a \"title\"").dump(), "trace");
  std::map<int, std::size_t> events;
  double step_end = 0;
  double last = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++events[event["tid"].get<int>()];
    EXPECT_GE(event["ts"].get<double>(), 0.0);
    EXPECT_GE(event["dur"].get<double>(), 0.0);
    const double end = event["ts"].get<double>() + event["dur"].get<double>();
    (event["tid"] == 1 ? step_end : last) = end;
    if (event["tid"] != 3) continue;
    EXPECT_THAT(kCategories, testing::Contains(event["cat"].get<std::string>()));
    EXPECT_TRUE(event["args"].contains("module"));
  }
  EXPECT_EQ(events[1], 2u);
  EXPECT_EQ(events[3], timeline.runs.size());
  EXPECT_GT(events[2], 4u);
  EXPECT_LT(events[2], events[3]);
  EXPECT_LE(last, step_end + 1);
}

Timeline made_up(double gemm, double norm, double adamw, double step) {
  Timeline timeline;
  const auto add = [&](const char* op, double seconds, double flops, double bytes, Phase phase) {
    timeline.nodes.push_back({.op = op,
                              .category = category_of(op),
                              .scope = "layers.0.mlp",
                              .phase = phase,
                              .shapes = "",
                              .flops = flops,
                              .bytes = bytes});
    timeline.runs.push_back({timeline.nodes.size() - 1, 0, seconds});
  };
  add("linear", gemm, 0.5 * gemm * 1e12, 0, Phase::kForward);
  add("rms_norm", norm, 0, 0.2 * norm * 1e9, Phase::kForward);
  add("adamw", adamw, 0, 0.95 * adamw * 1e9, Phase::kUpdate);
  timeline.steps.push_back({0, step});
  return timeline;
}

TEST(Profile, AdviceNamesWhatStandsOut) {
  const DeviceLimits limits{.copy_bytes_per_second = 1e9, .flops_per_second = 1e12};
  const ProfileReport bad = make_report(made_up(0.5, 0.2, 0.2, 1.0), limits);
  const std::string said = join(advice(bad, {.tuned = false, .gpu = true, .gradient_accumulation_steps = 1}), "\n");
  EXPECT_THAT(said, HasSubstr("10.0% of the step is spent between operations"));
  EXPECT_THAT(said, HasSubstr("--tune_gemm"));
  EXPECT_THAT(said, HasSubstr("rms_norm (layers.*.mlp, forward) takes 20.0% of the step at 20%"));
  EXPECT_THAT(said, HasSubstr("gradient_accumulation_steps"));
  EXPECT_THAT(join(advice(bad, {.tuned = true, .gpu = true}), "\n"), testing::Not(HasSubstr("--tune_gemm")));
  EXPECT_THAT(said, testing::Not(HasSubstr("adamw_bf16"))) << "the states are already bf16, or cannot be";
  EXPECT_THAT(join(advice(bad, {.can_shrink_states = true}), "\n"), HasSubstr("optim adamw_bf16 moves fewer bytes"));
  EXPECT_THAT(said, HasSubstr("a larger per_device_train_batch_size"));
  EXPECT_THAT(join(advice(bad, {.batch_key = "batch_size"}), "\n"), HasSubstr("a larger batch_size makes"));
  EXPECT_THAT(to_text(bad), HasSubstr("operations other than GEMMs that take more than 2% of the step:\n  adamw"));
  const ProfileReport good = make_report(made_up(0.98, 0.01, 0.01, 1.0), limits);
  EXPECT_THAT(join(advice(good, {.tuned = true, .gpu = true}), "\n"), HasSubstr("Nothing stands out"));
}

TEST(ProfileCommand, WritesItsFiles) {
  const TemporaryDirectory directory;
  const std::string folder = directory.path() / "out";
  const Ended ended = run_program({"profile", "--model", "quickstart", "--layers", "1", "--seq_len", "16",
                                   "--gradient_accumulation_steps", "2", "--num_steps", "2", "--warmup_steps", "2",
                                   "--limit_seconds", "0.01", "--device", "cpu", "--output_dir", folder});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("category"));
  EXPECT_THAT(ended.output, HasSubstr("layers.*.attention"));
  const Json summary = read_json(fs::path(folder) / "kernel_summary.json");
  EXPECT_EQ(summary["num_steps"], 2);
  EXPECT_GT(summary["unprofiled_step_ms"].get<double>(), 0.0);
  double sum = 0;
  for (const Json& category : summary["categories"]) sum += category["ms"].get<double>();
  EXPECT_NEAR(sum, summary["step_ms"].get<double>(), 1e-6);
  EXPECT_FALSE(summary["advice"].empty());
  const Json trace = read_json(fs::path(folder) / "chrome_trace.json");
  std::size_t updates = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "gradient_norm") ++updates;
  }
  EXPECT_EQ(updates, 2u);
}

TEST(ProfileCommand, TakesARecipe) {
  const TemporaryDirectory directory;
  write_miniature(directory.path());
  const std::string recipe = directory.path() / "recipe.yaml";
  write_file(recipe, text_of("model_config_path: ", (directory.path() / "model.json").string(),
                             "\ntokenizer_name_or_path: ", (directory.path() / "tokenizer").string(),
                             "\ndataset_name: ", (directory.path() / "data/corpus.jsonl").string(),
                             "\nblock_size: 32\nper_device_train_batch_size: 2\nwarmup_steps: 7\ndevice: cpu\n"));
  const std::string folder = directory.path() / "out";
  const Ended ended = run_program({"profile", "pretrain", recipe, "--num_steps", "1", "--warmup_steps", "2",
                                   "--limit_seconds", "0.01", "--output_dir", folder});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(read_json(fs::path(folder) / "kernel_summary.json")["what"], "pretrain");
  const Ended alone = run_program({"profile", recipe, "--num_steps", "1", "--warmup_steps", "2", "--limit_seconds",
                                   "0.01", "--output_dir", folder});
  EXPECT_EQ(alone.code, 0) << alone.output;
  const Ended lost = run_program({"profile", recipe, "--optim", "sgd", "--output_dir", folder});
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.output, HasSubstr("--optim: has no effect with a recipe"));
}

// With dtype float32 the default optimizer becomes adamw_torch, as the help text says.
TEST(ProfileCommand, Float32NeedsNoOptimizer) {
  const TemporaryDirectory directory;
  const std::vector<std::string> small{"--model", "quickstart", "--layers", "1",       "--seq_len",
                                       "16",      "--device",   "cpu",      "--dtype", "float32"};
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), small.begin(), small.end());
    return run_program(arguments);
  };
  const Ended profiled = run(
      {"profile", "--num_steps", "1", "--limit_seconds", "0.01", "--output_dir", (directory.path() / "out").string()});
  EXPECT_EQ(profiled.code, 0) << profiled.output;
  const Ended trained = run({"bench", "train", "--seconds", "0.01", "--warmup_seconds", "0"});
  EXPECT_EQ(trained.code, 0) << trained.output;
  const Ended kernels = run({"bench", "kernels", "--seconds", "0.001", "--ops", "adamw"});
  EXPECT_EQ(kernels.code, 0) << kernels.output;
  const Ended products = run_program({"bench", "matmul", "--model", "quickstart", "--tokens", "16", "--device", "cpu",
                                      "--dtypes", "float32", "--seconds", "0.001"});
  EXPECT_EQ(products.code, 0) << products.output;
  const Ended refused = run({"bench", "train", "--optim", "adamw_bf16", "--seconds", "0.01"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("adamw_bf16 is for weights of bfloat16"));
}

TEST(ProfileCommand, RefusesWhatItDoesNotKnow) {
  const Ended ended = run_program({"profile", "walk", "x"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("expected pretrain or sft and a recipe, saw 'walk x'"));
}

}  // namespace
}  // namespace hone::test
