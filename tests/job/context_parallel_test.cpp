// Tests of context parallelism: losses and gradients of a context group next to those of one process, on CPUs.
#include "passes/context_parallel.h"

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
#include "data/context_share.h"
#include "model/registry.h"
#include "ops/document_mean/document_mean.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/next_in_document/next_in_document.h"
#include "ops/registry.h"
#include "ops/scale/scale.h"
#include "ops/weighted_sum/weighted_sum.h"
#include "program/executable.h"
#include "program/memory_plan.h"
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

constexpr int kSmallVocabulary = 300;  // tokens that documents have; those of the models are more

struct NamedConfig {
  std::string name;
  std::string config;
};

// Small models of the families, with two query heads for each key head where a family has them.
std::vector<NamedConfig> small_models() {
  const std::string decoder =
      R"("vocab_size": 308, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
         "rope_theta": 10000.0, "initializer_range": 0.05)";
  return {{"llama", R"({"model_type": "llama", "tie_word_embeddings": false, )" + decoder + "}"},
          {"qwen3", R"({"model_type": "qwen3", "tie_word_embeddings": true, )" + decoder + "}"},
          {"gpt2", R"({"model_type": "gpt2", "vocab_size": 308, "n_embd": 32, "n_layer": 2, "n_head": 4,
                       "n_positions": 512, "initializer_range": 0.05, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
                       "attn_pdrop": 0.0})"}};
}

std::unique_ptr<Model> small_model(const NamedConfig& of) {
  return family_registry().create(parse_json(of.config, of.name));
}

// Documents of which the longest are cut by themselves and the others together, at 2 and at 4 ranks.
HostBatch documents_of_all_lengths() {
  const RandomStream random(3, "documents");
  std::vector<std::vector<TokenId>> documents;
  std::uint64_t index = 0;
  for (const int length : {17, 300, 5, 1, 511, 30}) {
    std::vector<TokenId>& document = documents.emplace_back();
    for (int i = 0; i < length; ++i) document.push_back(static_cast<TokenId>(random.below(index++, kSmallVocabulary)));
  }
  return batch_of(documents);
}

// A loss whose tokens depend on others of their documents besides in attention: targets are the next tokens, and a
// token's term is the mean of its document.
Program trace_document_loss(const Model& model, const LossProgramOptions& options) {
  Program program;
  DocumentBatch batch(program, options.capacity);
  batch.learns = true;
  WeightBinder weights(program, model.traced_weights(), true);
  const Tensor hidden = model.forward(weights, batch);
  const Scope scope(program, "head");
  const Tensor bounds = program.tensor(program.find(Role::kInput, "cu_seqlens"));
  const Tensor targets = next_in_document(batch.tokens, bounds, {.last = -1});
  const LinearLogprobs head = linear_logprobs(hidden, weights(model.head()), targets, {});
  const Tensor of_tokens = program.input("loss_weights", {DType::kF32, {{options.capacity.tokens, Count::tokens}}});
  const Tensor counted = program.input("counted", of_tokens.type());
  (void)batch.targets();
  program.output("loss", weighted_sum(scale(document_mean(head.logp, targets, bounds), -1.0), of_tokens));
  program.output("entropy", weighted_sum(head.entropy, counted));
  program.output("hits", weighted_sum(head.hit, counted));
  if (options.context_size > 1) program = divide_tokens(program, options.context_size);
  return Compiler(options.compile).training(std::move(program), "loss");
}

using Trace = Program (*)(const Model&, const LossProgramOptions&);

std::vector<float> floats_in(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Sums over the ranks: the loss and the other outputs, and the gradients.
struct Totals {
  std::vector<double> outputs = {0, 0, 0};  // loss, entropy, hits
  std::map<std::string, std::vector<float>> gradients;
  std::vector<std::int64_t> tokens;  // of each rank
  std::size_t arena = 0;

  void add(const Totals& more) {
    for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] += more.outputs[i];
    for (const auto& [name, values] : more.gradients) {
      std::vector<float>& sums = gradients[name];
      sums.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
    }
    tokens.insert(tokens.end(), more.tokens.begin(), more.tokens.end());
    arena = std::max(arena, more.arena);
  }
};

// Runs the loss of one rank's tokens.
Totals run_rank(const NamedConfig& of, Trace trace, int rank, int ranks, Recompute recompute,
                const HostBatch& whole = documents_of_all_lengths()) {
  const std::unique_ptr<Model> model = small_model(of);
  const TensorStore weights = random_weights(*model, 5, DType::kF32, cpu_device());
  const TensorStore gradients(cpu_device(), weight_types(*model, DType::kF32));
  LossProgramOptions options;
  options.capacity = {whole.token_count() + 7, whole.document_count() + 2};
  options.compile.recompute = recompute;
  options.context_size = ranks;
  Program program = trace(*model, options);
  const std::size_t arena = plan_memory(program, DeviceKind::kCpu).arena;
  Executable executable(std::move(program), std::make_shared<Arena>(cpu_device()),
                        {.weights = &weights, .gradients = &gradients});
  const HostBatch batch = ranks > 1 ? context_share(whole, rank, ranks) : whole;
  const LossSums sums = run_loss(executable, batch, 1.0 / static_cast<double>(whole.target_tokens));
  Totals totals;
  totals.outputs = {sums.loss, sums.entropy, sums.hits};
  totals.tokens = {batch.token_count()};
  totals.arena = arena;
  for (const WeightSpec& spec : model->weights()) {
    totals.gradients[spec.name] = floats_in(gradients.download(spec.name));
  }
  return totals;
}

// The same by a thread for each rank, summed in their order.
Totals run_context_group(const NamedConfig& of, Trace trace, int ranks, Recompute recompute = Recompute::kNone,
                         const HostBatch& whole = documents_of_all_lengths()) {
  register_operations();
  std::vector<Totals> of_ranks(static_cast<std::size_t>(ranks));
  const std::uint16_t port = listen_on(0, true).port;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Peers peers({.rank = rank, .size = ranks, .local_rank = rank, .local_size = ranks, .port = port});
      const std::unique_ptr<Collective> group = make_collective(cpu_device(), peers);
      const CollectiveScope scope(MeshCollectives{.context = group.get()});
      of_ranks[static_cast<std::size_t>(rank)] = run_rank(of, trace, rank, ranks, recompute, whole);
      peers.barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
  Totals all;
  for (const Totals& each : of_ranks) all.add(each);
  return all;
}

void expect_close(const Totals& group, const Totals& one, const std::string& what) {
  for (std::size_t i = 0; i < one.outputs.size(); ++i) {
    EXPECT_NEAR(group.outputs[i], one.outputs[i], 1e-5 * std::max(1.0, std::abs(one.outputs[i]))) << what << ", " << i;
  }
  for (const auto& [name, gradient] : one.gradients) {
    EXPECT_LT(relative_difference(group.gradients.at(name), gradient), 1e-5) << what << ", " << name;
  }
}

TEST(ContextParallel, GradientsAreThoseOfOneProcess) {
  register_operations();
  for (const NamedConfig& of : small_models()) {
    const Totals one = run_rank(of, trace_training, 0, 1, Recompute::kNone);
    for (const int ranks : {2, 3, 4}) {
      const Totals group = run_context_group(of, trace_training, ranks);
      expect_close(group, one, text_of(of.name, " on ", ranks));
      const auto [least, most] = std::ranges::minmax(group.tokens);
      EXPECT_LE(most - least, 1);
      EXPECT_LT(group.arena, one.arena) << of.name;
    }
  }
}

TEST(ContextParallel, MixturesAndLatentHeadsHaveTheGradientsOfOneProcess) {
  register_operations();
  for (const std::string name : {"mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3"}) {
    const NamedConfig of{name, FixtureModel(name).model->config().dump()};
    const Totals one = run_rank(of, trace_training, 0, 1, Recompute::kNone);
    for (const int ranks : {2, 4}) expect_close(run_context_group(of, trace_training, ranks), one, name);
  }
}

// The loss is that of one token, to which other ranks add zeros.
TEST(ContextParallel, ATokenHasTheBitsOfOneProcess) {
  register_operations();
  std::vector<NamedConfig> models = small_models();
  models.push_back({"mixtral", FixtureModel("mixtral").model->config().dump()});
  for (const NamedConfig& of : models) {
    for (const std::size_t token : {3, 150, 310, 500, 832, 850}) {
      HostBatch batch = documents_of_all_lengths();
      std::ranges::fill(batch.loss_weights, 0.0f);
      batch.loss_weights[token] = 1;
      batch.target_tokens = 1;
      const Totals one = run_rank(of, trace_training, 0, 1, Recompute::kNone, batch);
      EXPECT_GT(one.outputs[0], 1.0);
      const Totals group = run_context_group(of, trace_training, 3, Recompute::kNone, batch);
      EXPECT_EQ(group.outputs, one.outputs) << of.name << ", token " << token;
    }
  }
}

TEST(ContextParallel, TargetsAndMeansOfDocumentsCrossTheRanks) {
  register_operations();
  const NamedConfig of = small_models()[1];
  const Totals one = run_rank(of, trace_document_loss, 0, 1, Recompute::kNone);
  EXPECT_GT(one.outputs[0], 1.0);
  for (const int ranks : {2, 4}) {
    expect_close(run_context_group(of, trace_document_loss, ranks), one, text_of(ranks, " ranks"));
  }
}

TEST(ContextParallel, RecomputationAndAnotherRunChangeNoBit) {
  const NamedConfig of = small_models()[0];
  const Totals first = run_context_group(of, trace_training, 3);
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
    const Totals again = run_context_group(of, trace_training, 3, recompute);
    EXPECT_EQ(again.outputs, first.outputs);
    EXPECT_EQ(again.gradients, first.gradients);
  }
}

TEST(ContextParallel, AnOperationThatNeedsAllTokensIsNamed) {
  register_operations();
  const FixtureModel mixtral("mixtral");
  ModelTraining training;
  training.output_router_logits = true;
  const std::unique_ptr<Model> model = family_registry().create(mixtral.model->config());
  model->prepare_training(training);
  LossProgramOptions options;
  options.capacity = {64, 4};
  options.context_size = 2;
  try {
    (void)trace_training(*model, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("context_parallel_size: is 2, but the tokens of router_sums"));
  }
}

// Runs of the program with a new model of each family, on packed rows and on rows of one document.
class ContextJob : public ::testing::Test {
 protected:
  ContextJob() {
    write_miniature(folder_.path());
    for (const NamedConfig& of : small_models()) write_file(path(of.name + ".json"), of.config);
  }

  [[nodiscard]] fs::path path(const std::string& relative) const { return folder_.path() / relative; }

  static void set_layout(std::vector<std::string>& command, int data, int context) {
    command.insert(command.end(), {"--per_device_train_batch_size", "2", "--gradient_accumulation_steps",
                                   std::to_string(4 / data), "--num_processes", std::to_string(data * context),
                                   "--context_parallel_size", std::to_string(context), "--device", "cpu"});
  }

  // Arguments of a pre-training of 8 sequences a step, over an evaluation and the end of an epoch.
  [[nodiscard]] std::vector<std::string> arguments(const std::string& family, const std::string& output, int data,
                                                   int context, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all =
        pretrain_arguments(folder_.path(), {"--model_config_path", path(family + ".json").string(),
                                            "--block_size",        "300",
                                            "--max_steps",         "8",
                                            "--save_steps",        "4",
                                            "--logging_steps",     "1",
                                            "--learning_rate",     "2e-3",
                                            "--test_split_size",   "0.1",
                                            "--eval_strategy",     "steps",
                                            "--eval_steps",        "4",
                                            "--output_dir",        path(output).string()});
    set_layout(all, data, context);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  void run(const std::string& family, const std::string& output, int data, int context,
           const std::vector<std::string>& more = {}) const {
    const Ended ended = run_program(arguments(family, output, data, context, more));
    ASSERT_EQ(ended.code, 0) << ended.output;
  }

  void tune(const std::string& output, int data, int context, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command{"sft",
                                     "--model_name_or_path",
                                     path("model").string(),
                                     "--dataset_name",
                                     path("data/sft.jsonl").string(),
                                     "--max_steps",
                                     "6",
                                     "--logging_steps",
                                     "1",
                                     "--output_dir",
                                     path(output).string()};
    set_layout(command, data, context);
    command.insert(command.end(), more.begin(), more.end());
    const Ended ended = run_program(command);
    ASSERT_EQ(ended.code, 0) << ended.output;
  }

  [[nodiscard]] std::vector<double> series(const std::string& output, std::string_view metric) const {
    return metric_series(read_metrics(path(output) / "metrics.jsonl"), std::string(metric)).values;
  }

  void expect_near(const std::string& a, const std::string& b, const std::vector<const char*>& metrics) const {
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
  void expect_near(const std::string& a, const std::string& b) const {
    expect_near(a, b, {"loss", "eval_loss", "grad_norm", "entropy", "mean_token_accuracy", "num_tokens", "epoch"});
  }

  [[nodiscard]] std::string weights(const std::string& output) const {
    return read_file(path(output) / "model.safetensors");
  }

  // The weights of two runs, which differ by rounding. AdamW divides a gradient by its size and so scales up the
  // rounding of small ones.
  void expect_near_weights(const std::string& a, const std::string& b, double tolerance = 1e-4) const {
    const ModelDirectory one(path(a));
    const ModelDirectory other(path(b));
    const std::unique_ptr<Model> model = family_registry().create(other.config());
    const TensorStore left = load_weights(*model, one, DType::kF32, cpu_device());
    const TensorStore right = load_weights(*model, other, DType::kF32, cpu_device());
    for (const NamedType& each : left.tensors()) {
      std::vector<float> values = floats_in(left.download(each.name));
      std::vector<float> others = floats_in(right.download(each.name));
      if (each.name.ends_with("qkv_bias")) {
        // A key's bias adds the same to all scores of a query: its gradient is rounding alone, which AdamW scales up.
        const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
        values.erase(values.begin() + third, values.begin() + 2 * third);
        others.erase(others.begin() + third, others.begin() + 2 * third);
      }
      EXPECT_LT(relative_difference(others, values), tolerance) << a << ", " << each.name;
    }
  }

  TemporaryDirectory folder_;
};

TEST_F(ContextJob, ProcessesHaveTheLossesOfOne) {
  for (const NamedConfig& of : small_models()) {
    const std::string& name = of.name;
    run(name, name + " one", 1, 1);
    run(name, name + " 2", 1, 2);
    expect_near(name + " 2", name + " one");
    expect_near_weights(name + " 2", name + " one");
    const std::vector<std::string> sgd{"--optim", "sgd", "--learning_rate", "0.1"};
    run(name, name + " sgd one", 1, 1, sgd);
    run(name, name + " sgd 2", 1, 2, sgd);
    expect_near_weights(name + " sgd 2", name + " sgd one", 1e-5);
  }
  run("qwen3", "qwen3 4", 1, 4);
  expect_near("qwen3 4", "qwen3 one");
  run("gpt2", "gpt2 2 x 2", 2, 2);
  expect_near("gpt2 2 x 2", "gpt2 one");
}

TEST_F(ContextJob, DividedStatesGradientsAndWeightsHaveTheLossesOfOne) {
  run("llama", "one", 1, 1);
  run("llama", "0", 2, 2);
  for (const char* stage : {"1", "2", "3"}) {
    run("llama", stage, 2, 2, {"--zero_stage", stage});
    expect_near(stage, "one");
  }
  EXPECT_EQ(weights("1"), weights("0"));
  EXPECT_EQ(weights("3"), weights("2"));
}

TEST_F(ContextJob, LongDocumentsAreCutByThemselves) {
  // Each document of several examples' text fills a row, of which two ranks have two pieces each.
  std::string text;
  std::string rows;
  int count = 0;
  for (const std::string& line : split(read_file(path("data/corpus.jsonl")), '\n')) {
    if (line.empty()) continue;
    text += parse_json(line, "corpus.jsonl").at("text").get<std::string>() + " ";
    if (++count % 25 != 0) continue;
    rows += Json{{"text", text}}.dump() + "\n";
    text.clear();
  }
  write_file(path("long.jsonl"), rows);
  const std::vector<std::string> data{"--dataset_name", path("long.jsonl").string(), "--block_size", "512"};
  run("qwen3", "one", 1, 1, data);
  run("qwen3", "two", 1, 2, data);
  run("qwen3", "again", 1, 2, data);
  expect_near("two", "one");
  EXPECT_EQ(weights("again"), weights("two"));
}

TEST_F(ContextJob, TensorGroupsHaveTheLossesOfOne) {
  for (const char* family : {"llama", "gpt2"}) {
    const std::string name = family;
    run(name, name + " one", 1, 1);
    run(name, name + " 2 x 2", 1, 2, {"--tensor_parallel_size", "2", "--num_processes", "4"});
    expect_near(name + " 2 x 2", name + " one");
  }
  run("gpt2", "2 x 2 x 2", 2, 2, {"--tensor_parallel_size", "2", "--num_processes", "8", "--zero_stage", "3"});
  expect_near("2 x 2 x 2", "gpt2 one");
}

TEST_F(ContextJob, TheSameJobHasTheSameBits) {
  run("qwen3", "a", 1, 2);
  run("qwen3", "b", 1, 2, {"--gradient_checkpointing", "true"});
  EXPECT_EQ(weights("a"), weights("b"));
  EXPECT_EQ(series("a", "loss"), series("b", "loss"));
}

TEST_F(ContextJob, ARunIsFineTunedPackedAndNot) {
  for (const char* family : {"llama", "qwen3", "gpt2"}) {
    run(family, "model", 1, 1, {"--overwrite_output_dir", "true"});
    for (const std::string packing : {"false", "true"}) {
      const std::vector<std::string> more{"--packing", packing, "--max_length", "256"};
      const std::string name = text_of(family, " packing ", packing, " ");
      tune(name + "one", 1, 1, more);
      tune(name + "two", 1, 2, more);
      expect_near(name + "two", name + "one", {"loss", "grad_norm", "num_tokens"});
      expect_near_weights(name + "two", name + "one");
    }
  }
  tune("four", 2, 2, {"--packing", "true", "--max_length", "256", "--zero_stage", "2"});
  expect_near("four", "gpt2 packing true one", {"loss", "grad_norm", "num_tokens"});
}

// Copies a checkpoint into the folder of another run, which continues from it.
void take_checkpoint(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  fs::copy(from / "checkpoint-4", to / "checkpoint-4", fs::copy_options::recursive);
}

TEST_F(ContextJob, ARunContinuesBitForBitAndOnAnotherLayout) {
  run("llama", "one", 1, 1);
  run("llama", "whole", 2, 2, {"--zero_stage", "1"});
  take_checkpoint(path("whole"), path("parts"));
  run("llama", "parts", 2, 2, {"--zero_stage", "1"});
  EXPECT_EQ(weights("parts"), weights("whole"));
  const auto continued = [&](const std::string& from, const std::string& to, int data, int context,
                             const std::vector<std::string>& more = {}) {
    take_checkpoint(path(from), path(to));
    run("llama", to, data, context, more);
    const std::vector<double> one = series("one", "loss");
    const std::vector<double> other = series(to, "loss");
    ASSERT_EQ(other.size(), 4u);
    ASSERT_EQ(one.size(), 8u);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(other[i], one[4 + i], 1e-5) << to << ", " << i;
  };
  continued("whole", "a", 1, 1);
  continued("whole", "b", 1, 4, {"--zero_stage", "3"});
  continued("one", "c", 1, 2);
}

TEST_F(ContextJob, AnAdapterHasTheLossesOfOne) {
  run("llama", "model", 1, 1);
  const std::vector<std::string> adapter{"--use_peft",     "true", "--lora_r",        "4",
                                         "--lora_dropout", "0",    "--learning_rate", "1e-3"};
  tune("adapter one", 1, 1, adapter);
  tune("adapter two", 1, 2, adapter);
  expect_near("adapter two", "adapter one", {"loss", "grad_norm"});
}

// Returns the bytes of a plan's total.
double planned_bytes(const std::string& plan) {
  for (const std::string& line : split(plan, '\n')) {
    if (!trim(line).starts_with("total") || !line.ends_with(" bytes")) continue;
    std::string digits;
    for (const std::string& word : split(std::string(trim(line)), ' ')) {
      if (word.find(',') != std::string::npos) digits = word;
    }
    std::erase(digits, ',');
    return std::stod(digits);
  }
  return 0;
}

TEST_F(ContextJob, APlanTakesLessMemoryThanThatOfOneProcess) {
  // The scratch memory of a GEMM on the CPU depends on its threads, which the launcher divides over the processes.
  ::setenv("OMP_NUM_THREADS", "1", 1);
  std::map<int, double> bytes;
  for (const int context : {1, 2, 4}) {
    std::vector<std::string> plan{"plan"};
    const std::vector<std::string> command =
        arguments("llama", "planned", 1, context, {"--eval_strategy", "no", "--test_split_size", "0"});
    plan.insert(plan.end(), command.begin(), command.end());
    const Ended planned = run_program(plan);
    ASSERT_EQ(planned.code, 0) << planned.output;
    bytes[context] = planned_bytes(planned.output);
    ASSERT_GT(bytes[context], 0) << planned.output;
  }
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_LT(bytes[2], 0.65 * bytes[1]);
  EXPECT_LT(bytes[4], 0.65 * bytes[2]);
}

TEST_F(ContextJob, WhatIsMissingIsRefused) {
  const auto refused = [&](const std::vector<std::string>& command) {
    const Ended ended = run_program(command);
    EXPECT_EQ(ended.code, 1) << ended.output;
    return ended.output;
  };
  EXPECT_THAT(refused(arguments("llama", "none", 1, 2, {"--num_processes", "3"})),
              HasSubstr("context_parallel_size: is 2, which does not divide num_processes 3"));
  EXPECT_THAT(refused(arguments("llama", "none", 1, 2, {"--tensor_parallel_size", "2"})),
              HasSubstr("is 2 with tensor_parallel_size 2, which does not divide num_processes 2"));
  EXPECT_THAT(refused(arguments("llama", "none", 1, 1, {"--context_parallel_size", "0"})),
              HasSubstr("context_parallel_size"));
  EXPECT_THAT(refused({"grpo", "--model_name_or_path", path("none").string(), "--dataset_name",
                       path("data/prompts.jsonl").string(), "--reward_funcs", "length", "--num_processes", "2",
                       "--context_parallel_size", "2", "--num_generations", "4", "--per_device_train_batch_size", "4",
                       "--device", "cpu", "--output_dir", path("g").string()}),
              HasSubstr("context_parallel_size: is 2; hone grpo computes whole sequences"));
}

}  // namespace
}  // namespace hone::test
