// Runs that end before their last step: saved checkpoints and notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "checkpoint/training_state.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "support/paths.h"
#include "train/run_notes.h"
#include "train/scripted_run.h"

namespace hone::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Steps = std::vector<std::int64_t>;

Steps saved_in(const TemporaryDirectory& folder) {
  Steps steps;
  for (const CheckpointFolder& checkpoint : checkpoints_in(folder.path())) steps.push_back(checkpoint.step);
  return steps;
}

ScriptedRun five_steps() { return {.options = {.save_strategy = SaveStrategy::kNo}, .steps = 5}; }

std::string final_weights(const TemporaryDirectory& folder) { return read_file(folder.path() / "model.safetensors"); }

// Returns the log of a run, followed by the kind and the text of the exception that it throws.
std::string said_by(const TemporaryDirectory& folder, const ScriptedRun& run) {
  testing::internal::CaptureStderr();
  std::string thrown;
  try {
    run_scripted(folder.path(), run);
  } catch (const Error& error) {
    thrown = std::string("Error ") + error.what();
  } catch (const std::exception& error) {
    thrown = std::string("exception ") + error.what();
  }
  return testing::internal::GetCapturedStderr() + thrown;
}

template <class Failure>
void check_saved() {
  const TemporaryDirectory whole;
  const TemporaryDirectory failed;
  run_scripted(whole.path(), five_steps());
  ScriptedRun run = five_steps();
  run.in_step = [](std::int64_t step) {
    if (step == 3) throw Failure("a child is gone");
  };
  EXPECT_THAT(said_by(failed, run), AllOf(HasSubstr("hone: saved step 3 in "), HasSubstr("the same command continues"),
                                          HasSubstr("a child is gone")));
  EXPECT_EQ(saved_in(failed), (Steps{3}));
  run_scripted(failed.path(), five_steps());
  EXPECT_EQ(final_weights(failed), final_weights(whole));
}

TEST(EarlyEnd, WhateverAStepThrowsTheStepsBeforeItAreSaved) {
  check_saved<Error>();
  check_saved<Defect>();
  check_saved<std::runtime_error>();
}

TEST(EarlyEnd, WhateverAnEvaluationThrowsTheStepsBeforeItAreSaved) {
  const TemporaryDirectory whole;
  const TemporaryDirectory failed;
  ScriptedRun run = five_steps();
  run.options.eval_strategy = Interval::kSteps;
  run.options.eval_steps = 2;
  run.evaluations = {1, 1, 1, 1, 1};
  run_scripted(whole.path(), run);
  run.in_evaluation = [](std::int64_t step) {
    if (step == 4) throw Error("a child is gone");
  };
  EXPECT_THAT(said_by(failed, run), HasSubstr("saved step 4 in "));
  run.in_evaluation = {};
  run_scripted(failed.path(), run);
  EXPECT_EQ(final_weights(failed), final_weights(whole));
}

TEST(EarlyEnd, BeforeTheFirstStepThereIsNothingToSave) {
  const TemporaryDirectory folder;
  ScriptedRun run = five_steps();
  run.in_step = [](std::int64_t) { throw Error("a child is gone"); };
  EXPECT_THAT(said_by(folder, run), Not(HasSubstr("saved")));
  EXPECT_EQ(saved_in(folder), Steps{});
}

TEST(EarlyEnd, ThatCannotBeSavedSaysWhyAndStaysTheFirstError) {
  const TemporaryDirectory folder;
  ScriptedRun run = five_steps();
  run.in_step = [&](std::int64_t step) {
    if (step != 2) return;
    write_file(folder.path() / ".checkpoint-2.partial", "");
    write_file(folder.path() / "checkpoint-2", "a file in the way");
    throw Error("a child is gone");
  };
  EXPECT_THAT(said_by(folder, run),
              AllOf(HasSubstr("warning: step 2 could not be saved: "), testing::EndsWith("Error a child is gone")));
}

TEST(EarlyEnd, AModelAloneIsNotSaidToGoOn) {
  const TemporaryDirectory folder;
  ScriptedRun run = five_steps();
  run.options.save_only_model = true;
  run.in_step = [](std::int64_t step) {
    if (step == 3) throw Error("a child is gone");
  };
  EXPECT_THAT(said_by(folder, run), AllOf(HasSubstr("it cannot be resumed"), Not(HasSubstr("continues"))));
}

TEST(RunNotes, AResumedRunNamesItsChangedKeys) {
  const TemporaryDirectory folder;
  ScriptedRun run = five_steps();
  run.options_json = R"({"learning_rate": 0.001, "seed": 1, "output_dir": "a"})";
  run.options.save_strategy = SaveStrategy::kSteps;
  run.options.save_steps = 2;
  EXPECT_THAT(said_by(folder, run), AllOf(HasSubstr("hone: test: wrote "), HasSubstr(" after 5 steps in "),
                                          HasSubstr(", 5 tokens\n"), Not(HasSubstr("other options"))));
  run.steps = 7;
  EXPECT_THAT(said_by(folder, run), AllOf(HasSubstr("at step 5\n"), Not(HasSubstr("other options")),
                                          HasSubstr(" after 2 steps in "), HasSubstr(", 2 tokens\n")));
  run.steps = 8;
  run.options_json = R"({"learning_rate": 0.005, "seed": 1, "output_dir": "b"})";
  EXPECT_THAT(said_by(folder, run),
              HasSubstr("hone: this run continues with other options: learning_rate was 0.001, is 0.005\n"));
  EXPECT_THAT(said_by(folder, run),
              AllOf(HasSubstr("the run is finished: 8 steps are done, 8 are required; to continue increase max_steps "
                              "or num_train_epochs, to start over set overwrite_output_dir: true"),
                    Not(HasSubstr("test: wrote"))));
}

TEST(RunNotes, ChangedKeysAreShownAsTheyWere) {
  const Json before = Json::parse(R"({"a": "", "b": null, "c": [1, 2], "d": {"e": 1}, "dry_run": true, "gone": 1})");
  const Json now = Json::parse(R"({"a": "x", "b": 2, "c": [1], "d": {"e": 1}, "dry_run": false, "fresh": 1})");
  EXPECT_EQ(changed_keys(before, now), "a was '', is x; b was null, is 2; c was [1,2], is [1]");
  EXPECT_EQ(changed_keys(before, before), "");
  EXPECT_EQ(changed_keys(Json(), now), "");
  EXPECT_LT(changed_keys(Json{{"a", std::string(1000, 'x')}}, Json{{"a", ""}}).size(), 100u);
}

TEST(RunNotes, StepsThatTeachNothingAreRemarkedOnce) {
  IdleDetector watch;
  int remarks = 0;
  const auto see = [&](std::int64_t count, const char* cause) {
    for (std::int64_t i = 0; i < count; ++i) remarks += watch.see(cause).empty() ? 0 : 1;
  };
  see(IdleDetector::kSteps - 1, "zero");
  see(1, "");
  see(IdleDetector::kSteps - 1, "zero");
  EXPECT_EQ(remarks, 0);
  EXPECT_EQ(watch.see("zero"), "10 steps in a row taught nothing: zero");
  see(100, "zero");
  EXPECT_EQ(remarks, 0);
}

}  // namespace
}  // namespace hone::test
