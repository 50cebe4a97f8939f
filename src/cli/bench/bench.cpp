// hone bench: how fast this machine does what hone does.
#include "cli/bench/train.h"
#include "cli/registry.h"
#include "core/error.h"

namespace hone {
namespace {

constexpr const char* kSummary = "Measures training on this machine";

int run(std::span<const std::string> arguments) {
  const std::string kind = arguments.empty() ? std::string() : arguments[0];
  if (kind == "train") return bench_train(arguments.subspan(1));
  throw Error("hone bench", text_of("expected train, saw '", kind, "'"),
              "for example hone bench train --model qwen2.5-0.5b");
}

}  // namespace

void register_bench(CommandRegistry& registry) {
  registry.add({.name = "bench", .summary = kSummary, .help = bench_train_help, .run = run});
}

}  // namespace hone
