// hone bench: how fast this machine does what hone does.
#include "cli/bench/train.h"
#include "cli/registry.h"
#include "core/error.h"

namespace hone {
namespace {

const CommandText kText{.name = "bench", .summary = "Measures what hone does on this machine", .positionals = "train"};

int run(std::span<const std::string> arguments) {
  const std::string kind = arguments.empty() ? std::string() : arguments[0];
  if (kind == "train") return bench_train(arguments.subspan(1));
  throw Error("hone bench", text_of("expected train, saw '", kind, "'"),
              "for example hone bench train --model qwen2.5-0.5b");
}

}  // namespace

void register_bench(CommandRegistry& registry) {
  registry.add({.name = kText.name,
                .summary = kText.summary,
                .help =
                    [] {
                      return text_of("Usage: hone bench ", kText.positionals, " [--key value ...]\n\n", kText.summary,
                                     ".\n\n", "  train   full training steps, optimizer included, on random tokens\n\n",
                                     bench_train_keys());
                    },
                .run = run});
}

}  // namespace hone
