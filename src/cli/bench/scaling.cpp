#include "cli/bench/scaling.h"

#include <cstdio>

#include "cli/bench/child_bench.h"
#include "cli/bench/results.h"
#include "cli/bench/training_step.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace {

struct ScalingOptions : StepOptions {
  std::vector<std::int64_t> processes = {1, 2, 4, 8};
  double seconds = 20;
  double warmup_seconds = 5;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    StepOptions::fields(v);
    v.group("Several processes");
    v("processes", processes, "Numbers of processes to train with, each on its own GPU or all on the CPU",
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

}  // namespace

std::string bench_scaling_help() {
  ScalingOptions defaults;
  return option_help(OptionTable(defaults));
}

std::vector<CommandKey> bench_scaling_keys() {
  ScalingOptions defaults;
  return keys_of(OptionTable(defaults));
}

int bench_scaling(std::span<const std::string> arguments) {
  ScalingOptions options;
  const OptionInput input = read_options(OptionTable(options), arguments, {}, RecipeArgument::kTaken);
  apply_input({.name = "bench scaling", .summary = {}}, input);
  if (options.processes.empty()) throw Error("processes", "is empty");
  const ScratchFolder scratch;
  const std::vector<std::string> flags = step_flags(options, input);
  std::vector<ResultRow> results;
  std::vector<std::string> lines;
  std::string machine;
  double first = 0;  // tokens/s of a process, with the first number of processes
  for (const std::int64_t count : options.processes) {
    std::vector<std::string> child{"train", "--num_processes", text_of(count)};
    child.insert(child.end(), flags.begin(), flags.end());
    const Json rows = run_child_bench(std::move(child), scratch.path());
    const double rate = figure_of(rows, "tokens/s");
    if (first == 0) first = rate;
    machine = rows[0]["machine"].get<std::string>();
    const std::string shape = text_of(options.model, " batch ", options.batch_size, " x ", options.seq_len, ", ", count,
                                      count == 1 ? " process" : " processes");
    const auto processes = static_cast<double>(count);
    results.push_back({"scaling", shape, rate * processes, "tokens/s"});
    results.push_back({"scaling", shape, figure_of(rows, "TFLOP/s") * processes, "TFLOP/s"});
    results.push_back({"scaling", shape, 100 * (rate / first), "% of the first rate a process"});
    char line[160];
    std::snprintf(line, sizeof(line), "%9lld %14s %14s %13.1f%%\n", static_cast<long long>(count),
                  format_count(static_cast<std::int64_t>(rate * processes)).c_str(),
                  format_count(static_cast<std::int64_t>(rate)).c_str(), 100 * (rate / first));
    lines.emplace_back(line);
  }
  std::printf("\n%s on %s\n%9s %14s %14s %14s\n", options.model.c_str(), machine.c_str(), "processes", "tokens/s",
              "a process", "of the first");
  for (const std::string& line : lines) std::fputs(line.c_str(), stdout);
  if (!options.json.empty()) write_results(options.json, results, machine, command_line("scaling", arguments));
  return 0;
}

}  // namespace hone
