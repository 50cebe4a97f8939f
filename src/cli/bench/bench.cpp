// hone bench: measures how fast training steps, GRPO steps, decoding, kernels, GEMMs, tokenizers and data are on this
// machine, and how fast a server answers.
#include <algorithm>

#include "cli/bench/all.h"
#include "cli/bench/collectives.h"
#include "cli/bench/data.h"
#include "cli/bench/decode.h"
#include "cli/bench/grouped_gemm.h"
#include "cli/bench/grpo.h"
#include "cli/bench/kernels.h"
#include "cli/bench/matmul.h"
#include "cli/bench/scaling.h"
#include "cli/bench/serve.h"
#include "cli/bench/tokenizer.h"
#include "cli/bench/train.h"
#include "cli/registry.h"
#include "core/error.h"

namespace hone {
namespace {

constexpr const char* kKindNames =
    "train|grpo|scaling|decode|kernels|matmul|grouped_gemm|tokenizer|data|serve|collectives|all";

const CommandText kBenchText{.name = "bench",
                             .summary = "Benchmark training steps, decoding, kernels, GEMMs, data or a server",
                             .positionals = kKindNames};

struct Kind {
  std::string_view name;
  std::string_view summary;
  int (*run)(std::span<const std::string>);
  std::string (*help)();
  std::vector<CommandKey> (*keys)();
};
constexpr Kind kKinds[] = {
    {"train", "complete training steps on random tokens, including the optimizer", bench_train, bench_train_help,
     bench_train_keys},
    {"grpo", "complete GRPO steps on random weights, phase by phase", bench_grpo, bench_grpo_help, bench_grpo_keys},
    {"scaling", "training with several numbers of processes, each as hone bench train", bench_scaling,
     bench_scaling_help, bench_scaling_keys},
    {"decode", "tokens per second of the generation engine, over streams and contexts", bench_decode, bench_decode_help,
     bench_decode_keys},
    {"kernels", "each operation of a training step in isolation, compared with the device's roofline", bench_kernels,
     bench_kernels_help, bench_kernels_keys},
    {"matmul", "GEMMs over sizes and dtypes, with and without tuning", bench_matmul, bench_matmul_help,
     bench_matmul_keys},
    {"grouped_gemm", "GEMMs of the experts of a mixture, forward and backward", bench_grouped_gemm,
     bench_grouped_gemm_help, bench_grouped_gemm_keys},
    {"tokenizer", "text to tokens and back, in one thread and in all", bench_tokenizer, bench_tokenizer_help,
     bench_tokenizer_keys},
    {"data", "reading, encoding, packing and batches, from files to a training step", bench_data, bench_data_help,
     bench_data_keys},
    {"serve", "requests to an OpenAI-compatible server: rates, times to the first token and between tokens",
     bench_serve, bench_serve_help, bench_serve_keys},
    {"collectives", "sums and copies between the devices of several processes", bench_collectives,
     bench_collectives_help, bench_collectives_keys},
    {"all", "all of these but serve, on shapes that suit the device, into one page that describes the machine",
     bench_all, bench_all_help, bench_all_keys},
};

std::string help() {
  std::string text = text_of("Usage: hone bench NAME [RECIPE.yaml] [--key value ...]\nNAME: ", kKindNames, "\n\n",
                             kBenchText.summary, ".\n");
  for (const Kind& kind : kKinds) {
    text += text_of("\nhone bench ", kind.name, ": ", kind.summary, "\n\n", kind.help());
  }
  return text;
}

int run_bench(std::span<const std::string> arguments) {
  const std::string name = arguments.empty() ? std::string() : arguments[0];
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind.run(arguments.subspan(1));
  }
  throw Error("hone bench", text_of("expected one of ", kKindNames, ", saw ", shown(std::string_view(name))),
              "for example hone bench train --model qwen2.5-0.5b");
}

// Keys of all benchmarks, each once.
std::vector<CommandKey> keys() {
  std::vector<CommandKey> all;
  for (const Kind& kind : kKinds) {
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
