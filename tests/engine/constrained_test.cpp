// Tests of requests that follow a grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json_value.h"
#include "core/regex.h"
#include "engine/engine.h"
#include "engine/token_constraint.h"
#include "grammar/grammar.h"
#include "model/registry.h"
#include "model/weights.h"
#include "support/device.h"
#include "support/json_schemas.h"
#include "text/bpe_trainer.h"

namespace hone::test {
namespace {

constexpr std::int64_t kGrammarVocab = 330;  // logits without a token are at the end

// A small model whose tokens can write any text.
struct WritingModel {
  WritingModel()
      : network(family_registry().create(Json::parse(R"({"model_type": "qwen3", "vocab_size": 330, "hidden_size": 32,
          "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
          "head_dim": 16, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "tie_word_embeddings": true, "initializer_range": 0.3})"))),
        tokenizer([] {
          BpeTrainer trainer({.vocab_size = 320,
                              .special_tokens = {"<|endoftext|>", "<think>", "</think>"},
                              .eos_token = "<|endoftext|>"});
          trainer.add(R"({"name": "naïve", "age": 12} true false null </thin the answer is , ": ")");
          return trainer.train();
        }()),
        weights(random_weights(*network, 1, DType::kF32, test_device())),
        compiler(tokenizer, kGrammarVocab) {}

  [[nodiscard]] std::vector<Completion> generate(std::span<const Request> requests, const EngineOptions& options) {
    Engine engine(*network, tokenizer, weights, std::make_shared<Arena>(test_device()), options);
    return engine.generate(requests);
  }

  [[nodiscard]] Request request(const GrammarSpec& spec, std::uint64_t seed) {
    Request result{tokenizer.encode("the answer is " + std::to_string(seed)), {.max_tokens = 120, .seed = seed}};
    result.sampling.stop_token_ids = {*tokenizer.eos_token_id()};
    result.constraint.grammar = compiler.compile(spec);
    return result;
  }

  std::unique_ptr<Model> network;
  Tokenizer tokenizer;
  TensorStore weights;
  GrammarCompiler compiler;
};

WritingModel& writer() {
  static WritingModel model;
  return model;
}

EngineOptions constrained_options(std::int64_t max_num_seqs, bool ahead) {
  return {.max_model_len = 256,
          .max_num_seqs = max_num_seqs,
          .max_batch_tokens = 128,
          .block_size = 16,
          .adjust_logits = true,
          .launch_ahead = ahead};
}

// Requests with grammars and without, some with penalties and biases.
std::vector<Request> mixed_constraints() {
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 36; ++seed) {
    Request request = writer().request({GrammarKind::kRegex, "([a-f]{2,9} ){3,6}[0-9]+"}, seed);
    request.sampling.max_tokens = 20 + static_cast<std::int64_t>(seed % 7);
    if (seed % 3 == 1)
      request.constraint.grammar = writer().compiler.compile({GrammarKind::kJsonSchema, random_schema(seed).dump()});
    if (seed % 3 == 2) request.constraint = {};
    if (seed % 4 == 1) request.sampling.repetition_penalty = 1.3;
    if (seed % 5 == 2) request.sampling.logit_bias = {{40, 2.0}};
    requests.push_back(std::move(request));
  }
  return requests;
}

void expect_same_tokens(std::span<const Completion> completions, std::span<const Completion> expected) {
  ASSERT_EQ(completions.size(), expected.size());
  for (std::size_t i = 0; i < completions.size(); ++i) {
    ASSERT_EQ(completions[i].tokens, expected[i].tokens) << "request " << i;
    ASSERT_EQ(completions[i].logps, expected[i].logps) << "request " << i;
    ASSERT_EQ(completions[i].finish_reason, expected[i].finish_reason) << "request " << i;
  }
}

TEST(Constrained, CompletionsSatisfyRandomSchemas) {
  std::vector<Request> requests;
  std::vector<Json> schemas;
  for (std::uint64_t seed = 0; seed < 260; ++seed) {
    schemas.push_back(random_schema(seed));
    requests.push_back(writer().request({GrammarKind::kJsonSchema, schemas.back().dump()}, seed));
    for (const char* text : {"\"", "}", "]", ",", "1"})
      requests.back().sampling.logit_bias[writer().tokenizer.encode(text).at(0)] = 8;
  }
  const std::vector<Completion> completions = writer().generate(requests, constrained_options(32, true));
  int finished = 0;
  for (std::size_t i = 0; i < completions.size(); ++i) {
    ASSERT_NE(completions[i].finish_reason, FinishReason::kAbort);
    if (completions[i].finish_reason != FinishReason::kStop) continue;
    if (completions[i].text.find("\uFFFD") != std::string::npos) continue;  // bytes of a surrogate, as a character
    ++finished;
    const Json value = Json::parse(completions[i].text, nullptr, false);
    EXPECT_TRUE(!value.is_discarded() && satisfies(value, schemas[i], true)) << schemas[i] << "\n"
                                                                             << completions[i].text;
  }
  EXPECT_GE(finished, 200);
}

TEST(Constrained, CompletionsFollowExpressionsChoicesAndRules) {
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    requests.push_back(writer().request({GrammarKind::kRegex, "[a-c]{2,4}-(foo|bar)"}, seed));
    requests.push_back(writer().request({GrammarKind::kChoice, R"(["yes", "no", "naïve"])"}, seed));
    requests.push_back(writer().request({GrammarKind::kGrammar, R"~(root ::= "(" root ")" | "x")~"}, seed));
  }
  const std::vector<Completion> completions = writer().generate(requests, constrained_options(8, true));
  for (std::size_t i = 0; i < completions.size(); i += 3) {
    EXPECT_TRUE(Regex("[a-c]{2,4}-(foo|bar)").fits(completions[i].text)) << completions[i].text;
    EXPECT_THAT((std::vector<std::string>{"yes", "no", "naïve"}), testing::Contains(completions[i + 1].text));
    const std::string& nested = completions[i + 2].text;
    if (completions[i + 2].finish_reason != FinishReason::kStop) continue;
    const auto half = nested.size() / 2;
    EXPECT_EQ(nested, std::string(half, '(') + "x" + std::string(half, ')'));
  }
}

TEST(Constrained, TokensDependOnTheRequestAlone) {
  const std::vector<Request> requests = mixed_constraints();
  const std::vector<Completion> expected = writer().generate(requests, constrained_options(36, false));
  expect_same_tokens(writer().generate(requests, constrained_options(36, true)), expected);
  EngineOptions tight = constrained_options(6, true);  // chunks of prompts, and preemption
  tight.max_model_len = 96;
  tight.max_batch_tokens = 7;
  tight.block_size = 8;
  tight.num_blocks = 14;
  expect_same_tokens(writer().generate(requests, tight), expected);
  for (std::size_t i = 0; i < requests.size(); i += 5)
    expect_same_tokens(writer().generate({&requests[i], 1}, constrained_options(1, true)), {&expected[i], 1});
  EngineOptions drafting = constrained_options(8, false);
  drafting.num_speculative_tokens = 3;
  expect_same_tokens(writer().generate(requests, drafting), expected);
}

TEST(Constrained, OthersKeepTheirTokens) {
  std::vector<Request> requests = mixed_constraints();
  const std::vector<Completion> together = writer().generate(requests, constrained_options(36, true));
  std::vector<Request> plain;
  std::vector<Completion> expected;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].constraint.grammar != nullptr) continue;
    plain.push_back(requests[i]);
    expected.push_back(together[i]);
  }
  ASSERT_EQ(plain.size(), 12U);
  expect_same_tokens(writer().generate(plain, constrained_options(36, true)), expected);
}

// A step begins before the tokens of the step before have been read, and its masks come later.
TEST(Constrained, EachStepDrawsATokenOfEachCompletion) {
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    requests.push_back(writer().request({GrammarKind::kRegex, "[a-z ]{200}"}, seed));
    requests.back().sampling.max_tokens = 30;
  }
  requests.back().constraint = {};
  requests.back().sampling.stop_token_ids.clear();
  Engine engine(*writer().network, writer().tokenizer, writer().weights, std::make_shared<Arena>(test_device()),
                constrained_options(4, true));
  for (const Completion& completion : engine.generate(requests)) EXPECT_EQ(completion.tokens.size(), 30U);
  EXPECT_EQ(engine.statistics().steps, 30);
}

// Without a stop token a completion ends where the grammar can only end.
TEST(Constrained, EndsWithoutAStopToken) {
  Request request = writer().request({GrammarKind::kRegex, "ab{3}"}, 1);
  const Completion stopped = writer().generate({&request, 1}, constrained_options(1, true))[0];
  EXPECT_EQ(stopped.tokens.back(), *writer().tokenizer.eos_token_id());
  request.sampling.stop_token_ids.clear();
  const Completion ended = writer().generate({&request, 1}, constrained_options(1, true))[0];
  for (const Completion& completion : {stopped, ended}) {
    EXPECT_EQ(completion.text, "abbb");
    EXPECT_EQ(completion.finish_reason, FinishReason::kStop);
  }
  EXPECT_EQ(ended.tokens.size() + 1, stopped.tokens.size());
}

// Allowed tokens and a grammar may leave nothing. The request then ends, and the engine continues.
TEST(Constrained, EndsWhereNothingIsLeft) {
  std::vector<Request> requests{writer().request({GrammarKind::kRegex, "ab"}, 1),
                                writer().request({GrammarKind::kRegex, "ab"}, 1)};
  requests[0].sampling.allowed_token_ids = writer().tokenizer.encode("x");
  const std::vector<Completion> completions = writer().generate(requests, constrained_options(2, true));
  EXPECT_EQ(completions[0].finish_reason, FinishReason::kAbort);
  EXPECT_EQ(completions[1].text, "ab");
}

TEST(Constrained, ReasoningIsFree) {
  const Tokenizer& tokenizer = writer().tokenizer;
  const TokenId opening = *tokenizer.token_id("<think>");
  const TokenId stop = *tokenizer.eos_token_id();
  Constraint constraint{writer().compiler.compile({GrammarKind::kRegex, "7"}), Reasoning::kPossible};
  const auto allows = [](const TokenConstraint& state, TokenId token) {
    return (static_cast<std::uint32_t>(state.mask()[static_cast<std::size_t>(token / 32)]) >> (token % 32) & 1U) != 0;
  };
  const TokenId seven = tokenizer.encode("7").at(0);
  const TokenId letter = tokenizer.encode("z").at(0);
  TokenConstraint state(tokenizer, constraint, std::vector{stop}, kGrammarVocab);
  EXPECT_TRUE(allows(state, opening) && allows(state, seven));
  EXPECT_FALSE(allows(state, letter));
  state.accept(opening);
  EXPECT_TRUE(allows(state, letter) && allows(state, opening));
  EXPECT_FALSE(allows(state, stop));
  for (const TokenId token : tokenizer.encode("z <x </t</thi")) state.accept(token);
  EXPECT_TRUE(allows(state, seven));
  for (const char* end : {"n", "k", ">"}) state.accept(tokenizer.encode(end).at(0));
  EXPECT_FALSE(allows(state, opening) || allows(state, letter));
  EXPECT_TRUE(allows(state, seven));
  state.accept(seven);
  EXPECT_TRUE(allows(state, stop) && !state.is_void());
  state.accept(stop);
  EXPECT_TRUE(state.is_exhausted());

  constraint.reasoning = Reasoning::kOpened;
  TokenConstraint opened(tokenizer, constraint, std::vector{stop}, kGrammarVocab);
  EXPECT_TRUE(allows(opened, letter));
  opened.accept(*tokenizer.token_id("</think>"));
  EXPECT_FALSE(allows(opened, letter));
  opened.accept(letter);
  EXPECT_TRUE(opened.is_void());
}

}  // namespace
}  // namespace hone::test
