// hone plan: computes the memory and the FLOPs of a training run before it starts.
#include "planner/plan.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "cli/bench/models.h"
#include "cli/registry.h"
#include "cli/training_kind.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "model/registry.h"
#include "train/config_overrides.h"
#include "train/foreign_keys.h"
#include "train/launch.h"
#include "train/setup.h"

namespace hone {
namespace {

// Options of a training command and those of the plan.
template <class Base>
struct PlanOptions : Base {
  std::string device_memory;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Plan");
    v("device_memory", device_memory, "Memory of the GPU to plan for, such as 80GiB; unset: this machine's device");
    Base::fields(v);
  }
};

const CommandText kPlanText{
    .name = "plan",
    .summary = "Compute what a run needs: parameters, memory to the byte, FLOPs",
    .positionals = "[pretrain|sft|grpo]",
    .details =
        "Takes the keys of the planned command, and --device_memory SIZE (for example 80GiB) to plan for\n"
        "another GPU than this machine's. If the command is not named, the keys of the recipe determine it.\n"
        "Reads no weights. Without dataset_name, every sequence has the maximum length that the keys allow.\n"
        "The model may also be a config.json or a shape that hone bench knows, such as qwen2.5-7b.\n"
        "output_dir need not be set. The output ends with the GPUs of 24, 48, 80 and 141 GiB that the run\n"
        "fits, and the keys with which it fits.\n"};

// Parses a size in bytes. Throws Error if a GPU of that size has no memory left after its libraries.
std::size_t gpu_memory(const std::string& text, const OptionInput& input) {
  const std::optional<std::uint64_t> bytes = parse_bytes(text);
  if (bytes && memory_of_gpu(*bytes).available > 0) return *bytes;
  throw Error(input.place_of("device_memory"),
              text_of("expected a size above 1GiB, saw ", shown(std::string_view(text))), "for example 80GiB");
}

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

// Creates the model that the options name, without weights: a config.json, a known shape, or a folder on this machine,
// in the cache or on the hub.
ModelSketch sketch_of(const ModelOptions& options) {
  const std::string& name = options.model_name_or_path;
  if (name.ends_with(".json") && is_file(name)) {
    const Json config = read_json(name);
    return {family_registry().create(config), stored_dtype(config)};
  }
  const std::vector<std::string> known = bench_model_names();
  if (!is_folder(name) && std::ranges::count(known, shape_name(name)) > 0) {
    log_info(text_of("the plan assumes the shape of ", shape_name(name), ", with bfloat16 weights"));
    return {family_registry().create(parse_json(bench_model_config(shape_name(name)), name)), DType::kBf16};
  }
  const ModelDirectory directory(resolve_config(name, options.model_revision));
  const bool has_weights = !directory.weights().empty();
  return {family_registry().create(directory.config()),
          has_weights ? checkpoint_dtype(directory) : stored_dtype(directory.config())};
}

bool names_data(const DatasetOptions& options) {
  return !options.dataset_name.empty() || options.dataset_mixture.kind != YamlValue::Kind::kNull;
}

// Returns true if the run can be prepared with its real data: a dataset is set, and the model with its tokenizer is on
// this machine.
bool reads_data(const DatasetOptions& data, const ModelOptions& model) {
  if (!names_data(data)) return false;
  const std::string& name = model.model_name_or_path;
  if (is_model_local(name, model.model_revision)) return true;
  log_info(text_of("the data is not read, because ", name, " and its tokenizer are not on this machine"));
  return false;
}

// Creates a model that starts from scratch. A configuration without vocab_size takes it from the tokenizer.
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

RunPlan plan_of(const PretrainOptions& options, const OptionInput&, std::span<const std::size_t> gpus) {
  if (options.model_config_path.empty()) {
    if (reads_data(options, options)) return plan_run(prepare_pretrain(options), gpus);
    return plan_sketch(options, sketch_of(options), gpus);
  }
  if (!names_data(options)) return plan_sketch(options, new_model(options), gpus);
  if (!options.tokenizer_name_or_path.empty()) return plan_run(prepare_pretrain(options), gpus);
  log_info("the data is not read, because tokenizer_name_or_path is not set");
  return plan_sketch(options, new_model(options), gpus);
}

RunPlan plan_of(const SftOptions& options, const OptionInput&, std::span<const std::size_t> gpus) {
  if (reads_data(options, options)) return plan_run(prepare_sft(options), gpus);
  return plan_sketch(options, sketch_of(options), gpus);
}

RunPlan plan_of(const GrpoOptions& options, const OptionInput& input, std::span<const std::size_t> gpus) {
  check_processes(options);
  if (reads_data(options, options)) return plan_run(prepare_grpo(options, input), gpus);
  return plan_sketch(options, input, sketch_of(options), gpus);
}

template <class Base>
int plan(std::span<const std::string> arguments) {
  PlanOptions<Base> options;
  const OptionInput input =
      read_options(OptionTable(options), arguments, training_foreign_keys(), RecipeArgument::kTaken);
  if (!input.positionals.empty()) {
    throw Error("hone plan", text_of("unexpected argument ", shown(std::string_view(input.positionals[0]))),
                "hone plan [pretrain|sft|grpo] [RECIPE.yaml] [--key value ...]");
  }
  apply_input(kPlanText, input);
  options.plan.asked = true;
  if (!options.device_memory.empty()) options.plan.device = memory_of_gpu(gpu_memory(options.device_memory, input));
  check_options(options, input);
  options.num_processes = processes_of(options, {});
  options.zero_stage = zero_stage_of(options);
  check_mesh(options);
  const RunPlan plan = plan_of(options, input, kComparedGpus);
  std::fputs(to_text(plan).c_str(), stdout);
  return 0;
}

// Returns the training command to plan. If the first argument names it, removes that argument; otherwise determines the
// command from the recipe.
std::string_view take_kind(std::span<const std::string>& arguments) {
  if (arguments.empty()) {
    throw Error("hone plan", "expected pretrain, sft or grpo, or a recipe", "for example hone plan sft recipe.yaml");
  }
  const std::string& first = arguments[0];
  const auto kind = std::ranges::find(kTrainingKinds, first);
  if (kind != std::end(kTrainingKinds)) {
    arguments = arguments.subspan(1);
    return *kind;
  }
  if (is_recipe(first)) return training_kind_of(first);
  constexpr std::string_view kConfig = "--config";
  for (std::size_t i = 0; i < arguments.size() && first.starts_with("--"); ++i) {
    if (arguments[i] == kConfig && i + 1 < arguments.size()) return training_kind_of(arguments[i + 1]);
    if (arguments[i].starts_with("--config=")) return training_kind_of(arguments[i].substr(kConfig.size() + 1));
  }
  throw Error("hone plan", text_of("expected pretrain, sft or grpo, or a recipe, saw ", shown(std::string_view(first))),
              "for example hone plan sft recipe.yaml");
}

int run_plan(std::span<const std::string> arguments) {
  const std::string_view kind = take_kind(arguments);
  if (kind == "pretrain") return plan<PretrainOptions>(arguments);
  return kind == "sft" ? plan<SftOptions>(arguments) : plan<GrpoOptions>(arguments);
}

template <class Base>
void add_keys(std::vector<CommandKey>& keys) {
  PlanOptions<Base> defaults;
  for (CommandKey& key : keys_of(OptionTable(defaults))) {
    if (std::ranges::find(keys, key.name, &CommandKey::name) == keys.end()) keys.push_back(std::move(key));
  }
}

// Keys of all three commands, each once.
std::vector<CommandKey> all_keys() {
  std::vector<CommandKey> keys;
  add_keys<PretrainOptions>(keys);
  add_keys<SftOptions>(keys);
  add_keys<GrpoOptions>(keys);
  return keys;
}

}  // namespace

void register_plan(CommandRegistry& registry) {
  registry.add({.name = kPlanText.name,
                .summary = kPlanText.summary,
                .help =
                    [] {
                      return text_of("Usage: hone plan ", kPlanText.positionals, " [RECIPE.yaml] [--key value ...]\n\n",
                                     kPlanText.summary, ".\n\n", kPlanText.details);
                    },
                .run = run_plan,
                .keys = all_keys,
                .positionals = kPlanText.positionals,
                .details = kPlanText.details});
}

}  // namespace hone
