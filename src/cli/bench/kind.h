// The benchmarks of hone bench: each has a name, its own options, and a function that measures.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/results.h"
#include "cli/command.h"
#include "core/error.h"

namespace hone {

struct BenchKind {
  std::string_view name;
  std::string_view summary;                       // without a full stop
  std::function<std::string()> help;              // of the keys
  std::function<std::vector<CommandKey>()> keys;  // in the order of their declaration
  // Runs it on the arguments after its name and returns the exit code. Throws Error.
  std::function<int(std::span<const std::string>)> run;
};

// Makes a benchmark whose keys and flags are the fields of Options. `run` also receives which of them were set, and the
// command line for write_results().
template <class Options>
[[nodiscard]] BenchKind bench_kind(std::string_view name, std::string_view summary,
                                   int (*run)(Options& options, const OptionInput& input, const std::string& command)) {
  return {.name = name,
          .summary = summary,
          .help =
              [] {
                Options defaults;
                return option_help(OptionTable(defaults));
              },
          .keys =
              [] {
                Options defaults;
                return keys_of(OptionTable(defaults));
              },
          .run =
              [name, run](std::span<const std::string> arguments) {
                Options options;
                const OptionInput input = read_options(OptionTable(options), arguments, {}, RecipeArgument::kTaken);
                apply_input({.name = text_of("bench ", name), .summary = {}}, input);
                return run(options, input, command_line(name, arguments));
              }};
}

[[nodiscard]] BenchKind bench_train();
[[nodiscard]] BenchKind bench_grpo();
[[nodiscard]] BenchKind bench_scaling();
[[nodiscard]] BenchKind bench_decode();
[[nodiscard]] BenchKind bench_kernels();
[[nodiscard]] BenchKind bench_matmul();
[[nodiscard]] BenchKind bench_grouped_gemm();
[[nodiscard]] BenchKind bench_latent_attention();
[[nodiscard]] BenchKind bench_tokenizer();
[[nodiscard]] BenchKind bench_data();
[[nodiscard]] BenchKind bench_serve();
[[nodiscard]] BenchKind bench_collectives();
[[nodiscard]] BenchKind bench_all();

}  // namespace hone
