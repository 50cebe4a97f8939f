// hone bench: measures how fast training steps, GRPO steps, decoding, kernels, GEMMs, tokenizers and data are on this
// machine, and how fast a server answers.
#include <algorithm>

#include "cli/bench/kind.h"
#include "cli/registry.h"
#include "core/error.h"

namespace hone {
namespace {

constexpr const char* kKindNames =
    "train|grpo|scaling|decode|kernels|matmul|grouped_gemm|latent_attention|tokenizer|data|serve|collectives|all";

const CommandText kBenchText{.name = "bench",
                             .summary = "Benchmark training steps, decoding, kernels, GEMMs, data or a server",
                             .positionals = kKindNames};

std::vector<BenchKind> bench_kinds() {
  return {bench_train(),     bench_grpo(),   bench_scaling(),      bench_decode(),
          bench_kernels(),   bench_matmul(), bench_grouped_gemm(), bench_latent_attention(),
          bench_tokenizer(), bench_data(),   bench_serve(),        bench_collectives(),
          bench_all()};
}

std::string help() {
  std::string text = text_of("Usage: hone bench NAME [RECIPE.yaml] [--key value ...]\nNAME: ", kKindNames, "\n\n",
                             kBenchText.summary, ".\n");
  for (const BenchKind& kind : bench_kinds()) {
    text += text_of("\nhone bench ", kind.name, ": ", kind.summary, "\n\n", kind.help());
  }
  return text;
}

int run_bench(std::span<const std::string> arguments) {
  const std::string name = arguments.empty() ? std::string() : arguments[0];
  for (const BenchKind& kind : bench_kinds()) {
    if (kind.name == name) return kind.run(arguments.subspan(1));
  }
  throw Error("hone bench", text_of("expected one of ", kKindNames, ", saw ", shown(std::string_view(name))),
              "for example hone bench train --model qwen2.5-0.5b");
}

// Keys of all benchmarks, each once.
std::vector<CommandKey> keys() {
  std::vector<CommandKey> all;
  for (const BenchKind& kind : bench_kinds()) {
    for (CommandKey& key : kind.keys()) {
      if (std::ranges::find(all, key.name, &CommandKey::name) == all.end()) all.push_back(std::move(key));
    }
  }
  return all;
}

}  // namespace

void register_bench(CommandRegistry& registry) {
  registry.add({.name = kBenchText.name,
                .summary = kBenchText.summary,
                .help = help,
                .run = run_bench,
                .keys = keys,
                .positionals = kBenchText.positionals});
}

}  // namespace hone
