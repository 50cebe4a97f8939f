// Tests of runs of interleaved pipelines whose stages are divided again, next to those of one process, on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/files.h"
#include "core/strings.h"
#include "job/job_fixture.h"
#include "job/pipeline_products.h"
#include "support/models.h"

namespace hone::test::products {
namespace {

using ::testing::HasSubstr;

// Two stages of two chunks, of a layer each.
class PipelineChunksJob : public DividedJob {
 protected:
  PipelineChunksJob()
      : DividedJob({.size_flag = "--pipeline_parallel_size",
                    .max_steps = 8,
                    .eval_steps = 4,
                    .pretraining = {"--block_size", "200"}},
                   all_configs()) {}

  static Configs all_configs() {
    Configs all = families();
    all.merge(mixtures());
    return all;
  }

  static Flags chunks(const Flags& more = {}) { return joined({"--virtual_pipeline_parallel_size", "2"}, more); }
  static Flags groups(const char* flag, int size, int processes, const Flags& more = {}) {
    return chunks(joined({flag, std::to_string(size), "--num_processes", std::to_string(processes)}, more));
  }

  // Expects the losses and weights of the run `one`, that the run repeats and continues bit for bit, and that it
  // allocates what is planned.
  void expect_runs(const std::string& family, const std::string& name, int data, const Flags& more) const {
    run(family, name, data, 2, more);
    expect_near(name, family + " one", {"loss", "eval_loss", "grad_norm", "num_tokens"});
    expect_near_weights(name, family + " one");
    expect_resumes(family, name + " resumed", data, 2, more);
    EXPECT_EQ(weights(name + " resumed whole"), weights(name));
    const Environment one_thread(kOneThread);
    const Flags command = arguments(family, name + " planned", data, 2, joined(more, {"--max_steps", "1"}));
    EXPECT_EQ(planned_lines(plan_of(command), "stage ").size(), 2u);
    finish(command);
  }
};

TEST_F(PipelineChunksJob, TensorGroupsHaveTheLossesOfOneProcess) {
  for (const char* family : {"qwen2", "llama odd", "gpt2"}) run(family, std::string(family) + " one", 1, 1);
  expect_runs("qwen2", "qwen2 tensor", 1, groups("--tensor_parallel_size", 2, 4));
  expect_runs("llama odd", "llama tensor", 1, groups("--tensor_parallel_size", 2, 4));
  expect_runs("gpt2", "gpt2 tensor", 2, groups("--tensor_parallel_size", 2, 8, {"--zero_stage", "3"}));
}

TEST_F(PipelineChunksJob, GroupsThatDivideRowsHaveTheLossesOfOneProcess) {
  const Flags rows{"--sequence_parallel", "true"};
  for (const char* family : {"llama odd", "gpt2", "deepseek_v3"}) run(family, std::string(family) + " one", 1, 1);
  expect_runs("llama odd", "llama rows", 1, groups("--tensor_parallel_size", 2, 4, rows));
  expect_runs("gpt2", "gpt2 rows", 2, groups("--tensor_parallel_size", 2, 8, joined(rows, {"--zero_stage", "3"})));
  expect_runs("deepseek_v3", "deepseek_v3 rows", 1, groups("--tensor_parallel_size", 2, 4, rows));
  expect_near("deepseek_v3 rows", "deepseek_v3 one", {"expert_load_cv", "expert_load_max", "eval_expert_load_cv"});
}

TEST_F(PipelineChunksJob, ContextGroupsHaveTheLossesOfOneProcess) {
  run("qwen2", "qwen2 one", 1, 1);
  expect_runs("qwen2", "qwen2 context", 1, groups("--context_parallel_size", 2, 4));
}

TEST_F(PipelineChunksJob, DividedGradientsAndWeightsHaveTheLossesOfOneProcess) {
  run("qwen2", "qwen2 one", 1, 1);
  for (const char* stage : {"0", "1", "2", "3"}) {
    expect_runs("qwen2", text_of("zero ", stage), 2, chunks({"--zero_stage", stage}));
  }
  EXPECT_EQ(weights("zero 1"), weights("zero 0"));
  EXPECT_EQ(weights("zero 3"), weights("zero 2"));
}

TEST_F(PipelineChunksJob, MixturesHaveTheLossesOfOneProcess) {
  for (const auto& [family, config] : mixtures()) {
    run(family, family + " one", 1, 1);
    expect_runs(family, family + " whole", 1, chunks());
    expect_runs(family, family + " experts", 2, groups("--expert_parallel_size", 2, 4));
    for (const std::string& name : {family + " whole", family + " experts"}) {
      expect_near(name, family + " one", {"expert_load_cv", "expert_load_max", "eval_expert_load_cv"});
    }
  }
}

TEST_F(PipelineChunksJob, PredictionsOfFurtherTokensAreThoseOfOneProcess) {
  const Flags keys{"--aux_loss_alpha", "0.01", "--mtp_loss_weight", "0.3"};
  run("deepseek_v3", "one", 1, 1, keys);
  run("deepseek_v3", "chunks", 1, 2, chunks(keys));
  expect_near("chunks", "one", {"loss", "eval_loss", "grad_norm", "aux_loss", "mtp_loss"});
  expect_near_weights("chunks", "one");
}

TEST_F(PipelineChunksJob, AdaptersHaveTheLossesOfOneProcess) {
  run("llama odd", "model", 1, 1);
  const Flags adapter{"--use_peft", "true", "--lora_r", "4", "--lora_dropout", "0", "--learning_rate", "1e-3"};
  tune("model", "one", 1, 1, adapter);
  tune("model", "chunks", 1, 2, chunks(adapter));
  expect_near("chunks", "one", kTuned);
  tune("model", "again", 1, 2, chunks(adapter));
  EXPECT_EQ(read_file(path("again") / "adapter_model.safetensors"),
            read_file(path("chunks") / "adapter_model.safetensors"));
  EXPECT_THAT(refusal(fine_tuning("model", "none",
                                  joined(layout(1, 2), chunks({"--use_peft", "true", "--lora_target_modules",
                                                               "model.layers.[013].mlp.down_proj"})))),
              HasSubstr("virtual_pipeline_parallel_size: is 2 with pipeline_parallel_size 2, but chunk 1 of stage 0 "
                        "would have no trained weight"));
}

}  // namespace
}  // namespace hone::test::products
