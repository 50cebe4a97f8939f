#include "ops/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// (positions) -> table
class RopeTable final : public Op {
 public:
  std::string_view name() const override { return "rope_table"; }
  OpCategory category() const override { return OpCategory::kRope; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return RopeTableAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& positions = required(inputs, 0, name());
    const auto& a = attributes.as<RopeTableAttributes>();
    expect(positions.dtype == DType::kI32 && positions.shape.size() == 1, name(),
           text_of("positions are ", to_text(positions), "; expected i32[rows]"));
    expect(a.head_dim > 0 && a.head_dim % 2 == 0, name(), text_of("head_dim ", a.head_dim, " is not even"));
    expect(a.scaling == "default" || a.scaling == "llama3" || a.scaling == "yarn", name(),
           text_of("scaling '", a.scaling, "' is none of default, llama3 and yarn"));
    expect(a.theta > 0 && a.factor > 0 && a.low_freq_factor > 0 && a.high_freq_factor > a.low_freq_factor &&
               a.original_max_position_embeddings > 0,
           name(),
           text_of("theta ", a.theta, ", factor ", a.factor, ", low_freq_factor ", a.low_freq_factor,
                   ", high_freq_factor ", a.high_freq_factor, ", original_max_position_embeddings ",
                   a.original_max_position_embeddings,
                   "; all must be positive, and low_freq_factor less than high_freq_factor"));
    expect(a.beta_fast > 0 && a.beta_slow > 0 && a.attention_factor > 0, name(),
           text_of("beta_fast ", a.beta_fast, ", beta_slow ", a.beta_slow, ", attention_factor ", a.attention_factor,
                   "; all must be positive"));
    return {Type{DType::kF32, {positions.shape[0], a.head_dim}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 20.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
};

// (x, table) -> y. The gradient is rotated back.
class Rope final : public Op {
 public:
  std::string_view name() const override { return "rope"; }
  OpCategory category() const override { return OpCategory::kRope; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return RopeAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, RopeIn::x, name());
    const Type& table = required(inputs, RopeIn::table, name());
    const auto& a = attributes.as<RopeAttributes>();
    expect_sizes(name(), {a.heads, a.head_dim, a.offset});
    expect(a.offset >= 0 && a.offset < a.head_dim && a.rotated_dim() % 2 == 0, name(),
           text_of("offset ", a.offset, " in heads of ", a.head_dim, "; an even number of elements must follow it"));
    expect(x.shape.size() == 2 && table.shape.size() == 2 && table.dtype == DType::kF32 &&
               x.shape[0] == table.shape[0] && table.shape[1].size == a.rotated_dim() && a.heads >= 0 &&
               a.heads * a.head_dim <= x.shape[1].size,
           name(),
           text_of("x is ", to_text(x), ", table ", to_text(table), ", ", a.heads, " heads of ", a.head_dim,
                   "; expected [rows, at least heads x head_dim] and f32[rows, ", a.rotated_dim(), "]"));
    return {x};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    const auto& a = attributes.as<RopeAttributes>();
    cost.flops = 3.0 * static_cast<double>(outputs[0].rows() * a.heads * a.rotated_dim());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(RopeIn::x)) return;
    RopeAttributes back = node.attributes.as<RopeAttributes>();
    back.inverse = !back.inverse;
    builder.add(RopeIn::x, builder.program().append1(*this, back, {dy, builder.input(RopeIn::table)}));
  }
  // Each rank turns its heads.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(RopeIn::x) == kWhole) return Op::shard(builder, node);
    RopeAttributes own = node.attributes.as<RopeAttributes>();
    own.heads /= builder.ranks();
    shard_alike(builder, own, kDividedColumns);
  }
};

const RopeTable kTable;
const Rope kRope;

// Mixes the kept frequencies with those divided by `factor`, as _compute_yarn_parameters of transformers: pairs up to
// the first bound keep theirs, pairs from the second on have theirs divided, between them the share is linear.
void scale_by_yarn(const RopeTableAttributes& a, std::vector<float>& frequencies) {
  const auto context = static_cast<double>(a.original_max_position_embeddings);
  const auto dim = static_cast<double>(a.head_dim);
  const auto pair_of = [&](double rotations) {  // the pair that makes that many rotations over the context
    return dim * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(a.theta));
  };
  double low = pair_of(a.beta_fast);
  double high = pair_of(a.beta_slow);
  if (a.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float position = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0f - std::clamp(position, 0.0f, 1.0f);
    const auto exponent = static_cast<double>(static_cast<float>(2 * i) / static_cast<float>(a.head_dim));
    const auto period = static_cast<float>(std::pow(a.theta, exponent));
    const float divided = 1.0f / (static_cast<float>(a.factor) * period);
    frequencies[i] = divided * (1.0f - kept) + frequencies[i] * kept;
  }
}

}  // namespace

// Each step is rounded to f32 where transformers rounds it (modeling_rope_utils.py, _compute_llama3_parameters). torch
// computes number / tensor as the tensor's reciprocal times the number.
std::vector<float> rope_inverse_frequencies(const RopeTableAttributes& a) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < a.head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(a.head_dim);
    frequencies.push_back(1.0f / static_cast<float>(std::pow(a.theta, static_cast<double>(exponent))));
  }
  if (a.scaling == "yarn") scale_by_yarn(a, frequencies);
  if (a.scaling != "llama3") return frequencies;
  const auto factor = static_cast<float>(a.factor);
  const auto context = static_cast<float>(a.original_max_position_embeddings);
  const auto low = static_cast<float>(a.low_freq_factor);
  const auto span = static_cast<float>(a.high_freq_factor - a.low_freq_factor);
  const auto longest = static_cast<float>(static_cast<double>(a.original_max_position_embeddings) / a.low_freq_factor);
  const auto shortest =
      static_cast<float>(static_cast<double>(a.original_max_position_embeddings) / a.high_freq_factor);
  for (float& frequency : frequencies) {
    const float wavelength = 1.0f / frequency * static_cast<float>(2.0 * std::numbers::pi);
    if (wavelength > longest) {
      frequency = frequency / factor;
    } else if (wavelength >= shortest) {
      const float smooth = (1.0f / wavelength * context - low) / span;
      frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
    }
  }
  return frequencies;
}

Tensor rope_table(Tensor positions, const RopeTableAttributes& attributes) {
  return positions.program().append1(kTable, attributes, {positions});
}

Tensor rope(Tensor x, Tensor table, const RopeAttributes& attributes) {
  return x.program().append1(kRope, attributes, {x, table});
}

void register_rope(OpRegistry& registry) {
  registry.add(kTable);
  registry.add(kRope);
}

}  // namespace hone
