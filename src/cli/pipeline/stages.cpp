#include "cli/pipeline/stages.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ranges>

#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

const std::array<StageKind, 7>& stage_kinds() {
  static const std::array<StageKind, 7> kinds = {
      StageKind{"pretrain", "pretrain", StageOutput::kModel, false, false, {}},
      {"sft", "sft", StageOutput::kModel, true, true, {}},
      {"grpo", "grpo", StageOutput::kModel, true, true, {}},
      {"generate", "generate", StageOutput::kData, true, false, {}},
      {"rejection_sampling",
       "generate",
       StageOutput::kData,
       true,
       false,
       {{"reward_funcs", "accuracy"}, {"num_generations", "4"}, {"output_form", "conversations"}}},
      {"curriculum",
       "generate",
       StageOutput::kData,
       true,
       false,
       {{"reward_funcs", "accuracy"},
        {"num_generations", "8"},
        {"output_form", "rows"},
        {"easy_first", "true"},
        {"require_end", "false"},
        {"pass_rate_min", "0.1"},
        {"pass_rate_max", "0.9"}}},
      {"eval", "eval", StageOutput::kNothing, true, false, {}},
  };
  return kinds;
}

YamlValue scalar_of(std::string_view text) {
  YamlValue value;
  value.kind = YamlValue::Kind::kScalar;
  value.scalar = text;
  return value;
}

void set(YamlValue& map, std::string_view key, std::string_view value) {
  map.keys.emplace_back(key);
  map.items.push_back(scalar_of(value));
}

// Finds a key that the map may spell with hyphens or underscores.
const YamlValue* find_key(const YamlValue& map, std::string_view key) {
  for (std::size_t i = 0; i < map.keys.size(); ++i) {
    std::string name = map.keys[i];
    std::ranges::replace(name, '-', '_');
    if (name == key) return &map.items[i];
  }
  return nullptr;
}

// Writes a value in YAML's flow style, on one line.
std::string flow_text(const YamlValue& value) {
  if (value.kind == YamlValue::Kind::kNull) return "null";
  if (value.kind == YamlValue::Kind::kScalar) return yaml_quoted(value.scalar);
  const bool is_map = value.kind == YamlValue::Kind::kMap;
  std::string text;
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    text += i == 0 ? "" : ", ";
    if (is_map) text += yaml_quoted(value.keys[i]) + ": ";
    text += flow_text(value.items[i]);
  }
  return is_map ? "{" + text + "}" : "[" + text + "]";
}

std::string recipe_text(const YamlValue& map) {
  std::string text;
  for (std::size_t i = 0; i < map.keys.size(); ++i) text += map.keys[i] + ": " + flow_text(map.items[i]) + "\n";
  return text;
}

class Resolver {
 public:
  Resolver(const PipelineInput& input, std::string_view where) : input_(input), where_(where) {}

  std::vector<Stage> run(const YamlValue& list) {
    if (list.kind != YamlValue::Kind::kList || list.items.empty()) {
      throw Error(text_of(where_, ": stages"), "must be a list of stages, each with the key `stage`",
                  "stages: [{stage: sft, ...}, {stage: grpo, ...}]");
    }
    for (const YamlValue& item : list.items) add(item);
    return std::move(stages_);
  }

 private:
  void add(const YamlValue& given) {
    const std::string place = text_of(where_, ":", given.line, ": stages");
    const YamlValue* kind = given.kind == YamlValue::Kind::kMap ? given.find("stage") : nullptr;
    if (kind == nullptr || kind->kind != YamlValue::Kind::kScalar) {
      throw Error(place, "a stage must be a map with the key `stage`", "{stage: sft, ...}");
    }
    Stage stage{.kind = &stage_kind(kind->scalar, place)};
    stage.name = name_of(given, *stage.kind, place);
    stage.folder = stage_folder(input_.output_dir, stages_.size(), stage.name);
    for (const char* key : {"output_dir", "overwrite_output_dir", "resume_from_checkpoint", "output_dataset_name"}) {
      if (find_key(given, key) != nullptr) {
        throw Error(place, text_of("stage ", stage.name, " sets ", key),
                    "remove it; the pipeline chooses where a stage writes");
      }
    }
    for (const char* key : {"hub_token", "push_to_hub_token"}) {  // the stage's recipe is written to output_dir
      if (find_key(given, key) == nullptr) continue;
      throw Error(place, text_of("stage ", stage.name, " sets ", key, ", which would be written to its recipe"),
                  "set HF_TOKEN in the environment");
    }
    stage.keys = completed(given, stage, place);
    stage.recipe = recipe_text(stage.keys);
    if (stage.kind->output == StageOutput::kModel) stage.output = stage.folder.string();
    if (stage.kind->output == StageOutput::kData) stage.output = (stage.folder / "data.jsonl").string();
    stages_.push_back(std::move(stage));
  }

  [[nodiscard]] std::string name_of(const YamlValue& given, const StageKind& kind, const std::string& place) const {
    const auto taken = [&](const std::string& name) {
      return std::ranges::find(stages_, name, &Stage::name) != stages_.end();
    };
    if (const YamlValue* name = given.find("name")) {
      const bool is_plain = !name->scalar.empty() && std::ranges::all_of(name->scalar, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
      });
      if (!is_plain)
        throw Error(place, text_of("the name ", shown(*name), " is invalid"), "use letters, digits, _ and -");
      if (taken(name->scalar)) throw Error(place, text_of("two stages are named ", name->scalar));
      return name->scalar;
    }
    std::string name(kind.name);
    for (int number = 2; taken(name); ++number) name = text_of(kind.name, number);
    return name;
  }

  // Returns the keys of a stage, completed by its inputs, its output folder and the defaults of its kind.
  YamlValue completed(const YamlValue& given, const Stage& stage, const std::string& place) {
    YamlValue recipe;
    recipe.kind = YamlValue::Kind::kMap;
    for (std::size_t i = 0; i < given.keys.size(); ++i) {
      if (given.keys[i] == "stage" || given.keys[i] == "name") continue;
      recipe.keys.push_back(given.keys[i]);
      recipe.items.push_back(with_outputs(given.items[i], place));
    }
    const auto is_set = [&](std::string_view key) { return find_key(recipe, key) != nullptr; };
    const Stage* data = newest(StageOutput::kData);
    if (stage.kind->takes_model && !is_set("model_name_or_path")) {
      const Stage* model = newest(StageOutput::kModel);
      const std::string& name = model != nullptr ? model->output : input_.model_name_or_path;
      if (name.empty()) throw Error(place, text_of("stage ", stage.name, " has no model"), "set model_name_or_path");
      set(recipe, "model_name_or_path", name);
    }
    if (!is_set("dataset_name") && stage.kind->command != "eval") {
      // Only the stage directly after a data stage uses its data: rejection_sampling followed by sft and grpo must not
      // give the conversations for sft to grpo as prompts.
      const bool takes = stage.kind->takes_data && data != nullptr && data == &stages_.back();
      if (takes) {
        set(recipe, "dataset_name", data->output);
        if (data->kind->name == "curriculum" && !is_set("shuffle_dataset") && stage.kind->name == "grpo") {
          set(recipe, "shuffle_dataset", "false");
        }
      } else if (!input_.dataset_name.empty()) {
        set(recipe, "dataset_name", input_.dataset_name);
      }
    }
    for (const auto& [key, value] : stage.kind->defaults) {
      if (!is_set(key)) set(recipe, key, value);
    }
    set(recipe, "output_dir", stage.folder.string());
    for (YamlValue& item : recipe.items) {
      if (item.line == 0) item.line = given.line;  // keys that the pipeline sets
    }
    return recipe;
  }

  [[nodiscard]] const Stage* newest(StageOutput output) const {
    for (const Stage& stage : std::views::reverse(stages_)) {
      if (stage.kind->output == output) return &stage;
    }
    return nullptr;
  }

  [[nodiscard]] YamlValue with_outputs(YamlValue value, const std::string& place) const {
    for (YamlValue& item : value.items) item = with_outputs(std::move(item), place);
    std::string& text = value.scalar;
    for (std::size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at)) {
      const std::size_t close = text.find('}', at);
      const std::string name = text.substr(at + 2, close == std::string::npos ? close : close - at - 2);
      const auto stage = std::ranges::find(stages_, name, &Stage::name);
      if (close == std::string::npos || stage == stages_.end() || stage->output.empty()) {
        std::vector<std::string> names;
        for (const Stage& known : stages_) {
          if (!known.output.empty()) names.push_back(known.name);
        }
        throw Error(place, text_of("no earlier stage named ", shown(name), " has an output"),
                    names.empty() ? "no earlier stage has one" : "stages with an output: " + join(names, ", "));
      }
      text.replace(at, close + 1 - at, stage->output);
      at += stage->output.size();
    }
    return value;
  }

  const PipelineInput& input_;
  std::string_view where_;
  std::vector<Stage> stages_;
};

}  // namespace

std::filesystem::path stage_folder(const std::filesystem::path& output_dir, std::size_t index, std::string_view name) {
  std::array<char, 24> number{};
  (void)std::snprintf(number.data(), number.size(), "%02zu-", index + 1);
  return output_dir / (number.data() + std::string(name));
}

const StageKind& stage_kind(std::string_view name, const std::string& place) {
  std::vector<std::string> names;
  for (const StageKind& kind : stage_kinds()) {
    if (kind.name == name) return kind;
    names.emplace_back(kind.name);
  }
  const std::string nearest = nearest_name(name, names);
  throw Error(place, text_of("unknown stage ", shown(name)),
              nearest.empty() ? "known: " + join(names, ", ") : "did you mean " + nearest + "?");
}

std::vector<Stage> resolve_stages(const YamlValue& list, const PipelineInput& input, std::string_view where) {
  return Resolver(input, where).run(list);
}

}  // namespace hone
