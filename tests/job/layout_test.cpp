// Tests of `layout: auto` and `search`: jobs that search their layout before they start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "job/job_fixture.h"
#include "job/mixtures.h"

namespace hone::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LayoutJob : public JobFixture {
 protected:
  LayoutJob() {
    write_file(path("model.json"),
               R"({"model_type": "llama", "vocab_size": 308, "hidden_size": 32, "intermediate_size": 48,
                   "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                   "initializer_range": 0.05, "tie_word_embeddings": false})");
  }

  // Pre-training of 8 steps with a checkpoint after 4, of 8 sequences a step.
  [[nodiscard]] Flags command(const std::string& output, int processes, const Flags& more) const {
    const Flags model{"--model_config_path", path("model.json").string(), "--num_processes", std::to_string(processes)};
    return pretraining(output, 8, 4, joined(model, more));
  }
  [[nodiscard]] static Flags sequences(int size, int count) {
    return {"--per_device_train_batch_size", std::to_string(size), "--gradient_accumulation_steps",
            std::to_string(count)};
  }
  // Runs a command, which must succeed, and returns its output.
  [[nodiscard]] static std::string output_of(const Flags& command) {
    const Ended ended = run_program(command);
    EXPECT_EQ(ended.code, 0) << ended.output;
    return ended.output;
  }
  // Returns the line of an output that says which layout was chosen.
  [[nodiscard]] static std::string layout_line(const std::string& output) {
    std::string found;
    for (const std::string& line : split(output, '\n')) {
      if (line.find("layout: ") == std::string::npos) continue;
      EXPECT_TRUE(found.empty()) << "a second line: " << line;
      found = line;
    }
    EXPECT_FALSE(found.empty()) << output;
    return found;
  }

  Environment threads_{kOneThread};
};

// The run takes the first layout of the plan: it has the bits of a run with the keys that the plan ends with.
TEST_F(LayoutJob, TakesTheFirstOfThePlan) {
  write_file(path("mixture.json"), mixtures().at("qwen3_moe"));
  for (const std::string model : {"model.json", "mixture.json"}) {
    const Flags of_model{"--model_config_path", path(model).string()};
    const auto with_keys = [&](const std::string& output, const Flags& keys) {
      return joined(command(model + output, 2, keys), of_model);
    };
    const std::string line = layout_line(output_of(with_keys("auto", joined(sequences(2, 2), {"--layout", "auto"}))));
    EXPECT_THAT(line, HasSubstr("(the fastest of "));
    EXPECT_THAT(line, HasSubstr(" tokens/s a process by "));
    const std::string plan = plan_of(with_keys("plan", sequences(2, 2)));
    const std::string allowed = plan.substr(0, plan.find(" allowed"));
    EXPECT_THAT(line, HasSubstr("(the fastest of " + allowed.substr(allowed.rfind(' ') + 1) + " on "));
    const std::size_t at = plan.find("the first: ");
    ASSERT_NE(at, std::string::npos) << plan;
    Flags keys;
    for (const std::string& word : split(std::string(trim(plan.substr(at + 11))), ' ')) keys.push_back(word);
    finish(with_keys("keys", keys));
    expect_same_bits(model + "auto", model + "keys");
  }
}

// A resumed run keeps the layout of its checkpoint, also if another is faster, unless a search is requested.
TEST_F(LayoutJob, KeepsTheLayoutOfACheckpoint) {
  const Flags layout = joined(sequences(1, 8), {"--tensor_parallel_size", "2"});
  finish(command("whole", 2, layout));
  copy_checkpoint("whole", "parts", 4);
  const Flags automatic = joined(sequences(2, 2), {"--layout", "auto"});
  const std::string kept = layout_line(output_of(command("parts", 2, automatic)));
  EXPECT_THAT(kept, HasSubstr("layout: tensor 2, 1 x 8, recomputing what must be (that of "));
  EXPECT_EQ(weights("parts"), weights("whole"));
  copy_checkpoint("whole", "search", 4);
  const Flags search = joined(sequences(2, 2), {"--layout", "search"});
  const std::string searched = layout_line(output_of(command("search", 2, search)));
  EXPECT_THAT(searched, HasSubstr("1 x "));
  EXPECT_THAT(searched, HasSubstr("(the fastest of "));
  // A checkpoint of an earlier hone, which has saved fewer keys.
  copy_checkpoint("whole", "old", 4);
  const auto state = path("old/checkpoint-4/training_state.json");
  Json saved = read_json(state);
  saved["options"].erase("expert_parallel_size");
  write_file(state, saved.dump());
  EXPECT_THAT(refusal(command("old", 2, automatic)),
              HasSubstr("layout: the saved options have no expert_parallel_size (--layout search)"));
  EXPECT_THAT(layout_line(output_of(command("old", 2, search))), HasSubstr("(the fastest of "));
  copy_checkpoint("whole", "alone", 4);
  const std::string alone = output_of(command("alone", 1, joined(sequences(4, 2), {"--layout", "auto"})));
  EXPECT_THAT(alone, HasSubstr("layout: data parallel, 1 x 8"));
  EXPECT_THAT(alone, HasSubstr("checkpoint-4 is of 2 processes, this run has 1, so that another layout is searched"));
  EXPECT_THAT(alone, HasSubstr("(the fastest of "));
}

TEST_F(LayoutJob, KeepsStagesOfTensorGroups) {
  finish(
      command("whole", 4, joined(sequences(1, 8), {"--tensor_parallel_size", "2", "--pipeline_parallel_size", "2"})));
  copy_checkpoint("whole", "parts", 4);
  const std::string kept = output_of(command("parts", 4, joined(sequences(2, 1), {"--layout", "auto"})));
  EXPECT_THAT(layout_line(kept), HasSubstr("layout: tensor 2, pipeline 2, 1 x 8, recomputing what must be (that of "));
  EXPECT_EQ(weights("parts"), weights("whole"));
}

TEST_F(LayoutJob, KeepsSequenceParallelism) {
  finish(command("whole", 2, joined(sequences(1, 8), {"--tensor_parallel_size", "2", "--sequence_parallel", "true"})));
  copy_checkpoint("whole", "parts", 4);
  const std::string kept = output_of(command("parts", 2, joined(sequences(2, 2), {"--layout", "auto"})));
  EXPECT_THAT(layout_line(kept), HasSubstr("layout: tensor 2, sequence, 1 x 8, recomputing what must be (that of "));
  EXPECT_EQ(weights("parts"), weights("whole"));
}

TEST_F(LayoutJob, IsPartOfADryRunAndOfFineTuning) {
  const Flags automatic = joined(sequences(2, 2), {"--layout", "auto"});
  const std::string dry = output_of(joined(command("dry", 2, automatic), {"--dry_run"}));
  EXPECT_THAT(layout_line(dry), HasSubstr("(the fastest of "));
  EXPECT_THAT(dry, HasSubstr("dry run: nothing was trained"));
  finish(command("base", 1, sequences(4, 2)));
  const std::string tuned =
      output_of(fine_tuning("base", "tuned", joined(automatic, {"--num_processes", "2", "--max_steps", "2"})));
  EXPECT_THAT(layout_line(tuned), HasSubstr("(the fastest of "));
  EXPECT_EQ(series("tuned", "loss").size(), 2u);
}

TEST_F(LayoutJob, RefusesOtherKeysInOneLine) {
  const auto refused = [&](const Flags& more) { return refusal(command("bad", 2, joined(sequences(2, 2), more))); };
  EXPECT_THAT(refused({"--layout", "auto", "--zero_stage", "1"}),
              HasSubstr("--layout: is auto, but zero_stage is set (remove one of the two)"));
  EXPECT_THAT(refused({"--layout", "search", "--pipeline_parallel_size", "2"}),
              HasSubstr("--layout: is search, but pipeline_parallel_size is set"));
  EXPECT_THAT(refused({"--layout", "auto", "--virtual_pipeline_parallel_size", "2"}),
              HasSubstr("--layout: is auto, but virtual_pipeline_parallel_size is set"));
  EXPECT_THAT(refused({"--layout", "auto", "--sequence_parallel", "true"}),
              HasSubstr("--layout: is auto, but sequence_parallel is set"));
  write_file(path("launch.yaml"),
             "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n");
  EXPECT_THAT(refused({"--layout", "auto", "--config_file", path("launch.yaml").string()}),
              HasSubstr("launch.yaml sets zero_stage (remove one of the two)"));
  EXPECT_THAT(refused({"--layout", "best"}), HasSubstr("--layout: expected one of keys, auto, search, saw 'best'"));
  EXPECT_THAT(refusal(reinforcement("base", "bad", {"--layout", "auto"})), HasSubstr("--layout"));
}

}  // namespace
}  // namespace hone::test
