// hone generate: generates completions for the prompts of a dataset and filters them into new data.
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/registry.h"
#include "cli/shared_work.h"
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

GenerateShare generate_share(const GenerateOptions& options, const ReplicaPlace* place, const TemporaryFolder* folder) {
  if (place != nullptr) return {share_of(*place), {}};
  if (folder == nullptr) return {};
  return {{.number = 0, .count = static_cast<std::size_t>(options.data_parallel_size)}, [&options, folder] {
            return start_other_shares({.count = static_cast<int>(options.data_parallel_size),
                                       .gpus_each = options.tensor_parallel_size,
                                       .device = options.device},
                                      folder->path());
          }};
}

// place: null: no other process has started this one.
int generate_and_count(const GenerateOptions& options, EngineGroup* group, const ReplicaPlace* place) {
  catch_interrupts();
  std::optional<TemporaryFolder> folder;
  if (place == nullptr && options.data_parallel_size > 1)
    folder.emplace(std::filesystem::temp_directory_path(), "hone-generate");
  const GenerateCounts counts = generate(options, group, generate_share(options, place, folder ? &*folder : nullptr));
  if (place != nullptr) return 0;
  const auto line = [](const std::string& name, std::int64_t count) {
    if (count > 0) print_count(name, count);
  };
  line("rows", counts.rows);
  line("  left out as duplicates", counts.duplicates);
  if (!counts.benchmarks.empty()) {
    print_count("  left out for overlap with a benchmark", counts.contaminated);
    for (const BenchmarkCounts& benchmark : counts.benchmarks) {
      print_count("    " + benchmark.name, benchmark.removed);
    }
  }
  line("prompts", counts.prompts);
  line("  refused by the endpoint", counts.refused);
  line("  left out by pass rate", counts.pass_rate);
  line("completions", counts.completions);
  line("  left out by length or as unfinished", counts.length);
  line("  left out by format", counts.format);
  line("  left out by reward", counts.reward);
  line("  left out as repetitions", counts.repeated);
  line("kept", counts.kept);
  log_info(text_of("wrote ", output_folder(options), "/data.jsonl"));
  return 0;
}

int run(const GenerateOptions& options, const OptionInput& input) {
  check_options(options, input);
  return run_shared_job(
      {.tensor_parallel_size = options.tensor_parallel_size,
       .model = options.model_name_or_path,
       .device = options.device},
      [&](EngineGroup* group) { return load_generator(options, group); },
      [&](EngineGroup* group, const ReplicaPlace* place) { return generate_and_count(options, group, place); });
}

}  // namespace

void register_generate(CommandRegistry& registry) {
  registry.add(make_command<GenerateOptions>(
      {.name = "generate",
       .summary = "Generate completions for a dataset's prompts and filter them into new data",
       .details = "An interrupted run resumes where it stopped. Filters can be changed without generating again."},
      run, training_foreign_keys()));
}

}  // namespace hone
