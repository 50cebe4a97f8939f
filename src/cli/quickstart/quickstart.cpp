// hone quickstart: trains a miniature reasoning model with the ordinary commands and the recipes in recipes/quickstart.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "backend/device_option.h"
#include "cli/quickstart/report.h"
#include "cli/recipes/embedded.h"
#include "cli/registry.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "data/arithmetic.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

struct QuickstartOptions {
  std::string output_dir = "runs/quickstart";
  std::string recipes;
  std::int64_t seed = 42;
  DeviceChoice device = DeviceChoice::kAutomatic;

  template <class Visitor>
  void fields(Visitor& v) {
    v("output_dir", output_dir, "Folder for the data, the models and the report");
    v("recipes", recipes, "Folder of the recipes; unset: the built-in ones, written to recipes in output_dir");
    v("seed", seed, "Seed of the data and of every stage", at_least(0));
    v("device", device, kDeviceHelp);
  }
};

// Thrown when a command fails, after it has printed its error.
struct CommandFailed {
  int code = 0;
};

class Quickstart {
 public:
  explicit Quickstart(const QuickstartOptions& options) : options_(options), root_(options.output_dir) {
    register_all_cli(registry_);
  }

  int run() {
    title("1. Problems");
    const auto seed = static_cast<std::uint64_t>(options_.seed);
    write_arithmetic(root_ / "data", {.seed = seed});
    std::printf("wrote %s: a corpus, traces, prompts and 500 held-out problems\n", (root_ / "data").c_str());
    title("2. Tokenizer");
    command({"tokenizer", "train", "--input", path("data/corpus.jsonl"), path("data/sft.jsonl"), "--type", "qwen2",
             "--vocab_size", "384", "--special_tokens", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "--eos_token",
             "<|endoftext|>", "--output", path("tokenizer")});
    title("3. Pre-training");
    stage("pretrain", {"--model_config_path", recipe("model.json"), "--tokenizer_name_or_path", path("tokenizer"),
                       "--dataset_name", path("data/corpus.jsonl")});
    title("4. Supervised fine-tuning");
    stage("sft", {"--model_name_or_path", path("pretrain"), "--dataset_name", path("data/sft.jsonl")});
    title("5. GRPO");
    stage("grpo", {"--model_name_or_path", path("sft"), "--dataset_name", path("data/prompts.jsonl")});
    const QuickstartReport report = write_quickstart_report(
        root_, stages_, {.seed = options_.seed, .machine = open_device(options_.device).name()});
    std::fputs(report.text.c_str(), stdout);
    std::printf("\nreport: %s\nchat with the model: hone chat %s\n", report.html.c_str(), path("grpo").c_str());
    return 0;
  }

 private:
  static void title(const char* text) {
    std::printf("\n== %s\n", text);
    std::fflush(stdout);
  }
  [[nodiscard]] std::string path(const char* relative) const { return (root_ / relative).string(); }
  [[nodiscard]] std::string recipe(const char* name) const { return (fs::path(options_.recipes) / name).string(); }

  // Prints a command line as a user would type it and runs it. Throws CommandFailed.
  void command(const std::vector<std::string>& arguments) {
    std::string line = "$ hone";
    for (const std::string& argument : arguments)
      line += argument.find_first_of(" |<>") == std::string::npos ? " " + argument : " '" + argument + "'";
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    if (const int code = run_command_line(registry_, arguments); code != 0) throw CommandFailed{code};
  }

  void add_device(std::vector<std::string>& arguments) const {
    if (options_.device == DeviceChoice::kAutomatic) return;
    arguments.insert(arguments.end(), {"--device", options_.device == DeviceChoice::kCpu ? "cpu" : "cuda"});
  }

  // Trains a stage, then evaluates it on the held-out problems.
  void stage(const std::string& name, std::vector<std::string> keys) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::string> arguments{name, "--config", recipe((name + ".yaml").c_str())};
    arguments.insert(arguments.end(), keys.begin(), keys.end());
    const std::string folder = path(name.c_str());
    arguments.insert(arguments.end(),
                     {"--output_dir", folder, "--overwrite_output_dir", "--seed", std::to_string(options_.seed)});
    add_device(arguments);
    command(arguments);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::string results = path(("eval-" + name).c_str());
    std::vector<std::string> scoring{
        "eval",         folder, "--config", recipe("eval.yaml"), "--dataset_name", path("data/held_out.jsonl"),
        "--output_dir", results};
    add_device(scoring);
    command(scoring);
    stages_.push_back({name, seconds, folder, results});
  }

  QuickstartOptions options_;
  fs::path root_;
  CommandRegistry registry_;
  std::vector<QuickstartStage> stages_;
};

int run(const QuickstartOptions& given, const OptionInput&) {
  QuickstartOptions options = given;
  if (options.recipes.empty()) {
    const fs::path own = fs::path(options.output_dir) / "recipes";
    (void)write_recipes("quickstart/", own);
    options.recipes = own.string();
  }
  if (!fs::exists(fs::path(options.recipes) / "pretrain.yaml")) {
    throw Error("--recipes", text_of("there are no recipes in ", options.recipes),
                "hone recipes quickstart --output_dir FOLDER writes them");
  }
  try {
    return Quickstart(options).run();
  } catch (const CommandFailed& failed) {
    return failed.code;
  }
}

}  // namespace

void register_quickstart(CommandRegistry& registry) {
  registry.add(make_command<QuickstartOptions>(
      {.name = "quickstart", .summary = "Train a small reasoning model from scratch on this machine"}, run));
}

}  // namespace hone
