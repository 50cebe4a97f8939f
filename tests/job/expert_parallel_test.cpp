// Tests of expert parallelism: gradients and losses of expert groups next to those of one process, on CPUs.
#include "model/expert_parallel_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "backend/collective.h"
#include "cli/program.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/random.h"
#include "model/registry.h"
#include "model/tensor_parallel_model.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/miniature.h"
#include "support/models.h"
#include "support/paths.h"
#include "system/meeting.h"
#include "train/loss_program.h"
#include "train/metrics.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kMixtureVocabulary = 308;

// Small models of the families, with 4 or 8 experts, dense layers and shared experts.
std::map<std::string, std::string> mixtures() {
  const std::string shared =
      R"("vocab_size": 308, "hidden_size": 32, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
         "rope_theta": 10000.0, "initializer_range": 0.05, "tie_word_embeddings": false,
         "num_attention_heads": 4, "num_key_value_heads": 4, "num_experts_per_tok": 2)";
  return {{"qwen3_moe", R"({"model_type": "qwen3_moe", "head_dim": 8, "num_hidden_layers": 3, "num_experts": 4,
             "moe_intermediate_size": 24, "intermediate_size": 48, "norm_topk_prob": true, "mlp_only_layers": [0],
             "output_router_logits": true, "router_aux_loss_coef": 0.01, )" +
                            shared + "}"},
          {"mixtral", R"({"model_type": "mixtral", "num_hidden_layers": 2, "num_local_experts": 4,
             "intermediate_size": 40, )" +
                          shared + "}"},
          {"deepseek_v3", R"({"model_type": "deepseek_v3", "num_hidden_layers": 2, "n_routed_experts": 8,
             "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
             "moe_intermediate_size": 16, "intermediate_size": 40, "norm_topk_prob": true,
             "routed_scaling_factor": 1.5, "kv_lora_rank": 20, "q_lora_rank": 24, "qk_nope_head_dim": 16,
             "qk_rope_head_dim": 8, "v_head_dim": 12, "num_nextn_predict_layers": 1, "head_dim": 8, )" +
                              shared + "}"}};
}

std::unique_ptr<Model> mixture_of(const std::string& family) {
  return family_registry().create(parse_json(mixtures().at(family), "config"));
}

// Documents of a rank; those of different ranks differ in number and length.
std::vector<std::vector<TokenId>> documents_of_rank(int rank) {
  const RandomStream random(static_cast<std::uint64_t>(rank) + 3, "documents");
  std::vector<std::vector<TokenId>> documents;
  std::uint64_t index = 0;
  for (int d = 0; d <= rank; ++d) {
    std::vector<TokenId>& document = documents.emplace_back();
    for (int i = 0; i < 17 + 5 * d; ++i) {
      document.push_back(static_cast<TokenId>(random.below(index++, kMixtureVocabulary)));
    }
  }
  return documents;
}

constexpr Capacity kCapacity{160, 8};

using Gradients = std::map<std::string, std::vector<float>>;

std::vector<float> floats_of_bytes(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void add_to(std::vector<float>& sums, std::span<const float> more) {
  sums.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

// Sum of the losses of some ranks' documents, and the gradients.
struct MixtureResults {
  double loss = 0;
  Gradients gradients;
};

// One process computes the documents of `ranks` ranks, one micro-batch after the other.
MixtureResults one_process_of(const std::string& family, int ranks) {
  const std::unique_ptr<Model> model = mixture_of(family);
  const TensorStore weights = random_weights(*model, 5, DType::kF32, cpu_device());
  TensorStore gradients(cpu_device(), weight_types(*model, DType::kF32));
  Executable executable(trace_training(*model, {.capacity = kCapacity}), std::make_shared<Arena>(cpu_device()),
                        {.weights = &weights, .gradients = &gradients});
  MixtureResults results;
  for (int rank = 0; rank < ranks; ++rank) {
    results.loss += run_loss(executable, batch_of(documents_of_rank(rank)), 0.01).loss;
  }
  for (const WeightSpec& spec : model->weights()) {
    results.gradients[spec.name] = floats_of_bytes(gradients.download(spec.name));
  }
  return results;
}

// The same by a thread for each rank of an expert group. Gradients of experts come from the rank that has them; those
// of other weights are added.
MixtureResults expert_group_of(const std::string& family, int size, Recompute recompute = Recompute::kNone) {
  register_operations();
  MixtureResults results;
  std::vector<double> losses(static_cast<std::size_t>(size));
  std::vector<Gradients> of_rank(static_cast<std::size_t>(size));
  const std::uint16_t port = listen_on(0, true).port;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Peers peers({.rank = rank, .size = size, .local_rank = rank, .local_size = size, .port = port});
      const std::unique_ptr<Collective> group = make_collective(cpu_device(), peers);
      const CollectiveScope scope(MeshCollectives{.experts = group.get()});
      const ExpertParallelModel model(mixture_of(family), rank, size);
      const TensorStore whole = random_weights(model.whole(), 5, DType::kF32, cpu_device());
      TensorStore weights(cpu_device(), weight_types(model, DType::kF32));
      for (std::size_t i = 0; i < model.weights().size(); ++i) {
        weights.upload(model.weights()[i].name, part_of(model, i, whole));
      }
      TensorStore gradients(cpu_device(), weight_types(model, DType::kF32));
      LossProgramOptions options{.capacity = kCapacity};
      options.compile.recompute = recompute;
      Executable executable(trace_training(model, options), std::make_shared<Arena>(cpu_device()),
                            {.weights = &weights, .gradients = &gradients});
      const auto r = static_cast<std::size_t>(rank);
      losses[r] = run_loss(executable, batch_of(documents_of_rank(rank)), 0.01).loss;
      for (const WeightSpec& spec : model.weights()) {
        of_rank[r][spec.name] = floats_of_bytes(gradients.download(spec.name));
      }
      peers.barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const double loss : losses) results.loss += loss;
  const std::unique_ptr<Model> model = mixture_of(family);
  for (const WeightSpec& spec : model->weights()) {
    std::vector<float>& all = results.gradients[spec.name];
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<float>& own = of_rank[static_cast<std::size_t>(rank)].at(spec.name);
      const WeightSpec part = expert_spec(spec, rank, size);
      if (!is_divided(part)) {
        add_to(all, own);
        continue;
      }
      all.resize(own.size() * static_cast<std::size_t>(size));
      put_part(part, spec, sizeof(float), std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
    }
  }
  return results;
}

TEST(ExpertParallel, GradientsAreThoseOfOneProcess) {
  for (const auto& [family, config] : mixtures()) {
    for (const int size : {2, 4}) {
      const MixtureResults one = one_process_of(family, size);
      const MixtureResults group = expert_group_of(family, size);
      EXPECT_NEAR(group.loss, one.loss, 1e-5 * std::abs(one.loss)) << family;
      for (const auto& [name, gradient] : one.gradients) {
        EXPECT_LT(relative_difference(group.gradients.at(name), gradient), 1e-5) << family << ", " << name;
      }
    }
  }
}

TEST(ExpertParallel, RecomputationAndAnotherRunChangeNoBit) {
  const MixtureResults first = expert_group_of("deepseek_v3", 4);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
    const MixtureResults again = expert_group_of("deepseek_v3", 4, recompute);
    EXPECT_EQ(again.loss, first.loss);
    EXPECT_EQ(again.gradients, first.gradients);
  }
}

TEST(ExpertParallel, PartsOfAllRanksAreTheWeight) {
  for (const auto& [family, config] : mixtures()) {
    const std::unique_ptr<Model> model = mixture_of(family);
    const TensorStore weights = random_weights(*model, 5, DType::kF32, cpu_device());
    std::vector<std::unique_ptr<ExpertParallelModel>> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      ranks.push_back(std::make_unique<ExpertParallelModel>(mixture_of(family), rank, 4));
    }
    for (std::size_t i = 0; i < model->weights().size(); ++i) {
      const WeightSpec& spec = model->weights()[i];
      const std::vector<std::byte> whole = weights.download(spec.name);
      std::vector<std::byte> assembled(whole.size());
      std::size_t bytes = 0;
      for (int rank = 0; rank < 4; ++rank) {
        const std::vector<std::byte> part = part_of(*ranks[static_cast<std::size_t>(rank)], i, weights);
        put_part(expert_spec(spec, rank, 4), spec, sizeof(float), part, assembled);
        bytes += part.size();
      }
      EXPECT_EQ(assembled, whole) << family << ", " << spec.name;
      EXPECT_EQ(bytes, whole.size() * (spec.kind == WeightKind::expert ? 1 : 4)) << family << ", " << spec.name;
    }
  }
}

TEST(ExpertParallel, WhatTheProcessesDoNotDivideIsNamed) {
  const auto refused = [](std::unique_ptr<Model> model, int size) -> std::string {
    try {
      const ExpertParallelModel divided(std::move(model), 0, size);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(refused(mixture_of("qwen3_moe"), 3), HasSubstr("expert_parallel_size: is 3, but a layer has 4 experts"));
  EXPECT_THAT(refused(std::move(FixtureModel("llama").model), 2),
              HasSubstr("expert_parallel_size: is 2, but the model has no mixture of experts"));
}

// Runs of the program with a new model of each family.
class ExpertJob : public ::testing::Test {
 protected:
  ExpertJob() {
    write_miniature(folder_.path());
    for (const auto& [family, config] : mixtures()) write_file(path(family + ".json"), config);
  }

  [[nodiscard]] fs::path path(const std::string& relative) const { return folder_.path() / relative; }

  // Arguments of a pre-training of 8 sequences a step, over an evaluation and the end of an epoch.
  [[nodiscard]] std::vector<std::string> arguments(const std::string& family, const std::string& output, int processes,
                                                   int experts, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = pretrain_arguments(folder_.path(), {"--model_config_path",
                                                                       path(family + ".json").string(),
                                                                       "--per_device_train_batch_size",
                                                                       "2",
                                                                       "--gradient_accumulation_steps",
                                                                       std::to_string(4 / processes),
                                                                       "--num_processes",
                                                                       std::to_string(processes),
                                                                       "--expert_parallel_size",
                                                                       std::to_string(experts),
                                                                       "--max_steps",
                                                                       "8",
                                                                       "--save_steps",
                                                                       "4",
                                                                       "--learning_rate",
                                                                       "2e-3",
                                                                       "--device",
                                                                       "cpu",
                                                                       "--test_split_size",
                                                                       "0.1",
                                                                       "--eval_strategy",
                                                                       "steps",
                                                                       "--eval_steps",
                                                                       "4",
                                                                       "--output_dir",
                                                                       path(output).string()});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  void run(const std::string& family, const std::string& output, int processes, int experts,
           const std::vector<std::string>& more = {}) const {
    const Ended ended = run_program(arguments(family, output, processes, experts, more));
    ASSERT_EQ(ended.code, 0) << ended.output;
  }

  [[nodiscard]] std::vector<double> series(const std::string& output, std::string_view metric) const {
    return metric_series(read_metrics(path(output) / "metrics.jsonl"), std::string(metric)).values;
  }

  // Expects the same metrics and final weights up to the rounding of f32.
  void expect_near(const std::string& a, const std::string& b, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> metrics{"loss",           "eval_loss",       "grad_norm",
                                     "entropy",        "epoch",           "num_tokens",
                                     "expert_load_cv", "expert_load_max", "eval_expert_load_cv"};
    metrics.insert(metrics.end(), more.begin(), more.end());
    for (const std::string& metric : metrics) {
      const std::vector<double> one = series(a, metric);
      const std::vector<double> other = series(b, metric);
      ASSERT_EQ(one.size(), other.size()) << metric;
      ASSERT_FALSE(one.empty()) << metric;
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_NEAR(one[i], other[i], 1e-5) << a << ", " << metric << ", line " << i;
      }
    }
    const TensorStore left = weights_of(a);
    const TensorStore right = weights_of(b);
    for (const NamedType& each : left.tensors()) {
      EXPECT_LT(
          relative_difference(floats_of_bytes(right.download(each.name)), floats_of_bytes(left.download(each.name))),
          1e-4)
          << a << ", " << each.name;
    }
  }

  // The weights of the model folder, which is an ordinary one.
  [[nodiscard]] TensorStore weights_of(const std::string& output) const {
    const ModelDirectory directory(path(output));
    return load_weights(*family_registry().create(directory.config()), directory, DType::kF32, cpu_device());
  }

  [[nodiscard]] std::string bytes_of_weights(const std::string& output) const {
    return read_file(path(output) / "model.safetensors");
  }

  // Copies a checkpoint into the folder of another run, which continues from it.
  void copy_checkpoint(const std::string& from, const std::string& to, const std::string& checkpoint) const {
    fs::create_directories(path(to));
    fs::copy(path(from) / checkpoint, path(to) / checkpoint, fs::copy_options::recursive);
  }

  TemporaryDirectory folder_;
};

TEST_F(ExpertJob, ProcessesHaveTheLossesOfOne) {
  for (const auto& [family, config] : mixtures()) {
    run(family, family + " one", 1, 1);
    const std::vector<std::string> more =
        family == "qwen3_moe" ? std::vector<std::string>{"aux_loss"} : std::vector<std::string>{};
    run(family, family + " 2", 2, 2);
    expect_near(family + " 2", family + " one", more);
    run(family, family + " 2 x 2", 4, 2);
    expect_near(family + " 2 x 2", family + " one", more);
    run(family, family + " 4", 4, 4);
    expect_near(family + " 4", family + " one", more);
  }
}

TEST_F(ExpertJob, LossesThatBalanceExpertsAreThoseOfOne) {
  const std::vector<std::string> keys{"--aux_loss_alpha", "0.01", "--mtp_loss_weight", "0.3"};
  run("deepseek_v3", "one", 1, 1, keys);
  run("deepseek_v3", "4", 4, 4, keys);
  expect_near("4", "one", {"aux_loss", "mtp_loss"});
}

TEST_F(ExpertJob, TheSameJobHasTheSameBits) {
  run("deepseek_v3", "a", 4, 2);
  run("deepseek_v3", "b", 4, 2, {"--gradient_checkpointing", "true"});
  EXPECT_EQ(bytes_of_weights("a"), bytes_of_weights("b"));
  EXPECT_EQ(series("a", "loss"), series("b", "loss"));
}

TEST_F(ExpertJob, DividedStatesGradientsAndWeightsHaveTheLossesOfOne) {
  run("qwen3_moe", "one", 1, 1);
  for (const int experts : {2, 4}) {
    const std::string group = std::to_string(experts) + " ";
    run("qwen3_moe", group + "0", 4, experts);
    for (const char* stage : {"1", "2", "3"}) {
      run("qwen3_moe", group + stage, 4, experts, {"--zero_stage", stage});
      expect_near(group + stage, "one");
    }
    EXPECT_EQ(bytes_of_weights(group + "1"), bytes_of_weights(group + "0"));
    EXPECT_EQ(bytes_of_weights(group + "3"), bytes_of_weights(group + "2"));
  }
}

TEST_F(ExpertJob, ARunContinuesBitForBit) {
  const std::vector<std::vector<std::string>> kinds{
      {},
      {"--zero_stage", "1"},
      {"--zero_stage", "3"},
      {"--torch_dtype", "bfloat16"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"},
      {"--optim", "sgd", "--optim_args", "momentum=0.9"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string whole = "whole " + std::to_string(kind);
    const std::string parts = "parts " + std::to_string(kind);
    const int processes = kind < 3 ? 4 : 2;
    run("deepseek_v3", whole, processes, 2, kinds[kind]);
    copy_checkpoint(whole, parts, "checkpoint-4");
    run("deepseek_v3", parts, processes, 2, kinds[kind]);
    EXPECT_EQ(bytes_of_weights(parts), bytes_of_weights(whole)) << parts;
  }
}

TEST_F(ExpertJob, ARunContinuesOnAnotherLayout) {
  run("deepseek_v3", "one", 1, 1);
  run("deepseek_v3", "from 4", 4, 4, {"--zero_stage", "1"});
  const auto continued = [&](const std::string& from, const std::string& to, int processes, int experts,
                             const std::vector<std::string>& more = {}) {
    copy_checkpoint(from, to, "checkpoint-4");
    run("deepseek_v3", to, processes, experts, more);
    const std::vector<double> one = series("one", "loss");
    const std::vector<double> other = series(to, "loss");
    ASSERT_EQ(other.size(), 4u) << to;
    for (std::size_t i = 1; i <= other.size(); ++i) {
      EXPECT_NEAR(other[other.size() - i], one[one.size() - i], 1e-5) << to << ", " << i << " from the end";
    }
  };
  continued("one", "a", 2, 2);
  continued("one", "b", 4, 2, {"--zero_stage", "3"});
  continued("from 4", "c", 1, 1);
  continued("from 4", "d", 4, 2);
  continued("from 4", "e", 2, 1);
}

TEST_F(ExpertJob, AModelOfAFolderIsFineTunedAndIsAnOrdinaryFolder) {
  run("mixtral", "model", 1, 1);
  const auto tune = [&](const std::string& output, int processes, int experts) {
    const Ended ended = run_program({"sft",
                                     "--model_name_or_path",
                                     path("model").string(),
                                     "--dataset_name",
                                     path("data/sft.jsonl").string(),
                                     "--per_device_train_batch_size",
                                     "2",
                                     "--gradient_accumulation_steps",
                                     std::to_string(4 / processes),
                                     "--num_processes",
                                     std::to_string(processes),
                                     "--expert_parallel_size",
                                     std::to_string(experts),
                                     "--max_steps",
                                     "6",
                                     "--logging_steps",
                                     "1",
                                     "--device",
                                     "cpu",
                                     "--output_dir",
                                     path(output).string()});
    ASSERT_EQ(ended.code, 0) << ended.output;
  };
  tune("one", 1, 1);
  tune("two", 2, 2);
  tune("four", 4, 2);
  for (const std::string output : {"two", "four"}) {
    const std::vector<double> one = series("one", "loss");
    const std::vector<double> other = series(output, "loss");
    ASSERT_EQ(one.size(), 6u);
    ASSERT_EQ(one.size(), other.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 1e-5) << output << ", line " << i;
    const TensorStore left = weights_of("one");
    const TensorStore right = weights_of(output);
    for (const NamedType& each : left.tensors()) {
      EXPECT_LT(
          relative_difference(floats_of_bytes(right.download(each.name)), floats_of_bytes(left.download(each.name))),
          1e-4)
          << output << ", " << each.name;
    }
  }
}

TEST_F(ExpertJob, BadInputHasOneLine) {
  const auto refused = [&](const std::string& family, int processes, int experts,
                           const std::vector<std::string>& more = {}) {
    const Ended ended = run_program(arguments(family, "refused", processes, experts, more));
    EXPECT_EQ(ended.code, 1) << ended.output;
    return ended.output;
  };
  EXPECT_THAT(refused("qwen3_moe", 3, 3), HasSubstr("expert_parallel_size: is 3, but a layer has 4 experts"));
  EXPECT_THAT(refused("qwen3_moe", 2, 4),
              HasSubstr("expert_parallel_size: is 4, which does not divide num_processes 2"));
  EXPECT_THAT(refused("qwen3_moe", 4, 2, {"--tensor_parallel_size", "2"}),
              HasSubstr("tensor_parallel_size is 2: it cannot divide mixtures"));
  EXPECT_THAT(refused("qwen3_moe", 4, 2, {"--context_parallel_size", "2"}),
              HasSubstr("expert_parallel_size: is 2, but context_parallel_size is 2: it gives"));
  EXPECT_THAT(refused("qwen3_moe", 2, 2, {"--benchmarks", "gsm8k"}),
              HasSubstr("benchmarks: need whole weights on the device, which expert_parallel_size divides"));
  EXPECT_THAT(refused("qwen3_moe", 2, 2, {"--model_config_path", path("model.json").string()}),
              HasSubstr("the model has no mixture of experts"));
}

}  // namespace
}  // namespace hone::test
