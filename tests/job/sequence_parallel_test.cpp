// Tests of sequence parallelism in tensor groups: gradients and losses of a group whose ranks have rows of the residual
// stream, next to those of one process and of the group that has it whole, on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "job/job_fixture.h"
#include "job/mixtures.h"
#include "job/tensor_group.h"
#include "model/tensor_parallel_model.h"
#include "ops/linear/linear.h"
#include "program/memory_plan.h"

namespace hone::test {
namespace {

using ::testing::HasSubstr;

Configs all_families() {
  Configs all = dense_families();
  all.merge(mixtures());
  return all;
}

TEST(SequenceParallel, GradientsAreThoseOfOneProcess) {
  for (const auto& [family, config] : all_families()) {
    const RankLosses one = tensor_group(config, {});
    for (const int size : {2, 4}) {
      // Capacities that the ranks do and do not divide, and more room than tokens: the last ranks have no row.
      for (const int more : {0, 7, 60}) {
        const RankLosses group = tensor_group(config, {.size = size, .rows = true, .more_capacity = more});
        expect_near_sums(group.sums, one.sums, family);
        expect_near_gradients(group.gradients, one.gradients, family);
      }
    }
  }
}

// Values are the same sums in other places. Gradients of what all ranks have whole, such as norms, the biases of sums,
// routers and the projections to latent rows, are added up over the rows of a rank and then over the ranks.
TEST(SequenceParallel, LossesAndGradientsOfDividedMatricesHaveTheBitsOfTheTensorGroup) {
  for (const auto& [family, config] : all_families()) {
    const std::unique_ptr<Model> model = model_of(config);
    for (const int size : {2, 4}) {
      const RankLosses whole = tensor_group(config, {.size = size});
      const RankLosses rows = tensor_group(config, {.size = size, .rows = true});
      EXPECT_EQ(rows.sums, whole.sums) << family;
      for (const WeightSpec& spec : model->weights()) {
        const bool is_whole = !is_divided(part_spec(spec, 0, size));
        const bool multiplies = spec.kind == WeightKind::linear || spec.kind == WeightKind::router;
        if (spec.shape.size() < 2 || (is_whole && multiplies)) continue;
        EXPECT_EQ(rows.gradients.at(spec.name), whole.gradients.at(spec.name)) << family << ", " << spec.name;
      }
    }
  }
}

TEST(SequenceParallel, RecomputationAndAnotherRunChangeNoBit) {
  for (const char* family : {"qwen2", "gpt2", "qwen3_moe", "deepseek_v3"}) {
    const std::string config = all_families().at(family);
    const RankLosses first = tensor_group(config, {.size = 2, .rows = true});
    for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers, Recompute::kAutomatic}) {
      for (const std::size_t budget : {std::size_t{0}, std::size_t{1} << 30}) {
        const RankLosses again =
            tensor_group(config, {.size = 2, .rows = true, .recompute = recompute, .budget = budget});
        EXPECT_EQ(again.sums, first.sums) << family;
        EXPECT_EQ(again.gradients, first.gradients) << family;
      }
    }
  }
}

// Between the passes a rank of four keeps a quarter of the residual stream, and of the results of norms.
TEST(SequenceParallel, ActivationsAreDivided) {
  constexpr int kLayers = 12;
  constexpr int kMore = 2000;
  const std::string config = SmallModel{.type = "llama", .layers = kLayers}.config();
  const auto arena = [&](bool rows, Recompute recompute) {
    const TensorGroup group{.size = 4, .rows = rows, .recompute = recompute, .more_capacity = kMore};
    return static_cast<double>(plan_memory(training_program(config, group), DeviceKind::kCpu).arena);
  };
  const double stream = kLayers * kMore * 32 * sizeof(float);
  // Recomputation keeps one sum of each layer; without it, both sums and the results of both norms are kept.
  EXPECT_LT(arena(true, Recompute::kLayers), arena(false, Recompute::kLayers) - 0.75 * stream);
  EXPECT_LT(arena(true, Recompute::kNone), arena(false, Recompute::kNone) - 4 * 0.75 * stream);
}

// A product with a weight that all ranks have whole, such as a router's, is computed of a rank's rows alone.
TEST(SequenceParallel, WholeWeightsMultiplyTheRowsOfARank) {
  for (const auto& [family, config] : mixtures()) {
    const TensorGroup group{.size = 4, .rows = true, .more_capacity = 0};
    const Program program = training_program(config, group);
    std::map<std::string, int> products;
    for (const Node& node : program.nodes()) {
      if (node.op->name() != "linear" || node.phase != Phase::kForward) continue;
      const Value& weight = program.value(node.inputs[LinearIn::weight]);
      if (weight.producer < 0) continue;  // a rank's part
      const Node& enters = program.nodes()[static_cast<std::size_t>(weight.producer)];
      const std::string& name = program.value(enters.inputs[0]).name;
      ++products[name.substr(name.rfind('.') + 1)];
      EXPECT_EQ(program.value(node.outputs[0]).type.shape[0], Dim(52 / 4)) << family << ", " << name;
    }
    EXPECT_GT(products["router"], 0) << family;
    const int layers_of_latent_rows = family == "deepseek_v3" ? 2 : 0;
    EXPECT_EQ(products["kv_down"], layers_of_latent_rows) << family;
    EXPECT_EQ(products["query_down"], layers_of_latent_rows) << family;
  }
}

class SequenceJob : public DividedJob {
 protected:
  SequenceJob()
      : DividedJob({.size_flag = "--tensor_parallel_size", .max_steps = 12, .eval_steps = 6}, all_families()) {}

  // Flags of a run whose groups divide rows.
  [[nodiscard]] static Flags by_rows(const Flags& more = {}) { return joined({"--sequence_parallel", "true"}, more); }
};

TEST_F(SequenceJob, ProcessesHaveTheLossesOfOne) {
  for (const auto& [name, config] : dense_families()) {
    run(name, name + " one", 1, 1);
    run(name, name + " 2", 1, 2, by_rows());
    expect_near(name + " 2", name + " one");
    run(name, name + " 2 x 2", 2, 2, by_rows());
    expect_near(name + " 2 x 2", name + " one");
  }
  for (const std::string name : {"llama", "gpt2"}) {
    run(name, name + " 4", 1, 4, by_rows());
    expect_near(name + " 4", name + " one");
  }
}

// Metrics of how tokens are spread over experts count each token once.
TEST_F(SequenceJob, MixturesHaveTheLossesAndLoadsOfOneProcess) {
  const Flags metrics{"loss", "eval_loss", "grad_norm", "expert_load_cv", "expert_load_max", "eval_expert_load_cv"};
  for (const auto& [name, config] : mixtures()) {
    const Flags keys = name == "deepseek_v3" ? Flags{"--aux_loss_alpha",  "0.01", "--bias_update_speed", "0.01",
                                                     "--mtp_loss_weight", "0.3"}
                                             : Flags{};
    run(name, name + " one", 1, 1, keys);
    for (const auto& [data, size] : {std::pair(1, 2), std::pair(2, 2), std::pair(1, 4)}) {
      const std::string output = text_of(name, " ", data, " x ", size);
      run(name, output, data, size, by_rows(keys));
      expect_near(output, name + " one", metrics);
      expect_near_weights(output, name + " one");
    }
  }
  expect_near("deepseek_v3 2 x 2", "deepseek_v3 one", {"aux_loss", "mtp_loss"});
}

TEST_F(SequenceJob, DividedStatesGradientsAndWeightsHaveTheLossesOfOne) {
  run("qwen3", "one", 1, 1);
  run("qwen3", "0", 2, 2, by_rows());
  for (const char* stage : {"1", "2", "3"}) {
    run("qwen3", stage, 2, 2, by_rows({"--zero_stage", stage}));
    expect_near(stage, "one");
  }
  EXPECT_EQ(weights("1"), weights("0"));
  EXPECT_EQ(weights("3"), weights("2"));
}

// Tokens, layers and experts are divided again.
TEST_F(SequenceJob, OtherGroupsNextToItHaveTheLossesOfOneProcess) {
  const std::map<std::string, Flags> groups{
      {"stages", {"--pipeline_parallel_size", "2", "--num_processes", "4"}},
      {"context", {"--context_parallel_size", "2", "--num_processes", "4"}},
      {"both", {"--pipeline_parallel_size", "2", "--context_parallel_size", "2", "--num_processes", "8"}}};
  for (const std::string name : {"qwen2", "gpt2 odd", "deepseek_v3"}) {
    run(name, name, 1, 1);
    tune(name, name + " tuned", 1, 1);
    for (const auto& [kind, flags] : groups) {
      const std::string output = name + " " + kind;
      run(name, output, 1, 2, by_rows(flags));
      expect_near(output, name);
      tune(name, output + " tuned", 1, 2, by_rows(flags));
      expect_near(output + " tuned", name + " tuned", kTuned);
      resume(name, output, 8, output + " whole", 1, 1);
      expect_near_end(output + " whole", name, 8);
    }
    expect_resumes(name, name + " repeats", 1, 2, by_rows(groups.at("both")));
  }
  const Environment one_thread(kOneThread);
  for (const auto& [kind, flags] : groups) {
    finish(arguments("deepseek_v3", "planned", 1, 2,
                     by_rows(joined(flags, {"--max_steps", "1", "--overwrite_output_dir", "true"}))));
  }
}

TEST_F(SequenceJob, TheSameJobHasTheSameBits) {
  run("qwen2", "a", 2, 2, by_rows());
  run("qwen2", "b", 2, 2, by_rows({"--gradient_checkpointing", "true"}));
  run("qwen2", "c", 2, 2, by_rows({"--gradient_checkpointing", "false"}));
  expect_same_bits("b", "a");
  expect_same_bits("c", "a");
}

// Nothing is trained, so that gradients of norms change nothing.
TEST_F(SequenceJob, LossesHaveTheBitsOfTheTensorGroup) {
  for (const char* name : {"qwen2", "gpt2", "llama odd"}) {
    const Flags frozen{"--learning_rate", "0"};
    run(name, "whole", 1, 2, joined(frozen, {"--overwrite_output_dir", "true"}));
    run(name, "rows", 1, 2, by_rows(joined(frozen, {"--overwrite_output_dir", "true"})));
    for (const char* metric : {"loss", "eval_loss", "entropy"}) {
      EXPECT_EQ(series("rows", metric), series("whole", metric)) << name << ", " << metric;
    }
  }
}

TEST_F(SequenceJob, ARunContinuesBitForBit) {
  const std::vector<Flags> kinds{
      {},
      {"--zero_stage", "3"},
      {"--torch_dtype", "bfloat16", "--gradient_checkpointing", "true"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    expect_resumes("gpt2", std::to_string(kind), kind < 2 ? 2 : 1, 2, by_rows(kinds[kind]));
  }
}

TEST_F(SequenceJob, ARunContinuesOnAnotherLayout) {
  for (const std::string name : {"qwen2", "llama odd"}) {
    run(name, name, 1, 1);
    const auto continued = [&](const std::string& from, int step, const std::string& to, int data, int size,
                               const Flags& more = {}) {
      resume(name, from, step, to, data, size, more);
      expect_near_end(to, name, step);
    };
    continued(name, 4, name + " a", 1, 2, by_rows());
    continued(name + " a", 8, name + " b", 2, 2, by_rows({"--zero_stage", "3"}));
    continued(name + " a", 8, name + " c", 1, 2);
    continued(name + " a", 8, name + " d", 1, 4, by_rows());
    continued(name + " a", 8, name + " e", 1, 1);
  }
}

TEST_F(SequenceJob, AModelOfAFolderIsFineTuned) {
  run("llama", "model", 1, 1);
  tune("model", "one", 1, 1);
  tune("model", "two", 1, 2, by_rows());
  tune("model", "four", 2, 2, by_rows({"--gradient_checkpointing", "true"}));
  for (const char* output : {"two", "four"}) {
    expect_near(output, "one", {"loss"});
    expect_near_weights(output, "one");
  }
}

TEST_F(SequenceJob, ThePlanIsThatOfTheRun) {
  const Environment one_thread(kOneThread);
  write_file(path("deep.json"), SmallModel{.type = "llama", .layers = 24}.config());
  // Runs as planned and returns the bytes that activations have at their peak.
  const auto planned = [&](const std::string& output, const Flags& more) {
    const Flags command = arguments("deep", output, 1, 4, joined({"--max_steps", "1"}, more));
    (void)finish_as_planned(command);
    const std::vector<Words> lines = planned_lines(plan_of(command), "peak");
    return lines.empty() ? 0.0 : planned_bytes(lines[0]);
  };
  for (const std::string recomputes : {"false", "true"}) {
    const Flags more{"--gradient_checkpointing", recomputes};
    const double whole = planned("whole " + recomputes, more);
    const double rows = planned("rows " + recomputes, by_rows(more));
    EXPECT_GT(rows, 0);
    EXPECT_LT(rows, whole) << recomputes;
  }
  EXPECT_GT(planned("some", by_rows({"--activation_memory_gib", "0.005"})), 0);
  for (const std::string family : {"gpt2", "deepseek_v3"}) {
    (void)finish_as_planned(
        arguments(family, family + " planned", 2, 2, by_rows({"--max_steps", "1", "--zero_stage", "3"})));
  }
}

TEST_F(SequenceJob, WhatIsMissingIsRefused) {
  const auto refused = [&](const std::string& config, int size, const Flags& more) {
    return refusal(arguments(config, "none", 1, size, by_rows(more)));
  };
  EXPECT_THAT(refused("llama", 1, {}), HasSubstr("sequence_parallel: divides tokens over a tensor group, but "
                                                 "tensor_parallel_size is 1 (--tensor_parallel_size 2, or "
                                                 "--sequence_parallel false)"));
  run("llama", "model", 1, 1, {"--max_steps", "1"});
  const Flags grpo{"--num_processes", "2", "--tensor_parallel_size", "2"};
  for (const Flags& more : {grpo, Flags{}}) {
    EXPECT_THAT(refusal(reinforcement("model", "none", by_rows(more))),
                HasSubstr("sequence_parallel: is for pretrain and sft; hone grpo computes all tokens on each rank"));
  }
}

}  // namespace
}  // namespace hone::test
