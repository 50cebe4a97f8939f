// A reward and a tracker that declare keys are registered by this file alone: help, recipes, suggestions and the values
// of the keys follow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json_value.h"
#include "reward/registry.h"
#include "rl/options.h"
#include "rl/reward_options.h"
#include "tracker/registry.h"

namespace hone {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct EchoKeys {
  double echo_factor = 2;
  std::string echo_secret_file;

  template <class Visitor>
  void fields(Visitor& v) {
    v("echo_factor", echo_factor, "echo: what the number of tokens is multiplied by", at_least(0));
    v("echo_secret_file", echo_secret_file, "echo: a file that programs may not read");
  }
};

struct DiaryKeys {
  std::string diary_title = "untitled";

  template <class Visitor>
  void fields(Visitor& v) {
    v("diary_title", diary_title, "Title of the diary");
  }
};

class Diary final : public Tracker {
 public:
  Diary(std::string title, std::vector<std::string>& lines) : title_(std::move(title)), lines_(lines) {}
  void log(const MetricRow& row) override { lines_.push_back(text_of(title_, " ", row.step)); }
  void finish(bool) override {}

 private:
  std::string title_;
  std::vector<std::string>& lines_;
};

class DeclaredKeys : public testing::Test {
 protected:
  DeclaredKeys() {
    reward_registry().add_keys(OptionSet::of<EchoKeys>());
    reward_registry().hide([](const OptionSet& keys) { return keys.get<EchoKeys>().echo_secret_file; });
    reward_registry().add("echo", "echo_reward", RewardScope::kCompletion, [this](const RewardOptions& options) {
      hidden_ = options.hidden;
      return each([factor = options.keys.get<EchoKeys>().echo_factor](const RewardInput& input) {
        return std::optional<double>(factor * static_cast<double>(input.token_count));
      });
    });
    tracker_registry().add({.name = "diary",
                            .note = "a test's",
                            .keys = OptionSet::of<DiaryKeys>(),
                            .make = [this](const TrackedRun& run) {
                              return std::make_unique<Diary>(run.keys.get<DiaryKeys>().diary_title, lines_);
                            }});
  }
  ~DeclaredKeys() override {
    reward_registry() = rewards_before_;
    tracker_registry() = trackers_before_;
  }

  static GrpoOptions read(const std::vector<std::string>& flags) {
    GrpoOptions options;
    (void)read_options(OptionTable(options), flags);
    return options;
  }

  RewardRegistry rewards_before_ = reward_registry();
  TrackerRegistry trackers_before_ = tracker_registry();
  std::vector<std::string> hidden_;
  std::vector<std::string> lines_;
};

TEST_F(DeclaredKeys, StandInHelpAndInTheValuesInEffect) {
  GrpoOptions options;
  const OptionTable table(options);
  EXPECT_EQ(table.find("echo_factor")->group, "Rewards");
  EXPECT_EQ(table.find("diary_title")->group, "Output");
  EXPECT_THAT(option_help(table), HasSubstr("echo: what the number of tokens is multiplied by"));
  EXPECT_THAT(table.find("report_to")->help, HasSubstr("tensorboard, wandb (offline), diary (a test's), all, none"));
  EXPECT_THAT(option_markdown(table), HasSubstr("| `diary_title` | text | `untitled` | Title of the diary |"));
  EXPECT_EQ(option_json(table).at("echo_factor"), 2.0);
}

TEST_F(DeclaredKeys, ReachTheRewardThatDeclaresThem) {
  const GrpoOptions options =
      read({"--reward_funcs", "echo", "--echo_factor", "3", "--echo_secret_file", "/the/secret"});
  const RewardInput input{.completion = "", .token_count = 5};
  const std::vector<Reward> rewards = rewards_of(options, false, {"/data"});
  EXPECT_EQ(rewards.at(0).score({&input, 1}), RewardScores{15.0});
  EXPECT_THAT(hidden_, testing::IsSupersetOf({"/data", "/the/secret"}));
  // A copy of the options has its own copy of the keys.
  GrpoOptions copy = options;
  (void)read_options(OptionTable(copy), std::vector<std::string>{"--echo_factor", "7"});
  EXPECT_EQ(rewards_of(options, false, {}).at(0).score({&input, 1}), RewardScores{15.0});
  EXPECT_EQ(rewards_of(copy, false, {}).at(0).score({&input, 1}), RewardScores{35.0});
}

TEST_F(DeclaredKeys, ReachTheTrackerThatDeclaresThem) {
  const GrpoOptions options = read({"--report_to", "diary", "--diary_title", "mine"});
  const Json none = Json::object();
  Trackers trackers(tracker_names(options.report_to, "report_to"),
                    {.output_dir = "out", .options = &none, .keys = options.keys_of_trackers});
  trackers.log({.step = 4, .values = {}});
  trackers.finish(true);
  EXPECT_THAT(lines_, ElementsAre("mine 4"));
}

TEST_F(DeclaredKeys, AreCheckedAndSuggestedAsAnyKey) {
  const auto error_of = [](const std::vector<std::string>& flags) -> std::string {
    try {
      (void)read(flags);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of({"--echo_facter", "3"}), HasSubstr("echo_factor"));
  EXPECT_THAT(error_of({"--diary_titel", "x"}), HasSubstr("diary_title"));
  EXPECT_THAT(error_of({"--echo_factor", "-1"}), HasSubstr("--echo_factor"));
  EXPECT_EQ(error_of({"--echo_factor", "0", "--diary_title", "x"}), "no error");
}

}  // namespace
}  // namespace hone
