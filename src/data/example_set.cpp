#include "data/example_set.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace hone {
namespace {

// The memory of a built set.
struct Arrays {
  std::vector<TokenId> tokens;
  std::vector<std::uint8_t> is_target;
  std::vector<std::int64_t> offsets;
};

// The memory of a slice: its own offsets, and the set that owns the tokens.
struct Slice {
  std::shared_ptr<const void> base;
  std::vector<std::int64_t> offsets;
};

template <class T>
std::span<const T> part(std::span<const T> whole, std::int64_t begin, std::int64_t end) {
  return whole.empty() ? whole : whole.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

}  // namespace

ExampleSet::ExampleSet(std::span<const TokenId> tokens, std::span<const std::uint8_t> is_target,
                       std::span<const std::int64_t> offsets, std::shared_ptr<const void> owner)
    : tokens_(tokens), is_target_(is_target), offsets_(offsets), owner_(std::move(owner)) {
  HONE_ASSERT(!offsets.empty() && offsets.front() == 0 && offsets.back() == token_count());
  HONE_ASSERT(is_target.empty() || is_target.size() == tokens.size(), is_target.size(), " of ", tokens.size());
}

std::int64_t ExampleSet::size() const { return offsets_.empty() ? 0 : static_cast<std::int64_t>(offsets_.size()) - 1; }

std::int64_t ExampleSet::length(std::int64_t example) const {
  HONE_ASSERT(example >= 0 && example < size(), example, " of ", size());
  const auto i = static_cast<std::size_t>(example);
  return offsets_[i + 1] - offsets_[i];
}

ExampleView ExampleSet::operator[](std::int64_t example) const {
  HONE_ASSERT(example >= 0 && example < size(), example, " of ", size());
  const auto i = static_cast<std::size_t>(example);
  return {part(tokens_, offsets_[i], offsets_[i + 1]), part(is_target_, offsets_[i], offsets_[i + 1])};
}

ExampleSet ExampleSet::slice(std::int64_t begin, std::int64_t end) const {
  HONE_ASSERT(begin >= 0 && begin <= end && end <= token_count(), begin, " to ", end, " of ", token_count());
  auto owner = std::make_shared<Slice>();
  owner->base = owner_;
  owner->offsets.push_back(0);
  for (const std::int64_t offset : offsets_) {
    const std::int64_t relative = std::clamp(offset, begin, end) - begin;
    if (relative > owner->offsets.back()) owner->offsets.push_back(relative);
  }
  const std::span<const std::int64_t> offsets = owner->offsets;
  return {part(tokens_, begin, end), part(is_target_, begin, end), offsets, std::move(owner)};
}

void ExampleSetBuilder::add(ExampleView example) {
  const auto& mask = example.is_target;
  HONE_ASSERT(mask.empty() || mask.size() == example.tokens.size(), mask.size(), " of ", example.tokens.size());
  // The first masked example: all earlier ones have all their tokens as targets.
  if (!mask.empty() && is_target_.empty()) is_target_.assign(tokens_.size(), 1);
  const bool masked = !mask.empty() || !is_target_.empty();
  tokens_.insert(tokens_.end(), example.tokens.begin(), example.tokens.end());
  if (masked) {
    is_target_.insert(is_target_.end(), mask.begin(), mask.end());
    is_target_.resize(tokens_.size(), 1);
  }
  offsets_.push_back(static_cast<std::int64_t>(tokens_.size()));
}

ExampleSet ExampleSetBuilder::finish() && {
  auto arrays = std::make_shared<Arrays>(Arrays{std::move(tokens_), std::move(is_target_), std::move(offsets_)});
  arrays->tokens.shrink_to_fit();
  arrays->is_target.shrink_to_fit();
  const std::span<const TokenId> tokens = arrays->tokens;
  const std::span<const std::uint8_t> is_target = arrays->is_target;
  const std::span<const std::int64_t> offsets = arrays->offsets;
  return {tokens, is_target, offsets, std::move(arrays)};
}

}  // namespace hone
