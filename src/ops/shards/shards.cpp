#include "ops/shards/shards.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/strings.h"
#include "ops/registry.h"
#include "program/text.h"

namespace hone {
namespace {

constexpr char kSeparator = ';';

ShardsAttributes attributes_of(std::span<const RowCuts> tensors, std::int64_t slot, ShardGroup group) {
  ShardsAttributes attributes{.slot = slot, .same_experts = group == ShardGroup::kSameExperts, .types = {}, .cuts = {}};
  for (const RowCuts& tensor : tensors) {
    if (!attributes.types.empty()) {
      attributes.types += kSeparator;
      attributes.cuts += kSeparator;
    }
    attributes.types += to_text(tensor.whole);
    for (std::size_t r = 0; r < tensor.cuts.size(); ++r) {
      attributes.cuts += (r > 0 ? "," : "") + std::to_string(tensor.cuts[r]);
    }
  }
  return attributes;
}

std::int64_t number_of(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) throw Error(text_of("'", text, "' is not a row"));
  return number;
}

// Returns true if the type is that of some rows of `whole`.
bool is_share(const Type& type, const Type& whole) {
  if (type.dtype != whole.dtype || type.shape.size() != whole.shape.size()) return false;
  for (std::size_t i = 1; i < whole.shape.size(); ++i) {
    if (type.shape[i] != whole.shape[i]) return false;
  }
  return !whole.shape.empty() && type.shape[0].size <= whole.shape[0].size;
}

// (n shares) -> n whole tensors
class Gather final : public Op {
 public:
  std::string_view name() const override { return "shards_gather"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  Attributes default_attributes() const override { return ShardsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const std::vector<RowCuts> tensors = row_cuts(attributes.as<ShardsAttributes>());
    expect(tensors.size() == inputs.size(), name(), text_of(inputs.size(), " shares of ", tensors.size(), " tensors"));
    std::vector<Type> wholes;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Type& share = required(inputs, i, name());
      expect(is_share(share, tensors[i].whole), name(),
             text_of(to_text(share), " is no share of ", to_text(tensors[i].whole)));
      wholes.push_back(tensors[i].whole);
    }
    return wholes;
  }
};

// (n tensors) -> the same, in place: "shards_gather_wait", "shards_sum" and those of whole sums
class InPlace final : public Op {
 public:
  explicit InPlace(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  Attributes default_attributes() const override { return ShardsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    std::vector<Type> types;
    types.reserve(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) types.push_back(required(inputs, i, name_));
    return types;
  }
  std::optional<std::size_t> alias(std::size_t output) const override { return output; }

 private:
  std::string_view name_;
};

// (share i, whole i for each of n tensors) -> the n shares, in place
class ShardsAdd final : public Op {
 public:
  std::string_view name() const override { return "shards_add"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  Attributes default_attributes() const override { return ShardsAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const std::vector<RowCuts> tensors = row_cuts(attributes.as<ShardsAttributes>());
    expect(2 * tensors.size() == inputs.size(), name(),
           text_of(inputs.size(), " inputs, ", tensors.size(), " tensors"));
    std::vector<Type> shares;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Type& share = required(inputs, ShardsAddIn::share(i), name());
      const Type& whole = required(inputs, ShardsAddIn::whole(i), name());
      expect(whole == tensors[i].whole && is_share(share, whole), name(),
             text_of(to_text(share), " is no share of ", to_text(whole)));
      shares.push_back(share);
    }
    return shares;
  }
  std::optional<std::size_t> alias(std::size_t output) const override { return ShardsAddIn::share(output); }
};

const Gather kGather;
const InPlace kGatherWait("shards_gather_wait");
const InPlace kShardsSum("shards_sum");
const InPlace kSumWhole("shards_sum_whole");
const InPlace kSumWholeWait("shards_sum_whole_wait");
const ShardsAdd kShardsAdd;

}  // namespace

std::vector<RowCuts> row_cuts(const ShardsAttributes& attributes) {
  if (attributes.types.empty()) return {};
  const std::vector<std::string> types = split(attributes.types, kSeparator);
  const std::vector<std::string> cuts = split(attributes.cuts, kSeparator);
  expect(types.size() == cuts.size(), "shards", text_of(types.size(), " types, cuts of ", cuts.size(), " tensors"));
  std::vector<RowCuts> tensors;
  for (std::size_t i = 0; i < types.size(); ++i) {
    RowCuts tensor{type_from_text(types[i]), {}};
    for (const std::string& cut : split(cuts[i], ',')) tensor.cuts.push_back(number_of(cut));
    const bool fits = !tensor.whole.shape.empty() && tensor.cuts.front() == 0 &&
                      tensor.cuts.back() == tensor.whole.shape[0].size && std::ranges::is_sorted(tensor.cuts);
    expect(fits, "shards", text_of("the cuts ", cuts[i], " do not divide ", types[i]));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Type share_of(const RowCuts& tensor, int rank) {
  Type share = tensor.whole;
  const auto r = static_cast<std::size_t>(rank);
  share.shape[0].size = tensor.cuts.at(r + 1) - tensor.cuts.at(r);
  return share;
}

std::vector<Tensor> gather_shares(std::span<const Tensor> shares, std::span<const RowCuts> tensors, std::int64_t slot,
                                  ShardGroup group) {
  return shares[0].program().append(kGather, attributes_of(tensors, slot, group), shares);
}

std::vector<Tensor> wait_for_shares(std::span<const Tensor> gathered, std::int64_t slot, ShardGroup group) {
  return gathered[0].program().append(kGatherWait, attributes_of({}, slot, group), gathered);
}

std::vector<Tensor> sum_shares(std::span<const Tensor> whole, std::span<const RowCuts> tensors, std::int64_t slot,
                               ShardGroup group) {
  return whole[0].program().append(kShardsSum, attributes_of(tensors, slot, group), whole);
}

std::vector<Tensor> add_shares(std::span<const Tensor> whole, std::span<const Tensor> shares,
                               std::span<const RowCuts> tensors, std::int64_t slot, ShardGroup group) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < whole.size(); ++i) inputs.insert(inputs.end(), {shares[i], whole[i]});
  return shares[0].program().append(kShardsAdd, attributes_of(tensors, slot, group), inputs);
}

std::vector<Tensor> sum_whole(std::span<const Tensor> tensors, std::int64_t slot, ShardGroup group) {
  return tensors[0].program().append(kSumWhole, attributes_of({}, slot, group), tensors);
}

std::vector<Tensor> wait_for_sums(std::span<const Tensor> tensors, std::int64_t slot, ShardGroup group) {
  return tensors[0].program().append(kSumWholeWait, attributes_of({}, slot, group), tensors);
}

void register_shards(OpRegistry& registry) {
  registry.add(kGather);
  registry.add(kGatherWait);
  registry.add(kShardsSum);
  registry.add(kSumWhole);
  registry.add(kSumWholeWait);
  registry.add(kShardsAdd);
}

}  // namespace hone
