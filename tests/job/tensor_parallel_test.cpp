// Tests of tensor parallelism: gradients and losses of a tensor group next to those of one process, on CPUs.
#include "model/tensor_parallel_model.h"

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
#include "core/strings.h"
#include "model/registry.h"
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

constexpr int kVocabulary = 308;

struct Family {
  std::string name;
  std::string config;  // of a model with 4 heads and 4 key heads
};

// Small models of the families: with and without biases, norms of heads, tied heads, and a vocabulary that no number of
// processes divides.
std::vector<Family> families() {
  const std::string decoder =
      R"("vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "head_dim": 8, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
         "rope_theta": 10000.0, "initializer_range": 0.05)";
  const std::string gpt2 =
      R"({"model_type": "gpt2", "vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256,
          "initializer_range": 0.05, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0)";
  const auto sized = [](std::string config, int vocabulary) {
    config.replace(config.find("VOCAB"), 5, std::to_string(vocabulary));
    return config + "}";
  };
  const auto with = [&](const std::string& type, const std::string& tied) {
    return "{\"model_type\": \"" + type + "\", \"tie_word_embeddings\": " + tied + ", " + decoder;
  };
  return {{"llama", sized(with("llama", "false"), kVocabulary)},
          {"llama tied", sized(with("llama", "true"), kVocabulary)},
          {"llama odd", sized(with("llama", "false"), kVocabulary + 1)},
          {"qwen2", sized(with("qwen2", "false"), kVocabulary)},
          {"qwen3", sized(with("qwen3", "true"), kVocabulary)},
          {"gpt2", sized(gpt2, kVocabulary)},
          {"gpt2 odd", sized(gpt2, kVocabulary + 1)}};
}

std::unique_ptr<Model> model_of(const Family& family) {
  return family_registry().create(parse_json(family.config, "config"));
}

HostBatch batch_of_documents() {
  const RandomStream random(3, "documents");
  std::vector<std::vector<TokenId>> documents;
  std::uint64_t index = 0;
  for (const int length : {17, 5, 30}) {
    std::vector<TokenId>& document = documents.emplace_back();
    for (int i = 0; i < length; ++i) document.push_back(static_cast<TokenId>(random.below(index++, kVocabulary)));
  }
  return batch_of(documents);
}

// Results of a micro-batch: the loss and the other outputs, and the gradients of the whole weights.
struct Results {
  std::vector<float> outputs;  // loss, entropy, hits
  std::map<std::string, std::vector<float>> gradients;
};

TensorStore gradients_of(const Model& model) { return TensorStore(cpu_device(), weight_types(model, DType::kF32)); }

// Runs the loss of a model, whose weights are in `weights`, with parts of the gradients left in `gradients`.
std::vector<float> run_model(const Model& model, const TensorStore& weights, TensorStore& gradients,
                             Recompute recompute) {
  const HostBatch batch = batch_of_documents();
  LossProgramOptions options;
  options.capacity = {batch.token_count() + 7, batch.document_count()};
  options.compile.recompute = recompute;
  Executable executable(trace_training(model, options), std::make_shared<Arena>(cpu_device()),
                        {.weights = &weights, .gradients = &gradients});
  const LossSums sums = run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens));
  return {static_cast<float>(sums.loss), static_cast<float>(sums.entropy), static_cast<float>(sums.hits)};
}

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Results one_process(const Family& family) {
  const std::unique_ptr<Model> model = model_of(family);
  const TensorStore weights = random_weights(*model, 5, DType::kF32, cpu_device());
  TensorStore gradients = gradients_of(*model);
  Results results;
  results.outputs = run_model(*model, weights, gradients, Recompute::kNone);
  for (const WeightSpec& spec : model->weights()) {
    results.gradients[spec.name] = floats_of(gradients.download(spec.name));
  }
  return results;
}

// The same by a thread for each rank of a tensor group.
Results tensor_group(const Family& family, int size, Recompute recompute = Recompute::kNone) {
  register_operations();
  Results results;
  std::mutex mutex;
  const std::uint16_t port = listen_on(0, true).port;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Peers peers({.rank = rank, .size = size, .local_rank = rank, .local_size = size, .port = port});
      const std::unique_ptr<Collective> group = make_collective(cpu_device(), peers);
      const CollectiveScope scope(nullptr, group.get());
      const TensorParallelModel model(model_of(family), rank, size);
      const TensorStore whole = random_weights(model.whole(), 5, DType::kF32, cpu_device());
      TensorStore weights = gradients_of(model);
      for (std::size_t i = 0; i < model.weights().size(); ++i) {
        weights.upload(model.weights()[i].name, part_of(model, i, whole));
      }
      TensorStore gradients = gradients_of(model);
      const std::vector<float> outputs = run_model(model, weights, gradients, recompute);
      const std::lock_guard lock(mutex);
      if (results.outputs.empty()) results.outputs = outputs;
      EXPECT_EQ(results.outputs, outputs) << family.name << ": rank " << rank << " has other bits";
      for (std::size_t i = 0; i < model.weights().size(); ++i) {
        const WeightSpec& spec = model.weights()[i];
        const WeightSpec& of = model.whole().weights()[i];
        const std::vector<std::byte> part = gradients.download(spec.name);
        std::vector<float>& all = results.gradients[spec.name];
        const bool is_new = all.empty();
        all.resize(whole.type(spec.name).elements());
        if (!is_divided(spec) && !is_new) {
          EXPECT_EQ(all, floats_of(part)) << family.name << ": " << spec.name << " differs between ranks";
        }
        put_part(spec, of, sizeof(float), part, std::as_writable_bytes(std::span(all)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(TensorParallel, GradientsAreThoseOfOneProcess) {
  for (const Family& family : families()) {
    const Results one = one_process(family);
    for (const int size : {2, 4}) {
      const Results group = tensor_group(family, size);
      for (std::size_t i = 0; i < one.outputs.size(); ++i) {
        EXPECT_NEAR(group.outputs[i], one.outputs[i], 1e-5 * std::max(1.0f, std::abs(one.outputs[i])))
            << family.name << ", output " << i;
      }
      for (const auto& [name, gradient] : one.gradients) {
        EXPECT_LT(relative_difference(group.gradients.at(name), gradient), 1e-5) << family.name << ", " << name;
      }
    }
  }
}

TEST(TensorParallel, RecomputationAndAnotherRunChangeNoBit) {
  const Family family = families()[3];
  const Results first = tensor_group(family, 2);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
    const Results again = tensor_group(family, 2, recompute);
    EXPECT_EQ(again.outputs, first.outputs);
    EXPECT_EQ(again.gradients, first.gradients);
  }
}

TEST(TensorParallel, PartsOfAllRanksAreTheWeight) {
  for (const Family& family : families()) {
    const std::unique_ptr<Model> model = model_of(family);
    const TensorStore weights = random_weights(*model, 5, DType::kF32, cpu_device());
    std::vector<std::unique_ptr<TensorParallelModel>> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.push_back(std::make_unique<TensorParallelModel>(model_of(family), rank, 4));
    for (std::size_t i = 0; i < model->weights().size(); ++i) {
      const WeightSpec& spec = model->weights()[i];
      const std::vector<std::byte> whole = weights.download(spec.name);
      std::vector<std::byte> assembled(whole.size());
      std::size_t bytes = 0;
      for (int rank = 0; rank < 4; ++rank) {
        const std::vector<std::byte> part = part_of(*ranks[static_cast<std::size_t>(rank)], i, weights);
        put_part(part_spec(spec, rank, 4), spec, sizeof(float), part, assembled);
        bytes += part.size();
      }
      EXPECT_EQ(assembled, whole) << family.name << ", " << spec.name;
      const bool is_linear = spec.kind == WeightKind::linear;
      if (is_linear) {
        EXPECT_EQ(bytes, whole.size()) << family.name << ", " << spec.name << " is not divided";
      }
    }
  }
}

TEST(TensorParallel, WhatTheProcessesDoNotDivideIsNamed) {
  const auto refused = [](const std::string& config, int size) -> std::string {
    try {
      const TensorParallelModel model(family_registry().create(parse_json(config, "config")), 0, size);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  const std::string llama = families()[0].config;
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string config = llama;
    return config.replace(config.find(from), from.size(), to);
  };
  EXPECT_THAT(refused(llama, 3), HasSubstr("tensor_parallel_size: is 3, but num_attention_heads is 4"));
  EXPECT_THAT(refused(changed("\"num_key_value_heads\": 4", "\"num_key_value_heads\": 2"), 4),
              HasSubstr("tensor_parallel_size: is 4, but num_key_value_heads is 2"));
  EXPECT_THAT(refused(changed("\"intermediate_size\": 48", "\"intermediate_size\": 46"), 4),
              HasSubstr("model.layers.0.mlp.gate_proj.weight has 46 channels"));
  const FixtureModel mixtral("mixtral");
  EXPECT_THAT(refused(mixtral.model->config().dump(), 2), HasSubstr("mixtures of experts cannot be divided"));
}

// Runs of the program with a new model of each family.
class TensorJob : public ::testing::Test {
 protected:
  TensorJob() {
    write_miniature(folder_.path());
    for (const Family& family : families()) write_file(path(family.name + ".json"), family.config);
  }

  [[nodiscard]] fs::path path(const std::string& relative) const { return folder_.path() / relative; }

  // Arguments of a pre-training of 8 sequences a step, over an evaluation and the end of an epoch.
  [[nodiscard]] std::vector<std::string> arguments(const std::string& family, const std::string& output, int data,
                                                   int tensor, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = pretrain_arguments(folder_.path(), {"--model_config_path",
                                                                       path(family + ".json").string(),
                                                                       "--per_device_train_batch_size",
                                                                       "2",
                                                                       "--gradient_accumulation_steps",
                                                                       std::to_string(4 / data),
                                                                       "--num_processes",
                                                                       std::to_string(data * tensor),
                                                                       "--tensor_parallel_size",
                                                                       std::to_string(tensor),
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

  void run(const std::string& family, const std::string& output, int data, int tensor,
           const std::vector<std::string>& more = {}) const {
    const Ended ended = run_program(arguments(family, output, data, tensor, more));
    ASSERT_EQ(ended.code, 0) << ended.output;
  }

  [[nodiscard]] std::vector<double> series(const std::string& output, std::string_view metric) const {
    return metric_series(read_metrics(path(output) / "metrics.jsonl"), std::string(metric)).values;
  }

  void expect_near(const std::string& a, const std::string& b) const {
    for (const char* metric :
         {"loss", "eval_loss", "grad_norm", "entropy", "mean_token_accuracy", "num_tokens", "epoch"}) {
      const std::vector<double> one = series(a, metric);
      const std::vector<double> other = series(b, metric);
      ASSERT_EQ(one.size(), other.size()) << metric;
      ASSERT_FALSE(one.empty()) << metric;
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_NEAR(one[i], other[i], 1e-5) << a << ", " << metric << ", line " << i;
      }
    }
  }

  [[nodiscard]] std::string weights(const std::string& output) const {
    return read_file(path(output) / "model.safetensors");
  }

  TemporaryDirectory folder_;
};

TEST_F(TensorJob, ProcessesHaveTheLossesOfOne) {
  for (const Family& family : families()) {
    const std::string& name = family.name;
    run(name, name + " one", 1, 1);
    run(name, name + " 2", 1, 2);
    expect_near(name + " 2", name + " one");
    run(name, name + " 2 x 2", 2, 2);
    expect_near(name + " 2 x 2", name + " one");
  }
  run("llama", "llama 4", 1, 4);
  expect_near("llama 4", "llama one");
  run("gpt2", "gpt2 4", 1, 4);
  expect_near("gpt2 4", "gpt2 one");
}

TEST_F(TensorJob, DividedStatesGradientsAndWeightsHaveTheLossesOfOne) {
  run("qwen3", "one", 1, 1);
  run("qwen3", "0", 2, 2);
  for (const char* stage : {"1", "2", "3"}) {
    run("qwen3", stage, 2, 2, {"--zero_stage", stage});
    expect_near(stage, "one");
  }
  EXPECT_EQ(weights("1"), weights("0"));
  EXPECT_EQ(weights("3"), weights("2"));
}

TEST_F(TensorJob, TheSameJobHasTheSameBits) {
  run("qwen2", "a", 2, 2);
  run("qwen2", "b", 2, 2, {"--gradient_checkpointing", "true"});
  EXPECT_EQ(weights("a"), weights("b"));
  EXPECT_EQ(series("a", "loss"), series("b", "loss"));
}

// Copies a checkpoint into the folder of another run, which continues from it.
void copy_checkpoint(const fs::path& from, const fs::path& to, const std::string& checkpoint) {
  fs::create_directories(to);
  fs::copy(from / checkpoint, to / checkpoint, fs::copy_options::recursive);
}

TEST_F(TensorJob, ARunContinuesBitForBit) {
  const std::vector<std::vector<std::string>> kinds{
      {},
      {"--zero_stage", "3"},
      {"--torch_dtype", "bfloat16"},
      {"--torch_dtype", "bfloat16", "--optim", "adamw_bf16", "--gradient_dtype", "bfloat16"},
      {"--optim", "sgd", "--optim_args", "momentum=0.9"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string whole = "whole " + std::to_string(kind);
    const std::string parts = "parts " + std::to_string(kind);
    const int data = kind < 2 ? 2 : 1;
    run("gpt2", whole, data, 2, kinds[kind]);
    copy_checkpoint(path(whole), path(parts), "checkpoint-4");
    run("gpt2", parts, data, 2, kinds[kind]);
    EXPECT_EQ(weights(parts), weights(whole)) << parts;
  }
}

TEST_F(TensorJob, ARunContinuesOnAnotherLayout) {
  for (const char* family : {"qwen2", "gpt2", "llama odd"}) {
    const std::string name = family;
    run(name, name, 1, 1);
    const auto continued = [&](const std::string& from, const std::string& to, const std::string& checkpoint, int data,
                               int tensor, const std::vector<std::string>& more = {}) {
      copy_checkpoint(path(from), path(to), checkpoint);
      run(name, to, data, tensor, more);
      const std::vector<double> one = series(name, "loss");
      const std::vector<double> other = series(to, "loss");
      ASSERT_LT(other.size(), one.size());
      for (std::size_t i = 1; i <= other.size(); ++i) {
        EXPECT_NEAR(other[other.size() - i], one[one.size() - i], 1e-5) << to << ", " << i << " from the end";
      }
    };
    continued(name, name + " a", "checkpoint-4", 1, 2);
    continued(name + " a", name + " b", "checkpoint-8", 2, 2, {"--zero_stage", "3"});
    continued(name, name + " c", "checkpoint-4", 2, 2, {"--zero_stage", "1"});
    continued(name + " c", name + " d", "checkpoint-8", 1, 1);
    continued(name + " c", name + " e", "checkpoint-8", 1, 4);
  }
}

TEST_F(TensorJob, AModelOfAFolderIsFineTunedAndIsAnOrdinaryFolder) {
  run("llama", "model", 1, 1);
  const auto tune = [&](const std::string& output, int data, int tensor) {
    const Ended ended = run_program({"sft",
                                     "--model_name_or_path",
                                     path("model").string(),
                                     "--dataset_name",
                                     path("data/sft.jsonl").string(),
                                     "--per_device_train_batch_size",
                                     "2",
                                     "--gradient_accumulation_steps",
                                     std::to_string(4 / data),
                                     "--num_processes",
                                     std::to_string(data * tensor),
                                     "--tensor_parallel_size",
                                     std::to_string(tensor),
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
  tune("two", 1, 2);
  tune("four", 2, 2);
  for (const char* output : {"two", "four"}) {
    const std::vector<double> one = series("one", "loss");
    const std::vector<double> other = series(output, "loss");
    ASSERT_EQ(one.size(), other.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 1e-5) << output << ", line " << i;
    // The saved weights are those of one process, by the same names.
    const ModelDirectory a(path("one"));
    const ModelDirectory b(path(output));
    const std::unique_ptr<Model> model = family_registry().create(b.config());
    const TensorStore left = load_weights(*model, a, DType::kF32, cpu_device());
    const TensorStore right = load_weights(*model, b, DType::kF32, cpu_device());
    for (const NamedType& each : left.tensors()) {
      EXPECT_LT(relative_difference(floats_of(right.download(each.name)), floats_of(left.download(each.name))), 1e-4)
          << output << ", " << each.name;
    }
  }
}

// Returns the words of the line of a plan's memory that begins with `name`.
std::vector<std::string> words_of_plan(const std::string& plan, const std::string& name) {
  std::vector<std::string> words;
  for (const std::string& line : split(plan, '\n')) {
    if (!trim(line).starts_with(name) || !line.ends_with(" bytes")) continue;
    for (const std::string& word : split(std::string(trim(line)), ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    break;
  }
  return words;
}

TEST_F(TensorJob, ThePlanIsThatOfTheRun) {
  // The scratch memory of a GEMM on the CPU depends on its threads, which the launcher divides over the processes.
  ::setenv("OMP_NUM_THREADS", "1", 1);
  std::map<int, double> weights_of_size;
  for (const int size : {1, 2, 4}) {
    const std::vector<std::string> command =
        arguments("llama", "planned " + std::to_string(size), 1, size, {"--max_steps", "1"});
    std::vector<std::string> plan{"plan"};
    plan.insert(plan.end(), command.begin(), command.end());
    const Ended planned = run_program(plan);
    ASSERT_EQ(planned.code, 0) << planned.output;
    const std::vector<std::string> total = words_of_plan(planned.output, "total");
    const std::vector<std::string> held = words_of_plan(planned.output, "weights");
    ASSERT_EQ(total.size(), 5u) << planned.output;
    ASSERT_EQ(held.size(), 5u) << planned.output;
    // The run allocates what it plans to the byte, or stops; its first line says what that is.
    const Ended ran = run_program(command);
    ASSERT_EQ(ran.code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(total[1] + " " + total[2] + " on "));
    std::string digits = held[3];
    std::erase(digits, ',');
    weights_of_size[size] = std::stod(digits);
  }
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_NEAR(weights_of_size[2], weights_of_size[1] / 2, weights_of_size[1] * 0.02);
  EXPECT_NEAR(weights_of_size[4], weights_of_size[1] / 4, weights_of_size[1] * 0.02);
}

TEST_F(TensorJob, AnEvaluationHasTheAnswersOfOneProcess) {
  std::string problems;
  for (int i = 1; i <= 12; ++i) {
    problems += text_of("{\"problem\": \"", i, " + ", i + 1, "\", \"answer\": \"", 2 * i + 1, "\"}\n");
  }
  write_file(path("problems.jsonl"), problems);
  for (const char* family : {"qwen3", "gpt2", "llama odd"}) {
    const std::string name = family;
    run(name, name, 1, 1);
    for (const char* temperature : {"0", "0.8"}) {
      std::string one;
      for (const char* size : {"1", "2", "4"}) {
        const fs::path answers = path(name + " answers " + size + " " + temperature);
        const Ended ended = run_program({"eval", path(name).string(), "--dataset_name", path("problems.jsonl").string(),
                                         "--prompt_template", "{problem}", "--temperature", temperature,
                                         "--max_model_len", "128", "--samples", "2", "--device", "cpu",
                                         "--tensor_parallel_size", size, "--output_dir", answers.string()});
        ASSERT_EQ(ended.code, 0) << ended.output;
        const std::string samples = read_file(answers / "samples.jsonl");
        if (one.empty()) one = samples;
        EXPECT_GT(samples.size(), 1000u);
        EXPECT_EQ(samples, one) << answers;
      }
    }
  }
}

TEST_F(TensorJob, WhatIsMissingIsRefused) {
  const auto refused = [&](const std::vector<std::string>& command) {
    const Ended ended = run_program(command);
    EXPECT_EQ(ended.code, 1) << ended.output;
    return ended.output;
  };
  EXPECT_THAT(refused(arguments("llama", "none", 1, 2, {"--num_processes", "3"})),
              HasSubstr("tensor_parallel_size: is 2, which does not divide num_processes 3"));
  EXPECT_THAT(refused(arguments("llama", "none", 1, 2, {"--optim", "muon"})),
              HasSubstr("tensor_parallel_size: is 2, but optim muon updates whole matrices"));
  EXPECT_THAT(refused(arguments("llama", "none", 1, 2, {"--optim", "adamw_8bit"})),
              HasSubstr("tensor_parallel_size: is 2, but the blocks of optim adamw_8bit are of whole weights"));
  EXPECT_THAT(refused(arguments("llama", "none", 1, 2, {"--benchmarks", "gsm8k"})),
              HasSubstr("benchmarks: need whole weights on the device, which tensor_parallel_size divides"));
  EXPECT_THAT(refused(arguments("llama", "none", 1, 3)), HasSubstr("is 3, but num_attention_heads is 4"));
  run("llama", "model", 1, 1);
  EXPECT_THAT(refused({"sft", "--model_name_or_path", path("model").string(), "--dataset_name",
                       path("data/sft.jsonl").string(), "--num_processes", "2", "--tensor_parallel_size", "2",
                       "--use_peft", "true", "--device", "cpu", "--output_dir", path("adapter").string()}),
              HasSubstr("is 2, but the weights of adapters cannot be divided"));
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
                       "--tensor_parallel_size",
                       "2",
                       "--num_generations",
                       "4",
                       "--per_device_train_batch_size",
                       "4",
                       "--device",
                       "cpu",
                       "--output_dir",
                       path("g").string()}),
              HasSubstr("tensor_parallel_size: is 2; hone grpo generates with whole weights"));
}

}  // namespace
}  // namespace hone::test
