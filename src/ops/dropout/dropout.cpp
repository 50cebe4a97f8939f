#include "ops/dropout/dropout.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

// Checks the operands and returns the type of y. elements: of the whole value.
Type dropped(InputTypes inputs, double probability, std::int64_t site, std::int64_t elements, std::string_view name) {
  const Type& x = required(inputs, DropoutIn::x, name);
  const Type& draw = required(inputs, DropoutIn::draw, name);
  expect(is_floating(x.dtype) && draw == Type{DType::kI32, {kDropoutDraw}}, name,
         text_of("x is ", to_text(x), ", draw ", to_text(draw), "; expected a floating type and i32[4]"));
  expect(probability >= 0 && probability < 1 && site >= 0, name,
         text_of("probability ", probability, ", site ", site,
                 "; expected a probability in [0, 1) and a site of at least 0"));
  expect(elements / kDropoutBlock < std::numeric_limits<std::uint32_t>::max(), name,
         text_of(to_text(x), " has more blocks of 8 elements than a 32-bit counter covers"));
  return x;
}

// (x, draw) -> y. The gradient is the same dropout applied to dy.
class DropoutOp : public Op {
 public:
  OpCategory category() const override { return OpCategory::kElementwise; }
  bool is_token_wise() const override { return true; }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = static_cast<double>(outputs[0].elements());
    return cost;
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(DropoutIn::x)) return;
    builder.add(DropoutIn::x, builder.program().append1(*this, node.attributes, {dy, builder.input(DropoutIn::draw)}));
  }
};

class Dropout final : public DropoutOp {
 public:
  std::string_view name() const override { return "dropout"; }
  Attributes default_attributes() const override { return DropoutAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& a = attributes.as<DropoutAttributes>();
    return {dropped(inputs, a.probability, a.site, required(inputs, DropoutIn::x, name()).elements(), name())};
  }
  // Each rank has equal columns of x, in the order of ranks.
  void shard(ShardBuilder& builder, const Node& node) const override {
    if (builder.division(DropoutIn::x) != kDividedColumns) return Op::shard(builder, node);
    const Tensor x = builder.input(DropoutIn::x);
    const auto& a = node.attributes.as<DropoutAttributes>();
    const Tensor y = dropout_part(x, builder.input(DropoutIn::draw),
                                  {.probability = a.probability,
                                   .site = a.site,
                                   .first = builder.rank() * x.dim(1),
                                   .columns = builder.ranks() * x.dim(1)});
    builder.set_output(0, y, kDividedColumns);
  }
};

class DropoutPart final : public DropoutOp {
 public:
  std::string_view name() const override { return "dropout_part"; }
  Attributes default_attributes() const override { return DropoutPartAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, DropoutIn::x, name());
    const auto& a = attributes.as<DropoutPartAttributes>();
    expect_sizes(name(), {a.first, a.columns});
    expect(x.shape.size() == 2 && a.first >= 0 && a.first + x.shape[1].size <= a.columns, name(),
           text_of("x is ", to_text(x), "; expected columns from ", a.first, " on of the ", a.columns, " of a value"));
    return {dropped(inputs, a.probability, a.site, x.rows() * a.columns, name())};
  }
};

const Dropout kDropout;
const DropoutPart kDropoutPart;

}  // namespace

std::uint32_t dropout_threshold(double probability) {
  return static_cast<std::uint32_t>(std::min(std::lround(probability * 65536.0), 65535L));
}

std::array<std::int32_t, kDropoutDraw> dropout_draw(std::uint64_t seed, std::int64_t step, std::int64_t micro_batch) {
  const std::uint64_t key = RandomStream(seed, "dropout").key();
  return {static_cast<std::int32_t>(key), static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(step),
          static_cast<std::int32_t>(micro_batch)};
}

Tensor dropout(Tensor x, Tensor draw, const DropoutAttributes& attributes) {
  return x.program().append1(kDropout, attributes, {x, draw});
}

Tensor dropout_part(Tensor x, Tensor draw, const DropoutPartAttributes& attributes) {
  return x.program().append1(kDropoutPart, attributes, {x, draw});
}

void register_dropout(OpRegistry& registry) {
  registry.add(kDropout);
  registry.add(kDropoutPart);
}

}  // namespace hone
