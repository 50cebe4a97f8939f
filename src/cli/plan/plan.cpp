// hone plan: computes the memory and the FLOPs of a training run before it starts.
#include "planner/plan.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>

#include "backend/device_model.h"
#include "cli/model_sketch.h"
#include "cli/registry.h"
#include "cli/training_kind.h"
#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "planner/layout_problem.h"
#include "planner/layout_search.h"
#include "train/foreign_keys.h"
#include "train/launch.h"
#include "train/setup.h"

namespace hone {
namespace {

// Options of a training command and those of the plan.
template <class Base>
struct PlanOptions : Base {
  std::string device_memory;
  std::string device_name;
  std::optional<std::int64_t> plan_ngpus;
  std::optional<std::int64_t> runtime_ngpus;
  bool plan_all = false;

  template <class Visitor>
  void fields(Visitor& v) {
    constexpr Range kProcesses{.least = 1, .most = 1024};
    v.group("Plan");
    v("device_memory", device_memory,
      "Memory of the GPU to plan for, such as 80GiB; unset: that of device_name, otherwise this machine's device");
    v("device_name", device_name,
      "GPU to plan for, whose rates give the time of a step and rank layouts: " +
          join(devices_with_step_rates(), ", ") + "; others have theirs in the relation of the peaks");
    v("plan_ngpus", plan_ngpus,
      "GPUs of a unit whose layout is searched, and which is repeated over the job; unset: all of the job", kProcesses);
    v("runtime_ngpus", runtime_ngpus, "GPUs of the job; unset: num_processes, otherwise plan_ngpus", kProcesses);
    v("plan_all", plan_all, "List all layouts that fit, not the first ten");
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
        "With several processes and none of the keys that divide a model (tensor_parallel_size,\n"
        "pipeline_parallel_size, expert_parallel_size, context_parallel_size, zero_stage), pretrain and sft rank\n"
        "the layouts that are allowed by their predicted time, with the memory that each takes.\n"
        "output_dir need not be set. The output ends with the GPUs of 24, 48, 80 and 141 GiB that the run\n"
        "fits, and the keys with which it fits.\n"};

// Parses a size in bytes. Throws Error if a GPU of that size has no memory left after its libraries.
std::size_t gpu_memory(const std::string& text, const OptionInput& input) {
  const std::optional<std::uint64_t> bytes = parse_bytes(text);
  if (bytes && memory_of_gpu(*bytes).available > 0) return *bytes;
  throw Error(input.place_of("device_memory"),
              text_of("expected a size above 1GiB, saw ", shown(std::string_view(text))), "for example 80GiB");
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
  check_processes(options, input);
  if (reads_data(options, options)) return plan_run(prepare_grpo(options, input), gpus);
  return plan_sketch(options, input, sketch_of(options), gpus);
}

// Sets the device to plan for. Throws Error if a name is given whose memory is unknown.
template <class Base>
void set_device(PlanOptions<Base>& options, const OptionInput& input) {
  if (!options.device_memory.empty()) options.plan.device = memory_of_gpu(gpu_memory(options.device_memory, input));
  if (options.device_name.empty() || options.plan.device) return;
  const double bytes = built_in_model(options.device_name).memory_bytes;
  if (bytes == 0) {
    throw Error(input.place_of("device_name"),
                text_of("hone does not know the memory of ", shown(std::string_view(options.device_name))),
                text_of("name ", join(devices_with_step_rates(), " or "), ", or set --device_memory"));
  }
  options.plan.device = memory_of_gpu(static_cast<std::size_t>(bytes));
}

// Sets the processes of the job to those that the keys of the plan name. Throws Error if these contradict each other.
template <class Base>
void set_processes(PlanOptions<Base>& options, const OptionInput& input) {
  options.num_processes = processes_of(options, {});
  if (!options.plan_ngpus && !options.runtime_ngpus) return;
  const bool alone = options.processes() == 1 && !input.was_set("num_processes");
  const std::int64_t all = options.runtime_ngpus.value_or(alone ? options.plan_ngpus.value_or(1) : options.processes());
  const std::int64_t unit = options.plan_ngpus.value_or(all);
  if (!alone && all != options.processes()) {
    throw Error(input.place_of("runtime_ngpus"), text_of("is ", all, ", but num_processes is ", options.processes()),
                "remove one of the two");
  }
  if (all % unit != 0) {
    throw Error(input.place_of("plan_ngpus"),
                text_of("is ", unit, ", which does not divide the ", all, " GPUs of the job"),
                text_of("--runtime_ngpus ", (all + unit - 1) / unit * unit));
  }
  options.num_processes = all;
}

ModelSketch model_of(const PretrainOptions& options) {
  return options.model_config_path.empty() ? sketch_of(options) : new_model(options);
}
ModelSketch model_of(const SftOptions& options) { return sketch_of(options); }

template <class Base>
LayoutProblem problem_of(const PlanOptions<Base>& options, const OptionInput& input) {
  JobDevices devices = job_devices(options, options.device_name);
  devices.unit = options.plan_ngpus.value_or(0);
  const Base& run = options;
  return layout_problem(run, input, model_of(run), devices);
}

// Prints the time that a step of the options' layout takes on the device that they name.
template <class Base>
void print_step(const PlanOptions<Base>& options, const OptionInput& input) {
  const LayoutProblem problem = problem_of(options, input);
  std::fputs(step_text(problem, plan_layout(problem, layout_of(options))).c_str(), stdout);
}

// Prints the ranking of the layouts of a run.
template <class Base>
int print_layouts(const PlanOptions<Base>& options, const OptionInput& input) {
  const LayoutProblem problem = problem_of(options, input);
  const LayoutRanking ranking = rank_layouts(problem, options.plan_all ? 0 : kRankedLayouts);
  std::fputs(to_text(ranking, problem).c_str(), stdout);
  return 0;
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
  set_device(options, input);
  apply_launch_file(options, input);
  check_options(options, input);
  set_processes(options, input);
  const bool searches = options.processes() > 1 && !layout_key_set(options, input);
  check_mesh(options);
  constexpr bool kRanks = !std::is_same_v<Base, GrpoOptions>;
  for (const char* key : {"plan_ngpus", "plan_all"}) {
    if (input.was_set(key) && !(kRanks && searches)) {
      throw Error(input.place_of(key), "is for ranking the layouts of pretrain or sft over several processes",
                  "remove it, or the keys that divide the model");
    }
  }
  if constexpr (kRanks) {
    if (searches) return print_layouts(options, input);
  }
  const RunPlan plan = plan_of(options, input, kComparedGpus);
  std::fputs(to_text(plan).c_str(), stdout);
  if constexpr (!std::is_same_v<Base, GrpoOptions>) {
    // The cost model knows no rates of FP8 and no copies of offloaded activations.
    const bool is_known = !options.fp8.fp8 && !options.activation_offloading;
    if (!options.device_name.empty() && is_known) print_step(options, input);
  }
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
