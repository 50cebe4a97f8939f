#include "cli/profile/categories.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"

namespace hone {
namespace {

constexpr std::pair<std::string_view, std::string_view> kByName[] = {
    {"linear", "GEMM"},
    {"grouped_linear", "GEMM"},
    {"lora", "memory"},  // its pieces are laid into blocks and collected from them
    {"lora_linear", "GEMM"},
    {"lora_bias", "elementwise"},
    {"lora_dora_norm", "normalization"},
    {"lora_dora_product", "elementwise"},
    {"lora_dora_scale", "elementwise"},
    {"linear_bias_gradient", "elementwise"},
    {"add", "elementwise"},
    {"scale", "elementwise"},
    {"dropout", "elementwise"},
    {"attention", "attention"},
    {"paged_attention", "attention"},
    {"rms_norm", "normalization"},
    {"add_rms_norm", "normalization"},
    {"layer_norm", "normalization"},
    {"add_layer_norm", "normalization"},
    {"qk_norm", "normalization"},
    {"rope", "RoPE"},
    {"swiglu", "activation"},
    {"gelu", "activation"},
    {"linear_logprobs", "loss"},
    {"weighted_sum", "loss"},
    {"policy_term", "loss"},
    {"document_mean", "loss"},
    {"sample", "loss"},
    {"repetition_penalty", "loss"},
    {"adamw", "optimizer"},
    {"muon", "optimizer"},
    {"sgd", "optimizer"},
    {"gradient_norm", "optimizer"},
    {"guard", "optimizer"},
    {"all_reduce", "communication"},
    {"all_gather", "communication"},
    {"reduce_scatter", "communication"},
    {"all_to_all", "communication"},
    {"embedding", "memory"},
    {"gather_rows", "memory"},
    {"kv_append", "memory"},
    {"cast", "memory"},
    {"fill", "memory"},
    {"normal_fill", "memory"},
    {"offload", "memory"},
};

bool extends(std::string_view name, std::string_view base) {
  return name.starts_with(base) && (name.size() == base.size() || name[base.size()] == '_');
}

}  // namespace

std::optional<std::string_view> known_category(std::string_view op) {
  std::optional<std::string_view> category;
  std::size_t longest = 0;
  for (const auto& [name, known] : kByName) {
    if (!extends(op, name) || name.size() < longest) continue;
    longest = name.size();
    category = known;
  }
  return category;
}

std::string_view category_of(std::string_view op) { return known_category(op).value_or("other"); }

std::string module_of_scope(std::string_view scope) {
  if (scope.empty()) return "model";
  std::vector<std::string> parts = split(scope, '.');
  for (std::string& part : parts) {
    if (!part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; })) part = "*";
  }
  return join(parts, ".");
}

}  // namespace hone
