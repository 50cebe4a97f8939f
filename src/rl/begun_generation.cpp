#include "rl/begun_generation.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/digest.h"
#include "core/error.h"

namespace hone {
namespace {

constexpr const char* kLengths = "begun.lengths";
constexpr const char* kTokens = "begun.tokens";
constexpr const char* kLogps = "begun.logps";

template <class T>
TaskTensor tensor_of(const char* name, DType dtype, const std::vector<T>& values) {
  auto bytes = std::make_shared<std::vector<std::byte>>(values.size() * sizeof(T));
  std::memcpy(bytes->data(), values.data(), bytes->size());
  return {name, dtype, {std::ssize(values)}, std::move(bytes)};
}

// Returns the values of a tensor; none if there is no tensor of that name.
template <class T>
std::vector<T> values_of(std::span<const TaskTensor> tensors, const char* name) {
  std::vector<T> values;
  for (const TaskTensor& tensor : tensors) {
    if (tensor.name != name) continue;
    values.resize(tensor.bytes->size() / sizeof(T));
    std::memcpy(values.data(), tensor.bytes->data(), values.size() * sizeof(T));
  }
  return values;
}

}  // namespace

std::vector<TaskTensor> BegunGeneration::tensors() const {
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> tokens;
  std::vector<float> logps;
  for (const DrawnTokens& completion : completions) {
    lengths.push_back(static_cast<std::int32_t>(completion.tokens.size()));
    tokens.insert(tokens.end(), completion.tokens.begin(), completion.tokens.end());
    logps.insert(logps.end(), completion.logps.begin(), completion.logps.end());
  }
  if (tokens.empty()) return {};
  return {tensor_of(kLengths, DType::kI32, lengths), tensor_of(kTokens, DType::kI32, tokens),
          tensor_of(kLogps, DType::kF32, logps)};
}

BegunGeneration BegunGeneration::from(std::span<const TaskTensor> tensors, std::string prompts) {
  const auto lengths = values_of<std::int32_t>(tensors, kLengths);
  const auto tokens = values_of<std::int32_t>(tensors, kTokens);
  const auto logps = values_of<float>(tensors, kLogps);
  const std::int64_t all = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const bool negative = std::ranges::any_of(lengths, [](std::int32_t length) { return length < 0; });
  if (negative || all != std::ssize(tokens) || all != std::ssize(logps)) {
    throw Error("resume_from_checkpoint",
                text_of("the generation that the checkpoint has begun has lengths of ", all, " tokens in all, but ",
                        tokens.size(), " tokens and ", logps.size(), " log-probabilities"),
                "resume from another checkpoint");
  }
  BegunGeneration begun{.completions = {}, .prompts = std::move(prompts)};
  auto token = tokens.begin();
  auto logp = logps.begin();
  for (const std::int32_t length : lengths) {
    begun.completions.push_back({{token, token + length}, {logp, logp + length}});
    token += length;
    logp += length;
  }
  return begun;
}

std::string fingerprint_of(const PromptSet& prompts, std::span<const std::uint32_t> chosen) {
  Fingerprint fingerprint;
  for (const std::uint32_t prompt : chosen) {
    const std::span<const TokenId> tokens = prompts.tokens(prompt);
    fingerprint.add(std::string_view(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()));
  }
  return fingerprint.finish();
}

}  // namespace hone
