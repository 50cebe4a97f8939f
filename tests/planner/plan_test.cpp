// Compares plans with runs: memory must be equal to the byte.
#include "planner/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/json_value.h"
#include "core/log.h"
#include "model/registry.h"
#include "support/device.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "system/process.h"
#include "train/foreign_keys.h"

namespace hone::test {
namespace {

class Plan : public testing::Test {
 protected:
  void SetUp() override {
    set_quiet(true);
    write_miniature(folder_.path());
  }
  void TearDown() override { set_quiet(false); }

  [[nodiscard]] std::string path(const std::string& relative) const { return (folder_.path() / relative).string(); }

  void common(TrainingOptions& options) {
    options.max_steps = 2;
    options.save_strategy = SaveStrategy::kNo;
    options.overwrite_output_dir = true;
    options.output_dir = path("out");
  }
  [[nodiscard]] PretrainOptions pretrain() {
    PretrainOptions options;
    common(options);
    options.model_config_path = path("model.json");
    options.tokenizer_name_or_path = path("tokenizer");
    options.dataset_name = path("data/corpus.jsonl");
    options.block_size = 48;
    return options;
  }

  // Trains two steps. train() itself asserts that the device allocates the planned number of bytes.
  template <class Run>
  void check(Run run) {
    const RunPlan plan = plan_run(run);
    EXPECT_GT(plan.memory.total(), 0u);
    EXPECT_GE(plan.memory.arena, plan.memory.peak_activations);
    const std::uint64_t before = resident_bytes();
    (void)train(run);
    // Only on the CPU: GPU memory is not part of the resident set, and the driver allocates additional host memory.
    constexpr std::uint64_t kLibraries = 100u << 20;
    if (test_device().kind() == DeviceKind::kCpu) {
      EXPECT_LE(peak_resident_bytes(), before + plan.memory.total() + kLibraries);
    }
    EXPECT_EQ(test_device().allocated_bytes(), 0u);
  }

  TemporaryDirectory folder_;
};

TEST_F(Plan, EqualsTenRuns) {
  check(prepare_pretrain(pretrain()));
  for (const Recomputation choice : {Recomputation::kOn, Recomputation::kOff}) {
    PretrainOptions options = pretrain();
    options.gradient_checkpointing = choice;
    options.per_device_train_batch_size = 3;
    options.gradient_accumulation_steps = 2;
    check(prepare_pretrain(options));
  }
  {
    PretrainOptions options = pretrain();
    options.activation_memory_gib = 0.001;
    check(prepare_pretrain(options));
  }
  {
    PretrainOptions options = pretrain();
    options.torch_dtype = TorchDtype::kBfloat16;
    options.sampling = WindowSampling::kWindows;
    options.test_split_size = 0.1;
    options.eval_strategy = Interval::kSteps;
    options.eval_steps = 1;
    check(prepare_pretrain(options));
  }
  {
    PretrainOptions options = pretrain();
    options.torch_dtype = TorchDtype::kBfloat16;
    options.gradient_checkpointing = Recomputation::kOn;
    options.block_size = 96;
    check(prepare_pretrain(options));
  }
  PretrainOptions base = pretrain();
  base.output_dir = path("base");
  check(prepare_pretrain(base));
  for (const bool packing : {false, true}) {
    SftOptions options;
    common(options);
    options.model_name_or_path = path("base");
    options.dataset_name = path("data/sft.jsonl");
    options.packing = packing;
    options.max_length = 200;
    options.per_device_train_batch_size = 2;
    check(prepare_sft(options));
  }
  for (const double beta : {0.0, 0.1}) {
    GrpoOptions options;
    common(options);
    options.model_name_or_path = path("base");
    options.dataset_name = path("data/prompts.jsonl");
    options.dataset_prompt_column = "problem";
    options.num_generations = 2;
    options.per_device_train_batch_size = 4;
    options.max_completion_length = 10;
    options.num_iterations = beta > 0 ? 2 : 1;
    options.beta = beta;
    check(prepare_grpo(options, {}));
  }
}

// In pre-training all sequences are as long as the options allow, so a sketch must equal the exact plan. Groups of two
// processes divide the model.
TEST_F(Plan, ASketchTakesWhatTheRunTakes) {
  Json config = read_json(path("model.json"));
  config["num_key_value_heads"] = 2;
  write_file(path("divisible.json"), config.dump());
  PretrainOptions whole = pretrain();
  whole.model_config_path = path("divisible.json");
  whole.num_processes = 2;
  PretrainOptions layers = whole;
  layers.tensor_parallel_size = 2;
  PretrainOptions stages = whole;
  stages.pipeline_parallel_size = 2;
  std::vector<RunPlan> sketches;
  for (const PretrainOptions& options : {whole, layers, stages}) {
    const LanguageRun run = prepare_pretrain(options);
    config = run.model->config();
    const RunPlan exact = plan_run(run);
    const RunPlan& sketch = sketches.emplace_back(plan_sketch(
        options, {.model = family_registry().create(run.model->config()), .dtype = run.dtype}, kComparedGpus));
    EXPECT_EQ(sketch.parameters, exact.parameters);
    EXPECT_EQ(sketch.memory.weights, exact.memory.weights);
    EXPECT_EQ(sketch.memory.gradients, exact.memory.gradients);
    EXPECT_EQ(sketch.memory.optimizer, exact.memory.optimizer);
    EXPECT_EQ(sketch.memory.arena, exact.memory.arena);
    EXPECT_EQ(sketch.tokens_per_micro_batch, exact.tokens_per_micro_batch);
    EXPECT_EQ(sketch.steps, 2);
    ASSERT_EQ(sketch.devices.size(), 4u);
    for (const DeviceFit& device : sketch.devices) EXPECT_TRUE(device.fits && device.changes.empty()) << device.memory;
    EXPECT_TRUE(exact.devices.empty()) << "no devices were requested";
    EXPECT_EQ(sketch.parameters, sketches[0].parameters) << "those of the whole model";
  }
  for (const RunPlan& divided : {sketches[1], sketches[2]}) {
    EXPECT_LT(divided.memory.weights, sketches[0].memory.weights);
  }
  // The data of an SFT decides how many tokens a micro-batch has, but not what the weights take.
  SftOptions sft;
  common(sft);
  sft.num_processes = 2;
  sft.tensor_parallel_size = 2;
  sft.max_length = 256;
  const RunPlan sketch = plan_sketch(sft, {.model = family_registry().create(config), .dtype = DType::kF32});
  EXPECT_EQ(sketch.memory.weights, sketches[1].memory.weights);
}

// The biases of the experts have neither gradients nor states.
TEST_F(Plan, EqualsARunOfDeepseek) {
  Json config = read_json(fixture("models") / "deepseek_v3/config.json");
  write_json(path("deepseek.json"), config);
  for (const TorchDtype dtype : {TorchDtype::kFloat32, TorchDtype::kBfloat16}) {
    PretrainOptions options = pretrain();
    options.model_config_path = path("deepseek.json");
    options.torch_dtype = dtype;
    check(prepare_pretrain(options));
  }
}

// The sizes of deepseek-ai/DeepSeek-V3, without its layer for multi-token prediction.
TEST_F(Plan, CountsDeepseekV3) {
  Json config = read_json(fixture("models") / "deepseek_v3/config.json");
  config.update({{"vocab_size", 129280},
                 {"hidden_size", 7168},
                 {"num_hidden_layers", 61},
                 {"intermediate_size", 18432},
                 {"moe_intermediate_size", 2048},
                 {"num_attention_heads", 128},
                 {"q_lora_rank", 1536},
                 {"kv_lora_rank", 512},
                 {"qk_nope_head_dim", 128},
                 {"qk_rope_head_dim", 64},
                 {"v_head_dim", 128},
                 {"n_routed_experts", 256},
                 {"n_shared_experts", 1},
                 {"num_experts_per_tok", 8},
                 {"n_group", 8},
                 {"topk_group", 4},
                 {"first_k_dense_replace", 3},
                 {"num_key_value_heads", 128},
                 {"max_position_embeddings", 4096}});
  PretrainOptions options = pretrain();
  options.torch_dtype = TorchDtype::kBfloat16;
  const RunPlan plan = plan_sketch(options, {.model = family_registry().create(config), .dtype = DType::kBf16});
  const std::map<std::string, std::int64_t> parameters(plan.parameters.begin(), plan.parameters.end());
  std::int64_t total = 0;
  for (const auto& [part, count] : parameters) total += count;
  constexpr std::int64_t kTrained = 671'026'404'352;
  constexpr std::int64_t kBiases = 58 * 256;  // f32 in each layer with a mixture
  EXPECT_EQ(total, kTrained + kBiases);
  EXPECT_EQ(parameters.at("embedding"), 129280LL * 7168);
  EXPECT_EQ(parameters.at("head"), 129280LL * 7168);
  EXPECT_EQ(plan.memory.weights, 2u * kTrained + 4u * kBiases);
  // In place of a gradient the biases have the loads of their experts. kAccumulatedFlag is among the gradients.
  EXPECT_EQ(plan.memory.gradients, 4u * kTrained + 4u * kBiases + align_up(sizeof(float)));
}

// Plans pre-training on a GPU of this size that need not be present.
RunPlan plan_on(PretrainOptions options, DType dtype, std::size_t gpu) {
  options.plan = {.asked = true, .device = memory_of_gpu(gpu)};
  const Json config = read_json(options.model_config_path);
  return plan_sketch(options, {family_registry().create(config), dtype});
}

// The published configuration of DeepSeek-V3, on 128 GPUs of 141 GiB. On fewer, and on GPUs of 80 GiB, it does not fit:
// while a layer is computed its whole weights are there.
TEST(PlanOfDeepseek, V3NeedsAbout128Gpus) {
  PretrainOptions options;
  options.model_config_path = (fixture("model") / "deepseek_v3.json").string();
  options.torch_dtype = TorchDtype::kBfloat16;
  options.optim = OptimizerType::kAdamwBf16;
  options.gradient_dtype = GradientType::kBfloat16;
  options.gradient_checkpointing = Recomputation::kOn;
  options.block_size = 4096;
  options.per_device_train_batch_size = 1;
  options.zero_stage = 3;
  options.num_processes = 128;
  constexpr std::size_t kH200 = kComparedGpus[3];
  const RunPlan plan = plan_on(options, DType::kBf16, kH200);
  std::int64_t parameters = 0;
  for (const auto& [name, count] : plan.parameters) parameters += count;
  EXPECT_EQ(parameters, 671'026'404'352 + 58 * 256);  // with the biases of the experts
  const std::size_t share = 671'026'419'200 / 128;
  EXPECT_NEAR(static_cast<double>(plan.memory.weights), 2.0 * static_cast<double>(share),
              1e-2 * static_cast<double>(share));
  EXPECT_NEAR(static_cast<double>(plan.memory.optimizer), 4.0 * static_cast<double>(share),
              1e-2 * static_cast<double>(share));
  // A layer of experts has 11.5 billion parameters; with the next one's they are activations.
  EXPECT_GT(plan.memory.arena, 2 * std::size_t{2} * 11'000'000'000);
  EXPECT_LE(plan.memory.total(), memory_of_gpu(kH200).available);
  EXPECT_GT(plan.memory.arena, memory_of_gpu(kComparedGpus[2]).available);
  options.num_processes = 96;
  EXPECT_GT(plan_on(options, DType::kBf16, kH200).memory.total(), memory_of_gpu(kH200).available);
}

TEST(PlanOfDeepseek, TheMiniatureFitsAGpuOf80GB) {
  PretrainOptions options;
  const std::string path = (source_dir() / "recipes/deepseek_v3/mini_80gb.yaml").string();
  const std::vector<std::string> recipe{"--config", path};
  (void)read_options(OptionTable(options), recipe, training_foreign_keys(), RecipeArgument::kTaken);
  options.model_config_path = (source_dir() / options.model_config_path).string();
  constexpr std::size_t kCard = 80'000'000'000;
  const RunPlan plan = plan_on(options, DType::kBf16, kCard);
  EXPECT_LE(plan.memory.total(), memory_of_gpu(kCard).available);
  EXPECT_GT(plan.memory.total(), kCard / 2);
}

}  // namespace
}  // namespace hone::test
