#include "train/model_card.h"

#include <string_view>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "hub/cache.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMark = "library_name: ";
constexpr std::string_view kTag = "\n- hone\n";

bool is_hub_name(const std::string& name) {
  std::error_code ignored;
  return name.find('/') != std::string::npos && is_repo_name(name) && !fs::exists(name, ignored);
}

// Returns a hub name unchanged, and the last part of a local path.
std::string public_name(const std::string& name) {
  if (is_hub_name(name)) return name;
  const fs::path path = fs::path(name).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::string text_of_key(const Json& options, const char* key) {
  const auto found = options.find(key);
  return found != options.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string shown_name(const std::string& name, std::string_view prefix) {
  const std::string plain = public_name(name);
  return is_hub_name(name) ? text_of("[", plain, "](https://huggingface.co/", prefix, plain, ")")
                           : text_of("`", plain, "`");
}

// Replaces local paths by their last part, at any depth of the value.
Json without_paths(const Json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const bool is_path = text.starts_with("/") || text.starts_with("~") || text.starts_with(".");
    return is_path && text.find('\n') == std::string::npos ? Json(public_name(text)) : value;
  }
  if (!value.is_structured()) return value;
  Json copy = value;
  for (auto& item : copy) item = without_paths(item);
  return copy;
}

std::string recipe_of(const ModelCard& card) {
  std::string text;
  for (const auto& [key, value] : card.options.items()) {
    const auto usual = card.defaults.find(key);
    if (value.is_null() || usual == card.defaults.end() || *usual == value) continue;
    const Json shown = without_paths(value);
    text += text_of(key, ": ",
                    shown.is_string() ? yaml_quoted(shown.get<std::string>())
                                      : shown.dump(-1, ' ', false, Json::error_handler_t::replace),
                    "\n");
  }
  return text;
}

std::string front_matter(const ModelCard& card) {
  const std::string base = text_of_key(card.options, "model_name_or_path");
  const std::string data = text_of_key(card.options, "dataset_name");
  std::string text = text_of("---\n", kMark, card.is_adapter ? "peft" : "transformers", "\n");
  if (is_hub_name(base)) text += text_of("base_model: ", base, "\n");
  if (is_hub_name(data)) text += text_of("datasets:\n- ", data, "\n");
  return text +
         text_of("model_name: ", yaml_quoted(public_name(card.name)), "\ntags:", kTag, "- ", card.command, "\n---\n");
}

}  // namespace

Json computed_keys(const OptionTable& table) {
  Json json = option_json(table);
  for (const Option& option : table.options()) {
    if (option.run_only) json.erase(option.name);
  }
  return json;
}

std::string model_card(const ModelCard& card) {
  const std::string base = text_of_key(card.options, "model_name_or_path");
  const std::string data = text_of_key(card.options, "dataset_name");
  const std::string slash_free = public_name(card.name);
  std::string text = front_matter(card) + text_of("\n# ", slash_free.substr(slash_free.rfind('/') + 1), "\n\n");
  text += base.empty() ? std::string("A model trained from scratch")
                       : text_of(card.is_adapter ? "An adapter of " : "A fine-tuned version of ", shown_name(base, ""));
  if (!data.empty()) text += text_of(", on ", shown_name(data, "datasets/"));
  text += text_of(".\n\nTrained by `hone ", card.command, " --config recipe.yaml` with this recipe:\n\n```yaml\n",
                  recipe_of(card), "```\n");
  return text;
}

void write_model_card(const fs::path& folder, const ModelCard& card) {
  const fs::path path = folder / "README.md";
  if (is_file(path)) {
    const std::string there = read_file(path);
    if (!there.starts_with(text_of("---\n", kMark)) || there.find(kTag) == std::string::npos) return;
  }
  write_file(path, model_card(card));
}

}  // namespace hone
