// Tests the parts of the quickstart's report page that are not figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/quickstart/particulars.h"
#include "core/error.h"
#include "core/files.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

QuickstartStage stage(const fs::path& root, const std::string& name, const std::string& samples) {
  const QuickstartStage stage{.name = name, .seconds = 1, .folder = root / name, .results = root / ("eval-" + name)};
  hone::create_directories(stage.folder);
  hone::create_directories(stage.results);
  write_file(stage.folder / "config.json", R"({"model_type": "qwen2", "vocab_size": 16, "hidden_size": 16,
      "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
      "max_position_embeddings": 32, "tie_word_embeddings": true})");
  write_file(stage.results / "results.json",
             R"({"settings": {}, "tasks": {"jsonl": {"avg@1": {"value": 0.5}, "mean_tokens": 3}}})");
  write_file(stage.results / "samples.jsonl", samples);
  return stage;
}

std::string sample(int id, const std::string& completion, double score) {
  return text_of(R"({"task": "jsonl", "id": ")", id, R"(", "sample": 0, "prompt": "1 < )", id,
                 R"( ?", "gold": "4", "extracted": "", "completion": ")", completion, R"(", "score": )", score, "}\n");
}

TEST(QuickstartReport, NamesItsCircumstancesAndAQuestionOfAllStages) {
  const TemporaryDirectory folder;
  const fs::path root = folder.path();
  hone::create_directories(root / "data");
  for (const char* name : {"corpus", "sft", "prompts", "held_out"}) {
    write_file(root / "data" / (std::string(name) + ".jsonl"), "{}\n{}\n{}\n");
  }
  const std::vector<QuickstartStage> stages{
      stage(root, "pretrain", sample(1, "always right", 1) + sample(2, "at a loss", 0)),
      stage(root, "sft", sample(1, "always right", 1) + sample(2, "<think>nearly", 0)),
      stage(root, "grpo", sample(1, "always right", 1) + sample(2, "solved", 1))};
  const std::string html = run_details_html(root, stages, {.seed = 1234, .machine = "GPU <X>"});
  EXPECT_THAT(html,
              testing::ContainsRegex("20[0-9][0-9]-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9] UTC, on GPU &lt;X"));
  EXPECT_THAT(html, HasSubstr("seed 1234"));
  EXPECT_THAT(html, testing::ContainsRegex("a model of [0-9,]+ parameters"));
  EXPECT_THAT(html, HasSubstr("3 documents to pre-train on, 3 traces"));
  EXPECT_THAT(run_details_html(root, stages, {.machine = "cpu"}), testing::ContainsRegex("[0-9]+ threads of "));

  const std::string question = question_html(stages);
  EXPECT_THAT(question, HasSubstr("Held-out problem 2: <b>1 &lt; 2 ?</b> The answer is 4."));
  EXPECT_THAT(question, HasSubstr("<p>pretrain: wrong</p>\n<pre>at a loss</pre>"));
  EXPECT_THAT(question, HasSubstr("<p>sft: wrong</p>\n<pre>&lt;think&gt;nearly</pre>"));
  EXPECT_THAT(question, HasSubstr("<p>grpo: right</p>\n<pre>solved</pre>"));
  EXPECT_THAT(question, Not(HasSubstr("always right")));
}

}  // namespace
}  // namespace hone::test
