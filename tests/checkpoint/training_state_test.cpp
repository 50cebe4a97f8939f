#include "checkpoint/training_state.h"
#include "core/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>
#include <thread>

#include "checkpoint/model_directory.h"
#include "checkpoint/tensor_pieces.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/random.h"
#include "support/paths.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Saves a checkpoint with `stamp` in every file. Its tensors are in two files if the stamp is even, else in one.
fs::path save(CheckpointStore& store, std::int64_t step, std::int64_t stamp) {
  const std::vector<std::int64_t> values(500, stamp);
  const std::vector<TensorSource> sources{tensor_source("first", {10, 50}, std::span(values)),
                                          tensor_source("second", {500}, std::span(values))};
  const Json config{{"stamp", stamp}};
  const Json state{{"stamp", stamp}, {"epoch", 0.1}};
  return store.save({.step = step,
                     .state = state,
                     .tensors = sources,
                     .write_model =
                         [&](const fs::path& folder) {
                           write_model_directory(folder,
                                                 {.config = config, .weights = sources, .max_shard_bytes = 5000});
                         },
                     .max_file_bytes = stamp % 2 == 0 ? 5000 : kDefaultShardBytes});
}

// Returns the stamp of a checkpoint after checking that every file has the same one.
std::int64_t stamp_of(const CheckpointFolder& folder) {
  const TrainingState state(folder.path);
  EXPECT_EQ(state.step(), folder.step);
  const auto stamp = state.json()["stamp"].get<std::int64_t>();
  const ModelDirectory model(folder.path);
  EXPECT_EQ(model.config()["stamp"], stamp);
  const std::vector<std::int64_t> expected(500, stamp);
  for (const char* name : {"first", "second"}) {
    EXPECT_EQ(read_values<std::int64_t>(state.tensors().at(name)), expected);
    EXPECT_EQ(read_values<std::int64_t>(model.weights().at(name)), expected);
  }
  return stamp;
}

std::vector<std::int64_t> steps_in(const fs::path& path) {
  std::vector<std::int64_t> steps;
  for (const CheckpointFolder& folder : checkpoints_in(path)) steps.push_back(folder.step);
  return steps;
}

TEST(TrainingState, ComesBack) {
  const TemporaryDirectory folder;
  CheckpointStore store(folder.path() / "run");
  EXPECT_FALSE(last_good_checkpoint(folder.path() / "run"));
  const fs::path saved = save(store, 20, 7);
  EXPECT_EQ(saved, folder.path() / "run" / "checkpoint-20");
  EXPECT_THAT(list_folder(folder.path() / "run"), ElementsAre("checkpoint-20"));
  const TrainingState state(saved);
  EXPECT_EQ(state.step(), 20);
  EXPECT_EQ(state.json()["epoch"], 0.1);
  EXPECT_EQ(stamp_of({20, saved}), 7);
}

// A tensor of 8 x 4 in three pieces. They are in three files, each with a whole tensor after it.
class SeveralFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::iota(values_.begin(), values_.end(), 0);
    for (const std::int64_t row : {0, 3, 6}) {
      const std::int64_t rows = std::min<std::int64_t>(3, kRows - row);
      sources_.push_back(tensor_source(
          "w", {rows, kColumns}, std::span<const std::int32_t>(values_).subspan(row * kColumns, rows * kColumns)));
      sources_.back().place = {{row, 0}, {kRows, kColumns}};
      sources_.push_back(tensor_source(text_of("v", row), {rows}, std::span<const std::int32_t>(values_).first(rows)));
    }
    CheckpointStore store(folder_.path());
    one_ = store.save({.step = 1, .state = state_, .tensors = sources_, .write_model = {}});
    several_ = store.save({.step = 2, .state = state_, .tensors = sources_, .write_model = {}, .max_file_bytes = 60});
  }
  static std::vector<std::int32_t> whole(const fs::path& checkpoint) {
    const TrainingState state(checkpoint);
    std::vector<std::int32_t> read(kRows * kColumns);
    PiecedTensors(state.tensors().files())
        .at("w", std::vector{kRows, kColumns}, 0, kRows * kColumns)
        .read(0, DType::kI32, std::as_writable_bytes(std::span(read)));
    return read;
  }
  static std::string error_of(const fs::path& checkpoint) {
    try {
      (void)whole(checkpoint);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
      return error.what();
    }
    return "";
  }
  [[nodiscard]] fs::path file(int number) const {
    return several_ / text_of("optimizer-0000", number, "-of-00003.safetensors");
  }
  // Makes the checkpoint list no files, so that it counts as complete whatever is in it.
  void seal() const {
    Json state = read_json(several_ / "training_state.json");
    state["files"] = Json::object();
    write_json(several_ / "training_state.json", state);
  }
  void change_index(const char* tensor, const Json& file) const {
    Json index = read_json(index_());
    if (file.is_null()) {
      index["weight_map"].erase(tensor);
    } else {
      index["weight_map"][tensor] = file;
    }
    write_json(index_(), index);
  }
  [[nodiscard]] fs::path index_() const { return several_ / "optimizer.safetensors.index.json"; }

  static constexpr std::int64_t kRows = 8;
  static constexpr std::int64_t kColumns = 4;
  TemporaryDirectory folder_;
  std::vector<std::int32_t> values_ = std::vector<std::int32_t>(kRows * kColumns);
  std::vector<TensorSource> sources_;
  Json state_ = Json::object();
  fs::path one_;
  fs::path several_;
};

TEST_F(SeveralFiles, HoldWhatOneFileHolds) {
  EXPECT_THAT(list_folder(one_), ElementsAre("optimizer.safetensors", "training_state.json"));
  EXPECT_THAT(
      list_folder(several_),
      ElementsAre("optimizer-00001-of-00003.safetensors", "optimizer-00002-of-00003.safetensors",
                  "optimizer-00003-of-00003.safetensors", "optimizer.safetensors.index.json", "training_state.json"));
  for (const std::string& name : list_folder(several_)) EXPECT_TRUE(is_state_file(name)) << name;
  for (const char* name : {"optimizer.json", "model.safetensors", "optimizer-1-of-2.safetensors", "config.json"}) {
    EXPECT_FALSE(is_state_file(name)) << name;
  }
  EXPECT_EQ(whole(one_), values_);
  EXPECT_EQ(whole(several_), values_);
  EXPECT_EQ(TrainingState(several_).format(), kStateFormat);
}

TEST_F(SeveralFiles, OneThatIsMissingIsNamed) {
  fs::remove(file(2));
  EXPECT_EQ(error_of(several_), file(2).string() + ": is missing from the checkpoint");
  EXPECT_EQ(last_good_checkpoint(folder_.path())->step, 1);
  seal();
  EXPECT_EQ(error_of(several_), file(2).string() + ": is missing, but optimizer.safetensors.index.json names it");
  fs::remove(index_());
  EXPECT_THAT(error_of(several_), HasSubstr("but no optimizer.safetensors.index.json"));
  for (const int number : {1, 3}) fs::remove(file(number));
  EXPECT_THAT(error_of(several_), HasSubstr("it has no optimizer.safetensors and no index"));
}

TEST_F(SeveralFiles, ForeignEntriesOfTheIndexAreRefused) {
  seal();
  const auto error_with = [&](const char* tensor, const Json& file) {
    change_index(tensor, file);
    const std::string error = error_of(several_);
    change_index(tensor, nullptr);
    return error;
  };
  EXPECT_THAT(error_with("x", file(1).filename().string()), AllOf(HasSubstr(file(1).string()), HasSubstr("'x'")));
  EXPECT_THAT(error_with("x", "../checkpoint-1/optimizer.safetensors"), HasSubstr("not the name of a file in this"));
  EXPECT_THAT(error_with("x", "optimizer-00004-of-00004.safetensors"), HasSubstr("is missing, but"));
  EXPECT_EQ(error_of(several_), "");
  write_safetensors(file(3), {&sources_[5], 1}, {{"hone_format", "2"}});
  EXPECT_THAT(error_of(several_), AllOf(HasSubstr(file(3).string()), HasSubstr("holds no tensor 'w@6,0'")));
}

TEST_F(SeveralFiles, PiecesThatOverlapOrAreAbsentAreRefused) {
  seal();
  for (const char* tensor : {"w@6,0", "v6"}) change_index(tensor, nullptr);  // the third file is no longer listed
  EXPECT_THAT(error_of(several_), AllOf(HasSubstr(several_.string()), HasSubstr("hold 24 of the 32 elements")));
  TensorSource twice = sources_[2];  // rows 3 to 5, which the second file has
  twice.place.offset = {5, 0};
  write_safetensors(file(3), {&twice, 1}, {{"hone_format", "2"}});
  change_index("w@5,0", file(3).filename().string());
  EXPECT_THAT(error_of(several_), HasSubstr("the pieces 'w@3,0' and 'w@5,0' overlap"));
  write_safetensors(file(3), {&sources_[2], 1}, {{"hone_format", "2"}});
  change_index("w@5,0", nullptr);
  change_index("w@3,0", file(3).filename().string());
  EXPECT_THAT(error_of(several_), AllOf(HasSubstr("'w@3,0' is also in"), HasSubstr(file(2).string())));
  write_safetensors(file(3), {&sources_[4], 1}, {{"format", "pt"}});
  change_index("w@3,0", file(2).filename().string());
  change_index("w@6,0", file(3).filename().string());
  EXPECT_THAT(error_of(several_), AllOf(HasSubstr(file(3).string()), HasSubstr("has format 1"), HasSubstr("has 2")));
}

TEST(TrainingState, KeepsLargeSeedsAndEveryBitOfALoss) {
  const TemporaryDirectory folder;
  CheckpointStore store(folder.path());
  const Json state{{"seed", std::numeric_limits<std::uint64_t>::max()}, {"loss", 0.1 + 0.2}};
  const TrainingState loaded(store.save({.step = 1, .state = state}));
  EXPECT_EQ(loaded.json()["seed"].get<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(loaded.json()["loss"].get<double>(), 0.1 + 0.2);
  const Json infinite{{"best", std::numeric_limits<double>::infinity()}};
  EXPECT_THROW(store.save({.step = 2, .state = infinite}), Defect);  // JSON has no infinity
}

TEST(TrainingState, ListsBySteps) {
  const TemporaryDirectory folder;
  CheckpointStore store(folder.path());
  for (const std::int64_t step : {100, 9, 20}) save(store, step, step);
  for (const char* name : {"checkpoint-", "checkpoint-x", "checkpoint-007", "checkpoint--1", "checkpoint-5.bak"}) {
    hone::create_directories(folder.path() / name);
  }
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(9, 20, 100));
  EXPECT_EQ(last_good_checkpoint(folder.path())->step, 100);
  EXPECT_TRUE(checkpoints_in(folder.path() / "none").empty());
}

TEST(TrainingState, SkipsDamagedCheckpoints) {
  const TemporaryDirectory folder;
  CheckpointStore store(folder.path());
  for (const std::int64_t step : {1, 2, 3, 4, 5}) save(store, step, step);
  fs::resize_file(folder.path() / "checkpoint-5" / "optimizer.safetensors", 100);
  fs::remove(folder.path() / "checkpoint-4" / "config.json");
  write_file(folder.path() / "checkpoint-3" / "training_state.json", "{\"step\": 3");
  fs::remove(folder.path() / "checkpoint-2" / "training_state.json");
  EXPECT_EQ(last_good_checkpoint(folder.path())->step, 1);
  const auto error_of = [&](const char* name) -> std::string {
    try {
      const TrainingState state(folder.path() / name);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("checkpoint-5"), AllOf(HasSubstr("optimizer.safetensors"), HasSubstr("has 100 bytes")));
  EXPECT_THAT(error_of("checkpoint-4"), AllOf(HasSubstr("config.json"), HasSubstr("missing")));
  EXPECT_THAT(error_of("checkpoint-3"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("checkpoint-2"), HasSubstr("no training_state.json"));
  EXPECT_THAT(error_of("checkpoint-6"), HasSubstr("checkpoint-6"));
  store.apply_limit(1);  // neither counts nor deletes the damaged ones
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(1, 2, 3, 4, 5));
}

TEST(TrainingState, DeletesTheOldest) {
  const TemporaryDirectory folder;
  CheckpointStore store(folder.path());
  for (const std::int64_t step : {10, 20, 30, 40}) save(store, step, step);
  store.apply_limit(4);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(10, 20, 30, 40));
  const std::vector<std::int64_t> best{10};
  store.apply_limit(2, best);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(10, 40));
  save(store, 5, 5);  // resumed from an older checkpoint: the one just saved is kept
  store.apply_limit(1);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(5));
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("checkpoint-5"));
}

TEST(TrainingState, AFailedSaveLeavesWhatWasThere) {
  const TemporaryDirectory folder;
  {
    CheckpointStore store(folder.path());
    save(store, 1, 1);
    const Json state = Json::object();
    const auto fail = [](const fs::path& path) {
      write_file(path / "config.json", "{}");
      throw Error("no space left");
    };
    EXPECT_THROW(store.save({.step = 1, .state = state, .write_model = fail}), Error);
    EXPECT_THROW(store.save({.step = 2, .state = state, .write_model = fail}), Error);
    EXPECT_THAT(steps_in(folder.path()), ElementsAre(1));
    EXPECT_EQ(stamp_of(*last_good_checkpoint(folder.path())), 1);
  }
  const CheckpointStore store(folder.path());
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("checkpoint-1"));
}

TEST(TrainingState, RecoversFromEveryStageOfAKill) {
  const TemporaryDirectory folder;
  const auto at = [&](const char* name) { return folder.path() / name; };
  {
    CheckpointStore store(folder.path());
    for (const std::int64_t step : {1, 2, 3, 4}) save(store, step, step);
  }
  fs::rename(at("checkpoint-1"), at(".checkpoint-1.removed"));   // being deleted
  fs::rename(at("checkpoint-2"), at(".checkpoint-2.replaced"));  // being replaced: the new one is not there yet
  fs::copy(at("checkpoint-3"), at(".checkpoint-3.replaced"));    // being replaced: the new one is there
  hone::create_directories(at(".checkpoint-5.partial"));         // being written
  hone::create_directories(at(".other.partial"));                // not written by hone
  const CheckpointStore store(folder.path());
  EXPECT_THAT(list_folder(folder.path()),
              ElementsAre(".other.partial", "checkpoint-2", "checkpoint-3", "checkpoint-4"));
  for (const CheckpointFolder& checkpoint : checkpoints_in(folder.path())) {
    EXPECT_EQ(stamp_of(checkpoint), checkpoint.step);
  }
}

TEST(TrainingState, OneRunAtATime) {
  const TemporaryDirectory folder;
  {
    const CheckpointStore store(folder.path());
    EXPECT_THAT([&] { CheckpointStore{folder.path()}; }, ThrowsMessage<Error>(HasSubstr("another run")));
  }
  EXPECT_NO_THROW(CheckpointStore{folder.path()});
}

// The run to be killed. Each save increments the stamp, and every third save replaces the previous checkpoint.
std::int64_t step_of_stamp(std::int64_t stamp) { return stamp - stamp / 3; }

[[noreturn]] void save_until_killed(const fs::path& folder, int acknowledge) {
  try {
    CheckpointStore store(folder);
    const auto last = last_good_checkpoint(folder);
    for (std::int64_t stamp = last ? stamp_of(*last) + 1 : 1;; ++stamp) {
      save(store, step_of_stamp(stamp), stamp);
      if (::write(acknowledge, &stamp, sizeof(stamp)) != sizeof(stamp)) break;
      store.apply_limit(2);
    }
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
  ::_exit(1);
}

// Starts the run, waits until it has saved `saves` checkpoints and for another `share` of the duration of the last
// save, then kills it. Returns the last stamp that it reported as saved.
std::int64_t kill_run_after(const fs::path& folder, std::uint64_t saves, float share) {
  using Clock = std::chrono::steady_clock;
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) save_until_killed(folder, ends[1]);
  ::close(ends[1]);
  std::int64_t saved = 0;
  const auto read_report = [&] { return ::read(ends[0], &saved, sizeof(saved)) == sizeof(saved); };
  Clock::time_point before;
  for (std::uint64_t save = 0; save < saves; ++save) {
    before = Clock::now();
    EXPECT_TRUE(read_report()) << "the run ended by itself";
  }
  std::this_thread::sleep_for((Clock::now() - before) * share);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the run ended by itself";
  while (read_report()) continue;
  ::close(ends[0]);
  return saved;
}

TEST(TrainingState, AKillAtAnyMomentLeavesTheLastGoodOne) {
  const TemporaryDirectory folder;
  const fs::path run = folder.path() / "run";
  const RandomStream random(1, "kills");
  std::int64_t saved = 0;
  int unfinished = 0;
  std::size_t kept = 0;
  for (std::uint64_t round = 0; round < 30 || unfinished <= 5; ++round) {  // enough kills must happen during a save
    const std::uint64_t saves = 1 + random.below(2 * round, 2);
    const std::int64_t reported = kill_run_after(run, saves, random.uniform(2 * round + 1));
    EXPECT_GT(reported, saved);
    saved = reported;

    // Right after the kill, every folder named checkpoint-N is complete.
    const auto before = checkpoints_in(run);
    for (const CheckpointFolder& checkpoint : before) EXPECT_EQ(step_of_stamp(stamp_of(checkpoint)), checkpoint.step);
    unfinished += list_folder(run).size() > before.size() ? 1 : 0;
    EXPECT_TRUE(saved <= 1 || last_good_checkpoint(run));

    // After reopening the store, the last reported save exists, or the one in progress at the kill.
    const CheckpointStore store(run);
    const auto last = last_good_checkpoint(run);
    ASSERT_TRUE(last);
    const std::int64_t stamp = stamp_of(*last);
    EXPECT_GE(stamp, saved);
    EXPECT_LE(stamp, saved + 1);
    saved = stamp;
    EXPECT_EQ(list_folder(run).size(), checkpoints_in(run).size());  // no temporary folders remain
    // At most two, plus one that is not deleted yet. If the run was killed right after its first save, apply_limit()
    // may not have run: at most one more than before.
    EXPECT_LE(checkpoints_in(run).size(), saves > 1 ? 3u : std::max<std::size_t>(3, kept + 1));
    kept = checkpoints_in(run).size();
  }
}

// Kills a save that replaces a checkpoint at the moment when neither the old nor the new folder is named checkpoint-N.
TEST(TrainingState, AKillWhileOneIsReplacedKeepsTheOldOneOrTheNew) {
  constexpr std::int64_t kSaves = 100;
  const TemporaryDirectory folder;
  const fs::path run = folder.path() / "run";
  {
    CheckpointStore store(run);
    save(store, 1, 1);
  }
  std::int64_t stamp = 1;
  for (int round = 0; round < 5; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      CheckpointStore store(run);
      for (std::int64_t i = 1; i <= kSaves; ++i) save(store, 1, stamp + i);
      ::_exit(0);
    }
    int status = 0;
    bool ended = false;
    while (is_folder(run / "checkpoint-1") && !ended) ended = ::waitpid(child, &status, WNOHANG) == child;
    if (!ended) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
    }
    const CheckpointStore store(run);
    const auto last = last_good_checkpoint(run);
    ASSERT_TRUE(last);
    EXPECT_GE(stamp_of(*last), stamp);
    EXPECT_LE(stamp_of(*last), stamp + kSaves);
    EXPECT_THAT(list_folder(run), ElementsAre("checkpoint-1"));
    stamp = stamp_of(*last);
  }
}

}  // namespace
}  // namespace hone
