// hone generate
#include <cstdio>

#include "cli/registry.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/strings.h"
#include "generate/options.h"
#include "train/foreign_keys.h"

namespace hone {
namespace {

void print_count(const std::string& name, std::int64_t count) {
  std::printf("%-44s %12s\n", name.c_str(), format_count(count).c_str());
}

int run(const GenerateOptions& options, const OptionInput& input) {
  check_options(options, input);
  catch_interrupts();
  const GenerateCounts counts = generate(options);
  const auto line = [](const std::string& name, std::int64_t count) {
    if (count > 0) print_count(name, count);
  };
  line("rows", counts.rows);
  line("  left out as duplicates", counts.duplicates);
  if (!counts.benchmarks.empty()) {
    print_count("  left out for words of a benchmark", counts.contaminated);
    for (const BenchmarkCounts& benchmark : counts.benchmarks) {
      print_count("    " + benchmark.name, benchmark.removed);
    }
  }
  line("prompts", counts.prompts);
  line("  refused by the endpoint", counts.refused);
  line("  left out by their pass rate", counts.pass_rate);
  line("completions", counts.completions);
  line("  left out by their length, or without an end", counts.length);
  line("  left out by their format", counts.format);
  line("  left out by their reward", counts.reward);
  line("  left out as repeated", counts.repeated);
  line("kept", counts.kept);
  log_info(text_of("wrote ", output_folder(options), "/data.jsonl"));
  return 0;
}

}  // namespace

void register_generate(CommandRegistry& registry) {
  registry.add(make_command<GenerateOptions>(
      {.name = "generate",
       .summary = "Completions of a dataset's prompts, filtered into new data",
       .details = "Runs that were stopped go on where they were. Filters can be changed without generating anew."},
      run, training_foreign_keys()));
}

}  // namespace hone
