// Tests of pipeline parallelism: gradients, losses and runs of pipelines next to those of one process, on CPUs.
#include "train/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "cli/program.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/random.h"
#include "core/strings.h"
#include "model/registry.h"
#include "ops/registry.h"
#include "support/miniature.h"
#include "support/models.h"
#include "support/paths.h"
#include "system/meeting.h"
#include "train/metrics.h"
#include "train/stage_programs.h"

namespace hone::test::pipeline {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kVocabulary = 308;

// Configurations of models with four layers: with and without biases, with a tied head and with dropout.
std::string config_of(const std::string& family) {
  if (family.starts_with("gpt2")) {
    const std::string rate = family == "gpt2 dropout" ? "0.1" : "0.0";
    return text_of(R"({"model_type": "gpt2", "vocab_size": )", kVocabulary,
                   R"(, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 256, "initializer_range": 0.05)",
                   R"(, "embd_pdrop": )", rate, R"(, "resid_pdrop": )", rate, R"(, "attn_pdrop": 0.0})");
  }
  const bool tied = family == "qwen2";
  return text_of(R"({"model_type": ")", family, R"(", "tie_word_embeddings": )", tied ? "true" : "false",
                 R"(, "vocab_size": )", kVocabulary,
                 R"(, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
                     "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
                     "rope_theta": 10000.0, "initializer_range": 0.05})");
}

constexpr std::string_view kFamilies[] = {"llama", "qwen2", "gpt2"};

std::unique_ptr<Model> model_of(std::string_view family) {
  return family_registry().create(parse_json(config_of(std::string(family)), "config"));
}

std::vector<HostBatch> micro_batches(std::size_t count) {
  const RandomStream random(3, "documents");
  std::uint64_t index = 0;
  std::vector<HostBatch> batches;
  for (std::size_t b = 0; b < count; ++b) {
    std::vector<std::vector<TokenId>> documents;
    for (const std::size_t length : {17 + b, 5 + b, std::size_t{30}}) {
      std::vector<TokenId>& document = documents.emplace_back();
      for (std::size_t i = 0; i < length; ++i) {
        document.push_back(static_cast<TokenId>(random.below(index++, kVocabulary)));
      }
    }
    batches.push_back(batch_of(documents));
  }
  return batches;
}

constexpr Capacity kCapacity{96, 4};
constexpr double kWeight = 1e-2;

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Losses and gradients of a step.
struct Results {
  std::vector<double> sums;  // loss, entropy, hits, target tokens; of an evaluation's loss
  std::map<std::string, std::vector<float>> gradients;
};

std::vector<double> numbers_of(const LossSums& sums) {
  return {sums.loss, sums.entropy, sums.hits, sums.target_tokens};
}

Results one_process(std::string_view family, std::size_t count) {
  const std::unique_ptr<Model> model = model_of(family);
  const TensorStore weights = random_weights(*model, 5, DType::kF32, cpu_device());
  TensorStore gradients(cpu_device(), weight_types(*model, DType::kF32));
  Executable executable(trace_training(*model, {.capacity = kCapacity}), std::make_shared<Arena>(cpu_device()),
                        {.weights = &weights, .gradients = &gradients});
  LossLaunches launches(executable, count, 7, 3, 0);
  for (const HostBatch& batch : micro_batches(count)) launches.launch(batch, kWeight);
  Results results{.sums = numbers_of(launches.sums()), .gradients = {}};
  Executable evaluation(trace_evaluation(*model, {.capacity = kCapacity}), std::make_shared<Arena>(cpu_device()),
                        {.weights = &weights});
  LossLaunches evaluated(evaluation, count);
  for (const HostBatch& batch : micro_batches(count)) evaluated.launch(batch, 1.0);
  results.sums.push_back(evaluated.sums().loss);
  for (const WeightSpec& spec : model->weights()) {
    results.gradients[spec.name] = floats_of(gradients.download(spec.name));
  }
  return results;
}

// Computes a step and an evaluation on one rank of a pipeline.
void run_stage(std::string_view family, int rank, int size, std::uint16_t port, std::size_t count, Recompute recompute,
               Results& results, std::mutex& mutex) {
  Peers peers({.rank = rank, .size = size, .local_rank = rank, .local_size = size, .port = port});
  const std::unique_ptr<Collective> stages = make_collective(cpu_device(), peers);
  const CollectiveScope scope(MeshCollectives{.pipeline = stages.get()});
  const StageModel model(model_of(family), rank, size);
  const TensorStore whole = random_weights(model.whole(), 5, DType::kF32, cpu_device());
  Workspace workspace(std::make_shared<Arena>(cpu_device()));
  workspace.add_weights(kWeightStore, weight_types(model, DType::kF32));
  LossProgramOptions options{.capacity = kCapacity};
  options.compile.stage = model.cut();
  options.compile.recompute = recompute;
  options.compile.activation_budget = std::size_t{1} << 30;
  add_stage_training(workspace, model, options, false);
  add_stage_evaluation(workspace, model, options);
  TensorStore weights(cpu_device(), weight_types(model, DType::kF32));
  for (const WeightSpec& spec : model.weights()) weights.upload(spec.name, whole.download(spec.name));
  workspace.provide(kWeightStore, std::move(weights));
  workspace.allocate(cpu_device());
  const hone::Job job(&peers, {.pipeline_size = size});
  Pipeline pipeline(workspace, model, job);
  LossSums sums = pipeline.train(micro_batches(count), kWeight, {.seed = 7, .step = 3, .first = 0});
  LossSums evaluated;
  pipeline.evaluate(micro_batches(count), evaluated);
  const std::lock_guard lock(mutex);
  if (model.cut()->is_last()) {
    results.sums = numbers_of(sums);
    results.sums.push_back(evaluated.loss);
  } else {
    EXPECT_EQ(numbers_of(sums), std::vector<double>(4, 0.0)) << "a stage without the head has a loss";
  }
  for (const WeightSpec& spec : model.weights()) {
    std::vector<float> gradient = floats_of(workspace.store(kGradientStore).download(spec.name));
    std::vector<float>& all = results.gradients[spec.name];
    if (!all.empty()) {
      EXPECT_EQ(all, gradient) << spec.name << " differs between the ends of the pipeline";
    }
    all = std::move(gradient);
  }
}

Results pipeline_of(std::string_view family, int size, std::size_t count, Recompute recompute = Recompute::kNone) {
  register_operations();
  Results results;
  std::mutex mutex;
  const std::uint16_t port = listen_on(0, true).port;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { run_stage(family, rank, size, port, count, recompute, results, mutex); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(Pipeline, GradientsAreThoseOfOneProcess) {
  for (const std::string_view family : {"llama", "qwen2", "gpt2", "gpt2 dropout"}) {
    for (const std::size_t count : {1, 3, 6}) {
      const Results one = one_process(family, count);
      for (const int size : {2, 3, 4}) {
        const Results stages = pipeline_of(family, size, count);
        ASSERT_EQ(stages.sums.size(), one.sums.size());
        for (std::size_t i = 0; i < one.sums.size(); ++i) {
          EXPECT_NEAR(stages.sums[i], one.sums[i], 1e-5 * std::max(1.0, std::abs(one.sums[i])))
              << family << ", " << size << " stages, sum " << i;
        }
        ASSERT_EQ(stages.gradients.size(), one.gradients.size());
        for (const auto& [name, gradient] : one.gradients) {
          EXPECT_LT(relative_difference(stages.gradients.at(name), gradient), 1e-5)
              << family << ", " << size << " stages, " << name;
        }
      }
    }
  }
}

TEST(Pipeline, RecomputationAndAnotherRunChangeNoBit) {
  const Results first = pipeline_of("qwen2", 3, 5);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers, Recompute::kAutomatic}) {
    const Results again = pipeline_of("qwen2", 3, 5, recompute);
    EXPECT_EQ(again.sums, first.sums);
    EXPECT_EQ(again.gradients, first.gradients);
  }
}

TEST(Pipeline, StagesHaveEachWeightOnceExceptThoseOfBothEnds) {
  for (const std::string_view family : kFamilies) {
    for (const int size : {1, 2, 3, 4}) {
      std::map<std::string, int> holders;
      std::map<std::string, int> counted;
      for (int stage = 0; stage < size; ++stage) {
        const StageModel model(model_of(family), stage, size);
        for (const WeightSpec& spec : model.weights()) {
          ++holders[spec.name];
          counted[spec.name] += model.counts(spec.name) ? 1 : 0;
          if (spec.kind == WeightKind::embedding && family == "llama") {
            EXPECT_EQ(stage, 0) << spec.name;
          }
          if (spec.name == "norm" || spec.kind == WeightKind::head) {
            EXPECT_EQ(stage, size - 1) << spec.name;
          }
        }
      }
      const std::unique_ptr<Model> whole = model_of(family);
      EXPECT_EQ(holders.size(), whole->weights().size());
      for (const auto& [name, count] : holders) {
        const bool is_tied = has_tied_head(*whole) && name == whole->head();
        EXPECT_EQ(count, is_tied && size > 1 ? 2 : 1) << family << ", " << name;
        EXPECT_EQ(counted[name], 1) << family << ", " << name;
      }
    }
  }
}

// Runs of the program with a new model of each family.
class PipelineJob : public ::testing::Test {
 protected:
  PipelineJob() {
    write_miniature(folder_.path());
    for (const std::string_view family : kFamilies) {
      write_file(path(text_of(family, ".json")), config_of(std::string(family)));
    }
  }

  [[nodiscard]] fs::path path(const std::string& relative) const { return folder_.path() / relative; }

  // Arguments of a pre-training of 12 sequences a step, over an evaluation and the end of an epoch.
  [[nodiscard]] std::vector<std::string> arguments(const std::string& family, const std::string& output, int data,
                                                   int stages, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = pretrain_arguments(folder_.path(), {"--model_config_path",
                                                                       path(family + ".json").string(),
                                                                       "--per_device_train_batch_size",
                                                                       "2",
                                                                       "--gradient_accumulation_steps",
                                                                       std::to_string(6 / data),
                                                                       "--num_processes",
                                                                       std::to_string(data * stages),
                                                                       "--pipeline_parallel_size",
                                                                       std::to_string(stages),
                                                                       "--max_steps",
                                                                       "12",
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
                                                                       "6",
                                                                       "--output_dir",
                                                                       path(output).string()});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  void run(const std::string& family, const std::string& output, int data, int stages,
           const std::vector<std::string>& more = {}) const {
    const Ended ended = run_program(arguments(family, output, data, stages, more));
    ASSERT_EQ(ended.code, 0) << ended.output;
  }

  void tune(const std::string& model, const std::string& output, int data, int stages) const {
    const Ended ended = run_program({"sft",
                                     "--model_name_or_path",
                                     path(model).string(),
                                     "--dataset_name",
                                     path("data/sft.jsonl").string(),
                                     "--per_device_train_batch_size",
                                     "2",
                                     "--gradient_accumulation_steps",
                                     std::to_string(6 / data),
                                     "--num_processes",
                                     std::to_string(data * stages),
                                     "--pipeline_parallel_size",
                                     std::to_string(stages),
                                     "--max_steps",
                                     "6",
                                     "--logging_steps",
                                     "1",
                                     "--device",
                                     "cpu",
                                     "--output_dir",
                                     path(output).string()});
    ASSERT_EQ(ended.code, 0) << ended.output;
  }

  [[nodiscard]] std::vector<double> series(const std::string& output, std::string_view metric) const {
    return metric_series(read_metrics(path(output) / "metrics.jsonl"), std::string(metric)).values;
  }

  void expect_near(const std::string& a, const std::string& b, std::span<const char* const> metrics) const {
    for (const char* metric : metrics) {
      const std::vector<double> one = series(a, metric);
      const std::vector<double> other = series(b, metric);
      ASSERT_EQ(one.size(), other.size()) << metric;
      ASSERT_FALSE(one.empty()) << metric;
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_NEAR(one[i], other[i], 1e-5) << a << ", " << metric << ", line " << i;
      }
    }
  }

  // Expects that the weights of two folders agree, by the names of the checkpoint.
  void expect_near_weights(const std::string& a, const std::string& b) const {
    const ModelDirectory one(path(a));
    const ModelDirectory other(path(b));
    const std::unique_ptr<Model> model = family_registry().create(one.config());
    const TensorStore left = load_weights(*model, one, DType::kF32, cpu_device());
    const TensorStore right = load_weights(*model, other, DType::kF32, cpu_device());
    for (const NamedType& each : left.tensors()) {
      const std::vector<float> values = floats_of(left.download(each.name));
      const std::vector<float> others = floats_of(right.download(each.name));
      const bool has_keys = each.name.ends_with("qkv_bias");
      // A bias of keys changes no score by more than the others of its row: its gradient is the rounding of 0, which
      // AdamW scales up.
      const std::size_t keys = 32;
      const std::size_t values_begin = keys + (values.size() - keys) / 2;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (has_keys && i >= keys && i < values_begin) continue;
        ASSERT_NEAR(values[i], others[i], 1e-5) << a << ", " << each.name << ", element " << i;
      }
    }
  }

  // Copies a checkpoint into the folder of another run, which continues from it.
  void copy_checkpoint(const std::string& from, const std::string& to, const std::string& checkpoint) const {
    fs::create_directories(path(to));
    fs::copy(path(from) / checkpoint, path(to) / checkpoint, fs::copy_options::recursive);
  }

  [[nodiscard]] std::string weights(const std::string& output) const {
    return read_file(path(output) / "model.safetensors");
  }

  TemporaryDirectory folder_;
};

constexpr const char* kTrained[] = {"loss",       "eval_loss", "grad_norm",   "entropy", "mean_token_accuracy",
                                    "num_tokens", "epoch",     "eval_entropy"};
constexpr const char* kTuned[] = {"loss", "grad_norm", "num_tokens"};

TEST_F(PipelineJob, PretrainingAndFineTuningHaveTheLossesOfOneProcess) {
  for (const std::string_view each : kFamilies) {
    const std::string family(each);
    run(family, family + " one", 1, 1);
    tune(family + " one", family + " tuned", 1, 1);
    for (const auto& [data, stages] : std::vector<std::pair<int, int>>{{1, 2}, {1, 4}, {2, 2}}) {
      const std::string layout = text_of(family, " ", data, " x ", stages);
      run(family, layout, data, stages);
      expect_near(layout, family + " one", kTrained);
      expect_near_weights(layout, family + " one");
      tune(family + " one", layout + " tuned", data, stages);
      expect_near(layout + " tuned", family + " tuned", kTuned);
      expect_near_weights(layout + " tuned", family + " tuned");
    }
  }
}

TEST_F(PipelineJob, TheSameJobHasTheSameBits) {
  for (const int data : {1, 2}) {
    const std::string name = std::to_string(data);
    run("qwen2", name + " a", data, 2);
    run("qwen2", name + " b", data, 2, {"--gradient_checkpointing", "true"});
    run("qwen2", name + " c", data, 2, {"--gradient_checkpointing", "false"});
    for (const char* other : {" b", " c"}) {
      EXPECT_EQ(weights(name + other), weights(name + " a"));
      EXPECT_EQ(series(name + other, "loss"), series(name + " a", "loss"));
      EXPECT_EQ(series(name + other, "grad_norm"), series(name + " a", "grad_norm"));
    }
  }
}

TEST_F(PipelineJob, ARunContinuesBitForBit) {
  const std::vector<std::vector<std::string>> kinds{
      {},
      {"--zero_stage", "1"},
      {"--torch_dtype", "bfloat16"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_8bit", "--gradient_dtype", "bfloat16"},
      {"--optim", "muon"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string whole = "whole " + std::to_string(kind);
    const std::string parts = "parts " + std::to_string(kind);
    const int data = kind < 2 ? 2 : 1;
    run("gpt2", whole, data, 2, kinds[kind]);
    copy_checkpoint(whole, parts, "checkpoint-4");
    run("gpt2", parts, data, 2, kinds[kind]);
    EXPECT_EQ(weights(parts), weights(whole)) << parts;
    if (kind == 1) {
      EXPECT_EQ(weights(whole), weights("whole 0")) << "divided states change bits";
    }
  }
}

TEST_F(PipelineJob, ARunContinuesOnAnotherLayout) {
  for (const std::string_view family : kFamilies) {
    const std::string name(family);
    run(name, name, 1, 1);
    const auto continued = [&](const std::string& from, const std::string& to, const std::string& checkpoint, int data,
                               int stages, const std::vector<std::string>& more = {}) {
      copy_checkpoint(from, to, checkpoint);
      run(name, to, data, stages, more);
      const std::vector<double> one = series(name, "loss");
      const std::vector<double> other = series(to, "loss");
      ASSERT_LT(other.size(), one.size());
      for (std::size_t i = 1; i <= other.size(); ++i) {
        EXPECT_NEAR(other[other.size() - i], one[one.size() - i], 1e-5) << to << ", " << i << " from the end";
      }
    };
    continued(name, name + " a", "checkpoint-4", 1, 2);
    continued(name + " a", name + " b", "checkpoint-8", 1, 4);
    continued(name, name + " c", "checkpoint-4", 2, 2, {"--zero_stage", "1"});
    continued(name + " c", name + " d", "checkpoint-8", 1, 1);
    continued(name + " c", name + " e", "checkpoint-8", 2, 1);
  }
}

// Returns the bytes in the lines of a text that begin with `start`.
std::vector<std::string> bytes_after(const std::string& text, const std::string& start) {
  std::vector<std::string> found;
  for (const std::string& line : split(text, '\n')) {
    const std::string trimmed(trim(line));
    if (!trimmed.starts_with(start) || !trimmed.ends_with(" bytes")) continue;
    const std::vector<std::string> words = split(trimmed, ' ');
    found.push_back(words[words.size() - 2]);
  }
  return found;
}

// Each process allocates what it plans to the byte, or stops.
TEST_F(PipelineJob, ThePlanHasEachStage) {
  // The scratch memory of a GEMM on the CPU depends on its threads, which the launcher divides over the processes.
  ::setenv("OMP_NUM_THREADS", "1", 1);
  for (const int stages : {2, 4}) {
    const std::vector<std::string> command =
        arguments("llama", "planned " + std::to_string(stages), 1, stages, {"--max_steps", "1"});
    std::vector<std::string> plan{"plan"};
    plan.insert(plan.end(), command.begin(), command.end());
    const Ended planned = run_program(plan);
    ASSERT_EQ(planned.code, 0) << planned.output;
    const std::vector<std::string> each = bytes_after(planned.output, "stage ");
    ASSERT_EQ(each.size(), static_cast<std::size_t>(stages)) << planned.output;
    const std::vector<std::string> total = bytes_after(planned.output, "total");
    ASSERT_EQ(total.size(), 1u) << planned.output;
    EXPECT_THAT(each, ::testing::Contains(total[0]));
    EXPECT_EQ(bytes_after(planned.output, "micro-batches under way").size(), 1u) << planned.output;
    const Ended ran = run_program(command);
    ASSERT_EQ(ran.code, 0) << ran.output;
  }
  ::unsetenv("OMP_NUM_THREADS");
}

TEST_F(PipelineJob, WhatIsMissingIsRefused) {
  const auto refused = [&](const std::vector<std::string>& command) {
    const Ended ended = run_program(command);
    EXPECT_EQ(ended.code, 1) << ended.output;
    return ended.output;
  };
  const auto with = [&](int stages, const std::vector<std::string>& more) {
    return refused(arguments("llama", "none", 1, stages, more));
  };
  EXPECT_THAT(with(2, {"--num_processes", "3"}),
              HasSubstr("pipeline_parallel_size: is 2, which does not divide num_processes 3"));
  EXPECT_THAT(with(6, {}), HasSubstr("pipeline_parallel_size: is 6, but the model has 4 layers"));
  EXPECT_THAT(with(2, {"--num_processes", "4", "--tensor_parallel_size", "2"}),
              HasSubstr("pipeline_parallel_size: is 2, but tensor_parallel_size is 2"));
  for (const char* stage : {"2", "3"}) {
    EXPECT_THAT(with(2, {"--zero_stage", stage}),
                HasSubstr(text_of("pipeline_parallel_size: is 2, but zero_stage ", stage, " divides gradients")));
  }
  EXPECT_THAT(with(2, {"--activation_offloading", "true"}),
              HasSubstr("pipeline_parallel_size: is 2, but activation_offloading"));
  EXPECT_THAT(with(2, {"--expert_parallel_size", "2"}),
              HasSubstr("pipeline_parallel_size: is 2, but expert_parallel_size is 2"));
  EXPECT_THAT(with(2, {"--context_parallel_size", "2"}),
              HasSubstr("pipeline_parallel_size: is 2, but context_parallel_size is 2"));
  EXPECT_THAT(with(2, {"--benchmarks", "gsm8k"}),
              HasSubstr("benchmarks: need whole weights on the device, which pipeline_parallel_size divides"));
  EXPECT_THAT(with(2, {"--fp8", "true"}), HasSubstr("pipeline_parallel_size: is 2, but fp8 is for whole models"));
  for (const std::string family : {"qwen3_moe", "deepseek_v3"}) {
    Json config = read_json(fixture("models") / family / "config.json");
    config["vocab_size"] = kVocabulary;
    write_file(path(family + ".json"), config.dump());
  }
  EXPECT_THAT(refused(arguments("qwen3_moe", "none", 1, 2)),
              HasSubstr("pipeline_parallel_size: is 2, but mixtures of experts cannot be divided over stages"));
  EXPECT_THAT(refused(arguments("deepseek_v3", "none", 1, 2, {"--mtp_loss_weight", "0.3"})),
              HasSubstr("is 2, but layers for multi-token prediction cannot be divided over stages"));
  run("llama", "model", 1, 1, {"--max_steps", "1"});
  EXPECT_THAT(refused({"sft", "--model_name_or_path", path("model").string(), "--dataset_name",
                       path("data/sft.jsonl").string(), "--num_processes", "2", "--pipeline_parallel_size", "2",
                       "--use_peft", "true", "--device", "cpu", "--output_dir", path("adapter").string()}),
              HasSubstr("is 2, but the weights of adapters cannot be divided over stages"));
  EXPECT_THAT(refused({"grpo",
                       "--model_name_or_path",
                       path("model").string(),
                       "--dataset_name",
                       path("data/prompts.jsonl").string(),
                       "--dataset_prompt_column",
                       "problem",
                       "--reward_funcs",
                       "length",
                       "--num_processes",
                       "2",
                       "--pipeline_parallel_size",
                       "2",
                       "--num_generations",
                       "4",
                       "--per_device_train_batch_size",
                       "4",
                       "--device",
                       "cpu",
                       "--output_dir",
                       path("g").string()}),
              HasSubstr("pipeline_parallel_size: is 2; hone grpo generates with whole weights"));
}

}  // namespace
}  // namespace hone::test::pipeline
