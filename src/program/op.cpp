#include "program/op.h"

#include "core/error.h"
#include "core/strings.h"
#include "program/context_builder.h"
#include "program/program.h"
#include "program/shard_builder.h"

namespace hone {

static_assert(name_of(OpCategory::kGemm) == "GEMM" && name_of(OpCategory::kOther) == "other" &&
              kCategories.size() == static_cast<std::size_t>(OpCategory::kOther) + 1);

void Op::gradient(GradientBuilder&, const Node& node) const {
  throw Defect(text_of("operation ", name(), " at ", node.scope, " has no gradient"));
}

void Op::shard(ShardBuilder& builder, const Node& node) const {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (builder.division(i) == kWhole) continue;
    throw Error(
        "tensor_parallel_size",
        text_of("is ", builder.ranks(), ", but ", name(), " (", node.scope, ") cannot be divided over processes"),
        "--tensor_parallel_size 1");
  }
  shard_alike(builder, node.attributes, kWhole);
}

void Op::divide_tokens(ContextBuilder& builder, const Node& node) const {
  if (!is_token_wise()) {
    throw Error("context_parallel_size",
                text_of("is ", builder.ranks(), ", but the tokens of ", name(), " (", node.scope,
                        ") cannot be divided over processes"),
                "--context_parallel_size 1");
  }
  divide_alike(builder, node, node.attributes);
}

Cost Op::cost(InputTypes inputs, std::span<const Type> outputs, const Attributes&) const {
  Cost cost;
  for (const auto& input : inputs) {
    if (input) cost.bytes_read += static_cast<double>(input->bytes());
  }
  for (const Type& output : outputs) cost.bytes_written += static_cast<double>(output.bytes());
  return cost;
}

void OpRegistry::add(const Op& op) {
  const bool added = ops_.emplace(op.name(), &op).second;
  HONE_ASSERT(added, "operation ", op.name(), " is registered twice");
}

const Op& OpRegistry::get(std::string_view name) const {
  const auto found = ops_.find(name);
  if (found == ops_.end()) {
    const std::string nearest = nearest_name(name, names());
    throw Error(text_of("unknown operation '", name, "'", nearest.empty() ? "" : ", did you mean " + nearest + "?"));
  }
  return *found->second;
}

std::vector<std::string> OpRegistry::names() const {
  std::vector<std::string> names;
  names.reserve(ops_.size());
  for (const auto& [name, op] : ops_) names.push_back(name);
  return names;
}

std::vector<const FusedOp*> OpRegistry::fused() const {
  std::map<int, const FusedOp*> by_place;
  for (const auto& [name, op] : ops_) {
    const auto* fused = dynamic_cast<const FusedOp*>(op);
    if (fused == nullptr) continue;
    const auto [at, added] = by_place.emplace(fused->fusion_priority(), fused);
    HONE_ASSERT(added, at->second->name(), " and ", name, " have the same place in fusion, ", at->first);
  }
  std::vector<const FusedOp*> fused;
  fused.reserve(by_place.size());
  for (const auto& [place, op] : by_place) fused.push_back(op);
  return fused;
}

OpRegistry& op_registry() {
  static OpRegistry registry;
  return registry;
}

const Type& required(InputTypes inputs, std::size_t index, std::string_view op) {
  if (const Type* type = given(inputs, index)) return *type;
  throw Error(op, text_of("input ", index, " is missing"));
}

const Type* given(InputTypes inputs, std::size_t index) {
  if (index >= inputs.size()) return nullptr;
  const std::optional<Type>& input = inputs[index];
  return input ? &*input : nullptr;
}

void expect_sizes(std::string_view op, std::initializer_list<std::int64_t> sizes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  for (const std::int64_t size : sizes) {
    if (size < -kMost || size > kMost) throw Error(op, text_of(size, " exceeds the limit of ", kMost));
  }
}

void expect(bool condition, std::string_view op, const std::string& what) {
  if (!condition) throw Error(op, what);
}

}  // namespace hone
