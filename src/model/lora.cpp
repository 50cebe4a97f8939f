#include "model/lora.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/strings.h"
#include "model/weights.h"

namespace hone {
namespace {

constexpr std::string_view kAllLinear = "all-linear";
constexpr std::string_view kTargets = "lora_target_modules";
constexpr std::string_view kSaved = "lora_modules_to_save";
constexpr const char* kHeadModule = "lm_head";  // module name of a tied head
constexpr const char* kHeadCopy = "head.saved";

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Returns true for "all-linear" in any case, as PEFT does.
bool is_all_linear(std::string_view text) {
  return std::ranges::equal(text, kAllLinear,
                            [](char a, char b) { return a == b || (a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b); });
}

// The modules of a model by their names in the checkpoint, sorted by whether they can have an adapter.
struct Modules {
  std::vector<std::string> linear;
  std::vector<std::string> tables;   // the embedding and the head
  std::vector<std::string> refused;  // linear layers for which hone does not support adapters
  std::vector<std::string> others;   // modules that never have adapters, such as norms

  explicit Modules(const Model& model) {
    for (const WeightSpec& spec : model.weights()) {
      for (const WeightPart& part : spec.parts) {
        if (!part.name.ends_with(".weight")) continue;
        const AdapterUse adapter = spec.kind.traits().adapter;
        (adapter == AdapterUse::kRefused ? refused
         : adapter == AdapterUse::kNone  ? others
         : spec.is_by_token()            ? tables
                                         : linear)
            .push_back(module_of(part.name));
      }
    }
    if (has_tied_head(model)) tables.emplace_back(kHeadModule);
  }

  [[nodiscard]] std::vector<std::string> adaptable() const {
    std::vector<std::string> all = linear;
    all.insert(all.end(), tables.begin(), tables.end());
    return all;
  }
};

// Chooses modules by a regular expression. Throws Error if it matches no module that can have an adapter, or a module
// that cannot.
ModuleSet choose_by_pattern(const std::string& source, const Modules& modules) {
  NamePattern pattern(source, kTargets);
  const auto fits = [&](const std::string& module) { return pattern.fits(module); };
  for (const std::vector<std::string>* without : {&modules.others, &modules.refused}) {
    if (const auto other = std::ranges::find_if(*without, fits); other != without->end()) {
      throw Error(kTargets, text_of("'", source, "' fits ", *other, ", which can have no adapter"),
                  "a narrower regular expression");
    }
  }
  const std::vector<std::string> adaptable = modules.adaptable();
  if (std::ranges::none_of(adaptable, fits)) {
    throw Error(kTargets, text_of("'", source, "' fits the whole name of no linear layer of this model"),
                text_of("names are as ", adaptable.front()));
  }
  return ModuleSet(std::move(pattern));
}

}  // namespace

double LoraConfig::scale() const {
  const auto rank = static_cast<double>(r);
  return rslora ? alpha / std::sqrt(rank) : alpha / rank;
}

LoraModel::LoraModel(std::unique_ptr<Model> base, LoraConfig config)
    : WrappedModel(std::move(base)), config_(std::move(config)) {
  for (WeightSpec& spec : specs_) spec.trainable = false;
  add_adapters();
  add_saved();
  add_biases();
  check_specs(specs_);
}

ModuleSet LoraModel::choose() const {
  const Modules modules(base());
  std::set<std::string> names;
  for (const std::string& module : modules.linear) names.insert(last_name(module));
  const std::vector<std::string>& wanted = config_.target_modules;
  if (wanted.empty()) {
    if (names.contains("q_proj") && names.contains("v_proj")) {
      return ModuleSet(std::vector<std::string>{"q_proj", "v_proj"});
    }
    if (names.contains("c_attn")) return ModuleSet(std::vector<std::string>{"c_attn"});
    throw Error(kTargets, "must be set for this model", text_of("some of ", joined(names)));
  }
  if (wanted.size() == 1 && is_all_linear(wanted[0]) && !modules.refused.empty()) {
    throw Error(kTargets,
                text_of("'", wanted[0], "' includes ", modules.refused.front(), ", which can have no adapter"),
                text_of("some of ", joined(names)));
  }
  if (wanted.size() == 1 && is_all_linear(wanted[0])) return ModuleSet({names.begin(), names.end()});
  const std::vector<std::string> adaptable = modules.adaptable();
  for (const std::string& name : wanted) {
    const auto fits = [&](const std::string& module) { return is_module(module, name); };
    if (std::ranges::any_of(adaptable, fits)) continue;
    if (wanted.size() == 1 && name.find_first_of("\\.[]{}()*+?^$|") != std::string::npos) {
      return choose_by_pattern(name, modules);
    }
    for (const std::string& module : modules.tables) names.insert(last_name(module));
    throw Error(kTargets, text_of("'", name, "' names no linear layer of this model"),
                text_of("some of ", joined(names), "; or all-linear, or a regular expression"));
  }
  return ModuleSet(wanted);
}

void LoraModel::add_adapters() {
  const ModuleSet choice = choose();
  const bool tied = has_tied_head(base());
  const auto chosen = [&](const std::string& module) {
    if (!choice.fits(module)) return false;
    targets_.push_back(module);
    return true;
  };
  for (const WeightSpec& spec : base().weights()) {
    if (spec.kind == WeightKind::embedding) {
      if (chosen(module_of(spec.parts[0].name))) add_embedding(spec);
      if (tied && chosen(kHeadModule)) {
        WeightPart head = spec.parts[0];
        head.name = std::string(kHeadModule) + ".weight";
        add_block(spec, {head});
      }
      continue;
    }
    if (spec.kind.traits().adapter != AdapterUse::kAllowed) continue;
    std::vector<WeightPart> parts;
    for (const WeightPart& part : spec.parts) {
      if (chosen(module_of(part.name))) parts.push_back(part);
    }
    if (!parts.empty()) add_block(spec, parts);
  }
  if (config_.dora && (adapts_embedding_ || blocks_.contains(base().head()))) {
    throw Error("use_dora", text_of("has no form for ", adapts_embedding_ ? "the embedding" : "the head", " here"),
                "leave it out of lora_target_modules, or make it one of lora_modules_to_save");
  }
}

void LoraModel::add_embedding(const WeightSpec& table) {
  const std::string name = text_of(kPeftPrefix, module_of(table.parts[0].name));
  const std::int64_t rank = config_.r;
  WeightSpec down{.name = kEmbeddingDown,
                  .shape = {table.shape[0], rank},
                  .parts = {},
                  .kind = WeightKind::table,
                  .in_folder = false};
  down.parts.push_back({name + ".lora_embedding_A", 0, table.shape[0], true, axes_along(table.parts[0], 0)});
  WeightSpec up{.name = kEmbeddingUp,
                .shape = {table.shape[1], rank},
                .parts = {},
                .kind = WeightKind::table,
                .in_folder = false};
  up.parts.push_back({name + ".lora_embedding_B", 0, table.shape[1]});
  specs_.push_back(std::move(down));
  specs_.push_back(std::move(up));
  adapts_embedding_ = true;
}

void LoraModel::add_block(const WeightSpec& block, const std::vector<WeightPart>& parts) {
  const std::int64_t rank = config_.r;
  const std::int64_t rows = block.shape[0];
  const auto count = static_cast<std::int64_t>(parts.size());
  const WeightKind kind = block.kind == WeightKind::linear ? WeightKind::linear : WeightKind::table;
  WeightSpec down{.name = down_name(block.name), .shape = {rank * count, block.shape[1]}, .parts = {}, .kind = kind};
  WeightSpec up{.name = up_name(block.name), .shape = {rows, rank}, .parts = {}, .kind = kind};
  WeightSpec magnitude{.name = magnitude_name(block.name), .shape = {rows}, .parts = {}, .kind = WeightKind::table};
  LoraParts adapted;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = text_of(kPeftPrefix, module_of(parts[i].name));
    const auto part = [&](std::string_view which, std::int64_t row, std::int64_t rows_of_part, std::int64_t dimension) {
      return WeightPart{
          .name = text_of(name, which), .row = row, .rows = rows_of_part, .axes = axes_along(parts[i], dimension)};
    };
    down.parts.push_back(part(".lora_A.weight", static_cast<std::int64_t>(i) * rank, rank, 1));
    up.parts.push_back(part(".lora_B.weight", parts[i].row, parts[i].rows, 0));
    magnitude.parts.push_back(part(".lora_magnitude_vector", parts[i].row, parts[i].rows, 0));
    adapted.add(parts[i].row, parts[i].rows);
  }
  for (WeightSpec* spec : {&down, &up, &magnitude}) {
    if (spec == &magnitude && !config_.dora) continue;
    spec->in_folder = false;
    specs_.push_back(std::move(*spec));
  }
  blocks_.emplace(block.name, adapted);
}

void LoraModel::save_copy(const WeightSpec& from, std::string copy, const std::string& part, SavedModule::Use use) {
  const auto is_it = [&](const SavedModule& saved) { return saved.copy == copy; };
  if (std::ranges::any_of(saved_, is_it)) return;
  WeightSpec spec = from;
  spec.name = copy;
  if (use == SavedModule::Use::kHead) spec.kind = WeightKind::head;
  spec.in_folder = false;
  spec.trainable = true;
  spec.parts[0].name = text_of(kPeftPrefix, part);
  spec.parts[0].source = {};
  specs_.push_back(std::move(spec));
  saved_.push_back({from.name, std::move(copy), use, {}});
}

void LoraModel::add_saved() {
  const bool tied = has_tied_head(base());
  for (const std::string& wanted : config_.modules_to_save) {
    bool found = false;
    for (const WeightSpec& spec : base().weights()) {
      const auto fits = [&](const WeightPart& part) { return is_module(module_of(part.name), wanted); };
      if (tied && spec.name == kEmbedding && is_module(kHeadModule, wanted)) {
        if (std::ranges::find(targets_, kHeadModule) != targets_.end()) {
          throw Error(kSaved, text_of("'", wanted, "' is one of lora_target_modules too"), "name it in one of them");
        }
        found = true;
        save_copy(spec, kHeadCopy, std::string(kHeadModule) + ".weight", SavedModule::Use::kHead);
      }
      if (std::ranges::none_of(spec.parts, fits)) continue;
      if (std::ranges::find(targets_, module_of(spec.parts[0].name)) != targets_.end()) {
        throw Error(kSaved, text_of("'", wanted, "' is one of lora_target_modules too"), "name it in one of them");
      }
      if (spec.parts.size() > 1 || spec.parts[0].transposed) {
        throw Error(kSaved, text_of("'", wanted, "' is a linear layer of a decoder layer, which cannot be saved whole"),
                    "make it one of lora_target_modules");
      }
      found = true;
      const bool shared = tied && spec.name == kEmbedding;
      save_copy(spec, spec.name + ".saved", spec.parts[0].name,
                shared ? SavedModule::Use::kLookup : SavedModule::Use::kEverywhere);
    }
    if (!found) {
      throw Error(kSaved, text_of("'", wanted, "' names no module of this model"), "for example lm_head, embed_tokens");
    }
  }
}

void LoraModel::add_biases() {
  constexpr std::string_view kBias = ".bias";
  if (config_.bias == LoraBias::kNone) return;
  for (const WeightSpec& spec : base().weights()) {
    WeightSpec copy = spec;
    copy.name = spec.name + ".saved";
    copy.in_folder = false;
    copy.trainable = true;
    copy.parts.clear();
    LoraParts trained;
    for (const WeightPart& part : spec.parts) {
      if (!part.name.ends_with(kBias)) continue;
      const std::string module = part.name.substr(0, part.name.size() - kBias.size());
      const bool adapted = std::ranges::find(targets_, module) != targets_.end();
      if (!adapted && config_.bias == LoraBias::kLoraOnly) continue;
      // In PEFT's names, a layer with an adapter is the submodule base_layer.
      WeightPart saved = part;
      saved.name = text_of(kPeftPrefix, module, adapted ? ".base_layer" : "", kBias);
      saved.source = {};
      copy.parts.push_back(std::move(saved));
      trained.add(part.row, part.rows);
    }
    if (copy.parts.empty()) continue;
    if (copy.parts.size() == spec.parts.size()) trained = {};
    saved_.push_back({spec.name, copy.name, SavedModule::Use::kEverywhere, trained});
    specs_.push_back(std::move(copy));
  }
}

std::vector<std::string> LoraModel::target_names() const {
  std::set<std::string> names;
  for (const std::string& module : targets_) names.insert(last_name(module));
  // If the last names would also match modules without adapters, return full names.
  for (const std::string& module : Modules(base()).adaptable()) {
    if (!names.contains(last_name(module))) continue;
    if (std::find(targets_.begin(), targets_.end(), module) == targets_.end()) return targets_;
  }
  return {names.begin(), names.end()};
}

}  // namespace hone
