// Compares the cost model of training steps with the rates that docs/performance.md records.
#include "planner/step_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "cli/bench/models.h"
#include "core/json_value.h"
#include "core/log.h"
#include "model/registry.h"
#include "planner/layout_problem.h"
#include "planner/layout_search.h"

namespace hone::test {
namespace {

// A run that was measured: bf16 weights, and gradients in bf16 unless it says otherwise.
struct MeasuredRun {
  const char* text;
  const char* device;
  const char* model;
  std::int64_t sequence = 0;
  Layout layout;
  double rate = 0;  // tokens/s a GPU
  std::int64_t processes = 1;
  OptimizerType optim = OptimizerType::kAdamwBf16;
  GradientType gradients = GradientType::kBfloat16;
  std::int64_t layers = 0;  // 0: the model's
};

constexpr Recomputation kNothing = Recomputation::kOff;
constexpr Recomputation kEveryLayer = Recomputation::kOn;
constexpr Recomputation kWhatMustBe = Recomputation::kAutomatic;

Layout batches(std::int64_t size, std::int64_t count, Recomputation recomputation) {
  return {.per_device_train_batch_size = size,
          .gradient_accumulation_steps = count,
          .gradient_checkpointing = recomputation};
}
Layout zero(std::int64_t stage, Layout layout) {
  layout.zero_stage = stage;
  return layout;
}
Layout tensor(std::int64_t size, Layout layout) {
  layout.tensor_parallel_size = size;
  return layout;
}
Layout sequence(Layout layout) {
  layout.sequence_parallel = true;
  return layout;
}
Layout stages(std::int64_t size, Layout layout) {
  layout.pipeline_parallel_size = size;
  return layout;
}
Layout chunks(std::int64_t count, Layout layout) {
  layout.virtual_pipeline_parallel_size = count;
  return layout;
}
Layout context(std::int64_t size, Layout layout) {
  layout.context_parallel_size = size;
  return layout;
}
Layout experts(std::int64_t size, Layout layout) {
  layout.expert_parallel_size = size;
  return layout;
}

const std::vector<MeasuredRun>& measured_runs() {
  constexpr OptimizerType k8bit = OptimizerType::kAdamw8bit;
  constexpr GradientType kWide = GradientType::kFloat32;
  static const std::vector<MeasuredRun> runs{
      {"Qwen2.5 7B, 2 x 4096", "H200", "qwen2.5-7b", 4096, batches(2, 4, kNothing), 13650},
      {"Llama 3.1 8B, 1 x 8192", "H200", "llama-3.1-8b", 8192, batches(1, 4, kNothing), 11614},
      {"Qwen2.5 7B, 4 x 4096", "H200", "qwen2.5-7b", 4096, batches(4, 4, kWhatMustBe), 13610},
      {"Qwen2.5 7B, 4 x 4096, layers", "H200", "qwen2.5-7b", 4096, batches(4, 4, kEveryLayer), 11613},
      {"Qwen2.5 7B, 16 x 1024", "H200", "qwen2.5-7b", 1024, batches(16, 4, kNothing), 14440},
      {"Llama 3.1 8B, 4 x 8192, auto", "H200", "llama-3.1-8b", 8192, batches(4, 4, kWhatMustBe), 10839},
      {"Llama 3.1 8B, 4 x 8192, layers", "H200", "llama-3.1-8b", 8192, batches(4, 4, kEveryLayer), 9996},
      {"Llama 3.1 8B, 1 x 8192, layers, adamw_8bit, every step an update", "H200", "llama-3.1-8b", 8192,
       batches(1, 1, kEveryLayer), 8931, 1, k8bit},
      {"14 layers of Qwen2.5 7B, 2 x 4096", "H100", "qwen2.5-7b", 4096, batches(2, 4, kNothing), 24490, 1,
       OptimizerType::kAdamwBf16, GradientType::kBfloat16, 14},
      {"the same, every step an update", "H100", "qwen2.5-7b", 4096, batches(2, 1, kNothing), 23596, 1,
       OptimizerType::kAdamwBf16, GradientType::kBfloat16, 14},
      {"the same, 2 micro-batches", "H100", "qwen2.5-7b", 4096, batches(2, 2, kNothing), 24416, 1,
       OptimizerType::kAdamwBf16, GradientType::kBfloat16, 14},
      {"Llama 3.1 8B, 1 x 8192, every step an update", "H200", "llama-3.1-8b", 8192, batches(1, 1, kNothing), 10894},
      {"Qwen2.5 7B, 16 x 1024, every step an update", "H200", "qwen2.5-7b", 1024, batches(16, 1, kNothing), 13858},
      {"Llama 3.1 8B, 1 x 8192, layers, paged_adamw_8bit, every step an update", "H200", "llama-3.1-8b", 8192,
       batches(1, 1, kEveryLayer), 6229, 1, OptimizerType::kPagedAdamw8bit},
      {"Llama 3.1 8B, 1 x 8192, layers", "H100", "llama-3.1-8b", 8192, batches(1, 4, kEveryLayer), 9720},
      {"GPT-2 small, 16 x 512, every step an update", "H200", "small", 512, batches(16, 1, kNothing), 1384265},
      {"GPT-2 medium, 16 x 512, every step an update", "H200", "medium", 512, batches(16, 1, kNothing), 494938},
      {"GPT-2 large, 8 x 512, every step an update", "H200", "large", 512, batches(8, 1, kNothing), 179688},
      {"GPT-2 xl, 4 x 512, every step an update", "H200", "xl", 512, batches(4, 1, kNothing), 73699},
      {"GPT-2 1.5b, 4 x 512, every step an update", "H200", "1.5b", 512, batches(4, 1, kNothing), 44878},
      {"GPT-2 3b, 2 x 512, every step an update", "H200", "3b", 512, batches(2, 1, kNothing), 22937},
      {"GPT-2 7b, 8 x 1024, every step an update", "H200", "7b", 1024, batches(8, 1, kNothing), 18216},
      {"GPT-2 13b, 4 x 1024, every step an update", "H200", "13b", 1024, batches(4, 1, kNothing), 8986},
      {"14 layers of Qwen2.5 7B, 2 x 4096, every step an update", "H200", "qwen2.5-7b", 4096, batches(2, 1, kNothing),
       23889, 1, OptimizerType::kAdamwBf16, GradientType::kBfloat16, 14},
      {"the same, data parallel on 2", "H200", "qwen2.5-7b", 4096, batches(2, 1, kNothing), 22668, 2,
       OptimizerType::kAdamwBf16, GradientType::kBfloat16, 14},
      {"Llama 3.1 8B, 2 x 8192, layers, zero_stage 2 on 2", "H100", "llama-3.1-8b", 8192,
       zero(2, batches(2, 2, kEveryLayer)), 9317, 2},
      {"the same, zero_stage 3 on 2", "H100", "llama-3.1-8b", 8192, zero(3, batches(2, 2, kEveryLayer)), 9231, 2},
      {"the same, zero_stage 3 on 2", "H200", "llama-3.1-8b", 8192, zero(3, batches(2, 2, kEveryLayer)), 9146, 2},
      {"the same, zero_stage 3 on 4", "H200", "llama-3.1-8b", 8192, zero(3, batches(2, 2, kEveryLayer)), 9133, 4},
      {"DeepSeek-V2-Lite, 4 x 2048, adamw_8bit, every step an update", "H200", "deepseek-v2-lite", 2048,
       batches(4, 1, kNothing), 23891, 1, k8bit},
      {"DeepSeek-V2-Lite, 4 x 2048, zero_stage 3 on 2", "H200", "deepseek-v2-lite", 2048,
       zero(3, batches(4, 4, kNothing)), 20456, 2},
      {"Llama 3.1 8B, 1 x 8192", "H200", "llama-3.1-8b", 8192, batches(1, 2, kNothing), 11263, 1,
       OptimizerType::kAdamwBf16, kWide},
      {"the same, tensor_parallel_size 2", "H200", "llama-3.1-8b", 8192, tensor(2, batches(1, 2, kNothing)), 10081, 2,
       OptimizerType::kAdamwBf16, kWide},
      {"the same, pipeline_parallel_size 2, 8 micro-batches", "H200", "llama-3.1-8b", 8192,
       stages(2, batches(1, 8, kNothing)), 10214, 2, OptimizerType::kAdamwBf16, kWide},
      {"the same, context_parallel_size 2", "H200", "llama-3.1-8b", 8192, context(2, batches(1, 2, kNothing)), 10003, 2,
       OptimizerType::kAdamwBf16, kWide},
      {"DeepSeek-V2-Lite, 4 x 2048, adamw_8bit, expert_parallel_size 2", "H200", "deepseek-v2-lite", 2048,
       experts(2, batches(4, 1, kNothing)), 18006, 2, k8bit, kWide},
      {"the same, 4 micro-batches", "H200", "deepseek-v2-lite", 2048, experts(2, batches(4, 4, kNothing)), 19551, 2,
       k8bit, kWide},
      {"the same, expert_parallel_size 4, 1 micro-batch", "H200", "deepseek-v2-lite", 2048,
       experts(4, batches(4, 1, kNothing)), 12633, 4, k8bit, kWide},
      {"Llama 3.1 8B, 2 x 8192, layers", "H200", "llama-3.1-8b", 8192, batches(2, 2, kEveryLayer), 9565},
      {"the same, zero_stage 2 on 4", "H200", "llama-3.1-8b", 8192, zero(2, batches(2, 2, kEveryLayer)), 9311, 4},
      {"DeepSeek-V2-Lite, 4 x 2048, zero_stage 3 on 4", "H200", "deepseek-v2-lite", 2048,
       zero(3, batches(4, 4, kNothing)), 19235, 4},
      {"the same, adamw_8bit, zero_stage 1 on 4", "H200", "deepseek-v2-lite", 2048, zero(1, batches(4, 4, kNothing)),
       25959, 4, k8bit},
      {"GPT-2 7b, 8 x 1024, every step an update, zero_stage 1 on 4", "H200", "7b", 1024,
       zero(1, batches(8, 1, kNothing)), 16903, 4},
      {"GPT-2 13b, 8 x 1024, every step an update, zero_stage 1 on 4", "H200", "13b", 1024,
       zero(1, batches(8, 1, kNothing)), 9025, 4},
      {"Qwen2.5 1.5B, 8 x 1024, 2 micro-batches", "H200", "qwen2.5-1.5b", 1024, batches(8, 2, kNothing), 56383},
      {"the same, data parallel on 2", "H200", "qwen2.5-1.5b", 1024, batches(8, 2, kNothing), 54748, 2},
      {"the same, data parallel on 4", "H200", "qwen2.5-1.5b", 1024, batches(8, 2, kNothing), 54203, 4},
      {"Llama 3.1 8B, 2 x 8192, auto, zero_stage 3 on 2", "H200", "llama-3.1-8b", 8192,
       zero(3, batches(2, 2, kWhatMustBe)), 10861, 2},
      {"the same on 4", "H200", "llama-3.1-8b", 8192, zero(3, batches(2, 2, kWhatMustBe)), 10957, 4},
      {"the same, zero_stage 2 on 4", "H200", "llama-3.1-8b", 8192, zero(2, batches(2, 2, kWhatMustBe)), 11056, 4},
      {"Llama 3.1 8B, 1 x 8192, 4 micro-batches, zero_stage 3 on 2", "H200", "llama-3.1-8b", 8192,
       zero(3, batches(1, 4, kNothing)), 10584, 2},
      {"DeepSeek-V2-Lite, 4 x 2048, zero_stage 2 on 2", "H200", "deepseek-v2-lite", 2048,
       zero(2, batches(4, 4, kNothing)), 23494, 2},
      {"the same, zero_stage 1", "H200", "deepseek-v2-lite", 2048, zero(1, batches(4, 4, kNothing)), 26173, 2},
      {"the same, adamw_8bit", "H200", "deepseek-v2-lite", 2048, zero(1, batches(4, 4, kNothing)), 26307, 2, k8bit},
      {"Llama 3.1 8B, 1 x 8192, tensor_parallel_size 2 (2)", "H200", "llama-3.1-8b", 8192,
       tensor(2, batches(1, 2, kNothing)), 9815, 2, OptimizerType::kAdamwBf16, kWide},
      {"the same, sequence_parallel", "H200", "llama-3.1-8b", 8192, sequence(tensor(2, batches(1, 2, kNothing))), 9685,
       2, OptimizerType::kAdamwBf16, kWide},
      {"Llama 3.1 8B, 1 x 8192, pipeline_parallel_size 2, 8 micro-batches (2)", "H200", "llama-3.1-8b", 8192,
       stages(2, batches(1, 8, kNothing)), 10092, 2, OptimizerType::kAdamwBf16, kWide},
      {"the same, virtual_pipeline_parallel_size 2", "H200", "llama-3.1-8b", 8192,
       chunks(2, stages(2, batches(1, 8, kNothing))), 10377, 2, OptimizerType::kAdamwBf16, kWide},
  };
  return runs;
}

double predicted(const MeasuredRun& run, StepTime& time) {
  PretrainOptions options;
  options.plan.asked = true;
  options.model_name_or_path = run.model;
  options.plan.device = memory_of_gpu(static_cast<std::size_t>(built_in_model(run.device).memory_bytes));
  options.torch_dtype = TorchDtype::kBfloat16;
  options.optim = run.optim;
  options.gradient_dtype = run.gradients;
  options.block_size = run.sequence;
  options.num_processes = run.processes;
  apply(run.layout, options);
  Json config = parse_json(bench_model_config(run.model), run.model);
  if (run.layers > 0) config["num_hidden_layers"] = run.layers;
  const ModelSketch sketch{family_registry().create(config), DType::kBf16};
  const LayoutProblem problem = layout_problem(options, {}, sketch, job_devices(options, run.device));
  const LayoutPlan plan = plan_layout(problem, run.layout);
  time = plan.time;
  // A group that computes the same batches shares the rate.
  TrainingOptions there = options;
  const double tokens = static_cast<double>(run.layout.per_device_train_batch_size *
                                            run.layout.gradient_accumulation_steps * run.sequence);
  return tokens * there.mesh().readers() / static_cast<double>(run.processes) / plan.time.total();
}

TEST(StepTime, IsThatOfMeasuredRuns) {
  set_quiet(true);
  int near = 0;
  for (const MeasuredRun& run : measured_runs()) {
    StepTime time;
    const double rate = predicted(run, time);
    const double ratio = rate / run.rate;
    near += std::abs(ratio - 1) <= 0.1 ? 1 : 0;
    std::printf("%5.3f  %6.0f of %6.0f tokens/s a GPU  %s %s: %s\n", ratio, rate, run.rate, run.device, run.text,
                reason_of(time).c_str());
    EXPECT_NEAR(ratio, 1, 0.2) << run.text;
  }
  // One step of GPT-2's smallest shape takes 6 ms, of which the model does not know what the host takes.
  EXPECT_GE(near, static_cast<int>(measured_runs().size()) - 1);
  set_quiet(false);
}

}  // namespace
}  // namespace hone::test
