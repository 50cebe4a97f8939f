#include <cstdio>

#include "cli/bench/child_bench.h"
#include "cli/bench/kind.h"
#include "cli/bench/results.h"
#include "cli/bench/training_step.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace {

struct ScalingOptions : StepOptions {
  std::vector<std::int64_t> processes;
  double seconds = 20;
  double warmup_seconds = 5;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    StepOptions::fields(v);
    v.group("Several processes");
    v("processes", processes,
      "Numbers of processes to train with, each on its own GPU or all on the CPU; empty: 1, 2, 4 and so on up to the "
      "GPUs there are, on a CPU 1 and 2",
      within(1, 1024));
    v("zero_stage", zero_stage, "What is divided over the processes, as for hone bench train", within(0, 3));
    v.group("Measurement");
    v("seconds", seconds, "Seconds of measurement for each number", above(0));
    v("warmup_seconds", warmup_seconds, "Seconds of warm-up steps", at_least(0));
    v("json", json, "JSON file to write the results to");
  }
};

// Returns the flags that give `hone bench train` the settings of the steps that were set here.
std::vector<std::string> step_flags(ScalingOptions options, const OptionInput& input) {
  const Json values = option_json(OptionTable(options));
  std::vector<std::string> flags;
  for (const auto& [name, place] : input.places) {
    if (name == "processes" || name == "json" || name == "seconds" || name == "warmup_seconds") continue;
    const Json& value = values.at(name);
    flags.insert(flags.end(), {"--" + name, value.is_string() ? value.get<std::string>() : value.dump()});
  }
  flags.insert(flags.end(),
               {"--seconds", text_of(options.seconds), "--warmup_seconds", text_of(options.warmup_seconds)});
  return flags;
}

double figure_of(const Json& rows, std::string_view unit) {
  for (const Json& row : rows) {
    if (row["unit"] == unit) return row["figure"].get<double>();
  }
  throw Defect(text_of("hone bench train has written no ", unit));
}

int scaling_bench(ScalingOptions& options, const OptionInput& input, const std::string& command) {
  if (options.processes.empty()) options.processes = process_counts(gpus_for(options.device));
  const TemporaryFolder scratch(std::filesystem::temp_directory_path(), "hone-bench");
  const std::vector<std::string> flags = step_flags(options, input);
  std::vector<ResultRow> results;
  double first = 0;  // tokens/s of a process, with the first number of processes
  for (const std::int64_t count : options.processes) {
    std::vector<std::string> child{"train", "--num_processes", text_of(count)};
    child.insert(child.end(), flags.begin(), flags.end());
    const Json rows = run_child_bench(std::move(child), scratch.path());
    const double rate = figure_of(rows, "tokens/s");
    if (first == 0) first = rate;
    const std::string shape = text_of(options.model, " batch ", options.batch_size, " x ", options.seq_len, ", ", count,
                                      count == 1 ? " process" : " processes");
    const auto processes = static_cast<double>(count);
    results.push_back({"scaling", shape, rate * processes, "tokens/s"});
    results.push_back({"scaling", shape, figure_of(rows, "TFLOP/s") * processes, "TFLOP/s"});
    results.push_back({"scaling", shape, 100 * (rate / first), "% of the first rate a process"});
    // Printed and written here, because a larger number of processes may fail.
    std::printf("%s: %s tokens/s, %s a process, %.1f%% of the first\n\n", shape.c_str(),
                format_count(static_cast<std::int64_t>(rate * processes)).c_str(),
                format_count(static_cast<std::int64_t>(rate)).c_str(), 100 * (rate / first));
    if (options.json.empty()) continue;
    write_results(options.json, results, rows[0]["machine"].get<std::string>(), command);
  }
  return 0;
}

}  // namespace

BenchKind bench_scaling() {
  return bench_kind("scaling", "training with several numbers of processes, each as hone bench train", scaling_bench);
}

}  // namespace hone
