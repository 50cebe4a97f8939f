#include "ops/embedding/embedding.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"

namespace hone {
namespace {

// (dy, tokens, dweight) -> dweight, in place.
class EmbeddingGradient final : public Op {
 public:
  std::string_view name() const override { return "embedding_gradient"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    return {required(inputs, EmbeddingGradientIn::dweight, name())};
  }
  // Only one row of the table is read and written for each row of dy.
  Cost cost(InputTypes inputs, std::span<const Type>, const Attributes&) const override {
    const Type& dy = required(inputs, EmbeddingGradientIn::dy, name());
    const auto elements = static_cast<double>(dy.elements());
    const double accumulated =
        elements * static_cast<double>(size_of(required(inputs, EmbeddingGradientIn::dweight, name()).dtype));
    return {
        .flops = elements,
        .bytes_read = static_cast<double>(dy.bytes() + required(inputs, EmbeddingGradientIn::tokens, name()).bytes()) +
                      accumulated,
        .bytes_written = accumulated};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return EmbeddingGradientIn::dweight; }
};

const EmbeddingGradient kGradient;

// (tokens, weight) -> y
class Embedding final : public Op {
 public:
  std::string_view name() const override { return "embedding"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& tokens = required(inputs, EmbeddingIn::tokens, name());
    const Type& weight = required(inputs, EmbeddingIn::weight, name());
    expect(tokens.dtype == DType::kI32 && tokens.shape.size() == 1 && weight.shape.size() == 2, name(),
           text_of("tokens are ", to_text(tokens), ", weight ", to_text(weight),
                   "; expected i32[rows] and [vocab, hidden]"));
    return {Type{weight.dtype, {tokens.shape[0], weight.shape[1]}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes&) const override {
    const auto bytes = static_cast<double>(outputs[0].bytes());
    return {.bytes_read = static_cast<double>(required(inputs, EmbeddingIn::tokens, name()).bytes()) + bytes,
            .bytes_written = bytes};
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(EmbeddingIn::weight)) return;
    builder.set_accumulator(EmbeddingIn::weight, builder.program().append1(kGradient, {},
                                                                           {dy, builder.input(EmbeddingIn::tokens),
                                                                            builder.accumulator(EmbeddingIn::weight)}));
  }
};

const Embedding kEmbedding;

}  // namespace

Tensor embedding(Tensor tokens, Tensor weight) { return tokens.program().append1(kEmbedding, {}, {tokens, weight}); }

void register_embedding(OpRegistry& registry) {
  registry.add(kEmbedding);
  registry.add(kGradient);
}

}  // namespace hone
