#include "cli/model_sketch.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/models.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "model/loaded_model.h"
#include "model/registry.h"
#include "train/config_overrides.h"
#include "train/setup.h"

namespace hone {
namespace {

// Returns the name of a known shape for a model's name: "Qwen/Qwen2.5-7B-Instruct" -> "qwen2.5-7b".
std::string shape_name(std::string_view model) {
  std::string name(model.substr(model.rfind('/') + 1));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  constexpr std::string_view kTuned = "-instruct";
  if (name.ends_with(kTuned)) name.resize(name.size() - kTuned.size());
  return name;
}

// Dtype of the weights by config.json; f32 if it does not say.
DType stored_dtype(const Json& config) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto at = config.find(key);
    if (at != config.end() && at->is_string()) return at->get<std::string>() == "float32" ? DType::kF32 : DType::kBf16;
  }
  return DType::kF32;
}

ModelSketch stored_model(const ModelOptions& options) {
  const ModelDirectory directory(resolve_config(options.model_name_or_path, options.model_revision));
  const bool has_weights = !directory.weights().empty();
  return {family_registry().create(directory.config()),
          has_weights ? checkpoint_dtype(directory) : stored_dtype(directory.config())};
}

}  // namespace

ModelSketch sketch_of(const ModelOptions& options) {
  const std::string& name = options.model_name_or_path;
  if (name.ends_with(".json") && is_file(name)) {
    const Json config = read_json(name);
    return {family_registry().create(config), stored_dtype(config)};
  }
  const std::vector<std::string> known = bench_model_names();
  if (!is_folder(name) && std::ranges::count(known, shape_name(name)) > 0) {
    log_once(text_of("the plan assumes the shape of ", shape_name(name), ", with bfloat16 weights"));
    return {family_registry().create(parse_json(bench_model_config(shape_name(name)), name)), DType::kBf16};
  }
  return stored_model(options);
}

ModelSketch model_to_train(const PretrainOptions& options) {
  return options.model_config_path.empty() ? stored_model(options) : new_model(options);
}

ModelSketch model_to_train(const SftOptions& options) { return stored_model(options); }

ModelSketch new_model(const PretrainOptions& options) {
  Json config = read_json(options.model_config_path);
  override_config(config, options.config_overrides);
  if (!config.contains("vocab_size")) {
    if (options.tokenizer_name_or_path.empty()) {
      throw Error(options.model_config_path, "has no vocab_size, and no tokenizer is set",
                  "set tokenizer_name_or_path, or vocab_size in the file");
    }
    config["vocab_size"] = tokenizer_of(options).vocab_size();
  }
  return {family_registry().create(config), DType::kF32};
}

}  // namespace hone
