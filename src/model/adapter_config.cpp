#include "model/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "model/config_reader.h"
#include "model/lora_bias.h"

namespace hone {
namespace {

constexpr std::int64_t kMostRank = 1'000'000;

// Keys that are read below, or that do not affect the meaning of the adapter's tensors.
constexpr auto kKnownKeys = std::to_array<std::string_view>({
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "ensure_weight_tying",  // see AdapterConfig::ties_tables
    "eva_config",
    "exclude_modules",
    "fan_in_fan_out",  // PEFT derives it from the type of the layer, hone from the model family
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_dora",
    "use_rslora",
    "velora_config",
});

struct Refused {
  std::string_view key;
  std::string_view why;
};
// Keys that must not be set, with the reason.
constexpr auto kRefused = std::to_array<Refused>({
    {"alora_invocation_tokens", "an adapter that acts after some tokens alone cannot be merged"},
    {"arrow_config", "several adapters that are routed between cannot be merged"},
    {"kasa_config", "its base is not the one that is named, and its product has a third factor"},
    {"layer_replication", "its base has other layers than the one that is named"},
    {"lora_bias", "biases of lora_B are not known to hone"},
    {"megatron_config", "Megatron's layers are not known to hone"},
    {"monteclora_config", "sampled adapters are not known to hone"},
    {"target_parameters", "adapters on parameters are not known to hone, on modules alone"},
    {"trainable_token_indices", "rows of an embedding that are trained alone are not known to hone"},
    {"use_bdlora", "block-diagonal adapters are not known to hone"},
    {"use_qalora", "adapters that pool their inputs are not known to hone"},
});

bool is_unset(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_structured() || value.is_string()) && value.empty()) ||
         (value.is_string() && value.get<std::string>().empty());
}

// Formats a value for an error message, cut to 120 bytes.
std::string shown(const Json& value) {
  constexpr std::size_t kMost = 120;
  const std::string text = value.dump();
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 10 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

AdapterConfig::AdapterConfig(const Json& json, std::string file) : file_(std::move(file)) {
  const ConfigReader config(json, file_);
  if (const std::string type = config.text("peft_type", "LORA"); type != "LORA") {
    throw Error(file_, text_of("peft_type '", type, "' is not known"), "LORA");
  }
  refuse_unknown(json);
  rank_ = config.positive("r", 8);
  alpha_ = config.number("lora_alpha", 8);
  rslora_ = config.boolean("use_rslora", false);
  dora_ = config.boolean("use_dora", false);
  ties_tables_ = config.boolean("ensure_weight_tying", false);
  ranks_ = numbers(json, "rank_pattern");
  alphas_ = numbers(json, "alpha_pattern");
  for (const auto& [pattern, rank] : ranks_) {
    if (rank < 1 || rank > static_cast<double>(kMostRank) || rank != std::floor(rank)) {
      throw Error(place("rank_pattern"), text_of("a rank is ", rank), "a positive integer");
    }
  }
  const std::string bias = config.text("bias", "none");
  if (const auto known = names_of<LoraBias>(); std::ranges::find(known, bias) == known.end()) {
    throw Error(place("bias"), text_of("'", bias, "' is not known"), "none, all or lora_only");
  }
  read_modules(json);
}

std::string AdapterConfig::place(std::string_view key) const { return text_of(file_, ": ", key); }

void AdapterConfig::refuse_unknown(const Json& config) const {
  for (const auto& [key, value] : config.items()) {
    if (is_unset(value)) continue;
    const auto refused = std::ranges::find(kRefused, std::string_view(key), &Refused::key);
    if (refused != kRefused.end()) {
      throw Error(place(key), text_of(shown(value), ": ", refused->why), "merge it with PEFT: merge_and_unload");
    }
    if (std::ranges::find(kKnownKeys, std::string_view(key)) == kKnownKeys.end()) {
      log_once(text_of(place(key), " is not known to hone and has no effect"));
    }
  }
  const auto init = config.find("init_lora_weights");
  if (init == config.end() || init->is_null() || init->is_boolean()) return;
  const std::string kind = init->is_string() ? init->get<std::string>() : shown(*init);
  for (const std::string_view harmless : {"gaussian", "eva", "orthogonal", "mica"}) {
    if (kind == harmless) return;
  }
  throw Error(place("init_lora_weights"),
              text_of("'", kind, "' changed the base's weights before training, so that the adapter fits others"),
              "save it with PEFT's path_initial_model_for_weight_conversion, or merge it with PEFT");
}

AdapterConfig::Numbers AdapterConfig::numbers(const Json& config, std::string_view key) const {
  Numbers read;
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return read;
  if (!found->is_object()) throw Error(place(key), text_of("is ", shown(*found), ", expected an object of numbers"));
  for (const auto& [pattern, value] : found->items()) {
    if (!value.is_number())
      throw Error(place(key), text_of("'", pattern, "' is ", shown(value), ", expected a number"));
    read.emplace_back(NamePattern(text_of("(.*\\.)?(", pattern, ")"), place(key)), value.get<double>());
  }
  return read;
}

ModuleSet AdapterConfig::choice(const Json& value, std::string_view key) const {
  if (value.is_null()) return {};
  if (value.is_string()) return ModuleSet(NamePattern(value.get<std::string>(), place(key)));
  const auto is_text = [](const Json& name) { return name.is_string(); };
  if (!value.is_array() || !std::ranges::all_of(value, is_text)) {
    throw Error(place(key), text_of("is ", shown(value), ", expected a list of names or a regular expression"));
  }
  return ModuleSet(value.get<std::vector<std::string>>());
}

void AdapterConfig::read_modules(const Json& config) {
  const auto value_of = [&](std::string_view key) {
    const auto found = config.find(key);
    return found == config.end() ? Json(nullptr) : *found;
  };
  const Json targets = value_of("target_modules");
  const Json layers = value_of("layers_to_transform");
  targets_all_ = targets.is_null() || targets == "all-linear";
  if (!targets_all_) targets_ = choice(targets, "target_modules");
  excluded_ = choice(value_of("exclude_modules"), "exclude_modules");
  if (layers.is_number_integer()) {
    layers_.push_back(layers.get<std::int64_t>());
  } else if (!layers.is_null()) {
    const auto is_integer = [](const Json& layer) { return layer.is_number_integer(); };
    if (!layers.is_array() || !std::ranges::all_of(layers, is_integer)) {
      throw Error(place("layers_to_transform"), text_of("is ", shown(layers), ", expected a list of layers' numbers"));
    }
    layers_ = layers.get<std::vector<std::int64_t>>();
  }
  if (!layers_.empty() && targets.is_string()) {
    throw Error(place("layers_to_transform"), text_of("is ", shown(layers), ", but target_modules is not a list"),
                "name the layers in target_modules");
  }
  Json patterns = value_of("layers_pattern");
  if (patterns.is_string()) patterns = Json::array({patterns});
  if (patterns.is_null()) return;
  for (const Json& pattern : patterns) {
    if (!pattern.is_string()) {
      throw Error(place("layers_pattern"), text_of("is ", shown(patterns), ", expected names"));
    }
    if (pattern.get<std::string>().empty()) continue;
    layer_prefixes_.emplace_back(text_of("(?:.*\\.)?(?:", pattern.get<std::string>(), ")"), place("layers_pattern"));
  }
}

std::int64_t AdapterConfig::rank(std::string_view module) const {
  for (const auto& [pattern, rank] : ranks_) {
    if (pattern.fits(module)) return static_cast<std::int64_t>(rank);
  }
  return rank_;
}

double AdapterConfig::scale(std::string_view module) const {
  double alpha = alpha_;
  for (const auto& [pattern, value] : alphas_) {
    if (!pattern.fits(module)) continue;
    alpha = value;
    break;
  }
  const auto rank = static_cast<double>(this->rank(module));
  return rslora_ ? alpha / std::sqrt(rank) : alpha / rank;
}

bool AdapterConfig::targets(std::string_view module) const {
  if (excluded_.fits(module)) return false;
  if (targets_all_) return true;
  if (!targets_.fits(module)) return false;
  if (layers_.empty() || targets_.names(module)) return true;
  // The layer index is the first number in the name that follows a name matching layers_pattern ("model.layers.3.mlp",
  // "h.3.mlp") or, without layers_pattern, at least two names.
  for (std::size_t dot = module.find('.'); dot != std::string_view::npos; dot = module.find('.', dot + 1)) {
    const std::string_view prefix = module.substr(0, dot);
    const std::string_view rest = module.substr(dot + 1);
    const std::size_t end = rest.find('.');
    if (end == std::string_view::npos || !is_number(rest.substr(0, end))) continue;
    const bool named =
        layer_prefixes_.empty()
            ? prefix.find('.') != std::string_view::npos
            : std::ranges::any_of(layer_prefixes_, [&](const NamePattern& pattern) { return pattern.fits(prefix); });
    if (!named) continue;
    const std::int64_t layer = std::stoll(std::string(rest.substr(0, end)));
    return std::ranges::find(layers_, layer) != layers_.end();
  }
  return false;
}

}  // namespace hone
