#include "cli/training_hooks.h"

#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/strings.h"
#include "engine/sampling_keys.h"
#include "eval/benchmarks.h"
#include "eval/report.h"
#include "train/benchmark_memory.h"
#include "train/hub_pusher.h"
#include "train/trainer.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

// Scores each saved checkpoint on the benchmarks, as `hone eval` does with its default options. Uses the weights in
// memory, which equal those of the checkpoint when saved() is called.
class BenchmarkObserver final : public RunObserver {
 public:
  BenchmarkObserver(std::vector<BenchmarkTask> tasks, std::string system_prompt, std::string chat_template,
                    std::string place)
      : tasks_(std::move(tasks)),
        system_prompt_(std::move(system_prompt)),
        chat_template_(std::move(chat_template)),
        place_(std::move(place)) {}

  void started(const RunView& run) override {
    try {
      (void)make_engine(run);  // fails now rather than at the first checkpoint if the memory does not suffice
    } catch (const Error& error) {
      throw Error(place_, text_of("cannot score checkpoints during training: ", error.what()),
                  "set --benchmarks none and score a checkpoint later with hone eval");
    }
  }

  MetricValues saved(const RunView& run, const fs::path& checkpoint) override {
    const fs::path folder = run.output_dir / "benchmarks" / checkpoint.filename();
    try {
      return score(run, folder);
    } catch (const Error& error) {
      std::vector<std::string> names;
      names.reserve(tasks_.size());
      for (const BenchmarkTask& benchmark : tasks_) names.push_back(benchmark.task.name);
      log_warning(text_of("step ", run.step, " was not scored: ", error.what(),
                          " (training continues; score it later: hone eval ", checkpoint.string(), " --task ",
                          join(names, ","), ")"));
    }
    return {};
  }

 private:
  static Engine make_engine(const RunView& run) {
    const TrainingSubject& subject = run.subject;
    auto arena = std::make_shared<Arena>(subject.weights.device());
    Engine engine(subject.model, subject.tokenizer, subject.weights, arena, benchmark_engine(subject.model));
    (void)arena->base();
    return engine;
  }

  MetricValues score(const RunView& run, const fs::path& folder) {
    const TrainingSubject& subject = run.subject;
    Engine engine = make_engine(run);
    const SamplingKeys keys;
    AnswerOptions answers;
    answers.seed = static_cast<std::uint64_t>(keys.seed);
    answers.system_prompt = system_prompt_;
    answers.sampling = keys.params(benchmark_engine(subject.model).max_model_len,
                                   stop_token_ids(subject.generation_config, subject.model, subject.tokenizer));
    const ChatTemplate chat_template = chat_template_of(subject.tokenizer, chat_template_);
    std::vector<TaskResult> results;
    MetricValues values;
    for (const BenchmarkTask& benchmark : tasks_) {
      answers.samples = benchmark.task.samples;
      auto samples = answer_problems(engine, subject.tokenizer, chat_template, benchmark.problems, answers);
      results.push_back(run_scoring(benchmark.task, benchmark.problems, std::move(samples)));
      values.emplace_back("benchmarks/" + results.back().task, results.back().average.value);
    }
    for (const std::string& line : split(trim(report_table(results)), '\n')) log_line(line);
    write_report(folder, results, Json{{"step", run.step}, {"system_prompt", system_prompt_}});
    return values;
  }

  std::vector<BenchmarkTask> tasks_;
  std::string system_prompt_, chat_template_;
  std::string place_;
};

}  // namespace

TrainingHooks::TrainingHooks(const std::string& command, const TrainingOptions& options, const Prompt& prompt,
                             const std::string& defaults, const OptionInput& input) {
  const std::string place = input.place_of("benchmarks");
  std::vector<BenchmarkTask> tasks;
  try {
    tasks = read_benchmarks(options.benchmarks, static_cast<std::uint64_t>(SamplingKeys().seed));
  } catch (const Error& error) {
    throw Error(place, error.what(), "--benchmarks none trains without scoring checkpoints");
  }
  if (options.hub.uses_hub()) {
    check_hub(options.hub, options.output_dir, options.dry_run, input);
    observers_.push_back(std::make_unique<HubPusher>(options.hub, command, defaults));
  }
  if (tasks.empty()) return;
  if (options.save_strategy == SaveStrategy::kNo) log_once("benchmarks has no effect: save_strategy is no");
  observers_.push_back(
      std::make_unique<BenchmarkObserver>(std::move(tasks), prompt.system, prompt.chat_template, place));
}

std::vector<RunObserver*> TrainingHooks::observers() const {
  std::vector<RunObserver*> all;
  all.reserve(observers_.size());
  for (const auto& observer : observers_) all.push_back(observer.get());
  return all;
}

}  // namespace hone
