// Tests of adapters in tensor groups: gradients, losses and completions next to those of one process, on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "core/files.h"
#include "core/strings.h"
#include "job/job_fixture.h"
#include "job/mixtures.h"
#include "job/tensor_group.h"
#include "model/lora.h"
#include "model/tensor_parallel_model.h"

namespace hone::test {
namespace {

using ::testing::HasSubstr;

// Adapters by what they adapt: some parts of a block; all linear layers, with dropout; everything else that is trained
// with them; magnitudes.
std::map<std::string, LoraConfig> adapters_of(const std::string& family) {
  const bool is_gpt2 = family.starts_with("gpt2");
  using Names = std::vector<std::string>;
  std::map<std::string, LoraConfig> adapters{
      {"some", {.r = 4, .alpha = 8, .target_modules = is_gpt2 ? Names{"c_attn"} : Names{"q_proj", "v_proj"}}},
      {"all", {.r = 4, .alpha = 8, .dropout = 0.2, .target_modules = {"all-linear"}}},
      {"tables",
       {.r = 4,
        .alpha = 8,
        .target_modules = is_gpt2 ? Names{"wte", "lm_head", "c_proj"} : Names{"embed_tokens", "lm_head", "o_proj"},
        .bias = LoraBias::kAll}},
      {"copies",
       {.r = 4,
        .alpha = 8,
        .target_modules = is_gpt2 ? Names{"c_attn", "mlp.c_proj"} : Names{"k_proj", "down_proj"},
        .modules_to_save = is_gpt2 ? Names{"wte", "lm_head"} : Names{"embed_tokens", "lm_head"},
        .bias = LoraBias::kLoraOnly}}};
  LoraConfig dora{
      .r = 4, .alpha = 8, .dropout = 0.1, .target_modules = {"q_proj", "o_proj", "up_proj", "down_proj"}, .dora = true};
  if (is_gpt2) dora.target_modules = {"all-linear"};
  adapters.emplace("dora", std::move(dora));
  return adapters;
}

std::unique_ptr<Model> adapted(const std::string& config, const LoraConfig& adapter) {
  return std::make_unique<LoraModel>(model_of(config), adapter);
}

TEST(TensorAdapters, GradientsAreThoseOfOneProcess) {
  for (const auto& [family, config] : dense_families()) {
    for (const auto& [name, adapter] : adapters_of(family)) {
      const MakeModel make = [&] { return adapted(config, adapter); };
      const RankLosses one = tensor_group(make, {});
      for (const int size : {2, 4}) {
        SCOPED_TRACE(text_of(family, ", ", name, ", ", size));
        const RankLosses group = tensor_group(make, {.size = size});
        expect_near_sums(group.sums, one.sums, "sums");
        expect_near_gradients(group.gradients, one.gradients, "gradients");
      }
    }
  }
}

TEST(TensorAdapters, DividedTokensHaveTheGradientsOfOneProcess) {
  for (const char* family : {"llama odd", "qwen2", "gpt2"}) {
    const std::string config = dense_families().at(family);
    for (const auto& [name, adapter] : adapters_of(family)) {
      const MakeModel make = [&] { return adapted(config, adapter); };
      const RankLosses one = tensor_group(make, {});
      for (const int size : {2, 4}) {
        SCOPED_TRACE(text_of(family, ", ", name, ", ", size));
        const RankLosses group = tensor_group(make, {.size = size, .rows = true});
        expect_near_sums(group.sums, one.sums, "sums");
        expect_near_gradients(group.gradients, one.gradients, "gradients");
      }
    }
  }
}

TEST(TensorAdapters, MixturesHaveTheGradientsOfOneProcess) {
  for (const auto& [family, config] : mixtures()) {
    const bool is_latent = family.starts_with("deepseek");
    const LoraConfig adapter{.r = 4,
                             .alpha = 8,
                             .dropout = 0.2,
                             .target_modules = is_latent ? std::vector<std::string>{"q_b_proj", "kv_b_proj", "o_proj"}
                                                         : std::vector<std::string>{"q_proj", "v_proj", "o_proj"}};
    const MakeModel make = [&] { return adapted(config, adapter); };
    const RankLosses one = tensor_group(make, {});
    for (const int size : {2, 4}) {
      SCOPED_TRACE(text_of(family, ", ", size));
      const RankLosses group = tensor_group(make, {.size = size});
      expect_near_sums(group.sums, one.sums, "sums");
      expect_near_gradients(group.gradients, one.gradients, "gradients");
    }
  }
}

TEST(TensorAdapters, RecomputationAndAnotherRunChangeNoBit) {
  const std::string config = dense_families().at("qwen2");
  const MakeModel make = [&] { return adapted(config, adapters_of("qwen2").at("all")); };
  const RankLosses first = tensor_group(make, {.size = 2});
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
    const RankLosses again = tensor_group(make, {.size = 2, .recompute = recompute});
    EXPECT_EQ(again.sums, first.sums);
    EXPECT_EQ(again.gradients, first.gradients);
  }
}

// B is divided where rows of the weight are, and A where its columns are.
TEST(TensorAdapters, TheOtherFactorIsWhole) {
  const std::unique_ptr<Model> part = std::make_unique<TensorParallelModel>(
      adapted(dense_families().at("llama"), {.r = 4, .alpha = 8, .target_modules = {"all-linear"}}), 1, 4);
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const WeightSpec& spec : part->weights()) shapes[spec.name] = spec.shape;
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shapes.at("layers.0.attention.qkv.lora_A"), (Shape{12, 32}));
  EXPECT_EQ(shapes.at("layers.0.attention.qkv.lora_B"), (Shape{24, 4}));
  EXPECT_EQ(shapes.at("layers.0.attention.out.lora_A"), (Shape{4, 8}));
  EXPECT_EQ(shapes.at("layers.0.attention.out.lora_B"), (Shape{32, 4}));
  EXPECT_EQ(shapes.at("layers.0.mlp.gate_up.lora_B"), (Shape{24, 4}));
  EXPECT_EQ(shapes.at("layers.0.mlp.down.lora_A"), (Shape{4, 12}));
}

// Flags of adapters of all linear layers; of some parts of blocks, so that rows of their B belong to none; and of
// everything else that is trained with them.
const Flags kAll{"--use_peft", "true", "--lora_r", "4", "--lora_target_modules", "all-linear", "--lora_dropout", "0"};
const Flags kSome = joined(kAll, {"--lora_target_modules", "q_proj,v_proj,down_proj"});
const Flags kTables = joined(
    kAll, {"--lora_target_modules", "q_proj,embed_tokens", "--lora_modules_to_save", "lm_head", "--lora_bias", "all"});
// Masks depend on the place of an element, and on the process that computes a sequence.
const Flags kDropout{"--lora_dropout", "0.1"};

class TensorAdapterJob : public DividedJob {
 protected:
  TensorAdapterJob()
      : DividedJob({.size_flag = "--tensor_parallel_size", .max_steps = 6, .eval_steps = 3}, dense_families()) {
    for (const auto& [family, config] : mixtures()) write_file(path(family + ".json"), config);
  }

  // Makes a model to adapt.
  void make_model(const std::string& family) const { run(family, family, 1, 1); }
  [[nodiscard]] Flags adapting(const std::string& model, const std::string& output, int data, int size,
                               const Flags& more) const {
    return fine_tuning(
        model, output,
        joined(joined({"--max_steps", "6", "--save_steps", "2", "--learning_rate", "1e-3"}, layout(data, size)), more));
  }
  void adapt(const std::string& model, const std::string& output, int data, int size, const Flags& more) const {
    finish(adapting(model, output, data, size, more));
  }
  [[nodiscard]] std::string adapter(const std::string& output) const {
    return read_file(path(output) / "adapter_model.safetensors");
  }
};

TEST_F(TensorAdapterJob, ProcessesHaveTheLossesOfOne) {
  const std::vector<std::pair<std::string, Flags>> cases{{"llama", joined(kAll, {"--use_dora", "true"})},
                                                         {"llama odd", kTables},
                                                         {"qwen2", kSome},
                                                         {"qwen2", kTables},
                                                         {"gpt2", kAll}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [family, kind] = cases[i];
    if (i == 0 || family != cases[i - 1].first) make_model(family);
    const std::string one = text_of(i, " one");
    adapt(family, one, 1, 1, kind);
    for (const auto& [data, size] : {std::pair{1, 2}, {2, 2}, {1, 4}}) {
      const std::string output = text_of(i, ": ", data, " x ", size);
      adapt(family, output, data, size, kind);
      expect_near(output, one, kTuned);
      expect_near_weights(output, one);
    }
  }
}

TEST_F(TensorAdapterJob, DropoutDoesNotDependOnTheGroup) {
  make_model("qwen3");
  for (const int data : {1, 2}) {
    const std::string one = text_of(data, " x 1");
    adapt("qwen3", one, data, 1, joined(kAll, kDropout));
    adapt("qwen3", text_of(data, " x 2"), data, 2, joined(kAll, kDropout));
    expect_near(text_of(data, " x 2"), one, kTuned);
  }
  adapt("qwen3", "none", 1, 1, kAll);
  EXPECT_NE(series("none", "loss"), series("1 x 1", "loss"));
}

TEST_F(TensorAdapterJob, DividedStatesAndStagesHaveTheLossesOfOne) {
  make_model("llama");
  adapt("llama", "one", 1, 1, kAll);
  adapt("llama", "0", 2, 2, kAll);
  const std::vector<Flags> kinds{{"--zero_stage", "1"},
                                 {"--zero_stage", "2"},
                                 {"--sequence_parallel", "true"},
                                 {"--pipeline_parallel_size", "2", "--num_processes", "4"},
                                 {"--context_parallel_size", "2", "--num_processes", "4"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string output = text_of("kind ", kind);
    adapt("llama", output, kind < 3 ? 2 : 1, 2, joined(kAll, kinds[kind]));
    expect_near(output, "one", kTuned);
    expect_near_weights(output, "one");
  }
  EXPECT_EQ(adapter("kind 0"), adapter("0"));
}

TEST_F(TensorAdapterJob, TheSameJobHasTheSameBitsAndContinuesBitForBit) {
  make_model("qwen2");
  const std::vector<Flags> kinds{kSome, kTables, joined(joined(kAll, kDropout), {"--torch_dtype", "bfloat16"}),
                                 joined(kTables, {"--optim", "adamw_8bit"})};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string name = text_of("kind ", kind);
    adapt("qwen2", name, 2, 2, kinds[kind]);
    adapt("qwen2", name + " again", 2, 2, joined(kinds[kind], {"--gradient_checkpointing", "true"}));
    EXPECT_EQ(adapter(name + " again"), adapter(name));
    copy_checkpoint(name, name + " parts", 2);
    adapt("qwen2", name + " parts", 2, 2, kinds[kind]);
    EXPECT_EQ(adapter(name + " parts"), adapter(name));
  }
}

TEST_F(TensorAdapterJob, ARunContinuesOnAnotherLayout) {
  for (const auto& [family, kind] : {std::pair{"qwen2", &kSome}, {"llama", &kTables}, {"gpt2", &kAll}}) {
    const std::string name = family;
    make_model(name);
    const auto continued = [&](const std::string& from, int step, const std::string& to, int data, int size,
                               const Flags& more = {}) {
      copy_checkpoint(from, to, step);
      adapt(name, to, data, size, joined(*kind, more));
      expect_near_end(to, name + " one", step);
      expect_near_weights(to, name + " one");
    };
    adapt(name, name + " one", 1, 1, *kind);
    continued(name + " one", 2, name + " a", 1, 2);
    continued(name + " a", 4, name + " b", 2, 2, {"--zero_stage", "1"});
    continued(name + " b", 4, name + " c", 1, 1);
    continued(name + " a", 4, name + " d", 1, 4);
  }
}

TEST_F(TensorAdapterJob, AnEvaluationHasTheAnswersOfOneProcess) {
  std::string problems;
  for (int i = 1; i <= 8; ++i) problems += text_of("{\"problem\": \"", i, " + 1\", \"answer\": \"", i + 1, "\"}\n");
  write_file(path("problems.jsonl"), problems);
  make_model("qwen2");
  adapt("qwen2", "adapter", 1, 2, kTables);
  const auto answers = [&](const std::string& size) {
    const std::string output = "answers " + size;
    finish({"eval", path("adapter").string(), "--dataset_name", path("problems.jsonl").string(), "--prompt_template",
            "{problem}", "--max_model_len", "96", "--device", "cpu", "--tensor_parallel_size", size, "--output_dir",
            path(output).string()});
    return read_file(path(output) / "samples.jsonl");
  };
  const std::string one = answers("1");
  EXPECT_GT(one.size(), 1000u);
  EXPECT_EQ(answers("2"), one);
}

TEST_F(TensorAdapterJob, ThePlanIsThatOfTheRun) {
  const Environment one_thread(kOneThread);
  make_model("llama");
  const auto weights = [&](int size) {
    return finish_as_planned(adapting("llama", text_of("planned ", size), 1, size, joined(kAll, {"--max_steps", "1"})));
  };
  EXPECT_LT(weights(2), weights(1) * 0.6);
}

TEST_F(TensorAdapterJob, WhatIsMissingIsRefused) {
  make_model("llama");
  const auto refused = [&](const Flags& more) { return refusal(adapting("llama", "none", 1, 2, joined(kAll, more))); };
  EXPECT_THAT(refused({"--zero_stage", "3", "--num_processes", "4"}),
              HasSubstr("zero_stage: 3 divides trained weights, of which an adapter has few"));
}

}  // namespace
}  // namespace hone::test
