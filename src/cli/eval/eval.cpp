// hone eval
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "backend/device_option.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "engine/loaded_model.h"
#include "engine/sampling_keys.h"
#include "eval/evaluate.h"
#include "eval/registry.h"
#include "eval/report.h"

namespace hone {

template <>
inline constexpr EnumTable kEnumTable<AnswerMatching>{.names = "math|exact"};

namespace {

struct EvalOptions : SamplingKeys {
  std::string model_name_or_path;
  std::string task = "jsonl";
  std::string dataset_name;
  std::int64_t limit = 0;
  std::optional<std::int64_t> samples;
  bool strip_thoughts = true;
  std::string prompt_template;
  std::string problem_column;
  std::string answer_column;
  AnswerMatching matching = AnswerMatching::math;
  std::string chat_template;
  std::string system_prompt;
  std::int64_t max_model_len = 0;
  std::int64_t max_num_seqs = 64;
  DeviceChoice device = DeviceChoice::automatic;
  std::string output_dir;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path, "Folder of the model; also the first argument");
    v("chat_template", chat_template, "Jinja text or a file of it, in place of the model's");
    v("system_prompt", system_prompt, "Put before every problem");
    v("device", device, kDeviceHelp);
    v.group("Task");
    v("task", task, "gsm8k, or jsonl for a file of your own");
    v("dataset_name", dataset_name, "File or folder of the problems");
    v("limit", limit, "Problems, from the first; 0: all", at_least(0));
    v("samples", samples, "Answers a problem; unset: the task's", at_least(1));
    v("strip_thoughts", strip_thoughts, "Look for the answer behind the last </think> only");
    v("prompt_template", prompt_template, "Text of the prompt, {column} for a column's text; unset: the task's");
    v("problem_column", problem_column, "jsonl: column of the problem; unset: problem, question or prompt");
    v("answer_column", answer_column, "jsonl: column of the answer; unset: answer or solution");
    v("matching", matching, "jsonl: how answers are compared");
    SamplingKeys::fields(v);
    v("max_model_len", max_model_len, "Tokens of prompt and answer; 0: as many as the model knows, at most 32,768",
      at_least(0));
    v("max_num_seqs", max_num_seqs, "Answers that are generated at a time", at_least(1));
    v.group("Output");
    v("output_dir", output_dir, "Folder for results.json and samples.jsonl");
  }
};

constexpr std::int64_t kLongest = 32768;

int run(const EvalOptions& given, const OptionInput& input) {
  EvalOptions options = given;
  options.model_name_or_path = model_argument("eval", given.model_name_or_path, input);
  if (options.dataset_name.empty()) throw Error("dataset_name", "is not set", "the file with the problems");
  if (!options.output_dir.empty()) claim_folder(options.output_dir, "output_dir");
  TaskRegistry registry;
  register_all_eval(registry);
  const EvalTask task = registry.make(options.task, {.strip_thoughts = options.strip_thoughts,
                                                     .prompt_template = options.prompt_template,
                                                     .problem_column = options.problem_column,
                                                     .answer_column = options.answer_column,
                                                     .matching = options.matching});
  const std::vector<EvalProblem> problems = read_problems(task, options.dataset_name, options.limit);
  Device& device = open_device(options.device);
  LoadedModel loaded = load_model(options.model_name_or_path, std::nullopt, device);
  EngineOptions engine_options;
  engine_options.max_model_len = options.max_model_len > 0
                                     ? options.max_model_len
                                     : std::min(loaded.model->shape().max_position_embeddings, kLongest);
  engine_options.max_num_seqs = options.max_num_seqs;
  Engine engine(*loaded.model, loaded.tokenizer, loaded.weights, std::make_shared<Arena>(device), engine_options);
  AnswerOptions answers;
  answers.samples = options.samples.value_or(task.samples);
  answers.seed = static_cast<std::uint64_t>(options.seed);
  answers.system_prompt = options.system_prompt;
  answers.sampling = options.params(engine_options.max_model_len,
                                    stop_token_ids(loaded.generation_config, *loaded.model, loaded.tokenizer));
  catch_interrupts();
  const ChatTemplate chat_template = chat_template_of(loaded.tokenizer, options.chat_template);
  auto samples = answer_problems(engine, loaded.tokenizer, chat_template, problems, answers);
  const TaskResult result = run_scoring(task, problems, std::move(samples));
  std::fputs(report_table({&result, 1}).c_str(), stdout);
  if (!options.output_dir.empty()) {
    EvalOptions copy = options;
    write_report(options.output_dir, {&result, 1}, option_json(OptionTable(copy)));
    log_info(text_of("wrote ", options.output_dir, "/results.json and samples.jsonl"));
  }
  return 0;
}

}  // namespace

void register_eval(CommandRegistry& registry) {
  registry.add(
      make_command<EvalOptions>({.name = "eval", .summary = "Score a model on a task", .positionals = "[MODEL]"}, run));
}

}  // namespace hone
