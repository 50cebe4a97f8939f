// Tests that a step sets all that its kernels read of the inputs, which the programs of all capacities share.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/random.h"
#include "engine/engine.h"
#include "engine/generation_workspace.h"
#include "model/adapter_slots.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

// Requests of every kind, so many tokens apart that steps have few rows and many.
std::vector<Request> requests_of_all_kinds(const EngineOptions& options, std::int64_t vocab) {
  const RandomStream random(17, "kinds of requests");
  std::uint64_t at = 0;
  const auto token = [&] { return static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))); };
  std::vector<Request> requests;
  for (std::int64_t i = 0; i < 30; ++i) {
    Request request;
    const std::uint64_t length = 1 + random.below(at++, i % 5 == 0 ? 60 : 12);
    for (std::uint64_t t = 0; t < length; ++t) request.prompt.push_back(token());
    if (i % 4 == 2) request.prompt.insert(request.prompt.end(), request.prompt.begin(), request.prompt.end());
    SamplingParams& sampling = request.sampling;
    sampling.temperature = i % 3 == 0 ? 0 : 0.9;
    sampling.max_tokens = 1 + (i * 7) % 24;
    sampling.seed = static_cast<std::uint64_t>(i);
    if (options.adjust_logits && i % 3 == 0) sampling.repetition_penalty = 1.2;
    if (options.adjust_logits && i % 4 == 1) sampling.logit_bias = {{token(), 3.0}, {token(), -3.0}};
    if (options.adjust_logits && i % 5 == 2) sampling.bad_words = {{token()}, {token(), token()}};
    if (i % 7 == 3) sampling.stop_token_ids = {token()};
    if (options.adjust_logits && i % 7 == 3) sampling.min_tokens = sampling.max_tokens / 2;
    if (options.max_logprobs > 0 && i % 4 == 2) sampling.logprobs = 1 + i % options.max_logprobs;
    if (options.max_prompt_samples > 0 && i % 6 == 5) sampling.prompt_logprobs = 2;
    if (options.adapter_slots > 0) request.adapter = {.slot = i % 3 - 1, .id = i % 3};
    requests.push_back(std::move(request));
  }
  return requests;
}

// Fills the inputs of a program with numbers that lie outside of everything that is indexed, and with NaN.
void spoil_inputs(Executable& executable) {
  constexpr std::int32_t kOutside = 0x7f7f7f7f;
  for (const Value& value : executable.program().values()) {
    if (value.role != Role::kInput) continue;
    const auto elements = static_cast<std::size_t>(value.type.elements());
    if (value.type.dtype == DType::kI32) executable.set<std::int32_t>(value.name, std::vector(elements, kOutside));
    if (value.type.dtype == DType::kI64)
      executable.set<std::int64_t>(value.name, std::vector(elements, std::int64_t{kOutside} << 8));
    if (value.type.dtype == DType::kF32)
      executable.set<float>(value.name, std::vector(elements, std::numeric_limits<float>::quiet_NaN()));
  }
}

struct InputRun {
  std::vector<Completion> completions;
  Engine::Statistics statistics;
};

// Generates, and before each step spoils what is in the inputs if `spoils`.
InputRun run_with_inputs(const Model& model, const TensorStore& weights, std::span<const Request> requests,
                         const EngineOptions& options, bool spoils) {
  const Tokenizer tokenizer = letter_tokenizer(model.shape().vocab_size);
  Workspace workspace(std::make_shared<Arena>(test_device()));
  workspace.add_weights(kWeightStore, weights.tensors());
  add_generation(workspace, model, weights.tensors().front().type.dtype, options);
  workspace.provide(kWeightStore, weights.view());
  workspace.allocate(test_device());
  Engine engine(model, tokenizer, workspace, options);
  std::vector<Executable*> programs;
  for (const std::string& name : workspace.program_names()) programs.push_back(&workspace.executable(name));
  Executable& largest = **std::ranges::max_element(
      programs, {}, [](const Executable* each) { return each->program().find_count(Count::tokens)->capacity; });
  std::vector<RequestId> ids;
  // Requests arrive one by one, while others are under way.
  std::size_t next = 0;
  while (next < requests.size() || engine.has_work()) {
    for (std::size_t i = 0; i < 1 + next % 4 && next < requests.size(); ++i)
      ids.push_back(engine.add(requests[next++]));
    if (spoils) spoil_inputs(largest);
    (void)engine.step();
  }
  std::vector<Completion> completions;
  for (const RequestId id : ids) completions.push_back(engine.take(id));
  return {std::move(completions), engine.statistics()};
}

void expect_all_inputs_are_set(const Model& model, const TensorStore& weights, const EngineOptions& options) {
  const std::vector<Request> requests = requests_of_all_kinds(options, model.shape().vocab_size);
  const auto [expected, statistics] = run_with_inputs(model, weights, requests, options, false);
  const auto [spoilt, of_spoilt] = run_with_inputs(model, weights, requests, options, true);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(spoilt[i].tokens, expected[i].tokens) << i;
    ASSERT_EQ(spoilt[i].logps, expected[i].logps) << i;
    ASSERT_EQ(spoilt[i].top_logprobs, expected[i].top_logprobs) << i;
    ASSERT_EQ(spoilt[i].prompt_logps, expected[i].prompt_logps) << i;
    ASSERT_EQ(spoilt[i].prompt_top_logprobs, expected[i].prompt_top_logprobs) << i;
  }
  // Proposals change the number of steps and no token.
  EXPECT_EQ(of_spoilt.steps, statistics.steps);
  EXPECT_EQ(of_spoilt.accepted_tokens, statistics.accepted_tokens);
  EXPECT_EQ(statistics.accepted_tokens > 0, options.num_speculative_tokens > 0);
}

// Steps of 1 to 64 rows, in programs of 8 to 64.
constexpr EngineOptions kManyCapacities{
    .max_model_len = 160, .max_num_seqs = 12, .max_batch_tokens = 64, .block_size = 8, .adjust_logits = true};

// Steps begin before the masks of some samples are known.
TEST(StepInputs, AreSetAheadOfTheHost) {
  const FixtureModel fixture("qwen3");
  EngineOptions options = kManyCapacities;
  options.max_logprobs = 4;
  options.max_prompt_samples = 8;
  options.launch_ahead = true;
  expect_all_inputs_are_set(*fixture.model, fixture.weights, options);
}

TEST(StepInputs, AreSetForProposedTokens) {
  const FixtureModel fixture("qwen3");
  EngineOptions options = kManyCapacities;
  options.num_speculative_tokens = 3;
  expect_all_inputs_are_set(*fixture.model, fixture.weights, options);
}

TEST(StepInputs, AreSetForPredictedTokensAndLatentRows) {
  Json config = ModelDirectory(fixture("models") / "deepseek_v3").config();
  config["initializer_range"] = 0.02;  // nearly equal logits, so that the key of a proposal decides whether it is drawn
  const std::unique_ptr<Model> model = family_registry().create(config);
  ASSERT_TRUE(model->keep_predictions());
  const TensorStore weights = random_weights(*model, 4, DType::kF32, test_device());
  EngineOptions options = kManyCapacities;
  options.num_speculative_tokens = 1;
  options.speculative_method = SpeculativeMethod::kMtp;
  options.cache.latent_kv_cache = true;
  expect_all_inputs_are_set(*model, weights, options);
}

TEST(StepInputs, AreSetForAdapters) {
  const AdapterSlots model(family_registry().create(ModelDirectory(fixture("models") / "llama").config()), 2, 4);
  const TensorStore weights = random_weights(model, 4, DType::kF32, test_device());
  EngineOptions options = kManyCapacities;
  options.adapter_slots = 2;
  expect_all_inputs_are_set(model, weights, options);
}

}  // namespace
}  // namespace hone::test
