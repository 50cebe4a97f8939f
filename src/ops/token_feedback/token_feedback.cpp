#include "ops/token_feedback/token_feedback.h"

#include "core/error.h"
#include "ops/registry.h"

namespace hone {
namespace {

void expect_vectors(std::string_view name, const Type& tokens, const Type& sampled) {
  expect(tokens.dtype == DType::kI32 && tokens.shape.size() == 1 && sampled.dtype == DType::kI32 &&
             sampled.shape.size() == 1,
         name, text_of("tokens are ", to_text(tokens), ", sampled ", to_text(sampled), "; expected i32[rows], i32[n]"));
}

// (tokens, sampled) -> tokens.
class TokenFeedback final : public Op {
 public:
  std::string_view name() const override { return "token_feedback"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& tokens = required(inputs, TokenFeedbackIn::tokens, name());
    expect_vectors(name(), tokens, required(inputs, TokenFeedbackIn::sampled, name()));
    return {tokens};
  }
};

// (token, sampled) -> sampled, in place.
class TokenFeedbackStore final : public Op {
 public:
  std::string_view name() const override { return "token_feedback_store"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& token = required(inputs, TokenFeedbackStoreIn::token, name());
    const Type& sampled = required(inputs, TokenFeedbackStoreIn::sampled, name());
    expect_vectors(name(), token, sampled);
    expect(token.shape[0].size <= sampled.shape[0].size, name(),
           text_of("token is ", to_text(token), ", which is longer than the state ", to_text(sampled)));
    return {sampled};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return TokenFeedbackStoreIn::sampled; }
};

const TokenFeedback kTokenFeedback;
const TokenFeedbackStore kTokenFeedbackStore;

}  // namespace

Tensor token_feedback(Tensor tokens, Tensor sampled) {
  return tokens.program().append1(kTokenFeedback, {}, {tokens, sampled});
}

Tensor token_feedback_store(Tensor token, Tensor sampled) {
  return token.program().append1(kTokenFeedbackStore, {}, {token, sampled});
}

void register_token_feedback(OpRegistry& registry) {
  registry.add(kTokenFeedback);
  registry.add(kTokenFeedbackStore);
}

}  // namespace hone
