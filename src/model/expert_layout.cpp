#include "model/expert_layout.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"

namespace hone {
namespace {

// The module and the index in the name of an expert's tensor, "model.layers.0.mlp.experts" and 7.
struct ExpertName {
  std::string_view module;
  std::int64_t index = 0;
};

std::optional<ExpertName> parse_expert_name(std::string_view name) {
  constexpr std::string_view kModule = ".experts.";
  const std::size_t at = name.rfind(kModule);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kModule.size());
  ExpertName expert{.module = name.substr(0, at + kModule.size() - 1)};
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), expert.index);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '.') return std::nullopt;
  return expert;
}

std::string_view parent_of(std::string_view name) { return name.substr(0, name.rfind('.')); }

std::int64_t experts_of(const WeightSpec& spec) { return spec.parts.back().alternative.matrix + 1; }

// The key of config.json that says how many experts a layer has.
std::string_view experts_key(const Json& config) {
  for (const std::string_view key : {"n_routed_experts", "num_experts", "num_local_experts"}) {
    if (config.contains(std::string(key))) return key;
  }
  return "num_experts";
}

[[noreturn]] void refuse_count(const Model& model, std::string_view file, std::string_view module, std::int64_t stored,
                               std::int64_t expected) {
  throw Error(file,
              text_of("holds ", stored, " experts in ", module, ", but '", experts_key(model.config()),
                      "' of config.json is ", expected),
              "does config.json belong to these weights?");
}

}  // namespace

std::vector<WeightSpec> specs_in_folder(const Model& model, const WeightFiles& files) {
  std::vector<WeightSpec> specs = model.weights();
  for (WeightSpec& spec : specs) {
    for (WeightPart& part : spec.parts) {
      const std::string& other = part.alternative.tensor;
      if (other.empty() || files.find(part.name) != nullptr || files.find(other) == nullptr) continue;
      part.source = part.alternative;
    }
  }
  return specs;
}

std::vector<WeightSpec> specs_of_layout(const std::vector<WeightSpec>& specs, ExpertLayout layout) {
  HONE_ASSERT(layout != ExpertLayout::kAsStored, "a layout is needed");
  std::vector<WeightSpec> chosen;
  for (const WeightSpec& spec : specs) {
    if (spec.parts.empty() || spec.parts.front().alternative.tensor.empty()) continue;
    WeightSpec& copy = chosen.emplace_back(spec);
    for (WeightPart& part : copy.parts) {
      part.source = layout == ExpertLayout::kMerged ? part.alternative : PartSource{};
    }
  }
  return chosen;
}

std::vector<std::string> expert_modules(const WeightSpec& spec) {
  std::vector<std::string> modules;
  if (spec.kind != WeightKind::expert) return modules;
  const WeightPart& part = spec.parts.front();
  modules.emplace_back(parent_of(part.alternative.tensor));
  const std::optional<ExpertName> split = parse_expert_name(part.name);
  if (split && split->module != modules.front()) modules.emplace_back(split->module);
  return modules;
}

void check_expert_counts(const Model& model, const WeightFiles& files) {
  struct Counted {
    std::int64_t expected = 0;
    std::int64_t stored = 0;
    std::string_view file;
  };
  std::map<std::string_view, Counted> modules;  // of split experts
  for (const WeightSpec& spec : model.weights()) {
    if (spec.kind != WeightKind::expert || spec.parts.front().alternative.tensor.empty()) continue;
    const std::int64_t expected = experts_of(spec);
    if (const auto split = parse_expert_name(spec.parts.front().name)) modules[split->module].expected = expected;
    const std::string& merged = spec.parts.front().alternative.tensor;
    const StoredTensor* tensor = files.find(merged);
    if (tensor != nullptr && tensor->shape.size() == 3 && tensor->shape[0] != expected) {
      refuse_count(model, tensor->file, merged, tensor->shape[0], expected);
    }
  }
  if (modules.empty()) return;
  for (const SafetensorsFile& file : files.files()) {
    for (const StoredTensor& tensor : file.tensors()) {
      const auto expert = parse_expert_name(tensor.name);
      if (!expert) continue;
      const auto found = modules.find(expert->module);
      if (found == modules.end() || expert->index < found->second.stored) continue;
      found->second.stored = expert->index + 1;
      found->second.file = tensor.file;
    }
  }
  for (const auto& [module, counted] : modules) {
    if (counted.stored == 0 || counted.stored == counted.expected) continue;
    refuse_count(model, counted.file, module, counted.stored, counted.expected);
  }
}

}  // namespace hone
