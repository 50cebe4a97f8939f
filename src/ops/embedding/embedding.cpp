#include "ops/embedding/embedding.h"

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (dy, tokens, dweight) -> dweight, in place.
class EmbeddingGradient : public Op {
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

class EmbeddingPartGradient final : public EmbeddingGradient {
 public:
  std::string_view name() const override { return "embedding_part_gradient"; }
  Attributes default_attributes() const override { return EmbeddingPartAttributes{}; }
};

const EmbeddingPartGradient kPartGradient;

// (tokens, weight) -> y
class EmbeddingLookup : public Op {
 public:
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
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

 protected:
  static void append_gradient(GradientBuilder& builder, const Op& gradient, const Attributes& attributes) {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(EmbeddingIn::weight)) return;
    const Tensor sum = builder.accumulator(EmbeddingIn::weight);
    builder.set_accumulator(
        EmbeddingIn::weight,
        builder.program().append1(gradient, attributes, {dy, builder.input(EmbeddingIn::tokens), sum}));
  }
};

class Embedding final : public EmbeddingLookup {
 public:
  std::string_view name() const override { return "embedding"; }
  void gradient(GradientBuilder& builder, const Node&) const override { append_gradient(builder, kGradient, {}); }
  // Each rank has some rows of the table and looks up the tokens that are there.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(EmbeddingIn::weight) != kDividedRows) return Op::shard(builder, node);
    const Tensor weight = builder.input(EmbeddingIn::weight);
    const EmbeddingPartAttributes own{.first = builder.rank() * weight.dim(0),
                                      .vocab = builder.ranks() * weight.dim(0)};
    builder.set_sum(0, embedding_part(builder.input(EmbeddingIn::tokens), weight, own), {});
  }
};

const Embedding kEmbedding;

// The same of a table with some rows of the vocabulary.
class EmbeddingPart final : public EmbeddingLookup {
 public:
  std::string_view name() const override { return "embedding_part"; }
  Attributes default_attributes() const override { return EmbeddingPartAttributes{}; }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    append_gradient(builder, kPartGradient, node.attributes);
  }
};

const EmbeddingPart kEmbeddingPart;

}  // namespace

Tensor embedding(Tensor tokens, Tensor weight) { return tokens.program().append1(kEmbedding, {}, {tokens, weight}); }

Tensor embedding_part(Tensor tokens, Tensor weight, const EmbeddingPartAttributes& attributes) {
  return tokens.program().append1(kEmbeddingPart, attributes, {tokens, weight});
}

void register_embedding(OpRegistry& registry) {
  registry.add(kEmbedding);
  registry.add(kGradient);
  registry.add(kEmbeddingPart);
  registry.add(kPartGradient);
}

}  // namespace hone
