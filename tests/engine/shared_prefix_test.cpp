// Tests of the engine's prefix cache: it changes how much is computed, and no bit of a result.
#include <gtest/gtest.h>

#include <string>

#include "core/json_value.h"
#include "core/random.h"
#include "engine/engine.h"
#include "support/device.h"
#include "support/models.h"

namespace hone::test {
namespace {

// Groups of requests with the same prompt, as in a rollout, whose prompts begin alike.
std::vector<Request> groups(std::int64_t prompts, std::int64_t group_size, std::int64_t common, std::int64_t vocab) {
  const RandomStream random(11, "groups");
  std::vector<Request> requests;
  std::uint64_t at = 0;
  const auto token = [&] { return static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))); };
  std::vector<TokenId> beginning(static_cast<std::size_t>(common));
  for (TokenId& each : beginning) each = token();
  for (std::int64_t p = 0; p < prompts; ++p) {
    Request request{beginning, {}};
    for (std::int64_t i = random.below(at++, 30) + 1; i > 0; --i) request.prompt.push_back(token());
    for (std::int64_t g = 0; g < group_size; ++g) {
      request.sampling.temperature = g % 4 == 3 ? 0 : 0.8;
      request.sampling.max_tokens = 4 + 7 * (g % 3);
      request.sampling.seed = static_cast<std::uint64_t>(requests.size());
      requests.push_back(request);
    }
  }
  return requests;
}

// An engine on a model of the fixtures or of a test.
struct Generator {
  Generator(const Model& model, const TensorStore& weights, const EngineOptions& options)
      : tokenizer(letter_tokenizer(model.shape().vocab_size)),
        engine(model, tokenizer, weights, std::make_shared<Arena>(test_device()), options) {}

  Tokenizer tokenizer;
  Engine engine;
};

EngineOptions without_cache(EngineOptions options) {
  options.enable_prefix_caching = false;
  return options;
}

void expect_completions(std::span<const Completion> completions, std::span<const Completion> expected,
                        std::string_view which) {
  ASSERT_EQ(completions.size(), expected.size());
  for (std::size_t i = 0; i < completions.size(); ++i) {
    ASSERT_EQ(completions[i].tokens, expected[i].tokens) << which << ", request " << i;
    ASSERT_EQ(completions[i].logps, expected[i].logps) << which << ", request " << i;
    ASSERT_EQ(completions[i].finish_reason, expected[i].finish_reason) << which << ", request " << i;
  }
}

TEST(SharedPrefix, ChangesNoBit) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    FixtureModel fixture("qwen3", dtype);
    const std::vector<Request> requests = groups(5, 8, 21, fixture.model->shape().vocab_size);
    const auto generate = [&](const EngineOptions& options, std::span<const Request> some,
                              Engine::Statistics& figures) {
      Generator generator(*fixture.model, fixture.weights, options);
      std::vector<Completion> completions = generator.engine.generate(some);
      figures = generator.engine.statistics();
      return completions;
    };
    const EngineOptions wide{.max_model_len = 96, .max_num_seqs = 40, .max_batch_tokens = 256, .block_size = 4};
    Engine::Statistics figures;
    const auto expected = generate(without_cache(wide), requests, figures);
    EXPECT_EQ(figures.prefix_hit_tokens, 0);
    for (const bool ahead : {false, true}) {
      EngineOptions options = wide;
      options.launch_ahead = ahead;
      expect_completions(generate(options, requests, figures), expected, "wide");
      EXPECT_GT(figures.prefix_hit_tokens, figures.prompt_tokens / 2);
      EXPECT_EQ(figures.evicted_blocks, 0);
      options.block_size = 32;
      expect_completions(generate(options, requests, figures), expected, "large blocks");
      EXPECT_GT(figures.prefix_hit_tokens, 0);
      // Prompts in chunks, few blocks, preemption.
      options = {.max_model_len = 96,
                 .max_num_seqs = 12,
                 .max_batch_tokens = 15,
                 .block_size = 4,
                 .num_blocks = 30,
                 .launch_ahead = ahead};
      expect_completions(generate(options, requests, figures), expected, "squeezed");
      EXPECT_GT(figures.preemptions, 0);
      EXPECT_GT(figures.prefix_hit_tokens, 0);
      EXPECT_GT(figures.evicted_blocks, 0);
    }
    const EngineOptions alone{.max_model_len = 96, .max_num_seqs = 1, .block_size = 4};
    for (std::size_t i = 0; i < requests.size(); i += 7) {
      expect_completions(generate(alone, {&requests[i], 1}, figures), {&expected[i], 1}, "alone");
    }
  }
}

// Later requests continue what earlier ones generated, as a conversation does.
TEST(SharedPrefix, OutlivesItsRequests) {
  FixtureModel fixture("llama", DType::kBf16);
  const EngineOptions options{.max_model_len = 120, .max_num_seqs = 2, .block_size = 8, .launch_ahead = true};
  Generator cached(*fixture.model, fixture.weights, options);
  Generator plain(*fixture.model, fixture.weights, without_cache(options));
  Request request{{1, 2, 3, 4, 5}, {.temperature = 1, .max_tokens = 30, .seed = 4}};
  std::int64_t hit_tokens = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const auto completions = cached.engine.generate({&request, 1});
    expect_completions(completions, plain.engine.generate({&request, 1}), text_of("turn ", turn));
    // All full blocks of the turn before: its last token was drawn and not computed.
    const std::int64_t computed = std::ssize(request.prompt) - (turn == 0 ? 5 : 3);
    hit_tokens += (computed - (turn == 0 ? 0 : 1)) / 8 * 8;
    EXPECT_EQ(cached.engine.statistics().prefix_hit_tokens, hit_tokens) << "turn " << turn;
    request.prompt.insert(request.prompt.end(), completions[0].tokens.begin(), completions[0].tokens.end());
    request.prompt.insert(request.prompt.end(), {6, 7, 8});
  }
  // A whole prompt that is cached: its last token is computed nevertheless.
  request.prompt.resize(40);
  const auto completions = cached.engine.generate({&request, 1});
  EXPECT_EQ(cached.engine.statistics().prefix_hit_tokens - hit_tokens, 32);
  expect_completions(completions, plain.engine.generate({&request, 1}), "whole prompt");
}

TEST(SharedPrefix, IsForgottenWhenWeightsChange) {
  FixtureModel fixture("qwen2");
  const EngineOptions options{.max_model_len = 96, .max_num_seqs = 8, .block_size = 4};
  const std::vector<Request> requests = groups(3, 4, 16, fixture.model->shape().vocab_size);
  const auto on_new_engine = [&] {
    Generator generator(*fixture.model, fixture.weights, without_cache(options));
    return generator.engine.generate(requests);
  };
  Generator generator(*fixture.model, fixture.weights, options);
  const auto first = on_new_engine();
  expect_completions(generator.engine.generate(requests), first, "first weights");
  fixture.weights.copy_from(random_weights(*fixture.model, 8, DType::kF32, test_device()));
  generator.engine.weights_changed();
  const auto second = on_new_engine();
  EXPECT_NE(second[0].logps, first[0].logps);
  expect_completions(generator.engine.generate(requests), second, "second weights");
}

// Requests under way keep their tokens and continue with other weights, as requests that begin with these tokens do.
TEST(SharedPrefix, RequestsUnderWayContinueWithNewWeights) {
  for (const bool ahead : {false, true}) {
    FixtureModel fixture("qwen2");
    EngineOptions options{.max_model_len = 96, .max_num_seqs = 8, .block_size = 4};
    options.launch_ahead = ahead;
    const std::vector<Request> requests = groups(3, 4, 16, fixture.model->shape().vocab_size);
    Generator generator(*fixture.model, fixture.weights, options);
    std::vector<RequestId> ids;
    for (const Request& request : requests) ids.push_back(generator.engine.add(request));
    for (int step = 0; step < 5; ++step) (void)generator.engine.step();
    generator.engine.settle([](const Engine::Update&) {});
    std::vector<std::size_t> kept;
    for (const RequestId id : ids) kept.push_back(generator.engine.completion(id).tokens.size());
    fixture.weights.copy_from(random_weights(*fixture.model, 8, DType::kF32, test_device()));
    generator.engine.weights_changed();
    generator.engine.run([](const Engine::Update&) {});
    int continued = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Completion whole = generator.engine.take(ids[i]);
      if (whole.tokens.size() == kept[i]) continue;
      Request rest = requests[i];
      const auto end = whole.tokens.begin() + static_cast<std::ptrdiff_t>(kept[i]);
      rest.prompt.insert(rest.prompt.end(), whole.tokens.begin(), end);
      rest.sampling.max_tokens -= static_cast<std::int64_t>(kept[i]);
      Generator other(*fixture.model, fixture.weights, options);
      const Completion expected = other.engine.generate({&rest, 1})[0];
      EXPECT_EQ(std::vector<TokenId>(end, whole.tokens.end()), expected.tokens) << i;
      if (kept[i] > 0) ++continued;
    }
    EXPECT_GT(continued, 0);
  }
}

// The memory of the KV cache is used for something else between two generations, under the same weights.
TEST(SharedPrefix, IsForgottenWhenMemoryIsReused) {
  FixtureModel fixture("qwen2");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  const EngineOptions options{.max_model_len = 96, .max_num_seqs = 8, .block_size = 4};
  const std::vector<Request> requests = groups(3, 4, 16, fixture.model->shape().vocab_size);
  Workspace workspace(test_device().kind());
  workspace.share_training_memory_with_rollouts();
  workspace.add_weights(kWeightStore, fixture.weights.tensors());
  add_generation(workspace, *fixture.model, DType::kF32, options);
  workspace.provide(kWeightStore, fixture.weights.view());
  workspace.allocate(test_device());
  Engine engine(*fixture.model, tokenizer, workspace, options);
  workspace.enter(Region::kRollout);
  const auto expected = engine.generate(requests);
  workspace.enter(Region::kTrain);
  workspace.enter(Region::kRollout);
  expect_completions(engine.generate(requests), expected, "after training");
  EXPECT_GT(engine.statistics().prefix_hit_tokens, 0);
}

// Heads of 64 and 128 with prompts of several tiles: the kernels of large models on a GPU.
TEST(SharedPrefix, ChangesNoBitWithWideHeads) {
  struct Heads {
    std::int64_t heads, kv_heads, head_dim;
  };
  for (const Heads& heads : {Heads{8, 2, 128}, Heads{4, 4, 128}, Heads{8, 1, 64}}) {
    const Json config{{"model_type", "qwen3"},
                      {"architectures", {"Qwen3ForCausalLM"}},
                      {"hidden_size", 256},
                      {"intermediate_size", 384},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", heads.heads},
                      {"num_key_value_heads", heads.kv_heads},
                      {"head_dim", heads.head_dim},
                      {"vocab_size", 3000},
                      {"max_position_embeddings", 512},
                      {"rms_norm_eps", 1e-6},
                      {"rope_theta", 10000.0},
                      {"initializer_range", 0.05},
                      {"tie_word_embeddings", false},
                      {"hidden_act", "silu"}};
    const std::unique_ptr<Model> model = family_registry().create(config);
    const TensorStore weights = random_weights(*model, 3, DType::kBf16, test_device());
    const std::vector<Request> requests = groups(2, 4, 130, 3000);
    const EngineOptions options{.max_model_len = 300, .max_num_seqs = 8, .max_batch_tokens = 96};
    Generator cached(*model, weights, options);
    Generator plain(*model, weights, without_cache(options));
    const auto expected = plain.engine.generate(requests);
    const std::string which = text_of(heads.heads, " heads of ", heads.head_dim);
    expect_completions(cached.engine.generate(requests), expected, which);
    expect_completions(cached.engine.generate(requests), expected, which + ", again");
    EXPECT_GE(cached.engine.statistics().prefix_hit_tokens, 15 * 128) << which;
  }
}

}  // namespace
}  // namespace hone::test
