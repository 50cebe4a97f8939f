// Tests the parts of hone profile: times add up, advice follows from them, traces hold every run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "backend/measured_rates.h"
#include "cli/bench/training_step.h"
#include "cli/profile/advice.h"
#include "cli/profile/counters.h"
#include "cli/profile/grpo.h"
#include "cli/profile/limits.h"
#include "cli/profile/one_op.h"
#include "cli/profile/report.h"
#include "cli/profile/timeline.h"
#include "cli/profile/timing.h"
#include "cli/profile/trace.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "ops/registry.h"
#include "support/environment.h"
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

std::string texts(const std::vector<Advice>& list) {
  std::string text;
  for (const Advice& each : list) text += each.text + "\n";
  return text;
}

std::string proposal_texts(const std::vector<Proposal>& list) {
  std::string text;
  for (const Proposal& each : list) {
    for (const Settings& attempt : each.attempts) text += settings_text(attempt) + "; ";
    text += each.reason + "\n";
  }
  return text;
}

TEST(Profile, CandidatesAreOperationsOtherThanGemms) {
  const DeviceLimits limits{.copy_bytes_per_second = 1e9, .flops_per_second = 1e12};
  const ProfileReport report = make_report(made_up(0.5, 0.2, 0.2, 1.0), limits);
  ASSERT_EQ(candidates(report).size(), 2u);
  EXPECT_THAT(to_text(report), HasSubstr("operations other than GEMMs that take more than 2% of the step:\n  adamw"));
  const std::string said = texts(advice(report, {}, {1, 1}, {}));
  EXPECT_THAT(said, HasSubstr("rms_norm (layers.*.mlp, forward) takes 20% of the step at 20% of the roofline"));
  EXPECT_THAT(said, HasSubstr("could save up to 16% of the step"));
  const ProfileReport good = make_report(made_up(0.98, 0.01, 0.01, 1.0), limits);
  EXPECT_THAT(texts(advice(good, {}, {1, 1}, {})), HasSubstr("Nothing stands out"));
}

TEST(Profile, ProposesWhatTheProfileShows) {
  const DeviceLimits limits{.copy_bytes_per_second = 1e9, .flops_per_second = 1e12};
  ProfileReport report = make_report(made_up(0.98, 0.01, 0.01, 1.0), limits);
  const StepTokens whole{.micro_batch = 100, .step = 100};
  const StepSettings good{.of_recipe = true, .tuned = true, .gpu = true, .dtype = DType::kBf16, .batch_size = 2};
  EXPECT_EQ(proposal_texts(proposals(report, good, whole)), "");
  const auto with = [&](auto change) {
    StepSettings settings = good;
    change(settings);
    return proposal_texts(proposals(report, settings, whole));
  };
  EXPECT_THAT(with([](StepSettings& s) { s.packs = false; }), HasSubstr("packing: true; documents are not packed"));
  EXPECT_THAT(with([](StepSettings& s) { s.recomputes = true; }), HasSubstr("gradient_checkpointing: false;"));
  EXPECT_THAT(with([](StepSettings& s) { s.offloads = true; }), HasSubstr("activation_offloading: false;"));
  EXPECT_THAT(with([](StepSettings& s) { s.dtype = DType::kF32; }), HasSubstr("torch_dtype: bfloat16;"));
  EXPECT_THAT(with([](StepSettings& s) { s.tuned = false; }), HasSubstr("tune_gemm: true;"));
  EXPECT_EQ(with([](StepSettings& s) { s.tuned = s.gpu = false; }), "") << "a CPU has nothing to tune";
  EXPECT_THAT(proposal_texts(proposals(report, good, {.micro_batch = 100, .step = 350})),
              HasSubstr("max_tokens_per_micro_batch: 350; max_tokens_per_micro_batch: 175; a step of 350 tokens"));
  report = make_report(made_up(0.5, 0.1, 0.2, 1.0), limits);  // a fifth of the step is between operations
  EXPECT_THAT(proposal_texts(proposals(report, good, whole)),
              HasSubstr("per_device_train_batch_size: 8; per_device_train_batch_size: 4; gradient_accumulation_steps: "
                        "4; the optimizer takes 20% of the step"));
  EXPECT_THAT(with([](StepSettings& s) { s.of_recipe = false; }), HasSubstr("batch_size: 8; batch_size: 4;"));
  const auto larger = HasSubstr("per_device_train_batch_size");
  EXPECT_THAT(with([](StepSettings& s) { s.packs = false; }), testing::Not(larger)) << "packing is the cause";
  EXPECT_THAT(proposal_texts(proposals(report, good, {.micro_batch = 100, .step = 350})), testing::Not(larger));
  EXPECT_THAT(with([](StepSettings&) {}), HasSubstr("optim: adamw_bf16; the optimizer takes 20%"));
  EXPECT_THAT(with([](StepSettings& s) { s.optim = OptimizerType::kAdamw8bit; }),
              testing::Not(HasSubstr("optim: adamw_bf16")));
  report = make_report(made_up(0.89, 0.01, 0.01, 1.0), limits);
  EXPECT_THAT(proposal_texts(proposals(report, good, whole)), HasSubstr("9% of the step is not in operations"));
  report.unprofiled_step_seconds = 0.93;  // most of that was the profiler's
  EXPECT_EQ(proposal_texts(proposals(report, good, whole)), "");
}

// The trial of tune_gemm leaves a table that later trials would use.
TEST(Profile, TriesTheTuningOfGemmsLast) {
  const ProfileReport report =
      make_report(made_up(0.5, 0.1, 0.2, 1.0), {.copy_bytes_per_second = 1e9, .flops_per_second = 1e12});
  const StepSettings bad{.of_recipe = true, .packs = false, .recomputes = true, .offloads = true, .gpu = true};
  for (const std::vector<Proposal>& list :
       {proposals(report, bad, {.micro_batch = 100, .step = 350}), program_proposals(bad)}) {
    ASSERT_GE(list.size(), 4u);
    for (const Proposal& each : list) {
      EXPECT_EQ(settings_text(each.attempts[0]) == "tune_gemm: true", &each == &list.back()) << each.reason;
    }
  }
}

TEST(Profile, AdviceComesFromTrials) {
  const DeviceLimits limits{.copy_bytes_per_second = 1e9, .flops_per_second = 1e12};
  const ProfileReport report = make_report(made_up(0.98, 0.01, 0.01, 1.0), limits);
  const StepRate before{.seconds = 2, .tokens = 200};
  std::vector<Proposal> list;
  list.push_back({.reason = "slow", .attempts = {{"--a", "1"}, {"--a", "2"}}});
  list.push_back({.reason = "slower", .attempts = {{"--b", "1"}}, .changes_batch = true});
  list.push_back({.reason = "none", .attempts = {{"--c", "1"}}});
  list.push_back({.reason = "never", .attempts = {{"--d", "1"}}});
  const auto tried = try_all(list, [](const Settings& settings) -> StepRate {
    const std::string text = settings_text(settings);
    if (text == "a: 1" || text == "d: 1") throw Error("memory", "too little");
    if (text == "c: 1") return {.seconds = 1, .tokens = 101};
    return text == "a: 2" ? StepRate{.seconds = 1, .tokens = 150} : StepRate{.seconds = 4, .tokens = 1200};
  });
  const std::vector<Advice> given = advice(report, {}, before, tried);
  ASSERT_EQ(given.size(), 2u) << texts(given);
  EXPECT_EQ(given[0].text,
            "b: 1: 3 times the tokens/s (300, up from 100, tried); slower. A step then learns from more tokens, which "
            "may need another learning rate.");
  EXPECT_EQ(given[1].text, "a: 2: 1.5 times the tokens/s (150, up from 100, tried); slow.");
  EXPECT_DOUBLE_EQ(given[0].gain, 3);
  EXPECT_EQ(other_trials_text(before, tried),
            "tried without gain:\n  c: 1: 1.01 times the tokens/s\n  d: 1: memory: too little\n");
  const Json json = to_json(given);
  EXPECT_EQ(json[0]["settings"]["b"], "1");
  EXPECT_EQ(to_json(before, tried).size(), 4u);
  EXPECT_EQ(to_json(before, tried)[3]["refusal"], "memory: too little");
  const std::vector<Advice> untried = advice(report, {}, before, try_all(list, {}));
  EXPECT_THAT(texts(untried), HasSubstr("a: 1 was not tried; slow."));
  EXPECT_EQ(other_trials_text(before, try_all(list, {})), "");
}

TEST(Profile, AdviceOnDataComesFromItsTimes) {
  ProfileReport report =
      make_report(made_up(0.98, 0.01, 0.01, 1.0), {.copy_bytes_per_second = 1e9, .flops_per_second = 1e12});
  report.unprofiled_step_seconds = 0.8;
  report.data_seconds = 0.2;
  report.start_seconds = 12.34;
  EXPECT_THAT(texts(advice(report, {}, {1, 1}, {})), HasSubstr("Reading the batches of a step takes 25% of its time"));
  EXPECT_THAT(texts(advice(report, {.caches_tokens = false}, {1, 1}, {})),
              HasSubstr("token_cache: true saves 12.3 s of encoding at each later start"));
}

// 50 steps of 0.8 s and 0.2 s of reading them take 50 s, so that a start of 100 s, 1 s with the cache, triples the run.
TEST(Profile, AdviceOnTheStartIsOfTheWholeRun) {
  ProfileReport report =
      make_report(made_up(0.98, 0.01, 0.01, 1.0), {.copy_bytes_per_second = 1e9, .flops_per_second = 1e12});
  report.unprofiled_step_seconds = 0.8;
  report.data_seconds = 0.2;
  report.start_seconds = 100;
  report.cached_start_seconds = 1;
  report.total_steps = 50;
  report.tokens_per_step = 102;
  const std::vector<TriedProposal> tried =
      try_all({{.reason = "slow", .attempts = {{"--a", "1"}}}}, [](const Settings&) { return StepRate{1, 200}; });
  const StepSettings uncached{.caches_tokens = false};
  const std::vector<Advice> list = advice(report, uncached, {1, 100}, tried);
  ASSERT_GE(list.size(), 2u);
  EXPECT_DOUBLE_EQ(list[0].gain, 150.0 / 51) << "it comes before the gain of 2 of a setting";
  EXPECT_EQ(settings_text(list[0].settings), "token_cache: true");
  EXPECT_DOUBLE_EQ(list[0].rate.tokens_per_second(), 100);
  EXPECT_THAT(list[0].text, HasSubstr("token_cache: true: 2.94 times the tokens/s of a later run (its data are ready "
                                      "after 1 s, down from 100, tried; its 50 steps take 50 s)"));
  EXPECT_DOUBLE_EQ(list[1].gain, 2);
  report.total_steps = 100000;
  EXPECT_EQ(advice(report, uncached, {1, 100}, tried)[0].gain, 2) << "a long run gains nothing";
  report.total_steps = 50;
  report.cached_start_seconds = 0;
  EXPECT_EQ(advice(report, uncached, {1, 100}, tried)[0].gain, 2) << "it was not tried";
}

TEST(Profile, ASlowedStepChangesNoRate) {
  const std::vector<StepRate> steps{{1, 100}, {2, 200}, {9, 100}, {1, 100}, {4, 400}};
  const StepRate rate = median_rate(steps);
  EXPECT_DOUBLE_EQ(rate.tokens, 180);
  EXPECT_DOUBLE_EQ(rate.seconds, 1.8) << "0.01 s a token";
  EXPECT_DOUBLE_EQ(median_rate(std::vector<StepRate>{{1, 100}, {2, 100}}).seconds, 1.5);
}

TEST(Profile, AdviceNamesTheRewardThatIsWaitedFor) {
  GrpoTimes times{
      .rate = {.seconds = 2, .tokens = 100}, .generation = 0.5, .rewards = 1, .reference = 0.1, .loss = 0.3};
  times.each = {{.name = "slow", .scope = RewardScope::kBatch, .seconds = 0.9, .completions = 16},
                {.name = "early", .scope = RewardScope::kCompletion, .seconds = 0.4, .completions = 16}};
  const std::vector<Advice> list = reward_advice(times);
  ASSERT_EQ(list.size(), 1u) << texts(list);
  EXPECT_THAT(list[0].text, HasSubstr("slow takes 900 ms a step (16 completions), and the step waits 900 ms of 2000"));
  EXPECT_THAT(list[0].text, HasSubstr("the step would take 1100 ms"));
  EXPECT_DOUBLE_EQ(list[0].gain, 2 / 1.1);
  EXPECT_EQ(to_json(list)[0]["key"], "reward_funcs");
  EXPECT_THAT(to_text(times), HasSubstr("waiting for rewards"));
  EXPECT_NEAR(times.other(), 0.1, 1e-12);
  times.logprobs = 0.06;
  EXPECT_NEAR(times.other(), 0.04, 1e-12);
  EXPECT_EQ(to_json(times)["phases"][2]["name"], "log-probabilities of the trainer");
  times.rewards = 0.05;
  EXPECT_TRUE(reward_advice(times).empty());
}

TEST(Profile, FlowsLeadFromLaunchesToOperations) {
  Timeline timeline = made_up(0.5, 0.2, 0.2, 1.0);
  timeline.asynchronous = true;
  for (std::size_t i = 0; i < timeline.runs.size(); ++i) {
    timeline.runs[i].begin = 0.1 + 0.3 * static_cast<double>(i);
    timeline.runs[i].launch = {.begin = 0.01 * static_cast<double>(i), .seconds = 0.005};
  }
  const Json trace = chrome_trace(timeline, "title");
  std::map<std::string, std::vector<double>> ends;  // [phase] -> times
  std::map<int, int> spans;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "s" || phase == "f") ends[phase].push_back(event["ts"]);
    if (phase == "s") {
      EXPECT_EQ(event["tid"], 4);
    }
    if (phase == "f") {
      EXPECT_EQ(event["tid"], 3);
    }
    if (phase == "X") ++spans[event["tid"].get<int>()];
  }
  EXPECT_EQ(ends["s"], (std::vector<double>{0, 10000, 20000}));
  EXPECT_EQ(ends["f"], (std::vector<double>{100000, 400000, 700000}));
  EXPECT_EQ(spans[4], 3);
  EXPECT_EQ(spans[3], 3);
}

TEST(Profile, CountersShowThePlannedMemory) {
  const StepOptions options = small_step();
  const std::unique_ptr<Model> model = open_shape(options);
  const Workspace workspace = trace_step(options, *model);
  const Program& training = workspace.program(kTrainingProgram);
  const std::vector<std::size_t> bytes = activation_bytes(training);
  const MemoryPlan plan = plan_memory(training, DeviceKind::kCpu);
  ASSERT_EQ(bytes.size(), training.nodes().size());
  EXPECT_EQ(*std::ranges::max_element(bytes), plan.peak_activations);
  const Timeline timeline = profiled();
  EXPECT_GT(timeline.held, 0u);
  std::size_t most = 0;
  std::size_t last = 1;
  const Json trace = chrome_trace(timeline, "t");
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "C" || event["name"] != "bytes in use") continue;
    EXPECT_EQ(event["args"]["weights, gradients, states"], timeline.held);
    last = event["args"]["activations"];
    most = std::max(most, last);
  }
  EXPECT_EQ(most, plan.peak_activations);
  EXPECT_EQ(last, 0u) << "the last counter ends the last step";
}

TEST(Profile, CountersAddUpByOperation) {
  const NodeCounters counters;
  const std::size_t events = counters.events().names().size();
  Timeline timeline = made_up(0.5, 0.2, 0.2, 1.0);
  timeline.steps.emplace_back();  // two steps
  std::vector<CountedRun> runs;
  for (const std::size_t node : {0, 1, 2, 0}) {
    std::vector<double> counts(events, 10.0);
    counts.push_back(node == 0 ? 0.25 : 0.125);
    runs.push_back({node, counts});
  }
  const CounterReport report = counter_report(counters, timeline, runs);
  ASSERT_EQ(report.kernels.size(), 3u);
  EXPECT_EQ(report.kernels[0].op, "linear") << "slowest first";
  EXPECT_DOUBLE_EQ(report.kernels[0].seconds, 0.25);
  for (const double count : report.kernels[0].counts) EXPECT_DOUBLE_EQ(count, 10.0);
  EXPECT_EQ(report.kernels[1].op, "adamw");
  EXPECT_EQ(report.kernels[1].module, "update");
  EXPECT_DOUBLE_EQ(report.kernels[1].seconds, 0.0625);
  const std::string text = to_text(report, 2);
  EXPECT_EQ(text.find(report.refusal), 0u) << "what is not counted comes first";
  EXPECT_THAT(text, HasSubstr("linear"));
  EXPECT_EQ(to_json(report)["kernels"].size(), 3u);
  EXPECT_EQ(to_text(CounterReport{.names = {}, .refusal = "not counted: all"}), "not counted: all\n");
}

}  // namespace
}  // namespace hone::test
