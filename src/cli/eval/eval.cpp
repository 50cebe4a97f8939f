// hone eval: scores a model on benchmarks or on problems from a file.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "backend/device_option.h"
#include "cli/pipeline/problems.h"
#include "cli/registry.h"
#include "cli/shared_work.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/log.h"
#include "engine/cache_memory.h"
#include "engine/engine_options.h"
#include "engine/engine_part.h"
#include "engine/sampling_keys.h"
#include "eval/benchmarks.h"
#include "eval/compare.h"
#include "eval/evaluate.h"
#include "eval/registry.h"
#include "eval/report.h"
#include "model/loaded_model.h"
#include "rl/options.h"

namespace hone {

template <>
inline constexpr EnumTable kEnumTable<AnswerMatching>{.names = "math|exact"};

namespace {

struct EvalOptions : SamplingKeys {
  std::string model_name_or_path;
  std::vector<std::string> task{"jsonl"};
  std::vector<std::string> dataset_name;
  std::int64_t limit = 0;
  std::vector<std::string> group_by;
  std::optional<std::int64_t> samples;
  bool strip_thoughts = true;
  bool strict_equality = false;
  std::string prompt_template;
  std::string problem_column;
  std::string answer_column;
  AnswerMatching matching = AnswerMatching::kMath;
  SandboxMode sandbox = SandboxMode::kNamespaces;
  std::string chat_template;
  std::string system_prompt;
  std::int64_t max_model_len = 0;
  std::int64_t max_num_seqs = 0;
  Quantization quantization = Quantization::kAutomatic;
  CacheOptions cache;
  DeviceChoice device = DeviceChoice::kAutomatic;
  std::int64_t tensor_parallel_size = 1;
  std::int64_t data_parallel_size = 1;
  std::string output_dir;
  std::vector<std::string> compare;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path, "Folder or Hugging Face name of the model; also the first argument");
    v("chat_template", chat_template, "Chat template, as Jinja text or a file; unset: the model's");
    v("system_prompt", system_prompt, "System message before every problem");
    v("quantization", quantization, kQuantizationHelp);
    cache.fields(v);
    v("device", device, kDeviceHelp);
    v("tensor_parallel_size", tensor_parallel_size, kTensorGroupHelp, within(1, 1024));
    v("data_parallel_size", data_parallel_size, kSharesHelp, within(1, 1024));
    v.group("Task");
    v("task", task,
      "Tasks: aime24, aime25, math_500, gpqa:diamond, lcb, lcb_v4 (all: these six), gsm8k; jsonl: your own file");
    v("dataset_name", dataset_name,
      "File, folder or dataset of the problems, one per task; unset: the published dataset");
    v("limit", limit, "Number of problems, from the first; 0: all", at_least(0));
    v("group_by", group_by, "Columns of the problems; the score is also reported for each of their values");
    v("samples", samples, "Answers per problem; unset: the task's number", at_least(1));
    v("strip_thoughts", strip_thoughts, "Look for the answer only after the last </think>");
    v("strict_equality", strict_equality, kStrictEqualityHelp);
    v("prompt_template", prompt_template, "Prompt text; {column} inserts the text of a column; unset: the task's");
    v("problem_column", problem_column, "jsonl: column of the problem; unset: problem, question or prompt");
    v("answer_column", answer_column, "jsonl: column of the answer; unset: answer or solution");
    v("sandbox", sandbox, "lcb: isolation of the generated programs; none: they run unconfined on this machine");
    v("matching", matching, "jsonl: comparison of an answer with the gold answer");
    SamplingKeys::fields(v);
    v("max_model_len", max_model_len, "Maximum tokens of prompt and answer; 0: the model's positions, at most 32,768",
      at_least(0));
    v("max_num_seqs", max_num_seqs, kNumSeqsHelp, at_least(0));
    v.group("Output");
    v("output_dir", output_dir, "Folder for results.json and samples.jsonl");
    v("compare", compare, "Output folders of evaluations to compare in compare.html; nothing is evaluated");
  }
};

// A task with its problems. All problems are read before the model, so that errors in the data show early.
struct Evaluation {
  EvalTask task;
  std::vector<EvalProblem> problems;
};

// Names of the tasks; "all" is expanded to the six tasks of open-r1.
std::vector<std::string> task_names(const EvalOptions& options) {
  std::vector<std::string> names = benchmark_names(options.task);
  if (names.empty()) throw Error("task", "is empty");
  return names;
}

std::vector<Evaluation> read_evaluations(const EvalOptions& options) {
  TaskRegistry registry;
  register_all_eval(registry);
  const std::vector<std::string> names = task_names(options);
  if (!options.dataset_name.empty() && options.dataset_name.size() != names.size()) {
    throw Error("dataset_name",
                text_of("expected one dataset per task, saw ", options.dataset_name.size(), " datasets and ",
                        names.size(), " tasks"),
                "leave it unset for the published datasets");
  }
  std::vector<std::string> hidden = options.dataset_name;
  hidden.push_back(options.output_dir);
  std::vector<Evaluation> evaluations;
  for (std::size_t i = 0; i < names.size(); ++i) {
    EvalTask task = registry.make(names[i], {.strip_thoughts = options.strip_thoughts,
                                             .strict_equality = options.strict_equality,
                                             .prompt_template = options.prompt_template,
                                             .problem_column = options.problem_column,
                                             .answer_column = options.answer_column,
                                             .matching = options.matching,
                                             .seed = static_cast<std::uint64_t>(options.seed),
                                             .sandbox = options.sandbox,
                                             .hidden = hidden});
    const auto is_same = [&](const Evaluation& other) { return other.task.name == task.name; };
    if (std::ranges::any_of(evaluations, is_same)) throw Error("task", text_of("'", task.name, "' is named twice"));
    const std::string data = options.dataset_name.empty() ? task.dataset : options.dataset_name[i];
    if (data.empty()) throw Error("dataset_name", "is not set", "the file with the problems");
    std::vector<EvalProblem> problems = read_problems(task, data, options.limit, options.group_by);
    evaluations.push_back({std::move(task), std::move(problems)});
  }
  return evaluations;
}

// Identifies the weights of a model without reading them: the path of the folder, and the size and modification time of
// each file of weights.
std::string weights_key(const std::filesystem::path& folder) {
  std::string key = std::filesystem::absolute(folder).string();
  for (const std::string& name : list_folder(folder)) {
    if (!name.ends_with(".safetensors")) continue;
    const auto written = std::filesystem::last_write_time(folder / name).time_since_epoch().count();
    key += text_of("\n", name, " ", std::filesystem::file_size(folder / name), " ", written);
  }
  return key;
}

int compare(const EvalOptions& options) {
  const std::filesystem::path folder = options.output_dir.empty() ? "." : options.output_dir;
  ensure_writable_folder(folder, "output_dir");
  write_file(folder / "compare.html", comparison_page(read_runs(options.compare)));
  log_info(text_of("wrote ", (folder / "compare.html").string()));
  return 0;
}

// The journals of answers. They resume an interrupted evaluation, and bring the answers of several processes together.
class AnswerFiles {
 public:
  AnswerFiles(const EvalOptions& options, const ReplicaPlace* place) {
    if (place != nullptr) {
      share_ = share_of(*place);
      path_ = (options.output_dir.empty() ? place->folder : std::filesystem::path(options.output_dir)) / kName;
      known_ = std::make_unique<Journal>(path_, kKey, JournalUse::kRead);
      journal_ = std::make_unique<Journal>(part_of_journal(path_, share_.number), kKey);
      return;
    }
    share_.count = static_cast<std::size_t>(options.data_parallel_size);
    if (share_.count > 1) {
      catch_interrupts();  // so that the folder is removed
      scratch_ = std::make_unique<TemporaryFolder>(std::filesystem::temp_directory_path(), "hone-eval");
    }
    if (options.output_dir.empty() && !scratch_) return;
    path_ = (options.output_dir.empty() ? scratch_->path() : std::filesystem::path(options.output_dir)) / kName;
    journal_ = std::make_unique<Journal>(path_, kKey);
    take_parts(*journal_);
    if (!scratch_) return;
    others_ = start_other_shares(
        {.count = static_cast<int>(share_.count), .gpus_each = options.tensor_parallel_size, .device = options.device},
        scratch_->path());
  }

  [[nodiscard]] const Share& share() const { return share_; }
  [[nodiscard]] Journal* journal() const { return journal_.get(); }
  // Has this process answer its share only.
  void divide(AnswerOptions& answers) {
    answers.share = share_;
    answers.known = known_.get();
    if (others_) answers.on_step = [this] { others_->check(); };
  }
  // Waits for the answers of the other processes; what is still missing then, this one answers.
  void finish(AnswerOptions& answers) {
    others_->finish();
    take_parts(*journal_);
    answers.share = {};
    answers.on_step = {};
  }
  void remove() { remove_path(path_); }

 private:
  static constexpr const char* kName = "answers.jsonl";
  static constexpr const char* kKey = "key";

  Share share_;
  std::unique_ptr<TemporaryFolder> scratch_;
  std::filesystem::path path_;
  std::unique_ptr<Journal> known_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<OtherShares> others_;  // ends before scratch_
};

// Loads the model or, in a tensor group, this rank's part of it.
LoadedModel load(const EvalOptions& options, EngineGroup* group) {
  return load_model(options.model_name_or_path, std::nullopt, open_device(options.device),
                    engine_part(group, {.cache = options.cache}), options.quantization);
}

// Answers the problems and scores the answers. place: that of a process that another has started, which only answers
// its share; null: of another.
int evaluate(const EvalOptions& options, EngineGroup* group, const ReplicaPlace* place) {
  std::vector<Evaluation> evaluations = read_evaluations(options);
  AnswerFiles files(options, place);
  Device& device = open_device(options.device);
  LoadedModel loaded = load(options, group);
  const std::int64_t longest = model_len(loaded.model->shape(), options.max_model_len, kLongestAnswer);
  Engine engine(*loaded.model, loaded.tokenizer, loaded.weights, std::make_shared<Arena>(device),
                with_cache_that_fits(engine_options({.max_model_len = longest,
                                                     .max_num_seqs = num_seqs(options.max_num_seqs, device.kind()),
                                                     .max_batch_tokens = num_batched_tokens(0, device.kind()),
                                                     .adjust_logits = options.adjusts_logits(),
                                                     .cache = options.cache}),
                                     *loaded.model, model_dtype(*loaded.model, loaded.weights), device, group,
                                     {.host_share = static_cast<std::int64_t>(files.share().count)}),
                group);
  AnswerOptions answers;
  answers.seed = static_cast<std::uint64_t>(options.seed);
  answers.system_prompt = options.system_prompt;
  answers.sampling = options.params(longest, stop_token_ids(loaded.generation_config, *loaded.model, loaded.tokenizer));
  catch_interrupts();
  const ChatTemplate chat_template = chat_template_of(loaded.tokenizer, options.chat_template);
  answers.model_key = weights_key(loaded.path);
  if (options.quantization != Quantization::kAutomatic)
    answers.model_key += text_of("\nquantization ", name_of(options.quantization));
  if (options.cache.kv_cache_dtype != KvCacheDtype::kAuto)
    answers.model_key += text_of("\nkv_cache_dtype ", name_of(options.cache.kv_cache_dtype));
  if (options.cache.latent_attention != LatentForm::kExpanded)
    answers.model_key += text_of("\nlatent_attention ", name_of(options.cache.latent_attention));
  const auto answer = [&](const Evaluation& evaluation) {
    answers.samples = options.samples.value_or(evaluation.task.samples);
    return answer_problems(engine, loaded.tokenizer, chat_template, evaluation.problems, answers, files.journal());
  };
  if (files.share().count > 1) {
    files.divide(answers);
    for (const Evaluation& evaluation : evaluations) (void)answer(evaluation);
    if (place != nullptr) return 0;
    files.finish(answers);
  }
  std::vector<TaskResult> results;
  for (Evaluation& evaluation : evaluations) {
    std::optional<QuietScope> quiet;
    if (files.share().count > 1) quiet.emplace();  // the answers are there
    auto samples = answer(evaluation);
    quiet.reset();
    results.push_back(
        run_scoring(evaluation.task, std::move(evaluation.problems), std::move(samples), options.group_by));
  }
  std::fputs(report_table(results).c_str(), stdout);
  if (!options.output_dir.empty()) {
    EvalOptions copy = options;
    write_report(options.output_dir, results, option_json(OptionTable(copy)));
    files.remove();
    log_info(text_of("wrote ", options.output_dir, "/results.json and samples.jsonl"));
  }
  return 0;
}

int run(const EvalOptions& given, const OptionInput& input) {
  if (!given.compare.empty()) {
    if (!input.positionals.empty()) {
      throw Error("hone eval", text_of("unexpected argument ", shown(input.positionals[0])),
                  "--compare takes folders only; name them after it");
    }
    return compare(given);
  }
  EvalOptions options = given;
  options.model_name_or_path = model_argument("eval", given.model_name_or_path, input);
  if (!options.output_dir.empty()) ensure_writable_folder(options.output_dir, "output_dir");
  return run_shared_job(
      {.tensor_parallel_size = options.tensor_parallel_size,
       .model = options.model_name_or_path,
       .device = options.device},
      [&](EngineGroup* group) { return load(options, group); },
      [&](EngineGroup* group, const ReplicaPlace* place) { return evaluate(options, group, place); });
}

}  // namespace

void check_eval_stage(const StageKeys& stage, Problems& problems) {
  EvalOptions options;
  if (!read_stage(options, stage, {}, problems)) return;
  problems.run([&] { (void)open_device(options.device); });
  if (!stage.is_pending(options.model_name_or_path)) {
    problems.run([&] { (void)load_tokenizer(resolve_model(options.model_name_or_path)); });
  }
  const bool is_pending =
      std::ranges::any_of(options.dataset_name, [&](const auto& name) { return stage.is_pending(name); });
  if (!is_pending) problems.run([&] { (void)read_evaluations(options); });
}

void register_eval(CommandRegistry& registry) {
  registry.add(make_command<EvalOptions>(
      {.name = "eval", .summary = "Evaluate a model on benchmarks", .positionals = "[MODEL]"}, run));
}

}  // namespace hone
