#include "ops/gradient_norm/gradient_norm.h"

#include "core/error.h"
#include "core/strings.h"
#include "ops/registry.h"

namespace hone {
namespace {

class GradientNorm final : public Op {
 public:
  std::string_view name() const override { return "gradient_norm"; }
  OpCategory category() const override { return OpCategory::kOptimizer; }
  Attributes default_attributes() const override { return GradientNormAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const auto& division = attributes.as<GradientNormAttributes>();
    const std::size_t firsts = block_numbers(division.firsts).size();
    expect(division.blocks.empty() || firsts == inputs.size(), name(),
           text_of(inputs.size(), " gradients, the places of ", firsts));
    const std::size_t parts = block_numbers(division.parts).size();
    const bool has_parts = division.tensor_group || division.expert_group;
    expect(has_parts ? parts == inputs.size() && parts == firsts : parts == 0, name(),
           text_of(inputs.size(), " gradients, parts of ", parts));
    const DType dtype = accumulator_of(required(inputs, 0, name()).dtype);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Type& gradient = required(inputs, i, name());
      expect(is_floating(gradient.dtype) && accumulator_of(gradient.dtype) == dtype, name(),
             text_of("gradient ", i, " is ", to_text(gradient), ", the first ", to_text(required(inputs, 0, name())),
                     "; expected floating types, either all f64 or none"));
    }
    return {Type{dtype, {1}}};
  }
  Cost cost(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) const override {
    Cost cost = Op::cost(inputs, outputs, attributes);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      cost.flops += 2.0 * static_cast<double>(required(inputs, i, name()).elements());
    }
    return cost;
  }
};

const GradientNorm kGradientNorm;

}  // namespace

Tensor gradient_norm(std::span<const Tensor> gradients) {
  HONE_ASSERT(!gradients.empty(), "gradient_norm needs at least one gradient");
  return gradients[0].program().append(kGradientNorm, GradientNormAttributes{}, gradients)[0];
}

Tensor divided_gradient_norm(std::span<const GradientShare> gradients, const GradientGroups& groups) {
  HONE_ASSERT(!gradients.empty(), "gradient_norm needs at least one gradient");
  GradientNormAttributes division{.blocks = {},
                                  .firsts = {},
                                  .data_group = groups.data,
                                  .tensor_group = groups.tensor,
                                  .expert_group = groups.experts,
                                  .parts = {}};
  std::vector<Tensor> rows;
  std::int64_t before = 0;
  for (const GradientShare& each : gradients) {
    HONE_ASSERT(each.first % kNormBlock == 0 || each.rows.type().elements() == 0, "a share begins at element ",
                each.first);
    const char* separator = rows.empty() ? "" : ",";
    division.blocks += separator + std::to_string(norm_blocks(each.elements));
    division.firsts += separator + std::to_string(before + each.first / kNormBlock);
    if (groups.tensor || groups.experts) division.parts += separator + std::to_string(each.parts);
    before += norm_blocks(each.elements);
    rows.push_back(each.rows);
  }
  return rows[0].program().append(kGradientNorm, division, rows)[0];
}

std::vector<std::int64_t> block_numbers(const std::string& text) {
  std::vector<std::int64_t> numbers;
  if (text.empty()) return numbers;
  for (const std::string& number : split(text, ',')) numbers.push_back(std::stoll(number));
  return numbers;
}

std::size_t divided_blocks(const GradientNormAttributes& division) {
  std::size_t blocks = 0;
  for (const std::int64_t each : block_numbers(division.blocks)) blocks += static_cast<std::size_t>(each);
  return blocks;
}

void register_gradient_norm(OpRegistry& registry) { registry.add(kGradientNorm); }

}  // namespace hone
