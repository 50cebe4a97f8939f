// Tests of the engine on small models: tokens depend only on the request, and log-probabilities equal those of
// training.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/random.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/loss_program.h"

namespace hone::test {
namespace {

std::vector<Request> many_requests(std::int64_t count, std::int64_t vocab, bool penalized = false) {
  const RandomStream random(5, "requests");
  std::vector<Request> requests;
  std::uint64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Request request;
    const std::uint64_t length = 1 + random.below(at++, 40);
    for (std::uint64_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<TokenId>(random.below(at++, static_cast<std::uint64_t>(vocab))));
    }
    request.sampling.temperature = i % 3 == 0 ? 0.7 : 1.0;
    request.sampling.top_p = i % 4 == 0 ? 0.9 : 1.0;
    request.sampling.max_tokens = 5 + i % 30;
    if (penalized && i % 3 != 1) request.sampling.repetition_penalty = 1.0 + 0.1 * static_cast<double>(i % 5);
    request.sampling.seed = static_cast<std::uint64_t>(100 + i);
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Completion> generate(const Model& model, const TensorStore& weights, std::span<const Request> requests,
                                 const EngineOptions& options, std::int64_t* preemptions = nullptr) {
  const Tokenizer tokenizer = letter_tokenizer(model.shape().vocab_size);
  Engine engine(model, tokenizer, weights, std::make_shared<Arena>(test_device()), options);
  std::vector<Completion> completions = engine.generate(requests);
  if (preemptions != nullptr) *preemptions = engine.statistics().preemptions;
  return completions;
}

std::vector<Completion> generate(FixtureModel& fixture, std::span<const Request> requests, const EngineOptions& options,
                                 std::int64_t* preemptions = nullptr) {
  return generate(*fixture.model, fixture.weights, requests, options, preemptions);
}

void expect_equal(const Completion& a, const Completion& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.logps, b.logps);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.finish_reason, b.finish_reason);
}

void expect_tokens_of_the_request_alone(std::string_view model) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    FixtureModel fixture(model, dtype);
    const std::vector<Request> requests = many_requests(33, fixture.model->shape().vocab_size, true);
    const EngineOptions wide{.max_model_len = 96, .max_num_seqs = 33, .max_batch_tokens = 256, .adjust_logits = true};
    const auto together = generate(fixture, requests, wide);
    for (std::size_t i = 0; i < requests.size(); i += 8) {
      const EngineOptions alone{
          .max_model_len = 96, .max_num_seqs = 1, .adjust_logits = requests[i].sampling.adjusts_logits()};
      expect_equal(generate(fixture, {&requests[i], 1}, alone)[0], together[i]);
    }
    // Small prompt chunks, few concurrent requests, another block size and so few blocks that requests are preempted.
    std::int64_t preemptions = 0;
    const auto squeezed = generate(fixture, requests,
                                   {.max_model_len = 96,
                                    .max_num_seqs = 6,
                                    .max_batch_tokens = 7,
                                    .block_size = 8,
                                    .num_blocks = 14,
                                    .adjust_logits = true},
                                   &preemptions);
    EXPECT_GT(preemptions, 0);
    for (std::size_t i = 0; i < requests.size(); ++i) expect_equal(squeezed[i], together[i]);
  }
}

TEST(Engine, TokensDependOnTheRequestAlone) { expect_tokens_of_the_request_alone("qwen3"); }

TEST(Engine, TokensOfAMixtureDependOnTheRequestAlone) { expect_tokens_of_the_request_alone("qwen3_moe"); }

TEST(Engine, TokensOfDeepseekDependOnTheRequestAlone) { expect_tokens_of_the_request_alone("deepseek_v3"); }

// Requests end by stop tokens and by length while the next step is under way, prompts arrive in chunks, and blocks run
// out.
TEST(Engine, LaunchingAheadChangesNoToken) {
  FixtureModel fixture("qwen3", DType::kBf16);
  std::vector<Request> requests = many_requests(33, fixture.model->shape().vocab_size);
  const EngineOptions wide{.max_model_len = 96, .max_num_seqs = 33, .max_batch_tokens = 256, .launch_ahead = false};
  for (std::size_t i = 0; const Completion& whole : generate(fixture, requests, wide)) {
    if (i % 2 == 0) requests[i].sampling.stop_token_ids = {whole.tokens[whole.tokens.size() / 2]};
    ++i;
  }
  const auto expected = generate(fixture, requests, wide);
  const auto expect_same = [&](EngineOptions options, bool preempts) {
    options.launch_ahead = true;
    std::int64_t preemptions = 0;
    const auto ahead = generate(fixture, requests, options, &preemptions);
    EXPECT_EQ(preemptions > 0, preempts);
    for (std::size_t i = 0; i < requests.size(); ++i) expect_equal(ahead[i], expected[i]);
  };
  expect_same(wide, false);
  expect_same({.max_model_len = 96, .max_num_seqs = 6, .max_batch_tokens = 7, .block_size = 8, .num_blocks = 14}, true);
  expect_same({.max_model_len = 96, .max_num_seqs = 33, .max_batch_tokens = 64, .block_size = 4, .num_blocks = 30},
              true);
}

TEST(Engine, LaunchingAheadIsQuietWhenNoWorkIsLeft) {
  FixtureModel fixture("qwen2");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()),
                {.max_model_len = 64, .launch_ahead = true});
  const RequestId stays = engine.add({{1, 2}, {.temperature = 0, .max_tokens = 9}});
  const RequestId goes = engine.add({{3, 4}, {.temperature = 0, .max_tokens = 30}});
  (void)engine.step();
  engine.cancel(goes);
  EXPECT_EQ(engine.take(goes).tokens.size(), 1u);
  std::size_t ended = 0;
  while (engine.has_work()) {
    for (const Engine::Update& update : engine.step()) {
      EXPECT_EQ(update.id, stays);
      ended += update.finish_reason != FinishReason::kNone ? 1 : 0;
    }
  }
  EXPECT_EQ(ended, 1u);
  EXPECT_TRUE(engine.step().empty());
  EXPECT_EQ(engine.take(stays).tokens.size(), 9u);
}

// Expects the log-probabilities of the completions, drawn at temperature 0.7, to be those of the trainer.
void expect_log_probabilities_of_training(const Model& model, const TensorStore& weights, DType dtype,
                                          std::span<const Request> requests, std::span<const Completion> completions,
                                          std::string_view name) {
  std::vector<std::vector<TokenId>> documents;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    documents.push_back(requests[i].prompt);
    documents.back().insert(documents.back().end(), completions[i].tokens.begin(), completions[i].tokens.end());
  }
  const HostBatch batch = batch_of(documents);
  LossTrace trace;
  const Capacity capacity{batch.token_count(), batch.document_count()};
  trace_log_probabilities(trace, model, capacity, {.temperature = 0.7});
  trace.program.output("logp", trace.logp);
  Executable executable(Compiler({.dtype = dtype}).inference(std::move(trace.program)),
                        std::make_shared<Arena>(test_device()), {.weights = &weights});
  feed(executable, batch);
  executable.set<std::int32_t>("targets", batch.targets);
  executable.run();
  std::vector<float> logps(batch.tokens.size());
  executable.get<float>("logp", logps);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::size_t row = static_cast<std::size_t>(batch.cu_seqlens[i]) + requests[i].prompt.size() - 1;
    for (std::size_t t = 0; t < completions[i].tokens.size(); ++t) {
      ASSERT_EQ(logps[row + t], completions[i].logps[t]) << name << ", request " << i << ", token " << t;
    }
  }
}

TEST(Engine, LogProbabilitiesAreTheTrainersBitForBit) {
  for (const std::string_view name : kFixtureModels) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      FixtureModel fixture(name, dtype);
      std::vector<Request> requests = many_requests(8, fixture.model->shape().vocab_size, true);
      for (Request& request : requests) request.sampling.temperature = 0.7;
      EngineOptions options{.max_model_len = 96, .max_num_seqs = 8, .max_batch_tokens = 11, .adjust_logits = true};
      for (const bool latent : {false, true}) {
        if (latent && fixture.model->shape().latent_width == 0) continue;
        options.cache.latent_kv_cache = latent;
        const auto completions = generate(fixture, requests, options);
        expect_log_probabilities_of_training(*fixture.model, fixture.weights, dtype, requests, completions, name);
      }
    }
  }
}

// Heads of 64 and 128, several tiles of keys, logits of two chunks: the kernels of large models on a GPU.
TEST(Engine, LogProbabilitiesOfWideHeadsAreTheTrainersBitForBit) {
  struct Heads {
    std::int64_t heads, kv_heads, head_dim;
  };
  for (const Heads& heads : {Heads{8, 2, 128}, Heads{7, 1, 64}, Heads{4, 4, 128}, Heads{8, 1, 64}}) {
    const Json config{{"model_type", "qwen3"},
                      {"architectures", {"Qwen3ForCausalLM"}},
                      {"hidden_size", 256},
                      {"intermediate_size", 384},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", heads.heads},
                      {"num_key_value_heads", heads.kv_heads},
                      {"head_dim", heads.head_dim},
                      {"vocab_size", 5000},
                      {"max_position_embeddings", 512},
                      {"rms_norm_eps", 1e-6},
                      {"rope_theta", 10000.0},
                      {"initializer_range", 0.05},
                      {"tie_word_embeddings", false},
                      {"hidden_act", "silu"}};
    const std::unique_ptr<Model> model = family_registry().create(config);
    const TensorStore weights = random_weights(*model, 3, DType::kBf16, test_device());
    const RandomStream random(9, "prompts");
    std::vector<Request> requests;
    std::uint64_t at = 0;
    for (const std::size_t length : {1, 20, 126, 127, 128, 129, 300, 390}) {
      Request request;
      while (request.prompt.size() < length) request.prompt.push_back(static_cast<TokenId>(random.below(at++, 5000)));
      request.sampling.temperature = 0.7;
      request.sampling.max_tokens = 6;
      request.sampling.seed = length;
      requests.push_back(std::move(request));
    }
    const auto completions =
        generate(*model, weights, requests, {.max_model_len = 400, .max_num_seqs = 8, .max_batch_tokens = 96});
    expect_log_probabilities_of_training(*model, weights, DType::kBf16, requests, completions,
                                         text_of(heads.heads, " heads of ", heads.head_dim));
  }
}

// Expected tokens are from make_repetition_penalty.py, with greedy choices that lead by 100 times the error of logits.
TEST(Engine, RepetitionPenaltyIsThatOfTransformers) {
  const Json file = read_json(test::fixture("models/repetition_penalty.json"));
  ASSERT_EQ(file.at("cases").size(), 3u);
  for (const Json& wanted : file.at("cases")) {
    FixtureModel fixture(wanted.at("model").get<std::string>());
    Request request{wanted.at("prompt").get<std::vector<TokenId>>(), {.temperature = 0, .max_tokens = 64}};
    const EngineOptions options{.max_model_len = 128, .max_num_seqs = 2, .adjust_logits = true};
    const auto expected = wanted.at("generated").get<std::vector<TokenId>>();
    EXPECT_NE(generate(fixture, {&request, 1}, options)[0].tokens, expected);
    request.sampling.repetition_penalty = wanted.at("penalty").get<double>();
    EXPECT_EQ(generate(fixture, {&request, 1}, options)[0].tokens, expected);
  }
}

TEST(Engine, StopsAtTokensAndStrings) {
  FixtureModel fixture("llama");
  Request request{{3, 4, 5}, {.temperature = 0, .max_tokens = 12}};
  const EngineOptions options{.max_model_len = 64, .max_num_seqs = 2};
  const Completion whole = generate(fixture, {&request, 1}, options)[0];
  EXPECT_EQ(whole.finish_reason, FinishReason::kLength);
  ASSERT_EQ(whole.tokens.size(), 12u);

  request.sampling.stop_token_ids = {whole.tokens[6]};
  const Completion at_token = generate(fixture, {&request, 1}, options)[0];
  EXPECT_EQ(at_token.finish_reason, FinishReason::kStop);
  EXPECT_EQ(at_token.tokens.back(), whole.tokens[6]);
  EXPECT_TRUE(whole.text.starts_with(at_token.text));

  request.sampling.stop_token_ids.clear();
  request.sampling.stop = {whole.text.substr(10, 5)};
  const Completion at_text = generate(fixture, {&request, 1}, options)[0];
  EXPECT_EQ(at_text.finish_reason, FinishReason::kStop);
  EXPECT_EQ(at_text.text, whole.text.substr(0, whole.text.find(request.sampling.stop[0])));
}

TEST(Engine, StreamsTheTextThatItReturns) {
  FixtureModel fixture("qwen2");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()),
                {.max_model_len = 64});
  Request request{{1, 2}, {.temperature = 1.0, .max_tokens = 30, .seed = 3}};
  request.sampling.stop = {"zzzzzz"};
  const RequestId id = engine.add(request);
  std::string text;
  while (engine.has_work()) {
    for (const Engine::Update& update : engine.step()) text += update.text;
  }
  EXPECT_EQ(text, engine.take(id).text);
}

TEST(Engine, CancelEndsWhatRunsAndLeavesWhatHasFinished) {
  FixtureModel fixture("qwen2");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()),
                {.max_model_len = 64});
  const RequestId finished = engine.add({{1, 2}, {.temperature = 0, .max_tokens = 3}});
  const RequestId running = engine.add({{3, 4}, {.temperature = 0, .max_tokens = 30}});
  for (int i = 0; i < 5; ++i) (void)engine.step();
  engine.cancel(finished);
  engine.cancel(running);
  EXPECT_FALSE(engine.has_work());
  const Completion whole = engine.take(finished);
  EXPECT_EQ(whole.finish_reason, FinishReason::kLength);
  EXPECT_EQ(whole.tokens.size(), 3u);
  const Completion part = engine.take(running);
  EXPECT_EQ(part.finish_reason, FinishReason::kAbort);
  EXPECT_EQ(part.tokens.size(), 5u);
}

TEST(Engine, RunsWhatIsAddedBetweenSteps) {
  FixtureModel fixture("qwen2");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  const std::vector<Request> requests = many_requests(9, fixture.model->shape().vocab_size);
  const EngineOptions options = engine_options({.max_model_len = 96, .max_num_seqs = 4});
  const std::vector<Completion> together = generate(fixture, requests, options);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()), options);
  std::vector<RequestId> ids;
  std::size_t ended = 0;
  engine.run([&](const Engine::Update& update) { ended += update.finish_reason != FinishReason::kNone ? 1 : 0; },
             [&] {
               if (ids.size() < requests.size() && ids.size() < ended + 2)
                 ids.push_back(engine.add(requests[ids.size()]));
             });
  EXPECT_EQ(ended, requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) expect_equal(engine.take(ids[i]), together[i]);
}

TEST(Engine, CtrlCCancelsWhatIsLeft) {
  FixtureModel fixture("qwen2");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()),
                {.max_model_len = 64});
  const RequestId first = engine.add({{1, 2}, {.temperature = 0, .max_tokens = 3}});
  const RequestId second = engine.add({{3, 4}, {.temperature = 0, .max_tokens = 30}});
  struct sigaction interrupt{};
  struct sigaction terminate{};
  ::sigaction(SIGINT, nullptr, &interrupt);
  ::sigaction(SIGTERM, nullptr, &terminate);
  catch_interrupts();
  EXPECT_THROW(engine.run([&](const Engine::Update& update) {
    if (update.id == first && update.finish_reason != FinishReason::kNone) ::raise(SIGINT);
  }),
               Interrupted);
  clear_interrupt();
  ::sigaction(SIGINT, &interrupt, nullptr);
  ::sigaction(SIGTERM, &terminate, nullptr);
  EXPECT_FALSE(engine.has_work());
  EXPECT_EQ(engine.take(first).finish_reason, FinishReason::kLength);
  EXPECT_EQ(engine.take(second).finish_reason, FinishReason::kAbort);
}

TEST(Engine, OptionsFollowFromTheRequestsToCome) {
  const EngineOptions few = engine_options({.max_model_len = 100, .max_num_seqs = 3, .adjust_logits = true});
  EXPECT_EQ(few.max_batch_tokens, 512);
  EXPECT_EQ(few.num_blocks, 3 * 4);
  EXPECT_TRUE(few.adjust_logits);
  const EngineOptions many = engine_options({.max_model_len = 100, .max_num_seqs = 1000, .full_length = 4});
  EXPECT_EQ(many.max_batch_tokens, 1000);
  EXPECT_EQ(many.num_blocks, 4 * 4);
  EXPECT_FALSE(many.adjust_logits);
  const ModelShape shape{.max_position_embeddings = 4096};
  EXPECT_EQ(model_len(shape, 0, 32768), 4096);
  EXPECT_EQ(model_len(shape, 0, 1024), 1024);
  EXPECT_EQ(model_len(shape, 9000, 1024), 9000);
}

TEST(Engine, RefusesWhatDoesNotFit) {
  FixtureModel fixture("llama");
  const Tokenizer tokenizer = letter_tokenizer(fixture.model->shape().vocab_size);
  Engine engine(*fixture.model, tokenizer, fixture.weights, std::make_shared<Arena>(test_device()),
                {.max_model_len = 8});
  EXPECT_THROW((void)engine.add({{}, {}}), Error);
  EXPECT_THROW((void)engine.add({{1, 2, 3, 4, 5, 6, 7, 8}, {}}), Error);
  EXPECT_THROW((void)engine.add({{1, 100000}, {}}), Error);
  EXPECT_THROW((void)engine.add({{1}, {.max_tokens = 0}}), Error);
  EXPECT_THROW((void)engine.add({{1}, {.repetition_penalty = 0}}), Error);
  EXPECT_THROW((void)engine.add({{1}, {.repetition_penalty = std::nan("")}}), Error);
  EXPECT_FALSE(engine.has_work());
}

}  // namespace
}  // namespace hone::test
