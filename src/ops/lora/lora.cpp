#include "ops/lora/lora.h"

#include <charconv>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "ops/fill/fill.h"
#include "ops/linear/linear.h"
#include "ops/lora/division.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

LoraParts parts_of(const Attributes& attributes) { return lora_parts_from_text(attributes.as<LoraAttributes>().parts); }

void expect_vector(InputTypes inputs, std::size_t index, std::string_view op, const char* what, const Type& wanted) {
  const Type& seen = required(inputs, index, op);
  expect(seen == wanted, op, text_of(what, " is ", to_text(seen), "; expected ", to_text(wanted)));
}

// (dup, db) -> db, in place. dup has the accumulator type if it comes from linear_adapted, so that it is rounded once.
class LoraCollect final : public Op {
 public:
  std::string_view name() const override { return "lora_collect"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return LoraAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& dup = required(inputs, LoraCollectIn::dup, name());
    const Type& db = required(inputs, LoraCollectIn::db, name());
    const std::int64_t parts = parts_of(attributes).count;
    expect(is_floating(dup.dtype) && is_floating(db.dtype) && accumulator_of(dup.dtype) == accumulator_of(db.dtype) &&
               dup.shape.size() == 2 && db.shape.size() == 2 && dup.shape[0] == db.shape[0] &&
               dup.shape[1].size == parts * db.shape[1].size,
           name(), text_of(to_text(dup), " (dup) does not fit db ", to_text(db), " with ", parts, " parts"));
    return {db};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return LoraCollectIn::db; }
};

const LoraCollect kCollect;

class LoraSpread final : public Op {
 public:
  std::string_view name() const override { return "lora_spread"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return LoraAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& b = required(inputs, 0, name());
    expect(is_floating(b.dtype) && b.shape.size() == 2, name(), text_of("b is ", to_text(b), "; expected [n, r]"));
    const std::int64_t parts = parts_of(attributes).count;
    expect(parts > 0, name(), "parts is empty; expected at least one part with an adapter");
    return {Type{b.dtype, {b.shape[0], parts * b.shape[1].size}}};
  }
  void shard(ShardBuilder& builder, const Node& node) const override { divide_lora_spread(builder, *this, node); }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dup = builder.output_gradient(0);
    if (!dup || !builder.needs(0)) return;
    builder.set_accumulator(0, builder.program().append1(kCollect, node.attributes, {dup, builder.accumulator(0)}));
  }
};

const LoraSpread kSpread;

// (x, weight, bias or none, h, up) -> y
class LinearAdapted final : public Op {
 public:
  std::string_view name() const override { return "lora_linear"; }
  OpCategory category() const override { return OpCategory::kGemm; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, LoraLinearIn::x, name());
    const Type& weight = required(inputs, LoraLinearIn::weight, name());
    const Type& h = required(inputs, LoraLinearIn::h, name());
    const Type& up = required(inputs, LoraLinearIn::up, name());
    const auto product = [](const Type& a, const Type& b) {
      return a.shape.size() == 2 && b.shape.size() == 2 && a.shape[1] == b.shape[1] && a.dtype == b.dtype;
    };
    expect(product(x, weight) && product(h, up) && x.shape[0] == h.shape[0] && weight.shape[0] == up.shape[0] &&
               x.dtype == h.dtype,
           name(),
           text_of("x is ", to_text(x), ", weight ", to_text(weight), ", h ", to_text(h), ", up ", to_text(up),
                   "; expected [rows, k], [n, k], [rows, q], [n, q]"));
    if (inputs[LoraLinearIn::bias])
      expect_vector(inputs, LoraLinearIn::bias, name(), "bias", {x.dtype, {weight.shape[0]}});
    return {Type{x.dtype, {x.shape[0], weight.shape[0].size}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 2.0 * static_cast<double>(outputs[0].elements()) *
                 static_cast<double>(required(inputs, LoraLinearIn::weight, name()).shape[1].size +
                                     required(inputs, LoraLinearIn::up, name()).shape[1].size);
    return cost;
  }
  void shard(ShardBuilder& builder, const Node& node) const override { divide_lora_linear(builder, *this, node); }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    HONE_ASSERT(!builder.needs(LoraLinearIn::weight), "at ", node.scope, ": a weight with an adapter must be frozen");
    Program& program = builder.program();
    if (builder.needs(LoraLinearIn::bias))
      builder.set_accumulator(LoraLinearIn::bias, column_sum(dy, builder.accumulator(LoraLinearIn::bias)));
    const Tensor up = builder.input(LoraLinearIn::up);
    if (builder.needs(LoraLinearIn::up)) {
      const Tensor sum = fill(program, {accumulator_of(up.dtype()), up.shape()}, 0.0);
      builder.add(LoraLinearIn::up, transposed_product(dy, builder.input(LoraLinearIn::h), sum));
    }
    if (builder.needs(LoraLinearIn::h)) builder.add(LoraLinearIn::h, product(dy, up));
    if (builder.needs(LoraLinearIn::x)) builder.add(LoraLinearIn::x, product(dy, builder.input(LoraLinearIn::weight)));
  }
};

class RowNorm : public Op {
 public:
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& weight = required(inputs, LoraDoraNormIn::weight, name());
    expect_vector(inputs, LoraDoraNormIn::delta, name(), "delta", weight);
    expect(is_floating(weight.dtype) && weight.shape.size() == 2, name(),
           text_of("the weight must be [n, k] of a floating type, not ", to_text(weight)));
    return {Type{accumulator_of(weight.dtype), {weight.shape[0]}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 3.0 * static_cast<double>(required(inputs, LoraDoraNormIn::weight, name()).elements());
    return cost;
  }
  void gradient(GradientBuilder&, const Node&) const override {}
};

class DoraNorm final : public RowNorm {
 public:
  std::string_view name() const override { return "lora_dora_norm"; }
  OpCategory category() const override { return OpCategory::kNormalization; }
  void shard(ShardBuilder& builder, const Node& node) const override { divide_dora_norm(builder, *this, node); }
};

class DoraNormPart final : public RowNorm {
 public:
  std::string_view name() const override { return "lora_dora_norm_part"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
};

// (dy, z, norm) -> dy z / norm in the columns of parts and 0 in the others, whose sum over rows is the gradient of the
// magnitude.
class DoraProduct final : public Op {
 public:
  std::string_view name() const override { return "lora_dora_product"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return LoraAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& dy = required(inputs, LoraDoraProductIn::dy, name());
    expect(required(inputs, LoraDoraProductIn::z, name()) == dy, name(),
           text_of("dy is ", to_text(dy), ", z ", to_text(required(inputs, LoraDoraProductIn::z, name()))));
    expect_vector(inputs, LoraDoraProductIn::norm, name(), "the norm", {accumulator_of(dy.dtype), {dy.shape[1]}});
    return {dy};
  }
};

const DoraProduct kProduct;

// (z, magnitude, norm, bias or none) -> y
class DoraScale final : public Op {
 public:
  std::string_view name() const override { return "lora_dora_scale"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return LoraAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& z = required(inputs, LoraDoraScaleIn::z, name());
    expect(is_floating(z.dtype) && z.shape.size() == 2, name(),
           text_of("z must be [rows, n] of a floating type, not ", to_text(z)));
    const Shape columns{z.shape[1]};
    expect_vector(inputs, LoraDoraScaleIn::magnitude, name(), "the magnitude", {z.dtype, columns});
    expect_vector(inputs, LoraDoraScaleIn::norm, name(), "the norm", {accumulator_of(z.dtype), columns});
    if (given(inputs, LoraDoraScaleIn::bias) != nullptr)
      expect_vector(inputs, LoraDoraScaleIn::bias, name(), "bias", {z.dtype, columns});
    return {z};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    cost.flops = 2.0 * static_cast<double>(outputs[0].elements());
    return cost;
  }
  void shard(ShardBuilder& builder, const Node& node) const override { divide_dora_scale(builder, *this, node); }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    Program& program = builder.program();
    if (builder.needs(LoraDoraScaleIn::bias))
      builder.set_accumulator(LoraDoraScaleIn::bias, column_sum(dy, builder.accumulator(LoraDoraScaleIn::bias)));
    const Tensor norm = builder.input(LoraDoraScaleIn::norm);
    if (builder.needs(LoraDoraScaleIn::magnitude)) {
      const Tensor each = program.append1(kProduct, node.attributes, {dy, builder.input(LoraDoraScaleIn::z), norm});
      builder.set_accumulator(LoraDoraScaleIn::magnitude,
                              column_sum(each, builder.accumulator(LoraDoraScaleIn::magnitude)));
    }
    if (builder.needs(LoraDoraScaleIn::z)) {
      builder.add(LoraDoraScaleIn::z, program.append1(*this, node.attributes,
                                                      {dy, builder.input(LoraDoraScaleIn::magnitude), norm, Tensor()}));
    }
  }
};

// (dbias, dtrained) -> dtrained, in place, with dbias added in the elements that belong to parts.
class BiasCollect final : public Op {
 public:
  std::string_view name() const override { return "lora_bias_collect"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  Attributes default_attributes() const override { return LoraAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& dbias = required(inputs, LoraBiasCollectIn::dbias, name());
    expect(is_floating(dbias.dtype) && dbias.shape.size() == 1, name(),
           text_of("dbias must be [n] of a floating type, not ", to_text(dbias)));
    expect_vector(inputs, LoraBiasCollectIn::sum, name(), "dtrained", {accumulator_of(dbias.dtype), dbias.shape});
    return {required(inputs, LoraBiasCollectIn::sum, name())};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return LoraBiasCollectIn::sum; }
};

const BiasCollect kBiasCollect;

// (trained, frozen) -> bias
class Bias final : public Op {
 public:
  std::string_view name() const override { return "lora_bias"; }
  OpCategory category() const override { return OpCategory::kElementwise; }
  Attributes default_attributes() const override { return LoraAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& trained = required(inputs, LoraBiasIn::trained, name());
    expect(is_floating(trained.dtype) && trained.shape.size() == 1, name(),
           text_of("trained must be [n] of a floating type, not ", to_text(trained)));
    expect_vector(inputs, LoraBiasIn::frozen, name(), "frozen", trained);
    return {trained};
  }
  void shard(ShardBuilder& builder, const Node& node) const override { divide_lora_bias(builder, *this, node); }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dbias = builder.output_gradient(0);
    if (!dbias || !builder.needs(LoraBiasIn::trained)) return;
    builder.set_accumulator(
        LoraBiasIn::trained,
        builder.program().append1(kBiasCollect, node.attributes, {dbias, builder.accumulator(LoraBiasIn::trained)}));
  }
};

const Bias kBias;

// x [rows, n] -> its columns [first, first + count).
class TakeColumns final : public Op {
 public:
  std::string_view name() const override { return "lora_columns"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  Attributes default_attributes() const override { return LoraColumns{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, 0, name());
    const auto& columns = attributes.as<LoraColumns>();
    expect(is_floating(x.dtype) && x.shape.size() == 2 && columns.first >= 0 && columns.count > 0 &&
               columns.first <= x.shape[1].size - columns.count,
           name(), text_of("x is ", to_text(x), "; it has no ", columns.count, " columns from column ", columns.first));
    return {Type{x.dtype, {x.shape[0], columns.count}}};
  }
};

const TakeColumns kTakeColumns;

class JoinColumns final : public Op {
 public:
  std::string_view name() const override { return "lora_join"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  bool is_token_wise() const override { return true; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& a = required(inputs, LoraJoinIn::a, name());
    const Type& b = required(inputs, LoraJoinIn::b, name());
    expect(is_floating(a.dtype) && a.dtype == b.dtype && a.shape.size() == 2 && b.shape.size() == 2 &&
               a.shape[0] == b.shape[0],
           name(), text_of("a is ", to_text(a), ", b ", to_text(b), "; expected [rows, m] and [rows, n]"));
    return {Type{a.dtype, {a.shape[0], a.shape[1].size + b.shape[1].size}}};
  }
  void shard(ShardBuilder& builder, const Node& node) const override { divide_join_columns(builder, *this, node); }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy) return;
    std::int64_t first = 0;
    for (const std::size_t index : {LoraJoinIn::a, LoraJoinIn::b}) {
      const std::int64_t count = builder.input(index).dim(1);
      if (builder.needs(index)) {
        builder.add(index, builder.program().append1(kTakeColumns, LoraColumns{.first = first, .count = count}, {dy}));
      }
      first += count;
    }
  }
};

const JoinColumns kJoinColumns;

const LinearAdapted kAdapted;
const DoraNorm kDoraNorm;
const DoraNormPart kNormPart;
const DoraScale kDoraScale;

std::int64_t number(std::string_view text, std::string_view whole) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw Error(text_of("'", whole, "' does not list the parts of a block; expected FIRST+ROWS,..."));
  }
  return value;
}

}  // namespace

void LoraParts::add(std::int64_t first_row, std::int64_t row_count) {
  HONE_ASSERT(count < kMost, "a block has more than ", kMost, " parts with adapters");
  first.at(static_cast<std::size_t>(count)) = first_row;
  rows.at(static_cast<std::size_t>(count)) = row_count;
  ++count;
}

std::string to_text(const LoraParts& parts) {
  std::string text;
  for (int part = 0; part < parts.count; ++part) {
    const auto at = static_cast<std::size_t>(part);
    text += text_of(part == 0 ? "" : ",", parts.first.at(at), "+", parts.rows.at(at));
  }
  return text;
}

LoraParts lora_parts_from_text(std::string_view text) {
  LoraParts parts;
  if (text.empty()) return parts;
  for (const std::string& entry : split(text, ',')) {
    const std::size_t plus = entry.find('+');
    if (plus == std::string::npos || parts.count == LoraParts::kMost) (void)number({}, text);
    parts.add(number(std::string_view(entry).substr(0, plus), text),
              number(std::string_view(entry).substr(plus + 1), text));
  }
  return parts;
}

Tensor lora_spread(Tensor b, const LoraParts& parts, double scale) {
  return b.program().append1(kSpread, LoraAttributes{.parts = to_text(parts), .scale = scale}, {b});
}

Tensor linear_adapted(Tensor x, Tensor weight, Tensor bias, Tensor h, Tensor up) {
  return x.program().append1(kAdapted, {}, {x, weight, bias, h, up});
}

Tensor dora_norm(Tensor weight, Tensor delta) { return weight.program().append1(kDoraNorm, {}, {weight, delta}); }

Tensor dora_norm_part(Tensor weight, Tensor delta) { return weight.program().append1(kNormPart, {}, {weight, delta}); }

Tensor dora_scale(Tensor z, Tensor magnitude, Tensor norm, Tensor bias, const LoraParts& parts) {
  return z.program().append1(kDoraScale, LoraAttributes{.parts = to_text(parts)}, {z, magnitude, norm, bias});
}

Tensor lora_bias(Tensor trained, Tensor frozen, const LoraParts& parts) {
  return trained.program().append1(kBias, LoraAttributes{.parts = to_text(parts)}, {trained, frozen});
}

Tensor join_columns(Tensor a, Tensor b) { return a.program().append1(kJoinColumns, {}, {a, b}); }

void register_lora(OpRegistry& registry) {
  registry.add(kSpread);
  registry.add(kCollect);
  registry.add(kAdapted);
  registry.add(kDoraNorm);
  registry.add(kNormPart);
  registry.add(kDoraScale);
  registry.add(kProduct);
  registry.add(kBias);
  registry.add(kBiasCollect);
  registry.add(kJoinColumns);
  registry.add(kTakeColumns);
}

}  // namespace hone
